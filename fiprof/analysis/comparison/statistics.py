"""Whether two sides differ, and whether their spreads do: each by two tests that both have to find it.

The unit is the process: what its rounds share (memory it got, clocks) makes them no independent observations.
1. Exact permutation of the processes' labels. One relabelling holds for all cases; each is compared with the largest
   statistic of all (max-t; Westfall and Young 1993, Resampling-Based Multiple Testing, 2.3): right for any noise, where
   both sides have the same.
2. Welch's t of each case by its own distribution, at Bonferroni's level: right where the sides' spreads differ. The
   studentized permutation test is that for many processes only (Janssen 1997, doi:10.1016/S0167-7152(97)00043-6).
So the whole comparison has at most FALSE_ALARMS. benchmarks/compare_simulation.py measures that and the power.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fiprof.analysis.thresholds import FALSE_ALARMS, LEAST_CHANGE, PROCESS_SPREAD, SAME_WITHIN
from fiprof.model.arrays import Floats
from fiprof.model.finding import Wording

LEAST_PROCESSES = 5  # a side: four have 70 relabellings, and no difference reaches 2 in 100 of them
MOST_ENUMERATED = 20_000  # relabellings that are all tried: of up to eight processes a side; of more, so many are drawn
SEED = 0  # of the drawn relabellings
FREEDOM_LESS = 2
"""By which Satterthwaite's degrees of freedom, of spreads seen in few processes, are too many. With so many fewer false
alarms stay within 1.004 of their level at every ratio of spreads, for 5 to 20 processes and up to 40 cases (integrated
over the ratios that may be seen, of normal noise); without, they reach twice as many."""
ANGLES = 4001  # of the table of Student's t
TIE = 1e-9  # relative difference below which two statistics are equal, and the difference is not called significant


class Outcome(Wording):
    """What is said of side B against side A."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    CANNOT_TELL = "cannot_tell", "cannot tell"


@dataclass(frozen=True)
class Difference:
    """Side B against side A in one case, of the geometric means over the processes."""

    difference_pct: float
    low_pct: float
    high_pct: float
    """Those of all cases hold at once in 98 of 100 comparisons; it holds 0 exactly where p is above FALSE_ALARMS."""
    p: float
    """The larger of two: the share of the relabellings that give some case at least this one's statistic, and that of
    Welch's t times the number of cases."""
    outcome: Outcome
    tells_pct: float  # least difference that this spread and so many processes tell from none: half of the interval
    processes_needed: int | None
    """A side, to decide a case that CANNOT_TELL, if difference and spread stay what they are; None elsewhere."""
    spread_ratio: float = 1.0  # spread between the processes of side B over that of A, PROCESS_SPREAD in both
    spread_p: float = 1.0  # the same as p, of the spreads

    @property
    def spread_grew(self) -> bool:
        """Whether the processes of side B differ more, by more than chance."""
        return self.spread_ratio > 1 and self.spread_p <= FALSE_ALARMS / 100


