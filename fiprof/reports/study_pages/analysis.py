"""``analysis``: all kernels under one roofline, then each: its sweep, the hardware, memory, growth; every case last."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from fiprof.analysis import scaling
from fiprof.analysis.expectations import Family, combined
from fiprof.analysis.scaling import Fit
from fiprof.analysis.shapes import fastest_cases, shapes
from fiprof.analysis.study import Study, Value, absence, dram_bytes, least_bytes, main_kernel, pairs, side
from fiprof.model import knowledge, packs
from fiprof.model.results import CaseResult
from fiprof.reports.columns import Cell, filled
from fiprof.reports.pages import colours
from fiprof.reports.pages.page import Block, Caution, Chart, Page, PageLink, Section, Table, Text, bullets
from fiprof.reports.study_pages import scaling as fits
from fiprof.reports.study_pages import tables
from fiprof.reports.study_pages.environment import facts
from fiprof.reports.study_pages.names import (
    absence_words,
    axis_name,
    case_anchor,
    cite,
    label,
    parameter_words,
    run_link,
    short,
    title,
)
from fiprof.reports.study_pages.numbers import number, percent, plain_time, spread
from fiprof.reports.study_pages.sweep import sweep
from fiprof.reports.view import Column
from fiprof.reports.words import entry, phrase

COLUMNS = ("case", "time", "rates", "intensity", "hardware", "warps", "sweep", "growth")
"""What is said of the tables' columns at the end."""

LINE_POINTS = 30
"""Points that draw a roof in characters."""


def page(study: Study) -> Page:
    """Every kernel of the study."""
    missing = tables.absent(study)
    own = [name for name in study.by_workload if not is_baseline(name)]
    others = [name for name in study.by_workload if is_baseline(name)]
    compared = _expectations(study)
    sections = [
        Section("together", "All kernels", together(study, "analysis")),
        *(_workload(study, name) for name in own),
        *([Section("expected", "Expected and measured", compared)] if compared else []),
        *packs.joined("sections", study),
        *(
            [Section("baselines", "Appendix: baselines", (), tuple(_workload(study, n) for n in others))]
            if others
            else []
        ),
        Section("cases", "Appendix: every case", _runs(study), tuple(_cases(study, n) for n in study.by_workload)),
        *([Section("absent", "Cases without a time", (Table(missing),))] if missing.rows else []),
        Section("columns", "How to read the tables", (bullets(entry("study_columns", key) for key in COLUMNS),)),
    ]
    return Page(f"{study.info.title or study.info.study}: analysis", tuple(sections), facts=facts(study))


def is_baseline(workload: str) -> bool:
    """Whether it is there for another one to be compared with."""
    known = knowledge.of_workload(workload)
    return known is not None and bool(known.problem)


def together(study: Study, document: str) -> tuple[Block, ...]:
    """One roofline, and the kernels side by side; document: makes the anchors of two documents differ."""
    largest = [shape.fastest for shape in shapes(study)]
    chart = _roofline(study, f"chart-{document}-roofline")
    blocks: list[Block] = [chart] if chart else []
    if largest:
        blocks.append(Table(tables.side_by_side(study, largest), f"{document}-largest"))
    return (*blocks, *packs.joined("beside", study))


def _workload(study: Study, workload: str) -> Section:
    found = study.of(workload)
    if not found:
        return Section(workload, workload, (Caution(f"Not measured: {absence_words(absence(study, workload))}."),))
    shown = tables.representative(study, workload)
    seen = [case for case in shown if case.kernels]
    blocks: list[Block] = [Text((f"{title(workload)}. ", PageLink("Code", f"kernel-dev-guide#{workload}")))]
    if not is_baseline(workload) and (chart := sweep(study, workload, anchor=f"sweep-{workload}")):
        blocks.append(chart)
    if seen:
        blocks.append(Table(tables.hardware(study, seen), f"hardware-{workload}"))
    blocks.append(Table(tables.memory(study, shown), f"memory-{workload}"))
    blocks += fusing(study, workload)
    if seen:
        blocks.append(Table(tables.launches(study, seen), f"launches-{workload}"))
    else:
        blocks.append(Caution(phrase("study_analysis.no_ncu")))
    blocks += packs.joined("plans", study, workload)
    return Section(workload, workload, (*blocks, *_growth(study, workload)))


def _cases(study: Study, workload: str) -> Section:
    found = study.by_workload[workload]
    anchors = tuple(case_anchor(study, case) for case in tables.in_order(study, found))
    table = Table(tables.case_table(study, found), f"cases-{workload}", appendix=True, uncut=True, row_anchors=anchors)
    return Section(f"every-{workload}", workload, (table,))


