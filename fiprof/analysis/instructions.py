"""The instructions of a launch's kernel: SASS by families, how often each is executed, and where its warps stall.

A count is of instructions in the code. Executed instructions take issue slots; samples show the warps' time, most of it
at the instruction that needs a result, not at the one that makes it. Without ``--set full`` a launch has no listing.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fiprof.analysis.sass import Code, brief, opcode_of, parse
from fiprof.analysis.thresholds import FREQUENT
from fiprof.model.arrays import finite
from fiprof.model.finding import Wording
from fiprof.model.run import Run, once


class Family(Wording):
    """What an instruction is for, with its opcodes on compute capabilities 7 to 10."""

    GLOBAL_LOAD = "global_load", "global loads", "LDG"
    GLOBAL_STORE = "global_store", "global stores", "STG"
    ASYNC_COPY = "async_copy", "copies by cp.async", "LDGSTS"
    """cp.async: each thread copies its own 4 to 16 bytes from global to shared memory."""
    COPY_WAIT = "copy_wait", "waits for copies", "DEPBAR LDGDEPBAR"  # for copies by cp.async
    TMA = "tma", "copies by TMA", "UTMALDG UTMASTG UTMAREDG UBLKCP UBLKRED"  # a tile or a row at once, by one thread
    SHARED_LOAD = "shared_load", "shared memory loads", "LDS LDSM"
    SHARED_STORE = "shared_store", "shared memory stores", "STS STSM STAS"
    LOCAL = "local", "local memory", "LDL STL"
    CONSTANT = "constant", "constant loads", "LDC ULDC LDCU"
    ATOMIC = "atomic", "atomics", "ATOM ATOMG RED REDG"  # on global memory
    SHARED_ATOMIC = "shared_atomic", "atomics on shared memory", "ATOMS REDS"
    BARRIER = "barrier", "barriers", "BAR UCGABAR_ARV UCGABAR_WAIT"  # of a block, or of some of its warps (named)
    MBARRIER = "mbarrier", "mbarriers", "SYNCS ARRIVES"
    FENCE = "fence", "fences", "MEMBAR ERRBAR FENCE CCTL"
    SLEEP = "sleep", "sleeps", "NANOSLEEP"
    WGMMA = "wgmma", "products (wgmma)", "HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA"
    """Products of a warpgroup, or of a block on compute capability 10."""
    MMA = "mma", "products (mma)", "HMMA IMMA DMMA BMMA QMMA OMMA"  # products of a warp
    SPECIAL = "special", "special functions", "MUFU"  # exp2, log2, sine, reciprocals, square roots
    CONVERSION = "conversion", "conversions", "F2F F2FP I2F I2FP F2I FRND"
    PACKED = "packed", "packed half arithmetic", "HFMA2 HADD2 HMUL2 HMNMX2 HSETP2 HSET2"
    """Arithmetic on two halves at once."""
    FLOAT = "float", "fp32 arithmetic", "FFMA FADD FMUL FMNMX FSEL FSETP FSET FFMA2 FADD2 FMUL2 FSWZADD FCHK"
    DOUBLE = "double", "fp64 arithmetic", "DFMA DADD DMUL DSETP"
    SHUFFLE = "shuffle", "shuffles", "SHFL REDUX CREDUX VOTE VOTEU MATCH"
    """Between the lanes of a warp: shuffles, reductions, votes."""
    BRANCH = "branch", "branches", "BRA BRX BRXU JMP JMX JMXU CALL RET BSSY BSYNC BREAK WARPSYNC EXIT YIELD"
    INTEGER = (
        "integer",
        "integer and address arithmetic",
        "IMAD IADD3 IADD LEA LOP3 SHF ISETP SEL MOV PRMT VIADD VIMNMX VIADDMNMX IMNMX IABS PLOP3 POPC FLO BREV "
        "SGXT BMSK CS2R S2R S2UR P2R R2P R2UR UIADD3 UIMAD ULEA ULOP3 USHF UMOV UISETP USEL UPRMT UPLOP3 IDP",
    )  # addresses, logic, comparisons, moves
    OTHER = "other", "others"


_FAMILIES = {opcode: family for family in Family for opcode in family.also}


@functools.lru_cache(1 << 15)
def family(line: str) -> Family:
    opcode, modifiers = opcode_of(line)
    of_opcode = _FAMILIES.get(opcode, Family.OTHER)
    if of_opcode is Family.PACKED:
        # HADD2.F32 makes a float of a half; HFMA2 of constants is how compilers write a constant.
        if "F32" in modifiers:
            return Family.CONVERSION
        return of_opcode if parse(line).reads else Family.INTEGER
    return of_opcode


ACCESS_BYTES = 4  # bytes of a thread that SASS loads or stores unless the instruction says (.U8, .64, .128, …)
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}


def access_bytes(line: str) -> int:
    """Bytes of a thread in a load or store: ``LDGSTS.E.BYPASS.LTC128B.128`` has 16, as has LDSM's 8 x 8 x 4."""
    opcode, modifiers = opcode_of(line)
    if opcode in ("LDSM", "STSM"):
        return ACCESS_BYTES * next((int(word) for word in reversed(modifiers) if word in ("2", "4")), 1)
    return next((_WIDTHS[word] for word in reversed(modifiers) if word in _WIDTHS), ACCESS_BYTES)


