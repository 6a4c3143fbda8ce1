"""A trace as arrays and by queries: CUDA calls, NVTX ranges, and which call launched each piece of the GPU's work.

A trace may have tens of millions of each: what is kept of them is kept in the smallest numbers, and tables are read in
pieces that are not kept at all. Sums and quantiles are DuckDB's; what follows the order of time (gaps, what a thread
was in) goes over sorted arrays, which takes a third of the time of DuckDB's joins by time.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.model.arrays import arrow, coded, numbers
from fiprof.model.run import Run

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from fiprof.model.arrays import Ints

NOTHING = -1
"""The label of a moment with no call, or outside every range."""
LIBRARIES = ("NCCL", "CCCL", "cuBLAS", "cuDNN", "cuSPARSE", "cuSOLVER", "cuFFT", "TensorRT")
"""NVTX domains of libraries: their ranges are not the program's phases."""
SEPARATOR = " > "
"""Between the names of nested ranges."""
MEMORY = "800MB"
"""What DuckDB takes before it writes to a temporary folder."""


@contextlib.contextmanager
def database() -> Iterator[DuckDBPyConnection]:
    """DuckDB in memory. It reads no file and loads no extension: rows come as Arrow tables, checked by their reader."""
    import tempfile

    import duckdb

    with tempfile.TemporaryDirectory(prefix="fiprof-") as folder:
        settings = {"memory_limit": MEMORY, "threads": 2, "temp_directory": folder}
        with duckdb.connect(config=settings) as connection:
            with contextlib.suppress(duckdb.InvalidInputException):  # a notebook without ipywidgets: it has no bar
                connection.execute("SET enable_progress_bar = false")
            for setting in ("autoload_known_extensions", "enable_external_access"):
                connection.execute(f"SET {setting} = false")
            connection.execute("SET lock_configuration = true")
            yield connection


def insert(connection: DuckDBPyConnection, table: str, **columns: Ints) -> None:
    """Add rows to a table of these columns, in this order."""
    import pyarrow as pa

    piece = pa.Table.from_arrays(list(map(arrow, columns.values())), names=list(columns))
    connection.register("piece", piece)
    connection.execute(f"INSERT INTO {table} SELECT * FROM piece")
    connection.unregister("piece")


# Tables


