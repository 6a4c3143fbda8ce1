"""The ncu parser: on what ncu recorded, on pages of another shape, on what is no page; names of kernels."""

import csv
import io
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.model.quantities import Formula
from fiprof.parsers import ncu
from fiprof.parsers.names import NO_NAME, printable, short_name
from tests.fakes.recorded import recorded_bytes

DATA = Path(__file__).parent / "data" / "ncu"
IDENTITY = 13
"""Columns of the raw page before those of metrics."""


def unpack(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(recorded_bytes(DATA / name))
    return path


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the full report, from its three pages."""
    folder = tmp_path_factory.mktemp("full")
    details, source = (unpack(f"full.{page}.csv", folder) for page in ("details", "source"))
    assert ncu.parse(DATA / "full.raw.csv", folder, details=details, source=source) == ()
    return folder


@pytest.fixture(scope="module")
def from_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the same report, from the report itself."""
    pytest.importorskip("ncu_report")
    folder = tmp_path_factory.mktemp("report")
    assert ncu.parse(None, folder, report=unpack("full.ncu-rep", folder)) == ()
    return folder


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables.read(folder, table).to_pylist()
    return found


def raw_cells() -> tuple[list[str], list[str], list[list[str]]]:
    with (DATA / "full.raw.csv").open(newline="") as file:
        header, units, *cells = csv.reader(file)
    return header, units, cells


def raw_values() -> Iterator[tuple[int, str, str, str]]:
    """Launch, metric, unit and cell, of each cell of the raw page that has a value."""
    header, units, cells = raw_cells()
    for launch, row in enumerate(cells):
        for name, unit, cell in list(zip(header, units, row, strict=True))[IDENTITY:]:
            if cell not in ("", "no data", "nan"):
                yield launch, name, unit, cell


def test_metrics_hold_every_cell_of_the_raw_page(full: Path) -> None:
    expected = {}
    for launch, name, unit, cell in raw_values():
        digits = cell.replace(",", "")
        number = float(digits) if re.fullmatch(r"-?\d+(\.\d+)?", digits) else None
        expected[launch, name] = (unit, number, None if number is not None else cell)
    found = {(row["launch"], row["metric"]): (row["unit"], row["value"], row["text"]) for row in rows(full, "metrics")}
    assert len(expected) == 13272
    assert found == expected
    assert found[0, "device__attribute_display_name"] == ("", None, "NVIDIA H200")


def test_what_was_not_collected_is_named(tmp_path: Path) -> None:
    missing = ncu.parse(unpack("quick.raw.csv", tmp_path), tmp_path)
    assert missing[:2] == ("rules: ncu's details page was not exported", "hotspots: ncu's source page was not exported")
    assert missing[2].startswith("launches: not collected: sm_cycles, dram_read_bytes, dram_write_bytes, ")
    assert "fadd_thread_insts," not in missing[2]
    launch = rows(tmp_path, "launches")[0]
    assert launch["dram_read_bytes"] is None
    assert Formula("dram_bytes").value(launch) == pytest.approx(154e6, rel=0.02)
    assert {row["samples"] for row in rows(tmp_path, "stalls")} == {None}


def test_shares_come_from_samples_where_there_are_no_ratios(tmp_path: Path) -> None:
    header, units, cells = raw_cells()
    keep = [i for i, name in enumerate(header) if "issue_stalled" not in name or "pcsamp" in name]
    parse(text([[row[i] for i in keep] for row in (header, units, *cells)]), tmp_path)
    stalls = {row["reason"]: row for row in rows(tmp_path, "stalls") if row["launch"] == 0}
    assert stalls["wait"]["share"] == pytest.approx(7348 / 31694)
    assert stalls["wait"]["warps_per_issue"] is None


def test_the_report_has_the_numbers_of_the_raw_page(from_report: Path) -> None:
    """To the digits that the CSV prints; the report has all of them."""
    found = {(row["launch"], row["metric"]): row for row in rows(from_report, "metrics")}
    for launch, name, _, cell in raw_values():
        own = found.pop((launch, name))
        if own["text"] is not None:
            assert own["text"] == cell
        else:
            printed = float(cell.replace(",", ""))
            # The page rounds to its digits; doubles above 2**53 have fewer.
            assert abs(own["value"] - printed) <= 0.5 * 10 ** -len(cell.partition(".")[2]) + 4e-16 * abs(printed), name
    assert found == {}


def test_the_report_has_the_tables_of_the_pages(full: Path, from_report: Path) -> None:
    of_launch = ("launch", "case", "iteration", "kernel", "grid", "block", "device", "cc", "context", "stream")
    of_rule = ("launch", "section", "rule", "kind", "message", "speedup_kind")
    for table, same in (("launches", of_launch), ("rules", of_rule)):
        both = [Counter(tuple(row[name] for name in same) for row in rows(each, table)) for each in (full, from_report)]
        assert both[0] == both[1], table
    assert {row["pid"] for row in rows(from_report, "launches")} == {None}
    for one, other in zip(rows(full, "hotspots"), rows(from_report, "hotspots"), strict=True):
        # ncu 2025.3.1 and the package print one operand of HGMMA differently.
        assert one.pop("sass").split()[0] == other.pop("sass").split()[0]
        assert one == other


METRICS = (
    "device__attribute_display_name", "dram__bytes.sum.per_second", "dram__bytes_read.sum", "gpu__time_duration.sum",
    "launch__cluster_scheduling_policy", "launch__registers_per_thread",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", "smsp__pcsamp_sample_count",
    "smsp__pcsamp_warps_issue_stalled_wait",
)  # fmt: skip
Rows = list[list[str]]


def recorded() -> Rows:
    """Header, units and the first three launches of the recorded page, with a few of its metrics."""
    header, units, cells = raw_cells()
    keep = [*range(IDENTITY), *(header.index(name) for name in METRICS)]
    return [[row[i] for i in keep] for row in (header, units, *cells[:3])]


def text(rows: Sequence[Sequence[str]], quoting: Literal[0, 1] = csv.QUOTE_ALL) -> str:
    page = io.StringIO()
    csv.writer(page, quoting=quoting, lineterminator="\n").writerows(rows)
    return page.getvalue()


def parse(raw: str | bytes | None, folder: Path, **pages: str) -> tuple[str, ...]:
    there = {}
    for name, page in {"raw": raw, **pages}.items():
        if page is not None:
            there[name] = folder / f"{name}.csv"
            there[name].write_bytes(page if isinstance(page, bytes) else page.encode())
    return ncu.parse(there.get("raw"), folder, details=there.get("details"), source=there.get("source"))


def replaced(column: str, *cells: str, unit: str | None = None) -> Rows:
    """The recorded rows with other cells in a column."""
    rows = recorded()
    place = rows[0].index(column)
    for row, cell in zip(rows[2:], cells, strict=False):
        row[place] = cell
    if unit is not None:
        rows[1][place] = unit
    return rows


OUTPUT = '==PROF== Connected to process 5\nloss, 0.3\n"quoted"\n'
AROUND = '==PROF== Connected to process 1 (/bin/x)\nfiprof: setup 1/1 rmsnorm[rows=1]\nID,of,something\n"quoted, \n'


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(AROUND + text(recorded()) + "==PROF== Disconnected\n==WARNING== bye\n", id="between other lines"),
        pytest.param(text([recorded()[0], *recorded()[2:]]), id="without units"),
        pytest.param(text(recorded()).encode().replace(b"void", b"caf\xe9"), id="not UTF-8"),
        pytest.param(text(recorded()).replace("\n", "\r\n"), id="with the line ends of Windows"),
        pytest.param(OUTPUT + text(recorded()).replace("\n", "\n\n", 1) + "loss, 0.1\ndone\n", id="output around it"),
        pytest.param("\ufeff".encode("utf-16-le") + text(recorded()).encode("utf-16-le"), id="UTF-16"),
        pytest.param(text([[*row[:12], *row[13:], row[12]] for row in recorded()], csv.QUOTE_MINIMAL), id="few quotes"),
    ],
)
def test_a_page_of_another_shape_has_the_same_launches(tmp_path: Path, page: str | bytes) -> None:
    parse(page, tmp_path)
    assert [row["duration_ns"] for row in rows(tmp_path, "launches")] == [312832.0, 92864.0, 5536.0]
    broken = isinstance(page, bytes) and b"caf\xe9" in page
    assert ("caf\ufffd" in rows(tmp_path, "launches")[0]["kernel_full"]) == broken


