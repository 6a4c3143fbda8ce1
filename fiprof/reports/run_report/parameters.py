"""What each parameter of a workload does to the time, where cases of a run differ in it alone; two of them as a map."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fiprof.analysis import alternatives
from fiprof.analysis.alternatives import Difference
from fiprof.analysis.analyses import Analyses
from fiprof.model import kernel_info
from fiprof.model.case_quantities import KERNEL_TIME
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import TracedNumber
from fiprof.model.wording import say
from fiprof.reports.columns import Cells, attribute, filled
from fiprof.reports.pages.page import Section, Text
from fiprof.reports.run_report.ink import HeatMap, significant
from fiprof.reports.view import Column, View

MOST_ROWS = 16
"""Of a table: the largest differences."""
FEWEST_CASES = 4
"""Of a workload, for which a map says more than a list."""
MOST_MAPS = 4
"""Of a workload: one for each combination of the parameters that are no axis and no option."""


@dataclass(frozen=True)
class _Pair:
    """Two cases that differ in a parameter alone: of an option the slowest and the fastest, of a size both ends."""

    workload: str
    key: str
    where: str
    """The other parameters, as far as the workload's cases differ in them."""
    low: str
    """The value that is slower, or the smaller one."""
    high: str
    time: TracedNumber
    """Of high, µs."""
    factor: TracedNumber
    """How much faster high is than low; of sizes how much longer it takes."""
    work: float | None = None
    """The same of the least bytes, or operations where it moves none."""
    certain: Difference | None = None


