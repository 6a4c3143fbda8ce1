"""``fiprof story``: phases and steps in order of time, what surprises, what repeats inside a step; what a reader of it alone can
say of a program that serves; and examples/surprises.py, recorded on a GPU: what was planted is named, and nothing else."""

import json
import math
import re
import shlex
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from fiprof.analysis import trace
from fiprof.analysis.planning import SMALL, plans
from fiprof.analysis.requests import says
from fiprof.analysis.story import story
from fiprof.analysis.top import top
from fiprof.analysis.trace import phases
from fiprof.model.run import Run
from fiprof.reports.report import report
from fiprof.reports.run_report.pictures import pictures
from tests import golden
from tests.fakes.recorded import recorded_bytes
from tests.nsys_exports import PYTHON_THREADS, TWO_RANKS, altered, executed
from tests.recorded_runs import answer, copied, imported, invoke, on_h100, parsed, refusal, served, two_ranks
from tests.test_import import importing
from tests.test_programs import kernel, launch, made_run

told = cache(partial(answer, "story"))
DATA = Path(__file__).parent / "data/story"


def program(
    folder: Path,
    *,
    planted: bool = False,
    growth_us: int = 0,
    stalls: Sequence[int] = (),
    taken: Sequence[int] = (),
    cut: int = 24,
) -> Run:
    """24 steps of four layers of two kernels and a head. planted: a collection of garbage and a kernel, 3 ms each.
    stalls: steps with 3 ms of host work. taken: steps in which 512 MB of memory are. cut: steps whose kernels are there."""
    memory = list[dict[str, Any]]()
    kernels, api, ranges, at = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]](), 1000
    for step in range(24):
        begin = at
        for place, size in enumerate([20, 30] * 4 + [50 + growth_us * step]):
            slow = planted and (step, place) == (17, 2)
            name = "head" if place == 8 else "slow" if slow else "ab"[place % 2]
            size += 3000 * slow
            api.append(launch(at, len(api)))
            if step < cut:
                kernels.append(kernel(at + 5, at + 5 + size, len(kernels), kernel=name, kernel_full=name))
            at += size + 10
        if planted and step == 5:
            ranges.append({"us": (at, at + 3000), "name": "gc generation 2", "domain": "Python"})
            at += 3000
        at += 3000 * (step in stalls)
        if step in taken:
            memory.append(
                {"us": (at, at), "time_ns": 1000 * at, "bytes": 512_000_000, "kind": "Allocation", "address": at}
            )
        end = max(at, begin + 1000 + growth_us * step)
        ranges.append({"us": (begin, end), "name": f"step {step}: {step % 3} requests"})
        at = end + 20
    ranges.sort(key=lambda row: row["us"])
    return made_run(folder, kernels=kernels, api=api, ranges=ranges, memory=memory)


def test_planted_causes_are_named_with_their_step_and_nothing_else_is(tmp_path: Path) -> None:
    found = told(program(tmp_path, planted=True).path)["surprises"]
    assert [(each["number"], each["cause"]["id"]) for each in found] == [(5, "garbage"), (17, "kernels")]
    assert (found[0]["cause"]["range"], found[1]["cause"]["name"]) == ("gc generation 2", "slow")


LAYER = ("norm", "qkv", "attention", "out", "norm2", "up", "down")