@pytest.mark.fault("kernel names with quotes, commas, line breaks or HTML", "kept whole")
@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        ('void a::f<1, 2, 3>(int, "x,y", float)', "f"),
        ('say("a","b")', "say"),
        ("two\nlines(int)", "lines"),
        ("<script>alert(1)</script>", "alert"),
        ("void " + "n::" * 3000 + "deep<" + "int, " * 200 + "4>(float *)", "deep"),
        ("naïve_κernel", "naïve_κernel"),
        ("void <unnamed>::with_index<int, f(int)::[lambda(long) (instance 1)]>(T1, T2)", "with_index"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<int, (int)2>(char *)", "CatArrayBatchedCopy"),
        # What ncu left of unnamed namespaces.
        ("void unnamed>::CatArrayBatchedCopy<unnamed>::OpaqueType<2>, unsigned int>(T1 *)", "CatArrayBatchedCopy"),
        ("at::copy(at::Iter &)::[lambda() (instance 3)]::operator ()() const", "operator()"),
        ("ns::foo(int)::{lambda(ns::T<int>, int)#1}", "{lambda(ns::T<int>, int)#1}"),
        ("std::vector<int, std::allocator<int> > *make(int)", "make"),
        ("void less<(a < b), (c->d > 1), &ns::operator<< >(int)", "less"),
        ("_ZN10flashinfer13RMSNormKernelEv", "_ZN10flashinfer13RMSNormKernelEv"),
        ("void cut::off<at::native::Functor<float, ns::", "off"),
        ("", NO_NAME),
    ],
)
def test_kernel_names_of_any_kind_stay_whole(tmp_path: Path, kernel: str, short: str) -> None:
    parse(text(replaced("Kernel Name", "first", kernel)), tmp_path)
    launches = rows(tmp_path, "launches")
    assert (launches[1]["kernel_full"], launches[1]["kernel"]) == (kernel, short)
    assert [row["duration_ns"] for row in launches] == [312832.0, 92864.0, 5536.0]


