"""Sections of a report of runs, as data: sentences, warnings, tables and commands. Whatever stands in them is text."""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.reports.view import View


@dataclass(frozen=True)
class Text:
    """A paragraph: its parts, one after the other, as they are."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Caution:
    """A sentence that makes numbers doubtful, or says what is missing and why."""

    text: str


@dataclass(frozen=True)
class Code:
    """Something to copy and run, or a tool's own words."""

    text: str
    language: str = "sh"


Block = Text | Caution | Code | View


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading of its own."""

    anchor: str
    title: str
    blocks: tuple[Block, ...] = ()
    folded: bool = False
    """For looking things up: folded until a link leads into it."""
