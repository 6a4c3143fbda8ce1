"""``fiprof top`` and ``comm``: where the GPUs' time goes, who waits for whom, which process is which rank; a program's verdict, and
made-up causes."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fiprof.analysis.comm import comm
from fiprof.analysis.idle import IdleCause, idle, parts
from fiprof.analysis.top import top
from fiprof.model import spans, tables
from fiprof.model.catalogue.summary import summarize
from fiprof.model.run import Run
from fiprof.model.spans import innermost
from fiprof.parsers.nsys import NOTED
from fiprof.parsers.nsys_scrub import scrub
from fiprof.reports.comm import summary
from fiprof.reports.top import folded
from tests import golden
from tests.fakes.recorded import recorded_bytes
from tests.nsys_exports import TWO_RANKS, altered, changed, query
from tests.recorded_runs import PROGRAMS, answer, invoke, parsed, rows, two_ranks
from tests.reports_fixture import add, write_manifest
from tests.simulated_ranks import Also, Job, Ranks, judge

Rows = list[dict[str, Any]]


def made_run(folder: Path, **made: Rows) -> Run:
    """A run whose trace has these rows; times in µs, calls on thread 1 of process 1."""
    (folder / "tables").mkdir()
    write_manifest(folder, name="made", settings={"tools": ["nsys"]}, environment={})
    given = {"device": 0, "stream": 7, "pid": 1, "tid": 1, "kind": "push_pop", "depth": 0, "domain": "app"}
    for name in ("kernels", "ranges", "api", "copies", *(("memory",) if made.get("memory") else ())):
        columns, rows = tables.schema(name).names, []
        for number, row in enumerate(made.get(name, [])):
            start, end = row.pop("us")
            times = {"start_ns": start * 1000, "end_ns": end * 1000, "duration_ns": (end - start) * 1000}
            whole = {**given, "correlation": number, **times, **row}
            rows.append({key: value for key, value in whole.items() if key in columns})
        add(Run(folder), name, rows)
    return Run(folder)


def launch(at: int, correlation: int, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return {"us": (at, at + 2), "correlation": correlation, "name": name}


def kernel(start: int, end: int, correlation: int, **more: Any) -> dict[str, Any]:
    return {"us": (start, end), "correlation": correlation, "kernel": "k", "kernel_full": "k", **more}


def test_copies_are_those_of_the_trace(tmp_path: Path) -> None:
    """Count, bytes and time of each kind of copy, against plain SQL."""
    (tmp_path / "trace.sqlite").write_bytes(recorded_bytes(PROGRAMS["vectors"] / "nsys/trace.sqlite"))
    sums = 'count(*), sum(bytes), sum("end" - start) / 1e6 FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY copyKind'
    expected = query(tmp_path / "trace.sqlite", f"SELECT {sums} ORDER BY 3 DESC")
    found = rows("top", str(parsed("vectors").path), "--table", "copies", "--whole", "--all")
    copied = [(row["count"], row["bytes"], pytest.approx(row["total_ms"])) for row in found if row["kind"] != "Memset"]
    assert copied == expected


def test_each_moment_without_work_has_a_cause(tmp_path: Path) -> None:
    run = made_run(
        tmp_path,
        kernels=[kernel(10, 20, 1), kernel(100, 110, 2), kernel(200, 210, 3), kernel(300, 310, 99)],
        api=[
            launch(0, 1),
            # Waits until 25, works in range b until 60, allocates for 30, launches: 92 + 2, on its way for 5, on the GPU.
            {"us": (5, 25), "correlation": 50, "name": "cudaDeviceSynchronize"},
            {"us": (60, 90), "correlation": 51, "name": "cudaMalloc"},
            launch(92, 2),
            # Outside all ranges until 150; within the launch, code is loaded for 30.
            {"us": (150, 190), "correlation": 3, "name": "cudaLaunchKernel"},
            {"us": (155, 185), "correlation": 52, "name": "cuLibraryLoadData"},
        ],
        ranges=[{"us": (0, 95), "name": "a"}, {"us": (26, 91), "name": "b", "depth": 1, "parent": 0}],
    )
    assert {(row["cause"], row["call"], row["range"]): row["total_ns"] / 1000 for row in idle(run)} == {
        (IdleCause.SYNCHRONIZATION, "cudaDeviceSynchronize", "a"): 5,
        (IdleCause.HOST_AFTER_WAIT, "cudaDeviceSynchronize", "a"): 2,
        (IdleCause.HOST_AFTER_WAIT, "cudaDeviceSynchronize", "a > b"): 35, (IdleCause.CALL, "cudaMalloc", "a > b"): 30,
        (IdleCause.LAUNCH, None, "a"): 7, (IdleCause.GPU, None, "a"): 1, (IdleCause.OUTSIDE_RANGES, None, None): 40,
        (IdleCause.LAUNCH, None, None): 15, (IdleCause.GPU, None, None): 5, (IdleCause.CALL, "cuLibraryLoadData", None): 30,
        (IdleCause.UNKNOWN, None, None): 90,
    }  # fmt: skip
    (activity,) = parts(run, within_steady=False).values()
    assert (activity.window_ns, activity.kernels_ns, activity.idle_ns, activity.gaps) == (300_000, 40_000, 260_000, 3)


def test_processes_in_turns_and_captures_of_graphs(tmp_path: Path) -> None:
    """Two processes have launched long before their turn, and one of them waits then, the other does its own work; what
    lies in a capture does not run, and is told as the capture."""
    turns = [kernel(200 * n, 200 * n + 50, n, pid=1 + n % 2) for n in range(1, 9)]
    calls = [launch(n, n) | {"pid": 1 + n % 2, "tid": 1 + n % 2} for n in range(1, 9)]
    calls.append({"us": (20, 1640), "correlation": 10, "name": "cudaStreamSynchronize", "pid": 2, "tid": 2})
    captured = [
        {"us": (1660, 1662), "correlation": 20, "name": "cudaStreamBeginCapture_v10000"},
        *({**launch(1660 + 20 * n, 20 + n), "pid": 1} for n in range(1, 20)),
        {"us": (2070, 2080), "correlation": 41, "name": "cudaStreamEndCapture_v10000"},
        {"us": (2080, 2180), "correlation": 42, "name": "cudaGraphInstantiate_v12000"},
        {"us": (2180, 2190), "correlation": 43, "name": "cudaGraphLaunch_v10000"},
    ]
    run = made_run(tmp_path, kernels=[*turns, kernel(2192, 2300, 43)], api=[*calls, *captured])
    us = {(row["cause"], row["call"]): row["total_ns"] / 1000 for row in idle(run)}
    assert us == {
        (IdleCause.TURN, None): 3 * 150, (IdleCause.HOST, None): 4 * 150 + 10, (IdleCause.LAUNCH, None): 12,
        (IdleCause.CALL, "cudaStreamBeginCapture_v10000"): 420, (IdleCause.CALL, "cudaGraphInstantiate_v12000"): 100,
    }  # fmt: skip
    found = {row["cause"]: row for row in answer("top", run.path)["program"]["rows"]}
    assert [found[cause]["step"]["id"] for cause in ("turns", "captures")] == ["share_gpu", "capture_once"]
    assert round(found["captures"]["total_ms"], 3) == 0.52


def test_ranges_that_count_on_and_work_side_by_side_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    run = str(parsed("tworanks").path)
    printed, whole = (" ".join(invoke("top", run, *words)[1].split()) for words in ((), ("--all",)))
    assert "1 1 step * > overlapped 55 12.478 22.2%" in printed and "step 3 > overlapped" in whole
    assert "kernels of several streams run side by side for 9.4% of the kernels' time" in printed
    assert "rank GPU kernel" in printed and "rank" not in invoke("top", str(parsed("vectors").path), "--all")[1]
    sizes = ["prefill 128", "prefill 256", "prefill 512", "gemm m=1", "gemm m=2", "gemm m=3", "other 7", None]
    assert [*folded(sizes).values()] == [None, *sizes[:-1]]


def test_nested_intervals_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut where nothing is open: after a group that lasts, before one that begins as the last ends."""
    starts = np.array([0, 10, 20, 60, 100, 100, 150, 170])
    ends, labels = np.array([[50, 50, 30, 70, 150, 120, 200, 180], range(8)])
    whole = innermost(starts, ends, labels)
    monkeypatch.setattr(spans, "PIECE_ROWS", 2)
    found = innermost(starts, ends, labels)
    for name in ("starts", "ends", "labels"):
        assert getattr(found, name).tolist() == getattr(whole, name).tolist()


