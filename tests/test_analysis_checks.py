"""fiprof/analysis/checks.py: how sure the numbers of a run are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis import checks
from fiprof.analysis.checks import CASE_CHECKS, LAUNCH_CHECKS, RUN_CHECKS, Check
from fiprof.model import tables
from fiprof.model.manifest import CaseEntry
from fiprof.model.run import Run
from fiprof.model.wording import worded
from tests.reports_fixture import GPU_STATE, case, execution, make_run

ID = "mine[rows=8]"


def test_written_checks_are_read_and_not_made_again(five_kernels: Run, tmp_path: Path) -> None:
    made = checks.failed(make_run(tmp_path / "made", launches=launch(stall_dropped_bytes=8.0)))
    assert [each.check for each in made] == ["dropped_samples"]
    run = make_run(tmp_path / "written", launches=launch(stall_dropped_bytes=8.0))
    tables.write(run.tables_path, "checks", tables.empty("checks"))
    assert checks.failed(run) == ()
    assert list(checks.every(five_kernels)) == checks.evaluate(five_kernels)


# Each check on made-up runs


def check(run: Run, name: str) -> Check:
    (found,) = [each for each in checks.evaluate(run) if each.check == name]
    return found


def kernels(durations_ns: list[int]) -> list[dict[str, Any]]:
    return [execution(0, ns, iteration=i) for i, ns in enumerate(durations_ns)]


def launch(**values: Any) -> list[dict[str, Any]]:
    return [{"launch": 0, "case": ID, "iteration": 0, "kernel": "K", "duration_ns": 1e5, **values}]


@pytest.mark.parametrize(
    ("plain_us", "nsys_us", "passed"),
    [
        (100.0, 100.0, True),
        (100.0, 91.0, True),
        (100.0, 89.0, False),
        (100.0, 109.0, True),
        (100.0, 111.0, False),
        (10.0, 7.1, True),  # 3 µs of events and launch gap
        (10.0, 6.9, False),
    ],
)
def test_nsys_against_plain(tmp_path: Path, plain_us: float, nsys_us: float, passed: bool) -> None:
    run = make_run(tmp_path / "run", kernels=kernels([round(nsys_us * 1000)] * 3), gpu_us={ID: [plain_us] * 3})
    found = check(run, "nsys_vs_plain")
    assert (found.passed, found.case) == (passed, ID)
    assert found.value == pytest.approx(nsys_us / plain_us)


REASONS = [
    {"launch": 0, "reason": "wait", "warps_per_issue": 9.0, "samples": 10},
    {"launch": 0, "reason": "selected", "warps_per_issue": 1.0, "samples": 20},
]


@pytest.mark.parametrize(
    ("name", "column", "passes", "fails"),
    [
        ("stall_sum", "warp_latency_cycles", (10.0, 9.81, 10.19), (9.7, 10.3)),
        ("sample_sum", "stall_samples", (30.0,), (31.0, 29.0)),
        ("dropped_samples", "stall_dropped_bytes", (0.0,), (64.0,)),
        ("sm_clock", "sm_clock_hz", (1980e6, 1590e6), (1580e6,)),
        ("ncu_vs_nsys", "duration_ns", (100e3, 149e3, 81e3), (151e3, 79e3)),
    ],
)
def test_a_launch_against_its_limits(
    tmp_path: Path, name: str, column: str, passes: tuple[float, ...], fails: tuple[float, ...]
) -> None:
    for value in (*passes, *fails):
        run = make_run(
            tmp_path / str(value), launches=launch(**{column: value}), reasons=REASONS, kernels=kernels([100_000])
        )
        assert check(run, name).passed is (value in passes), value


FLOAT_RATES = {
    f"{inst}_thread_insts_per_cycle": 0.0
    for inst in ("fadd", "fmul", "ffma", "hadd", "hmul", "hfma", "dadd", "dmul", "dfma")
}


@pytest.mark.parametrize(
    ("counted", "factor", "passed"),
    [
        ({"tensor_ops_fp16": 1100.0}, 1.1, True),
        ({"tensor_ops_fp16": 890.0}, 0.89, False),
        ({"tensor_ops_fp16": 2600.0}, 2.6, False),
        # Other pipes count only where the tensor cores did nothing.
        ({"tensor_ops_fp16": 1100.0, **FLOAT_RATES, "ffma_thread_insts": 9000.0}, 1.1, True),
        ({"tensor_ops_fp16": 0.0, **FLOAT_RATES, "sm_cycles": 1.0, "ffma_thread_insts": 500.0}, 1.0, True),
        # Half additions are conversions, mostly.
        ({**FLOAT_RATES, "sm_cycles": 1.0, "ffma_thread_insts": 500.0, "hadd_thread_insts": 9000.0}, 1.0, True),
        ({**FLOAT_RATES, "sm_cycles": 1.0, "hfma_thread_insts": 100.0}, 0.4, False),
    ],
)  # fmt: skip
def test_flops(tmp_path: Path, counted: Mapping[str, float], factor: float, passed: bool) -> None:
    found = check(make_run(tmp_path / "run", launches=launch(**counted), cases=[case(flops=1000)]), "flops")
    assert found.value == pytest.approx(factor)
    assert found.passed is passed


@pytest.mark.parametrize(
    ("read", "cache_control", "passed", "caches"),
    [(1000.0, "all", True, "flushed"), (800.0, "all", False, "flushed"), (800.0, "none", False, "kept")],
)
def test_dram_reads(tmp_path: Path, read: float, cache_control: str, passed: bool, caches: str) -> None:
    run = make_run(tmp_path / "run", launches=launch(dram_read_bytes=read), settings={"cache_control": cache_control})
    found = check(run, "dram_reads")
    assert found.passed is passed
    assert found.values == {"caches": caches}


def test_dram_writes_may_stay_in_l2(tmp_path: Path) -> None:
    for model, written, passed in ((400, 350.0, True), (400, 261.0, True), (400, 259.0, False), (100, 0.0, None)):
        run = make_run(
            tmp_path / f"{model}-{written}", launches=launch(dram_write_bytes=written),
            cases=[case(bytes_written=model)], environment={"gpu": {"l2_bytes": 100}},
        )  # fmt: skip
        assert check(run, "dram_writes").passed is passed


@pytest.mark.parametrize(
    ("durations_us", "passed"),
    [
        ([100, 100, 105, 109], True),
        ([100, 100, 100, 120, 120], False),
        ([3.0, 3.3, 3.6, 3.9], True),
        ([5.0, 5.0], None),
    ],
)
def test_spread(tmp_path: Path, durations_us: list[float], passed: bool | None) -> None:
    run = make_run(tmp_path / "run", kernels=kernels([round(1000 * us) for us in durations_us]))
    assert check(run, "spread").passed is passed
    plain = make_run(tmp_path / "plain", gpu_us={ID: durations_us})
    assert check(plain, "spread").passed is passed


def test_other_processes(tmp_path: Path) -> None:
    after = {**GPU_STATE, "other_processes": ["4711 (python3)"]}
    run = make_run(tmp_path / "shared", environment={"gpu_state": {"before": GPU_STATE, "after": after}})
    found = check(run, "other_processes")
    assert found.passed is False
    (finding,) = checks.of_run(checks.failed(run))
    assert finding.fields() == {
        "id": "other_processes", "outcome": "too_high", "value": 1, "high": 0, "unit": "processes",
        "processes": ["4711 (python3)"],
    }  # fmt: skip
    assert "4711 (python3)" in worded(finding)


def test_without_measurements_every_check_is_open_and_says_why(tmp_path: Path) -> None:
    run = make_run(tmp_path / "empty", launches=launch(duration_ns=None), environment={})
    found = checks.evaluate(run)
    assert len(found) == len(RUN_CHECKS) + len(CASE_CHECKS) + len(LAUNCH_CHECKS)
    for each in found:
        assert each.passed is (True if each.check == "profiled" else None), each
        assert each.value is None or each.check == "profiled"
        assert each.check == "profiled" or each.values["why"]
    assert checks.failed(run) == ()


def test_every_case_has_its_own(tmp_path: Path) -> None:
    cases: list[CaseEntry] = [case("a[x=1]"), case("a[x=2]")]
    run = make_run(tmp_path / "run", cases=cases, gpu_us={"a[x=1]": [1.0, 5.0, 9.0], "a[x=2]": [5.0, 5.0, 5.0]})
    (failed,) = checks.failed(run)
    assert (failed.case, failed.values["timed"]) == ("a[x=1]", "plain")
    assert failed.value == pytest.approx(1.28)
    (failed,) = checks.failed(make_run(tmp_path / "ncu", cases=[case(), case("a[x=1]")], launches=launch()))
    assert (failed.check, failed.case, failed.value, failed.low) == ("profiled", "a[x=1]", 0, 1)
