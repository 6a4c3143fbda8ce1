"""What each rank did when: computing, communicating, waiting, and what kept the late one of a collective."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from fiprof.analysis.comm.match import UNKNOWN, Kernels, Matched, texts_of, threads
from fiprof.model.arrays import numbers
from fiprof.model.ranks import NCCL_DOMAIN, Ranks
from fiprof.model.run import Run
from fiprof.model.spans import NOTHING, Stretches, innermost, union, within

if TYPE_CHECKING:
    from fiprof.analysis.comm.match import Bools
    from fiprof.model.arrays import Ints


class Doing(StrEnum):
    """What keeps a rank, what comes first here where several do."""

    KERNEL = "kernel"
    """Its GPU runs a kernel of its own."""
    COMMUNICATION = "communication"
    """Its GPU is in another collective."""
    COPY = "copy"
    CALL = "call"
    """Its thread is in a CUDA call, and the GPU has nothing to do."""
    HOST = "host"
    """Its thread is in no CUDA call, and the GPU has nothing to do."""


@dataclass(frozen=True)
class Spell:
    """A part of a stretch."""

    doing: Doing
    name: str
    """Of the kernel or call; empty for others."""
    range: str
    """NVTX range that the thread was in, the innermost; empty for none."""
    us: float


DOING = tuple(Doing)
ON_THREAD = [DOING.index(Doing.CALL), DOING.index(Doing.HOST)]


class Ranges:
    """The NVTX ranges of the run as columns. kept: the program's push/pop ranges that ended."""

    def __init__(self, run: Run) -> None:
        table = run.table("ranges", ["domain", "name", "start_ns", "end_ns", "depth", "parent", "kind"])
        self.thread = threads(run, "ranges")
        self.start, self.end, self.depth, self.parent = (
            numbers(table[column]) for column in ("start_ns", "end_ns", "depth", "parent")
        )
        self.texts, self.name = texts_of(table["name"])
        (domains, domain), (kinds, kind) = texts_of(table["domain"]), texts_of(table["kind"])
        self.kept = (np.array(domains) != NCCL_DOMAIN)[domain] & (np.array(kinds) == "push_pop")[kind]
        self.kept &= self.end != UNKNOWN


