"""Who runs a run's commands: a :class:`Supervisor` on this machine, or an archived run that stands in for it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from fiprof import clock
from fiprof.errors import FiprofError, Interrupted
from fiprof.files import file_errors
from fiprof.model import packing
from fiprof.model.manifest import Manifest, read_manifest
from fiprof.orchestrator.archive import file_entry
from fiprof.orchestrator.process import Command, Finished, Supervisor
from fiprof.workloads.runner import GATE_OPEN, GATE_VARIABLE


class Started(Protocol):
    """A command under way."""

    command: Command

    def wait(self, on_output: Callable[[str], object] | None = None) -> Finished: ...


class Executor(Protocol):
    """Starts the commands of a run."""

    def start(self, command: Command) -> Started: ...

    @property
    def stopping(self) -> threading.Event:
        """Set by somebody who asks for the run to end."""


class Replay:
    """Stands in for the machine: a command «makes» what the same step of an archived run made."""

    def __init__(self, source: Path, target: Path, supervisor: Supervisor) -> None:
        """Raises FiprofError when the source is no run."""
        self.stopping = supervisor.stopping
        self.source = source
        self.target = target
        self.manifest: Manifest = read_manifest(source)

    def start(self, command: Command) -> Started:
        """Raises FiprofError for a step that the archived run does not have, or whose files were changed since."""
        if self.stopping.is_set():
            raise Interrupted
        # The last of its name: a step may have been tried twice.
        action = next((action for action in reversed(self.manifest.actions) if action.step == command.step), None)
        if action is None:
            raise FiprofError(
                f"{self.source} has no step {command.step}",
                f"it has {', '.join(action.step for action in self.manifest.actions) or 'none'}; choose with --tool",
            )
        for path in (command.log, command.stdout, *command.makes):
            if path is not None:
                self._copy(path)
        for entry in action.files:
            if not packing.exists(self.source, entry.path):
                if entry.private:  # left out of what was handed on; nothing is parsed from it
                    continue
                pruned = next((each for each in self.manifest.pruned if each.path == entry.path), None)
                raise FiprofError(
                    f"{self.source} has no {entry.path}, which its run made"
                    + (f": it was pruned on {pruned.when[:10]}" if pruned else ""),
                    "a replay needs all raw files; fiprof show, stalls and report read what is there",
                )
            copied = self.target / entry.path
            if copied.exists() and file_entry(self.target, copied).sha256 != entry.sha256:
                raise FiprofError(
                    f"{self.source / entry.path} is not the file that its run made: the checksum in run.json differs",
                    "it was changed or damaged after the run; fiprof parse reads it as it is",
                )
        recorded = dataclasses.replace(command, argv=tuple(action.argv), env=dict(action.env))
        outcome = "failed" if action.exit_status else "ok"
        return _Replayed(
            recorded,
            Finished(
                outcome=action.outcome if action.outcome in ("timeout", "interrupted") else outcome,  # type: ignore[arg-type]
                exit_status=action.exit_status,
                started=clock.now_text(),
                duration_s=0.0,
                message=action.message,
            ),
        )

    def _copy(self, path: Path) -> None:
        name = path.relative_to(self.target).as_posix()
        if packing.exists(self.source, name):
            packing.copy_out(self.source, name, self.target)


@dataclasses.dataclass
class _Replayed:
    command: Command
    finished: Finished

    def wait(self, on_output: Callable[[str], object] | None = None) -> Finished:  # noqa: ARG002
        return self.finished


class Gate:
    """Holds a workload's process back between its imports and its first touch of the GPU.

    See ``fiprof.workloads.runner.await_gate``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "w")  # noqa: SIM115
        fcntl.flock(self._file, fcntl.LOCK_EX)

    @property
    def env(self) -> Mapping[str, str]:
        return {GATE_VARIABLE: str(self._path)}

    @property
    def is_open(self) -> bool:
        return self._file.closed

    def open(self) -> None:
        """Let the process through; further calls do nothing."""
        if not self.is_open:
            self._file.write(GATE_OPEN)
            self.close()

    def close(self) -> None:
        """Give up the gate; a process still waiting at it ends with an error unless it was opened."""
        self._file.close()


@contextlib.contextmanager
def gate(path: Path) -> Iterator[Gate]:
    """A gate for the length of a block. path: the file that it takes, removed afterwards."""
    with file_errors(path):
        held = Gate(path)
    try:
        yield held
    finally:
        held.close()
        path.unlink(missing_ok=True)
