"""When a GPU worked, and why it did not: what the thread did meanwhile that launched the next piece of work."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.analysis.frames import Column, Narrow
from fiprof.analysis.trace import calls, kernel_calls, phases
from fiprof.model.arrays import numbers
from fiprof.model.finding import Worded
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.spans import NOTHING, Stretches, side_by_side, split, union

if TYPE_CHECKING:
    from fiprof.model.arrays import Ints


class Cause(Worded):
    """Why a GPU had nothing to run."""

    LAUNCH = "launch", "launching"
    """The call that launches the next work was under way, or the work was on its way to the GPU."""
    SYNCHRONIZATION = "synchronization", "waiting for the GPU"
    """The launching thread was still in a call that waits for the GPU."""
    COPY_CALL = "copy_call", "copy call"
    """It was in a call that copies or sets memory."""
    CALL = "call", "CUDA call"
    """It was in another CUDA call: allocating, loading code, creating streams."""
    HOST = "host", "host work"
    """It was in no CUDA call: the host's own work."""
    HOST_AFTER_WAIT = "host_after_wait", "host work after waiting"
    """The same, after a call that had waited for the GPU to be done."""
    OUTSIDE_RANGES = "outside_ranges", "outside every range"
    """The same, outside every NVTX range of a program that has ranges: nothing to do, or work that is not marked."""
    UNKNOWN = "unknown", "not traced"
    """The call that launched the next work was not traced."""


CALLS = (
    (Cause.LAUNCH, re.compile(r"cu(da)?(Launch|GraphLaunch)")),
    (Cause.SYNCHRONIZATION, re.compile(r"cu(da)?\w*(Synchronize|StreamWaitEvent)|cu(da)?(Stream|Event)Query")),
    (Cause.COPY_CALL, re.compile(r"cu(da)?(Memcpy|Memset)")),
    (Cause.CALL, re.compile("")),
)
"""What a thread does in a call, by the first of these that its name begins with."""

RANK, DEVICE = Column("rank", "rank"), Column("device", "GPU")
IDLE = (
    RANK,
    DEVICE,
    Column("cause", "cause"),
    Column("call", "call"),
    Column("range", "range", narrow=Narrow.BELOW),
    Column("total_ms", "time", "ms", ",.3f"),
    Column("share", "share", spec=".1%"),
)


@dataclass(frozen=True)
class Activity:
    """What a GPU did from its first work to its last."""

    rank: int | None
    """Rank of the GPU; None in a run of one rank, and where several ran on it."""
    device: int
    window_ns: int
    kernels_ns: int
    """In which at least one kernel ran."""
    side_by_side_ns: int
    """In which kernels of two streams or more ran."""
    copies_ns: int
    """In which a copy or a memory set ran."""
    only_copies_ns: int
    """In which one ran and no kernel."""
    idle_ns: int
    gaps: int
    """Stretches without any work."""


Causes = dict[tuple[Cause, str | None, str | None], int]
"""Cause, call and range -> ns."""


def activities(run: Run) -> tuple[Activity, ...]:
    """What each GPU did; none without nsys. Raises FiprofError for a table that cannot be read."""
    return tuple(activity for activity, _ in run.once(_measured))


def idle(run: Run) -> list[dict[str, Any]]:
    """Why each GPU did nothing, the most time first: rows of IDLE, with their time as ``total_ns`` too.

    share: of the GPU's time from its first work to its last, 0 to 1. range: of the launching thread, outermost first;
    None outside all. call: of HOST_AFTER_WAIT the one before; None where it does not matter.
    """
    rows = [
        {
            "rank": activity.rank, "device": activity.device, "cause": cause, "call": call, "range": range_,
            "total_ns": ns, "total_ms": ns / 1e6, "share": ns / activity.window_ns,
        }
        for activity, causes in run.once(_measured)
        for (cause, call, range_), ns in causes.items()
        if ns
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row["total_ns"])


