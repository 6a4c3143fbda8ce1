"""fiprof/reports/runs.py: the runs of an archive."""

from __future__ import annotations

import json
from pathlib import Path

from fiprof.model.catalogue.question import Question
from fiprof.orchestrator import index
from fiprof.orchestrator.archive import Archive
from fiprof.reports.runs import document
from fiprof.reports.view import Document
from fiprof.reports.writers import render
from tests.reports_fixture import case, make_run


def listed(archive: Path) -> Document:
    return document(index.answer(Archive(archive), Question()))


def test_runs_whole_failed_and_damaged(tmp_path: Path) -> None:
    cases = [case("decode[batch=1,kv_len=8]"), case("decode[batch=2,kv_len=8]"), case("rope[n=1]")]
    make_run(tmp_path / "20261121-104500-all", cases=cases)
    (tmp_path / "20261121-104500-all/nsys.sqlite").write_bytes(bytes(2_000_000))
    make_run(tmp_path / "20261121-110000-rope", status="failed", reason="ncu failed", environment={}, cases=[])
    (tmp_path / "20261121-120000-x").mkdir()
    (tmp_path / "20261121-120000-x/run.json").write_text("{")
    view = listed(tmp_path)
    assert render(view, "table").splitlines()[-5:] == [
        "run                   status    started           took  size  GPU          fiprof  cases",
        "                                                     s    MB",
        "20261121-104500-all   complete  2026-11-21 10:45  31.2   2.0  NVIDIA H200  0.1.0   2 × decode, rope",
        "20261121-110000-rope  failed    2026-11-21 10:45  31.2   0.0  –            0.1.0",
        "20261121-120000-x     damaged   –                    –   0.0  –            –",
    ]
    whole, failed, damaged = json.loads(render(view, "json"))["rows"]
    assert whole["case_labels"] == ["decode batch=1", "decode batch=2", "rope"]
    assert whole["cases"][0] == "decode[batch=1,kv_len=8]"
    assert (whole["started"], whole["duration_s"], whole["tools"]) == (
        "2026-11-21T10:45:00+01:00",
        31.2,
        ["nsys", "ncu"],
    )
    assert failed["reason"] == "ncu failed"
    assert (damaged["status"], damaged["duration_s"]) == ("damaged", None)
    assert damaged["reason"].startswith(f"{tmp_path}/20261121-120000-x/run.json is damaged")


def test_no_runs(tmp_path: Path) -> None:
    assert render(listed(tmp_path / "none"), "table") == "no runs yet: fiprof collect makes one"
    assert not (tmp_path / "none").exists()
