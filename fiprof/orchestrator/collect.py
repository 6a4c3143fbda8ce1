"""Collecting a run: plain run, nsys, ncu, exports, tables."""

from __future__ import annotations

import dataclasses
import importlib
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import get_args

from fiprof.errors import FiprofError, Interrupted
from fiprof.model import layout
from fiprof.model.manifest import CaseEntry, case_errors, read_jsonl, read_manifest
from fiprof.model.redaction import mask
from fiprof.model.run import Run
from fiprof.model.settings import ToolName, from_manifest, recorded
from fiprof.orchestrator import ncu, nsys
from fiprof.orchestrator.commands import CollectCommands, CollectRequest
from fiprof.orchestrator.environment import collect_facts, run_environment
from fiprof.orchestrator.process import Process, Supervisor
from fiprof.orchestrator.run_folder import RunFolder
from fiprof.orchestrator.run_session import Bench, FinishedRun, Replay, RunSession, gated, read_log, require_success
from fiprof.orchestrator.tools import Tool, count_gpus, counters_permitted, find_profilers, visible_gpu
from fiprof.parsers.nsys import NsysSummary
from fiprof.workloads.nvtx import DOMAIN, MEASURE


def collect(request: CollectRequest, bench: Bench) -> FinishedRun:
    """Collect a run on this machine.

    Raises FiprofError before anything is made when a tool is missing, the counters are not permitted or the GPU is
    taken; what goes wrong later stands in the result and in the manifest.
    """
    with ThreadPoolExecutor() as pool:
        finding, gpu = pool.submit(require_tools, request), visible_gpu(request.gpu)
    tools = finding.result()
    with bench.holding(gpu):
        collection = start(request, tools, gpu, bench)
        collection.measure()
        return collection.conclude()


def require_tools(request: CollectRequest) -> dict[str, Tool]:
    """The profilers that a request needs. Raises FiprofError when one is missing or may not read the counters."""
    try:
        return find_profilers(request.tools, "--tool nsys collects without them")
    except FiprofError as error:
        if count_gpus() or counters_permitted() is not None:
            raise
        remedy = "collect on a machine with one; fiprof collect --replay RUN re-reads an archived run here"
        raise FiprofError(f"no NVIDIA GPU on this machine, and {error.message}", remedy) from error


def start(request: CollectRequest, tools: dict[str, Tool], gpu: str, bench: Bench, label: str = "") -> Collection:
    """A run in a new folder of the archive, with nothing measured yet. The caller holds the lock of the GPU.

    label: what the folder's name ends in, if not in the workloads' names. Raises as :func:`case_entries`.
    """
    cases, facts = case_entries(request), collect_facts(request.cases, request.argv, commit=False)
    fields = {"cases": cases, "settings": recorded(request), "environment": run_environment(tools, facts, gpu)}
    fields |= {"argv": list(request.argv)} if request.argv else {}
    folder = bench.archive.create(label or request.label, **fields)
    if request.gpu_metrics_hz and counters_permitted() is False:
        folder.warn("no GPU metrics under nsys: this user may not read the GPU's counters")
        request = dataclasses.replace(request, gpu_metrics_hz=0)
    return Collection(request, folder, bench, tools)


def replay(source: Path, bench: Bench) -> FinishedRun:
    """The same pipeline over an archived run's raw files, into a new run folder."""
    archived = Run(source, leaving=True).manifest
    if archived.imported:
        raise FiprofError(f"{source} was imported: no commands made it", f"fiprof parse {source} reads it again")
    request = CollectRequest(cases=(), **vars(from_manifest(archived.settings)))
    fields = {name: getattr(archived, name) for name in ("cases", "settings", "environment")}
    own_name = read_manifest(source).name  # its folder may have another by now
    origin = archived.replayed_from or own_name
    folder = bench.archive.create(own_name.split("-", 2)[-1], replayed_from=origin, **fields)
    # The archived commands stand in for these.
    tools = {name: Tool(Path(name), ()) for name in get_args(ToolName)}
    replaying = dataclasses.replace(bench, executor=Replay(source, folder.path, bench.executor.stopping))
    collection = Collection(request, folder, replaying, tools)
    collection.measure()
    return collection.conclude()


