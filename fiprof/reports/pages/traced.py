"""Numbers of a page that know where they come from: put into its tables, and all of them found again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fiprof.model.provenance import TracedNumber, numbers_of
from fiprof.reports.pages.page import Answer, Bullets, Caution, Observation, Page, Section, Table, Text
from fiprof.reports.view import Column, Value, View, word
from fiprof.reports.words import worded

Cell = Value | TracedNumber
"""What a row of a traced table has."""


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, anchor: str = "", **texts: object) -> Table:
    """A table of the page whose cells keep their facts.

    A fact is shown as its column says, not as it would be in a sentence. texts: the view's title, summary and notes;
    ``appendix=True`` as in :class:`fiprof.reports.pages.page.Table`.
    """
    appendix = bool(texts.pop("appendix", False))
    values = tuple(tuple(cell.value if isinstance(cell, TracedNumber) else cell for cell in row) for row in rows)
    sources = tuple(tuple(str(cell.source) if isinstance(cell, TracedNumber) else "" for cell in row) for row in rows)
    shown = tuple(
        tuple(
            TracedNumber(cell.value, cell.source, column.spec, f" {column.unit}" if column.unit else "")
            if isinstance(cell, TracedNumber)
            else None
            for cell, column in zip(row, columns, strict=True)
        )
        for row in rows
    )
    view = View(tuple(columns), values, **texts)  # type: ignore[arg-type]
    return Table(view, anchor=anchor, appendix=appendix, sources=sources, facts=shown)


TracedColumns = Sequence[tuple[Column, Callable[[Any], Cell]]]
"""Columns, and what an item has in them."""


def listed(columns: TracedColumns, items: Iterable[object], **texts: object) -> Table:
    """A table of these columns, a row an item. texts: as for :func:`table`."""
    rows = [[value(item) for _, value in columns] for item in items]
    return table([column for column, _ in columns], rows, **texts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class LocatedNumber:
    """A fact and where in the page it stands."""

    section: str
    """Its anchor."""
    text: str
    """As it is written there."""
    fact: TracedNumber


def of_page(page: Page) -> list[LocatedNumber]:
    """Every number of a page whose source is known, in the page's order."""
    return [found for section in page.sections for found in _of_section(section)]


def _of_section(section: Section) -> Iterator[LocatedNumber]:
    for block in section.blocks:
        if isinstance(block, Table):
            for row in block.facts:
                for cell in row:
                    if cell is not None:
                        yield LocatedNumber(section.anchor, word(cell.value, cell.spec), cell)
            cells = (cell for row in block.view.rows for cell in row)
            texts: tuple[object, ...] = (*cells, *map(worded, (*block.view.summary, *block.view.notes)))
        elif isinstance(block, Text):
            texts = block.parts
        elif isinstance(block, Bullets):
            texts = tuple(part for item in block.items for part in item.parts)
        elif isinstance(block, Observation):
            texts = (block.observation, *block.evidence, block.implication, block.sure)
        elif isinstance(block, Caution):
            texts = (block.text,)
        elif isinstance(block, Answer):
            rows = (*block.rows, *block.more)
            texts = (*(block.first.parts if block.first else ()), *(text for row in rows for text in row.texts))
            texts += tuple(use.number for row in rows for use in row.uses)
        else:
            texts = ()
        for text in texts:
            for fact in numbers_of(text):
                yield LocatedNumber(section.anchor, str(fact), fact)
    for inner in section.sections:
        yield from _of_section(inner)
