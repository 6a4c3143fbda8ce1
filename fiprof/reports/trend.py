"""``fiprof trend`` as tables and as a page: a line for each case or kernel on a GPU, and where its level changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from fiprof.analysis.trend import FEWEST, Change, Line, Point, Trend
from fiprof.model.labels import Labels
from fiprof.reports.columns import Cell, Cells, attribute, filled
from fiprof.reports.pages.charts_trend import trend_chart
from fiprof.reports.pages.page import Block, Page, Section, Table, Text
from fiprof.reports.runs import NOTHING, RESULT_KEYS, labels, metric_column, when
from fiprof.reports.view import Column, Document, Narrow, Value, View
from fiprof.reports.words import phrase
from fiprof.text import short_kernel

SPARK_CELLS = 32
SPARK = "▁▂▃▄▅▆▇█"
MARK = "╎"
"""Before the first run at a new level."""
LEAST_RANGE = 0.05
"""Of a line, over its value: less than this is drawn flat."""
MOST_LINES = 50
"""That a page shows, those that changed most."""
MOST_ROWS = 20
"""That people are shown in a table."""
SHORT_COMMIT = 12


@dataclass(frozen=True)
class _Row:
    """A run of a line, for programs."""

    line: Line
    point: Point
    level: float
    change: Change | None
    """That begins here."""


@dataclass(frozen=True)
class _Marked:
    """A change, and the line that it is of."""

    line: Line
    change: Change


def document(found: Trend, *, most: int | None = None) -> Document:
    """A row a run for programs; for people a row a line, and the changes.

    most: lines that people are shown, those that changed most; None for all.
    """
    label = _labels(found)
    names: Cells = (
        (Column("label", "case", narrow=Narrow.ABOVE), lambda line: label(line.key.case)),
        *(_kernels if any(line.key.kernel for line in found.lines) else ()),
        (Column("on", "GPU", narrow=Narrow.DROP), _gpu),
    )
    value = metric_column(found.metric)
    lines: Cells = (
        *names,
        (Column("runs", "runs", spec=",d"), lambda line: len(line.points)),
        (Column("spark", "oldest to newest", narrow=Narrow.KEEP), lambda line: sparkline(line)),
        (Column("latest", "now", value.unit, value.spec), lambda line: line.latest),
        (Column("changed", "since the first", spec="+.1%"), lambda line: line.latest / _first_level(line) - 1),
    )
    shown = filled(lines, found.lines[:most], notes=_notes(found))
    marked = [_Marked(line, change) for line in found.lines for change in line.changes]
    changes = filled(
        (*(_of_line(cell) for cell in names), *_changes(value)), marked, title=phrase("trend.changes")
    )  # fmt: skip
    rest = len(found.lines) - len(found.lines[:most])
    notes = (phrase("trend.left_out", count=rest),) if rest else ()
    return Document(_programs(found), (shown, changes) if marked else (shown,), notes=notes)


def page(found: Trend, command: str) -> Page:
    """The page: each line as a chart with its changes, those that changed most first. command: that asks for it."""
    label, value = _labels(found), metric_column(found.metric)
    sections = []
    for number, line in enumerate(found.lines[:MOST_LINES]):
        name = " · ".join(filter(None, (label(line.key.case), line.key.kernel and short_kernel(line.key.kernel))))
        blocks: list[Block] = [Text((_facts(line),))]
        title = phrase("trend.chart", metric=found.metric)
        blocks.append(trend_chart(f"chart-{number}", title, line, value, sparkline(line)))
        if line.changes:
            rows = [_Marked(line, change) for change in line.changes]
            blocks.append(Table(filled(_changes(value), rows), anchor=f"changes-{number}"))
        sections.append(Section(f"line-{number}", f"{name} · {_gpu(line)}", tuple(blocks)))
    about = Section("about", phrase("trend.about"), tuple(Text((note,)) for note in _notes(found)))
    title, facts = phrase("trend.title", metric=found.metric), ((phrase("trend.command"), command),)
    return Page(title, (*sections, about), subtitle=value.meaning, facts=facts)


def sparkline(line: Line, cells: int = SPARK_CELLS) -> str:
    """The values as blocks, several runs in one where there are many; a mark before each new level."""
    values = [point.value for point in line.points]
    # A single run off the line does not flatten the others.
    calm = [median(values[max(place - 1, 0) : place + 2]) for place in range(len(values))]
    low, high = min(calm), max(calm)
    high = max(high, low * (1 + LEAST_RANGE))
    edges = [0, *(change.place for change in line.changes), len(values)]
    width = -(-len(values) // cells)
    parts = [
        "".join(
            SPARK[min(max(int((median(level[start : start + width]) - low) / (high - low) * 8), 0), 7)]
            for start in range(0, len(level), width)
        )
        for first, last in itertools.pairwise(edges)
        for level in [values[first:last]]
    ]
    return MARK.join(parts)


_kernels: Cells = ((Column("kernel", "kernel", narrow=Narrow.ABOVE), lambda line: line.key.kernel),)


def _of_line(cell: Cell) -> Cell:
    column, value = cell
    return column, lambda marked: value(marked.line)


def _changes(value: Column) -> Cells:
    """Columns of a change, after those of its line."""
    return (
        (Column("when", "first run after", narrow=Narrow.KEEP), lambda each: when(_after(each).row.started)),
        (Column("before", "before", value.unit, value.spec), lambda each: each.change.before),
        (Column("after", "after", value.unit, value.spec), lambda each: each.change.after),
        (Column("ratio", "change", spec="+.1%"), lambda each: each.change.ratio),
        (Column("p", "by chance", spec=".1%"), lambda each: each.change.p_value),
        (Column("what", "what else changed", narrow=Narrow.BELOW, wrap=True), lambda each: _else(each.change)),
    )


def _after(marked: _Marked) -> Point:
    return marked.line.points[marked.change.place]


def _else(change: Change) -> str:
    """Commit and packages before and after."""
    old, new = change.commits
    updates = [("commit", old and old[:SHORT_COMMIT], new and new[:SHORT_COMMIT])] if old != new else []
    return ", ".join(
        phrase("trend.update", name=name, before=before or "–", after=after or "–")
        for name, before, after in (*updates, *change.packages)
    )


def _first_level(line: Line) -> float:
    end = line.changes[0].place if line.changes else len(line.points)
    return median(point.value for point in line.points[:end])


def _gpu(line: Line) -> str:
    return " ".join(filter(None, ((line.key.gpu or "–").removeprefix("NVIDIA "), (line.key.uuid or "")[4:12])))


def _facts(line: Line) -> str:
    key = line.key
    facts = (key.gpu, key.uuid, key.driver and phrase("trend.driver", driver=key.driver), key.conditions)
    return ", ".join(str(fact) for fact in facts if fact)


def _labels(found: Trend) -> Labels:
    return labels(dict.fromkeys(line.key.case for line in found.lines if line.key.case))


def _notes(found: Trend) -> tuple[str, ...]:
    short = sum(len(line.points) < FEWEST for line in found.lines)
    changed = any(line.changes for line in found.lines)
    notes = [NOTHING] if not found.lines else [] if changed else [phrase("trend.none")]
    if short:
        notes.append(phrase("trend.short", count=short, fewest=FEWEST))
    if found.lines:
        notes.append(phrase("trend.method"))
    return tuple(notes)


def _programs(found: Trend) -> View:
    def of_row(key: str) -> Cell:
        return Column(key), lambda row: getattr(row.point.row, key)

    cells: tuple[Cell, ...] = (
        *map(of_row, (*RESULT_KEYS, "conditions")),
        (Column(found.metric), lambda row: row.point.value),
        attribute("level"),
        attribute("change_ratio", of="change.ratio"),
        attribute("change_p", of="change.p_value"),
    )
    return filled(cells, [row for line in found.lines for row in _rows(line)])


def _rows(line: Line) -> Iterator[_Row]:
    begins: dict[int, Change] = {change.place: change for change in line.changes}
    level: Value = _first_level(line)
    for place, point in enumerate(line.points):
        change = begins.get(place)
        level = change.after if change else level
        assert isinstance(level, float)
        yield _Row(line, point, level, change)
