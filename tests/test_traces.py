"""Made-up traces: when the GPU works, what runs side by side, and which samples of the hardware belong to a kernel."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.model.run import Run
from fiprof.model.spans import union_by
from fiprof.parsers import nsys
from tests.nsys_exports import altered
from tests.recorded_runs import answer, invoke, rows
from tests.reports_fixture import add, execution, make_run, record_run, recorded_cases, write_manifest

MINE = "mine[rows=8]"
PREFILL = "PrefillWithKVCacheKernel"


def copy(start_ns: int, end_ns: int, **values: Any) -> dict[str, Any]:
    """A row of the table copies, of an iteration of the case of :func:`tests.reports_fixture.case`."""
    times = {"start_ns": start_ns, "end_ns": end_ns, "bytes": 134_217_728, "kind": "Device-to-Device"}
    return {**times, "device": 0, "stream": 7, "pid": 1, "phase": "measure", "case": MINE, "iteration": 0, **values}


def wall(run: Run, case: str, wall_us: float) -> str:
    """Give a case a plain run; the run's path."""
    record = {"kind": "case", "case": case, "gpu_us": [wall_us], "wall_us": wall_us}
    (run.path / "baseline.jsonl").write_text(json.dumps(record) + "\n")
    return str(run.path)


def test_a_copy_of_134_mb_is_no_wait(tmp_path: Path) -> None:
    """A kernel of 3 µs and a copy of 61 µs in each iteration: by the kernels alone, the GPU waited for 95.6 %."""
    rmsnorm = "shortName IN (SELECT id FROM StringIds WHERE value = 'RMSNormKernel')"
    trace = altered(
        tmp_path,
        f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start + 3000 WHERE {rmsnorm}",
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId, globalPid, "
        "bytes, copyKind) SELECT end + 100, end + 61100, deviceId, contextId, streamId, correlationId, globalPid, "
        f"134217728, 8 FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE {rmsnorm}",
    )
    (case,) = [each for each in recorded_cases() if each.workload == "rmsnorm"]
    run = make_run(tmp_path / "run", cases=[case])
    nsys.parse(trace, run.tables_path)
    wall(run, case.id, 68.0)
    (row,) = [row for row in rows("show", run.path) if row["label"] == "rmsnorm"]
    assert row["case_busy_us"] == 64.0
    assert "rmsnorm: bound by its copies: 95% of the GPU's busy time" in invoke("verdict", str(run.path))[1]


def test_work_side_by_side_counts_once(tmp_path: Path) -> None:
    kernels = [
        execution(0, 10_000, "A"),
        execution(5_000, 12_000, "B", stream=8),
        execution(30_000, 40_000, "A", iteration=1),
        execution(0, 90_000, "A", phase="warmup", iteration=None),
    ]
    run = make_run(tmp_path / "run", kernels=kernels)
    other = [copy(50_000, 51_000, iteration=1, kind="Memset"), copy(0, 90_000, case=None, phase=None)]
    add(run, "copies", [copy(8_000, 20_000), *other])
    row = rows("show", run.path)[0]
    assert (row["case_busy_us"], row["case_nsys_us"]) == (15.5, 13.5)
    # From the first kernel's start to the last one's end: of 40 µs all but 10.
    assert "40.0 µs from 0.000 ms · GPU busy 75.0%" in invoke("timeline", str(run.path))[1]


def test_launches_of_one_grid_are_told_apart_by_their_blocks(tmp_path: Path) -> None:
    kernels = [
        execution(0, 10_000, "A") | {"kernel_full": "A", "grid": "4x1x1", "block": "128x1x1"},
        execution(20_000, 40_000, "A") | {"kernel_full": "A", "grid": "4x1x1", "block": "256x1x1"},
    ]
    run = make_run(tmp_path / "run", kernels=kernels)
    printed = invoke("timeline", str(run.path))[1]
    assert "128x1x1" in printed and "256x1x1" in printed


def test_the_launch_of_a_case_with_a_copy_is_judged_by_its_counters(tmp_path: Path) -> None:
    launch = {"launch": 0, "case": MINE, "iteration": 0, "kernel": "K", "duration_ns": 3000.0}
    alone, copied = (make_run(tmp_path / name, launches=[launch], kernels=[execution(0, 3000)]) for name in "ab")
    add(copied, "copies", [copy(3_100, 64_100)])
    kinds = [rows("verdict", wall(run, MINE, 68.0))[0]["kind"] for run in (alone, copied)]
    assert kinds[0] == "launch" != kinds[1]


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


def warnings(run: Run, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer("timeline", run.path, *words)["warnings"]
    return found


def test_half_levels_are_seen_without_ncu_too(tmp_path: Path) -> None:
    alone = record_run(tmp_path / "alone", ncu_raw=None)
    # The made-up manifest does not say how many SMs there are.
    assert warnings(alone) == []
    write_manifest(alone.path, cases=recorded_cases(), environment={"gpu": {"multiprocessors": 132}})
    (warning,) = warnings(alone)
    assert (warning["id"], warning["kernel"], warning["largest_sms_active_pct"]) == ("sms_differ", PREFILL, 50.0)


REFUSED = "no GPU metrics: nsys refused them (insufficient permission)"


@pytest.mark.parametrize(
    ("made", "phase", "found"),
    [
        ({"settings": {"tools": ["ncu"]}}, "measure", ["no_trace"]),
        ({"kernels": []}, "measure", ["no_kernels"]),
        ({"kernels": [execution(0, 9, phase=None, case=None)]}, "measure", ["no_ranges", "nothing_in_phase", "no_levels"]),
        ({"kernels": [execution(0, 9)], "settings": {"gpu_metrics_hz": 0}}, "warmup", ["nothing_in_phase", "no_levels"]),
        ({"kernels": [execution(0, 9)], "warnings": [REFUSED]}, "measure", ["no_levels"]),
        ({"kernels": [execution(0, 9)], "status": "failed", "reason": "ncu timed out"}, "measure", ["failed", "no_levels"]),
    ],
)  # fmt: skip
def test_what_a_trace_lacks_is_said(tmp_path: Path, made: dict[str, Any], phase: str, found: list[str]) -> None:
    assert [each["id"] for each in warnings(make_run(tmp_path / "run", **made), "--phase", phase)] == found
