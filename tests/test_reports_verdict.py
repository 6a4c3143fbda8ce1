"""fiprof/reports/verdict*.py, advice.py and quoted_rules.py: verdicts of recorded launches, of made-up ones, of any."""

from __future__ import annotations

import functools
import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis.reasons import REASONS
from fiprof.analysis.verdict.model import Comparison, Judgement
from fiprof.analysis.verdict.rules import BUSY_PCT, IDLE_PCT, RESOURCES, SATURATED_PCT, WAITING_PCT, judge
from fiprof.analysis.verdict.steps import Situation, Step, steps
from fiprof.analysis.verdict.verdict import LaunchVerdict, Verdicts, verdicts
from fiprof.errors import FiprofError
from fiprof.model.expressions import Row, number
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.run import Run
from fiprof.reports.verdict_tables import document
from fiprof.reports.view import render
from tests.conftest import Fiprof
from tests.recorded_runs import parsed
from tests.reports_fixture import case, make_run

# The recorded runs


@pytest.fixture(scope="module")
def recorded_runs() -> Callable[[str], Run]:
    """A recorded run by the end of its name."""
    return functools.cache(parsed)


@pytest.fixture(scope="module")
def recorded_verdicts(recorded_runs: Callable[[str], Run]) -> Callable[[str], Verdicts]:
    """Its verdicts."""
    return functools.cache(lambda name: verdicts(recorded_runs(name)))


Recorded = Callable[[str], Verdicts]


def deciding(item: LaunchVerdict) -> tuple[str, str, float]:
    """The verdict, ncu's name of what decided it, and its value."""
    first = item.judgement.readings[0]
    return item.title, first.fact.source.formula, round(first.value, 1)


DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
ISSUE = "sm__inst_issued.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
L1_DATA = "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"
IDLE = "100 * (1 - sm__cycles_active.avg / sm__cycles_active.max)"
WAITING = "max(100 * (1 - a / b), 0)"


def test_kernels_built_to_be_one_thing_only_are_called_that(recorded_verdicts: Recorded) -> None:
    found = recorded_verdicts("single-purpose")
    by_case = {item.label: item for item in found.launches}
    assert {label: deciding(item) for label, item in by_case.items()} == {
        "matmul": ("compute-bound (tensor cores)", TENSOR, 93.4),
        "device_copy": ("memory-bound (DRAM)", DRAM, 84.6),
        "l2_copy": ("memory-bound (L2)", "lts__xbar2lts_cycles_active.avg.pct_of_peak_sustained_elapsed", 89.9),
        "l2_read": ("memory-bound (L2)", "lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed", 87.8),
        "pointer_chase": ("latency-bound", DRAM, 2.1),
        "one_block": ("imbalanced (too few blocks)", IDLE, 99.2),
        "uneven_blocks": ("imbalanced (uneven work)", IDLE, 87.7),
        "tiny_launches": ("launch-bound", WAITING, 81.9),
        "bank_conflicts": ("memory-bound (shared memory)", L1_DATA, 99.7),
        "fma_chain": (
            "compute-bound (FMA pipe)", "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed", 97.5,
        ),
    }  # fmt: skip
    assert {item.title for item in found.launches if item.label == "tiny_launches"} == {"launch-bound"}
    assert {item.label for item in by_case.values() if item.sure == "low"} == set()


def test_the_first_step_for_each_of_them_is_what_it_was_built_with(recorded_verdicts: Recorded) -> None:
    found = {item.label: item for item in recorded_verdicts("single-purpose").launches}
    first = {label: item.steps[0] for label, item in found.items()}
    assert first["bank_conflicts"].action.startswith("Remove the bank conflicts")
    assert first["bank_conflicts"].gain_pct == pytest.approx(96.5, abs=0.1)
    assert "96.8%" in first["bank_conflicts"].basis
    assert "SharedMemoryConflicts 96.8%" in first["bank_conflicts"].basis
    assert first["one_block"].action.startswith("Split the work into more blocks, for 1 of 132 multiprocessors")
    assert first["one_block"].gain_pct == pytest.approx(99.2, abs=0.1)
    assert first["uneven_blocks"].action.startswith("Share the work out evenly")
    assert first["pointer_chase"].action.startswith("Spend less time in long_scoreboard, 98%")
    assert first["tiny_launches"].action.startswith("Launch the iteration from a CUDA graph")
    assert first["tiny_launches"].of == "an iteration"
    assert "of 235.4 µs its kernels take 42.6 µs" in first["tiny_launches"].basis
    assert first["l2_read"].action.startswith("Ask L2 for less")


