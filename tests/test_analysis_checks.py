"""fiprof/analysis/checks.py: how sure the numbers of a run are, each check at its limits."""

from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis import checks
from fiprof.analysis.checks import CASE_CHECKS, LAUNCH_CHECKS, RUN_CHECKS, Check
from fiprof.model import tables
from fiprof.model.finding import worded
from fiprof.model.run import Run
from tests.reports_fixture import GPU_STATE, case, execution, make_run

ID = "mine[rows=8]"
Made = dict[str, Any]


def check(run: Run, name: str) -> Check:
    (found,) = [each for each in checks.evaluate(run) if each.check == name]
    return found


def traced(*durations_us: float) -> Made:
    return {"kernels": [execution(0, round(1000 * us), iteration=i) for i, us in enumerate(durations_us)]}


def plain(*times_us: float) -> Made:
    return {"gpu_us": {ID: list(times_us)}}


def counted(**values: Any) -> Made:
    return {"launches": [{"launch": 0, "case": ID, "iteration": 0, "kernel": "K", "duration_ns": 1e5, **values}]}


REASONS = {
    "reasons": [
        {"launch": 0, "reason": "wait", "warps_per_issue": 9.0, "samples": 10},
        {"launch": 0, "reason": "selected", "warps_per_issue": 1.0, "samples": 20},
    ]
}
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


def test_written_checks_are_read_and_not_made_again(five_kernels: Run, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **counted(stall_dropped_bytes=8.0))
    assert [each.check for each in checks.failed(run)] == ["dropped_samples"]
    tables.write(run.tables_path, "checks", tables.empty("checks"))
    assert not checks.failed(Run(run.path))
    assert list(checks.every(five_kernels)) == checks.evaluate(five_kernels)


def test_other_processes(tmp_path: Path) -> None:
    after = {**GPU_STATE, "other_processes": ["4711 (python3)"]}
    run = make_run(tmp_path / "shared", environment={"gpu_state": {"before": GPU_STATE, "after": after}})
    assert check(run, "other_processes").passed is False
    (finding,) = checks.of_run(checks.failed(run))
    assert "4711 (python3)" in worded(finding)


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
