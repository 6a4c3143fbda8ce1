"""How long kernels and iterations took: medians and spreads over the iterations of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.model import tables
from fiprof.model.run import Run

if TYPE_CHECKING:
    import pyarrow as pa


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


def summarize(durations_us: Sequence[float]) -> Times | None:
    """None for no durations. Percentiles are interpolated between neighbours."""
    if not durations_us:
        return None
    ordered = sorted(durations_us)
    median, p10, p90 = (_percentile(ordered, q) for q in (0.5, 0.1, 0.9))
    return Times(len(ordered), median, p10, p90)


def _percentile(ordered: Sequence[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def plain_times(run: Run) -> dict[str, Times]:
    """Case id -> an iteration without a profiler, between CUDA events.

    Event overhead and the gaps between kernels are in it: 1 to 3 µs an iteration.
    """
    found = {case: summarize(baseline.gpu_us) for case, baseline in run.baseline.items()}
    return {case: times for case, times in found.items() if times is not None}


@dataclass(frozen=True)
class TraceTimes:
    """What nsys saw in the phase ``measure``; empty without nsys."""

    kernels: dict[tuple[str, str], Times]
    """(Case id, kernel) -> its executions."""
    cases: dict[str, CaseTimes]


def trace_times(run: Run) -> TraceTimes:
    """The kernels' times by kernel and by iteration.

    Raises FiprofError for a table that cannot be read.
    """
    if not run.has("kernels"):
        return TraceTimes({}, {})
    measured = _measured(run)
    executions = {
        (case, kernel): times
        for case, kernel, durations_ns in _grouped(measured, ["case", "kernel"], "list")
        if (times := summarize([ns / 1e3 for ns in durations_ns]))
    }
    cases = {
        case: CaseTimes(times, executions=sum(e.count for (c, _), e in executions.items() if c == case) / times.count)
        for case, totals_us in _iterations(measured).items()
        if (times := summarize(totals_us))
    }
    return TraceTimes(executions, cases)


def iteration_times(run: Run) -> dict[str, list[float]]:
    """Case id -> kernel time of each iteration under nsys in µs, in their order; empty without nsys.

    Raises FiprofError for a table that cannot be read.
    """
    return _iterations(_measured(run)) if run.has("kernels") else {}


def _iterations(measured: pa.Table) -> dict[str, list[float]]:
    totals: dict[str, list[tuple[int, float]]] = {}
    for case, iteration, total_ns in _grouped(measured, ["case", "iteration"], "sum"):
        totals.setdefault(case, []).append((-1 if iteration is None else iteration, total_ns / 1e3))
    return {case: [total_us for _, total_us in sorted(pairs)] for case, pairs in totals.items()}


def _measured(run: Run) -> pa.Table:
    """Case, iteration, kernel and duration_ns of the kernel executions in the phase ``measure``."""
    import pyarrow.compute as pc

    kernels = tables.read(run.tables_path, "kernels", ["phase", "case", "iteration", "kernel", "duration_ns"])
    inside = pc.and_(pc.equal(kernels["phase"], "measure"), pc.is_valid(kernels["case"]))
    return kernels.filter(inside).unify_dictionaries()


def _grouped(measured: pa.Table, keys: list[str], function: str) -> list[tuple[Any, ...]]:
    """The keys' values and an aggregate of ``duration_ns``, by group; millions of rows stay in Arrow."""
    if not measured.num_rows:
        return []
    grouped = measured.group_by(keys, use_threads=False).aggregate([("duration_ns", function)])
    return list(zip(*(grouped.column(name).to_pylist() for name in [*keys, f"duration_ns_{function}"]), strict=True))
