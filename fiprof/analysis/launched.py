"""The CUDA calls of a trace, which one started each piece of the GPU's work, and in which NVTX range of the program.

A trace may have tens of millions of each: what is kept of them is kept in the smallest numbers, and tables are read in
pieces that are not kept at all.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fiprof.analysis.host import NOTHING, Stretches, by_thread, innermost, phases, thread_keys
from fiprof.model import tables
from fiprof.model.arrays import PIECE_ROWS, coded, numbers
from fiprof.model.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

    from fiprof.analysis.host import Ints


def pieces(run: Run, table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """A table in pieces; none where the run does not have it."""
    if run.has(table):
        yield from tables.Reader(run.tables_path, table).pieces(columns, PIECE_ROWS)


def sums(kernels: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Count and ns of the kernels by some columns; of sums too."""
    if "ns" in kernels.column_names:
        sums = kernels.group_by(list(keys), use_threads=False).aggregate([("count", "sum"), ("ns", "sum")])
    else:
        sums = kernels.group_by(list(keys), use_threads=False).aggregate(
            [("duration_ns", "count"), ("duration_ns", "sum")]
        )
    return sums.rename_columns([*keys, "count", "ns"])


def rows_of(run: Run, table: str) -> int:
    return tables.Reader(run.tables_path, table).rows if run.has(table) else 0


class Calls:
    """The CUDA calls of a run, by their row in ``api``."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.count = rows_of(run, "api")

    @functools.cached_property
    def starts(self) -> Ints:
        """ns since the trace began."""
        return self._column("start_ns")

    @functools.cached_property
    def ends(self) -> Ints:
        return self._column("end_ns")

    @functools.cached_property
    def threads(self) -> tuple[dict[int, int], Ints]:
        """Process and thread in one number (``host.thread_keys``) with their places, and the place of each call's."""
        keys: dict[int, int] = {}

        def codes(piece: pa.Table) -> Ints:
            import numpy as np
            import pyarrow as pa

            coded = pa.array(thread_keys(*map(numbers, piece.columns))).dictionary_encode()
            known = [keys.setdefault(key, len(keys)) for key in coded.dictionary.to_pylist()]
            of: Ints = np.array(known, np.int16)[coded.indices.to_numpy()]
            return of

        return keys, self._coded(("pid", "tid"), codes)

    @functools.cached_property
    def names(self) -> tuple[dict[str, int], Ints]:
        """Names of calls with their places, and the place of each call's."""
        texts: dict[str, int] = {}

        def codes(piece: pa.Table) -> Ints:
            import numpy as np

            names, of = coded(piece["name"])
            known: Ints = np.array([texts.setdefault(text or "", len(texts)) for text in names])
            return known[of]

        return texts, self._coded(("name",), codes)

    def stretches(self) -> dict[int, Stretches]:
        """What each thread was in when, innermost."""
        keys, threads = self.threads
        found = by_thread(threads, self.starts, self.ends, self.names[1])
        return {list(keys)[thread]: innermost(*each) for thread, each in found}

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
            place = np.minimum(np.searchsorted(calls, work, sorter=order), self.count - 1).astype(np.int32)
            place = place if order is None else order[place]
            found[at : at + len(work)] = np.where(calls[place] == work, place, NOTHING)
        return found

    def phases_of(self, calls: Ints) -> Ints:
        """The label in ``host.phases`` of the range that each call was made in; NOTHING outside all."""
        import numpy as np

        found = np.full(len(calls), NOTHING, np.int32)
        known = np.flatnonzero(calls != NOTHING)
        if phases(self._run).threads and len(known):
            keys, threads = self.threads
            of, moments = threads[calls[known]], self.starts[calls[known]]
            for thread, stretches in phases(self._run).threads.items():
                here = of == keys.get(thread, NOTHING)
                found[known[here]] = stretches.at(moments[here])
        return found

    def _identities(self, table: str) -> Iterator[tuple[int, Ints]]:
        """Process and correlation id in one number, piece by piece with the row of its first."""
        at = 0
        for piece in pieces(self._run, table, ("pid", "correlation")):
            yield at, numbers(piece["pid"]) << 32 | numbers(piece["correlation"]) & 0xFFFFFFFF
            at += piece.num_rows

    def _column(self, name: str) -> Ints:
        import numpy as np

        found, at = np.empty(self.count, np.int64), 0
        for piece in pieces(self._run, "api", (name,)):
            found[at : at + piece.num_rows] = numbers(piece[name])
            at += piece.num_rows
        return found

    def _coded(self, columns: Sequence[str], codes: Any) -> Ints:
        import numpy as np

        found, at = np.empty(self.count, np.int16), 0
        for piece in pieces(self._run, "api", columns):
            found[at : at + piece.num_rows] = codes(piece)
            at += piece.num_rows
        return found


def calls(run: Run) -> Calls:
    return run.once(Calls)


def kernel_calls(run: Run) -> Ints:
    """The call that started each kernel. Raises FiprofError for a table that cannot be read."""
    return run.once(_kernel_calls)


def _kernel_calls(run: Run) -> Ints:
    return calls(run).of("kernels")


def kernel_phases(run: Run) -> Ints:
    """The label in ``host.phases`` of the range that each kernel was launched in; NOTHING outside all."""
    return calls(run).phases_of(kernel_calls(run))
