"""How times grow, in words and as tables."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.ratio import of_cases
from fiprof.analysis.scaling import FAR_OFF, FEW_POINTS, Fit
from fiprof.analysis.study import Study
from fiprof.model import knowledge
from fiprof.reports.columns import Cell, filled
from fiprof.reports.study_pages.names import axis_name, parameter_words, short, short_key
from fiprof.reports.study_pages.numbers import number, plus_minus, ratio_words
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase


def where(found: Fit) -> str:
    """What is the same in all cases of a fit."""
    return parameter_words(dict(found.fixed), found.cases[0].params)


def sentence(found: Fit) -> str:
    """What was measured from end to end, what the line says, and where it does not hold."""
    unit, scale = unit_of(found)
    name = axis_name(found.axis)
    place = where(found)
    return phrase(
        "study_fit.sentence",
        where=f"{place}: " if place else "",
        axis=name,
        whole=_step(found, 0, -1),
        last=phrase("study_fit.last", step=_step(found, -2, -1)) if found.points > FEW_POINTS else "",
        slope=plus_minus(found.slope_us * scale, found.slope_error_us * scale),
        unit=unit,
        fixed=fixed_cost(found),
        far=phrase(
            f"study_fit.{'low' if found.largest_residual > 0 else 'high'}",
            axis=name,
            at=found.largest_residual_at,
            part=abs(found.largest_residual),
        )
        if abs(found.largest_residual) > FAR_OFF
        else "",
        few=phrase("study_fit.few", points=found.points) if found.points <= FEW_POINTS else "",
    )


def _step(found: Fit, one: int, other: int) -> str:
    """``512 to 8,192 (16x), 12.1x (12.0 to 12.2) in time``."""
    low, high = found.xs[one], found.xs[other]
    grown = of_cases(found.cases[other], found.cases[one])
    factor = number(high / low).removesuffix(".00").removesuffix(".0")
    return f"{low:,.0f} to {high:,.0f} ({factor}x), {ratio_words(grown) if grown else '–'} in time"


def unit_of(found: Fit) -> tuple[str, float]:
    """What the slope is told for, e.g. ``1,000 KV length``, and how many units of axis ** power that is."""
    thousand = found.xs[-1] >= 1000
    amount = 1000.0 if thousand else 1.0
    name = knowledge.of_parameter(found.axis).unit or found.axis
    words = f"{amount:,.0f} {name}"
    return (words, amount) if found.power == 1 else (f"({words})^{found.power}", amount**found.power)


def view(study: Study, found: Sequence[Fit], *, title: str = "") -> View:
    """Fits along one axis as a table."""
    if not found:
        return View((), (), title=title)
    unit, scale = unit_of(max(found, key=lambda item: item.xs[-1]))
    columns: list[Cell] = [
        (Column("where", "cases"), lambda item: short(study, item.cases[0], without=(item.axis,))),
        (Column("points", "points"), lambda item: item.points),
        (
            Column("slope", "slope", f"µs for {unit}"),
            lambda item: plus_minus(item.slope_us * scale, item.slope_error_us * scale),
        ),
        (Column("intercept", "intercept", "µs"), lambda item: plus_minus(item.intercept_us, item.intercept_error_us)),
        (Column("r_squared", "R²", "", ".4f"), lambda item: item.r_squared),
        (Column("residual_pct", "worst", "%", "+.0f"), lambda item: 100 * item.largest_residual),
        (Column("exponent", "exponent"), lambda item: plus_minus(item.exponent, item.exponent_error)),
    ]
    others = short_key(study, found[0].workload, without=(found[0].axis,))
    return filled(
        columns,
        found,
        title=title,
        notes=((f"cases: {others} (1k = 1,024). " if others else "") + phrase("study_fit.note"),),
    )


def fixed_cost(found: Fit) -> str:
    """What the intercept says, as a clause."""
    none = abs(found.intercept_us) <= found.intercept_error_us or found.intercept_us < 0
    cost = plus_minus(found.intercept_us, found.intercept_error_us)
    return phrase(f"study_fit.{'no_cost' if none else 'cost'}", cost=cost)
