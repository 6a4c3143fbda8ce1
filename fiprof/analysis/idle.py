"""When a GPU worked, and why it was idle: by what the thread did that launched the next piece of work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fiprof.analysis.frames import columns
from fiprof.analysis.steady import Steady, steady
from fiprof.analysis.trace import calls, phases
from fiprof.model.arrays import Floats, Ints, Kinds, arrow, coded, numbers
from fiprof.model.finding import Wording
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.selection import sums_by_key
from fiprof.model.spans import LONG_AGO, NOTHING, Stretches, covered, side_by_side, split, union


class IdleCause(Wording):
    """Why a GPU had nothing to run."""

    LAUNCH = "launch", "launching"  # the call that launches the next work is under way, or the work on its way
    GPU = "gpu", "on the GPU"  # the call had returned: the work waited on the GPU, for its turn or another stream
    TURN = "turn", "the GPU changes processes"
    """The work waited for its turn, for the work before was another process's, and its thread waited for the GPU."""
    GRAPH = "graph", "between graph nodes"  # the same, between two nodes of one launch of a CUDA graph
    SYNCHRONIZATION = "synchronization", "waiting for the GPU"
    """The launching thread was still in a call that waits for the GPU."""
    COPY_CALL = "copy_call", "copy call"  # it was in a call that copies or sets memory
    CALL = "call", "CUDA call"  # it was in another CUDA call: allocating, loading code, creating streams
    HOST = "host", "host work"  # it was in no CUDA call: the host's own work
    HOST_AFTER_WAIT = "host_after_wait", "host work after waiting"
    """The same, after a call that had waited for the GPU to be done."""
    OUTSIDE_RANGES = "outside_ranges", "outside every range"
    """The same, outside every NVTX range of a program that has ranges: nothing to do, or work that is not marked."""
    UNKNOWN = "unknown", "not traced"  # the call that launched the next work was not traced


CALLS = (
    (IdleCause.LAUNCH, re.compile(r"cu(da)?(Launch|GraphLaunch)")),
    (IdleCause.SYNCHRONIZATION, re.compile(r"cu(da)?\w*(Synchronize|StreamWaitEvent)|cu(da)?(Stream|Event)Query")),
    (IdleCause.COPY_CALL, re.compile(r"cu(da)?(Memcpy|Memset)")),
    (IdleCause.CALL, re.compile("")),
)
"""What a thread does in a call: by the first of these patterns that matches the beginning of its name."""
FREES = re.compile(r"cu(da)?(Free|MemFree)(?!Async)")  # calls that wait for the GPU too
COPIES = re.compile(r"cu(da)?Memcpy|cu(da)?Memset(?!\w*Async)")  # calls that wait for the GPU where it is busy
ON_ITS_WAY_NS = 5_000
"""From the return of a launch call to its work's start on an idle GPU, at most: on an H200 the median is 2.2 µs and
99 % take less than 3.3 (9,300 launches of the recorded Llama)."""
OWN_WORK_NS = 200_000  # host work longer than PyTorch's between two calls: 99 % of that is below 91 µs (the same)
RANK, DEVICE, _, _, BY_RANGE, _, _ = IDLE = columns("idle")


class Why(NamedTuple):
    """Why a GPU was idle, in detail."""

    cause: IdleCause
    call: str | None = None  # name of a CUDA call; None where it does not matter
    range: str | None = None  # NVTX range of the launching thread, outermost first; None outside all
    drained_in: str | None = None
    """The call in which the launching thread was waiting when the GPU ran out of work; None where it was in none."""
    long: bool = False  # of host work: whether a piece of it takes OWN_WORK_NS or more


class Copying(NamedTuple):
    """A kind of copy that ran without a kernel."""

    kind: str
    memory: str | None  # kind of the host's memory: pageable or pinned; None where it is not known, or none
    range: str | None


