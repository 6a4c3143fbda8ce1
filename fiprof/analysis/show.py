"""Durations, roofs, occupancy and caches of a run's kernels: how far the hardware is from its limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fiprof.analysis import checks
from fiprof.analysis.accesses import Accesses, accesses, widths_by_launch
from fiprof.analysis.occupancy import Occupancy, occupancy
from fiprof.errors import FiprofError
from fiprof.model.expressions import Row, number, ratio
from fiprof.model.finding import Finding
from fiprof.model.labels import names_kernel_or_case
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import (
    DRAM_GB_PER_S,
    DRAM_ROOF,
    L2_GB_PER_S,
    L2_ROOF,
    SM_CLOCK,
    TENSOR_OPS,
    counted_float_ops,
    dominant_tensor_kind,
    float_peak,
    tensor_peak,
)
from fiprof.model.run import Run
from fiprof.text import short_kernel


@dataclass(frozen=True)
class CaseFigures:
    """An iteration of a case, all its kernels together."""

    case: str
    label: str
    """The case in short."""
    kernels: int | None
    """Kernels that ncu saw in an iteration; under nsys where ncu saw none."""
    plain_us: float | None
    """Median without a profiler, between CUDA events."""
    plain_spread: float | None
    """(p90 - p10) / median of it."""
    nsys_us: float | None
    """Median of the kernels' time under nsys, without the gaps between them."""
    nsys_spread: float | None
    """(p90 - p10) / median of it."""
    ncu_us: float | None
    """Kernel time under ncu."""
    model_flops: int
    """Least operations, by the workload's cost model."""
    model_bytes: int
    """Least bytes moved, likewise."""
    model_tflops: float | None
    """Least operations over the kernel time: ncu's, else nsys's."""
    model_tflops_roof_share: float | None
    """Of the roof of the kernel that took most time; with ncu only."""
    model_gb_per_s: float | None
    """Least bytes over the kernel time: ncu's, else nsys's."""
    model_gb_per_s_roof_share: float | None
    """Of DRAM's roof; with ncu only."""


@dataclass(frozen=True)
class LaunchFigures:
    """A kernel launch under ncu; or a kernel that only nsys saw, without a launch number."""

    launch: int | None = None
    case: str | None = None
    label: str = ""
    """The case in short."""
    iteration: int | None = None
    kernel: str = ""
    kernel_full: str | None = None
    grid: str | None = None
    block: str | None = None
    ncu_us: float | None = None
    """Duration under ncu."""
    nsys_us: float | None = None
    """Median duration of this kernel in this case under nsys."""
    nsys_spread: float | None = None
    """(p90 - p10) / median of it."""
    roof: str | None = None
    """What the work is held against: ``tensor fp16`` or ``fp32``."""
    tflops: float | None = None
    """Operations of the roof's kind that ncu counted, over its duration."""
    roof_tflops: float | None = None
    """The most at the clock measured during the launch."""
    roof_share: float | None = None
    tensor_ops: float | None = None
    """Tensor operations that ncu counted, a multiply-add being two."""
    fp32_ops: float | None = None
    """Single-precision operations outside the tensor cores, likewise."""
    tensor_active_pct: float | None = None
    """Cycles in which the tensor cores worked, of all elapsed ones."""
    dram_gb_per_s: float | None = None
    dram_roof_gb_per_s: float | None = None
    """The most at the DRAM clock measured during the launch."""
    dram_pct: float | None = None
    """Busiest part of the DRAM interface, of its peak."""
    sm_pct: float | None = None
    """Busiest part of the multiprocessors' compute side, of its peak."""
    l1_pct: float | None = None
    """Busiest part of the L1 cache while it is active, of its peak."""
    l2_pct: float | None = None
    """Busiest part of the L2 cache, of its peak."""
    l2_gb_per_s: float | None = None
    """From L2 towards the multiprocessors."""
    l2_roof_gb_per_s: float | None = None
    """The most at the L2 clock measured during the launch."""
    sm_clock_ghz: float | None = None
    """Of the multiprocessors, as ncu's rooflines take it; its «SM Frequency» is measured in another replay."""
    achieved_occupancy_pct: float | None = None
    theoretical_occupancy_pct: float | None = None
    occupancy_limiters: tuple[str, ...] = ()
    """What allows the fewest blocks on a multiprocessor; several where they tie."""
    waves: float | None = None
    """Blocks over those that fit on the GPU at once."""
    threads_per_block: int | None = None
    registers_per_thread: int | None = None
    shared_kb_per_block: float | None = None
    """Static and dynamic shared memory, in 1,000 bytes."""
    l1_hit_pct: float | None = None
    l2_hit_pct: float | None = None
    occupancy: Occupancy = field(default=Occupancy())
    """Every limit, what the next one would give, waves and tail."""
    accesses: Accesses = field(default=Accesses())
    """Bank conflicts, sectors a request, local memory."""

    @property
    def busiest(self) -> str | None:
        """What is nearest to its peak: SM, L1, L2 or DRAM."""
        shares = {"SM": self.sm_pct, "L1": self.l1_pct, "L2": self.l2_pct, "DRAM": self.dram_pct}
        known = {name: share for name, share in shares.items() if share is not None}
        return max(known, key=known.__getitem__, default=None)

    @property
    def limited_by(self) -> str:
        """The limiters as one short cell."""
        return ", ".join(limiter.split()[0] for limiter in self.occupancy_limiters)


