"""What was found: which finding it is, the numbers that go into it, and its words beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fiprof.model.provenance import TracedNumber


@dataclass(frozen=True)
class Finding:
    """A finding: a doubt about a verdict, a check that failed, what holds an occupancy down, …

    People read its words, programs get its id and values; no code reads the words.
    """

    kind: str
    """Its id in JSON, e.g. ``close``."""
    values: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""
    """A template over the values, as ``wording.py`` says."""

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