@pytest.mark.parametrize("cell", ['the "best" one', "a, b", "1.2.3", "7 blocks", "-", "two\nlines", '","'])
def test_a_text_among_numbers_stays_as_it_is(tmp_path: Path, cell: str) -> None:
    parse(text(replaced("launch__registers_per_thread", "1,024", cell, "-0.5")), tmp_path)
    found = {row["launch"]: row for row in rows(tmp_path, "metrics") if row["metric"] == "launch__registers_per_thread"}
    assert {launch: (row["value"], row["text"]) for launch, row in found.items()} == {
        0: (1024.0, None), 1: (None, cell), 2: (-0.5, None),
    }  # fmt: skip
    assert [row["duration_ns"] for row in rows(tmp_path, "launches")] == [312832.0, 92864.0, 5536.0]


@pytest.mark.parametrize(
    ("ranges", "case", "iteration"),
    [
        ("iter 3|fiprof:measure|fiprof:a:b[x=1:2]|fiprof:iter 3", "a:b[x=1:2]", 3),
        ("NCCL:measure|NCCL:b[x=2]|fiprof:measure|fiprof:a[x=1]", "a[x=1]", None),
        ("fiprof:warmup|fiprof:iter 1", None, None),
    ],
)
def test_a_launch_is_of_the_case_around(tmp_path: Path, ranges: str, case: str | None, iteration: int | None) -> None:
    stack = next(name for name in recorded()[0] if "Push/Pop" in name)
    cell = "  ".join(f'"{each}:none:none:RGB:0xff:REGISTERED:{each.partition(":")[2]}"' for each in ranges.split("|"))
    parse(text(replaced(stack, "", f"7  {cell}", '7  "fiprof:cut off')), tmp_path)
    found = [(row["case"], row["iteration"]) for row in rows(tmp_path, "launches")]
    assert found == [(None, None), (case, iteration), (None, None)]


UNITS = {
    "": ("", 1), "%/register": ("%/register", 1), "us": ("ns", 1e3), "msecond": ("ns", 1e6), "s": ("ns", 1e9),
    "Mbyte": ("byte", 1e6), "Kbyte/block": ("byte/block", 1e3), "Gbyte/second": ("byte/s", 1e9),
    "byte/us": ("byte/s", 1e6), "Ghz": ("hz", 1e9), "cycle/nsecond": ("hz", 1e9), "furlong": ("furlong", 1),
}  # fmt: skip


