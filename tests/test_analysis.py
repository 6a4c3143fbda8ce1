"""How sure the numbers of a run are, each check at its limits; ``fiprof expected``; what the instructions that hold most warp samples
probably wait for; and that what commands print of recorded launches is what ncu itself says: its charts, its pages of text and
source, its rules."""

import csv
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiprof.analysis import checks
from fiprof.analysis.checks import CASE_CHECKS, LAUNCH_CHECKS, RUN_CHECKS, Check
from fiprof.analysis.expected import combined, read_expectations
from fiprof.analysis.sass import Code
from fiprof.errors import FiprofError
from fiprof.model.finding import words_of
from fiprof.model.run import Run
from tests.recorded_runs import RUNS, invoke, parsed, refusal, rows
from tests.reports_fixture import DATA, GPU_STATE, RAW, add, case, execution, make_run

ID = "mine[rows=8]"
Made = dict[str, Any]


def check(run: Run, name: str) -> Check:
    (found,) = [each for each in checks.evaluate(run) if each.check == name]
    return found


def traced(*durations_us: float) -> Made:
    return {"kernels": [execution(0, round(1000 * us), iteration=i) for i, us in enumerate(durations_us)]}


def loops(traced_us: float, plain_us: float) -> Made:
    """A kernel of 100 µs in each iteration, of which a loop takes so long."""
    starts_ns = [round(1000 * traced_us * i) for i in range(4)]
    kernels = [execution(at, at + 100_000, iteration=i) for i, at in enumerate(starts_ns)]
    return {"kernels": kernels, "wall_us": plain_us, **plain(100.0)}


def plain(*times_us: float) -> Made:
    return {"gpu_us": {ID: list(times_us)}}


def counted(**values: Any) -> Made:
    return {"launches": [{"launch": 0, "case": ID, "iteration": 0, "kernel": "K", "duration_ns": 1e5, **values}]}


REASON = {"launch": 0, "reason": "wait", "warps_per_issue": 9.0, "samples": 10}
REASONS = {"reasons": [REASON, {**REASON, "reason": "selected", "warps_per_issue": 1.0, "samples": 20}]}
COUNTED = "fadd fmul ffma hadd hmul hfma dadd dmul dfma"
RATES = {f"{each}_thread_insts_per_cycle": 0.0 for each in COUNTED.split()}
CYCLE = {**RATES, "sm_cycles": 1.0}
FLOPS, READS = {"cases": [case(flops=1000)]}, {"cases": [case(bytes_read=1000)]}
L2 = {"cases": [case(bytes_written=400)], "environment": {"gpu": {"l2_bytes": 100}}}
KEPT = {"settings": {"cache_control": "none"}}


