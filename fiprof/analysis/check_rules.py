"""The checks that a run makes on its own numbers, one function each.

The thresholds are fiprof's own choice, wide enough for what healthy runs on an H200 show.
"""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.model.expressions import Row, number
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import TENSOR_OPS, work_ops
from fiprof.model.run import Run

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


@dataclass(frozen=True)
class Check:
    """One check, a row of the table ``checks``."""

    check: str
    """Short name."""
    message: str
    """A sentence for the reader."""
    passed: bool | None = None
    """None where there was not enough to tell; the message says what was missing."""
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


def _judge(
    check: str,
    value: float,
    message: str,
    *,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    below: str = "",
    above: str = "",
) -> Check:
    """below, above: what to think of a value out of range, put after the message."""
    too_low, too_high = low is not None and value < low, high is not None and value > high
    thought = below if too_low else above if too_high else ""
    message = f"{message}: {thought}" if thought else message
    return Check(check, message, not (too_low or too_high), value, low, high, unit)


# About the run


def other_processes(run: Run) -> Check:
    """Whether something else was on the GPU before or after the run."""
    name = "other_processes"
    states = [run.environment("gpu_state", when) for when in ("before", "after")]
    known = [state["other_processes"] for state in states if isinstance(state, dict) and "other_processes" in state]
    if not known:
        return Check(name, "the driver did not say what else was on the GPU")
    others = sorted({process for processes in known for process in processes})
    if not others:
        return _judge(name, 0, "nothing else was on the GPU", high=0, unit="processes")
    return _judge(
        name,
        len(others),
        f"something else was on the GPU: {', '.join(others)}",
        high=0,
        unit="processes",
        above="it may have disturbed times and counters",
    )


# About a case


def reference(run: Run, case: CaseEntry) -> Check:
    """The result against the float32 reference."""
    name = "reference"
    baseline = run.baseline.get(case.id)
    if baseline is None or baseline.relative_error is None or baseline.tolerance is None:
        return Check(name, "the result was not compared with a reference")
    return _judge(
        name,
        baseline.relative_error,
        f"the result is {baseline.relative_error:.1e} from the float32 reference (relative)",
        high=baseline.tolerance,
        above=f"{baseline.tolerance:.1e} is allowed, so the kernel computes something else",
    )


def plain_against_nsys(run: Run, case: CaseEntry) -> Check:
    """Kernel time under nsys over an iteration's time without a profiler.

    Events and gaps make the plain time longer: PLAIN_OVERHEAD_US a kernel is allowed, or PLAIN_TOLERANCE.
    """
    name = "nsys_vs_plain"
    plain, traced = run.plain.get(case.id), run.trace.cases.get(case.id)
    if plain is None or traced is None:
        return Check(name, f"there is no time {'without a profiler' if plain is None else 'under nsys'} to compare")
    gap = max(PLAIN_TOLERANCE, PLAIN_OVERHEAD_US * max(traced.executions, 1.0) / plain.median_us)
    kernels_us, plain_us = traced.iteration.median_us, plain.median_us
    return _judge(
        name,
        kernels_us / plain_us,
        f"the kernels took {kernels_us:.1f} µs under nsys, an iteration without a profiler {plain_us:.1f} µs",
        low=1 - gap,
        high=1 + PLAIN_TOLERANCE,
        below="for the rest the GPU waited between kernels, or the clocks differed",
        above="nsys slowed it down, or the clocks differed",
    )


def spread(run: Run, case: CaseEntry) -> Check:
    """(p90 - p10) / median over the iterations, by nsys, else without a profiler."""
    name = "spread"
    traced = run.trace.cases.get(case.id)
    times, where = (traced.iteration, "under nsys") if traced else (run.plain.get(case.id), "without a profiler")
    if times is None or times.count < 3:
        return Check(name, "fewer than three iterations were timed")
    return _judge(
        name,
        times.spread,
        f"{times.count} iterations {where} spread by {times.spread:.1%} ((p90 - p10) / median)",
        high=max(SPREAD_HIGH, SPREAD_ALLOWANCE_US / times.median_us),
        above="differences smaller than that mean nothing",
    )


