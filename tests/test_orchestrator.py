"""Processes, locks and run folders: nothing runs on, nothing is lost, nothing outside a folder is touched."""

import contextlib
import json
import os
import pwd
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from fiprof import files
from fiprof.errors import FiprofError, Interrupted
from fiprof.orchestrator import locks
from fiprof.orchestrator.process import Supervisor, ToolCommand, end_orphans
from fiprof.orchestrator.run_folder import Archive
from tests.conftest import Fiprof, python_path, until

NOBODY = 65534
GPU = f"GPU-test-{os.getpid()}"

HOLDER = """
import os, sys, threading
from fiprof.orchestrator.locks import gpu_lock
os.setuid(int(sys.argv[2]))
with gpu_lock(sys.argv[1], wait=False, waiting=print, stopping=threading.Event()):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holding(user: int = os.getuid(), **env: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, with another folder for temporary files, that holds the lock."""
    argv, env = [sys.executable, "-c", HOLDER, GPU, str(user)], {**os.environ, "PYTHONPATH": python_path(), **env}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def take(said: list[str], *, wait: bool = True, stopping: bool = False) -> contextlib.AbstractContextManager[object]:
    event = threading.Event()
    if stopping:
        event.set()
    return locks.gpu_lock(GPU, wait=wait, waiting=said.append, stopping=event)


def test_the_second_waits_until_it_is_interrupted_or_the_first_ends(tmp_path: Path) -> None:
    said: list[str] = []
    with holding(TMPDIR=str(tmp_path)) as holder:
        with pytest.raises(Interrupted), take([], stopping=True):
            pass
        threading.Timer(0.5, holder.kill).start()
        with take(said):
            assert len(said) == 1 and f"process {holder.pid} of " in said[0]


@pytest.mark.fault("two users with a TMPDIR each profile one GPU", "the second waits, or is told who has it")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_the_lock_is_for_every_user() -> None:
    who = rf"process \d+ of {pwd.getpwuid(NOBODY).pw_name} since 2"
    with holding(user=NOBODY, TMPDIR="/nowhere"), pytest.raises(FiprofError, match=who):
        take([], wait=False).__enter__()


@pytest.mark.fault("a study's lock names its holder in escapes or bytes", "one line of text")
@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"process 7 of \x1b[2J since \n", r"process 7 of \x1b[2J since \n"),
        (b"\xff" * 4096, r"\xff" * 200),
        (b"", "another fiprof"),
        (None, "process PID of "),
    ],
)
def test_a_folders_lock_is_anybodys_text(faked: Fiprof, tmp_path: Path, written: bytes | None, said: str) -> None:
    (tmp_path / "study").mkdir()
    with locks.folder_lock(tmp_path / "study"):
        if written is not None:
            (tmp_path / "study/.lock").write_bytes(written)
        done = faked("study", "flashinfer", "--quick", "--out", "study")
    who = f"fiprof: study is being worked on by {said.replace('PID', str(os.getpid()))}"
    assert done.returncode == 1 and done.stderr.startswith(who)
    assert done.stderr.endswith("\n  wait for its end, or end it\n")


