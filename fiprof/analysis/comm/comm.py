"""Communication between the ranks of a run: who waits for whom, how long, and what the late rank did meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fiprof.analysis.comm.match import (
    OPS,
    UNKNOWN,
    Clock,
    Matched,
    Op,
    communication,
    local_ranks,
    match,
    shifted,
    trace_clocks,
)
from fiprof.analysis.comm.meanwhile import (
    Activity,
    Doing,
    RankChart,
    RankTrack,
    Shares,
    Spell,
    Steps,
    busiest_thread,
)
from fiprof.analysis.trace_checks import trace_doubts
from fiprof.model.finding import Finding, finding
from fiprof.model.ranks import Rank, Ranks, ranks_of
from fiprof.model.run import Run
from fiprof.model.spans import union, within

if TYPE_CHECKING:
    from fiprof.model.arrays import Ints


@dataclass(frozen=True)
class Arrival:
    """A rank in a collective."""

    rank: int
    start_us: float
    """Of its kernel, since the trace began."""
    wait_us: float
    """Until the last rank began; for the whole of its kernel where that ended sooner."""
    duration_us: float
    """Of its kernel, waiting included."""


@dataclass(frozen=True)
class Collective:
    """A collective of several ranks."""

    op: Op
    kernel: str
    communicator: int | None
    """NCCL's number, modulo 2^62; None where NCCL did not tell."""
    number: int
    """Which one of its communicator, from 0; of kernels of its name and stream where that is not known."""
    arrivals: tuple[Arrival, ...]
    missing: tuple[int, ...]
    """Ranks of the communicator without a kernel of it in the trace."""
    bytes: int | None
    """Of a rank's message as NCCL gives it; None where it did not tell."""
    channels: int
    """Blocks of the kernel."""
    start_us: float
    """Of the first rank's kernel, since the trace began."""
    skew_us: float
    """From the first rank's start to the last one's."""
    transfer_us: float
    """From the last rank's start to the last one's end."""
    late_rank: int
    """The rank that started last."""
    range: str
    """NVTX range that the late rank's thread launched it in, the outermost; empty for none."""
    step_us: float | None
    """Length of the step that it is in, on the rank that waited longest: of its outermost range that repeats; without
    one, since the end of the rank's collective before. None for the first of those."""
    overlap: float
    """Share of the ranks' kernel time in which the GPU ran another kernel too, 0 to 1."""
    meanwhile: tuple[Spell, ...]
    """What the late rank did while the first one waited, the longest first."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(arrival.rank for arrival in self.arrivals)

    @property
    def wait_us(self) -> float:
        """Of the rank that waited longest."""
        return max(arrival.wait_us for arrival in self.arrivals)

    @property
    def waiting_rank(self) -> int:
        return max(self.arrivals, key=lambda arrival: arrival.wait_us).rank

    @property
    def waiting_us(self) -> float:
        """Of all ranks together."""
        return sum(arrival.wait_us for arrival in self.arrivals)

    @property
    def lost_share(self) -> float | None:
        """Of the step, 0 to 1."""
        return min(self.wait_us / self.step_us, 1.0) if self.step_us else None

    @property
    def algorithm_gbps(self) -> float | None:
        """GB/s: S / t, S being the size as nccl-tests counts it (its doc/PERFORMANCE.md): for an all-gather, a
        reduce-scatter and an all-to-all what all ranks have together."""
        if self.bytes is None or not self.transfer_us:
            return None
        together = self.op in (Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL)
        return self.bytes * (len(self.arrivals) if together else 1) / self.transfer_us / 1e3

    @property
    def bus_gbps(self) -> float | None:
        """GB/s over the links, to hold against their peak: x 2 (n - 1) / n for an all-reduce of n ranks, (n - 1) / n
        for an all-gather, a reduce-scatter and an all-to-all (nccl-tests, doc/PERFORMANCE.md)."""
        ranks = len(self.arrivals)
        share = (ranks - 1) / ranks
        factors = {Op.ALL_REDUCE: 2 * share, Op.ALL_GATHER: share, Op.REDUCE_SCATTER: share, Op.ALL_TO_ALL: share}
        return None if self.algorithm_gbps is None else self.algorithm_gbps * factors.get(self.op, 1.0)


@dataclass(frozen=True)
class RankTotals:
    """A rank in all collectives."""

    rank: Rank
    collectives: int
    late: int
    """Of how many it was the last to start."""
    delay_us: float
    """How long the first ones waited for it in these, summed."""
    wait_us: float
    """That it waited itself."""
    communication_us: float
    """In which a communication kernel ran, waiting included."""
    overlap: float
    """Share of that in which another kernel ran too, 0 to 1."""
    compute_us: float
    """In which another kernel ran."""
    lost_share: float | None
    """wait_us over the steps with collectives; without repeating ranges over the time from the first collective to the
    last."""


@dataclass(frozen=True)
class Cause:
    """What a late rank did while others waited, in all collectives."""

    rank: int
    doing: Doing
    name: str
    range: str
    us: float
    collectives: int
    share: float
    """Of the delays that its rank caused, 0 to 1."""


@dataclass(frozen=True)
class Comm:
    """What ``fiprof comm`` shows of a run."""

    ranks: tuple[RankTotals, ...]
    causes: tuple[Cause, ...]
    """The longest first."""
    collectives: tuple[Collective, ...]
    """By the last rank's start."""
    charts: tuple[RankChart, ...]
    """From the first collective to the last, then the step with the longest wait."""
    warnings: tuple[Finding, ...]

    @property
    def worst(self) -> list[Collective]:
        """By how long a rank waited."""
        return sorted(self.collectives, key=lambda each: -each.wait_us)


