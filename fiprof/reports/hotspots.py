"""``fiprof hotspots`` as tables: a listing a launch for people, one flat table for programs."""

from __future__ import annotations

from fiprof.analysis.hotspots import HotspotReport, Instruction, LaunchHotspots
from fiprof.analysis.sass import brief
from fiprof.reports.headings import heading
from fiprof.reports.view import Column, Document, Value, View
from fiprof.reports.words import phrase

_DATA = tuple(
    Column(key)
    for key in (
        "launch", "case", "label", "kernel", "offset", "sass", "samples", "sample_share", "samples_not_issued",
        "top_reason", "source_file", "source_line", "waits_for_offset", "waits_for_sass",
    )
)  # fmt: skip


def document(report: HotspotReport) -> Document:
    """The hottest instructions of each launch and what is around them; for programs the hottest alone."""
    rows = tuple(_row(item, line) for item in report.launches for line in item.hotspots)
    return Document(
        data=View(_DATA, rows),
        shown=tuple(map(_of_launch, report.launches)),
        warnings=report.warnings,
        notes=(phrase("hotspots.how_to_read"),),
    )


def _row(item: LaunchHotspots, line: Instruction) -> tuple[Value, ...]:
    at, cause = item.at, line.waits_for
    waits_for = (None, None) if cause is None else (hex(cause.offset), cause.sass)
    return (
        at.launch, at.case, at.label, at.kernel, hex(line.offset), line.sass, line.samples, line.share,
        line.samples_not_issued, line.top_reason, line.source_file, line.source_line, *waits_for,
    )  # fmt: skip


def _of_launch(item: LaunchHotspots) -> View:
    lines = [line for block in item.blocks for line in block]
    columns = [
        Column("rank", "#", spec="d"),
        Column("offset", "offset", spec="x"),
        Column("sass", "instruction"),
        Column("samples", "samples", spec=",d"),
        Column("sample_share", "share", spec=".1%"),
        Column("samples_not_issued", "not issued", spec=",d"),
        Column("top_reason", "top reason", least=len("short_scoreboard")),
    ]
    if any(line.waits_for for line in lines):
        columns.append(Column("waits_for", "probably waits for"))
    if any(line.source_file for line in lines):
        columns.append(Column("source", "source"))
    rows: list[tuple[Value, ...]] = []
    for block in item.blocks:
        if rows:
            rows.append(tuple("…" if column.key == "sass" else "" for column in columns))
        rows += [tuple(_cells(line)[column.key] for column in columns) for line in block]
    return View(
        tuple(columns),
        tuple(rows),
        title=heading(item.at),
        warnings=item.warnings,
        summary=item.summary,
        notes=item.meanings,
    )


def _cells(line: Instruction) -> dict[str, Value]:
    cause = line.waits_for
    return {
        "rank": "" if line.rank is None else line.rank,
        "offset": hex(line.offset),
        "sass": line.shown,
        "samples": line.samples,
        "sample_share": line.share,
        "samples_not_issued": line.samples_not_issued,
        "top_reason": line.top_reason or "",
        "waits_for": "" if cause is None else f"{hex(cause.offset)} {brief(cause.sass)}",
        "source": "" if line.source_file is None else _place(line.source_file, line.source_line),
    }


def _place(file: str, line: int | None) -> str:
    name = file.replace("\\", "/").rpartition("/")[2]
    return name if line is None else f"{name}:{line}"
