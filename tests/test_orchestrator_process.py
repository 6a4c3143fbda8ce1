"""fiprof.orchestrator.process: every child is gone when a command ends, however it ends."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import psutil
import pytest

from fiprof.orchestrator.process import Command, Supervisor, end_orphans

# A tool that ignores polite requests, with a helper in a session of its own, as profilers start them.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print(helper.pid, flush=True)
time.sleep(300)
"""


def command(tmp_path: Path, code: str, timeout_s: float | None = None) -> Command:
    return Command("step", (sys.executable, "-c", code), tmp_path / "logs/step.log", timeout_s=timeout_s)


def test_no_such_program(tmp_path: Path) -> None:
    finished = Supervisor().start(Command("s", ("no-such-program",), tmp_path / "s.log")).wait()
    assert (finished.outcome, finished.exit_status) == ("failed", None)
    assert finished.message == "no-such-program was not found"


def test_time_limit_ends_helpers_too(tmp_path: Path) -> None:
    finished = Supervisor().start(command(tmp_path, STUBBORN, timeout_s=1.0)).wait()
    assert finished.outcome == "timeout"
    assert finished.message == "no end after 1 s"
    assert_gone(int((tmp_path / "logs/step.log").read_text().split()[0]))


LEAVES = "import subprocess, sys\nprint(subprocess.Popen([*sys.argv[1:], 'sleep', '300']).pid, flush=True)"


@pytest.mark.fault("a tool's helper drops its group, its environment and its parent", "it is ended and named")
@pytest.mark.parametrize("words", [["setsid"], ["env", "-i", "setsid"], ["setsid", "--fork"]])
def test_what_left_the_group_of_a_tool_that_ended_well_is_ended_and_named(tmp_path: Path, words: list[str]) -> None:
    argv = (sys.executable, "-c", LEAVES, *words)
    finished = Supervisor().start(Command("step", argv, tmp_path / "step.log")).wait()
    assert finished.outcome == "ok"
    (left,) = finished.left
    assert left.startswith("sleep 300 (process ")
    assert_gone(int(left.split()[-1].rstrip(")")))


HOLDER = """
import sys
from pathlib import Path
from fiprof.orchestrator.process import Command, Supervisor
Supervisor().start(Command("step", (sys.executable, "-c", sys.argv[1]), Path(sys.argv[2]))).wait()
"""


@pytest.mark.fault(
    "fiprof is killed, and the guard of its processes too", "the tool and its helpers end within seconds"
)
@pytest.mark.parametrize("victims", ["fiprof", "fiprof and its guard"])
def test_a_killed_fiprof_leaves_no_process(tmp_path: Path, victims: str) -> None:
    log = tmp_path / "step.log"
    fiprof = subprocess.Popen([sys.executable, "-c", HOLDER, STUBBORN, str(log)])
    while not (log.exists() and log.read_text()):
        time.sleep(0.05)
    (guard,) = psutil.Process(fiprof.pid).children()
    tool, helper = guard.children()[0].pid, int(log.read_text())
    fiprof.kill()
    fiprof.wait()
    if victims != "fiprof":
        guard.kill()
        assert_gone(tool)
        assert [each for each in end_orphans() if "time.sleep(300)" in each]
    assert_gone(tool)
    assert_gone(helper)


@pytest.mark.fault("a program prints tokens and secrets of its environment", "its log has ***; the program keeps them")
def test_a_program_keeps_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "needed")
    code = "import os; print(len(os.environ['HF_TOKEN']), os.environ['HF_TOKEN'], 'http://me:word@host')"
    Supervisor().start(command(tmp_path, code)).wait()
    assert (tmp_path / "logs/step.log").read_text() == "6 *** http://***@host\n"


@pytest.mark.fault("a program prints 1 GB", "the log has its first and last MB, without secrets; memory stays small")
def test_a_log_of_a_gigabyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", secret := "0123456789abcdef" * 8)
    line = f"step 1 with {secret}, which is long; "
    # No line breaks; both cuts are in a secret somewhere, as the lines are of no round length.
    code = f"import os\nblock = b'first ' + b{line!r} * 100_000\nfor _ in range(60): os.write(1, block)\nprint('last')"
    tracemalloc.start()
    Supervisor().start(command(tmp_path, code)).wait()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    log = (tmp_path / "logs/step.log").read_text()
    assert peak < 64 << 20
    assert log.startswith("first step 1 with ***, which") and log.endswith("long; last\n")
    assert 100_000 < len(log) < 2 << 20 and not re.search("[0-9a-f]{16}", log)
    assert re.search(r"\[fiprof: \d{9} bytes left out\]", log)


def assert_gone(pid: int) -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} lives on")
