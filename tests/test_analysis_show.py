"""fiprof/analysis/show.py and its tables: durations, roofs, occupancy and caches."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.roofline import Level, roofline
from fiprof.analysis.show import Figures, show
from fiprof.model.run import Run
from fiprof.reports.show import document
from fiprof.reports.writers import render
from tests.reports_fixture import DATA, make_run, record_run

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


def test_dram_bytes_without_a_rate_have_a_rate_and_a_share(tmp_path: Path) -> None:
    launch = {"launch": 0, "case": None, "kernel": "K", "duration_ns": 1000.0, "dram_read_bytes": 2e5}
    peak = {"dram_write_bytes": 8e3, "dram_clock_hz": 1e9, "dram_peak_bytes_per_cycle": 1000.0}
    run = make_run(tmp_path / "run", launches=[{**launch, **peak}])
    row, dram = rows_of(show(run))[0], roofline(run).launches[0].memory(Level.DRAM)
    assert (row["dram_gb_per_s"], row["dram_share"]) == (pytest.approx(208), pytest.approx(0.208))
    assert dram and dram.share == row["dram_share"]
