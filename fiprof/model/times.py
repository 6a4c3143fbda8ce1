"""How long kernels and iterations took: medians and spreads over the iterations of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

    from fiprof.model.unions import Ints

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


def summarize(durations_us: Sequence[float]) -> Times | None:
    """None for no durations. Percentiles are interpolated between neighbours."""
    if not len(durations_us):
        return None
    import numpy as np

    p10, median, p90 = np.percentile(durations_us, (10, 50, 90)).tolist()
    return Times(len(durations_us), median, p10, p90)


def trace_times(kernels: pa.Table, ranks: Ints | None = None) -> TraceTimes:
    """The kernels' times by kernel and by iteration.

    kernels: the table's COLUMNS. ranks: of each row, where there are several; one that is negative is of none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if ranks is not None:
        there = sorted(rank for rank in set(ranks.tolist()) if rank >= 0)
        by_rank = {rank: trace_times(kernels.filter(pa.array(ranks == rank))) for rank in there}
        every = list(by_rank.values())
        return TraceTimes(
            _slowest([each.kernels for each in every], lambda times: times.median_us),
            _slowest([each.cases for each in every], lambda times: times.iteration.median_us),
            by_rank,
        )

    inside = pc.and_(pc.equal(kernels["phase"], "measure"), pc.is_valid(kernels["case"]))
    measured = kernels.filter(inside).unify_dictionaries()
    executions = {
        (case, kernel): times
        for case, kernel, durations_ns in _grouped(measured, ["case", "kernel"], "list")
        if (times := summarize([ns / 1e3 for ns in durations_ns]))
    }
    cases = {
        case: CaseTimes(
            times,
            executions=sum(e.count for (c, _), e in executions.items() if c == case) / times.count,
            iterations_us=tuple(totals_us),
        )
        for case, totals_us in _iterations(measured).items()
        if (times := summarize(totals_us))
    }
    return TraceTimes(executions, cases)


def _slowest(of_ranks: Iterable[dict[K, V]], median_us: Callable[[V], float]) -> dict[K, V]:
    """Of each key the value of the rank that is slowest."""
    found: dict[K, V] = {}
    for times in of_ranks:
        for key, value in times.items():
            if key not in found or median_us(value) > median_us(found[key]):
                found[key] = value
    return found


def _iterations(measured: pa.Table) -> dict[str, list[float]]:
    """Case id -> kernel time of each iteration in µs, in their order; kernels outside of iterations are of none."""
    totals: dict[str, list[tuple[int, float]]] = {}
    for case, iteration, total_ns in _grouped(measured, ["case", "iteration"], "sum"):
        if iteration is not None:
            totals.setdefault(case, []).append((iteration, total_ns / 1e3))
    return {case: [total_us for _, total_us in sorted(pairs)] for case, pairs in totals.items()}


def _grouped(measured: pa.Table, keys: list[str], function: str) -> list[tuple[Any, ...]]:
    """The keys' values and an aggregate of ``duration_ns``, by group; millions of rows stay in Arrow."""
    if not measured.num_rows:
        return []
    grouped = measured.group_by(keys, use_threads=False).aggregate([("duration_ns", function)])
    return list(zip(*(grouped.column(name).to_pylist() for name in [*keys, f"duration_ns_{function}"]), strict=True))
