"""When a GPU worked, and why it did not: what the thread did meanwhile that launched the next piece of work."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fiprof.analysis.host import NOTHING, Phases, Stretches, nothing, phases
from fiprof.analysis.launched import calls, kernel_calls, pieces
from fiprof.model.arrays import numbers
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.unions import union_by

if TYPE_CHECKING:
    from fiprof.analysis.host import Ints

LAUNCHES = re.compile(r"cu(da)?(Launch|GraphLaunch)")
SYNCHRONIZES = re.compile(r"cu(da)?\w*(Synchronize|StreamWaitEvent)|cu(da)?(Stream|Event)Query")
COPIES = re.compile(r"cu(da)?(Memcpy|Memset)")


class Cause(StrEnum):
    """Why a GPU had nothing to run."""

    LAUNCH = "launch"
    """The call that launches the next work was under way, or the work was on its way to the GPU."""
    SYNCHRONIZATION = "synchronization"
    """The launching thread was still in a call that waits for the GPU."""
    COPY_CALL = "copy_call"
    """It was in a call that copies or sets memory."""
    CALL = "call"
    """It was in another CUDA call: allocating, loading code, creating streams."""
    HOST = "host"
    """It was in no CUDA call: the host's own work."""
    HOST_AFTER_WAIT = "host_after_wait"
    """The same, after a call that had waited for the GPU to be done."""
    OUTSIDE_RANGES = "outside_ranges"
    """The same, outside every NVTX range of a program that has ranges: nothing to do, or work that is not marked."""
    UNKNOWN = "unknown"
    """The call that launched the next work was not traced."""


@dataclass(frozen=True)
class Idle:
    """Time in which a GPU ran nothing, of one cause."""

    rank: int | None
    """Of the GPU; None in a run of one rank, and where several ran on it."""
    device: int
    cause: Cause
    call: str | None
    """The CUDA call; of HOST_AFTER_WAIT the one before. None where it does not matter."""
    range: str | None
    """NVTX range of the launching thread, outermost first; None outside all."""
    total_ns: int
    share: float
    """Of the GPU's time from its first work to its last, 0 to 1."""


@dataclass(frozen=True)
class Activity:
    """What a GPU did from its first work to its last."""

    rank: int | None
    """As in Idle."""
    device: int
    start_ns: int
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


def activities(run: Run) -> tuple[Activity, ...]:
    """What each GPU did; none without nsys. Raises FiprofError for a table that cannot be read."""
    return tuple(activity for activity, _ in run.once(_measured))


def idle(run: Run) -> tuple[Idle, ...]:
    """Why each GPU did nothing, the most time first."""
    found = [each for _, causes in run.once(_measured) for each in causes]
    return tuple(sorted(found, key=lambda each: -each.total_ns))


def _measured(run: Run) -> list[tuple[Activity, list[Idle]]]:
    import numpy as np

    host, gpus, at = _Host(run), {}, 0
    if not run.has("kernels"):
        return []
    started_by = kernel_calls(run)
    for piece in pieces(run, "kernels", ("start_ns", "end_ns", "device", "stream", "pid")):
        starts, ends, devices, streams, pids = map(numbers, piece.columns)
        streams = pids << 32 | streams
        columns = starts, ends, streams, started_by[at : at + piece.num_rows]
        alone = devices.min() == devices.max()
        for device in [int(devices[0])] if alone else np.unique(devices).tolist():
            mine = columns if alone else [column[devices == device] for column in columns]
            if device not in gpus:
                gpus[device] = _Gpu(ranks_of(run).on(device), device, int(mine[0][0]), host)
            gpus[device].take(*mine)
        at += piece.num_rows
    return [gpus[device].close() for device in sorted(gpus)]