def test_units_come_to_their_base(tmp_path: Path) -> None:
    names = [f"metric__{number}" for number in range(len(UNITS))]
    more = (names, UNITS, *[["1"] * 12] * 3)
    parse(text([[*row, *cells] for row, cells in zip(recorded(), more, strict=True)]), tmp_path)
    found = {row["metric"]: (row["unit"], row["value"]) for row in rows(tmp_path, "metrics")}
    assert [found[name] for name in names] == [*UNITS.values()]
    # One that is not known never becomes nanoseconds.
    missing = parse(text(replaced("gpu__time_duration.sum", "1", "2", "3", unit="fortnight")), tmp_path)
    kept = [row for row in rows(tmp_path, "metrics") if row["metric"] == "gpu__time_duration.sum"]
    assert [(row["value"], row["unit"]) for row in kept] == [(1.0, "fortnight"), (2.0, "fortnight"), (3.0, "fortnight")]
    assert [row["duration_ns"] for row in rows(tmp_path, "launches")] == [None, None, None]
    assert "launches: not collected: duration_ns, " in missing[-1]


def test_the_viewers_export_has_a_row_a_metric(tmp_path: Path) -> None:
    """Rows of an export of ncu-ui 2025.4 of launches on an H800; thousands of cells are per kilobyte there."""
    page = {
        "Demangled Name": ("kernel_cutlass", "g(int)"), "Process": ("[1355440] python3.12",) * 2,
        "Grid Size": ("16384,    2,    1", "(1, 2, 3)"), "Block Size [block]": ("  256,    1,    1",) * 2,
        "gpu__time_duration.sum [us]": ("312.83", "1,000.50"), "smsp__pcsamp_sample_count": ("30 {10; 20}", "7"),
        "launch__device_id": ("1", "1"), "device__attribute_compute_capability_major": ("9", "9"),
        "device__attribute_compute_capability_minor": ("0", "0"),
        "derived__pct_occupancy_per_shared_mem_size [%/Kbyte]": ("7.19 {456}", "7"),
        "smsp__pcsamp_buffer_size_bytes [Mbyte]": ("33.55", "33.55"),
    }  # fmt: skip
    parse("\ufeff" + text([[name, *cells] for name, cells in page.items()]).replace("\n", "\r\n"), tmp_path)
    names = ("kernel", "pid", "grid", "block", "device", "cc", "duration_ns", "stall_samples")
    assert [[row[name] for name in names] for row in rows(tmp_path, "launches")] == [
        ["kernel_cutlass", 1355440, "16384x2x1", "256x1x1", 1, "9.0", pytest.approx(312_830), 30],
        ["g", 1355440, "1x2x3", "256x1x1", 1, "9.0", pytest.approx(1_000_500), 7],
    ]
    metrics = {row["metric"]: (row["value"], row["unit"]) for row in rows(tmp_path, "metrics") if not row["launch"]}
    assert metrics["derived__pct_occupancy_per_shared_mem_size"] == (7190.0, "%/byte")
    assert metrics["smsp__pcsamp_buffer_size_bytes"] == (pytest.approx(33_550_000), "byte")


@pytest.mark.fault("numbers of another locale in ncu's page: 1.234.567, 0,25, 1 234", "refused in one line")
@pytest.mark.parametrize("cell", ["1.234.567", "0,25", "12,5", "1.234,5", "1 234 567", "1\u202f234", "1'234"])
def test_a_number_of_another_locale_is_refused_and_not_misread(tmp_path: Path, cell: str) -> None:
    with pytest.raises(FiprofError) as caught:
        parse(text(replaced("gpu__time_duration.sum", "1,000", cell)), tmp_path)
    shown = cell.replace("\u202f", "\\u202f")
    assert caught.value.message.endswith(f"has numbers in another locale's format: {shown}")
    assert caught.value.remedy.startswith("export it again: LC_ALL=C ncu --import REPORT")


def test_a_launch_that_ncu_failed_on_is_named(tmp_path: Path) -> None:
    missing = parse(text(replaced("gpu__time_duration.sum", "1,000", "nan", "2,000")), tmp_path)
    assert "launches: ncu failed on launch 1 (BatchDecodeWithPagedKVCacheKernel): it has no duration" in missing
    assert [row["duration_ns"] for row in rows(tmp_path, "launches")] == [1000.0, None, 2000.0]


def details_row(section: str, *cells: str) -> list[str]:
    return ["0", "5", "f(int)", "(256, 1, 1)", "(96, 1, 1)", "0", "8.9", section, *cells]


