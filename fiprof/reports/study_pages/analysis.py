"""``analysis``: each kernel: how it ran, what the hardware did, how its time grows, and every case."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from fiprof.analysis import scaling
from fiprof.analysis.scaling import Fit
from fiprof.analysis.study import Study, Value, absence, dram_bytes, kernel_shares, main_kernel, top_stalls
from fiprof.model import knowledge, packs
from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import Block, Bullets, Caution, Chart, Page, Section, Table, Text, bullets
from fiprof.reports.study_pages import scaling as fits
from fiprof.reports.study_pages.environment import facts
from fiprof.reports.study_pages.kernel_findings import wave_efficiency
from fiprof.reports.study_pages.names import (
    absence_words,
    axis_name,
    label,
    parameter_words,
    run_link,
    short,
    title,
    verdict_title,
)
from fiprof.reports.study_pages.numbers import number, plain_time, spread
from fiprof.reports.study_pages.tables import absent, case_table, execution, hardware
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase
from fiprof.text import join_words

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_SHOWN = 12
"""Cases of the tables on execution and hardware."""

DRAM_ROOF = "DRAM roof"

LINE_POINTS = 30
"""Points that draw a roof in characters."""


def page(study: Study) -> Page:
    """Every kernel of the study."""
    missing = absent(study)
    sections = [_workload(study, workload) for workload in study.by_workload]
    sections += packs.joined("sections", study)
    if missing.rows:
        sections.append(Section("absent", "Cases without a time", (Table(missing),)))
    return Page(f"{study.info.title or study.info.study}: analysis", tuple(sections), facts=facts(study))


def _workload(study: Study, workload: str) -> Section:
    if not study.of(workload):
        return Section(workload, workload, (Caution(f"Not measured: {absence_words(absence(study, workload))}."),))
    about = knowledge.of_workload(workload)
    algorithm = tuple(Text((text,)) for text in about.algorithm) if about else ()
    shown = representative(study, workload)
    blocks = {
        "execution": ("algorithm and execution", _execution(study, workload, shown)),
        "hardware": ("what the hardware did", _hardware(study, workload, shown)),
        "scaling": ("how its time grows", _scaling(study, workload)),
        "cases": ("every case", _cases(study, workload)),
    }
    parts = [Section(f"{workload}-{key}", f"{workload}: {what}", each) for key, (what, each) in blocks.items()]
    lead: tuple[Block, ...] = (Text((f"{title(workload)}.",)),)
    if algorithm:
        lead = (*lead, Bullets(algorithm))
    return Section(workload, workload, lead, tuple(parts))


def _cases(study: Study, workload: str) -> tuple[Block, ...]:
    """Every case, in plain text too, with the run that holds them where it is one."""
    found = study.by_workload[workload]
    table = Table(case_table(study, found), f"cases-{workload}", appendix=True, uncut=True)
    runs = {case.run for case in found}
    return (table, Text(("Run: ", run_link(study, runs.pop()), "."))) if len(runs) == 1 else (table,)


def representative(study: Study, workload: str) -> list[CaseResult]:
    """The smallest and the largest measured case of each combination of options; fewer where there are many."""
    groups = list(study.groups(workload).values())
    both = [case for group in groups for case in (group if len(group) < 2 else (group[0], group[-1]))]
    return both if len(both) <= MOST_SHOWN else [group[-1] for group in groups][:MOST_SHOWN]


# Execution


def _execution(study: Study, workload: str, shown: Sequence[CaseResult]) -> tuple[Block, ...]:
    seen = [case for case in study.of(workload) if case.kernels]
    if not seen:
        return (Caution("ncu's launches of these cases were not collected: no grid, no waves, no merge steps."),)
    lines = [*_sequence(seen), *packs.joined("plan_sentences", study, workload), *_waves(seen)]
    blocks: list[Block] = [bullets(lines)]
    blocks.append(Table(execution(study, [case for case in shown if case.kernels]), f"execution-{workload}"))
    if any(case.plan for case in shown):
        blocks.append(Table(_plans(study, shown), f"plan-{workload}"))
    return tuple(blocks)


def _sequence(seen: Sequence[CaseResult]) -> list[str]:
    """Which kernels an iteration runs, and what each takes."""
    sequences = Counter(tuple(kernel.kernel for kernel in case.kernels) for case in seen)
    lines: list[str] = []
    for sequence, n in sequences.most_common():
        mine = [case for case in seen if tuple(kernel.kernel for kernel in case.kernels) == sequence]
        shares = [found[-1] for case in mine if (found := kernel_shares(case))] if len(sequence) > 1 else []
        last = phrase("study_analysis.last", spread=spread(shares, ".0%")) if shares else ""
        kernels = join_words([f"one {name}" for name in sequence])
        lines.append(phrase("study_analysis.iteration", cases=n, kernels=kernels, last=last))
    return lines


def _waves(seen: Sequence[CaseResult]) -> list[str]:
    waves = [kernel.waves for case in seen if (kernel := main_kernel(case)) and kernel.waves is not None]
    if not waves:
        return []
    below, worst = sum(item < 1 for item in waves), min(map(wave_efficiency, waves))
    return [phrase("study_analysis.waves", spread=spread(waves), below=below, count=len(waves), worst=worst)]


def _plans(study: Study, shown: Sequence[CaseResult]) -> View:
    """The plans of some cases, with what packs derive from them."""
    rows = [(case, {**case.plan, **dict(packs.joined("plan_facts", case))}) for case in shown if case.plan]
    keys = list(dict.fromkeys(key for _, plan in rows for key in plan))
    columns = (Column("case", "case"), *(Column(key, key.replace("_", " ")) for key in keys))
    values = tuple((short(study, case), *(plan.get(key) for key in keys)) for case, plan in rows)
    return View(columns, values, title="Plan", notes=("As the library's planner told it.",))


# Hardware


def _hardware(study: Study, workload: str, shown: Sequence[CaseResult]) -> tuple[Block, ...]:
    seen = [(case, kernel) for case in study.of(workload) if (kernel := main_kernel(case)) is not None]
    if not seen:
        return (Caution("ncu did not see these cases: no counters."),)
    lines: list[str] = []
    dominant = Counter(top_stalls(kernel, 1)[0][0] for _, kernel in seen if kernel.stalls)
    for name, n in dominant.most_common(3):
        mine = [kernel.stalls[name] for _, kernel in seen if kernel.stalls and top_stalls(kernel, 1)[0][0] == name]
        values = {"count": n, "total": dominant.total(), "spread": spread(mine, ".0%")}
        lines.append(phrase("study_analysis.dominant", reason=name, **values))
    verdicts = Counter(verdict_title(kernel.verdict) for _, kernel in seen if kernel.verdict)
    if verdicts:
        lines.append(phrase("study_analysis.verdicts", verdicts=[f"{name} {n}" for name, n in verdicts.most_common()]))
    for roof in dict.fromkeys(kernel.roof for _, kernel in seen if kernel.roof):
        shares = [k.roof_share for _, k in seen if k.roof == roof and k.roof_share is not None]
        if shares:
            lines.append(phrase("study_analysis.roof", roof=roof, cases=len(shares), spread=spread(shares, ".0%")))
    if unplaced := sum(kernel.roof is None for _, kernel in seen):
        lines.append(phrase("study_analysis.unplaced", count=unplaced))
    return (
        bullets(lines),
        Table(hardware(study, [case for case in shown if case.kernels]), f"hardware-{workload}"),
        *_roofline(study, workload),
    )


# Roofline


def intensity(case: CaseResult) -> float | None:
    """Least operations over the DRAM bytes that ncu counted, FLOP/byte; None where they were not counted."""
    moved = dram_bytes(case)
    return case.flops / moved if moved and case.flops else None


def _roofline(study: Study, workload: str) -> tuple[Block, ...]:
    """Every case under the roofs that follow from its shares of them: nothing where no case has both."""
    from fiprof.reports.pages.charts_scaling import Point, Series, scaling_chart

    groups = {
        key: [(case, x) for case in cases_ if (x := intensity(case)) is not None and case.tflops]
        for key, cases_ in study.groups(workload).items()
    }
    placed = [item for items in groups.values() for item in items]
    if not placed:
        return ()
    series = [
        Series(
            parameter_words(dict(key), items[0][0].params) or workload,
            tuple(
                Point(x, case.tflops or 0.0, name=label(study, case), details=(("plain time", plain_time(case)),))
                for case, x in sorted(items, key=lambda item: item[1])
            ),
        )
        for key, items in groups.items()
        if items
    ]
    low, high = (choose(x for _, x in placed) for choose in (min, max))
    bandwidths = [
        case.gb_per_s / case.gb_per_s_roof_share for case, _ in placed if case.gb_per_s and case.gb_per_s_roof_share
    ]
    peaks = [case.tflops / case.tflops_roof_share for case, _ in placed if case.tflops and case.tflops_roof_share]
    kinds: dict[str, list[float]] = {}
    for case, _ in placed:
        kernel = main_kernel(case)
        if kernel and kernel.roof and kernel.roof_kind == "compute" and case.tflops and case.tflops_roof_share:
            kinds.setdefault(kernel.roof, []).append(case.tflops / case.tflops_roof_share)
    words = []
    if bandwidths:
        bandwidth = median(bandwidths)
        ends = (low / 1.5, min(high * 1.5, max(peaks) * 1e3 / bandwidth) if peaks else high * 1.5)
        if ends[0] < ends[1]:
            steps = [ends[0] * (ends[1] / ends[0]) ** (i / LINE_POINTS) for i in range(LINE_POINTS + 1)]
            series.append(Series(DRAM_ROOF, tuple(Point(x, x * bandwidth / 1e3) for x in steps)))
        words.append(f"DRAM {bandwidth / 1e3:.2f} TB/s")
    words += [f"{kind} {spread(values)} TFLOP/s" for kind, values in kinds.items()]
    words += [f"compute {spread(peaks)} TFLOP/s"] if peaks and not kinds else []
    chart = scaling_chart(
        f"{workload}: roofline",
        series,
        x=("intensity", "FLOP/byte"),
        y=("achieved", "TFLOP/s"),
        anchor=f"chart-{workload}-roofline",
        roofs=[(f"{kind} roof", median(values)) for kind, values in kinds.items()],
        caption=phrase("study_analysis.roofline", roofs=words or ["not known"]),
    )
    return (dataclasses.replace(chart, figure=lambda: _dots(chart.figure())),)


def _dots(figure: Figure) -> Figure:
    """Cases are points of their own, and a roof is a line."""
    for trace in figure.data:
        if "markers" in (trace.mode or ""):
            trace.mode = "lines" if trace.name == DRAM_ROOF else "markers"
    return figure


# Scaling


def _scaling(study: Study, workload: str) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for axis in study.axes(workload):
        found = scaling.fits(study, workload, axis)
        if not found:
            blocks.append(Caution(f"No fit along {axis_name(axis)}: fewer than three sizes were measured."))
            continue
        shown, fixed = _middle(study, workload, axis, found)
        blocks.append(_chart(study, workload, axis, shown, fixed))
        blocks.append(Bullets(tuple(Text((fits.sentence(item),)) for item in shown)))
        table = fits.view(study, found, title=f"Fits along {axis_name(axis)}")
        more = len(found) > len(shown)
        blocks.append(
            Table(table, f"fits-{workload}-{axis}", appendix=more, uncut=True)
            if table.rows
            else Text((fits.too_few(axis),))
        )
    return tuple(blocks) or (Text(("No parameter has three sizes or more: nothing to fit.",)),)


def _middle(study: Study, workload: str, axis: str, found: Sequence[Fit]) -> tuple[list[Fit], dict[str, Value]]:
    """The fits at the middle of the other axes, and those axes' values there."""
    others = [name for name in study.axes(workload) if name != axis]
    fixed: dict[str, Value] = {}
    left = list(found)
    for name in others:
        values = sorted({float(item.cases[0].params[name]) for item in left if name in item.cases[0].params})
        if values:
            chosen = values[len(values) // 2]
            left = [item for item in left if item.cases[0].params.get(name) == chosen]
            fixed[name] = left[0].cases[0].params[name]
    return left, fixed


def _chart(study: Study, workload: str, axis: str, shown: Sequence[Fit], fixed: dict[str, Value]) -> Chart:
    from fiprof.reports.pages.charts_scaling import Point, Series, scaling_chart

    series = [
        Series(
            _series_name(study, workload, item),
            tuple(
                Point(
                    x=float(case.params[axis]),
                    y=case.plain.median_us,
                    low=case.plain.low_us,
                    high=case.plain.high_us,
                    name=label(study, case),
                    details=(*_on_line(item, float(case.params[axis])), ("run", case.run)),
                )
                for case in item.cases
                if case.plain is not None
            ),
        )
        for item in shown
    ]
    where = parameter_words(fixed, fixed)
    name = axis_name(axis)
    return scaling_chart(
        f"{workload}: time against {name}{f', {where}' if where else ''}",
        series,
        x=(name, "tokens" if axis in ("seq_len", "kv_len") else ""),
        y=("plain time", "µs"),
        anchor=f"chart-{workload}-{axis}",
        caption="Median of an iteration without a profiler; both axes logarithmic, so a power law is a straight line"
        + (f". Others at {where} only; every fit is in the table below." if where else "."),
    )


def _on_line(item: Fit, x: float) -> tuple[tuple[str, str], ...]:
    return (("line", f"{number(item.line.us(x))} µs"),) if item.line is not None and item.line.holds else ()


def _series_name(study: Study, workload: str, item: Fit) -> str:
    options = study.options(workload)
    words = parameter_words({k: v for k, v in item.fixed if k in options}, item.cases[0].params)
    return words or workload
