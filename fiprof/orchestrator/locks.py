"""One collect at a time on a GPU: two profilers on one GPU disturb each other's figures without a word.

And one session at a time in a study's folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fiprof import confined
from fiprof.errors import FiprofError, Interrupted

POLL_S = 0.2


def lock_path(gpu: str) -> Path:
    """Where the lock of a GPU lies: shared by all users of the machine. gpu: UUID, or index where it has none."""
    return Path(tempfile.gettempdir()) / f"fiprof-gpu-{gpu}.lock"


@contextlib.contextmanager
def gpu_lock(gpu: str, *, wait: bool, waiting: Callable[[str], None], stopping: threading.Event) -> Iterator[None]:
    """Hold the GPU's lock around a block.

    wait: wait for another holder's end, telling ``waiting`` who it is; otherwise raise at once.
    stopping: set by somebody who wants the waiting to end.
    Raises FiprofError naming the holder, Interrupted when told to stop. The lock goes with the process.
    """
    descriptor = _open(lock_path(gpu))
    try:
        told = False
        while not _try(descriptor):
            holder = _holder(descriptor)
            if not wait:
                raise FiprofError(
                    f"GPU {gpu} is being profiled by {holder}",
                    "wait for it (collect waits unless --no-wait is given), or take another GPU with --gpu",
                )
            if not told:
                waiting(f"waiting for GPU {gpu}: {holder} is profiling on it")
                told = True
            if stopping.wait(POLL_S):
                raise Interrupted
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold a folder for this process around a block. Raises FiprofError naming who else has it."""
    descriptor = _open(folder / ".lock")
    try:
        if not _try(descriptor):
            raise FiprofError(f"{folder} is being worked on by {_holder(descriptor)}", "wait for its end, or end it")
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return confined.open_lock(path)
    except OSError as error:
        raise FiprofError(f"{path} cannot be made: {error.strerror}", "set TMPDIR to a folder you can write") from error


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(descriptor: int) -> None:
    """Write down who holds the lock."""
    os.ftruncate(descriptor, 0)
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "user": _user(), "since": started}).encode(), 0)


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} of {holder['user']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "another fiprof"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
