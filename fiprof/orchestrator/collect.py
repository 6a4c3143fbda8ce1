"""Collecting a run: plain run, nsys, ncu, exports, tables."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.errors import FiprofError, Interrupted
from fiprof.model.layout import BASELINE, NCU_CASES, NSYS_CASES, TABLES
from fiprof.model.manifest import CaseEntry, read_manifest
from fiprof.model.records import case_errors
from fiprof.model.settings import from_manifest, recorded
from fiprof.orchestrator import ncu, nsys, parse, steps
from fiprof.orchestrator.archive import Archive, Journal
from fiprof.orchestrator.environment import run_environment, workload_environment
from fiprof.orchestrator.locks import gpu_lock
from fiprof.orchestrator.process import Supervisor, end_orphans
from fiprof.orchestrator.program import collect_facts
from fiprof.orchestrator.request import CollectRequest
from fiprof.orchestrator.run_session import (
    Executor,
    Progress,
    Replay,
    Result,
    Session,
    Started,
    UnderWay,
    gate,
    read_log,
)
from fiprof.orchestrator.tools import Tool, count_gpus, counters_permitted, find_tool, gpu_state, visible_gpu

if TYPE_CHECKING:
    from fiprof.parsers.nsys import NsysSummary


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
    executor: Executor,
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
        environment={**run_environment(tools, collect_facts(request.cases)), "gpu_state": {"before": before}},
    )
    journal.save()
    if request.gpu_metrics_hz and counters_permitted() is False:
        journal.warn("no GPU metrics under nsys: this user may not read the GPU's counters")
        request = dataclasses.replace(request, gpu_metrics_hz=0)
    return Collection(request, Session(folder.path, executor, journal, progress), tools)


def replay(source: Path, archive: Archive, progress: Progress, supervisor: Supervisor) -> Result:
    """The same pipeline over an archived run's raw files, into a new run folder.

    supervisor: told to stop, it ends the replay at its next step.
    Raises FiprofError when the source is no run.
    """
    archived = read_manifest(source)
    if archived.imported:
        raise FiprofError(f"{source} was imported: no commands made it", f"fiprof parse {source} reads it again")
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
    session = Session(folder.path, Replay(source, folder.path, supervisor), journal, progress)
    collection = Collection(request, session, {})
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


class Collection(UnderWay):
    """A collect under way: call :meth:`measure`, then :meth:`conclude`."""

    def __init__(self, request: CollectRequest, session: Session, tools: dict[str, Tool]) -> None:
        super().__init__(session)
        self._commands = steps.Commands(request, session.path, tools.get("nsys"), tools.get("ncu"))
        self._traced: Future[int] | None = None
        self._started = False
        self._profiled = False

    def measure(self) -> None:
        """What needs the GPU: plain, then nsys, then ncu, one at a time.

        ncu's workload imports while nsys measures; nsys's report is exported and its tables are made while ncu does.
        """
        session, request = self.session, self._commands.request
        with self.ending_in_order(), self.collecting():
            with gate(session.path / "logs" / ".gate") as held:
                _plain(session, self._commands)
                self._started = True
                self._leave_out(BASELINE)
                profiling = None
                if "ncu" in request.tools:
                    profiling = session.executor.start(self._commands.profile(held.env))
                if "nsys" in request.tools:
                    with self.collecting():
                        _trace(session, self._commands)
                        self._traced = self._pool.submit(self._trace_tables)
                if profiling is not None:
                    held.open()
                    with self.collecting():
                        _profile(session, profiling, self._traced, request.measure_iterations)
                        self._profiled = True
            if "nsys" in request.tools:
                self._leave_out(NSYS_CASES)
            if "ncu" in request.tools:
                self._leave_out(NCU_CASES)
            self.note_gpu()

    def conclude(self, supervisor: Supervisor | None = None) -> Result:
        """What needs no GPU: exports, tables, the run's checks, its manifest and name.

        supervisor: who may stop it, where that is another than who may stop the measuring.
        """
        session = self.session
        if supervisor is not None:
            session.executor = supervisor
        with self.ending_in_order():
            if self._profiled:
                with self.collecting():
                    self.profile_tables(map(self._commands.page, steps.pages(self._commands.request)))
            if self._traced is not None:
                with self.collecting():
                    self._traced.result()
            self.check(started=self._started)
        return self.finish()

    def _trace_tables(self) -> int:
        return _check_trace(self.session, self.trace_tables(self._commands.trace_export()))

    def _leave_out(self, results: str) -> None:
        """Name the cases that failed by themselves, and leave them out of what follows."""
        if not self._commands.request.keep_going:
            return
        errors = case_errors(self.session.path / results)
        for case, error in errors.items():
            self.session.journal.warn(f"{case} failed ({results}): {error}")
        self._commands = self._commands.without(errors)


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
    hz = commands.request.gpu_metrics_hz
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


def _check_trace(session: Session, summary: NsysSummary) -> int:
    """Hold the trace against what it is for. Returns the kernels that one iteration of every case launched."""
    contents = parse.trace_contents(session.path / TABLES)
    environment = session.journal.manifest.environment
    nsys.check_contents(
        kernels=contents.kernels,
        ranges=contents.fiprof_ranges,
        open_ranges=contents.open_ranges,
        nvtx_incompatible=summary.nvtx_incompatible,
        nsys=str(environment.get("tools", {}).get("nsys", "")),
        nvtx=str(environment.get("packages", {}).get("nvtx", "")),
    )
    return contents.kernels_once


def _profile(session: Session, profiling: Started, traced: Future[int] | None, iterations: int) -> None:
    """Wait for ncu, telling how many of the launches that nsys counted are through, and how long the others take."""
    begin: float | None = None

    def text(at: ncu.Progress) -> str:
        nonlocal begin
        begin = begin or time.monotonic()
        if traced is None or not traced.done() or traced.exception():
            return f"kernel {at.number} {at.kernel} {at.percent} %"
        total, done = traced.result() * iterations, at.number - 1
        left = f", {(time.monotonic() - begin) / done * (total - done):.0f} s left" if done else ""
        return f"kernel {at.number} of {total} {at.kernel} {at.percent} %{left}"

    def watch(tail: str) -> None:
        at = ncu.progress(tail)
        session.progress.detail("ncu", text(at) if at else steps.watch_workload(tail))

    with session.progress.step("ncu"):
        session.finish(profiling, steps.check_profile(session.path), watch)


def _watch(session: Session, step: str) -> Callable[[str], None]:
    return lambda tail: session.progress.detail(step, steps.watch_workload(tail))
