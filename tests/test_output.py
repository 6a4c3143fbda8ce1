"""What is printed: text whatever a run holds, and never wider than the terminal; tables in other formats, pages of HTML, colours and
charts; ``fiprof timeline --perfetto``: the trace for ui.perfetto.dev, read back as a viewer reads it."""

import contextlib
import csv
import fcntl
import gzip
import io
import itertools
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.cli.main import cli
from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.reports import charts, colours, markdown_html
from fiprof.reports.markdown_html import document_html, report_html
from fiprof.reports.notebook import VEGALITE, OpenedRun
from fiprof.reports.view import Chart, Column, Document, Value, View
from fiprof.reports.writers import render
from fiprof.text import cell_width, csv_cell
from tests.conftest import Fiprof, python_path, ran, run_fiprof
from tests.golden import READERS
from tests.recorded_runs import PROGRAMS, RUNS, copied, invoke, parsed, refusal, session_folder
from tests.reports_fixture import add, execution, make_run

HOSTILE = "=cmd|' /C x'!A0\x1b]0;owned\x07\x1b[31m\x9b2J\x90\x9c\u202e\u2066[bold red]<script>x()</script>"
TERMINAL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What a terminal may obey."""
NAMES = ("case", "kernel", "kernel_full", "sass", "source_file", "message", "rule", "name", "domain", "text", "metric")
"""Columns with other people's text."""

FIXED = ("status", "outcome", "kind", "step", "settings", "path", "log", "sha256")
"""Keys of run.json whose values the schema knows."""


