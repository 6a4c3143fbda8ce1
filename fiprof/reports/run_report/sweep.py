"""A run of many cases of a workload as a map over two of its parameters: the best way, and its share of the roof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fiprof.analysis.analyses import Analyses
from fiprof.model import kernel_info
from fiprof.model.case_quantities import KERNEL_TIME
from fiprof.model.manifest import CaseEntry
from fiprof.reports.pages.charts_scaling import Cell, heat_map
from fiprof.reports.pages.page import Chart
from fiprof.reports.run_report.parameters import format_switch
from fiprof.reports.words import phrase

FEWEST_CASES = 4
"""Of a workload, for which a map says more than a list."""
MOST_MAPS = 4
"""Of a workload: one for each combination of the parameters that are no axis and no option."""


def charts(measured: Analyses) -> Iterator[Chart]:
    """The maps of a run. Raises FiprofError for a table that cannot be read."""
    workloads: dict[str, list[CaseEntry]] = defaultdict(list)
    for case in measured.run.cases:
        if KERNEL_TIME.of(measured.run, case.id):
            workloads[case.workload].append(case)
    for number, (workload, cases) in enumerate(workloads.items()):
        axes = _axes(workload, cases)
        if axes is not None and len(cases) >= FEWEST_CASES:
            yield from _maps(measured, number, workload, cases, *axes)


def _axes(workload: str, cases: Sequence[CaseEntry]) -> tuple[str, str] | None:
    """The parameters of most values, those that define the problem first; None where only one differs."""
    known = kernel_info.of_workload(workload)
    values = {name: {str(case.params.get(name)) for case in cases} for name in cases[0].params}
    differing = [name for name in values if len(values[name]) > 1]
    options = known.options if known else {}
    first = sorted(differing, key=lambda name: (name in options, -len(values[name])))
    return (first[0], first[1]) if len(first) > 1 else None


def _maps(
    measured: Analyses, number: int, workload: str, cases: Sequence[CaseEntry], x: str, y: str
) -> Iterable[Chart]:
    known = kernel_info.of_workload(workload)
    options = [name for name in (known.options if known else {}) if name not in (x, y)]
    fixed: dict[tuple[tuple[str, str], ...], list[CaseEntry]] = defaultdict(list)
    for case in cases:
        rest = {name: format_switch(value) for name, value in case.params.items() if name not in (x, y, *options)}
        fixed[tuple(rest.items())].append(case)
    differing = {name for one in fixed for name, value in one if any((name, value) not in other for other in fixed)}
    for place, (others, members) in enumerate(list(fixed.items())[:MOST_MAPS]):
        where = "".join(f", {name} {value}" for name, value in others if name in differing)
        best = [name for name in options if len({str(case.params.get(name)) for case in members}) > 1]
        yield heat_map(
            phrase("sweep.title", workload=workload, x=_axis(x), y=_axis(y), where=where),
            [_cell(measured, of_cell, x, y, best) for of_cell in _by_cell(members, x, y)],
            x=_axis(x),
            y=_axis(y),
            anchor=f"sweep-{number}-{place}",
            caption=phrase(f"sweep.caption{'_best' * bool(best)}", options=tuple(best)),
        )


def _by_cell(cases: Sequence[CaseEntry], x: str, y: str) -> Iterable[Sequence[CaseEntry]]:
    found: dict[tuple[object, object], list[CaseEntry]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: (_order(case.params, x), _order(case.params, y))):
        found[case.params.get(x), case.params.get(y)].append(case)
    return found.values()


def _order(params: Mapping[str, object], name: str) -> tuple[float, str]:
    value = params.get(name)
    return (float(value) if isinstance(value, int | float) else 0.0, str(value))


def _cell(measured: Analyses, cases: Sequence[CaseEntry], x: str, y: str, options: Sequence[str]) -> Cell:
    """The fastest of the cases."""
    times = {case.id: KERNEL_TIME.of(measured.run, case.id) or 0.0 for case in cases}
    best = min(cases, key=lambda case: times[case.id])
    main = next((group for group in measured.longest if group.case == best.id), None)
    roofline = measured.rooflines.get(main.launch) if main else None
    chosen = [_chosen(name, best.params.get(name)) for name in options]
    words = ", ".join(filter(None, (*chosen, phrase("sweep.time", time=times[best.id]))))
    return Cell(
        format_switch(best.params.get(x)),
        format_switch(best.params.get(y)),
        roofline.share if roofline else None,
        words,
        (
            (phrase("sweep.case"), measured.run.labels(best.id)),
            (phrase("sweep.roof"), (roofline and roofline.roof) or ""),
        ),
    )


def _axis(name: str) -> str:
    return kernel_info.of_parameter(name).axis or name


def _chosen(name: str, value: object) -> str:
    """An option's value in words."""
    if isinstance(value, bool):
        known = kernel_info.of_parameter(name)
        return (known.on if value else known.off) or f"{name} {format_switch(value)}"
    return format_switch(value)
