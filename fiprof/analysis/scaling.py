"""How times grow: a line and a power law along each axis of a study.

The line is an ordinary least-squares fit of the median plain time (scipy.stats.linregress), not weighted: every
microsecond counts alike, so its slope is what one more unit costs where the cases are large. Small cases may lie off
it, because they run from L2 or wait for the launch; how far, the largest residual says. The power law is the same fit
of the logarithms, in which every case counts alike in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fiprof.analysis.study import FEWEST_ON_AXIS, Study, is_number
from fiprof.model import knowledge
from fiprof.model.results import CaseResult

CONFIDENCE = 0.95

FEW_POINTS = 3
"""A line through so many points has one degree of freedom: its interval is wide, and nothing can show a bend."""

FAR_OFF = 0.25
"""A residual above this part of the measured time means that the line does not describe that case."""


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
    cases: tuple[CaseResult, ...]
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
    """Measured minus line over measured, of the case where that is farthest from zero."""
    largest_residual_at: float
    """That case's value of the axis."""
    exponent: float
    """Of the power law: time grows with axis ** exponent."""
    exponent_error: float
    """Half of its 95% interval."""

    @property
    def points(self) -> int:
        return len(self.cases)

    @property
    def xs(self) -> list[float]:
        """The axis' values."""
        return [float(case.params[self.axis]) for case in self.cases]

    def line_us(self, x: float) -> float:
        """What the line says."""
        return self.intercept_us + self.slope_us * x**self.power


def fits(study: Study, workload: str, axis: str = "") -> list[Fit]:
    """A fit for every axis of a workload, or for one of them, and every combination of its other parameters.

    Combinations with fewer than FEWEST_ON_AXIS measured cases have none.
    """
    found = []
    varied = study.varied(workload)
    for name in study.axes(workload):
        if axis and name != axis:
            continue
        groups: dict[tuple[tuple[str, Any], ...], list[CaseResult]] = {}
        for case in study.of(workload):
            if is_number(case.params.get(name)) and float(case.params[name]) > 0:
                key = tuple((other, case.params.get(other, "")) for other in varied if other != name)
                groups.setdefault(key, []).append(case)
        for key, cases in groups.items():
            if len(cases) >= FEWEST_ON_AXIS:
                ordered = sorted(cases, key=lambda case: float(case.params[name]))
                found.append(fit(workload, name, key, ordered))
    return found


def fit(workload: str, axis: str, fixed: Sequence[tuple[str, Any]], cases: Sequence[CaseResult]) -> Fit:
    """The line and the power law through the plain medians of cases with different values of an axis.

    cases: at least three, by growing axis, each with a plain time above zero.
    """
    from scipy.stats import linregress, t

    known = knowledge.of_workload(workload)
    power = known.growth.get(axis, 1) if known else 1
    xs = [float(case.params[axis]) for case in cases]
    ys = [case.plain.median_us for case in cases if case.plain is not None]
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
        cases=tuple(cases),
        slope_us=float(line.slope),
        slope_error_us=within * float(line.stderr),
        intercept_us=float(line.intercept),
        intercept_error_us=within * float(line.intercept_stderr),
        r_squared=float(line.rvalue) ** 2,
        largest_residual=residuals[farthest],
        largest_residual_at=xs[farthest],
        exponent=float(law.slope),
        exponent_error=within * float(law.stderr),
    )
