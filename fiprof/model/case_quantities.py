"""Quantities of a case: what its iterations took by each tool, and what it needs at the least, with their provenance.

Each is a function of a run and a case id that gives a traced number, or None where the run does not have it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from fiprof.model.busy import busy_times
from fiprof.model.formula import Formula, table
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import NAMES, RATIO, SUM, Provenance, TracedNumber
from fiprof.model.quantities import DURATION, Key, unit_text
from fiprof.model.run import Launch, Run
from fiprof.model.times import Times
from fiprof.model.work import FLOAT_OPS_WITHOUT_CONVERSIONS, TENSOR_OPS, main_work, peak_of


@dataclass(frozen=True)
class CaseQuantity(Key):
    """A number of a case, with a row of ``quantities.csv`` that says its unit, format and meaning."""

    spec: str
    """Format for people."""
    trace: Callable[[Run, str], TracedNumber | None]
    """The number of a case id, in any format; None where the run does not have it."""

    def traced(self, run: Run, case: str | None) -> TracedNumber | None:
        """The number with its provenance; None without it. case: its id."""
        if case is None:
            return None
        # Every launch of a case asks for it, and it is made of all of them.
        known = run.once(_traced)
        if (self, case) not in known:
            found = self.trace(run, case)
            known[self, case] = None if found is None else found.as_(self.spec, unit_text(self.unit))
        return known[self, case]

    def of(self, run: Run, case: str | None) -> float | None:
        """The number in its unit."""
        found = self.traced(run, case)
        return None if found is None else found.value


def _traced(_: Run) -> dict[tuple[CaseQuantity, str], TracedNumber | None]:
    """What was asked of a run so far."""
    return {}


def case_quantity(key: str, trace: Callable[[Run, str], TracedNumber | None]) -> CaseQuantity:
    """The quantity with a row in ``quantities.csv``."""
    row = table()[key]
    return CaseQuantity(key, row["unit"], row["meaning"], row["format"], trace)


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


def _iteration(run: Run, case: str) -> tuple[Times | None, Provenance]:
    """Under nsys."""
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
    known = baseline is not None and baseline.wall_us == baseline.wall_us
    return TracedNumber(baseline.wall_us, Provenance("plain", "wall_us", case=case)) if baseline and known else None


def _not_in(part: CaseQuantity, whole: CaseQuantity) -> Callable[[Run, str], TracedNumber | None]:
    """Percent of a whole time that is not in a part of it."""
    formula = "max(100 * (1 - a / b), 0)"
    return lambda run, case: calculated(formula, part.traced(run, case), whole.traced(run, case))


def _gpu_us(case: str) -> Provenance:
    return Provenance("plain", "gpu_us", case=case)


PLAIN = case_quantity("case_plain_us", lambda run, case: _median(run.plain.get(case), _gpu_us(case)))
PLAIN_SPREAD = case_quantity("case_plain_spread", lambda run, case: _spread(run.plain.get(case), _gpu_us(case)))
WALL = case_quantity("case_wall_us", _wall)
NSYS = case_quantity("case_nsys_us", lambda run, case: _median(*_iteration(run, case)))
NSYS_SPREAD = case_quantity("case_nsys_spread", lambda run, case: _spread(*_iteration(run, case)))
NCU = case_quantity("case_ncu_us", _under_ncu)
KERNEL_TIME = case_quantity("case_kernel_us", lambda run, case: NSYS.traced(run, case) or NCU.traced(run, case))
BUSY = case_quantity("case_busy_us", _busy)
COPYING = case_quantity("case_copying_pct", _not_in(NSYS, BUSY))
WAITING = case_quantity("case_waiting_pct", _not_in(BUSY, WALL))


# What a case needs at the least, by its workload's cost model


def _least(*names: str) -> Callable[[Run, str], TracedNumber | None]:
    """The sum of some of a case's numbers in run.json."""

    def trace(run: Run, case: str) -> TracedNumber | None:
        entry, source = run.case(case), Provenance("run.json", " + ".join(names), case=case)
        return TracedNumber(sum(getattr(entry, name) for name in names), source) if entry else None

    return trace


def _rate(amount: CaseQuantity, scale: str) -> Callable[[Run, str], TracedNumber | None]:
    """An amount over the case's kernel time; None for none of it."""

    def trace(run: Run, case: str) -> TracedNumber | None:
        time = NCU.traced(run, case) or NSYS.traced(run, case)
        return calculated(f"a / b / {scale}", amount.traced(run, case), time) if amount.of(run, case) else None

    return trace


def longest_launch(run: Run, case: str) -> Launch | None:
    """The launch of a case that took most time under ncu."""
    return max(run.launches_of(case), key=lambda launch: launch.duration_us or 0.0, default=None)


def peak(launch: Launch | None, of: Formula | None) -> TracedNumber | None:
    """The most of something in a second at a launch's clocks; None where that is not known or 0."""
    most = of.value(launch) if launch is not None and of is not None else None
    if launch is None or of is None or not most:
        return None
    return TracedNumber(most, Provenance("ncu", launch.written(of), launch=launch.launch))


def _of_compute_roof(run: Run, case: str) -> TracedNumber | None:
    longest = longest_launch(run, case)
    work = None if longest is None else main_work(longest)
    roof = peak(longest, None if work is None else peak_of(work))
    return calculated("a * 1e12 / b", MODEL_TFLOPS.traced(run, case), roof)


def _of_dram_roof(run: Run, case: str) -> TracedNumber | None:
    roof = peak(longest_launch(run, case), Formula("dram_peak"))
    return calculated("a * 1e9 / b", MODEL_GB_PER_S.traced(run, case), roof)


def _intensity(run: Run, case: str) -> TracedNumber | None:
    known = MODEL_FLOPS.of(run, case)
    return calculated("a / b", MODEL_FLOPS.traced(run, case), MODEL_BYTES.traced(run, case)) if known else None


MODEL_FLOPS = case_quantity("case_model_flops", _least("flops"))
MODEL_BYTES = case_quantity("case_model_bytes", _least("bytes_read", "bytes_written"))
MODEL_TFLOPS = case_quantity("case_model_tflops", _rate(MODEL_FLOPS, "1e6"))
MODEL_TFLOPS_SHARE = case_quantity("case_model_tflops_roof_share", _of_compute_roof)
MODEL_GB_PER_S = case_quantity("case_model_gb_per_s", _rate(MODEL_BYTES, "1e3"))
MODEL_GB_PER_S_SHARE = case_quantity("case_model_gb_per_s_roof_share", _of_dram_roof)
MODEL_INTENSITY = case_quantity("model_flop_per_byte", _intensity)


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
