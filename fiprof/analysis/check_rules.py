"""The checks that a run makes on its own numbers, one function each.

The thresholds are fiprof's own choice, wide enough for what healthy runs on an H200 show.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from fiprof.model.case_quantities import counted_ops
from fiprof.model.finding import Finding, Value
from fiprof.model.formula import Formula, Row, number
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import DURATION
from fiprof.model.run import Run
from fiprof.model.schemas import own_pid
from fiprof.model.wording import Worded

PLAIN_TOLERANCE = 0.10
"""Of the plain time, between it and nsys's."""
PLAIN_OVERHEAD_US = 3.0
"""What CUDA events and a launch gap add to the plain time, for each kernel of an iteration."""
NCU_LOW, NCU_HIGH = 0.8, 1.5
"""ncu's duration over nsys's: ncu flushes the caches and may lock the clocks, so it is rather the longer."""
NCU_ALLOWANCE_US = 2.0
"""Difference of the two that is always allowed."""
LATENCY_TOLERANCE = 0.02
"""Of the warp latency, between it and the sum of the stalls."""
FLOPS_LOW, FLOPS_HIGH = 0.9, 2.5
"""Counted over modelled operations: whole tiles on a causal diagonal, softmax and square roots come on top."""
DRAM_LOW = 0.9
"""Counted bytes over the least that the algorithm needs."""
SPREAD_HIGH = 0.10
"""(p90 - p10) / median over the iterations."""
SPREAD_ALLOWANCE_US = 1.0
"""(p90 - p10) that is always allowed."""
CLOCK_LOW = 0.8
"""Multiprocessor clock during a launch over the highest."""


class CheckName(StrEnum):
    """The checks; which numbers each has beside its value stands at its function."""

    OTHER_PROCESSES = "other_processes"
    REFERENCE = "reference"
    NSYS_VS_PLAIN = "nsys_vs_plain"
    SPREAD = "spread"
    PROFILED = "profiled"
    FLOPS = "flops"
    DRAM_READS = "dram_reads"
    DRAM_WRITES = "dram_writes"
    NCU_VS_NSYS = "ncu_vs_nsys"
    STALL_SUM = "stall_sum"
    SAMPLE_SUM = "sample_sum"
    DROPPED_SAMPLES = "dropped_samples"
    SM_CLOCK = "sm_clock"
    TRACE_STARTS = "trace_starts"
    TRACE_GAP = "trace_gap"
    TRACE_HOSTS = "trace_hosts"
    TRACE_CLOCKS = "trace_clocks"


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    TOO_LOW = "too_low"
    TOO_HIGH = "too_high"
    UNKNOWN = "unknown"
    """There was not enough to tell."""


class NotChecked(Worded):
    """Why a check could not be made."""

    IMPORTED = "imported", "the run was imported: it has no plain run, and nobody looked at the GPU meanwhile"
    NO_GPU_STATE = "no_gpu_state", "the driver did not say what else was on the GPU"
    NO_REFERENCE = "no_reference", "the result was not compared with a reference"
    NO_PLAIN_TIME = "no_plain_time", "there is no time without a profiler to compare"
    NO_NSYS_TIME = "no_nsys_time", "there is no time under nsys to compare"
    FEW_ITERATIONS = "few_iterations", "fewer than three iterations were timed"
    NOTHING_PROFILED = "nothing_profiled", "ncu profiled nothing in this run"
    CASE_NOT_PROFILED = "case_not_profiled", "ncu did not profile this case"
    NO_OPERATIONS = "no_operations", "ncu counted no operations, or the case has no cost model"
    NO_DRAM_READS = "no_dram_reads", "ncu counted no DRAM reads, or the case has no cost model"
    NO_DRAM_WRITES = "no_dram_writes", "ncu counted no DRAM writes, or the case has no cost model"
    NO_L2_SIZE = "no_l2_size", "the size of L2 is not known, and it may hold what was written"
    FITS_IN_L2 = "fits_in_l2", "what the case writes fits in L2 and need not reach DRAM while it runs"
    NO_KERNEL_TIME = "no_kernel_time", "nsys has no time of this kernel in this case"
    NO_STALLS = "no_stalls", "ncu did not collect the stall ratios and the warp latency"
    NOT_SAMPLED = "not_sampled", "ncu did not sample the warps"
    NO_CLOCK = "no_clock", "the clock during the launch or the highest one is not known"
    NO_SESSION_START = "no_session_start", "not every trace says when its session began"
    NO_COLLECTIVES = "no_collectives", "the traces have no collective in common that would tell"


