"""A study's batches on several GPUs: which cases each has, and the worker that measures one.

A worker is any process that sees the study's folder, on this machine or in a cluster. Workers do not communicate: of
two with the same batch, the later waits and finds it done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import heapq
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from math import inf, prod
from pathlib import Path
from typing import Any

import psutil

from fiprof import files, interrupts
from fiprof.analysis.checks import CLOCK_LOW
from fiprof.analysis.study import FEWEST_ON_AXIS, is_number
from fiprof.errors import FiprofError, Interrupted
from fiprof.model import json_file, layout, packs
from fiprof.model.finding import Finding, finding, words_of
from fiprof.model.manifest import CaseEntry, Manifest, case_errors, read_manifest
from fiprof.model.selection import by_key
from fiprof.orchestrator import collect
from fiprof.orchestrator.commands import CollectCommands, CollectRequest
from fiprof.orchestrator.locks import waiting_lock
from fiprof.orchestrator.process import Supervisor, describe_exit
from fiprof.orchestrator.run_folder import Archive, recover
from fiprof.orchestrator.run_session import Bench
from fiprof.orchestrator.tools import gpu_env, gpu_state, visible_gpu, visible_gpus
from fiprof.workloads.base import Value
from fiprof.workloads.case import Case

JOBS = "jobs"  # folder of a study: the jobs and outcomes of its batches, and their locks
SET_ASIDE = "set-aside"  # folder of a study: runs that failed
MOST_ANCHORS = 3
ANCHOR_AT = 0.75
"""Where an anchor is among its workload's cases by size: long ones are timed better, the longest cost most."""
SIZE_WEIGHT = 0.25
"""Weight of a case's size in its expected time, over what each case takes whatever its size: turns and profilers."""
WATCH_S = 1.0  # between two looks at a GPU while it measures
LEAVING_S = 10.0  # by then a process that has ended is gone from the driver's list
FEWEST_LOOKS = 5  # from so many on, one of them saw the GPU at work, or idle at high clocks
CHECK_COPIES = 7
"""Memory of checking an output, over the output: itself, the float32 reference and its parts, their difference."""
FIXED_BYTES = 2 << 30  # CUDA's context, the kernels' code, a library's workspaces of 128 MiB, fragments
RESULT_FILES = {"plain": layout.BASELINE, "nsys": layout.NSYS_CASES, "ncu": layout.NCU_CASES}


# Which cases go together

Sizes = tuple[tuple[str, Value], ...]
Groups = dict[str, dict[Sizes, list[Case]]]


def groups(cases: Sequence[Case], whole: int = 0) -> Groups:
    """Problem (a workload) -> sizes -> its cases of these sizes, whose times are compared with each other.

    whole: a problem of at most so many cases stays one group.
    """
    by_problem: Groups = {}
    for workload, members in by_key((case.workload, case) for case in cases).items():
        about = packs.of_workload(workload)
        names = [name for name, _ in members[0].params]
        values = set(chain.from_iterable(case.params for case in members))
        many = Counter(name for name, value in values if is_number(value))
        axes = [name for name in sorted(many) if many[name] >= FEWEST_ON_AXIS and not (about and name in about.options)]
        places = [names.index(name) for name in axes]
        units = by_problem.setdefault((about.problem if about else "") or workload, {})
        for case in members:
            params = case.params
            units.setdefault(tuple([params[place] for place in places]), []).append(case)
    for problem, units in by_problem.items():
        if len(together := list(chain.from_iterable(units.values()))) <= whole:
            by_problem[problem] = {(): together}
    return by_problem


def size(axes: Sizes) -> float:
    """The product of some cases' sizes, to rank them within a workload."""
    return prod(float(value) for _, value in axes)


