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
from fiprof.model.provenance import NAMES, RATIO, SUM, Provenance, TracedNumber
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


def calculated(formula: str, *parts: TracedNumber | None, spec: str = ".2f", unit: str = "") -> TracedNumber | None:
    """A formula over other numbers, called a, b, …; None where one of them is not known, or the divisor is 0."""
    values = dict(zip(NAMES, ((None if part is None else part.value) for part in parts), strict=False))
    value = Formula(formula).value(values)
    sources = tuple(part.source for part in parts if part is not None)
    return None if value is None else TracedNumber(value, Provenance("facts", formula, parts=sources), spec, unit)


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


def _busy(run: Run, case: str) -> TracedNumber | None:
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


def _wall(run: Run, case: str) -> TracedNumber | None:
    baseline = run.baseline.get(case)
    if baseline is None or baseline.wall_us != baseline.wall_us:
        return None
    return TracedNumber(baseline.wall_us, Provenance("plain", "wall_us", case=case), ",.2f", " µs")


def _waiting(run: Run, case: str) -> TracedNumber | None:
    return calculated(IDLE_SHARE, BUSY.traced(run, case), WALL.traced(run, case), spec=".1f", unit="%")


def _copying(run: Run, case: str) -> TracedNumber | None:
    return calculated(IDLE_SHARE, NSYS.traced(run, case), BUSY.traced(run, case), spec=".0f", unit="%")


IDLE_SHARE = "max(100 * (1 - a / b), 0)"

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
WALL = CaseQuantity(
    "case_wall_us", "µs", "Host time of an iteration, back to back with the others, without a profiler.", _wall
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
    _busy,
)
COPYING = CaseQuantity(
    "case_copying_pct",
    "%",
    "Part of the GPU's busy time of an iteration under nsys in which only copies and memory sets ran.",
    _copying,
)
WAITING = CaseQuantity(
    "case_waiting_pct",
    "%",
    "Part of an iteration in which no kernel and no copy ran, as a loop without a profiler sees it.",
    _waiting,
)


# What a case needs at the least, by its workload's cost model


def _least(run: Run, case: str, *names: str) -> TracedNumber | None:
    entry = run.case(case)
    if entry is None:
        return None
    source = Provenance("run.json", " + ".join(names), case=case)
    return TracedNumber(sum(getattr(entry, name) for name in names), source, ",.0f")


def _rate(amount: TracedNumber | None, run: Run, case: str, scale: str, unit: str) -> TracedNumber | None:
    time = NCU.traced(run, case) or NSYS.traced(run, case)
    return calculated(f"a / b / {scale}", amount, time, spec=",.2f", unit=unit) if amount and amount.value else None


def longest_launch(run: Run, case: str) -> Launch | None:
    """The launch of a case that took most time under ncu."""
    return max(run.launches_of(case), key=lambda launch: launch.duration_us or 0.0, default=None)


def peak(launch: Launch, of: Formula) -> TracedNumber | None:
    """The most of something in a second at a launch's clocks; None where that is not known or 0."""
    most = of.value(launch)
    return TracedNumber(most, Provenance("ncu", launch.written(of), launch=launch.launch)) if most else None


def _of_compute_roof(run: Run, case: str) -> TracedNumber | None:
    longest = longest_launch(run, case)
    work = None if longest is None else main_work(longest)
    roof = None if longest is None or work is None else peak(longest, peak_of(work))
    return calculated("a * 1e12 / b", MODEL_TFLOPS.traced(run, case), roof, spec=".1%")


def _of_dram_roof(run: Run, case: str) -> TracedNumber | None:
    longest = longest_launch(run, case)
    roof = None if longest is None else peak(longest, Formula("dram_peak"))
    return calculated("a * 1e9 / b", MODEL_GB_PER_S.traced(run, case), roof, spec=".1%")


def _intensity(run: Run, case: str) -> TracedNumber | None:
    ops = MODEL_FLOPS.traced(run, case)
    return calculated("a / b", ops, MODEL_BYTES.traced(run, case)) if ops and ops.value else None


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
    _of_compute_roof,
)
MODEL_GB_PER_S = CaseQuantity(
    "case_model_gb_per_s",
    "GB/s",
    "Least bytes over the case's kernel time: by ncu, else by nsys.",
    lambda run, case: _rate(MODEL_BYTES.traced(run, case), run, case, "1e3", " GB/s"),
)
MODEL_GB_PER_S_SHARE = CaseQuantity("case_model_gb_per_s_roof_share", "", "Of DRAM's roof, 0 to 1.", _of_dram_roof)
MODEL_INTENSITY = CaseQuantity(
    "model_flop_per_byte", "FLOP/byte", "Intensity of the case by the workload's cost model.", _intensity
)


def kernels(run: Run, case: str) -> int | None:
    """Kernels of an iteration that ncu saw; under nsys where ncu saw none."""
    found = run.per_iteration(case, lambda _: 1.0)
    if found is None and (traced := run.trace.cases.get(case)):
        found = traced.executions
    return None if found is None else round(found)


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
    counted = TENSOR_OPS if any(TENSOR_OPS.value(launch) for launch in launches) else FLOAT_OPS_WITHOUT_CONVERSIONS
    values = [value for launch in launches if (value := counted.value(launch)) is not None]
    if len(values) < len(launches):
        return None
    parts = [Provenance("ncu", launch.written(counted), launch=launch.launch) for launch in launches]
    source = Provenance("facts", RATIO, parts=(*parts, Provenance("run.json", "flops", case=case.id)))
    return TracedNumber(sum(values) / case.flops, source)


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
