"""How long the GPU works in an iteration: while a kernel, a copy or a memory set runs, once however many do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fiprof.model.ranks import Ranks, ranks_of
from fiprof.model.run import Run
from fiprof.model.times import Times, summarize
from fiprof.model.unions import union_by

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("start_ns", "end_ns", "phase", "case", "iteration")


def busy_times(run: Run) -> dict[str, Times]:
    """Case id -> the working time of its iterations in the phase ``measure``, by nsys; empty without.

    Raises FiprofError for a table that cannot be read.
    """
    return run.once(_busy_times)


def _busy_times(run: Run) -> dict[str, Times]:
    import numpy as np
    import pyarrow as pa

    ranks = ranks_of(run)
    pieces = [_measured(_ranked(run, name, ranks)) for name in ("kernels", "copies") if run.has(name)]
    work = pa.concat_tables(pieces).unify_dictionaries() if pieces else None
    if work is None or not work.num_rows:
        return {}
    case = work["case"].combine_chunks()
    iteration = work["iteration"].fill_null(-1).to_numpy().astype(np.int64) + 1
    several = int(iteration.max()) + 1
    # Of ranks, GPUs work side by side: the slowest one's time is the iteration's.
    rank = work["rank"].to_numpy()
    keys = (rank * len(case.dictionary) + case.indices.to_numpy().astype(np.int64)) * several + iteration
    of, starts, ends = union_by(keys, work["start_ns"].to_numpy(), work["end_ns"].to_numpy())
    first = np.flatnonzero(np.diff(of, prepend=-1))
    working_us = np.add.reduceat(ends - starts, first) / 1e3
    names, of_case = case.dictionary.to_pylist(), of[first] // several
    found: dict[str, Times] = {}
    for number in np.unique(of_case):
        times, name = summarize(working_us[of_case == number].tolist()), names[number % len(names)]
        if times is not None and (name not in found or times.median_us > found[name].median_us):
            found[name] = times
    return found


def _ranked(run: Run, table: str, ranks: Ranks) -> pa.Table:
    """The table's COLUMNS with the rank of each row; 0 in a run of one."""
    import numpy as np

    rows = run.table(table, COLUMNS)
    told = np.maximum(ranks.of(table), 0) if ranks.several else np.zeros(rows.num_rows, np.int64)
    return rows.append_column("rank", [told])


def _measured(work: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    timed = pc.and_(pc.is_valid(work["start_ns"]), pc.is_valid(work["end_ns"]))
    return work.filter(pc.and_(timed, pc.and_(pc.equal(work["phase"], "measure"), pc.is_valid(work["case"]))))
