"""``fiprof story``: phases and steps in order of time, what surprises, what repeats inside a step."""

import json
import lzma
import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fiprof.analysis import trace
from fiprof.analysis.requests import says
from fiprof.analysis.steady import repeated
from fiprof.analysis.story import story
from fiprof.analysis.top import top
from fiprof.analysis.trace import phases
from fiprof.model.run import Run
from fiprof.reports.run_report.pictures import pictures
from tests.recorded_runs import invoke, parsed, profiled, refusal, two_ranks
from tests.test_programs import kernel, launch, made_run

STEPS = 24
DATA = Path(__file__).parent / "data/story"


def told(run: Path, *words: str) -> dict[str, Any]:
    status, printed = invoke("story", str(run), *words, "--format", "json")
    assert status == 0
    found: dict[str, Any] = json.loads(printed)
    return found


def program(folder: Path, *, planted: bool, growth_us: int = 0) -> Run:
    """Steps of four layers of two kernels and a head; planted: what takes 3 ms more in some of them."""
    kernels, api = list[dict[str, Any]](), list[dict[str, Any]]()
    ranges, at, number = list[dict[str, Any]](), 1000, 0
    for step in range(STEPS):
        begin, name = at, "a"
        trouble = {
            3: "cuLibraryLoadData",
            5: "gc",
            7: "host",
            11: "cudaMalloc",
            13: "cudaStreamSynchronize",
            17: "kernel",
        }
        what = trouble.get(step) if planted else None
        sizes = [20, 30] * 4 + [50 + growth_us * step]
        for place, size in enumerate(sizes):
            number += 1
            api.append(launch(at, number))
            long = 3000 if what == "kernel" and place == 2 else 0
            name = "head" if place == 8 else ("slow" if long else "ab"[place % 2])
            kernels.append(kernel(at + 5, at + 5 + size + long, number, kernel=name, kernel_full=name))
            at += size + long + 10
            if place == 4 and what not in (None, "kernel"):
                inner = {"name": "gc generation 2", "domain": "Python"} if what == "gc" else {"name": "sample"}
                ranges.append({"us": (at, at + 3000), "depth": 1, "parent": None, **inner})
                if what not in ("host", "gc"):
                    api.append({"us": (at, at + 2900), "correlation": 10_000 + step, "name": what})
                at += 3000
        end = at = max(at, begin + 1000 + growth_us * step)
        ranges.append({"us": (begin, end), "name": f"step {step}: {step % 3} requests"})
        at += 20
    ranges.sort(key=lambda row: (row["us"][0], -row["us"][1]))
    outer = None
    for place, row in enumerate(ranges):
        if row["name"] == "sample":
            row["parent"] = outer
        elif "domain" in row:
            row["depth"] = 0
        else:
            outer = place
    api.sort(key=lambda row: row["us"][0])
    return made_run(folder, kernels=kernels, api=api, ranges=ranges)


def test_planted_causes_are_named_with_their_step_and_nothing_else_is(tmp_path: Path) -> None:
    run = program(tmp_path, planted=True)
    found = {each["number"]: each["cause"] for each in told(run.path)["surprises"]}
    assert {number: cause["id"] for number, cause in found.items()} == {
        3: "loading",
        5: "garbage",
        7: "host",
        11: "allocating",
        13: "waiting",
        17: "kernels",
    }
    assert found[3]["name"] == "cuLibraryLoadData" and found[7]["range"] == "sample"
    assert found[11]["name"] == "cudaMalloc" and found[17]["name"] == "slow"
    assert (found[13]["name"], found[13]["count"]) == ("cudaStreamSynchronize", 1)
    printed = invoke("story", str(run.path))[1]
    assert "step 11: 3.340 ms where 1.000 are usual: allocating (cudaMalloc), in sample." in " ".join(printed.split())


