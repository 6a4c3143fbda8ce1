"""What commands say of launches and traces that nobody has recorded: partial runs, odd counters, what runs side by side."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.model.finding import Finding, words_of
from fiprof.model.spans import union_by
from tests.recorded_runs import answer, copied, invoke, refusal, rows
from tests.reports_fixture import add, case, ended, execution, make_run, record_run, recorded_cases, write_manifest


@pytest.mark.parametrize("command", ["expected", "hotspots", "roofline", "stalls", "verdict"])
@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ({"actions": [ended("ncu", exit_status=1, outcome="failed", message="ERR_NVGPU")]}, "ncu failed: ERR_NVGPU"),
        ({"settings": {"tools": ["nsys"]}}, "ncu was not asked for"),
        ({"status": "failed", "reason": "no disk"}, "ncu was not started: no disk"),
    ],
)
def test_a_run_without_counters_says_why(tmp_path: Path, command: str, manifest: dict[str, Any], why: str) -> None:
    error = refusal(command, make_run(tmp_path / "run", kernels=[], **manifest).path)
    assert isinstance(error.why, Finding) and words_of(error.why) == why


@pytest.mark.parametrize("command", ["hotspots", "roofline", "show", "stalls", "timeline", "verdict"])
@pytest.mark.parametrize(("reason", "said"), [("Ctrl-C", ": Ctrl-C"), ("interrupted", "")])
def test_an_incomplete_run_says_so_first(tmp_path: Path, command: str, reason: str, said: str) -> None:
    run = copied("decode", tmp_path)
    manifest = json.loads((run / "run.json").read_text()) | {"status": "interrupted", "reason": reason}
    (run / "run.json").write_text(json.dumps(manifest))
    first = next(line for line in invoke(command, str(run))[1].splitlines() if line.startswith("! "))
    assert first == f"! the run {run.name} was interrupted{said}"


TENSOR: dict[str, Any] = {
    **{f"{each}_thread_insts": 0.0 for each in ("fadd", "fmul", "hadd", "hmul", "hfma", "dadd", "dmul", "dfma")},
    "ffma_thread_insts": 1e6, "tensor_active_pct": 48.0, "sm_clock_hz": 1e9, "dram_clock_hz": 1e9,
    "fp32_peak_ops_per_cycle": 1e5, "fp16_peak_ops_per_cycle": 2000.0, "fp64_peak_ops_per_cycle": 500.0,
    "dram_bytes_per_second": 9e11, "dram_peak_bytes_per_cycle": 1000.0,
}  # fmt: skip
"""A launch of 1 µs that moves 900 kB, with tensor cores at work."""
UNCOUNTED_FP64 = {f"{each}_thread_insts": None for each in ("dadd", "dmul", "dfma")}


@pytest.mark.parametrize(
    ("counted", "part"),
    [
        ({}, "tensor_cores"),
        ({"tensor_ops_fp16": 0.0}, "tensor_cores"),
        ({**UNCOUNTED_FP64, "tensor_active_pct": None, "fp64_pct": 48.0}, "fp64_pipe"),
        # Counted, or as little active as the tensor cores are without a tensor operation, it is as ever.
        ({"tensor_ops_fp16": 1.0}, ""),
        ({"tensor_active_pct": 1.3}, ""),
    ],
)
def test_a_pipe_that_was_not_counted_gets_no_roof(tmp_path: Path, counted: dict[str, float | None], part: str) -> None:
    """FP4 on a GPU of which ncu counted fp16 alone; a report without counters of tensor or fp64 operations."""
    launch = {"launch": 0, "case": "mine[rows=8]", "kernel": "K", "duration_ns": 1000.0, **TENSOR, **counted}
    (row,) = rows("roofline", make_run(tmp_path / "run", launches=[launch], cases=[case(flops=0)]).path)
    assert (row["basis"] == "counted") == (not part)
    if part:
        assert (row["work"], row["roof"], row["remark"]["part"]) == (None, None, part)
        # 1 GFLOP in 1 µs by the cost model, and no roof of theirs.
        model = make_run(tmp_path / "model", launches=[launch], cases=[case(flops=10**9)])
        (row,) = rows("roofline", model.path)
        assert (row["basis"], row["work"], row["roof"], row["compute_roof_tflops"]) == ("model", "model", "DRAM", None)


FULL: dict[str, Any] = {
    "threads_per_block": 256.0, "blocks": 100.0, "multiprocessors": 132.0, "max_warps_per_sm": 64.0,
    "limit_registers_blocks": 8.0, "limit_shared_memory_blocks": 8.0, "limit_warps_blocks": 8.0,
    "limit_blocks_blocks": 32.0, "limit_barriers_blocks": 32.0, "theoretical_occupancy_pct": 25.0,
    "shared_static_bytes": 0.0, "shared_dynamic_bytes": 15360.0, "shared_driver_bytes": 1024.0,
    "shared_allocated_bytes": 16384.0, "shared_configured_bytes": 32768.0, "max_shared_bytes_per_sm": 233472.0,
}  # fmt: skip
SIX_BLOCKS = {
    "limit_shared_memory_blocks": 5.0, "max_shared_bytes_per_sm": 65536.0, "shared_configured_bytes": 65536.0,
    "shared_dynamic_bytes": 12800.0, "shared_allocated_bytes": 12800.0, "shared_driver_bytes": 0.0,
}  # fmt: skip
THREE_WARPS = {
    "threads_per_block": 96.0, "limit_registers_blocks": 6.0, "registers_per_thread": 96.0,
    "registers_allocated_per_thread": 96.0, "max_registers_per_sm": 65536.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        # A small configuration of shared memory is raised, not saved.
        ({"limit_shared_memory_blocks": 2.0}, ("more_shared_set_up", 3, 49152, 32768)),
        # In steps of 256 bytes before compute capability 8.0, of 128 from then on.
        ({**SIX_BLOCKS, "cc_major": 7.0}, ("less_shared_memory", 6, 10752, 12800)),
        (SIX_BLOCKS, ("less_shared_memory", 6, 10880, 12800)),
        # 88 registers are 5 warps of each quarter, 20 in all and 6 blocks of 3; 80 are 6 and 24.
        (THREE_WARPS, ("fewer_registers", 8, 80, 96)),
    ],
)
def test_what_one_more_block_takes(tmp_path: Path, changes: dict[str, float], step: tuple[Any, ...]) -> None:
    launch = {"launch": 7, "case": "mine[rows=8]", "kernel": "K", "duration_ns": 1000.0, **FULL, **changes}
    (row,) = rows("show", make_run(tmp_path / "run", launches=[launch]).path)
    assert row["occupancy_limiters"] == ["registers" if changes is THREE_WARPS else "shared memory"]
    assert [tuple(each[key] for key in ("id", "blocks", "needed", "now")) for each in row["occupancy_steps"]] == [step]


def test_a_reason_of_a_later_ncu_and_samples_without_ratios(tmp_path: Path) -> None:
    launch = {"launch": 0, "case": "mine[rows=8]", "kernel": "K", "duration_ns": 1000.0}
    shares = {"quantum_wait": 0.9, "selected": 0.1}
    later = [{"launch": 0, "reason": each, "share": n, "warps_per_issue": n * 10} for each, n in shares.items()]
    run = make_run(tmp_path / "later", launches=[launch], reasons=later)
    assert "a state that this fiprof does not know" in " ".join(invoke("stalls", str(run.path))[1].split())
    sampled = [{"launch": 0, "reason": reason, "samples": n} for reason, n in (("selected", 100), ("wait", 300))]
    found = rows("stalls", make_run(tmp_path / "sampled", launches=[launch], reasons=sampled).path)
    assert [(row["reason"], row["stall_share"], row["sample_share"]) for row in found] == [
        ("wait", None, 0.75), ("selected", None, 0.25),
    ]  # fmt: skip


def test_launches_of_one_grid_are_told_apart_by_their_blocks(tmp_path: Path) -> None:
    kernels = [execution(0, 10_000, "A", block="128x1x1"), execution(20_000, 40_000, "A", block="256x1x1")]
    run = make_run(tmp_path / "run", kernels=kernels)
    printed = invoke("timeline", str(run.path))[1]
    assert "128x1x1" in printed and "256x1x1" in printed


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 9)), max_size=20))
def test_unions_are_those_of_each_moment(intervals: list[tuple[int, int, int]]) -> None:
    keys, starts, lengths = np.array(intervals, np.int64).reshape(-1, 3).T
    found = list(zip(*(each.tolist() for each in union_by(keys, starts, starts + lengths)), strict=True))
    moments = {(key, at) for key, start, length in intervals for at in range(start, start + length)}
    assert {(key, at) for key, start, end in found for at in range(start, end)} == moments
    assert found == sorted(found)
    assert all(a[0] != b[0] or a[2] < b[1] for a, b in itertools.pairwise(found))


def test_damaged_samples(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", kernels=[execution(0, 1000)])
    found = [(0, 10.0), (0, 99.0), (None, 5.0), (100, float("nan")), (200, 20.0), (400, 30.0)]
    add(run, "gpu_metrics", [{"time_ns": t, "value": v, "metric": "SMs Active [Throughput %]"} for t, v in found])
    assert rows("timeline", run.path)[0]["sms_active_pct"] == 20.0


def test_half_levels_are_seen_without_ncu_too(tmp_path: Path) -> None:
    alone = record_run(tmp_path / "alone", ncu_raw=None)
    # The made-up manifest does not say how many SMs there are.
    assert answer("timeline", alone.path)["warnings"] == []
    write_manifest(alone.path, cases=recorded_cases(), environment={"gpu": {"multiprocessors": 132}})
    (warning,) = answer("timeline", alone.path)["warnings"]
    found = ("sms_differ", "PrefillWithKVCacheKernel", 50.0)
    assert (warning["id"], warning["kernel"], warning["largest_sms_active_pct"]) == found


@pytest.mark.parametrize(
    ("made", "phase", "found"),
    [
        ({"settings": {"tools": ["ncu"]}}, "measure", ["no_trace"]),
        ({"kernels": []}, "measure", ["no_kernels"]),
        ({"kernels": [execution(0, 9, phase=None, case=None)]}, "measure", ["no_ranges", "nothing_in_phase", "no_levels"]),
        ({"kernels": [execution(0, 9)], "settings": {"gpu_metrics_hz": 0}}, "warmup", ["nothing_in_phase", "no_levels"]),
        ({"kernels": [execution(0, 9)], "warnings": ["no GPU metrics: nsys refused them"]}, "measure", ["no_levels"]),
        ({"kernels": [execution(0, 9)], "status": "failed", "reason": "ncu timed out"}, "measure", ["failed", "no_levels"]),
    ],
)  # fmt: skip
def test_what_a_trace_lacks_is_said(tmp_path: Path, made: dict[str, Any], phase: str, found: list[str]) -> None:
    warnings = answer("timeline", make_run(tmp_path / "run", **made).path, "--phase", phase)["warnings"]
    assert [each["id"] for each in warnings] == found