class Operations(Worded):
    """Which operations were counted."""

    TENSOR = "tensor", "tensor operations"
    OTHER = "other", "operations outside the tensor cores"
    """Of the other pipes."""


class Timed(Worded):
    """What iterations were timed with."""

    NSYS = "nsys", "under nsys"
    PLAIN = "plain", "without a profiler"
    """No profiler."""


class Caches(Worded):
    """What ncu did with the caches before each kernel."""

    FLUSHED = (
        "flushed",
        ("although the caches were flushed; the cost model is wrong for this kernel, or an earlier one filled L2"),
    )
    KEPT = "kept", "part of the data was in L2 already, so DRAM is not this kernel's roof"


@dataclass(frozen=True)
class Check:
    """One check, a row of the table ``checks``."""

    check: CheckName
    passed: bool | None = None
    """None where there was not enough to tell."""
    value: float | None = None
    """What was found."""
    low: float | None = None
    """Smallest value that passes; None for none."""
    high: float | None = None
    """Largest value that passes; None for none."""
    unit: str = ""
    """Of value, low and high."""
    case: str | None = None
    """Case id; None where it is about the whole run."""
    launch: int | None = None
    """ncu's launch ID; None where it is about more."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """What else goes into its words; ``why``, a NotChecked, where there was not enough to tell."""

    @property
    def outcome(self) -> Outcome:
        if self.passed is None:
            return Outcome.UNKNOWN
        if self.passed:
            return Outcome.PASSED
        below = self.low is not None and self.value is not None and self.value < self.low
        return Outcome.TOO_LOW if below else Outcome.TOO_HIGH

    @property
    def finding(self) -> Finding:
        """For words and for JSON: of the kind of the check, with its outcome; else of the kind of what was missing."""
        why = self.values.get("why")
        if isinstance(why, NotChecked):
            return Finding(why, {"check": self.check}, why.words)
        own = {name: getattr(self, name) for name in ("outcome", "value", "low", "high", "unit", "case", "launch")}
        values = {**{name: value for name, value in own.items() if value is not None}, **self.values}
        return Finding(self.check, values, words()[self.check].get(self.outcome, ""))


@functools.cache
def words() -> dict[str, dict[str, str]]:
    """``checks.csv``: check -> what it holds, and its finding by outcome."""
    text = Path(__file__).with_name("checks.csv").read_text(encoding="utf-8")
    return {row["check"]: row for row in csv.DictReader(text.splitlines())}


def judge(
    check: CheckName,
    value: float,
    *,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    **values: Value,
) -> Check:
    passed = (low is None or value >= low) and (high is None or value <= high)
    return Check(check, passed, value, low, high, unit, values=values)


def unknown(check: CheckName, why: NotChecked) -> Check:
    return Check(check, values={"why": why})


# About the run


def other_processes(run: Run) -> Check:
    """Whether something else was on the GPU before or after the run. processes: what, without the program's own."""
    states = [run.environment("gpu_state", when) for when in ("before", "after")]
    known = [state["other_processes"] for state in states if isinstance(state, dict) and "other_processes" in state]
    if not known:
        return unknown(CheckName.OTHER_PROCESSES, NotChecked.IMPORTED if run.imported else NotChecked.NO_GPU_STATE)
    own = {f"{own_pid(row['pid'])} ({row['process']})" for row in run.rows("processes", ("pid", "process"))}
    others = tuple(sorted({process for processes in known for process in processes} - own))
    return judge(CheckName.OTHER_PROCESSES, len(others), high=0, unit="processes", processes=others)


# About a case


def reference(run: Run, case: CaseEntry) -> Check:
    """The result against the float32 reference: the relative error."""
    baseline = run.baseline.get(case.id)
    if baseline is None or baseline.relative_error is None or baseline.tolerance is None:
        return unknown(CheckName.REFERENCE, NotChecked.IMPORTED if run.imported else NotChecked.NO_REFERENCE)
    return judge(CheckName.REFERENCE, baseline.relative_error, high=baseline.tolerance)