def test_a_clean_program_has_no_surprise(tmp_path: Path) -> None:
    found = told(program(tmp_path, planted=False).path)
    assert (found["surprises"], found["laws"]) == ([], [])
    (layers,) = found["layers"]
    assert (layers["count"], layers["period"], layers["kernels"]) == (4, 2, ["a", "b"])
    (steps,) = [row for row in found["rows"] if row["what"] == "step *"]
    assert (steps["count"], steps["each_ms"], steps["kernels"]) == (STEPS, 1.0, 9)
    assert steps["busy"] == pytest.approx((4 * 50 + 50) / 1000)


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
            for name in (*names, *(("head", "sample") if place == 11 else ())):
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
                at += 10
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
        ("marks in layers", 5, "steps of 12 x softmax", 5, 12),
        ("operators", 2, "steps of pre_forward (blocks.*)", 24, None),
        ("launches before the trace", 3, "steps of pre_forward (blocks.*)", 25, None),
        ("a step that comes once", 1, "[Executor] _forward_step *", 1, 12),
        ("a loader", 5, "steps of enumerate(Loader).__next__", 5, 12),
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


def test_clean_programs_have_no_surprise(tmp_path: Path) -> None:
    """Steps of 1 ms whose host work and kernels vary, one in twenty by a quarter, and which use other kernels at first."""
    found = list[Any]()
    for seed in range(10):
        draw, at = random.Random(seed), 1000
        kernels, api, ranges = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
        for step in range(80):
            begin = at
            for place in range(9):
                api.append(launch(at, len(api)))
                name = "first" if step == 0 else "abc"[place % 3]
                size = round(30 * draw.lognormvariate(0, 0.05))
                kernels.append(kernel(at + 5, at + 5 + size, len(api) - 1, kernel=name, kernel_full=name))
                at += round(100 * draw.lognormvariate(0, 0.1)) + (20_000 if step == place == 0 else 0)
            at += draw.choice([0] * 19 + [250])
            ranges.append({"us": (begin, at), "name": f"step {step}"})
            at += 10
        folder = tmp_path / str(seed)
        folder.mkdir()
        made = told(made_run(folder, kernels=kernels, api=api, ranges=ranges).path)
        assert [each["number"] for each in made["first_steps"]] == [0]
        found += made["surprises"]
    assert len(found) <= 1


def steps_of(folder: Path, layers: Callable[[int, int], list[tuple[str, int]]], grows: range = range(0)) -> Run:
    """Forty steps of eight layers; layers: step and layer -> its kernels, each with its µs. grows: steps that keep 1 MB."""
    kernels, api, ranges, memory = (list[dict[str, Any]]() for _ in range(4))
    at, total = 1000, 0
    for step in range(40):
        ranges.append({"us": (at, at), "name": f"step {step}"})
        outer = len(ranges) - 1
        for layer in range(8):
            begin = at
            for name, size in layers(step, layer):
                api.append(launch(at, len(api)))
                kernels.append(kernel(at + 5, at + 5 + size, len(api) - 1, kernel=name, kernel_full=name))
                at += size + 10
            ranges.append({"us": (begin, at), "name": f"layer {layer}", "depth": 1, "parent": outer})
        if step in grows:
            total += 1_000_000
            given = {"kind": "Allocation", "bytes": 1_000_000, "device": 0, "pid": 1, "address": total}
            memory.append({"us": (at, at), "time_ns": at * 1000, "total_bytes": total, **given})
        at += 100
        ranges[outer]["us"] = (ranges[outer]["us"][0], at)
        at += 5
    return made_run(folder, kernels=kernels, api=api, ranges=ranges, memory=memory)


def test_a_slow_layer_a_change_of_kernels_and_a_leak_are_named(tmp_path: Path) -> None:
    def layers(step: int, layer: int) -> list[tuple[str, int]]:
        return [("a", 20), ("b" if step < 20 else "c", 30)] * (4 if layer == 5 else 1)

    found = {each["id"]: each for each in told(steps_of(tmp_path, layers, range(25, 40)).path)["surprises"]}
    assert set(found) == {"slow_layer", "kernels_change", "leak"}
    assert (found["slow_layer"]["which"], found["slow_layer"]["longest_us"]) == (["layer 5"], 200)
    assert (found["kernels_change"]["what"], found["kernels_change"]["more"]) == ("step 20", ["11 x c"])
    assert (found["leak"]["what"], found["leak"]["more_mb"]) == ("step 25", 15)


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