@pytest.mark.parametrize(
    ("name", "made", "values", "passed"),
    [
        ("nsys_vs_plain", lambda us: {**plain(100.0), **traced(us)}, (100.0, 91.0, 109.0), True),
        ("nsys_vs_plain", lambda us: {**plain(100.0), **traced(us)}, (89.0, 111.0), False),
        # 3 µs of events and of the launch gap; of each kernel of an iteration.
        ("nsys_vs_plain", lambda us: {**plain(10.0), **traced(us)}, (7.1,), True),
        ("nsys_vs_plain", lambda us: {**plain(10.0), **traced(us)}, (6.9,), False),
        ("nsys_vs_plain", lambda us: loops(100, us), (100.0, 133.0), True),
        ("nsys_vs_plain", lambda us: loops(100, us), (134.0, 1000.0), False),
        # Launching takes the host 45 µs more under nsys.
        ("nsys_vs_plain", lambda us: loops(us, 100), (145.0,), True),
        ("nsys_vs_plain", lambda us: loops(us, 100), (146.0,), False),
        ("stall_sum", lambda n: {**counted(warp_latency_cycles=n), **REASONS}, (10.0, 9.81, 10.19), True),
        ("stall_sum", lambda n: {**counted(warp_latency_cycles=n), **REASONS}, (9.7, 10.3), False),
        ("sample_sum", lambda n: {**counted(stall_samples=n), **REASONS}, (30.0,), True),
        ("sample_sum", lambda n: {**counted(stall_samples=n), **REASONS}, (31.0, 29.0), False),
        ("dropped_samples", lambda n: counted(stall_dropped_bytes=n), (0.0,), True),
        ("dropped_samples", lambda n: counted(stall_dropped_bytes=n), (64.0,), False),
        ("sm_clock", lambda hz: counted(sm_clock_hz=hz), (1980e6, 1590e6), True),
        ("sm_clock", lambda hz: counted(sm_clock_hz=hz), (1580e6,), False),
        ("ncu_vs_nsys", lambda ns: {**counted(duration_ns=ns), **traced(100)}, (100e3, 149e3, 81e3), True),
        ("ncu_vs_nsys", lambda ns: {**counted(duration_ns=ns), **traced(100)}, (151e3, 79e3), False),
        ("ncu_vs_nsys", lambda ns: {**counted(duration_ns=ns), **traced(2)}, (3900,), True),  # a short launch
        ("flops", lambda n: {**counted(tensor_ops_fp16=n), **FLOPS}, (1100.0,), True),
        ("flops", lambda n: {**counted(tensor_ops_fp16=n), **FLOPS}, (890.0, 2600.0), False),
        # Other pipes count only where the tensor cores did nothing; half additions are conversions, mostly.
        ("flops", lambda n: {**counted(tensor_ops_fp16=1100.0, **RATES, ffma_thread_insts=n), **FLOPS}, (9e3,), True),
        ("flops", lambda n: {**counted(tensor_ops_fp16=0.0, **CYCLE, ffma_thread_insts=n), **FLOPS}, (500.0,), True),
        ("flops", lambda n: {**counted(**CYCLE, ffma_thread_insts=500.0, hadd_thread_insts=n), **FLOPS}, (9e3,), True),
        ("flops", lambda n: {**counted(**CYCLE, hfma_thread_insts=n), **FLOPS}, (100.0,), False),
        ("dram_reads", lambda n: {**counted(dram_read_bytes=n), **READS}, (1000.0,), True),
        ("dram_reads", lambda n: {**counted(dram_read_bytes=n), **READS}, (800.0,), False),
        ("dram_reads", lambda n: {**counted(dram_read_bytes=n), **READS, **KEPT}, (800.0,), False),
        # What is written may stay in L2.
        ("dram_writes", lambda n: {**counted(dram_write_bytes=n), **L2}, (350.0, 261.0), True),
        ("dram_writes", lambda n: {**counted(dram_write_bytes=n), **L2}, (259.0,), False),
        ("dram_writes", lambda n: {**counted(dram_write_bytes=n), **L2, "cases": [case(bytes_written=100)]}, (0.0,), None),
        ("spread", lambda us: traced(100, 100, 105, us), (109,), True),
        ("spread", lambda us: traced(100, 100, 100, 120, us), (120,), False),
        ("spread", lambda us: plain(3.0, 3.3, 3.6, us), (3.9,), True),
        ("spread", lambda us: plain(5.0, us), (5.0,), None),
    ],
)  # fmt: skip
def test_a_check_at_its_limits(name: str, made: Any, values: tuple[float, ...], passed: bool, tmp_path: Path) -> None:
    for value in values:
        assert check(make_run(tmp_path / str(value), **made(value)), name).passed is passed, value


def test_other_processes(tmp_path: Path) -> None:
    after = {**GPU_STATE, "other_processes": ["4711 (python3)"]}
    run = make_run(tmp_path / "shared", environment={"gpu_state": {"before": GPU_STATE, "after": after}})
    assert check(run, "other_processes").passed is False
    (finding,) = checks.of_run(checks.failed(run))
    assert "4711 (python3)" in words_of(finding)


def test_without_measurements_every_check_is_open_and_says_why(tmp_path: Path) -> None:
    run = make_run(tmp_path / "empty", **counted(duration_ns=None), environment={})
    found = checks.evaluate(run)
    assert len(found) == len(RUN_CHECKS) + len(CASE_CHECKS) + len(LAUNCH_CHECKS)
    assert [each.check for each in found if each.passed is not None] == ["profiled"]
    assert all(each.values["why"] for each in found if each.check != "profiled")


def test_every_case_has_its_own(tmp_path: Path) -> None:
    cases = [case("a[x=1]"), case("a[x=2]")]
    run = make_run(tmp_path / "run", cases=cases, gpu_us={"a[x=1]": [1.0, 5.0, 9.0], "a[x=2]": [5.0, 5.0, 5.0]})
    (failed,) = checks.failed(run)
    assert (failed.case, failed.values["timed"]) == ("a[x=1]", "plain")
    assert failed.value == pytest.approx(1.28)
    (failed,) = checks.failed(make_run(tmp_path / "ncu", cases=[case(), case("a[x=1]")], **counted()))
    assert (failed.check, failed.case, failed.value, failed.low) == ("profiled", "a[x=1]", 0, 1)