class _Gpu:
    """A GPU's work as it comes, by start: kernels in pieces, and the copies beside them."""

    def __init__(self, rank: int | None, device: int, first_ns: int, host: _Host) -> None:
        import numpy as np

        self.rank, self.device, self.host = rank, device, host
        starts, ends, calls = host.copies(device)
        self.copies = starts, ends, calls
        self.first_ns = min([first_ns, *starts[:1].tolist()])
        self.reached = self.kernels_reached = self.first_ns
        self.kernels_ns = self.idle_ns = self.side_by_side_ns = self.gaps = 0
        self.copies_ns = _covered(starts, ends, self.first_ns)[0]
        self.causes: dict[Key, int] = defaultdict(int)
        self.open = (np.empty(0, np.int64),) * 3
        """Kernels that were not at their end where the last piece ended: streams, starts and ends."""

    def take(self, starts: Ints, ends: Ints, streams: Ints, calls: Ints) -> None:
        """The next kernels."""
        import numpy as np

        covered_ns, self.kernels_reached = _covered(starts, ends, self.kernels_reached)
        self.kernels_ns += covered_ns
        self._side_by_side(streams, starts, ends, int(starts[-1]))
        count = int(np.searchsorted(self.copies[0], starts[-1], side="right"))
        pairs = zip((starts, ends, calls), self.copies, strict=True)
        self._work(*(np.concatenate([mine, copies[:count]]) if count else mine for mine, copies in pairs))
        self.copies = tuple(each[count:] for each in self.copies)  # type: ignore[assignment]

    def close(self) -> tuple[Activity, list[Idle]]:
        """What it did in all."""
        import numpy as np

        self._work(*self.copies)
        nothing = np.empty(0, np.int64)
        self._side_by_side(nothing, nothing, nothing, np.iinfo(np.int64).max)
        window_ns = self.reached - self.first_ns
        activity = Activity(
            rank=self.rank,
            device=self.device,
            start_ns=self.first_ns,
            window_ns=window_ns,
            kernels_ns=self.kernels_ns,
            side_by_side_ns=self.side_by_side_ns,
            copies_ns=self.copies_ns,
            only_copies_ns=window_ns - self.idle_ns - self.kernels_ns,
            idle_ns=self.idle_ns,
            gaps=self.gaps,
        )
        return activity, [
            Idle(self.rank, self.device, *cause, total_ns=ns, share=ns / window_ns)
            for cause, ns in self.causes.items()
            if ns
        ]

    def _work(self, starts: Ints, ends: Ints, calls: Ints) -> None:
        """The next kernels and copies: the gaps before them."""
        import numpy as np

        if not len(starts):
            return
        if (starts[1:] < starts[:-1]).any():
            order = np.argsort(starts, kind="stable")
            starts, ends, calls = starts[order], ends[order], calls[order]
        reached = np.maximum(np.maximum.accumulate(ends), self.reached)
        before = np.append(self.reached, reached[:-1])
        opens = starts > before
        self.gaps += int(opens.sum())
        self.idle_ns += int((starts - before)[opens].sum())
        self.host.causes(before[opens], starts[opens], calls[opens], self.causes)
        self.reached = int(reached[-1])

    def _side_by_side(self, streams: Ints, starts: Ints, ends: Ints, until: int) -> None:
        """Count the time, to a moment that no later kernel begins before, in which two streams or more had a kernel."""
        import numpy as np

        streams, starts, ends = map(np.concatenate, zip(self.open, (streams, starts, ends), strict=True))
        later = ends > until
        self.open = streams[later], np.maximum(starts[later], until), ends[later]
        if len(streams) and (streams != streams[0]).any():
            _, starts, ends = union_by(streams, np.minimum(starts, until), np.minimum(ends, until))
            moments = np.concatenate([starts, ends])
            order = np.argsort(moments, kind="stable")
            several = np.cumsum(np.repeat([1, -1], len(starts))[order]) > 1
            self.side_by_side_ns += int(np.diff(moments[order])[several[:-1]].sum())


def _covered(starts: Ints, ends: Ints, reached: int) -> tuple[int, int]:
    """The time after a moment in which at least one of some intervals, by start, holds; and when the last one ends."""
    import numpy as np

    if not len(starts):
        return 0, reached
    until = np.maximum(np.maximum.accumulate(ends), reached)
    before = np.append(reached, until[:-1])
    return int(np.maximum(ends - np.maximum(starts, before), 0).sum()), int(until[-1])


Key = tuple[Cause, str | None, str | None]
"""Cause, call and range."""


