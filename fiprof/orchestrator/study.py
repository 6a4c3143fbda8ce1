"""A study: a matrix of cases as a TOML file declares it, measured in few processes over as many sessions as it takes.

Its folder has its runs, its results, which can be made again, and ``study.json``: how it came about.
"""

import dataclasses
import os
import re
import threading
import time
import tomllib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

import fiprof
from fiprof import clock, files
from fiprof.analysis.study import case_results, unmeasured
from fiprof.errors import FiprofError, Interrupted
from fiprof.model import json_file, packs, results
from fiprof.model.json_file import SCHEMA
from fiprof.model.manifest import (
    BASELINE,
    FILE_NAME,
    NCU_CASES,
    NSYS_CASES,
    STUDY_FILE,
    CaseEntry,
    Manifest,
    case_errors,
    read_manifest,
)
from fiprof.model.results import ENVIRONMENT, RESULTS, EnvironmentInfo, KernelResults
from fiprof.model.run import Run
from fiprof.model.settings import StudySettings, settings_of, shared
from fiprof.orchestrator import collect
from fiprof.orchestrator.commands import CollectRequest
from fiprof.orchestrator.locks import folder_lock
from fiprof.orchestrator.parse import parse_all, whole
from fiprof.orchestrator.process import Supervisor, describe_exit
from fiprof.orchestrator.run_folder import Archive, recover
from fiprof.orchestrator.run_session import Bench, Result
from fiprof.orchestrator.tools import Tool, gpu_state, visible_gpu
from fiprof.workloads.base import format_value
from fiprof.workloads.case import Case, make_cases, parse_case, short_name

SET_ASIDE = "set-aside"
FIXED_BYTES = 2 << 30
"""CUDA's context, the kernels' code, a library's workspaces of 128 MiB, fragments."""
CHECK_COPIES = 7
"""Times that an output takes while it is compared: itself, the float32 reference and its parts, their difference."""
MOST_FAILURES = 3
"""Batches that may fail one after the other, each by a case that took its process with it, before the study ends."""
RESULT_FILES = {"plain": BASELINE, "nsys": NSYS_CASES, "ncu": NCU_CASES}


@dataclass(frozen=True)
class Definition:
    """A study as declared."""

    name: str
    title: str
    source: str
    """The packaged study's name, or the file."""
    cases: tuple[Case, ...]
    """Every case once, in the declared order of the workloads, those of a workload in the order of its parameters."""
    settings: StudySettings
    quick: bool
    extras: Mapping[str, tuple[Case, ...]]
    """What a pack measures beyond the cases, e.g. ``jit`` -> for which cases."""

    def only(self, words: Sequence[str]) -> tuple[Case, ...]:
        """The cases of the named workloads; all without names. Raises FiprofError (exit status 2) for one unknown."""
        names = [*dict.fromkeys(short_name(case.workload) for case in self.cases), *self.extras]
        if unknown := [word for word in words if word not in names]:
            raise FiprofError(
                f"the study {self.name} has no {', '.join(unknown)}", f"--only takes of {', '.join(names)}", exit_code=2
            )
        return tuple(case for case in self.cases if not words or short_name(case.workload) in words)


class _File(Struct, forbid_unknown_fields=True):
    """What stands in a study's file."""

    name: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_-]*$")]
    cases: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    title: str = ""
    extras: dict[str, list[str]] = {}
    settings: dict[str, Any] = {}
    quick: dict[str, Any] = {}


def load(text: str, *, quick: bool = False) -> Definition:
    """The study that a packaged name or a path of a TOML file means.

    quick: with the settings of its table ``quick`` over the others.
    Raises FiprofError (exit status 2) where there is none, or naming what is wrong in it.
    """
    known: dict[str, Path | Mapping[str, Any]] = dict(sorted(packs.merged("studies").items()))
    example = "docs/study.md says what stands in one"
    source = known.get(text, Path(text))
    if isinstance(source, Path) and not source.is_file():
        remedy = f"the installed packs bring {', '.join(known)}; one of your own is a TOML file: {example}"
        raise FiprofError(f"there is no study {text}", remedy, exit_code=2)
    try:
        data = tomllib.loads(source.read_bytes().decode()) if isinstance(source, Path) else source
        return _definition(data, text, quick=quick)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FiprofError(f"{text} is not TOML: {error}", example, exit_code=2) from error
    except json_file.MisfitError as error:
        raise FiprofError(f"{text}: {error}", example, exit_code=2) from error
    except FiprofError as error:
        raise FiprofError(f"{text}: {error.message}", error.remedy or example, exit_code=2) from error


