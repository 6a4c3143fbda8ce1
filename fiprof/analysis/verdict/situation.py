"""What steps are made from, and the most that a step can save.

A resource at r percent of its peak needs r percent of the time whatever is done about the others. So a step saves at
most what the busiest resource leaves whose work it does not make less; and never more than the floor of the case's
bytes and operations leaves. A stall's share bounds nothing: warps wait at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fiprof.analysis.instructions import Family, HotInstruction, Listing
from fiprof.analysis.thresholds import FREQUENT
from fiprof.analysis.verdict.model import Bottleneck, CaseVerdict, Comparison, Part, Verdict
from fiprof.analysis.verdict.quoted_rules import QuotedRule
from fiprof.analysis.verdict.step import Basis, Step, StepId, Way
from fiprof.model.finding import Finding, Value
from fiprof.model.floors import Floor
from fiprof.model.formula import Names, Row
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.quantities import Quantity

COPIES = (Family.ASYNC_COPY, Family.TMA)
PASSES = (Part.L1_DATA, Part.SHARED_MEMORY, Part.SHARED_MEMORY_OR_L1)
"""The data stage that L1 and shared memory have in common."""
PIPES = (
    Part.ISSUE_SLOTS, Part.FMA_PIPE, Part.ALU_PIPE, Part.XU_PIPE, Part.FP64_PIPE, Part.LSU_PIPE, Part.ADU_PIPE,
    Part.CBU_PIPE, Part.TEX_PIPE, Part.UNIFORM_PIPE,
)  # fmt: skip
LOADS = (Part.LSU_PIPE, Part.ISSUE_SLOTS, *PASSES)
"""What fewer or wider loads and stores make less use of."""

_HIDDEN = {Part.OTHER_COMPUTE: {*PIPES, Part.TENSOR_CORES}, Part.OTHER_MEMORY: {*PASSES, Part.L2, Part.DRAM}}
"""A part without a column -> those beside it: whoever changes one of them may change it too."""


@dataclass(frozen=True)
class Room:
    """The most that a step can save."""

    pct: float
    """Percent of the launch's time."""
    basis: Finding
    """What needs the rest of the time."""
    source: Provenance | None = None
    """Where pct comes from."""


@dataclass(frozen=True)
class Situation:
    """What is known of a launch when its steps are made."""

    row: Row
    names: Names
    """ncu's names of the columns."""
    verdict: Verdict
    stalls: tuple[Comparison, ...] = ()
    """Percent of the warps' time in each stall reason, the largest first."""
    rules: tuple[QuotedRule, ...] = ()
    """Weighed: with why they are no step."""
    excess_ops: float | None = None
    """Operations that ncu counted over those that the case needs; None where that is not known."""
    excess_bytes: float | None = None
    """DRAM bytes likewise."""
    case: CaseVerdict | None = None
    floor: Floor | None = None
    """The least time of its case; None where it is not the case's main kernel, or nothing is known."""
    code: Listing | None = None
    """Its instructions; None where they were not collected."""

    def use(self, *parts: Part) -> float:
        """Use of the busiest of these parts, percent."""
        return max((found.value for part in parts if (found := self.verdict.resource(part))), default=0.0)

    def use_of(self, part: Part | None) -> dict[str, Value]:
        """The part, and its use where it was measured."""
        found = self.verdict.resource(part) if part else None
        return {"part": part, "use": found.comparison.number if found and found.comparison else None}

    def used(self, part: Part | None) -> Finding:
        """How much a resource is used, as a basis."""
        values = self.use_of(part)
        return Finding(Basis.NOTHING_USED) if values["use"] is None else Finding(Basis.USED, values)

    def room(self, *less: Part, still: float = 0.0, other_work: bool = False, fewer_bytes: bool = False) -> Room:
        """The most that a step can save.

        less: resources that it makes less use of, the one that it is about first. still: percent of the time that this
        one needs afterwards, at the least. other_work, fewer_bytes: whether it changes what the operations and the
        bytes of the floor are.
        """
        beside = next(
            (
                found
                for found in self.verdict.resources
                if found.part not in less and not _HIDDEN.get(found.part or Part.DRAM, set()).intersection(less)
            ),
            None,
        )
        basis, source = Finding(Basis.NOTHING_USED), None
        needed = 0.0
        if beside is not None:
            kind, needed = (Basis.STAYS if less else Basis.USED), beside.value
            basis = Finding(kind, self.use_of(beside.part))
            source = _left(beside, 1.0)
        if still > needed:
            needed, basis = still, Finding(Basis.STILL, {"part": less[0], "still_pct": still})
            used = next(found for found in self.verdict.resources if found.part in less)
            source = _left(used, still / used.value)
        saving = self.floor.saving_pct(other_work=other_work) if self.floor and not fewer_bytes else None
        if saving is not None and 100 - saving.value > needed:
            needed, basis, source = 100 - saving.value, Finding(Basis.FLOOR, {"most": saving}), saving.source
        return Room(max(100 - needed, 0.0), basis, source)

    def estimated(self, *names: str) -> tuple[QuotedRule, ...]:
        """ncu's rules of these names that estimate something."""
        return tuple(rule for rule in self.rules if rule.rule in names and rule.speedup_pct is not None)

    def traced(self, quantity: Quantity) -> TracedNumber | None:
        return quantity.traced(self.row, self.names)

    # Its instructions

    @property
    def counted(self) -> bool:
        """Whether it is known how often each instruction is executed."""
        return self.code is not None and self.code.executed_share() is not None

    def executes(self, *families: Family, least: float = FREQUENT.share) -> bool:
        """Whether these families are known to be so much of what is executed, 0 to 1."""
        share = self.code.executed_share(*families) if self.code else None
        return share is not None and share >= least

    def has(self, *families: Family) -> bool:
        """Whether the code is known to have instructions of these families."""
        return self.code is not None and self.code.count(*families) > 0

    def narrow(self, *families: Family) -> bool:
        """Whether the widest access of these families is known to be below 16 bytes a thread; True where the code is
        not known."""
        if self.code is None:
            return True
        widest = self.code.widest_bytes(*families)
        return widest is not None and widest < 16

    def in_code(self, *families: Family) -> Finding | None:
        """How many instructions of these families the code has, as a basis; None where it is not known or has none."""
        opcodes = self.code.opcodes(*families) if self.code else {}
        named = tuple(f"{count} {opcode}" for opcode, count in opcodes.items())
        return Finding(Basis.CODE, {"instructions": named}) if named else None