class _Host:
    """What the launching threads did when."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.phases: Phases = phases(run)
        self.calls = calls(run)
        self.names = list(self.calls.names[0])
        self.keys = list(self.calls.threads[0])
        self.stretches: dict[int, Stretches] = self.calls.stretches()

    def copies(self, device: int) -> tuple[Ints, Ints, Ints]:
        """Starts, ends and calls of a GPU's copies and memory sets, by start."""
        import numpy as np

        names = ("start_ns", "end_ns", "device")
        found = [[*map(numbers, piece.columns)] for piece in pieces(self.run, "copies", names)]
        if not found:
            return (np.empty(0, np.int64),) * 3
        starts, ends, devices = map(np.concatenate, zip(*found, strict=True))
        mine = np.flatnonzero(devices == device)
        mine = mine[np.argsort(starts[mine], kind="stable")]
        return starts[mine], ends[mine], self.calls.of("copies")[mine]

    def causes(self, begins: Ints, stops: Ints, rows: Ints, found: dict[Key, int]) -> None:
        """Add up why nothing ran between these moments. rows: of the calls that launched the work that then began."""
        import numpy as np

        known = rows != NOTHING
        found[Cause.UNKNOWN, None, None] += int((stops - begins)[~known].sum())
        begins, stops, rows = begins[known], stops[known], rows[known]
        threads = self.calls.threads[1][rows] if len(rows) else rows
        for thread in np.unique(threads).tolist():
            here = threads == thread
            mine = rows[here]
            self._of_thread(
                self.keys[thread], begins[here], stops[here], self.calls.starts[mine], self.calls.ends[mine], found
            )

    def _of_thread(self, thread: int, begins: Ints, stops: Ints, from_: Ints, to: Ints, found: dict[Key, int]) -> None:
        """Split gaps by what their launching thread did. from_, to: begin and end of the launching calls."""
        import numpy as np

        ranges = self.phases.threads.get(thread, nothing())
        calls = self.stretches.get(thread, nothing())
        called, returned = np.clip(from_, begins, stops), np.clip(to, begins, stops)
        at_begin = calls.at(begins)
        for waited in np.unique(at_begin).tolist():
            call = self.names[waited] if waited != NOTHING else ""
            after = call if SYNCHRONIZES.match(call) else None
            mine = at_begin == waited
            # In the launching call and in those before it: each call by itself.
            starts, ends, labels = calls.overlaps(begins[mine], returned[mine])
            places = ranges.at(starts)
            self._add_calls(labels, places, ends - starts, found)
            # Before the launching call, in no call.
            host: dict[int, int] = _sums(*_of_ranges(ranges, begins[mine], called[mine]))
            host[NOTHING] = int((called - begins)[mine].sum()) - sum(host.values())
            before = starts < np.repeat(called[mine], _counts(calls, begins[mine], returned[mine]))
            for place, ns in _sums(places[before], (ends - starts)[before]).items():
                host[place] = host.get(place, 0) - ns
            for place, ns in host.items():
                found[self._host_cause(place, after)] += ns
        # In the launching call, in no call of the trace: nothing; after it, on the way to the GPU.
        late = _sums(ranges.at(from_), stops - returned)
        for place, ns in late.items():
            found[Cause.LAUNCH, None, self._path(place)] += ns

    def _add_calls(self, labels: Ints, places: Ints, lengths: Ints, found: dict[Key, int]) -> None:
        for key, ns in _sums(labels.astype(int) * (len(self.phases.paths) + 1) + places + 1, lengths).items():
            label, place = divmod(key, len(self.phases.paths) + 1)
            call = self.names[label]
            if LAUNCHES.match(call):
                found[Cause.LAUNCH, None, self._path(place - 1)] += ns
            elif SYNCHRONIZES.match(call):
                found[Cause.SYNCHRONIZATION, call, self._path(place - 1)] += ns
            else:
                cause = Cause.COPY_CALL if COPIES.match(call) else Cause.CALL
                found[cause, call, self._path(place - 1)] += ns

    def _host_cause(self, place: int, after: str | None) -> Key:
        if place == NOTHING and self.phases.paths:
            return Cause.OUTSIDE_RANGES, None, None
        return (Cause.HOST_AFTER_WAIT if after else Cause.HOST), after, self._path(place)

    def _path(self, place: int) -> str | None:
        return None if place == NOTHING else self.phases.paths[place]


def _of_ranges(ranges: Stretches, begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The labels of the ranges that some intervals meet, and for how long."""
    starts, stops, labels = ranges.overlaps(begins, ends)
    return labels, stops - starts


def _counts(stretches: Stretches, starts: Ints, ends: Ints) -> Ints:
    """How many stretches each interval meets, as ``overlaps`` gives them."""
    import numpy as np

    first = np.searchsorted(stretches.ends, starts, side="right")
    count: Ints = np.maximum(np.searchsorted(stretches.starts, ends, side="left") - first, 0)
    return count


def _sums(keys: Ints, values: Ints) -> dict[int, int]:
    """The sum of the values of each key."""
    import numpy as np

    if not len(keys):
        return {}
    # Keys are few and from NOTHING on. Exact below 2^53 ns, 104 days.
    sums = np.bincount(keys - NOTHING, values)
    there = np.flatnonzero(sums)
    return dict(zip((there + NOTHING).tolist(), sums[there].astype(np.int64).tolist(), strict=True))
