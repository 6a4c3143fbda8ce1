"""fiprof/analysis/roofline.py: against ncu's own roofline charts, from the raw cells and from the report itself."""

from __future__ import annotations

import csv
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.roofline import Basis, LaunchRoofline, Level, Rooflines, roofline
from fiprof.model.run import Run
from fiprof.parsers import ncu
from fiprof.reports.roofline_chart import chart
from fiprof.reports.roofline_tables import document
from fiprof.reports.writers import render
from tests.recorded_runs import parsed
from tests.reports_fixture import DATA, RAW, case, make_run, record_run

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
# them: work a second, traffic a second, peak work, peak traffic.

INSTRUCTIONS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
ROOFS_OF_WORK = {
    "fp32": ("fadd", 1, "fmul", 1, "ffma", 2),
    "fp16": ("hadd", 2, "hmul", 2, "hfma", 4),
    "fp64": ("dadd", 1, "dmul", 1, "dfma", 2),
}
MEMORIES = {
    Level.DRAM: ("dram__bytes.sum", "dram__cycles_elapsed.avg.per_second"),
    Level.L2: ("derived__lts__lts2xbar_bytes.sum", "lts__cycles_elapsed.avg.per_second"),
    Level.L1: ("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum", "l1tex__cycles_elapsed.avg.per_second"),
}


def chart_work(cell: Metric, kind: str) -> float:
    if kind == "tensor fp16":
        return cell("sm__ops_path_tensor_src_fp16.sum.per_cycle_elapsed") * cell("sm__cycles_elapsed.avg.per_second")
    add, a, mul, m, fma, f = ROOFS_OF_WORK[kind]
    per_cycle = sum(int(n) * cell(INSTRUCTIONS.format(op)) for op, n in ((add, a), (mul, m), (fma, f)))
    return per_cycle * cell("smsp__cycles_elapsed.avg.per_second")


def chart_peak(cell: Metric, kind: str) -> float:
    if kind == "tensor fp16":
        per_cycle = cell("sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.peak_sustained")
    else:
        fma, lanes = str(ROOFS_OF_WORK[kind][4]), ROOFS_OF_WORK[kind][5]
        per_cycle = cell(f"derived__sm__sass_thread_inst_executed_op_{fma}_pred_on_x{lanes}")
    return per_cycle * cell("sm__cycles_elapsed.avg.per_second")


@pytest.mark.parametrize("index", range(6))
def test_work_and_compute_roofs_are_those_of_ncu_s_charts(found: Rooflines, index: int) -> None:
    cell, launch = cells(index), found.launches[index]
    works = {work.kind: work for work in launch.works}
    assert set(works) >= {"fp32"}
    for kind, work in works.items():
        assert work.ops_per_second == pytest.approx(chart_work(cell, kind), rel=1e-4), kind
        assert work.peak_ops_per_second == pytest.approx(chart_peak(cell, kind), rel=1e-9), kind


@pytest.mark.parametrize("level", MEMORIES)
@pytest.mark.parametrize("index", range(6))
def test_traffic_memory_roofs_intensity_and_ridge_are_those_of_ncu_s_charts(
    found: Rooflines, index: int, level: Level
) -> None:
    cell, launch = cells(index), found.launches[index]
    memory = launch.memory(level)
    assert memory and launch.work
    bytes_, clock = MEMORIES[level]
    traffic, peak = cell(f"{bytes_}.per_second"), cell(f"{bytes_}.peak_sustained") * cell(clock)
    kind = launch.work.kind
    assert memory.bytes_per_second == traffic
    assert memory.peak_bytes_per_second == pytest.approx(peak, rel=1e-12)
    assert memory.flop_per_byte == pytest.approx(chart_work(cell, kind) / traffic, rel=1e-4)
    assert memory.ridge_flop_per_byte == pytest.approx(chart_peak(cell, kind) / peak, rel=1e-9)


@pytest.mark.parametrize("index", range(6))
def test_the_binding_roof_is_the_lowest_at_the_charts_intensities(found: Rooflines, index: int) -> None:
    cell, launch = cells(index), found.launches[index]
    assert launch.work
    kind = launch.work.kind
    roofs = {kind: chart_peak(cell, kind)}
    for level, (bytes_, clock) in MEMORIES.items():
        intensity = chart_work(cell, kind) / cell(f"{bytes_}.per_second")
        roofs[level] = intensity * cell(f"{bytes_}.peak_sustained") * cell(clock)
    lowest = min(roofs, key=roofs.__getitem__)
    assert launch.roof == lowest
    assert launch.attainable_ops_per_second == pytest.approx(roofs[lowest], rel=1e-4)
    assert launch.share == pytest.approx(chart_work(cell, kind) / roofs[lowest], rel=1e-4)


