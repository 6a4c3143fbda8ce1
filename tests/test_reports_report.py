"""fiprof/reports/report.py and its parts: what a report of a whole, partial, odd or large run says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fiprof.model import tables
from fiprof.model.manifest import FileEntry
from fiprof.model.run import Run
from fiprof.reports.pages import html, markdown
from fiprof.reports.pages.page import Answer, Bullets, Caution, Chart, Link, Page, Section, Table, Text
from fiprof.reports.report import report
from tests.recorded_runs import parsed
from tests.reports_fixture import case, ended, execution, make_run, record_run, recorded_cases, write_manifest

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


def links(page: Page) -> Iterator[str]:
    for block in blocks(page):
        parts: tuple[Any, ...] = ()
        if isinstance(block, Text):
            parts = block.parts
        elif isinstance(block, Bullets):
            parts = tuple(part for item in block.items for part in item.parts)
        elif isinstance(block, Answer):
            parts = (*(block.first.parts if block.first else ()), *(row.kernel for row in (*block.rows, *block.more)))
        elif isinstance(block, Table):
            parts = tuple(cell for row in block.view.rows for cell in row)
        yield from (part.href for part in parts if isinstance(part, Link))


def cautions(page: Page) -> list[str]:
    return [block.text for block in blocks(page) if isinstance(block, Caution)]


def the(page: Page, anchor: str) -> Section:
    (section,) = [section for section in flat(page.sections) if section.anchor == anchor]
    return section


def answer(page: Page) -> Answer:
    (found,) = [block for block in blocks(page) if isinstance(block, Answer)]
    return found


def table_of(page: Page, anchor: str) -> list[tuple[Any, ...]]:
    (found,) = [block for block in blocks(page) if isinstance(block, Table) and block.anchor == anchor]
    return list(found.view.rows)


def rows_of(section: Section, what: str) -> dict[str, tuple[Any, ...]]:
    """The rows of a kernel's table by their names. what: heading of the table's first column."""
    (found,) = [b for b in section.blocks if isinstance(b, Table) and b.view.columns[0].title == what]
    return {str(row[0]): row[1:] for row in found.view.rows}


# The whole


def test_the_answer_comes_first_and_what_is_looked_up_last_and_folded(page: Page) -> None:
    assert [(section.anchor, section.folded) for section in page.sections] == [
        ("answer", False), ("charts", False), ("times", False), ("kernels", False), ("sure", True), ("asked", True),
        ("environment", True), ("actions", True), ("reproduce", True),
    ]  # fmt: skip
    assert all(part.folded for part in the(page, "kernels").sections)
    assert (page.title, page.subtitle) == (
        "FlashInfer prefill, decode, norms and RoPE on NVIDIA H200", "20261121-120959-all",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("decode", "FlashInfer decode on NVIDIA H200"),
        ("prefill-decode-rope", "FlashInfer prefill, decode and RoPE on NVIDIA H200"),
        ("single-purpose", "matmul, device_copy, l2_copy and 7 more on NVIDIA H200"),
    ],
)
def test_titles(name: str, title: str) -> None:
    assert report([parsed(name)]).title == title


def test_anchors_are_unique_and_links_lead_somewhere(page: Page) -> None:
    found = [section.anchor for section in flat(page.sections)]
    found += [block.anchor for block in blocks(page) if isinstance(block, Table | Chart | Answer) and block.anchor]
    assert len(found) == len(set(found))
    assert {link.removeprefix("#") for link in links(page)} <= set(found)


# Partial runs


def test_without_ncu(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", ncu_raw=None)
    write_manifest(run.path, cases=recorded_cases(), settings={"tools": ["nsys"]})
    page = report([Run(run.path)])
    assert "no counters, occupancy, stalls and roofs: ncu was not asked for" in cautions(page)
    first = answer(page).rows[0]
    assert (first.kernel, first.time, first.limit, first.uses) == (
        "PrefillWithKVCacheKernel", "302.1 µs", "not known", (),
    )  # fmt: skip
    assert "kernels" not in {section.anchor for section in page.sections}


def test_without_nsys(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", trace=False)
    failed = ended("nsys", exit_status=1, outcome="failed", message="the importer failed", remedy="again")
    write_manifest(run.path, cases=recorded_cases(), actions=[failed], status="failed", reason="nsys failed")
    page = report([Run(run.path)])
    assert "no trace and times by nsys: nsys failed: the importer failed" in cautions(page)
    assert any(" failed: nsys failed" in text for text in cautions(page))
    assert "nsys: the importer failed (again)" in cautions(page)
    assert [row.limit for row in answer(page).rows[:2]] == ["latency-bound", "latency-bound"]
    assert len(the(page, "kernels").sections) == 6


def test_without_ranges(tmp_path: Path) -> None:
    rows = [execution(i * 2000, i * 2000 + 1000, phase=None, case=None, iteration=None) for i in range(3)]
    page = report([make_run(tmp_path / "run", kernels=rows)])
    assert any("no NVTX ranges at all" in text for text in cautions(page))
    assert [(row.kernel, row.time, row.limit) for row in answer(page).rows] == [("K", "1.00 µs x 3", "not known")]
    assert page.title == "mine on NVIDIA H200"


@pytest.mark.parametrize(("status", "ended"), [("failed", "failed"), ("interrupted", "was interrupted")])
def test_a_run_with_nothing_at_all(tmp_path: Path, status: str, ended: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_manifest(folder, status=status, reason="the plain run failed", cases=[], settings={}, environment={})
    page = report([Run(folder)])
    text = markdown.render(page)
    assert page.title == "run"
    assert cautions(page)[0] == f"the run run {ended}: the plain run failed"
    assert "Traceback" not in html.render(page)
    assert not any(isinstance(block, Answer) for block in blocks(page)) and "--replay" not in text
    assert "0 of 1 checks passed, 0 failed, 1 not possible" in text
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
    for page in (report([run]), report([run, parsed("all")])):
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
    # The launch with the median duration stands for its kernel: of 4, 9, … 999 the hundredth.
    assert [(row.kernel, row.time) for row in answer(page).rows][:2] == [("K4", "5.50 µs"), ("K3", "4.50 µs")]
    assert len(the(page, "kernels").sections) == 5
    assert len(markdown.render(page).splitlines()) < 400
    (failed,) = [row for row in table_of(page, "sure-checks") if row[0] == "failed"]
    assert failed[1:] == (
        "no samples were lost", "launch 0 (mine), launch 1 (mine), launch 2 (mine), launch 3 (mine) and 996 more",
        "ncu dropped 8 bytes of samples: the sampled shares are of the kernel's beginning",
    )  # fmt: skip


def test_many_kernels_are_bounded_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    launches = [
        {"launch": i, "kernel": f"K{i}", "kernel_full": f"K{i}", "grid": "64x1x1", "duration_ns": 1e6 - i}
        for i in range(100)
    ]
    page = report([make_run(tmp_path / "run", launches=launches, cases=[])])
    found = answer(page)
    assert (len(found.rows), len(found.more), len(the(page, "kernels").sections)) == (5, 40, 24)
    text = " ".join(markdown.render(page).split())
    assert "The 45 of 100 kernels with most time are shown; fiprof verdict has all." in text
    assert "The 24 of 100 kernels with most time have a page; fiprof show has all." in text


# A page a kernel


def test_a_kernel_of_several_cases_is_one_page_with_a_column_each() -> None:
    page = report([parsed("decode")])
    assert [part.title for part in the(page, "kernels").sections] == [
        "BatchDecodeWithPagedKVCacheKernel", "BatchPrefillWithPagedKVCacheKernel",
        "PersistentVariableLengthMergeStatesKernel",
    ]  # fmt: skip
    decode = the(page, "kernel-1")
    assert rows_of(decode, "launch")["under ncu"] == ("336.1 µs", "89.2 µs", "26.8 µs", "11.1 µs")
    assert rows_of(decode, "occupancy")["registers"] == ("9 of 9",) * 4
    assert rows_of(decode, "occupancy")["→"][3] == "grid fills 11% of the GPU"
    assert rows_of(decode, "memory")["DRAM"][:2] == ("67%, 3,209 GB/s", "63%, 3,048 GB/s")
    assert rows_of(decode, "stalls")["barrier · block-wide barrier"] == ("16%", "16%", "14%", "10%")


def test_a_kernel_of_one_case_has_bars(page: Page) -> None:
    prefill = the(page, "kernel-1")
    assert rows_of(prefill, "occupancy")["warps"] == ("1 of 5", 0.2)
    assert rows_of(prefill, "compute")["tensor cores"] == ("53%", pytest.approx(0.5278, abs=1e-3))
    assert rows_of(prefill, "verdict") == {
        "limited by": ("latency-bound",), "how far": ("47% (tensor cores at 53%)",),
        "runner-up": ("compute-bound (tensor cores), only 7.2 points away",), "confidence": ("medium: borderline",),
    }  # fmt: skip


def test_the_ten_hottest_instructions_stand_in_the_code_around_them(page: Page) -> None:
    (hot,) = [b for b in the(page, "kernel-1").blocks if isinstance(b, Table) and b.view.columns[0].key == "rank"]
    ranks = [row[0] for row in hot.view.rows if row[0]]
    assert sorted(map(str, ranks), key=int) == [str(rank) for rank in range(1, 11)]
    (hottest,) = [row for row in hot.view.rows if row[0] == "1"]
    assert hottest[1:3] == ("0xd170", "@!P5 BRA 0x15990") and hottest[4:] == (1.0, "long_scoreboard", "0xd160")
    place = hot.view.rows.index(hottest)
    assert [row[1] for row in hot.view.rows[place - 1 : place + 2]] == ["0xd160", "0xd170", "0xd180"]


# Parameters


def test_an_option_is_held_against_the_other_at_each_size() -> None:
    page = report([parsed("decode")])
    rows = table_of(page, "parameters-options")
    assert [(*row[:4], round(row[5], 2), row[6].split(":")[0]) for row in rows] == [
        ("decode tensor_cores", "batch 32", "false", "true", 1.32, "yes"),
        ("decode tensor_cores", "batch 128", "false", "true", 1.32, "yes"),
        ("decode tensor_cores", "batch 1", "false", "true", 1.04, "no"),
        ("decode tensor_cores", "batch 8", "false", "true", 1.03, "no"),
    ]


def test_cases_over_two_parameters_are_a_map() -> None:
    first = the(report([parsed("decode")]), "charts").blocks[0]
    assert isinstance(first, Chart) and first.title == "decode over batch and tensor_cores"
    assert [line.split() for line in first.text.splitlines()][1:] == [
        ["false", "9.47", "µs", "16%", "28.2", "µs", "54%", "89.8", "µs", "63%", "327", "µs", "67%"],
        ["true", "9.09", "µs", "17%", "26.5", "µs", "53%", "67.7", "µs", "81%", "251", "µs", "89%"],
    ]


def test_of_a_sweep_with_an_option_each_size_shows_the_fastest(tmp_path: Path) -> None:
    rows = [
        execution(i * 10**6, i * 10**6 + us * 1000, case=f"decode[batch={batch},kv_len={kv},tensor_cores={on}]", iteration=i)
        for batch, kv, on, us in (
            (1, 64, "true", 9), (1, 64, "false", 8), (1, 128, "true", 12), (1, 128, "false", 13), (2, 64, "true", 10),
            (2, 64, "false", 11), (2, 128, "true", 20), (2, 128, "false", 25),
        )
        for i in range(3)
    ]  # fmt: skip
    cases = [case(each) for each in dict.fromkeys(str(row["case"]) for row in rows)]
    page = report([make_run(tmp_path / "run", kernels=rows, cases=cases)])
    first = the(page, "charts").blocks[0]
    assert isinstance(first, Chart) and first.title == "decode over batch and KV length"
    assert "false, 8 µs" in first.text and "true, 20 µs" in first.text and "25 µs" not in first.text


def test_a_difference_within_the_spread_is_none(tmp_path: Path) -> None:
    rows = [
        execution(i * 10**6, i * 10**6 + ns, case=f"mine[mode={mode}]", iteration=i)
        for mode, times in (("a", (95_000, 100_000, 105_000)), ("b", (98_000, 103_000, 108_000)))
        for i, ns in enumerate(times)
    ]
    page = report([make_run(tmp_path / "run", kernels=rows, cases=[case("mine[mode=a]"), case("mine[mode=b]")])])
    assert table_of(page, "parameters-options") == [("mine mode", None, "b", "a", 100.0, 1.03, "no: within noise")]


# Several runs


def test_several_runs_stand_side_by_side_and_differences_are_marked(tmp_path: Path) -> None:
    def made(name: str, ns: int, **values: Any) -> Run:
        rows = [execution(i * 10**6, i * 10**6 + ns, iteration=i) for i in range(5)]
        launch = {**execution(0, ns), "launch": 0, "duration_ns": float(ns), "registers_per_thread": 32.0}
        return make_run(tmp_path / name, kernels=rows, launches=[launch], **values)

    one, two = made("one", 100_000), made("two", 125_000, settings={"cache_control": "none"})
    page = report([one, two])
    assert [section.anchor for section in page.sections] == [
        "answer", "times", "kernels", "sure", "asked", "environment", "actions", "reproduce",
    ]  # fmt: skip
    assert page.title == "2 runs of mine on NVIDIA H200"
    assert table_of(page, "answer-runs")[0] == ("K (mine)", "100.0 µs", "125.0 µs (+25.0%)")
    assert table_of(page, "times-runs") == [("mine · kernels", "100.00 µs", "125.00 µs (+25.0%)")]
    launch = rows_of(the(page, "kernel-1"), "launch")
    assert (launch["time"], launch["registers/thread"]) == (("100.0 µs", "125.0 µs (+25.0%)"), ("32", "32"))
    assert "the runs differ in ncu cache control: all, none" in cautions(page)
    # One process a side tells no change from noise, and that is said once.
    said = " ".join(markdown.render(page).split())
    assert said.count("One process a side cannot tell a change from noise") == 1
    assert not {"slower", "faster"} & set(said.split())


def test_runs_with_nothing_in_common(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", gpu_us={"mine[rows=8]": [1.0] * 3})
    two = make_run(tmp_path / "two", cases=[case("other[rows=8]")])
    assert any("nothing to compare" in text for text in cautions(report([one, two])))
