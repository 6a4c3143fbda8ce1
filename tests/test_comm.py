"""fiprof/analysis/comm: who waits for whom, against the recorded job of two ranks and made-up ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.comm import CALL, HOST, KERNEL, Comm, comm
from fiprof.model.run import Run
from tests.nsys_exports import TWO_RANKS, altered
from tests.recorded_runs import invoke, two_ranks
from tests.reports_fixture import add, write_manifest


@pytest.fixture(scope="module")
def found() -> Comm:
    """tests/programs/ranks.py on two H200s: rank 1 sleeps 10 ms before the all-reduce of steps 5, 15 and 25, and loads
    kernels that it has not used before that of step 8."""
    return comm(two_ranks())


def test_the_late_rank_its_delays_and_what_it_did(found: Comm) -> None:
    """What nsys's rows give by hand: the wait of a step is the difference of the two kernels' starts."""
    worst = [
        (
            each["number"],
            each["late_rank"],
            each["waiting_rank"],
            each["wait_us"],
            each["skew_us"],
            round(each["lost_share"] or 0, 3),
        )
        for each in found.worst[:5]
    ]
    assert worst == [
        (9, 1, 0, 123461.482, 123461.482, 0.993),
        (16, 1, 0, 10342.582, 10342.582, 0.945),
        (26, 1, 0, 10310.554, 10310.554, 0.946),
        (6, 1, 0, 10233.876, 10233.876, 0.943),
        (1, 0, 1, 3880.488, 3880.488, 0.039),
    ]
    # The program says that rank 1 slept 10.078, 10.097 and 10.087 ms, in that order.
    slept = [(each["doing"], each["range"], round(each["us"])) for item in sorted(found.worst[1:4], key=lambda each: each["number"])
             for each in item["meanwhile"][:1]]  # fmt: skip
    assert slept == [(HOST, "late", 10096), (HOST, "late", 10115), (HOST, "late", 10096)]
    first_use = [
        (each["doing"], each["doing_name"], each["range"], each["us"]) for each in found.worst[0]["meanwhile"][:3]
    ]
    assert first_use == [
        (HOST, "", "first use", 67298.593),
        (CALL, "cuLibraryLoadData", "first use", 41118.674),
        (CALL, "cudaLaunchKernel", "first use", 8253.596),
    ]


# Made-up jobs


@dataclass
class Job:
    """Rows of a run of several ranks, a process and a GPU each."""

    ranks: int
    kernels: list[dict[str, Any]] = field(default_factory=list)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    api: list[dict[str, Any]] = field(default_factory=list)
    files: bool = False

    def kernel(
        self, rank: int, start: int, end: int, name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", **more: Any
    ) -> None:
        """Times in µs; launched 1 µs before it starts."""
        number = len(self.kernels) + 1
        who = {"pid": 100 + rank, **({"file": rank} if self.files else {})}
        self.kernels.append({"start_ns": start * 1000, "end_ns": end * 1000, "duration_ns": (end - start) * 1000,
                             "device": 0 if self.files else rank, "stream": 7, "kernel": name, "grid": "16x1x1",
                             "correlation": number, **who, **more})  # fmt: skip
        self.api.append({"name": "cudaLaunchKernel", "start_ns": start * 1000 - 1000, "end_ns": start * 1000 - 500,
                         "tid": 100 + rank, "correlation": number, **who})  # fmt: skip

    def nccl(self, rank: int, start: int, end: int, call: str = "ncclAllReduce", *, also: Sequence[tuple[str, dict[str, int]]] = (), **said: int) -> None:  # fmt: skip
        """A kernel that NCCL launched: in a call, or for several in a group."""
        self.kernel(rank, start, end, f"ncclDevKernel_{call.removeprefix('nccl')}")
        calls = [(call, said), *also]
        for number, (name, values) in enumerate(calls):
            begin = start * 1000 - 1500 + number
            last = begin + (1 if also else 1000)
            text = json.dumps({NAMES[key]: value for key, value in values.items()})
            self.ranges.append({"domain": "NCCL", "name": name, "start_ns": begin, "end_ns": last, "kind": "push_pop",
                                "pid": 100 + rank, "tid": 100 + rank, "payload": text})  # fmt: skip

    def found(self, folder: Path, **manifest: Any) -> Comm:
        (folder / "tables").mkdir(parents=True)
        write_manifest(folder, **manifest)
        run = Run(folder)
        who = [{"pid": 100 + rank, "device": 0 if self.files else rank, "rank": rank if self.files else None,
                **({"file": rank} if self.files else {})} for rank in range(self.ranks)]  # fmt: skip
        rows: dict[str, Iterable[dict[str, Any]]] = {
            "kernels": self.kernels,
            "processes": who,
            "api": self.api,
            "ranges": self.ranges,
        }
        for name, of_table in rows.items():
            add(run, name, of_table)
        return comm(run)


NAMES = {"comm": "NCCL communicator ID", "bytes": "Message size [bytes]", "peer": "Peer rank"}


def waits(row: dict[str, Any]) -> dict[int, float]:
    return {each["rank"]: each["wait_us"] for each in row["arrivals"]}


def who(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(waits(row))


def test_eight_ranks(tmp_path: Path) -> None:
    """Rank 5 is late by 100 µs, and its GPU is what it waits for."""
    job = Job(8)
    for step in range(4):
        for rank in range(8):
            begin = 1000 * step + (200 if rank == 5 else 100)
            job.kernel(rank, 1000 * step + 10, begin, "gemm")
            job.kernel(rank, begin, 1000 * step + 300)
    found = job.found(tmp_path)
    assert [who(each) for each in found.collectives] == [tuple(range(8))] * 4
    assert {each["late_rank"] for each in found.collectives} == {5}
    assert waits(found.collectives[0]) == {rank: 0 if rank == 5 else 100 for rank in range(8)}
    assert [(rank["delay_us"], rank["wait_us"]) for rank in found.ranks[4:6]] == [(0, 400), (400, 0)]
    assert [
        (cause["rank"], cause["doing"], cause["doing_name"], cause["doing_us"], cause["delay_share"])
        for cause in found.causes
    ] == [(5, KERNEL, "gemm", 400, 1.0)]
    assert [warning.kind for warning in found.warnings] == ["no_payload"]
    # From the first collective's start to the last one's end: 3,200 µs.
    assert found.ranks[0]["lost_share"] == 400 / 3200


@pytest.mark.fault(
    "a rank lacks collectives that the others have",
    "each finds its own by its end; `comm` says how many have no partner",
)
def test_a_rank_that_misses_collectives(tmp_path: Path) -> None:
    """Of five collectives rank 1 has three: each finds its own."""
    job = Job(2)
    for step in range(5):
        job.kernel(0, 1000 * step, 1000 * step + 90)
        if step in (1, 2, 4):
            job.kernel(1, 1000 * step + 40, 1000 * step + 91)
    found = job.found(tmp_path)
    assert [(each["number"], waits(each)) for each in found.collectives] == [(n, {0: 40, 1: 0}) for n in (1, 2, 4)]
    assert {warning.kind: warning.values.get("count") for warning in found.warnings} == {"no_payload": None, "alone": 2}


def test_several_communicators_and_streams(tmp_path: Path) -> None:
    """Rows of a two-by-two grid sum up, then columns gather; NCCL says which communicator is whose."""
    job = Job(4)
    for step in range(3):
        for rank in range(4):
            row, column = divmod(rank, 2)
            begin = 1000 * step + 500 * row + 50 * column
            job.nccl(rank, begin, 1000 * step + 500 * row + 100, comm=10 + row, bytes=1000)
            job.nccl(rank, 1000 * step + 700, 1000 * step + 720, "ncclAllGather", comm=20 + column, bytes=500)
    found = job.found(tmp_path)
    assert {(each["communicator"], who(each)) for each in found.collectives} == {
        (10, (0, 1)), (11, (2, 3)), (20, (0, 2)), (21, (1, 3)),
    }  # fmt: skip
    assert {(each["communicator"], each["skew_us"]) for each in found.collectives} == {
        (10, 50),
        (11, 50),
        (20, 0),
        (21, 0),
    }
    gather = next(each for each in found.collectives if each["communicator"] == 20)
    # nccl-tests: S is what all ranks have together, the bus carries (n - 1) / n of it.
    assert (gather["algorithm_gbps"], gather["bus_gbps"]) == (1000 / 20 / 1e3, 500 / 20 / 1e3)
    assert found.warnings == ()


def test_communicators_that_nobody_told(tmp_path: Path) -> None:
    """The same kernels without payloads: those of two rows do not overlap, so they are not one collective."""
    job = Job(4)
    for step in range(3):
        for rank in range(4):
            row, column = divmod(rank, 2)
            job.kernel(rank, 1000 * step + 500 * row + 60 * column, 1000 * step + 500 * row + 100)
    found = job.found(tmp_path)
    assert {(who(each), each["late_rank"], each["skew_us"]) for each in found.collectives} == {
        ((0, 1), 1, 60),
        ((2, 3), 3, 60),
    }


def test_point_to_point_and_groups(tmp_path: Path) -> None:
    """A pipeline: rank 0 sends to 1, which sends to 2; and a group of two all-reduces that takes one kernel."""
    job = Job(3)
    for step in range(2):
        job.nccl(0, 1000 * step, 1000 * step + 100, "ncclSend", comm=1, bytes=64, peer=1)
        job.nccl(1, 1000 * step + 30, 1000 * step + 100, "ncclRecv", comm=1, bytes=64, peer=0)
        job.nccl(1, 1000 * step + 200, 1000 * step + 300, "ncclSend", comm=1, bytes=64, peer=2)
        job.nccl(2, 1000 * step + 200, 1000 * step + 300, "ncclRecv", comm=1, bytes=64, peer=1)
        for rank in range(3):
            job.nccl(
                rank,
                1000 * step + 500,
                1000 * step + 600,
                comm=1,
                bytes=100,
                also=[("ncclAllReduce", {"comm": 1, "bytes": 28})],
            )
    found = job.found(tmp_path)
    assert [(each["op"].value, who(each), each["late_rank"], each["skew_us"], each["message_bytes"]) for each in found.collectives[:3]] == [
        ("send_recv", (0, 1), 1, 30, 64), ("send_recv", (1, 2), 1, 0, 64), ("all_reduce", (0, 1, 2), 0, 0, 128),
    ]  # fmt: skip


def test_clocks_of_two_traces(tmp_path: Path) -> None:
    """A trace each; the second's clock is 5 ms behind: its collectives would end before those of the first begin."""
    near, far = Job(2, files=True), Job(2, files=True)
    for job, behind in ((near, 0), (far, 5000)):
        for step in range(20):
            late = 40 if step % 2 else 0
            job.kernel(0, 10000 + 1000 * step, 10000 + 1000 * step + 100)
            job.kernel(1, 10000 + 1000 * step + late - behind, 10000 + 1000 * step + 100 - behind)
    found = near.found(tmp_path / "near")
    assert [(each.kind, each.values) for each in found.warnings][-1] == (
        "clock", {"file": 1, "shift_us": 0, "error_us": 100},
    )  # fmt: skip
    moved = far.found(tmp_path / "far")
    assert [each["skew_us"] for each in moved.collectives] == [each["skew_us"] for each in found.collectives]
    assert (moved.warnings[-1].kind, moved.warnings[-1].values["shift_us"]) == ("clock_off", 5000)


