"""What a quantity is: a key with its unit and meaning, and for a launch the arithmetic that gives it."""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.model.expressions import Expression, Names, Row
from fiprof.model.provenance import Provenance, TracedNumber


@dataclass(frozen=True)
class Key:
    """A key of the JSON output."""

    key: str
    """With the unit in it where it has one, e.g. ``duration_us``."""
    unit: str
    """E.g. ``µs``, ``GB/s``, ``%``; empty for counts, shares (0 to 1) and what is no number."""
    meaning: str
    """One phrase."""


@dataclass(frozen=True)
class Quantity(Key):
    """A number of a launch."""

    expression: Expression
    spec: str = ".2f"
    """How people read it."""

    def of(self, row: Row) -> float | None:
        """The number in its unit; None where something that it needs was not collected."""
        return self.expression.value(row)

    def provenance(self, row: Row, names: Names) -> Provenance:
        """Where the number comes from: ncu's metrics of this launch."""
        return Provenance("ncu", self.expression.formula(row, names), launch=row.get("launch"))

    def traced(self, row: Row, names: Names, *, spec: str = "", unit: str | None = None) -> TracedNumber | None:
        """The number with its provenance. spec, unit: how to write it, where not as usual."""
        value = self.of(row)
        if value is None:
            return None
        shown = self.unit if unit is None else unit
        after = shown if shown in ("", "%") else f" {shown}"
        return TracedNumber(value, self.provenance(row, names), spec or self.spec, after)