ACCESSES = {"loads": (Family.GLOBAL_LOAD, Family.ASYNC_COPY), "stores": (Family.GLOBAL_STORE,)}
"""Instructions that access global memory; copies by TMA are not among the loads."""


class HotInstruction(NamedTuple):
    """An instruction at which warps stall."""

    sass: str  # in short, without operands but its first
    offset: int  # bytes from the kernel's first instruction
    share: float  # samples at it of all those of the launch, 0 to 1
    reason: str | None  # the stall reason with most of its samples
    waits_for: str | None  # what it probably waits for, in short; None where the instructions do not say
    chain: bool  # whether it makes the address of another load from what it waits for

    @property
    def cause(self) -> Family | None:
        """What it waits for, as a family."""
        return None if self.waits_for is None else family(self.waits_for)


class IdealSectors(NamedTuple):
    low: float  # of the narrowest access
    high: float  # of the widest


@dataclass(frozen=True)
class Listing:
    """A launch's instructions with their samples, by address; empty for a launch without a listing."""

    code: Code
    rows: pa.Table  # of the table ``hotspots``

    def __bool__(self) -> bool:
        return bool(self.code.lines)

    @functools.cached_property
    def samples(self) -> list[int]:
        """Warp samples at each instruction."""
        return self._counts("samples")

    @functools.cached_property
    def total(self) -> int:
        return sum(self.samples)

    def _counts(self, column: str) -> list[int]:
        if column not in self.rows.column_names:
            return [0] * len(self.code.lines)
        return [count or 0 for count in finite(self.rows[column])]

    @functools.cached_property
    def reasons(self) -> list[str | None]:
        """The stall reason with most samples at each instruction."""
        return finite(self.rows["top_reason"])

    @functools.cached_property
    def _executed(self) -> Counter[str]:
        """Opcode or family -> how often its instructions were executed."""
        counts: Counter[str] = Counter()
        for line, executed in zip(self.code.lines, self._counts("executed"), strict=True):
            if executed:
                counts[opcode_of(line)[0]] += executed
                counts[family(line)] += executed
        return counts

    def count(self, *families: Family) -> int:
        """Instructions of these families in the code."""
        return sum(family(line) in families for line in self.code.lines)

    def executed_share(self, *those: str) -> float | None:
        """Share of executed instructions in these families or opcodes, 0 to 1; None where not collected."""
        total = sum(self._executed[each] for each in Family)
        return sum(self._executed[each] for each in those) / total if total else None

    @property
    def counted(self) -> bool:
        """Whether executed instructions were collected."""
        return self.executed_share() is not None

    def executes(self, *those: str, least: float = FREQUENT / 100) -> bool:
        """Whether these families or opcodes are known to be this share of what is executed, 0 to 1, or more."""
        return (self.executed_share(*those) or 0.0) >= least

    def has(self, *families: Family) -> bool:
        """Whether the code is known to have instructions of these families."""
        return self.count(*families) > 0

    def narrow(self, *families: Family) -> bool:
        """Whether the widest access of these families is below 16 bytes a thread, or not known."""
        return not self or max(self.widths(*families), default=16) < 16

    def opcodes(self, *families: Family) -> dict[str, int]:
        """Opcode of these families -> how many instructions of it the code has, the most frequent first."""
        counts = Counter(opcode_of(line)[0] for line in self.code.lines if family(line) in families)
        return dict(counts.most_common())

    def modified(self, modifier: str, *families: Family) -> bool:
        """Whether every instruction of these families has a modifier; False without any."""
        has_modifier = [modifier in opcode_of(line)[1] for line in self.code.lines if family(line) in families]
        return bool(has_modifier) and all(has_modifier)

    def widths(self, *families: Family) -> set[int]:
        """The widths, bytes a thread, of the accesses of these families."""
        return {access_bytes(line) for line in self.code.lines if family(line) in families}

    def ideal_sectors(self, *families: Family) -> IdealSectors | None:
        """Sectors a request of the narrowest and of the widest of these accesses if a warp's 32 threads access
        neighbouring addresses: 32 threads x width / 32 bytes, 4 for accesses of 4 bytes, 16 for those of 16.

        With more, sectors are used in part; with fewer, threads share addresses or are inactive. None without such an
        access.
        """
        widths = self.widths(*families)
        return IdealSectors(float(min(widths)), float(max(widths))) if widths else None

    def hottest(self, reason: str | None = None) -> HotInstruction | None:
        """The instruction with most samples in cycles without an issue (all samples where these are not known); None
        without samples. reason: only among instructions with most of their samples in this stall reason."""
        not_issued = self._counts("samples_not_issued")
        weights = not_issued if any(not_issued) else self.samples
        places = [
            place
            for place, samples in enumerate(self.samples)
            if samples and (reason is None or self.reasons[place] == reason)
        ]
        return self._hot(max(places, key=lambda each: (weights[each], -each))) if places else None

    def most_scattered(self) -> tuple[HotInstruction, float] | None:
        """The access to global memory with most sectors above the ideal, and its sectors over the ideal ones."""
        sectors, ideal = self._counts("sectors"), self._counts("ideal_sectors")
        excess = [touched - least for touched, least in zip(sectors, ideal, strict=True)]
        place = max(range(len(excess)), key=excess.__getitem__, default=None)
        if place is None or excess[place] <= 0 or not ideal[place]:
            return None
        return self._hot(place), sectors[place] / ideal[place]

    def _hot(self, place: int) -> HotInstruction:
        reason = self.reasons[place]
        cause = self.code.waits_for(place, reason)
        share = self.samples[place] / self.total if self.total else 0.0
        waits_for = None if cause is None else brief(self.code.shown(cause))
        chain = cause is not None and self.code.leads_to_load(place)
        return HotInstruction(brief(self.code.shown(place)), self.code.offsets[place], share, reason, waits_for, chain)