def test_what_feeds_a_unit_at_its_limit_is_the_runner_up(recorded_verdicts: Recorded) -> None:
    found = {item.label: item for item in recorded_verdicts("single-purpose").launches}
    assert found["matmul"].runner_up == (
        "memory-bound (shared memory), 1.2 points ahead, but busy with feeding what binds"
    )
    assert found["fma_chain"].runner_up == (
        "compute-bound (issue slots), 2.3 points ahead, but busy with feeding what binds"
    )


def test_the_five_kernels(recorded_verdicts: Recorded) -> None:
    found = recorded_verdicts("all")
    assert [(item.label, *deciding(item), item.runner_up, item.sure) for item in found.launches] == [
        ("decode", "compute-bound (issue slots)", ISSUE, 73.6,
         "memory-bound (shared memory), 6.2 points away (close)", "fair"),
        ("decode", "latency-bound", ISSUE, 37.8, "compute-bound (issue slots), 22.2 points away", "fair"),
        ("fused_add_rmsnorm", "memory-bound (DRAM)", DRAM, 66.5, "latency-bound, 6.5 points away (close)", "fair"),
        ("prefill", "latency-bound", TENSOR, 52.8, "compute-bound (tensor cores), 7.2 points away (close)", "fair"),
        ("rmsnorm", "compute-bound (issue slots)", ISSUE, 60.5, "latency-bound, 0.5 points away (close)", "low"),
        ("rope", "memory-bound (DRAM)", DRAM, 69.5, "latency-bound, 9.5 points away (close)", "fair"),
    ]  # fmt: skip
    assert all(case.launch_bound is False for case in found.cases)
    assert found.launches[1].share == pytest.approx(0.059, abs=0.001)


def test_decode_by_batch(recorded_verdicts: Recorded) -> None:
    found = recorded_verdicts("decode")
    main = {item.label: item for item in found.launches if "Merge" not in item.kernel}
    assert {label: deciding(item) for label, item in main.items()} == {
        "decode batch=1": ("launch-bound", WAITING, 56.0),
        "decode batch=1 tensor_cores": ("launch-bound", WAITING, 58.2),
        "decode batch=8": ("compute-bound (issue slots)", ISSUE, 63.9),
        "decode batch=8 tensor_cores": ("latency-bound", DRAM, 53.0),
        "decode batch=32": ("compute-bound (issue slots)", ISSUE, 73.6),
        "decode batch=32 tensor_cores": ("memory-bound (DRAM)", DRAM, 81.5),
        "decode batch=128": ("compute-bound (issue slots)", ISSUE, 76.2),
        "decode batch=128 tensor_cores": ("memory-bound (DRAM)", DRAM, 88.6),
    }
    assert {case.label for case in found.cases if case.launch_bound} == {
        "decode batch=1",
        "decode batch=1 tensor_cores",
    }
    assert main["decode batch=1"].runner_up == "latency-bound, 6.0 points away (close)"


def test_advice_on_decode_names_no_stall_reason_and_points_to_the_tensor_cores(recorded_verdicts: Recorded) -> None:
    found = {item.label: item for item in recorded_verdicts("decode").launches if "Merge" not in item.kernel}
    before, after = found["decode batch=128"], found["decode batch=128 tensor_cores"]
    said = " ".join(str(step.said()) for step in before.steps)
    assert not [name for name in REASONS if re.search(rf"\b{name}\b", said)]
    assert "tensor cores" in before.steps[0].action
    # The estimate is a bound that the variant with tensor cores keeps.
    assert before.duration_us and after.duration_us
    assert before.steps[0].gain_pct is not None
    assert 100 * (1 - after.duration_us / before.duration_us) < before.steps[0].gain_pct
    assert before.steps[0].gain_pct == pytest.approx(33.3, abs=0.1)


