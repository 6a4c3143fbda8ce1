"""fiprof/analysis/show.py and its tables: durations, roofs, occupancy and caches."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis import checks
from fiprof.analysis.roofline import Level, roofline
from fiprof.analysis.show import Figures, show
from fiprof.model.run import Run
from fiprof.reports.show import document
from fiprof.reports.writers import render
from tests.recorded_runs import counted_run
from tests.reports_fixture import DATA, ended, make_run, record_run

Rows = list[dict[str, Any]]


def rows_of(figures: Figures) -> Rows:
    """What programs get."""
    rows: Rows = json.loads(render(document(figures), "json"))["rows"]
    return rows


@pytest.fixture(scope="module")
def rows(five_kernels: Run) -> Rows:
    return rows_of(show(five_kernels))


# ncu's own text page of the recorded report

Page = dict[str, tuple[str, str]]
"""Name of a metric -> its unit and value as ncu prints them."""


def details() -> list[Page]:
    """The metrics of each launch. A name that several sections print keeps its first value."""
    pages: list[Page] = []
    text = lzma.decompress((DATA / "ncu/full.details.txt.xz").read_bytes()).decode()
    for line in text.splitlines():
        if re.match(r"  \S.*, Context \d+, Stream", line):
            pages.append({})
        elif found := re.fullmatch(r"    (\S.*?)(?:  +(\S+))??  +(\S+) *", line):
            name, unit, value = found.groups()
            pages[-1].setdefault(name, (unit or "", value))
    return pages


SCALES = {"Tbyte/s": 1e3, "Gbyte/s": 1.0, "Mbyte/s": 1e-3, "us": 1.0, "ms": 1e3, "ns": 1e-3}


def printed_by_ncu(value: float | None, page: Page, name: str) -> None:
    """The value, in ncu's unit and to its digits, is what ncu printed."""
    unit, text = page[name]
    assert value is not None
    decimals = len(text.partition(".")[2])
    assert f"{value / SCALES.get(unit, 1.0):.{decimals}f}" == text.replace(",", ""), name


@pytest.mark.parametrize("index", range(6))
def test_figures_are_those_that_ncu_prints(rows: Rows, index: int) -> None:
    row, page = rows[index], details()[index]
    for key, name in (
        ("duration_us", "Duration"),
        ("dram_throughput_pct", "DRAM Throughput"),
        ("theoretical_occupancy_pct", "Theoretical Occupancy"),
        ("achieved_occupancy_pct", "Achieved Occupancy"),
        ("waves_per_sm", "Waves Per SM"),
        ("registers_per_thread", "Registers Per Thread"),
        ("l1_hit_pct", "L1/TEX Hit Rate"),
        ("l2_hit_pct", "L2 Hit Rate"),
    ):
        printed_by_ncu(row[key], page, name)


@pytest.mark.parametrize("index", range(6))
def test_bandwidth_and_shared_memory_are_those_that_ncu_prints(rows: Rows, index: int) -> None:
    text = lzma.decompress((DATA / "ncu/full.details.txt.xz").read_bytes()).decode()
    part = text.split(", Context 1, Stream 7")[index + 1]
    found = re.search(r"Memory Throughput +(\wbyte/s) +(\S+)", part)
    assert found
    assert f"{rows[index]['dram_gb_per_s'] / SCALES[found[1]]:.2f}" == found[2]
    shared = 0.0
    for kind in ("Dynamic", "Static"):
        size = re.search(rf"{kind} Shared Memory Per Block +(K?)byte/block +(\S+)", part)
        assert size
        shared += float(size[2].replace(",", "")) * (1 if size[1] else 1e-3)
    assert rows[index]["shared_kb_per_block"] == pytest.approx(shared, abs=0.005)


def test_at_80_columns_a_decode_matrix_keeps_names_and_figures(tmp_path: Path) -> None:
    text = render(document(show(counted_run("decode", tmp_path))), "table", width=80)
    name = "decode batch=128 tensor_cores · BatchPrefillWithPagedKVCacheKernel"
    assert re.search(rf"^{re.escape(name)}\n12  20\.7  26\.5  42\.\d  88\.6  DRAM  ", text, re.MULTILINE)


# Which launches


def test_warnings_alike_are_one(tmp_path: Path) -> None:
    run = counted_run("decode", tmp_path)
    told = checks.summarized(checks.failed(run), run)
    assert all(finding in show(run).warnings for finding in told)
    found = {fields["check"]["id"]: fields for fields in (finding.fields() for finding in told)}
    stalls, flops = found["stall_sum"], found["flops"]
    assert (stalls["launch"], stalls["label"], stalls["others"]) == (0, "decode batch=1", [1, 3, 4, 5, 7, 9, 10])
    assert (flops["label"], flops["others"]) == ("decode batch=1 tensor_cores", 3)


