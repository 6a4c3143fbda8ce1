"""A report for a terminal, and its tables for fenced text: no line is longer than the width, and no value is cut."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from fiprof.model.wording import worded
from fiprof.reports.view import Column, Document, Narrow, Sayable, Value, View, is_number, shown_columns, word
from fiprof.text import INDENT, cell_width, escape_control, shorten, wrap

NARROWEST = 20
"""Columns of a terminal that are used at least."""
NARROWEST_CELL, LONGEST_WORD = 18, 40
"""Cells that a column keeps where it wraps, and those of a word that it keeps together, where there is room."""
LONGEST_CELL = 1000
"""Characters of a value, which is another's and may be of any length."""
BAR_CELLS, LEAST_BAR = 40, 16
"""Of a full bar, where there is room and where there is none."""
_GAP = 2
_EIGHTHS: tuple[str, ...] = ("", *"▏▎▍▌▋▊▉")
_STYLES = {"bold": 1, "dim": 2, "cyan": 36, "yellow": 33}

Shown = Sequence[tuple[Column, list[Value]]]


@dataclass(frozen=True)
class _Pen:
    """How lines are written."""

    width: int
    colour: bool = False
    bars: bool = True

    def style(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colour and text else text

    def said(self, texts: Iterable[Sayable], style: str = "", before: str = "") -> list[str]:
        """Sentences, each wrapped."""
        lines = [line for said in texts for line in wrap(escape_control(before + worded(said)), self.width)]
        return [self.style(line, style) for line in lines] if style else lines


def write(document: Document, *, width: int, colour: bool, bars: bool) -> str:
    """The report as text. width: cells of the terminal. colour: ANSI escapes. bars: Unicode blocks."""
    pen = _Pen(max(width, NARROWEST), colour, bars)
    blocks = [pen.said(document.warnings, "yellow", "! ")]
    blocks += [_view(view, pen) for view in document.shown]
    blocks.append(pen.said(document.notes))
    return "\n\n".join("\n".join(block) for block in blocks if block)


def table_lines(view: View, *, width: int) -> list[list[str]]:
    """The lines of a table without colour, bars with it; several tables where its numbers alone are too wide."""
    shown = shown_columns(view, bars=True)
    return list(_tables(shown, _Pen(width))) if shown else []


def _view(view: View, pen: _Pen) -> list[str]:
    title = shorten(escape_control(view.title), LONGEST_CELL)
    lines = [pen.style(line, "bold") for line in wrap(title, pen.width)]
    lines += [*pen.said(view.warnings, "yellow", "! "), *pen.said(view.summary)]
    if view.rows and (shown := shown_columns(view, bars=pen.bars)):
        lines += [line for table in _tables(shown, pen) for line in table]
    return lines + pen.said(view.notes)


# Tables


@dataclass
class _Cells:
    """A column as text."""

    column: Column
    values: list[str]
    right: bool
    width: int
    """Cells that it takes: as many as it wants at first."""
    narrowest: int
    """Cells that it keeps where there is no room."""

    @classmethod
    def of(cls, column: Column, values: Sequence[Value], room: int) -> _Cells:
        """room: cells of the line."""
        if column.bar:
            most = column.least or BAR_CELLS
            return cls(column, [str(_share(value)) for value in values], False, most, min(most, LEAST_BAR))
        cells = [shorten(word(value, column.spec), LONGEST_CELL) for value in values]
        right = is_number(column, values)
        width = max(column.least, *map(cell_width, (*_heads(column), *cells)))
        keeps = right or column.narrow is not Narrow.WRAP
        words = (word for text in (*_heads(column), *cells) for word in text.split())
        kept = max(min(max(map(cell_width, words), default=0), LONGEST_WORD, room // 2), min(NARROWEST_CELL, room // 4))
        return cls(column, cells, right, width, width if keeps else min(width, kept))

    def lines(self, text: str, last: bool) -> list[str]:
        """A cell's lines, padded but for the last column's."""
        if self.column.bar:
            text = _bar(float(text or 0), self.width)
        found = [text] if cell_width(text) <= self.width else wrap(text, self.width, "") or [""]
        return [self.padded(line, last) for line in found]

    def padded(self, line: str, last: bool) -> str:
        empty = " " * (self.width - cell_width(line))
        return empty + line if self.right else line if last else line + empty


def _heads(column: Column) -> tuple[str, str]:
    return "" if column.bar else column.title, column.unit


def _tables(shown: Shown, pen: _Pen) -> Iterator[list[str]]:
    """The lines of a table that is as wide as there is room; of several, where the numbers alone are too wide."""
    columns = [_Cells.of(*item, pen.width) for item in shown]
    above = _taken(columns, Narrow.ABOVE, pen.width, together=True)
    below = _taken(columns, Narrow.BELOW, pen.width)
    _taken(columns, Narrow.DROP, pen.width)
    for number, group in enumerate(_split(columns, pen.width)):
        while _width(group) > pen.width and (wide := [each for each in group if each.width > each.narrowest]):
            max(wide, key=lambda each: each.width).width -= 1
        yield _lines(group, above, below if not number else [], pen)


def _taken(columns: list[_Cells], way: Narrow, width: int, *, together: bool = False) -> list[_Cells]:
    """The columns that leave the table so that it fits, the last one first, or all of them together."""
    found: list[_Cells] = []
    for each in reversed([each for each in columns if each.column.narrow is way]):
        if _width(columns) <= width and not (found and together):
            break
        columns.remove(each)
        found.insert(0, each)
    return found


def _width(columns: Sequence[_Cells]) -> int:
    return sum(each.width + _GAP for each in columns) - _GAP


def _split(columns: list[_Cells], width: int) -> list[list[_Cells]]:
    """The columns in groups that can be made to fit, each with the first one; what is wider than a line is narrowed."""
    first, *rest = columns
    for each, room in ((first, width // 2 if rest else width), *((each, width // 2 - _GAP) for each in rest)):
        each.narrowest = min(each.narrowest, room)
    groups = [[first]]
    used = first.narrowest
    for each in rest:
        used += _GAP + each.narrowest
        if used > width and len(groups[-1]) > 1:
            groups.append([dataclasses.replace(first)])
            used = first.narrowest + _GAP + each.narrowest
        groups[-1].append(each)
    return groups


def _lines(columns: Sequence[_Cells], above: Sequence[_Cells], below: Sequence[_Cells], pen: _Pen) -> list[str]:
    lasts = [False] * (len(columns) - 1) + [True]
    lines = [
        pen.style(line, style)
        for place, style in enumerate(("bold", "dim"))
        if any(heads := [_heads(each.column)[place] for each in columns])
        for line in _row(columns, lasts, heads, pen)
    ]
    named = ""
    for place in range(len(columns[0].values) if columns else 0):
        name = " · ".join(dict.fromkeys(each.values[place] for each in above if each.values[place] not in ("", "–")))
        if name != named:
            lines += wrap(name, pen.width)
        named = name
        lines += _row(columns, lasts, [each.values[place] for each in columns], pen)
        for each in below:
            if each.values[place] not in ("", "–"):
                text = f"{each.column.title}: {each.values[place]}"
                lines += [INDENT + line for line in wrap(text, pen.width - len(INDENT))]
    return lines


def _row(columns: Sequence[_Cells], lasts: Sequence[bool], texts: Sequence[str], pen: _Pen) -> list[str]:
    """The lines of a row, as many as its cells have."""
    cells = [each.lines(text, last) for each, text, last in zip(columns, texts, lasts, strict=True)]
    return [
        (" " * _GAP).join(_cell(each, text, pen) for each, text in zip(columns, line, strict=True)).rstrip()
        for line in zip_longest(*cells)
    ]


def _cell(column: _Cells, text: str | None, pen: _Pen) -> str:
    if text is None:
        return " " * column.width
    return pen.style(text, "cyan") if column.column.bar else text


def _share(value: Value) -> float:
    """A bar's value, 0 to 1."""
    return min(max(value, 0.0), 1.0) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _bar(share: float, cells: int) -> str:
    """A share of 1 as blocks, so many cells for the whole."""
    eighths = round(share * cells * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