EXPECTED = """
[source]
title = "ours"
gpu = "NVIDIA A100 80 GB SXM"
compute_capability = "9.0"
dram_tb_per_s = 2.039

[[family]]
name = "decode"
workloads = ["decode"]
params = { kv_len = 2048 }
size = "batch"
stalls = { long_scoreboard = [60, 70], barrier = [15, 25], short_scoreboard = [5, 10] }
roof = { kind = "dram", shares = { 1 = 35, 32 = 80, 128 = 87 } }
bandwidth = { least_tb_per_s = 1.6 }

[[family]]
name = "prefill"
workloads = ["prefill"]
size = "batch"
stalls = { long_scoreboard = [15, 25] }
roof = { kind = "tensor", shares = { 4 = 70, 8 = 72 } }
bandwidth = { least_tb_per_s = 1.4 }

[[family]]
name = "norms"
workloads = ["rmsnorm"]
size = "rows"
stalls = { long_scoreboard = [20, 30] }
roof = { kind = "dram", shares = { 4096 = 45 } }
bandwidth = { least_tb_per_s = 0.8 }
"""
"""Figures of the packaged kind, as if they were said of the recorded runs' compute capability."""


def expected(tmp_path: Path, run: str, content: str, *words: str) -> list[dict[str, Any]]:
    (tmp_path / "ours.toml").write_text(content)
    found = rows("expected", parsed(run).path, "--expectations", tmp_path / "ours.toml", *words)
    return [row for row in found if row["quantity"]]


def test_decode_on_cuda_cores_waits_for_other_things_than_expected(tmp_path: Path) -> None:
    found = expected(tmp_path, "decode", EXPECTED)
    mine = [row for row in found if row["label"] == "decode batch=32"]
    assert {row["quantity"]: (round(row["measured"], 2), row["outcome"]) for row in mine} == {
        "long_scoreboard": (5.42, "below"), "barrier": (15.72, "as expected"), "short_scoreboard": (10.70, "as expected"),
        "dram_share": (63.36, "below"), "dram_gb_per_s": (3.05, "below"),
    }  # fmt: skip
    # 1.6 of the A100's 2.039 TB/s; H200: 1504 bytes a cycle at the DRAM clock that ncu measured.
    bandwidth = next(row for row in mine if row["unit"] == "TB/s")
    assert bandwidth["expected_low"] == pytest.approx(1.6 / 2.039 * 4.810, rel=0.001)
    assert [remark["id"] for remark in bandwidth["remarks"]] == ["same_share", "stated_is_reached"]
    # Prefill is on the roof of the instructions that it used.
    prefill = expected(tmp_path, "prefill-decode-rope", EXPECTED, "--kernel", "prefill")
    fa2, fa3 = (row for row in prefill if row["quantity"] == "compute_roof_share")
    assert [(row["label"][-3:], row["work"], round(row["measured"], 2)) for row in (fa2, fa3)] == [
        ("fa2", "tensor fp16 mma", 49.88), ("fa3", "tensor fp16", 52.62),
    ]  # fmt: skip
    assert [(each["id"], round(each["wgmma_share"], 3)) for each in fa2["remarks"]] == [("mma", 0.333)]


@pytest.mark.parametrize(
    ("run", "old", "new", "family", "remark"),
    [
        ("decode", '"9.0"', '"8.0"', "decode", "gpu"),
        ("decode", "kv_len = 2048", "kv_len = 4096", "decode", "shape"),
        ("all", "4 = 70", "1 = 70", "prefill", "size"),
    ],
)
def test_another_gpu_shape_or_size(tmp_path: Path, run: str, old: str, new: str, family: str, remark: str) -> None:
    found = [row for row in expected(tmp_path, run, EXPECTED.replace(old, new)) if row["family"] == family]
    said = {row["remarks"][-1]["id"] for row in found if row["outcome"] == "not compared"}
    assert remark in said and (remark == "size" or {row["outcome"] for row in found} == {"not compared"})


