"""The programs of the execution story (examples/request.py, batching.py, experts.py): what they print of themselves is
what nsys saw of them, and the scheduler keeps its promises. The recordings: tests/data/story."""

import importlib
import json
import re
import sys
from collections import Counter
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from tests.conftest import REPOSITORY, ran
from tests.fakes.recorded import recorded_bytes
from tests.nsys_exports import query
from tests.recorded_runs import answer, rows, served
from tests.test_story import DATA, near, own

EXAMPLES = REPOSITORY / "examples"


def test_a_profiler_changes_no_decision() -> None:
    done = ran(sys.executable, str(EXAMPLES / "batching.py"), "--dry-run")
    decided = [json.loads(line) for line in done.stdout.splitlines()]
    told = zip(decided, own("batching"), strict=True)
    assert [{key: line[key] for key in each} for each, line in told] == decided
    steps = rows("story", served("batching").path, "--table", "steps")
    said = [line["decision"] for line in decided if "decision" in line]
    assert [row["what"] for row in steps if re.fullmatch(r"step \d+: .*", row["what"])] == said
    assert sum(line.get("preemptions", 0) for line in decided) == 2


@pytest.mark.parametrize("seed", range(4))
def test_the_scheduler_serves_everyone_within_its_limits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    batching = importlib.import_module("batching")
    pages, budget, most = 40 + 8 * seed, 128, 6
    scheduler = batching.Scheduler(pages, budget, most)
    everyone = list(batching.arrivals(seed, 20, 1.0, 100))
    scheduler.waiting.extend(everyone)
    for step in range(5_000):
        decision = scheduler.decide(step)
        held = [page for each in scheduler.running for page in each.pages]
        assert sorted(held + scheduler.free) == list(range(pages))
        assert sum(new for _, new in decision.work) <= budget and len(decision.work) <= most
        batching.finish(decision, [0] * len(decision.work), scheduler, None)
        if not scheduler.running and not scheduler.waiting:
            break
    assert all(len(each.tokens) == each.prompt + each.output for each in everyone)
    assert [each.number for each in sorted(everyone, key=lambda one: (one.admitted_step, one.number))] == [*range(20)]


def test_examples_say_what_they_need() -> None:
    """And the ranks of a split model have a half each."""
    for name in ("request", "batching", "experts", "tensor_parallel"):
        done = ran(sys.executable, str(EXAMPLES / f"{name}.py"), "--help")
        assert done.returncode == 0 and "fiprof profile" in done.stdout
    told = json.loads(ran(sys.executable, str(EXAMPLES / "tensor_parallel.py"), "--dry-run").stdout)
    assert [told[key] for key in ("ranks", "heads", "layer_bytes", "all_reduces")] == [2, 16, 218_112_000, 16]
    alone = ran(sys.executable, str(EXAMPLES / "tensor_parallel.py"))
    assert alone.returncode == 1 and "torchrun --nproc-per-node 2" in alone.stderr


