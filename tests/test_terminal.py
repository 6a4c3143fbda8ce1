"""What the commands print, on a terminal: no line is longer than it, no row wraps, no value is cut."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pyte
import pytest

from fiprof.cli.main import cli
from fiprof.text import cell_width
from tests.conftest import python_path
from tests.recorded_runs import PROGRAMS, RUNS, invoke, parsed, profiled, session_folder

READERS = (
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


@pytest.mark.parametrize(("name", "width"), [*((name, 80) for name in RUNS), ("all", 100), ("troubles", 160)])
def test_every_reading_command_of_every_recorded_run(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for command, *options in READERS:
        status, printed = invoke(command, str(parsed(name).path), *options)
        assert status == 0 or not printed, command
        fits(printed, width)


@pytest.mark.parametrize(
    ("name", "width"), [*((each, 80) for each in PROGRAMS if each != "server again"), ("llama", 100)]
)
def test_every_reading_command_of_every_recorded_program(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for command, *options in OF_PROGRAMS:
        status, printed = invoke(command, str(profiled(name).path), *options)
        assert status == 0 or not printed, command
        fits(printed, width)


@pytest.mark.parametrize("width", [80, 100])
def test_every_other_command(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FIPROF_ARTIFACTS", str(session_folder()))
    for words in OTHERS:
        fits(invoke(*words)[1], width)


@pytest.mark.parametrize("command", ["show", "timeline"])
def test_no_row_wraps_in_a_real_terminal(command: str) -> None:
    """Standard output, error and input are a terminal of 80 columns: with colours and bars, its rows are the lines."""
    columns, rows = 80, 2000
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "fiprof", command, str(parsed("decode").path)],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "PYTHONPATH": python_path(), "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    printed = bytearray()
    try:
        while piece := os.read(ours, 1 << 16):
            printed += piece
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    assert process.wait() == 0
    screen = pyte.Screen(columns, rows)
    pyte.ByteStream(screen).feed(bytes(printed))
    assert screen.cursor.y == printed.count(b"\n") > 10
    assert b"\x1b[1m" in printed
