"""A study: a matrix of cases as a TOML file declares it, measured in few processes over as many sessions as it takes.

Its folder has its runs, its results, which can be made again, and ``study.json``: how it came about.
"""

import dataclasses
import os
import statistics
import sys
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
from fiprof.analysis.study import Study, case_results, unmeasured
from fiprof.analysis.study import load as load_results
from fiprof.errors import FiprofError, Interrupted
from fiprof.model import json_file, packs, results
from fiprof.model.json_file import SCHEMA
from fiprof.model.manifest import FILE_NAME, STUDY_FILE, CaseEntry, Manifest, read_manifest
from fiprof.model.results import ENVIRONMENT, RESULTS, EnvironmentInfo, KernelResults
from fiprof.model.run import Run
from fiprof.model.settings import StudySettings, settings_of, shared
from fiprof.orchestrator import batches, collect, executors
from fiprof.orchestrator.batches import Job, Outcome, culprits, set_aside
from fiprof.orchestrator.commands import CollectRequest
from fiprof.orchestrator.locks import folder_lock
from fiprof.orchestrator.parse import parse_all, whole
from fiprof.orchestrator.process import Supervisor
from fiprof.orchestrator.run_folder import Archive, recover
from fiprof.orchestrator.run_session import Bench, Result, Silent
from fiprof.orchestrator.tools import Tool, gpu_state, visible_gpu
from fiprof.text import join_words
from fiprof.workloads.base import format_value
from fiprof.workloads.case import Case, make_cases, parse_case, short_name

