"""fiprof/analysis/roofline.py: against ncu's own roofline charts, from the raw cells and from the report itself."""

from __future__ import annotations

import csv
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.roofline import Basis, LaunchRoofline, Level, Rooflines, roofline
from fiprof.analysis.show import show
from fiprof.model.run import Run
from fiprof.model.selection import Selection
from fiprof.parsers import ncu
from fiprof.reports import show as show_tables
from fiprof.reports.roofline_chart import chart
from fiprof.reports.roofline_tables import document
from fiprof.reports.view import FORMATS
from fiprof.reports.writers import render
from tests.recorded_runs import invoke, parsed
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
    ncu.parse_report(report, run.tables_path)
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


def test_the_recorded_prefill_is_under_the_tensor_roof(found: Rooflines) -> None:
    prefill = found.launches[0]
    dram, l2, l1 = (prefill.memory(level) for level in Level)
    assert dram and l2 and l1 and prefill.work
    assert (prefill.roof, prefill.basis, prefill.work.kind) == ("tensor fp16", "counted", "tensor fp16")
    assert prefill.work.ops_per_second == pytest.approx(481.3839e12, rel=1e-6)
    # 4,096 dense operations a cycle and multiprocessor, 132 of them, at 1.697 GHz: half the parent counter's peak.
    assert prefill.attainable_ops_per_second == pytest.approx(4096 * 132 * 1697078914.27)
    assert prefill.share == pytest.approx(0.52463, abs=1e-5)
    assert dram.flop_per_byte == pytest.approx(976.71, abs=0.01)
    assert l2.flop_per_byte == pytest.approx(121.91, abs=0.01)
    assert dram.ridge_flop_per_byte == pytest.approx(190.72, abs=0.01)
    assert prefill.model_flop_per_byte == 137506062336 / (100663296 + 67108864)


def test_the_recorded_decode_is_under_dram(found: Rooflines) -> None:
    decode, merge = found.launches[1:3]
    assert (decode.roof, merge.roof) == ("DRAM", "fp32")
    assert decode.work and decode.work.kind == "fp32"
    # What binds is what is busiest: DRAM moves 2,926.64 of 1,504 bytes x 3.198 GHz.
    assert decode.share == pytest.approx(2926640937284.63 / (1504 * 3197737192.74))
    assert decode.work.ops_per_second == pytest.approx(15.0878e12, rel=1e-4)
    assert merge.share == pytest.approx(0.0956, abs=1e-4)
    (by_model,) = [item for item in found.cases if item.label == "decode"]
    assert (by_model.kernels, by_model.flops, by_model.moved_bytes) == (2, 1073741824, 268976128)
    assert by_model.ops_per_second == pytest.approx(1073741824 / 98.4e-6)
    assert by_model.roof == "DRAM"
    assert by_model.attainable_ops_per_second == pytest.approx(1073741824 / 268976128 * 1504 * 3197737192.74)
    assert decode.model_flop_per_byte == merge.model_flop_per_byte == by_model.flop_per_byte


def test_conversions_do_not_make_half_precision_the_main_work(found: Rooflines) -> None:
    rmsnorm = found.launches[3]
    works = {work.kind: work for work in rmsnorm.works}
    # HADD alone is 1,193 of the 1,246 half instructions a cycle: conversions of the input.
    assert works["fp16"].ops > works["fp32"].ops
    assert rmsnorm.work == works["fp32"]


# Instructions of a warp, and what is not counted


def test_fa2_has_the_roof_of_its_own_instructions(quick: Rooflines) -> None:
    """ncu's chart has a roof for each instruction; mma.sync reaches 360,448 operations a cycle, wgmma 540,672."""
    fa2, fa3 = quick.launches[:2]
    assert fa2.work and fa3.work
    assert (fa2.roof, fa3.roof) == ("tensor fp16 mma", "tensor fp16")
    assert fa2.work.peak_ops_per_second == pytest.approx(360448 * 1779106917.39)
    assert fa3.work.peak_ops_per_second == pytest.approx(540672 * 1726385703.0)
    # The tensor cores' active cycles are counted apart, and say the same: 49.86 and 52.62 %.
    assert fa2.share == pytest.approx(0.4988, abs=5e-4)
    assert fa2.remark and fa2.remark.fields() == {
        "id": "mma",
        "roof_tflops": pytest.approx(641.28, abs=0.01),
        "wgmma_tflops": pytest.approx(961.91, abs=0.01),
        "wgmma_share": pytest.approx(0.3325, abs=1e-4),
    }
    assert fa3.remark is None


