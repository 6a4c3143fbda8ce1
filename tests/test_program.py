"""A program's verdict: the first line of ``top`` and ``verdict``, which part it is about, and made-up causes."""

from pathlib import Path

import pytest

from fiprof.analysis.program import Program, Waste
from fiprof.analysis.top import top
from tests import golden
from tests.nsys_exports import PYTHON_THREADS, altered
from tests.recorded_runs import answer, invoke
from tests.test_programs import Rows, kernel, launch, made_run


def test_the_first_line_of_every_recorded_program_is_its_largest_loss() -> None:
    """Of all that the golden answers have: what top and verdict say, in which order, and that no step of a kernel saves
    more than the kernel takes."""
    known = golden.read()
    programs = {name[4:]: each.get("program") for name, each in known.items() if name.startswith("top ")}
    assert sum(map(bool, programs.values())) == 20
    for name, found in ((name, found) for name, found in programs.items() if found):
        rows = found["rows"]
        assert (known.get(f"verdict {name}") or {}).get("program") in (None, found), name
        assert [found["answer"][key] for key in ("cause", "name", "share", "bound_pct")] == [
            rows[0][key] for key in ("cause", "name", "share", "bound_pct")
        ], name
        # Of a kernel of which only ncu can tell, a third of its time.
        guessed = [100 * row["share"] / 3 if row["step"] and row["bound_pct"] is None else 999 for row in rows]
        sizes = [min(row["bound_pct"] or 999, row["estimate_pct"] or 999) for row in rows]
        stepped = [size for size in map(min, sizes, guessed) if 2 <= size <= 100]
        assert stepped == sorted(stepped, reverse=True), name
        assert all((row["bound_pct"] or 0.0) <= 100.0 for row in rows), name
        kernels = [row for row in rows if row["cause"] == "kernel" and row["step"]]
        assert all((row["bound_pct"] or 0.0) <= 100.01 * row["share"] for row in kernels), name


def test_waiting_for_pythons_lock(tmp_path: Path) -> None:
    assert invoke("import", str(PYTHON_THREADS), "--name", "x", "--artifacts", str(tmp_path))[0] == 0
    (run,) = tmp_path.glob("*x")
    lock, host, *_ = answer("top", run)["program"]["rows"]
    assert (lock["cause"], lock["name"], lock["step"]["id"]) == ("gil", "burn (two.py:6)", "free_lock")
    assert (host["cause"], host["name"], host["step"]["id"]) == ("host", "forward (two.py:12)", "less_host_work")
    assert (round(lock["share"], 3), round(host["share"], 3)) == (0.937, 0.020)


def test_host_work_that_compiles_is_to_be_done_before(tmp_path: Path) -> None:
    sqlite = altered(
        tmp_path, "UPDATE StringIds SET value = 'compile_fx' WHERE value = 'forward'", source=PYTHON_THREADS
    )
    assert invoke("import", str(sqlite), "--name", "x", "--artifacts", str(tmp_path))[0] == 0
    (run,) = tmp_path.glob("*x")
    _, host, *_ = answer("top", run)["program"]["rows"]
    assert (host["name"], host["step"]["id"]) == ("compile_fx (two.py:12)", "compile_before")


@pytest.mark.parametrize(
    ("kernel_full", "name"),
    [
        ("void at::native::<unnamed>::indexSelect<float>(T1)", "indexSelect"),
        ("void (anonymous namespace)::scan<int, (int)4>(T1 *)", "scan"),
        ("void at::native::elementwise<4, at::native::MulFunctor<float>>(T1)", "elementwise (Mul)"),
        ("void cutlass::Kernel2<cutlass_75_tensorop_f16_align1>(T1)", "Kernel2 (cutlass_75_tensorop_f16_align1)"),
        ("void cutlass::Kernel2<cutlass_75_tensorop_f16_align8>(T1)", "Kernel2 (cutlass_75_tensorop_f16_align8)"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_nn_align1>(T1)", "Kernel2 (cutlass_80_simt_sgemm_nn_align1)"),
    ],
)
def test_steps_are_called_by_their_kernel(kernel_full: str, name: str, tmp_path: Path) -> None:
    """And rows that one element a load is allowed of are to be padded, where tensor cores read them."""
    kernels, api = [], []
    for number in range(80):
        full, short = (f"k{number % 4}", f"k{number % 4}") if number % 4 else (kernel_full, name.partition(" ")[0])
        kernels.append(kernel(100 * number + 5, 100 * number + 85, number, kernel=short, kernel_full=full))
        api.append(launch(100 * number, number))
    run = made_run(tmp_path, kernels=kernels, api=api)
    found = answer("top", run.path)["program"]
    padded = [row["name"] for row in found["rows"] if row["step"] and row["step"]["id"] == "pad_rows"]
    assert (found["steady"]["name"], padded) == (name, [name] if "tensorop_f16_align1" in name else [])


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
    found = answer("top", run.path)["program"]
    assert (found["steady"]["id"], found["startup"]) == ("measure", None)
