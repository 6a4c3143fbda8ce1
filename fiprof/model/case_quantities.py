"""Quantities of a case: what its iterations took by each tool, and what it needs at the least, with their provenance.

Each is a function of a run and a case id that gives a traced number, or None where the run does not have it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from fiprof.model.busy import busy_times
from fiprof.model.formula import Formula
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import RATIO, SUM, Provenance, TracedNumber
from fiprof.model.quantities import DURATION, Key
from fiprof.model.run import Launch, Run
from fiprof.model.times import Times
from fiprof.model.work import FLOAT_OPS_WITHOUT_CONVERSIONS, TENSOR_OPS, main_work, peak_of


@dataclass(frozen=True)
class CaseQuantity(Key):
    """A number of a case."""

    trace: Callable[[Run, str], TracedNumber | None]

    def traced(self, run: Run, case: str | None) -> TracedNumber | None:
        """The number with its provenance; None without it. case: its id."""
        if case is None:
            return None
        # Every launch of a case asks for it, and it is made of all of them.
        known = run.once(_traced)
        if (self, case) not in known:
            known[self, case] = self.trace(run, case)
        return known[self, case]

    def of(self, run: Run, case: str | None) -> float | None:
        """The number in its unit."""
        found = self.traced(run, case)
        return None if found is None else found.value


def _traced(_: Run) -> dict[tuple[CaseQuantity, str], TracedNumber | None]:
    """What was asked of a run so far."""
    return {}


def total(numbers: Sequence[TracedNumber]) -> TracedNumber | None:
    """The sum, written as the first; None for none."""
    return _together(SUM, sum, numbers)


def _together(formula: str, of: Callable[[list[float]], float], numbers: Sequence[TracedNumber]) -> TracedNumber | None:
    if len(numbers) < 2:
        return numbers[0] if numbers else None
    source = Provenance("facts", formula, parts=tuple(number.source for number in numbers))
    return TracedNumber(of([number.value for number in numbers]), source, numbers[0].spec, numbers[0].unit)


def _median(times: Times | None, of: Provenance) -> TracedNumber | None:
    if times is None:
        return None
    in_us = "" if of.origin == "plain" else " / 1000"
    return TracedNumber(times.median_us, of.of(f"median({of.formula}){in_us}"), ",.2f", " µs")


def _spread(times: Times | None, of: Provenance) -> TracedNumber | None:
    return None if times is None else TracedNumber(times.spread, of.of(f"spread({of.formula})"), ".1%")


def _plain(run: Run, case: str) -> tuple[Times | None, Provenance]:
    return run.plain.get(case), Provenance("plain", "gpu_us", case=case)


def _nsys(run: Run, case: str) -> tuple[Times | None, Provenance]:
    found = run.trace.cases.get(case)
    return found.iteration if found else None, Provenance("nsys", "iteration_ns", case=case)


def _kernel(run: Run, case: str | None, kernel: str) -> tuple[Times | None, Provenance]:
    source = Provenance("nsys", "duration_ns", case=case, kernel=kernel)
    return run.trace.kernels.get((case or "", kernel)), source


def _working(run: Run, case: str) -> TracedNumber | None:
    traced = _median(busy_times(run).get(case), Provenance("nsys", "iteration_busy_ns", case=case))
    return traced or NCU.traced(run, case)


def _under_ncu(run: Run, case: str) -> TracedNumber | None:
    seen: dict[int | None, list[TracedNumber]] = defaultdict(list)
    for launch in run.launches_of(case):
        duration = launch.traced(DURATION)
        if duration is None:
            return None
        seen[launch.iteration].append(duration)
    return _together("median(parts)", median, [found for each in seen.values() if (found := total(each)) is not None])


PLAIN = CaseQuantity(
    "case_plain_us",
    "µs",
    "Median iteration without a profiler, between CUDA events.",
    lambda run, case: _median(*_plain(run, case)),
)
PLAIN_SPREAD = CaseQuantity(
    "case_plain_spread",
    "",
    "(p90 - p10) / median of the iterations without a profiler.",
    lambda run, case: _spread(*_plain(run, case)),
)
NSYS = CaseQuantity(
    "case_nsys_us",
    "µs",
    "Median of an iteration's kernel time under nsys, without the gaps between kernels.",
    lambda run, case: _median(*_nsys(run, case)),
)
NSYS_SPREAD = CaseQuantity(
    "case_nsys_spread",
    "",
    "(p90 - p10) / median of the iterations' kernel times under nsys.",
    lambda run, case: _spread(*_nsys(run, case)),
)
NCU = CaseQuantity(
    "case_ncu_us", "µs", "Kernel time of an iteration under ncu, the median of those that it saw.", _under_ncu
)
KERNEL_TIME = CaseQuantity(
    "case_kernel_us",
    "µs",
    "Kernel time of an iteration: by nsys, else by ncu.",
    lambda run, case: NSYS.traced(run, case) or NCU.traced(run, case),
)
BUSY = CaseQuantity(
    "case_busy_us",
    "µs",
    "Median time of an iteration under nsys in which a kernel, a copy or a memory set ran, once however many; without "
    "nsys, that of its kernels under ncu.",
    _working,
)


def kernels(run: Run, case: str) -> int | None:
    """Kernels of an iteration that ncu saw; under nsys where ncu saw none."""
    found = run.per_iteration(case, lambda _: 1.0)
    if found is None and (traced := run.trace.cases.get(case)):
        found = traced.executions
    return None if found is None else round(found)


# What a case needs at the least, by its workload's cost model


def _least(run: Run, case: str, *names: str) -> TracedNumber | None:
    entry = run.case(case)
    if entry is None:
        return None
    return TracedNumber(
        sum(getattr(entry, name) for name in names), Provenance("run.json", " + ".join(names), case=case), ",.0f"
    )


def _rate(amount: TracedNumber | None, run: Run, case: str, scale: str, unit: str) -> TracedNumber | None:
    time = NCU.traced(run, case) or NSYS.traced(run, case)
    if amount is None or not amount.value or time is None or not time.value:
        return None
    source = Provenance("facts", f"a / b / {scale}", parts=(amount.source, time.source))
    return TracedNumber(amount.value / time.value / float(scale), source, ",.2f", unit)


def _of_roof(
    rate: TracedNumber | None, run: Run, case: str, roof: Callable[[Launch], Formula | None], scale: str
) -> TracedNumber | None:
    """A rate of the case over a roof of the launch that took most time."""
    longest = max(run.launches_of(case), key=lambda launch: launch.duration_us or 0.0, default=None)
    peak = roof(longest) if longest is not None else None
    if rate is None or longest is None or peak is None or not (most := peak.value(longest)):
        return None
    parts = (rate.source, Provenance("ncu", longest.written(peak), launch=longest.launch))
    return TracedNumber(rate.value * float(scale) / most, Provenance("facts", f"a * {scale} / b", parts=parts), ".1%")


def _compute_roof(launch: Launch) -> Formula | None:
    work = main_work(launch)
    return None if work is None else peak_of(work)


def _intensity(ops: TracedNumber | None, moved: TracedNumber | None) -> TracedNumber | None:
    return ops / moved if ops is not None and ops.value and moved is not None and moved.value else None


MODEL_FLOPS = CaseQuantity(
    "case_model_flops", "", "Operations that the case needs at the least.", lambda run, case: _least(run, case, "flops")
)
MODEL_BYTES = CaseQuantity(
    "case_model_bytes",
    "bytes",
    "Bytes that it has to move.",
    lambda run, case: _least(run, case, "bytes_read", "bytes_written"),
)
MODEL_TFLOPS = CaseQuantity(
    "case_model_tflops",
    "TFLOP/s",
    "Least operations over the case's kernel time: by ncu, else by nsys.",
    lambda run, case: _rate(MODEL_FLOPS.traced(run, case), run, case, "1e6", " TFLOP/s"),
)
MODEL_TFLOPS_SHARE = CaseQuantity(
    "case_model_tflops_roof_share",
    "",
    "Of the compute roof of the kernel that took most time, 0 to 1.",
    lambda run, case: _of_roof(MODEL_TFLOPS.traced(run, case), run, case, _compute_roof, "1e12"),
)
MODEL_GB_PER_S = CaseQuantity(
    "case_model_gb_per_s",
    "GB/s",
    "Least bytes over the case's kernel time: by ncu, else by nsys.",
    lambda run, case: _rate(MODEL_BYTES.traced(run, case), run, case, "1e3", " GB/s"),
)
MODEL_GB_PER_S_SHARE = CaseQuantity(
    "case_model_gb_per_s_roof_share",
    "",
    "Of DRAM's roof, 0 to 1.",
    lambda run, case: _of_roof(MODEL_GB_PER_S.traced(run, case), run, case, lambda _: Formula("dram_peak"), "1e9"),
)
MODEL_INTENSITY = CaseQuantity(
    "model_flop_per_byte",
    "FLOP/byte",
    "Intensity of the case by the workload's cost model.",
    lambda run, case: _intensity(MODEL_FLOPS.traced(run, case), MODEL_BYTES.traced(run, case)),
)


def _wall(run: Run, case: str) -> TracedNumber | None:
    baseline = run.baseline.get(case)
    if baseline is None or baseline.wall_us != baseline.wall_us:
        return None
    return TracedNumber(baseline.wall_us, Provenance("plain", "wall_us", case=case), ",.2f", " µs")


def _waiting(run: Run, case: str) -> TracedNumber | None:
    busy, wall = BUSY.traced(run, case), WALL.traced(run, case)
    if busy is None or wall is None or wall.value <= 0:
        return None
    source = Provenance("facts", "max(100 * (1 - a / b), 0)", parts=(busy.source, wall.source))
    return TracedNumber(max(100 * (1 - busy.value / wall.value), 0.0), source, ".1f", "%")


def _copying(run: Run, case: str) -> TracedNumber | None:
    kernels, busy = NSYS.traced(run, case), BUSY.traced(run, case)
    if kernels is None or busy is None or busy.value <= 0:
        return None
    source = Provenance("facts", "max(100 * (1 - a / b), 0)", parts=(kernels.source, busy.source))
    return TracedNumber(max(100 * (1 - kernels.value / busy.value), 0.0), source, ".0f", "%")


COPYING = CaseQuantity(
    "case_copying_pct",
    "%",
    "Part of the GPU's busy time of an iteration under nsys in which only copies and memory sets ran.",
    _copying,
)
WALL = CaseQuantity(
    "case_wall_us", "µs", "Host time of an iteration, back to back with the others, without a profiler.", _wall
)
WAITING = CaseQuantity(
    "case_waiting_pct",
    "%",
    "Part of an iteration in which no kernel and no copy ran, as a loop without a profiler sees it.",
    _waiting,
)


def iterations(run: Run, case: str) -> TracedNumber | None:
    """Iterations of a case that nsys saw."""
    times, of = _nsys(run, case)
    return None if times is None else TracedNumber(times.count, of.of(f"count({of.formula})"), ".0f")


def kernel_median(run: Run, case: str | None, kernel: str) -> TracedNumber | None:
    """Median of a kernel's executions in a case under nsys, µs."""
    return _median(*_kernel(run, case, kernel))


