"""What ``fiprof top`` and ``comm`` say of the programs in tests/programs, recorded on H200s."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.checks import evaluate
from fiprof.analysis.hotspots import hotspots
from fiprof.analysis.roofline import roofline
from fiprof.analysis.stalls import stalls
from fiprof.analysis.verdict.verdict import verdicts
from fiprof.errors import FiprofError
from tests.recorded_runs import invoke, profiled


def rows(*arguments: str) -> list[dict[str, Any]]:
    status, text = invoke(*arguments, "--format", "json")
    assert status == 0
    found: list[dict[str, Any]] = json.loads(text)["rows"]
    return found


def test_kernels_by_rank_and_range() -> None:
    """The all-reduce on the rank that waits and on the one that it waits for, in the range that launched it."""
    run = str(profiled("ranks").path)
    found = rows("top", run, "--kernel", "AllReduce", "--by", "range")
    assert [
        (row["rank"], row["device"], row["range"], row["count"], round(row["median_us"], 1)) for row in found[:3]
    ] == [(0, 0, "step > all-reduce", 30, 208.2), (1, 1, "step > all-reduce", 30, 134.8), (0, 0, None, 1, 288.3)]
    alone = rows("top", run, "--kernel", "AllReduce", "--rank", "1")
    assert [(row["rank"], row["range"], row["count"], round(row["share"], 3)) for row in alone] == [(1, None, 31, 1.0)]
    assert {row["rank"] for row in rows("top", run, "--table", "idle")} == {0, 1}


def test_a_report_is_of_a_program(tmp_path: Path) -> None:
    for program, title, again in (
        ("vectors", "# vectors 50 on NVIDIA H200", "fiprof profile --set full -- ./vectors 50"),
        (
            "ranks",
            "# ranks.py 30 on NVIDIA H200",
            "fiprof profile -- python3 -m torch.distributed.run --standalone --nproc-per-node 2 ranks.py 30",
        ),
        ("server", None, "fiprof capture NAME --duration 0.4"),
    ):
        assert invoke("report", str(profiled(program).path), "--format", "md", "--out", str(tmp_path))[0] == 0
        lines = (tmp_path / "report.md").read_text().splitlines()
        assert title in (None, lines[0]) and again in lines
        assert (program == "ranks") == any(
            "Rank 1 makes the others wait most: 367.285 ms" in line for line in lines[:20]
        )
        assert not [
            line for line in lines if "plain run" in line or "names no case" in line or "collect --replay" in line
        ]


def test_a_server_that_is_captured_is_no_other_process() -> None:
    assert next(check for check in evaluate(profiled("server")) if check.check == "other_processes").passed


def test_what_a_trace_lacks_comes_by_the_command_that_made_it() -> None:
    """And fiprof top reads what is there."""
    for program, again in (("server", "fiprof profile --"), ("tworanks", "import a report of ncu")):
        for read in (verdicts, stalls, hotspots, roofline):
            with pytest.raises(FiprofError) as caught:
                read(profiled(program))
            assert again in caught.value.remedy and "; fiprof top shows" in caught.value.remedy


def test_a_kernel_in_two_ranges_of_which_one_was_profiled() -> None:
    """--by-range: the products of decode run in prefill too, where the large one takes more than the wished share."""
    found = rows("top", str(profiled("window").path), "--kernel", "splitK_NNT", "--by", "range")
    assert [(row["range"], row["count"], round(row["median_us"], 2), row["profiled"]) for row in found] == [
        ("decode", 248, 7.3, 1.0), ("prefill", 31, 13.7, 0.0),
    ]  # fmt: skip
    verdict = rows("verdict", str(profiled("window").path))
    assert [(row["case"], row["program_count"], round(row["program_share"], 3)) for row in verdict] == [
        ("prefill", 31, 0.718), ("decode", 248, 0.125), ("decode", 248, 0.029),
    ]  # fmt: skip


def test_two_traces_on_one_clock() -> None:
    """One nsys a rank, imported together: NCCL's payload has the sizes, and the bus reaches what nccl-tests shows."""
    longest = max(rows("comm", str(profiled("tworanks").path)), key=lambda row: row["wait_us"])
    assert (longest["op"], longest["message_bytes"], longest["late_rank"]) == ("all_reduce", 33554432, 0)
    assert (round(longest["wait_us"]), round(longest["bus_gbps"], 1)) == (31952, 251.3)
