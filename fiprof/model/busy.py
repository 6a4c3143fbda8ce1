"""How long the GPU works in an iteration, once however many kernels and copies run; and when kernels share it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fiprof.model.arrays import numbers
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run, once
from fiprof.model.spans import side_by_side, split, union_by, within
from fiprof.model.times import Times, summarize

if TYPE_CHECKING:
    import pyarrow as pa

DEVICE_BITS, STREAM_BITS = 8, 24
"""Of the number that names a stream of a GPU of a process, which has 31."""


@once
def busy_times(run: Run) -> dict[str, Times]:
    """Case id -> the working time of its iterations in the phase ``measure``, by nsys; empty without.

    Raises FiprofError for a table that cannot be read.
    """
    import numpy as np
    import pyarrow as pa

    ranks, found = ranks_of(run), dict[str, Times]()

    def measured(table: str) -> pa.Table:
        import pyarrow.compute as pc

        work = run.table(table, ("start_ns", "end_ns", "phase", "case", "iteration"))
        rank = np.maximum(ranks.of(table), 0) if ranks.several else np.zeros(work.num_rows, np.int64)
        of_case = pc.and_(pc.equal(work["phase"], "measure"), pc.is_valid(work["case"]))
        return work.append_column("rank", [rank]).filter(of_case)

    pieces = [measured(table) for table in ("kernels", "copies") if run.has(table)]
    work = pa.concat_tables(pieces).unify_dictionaries() if pieces else None
    if work is None or not work.num_rows:
        return found
    case = work["case"].combine_chunks()
    iteration = work["iteration"].fill_null(-1).to_numpy().astype(np.int64) + 1
    several = int(iteration.max()) + 1
    # Of ranks, GPUs work side by side: the slowest one's time is the iteration's.
    rank = work["rank"].to_numpy()
    keys = (rank * len(case.dictionary) + case.indices.to_numpy().astype(np.int64)) * several + iteration
    of, starts, ends = union_by(keys, work["start_ns"].to_numpy(), work["end_ns"].to_numpy())
    first = np.flatnonzero(np.diff(of, prepend=-1))
    working_us = np.add.reduceat(ends - starts, first) / 1e3
    names = case.dictionary.to_pylist()
    for number, rows in split(of[first] // several):
        times, name = summarize(working_us[rows].tolist()), names[number % len(names)]
        if times is not None and (name not in found or times.median_us > found[name].median_us):
            found[name] = times
    return found


def beside(run: Run, case: str | None, kernel: str) -> TracedNumber | None:
    """BESIDE of a kernel in a case; None without nsys. Raises FiprofError for a table that cannot be read."""
    share = overlap_shares(run).get((case, kernel))
    source = Provenance("nsys", "100 * sum(beside_ns) / sum(duration_ns)", case=case, kernel=kernel)
    return None if share is None else TracedNumber(100 * share, source, ".0f", "%")


@once
def overlap_shares(run: Run) -> dict[tuple[str | None, str], float]:
    """(Case id, kernel) -> the share of its time under nsys in which a kernel of another stream of the same process
    ran on the same GPU, which ncu does not see; 0 to 1. Kernels of set-up and warm-up are left out.

    Kernels of one stream never count, though a programmatic dependent launch starts one before the other has ended.
    Empty without nsys. Raises FiprofError for a table that cannot be read.
    """
    import numpy as np
    import pyarrow.compute as pc

    if not run.row_count("kernels"):
        return {}
    table = run.table("kernels", ("start_ns", "end_ns", "device", "stream", "pid", "phase", "case", "kernel"))
    starts, ends, device, stream, pid = map(numbers, table.columns[:5])
    gpu = pid << DEVICE_BITS | np.maximum(device, 0)
    stream = gpu << STREAM_BITS | np.maximum(stream, 0) & (1 << STREAM_BITS) - 1
    shared_ns = np.zeros(len(starts))
    for _, rows in split(gpu):
        if np.ptp(stream[rows]):
            shared_ns[rows] = within(side_by_side(stream[rows], starts[rows], ends[rows]), starts[rows], ends[rows])
    counted = table.append_column("shared_ns", [shared_ns]).append_column("duration_ns", [ends - starts])
    ignored = pc.or_(pc.equal(table["phase"], "setup"), pc.equal(table["phase"], "warmup"))
    counted = counted.filter(pc.invert(pc.fill_null(ignored, False))).unify_dictionaries()
    added = [("shared_ns", "sum"), ("duration_ns", "sum")]
    sums = counted.group_by(["case", "kernel"], use_threads=False).aggregate(added)
    return {
        (row["case"], row["kernel"] or ""): row["shared_ns_sum"] / row["duration_ns_sum"]
        for row in sums.to_pylist()
        if row["duration_ns_sum"]
    }