def test_how_steps_grow(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    run = program(folder, planted=False, growth_us=100)
    (law,) = told(run.path)["laws"]
    assert law["slope_us"] == pytest.approx(100, rel=0.05)


def test_one_step_and_those_around_a_time(tmp_path: Path) -> None:
    run = program(tmp_path, planted=True)
    rows = told(run.path, "--step", "11")["rows"]
    assert [row["number"] for row in rows] == [9, 10, 11, 12, 13]
    assert rows[2]["what"] == "step 11: 2 requests" and rows[2]["allocating_ms"] == pytest.approx(2.9)
    around = told(run.path, "--around", str(rows[2]["at_ms"] + 0.1))["rows"]
    assert 11 in [row["number"] for row in around]


@pytest.mark.parametrize(
    ("recorded", "name", "count", "layers"),
    [("llama", "decode", 48, 4), ("ranks", "step", 30, 4), ("server", "request", 88, 8)],
)
def test_steps_are_those_of_the_raw_tables(recorded: str, name: str, count: int, layers: int) -> None:
    run = profiled(recorded)
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


def test_steps_without_ranges() -> None:
    found = told(profiled("vectors").path)
    (row,) = [row for row in found["rows"] if row["what"] == "steps of polynomial"]
    assert row["count"] == 48 and row["each_ms"] == pytest.approx(2.134, abs=0.01)
    copies = pq.read_table(profiled("vectors").path / "tables/copies.parquet").to_pylist()
    assert sum(each["copied_bytes"] for each in found["rows"]) == sum(each["bytes"] for each in copies)


def test_the_time_is_told_once() -> None:
    for name in ("llama", "ranks", "graph", "vectors", "server", "window"):
        rows = told(profiled(name).path)["rows"]
        assert sum(row["share"] or 0 for row in rows) == pytest.approx(1.0)
        assert [row["at_ms"] for row in rows] == sorted(row["at_ms"] for row in rows)


def test_a_rank_is_asked_for() -> None:
    one, other = (told(two_ranks().path, "--rank", str(rank)) for rank in (0, 1))
    assert (one["rank"], other["rank"]) == (0, 1) and one["rows"] != other["rows"]
    assert "has no rank 7" in refusal("story", two_ranks().path, "--rank", "7").message


def test_a_run_of_cases_is_refused() -> None:
    error = refusal("story", parsed("decode").path)
    assert "measured cases one after the other" in error.message and "fiprof timeline" in (error.remedy or "")


def test_what_repeats_in_a_sequence() -> None:
    assert repeated(["x", *"abc" * 5, "y"]) == (1, 3, 5)
    assert repeated(list("abcdefgh")) is None
    assert repeated(["a"] * 20) is None


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The recorded programs of ``tests/data/story``, imported."""
    found = {}
    for name in ("request", "graphs", "batching"):
        folder = tmp_path_factory.mktemp(name)
        (folder / "trace.sqlite").write_bytes(lzma.decompress((DATA / f"{name}.sqlite.xz").read_bytes()))
        assert invoke("import", str(folder / "trace.sqlite"), "--name", name, "--artifacts", str(folder))[0] == 0
        (found[name],) = folder.glob(f"*-{name}")
    return found


@pytest.mark.parametrize(("recorded", "of"), [("request", "decode"), ("graphs", "decode"), ("batching", "step")])
def test_steps_take_what_the_programs_say(recorded: str, of: str, recordings: dict[str, Path]) -> None:
    """Within 2 % or 50 µs of the program's own clock, in the same process."""
    said = [json.loads(line) for line in (DATA / f"{recorded}.jsonl").read_text(encoding="utf-8").splitlines()]
    truth = {str(line.get("decision", line["step"])): line["host_us"] for line in said if "host_us" in line}
    steps = {row["what"]: row["length_ms"] * 1e3 for row in told(recordings[recorded], "--table", "steps")["rows"]}
    named = [name for name in truth if name.startswith(of)]
    assert len(named) >= 60
    for name in named:
        assert abs(steps[name] - truth[name]) <= max(50, 0.02 * truth[name]), name


def test_layers_are_the_same_inside_a_graph(recordings: dict[str, Path]) -> None:
    plain, replayed = (
        next(each for each in told(recordings[name])["layers"] if each["what"] == "decode step *")
        for name in ("request", "graphs")
    )
    assert (plain["count"], plain["period"]) == (replayed["count"], replayed["period"]) == (8, 13)
    assert plain["kernels"] == replayed["kernels"]
    # One of their kernels, BatchDecode, takes 194 µs a step in the graph, where FlashInfer plans it otherwise, and 85.
    assert plain["share"] == pytest.approx(replayed["share"], abs=0.03)


def test_requests_are_what_the_program_says(recordings: dict[str, Path]) -> None:
    """Arrival to first token, each token, admission, preemptions: within 2 % or 50 µs of the program's own clock."""
    lines = [json.loads(line) for line in (DATA / "batching.jsonl").read_text(encoding="utf-8").splitlines()]
    truth = {str(line["request"]): line for line in lines if "request" in line}
    rows = told(recordings["batching"], "--table", "requests")["rows"]
    assert [row["request"] for row in rows] == list(truth)
    for row in rows:
        true = truth[row["request"]]
        assert (row["prompt"], row["tokens"], row["preempted"]) == (true["prompt"], true["output"], true["preemptions"])
        assert row["admitted_in"] == f"step {true['admitted_step']}"
        for found, said in zip(row["token_ms"], true["token_us"], strict=True):
            assert abs(1e3 * (found - row["arrived_ms"]) - said) <= max(50, 0.02 * said)
        assert abs(1e3 * row["ttft_ms"] - true["ttft_us"]) <= max(50, 0.02 * true["ttft_us"])


def test_the_story_of_a_server_is_told_in_order(recordings: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """When request 3 was admitted, which step was slow and why, who was preempted; every step in one line or the other."""
    rows = told(recordings["batching"], "--table", "told")["rows"]
    assert [row["at_ms"] for row in rows] == sorted(row["at_ms"] for row in rows)
    said = {row["said"]["what"]: row["said"] for row in rows if row["said"]["id"] == "step"}

    def events(step: str) -> list[tuple[str, Any]]:
        parts = [value for value in said[step].values() if isinstance(value, dict)]
        return [(each["id"], each["who"] if "who" in each else each["id"]) for each in parts]

    (admitted,) = [value for value in said["step 6"].values() if isinstance(value, dict) and value["id"] == "admitted"]
    assert (admitted["id"], admitted["prompt"]) == ("admitted", 60)
    assert ("preempted", ["r14"]) in events("step 40") and ("preempted", ["r15"]) in events("step 54")
    (preempted,) = [
        value for value in said["step 54"].values() if isinstance(value, dict) and value["id"] == "preempted"
    ]
    assert (preempted["level"], preempted["used"], preempted["of"]) == ("pages", 111, 112)
    assert ("readmitted", ["r14"]) in events("step 42") and "slow" in dict(events("step 18"))
    folded = sum(
        row["said"]["count"] for row in rows if row["said"]["id"] == "steps" and "step" in row["said"]["first"]
    )
    assert len(said) + folded == 84
    monkeypatch.setenv("COLUMNS", "120")
    assert 60 <= len(invoke("story", str(recordings["batching"]))[1].splitlines()) <= 140


def test_steps_that_wait_for_a_late_rank() -> None:
    """Rank 1 sleeps in three of the 30 steps; step 8 waits for its first use of a library. Each step says who came late,
    by how much, and what it did."""
    run = profiled("ranks")
    found = [each for each in told(run.path)["surprises"] if each.get("cause", {}).get("id") == "late_rank"]
    assert {each["number"]: each["cause"]["doing"]["range"] for each in found} == {
        5: "late",
        8: "first use",
        15: "late",
        25: "late",
    }
    assert {each["cause"]["late_rank"] for each in found} == {1}
    steps = {row["number"]: row for row in told(run.path, "--table", "steps")["rows"] if row["what"] == "step"}
    slept = re.search(r"rank 1 late by \[(.+)\] ms", (run.path / "logs/nsys.log").read_text(encoding="utf-8"))
    assert slept is not None
    for number, ms in zip((5, 15, 25), map(float, slept[1].split(", ")), strict=True):
        late = steps[number]
        assert (late["late_rank"], late["meanwhile"]["range"]) == (1, "late")
        assert abs(late["late_ms"] - ms) < 0.05 * ms
    of_rank = {each["number"]: each["cause"] for each in told(run.path, "--rank", "1")["surprises"] if "cause" in each}
    assert {number: of_rank[number]["id"] for number in (5, 15, 25)} == dict.fromkeys((5, 15, 25), "host")
    assert {of_rank[number]["range"] for number in (5, 15, 25)} == {"late"}


def test_of_a_million_ranges_steps_are_one_name_and_the_same_story(
    recordings: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each step's name would be a path of its own, those that count far are one; layers stay apart."""
    before = told(recordings["batching"])
    monkeypatch.setattr(trace, "FEWER_RANGES", 0)
    monkeypatch.setattr(trace, "COUNTS_FAR", 20)
    after = told(recordings["batching"])
    assert len(phases(Run(recordings["batching"]))) < 40
    for part in ("rows", "surprises", "layers", "served", "plans"):
        assert after[part] == before[part], part


def test_the_law_over_the_kv_cache_is_drawn_through_the_steps_that_it_is_of(recordings: dict[str, Path]) -> None:
    """Recomputed: the steps' GPU time over what the program says was in its cache."""
    run = Run(recordings["batching"])
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


def test_what_a_token_in_the_kv_cache_costs_beside_its_bytes(recordings: dict[str, Path], tmp_path: Path) -> None:
    """Eight layers of 8 heads of 128 numbers, keys and values, 2 bytes each; the H200's DRAM by nsys. A program says it
    in a mark, or the user does."""
    trace = tmp_path / "trace.sqlite"
    trace.write_bytes(lzma.decompress((DATA / "batching.sqlite.xz").read_bytes()))
    with sqlite3.connect(trace) as database:
        database.execute(
            "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) SELECT start, 34,"
            " 'KV cache: kv_bytes_per_token 32768', globalTid, domainId FROM NVTX_EVENTS WHERE text LIKE 'r0 arrives%'"
        )
    assert invoke("import", str(trace), "--artifacts", str(tmp_path / "runs"), "--quiet")[0] == 0
    (run,) = (tmp_path / "runs").glob("*/run.json")
    asked = told(recordings["batching"], "--kv-bytes", "32768")["served"]
    for served in (told(run.parent)["served"], asked):
        (law,) = (each for each in served if each["id"] == "kv_law")
        (cost,) = (each for each in served if each["id"] == "kv_cost")
        assert (cost["kv_bytes"], round(cost["gb_per_s"]), cost["basis"]["id"]) == (2 * 8 * 8 * 128 * 2, 4814, "peak")
        assert cost["times"] == pytest.approx(law["kv_ns"] * 4814 / 32768, rel=1e-3)
    assert not any(each["id"] == "kv_cost" for each in told(recordings["batching"])["served"])


def test_one_request_is_asked_for(recordings: dict[str, Path]) -> None:
    (row,) = told(recordings["batching"], "--request", "3")["rows"]
    assert (row["request"], row["admitted_in"]) == ("3", "step 6")
    assert "has no request 99: it has 0, 1" in refusal("story", recordings["batching"], "--request", "99").message


@pytest.mark.parametrize("recorded", ["request", "graphs"])
def test_one_request_is_what_the_program_says(recorded: str, recordings: dict[str, Path]) -> None:
    true = json.loads((DATA / f"{recorded}.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    (row,) = told(recordings[recorded], "--table", "requests")["rows"]
    for found, said in (("ttft_ms", true["ttft_us"]), ("itl_median_ms", true["itl_us"]["median"])):
        assert abs(1e3 * row[found] - said) <= max(50, 0.02 * said)
    assert row["tokens"] == true["tokens"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "step 20: admit r3 r4, prefill 512 tokens, decode 7, pages 231/256, queue 2",
            {"admit": ("r3", "r4"), "prefill": 512, "decode": 7, "pages": 231, "of_pages": 256, "queue": 2},
        ),
        (
            "execute_context_1(120)_generation_3(4)",
            {"context": 1, "context_tokens": 120, "generation": 3, "generation_tokens": 4},
        ),
        (
            "execute_40_context_3(sq120sk400)_generation_37(sq37sk900)",
            {"context": 3, "context_tokens": 120, "generation": 37, "generation_tokens": 37},
        ),
        (
            "[Executor] _forward_step 7: 1 ctx reqs, 120 ctx tokens, 32 gen reqs",
            {"ctx_reqs": 1, "ctx_tokens": 120, "gen_reqs": 32},
        ),
        ("step[DECODE bs=3 toks=12]", {"bs": 3, "toks": 12}),
        ("decode step 12", {}),
    ],
)
def test_what_a_range_says(text: str, found: dict[str, Any]) -> None:
    assert says(text) == found
