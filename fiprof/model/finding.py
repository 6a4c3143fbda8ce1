"""What was found, in no words: which finding it is, and the numbers that go into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fiprof.model.provenance import TracedNumber


@dataclass(frozen=True)
class Finding:
    """A finding: a doubt about a verdict, a check that failed, what holds an occupancy down, …

    Its wording is the template of its kind among the reports' words, which names its values;
    programs get its fields.
    """

    kind: StrEnum
    """The class says what it is about, the member which of its kind."""
    values: Mapping[str, Value] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """For JSON: ``{"id": …, …}`` with plain numbers and enum values."""
        return {"id": self.kind.value, **{name: plain(value) for name, value in self.values.items()}}


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
    return value.value if isinstance(value, StrEnum) else value
