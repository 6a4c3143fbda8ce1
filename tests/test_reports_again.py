"""fiprof/reports/run_report/again.py: the commands and files with which a run is made again."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from fiprof.model.manifest import FileEntry
from fiprof.reports.pages.page import Code, Page, Section, Table
from fiprof.reports.report import report
from fiprof.reports.run_report import again
from tests.reports_fixture import case, ended, make_run


def the(page: Page, anchor: str) -> Section:
    (section,) = [section for section in page.sections if section.anchor == anchor]
    return section


DEFAULTS = {"mine": {"rows": 8, "fast": False}, "other": {"rows": 8}}


@pytest.mark.parametrize(
    ("ids", "commands"),
    [
        (["mine[rows=8,fast=false]"], ["fiprof collect --kernel mine"]),
        (
            ["mine[rows=8,fast=false]", "mine[rows=8,fast=true]", "mine[rows=1,fast=false]", "mine[rows=1,fast=true]"],
            ["fiprof collect --kernel mine --rows 8,1 --fast false,true"],
        ),
        # Not every combination: one command each, with every parameter said.
        (
            ["mine[rows=8,fast=false]", "mine[rows=1,fast=true]"],
            ["fiprof collect --kernel mine --rows 8 --fast false", "fiprof collect --kernel mine --rows 1 --fast true"],
        ),
        (["mine[rows=8,fast=false]", "other[rows=8]"], ["fiprof collect --kernel all"]),
        # --rows 4 would change the other's too.
        (
            ["mine[rows=4,fast=false]", "other[rows=8]"],
            ["fiprof collect --kernel mine --rows 4", "fiprof collect --kernel other"],
        ),
        (["mine[rows=4,fast=false]", "other[rows=4]"], ["fiprof collect --kernel all --rows 4"]),
        (["unknown[x=1]"], ["fiprof collect --kernel unknown --x 1"]),
        # Two of three combinations share a command.
        (
            [f"unknown[x={x},{two}]" for two in ("y=0,z=0", "y=0,z=1", "y=1,z=0") for x in (1, 2)],
            [
                "fiprof collect --kernel unknown --x 1,2 --y 0 --z 0,1",
                "fiprof collect --kernel unknown --x 1,2 --y 1 --z 0",
            ],
        ),
    ],
)
def test_the_command_that_collects_it_again(tmp_path: Path, ids: list[str], commands: list[str]) -> None:
    run = make_run(tmp_path / "run", cases=list(map(case, ids)), settings={"tools": ["nsys", "ncu"]})
    found = again.collects(run.manifest, DEFAULTS)
    assert [" ".join(shlex.split(each.command)) for each in found] == commands
    assert sorted(each for collect in found for each in collect.cases) == sorted(ids)


def test_settings_that_differ_are_options(tmp_path: Path) -> None:
    settings = {"tools": ["ncu"], "ncu_set": "quick", "iterations": 20, "seed": 7, "check": False, "gpu_metrics_hz": 0}
    run = make_run(tmp_path / "run", cases=[case("other[rows=8]")], settings=settings)
    (collect,) = again.collects(run.manifest, DEFAULTS)
    assert collect.command.partition(" --set ")[2] == "quick --seed 7 --no-check --gpu-metrics-hz 0 --tool ncu"


@pytest.mark.parametrize(
    "word", ["a" * 50 + "," + "b" * 80, "x[y=1]," * 40, "it's " * 30, "$(touch /tmp/x)" * 12, "ü" * 10]
)
def test_a_broken_word_is_the_same_to_a_shell(word: str) -> None:
    text = again.shell([shlex.quote("printf"), shlex.quote("%s"), shlex.quote(word)])
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == word


def test_the_commands_by_hand_are_those_of_the_run(tmp_path: Path) -> None:
    argv = ["/opt/nsys", "profile", "--output=artifacts/.partial-run/nsys/trace.nsys-rep", "/opt/python", "-m", "fiprof.workloads",
            "run", "--case", "mine[rows=8]", "--seed=0", "--out=artifacts/.partial-run/logs/nsys.jsonl"]  # fmt: skip
    page = report([make_run(tmp_path / "run", actions=[ended("nsys", argv)])])
    codes = [block.text for block in the(page, "reproduce").blocks if isinstance(block, Code)]
    script = codes[-1]
    done = subprocess.run(
        ["bash", "-c", script.replace("nsys profile", "printf '%s\\n' profile").replace("mkdir -p", ": mkdir")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "profile", "--output=by-hand/nsys/trace.nsys-rep", *argv[3:-1], "--out=by-hand/logs/nsys.jsonl",
    ]  # fmt: skip


def test_files_have_whole_checksums(tmp_path: Path) -> None:
    sum_ = "0123456789abcdef" * 4
    entry = ended("ncu", files=[FileEntry("ncu/raw.csv", 5, sum_)])
    page = report([make_run(tmp_path / "run", actions=[entry])])
    (files,) = [b for b in the(page, "actions").blocks if isinstance(b, Table) and b.anchor == "actions-files"]
    assert files.view.rows == (("ncu/raw.csv", 5, sum_),)