def case_entries(request: CollectRequest) -> list[CaseEntry]:
    """The cases with their cost models, for the manifest.

    Raises FiprofError where a cost model fails, and for a case with a secret, by whose name nothing could be found.
    """
    entries = []
    for case in request.cases:
        if (without := mask(case.id)) != case.id:
            remedy = "let the workload read it from an environment variable; a word that is none needs another name"
            raise FiprofError(f"a parameter of {without} is a secret, or looks like one", remedy, exit_code=2)
        try:
            cost = case.build().cost()
        except Exception as error:
            what = f"the cost of {case.id} cannot be computed: {error!r}"
            raise FiprofError(what, "cost() uses the parameters alone: no torch, no GPU") from error
        entry = CaseEntry(case.id, case.workload, dict(case.params), **dataclasses.asdict(cost))
        entries.append(dataclasses.replace(entry, anchor=entry.id in request.anchors))
    return entries


class Collection(RunSession):
    """A collect under way: call :meth:`measure`, then :meth:`conclude`."""

    def __init__(self, request: CollectRequest, folder: RunFolder, bench: Bench, tools: dict[str, Tool]) -> None:
        super().__init__(folder, bench)
        self._commands = CollectCommands(self.path, tools, request.timeout_s, request)
        # The commit is found while the plain run goes on.
        self._facts = self._pool.submit(collect_facts, request.cases, request.argv) if request.cases else None
        self._traced: Future[int] | None = None  # kernels that one iteration of every case launched
        self._profiled = False

    def measure(self) -> None:
        """What needs the GPU: plain, then nsys, then ncu, one at a time.

        ncu's workload imports while nsys measures; nsys's report is exported and its tables are made while ncu does.
        """
        tools = self._commands.request.tools
        # What tables are made with takes half a second. Nobody waits for it: an interrupted run ends at once.
        threading.Thread(target=importlib.import_module, args=("pandas",), daemon=True).start()
        gate = self.path / "logs" / ".gate"
        with self.ending_in_order(), self.collecting(), gated(gate) as let_through:
            self._plain()
            self._leave_out(layout.BASELINE)
            profiling = self.executor.start(self._commands.profile(gate)) if "ncu" in tools else None
            if "nsys" in tools:
                with self.collecting():
                    self._trace(let_through)
                    self._traced = self._pool.submit(self._trace_tables)
            if profiling is not None:
                let_through()
                with self.collecting():
                    self._profile(profiling)
                    self._profiled = True
            if "nsys" in tools:
                self._leave_out(layout.NSYS_CASES)
            if "ncu" in tools:
                self._leave_out(layout.NCU_CASES)
            self.note_gpu()

    def conclude(self, supervisor: Supervisor | None = None) -> FinishedRun:
        """What needs no GPU: exports, tables, the run's checks, its manifest and name.

        supervisor: who may stop it, where that is another than who may stop the measuring.
        """
        self.executor = supervisor or self.executor
        with self.ending_in_order():
            if self._profiled:
                with self.collecting():
                    self.profile_tables(self._commands.exports())
            if self._traced is not None:
                with self.collecting():
                    self._traced.result()
            self.check()
        return self.finish()

    def _plain(self) -> None:
        """The workload by itself. Raises FiprofError where it fails, or a case has neither results nor a reason."""
        results = self.path / layout.BASELINE
        try:
            with self.run(self._commands.plain(), self._watch("plain")) as (finished, log):
                require_success("the plain run", finished, log)
                done = {record.get("case") for record in read_jsonl(results) if record.get("kind") == "case"}
                done |= case_errors(results).keys()
                missing = [case.id for case in self.folder.manifest.cases if case.id not in done]
                if missing:
                    what = f"the plain run ended with exit status 0 and no result of {', '.join(missing)}"
                    remedy = "the workload ended the process itself; its output stands in logs/plain.log"
                    raise FiprofError(what, remedy)
        finally:
            for record in read_jsonl(results):
                if record.get("kind") == "environment":
                    self.folder.note(environment={key: record.get(key, {}) for key in ("packages", "gpu")})
            if self._facts is not None:
                facts = self._facts.result()
                self.folder.note(environment={"program": facts, "git": facts["git"]})

    def _trace(self, let_through: Callable[[], None]) -> None:
        """nsys; once more without the GPU metrics where they are refused. Then ncu is let through."""
        hz = self._commands.request.gpu_metrics_hz
        for last in (False, True) if hz else (True,):
            try:
                with self.run(self._commands.trace(hz), self._watch("nsys")) as (finished, log):
                    # A run that was handed on may lack the report, which is private.
                    if self.folder.manifest.replayed_from is None:
                        nsys.check_report(self.path / layout.NSYS_REPORT, log)
                    require_success("the workload under nsys", finished, log)
                    # While the report's checksum is made, ncu begins.
                    let_through()
                return
            except FiprofError as error:
                log = read_log(self.path / "logs/nsys.log")
                if last or isinstance(error, Interrupted) or not nsys.METRICS_REFUSED.search(log):
                    raise
                self.folder.warn(f"no GPU metrics: nsys refused them ({nsys.last_line(log)})")
                hz = 0

    def _trace_tables(self) -> int:
        summary = self.trace_tables(self._commands.trace_export(payloads=False))
        # While ncu measures; its own report is still needed.
        self.compress("nsys/")
        environment = self.folder.manifest.environment
        tools, packages = (environment.get(kind, {}) for kind in ("tools", "packages"))
        return check_trace(self.tables, summary, str(tools.get("nsys", "")), str(packages.get("nvtx", "")))

    def _profile(self, profiling: Process) -> None:
        """Wait for ncu, telling how many of the launches that nsys counted are through, and the time that is left."""
        begin: float | None = None

        def text(tail: str) -> str:
            nonlocal begin
            at = ncu.progress(tail)
            if at is None:
                return watch_workload(tail)
            begin = begin or time.monotonic()
            kernel, number, percent = at
            if self._traced is None or not self._traced.done() or self._traced.exception():
                return f"kernel {number} {kernel} {percent} %"
            total, done = self._traced.result() * self._commands.request.measure_iterations, number - 1
            left = f", {(time.monotonic() - begin) / done * (total - done):.0f} s left" if done else ""
            return f"kernel {number} of {total} {kernel} {percent} %{left}"

        with self.progress.step("ncu"), self.ended(profiling, self._watch("ncu", text)) as (finished, log):
            ncu.check_log(log, self.path / layout.NCU_REPORT, exit_status=finished.exit_status)

    def _leave_out(self, results: str) -> None:
        """Name the cases that failed by themselves, and leave them out of what follows."""
        if (request := self._commands.request).keep_going:
            errors = case_errors(self.path / results)
            for case, error in errors.items():
                self.folder.warn(f"{case} failed ({results}): {error}")
            left = tuple(case for case in request.cases if case.id not in errors)
            self._commands = dataclasses.replace(self._commands, request=dataclasses.replace(request, cases=left))

    def _watch(self, step: str, text: Callable[[str], str] | None = None) -> Callable[[str], None]:
        return lambda tail: self.progress.detail(step, (text or watch_workload)(tail))


