"""A session of a study: measures what is not done yet, batch by batch, and writes the results."""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fiprof.errors import Interrupted
from fiprof.model.layout import BASELINE, NCU_CASES, NSYS_CASES
from fiprof.model.manifest import CaseEntry, Manifest, read_manifest
from fiprof.model.records import case_errors
from fiprof.model.results import RESULTS, EnvironmentInfo
from fiprof.model.settings import shared
from fiprof.orchestrator import collect, run_session
from fiprof.orchestrator.locks import folder_lock, gpu_lock
from fiprof.orchestrator.process import Supervisor, describe_exit
from fiprof.orchestrator.request import CollectRequest
from fiprof.orchestrator.run_session import Progress
from fiprof.orchestrator.study.definition import (
    Definition,
    ExtraRequest,
    Measured,
    Plan,
    after_measuring,
    extras,
    label,
    make_plan,
)
from fiprof.orchestrator.study.folder import BatchTimes, StudyFolder, open_folder, profiled_kernels, write_results
from fiprof.orchestrator.tools import Tool, gpu_state, visible_gpu
from fiprof.workloads.case import Case

MOST_FAILURES = 3
"""Batches that may fail one after the other, each by a case that took its process with it, before the study ends."""

RESULT_FILES = {"plain": BASELINE, "nsys": NSYS_CASES, "ncu": NCU_CASES}


@dataclass(frozen=True)
class Where:
    """The machine's part of a study."""

    python: str
    """The interpreter that has torch and flashinfer."""
    gpu: int | None
    """As nvidia-smi counts; None for the first that is visible."""
    wait: bool
    """Wait while another fiprof profiles on the GPU."""


def request_for(definition: Definition, cases: Sequence[Case], where: Where) -> CollectRequest:
    """The run of a batch."""
    return CollectRequest(
        cases=tuple(cases), gpu=where.gpu, python=where.python, keep_going=True, **shared(definition.settings)
    )


def entries(definition: Definition) -> dict[str, CaseEntry]:
    """Case id -> the case with its cost. Raises FiprofError where a cost model fails."""
    return {entry.id: entry for entry in collect.case_entries(CollectRequest(cases=definition.cases))}


def plan_session(definition: Definition, only: Sequence[str], done: dict[str, str], gpu: str) -> Plan:
    """What there is to do on this GPU. gpu: its UUID or index."""
    state = gpu_state(gpu)
    return make_plan(
        definition.only(only),
        entries(definition),
        done=done,
        free_bytes=state["memory_total_bytes"] - state["memory_used_bytes"] if state else None,
        batch_cases=definition.settings.batch_cases,
    )


def run_study(
    definition: Definition,
    path: Path,
    where: Where,
    progress: Progress,
    supervisor: Supervisor,
    *,
    only: Sequence[str] = (),
) -> EnvironmentInfo:
    """Measure what the study's folder does not hold yet, and write its results.

    only: workloads to measure; all without.
    Raises FiprofError before anything is made for a folder of something else, a missing tool, or a GPU that is taken;
    Interrupted when told to stop; and what ends a batch by something else than one of its cases. What was measured
    is kept, and its results are written.
    """
    cases = definition.only(only)
    tools = collect.require_tools(request_for(definition, cases, where)) if cases else {}
    path.mkdir(parents=True, exist_ok=True)
    with folder_lock(path):
        folder = open_folder(path, definition)
        folder.tidy()
        folder.begin()
        work = _Work(definition, folder, where, tools, progress, supervisor)
        try:
            if cases:
                work.measure(only)
            for name in definition.extras:
                if name in only or (definition.settings.extras and not only):
                    work.extra(name)
            folder.note(status="complete")
        except (Interrupted, KeyboardInterrupt):
            raise
        except BaseException:
            folder.note(status="failed")
            raise
        finally:
            with progress.step("results"):
                info = write_results(definition, folder, entries(definition))
        kernels = tuple(profiled_kernels(definition, folder))
        after_measuring(Measured(definition.name, folder.path / RESULTS, kernels, where.python, progress))
    return info


