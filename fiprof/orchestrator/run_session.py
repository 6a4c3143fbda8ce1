"""A run while it is made: its commands, how each ended, its tables, and how the run ended.

Commands run on this machine (:class:`~fiprof.orchestrator.process.Supervisor`), or an archived run stands in for it
(:class:`Replay`). Whatever happens, the folder gets its name and a manifest that says how the run ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fiprof import clock
from fiprof.errors import FiprofError, Interrupted
from fiprof.files import file_errors
from fiprof.model import layout, packing, tables
from fiprof.model.manifest import Action, CaseEntry, Outcome, Status, read_manifest
from fiprof.model.redaction import mask_file
from fiprof.orchestrator import parse
from fiprof.orchestrator.index import share
from fiprof.orchestrator.locks import gpu_lock
from fiprof.orchestrator.nsys import last_line
from fiprof.orchestrator.process import TOKEN_VARIABLE, Finished, Process, Supervisor, ToolCommand, end_orphans
from fiprof.orchestrator.run_folder import Archive, RunFolder, file_entry
from fiprof.orchestrator.tools import gpu_state
from fiprof.workloads.runner import GATE_OPEN, GATE_VARIABLE

if TYPE_CHECKING:
    from fiprof.parsers.nsys import NsysSummary

EXPORTS_AT_ONCE = 4  # of ncu's pages


class Progress(Protocol):
    """Shows what is going on; called from several threads at once."""

    def step(self, name: str, /) -> AbstractContextManager[None]:  # noqa: ARG002
        """A step for the length of a block; several may be under way at once."""
        return contextlib.nullcontext()

    def detail(self, name: str, text: str, /) -> None:
        """How far the step is."""

    def say(self, text: str, /) -> None:
        """A line that stays on the screen."""

    def without_lines(self) -> Progress:
        """The same without lines that stay, for work that its caller sums up."""
        return self


class Silent(Progress):
    """Shows nothing."""

    def detail(self, *_: str) -> None: ...

    def say(self, *_: str) -> None: ...


@dataclass(frozen=True)
class Bench:
    """What runs are measured with."""

    archive: Archive  # where the runs go
    progress: Progress = field(default_factory=Silent)
    executor: Supervisor = field(default_factory=Supervisor)  # runs the commands
    wait: bool = True  # whether to wait while another fiprof has the GPU, instead of failing

    @contextlib.contextmanager
    def holding(self, *gpus: str) -> Iterator[None]:
        """Hold the locks of GPUs around a block; what killed fiprofs left running is ended before it.

        Raises FiprofError where another fiprof has one and is not waited for, and Interrupted.
        """
        with contextlib.ExitStack() as locks:
            # In one order, so that no two wait for each other.
            for gpu in sorted(gpus):
                locks.enter_context(self.holding_one(gpu))
            yield

    @contextlib.contextmanager
    def holding_one(self, *gpus: str) -> Iterator[str]:
        """Hold the lock of the first of these GPUs that is free, likewise. Gives that GPU."""
        with gpu_lock(*gpus, wait=self.wait, waiting=self.progress.say, stopping=self.executor.stopping) as gpu:
            for process in end_orphans():
                self.progress.say(f"ended what a killed fiprof had left running: {process}")
            yield gpu


class Replay(Supervisor):
    """Stands in for the machine: a command makes what the same step of an archived run made."""

    def __init__(self, source: Path, target: Path, stopping: threading.Event) -> None:
        super().__init__(stopping=stopping)
        self.source = source
        self.target = target
        self.manifest = read_manifest(source)

    def start(self, command: ToolCommand) -> Process:
        """Raises FiprofError for a step that the archived run does not have, or whose files were changed since."""
        if self.stopping.is_set():
            raise Interrupted
        # The last of its name: a step may have been repeated.
        action = next((action for action in reversed(self.manifest.actions) if action.step == command.step), None)
        if action is None:
            steps = ", ".join(each.step for each in self.manifest.actions) or "none"
            what = f"{self.source} has no step {command.step}"
            raise FiprofError(what, f"it has {steps}; choose with --tool")
        for path in (command.log, *command.files):
            name = path.relative_to(self.target).as_posix()
            if packing.exists(self.source, name):
                packing.copy_out(self.source, name, self.target)
                if path == command.log:
                    mask_file(self.target, name)
        for entry in action.files:
            if not packing.exists(self.source, entry.path):
                if entry.private:  # left out of what was handed on; nothing is parsed from it
                    continue
                pruned = [each.when[:10] for each in self.manifest.pruned if each.path == entry.path]
                what = f"{self.source} has no {entry.path}, which its run made"
                remedy = "a replay needs all raw files; fiprof show, stalls and report read what is there"
                raise FiprofError(what + (f": it was pruned on {pruned[0]}" if pruned else ""), remedy)
            copied = self.target / entry.path
            if copied.exists() and file_entry(self.target, copied).sha256 != entry.sha256:
                what = f"{self.source / entry.path} is not the file that its run made: the checksum in run.json differs"
                raise FiprofError(what, "it was changed or damaged after the run; fiprof parse reads it as it is")
        outcome: Outcome = "failed" if action.exit_status else "ok"
        if action.outcome in ("timeout", "interrupted"):
            outcome = action.outcome
        finished = Finished(outcome, action.exit_status, clock.now_text(), 0.0, action.message)
        return _Replayed(dataclasses.replace(command, argv=tuple(action.argv), env=dict(action.env)), finished)


class _Replayed(Process):
    """A command that an archived run has run."""

    def __init__(self, command: ToolCommand, finished: Finished) -> None:
        self.command, self.finished = command, finished

    def wait(self, on_output: Callable[[str], object] | None = None) -> Finished:  # noqa: ARG002
        return self.finished


@contextlib.contextmanager
def gated(path: Path) -> Iterator[Callable[[], None]]:
    """Hold a workload's process back between its imports and its first use of the GPU, for the length of a block; gives
    a function that lets it through. A process that still waits at the end of the block ends with an error.

    path: the file whose lock the process waits for, see ``fiprof.workloads.runner.await_gate``.
    """
    with file_errors(path):
        file = open(path, "w")  # noqa: SIM115 - closed when the process is let through
        fcntl.flock(file, fcntl.LOCK_EX)

    def let_through() -> None:
        if not file.closed:
            file.write(GATE_OPEN)
            file.close()

    try:
        yield let_through
    finally:
        file.close()
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class FinishedRun:
    """A finished run."""

    path: Path
    status: Status
    problem: FiprofError | None  # the first thing that went wrong; None for a complete run


class RunSession:
    """A run while it is made, and what went wrong so far."""

    def __init__(self, folder: RunFolder, bench: Bench) -> None:
        self.folder = folder
        self.path = folder.path
        self.tables = folder.path / layout.TABLES
        self.executor = bench.executor
        self.progress = bench.progress
        self._pool = ThreadPoolExecutor(EXPORTS_AT_ONCE)
        self._problems: list[FiprofError] = []

    @property
    def problem(self) -> FiprofError | None:
        return self._problems[0] if self._problems else None

    @property
    def interrupted(self) -> bool:
        return any(isinstance(problem, Interrupted) for problem in self._problems)

    def warn(self, sentence: str) -> None:
        self.folder.warn(sentence)
        self.progress.say(f"note: {sentence}")

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Note a step's failure and go on with the next."""
        try:
            yield
        except FiprofError as error:
            self._problems.append(error)

    @contextlib.contextmanager
    def ending_in_order(self) -> Iterator[None]:
        """Finish the run also when something other than a step's failure ends fiprof."""
        try:
            yield
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            self._problems.append(Interrupted() if stopped else FiprofError(f"fiprof failed: {error!r}"))
            self.finish()
            raise

    @contextlib.contextmanager
    def run(self, command: ToolCommand, watch: Callable[[str], object] | None = None) -> Iterator[tuple[Finished, str]]:
        """Run a command to its end. The block, given how it ended and its log, raises FiprofError where it failed; the
        action is added to the manifest in any case.

        watch: called with the log's last lines a few times a second; returns True to have the command ended.
        Raises FiprofError where it failed, ran out of time or could not be started, and Interrupted.
        """
        with self.progress.step(command.step), self.ended(self.executor.start(command), watch) as ended:
            yield ended

    @contextlib.contextmanager
    def ended(self, started: Process, watch: Callable[[str], object] | None = None) -> Iterator[tuple[Finished, str]]:
        """As :meth:`run`, for a command that has been started already."""
        finished, command = started.wait(watch), started.command
        log = command.log.relative_to(self.path)
        for process in finished.left:
            self.folder.warn(f"{command.step} left a process running, which was ended: {process}")
        problem: FiprofError | None = None
        try:
            for path in command.files:
                if path.suffix == ".jsonl" and path.exists():
                    with file_errors(path):
                        mask_file(path.parent, path.name)
            if finished.outcome == "interrupted":
                raise Interrupted
            if finished.outcome == "timeout" and not command.keeps_at_limit:
                raise FiprofError(f"{command.step}: {finished.message}", f"see {log}; --timeout gives it longer")
            if finished.exit_status is None:
                raise FiprofError(f"{command.step}: {finished.message}", "fiprof env shows what is installed")
            yield finished, read_log(command.log)
        except FiprofError as error:
            problem = error
            raise
        finally:
            internal = (TOKEN_VARIABLE, GATE_VARIABLE)
            with file_errors(self.path):
                self.folder.add(
                    Action(
                        step=command.step,
                        argv=list(command.argv),
                        env={name: value for name, value in command.env.items() if name not in internal},
                        started=finished.started,
                        duration_s=round(finished.duration_s, 3),
                        exit_status=finished.exit_status,
                        outcome="failed" if problem and finished.outcome == "ok" else finished.outcome,
                        log=str(log),
                        message=problem.message if problem else "",
                        remedy=problem.remedy if problem else "",
                        files=[file_entry(self.path, path) for path in command.files if path.exists()],
                    )
                )

    def export(self, command: ToolCommand) -> None:
        """Have a tool export a report, and take secrets out of the file (:meth:`scrub`).

        Raises as :meth:`run`, and FiprofError where the file is missing or empty.
        """
        (file,) = command.files
        with self.run(command) as (finished, log):
            printed = ""
            if file.suffix == ".csv" and file.exists():
                with open(file, errors="replace") as page:
                    printed = page.read(2000)
            errors = re.findall(r"==ERROR== (.*)", log + printed)
            if finished.outcome != "ok" or errors or not file.exists() or not file.stat().st_size:
                why, remedy = (errors[-1], "") if errors else (last_line(log), "is the disk full?")
                raise FiprofError(f"{file.name} was not exported: {why}", remedy)
            if self.scrub(file):
                self.folder.keep_private(command.argv)

    def scrub(self, file: Path) -> bool:
        """Take secrets out of a tool's file, and out of an SQLite also the environments and processes that it records.

        Returns whether a page of ncu had secrets. Raises FiprofError where that fails; the file is removed then.
        """
        from fiprof.parsers.ncu_pages import scrub_page
        from fiprof.parsers.nsys_scrub import scrub

        try:
            if file.suffix == ".sqlite":
                scrub(file)
            return file.suffix == ".csv" and scrub_page(file, file.stem.partition("-")[0])
        except FiprofError:
            file.unlink()
            raise

    def trace_tables(self, export: ToolCommand | None = None) -> NsysSummary:
        """Make nsys's tables. export: of its report, where there is no SQLite yet."""
        if export is not None:
            self.export(export)
        with self.progress.step("nsys tables"):
            summary = parse.parse_nsys(self.path, self.tables)
        self.folder.note(missing=map(self.folder.settled, summary.missing))
        for sentence in summary.warnings:
            self.warn(sentence)
        # What fiprof's own workload process notes of the GPU says more.
        if "gpu" not in self.folder.manifest.environment and (gpu := self.traced_gpu()):
            self.folder.note(environment={"gpu": gpu})
        return summary

    def traced_gpu(self) -> dict[str, Any]:
        """Name and UUID of the first GPU that ran kernels; empty where the trace has none."""
        first = tables.read(self.tables, "processes", ["gpu", "uuid"]).slice(0, 1).to_pylist()
        return {"name": first[0]["gpu"], "uuid": first[0]["uuid"]} if first else {}

    def profile_tables(self, pages: Iterable[ToolCommand] = ()) -> None:
        """Make ncu's tables. pages: exports to run before, at the same time."""
        for done in [self._pool.submit(self.export, page) for page in pages]:
            done.result()
        with self.progress.step("ncu tables"):
            self.folder.note(missing=map(self.folder.settled, parse.parse_ncu(self.path, self.tables)))

    def declare_cases(self) -> None:
        """Make a case, without costs, of each declared range that kernels were launched in; warn of the others."""
        ids = set()
        for table in ("kernels", "launches"):
            if tables.table_path(self.tables, table).exists():
                ids |= set(tables.read(self.tables, table, ["case"])["case"].unique().to_pylist())
        # With secrets masked, as in the tables.
        declared = parse.declared_ranges(self.path)
        self.folder.set(cases=[CaseEntry(name, name, {}, 0, 0, 0) for name in declared if name in ids])
        for name in declared:
            if name not in ids:
                self.warn(f"no kernel was launched in an NVTX range {name}")

    def note_gpu(self) -> None:
        """Note the GPU's state after the measuring, for the checks."""
        manifest = self.folder.manifest
        before = manifest.environment.get("gpu_state", {}).get("before", {})
        if before and manifest.replayed_from is None:
            self.folder.note(environment={"gpu_state": {"before": before, "after": gpu_state(str(before["uuid"]))}})

    def check(self) -> None:
        """Make the run's checks of its own numbers, unless it was interrupted or has no tables."""
        # While tables are made no process runs whose end would tell of a Ctrl-C.
        if self.executor.stopping.is_set() and not self.interrupted:
            self._problems.append(Interrupted())
        if not self.interrupted and ((self.path / layout.BASELINE).exists() or any(self.tables.iterdir())):
            with self.collecting(), self.progress.step("checks"):
                self.folder.save()
                parse.parse_checks(self.path, self.tables)

    def finish(self) -> FinishedRun:
        """Pack the run's files, write its manifest, give the folder its name, and share it with the catalogue."""
        self._pool.shutdown()
        status: Status = "interrupted" if self.interrupted else "failed" if self._problems else "complete"
        stopped = (problem for problem in self._problems if isinstance(problem, Interrupted))
        problem = next(stopped, self.problem)
        try:
            if status != "interrupted":
                self.pack()
        finally:
            path = self.folder.finish(status, problem.message if problem else "")
        try:
            share(path, self.progress.say)
        except FiprofError as error:
            self.progress.say(f"note: {error.message}")
        if problem is not None:
            problem.message, problem.remedy = map(self.folder.settled, (problem.message, problem.remedy))
        return FinishedRun(path, status, problem)

    def pack(self) -> None:
        """Compress the raw files; those that cannot be stay as they are, for ``fiprof pack`` to try again."""
        with self.progress.step("pack"), contextlib.suppress(FiprofError):
            self.folder.save()
            self.compress()

    def compress(self, within: str = "") -> None:
        """Compress the raw files that the manifest names by now. within: only those in this folder."""
        with contextlib.suppress(FiprofError):
            packing.pack(self.path, stopped=self.executor.stopping.is_set, within=within)


def read_log(path: Path) -> str:
    """A log's text, of bounded length (:class:`~fiprof.orchestrator.process.Relay`); empty where there is none."""
    return path.read_bytes().decode(errors="replace") if path.exists() else ""


def require_success(what: str, finished: Finished, log: str) -> None:
    """Raise FiprofError for a workload that failed, with the runner's own error, else the last line of its log."""
    if finished.outcome == "ok":
        return
    errors = re.findall(r"^fiprof: error: (.*)\n(?:  (.*))?", log + "\n", re.MULTILINE)
    if errors:
        raise FiprofError(f"{what}: {errors[-1][0]}", errors[-1][1])
    step = re.findall(r"^fiprof: (\w+ \d+/\d+ \S+)", log, re.MULTILINE)
    where = f" during {step[-1]}" if step else ""
    raise FiprofError(f"{what} {finished.message}{where}: {last_line(log)}", "its whole output stands in the log")
