"""Which CUDA call started each piece of the GPU's work, and in which NVTX range of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fiprof.analysis.host import NOTHING, phases, thread_keys
from fiprof.model import tables
from fiprof.model.run import Run

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from fiprof.analysis.host import Ints

    Places = npt.NDArray[np.int32]


def numbers(column: pa.ChunkedArray) -> Ints:
    """A column of integers, NOTHING in place of null."""
    import numpy as np

    filled = column if not column.null_count else column.fill_null(NOTHING)
    found: Ints = filled.to_numpy().astype(np.int64, copy=False)
    return found


def columns(run: Run, table: str, names: Sequence[str]) -> list[Ints]:
    """Columns of integers, read for this once: a run keeps what it reads, and these are long."""
    import pyarrow as pa

    found = []
    for name in names:
        found.append(numbers(tables.read(run.tables_path, table, [name])[name]))
        # Arrow keeps what it freed, for the next time.
        pa.default_memory_pool().release_unused()
    return found


def calls_of(run: Run, table: str) -> Places:
    """Of each row of ``kernels`` or ``copies`` the row in ``api`` of the call that started it; NOTHING where it was not
    traced. Raises FiprofError for a table that cannot be read.
    """
    import numpy as np

    work = _identities(run, table)
    calls = _identities(run, "api") if run.has("api") else work[:0]
    if not len(calls):
        return np.full(len(work), NOTHING, np.int32)
    order = None if (calls[1:] > calls[:-1]).all() else np.argsort(calls, kind="stable").astype(np.int32)
    place = np.minimum(np.searchsorted(calls, work, sorter=order), len(calls) - 1).astype(np.int32)
    place = place if order is None else order[place]
    place[calls[place] != work] = NOTHING
    return place


def _identities(run: Run, table: str) -> Ints:
    """Process and correlation id in one number."""
    pids, correlations = columns(run, table, ("pid", "correlation"))
    return pids << 32 | correlations & 0xFFFFFFFF


def kernel_phases(run: Run) -> Places:
    """The label in ``host.phases`` of the range that each kernel was launched in; NOTHING outside all."""
    return run.once(_kernel_phases)


def _kernel_phases(run: Run) -> Places:
    import numpy as np

    calls = run.once(kernel_calls)
    found = np.full(len(calls), NOTHING, np.int32)
    if phases(run).threads and run.has("api"):
        known = np.flatnonzero(calls != NOTHING).astype(np.int32)
        at = calls[known]
        threads = thread_keys(*columns(run, "api", ("pid", "tid")))[at]
        found[known] = phases(run).at(threads, columns(run, "api", ("start_ns",))[0][at])
    return found


def kernel_calls(run: Run) -> Places:
    """``calls_of`` of the kernels."""
    return calls_of(run, "kernels")