def _announce(plan: Plan, definition: Definition, progress: Progress) -> None:
    """What is there, what is left out, what is to come."""
    if plan.done:
        progress.say(f"{len(plan.done)} cases are done already")
    for case, why in plan.skipped.items():
        progress.say(f"skipped: {case} {why}")
    if plan.batches:
        progress.say(
            f"{plan.cases} cases in {len(plan.batches)} batches of a plain, an nsys and an ncu process each; "
            f"{definition.settings.rounds} rounds, ncu --set {definition.settings.ncu_set}"
        )


@dataclass
class _Work:
    """The work of one session."""

    definition: Definition
    folder: StudyFolder
    where: Where
    tools: dict[str, Tool]
    progress: Progress
    supervisor: Supervisor
    gpu: str = ""
    tables: Supervisor = field(default_factory=Supervisor)
    """Ctrl-C ends the measuring; the tables of what was measured before take seconds, and are made."""
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    concluding: list[Future[None]] = field(default_factory=list)
    begin: float = field(default_factory=lambda: time.monotonic())
    total: int = 0
    """Cases to measure; then those measured, those whose tables are made, and batches failed one after the other."""
    measured: int = 0
    concluded: int = 0
    failures: int = 0

    def measure(self, only: Sequence[str]) -> None:
        """The cases that are not done. Raises as :func:`run_study` does."""
        self.gpu = visible_gpu(self.where.gpu)
        with gpu_lock(self.gpu, wait=self.where.wait, waiting=self.progress.say, stopping=self.supervisor.stopping):
            plan = plan_session(self.definition, only, self.folder.done(), self.gpu)
            _announce(plan, self.definition, self.progress)
            self.folder.update(skipped={**self.folder.manifest.skipped, **plan.skipped})
            self.begin = time.monotonic()
            self.work(plan)

    def extra(self, name: str) -> None:
        """What a pack measures beyond the cases."""
        began, where = time.monotonic(), self.where
        results, cases = self.folder.path / RESULTS, self.definition.extras[name]
        machine = (where.python, where.gpu, where.wait)
        try:
            extras()[name](ExtraRequest(self.definition.name, cases, results, *machine, self.progress, self.supervisor))
        finally:
            seconds, done = round(time.monotonic() - began, 1), self.folder.session
            self.folder.note(duration_s=round(done.duration_s + seconds, 1), extras_s=round(done.extras_s + seconds, 1))

    def work(self, plan: Plan) -> None:
        """Measure the batches. Raises as :func:`run_study` does."""
        queue = deque(plan.batches)
        self.total = plan.cases
        try:
            with self._tables_made():
                number = 0
                while queue:
                    number += 1
                    self._raise_for_tables()
                    self._time_left(f"batch {number} of {number + len(queue) - 1}")
                    if again := self._batch(queue.popleft()):
                        queue.appendleft(again)
        finally:
            self.folder.note(duration_s=self._seconds)

    def _batch(self, batch: tuple[Case, ...]) -> tuple[Case, ...]:
        """Measure a batch, and leave its tables to be made. Returns the cases that a failed one left, without those at
        fault."""
        began = time.monotonic()
        request = request_for(self.definition, batch, self.where)
        quiet = self.progress.without_lines()
        collection = collect.start(request, self.tools, self.gpu, self.folder.archive, quiet, self.supervisor)
        collection.measure()
        measuring_s = time.monotonic() - began
        if collection.problem is not None:
            return self._failed(batch, collection.conclude(self.tables))
        self.failures = 0
        self.measured += len(batch)
        self.folder.note(duration_s=self._seconds)
        self.concluding.append(self.pool.submit(self._conclude, collection, batch, measuring_s))
        return ()

    def _conclude(self, collection: collect.Collection, batch: Sequence[Case], measuring_s: float) -> None:
        """Make a batch's tables, and say how it went. Raises what went wrong."""
        began = time.monotonic()
        result = collection.conclude(self.tables)
        if result.problem is not None:
            raise result.problem
        manifest = read_manifest(result.path)
        times = BatchTimes(
            run=manifest.name,
            cases=len(batch),
            measuring_s=round(measuring_s, 1),
            tables_s=round(time.monotonic() - began, 1),
            steps_s={action.step: round(action.duration_s, 1) for action in manifest.actions},
        )
        self.folder.note_batch(times)
        self.concluded += len(batch)
        self.progress.say(self._line(manifest, batch, times))
        for warning in manifest.warnings:
            self.progress.say(f"  {warning}")

    def _failed(self, batch: Sequence[Case], result: run_session.Result) -> tuple[Case, ...]:
        """Note the cases that a batch failed by. Raises its problem where none did, or too many batches failed."""
        problem = result.problem
        assert problem is not None
        if isinstance(problem, Interrupted):
            raise problem
        self.failures += 1
        at_fault = culprits(result.path, read_manifest(result.path))
        if not at_fault or self.failures > MOST_FAILURES:
            raise problem
        self.folder.set_aside(result.path.name)
        self.folder.note_failed(at_fault)
        for case, why in at_fault.items():
            self.progress.say(f"failed: {case}: {why}; its batch is measured again without it")
        return tuple(case for case in batch if case.id not in at_fault)

    @contextlib.contextmanager
    def _tables_made(self) -> Iterator[None]:
        """Wait for the tables at the end, whatever the end is, and raise what went wrong with them."""
        try:
            yield
        finally:
            self.pool.shutdown()
        self._raise_for_tables()

    def _raise_for_tables(self) -> None:
        """What went wrong with the tables that are finished: with the next batch's it would again."""
        for concluding in self.concluding:
            if concluding.done():
                concluding.result()

    def _line(self, manifest: Manifest, batch: Sequence[Case], times: BatchTimes) -> str:
        plain, nsys = (times.steps_s.get(step, 0.0) for step in ("plain", "nsys"))
        # ncu's process starts beside nsys's and waits for its end.
        ncu = times.measuring_s - plain - nsys
        return (
            f"{label(batch)}: {times.measuring_s:.1f} s (plain {plain:.1f}, nsys {nsys:.1f}, ncu {ncu:.1f}), "
            f"tables {times.tables_s:.1f} s beside the next; {self.concluded} of {self.total} cases{self._left()}; "
            f"{manifest.name}"
        )

    def _time_left(self, what: str) -> None:
        self.progress.detail("study", f"{what}, {self.measured} of {self.total} cases{self._left()}")

    def _left(self) -> str:
        """By the time that the cases so far took."""
        left = self.total - self.measured
        if not self.measured or left <= 0:
            return ""
        seconds = self._seconds / self.measured * left
        return f", about {seconds / 60:.0f} min left" if seconds > 90 else f", about {seconds:.0f} s left"

    @property
    def _seconds(self) -> float:
        return round(time.monotonic() - self.begin, 1)


def culprits(path: Path, manifest: Manifest) -> dict[str, str]:
    """Case id -> why, of the cases that made a run fail: by the runner's own words, or the one at which it died."""
    found: dict[str, str] = {}
    for action in manifest.actions:
        if action.outcome == "ok" or action.step not in RESULT_FILES:
            continue
        errors = case_errors(path / RESULT_FILES[action.step])
        found |= errors
        if not errors and action.log and action.exit_status != 0:
            said = (path / action.log).read_text(errors="replace") if (path / action.log).exists() else ""
            if announced := re.findall(r"^fiprof: \w+ \d+/\d+ (\S+)", said, re.MULTILINE):
                ended = action.message if action.exit_status is None else describe_exit(action.exit_status)
                found[announced[-1]] = f"{action.step}: {action.outcome}, {ended}"
    known = {case.id for case in manifest.cases}
    return {case: why for case, why in found.items() if case in known}
