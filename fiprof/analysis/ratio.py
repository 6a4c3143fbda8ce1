"""Ratios of two measured times with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from fiprof.model.results import CaseResult, Times

LEAST_CONFIDENCE = 0.5
"""Below it an interval says nothing, as that of a single round of one iteration: no difference is ever seen in it."""


class Direction(StrEnum):
    """On which side of 1 a ratio's interval lies."""

    MORE = "more"
    LESS = "less"
    SAME = "same"
    """It holds 1, or says nothing: no difference is seen."""


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
        if not self.sure or self.low <= 1 <= self.high:
            return Direction.SAME
        return Direction.MORE if self.low > 1 else Direction.LESS

    @property
    def factor(self) -> float:
        """The ratio or its inverse, whichever is above 1."""
        return max(self.value, 1 / self.value)


def ratio(one: Times, other: Times) -> Ratio | None:
    """One time over the other; None where one is not above zero.

    The interval combines those of the two medians on a logarithmic scale (the «method of variance estimates recovery»,
    Zou and Donner 2008): ln low = ln r - sqrt(ln(a / a_low)^2 + ln(b_high / b)^2), and likewise above.
    """
    bounds = (one.low_us, one.median_us, one.high_us, other.low_us, other.median_us, other.high_us)
    if min(bounds) <= 0:
        return None
    value = one.median_us / other.median_us
    down = math.hypot(math.log(one.median_us / one.low_us), math.log(other.high_us / other.median_us))
    up = math.hypot(math.log(one.high_us / one.median_us), math.log(other.median_us / other.low_us))
    return Ratio(value, value * math.exp(-down), value * math.exp(up), min(one.confidence, other.confidence))


def of_cases(one: CaseResult, other: CaseResult) -> Ratio | None:
    """The plain times of two cases; None where one has none."""
    return ratio(one.plain, other.plain) if one.plain and other.plain else None
