"""How times grow: a line and a power law along each axis of a study.

The line is an ordinary least-squares fit of the median plain time (scipy.stats.linregress), not weighted: every
microsecond counts alike, so its slope is what one more unit costs where the cells are large. Small cells may lie off
it, because they run from L2 or wait for the launch; how far, the largest residual says. The power law is the same fit
of the logarithms, in which every cell counts alike in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fiprof.model.results import Cell
from fiprof.reports.study_pages.data import AXIS_WORDS, FEWEST_ON_AXIS, Study, is_number, parameter_words
from fiprof.reports.study_pages.ratio import number, of_cells, plus_minus
from fiprof.reports.view import Column, View, view_of

CONFIDENCE = 0.95

FEW_POINTS = 3
"""A line through so many points has one degree of freedom: its interval is wide, and nothing can show a bend."""

FAR_OFF = 0.25
"""A residual above this part of the measured time means that the line does not describe that cell."""

POWERS: dict[tuple[str, str], int] = {("prefill", "seq_len"): 2}
"""Workload and axis -> the power of the axis that work grows with: attention over itself grows with the square."""


@dataclass(frozen=True)
class Fit:
    """Time against one axis, everything else the same."""

    workload: str
    axis: str
    """Parameter that varies."""
    power: int
    """The line is in axis ** power."""
    fixed: tuple[tuple[str, Any], ...]
    """The other parameters that vary in the study, with the values that they have here."""
    cells: tuple[Cell, ...]
    """By growing axis."""
    slope_us: float
    """For one more of axis ** power."""
    slope_error_us: float
    """Half of its 95% interval."""
    intercept_us: float
    """What the line says at zero: fixed costs, if its interval excludes zero."""
    intercept_error_us: float
    """Half of its 95% interval."""
    r_squared: float
    largest_residual: float
    """Measured minus line over measured, of the cell where that is farthest from zero."""
    largest_residual_at: float
    """That cell's value of the axis."""
    exponent: float
    """Of the power law: time grows with axis ** exponent."""
    exponent_error: float
    """Half of its 95% interval."""
    power_r_squared: float
    """Of the power law, in logarithms."""

    @property
    def points(self) -> int:
        return len(self.cells)

    @property
    def xs(self) -> list[float]:
        """The axis' values."""
        return [float(cell.params[self.axis]) for cell in self.cells]

    @property
    def times_us(self) -> list[float]:
        return [cell.plain.median_us for cell in self.cells if cell.plain is not None]

    def line_us(self, x: float) -> float:
        """What the line says."""
        return self.intercept_us + self.slope_us * x**self.power

    @property
    def where(self) -> str:
        """What is the same in all cells, in words."""
        return parameter_words(dict(self.fixed), self.cells[0].params)


def fits(study: Study, workload: str, axis: str = "") -> list[Fit]:
    """A fit for every axis of a workload, or for one of them, and every combination of its other parameters.

    Combinations with fewer than FEWEST_ON_AXIS measured cells have none.
    """
    found = []
    varied = study.varied(workload)
    for name in study.axes(workload):
        if axis and name != axis:
            continue
        groups: dict[tuple[tuple[str, Any], ...], list[Cell]] = {}
        for cell in study.of(workload):
            if is_number(cell.params.get(name)) and float(cell.params[name]) > 0:
                key = tuple((other, cell.params.get(other, "")) for other in varied if other != name)
                groups.setdefault(key, []).append(cell)
        for key, cells in groups.items():
            if len(cells) >= FEWEST_ON_AXIS:
                ordered = sorted(cells, key=lambda cell: float(cell.params[name]))
                found.append(fit(workload, name, key, ordered))
    return found


def fit(workload: str, axis: str, fixed: Sequence[tuple[str, Any]], cells: Sequence[Cell]) -> Fit:
    """The line and the power law through the plain medians of cells with different values of an axis.

    cells: at least three, by growing axis, each with a plain time above zero.
    """
    from scipy.stats import linregress, t

    power = POWERS.get((workload, axis), 1)
    xs = [float(cell.params[axis]) for cell in cells]
    ys = [cell.plain.median_us for cell in cells if cell.plain is not None]
    within = float(t.ppf((1 + CONFIDENCE) / 2, len(xs) - 2))
    line = linregress([x**power for x in xs], ys)
    law = linregress([math.log(x) for x in xs], [math.log(y) for y in ys])
    residuals = [(y - (line.intercept + line.slope * x**power)) / y for x, y in zip(xs, ys, strict=True)]
    farthest = max(range(len(xs)), key=lambda i: abs(residuals[i]))
    return Fit(
        workload=workload,
        axis=axis,
        power=power,
        fixed=tuple(fixed),
        cells=tuple(cells),
        slope_us=float(line.slope),
        slope_error_us=within * float(line.stderr),
        intercept_us=float(line.intercept),
        intercept_error_us=within * float(line.intercept_stderr),
        r_squared=float(line.rvalue) ** 2,
        largest_residual=residuals[farthest],
        largest_residual_at=xs[farthest],
        exponent=float(law.slope),
        exponent_error=within * float(law.stderr),
        power_r_squared=float(law.rvalue) ** 2,
    )