@dataclass(frozen=True)
class Figures:
    """What ``fiprof show`` shows of a run."""

    run: str
    cases: tuple[CaseFigures, ...]
    launches: tuple[LaunchFigures, ...]
    warnings: tuple[Finding | str, ...]
    """About the run: its status, what it lacks, and the checks that failed."""


def show(run: Run, *, kernel: str = "", longest: int | None = None) -> Figures:
    """The figures of a run, as far as it has them.

    kernel: only launches with this in the kernel's name or in their case, and their cases; upper and lower case are
    the same. longest: only so many launches, those that took most time.
    Raises FiprofError where no launch has that name, or for a table that is there and cannot be read.
    """
    widths = widths_by_launch(run)
    found = [
        *(_launch(row, run, widths) for row in run.launches),
        *_only_traced(run),
    ]
    kept = [item for item in found if names_kernel_or_case(vars(item), item.label, kernel)]
    if kernel and not kept:
        names = sorted({item.kernel for item in found})
        raise FiprofError(
            f"{run.manifest.name} has no launch with kernel {kernel!r}",
            f"it has the kernels {', '.join(map(short_kernel, names))}" if names else "it has none at all",
        )
    if longest is not None:
        slowest = sorted(kept, key=lambda item: -(item.ncu_us or item.nsys_us or 0.0))[:longest]
        chosen = set(map(id, slowest))
        kept = [item for item in kept if id(item) in chosen]
    whole = not kernel and longest is None
    ids = {item.case for item in kept}
    doubts = _doubts(run, None if whole else kept)
    return Figures(
        run=run.manifest.name,
        cases=tuple(_case(case, run) for case in run.manifest.cases if whole or case.id in ids),
        launches=tuple(kept),
        warnings=(*run.status_warning(), *_missing(run), *doubts),
    )


def _doubts(run: Run, kept: Sequence[LaunchFigures] | None) -> Iterable[Finding]:
    """The checks that failed, alike ones together. kept: only what is about these."""
    failed = checks.failed(run)
    if kept is not None:
        numbers, cases = {item.launch for item in kept}, {item.case for item in kept}
        failed = [
            check
            for check in failed
            if (check.launch is None or check.launch in numbers) and (check.case is None or check.case in cases)
        ]
    return checks.summarized(failed, run)


def _missing(run: Run) -> Iterable[str]:
    """What the run lacks and why."""
    run = run
    if not run.launches:
        yield f"no counters, occupancy and roofs: {run.why_missing('ncu')}"
    if not run.trace.cases:
        yield f"no times by nsys: {run.why_missing('nsys')}"
    if not run.plain:
        yield "no times without a profiler: the plain run left none"


