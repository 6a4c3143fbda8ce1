"""What a rank did in some stretches of time: its GPU's work, or the CUDA call and NVTX range of a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fiprof.analysis.comm.kernels import UNKNOWN, coded, threads
from fiprof.analysis.comm.model import Doing, Spell
from fiprof.model.ranks import NCCL_DOMAIN, Ranks
from fiprof.model.run import Run
from fiprof.model.unions import union_by

if TYPE_CHECKING:
    from fiprof.analysis.comm.kernels import Bools
    from fiprof.model.unions import Ints


DOING = tuple(Doing)
ON_THREAD = [DOING.index(Doing.CALL), DOING.index(Doing.HOST)]


class Intervals:
    """Intervals, and which of them holds when: the one that began last of those that hold."""

    def __init__(self, starts: Ints, ends: Ints, labels: Ints) -> None:
        """Nested, as calls and ranges of a thread are."""
        import numpy as np

        whole = ends > starts
        starts, ends, labels = starts[whole], ends[whole], labels[whole]
        count = len(starts)
        times = np.concatenate([ends, starts])
        begins = np.repeat([0, 1], count)
        # At one time ends before beginnings, of these the longest first.
        order = np.lexsort((np.concatenate([starts, -ends]), begins, times))
        self.times, begins = times[order], begins[order]
        depth = np.cumsum(np.where(begins == 1, 1, -1))
        # Of each depth the last beginning so far is the one that holds: depths one after the other, a running maximum.
        place, width = np.arange(2 * count), 2 * count + 1
        by_depth = np.argsort(depth, kind="stable")
        latest = np.maximum.accumulate(depth[by_depth] * width + np.where(begins == 1, place + 1, 0)[by_depth])
        began = np.empty(2 * count, np.int64)
        began[by_depth] = latest % width - 1
        holding = (depth > 0) & (began >= 0)
        owner = np.append(labels, labels)[order]
        self.labels = np.where(holding, owner[np.where(holding, began, 0)], UNKNOWN) if count else owner

    def at(self, moments: Ints) -> Ints:
        """The label of what holds from each moment on; UNKNOWN for nothing."""
        import numpy as np

        before = np.searchsorted(self.times, moments, side="right") - 1
        found: Ints = np.where(before < 0, UNKNOWN, self.labels[before] if len(self.labels) else UNKNOWN)
        return found


class Activity:
    """What the ranks of a run did, all times on one clock."""

    def __init__(self, run: Run, ranks: Ranks, communication: Bools, added: Mapping[int, int]) -> None:
        """communication: which rows of the table ``kernels`` communicate. added: to the times of each rank, ns."""
        import numpy as np

        self._added = added
        self._rank = {name: ranks.of(name) for name in ("kernels", "copies") if run.has(name)}
        self._kernels = run.table("kernels", ["start_ns", "end_ns", "kernel"])
        self._names, self._name = coded(self._kernels["kernel"])
        self._communication = communication
        self._times = {
            name: tuple(run.table(name, [f"{each}_ns"])[f"{each}_ns"].to_numpy() for each in ("start", "end"))
            for name in self._rank
        }
        self._calls, self._call_names = None, [""]
        if run.has("api"):
            api = run.table("api", ["start_ns", "end_ns", "name"])
            self._call_names, name = coded(api["name"])
            self._calls = (threads(run, "api"), api["start_ns"].to_numpy(), api["end_ns"].to_numpy(), name)
        self._ranges, self._range_names = None, [""]
        if run.has("ranges"):
            ranges = run.table("ranges", ["start_ns", "end_ns", "name", "domain", "kind"])
            self._range_names, name = coded(ranges["name"])
            domains, domain = coded(ranges["domain"])
            kinds, kind = coded(ranges["kind"])
            kept = np.array([text != NCCL_DOMAIN for text in domains])[domain]
            kept &= np.array([text == "push_pop" for text in kinds])[kind] & ranges["end_ns"].is_valid().to_numpy()
            end = ranges["end_ns"].fill_null(0).to_numpy()
            self._ranges = tuple(
                each[kept] for each in (threads(run, "ranges"), ranges["start_ns"].to_numpy(), end, name)
            )

    def work(self, rank: int, *, communication: bool) -> tuple[Ints, Ints, Ints]:
        """Starts, ends and names (positions) of a rank's kernels, those that communicate or the others, by start."""
        import numpy as np

        start, end = self._times["kernels"]
        mine = np.flatnonzero((self._rank["kernels"] == rank) & (self._communication == communication))
        mine = mine[np.argsort(start[mine], kind="stable")]
        return start[mine] + self._added[rank], end[mine] + self._added[rank], self._name[mine]

    def copies(self, rank: int) -> tuple[Ints, Ints]:
        import numpy as np

        if "copies" not in self._times:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        mine = self._rank["copies"] == rank
        start, end = self._times["copies"]
        return start[mine] + self._added[rank], end[mine] + self._added[rank]

    def spells(self, rank: int, thread: int, begins: Ints, ends: Ints) -> list[tuple[Spell, ...]]:
        """What a rank did in each stretch, the longest first. thread: whose calls and ranges count."""
        import numpy as np

        start, end, name = self.work(rank, communication=False)
        computing, communicating = joined(start, end), joined(*self.work(rank, communication=True)[:2])
        copying = joined(*self.copies(rank))
        calls, ranges = self._of_thread(self._calls, rank, thread), self._of_thread(self._ranges, rank, thread)
        gpu = (each for pair in (computing, communicating, copying) for each in pair)
        bounds = np.sort(np.concatenate([*gpu, calls.times, ranges.times, start]))
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
        for each, union in on_gpu.items():
            doing[_inside(union, left)] = DOING.index(each)
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

    def _of_thread(self, source: Sequence[Ints] | None, rank: int, thread: int) -> Intervals:
        import numpy as np

        if source is None:
            none = np.empty(0, np.int64)
            return Intervals(none, none, none)
        of, start, end, name = source
        mine = of == thread
        return Intervals(start[mine] + self._added[rank], end[mine] + self._added[rank], name[mine])


