"""Cases of a study's results, against figures of the recorded runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fiprof.analysis.case_results import case_results
from fiprof.model.results import CaseResult, KernelResults, RunnerUp, read, write
from fiprof.model.run import Run
from tests.recorded_runs import copied, parsed


@pytest.fixture(scope="module")
def of_run() -> list[CaseResult]:
    return case_results(parsed("decode"))


def case(found: list[CaseResult], batch: int, tensor_cores: bool) -> CaseResult:
    return next(c for c in found if (c.params["batch"], c.params["tensor_cores"]) == (batch, tensor_cores))


def test_times_and_rates(of_run: list[CaseResult]) -> None:
    assert len(of_run) == 8
    found = case(of_run, 128, True)
    assert (found.run, found.slow_clock_rounds) == ("20261121-121126-decode", None)
    assert found.plain is not None and found.nsys is not None
    assert found.plain.median_us == pytest.approx(252.432, abs=1e-3)
    assert found.plain.low_us == pytest.approx(251.552, abs=1e-3)
    assert found.plain.high_us == pytest.approx(253.472, abs=1e-3)
    assert (found.plain.count, found.plain.rounds) == (20, 1)
    assert found.nsys.median_us == pytest.approx(251.135)
    assert found.ncu_us == pytest.approx(252.96)
    # 128 x 2048 tokens x 8 heads x 128 elements x 2 bytes, keys and values, and their page numbers and queries.
    assert found.bytes_read == 1_074_855_936
    assert found.gb_per_s == pytest.approx((1_074_855_936 + 1_048_576) / 252.432e-6 / 1e9, rel=1e-5)
    assert found.gb_per_s_roof_share == pytest.approx(0.8858, abs=1e-4)
    assert found.tflops == pytest.approx(4 * 128 * 32 * 128 * 2048 / 252.432e-6 / 1e12, rel=1e-5)


def test_the_kernels_of_an_iteration(of_run: list[CaseResult]) -> None:
    split = case(of_run, 1, False)
    assert [(k.kernel, k.launch, k.grid) for k in split.kernels] == [
        ("BatchDecodeWithPagedKVCacheKernel", 0, "16x8x1"),
        ("PersistentVariableLengthMergeStatesKernel", 1, "132x1x1"),
    ]
    (kernel,) = case(of_run, 128, True).kernels
    assert sum(kernel.stalls.values()) == pytest.approx(1)
    assert max(kernel.stalls, key=kernel.stalls.__getitem__) == "long_scoreboard"
    assert kernel.stalls["long_scoreboard"] == pytest.approx(0.59, abs=0.01)
    assert (kernel.achieved_occupancy_pct, kernel.theoretical_occupancy_pct) == (12.1, 12.5)
    assert kernel.occupancy_limiters == ["registers", "shared memory"]
    assert kernel.roof == "DRAM"
    assert kernel.roof_share == pytest.approx(0.8904, abs=1e-3)
    assert kernel.dram_pct == pytest.approx(88.6)
    assert kernel.roof_kind == "memory"
    assert kernel.verdict is not None
    assert (kernel.verdict.kind, kernel.verdict.part, kernel.verdict.runner_up) == (
        "memory", "dram", RunnerUp("latency", None),
    )  # fmt: skip
    assert kernel.verdict.confidence == "high"
    assert kernel.verdict.margin_points == pytest.approx(29.04, abs=5e-3)  # least bytes over warm time: 89.04%
    first = kernel.verdict.evidence[0]
    assert (first.unit, first.test, first.threshold) == ("%", "at_least", 80.0)
    assert first.value == pytest.approx(89.04, abs=5e-3)


def test_rounds_of_the_plain_run_and_of_nsys(tmp_path: Path) -> None:
    copy = copied("decode", tmp_path)
    lines = [json.loads(line) for line in (copy / "baseline.jsonl").read_text().splitlines()]
    for line in lines:
        clocks = [True, False, True, False]
        line |= {"rounds": 4, "plan": {"split_kv": True}, "clock_recovered": clocks} if line["kind"] == "case" else {}
    (copy / "baseline.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    manifest = json.loads((copy / "run.json").read_text())
    manifest["settings"]["rounds"] = 4
    (copy / "run.json").write_text(json.dumps(manifest))
    found = case(case_results(Run(copy)), 128, True)
    assert found.plain is not None and found.nsys is not None
    assert (found.plain.rounds, found.nsys.rounds, found.plain.confidence) == (4, 4, 0.875)
    of_nsys = list(Run(copy).trace.cases[found.id].iterations_us)
    assert found.nsys.round_medians_us[0] == pytest.approx(sorted(of_nsys[:5])[2])
    assert (found.plan, found.slow_clock_rounds) == ({"split_kv": True}, 2)


def test_a_case_that_failed_says_why(tmp_path: Path) -> None:
    copy = copied("decode", tmp_path)
    lines = [json.loads(line) for line in (copy / "baseline.jsonl").read_text().splitlines()]
    lines[-1] = {"kind": "error", "case": lines[-1]["case"], "error": "wrong result"}
    (copy / "baseline.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = case_results(Run(copy))[-1]
    assert (found.skipped, found.run, found.plain, found.kernels) == ("failed: wrong result", "", None, [])


def test_without_ncu(tmp_path: Path) -> None:
    copy = copied("decode", tmp_path)
    for table in ("launches", "metrics", "stalls"):
        (copy / f"tables/{table}.parquet").unlink()
    found = case(case_results(Run(copy)), 128, True)
    assert (found.kernels, found.ncu_us, found.gb_per_s_roof_share) == ([], None, None)
    assert found.nsys is not None and found.gb_per_s is not None


def test_written_and_read_again(of_run: list[CaseResult], tmp_path: Path) -> None:
    results = KernelResults("decode", "small", of_run)
    write(tmp_path / "decode.json", results)
    assert read(tmp_path / "decode.json", KernelResults) == results
    text = json.loads((tmp_path / "decode.json").read_text())
    assert text["cases"][0] == dataclasses.asdict(of_run[0])