def waits(row: dict[str, Any]) -> dict[int, float]:
    return {each["rank"]: each["wait_us"] for each in row["arrivals"]}


def who(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(waits(row))


@pytest.mark.fault("a rank lacks collectives that the others have", "each finds its own; those alone are counted")
def test_a_rank_that_misses_collectives(tmp_path: Path) -> None:
    job = Ranks(2)
    for step in range(5):
        job.kernel(0, 1000 * step, 1000 * step + 90)
        if step in (1, 2, 4):
            job.kernel(1, 1000 * step + 40, 1000 * step + 91)
    found = job.comm(tmp_path)
    assert [(each["number"], waits(each)) for each in found.collectives] == [(n, {0: 40, 1: 0}) for n in (1, 2, 4)]
    assert {warning.kind: warning.values.get("count") for warning in found.warnings} == {"no_payload": None, "alone": 2}


def test_several_communicators_and_streams(tmp_path: Path) -> None:
    """Rows of a two-by-two grid sum up, then columns gather; NCCL says which communicator is whose."""
    job = Ranks(4)
    for step in range(3):
        for rank in range(4):
            row, column = divmod(rank, 2)
            begin = 1000 * step + 500 * row + 50 * column
            job.nccl(rank, begin, 1000 * step + 500 * row + 100, comm=10 + row, bytes=1000)
            job.nccl(rank, 1000 * step + 700, 1000 * step + 720, "ncclAllGather", comm=20 + column, bytes=500)
    found = job.comm(tmp_path)
    assert {(each["communicator"], who(each)) for each in found.collectives} == {
        (10, (0, 1)), (11, (2, 3)), (20, (0, 2)), (21, (1, 3)),
    }  # fmt: skip
    skews = {(row["communicator"], row["skew_us"]) for row in found.collectives}
    assert skews == {(10, 50), (11, 50), (20, 0), (21, 0)}
    gather = next(each for each in found.collectives if each["communicator"] == 20)
    # nccl-tests: S is what all ranks have together, the bus carries (n - 1) / n of it.
    assert (gather["algorithm_gbps"], gather["bus_gbps"]) == (1000 / 20 / 1e3, 500 / 20 / 1e3)
    assert found.warnings == ()


def test_ranks_whose_hosts_are_slow_alike_are_no_stages_of_a_pipeline(tmp_path: Path) -> None:
    job = Ranks(2)
    for step in range(20):
        for rank in range(2):
            job.kernel(rank, 1000 * step + 10, 1000 * step + 20, "work")
            job.kernel(rank, 1000 * step + (900 if rank == step % 2 else 30), 1000 * step + 920)
    job.comm(tmp_path)
    found = [row for row in top(Run(tmp_path)).program.fields()["rows"] if row["cause"] == "ranks"]
    assert [row["step"]["id"] for row in found] == ["help_rank"] * 2


def test_point_to_point_and_groups(tmp_path: Path) -> None:
    """A pipeline: rank 0 works and sends to 1, which sends to 2; and a group of two all-reduces that takes one kernel.
    Both that wait do so for rank 0: 1 comes late out of its receive."""
    job = Ranks(3)
    for at in range(0, 20_000, 1000):
        job.kernel(0, at, at + 300, "work")
        job.nccl(0, at + 310, at + 320, "ncclSend", comm=1, bytes=64, peer=1)
        job.nccl(1, at + 30, at + 320, "ncclRecv", comm=1, bytes=64, peer=0)
        job.nccl(1, at + 330, at + 340, "ncclSend", comm=1, bytes=64, peer=2)
        job.nccl(2, at + 30, at + 340, "ncclRecv", comm=1, bytes=64, peer=1)
        for rank in range(3):
            more: Also = [("ncclAllReduce", {"comm": 1, "bytes": 28})]
            job.nccl(rank, at + 500, at + 600, comm=1, bytes=100, also=more)
    found = job.comm(tmp_path)
    assert [(each["op"].value, who(each), each["late_rank"], each["skew_us"], each["message_bytes"]) for each in found.collectives[:3]] == [
        ("send_recv", (0, 1), 0, 280, 64), ("send_recv", (1, 2), 1, 300, 64), ("all_reduce", (0, 1, 2), 0, 0, 128),
    ]  # fmt: skip
    rows = top(Run(tmp_path)).program.fields()["rows"]
    assert {row["name"] for row in rows if row["cause"] == "ranks"} == {"rank 0"}


def test_waiting_beside_other_kernels_costs_nothing(tmp_path: Path) -> None:
    job = Ranks(3)
    for at in range(0, 8000, 1000):
        for rank, (busy, begin) in enumerate([(300, 100), (490, 500), (495, 499)]):
            job.kernel(rank, at, at + busy, "work")
            job.kernel(rank, at + begin, at + 510)
    found = job.comm(tmp_path)
    assert [(row["delay_us"], row["wait_us"]) for row in found.ranks] == [(0, 1600), (1600, 0), (0, 8)]
    assert "in 8 of 8 collectives; as late: rank 2." in summary(found)


@pytest.mark.fault("the clocks of two traces differ by 30 ms", "`comm` moves one by collectives' ends, and says so")
def test_a_trace_a_rank(tmp_path: Path) -> None:
    """The recorded job as nsys around each rank would have it: the second session began 2 s sooner, on a clock that is
    30 ms ahead."""
    of_process = {
        "globalPid": ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"),
        "globalTid": ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"),
    }
    files = []
    for rank, pid in enumerate((3963, 3964)):
        statements = [f"DELETE FROM TARGET_INFO_CUDA_CONTEXT_INFO WHERE processId != {pid}"]
        for column, names in of_process.items():
            statements += [f"DELETE FROM {name} WHERE {column} >> 24 & 0xFFFFFF != {pid}" for name in names]
            statements += [
                f'UPDATE {name} SET start = start + 2000000000, "end" = "end" + 2000000000' for name in names if rank
            ]
        if rank:
            statements.append("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs - 1970000000")
            longer = "duration = duration + 2000000000, stopTime = stopTime + 2000000000"
            statements.append(f"UPDATE ANALYSIS_DETAILS SET {longer}")
        (tmp_path / str(rank)).mkdir()
        files.append(str(altered(tmp_path / str(rank), *statements, source=TWO_RANKS)))
    assert invoke("import", *files, "--artifacts", str(tmp_path / "runs"))[0] == 0
    found = comm(Run(next((tmp_path / "runs").glob("2*"))))
    assert [(rank["rank"], rank["file"], rank["pid"]) for rank in found.ranks] == [(0, 0, 3963), (1, 1, 3964)]
    (warning,) = found.warnings
    assert (warning.kind, warning.values["file"]) == ("clock_off", 1)
    assert abs(warning.values["shift_us"] + 30000) < 2 < 20 < warning.values["error_us"] < 50
    assert abs(warning.values["drift_ppm"]) < 10
    truth = {each["number"]: each for each in comm(two_ranks()).collectives}
    assert [(each["number"], each["late_rank"]) for each in found.worst[:4]] == [(9, 1), (16, 1), (26, 1), (6, 1)]
    assert all(abs(each["wait_us"] - truth[each["number"]]["wait_us"]) < 5 for each in found.collectives)
    assert found.worst[0]["meanwhile"][1]["doing_name"] == "cuLibraryLoadData"


@settings(max_examples=12, derandomize=True, phases=[Phase.generate])
@given(st.builds(
    Job, ranks=st.sampled_from([2, 4, 8]), offset_us=st.floats(0, 1000), drift_ppm=st.floats(0, 200),
    seed=st.integers(0, 1000), point_to_point=st.booleans(), told=st.booleans(), always=st.booleans(),
    lost=st.sampled_from([0, 7]), step_us=st.sampled_from([5e3, 1e6]),
))  # fmt: skip
def test_clocks_that_are_apart_and_drift(job: Job) -> None:
    """Every rank's lateness is right within 5 % or 20 µs, and the rank that is named is the late one. It recurs, so it
    is what comes first, although another rank loaded a module for 100 ms at first."""
    with TemporaryDirectory() as folder:
        found = job.comm(Path(folder))
    judged = judge(job, found)
    assert (judged.beyond, judged.wrong) == (0, 0)
    assert judged.error_us < 60
    assert summary(found).startswith(f"Rank {job.late} makes the others wait most:")
    first = next(row for row in found.causes if row["rank"] == job.late)
    assert first["doing_name"] == ("" if job.always else "spin")


@pytest.mark.fault("the clock of a trace is set while it runs", "`comm` says that no steady clock fits")
def test_a_clock_that_is_set(tmp_path: Path) -> None:
    job = Job(2)
    for row in [row for table in job.tables.values() for row in table if row["file"] == 1]:
        late = 5_000_000 * (row["start_ns"] > 1_400_000_000)
        row.update({"start_ns": row["start_ns"] + late, "end_ns": row["end_ns"] + late})
    steps = [each for each in job.comm(tmp_path).warnings if each.kind == "clock_steps"]
    assert [(each.values["of"], each.values["count"] > 10) for each in steps] == [(120, True)]


def test_clocks_that_nothing_ties(tmp_path: Path) -> None:
    """A send ends before its receive begins: no clock can be told from that."""
    job = Ranks(2, files=True)
    for step in range(20):
        job.nccl(0, 1000 * step, 1000 * step + 60, "ncclSend", comm=1, bytes=1 << 20, peer=1)
        job.nccl(1, 1000 * step + 300, 1000 * step + 360, "ncclRecv", comm=1, bytes=1 << 20, peer=0)
    found = job.comm(tmp_path)
    assert found.warnings[-1].kind == "clock_unknown"
    assert {(each["late_rank"], each["skew_us"], each["bus_gbps"]) for each in found.collectives} == {(1, 300, None)}


ENVIRONMENTS = "INSERT INTO StringIds VALUES (900001, 'LOCAL_RANK=1 A=1 RANK=9'), (900002, 'RANK=8 LOCAL_RANK=0')"
ONE_RANK = (
    "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = 0",
    "CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)",
)


@pytest.mark.parametrize(
    ("statements", "ranks"),
    [
        ((), [(3963, None), (3964, None)]),
        # The environments of a node's processes say nothing of whose they are: by the order of GPUs.
        ((ENVIRONMENTS,), [(3963, 8), (3964, 9)]),
        # Of more processes than ran kernels: nobody knows which.
        ((ENVIRONMENTS, "INSERT INTO StringIds VALUES (900003, 'RANK=7 LOCAL_RANK=2')"), [(3963, None), (3964, None)]),
        # nsys around each rank.
        ((*ONE_RANK, "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK=\"5\"')"), [(3964, 5)]),
        ((*ONE_RANK, "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:COMMAND', 'RANK=5')"), [(3964, None)]),
        (("DROP TABLE TARGET_INFO_CUDA_CONTEXT_INFO",), [(3963, None), (3964, None)]),
    ],
)  # fmt: skip
def test_where_a_rank_comes_from(statements: tuple[str, ...], ranks: list[Any], tmp_path: Path) -> None:
    _, found = changed(tmp_path, f"DROP TABLE {NOTED}", *statements, source=TWO_RANKS)
    assert [(row["pid"], row["rank"]) for row in found["processes"]] == ranks
    scrub(tmp_path / "trace.sqlite")
    assert query(tmp_path / "trace.sqlite", "SELECT count(*) FROM StringIds WHERE instr(value, 'RANK=')") == [(0,)]
    if len(ranks) == 2 and "DROP TABLE TARGET_INFO_CUDA_CONTEXT_INFO" not in statements:
        noted = query(tmp_path / "trace.sqlite", f"SELECT rank FROM {NOTED}")
        assert [rank for (rank,) in noted] == [rank for _, rank in ranks]


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
        # Of a kernel of which only ncu can tell, a third of its time; a wait for a rank may come later than its bound
        # says, for what the rank does has rows of its own.
        guessed = [100 * row["share"] / 3 if row["step"] and row["bound_pct"] is None else 999 for row in rows]
        known_pct = [[row[key] for key in ("bound_pct", "estimate_pct") if row[key] is not None] for row in rows]
        sizes = [min(each, default=999) for each in known_pct]
        stepped = [
            (size, row["cause"]) for size, row in zip(map(min, sizes, guessed), rows, strict=True) if 2 <= size <= 100
        ]
        after = (
            (size, each) for n, (size, _) in enumerate(stepped) for each, cause in stepped[n + 1 :] if cause != "ranks"
        )
        assert all(size >= each for size, each in after), name
        assert all((row["bound_pct"] or 0.0) <= 100.0 for row in rows), name
        kernels = [row for row in rows if row["cause"] == "kernel" and row["step"]]
        assert all((row["bound_pct"] or 0.0) <= 100.01 * row["share"] for row in kernels), name


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


def test_a_kernel_of_few_steps_is_no_step(tmp_path: Path) -> None:
    """Prompts' layers, all before the tokens and now and then between them, were the steps of a server."""
    prompt, token = ["attention", "a", "b", "c"] * 12, ["gather", *(f"w{n}" for n in range(20))]
    names = prompt * 12 + [name for count in (17, 23, 29, 13, 18) for name in token * count + prompt]
    kernels = [kernel(10 * n + 5, 10 * n + 9, n, kernel=name, kernel_full=name) for n, name in enumerate(names)]
    run = made_run(tmp_path, kernels=kernels, api=[launch(10 * n, n) for n in range(len(names))])
    assert answer("top", run.path)["program"]["steady"]["name"] == "gather"


@pytest.mark.fault("a trace that has nothing outside its steady part", "`top` shows the part")
def test_nothing_is_outside_the_steady_part(tmp_path: Path) -> None:
    kernels = [kernel(10 * n, 10 * n + 10, n) for n in range(4)]
    measure = {"us": (0, 40), "name": "measure", "domain": "fiprof"}
    run = made_run(tmp_path, kernels=kernels, api=[launch(0, n) for n in range(4)], ranges=[measure])
    found = answer("top", run.path)["program"]
    assert (found["steady"]["id"], found["startup"]) == ("measure", None)


def test_a_large_trace_whose_kernels_come_late(tmp_path: Path) -> None:
    """In a table's file each group of rows, 131,072 kernels, has a dictionary of its own."""
    run = Run(Path(shutil.copytree(parsed("llama").path, tmp_path / "run")))
    kernels = run.table("kernels")
    columns = [each.cast(pa.string()) if pa.types.is_dictionary(each.type) else each for each in kernels.columns]
    found, late = pa.table(columns, kernels.column_names), pc.equal(kernels["kernel"], kernels["kernel"][-1].as_py())
    with tables.writer(run.tables_path, "kernels") as write:
        for rows in (pc.invert(late), late):
            write(found.filter(rows))
    again = Run(run.path)
    assert again.table("kernels", ["kernel"])["kernel"].num_chunks == 2
    assert summarize(again) == summarize(parsed("llama"))
