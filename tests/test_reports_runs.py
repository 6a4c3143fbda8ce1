"""fiprof/reports/runs.py: the runs of an archive."""

from __future__ import annotations

import json
from pathlib import Path

from fiprof.model.manifest import read_manifest
from fiprof.reports.runs import runs
from fiprof.reports.writers import render
from tests.reports_fixture import case, make_run


def test_runs_whole_failed_and_damaged(tmp_path: Path) -> None:
    cases = [case("decode[batch=1,kv_len=8]"), case("decode[batch=2,kv_len=8]"), case("rope[n=1]")]
    make_run(tmp_path / "20261121-104500-all", cases=cases)
    make_run(tmp_path / "20261121-110000-rope", status="failed", reason="ncu failed", environment={}, cases=[])
    found = [(path, read_manifest(path)) for path in sorted(tmp_path.iterdir())]
    view = runs([*found, (tmp_path / "20261121-120000-x", "run.json is damaged")])
    assert render(view, "table") == "\n".join(
        [
            "! the run 20261121-110000-rope failed: ncu failed",
            "! the run 20261121-120000-x cannot be read: run.json is damaged",
            "run                   status    started           took  GPU          fiprof  cases",
            "                                                     s",
            "20261121-104500-all   complete  2026-11-21 10:45  31.2  NVIDIA H200  0.1.0   2 × decode, rope",
            "20261121-110000-rope  failed    2026-11-21 10:45  31.2  –            0.1.0",
            "20261121-120000-x     damaged   –                    –  –            –",
        ]
    )
    whole, failed, damaged = json.loads(render(view, "json"))["rows"]
    assert whole["case_labels"] == ["decode batch=1", "decode batch=2", "rope"]
    assert whole["cases"][0] == "decode[batch=1,kv_len=8]"
    assert (whole["started"], whole["duration_s"], whole["tools"]) == (
        "2026-11-21T10:45:00+01:00",
        31.2,
        ["nsys", "ncu"],
    )
    assert failed["reason"] == "ncu failed"
    assert (damaged["status"], damaged["reason"], damaged["duration_s"]) == ("damaged", "run.json is damaged", None)


def test_the_driver_names_the_gpu_where_the_workload_did_not(tmp_path: Path) -> None:
    make_run(tmp_path / "run", environment={"gpu_state": {"before": {"name": "NVIDIA H100"}}})
    (row,) = json.loads(render(runs([(tmp_path / "run", read_manifest(tmp_path / "run"))]), "json"))["rows"]
    assert row["gpu"] == "NVIDIA H100"


def test_no_runs() -> None:
    assert render(runs([]), "table") == "no runs yet: fiprof collect makes one"
