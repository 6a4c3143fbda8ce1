"""Columns with what stands in them: one list makes a table for people and the flat rows for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from fiprof.model.formula import Row, ratio
from fiprof.model.labels import NO_CASE
from fiprof.model.quantities import DURATION, QUANTITIES, Quantity
from fiprof.model.selection import Alike
from fiprof.reports.headings import time_range
from fiprof.reports.view import Column, Narrow, Value, View

Cell = tuple[Column, Callable[[Any], Value]]
Cells = Sequence[Cell]
T = TypeVar("T")


class HasRow(Protocol):
    """Something about a launch."""

    @property
    def row(self) -> Row: ...


def attribute(
    key: str,
    title: str = "",
    unit: str = "",
    spec: str = "",
    least: int = 0,
    *,
    of: str = "",
    narrow: Narrow = Narrow.WRAP,
) -> Cell:
    """A column that shows an attribute: that of its key's name, or the one at the path ``of``, e.g. ``work.ops``.

    Without a title it is for programs alone, without a key for people. None where something on the path is.
    """
    path = (of or key).split(".")

    def value(item: Any) -> Value:
        for name in path:
            item = None if item is None else getattr(item, name)
        return item  # type: ignore[no-any-return]

    return Column(key, title, unit, spec, least=least, narrow=narrow), value


def tera(key: str, of: str, title: str = "") -> Cell:
    """A column of operations a second in 10^12. of: the attribute's path."""
    column, value = attribute(key, title, "TFLOP/s", ".2f", of=of)
    return column, lambda item: ratio(value(item), 1e12)  # type: ignore[arg-type]


def measured(quantity: Quantity | str, title: str = "", unit: str = "", spec: str = "") -> Cell:
    """A column of a quantity of the launch, or of that with a key. unit, spec: where people read it not as usual."""
    quantity = QUANTITIES[quantity] if isinstance(quantity, str) else quantity
    column = Column(quantity.key, title, unit or quantity.unit, spec or quantity.spec, quantity.meaning)

    def value(item: HasRow) -> Value:
        return quantity.of(item.row)

    return column, value


NAMES: Cells = (
    attribute("launch", "#"),
    attribute("label", "case", narrow=Narrow.ABOVE),
    attribute("kernel", "kernel", narrow=Narrow.ABOVE),
)
"""Which launch it is."""


def grouped(cells: Cells, groups: Sequence[Alike[Any]]) -> Cells:
    """The columns for groups of like launches: those of the one that stands for them, and how many and how far apart.

    They begin with NAMES and a time.
    """

    def of_shown(cell: Cell) -> Cell:
        column, value = cell
        return column, lambda group: value(group.shown)

    found = list(map(of_shown, cells))
    if any(group.count > 1 for group in groups):
        found.insert(len(NAMES), (Column("count", "x", spec=",d"), lambda group: group.count))
        place = next((place for place, (column, _) in enumerate(found) if column.key == DURATION.key), None)
        if place is not None:
            found.insert(place + 1, (Column("range_us", "range", narrow=Narrow.BELOW), time_range))
    if all(group.shown.label == NO_CASE for group in groups):
        found = [cell for cell in found if cell[0].key != "label"]
    return found


def filled(cells: Cells, items: Iterable[object], **texts: Any) -> View:
    """The table of these columns, a row an item. texts: the view's title, warnings, summary and notes."""
    rows = tuple(tuple(value(item) for _, value in cells) for item in items)
    return View(tuple(column for column, _ in cells), rows, **texts)


def for_programs(*cells: Cell) -> Cells:
    """The columns that have a key, each once."""
    return tuple({column.key: (column, value) for column, value in cells if column.key}.values())
