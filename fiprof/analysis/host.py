"""What a program's threads did on the host: the Python functions that nsys sampled, and waits for the interpreter's
lock.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fiprof.analysis.trace import thread_keys
from fiprof.model.arrays import Ints, coded, numbers
from fiprof.model.run import Run, once
from fiprof.model.selection import sums_by_key
from fiprof.model.spans import NOTHING, Stretches, split

T = TypeVar("T")
COLUMNS = ("start_ns", "end_ns", "pid", "tid", "holder", "line", "function", "source", "called")

OVERDUE = 2.0  # times the usual from one look to the next, from which on what was seen then kept nsys from looking
FEWEST_LOOKS = 3  # of nsys's inside some calls, to tell where they are made


class HostWork(NamedTuple):
    function: str  # innermost in the program's own files, of all where none is its own; empty where no sample tells
    source: str  # its file, as Python has it
    line: int | None
    called: str  # what that line was in a call of, with its file; empty where that is nothing
    waits_for_gil: bool = False  # the thread waited for the interpreter's lock meanwhile
    holder: str = ""  # the function that held the lock during the wait, in another thread; empty where none is known

    @property
    def label(self) -> str:
        """In words, for a table."""
        if self.waits_for_gil:
            return "waiting for the GIL" + (f", held by {self.holder}" if self.holder else "")
        return self.place + (f", in {self.called}" if self.called else "")

    @property
    def whole(self) -> "HostWork":
        """The function with all of its lines; of a module, whose lines do different things, this one."""
        return self._replace(line=self.line if self.function == "<module>" else None, called="")

    @property
    def place(self) -> str:
        """Function, file's name and line."""
        file = self.source.replace("\\", "/").rpartition("/")[2]
        return f"{self.function} ({file}{'' if self.line is None else f':{self.line}'})" if file else self.function


class Looks(NamedTuple):
    """When nsys looked at a thread, what it saw, and which looks came within OVERDUE times the usual since the last."""

    moments: Ints  # ns since the trace began
    works: Sequence[HostWork]
    in_time: npt.NDArray[np.bool_]


NO_LOOKS = Looks(np.empty(0, np.int64), (), np.empty(0, bool))


class HostTimes(NamedTuple):
    """When each thread did what; nothing in a run without samples and waits."""

    work: tuple[HostWork, ...]  # by label
    threads: Mapping[int, Stretches]  # thread (``thread_keys``) -> its work
    looks: Mapping[int, Looks]
    recomputing: frozenset[int]  # threads that were seen to repeat forward passes for the backward pass

    def during(self, thread: int, begins: Ints, ends: Ints) -> dict[HostWork, int]:
        """What a thread did in some disjoint stretches, by start: ns of each function, without those that no sample
        tells of; its line is the one that took most of them, its call that line's. thread: as in ``thread_keys``; of
        one that runs no Python, as autograd's, what its process's main thread did meanwhile. A look behind the end of a
        stretch saw what came after: the time before it is as the look before, where that lies inside."""
        if (seen := _seen(self.threads, thread)) is None:
            return {}
        of, starts, stops, labels = seen.overlaps(begins, ends)
        if looks := _seen(self.looks, thread):
            place = np.searchsorted(looks.moments[:-1], stops)
            behind = (looks.moments[place] > ends[of]) & looks.in_time[place]
            waits = np.array([work.waits_for_gil for work in self.work])[labels]
            behind[1:] &= (of[1:] == of[:-1]) & ~waits[1:] & ~waits[:-1]
            labels[1:] = np.where(behind[1:], labels[:-1], labels[1:])
        sums = np.bincount(labels, stops - starts, minlength=1)
        done = [(self.work[label], int(sums[label])) for label in np.flatnonzero(sums).tolist()]
        lines = sums_by_key((work._replace(called=""), ns) for work, ns in done)
        longest, spent = dict[HostWork, HostWork](), Counter[HostWork]()
        for work, ns in sorted(done, key=lambda each: (-lines[each[0]._replace(called="")], -each[1])):
            spent[longest.setdefault(work.whole, work)] += ns
        return spent

    def near(self, thread: int, moments: Ints) -> tuple[Ints, Ints, Sequence[HostWork]]:
        """The look at a thread that is nearest to each moment, how far it is in ns, and what the looks saw, nothing
        where there is none. thread: as in ``during``; of one that seldom runs Python the looks at the main thread
        count too."""
        own, main = self.looks.get(thread, NO_LOOKS), _seen(self.looks, thread & ~0xFFFFFFFF) or NO_LOOKS
        looked, works = own.moments, own.works
        if len(works) < len(main.works) / 8:
            looked, works = np.append(looked, main.moments), (*works, *main.works)
        if not works:
            return moments, moments, works
        order = np.argsort(looked, kind="stable")
        looked = looked[order]
        after = np.minimum(np.searchsorted(looked, moments), len(looked) - 1)
        before = np.maximum(after - 1, 0)
        nearest = np.where(moments - looked[before] < looked[after] - moments, before, after)
        return order[nearest], abs(looked[nearest] - moments), works

    def most_seen(self, stretches: Iterable[tuple[int, Ints, Ints]]) -> str:
        """Where threads were when nsys looked at them inside some disjoint stretches: the function seen most often, and
        its line; empty where it looked too seldom. stretches: thread, begins, ends."""
        seen, of = Counter[HostWork](), Counter[tuple[str, str]]()
        for thread, begins, ends in stretches:
            looks = self.looks.get(thread, NO_LOOKS)
            inside = Stretches(begins, ends, np.zeros(len(begins), np.int64)).at(looks.moments) != NOTHING
            seen.update(looks.works[row] for row in np.flatnonzero(inside).tolist())
        for work, count in seen.items():
            of[work.function, work.source] += count
        if of.total() < FEWEST_LOOKS:
            return ""
        most = of.most_common(1)[0][0]
        return next(work.place for work, _ in seen.most_common() if (work.function, work.source) == most)


