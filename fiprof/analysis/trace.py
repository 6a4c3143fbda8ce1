"""A trace as arrays: CUDA calls, NVTX ranges, and which call launched each piece of the GPU's work.

A trace may have tens of millions of each, so columns have the smallest types, and tables are read in pieces. Quantiles
of groups are one sort of integers; what depends on the order of time (gaps, the range that a thread was in) uses sorted
arrays. That takes a third of the processor time of DuckDB's joins by time, and as much as its quantiles.
"""

import functools
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fiprof.model.arrays import Ints, Kinds, arrow, coded, numbers
from fiprof.model.run import Run, Shape, once, shape
from fiprof.model.selection import Weights, by_key
from fiprof.model.spans import NOTHING, Stretches, by_thread, split

LIBRARIES = ("NCCL", "CCCL", "cuBLAS", "cuDNN", "cuSPARSE", "cuSOLVER", "cuFFT", "TensorRT")
"""NVTX domains of libraries: their ranges are not the program's phases."""
PYTHON = "Python"  # NVTX domain of garbage collections, which ``fiprof.range`` marks: they are not steps
SEPARATOR = " > "  # between the names of nested ranges
CAPTURE = re.compile(r"cu(da)?StreamBeginCapture"), re.compile(r"cu(da)?StreamEndCapture")
FEWER_RANGES, COUNTS_FAR = 1_000_000, 500
"""In a trace with more ranges, at most so many names that differ in numbers alone are kept apart."""
FEWEST_STEPS = 3  # ranges of one thread, whose names differ in numbers alone, that may be steps: at least so many


