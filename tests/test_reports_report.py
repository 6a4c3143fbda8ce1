"""fiprof/reports/report.py and its parts: what a report of a whole, partial, odd or large run says."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fiprof.model import tables
from fiprof.model.manifest import FileEntry
from fiprof.model.run import Run
from fiprof.reports.pages import html, markdown
from fiprof.reports.pages.page import Bullets, Caution, Chart, Code, Link, Observation, Page, Section, Table, Text
from fiprof.reports.report import SECTIONS, report
from fiprof.reports.run_report import guide
from tests.recorded_runs import parsed
from tests.reports_fixture import (
    case,
    ended,
    execution,
    make_run,
    record_run,
    recorded_cases,
    write_manifest,
)

HOSTILE = 'void <script>alert("1")</script>`rm -rf /`|[x](http://e.example)\x1b[31m{0}{}%s'


@pytest.fixture(scope="module")
def page() -> Page:
    return report([parsed("all")])


def flat(sections: tuple[Section, ...]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from flat(section.sections)


def blocks(page: Page) -> Iterator[Any]:
    for section in flat(page.sections):
        yield from section.blocks


def anchors(page: Page) -> list[str]:
    found = [section.anchor for section in flat(page.sections)]
    return found + [
        block.anchor for block in blocks(page) if isinstance(block, Table | Chart | Observation) and block.anchor
    ]


def links(page: Page) -> Iterator[str]:
    for block in blocks(page):
        if isinstance(block, Text):
            parts: tuple[Any, ...] = block.parts
        elif isinstance(block, Bullets):
            parts = tuple(part for item in block.items for part in item.parts)
        elif isinstance(block, Table):
            parts = tuple(cell for row in block.view.rows for cell in row)
        else:
            parts = ()
        yield from (part.href for part in parts if isinstance(part, Link))


def cautions(page: Page) -> list[str]:
    return [block.text for block in blocks(page) if isinstance(block, Caution)]


def the(page: Page, anchor: str) -> Section:
    (section,) = [section for section in flat(page.sections) if section.anchor == anchor]
    return section


def table_of(page: Page, anchor: str) -> list[dict[str, Any]]:
    (found,) = [block for block in blocks(page) if isinstance(block, Table) and block.anchor == anchor]
    return [dict(zip([c.key for c in found.view.columns], row, strict=True)) for row in found.view.rows]


def checklist(page: Page) -> dict[str, str]:
    return {row["what"]: row["outcome"] for row in table_of(page, "checklist-items")}


# The whole


def test_every_section_is_there_in_its_order(page: Page) -> None:
    assert [section.anchor for section in page.sections] == [*SECTIONS, "checklist"]


def test_anchors_are_unique_and_links_lead_somewhere(page: Page) -> None:
    found = anchors(page)
    assert len(found) == len(set(found))
    assert {link.removeprefix("#") for link in links(page)} <= set(found)


def test_the_checklist_says_what_does_not_hold(page: Page) -> None:
    found = checklist(page)
    assert found["every launch under ncu has a verdict"] == "yes"
    assert found["the stall mix is consistent"] == "NO"
    assert found["nothing else used the GPU"] == "yes"


def test_text_keeps_to_100_columns(page: Page) -> None:
    for line in markdown.render(page).splitlines():
        assert len(line) <= 100 or line.startswith(("<a id=", "](")) or len(max(line.split(), key=len)) > 90, line


def test_a_difference_within_the_spread_is_none(tmp_path: Path) -> None:
    rows = [
        execution(i * 10**6, i * 10**6 + ns, case=f"mine[mode={mode}]", iteration=i)
        for mode, times in (("a", (95_000, 100_000, 105_000)), ("b", (98_000, 103_000, 108_000)))
        for i, ns in enumerate(times)
    ]
    page = report([make_run(tmp_path / "run", kernels=rows, cases=[case("mine[mode=a]"), case("mine[mode=b]")])])
    told = {block.anchor: block.observation for block in blocks(page) if isinstance(block, Observation)}
    assert told["finding-mine-mode"] == "mine: mode makes no certain difference (1.03 times at most)."


# Partial runs


def test_without_ncu(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", ncu_raw=None)
    write_manifest(run.path, cases=recorded_cases(), settings={"tools": ["nsys"]})
    page = report([Run(run.path)])
    assert "no counters, occupancy, stalls and roofs: ncu was not asked for" in cautions(page)
    assert checklist(page)["every tool's data is there"] == "NO"
    assert checklist(page)["every launch under ncu has a verdict"] == "–"
    assert "PrefillWithKVCacheKernel x 20" in markdown.render(page)


def test_without_nsys(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", trace=False)
    failed = ended("nsys", exit_status=1, outcome="failed", message="the importer failed", remedy="again")
    write_manifest(run.path, cases=recorded_cases(), actions=[failed], status="failed", reason="nsys failed")
    page = report([Run(run.path)])
    assert "no execution story and times by nsys: nsys failed: the importer failed" in cautions(page)
    assert any(" failed: nsys failed" in text for text in cautions(page))
    assert "nsys: the importer failed (again)" in cautions(page)
    assert checklist(page)["every command ended well"] == "NO"
    assert the(page, "kernels").sections


def test_without_ranges(tmp_path: Path) -> None:
    rows = [execution(i * 2000, i * 2000 + 1000, phase=None, case=None, iteration=None) for i in range(3)]
    page = report([make_run(tmp_path / "run", kernels=rows)])
    assert any("no NVTX ranges at all" in text for text in cautions(page))
    text = markdown.render(page)
    assert "K x 3, median 1.00 µs" in text
    # What belongs to no case was not measured for its own sake, and is nobody's waiting.
    assert "are the measured phases" not in text
    assert "finding-waiting" not in text


@pytest.mark.parametrize(("status", "ended"), [("failed", "failed"), ("interrupted", "was interrupted")])
def test_a_run_with_nothing_at_all(tmp_path: Path, status: str, ended: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_manifest(folder, status=status, reason="the plain run failed", cases=[], settings={}, environment={})
    page = report([Run(folder)])
    text = markdown.render(page)
    assert f"the run run {ended}: the plain run failed" in " ".join(text.split())
    assert checklist(page)["every section is there"] == "yes" or "missing:" in text
    assert checklist(page)["the run is complete"] == "NO"
    assert "Traceback" not in html.render(page)
    assert "Occupancy of each launch" not in text and "What to expect" not in text and "--replay" not in text
    assert "Nothing was measured of any case: there is nothing to observe." in text
    assert "No check of the run failed, but 1 of 1 could not be made." in text
    assert text.count("the run run ") == 1


def test_an_unreadable_table_is_an_error_that_names_it(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run")
    tables.table_path(run.tables_path, "launches").write_bytes(b"PAR1 no more")
    with pytest.raises(Exception, match=r"launches\.parquet cannot be read"):
        report([Run(run.path)])


# Foreign names


def test_names_are_text(tmp_path: Path) -> None:
    mine = f"mine[rows={HOSTILE}]"
    ran = execution(0, 10_000, HOSTILE, case=mine, grid=HOSTILE)
    file = HOSTILE.replace("\x1b", "").replace("//", "/")
    entry = ended("ncu", ["ncu", HOSTILE], env={"X": HOSTILE}, log=file, files=[FileEntry(file, 1, "0" * 64)])
    run = make_run(
        tmp_path / "run", launches=[{**ran, "launch": 0, "duration_ns": 1e4}], kernels=[ran], gpu_us={mine: [10.0] * 3},
        cases=[case(mine)], actions=[entry], reason=HOSTILE, status="failed",
        environment={"gpu": {"name": HOSTILE}, "packages": {"torch": HOSTILE}},
    )  # fmt: skip
    page = report([run])
    text, shown = markdown.render(page), html.render(page)
    assert "\x1b" not in text and "\x1b" not in shown
    assert '<script>alert("1")' not in shown


# Large runs


def test_a_thousand_launches_are_folded(tmp_path: Path) -> None:
    launches = [
        {
            "launch": i, "case": "mine[rows=8]", "iteration": i // 5, "kernel": f"K{i % 5}", "kernel_full": f"K{i % 5}",
            "grid": "64x1x1", "block": "128x1x1", "duration_ns": 1000.0 * (i % 5 + 1) + i, "achieved_occupancy_pct": 50.0,
            "stall_dropped_bytes": 8.0,
        }
        for i in range(1000)
    ]  # fmt: skip
    page = report([make_run(tmp_path / "run", launches=launches)])
    assert "1,000 launches under ncu, of 5 kernels in their cases" in markdown.render(page)
    rows = table_of(page, "kernels-overview")
    assert [row["count"] for row in rows] == [200] * 5
    # The launch with the median duration stands for its kernel: of 0, 5, … 995 the hundredth.
    assert [row["launch"] for row in rows] == [495, 496, 497, 498, 499]
    assert len(the(page, "kernels").sections) == 5
    assert len(markdown.render(page).splitlines()) < 1500
    (failed,) = [block for block in the(page, "sure").blocks if isinstance(block, Bullets)][:1]
    assert len(failed.items) == 4
    assert "".join(failed.items[0].parts) == (
        "launch 0 (mine): ncu dropped 8 bytes of samples: the sampled shares are of the kernel's beginning."
    )
    assert "".join(failed.items[3].parts) == "997 more like this: check dropped_samples in the appendix."


# Several runs


def test_several_runs_are_compared(tmp_path: Path) -> None:
    def kernels(ns: int) -> list[dict[str, Any]]:
        return [execution(i * 10**6, i * 10**6 + ns, iteration=i) for i in range(5)]

    one = make_run(tmp_path / "one", kernels=kernels(100_000))
    two = make_run(tmp_path / "two", kernels=kernels(125_000), settings={"cache_control": "none"})
    page = report([one, two])
    assert [section.anchor for section in page.sections] == ["comparison", "run1-run", "run2-run"]
    (found,) = [block for block in blocks(page) if isinstance(block, Table) and block.anchor == "comparison-cases"]
    rows = table_of(page, "comparison-cases")
    assert [(row["run"], row["difference_us"], row["difference_pct"]) for row in rows] == [
        (1, None, None),
        (2, 25.0, 25.0),
    ]
    # One process a side tells no change from noise: nothing is called slower or faster, and that is said once.
    said = " ".join(markdown.render(page).split())
    assert said.count("One process a side cannot tell a change from noise") == 1
    assert not {"slower", "faster"} & {str(cell) for row in found.view.rows for cell in row}
    assert "the runs differ in ncu cache control: all, none" in cautions(page)
    names = anchors(page)
    assert len(names) == len(set(names))
    assert {link.removeprefix("#") for link in links(page)} <= set(names)


def test_runs_with_nothing_in_common(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", gpu_us={"mine[rows=8]": [1.0] * 3})
    two = make_run(tmp_path / "two", cases=[case("other[rows=8]")])
    assert any("nothing to compare" in text for text in cautions(report([one, two])))


# The guide


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
    found = guide.collects(run.manifest, DEFAULTS)
    assert [" ".join(shlex.split(each.command)) for each in found] == commands
    assert sorted(each for collect in found for each in collect.cases) == sorted(ids)


def test_settings_that_differ_are_options(tmp_path: Path) -> None:
    settings = {"tools": ["ncu"], "ncu_set": "quick", "iterations": 20, "seed": 7, "check": False, "gpu_metrics_hz": 0}
    run = make_run(tmp_path / "run", cases=[case("other[rows=8]")], settings=settings)
    (collect,) = guide.collects(run.manifest, DEFAULTS)
    assert collect.command.partition(" --set ")[2] == "quick --seed 7 --no-check --gpu-metrics-hz 0 --tool ncu"


@pytest.mark.parametrize(
    "word", ["a" * 50 + "," + "b" * 80, "x[y=1]," * 40, "it's " * 30, "$(touch /tmp/x)" * 12, "ü" * 10]
)
def test_a_broken_word_is_the_same_to_a_shell(word: str) -> None:
    text = guide.shell([shlex.quote("printf"), shlex.quote("%s"), shlex.quote(word)])
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


def test_a_log_of_many_cases_says_them_once(tmp_path: Path) -> None:
    words = [word for rows in range(guide.MOST_CASES + 1) for word in ("--case", f"mine[rows={rows}]")]
    argv = ["/opt/python", "-m", "fiprof.workloads", "run", *words, "--seed=0"]
    actions = [ended(step, [*tool, *argv]) for step, tool in (("plain", []), ("nsys", ["/opt/nsys", "profile"]))]
    page = report([make_run(tmp_path / "run", actions=actions)])
    (log,) = [block.text for block in the(page, "actions").blocks if isinstance(block, Code)]
    assert log.count("mine[rows=3]") == 1
    script = log.replace("/opt/nsys profile", "printf '%s\\n'").replace("# plain\n", ": ")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == argv


def test_files_have_whole_checksums(tmp_path: Path) -> None:
    sum_ = "0123456789abcdef" * 4
    entry = ended("ncu", files=[FileEntry("ncu/raw.csv", 5, sum_)])
    page = report([make_run(tmp_path / "run", actions=[entry])])
    assert sum_ in markdown.render(page)
