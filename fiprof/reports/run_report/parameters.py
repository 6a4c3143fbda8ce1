"""What each parameter of a workload does to the time, where cases of a run differ in it alone; two of them as a map."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fiprof.analysis import alternatives
from fiprof.analysis.analyses import Analyses
from fiprof.model import kernel_info
from fiprof.model.case_quantities import KERNEL_TIME
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import TracedNumber
from fiprof.model.wording import say, worded
from fiprof.reports.run_report.ink import Section, Shaded, said
from fiprof.reports.view import Column, Value, View

MOST_ROWS = 16
"""Of a table: the largest differences."""
FEWEST_CASES = 4
"""Of a workload, for which a map says more than a list."""
MOST_MAPS = 4
"""Of a workload: one for each combination of the parameters that are no axis and no option."""

PARAMETER, WHERE = Column("parameter", "parameter"), Column("where", "at")
TIME = Column("time", "time", "µs", ",.1f")
OPTIONS = (
    PARAMETER, WHERE, Column("low", "slower"), Column("high", "faster"), TIME,
    Column("factor", "x faster", spec=".2f"), Column("certain", "certain"),
)  # fmt: skip
SIZES = (
    PARAMETER, WHERE, Column("low", "from"), Column("high", "to"), TIME,
    Column("factor", "time, times", spec=".2f"), Column("work", "work, times", spec=".3g"),
)  # fmt: skip

Pairs = list[tuple[tuple[bool, float], tuple[Value, ...]]]
"""What the rows of a table are sorted by, and their cells: two cases that differ in one parameter alone."""


def section(measured: Analyses) -> Section:
    """The maps, and a table each of options and of sizes. Raises FiprofError for a table that cannot be read."""
    options: Pairs = []
    sizes: Pairs = []
    for (workload, key), groups in _groups(measured).items():
        value = groups[0][0].params[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        for members in groups:
            if number and not _is_option(workload, key):
                sizes.append(_size(measured, key, members))
            else:
                options.append(_option(measured, key, members))
    blocks: list[Any] = [*maps(measured)]
    tables = (
        ("Options of the same problem", OPTIONS, options,
         "Times without a profiler where all cases have one, else of the kernels."),
        ("Sizes", SIZES, sizes,
         "work: the least bytes that the cost model gives, or operations where it moves none. Less time than work: the "
         "small case does not fill the GPU."),
    )  # fmt: skip
    for title, columns, pairs, note in tables:
        if pairs:
            rows = tuple(cells for _, cells in sorted(pairs, key=lambda pair: pair[0])[:MOST_ROWS])
            blocks.append(View(columns, rows, title=title, notes=(note,)))
        if len(pairs) > MOST_ROWS:
            blocks.append(said(f"The {MOST_ROWS} largest of {len(pairs)} differences are shown."))
    return Section("parameters", "What parameters do", tuple(blocks))


def _groups(measured: Analyses) -> dict[tuple[str, str], list[list[CaseEntry]]]:
    """Workload and parameter -> the cases that differ in it alone, those with the same rest together."""
    series: dict[tuple[str, str, tuple[object, ...]], list[CaseEntry]] = defaultdict(list)
    for case in measured.run.manifest.cases:
        for key in case.params:
            same = alternatives.problem(case.workload, case.params) if _is_option(case.workload, key) else None
            rest = tuple((name, value) for name, value in case.params.items() if name != key)
            series[case.workload, key, (same, *rest)].append(case)
    of_parameter: dict[tuple[str, str], list[list[CaseEntry]]] = defaultdict(list)
    for (workload, key, _), members in series.items():
        timed = [case for case in members if KERNEL_TIME.traced(measured.run, case.id) is not None]
        if len(timed) > 1:
            of_parameter[workload, key].append(timed)
    return of_parameter


def _is_option(workload: str, key: str) -> bool:
    known = kernel_info.of_workload(workload)
    return known is not None and key in known.options


def _time(measured: Analyses, case: CaseEntry) -> TracedNumber:
    time = KERNEL_TIME.traced(measured.run, case.id)
    assert time is not None
    return time


def _option(measured: Analyses, key: str, members: Sequence[CaseEntry]) -> tuple[tuple[bool, float], tuple[Value, ...]]:
    """The slowest and the fastest value of an option."""
    timed = {each.id: each for each in alternatives.timed(measured.run)}
    plain = {case.id: time for case in members if (time := alternatives.plain_time(timed[case.id])) is not None}
    times = plain if len(plain) == len(members) else {case.id: _time(measured, case) for case in members}
    fast, *_, slow = sorted(members, key=lambda case: times[case.id].value)
    factor = times[slow.id] / times[fast.id]
    certain, told = alternatives.difference(timed[slow.id], timed[fast.id]), "no: within noise"
    if certain is not None:
        over = worded(certain.observed)
        told = f"yes: {certain.factor.low:.2f} to {certain.factor.high:.2f} {over}"
    ends = (format_switch(slow.params.get(key)), format_switch(fast.params.get(key)))
    cells = (f"{fast.workload} {key}", _where(measured, members, key), *ends, times[fast.id], factor, told)
    return (certain is None, -factor.value), cells


def _size(measured: Analyses, key: str, members: Sequence[CaseEntry]) -> tuple[tuple[bool, float], tuple[Value, ...]]:
    """The smallest and the largest value of a size."""

    def least(case: CaseEntry) -> float:
        return float(case.bytes_read + case.bytes_written or case.flops)

    small, *_, large = sorted(members, key=lambda case: float(case.params[key]))
    time = _time(measured, large)
    factor, work = time / _time(measured, small), least(large) / least(small) if least(small) else None
    ends = (format_switch(small.params[key]), format_switch(large.params[key]))
    cells = (f"{small.workload} {key}", _where(measured, members, key), *ends, time, factor, work)
    return (False, -factor.value), cells


def format_switch(value: object) -> str:
    """A value of a parameter as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _where(measured: Analyses, members: Sequence[CaseEntry], key: str) -> str | None:
    """``batch 32``: the other parameters in which the workload's cases differ."""
    cases = [case for case in measured.run.manifest.cases if case.workload == members[0].workload]
    names = [name for name in members[0].params if name != key and len({str(c.params.get(name)) for c in cases}) > 1]
    return ", ".join(f"{name} {format_switch(members[0].params[name])}" for name in names) or None


