"""Ratios of two measured times with their intervals, and how such numbers are said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from fiprof.model.results import Cell, Times

METHOD = (
    "A ratio's interval combines the confidence intervals of the two medians on a logarithmic scale: "
    "ln low = ln r - sqrt(ln(a / a_low)^2 + ln(b_high / b)^2), and likewise above (the «method of variance estimates "
    "recovery», Zou and Donner 2008). It has the confidence of the two (the lesser, where they differ), assumes them "
    "independent, and covers the spread inside this study: not another GPU, nor another day. A difference counts as "
    "seen where the interval does not hold 1x."
)

LEAST_CONFIDENCE = 0.5
"""Below it an interval says nothing, as that of a single round of one iteration: no difference is ever seen in it."""

NEAR_ONE = 0.1
"""Ratios so close to 1 are written with three decimals."""

Direction = Literal["more", "less", "same"]


@dataclass(frozen=True)
class Ratio:
    """One number over another."""

    value: float
    low: float
    high: float
    """The interval; equal to value where the numbers were counted once and have none."""
    confidence: float | None
    """Of the interval; None where there is none."""

    @property
    def sure(self) -> bool:
        """Whether the interval says something; a ratio of counts needs none."""
        return self.confidence is None or self.confidence >= LEAST_CONFIDENCE

    @property
    def direction(self) -> Direction:
        """Whether the interval lies above 1, below it, or holds it (or says nothing): then no difference is seen."""
        if not self.sure:
            return "same"
        return "more" if self.low > 1 else "less" if self.high < 1 else "same"

    def __str__(self) -> str:
        # Near 1 the side of it matters: 1.003 is not 1.00.
        word = (lambda value: f"{value:.3f}") if abs(self.value - 1) < NEAR_ONE else number
        if self.confidence is None or not self.sure:
            return f"{word(self.value)}x" + ("" if self.sure else " (too few rounds for an interval)")
        return f"{word(self.value)}x ({word(self.low)} to {word(self.high)})"


def ratio(one: Times, other: Times) -> Ratio | None:
    """One time over the other; None where one is not above zero."""
    bounds = (one.low_us, one.median_us, one.high_us, other.low_us, other.median_us, other.high_us)
    if min(bounds) <= 0:
        return None
    value = one.median_us / other.median_us
    down = math.hypot(math.log(one.median_us / one.low_us), math.log(other.high_us / other.median_us))
    up = math.hypot(math.log(one.high_us / one.median_us), math.log(other.median_us / other.low_us))
    return Ratio(value, value * math.exp(-down), value * math.exp(up), min(one.confidence, other.confidence))


def of_cells(one: Cell, other: Cell) -> Ratio | None:
    """The plain times of two cells; None where one has none."""
    return ratio(one.plain, other.plain) if one.plain and other.plain else None


# In words


def number(value: float) -> str:
    """Three figures, e.g. ``1.42``, ``14.2``, ``142``, ``1,420``."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    value = float(f"{value:.2e}")  # 0.9998 is 1.00
    decimals = min(max(2 - math.floor(math.log10(abs(value))), 0), 4)
    return f"{value:,.{decimals}f}"


def plus_minus(value: float, error: float) -> str:
    """``12.92 ± 0.01``: as many decimals as the error's first two figures need, at most three."""
    if not math.isfinite(error) or error <= 0:
        return f"{number(value)} ± –" if not math.isfinite(error) else number(value)
    decimals = min(max(1 - math.floor(math.log10(error)), 0), 3)
    return f"{value:,.{decimals}f} ± {error:,.{decimals}f}"


def duration(us: float) -> str:
    """``12.3 µs``, ``1.23 ms``, ``12.3 s``."""
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if us >= scale:
            return f"{number(us / scale)} {unit}"
    return f"{number(us)} µs"


def times(measured: Times) -> str:
    """``92.1 µs (91.8 to 92.6)``."""
    scale, unit = (1e6, "s") if measured.median_us >= 1e6 else (1e3, "ms") if measured.median_us >= 1e3 else (1, "µs")
    values = [number(us / scale) for us in (measured.median_us, measured.low_us, measured.high_us)]
    return f"{values[0]} {unit} ({values[1]} to {values[2]})"


def bytes_(count: float) -> str:
    """``1.08 GB``, decimal units."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{number(count / scale)} {unit}"
    return f"{count:.0f} bytes"


def spread(values: Sequence[float], spec: str = "") -> str:
    """``1.02 to 3.91, median 3.4``; one value alone where there is one.

    spec: of format(); without one, three figures.
    """
    word = (lambda value: format(value, spec)) if spec else number
    low, high = word(min(values)), word(max(values))
    return low if low == high else f"{low} to {high}, median {word(median(values))}"