def test_a_file_of_one_s_own_replaces_the_packaged_family(tmp_path: Path) -> None:
    own = tmp_path / "ours.toml"
    own.write_text(EXPECTED)
    families = [family for _, family in combined(read_expectations(own))]
    assert [family.name for family in families] == ["decode", "prefill", "norms", "rmsnorm", "rope"]
    assert families[3].workloads == ("fused_add_rmsnorm",)
    words = ("expected", str(parsed("all").path), "--expectations", str(own))
    printed = invoke(*words, "--kernel", "RMSNormKernel")[1]
    for said in ("45 ± 5", "3 of 3 expectations hold", "NVIDIA A100 80 GB SXM (compute capability 9.0): ours"):
        assert said in printed
    own.write_text(EXPECTED.replace('"rmsnorm"', '"rmsnrom"'))
    assert refusal(*words).remedy == "did you mean 'rmsnorm'?"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("long_scoreboard", "long_scorebord", "family[0]: unknown stall reason 'long_scorebord'; known are barrier"),
        ("[20, 30]", "[30, 20]", "long_scoreboard = [30, 20] begins above its end"),
        ("[20, 30]", "[1, 101]", "family[2].stalls[...][1]: expected float <= 100.0"),
        ("4096 = 45", "0 = 45", "family[2].roof.shares"),
        ("least_tb", "least_gb", "family[0].bandwidth: object contains unknown field least_gb_per_s"),
        ("bandwidth = { least_tb_per_s = 0.8 }", '[[family]]\nname = "b"\nworkloads = ["rmsnorm"]', "two families claim rmsnorm"),
        ("[source]", "= 1", "Invalid statement"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_named_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(EXPECTED.replace(old, new))
    with pytest.raises(FiprofError) as raised:
        read_expectations(path)
    assert raised.value.message.startswith(str(path)) and message in raised.value.message


@pytest.mark.parametrize("samples", [0, None])
def test_a_launch_without_samples_says_so(tmp_path: Path, samples: int | None) -> None:
    launch = {"launch": 0, "case": "mine[rows=8]", "iteration": 0, "kernel": "K", "duration_ns": 1000.0}
    run = make_run(tmp_path / "run", launches=[launch])
    add(run, "hotspots", [{"launch": 0, "address": 0, "sass": "EXIT", "samples": samples}])
    assert rows("hotspots", run.path) == []
    assert "None of its 1 instructions has a sample" in invoke("hotspots", str(run.path))[1]


FRAGMENTS = st.sampled_from(
    ["LDG", "BRA", "HGMMA", "F2F", "I2F.U32", ".E", ".128", ".64x", "64x999999x16", "R12", "R999", "UR", "P0", "PT", "[", "]",
     ",", " ", "@!", "0x", "7f", "-", "|", "!", "desc[UR4][R2.64]", "\n", "٣", "R" + "9" * 5000]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(), st.lists(FRAGMENTS, max_size=12).map(" ".join)), min_size=1, max_size=8))
def test_any_listing_is_read(lines: list[str]) -> None:
    code = listing(*lines)
    for place in range(len(lines)):
        code.shown(place)
        for reason in ("long_scoreboard", "short_scoreboard", "barrier", "wait", None):
            cause = code.waits_for(place, reason)
            assert cause is None or cause < place


def listing(*lines: str) -> Code:
    return Code([16 * i for i in range(len(lines))], lines)


LOAD, USE = "LDG.E.128 R12, desc[UR6][R2.64]", "FADD R1, R15, R15"


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ([], True),
        (["@P0   EXIT"], False),
        (["@P0   BRA 0x100"], True),  # whoever is here fell through
        (["FADD R30, R12, R32"], False),  # this one waited for the load already
        (["FADD R14, R31, R32"], False),
        (["CALL.REL.NOINC 0x100"], False),
        (["NOP"] * 300, False),
        (["LDS R15, [R4]"], False),  # R15 is another load's now, and that is of the other scoreboard
    ],
)
def test_what_a_load_is_waited_for_by(between: list[str], found: bool) -> None:
    place = 1 + len(between)
    code = listing(LOAD, *between, USE, *["NOP"] * 300, f"BRA {hex(16 * (place + 301))}")
    assert code.waits_for(place, "long_scoreboard") == (0 if found else None)