CELLS = 60
"""Pieces of a rank's track."""


def comm(run: Run, *, cells: int = CELLS) -> Comm:
    """The communication of a run. cells: pieces of a track. Raises FiprofError for a table that cannot be read."""
    ranks = ranks_of(run)
    if not run.has("kernels") or not ranks.several:
        missing = (
            finding(
                "one_rank",
                "no communication: the run has one rank. Several processes with a GPU each are ranks, under one "
                "nsys or as one trace each",
            )
            if run.has("kernels")
            else finding("no_trace", "no communication: {why}", why=run.missing("nsys"))
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
        yield finding(
            "no_communication",
            "no communication: the trace has no kernels of NCCL or another library that communicates",
        )
        return
    if not (kernels.communicator != UNKNOWN).any():
        yield finding(
            "no_payload",
            "sizes and communicators are unknown: the trace lacks the payloads of NCCL's NVTX ranges (nsys export "
            "--include-json=true, NCCL 2.19 or later, --trace=nvtx)",
        )
    if len(matched.alone):
        yield finding(
            "alone",
            "{count} of {of} communication kernels have no partner: point to point, outside the other ranks' "
            "traces, or lost. No waiting is counted for them",
            count=len(matched.alone),
            of=len(kernels),
        )
    lacking = [each for each in collectives if each.missing]
    if lacking:
        ranks = tuple(sorted({rank for each in lacking for rank in each.missing}))
        yield finding(
            "incomplete",
            "{count} of {of} collectives lack kernels of {ranks:rank|ranks}: the trace ends before them, or the "
            "rank never came",
            count=len(lacking),
            of=len(collectives),
            ranks=ranks,
        )
    for clock in found:
        words = (
            "the clock of trace {file} is within {error_us:,.0f} µs of the first one's, by the collectives that "
            "both have"
        )
        if clock.shift_ns:
            words = (
                "the clock of trace {file} was moved by {shift_us:,.1f} µs: by the session's start time collectives "
                "would end before they begin. It is within {error_us:,.0f} µs now"
            )
        values = {"file": clock.file, "shift_us": clock.shift_ns / 1e3, "error_us": clock.error_ns / 1e3}
        yield finding("clock_off" if clock.shift_ns else "clock", words, **values)


def charts(
    collectives: Sequence[Collective], matched: Matched, shares: Shares, ranks: Ranks, cells: int
) -> Iterator[RankChart]:
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
    edges = np.linspace(begin, end, cells + 1).astype(np.int64)
    width = (end - begin) / cells or 1.0
    tracks = []
    for rank in (rank.rank for rank in ranks.all):
        compute = within(shares.compute[rank], edges[:-1], edges[1:]) / width
        both = union(
            *(np.concatenate(pair) for pair in zip(shares.compute[rank], shares.communicate[rank], strict=True))
        )
        with_wait = union(*(np.concatenate(pair) for pair in zip(shares.compute[rank], shares.wait[rank], strict=True)))
        waits = within(with_wait, edges[:-1], edges[1:]) / width - compute
        transfers = within(both, edges[:-1], edges[1:]) / width - compute - waits
        tracks.append(RankTrack(rank, *(tuple(np.clip(each, 0, 1).tolist()) for each in (compute, transfers, waits))))
    return RankChart(begin / 1e3, end / 1e3, tuple(tracks), number)
