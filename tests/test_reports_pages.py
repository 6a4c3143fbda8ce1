"""Tables on the terminal and in other formats, pages of HTML, colours and charts; ``fiprof timeline --perfetto``: the trace for
ui.perfetto.dev, read back as a viewer reads it."""

import csv
import gzip
import io
import itertools
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.reports import charts, colours, markdown_html
from fiprof.reports.markdown_html import document_html, report_html
from fiprof.reports.notebook import VEGALITE, OpenedRun
from fiprof.reports.view import Chart, Column, Document, Narrow, Value, View
from fiprof.reports.writers import render
from fiprof.text import cell_width, csv_cell
from tests.conftest import run_fiprof
from tests.recorded_runs import parsed, refusal
from tests.reports_fixture import add, execution, make_run


@pytest.mark.parametrize(
    ("value", "table", "json_", "csv_"),
    [
        (True, "yes", True, "true"), (False, "no", False, "false"),
        (("registers", "warps"), "registers, warps", ["registers", "warps"], "registers; warps"), ((), "–", [], ""),
        (float("nan"), "–", None, ""), (float("inf"), "–", None, ""),
        (0.1 + 0.2, "0.30000000000000004", 0.30000000000000004, "0.30000000000000004"),
        (12345678901234, "12345678901234", 12345678901234, "12345678901234"), ("", "", "", ""),
    ],
)  # fmt: skip
def test_values(value: Value, table: str, json_: object, csv_: str) -> None:
    view = View((Column("a", "a"), Column("b", "b")), ((value, "end"),))
    assert render(view, "table").splitlines()[1].rpartition("end")[0].strip() == table
    assert json.loads(render(view, "json"))["rows"][0]["a"] == json_
    assert next(csv.DictReader(io.StringIO(render(view, "csv"))))["a"] == csv_


NARROW = (
    Column("launch", "#"), Column("case", "case", narrow=Narrow.ABOVE),
    Column("kernel", "kernel", narrow=Narrow.ABOVE), Column("time", "time", "µs", ",.2f"), Column("limit", "limit"),
    Column("step", "next step", narrow=Narrow.BELOW), Column("note", "note", narrow=Narrow.DROP),
)  # fmt: skip
ROW = (3, "decode batch=1", "BatchDecodeWithPagedKVCacheKernel", 1234.5, "memory-bound (DRAM)", "more bytes", "cold")


def test_names_above_a_row_stand_together() -> None:
    """Also where one of them alone would make room enough; what else gives way: tests/data/reports."""
    assert render(View(NARROW, (ROW,)), "table", width=40).splitlines()[0].split() == ["#", "time", "limit", "note"]


def test_long_names_are_whole_in_json_and_csv_and_bounded_elsewhere() -> None:
    name = "a" * 5_000 + "b" * 5_000
    view = View((Column("kernel", "kernel"),), ((name,),), title=name)
    assert json.loads(render(view, "json"))["rows"] == [{"kernel": name}] and name in render(view, "csv")
    lines = render(view, "table", width=100).splitlines()
    assert max(map(len, lines)) == 100 and len(lines) < 30
    assert re.search(r"^\| a+…b+ \|$", render(view, "md"), re.MULTILINE)


@given(st.lists(st.tuples(st.text(), st.floats() | st.none()), min_size=1), st.integers(20, 200))
def test_any_text_stays_in_its_cell(rows: list[tuple[str, float | None]], width: int) -> None:
    view = View((Column("kernel", "kernel"), Column("n", "n", spec=".2e")), tuple(rows))
    table = render(view, "table", width=width, colour=False)
    assert table.replace("\n", "").isprintable() and max(map(cell_width, table.splitlines())) <= width
    markdown = render(view, "md").splitlines()
    assert len(markdown) == len(rows) + 2
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in markdown} == {3}
    back = list(csv.reader(io.StringIO(render(view, "csv"))))
    assert [row[0] for row in back[1:]] == [csv_cell(name) for name, _ in rows]
    assert [item["kernel"] for item in json.loads(render(view, "json"))["rows"]] == [name for name, _ in rows]