def profiled(run: Run, case: CaseEntry) -> Check:
    """Launches that ncu has of a case, which it profiled at least once; a file cut short loses some."""
    name = "profiled"
    if not run.launches:
        return Check(name, "ncu profiled nothing in this run")
    return _judge(
        name,
        len(run.launches_of(case.id)),
        f"ncu has {len(run.launches_of(case.id))} launches of it",
        low=1,
        unit="launches",
        below="it failed under ncu, or ncu's pages are not whole",
    )


def flops(run: Run, case: CaseEntry) -> Check:
    """Counted over modelled operations: tensor operations where there are any, else those of the other pipes."""
    name = "flops"
    if not run.launches_of(case.id):
        return Check(name, "ncu did not profile this case")
    counted, kind = run.per_iteration(case.id, TENSOR_OPS.value), "tensor operations"
    if not counted:
        counted, kind = run.per_iteration(case.id, work_ops), "operations outside the tensor cores"
    if counted is None or not case.flops:
        return Check(name, "ncu counted no operations, or the case has no cost model")
    factor = counted / case.flops
    return _judge(
        name,
        factor,
        f"ncu counted {factor:.2f} times the {kind} that the algorithm needs",
        low=FLOPS_LOW,
        high=FLOPS_HIGH,
        below="less than the least, so the cost model or the counters are wrong for this kernel",
        above="masked, padded or repeated work, or the cost model is wrong for this kernel",
    )


def dram_reads(run: Run, case: CaseEntry) -> Check:
    """Bytes read from DRAM over the input bytes."""
    name = "dram_reads"
    read = run.per_iteration(case.id, lambda row: number(row, "dram_read_bytes"))
    if read is None or not case.bytes_read:
        return Check(name, "ncu counted no DRAM reads, or the case has no cost model")
    factor = read / case.bytes_read
    cold = run.manifest.settings.get("cache_control", "all") == "all"
    return _judge(
        name,
        factor,
        f"ncu counted {factor:.2f} times the DRAM reads that the algorithm needs",
        low=DRAM_LOW,
        below="although the caches were flushed; the cost model is wrong for this kernel, or an earlier one filled L2"
        if cold
        else "part of the data was in L2 already, so DRAM is not this kernel's roof",
    )


def dram_writes(run: Run, case: CaseEntry) -> Check:
    """Bytes written to DRAM over the output bytes; L2 may keep as many as it holds beyond the kernel's end."""
    name = "dram_writes"
    written = run.per_iteration(case.id, lambda row: number(row, "dram_write_bytes"))
    l2_bytes = run.environment("gpu", "l2_bytes")
    if written is None or not case.bytes_written:
        return Check(name, "ncu counted no DRAM writes, or the case has no cost model")
    if not isinstance(l2_bytes, int | float):
        return Check(name, "the size of L2 is not known, and it may hold what was written")
    if case.bytes_written * DRAM_LOW <= l2_bytes:
        return Check(name, "what the case writes fits in L2 and need not reach DRAM while it runs")
    factor = written / case.bytes_written
    return _judge(
        name,
        factor,
        f"ncu counted {factor:.2f} times the DRAM writes that the algorithm needs",
        low=DRAM_LOW - l2_bytes / case.bytes_written,
        below="less than L2 can have kept, so the cost model is wrong",
    )


# About a launch