def sums(kernels: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Count and ns of kernels, grouped by some columns. kernels: rows of the table, or of such sums."""
    whole = "ns" in kernels.column_names
    added = [("count", "sum"), ("ns", "sum")] if whole else [("duration_ns", "count"), ("duration_ns", "sum")]
    return kernels.group_by(list(keys), use_threads=False).aggregate(added).rename_columns([*keys, "count", "ns"])


def thread_keys(pids: Ints, tids: Ints) -> Ints:
    """Process and thread in one number."""
    keys: Ints = pids << 32 | tids
    return keys


@dataclass(frozen=True)
class Phases(Sequence[str]):
    """The paths of the program's push/pop ranges, by label: names from the outermost to the innermost, joined by
    SEPARATOR. A path is made when it is asked for: there may be millions."""

    outer: Ints  # label of each path without its innermost name; NOTHING for a path of one name
    name: Ints  # position of the innermost name in ``texts``
    texts: Sequence[str | None]
    threads: Mapping[int, Stretches]  # thread (:func:`thread_keys`) -> its ranges

    def __len__(self) -> int:
        return len(self.outer)

    def __getitem__(self, label: Any) -> Any:
        chain = [int(label)]
        while (around := int(self.outer[chain[-1]])) != NOTHING:
            chain.append(around)
        return SEPARATOR.join(self.texts[self.name[each]] or "" for each in reversed(chain))

    def path(self, label: int) -> str | None:
        """The path of a label; None for NOTHING, outside all ranges."""
        return None if label == NOTHING else self[label]


@once
def phases(run: Run) -> Phases:
    """The program's ranges as paths; empty without nsys."""
    ranges = marks(run)
    label = np.full(len(ranges.starts), NOTHING, np.int32)
    outer, name = ([np.empty(0, np.int64)] for _ in range(2))
    texts, named = _distinct_names(ranges)
    count, width = 0, len(texts) + 1
    for level in range(int(ranges.depths.max(initial=0)) + 1):
        of_level = np.flatnonzero(ranges.program & (ranges.depths == level))
        of_level, repeated = of_level[~ranges.repeats_parent[of_level]], of_level[ranges.repeats_parent[of_level]]
        label[repeated] = label[ranges.parents[repeated]]
        around = np.where(ranges.parents[of_level] == NOTHING, NOTHING, label[ranges.parents[of_level]])
        values, of = coded(arrow((around + 1) * width + named[of_level]))
        distinct = np.array(values[:-1], np.int64)
        label[of_level] = count + of
        count += len(distinct)
        outer, name = [*outer, distinct // width - 1], [*name, distinct % width]
    of_program = slice(None) if ranges.program.all() else np.flatnonzero(ranges.program)
    ends = np.where(ranges.ends[of_program] == NOTHING, np.iinfo(np.int64).max, ranges.ends[of_program])
    threads = (
        by_thread(ranges.threads[of_program], ranges.starts[of_program], ends, label[of_program]) if len(label) else {}
    )
    return Phases(np.concatenate(outer), np.concatenate(name), texts, threads)


@dataclass(frozen=True)
class Marks:
    """The rows of ``ranges``, with their names, also without the numbers in these."""

    starts: Ints
    ends: Ints  # NOTHING where a range never ended
    depths: Ints
    parents: Ints
    threads: Ints  # :func:`thread_keys`
    texts: list[str | None]
    name: Ints  # each one's place in ``texts``
    folded: list[str]
    alike: Ints  # each one's place in ``folded``, names by :func:`folded`: ``step *`` for ``step 20: 7 requests``
    domains: list[str | None]
    domain: Ints
    own: Any  # whether each is push/pop of the program or fiprof
    mark: Any  # whether each is a mark of the program or fiprof
    program: Any  # whether each is push/pop and not a library's: those of ``own``, and Python's garbage collections

    @functools.cached_property
    def repeats_parent(self) -> Any:
        """Whether each lies directly in one of its own name: a loop that pushes and never pops, or a recursion."""
        return (self.parents != NOTHING) & (self.name == self.name[self.parents])

    @functools.cached_property
    def series(self) -> Ints:
        """A number for each one's thread and folded name."""
        return coded(arrow(coded(arrow(self.threads))[1].astype(np.int64) * len(self.folded) + self.alike))[1]

    def repeating(self, chosen: Any) -> Any:
        """Which of the chosen ranges may be steps: the outermost of those with FEWEST_STEPS or more in their series."""
        often = chosen & (np.bincount(self.series[chosen], minlength=len(chosen) + 1)[self.series] >= FEWEST_STEPS)
        return often & ~self.inside(often)

    def around(self, chosen: Any, kind: Any = np.int32) -> Ints:
        """How many of the chosen ranges each lies in; with ``bool`` whether in one. chosen: a flag of each range."""
        values = np.zeros(len(self.starts), kind)
        for _ in range(int(self.depths.max(initial=0))):  # one level more each time; nothing lies around the outermost
            more = np.append(values + chosen, False)[self.parents]
            if np.array_equal(more, values):
                break
            values = more
        return values

    def inside(self, chosen: Any) -> Any:
        """Whether each lies in one of the chosen ranges."""
        return self.around(chosen, bool)


def _distinct_names(ranges: Marks) -> tuple[Sequence[str | None], Ints]:
    """Names of ranges, and each range's position in them. Where there are more than FEWER_RANGES, names that differ in
    numbers alone are one if there are many: else each step, with all that is in it, would be a path of its own."""
    if len(ranges.name) <= FEWER_RANGES:
        return ranges.texts, ranges.name
    alike = np.zeros(len(ranges.texts), np.int64)
    alike[ranges.name] = ranges.alike
    far = np.bincount(alike) > COUNTS_FAR
    numbered: dict[str | None, int] = {}
    names = [
        ranges.folded[like] if far[like] else text for text, like in zip(ranges.texts, alike.tolist(), strict=True)
    ]
    place = np.array([numbered.setdefault(name, len(numbered)) for name in names])
    return tuple(numbered), place[ranges.name]


_XLA, _IDS = re.compile(r"(?P<head>[\w ]+):?#(?P<about>\w+=.*)#"), re.compile(r",?\b\w*_id=\d+")


def readable(name: str) -> str:
    """A range's name; of XLA's (JAX, TensorFlow) without ids: ``XlaModule jit_step`` for
    ``XlaModule:#hlo_module=jit_step,program_id=159#``."""
    if (match := _XLA.fullmatch(name)) is None:
        return name
    about = _IDS.sub("", match["about"]).partition("=")[2]
    return f"{match['head']} {about}" if about else match["head"]


def counting(name: str) -> str:
    """A range's name without the details of one step: ``step 20`` for ``step 20: 7 requests``, ``aten::linear`` for
    ``aten::linear, seq = 3, op_id = 12`` (PyTorch). A record (``{'mod': 'torch', …}``) stays as it is."""
    head = name if name.startswith("{") else name.partition(": ")[0]
    return re.split(", (?:seq|op_id|sizes) = ", head, maxsplit=1)[0] if " = " in head else head


def folded(name: str) -> str:
    """A range's name without details and numbers: ``step *``."""
    return re.sub(r"\d+", "*", counting(name))


@once
def marks(run: Run) -> Marks:
    """The ranges of a run; no rows without nsys."""
    count, at = run.row_count("ranges"), 0
    starts, ends, threads = (np.empty(count, np.int64) for _ in range(3))
    depths, parents, domain, name, kind = (np.empty(count, np.int32) for _ in range(5))
    kinds_of = {"domain": Kinds(), "name": Kinds(), "kind": Kinds()}
    for piece in run.pieces("ranges", ("start_ns", "end_ns", "depth", "parent", "pid", "tid", *kinds_of)):
        rows = slice(at, at := at + piece.num_rows)
        of_piece = map(numbers, piece.columns[:6])
        starts[rows], ends[rows], depths[rows], parents[rows] = itertools.islice(of_piece, 4)
        threads[rows] = thread_keys(*of_piece)
        for filled, (column, of_column) in zip((domain, name, kind), kinds_of.items(), strict=True):
            filled[rows] = of_column.of(piece.select([column]))
    domains, texts, kinds = ([value for (value,) in of_column.numbers] for of_column in kinds_of.values())
    texts = [text and readable(text) for text in texts]
    push_pop, mark = (np.array([each == wanted for each in kinds], bool)[kind] for wanted in ("push_pop", "mark"))
    program = push_pop & np.array([each not in LIBRARIES for each in domains], bool)[domain]
    ours = np.array([each not in (*LIBRARIES, PYTHON) for each in domains], bool)[domain]
    own, mark = program & ours, mark & ours
    numbered: dict[str, int] = {}
    alike = np.array([numbered.setdefault(folded(each or ""), len(numbered)) for each in texts], np.int32)[name]
    return Marks(
        starts, ends, depths, parents, threads, texts, name, list(numbered), alike, domains, domain, own, mark, program
    )


@dataclass(frozen=True)
class Calls:
    """The CUDA calls of a run, by their row in ``api``."""

    run: Run
    starts: Ints  # ns since the trace began
    ends: Ints
    thread: Ints  # the number of each call's thread
    name: Ints  # the number of each call's name
    threads: dict[int, int]  # :func:`thread_keys` -> the number of the thread in ``thread``
    names: tuple[str, ...]  # what the numbers in ``name`` stand for

    @functools.cached_property
    def nested(self) -> dict[int, Stretches]:
        """Thread (its number) -> the innermost call it was in, by the number of its name. The capture of a CUDA graph
        is one call, named as its begin: what is launched in it does not run."""
        begin, end = (np.array([bool(of.match(name)) for name in self.names], bool)[self.name] for of in CAPTURE)
        thread, starts, ends, name = self.thread, self.starts, self.ends, self.name
        if not begin.any():
            return by_thread(thread, starts, ends, name)
        outermost, ends = np.ones(len(starts), bool), ends.copy()
        for _, rows in split(thread):
            rows = np.arange(len(thread))[rows]
            rows = rows[np.argsort(starts[rows], kind="stable")]
            first, last = np.flatnonzero(begin[rows]), np.flatnonzero(end[rows])
            after = np.searchsorted(last, first)
            first, after = first[after < len(last)], after[after < len(last)]
            ends[rows[first]] = ends[rows[last[after]]]
            for captured, until in zip(first.tolist(), last[after].tolist(), strict=True):
                outermost[rows[captured + 1 : until + 1]] = False
        return by_thread(thread[outermost], starts[outermost], ends[outermost], name[outermost])

    def of(self, table: str) -> Ints:
        """The call that started each row of ``kernels`` or ``copies``; NOTHING where it was not traced."""
        return self.run.once(_started_by, table)

    def phases_of(self, calls: Ints) -> Ints:
        """The label in :func:`phases` of the range that each call was made in; NOTHING outside all."""
        return self.within(calls, phases(self.run).threads)

    def within(self, calls: Ints, threads: Mapping[int, Stretches]) -> Ints:
        """The label of the stretch that each call's thread was in, NOTHING outside all. threads: as in Phases."""
        rows = np.full(len(calls), NOTHING, np.int32)
        with_call = np.flatnonzero(calls != NOTHING)
        if threads and len(with_call):
            of, moments = self.thread[calls[with_call]], self.starts[calls[with_call]]
            for thread, stretches in threads.items():
                here = of == self.threads.get(thread, NOTHING)
                rows[with_call[here]] = stretches.at(moments[here])
        return rows


@once
def calls(run: Run) -> Calls:
    """The CUDA calls; none without nsys."""
    count, at, named, threads = run.row_count("api"), 0, Kinds(), Kinds()
    starts, ends, thread, name = (np.empty(count, kind) for kind in ("int64", "int64", "int32", "int16"))
    for piece in run.pieces("api", ("start_ns", "end_ns", "pid", "tid", "name")):
        rows = slice(at, at := at + piece.num_rows)
        starts[rows], ends[rows] = map(numbers, piece.columns[:2])
        thread[rows], name[rows] = threads.of(piece.select(["pid", "tid"])), named.of(piece.select(["name"]))
    keys = {pid << 32 | tid: number for (pid, tid), number in threads.numbers.items()}
    return Calls(run, starts, ends, thread, name, keys, tuple(name or "" for (name,) in named.numbers))


def _started_by(run: Run, table: str) -> Ints:
    rows, calls = np.full(run.row_count(table), NOTHING, np.int32), np.empty(run.row_count("api"), np.int64)
    if not len(calls):
        return rows
    for at, piece in _identities(run, "api"):
        calls[at : at + len(piece)] = piece
    order = None if (calls[1:] > calls[:-1]).all() else np.argsort(calls, kind="stable").astype(np.int32)
    for at, work in _identities(run, table):
        place = np.minimum(np.searchsorted(calls, work, sorter=order), len(calls) - 1).astype(np.int32)
        place = place if order is None else order[place]
        rows[at : at + len(work)] = np.where(calls[place] == work, place, NOTHING)
    return rows


def _identities(run: Run, table: str) -> Iterator[tuple[int, Ints]]:
    """Process and correlation id of each row, in one number: pieces of a table, each with its first row."""
    at = 0
    for piece in run.pieces(table, ("pid", "correlation")):
        yield at, numbers(piece["pid"]) << 32 | numbers(piece["correlation"]) & 0xFFFFFFFF
        at += piece.num_rows


def of_device(run: Run, table: str, device: int, *columns: str) -> Iterator[tuple[Any, ...]]:
    """A GPU's kernels, or copies, in pieces: the call that started each row, then the columns. A column of numbers
    comes as an array; one of texts as the distinct texts, None last, and the position of each row's among them."""
    by, at = calls(run).of(table), 0
    for piece in run.pieces(table, (*columns, "device")):
        rows, on_device = by[at : (at := at + piece.num_rows)], numbers(piece["device"]) == device
        if on_device.any():
            rows_here: Any = slice(None) if on_device.all() else np.flatnonzero(on_device)
            parts = [rows[rows_here]]
            for column in map(piece.column, columns):
                values, of = (None, numbers(column)) if pa.types.is_integer(column.type) else coded(column)
                parts.append(of[rows_here] if values is None else (values, of[rows_here]))
            yield tuple(parts)


# How much of a program's trace each launch under ncu stands for

CaseShape = tuple[str | None, Shape]  # case and shape; a program has cases where launches were chosen by NVTX range
NEAR = 2.0  # largest ratio of a kernel's mean times on a grid and on the profiled grid that stands for it


@dataclass(frozen=True)
class StandsFor:
    """The executions under nsys that a launch stands for: of its kernel on its grid and block, and on others that were
    not profiled and take about as long. Several launches of one grid and block share them."""

    count: float
    total_us: float
    share: float  # of the time of all kernels of the trace, 0 to 1
    grids: int  # grids and blocks, its own included


def stand_ins(
    times: Mapping[CaseShape, tuple[int, int]], profiled: Collection[CaseShape]
) -> dict[CaseShape, CaseShape]:
    """Shape of a trace -> the profiled shape that stands for it: itself, or that of its kernel with the nearest mean
    time, up to NEAR. times: count and ns of each shape of the trace."""
    timed = by_key(((each[0], each[1][0]), each) for each in profiled if each in times)

    def apart(one: CaseShape, other: CaseShape) -> float:
        return abs(math.log(max(times[one][1], 1) / times[one][0] * times[other][0] / max(times[other][1], 1)))

    nearest = {
        each: min(of, key=functools.partial(apart, each)) for each in times if (of := timed.get((each[0], each[1][0])))
    }
    nearest |= {each: each for of in timed.values() for each in of}
    return {each: by for each, by in nearest.items() if apart(each, by) <= math.log(NEAR)}


@once
def standing(run: Run) -> dict[int, StandsFor]:
    """ncu's launch ID -> what it stands for; empty without a trace, and for runs whose iterations tell that."""
    if (run.cases and not (run.of_program or run.imported)) or not run.launches:
        return {}
    keys, traced = ["case", "kernel", "kernel_full", "grid", "block"], dict[CaseShape, tuple[int, int]]()
    for piece in run.pieces("kernels", (*keys, "duration_ns")):
        for row in sums(piece, keys).to_pylist():
            count, ns = traced.get((row["case"], shape(row)), (0, 0))
            traced[row["case"], shape(row)] = count + row["count"], ns + row["ns"]
    whole, by_launch = sum(ns for _, ns in traced.values()), dict[int, StandsFor]()
    alike = by_key(((launch.case, shape(launch)), launch.launch) for launch in run.launches)
    # In imported files, nobody chose the launches to stand for other grids than theirs.
    chosen = ((each, by) for each, by in stand_ins(traced, alike).items() if each == by or run.of_program)
    for key, of in by_key((by, traced[each]) for each, by in chosen).items():
        count, ns = (sum(column) / len(alike[key]) for column in zip(*of, strict=True))
        stands = StandsFor(count, ns / 1000, ns / whole if whole else 0.0, len(of))
        by_launch |= dict.fromkeys(alike[key], stands)
    return by_launch


def weights(run: Run) -> Weights:
    """The time that each of ncu's launches stands for, µs: of a program all executions, of a case one in a loop under
    nsys, or ncu's where it was not traced."""
    if stands_for := standing(run):
        return {launch: stands.total_us for launch, stands in stands_for.items()}
    launches = run.launches if run.trace.kernels else ()
    return {each.launch: each.nsys_duration_us or each.duration_us or 0.0 for each in launches}
