"""The tables that a report has for looking things up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from fiprof.analysis.analyses import Analyses
from fiprof.model import metrics, tables
from fiprof.model.expressions import Row
from fiprof.reports import roofline_tables, show_document
from fiprof.reports.columns import attribute
from fiprof.reports.pages.page import Table
from fiprof.reports.pages.traced import TracedColumns, listed
from fiprof.reports.run_report.story import Story
from fiprof.reports.view import Column, Document, Value
from fiprof.reports.words import phrase
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
    mixes = [(group, mix) for group in measured.groups if (mix := measured.stall_mixes.get(group.launch)) is not None]
    yield from _named("stalls", _STALLS, [(group, mix, stall) for group, mix in mixes for stall in mix.stalls])
    spans = sorted((span for phase in told.phases for span in phase.at.spans), key=lambda span: span.start_us)
    yield from _named("kernels", _KERNELS, spans, notes=(phrase("appendix.kernels_note"),))
    rules = run.rows("rules", ("launch", "section", *(column.key for column, _ in _RULES)))
    yield from _named("rules", _RULES, rules)
    names: dict[str, str] = {}
    for name in ("launches", "kernels"):
        for row in run.rows(name, ("kernel", "kernel_full")):
            names.setdefault(row["kernel_full"], row["kernel"] or "")
    yield from _named("names", _NAMES, [pair for pair in names.items() if pair[0]])
    present = [each for each in tables.TABLES.values() if run.has(each.name)]
    here = [(each.name, run.table(each.name).num_rows, each.row) for each in present]
    yield from _named("tables", _ON_DISK, here, notes=(phrase("appendix.tables_note"),))
    if here and measured.run.launches:
        yield from _named("metrics", _METRICS, metrics.METRICS)


def _named(name: str, columns: TracedColumns, items: Sequence[object], **texts: object) -> Iterable[Table]:
    """A table of the appendix, if it has rows."""
    if items:
        title = phrase(f"appendix.{name}")
        yield listed(columns, items[:MOST_ROWS], anchor=f"appendix-{name}", title=title, appendix=True, **texts)


def _of_row(key: str, title: str, unit: str = "", spec: str = "") -> tuple[Column, Callable[[Row], Value]]:
    return Column(key, title, unit, spec), itemgetter(key)


_STALLS: TracedColumns = (
    (Column("launch", "#"), lambda item: item[0].launch),
    (Column("kernel", "kernel"), lambda item: short_kernel(item[0].kernel)),
    (Column("reason", "reason"), lambda item: item[2].reason),
    (Column("share", "share", spec=".1%"), lambda item: item[1].traced(item[2])),
    (Column("warps", "warps/issue", spec=".2f"), lambda item: item[2].warps_per_issue),
    (Column("samples", "samples", spec=",d"), lambda item: item[2].samples),
)
"""Of a kernel's launches, their mix and a stall of it."""
_KERNELS: TracedColumns = (
    (Column("start_ms", "start", "ms", ",.1f"), lambda span: span.start_us / 1e3),
    attribute("phase", "phase"),
    attribute("case", "case", of="label"),
    (Column("kernel", "kernel"), lambda span: short_kernel(span.kernel)),
    attribute("grid", "grid"),
    attribute("count", "x", "", ",d"),
    attribute("median_us", "median", "µs", ",.2f"),
    attribute("gap_us", "gap", "µs", ",.1f"),
    attribute("launch_us", "call", "µs", ",.1f"),
)
_RULES: TracedColumns = (
    _of_row("launch", "#"),
    _of_row("rule", "rule"),
    _of_row("kind", "kind"),
    _of_row("speedup_kind", "speedup"),
    _of_row("speedup_pct", "estimate", "%", ".1f"),
    _of_row("message", "in ncu's words"),
)
_NAMES: TracedColumns = (
    (Column("kernel", "kernel"), itemgetter(1)),
    (Column("kernel_full", "in full"), itemgetter(0)),
)
_ON_DISK: TracedColumns = (
    (Column("table", "table"), itemgetter(0)),
    (Column("rows", "rows", spec=",d"), itemgetter(1)),
    (Column("row", "a row is"), itemgetter(2)),
)
_METRICS: TracedColumns = (
    attribute("column", "column of launches", of="name"),
    (Column("ncu", "ncu's metric"), lambda metric: metric.ncu[0]),
    attribute("unit", "unit"),
    attribute("meaning", "meaning"),
)