MOST_FAILURES = 3
"""Batches that may fail one after the other, each by a case that took its process with it, before the study ends."""
POLL_S = 0.05


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

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that measures it, wherever."""
        return ("fiprof", "study", self.source, *(["--quick"] if self.quick else []))

    def folder(self, archive: Path) -> Path:
        """Where it lies in an archive, if nobody says otherwise."""
        return archive / f"study-{self.name}{'-quick' if self.quick else ''}"

    def run(self, on: Any = "local", *, out: str | None = None, only: Sequence[str] = (), python: str = "") -> Study:
        """Measure what the study's folder does not hold yet. Returns all that it holds then.

        on: as ``--on`` takes it, or any executor as ``concurrent.futures`` has them, whose workers see the folder.
        out: the folder. python: the interpreter that has torch and flashinfer. Raises FiprofError.
        """
        python = python or os.environ.get("FIPROF_PYTHON") or sys.executable
        path = Path(out) if out else self.folder(Path(os.environ.get(files.ARCHIVE_VARIABLE) or files.ARCHIVE_FOLDER))
        run_study(self, Bench(Archive(path), Silent(), Supervisor()), python=python, gpu=None, only=only, on=on)
        return load_results(path)


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
    by_workload: dict[str, list[Case]] = {}
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
        before = by_workload.get(workload)
        by_workload[workload] = list(dict.fromkeys((*before, *made))) if before else made
    if unknown := sorted(found.extras.keys() - packs.merged("extras").keys()):
        raise FiprofError(f"extras has no {', '.join(unknown)}; it has {', '.join(packs.merged('extras'))}")
    _settings(found.quick, "quick")
    return Definition(
        name=found.name,
        title=found.title or found.name,
        source=source,
        cases=tuple(case for group in by_workload.values() for case in sorted(group, key=lambda case: case.params)),
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
        if why := batches.too_large(entries[case.id].bytes_read, entries[case.id].bytes_written, free_bytes):
            skipped[case.id] = why
        else:
            by_workload.setdefault(case.workload, []).append(case)
    made: list[tuple[Case, ...]] = []
    for group in by_workload.values():
        parts = -(-len(group) // batch_cases)
        for part in range(parts):
            piece = tuple(group[part * len(group) // parts : (part + 1) * len(group) // parts])
            if made and len(made[-1]) + len(piece) <= batch_cases // 2:
                made[-1] += piece
            else:
                made.append(piece)
    return Plan(tuple(made), skipped, {case.id: done[case.id] for case in cases if case.id in done})


def plan_session(definition: Definition, only: Sequence[str], done: Mapping[str, str], gpu: str) -> Plan:
    """What there is to do on this GPU. gpu: its UUID or index."""
    return make_plan(
        definition.only(only),
        entries(definition),
        done=done,
        free_bytes=batches.free_bytes(gpu_state(gpu)),
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
    submitted: dict[str, list[str]] = field(default_factory=dict)
    """A cluster's number of a batch that was handed to it and not heard of since -> its cases."""
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

    def pooled(self) -> dict[str, Manifest]:
        """Of them, where several boards measured, those of one kind of board, driver and packages: of most cases."""
        kinds: dict[str, dict[str, Manifest]] = {}
        held: dict[str, set[str]] = {}
        for name, manifest in (runs := self.runs()).items():
            kind = str({what: value for what, value in _facts(manifest.environment).items() if what != "GPU"})
            kinds.setdefault(kind, {})[name] = manifest
            held.setdefault(kind, set()).update(case.id for case in manifest.cases if not case.anchor)
        several = any(case.anchor for manifest in runs.values() for case in manifest.cases)
        return kinds[max(held, key=lambda kind: len(held[kind]))] if several else runs

    def done(self) -> dict[str, str]:
        """Case id -> the run that holds it, or why it failed."""
        runs = self.pooled().items()
        held = {case.id: name for name, manifest in runs for case in manifest.cases if not case.anchor}
        return {**self.manifest.failed, **held}

    def tidy(self) -> None:
        """End what a killed session left, and set aside the runs that did not complete."""
        recover(self.archive)
        files.clear(self.path)
        complete = self.runs()
        for name in self.archive.names():
            if name not in complete:
                set_aside(self.path, name)

    def begin(self) -> None:
        """Begin a session in a tidy folder."""
        self.tidy()
        self.update(sessions=[*self.manifest.sessions, Session(clock.now_text("seconds"))], fiprof=fiprof.__version__)


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
    manifest, runs, costs = folder.manifest, folder.pooled(), entries(definition)
    boards = {name: _board(run.environment) for name, run in runs.items()}
    anchors: dict[str, dict[str, list[float]]] = {}
    why = {**manifest.skipped, **{case: f"failed: {text}" for case, text in manifest.failed.items()}}
    cases = {case: unmeasured(costs[case], text) for case, text in why.items() if case in costs}
    for name in runs:
        if not whole(folder.path / name):
            parse_all(folder.path / name)
        beside = {case.id for case in runs[name].cases if case.anchor}
        found = [case for case in case_results(Run(folder.path / name)) if case.id in costs]
        cases |= {case.id: case for case in found if case.id not in beside}
        for each in found:
            if each.plain:
                anchors.setdefault(each.id, {}).setdefault(boards[name], []).append(each.plain.median_us)
    anchors = {case: of for case, of in anchors.items() if len(of) > 1}
    environments = [run.environment for run in runs.values()]
    left_out = {
        name: [f"left out, for it had another {join_words(list(mixed([*environments[:1], run.environment])))}"]
        for name, run in folder.runs().items()
        if name not in runs
    }
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
        mixed={what: values for what, values in mixed(environments).items() if what != "GPU" or not anchors},
        run_warnings={**{name: list(run.warnings) for name, run in runs.items() if run.warnings}, **left_out},
        boards=boards if anchors else {},
        anchors={case: {board: statistics.median(us) for board, us in of.items()} for case, of in anchors.items()},
        fiprof=fiprof.__version__,
    )
    with files.file_errors(folder.path):
        files.make_folder(folder.path, RESULTS)
        for workload, measured in by_workload.items():
            content = KernelResults(workload, definition.name, measured, fiprof.__version__)
            results.write(folder.path / RESULTS / f"{workload}.json", content)
        results.write(folder.path / RESULTS / ENVIRONMENT, info)
    return info


def _board(environment: Mapping[str, Any]) -> str:
    """The GPU's UUID; empty where nothing says it."""
    gpu, state = environment.get("gpu") or {}, (environment.get("gpu_state") or {}).get("before") or {}
    return str(gpu.get("uuid") or state.get("uuid") or "")


def _facts(environment: Mapping[str, Any]) -> dict[str, str]:
    """What should not differ between the runs of a study, as far as it is known."""
    packages = ["torch", *(name for found in packs.parts("packages").values() for name in found)]
    state = (environment.get("gpu_state") or {}).get("before") or {}
    facts = {
        "GPU": (environment.get("gpu") or {}).get("uuid"),
        "kind of GPU": state.get("name"),
        "driver": state.get("driver"),
        "highest clock": state.get("max_sm_clock_mhz"),
        "power limit": state.get("power_limit_w"),
        "MIG mode": state.get("mig"),
        "ECC mode": state.get("ecc"),
        **{name: (environment.get("packages") or {}).get(name) for name in packages},
        **{name: (environment.get("tools") or {}).get(name) for name in ("nsys", "ncu")},
    }
    return {what: str(value) for what, value in facts.items() if value is not None and value != ""}