def watch_workload(tail: str) -> str:
    """What the runner is at, from the end of its log."""
    steps = re.findall(r"^fiprof: (\w+ \d+/\d+ [^\s\[]+)", tail, re.MULTILINE)
    return str(steps[-1]) if steps else "starting"


def check_trace(tables_folder: Path, summary: NsysSummary, nsys_version: str, nvtx_version: str) -> int:
    """Check nsys's tables for what a collect needs. Returns the kernels that one iteration of every case launched.

    Raises FiprofError where they have no range of the runner's, no kernel, or a range that never ended: the workload
    died in it while nsys said that all is well.
    """
    import pyarrow.compute as pc

    from fiprof.model import tables

    ranges = tables.read(tables_folder, "ranges", ["domain", "name", "end_ns"])
    ours = ranges.filter(pc.equal(ranges["domain"].cast("string"), DOMAIN))
    if not ours.num_rows:
        why = "the two do not fit each other" if summary.nvtx_incompatible else "no NVTX range reached it"
        raise FiprofError(f"nsys {nsys_version} saw no ranges of nvtx {nvtx_version}: {why}", nsys.NVTX_REMEDY)
    kernels = tables.read(tables_folder, "kernels", ["phase", "iteration"])
    if not kernels.num_rows:
        raise FiprofError(
            "nsys saw no kernel: the workload launched nothing on a GPU, or CUDA could not be traced",
            "run the plain step's command by hand and look at its log; a driver newer than nsys knows is a known cause",
        )
    if open_ranges := ours.filter(ours["end_ns"].is_null())["name"].to_pylist():
        what = f"the workload under nsys ended inside {' > '.join(open_ranges)}: the trace has nothing after that"
        raise FiprofError(what, "logs/nsys.log has its output")
    first = pc.and_(pc.equal(kernels["phase"].cast("string"), MEASURE), pc.equal(kernels["iteration"], 0))
    return pc.sum(first).as_py() or 0