# A tool that ignores polite requests, with a helper in a session of its own, as profilers start them.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print(helper.pid, flush=True)
time.sleep(300)
"""


def command(tmp_path: Path, code: str, timeout_s: float | None = None) -> ToolCommand:
    return ToolCommand("step", (sys.executable, "-c", code), tmp_path / "logs/step.log", timeout_s=timeout_s)


def test_time_limit_ends_helpers_too(tmp_path: Path) -> None:
    finished = Supervisor().start(command(tmp_path, STUBBORN, timeout_s=1.0)).wait()
    assert finished.outcome == "timeout" and finished.message == "no end after 1 s"
    assert_gone(int((tmp_path / "logs/step.log").read_text().split()[0]))


@pytest.mark.fault("nsys is ended while it makes a report of its trace", "its trace, which it has closed, goes")
def test_a_trace_that_is_closed_goes(tmp_path: Path) -> None:
    tool, trace, closed = (tmp_path / name for name in ("tool", "nsys-report-1.qdstrm", "closed"))
    tool.write_text(f"#!/bin/sh\nexec 3> {trace}\nsleep 1\nexec 3>&-\ntouch {closed}\nsleep 60\n")
    tool.chmod(0o755)
    traces = Supervisor().start(ToolCommand("nsys", (str(tool), "profile"), tmp_path / "log"))
    assert traces.wait(lambda _: closed.exists()).message and closed.exists() and not trace.exists()


HOLDER_OF_PROCESS = """
import sys
from pathlib import Path
from fiprof.orchestrator.process import Command, Supervisor
Supervisor().start(Command("step", (sys.executable, "-c", sys.argv[1]), Path(sys.argv[2]))).wait()
"""


@pytest.mark.fault("fiprof is killed, and the guard of its processes too", "tool and helpers end within seconds")
@pytest.mark.parametrize("victims", ["fiprof", "fiprof and its guard"])
def test_a_killed_fiprof_leaves_no_process(tmp_path: Path, victims: str) -> None:
    log = tmp_path / "step.log"
    fiprof = subprocess.Popen([sys.executable, "-c", HOLDER_OF_PROCESS, STUBBORN, str(log)])
    until(lambda: log.exists() and log.read_text())
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


@pytest.mark.fault("a program prints 100 MB", "the log has its first and last MB, without secrets; memory stays small")
def test_a_log_of_100_mb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", secret := "0123456789abcdef" * 8)
    line = f"step 1 with {secret}, which is long; "
    # No line breaks; both cuts are in a secret somewhere, as the lines are of no round length.
    code = f"import os\nblock = b'first ' + b{line!r} * 100_000\nfor _ in range(6): os.write(1, block)\nprint('last')"
    tracemalloc.start()
    Supervisor().start(command(tmp_path, code)).wait()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    log = (tmp_path / "logs/step.log").read_text()
    assert peak < 64 << 20
    assert log.startswith("first step 1 with ***, which") and log.endswith("long; last\n")
    assert 100_000 < len(log) < 2 << 20 and not re.search("[0-9a-f]{16}", log)
    assert re.search(r"\[fiprof: \d{8,} bytes left out\]", log)


def assert_gone(pid: int) -> None:
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, seconds=5)


def test_collects_in_the_same_second_get_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIPROF_CLOCK", f"2026-11-21T10:15:30@{time.monotonic()}")
    with ThreadPoolExecutor(8) as pool:
        names = pool.map(lambda _: Archive(tmp_path).create("prefill").name, range(8))
    stem = "20261121-101530-prefill"
    assert {*names} == {stem, *(f"{stem}-{n}" for n in range(2, 9))}


def test_runs_are_found_by_path_name_prefix_and_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path / "artifacts")
    first, second = (archive.create(label).finish("complete", "") for label in ("decode", "prefill"))
    for text in (str(first), first.name, first.name[:-2], str(first)[:-2], f"{first.name[:-2]}…"):
        assert archive.find(text) == first, text
    assert archive.find("latest") in (first, second)
    monkeypatch.chdir(archive.root.parent)
    assert Archive(Path("artifacts")).find(f"artifacts/{second.name[:-3]}").name == second.name


@pytest.mark.fault("the time zone changed between two runs, or a manifest damaged", "`latest` is by the time in UTC")
def test_latest_is_by_the_time_of_the_start(tmp_path: Path) -> None:
    for name, started in (
        ("20261101-020000-tokyo", "2026-11-01T02:00:00+09:00"),
        ("20261031-200000-london", "2026-10-31T20:00:00+00:00"),
        ("20261031-150000-new-york", "2026-10-31T18:00:00-04:00"),
        ("20260101-000000-damaged", 7),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps({"started": started}))
    archive = Archive(tmp_path)
    assert [name[16:] for name in archive.by_time()] == ["damaged", "tokyo", "london", "new-york"]
    assert archive.find("latest").name == "20261031-150000-new-york"


HOLD = """
import sys
from pathlib import Path
from fiprof.files import atomic_write, scratch
with scratch(Path(sys.argv[1])) as folder, atomic_write(Path(sys.argv[1], "file")) as partial:
    (folder / "large").write_text("…")
    print(flush=True)
    sys.stdin.read()
"""


@pytest.mark.fault("temporaries of a killed fiprof", "the next one that works in the folder removes them")
def test_temporaries_of_a_killed_process_go_and_those_of_a_living_one_stay(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    killed, living = (subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2))
    for process in (killed, living):
        assert process.stdout is not None
        process.stdout.readline()
    assert len(os.listdir(tmp_path)) == 6
    killed.kill()
    killed.communicate()
    files.clear(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", "", ".d"]
    living.communicate()
    assert os.listdir(tmp_path) == ["file"]


def test_a_study_is_no_run_and_says_which_runs_it_has(tmp_path: Path) -> None:
    study = tmp_path / "study-mine"
    (study / "20261121-101530-decode").mkdir(parents=True)
    (study / "study.json").write_text("{}")
    (study / "20261121-101530-decode/run.json").write_text("{}")
    for text in ("study-mine", str(study)):
        with pytest.raises(FiprofError) as caught:
            Archive(tmp_path).find(text)
        assert caught.value.message == f"{study} is a study, not a run; its runs: 20261121-101530-decode"
        assert "reports/INDEX.md" in caught.value.remedy
    assert Archive(tmp_path).find(f"{study}/2026").name == "20261121-101530-decode"