NO_LISTING = Listing(Code((), ()), pa.table({}))
COLUMNS = (
    "launch", "address", "sass", "samples", "samples_not_issued", "top_reason", "executed", "sectors", "ideal_sectors",
    "source_file", "source_line",
)  # fmt: skip


@once
def by_launch(run: Run) -> Mapping[int, Listing]:
    """Launch -> its instructions; empty where the run has none."""
    return dict(listings(run.table("hotspots", COLUMNS))) if run.has("hotspots") else {}


def listings(table: pa.Table, wanted: Collection[int] | None = None) -> Iterator[tuple[int, Listing]]:
    """Each launch of a table ``hotspots`` with its instructions, by address. wanted: only these launches."""
    # No pa.array and no to_numpy: they import pandas.
    located = table.filter(pc.is_valid(table["address"]))
    located = located.take(
        pc.sort_indices(located, [("launch", "ascending"), ("address", "ascending")])
    ).combine_chunks()
    end = 0
    for counted in pc.value_counts(located["launch"]).to_pylist():
        launch, start = counted["values"], end
        end = start + counted["counts"]
        if wanted is None or launch in wanted:
            rows = located.slice(start, end - start)
            lines = tuple(line or "" for line in rows["sass"].to_pylist())
            yield launch, Listing(_code(tuple(rows["address"].to_pylist()), lines), rows)


_code = functools.lru_cache(64)(Code)  # launches, and runs of an archive, have most kernels in common