def _runs(study: Study) -> tuple[Block, ...]:
    """The runs that hold the cases."""
    parts: list[str] = []
    runs = dict.fromkeys(case.run for cases in study.by_workload.values() for case in cases if case.run)
    for run in runs:
        parts += [", " if parts else "", run_link(study, run)]
    return (Text(("Runs: ", *parts)),) if parts else ()


# Fusing


def fusing(study: Study, workload: str) -> list[Block]:
    """What a workload saves against another one that solves the same problem: traffic by the model and as counted."""
    rivals = [
        name for name in study.by_workload if (known := knowledge.of_workload(name)) and known.problem == workload
    ]
    blocks: list[Block] = []
    for rival in rivals:
        both = pairs(study, side(workload), side(rival))
        columns: list[Cell] = [
            (Column("case", "case"), lambda pair: cite(study, pair[0], short(study, pair[0]))),
            (Column("model_mb", "by formula", "MB", ",.2f"), lambda pair: least_bytes(pair[0]) / 1e6),
            (Column("rival_model_mb", "unfused", "MB", ",.2f"), lambda pair: least_bytes(pair[1]) / 1e6),
            (Column("model_pct", "saved", "%", ".1f"), lambda pair: _less(*map(least_bytes, pair))),
            (Column("dram_mb", "counted", "MB", ",.2f"), lambda pair: (dram_bytes(pair[0]) or 0) / 1e6),
            (Column("rival_dram_mb", "unfused", "MB", ",.2f"), lambda pair: (dram_bytes(pair[1]) or 0) / 1e6),
            (Column("dram_pct", "saved", "%", ".1f"), lambda pair: _less(*map(dram_bytes, pair))),
            (Column("time", "time saved", "%", ".1f"), lambda pair: _less(*(case.plain.median_us for case in pair))),
        ]
        notes: list[str] = [phrase("study_analysis.fusing", rival=rival)]
        notes += [known.traffic] if (known := knowledge.of_workload(workload)) and known.traffic else []
        view = filled(columns, both, title=f"Traffic against {rival}", notes=tuple(notes))
        blocks += [Table(view, f"fusing-{workload}")] if both else []
    return blocks


def _less(one: float | None, other: float | None) -> float | None:
    return 100 * (1 - one / other) if one and other else None


# Roofline


def _roofline(study: Study, anchor: str) -> Chart | None:
    """Every case of every kernel under the roofs that follow from its shares of them; None where no case has both."""
    from fiprof.reports.pages.charts_scaling import Drawn, Point, Series, scaling_chart

    groups: dict[tuple[str, str], list[tuple[CaseResult, float]]] = {}
    for case in study.measured:
        if (x := tables.intensity(case)) is not None and case.tflops:
            groups.setdefault(colours.kernel(case.workload), []).append((case, x))
    placed = [item for items in groups.values() for item in items]
    if not placed:
        return None
    series = [
        Series(
            family,
            tuple(
                Point(x, case.tflops or 0.0, name=label(study, case), details=(("plain time", plain_time(case)),))
                for case, x in sorted(items, key=lambda item: item[1])
            ),
            colour,
            Drawn.POINTS,
        )
        for (family, colour), items in groups.items()
    ]
    low, high = (choose(x for _, x in placed) for choose in (min, max))
    bandwidths = [
        case.gb_per_s / case.gb_per_s_roof_share for case, _ in placed if case.gb_per_s and case.gb_per_s_roof_share
    ]
    kinds: dict[str, list[float]] = {}
    for case, _ in placed:
        kernel = main_kernel(case)
        if kernel and kernel.roof and kernel.roof_kind == "compute" and case.tflops and case.tflops_roof_share:
            kinds.setdefault(kernel.roof, []).append(case.tflops / case.tflops_roof_share)
    words = []
    if bandwidths:
        bandwidth = median(bandwidths)
        most = max((median(values) for values in kinds.values()), default=0.0)
        ends = (low / 1.5, min(high * 1.5, most * 1e3 / bandwidth) if most else high * 1.5)
        if ends[0] < ends[1]:
            steps = [ends[0] * (ends[1] / ends[0]) ** (i / LINE_POINTS) for i in range(LINE_POINTS + 1)]
            line = tuple(Point(x, x * bandwidth / 1e3) for x in steps)
            series.append(Series("DRAM roof", line, colours.GREY, Drawn.LINE))
        words.append(f"DRAM {bandwidth / 1e3:.2f} TB/s")
    words += [f"{kind} {spread(values)} TFLOP/s" for kind, values in kinds.items()]
    return scaling_chart(
        "Roofline of all kernels",
        series,
        x=("intensity", "FLOP/byte"),
        y=("achieved", "TFLOP/s"),
        anchor=anchor,
        roofs=[(kind, median(values)) for kind, values in kinds.items()],
        caption=phrase("study_analysis.roofline", roofs=words or ["not known"]),
    )