def test_a_graph_is_not_launch_bound_because_its_one_call_is_long(recorded_verdicts: Recorded) -> None:
    found = recorded_verdicts("prefill-decode-rope")
    graph = next(case for case in found.cases if case.graph)
    assert graph.label == "decode"
    assert graph.launch_bound is False
    assert graph.waiting and graph.waiting.value == pytest.approx(1.1, abs=0.05)
    assert {item.title for item in found.launches if item.label == "decode"} == {
        "compute-bound (issue slots)", "latency-bound",
    }  # fmt: skip


def test_the_quick_set_cannot_tell_shared_memory_from_l1(recorded_verdicts: Recorded) -> None:
    found = recorded_verdicts("prefill-decode-rope").launches[2]
    assert found.judgement.runner_up and found.judgement.runner_up.title == "memory-bound (shared memory or L1)"


def test_ncu_s_l2_figure_of_a_part_it_does_not_show_is_no_evidence(recorded_verdicts: Recorded) -> None:
    rope = recorded_verdicts("all").launches[5]
    assert rope.judgement.resource("L2") is not None
    assert rope.judgement.resource("L2").value == pytest.approx(44.1, abs=0.1)  # type: ignore[union-attr]
    assert "ncu's figure for L2, 77.1%" in rope.judgement.notes[0]
    copy = next(item for item in recorded_verdicts("single-purpose").launches if item.label == "device_copy")
    assert "ncu's figure for L2, 89.7%" in copy.judgement.notes[0]
    assert copy.title == "memory-bound (DRAM)"


def test_ncu_s_rules_are_quoted_with_why_they_are_no_step(recorded_verdicts: Recorded) -> None:
    decode = recorded_verdicts("all").launches[0]
    why = {rule.rule: rule.why_not for rule in decode.rules}
    assert decode.rules[0].rule == "MemoryL2Compression"
    assert decode.rules[0].estimate == "61.9% (global)"
    assert why["MemoryL2Compression"].startswith("only memory allocated as compressible")
    assert why["SharedMemoryConflicts"] == "bank conflicts are 0.9% of all passes through shared memory"
    assert why["FPInstructions"] == ""
    assert [step.rule for step in decode.steps if step.rule] == ["FPInstructions"]
    prefill = recorded_verdicts("all").launches[3]
    assert "wgmma" in next(rule.why_not for rule in prefill.rules if rule.rule == "TheoreticalOccupancy")


@pytest.mark.parametrize("name", ["all", "decode", "prefill-decode-rope", "single-purpose"])
def test_every_reading_holds_and_the_steps_are_in_order(recorded_verdicts: Recorded, name: str) -> None:
    for item in recorded_verdicts(name).launches:
        assert item.judgement.readings
        assert all(reading.holds for reading in item.judgement.readings)
        gains = [step.gain_pct for step in item.steps]
        known = [gain for gain in gains if gain is not None]
        assert known == sorted(known, reverse=True)
        assert gains[: len(known)] == known
        assert 1 <= len(gains) <= 3
        assert all(0 < gain <= 100 for gain in known)


@pytest.mark.parametrize("name", ["all", "decode", "prefill-decode-rope", "single-purpose"])
def test_a_reading_is_the_cell_that_it_names(
    recorded_runs: Callable[[str], Run], recorded_verdicts: Recorded, name: str
) -> None:
    table = recorded_runs(name).table("metrics")
    cells = {(row["launch"], row["metric"]): row["value"] for row in table.to_pylist()}
    compared = 0
    for item in recorded_verdicts(name).launches:
        for reading in item.judgement.readings:
            of = reading.fact.source
            if of.origin == "ncu" and (of.launch, of.formula) in cells:
                assert reading.value == cells[of.launch, of.formula]
                compared += 1
            elif of.formula == IDLE:
                average = cells[of.launch, "sm__cycles_active.avg"]
                assert reading.value == pytest.approx(100 * (1 - average / cells[of.launch, "sm__cycles_active.max"]))
                compared += 1
    assert compared >= len(recorded_verdicts(name).launches)


# Made-up launches


