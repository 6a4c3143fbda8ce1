"""Kernels that ran side by side and shared the GPU, which ncu does not see: it runs one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.run import Run
from fiprof.model.unions import union_by

if TYPE_CHECKING:
    from fiprof.model.unions import Ints

DEVICE_BITS, STREAM_BITS = 8, 24
"""Of the number that names a stream of a GPU of a process, which has 31."""


def beside(run: Run, case: str | None, kernel: str) -> TracedNumber | None:
    """BESIDE of a kernel in a case; None without nsys. Raises FiprofError for a table that cannot be read."""
    share = overlap_shares(run).get((case, kernel))
    source = Provenance("nsys", "100 * sum(beside_ns) / sum(duration_ns)", case=case, kernel=kernel)
    return None if share is None else TracedNumber(100 * share, source, ".0f", "%")


def overlap_shares(run: Run) -> dict[tuple[str | None, str], float]:
    """(Case id, kernel) -> the share of its time under nsys in which a kernel of another stream of the same process
    ran on the same GPU, 0 to 1; kernels of set-up and warm-up are left out.

    Kernels of one stream never count, though a programmatic dependent launch starts one before the other has ended.
    Empty without nsys. Raises FiprofError for a table that cannot be read.
    """
    return run.once(_overlap_shares)


def _overlap_shares(run: Run) -> dict[tuple[str | None, str], float]:
    import numpy as np
    import pyarrow.compute as pc

    if not run.has("kernels"):
        return {}
    columns = ["start_ns", "end_ns", "device", "stream", "pid", "phase", "case", "kernel"]
    table = run.table("kernels", columns)
    table = table.filter(pc.and_(pc.is_valid(table["start_ns"]), pc.is_valid(table["end_ns"])))
    if not table.num_rows:
        return {}
    starts, ends = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    pid, device, stream = (table[name].fill_null(0).to_numpy().astype(np.int64) for name in ("pid", "device", "stream"))
    gpu = pid << DEVICE_BITS | device
    shared = _side_by_side(gpu, gpu << STREAM_BITS | stream & (1 << STREAM_BITS) - 1, starts, ends)
    counted = table.append_column("shared_ns", [shared]).append_column("duration_ns", [ends - starts])
    ignored = pc.or_(pc.equal(table["phase"], "setup"), pc.equal(table["phase"], "warmup"))
    counted = counted.filter(pc.invert(pc.fill_null(ignored, False))).unify_dictionaries()
    sums = counted.group_by(["case", "kernel"], use_threads=False).aggregate(
        [("shared_ns", "sum"), ("duration_ns", "sum")]
    )
    return {
        (row["case"], row["kernel"] or ""): row["shared_ns_sum"] / row["duration_ns_sum"]
        for row in sums.to_pylist()
        if row["duration_ns_sum"]
    }


def _side_by_side(gpus: Ints, streams: Ints, starts: Ints, ends: Ints) -> Ints:
    """The time of each kernel, ns, in which two streams of its GPU or more had one. streams: with their GPU's bits."""
    import numpy as np

    found = np.zeros_like(starts)
    of_stream, first, last = union_by(streams, starts, ends)
    for gpu in np.unique(gpus):
        at_work = of_stream >> STREAM_BITS == gpu
        times = np.concatenate([first[at_work], last[at_work]])
        change = np.repeat([1, -1], len(times) // 2)
        order = np.argsort(times, kind="stable")
        times, several = times[order], np.cumsum(change[order]) > 1
        together = np.concatenate([[0], np.cumsum(np.diff(times) * several[:-1])])
        mine = gpus == gpu
        for sign, moments in ((1, ends[mine]), (-1, starts[mine])):
            before = np.searchsorted(times, moments, side="right") - 1
            found[mine] += sign * (together[before] + several[before] * (moments - times[before]))
    return found
