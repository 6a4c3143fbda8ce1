"""A program's verdict: the first line of ``top`` and ``verdict``, which part it is about, and made-up causes."""

import json
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.program import Program, Waste
from fiprof.analysis.top import top
from fiprof.model.run import Run
from tests.nsys_exports import PYTHON_THREADS
from tests.recorded_runs import RUNS, invoke, parsed, profiled
from tests.test_programs import Rows, kernel, launch, made_run


def program(run: Any, *words: str) -> dict[str, Any]:
    """What ``top`` and ``verdict`` say of a program; they say the same."""
    found, other = (
        json.loads(invoke(each, str(run), *words, "--format", "json")[1])["program"] for each in ("top", "verdict")
    )
    assert found == other
    made: dict[str, Any] = found
    return made


@pytest.mark.parametrize(
    ("recorded", "by", "steps", "first"),
    [
        # Its KV cache grows: no CUDA graph.
        ("llama", "ranges", 24, ("launches", None, "fewer_launches", 84.8)),
        ("graph", "pattern", 1318, ("small_kernels", None, "fuse_kernels", 60.1)),
        # cudaProfilerStart in the middle; one rank sleeps in some steps.
        (
            "window",
            "ranges",
            20,
            ("kernel", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "smaller_operands", 68.0),
        ),
        ("ranks", "ranges", 28, ("ranks", "rank 1", "help_rank", 65.2)),
        ("vectors", "pattern", 48, ("copies", "Host-to-Device", "overlap_copies", 44.1)),
    ],
)
def test_the_first_line_of_recorded_programs(recorded: str, by: str, steps: int, first: tuple[Any, ...]) -> None:
    found = program(profiled(recorded).path)
    answer, row = found["answer"], found["rows"][0]
    assert (found["steady"]["id"], found["steady"]["steps"]) == (by, steps)
    assert (
        (answer["cause"], answer["name"], answer["step"]) == first[:3] == (row["cause"], row["name"], row["step"]["id"])
    )
    assert round(100 * answer["share"], 1) == first[3]
    sizes = [
        min(each for each in (row["bound_pct"], row["estimate_pct"], 999) if each is not None) for row in found["rows"]
    ]
    stepped = [size for size in sizes if 2 <= size <= 100]
    assert stepped == sorted(stepped, reverse=True)


@pytest.mark.parametrize("name", [*RUNS, "llama", "ranks", "vectors"])
def test_a_kernels_step_saves_no_more_than_the_kernel_takes(name: str) -> None:
    run: Run = parsed(name) if name in RUNS else profiled(name)
    rows = json.loads(invoke("top", str(run.path), "--format", "json")[1])["program"]["rows"]
    assert all((row["bound_pct"] or 0.0) <= 100.0 for row in rows)
    kernels = [row for row in rows if row["cause"] == "kernel" and row["step"]]
    assert kernels and all(row["bound_pct"] <= 100.01 * row["share"] for row in kernels)


def test_waiting_for_pythons_lock(tmp_path: Path) -> None:
    assert invoke("import", str(PYTHON_THREADS), "--name", "x", "--artifacts", str(tmp_path))[0] == 0
    (run,) = tmp_path.glob("*x")
    lock, host, *_ = program(run)["rows"]
    assert (lock["cause"], lock["name"], lock["step"]["id"]) == ("gil", "burn (two.py:6)", "free_lock")
    assert (host["cause"], host["name"], host["step"]["id"]) == ("host", "forward (two.py:12)", "less_host_work")
    assert (round(lock["share"], 3), round(host["share"], 3)) == (0.937, 0.020)