def hostile(value: Any) -> Any:
    """JSON with every text that is free made hostile."""
    if isinstance(value, dict):
        return {key: each if key in FIXED else hostile(each) for key, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return HOSTILE + value if isinstance(value, str) else value


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded run with hostile names, reasons, versions and texts."""
    folder = copied("all", tmp_path_factory.mktemp("archive"))
    manifest = {**hostile(json.loads((folder / "run.json").read_text())), "status": "failed", "reason": HOSTILE}
    (folder / "run.json").write_text(json.dumps(manifest))
    lines = (folder / "baseline.jsonl").read_text().splitlines()
    (folder / "baseline.jsonl").write_text("".join(json.dumps(hostile(json.loads(line))) + "\n" for line in lines))
    for log in (folder / "logs").iterdir():
        log.write_text(HOSTILE + "\n" + HOSTILE)
    for path in (folder / "tables").glob("*.parquet"):
        table = pq.read_table(path).slice(0, 20_000)  # of 750,000 samples; of all else there are fewer
        for place, field in enumerate(table.schema):
            if field.name in NAMES and path.stem != "checks":
                texts = pa.array([text and HOSTILE + text for text in table.column(place).to_pylist()], pa.string())
                whole = texts.dictionary_encode() if pa.types.is_dictionary(field.type) else texts
                table = table.set_column(place, field.name, whole)
        pq.write_table(table, path)
    return folder


@pytest.mark.fault("escapes, bidi overrides, markup, formulas in all text of a run", "none is printed raw or computed")
@pytest.mark.parametrize("command", [*READERS[:7], "runs", "parse", "pack", "collect", "wrong"])
def test_nothing_hostile_is_printed(command: str, run: Path, fiprof: Fiprof, tmp_path: Path) -> None:
    ways = {
        "runs": [["runs", "--artifacts", str(run.parent), "--format", each] for each in ("table", "csv", "md")],
        "collect": [["collect", "--replay", str(run), "--artifacts", str(tmp_path / "new")]],
        "parse": [["parse", str(run)]],
        "pack": [["pack", str(run)]],
        "wrong": [["show", HOSTILE], [HOSTILE], ["show", f"--{HOSTILE}"], ["collect", "--kernel", HOSTILE]],
    }.get(command, [[command, str(run), "--format", each] for each in ("table", "json", "csv", "md")])
    for arguments in ways:
        done = fiprof(*arguments)
        out, said = done.stdout, done.stdout + done.stderr
        assert said and not TERMINAL.search(said), arguments
        if arguments[-1] == "table" and command in ("show", "stalls"):
            assert r"\x9b2J\x90\x9c\u202e\u2066[boldred]<script>x()</script>" in re.sub(r"\s", "", out)
        assert arguments[-1] != "md" or "<" not in re.sub(r"`[^`]*`", "", out)
        if arguments[-1] == "csv":
            cells = [cell for row in csv.reader(io.StringIO(out)) for cell in row]
            assert not [cell for cell in cells if cell.startswith(("=", "@"))]
            named = command in ("show", "hotspots", "timeline", "runs")
            assert not named or any(cell.startswith("'=cmd|") for cell in cells)


def test_nothing_hostile_is_in_a_report(run: Path, fiprof: Fiprof, tmp_path: Path) -> None:
    done = fiprof("report", str(run), "--out", ".", "--bundle", "all.zip", status=0)
    assert not TERMINAL.search(done.stdout + done.stderr)
    fiprof("report", str(run), str(parsed("all").path), "--out", "two", status=0)
    pages = {path.name: path.read_text() for path in (tmp_path / "two").iterdir()}
    with zipfile.ZipFile(tmp_path / "all.zip") as bundle:
        texts = [name for name in bundle.namelist() if name.endswith((".md", ".html", ".csv"))]
        pages |= {f"all/{name}": bundle.read(name).decode() for name in texts}
    assert len(pages) > 10
    for name, text in pages.items():
        # The charts' library in report.html has control characters of its own.
        assert not set(text) & set("\x1b\x07\x9b\x90\x9c\u202e\u2066"), name
        # Markdown shows commands as code, where it is text too.
        shown = "".join(text.split("```")[::2]) if name.endswith(".md") else text
        assert "<script>x()" not in shown or name.endswith(".csv"), name
        if name.endswith(".csv"):
            assert not re.search(r'(?m)(^|,)"?[=@]', text), name


def on_a_terminal(*words: str, columns: int) -> bytes:
    """What a command writes where standard output, error and input are a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    env |= {"PYTHONPATH": python_path(), "TERM": "xterm"}
    argv = [sys.executable, "-m", "fiprof", *words]
    printed = b""
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(ours, 1 << 16):
                printed += piece
        os.close(ours)
        assert process.wait() == 0
    return printed


@pytest.mark.fault("the same run on a terminal with colours", "fiprof's own colours alone reach it")
def test_a_terminal_gets_colours_and_nothing_hostile(run: Path) -> None:
    text = on_a_terminal("stalls", str(run), columns=200).decode().replace("\r\n", "\n")
    assert "\x1b[1m" in text and not TERMINAL.search(re.sub(r"\x1b\[[0-9;]*m", "", text))
    assert r"\x1b]0;owned" in text


def test_cells_that_a_spreadsheet_would_compute() -> None:
    computed, others = ("=1+1", "@SUM(A1)", "+cmd|'x'!A0", "-2+3", " =1"), ("-0.5", "+3", "--seq-len", "a=b")
    assert list(map(csv_cell, computed)) == [f"'{text}" for text in computed]
    assert list(map(csv_cell, ("\t=1", *others))) == ["\\t=1", *others]


@pytest.mark.fault("stdout that knows Latin-1 alone", "what it lacks is replaced")
def test_an_encoding_without_the_characters() -> None:
    env = {**os.environ, "PYTHONPATH": python_path(), "PYTHONIOENCODING": "latin-1"}
    done = ran(sys.executable, "-m", "fiprof", "verdict", str(parsed("all").path), env=env, encoding="latin-1")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert "more bytes in flight, ? 21%" in done.stdout


@pytest.mark.fault("stdout, stderr or both closed", "a quiet end with the same exit status")
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&- <&-"])
def test_closed_streams(closed: str) -> None:
    shell = f'"{sys.executable}" -m fiprof runs --artifacts "{RUNS["all"].parent}" {closed}'
    done = ran("sh", "-c", shell, env={**os.environ, "PYTHONPATH": python_path()})
    assert (done.returncode, done.stderr) == (0, "") and bool(done.stdout) == (closed == "2>&-")


AT_A_TERMINAL = (
    ("verdict",), ("verdict", "--all"), ("show",), ("show", "--all"), ("stalls",), ("hotspots",), ("roofline",),
    ("timeline",), ("expected",), ("top",),
)  # fmt: skip
OF_PROGRAMS = (
    ("top",), ("top", "--all"), ("top", "--by", "range"), ("comm",), ("show",), ("show", "--all"), ("verdict", "--all"),
    ("timeline",), ("roofline",),
)  # fmt: skip
OTHERS = (("runs",), ("env",), ("kernels",), *((name, "--help") for name in cli.list_commands(None) if name != "jit"))  # type: ignore[arg-type]
CUT = re.compile(r"\S…\S")
"""The middle of a name or an instruction that was left out."""


def fits(text: str, width: int) -> None:
    lines = text.splitlines()
    assert [line for line in lines if cell_width(line) > width] == []
    assert [line for line in lines if CUT.search(line)] == []


ALL = [each for each in (*RUNS, *PROGRAMS) if each != "server again"]


@pytest.mark.parametrize(("name", "width"), [*((name, 80) for name in ALL), ("troubles", 160)])
def test_every_reading_command_of_every_recorded_run(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    run, commands = (parsed(name), AT_A_TERMINAL) if name in RUNS else (parsed(name), OF_PROGRAMS)
    for command, *options in commands:
        status, printed = invoke(command, str(run.path), *options)
        assert status == 0 or not printed, command
        fits(printed, width)


def test_every_other_command(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed("all")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FIPROF_ARTIFACTS", str(session_folder()))
    for words in OTHERS:
        fits(invoke(*words)[1], 80)


@pytest.mark.parametrize("command", ["show", "timeline"])
def test_no_row_wraps_in_a_real_terminal(command: str) -> None:
    """With colours and bars, its rows are the lines."""
    printed = on_a_terminal(command, str(parsed("decode").path), columns=80)
    screen = pyte.Screen(80, 2000)
    pyte.ByteStream(screen).feed(printed)
    assert screen.cursor.y == printed.count(b"\n") > 10 and b"\x1b[1m" in printed


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
