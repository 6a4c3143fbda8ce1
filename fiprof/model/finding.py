"""Findings, with their words and their numbers, and where these numbers come from.

A :class:`TracedNumber` is one cell of a raw file, or a documented formula over such cells; a report names that
(``reports/run_report/ink.py``), so that anybody can compute the number again (``tests/test_reports_report.py`` does).

Words are a ``str.format`` template that keeps its numbers. A traced number without a format is written in its own way,
with its unit; a switch is ``true`` or ``false``. ``{count:launch|launches}`` is ``1 launch`` or ``3 launches``, and of
several values ``launch 4`` or ``launches 4 and 8``. Several values are joined as ``a, b and c``, of many the first and
how many more there are. Nothing reads a sentence back.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self

from fiprof.text import Wording as Wording
from fiprof.text import figure, join_words

SUM = "sum(parts)"
RATIO = "sum(parts[:-1]) / parts[-1]"  # all but the last together over the last
NAMES = "abcdefgh"

Origin = Literal["ncu", "nsys", "plain", "run.json", "facts"]


class Provenance(NamedTuple):
    """Where a number comes from.

    The formula is arithmetic (``+ - * /``, parentheses) and the functions ``median``, ``spread``, ``mean``, ``sum``,
    ``min``, ``max`` and ``count`` over these names. spread is (p90 - p10) / median, percentiles between neighbours.

    - ncu: ncu's metrics of the launch, by ncu's names and in base units; ``sum(a*b)`` is over all that fit the pattern.
    - nsys: of the kernel's executions in the phase of the case (of all its kernels, where none is named):
      ``duration_ns``, ``start_ns`` and ``end_ns`` of each since the trace began; ``iteration_ns``, the sum over the
      kernels of each iteration; ``busy_ns``, the time from the first one's start to the last one's end in which a
      kernel, a copy or a memory set ran, and ``iteration_busy_ns``, that time of each iteration.
    - plain: ``gpu_us`` of the case in baseline.jsonl, each iteration between CUDA events; ``round_us``, the median of
      each round's; ``wall_us``, the host's time of one, back to back; ``relative_error``.
    - run.json: ``flops``, ``bytes_read``, ``bytes_written`` of the case; ``duration_s`` of the run.
    - facts: ``a``, ``b``, … are the values of ``parts``, and ``parts`` is the list of them.
    """

    origin: Origin
    formula: str
    launch: int | None = None  # ncu's launch ID
    case: str | None = None  # case id
    kernel: str | None = None  # its short name
    grid: str | None = None  # of the executions, where only those with this grid are meant
    phase: str = "measure"  # of nsys's executions
    parts: tuple[Provenance, ...] = ()

    def __str__(self) -> str:
        """``ncu, launch 3: gpu__time_duration.sum / 1000``."""
        if self.origin == "facts":
            if self.formula == SUM:
                return " + ".join(f"({part})" for part in self.parts)
            if self.formula == RATIO:
                return f"({' + '.join(f'({part})' for part in self.parts[:-1])}) / ({self.parts[-1]})"
            inner = "; ".join(f"{name}: {part}" for name, part in zip(NAMES, self.parts, strict=False))
            return f"{self.formula}, where {inner}"
        where: list[str] = [self.origin]
        if self.launch is not None:
            where.append(f"launch {self.launch}")
        elif self.case is not None:
            where.append(self.case)
        if self.origin == "nsys":
            where += [*([self.kernel] if self.kernel else []), *([f"grid {self.grid}"] if self.grid else [])]
            where.append(self.phase)
        return f"{', '.join(where)}: {self.formula}"


@dataclass(frozen=True)
class TracedNumber:
    """A number with its source and its format."""

    value: float
    source: Provenance
    spec: str = ".2f"  # a format for ``format()``
    unit: str = ""  # the text behind it, with a space where there is one

    def __str__(self) -> str:
        return f"{self.value:{self.spec}}{self.unit}"

    def __truediv__(self, other: TracedNumber) -> TracedNumber:
        """The ratio, written as ``1.31``. Raises ZeroDivisionError."""
        return TracedNumber(self.value / other.value, Provenance("facts", "a / b", parts=(self.source, other.source)))

    def as_(self, spec: str, unit: str = "") -> TracedNumber:
        """The same number in another format."""
        return TracedNumber(self.value, self.source, spec, unit)


class TracedText(str):
    """A text with the traced numbers that are in it."""

    facts: tuple[TracedNumber, ...] = ()


def join(separator: str, texts: Iterable[str | None]) -> TracedText:
    """The texts joined, with the traced numbers of each; those that are empty or None are left out."""
    given = [text for text in texts if text]
    joined = TracedText(separator.join(given))
    joined.facts = tuple(fact for text in given for fact in numbers_of(text))
    return joined


def numbers_of(part: object) -> tuple[TracedNumber, ...]:
    """The traced numbers in a part of a sentence."""
    if isinstance(part, TracedNumber):
        return (part,)
    return part.facts if isinstance(part, TracedText) else ()


@dataclass(frozen=True)
class Finding:
    """A finding: a doubt about a verdict, a check that failed, what limits an occupancy, …

    People read its words, programs get its id and values; no code reads the words.
    """

    kind: str  # its id in JSON, e.g. ``close``
    values: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""  # a template over the values, as ``this module`` says

    def fields(self) -> dict[str, Any]:
        """For JSON: ``{"id": …, …}`` with plain numbers and enum values."""
        return {"id": str(self.kind), **{name: plain(value) for name, value in self.values.items()}}


def finding(kind: str, words: str, /, **values: Any) -> Finding:
    """``finding("close", "borderline: {margin:.0f} points from {runner_up}", margin=3.1, runner_up=part)``."""
    return Finding(kind, values, words)


Value = TracedNumber | float | int | bool | str | StrEnum | Finding | None | tuple[Any, ...]
"""A number (with its unit in the name of its key), a name from the run, an enum, another finding, or several."""


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers without provenance, enums as their values, findings as their fields."""
    if isinstance(value, TracedNumber):
        return value.value
    if isinstance(value, Finding):
        return value.fields()
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, str) else value


