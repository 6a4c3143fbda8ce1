"""When the GPU works: kernels, copies and memory sets, once however many run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.timeline import timeline
from fiprof.analysis.verdict.model import CaseBound, Kind
from fiprof.analysis.verdict.verdict import verdicts
from fiprof.model.busy import busy_times
from fiprof.model.run import Run
from fiprof.parsers import nsys
from tests.nsys_exports import altered
from tests.reports_fixture import add, execution, make_run, recorded_cases

MINE = "mine[rows=8]"


def copy(start_ns: int, end_ns: int, **values: Any) -> dict[str, Any]:
    """A row of the table copies, of an iteration of the case of :func:`tests.reports_fixture.case`."""
    times = {"start_ns": start_ns, "end_ns": end_ns, "bytes": 134_217_728, "kind": "Device-to-Device"}
    return {**times, "device": 0, "stream": 7, "pid": 1, "phase": "measure", "case": MINE, "iteration": 0, **values}


def wall(run: Run, case: str, wall_us: float) -> None:
    """A plain run of the case."""
    record = {"kind": "case", "case": case, "gpu_us": [wall_us], "wall_us": wall_us}
    (run.path / "baseline.jsonl").write_text(json.dumps(record) + "\n")


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
    (only,) = verdicts(run).cases
    assert (only.busy_time and only.busy_time.value, only.bound) == (64.0, CaseBound.COPIES)
    assert only.waiting is not None
    assert only.waiting.value == pytest.approx(100 * 4 / 68)


def test_work_side_by_side_counts_once(tmp_path: Path) -> None:
    kernels = [
        execution(0, 10_000, "A"),
        execution(5_000, 12_000, "B", stream=8),
        execution(30_000, 40_000, "A", iteration=1),
        execution(0, 90_000, "A", phase="warmup", iteration=None),
    ]
    copies = [
        copy(8_000, 20_000),
        copy(50_000, 51_000, iteration=1, kind="Memset"),
        copy(0, 90_000, case=None, phase=None),
    ]
    run = make_run(tmp_path / "run", kernels=kernels)
    add(run, "copies", copies)
    times = busy_times(run)[MINE]
    assert (times.count, times.median_us, run.trace.cases[MINE].iteration.median_us) == (2, 15.5, 13.5)
    # From the first kernel's start to the last one's end: of 40 µs all but 10.
    (part,) = timeline(run).phases
    assert (part.length_us, part.busy) == (40.0, 0.75)


def test_the_launch_of_such_a_case_is_judged_by_its_counters(tmp_path: Path) -> None:
    launch = {"launch": 0, "case": MINE, "iteration": 0, "kernel": "K", "duration_ns": 3000.0}
    run = make_run(tmp_path / "run", launches=[launch], kernels=[execution(0, 3000)])
    wall(run, MINE, 68.0)
    assert verdicts(run).launches[0].kind is Kind.LAUNCH
    copied = make_run(tmp_path / "copied", launches=[launch], kernels=[execution(0, 3000)])
    add(copied, "copies", [copy(3_100, 64_100)])
    wall(copied, MINE, 68.0)
    assert verdicts(copied).launches[0].kind is not Kind.LAUNCH
