"""``fiprof hotspots`` as tables: a listing a launch for people, one flat table for programs."""

from fiprof.analysis.frames import OfRun
from fiprof.analysis.hotspots import LaunchHotspots, Line
from fiprof.analysis.sass import brief
from fiprof.model.selection import Alike, alike, longest_first
from fiprof.reports.columns import bounded, heading
from fiprof.reports.view import Column, Document, Narrow, Value, View, view_of

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
LEAST_SHARE = 0.0005  # of the samples, that is shown: less is 0.0%
MOST_LAUNCHES = 3  # groups of like launches that people are shown

SHOWN = (
    Column("rank", "#", spec="d"),
    Column("offset", "offset", spec="x"),
    Column("samples", "samples", spec=",d", narrow=Narrow.DROP),
    Column("sample_share", "share", spec=".1%"),
    Column("samples_not_issued", "not issued", spec=",d", narrow=Narrow.DROP),
    Column("top_reason", "stall", least=len("short_scoreboard"), narrow=Narrow.KEEP),
    Column("shown", "instruction"),
    Column("waits_for", "waits for", narrow=Narrow.BELOW),
    Column("source", "source", narrow=Narrow.BELOW),
)
"""The last two are there where an instruction has something in them."""


def document(report: OfRun[LaunchHotspots, None], *, most: int | None = None) -> Document:
    """The hottest instructions of each group of like launches and what is around them; for programs the hottest alone.
    most: groups that people are shown; None for all."""
    rows = []
    for item in report.launches:
        for line in item.hotspots:
            cause = line["waits_for_offset"]
            offsets = {"offset": hex(line["offset"]), "waits_for_offset": None if cause is None else hex(cause)}
            own = {"launch": item.launch, "case": item.case, "label": item.label, "kernel": item.kernel}
            rows.append(tuple({**line, **own, **offsets}[key] for key in KEYS))
    kept, left_out = bounded(longest_first(alike(report.launches, weights=report.weights)), most)
    programs, notes = View(tuple(map(Column, KEYS)), tuple(rows)), (*left_out, HOW_TO_READ)
    return Document(programs, tuple(map(_of_launch, kept)), warnings=report.warnings, notes=notes)


def _of_launch(group: Alike[LaunchHotspots]) -> View:
    item = group.shown
    rows: list[dict[str, Value]] = []
    for block in item.blocks:
        rows += [{"shown": "…"}] if rows else []
        rows += map(_cells, block)
    columns = [*SHOWN[:-2], *(column for column in SHOWN[-2:] if any(row.get(column.key) for row in rows))]
    cells = [{column.key: row.get(column.key) or "" for column in columns} for row in rows]  # nothing for zeros
    texts = {"warnings": item.warnings, "summary": item.summary, "notes": item.meanings}
    return view_of(columns, cells, title=heading(item, group), **texts)


def _cells(line: Line) -> dict[str, Value]:
    cause, number = line["waits_for_offset"], line["source_line"]
    file = (line["source_file"] or "").replace("\\", "/").rpartition("/")[2]
    unseen = {} if line["sample_share"] >= LEAST_SHARE else {"sample_share": None, "top_reason": None}
    return {
        **line,
        **unseen,
        "offset": hex(line["offset"]),
        "waits_for": None if cause is None else f"{hex(cause)} {brief(line['waits_for_sass'])}",
        "source": f"{file}:{number}" if file and number is not None else file,
    }
