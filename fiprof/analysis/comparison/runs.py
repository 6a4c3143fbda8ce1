"""Two archived runs compared: what changed in each case and kernel, and what explains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fiprof.analysis.comparison.changes import Change
from fiprof.analysis.comparison.conditions import BOARD, Weight, conditions
from fiprof.analysis.comparison.kernels import (
    KernelChange,
    explained,
    kernel_changes,
    kernels_of_case,
    kernels_of_program,
)
from fiprof.analysis.comparison.pairing import CasePair, Match, pair_cases, selected
from fiprof.analysis.comparison.programs import ProgramComparison, compare_programs
from fiprof.analysis.comparison.statistics import Outcome
from fiprof.analysis.thresholds import BOARDS_DIFFER, PROCESSES_DRIFT, WORTH_CHANGING
from fiprof.errors import FiprofError
from fiprof.model.case_quantities import BUSY, NCU, NSYS, PLAIN, WAITING, WALL
from fiprof.model.finding import Finding, finding
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.model.run import Run

MOST_EXPLAINED = 3
"""Kernels of a case whose counters are compared: those that account for most of its change."""
TIMES = (PLAIN, NSYS, NCU)
"""What a case's change is measured by, the first that both sides have; each is of another condition, and none is mixed
with another."""
MORE_TIMES = (WALL, BUSY, WAITING)


@dataclass(frozen=True)
class ArchivedSide:
    """One side of a comparison."""

    run: Run
    params: Mapping[str, str] = field(default_factory=dict)
    """Only the cases with these parameters, as their ids write them."""


@dataclass(frozen=True)
class CaseChange:
    """A case of both sides."""

    pair: CasePair
    label: str
    """What tells it from the other cases that are compared."""
    times: tuple[Change, ...]
    """By each tool."""
    kernels: tuple[KernelChange, ...]
    """Those that account for most of the change first; what is beyond MOST_EXPLAINED without what explains it."""

    @property
    def time(self) -> Change | None:
        """What its change is measured by; None where no tool timed it on both sides."""
        by_key = {each.item: each for each in self.times if each.change is not None}
        return next((by_key[quantity.key] for quantity in TIMES if quantity.key in by_key), None)

    @property
    def us(self) -> float:
        """How much longer side B takes; 0 where that is not known."""
        return (self.time and self.time.change) or 0.0

    @property
    def share(self) -> float | None:
        """The same of side A's time; None where that is nothing."""
        return self.us / self.time.a.value if self.time and self.time.a.value else None

    @property
    def outside_us(self) -> float | None:
        """How much longer an iteration is outside its kernels: between them, before and after; None where the change
        is measured by what the kernels took."""
        if self.time is None or self.time.item != PLAIN.key or not self.kernels:
            return None
        return self.us - sum(each.us for each in self.kernels)

    @property
    def notable(self) -> bool:
        """Whether its time differs by as much as is worth a word."""
        return abs(self.share or 0.0) >= WORTH_CHANGING.share

    def changes(self) -> Iterator[Change]:
        """Its rows."""
        case = self.pair.b.id
        yield from self.times
        if self.outside_us is not None:
            yield Change("outside_kernels", accounts_us=self.outside_us, by="plain", case=case)
        for kernel in self.kernels:
            yield from kernel.changes(case)