SMALL = 0.01  # smaller numbers have two significant figures, whatever their format
MOST_VALUES = 8  # values that a sentence names; more are counted


class Label(str):
    """A name for programs with its words beside it."""

    words: str

    def __new__(cls, name: str, words: str) -> Self:
        phrase = super().__new__(cls, name)
        phrase.words = words
        return phrase


def say(template: str, /, *parts: Any, **values: Any) -> TracedText:
    """A template filled with these parts or values, as a text with the traced numbers in them."""
    facts: list[TracedNumber] = []
    pieces, parts_left = [], iter(parts)
    for before, name, spec in template_fields(template):
        pieces.append(before)
        if name is not None:
            value = (
                next(parts_left) if not name else values[name] if name in values else _AT.get_field(name, (), values)[0]
            )
            pieces.append(_value_words(value, spec or "", facts))
    text = TracedText("".join(pieces))
    text.facts = tuple(facts)
    return text


_AT = string.Formatter()  # finds ``limits[0]``


@functools.lru_cache(1 << 12)
def template_fields(template: str) -> tuple[tuple[str, str | None, str | None], ...]:
    """The fields of a template: the text before each, its name and its format."""
    return tuple(each[:3] for each in _AT.parse(template))


def words_of(what: Finding | StrEnum | str) -> str:
    """A finding or an enum in words; a text as it is."""
    if isinstance(what, Finding) and (words := what.words or getattr(what.kind, "words", "")):
        return say(words, **what.values)
    if isinstance(what, (Wording, Label)):
        return what.words
    assert not isinstance(what, Finding), f"{what!r} has no words"
    return what


def _value_words(value: Any, spec: str, facts: list[TracedNumber]) -> str:
    """A value as text. facts: the traced numbers in it are added to this."""
    if type(value) in (str, int, float) and "|" not in spec:
        # A step of 7.6 µs is 0.0076 ms, not 0.01.
        return figure(value, ".2g" if spec.endswith(("2f", "3f")) and 0 < abs(value) < SMALL else spec)
    if isinstance(value, (Finding, StrEnum, Label)):
        value = words_of(value)
    elif isinstance(value, (tuple, list)):
        head = ""
        if "|" in spec:
            head, spec = f"{spec.split('|')[len(value) != 1]} ", ""
        parts = [_value_words(item, spec, facts) for item in value]
        if len(parts) > MOST_VALUES:
            return f"{head}{', '.join(parts[:MOST_VALUES])} and {len(parts) - MOST_VALUES} more"
        return head + join_words(parts)
    if isinstance(value, bool):
        value = str(value).lower()
    facts += numbers_of(value)
    if "|" in spec:
        one, many = spec.split("|")
        count = value.value if isinstance(value, TracedNumber) else value
        return f"{count:{',.0f' if float(count).is_integer() else '.3g'}} {one if count == 1 else many}"
    if isinstance(value, TracedNumber):
        return f"{value.value:{spec}}" if spec else str(value)
    return figure(value, spec)
