"""fiprof/reports/run_report/appendix.py: the commands and files with which a run is made again."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.reproduce import reproduce
from fiprof.reports.run_report import appendix
from fiprof.reports.run_report.ink import Code
from tests.reports_fixture import case, ended, make_run


def test_the_command_that_makes_it_again(tmp_path: Path) -> None:
    """fiprof's own command line; of older runs what their actions and settings say."""
    typed = ["fiprof", "collect", "--workload", "my file.py:x\x1b"]
    run = make_run(tmp_path / "run", cases=[case("mine[rows=8]")], argv=typed)
    assert reproduce(run) == ["fiprof collect --workload 'my file.py:x\\x1b'"]
    older = make_run(tmp_path / "older", actions=[ended("plain", ["python", "-m", "fiprof.workloads", "run"])])
    assert reproduce(older) == ["python -m fiprof.workloads run"]
    settings = {"tools": ["ncu"], "launches": 7, "cover_pct": 95.0}
    program: dict[str, Any] = {"environment": {"program": {"command": ["./a b", "-x"]}}, "settings": settings}
    assert reproduce(make_run(tmp_path / "program", cases=[], **program)) == [
        "fiprof profile --tool ncu --cover 95.0 --launches 7 -- './a b' -x"
    ]
    begun = make_run(tmp_path / "window", cases=[], actions=[ended("nsys-start")], **program)
    assert reproduce(begun)[0] == "fiprof profile --session NAME -- './a b' -x"
    assert reproduce(begun)[1].startswith("fiprof capture NAME --duration ")


@pytest.mark.parametrize("word", ["a" * 120, "x[y=1]," * 40, "it's " * 30, "$(touch /tmp/x)" * 12, "ü" * 10])
def test_a_command_of_several_lines_is_the_same_to_a_shell(word: str) -> None:
    text = appendix.shell(["printf", "%s", word])
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == word


def test_the_commands_by_hand_are_those_of_the_run(tmp_path: Path) -> None:
    argv = ["/opt/nsys", "profile", "--output=artifacts/.partial-run/nsys/trace.nsys-rep", "/opt/python", "-m", "fiprof.workloads",
            "run", "--case", "mine[rows=8]", "--seed=0", "--out=artifacts/.partial-run/logs/nsys.jsonl"]  # fmt: skip
    run = make_run(tmp_path / "run", actions=[ended("nsys", argv)])
    codes = [block.text for block in appendix.reproduction([run]).blocks if isinstance(block, Code)]
    script = codes[-1]
    done = subprocess.run(
        ["bash", "-c", script.replace("nsys profile", "printf '%s\\n' profile").replace("mkdir -p", ": mkdir")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "profile", "--output=by-hand/nsys/trace.nsys-rep", *argv[3:-1], "--out=by-hand/logs/nsys.jsonl",
    ]  # fmt: skip