def _left(of: Bottleneck, factor: float) -> Provenance | None:
    """Where the time comes from that a resource leaves which is needed for this part of its use."""
    if of.comparison is None:
        return None
    less = "a" if factor == 1 else f"{factor!r} * a"
    return Provenance("facts", f"max(100 - {less}, 0)", parts=(of.comparison.number.source,))


def step(
    kind: StepId,
    room: Room | None,
    because: Finding | None = None,
    values: Mapping[str, Value] | None = None,
    *,
    estimate: TracedNumber | float | None = None,
    rules: tuple[QuotedRule, ...] = (),
) -> Step:
    """A step; without a room nothing bounds it. because: what it rests on, beside what needs the rest of the time."""
    bound = None if room is None else min(room.pct, 100.0)
    saved = estimate.value if isinstance(estimate, TracedNumber) else estimate
    return Step(
        action=Finding(kind, values or {}),
        bound_pct=bound,
        basis=both(because, room.basis if room else None) or Finding(Basis.NOTHING_USED),
        bound_source=room.source if room else None,
        estimate_pct=saved if saved is None or bound is None else min(saved, bound),
        rules=rules,
    )


def both(*parts: Finding | None) -> Finding | None:
    """Several bases as one; those that are None are left out."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0] if known else None
    return Finding(Basis.BOTH, {"first": known[0], "then": both(*known[1:])})


def hot(found: HotInstruction | None) -> Finding | None:
    """An instruction at which warps stall, as a basis."""
    if found is None:
        return None
    kind = Basis.HOT if found.waits_for is None else Basis.HOT_WAITS
    return Finding(kind, {"sass": found.sass, "sample_share": found.share, "waits_for": found.waits_for})


def ways(*those: tuple[Way, bool]) -> dict[str, Value]:
    """The ways that the kernel does not go already, as a step's values."""
    return {"ways": tuple(way for way, open_ in those if open_)}


def executed(s: Situation) -> Finding | None:
    """The families of instructions that are executed most, as a basis."""
    families = [each for each in Family if each is not Family.OTHER and s.executes(each)]
    shares = {each: s.code.executed_share(each) or 0.0 for each in families} if s.code else {}
    named = tuple(
        Finding(Basis.FAMILY, {"family": each, "executed_share": shares[each]})
        for each in sorted(shares, key=shares.__getitem__, reverse=True)[:3]
    )
    return Finding(Basis.EXECUTED, {"families": named}) if named else None