def differences(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> tuple[Difference, ...]:
    """Every case's difference. a, b: a process's times in each case, above zero; as many processes on either side.

    A case's statistic is Welch's t with PROCESS_SPREAD in the variances; of as many processes on either side it is
    Student's too. The interval holds the shifts that one of the two tests does not reject: of the permutations those
    of the case's own times, beside which stand the other cases as they are, and those that differ for certain without
    their differences too, whichever is larger.
    """
    count = len(a)
    if count != len(b) or count < 2:
        raise ValueError(f"{count} and {len(b)} processes are no comparison")
    times = np.log(np.array([*a, *b], dtype=float))
    labels = relabellings(count)
    allowed = math.floor(FALSE_ALARMS / 100 * len(labels))
    seen = times[count:].mean(axis=0) - times[:count].mean(axis=0)
    residuals = times.copy()
    residuals[count:] -= seen
    residuals -= residuals.mean(axis=0)
    variances = np.array([(side**2).sum(axis=0) / (count - 1) for side in (residuals[:count], residuals[count:])])
    variances += _log(PROCESS_SPREAD) ** 2
    error = np.sqrt(variances.sum(axis=0) / count)
    freedom = (count - 1) * variances.sum(axis=0) ** 2 / (variances**2).sum(axis=0) - FREEDOM_LESS
    welch, reach = _student(np.abs(seen) / error, np.maximum(count - 1, freedom))
    raw, centred = _statistics(labels, times), _statistics(labels, residuals)
    differs = (raw.max(axis=1)[:, None] >= raw[0] * (1 - TIE)).sum(axis=0) <= allowed
    statistics, others = np.where(differs, np.maximum(raw, centred), raw), np.zeros_like(raw)
    if raw.shape[1] > 1:  # In place of each case's statistic the largest of the other cases.
        second, first = np.partition(statistics, -2, axis=1)[:, -2:].T
        others = np.where(statistics == first[:, None], second[:, None], first[:, None]) * error
    # Of the data shifted by s, a relabelling's difference is moved - s * overlap, and the observed one is -s: up to
    # which s it is as large can be solved for.
    moved, overlap = labels @ residuals, (labels[:, count:].sum(axis=1))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        with_it, against_it = moved / (1 + overlap), moved / (1 - overlap)
    itself = np.isclose(np.abs(overlap), 1)
    upwards = np.maximum(np.where(itself, np.inf, np.maximum(with_it, -against_it)), others)
    downwards = np.maximum(np.where(itself, np.inf, np.maximum(-with_it, against_it)), others)
    to_zero = np.where(seen > 0, downwards, upwards)
    p = np.maximum(welch, (to_zero >= np.abs(seen) * (1 - TIE)).mean(axis=0))
    # The least shift that is rejected lies just above the next one.
    up, down = (
        np.maximum(np.partition(each, -allowed - 1, axis=0)[-allowed - 1], reach * error)
        for each in (upwards, downwards)
    )
    ratio = np.sqrt(variances[1] / variances[0])
    columns = zip(seen, seen - down, seen + up, p, ratio, _of_spreads(labels, times, ratio), strict=True)
    return tuple(_difference(*map(float, numbers), processes=count) for numbers in columns)


def _of_spreads(labels: Floats, times: Floats, ratio: Floats) -> Floats:
    """p of each case's ratio of spreads, by the same two tests: permutations, and the F test.

    Permuted are times about their side's median: about its mean, a few processes in another state make all of their
    side look spread. A ratio of two spreads with f degrees of freedom each is a t with f,
    sqrt(f) (ratio - 1 / ratio) / 2.
    """
    count = len(times) // 2
    aligned = np.concatenate([side - np.median(side, axis=0) for side in (times[:count], times[count:])])
    is_b = labels > 0
    least = (count - 1) * _log(PROCESS_SPREAD) ** 2
    of_b, of_a = (of @ aligned**2 - (of @ aligned) ** 2 / count + least for of in (is_b, ~is_b))
    ratios = np.abs(np.log(of_b / of_a))
    permuted = (ratios.max(axis=1)[:, None] >= ratios[0] * (1 - TIE)).mean(axis=0)
    freedom = np.full(len(ratio), count - 1.0)
    larger_p: Floats = np.maximum(permuted, _student(np.sqrt(freedom) / 2 * np.abs(ratio - 1 / ratio), freedom)[0])
    return larger_p


def _student(t: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Of each case the two-sided p of its t, and the t that has FALSE_ALARMS: both at Bonferroni's level. t is
    sqrt(freedom) times the tangent of an angle, of which the density is cos(angle) ** (freedom - 1)."""
    angles = np.linspace(math.pi / 2, 0, ANGLES)
    density = np.cos(angles) ** (freedom[:, None] - 1)
    tails = np.insert(np.cumsum(density[:, 1:] + density[:, :-1], axis=1), 0, 0.0, axis=1)
    tails /= tails[:, -1:]
    seen = np.arctan(t / np.sqrt(freedom))
    p = [np.interp(-angle, -angles, tail) for angle, tail in zip(seen, tails, strict=True)]
    level = FALSE_ALARMS / 100 / len(t)
    reach = np.tan([np.interp(level, tail, angles) for tail in tails]) * np.sqrt(freedom)
    return np.minimum(1.0, np.array(p) * len(t)), reach


def relabellings(count: int) -> Floats:
    """Each way to call ``count`` of twice as many processes A and the others B, the observed one first. A row is what a
    column of times is multiplied with for the difference B - A: -1/count or 1/count a process."""
    total = 2 * count
    if (every := math.comb(total, count)) <= MOST_ENUMERATED:
        labels = np.full((every, total), 1 / count)
        for row, chosen in zip(labels, itertools.combinations(range(total), count), strict=True):
            row[list(chosen)] = -1 / count
        return labels
    labels = np.tile(np.repeat([-1 / count, 1 / count], count), (MOST_ENUMERATED, 1))
    labels[1:] = np.random.default_rng(SEED).permuted(labels[1:], axis=1)
    return labels


def processes_for(pct: float, tells_pct: float, processes: int) -> int:
    """Processes a side that tell ``pct`` where ``processes`` tell ``tells_pct``: intervals narrow with their root."""
    return max(processes, math.ceil(processes * (_log(tells_pct) / _log(pct)) ** 2))


def _difference(
    seen: float, low: float, high: float, p: float, ratio: float, spread_p: float, *, processes: int
) -> Difference:
    least, same = _log(LEAST_CHANGE), _log(SAME_WITHIN)
    significant = p <= FALSE_ALARMS / 100
    if not significant:
        # In a tie rounding may have left 0 outside.
        low, high = min(low, 0.0), max(high, 0.0)
    width = (high - low) / 2
    pct, low_pct, high_pct, tells_pct = map(_pct, (seen, low, high, width))
    needed = None
    if significant and abs(pct) >= LEAST_CHANGE:
        outcome = Outcome.SLOWER if seen > 0 else Outcome.FASTER
    elif low_pct >= -SAME_WITHIN and high_pct <= SAME_WITHIN:
        outcome = Outcome.SAME
    else:
        outcome = Outcome.CANNOT_TELL
        # The interval has to leave 0, or to come within SAME_WITHIN.
        wanted = max(abs(seen) if abs(seen) >= least else 0.0, same - abs(seen))
        needed = max(processes + 1, processes_for(_pct(wanted), tells_pct, processes))
    return Difference(pct, low_pct, high_pct, p, outcome, tells_pct, needed, ratio, spread_p)


def _statistics(labels: Floats, times: Floats) -> Floats:
    """|t| of each relabelling and case."""
    count = len(times) // 2
    moved = np.abs(labels @ times)
    within = np.maximum(((times - times.mean(axis=0)) ** 2).sum(axis=0) - moved**2 * count / 2, 0)
    statistics: Floats = moved / np.sqrt((within / (count - 1) + 2 * _log(PROCESS_SPREAD) ** 2) / count)
    return statistics


def _log(pct: float) -> float:
    return math.log1p(pct / 100)


def _pct(log: float) -> float:
    return 100 * math.expm1(log)
