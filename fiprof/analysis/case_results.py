"""A run's tables -> the cases of a study's results: times, rates, shares of the measured roofs, stalls, verdicts."""

from __future__ import annotations

import dataclasses
from typing import Any

from fiprof.analysis.alternatives import timed
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.roofline import LaunchRoofline, Level
from fiprof.analysis.verdict.verdict import LaunchVerdict, verdicts
from fiprof.model.case_quantities import dram_use
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import Formula
from fiprof.model.results import CaseResult, Kernel, KernelVerdict
from fiprof.model.run import Launch, Run

KERNEL_FIGURES = {
    "achieved_occupancy_pct": "achieved_occupancy_pct",
    "theoretical_occupancy_pct": "theoretical_occupancy_pct",
    "waves": "waves_per_sm",
    "registers_per_thread": "registers_per_thread",
    "shared_bytes_per_block": "shared_static_bytes + shared_dynamic_bytes",
    "tensor_active_pct": "tensor_active_pct",
    "dram_pct": "dram_throughput_pct",
    "l2_pct": "l2_throughput_pct",
    "sm_pct": "sm_throughput_pct",
    "dram_bytes": "dram_bytes",
    "l2_hit_pct": "l2_hit_pct",
}
"""Field of a result's kernel -> formula over the columns of ``launches``."""


TIMES = ("run", "plain", "nsys", "wall", "wall_us", "ncu_us", "waiting_pct")


def unmeasured(case: CaseEntry, why: str) -> CaseResult:
    """A case without measurements; its workload without the file that it may come from."""
    return CaseResult(**{**vars(case), "workload": case.id.partition("[")[0]}, run="", skipped=why)


def case_results(run: Run) -> list[CaseResult]:
    """The run's cases in their order. One that failed by itself says so where others say why they were skipped.

    Raises FiprofError for a table that is there and cannot be read.
    """
    roofs = Analyses(run).rooflines
    judged = verdicts(run).launches if run.launches or run.trace.cases else ()
    by_launch = {item.launch: item for item in judged}
    times = {case.id: case for case in timed(run)}
    found = []
    for case in run.manifest.cases:
        if error := run.case_errors.get(case.id):
            found.append(unmeasured(case, f"failed: {error}"))
            continue
        rows, baseline = run.launches_of(case.id), run.baseline.get(case.id)
        first = [row for row in rows if row["iteration"] == rows[0]["iteration"]]
        longest = max(first, key=lambda row: row["duration_ns"] or 0.0, default=None)
        roof = roofs.get(longest["launch"]) if longest else None
        # Most operations a second of the kind that the longest kernel mainly did, at its measured clock.
        peak_ops = roof.work.peak_ops_per_second if roof and roof.work else None
        peak_bytes = Formula("dram_peak").value(longest or {})
        plain = times[case.id].plain
        seconds = plain.median_us / 1e6 if plain else None
        moved = case.bytes_read + case.bytes_written
        tflops = case.flops / seconds / 1e12 if case.flops and seconds else None
        gb_per_s = moved / seconds / 1e9 if moved and seconds else None
        recovered = baseline.clock_recovered if baseline else ()
        found.append(
            dataclasses.replace(
                unmeasured(case, ""),
                **{name: getattr(times[case.id], name) for name in TIMES},
                relative_error=baseline.reference.relative_error if baseline else None,
                slow_clock_rounds=recovered.count(False) if recovered else None,
                tokens_per_second=case.tokens / seconds if case.tokens and seconds else None,
                tflops=tflops,
                gb_per_s=gb_per_s,
                tflops_roof_share=tflops * 1e12 / peak_ops if tflops is not None and peak_ops else None,
                gb_per_s_roof_share=gb_per_s * 1e9 / peak_bytes if gb_per_s is not None and peak_bytes else None,
                kernels=[_kernel(run, row, roofs.get(row.launch), by_launch.get(row.launch)) for row in first],
                plan=baseline.plan if baseline else {},
            )
        )
    return found


def _kernel(run: Run, row: Launch, placed: LaunchRoofline | None, verdict: LaunchVerdict | None) -> Kernel:
    figures: dict[str, Any] = {name: Formula(formula).value(row) for name, formula in KERNEL_FIGURES.items()}
    for name in ("registers_per_thread", "shared_bytes_per_block"):
        figures[name] = None if figures[name] is None else round(figures[name])
    stalls = {each.reason: each.share for each in run.stall_reasons.get(row.launch, ()) if each.share is not None}
    roof = roof_kind = share = judged = None
    if placed:
        roof, share = placed.roof, placed.share
        if roof is not None:
            roof_kind = "compute" if placed.work is not None and roof == placed.work.kind else "memory"
        # Of DRAM's roof what the loop reaches, where that is more.
        if share is not None and roof == Level.DRAM and (use := dram_use(run, row)) is not None:
            share = max(share, use.number.value / 100)
    if verdict:
        other = verdict.runner_up
        judged = KernelVerdict(
            kind=verdict.kind,
            part=verdict.part,
            confidence=verdict.confidence,
            evidence=[
                {
                    name: float(value) if isinstance(value, float) else value  # a threshold is more than a number
                    for name, value in item.fields().items()
                    if name != "provenance"
                }
                for item in verdict.evidence
            ],
            runner_up={"kind": other.kind, "part": other.part} if other else None,
            margin_points=verdict.margin_points,
        )
    return Kernel(
        **{name: getattr(row, name) for name in ("kernel", "kernel_full", "launch", "grid", "block", "duration_us")},
        **figures,
        stalls=stalls,
        occupancy_limiters=list(occupancy(row).limiters),
        roof=roof,
        roof_kind=roof_kind,
        roof_share=share,
        verdict=judged,
    )
