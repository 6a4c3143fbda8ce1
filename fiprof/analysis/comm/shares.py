"""When each rank computes, communicates and waits, and its time in pieces for a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fiprof.analysis.comm.kernels import UNKNOWN
from fiprof.analysis.comm.matching import Matched
from fiprof.analysis.comm.meanwhile import Activity, joined, within
from fiprof.analysis.comm.model import Collective, RankChart, RankTrack
from fiprof.model.ranks import Ranks

if TYPE_CHECKING:
    from fiprof.model.unions import Ints


class Shares:
    """When each rank computes, communicates and waits."""

    def __init__(self, activity: Activity, matched: Matched, ranks: Ranks) -> None:
        import numpy as np

        self.start, self.end, self.last = _matrix(matched)
        self.compute, self.communicate, self.wait = {}, {}, {}
        for column, rank in enumerate(rank.rank for rank in ranks.all):
            self.compute[rank] = joined(*activity.work(rank, communication=False)[:2])
            self.communicate[rank] = joined(*activity.work(rank, communication=True)[:2])
            there = matched.index[:, column] != UNKNOWN
            begin = self.start[there, column]
            until = np.minimum(self.last[there], self.end[there, column])
            self.wait[rank] = joined(begin, np.maximum(until, begin))

    def overlap_ns(self, rank: int, begins: Ints, ends: Ints) -> Ints:
        """How much of each stretch the rank's GPU spent on kernels that do not communicate."""
        return within(self.compute[rank], begins, ends)


def _matrix(matched: Matched) -> tuple[Ints, Ints, Ints]:
    """Start and end of each rank's kernel, and the last start, of every collective."""
    import numpy as np

    there = matched.index != UNKNOWN
    if not there.size:
        none = np.empty((0, len(matched.ranks)), np.int64)
        return none, none, np.empty(0, np.int64)
    start = np.where(there, matched.kernels.start[matched.index], UNKNOWN)
    end = np.where(there, matched.kernels.end[matched.index], UNKNOWN)
    return start, end, np.where(there, start, np.iinfo(np.int64).min).max(axis=1)


def charts(
    collectives: Sequence[Collective], matched: Matched, shares: Shares, ranks: Ranks, cells: int
) -> Iterator[RankChart]:
    import numpy as np

    if not collectives:
        return
    there = matched.index != UNKNOWN
    first = np.where(there, shares.start, np.iinfo(np.int64).max).min(axis=1)
    last = np.where(there, shares.end, np.iinfo(np.int64).min).max(axis=1)
    yield _chart(int(first.min()), int(last.max()), shares, ranks, cells)
    worst = max(range(len(collectives)), key=lambda place: collectives[place].wait_us)
    length = max(int(1.25 * collectives[worst].skew_us * 1e3), int(last[worst] - first[worst]))
    begin = int(last[worst]) - int(1.15 * length)
    yield _chart(begin, int(last[worst]) + int(0.05 * length), shares, ranks, cells, worst)


def _chart(begin: int, end: int, shares: Shares, ranks: Ranks, cells: int, number: int | None = None) -> RankChart:
    import numpy as np

    edges = np.linspace(begin, end, cells + 1).astype(np.int64)
    width = (end - begin) / cells or 1.0
    tracks = []
    for rank in (rank.rank for rank in ranks.all):
        compute = within(shares.compute[rank], edges[:-1], edges[1:]) / width
        both = joined(
            *(np.concatenate(pair) for pair in zip(shares.compute[rank], shares.communicate[rank], strict=True))
        )
        with_wait = joined(
            *(np.concatenate(pair) for pair in zip(shares.compute[rank], shares.wait[rank], strict=True))
        )
        waits = within(with_wait, edges[:-1], edges[1:]) / width - compute
        transfers = within(both, edges[:-1], edges[1:]) / width - compute - waits
        tracks.append(RankTrack(rank, *(tuple(np.clip(each, 0, 1).tolist()) for each in (compute, transfers, waits))))
    return RankChart(begin / 1e3, end / 1e3, tuple(tracks), number)
