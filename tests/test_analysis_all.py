"""What all analyses of launches have in common: runs that lack something, what a user picks, hostile names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.expected import expected
from fiprof.analysis.hotspots import hotspots
from fiprof.analysis.roofline import roofline
from fiprof.analysis.show import show
from fiprof.analysis.stalls import stalls
from fiprof.analysis.timeline import timeline
from fiprof.analysis.verdict.verdict import verdicts
from fiprof.errors import FiprofError
from fiprof.model.finding import Finding
from fiprof.model.run import Run
from fiprof.model.selection import Selection
from fiprof.model.wording import worded
from fiprof.reports import hotspots as hotspots_report
from fiprof.reports import roofline_tables, timeline_text, verdict_tables
from fiprof.reports import show as show_tables
from fiprof.reports import stalls as stalls_report
from fiprof.reports.view import FORMATS
from fiprof.reports.writers import render
from fiprof.text import cell_width
from tests.reports_fixture import add, ended, execution, make_run

NEED_COUNTERS: tuple[Callable[..., Any], ...] = (expected, hotspots, roofline, stalls, verdicts)
DOCUMENTS: dict[str, Callable[[Run], Any]] = {
    "hotspots": lambda run: hotspots_report.document(hotspots(run)),
    "roofline": lambda run: roofline_tables.document(roofline(run)),
    "show": lambda run: show_tables.document(show(run)),
    "stalls": lambda run: stalls_report.document(stalls(run)),
    "timeline": lambda run: timeline_text.document(timeline(run)),
    "verdict": lambda run: verdict_tables.document(verdicts(run)),
}
HOSTILE = "<script>|[red]\n\x1b[2J" + "k" * 10_000


def run_of(folder: Path, kernel: str = "K", **manifest: Any) -> Run:
    """A run of one launch with a stall and an instruction, traced too."""
    ran = execution(0, 1000, kernel)
    launch = {**ran, "launch": 0, "duration_ns": 1000.0}
    stall = {"launch": 0, "reason": "wait", "share": 1.0, "warps_per_issue": 10.0}
    run = make_run(folder, launches=[launch], reasons=[stall], kernels=[ran], **manifest)
    add(run, "hotspots", [{"launch": 0, "address": 0, "sass": kernel, "samples": 300, "top_reason": kernel}])
    return Run(folder)


@pytest.mark.parametrize("analysis", NEED_COUNTERS)
@pytest.mark.parametrize(
    ("manifest", "kind", "said"),
    [
        (
            {"actions": [ended("ncu", exit_status=1, outcome="failed", message="ERR_NVGPUCTRPERM")]},
            "step_said",
            "ncu failed: ERR_NVGPUCTRPERM",
        ),
        ({"settings": {"tools": ["nsys"]}}, "not_asked", "ncu was not asked for"),
        ({"status": "failed", "reason": "no disk"}, "not_started_because", "ncu was not started: no disk"),
    ],
)
def test_a_run_without_counters_says_why(
    tmp_path: Path, analysis: Callable[..., Any], manifest: dict[str, Any], kind: str, said: str
) -> None:
    with pytest.raises(FiprofError) as error:
        analysis(make_run(tmp_path / "run", kernels=[], **manifest))
    assert isinstance(error.value.why, Finding)
    assert (error.value.why.kind, worded(error.value.why)) == (kind, said)


@pytest.mark.parametrize("analysis", [*NEED_COUNTERS[2:], show])
def test_a_kernel_that_is_not_there(five_kernels: Run, analysis: Callable[..., Any]) -> None:
    with pytest.raises(FiprofError) as error:
        analysis(five_kernels, wanted=Selection("nosuch"))
    assert error.value.message == "recorded has no launch with kernel 'nosuch'"
    assert "PersistentVariableLengthMergeStatesKernel" in error.value.remedy


@pytest.mark.parametrize("command", DOCUMENTS)
def test_an_incomplete_run_says_so_first(tmp_path: Path, command: str) -> None:
    run = run_of(tmp_path / "cut", status="interrupted", reason="Ctrl-C")
    lines = render(DOCUMENTS[command](run), "table").splitlines()
    assert next(line for line in lines if line.startswith("! ")) == "! the run cut was interrupted: Ctrl-C"


@pytest.mark.parametrize("command", DOCUMENTS)
def test_names_from_the_profiled_program_are_text(tmp_path: Path, command: str) -> None:
    document = DOCUMENTS[command](run_of(tmp_path / "run", HOSTILE))
    table, markdown, *_ = texts = [render(document, format_, width=100) for format_ in ("table", "md", *FORMATS)]
    assert not any("\x1b" in text for text in texts)
    assert table.replace("\n", "").isprintable() and max(map(cell_width, table.splitlines())) <= 100
    assert "<script>" not in markdown
    assert json.loads(render(document, "json"))["rows"][0]["kernel"] == HOSTILE
