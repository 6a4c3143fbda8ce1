"""Supervised subprocesses: a log file, a time limit, and an end for every child however the run ends.

Each runs under a guard of its own (:mod:`fiprof.orchestrator.guard`) in another session, so that a Ctrl-C in the
terminal reaches fiprof alone. The guard ends the tool and all that it started when fiprof says so, or is killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import os
import select
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil

from fiprof import clock
from fiprof.errors import FiprofError
from fiprof.files import file_errors
from fiprof.model.manifest import Outcome
from fiprof.model.redaction import mask_bytes
from fiprof.orchestrator import guard

POLL_S = 0.05  # between two looks at a process
GUARD_S = sum(grace_s for _, grace_s in guard.ENDING) + 1  # in which a guard ends its processes
TOKEN_VARIABLE = "FIPROF_SUPERVISED"
"""In the environment of every descendant: who started it, for the case that the guard is killed too."""
TERMINAL_TAIL_BYTES = 4096
ENOUGH = "ended: it had made what it was to make"


@dataclass(frozen=True)
class ToolCommand:
    """A process to start."""

    step: str  # its name in the manifest
    argv: tuple[str, ...]
    log: Path  # of stdout and stderr: of much output the begin and the end, with secrets masked
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    stdout: Path | None = None  # of stdout alone, for tools that print their result
    makes: tuple[Path, ...] = ()  # files that it makes
    keeps_at_limit: bool = False  # whether what it has made at its time limit is used
    pass_on: PassOn | None = None  # called with what a program of the user's prints
    reads: ProgramInput | None = None  # its standard input

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it writes, without the log."""
        return (*self.makes, *([self.stdout] if self.stdout else []))


class Finished(NamedTuple):
    """How a process ended."""

    outcome: Outcome
    exit_status: int | None  # None where it could not be started; negative for a signal
    started: str  # ISO 8601 with offset
    duration_s: float
    message: str = ""
    left: tuple[str, ...] = ()  # processes that it left running, which were ended: command line and number


