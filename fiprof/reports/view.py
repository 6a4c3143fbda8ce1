"""What a report says, as data; ``writers`` write it down: for a terminal, as JSON, CSV and Markdown.

Names of kernels and cases are other people's data: whatever is in them is shown as text, never obeyed.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from fiprof.analysis.frames import Column, Narrow
from fiprof.model.finding import Finding, TracedNumber, TracedText, say, words_of
from fiprof.text import escape_control, figure

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Chart", "Column", "Document", "Narrow", "View", "view_of"]
Format = Literal["table", "json", "csv", "md"]
Record = dict[str, Any]  # what has fields of its own: for programs only, in no table for people
Value = str | int | float | bool | Finding | TracedNumber | Record | tuple[str | Finding | Record, ...] | None
"""A cell. None is what was not measured; an enum or a finding is shown in words."""
Sayable = Finding | StrEnum | str  # what the words are for, or a text as it is


@dataclass(frozen=True)
class Chart:
    """A chart of a page; terminals and Markdown have none."""

    title: str
    spec: Callable[[], dict[str, Any]]  # gives its Vega-Lite specification
    caption: str = ""  # how to read it, with units


@dataclass(frozen=True)
class View:
    """A table with a heading, and the sentences and charts that belong to it; or these alone."""

    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Value, ...], ...] = ()  # each as long as columns
    title: str = ""
    warnings: tuple[Sayable, ...] = ()  # what makes the numbers doubtful; before them
    summary: tuple[Sayable, ...] = ()  # what the numbers say in words; before them too
    notes: tuple[Sayable, ...] = ()  # how to read them; after them
    code: str = ""  # lines to copy and run in a shell; after all of it
    folded: bool = False  # for looking into: folded under its title; without one it belongs to the view before
    charts: tuple[Chart, ...] = ()  # on a page, before the table

    def records(self) -> list[Record]:
        """Its rows, each by the columns' keys."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]

    def frame(self) -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=[column.key for column in self.columns])


@dataclass(frozen=True)
class Document:
    """A report of several tables for people, and one for programs."""

    programs: View | Callable[[], View]  # one table for JSON and CSV; what makes it, where that takes time
    shown: tuple[View, ...]  # for the terminal and Markdown
    warnings: tuple[Sayable, ...] = ()  # about the whole, before everything
    notes: tuple[Sayable, ...] = ()  # about the whole, after everything
    further: Mapping[str, Any] = field(default_factory=dict)  # what JSON has beside the rows

    @cached_property
    def data(self) -> View:
        return self.programs() if callable(self.programs) else self.programs


def view_of(columns: Sequence[Column], objects: Iterable[object], **texts: Any) -> View:
    """A view whose rows are mappings, or objects, by each column's key. texts: title, warnings, summary, notes."""
    keys = [column.key for column in columns]
    rows = tuple(
        tuple([item[key] for key in keys] if isinstance(item, Mapping) else [getattr(item, key) for key in keys])
        for item in objects
    )
    return View(tuple(columns), rows, **texts)


def left_out(words: str, count: int, **values: Any) -> tuple[TracedText, ...]:
    """The sentence about what people are not shown; none where that is nothing."""
    return (say(words, count=count, **values),) if count > 0 else ()


def warnings(what: View | Document) -> tuple[str, ...]:
    """Every warning of a report, with its heading: CSV leaves them out, so that a command says them on stderr."""
    own = tuple(map(words_of, what.warnings))
    if isinstance(what, View):
        return own
    below = (
        f"{of.title}: {words_of(each)}" if of.title else words_of(each) for of in what.shown for each in of.warnings
    )
    return tuple(map(escape_control, (*own, *below)))


def word(value: Value, spec: str = "") -> str:
    """A cell as people read it."""
    if isinstance(value, TracedNumber):
        shown = word(value.value, spec or value.spec)
        return shown if spec or shown == "–" else f"{shown}{value.unit}"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return escape_control(", ".join(words_of(each) for each in value if not isinstance(each, dict))) or "–"
    return escape_control(words_of(value)) if isinstance(value, (str, Finding)) else figure(value, spec)


def shown_columns(view: View, *, bars: bool) -> list[tuple[Column, list[Value]]]:
    """The columns that people see, with their values."""
    return [
        (column, [row[index] for row in view.rows])
        for index, column in enumerate(view.columns)
        if column.title and (bars or not column.bar)
    ]


def is_number(column: Column, values: Sequence[Value]) -> bool:
    """Whether a column holds numbers, which stand to the right."""
    return bool(column.spec) or any(isinstance(value, (int, float, TracedNumber)) for value in values)
