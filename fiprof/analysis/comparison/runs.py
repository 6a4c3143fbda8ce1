"""Two archived runs held against each other: what changed in each case and kernel, and what explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fiprof.analysis.comparison.conditions import Condition, Weight, conditions
from fiprof.analysis.comparison.kernels import KernelChange, explained, kernel_changes
from fiprof.analysis.comparison.pairing import CasePair, Match, different, pair_cases, selected
from fiprof.analysis.comparison.programs import ProgramComparison, compare_programs
from fiprof.analysis.comparison.sides import kernels_of_case, kernels_of_program
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.errors import FiprofError
from fiprof.model.case_quantities import BUSY, NCU, NSYS, PLAIN, WAITING, WALL, CaseQuantity
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import TracedNumber
from fiprof.model.run import Run

MOST_EXPLAINED = 3
"""Kernels of a case whose counters are held against each other: those that account for most of its change."""
TIMES = (PLAIN, NSYS, NCU)
"""What a case's change is told by, the first that both sides have; each is of another condition, and none is mixed
with another."""
BESIDE = (WALL, BUSY, WAITING)
"""Shown beside it."""


@dataclass(frozen=True)
class ArchivedSide:
    """One side of a comparison."""

    run: Run
    params: Mapping[str, str] = field(default_factory=dict)
    """Only the cases with these parameters, as their ids write them."""


@dataclass(frozen=True)
class Time:
    """A time of a case on both sides, by one tool."""

    quantity: CaseQuantity
    a: TracedNumber | None
    b: TracedNumber | None

    @property
    def change(self) -> float | None:
        return None if self.a is None or self.b is None else self.b.value - self.a.value

    @property
    def share(self) -> float | None:
        """Of side A; None where that is nothing."""
        return self.change / self.a.value if self.change is not None and self.a and self.a.value else None


@dataclass(frozen=True)
class CaseChange:
    """A case of both sides."""

    pair: CasePair
    label: str
    """What tells it from the other cases that are compared."""
    times: tuple[Time, ...]
    """By each tool, and beside."""
    kernels: tuple[KernelChange, ...]
    """Those that account for most of the change first; what is beyond MOST_EXPLAINED without what explains it."""

    @property
    def time(self) -> Time | None:
        """What its change is told by."""
        known = (each for quantity in TIMES for each in self.times if each.quantity is quantity)
        return next((each for each in known if each.change is not None), None)

    @property
    def outside_us(self) -> float | None:
        """How much longer an iteration is outside its kernels: between them, before and after; None where the change
        is told by what the kernels took."""
        time = self.time
        if time is None or time.quantity is not PLAIN or time.change is None or not self.kernels:
            return None
        return time.change - sum(each.us for each in self.kernels)

    @property
    def notable(self) -> bool:
        """Whether its time differs by as much as is worth a word."""
        share = self.time.share if self.time else None
        return share is not None and abs(share) >= WORTH_CHANGING.share


@dataclass(frozen=True)
class RunComparison:
    """Side B held against side A."""

    a: ArchivedSide
    b: ArchivedSide
    same_run: bool
    """Whether both sides are the same cases of one run."""
    conditions: tuple[Condition, ...]
    cases: tuple[CaseChange, ...]
    """The largest change of time first, as a share; empty where a side has none."""
    program: ProgramComparison | None
    """Of two traces, where a side has no cases."""
    launches: tuple[KernelChange, ...]
    """Of two profiles of ncu without cases and traces."""
    only_a: tuple[CaseEntry, ...]
    only_b: tuple[CaseEntry, ...]


def compare(
    a: ArchivedSide, b: ArchivedSide, *, anyway: bool = False, pairs: Sequence[tuple[str, str]] | None = None
) -> RunComparison:
    """What changed from side A to side B.

    anyway: also where the numbers say nothing about each other. pairs: ids of the cases that are one, in this order,
    where that is known.
    Raises FiprofError where they do not, or where the sides have nothing in common.
    """
    found = conditions(a.run, b.run)
    refused = next((each for each in found if each.weight is Weight.REFUSED), None)
    if refused and not anyway:
        raise FiprofError(
            f"{a.run.manifest.name} ran on {refused.a}, {b.run.manifest.name} on {refused.b}: their times cannot be "
            "compared",
            "--anyway shows them all the same",
        )
    counters = anyway or not any(each.weight is Weight.COUNTERS for each in found)
    cases, only_a, only_b = _cases(a, b, pairs, counters=counters)
    program, launches = None, []
    if not (a.run.cases and b.run.cases):
        if a.run.has("kernels") and b.run.has("kernels"):
            program = compare_programs(a.run, b.run, counters=counters)
        elif counters and a.run.launches and b.run.launches:
            launches = kernel_changes(*(kernels_of_program(side.run) for side in (a, b)))
            launches[:MOST_EXPLAINED] = explained(launches[:MOST_EXPLAINED], a.run, b.run)
    kernels = program.kernels if program else launches
    if not cases and all(each.match in (Match.NEW, Match.GONE) for each in kernels):
        raise FiprofError(
            f"{a.run.manifest.name} and {b.run.manifest.name} have no case and no kernel in common",
            "fiprof show shows what each has; RUN:PARAM=VALUE chooses some of its cases",
        )
    return RunComparison(
        a=a,
        b=b,
        same_run=a.run.path.resolve() == b.run.path.resolve() and a.params == b.params,
        conditions=found,
        cases=tuple(cases),
        program=program,
        launches=tuple(launches),
        only_a=tuple(only_a),
        only_b=tuple(only_b),
    )


def _cases(
    a: ArchivedSide, b: ArchivedSide, known: Sequence[tuple[str, str]] | None, *, counters: bool
) -> tuple[list[CaseChange], list[CaseEntry], list[CaseEntry]]:
    if known is None:
        pairs, only_a, only_b = pair_cases(
            *(selected(side.run.cases, side.params, side.run.manifest.name) for side in (a, b))
        )
    else:
        entries = ((a.run.case(one), b.run.case(other)) for one, other in known)
        pairs, only_a, only_b = [CasePair(x, y, different(x, y)) for x, y in entries if x and y], [], []
    labels = Labels([pair.b for pair in pairs])
    cases = [_case(pair, labels(pair.b.id), a.run, b.run, counters=counters) for pair in pairs]
    if known is None:
        cases.sort(key=lambda case: -abs((case.time and case.time.share) or 0.0))
    return cases, only_a, only_b


def _case(pair: CasePair, label: str, a: Run, b: Run, *, counters: bool) -> CaseChange:
    sides = (a, pair.a.id), (b, pair.b.id)
    times = [
        Time(quantity, *(quantity.traced(*side) for side in sides))
        for quantity in (*TIMES, *BESIDE)
        if counters or quantity is not NCU
    ]
    kernels = kernel_changes(*(kernels_of_case(*side) for side in sides))
    if counters:
        kernels[:MOST_EXPLAINED] = explained(kernels[:MOST_EXPLAINED], a, b)
    return CaseChange(pair, label, tuple(times), tuple(kernels))
