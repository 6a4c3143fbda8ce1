"""fiprof/reports/report.py and its parts: what a report of a whole, partial, odd or large run says."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fiprof.model import tables
from fiprof.model.manifest import Action, FileEntry
from fiprof.model.run import Run
from fiprof.reports.pages import html, markdown
from fiprof.reports.pages.page import Bullets, Caution, Chart, Code, Link, Observation, Page, Section, Table, Text
from fiprof.reports.report import SECTIONS, report
from fiprof.reports.run_report import guide
from tests.recorded_runs import parsed
from tests.reports_fixture import case, make_run, record_run, recorded_cases, write_manifest

HOSTILE = 'void <script>alert("1")</script>`rm -rf /`|[x](http://e.example)\x1b[31m{0}{}%s'


@pytest.fixture(scope="module")
def recorded() -> Run:
    return parsed("all")


@pytest.fixture(scope="module")
def page(recorded: Run) -> Page:
    return report([recorded])


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


def test_the_summary(page: Page) -> None:
    (bullets,) = [block for block in the(page, "summary").blocks if isinstance(block, Bullets)]
    where, bound, first = ("".join(item.parts) for item in bullets.items)
    assert where == (
        "One iteration of each of the 5 cases takes 543.82 µs of kernel time by nsys: 55% PrefillWithKVCacheKernel "
        "(prefill), 17% BatchQKApplyRotaryKernel (rope), 16% BatchDecodeWithPagedKVCacheKernel (decode), and 3 more."
    )
    assert bound.startswith("PrefillWithKVCacheKernel (prefill) is latency-bound: use of tensor cores 52.8%, below 60%")
    assert first.startswith("To do first, in PrefillWithKVCacheKernel (prefill): overlap the products")
    assert "It saves at most 47% of its time, 141.8 µs an iteration" in first


def test_a_kernel_has_its_verdict_and_its_analysis(page: Page) -> None:
    (rope,) = [section for section in flat(page.sections) if section.title == "BatchQKApplyRotaryKernel · rope"]
    (verdict,) = [block for block in rope.blocks if isinstance(block, Observation)]
    assert verdict.observation == "Memory-bound (DRAM)."
    texts = ["".join(item.parts) for block in rope.blocks if isinstance(block, Bullets) for item in block.items]
    by_name = dict(
        text.split(": ", 1)
        for text in texts
        if text.partition(":")[0] in ("Time", "Occupancy", "Compute", "Memory", "Stalls")
    )
    assert by_name["Memory"].startswith("DRAM moved 3,3") and "well used, and not yet at its roof" in by_name["Memory"]
    assert "long_scoreboard dominates with" in by_name["Stalls"]
    assert "10 blocks on a multiprocessor, 62.5%, limited by registers" in by_name["Occupancy"]
    assert "fp32" in by_name["Compute"] and "XU" in by_name["Compute"]


def test_the_second_kernel_of_an_iteration_is_an_observation(page: Page) -> None:
    (found,) = [
        block for block in blocks(page)
        if isinstance(block, Observation) and block.anchor == "finding-kernel-PersistentVariableLengthMergeStatesKernel"
    ]  # fmt: skip
    assert found.observation == (
        "PersistentVariableLengthMergeStatesKernel (the merge after split-KV) takes 4.5% of the kernel time of decode."
    )


def test_the_checklist_says_what_does_not_hold(page: Page) -> None:
    found = checklist(page)
    assert found["every launch under ncu has a verdict"] == "yes"
    assert found["the stall mix is consistent"] == "NO"
    assert found["nothing else used the GPU"] == "yes"


def test_text_keeps_to_100_columns(page: Page) -> None:
    for line in markdown.render(page).splitlines():
        assert len(line) <= 100 or line.startswith(("<a id=", "](")) or len(max(line.split(), key=len)) > 90, line


# Kernels that do one thing only


@pytest.fixture(scope="module")
def single() -> Page:
    return report([parsed("single-purpose")])


def part(page: Page, title: str) -> tuple[Observation, str]:
    """The verdict of a kernel's part, and all its other sentences."""
    (section,) = [section for section in flat(page.sections) if section.title == title]
    (verdict,) = [block for block in section.blocks if isinstance(block, Observation)]
    texts = ["".join(item.parts) for block in section.blocks if isinstance(block, Bullets) for item in block.items]
    return verdict, "\n".join(texts)


def test_what_is_next_to_nothing_is_not_interpreted(single: Page) -> None:
    _, fma = part(single, "fma_chain · fma_chain")
    assert "Memory: next to none: DRAM is at 0.0% of its roof, L2 at 0.2% of its peak." in fma.splitlines()
    assert "Stalls are negligible: the largest is wait, 0%." in fma
    _, block = part(single, "one_block · one_block")
    assert "with 5.58 warps ready on average, where their multiprocessor had work at all: the most had none." in block
    assert "issue slots are scarce" not in block
    _, tiny = part(single, "vectorized_elementwise_kernel · tiny_launches")
    assert "Hot spot: too few samples to name one: 1." in tiny.splitlines()