def kernel_spread(run: Run, case: str | None, kernel: str) -> TracedNumber | None:
    """(p90 - p10) / median of the same."""
    return _spread(*_kernel(run, case, kernel))


def work_factor(run: Run, case: CaseEntry) -> TracedNumber | None:
    """Operations that ncu counted in an iteration over those of the cost model, as the check ``flops`` takes them:
    tensor operations where there are any, else those outside the tensor cores without half additions.

    None without a cost model, and where ncu saw several iterations or did not count.
    """
    launches = run.launches_of(case.id)
    if not launches or not case.flops or len({launch.iteration for launch in launches}) > 1:
        return None
    tensor = any(TENSOR_OPS.value(launch) for launch in launches)
    counted = TENSOR_OPS if tensor else FLOAT_OPS_WITHOUT_CONVERSIONS
    values = [counted.value(launch) for launch in launches]
    known = [value for value in values if value is not None]
    if len(known) < len(launches):
        return None
    parts = [Provenance("ncu", launch.written(counted), launch=launch.launch) for launch in launches]
    source = Provenance("facts", RATIO, parts=(*parts, Provenance("run.json", "flops", case=case.id)))
    return TracedNumber(sum(known) / case.flops, source)


def counted_ops(run: Run, case: CaseEntry) -> tuple[float | None, bool]:
    """Operations that ncu counted in an iteration, and whether they are tensor operations: those where there are any,
    else those of the other pipes without half additions. None where they were not counted."""
    tensor = run.per_iteration(case.id, TENSOR_OPS.value)
    if tensor:
        return tensor, True
    return run.per_iteration(case.id, FLOAT_OPS_WITHOUT_CONVERSIONS.value), False


def excess_ops(run: Run, case: CaseEntry) -> float | None:
    """The same over those that the case needs; None where one is not known, or nothing was counted."""
    counted, _ = counted_ops(run, case)
    return counted / case.flops if counted and case.flops else None


def excess_bytes(run: Run, case: CaseEntry) -> float | None:
    """DRAM bytes likewise."""
    moved, least = run.per_iteration(case.id, Formula("dram_bytes").value), case.bytes_read + case.bytes_written
    return moved / least if moved is not None and least else None
