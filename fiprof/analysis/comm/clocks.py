"""The clocks of a run's traces, held together by the collectives that they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fiprof.analysis.comm.kernels import FOREVER, UNKNOWN, Kernels, communication
from fiprof.analysis.comm.matching import Matched, match
from fiprof.model.ranks import COMMUNICATOR, RANK, Ranks, nccl_ranges, payload, ranks_of
from fiprof.model.run import Run


@dataclass(frozen=True)
class Clock:
    """The clock of a trace against that of the first, by collectives with ranks in both.

    A collective ends on no rank before it has begun on all: that bounds how far the clocks can be apart.
    """

    file: int
    shift_ns: int
    """Added to its times, beyond what the sessions' start times say; 0 where they agree with the collectives."""
    error_ns: int
    """How far off its times may still be."""


def clocks(matched: Matched, ranks: Ranks) -> tuple[Clock, ...]:
    """Those of every trace but the first that has collectives with it."""
    import numpy as np

    file = np.array([ranks.files[rank] for rank in matched.ranks])
    there = matched.index != UNKNOWN
    start = np.where(there, matched.kernels.start[matched.index], UNKNOWN) if len(there) else matched.index
    end = np.where(there, matched.kernels.end[matched.index], FOREVER) if len(there) else matched.index
    found = []
    for other in sorted(set(file[file != file[0]].tolist())) if len(file) else ():
        first, second = file == file[0], file == other
        both = there[:, first].any(axis=1) & there[:, second].any(axis=1)
        if not both.any():
            continue
        low = int((start[both][:, first].max(axis=1) - end[both][:, second].min(axis=1)).max())
        high = int((end[both][:, first].min(axis=1) - start[both][:, second].max(axis=1)).min())
        shift = 0
        if not low <= 0 <= high:
            ends = end[both][:, first].min(axis=1) - end[both][:, second].min(axis=1)
            shift = int(np.clip(np.median(ends), min(low, high), max(low, high)))
        found.append(Clock(other, shift, max(abs(high - shift), abs(low - shift))))
    return tuple(found)


def trace_clocks(run: Run) -> tuple[Clock, ...]:
    """The clock of every trace that has collectives with the first; none in a run of one."""
    return run.once(_trace_clocks)


def _trace_clocks(run: Run) -> tuple[Clock, ...]:
    ranks = ranks_of(run)
    if len(set(ranks.files.values())) < 2:
        return ()
    kernels, _ = communication(run)
    return clocks(match(kernels, ranks, local_ranks(run, ranks)), ranks)


def local_ranks(run: Run, ranks: Ranks) -> dict[tuple[int, int], int]:
    """(Rank, communicator) -> its number in the communicator, by what NCCL says when it sets one up."""
    of_process = {rank.pid: rank.rank for rank in ranks.all}
    found = {}
    for row in nccl_ranges(run):
        said, rank = payload(row["payload"]), of_process.get(row["pid"])
        if rank is not None and {COMMUNICATOR, RANK} <= said.keys():
            found[rank, said[COMMUNICATOR] & (1 << 62) - 1] = said[RANK]
    return found


def shifted(kernels: Kernels, ranks: Ranks, found: Sequence[Clock]) -> tuple[Kernels, dict[int, int]]:
    """The kernels on the first trace's clock; and what is added to the times of each rank, ns."""
    import numpy as np

    of_file = {clock.file: clock.shift_ns for clock in found}
    added = {rank: of_file.get(file, 0) for rank, file in ranks.files.items()}
    if not any(added.values()):
        return kernels, added
    by = np.array([added[rank] for rank in kernels.rank.tolist()], np.int64)
    return replace(kernels, start=kernels.start + by, end=kernels.end + by, called=kernels.called + by), added