def test_evidence_says_what_decides_and_what_it_rules_out(single: Page) -> None:
    verdict, _ = part(single, "device_copy · device_copy")
    assert verdict.evidence == (
        "use of DRAM 84.6%, at least 80% (ncu's rule SOLBottleneck)",
        "not imbalanced: idle time of the multiprocessors 0.5%, below 20% (fiprof, after ncu's rule "
        "LaunchConfiguration); not launch-bound: time in which the GPU waits 1.1%, below 50% (fiprof: it waits longer "
        "than it works)",
        "runner-up: latency-bound, 24.6 points away",
    )
    # An idle GPU decides: nothing is left to be ruled out by it.
    verdict, _ = part(single, "one_block · one_block")
    assert verdict.evidence[0].startswith("idle time of the multiprocessors 99.2%, at least 20%")


def test_rules_that_say_how_busy_a_unit_is_share_a_line(single: Page) -> None:
    _, copy = part(single, "device_copy · device_copy")
    assert (
        "ncu's HighPipeUtilization, 98.5% (local) and IssueSlotUtilization, 15.4% (local): no step, this is how busy a "
        "unit is, which the verdict rests on already."
    ) in copy.splitlines()
    assert "All compute pipelines are under-utilized" not in copy


# Cases that differ in one parameter


@pytest.fixture(scope="module")
def decode() -> Page:
    return report([parsed("decode")])


def finding(page: Page, anchor: str) -> Observation:
    (found,) = [block for block in blocks(page) if isinstance(block, Observation) and block.anchor == anchor]
    return found


def test_a_switch_is_compared_at_every_size(decode: Page) -> None:
    found = finding(decode, "finding-decode-tensor-cores")
    assert found.observation == (
        "decode: tensor_cores true is 1.33 times as fast as false at batch 32: it executes 5.43 times fewer instructions, "
        "DRAM is at 81.4% of its roof instead of 63.4% and the tensor cores are active in 9.8% instead of 0.0%."
    )
    assert found.evidence[:4] == (
        "batch 32: true 67.66 µs, false 89.79 µs: 1.33 times",
        "batch 128: true 251.13 µs, false 327.12 µs: 1.30 times",
        "batch 8: true 26.50 µs, false 28.16 µs: 1.06 times",
        "batch 1: true 9.09 µs, false 9.47 µs: 1.04 times",
    )
    assert found.implication == (
        "Prefer tensor_cores true at batch 32, batch 128; elsewhere it gains less than 1.1 times."
    )


def test_a_size_is_told_as_growth(decode: Page) -> None:
    found = finding(decode, "finding-decode-batch")
    assert found.observation == (
        "decode: from batch 1 to 128 the time grows 27.63 to 34.54 times for 128 times the least bytes."
    )
    assert len(found.evidence) == 2


def test_what_was_measured_to_be_faster_comes_first(decode: Page) -> None:
    (bullets,) = [block for block in the(decode, "summary").blocks if isinstance(block, Bullets)]
    assert "".join(bullets.items[2].parts) == (
        "To do first: tensor_cores true instead of false at batch 128, 251.13 µs instead of 327.12 µs: measured, 1.30 "
        "times as fast. In decode batch=1 tensor_cores the GPU waits 58% of the time for the host, and half or more in "
        "another case: no faster kernel helps there."
    )


def test_a_difference_within_the_spread_is_none(tmp_path: Path) -> None:
    def executions(mode: str, times: list[int]) -> list[dict[str, Any]]:
        return [
            {"start_ns": i * 10**6, "end_ns": i * 10**6 + ns, "duration_ns": ns, "device": 0, "phase": "measure",
             "case": f"mine[mode={mode}]", "iteration": i, "kernel": "K", "kernel_full": "K", "grid": "8x1x1"}
            for i, ns in enumerate(times)
        ]  # fmt: skip

    rows = executions("a", [95_000, 100_000, 105_000]) + executions("b", [98_000, 103_000, 108_000])
    page = report([make_run(tmp_path / "run", kernels=rows, cases=[case("mine[mode=a]"), case("mine[mode=b]")])])
    assert finding(page, "finding-mine-mode").observation == (
        "mine: mode makes no difference beyond the spread (1.03 times at most)."
    )


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
    failed = Action(
        "nsys", ["nsys"], {}, "2026-11-21T10:45:00+01:00", 1.0, 1, "failed", None, "the importer failed", "again"
    )
    write_manifest(run.path, cases=recorded_cases(), actions=[failed], status="failed", reason="nsys failed")
    page = report([Run(run.path)])
    assert "no execution story and times by nsys: nsys failed: the importer failed" in cautions(page)
    assert any(" failed: nsys failed" in text for text in cautions(page))
    assert "nsys: the importer failed (again)" in cautions(page)
    assert checklist(page)["every command ended well"] == "NO"
    assert the(page, "kernels").sections


