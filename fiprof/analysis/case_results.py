"""A run's tables -> the cases of a study's results: times, rates, shares of the measured roofs, stalls, verdicts."""

from __future__ import annotations

from typing import Any

from fiprof.analysis.alternatives import wall_times
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.intervals import times
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.roofline import LaunchRoofline, Level
from fiprof.analysis.verdict.verdict import LaunchVerdict, verdicts
from fiprof.model.floors import dram_use
from fiprof.model.formula import Formula, Row, number, ratio
from fiprof.model.manifest import CaseEntry
from fiprof.model.records import Baseline
from fiprof.model.results import CaseResult, Evidence, Kernel, KernelVerdict, RunnerUp
from fiprof.model.run import Launch, Run

_IDENTITY = ("kernel", "kernel_full", "launch", "grid", "block")
_COLUMNS = {
    "achieved_occupancy_pct": "achieved_occupancy_pct",
    "theoretical_occupancy_pct": "theoretical_occupancy_pct",
    "waves": "waves_per_sm",
    "tensor_active_pct": "tensor_active_pct",
    "dram_pct": "dram_throughput_pct",
    "l2_pct": "l2_throughput_pct",
    "sm_pct": "sm_throughput_pct",
    "l2_hit_pct": "l2_hit_pct",
}
"""Field of a result's kernel -> column of ``launches``."""
_SHARED_BYTES = Formula("shared_static_bytes + shared_dynamic_bytes")


def case_results(run: Run) -> list[CaseResult]:
    """The run's cases in their order. One that failed by itself says so where others say why they were skipped.

    Raises FiprofError for a table that is there and cannot be read.
    """
    found = _Measured(run)
    return [found.case(case) for case in run.manifest.cases]


def unmeasured(case: CaseEntry, why: str) -> CaseResult:
    """A case without measurements."""
    return CaseResult(**_entry(case), run="", skipped=why)


class _Measured:
    """A run's measurements, by case and launch."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.roofs = Analyses(run).rooflines
        judged = verdicts(run) if self.run.launches or self.run.trace.cases else None
        self.verdicts: dict[int, LaunchVerdict] = {item.launch: item for item in judged.launches} if judged else {}
        self.waiting = {item.case: item.waiting for item in judged.cases} if judged else {}

    def case(self, case: CaseEntry) -> CaseResult:
        run = self.run
        if error := run.case_errors.get(case.id):
            return unmeasured(case, f"failed: {error}")
        baseline, traced = run.baseline.get(case.id), run.trace.cases.get(case.id)
        plain = times(baseline.gpu_us, baseline.rounds) if baseline else None
        rows = self.run.launches_of(case.id)
        first = [row for row in rows if row["iteration"] == rows[0]["iteration"]]
        longest = max(first, key=lambda row: row["duration_ns"] or 0.0, default=None)
        seconds = plain.median_us / 1e6 if plain else None
        tflops = _rate(case.flops, seconds, 1e12)
        moved = case.bytes_read + case.bytes_written
        gb_per_s = _rate(moved, seconds, 1e9)
        waiting = self.waiting.get(case.id)
        return CaseResult(
            **_entry(case),
            run=run.manifest.name,
            relative_error=baseline.reference.relative_error if baseline else None,
            plain=plain,
            slow_clock_rounds=_slow_clock_rounds(baseline),
            nsys=times(traced.iterations_us if traced else (), run.settings.rounds),
            wall=wall_times(baseline),
            wall_us=None if baseline is None or baseline.wall_us != baseline.wall_us else baseline.wall_us,
            ncu_us=ratio(run.per_iteration(case.id, lambda row: number(row, "duration_ns")), 1e3),
            waiting_pct=waiting.value if waiting else None,
            tokens_per_second=_rate(case.tokens, seconds, 1),
            tflops=tflops,
            gb_per_s=gb_per_s,
            tflops_roof_share=_share(tflops, self._compute_roof(longest), 1e12),
            gb_per_s_roof_share=_share(gb_per_s, Formula("dram_peak").value(longest or {}), 1e9),
            kernels=[self._kernel(row) for row in first],
            plan=baseline.plan if baseline else {},
        )

    def _compute_roof(self, row: Row | None) -> float | None:
        """Most operations a second of the kind that the launch mainly did, at its measured clock."""
        placed = self.roofs.get(row["launch"]) if row else None
        return placed.work.peak_ops_per_second if placed and placed.work else None

    def _kernel(self, row: Launch) -> Kernel:
        figures: dict[str, Any] = {name: number(row, column) for name, column in _COLUMNS.items()}
        placed, verdict = self.roofs.get(row.launch), self.verdicts.get(row.launch)
        return Kernel(
            **{name: getattr(row, name) for name in _IDENTITY},
            duration_us=row.duration_us,
            stalls={
                each.reason: each.share for each in self.run.stall_reasons.get(row.launch, ()) if each.share is not None
            },
            **figures,
            occupancy_limiters=list(occupancy(row).limiters),
            registers_per_thread=_whole(number(row, "registers_per_thread")),
            shared_bytes_per_block=_whole(_SHARED_BYTES.value(row)),
            dram_bytes=Formula("dram_bytes").value(row),
            roof=placed.roof if placed else None,
            roof_kind=_roof_kind(placed) if placed else None,
            roof_share=self._roof_share(row, placed) if placed else None,
            verdict=_verdict(verdict) if verdict else None,
        )

    def _roof_share(self, row: Launch, placed: LaunchRoofline) -> float | None:
        """What was achieved of the launch's roof, 0 to 1; of DRAM's what the loop reaches, where that is more."""
        use = dram_use(self.run, row) if placed.roof == Level.DRAM else None
        return placed.share if use is None or placed.share is None else max(placed.share, use.value / 100)


def _verdict(found: LaunchVerdict) -> KernelVerdict:
    runner_up = found.runner_up
    return KernelVerdict(
        kind=found.kind,
        part=found.part,
        confidence=found.confidence,
        evidence=[
            Evidence(**{name: value for name, value in item.fields().items() if name != "provenance"})
            for item in found.evidence
        ],
        runner_up=RunnerUp(runner_up.kind, runner_up.part) if runner_up else None,
        margin_points=found.margin_points,
    )


def _roof_kind(placed: LaunchRoofline) -> str | None:
    """Whether the roof that binds is one of computing or of a memory."""
    if placed.roof is None:
        return None
    return "compute" if placed.work is not None and placed.roof == placed.work.kind else "memory"


def _entry(case: CaseEntry) -> dict[str, Any]:
    """What the manifest says of a case; its workload without the file that it may come from."""
    return {**vars(case), "workload": case.id.partition("[")[0]}


def _slow_clock_rounds(baseline: Baseline | None) -> int | None:
    return baseline.clock_recovered.count(False) if baseline and baseline.clock_recovered else None


def _rate(amount: int | None, seconds: float | None, scale: float) -> float | None:
    """None where the workload does not tell the amount, or it was not timed."""
    return amount / seconds / scale if amount and seconds else None


def _share(rate: float | None, roof: float | None, scale: float) -> float | None:
    return rate * scale / roof if rate is not None and roof else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
