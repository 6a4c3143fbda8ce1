"""The tables that a report has for looking things up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from fiprof.analysis.analyses import Analyses
from fiprof.model import metrics, tables
from fiprof.model.run import Run
from fiprof.reports import roofline_tables, show_document
from fiprof.reports.pages.page import Table
from fiprof.reports.pages.traced import Cell, table
from fiprof.reports.run_report.story import Story
from fiprof.reports.view import Column, Document, View
from fiprof.text import short_kernel

MOST_ROWS = 20_000
"""Of a table; the rest is in the run's tables."""


def appendix_tables(measured: Analyses, told: Story) -> Iterable[Table]:
    """The tables behind the report, the rules of ncu, and what there is on disk.

    told: the run's story, every phase of it.

    Raises FiprofError for a table that cannot be read.
    """
    run = measured.run
    makers: tuple[tuple[str, Callable[[], Document]], ...] = (
        ("launches", lambda: show_document.document(measured.figures)),
        ("roofline", lambda: roofline_tables.document(measured.roofs)),
    )
    for name, make in makers:
        if measured.run.launches:
            for number, view in enumerate(make().shown):
                kept = dataclasses.replace(view, rows=view.rows[:MOST_ROWS], warnings=(), summary=(), notes=())
                yield Table(kept, anchor=f"appendix-{name}-{number}", appendix=True)
    yield from _stalls(measured)
    yield from _kernels(told)
    yield from _rules(run)
    yield from _names(run)
    yield from _on_disk(run, counted=bool(measured.run.launches))


def _stalls(measured: Analyses) -> Iterable[Table]:
    """Every stall reason of each kernel, by the launch that stands for it."""
    columns = (
        Column("launch", "#"),
        Column("kernel", "kernel"),
        Column("reason", "reason"),
        Column("share", "share", spec=".1%"),
        Column("warps", "warps/issue", spec=".2f"),
        Column("samples", "samples", spec=",d"),
    )
    rows: list[list[Cell]] = [
        [group.launch, short_kernel(group.kernel), s.reason, mix.traced(s), s.warps_per_issue, s.samples]
        for group in measured.groups
        if (mix := measured.stall_mixes.get(group.launch)) is not None
        for s in mix.stalls
    ]
    if rows:
        title = "Every stall reason"
        yield table(columns, rows[:MOST_ROWS], anchor="appendix-stalls", title=title, appendix=True)


def _kernels(told: Story) -> Iterable[Table]:
    """Every kernel of the trace, those of setup and warmup too."""
    columns = (
        Column("start_ms", "start", "ms", ",.1f"),
        Column("phase", "phase"),
        Column("case", "case"),
        Column("kernel", "kernel"),
        Column("grid", "grid"),
        Column("count", "x", spec=",d"),
        Column("median_us", "median", "µs", ",.2f"),
        Column("gap_us", "gap", "µs", ",.1f"),
        Column("launch_us", "call", "µs", ",.1f"),
    )
    spans = [span for phase in told.phases for span in phase.at.spans]
    rows: list[list[Cell]] = [
        [
            span.start_us / 1e3,
            span.phase,
            span.label,
            short_kernel(span.kernel),
            span.grid,
            span.count,
            span.median_us,
            span.gap_us,
            span.launch_us,
        ]
        for span in sorted(spans, key=lambda span: span.start_us)
    ]
    if rows:
        notes = ("gap: to the start of the next kernel, the median. call: the CUDA call that launched it.",)
        title = "Every kernel of the trace"
        yield table(columns, rows[:MOST_ROWS], anchor="appendix-kernels", title=title, notes=notes, appendix=True)


_RULES = ("launch", "section", "rule", "kind", "speedup_kind", "speedup_pct", "message")


def _rules(run: Run) -> Iterable[Table]:
    """What ncu's own rules say, in its words."""
    rows = run.rows("rules", _RULES)
    if rows:
        columns = (
            Column("launch", "#"),
            Column("rule", "rule"),
            Column("kind", "kind"),
            Column("speedup_kind", "speedup"),
            Column("speedup_pct", "estimate", "%", ".1f"),
            Column("message", "in ncu's words"),
        )
        cells = tuple(tuple(row[column.key] for column in columns) for row in rows)
        view = View(columns, cells, title="ncu's own rules")
        yield Table(view, anchor="appendix-rules", appendix=True)


def _names(run: Run) -> Iterable[Table]:
    """Full names of the kernels."""
    names: dict[str, str] = {}
    for name in ("launches", "kernels"):
        for row in run.rows(name, ("kernel", "kernel_full")):
            if row["kernel_full"]:
                names.setdefault(row["kernel_full"], row["kernel"] or "")
    if names:
        view = View(
            (Column("kernel", "kernel"), Column("kernel_full", "in full")),
            tuple((short, full) for full, short in list(names.items())[:MOST_ROWS]),
            title="Kernels by their full names",
        )
        yield Table(view, anchor="appendix-names", appendix=True)


def _on_disk(run: Run, *, counted: bool) -> Iterable[Table]:
    """The run's own tables, and where ncu counted, its names of the columns of ``launches``."""
    rows = tuple(
        (each.name, run.table(each.name).num_rows, each.row) for each in tables.TABLES.values() if run.has(each.name)
    )
    if not rows:
        return
    columns = (Column("table", "table"), Column("rows", "rows", spec=",d"), Column("row", "a row is"))
    notes = ("In the folder tables of the run, as Parquet; fiprof.open(RUN).frame(NAME) is a DataFrame.",)
    yield Table(View(columns, rows, title="Tables on disk", notes=notes), anchor="appendix-tables", appendix=True)
    if not counted:
        return
    named = tuple((metric.name, metric.ncu[0], metric.unit, metric.meaning) for metric in metrics.METRICS)
    heads = (
        Column("column", "column of launches"),
        Column("ncu", "ncu's metric"),
        Column("unit", "unit"),
        Column("meaning", "meaning"),
    )
    view = View(heads, named, title="What the figures are in ncu's words")
    yield Table(view, anchor="appendix-metrics", appendix=True)