def test_the_fp32_and_fp64_shares_are_those_of_ncu_s_rule(found: Rooflines) -> None:
    page = lzma.decompress((DATA / "ncu/full.details.txt.xz").read_bytes()).decode()
    said = re.findall(
        r"achieved (\d+)%\s+of this device's FP32 peak performance and\s+(?:close to )?(\d+)%",
        re.sub(r"\s+", " ", page),
    )
    assert [int(fp32) for fp32, _ in said] == [7, 24, 10, 7, 5, 4]
    for launch, shares in zip(found.launches, said, strict=True):
        works = {work.kind: work.share or 0.0 for work in launch.works}
        assert (round(100 * works["fp32"]), round(100 * works.get("fp64", 0.0))) == tuple(map(int, shares))


@pytest.mark.parametrize("index", range(6))
def test_memory_shares_are_the_utilization_that_ncu_measured_apart(found: Rooflines, index: int) -> None:
    """The use of each memory's peak has counters of its own."""
    cell, launch = cells(index), found.launches[index]
    dram, l2, l1 = (launch.memory(level) for level in Level)
    assert dram and l2 and l1
    assert 100 * dram.share == pytest.approx(cell("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"), abs=0.01)
    assert 100 * l2.share == pytest.approx(
        cell("lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed"), rel=1e-2
    )
    assert 100 * l1.share == pytest.approx(
        cell("l1tex__lsu_writeback_active_mem_lgds.sum.pct_of_peak_sustained_elapsed"), rel=1e-2, abs=0.005
    )


def test_values_are_exactly_those_of_ncu_report(tmp_path: Path) -> None:
    reader: Any = pytest.importorskip("ncu_report")
    report = tmp_path / "full.ncu-rep"
    report.write_bytes(lzma.decompress((DATA / "ncu/full.ncu-rep.xz").read_bytes()))
    run = record_run(tmp_path / "run", ncu_raw=None, trace=False)
    ncu.parse(None, run.tables_path, report=report)
    context = reader.load_report(str(report))
    actions = [context.range_by_idx(0).action_by_idx(index) for index in range(6)]
    for action, launch in zip(actions, roofline(run).launches, strict=True):

        def value(name: str, action: Any = action) -> float:
            return float(action.metric_by_name(name).as_double())

        clock = value("sm__cycles_elapsed.avg.per_second")
        for level, (bytes_, memory_clock) in MEMORIES.items():
            memory = launch.memory(level)
            assert memory
            assert memory.bytes_per_second == value(f"{bytes_}.per_second")
            assert memory.peak_bytes_per_second == value(f"{bytes_}.peak_sustained") * value(memory_clock)
        works = {work.kind: work for work in launch.works}
        fma = "derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2"
        assert works["fp32"].peak_ops_per_second == value(fma) * clock
        # One more rounding: count = rate x cycles, and that over the time.
        assert works["fp32"].ops_per_second == pytest.approx(chart_work(value, "fp32"), rel=1e-12)
        if launch.launch == 0:
            tensor = works["tensor fp16"]
            assert tensor.ops == value("sm__ops_path_tensor_src_fp16.sum") == 150592290816
            assert tensor.ops_per_second == pytest.approx(
                value("sm__ops_path_tensor_src_fp16.sum.per_second"), rel=1e-12
            )
            assert tensor.peak_ops_per_second == chart_peak(value, "tensor fp16")


# The recorded launches in literal numbers


def test_conversions_do_not_make_half_precision_the_main_work(found: Rooflines) -> None:
    rmsnorm = found.launches[3]
    works = {work.kind: work for work in rmsnorm.works}
    # HADD alone is 1,193 of the 1,246 half instructions a cycle: conversions of the input.
    assert works["fp16"].ops > works["fp32"].ops
    assert rmsnorm.work == works["fp32"]


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


def test_the_chart_of_launches_without_compute_roofs_has_the_memories_alone(quick: Rooflines) -> None:
    rope = Rooflines(quick.run, quick.launches[4:5], ())
    text = chart(rope)
    assert "tensor" not in text
    plot = [line[8:] for line in text.splitlines() if line[7:8] in ("│", "┤")]
    for label in ("DRAM", "L2", "L1"):
        # Right of its line.
        (line,) = [line for line in plot if re.search(rf"\b{label}\b", line)]
        assert re.search(rf"[.\-']+ +{label}\b", line), line
    assert sum("4" in line for line in plot) == 1


def test_a_case_without_a_cost_model(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", launches=[{**FULL_ROW, "ffma_thread_insts": 1e5}], cases=[case(flops=0)])
    found = roofline(run)
    assert (found.cases, found.launches[0].model_flop_per_byte) == ((), None)
    assert found.launches[0].roof == "DRAM"
