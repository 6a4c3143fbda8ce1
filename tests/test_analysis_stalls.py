"""fiprof/analysis/stalls.py and its tables: what the warps of each launch wait for."""

from __future__ import annotations

import lzma
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.reasons import REASONS
from fiprof.analysis.stalls import LaunchStalls, disagreements, findings, stalls
from fiprof.model.run import Run
from fiprof.model.selection import Selection
from fiprof.model.wording import worded
from fiprof.reports.stalls import document
from fiprof.reports.writers import render
from tests.reports_fixture import DATA, make_run, record_run


@pytest.mark.parametrize("name", ["full.raw.csv", "quick.raw.csv.xz", "vars.raw.csv.xz"])
def test_shares_sum_to_one(tmp_path: Path, name: str) -> None:
    raw = DATA / "ncu" / name
    if raw.suffix == ".xz":
        raw = tmp_path / raw.stem
        raw.write_bytes(lzma.decompress((DATA / "ncu" / name).read_bytes()))
    launches = stalls(record_run(tmp_path / "run", ncu_raw=raw, trace=False)).launches
    assert len(launches) >= 6
    for launch in launches:
        assert {stall.reason for stall in launch.stalls} == set(REASONS)
        assert sum(stall.share or 0 for stall in launch.stalls) == pytest.approx(1, abs=0.001)
        if launch.samples:
            assert sum(stall.sampled_share or 0 for stall in launch.stalls) == pytest.approx(1, abs=0.001)


@pytest.mark.parametrize(
    ("wanted", "launches"),
    [
        (Selection("rmsnormkernel"), [3, 4]),
        (Selection("ROPE"), [5]),
        (Selection("void norm::"), [3, 4]),
        (Selection("batch=32"), [1, 2]),
        (Selection("^(rope|merge)"), [5]),
        (Selection(launches=(0, 4)), [0, 4]),
        (Selection("norm", launches=(0, 4)), [4]),
        (Selection(top=2), [0, 5]),
    ],
)
def test_a_selection(five_kernels: Run, wanted: Selection, launches: list[int]) -> None:
    assert [launch.launch for launch in stalls(five_kernels, wanted=wanted).launches] == launches


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


def test_a_dominating_stall(tmp_path: Path) -> None:
    launch = only(tmp_path, {"barrier": 0.6, "selected": 0.3, "wait": 0.1}, issue_active_pct=42.4)
    assert fields(launch) == [
        {"id": "issued", "issue_active_pct": 42.4},
        {"id": "dominates", "reason": "barrier", "share": 0.6},
        {"id": "helps", "reason": "barrier"},
    ]


def test_no_dominating_stall(tmp_path: Path) -> None:
    launch = only(tmp_path, {"not_selected": 0.5, "selected": 0.22, "wait": 0.2, "drain": 0.08}, issue_active_pct=91.0)
    assert fields(launch) == [
        {"id": "busy", "issue_active_pct": 91.0},
        {"id": "ready", "reason": "not_selected", "share": 0.5},
        {"id": "largest", "reason": "wait", "share": 0.2},
        {"id": "then", "reasons": [{"id": "share", "reason": "drain", "share": 0.08}]},
        {"id": "helps", "reason": "wait"},
    ]


def test_no_stall(tmp_path: Path) -> None:
    assert fields(only(tmp_path, {"selected": 1.0, "wait": 0.0})) == [{"id": "no_stall"}]


def test_a_reason_of_a_later_ncu_is_a_stall_and_shown(tmp_path: Path) -> None:
    launch = only(tmp_path, {"quantum_wait": 0.9, "selected": 0.1})
    assert findings(launch)[0].kind == "dominates"
    assert "a state that this fiprof does not know" in worded(findings(launch)[0])


def test_measures_that_differ_are_noted(tmp_path: Path) -> None:
    launch = only(tmp_path, {"wait": 0.5, "selected": 0.5}, {"wait": 4000, "selected": 6000})
    assert [found.fields() for found in disagreements(launch)] == [
        {
            "id": "measures_differ",
            "reasons": [
                {"id": "difference", "reason": "selected", "stall_share": 0.5, "sample_share": 0.6},
                {"id": "difference", "reason": "wait", "stall_share": 0.5, "sample_share": 0.4},
            ],
        }
    ]


def test_measures_that_differ_by_chance_are_not(tmp_path: Path) -> None:
    launch = only(tmp_path, {"wait": 0.5, "selected": 0.5}, {"wait": 40, "selected": 60})
    assert [found.fields() for found in disagreements(launch)] == [
        {"id": "few_samples", "samples": 100, "error_points": pytest.approx(10)}
    ]


def test_samples_alone(tmp_path: Path) -> None:
    rows = [{"launch": 0, "reason": r, "samples": n} for r, n in (("selected", 100), ("wait", 300))]
    report = stalls(make_run(tmp_path / "run", launches=[launch_row()], reasons=rows))
    assert [stall.reason for stall in report.launches[0].stalls] == ["wait", "selected"]
    assert "wait                     –            –    75.0%" in render(document(report), "table")


def test_importing_a_report_imports_nothing_heavy() -> None:
    modules = ["show", "stalls", "hotspots", "roofline", "checks", "expected", "verdict.verdict"]
    code = (
        f"import sys; import {', '.join(f'fiprof.analysis.{name}' for name in modules)}; "
        "print([name for name in ('pandas', 'numpy', 'pyarrow', 'rich', 'duckdb', 'torch') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    assert done.stdout.strip() == "[]"
