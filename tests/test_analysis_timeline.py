"""fiprof/analysis/timeline.py and samples.py: kernels, and what the hardware did meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiprof.analysis import samples, timeline
from fiprof.analysis.samples import Samples, covered, disjoint
from fiprof.model.run import Run
from fiprof.model.selection import Selection
from fiprof.model.wording import worded
from fiprof.reports import timeline_text
from fiprof.reports.writers import render
from fiprof.text import cell_width
from tests.conftest import Fiprof
from tests.recorded_runs import parsed
from tests.reports_fixture import add, execution, make_run, record_run, recorded_cases, write_manifest

PREFILL = "PrefillWithKVCacheKernel"


@pytest.fixture(scope="module")
def run() -> Run:
    """The recorded run with all its samples."""
    return parsed("all")


def text(run: Run, format_: Any = "table", **what: Any) -> str:
    return render(timeline_text.document(timeline.timeline(run, **what)), format_, width=100)


def test_the_story_of_a_case(run: Run) -> None:
    lines = text(run, wanted=Selection("prefill"), cells=79).splitlines()
    # A kernel takes three samples; in every third one its blocks end one after the other.
    assert lines[:12] == [
        "prefill · measure · 6.041 ms from 2,406.755 ms · GPU busy 99.5%",
        "time     0 ms                      2                         4                         6  full block",
        "         ┬╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┬╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┬╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┬",
        "kernels  ███████████████████████████████████████████████████████████████████████████████  busy",
        "SMs      ▇██▇▆██▇▆██▇▆██▇▇██▇▇██▇▇██▇▇██▇▇██▆▇██▆▇██▆▇██▆███▆███▆██▇▆██▇▆██▇▆██▇▇██▇▇██▄  100",
        "tensor   ▇██▇▆██▇▆██▇▆██▇▆██▇▇██▇▇██▇▇██▆▇██▆▇██▆▇██▆▇██▆███▆███▆██▇▆██▇▆██▇▆██▇▆██▇▇██▄  57",
        "DRAM     ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁  80",
        "",
        " x    time  spread  grid     gap  call  SMs  tensor  read  write  warps  samples",
        "        µs                    µs    µs    %       %     %      %      %",
        "PrefillWithKVCacheKernel",
        "20  300.05    0.5%  132x1x1  1.3   5.1   93      52     7      5     18       60",
    ]


def test_a_sample_is_of_the_time_after_it(run: Run, five_kernels: Run) -> None:
    """What the join stands on: where kernels fill a part of a window, SMs Active is that part, and only so."""

    def correlations(of: Run, kernel: str) -> tuple[float, float]:
        kernels = of.table("kernels").to_pylist()
        mine = [row for row in kernels if row["kernel"] == kernel and row["phase"] == "measure"]
        ran = disjoint(*np.array([(row["start_ns"], row["end_ns"]) for row in kernels]).T)
        sampled = samples.read(of)[0]
        times, values = sampled.series["sms_active"]
        near = (times > mine[0]["start_ns"] - 300_000) & (times < mine[-1]["end_ns"] + 300_000)
        times, values = times[near], values[near]
        until = [covered(*ran, times + shift * sampled.period_ns) for shift in (-1, 0, 1)]
        before, after = (np.corrcoef(until[n + 1] - until[n], values)[0, 1] for n in (0, 1))
        return round(float(after), 3), round(float(before), 3)

    assert correlations(run, "BatchQKApplyRotaryKernel") == (1.0, 0.653)
    assert correlations(run, "FusedAddRMSNormKernel") == (1.0, 0.629)
    assert correlations(run, PREFILL) == (0.928, 0.635)
    assert correlations(five_kernels, PREFILL) == (0.887, 0.332)


def test_half_levels_are_seen_without_ncu_too(tmp_path: Path) -> None:
    alone = record_run(tmp_path / "alone", ncu_raw=None)
    # The made-up manifest does not say how many SMs there are.
    assert timeline.timeline(alone).warnings == ()
    write_manifest(alone.path, cases=recorded_cases(), environment={"gpu": {"multiprocessors": 132}})
    (warning,) = timeline.timeline(Run(alone.path)).warnings
    assert warning.fields() == {
        "id": "sms_differ", "kernel": PREFILL, "blocks": 132, "multiprocessors": 132, "largest_sms_active_pct": 50.0,
    }  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100])
def test_nothing_is_wider_than_the_terminal(run: Run, width: int) -> None:
    document = timeline_text.document(timeline.timeline(run, phase="all", cells=timeline_text.chart_cells(width)))
    lines = render(document, "table", width=width).splitlines()
    assert max(map(cell_width, lines)) <= width
    strips = [line for line in lines if line.startswith("kernels ")]
    assert len(strips) == 15
    assert not any("…" in line for line in strips)


def test_what_is_missing_and_why(tmp_path: Path) -> None:
    def warnings(name: str, *, phase: str = "measure", **what: Any) -> list[dict[str, Any]]:
        found = timeline.timeline(make_run(tmp_path / name, **what), phase=phase).warnings
        assert all(map(worded, found))
        return [finding.fields() for finding in found]

    assert warnings("ncu", settings={"tools": ["ncu"]}) == [
        {"id": "no_trace", "why": {"id": "not_asked", "tool": "nsys"}}
    ]
    assert warnings("none", kernels=[]) == [{"id": "no_kernels"}]
    assert warnings("nvtx", kernels=[execution(0, 9, phase=None, case=None)]) == [
        {"id": "no_ranges", "domain": "fiprof"},
        {"id": "nothing_in_phase", "phase": "measure"},
        {"id": "no_levels", "why": {"id": "not_started", "tool": "nsys", "reason": ""}},
    ]
    assert warnings("warmup", phase="warmup", kernels=[execution(0, 9)], settings={"gpu_metrics_hz": 0}) == [
        {"id": "nothing_in_phase", "phase": "warmup"},
        {"id": "no_levels", "why": {"id": "not_asked"}},
    ]
    refused = "no GPU metrics: nsys refused them (insufficient permission)"
    assert warnings("refused", kernels=[execution(0, 9)], warnings=[refused]) == [
        {"id": "no_levels", "why": {"id": "warned", "warnings": [refused]}}
    ]
    failed = warnings("failed", kernels=[execution(0, 9)], status="failed", reason="ncu timed out")
    assert failed[0] == {"id": "failed", "run": "failed", "reason": "ncu timed out"}


def test_without_samples_the_kernels_are_told(tmp_path: Path) -> None:
    rows = [execution(0, 1000), execution(1500, 2500, "L"), execution(2400, 3400), execution(5000, 6000, "L")]
    assert text(make_run(tmp_path / "run", kernels=rows), cells=24).splitlines()[2:-4] == [
        "mine · measure · 6.0 µs from 0.000 ms · GPU busy 65.0%",
        "time     0 µs                5     full block",
        "         ┬╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┬╌╌╌",
        "kernels  ████··███████▅······████  busy",
        "",
        "kernel  x  time  spread  grid    gap  call",
        "             µs                   µs    µs",
        "K       2  1.00    0.0%  8x1x1   1.1     –",
        "L       2  1.00    0.0%  8x1x1  -0.1     –",
    ]


def sampled(values: list[float], *, period_ns: int = 100) -> Samples:
    times = np.arange(len(values), dtype=np.float64) * period_ns
    return Samples({"sms_active": (times, np.asarray(values))})


def test_a_sample_counts_for_the_kernel_that_fills_it() -> None:
    times = np.array([(0, 100), (110, 190), (225, 300), (300, 400), (120, 160), (0, 1000)])
    levels = sampled([10.0, 20.0, 30.0, 40.0]).levels(*times[:4].T)
    # 100 %, 80 %, 75 % and 100 % of a window.
    assert levels.samples == 3
    assert levels.sms_active == pytest.approx((10 + 20 + 40) / 3)
    assert sampled([10.0, 20.0]).levels(*times[4:5].T).samples == 0
    assert sampled([10.0]).levels(*times[5:].T).samples == 0


def test_means_over_cells_and_what_was_not_sampled() -> None:
    means = sampled([0.0, 10.0, 20.0]).means("sms_active", np.array([-100.0, 0.0, 150.0, 200.0, 290.0, 500.0]))
    assert np.isnan(means[[0, 4]]).all()
    assert means[1:4] == pytest.approx([10 / 3, 10.0, 20.0])
    assert np.isnan(sampled([1.0, 1.0]).means("dram", np.array([0.0, 100.0]))).all()


def test_damaged_samples(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", kernels=[execution(0, 1000)])
    rows = [(0, 10.0), (0, 99.0), (None, 5.0), (100, float("nan")), (200, 20.0), (400, 30.0)]
    add(run, "gpu_metrics", [{"time_ns": t, "value": v, "metric": "SMs Active [Throughput %]"} for t, v in rows])
    assert timeline.timeline(run).phases[0].spans[0].levels.sms_active == 20.0


def test_perfetto_beside_the_text(fiprof: Fiprof, run: Run, tmp_path: Path) -> None:
    done = fiprof("timeline", str(run.path), "--perfetto", "t.json.gz", "--kernel", "rope")
    assert done.returncode == 0, done.stderr
    assert "rope · measure" in done.stdout
    assert "184 kernels, 15 copies, 443 CUDA calls, 132 NVTX ranges, 199 arrows" in done.stderr
    assert (tmp_path / "t.json.gz").stat().st_size > 20_000
