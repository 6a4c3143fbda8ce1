"""How times grow: a line and a power law along each axis of a study, where the times follow one.

Both are least-squares fits of relative residuals, so that a case of 10 µs counts as much as one of 2 ms: the line with
weights 1 / time, the power law on logarithms. The line's intercept is what does not grow; it is between zero and the
smallest measured time, and its slope is not negative (scipy.optimize.lsq_linear with these bounds).

An interval is that of the weighted fit without bounds, at CONFIDENCE (Student's t), less what is impossible. As long as
the true value is possible, this covers it as often. Where nothing is left of the intercept's, the line does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fiprof.analysis.study import FEWEST_ON_AXIS, Study, is_number
from fiprof.analysis.thresholds import FIT_POINTS, OFF_FIT
from fiprof.model import packs
from fiprof.model.results import CaseResult
from fiprof.text import number

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A fitted number with its interval; nothing possible is within it where low is above high."""

    value: float
    low: float
    high: float

    def words(self, scale: float = 1.0) -> str:
        """``2.58 (2.44 to 2.71)``, ``0.90 (0.88 to 0.92)``: from 0.1 to 1 two decimals are enough."""
        two = 0.1 <= abs(self.value * scale) < 1
        value, low, high = (f"{each * scale:.2f}" if two else number(each * scale) for each in self)
        return f"{value} ({low} to {high})"


class Residual(NamedTuple):
    """The case farthest from a fit: its value of the axis, and measured less fitted, of the measured time."""

    at: float
    part: float


@dataclass(frozen=True)
class Line:
    """time = intercept + slope * axis ** power."""

    power: int
    slope_us: Estimate
    intercept_us: Estimate
    worst: Residual

    @property
    def holds(self) -> bool:
        """Whether the times follow it."""
        return abs(self.worst.part) <= OFF_FIT / 100 and self.intercept_us.low <= self.intercept_us.high


@dataclass(frozen=True)
class Law:
    """Time grows with axis ** exponent."""

    exponent: Estimate
    worst: Residual

    @property
    def holds(self) -> bool:
        """Whether the times follow it."""
        return abs(self.worst.part) <= OFF_FIT / 100


@dataclass(frozen=True)
class Fit:
    """Time against one axis, everything else the same."""

    workload: str
    axis: str
    """Parameter that varies."""
    cases: tuple[CaseResult, ...]
    """By growing axis."""
    line: Line | None
    """Line and law are None of fewer than FIT_POINTS cases."""
    law: Law | None

    @property
    def unit(self) -> tuple[str, float]:
        """What the slope is told for, e.g. ``1,000 tokens``, and how many units of axis ** power that is."""
        amount = 1000.0 if self.xs[-1] >= 1000 else 1.0
        power = self.line.power if self.line else 1
        words = f"{amount:,.0f} {packs.of_parameter(self.axis).unit or self.axis}"
        return (words, amount) if power == 1 else (f"({words})^{power}", amount**power)

    @property
    def xs(self) -> list[float]:
        """The axis' values."""
        return [float(case.params[self.axis]) for case in self.cases]


def fits(study: Study, workload: str, axis: str = "") -> list[Fit]:
    """A fit for every axis of a workload, or for one of them, and every combination of its other parameters.

    Combinations with fewer than FEWEST_ON_AXIS measured cases have none.
    """
    found = []
    varied = study.varied(workload)
    for name in study.axes(workload):
        groups: dict[tuple[object, ...], list[CaseResult]] = {}
        for case in study.of(workload) if axis in ("", name) else ():
            if is_number(case.params.get(name)) and float(case.params[name]) > 0:
                groups.setdefault(tuple(case.params.get(each, "") for each in varied if each != name), []).append(case)
        for cases in groups.values():
            if len(cases) >= FEWEST_ON_AXIS:
                found.append(fit(workload, name, sorted(cases, key=lambda case: float(case.params[name]))))
    return found


def fit(workload: str, axis: str, cases: Sequence[CaseResult]) -> Fit:
    """The line and the power law through the plain medians of cases with different values of an axis.

    cases: by growing axis, each with a plain time above zero.
    """
    import numpy as np
    from scipy.optimize import lsq_linear

    if len(cases) < FIT_POINTS:
        return Fit(workload, axis, tuple(cases), None, None)
    known = packs.of_workload(workload)
    power = known.growth.get(axis, 1) if known else 1
    x = np.array([float(case.params[axis]) for case in cases])
    y = np.array([case.plain.median_us for case in cases if case.plain is not None])

    def worst(fitted: Numbers) -> Residual:
        parts = (y - fitted) / y
        farthest = int(np.abs(parts).argmax())
        return Residual(float(x[farthest]), float(parts[farthest]))

    grown = x**power
    unit, highest = float(grown.max()), float(y.min())
    rows = np.column_stack([1 / y, grown / unit / y])
    bounds = ([0.0, 0.0], [highest, np.inf])
    intercept, rise = lsq_linear(rows, np.ones_like(y), bounds=bounds, method="bvls").x
    free, half = _free(rows, np.ones_like(y))
    line = Line(
        power,
        Estimate(float(rise) / unit, max(free[1] - half[1], 0.0) / unit, (free[1] + half[1]) / unit),
        Estimate(float(intercept), max(free[0] - half[0], 0.0), min(free[0] + half[0], highest)),
        worst(intercept + rise * grown / unit),
    )
    (factor, exponent), half = _free(np.column_stack([np.ones_like(x), np.log(x)]), np.log(y))
    law = Law(Estimate(exponent, exponent - half[1], exponent + half[1]), worst(math.exp(factor) * x**exponent))
    return Fit(workload, axis, tuple(cases), line, law)


def _free(rows: Numbers, target: Numbers) -> tuple[list[float], list[float]]:
    """The least-squares solution without bounds, and half of the interval of each of its numbers."""
    import numpy as np
    from scipy.stats import t

    inverse = np.linalg.inv(rows.T @ rows)
    solution = inverse @ rows.T @ target
    left = len(target) - len(solution)
    variance = float(((target - rows @ solution) ** 2).sum()) / left
    half = float(t.ppf((1 + CONFIDENCE) / 2, left)) * np.sqrt(variance * np.diag(inverse))
    return solution.tolist(), half.tolist()