def _definition(data: Mapping[str, Any], source: str, *, quick: bool) -> Definition:
    """Raises FiprofError or MisfitError, which name what is wrong."""
    found = json_file.convert(data, _File)
    by_workload: dict[str, dict[Case, None]] = {}
    for number, block in enumerate(found.cases, 1):
        words: dict[str, list[str]] = {}
        try:
            if not isinstance(workload := block.get("workload"), str):
                raise FiprofError("it has no workload")
            for key, value in ((key, value) for key, value in block.items() if key != "workload"):
                values = value if isinstance(value, list) else [value]
                if not values or not all(isinstance(each, bool | int | float | str) for each in values):
                    raise FiprofError(f"{key} is neither a value nor a list of values")
                words[key] = [format_value(each) for each in values]
            made = make_cases(workload, words)
        except FiprofError as error:
            raise FiprofError(f"[[cases]] {number}: {error.message}", error.remedy) from error
        for case in made:
            by_workload.setdefault(case.workload, {})[case] = None
    if unknown := sorted(found.extras.keys() - packs.merged("extras").keys()):
        raise FiprofError(f"extras has no {', '.join(unknown)}; it has {', '.join(packs.merged('extras'))}")
    _settings(found.quick, "quick")
    return Definition(
        name=found.name,
        title=found.title or found.name,
        source=source,
        cases=tuple(
            case
            for group in by_workload.values()
            for case in sorted(group, key=lambda case: [value for _, value in case.params])
        ),
        settings=_settings({**found.settings, **(found.quick if quick else {})}, "settings"),
        quick=quick,
        extras={name: tuple(map(parse_case, texts)) for name, texts in found.extras.items()},
    )


