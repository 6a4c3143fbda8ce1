"""A run under way: starts its commands one by one and writes down how each ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fiprof.errors import FiprofError, Interrupted
from fiprof.files import file_errors
from fiprof.model.manifest import Action
from fiprof.orchestrator.archive import Journal, file_entry
from fiprof.orchestrator.execute import Executor, Started
from fiprof.orchestrator.process import TOKEN_VARIABLE, Command, Finished
from fiprof.orchestrator.progress import Progress
from fiprof.workloads.runner import GATE_VARIABLE

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
