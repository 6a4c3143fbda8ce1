"""How long kernels and iterations took: medians and spreads over the iterations of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from fiprof.model.arrays import Kinds, Quantiles, arrow, coded, numbers
from fiprof.model.finding import Provenance, TracedNumber
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run, once
from fiprof.model.spans import side_by_side, split, union_by, within

if TYPE_CHECKING:
    import pyarrow as pa

    from fiprof.model.arrays import Floats, Ints

K = TypeVar("K")
V = TypeVar("V")

COLUMNS = ("phase", "case", "iteration", "kernel", "duration_ns")
"""Of the table ``kernels``, that :func:`trace_times` needs."""


@dataclass(frozen=True)
class Times:
    """Durations of the same thing, measured several times."""

    count: int
    median_us: float
    p10_us: float
    p90_us: float

    @property
    def spread(self) -> float:
        """(p90 - p10) / median."""
        return (self.p90_us - self.p10_us) / self.median_us if self.median_us else 0.0


@dataclass(frozen=True)
class CaseTimes:
    """What nsys saw of a case in the phase ``measure``."""

    iteration: Times
    """Kernel time of an iteration: the sum over its kernels, without the gaps between them."""
    executions: float
    """Kernels that an iteration runs, on average."""
    iterations_us: tuple[float, ...]
    """Kernel time of each iteration, in their order."""


@dataclass(frozen=True)
class TraceTimes:
    """What nsys saw in the phase ``measure``; empty without nsys."""

    kernels: dict[tuple[str, str], Times]
    """(Case id, kernel) -> its executions."""
    cases: dict[str, CaseTimes]
    ranks: dict[int, TraceTimes] = field(default_factory=dict)
    """Rank -> its own, where there are several; the others are then those of the slowest rank, by its median: a median
    over ranks is a time that none of them took."""


def summarize(durations_us: Sequence[float] | Floats) -> Times | None:
    """None for no durations. Percentiles are interpolated between neighbours."""
    if not len(durations_us):
        return None
    import numpy as np

    p10, median, p90 = np.percentile(durations_us, (10, 50, 90)).tolist()
    return Times(len(durations_us), median, p10, p90)


def measured(piece: pa.Table) -> Ints:
    """The rows of kernels or copies that belong to a case in the phase ``measure``."""
    import numpy as np

    (phases, phase), (cases, case) = coded(piece["phase"]), coded(piece["case"])
    in_phase = np.array([text == "measure" for text in phases])[phase]
    return np.flatnonzero(in_phase & np.array([text is not None for text in cases])[case])


def trace_times(pieces: Iterable[pa.Table], rows: int, ranks: Callable[[pa.Table], Ints] | None = None) -> TraceTimes:
    """The kernels' times by kernel and by iteration.

    pieces: of the table ``kernels``, with COLUMNS and those that ``ranks`` needs. rows: of all pieces. ranks: the rank
    of each row of a piece, where there are several; one that is negative is of none.
    """
    import numpy as np

    kernels, iterations, durations_ns = Kinds(), Kinds(), Quantiles(rows)
    totals_ns: Floats = np.zeros(0)  # exact below 2^53 ns
    for piece in pieces:
        rank = np.zeros(piece.num_rows, np.int64) if ranks is None else ranks(piece)
        kept = measured(piece)
        kept = kept[rank[kept] >= 0]
        if not len(kept):
            continue
        if len(kept) < piece.num_rows:
            piece, rank = piece.take(arrow(kept)), rank[kept]
        number, duration_ns = numbers(piece["iteration"]), numbers(piece["duration_ns"])
        durations_ns.add(kernels.of(piece.select(["case", "kernel"]), rank=rank), duration_ns)
        iteration = iterations.of(piece.select(["case"]), rank=rank, iteration=number)
        added: Floats = np.bincount(iteration, duration_ns, len(iterations.numbers))  # type: ignore[assignment]
        added[: len(totals_ns)] += totals_ns
        totals_ns = added
    by_rank: dict[int, TraceTimes] = {}
    times = durations_ns.found()
    for (case_id, name, of_rank), each in kernels.numbers.items():
        by_rank.setdefault(of_rank, TraceTimes({}, {})).kernels[case_id, name] = _times(*times[each])
    of_cases: dict[tuple[int, str], list[tuple[int, float]]] = {}
    for (case_id, of_rank, number_), total_ns in zip(iterations.numbers, totals_ns.tolist(), strict=True):
        if number_ >= 0:
            of_cases.setdefault((of_rank, case_id), []).append((number_, total_ns / 1e3))
    for (of_rank, case_id), totals in of_cases.items():
        totals_us = [total_us for _, total_us in sorted(totals)]
        if iteration_times := summarize(totals_us):
            found = by_rank[of_rank]
            executions = sum(each.count for (of_case, _), each in found.kernels.items() if of_case == case_id)
            found.cases[case_id] = CaseTimes(iteration_times, executions / len(totals), tuple(totals_us))
    if ranks is None:
        return by_rank.get(0, TraceTimes({}, {}))
    ordered = dict(sorted(by_rank.items()))
    return TraceTimes(
        _slowest([each.kernels for each in ordered.values()], lambda times: times.median_us),
        _slowest([each.cases for each in ordered.values()], lambda times: times.iteration.median_us),
        ordered,
    )


def _times(count: int, p10_ns: float, median_ns: float, p90_ns: float) -> Times:
    return Times(count, median_ns / 1e3, p10_ns / 1e3, p90_ns / 1e3)


def _slowest(of_ranks: Iterable[dict[K, V]], median_us: Callable[[V], float]) -> dict[K, V]:
    """Of each key the value of the rank that is slowest."""
    found: dict[K, V] = {}
    for times in of_ranks:
        for key, value in times.items():
            if key not in found or median_us(value) > median_us(found[key]):
                found[key] = value
    return found


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