@dataclass
class Activity:
    """What a GPU did in all, or inside or outside its steady part."""

    rank: int | None  # rank of the GPU; None in a run of one rank, and where several ran on it
    device: int
    span: tuple[int, int] = (0, 0)  # from the GPU's first work to its last in all, ns
    window_ns: int = 0  # the time that this is about
    kernels_ns: int = 0  # time in which at least one kernel ran
    side_by_side_ns: int = 0  # time in which kernels of two streams or more ran
    copies_ns: int = 0  # time in which a copy or a memory set ran
    idle_ns: int = 0
    gaps: int = 0  # stretches without any work
    switches: int = 0  # how often a kernel was on another stream than the one before
    causes: Counter[Why] = field(default_factory=Counter)  # ns of each
    copies: Counter[Copying] = field(default_factory=Counter)  # ns in which copies ran and no kernel
    streams: Counter[int] = field(default_factory=Counter)  # ns of the kernels of each stream
    host: list[tuple[int, Ints, Ints, Ints]] = field(default_factory=list)
    """Long pieces of host work while it was idle: thread (its key), starts, ends and labels of ranges."""

    @property
    def only_copies_ns(self) -> int:
        """Time in which a copy ran and no kernel."""
        return self.window_ns - self.idle_ns - self.kernels_ns

    def __add__(self, other: Activity) -> Activity:
        place = ("rank", "device", "span")
        sums = {name: of + getattr(other, name) for name, of in vars(self).items() if name not in place}
        return Activity(self.rank, self.device, self.span, **sums)


def idle(run: Run, *, within_steady: bool = False) -> list[dict[str, Any]]:
    """Why each GPU was idle, the most time first: rows of IDLE, with their time also as ``total_ns``.

    within_steady: in its steady part, or in all; ``share`` is of that time. range: of the launching thread, outermost
    first; None outside all. call: of HOST_AFTER_WAIT the one before; None where it does not matter.
    """
    rows = []
    for part in parts(run, within_steady=within_steady).values():
        sums = sums_by_key((why[:3], ns) for why, ns in part.causes.items())
        rows += [
            {
                "rank": part.rank, "device": part.device, "cause": cause, "call": call,
                "range": range_, "total_ns": ns, "total_ms": ns / 1e6, "share": ns / part.window_ns,
            }
            for (cause, call, range_), ns in sums.items()
            if ns
        ]  # fmt: skip
    return sorted(rows, key=lambda row: -row["total_ns"])


def parts(run: Run, *, within_steady: bool = True) -> dict[int, Activity]:
    """GPU -> what it did in its steady part, or in all; empty without nsys."""
    activities = run.once(_activities)
    return {device: inside if within_steady else inside + other for device, (inside, other) in activities.items()}


def outside(run: Run) -> dict[int, Activity]:
    """GPU -> what it did outside its steady part."""
    return {device: other for device, (_, other) in run.once(_activities).items()}


def _activities(run: Run) -> dict[int, tuple[Activity, Activity]]:
    """GPU -> what it did in its steady part and outside it. The table of kernels is read in pieces, by start."""
    started_by, called_by, kinds = calls(run).of("kernels"), calls(run).of("copies"), Kinds()
    stretches: list[list[Ints]] = []
    for piece in run.pieces("copies", ("start_ns", "end_ns", "device", "kind", "memory")):
        before = sum(len(columns[0]) for columns in stretches)
        labels = calls(run).phases_of(called_by[before : before + piece.num_rows])
        stretches.append([*map(numbers, piece.columns[:3]), kinds.of(piece.select(["kind", "memory"]), range=labels)])
    copies = [*map(np.concatenate, zip(*stretches, strict=True))] if stretches else [np.empty(0, np.int64)] * 4
    order = np.argsort(copies[0], kind="stable")
    copies = [column[order] for column in (*copies, called_by)]
    copy_kinds = [Copying(kind or "", memory, phases(run).path(label)) for kind, memory, label in kinds.numbers]
    host, ranks, gpus, at = _Host(run), ranks_of(run), dict[int, _GpuWork](), 0
    for piece in run.pieces("kernels", ("start_ns", "end_ns", "device", "stream", "pid")):
        starts, ends, devices, streams, pids = map(numbers, piece.columns)
        columns = starts, ends, started_by[at : (at := at + piece.num_rows)], pids << 32 | streams
        for device, rows in split(devices):
            if device not in gpus:
                on_device = copies[2] == device
                its_copies = [copies[column][on_device] for column in (0, 1, 4, 3)]
                activity = Activity(ranks.on(device), device)
                gpus[device] = _GpuWork(host, activity, steady(run)[device], int(starts[rows][0]), *its_copies)
            gpus[device].take(*(column[rows] for column in columns))
    return {device: gpu.activities(copy_kinds) for device, gpu in sorted(gpus.items())}