BASE: dict[str, float] = {
    # Nothing is busy, every multiprocessor works as long as the others, several waves.
    "blocks": 1320, "multiprocessors": 132, "threads_per_block": 256, "waves_per_sm": 2.0, "sm_active_cycles": 9900,
    "sm_active_cycles_max": 10000, "sm_active_cycles_min": 9800, "sm_cycles": 10500, "duration_ns": 50_000,
    "sm_throughput_pct": 20, "memory_throughput_pct": 25, "dram_throughput_pct": 20, "l1_data_pct": 25,
    "shared_data_pct": 2, "l2_sectors_pct": 10, "l2_to_sm_pct": 12, "sm_to_l2_pct": 8, "l2_tags_pct": 9,
    "issue_slot_busy_pct": 20, "issue_active_pct": 22, "fma_pct": 5, "alu_pct": 5, "xu_pct": 1, "lsu_pct": 4,
    "fp64_pct": 0, "tensor_active_pct": 0.1,
}  # fmt: skip


def bound(columns: Mapping[str, float | None], waiting: Comparison | None = None) -> Judgement:
    return judge({**BASE, **columns}, launch=0, waiting=waiting)


def waits(percent: float) -> Comparison:
    test = "at least" if percent >= WAITING_PCT else "below"
    fact = TracedNumber(percent, Provenance("facts", WAITING), ".1f", "%")
    return Comparison("time in which the GPU waits", "", fact, test, WAITING_PCT, "fiprof")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, "latency-bound"),
        ({"tensor_active_pct": 85}, "compute-bound (tensor cores)"),
        ({"tensor_active_pct": 85, "l1_data_pct": 92, "shared_data_pct": 91}, "compute-bound (tensor cores)"),
        ({"tensor_active_pct": 70, "l1_data_pct": 92, "shared_data_pct": 91}, "memory-bound (shared memory)"),
        ({"fma_pct": 82, "issue_slot_busy_pct": 88}, "compute-bound (FMA pipe)"),
        ({"fma_pct": 62, "issue_slot_busy_pct": 88}, "compute-bound (issue slots)"),
        ({"alu_pct": 90}, "compute-bound (ALU pipe)"),
        ({"xu_pct": 75}, "compute-bound (XU pipe)"),
        ({"lsu_pct": 75}, "compute-bound (LSU pipe)"),
        ({"fp64_pct": 95, "sm_throughput_pct": 95}, "compute-bound (FP64 pipe)"),
        ({"sm_throughput_pct": 95}, "compute-bound (another part of the multiprocessors)"),
        ({"dram_throughput_pct": 60}, "memory-bound (DRAM)"),
        ({"dram_throughput_pct": 59.9}, "latency-bound"),
        ({"dram_throughput_pct": 88, "l2_throughput_pct": 93}, "memory-bound (DRAM)"),
        ({"l2_throughput_pct": 93}, "latency-bound"),
        ({"sm_to_l2_pct": 88}, "memory-bound (L2)"),
        ({"l2_tags_pct": 88}, "memory-bound (L2)"),
        ({"l1_data_pct": 80}, "memory-bound (L1 data stage)"),
        ({"l1_data_pct": 80, "shared_data_pct": 70}, "memory-bound (shared memory)"),
        ({"l1_data_pct": 80, "shared_data_pct": None}, "memory-bound (shared memory or L1)"),
        ({"memory_throughput_pct": 90}, "memory-bound (another part of the memory system)"),
        ({"sm_active_cycles": 2000}, "imbalanced (uneven work)"),
        ({"sm_active_cycles": 8001}, "latency-bound"),
        ({"blocks": 100, "sm_active_cycles": 7500}, "imbalanced (too few blocks)"),
        ({"blocks": 128, "sm_active_cycles": 9700}, "latency-bound"),
        ({"sm_active_cycles": 7000, "dram_throughput_pct": 70}, "imbalanced (uneven work)"),
        ({"sm_active_cycles": 7000, "dram_throughput_pct": 80}, "memory-bound (DRAM)"),
        # 8 blocks fit, 1056 are a wave, and a few more make a second one.
        ({"blocks": 1100, "limit_warps_blocks": 8, "sm_active_cycles": 6000}, "imbalanced (tail)"),
    ],
)  # fmt: skip
def test_what_binds(columns: dict[str, float | None], expected: str) -> None:
    assert bound(columns).title == expected


