"""What a report is about: the kernels of its runs, identical launches as one, the one with most time first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.program import StandIns, StandsFor
from fiprof.analysis.timeline import KernelSpan
from fiprof.analysis.verdict.verdict import LaunchVerdict
from fiprof.model.case_quantities import kernel_median, kernel_spread
from fiprof.model.labels import NO_CASE
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.quantities import DURATION
from fiprof.model.run import Run
from fiprof.text import short_kernel


@dataclass(frozen=True)
class Entry:
    """A kernel of a case in one of the runs."""

    run: int
    """Its place among the report's runs, from 0."""
    measured: Analyses
    case: str
    """Case id; empty outside the cases."""
    kernel: str
    group: Group | None
    """Its launches under ncu; None for a kernel that only nsys saw."""
    time: TracedNumber | None
    """Of an execution, µs: the median under nsys, else that of ncu's launches."""
    spread: TracedNumber | None
    """(p90 - p10) / median of nsys's executions."""
    count: int
    """Executions in an iteration; outside of cases all of them."""
    stands_for: StandsFor | None = None
    """Of a program's trace."""

    @property
    def total_us(self) -> float:
        """In an iteration; outside of cases in all."""
        if self.stands_for is not None:
            return self.stands_for.total_us
        return self.time.value * self.count if self.time else 0.0

    @property
    def label(self) -> str:
        """The case in short."""
        return self.measured.run.labels(self.case or None)

    @property
    def name(self) -> str:
        """The kernel's, as text."""
        return short_kernel(self.kernel)

    @property
    def case_name(self) -> str:
        """The case, where that says more than the kernel's name."""
        return self.label if self.label not in (NO_CASE, self.kernel) else ""

    @property
    def verdict(self) -> LaunchVerdict | None:
        """Of the launch that stands for it."""
        return self.measured.verdicts.of(self.group.launch) if self.group else None


def entries(runs: Sequence[Analyses]) -> tuple[Entry, ...]:
    """Every kernel of every case of the runs, the one with most time of an iteration first.

    Raises FiprofError for a table that cannot be read.
    """
    found = [entry for number, measured in enumerate(runs) for entry in _of_run(number, measured)]
    return tuple(sorted(found, key=lambda entry: -entry.total_us))


def _of_run(number: int, measured: Analyses) -> Iterable[Entry]:
    run, groups = measured.run, defaultdict[tuple[str, str], list[Group]](list)
    for group in measured.groups:
        groups[group.case or "", group.kernel].append(group)
    for (case, kernel), of_kernel in groups.items():
        for group in of_kernel:
            alone = len(of_kernel) == 1
            traced = kernel_median(run, case, kernel) if alone else None
            count = len(group.launches) // max(measured.iterations(group), 1)
            time = rounded(traced or group.median.traced(DURATION))
            spread = _spread(run, case, kernel, alone=alone)
            if stands := _stands_for(measured, group):
                yield Entry(number, measured, case, kernel, group, time, spread, round(stands.count), stands)
            else:
                yield Entry(number, measured, case, kernel, group, time, spread, count)
    for (case, kernel), times in run.trace.kernels.items():
        if (case, kernel) not in groups:
            whole = run.trace.cases.get(case)
            count = max(times.count // whole.iteration.count, 1) if whole else times.count
            time = rounded(kernel_median(run, case, kernel))
            yield Entry(number, measured, case, kernel, None, time, _spread(run, case, kernel, alone=True), count)
    if not groups and not run.trace.kernels:
        # A trace without cases: what it has in all.
        for span in (span for phase in measured.timeline.phases for span in phase.spans):
            time = rounded(of_span(span, span.median_us, "median(duration_ns) / 1000", ",.2f", " µs"))
            spread = of_span(span, span.spread, "spread(duration_ns)", ".1%")
            yield Entry(number, measured, span.case or "", span.kernel, None, time, spread, span.count)


def _stands_for(measured: Analyses, group: Group) -> StandsFor | None:
    """What the launches of a group stand for in all."""
    found = [stands for each in group.launches if (stands := measured.run.once(StandIns).get(each.launch))]
    if not found:
        return None
    return StandsFor(*(sum(getattr(each, name) for each in found) for name in ("count", "total_us", "share")))


def rounded(time: TracedNumber | None) -> TracedNumber | None:
    """A time in µs with three or four digits: executions differ by more."""
    if time is None:
        return None
    return time.as_(",.2f" if time.value < 10 else ",.1f" if time.value < 1000 else ",.0f", " µs")


def of_span(span: KernelSpan, value: float, formula: str, spec: str, unit: str = "") -> TracedNumber:
    """A number about the executions of a kernel under nsys."""
    source = Provenance("nsys", formula, case=span.case, kernel=span.kernel, grid=span.grid, phase=span.phase or "")
    return TracedNumber(value, source, spec, unit)


def _spread(run: Run, case: str, kernel: str, *, alone: bool) -> TracedNumber | None:
    return kernel_spread(run, case, kernel) if alone else None


@dataclass(frozen=True)
class KernelEntries:
    """A kernel in every case and run in which it ran."""

    kernel: str
    entries: tuple[Entry, ...]
    """The one with most time first."""
    anchor: str
    """Of its part of the page."""


def by_kernel(found: Sequence[Entry]) -> tuple[KernelEntries, ...]:
    """The kernels, the one with most time first."""
    kernels: dict[str, list[Entry]] = defaultdict(list)
    for entry in found:
        kernels[entry.kernel].append(entry)
    return tuple(
        KernelEntries(kernel, tuple(of_kernel), f"kernel-{number}")
        for number, (kernel, of_kernel) in enumerate(kernels.items(), 1)
    )
