"""When a GPU worked, and why it did not: what the thread did meanwhile that launched the next piece of work."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fiprof.analysis.host import NOTHING, Phases, Stretches, by_thread, innermost, nothing, phases, thread_keys
from fiprof.analysis.launched import calls_of, columns, kernel_calls
from fiprof.model import tables
from fiprof.model.run import Run
from fiprof.model.unions import union_by

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fiprof.analysis.host import Ints

LAUNCHES = re.compile(r"cu(da)?(Launch|GraphLaunch)")
SYNCHRONIZES = re.compile(r"cu(da)?\w*(Synchronize|StreamWaitEvent)|cu(da)?(Stream|Event)Query")
COPIES = re.compile(r"cu(da)?(Memcpy|Memset)")


PIECE = 1 << 19
"""Gaps that are looked at together: there may be as many as kernels."""


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


@dataclass(frozen=True)
class _Work:
    """The kernels, copies and sets of one GPU, by start."""

    device: int
    starts: Ints
    ends: Ints
    rows: Ints
    """Row in ``kernels``; of a copy -1 - its row in ``copies``."""


def activities(run: Run) -> tuple[Activity, ...]:
    """What each GPU did; none without nsys. Raises FiprofError for a table that cannot be read."""
    return tuple(activity for activity, _ in run.once(_measured))


def idle(run: Run) -> tuple[Idle, ...]:
    """Why each GPU did nothing, the most time first."""
    found = [each for _, causes in run.once(_measured) for each in causes]
    return tuple(sorted(found, key=lambda each: -each.total_ns))


def _measured(run: Run) -> list[tuple[Activity, list[Idle]]]:
    host = _Host(run)
    return [_device(run, device, host) for device in _devices(run)]


def _devices(run: Run) -> list[int]:
    """The GPUs that ran kernels."""
    import numpy as np

    found: list[int] = np.unique(columns(run, "kernels", ("device",))[0]).tolist() if run.has("kernels") else []
    return found


def _work(run: Run, device: int) -> _Work:
    import numpy as np

    pieces: list[tuple[Ints, Ints, Ints]] = []
    for name in ("kernels", "copies"):
        if run.has(name):
            mine = np.flatnonzero(columns(run, name, ("device",))[0] == device)
            starts, ends = (column[mine] for column in columns(run, name, ("start_ns", "end_ns")))
            pieces.append((starts, ends, mine if name == "kernels" else -1 - mine))
    starts, ends, rows = (np.concatenate(each) if len(pieces[-1][0]) else each[0] for each in zip(*pieces, strict=True))
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends, rows = starts[order], ends[order], rows[order]
    return _Work(device, starts, ends, rows)


def _device(run: Run, device: int, host: _Host) -> tuple[Activity, list[Idle]]:
    import numpy as np

    work = _work(run, device)
    reached = np.maximum.accumulate(work.ends)
    opens = np.flatnonzero(work.starts[1:] > reached[:-1]) + 1
    begins, stops = reached[opens - 1], work.starts[opens]
    idle_ns = int((stops - begins).sum())
    first_ns, window_ns, rows = int(work.starts[0]), int(reached[-1] - work.starts[0]), work.rows[opens]
    kernels_ns, copies_ns = _covered(work, work.rows >= 0), _covered(work, work.rows < 0)
    del work, reached, opens
    activity = Activity(
        device=device,
        start_ns=first_ns,
        window_ns=window_ns,
        kernels_ns=kernels_ns,
        side_by_side_ns=_side_by_side(run, device),
        copies_ns=copies_ns,
        only_copies_ns=window_ns - idle_ns - kernels_ns,
        idle_ns=idle_ns,
        gaps=len(rows),
    )
    times = host.causes(begins, stops, rows)
    return activity, [Idle(device, *cause, total_ns=ns, share=ns / window_ns) for cause, ns in times.items() if ns]


def _covered(work: _Work, which: npt.NDArray[np.bool_]) -> int:
    """The time in which at least one of some works runs."""
    import numpy as np

    starts, ends = (work.starts, work.ends) if which.all() else (work.starts[which], work.ends[which])
    if not len(starts):
        return 0
    reached = np.maximum.accumulate(ends)
    gaps = starts[1:] - reached[:-1]
    return int(reached[-1] - starts[0] - gaps[gaps > 0].sum())


def _side_by_side(run: Run, device: int) -> int:
    """The time in which kernels of two streams or more of a GPU ran."""
    import numpy as np

    devices, streams, pids = columns(run, "kernels", ("device", "stream", "pid"))
    here = devices == device
    streams = (pids << 32 | streams)[here]
    if len(np.unique(streams)) < 2:
        return 0
    _, starts, ends = union_by(streams, *(each[here] for each in columns(run, "kernels", ("start_ns", "end_ns"))))
    moments = np.concatenate([starts, ends])
    order = np.argsort(moments, kind="stable")
    several = np.cumsum(np.repeat([1, -1], len(starts))[order]) > 1
    return int(np.diff(moments[order])[several[:-1]].sum())


Key = tuple[Cause, str | None, str | None]
"""Cause, call and range."""


class _Host:
    """What the launching threads did when."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.phases: Phases = phases(run)
        self.names: list[str] = []
        self.calls: dict[int, Stretches] = {}
        if run.has("api"):
            name = tables.read(run.tables_path, "api", ["name"]).unify_dictionaries()["name"].combine_chunks()
            self.names = name.dictionary.to_pylist()
            self.starts, self.ends = columns(run, "api", ("start_ns", "end_ns"))
            self.threads = thread_keys(*columns(run, "api", ("pid", "tid")))
            grouped = by_thread(self.threads, self.starts, self.ends, name.indices.to_numpy())
            self.calls = {thread: innermost(*each) for thread, each in grouped}

    def causes(self, begins: Ints, stops: Ints, rows: Ints) -> dict[Key, int]:
        """Why nothing ran between these moments. rows: of the work that then began, see ``_Work``."""
        found: dict[Key, int] = defaultdict(int)
        for at in range(0, len(rows), PIECE):
            piece = slice(at, at + PIECE)
            self._causes(begins[piece], stops[piece], rows[piece], found)
        return found

    def _causes(self, begins: Ints, stops: Ints, rows: Ints, found: dict[Key, int]) -> None:
        import numpy as np

        threads, from_, to = (np.full(len(rows), NOTHING) for _ in range(3))
        for kernels, mine in ((True, rows >= 0), (False, rows < 0)):
            if self.calls and mine.any():
                calls = self.run.once(kernel_calls) if kernels else calls_of(self.run, "copies")
                call = calls[rows[mine] if kernels else -1 - rows[mine]]
                for each, of_call in ((threads, self.threads), (from_, self.starts), (to, self.ends)):
                    each[mine] = np.where(call != NOTHING, of_call[call], NOTHING)
        for thread in np.unique(threads).tolist():
            here = threads == thread
            if thread == NOTHING:
                found[Cause.UNKNOWN, None, None] += int((stops - begins)[here].sum())
            else:
                self._of_thread(thread, begins[here], stops[here], from_[here], to[here], found)

    def _of_thread(self, thread: int, begins: Ints, stops: Ints, from_: Ints, to: Ints, found: dict[Key, int]) -> None:
        """Split gaps by what their launching thread did. from_, to: begin and end of the launching calls."""
        import numpy as np

        ranges = self.phases.threads.get(thread, nothing())
        calls = self.calls.get(thread, nothing())
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
        for key, ns in _sums(labels * (len(self.phases.paths) + 1) + places + 1, lengths).items():
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
