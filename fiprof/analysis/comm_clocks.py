"""The clock of a trace compared with another's, by the collectives that both have.

An all-reduce, all-gather or reduce-scatter needs every rank's data, so it ends on all of them nearly together, and on
none before it has begun on all. The differences of the ends are fitted by a line over time with least absolute
residuals: collectives that were matched wrongly hardly move it. A send may end before its receive begins: point to
point is left out, and so are broadcast and reduce, which need the data of one rank or give them to one.
"""

from typing import NamedTuple

import numpy as np

from fiprof.model.arrays import Floats, Ints

ENDS_APART_NS, ENDS_APART = 30_000.0, 0.17
"""A late rank ends so much later at most, in ns and over its transfer: two ranks of one trace on H200s."""
SAME_TIME_NS = 12_000.0  # so far apart two GPUs of one trace end an all-reduce of 34 MB (H200s): less is none
MOST_WEIGHT = 4.0
"""Of a collective in which the other rank than usually was late: both orders count alike, for this bias cancels."""
LEAST_SIDE = 0.1  # share of the collectives in one order whose residual counts
ITERATIONS, NEARLY_NS = 60, 100.0
"""Of least absolute residuals by reweighted squares, and the residual from which on they count alike."""
FEW = 4  # collectives below which there is no residual to judge by, and no drift
MOST_DRIFT = 200e-6  # of two clocks that nothing more is known of
MISMATCHED = 0.05  # share of the collectives that may be matched wrongly, where kernels are missing
LEAST_ERROR_NS = 1000.0


class Clock(NamedTuple):
    """What is added to the times of a trace, a line over time, so that they are on the clock of the first."""

    file: int
    begin_ns: int = 0  # first end of the collectives that it stands on, by the trace's own clock
    end_ns: int = 1  # last
    shifts_ns: tuple[float, float] = (0.0, 0.0)  # at these; 0 where session starts agree with the collectives
    error_ns: float = 0.0  # how far off its times may still be
    collectives: int = 0
    impossible: int = 0  # collectives that end before they begin by more than the error, with any line; 0 for a few

    @property
    def drift(self) -> float:
        """Of the trace's clock, s per s: positive where it is slow."""
        return (self.shifts_ns[1] - self.shifts_ns[0]) / (self.end_ns - self.begin_ns)

    @property
    def furthest_ns(self) -> float:
        return max(self.shifts_ns, key=abs)

    def to_first(self, times: Ints) -> Ints:
        """Times by the trace's own clock, on the first trace's."""
        return times + np.rint(self.shifts_ns[0] + self.drift * (times - self.begin_ns)).astype(np.int64)

    def to_own(self, times: Ints) -> Ints:
        """Times on the first trace's clock, by its own."""
        since = times - self.begin_ns
        return times - np.rint((self.shifts_ns[0] + self.drift * since) / (1 + self.drift)).astype(np.int64)


def line(times: Ints, values: Ints, weights: Floats | float = 1.0, *, degree: int = 1) -> Floats:
    """The line (degree 1) or the constant (0) with the least absolute residuals, at these times."""
    since, middle = (times - times[0]) / max(float(np.ptp(times)), 1.0), np.median(values)
    design, rest = np.vander(since, degree + 1), values - middle
    fitted = np.zeros(len(times))
    for _ in range(ITERATIONS):
        scaled = design.T * (weights / np.maximum(np.abs(rest - fitted), NEARLY_NS))
        fitted = design @ (np.linalg.pinv(scaled @ design) @ (scaled @ rest))
    return np.asarray(fitted + middle)


def clock_of(file: int, first: tuple[Ints, Ints], other: tuple[Ints, Ints], around: tuple[int, int]) -> Clock:
    """The clock of a trace by its symmetric collectives. first, other: last start and first end of each collective
    among the ranks of the first trace, and of this one. around: the times that the clock is for, ns."""
    times, count = other[1], len(other[1])
    apart, low, high = first[1] - times, first[0] - times, first[1] - other[0]
    # Whoever is late ends late: each order says how far the clocks may be apart on one side.
    before = first[0] - other[0] > apart
    share = np.where(before, before.mean(), (~before).mean())
    weights = np.clip((1 - share) / share, 1, MOST_WEIGHT)
    transfer = float(np.median(np.minimum(first[1] - first[0], times - other[0]).clip(0)))
    bias = abs(2 * float(before.mean()) - 1) * min(ENDS_APART_NS, ENDS_APART * transfer)
    begin, end = int(times.min()), int(times.max())
    outside = max(begin - around[0], around[1] - end, 0)
    for degree in (1, 0):
        fitted = line(times, apart, weights, degree=degree)
        rest = np.abs(apart - fitted)
        typical = max(float(np.median(rest[side])) for side in (before, ~before) if side.sum() >= LEAST_SIDE * count)
        uncertain = 8 * float(np.median(rest)) / np.sqrt(count)  # twice the standard error of a median line at its ends
        error = typical + uncertain + bias
        error += outside * min(error / max(end - begin, 1), MOST_DRIFT)
        shifts = float(fitted[times.argmin()]), float(fitted[times.argmax()])
        if count >= FEW and abs(shifts[1] - shifts[0]) > 2 * uncertain:
            break
    if count < FEW:
        error = max(float(high.min() - fitted[0]), float(fitted[0] - low.max()))
    spread = min(float(np.percentile(np.abs(apart - fitted), 75)), SAME_TIME_NS)
    if (furthest := max(map(abs, shifts))) <= max(spread, LEAST_ERROR_NS):
        shifts, fitted, error = (0.0, 0.0), np.zeros(count), error + furthest
    error = max(error, LEAST_ERROR_NS)
    beyond = np.maximum(low - fitted, fitted - high)
    if impossible := int((beyond > error).sum()) if (beyond > error).mean() > MISMATCHED else 0:
        error = float(beyond.max())
    return Clock(file, begin, max(end, begin + 1), shifts, error, count, impossible)