DETAILS_PAGE = [
    ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name",
     "Metric Unit", "Metric Value", "Rule Name", "Rule Type", "Rule Description"],
    details_row("GPU Speed Of Light Throughput", "Duration", "us", "6.75", ""),
    details_row("Command line profiler metrics", "dram__bytes_read.sum", "Mbyte", "2.33", ""),
    details_row("Command line profiler metrics", "flop_count_sp.sum", "", "n/a", ""),
    details_row("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "345.14", ""),
    details_row("Memory Workload Analysis", "Mem Busy", "%", "8.59", ""),
    details_row("SpeedOfLight", "", "", "", "SOLBottleneck", "OPT", "grid too small"),
]  # fmt: skip


def test_a_details_page_alone_is_a_profile(tmp_path: Path) -> None:
    parse(None, tmp_path, details=text(DETAILS_PAGE)[:-1])
    (launch,) = rows(tmp_path, "launches")
    found = tuple(launch[name] for name in ("pid", "grid", "block", "cc", "duration_ns", "dram_read_bytes"))
    assert found == (5, "96x1x1", "256x1x1", "8.9", 6750.0, 2_330_000.0)
    assert launch["dram_bytes_per_second"] == pytest.approx(345.14e9)
    metrics = {row["metric"]: row["value"] for row in rows(tmp_path, "metrics")}
    assert metrics["Memory Workload Analysis/Mem Busy"] == 8.59 and "flop_count_sp.sum" not in metrics
    assert [row["rule"] for row in rows(tmp_path, "rules")] == ["SOLBottleneck"]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(text(DETAILS_PAGE[:6])[:-4] + ",", id="ends with a metric's row, without a line's end"),
        pytest.param(OUTPUT + text(DETAILS_PAGE[:6]) + "loss, 0.1\ndone\n", id="output before and after"),
        pytest.param(text(DETAILS_PAGE[:3]) + OUTPUT + text(DETAILS_PAGE[3:6]), id="output among the rows"),
    ],
)
def test_a_details_page_with_output_of_the_program(page: str, tmp_path: Path) -> None:
    parse(None, tmp_path, details=page)
    assert len(rows(tmp_path, "metrics")) == 4 and rows(tmp_path, "launches")[0]["duration_ns"] == 6750.0


OTHER_REMEDIES = {
    "": "its filters matched nothing, or the workload launched nothing",
    " has launches and no metrics": "ncu --list-sections and --query-metrics name what there is",
}


@pytest.mark.fault("a details page cut short, of several pages, with a metric twice", "one line; no table is written")
@pytest.mark.fault("ncu's raw page empty, of another format, cut, with a launch or column twice", "one line; no table")
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", " is empty"),
        ("a,b\n1,2\n", " is not a raw page of ncu: it has no header with ID and Kernel Name"),
        ("==PROF== Connected to process 1\n==WARNING== No kernels were profiled.\n", ": ncu profiled no kernels"),
        (text(recorded()[:2]), " has a header and no launches"),
        (text(recorded()[:1])[:-1], " is cut short: its last row is not complete"),
        (text(recorded()[:2])[:-9] + "\n", " is cut short: its row of units is not complete"),
        (text(recorded())[:-2] + "\n", " is cut short: its last row is not complete"),
        (text([*recorded()[:-1], recorded()[-1][:-3]]),
         " is cut short, or other output stands among its rows: row 3 has 20 of 23 cells"),
        (2 * text(recorded()), " holds several pages, each with launches of its own; import them one by one"),
        (text([row[:IDENTITY] for row in recorded()]), " has launches and no metrics: the sections or metrics asked for "
         "do not exist"),
        (text(replaced("ID", "0", "0")), " has launch 0 twice"),
        (text(replaced("ID", "0", "x")), " has no launch ID in row 2: 'x'"),
        (text(replaced("ID", "9" * 20)), " has no launch ID in row 1: '99999999999999999999'"),
        (text([[*row, cell] for row, cell in zip(recorded(), ("gpu__time_duration.sum", "nsecond", *"123"), strict=True)]),
         " has the column gpu__time_duration.sum twice, with different values"),
        (text(DETAILS_PAGE[:2])[:-9], " is cut short: its last row is not complete"),
        (2 * text(DETAILS_PAGE), " holds several pages, each with launches of its own; import them one by one"),
        (text(DETAILS_PAGE[:1]), " has a header and no launches"),
        (text([[*row[:7], *row[8:11]] for row in DETAILS_PAGE]), " is not a details page of ncu: it has no column Section Name"),
        (text([*DETAILS_PAGE[:3], [*DETAILS_PAGE[2][:10], "9", ""]]),
         " has dram__bytes_read.sum of launch 0 twice, with different values"),
    ],
)  # fmt: skip
def test_what_is_no_page_gets_one_line(tmp_path: Path, content: str, problem: str) -> None:
    details = "Metric Value" in content
    with pytest.raises(FiprofError) as caught:
        parse(None, tmp_path, details=content) if details else parse(content, tmp_path)
    assert caught.value.message == f"{tmp_path / ('details.csv' if details else 'raw.csv')}{problem}"
    again = "export it again: ncu --import REPORT --csv --page " + ("details" if details else "raw --print-units base")
    assert caught.value.remedy == OTHER_REMEDIES.get(problem.split(": ")[0], again)
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.fault("ncu's raw page is a folder, or has 10 GB", "one line")
def test_a_page_of_10_gb(tmp_path: Path) -> None:
    with (tmp_path / "raw.csv").open("wb") as file:
        file.truncate(10 * 10**9)
    for path, problem in ((tmp_path / "raw.csv", "has 10.0 GB; 2 GB is the limit"), (tmp_path, "Is a directory")):
        with pytest.raises(FiprofError, match=problem):
            ncu.parse(path, tmp_path)