def section(measured: Analyses) -> Section:
    """The tables, where cases differ in a parameter alone. Raises FiprofError for a table that cannot be read."""
    options: list[_Pair] = []
    sizes: list[_Pair] = []
    for (workload, key), groups in _groups(measured).items():
        value = groups[0][0].params[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        of_key = sizes if number and not _is_option(workload, key) else options
        of_key += [(_size if of_key is sizes else _option)(measured, key, members) for members in groups]
    options.sort(key=lambda pair: (pair.certain is None, -pair.factor.value))
    sizes.sort(key=lambda pair: -pair.factor.value)
    blocks: list[Any] = [*maps(measured)]
    for name, pairs in (("options", options), ("sizes", sizes)):
        if pairs:
            blocks.append(_table(name, pairs[:MOST_ROWS]))
        if len(pairs) > MOST_ROWS:
            blocks.append(
                Text((say("The {shown} largest of {all} differences are shown.", shown=MOST_ROWS, all=len(pairs)),))
            )
    return Section("parameters", "What parameters do", tuple(blocks))


_WORDS = {
    "options": {
        "title": "Options of the same problem",
        "low": "slower",
        "high": "faster",
        "factor": "x faster",
        "note": "Times without a profiler where all cases have one, else of the kernels.",
    },
    "sizes": {
        "title": "Sizes",
        "low": "from",
        "high": "to",
        "factor": "time, times",
        "note": "work: the least bytes that the cost model gives, or operations where it moves none. Less time than "
        "work: the small case does not fill the GPU.",
    },
}
_CAPTION = "Kernel time of an iteration; colour: its main kernel's share of its roof."
_BEST = "Kernel time of an iteration of the fastest {options}; colour: its main kernel's share of its roof."


def _table(name: str, pairs: Sequence[_Pair]) -> View:
    words = _WORDS[name]
    columns: Cells = (
        (Column("parameter", "parameter"), lambda pair: f"{pair.workload} {pair.key}"),
        (Column("where", "at"), lambda pair: pair.where or None),
        (Column("low", words["low"]), lambda pair: pair.low),
        (Column("high", words["high"]), lambda pair: pair.high),
        attribute("time", "time", "µs", ",.1f"),
        (Column("factor", words["factor"], spec=".2f"), lambda pair: pair.factor),
        (Column("certain", "certain"), _sure) if name == "options" else attribute("work", "work, times", "", ".3g"),
    )
    return filled(columns, pairs, title=words["title"], notes=(words["note"],))


def _sure(pair: _Pair) -> str:
    found = pair.certain
    if found is None:
        return "no: within noise"
    over = say(found.observed.words, count=found.count)
    return f"yes: {found.factor.low:.2f} to {found.factor.high:.2f} {over}"


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


def _option(measured: Analyses, key: str, members: Sequence[CaseEntry]) -> _Pair:
    timed = {each.id: each for each in measured.run.once(alternatives.timed)}
    plain = {case.id: time for case in members if (time := alternatives.plain_time(timed[case.id])) is not None}
    times = plain if len(plain) == len(members) else {case.id: _time(measured, case) for case in members}
    fast, *_, slow = sorted(members, key=lambda case: times[case.id].value)
    return _Pair(
        fast.workload, key, _where(measured, members, key), format_switch(slow.params.get(key)),
        format_switch(fast.params.get(key)), times[fast.id], times[slow.id] / times[fast.id],
        certain=alternatives.difference(timed[slow.id], timed[fast.id]),
    )  # fmt: skip


def _size(measured: Analyses, key: str, members: Sequence[CaseEntry]) -> _Pair:
    small, *_, large = sorted(members, key=lambda case: float(case.params[key]))
    factor = _time(measured, large) / _time(measured, small)
    work = _least(large) / _least(small) if _least(small) else None
    ends = (format_switch(small.params[key]), format_switch(large.params[key]))
    return _Pair(small.workload, key, _where(measured, members, key), *ends, _time(measured, large), factor, work)


def _least(case: CaseEntry) -> float:
    return float(case.bytes_read + case.bytes_written or case.flops)


def format_switch(value: object) -> str:
    """A value of a parameter as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _where(measured: Analyses, members: Sequence[CaseEntry], key: str) -> str:
    """``batch 32``: the other parameters in which the workload's cases differ."""
    cases = [case for case in measured.run.manifest.cases if case.workload == members[0].workload]
    names = [name for name in members[0].params if name != key and len({str(c.params.get(name)) for c in cases}) > 1]
    return ", ".join(f"{name} {format_switch(members[0].params[name])}" for name in names)


# Two parameters as a map


def maps(measured: Analyses) -> Iterator[HeatMap]:
    """The maps of a run. Raises FiprofError for a table that cannot be read."""
    workloads: dict[str, list[CaseEntry]] = defaultdict(list)
    for case in measured.run.cases:
        if KERNEL_TIME.of(measured.run, case.id):
            workloads[case.workload].append(case)
    for workload, cases in workloads.items():
        axes = _axes(workload, cases)
        if axes is not None and len(cases) >= FEWEST_CASES:
            yield from _maps(measured, workload, cases, *axes)


def _axes(workload: str, cases: Sequence[CaseEntry]) -> tuple[str, str] | None:
    """The parameters of most values, those that define the problem first; None where only one differs."""
    known = kernel_info.of_workload(workload)
    values = {name: {str(case.params.get(name)) for case in cases} for name in cases[0].params}
    differing = [name for name in values if len(values[name]) > 1]
    options = known.options if known else {}
    first = sorted(differing, key=lambda name: (name in options, -len(values[name])))
    return (first[0], first[1]) if len(first) > 1 else None


def _maps(measured: Analyses, workload: str, cases: Sequence[CaseEntry], x: str, y: str) -> Iterable[HeatMap]:
    known = kernel_info.of_workload(workload)
    options = [name for name in (known.options if known else {}) if name not in (x, y)]
    fixed: dict[tuple[tuple[str, str], ...], list[CaseEntry]] = defaultdict(list)
    for case in cases:
        rest = {name: format_switch(value) for name, value in case.params.items() if name not in (x, y, *options)}
        fixed[tuple(rest.items())].append(case)
    differing = {name for one in fixed for name, value in one if any((name, value) not in other for other in fixed)}
    for others, members in list(fixed.items())[:MOST_MAPS]:
        where = "".join(f", {name} {value}" for name, value in others if name in differing)
        best = [name for name in options if len({str(case.params.get(name)) for case in members}) > 1]
        found = {
            (cell[0], cell[1]): cell[2:]
            for of_cell in _by_cell(members, x, y)
            for cell in [_cell(measured, of_cell, x, y, best)]
        }
        columns, rows = (list(dict.fromkeys(key[place] for key in found)) for place in (0, 1))
        yield HeatMap(
            say("{workload} over {x} and {y}{where}", workload=workload, x=_axis(x), y=_axis(y), where=where),
            _axis(x), _axis(y), columns, rows,
            [[list(found[column, row]) if (column, row) in found else None for column in columns] for row in rows],
            say(_BEST if best else _CAPTION, options=tuple(best)),
        )  # fmt: skip


def _by_cell(cases: Sequence[CaseEntry], x: str, y: str) -> Iterable[Sequence[CaseEntry]]:
    found: dict[tuple[object, object], list[CaseEntry]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: (_order(case.params, x), _order(case.params, y))):
        found[case.params.get(x), case.params.get(y)].append(case)
    return found.values()


def _order(params: Mapping[str, object], name: str) -> tuple[float, str]:
    value = params.get(name)
    return (float(value) if isinstance(value, int | float) else 0.0, str(value))


def _cell(
    measured: Analyses, cases: Sequence[CaseEntry], x: str, y: str, options: Sequence[str]
) -> tuple[str, str, str, float | None, str]:
    """The fastest of the cases: its place, words, share of the roof, and what the pointer shows."""
    times = {case.id: KERNEL_TIME.of(measured.run, case.id) or 0.0 for case in cases}
    best = min(cases, key=lambda case: times[case.id])
    main = next((group for group in measured.longest if group.case == best.id), None)
    roofline = measured.rooflines.get(main.launch) if main else None
    chosen = [_chosen(name, best.params.get(name)) for name in options]
    said = ", ".join(filter(None, (*chosen, say("{time:,.3g} µs", time=times[best.id]))))
    share = roofline.share if roofline else None
    at = "" if share is None or roofline is None else f", {share:.0%} of the {roofline.roof} roof"
    place = (format_switch(best.params.get(x)), format_switch(best.params.get(y)))
    return *place, said, None if share is None else significant(share), f"{measured.run.labels(best.id)}{at}"


def _axis(name: str) -> str:
    return kernel_info.of_parameter(name).axis or name


def _chosen(name: str, value: object) -> str:
    """An option's value in words."""
    if isinstance(value, bool):
        known = kernel_info.of_parameter(name)
        return (known.on if value else known.off) or f"{name} {format_switch(value)}"
    return format_switch(value)
