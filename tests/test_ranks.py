"""Ranks: who a process is in its job, and what is told by rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.show import show
from fiprof.model.busy import busy_times
from fiprof.model.run import Run
from fiprof.parsers.nsys import NOTED
from fiprof.parsers.nsys_scrub import scrub
from tests.nsys_exports import TWO_RANKS, changed, query
from tests.reports_fixture import add, execution, make_run

ENVIRONMENTS = "INSERT INTO StringIds VALUES (900001, 'LOCAL_RANK=1 A=1 RANK=9'), (900002, 'RANK=8 LOCAL_RANK=0')"
CAPTURE = "CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)"
ONE_RANK = ("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = 0", CAPTURE)
FORGET = f"DROP TABLE {NOTED}"


@pytest.mark.parametrize(
    ("statements", "ranks"),
    [
        ((FORGET,), [(3963, None), (3964, None)]),
        # The environments of a node's processes say nothing of whose they are: by the order of GPUs.
        ((FORGET, ENVIRONMENTS), [(3963, 8), (3964, 9)]),
        # Of more processes than ran kernels: nobody knows which.
        ((FORGET, ENVIRONMENTS, "INSERT INTO StringIds VALUES (900003, 'RANK=7 LOCAL_RANK=2')"), [(3963, None), (3964, None)]),
        # nsys around each rank.
        ((FORGET, *ONE_RANK, "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK=\"5\"')"), [(3964, 5)]),
        ((FORGET, *ONE_RANK, "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:COMMAND', 'RANK=5')"), [(3964, None)]),
        ((FORGET, "DROP TABLE TARGET_INFO_CUDA_CONTEXT_INFO"), [(3963, None), (3964, None)]),
    ],
)  # fmt: skip
def test_where_a_rank_comes_from(statements: tuple[str, ...], ranks: list[Any], tmp_path: Path) -> None:
    _, found = changed(tmp_path, *statements, source=TWO_RANKS)
    assert [(row["pid"], row["rank"]) for row in found["processes"]] == ranks
    scrub(tmp_path / "trace.sqlite", ())
    assert query(tmp_path / "trace.sqlite", "SELECT count(*) FROM StringIds WHERE instr(value, 'RANK=')") == [(0,)]
    if len(ranks) == 2 and "DROP TABLE TARGET_INFO_CUDA_CONTEXT_INFO" not in statements:
        assert [row[-1] for row in query(tmp_path / "trace.sqlite", f"SELECT * FROM {NOTED}")] == [r for _, r in ranks]


@pytest.fixture
def job(tmp_path: Path) -> Run:
    """Two ranks, an iteration of a kernel and an all-reduce for which rank 1 waits."""
    kernels = [
        execution(begin, end, kernel, iteration=step, pid=1 + rank, device=rank)
        for step in range(3)
        for rank, kernel, begin, end in [
            (0, "gemm", 1000 * step, 1000 * step + 400), (0, "ncclAllReduce", 1000 * step + 400, 1000 * step + 450),
            (1, "gemm", 1000 * step, 1000 * step + 100), (1, "ncclAllReduce", 1000 * step + 100, 1000 * step + 450),
        ]
    ]  # fmt: skip
    run = make_run(tmp_path, kernels=sorted(kernels, key=lambda row: row["start_ns"]))
    add(run, "processes", [{"pid": 1, "device": 0, "rank": 0}, {"pid": 2, "device": 1, "rank": 1}])
    return run


def test_times_by_rank(job: Run) -> None:
    """A median over ranks is a time that none took: together it is the slowest rank's."""
    case = "mine[rows=8]"
    times = {
        rank: {kernel: each.median_us for (_, kernel), each in of.kernels.items()}
        for rank, of in job.trace.ranks.items()
    }
    assert times == {0: {"gemm": 0.4, "ncclAllReduce": 0.05}, 1: {"gemm": 0.1, "ncclAllReduce": 0.35}}
    assert {kernel: each.median_us for (_, kernel), each in job.trace.kernels.items()} == {
        "gemm": 0.4,
        "ncclAllReduce": 0.35,
    }
    assert (job.trace.cases[case].iteration.median_us, job.trace.cases[case].executions) == (0.45, 2)
    assert busy_times(job)[case].median_us == 0.45
    shown = [(item.rank, item.kernel, item.nsys_duration_us) for item in show(job).launches]
    assert sorted(shown) == [(0, "gemm", 0.4), (0, "ncclAllReduce", 0.05), (1, "gemm", 0.1), (1, "ncclAllReduce", 0.35)]
