"""fiprof.orchestrator.locks: one collect at a time on a GPU."""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fiprof.errors import FiprofError, Interrupted
from fiprof.orchestrator import locks
from tests.conftest import Fiprof, python_path

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


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, with another folder for temporary files, that holds the lock."""
    yield from holding(TMPDIR=str(tmp_path))


def holding(user: int = os.getuid(), **env: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, GPU, str(user)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": python_path(), **env},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_second_waits(holder: subprocess.Popen[str]) -> None:
    said: list[str] = []
    threading.Timer(0.5, holder.kill).start()
    with take(wait=True, said=said):
        assert len(said) == 1
        assert f"process {holder.pid} of " in said[0]


@pytest.mark.usefixtures("holder")
def test_waiting_can_be_interrupted() -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(Interrupted), take(wait=True, stopping=stopping):
        pass


@pytest.mark.fault("two users with a TMPDIR each profile one GPU", "the second waits, or is told who has it")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_the_lock_is_for_every_user() -> None:
    for holder in holding(user=NOBODY, TMPDIR="/nowhere"):
        with pytest.raises(FiprofError, match=f"process {holder.pid} of {pwd.getpwuid(NOBODY).pw_name} since 2"):
            take(wait=False).__enter__()


@pytest.mark.fault("a study's lock names its holder in escapes or bytes", "one line of text")
@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"process 7 of \x1b[2J since \n", r"process 7 of \x1b[2J since \n"),
        (b"\xff" * 4096, r"\xff" * 200),
        (b"", "another fiprof"),
    ],
)
def test_a_folders_lock_is_anybodys_text(faked: Fiprof, tmp_path: Path, written: bytes, said: str) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study/.lock").write_bytes(written)
    with (tmp_path / "study/.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = faked("study", "flashinfer", "--quick", "--out", "study")
    assert (done.returncode, done.stderr) == (
        1, f"fiprof: study is being worked on by {said}\n  wait for its end, or end it\n",
    )  # fmt: skip


def take(*, wait: bool, said: list[str] | None = None, stopping: threading.Event | None = None):  # type: ignore[no-untyped-def]
    return locks.gpu_lock(
        GPU, wait=wait, waiting=(said if said is not None else []).append, stopping=stopping or threading.Event()
    )
