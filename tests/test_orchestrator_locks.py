"""fiprof.orchestrator.locks: one collect at a time on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fiprof.errors import FiprofError, Interrupted
from fiprof.orchestrator import locks

HOLDER = """
import sys, threading
from fiprof.orchestrator.locks import gpu_lock
with gpu_lock("GPU-test", wait=False, waiting=print, stopping=threading.Event()):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture
def holder() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_who_holds_it(holder: subprocess.Popen[str]) -> None:
    with pytest.raises(FiprofError) as caught, take(wait=False):
        pass
    assert f"process {holder.pid} of " in caught.value.message
    holder.communicate()


def test_the_second_waits(holder: subprocess.Popen[str]) -> None:
    said: list[str] = []
    threading.Timer(0.5, holder.kill).start()
    with take(wait=True, said=said):
        assert len(said) == 1
        assert f"process {holder.pid} of " in said[0]
    holder.communicate()


def test_waiting_can_be_interrupted(holder: subprocess.Popen[str]) -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(Interrupted), take(wait=True, stopping=stopping):
        pass
    holder.communicate()


def test_the_lock_is_for_every_user(tmp_path: Path) -> None:
    with take(wait=False):
        assert (tmp_path / "fiprof-gpu-GPU-test.lock").stat().st_mode & 0o777 == 0o666


def take(*, wait: bool, said: list[str] | None = None, stopping: threading.Event | None = None):  # type: ignore[no-untyped-def]
    return locks.gpu_lock(
        "GPU-test",
        wait=wait,
        waiting=(said if said is not None else []).append,
        stopping=stopping or threading.Event(),
    )
