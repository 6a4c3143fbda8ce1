"""Whether two sides differ, by exact permutation of their processes' labels.

The unit is the process: what its rounds share (memory it got, clocks) makes them no independent observations. One
relabelling holds for all cases, and each is held against the largest statistic of all (max-t; Westfall and Young 1993,
Resampling-Based Multiple Testing, 2.3), so the whole comparison has at most FALSE_ALARMS, however its cases depend on
each other. benchmarks/compare_simulation.py measures that and the power.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.analysis.thresholds import FALSE_ALARMS, LEAST_CHANGE, PROCESS_SPREAD, SAME_WITHIN
from fiprof.model.finding import Worded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

LEAST_PROCESSES = 5
"""A side: four have 70 relabellings, and no difference reaches 2 in 100 of them."""

MOST_ENUMERATED = 20_000
"""Relabellings that are all tried, those of up to eight processes a side; of more, so many are drawn."""

SEED = 0
"""Of the drawn relabellings."""

TIE = 1e-9
"""Relative difference below which two statistics are equal, and the difference is not called significant."""


class Outcome(Worded):
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
    """The interval: those of all cases hold at once in 98 of 100 comparisons. It holds 0 exactly where p is above
    FALSE_ALARMS."""
    p: float
    """Share of the relabellings that give some case at least this one's statistic."""
    outcome: Outcome
    tells_pct: float
    """Least difference that this spread and so many processes tell from none: half of the interval."""
    processes_needed: int | None
    """A side, to decide a case that CANNOT_TELL, if difference and spread stay what they are; None elsewhere."""


def differences(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> tuple[Difference, ...]:
    """Every case's difference. a, b: a process's times in each case, above zero; as many processes on either side.

    A case's statistic is Student's t with PROCESS_SPREAD in its variance. p is that of the single-step max-t test. The
    interval is its inversion: the shifts of the case's own times that the test does not reject. Beside them stand the
    other cases as they are, and those that differ for certain without their differences too, whichever is larger.
    """
    import numpy as np

    count = len(a)
    if count != len(b) or count < 2:
        raise ValueError(f"{count} and {len(b)} processes are no comparison")
    times = np.log(np.array([*a, *b], dtype=float))
    labels = relabellings(count)
    allowed = math.floor(FALSE_ALARMS / 100 * len(labels))
    seen = times[count:].mean(axis=0) - times[:count].mean(axis=0)
    residuals = times.copy()
    residuals[count:] -= seen
    error = np.sqrt(_variance(_squares(residuals), count) * 2 / count)
    raw, centred = _statistics(labels, times), _statistics(labels, residuals)
    differs = (raw.max(axis=1)[:, None] >= raw[0] * (1 - TIE)).sum(axis=0) <= allowed
    others = _largest_of_others(np.where(differs, np.maximum(raw, centred), raw)) * error
    # Of the data shifted by s, a relabelling's difference is moved - s * overlap, and the observed one is -s: up to
    # which s it is as large can be solved for.
    moved, overlap = labels @ residuals, (labels[:, count:].sum(axis=1))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        with_it, against_it = moved / (1 + overlap), moved / (1 - overlap)
    itself = np.isclose(np.abs(overlap), 1)
    upwards = np.maximum(np.where(itself, np.inf, np.maximum(with_it, -against_it)), others)
    downwards = np.maximum(np.where(itself, np.inf, np.maximum(-with_it, against_it)), others)
    to_zero = np.where(seen > 0, downwards, upwards)
    p = (to_zero >= np.abs(seen) * (1 - TIE)).mean(axis=0)
    # The least shift that is rejected lies just above the next one.
    up, down = (np.sort(reach, axis=0)[-allowed - 1] for reach in (upwards, downwards))
    return tuple(
        _difference(*map(float, numbers), processes=count)
        for numbers in zip(seen, seen - down, seen + up, p, strict=True)
    )


def relabellings(count: int) -> Numbers:
    """Each way to call ``count`` of twice as many processes A and the others B, the observed one first.

    A row is what a column of times is multiplied with for the difference B - A: -1/count or 1/count a process.
    """
    import numpy as np

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
    """Processes a side that tell a difference of ``pct`` where ``processes`` tell one of ``tells_pct``: an interval
    narrows with their square root."""
    return max(processes, math.ceil(processes * (_log(tells_pct) / _log(pct)) ** 2))


def _difference(seen: float, low: float, high: float, p: float, *, processes: int) -> Difference:
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
    return Difference(pct, low_pct, high_pct, p, outcome, tells_pct, needed)


def _statistics(labels: Numbers, times: Numbers) -> Numbers:
    """|t| of each relabelling and case."""
    import numpy as np

    count = len(times) // 2
    moved = np.abs(labels @ times)
    statistics: Numbers = moved / np.sqrt(_variance(_squares(times) - moved**2 * count / 2, count) * 2 / count)
    return statistics


def _squares(times: Numbers) -> Numbers:
    """Sum of squared distances from each case's mean."""
    squares: Numbers = ((times - times.mean(axis=0)) ** 2).sum(axis=0)
    return squares


def _variance(squares: Numbers, count: int) -> Numbers:
    """Between processes of a side. squares: summed over both."""
    import numpy as np

    return np.maximum(squares, 0) / (2 * count - 2) + _log(PROCESS_SPREAD) ** 2


def _largest_of_others(statistics: Numbers) -> Numbers:
    """In place of each case's statistic, the largest of the other cases; 0 without any."""
    import numpy as np

    if statistics.shape[1] == 1:
        return np.zeros_like(statistics)
    second, first = np.partition(statistics, -2, axis=1)[:, -2:].T
    largest: Numbers = np.where(statistics == first[:, None], second[:, None], first[:, None])
    return largest


def _log(pct: float) -> float:
    return math.log1p(pct / 100)


def _pct(log: float) -> float:
    return 100 * math.expm1(log)
