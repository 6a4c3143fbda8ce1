"""What a reader of a story alone can say of a program that serves: three answers, and plan() apart from run()."""

import json
import math
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from fiprof.analysis.planning import SMALL, plans
from fiprof.model.run import Run
from fiprof.reports.report import report
from fiprof.workloads.attention import PLANS, plan_times
from tests.recorded_runs import answer, copied, invoke, served

DATA = Path(__file__).parent / "data/story"


def told(*words: str) -> dict[str, Any]:
    return answer("story", served("batching").path, *words)


def test_a_slow_step_is_named_with_its_cause_and_what_to_change_first() -> None:
    """Held to what the program says itself."""
    lines = [json.loads(line) for line in (DATA / "batching.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = {line["step"]: line["host_us"] / 1e3 for line in lines if "step" in line}
    story = told()
    slow = {each["number"]: each for each in story["surprises"] if each["id"] == "slow_step"}
    assert slow[18]["length_ms"] == pytest.approx(steps[18], rel=0.02) and 20 not in slow
    assert slow[18]["usual_ms"] == pytest.approx(median(steps[n] for n in range(11, 26) if n not in slow), rel=0.1)
    cause = slow[18]["cause"]
    assert (cause["id"], cause["name"], cause["range"]) == ("function", "forward (paged_llama.py:112)", "layer 0")
    first = story["summary"][1]
    assert (first["cause"], first["step"]) == ("launches", "fewer_launches") and 40 < first["bound_pct"] < 50


def test_planning_is_that_of_the_raw_tables() -> None:
    run = served("batching")
    ranges, copies, api = (run.frame(name) for name in ("ranges", "copies", "api"))
    steps = ranges[ranges["name"].str.startswith("step ", na=False)]
    plans = ranges[(ranges["name"] == "plan") & ranges["parent"].isin(steps.index)]
    called = copies.merge(api[["correlation", "start_ns", "tid"]], on="correlation", suffixes=("", "_call"))
    inside = [
        called[called["start_ns_call"].between(begin, end)]
        for begin, end in zip(plans["start_ns"], plans["end_ns"], strict=True)
    ]
    (row,) = [each for each in told()["plans"] if each["planned"] == "step *"]
    host_us = median((plans["end_ns"] - plans["start_ns"]) / 1e3)
    assert (row["count"], row["host_us"]) == (84, pytest.approx(host_us))
    assert row["copies"] == pytest.approx(sum(map(len, inside)) / 84)
    assert row["copied_bytes"] == pytest.approx(sum(each["bytes"].sum() for each in inside) / 84)
    layers = row["layers"]
    assert (
        host_us / (host_us + layers * row["layer_us"]) <= SMALL < host_us / (host_us + (layers - 1) * row["layer_us"])
    )


def test_a_case_tells_planning_apart_from_its_run(tmp_path: Path) -> None:
    run = copied("decode", tmp_path)
    lines = [json.loads(line) for line in (run / "baseline.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if line["kind"] == "case":
            line["plan"] = {"host_us": 150.0, "ready_us": 170.0}
    (run / "baseline.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = plans(Run(run))
    assert len(found) == len(lines) - 1
    for row in found:
        assert row["host_us"] == 150 and row["layers"] == math.ceil(150 * 19 / row["layer_us"])
    assert "plan() and run()" in invoke("show", str(run))[1]
    assert "## Planning" in report([Run(run)]).markdown()


def test_planning_is_timed_again_and_again() -> None:
    done: list[str] = []
    found = plan_times(lambda: done.append("plan"), lambda: done.append("wait"))
    assert done == ["wait", "plan", "wait"] * PLANS
    assert 0 < found["host_us"] <= found["ready_us"]
