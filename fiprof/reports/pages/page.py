"""A page for people, as data: sections of sentences, tables, charts, findings and commands.

``markdown.py`` writes it as plain text, ``html.py`` as one file for a browser. Whatever stands in a page is text: names
from a profiled program are never obeyed as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from fiprof.reports.view import View

if TYPE_CHECKING:
    from altair import LayerChart

    from fiprof.model.provenance import TracedNumber


class Link(str):
    """A word that leads somewhere; wherever a link cannot be, it is its text. Works in a sentence and in a cell."""

    href: str
    """``#anchor`` in the same page, or a path relative to it."""

    def __new__(cls, text: str, href: str) -> Self:
        link = super().__new__(cls, text)
        link.href = href
        return link


class Quoted(str):
    """Words of a program in a sentence, e.g. an instruction: shown as code, letter by letter."""


class PageLink(Link):
    """A link to another page that is written in the same forms: ``analysis`` or ``analysis#decode``, without a suffix.

    Each writer adds its own.
    """


class RowLink(PageLink):
    """A link to a row of a table of such a page; to the table where rows have no place of their own, in plain text."""

    row: str
    """The row's anchor."""

    def __new__(cls, text: str, href: str, row: str) -> Self:
        link = super().__new__(cls, text, href)
        link.row = row
        return link


def target(link: Link, suffix: str) -> str:
    """Where a link leads from a page with this suffix, e.g. ``.md``."""
    if not isinstance(link, PageLink):
        return link.href
    path, sharp, anchor = link.href.partition("#")
    if isinstance(link, RowLink) and suffix == ".html":
        anchor = link.row
    return f"{path}{suffix}{sharp}{anchor}"


@dataclass(frozen=True)
class Text:
    """A paragraph: its parts, one after the other, as they are."""

    parts: tuple[str, ...]
    """Each a plain string, a :class:`Link` or :class:`Quoted`."""


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: tuple[Text, ...]


@dataclass(frozen=True)
class Caution:
    """A sentence that makes numbers doubtful, or says what is missing and why."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table of the page."""

    view: View
    """With its title, warnings, summary and notes."""
    anchor: str = ""
    """To cite it by; empty for none."""
    appendix: bool = False
    """Long and for looking things up: HTML folds it, plain text shows the first rows and says where the rest is."""
    sources: tuple[tuple[str, ...], ...] = ()
    """For each cell of the view's rows where its number comes from, in words (empty for none); or nothing at all. HTML
    shows it when the mouse rests on the cell."""
    facts: tuple[tuple[TracedNumber | None, ...], ...] = ()
    """The same as data; see ``facts.py``."""
    uncut: bool = False
    """Whether plain text shows every row of an appendix all the same."""
    row_anchors: tuple[str, ...] = ()
    """Of each row, for a :class:`RowLink`; or nothing at all."""


@dataclass(frozen=True)
class Chart:
    """A picture of numbers, twice: in characters and for a browser."""

    anchor: str
    title: str
    text: str
    """In characters, at most 100 columns; empty where characters cannot show it."""
    figure: Callable[[], LayerChart]
    """Makes the interactive one; called by whoever shows it, because the library is heavy."""
    caption: str = ""
    """How to read it, with units."""
    hint: str = ""
    """What the interactive one has beside that; only a browser shows it."""


@dataclass(frozen=True)
class Diagram:
    """A drawing in characters, box-drawing ones and shades; HTML shows it as SVG (``drawing.py``)."""

    anchor: str
    title: str
    text: str
    """At most 70 columns, so that it can be read on a phone."""
    caption: str = ""


@dataclass(frozen=True)
class Code:
    """Something to copy and run, or a tool's own words."""

    text: str
    language: str = "sh"


@dataclass(frozen=True)
class Observation:
    """An observation with what shows it and what follows from it."""

    anchor: str
    observation: str
    """One sentence, with the number that matters."""
    evidence: tuple[str, ...]
    """Each with metric, value, unit and, where it was held against one, threshold and source."""
    implication: str
    """What to do about it, or what it means for the reader."""
    sure: str = ""
    """How sure it is, and why."""


def bullets(lines: Iterable[str]) -> Bullets:
    """A list of sentences without links."""
    return Bullets(tuple(Text((line,)) for line in lines))


Block = Text | Bullets | Caution | Table | Chart | Diagram | Code | Observation


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading of its own."""

    anchor: str
    title: str
    blocks: tuple[Block, ...] = ()
    sections: tuple[Section, ...] = ()
    folded: bool = False
    """For looking things up: HTML folds it until a link leads into it."""


@dataclass(frozen=True)
class Page:
    """The whole."""

    title: str
    sections: tuple[Section, ...]
    subtitle: str = ""
    """One line under the title, e.g. the run's name."""
    facts: tuple[tuple[str, str], ...] = ()
    """What stands below the title: name and value, e.g. ("GPU", "NVIDIA H200")."""
    links: tuple[Link, ...] = field(default=())
    """To sibling pages."""
