"""A report for a terminal, and its tables for fenced text: drawn by rich, names shortened in their middle to fit."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fiprof.reports.view import Column, Document, Sayable, Value, View, is_number, shown_columns, word
from fiprof.reports.words import worded
from fiprof.text import cell_width, escape_control, shorten

NARROWEST_TEXT = 12
"""Cells that a column of text keeps on a terminal that is too narrow for everything."""
BAR_CELLS = 40
UNLIMITED = 100_000
"""Columns of rich's console: what has to fit was made to fit before, and rich would cut numbers."""
_GAP = 2
_EIGHTHS: tuple[str, ...] = ("", *"▏▎▍▌▋▊▉")

Shown = Sequence[tuple[Column, list[Value]]]


def write(document: Document, *, width: int, colour: bool, bars: bool) -> str:
    """The report as text. width: cells of the terminal. colour: ANSI escapes. bars: Unicode blocks."""
    blocks = [_said(document.warnings, width, "yellow", "! ")]
    blocks += [_view(view, width, bars) for view in document.shown]
    blocks.append(_said(document.notes, width))
    drawn: list[RenderableType] = []
    for block in filter(None, blocks):
        drawn += [Text(), *block] if drawn else block
    return "\n".join(_drawn(drawn, colour=colour))


def table_lines(view: View, *, width: int, narrowest: int) -> list[list[str]]:
    """The lines of a table without colour, bars with it; several tables where its columns are too many for the width.

    Each of several begins with the columns that name a row: those up to the first one of text. narrowest: cells that
    a column of text keeps.
    """
    shown = shown_columns(view, bars=True)
    if not shown:
        return []
    last = next((i for i, (column, values) in enumerate(shown) if not is_number(column, values)), 0)
    names, rest = shown[: last + 1], shown[last + 1 :]
    groups: list[list[tuple[Column, list[Value]]]] = [[]]
    used = base = sum(_Cells.of(*item, narrowest).narrowest + _GAP for item in names) - _GAP
    for item in rest:
        cells = _Cells.of(*item, narrowest).narrowest + _GAP
        if groups[-1] and used + cells > width:
            groups.append([])
            used = base
        groups[-1].append(item)
        used += cells
    return [_drawn([_table([*names, *group], width, narrowest)]) for group in groups]


def _drawn(what: Iterable[RenderableType], *, colour: bool = False) -> list[str]:
    """The lines that rich makes of it."""
    # In a notebook rich would show the lines instead of writing them.
    console = Console(
        file=io.StringIO(),
        width=UNLIMITED,
        force_terminal=colour,
        force_jupyter=False,
        color_system="standard" if colour else None,
    )
    for each in what:
        console.print(each)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().removesuffix("\n").split("\n")]


def _said(texts: Iterable[Sayable], width: int, style: str = "", before: str = "") -> list[RenderableType]:
    """Sentences, each wrapped."""
    return [
        Text(line, style)
        for said in texts
        for line in textwrap.wrap(escape_control(before + worded(said)), max(width, 20), subsequent_indent="  ")
    ]


def _view(view: View, width: int, bars: bool) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(shorten(escape_control(view.title), width), "bold")] if view.title else []
    lines += [*_said(view.warnings, width, "yellow", "! "), *_said(view.summary, width)]
    if view.rows and (shown := shown_columns(view, bars=bars)):
        lines.append(_table(shown, width))
    return lines + _said(view.notes, width)


@dataclass(frozen=True)
class _Cells:
    """A column as text."""

    column: Column
    values: tuple[str, ...]
    right: bool
    natural: int
    """Cells that it takes where there is room."""
    narrowest: int
    """Cells that it keeps where there is none."""

    @classmethod
    def of(cls, column: Column, values: Sequence[Value], narrowest: int) -> _Cells:
        cells = tuple(_bar(value) if column.bar else word(value, column.spec) for value in values)
        heads = ("" if column.bar else column.title, column.unit)
        natural = max(column.least, *map(cell_width, (*heads, *cells)))
        right = is_number(column, values) and not column.bar
        kept = natural if right or column.bar else min(natural, max(column.least, narrowest))
        return cls(column, cells, right, natural, kept)

    def text(self, width: int, units: bool, heights: Sequence[int]) -> Text:
        """The heading, its unit, and the values, as many lines each as its row has."""
        heads = [("" if self.column.bar else shorten(self.column.title, width), "bold")]
        heads += [("\n" + self.column.unit, "dim")] if units else []
        values = "".join(
            "\n" + "\n".join([*lines, *[""] * (height - len(lines))])
            for lines, height in zip(map(self.lines, self.values, [width] * len(self.values)), heights, strict=True)
        )
        return Text.assemble(*heads, (values, "cyan" if self.column.bar else ""))

    def lines(self, value: str, width: int) -> list[str]:
        """A value as it stands in a column of this width."""
        return textwrap.wrap(value, width) or [""] if self.column.wrap else [shorten(value, width)]


def _table(shown: Shown, width: int, narrowest: int = NARROWEST_TEXT) -> Table:
    """One row, a column of text each: rich takes its time for every cell."""
    columns = [_Cells.of(column, values, narrowest) for column, values in shown]
    units = any(column.unit for column, _ in shown)
    table = Table.grid(padding=(0, _GAP, 0, 0))
    widths = _fit(columns, width)
    for cells, fitting in zip(columns, widths, strict=True):
        table.add_column(width=fitting, no_wrap=True, justify="right" if cells.right else "left")
    heights = [
        max(len(cells.lines(cells.values[row], fitting)) for cells, fitting in zip(columns, widths, strict=True))
        for row in range(len(columns[0].values))
    ]
    table.add_row(*(cells.text(fitting, units, heights) for cells, fitting in zip(columns, widths, strict=True)))
    return table


def _fit(columns: Sequence[_Cells], width: int) -> list[int]:
    """The columns' widths: the widest ones that can be are narrowed until the line fits, or as far as they go."""
    widths = [max(column.narrowest, min(column.natural, width)) for column in columns]
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        wider = [i for i, column in enumerate(columns) if widths[i] > column.narrowest]
        if not wider:
            break
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _bar(value: Value) -> str:
    """A share of 1 as blocks, BAR_CELLS for the whole."""
    share = value if isinstance(value, int | float) and math.isfinite(value) else 0.0
    eighths = round(min(max(share, 0.0), 1.0) * BAR_CELLS * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
