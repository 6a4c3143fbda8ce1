"""What a report says, as data, and how it is written down: for a terminal, as JSON, CSV and Markdown.

Names of kernels and cases are other people's data: whatever is in them is shown as text, never obeyed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import fiprof
from fiprof.model.finding import Finding, plain
from fiprof.reports.words import worded
from fiprof.text import cell_width, escape_control, shorten

Format = Literal["table", "json", "csv", "md"]
FORMATS: tuple[Format, ...] = ("table", "json", "csv", "md")

Value = str | int | float | bool | Finding | tuple[str | Finding, ...] | None
"""A cell. None is what was not measured; an enum or a finding is shown in words."""

NARROWEST_TEXT = 12
"""Cells that a column of text keeps on a terminal that is too narrow for everything."""
LONGEST_MARKDOWN_TEXT = 80
BAR_CELLS = 40


@dataclass(frozen=True)
class Column:
    """One column: its key for programs, its heading for people."""

    key: str
    """Name in JSON and CSV, with the unit, e.g. ``duration_us``."""
    title: str = ""
    """Heading in tables; without one the column is in JSON and CSV only."""
    unit: str = ""
    """Below the heading."""
    spec: str = ""
    """Format of its numbers in tables, e.g. ``.2f``; JSON and CSV have full precision."""
    meaning: str = ""
    """One sentence."""
    bar: bool = False
    """Draw the value, 0 to 1, as a bar; only where bars are wanted."""
    least: int = 0
    """Cells that it takes in a table at least, so that tables below each other line up."""


Sayable = Finding | StrEnum | str
"""What the words are for, or a text as it is."""


@dataclass(frozen=True)
class View:
    """A table with a heading, and the sentences that belong to it."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    """Each as long as columns."""
    title: str = ""
    warnings: tuple[Sayable, ...] = ()
    """What makes the numbers doubtful; before them."""
    summary: tuple[Sayable, ...] = ()
    """What the numbers say in words; before them too."""
    notes: tuple[Sayable, ...] = ()
    """How to read them; after them."""


@dataclass(frozen=True)
class Document:
    """A report of several tables for people, and one for programs."""

    data: View
    """All of it in one table, for JSON and CSV."""
    shown: tuple[View, ...]
    """For the terminal and Markdown."""
    warnings: tuple[Sayable, ...] = ()
    """About the whole, before everything."""
    notes: tuple[Sayable, ...] = ()
    """About the whole, after everything."""


def view_of(columns: Sequence[Column], objects: Iterable[object], **texts: Any) -> View:
    """A view whose rows are objects with an attribute for each column's key.

    texts: the view's title, warnings, summary and notes.
    """
    rows = tuple(tuple(getattr(item, column.key) for column in columns) for item in objects)
    return View(tuple(columns), rows, **texts)


def warnings(what: View | Document) -> tuple[str, ...]:
    """Every warning of a report, with the heading that it stands under.

    JSON and CSV leave them out, so that a command says them on stderr.
    """
    own = tuple(map(worded, what.warnings))
    if isinstance(what, View):
        return own
    below = (
        f"{view.title}: {worded(each)}" if view.title else worded(each) for view in what.shown for each in view.warnings
    )
    return tuple(map(escape_control, (*own, *below)))


@dataclass(frozen=True)
class About:
    """What JSON says above the rows."""

    schema: str = ""
    """Which rows these are, and their version: ``verdict/1``."""
    run: str | None = None
    """Name of the run; None where the rows are of none, or of several."""
    gpu: str | None = None


def render(
    what: View | Document,
    format: Format,
    *,
    width: int = 120,
    colour: bool = False,
    bars: bool = False,
    about: About | None = None,
) -> str:
    """A report as text, without a newline at its end.

    width: cells of the terminal; names are shortened to fit, numbers never are. colour: ANSI escapes. bars: Unicode
    blocks. All three are for ``table`` only. about: for JSON.
    """
    document = what if isinstance(what, Document) else Document(data=what, shown=(what,))
    if format == "json":
        return _json(document, about or About())
    if format == "csv":
        return _csv(document.data)
    if format == "md":
        return _markdown(document)
    return _terminal(document, _Terminal(width, colour, bars))


def word(value: Value, spec: str = "") -> str:
    """A cell as people read it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return escape_control(", ".join(map(worded, value))) or "–"
    return escape_control(worded(value)) if isinstance(value, str | Finding) else format(value, spec)


