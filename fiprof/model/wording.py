"""How findings are worded: templates that keep the numbers in them.

A template is a ``str.format`` string. A traced number without a format is written in its own way, with its unit; a
switch is ``true`` or ``false``. ``{count:launch|launches}`` is ``1 launch`` or ``3 launches``, and of several values
``launch 4`` or ``launches 4 and 8``. Several values are joined as ``a, b and c``, of many the first and how many more
there are. Nothing reads a sentence back.
"""

from __future__ import annotations

import string
from enum import StrEnum
from typing import Any, Self

from fiprof.model.finding import Finding
from fiprof.model.provenance import TracedNumber, TracedText, numbers_of
from fiprof.text import Worded as Worded
from fiprof.text import join_words

MOST_VALUES = 8
"""Values that a sentence names before it counts the rest."""


class Phrase(str):
    """A name for programs with its words beside it."""

    words: str

    def __new__(cls, name: str, words: str) -> Self:
        phrase = super().__new__(cls, name)
        phrase.words = words
        return phrase


def say(template: str, /, *parts: Any, **values: Any) -> TracedText:
    """The template with these parts or values in it; the traced numbers in them are kept."""
    formatter = _Formatter()
    text = TracedText(formatter.vformat(template, parts, values))
    text.facts = tuple(formatter.numbers)
    return text


def worded(what: Finding | StrEnum | str) -> str:
    """A finding or an enum in words; a text as it is."""
    if isinstance(what, Finding) and (words := what.words or getattr(what.kind, "words", "")):
        return say(words, **what.values)
    if isinstance(what, Worded | Phrase):
        return what.words
    assert not isinstance(what, Finding), f"{what!r} has no words"
    return what


class _Formatter(string.Formatter):
    """Formats a template and collects the traced numbers that were put into it."""

    def __init__(self) -> None:
        self.numbers: list[TracedNumber] = []

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Finding | StrEnum | Phrase):
            value = worded(value)
        elif isinstance(value, tuple | list):
            head = ""
            if "|" in format_spec:
                head, format_spec = f"{format_spec.split('|')[len(value) != 1]} ", ""
            parts = [self.format_field(item, format_spec) for item in value]
            if len(parts) > MOST_VALUES:
                return f"{head}{', '.join(parts[:MOST_VALUES])} and {len(parts) - MOST_VALUES} more"
            return head + join_words(parts)
        if isinstance(value, bool):
            value = str(value).lower()
        self.numbers += numbers_of(value)
        if "|" in format_spec:
            one, many = format_spec.split("|")
            count = value.value if isinstance(value, TracedNumber) else value
            return f"{count:{',.0f' if float(count).is_integer() else '.3g'}} {one if count == 1 else many}"
        if isinstance(value, TracedNumber):
            return f"{value.value:{format_spec}}" if format_spec else str(value)
        return str(super().format_field(value, format_spec))
