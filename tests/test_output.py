"""What is printed: text whatever a run holds, and never wider than the terminal."""

import contextlib
import csv
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyte
import pytest

from fiprof.cli.main import cli
from fiprof.text import cell_width, csv_cell
from tests.conftest import Fiprof, python_path, ran
from tests.golden import READERS
from tests.recorded_runs import PROGRAMS, RUNS, copied, invoke, parsed, profiled, session_folder

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
    assert "overlap wgmma with the rest, ? 47%" in done.stdout


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
    run, commands = (parsed(name), AT_A_TERMINAL) if name in RUNS else (profiled(name), OF_PROGRAMS)
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