def test_the_charts_library_is_there_once_with_its_notice_where_charts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is drawn does not end its script. What else a page is: test_browser.py."""
    chart = Chart("C", lambda: charts.figure([charts.layer("a", [{"x": "</script><img src=x>"}], {}, {})], 9), "")
    document = Document(View(), (View(charts=(chart, chart)),))
    text = report_html(document, "p")
    assert text.count("window.vegaEmbed=") == text.count("BSD 3-Clause") == 1 and text.count("</script>") == 4
    assert "vegaEmbed=" not in document_html("# no charts\n\n## A\n", "no charts")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    markdown_html.vega_js.cache_clear()
    assert report_html(document, "p").count("pip install vl-convert-python") == 1


def contrast(*both: str) -> float:
    """Of the two colours, by WCAG 2's relative luminance."""
    parts = np.array([[int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)] for colour in both])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    low, high = sorted(linear @ (0.2126, 0.7152, 0.0722) + 0.05)
    return float(high / low)


def test_colours_are_seen_on_both_papers() -> None:
    for colour in (*colours.COLOURS, *colours.STALLS.values(), *(each[2] for each in colours.FAMILIES), colours.GREY):
        assert min(contrast(colour, paper) for paper in ("#ffffff", "#14181e")) >= 3.0, colour


def test_an_opened_run_shows_the_same_charts_and_says_what_is_missing(tmp_path: Path) -> None:
    """What it shows as text: docs/notebook.ipynb, which another test executes."""
    opened = OpenedRun(parsed("all").path)
    for chart in (opened.roofline("prefill"), opened.stalls(), opened.timeline()):
        shown, _ = chart._repr_mimebundle_()
        assert shown.keys() == {VEGALITE, "image/svg+xml", "text/plain"} and shown["image/svg+xml"].startswith("<svg")
    assert len(str(opened.roofline("prefill"))) < len(str(opened.roofline()))
    other = OpenedRun(make_run(tmp_path / "run", name="<script>x</script>").path)
    assert "<script>" not in other._repr_html_()
    with pytest.raises(FiprofError, match="has no timeline"):
        other.timeline()


Event = dict[str, Any]


class Trace:
    """The events of a trace; each slice has the ``path`` of its track and the slice ``inside`` which it is."""

    def __init__(self, run: Run, path: Path) -> None:
        self.words = run_fiprof("timeline", str(run.path), "--perfetto", str(path), cwd=path.parent, status=0).stderr
        events: list[Event] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        named = [each for each in events if each["ph"] == "M"]
        names = {(each["name"], each["pid"], each.get("tid")): each["args"].get("name") for each in named}
        self.slices = [each for each in events if each["ph"] == "X"]
        self.flows = {phase: {each["id"]: each for each in events if each["ph"] == phase} for phase in "sf"}
        self.counters: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for each in events:
            if each["ph"] == "C":
                name = f"{names['process_name', each['pid'], None]} > {each['name']}"
                self.counters[name].append((each["ts"], each["args"]["value"]))
        open_: dict[int, list[Event]] = defaultdict(list)
        for each in self.slices:
            end, stack = round(each["ts"] + each["dur"], 3), open_[each["tid"]]
            while stack and round(stack[-1]["ts"] + stack[-1]["dur"], 3) <= each["ts"]:
                stack.pop()
            # In order, and wholly inside what is open on the same track.
            assert not stack or (stack[-1]["ts"] <= each["ts"] and end <= round(stack[-1]["ts"] + stack[-1]["dur"], 3))
            each["inside"], each["depth"] = (stack[-1]["name"] if stack else None), len(stack)
            process, thread = names["process_name", each["pid"], None], names["thread_name", each["pid"], each["tid"]]
            each["path"] = f"{process} > {thread}"
            stack.append(each)

    def of(self, category: str) -> list[Event]:
        return [each for each in self.slices if each["cat"] == category]


