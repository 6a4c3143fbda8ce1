"""Collecting a run: plain run, nsys, ncu, exports, tables."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from fiprof.errors import FiprofError, Interrupted
from fiprof.model.layout import BASELINE, NCU_CASES, NSYS_CASES, TABLES, Page
from fiprof.model.manifest import CaseEntry, Status, read_manifest
from fiprof.model.records import case_errors
from fiprof.model.settings import from_manifest, recorded
from fiprof.orchestrator import ncu, nsys, parse, steps
from fiprof.orchestrator.archive import Archive, Journal
from fiprof.orchestrator.environment import run_environment, workload_environment
from fiprof.orchestrator.execute import Replay, Started, gate
from fiprof.orchestrator.gpu import count_gpus, gpu_state, visible_gpu
from fiprof.orchestrator.locks import gpu_lock
from fiprof.orchestrator.process import Supervisor, end_orphans
from fiprof.orchestrator.progress import Progress
from fiprof.orchestrator.request import CollectRequest
from fiprof.orchestrator.session import Session, read_log
from fiprof.orchestrator.tools import Tool, counters_permitted, find_tool

EXPORTS_AT_ONCE = 4


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished collect."""

    path: Path
    """The run folder."""
    status: Status
    problem: FiprofError | None
    """The first thing that went wrong; None for a complete run."""


def collect(
    request: CollectRequest, archive: Archive, progress: Progress, supervisor: Supervisor, *, wait: bool = True
) -> Result:
    """Collect a run on this machine.

    wait: wait for another collect on the same GPU to end, instead of failing.
    Raises FiprofError before anything is made when a tool is missing, the counters are not permitted or the GPU is
    taken; what goes wrong later stands in the result and in the manifest.
    """
    tools = require_tools(request)
    gpu = visible_gpu(request.gpu)
    with gpu_lock(gpu, wait=wait, waiting=progress.say, stopping=supervisor.stopping):
        for process in end_orphans():
            progress.say(f"ended what a killed fiprof had left running: {process}")
        collection = start(request, tools, gpu, archive, progress, supervisor)
        collection.measure()
        return collection.conclude()


def require_tools(request: CollectRequest) -> dict[str, Tool]:
    """The profilers that a request needs. Raises FiprofError when one is missing or may not read the counters."""
    tools = _find_tools(request)
    if "ncu" in tools and counters_permitted() is False:
        raise FiprofError(
            "ncu may not read the GPU's counters here (RmProfilingAdminOnly is 1)",
            f"{ncu.PERMISSION_REMEDY}; --tool nsys collects without them",
        )
    return tools


def start(
    request: CollectRequest,
    tools: dict[str, Tool],
    gpu: str,
    archive: Archive,
    progress: Progress,
    supervisor: Supervisor,
) -> Collection:
    """A run in a new folder of the archive, with nothing measured yet. The caller holds the lock of the GPU.

    Raises FiprofError where a cost model fails or the folder cannot be made.
    """
    before = gpu_state(gpu)
    cases = case_entries(request)
    folder = archive.create(request.label)
    journal = Journal(folder)
    journal.set(
        cases=cases,
        settings=recorded(request),
        environment={**run_environment(tools), "gpu_state": {"before": before}},
    )
    journal.save()
    if request.gpu_metrics_hz and counters_permitted() is False:
        journal.warn("no GPU metrics under nsys: this user may not read the GPU's counters")
        request = dataclasses.replace(request, gpu_metrics_hz=0)
    return Collection(Session(request, folder.path, supervisor, journal, progress), tools)


def replay(source: Path, archive: Archive, progress: Progress, supervisor: Supervisor) -> Result:
    """The same pipeline over an archived run's raw files, into a new run folder.

    supervisor: told to stop, it ends the replay at its next step.
    Raises FiprofError when the source is no run.
    """
    archived = read_manifest(source)
    request = CollectRequest(cases=(), **vars(from_manifest(archived.settings)))
    folder = archive.create(archived.name.split("-", 2)[-1])
    journal = Journal(folder)
    journal.set(
        cases=archived.cases,
        settings=archived.settings,
        environment=archived.environment,
        replayed_from=archived.replayed_from or archived.name,
    )
    journal.save()
    collection = Collection(
        Session(request, folder.path, Replay(source, folder.path, supervisor), journal, progress), {}
    )
    collection.measure()
    return collection.conclude()


