"""How times grow, in words and as tables."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.ratio import of_cases
from fiprof.analysis.scaling import Estimate, Fit
from fiprof.analysis.study import Study
from fiprof.analysis.thresholds import FIT_POINTS, OFF_FIT
from fiprof.model import knowledge
from fiprof.reports.columns import Cell, filled
from fiprof.reports.study_pages.names import axis_name, parameter_words, short, short_key
from fiprof.reports.study_pages.numbers import number, ratio_words
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase

TWO_DECIMALS = 0.1
"""From here to 1 two decimals are enough."""


def where(found: Fit) -> str:
    """What is the same in all cases of a fit."""
    return parameter_words(dict(found.fixed), found.cases[0].params)


def sentence(found: Fit) -> str:
    """What was measured from end to end, and the line or else the power law that the times follow, if they do."""
    place = where(found)
    return phrase(
        "study_fit.sentence",
        where=f"{place}: " if place else "",
        axis=axis_name(found.axis),
        whole=_step(found, 0, -1),
        last=phrase("study_fit.last", step=_step(found, -2, -1)) if found.line else "",
        follows=_follows(found),
    )


def _follows(found: Fit) -> str:
    line, law = found.line, found.law
    if line is None or law is None:
        return ""
    if line.holds:
        unit, scale = unit_of(found)
        cost = line.intercept_us
        seen = phrase(f"study_fit.{'cost' if cost.low > 0 else 'no_cost'}", cost=estimate(cost), most=number(cost.high))
        return phrase("study_fit.line", slope=estimate(line.slope_us, scale), unit=unit, fixed=seen)
    if law.holds:
        return phrase("study_fit.law", axis=axis_name(found.axis), exponent=estimate(law.exponent))
    return phrase("study_fit.neither", axis=axis_name(found.axis), at=line.worst.at, part=abs(line.worst.part))


def _step(found: Fit, one: int, other: int) -> str:
    """``512 to 8,192 (16x), 12.1x (12.0 to 12.2) in time``."""
    low, high = found.xs[one], found.xs[other]
    grown = of_cases(found.cases[other], found.cases[one])
    factor = f"{high / low:,.0f}" if high % low == 0 else number(high / low)
    return f"{low:,.0f} to {high:,.0f} ({factor}x), {ratio_words(grown) if grown else '–'} in time"


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
    """Fits along one axis as a table: those of enough cases."""
    fitted = [item for item in found if item.line is not None]
    if not fitted:
        return View((), (), title=title)
    unit, scale = unit_of(max(fitted, key=lambda item: item.xs[-1]))
    columns: list[Cell] = [
        (Column("where", "cases"), lambda item: short(study, item.cases[0], without=(item.axis,))),
        (Column("points", "points"), lambda item: item.points),
        (
            Column("slope", "slope", f"µs for {unit}"),
            lambda item: estimate(item.line.slope_us, scale) if item.line.holds else "–",
        ),
        (
            Column("intercept", "intercept", "µs"),
            lambda item: estimate(item.line.intercept_us) if item.line.holds else "–",
        ),
        (Column("residual_pct", "worst", "%", "+.0f"), lambda item: 100 * item.line.worst.part),
        (Column("exponent", "exponent"), lambda item: estimate(item.law.exponent) if item.law.holds else "–"),
        (Column("law_residual_pct", "worst", "%", "+.0f"), lambda item: 100 * item.law.worst.part),
    ]
    others = short_key(study, fitted[0].workload, without=(fitted[0].axis,))
    note = phrase("study_fit.note", off=OFF_FIT.value)
    return filled(columns, fitted, title=title, notes=((f"cases: {others} (1k = 1,024). " if others else "") + note,))


def too_few(axis: str) -> str:
    """Why there is no table of fits along an axis."""
    return phrase("study_fit.few", axis=axis_name(axis), least=FIT_POINTS.value)