def _measured(run: Run) -> list[tuple[Activity, Causes]]:
    """What each GPU did, and why it was idle. Kernels come in pieces, by start."""
    import numpy as np

    started_by = kernel_calls(run)
    found = [[*map(numbers, piece.columns)] for piece in run.pieces("copies", ("start_ns", "end_ns", "device"))]
    copies = [*map(np.concatenate, zip(*found, strict=True))] if found else [np.empty(0, np.int64)] * 3
    order = np.argsort(copies[0], kind="stable")
    copies = [column[order] for column in (*copies, calls(run).of("copies"))]
    host, gpus, at = _Host(run), dict[int, _Gpu](), 0
    for piece in run.pieces("kernels", ("start_ns", "end_ns", "device", "stream", "pid")):
        starts, ends, devices, streams, pids = map(numbers, piece.columns)
        columns = starts, ends, started_by[at : (at := at + piece.num_rows)], pids << 32 | streams
        for device, rows in split(devices):
            if device not in gpus:
                of_device = copies[2] == device
                gpus[device] = _Gpu(host, int(starts[rows][0]), *(copies[column][of_device] for column in (0, 1, 3)))
            gpus[device].take(*(column[rows] for column in columns))
    return [(gpu.activity(ranks_of(run).on(device), device), gpu.causes) for device, gpu in sorted(gpus.items())]


class _Gpu:
    """A GPU's work as it comes, by start: kernels in pieces, and the copies beside them."""

    def __init__(self, host: _Host, first_ns: int, *copies: Ints) -> None:
        """first_ns: start of the first kernel. copies: starts, ends and calls, by start."""
        import numpy as np

        self.host, self.copies = host, copies
        self.first_ns = min([first_ns, *copies[0][:1].tolist()])
        self.reached = self.kernels_reached = self.first_ns
        self.kernels_ns = self.idle_ns = self.side_by_side_ns = self.gaps = 0
        begins, stops = union(*copies[:2])
        self.copies_ns = int((stops - begins).sum())
        self.causes: Causes = defaultdict(int)
        self.open = (np.empty(0, np.int64),) * 3
        """Kernels that were not at their end where the last piece ended: streams, starts and ends."""

    def take(self, starts: Ints, ends: Ints, calls: Ints, streams: Ints) -> None:
        """The next kernels."""
        import numpy as np

        begins, stops = union(starts, ends, since=self.kernels_reached)
        self.kernels_ns += int((stops - begins).sum())
        self.kernels_reached = max(self.kernels_reached, int(ends.max()))
        self._side_by_side(streams, starts, ends, int(starts[-1]))
        count = int(np.searchsorted(self.copies[0], starts[-1], side="right"))
        before, self.copies = [each[:count] for each in self.copies], tuple(each[count:] for each in self.copies)
        work = (starts, ends, calls)
        self._explain(*map(np.concatenate, zip(work, before, strict=True)) if count else work)

    def activity(self, rank: int | None, device: int) -> Activity:
        """What it did in all."""
        import numpy as np

        self._explain(*self.copies)
        self._side_by_side(*(np.empty(0, np.int64),) * 3, np.iinfo(np.int64).max)
        window_ns = self.reached - self.first_ns
        return Activity(
            rank=rank,
            device=device,
            window_ns=window_ns,
            kernels_ns=self.kernels_ns,
            side_by_side_ns=self.side_by_side_ns,
            copies_ns=self.copies_ns,
            only_copies_ns=window_ns - self.idle_ns - self.kernels_ns,
            idle_ns=self.idle_ns,
            gaps=self.gaps,
        )

    def _explain(self, starts: Ints, ends: Ints, calls: Ints) -> None:
        """The gaps before the next kernels and copies."""
        import numpy as np

        if not len(starts):
            return
        if (starts[1:] < starts[:-1]).any():
            order = np.argsort(starts, kind="stable")
            starts, ends, calls = starts[order], ends[order], calls[order]
        until = np.maximum.accumulate(np.append(self.reached, ends))
        opens = np.flatnonzero(starts > until[:-1])
        self.gaps += len(opens)
        self.idle_ns += int((starts[opens] - until[opens]).sum())
        self.host.explain(until[opens], starts[opens], calls[opens], self.causes)
        self.reached = int(until[-1])

    def _side_by_side(self, streams: Ints, starts: Ints, ends: Ints, until: int) -> None:
        """Count the time, to a moment that no later kernel begins before, in which two streams or more had a kernel."""
        import numpy as np

        streams, starts, ends = map(np.concatenate, zip(self.open, (streams, starts, ends), strict=True))
        later = ends > until
        self.open = streams[later], np.maximum(starts[later], until), ends[later]
        if len(streams) and np.ptp(streams):
            begins, stops = side_by_side(streams, np.minimum(starts, until), np.minimum(ends, until))
            self.side_by_side_ns += int((stops - begins).sum())


