"""A run's measurements side by side: ncu's, nsys's and those without a profiler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from statistics import median
from typing import Any

from fiprof.analysis.times import Times, TraceTimes, plain_times, trace_times
from fiprof.model import derived, metrics, source
from fiprof.model.run import Run

LAUNCH_COLUMNS = ("launch", "case", "iteration", "kernel", "kernel_full", "grid", "block", *metrics.COLUMNS)


class Evidence:
    """What a run has, read when it is asked for. A tool that the run lacks gives empty collections.

    Raises FiprofError for a table that is there and cannot be read.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def launches(self) -> list[source.Row]:
        """Kernel launches under ncu, with every column of ``metrics.py``."""
        return source.rows(self.run, "launches", LAUNCH_COLUMNS)

    @cached_property
    def stalls(self) -> dict[int, list[source.Row]]:
        """Launch -> its reasons."""
        reasons = defaultdict(list)
        for row in source.rows(self.run, "stalls", ("launch", "reason", "warps_per_issue", "samples")):
            reasons[row["launch"]].append(row)
        return dict(reasons)

    @cached_property
    def trace(self) -> TraceTimes:
        """Times under nsys."""
        return trace_times(self.run)

    @cached_property
    def plain(self) -> dict[str, Times]:
        """Times without a profiler."""
        return plain_times(self.run)

    def of(self, case: str) -> list[source.Row]:
        """ncu's launches of a case."""
        return self._by_case.get(case, [])

    @cached_property
    def _by_case(self) -> dict[str, list[source.Row]]:
        found: dict[str, list[source.Row]] = defaultdict(list)
        for row in self.launches:
            found[row["case"]].append(row)
        return dict(found)

    def per_iteration(self, case: str, quantity: Callable[[source.Row], float | None]) -> float | None:
        """A quantity of ncu's launches summed over the kernels of an iteration, the median of the iterations.

        None where ncu did not see the case, or one of its launches lacks the quantity.
        """
        totals: dict[Any, list[float | None]] = defaultdict(list)
        for row in self.of(case):
            totals[row["iteration"]].append(quantity(row))
        if not totals or any(value is None for values in totals.values() for value in values):
            return None
        return median(sum(value for value in values if value is not None) for values in totals.values())


def float_ops(row: source.Row) -> float | None:
    """A launch's floating-point operations outside the tensor cores, without half additions.

    Conversions between half and single precision execute as HADD, so these count work that is none.
    None where no precision was counted.
    """
    counts = derived.float_ops({**row, "hadd_thread_insts": 0.0})
    return sum(counts.values()) if counts else None


def environment(run: Run, *path: str) -> Any:
    """A value of the manifest's environment by its path of keys; None where it is not there."""
    value: Any = run.manifest.environment
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