def case_entries(request: CollectRequest) -> list[CaseEntry]:
    """The cases with their cost models, for the manifest. Raises FiprofError where a cost model fails."""
    entries = []
    for case in request.cases:
        try:
            cost = case.build().cost()
        except Exception as error:
            raise FiprofError(
                f"the cost of {case.id} cannot be computed: {error!r}",
                "cost() uses the parameters alone: no torch, no GPU",
            ) from error
        entries.append(CaseEntry(case.id, case.workload, dict(case.params), **dataclasses.asdict(cost)))
    return entries


def _find_tools(request: CollectRequest) -> dict[str, Tool]:
    try:
        return {name: find_tool(name) for name in request.tools}
    except FiprofError as error:
        if count_gpus():
            raise
        raise FiprofError(
            f"no NVIDIA GPU on this machine, and {error.message}",
            "collect on a machine with one; fiprof collect --replay RUN re-reads an archived run here",
        ) from error


class Collection:
    """A run under way: call :meth:`measure`, then :meth:`conclude`.

    Whatever happens, the run folder gets its name and a manifest that says how the run ended.
    """

    def __init__(self, session: Session, tools: dict[str, Tool]) -> None:
        self.session = session
        self._commands = steps.Commands(session.request, session.path, tools.get("nsys"), tools.get("ncu"))
        self._pool = ThreadPoolExecutor(EXPORTS_AT_ONCE)
        self._problems: list[FiprofError] = []
        self._traced: Future[int] | None = None
        self._started = False
        self._profiled = False

    def measure(self) -> None:
        """What needs the GPU: plain, then nsys, then ncu.

        nsys's tables are made, and ncu imports, while the GPU is busy.
        """
        session, request = self.session, self.session.request
        with self._ending_in_order(), _collecting(self._problems):
            with gate(session.path / "logs" / ".gate") as held:
                _plain(session, self._commands)
                self._started = True
                self._leave_out(BASELINE)
                profiling = None
                if "ncu" in request.tools:
                    profiling = session.executor.start(self._commands.profile(held.env))
                if "nsys" in request.tools:
                    with _collecting(self._problems):
                        _trace(session, self._commands)
                        self._traced = self._pool.submit(_trace_tables, session, self._commands)
                if profiling is not None:
                    held.open()
                    with _collecting(self._problems):
                        _profile(session, profiling, self._traced)
                        self._profiled = True
            if "nsys" in request.tools:
                self._leave_out(NSYS_CASES)
            if "ncu" in request.tools:
                self._leave_out(NCU_CASES)
            if session.journal.manifest.replayed_from is None:
                _note_gpu_afterwards(session)

    def conclude(self, supervisor: Supervisor | None = None) -> Result:
        """What needs no GPU: exports, tables, the run's checks, its manifest and name.

        supervisor: who may stop it, where that is another than who may stop the measuring.
        """
        session = self.session
        if supervisor is not None:
            session.executor = supervisor
        with self._ending_in_order():
            if self._profiled:
                with _collecting(self._problems):
                    _profile_tables(session, self._commands, self._pool)
            if self._traced is not None:
                with _collecting(self._problems):
                    self._traced.result()
            # Making tables starts no process that a Ctrl-C would have ended.
            if session.executor.stopping.is_set() and not self._interrupted:
                self._problems.append(Interrupted())
            if not self._interrupted and self._started:
                with _collecting(self._problems), session.progress.step("checks"):
                    session.journal.save()
                    parse.parse_checks(session.path, session.path / TABLES)
        status: Status = "failed" if self._problems else "complete"
        return self._finish("interrupted" if self._interrupted else status)

    @property
    def problem(self) -> FiprofError | None:
        """The first thing that went wrong so far."""
        return self._problems[0] if self._problems else None

    @property
    def _interrupted(self) -> bool:
        return any(isinstance(problem, Interrupted) for problem in self._problems)

    def _leave_out(self, results: str) -> None:
        """Name the cases that failed by themselves, and leave them out of what follows."""
        if not self.session.request.keep_going:
            return
        errors = case_errors(self.session.path / results)
        for case, error in errors.items():
            self.session.journal.warn(f"{case} failed ({results}): {error}")
        self._commands = self._commands.without(errors)

    @contextlib.contextmanager
    def _ending_in_order(self) -> Iterator[None]:
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

    def _finish(self, status: Status) -> Result:
        self._pool.shutdown()
        problems = self._problems
        problem = next((p for p in problems if isinstance(p, Interrupted)), problems[0] if problems else None)
        journal = self.session.journal
        path = journal.finish(status, problem.message if problem else "")
        if problem is not None:
            settled = journal.folder.settled
            problem.message, problem.remedy = settled(problem.message), settled(problem.remedy)
        return Result(path, status, problem)