def _settings(given: Mapping[str, Any], where: str) -> StudySettings:
    declared = {each.name: each for each in settings_of(StudySettings)}
    if unknown := sorted(given.keys() - declared.keys()):
        raise FiprofError(f"{where} has no {', '.join(unknown)}; it has {', '.join(declared)}")

    def check(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if problem := declared[name].problem(value):
                raise FiprofError(f"[{where}]: {name} {problem}")

    check({name: value for name, value in given.items() if declared[name].choices})
    settings = json_file.convert(dict(given), StudySettings, f"[{where}]")
    check({name: getattr(settings, name) for name in declared})
    return settings


# Plan


@dataclass(frozen=True)
class Plan:
    """A session."""

    batches: tuple[tuple[Case, ...], ...]
    skipped: Mapping[str, str]
    """Case id -> why it is not measured on this GPU."""
    done: Mapping[str, str]
    """Case id -> the run that holds it, or why it failed."""

    @property
    def cases(self) -> int:
        """Still to be measured."""
        return sum(map(len, self.batches))


def make_plan(
    cases: Sequence[Case],
    entries: Mapping[str, CaseEntry],
    *,
    done: Mapping[str, str],
    free_bytes: int | None,
    batch_cases: int,
) -> Plan:
    """The cases that are not done and fit, in batches that share processes, each of at most ``batch_cases``.

    A workload's cases stay together where they fit, and are split evenly where not; small workloads share a batch up
    to half of that number. entries: case id -> its cost. free_bytes: of the GPU's memory; None where the driver does
    not say.
    """
    skipped = {}
    by_workload: dict[str, list[Case]] = {}
    for case in cases:
        if case.id in done:
            continue
        # Roughly: inputs, outputs, the comparison with the reference, and what is always there.
        needed = entries[case.id].bytes_read + CHECK_COPIES * entries[case.id].bytes_written + FIXED_BYTES
        if free_bytes is not None and needed > free_bytes:
            skipped[case.id] = (
                f"does not fit: it needs some {needed / 2**30:.1f} GiB of device memory, "
                f"{free_bytes / 2**30:.1f} GiB are free"
            )
        else:
            by_workload.setdefault(case.workload, []).append(case)
    batches: list[tuple[Case, ...]] = []
    for group in by_workload.values():
        parts = -(-len(group) // batch_cases)
        for part in range(parts):
            piece = tuple(group[part * len(group) // parts : (part + 1) * len(group) // parts])
            if batches and len(batches[-1]) + len(piece) <= batch_cases // 2:
                batches[-1] += piece
            else:
                batches.append(piece)
    return Plan(tuple(batches), skipped, {case.id: done[case.id] for case in cases if case.id in done})


def plan_session(definition: Definition, only: Sequence[str], done: Mapping[str, str], gpu: str) -> Plan:
    """What there is to do on this GPU. gpu: its UUID or index."""
    memory = gpu_state(gpu)
    return make_plan(
        definition.only(only),
        entries(definition),
        done=done,
        free_bytes=memory["memory_total_bytes"] - memory["memory_used_bytes"] if memory else None,
        batch_cases=definition.settings.batch_cases,
    )


def entries(definition: Definition) -> dict[str, CaseEntry]:
    """Case id -> the case with its cost. Raises FiprofError where a cost model fails."""
    return {entry.id: entry for entry in collect.case_entries(CollectRequest(cases=definition.cases))}


def label(batch: Sequence[Case]) -> str:
    """``prefill (64)``; of several workloads ``rmsnorm (10), rope (12)``."""
    counts = Counter(short_name(case.workload) for case in batch)
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


# Folder


@dataclass(frozen=True)
class Session:
    """A time that the study was worked on without a break."""

    started: str
    """ISO 8601 with offset."""
    duration_s: float = 0.0
    """Of measuring."""
    extras_s: float = 0.0
    """The part of it that packs measured beyond the cases."""
    status: str = "interrupted"
    """complete, interrupted or failed; a killed one stays interrupted."""
    batches: list[dict[str, Any]] = field(default_factory=list)
    """Where the time of each went, for people who wonder: run, cases, measuring_s (its part on the GPU), tables_s
    (while the next one had the GPU), steps_s (plain, nsys, ncu, the exports; ncu's process waits for nsys's end)."""


@dataclass(frozen=True)
class StudyManifest:
    """The whole of ``study.json``."""

    name: str
    title: str
    source: str
    quick: bool
    settings: dict[str, Any] = field(metadata={SCHEMA: StudySettings})
    """What the measurements depend on; the same for all sessions."""
    sessions: list[Session] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Case id -> why it could not be measured, of cases that took their process with them."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Case id -> why the last session left it out."""
    fiprof: str = ""
    schema_version: int = 2


class StudyFolder:
    """A study's folder, held by this process (``locks.folder_lock``). Safe to call from threads."""

    def __init__(self, path: Path, manifest: StudyManifest) -> None:
        self.path = path
        self.archive = Archive(path)
        self.manifest = manifest
        self._lock = threading.RLock()

    @property
    def session(self) -> Session:
        """The one that is under way."""
        return self.manifest.sessions[-1]

    def update(self, **changes: Any) -> None:
        """Change fields of the manifest, on disk too."""
        with self._lock:
            self.manifest = dataclasses.replace(self.manifest, **changes)
            with files.file_errors(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            files.write_whole(self.path / STUDY_FILE, json_file.encode(self.manifest))

    def note(self, *batches: dict[str, Any], **changes: Any) -> None:
        """Change fields of this session, and add to its batches."""
        with self._lock:
            changed = dataclasses.replace(self.session, batches=[*self.session.batches, *batches], **changes)
            self.update(sessions=[*self.manifest.sessions[:-1], changed])

    def runs(self) -> dict[str, Manifest]:
        """Name -> manifest of the complete runs, oldest first."""
        # A link to a folder elsewhere is no run of the study.
        there = [name for name in self.archive.names() if files.exists(self.path, f"{name}/{FILE_NAME}")]
        found = {name: read_manifest(self.path / name) for name in there}
        return {name: manifest for name, manifest in found.items() if manifest.status == "complete"}

    def done(self) -> dict[str, str]:
        """Case id -> the run that holds it, or why it failed."""
        held = {case.id: name for name, manifest in self.runs().items() for case in manifest.cases}
        return {**self.manifest.failed, **held}

    def begin(self) -> None:
        """End what a killed session left, set aside the runs that did not complete, and begin a session."""
        recover(self.archive)
        files.clear(self.path)
        complete = self.runs()
        for name in self.archive.names():
            if name not in complete:
                self.set_aside(name)
        self.update(sessions=[*self.manifest.sessions, Session(clock.now_text("seconds"))], fiprof=fiprof.__version__)

    def set_aside(self, name: str) -> None:
        """Move a run folder out of the study; it is kept to be looked at, with a number where its name is taken."""
        aside, number = self.path / SET_ASIDE, 1
        with files.file_errors(aside):
            files.make_folder(self.path, SET_ASIDE)
            free = aside / name
            while free.exists():
                number += 1
                free = aside / f"{name}~{number}"
            os.rename(self.path / name, free)


def open_folder(path: Path, definition: Definition) -> StudyFolder:
    """The study's folder, made where there is none.

    Raises FiprofError (exit status 2) for a folder that holds another study, or one measured with other settings.
    """
    settings = definition.settings.measuring()
    another = "name another folder with --out"
    if not (path / STUDY_FILE).exists():
        if path.is_dir() and any(entry.name[0] != "." for entry in path.iterdir()):
            raise FiprofError(f"{path} holds something else: it has no {STUDY_FILE}", another, exit_code=2)
        manifest = StudyManifest(definition.name, definition.title, definition.source, definition.quick, settings)
        folder = StudyFolder(path, manifest)
        folder.update()
        return folder
    manifest = read_study(path)
    if manifest.name != definition.name:
        raise FiprofError(f"{path} holds the study {manifest.name}", another, exit_code=2)
    # What an older fiprof had no setting for was at its default.
    before = {**StudySettings().measuring(), **manifest.settings}
    if changed := [key for key in settings if before[key] != settings[key]]:
        raise FiprofError(
            f"{path} was measured with another {', '.join(changed)}: "
            + ", ".join(f"{key} {before[key]}, now {settings[key]}" for key in changed),
            f"cases of one study are measured alike: {another}, or remove this one",
            exit_code=2,
        )
    return StudyFolder(path, manifest)


def read_study(path: Path) -> StudyManifest:
    """``study.json`` of a folder. Raises FiprofError where it is missing, damaged or of a later schema."""
    remedy = "restore it from a copy, or start anew with another --out"
    return json_file.read(path / STUDY_FILE, StudyManifest, remedy, makes="fiprof study NAME makes one")


# Results


def write_results(definition: Definition, folder: StudyFolder) -> EnvironmentInfo:
    """Write ``<workload>.json`` of each workload with a case that was measured, skipped or failed, and
    ``environment_info.json``, which is returned.

    Raises FiprofError for a cost model that fails, a run whose tables cannot be read, or files that cannot be written.
    """
    manifest, runs, costs = folder.manifest, folder.runs(), entries(definition)
    why = {**manifest.skipped, **{case: f"failed: {text}" for case, text in manifest.failed.items()}}
    cases = {case: unmeasured(costs[case], text) for case, text in why.items() if case in costs}
    for name in runs:
        if not whole(folder.path / name):
            parse_all(folder.path / name)
        cases |= {case.id: case for case in case_results(Run(folder.path / name)) if case.id in costs}
    missing = Counter(short_name(case.workload) for case in definition.cases if case.id not in cases)
    skipped = sum(bool(case.skipped) for case in cases.values())
    by_workload: dict[str, list[Any]] = {}
    for case in definition.cases:
        if case.id in cases:
            by_workload.setdefault(short_name(case.workload), []).append(cases[case.id])
    info = EnvironmentInfo(
        study=definition.name,
        title=definition.title,
        started=manifest.sessions[0].started if manifest.sessions else "",
        duration_s=round(sum(session.duration_s - session.extras_s for session in manifest.sessions), 1),
        status="incomplete" if missing else "complete",
        missing=dict(missing),
        cases=len(cases) - skipped,
        skipped=skipped,
        workloads=list(by_workload),
        runs=list(runs),
        settings={"quick": manifest.quick, **manifest.settings},
        environment=next((run.environment for run in runs.values()), {}),
        mixed=mixed(run.environment for run in runs.values()),
        run_warnings={name: list(run.warnings) for name, run in runs.items() if run.warnings},
        fiprof=fiprof.__version__,
    )
    with files.file_errors(folder.path):
        files.make_folder(folder.path, RESULTS)
        for workload, found in by_workload.items():
            content = KernelResults(workload, definition.name, found, fiprof.__version__)
            results.write(folder.path / RESULTS / f"{workload}.json", content)
        results.write(folder.path / RESULTS / ENVIRONMENT, info)
    return info


def mixed(environments: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What differs between the runs' environments that should not -> its values."""
    packages = ["torch", *(name for found in packs.parts("packages").values() for name in found)]
    seen: dict[str, dict[str, None]] = {}
    for environment in environments:
        facts = {
            "GPU": (environment.get("gpu") or {}).get("uuid"),
            "driver": ((environment.get("gpu_state") or {}).get("before") or {}).get("driver"),
            **{name: (environment.get("packages") or {}).get(name) for name in packages},
            **{name: (environment.get("tools") or {}).get(name) for name in ("nsys", "ncu")},
        }
        for what, value in facts.items():
            if value:
                seen.setdefault(what, {})[str(value)] = None
    return {what: list(values) for what, values in seen.items() if len(values) > 1}


# Measuring


@dataclass(frozen=True)
class PackRequest:
    """What a pack is asked for in a study, by its ``extras`` and its ``after_measuring``."""

    study: str
    results: Path
    """The folder of the results; it may not exist yet."""
    python: str
    """The interpreter that has torch and flashinfer."""
    gpu: int | None
    """As nvidia-smi counts; None for the first that is visible."""
    bench: Bench
    cases: tuple[Case, ...] = ()
    """Of an extra: as the study's table ``extras`` names them."""
    kernels: tuple[str, ...] = ()
    """After measuring: full names of the kernels that ran, those of earlier sessions too."""


Extra = Callable[[PackRequest], None]
"""Measures, and writes its results file; does nothing where that is there."""


def run_study(
    definition: Definition, bench: Bench, *, python: str, gpu: int | None, only: Sequence[str] = ()
) -> EnvironmentInfo:
    """Measure what the study's folder, the bench's archive, does not hold yet, and write its results.

    python, gpu: as of :class:`PackRequest`. only: workloads to measure; all without.
    Raises FiprofError before anything is made for a folder of something else, a missing tool, or a GPU that is taken;
    Interrupted when told to stop; and what ends a batch by something else than one of its cases. What was measured
    is kept, and its results are written.
    """
    cases, path = definition.only(only), bench.archive.root
    request = CollectRequest(cases=cases, gpu=gpu, python=python, keep_going=True, **shared(definition.settings))
    asked = PackRequest(definition.name, path / RESULTS, python, gpu, bench)
    tools = collect.require_tools(request) if cases else {}
    path.mkdir(parents=True, exist_ok=True)
    with folder_lock(path):
        folder = open_folder(path, definition)
        folder.begin()
        try:
            if cases:
                uuid = visible_gpu(gpu)
                with bench.holding(uuid):
                    plan = plan_session(definition, only, folder.done(), uuid)
                    folder.update(skipped={**folder.manifest.skipped, **plan.skipped})
                    _Batches(folder, request, tools, uuid, bench, plan.cases).measure(plan)
            for name in definition.extras:
                if name in only or (definition.settings.extras and not only):
                    began = time.monotonic()
                    try:
                        packs.merged("extras")[name](dataclasses.replace(asked, cases=definition.extras[name]))
                    finally:
                        seconds, session = time.monotonic() - began, folder.session
                        folder.note(
                            duration_s=round(session.duration_s + seconds, 1),
                            extras_s=round(session.extras_s + seconds, 1),
                        )
            folder.note(status="complete")
        except (Interrupted, KeyboardInterrupt):
            raise
        except BaseException:
            folder.note(status="failed")
            raise
        finally:
            with bench.progress.step("results"):
                info = write_results(definition, folder)
        written = [results.read(path / RESULTS / f"{name}.json", KernelResults) for name in info.workloads]
        ran = {kernel.kernel_full for each in written for case in each.cases for kernel in case.kernels}
        packs.parts("after_measuring", dataclasses.replace(asked, kernels=tuple(sorted(ran))))
    return info


class _Batches:
    """The batches of a session: each has the GPU while the tables of the one before are made."""

    def __init__(
        self, folder: StudyFolder, request: CollectRequest, tools: dict[str, Tool], gpu: str, bench: Bench, total: int
    ) -> None:
        """total: cases to measure."""
        self.folder, self.bench = folder, bench
        self.request, self.tools, self.gpu, self.total = request, tools, gpu, total
        # Cases measured, and those whose tables are made; batches that failed one after the other.
        self.measured = self.concluded = self.failures = 0
        self.begin = time.monotonic()
        # Ctrl-C ends the measuring; the tables of what was measured before take seconds, and are made.
        self.tables = Supervisor()
        self.concluding: list[Future[None]] = []

    def measure(self, plan: Plan) -> None:
        """Measure the batches; those at fault are left out of a batch that failed. Raises as :func:`run_study` does."""
        if plan.done:
            self.bench.progress.say(f"{len(plan.done)} cases are done already")
        for case, why in plan.skipped.items():
            self.bench.progress.say(f"skipped: {case} {why}")
        if plan.batches:
            self.bench.progress.say(
                f"{plan.cases} cases in {len(plan.batches)} batches of a plain, an nsys and an ncu process each; "
                f"{self.request.rounds} rounds, ncu --set {self.request.ncu_set}"
            )
        queue, number = deque(plan.batches), 0
        try:
            with ThreadPoolExecutor(1) as pool:
                while queue:
                    number, batch = number + 1, queue.popleft()
                    self._raise_for_tables()
                    what = f"batch {number} of {number + len(queue)}, {self.measured} of {self.total} cases"
                    self.bench.progress.detail("study", f"{what}{self._left()}")
                    began = time.monotonic()
                    request = dataclasses.replace(self.request, cases=batch)
                    quiet = dataclasses.replace(self.bench, progress=self.bench.progress.without_lines())
                    collection = collect.start(request, self.tools, self.gpu, quiet)
                    collection.measure()
                    measuring_s = time.monotonic() - began
                    if collection.problem is not None:
                        if left := self._failed(batch, collection.conclude(self.tables)):
                            queue.appendleft(left)
                        continue
                    self.failures = 0
                    self.measured += len(batch)
                    self.folder.note(duration_s=self._seconds)
                    self.concluding.append(pool.submit(self._conclude, collection, batch, measuring_s))
            self._raise_for_tables()
        finally:
            self.folder.note(duration_s=self._seconds)

    def _raise_for_tables(self) -> None:
        """What went wrong with the tables that are finished: with the next batch's it would again."""
        for concluding in self.concluding:
            if concluding.done():
                concluding.result()

    def _conclude(self, collection: collect.Collection, batch: Sequence[Case], measuring_s: float) -> None:
        """Make a batch's tables, and say how it went. Raises what went wrong."""
        began = time.monotonic()
        result = collection.conclude(self.tables)
        if result.problem is not None:
            raise result.problem
        manifest = read_manifest(result.path)
        tables_s = time.monotonic() - began
        steps_s = {action.step: round(action.duration_s, 1) for action in manifest.actions}
        times = {"measuring_s": round(measuring_s, 1), "tables_s": round(tables_s, 1), "steps_s": steps_s}
        self.folder.note({"run": manifest.name, "cases": len(batch), **times})
        self.concluded += len(batch)
        plain, nsys = (steps_s.get(step, 0.0) for step in ("plain", "nsys"))
        # ncu's process starts beside nsys's and waits for its end.
        ncu = measuring_s - plain - nsys
        self.bench.progress.say(
            f"{label(batch)}: {measuring_s:.1f} s (plain {plain:.1f}, nsys {nsys:.1f}, ncu {ncu:.1f}), "
            f"tables {tables_s:.1f} s beside the next; {self.concluded} of {self.total} cases{self._left()}; "
            f"{manifest.name}"
        )
        for warning in manifest.warnings:
            self.bench.progress.say(f"  {warning}")

    def _failed(self, batch: Sequence[Case], result: Result) -> tuple[Case, ...]:
        """Note the cases that a batch failed by; the others. Raises its problem where none did, or too many failed."""
        problem = result.problem
        assert problem is not None
        if isinstance(problem, Interrupted):
            raise problem
        self.failures += 1
        at_fault = culprits(result.path, read_manifest(result.path))
        if not at_fault or self.failures > MOST_FAILURES:
            raise problem
        self.folder.set_aside(result.path.name)
        self.folder.update(failed={**self.folder.manifest.failed, **at_fault})
        for case, why in at_fault.items():
            self.bench.progress.say(f"failed: {case}: {why}; its batch is measured again without it")
        return tuple(case for case in batch if case.id not in at_fault)

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