def mixed(environments: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What differs between the runs' environments that should not -> its values."""
    seen: dict[str, dict[str, None]] = {}
    for environment in environments:
        for what, value in _facts(environment).items():
            seen.setdefault(what, {})[value] = None
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
    definition: Definition, bench: Bench, *, python: str, gpu: int | None, only: Sequence[str] = (), on: Any = None
) -> EnvironmentInfo:
    """Measure what the study's folder, the bench's archive, does not hold yet, and write its results.

    python, gpu: as of :class:`PackRequest`. only: workloads to measure; all without. on: who measures, as
    :func:`executors.opened` takes it; None for this process, on one GPU.
    Raises FiprofError before anything is made for a folder of something else, a missing tool, or a GPU that is taken;
    Interrupted when told to stop; and what ends a batch by something else than one of its cases. What was measured
    is kept, and its results are written.
    """
    cases, path = definition.only(only), bench.archive.root
    request = CollectRequest(cases=cases, gpu=gpu, python=python, keep_going=True, **shared(definition.settings))
    asked = PackRequest(definition.name, path / RESULTS, python, gpu, bench)
    tools = collect.require_tools(request) if cases and on is None else {}
    path.mkdir(parents=True, exist_ok=True)
    with folder_lock(path):
        folder = open_folder(path, definition)
        folder.begin()
        try:
            here, whole = True, True
            if cases and on is not None:
                with executors.opened(on, path.resolve(), bench.executor.stopping) as workers:
                    here = workers.here
                    whole = _Distributed(definition, folder, request, workers, bench).measure()
            elif cases:
                uuid = visible_gpu(gpu)
                with bench.holding(uuid):
                    plan = plan_session(definition, only, folder.done(), uuid)
                    folder.update(skipped={**folder.manifest.skipped, **plan.skipped})
                    _Batches(folder, request, tools, uuid, bench, plan.cases).measure(plan)
            for name in definition.extras:
                if name in only or (here and definition.settings.extras and not only):
                    began = time.monotonic()
                    try:
                        packs.merged("extras")[name](dataclasses.replace(asked, cases=definition.extras[name]))
                    finally:
                        seconds, session = time.monotonic() - began, folder.session
                        folder.note(
                            duration_s=round(session.duration_s + seconds, 1),
                            extras_s=round(session.extras_s + seconds, 1),
                        )
            folder.note(status="complete" if whole else "interrupted")
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