class _Host:
    """What the launching threads did when."""

    def __init__(self, run: Run) -> None:
        import numpy as np

        self.phases, self.calls = phases(run), calls(run)
        self.threads = {number: key for key, number in self.calls.threads.items()}
        self.kinds = [next(cause for cause, begins in CALLS if begins.match(name)) for name in self.calls.names]
        """Cause that each call's name stands for."""
        self.waits = np.array([cause is Cause.SYNCHRONIZATION for cause in self.kinds] + [False])
        """Of each name, and of no call, whether it waits for the GPU."""

    def explain(self, begins: Ints, stops: Ints, rows: Ints, causes: Causes) -> None:
        """Add up why nothing ran between these moments. rows: of the calls that launched the work that then began."""

        known = rows != NOTHING
        if not known.all():
            causes[Cause.UNKNOWN, None, None] += int((stops - begins)[~known].sum())
            begins, stops, rows = begins[known], stops[known], rows[known]
        for thread, here in split(self.calls.thread[rows]):
            of_calls = (self.calls.starts[rows[here]], self.calls.ends[rows[here]])
            self._of_thread(thread, begins[here], stops[here], *of_calls, causes)

    def _of_thread(self, thread: int, begins: Ints, stops: Ints, from_: Ints, to: Ints, causes: Causes) -> None:
        """Split gaps by what their launching thread did. from_, to: begin and end of the launching calls."""
        import numpy as np

        nothing = Stretches(*(np.empty(0, np.int64),) * 3)
        ranges = self.phases.threads.get(self.threads[thread], nothing)
        in_calls = self.calls.nested.get(thread, nothing)
        width = len(self.phases.paths) + 1
        called, returned = np.clip(from_, begins, stops), np.clip(to, begins, stops)
        # In the launching call and in those before it: each call by itself.
        of, starts, ends, names = in_calls.overlaps(begins, returned)
        places = ranges.at(starts) + 1
        for key, ns in _sums(names.astype(np.int64) * width + places, ends - starts).items():
            name, label = divmod(key, width)
            call = None if self.kinds[name] is Cause.LAUNCH else self.calls.names[name]
            causes[self.kinds[name], call, self.phases.path(label - 1)] += ns
        # Before the launching call, in no call: in a range or outside all, without what was in a call.
        at_begin = in_calls.at(begins)
        after = np.where(self.waits[at_begin], at_begin + 1, 0).astype(np.int64) * width
        inside, first, last, place = ranges.overlaps(begins, called)
        before = starts < called[of]
        host = _sums(
            np.concatenate([after, after[inside], after[inside] + place + 1, (after[of] + places)[before]]),
            np.concatenate([called - begins, first - last, last - first, (starts - ends)[before]]),
        )
        for key, ns in host.items():
            waited, label = divmod(key, width)
            if not label and self.phases.paths:
                causes[Cause.OUTSIDE_RANGES, None, None] += ns
            elif waited:
                causes[Cause.HOST_AFTER_WAIT, self.calls.names[waited - 1], self.phases.path(label - 1)] += ns
            else:
                causes[Cause.HOST, None, self.phases.path(label - 1)] += ns
        # After the launching call: on the way to the GPU.
        for label, ns in _sums(ranges.at(from_) + 1, stops - returned).items():
            causes[Cause.LAUNCH, None, self.phases.path(label - 1)] += ns


def _sums(keys: Ints, values: Ints) -> dict[int, int]:
    """The sum of the values of each key: small numbers from 0."""
    import numpy as np

    sums = np.bincount(keys, values) if len(keys) else np.empty(0)  # exact below 2^53 ns, 104 days
    there = np.flatnonzero(sums)
    return dict(zip(there.tolist(), sums[there].astype(np.int64).tolist(), strict=True))