def ncu_against_nsys(run: Run, launch: Row) -> Check:
    """ncu's duration over nsys's median of the same kernel in the same case."""
    name = "ncu_vs_nsys"
    traced = run.trace.kernels.get((launch["case"], launch["kernel"]))
    if traced is None or launch["duration_ns"] is None or not traced.median_us:
        return Check(name, "nsys has no time of this kernel in this case")
    ncu_us, nsys_us = launch["duration_ns"] / 1e3, traced.median_us
    allowance = NCU_ALLOWANCE_US / nsys_us
    settings = run.manifest.settings
    how = f"clock control {settings.get('clock_control', '?')}, cache control {settings.get('cache_control', '?')}"
    return _judge(
        name,
        ncu_us / nsys_us,
        f"ncu measured {ncu_us:.1f} µs, nsys {nsys_us:.1f} µs",
        low=min(NCU_LOW, 1 - allowance),
        high=max(NCU_HIGH, 1 + allowance),
        below=f"ncu's figures are of a faster kernel than the one in use ({how})",
        above=f"ncu's figures are of a slower kernel than the one in use ({how})",
    )


def stall_sum(run: Run, launch: Row) -> Check:
    """The sum of the stalls' warps per issue over the warp latency, which ncu measures on its own."""
    name = "stall_sum"
    ratios = [row.warps_per_issue for row in run.stall_reasons.get(launch["launch"], ())]
    known = [ratio for ratio in ratios if ratio is not None]
    latency = launch["warp_latency_cycles"]
    if not known or not latency:
        return Check(name, "ncu did not collect the stall ratios and the warp latency")
    total = sum(known)
    differs = "ncu takes them in different replays, and the shares are no surer than these agree"
    return _judge(
        name,
        total / latency,
        f"the stalls add up to {total:.2f} cycles, the warp latency is {latency:.2f}",
        low=1 - LATENCY_TOLERANCE,
        high=1 + LATENCY_TOLERANCE,
        below=differs,
        above=differs,
    )


def sample_sum(run: Run, launch: Row) -> Check:
    """The samples of all stall reasons against ncu's count of samples."""
    name = "sample_sum"
    samples = [row.samples for row in run.stall_reasons.get(launch["launch"], ()) if row.samples is not None]
    expected = launch["stall_samples"]
    if not samples or expected is None:
        return Check(name, "ncu did not sample the warps")
    different = "a reason is missing or counted twice"
    return _judge(
        name,
        sum(samples),
        f"the reasons have {sum(samples):,} samples, ncu took {expected:,.0f}",
        low=expected,
        high=expected,
        unit="samples",
        below=different,
        above=different,
    )


def dropped_samples(run: Run, launch: Row) -> Check:  # noqa: ARG001
    """Samples that ncu lost because its buffer was full."""
    name = "dropped_samples"
    dropped = launch["stall_dropped_bytes"]
    if dropped is None:
        return Check(name, "ncu did not sample the warps")
    return _judge(
        name,
        dropped,
        f"ncu dropped {dropped:,.0f} bytes of samples",
        high=0,
        unit="bytes",
        above="the sampled shares are of the kernel's beginning",
    )


def sm_clock(run: Run, launch: Row) -> Check:
    """The multiprocessors' clock during the launch against the highest that the driver names."""
    name = "sm_clock"
    highest = run.environment("gpu_state", "before", "max_sm_clock_mhz")
    if not isinstance(highest, int | float) or not highest or launch["sm_clock_hz"] is None:
        return Check(name, "the clock during the launch or the highest one is not known")
    clock = launch["sm_clock_hz"] / 1e6
    return _judge(
        name,
        clock,
        f"the multiprocessors ran at {clock:,.0f} of at most {highest:,.0f} MHz",
        low=CLOCK_LOW * highest,
        unit="MHz",
        below="locked by ncu, limited by power or heat, or not yet up to speed",
    )


RUN_CHECKS = (other_processes,)
CASE_CHECKS = (reference, plain_against_nsys, spread, profiled, flops, dram_reads, dram_writes)
LAUNCH_CHECKS = (ncu_against_nsys, stall_sum, sample_sum, dropped_samples, sm_clock)