def plain_against_nsys(run: Run, case: CaseEntry) -> Check:
    """Kernel time under nsys over an iteration's time without a profiler.

    Events and gaps make the plain time longer: PLAIN_OVERHEAD_US a kernel is allowed, or PLAIN_TOLERANCE.
    nsys_us, plain_us: the two.
    """
    plain, traced = run.plain.get(case.id), run.trace.cases.get(case.id)
    if run.imported:
        return unknown(CheckName.NSYS_VS_PLAIN, NotChecked.IMPORTED)
    if plain is None or traced is None:
        why = NotChecked.NO_PLAIN_TIME if plain is None else NotChecked.NO_NSYS_TIME
        return unknown(CheckName.NSYS_VS_PLAIN, why)
    gap = max(PLAIN_TOLERANCE, PLAIN_OVERHEAD_US * max(traced.executions, 1.0) / plain.median_us)
    return judge(
        CheckName.NSYS_VS_PLAIN,
        traced.iteration.median_us / plain.median_us,
        low=1 - gap,
        high=1 + PLAIN_TOLERANCE,
        nsys_us=traced.iteration.median_us,
        plain_us=plain.median_us,
    )


def spread(run: Run, case: CaseEntry) -> Check:
    """(p90 - p10) / median over the iterations, by nsys, else without a profiler. iterations: how many."""
    traced = run.trace.cases.get(case.id)
    times = traced.iteration if traced else run.plain.get(case.id)
    if times is None or times.count < 3:
        return unknown(CheckName.SPREAD, NotChecked.FEW_ITERATIONS)
    return judge(
        CheckName.SPREAD,
        times.spread,
        high=max(SPREAD_HIGH, SPREAD_ALLOWANCE_US / times.median_us),
        iterations=times.count,
        timed=Timed.NSYS if traced else Timed.PLAIN,
    )


def profiled(run: Run, case: CaseEntry) -> Check:
    """Launches that ncu has of a case, which it profiled at least once; a file cut short loses some."""
    if not run.launches:
        return unknown(CheckName.PROFILED, NotChecked.NOTHING_PROFILED)
    return judge(CheckName.PROFILED, len(run.launches_of(case.id)), low=1, unit="launches")


def flops(run: Run, case: CaseEntry) -> Check:
    """Counted over modelled operations: tensor operations where there are any, else those of the other pipes."""
    if not run.launches_of(case.id):
        return unknown(CheckName.FLOPS, NotChecked.CASE_NOT_PROFILED)
    counted, tensor = counted_ops(run, case)
    if counted is None or not case.flops:
        return unknown(CheckName.FLOPS, NotChecked.NO_OPERATIONS)
    operations = Operations.TENSOR if tensor else Operations.OTHER
    return judge(CheckName.FLOPS, counted / case.flops, low=FLOPS_LOW, high=FLOPS_HIGH, operations=operations)


def dram_reads(run: Run, case: CaseEntry) -> Check:
    """Bytes read from DRAM over the input bytes."""
    read = run.per_iteration(case.id, lambda row: number(row, "dram_read_bytes"))
    if read is None or not case.bytes_read:
        return unknown(CheckName.DRAM_READS, NotChecked.NO_DRAM_READS)
    flushed = run.settings.cache_control == "all"
    caches = Caches.FLUSHED if flushed else Caches.KEPT
    return judge(CheckName.DRAM_READS, read / case.bytes_read, low=DRAM_LOW, caches=caches)


def dram_writes(run: Run, case: CaseEntry) -> Check:
    """Bytes written to DRAM over the output bytes; L2 may keep as many as it holds beyond the kernel's end."""
    written = run.per_iteration(case.id, lambda row: number(row, "dram_write_bytes"))
    l2_bytes = run.environment("gpu", "l2_bytes")
    if written is None or not case.bytes_written:
        return unknown(CheckName.DRAM_WRITES, NotChecked.NO_DRAM_WRITES)
    if not isinstance(l2_bytes, int | float):
        return unknown(CheckName.DRAM_WRITES, NotChecked.NO_L2_SIZE)
    if case.bytes_written * DRAM_LOW <= l2_bytes:
        return unknown(CheckName.DRAM_WRITES, NotChecked.FITS_IN_L2)
    return judge(CheckName.DRAM_WRITES, written / case.bytes_written, low=DRAM_LOW - l2_bytes / case.bytes_written)


