"""fiprof/analysis/roofline.py: against ncu's own roofline charts, from the raw cells and from the report itself."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.roofline import Basis, LaunchRoofline, Rooflines, roofline
from fiprof.model.run import Run
from fiprof.reports.roofline_chart import chart
from fiprof.reports.roofline_tables import document
from fiprof.reports.writers import render
from tests.recorded_runs import parsed
from tests.reports_fixture import RAW, case, make_run

Metric = Callable[[str], float]


@pytest.fixture(scope="module")
def found(five_kernels: Run) -> Rooflines:
    return roofline(five_kernels)


@pytest.fixture(scope="module")
def quick() -> Rooflines:
    """The recorded run with ``--set quick``: tensor operations are counted, others are not."""
    return roofline(parsed("prefill-decode-rope"))


def cells(launch: int) -> Metric:
    """The raw page's numbers of a launch, read here alone."""
    with RAW.open(newline="") as file:
        header, _, *rows = csv.reader(file)
    row = dict(zip(header, rows[launch], strict=True))
    return lambda name: float(row[name].replace(",", ""))


# The charts of SpeedOfLight_RooflineChart and SpeedOfLight_Hierarchical…RooflineChart, as the recorded report defines
# Instructions of a warp, and what is not counted


FULL_ROW: dict[str, Any] = {
    **{f"{inst}_thread_insts": 0.0 for inst in ("fadd", "fmul", "ffma", "hadd", "hmul", "hfma", "dadd", "dmul", "dfma")},
    "launch": 7, "case": "mine[rows=8]", "iteration": 0, "kernel": "Copy", "duration_ns": 1000.0,
    "sm_clock_hz": 1e9, "dram_clock_hz": 1e9, "l2_clock_hz": 1e9,
    "fp32_peak_ops_per_cycle": 1000.0, "fp16_peak_ops_per_cycle": 2000.0, "fp64_peak_ops_per_cycle": 500.0,
    "dram_bytes_per_second": 9e11, "dram_peak_bytes_per_cycle": 1000.0,
    "l2_bytes_per_second": 1e12, "l2_peak_bytes_per_cycle": 2000.0,
    "l1_bytes_per_second": 1e11, "l1_peak_bytes_per_cycle": 8000.0,
}  # fmt: skip


def one(tmp_path: Path, **changes: Any) -> LaunchRoofline:
    run = make_run(tmp_path / "run", launches=[{**FULL_ROW, **changes}])
    return roofline(run).launches[0]


@pytest.mark.parametrize("adds", [0.0, 9_900.0])
def test_a_kernel_that_moves_memory_stands_by_its_bytes(tmp_path: Path, adds: float) -> None:
    copy = one(tmp_path, fadd_thread_insts=adds)
    assert (copy.basis, copy.roof, copy.share) == (Basis.TRAFFIC, "DRAM", 0.9)
    assert (copy.work, copy.attainable_ops_per_second) == (None, None)
    assert [copy.point(memory, 0.1) for memory in copy.memories] == [(0.1, 9e10), None, None]
    assert copy.remark and copy.remark.fields() == {
        "id": "moves_memory", "flop_per_byte": pytest.approx(adds / 1e6), "level": "DRAM", "share": pytest.approx(0.9)
    }  # fmt: skip


BUSY_TENSOR = {"tensor_active_pct": 48.0, "ffma_thread_insts": 1e6, "fp32_peak_ops_per_cycle": 1e5}


@pytest.mark.parametrize(
    "counted", [{}, {"tensor_ops_fp16": 0.0}, {"tensor_ops_fp16": None, "tensor_active_pct": None, "fp64_pct": 48.0}]
)
def test_a_pipe_that_worked_and_was_not_counted_gets_no_other_roof(
    tmp_path: Path, counted: dict[str, float | None]
) -> None:
    """FP4 on a GPU of which ncu counted fp16 alone; a report without counters of tensor or fp64 operations."""
    counts = {f"{inst}_thread_insts": None for inst in ("dadd", "dmul", "dfma")} if "fp64_pct" in counted else {}
    run = make_run(tmp_path / "run", launches=[{**FULL_ROW, **BUSY_TENSOR, **counts, **counted}], cases=[case(flops=0)])
    (item,) = roofline(run).launches
    part = "fp64_pipe" if "fp64_pct" in counted else "tensor_cores"
    assert (item.basis, item.work, item.roof) == ("none", None, None)
    assert item.remark and item.remark.fields() == {"id": "uncounted", "part": part, "use_pct": 48.0}
    # 1 GFLOP in 1 µs by the cost model, and no roof of theirs.
    run = make_run(
        tmp_path / "model", launches=[{**FULL_ROW, **BUSY_TENSOR, **counts, **counted}], cases=[case(flops=10**9)]
    )
    (item,) = roofline(run).launches
    assert item.work is not None
    assert (item.basis, item.work.kind, item.work.peak_ops_per_second, item.roof) == ("model", "model", None, "DRAM")
    # Counted, or as little active as the tensor cores are without a tensor operation, it is as ever.
    for known in ({"tensor_ops_fp16": 1.0}, {"tensor_active_pct": 1.3}):
        assert one(tmp_path / f"{known}", **{**BUSY_TENSOR, **known}).basis is Basis.COUNTED


def test_a_kernel_with_a_little_work_has_one(tmp_path: Path) -> None:
    vector_add = one(tmp_path, fadd_thread_insts=10_100.0)
    assert (vector_add.basis, vector_add.roof) == ("counted", "DRAM")
    assert vector_add.share == pytest.approx(0.9)


def test_the_lowest_roof_binds_whichever_it_is(tmp_path: Path) -> None:
    work = {"ffma_thread_insts": 1e5}
    l1 = one(tmp_path / "1", **work, l1_bytes_per_second=7.9e12)
    assert l1.roof == "L1"
    assert l1.share == pytest.approx(0.9875)
    l2 = one(tmp_path / "2", **work, l2_bytes_per_second=1.9e12)
    assert l2.roof == "L2"
    assert l2.share == pytest.approx(0.95)
    fp64 = one(tmp_path / "3", dfma_thread_insts=2.4e5)
    assert fp64.roof == "fp64"
    assert fp64.share == pytest.approx(0.96)
    fp16 = one(tmp_path / "4", **work, hfma_thread_insts=4.6e5)
    assert fp16.roof == "fp16"
    assert fp16.share == pytest.approx(0.92)


def test_a_launch_of_which_nothing_was_collected(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", launches=[{"launch": 7, "kernel": "K"}])
    found = roofline(run)
    assert found.launches[0].remark and found.launches[0].remark.kind == "no_model"
    assert "not enough evidence" in render(document(found), "table")
    assert chart(found) == ""


# As text


def test_a_case_without_a_cost_model(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", launches=[{**FULL_ROW, "ffma_thread_insts": 1e5}], cases=[case(flops=0)])
    found = roofline(run)
    assert (found.cases, found.launches[0].model_flop_per_byte) == ((), None)
    assert found.launches[0].roof == "DRAM"