OF_PROCESS = {
    "globalPid": ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"),
    "globalTid": ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"),
}


@pytest.mark.fault(
    "the clocks of two traces differ by 30 ms",
    "`comm` moves one until no collective ends before it begins, and says how sure that is",
)
def test_a_trace_a_rank(tmp_path: Path) -> None:
    """The recorded job as nsys around each rank would have it: the second session began 2 s sooner, on a clock that is
    30 ms ahead."""
    files = []
    for rank, pid in enumerate((3963, 3964)):
        statements = [f"DELETE FROM TARGET_INFO_CUDA_CONTEXT_INFO WHERE processId != {pid}"]
        for column, names in OF_PROCESS.items():
            statements += [f"DELETE FROM {name} WHERE {column} >> 24 & 0xFFFFFF != {pid}" for name in names]
            statements += [
                f'UPDATE {name} SET start = start + 2000000000, "end" = "end" + 2000000000' for name in names if rank
            ]
        if rank:
            statements.append("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs - 1970000000")
        (tmp_path / str(rank)).mkdir()
        files.append(str(altered(tmp_path / str(rank), *statements, source=TWO_RANKS)))
    assert invoke("import", *files, "--artifacts", str(tmp_path / "runs"))[0] == 0
    found = comm(Run(next((tmp_path / "runs").glob("2*"))))
    assert [(rank["rank"], rank["file"], rank["pid"]) for rank in found.ranks] == [(0, 0, 3963), (1, 1, 3964)]
    (warning,) = found.warnings
    assert (warning.kind, warning.values["file"]) == ("clock_off", 1)
    assert (warning.values["shift_us"], warning.values["error_us"]) == (-30000.731, 124.008)
    assert [(each["number"], each["late_rank"], round(each["wait_us"])) for each in found.worst[:4]] == [
        (9, 1, 123461), (16, 1, 10342), (26, 1, 10310), (6, 1, 10233),
    ]  # fmt: skip
    assert found.worst[0]["meanwhile"][1]["doing_name"] == "cuLibraryLoadData"


def test_communication_beside_compute(tmp_path: Path) -> None:
    job = Job(2)
    for rank in range(2):
        job.kernel(rank, 0, 100)
        job.kernel(rank, 50, 150, "gemm", stream=13)
    found = job.found(tmp_path)
    assert [(rank["overlap_share"], rank["communication_us"], rank["compute_us"]) for rank in found.ranks] == [
        (0.5, 100, 100)
    ] * 2


def test_nothing_to_compare(tmp_path: Path) -> None:
    one, quiet = Job(1), Job(2)
    one.kernel(0, 0, 10)
    quiet.kernel(0, 0, 10, "gemm")
    quiet.kernel(1, 0, 10, "gemm")
    assert [each.kind for each in one.found(tmp_path / "one").warnings] == ["one_rank"]
    assert [each.kind for each in quiet.found(tmp_path / "quiet").warnings] == ["no_communication"]