class Process:
    """A started command. :meth:`wait` for it once."""

    def __init__(self, command: ToolCommand, supervisor: Supervisor) -> None:
        """Raises FiprofError where no process can be started, e.g. for a command line that is too long."""
        self.command = command
        self._supervisor = supervisor
        self._token = f"{_identity(os.getpid())}/{uuid.uuid4().hex}"
        self._begin = time.monotonic()
        self._started = clock.now_text()
        with contextlib.ExitStack() as files:
            with file_errors(command.stdout or command.log):
                log = open(command.log, "ab", buffering=0)  # noqa: SIM115 - the relay closes it
                out = files.enter_context(open(command.stdout, "wb")) if command.stdout else subprocess.PIPE
            # The guard ends its processes when the other end of the first pipe is closed.
            its_control, self._control = os.pipe()
            self._report, its_report = os.pipe()
            for descriptor in (its_control, its_report):
                files.callback(os.close, descriptor)
            stdin = command.reads.open() if command.reads else os.open(os.devnull, os.O_RDONLY)
            files.callback(os.close, stdin)
            guarded = (sys.executable, "-I", "-S", guard.__file__, str(its_control), str(its_report), *command.argv)
            try:
                self._popen = subprocess.Popen(
                    guarded,
                    stdin=stdin,
                    stdout=out,
                    # Two pipes only where they are needed apart: one keeps the order.
                    stderr=subprocess.PIPE if command.pass_on or command.stdout else subprocess.STDOUT,
                    env={**os.environ, **command.env, TOKEN_VARIABLE: self._token},
                    start_new_session=True,
                    pass_fds=(its_control, its_report),
                )
            except OSError as error:
                raise FiprofError(f"{command.step}: {_not_started(command, error.errno)}") from error
            self._relay = Relay(log, self._popen.stdout, self._popen.stderr, command.pass_on)

    def wait(self, on_output: Callable[[str], object] | None = None) -> Finished:
        """Wait for the end, the time limit or the supervisor's stop; every child has ended when this returns.

        on_output: called a few times a second with the log's last lines (at most 4 KB); True ends the process.
        """
        outcome: Outcome = "ok"
        # From now, not from the start: a process may have been started early and held back.
        deadline = time.monotonic() + self.command.timeout_s if self.command.timeout_s else float("inf")
        message = ""
        try:
            while self._popen.poll() is None:
                if self._supervisor.stopping.is_set():
                    outcome, message = "interrupted", "interrupted"
                    break
                if time.monotonic() > deadline:
                    outcome, message = "timeout", f"no end after {self.command.timeout_s:g} s"
                    break
                if on_output is not None and on_output(self._relay.tail(TERMINAL_TAIL_BYTES)) is True:
                    message = ENOUGH
                    break
                # The guard has reported, or is gone; to poll its process would notice up to 50 ms later.
                if select.select([self._report], [], [], POLL_S)[0]:
                    break
        finally:
            report = self._end()
        if error := report.get("error"):
            return Finished("failed", None, self._started, 0.0, _not_started(self.command, error))
        status: int = self._popen.returncode if report.get("status") is None else report["status"]
        if outcome == "ok" and status != 0 and message != ENOUGH:
            outcome, message = "failed", describe_exit(status)
        duration_s = report.get("seconds") or time.monotonic() - self._begin
        return Finished(outcome, status, self._started, duration_s, message, tuple(report.get("left", ())))

    def _end(self) -> dict[str, Any]:
        """End all that still runs. Returns the guard's report, empty where it was killed."""
        os.close(self._control)
        try:
            self._popen.wait(GUARD_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        with open(self._report, "rb") as report:
            content = report.read()
        if not content:
            _kill(_carrying(lambda token: token == self._token))
        self._relay.close()
        result: dict[str, Any] = json.loads(content or "{}")
        return result


class Supervisor:
    """Starts commands, and can end all of them."""

    def __init__(self, env: Mapping[str, str] | None = None, stopping: threading.Event | None = None) -> None:
        """env: variables for every command, which its own replace. stopping: ends the processes when it is set."""
        self.env = env or {}
        self.stopping = stopping or threading.Event()

    def start(self, command: ToolCommand) -> Process:
        for path in (command.log, *command.files):
            with file_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
        with file_errors(command.log):
            command.log.touch()
        return Process(dataclasses.replace(command, env={**self.env, **command.env}), self)


def end_orphans() -> list[str]:
    """End the processes of fiprofs that no longer run. Returns the command lines.

    Their guards do so within seconds; this waits for that, and ends those whose guard was killed too.
    """
    own_namespace = _namespace()

    def orphan(token: str) -> bool:
        owner = token.partition("/")[0]
        namespace, pid, _ = [*owner.split("."), "", ""][:3]
        return namespace == own_namespace and pid.isdigit() and _identity(int(pid)) != owner

    orphans = _carrying(orphan)
    named = []
    for process in orphans:
        with contextlib.suppress(psutil.Error):
            if guard.__file__ not in (words := process.cmdline()):
                named.append(" ".join(words))
    psutil.wait_procs(orphans, timeout=GUARD_S)
    _kill(_carrying(orphan))
    return named


def _carrying(is_own: Callable[[str], bool]) -> list[psutil.Process]:
    """The processes whose token is ``is_own``."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            token = process.environ().get(TOKEN_VARIABLE)
            if token and is_own(token) and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=1)


def _namespace() -> str:
    """The namespace of process numbers, which differs between containers."""
    return str(os.stat("/proc/self/ns/pid").st_ino)


def _identity(pid: int) -> str:
    """A process's identity: namespace, number and start, with dots between; without the start once it has ended."""
    start = ""
    with contextlib.suppress(OSError):
        # Field 22 of proc(5), in ticks since boot: psutil's time moves when the clock is set.
        start = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    return f"{_namespace()}.{pid}.{start}"


def _not_started(command: ToolCommand, error: int | None) -> str:
    if error == errno.ENOENT:
        return f"{command.argv[0]} was not found"
    return f"{command.argv[0]} could not be started: {os.strerror(error or 0)}"


def describe_exit(status: int) -> str:
    """``ended with exit status 3``, or the signal's name for a negative one."""
    names = {each.value: each.name for each in signal.Signals}
    return f"ended by {names.get(-status, f'signal {-status}')}" if status < 0 else f"ended with exit status {status}"


class ProgramInput:
    """fiprof's own standard input for a program that is started several times: it reads the same each time.

    Of a pipe each start gets what the first one read. Of a terminal it is empty.
    """

    _taken: IO[bytes] | None = None  # what the first start read of a pipe

    def open(self) -> int:
        """A descriptor to start the program with. Raises FiprofError where nothing can be read or kept."""
        try:
            kind = stat.S_IFMT(os.fstat(0).st_mode)
            if os.isatty(0):
                return os.open(os.devnull, os.O_RDONLY)
            if self._taken is None and kind in (stat.S_IFIFO, stat.S_IFSOCK):
                self._taken = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - goes with the process
                reads, writes = os.pipe()
                threading.Thread(target=_copy_input, args=(writes, self._taken), daemon=True).start()
                return reads
            # Opened anew, so that each start has its own position in the file.
            descriptor = os.open(f"/proc/self/fd/{self._taken.fileno() if self._taken else 0}", os.O_RDONLY)
            if kind == stat.S_IFREG:
                os.lseek(descriptor, os.lseek(0, 0, os.SEEK_CUR), os.SEEK_SET)
            return descriptor
        except OSError as error:
            raise FiprofError(f"what the program is to read: {error.strerror}", "give it none: < /dev/null") from error


def _copy_input(writes: int, copy: IO[bytes]) -> None:
    """Copy fiprof's standard input to a pipe and a file, until the program has ended or the disk is full."""
    with contextlib.suppress(OSError), open(writes, "wb") as program:
        while piece := os.read(0, PIECE_BYTES):
            copy.write(piece)
            program.write(piece)
            program.flush()


INPUT = ProgramInput()

PassOn = Callable[[bytes, bool], None]  # takes a piece of output, empty at its end, and whether it is of stderr

MOST_BYTES = 1 << 20
"""Of a log's begin, and of its end; the middle is left out. The tools say at either end what went wrong."""
EDGE_BYTES = 1 << 12  # left out besides at either edge of the gap, where half a secret would not be recognized
PIECE_BYTES = 1 << 16  # read at once
CLOSING_S = 2.0  # in which the pipes of ended processes are read to their end


class Relay:
    """Reads the pipes of a process until they end: into its log, and on to ``pass_on``."""

    def __init__(
        self, log: io.FileIO, stdout: IO[bytes] | None, stderr: IO[bytes] | None, pass_on: PassOn | None
    ) -> None:
        """log: open for appending; :meth:`close` closes it."""
        self._log = log
        self._start = os.fstat(log.fileno()).st_size
        self._pass_on = pass_on
        self._lock = threading.Lock()
        self._left_out = 0
        self._begin = bytearray()
        self._end = bytearray()
        pipes = [(pipe, of_stderr) for pipe, of_stderr in ((stdout, False), (stderr, True)) if pipe is not None]
        self._threads = [threading.Thread(target=self._copy, args=each, daemon=True) for each in pipes]
        for thread in self._threads:
            thread.start()

    def tail(self, count: int) -> str:
        """The last bytes of the output so far, as text."""
        with self._lock:
            return self._end[-count:].decode(errors="replace")

    def close(self) -> None:
        """Write the whole log anew, masked as one text; to call when no process holds the pipes any longer."""
        for thread in self._threads:
            thread.join(CLOSING_S)
        # A full disk is reported by whatever writes next.
        with self._lock, self._log as log, contextlib.suppress(OSError):
            begin = bytes(self._begin)
            end = bytes(self._end[-self._left_out :]) if self._left_out else b""
            if between := self._left_out - len(end):
                note = b"\n[fiprof: %d bytes left out]\n" % (between + 2 * EDGE_BYTES)
                text = mask_bytes(begin)[:-EDGE_BYTES] + note + mask_bytes(end)[EDGE_BYTES:]
            else:
                text = mask_bytes(begin + end)
            if text != Path(log.name).read_bytes()[self._start :]:
                log.truncate(self._start)
                log.write(text)

    def _copy(self, pipe: IO[bytes], of_stderr: bool) -> None:
        begun = b""
        with pipe:
            while piece := os.read(pipe.fileno(), PIECE_BYTES):
                if self._pass_on:
                    self._pass_on(piece, of_stderr)
                with self._lock:
                    now = piece[: MOST_BYTES - len(self._begin)]
                    self._begin += now
                    # Whole lines: half a secret would not be recognized.
                    lines, newline, begun = (begun + now).rpartition(b"\n")
                    # A log that cannot be written does not stop the program.
                    with contextlib.suppress(OSError, ValueError):
                        self._log.write(mask_bytes(lines + newline))
                    self._left_out += len(piece) - len(now)
                    self._end += piece
                    # Cut now and then, not at every piece.
                    if len(self._end) > 2 * MOST_BYTES:
                        del self._end[:-MOST_BYTES]
            if self._pass_on:
                self._pass_on(b"", of_stderr)
