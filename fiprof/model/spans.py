"""Intervals of time as arrays of starts and ends, ns, for millions of them: unions, overlaps, nesting."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiprof.model.arrays import Floats, Ints
from fiprof.model.tables import PIECE_ROWS

NOTHING = -1  # the label of a moment in no interval
LONG_AGO = -(1 << 62)  # before all times


def split(values: Ints) -> Iterator[tuple[int, Any]]:
    """Each distinct value with the index of its rows (an array or a slice), in their order."""
    if len(values) and (values == values[0]).all():
        yield int(values[0]), slice(None)
        return
    order = np.argsort(values, kind="stable")
    distinct, first = np.unique(values[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(order, first[1:]), strict=False)


# Unions


def union(starts: Ints, ends: Ints, *, since: int = LONG_AGO) -> tuple[Ints, Ints]:
    """The union of intervals after ``since``, as the part that each adds to those before it: disjoint, by start."""
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    until = np.maximum.accumulate(np.append(since, ends))
    starts = np.maximum(starts, until[:-1])
    nonempty = ends > starts
    return (starts, ends) if nonempty.all() else (starts[nonempty], ends[nonempty])


def covered(starts: Ints | Floats, ends: Ints | Floats, moments: Ints | Floats, weights: Floats | int = 1) -> Floats:
    """How much of the time before each moment lies in disjoint intervals, by start, ns; each times its weight."""
    if not len(starts):
        return np.zeros(len(moments))
    weighted = (ends - starts) * weights
    total = np.repeat(np.cumsum(weighted), 2)
    total[::2] -= weighted
    before: Floats = np.interp(moments, np.column_stack([starts, ends]).ravel(), total)
    return before


def within(intervals: tuple[Ints, Ints], begins: Ints | Floats, ends: Ints | Floats) -> Floats:
    """How much of each stretch lies in disjoint intervals, by start, ns."""
    return covered(*intervals, ends) - covered(*intervals, begins)


def union_by(keys: Ints, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """The union of the intervals of each key: keys, starts and ends, by key and start.

    Ends are not before their starts.
    """
    if not len(keys):
        return keys, starts, ends
    order = np.lexsort((starts, keys))
    keys, starts, ends = keys[order], starts[order], ends[order]
    first = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    # Shift each key's intervals behind those of the key before it, so that one running maximum serves all keys.
    lengths = np.maximum.reduceat(ends, first) - starts[first] + 1
    shift = np.repeat(np.cumsum(lengths) - lengths - starts[first], np.diff(first, append=len(keys)))
    reached = np.maximum.accumulate(ends + shift)
    opens = np.append(0, np.flatnonzero((starts + shift)[1:] > reached[:-1]) + 1)
    last = np.append(opens[1:], len(keys)) - 1
    return keys[opens], starts[opens], reached[last] - shift[last]


def side_by_side(keys: Ints, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The times in which intervals of two keys or more overlap: disjoint, by start."""
    _, starts, ends = union_by(keys, starts, ends)
    moments = np.concatenate([starts, ends])
    order = np.argsort(moments, kind="stable")
    several = np.cumsum(np.repeat([1, -1], len(starts))[order]) > 1
    moments = moments[order]
    rows = np.flatnonzero(several[:-1] & (moments[1:] > moments[:-1]))
    return moments[rows], moments[rows + 1]


# Nested intervals


@dataclass(frozen=True)
class Stretches:
    """The innermost interval of one thread at each time, by start; between two stretches there is none."""

    starts: Ints
    ends: Ints
    labels: Ints

    def at(self, moments: Ints) -> Ints:
        """The label of each moment, NOTHING between stretches."""
        if not len(self.starts):
            return np.full(len(moments), NOTHING)
        if len(moments) > 2 * len(self.starts) and (moments[1:] >= moments[:-1]).all():
            bounds = np.searchsorted(moments, np.column_stack([self.starts, self.ends]).ravel())
            labels = np.column_stack([self.labels, np.full_like(self.labels, NOTHING)]).ravel()
            return np.repeat(np.append(NOTHING, labels), np.diff(bounds, prepend=0, append=len(moments)))
        place = np.searchsorted(self.starts, moments, side="right") - 1
        return np.where((place >= 0) & (moments < self.ends[place]), self.labels[place], NOTHING)

    def during(self, begin: int, end: int) -> Stretches:
        """The stretches that overlap a time."""
        rows = slice(np.searchsorted(self.ends, begin, side="right"), np.searchsorted(self.starts, end, side="left"))
        return Stretches(self.starts[rows], self.ends[rows], self.labels[rows])

    def overlaps(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """The overlaps with disjoint intervals: which interval, begin and end of the overlap, and the label."""
        first = np.searchsorted(self.ends, starts, side="right")
        count = np.maximum(np.searchsorted(self.starts, ends, side="left") - first, 0)
        of = np.repeat(np.arange(len(starts)), count)
        place = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count) + first[of]
        begins, stops = np.maximum(self.starts[place], starts[of]), np.minimum(self.ends[place], ends[of])
        return of, begins, stops, self.labels[place]


def innermost(starts: Ints, ends: Ints, labels: Ints) -> Stretches:
    """The innermost of nested intervals, by start, of one thread at each time; without those of no length."""
    lasting = ends > starts
    if not lasting.all():
        starts, ends, labels = starts[lasting], ends[lasting], labels[lasting]
    if (starts[1:] >= ends[:-1]).all():
        return Stretches(starts, ends, labels)
    count = len(starts)
    if count > PIECE_ROWS:
        # In pieces, cut where no interval is open.
        cuts = 1 + np.flatnonzero(starts[1:] >= np.maximum.accumulate(ends)[:-1])
        cuts = cuts[np.append(True, np.diff(cuts // PIECE_ROWS) > 0)] if len(cuts) else cuts
        if len(cuts):
            pieces = (slice(*bounds) for bounds in itertools.pairwise([0, *cuts.tolist(), count]))
            found = [innermost(starts[piece], ends[piece], labels[piece]) for piece in pieces]
            columns = zip(*((each.starts, each.ends, each.labels) for each in found), strict=True)
            return Stretches(*map(np.concatenate, columns))
    if ((starts[1:] == starts[:-1]) & (ends[1:] > ends[:-1])).any():  # Of intervals with one start the longest first.
        order = np.lexsort((-ends, starts))
        starts, ends, labels = starts[order], ends[order], labels[order]
    # At one moment, ends come before begins. A stable sort is fast for what is nearly in order.
    times = np.concatenate([ends, starts])
    order = np.argsort(times, kind="stable").astype(np.int32)
    times, begins = times[order], order >= count
    depth = np.cumsum(np.where(begins, np.int32(1), np.int32(-1)), dtype=np.int32)
    # At each depth, the innermost interval is the last that has begun there.
    by_depth = np.argsort(depth.astype(np.min_scalar_type(int(depth.max()))), kind="stable")
    latest = np.maximum.accumulate(np.where(begins[by_depth], np.arange(2 * count, dtype=np.int32), 0))
    owner = np.empty(2 * count, np.int32)
    owner[by_depth] = order[by_depth][latest] - count
    rows = np.flatnonzero((depth[:-1] > 0) & (times[1:] > times[:-1]))
    return Stretches(times[rows], times[rows + 1], labels[owner[rows]])


def by_thread(threads: Ints, *columns: Ints) -> dict[int, Stretches]:
    """Thread -> its innermost intervals. columns: starts, ends and labels of nested intervals, by start."""
    return {thread: innermost(*(column[rows] for column in columns)) for thread, rows in split(threads)}
