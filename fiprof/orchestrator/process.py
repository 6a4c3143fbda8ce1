"""Supervised subprocesses: a log file, a time limit, and an end for every child however the run ends.

Each process leads a session of its own, so that a Ctrl-C in the terminal reaches fiprof alone, which then
ends the tool and all that it started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psutil

from fiprof.errors import FiprofError
from fiprof.model.manifest import Outcome

POLL_S = 0.05
# Ctrl-C is to take less than five seconds in all: SIGINT, then SIGTERM, then SIGKILL.
INTERRUPT_GRACE_S = 1.5
TERMINATE_GRACE_S = 1.5

# Found in the environment of every descendant, also of helpers that leave their parent's process group.
TOKEN_VARIABLE = "FIPROF_SUPERVISED"

TERMINAL_TAIL_BYTES = 4096


@dataclass(frozen=True)
class Command:
    """A process to start."""

    step: str
    """Name of the step, as the manifest has it."""
    argv: tuple[str, ...]
    log: Path
    """Takes stdout and stderr."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables to set."""
    timeout_s: float | None = None
    stdout: Path | None = None
    """Takes stdout alone, for tools that print their result."""
    makes: tuple[Path, ...] = ()
    """Files that the process is to make."""


@dataclass(frozen=True)
class Finished:
    """How a process ended."""

    outcome: Outcome
    exit_status: int | None
    """None where it could not be started; negative for a signal."""
    started: str
    """ISO 8601 with offset."""
    duration_s: float
    message: str = ""


class Process:
    """A started command. :meth:`wait` for it once."""

    def __init__(self, command: Command, supervisor: Supervisor) -> None:
        self.command = command
        self._supervisor = supervisor
        self._token = uuid.uuid4().hex
        self._begin = time.monotonic()
        self._started = datetime.now().astimezone().isoformat(timespec="milliseconds")
        self._error = ""
        self._popen: subprocess.Popen[bytes] | None = None
        try:
            with contextlib.ExitStack() as files:
                log = files.enter_context(open(command.log, "ab"))
                out = files.enter_context(open(command.stdout, "wb")) if command.stdout else log
                self._popen = subprocess.Popen(
                    command.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    env={**os.environ, **command.env, TOKEN_VARIABLE: self._token},
                    start_new_session=True,
                )
        except FileNotFoundError:
            self._error = f"{command.argv[0]} was not found"
        except OSError as error:
            self._error = f"{command.argv[0]} could not be started: {error.strerror}"

    def wait(self, on_output: Callable[[str], None] | None = None) -> Finished:
        """Wait for the end, the time limit or the supervisor's stop; every child is gone when this returns.

        on_output: called a few times a second with the log's last lines (at most 4 KB).
        """
        if self._popen is None:
            return Finished("failed", None, self._started, 0.0, self._error)
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
                if on_output is not None:
                    on_output(self._log_tail())
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._popen.wait(POLL_S)
        finally:
            duration_s = time.monotonic() - self._begin
            self._end_all(thorough=outcome != "ok")
        if outcome == "ok" and self._popen.returncode != 0:
            outcome = "failed"
            message = describe_exit(self._popen.returncode)
        return Finished(outcome, self._popen.returncode, self._started, duration_s, message)

    def _end_all(self, *, thorough: bool) -> None:
        """End the process and every descendant that is still there.

        thorough: also look through all of the machine's processes for helpers that left the group.
        """
        assert self._popen is not None
        if not thorough and not _group_exists(self._popen.pid):
            return
        for sign, grace_s in ((signal.SIGINT, INTERRUPT_GRACE_S), (signal.SIGTERM, TERMINATE_GRACE_S)):
            alive = self._alive()
            if not alive:
                return
            self._signal(alive, sign)
            _, alive = psutil.wait_procs(alive, timeout=grace_s)
        self._signal(self._alive(), signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(1)

    def _alive(self) -> list[psutil.Process]:
        """The process unless it has ended, and whatever carries its token."""
        assert self._popen is not None
        ended = self._popen.poll() is not None
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid == self._popen.pid:
                    mine = not ended
                else:
                    mine = process.environ().get(TOKEN_VARIABLE) == self._token
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    @staticmethod
    def _signal(processes: list[psutil.Process], sign: signal.Signals) -> None:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.send_signal(sign)

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError), open(self.command.log, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - TERMINAL_TAIL_BYTES))
            return log.read().decode(errors="replace")
        return ""


class Supervisor:
    """Starts commands and can stop all of them."""

    def __init__(self) -> None:
        self.stopping = threading.Event()

    def start(self, command: Command) -> Process:
        """Raises FiprofError when the log or the folders of its files cannot be made."""
        try:
            for path in (command.log, *([command.stdout] if command.stdout else []), *command.makes):
                path.parent.mkdir(parents=True, exist_ok=True)
            command.log.touch()
        except OSError as error:
            raise FiprofError(f"{command.log} cannot be written: {error.strerror}") from error
        return Process(command, self)

    def stop(self) -> None:
        """Have every process that is being waited for ended."""
        self.stopping.set()


def end_orphans(folder: Path) -> None:
    """End the processes that a killed fiprof left behind, writing into a folder."""
    orphans = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if TOKEN_VARIABLE in process.environ() and _names(process, folder.resolve()):
                orphans.append(process)
    for process in orphans:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(orphans, timeout=TERMINATE_GRACE_S)


def _names(process: psutil.Process, folder: Path) -> bool:
    """Whether a word of the command line, or the value of an option, is a path in the folder."""
    here = Path(process.cwd())
    return any(
        Path(os.path.normpath(here / word.rpartition("=")[2])).is_relative_to(folder) for word in process.cmdline()
    )


def stop_on_signals(supervisor: Supervisor) -> None:
    """The first Ctrl-C (or SIGTERM) ends the supervisor's processes in order; a second one ends fiprof."""

    def stop(number: int, _frame: object) -> None:
        supervisor.stop()
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def describe_exit(status: int) -> str:
    """``ended with exit status 3``, or the signal's name for a negative one."""
    if status < 0:
        try:
            return f"ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"ended by signal {-status}"
    return f"ended with exit status {status}"


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