def test_many_alike_launches_are_one_row_for_people(tmp_path: Path) -> None:
    figures = show(counted_run("single-purpose", tmp_path))
    assert len(figures.launches) == 59
    launches = next(view for view in document(figures).shown if view.title.startswith("Kernels"))
    keys = [column.key for column in launches.columns]
    (tiny,) = [row for row in launches.rows if row[keys.index("label")] == "tiny_launches"]
    durations = sorted(item.duration_us or 0 for item in figures.launches if item.label == "tiny_launches")
    shown = [tiny[keys.index(key)] for key in ("count", "range_us", "duration_us")]
    assert shown == [50, f"{durations[0]:.2f}–{durations[-1]:.2f} µs", durations[24]]
    assert len(json.loads(render(document(figures), "json"))["rows"]) == 59


def test_a_quick_run_says_what_was_not_collected(tmp_path: Path) -> None:
    text = render(document(show(counted_run("prefill-decode-rope", tmp_path))), "table")
    assert (
        "Sectors a request, bank conflicts and local memory were not collected: ncu's full set has them (--set full)"
        in text
    )
    assert "Shared memory: bank conflicts" not in text


# What a run may lack


def test_nsys_alone(tmp_path: Path) -> None:
    run = record_run(tmp_path / "traced", ncu_raw=None)
    figures = show(run)
    rows = rows_of(figures)
    assert [(row["launch"], row["label"], row["duration_us"]) for row in rows][:2] == [
        (None, "prefill", None),
        (None, "decode", None),
    ]
    assert {row["kernel"] for row in rows} >= {"RMSNormKernel", "PrefillWithKVCacheKernel"}
    assert [each.kind for each in figures.warnings] == ["no_counters"]
    assert rows[0]["case_model_tflops"] == pytest.approx(137506062336 / 302.141e-6 / 1e12)
    assert (rows[0]["case_model_tflops_roof_share"], rows[1]["case_kernels"]) == (None, 2)
    text = render(document(figures), "table")
    assert "Occupancy" not in text
    assert max(map(len, text.splitlines())) <= 120


def test_ncu_alone(tmp_path: Path) -> None:
    figures = show(record_run(tmp_path / "counted", trace=False, plain=False))
    assert [each.kind for each in figures.warnings[:2]] == ["no_trace", "no_plain_times"]
    rows = rows_of(figures)
    assert [row["nsys_duration_us"] for row in rows] == [None] * 6
    assert rows[0]["case_model_tflops"] == pytest.approx(439.55, abs=0.01)


def test_plain_times_alone(tmp_path: Path) -> None:
    figures = show(record_run(tmp_path / "plain", ncu_raw=None, trace=False))
    assert figures.launches == ()
    rows = rows_of(figures)
    assert [(row["launch"], row["label"], row["duration_us"]) for row in rows][2] == (None, "rmsnorm", None)
    assert rows[2]["case_plain_us"] == pytest.approx(25.92, abs=0.01)
    assert rows[2]["case_model_tflops"] is None


def test_a_failed_run_says_what_failed(tmp_path: Path) -> None:
    refused = ended("nsys-export", exit_status=1, outcome="timeout", message="over 1800 s")
    run = make_run(tmp_path / "broken", status="failed", reason="nsys-export took too long", actions=[refused])
    assert [each.kind for each in show(run).warnings] == [
        "failed", "no_counters", "no_trace", "no_plain_times",
    ]  # fmt: skip


def test_a_launch_of_which_little_was_collected(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", launches=[{"launch": 7, "kernel": "K", "duration_ns": 2000.0}])
    (row,) = rows_of(show(run))[:1]
    known = {key: value for key, value in row.items() if value not in (None, [])}
    assert known == {"launch": 7, "label": "–", "kernel": "K", "duration_us": 2.0, "basis": "none"}


def test_dram_bytes_without_a_rate_have_a_rate_and_a_share(tmp_path: Path) -> None:
    launch = {"launch": 0, "case": None, "kernel": "K", "duration_ns": 1000.0, "dram_read_bytes": 2e5}
    peak = {"dram_write_bytes": 8e3, "dram_clock_hz": 1e9, "dram_peak_bytes_per_cycle": 1000.0}
    run = make_run(tmp_path / "run", launches=[{**launch, **peak}])
    row, dram = rows_of(show(run))[0], roofline(run).launches[0].memory(Level.DRAM)
    assert (row["dram_gb_per_s"], row["dram_share"]) == (pytest.approx(208), pytest.approx(0.208))
    assert dram and dram.share == row["dram_share"]


def test_a_kernel_that_only_nsys_saw_is_shown_too(tmp_path: Path) -> None:
    kernel = {"phase": "measure", "case": "mine[rows=8]", "iteration": 0, "kernel": "Copy", "duration_ns": 4000}
    launch = {"launch": 0, "case": "mine[rows=8]", "iteration": 0, "kernel": "K", "duration_ns": 1000.0}
    warmup = {**kernel, "phase": "warmup", "kernel": "Warm"}
    rows = rows_of(show(make_run(tmp_path / "run", launches=[launch], kernels=[kernel, warmup])))
    assert [(row["launch"], row["kernel"], row["nsys_duration_us"]) for row in rows] == [
        (0, "K", None),
        (None, "Copy", 4.0),
    ]