class _Distributed:
    """The batches of a session that several workers measure, each on a GPU of its own."""

    def __init__(
        self,
        definition: Definition,
        folder: StudyFolder,
        request: CollectRequest,
        workers: executors.Workers,
        bench: Bench,
    ) -> None:
        """request: for all cases that are asked for."""
        self.folder, self.workers, self.bench = folder, workers, bench
        self.request = dataclasses.replace(request, argv=definition.argv)
        self.groups = batches.groups(definition.cases)
        self.anchors, self.filling = batches.anchors(self.groups), batches.fillers(self.groups)
        self.most = definition.settings.batch_cases
        self.without = tuple(sorted(folder.runs().keys() - folder.pooled().keys()))
        self.running: dict[Any, Job] = {}
        self.tries: Counter[str] = Counter()
        self.problem: FiprofError | None = None
        self.begin = clock.monotonic()

    def jobs(self) -> list[Job]:
        """What is not done yet, in batches; those that a cluster has already as they were handed to it."""
        done, submitted = self.folder.done(), self.folder.manifest.submitted
        left = list(self.request.cases)
        if done or submitted:
            by_id = {case.id: case for case in left if case.id not in done}
            for number, ids in submitted.items():
                if cases := tuple(by_id.pop(name) for name in ids if name in by_id):
                    job, attach = self._job(cases), self.workers.attach if len(cases) == len(ids) else None
                    self.running[attach(number) if attach else self.workers.submit(batches.measure, job)] = job
            left = list(by_id.values())
        boards = self.workers.boards or max(-(-len(left) // self.most), 1)
        self.bench.progress.say(
            f"{len(done)} cases are done already, {len(left)} in batches for {boards} GPUs"
            f"{f', {len(self.running)} batches handed out before' if self.running else ''}"
        )
        return [self._job(batch) for batch in batches.deal(left, self.groups, boards, self.most)]

    def _job(self, cases: tuple[Case, ...]) -> Job:
        unmeasurable = {**self.folder.manifest.failed, **self.folder.manifest.skipped}
        beside = [case for case in self.anchors if case not in cases and case.id not in unmeasurable]
        ids = frozenset(case.id for case in beside)
        request = dataclasses.replace(self.request, cases=(*cases, *beside), anchors=ids)
        return Job(str(self.folder.path.resolve()), request, self.filling, self.without)

    def measure(self) -> bool:
        """Measure all, or leave it to a cluster; whether all was heard of.

        Raises Interrupted, and the problem of a batch that failed too often once the others are measured.
        """
        waiting, stopping = deque(self.jobs()), self.bench.executor.stopping
        most = self.workers.most or len(waiting) + len(self.running) + 1
        try:
            while waiting or self.running:
                while waiting and len(self.running) < most:
                    job = waiting.popleft()
                    self.running[self.workers.submit(batches.measure, job)] = job
                self._note_submitted()
                if self.workers.attach and not self.bench.wait and not waiting:
                    self.bench.progress.say(f"{len(self.running)} batches are left to the cluster")
                    return False
                for pending in [each for each in self.running if each.done()]:
                    if again := self._take(pending, self.running.pop(pending)):
                        waiting.append(again)
                if self.running and stopping.wait(POLL_S):
                    raise Interrupted
        finally:
            self._note_submitted()
            self.folder.note(duration_s=self._seconds)
            for pending in self.running if not self.workers.attach else ():
                pending.cancel()
        self.folder.tidy()
        if self.problem:
            raise self.problem
        return True

    def _note_submitted(self) -> None:
        known = {}
        if self.workers.attach:
            known = {pending.job_id: [case.id for case in job.own] for pending, job in self.running.items()}
        if known != self.folder.manifest.submitted:
            self.folder.update(submitted=known)

    def _take(self, pending: Any, job: Job) -> Job | None:
        """Note what became of a batch; what is to be measured again of it."""
        try:
            outcome = pending.result()
        except (Interrupted, KeyboardInterrupt):
            raise Interrupted from None
        except Exception as error:
            # Each engine says in its own way that a worker is gone.
            outcome = Outcome(message=f"its worker is gone: {str(error).partition(chr(10))[0] or type(error).__name__}")
        say, manifest, left_out = self.bench.progress.say, self.folder.manifest, {**outcome.failed, **outcome.skipped}
        if left_out:
            failed, skipped = {**manifest.failed, **outcome.failed}, {**manifest.skipped, **outcome.skipped}
            self.folder.update(failed=failed, skipped=skipped)
        for case, why in left_out.items():
            say(f"left out: {case}: {why}")
        if outcome.run:
            times = {"measuring_s": outcome.measuring_s, "tables_s": outcome.tables_s}
            self.folder.note({"run": outcome.run, "cases": len(job.own), **times}, duration_s=self._seconds)
            seconds = f"{outcome.measuring_s:.1f} s, tables {outcome.tables_s:.1f} s"
            where = f" on GPU {outcome.gpu}: {seconds}" if outcome.gpu else ", measured before"
            say(f"{label(job.own)}{where}; {len(self.running)} batches under way; {outcome.run}")
        if not outcome.message:
            return None
        cases, tries = tuple(case for case in job.own if case.id not in left_out), self.tries[job.key] + 1
        if cases and tries > MOST_FAILURES:
            problem = f"{label(job.own)} failed {tries} times, the last time so: {outcome.message}"
            self.problem = FiprofError(problem, outcome.remedy or "the same command tries it again")
            cases = ()
        say(f"{label(job.own)} is measured again: {outcome.message}" if cases else f"left out: {label(job.own)}")
        if not cases:
            return None
        again = self._job(cases)
        self.tries[again.key] = tries
        return again

    @property
    def _seconds(self) -> float:
        return round(clock.monotonic() - self.begin, 1)


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
        set_aside(self.folder.path, result.path.name)
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
