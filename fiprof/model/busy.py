"""How long the GPU works in an iteration, once however many kernels and copies run; and when kernels share it."""

from __future__ import annotations

from collections import defaultdict

from fiprof.model.arrays import Kinds, arrow, coded, numbers
from fiprof.model.finding import Provenance, TracedNumber
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run, once
from fiprof.model.spans import side_by_side, split, union_by, within
from fiprof.model.times import Times, measured, summarize

DEVICE_BITS, STREAM_BITS = 8, 24
"""Of the number that names a stream of a GPU of a process, which has 31."""


@once
def busy_times(run: Run) -> dict[str, Times]:
    """Case id -> the working time of its iterations in the phase ``measure``, by nsys; empty without.

    Raises FiprofError for a table that cannot be read.
    """
    import numpy as np

    ranks, kinds, parts = ranks_of(run), Kinds(), [(np.empty(0, np.int64),) * 3]
    for table in ("kernels", "copies"):
        for piece in run.pieces(table, ("start_ns", "end_ns", "phase", "case", "iteration", "pid", "device")):
            work = piece.take(arrow(measured(piece)))
            rank = np.zeros(work.num_rows, np.int64)
            if ranks.several:
                rank = np.maximum(ranks.of_rows(work.select(["pid", "device"])), 0)
            of = kinds.of(work.select(["case"]), rank=rank, iteration=numbers(work["iteration"]))
            parts.append((of, numbers(work["start_ns"]), numbers(work["end_ns"])))
    of, starts, ends = union_by(*map(np.concatenate, zip(*parts, strict=True)))
    working_ns = np.bincount(of, ends - starts, len(kinds.numbers)).tolist()  # exact below 2^53 ns
    by_rank: dict[tuple[str, int], list[float]] = defaultdict(list)
    for (case, rank, _), ns in zip(kinds.numbers, working_ns, strict=True):
        by_rank[case, rank].append(ns / 1e3)
    # Of ranks, GPUs work side by side: the slowest one's time is the iteration's.
    found: dict[str, Times] = {}
    for (case, _), working_us in by_rank.items():
        times = summarize(working_us)
        if times is not None and (case not in found or times.median_us > found[case].median_us):
            found[case] = times
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
    phases, phase = coded(table["phase"])
    counted, kinds = np.array([text not in ("setup", "warmup") for text in phases])[phase], Kinds()
    kind = kinds.of(table.select(["case", "kernel"]))
    shared, whole = (np.bincount(kind, each * counted, len(kinds.numbers)) for each in (shared_ns, ends - starts))
    return {
        (case, kernel or ""): float(shared[number] / whole[number])
        for (case, kernel), number in kinds.numbers.items()
        if whole[number]
    }