@pytest.mark.parametrize(
    ("lines", "place", "reason", "found"),
    [
        (("MUFU.EX2 R9, R8", LOAD, "FADD R1, R9, R12"), 2, "long_scoreboard", 1),
        (("MUFU.EX2 R9, R8", LOAD, "FADD R1, R9, R12"), 2, "short_scoreboard", 0),
        (("MUFU.EX2 R9, R8", LOAD, "FADD R1, R9, R12"), 2, "wait", None),
        # Across a branch's target nothing is said, nor where targets are unknown.
        ((LOAD, "NOP", USE, "@P0 BRA 0x7000", "BRA 0x7040", "NOP"), 2, "long_scoreboard", 0),
        ((LOAD, "NOP", USE, "@P0 BRA 0x7010", "BRA 0x7040", "NOP"), 2, "long_scoreboard", None),
        ((LOAD, USE, "BRX R4 -0x10", "EXIT"), 1, "long_scoreboard", None),
        # If the last branch leads to itself, the other one leads out of the kernel.
        ((LOAD, USE, "@P0 BRA 0x9990", "BRA 0x7030"), 1, "long_scoreboard", None),
        (("BAR.SYNC.DEFER_BLOCKING 0x0", "NOP", "LDS R1, [R2]"), 2, "barrier", 0),
        (("BAR.ARV 0x1, 0x80", "NOP"), 1, "barrier", None),
        (("BAR.SYNC 0x0", *["NOP"] * 17), 17, "barrier", None),
        (("DEPBAR.LE SB0, 0x1", "BAR.SYNC 0x0"), 1, "long_scoreboard", 0),
        ((LOAD, "DEPBAR.LE SB0, 0x1", USE), 2, "long_scoreboard", None),
    ],
)
def test_what_is_waited_for(lines: tuple[str, ...], place: int, reason: str, found: int | None) -> None:
    assert listing(*lines).waits_for(place, reason) == found


LAUNCHES = pytest.mark.parametrize("index", range(6))
DETAILS = lzma.decompress((DATA / "ncu/full.details.txt.xz").read_bytes()).decode()
"""ncu's text page of the recorded report."""


# The charts of SpeedOfLight_RooflineChart and SpeedOfLight_Hierarchical…RooflineChart, as the recorded report defines
# them: work a second, traffic a second, peak work, peak traffic.

INSTRUCTIONS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
ROOFS_OF_WORK = {
    "fp32": ("fadd", 1, "fmul", 1, "ffma", 2),
    "fp16": ("hadd", 2, "hmul", 2, "hfma", 4),
    "fp64": ("dadd", 1, "dmul", 1, "dfma", 2),
}
MEMORIES = {
    "dram": ("dram__bytes.sum", "dram__cycles_elapsed.avg.per_second"),
    "l2": ("derived__lts__lts2xbar_bytes.sum", "lts__cycles_elapsed.avg.per_second"),
    "l1": ("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum", "l1tex__cycles_elapsed.avg.per_second"),
}


def cells(launch: int) -> Callable[[str], float]:
    """The raw page's numbers of a launch, read here alone."""
    with RAW.open(newline="") as file:
        header, _, *lines = csv.reader(file)
    row = dict(zip(header, lines[launch], strict=True))
    return lambda name: float(row[name].replace(",", ""))


def chart_work(cell: Callable[[str], float], kind: str) -> float:
    if kind == "tensor":
        return cell("sm__ops_path_tensor_src_fp16.sum.per_cycle_elapsed") * cell("sm__cycles_elapsed.avg.per_second")
    add, a, mul, m, fma, f = ROOFS_OF_WORK[kind]
    per_cycle = sum(int(n) * cell(INSTRUCTIONS.format(op)) for op, n in ((add, a), (mul, m), (fma, f)))
    return per_cycle * cell("smsp__cycles_elapsed.avg.per_second")


def chart_peak(cell: Callable[[str], float], kind: str) -> float:
    if kind == "tensor":
        per_cycle = cell("sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum.peak_sustained")
    else:
        fma, lanes = str(ROOFS_OF_WORK[kind][4]), ROOFS_OF_WORK[kind][5]
        per_cycle = cell(f"derived__sm__sass_thread_inst_executed_op_{fma}_pred_on_x{lanes}")
    return per_cycle * cell("sm__cycles_elapsed.avg.per_second")