@pytest.mark.parametrize(
    ("name", "slowed", "launched_late"), [("split-each", 0, 3), ("split-nccl", 1, 3), ("split-flashinfer", 1, 2)]
)
def test_the_slowed_rank_is_named_with_its_lateness(name: str, slowed: int, launched_late: int) -> None:
    """The layers of one rank take half, or a quarter, as long again. What CUDA events on each GPU say of steps, all-reduces
    and lateness is what fiprof says of the trace of both ranks, or of one of each, with clocks of their own. launched_late:
    all-reduces that the host launched late after the first event."""
    *told, summary = own(name)
    assert (summary["slow_rank"], summary["all_reduces"]) == (slowed, 8)
    run = str(served(name).path)
    for rank in (0, 1):
        every = rows("story", run, "--table", "steps", "--rank", rank)
        steps = [row for row in every if re.fullmatch("prefill|decode step .*", row["what"])][-len(told) :]
        doing = Counter(row["meanwhile"]["name"] for row in steps)
        assert doing["spin_kernel"] >= 12  # of 13: once the host of the slowed rank was late, too
        for line, row in zip(told, steps, strict=True):
            assert (row["what"], row["late_rank"]) == (line["step"], slowed)
            assert abs(1e3 * row["late_ms"] - line["late_us"][slowed]) <= max(20, 0.05 * line["late_us"][slowed])
            assert near(row["length_ms"], line["host_us"][rank]), line["step"]
    collectives = [row for row in rows("comm", run) if row["op"] == "all_reduce" and len(row["arrivals"]) == 2]
    collectives.sort(key=lambda row: float(row["start_us"]))
    each = [times for line in told for times in zip(*line["all_reduce_us"], strict=True)]
    pairs = [
        (arrival["duration_us"], times[arrival["rank"]])
        for times, row in zip(each, collectives[-len(each) :], strict=True)
        for arrival in row["arrivals"]
    ]
    assert all(found_us <= told_us for found_us, told_us in pairs)
    assert sum(not near(found_us / 1e3, told_us) for found_us, told_us in pairs) == launched_late
    sizes = {row["message_bytes"] for row in collectives[-8:]}
    assert sizes == {summary["decode_bytes"] if summary["all_reduce"] == "nccl" else None}  # NCCL alone tells
    for command in ("top", "verdict"):
        found = answer(command, run)["program"]
        assert found["answer"]["cause"] == "ranks"
        waiting = next(row for row in found["rows"] if row["cause"] == "ranks")
        assert (waiting["name"], waiting["step"]["id"]) == (f"rank {slowed}", "help_rank")
        assert waiting["step"]["basis"]["doing"]["name"] == "spin_kernel"
    (late,) = (found for found in answer("story", run)["surprises"])
    assert (late["id"], late["what"], late["late_rank"]) == ("late_steps", "decode step *", slowed)


@pytest.mark.parametrize(("name", "kernel_us"), [("split-nccl", (75, 7.7)), ("split-flashinfer", (64, 5.3))])
def test_what_a_sum_takes_that_nobody_waits_for(name: str, kernel_us: tuple[float, float]) -> None:
    """Medians of the last rank's kernel in the prefill's and in the decode steps' all-reduces: docs/any-program.md."""
    collectives = [row for row in rows("comm", str(served(name).path)) if row["op"] == "all_reduce"]
    collectives = sorted((row for row in collectives if len(row["arrivals"]) == 2), key=lambda each: each["start_us"])
    transfers = [median(row["transfer_us"] for row in part) for part in (collectives[-104:-96], collectives[-96:])]
    assert transfers == [pytest.approx(us, abs=0.5 if us > 20 else 0.05) for us in kernel_us]


BY_EXPERT = """
SELECT step.start, expert.text, sum(kernel.end - kernel.start) / 1e3 FROM NVTX_EVENTS expert
JOIN NVTX_EVENTS step ON expert.start BETWEEN step.start AND step.end
JOIN CUPTI_ACTIVITY_KIND_RUNTIME call ON call.start BETWEEN expert.start AND expert.end
JOIN CUPTI_ACTIVITY_KIND_KERNEL kernel USING (correlationId)
WHERE expert.text LIKE 'expert %' AND step.text LIKE 'step %' GROUP BY expert.rowid ORDER BY expert.start
"""


def test_the_time_of_experts_goes_with_their_rows(tmp_path: Path) -> None:
    """Each one's time is that of the kernels launched in its range, and the story's line goes through them."""
    trace = tmp_path / "trace.sqlite"
    trace.write_bytes(recorded_bytes(DATA / "experts-skewed.sqlite"))
    steps: dict[int, list[tuple[int, float]]] = {}
    for step, text, us in query(trace, BY_EXPERT):
        steps.setdefault(step, []).append((int(re.findall(r"\d+", text)[1]), us))
    found = answer("story", str(served("experts-skewed").path), "--table", "layers")
    layers = [row for row in found["rows"] if row["of"] == "step *"]
    expected = next(each for each in steps.values() if [rows for rows, _ in each] == [row["work"] for row in layers])
    assert [row["busy_us"] for row in layers] == pytest.approx([us for _, us in expected])
    said = next(each["load"] for each in found["layers"] if each["load"])
    each_us, base_us = np.polyfit([rows for rows, _ in expected], [us for _, us in expected], 1)
    assert (said["base_us"], said["each_ns"]) == (pytest.approx(base_us), pytest.approx(1e3 * each_us))
    assert said["most"] == "expert 0" and 0.25 < said["work_share"] < 0.3 and 0.09 < said["busy_share"] < 0.11
    assert said["waits_us"] > 20 * said["busy_us"]
