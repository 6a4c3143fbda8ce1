"""``fiprof hotspots`` as tables: a listing a launch for people, one flat table for programs."""

from __future__ import annotations

from fiprof.analysis.hotspots import HotspotReport, Instruction, LaunchHotspots
from fiprof.analysis.sass import brief
from fiprof.model.selection import Alike, alike, longest_first
from fiprof.reports.headings import bounded, heading
from fiprof.reports.view import Column, Document, Narrow, Value, View

KEYS = (
    "launch", "case", "label", "kernel", "offset", "sass", "samples", "sample_share", "samples_not_issued",
    "top_reason", "source_file", "source_line", "waits_for_offset", "waits_for_sass",
)  # fmt: skip
HOW_TO_READ = (
    "#: rank by samples; the other lines are around. share: of the launch's warp samples. not issued: samples in "
    "cycles in which the scheduler issued nothing. Offsets are bytes from the kernel's first instruction. A stall "
    "stands at the instruction that could not issue; what it probably waits for is read from the straight-line code "
    "before it."
)
LEAST_SHARE = 0.0005
"""Of the samples, that is shown: less is 0.0%."""
MOST_LAUNCHES = 3
"""Groups of like launches that people are shown."""


def document(report: HotspotReport, *, most: int | None = None) -> Document:
    """The hottest instructions of each group of like launches and what is around them; for programs the hottest alone.

    most: groups that people are shown; None for all.
    """
    rows = tuple(_row(item, line) for item in report.launches for line in item.hotspots)
    kept, left_out = bounded(longest_first(alike(report.launches, weights=report.weights)), most)
    return Document(
        programs=View(tuple(map(Column, KEYS)), rows),
        shown=tuple(map(_of_launch, kept)),
        warnings=report.warnings,
        notes=(*left_out, HOW_TO_READ),
    )


def _row(item: LaunchHotspots, line: Instruction) -> tuple[Value, ...]:
    cause = line.waits_for
    waits_for = (None, None) if cause is None else (hex(cause.offset), cause.sass)
    return (
        item.launch, item.case, item.label, item.kernel, hex(line.offset), line.sass, line.samples, line.share,
        line.samples_not_issued, line.top_reason, line.source_file, line.source_line, *waits_for,
    )  # fmt: skip


_COLUMNS = (
    Column("rank", "#", spec="d"),
    Column("offset", "offset", spec="x"),
    Column("samples", "samples", spec=",d", narrow=Narrow.DROP),
    Column("sample_share", "share", spec=".1%"),
    Column("samples_not_issued", "not issued", spec=",d", narrow=Narrow.DROP),
    Column("top_reason", "stall", least=len("short_scoreboard"), narrow=Narrow.KEEP),
    Column("sass", "instruction"),
    Column("waits_for", "waits for", narrow=Narrow.BELOW),
    Column("source", "source", narrow=Narrow.BELOW),
)
_IF_ANY = ("waits_for", "source")
"""Columns that are there where an instruction has something in them."""


def _of_launch(group: Alike[LaunchHotspots]) -> View:
    item = group.shown
    rows: list[dict[str, Value]] = []
    for block in item.blocks:
        rows += [{"sass": "…"}] if rows else []
        rows += map(_cells, block)
    columns = [column for column in _COLUMNS if column.key not in _IF_ANY or any(row.get(column.key) for row in rows)]
    return View(
        tuple(columns),
        tuple(tuple(row.get(column.key) or "" for column in columns) for row in rows),
        title=heading(item, group),
        warnings=item.warnings,
        summary=item.summary,
        notes=item.meanings,
    )


def _cells(line: Instruction) -> dict[str, Value]:
    """What there is; nothing for zeros."""
    cause, seen = line.waits_for, line.share >= LEAST_SHARE
    file = (line.source_file or "").replace("\\", "/").rpartition("/")[2]
    return {
        "rank": line.rank,
        "offset": hex(line.offset),
        "sass": line.shown,
        "samples": line.samples,
        "sample_share": line.share if seen else None,
        "samples_not_issued": line.samples_not_issued,
        "top_reason": line.top_reason if seen else None,
        "waits_for": f"{hex(cause.offset)} {brief(cause.sass)}" if cause else None,
        "source": (file if line.source_line is None else f"{file}:{line.source_line}") if file else None,
    }