@LAUNCHES
def test_the_roofline_is_that_of_ncu_s_charts(five_kernels: Run, index: int) -> None:
    cell, row = cells(index), rows("roofline", five_kernels.path)[index]
    for kind in ("tensor", "fp32", "fp16", "fp64"):
        assert kind != "fp32" or row["fp32_tflops"]
        if row[f"{kind}_tflops"]:
            assert row[f"{kind}_tflops"] * 1e12 == pytest.approx(chart_work(cell, kind), rel=1e-4), kind
            assert row[f"{kind}_roof_tflops"] * 1e12 == pytest.approx(chart_peak(cell, kind), rel=1e-9), kind
    # HADD alone is 1,193 of RMSNorm's 1,246 half instructions a cycle: conversions, which are not its main work.
    kind = "tensor" if row["work"] == "tensor fp16" else "fp32"
    assert row["work"] in ("tensor fp16", "fp32")
    roofs = {row["work"]: chart_peak(cell, kind)}
    for level, (bytes_, clock) in MEMORIES.items():
        traffic, peak = cell(f"{bytes_}.per_second"), cell(f"{bytes_}.peak_sustained") * cell(clock)
        assert row[f"{level}_gb_per_s"] * 1e9 == pytest.approx(traffic, rel=1e-12)
        assert row[f"{level}_roof_gb_per_s"] * 1e9 == pytest.approx(peak, rel=1e-12)
        assert row[f"{level}_flop_per_byte"] == pytest.approx(chart_work(cell, kind) / traffic, rel=1e-4)
        assert row[f"{level}_ridge_flop_per_byte"] == pytest.approx(chart_peak(cell, kind) / peak, rel=1e-9)
        roofs[level.upper()] = chart_work(cell, kind) / traffic * peak
    assert row["roof"] == min(roofs, key=roofs.__getitem__)
    assert row["attainable_tflops"] * 1e12 == pytest.approx(min(roofs.values()), rel=1e-4)
    assert row["roof_share"] == pytest.approx(chart_work(cell, kind) / min(roofs.values()), rel=1e-4)
    # The use of each memory's peak has counters of its own.
    dram, l2, l1 = (100 * row[f"{level}_gb_per_s"] / row[f"{level}_roof_gb_per_s"] for level in MEMORIES)
    assert dram == pytest.approx(cell("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"), abs=0.01)
    assert l2 == pytest.approx(cell("lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed"), rel=1e-2)
    active = cell("l1tex__lsu_writeback_active_mem_lgds.sum.pct_of_peak_sustained_elapsed")
    assert l1 == pytest.approx(active, rel=1e-2, abs=0.005)


def test_the_fp32_and_fp64_shares_are_those_of_ncu_s_rule(five_kernels: Run) -> None:
    text = " ".join(DETAILS.split())
    said = re.findall(r"achieved (\d+)% of this device's FP32 peak performance and (?:close to )?(\d+)%", text)
    assert [int(fp32) for fp32, _ in said] == [7, 24, 10, 7, 5, 4]
    for row, shares in zip(rows("roofline", five_kernels.path), said, strict=True):
        for kind, share in zip(("fp32", "fp64"), shares, strict=True):  # no fp64 at all has no roof
            assert round(100 * (row[f"{kind}_tflops"] or 0) / (row[f"{kind}_roof_tflops"] or 1)) == int(share)


PRINTED = {
    "Duration": "duration_us", "DRAM Throughput": "dram_throughput_pct", "L1/TEX Hit Rate": "l1_hit_pct",
    "Theoretical Occupancy": "theoretical_occupancy_pct", "Achieved Occupancy": "achieved_occupancy_pct",
    "Waves Per SM": "waves_per_sm", "Registers Per Thread": "registers_per_thread", "L2 Hit Rate": "l2_hit_pct",
}  # fmt: skip
"""ncu's name of a metric -> the key of ``fiprof show``."""
SCALES = {"Tbyte/s": 1e3, "Gbyte/s": 1.0, "Mbyte/s": 1e-3, "us": 1.0, "ms": 1e3, "ns": 1e-3}


def launches_of(page: str) -> list[str]:
    """What a text page of ncu says of each launch."""
    return re.split(r", Context \d+, Stream \d+", page)[1:]