def test_a_gpu_that_waits_for_the_host_is_launch_bound_whatever_the_kernel_does() -> None:
    busy = bound({"dram_throughput_pct": 90}, waits(70))
    assert busy.title == "launch-bound"
    assert busy.runner_up and busy.runner_up.title == "memory-bound (DRAM)"
    assert busy.margin == 20
    assert bound({"dram_throughput_pct": 90}, waits(49.9)).title == "memory-bound (DRAM)"


@pytest.mark.parametrize(
    "missing",
    [
        ("issue_slot_busy_pct", "sm_throughput_pct"),
        ("memory_throughput_pct", "dram_throughput_pct"),
        ("memory_throughput_pct", "l1_data_pct"),
        ("sm_active_cycles",),
        tuple(BASE),
    ],
)  # fmt: skip
def test_without_a_side_there_is_not_enough_evidence(missing: tuple[str, ...]) -> None:
    found = bound(dict.fromkeys(missing))
    assert found.title == "not enough evidence"
    assert found.runner_up is None
    assert set(found.missing) & set(missing) or "sm_throughput_pct" in missing
    assert steps(Situation({}, found)) == ()


def test_a_saturated_unit_needs_no_other_side() -> None:
    only = judge({"dram_throughput_pct": 91.0})
    assert only.title == "memory-bound (DRAM)"
    assert "issue_slot_busy_pct" in only.missing
    assert judge({"dram_throughput_pct": 79.0}).title == "not enough evidence"


@pytest.mark.parametrize(
    ("columns", "runner_up", "margin"),
    [
        ({"dram_throughput_pct": 90, "l1_data_pct": 83}, "memory-bound (L1 data stage)", 7),
        ({"dram_throughput_pct": 90}, "latency-bound", 30),
        ({"dram_throughput_pct": 85, "sm_active_cycles": 7000}, "imbalanced (uneven work)", 5),
        ({"dram_throughput_pct": 50}, "memory-bound (DRAM)", 10),
        ({"sm_active_cycles": 7900}, "latency-bound", 1),
        ({"sm_active_cycles": 5000, "dram_throughput_pct": 78}, "memory-bound (DRAM)", 2),
    ],
)  # fmt: skip
def test_the_runner_up_and_its_distance(columns: dict[str, float], runner_up: str, margin: float) -> None:
    found = bound(columns)
    assert found.runner_up and found.runner_up.title == runner_up
    assert found.margin == pytest.approx(margin)


# Steps


def advice_for(row: Row, **situation: Any) -> list[Step]:
    full = {**BASE, **row}
    return list(steps(Situation(full, judge(full), **situation)))


def test_bytes_moved_twice_are_the_first_step_of_a_dram_bound_launch() -> None:
    first = advice_for({"dram_throughput_pct": 90}, excess_bytes=2.0)[0]
    assert first.action.startswith("Move fewer bytes")
    assert first.gain_pct == pytest.approx(45)
    assert advice_for({"dram_throughput_pct": 90}, excess_bytes=1.0)[-1].gain_pct is None


def test_a_launch_bound_graph_is_not_told_to_use_a_graph() -> None:
    found = judge(BASE, waiting=waits(60))
    graph = steps(Situation(BASE, found, waiting_pct=60, graph=True))
    assert graph[0].action.startswith("Put more of the iteration")
    assert "Launch the iteration from a CUDA graph" not in " ".join(step.action for step in graph)


def test_a_launch_too_short_for_its_start_and_end_is_told_so() -> None:
    found = advice_for({"sm_cycles": 20_000})
    assert found[0].action.startswith("Do more in the launch")
    assert found[0].gain_pct == pytest.approx(50)


def test_an_idle_gpu_is_a_step_beside_the_kernel_s_own() -> None:
    found = advice_for({"dram_throughput_pct": 90}, waiting_pct=30.0)
    assert found[0].action.startswith("Launch the iteration from a CUDA graph")
    assert found[0].gain_pct == 30