# Expectations


def _expectations(study: Study) -> tuple[Block, ...]:
    """What packs expect of each size beside what was measured, of the fastest way."""
    families = list(combined())
    known = [(family, case) for _, family in families for case in fastest_cases(study) if _meant(family, case)]
    if not known:
        return ()
    columns: list[Cell] = [
        (Column("kernel", "kernel"), lambda item: item[1].workload),
        (Column("case", "case"), lambda item: cite(study, item[1], short(study, item[1]))),
        (Column("roof", "roof"), lambda item: item[0].roof.kind),
        (Column("expected", "expected", "%", ".0f"), lambda item: item[0].roof.shares[_size(*item)]),
        (Column("measured", "measured", "%", ".0f"), lambda item: _of_roof(*item)),
        (
            Column("least", "expected", "TB/s from", ".1f"),
            lambda item: item[0].bandwidth and item[0].bandwidth.least_tb_per_s,
        ),
        (Column("tb_per_s", "measured", "TB/s", ".1f"), lambda item: (item[1].gb_per_s or 0.0) / 1e3),
        (Column("stalls", "stalls", "expected, measured %"), lambda item: _stalls(*item)),
    ]
    gpu = study.info.environment.get("gpu") or {}
    lead = []
    for source in dict.fromkeys(source for source, family in families if any(family is each for each, _ in known)):
        values = {"title": source.title, "reference": source.reference, "gpu": source.gpu}
        lead.append(phrase("study_analysis.expected", **values))
        if source.compute_capability != gpu.get("compute_capability"):
            lead.append(phrase("study_analysis.other_gpu"))
    return (Text((" ".join(lead),)), Table(filled(columns, known), "expected-table"))


def _meant(family: Family, case: CaseResult) -> bool:
    """Whether a share of a roof is expected of a case."""
    alike = all(case.params.get(name, value) == value for name, value in family.params.items())
    of = case.workload in family.workloads and alike and bool(case.kernels)
    return of and family.roof is not None and _size(family, case) in family.roof.shares


def _size(family: Family, case: CaseResult) -> float:
    value = case.params.get(family.size)
    return float(value) if isinstance(value, int | float) else 0.0


def _of_roof(family: Family, case: CaseResult) -> float | None:
    kernel = main_kernel(case)
    if family.roof is not None and family.roof.kind == "dram":
        return percent(case.gb_per_s_roof_share)
    return percent(kernel.roof_share) if kernel and kernel.roof_kind == "compute" else None


def _stalls(family: Family, case: CaseResult) -> str:
    """``barrier 25 to 35, 5; …``."""
    kernel = main_kernel(case)
    if kernel is None or not kernel.stalls:
        return "–"
    return (
        "; ".join(
            f"{reason} {low:g} to {high:g}, {100 * kernel.stalls.get(reason, 0.0):.0f}"
            for reason, (low, high) in family.stalls.items()
        )
        or "–"
    )


# Growth


def _growth(study: Study, workload: str) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for axis in study.axes(workload):
        found = scaling.fits(study, workload, axis)
        if not found:
            continue
        shown, fixed = middle(study, workload, axis, found)
        blocks.append(growth_chart(study, workload, axis, shown, fixed))
        table = fits.view(study, found, title=f"Growth along {axis_name(axis)}")
        blocks.append(Table(table, f"fits-{workload}-{axis}", appendix=len(found) > len(shown), uncut=True))
    return tuple(blocks)


def middle(study: Study, workload: str, axis: str, found: Sequence[Fit]) -> tuple[list[Fit], dict[str, Value]]:
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


def growth_chart(
    study: Study, workload: str, axis: str, shown: Sequence[Fit], fixed: dict[str, Value], prefix: str = "chart"
) -> Chart:
    """Time against an axis, a line for each way to solve it."""
    from fiprof.reports.pages.charts_scaling import Point, Series, scaling_chart

    series = [
        Series(
            short(study, item.cases[0], without=study.axes(workload)),
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
        anchor=f"{prefix}-{workload}-{axis}",
    )


def _on_line(item: Fit, x: float) -> tuple[tuple[str, str], ...]:
    return (("line", f"{number(item.line.us(x))} µs"),) if item.line is not None and item.line.holds else ()