@pytest.fixture(scope="module")
def trace(five_kernels: Run, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return Trace(five_kernels, tmp_path_factory.mktemp("written") / "trace.json.gz")


ORIGIN_NS = 2440108540
"""The first CUDA call."""


def test_every_row_is_a_slice_and_ranges_are_nested_as_nvtx_nests_them(five_kernels: Run, trace: Trace) -> None:
    for table, name, category in (
        ("kernels", "kernel", "kernel"), ("copies", "kind", "copy"), ("api", "name", "cuda"), ("ranges", "name", "nvtx"),
    ):  # fmt: skip
        rows = five_kernels.table(table).to_pylist()
        found = [(each["name"], round(each["ts"] * 1e3), round(each["dur"] * 1e3)) for each in trace.of(category)]
        expected = [(row[name], row["start_ns"] - ORIGIN_NS, row["end_ns"] - row["start_ns"]) for row in rows]
        assert expected and Counter(found) == Counter(expected)
    parents = [None if row["parent"] is None else rows[row["parent"]]["name"] for row in rows]
    nested = ((row["name"], row["depth"], parent) for row, parent in zip(rows, parents, strict=True))
    assert Counter((each["name"], each["depth"], each["inside"]) for each in trace.of("nvtx")) == Counter(nested)


def test_an_arrow_from_the_call_to_each_kernel(trace: Trace) -> None:
    def at(category: tuple[str, ...]) -> dict[tuple[int, float], Event]:
        return {(each["tid"], each["ts"]): each for each in trace.slices if each["cat"] in category}

    calls, launched = at(("cuda",)), at(("kernel", "copy"))
    starts, ends = trace.flows["s"], trace.flows["f"]
    assert starts.keys() == ends.keys() == set(range(1, 200))
    for number, flow in ends.items():
        call = calls[starts[number]["tid"], starts[number]["ts"]]
        work = launched[flow["tid"], flow["ts"]]
        assert call["args"]["correlation"] == work["args"]["correlation"] and call["ts"] <= work["ts"]


def test_counters_hold_every_sample(five_kernels: Run, trace: Trace) -> None:
    assert len(trace.counters) == 7
    assert "184 kernels, 15 copies, 443 CUDA calls, 132 NVTX ranges, 199 arrows" in trace.words
    tensor = trace.counters["GPU 0 > Tensor Active (%)"]
    samples = five_kernels.table("gpu_metrics").to_pylist()
    active = [row for row in samples if row["metric"] == "Tensor Active [Throughput %]"]
    rows = [((row["time_ns"] - ORIGIN_NS) / 1e3, row["value"]) for row in active]
    # What each time shows is the last value at or before it: every sample, though repeated ones are left out.
    assert [[value for at, value in tensor if at <= time][-1] for time, _ in rows] == [value for _, value in rows]
    assert all(before[1] != after[1] for before, after in itertools.pairwise(tensor))
    most = max(row["total_bytes"] for row in five_kernels.table("memory").to_pylist())
    assert max(value for _, value in trace.counters["GPU 0 > device memory (bytes)"]) == most


def test_overlapping_kernels_odd_names_times_before_the_trace_and_open_ranges(tmp_path: Path) -> None:
    odd = "<script>\x1b[31mλ"
    rows = [execution(-50, 50), execution(40, 150, "L"), execution(-30, -20, odd), execution(150, 160, "M")]
    run = make_run(tmp_path / "run", kernels=rows)
    add(run, "ranges", [{"domain": "", "name": "open", "start_ns": 5, "kind": "push_pop", "pid": 1, "tid": 1}])
    trace = Trace(run, tmp_path / "t.json.gz")
    assert sorted((each["ts"], each["dur"], each["name"], each["depth"]) for each in trace.of("kernel")) == [
        (0.0, 0.1, "K", 0), (0.02, 0.01, odd, 0), (0.09, 0.11, "L", 0), (0.2, 0.01, "M", 0),
    ]  # fmt: skip
    assert {each["path"] for each in trace.of("kernel")} == {"GPU 0 > stream 7"}
    assert len({each["tid"] for each in trace.of("kernel")}) == 2
    (open_,) = trace.of("nvtx")
    assert (open_["ts"], open_["dur"], open_["args"]["note"]) == (0.055, 0.155, "never ended")


def test_a_file_that_cannot_be_written(five_kernels: Run, tmp_path: Path) -> None:
    error = refusal("timeline", five_kernels.path, "--perfetto", tmp_path / "none/t.json.gz")
    assert "cannot be written: No such file" in error.message and "--perfetto" in error.remedy
    untraced = make_run(tmp_path / "run", settings={"tools": ["ncu"]})
    assert "has no trace" in refusal("timeline", untraced.path, "--perfetto", tmp_path / "t.json.gz").message
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