def pieces(run: Run, table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """A table in pieces; none where the run does not have it. Raises FiprofError where it cannot be read."""
    if run.has(table):
        yield from run.pieces(table, columns)


def rows_of(run: Run, table: str) -> int:
    """The rows of a table, 0 without it."""
    return run.row_count(table)


def sums(kernels: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Count and ns of the kernels by some columns; of sums too."""
    whole = "ns" in kernels.column_names
    added = [("count", "sum"), ("ns", "sum")] if whole else [("duration_ns", "count"), ("duration_ns", "sum")]
    return kernels.group_by(list(keys), use_threads=False).aggregate(added).rename_columns([*keys, "count", "ns"])


class Kinds:
    """The distinct values of some columns, numbered as they are met."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Any, ...], int] = {}

    def of(self, piece: pa.Table, **added: Ints) -> Ints:
        """The number of each row. added: columns of integers that are not in the table."""
        import numpy as np

        key, size = np.zeros(piece.num_rows, np.int64), 1
        columns = [coded(column)[1] for column in piece.columns]
        for codes in (*columns, *(values - values.min(initial=0) for values in added.values())):
            if size * (width := int(codes.max(initial=0)) + 1) > 1 << 62:
                distinct, key = coded(arrow(key))
                size = len(distinct)
            key, size = key * width + codes, size * width
        distinct, key = coded(arrow(key))
        example = np.empty(len(distinct) - 1, np.int64)
        example[key[::-1]] = np.arange(len(key))[::-1]
        shown = [column.to_pylist() for column in piece.take(arrow(example)).columns]
        shown += [values[example].tolist() for values in added.values()]
        known = [self.numbers.setdefault(values, len(self.numbers)) for values in zip(*shown, strict=True)]
        return np.array(known, np.int32)[key]


# Threads


@dataclass(frozen=True)
class Stretches:
    """What was innermost on one thread, in order of time; between two stretches there is nothing."""

    starts: Ints
    ends: Ints
    labels: Ints

    def at(self, moments: Ints) -> Ints:
        """The label of each moment, NOTHING between stretches."""
        import numpy as np

        if not len(self.starts):
            return np.full(len(moments), NOTHING)
        if len(moments) > 2 * len(self.starts) and (moments[1:] >= moments[:-1]).all():
            bounds = np.searchsorted(moments, np.column_stack([self.starts, self.ends]).ravel())
            labels = np.column_stack([self.labels, np.full_like(self.labels, NOTHING)]).ravel()
            return np.repeat(np.append(NOTHING, labels), np.diff(bounds, prepend=0, append=len(moments)))
        place = np.searchsorted(self.starts, moments, side="right") - 1
        return np.where((place >= 0) & (moments < self.ends[place]), self.labels[place], NOTHING)

    def overlaps(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """The stretches that some disjoint intervals meet: which interval, begin and end inside it, and the label."""
        import numpy as np

        first = np.searchsorted(self.ends, starts, side="right")
        count = np.maximum(np.searchsorted(self.starts, ends, side="left") - first, 0)
        of = np.repeat(np.arange(len(starts)), count)
        place = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count) + first[of]
        return (
            of,
            np.maximum(self.starts[place], starts[of]),
            np.minimum(self.ends[place], ends[of]),
            self.labels[place],
        )


def innermost(starts: Ints, ends: Ints, labels: Ints) -> Stretches:
    """Nested intervals of one thread as what is innermost when. Those of no length are left out."""
    import numpy as np

    lasting = ends > starts
    if not lasting.all():
        starts, ends, labels = starts[lasting], ends[lasting], labels[lasting]
    if (starts[1:] >= ends[:-1]).all():
        return Stretches(starts, ends, labels)
    count = len(starts)
    times, begins = np.concatenate([ends, starts]), np.repeat([0, 1], count)
    # At one moment ends come before beginnings, of these the longest first.
    order = np.lexsort((np.concatenate([starts, -ends]), begins, times))
    times, begins = times[order], begins[order]
    depth = np.cumsum(2 * begins - 1)
    # Of each depth the last beginning so far is what holds: depths one after the other, a running maximum.
    by_depth = np.argsort(depth, kind="stable")
    width = 2 * count + 1
    began = np.empty(2 * count, np.int64)
    latest = np.maximum.accumulate(depth[by_depth] * width + np.where(begins == 1, np.arange(1, width), 0)[by_depth])
    began[by_depth] = latest % width - 1
    owner = np.append(labels, labels)[order]
    held = np.flatnonzero((depth[:-1] > 0) & (began[:-1] >= 0) & (times[1:] > times[:-1]))
    return Stretches(times[held], times[held + 1], owner[began[held]])


def by_thread(threads: Ints, *columns: Ints) -> dict[int, Stretches]:
    """What each thread was in when. columns: starts, ends and labels of nested intervals, by start."""
    import numpy as np

    if len(threads) and (threads == threads[0]).all():
        return {int(threads[0]): innermost(*columns)}
    order = np.argsort(threads, kind="stable")
    found, first = np.unique(threads[order], return_index=True)
    parts = np.split(order, first[1:])
    return {
        thread: innermost(*(column[part] for column in columns))
        for thread, part in zip(found.tolist(), parts, strict=False)
    }


def thread_keys(pids: Ints, tids: Ints) -> Ints:
    """Process and thread in one number."""
    keys: Ints = pids << 32 | tids
    return keys


@dataclass(frozen=True)
class Phases:
    """The program's NVTX ranges: push/pop, of its own domains."""

    paths: tuple[str, ...]
    """Label -> names from the outermost to the innermost, joined by SEPARATOR."""
    threads: Mapping[int, Stretches]
    """Thread (:func:`thread_keys`) -> its ranges."""

    def path(self, label: int) -> str | None:
        """The names; None outside all ranges."""
        return None if label == NOTHING else self.paths[label]


def phases(run: Run) -> Phases:
    """The program's ranges; none without nsys. Raises FiprofError for a table that cannot be read."""
    return run.once(_phases)


def _phases(run: Run) -> Phases:
    import numpy as np

    rows = run.rows("ranges", ("domain", "name", "start_ns", "end_ns", "parent", "kind", "pid", "tid"))
    paths: list[str] = []
    for row in rows:
        around = row["parent"]
        paths.append(f"{paths[around]}{SEPARATOR}{row['name']}" if around is not None else row["name"])
    labels = {path: label for label, path in enumerate(dict.fromkeys(paths))}
    own = [
        (row["pid"] << 32 | row["tid"], row["start_ns"], row["end_ns"] or np.iinfo(np.int64).max, labels[path])
        for row, path in zip(rows, paths, strict=True)
        if row["kind"] == "push_pop" and row["domain"] not in LIBRARIES
    ]
    return Phases(tuple(labels), by_thread(*np.array(own, np.int64).reshape(-1, 4).T) if own else {})


class Calls:
    """The CUDA calls of a run, by their row in ``api``."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.count = rows_of(run, "api")
        self.threads: dict[int, int] = {}
        """:func:`thread_keys` -> the number of the thread in ``thread``."""
        self._names: dict[str, int] = {}

    @functools.cached_property
    def starts(self) -> Ints:
        """ns since the trace began."""
        return self._column(("start_ns",), numbers, "int64")

    @functools.cached_property
    def ends(self) -> Ints:
        """ns since the trace began."""
        return self._column(("end_ns",), numbers, "int64")

    @functools.cached_property
    def thread(self) -> Ints:
        """The number of each call's thread."""

        def numbered(pids: pa.ChunkedArray, tids: pa.ChunkedArray) -> Ints:
            import numpy as np

            keys, thread = coded(arrow(thread_keys(numbers(pids), numbers(tids))))
            known: Ints = np.array([self.threads.setdefault(key, len(self.threads)) for key in keys[:-1]])
            return known[thread]

        return self._column(("pid", "tid"), numbered, "int16")

    @functools.cached_property
    def name(self) -> Ints:
        """The number of each call's name."""

        def numbered(column: pa.ChunkedArray) -> Ints:
            import numpy as np

            texts, name = coded(column)
            known: Ints = np.array([self._names.setdefault(text or "", len(self._names)) for text in texts])
            return known[name]

        return self._column(("name",), numbered, "int16")

    @property
    def names(self) -> tuple[str, ...]:
        """What the numbers in ``name`` stand for."""
        assert self.name is not None
        return tuple(self._names)

    def _column(self, columns: Sequence[str], make: Callable[..., Ints], kind: str) -> Ints:
        import numpy as np

        found, at = np.empty(self.count, kind), 0
        for piece in pieces(self._run, "api", columns):
            found[at : at + piece.num_rows] = make(*piece.columns)
            at += piece.num_rows
        return found

    def stretches(self) -> dict[int, Stretches]:
        """Thread (its number) -> what it was in when."""
        return by_thread(self.thread, self.starts, self.ends, self.name) if self.count else {}

    def of(self, table: str) -> Ints:
        """Of each row of ``kernels`` or ``copies`` the call that started it; NOTHING where it was not traced."""
        import numpy as np

        found = np.full(rows_of(self._run, table), NOTHING, np.int32)
        if not self.count:
            return found
        calls = np.empty(self.count, np.int64)
        for at, piece in self._identities("api"):
            calls[at : at + len(piece)] = piece
        order = None if (calls[1:] > calls[:-1]).all() else np.argsort(calls, kind="stable").astype(np.int32)
        for at, work in self._identities(table):
            place = np.minimum(np.searchsorted(calls, work, sorter=order), len(calls) - 1).astype(np.int32)
            place = place if order is None else order[place]
            found[at : at + len(work)] = np.where(calls[place] == work, place, NOTHING)
        return found

    def _identities(self, table: str) -> Iterator[tuple[int, Ints]]:
        """Process and correlation id in one number, piece by piece with the row of its first."""
        at = 0
        for piece in pieces(self._run, table, ("pid", "correlation")):
            yield at, numbers(piece["pid"]) << 32 | numbers(piece["correlation"]) & 0xFFFFFFFF
            at += piece.num_rows

    def phases_of(self, calls: Ints) -> Ints:
        """The label in :func:`phases` of the range that each call was made in; NOTHING outside all."""
        import numpy as np

        found = np.full(len(calls), NOTHING, np.int32)
        known = np.flatnonzero(calls != NOTHING)
        if phases(self._run).threads and len(known):
            of, moments = self.thread[calls[known]], self.starts[calls[known]]
            for thread, stretches in phases(self._run).threads.items():
                here = of == self.threads.get(thread, NOTHING)
                found[known[here]] = stretches.at(moments[here])
        return found


def calls(run: Run) -> Calls:
    """The CUDA calls, read once. Raises FiprofError for a table that cannot be read."""
    return run.once(Calls)


def kernel_calls(run: Run) -> Ints:
    """The call that started each kernel."""
    return run.once(_kernel_calls)


def _kernel_calls(run: Run) -> Ints:
    return calls(run).of("kernels")


def kernel_phases(run: Run) -> Ints:
    """The label in :func:`phases` of the range that each kernel was launched in; NOTHING outside all."""
    return calls(run).phases_of(kernel_calls(run))