PAGE = text(recorded())


@pytest.mark.fault("ncu's raw page cut off at any byte", "whole launches, or one line")
@settings(max_examples=50)
@given(cut=st.integers(0, len(PAGE)))
def test_a_page_cut_anywhere_gives_whole_launches_or_an_error(cut: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, problem = Path(name), ""
        try:
            parse(PAGE[:cut], folder)
        except FiprofError as error:
            problem = error.message
        assert "\n" not in problem
        if not problem:
            found = rows(folder, "metrics")
            assert len(found) == len(rows(folder, "launches")) * len(METRICS)
            parse(PAGE, folder)
            assert found == rows(folder, "metrics")[: len(found)]


def listing(kernel: str, samples: int, address: int = 4096) -> Rows:
    """Two instructions; the first has all samples."""
    first = [hex(address), "  MOV R1, R2 ", str(samples), "1", str(samples - 1), "0"]
    header = ["Address", "Source", "# Samples", "stall_wait", "stall_lg", "stall_wait (Not Issued)"]
    return [["Kernel Name", kernel], header, first, [hex(address + 16), "EXIT", "0", "0", "0", "0"]]


SAMPLED = {
    "void flashinfer::PrefillWithKVCacheKernel<1>(int)": 31694, "BatchDecodeWithPagedKVCacheKernel": 10281,
    "PersistentVariableLengthMergeStatesKernel": 436,
}  # fmt: skip
PREFILL, DECODE, MERGE = (listing(kernel, samples) for kernel, samples in SAMPLED.items())
SOURCE = text([*PREFILL, *DECODE, *MERGE])

RULE = text(DETAILS_PAGE[::6])
UNPLACED = "{{}} has an instruction of PrefillWithKVCacheKernel at {!r}, which is no address"


@pytest.mark.fault("ncu's details or source page damaged or of another report", "the others are read; it is named")
@pytest.mark.fault("an instruction at no address in ncu's source page", "the other tables are read; the line names it")
@pytest.mark.parametrize(
    ("kind", "page", "sentence"),
    [
        ("details", "", "{} is empty"),
        ("details", "a,b\n", "{} is not a details page of ncu: it has no column Rule Name"),
        ("details", RULE[:-2], "{} is cut short: its last row is not complete"),
        ("details", RULE.replace('"0"', '"7"'), "{} is not of the same report: the raw page has no launch 7"),
        ("source", "", "{} is empty"),
        ("source", text([["a", "b"]]), "{} is not a source page of ncu: it has no line Kernel Name"),
        ("source", text([*PREFILL, *DECODE]), "{} does not fit the raw page: 2 listings, 3 launches"),
        ("source", text([*PREFILL, *MERGE, *DECODE]),
         "{} does not fit the raw page: launch 1 is not PersistentVariableLengthMergeStatesKernel"),
        ("source", text([*PREFILL, *DECODE, *listing("PersistentVariableLengthMergeStatesKernel", 9)]),
         "{} does not fit the raw page: launch 2 has 436 samples, its listing 9"),
        ("source", text([*PREFILL, *DECODE, *MERGE[:-1], MERGE[-1][:4]]),
         "{} is cut short: an instruction of PersistentVariableLengthMergeStatesKernel has 4 of 6 cells"),
        ("source", SOURCE[:-3], "{} is cut short: its last row is not complete"),
        *(("source", SOURCE.replace("0x1010", each, 1), UNPLACED.format(each)) for each in ("zzz", "-10", "0x" + "f" * 20, "")),
    ],
)  # fmt: skip
def test_another_page_that_cannot_be_used_is_named(tmp_path: Path, kind: str, page: str, sentence: str) -> None:
    missing = parse(PAGE, tmp_path, **{kind: page})
    table = {"details": "rules", "source": "hotspots"}[kind]
    assert f"{table}: {sentence.format(tmp_path / f'{kind}.csv')}" in missing
    assert rows(tmp_path, table) == []
    assert len(rows(tmp_path, "launches")) == 3


@pytest.mark.fault("infinities in ncu's metrics; 1,234.5, -1 or 10^30 warp samples", "left out and named")
@pytest.mark.parametrize("cell", ["inf", "-inf", "-1", "1,234.5", "1" + "0" * 30])
def test_values_that_no_launch_has_are_left_out_and_named(tmp_path: Path, cell: str) -> None:
    missing = parse(text(replaced("smsp__pcsamp_sample_count", cell)), tmp_path, source=SOURCE)
    assert "launches: values that no launch has are left out: smsp__pcsamp_sample_count" in missing
    assert (0, "smsp__pcsamp_sample_count") not in {(row["launch"], row["metric"]) for row in rows(tmp_path, "metrics")}
    assert len(rows(tmp_path, "hotspots")) == 6


def test_without_the_package_the_remedy_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(FiprofError) as caught:
        ncu.parse(None, tmp_path, report=tmp_path / "profile.ncu-rep")
    said = caught.value.message, caught.value.remedy
    assert said == ("the package ncu-report is not installed", "pip install ncu-report")


@pytest.mark.fault("other bytes in place of the .ncu-rep", "one line; no table is written")
@pytest.mark.parametrize("content", [b"", b"not a report", b"NVR\x00\x02\x00\x00\x00"])
def test_a_report_that_is_none(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("ncu_report")
    report = tmp_path / "profile.ncu-rep"
    report.write_bytes(content)
    with pytest.raises(FiprofError, match=re.escape(str(report))) as caught:
        ncu.parse(None, tmp_path / "tables", report=report)
    assert "\n" not in caught.value.message
    assert not (tmp_path / "tables").exists()


names = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,12}", fullmatch=True).filter(lambda name: name != "operator")
types = st.recursive(
    names | st.sampled_from(["(int)4", "<unnamed>::T *", "(a > b)", "g()::{lambda(int)#1}"]),
    lambda inner: st.builds("{}<{}>".format, names, st.lists(inner, min_size=1, max_size=3).map(", ".join)),
    max_leaves=8,
)


@given(
    name=names,
    scopes=st.lists(names | st.sampled_from(["<unnamed>", "(anonymous namespace)", "f(int)", "C<int>"]), max_size=4),
    returned=st.just("") | types.filter(lambda text: not text.startswith("(")).map("{} ".format),
    arguments=st.just("") | st.lists(types, min_size=1, max_size=3).map(", ".join).map("<{}>".format),
    parameters=st.just("") | st.lists(types, max_size=3).map(", ".join).map("({})".format),
)
def test_short_name_finds_the_name_however_it_is_dressed(name: str, scopes: list[str], **dress: str) -> None:
    assert short_name("{returned}{}{arguments}{parameters}".format("::".join([*scopes, name]), **dress)) == name


@given(st.text(alphabet=st.characters(categories=None) | st.sampled_from("<>(){}[]:-& operat\n")))
def test_short_name_never_raises_and_is_printable(text: str) -> None:
    name = short_name(text)
    assert name and name.isprintable()
    assert (name == NO_NAME) == (not printable(text).strip())


@pytest.mark.parametrize("pattern", ["<", "(", "a<", "::", "<)", "- ", "operator<", "x<(", "{", "[a"])
def test_short_name_stays_linear_in_long_names(pattern: str) -> None:
    """Quadratic time would take minutes here; no clock is read."""
    text = pattern * 50_000
    assert short_name(text)
    assert short_name("void ns::k<" + text) == "k"