@once
def host_times(run: Run) -> HostTimes:
    if not run.row_count("host_samples"):
        return HostTimes((), {}, {}, frozenset())
    table = run.table("host_samples", COLUMNS)
    starts, ends, pids, tids, holders, lines = (numbers(table[name]) for name in COLUMNS[:6])
    threads = thread_keys(pids, tids)
    samples, waits = np.flatnonzero(ends < 0), np.flatnonzero(ends >= 0)
    texts = [(values, codes[samples]) for values, codes in (coded(table[name]) for name in COLUMNS[6:])]
    functions, label = _functions(texts, lines[samples])
    seldom_first = np.argsort(np.bincount(label), kind="stable").tolist()
    usual = {functions[each].whole: functions[each].place for each in seldom_first}  # of several, the last stays
    # nsys looks when it has the lock: what kept it from looking since its last look is what it then sees.
    seen, looks = {}, {}
    for thread, rows in split(threads[samples]):
        moments = starts[samples[rows]]
        since_ns = np.diff(moments, prepend=moments[:1])
        in_time = since_ns <= OVERDUE * np.median(since_ns)
        looks[thread] = Looks(moments, [functions[each] for each in label[rows].tolist()], in_time)
        before = np.append(2 * moments[:1] - moments[1:2], moments)[: len(moments)]
        seen[thread] = Stretches(before, moments, label[rows])
    # Of each wait the thread that held the lock, by what it mostly did meanwhile; nothing where that was not sampled.
    held, holding = np.full(len(waits), NOTHING), list[str]()
    for thread, rows in split(thread_keys(pids, holders)[waits]):
        if thread not in seen:
            continue
        meanwhile, waited_ns = seen[thread].at(ends[waits[rows]] - 1), (ends - starts)[waits[rows]]
        by_function = Counter[HostWork]()
        for of, here in split(meanwhile):
            if of != NOTHING:
                by_function[functions[of].whole] += int(waited_ns[here].sum())
        if by_function:
            held[rows] = len(holding)
            holding.append(usual[by_function.most_common(1)[0][0]])
    waited = {
        thread: Stretches(starts[at], ends[at], held[rows] + 1)
        for thread, rows in split(threads[waits])
        for at in [waits[rows]]
    }

    nothing, width = Stretches(*[np.empty(0, np.int64)] * 3), len(functions) + 1
    work, by_thread = dict[HostWork, int](), {}
    for thread in seen.keys() | waited.keys():
        function, wait = seen.get(thread, nothing), waited.get(thread, nothing)
        edges = np.unique(np.concatenate([function.starts, function.ends, wait.starts, wait.ends]))
        # By function, from 1; by holder, from 2: 1 where none is known, 0 outside waits.
        keys = (wait.at(edges[:-1]) + 1) * width + function.at(edges[:-1]) + 1
        sampled = keys > 0
        distinct, which = np.unique(keys[sampled], return_inverse=True)
        numbers_ = []
        for holder, place in (divmod(key, width) for key in distinct.tolist()):
            each = functions[place - 1] if place else HostWork("", "", None, "")
            by = holding[holder - 2] if holder > 1 else ""
            numbers_.append(work.setdefault(each._replace(waits_for_gil=holder > 0, holder=by), len(work)))
        by_thread[thread] = Stretches(edges[:-1][sampled], edges[1:][sampled], np.array(numbers_)[which])
    repeating = frozenset[int]()
    if "recomputes" in run.columns("host_samples"):  # of runs from before they lack it
        flags, flag = coded(run.table("host_samples", ["recomputes"])["recomputes"])
        often = Counter(threads[np.array([bool(each) for each in flags])[flag]].tolist())
        repeating = frozenset(thread for thread, count in often.items() if count >= FEWEST_LOOKS)
    return HostTimes(tuple(work), by_thread, looks, repeating)


def _seen(threads: Mapping[int, T], thread: int) -> T | None:
    """What was seen of a thread, else of its process's main thread; None for none."""
    others = (each for each in threads if each >> 32 == thread >> 32)
    beside = thread if thread in threads else min(others, default=None)
    return None if beside is None else threads[beside]


def _functions(columns: Sequence[tuple[list[str], Ints]], lines: Ints) -> tuple[list[HostWork], Ints]:
    """Each line of the functions of some samples once with each of its calls, and each row's number. columns: of
    function, source and called the distinct values, None behind them, and each row's."""
    (names, name), (sources, source), (calls, call) = columns
    distinct, label = np.unique(np.stack([name, source, lines, call]), axis=1, return_inverse=True)
    functions = [
        HostWork(names[function] or "", sources[file] or "", None if line < 0 else line, calls[called] or "")
        for function, file, line, called in distinct.T.tolist()
    ]
    return functions, label.ravel()  # NumPy 2.0 gives it two dimensions