class Activity:
    """What the ranks of a run did, all times on one clock."""

    def __init__(self, run: Run, ranks: Ranks, communication: Bools, added: Mapping[int, int]) -> None:
        """communication: which rows of the table ``kernels`` communicate. added: to the times of each rank, ns."""
        self._added = added
        self._rank = {name: ranks.of(name) for name in ("kernels", "copies") if run.has(name)}
        self._names, self._name = texts_of(run.table("kernels", ["kernel"])["kernel"])
        self._communication = communication
        self._times = {
            name: tuple(numbers(run.table(name, [column])[column]) for column in ("start_ns", "end_ns"))
            for name in self._rank
        }
        self._calls, self._call_names = None, [""]
        if run.has("api"):
            api = run.table("api", ["start_ns", "end_ns", "name"])
            self._call_names, name = texts_of(api["name"])
            self._calls = threads(run, "api"), numbers(api["start_ns"]), numbers(api["end_ns"]), name
        self._ranges, self._range_names = None, [""]
        if run.has("ranges"):
            ranges = Ranges(run)
            self._range_names = ranges.texts
            columns = ranges.thread, ranges.start, ranges.end, ranges.name
            self._ranges = tuple(column[ranges.kept] for column in columns)

    def work(self, rank: int, *, communication: bool) -> tuple[Ints, Ints, Ints]:
        """Starts, ends and names (positions) of a rank's kernels, those that communicate or the others, by start."""
        start, end = self._times["kernels"]
        mine = np.flatnonzero((self._rank["kernels"] == rank) & (self._communication == communication))
        mine = mine[np.argsort(start[mine], kind="stable")]
        return start[mine] + self._added[rank], end[mine] + self._added[rank], self._name[mine]

    def copies(self, rank: int) -> tuple[Ints, Ints]:
        if "copies" not in self._times:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        mine = self._rank["copies"] == rank
        start, end = self._times["copies"]
        return start[mine] + self._added[rank], end[mine] + self._added[rank]

    def spells(self, rank: int, thread: int, begins: Ints, ends: Ints) -> list[tuple[Spell, ...]]:
        """What a rank did in each stretch, the longest first. thread: whose calls and ranges count."""
        start, end, name = self.work(rank, communication=False)
        computing, communicating = union(start, end), union(*self.work(rank, communication=True)[:2])
        copying = union(*self.copies(rank))
        calls, ranges = self._of_thread(self._calls, rank, thread), self._of_thread(self._ranges, rank, thread)
        held = (each for pair in (computing, communicating, copying) for each in pair)
        on_thread = (each for of in (calls, ranges) for each in (of.starts, of.ends))
        bounds = np.sort(np.concatenate([*held, *on_thread, start]))
        bounds = bounds[np.diff(bounds, prepend=-1) > 0]  # np.unique by hash is ten times slower
        # Every stretch in pieces between two bounds.
        first, last = np.searchsorted(bounds, begins, side="right"), np.searchsorted(bounds, ends, side="left")
        counts = np.maximum(last - first, 0) + 1
        stretch = np.repeat(np.arange(len(begins)), counts)
        offset = np.arange(len(stretch)) - np.repeat(np.cumsum(counts) - counts, counts)
        edges = np.append(bounds, 0)
        left = np.where(offset == 0, begins[stretch], edges[np.minimum(first[stretch] + offset - 1, len(bounds))])
        right = np.where(
            offset == counts[stretch] - 1, ends[stretch], edges[np.minimum(first[stretch] + offset, len(bounds))]
        )
        call, scope = calls.at(left), ranges.at(left)
        last = np.maximum(np.searchsorted(start, left, side="right") - 1, 0)
        kernel = name[last] if len(name) else last
        doing = np.where(call != UNKNOWN, DOING.index(Doing.CALL), DOING.index(Doing.HOST))
        on_gpu = {Doing.COPY: copying, Doing.COMMUNICATION: communicating, Doing.KERNEL: computing}
        for each, busy in on_gpu.items():
            doing[Stretches(*busy, np.zeros(len(busy[0]), int)).at(left) != NOTHING] = DOING.index(each)
        what = np.where(doing == DOING.index(Doing.CALL), call, UNKNOWN)
        what = np.where(doing == DOING.index(Doing.KERNEL), kernel, what)
        scope = np.where(np.isin(doing, ON_THREAD), scope, UNKNOWN)
        groups, place = np.unique(np.column_stack([stretch, doing, what, scope]), axis=0, return_inverse=True)
        lengths = np.bincount(place.ravel(), weights=right - left, minlength=len(groups)) / 1e3
        found: list[list[Spell]] = [[] for _ in range(len(begins))]
        for (number, kind, of, inside), us in zip(groups.tolist(), lengths.tolist(), strict=True):
            if us > 0:
                names = self._names if DOING[kind] is Doing.KERNEL else self._call_names
                found[number].append(
                    Spell(
                        DOING[kind], names[of] if of >= 0 else "", self._range_names[inside] if inside >= 0 else "", us
                    )
                )
        return [tuple(sorted(spells, key=lambda spell: -spell.us)) for spells in found]

    def _of_thread(self, source: Sequence[Ints] | None, rank: int, thread: int) -> Stretches:
        if source is None:
            none = np.empty(0, np.int64)
            return Stretches(none, none, none)
        of, start, end, name = source
        mine = of == thread
        return innermost(start[mine] + self._added[rank], end[mine] + self._added[rank], name[mine])


def busiest_thread(run: Run, ranks: Ranks, rank: int) -> int:
    """The thread of a rank with most CUDA calls; UNKNOWN where none was traced."""
    mine = threads(run, "api")[ranks.of("api") == rank] if run.has("api") else np.empty(0, np.int64)
    found, counts = np.unique(mine, return_counts=True)
    return int(found[counts.argmax()]) if len(found) else UNKNOWN


# Steps: NVTX ranges that repeat

REPEATED = 3
"""A range whose name comes this often on a thread may be a step."""


