"""Quantities of a case: what its iterations took by each tool, and what it needs at the least, with their provenance.

Each is a function of a run and a case id that gives a traced number, or None where the run does not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fiprof.model.expressions import Expression
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import RATIO, SUM, Provenance, TracedNumber
from fiprof.model.quantities import DURATION, FLOAT_OPS_WITHOUT_CONVERSIONS, TENSOR_OPS, Key
from fiprof.model.run import Run
from fiprof.model.times import Times


@dataclass(frozen=True)
class CaseQuantity(Key):
    """A number of a case."""

    trace: Callable[[Run, str], TracedNumber | None]

    def traced(self, run: Run, case: str | None) -> TracedNumber | None:
        """The number with its provenance; None without it. case: its id."""
        return None if case is None else self.trace(run, case)

    def of(self, run: Run, case: str | None) -> float | None:
        """The number in its unit."""
        found = self.traced(run, case)
        return None if found is None else found.value


def total(numbers: Sequence[TracedNumber]) -> TracedNumber | None:
    """The sum, written as the first; None for none."""
    if len(numbers) < 2:
        return numbers[0] if numbers else None
    source = Provenance("facts", SUM, parts=tuple(number.source for number in numbers))
    return TracedNumber(sum(number.value for number in numbers), source, numbers[0].spec, numbers[0].unit)


def _median(times: Times | None, of: Provenance) -> TracedNumber | None:
    if times is None:
        return None
    in_us = "" if of.origin == "plain" else " / 1000"
    return TracedNumber(times.median_us, of.of(f"median({of.formula}){in_us}"), ",.2f", " µs")


def _spread(times: Times | None, of: Provenance) -> TracedNumber | None:
    return None if times is None else TracedNumber(times.spread, of.of(f"spread({of.formula})"), ".1%")


def _plain(case: str) -> Provenance:
    return Provenance("plain", "gpu_us", case=case)


def _nsys(case: str) -> Provenance:
    return Provenance("nsys", "iteration_ns", case=case)


def _traced_times(run: Run, case: str) -> Times | None:
    found = run.trace.cases.get(case)
    return found.iteration if found else None


def _under_ncu(run: Run, case: str) -> TracedNumber | None:
    launches = run.launches_of(case)
    if not launches or len({launch.iteration for launch in launches}) > 1:
        return None
    durations = [launch.traced(DURATION) for launch in launches]
    return None if None in durations else total([each for each in durations if each is not None])


PLAIN = CaseQuantity(
    "case_plain_us",
    "µs",
    "Median iteration without a profiler, between CUDA events.",
    lambda run, case: _median(run.plain.get(case), _plain(case)),
)
PLAIN_SPREAD = CaseQuantity(
    "case_plain_spread",
    "",
    "(p90 - p10) / median of the iterations without a profiler.",
    lambda run, case: _spread(run.plain.get(case), _plain(case)),
)
NSYS = CaseQuantity(
    "case_nsys_us",
    "µs",
    "Median of an iteration's kernel time under nsys, without the gaps between kernels.",
    lambda run, case: _median(_traced_times(run, case), _nsys(case)),
)
NSYS_SPREAD = CaseQuantity(
    "case_nsys_spread",
    "",
    "(p90 - p10) / median of the iterations' kernel times under nsys.",
    lambda run, case: _spread(_traced_times(run, case), _nsys(case)),
)
NCU = CaseQuantity("case_ncu_us", "µs", "Kernel time of an iteration under ncu, where ncu saw one.", _under_ncu)
KERNEL_TIME = CaseQuantity(
    "case_kernel_us",
    "µs",
    "Kernel time of an iteration: by nsys, else by ncu.",
    lambda run, case: NSYS.traced(run, case) or NCU.traced(run, case),
)


def iterations(run: Run, case: str) -> TracedNumber | None:
    """Iterations of a case that nsys saw."""
    times, of = _traced_times(run, case), _nsys(case)
    return None if times is None else TracedNumber(times.count, of.of(f"count({of.formula})"), ".0f")


def kernel_median(run: Run, case: str | None, kernel: str) -> TracedNumber | None:
    """Median of a kernel's executions in a case under nsys, µs."""
    return _median(run.trace.kernels.get((case or "", kernel)), _kernel(case, kernel))


def kernel_spread(run: Run, case: str | None, kernel: str) -> TracedNumber | None:
    """(p90 - p10) / median of the same."""
    return _spread(run.trace.kernels.get((case or "", kernel)), _kernel(case, kernel))


def _kernel(case: str | None, kernel: str) -> Provenance:
    return Provenance("nsys", "duration_ns", case=case, kernel=kernel)


def work_factor(run: Run, case: CaseEntry) -> TracedNumber | None:
    """Operations that ncu counted in an iteration over those of the cost model, as the check ``flops`` takes them:
    tensor operations where there are any, else those outside the tensor cores without half additions.

    None without a cost model, and where ncu saw several iterations or did not count.
    """
    launches = run.launches_of(case.id)
    if not launches or not case.flops or len({launch.iteration for launch in launches}) > 1:
        return None
    tensor = any(TENSOR_OPS.value(launch) for launch in launches)
    counted: Expression = TENSOR_OPS if tensor else FLOAT_OPS_WITHOUT_CONVERSIONS
    values = [counted.value(launch) for launch in launches]
    known = [value for value in values if value is not None]
    if len(known) < len(launches):
        return None
    parts = [Provenance("ncu", launch.formula(counted), launch=launch.launch) for launch in launches]
    source = Provenance("facts", RATIO, parts=(*parts, Provenance("run.json", "flops", case=case.id)))
    return TracedNumber(sum(known) / case.flops, source)
