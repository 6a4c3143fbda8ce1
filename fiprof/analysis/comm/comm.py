"""Communication between the ranks of a run: who waits for whom, how long, and what the late rank did meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fiprof.analysis.comm.clocks import Clock, local_ranks, shifted, trace_clocks
from fiprof.analysis.comm.kernels import OPS, UNKNOWN, communication
from fiprof.analysis.comm.matching import Matched, match
from fiprof.analysis.comm.meanwhile import Activity, busiest_thread
from fiprof.analysis.comm.model import Arrival, Cause, Collective, Comm, CommWarning, Doing, RankTotals, Spell
from fiprof.analysis.comm.shares import Shares, charts
from fiprof.analysis.comm.steps import Steps
from fiprof.analysis.trace_checks import trace_doubts
from fiprof.model.finding import Finding
from fiprof.model.ranks import Rank, Ranks, ranks_of
from fiprof.model.run import Run

if TYPE_CHECKING:
    from fiprof.model.unions import Ints

CELLS = 60
"""Pieces of a rank's track."""


def comm(run: Run, *, cells: int = CELLS) -> Comm:
    """The communication of a run. cells: pieces of a track. Raises FiprofError for a table that cannot be read."""
    ranks = ranks_of(run)
    if not run.has("kernels") or not ranks.several:
        missing = (
            Finding(CommWarning.ONE_RANK)
            if run.has("kernels")
            else Finding(CommWarning.NO_TRACE, {"why": run.missing("nsys")})
        )
        return Comm((), (), (), (), (*run.status_warning(), missing))
    kernels, communicating = communication(run)
    local = local_ranks(run, ranks)
    found = trace_clocks(run)
    kernels, added = shifted(kernels, ranks, found)
    matched = match(kernels, ranks, local)
    activity = Activity(run, ranks, communicating, added)
    shares = Shares(activity, matched, ranks)
    steps = Steps(run, kernels, added)
    collectives = tuple(_collectives(run, ranks, matched, activity, shares, steps))
    totals = tuple(_totals(rank, collectives, shares, steps.of_rank(rank.rank)) for rank in ranks.all)
    return Comm(
        ranks=totals if len(kernels) else (),
        causes=tuple(sorted(_causes(collectives), key=lambda cause: -cause.us)),
        collectives=collectives,
        charts=tuple(charts(collectives, matched, shares, ranks, cells)),
        warnings=(*run.status_warning(), *trace_doubts(run), *_warnings(matched, collectives, found)),
    )


def _collectives(
    run: Run, ranks: Ranks, matched: Matched, activity: Activity, shares: Shares, steps: Steps
) -> Iterator[Collective]:
    import numpy as np

    kernels, there = matched.kernels, matched.index != UNKNOWN
    if not len(there):
        return
    first = np.where(there, shares.start, np.iinfo(np.int64).max).min(axis=1)
    finish = np.where(there, shares.end, np.iinfo(np.int64).min).max(axis=1)
    wait = np.where(there, np.clip(shares.last[:, None] - shares.start, 0, shares.end - shares.start), 0)
    late = np.where(there, shares.start, np.iinfo(np.int64).min).argmax(axis=1)
    overlap = np.zeros(len(there))
    for column, rank in enumerate(matched.ranks):
        overlap += np.where(
            there[:, column], shares.overlap_ns(rank, shares.start[:, column], shares.end[:, column]), 0
        )
    overlap = overlap / np.maximum(np.where(there, shares.end - shares.start, 0).sum(axis=1), 1)
    meanwhile = _meanwhile(run, ranks, matched, activity, late, first, shares.last)
    waiting = wait.argmax(axis=1)
    row = np.arange(len(there))
    length = _step_lengths(matched, steps, shares, waiting)
    of_late, of_first = matched.index[row, late], matched.index[row, waiting]
    for place in range(len(there)):
        columns = np.flatnonzero(there[place]).tolist()
        kernel = of_late[place]
        size = int(kernels.bytes[matched.index[place, columns]].max())
        owner = int(kernels.communicator[kernel])
        yield Collective(
            op=OPS[kernels.op[kernel]],
            kernel=kernels.names[kernels.name[kernel]],
            communicator=None if owner == UNKNOWN else owner,
            number=int(matched.number[place]),
            arrivals=tuple(
                Arrival(
                    matched.ranks[column],
                    float(shares.start[place, column]) / 1e3,
                    float(wait[place, column]) / 1e3,
                    float(shares.end[place, column] - shares.start[place, column]) / 1e3,
                )
                for column in columns
            ),
            missing=tuple(matched.ranks[column] for column in np.flatnonzero(matched.expected[place] & ~there[place])),
            bytes=None if size == UNKNOWN else size,
            channels=int(kernels.grid[kernel]),
            start_us=float(first[place]) / 1e3,
            skew_us=float(shares.last[place] - first[place]) / 1e3,
            transfer_us=float(max(finish[place] - shares.last[place], 0)) / 1e3,
            late_rank=matched.ranks[late[place]],
            range=str(steps.names[of_first[place]]),
            step_us=None if length[place] == UNKNOWN else float(length[place]) / 1e3,
            overlap=float(overlap[place]),
            meanwhile=meanwhile[place],
        )