# In words and as tables


def sentence(found: Fit) -> str:
    """What was measured from end to end, what the line says, and where it does not hold."""
    unit, scale = unit_of(found)
    name = AXIS_WORDS.get(found.axis, found.axis)
    words = f"{found.where}: " if found.where else ""
    words += f"{name} {_step(found, 0, -1)}"
    if found.points > FEW_POINTS:
        words += f"; its last step, {_step(found, -2, -1)}"
    words += (
        f". Line: {plus_minus(found.slope_us * scale, found.slope_error_us * scale)} µs for {unit} more, "
        f"{fixed_cost(found)}"
    )
    if abs(found.largest_residual) > FAR_OFF:
        words += (
            f"; it does not hold at {name} {found.largest_residual_at:,.0f}, where it is "
            f"{abs(found.largest_residual):.0%} of the time too {'low' if found.largest_residual > 0 else 'high'}"
        )
    if found.points <= FEW_POINTS:
        words += f"; {found.points} points only, so that no bend could show"
    return words + "."


def _step(found: Fit, one: int, other: int) -> str:
    """``512 to 8,192 (16x), 12.1x (12.0 to 12.2) in time``."""
    low, high = found.xs[one], found.xs[other]
    grown = of_cells(found.cells[other], found.cells[one])
    factor = number(high / low).removesuffix(".00").removesuffix(".0")
    return f"{low:,.0f} to {high:,.0f} ({factor}x), {grown or '–'} in time"


def unit_of(found: Fit) -> tuple[str, float]:
    """What the slope is told for, e.g. ``1,000 KV length``, and how many units of axis ** power that is."""
    thousand = found.xs[-1] >= 1000
    amount = 1000.0 if thousand else 1.0
    name = {"batch": "request", "kv_len": "KV tokens", "seq_len": "tokens"}.get(found.axis, found.axis)
    words = f"{amount:,.0f} {name}"
    return (words, amount) if found.power == 1 else (f"({words})^{found.power}", amount**found.power)


@dataclass(frozen=True)
class FitRow:
    """A fit as a table shows it."""

    where: str
    points: int
    slope: str
    intercept: str
    r_squared: float
    residual_pct: float
    exponent: str


NOTE = (
    "Line: time = intercept + slope x, ordinary least squares over the plain medians, not weighted, so that the slope "
    "is that of the large cells. worst: the largest distance from the line, of the measured time (positive: measured "
    "above it). exponent: of time against the axis, from the same fit of the logarithms. ± is half of a 95% interval; "
    "an intercept whose ± exceeds it says nothing about fixed costs."
)


def view(study: Study, found: Sequence[Fit], *, title: str = "") -> View:
    """Fits along one axis as a table."""
    if not found:
        return View((), (), title=title)
    unit, scale = unit_of(max(found, key=lambda item: item.xs[-1]))
    rows = [
        FitRow(
            where=study.short(item.cells[0], without=(item.axis,)),
            points=item.points,
            slope=plus_minus(item.slope_us * scale, item.slope_error_us * scale),
            intercept=plus_minus(item.intercept_us, item.intercept_error_us),
            r_squared=item.r_squared,
            residual_pct=100 * item.largest_residual,
            exponent=plus_minus(item.exponent, item.exponent_error),
        )
        for item in found
    ]
    columns = (
        Column("where", "cells"),
        Column("points", "points"),
        Column("slope", "slope", unit=f"µs for {unit}"),
        Column("intercept", "intercept", unit="µs"),
        Column("r_squared", "R²", spec=".4f"),
        Column("residual_pct", "worst", unit="%", spec="+.0f"),
        Column("exponent", "exponent"),
    )
    others = study.short_key(found[0].workload, without=(found[0].axis,))
    return view_of(columns, rows, title=title, notes=((f"cells: {others} (1k = 1,024). " if others else "") + NOTE,))


def fixed_cost(found: Fit) -> str:
    """What the intercept says, as a clause."""
    if abs(found.intercept_us) <= found.intercept_error_us or found.intercept_us < 0:
        return f"and no fixed cost seen ({plus_minus(found.intercept_us, found.intercept_error_us)} µs)"
    return f"and {plus_minus(found.intercept_us, found.intercept_error_us)} µs that do not grow"