def _case(case: CaseEntry, run: Run) -> CaseFigures:
    plain, traced = run.plain.get(case.id), run.trace.cases.get(case.id)
    ncu_ns = run.per_iteration(case.id, lambda row: number(row, "duration_ns"))
    ncu_us = None if ncu_ns is None else ncu_ns / 1e3
    nsys_us = traced.iteration.median_us if traced else None
    time_us = ncu_us or nsys_us
    tflops = case.flops / time_us / 1e6 if time_us and case.flops else None
    least = case.bytes_read + case.bytes_written
    gb_per_s = least / time_us / 1e3 if time_us and least else None
    executions = run.per_iteration(case.id, lambda _: 1.0) or (traced.executions if traced else None)
    longest: Row = max(run.launches_of(case.id), key=lambda row: row["duration_ns"] or 0.0, default={})
    return CaseFigures(
        case=case.id,
        label=run.labels(case.id),
        kernels=None if executions is None else round(executions),
        plain_us=plain.median_us if plain else None,
        plain_spread=plain.spread if plain else None,
        nsys_us=nsys_us,
        nsys_spread=traced.iteration.spread if traced else None,
        ncu_us=ncu_us,
        model_flops=case.flops,
        model_bytes=least,
        model_tflops=tflops,
        model_tflops_roof_share=ratio(tflops, ratio(_roof(longest)[2], 1e12)),
        model_gb_per_s=gb_per_s,
        model_gb_per_s_roof_share=ratio(gb_per_s, DRAM_ROOF.of(longest)),
    )


def _launch(row: Row, run: Run, widths: dict[int, dict[str, tuple[int, ...]]]) -> LaunchFigures:
    traced, found = run.trace.kernels.get((row["case"], row["kernel"])), occupancy(row)
    roof, ops, peak = _roof(row)
    duration_s = None if row["duration_ns"] is None else row["duration_ns"] / 1e9
    tflops = ratio(ratio(ops, duration_s), 1e12)
    registers, threads = row["registers_per_thread"], row["threads_per_block"]
    shared = [row["shared_static_bytes"], row["shared_dynamic_bytes"]]
    return LaunchFigures(
        launch=row["launch"],
        case=row["case"],
        label=run.labels(row["case"]),
        iteration=row["iteration"],
        kernel=row["kernel"] or "",
        kernel_full=row["kernel_full"],
        grid=row["grid"],
        block=row["block"],
        ncu_us=None if duration_s is None else duration_s * 1e6,
        nsys_us=traced.median_us if traced else None,
        nsys_spread=traced.spread if traced else None,
        roof=roof,
        tflops=tflops,
        roof_tflops=ratio(peak, 1e12),
        roof_share=ratio(tflops, ratio(peak, 1e12)),
        tensor_ops=TENSOR_OPS.value(row),
        fp32_ops=counted_float_ops(row).get("fp32"),
        tensor_active_pct=row["tensor_active_pct"],
        dram_gb_per_s=DRAM_GB_PER_S.of(row),
        dram_roof_gb_per_s=DRAM_ROOF.of(row),
        dram_pct=row["dram_throughput_pct"],
        sm_pct=row["sm_throughput_pct"],
        l1_pct=row["l1_throughput_pct"],
        l2_pct=row["l2_throughput_pct"],
        l2_gb_per_s=L2_GB_PER_S.of(row),
        l2_roof_gb_per_s=L2_ROOF.of(row),
        sm_clock_ghz=SM_CLOCK.of(row),
        achieved_occupancy_pct=row["achieved_occupancy_pct"],
        theoretical_occupancy_pct=row["theoretical_occupancy_pct"],
        occupancy_limiters=found.limiters,
        waves=row["waves_per_sm"],
        threads_per_block=None if threads is None else round(threads),
        registers_per_thread=None if registers is None else round(registers),
        shared_kb_per_block=None if None in shared else sum(shared) / 1e3,
        l1_hit_pct=row["l1_hit_pct"],
        l2_hit_pct=row["l2_hit_pct"],
        occupancy=found,
        accesses=accesses(row, widths.get(row["launch"])),
    )


def _roof(row: Row) -> tuple[str | None, float | None, float | None]:
    """What limits a launch's work: the roof's name, the operations of its kind, and the most of them in a second.

    The tensor cores' roof where the launch did tensor operations, else that of single precision outside them: what
    ncu's roofline charts draw.
    """
    kind = dominant_tensor_kind(row)
    if kind is not None:
        return f"tensor {kind}", TENSOR_OPS.value(row), tensor_peak(kind).value(row)
    ops = counted_float_ops(row).get("fp32")
    return (None, None, None) if ops is None else ("fp32", ops, float_peak("fp32").value(row))


def _only_traced(run: Run) -> Iterable[LaunchFigures]:
    """The kernels that ncu did not see."""
    profiled = {(row["case"], row["kernel"]) for row in run.launches}
    for (case, kernel), times in run.trace.kernels.items():
        if (case, kernel) not in profiled:
            yield LaunchFigures(
                case=case, label=run.labels(case), kernel=kernel, nsys_us=times.median_us, nsys_spread=times.spread
            )
