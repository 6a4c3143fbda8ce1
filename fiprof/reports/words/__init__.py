"""The wording of every finding, once: templates in the TOML files of this folder, a table an enum.

A finding of ``Doubt.CLOSE`` is worded by ``close`` in the table ``[doubt]``; a bare enum in a sentence likewise. A
template is a ``str.format`` string over the finding's values::

    [doubt]
    close = "borderline: {margin:.0f} points from {runner_up}"

A traced number without a format is written in its own way, with its unit. ``{count:launch|launches}`` is ``1 launch``
or ``3 launches``; several values are joined as ``a, b and c``. Nothing reads a sentence back.
"""

from __future__ import annotations

import functools
import re
import string
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any

from fiprof.model.finding import Finding
from fiprof.model.provenance import TracedNumber, TracedText, numbers_of
from fiprof.text import join_words

FOLDER = Path(__file__).parent


@functools.cache
def templates() -> dict[str, str]:
    """``table.key`` -> template, of all files."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for table, entries in tomllib.loads(path.read_text(encoding="utf-8")).items():
            for key, template in entries.items():
                assert f"{table}.{key}" not in found, f"{path.name}: {table}.{key} is worded twice"
                found[f"{table}.{key}"] = template
    return found


def table_of(kind: type[StrEnum]) -> str:
    """The table that words an enum: ``RunWarning`` -> ``run_warning``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def phrase(key: str, /, **values: Any) -> TracedText:
    """The template ``table.key`` with these values in it; the traced numbers in them are kept."""
    return _Formatter().traced(templates()[key], values)


def worded(what: Finding | StrEnum | str) -> str:
    """A finding or an enum in words; a text as it is."""
    if isinstance(what, Finding):
        return phrase(f"{table_of(type(what.kind))}.{what.kind.name.lower()}", **what.values)
    if isinstance(what, StrEnum):
        return phrase(f"{table_of(type(what))}.{what.name.lower()}")
    return what


class _Formatter(string.Formatter):
    """Formats a template and collects the traced numbers that were put into it."""

    def __init__(self) -> None:
        self.numbers: list[TracedNumber] = []

    def traced(self, template: str, values: dict[str, Any]) -> TracedText:
        text = TracedText(self.vformat(template, (), values))
        text.facts = tuple(self.numbers)
        return text

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Finding | StrEnum):
            value = worded(value)
        elif isinstance(value, tuple | list):
            parts = [self.format_field(item, format_spec) for item in value]
            return join_words(parts)
        self.numbers += numbers_of(value)
        if "|" in format_spec:
            one, many = format_spec.split("|")
            count = value.value if isinstance(value, TracedNumber) else value
            return f"{count:,.0f} {one if count == 1 else many}"
        if isinstance(value, TracedNumber):
            return f"{value.value:{format_spec}}" if format_spec else str(value)
        return str(super().format_field(value, format_spec))
