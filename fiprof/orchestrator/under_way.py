"""A run under way: whatever happens, its folder gets its name and a manifest that says how the run ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.errors import FiprofError, Interrupted
from fiprof.model import packing, tables
from fiprof.model.layout import TABLES
from fiprof.model.manifest import CaseEntry, Status
from fiprof.orchestrator import parse, steps
from fiprof.orchestrator.gpu import gpu_state
from fiprof.orchestrator.index import share
from fiprof.orchestrator.process import Command
from fiprof.orchestrator.session import Session

if TYPE_CHECKING:
    from fiprof.parsers.nsys import NsysSummary

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
