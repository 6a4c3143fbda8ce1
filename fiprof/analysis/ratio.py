"""Times measured in several rounds: their median and how sure it is, and ratios of two of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean, median, stdev

from fiprof.model.results import CaseTimes

CONFIDENCE = 0.95  # least of an interval, where there are enough rounds for it: six
LEAST_CONFIDENCE = 0.5
"""Below it an interval says nothing, as that of a single round of one iteration: no difference is ever seen in it."""


def times(values_us: Sequence[float], rounds: int = 1) -> CaseTimes | None:
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
    return CaseTimes(median(observed), *interval(observed), len(values_us), rounds, medians)


def interval(observed: Sequence[float]) -> tuple[float, float, float]:
    """A confidence interval of the median, from the order of the observations alone: low, high, its confidence.

    Of n independent observations, the median lies between the k-th smallest and the k-th largest with probability
    1 - 2 P(B < k), B being binomial with n and 1/2, whatever the distribution (Conover, Practical Nonparametric
    Statistics, 3.2). k is the largest that reaches CONFIDENCE; where none does, it is 1, and the confidence of the
    whole range is returned: 0.94 for five observations, 0.75 for three, 0 for one.
    """
    ordered = sorted(observed)
    n, k = len(ordered), 1
    # P(B < k) times 2 ** n, and its last term; whole numbers, for n may be 100,000.
    below, term, half = 1, 1, 2 ** (n - 1)
    while 2 * (k + 1) <= n:
        term = term * (n - k + 1) // k
        if 1 - (below + term) / half < CONFIDENCE:
            break
        below, k = below + term, k + 1
    return ordered[k - 1], ordered[-k], max(0.0, 1 - below / half)


class Direction(StrEnum):
    """On which side of 1 a ratio's interval lies; SAME where it holds 1, or says nothing: no difference is seen."""

    MORE = "more"
    LESS = "less"
    SAME = "same"


@dataclass(frozen=True)
class Ratio:
    """One number over another, with its interval; of numbers counted once that is the value, confidence None."""

    value: float
    low: float
    high: float
    confidence: float | None

    @property
    def certain(self) -> bool:
        """Whether the interval says something; a ratio of counts needs none."""
        return self.confidence is None or self.confidence >= LEAST_CONFIDENCE

    @property
    def direction(self) -> Direction:
        if not self.certain or self.low <= 1 <= self.high:
            return Direction.SAME
        return Direction.MORE if self.low > 1 else Direction.LESS

    def widened(self, apart: float) -> "Ratio":
        """With an interval for two boards whose times differ by up to this part."""
        return replace(self, low=self.low / (1 + apart), high=self.high * (1 + apart)) if apart else self

    @property
    def factor(self) -> float:
        """The ratio or its inverse, whichever is above 1."""
        return max(self.value, 1 / self.value)


def ratio(one: CaseTimes, other: CaseTimes) -> Ratio | None:
    """One time over the other; None where one is not above zero.

    The interval combines those of the two medians on a logarithmic scale (the "method of variance estimates recovery",
    Zou and Donner 2008): ln low = ln r - sqrt(ln(a / a_low)^2 + ln(b_high / b)^2), and likewise above.
    """
    if min(one.low_us, one.median_us, one.high_us, other.low_us, other.median_us, other.high_us) <= 0:
        return None
    value = one.median_us / other.median_us
    down = math.hypot(math.log(one.median_us / one.low_us), math.log(other.high_us / other.median_us))
    up = math.hypot(math.log(one.high_us / one.median_us), math.log(other.median_us / other.low_us))
    return Ratio(value, value * math.exp(-down), value * math.exp(up), min(one.confidence, other.confidence))


def by_rounds(one: CaseTimes, other: CaseTimes, comparisons: int = 1) -> Ratio | None:
    """One time over the other, round by round; None where there is no round or a time is not above zero.

    The value is the geometric mean of the rounds' ratios. The interval is Student's t over their logarithms, at
    1 - (1 - CONFIDENCE) / comparisons: Bonferroni's level (Dunn 1961, Multiple Comparisons Among Means), with which
    all of so many intervals hold at once with CONFIDENCE, however they depend on each other. It takes the logarithms
    of the rounds' times as normal; the order alone of six rounds gives no more than 0.97. It covers what differs
    between rounds of one process on one board. A single round has no interval.
    """
    from scipy.special import stdtrit  # scipy.stats.t has the same, and takes most of a second to import

    pairs = list(zip(one.round_medians_us, other.round_medians_us, strict=False))
    if not pairs or min(map(min, pairs)) <= 0:
        return None
    logs = [math.log(a / b) for a, b in pairs]
    centre = fmean(logs)
    if len(logs) < 2:
        return Ratio(math.exp(centre), math.exp(centre), math.exp(centre), 0.0)
    confidence = 1 - (1 - CONFIDENCE) / comparisons
    half = float(stdtrit(len(logs) - 1, (1 + confidence) / 2)) * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half), confidence)
