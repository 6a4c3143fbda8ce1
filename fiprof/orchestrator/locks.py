"""One collect at a time on a GPU: two profilers on one GPU disturb each other's figures without a word.

And one session at a time in a study's folder.
"""

import contextlib
import errno
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import psutil

from fiprof import clock, files
from fiprof.errors import FiprofError, Interrupted
from fiprof.text import escape_control

POLL_S = 0.2
SINCE = "%Y-%m-%d %H:%M:%S"
LONGEST_ADDRESS = 108  # bytes of a Unix socket's address, unix(7)


@contextlib.contextmanager
def gpu_lock(*gpus: str, wait: bool, waiting: Callable[[str], None], stopping: threading.Event) -> Iterator[str]:
    """Hold the lock of a GPU around a block: of several the first that is free. Gives which.

    The lock is an abstract socket's name, unix(7): no file that TMPDIR or a user's rights move, or a link leads away;
    the kernel says who holds it, and lets it go with the process. Containers with a network each have a lock each.

    gpus: UUID, or index where one has none.
    wait: wait for another holder's end, telling ``waiting`` who it is; otherwise raise at once.
    stopping: set by somebody who wants the waiting to end.
    Raises FiprofError naming the holder, Interrupted when told to stop.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        announced = False
        while (free := next((gpu for gpu in gpus if _bound(lock, gpu)), None)) is None:
            if not announced:
                named, holder = " and ".join(gpus), "another fiprof"
                # Who listens, by the kernel's word.
                with contextlib.suppress(OSError, psutil.Error), socket.socket(socket.AF_UNIX) as asking:
                    asking.setblocking(False)
                    asking.connect(_address(gpus[0]))
                    size = struct.calcsize("3i")
                    pid, *_ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
                    process = psutil.Process(pid)
                    since = datetime.fromtimestamp(process.create_time())
                    holder = f"process {pid} of {process.username()} since {since:{SINCE}}"
                if not wait:
                    remedy = "wait for it (collect waits unless --no-wait is given), or take another GPU with --gpu"
                    raise FiprofError(f"GPU {named} is being profiled by {holder}", remedy)
                waiting(f"waiting for GPU {named}: {holder} is profiling on it")
                announced = True
            if stopping.wait(POLL_S):
                raise Interrupted
        lock.listen()
        yield free


def _address(gpu: str) -> bytes:
    return os.fsencode(f"\0fiprof-gpu-{gpu}")[:LONGEST_ADDRESS]


def _bound(held: socket.socket, gpu: str) -> bool:
    """Whether a GPU's lock was free, and is held now."""
    try:
        held.bind(_address(gpu))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise FiprofError(f"GPU {gpu} cannot be locked: {error.strerror}") from error
        return False
    return True


@contextlib.contextmanager
def waiting_lock(path: Path, stopping: threading.Event) -> Iterator[None]:
    """Hold a lock file around a block, once nobody else does. Raises FiprofError, OSError, Interrupted."""
    with open(files.open_lock(path), "rb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stopping.wait(POLL_S):
                    raise Interrupted from None
        yield


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold a folder for this process around a block. Raises FiprofError naming who else has it."""
    path = folder / ".lock"
    try:
        lock = open(files.open_lock(path), "r+b", buffering=0)  # noqa: SIM115 - closed after the block
    except OSError as error:
        raise FiprofError(f"{path} cannot be made: {error.strerror}", "choose another folder with --out") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = escape_control(lock.read(200).decode(errors="backslashreplace")) or "another fiprof"
            raise FiprofError(f"{folder} is being worked on by {holder}", "wait for its end, or end it") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} of {psutil.Process().username()} since {clock.now():{SINCE}}".encode())
        yield
