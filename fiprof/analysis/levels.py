"""Cases whose rounds took one of two times and none between: which, and between what times."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from fiprof.analysis.study import Study
from fiprof.model.results import CaseResult, Times

STEP = 0.05
"""The least gap between two rounds, as a part of the lower, that makes levels of what lies on its sides. fiprof's own
choice."""

INSIDE = 1 / 3
"""The most, as a part of that gap, that the rounds of one level may differ. fiprof's own choice."""

FEWEST_ROUNDS = 4

APART = 0.01
"""How far from both levels a median has to lie to be between them. fiprof's own choice."""


@dataclass(frozen=True)
class Levels:
    """Two levels of a case's rounds."""

    upper: tuple[bool, ...]
    """For each round, in the order of time, whether it lies on the upper one."""
    low_us: float
    """Mean of the rounds of the lower one."""
    high_us: float

    @property
    def step(self) -> float:
        """Upper over lower."""
        return self.high_us / self.low_us


def levels(times: Times | None) -> Levels | None:
    """The two levels of some rounds; None where they are not so, or too few."""
    rounds = times.round_medians_us if times else []
    if len(rounds) < FEWEST_ROUNDS or min(rounds) <= 0:
        return None
    ordered = sorted(rounds)
    gap, at = max((ordered[i] / ordered[i - 1] - 1, i) for i in range(1, len(ordered)))
    low, high = ordered[:at], ordered[at:]
    if gap < STEP or max(low[-1] / low[0], high[-1] / high[0]) - 1 > INSIDE * gap:
        return None
    return Levels(tuple(us >= high[0] for us in rounds), fmean(low), fmean(high))


def between(case: CaseResult) -> bool:
    """Whether the median of a case with two levels lies on neither."""
    found = levels(case.plain)
    if found is None or case.plain is None:
        return False
    return all(abs(case.plain.median_us / us - 1) > APART for us in (found.low_us, found.high_us))


def split(study: Study) -> list[tuple[CaseResult, Levels]]:
    """The measured cases with two levels."""
    return [(case, found) for case in study.measured if (found := levels(case.plain)) is not None]