def _plain(session: Session, commands: steps.Commands) -> None:
    case_ids = [case.id for case in session.journal.manifest.cases]
    try:
        session.run(commands.plain(), steps.check_plain(session.path, case_ids), _watch(session, "plain"))
    finally:
        session.journal.note_environment(workload_environment(session.path / BASELINE))


def _trace(session: Session, commands: steps.Commands) -> None:
    """nsys; once more without the GPU metrics where they are refused."""
    replayed = session.journal.manifest.replayed_from is not None
    check, watch = steps.check_trace(session.path, replayed=replayed), _watch(session, "nsys")
    hz = session.request.gpu_metrics_hz
    try:
        session.run(commands.trace(hz), check, watch)
    except Interrupted:
        raise
    except FiprofError:
        log = read_log(session.path / "logs/nsys.log")
        if not hz or not nsys.gpu_metrics_refused(log):
            raise
        session.journal.warn(f"no GPU metrics: nsys refused them ({nsys.last_line(log)})")
        session.run(commands.trace(0), check, watch)


def _trace_tables(session: Session, commands: steps.Commands) -> int:
    """Export and parse nsys's report. Returns the kernels that one iteration of every case launched."""
    command = commands.trace_export()
    session.run(command, steps.check_trace_export(command.makes[0]))
    with session.progress.step("nsys tables"):
        summary = parse.parse_nsys(session.path, session.path / TABLES)
        contents = parse.trace_contents(session.path / TABLES)
    session.journal.note_missing(summary.missing)
    for sentence in summary.warnings:
        session.journal.warn(sentence)
    environment = session.journal.manifest.environment
    nsys.check_contents(
        kernels=contents.kernels,
        ranges=contents.fiprof_ranges,
        nvtx_incompatible=summary.nvtx_incompatible,
        nsys=str(environment.get("tools", {}).get("nsys", "")),
        nvtx=str(environment.get("packages", {}).get("nvtx", "")),
    )
    return contents.kernels_once


def _profile(session: Session, profiling: Started, traced: Future[int] | None) -> None:
    """Wait for ncu, telling how many of the launches that nsys counted are through, and how long the others take."""
    begin: float | None = None

    def text(at: ncu.Progress) -> str:
        nonlocal begin
        begin = begin or time.monotonic()
        if traced is None or not traced.done() or traced.exception():
            return f"kernel {at.number} {at.kernel} {at.percent} %"
        total, done = traced.result() * session.request.measure_iterations, at.number - 1
        left = f", {(time.monotonic() - begin) / done * (total - done):.0f} s left" if done else ""
        return f"kernel {at.number} of {total} {at.kernel} {at.percent} %{left}"

    def watch(tail: str) -> None:
        at = ncu.progress(tail)
        session.progress.detail("ncu", text(at) if at else steps.watch_workload(tail))

    with session.progress.step("ncu"):
        session.finish(profiling, steps.check_profile(session.path), watch)


def _profile_tables(session: Session, commands: steps.Commands, pool: ThreadPoolExecutor) -> None:
    """Export ncu's pages side by side, then parse them."""

    def export(page: Page) -> None:
        command = commands.page(page)
        assert command.stdout is not None
        session.run(command, steps.check_made(command.stdout))

    for done in [pool.submit(export, page) for page in steps.pages(session.request)]:
        done.result()
    with session.progress.step("ncu tables"):
        session.journal.note_missing(parse.parse_ncu(session.path, session.path / TABLES).missing)


def _note_gpu_afterwards(session: Session) -> None:
    """Note the GPU's state after the measuring, for the checks."""
    before = session.journal.manifest.environment.get("gpu_state", {}).get("before", {})
    if before:
        session.journal.note_environment({"gpu_state": {"before": before, "after": gpu_state(str(before["uuid"]))}})


def _watch(session: Session, step: str) -> Callable[[str], None]:
    return lambda tail: session.progress.detail(step, steps.watch_workload(tail))


@contextlib.contextmanager
def _collecting(problems: list[FiprofError]) -> Iterator[None]:
    """Note a step's failure and go on with the next."""
    try:
        yield
    except FiprofError as error:
        problems.append(error)
