"""A quantity over the runs of an archive: where it changed, by how much, and how sure that is.

A line is of one case or kernel, on one GPU under one driver and, for ncu's figures, under one way of measuring: what
differs in these is never compared. Optimal partitioning proposes where the level of a line changed; each change is
then tested against the chance that the runs around it came in this order by accident.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from fiprof.model.case_quantities import NSYS, NSYS_SPREAD, PLAIN, PLAIN_SPREAD, WALL
from fiprof.model.catalogue.store import Row
from fiprof.model.catalogue.summary import TRACED
from fiprof.model.selection import by_key

FEWEST = 6  # runs of a line in which a change can be found: of fewer, any order is likely enough by accident
SHORTEST = 2  # runs between two changes; a single one off the line is no change
PENALTY = 3.0
"""Times log(runs), in variances of the noise: the cost of a change; the BIC takes 2 (Killick et al. 2012)."""
ORDERS = 999  # random orders that a change is compared with
ALPHA = 0.01  # a change is marked where at most this part of the orders shows one as large
SMALLEST = 0.01  # change of the median that is marked: less is no difference to fiprof (see compare)
SMALLEST_NOISE = 1e-4  # of a line whose runs agree to the digit, of the value
WITHOUT_NCU = frozenset({PLAIN.key, PLAIN_SPREAD.key, WALL.key, NSYS.key, NSYS_SPREAD.key, *TRACED})
"""Quantities that do not depend on how ncu was told to measure."""


@dataclass(frozen=True)
class TrendLevel:
    """Runs of a line between two changes."""

    start: int  # place of its first run
    end: int  # place after its last
    value: float  # median of its runs
    ratio: float | None = None  # change from the level before: its value over that one's, less 1; None for the first
    p_value: float | None = None  # part of random orders of both levels' runs that shows as large a change
    updates: tuple[tuple[str, str | None, str | None], ...] = ()
    """What differs between its first run and the one before: commit and packages, before and after."""


@dataclass(frozen=True)
class TrendLine:
    """A quantity of one case or kernel on one GPU."""

    rows: tuple[Row, ...]  # the runs, the oldest first. Case, kernel, GPU, board and driver are those of each.
    values: tuple[float, ...]
    conditions: str | None  # conditions under which ncu measured; None where the quantity does not depend on them
    levels: tuple[TrendLevel, ...]

    @property
    def changed(self) -> tuple[TrendLevel, ...]:
        """The levels after the first."""
        return self.levels[1:]


def trend(rows: Sequence[Row], metric: str) -> list[TrendLine]:
    """The lines of a quantity over results of the catalogue, the oldest first; those with the largest changes first."""
    keys = ("case", "kernel", "gpu", "uuid", "driver", *(() if metric in WITHOUT_NCU else ("conditions",)))
    lines = []
    for runs in by_key((tuple(row[key] for key in keys), row) for row in rows if (row[metric] or 0) > 0).values():
        conditions = None if metric in WITHOUT_NCU else runs[0]["conditions"]
        values = tuple(row[metric] for row in runs)
        lines.append(TrendLine(tuple(runs), values, conditions, tuple(_levels(runs, values))))
    lines.sort(key=lambda line: (-max(abs(each.ratio or 0) for each in line.levels), -len(line.rows)))
    return lines


def _levels(runs: Sequence[Row], values: Sequence[float]) -> Iterator[TrendLevel]:
    changes = levels(values)
    ends = [*(place for place, *_ in changes), len(values)]
    yield TrendLevel(0, ends[0], median(values[: ends[0]]))
    for (place, before, after, p_value), end in zip(changes, ends[1:], strict=True):
        old, new = ({"": run["git"], **run["packages"]} for run in (runs[place - 1], runs[place]))
        updates = ((name or "commit", old.get(name), new.get(name)) for name in sorted({*old, *new}))
        differing = tuple(each for each in updates if each[1] != each[2])
        yield TrendLevel(place, end, after, after / before - 1, p_value, differing)


def levels(values: Sequence[float]) -> list[tuple[int, float, float, float]]:
    """Where the level of positive values changes: place, median before and after, and p-value of each change."""
    if len(values) < FEWEST:
        return []
    logs = np.log(values)
    padded = np.pad(logs, 1, mode="reflect")
    # Without single runs off the line.
    calm = np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0)
    places = _proposed(logs, calm)
    while places:
        edges = [0, *places, len(values)]
        tested = []
        for start, place, end in zip(edges, edges[1:], edges[2:], strict=False):
            before, after = median(values[start:place]), median(values[place:end])
            tested.append((place, before, after, _p_value(logs[start:end])))
        # The least likely goes, and its neighbours are seen in one.
        worst = max(tested, key=lambda each: (each[3], -abs(math.log(each[2] / each[1]))))
        small = min(tested, key=lambda each: abs(math.log(each[2] / each[1])))
        if worst[3] <= ALPHA and abs(small[2] / small[1] - 1) >= SMALLEST:
            return tested
        places.remove(worst[0] if worst[3] > ALPHA else small[0])
        for number in range(len(places)):
            start, _, end = [0, *places, len(values)][number : number + 3]
            places[number] = start + 1 + int(_steps(calm[start:end] - calm[start:end].mean()).argmax())
    return []


def _proposed(logs: np.ndarray, calm: np.ndarray) -> list[int]:
    """By optimal partitioning (Jackson et al. 2005): the changes with the least squares around the levels between them,
    in units of the runs' noise, and a penalty for each change."""
    # From neighbours, so that a change of level is no noise; 1.4826 of a median deviation is a standard deviation.
    noise = 1.4826 * float(np.median(np.abs(np.diff(logs)))) / math.sqrt(2)
    signal = (calm - calm.mean()) / max(noise, SMALLEST_NOISE)
    sums, squares = (np.append(0.0, values.cumsum()) for values in (signal, signal**2))
    # Of the runs before each place: the least cost, and where their last level begins.
    least, last = np.zeros(len(sums)), np.zeros(len(sums), int)
    least[1:SHORTEST] = np.inf
    for end in range(SHORTEST, len(sums)):
        starts = np.arange(end - SHORTEST + 1)
        within = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / (end - starts)
        last[end] = (least[starts] + within).argmin()
        least[end] = (least[starts] + within)[last[end]] + PENALTY * math.log(len(logs))
    places, place = [], int(last[-1])
    while place:
        places.append(place)
        place = int(last[place])
    return places[::-1]


def _steps(values: np.ndarray) -> np.ndarray:
    """The step of the mean at each place between values around 0, in units of its noise where there is none. values:
    the last axis is over the runs."""
    count = values.shape[-1]
    before = np.arange(1, count)
    return np.abs(values.cumsum(axis=-1)[..., :-1]) / np.sqrt(before * (count - before))  # type: ignore[no-any-return]


def _p_value(logs: np.ndarray) -> float:
    """Of the largest step of the mean at any place, over random orders of the same runs.

    Of two statistics the more telling, twice its part: of the ranks, which single outliers do not move, and of the
    values, which tells a large step after few runs.
    """
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(len(logs)), (ORDERS, 1)), axis=1)
    orders = np.vstack([np.arange(len(logs)), orders])
    sides = []
    for values in (logs - logs.mean(), logs.argsort().argsort() - (len(logs) - 1) / 2):
        largest = _steps(values[orders]).max(axis=1)
        sides.append(float((largest >= largest[0] * (1 - 1e-9)).mean()))
    return min(1.0, 2 * min(sides))