@dataclass(frozen=True)
class RunComparison:
    """Side B against side A."""

    a: ArchivedSide
    b: ArchivedSide
    conditions: tuple[Finding, ...]
    cases: tuple[CaseChange, ...]
    """The largest change of time first, as a share; empty where a side has none."""
    program: ProgramComparison | None
    """Of two traces, where a side has no cases."""
    launches: tuple[KernelChange, ...]
    """Of two profiles of ncu without cases and traces."""
    only_a: tuple[CaseEntry, ...]
    only_b: tuple[CaseEntry, ...]

    @property
    def same_run(self) -> bool:
        """Whether both sides are the same cases of one run."""
        return self.a.run.path.resolve() == self.b.run.path.resolve() and self.a.params == self.b.params

    @property
    def confidence(self) -> Finding:
        """How sure the differences are."""
        if self.same_run:
            return finding("same_run", "Both sides are the same run.")
        drift = "Processes of the same code differ by up to {processes_pct:g}%"
        numbers = {"processes_pct": PROCESSES_DRIFT.value, "boards_pct": BOARDS_DIFFER.value}
        if any(each.values["of"] == BOARD for each in self.conditions):
            words = (
                f"Cannot tell: one process a side, on two boards. {drift}, boards of a kind by about {{boards_pct:g}}%."
            )
            return finding("one_process_two_boards", words, **numbers)
        return finding("one_process", f"Cannot tell: one process a side. {drift}.", **numbers)

    def changes(self) -> Iterator[Change]:
        """All of it, case by case, the largest change first; the causes after what they explain."""
        outcome = Outcome.SAME if self.same_run else Outcome.CANNOT_TELL
        yield Change("side", "run", self.a.run.manifest.name, self.b.run.manifest.name)
        yield Change("outcome", outcome, by=self.confidence.kind)
        for case in self.cases:
            yield from case.changes()
        if self.program:
            yield from self.program.changes()
        for kernel in self.launches:
            yield from kernel.changes()


def compare(
    a: ArchivedSide, b: ArchivedSide, *, anyway: bool = False, pairs: Sequence[tuple[str, str]] | None = None
) -> RunComparison:
    """What changed from side A to side B.

    anyway: also where the numbers say nothing about each other. pairs: ids of the cases that are one, in this order,
    where that is known.
    Raises FiprofError where they do not, or where the sides have nothing in common.
    """
    differing = conditions(a.run, b.run)
    refused = next((each.values for each in differing if each.kind == Weight.REFUSED), None)
    if refused and not anyway:
        raise FiprofError(
            f"{a.run.manifest.name} ran on {refused['a']}, {b.run.manifest.name} on {refused['b']}: their times cannot "
            "be compared",
            "--anyway shows them all the same",
        )
    counters = anyway or not any(each.kind == Weight.COUNTERS for each in differing)
    if pairs is None:
        paired, only_a, only_b = pair_cases(
            *(selected(side.run.cases, side.params, side.run.manifest.name) for side in (a, b))
        )
    else:
        entries = ((a.run.case(one), b.run.case(other)) for one, other in pairs)
        paired, only_a, only_b = [CasePair(x, y) for x, y in entries if x and y], [], []
    labels = Labels([pair.b for pair in paired])
    cases = [_case(pair, labels(pair.b.id), a.run, b.run, counters=counters) for pair in paired]
    if pairs is None:
        cases.sort(key=lambda case: -abs(case.share or 0.0))
    program, launches = None, []
    if not (a.run.cases and b.run.cases):
        if a.run.has("kernels") and b.run.has("kernels"):
            program = compare_programs(a.run, b.run, counters=counters)
        elif counters and a.run.launches and b.run.launches:
            changes = kernel_changes(*(kernels_of_program(side.run) for side in (a, b)))
            launches = explained(changes, a.run, b.run, MOST_EXPLAINED)
    kernels = program.kernels if program else launches
    if not cases and all(each.match in (Match.NEW, Match.GONE) for each in kernels):
        raise FiprofError(
            f"{a.run.manifest.name} and {b.run.manifest.name} have no case and no kernel in common",
            "fiprof show shows what each has; RUN:PARAM=VALUE chooses some of its cases",
        )
    return RunComparison(
        a, b, differing, tuple(cases), program, tuple(launches), only_a=tuple(only_a), only_b=tuple(only_b)
    )


def _case(pair: CasePair, label: str, a: Run, b: Run, *, counters: bool) -> CaseChange:
    times = []
    for quantity in (*TIMES, *MORE_TIMES):
        x, y = quantity.traced(a, pair.a.id), quantity.traced(b, pair.b.id)
        if (x or y) and (counters or quantity is not NCU):
            times.append(Change("case", quantity.key, x, y, unit=quantity.unit, case=pair.b.id))
    kernels = kernel_changes(kernels_of_case(a, pair.a.id), kernels_of_case(b, pair.b.id))
    if counters:
        kernels = explained(kernels, a, b, MOST_EXPLAINED)
    return CaseChange(pair, label, tuple(times), tuple(kernels))