def _meanwhile(
    run: Run, ranks: Ranks, matched: Matched, activity: Activity, late: Ints, first: Ints, last: Ints
) -> list[tuple[Spell, ...]]:
    """What each collective's late rank did from the first rank's start to its own."""
    import numpy as np

    found: list[tuple[Spell, ...]] = [()] * len(late)
    kernel = matched.index[np.arange(len(late)), late]
    thread = matched.kernels.thread[kernel].copy()
    for column, rank in enumerate(matched.ranks):
        mine = late == column
        if (unknown := mine & (thread == UNKNOWN)).any():
            thread[unknown] = busiest_thread(run, ranks, rank)
        for each in np.unique(thread[mine]).tolist():
            places = np.flatnonzero(mine & (thread == each) & (last > first))
            for place, spells in zip(
                places.tolist(), activity.spells(rank, each, first[places], last[places]), strict=True
            ):
                found[place] = spells
    return found


def _step_lengths(matched: Matched, steps: Steps, shares: Shares, waiting: Ints) -> Ints:
    """Of the step of each collective on the rank that waited longest, ns, UNKNOWN for none."""
    import numpy as np

    row = np.arange(len(waiting))
    found = steps.lengths[matched.index[row, waiting]]
    for column in range(len(matched.ranks)):
        there = np.flatnonzero(matched.index[:, column] != UNKNOWN)
        ends = shares.end[there, column]
        since = np.append(UNKNOWN, ends[1:] - ends[:-1])
        by_end = there[(waiting[there] == column) & (found[there] == UNKNOWN)]
        found[by_end] = np.maximum(since[np.isin(there, by_end)], UNKNOWN)
    return found


def _totals(rank: Rank, collectives: Sequence[Collective], shares: Shares, steps_us: float | None) -> RankTotals:
    import numpy as np

    mine = [each for each in collectives if rank.rank in each.ranks]
    late = [each for each in mine if each.late_rank == rank.rank]
    wait_us = sum(arrival.wait_us for each in mine for arrival in each.arrivals if arrival.rank == rank.rank)
    starts, ends = shares.communicate[rank.rank]
    hidden = float(np.sum(shares.overlap_ns(rank.rank, starts, ends)))
    total, computing = float(np.sum(ends - starts)), shares.compute[rank.rank]
    whole_us = steps_us or (float(ends[-1] - starts[0]) / 1e3 if len(ends) else 0.0)
    return RankTotals(
        rank=rank,
        collectives=len(mine),
        late=len(late),
        delay_us=sum(each.skew_us for each in late),
        wait_us=wait_us,
        communication_us=total / 1e3,
        overlap=hidden / total if total else 0.0,
        compute_us=float(np.sum(computing[1] - computing[0])) / 1e3,
        lost_share=min(wait_us / whole_us, 1.0) if whole_us else None,
    )


def _causes(collectives: Iterable[Collective]) -> Iterator[Cause]:
    spent: dict[tuple[int, Doing, str, str], list[float]] = defaultdict(list)
    of_rank: dict[int, float] = defaultdict(float)
    for each in collectives:
        of_rank[each.late_rank] += each.skew_us
        for spell in each.meanwhile:
            spent[each.late_rank, spell.doing, spell.name, spell.range].append(spell.us)
    for (rank, doing, name, range_), times in spent.items():
        us = sum(times)
        yield Cause(rank, doing, name, range_, us, len(times), us / of_rank[rank] if of_rank[rank] else 0.0)


def _warnings(matched: Matched, collectives: Sequence[Collective], found: Sequence[Clock]) -> Iterator[Finding]:
    kernels = matched.kernels
    if not len(kernels):
        yield Finding(CommWarning.NO_COMMUNICATION)
        return
    if not (kernels.communicator != UNKNOWN).any():
        yield Finding(CommWarning.NO_PAYLOAD)
    if len(matched.alone):
        yield Finding(CommWarning.ALONE, {"count": len(matched.alone), "of": len(kernels)})
    lacking = [each for each in collectives if each.missing]
    if lacking:
        ranks = tuple(sorted({rank for each in lacking for rank in each.missing}))
        yield Finding(CommWarning.INCOMPLETE, {"count": len(lacking), "of": len(collectives), "ranks": ranks})
    for clock in found:
        kind = CommWarning.CLOCK_OFF if clock.shift_ns else CommWarning.CLOCK
        yield Finding(kind, {"file": clock.file, "shift_us": clock.shift_ns / 1e3, "error_us": clock.error_ns / 1e3})
