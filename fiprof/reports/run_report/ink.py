"""A report's values as the page's data: names as text, every number with its source, each source once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fiprof.model.finding import Finding, TracedNumber, TracedText, numbers_of, words_of
from fiprof.reports.view import Column, Sayable, View, is_number, word
from fiprof.text import escape_control, escape_lines


@dataclass(frozen=True)
class Section:
    """A part of a report with a heading of its own."""

    anchor: str
    title: str
    blocks: tuple[View, ...] = ()
    folded: bool = False  # for looking things up: folded until a link leads into it


def text_block(*texts: Sayable) -> View:
    return View(summary=texts)


def caution(text: Sayable) -> View:
    """What makes numbers doubtful, or is missing and why."""
    return View(warnings=(text,))


class Shaded(str):
    """A cell of a map: its words, how dark it is (0 to 1, None for unknown), and what the pointer shows."""

    share: float | None
    tip: str


class Ink:
    """Writes values as JSON and remembers where each number comes from."""

    def __init__(self) -> None:
        self.section = "answer"  # where in the report the next numbers stand
        self.numbers: list[tuple[str, str, TracedNumber]] = []
        """Section, text as it is written there, and the number with its source."""
        self._sources: dict[str, int] = {}

    @property
    def sources(self) -> list[str]:
        """The sources in words; a number names its own by its place here."""
        return list(self._sources)

    def source(self, fact: TracedNumber, text: str = "") -> int:
        """The place of a number's source. text: as it is written, where not in its own way."""
        self.numbers.append((self.section, text or str(fact), fact))
        return self._sources.setdefault(escape_control(str(fact.source)), len(self._sources))

    def json(self, value: Any) -> Any:
        """A value as the page reads it. A number with a source is ``{t: text, o: value, s: place of its source}``; a
        text with some is a list of strings and ``[text, place]``."""
        if isinstance(value, TracedNumber):
            return {"t": str(value), "o": significant(value.value), "s": self.source(value)}
        if type(value) is str:
            return escape_control(value)
        if isinstance(value, (Finding, Enum)):
            return self._text(words_of(value))  # type: ignore[arg-type]
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, float):
            return significant(value)
        if isinstance(value, (tuple, list)):
            return list(map(self.json, value))
        if isinstance(value, Mapping):
            return {key: self.json(each) for key, each in value.items()}
        if isinstance(value, View):
            return self._view(value)
        if isinstance(value, Section):
            self.section = value.anchor
            blocks = list(map(self.json, value.blocks))
            return {"anchor": value.anchor, "title": value.title, "folded": value.folded, "blocks": blocks}
        return value

    def _text(self, text: str) -> Any:
        pieces: list[Any] = []
        at = 0
        for fact in numbers_of(text):
            # What is written in another way has its source all the same.
            place, start = self.source(fact), text.find(str(fact), at)
            if start >= 0:
                end = start + len(str(fact))
                pieces += [escape_control(text[at:start]), [escape_control(text[start:end]), place]]
                at = end
        pieces = [piece for piece in [*pieces, escape_control(text[at:])] if piece]
        return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces

    def _view(self, view: View) -> dict[str, Any]:
        shown = [place for place, column in enumerate(view.columns) if column.title or column.bar]
        columns = [(view.columns[i], [row[i] for row in view.rows]) for i in shown]
        heads = [
            {"t": each.title, "u": each.unit, "m": each.meaning, "n": is_number(each, cells) and not each.bar}
            for each, cells in columns
        ]
        rows = [[self._cell(row[i], view.columns[i]) for i in shown] for row in view.rows]
        texts = {key: self.json(getattr(view, key)) for key in ("warnings", "summary", "notes")}
        own = {"title": escape_control(view.title), "folded": view.folded, "code": escape_lines(view.code)}
        return {**own, "columns": heads, "rows": rows, **texts}

    def _cell(self, value: Any, column: Column) -> Any:
        """As ``json``; a plain number is ``{t, o: what it is sorted by}``, a bar ``{b: share, m: place of a mark}``,
        and a cell of a map ``{t, h: shade, tip}``."""
        if column.bar:
            share, mark = value if isinstance(value, tuple) else (value, None)
            return {"t": "", "b": self.json(min(max(float(share or 0.0), 0.0), 1.0)), "m": self.json(mark)}
        if isinstance(value, TracedNumber) and column.spec:
            text = f"{value.value:{column.spec}}"
            return {"t": text, "o": significant(value.value), "s": self.source(value, text)}
        if isinstance(value, Shaded):
            return {"t": escape_control(value), "h": self.json(value.share), "tip": escape_control(value.tip)}
        if isinstance(value, (TracedNumber, TracedText)):
            return self.json(value)
        text = word(value, column.spec)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"t": text, "o": significant(value)} if math.isfinite(value) else None
        return None if text == "–" else text


def significant(value: float) -> float | int | None:
    """A number with seven digits, which is what a page sorts and draws by."""
    if not math.isfinite(value):
        return None
    if -1e7 < value < 1e7 and value == (whole := int(value)):
        return whole
    return _whole(float(f"{value:.7g}"))


def shortened(values: Sequence[float]) -> list[float | int]:
    """Finite numbers with seven digits, whole ones without a point; all at once, for a page has thousands."""
    written = (" %.7g" * len(values) % tuple(values)).split()
    return list(map(_whole, map(float, written)))


def _whole(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