class Steps:
    """The steps of the ranks' programs: of each thread the outermost ranges whose names repeat, numbers aside."""

    def __init__(self, run: Run, kernels: Kernels, added: dict[int, int]) -> None:

        size = len(kernels)
        self.names = np.full(size, "", object)
        self.lengths = np.full(size, UNKNOWN, np.int64)
        self.step = np.full(size, UNKNOWN, np.int64)
        self._rank = kernels.rank
        if not run.has("ranges") or not size:
            return
        ranges = Ranges(run)
        kept, thread, depth, parent, texts, name = (
            ranges.kept, ranges.thread, ranges.depth, ranges.parent, ranges.texts, ranges.name
        )  # fmt: skip
        plain = {text: number for number, text in enumerate(dict.fromkeys(re.sub(r"\d+", "#", text) for text in texts))}
        alike = np.array([plain[re.sub(r"\d+", "#", text)] for text in texts])[name]
        _, place, counts = np.unique(np.column_stack([thread, alike]), axis=0, return_inverse=True, return_counts=True)
        repeats = kept & (counts[place.ravel()] >= REPEATED)
        within_step = np.zeros(len(parent), bool)
        for level in range(1, int(depth.max(initial=0)) + 1):
            here = np.flatnonzero((depth == level) & (parent != UNKNOWN))
            within_step[here] = within_step[parent[here]] | repeats[parent[here]]
        start, end = ranges.start, ranges.end
        by = np.array([added[rank] for rank in kernels.rank.tolist()], np.int64)
        called = kernels.called - by
        for chosen in (kept & (depth == 0), repeats & ~within_step):
            for each in np.unique(kernels.thread[kernels.thread != UNKNOWN]):
                mine = np.flatnonzero(chosen & (thread == each))
                mine = mine[np.argsort(start[mine], kind="stable")]
                these = np.flatnonzero(kernels.thread == each)
                at = np.searchsorted(start[mine], called[these], side="right") - 1
                inside = (at >= 0) & (end[mine][np.maximum(at, 0)] >= called[these]) if len(mine) else at >= 0
                these, rows = these[inside], mine[at[inside]]
                self.names[these] = np.array(texts, object)[name[rows]]
                if chosen[rows].all() and (repeats & ~within_step)[rows].all():
                    self.step[these], self.lengths[these] = rows, end[rows] - start[rows]

    def of_rank(self, rank: int) -> float | None:
        """Length of the rank's steps with collectives, µs; None without."""
        mine = (self._rank == rank) & (self.step != UNKNOWN)
        _, first = np.unique(self.step[mine], return_index=True)
        return float(self.lengths[mine][first].sum()) / 1e3 if len(first) else None


# Shares of time


@dataclass(frozen=True)
class RankTrack:
    """A rank's time in pieces of equal length: the share of each, 0 to 1."""

    rank: int
    compute: tuple[float, ...]
    """Another kernel ran; communication beside it is hidden."""
    transfer: tuple[float, ...]
    """Only communication kernels ran, all ranks being there."""
    wait: tuple[float, ...]
    """Only communication kernels ran, and a rank had not begun."""


@dataclass(frozen=True)
class RankChart:
    """The ranks on one axis of time."""

    start_us: float
    end_us: float
    tracks: tuple[RankTrack, ...]
    number: int | None = None
    """Position of the collective that it shows; None for all."""


class Shares:
    """When each rank computes, communicates and waits."""

    def __init__(self, activity: Activity, matched: Matched, ranks: Ranks) -> None:
        self.start, self.end, self.last = _matrix(matched)
        self.compute, self.communicate, self.wait = {}, {}, {}
        for column, rank in enumerate(rank.rank for rank in ranks.all):
            self.compute[rank] = union(*activity.work(rank, communication=False)[:2])
            self.communicate[rank] = union(*activity.work(rank, communication=True)[:2])
            there = matched.index[:, column] != UNKNOWN
            begin = self.start[there, column]
            until = np.minimum(self.last[there], self.end[there, column])
            self.wait[rank] = union(begin, np.maximum(until, begin))

    def overlap_ns(self, rank: int, begins: Ints, ends: Ints) -> Ints:
        """How much of each stretch the rank's GPU spent on kernels that do not communicate."""
        return within(self.compute[rank], begins, ends)


def _matrix(matched: Matched) -> tuple[Ints, Ints, Ints]:
    """Start and end of each rank's kernel, and the last start, of every collective."""
    there = matched.index != UNKNOWN
    if not there.size:
        none = np.empty((0, len(matched.ranks)), np.int64)
        return none, none, np.empty(0, np.int64)
    start = np.where(there, matched.kernels.start[matched.index], UNKNOWN)
    end = np.where(there, matched.kernels.end[matched.index], UNKNOWN)
    return start, end, np.where(there, start, np.iinfo(np.int64).min).max(axis=1)