def agrees(row: dict[str, Any], part: str) -> None:
    """A launch's row has the figures that ncu prints, to their digits; of a name that comes twice, its first value."""
    page = re.findall(r"^    (\S.*?)(?:  +(\S+))??  +(\S+) *$", part.replace(",", ""), re.MULTILINE)
    printed = {name: (value, unit) for name, unit, value in reversed(page)}
    for name, key in PRINTED.items():
        value, unit = printed[name]
        assert f"{row[key] / SCALES.get(unit, 1.0):.{len(value.partition('.')[2])}f}" == value, name


@LAUNCHES
def test_figures_are_those_that_ncu_prints(five_kernels: Run, index: int) -> None:
    row, part = rows("show", five_kernels.path)[index], launches_of(DETAILS)[index]
    agrees(row, part)
    found = re.search(r"Memory Throughput +(\wbyte/s) +(\S+)", part)
    assert found and f"{row['dram_gb_per_s'] / SCALES[found[1]]:.2f}" == found[2]
    sizes = re.findall(r"(?:Dynamic|Static) Shared Memory Per Block +(K?)byte/block +(\S+)", part)
    shared_kb = sum(float(size.replace(",", "")) * (1 if kilo else 1e-3) for kilo, size in sizes)
    assert len(sizes) == 2 and row["shared_kb_per_block"] == pytest.approx(shared_kb, abs=0.005)


def test_bank_conflicts_are_those_of_ncu_s_rule() -> None:
    said = re.compile(r"shared (load|store) requests\.This results in (\d+) bank conflicts,\s+which represent (\S+)%")
    shown, compared = rows("show", parsed("all").path), 0
    for row in parsed("all").rows("rules", ("launch", "rule", "message")):
        for kind, _, share in said.findall(row["message"]) if row["rule"] == "SharedMemoryConflicts" else ():
            assert f"{100 * shown[row['launch']][f'shared_{kind}s_conflict_share']:.2f}" == share
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize("name", RUNS)
def test_the_limits_of_occupancy_follow_from_the_launch_as_ncu_s_do(name: str) -> None:
    """Registers are given to a warp 256 at a time; waves are blocks over what the GPU holds at once."""
    for row, launch in zip(rows("show", parsed(name).path), parsed(name).launches, strict=False):
        warps = -(-round(launch["threads_per_block"]) // 32)
        limits = {n: 16384 // (-(-n * 32 // 256) * 256) * 4 // warps for n in range(1, 256)}
        registers, limit = round(launch["registers_per_thread"]), launch["limit_registers_blocks"]
        assert row["limit_registers_blocks"] == limits[registers] == limit
        for step in row["occupancy_steps"] or ():
            needed = step["needed"]
            assert step["id"] != "fewer_registers" or limits[needed] == step["blocks"] > limit == limits[needed + 1]
        blocks = min(value for key in row if re.fullmatch("limit_[a-z_]+_blocks", key) and (value := row[key]))
        occupancy = 100 * blocks * warps / 64
        assert occupancy == pytest.approx(row["theoretical_occupancy_pct"], abs=0.006) or row["limit_clusters_blocks"]
        assert row["wave_blocks"] == blocks * 132 or row["limit_clusters_blocks"]
        assert launch["blocks"] / row["wave_blocks"] == pytest.approx(row["waves_per_sm"], abs=0.00501)


def test_every_hotspot_is_in_the_source_page_and_no_hotter_one_is_missing() -> None:
    page = lzma.decompress((RUNS["all"] / "ncu/source.csv.xz").read_bytes()).decode()
    listings = [listing.splitlines() for listing in page.split('"Kernel Name",')[1:]]
    found = rows("hotspots", parsed("all").path, "--instructions", "20")
    assert len(found) == 6 * 20
    for launch in range(6):
        mine = [row for row in found if row["launch"] == launch]
        _, *lines = next(listing for listing in listings if f"::{mine[0]['kernel']}<" in listing[0])
        listing = [*csv.DictReader(lines)]
        at = {int(each["Address"], 16) - int(listing[0]["Address"], 16): each for each in listing}
        for row in mine:
            said = at[int(row["offset"], 16)]
            assert (row["sass"], str(row["samples"])) == (said["Source"].strip(), said["# Samples"])
            assert str(row["samples_not_issued"]) == said["Warp Stall Sampling (Not-issued Samples)"]
        samples = [int(each["# Samples"]) for each in listing]
        assert [row["samples"] for row in mine] == sorted(samples, reverse=True)[:20]
        assert [row["sample_share"] for row in mine] == [pytest.approx(row["samples"] / sum(samples)) for row in mine]