def steps_of(folder: Path, cause: str, *, steps: int = 12, marked: bool = True) -> Program:
    """A program that starts up for 50 ms, loads code in its first step, and whose every step has one cause."""
    made: dict[str, Rows] = {"kernels": [], "api": [], "copies": [], "ranges": []}

    def call(start: int, end: int, name: str) -> None:
        made["api"].append({"us": (start, end), "correlation": 10**6 + len(made["api"]), "name": name})

    call(10, 50_000, "cuLibraryLoadData")
    made["kernels"].append(kernel(0, 5, -1))
    at = 50_000
    for step in range(steps):
        begin = at
        for place in range(8):
            number = 8 * step + place
            if not step and place == 1:
                call(at, at + 20_000, "cuLibraryLoadData")
                at += 20_000
            at += {"launches": 60, "growing": 60, "small": 5}.get(cause, 0)
            made["api"].append(launch(at - (40 if cause == "streams" else 4), number))
            length = 2 if cause == "small" else 50
            name = "first" if not place else "k"
            more = {"kernel": name, "kernel_full": name, "stream": 7 + place % 2 if cause == "streams" else 7}
            grid = f"{step if cause == 'growing' else 1}x1x1"
            made["kernels"].append(kernel(at, at + length, number, grid=grid, **more))
            at += length
            if cause == "streams":
                call(at - 30, at - 29, "cudaStreamWaitEvent")
            if cause == "item":
                call(at - 30, at + 10, "cudaStreamSynchronize")
                at += 60
        if cause == "allocation":
            call(at - 20, at + 300, "cudaFree")
            call(at + 300, at + 600, "cudaMalloc")
            at += 640
        if cause == "pageable":
            copied = {"kind": "Host-to-Device", "memory": "pageable"}
            made["copies"].append({"us": (at + 10, at + 500), "correlation": 10**6 + len(made["api"]), **copied})
            call(at - 30, at + 500, "cudaMemcpyAsync")
            at += 540
        if cause == "host":
            at += 800
        ahead = 40 if cause == "streams" else 4
        made["ranges"].append({"us": (begin - ahead, at - ahead - 1), "name": f"step {step}"})
    if not marked:
        made["ranges"] = []
    return top(made_run(folder, **made), within_steady=True).program


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("cause", "first", "step"),
    [
        ("host", Waste.HOST, "less_host_work"),
        ("item", Waste.SYNCHRONIZATION, "fewer_waits"),
        ("allocation", Waste.ALLOCATION, "keep_memory"),
        ("pageable", Waste.PAGEABLE_COPIES, "pin_memory"),
        ("streams", Waste.STREAMS, "overlap_streams"),
        ("launches", Waste.LAUNCHES, "capture_step"),
        ("small", Waste.LAUNCHES, "capture_step"),
        ("growing", Waste.LAUNCHES, "fewer_launches"),  # its grids: no CUDA graph
    ],
)
def test_start_up_hides_no_cause(cause: str, first: Waste, step: str, marked: bool, tmp_path: Path) -> None:
    found = steps_of(tmp_path, cause, marked=marked)
    row = found.rows[0]
    assert (row["cause"], row["step"].id) == (first, step)
    assert found.steady.kind == ("ranges" if marked else "pattern")
    # Without the first step; without ranges the last has no end.
    assert found.steady.values["steps"] == 11 - (not marked)
    assert found.startup is not None and found.startup.values["causes"][0].values["cause"] is Waste.LOADING
    assert row["bound_pct"] >= 99.9 * row["share"] * (first is not Waste.STREAMS)
    if cause == "item":
        assert row["per_step"] == 8.0
    idle = sum(each["share"] for each in found.rows if each["cause"] is not Waste.STREAMS)
    assert idle == pytest.approx(1.0, abs=0.02)


def test_nothing_repeats(tmp_path: Path) -> None:
    run = made_run(tmp_path, kernels=[kernel(0, 10, 1), kernel(30, 40, 2)], api=[launch(0, 1), launch(20, 2)])
    found = top(run, within_steady=True).program
    assert found.steady.kind == "whole" and found.startup is None


@pytest.mark.fault("a trace that has nothing outside its steady part", "`top` shows the part")
def test_nothing_is_outside_the_steady_part(tmp_path: Path) -> None:
    kernels = [kernel(10 * n, 10 * n + 10, n) for n in range(4)]
    measure = {"us": (0, 40), "name": "measure", "domain": "fiprof"}
    run = made_run(tmp_path, kernels=kernels, api=[launch(0, n) for n in range(4)], ranges=[measure])
    status, printed = invoke("top", str(run.path), "--format", "json")
    found = json.loads(printed)["program"]
    assert (status, found["steady"]["id"], found["startup"]) == (0, "measure", None)