# Two parameters as a map


def maps(measured: Analyses) -> Iterator[View]:
    """The maps of a run: kernel time over the two parameters of most values, those that define the problem first.

    Raises FiprofError for a table that cannot be read.
    """
    workloads: dict[str, list[CaseEntry]] = defaultdict(list)
    for case in measured.run.cases:
        if KERNEL_TIME.of(measured.run, case.id):
            workloads[case.workload].append(case)
    for workload, cases in workloads.items():
        known = kernel_info.of_workload(workload)
        options = known.options if known else {}
        values = {name: {str(case.params.get(name)) for case in cases} for name in cases[0].params}
        differing = [name for name in values if len(values[name]) > 1]
        axes = sorted(differing, key=lambda name: (name in options, -len(values[name])))[:2]
        if len(axes) > 1 and len(cases) >= FEWEST_CASES:
            yield from _maps(measured, workload, cases, axes, [name for name in options if name not in axes])


def _maps(
    measured: Analyses, workload: str, cases: Sequence[CaseEntry], axes: Sequence[str], options: Sequence[str]
) -> Iterable[View]:
    fixed: dict[tuple[tuple[str, str], ...], list[CaseEntry]] = defaultdict(list)
    for case in cases:
        rest = {name: format_switch(value) for name, value in case.params.items() if name not in (*axes, *options)}
        fixed[tuple(rest.items())].append(case)
    differing = {name for one in fixed for name, value in one if any((name, value) not in other for other in fixed)}
    x, y = (kernel_info.of_parameter(name).axis or name for name in axes)

    def order(case: CaseEntry) -> list[tuple[float, str]]:
        values = [case.params.get(name) for name in axes]
        return [(float(value) if isinstance(value, int | float) else 0.0, str(value)) for value in values]

    for others, members in list(fixed.items())[:MOST_MAPS]:
        where = "".join(f", {name} {value}" for name, value in others if name in differing)
        best = [name for name in options if len({str(case.params.get(name)) for case in members}) > 1]
        cells: dict[tuple[str, ...], list[CaseEntry]] = defaultdict(list)
        for case in sorted(members, key=order):
            cells[tuple(format_switch(case.params.get(name)) for name in axes)].append(case)
        across, down = (list(dict.fromkeys(key[place] for key in cells)) for place in (0, 1))
        rows = tuple(
            (row, *(_cell(measured, cells[place, row], best) if (place, row) in cells else None for place in across))
            for row in down
        )
        fastest = say(" of the fastest {options}", options=tuple(best)) if best else ""
        yield View(
            (Column("y", f"{y} \\ {x}"), *(Column(f"x{place}", name) for place, name in enumerate(across))),
            rows,
            title=f"{workload} over {x} and {y}{where}",
            notes=(f"Kernel time of an iteration{fastest}; colour: its main kernel's share of its roof.",),
        )


def _cell(measured: Analyses, cases: Sequence[CaseEntry], options: Sequence[str]) -> Shaded:
    """The fastest of the cases: its options, time, and share of the roof."""
    best = min(cases, key=lambda case: KERNEL_TIME.of(measured.run, case.id) or 0.0)
    parts = []
    for name in options:
        value, known = best.params.get(name), kernel_info.of_parameter(name)
        words = (known.on if value else known.off) if isinstance(value, bool) else format_switch(value)
        parts.append(words or f"{name} {format_switch(value)}")
    main = next((group for group in measured.longest if group.case == best.id), None)
    roofline = measured.rooflines.get(main.launch) if main else None
    text, tip = ", ".join([*parts, f"{KERNEL_TIME.of(measured.run, best.id) or 0.0:,.3g} µs"]), ""
    share = roofline.share if roofline else None
    if roofline is not None and share is not None:
        text, tip = f"{text} · {share:.0%}", f", {share:.0%} of the {roofline.roof} roof"
    cell = Shaded(text)
    cell.share, cell.tip = share, measured.run.labels(best.id) + tip
    return cell