def test_without_ranges(tmp_path: Path) -> None:
    rows = [
        {"start_ns": i * 2000, "end_ns": i * 2000 + 1000, "duration_ns": 1000, "device": 0, "kernel": "K", "kernel_full": "K",
         "grid": "8x1x1", "block": "32x1x1"} for i in range(3)
    ]  # fmt: skip
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
    row = {"launch": 0, "case": mine, "iteration": 0, "kernel": HOSTILE, "kernel_full": HOSTILE, "grid": HOSTILE, "block": "1x1x1",
           "duration_ns": 1e4}  # fmt: skip
    execution = {**row, "start_ns": 0, "end_ns": 10_000, "duration_ns": 10_000, "device": 0, "phase": "measure"}
    entry = Action(
        "ncu",
        ["ncu", HOSTILE],
        {"X": HOSTILE},
        "2026-11-21T10:45:00+01:00",
        1.0,
        0,
        "ok",
        HOSTILE,
        files=[FileEntry(HOSTILE, 1, "0" * 64)],
    )
    run = make_run(
        tmp_path / "run", launches=[row], kernels=[{k: v for k, v in execution.items() if k != "launch"}], gpu_us={mine: [10.0] * 3},
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
    def kernels(us: float) -> list[dict[str, Any]]:
        return [
            {"start_ns": i * 10**6, "end_ns": i * 10**6 + round(us * 1000), "duration_ns": round(us * 1000), "device": 0,
             "phase": "measure", "case": "mine[rows=8]", "iteration": i, "kernel": "K", "kernel_full": "K", "grid": "8x1x1"}
            for i in range(5)
        ]  # fmt: skip

    one = make_run(tmp_path / "one", kernels=kernels(100.0))
    two = make_run(tmp_path / "two", kernels=kernels(125.0), settings={"cache_control": "none"})
    page = report([one, two])
    assert [section.anchor for section in page.sections] == ["comparison", "run1-run", "run2-run"]
    found = table_of(page, "comparison-cases")
    assert [(row["run"], row["ratio"], row["means"]) for row in found] == [(1, None, ""), (2, 1.25, "slower")]
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


def cases(*ids: str) -> list[Any]:
    return [case(each) for each in ids]


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
    run = make_run(tmp_path / "run", cases=cases(*ids), settings={"tools": ["nsys", "ncu"]})
    found = guide.collects(run.manifest, DEFAULTS)
    assert [" ".join(shlex.split(each.command)) for each in found] == commands
    assert sorted(each for collect in found for each in collect.cases) == sorted(ids)


def test_settings_that_differ_are_options(tmp_path: Path) -> None:
    settings = {"tools": ["ncu"], "ncu_set": "quick", "iterations": 20, "seed": 7, "check": False, "gpu_metrics_hz": 0}
    run = make_run(tmp_path / "run", cases=cases("other[rows=8]"), settings=settings)
    (collect,) = guide.collects(run.manifest, DEFAULTS)
    assert collect.command.split()[4:] == [
        "--set",
        "quick",
        "--seed",
        "7",
        "--no-check",
        "--gpu-metrics-hz",
        "0",
        "--tool",
        "ncu",
    ]


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
    action = Action("nsys", argv, {}, "2026-11-21T10:45:00+01:00", 1.0, 0, "ok", "logs/nsys.log")
    page = report([make_run(tmp_path / "run", actions=[action])])
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
    actions = [
        Action(step, [*tool, *argv], {}, "2026-11-21T10:45:00+01:00", 1.0, 0, "ok", f"logs/{step}.log")
        for step, tool in (("plain", []), ("nsys", ["/opt/nsys", "profile"]))
    ]
    page = report([make_run(tmp_path / "run", actions=actions)])
    (log,) = [block.text for block in the(page, "actions").blocks if isinstance(block, Code)]
    assert log.count("mine[rows=3]") == 1
    script = log.replace("/opt/nsys profile", "printf '%s\\n'").replace("# plain\n", ": ")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == argv


def test_files_have_whole_checksums(tmp_path: Path) -> None:
    sum_ = "0123456789abcdef" * 4
    action = Action(
        "ncu", ["ncu"], {}, "2026-11-21T10:45:00+01:00", 1.0, 0, "ok", None, files=[FileEntry("ncu/raw.csv", 5, sum_)]
    )
    page = report([make_run(tmp_path / "run", actions=[action])])
    assert sum_ in markdown.render(page)