# About a launch


def ncu_against_nsys(run: Run, launch: Row) -> Check:
    """ncu's duration over nsys's median of the same kernel in the same case. ncu_us, nsys_us: the two."""
    traced, ncu_us = run.trace.kernels.get((launch["case"], launch["kernel"])), DURATION.of(launch)
    if traced is None or ncu_us is None or not traced.median_us:
        return unknown(CheckName.NCU_VS_NSYS, NotChecked.NO_KERNEL_TIME)
    nsys_us, settings = traced.median_us, run.manifest.settings
    allowance = NCU_ALLOWANCE_US / nsys_us
    return judge(
        CheckName.NCU_VS_NSYS,
        ncu_us / nsys_us,
        low=min(NCU_LOW, 1 - allowance),
        high=max(NCU_HIGH, 1 + allowance),
        ncu_us=ncu_us,
        nsys_us=nsys_us,
        clock_control=settings.get("clock_control", "?"),
        cache_control=settings.get("cache_control", "?"),
    )


def stall_sum(run: Run, launch: Row) -> Check:
    """The sum of the stalls' warps per issue over the warp latency, which ncu measures on its own.

    stall_cycles, warp_latency_cycles: the two.
    """
    ratios = [row.warps_per_issue for row in run.stall_reasons.get(launch["launch"], ())]
    known = [ratio for ratio in ratios if ratio is not None]
    latency = launch["warp_latency_cycles"]
    if not known or not latency:
        return unknown(CheckName.STALL_SUM, NotChecked.NO_STALLS)
    return judge(
        CheckName.STALL_SUM,
        sum(known) / latency,
        low=1 - LATENCY_TOLERANCE,
        high=1 + LATENCY_TOLERANCE,
        stall_cycles=sum(known),
        warp_latency_cycles=latency,
    )


def sample_sum(run: Run, launch: Row) -> Check:
    """The samples of all stall reasons against ncu's count of samples."""
    samples = [row.samples for row in run.stall_reasons.get(launch["launch"], ()) if row.samples is not None]
    expected = launch["stall_samples"]
    if not samples or expected is None:
        return unknown(CheckName.SAMPLE_SUM, NotChecked.NOT_SAMPLED)
    return judge(CheckName.SAMPLE_SUM, sum(samples), low=expected, high=expected, unit="samples")


def dropped_samples(run: Run, launch: Row) -> Check:  # noqa: ARG001
    """Samples that ncu lost because its buffer was full."""
    dropped = launch["stall_dropped_bytes"]
    if dropped is None:
        return unknown(CheckName.DROPPED_SAMPLES, NotChecked.NOT_SAMPLED)
    return judge(CheckName.DROPPED_SAMPLES, dropped, high=0, unit="bytes")


def sm_clock(run: Run, launch: Row) -> Check:
    """The multiprocessors' clock during the launch against the highest that the driver names, highest_mhz."""
    highest = run.environment("gpu_state", "before", "max_sm_clock_mhz")
    clock_hz = Formula("sm_hz").value(launch)
    if not isinstance(highest, int | float) or not highest or clock_hz is None:
        return unknown(CheckName.SM_CLOCK, NotChecked.NO_CLOCK)
    return judge(CheckName.SM_CLOCK, clock_hz / 1e6, low=CLOCK_LOW * highest, unit="MHz", highest_mhz=highest)


RUN_CHECKS = (other_processes,)
CASE_CHECKS = (reference, plain_against_nsys, spread, profiled, flops, dram_reads, dram_writes)
LAUNCH_CHECKS = (ncu_against_nsys, stall_sum, sample_sum, dropped_samples, sm_clock)
SAMPLING = (CheckName.SAMPLE_SUM, CheckName.DROPPED_SAMPLES)
"""Those about a launch's warp samples."""