def test_mma_where_wgmma_would_be_faster() -> None:
    row = {
        "tensor_active_pct": 90, "tensor_ops_fp16": 1e12, "mma_ops_fp16": 1e12, "tensor_peak_fp16_ops_per_cycle": 1e6,
        "mma_peak_fp16_ops_per_cycle": 0.625e6,
    }  # fmt: skip
    found = advice_for(row)
    assert found[0].action.startswith("Use the instructions of a warpgroup")
    assert found[0].gain_pct == pytest.approx(90 * 0.375)


# Any launch


COLUMNS = sorted({column for resource in RESOURCES for column in resource.columns} | set(BASE))
VALUES = st.one_of(st.none(), st.just(math.nan), st.floats(0, 120), st.floats(0, 1e12), st.just(0.0))
OTHERS = (
    "shared_wavefronts", "shared_bank_conflicts", "fp32_peak_ops_per_cycle", "tensor_peak_tf32_ops_per_cycle",
    "tensor_ops_fp16", "mma_ops_fp16", "tensor_peak_fp16_ops_per_cycle", "mma_peak_fp16_ops_per_cycle",
    "tensor_peak_fp8_ops_per_cycle", "limit_warps_blocks", "limit_registers_blocks", "max_warps_per_sm",
    "registers_per_thread", "registers_allocated_per_thread", "max_registers_per_sm", "theoretical_occupancy_pct",
)  # fmt: skip
ROWS = st.fixed_dictionaries({}, optional=dict.fromkeys([*COLUMNS, *OTHERS], VALUES))
PERCENTS = st.fixed_dictionaries(
    dict.fromkeys([column for column in COLUMNS if column.endswith("_pct")], st.floats(0, 100)),
    optional=dict.fromkeys(("sm_active_cycles", "sm_active_cycles_max", "sm_cycles"), st.floats(0, 1e6)),
)


@given(row=st.one_of(ROWS, PERCENTS), waiting=st.one_of(st.none(), st.floats(0, 100)), excess=st.floats(0.5, 3))
def test_any_launch_has_a_verdict_whose_evidence_holds(
    row: dict[str, float | None], waiting: float | None, excess: float
) -> None:
    reading = None if waiting is None else waits(waiting)
    found = judge(row, launch=1, waiting=reading)
    assert all(item.holds for item in found.readings)
    values = {column: number(row, column) for column in COLUMNS}
    assert all(item.value == values[item.column] for item in found.readings if item.column in values)
    first = found.readings[0] if found.readings else None
    if found.kind == "launch":
        assert waiting is not None and waiting >= WAITING_PCT
    elif found.kind in ("compute", "memory"):
        assert first and first.value >= BUSY_PCT and first.test == "at least"
    elif found.kind == "imbalance":
        assert first and first.value >= IDLE_PCT
    elif found.kind == "latency":
        assert all(item.value < BUSY_PCT for item in found.resources)
    if found.kind != "launch" and found.busiest and found.busiest.value >= SATURATED_PCT:
        assert found.kind in ("compute", "memory")
    assert found.runner_up is None or found.runner_up.title != found.title
    for step in steps(Situation(row, found, excess_ops=excess, excess_bytes=excess, waiting_pct=waiting)):
        assert step.gain_pct is None or 0 < step.gain_pct <= 100
        assert str(step.said())


# Runs


LAUNCH = {
    "launch": 0, "case": "mine[rows=8]", "iteration": 0, "kernel": "kernel", "kernel_full": "kernel()",
    "grid": "1320x1x1", "block": "256x1x1", **BASE,
}  # fmt: skip


def executions(count: int, *, us: float = 2.0, node: int | None = None, call_us: float = 4.0) -> list[dict[str, Any]]:
    return [
        {
            "start_ns": index * 100_000, "end_ns": index * 100_000 + int(us * 1e3), "duration_ns": int(us * 1e3),
            "device": 0, "stream": 7, "pid": 1, "kernel": "kernel", "kernel_full": "kernel()", "grid": "1320x1x1",
            "block": "256x1x1", "graph_node": node, "phase": "measure", "case": "mine[rows=8]", "iteration": index // 4,
            "launch_call_ns": int(call_us * 1e3), "correlation": index // 4 if node is not None else index,
        }
        for index in range(count)
    ]  # fmt: skip