def model(folder: Path, form: str, passes: int) -> Run:
    """Passes through twelve layers, the first of which begins with another kernel, as programs annotate them."""
    kernels, api, ranges = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    at = number = 0
    cut = 970 if form == "launches before the trace" else 0
    for each in range(passes):
        if form == "a loader":
            ranges.append({"us": (at, at + 500), "name": "enumerate(Loader).__next__"})
            at += 600
        begin = at
        for place in range(12):
            names = ("embed", "first norm", *LAYER[1:]) if place == 0 else LAYER
            checks = 40 * ("check",) if form == "checks in the second half" and 2 * each >= passes else ()
            for name in (*names, *(("head", "sample", *checks) if place == 11 else ())):
                number, length = number + 1, 1 if form == "operators" and name != "attention" else 8
                if form == "marks in layers" and name == "attention":
                    ranges.append({"us": (at, at + 5), "name": "softmax"})
                elif (cut or form == "operators") and name == LAYER[-1]:
                    ranges.append({"us": (at, at + 5), "name": f"pre_forward (blocks.{place}), op_id = {number}"})
                elif form == "operators":
                    op = "FlashAttention" if name in ("attention", "out") else f"aten::{name}"
                    ranges.append({"us": (at, at + 5), "name": f"{op}, seq = {at}, op_id = {number}"})
                    ranges.append({"us": (at + 5, at + 6), "name": f"aten::empty, op_id = {number}"})
                if each or not cut:
                    api.append(launch(at + 1, number))
                kernels.append(kernel(at + cut + 4, at + cut + 4 + length, number, kernel=name, kernel_full=name))
                at += 20 if form == "checks in the second half" else 10
        if form == "a step that comes once":
            ranges.append({"us": (begin, at), "name": "[Executor] _forward_step 7: 0 ctx reqs, 32 gen reqs"})
        elif form == "never popped":
            depth = len(ranges)
            parent = depth - 2 if depth else None
            ranges.append({"us": (begin - 2, 10**6), "name": "test", "depth": depth // 2, "parent": parent})
            ranges.append({"us": (begin, at), "name": "run", "depth": depth // 2 + 1, "parent": depth})
        at += 100
    return made_run(folder, kernels=kernels, api=api, ranges=ranges)


@pytest.mark.parametrize(
    ("form", "passes", "steps", "count", "layers"),
    [
        ("marks in layers", 5, "step of 12 x softmax", 5, 12),
        ("operators", 2, "step of pre_forward (blocks.*)", 24, None),
        ("launches before the trace", 3, "step of pre_forward (blocks.*)", 25, None),
        ("a step that comes once", 1, "[Executor] _forward_step *", 1, 12),
        ("a loader", 5, "step of enumerate(Loader).__next__", 5, 12),
        ("never popped", 6, "run", 6, 12),
    ],
)
def test_steps_and_layers_are_found_however_a_program_is_annotated(
    tmp_path: Path, form: str, passes: int, steps: str, count: int, layers: int | None
) -> None:
    run = model(tmp_path, form, passes)
    found = told(run.path)
    assert (steps, count) in [(row["what"], row["count"]) for row in found["rows"]]
    assert [each["count"] for each in found["layers"]] == ([layers] if layers else [])
    assert len(found["rows"]) <= 4 and " > test > test" not in invoke("top", str(run.path))[1]
    if form == "a step that comes once":
        answer = top(run, within_steady=True).program
        assert (answer.steady.values["steps"], answer.steady.values["name"]) == (1, steps)
        assert "Steady part: 1 step of" in invoke("top", str(run.path))[1]


def test_steps_of_layers_are_found_where_what_comes_between_them_changes(tmp_path: Path) -> None:
    run = model(tmp_path, "checks in the second half", 24)
    found = told(run.path)
    assert ("step of 11 x norm", 23) in [(row["what"], row["count"]) for row in found["rows"]]
    (change,) = (each for each in found["surprises"] if each["id"] == "kernels_change")
    assert change["more"] == ["40 x check"] and change["at_ms"] == pytest.approx(12 * 1.84, abs=2)


def test_phases_in_turns_are_one_line_and_long_or_missing_names_are_short_to_read(tmp_path: Path) -> None:
    kernels, api, ranges = (list[dict[str, Any]]() for _ in range(3))
    long = "{'op': '" + 40 * "conv2d " + "'}"
    for number in range(32):
        at, turn = 1000 + 100 * number, (long, "", "mlp", f"norm {number // 4}")
        ranges.append({"us": (at, at + 95), "name": turn[number % 4]})
        api.append(launch(at, number))
        kernels.append(kernel(at + 5, at + 85, number, kernel=f"k{number % 4}", kernel_full=f"k{number % 4}"))
    run = made_run(tmp_path, kernels=kernels, api=api, ranges=ranges)
    (turns,) = (each["said"] for each in told(run.path, "--table", "told")["rows"])
    assert turns["id"] == "turns" and turns["count"] == 8
    phases = [each["what"] for each in turns["phases"]]
    assert phases == [trace.folded(long), "a range without a name", "mlp", "norm *"]
    assert long not in invoke("top", str(run.path))[1].replace("\n", "")
    assert long in invoke("top", str(run.path), "--table", "ranges", "--format", "csv")[1]


def paused(folder: Path, pauses: Sequence[int], names: int) -> Path:
    """A loop of some kernels of 20 µs, with a pause of some µs before each."""
    kernels, api, at = [], [], 0
    for number, pause in enumerate(pauses):
        at += pause
        api.append(launch(at, number))
        name = f"k{number % names}"
        kernels.append(kernel(at + 5, at + 25, number, kernel=name, kernel_full=name))
        at += 30
    return made_run(folder, kernels=kernels, api=api).path


def test_long_ones_among_steps_as_short_as_layers(tmp_path: Path) -> None:
    """What an autotuner compiles between launches; not each gap at a layer's end, of which there are many."""
    pauses = [40_000 if number in (402, 802, 1202) else 400 * (number % 100 == 0) for number in range(1600)]
    found = told(paused(tmp_path, pauses, 4))["surprises"]
    assert [round(each["number"], -1) for each in found] == [100, 200, 300]
    assert [each["length_ms"] for each in found] == pytest.approx(3 * [40.1], abs=0.1)


@pytest.mark.parametrize(("names", "every", "half"), [(1, 2, 0), (1, 8, 0), (1, 8, 200), (3, 9, 0), (2, 32, 0)])
def test_steps_are_what_lies_between_regular_pauses(tmp_path: Path, names: int, every: int, half: int) -> None:
    """half: a shorter pause in the middle of each."""
    places = [(number, number % every) for number in range(60 * every)]
    pauses = [800 + number % 200 if not place else half * (2 * place == every) for number, place in places]
    path = paused(tmp_path, pauses, names)
    assert (f"step of {every // names} x k0", 59) in [(row["what"], row["count"]) for row in told(path)["rows"]]
    assert {row["kernels"] for row in told(path, "--table", "steps")["rows"]} == {every}
    assert "No step takes much longer" in invoke("story", str(path))[1]


def test_pauses_without_a_period_are_told_so(tmp_path: Path) -> None:
    path = paused(tmp_path, [1000 * (number**2 % 37 < 6) for number in range(600)], 1)
    assert "step of k0 have a spread of" in invoke("story", str(path))[1]


def test_how_steps_grow(tmp_path: Path) -> None:
    (law,) = told(program(tmp_path, growth_us=100).path)["laws"]
    assert law["slope_us"] == pytest.approx(100, rel=0.05)
    assert (law["reason"]["id"], law["reason"]["name"]) == ("kernels", "head")
    assert "No step takes much longer" not in invoke("story", str(tmp_path))[1]


def test_steps_whose_kernels_the_trace_has_not_got_are_by_themselves(tmp_path: Path) -> None:
    found = told(program(tmp_path, cut=20).path)
    counts = {row["what"]: row["count"] for row in found["rows"]}
    assert (counts["step *"], counts["step *, kernels not in the trace"]) == (20, 4) and not found["surprises"]


def test_slow_steps_that_come_regularly_are_told_so(tmp_path: Path) -> None:
    for number, (stalls, every) in enumerate([(range(2, 24, 4), "regularly"), ((2, 3, 9, 12, 19, 21), "")]):
        (folder := tmp_path / str(number)).mkdir()
        printed = " ".join(invoke("story", str(program(folder, stalls=stalls).path))[1].split())
        assert "6 x step *" in printed and ("; every 4 steps)" in printed) == bool(every)


@pytest.mark.parametrize(
    ("recorded", "name", "count", "layers"),
    [("llama", "decode", 48, 4), ("ranks", "step", 30, 4), ("server", "request", 88, 8)],
)
def test_steps_are_those_of_the_raw_tables(recorded: str, name: str, count: int, layers: int) -> None:
    run = parsed(recorded)
    found = told(run.path)
    (row,) = [row for row in found["rows"] if row["what"] == name]
    assert row["count"] == count and found["layers"][0]["count"] == layers
    steps = [each for each in told(run.path, "--table", "steps")["rows"] if each["what"] == name]
    ranges = run.frame("ranges")
    own = ranges[(ranges["name"] == name) & ~ranges["domain"].isin(("NCCL", "CCCL"))]
    own = own[own["tid"] == own["tid"].iloc[0]] if found["rank"] in (None, 0) else own
    # A step lasts at least as long as its range, and ends with its last kernel.
    lengths = ((own["end_ns"] - own["start_ns"]) / 1e6).tolist()
    assert median(each["length_ms"] for each in steps) >= median(lengths) * 0.999
    assert row["each_ms"] == pytest.approx(median(each["length_ms"] for each in steps))
    kernels = run.frame("kernels")
    mine = kernels[kernels["device"] == found["device"]]
    assert sum(each["kernels"] for each in steps) <= len(mine)
    assert sum(each["busy_ms"] for each in steps) <= (mine["end_ns"] - mine["start_ns"]).sum() / 1e6


def test_the_time_is_told_once_and_so_are_copies() -> None:
    for name in ("llama", "ranks", "graph", "vectors", "server", "window"):
        rows = golden.read()[f"story {name}"]["rows"]
        copied, copies = sum(row["copied_bytes"] for row in rows), parsed(name).frame("copies")
        assert copied == copies["bytes"].sum() or name == "ranks", name
        assert sum(row["share"] or 0 for row in rows) == pytest.approx(1.0)
        assert [row["at_ms"] for row in rows] == sorted(row["at_ms"] for row in rows)


def test_the_host_of_steps_told_as_one_is_that_of_all_and_without_calls_it_is_not_traced(tmp_path: Path) -> None:
    run, _ = importing(tmp_path, PYTHON_THREADS)
    (line,), (_, steps, _) = (told(run, "--table", table)["rows"] for table in ("told", "happened"))
    host = [{"id": "doing", "share": pytest.approx(0.95, abs=0.001), "does": "host"}]
    assert line["said"]["part_0"]["doing"] == host == steps["does"]
    before = told(two_ranks().path, "--table", "told")["rows"][0]["said"]["part_0"]["doing"]
    # From the first kernel at 6,520 ms to the first call at 7,079, of 714.6 ms.
    assert [(each["does"], round(each["share"], 2)) for each in before] == [("untraced", 0.78), ("host", 0.17)]


def test_a_rank_is_asked_for_and_a_run_of_cases_refused() -> None:
    one, other = (told(two_ranks().path, "--rank", str(rank)) for rank in (0, 1))
    assert (one["rank"], other["rank"]) == (0, 1) and one["rows"] != other["rows"]
    assert "has no rank 7" in refusal("story", two_ranks().path, "--rank", "7").message
    for command in (shlex.split(each["command"]) for each in one["again"]):
        assert command[2] == str(two_ranks().path) and invoke(*command[1:])[0] == 0
    refused = refusal("story", parsed("decode").path)
    assert "measured cases one after the other" in refused.message
    assert f"timeline {parsed('decode').path} " in refused.remedy


def own(recorded: str) -> list[dict[str, Any]]:
    """What a recorded program printed of itself, by its own clock in the same process."""
    return [json.loads(line) for line in (DATA / f"{recorded}.jsonl").read_text(encoding="utf-8").splitlines()]


def near(found_ms: float, true_us: float) -> bool:
    """Within 2 % or 50 µs."""
    return abs(1e3 * found_ms - true_us) <= max(50, 0.02 * true_us)


@pytest.mark.parametrize(("recorded", "of"), [("request", "decode"), ("graphs", "decode"), ("batching", "step")])
def test_steps_take_what_the_programs_say(recorded: str, of: str) -> None:
    truth = {str(line.get("decision", line["step"])): line["host_us"] for line in own(recorded) if "host_us" in line}
    steps = {row["what"]: row["length_ms"] for row in told(served(recorded).path, "--table", "steps")["rows"]}
    named = [name for name in truth if name.startswith(of)]
    assert len(named) >= 60
    assert [name for name in named if not near(steps[name], truth[name])] == []


def test_layers_are_the_same_inside_a_graph() -> None:
    both = (each for name in ("request", "graphs") for each in told(served(name).path)["layers"])
    plain, replayed = (each for each in both if each["what"] == "decode step *")
    assert [plain[key] == replayed[key] for key in ("count", "period", "kernels")] == [True] * 3
    assert (plain["count"], plain["period"]) == (8, 13)
    # One of their kernels, BatchDecode, takes 194 µs a step in the graph, where FlashInfer plans it otherwise, and 85.
    assert plain["share"] == pytest.approx(replayed["share"], abs=0.03)


def test_requests_are_what_the_program_says() -> None:
    """Arrival to first token, each token, admission, preemptions."""
    truth = {str(line["request"]): line for line in own("batching") if "request" in line}
    rows = told(served("batching").path, "--table", "requests")["rows"]
    assert [row["request"] for row in rows] == list(truth)
    for row in rows:
        true = truth[row["request"]]
        assert (row["prompt"], row["tokens"], row["preempted"]) == (true["prompt"], true["output"], true["preemptions"])
        assert row["admitted_in"] == f"step {true['admitted_step']}"
        since = [each - row["arrived_ms"] for each in row["token_ms"]]
        assert all(map(near, since, true["token_us"])) and len(since) == len(true["token_us"])
        assert near(row["ttft_ms"], true["ttft_us"])
    assert told(served("batching").path, "--request", "3")["rows"] == rows[3:4]
    assert "has no request 99: it has 0, 1" in refusal("story", served("batching").path, "--request", "99").message


@pytest.mark.parametrize("first", [10, 30])
def test_requests_that_came_before_a_capture(first: int, tmp_path: Path) -> None:
    """Of a server that is traced from some step on: their tokens since then, and nothing of what came before."""
    trace = tmp_path / "trace.sqlite"
    trace.write_bytes(recorded_bytes(DATA / "batching.sqlite"))
    begin = f"(SELECT start - 1000 FROM NVTX_EVENTS WHERE text LIKE 'step {first}: %')"
    timed = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY")
    since = "CREATE TEMP TABLE since AS SELECT " + begin + " AS ns"
    of_ranges = "DELETE FROM NVTX_EVENTS WHERE eventType IN (34, 59) AND start < (SELECT ns FROM since)"
    executed(trace, since, of_ranges, *(f"DELETE FROM {table} WHERE start < (SELECT ns FROM since)" for table in timed))
    run, _ = importing(tmp_path, trace)
    truth = {str(line["request"]): line for line in own("batching") if "request" in line}
    rows = {row["request"]: row for row in told(run, "--table", "requests")["rows"]}
    before = [row for row in rows.values() if row["arrived_ms"] is None]
    assert len(before) >= 3 and all(row["ttft_ms"] is row["first_token_ms"] is None for row in before)
    for row in rows.values():
        gaps, true = np.diff(row["token_ms"]), np.diff(truth[row["request"]]["token_us"])
        assert len(gaps) >= 2 and all(map(near, gaps, true[len(true) - len(gaps) :]))
    assert "; ITL " in invoke("story", str(run))[1]
    assert ";" in invoke("story", str(run), "--table", "requests", "--format", "csv")[1]


def test_processes_that_share_a_gpu_each_have_their_steps(tmp_path: Path) -> None:
    """Two ranks as they were recorded, and with all of their work on one GPU: the same ranges are steps of each."""
    tables = (
        *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")),
        "TARGET_INFO_CUDA_CONTEXT_INFO",
    )
    one_gpu = [f"UPDATE {table} SET deviceId = 0" for table in tables]
    found = []
    for name, sql in (("apart", ()), ("shared", one_gpu)):
        (tmp_path / name).mkdir()
        trace = altered(tmp_path / name, *sql, source=TWO_RANKS)
        run, _ = importing(tmp_path / name, trace)
        stories = [told(run, "--rank", rank, "--table", "steps") for rank in ("0", "1")]
        found.append([[row["what"] for row in story["rows"]] for story in stories])
        assert [story["summary"][0].get("ranks") for story in stories] == ([2, 2] if name == "shared" else [None, None])
    assert found[0] == found[1] and all(len(rows) > 5 for rows in found[1])


def test_the_story_of_a_server_is_told_in_order() -> None:
    """When request 3 was admitted, which step was slow and why, who was preempted; every step in one line or the other."""
    rows = told(served("batching").path, "--table", "told")["rows"]
    assert [row["at_ms"] for row in rows] == sorted(row["at_ms"] for row in rows)
    said = {row["said"]["what"]: row["said"] for row in rows if row["said"]["id"] == "step"}
    parts = {step: [part for part in line.values() if isinstance(part, dict)] for step, line in said.items()}
    events = {step: {part["id"]: part for part in of} for step, of in parts.items()}
    assert events["step 6"]["admitted"]["prompt"] == 60 and "slow" in events["step 18"]
    assert [events[step]["preempted"]["who"] for step in ("step 40", "step 54")] == [["r14"], ["r15"]]
    assert [events["step 54"]["preempted"][key] for key in ("level", "used", "of")] == ["pages", 111, 112]
    assert events["step 42"]["readmitted"]["who"] == ["r14"]
    folded = [row["said"] for row in rows if row["said"]["id"] == "steps" and "step" in row["said"]["first"]]
    assert len(said) + sum(each["count"] for each in folded) == 84
    printed = {"happened": ",77% host work; 14% launching,", "told": "step 5, 3.99 ms, GPU busy", "steps": ",r0,120,"}
    for table, words in printed.items():
        assert words in invoke("story", str(served("batching").path), "--table", table, "--format", "csv")[1]
    again = [each["command"] for each in told(served("batching").path)["again"]]
    assert all(each.startswith(f"fiprof story {served('batching').path} --") for each in again)


def test_steps_that_wait_for_a_late_rank() -> None:
    """Rank 1 sleeps in three of the 30 steps; step 8 waits for its first use of a library. Each step says who came late,
    by how much, and what it did."""
    run = parsed("ranks")
    found = [each for each in told(run.path)["surprises"] if each.get("cause", {}).get("id") == "late_rank"]
    doing = {each["number"]: each["cause"]["doing"]["range"] for each in found}
    assert doing == {5: "late", 8: "first use", 15: "late", 25: "late"}
    assert {each["cause"]["late_rank"] for each in found} == {1}
    steps = {row["number"]: row for row in told(run.path, "--table", "steps")["rows"] if row["what"] == "step"}
    slept = re.search(r"rank 1 late by \[(.+)\] ms", (run.path / "logs/nsys.log").read_text(encoding="utf-8"))
    assert slept is not None
    for number, ms in zip((5, 15, 25), map(float, slept[1].split(", ")), strict=True):
        late = steps[number]
        assert (late["late_rank"], late["meanwhile"]["range"]) == (1, "late")
        assert abs(late["late_ms"] - ms) < 0.05 * ms
    of_rank = {each["number"]: each["cause"] for each in told(run.path, "--rank", "1")["surprises"] if "cause" in each}
    assert {(of_rank[number]["id"], of_rank[number]["range"]) for number in (5, 15, 25)} == {("host", "late")}


def test_of_a_million_ranges_steps_are_one_name_and_the_same_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each step's name would be a path of its own, those that count far are one; layers stay apart."""
    path = served("batching").path
    before = told(path)
    monkeypatch.setattr(trace, "FEWER_RANGES", 0)
    monkeypatch.setattr(trace, "COUNTS_FAR", 20)
    after = answer("story", path)
    assert len(phases(Run(path))) < 40
    for part in ("rows", "surprises", "layers", "served", "plans"):
        assert after[part] == before[part], part


def test_the_law_over_the_kv_cache_is_drawn_through_the_steps_that_it_is_of() -> None:
    """Recomputed: the steps' GPU time over what the program says was in its cache."""
    run = served("batching")
    what = story(run, top(run, within_steady=True).program)
    (picture,) = [each for each in pictures(what, run) if each["x"] == "tokens in the KV cache"]
    (group,), (line,) = picture["groups"], picture["lines"]
    kv, busy = group["xy"][::2], group["xy"][1::2]
    assert (line[0], line[2]) == (min(kv), max(kv))
    drawn = np.interp(kv, line[::2], line[1::2])
    assert np.percentile(np.abs(np.array(busy) / drawn - 1), 90) < 0.02
    by_step = {row["what"].partition(":")[0]: row["kv_tokens"] for row in what.rows("steps") if row["kv_tokens"]}
    # Step 1 computes request 0's second token: its prompt and the first.
    assert by_step["step 1"] == 121


def test_what_a_token_in_the_kv_cache_costs_beside_its_bytes(tmp_path: Path) -> None:
    """Eight layers of 8 heads of 128 numbers, keys and values, 2 bytes each; the H200's DRAM by nsys. A program says it
    in a mark, or the user does."""
    trace = tmp_path / "trace.sqlite"
    trace.write_bytes(recorded_bytes(DATA / "batching.sqlite"))
    executed(
        trace,
        "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) SELECT start, 34,"
        " 'KV cache: kv_bytes_per_token 32768', globalTid, domainId FROM NVTX_EVENTS WHERE text LIKE 'r0 arrives%'",
    )
    run, _ = importing(tmp_path, trace)
    asked = told(served("batching").path, "--kv-bytes", "32768")["served"]
    for laws in (told(run)["served"], asked):
        (law,) = (each for each in laws if each["id"] == "kv_law")
        (cost,) = (each for each in laws if each["id"] == "kv_cost")
        assert (cost["kv_bytes"], round(cost["gb_per_s"]), cost["basis"]["id"]) == (2 * 8 * 8 * 128 * 2, 4814, "peak")
        assert cost["times"] == pytest.approx(law["kv_ns"] * 4814 / 32768, rel=1e-3)
    assert not any(each["id"] == "kv_cost" for each in told(served("batching").path)["served"])


@pytest.mark.parametrize("recorded", ["request", "graphs"])
def test_one_request_is_what_the_program_says(recorded: str) -> None:
    true = own(recorded)[-1]
    (row,) = told(served(recorded).path, "--table", "requests")["rows"]
    assert near(row["ttft_ms"], true["ttft_us"]) and near(row["itl_median_ms"], true["itl_us"]["median"])
    assert row["tokens"] == true["tokens"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("step 20: admit r3 r4, prefill 512 tokens, decode 7, pages 231/256, queue 2",
         {"admit": ("r3", "r4"), "prefill": 512, "decode": 7, "pages": 231, "of_pages": 256, "queue": 2}),
        ("execute_context_1(120)_generation_3(4)",
         {"context": 1, "context_tokens": 120, "generation": 3, "generation_tokens": 4}),
        ("execute_40_context_3(sq120sk400)_generation_37(sq37sk900)",
         {"context": 3, "context_tokens": 120, "generation": 37, "generation_tokens": 37}),
        ("[Executor] _forward_step 7: 1 ctx reqs, 120 ctx tokens, 32 gen reqs",
         {"ctx_reqs": 1, "ctx_tokens": 120, "gen_reqs": 32}),
        ("step[DECODE bs=3 toks=12]", {"bs": 3, "toks": 12}), ("decode step 12", {}),
    ],
)  # fmt: skip
def test_what_a_range_says(text: str, found: dict[str, Any]) -> None:
    assert says(text) == found


def test_a_slow_step_is_named_with_its_cause_and_what_to_change_first() -> None:
    steps = {line["step"]: line["host_us"] / 1e3 for line in own("batching") if "step" in line}
    story = told(served("batching").path)
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
    inside = [called[called["start_ns_call"].between(*each)] for each in plans[["start_ns", "end_ns"]].to_numpy()]
    (row,) = [each for each in told(served("batching").path)["plans"] if each["planned"] == "step *"]
    host_us = median((plans["end_ns"] - plans["start_ns"]) / 1e3)
    assert (row["count"], row["host_us"]) == (84, pytest.approx(host_us))
    assert row["copies"] == pytest.approx(sum(map(len, inside)) / 84)
    assert row["copied_bytes"] == pytest.approx(sum(each["bytes"].sum() for each in inside) / 84)
    layers = row["layers"]
    least_us, layer_us = (layers - 1) * row["layer_us"], layers * row["layer_us"]
    assert host_us / (host_us + layer_us) <= SMALL < host_us / (host_us + least_us)


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


SURPRISES = DATA.with_name("surprises")
PRINTED = {line["recording"]: line for line in own("../surprises/printed")}
"""Recording -> what its process printed of itself: step_us of each step, on the host's clock."""
LAYER_0: dict[str, Any] = {"range": "layer 0"}
FUNCTION: dict[str, Any] = {"id": "function", "range": "decode"}
SLOW: dict[str, dict[str, Any]] = {
    "sleep": FUNCTION | {"name": "sleep (surprises.py:42)"},
    "gc": FUNCTION | {"name": "gc (surprises.py:45)"},
    "item": LAYER_0 | {"id": "loading", "name": "cuLibraryLoadData"},
    "allocation": {"id": "allocating", "range": "decode", "name": "cudaMalloc", "count": 4},
    "compile": {"id": "compiling", "range": "decode"},
    "kernel": LAYER_0 | {"id": "loading", "name": "cuLibraryLoadData", "count": 3},
}
"""What the cause of the planted step says at least. The first ``.item()`` and another kernel load its code."""
FIRST_USE = {"item": "reduce_kernel", "compile": "scale", "kernel": "radixSortKVInPlace"}


def surprises(name: str) -> list[dict[str, Any]]:
    path = imported(SURPRISES / f"{name}.sqlite.xz", name=name).path
    found: list[dict[str, Any]] = answer("story", path)["surprises"]
    return found


@pytest.mark.parametrize("name", SLOW)
def test_what_was_planted_in_a_step_is_named(name: str) -> None:
    step, *others = surprises(name)
    assert (step["id"], step["number"]) == ("slow_step", PRINTED[name]["at"])
    assert step["cause"].items() >= SLOW[name].items()
    assert 1e3 * step["length_ms"] == pytest.approx(PRINTED[name]["step_us"][step["number"]], rel=0.02, abs=50)
    assert FIRST_USE.get(name, "") in " ".join(step["first_use"])
    assert [other["id"] for other in others] == (["kernels_change"] if name == "kernel" else [])
    path, number = imported(SURPRISES / f"{name}.sqlite.xz", name=name).path, step["number"]
    rows = told(path, "--step", str(number))["rows"]
    assert [row["number"] for row in rows] == [*range(number - 2, number + 3)]
    assert name != "allocation" or rows[2]["allocating_ms"] == 0.443808
    around = told(path, "--around", str(rows[2]["at_ms"] + 0.1))["rows"]
    assert number in [row["number"] for row in around]
    assert "there is no step around 1 ms: they lie between" in refusal("story", path, "--around", "1").message


def test_a_layer_that_is_slow_in_every_step() -> None:
    *steps, layer = surprises("slow-layer")
    assert (layer["id"], layer["which"]) == ("slow_layer", ["layer 5"])
    assert (layer["kernels"], layer["usual_kernels"]) == (9, 3)
    times = PRINTED["slow-layer"]["step_us"]
    assert [step["number"] for step in steps] == [n for n, us in enumerate(times) if us > 1.5 * median(times)] == [31]


def test_places_in_each_step_that_take_longer_are_told(tmp_path: Path) -> None:
    """A range that comes six times in each step, of which the second and third take twice as long in all of them."""
    kernels, api, ranges, at = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]](), 1000
    for image in range(8):
        parent, begin = len(ranges), at
        ranges.append({"name": "image"})
        for place in range(6):
            us = 800 + 7 * image + 800 * (place in (1, 2))
            api.append(launch(at, len(api)))
            kernels.append(kernel(at + 5, at + us - 5, len(kernels)))
            ranges.append({"us": (at, at + us), "name": "denoise", "depth": 1, "parent": parent})
            at += us
        ranges[parent]["us"] = (begin, at)
    (uneven,) = told(made_run(tmp_path, kernels=kernels, api=api, ranges=ranges).path)["surprises"]
    assert (uneven["what"], uneven["name"], uneven["count"], uneven["which"]) == ("image", "denoise", 6, ["1 to 2"])
    assert (uneven["slow_ms"], uneven["usual_ms"]) == (pytest.approx(1.6245), pytest.approx(0.8245))


def test_memory_that_grows_and_is_not_given_back() -> None:
    (leak,) = surprises("leak")
    assert (leak["id"], leak["what"]) == ("leak", "step 30")  # the first 64 MB fit into what torch had kept
    assert leak["more_mb"] / leak["count"] == pytest.approx(67.1, abs=0.1)


@pytest.mark.parametrize(("taken", "grows"), [((0, 1, 4, 10, 14, 20), True), ((0, 1, 2, 3, 4, 5), False)])
def test_memory_is_taken_much_at_a_time(tmp_path: Path, taken: Sequence[int], *, grows: bool) -> None:
    """Until the end, or in the first steps alone, as of any program."""
    found = [each for each in told(program(tmp_path, taken=taken).path)["surprises"] if each["id"] == "leak"]
    assert len(found) == grows
    # What the first quarter took may be the program's.
    assert all(each["more_mb"] == 3 * 512.0 and each["count"] == 3 for each in found)


@pytest.mark.parametrize("name", [name for name in PRINTED if name.startswith("clean")])
def test_nothing_surprises_where_nothing_was_planted(name: str) -> None:
    assert surprises(name) == []


def test_steps_that_take_another_time_for_good() -> None:
    """The first of two requests to a model: its 24 steps take ten times as long as those of the second."""
    run = on_h100("llama").path
    (pace,) = answer("story", run)["surprises"]
    assert (pace["id"], pace["what"], pace["number"]) == ("pace", "decode", 24)
    told_ = [line["said"] for line in answer("story", run, "--table", "told")["rows"]]
    before, after = folded = [line for line in told_ if line["id"] == "steps"]
    assert [line["count"] for line in folded] == [23, 24] and pace["reason"]["id"] == "host"
    assert [pace["before_ms"], pace["after_ms"]] == [before["each_ms"], after["each_ms"]]
    # The first of all is held against those after it, not against the second request's.
    first, *others = [step["length_ms"] for step in answer("story", run, "--table", "steps")["rows"]][:24]
    excess_ms = answer("top", run)["program"]["startup"]["first_step_excess_ms"]
    assert excess_ms == pytest.approx(first - median(others), rel=0.02)
