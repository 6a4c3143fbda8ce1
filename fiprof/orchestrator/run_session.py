"""A run under way: who runs its commands, how each ended, and its end.

Commands run on this machine (:class:`~fiprof.orchestrator.process.Supervisor`) or are stood in for by an archived run
(:class:`Replay`). Whatever happens, the folder gets its name and a manifest that says how the run ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fiprof import clock
from fiprof.errors import FiprofError, Interrupted
from fiprof.files import file_errors
from fiprof.model import packing, tables
from fiprof.model.layout import TABLES
from fiprof.model.manifest import Action, CaseEntry, Manifest, Status, read_manifest
from fiprof.orchestrator import parse, steps
from fiprof.orchestrator.archive import Journal, file_entry
from fiprof.orchestrator.index import share
from fiprof.orchestrator.process import TOKEN_VARIABLE, Command, Finished, Supervisor
from fiprof.orchestrator.tools import gpu_state
from fiprof.workloads.runner import GATE_OPEN, GATE_VARIABLE

if TYPE_CHECKING:
    from fiprof.parsers.nsys import NsysSummary


class Progress(Protocol):
    """Told what is going on; may be told from several threads at once."""

    def step(self, name: str, /) -> AbstractContextManager[None]:
        """A step for the length of a block; several may be under way at once."""

    def detail(self, name: str, text: str, /) -> None:
        """What the step is at just now."""

    def say(self, text: str, /) -> None:
        """A line that stays."""

    def without_lines(self) -> Progress:
        """The same, for work that says nothing to stay: whoever started it sums it up."""


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

    def open(self) -> None:
        """Let the process through."""
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


INTERNAL_VARIABLES = frozenset({TOKEN_VARIABLE, GATE_VARIABLE})

LOG_END_BYTES = 1 << 20

Check = Callable[[Finished, str], None]
"""Raises FiprofError when a finished command did not do what it should; takes how it ended and its log."""


@dataclass
class Session:
    """What the steps of one run share."""

    path: Path
    """The run folder while it is being filled."""
    executor: Executor
    journal: Journal
    progress: Progress

    def run(self, command: Command, check: Check, watch: Callable[[str], object] | None = None) -> None:
        """Start a command, wait for its end, judge it and write it down.

        watch: given the log's last lines a few times a second; returns True to have the command ended.
        Raises FiprofError when it failed, ran out of time or was interrupted; it is in the manifest all the same.
        """
        with self.progress.step(command.step):
            self.finish(self.executor.start(command), check, watch)

    def finish(self, started: Started, check: Check, watch: Callable[[str], object] | None = None) -> None:
        """As :meth:`run`, for a command that was started before."""
        finished = started.wait(watch)
        for process in finished.left:
            self.journal.warn(f"{started.command.step} left a process running, which was ended: {process}")
        problem: FiprofError | None = None
        try:
            self._judge(started.command, finished, check)
        except FiprofError as error:
            problem = error
        with file_errors(self.path):
            self.journal.add(self._action(started.command, finished, problem))
        if problem is not None:
            raise problem

    def _judge(self, command: Command, finished: Finished, check: Check) -> None:
        if finished.outcome == "interrupted":
            raise Interrupted
        if finished.outcome == "timeout" and not command.keeps_at_limit:
            raise FiprofError(
                f"{command.step}: {finished.message}",
                f"see {command.log.relative_to(self.path)}; --timeout gives it longer",
            )
        if finished.exit_status is None:
            raise FiprofError(f"{command.step}: {finished.message}", "fiprof env shows what is installed")
        check(finished, read_log(command.log))

    def _action(self, command: Command, finished: Finished, problem: FiprofError | None) -> Action:
        outcome = finished.outcome
        if problem is not None and outcome == "ok":
            outcome = "failed"
        return Action(
            step=command.step,
            argv=list(command.argv),
            env={name: value for name, value in command.env.items() if name not in INTERNAL_VARIABLES},
            started=finished.started,
            duration_s=round(finished.duration_s, 3),
            exit_status=finished.exit_status,
            outcome=outcome,
            log=str(command.log.relative_to(self.path)),
            message=problem.message if problem else "",
            remedy=problem.remedy if problem else "",
            files=[
                file_entry(self.path, path)
                for path in (*command.makes, *([command.stdout] if command.stdout else []))
                if path.exists()
            ],
        )


def read_log(path: Path) -> str:
    """A log's text; empty where there is none. What is not UTF-8 is replaced.

    Of a log that is longer than twice LOG_END_BYTES the begin and the end: a workload may print gigabytes, and the
    tools say at either end what went wrong.
    """
    if not path.exists():
        return ""
    with open(path, "rb") as log:
        text = log.read(2 * LOG_END_BYTES)
        if os.fstat(log.fileno()).st_size > len(text):
            log.seek(-LOG_END_BYTES, os.SEEK_END)
            text = text[:LOG_END_BYTES] + b"\n" + log.read(LOG_END_BYTES)
    return text.decode("utf-8", "replace")


EXPORTS_AT_ONCE = 4


@dataclass(frozen=True)
class Result:
    """A finished run."""

    path: Path
    """The run folder."""
    status: Status
    problem: FiprofError | None
    """The first thing that went wrong; None for a complete run."""


class UnderWay:
    """A run that is being made, with what went wrong so far."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._pool = ThreadPoolExecutor(EXPORTS_AT_ONCE)
        self._problems: list[FiprofError] = []

    @property
    def problem(self) -> FiprofError | None:
        """The first thing that went wrong so far."""
        return self._problems[0] if self._problems else None

    @property
    def interrupted(self) -> bool:
        return any(isinstance(problem, Interrupted) for problem in self._problems)

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Note a step's failure and go on with the next."""
        try:
            yield
        except FiprofError as error:
            self._problems.append(error)

    @contextlib.contextmanager
    def ending_in_order(self) -> Iterator[None]:
        """Give the run its end when something that is no step's failure ends fiprof."""
        try:
            yield
        except KeyboardInterrupt:
            self._problems.append(Interrupted())
            self._finish("interrupted")
            raise
        except BaseException as error:
            self._problems.append(FiprofError(f"fiprof failed: {error!r}"))
            self._finish("failed")
            raise

    def trace_tables(self, export: Command) -> NsysSummary:
        """Export nsys's report and parse it."""
        session = self.session
        session.run(export, steps.check_trace_export(export.makes[0]))
        with session.progress.step("nsys tables"):
            summary = parse.parse_nsys(session.path, session.path / TABLES)
        session.journal.note_missing(summary.missing)
        for sentence in summary.warnings:
            session.journal.warn(sentence)
        # A collect's own process says more of it.
        if "gpu" not in session.journal.manifest.environment and (gpu := parse.traced_gpu(session.path / TABLES)):
            session.journal.note_environment({"gpu": gpu})
        return summary

    def profile_tables(self, pages: Iterable[Command]) -> None:
        """Export ncu's pages side by side, then parse them."""
        session = self.session

        def export(command: Command) -> None:
            assert command.stdout is not None
            session.run(command, steps.check_made(command.stdout))

        for done in [self._pool.submit(export, page) for page in pages]:
            done.result()
        with session.progress.step("ncu tables"):
            session.journal.note_missing(parse.parse_ncu(session.path, session.path / TABLES).missing)

    def declare_cases(self) -> None:
        """Make cases, without costs, of those declared ranges that kernels were launched in; name the others."""
        session, found = self.session, set()
        for table in ("kernels", "launches"):
            if tables.table_path(session.path / TABLES, table).exists():
                found |= set(tables.read(session.path / TABLES, table, ["case"])["case"].unique().to_pylist())
        declared = session.journal.manifest.ranges
        session.journal.set(cases=[CaseEntry(name, name, {}, 0, 0, 0) for name in declared if name in found])
        for name in declared:
            if name not in found:
                sentence = f"no kernel was launched in an NVTX range {name}"
                session.journal.warn(sentence)
                session.progress.say(f"note: {sentence}")

    def note_gpu(self) -> None:
        """Note the GPU's state after the measuring, for the checks."""
        journal = self.session.journal
        before = journal.manifest.environment.get("gpu_state", {}).get("before", {})
        if before and journal.manifest.replayed_from is None:
            journal.note_environment({"gpu_state": {"before": before, "after": gpu_state(str(before["uuid"]))}})

    def check(self, *, started: bool) -> None:
        """The run's checks on its own numbers, unless it was interrupted. started: whether it came as far as that."""
        session = self.session
        # Making tables starts no process that a Ctrl-C would have ended.
        if session.executor.stopping.is_set() and not self.interrupted:
            self._problems.append(Interrupted())
        if not self.interrupted and started:
            with self.collecting(), session.progress.step("checks"):
                session.journal.save()
                parse.parse_checks(session.path, session.path / TABLES)

    def finish(self) -> Result:
        """Give the run its manifest and its name."""
        return self._finish("interrupted" if self.interrupted else "failed" if self._problems else "complete")

    def _finish(self, status: Status) -> Result:
        self._pool.shutdown()
        problems = self._problems
        problem = next((p for p in problems if isinstance(p, Interrupted)), problems[0] if problems else None)
        journal = self.session.journal
        try:
            if status != "interrupted":
                self._pack()
        finally:
            path = journal.finish(status, problem.message if problem else "")
        try:
            share(path)
        except FiprofError as error:
            self.session.progress.say(f"note: {error.message}")
        if problem is not None:
            settled = journal.folder.settled
            problem.message, problem.remedy = settled(problem.message), settled(problem.remedy)
        return Result(path, status, problem)

    def _pack(self) -> None:
        """Compress the raw files; what cannot be stays as it is, and ``fiprof pack`` tries again."""
        session = self.session
        with session.progress.step("pack"), contextlib.suppress(FiprofError):
            session.journal.save()
            packing.pack(session.path, stopped=session.executor.stopping.is_set)