# JSON and CSV


def _json(document: Document, about: About) -> str:
    """One object: what the rows are, of which run and GPU, what makes them doubtful, and the rows."""
    import json

    view = document.data
    found = [*document.warnings, *(each for shown in document.shown for each in shown.warnings)]
    content = {
        "schema": about.schema,
        "fiprof": fiprof.__version__,
        "run": about.run,
        "gpu": about.gpu,
        "warnings": [each.fields() for each in found if isinstance(each, Finding)],
        "rows": [{column.key: value for column, value in zip(view.columns, row, strict=True)} for row in view.rows],
    }
    return json.dumps(_json_value(content), indent=1, allow_nan=False)


def _json_value(value: Any) -> Any:
    """Without what JSON does not have: findings as their fields, enums as their values, no infinities."""
    if isinstance(value, dict):
        return {key: _json_value(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_json_value(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else plain(value)


def _csv(view: View) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in view.columns])
    writer.writerows([_csv_value(value) for value in row] for row in view.rows)
    return out.getvalue().removesuffix("\n")


def _csv_value(value: Value) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Finding):
        value = value.kind.value
    if isinstance(value, tuple):
        value = "; ".join(str(each.kind.value if isinstance(each, Finding) else each) for each in value)
    return escape_control(value) if isinstance(value, str) else repr(value)


# Tables for people


def shown_columns(view: View, *, bars: bool) -> list[tuple[Column, list[Value]]]:
    """The columns that people see, with their values."""
    return [
        (column, [row[index] for row in view.rows])
        for index, column in enumerate(view.columns)
        if column.title and (bars or not column.bar)
    ]


def is_number(column: Column, values: Sequence[Value]) -> bool:
    return bool(column.spec) or any(isinstance(value, int | float) for value in values)


# Markdown


