"""A report's values as the page's data: every number with its source, each source once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fiprof.model.provenance import TracedNumber, numbers_of
from fiprof.model.wording import worded
from fiprof.reports.pages.page import Caution, Code, Section, Text
from fiprof.reports.view import Column, View, is_number, word
from fiprof.text import escape_control, escape_lines


@dataclass(frozen=True)
class LocatedNumber:
    """A number whose source is known, and where in the report it stands."""

    section: str
    text: str
    """As it is written there."""
    fact: TracedNumber


class Ink:
    """Writes values as JSON and remembers where each number comes from."""

    def __init__(self) -> None:
        self.section = "answer"
        self.numbers: list[LocatedNumber] = []
        self._sources: dict[str, int] = {}

    @property
    def sources(self) -> list[str]:
        """The sources in words; a number names its own by its place here."""
        return list(self._sources)

    def number(self, fact: TracedNumber) -> int:
        """The place of a number's source."""
        self.numbers.append(LocatedNumber(self.section, str(fact), fact))
        return self._sources.setdefault(escape_control(str(fact.source)), len(self._sources))

    def text(self, *parts: object) -> Any:
        """A sentence: a string, or a list of strings and ``[text, place of its source]``."""
        pieces: list[Any] = []
        for part in parts:
            text, at = str(part), 0
            for fact in numbers_of(part):
                start = text.find(str(fact), at)
                # What is written in another way has its source all the same.
                place = self.number(fact)
                if start >= 0:
                    at_end = start + len(str(fact))
                    pieces += [escape_control(text[at:start]), [escape_control(text[start:at_end]), place]]
                    at = at_end
            pieces.append(escape_control(text[at:]))
        pieces = [piece for piece in pieces if piece != ""]
        if all(isinstance(piece, str) for piece in pieces):
            return "".join(pieces)
        return pieces

    def cell(self, value: object, column: Column) -> Any:
        """A cell: null, a text, ``{t: text, o: what it is sorted by, s: source, b: bar}`` or a sentence."""
        if isinstance(value, TracedNumber):
            spec = column.spec or value.spec
            text = f"{value.value:{spec}}" if column.spec else str(value)
            self.numbers.append(LocatedNumber(self.section, text, value))
            place = self._sources.setdefault(escape_control(str(value.source)), len(self._sources))
            return {"t": text, "o": significant(value.value), "s": place}
        if column.bar:
            return {"t": "", "b": significant(min(max(float(value or 0.0), 0.0), 1.0))}  # type: ignore[arg-type]
        if numbers_of(value):
            return {"p": self.text(value)}
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"t": word(value, column.spec), "o": significant(value)} if math.isfinite(value) else None
        text = word(value, column.spec)  # type: ignore[arg-type]
        return None if text == "–" else text

    def view(self, view: View, anchor: str = "") -> dict[str, Any]:
        """A table with its sentences."""
        shown = [index for index, column in enumerate(view.columns) if column.title or column.bar]
        columns = [view.columns[index] for index in shown]
        numeric = [is_number(view.columns[i], [plain(row[i]) for row in view.rows]) for i in shown]
        return {
            "anchor": anchor,
            "title": escape_control(view.title),
            "columns": [
                {"t": each.title, "u": each.unit, "m": each.meaning, "n": number and not each.bar, "w": each.wrap}
                for each, number in zip(columns, numeric, strict=True)
            ],
            "rows": [[self.cell(row[i], view.columns[i]) for i in shown] for row in view.rows],
            "before": [self.text(worded(each)) for each in (*view.warnings, *view.summary)],
            "notes": [self.text(worded(each)) for each in view.notes],
        }

    def sections(self, sections: Sequence[Section]) -> list[dict[str, Any]]:
        """Sections with their blocks."""
        return [
            {
                "anchor": each.anchor, "title": each.title, "folded": each.folded, "blocks": list(self._blocks(each)),
            }
            for each in sections
        ]  # fmt: skip

    def _blocks(self, section: Section) -> Iterator[dict[str, Any]]:
        self.section = section.anchor
        for block in section.blocks:
            if isinstance(block, View):
                yield {"k": "table", **self.view(block)}
            elif isinstance(block, Text):
                yield {"k": "text", "t": self.text(*block.parts)}
            elif isinstance(block, Caution):
                yield {"k": "caution", "t": self.text(block.text)}
            elif isinstance(block, Code):
                yield {"k": "code", "t": escape_lines(block.text)}
            elif isinstance(block, HeatMap):
                yield {"k": "heat", **vars(block)}


@dataclass(frozen=True)
class HeatMap:
    """A table of two parameters: what is best in each cell, and how near it is to its roof."""

    title: str
    x: str
    y: str
    columns: list[str]
    rows: list[str]
    cells: list[list[Any]]
    """Words, share of the roof or None, and what the pointer shows; None for what was not measured."""
    caption: str


def plain(value: Any) -> Any:
    """The value of a traced number; anything else as it is."""
    return value.value if isinstance(value, TracedNumber) else value


def significant(value: float) -> float | int | None:
    """A number with seven digits, which is what a page sorts and draws by."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.7g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def texts(ink: Ink, said: Iterable[object]) -> list[Any]:
    """Sentences, the empty ones left out."""
    return [ink.text(each) for each in said if each]