class _GpuWork:
    """Adds up a GPU's work: pieces of its kernels, by start, which :meth:`take` gets, and its copies."""

    def __init__(self, host: _Host, activity: Activity, steady: Steady, first_ns: int, *copies: Ints) -> None:
        """activity: an empty one. first_ns: start of the first kernel. copies: starts, ends, calls, kinds, by start."""
        self.host, self.copies = host, copies[:3]
        edges = np.concatenate([[LONG_AGO], np.column_stack([steady.begins, steady.ends]).ravel(), [-LONG_AGO]])
        lasting = edges[1:] > edges[:-1]
        self.tiles = Stretches(edges[:-1][lasting], edges[1:][lasting], (np.arange(len(edges) - 1) % 2)[lasting])
        """The time as stretches outside (0) and inside (1) the steady part."""
        self.parts = activity, deepcopy(activity)
        self.first_ns = min([first_ns, *copies[0][:1].tolist()])
        self.reached = self.kernels_reached = self.first_ns
        self.last_gap = np.array([[LONG_AGO, self.first_ns]])  # begin and end
        until = np.maximum.accumulate(np.append(self.first_ns, copies[1]))[:-1]
        begins = np.maximum(copies[0], until)
        alone = copies[1] > begins
        self._add("copies_ns", begins[alone], copies[1][alone])
        of, begins, stops, self.copy_parts = self.tiles.overlaps(begins[alone], copies[1][alone])
        self.copy_kinds, self.copy_edges = copies[3][alone][of], np.column_stack([begins, stops]).ravel()
        self.covered = np.zeros(len(self.copy_edges))
        """How much of the time before each of these edges lies in kernels."""
        self.last_call = NOTHING
        self.open = (np.empty(0, np.int64),) * 3
        """Kernels that had not ended where the last piece ended: streams, starts and ends."""

    def _add(self, name: str, begins: Ints, stops: Ints) -> None:
        """Add the length of disjoint intervals to a field of what was done inside and outside the steady part."""
        for part, _, begins_, stops_ in self._split(begins, stops):
            setattr(part, name, getattr(part, name) + int((stops_ - begins_).sum()))

    def _split(self, begins: Ints, stops: Ints) -> Iterator[tuple[Activity, Any, Ints, Ints]]:
        """The parts of disjoint intervals, by start, outside and inside: which interval, begins and ends."""
        if not len(begins):
            return
        first, last = np.searchsorted(self.tiles.starts, [begins[0], stops[-1] - 1], side="right")
        if first == last:
            yield self.parts[self.tiles.labels[first - 1]], slice(None), begins, stops
            return
        of, begins, stops, labels = self.tiles.overlaps(begins, stops)
        for label, part in enumerate(self.parts):
            if (of_label := labels == label).any():
                yield part, of[of_label], begins[of_label], stops[of_label]

    def take(self, starts: Ints, ends: Ints, calls: Ints, streams: Ints) -> None:
        """Add a piece of the kernels."""
        begins, stops = union(starts, ends, since=self.kernels_reached)
        self._add("kernels_ns", begins, stops)
        self.kernels_reached = max(self.kernels_reached, int(ends.max()))
        if len(self.copy_edges) and len(begins):
            first, last = np.searchsorted(self.copy_edges, [begins[0], stops[-1]])
            self.covered[first:last] += covered(begins, stops, self.copy_edges[first:last])
            self.covered[last:] += float((stops - begins).sum())
        labels = self.tiles.at(starts)
        for label, part in enumerate(self.parts):
            if (here := labels == label).any():
                keys, number = coded(arrow(streams[here]))
                part.switches += int((number[1:] != number[:-1]).sum())
                for place, ns in enumerate(np.bincount(number, (ends - starts)[here]).tolist()):
                    part.streams[keys[place]] += int(ns)
        self._side_by_side(streams, starts, ends, int(starts[-1]))
        count = int(np.searchsorted(self.copies[0], starts[-1], side="right"))
        before, self.copies = [each[:count] for each in self.copies], tuple(each[count:] for each in self.copies)
        work = (starts, ends, calls)
        self._explain(*map(np.concatenate, zip(work, before, strict=True)) if count else work)

    def activities(self, kinds: Sequence[Copying]) -> tuple[Activity, Activity]:
        """What it did inside and outside the steady part, after the last piece. kinds: of copies, by number."""
        self._explain(*self.copies)
        self._side_by_side(*(np.empty(0, np.int64),) * 3, np.iinfo(np.int64).max)
        self._add("window_ns", np.array([self.first_ns]), np.array([self.reached]))
        alone = np.diff(self.copy_edges)[::2] - np.diff(self.covered)[::2]
        for label, part in enumerate(self.parts):
            here, part.span = self.copy_parts == label, (self.first_ns, self.reached)
            part.copies.update({kinds[of]: ns for of, ns in _sums(self.copy_kinds[here], alone[here]).items()})
        other, inside = self.parts
        return inside, other

    def _explain(self, starts: Ints, ends: Ints, calls: Ints) -> None:
        """Add the gaps before some pieces of work, with why nothing ran in them."""
        if not len(starts):
            return
        if (starts[1:] < starts[:-1]).any():
            order = np.argsort(starts, kind="stable")
            starts, ends, calls = starts[order], ends[order], calls[order]
        until = np.maximum.accumulate(np.append(self.reached, ends))
        opens = np.flatnonzero(starts > until[:-1])
        last = np.append(self.last_call, calls[:-1])[opens]
        self.last_call, self.reached = int(calls[-1]), int(until[-1])
        calls, gaps = calls[opens], np.append(self.last_gap, np.column_stack([until[opens], starts[opens]]), axis=0)
        self.last_gap = gaps[-1:]
        for part, rows, begins, stops in self._split(until[opens], starts[opens]):
            part.gaps += len(begins)
            part.idle_ns += int((stops - begins).sum())
            self.host.explain(begins, stops, gaps[:-1][rows], calls[rows], last[rows], part)

    def _side_by_side(self, streams: Ints, starts: Ints, ends: Ints, until: int) -> None:
        """Add the time in which two streams or more had a kernel. until: no later kernel begins before this moment."""
        streams, starts, ends = map(np.concatenate, zip(self.open, (streams, starts, ends), strict=True))
        later = ends > until
        self.open = streams[later], np.maximum(starts[later], until), ends[later]
        if len(streams) and np.ptp(streams):
            self._add("side_by_side_ns", *side_by_side(streams, np.minimum(starts, until), np.minimum(ends, until)))


