"""The time of a GPU and of the thread that launches its work as moments in a row, and what was done in each.

Moments tile the time from a GPU's first call or work to its last: the program's NVTX ranges down to the outermost that
repeat, and what lies between them; where these are only parts of steps, or none, the steps that :mod:`steady` finds.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fiprof.analysis.comm import delays
from fiprof.analysis.host import host_times
from fiprof.analysis.idle import between
from fiprof.analysis.program import ALLOCATES, LAUNCHES, LOADS, WAITS
from fiprof.analysis.steady import COVERED, OPERATORS, By, steady
from fiprof.analysis.torch_memory import TorchMemory
from fiprof.analysis.trace import FEWEST_STEPS, Marks, calls, marks, of_device, phases, thread_keys
from fiprof.model.arrays import Ints, arrow, coded, grid_size, numbers
from fiprof.model.finding import Wording
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.spans import LONG_AGO, NOTHING, innermost, split

BEFORE = "before the first range"  # what it was is told, but it has no share of the time: imports, mostly


class Does(Wording):
    HOST = "host", "host work"  # it is in no CUDA call
    LAUNCHING = "launching", "launching"
    WAITING = "waiting", "waiting for the GPU"
    ALLOCATING = "allocating", "allocating"
    LOADING = "loading", "loading code"
    CALLS = "calls", "other CUDA calls"  # copies among them
    UNTRACED = "untraced", "not traced"  # kernels run, and no call of it is in the trace yet


DOES = tuple(Does)
LEAST_MEMORY = 1_000_000  # bytes that have to be held at some time for the trace to tell what is
MOST_PARTS = 12  # ranges a step, beyond which they are its operators, not its phases
_CALLS = ((Does.LAUNCHING, LAUNCHES), (Does.WAITING, WAITS), (Does.ALLOCATING, ALLOCATES), (Does.LOADING, LOADS))


def does(call: str) -> Does:
    """What a thread does in a CUDA call of this name."""
    return next((each for each, begins in _CALLS if begins.match(call)), Does.CALLS)


class Name(NamedTuple):
    """What moments of one group are called."""

    level: int  # ranges around them
    text: str
    repeats: bool


class Launched(NamedTuple):
    """The kernels of a moment, in order."""

    names: list[str]
    ns: Ints
    labels: Ints  # range in :func:`phases` that each was launched, or, of a CUDA graph, captured in; NOTHING outside
    starts: Ints  # ns since the trace began
    blocks: Ints


class Moments:
    """Disjoint stretches of time, by start, and what the GPU and the launching thread did in each; ns.

    edges: the begin of each, and the end of the last. group: the place of each one's name in ``names``. texts: each
    one's name as the program has it, empty for those without. on_gpu: whether kernels belong to the moment in which
    they start, not to that in which they are launched. does: ns of each of DOES. first_used: kernel -> the moment that
    is the first to launch it. kernel_ns: group -> kernel -> ns.
    """

    def __init__(self, run: Run, device: int, pid: int | None = None) -> None:
        """pid: of the process whose moments they are; None for the one that launches most of the GPU's kernels."""
        self.run, self.device = run, device
        self.thread, self.key, first, last = self._launching_thread(pid)
        ranges = marks(run)
        on_thread = ranges.own & (ranges.threads == self.key) & ~ranges.repeats_parent
        repeats = on_thread & (
            np.bincount(ranges.alike[on_thread], minlength=len(ranges.folded))[ranges.alike] >= FEWEST_STEPS
        )
        if (at := steady(run)[device]).by is By.RANGES and len(at.steps) < FEWEST_STEPS:
            repeats = on_thread & np.array([text == at.name for text in ranges.folded], bool)[ranges.alike]
        if not self._of_ranges(on_thread, repeats, first, last):
            self._of_pattern(first, last)
        self.copied = np.zeros(self.count)
        for rows, starts, sizes in of_device(run, "copies", device, "start_ns", "bytes"):
            self.copied += np.bincount(self._of(starts, rows), np.maximum(sizes, 0), self.count)
        self.does: Ints = np.zeros((self.count, len(DOES)))
        if self.thread != NOTHING:
            kinds = np.array([DOES.index(does(name)) for name in calls(run).names])
            of, begins, ends, names = calls(run).nested[self.thread].overlaps(self.begins, self.edges[1:])
            sums = np.bincount(of * len(DOES) + kinds[names], ends - begins, self.count * len(DOES))
            self.does = sums.reshape(-1, len(DOES))
            self.does[:, -1] = np.clip(self.traced_from - self.begins, 0, np.diff(self.edges))
            self.does[:, 0] = np.diff(self.edges) - self.does[:, 1:].sum(axis=1)
        self._without_kernels()
        self.torch = TorchMemory(run, device)
        self.allocations = times, _, totals, _, _ = self._allocations()
        self.given: Ints = np.append(0, totals)[np.searchsorted(times, self.edges[1:], side="right")]
        """Device memory given and not taken back at the end of each, bytes."""
        # What is freed may have been allocated before the trace, and little be a variable of loaded code.
        traced = len(times) and totals.min() >= 0 and totals.max() >= LEAST_MEMORY
        self.memory = self.given if traced else None  # that is all of the device's; None where that is not known
        ends = self.edges[1:] if self.on_gpu else np.maximum(self.edges[1:], self.last)
        self.done = np.maximum.accumulate(ends)  # when host and GPU are done with each, and with those before it
        self.from_ = np.maximum(self.begins, np.append(self.begins[:1], self.done[:-1]))
        """The begin of each, or the end of what came before."""
        self.length = np.maximum(self.done - self.from_, 0)
        rank, every = ranks_of(run).on(device), np.arange(self.count)
        self.delays = {} if rank is None else delays(run, rank, self.from_, self.done, every)
        """Of each moment which ranks came late to its collectives, the longest delay first."""

    def _without_kernels(self) -> None:
        """Steps at the end of a trace that launch, and whose kernels it has not got any more, are by themselves: they
        take no time, and say nothing of what is usual."""
        for group, name in enumerate(tuple(self.names)):
            rows = np.flatnonzero(self.group == group)
            launched = self.does[rows, DOES.index(Does.LAUNCHING)] > 0
            seen = np.flatnonzero(self.kernels[rows])
            if name.repeats and len(seen) and launched[seen[-1] + 1 :].any():
                self.group[rows[seen[-1] + 1 :]] = len(self.names)
                self.names.append(name._replace(text=f"{name.text}, kernels not in the trace", repeats=False))

    def name(self, place: int) -> str:
        """Of a moment as the program has it; its group's where it has none of its own."""
        return self.texts[place] or self.names[self.group[place]].text

    def _launching_thread(self, pid: int | None) -> tuple[int, int, int, int]:
        """The thread that launched most of the GPU's kernels, of a process or of any, of those with the ranges that are
        steps where they launch some, else of those that run Python (autograd's thread launches the backward pass), as
        in ``Calls.thread`` and as in ``thread_keys``, NOTHING without calls; and from the first kernel, or call of this
        thread, to the last, ns. Sets ``traced_from``: its first call, where kernels ran before whose calls are not
        traced."""
        traced, first, last = calls(self.run), list[int](), list[int]()
        counts, unknown = np.zeros(len(traced.threads), np.int64), [-LONG_AGO]
        for rows, starts, ends in of_device(self.run, "kernels", self.device, "start_ns", "end_ns"):
            first.append(int(starts.min()))
            last.append(int(ends.max()))
            unknown += starts[rows == NOTHING][:1].tolist()
            counts += np.bincount(traced.thread[rows[rows != NOTHING]], minlength=len(counts))
        if pid is not None and len(counts):
            counts[[key >> 32 != pid for key in traced.threads]] = 0
        if not counts.any():
            return NOTHING, NOTHING, min(first), max(last)
        ranges, at = marks(self.run), steady(self.run)[self.device]
        keys = list(host_times(self.run).looks)
        if at.by is By.RANGES:
            named = np.array([at.name == text for text in ranges.folded], bool)[ranges.alike] & ranges.own
            keys = np.unique(ranges.threads[named]).tolist()
        stepping = [traced.threads[key] for key in keys if key in traced.threads]
        if counts[stepping].any():
            counts[np.setdiff1d(np.arange(len(counts)), stepping)] = 0
        nested = traced.nested[thread := int(np.argmax(counts))]
        self.traced_from = int(nested.starts[0]) if min(unknown) < nested.starts[0] else LONG_AGO
        return thread, [*traced.threads][thread], min(*first, int(nested.starts[0])), max(*last, int(nested.ends[-1]))

    def _of_ranges(self, on_thread: Any, repeats: Any, first: int, last: int) -> bool:
        """Ranges down to those that repeat; whether these are steps or their phases, not marks or parts."""
        if not repeats.any():
            return False
        ranges = marks(self.run)
        inside = _inside(ranges, on_thread, repeats)
        repeats |= _beside_steps(ranges, on_thread, repeats & ~inside)
        tiling = on_thread & ~inside & ~ranges.inside(repeats)
        nodes, depths = np.flatnonzero(tiling), ranges.around(tiling)
        ends = np.where(ranges.ends[nodes] == NOTHING, last, ranges.ends[nodes])
        order = np.lexsort((-ends, ranges.starts[nodes]))
        nodes, ends = nodes[order], ends[order]
        stretches = innermost(ranges.starts[nodes], ends, np.arange(len(nodes)))
        first, last = min(first, int(stretches.starts[0])), max(last, int(stretches.ends[-1]))
        tiles = between(stretches)
        starts, stops = np.clip(tiles.starts, first, last), np.clip(tiles.ends, first, last)
        nonempty = stops > starts
        starts, stops, labels = starts[nonempty], stops[nonempty], tiles.labels[nonempty]
        node = np.where(labels == NOTHING, 0, nodes[labels])
        keys = np.where(labels == NOTHING, NOTHING, ranges.alike[node].astype(np.int64) << 16 | depths[node])
        keys[: np.flatnonzero(labels != NOTHING)[0]] = NOTHING - 1
        names: dict[Name, int] = {}
        self.group = np.empty(len(keys), np.int64)
        for key, rows in split(keys):
            if key < 0:
                name = Name(0, BEFORE if key == NOTHING - 1 else "outside every range", False)
            else:
                one, text = node[rows][0], ranges.folded[key >> 16] or "a range without a name"
                # What lies between the ranges in it comes in several pieces.
                if len(np.unique(labels[rows])) < len(labels[rows]):
                    text += ", between its ranges"
                name = Name(int(depths[one]), text, bool(repeats[one]))
            self.group[rows] = names.setdefault(name, len(names))
        self.edges, self.names, self.on_gpu = np.append(starts, stops[-1]), list(names), False
        texts = [*ranges.texts, ""]
        self.texts = [texts[name] or "" for name in np.where(labels == NOTHING, NOTHING, ranges.name[node]).tolist()]
        self._add_kernels()
        at, parts = steady(self.run)[self.device], self.repeating
        phases_ns = np.bincount(self.group, self.busy)
        phases_ns[[not name.repeats or name.text.startswith(OPERATORS) for name in self.names]] = 0.0
        if not len(at.steps):
            return bool(phases_ns.any())
        few = at.by is By.PATTERN or len(parts) <= MOST_PARTS * len(at.steps)
        return few and bool(phases_ns.sum() >= COVERED * self.busy[parts[0] : parts[-1] + 1].sum())

    def _of_pattern(self, first: int, last: int) -> None:
        """The steps of the steady part, what came before them, and what lies between."""
        at = steady(self.run)[self.device]
        if at.by in (By.WHOLE, By.MEASURE) or not len(at.steps):
            inside = [int(at.begins[0]), int(at.ends[-1])] if at.by is By.MEASURE else []
            self.edges = np.array([first, *(each for each in inside if first < each < last), last])
            names = ("before the measured part", "the measured part", "after it")
            self.names = [Name(0, name, False) for name in (names if len(self.edges) == 4 else ("the whole trace",))]
            self.group = np.arange(len(self.edges) - 1) % len(self.names)
        else:
            steps = np.append(np.array(at.early, np.int64), at.steps)
            edges = np.unique(np.concatenate([[first], steps, at.begins, at.ends, [last]]))
            self.edges = edges[(edges >= first) & (edges <= last)]
            self.group = np.where(np.isin(self.edges[:-1], steps), 1, 2)
            self.group[: np.searchsorted(self.edges, steps[0])] = 0
            told = {"before the steps": False, f"step of {at.name}": True, "between and after steps": False}
            self.names = [Name(0, *each) for each in told.items()]
        self.texts, self.on_gpu = [""] * len(self.group), True
        self._add_kernels()

    def _of(self, starts: Ints, rows: Ints) -> Ints:
        """The number of the moment that each piece of the GPU's work belongs to. rows: of the calls that began it."""
        called_at, times = calls(self.run).starts, starts
        if not self.on_gpu and len(called_at):
            times = np.where(rows == NOTHING, starts, called_at[rows])
        found: Ints = np.clip(np.searchsorted(self.edges, times, side="right") - 1, 0, self.count - 1)
        return found

    def _kernels(self, *more: str) -> Iterator[tuple[list[str], Ints, Ints, Ints, Ints, Ints, Any]]:
        """Pieces of the GPU's kernels: their names, and of each its name's place, start, end, moment and the call that
        launched it; and further columns, of all GPUs' kernels, with those of this GPU."""
        columns = ("start_ns", "end_ns", "kernel", *more)
        for rows, starts, ends, (names, place), *further in of_device(self.run, "kernels", self.device, *columns):
            yield [name or "" for name in names], place, starts, ends, self._of(starts, rows), rows, further

    def _add_kernels(self) -> None:
        self.count, self.begins = len(self.group), self.edges[:-1]
        self.repeating = np.flatnonzero(np.array([name.repeats for name in self.names])[self.group])
        self.busy, self.kernels = np.zeros(self.count), np.zeros(self.count, np.int64)
        self.last, self.signature = np.full(self.count, NOTHING), np.zeros(self.count)
        self.first_used: dict[str, int] = {}
        self.kernel_ns: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        reached = NOTHING
        for names, place, starts, ends, of, _, _ in self._kernels():
            until = np.maximum.accumulate(np.append(reached, ends))
            alone = np.maximum(ends - np.maximum(starts, until[:-1]), 0)
            reached = int(until[-1])
            self.busy += np.bincount(of, alone, self.count)
            self.kernels += np.bincount(of, minlength=self.count)
            np.maximum.at(self.last, of, ends)
            hashes = np.array([zlib.crc32(name.encode()) & 0xFFFFF for name in names])
            self.signature += np.bincount(of, hashes[place], self.count)
            width = len(names)
            earliest = np.full(width, self.count)
            np.minimum.at(earliest, place, of)
            for name, moment in zip(names, earliest.tolist(), strict=True):
                if moment < self.first_used.get(name, self.count):
                    self.first_used[name] = moment
            keys, each = coded(arrow(self.group[of] * width + place))
            for key, ns in zip(keys, np.bincount(each, ends - starts).tolist(), strict=False):
                self.kernel_ns[key // width][names[key % width]] += ns

    def _allocations(self) -> Ints:
        """Device memory given and taken back, by time: when, bytes, what is held then, address, and 1 for given."""
        if not self.run.row_count("memory"):
            return np.empty((5, 0), np.int64)
        table = self.run.table("memory", ["time_ns", "bytes", "address", "device", "kind"])
        *columns, devices = map(numbers, table.columns[:4])
        kinds, kind = coded(table["kind"])
        sign = np.array([{"Allocation": 1, "Deallocation": -1}.get(each or "", 0) for each in kinds])[kind]
        found = np.stack([*columns, sign])[:, devices == self.device]
        times, sizes, addresses, sign = found[:, np.argsort(found[0], kind="stable")]
        return np.stack([times, sizes, np.cumsum(sign * sizes), addresses, sign > 0])

    def launched(self, wanted: set[int]) -> dict[int, Launched]:
        chosen, parts, name_places = (
            np.isin(np.arange(self.count), [*wanted]),
            list[tuple[Ints, ...]](),
            dict[str, int](),
        )
        pieces = self._kernels("pid", "captured_tid", "captured_ns", "grid") if wanted else ()
        for names, name, starts, ends, of, rows, further in pieces:
            of_chosen = np.flatnonzero(chosen[of])
            *threads_, (grids, grid) = further
            pids, tids, captured = (each[of_chosen] for each in threads_)
            blocks = np.array(list(map(grid_size, grids)))[grid[of_chosen]]
            labels, threads = calls(self.run).phases_of(rows[of_chosen]), thread_keys(pids, tids)
            for thread, stretches in phases(self.run).threads.items():
                graph = np.flatnonzero((threads == thread) & (captured > 0))
                labels[graph] = stretches.at(captured[graph])
            place = np.array([name_places.setdefault(each, len(name_places)) for each in names])[name[of_chosen]]
            parts.append((of[of_chosen], place, (ends - starts)[of_chosen], labels, starts[of_chosen], blocks))
        of, place, *columns = map(np.concatenate, zip(*parts, strict=True)) if parts else [np.empty(0, int)] * 6
        names, by_step = list(name_places), dict.fromkeys(wanted, Launched([], *[np.empty(0, int)] * 4))
        for moment, rows in split(of):
            by_step[moment] = Launched(
                [names[each] for each in place[rows].tolist()], *(each[rows] for each in columns)
            )
        return by_step


def _inside(ranges: Marks, on_thread: Any, repeats: Any) -> Any:
    """Whether each range of a thread lies in a longer one that repeats, of any domain."""
    inside = ranges.inside(repeats)
    rows = np.flatnonzero(repeats & ~inside)
    rows = rows[np.lexsort((-ranges.ends[rows], ranges.starts[rows]))]
    reached = np.maximum.accumulate(ranges.ends[rows])
    # The last one that begins before it, and those around that one, reach as far as any.
    own = np.flatnonzero(on_thread & ~inside)
    place = np.searchsorted(ranges.starts[rows], ranges.starts[own], side="right") - 1
    longer = rows[np.searchsorted(reached, reached[place])]
    around = (place >= 0) & (ranges.ends[longer] >= ranges.ends[own]) & (ranges.ends[own] != NOTHING)
    inside[own] |= around & (ranges.ends[longer] - ranges.starts[longer] > ranges.ends[own] - ranges.starts[own])
    return inside


def _beside_steps(ranges: Marks, on_thread: Any, outermost: Any) -> Any:
    """Which ranges come once or twice beside repeating ones that are more than those that repeat inside them: a prefill
    beside its decode steps, a warm-up before the steps; and others of their name."""
    outside, inside = np.zeros((2, len(on_thread) + 1), np.int32)
    owners = ranges.parents[outermost]
    np.add.at(outside, owners, 1)
    while len(owners := owners[owners != NOTHING]):
        np.add.at(inside, owners, 1)
        owners = ranges.parents[owners]
    chosen = on_thread & ~outermost & (inside[:-1] > 0)
    return chosen & np.isin(ranges.alike, ranges.alike[chosen & (outside[ranges.parents] > inside[:-1])])
