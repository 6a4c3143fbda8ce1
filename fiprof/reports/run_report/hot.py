"""The hottest instructions of a kernel with the code around them, and how hot each is."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fiprof.analysis import hotspots
from fiprof.analysis.hotspots import Instruction, LaunchHotspots
from fiprof.analysis.sass import parse
from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.reports.pages.page import Block, Quoted, Table
from fiprof.reports.run_report.entries import Entry
from fiprof.reports.view import Column, Narrow, Value, View
from fiprof.reports.words import phrase
from fiprof.text import escape_control, shorten

TOP, CONTEXT = 10, 1
"""Instructions, and how many before and after each."""
LEAST_SAMPLES = 20
"""Of a launch: of fewer, no share of an instruction is shown."""
LONGEST_SASS = 34
"""Cells."""
HEAT_CELLS = 8
"""Of a bar in characters."""


def blocks(entry: Entry) -> Iterator[Block]:
    """The instructions of the launch that took most time; nothing without samples."""
    found = entry.measured.run.once(_by_launch).get(entry.group.launch) if entry.group else None
    if found is not None and found.hotspots and found.samples >= LEAST_SAMPLES:
        yield _table(entry, found)


def _by_launch(run: Run) -> dict[int, LaunchHotspots]:
    try:
        found = hotspots.hotspots(run, top=TOP, context=CONTEXT).launches if run.has("hotspots") else ()
    except FiprofError:
        # The run has the table and no samples in it.
        return {}
    return {item.launch: item for item in found}


def _table(entry: Entry, found: LaunchHotspots) -> Table:
    hottest = found.hotspots[0].share
    lines = [line for block in found.blocks for line in block]
    shown = {line.offset for line in lines}
    several = any(line.source_file for line in lines)
    columns = [
        Column("rank", "#"),
        Column("offset", phrase("hot.offset")),
        Column("sass", phrase("hot.instruction", case=entry.label), narrow=Narrow.KEEP),
        Column("share", phrase("hot.share"), spec=".1%"),
        Column("heat", phrase("hot.heat"), bar=True, least=HEAT_CELLS),
        Column("reason", phrase("hot.reason")),
        Column("waits_for", phrase("hot.waits_for")),
        *([Column("source", phrase("hot.source"))] if several else []),
    ]
    rows: list[tuple[Value, ...]] = []
    for block in found.blocks:
        rows += [tuple("…" if each.key == "sass" else None if each.bar else "" for each in columns)] if rows else []
        rows += [_row(line, hottest, shown)[: len(columns)] for line in block]
    return Table(View(tuple(columns), tuple(rows)))


def _row(line: Instruction, hottest: float, shown: Collection[int]) -> tuple[Value, ...]:
    cause = line.waits_for
    place = "" if line.source_file is None else line.source_file.replace("\\", "/").rpartition("/")[2]
    return (
        "" if line.rank is None else str(line.rank),
        hex(line.offset),
        Quoted(shorten(escape_control(line.shown), LONGEST_SASS)),
        line.share if line.samples else "",
        line.share / hottest if hottest else 0.0,
        (line.top_reason or "") if line.rank else "",
        ""
        if cause is None
        else " ".join([hex(cause.offset), *([parse(cause.sass).opcode] if cause.offset not in shown else [])]),
        place if line.source_line is None else f"{place}:{line.source_line}",
    )