def test_without_counted_operations_the_cost_model_tells_them_and_it_is_said(quick: Rooflines) -> None:
    rope = quick.launches[4]
    assert rope.work and rope.basis == "model"
    assert rope.work.ops == 251658240
    assert rope.work.ops_per_second == pytest.approx(251658240 / 92.288e-6)
    assert rope.work.peak_ops_per_second is None
    assert rope.roof == "DRAM"
    assert [item.remark is not None and item.remark.kind == "by_model" for item in quick.launches[3:]] == [
        False,
        True,
        True,
        True,
    ]
    assert "DRAM (model)" in render(document(quick), "table")


def test_a_kernel_of_several_in_its_case_gets_no_number_from_the_model(quick: Rooflines) -> None:
    decode, merge = quick.launches[2:4]
    for launch in (decode, merge):
        assert (launch.basis, launch.work, launch.roof, launch.share) == ("none", None, None, None)
        assert launch.remark and launch.remark.kind == "model_of_several"
    assert render(document(quick), "table").count("not enough evidence") == 2
    rows = json.loads(render(document(quick), "json"))["rows"]
    assert (rows[2]["tflops"], rows[2]["roof_share"], rows[2]["roof"], rows[2]["basis"]) == (None, None, None, "none")
    assert rows[2]["case_model_roof_share"] == pytest.approx(0.5452, abs=1e-4)


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


def test_recorded_kernels_without_work_stand_by_their_bytes() -> None:
    found = roofline(parsed("single-purpose"))
    placed = {item.kernel: item for item in found.launches}
    shares = {name: (placed[name].roof, round(placed[name].share or 0, 3)) for name in ("device_copy", "l2_read")}
    assert shares == {"device_copy": ("DRAM", 0.846), "l2_read": ("L2", 0.877)}
    assert "not enough evidence" not in render(document(found), "table")
    figures = render(show_tables.document(show(parsed("single-purpose"), wanted=Selection("device_copy"))), "table")
    assert re.search(r"device_copy .* 84\.6% +DRAM", figures)
    # Beside the others, and by themselves.
    for kernel in ("", "device_copy"):
        text = chart(roofline(parsed("single-purpose"), wanted=Selection(kernel)))
        assert "At the left edge stand launches without floating-point work" in text
        assert re.search(r"^ *[\d,.]* *[│┤]1( |$)", text, re.MULTILINE)


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


def test_launches_in_one_cell_are_named(tmp_path: Path) -> None:
    rows = [{**FULL_ROW, "launch": number, "fadd_thread_insts": 1e6} for number in (3, 4, 12)]
    assert chart(roofline(make_run(tmp_path / "run", launches=rows))).endswith("one cell: 3 also 4 and 12")


def test_the_chart_is_for_the_table_alone() -> None:
    run = str(parsed("all").path)
    printed = {name: invoke("roofline", run, "--kernel", "rope", "--format", name) for name in FORMATS}
    assert {name: (status, "┤" in text) for name, (status, text) in printed.items()} == {
        name: (0, name == "table") for name in FORMATS
    }
    found = json.loads(printed["json"][1])
    assert (found["schema"], found["gpu"]) == ("roofline/1", "NVIDIA H200")
    assert [row["kernel"] for row in found["rows"]] == ["BatchQKApplyRotaryKernel"]


def test_a_case_without_a_cost_model(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", launches=[{**FULL_ROW, "ffma_thread_insts": 1e5}], cases=[case(flops=0)])
    found = roofline(run)
    assert (found.cases, found.launches[0].model_flop_per_byte) == ((), None)
    assert found.launches[0].roof == "DRAM"