def deal(cases: Sequence[Case], grouped: Groups, boards: int, most: int) -> list[tuple[Case, ...]]:
    """The cases in batches of about equal work, a multiple of ``boards``, with at most ``most`` cases each.

    Cases that differ in options of solving alone stay in one batch, and so on one board, also if they are more.
    grouped: these cases and others.
    """
    if len(cases) < sum(len(unit) for by_size in grouped.values() for unit in by_size.values()):
        wanted = set(cases)
        grouped = {
            name: {axes: left for axes, unit in by_size.items() if (left := [each for each in unit if each in wanted])}
            for name, by_size in grouped.items()
        }
    units = sum(map(len, grouped.values()))
    count = min(boards * -(-len(cases) // (boards * most)), units)
    while True:
        batches: list[list[list[Case]]] = [[] for _ in range(count)]
        lengths = [0] * count
        for by_size in filter(None, grouped.values()):
            total, number = sum(map(size, by_size)), sum(map(len, by_size.values()))
            heap = [(lengths[place] / number, lengths[place], place) for place in range(count)]
            heapq.heapify(heap)
            for axes, unit in sorted(by_size.items(), key=lambda item: -size(item[0])):
                load, _, place = heap[0]
                batches[place].append(unit)
                lengths[place] += len(unit)
                load += len(unit) / number + SIZE_WEIGHT * size(axes) / total
                heapq.heapreplace(heap, (load, lengths[place], place))
        if (longest := max(lengths, default=0)) <= most or count == units:
            break
        count = min(count + boards * -(-count * (longest - most) // (most * boards)), units)
    return [tuple(chain.from_iterable(units)) for units in batches]


def anchors(grouped: Groups) -> tuple[Case, ...]:
    """The cases that every batch repeats, to compare boards: one of each of the largest workloads."""
    largest = sorted(grouped.values(), key=lambda by_size: -sum(map(len, by_size.values())))[:MOST_ANCHORS]
    ranked = (sorted(by_size.items(), key=lambda item: size(item[0])) for by_size in largest)
    return tuple(each[int(len(each) * ANCHOR_AT)][1][0] for each in ranked)


def fillers(grouped: Groups) -> tuple[Case, ...]:
    """The smallest case of each combination of parameters but sizes: together they need all that is compiled."""
    of_problem: dict[object, Case] = {}
    for by_size in grouped.values():
        for axes, unit in sorted(by_size.items(), key=lambda item: size(item[0])):
            sizes = {name for name, _ in axes}
            others = [place for place, (name, _) in enumerate(unit[0].params) if name not in sizes]
            for case in unit:
                of_problem.setdefault((case.workload, *[case.params[place] for place in others]), case)
    return tuple(of_problem.values())


def too_large(cases: Iterable[CaseEntry], state: Mapping[str, Any]) -> dict[str, str]:
    """Case id -> why, for the cases that do not fit into the free memory of a GPU. state: the GPU's; may be empty."""
    free = state["memory_total_bytes"] - state["memory_used_bytes"] if state else inf
    # Roughly: inputs, outputs with their check, and what is always there.
    needed = {each.id: each.bytes_read + CHECK_COPIES * each.bytes_written + FIXED_BYTES for each in cases}
    words = "does not fit: it needs some {:.1f} GiB of device memory, {:.1f} GiB are free"
    return {name: words.format(each / 2**30, free / 2**30) for name, each in needed.items() if each > free}


# The worker


@dataclass(frozen=True)
class Job:
    """A batch to measure, for a worker."""

    folder: str  # the study's
    request: CollectRequest  # its cases are the batch's and, behind them, its anchors
    filling: tuple[Case, ...] = ()  # cases that compile all that the study needs
    without: tuple[str, ...] = ()  # runs to ignore: of another kind of GPU, driver or packages
    schema_version: int = 1

    @property
    def own(self) -> tuple[Case, ...]:
        return tuple(case for case in self.request.cases if case.id not in self.request.anchors)

    @property
    def key(self) -> str:
        """The batch's name, which depends on its cases alone."""
        text = "\n".join(case.id for case in self.own)
        label = dataclasses.replace(self.request, cases=self.own).label
        return f"{label}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def path(self, suffix: str) -> Path:
        return Path(self.folder) / JOBS / f"{self.key}{suffix}"


@dataclass(frozen=True)
class BatchOutcome:
    """The outcome of a batch."""

    run: str = ""  # that holds it; empty where none does
    gpu: str = ""
    measuring_s: float = 0.0
    tables_s: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)  # case id -> why, of cases that took their process with them
    skipped: dict[str, str] = field(default_factory=dict)
    """Case id -> why, of cases that do not fit into this GPU's memory."""
    message: str = ""  # what went wrong; empty for nothing
    remedy: str = ""
    warnings: list[str] = field(default_factory=list)  # the run's
    schema_version: int = 1


def measure(job: Job, bench: Bench | None = None, free: threading.Event | None = None) -> BatchOutcome:
    """Measure a batch on a visible GPU that is free, unless a complete run has it already. Raises Interrupted.

    The run fails where something else uses the GPU meanwhile. bench: of the caller. free: given by a session that
    measures in its own process, on the request's GPU; set when the next batch may be measured, while tables are made.
    Other use of the GPU is only a warning then.
    """
    bench = bench or Bench(Archive(Path(job.folder)))
    try:
        with files.file_errors(job.path(".lock")):
            job.path(".lock").parent.mkdir(parents=True, exist_ok=True)
        with waiting_lock(job.path(".lock"), bench.executor.stopping):
            return _earlier(job) or _measure(job, bench, free)
    except Interrupted:
        raise
    except FiprofError as error:
        return BatchOutcome(message=error.message, remedy=error.remedy)


def _earlier(job: Job) -> BatchOutcome | None:
    """The outcome of an earlier worker that could not report it; its runs that are not complete are set aside."""
    folder, own = Path(job.folder), {case.id for case in job.own}
    if list(folder.glob(f".partial-*-{job.key}*")):
        recover(Archive(folder))
    for path in sorted(folder.glob(f"[!.]*-{job.key}*/{layout.FILE_NAME}")):
        if path.parent.name in job.without:
            continue
        manifest = read_manifest(path.parent)
        if manifest.status != "complete":
            set_aside(folder, path.parent.name)
        elif own <= {case.id for case in manifest.cases}:
            return BatchOutcome(path.parent.name)
    return None


def _measure(job: Job, bench: Bench, free: threading.Event | None) -> BatchOutcome:
    """Measure a batch. Raises FiprofError for what no case is to blame for."""
    tools = collect.require_tools(job.request)
    # A session that measures in its own process holds the GPU for all its batches.
    own = contextlib.nullcontext(visible_gpu(job.request.gpu)) if free else bench.holding_one(*visible_gpus())
    with own as gpu:
        executor = bench.executor if free else Supervisor(gpu_env(gpu), bench.executor.stopping)
        bench = dataclasses.replace(bench, progress=bench.progress.without_lines(), executor=executor)
        state, deadline = gpu_state(gpu), time.monotonic() + LEAVING_S
        # Processes that ended just now may still be listed.
        while not free and (others := disturbances([state])):
            if time.monotonic() > deadline:
                raise FiprofError(f"GPU {gpu}: {'; '.join(map(words_of, others))}", "free it, or take another")
            if bench.executor.stopping.wait(WATCH_S):
                raise Interrupted
            state = gpu_state(gpu)
        unfit = too_large(collect.case_entries(job.request), state)
        skipped = {case.id: unfit[case.id] for case in job.own if case.id in unfit}
        if len(skipped) == len(job.own):
            return BatchOutcome(gpu=gpu, skipped=skipped)
        if job.filling:
            fill_cache(job, bench, str(state.get("compute_capability", "")))
        cases = tuple(case for case in job.request.cases if case.id not in unfit)
        began = time.monotonic()
        collection = collect.start(dataclasses.replace(job.request, cases=cases), tools, gpu, bench, job.key)
        with contextlib.nullcontext() if free else _undisturbed(collection, gpu):
            collection.measure()
        measuring_s = round(time.monotonic() - began, 1)
    if free and not collection.problem:
        free.set()
    # Ctrl-C ends the measuring; tables of what was measured before take seconds, and are made all the same.
    result = collection.conclude(Supervisor() if free else None)
    if isinstance(result.problem, Interrupted):
        raise result.problem
    manifest, tables_s = read_manifest(result.path), round(time.monotonic() - began - measuring_s, 1)
    if (problem := result.problem) is None:
        return BatchOutcome(
            result.path.name, gpu, measuring_s, tables_s, skipped=skipped, warnings=list(manifest.warnings)
        )
    at_fault = culprits(result.path, manifest)
    set_aside(Path(job.folder), result.path.name)
    return BatchOutcome(gpu=gpu, failed=at_fault, skipped=skipped, message=problem.message, remedy=problem.remedy)


def fill_cache(job: Job, bench: Bench, architecture: str) -> None:
    """Compile all that the study needs, once for each architecture and user, while nothing else measures."""
    cases = ",".join(case.id for case in job.filling)
    key = hashlib.sha256(f"{architecture} {job.request.python} {cases}".encode()).hexdigest()[:16]
    folder = files.cache_folder() / "filled" / key
    with files.file_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with waiting_lock(folder / "lock", bench.executor.stopping):
        if not (folder / "done").exists():
            request = dataclasses.replace(job.request, cases=job.filling, rounds=1, iterations=1, warmup=0, check=False)
            with files.scratch(folder) as scratch_folder:
                command = CollectCommands(scratch_folder, {}, request.timeout_s, request).plain()
                # What fails here fails again when it is measured, and is reported then.
                if bench.executor.start(command).wait().outcome == "ok":
                    (folder / "done").touch()


def culprits(path: Path, manifest: Manifest) -> dict[str, str]:
    """Case id -> why, for the cases that made a run fail: by the runner's errors, or the case at which it crashed."""
    reasons: dict[str, str] = {}
    for action in manifest.actions:
        if action.outcome == "ok" or action.step not in RESULT_FILES:
            continue
        errors = case_errors(path / RESULT_FILES[action.step])
        reasons |= errors
        if not errors and action.log and action.exit_status != 0:
            log = (path / action.log).read_text(errors="replace") if (path / action.log).exists() else ""
            if announced := re.findall(r"^fiprof: \w+ \d+/\d+ (\S+)", log, re.MULTILINE):
                ended = action.message if action.exit_status is None else describe_exit(action.exit_status)
                reasons[announced[-1]] = f"{action.step}: {action.outcome}, {ended}"
    case_ids = {case.id for case in manifest.cases}
    return {case: why for case, why in reasons.items() if case in case_ids}


def set_aside(folder: Path, name: str) -> None:
    """Move a run folder into SET_ASIDE, to be looked at; with a number where its name is taken."""
    with files.file_errors(folder / SET_ASIDE):
        aside, names = files.make_folder(folder, SET_ASIDE), chain([name], (f"{name}~{n}" for n in count(2)))
        (folder / name).rename(next(free for free in map(aside.joinpath, names) if not free.exists()))


# Whether something else used the GPU


@contextlib.contextmanager
def _undisturbed(collection: collect.Collection, gpu: str) -> Iterator[None]:
    """Look at a GPU while a block measures, and note a look in the run; the run fails where the GPU was disturbed."""
    during: list[dict[str, Any]] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(WATCH_S):
            if state := gpu_state(gpu):
                own = {process.pid for process in psutil.Process().children(recursive=True)}
                listed = {int(text.split()[0]): text for text in state["other_processes"]}
                others = {pid: text for pid, text in listed.items() if pid not in own}
                if len(others) == len(listed):
                    # None of fiprof's own is listed: the driver's process ids may not be this container's.
                    others = {pid: text for pid, text in others.items() if psutil.pid_exists(pid)}
                during.append({**state, "other_processes": list(others.values())})

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()
    states = collection.folder.manifest.environment.get("gpu_state", {})
    before, after = (states.get(when) or {} for when in ("before", "after"))
    with collection.collecting():
        if during:
            collection.folder.note(environment={"gpu_state": {**states, "during": during[len(during) // 2]}})
        if disturbing := disturbances([before, *during, after]):
            what = "; ".join(map(words_of, disturbing))
            raise FiprofError(f"the GPU was not left alone: {what}", "the batch is measured again")


def disturbances(states: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """What happened to a GPU that changes times, by its states before, during and after."""
    readings = [state for state in states if state]
    sentences = []
    if others := tuple(dict.fromkeys(each for state in readings for each in state.get("other_processes") or ())):
        sentences.append(finding("other_processes", "something else was on it: {processes}", processes=others))
    if throttled := tuple(dict.fromkeys(each for state in readings for each in state.get("slowdowns") or ())):
        sentences.append(finding("slowed", "it was slowed down: {reasons}", reasons=throttled))
    for name in ("power_limit_w", "max_sm_clock_mhz", "mig", "ecc", "ecc_errors"):
        values = tuple(dict.fromkeys(str(state[name]) for state in readings if state.get(name) is not None))
        if len(values) > 1:
            sentences.append(finding("changed", "{what} changed: {values}", what=name.replace("_", " "), values=values))
    clocks = [(state["sm_clock_mhz"], state["max_sm_clock_mhz"]) for state in readings if state.get("sm_clock_mhz")]
    if len(clocks) >= FEWEST_LOOKS and max(clock for clock, _ in clocks) < CLOCK_LOW * clocks[0][1]:
        words = "its SM clock came to {clock:,.0f} of {highest:,.0f} MHz"
        sentences.append(finding("slow_clock", words, clock=max(clock for clock, _ in clocks), highest=clocks[0][1]))
    return sentences


def main() -> None:
    """A worker process: measures the batch of a file, and writes the outcome to another."""
    stopping, (job, out) = threading.Event(), map(Path, sys.argv[1:])
    interrupts.ask_first(stopping.set)
    with contextlib.suppress(Interrupted, KeyboardInterrupt):
        batch = json_file.read(job, Job, "fiprof study writes it")
        outcome = measure(batch, Bench(Archive(Path(batch.folder)), executor=Supervisor(stopping=stopping)))
        files.write_whole(out, json_file.encode(outcome))
