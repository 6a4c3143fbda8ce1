"""The registers of a line of SASS, and what an instruction that stalls probably waits for.

NVIDIA documents no grammar of SASS: this reads what nvdisasm and ncu print for compute capabilities 7 to 10, as far as
it is needed here. Any text is allowed; one that is not an instruction has no registers.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LOOK_BACK = 256  # most instructions that are searched backwards
BARRIER_REACH = 16
"""Most instructions that a warp runs on after a deferred barrier: recorded kernels show 1 to 5, 8 and 16."""
LOOK_AHEAD = 16  # most instructions between a load and the load whose address depends on it
LONGEST_LINE = 1000  # characters; an instruction has at most 120


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Which scoreboard an instruction with a variable latency reports to, as NVIDIA's profiling guide sorts them: L1TEX
# (global, local, texture memory) is the long one, MIO (shared memory, special functions, conversions) the short one.
# The places of an mbarrier's try-wait (SYNCS) and of LDC are by recorded H200 runs.
LONG = _set("LD LDG LDL ATOM ATOMG TEX TLD TLD4 TMML TXD TXQ SULD SUATOM SUQ LDTM CCTL SYNCS UTMACMDFLUSH")
SHORT = _set(
    "LDS LDSM LDC ATOMS MUFU S2R S2UR SHFL I2F F2I F2F FRND POPC FLO BREV REDUX MATCH VOTE MOVM DADD DMUL DFMA "
    "DSETP DMMA"
)
_LOADS = _set("LD LDG LDGSTS")
_CONTROL = _set(
    "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BSSY BSYNC BREAK BAR B2R R2B NANOSLEEP WARPSYNC DEPBAR LDGDEPBAR "
    "MEMBAR KILL RTT BPT YIELD NOP PREEXIT ACQBULK WARPGROUP USETMAXREG ENDCOLLECTIVE FENCE"
)
"""Opcodes whose operands are all read."""
_ENDS_REGION = _set("CALL RET EXIT BRX BRXU JMX JMXU KILL RTT WARPSYNC ENDCOLLECTIVE BREAK")
"""Opcodes behind which it is not certain that the instruction before was the last to run."""
_JUMPS = _set("BRA JMP")
_TAKES_TARGET = _set("BRA JMP BSSY WARPSYNC CALL")
_INDIRECT = _set("BRX BRXU JMX JMXU")
_LINE = re.compile(r"\s*(?:@(!?)(U?P(?:[0-9]|T))\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)(?![^\s])")
_REGISTER = re.compile(r"(?<![A-Za-z0-9_.])(U?)([RP])([0-9]{1,3})(?![A-Za-z0-9_])(\.64)?")
_BARE = re.compile(r"[-!~|]?(U?)(?:R(?:[0-9]{1,3}|Z)|P(?:[0-9]|T))\|?(?:\.[A-Za-z0-9_]+)*")
_TARGET = re.compile(r"0x([0-9a-f]{1,16})\s*\Z")
_JUMP_WORD = re.compile("BRA|BSSY|BRX|JM[PX]|CALL|WARPSYNC")
_WIDE = {"64": 2, "96": 3, "128": 4, "256": 8}


class Sass(NamedTuple):
    """A line of SASS. Registers are named as in SASS, each 32 bits: R12, UR4, P0, UP1."""

    opcode: str  # without modifiers; empty for text that is not an instruction
    modifiers: tuple[str, ...]
    guarded: bool  # whether a predicate decides if it runs
    reads: frozenset[str]
    writes: frozenset[str]
    target: int | None  # address that it, or a later instruction, can jump to, as printed


_NOTHING = Sass("", (), False, frozenset(), frozenset(), None)


def opcode_of(line: str) -> tuple[str, tuple[str, ...]]:
    """Opcode and modifiers, in a tenth of the time of :func:`parse`; empty for text that is not an instruction."""
    match = None if len(line) > LONGEST_LINE else _LINE.match(line)
    return (match[3], tuple(match[4].split(".")[1:])) if match else ("", ())


@functools.lru_cache(1 << 15)
def parse(line: str) -> Sass:
    """A line of SASS, read. Never raises, whatever the text."""
    match = None if len(line) > LONGEST_LINE else _LINE.match(line)
    if not match:
        return _NOTHING
    guard, opcode = match[2] or "", match[3]
    modifiers = tuple(match[4].split(".")[1:])
    rest = line[match.end() :]
    operands = _operands(rest)
    written = 0 if opcode in _CONTROL else _count_written(opcode, operands)
    widths = _widths(opcode, modifiers, len(operands), written)
    reads, writes = set(_registers(guard, 1)), set[str]()
    for place, (operand, width) in enumerate(zip(operands, widths, strict=True)):
        (writes if place < written else reads).update(_registers(operand, width))
    target = _TARGET.search(rest) if opcode in _TAKES_TARGET else None
    address = int(target[1], 16) if target else None
    return Sass(opcode, modifiers, bool(guard), frozenset(reads), frozenset(writes), address)


def brief(line: str) -> str:
    """An instruction in short: ``LDG.E.128 R12``, without its guard and with its first result or operand."""
    match = None if len(line) > LONGEST_LINE else _LINE.match(line)
    if not match:
        return line[:LONGEST_LINE]
    operands = [operand for operand in _operands(line[match.end() :]) if operand not in ("PT", "UPT")]
    return " ".join([f"{match[3]}{match[4].replace('.DEFER_BLOCKING', '')}", *operands[:1]])


def _operands(text: str) -> list[str]:
    """The operands of an instruction; commas in brackets do not separate them."""
    operands, depth, start = [], 0, 0
    for place, char in enumerate(text):
        if char in "[({":
            depth += 1
        elif char in "])}":
            depth -= 1
        elif char == "," and depth <= 0:
            operands.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*operands, last] if last else operands


def _count_written(opcode: str, operands: Sequence[str]) -> int:
    """How many leading operands are results: one, or one and its predicates (``IADD3 R2, P0, …``)."""
    bare = [bool(_BARE.fullmatch(operand)) and operand[0] not in "-!~|" for operand in operands[:3]]
    if not bare or not bare[0]:
        return 0
    is_predicate = [operand.lstrip("U").startswith("P") and operand[:2] != "PR" for operand in operands[:3]]
    if is_predicate[0] and opcode in ("VOTEU", "ELECT", "USETMAXREG", "SYNCS", "R2UR"):
        return 1
    if is_predicate[0]:
        return 2 if len(bare) > 1 and bare[1] else 1
    if len(bare) > 1 and bare[1] and is_predicate[1] and opcode not in ("SEL", "USEL", "FSEL", "FMNMX"):
        return 3 if len(bare) > 2 and bare[2] and is_predicate[2] else 2
    return 1


def _widths(opcode: str, modifiers: Sequence[str], count: int, written: int) -> list[int]:
    """For each operand the number of 32-bit registers that its first register stands for, outside brackets."""
    widths = [1] * count
    if not count:
        return widths
    if opcode.startswith(("LD", "ST", "ATOM", "RED", "ULDC", "SULD", "SUST", "CS2R")):
        width = max((_WIDE.get(modifier, 1) for modifier in modifiers), default=1)
        if opcode == "CS2R":
            width = 1 if "32" in modifiers else 2
        if opcode in ("LDSM", "STSM", "LDTM"):
            width = next((int(word) for word in reversed(modifiers) if word in ("2", "4")), 1)
        return [width] * count
    if opcode in ("TEX", "TLD", "TLD4", "TXD"):
        return [4] * written + [2] * (count - written)
    if opcode.startswith("D") and opcode[1:] in ("ADD", "MUL", "FMA", "SETP", "MNMX", "MMA"):
        return [2] * count
    if opcode in ("F2F", "I2F", "F2I", "MUFU", "FRND"):
        into = modifiers[0] if modifiers else ""
        out_of = modifiers[1] if len(modifiers) > 1 else ""
        pairs = ("F64", "U64", "S64")
        return [2 if into in pairs else 1] + [2 if out_of in pairs else 1] * (count - 1)
    if "MMA" in opcode and opcode[0] in "HIQBO":
        # The most registers that these shapes take: result, A, B, C.
        shape = modifiers[0].split("x") if modifiers else []
        result = 4
        if opcode.endswith("GMMA") and len(shape) == 3 and shape[1][:4].isdecimal():
            result = min(int(shape[1][:4]), 256) // (2 if modifiers[-1] == "F32" or "F32" in modifiers else 4)
        return ([result, 4, 4 if opcode.endswith("GMMA") else 2] + [result] * count)[:count]
    if "WIDE" in modifiers:
        widths[:written] = [2] * written
        widths[-1:] = [2]
    return widths


def _registers(operand: str, width: int) -> list[str]:
    """The registers of an operand. width: of its first register, outside brackets."""
    numbered = []
    for uniform, kind, number, wide in _REGISTER.findall(operand):
        # Addresses in brackets say their width (``.64``); a descriptor is a pair.
        registers = 2 if wide else 1 if "[" in operand else width
        if "desc[" in operand and uniform:
            registers = 2
        if kind == "P":
            registers = 1
        numbered += [f"{uniform}{kind}{int(number) + i}" for i in range(registers)]
    return numbered


@dataclass(frozen=True)
class Code:
    """The instructions of a kernel in order."""

    offsets: Sequence[int]  # bytes from the kernel's first instruction
    lines: Sequence[str]

    @functools.cached_property
    def base(self) -> int | None:
        """The address that the kernel was loaded to; None where the listing does not show it.

        A kernel ends with an unconditional branch to itself and padding: its target gives the address. It is accepted
        only where every other target then is an instruction of this kernel.
        """
        for place in range(len(self.lines) - 1, -1, -1):
            last = parse(self.lines[place])
            if last.opcode != "NOP":
                break
        else:
            return None
        if last.opcode != "BRA" or last.guarded or last.target is None:
            return None
        base = last.target - self.offsets[place]
        offsets = set(self.offsets)
        return base if all(target - base in offsets for target in self._targets) else None

    @functools.cached_property
    def _targets(self) -> frozenset[int]:
        targets = (parse(line).target for line in self.lines if "0x" in line and _may_jump(line))
        return frozenset(target for target in targets if target is not None)

    @functools.cached_property
    def entries(self) -> frozenset[int] | None:
        """Offsets that can be reached by a jump; None where these are not known."""
        if any(_may_jump(line) and parse(line).opcode in _INDIRECT for line in self.lines):
            return None
        if not self._targets:
            return frozenset()
        return None if self.base is None else frozenset(target - self.base for target in self._targets)

    @functools.cached_property
    def listing(self) -> tuple[str, ...]:
        """All instructions, as :meth:`shown`."""
        return tuple(map(self.shown, range(len(self.lines))))

    def shown(self, place: int) -> str:
        """An instruction, with its target as an offset instead of an address where that is known."""
        line = " ".join(self.lines[place].split())
        target = parse(line).target if _may_jump(line) else None
        if target is None or self.base is None:
            return line
        return f"{line[: line.rindex('0x')]}{hex(target - self.base)}"

    def waits_for(self, place: int, reason: str | None) -> int | None:
        """The position of the instruction that the one at ``place`` probably waits for; None where that is not known.

        Of a scoreboard, it is the nearest instruction before, in the same straight-line code, that writes what this one
        reads, with a variable latency and to that scoreboard; not where an instruction in between has used the result,
        and so has waited already. A wait for asynchronous copies shows at the instruction after DEPBAR, a wait at a
        barrier after BAR: these are given then. Where two are possible, none is given.

        A warp has six scoreboards, and instructions share them: an instruction that reads what an LDC wrote may wait
        for another one's global load. Where the registers do not fit the reason, none is given.
        """
        if reason == "barrier":
            for before in self._before(place):
                instruction = parse(self.lines[before])
                if instruction.opcode == "BAR" and "ARV" not in instruction.modifiers:
                    return before
                if instruction.opcode == "WARPGROUP" or place - before >= BARRIER_REACH:
                    break
            return None
        if reason == "long_scoreboard":
            writer, last = self._writer(place, LONG), next(self._before(place), None)
            if last is None or parse(self.lines[last]).opcode != "DEPBAR":
                return writer
            return last if writer is None else None
        return self._writer(place, SHORT) if reason == "short_scoreboard" else None

    def leads_to_load(self, place: int) -> bool:
        """Whether an instruction is a load, or computes the address of one soon after it. Where it waits for a load,
        that is a chain: each load can only be issued once the one before it has returned."""
        derived: frozenset[str] = frozenset()
        for line in self.lines[place : place + LOOK_AHEAD]:
            instruction = parse(line)
            if instruction.opcode in _LOADS and (not derived or instruction.reads & derived):
                return True
            if derived and (instruction.opcode in _ENDS_REGION or instruction.opcode in _JUMPS):
                return False
            derived = (
                derived | instruction.writes
                if not derived or instruction.reads & derived
                else derived - instruction.writes
            )
            if not derived:
                return False
        return False

    def _writer(self, place: int, opcodes: frozenset[str]) -> int | None:
        read_registers = parse(self.lines[place]).reads
        touched: set[str] = set()
        for before in self._before(place):
            instruction = parse(self.lines[before])
            if (
                instruction.opcode in opcodes
                and instruction.writes & read_registers
                and not instruction.writes & touched
            ):
                return before
            touched |= instruction.reads | instruction.writes
            if read_registers <= touched:
                return None
        return None

    def _before(self, place: int) -> Iterator[int]:
        """The positions that a warp at ``place`` has certainly come through, the nearest first."""
        if self.entries is None:
            return
        for before in range(place - 1, max(place - 1 - LOOK_BACK, -1), -1):
            instruction = parse(self.lines[before])
            leaves = instruction.opcode in _ENDS_REGION or (instruction.opcode in _JUMPS and not instruction.guarded)
            if self.offsets[before + 1] in self.entries or not instruction.opcode or leaves:
                return
            yield before


def _may_jump(line: str) -> bool:
    """Cheaply: whether it is worth parsing for a jump."""
    return _JUMP_WORD.search(line) is not None
