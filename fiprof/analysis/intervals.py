"""Times measured in several rounds: their median, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from fiprof.model.results import Times

CONFIDENCE = 0.95
"""Least of an interval, where there are enough rounds for it: six."""


def times(values_us: Sequence[float], rounds: int = 1) -> Times | None:
    """What was measured in ``rounds`` rounds of equal length, in the order of time; None for no values.

    Iterations of a round share its clocks and the memory they got, so they are no independent observations; the
    rounds' medians are. Their median is the estimate, and its interval lies between two of them (:func:`interval`). A
    single round has its iterations for observations: such an interval knows nothing of what differs between rounds.
    """
    if not values_us:
        return None
    length, rest = divmod(len(values_us), rounds)
    if rest or not length:
        rounds, length = 1, len(values_us)
    medians = [median(values_us[start : start + length]) for start in range(0, len(values_us), length)]
    observed = medians if rounds > 1 else values_us
    low, high, confidence = interval(observed)
    return Times(
        median_us=median(observed),
        low_us=low,
        high_us=high,
        confidence=confidence,
        count=len(values_us),
        rounds=rounds,
        round_medians_us=medians,
    )


def interval(observed: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """A confidence interval of the median, from the order of the observations alone: low, high, its confidence.

    Of n independent observations, the median lies between the k-th smallest and the k-th largest with probability
    1 - 2 P(B < k), B being binomial with n and 1/2, whatever the distribution (Conover, Practical Nonparametric
    Statistics, 3.2). k is the largest that reaches ``confidence``; where none does, it is 1, and the confidence of the
    whole range is returned: 0.94 for five observations, 0.75 for three, 0 for one.
    """
    ordered = sorted(observed)
    n, k = len(ordered), 1
    # P(B < k) times 2 ** n, and its last term; whole numbers, for n may be 100,000.
    below = term = 1
    while 2 * (k + 1) <= n:
        term = term * (n - k + 1) // k
        if _covered(n, below + term) < confidence:
            break
        below, k = below + term, k + 1
    return ordered[k - 1], ordered[-k], _covered(n, below)


def _covered(observations: int, below: int) -> float:
    """How probably the median lies between the k-th smallest and largest. below: of 2 ** observations, B < k."""
    share: float = below / 2 ** (observations - 1)
    return max(0.0, 1 - share)
