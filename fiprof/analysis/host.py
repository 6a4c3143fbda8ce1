"""What a program's threads did on the host: the Python functions that nsys sampled, and waits for the interpreter's
lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fiprof.analysis.trace import thread_keys
from fiprof.model.arrays import coded, numbers
from fiprof.model.run import Run, once
from fiprof.model.spans import NOTHING, Stretches, split

if TYPE_CHECKING:
    from fiprof.model.arrays import Ints

COLUMNS = ("start_ns", "end_ns", "pid", "tid", "holder", "line", "function", "source", "called", "leaf")


class HostWork(NamedTuple):
    """What a thread did."""

    function: str
    """Innermost in the program's own files, of all where none is its own; empty where no sample tells."""
    source: str
    """Its file, as Python has it."""
    line: int | None
    """The line that it was seen at most."""
    called: str
    """What it was in a call of most, with its file; empty where that is nothing."""
    leaf: str
    """The innermost function of all, with its file, that it was seen in most; empty where that is itself."""
    waits_for_gil: bool = False
    """The thread waited for the interpreter's lock meanwhile."""
    holder: str = ""
    """The function that held the lock during the wait, in another thread; empty where none is known."""

    @property
    def label(self) -> str:
        """In words, for a table."""
        if self.waits_for_gil:
            return "waiting for the GIL" + (f", held by {self.holder}" if self.holder else "")
        return self.place + (f", in {self.called}" if self.called else "")

    @property
    def place(self) -> str:
        """Function, file's name and line."""
        file = self.source.replace("\\", "/").rpartition("/")[2]
        return f"{self.function} ({file}{'' if self.line is None else f':{self.line}'})" if file else self.function


@dataclass(frozen=True)
class HostTimes:
    """When each thread did what; nothing in a run without samples and waits."""

    work: tuple[HostWork, ...]
    """By label."""
    threads: Mapping[int, Stretches]
    """Thread (``thread_keys``) -> its work."""

    def __bool__(self) -> bool:
        return bool(self.threads)

    def during(self, thread: int, begins: Ints, ends: Ints) -> dict[HostWork, int]:
        """What a thread did in some disjoint stretches, by start: ns of each, without those that no sample tells of.

        thread: as in ``thread_keys``.
        """
        import numpy as np

        if thread not in self.threads:
            return {}
        _, starts, stops, labels = self.threads[thread].overlaps(begins, ends)
        sums = np.bincount(labels, stops - starts, minlength=1)
        return {self.work[label]: int(sums[label]) for label in np.flatnonzero(sums).tolist()}


@once
def host_times(run: Run) -> HostTimes:
    """What the run's threads did. Raises FiprofError for a table that cannot be read."""
    import numpy as np

    if not run.row_count("host_samples"):
        return HostTimes((), {})
    table = run.table("host_samples", COLUMNS)
    starts, ends, pids, tids, holders, lines = (numbers(table[name]) for name in COLUMNS[:6])
    threads = thread_keys(pids, tids)
    samples, waits = np.flatnonzero(ends < 0), np.flatnonzero(ends >= 0)
    texts = [(values, codes[samples]) for values, codes in (coded(table[name]) for name in COLUMNS[6:])]
    functions, label = _functions(texts, lines[samples])
    sampled = {thread: _since_last(starts[samples[rows]], label[rows]) for thread, rows in split(threads[samples])}
    # Of each wait what held the lock: no thread's, where the holder is unknown or was not sampled.
    held = np.full(len(waits), NOTHING)
    for thread, rows in split(np.where(holders < 0, NOTHING, thread_keys(pids, holders))[waits]):
        if thread in sampled:
            held[rows] = sampled[thread].at(ends[waits[rows]] - 1)
    waited = {thread: (starts[waits[rows]], ends[waits[rows]], held[rows]) for thread, rows in split(threads[waits])}

    work, found = dict[HostWork, int](), {}
    width, none = len(functions) + 1, np.empty(0, np.int64)
    empty = Stretches(none, none, none)
    for thread in sampled.keys() | waited.keys():
        function, wait = sampled.get(thread, empty), Stretches(*waited.get(thread, (none, none, none)))
        edges = np.unique(np.concatenate([function.starts, function.ends, wait.starts, wait.ends]))
        seen = function.at(edges[:-1]) + 1
        # 0 outside waits, 1 where none is known to have held the lock.
        holder = Stretches(wait.starts, wait.ends, wait.labels + 1).at(edges[:-1]) + 1
        keys, which = np.unique(holder * width + seen, return_inverse=True)
        labels = np.full(len(keys), NOTHING)
        for number, key in enumerate(keys.tolist()):
            held_by, place = divmod(key, width)
            each = functions[place - 1] if place else HostWork("", "", None, "", "")
            if held_by:
                by = functions[held_by - 2].place if held_by > 1 else ""
                each = each._replace(waits_for_gil=True, holder=by)
            if key:
                labels[number] = work.setdefault(each, len(work))
        told = labels[which]
        there = told != NOTHING
        found[thread] = Stretches(edges[:-1][there], edges[1:][there], told[there])
    return HostTimes(tuple(work), found)


def _functions(columns: Sequence[tuple[list[str], Ints]], lines: Ints) -> tuple[list[HostWork], Ints]:
    """Each function of some samples once, with the line, the call and the leaf that it was seen in most; and each
    row's number.

    columns: of function, source, called and leaf the distinct values, None behind them, and each row's.
    """
    import numpy as np

    (names, name), (sources, source), (calls, call), (leaves, leaf) = columns
    # The lines of a module do different things.
    module = np.array([text == "<module>" for text in names])[name]
    keys = (name.astype(np.int64) * len(sources) + source, np.where(module, lines, 0))
    (distinct, _), label = np.unique(np.stack(keys), axis=1, return_inverse=True)
    label = label.ravel()  # NumPy 2.0 gives it two dimensions

    def commonest(values: Ints) -> dict[int, int]:
        pairs, counts = np.unique(np.stack([label, values]), axis=1, return_counts=True)
        return dict(pairs.T[np.argsort(counts, kind="stable")].tolist())  # of several, the last stays

    line_of, call_of, leaf_of = map(commonest, (lines, call, leaf))
    found = []
    for number, key in enumerate(distinct.tolist()):
        function, file = names[key // len(sources)] or "", sources[key % len(sources)] or ""
        line = None if line_of[number] < 0 else line_of[number]
        found.append(HostWork(function, file, line, calls[call_of[number]] or "", leaves[leaf_of[number]] or ""))
    return found, label


def _since_last(moments: Ints, labels: Ints) -> Stretches:
    """Samples of a thread, by time, as what it did: each tells of the time since the one before.

    nsys looks when it has the interpreter's lock: what kept it from looking is what it then sees.
    """
    import numpy as np

    first = moments[0] - (int(np.median(np.diff(moments))) if len(moments) > 1 else 0)
    return Stretches(np.append(first, moments[:-1]), moments, labels)
