"""The ncu parser on what ncu 2025.3.1 recorded on an H200 (``--set full``; and 17 launches with fewer sections)."""

from __future__ import annotations

import csv
import io
import lzma
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fiprof.model import tables
from fiprof.model.formula import Formula
from fiprof.parsers import ncu
from fiprof.parsers.ncu_profile import ranges_of, to_base
from tests.recorded_runs import RUNS

DATA = Path(__file__).parent / "data" / "ncu"


SINGLE_PURPOSE = RUNS["single-purpose"]


def unpack(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    return path


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the full report, from its three pages."""
    folder = tmp_path_factory.mktemp("full")
    details, source = (unpack(f"full.{page}.csv", folder) for page in ("details", "source"))
    summary = ncu.parse(DATA / "full.raw.csv", folder, details=details, source=source)
    assert summary == ncu.NcuSummary(launches=6, metrics=2227, missing=())
    return folder


@pytest.fixture(scope="module")
def from_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the same report, from the report itself."""
    pytest.importorskip("ncu_report")
    folder = tmp_path_factory.mktemp("report")
    summary = ncu.parse(None, folder, report=unpack("full.ncu-rep", folder))
    assert summary == ncu.NcuSummary(launches=6, metrics=2227, missing=())
    return folder


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables.read(folder, table).to_pylist()
    return found


def raw_cells() -> tuple[list[str], list[str], list[list[str]]]:
    with (DATA / "full.raw.csv").open(newline="") as file:
        header, units, *cells = csv.reader(file)
    return header, units, cells


def test_metrics_hold_every_cell_of_the_raw_page(full: Path) -> None:
    header, units, cells = raw_cells()
    expected = {}
    for launch, row in enumerate(cells):
        for name, unit, cell in list(zip(header, units, row, strict=True))[13:]:
            if cell in ("", "no data", "nan"):
                continue
            digits = cell.replace(",", "")
            number = float(digits) if re.fullmatch(r"-?\d+(\.\d+)?", digits) else None
            expected[launch, name] = (unit, number, None if number is not None else cell)
    found = {(row["launch"], row["metric"]): (row["unit"], row["value"], row["text"]) for row in rows(full, "metrics")}
    assert len(expected) == 13272
    assert found == expected
    assert found[0, "device__attribute_display_name"] == ("", None, "NVIDIA H200")


def test_stalls_add_up(full: Path) -> None:
    stalls = rows(full, "stalls")
    for launch in rows(full, "launches"):
        own = [row for row in stalls if row["launch"] == launch["launch"]]
        assert math.fsum(row["share"] for row in own) == pytest.approx(1)
        assert sum(row["samples"] for row in own) == launch["stall_samples"]
        # A kernel of 6 µs differs more: its ratios come from different passes.
        within = 0.15 if launch["kernel"] == "PersistentVariableLengthMergeStatesKernel" else 0.02
        assert math.fsum(row["warps_per_issue"] for row in own) == pytest.approx(
            launch["warp_latency_cycles"], rel=within
        )


def test_alike_launches_keep_listings_of_their_own(tmp_path: Path) -> None:
    """50 launches of a kernel in a row, one sample or none each, their listings printed twice: 109 for 59 launches."""
    pages = {}
    for name in ("raw", "source"):
        pages[name] = tmp_path / f"{name}.csv"
        pages[name].write_bytes(lzma.decompress((SINGLE_PURPOSE / f"ncu/{name}.csv.xz").read_bytes()))
    ncu.parse(pages["raw"], tmp_path, source=pages["source"])
    samples: Counter[int] = Counter()
    for row in rows(tmp_path, "hotspots"):
        samples[row["launch"]] += row["samples"]
    assert [samples[launch] for launch in range(7, 17)] == [1, 1, 1, 1, 1, 0, 1, 1, 0, 1]
    assert dict(samples) == {row["launch"]: row["stall_samples"] for row in rows(tmp_path, "launches")}


def test_what_was_not_collected_is_named(tmp_path: Path) -> None:
    summary = ncu.parse(unpack("quick.raw.csv", tmp_path), tmp_path)
    assert summary.missing[:2] == (
        "rules: ncu's details page was not exported",
        "hotspots: ncu's source page was not exported",
    )
    assert summary.missing[2].startswith("launches: not collected: sm_cycles, dram_read_bytes, dram_write_bytes, ")
    assert "fadd_thread_insts," not in summary.missing[2]
    launch = rows(tmp_path, "launches")[0]
    assert launch["dram_read_bytes"] is None
    assert Formula("dram_bytes").value(launch) == pytest.approx(154e6, rel=0.02)
    assert {row["samples"] for row in rows(tmp_path, "stalls")} == {None}


def test_shares_come_from_samples_where_there_are_no_ratios(tmp_path: Path) -> None:
    header, units, cells = raw_cells()
    keep = [i for i, name in enumerate(header) if "issue_stalled" not in name or "pcsamp" in name]
    page = io.StringIO()
    csv.writer(page, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
        [row[i] for i in keep] for row in (header, units, *cells)
    )
    raw = tmp_path / "raw.csv"
    raw.write_text(page.getvalue())
    ncu.parse(raw, tmp_path)
    stalls = {row["reason"]: row for row in rows(tmp_path, "stalls") if row["launch"] == 0}
    assert stalls["wait"]["share"] == pytest.approx(7348 / 31694)
    assert stalls["wait"]["warps_per_issue"] is None


def decimals(cell: str) -> int:
    return len(cell.partition(".")[2])


def test_the_report_has_the_numbers_of_the_raw_page(from_report: Path) -> None:
    """To the digits that the CSV prints; the report has all of them."""
    header, _, cells = raw_cells()
    found = {(row["launch"], row["metric"]): row for row in rows(from_report, "metrics")}
    compared = 0
    for launch, row in enumerate(cells):
        for name, cell in list(zip(header, row, strict=True))[13:]:
            if cell in ("", "no data", "nan"):
                assert (launch, name) not in found
                continue
            compared += 1
            own = found[launch, name]
            if own["text"] is not None:
                assert own["text"] == cell
            else:
                printed = float(cell.replace(",", ""))
                # The page rounds to its digits; doubles above 2**53 have fewer.
                assert abs(own["value"] - printed) <= 0.5 * 10 ** -decimals(cell) + 4e-16 * abs(printed), name
    assert compared == len(found) == 13272


def test_the_report_has_the_tables_of_the_pages(full: Path, from_report: Path) -> None:
    def pairs(table: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        return zip(rows(full, table), rows(from_report, table), strict=True)

    same: tuple[str, ...] = (
        "launch",
        "case",
        "iteration",
        "kernel",
        "grid",
        "block",
        "device",
        "cc",
        "context",
        "stream",
    )
    for one, other in pairs("launches"):
        assert [one[name] for name in same] == [other[name] for name in same]
        assert other["pid"] is None
    for one, other in pairs("stalls"):
        assert one["warps_per_issue"] == pytest.approx(other["warps_per_issue"], abs=0.005)
        same = ("launch", "reason", "samples", "samples_not_issued")
        assert [one[name] for name in same] == [other[name] for name in same]
    for one, other in pairs("hotspots"):
        # ncu 2025.3.1 and the package print one operand of HGMMA differently.
        assert one.pop("sass").split()[0] == other.pop("sass").split()[0]
        assert one == other
    same = ("launch", "section", "rule", "kind", "message", "speedup_kind")
    findings = [
        Counter(tuple(row[name] for name in same) for row in rows(each, "rules")) for each in (full, from_report)
    ]
    assert findings[0] == findings[1]


@pytest.mark.parametrize(
    ("cell", "ranges"),
    [
        ("", ()),
        ('7  "fiprof:measure:none:none:RGB:0xff:REGISTERED:measure"', (("fiprof", "measure"),)),
        (
            '7  "NCCL:a:none:none:RGB:0xff:REGISTERED:a"  "fiprof:iter 3:none:none:RGB:0xff:REGISTERED:iter 3" ',
            (("NCCL", "a"), ("fiprof", "iter 3")),
        ),
        ('7  "fiprof:a:b[x=1:2]:none:none:RGB:0xff:REGISTERED:a:b[x=1:2]"', (("fiprof", "a:b[x=1:2]"),)),
        ('7  "<default domain>:step 1:none:none:none:none:REGISTERED:step 1"', (("", "step 1"),)),
        (
            '4103  "<default domain>:a:b:none:none:none:none:none:none"  "app:x:none:none:none:none:none:none" ',
            (("", "a:b"), ("app", "x")),
        ),
        ('7  "fiprof:cut off', ()),
    ],
)
def test_ranges_are_read_from_the_nvtx_column(cell: str, ranges: tuple[tuple[str, str], ...]) -> None:
    assert ranges_of(cell) == ranges


UNITS: dict[str, tuple[str, float] | None] = {
    "": ("", 1), "%": ("%", 1), "inst/cycle": ("inst/cycle", 1), "%/register": ("%/register", 1),
    "ns": ("ns", 1), "us": ("ns", 1e3), "msecond": ("ns", 1e6), "s": ("ns", 1e9),
    "Mbyte": ("byte", 1e6), "Kbyte/block": ("byte/block", 1e3), "Gbyte/s": ("byte/s", 1e9),
    "Gbyte/second": ("byte/s", 1e9), "byte/us": ("byte/s", 1e6), "Ghz": ("hz", 1e9), "cycle/nsecond": ("hz", 1e9),
    "Kfurlong": None, "furlong": None, "byte/furlong": None,
}  # fmt: skip


def test_units_come_to_their_base() -> None:
    assert {unit: to_base(unit) for unit in UNITS} == UNITS
    on_the_page = raw_cells()[1]
    assert {unit: to_base(unit) for unit in on_the_page} == {unit: (unit, 1.0) for unit in on_the_page}
