"""What all readers share: metrics and quantities, choices of launches, settings, results; and what commands say of launches and
traces that nobody has recorded: partial runs, odd counters, what runs side by side."""

import dataclasses
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.errors import FiprofError
from fiprof.model.arrays import Kinds
from fiprof.model.finding import Finding, words_of
from fiprof.model.quantities import Formula
from fiprof.model.results import CaseResult, CaseTimes, EnvironmentInfo, Kernel, KernelResults, KernelVerdict
from fiprof.model.selection import Selection
from fiprof.model.spans import union_by
from fiprof.model.work import peak_of
from tests.conftest import REPOSITORY
from tests.recorded_runs import answer, copied, invoke, parsed, refusal, rows
from tests.reports_fixture import add, case, ended, execution, make_run, record_run, recorded_cases, write_manifest


@pytest.mark.parametrize(
    ("row", "clock", "cycles"),
    [
        ({"sm_clock_hz": 1.9e9, "sm_cycles": 5.0}, 1.9e9, 5.0),
        # 2.18 GHz on an H200: cycles of one replay over the duration of another.
        ({"sm_clock_hz": 2.18e9, "max_sm_clock_khz": 1.98e6, "sm_cycles": 5.0}, 1.98e9, 5.0),
        ({"gpc_clock_hz": 1.5e9, "duration_ns": 200.0}, 1.5e9, 300.0),
        ({"sm_clock_hz": 2e9, "gpc_clock_hz": 1.5e9, "duration_ns": 200.0}, 2e9, 400.0),
        ({"sm_cycles": 500.0, "duration_ns": 200.0, "max_sm_clock_khz": 1.98e6}, 1.98e9, 500.0),
        # The highest clock by itself is none that was measured.
        ({"max_sm_clock_khz": 1.98e6, "duration_ns": 200.0}, None, None),
    ],
)
def test_a_clock_is_at_most_the_highest(row: dict[str, float], clock: float | None, cycles: float | None) -> None:
    assert (Formula("sm_hz").value(row), Formula("cycles").value(row)) == (clock, cycles)
    peak = None if clock is None else pytest.approx(10 * clock)
    assert peak_of("fp32").value({**row, "fp32_peak_ops_per_cycle": 10.0}) == peak


@pytest.mark.parametrize("kind", [CaseResult, CaseTimes, Kernel, KernelVerdict, EnvironmentInfo, KernelResults])
def test_every_field_is_described(kind: type) -> None:
    described = set(re.findall(r"`(\w+)`", (REPOSITORY / "docs/results.md").read_text()))
    assert {field.name for field in dataclasses.fields(kind)} <= described


@pytest.mark.parametrize(
    ("words", "launches"),
    [
        # The run has decode with batch 1, 8, 32 and 128, each with and without tensor_cores.
        ("decode[batch=1]", [0, 1]), ("decode batch=1", [0, 1]), ("decode batch=1 tensor_cores", [2, 3]),
        ("batch=1,tensor_cores", [2, 3]), ("batch=128", [11, 12]), ("Persistent", [1, 3, 5, 7, 9]),
        ("^BatchDecode", [0, 4, 8, 11]), ("batch=(1|8),", [0, 1, 2, 3, 4, 5, 6, 7]), ("decode", list(range(13))),
    ],
)  # fmt: skip
def test_words_mean_a_kernel_a_case_or_a_pattern(words: str, launches: list[int]) -> None:
    assert [each.launch for each in parsed("decode").selected(Selection(words))] == launches


@pytest.mark.parametrize("wanted", [Selection("batch=2"), Selection("batch=12"), Selection("(x"), Selection("", (99,))])
def test_what_nothing_matches_says_what_there_is(wanted: Selection) -> None:
    with pytest.raises(FiprofError, match="has no launch with") as error:
        parsed("decode").selected(wanted)
    for part in ("launches 0 to 12", "BatchDecodeWithPagedKVCacheKernel", "decode batch=128 tensor_cores"):
        assert part in error.value.remedy


@pytest.mark.parametrize("command", ["show", "stalls", "roofline", "verdict", "expected", "hotspots", "timeline"])
@pytest.mark.parametrize("options", [["--launch", "3"], ["--kernel", "prefill"], ["--top", "1"]])
def test_every_reading_command_takes_the_same_choice(command: str, options: list[str]) -> None:
    """Launch 3 of this run is the only one of prefill, and what takes most time."""
    status, printed = invoke(command, str(parsed("all").path), *options, "--format", "json")
    cases = {row["case"] for row in json.loads(printed)["rows"] if row["case"]}
    assert (status, {case.partition("[")[0] for case in cases} - {"prefill"}) == (0, set())


def test_what_is_left_out_is_said() -> None:
    run = str(parsed("troubles").path)
    shown = invoke("stalls", run)[1]
    assert shown.count("\nreason ") == 5
    assert re.search(r"^19 launches left out, 31\.\d% of the time: --top N", shown, re.MULTILINE)
    assert invoke("stalls", run, "--all")[1].count("\nreason ") == 24
    assert invoke("stalls", run, "--top", "7")[1].count("\nreason ") == 7


def test_sections_of_show_stand_alone() -> None:
    printed = invoke("show", str(parsed("all").path), "--occupancy")[1]
    every = ("Cases", "Kernels", "Occupancy", "Limits", "Waves")
    titles = [line for line in printed.splitlines() if line.startswith(every)]
    assert titles == ["Occupancy", "Limits of occupancy: blocks on a multiprocessor that each resource allows"]


@pytest.mark.fault("a time limit that is 0, negative, nan or infinite", "refused, exit status 2")
@pytest.mark.parametrize(
    "words", ["--set x", "--iterations 0", "--tool perf", "--seed a", *(f"--timeout {each}" for each in ("0", "-1", "nan", "inf"))]
)  # fmt: skip
def test_what_a_setting_refuses(words: str) -> None:
    assert invoke("collect", "--kernel", "rope", "--dry-run", *words.split())[0] == 2


@pytest.mark.parametrize("bits", [20, 33, 40])
def test_the_kinds_of_rows_are_told_apart_whatever_the_numbers_beside_them(bits: int) -> None:
    """Also where the product of the columns' ranges is beyond 32 and 62 bits."""
    chance = np.random.default_rng(bits)
    names = chance.integers(0, 700, 5000)
    table = pa.table({name: pa.array([f"{name}{value}" for value in names]) for name in ("kernel", "grid")})
    added = {name: chance.integers(0, 1 << bits, 5000) >> shift for name, shift in (("range", 3), ("rank", bits - 5))}
    kinds, found = Kinds(), []
    for first in (0, 2500):
        piece = slice(first, first + 2500)
        found += kinds.of(table.slice(first, 2500), **{name: values[piece] for name, values in added.items()}).tolist()
    rows = list(zip(*(table[name].to_pylist() for name in table.column_names), *map(list, added.values()), strict=True))
    numbered: dict[object, int] = {}
    assert found == [numbered.setdefault(row, len(numbered)) for row in rows]
    assert list(kinds.numbers) == list(numbered)


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
