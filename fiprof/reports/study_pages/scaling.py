"""How times grow, in words and as tables."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.ratio import of_cases
from fiprof.analysis.scaling import Estimate, Fit
from fiprof.analysis.study import Study
from fiprof.model import knowledge
from fiprof.reports.columns import Cell, filled
from fiprof.reports.study_pages.names import axis_name, short
from fiprof.reports.study_pages.numbers import number
from fiprof.reports.view import Column, View

TWO_DECIMALS = 0.1
"""From here to 1 two decimals are enough."""


def estimate(found: Estimate, scale: float = 1.0) -> str:
    """``2.58 (2.44 to 2.71)``, ``0.90 (0.88 to 0.92)``."""
    value, low, high = (each * scale for each in (found.value, found.low, found.high))
    word = (lambda each: f"{each:.2f}") if TWO_DECIMALS <= abs(value) < 1 else number
    return f"{word(value)} ({word(low)} to {word(high)})"


def unit_of(found: Fit) -> tuple[str, float]:
    """What the slope is told for, e.g. ``1,000 KV length``, and how many units of axis ** power that is."""
    thousand = found.xs[-1] >= 1000
    amount = 1000.0 if thousand else 1.0
    power = found.line.power if found.line else 1
    name = knowledge.of_parameter(found.axis).unit or found.axis
    words = f"{amount:,.0f} {name}"
    return (words, amount) if power == 1 else (f"({words})^{power}", amount**power)


def view(study: Study, found: Sequence[Fit], *, title: str = "") -> View:
    """Growth along one axis as a table; a line and a power law where there are enough cases."""
    fitted = list(found)
    unit, scale = unit_of(max(fitted, key=lambda item: item.xs[-1]))
    columns: list[Cell] = [
        (Column("where", "cases"), lambda item: short(study, item.cases[0], without=(item.axis,)) or item.workload),
        (Column("range", axis_name(fitted[0].axis)), lambda item: f"{item.xs[0]:,.0f} to {item.xs[-1]:,.0f}"),
        (Column("grown", "time", "x", ",.2f"), lambda item: _grown(item)),
        (
            Column("slope", "slope", f"µs for {unit}"),
            lambda item: estimate(item.line.slope_us, scale) if item.line and item.line.holds else "–",
        ),
        (
            Column("intercept", "fixed", "µs"),
            lambda item: estimate(item.line.intercept_us) if item.line and item.line.holds else "–",
        ),
        (Column("residual_pct", "off", "%", "+.0f"), lambda item: 100 * item.line.worst.part if item.line else None),
        (
            Column("exponent", "exponent"),
            lambda item: estimate(item.law.exponent) if item.law and item.law.holds else "–",
        ),
        (Column("law_residual_pct", "off", "%", "+.0f"), lambda item: 100 * item.law.worst.part if item.law else None),
    ]
    return filled(columns, fitted, title=title)


def _grown(found: Fit) -> float | None:
    ratio = of_cases(found.cases[-1], found.cases[0])
    return ratio.value if ratio else None