OF_HOST = tuple(map(Why, (IdleCause.HOST, IdleCause.HOST, IdleCause.LAUNCH, IdleCause.GPU, IdleCause.TURN)))
"""Causes outside calls: host work in short and in long pieces, launching, and waiting on the GPU."""


class _Host:
    """What the launching threads did when."""

    def __init__(self, run: Run) -> None:
        self.phases, self.calls = phases(run), calls(run)
        self.threads = {number: key for key, number in self.calls.threads.items()}
        kinds = [next(cause for cause, begins in CALLS if begins.match(name)) for name in self.calls.names]
        self.waits = [cause is IdleCause.SYNCHRONIZATION for cause in kinds]
        self.drains = np.array([*self.waits, False])
        self.frees = np.array([*(bool(FREES.match(name)) for name in self.calls.names), False])
        self.copies = np.array([*(bool(COPIES.match(name)) for name in self.calls.names), False])
        """Of each name of a call, and of none, whether it waits for the GPU, frees memory, or copies."""
        named = zip(kinds, self.calls.names, strict=True)
        self.why = [Why(cause, None if cause is IdleCause.LAUNCH else name) for cause, name in named] + [*OF_HOST]
        nothing = Stretches(*(np.empty(0, np.int64),) * 3)
        self.processes = np.array([self.threads[number] >> 32 for number in range(len(self.threads))], np.int64)
        """The process of each thread, by the thread's number."""
        self.ranges = {number: self.phases.threads.get(key, nothing) for number, key in self.threads.items()}

    def explain(self, begins: Ints, stops: Ints, before: Ints, rows: Ints, last: Ints, part: Activity) -> None:
        """Add up why nothing ran in some gaps, from ``begins`` to ``stops``. before: begin and end of the gap before
        each. rows: of the calls that launched the work after it. last: of those that launched the work before it."""
        has_call = rows != NOTHING
        if not has_call.all():
            part.causes[Why(IdleCause.UNKNOWN)] += int((stops - begins)[~has_call].sum())
            begins, stops, before, rows, last = (each[has_call] for each in (begins, stops, before, rows, last))
        process, last_process = (self.processes[self.calls.thread[of]] for of in (rows, last))
        turned = (process != last_process) & (last != NOTHING) & (self.calls.ends[rows] + ON_ITS_WAY_NS <= begins)
        # While another process has the GPU, a thread that waits for the GPU waits for that process, too.
        called, returned = (np.where(turned, stops, each[rows]) for each in (self.calls.starts, self.calls.ends))
        same_call = last == rows
        for thread, of_thread in split(self.calls.thread[rows]):
            gaps = tuple(each[of_thread] for each in (begins, stops, called, returned, before, turned))
            # Where the launching call had returned long before, the thread does not matter.
            further = same_call[of_thread]
            gone = further | (gaps[3] + ON_ITS_WAY_NS <= gaps[0])
            if gone.any():
                from_, ns = gaps[2][gone], (gaps[1] - gaps[0])[gone]
                for key, total in _sums(2 * (self.ranges[thread].at(from_) + 1) + further[gone], ns).items():
                    cause = IdleCause.GRAPH if key % 2 else IdleCause.GPU
                    part.causes[Why(cause, range=self.phases.path(key // 2 - 1))] += total
                gaps = tuple(each[~gone] for each in gaps)
            if len(gaps[0]):
                self._of_thread(part, thread, *gaps)

    def _of_thread(
        self, part: Activity, thread: int, begins: Ints, stops: Ints, from_: Ints, to: Ints, before: Ints, turned: Ints
    ) -> None:
        """Split gaps by what their launching thread did. from_, to: begin and end of the launching call. before: the
        gap before each. turned: whether the work then waited while the GPU changed to its process."""
        host, width = len(self.calls.names), len(self.phases) + 1
        window = int(begins[0]), int(stops[-1])
        in_calls, ranges = self.calls.nested[thread].during(*window), self.ranges[thread]
        called, returned = np.clip(from_, begins, stops), np.clip(to, begins, stops)
        at_begin = in_calls.at(begins)
        # A copy that found the GPU idle waited for nothing but itself.
        call_from = np.append(in_calls.starts, LONG_AGO)[np.searchsorted(in_calls.starts, begins, side="right") - 1]
        found_idle = (before[:, 0] <= call_from) & (call_from < before[:, 1])
        blocks = self.frees[at_begin] | self.copies[at_begin] & ~found_idle
        waiting = self.drains[at_begin] | blocks & (from_ > begins)
        drained = np.where(waiting & ~turned, at_begin + 1, 0).astype(np.int64)
        # In the launching call and in those before it: each call by itself.
        of, starts, ends, names = in_calls.overlaps(begins, returned)
        held_back = turned[of] & (self.drains[names] | self.copies[names])
        pieces = [(of, np.where(held_back, host + 4, names), ranges.at(starts), ends - starts)]
        # Before the launching call, in no call.
        of, starts, ends, _ = between(in_calls, only=True).overlaps(begins, called)
        long = ends - starts >= OWN_WORK_NS
        within, starts, ends, places = between(ranges.during(*window)).overlaps(starts, ends)
        pieces.append((of[within], host + long[within], places, ends - starts))
        if (held_back := long[within]).any():
            part.host.append((self.threads[thread], starts[held_back], ends[held_back], places[held_back]))
        # After the launching call: on the way to the GPU, and then waiting there.
        arrived = np.clip(to + ON_ITS_WAY_NS, begins, stops)
        every, places = np.arange(len(begins)), ranges.at(from_)
        pieces += [(every, np.full(len(every), host + 2), places, arrived - returned)]
        pieces += [(every, np.full(len(every), host + 3), places, stops - arrived)]
        of, kinds, places, ns = map(np.concatenate, zip(*pieces, strict=True))
        for key, total in _sums((drained[of] * len(self.why) + kinds) * width + places + 1, ns).items():
            rest, label = divmod(key, width)
            wait, kind = divmod(rest, len(self.why))
            why, path = self.why[kind], self.phases.path(label - 1)
            waited = self.calls.names[wait - 1] if wait else None
            if why.cause is IdleCause.HOST and path is None and self.phases.threads:
                why = Why(IdleCause.OUTSIDE_RANGES)
            elif why.cause is IdleCause.HOST and wait and self.waits[wait - 1]:
                why = Why(IdleCause.HOST_AFTER_WAIT, waited)
            part.causes[why._replace(range=path, drained_in=waited, long=kind == host + 1)] += total


def between(of: Stretches, *, only: bool = False) -> Stretches:
    """Stretches and the time between, before and after them, labelled NOTHING. only: that time alone."""
    edges = np.concatenate([[LONG_AGO], np.column_stack([of.starts, of.ends]).ravel(), [-LONG_AGO]])
    labels = np.append(np.column_stack([np.full_like(of.labels, NOTHING), of.labels]).ravel(), NOTHING)
    step = 2 if only else 1
    starts, ends, labels = edges[:-1:step], edges[1::step], labels[::step]
    lasting = ends > starts
    return Stretches(starts[lasting], ends[lasting], labels[lasting])


def _sums(keys: Ints, values: Ints | Floats) -> dict[int, int]:
    """Key (from 0) -> the sum of its values."""
    if not len(keys):
        return {}
    present = None
    if int(keys.max()) > 1 << 20:
        present, keys = np.unique(keys, return_inverse=True)
    sums = np.bincount(keys, values)  # exact below 2^53 ns, 104 days
    nonzero = np.flatnonzero(sums)
    keys = nonzero if present is None else present[nonzero]
    return dict(zip(keys.tolist(), sums[nonzero].astype(np.int64).tolist(), strict=True))