def write_baseline(folder: Path, wall_us: float) -> None:
    record = {"kind": "case", "case": "mine[rows=8]", "gpu_us": [10.0, 10.0], "wall_us": wall_us}
    (folder / "baseline.jsonl").write_text(json.dumps(record) + "\n")


def test_a_case_of_small_kernels_is_launch_bound(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", launches=[LAUNCH], reasons=[], kernels=executions(8))
    write_baseline(run.path, wall_us=40.0)
    found = verdicts(run)
    assert found.launches[0].title == "launch-bound"
    only = found.cases[0]
    assert (only.kernels, only.kernel_us, only.wall_us, only.launch_us, only.graph) == (4, 8.0, 40.0, 16.0, False)
    assert only.sentence == (
        "launch-bound: the GPU waits for 80.0% of an iteration; of 40.0 µs its kernels take 8.0 µs, and their launch "
        "calls 16.0 µs under nsys"
    )


def test_a_graph_s_call_counts_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", launches=[LAUNCH], kernels=executions(8, node=3, call_us=30))
    write_baseline(run.path, wall_us=9.0)
    only = verdicts(run).cases[0]
    assert (only.graph, only.launch_us, only.launch_bound) == (True, 30.0, False)
    assert only.waiting and only.waiting.value == pytest.approx(100 / 9)


def test_without_a_plain_time_nothing_is_said_of_the_host(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", launches=[LAUNCH], kernels=executions(8))
    found = verdicts(run)
    assert found.launches[0].title == "latency-bound"
    assert found.cases[0].launch_bound is None
    assert found.cases[0].sentence == "not enough evidence: there are no an iteration's time without a profiler"


def test_a_run_without_ncu_still_has_its_cases(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", kernels=executions(8), settings={"tools": ["nsys"]})
    write_baseline(run.path, wall_us=40.0)
    found = verdicts(run)
    assert found.launches == ()
    assert found.cases[0].launch_bound is True
    assert found.warnings == ("no launch can be judged: ncu was not asked for",)
    assert "Cases" in render(document(found), "table")


def test_a_run_with_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(FiprofError, match="has nothing to judge: ncu was not started"):
        verdicts(make_run(tmp_path / "run"))


def test_a_kernel_that_is_not_there(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", launches=[LAUNCH])
    assert len(verdicts(run, kernel="KERN").launches) == 1
    with pytest.raises(FiprofError, match="no launch with kernel 'other'"):
        verdicts(run, kernel="other")


def test_foreign_names_are_text(tmp_path: Path) -> None:
    row = {**LAUNCH, "kernel": "<script>\x1b[31m|", "case": "mine[rows=8]"}
    run = make_run(tmp_path / "run", launches=[row], cases=[case()])
    text = render(document(verdicts(run)), "md")
    assert "\x1b" not in text
    assert "<script>" not in text
    assert "\x1b" not in render(document(verdicts(run)), "table")


def test_launches_alike_are_one_for_people_and_each_in_json(recorded_verdicts: Recorded) -> None:
    found = recorded_verdicts("single-purpose")
    report = document(found)
    summary = report.shown[0]
    assert len(summary.rows) == 10
    assert [row[1] for row in summary.rows if row[2] == "tiny_launches"] == [50]
    objects = json.loads(render(report, "json"))["rows"]
    assert len(objects) == 59
    assert objects[1]["verdict"] == "memory-bound (DRAM)"
    assert objects[1]["metric"] == DRAM
    assert objects[1]["value"] == 84.57
    assert objects[1]["threshold"] == 80
    assert objects[1]["steps"]


def test_the_command(fiprof: Fiprof, tmp_path: Path, recorded: Path) -> None:
    shutil.copytree(recorded, tmp_path / "artifacts" / recorded.name)
    done = fiprof("verdict", "latest", "--kernel", "rope")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "memory-bound (DRAM): use of DRAM 69.5%, at least 60% (ncu's rule SOLBottleneck)." in lines
    assert "Runner-up: latency-bound, 9.5 points away (close)." in lines
    assert not re.search("decode", done.stdout)
