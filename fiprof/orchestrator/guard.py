"""Runs one command and ends all that it started, however the command, or fiprof, ends.

A program of its own, a process for each command: ``python guard.py CONTROL REPORT COMMAND …``. As a subreaper it stays
the ancestor of whatever the command starts, also of what leaves its session or its parent. When the command has ended,
or CONTROL, a pipe that fiprof holds, reads its end (fiprof asks, or was killed), what is left of them is ended.
REPORT, a pipe too, takes one JSON object: ``status`` (negative for a signal), ``seconds`` and ``left`` (what the
command left running), or ``error`` (an errno) where it could not be started.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Ctrl-C is to take less than five seconds in all.
ENDING = ((signal.SIGINT, 1.5), (signal.SIGTERM, 1.5), (signal.SIGKILL, 1.0))
"""Signals that what is left gets, and how long it may take to end after each, in seconds."""
LINGER_S = 1.0  # a tool's own helpers may end a little later than the tool
POLL_S = 0.02
LOOK_MS = 100  # between two looks for the trace that a nsys has begun

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Guard:
    """The command's process, and all that descends from it."""

    def __init__(self, command: list[str]) -> None:
        self.begin = time.monotonic()
        self.error = 0  # an errno, where the command cannot be started
        own = os.getpid()

        def end_with_guard() -> None:
            signal.set_wakeup_fd(-1)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != own:
                os._exit(1)

        try:
            self.child = subprocess.Popen(command, start_new_session=True, preexec_fn=end_with_guard)
        except OSError as error:
            self.error = error.errno or 0
        self.status: int | None = None
        self.seconds = 0.0
        self.seen: dict[int, None] = {}
        self.left: set[str] = set()  # files of nsys's; its trace is not open any longer when it is made a report
        self.known = command[1:2] != ["profile"]

    def wait(self, control: int, wake: int) -> bool:
        """Until the command has ended by itself (True) or is to be ended (False)."""
        waiting = select.poll()
        waiting.register(control, select.POLLIN)
        waiting.register(wake, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in waiting.poll(None if self.known else LOOK_MS)}
            if not self.known:
                self.look()
                self.known = any(path.endswith(".qdstrm") for path in self.left)
            if control in ready or (wake in ready and set(os.read(wake, 512)).intersection(ASKING)):
                return False
            self.reap()
            if self.status is not None:
                return True

    def look(self) -> None:
        """Note what nsys will leave behind."""
        self.seen.update(dict.fromkeys(_descendants()))
        self.left.update(path for pid in self.seen for path in _files_of_nsys(pid))

    def end(self) -> None:
        """End whatever there is: politely at first. What nsys leaves behind when it is ended goes too."""
        if self.status is not None:
            # What it leaves at an end of its own may be of use.
            self.left.clear()
        for sign, grace_s in ENDING:
            deadline = time.monotonic() + grace_s
            self.look()
            for pid in _descendants():
                with contextlib.suppress(OSError):
                    os.kill(pid, sign)
            while self.reap():
                # A nsys that is asked to end may write its trace first.
                self.look()
                if time.monotonic() > deadline:
                    break
                time.sleep(POLL_S)
        for folder in {os.path.dirname(path) for path in self.left if path.endswith(".qdstrm")}:
            # What nsys has for each process is in the way of a later one with the same number.
            for pid in self.seen:
                self.left |= {f"{folder}/nsys_termination_status_{pid}", f"/dev/shm/sem.nsys_sem_{pid}"}
        for path in self.left:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def reap(self) -> bool:
        """Take leave of what has ended. Returns whether anything is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.child.pid:
                self.status, self.seconds = os.waitstatus_to_exitcode(status), time.monotonic() - self.begin


def _descendants() -> list[int]:
    """Living processes that descend from this one."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # The second field, in parentheses, may hold anything.
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(name))
    pids = list(children.get(os.getpid(), ()))
    for pid in pids:
        pids += children.get(pid, ())
    return pids


def _files_of_nsys(pid: int) -> Iterator[str]:
    """What a process has open of nsys's in the temporary folder: the trace so far, with the environment, output, logs;
    and in shared memory."""
    with contextlib.suppress(OSError):
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            folder, name = os.path.split(os.readlink(descriptor.path))
            own = "/nvidia/nsight_systems" in folder and not name.endswith(".lock")
            if own or (folder == "/dev/shm" and name.startswith("quadd-")):
                yield f"{folder}/{name}"
            if name.startswith("SessionManager"):
                # An agent of nsys has its session's files, which may be closed by now, in a folder with its number.
                streams = f"{folder}/quadd_session_10{pid}/streams"
                with contextlib.suppress(OSError):
                    yield from (f"{streams}/{each}" for each in os.listdir(streams))
            if name.startswith("nsys-report-") and name.endswith(".qdstrm"):
                yield f"{folder}/{name}"


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def main() -> None:
    control, report, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    for descriptor in (control, report):
        os.set_inheritable(descriptor, False)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (*ASKING, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard = Guard(command)
    survivors: list[str] = []
    if not guard.error:
        if guard.wait(control, wake):
            # What is still there a little after the command's end.
            deadline = time.monotonic() + LINGER_S
            while guard.reap() and time.monotonic() < deadline:
                time.sleep(POLL_S)
            for pid in _descendants():
                words = "a process"
                with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read(200).rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
                survivors.append(f"{words} (process {pid})")
        guard.end()
    ended = {"error": guard.error, "status": guard.status, "seconds": guard.seconds, "left": survivors}
    # fiprof may be gone.
    with contextlib.suppress(OSError):
        os.write(report, json.dumps(ended).encode())


if __name__ == "__main__":
    main()
