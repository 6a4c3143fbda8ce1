"""A report written down: for a terminal, where no line is longer than the width and no value is cut, as Markdown,
as JSON and CSV with every column in full precision."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

import fiprof
from fiprof.model.finding import Finding, TracedNumber, plain, words_of
from fiprof.reports.markdown_html import document_markdown
from fiprof.reports.view import Column, Document, Format, Narrow, Sayable, Value, View, is_number, shown_columns, word
from fiprof.text import INDENT, cell_width, csv_cell, escape_control, escape_lines, shorten, wrap

NARROWEST = 20  # columns of a terminal that are used at least
NARROWEST_CELL, LONGEST_WORD = 18, 40
"""Cells that a column keeps where it wraps, and those of a word that it keeps together, where there is room."""
LONGEST_CELL = 1000  # characters of a value, which is another's and may be of any length
BAR_CELLS, LEAST_BAR = 40, 16  # of a full bar, where there is room and where there is none
_GAP = 2
_EIGHTHS: tuple[str, ...] = ("", *"▏▎▍▌▋▊▉")
_STYLES = {"bold": 1, "dim": 2, "cyan": 36, "yellow": 33}


def render(
    what: View | Document,
    format: Format,
    *,
    width: int = 120,
    colour: bool = False,
    bars: bool = False,
    about: Mapping[str, str | None] = MappingProxyType({}),
) -> str:
    """A report as text, without a newline at its end.

    width: cells of the terminal; names are shortened to fit, numbers never are. colour: ANSI escapes. bars: Unicode
    blocks. All three are for ``table`` only. about: for JSON:
    schema (which rows these are, and their version: ``verdict/1``), run and gpu, null where the rows are of none.
    """
    document = what if isinstance(what, Document) else Document(programs=what, shown=(what,))
    if format == "json":
        warnings = [*document.warnings, *(each for shown in document.shown for each in shown.warnings)]
        content = {
            "schema": about.get("schema", ""),
            "fiprof": fiprof.__version__,
            "run": about.get("run"),
            "gpu": about.get("gpu"),
            "warnings": [each.fields() for each in warnings if isinstance(each, Finding)],
            "rows": document.data.records(),
            **document.further,
        }
        return json.dumps(_json_value(content), indent=1, allow_nan=False)
    if format == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([column.key for column in document.data.columns])
        writer.writerows([_csv_value(value) for value in row] for row in document.data.rows)
        return out.getvalue().removesuffix("\n")
    if format == "md":
        return document_markdown(document)
    pen = _Pen(max(width, NARROWEST), colour)
    blocks = [pen.sentences(document.warnings, "yellow", "! ")]
    for view in document.shown:
        lines = [pen.style(line, "bold") for line in wrap(shorten(escape_control(view.title), LONGEST_CELL), pen.width)]
        lines += [*pen.sentences(view.warnings, "yellow", "! "), *pen.sentences(view.summary)]
        if view.rows and (columns := shown_columns(view, bars=bars)):
            lines += [line for table in _tables(columns, pen) for line in table]
        blocks.append(lines + pen.sentences(view.notes) + (escape_lines(view.code).split("\n") if view.code else []))
    blocks.append(pen.sentences(document.notes))
    return "\n\n".join("\n".join(block) for block in blocks if block)


# For a terminal


class _Pen(NamedTuple):
    """How lines are written."""

    width: int
    colour: bool = False

    def style(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colour and text else text

    def sentences(self, texts: Iterable[Sayable], style: str = "", before: str = "") -> list[str]:
        lines = [line for said in texts for line in wrap(escape_control(before + words_of(said)), self.width)]
        return [self.style(line, style) for line in lines] if style else lines


@dataclass
class _Cells:
    """A column as text."""

    column: Column
    values: list[str]
    right: bool
    width: int  # cells that it takes: as many as it wants at first
    narrowest: int  # cells that it keeps where there is no room

    @classmethod
    def of(cls, column: Column, values: Sequence[Value], room: int) -> _Cells:
        """room: cells of the line."""
        if column.bar:
            most = column.least or BAR_CELLS
            numbers = (value if isinstance(value, int | float) and math.isfinite(value) else 0.0 for value in values)
            shares = [str(min(max(number, 0.0), 1.0)) for number in numbers]
            return cls(column, shares, False, most, min(most, LEAST_BAR))
        cells = [shorten(word(value, column.spec), LONGEST_CELL) for value in values]
        right = is_number(column, values)
        width = max(column.least, *map(cell_width, (*_heads(column), *cells)))
        keeps = right or column.narrow is not Narrow.WRAP
        words = (word for text in (*_heads(column), *cells) for word in text.split())
        kept = max(min(max(map(cell_width, words), default=0), LONGEST_WORD, room // 2), min(NARROWEST_CELL, room // 4))
        return cls(column, cells, right, width, width if keeps else min(width, kept))

    def lines(self, text: str) -> list[str]:
        """A cell's lines, padded; a bar in blocks."""
        if self.column.bar:
            eighths = round(float(text or 0) * self.width * 8)
            text = "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
        found = [text] if cell_width(text) <= self.width else wrap(text, self.width, "") or [""]
        padded = ((" " * (self.width - cell_width(line)), line) for line in found)
        return [space + line if self.right else line + space for space, line in padded]


def _heads(column: Column) -> tuple[str, str]:
    return "" if column.bar else column.title, column.unit


def _tables(shown: Sequence[tuple[Column, list[Value]]], pen: _Pen) -> Iterator[list[str]]:
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
    removed: list[_Cells] = []
    for each in reversed([each for each in columns if each.column.narrow is way]):
        if _width(columns) <= width and not (removed and together):
            break
        columns.remove(each)
        removed.insert(0, each)
    return removed


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
    lines = [
        pen.style(line, style)
        for place, style in enumerate(("bold", "dim"))
        if any(heads := [_heads(each.column)[place] for each in columns])
        for line in _row(columns, heads, pen)
    ]
    named = ""
    for place in range(len(columns[0].values) if columns else 0):
        name = " · ".join(dict.fromkeys(each.values[place] for each in above if each.values[place] not in ("", "–")))
        if name != named:
            lines += wrap(name, pen.width)
        named = name
        lines += _row(columns, [each.values[place] for each in columns], pen)
        for each in below:
            if each.values[place] not in ("", "–"):
                text = f"{each.column.title}: {each.values[place]}"
                lines += [INDENT + line for line in wrap(text, pen.width - len(INDENT))]
    return lines


def _row(columns: Sequence[_Cells], texts: Sequence[str], pen: _Pen) -> list[str]:
    """The lines of a row, as many as its cells have."""
    cells = [each.lines(text) for each, text in zip(columns, texts, strict=True)]

    def shown(each: _Cells, part: str | None) -> str:
        if part is None:
            return " " * each.width
        return pen.style(part, "cyan") if each.column.bar else part

    return [(" " * _GAP).join(map(shown, columns, line)).rstrip() for line in zip_longest(*cells)]


# For programs


def _json_value(value: Any) -> Any:
    """Without what JSON does not have: findings as their fields, enums as their values, no infinities."""
    if isinstance(value, dict):
        return {key: _json_value(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_json_value(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else plain(value)


def _csv_value(value: Value) -> str:
    value = value.value if isinstance(value, TracedNumber) else value
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict) or (isinstance(value, tuple | list) and any(isinstance(each, dict) for each in value)):
        value = json.dumps(_json_value(value))
    if isinstance(value, tuple | list):
        value = "; ".join(str(words_of(each)) for each in value if not isinstance(each, dict))
    return csv_cell(words_of(value)) if isinstance(value, str | Finding) else repr(value)
