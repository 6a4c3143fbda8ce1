"""Tables with a row a quantity and a column a case or run, in which what differs between runs is marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.model.provenance import TracedNumber, TracedText, numbers_of, sentence
from fiprof.reports.pages.page import Table
from fiprof.reports.run_report.entries import Entry
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase

Cell = TracedNumber | str | None

BAR_CELLS = 24
"""Of a bar in characters."""


@dataclass(frozen=True)
class Row:
    """A quantity in every column."""

    name: str
    cells: tuple[Cell, ...]
    shares: tuple[float | None, ...] = ()
    """Of its maximum, 0 to 1, where it has one: drawn as a bar where there is a single column."""


Value = Callable[[Entry], Cell]


def row(name: str, entries: Sequence[Entry], value: Value, share: Callable[[Entry], float | None] | None = None) -> Row:
    """A quantity of the entries."""
    return Row(name, tuple(map(value, entries)), tuple(map(share, entries)) if share else ())


def of_entries(entries: Sequence[Entry], rows: Iterable[Row], *, title: str) -> Table:
    """The table of a kernel's cases, and of several runs each case's runs beside each other.

    A row without any value is left out.
    """
    several = len({entry.run for entry in entries}) > 1
    first = [next(i for i, other in enumerate(entries) if other.case == entry.case) for entry in entries]
    heads = [(phrase("sides.run", number=e.run + 1), e.label) if several else _split(e.label) for e in entries]
    return table(heads, rows, first, what=title)


def table(
    heads: Sequence[tuple[str, str]],
    rows: Iterable[Row],
    first: Sequence[int] = (),
    *,
    anchor: str = "",
    what: str = "",
    notes: tuple[str, ...] = (),
) -> Table:
    """The table. what: heading of the rows' names. heads: a column's title, and what stands below it. first: for each
    column the one that it is compared to.
    """
    several = any(place != base for place, base in enumerate(first))
    kept = [each for each in rows if any(cell is not None for cell in each.cells)]
    bars = len(heads) == 1 and any(share is not None for each in kept for share in each.shares)
    columns = [Column("what", what or phrase("sides.what"))]
    columns += [
        Column(f"in_{i}", title or phrase("sides.value"), unit, wrap=True) for i, (title, unit) in enumerate(heads)
    ]
    columns += [Column("share", phrase("sides.share"), bar=True, least=BAR_CELLS)] if bars else []
    compared = [[_marked(each.cells, i, first) for i in range(len(heads))] for each in kept]
    values = tuple(
        (each.name, *map(_shown, cells), *(each.shares or (None,) if bars else ()))
        for each, cells in zip(kept, compared, strict=True)
    )
    facts = tuple((None, *map(_fact, cells), *((None,) if bars else ())) for cells in compared)
    runs = [f"{title}: " if several else "" for title, _ in heads]
    sources = tuple(("", *map(_sources, cells, runs), *(("",) if bars else ())) for cells in compared)
    view = View(tuple(columns), values, notes=notes)
    return Table(view, anchor=anchor, sources=sources, facts=facts)


def _sources(cell: Cell, run: str) -> str:
    return "; ".join(f"{run}{each.source}" for each in numbers_of(cell))


def _split(label: str) -> tuple[str, str]:
    """A case's label in two lines: the workload's name, and what tells its cases apart."""
    name, _, rest = label.partition(" ")
    return name, rest


def _marked(cells: Sequence[Cell], place: int, first: Sequence[int]) -> Cell:
    """The cell, with what differs from the first run's."""
    cell = cells[place]
    base = cells[first[place]] if first and first[place] != place else None
    if base is None or cell is None:
        return cell
    numbers = list(zip(numbers_of(cell), numbers_of(base), strict=False))
    if not numbers:
        return cell if str(cell) == str(base) else phrase("sides.other", cell=cell)
    changes = [found for pair in numbers if (found := change(*pair))]
    if isinstance(cell, TracedNumber) and changes:
        return phrase("sides.differs", cell=cell, change=changes[0])
    return phrase("sides.other", cell=cell) if changes else cell


def change(number: TracedNumber, base: TracedNumber) -> str:
    """How much a number differs: in points of a percentage, in percent of others; empty where that is negligible."""
    share = number.spec.endswith("%")
    if share or number.unit == "%":
        points = (number.value - base.value) * (100 if share else 1)
        return phrase("sides.points", points=points) if abs(points) >= WORTH_CHANGING.value else ""
    change = 100 * (number.value / base.value - 1) if base.value else 0.0
    return phrase("sides.change", change=change) if abs(change) >= WORTH_CHANGING.value else ""


def _shown(cell: Cell) -> str | None:
    return str(cell) if isinstance(cell, TracedNumber) else cell


def _fact(cell: Cell) -> TracedNumber | None:
    """A number that is all of a cell; those in a text are found in it."""
    return cell if isinstance(cell, TracedNumber) else None


def number(value: float | None, spec: str, unit: str = "") -> TracedText | None:
    """A number without a source of its own, as text."""
    return None if value is None else sentence("{}", f"{value:{spec}}{unit}")