def joined(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Disjoint, by start."""
    import numpy as np

    return union_by(np.zeros(len(starts), np.int64), starts, ends)[1:]


def _inside(union: tuple[Ints, Ints], moments: Ints) -> Bools:
    """Whether each moment lies in one of the disjoint intervals."""
    import numpy as np

    starts, ends = union
    if not len(starts):
        return np.zeros(len(moments), bool)
    at = np.searchsorted(starts, moments, side="right") - 1
    found: Bools = (at >= 0) & (ends[np.maximum(at, 0)] > moments)
    return found


def within(union: tuple[Ints, Ints], begins: Ints, ends: Ints) -> Ints:
    """How much of each stretch lies in disjoint intervals, ns."""
    import numpy as np

    starts, stops = union
    if not len(starts):
        return np.zeros(len(begins), np.int64)
    before = np.append(0, np.cumsum(stops - starts))

    def until(moments: Ints) -> Ints:
        at = np.searchsorted(starts, moments, side="right")
        open_ns = np.where(at > 0, np.minimum(moments, stops[at - 1]) - starts[at - 1], 0)
        found: Ints = before[np.maximum(at - 1, 0)] + open_ns
        return found

    found: Ints = until(ends) - until(begins)
    return found


def busiest_thread(run: Run, ranks: Ranks, rank: int) -> int:
    """The thread of a rank with most CUDA calls; UNKNOWN where none was traced."""
    import numpy as np

    mine = threads(run, "api")[ranks.of("api") == rank] if run.has("api") else np.empty(0, np.int64)
    found, counts = np.unique(mine, return_counts=True)
    return int(found[counts.argmax()]) if len(found) else UNKNOWN
