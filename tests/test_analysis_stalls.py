"""fiprof/analysis/stalls.py and its tables: what the warps of each launch wait for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fiprof.analysis.stalls import LaunchStalls, findings, stalls
from fiprof.model.wording import worded
from fiprof.reports.stalls import document
from fiprof.reports.writers import render
from tests.reports_fixture import make_run

# Made-up runs


def reasons(launch: int, shares: Mapping[str, float], samples: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    return [
        {
            "launch": launch,
            "reason": reason,
            "share": share,
            "warps_per_issue": share * 10,
            "samples": None if samples is None else samples.get(reason, 0),
        }
        for reason, share in shares.items()
    ]


def launch_row(launch: int = 0, **values: Any) -> dict[str, Any]:
    return {"launch": launch, "case": "mine[rows=8]", "iteration": 0, "kernel": "K", "duration_ns": 1000.0, **values}


def only(
    folder: Path, shares: Mapping[str, float], samples: Mapping[str, int] | None = None, **row: Any
) -> LaunchStalls:
    run = make_run(folder / "run", launches=[launch_row(**row)], reasons=reasons(0, shares, samples))
    (launch,) = stalls(run).launches
    return launch


def fields(launch: LaunchStalls) -> list[dict[str, Any]]:
    return [found.fields() for found in findings(launch)]


def test_a_reason_of_a_later_ncu_is_a_stall_and_shown(tmp_path: Path) -> None:
    launch = only(tmp_path, {"quantum_wait": 0.9, "selected": 0.1})
    assert findings(launch)[0].kind == "dominates"
    assert "a state that this fiprof does not know" in worded(findings(launch)[0])


def test_samples_alone(tmp_path: Path) -> None:
    rows = [{"launch": 0, "reason": r, "samples": n} for r, n in (("selected", 100), ("wait", 300))]
    report = stalls(make_run(tmp_path / "run", launches=[launch_row()], reasons=rows))
    assert [stall.reason for stall in report.launches[0].stalls] == ["wait", "selected"]
    assert "wait                     –            –    75.0%" in render(document(report), "table")