_MARKDOWN = {char: "\\" + char for char in "\\`*[]|~"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKDOWN_ESCAPES = str.maketrans(_MARKDOWN)


def markdown_text(text: str) -> str:
    """Text that GitHub shows as it is. An underscore inside a word is one there."""
    import re

    escaped = escape_control(text).translate(_MARKDOWN_ESCAPES)
    return re.sub(r"(?<!\w)_+|_+(?!\w)", lambda run: "\\_" * len(run[0]), escaped)


def _markdown(document: Document) -> str:
    blocks = [f"> **Warning:** {markdown_text(worded(text))}" for text in document.warnings]
    for view in document.shown:
        blocks += _markdown_view(view)
    blocks += [markdown_text(worded(text)) for text in document.notes]
    return "\n\n".join(blocks)


def _markdown_view(view: View) -> list[str]:
    blocks = (
        [f"### {markdown_text(shorten(escape_control(view.title), LONGEST_MARKDOWN_TEXT * 2))}"] if view.title else []
    )
    blocks += [f"> **Warning:** {markdown_text(worded(text))}" for text in view.warnings]
    blocks += [markdown_text(worded(text)) for text in view.summary]
    shown = shown_columns(view, bars=False)
    if view.rows and shown:
        heads = [f"{column.title} ({column.unit})" if column.unit else column.title for column, _ in shown]
        rules = ["---:" if is_number(column, values) else "---" for column, values in shown]
        cells = [
            [markdown_text(shorten(word(value, column.spec), LONGEST_MARKDOWN_TEXT)) for value in values]
            for column, values in shown
        ]
        rows = [list(map(markdown_text, heads)), rules, *map(list, zip(*cells, strict=True))]
        blocks.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return blocks + [markdown_text(worded(text)) for text in view.notes]


# The terminal


_BOLD, _DIM, _YELLOW, _CYAN = "1", "2", "33", "36"
_EIGHTHS: tuple[str, ...] = ("", *"▏▎▍▌▋▊▉")
_GAP = "  "


@dataclass(frozen=True)
class _Terminal:
    width: int
    colour: bool
    bars: bool

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text.strip() else text

    def wrap(self, said: Sayable, code: str = "") -> list[str]:
        import textwrap

        text = worded(said)

        lines = textwrap.wrap(escape_control(text), max(self.width, 20), subsequent_indent="  ")
        return [self.paint(line, code) for line in lines]


def _terminal(document: Document, terminal: _Terminal) -> str:
    blocks = [_warning_lines(document.warnings, terminal)]
    blocks += [_terminal_view(view, terminal) for view in document.shown]
    blocks.append([line for text in document.notes for line in terminal.wrap(text)])
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _warning_lines(texts: Iterable[Sayable], terminal: _Terminal) -> list[str]:
    return [line for text in texts for line in terminal.wrap(f"! {worded(text)}", _YELLOW)]


def _terminal_view(view: View, terminal: _Terminal) -> list[str]:
    lines = [terminal.paint(shorten(escape_control(view.title), terminal.width), _BOLD)] if view.title else []
    lines += _warning_lines(view.warnings, terminal)
    lines += [line for text in view.summary for line in terminal.wrap(text)]
    if view.rows:
        lines += _table_lines(shown_columns(view, bars=terminal.bars), terminal)
    return lines + [line for text in view.notes for line in terminal.wrap(text)]


class _Cells:
    """A column as text: heading, unit, values."""

    def __init__(self, column: Column, values: Sequence[Value], narrowest: int = NARROWEST_TEXT) -> None:
        self.right = is_number(column, values) and not column.bar
        self.code = _CYAN if column.bar else ""
        head = "" if column.bar else column.title
        self.words = [head, column.unit, *(_bar(v) if column.bar else word(v, column.spec) for v in values)]
        self.natural = max(column.least, *map(cell_width, self.words))
        flexible = not (self.right or column.bar)
        self.narrowest = min(self.natural, max(column.least, narrowest)) if flexible else self.natural

    def painted(self, width: int, terminal: _Terminal) -> list[str]:
        """Every cell as wide as the column."""
        codes = [_BOLD, _DIM, *[self.code] * (len(self.words) - 2)]
        cells = [_padded(shorten(word, width), width, right=self.right) for word in self.words]
        return [terminal.paint(cell, code) for cell, code in zip(cells, codes, strict=True)]


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
    used = base = sum(_Cells(*item, narrowest).narrowest + len(_GAP) for item in names) - len(_GAP)
    for item in rest:
        cells = _Cells(*item, narrowest).narrowest + len(_GAP)
        if groups[-1] and used + cells > width:
            groups.append([])
            used = base
        groups[-1].append(item)
        used += cells
    terminal = _Terminal(width, colour=False, bars=True)
    return [_table_lines([*names, *group], terminal, narrowest) for group in groups]


def _table_lines(
    shown: Sequence[tuple[Column, list[Value]]], terminal: _Terminal, narrowest: int = NARROWEST_TEXT
) -> list[str]:
    """Headings, units where there are any, and the rows."""
    columns = [_Cells(column, values, narrowest) for column, values in shown]
    painted = [
        column.painted(width, terminal) for column, width in zip(columns, _fit(columns, terminal.width), strict=True)
    ]
    heads, units, *rows = [_GAP.join(cells).rstrip() for cells in zip(*painted, strict=True)]
    return [heads, units, *rows] if any(column.unit for column, _ in shown) else [heads, *rows]


def _fit(columns: Sequence[_Cells], width: int) -> list[int]:
    """The columns' widths: the widest ones that can be are narrowed until the line fits, or as far as they go."""
    widths = [max(column.narrowest, min(column.natural, width)) for column in columns]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        wider = [i for i, column in enumerate(columns) if widths[i] > column.narrowest]
        if not wider:
            break
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _padded(text: str, cells: int, *, right: bool) -> str:
    space = " " * (cells - cell_width(text))
    return space + text if right else text + space


def _bar(value: Value) -> str:
    """A share of 1 as blocks, BAR_CELLS for the whole."""
    share = value if isinstance(value, int | float) and math.isfinite(value) else 0.0
    eighths = round(min(max(share, 0.0), 1.0) * BAR_CELLS * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
