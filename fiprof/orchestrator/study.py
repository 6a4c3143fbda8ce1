"""A study: a matrix of cases as a TOML file declares it, measured in few processes over as many sessions as it takes.

Its folder holds its runs, its results, which are made of these, and ``study.json``: its settings and sessions.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

import fiprof
from fiprof import clock, files
from fiprof.analysis.alternatives import unmeasured
from fiprof.analysis.comparison.runs import BOARD, CONDITIONS, Weight
from fiprof.analysis.study import Study, case_results
from fiprof.analysis.study import load as load_results
from fiprof.errors import FiprofError, Interrupted
from fiprof.model import json_file, layout, packs, results
from fiprof.model.json_file import SCHEMA
from fiprof.model.manifest import CaseEntry, Manifest, fact, read_manifest
from fiprof.model.results import ENVIRONMENT, RESULTS, EnvironmentInfo, KernelResults
from fiprof.model.run import Run
from fiprof.model.selection import by_key
from fiprof.model.settings import Settings, StudySettings, settings_of
from fiprof.orchestrator import batches, collect, executors
from fiprof.orchestrator.batches import BatchOutcome, Job, set_aside
from fiprof.orchestrator.commands import CollectRequest
from fiprof.orchestrator.executors import Workers
from fiprof.orchestrator.locks import folder_lock
from fiprof.orchestrator.parse import parse_all, whole
from fiprof.orchestrator.run_folder import Archive, recover
from fiprof.orchestrator.run_session import Bench
from fiprof.orchestrator.tools import visible_gpu
from fiprof.text import count, join_words
from fiprof.workloads.base import format_value
from fiprof.workloads.case import Case, make_cases, parse_case, short_name

MOST_FAILURES = 3
"""Times that a batch is measured again before it is given up; in one process, batches in a row that may fail, each by
a case that crashed the process, before the study ends."""
POLL_S = 0.05  # between two looks at the workers


@dataclass(frozen=True)
class Definition:
    """A study as declared."""

    name: str
    title: str
    source: str  # the packaged study's name, or the file
    cases: tuple[Case, ...]
    """Every case once, in the declared order of the workloads, those of a workload in the order of its parameters."""
    settings: StudySettings
    quick: bool
    extras: Mapping[str, tuple[Case, ...]]  # what a pack measures beyond the cases, e.g. ``jit`` -> for which cases

    def only(self, words: Sequence[str]) -> tuple[Case, ...]:
        """The cases of the named workloads; all without names. Raises FiprofError (exit status 2) for one unknown."""
        names = [*dict.fromkeys(short_name(case.workload) for case in self.cases), *self.extras]
        if unknown := [word for word in words if word not in names]:
            what = f"the study {self.name} has no {', '.join(unknown)}"
            raise FiprofError(what, f"--only takes of {', '.join(names)}", exit_code=2)
        return tuple(case for case in self.cases if not words or short_name(case.workload) in words)

    def folder(self, archive: Path) -> Path:
        """Its default folder in an archive."""
        return archive / f"study-{self.name}{'-quick' if self.quick else ''}"

    def run(self, on: Any = "local", *, out: str | None = None, only: Sequence[str] = (), python: str = "") -> Study:
        """Measure the cases that the study's folder does not hold yet. Returns the results of all.

        on: as ``--on`` takes it, or any executor as ``concurrent.futures`` has them, whose workers see the folder.
        out: the folder. python: the interpreter that has torch and flashinfer. Raises FiprofError.
        """
        python = python or os.environ.get("FIPROF_PYTHON") or sys.executable
        path = Path(out) if out else self.folder(files.archive_folder())
        run_study(self, Bench(Archive(path)), python=python, gpu=None, only=only, on=on)
        return load_results(path)


class _File(Struct, forbid_unknown_fields=True):
    """The content of a study's TOML file."""

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
    studies: dict[str, Path | Mapping[str, Any]] = dict(sorted(packs.merged("studies").items()))
    example = "docs/study.md says what stands in one"  # a remedy
    source = studies.get(text, Path(text))
    if isinstance(source, Path) and not source.is_file():
        remedy = f"the installed packs bring {', '.join(studies)}; one of your own is a TOML file: {example}"
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
    """The study that a file declares. Raises FiprofError or MisfitError, which say what is wrong in it."""
    file = json_file.convert(data, _File)
    by_workload: dict[str, list[Case]] = {}
    for number, block in enumerate(file.cases, 1):
        words: dict[str, list[str]] = {}
        try:
            if not isinstance(workload := block.get("workload"), str):
                raise FiprofError("it has no workload")
            for key, value in block.items():
                if key == "workload":
                    continue
                values = value if isinstance(value, list) else [value]
                if not values or not all(isinstance(each, bool | int | float | str) for each in values):
                    raise FiprofError(f"{key} is neither a value nor a list of values")
                words[key] = [format_value(each) for each in values]
            of_words = make_cases(workload, words)
        except FiprofError as error:
            raise FiprofError(f"[[cases]] {number}: {error.message}", error.remedy) from error
        before = by_workload.get(workload)
        by_workload[workload] = list(dict.fromkeys((*before, *of_words))) if before else of_words
    if unknown := sorted(file.extras.keys() - packs.merged("extras").keys()):
        raise FiprofError(f"extras has no {', '.join(unknown)}; it has {', '.join(packs.merged('extras'))}")
    _settings(file.quick, "quick")
    return Definition(
        name=file.name,
        title=file.title or file.name,
        source=source,
        cases=tuple(case for group in by_workload.values() for case in sorted(group, key=lambda case: case.params)),
        settings=_settings({**file.settings, **(file.quick if quick else {})}, "settings"),
        quick=quick,
        extras={name: tuple(map(parse_case, texts)) for name, texts in file.extras.items()},
    )


def _settings(given: Mapping[str, Any], where: str) -> StudySettings:
    declared = {each.name: each for each in settings_of(StudySettings)}
    if unknown := sorted(given.keys() - declared.keys()):
        raise FiprofError(f"{where} has no {', '.join(unknown)}; it has {', '.join(declared)}")

    def check(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if problem := declared[name].problem(value):
                raise FiprofError(f"[{where}]: {name} {problem}")

    # Choices first, whose problem names them; the others once they have their types.
    check({name: value for name, value in given.items() if declared[name].choices})
    settings = json_file.convert(dict(given), StudySettings, f"[{where}]")
    check({name: getattr(settings, name) for name in declared})
    return settings


# Batches


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
    """One call of ``fiprof study``, from its start to its end."""

    started: str  # ISO 8601 with offset
    duration_s: float = 0.0  # of measuring
    extras_s: float = 0.0  # its part in which packs measured their extras
    status: str = "interrupted"  # complete, interrupted or failed; a killed one stays interrupted
    batches: list[dict[str, Any]] = field(default_factory=list)
    """Of each batch: run, cases (how many), measuring_s (on the GPU), tables_s (while the next batch has the GPU)."""


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
    """Case id -> why it could not be measured, of cases that crashed their process."""
    skipped: dict[str, str] = field(default_factory=dict)  # case id -> why the last session left it out
    submitted: dict[str, list[str]] = field(default_factory=dict)
    """A cluster's number of a batch that it has not ended yet, as far as is known -> the batch's case ids."""
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
        return self.manifest.sessions[-1]

    def update(self, **changes: Any) -> None:
        """Change fields of the manifest, on disk too."""
        with self._lock:
            self.manifest = dataclasses.replace(self.manifest, **changes)
            with files.file_errors(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            json_file.write(self.path / layout.STUDY_FILE, self.manifest)

    def note(self, *batches: dict[str, Any], **changes: Any) -> None:
        """Add batches to the current session, and change its fields."""
        with self._lock:
            changed = dataclasses.replace(self.session, batches=[*self.session.batches, *batches], **changes)
            self.update(sessions=[*self.manifest.sessions[:-1], changed])

    def runs(self) -> dict[str, Manifest]:
        """Name -> manifest of the complete runs, oldest first."""
        # A link to a folder elsewhere is no run of the study.
        names = [name for name in self.archive.names() if files.exists(self.path, f"{name}/{layout.FILE_NAME}")]
        manifests = {name: read_manifest(self.path / name) for name in names}
        return {name: manifest for name, manifest in manifests.items() if manifest.status == "complete"}

    def pooled(self) -> dict[str, Manifest]:
        """The complete runs that may be compared: of several boards, those of the kind of board, driver and packages
        with most cases."""
        runs_of: dict[str, dict[str, Manifest]] = {}
        cases_of: dict[str, set[str]] = {}
        for name, manifest in (runs := self.runs()).items():
            kind = str({what: value for what, value in _facts(manifest.environment).items() if what != BOARD})
            runs_of.setdefault(kind, {})[name] = manifest
            cases_of.setdefault(kind, set()).update(case.id for case in manifest.cases if not case.anchor)
        several_boards = any(case.anchor for manifest in runs.values() for case in manifest.cases)
        return runs_of[max(cases_of, key=lambda kind: len(cases_of[kind]))] if several_boards else runs

    def done(self) -> dict[str, str]:
        """Case id -> the run that holds it, or why it failed."""
        runs = self.pooled().items()
        run_of = {case.id: name for name, manifest in runs for case in manifest.cases if not case.anchor}
        return {**self.manifest.failed, **run_of}

    def tidy(self) -> None:
        """Finish what a killed session left half done, and set aside the runs that did not complete."""
        recover(self.archive)
        files.clear(self.path)
        complete = self.runs()
        for name in self.archive.names():
            if name not in complete:
                set_aside(self.path, name)


def measured(definition: Definition, path: Path) -> Mapping[str, Any]:
    """:meth:`StudyFolder.done` of a study's folder; empty where there is none. Raises as :func:`open_folder`."""
    return open_folder(path, definition).done() if (path / layout.STUDY_FILE).exists() else {}


def open_folder(path: Path, definition: Definition) -> StudyFolder:
    """The study's folder; it is created where there is none.

    Raises FiprofError (exit status 2) for a folder that holds another study, or one measured with other settings.
    """
    settings = definition.settings.measuring()
    another = "name another folder with --out"
    if not (path / layout.STUDY_FILE).exists():
        if path.is_dir() and any(entry.name[0] != "." for entry in path.iterdir()):
            raise FiprofError(f"{path} holds something else: it has no {layout.STUDY_FILE}", another, exit_code=2)
        manifest = StudyManifest(definition.name, definition.title, definition.source, definition.quick, settings)
        folder = StudyFolder(path, manifest)
        folder.update()
        return folder
    manifest = read_study(path)
    if manifest.name != definition.name:
        raise FiprofError(f"{path} holds the study {manifest.name}", another, exit_code=2)
    # A setting that the older fiprof did not have counts as its default.
    before = {**StudySettings().measuring(), **manifest.settings}
    if changed := [key for key in settings if before[key] != settings[key]]:
        values = ", ".join(f"{key} {before[key]}, now {settings[key]}" for key in changed)
        what = f"{path} was measured with another {', '.join(changed)}: {values}"
        remedy = f"cases of one study are measured alike: {another}, or remove this one"
        raise FiprofError(what, remedy, exit_code=2)
    return StudyFolder(path, manifest)


def read_study(path: Path) -> StudyManifest:
    remedy = "restore it from a copy, or start anew with another --out"
    return json_file.read(path / layout.STUDY_FILE, StudyManifest, remedy, makes="fiprof study NAME makes one")


# Results


def write_results(definition: Definition, folder: StudyFolder) -> EnvironmentInfo:
    """Write ``<workload>.json`` of each workload with a case that was measured, skipped or failed, and
    ``environment_info.json``, which is returned. Raises FiprofError for a cost model that fails.
    """
    manifest, runs, costs = folder.manifest, folder.pooled(), entries(definition)
    opened = {name: Run(folder.path / name) for name in runs}
    boards = {
        name: str(run.environment("gpu", "uuid") or run.environment("gpu_state", "before", "uuid") or "")
        for name, run in opened.items()
    }
    anchors: dict[str, dict[str, list[float]]] = {}  # case id -> board -> its plain medians, µs
    why = {**manifest.skipped, **{case: f"failed: {text}" for case, text in manifest.failed.items()}}
    cases = {case: unmeasured(costs[case], skipped=text) for case, text in why.items() if case in costs}
    for name in runs:
        if not whole(folder.path / name):
            parse_all(folder.path / name)
        anchor_ids = {case.id for case in runs[name].cases if case.anchor}
        of_run = [case for case in case_results(opened[name]) if case.id in costs]
        cases |= {case.id: case for case in of_run if case.id not in anchor_ids}
        for each in of_run:
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
    with_result = (case for case in definition.cases if case.id in cases)
    by_workload = by_key((short_name(case.workload), cases[case.id]) for case in with_result)
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
        mixed={what: values for what, values in mixed(environments).items() if what != BOARD or not anchors},
        run_warnings={**{name: list(run.warnings) for name, run in runs.items() if run.warnings}, **left_out},
        boards=boards if anchors else {},
        anchors={case: {board: statistics.median(us) for board, us in of.items()} for case, of in anchors.items()},
        fiprof=fiprof.__version__,
    )
    with files.file_errors(folder.path):
        files.make_folder(folder.path, RESULTS)
    for workload, measured in by_workload.items():
        content = KernelResults(workload, definition.name, measured, fiprof.__version__)
        json_file.write(folder.path / RESULTS / f"{workload}.json", content)
    json_file.write(folder.path / RESULTS / ENVIRONMENT, info)
    return info


def _facts(environment: dict[str, Any]) -> dict[str, str]:
    """What should be the same in all runs of a study (board, driver, packages, …) -> its value, where it is known."""
    paths = {title: path for _, title, path, weight in CONDITIONS if weight is not Weight.CHANGED}
    packages = ["torch", *(name for names in packs.parts("packages").values() for name in names)]
    paths |= {name: ("packages", name) for name in packages}
    facts = {what: fact(environment, *path) for what, path in paths.items()}
    return {what: str(value) for what, value in facts.items() if value is not None and value != ""}


def mixed(environments: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """What should be the same in all runs and is not -> its values."""
    values_of: dict[str, dict[str, None]] = {}
    for environment in environments:
        for what, value in _facts(environment).items():
            values_of.setdefault(what, {})[value] = None
    return {what: list(values) for what, values in values_of.items() if len(values) > 1}


# Measuring


@dataclass(frozen=True)
class PackRequest:
    """What a study passes to a pack's ``extras`` and ``after_measuring``."""

    study: str
    results: Path  # the folder of the results; it may not exist yet
    python: str  # the interpreter that has torch and flashinfer
    gpu: int | None  # as nvidia-smi counts; None for the first that is visible
    bench: Bench
    cases: tuple[Case, ...] = ()  # of an extra: as the study's table ``extras`` names them
    kernels: tuple[str, ...] = ()  # after measuring: full names of the kernels that ran, those of earlier sessions too


Extra = Callable[[PackRequest], None]  # measures, and writes its results file; does nothing where that is there


def run_study(
    definition: Definition, bench: Bench, *, python: str, gpu: int | None, only: Sequence[str] = (), on: Any = None
) -> EnvironmentInfo:
    """Measure the cases that the study's folder (the bench's archive) does not hold yet, and write its results.

    python, gpu: as of :class:`PackRequest`. only: workloads to measure; all without. on: who measures, as
    :func:`executors.opened` takes it.
    Raises FiprofError for a folder of something else, a missing tool, or a GPU that is taken, before anything is made;
    Interrupted when it is stopped; and whatever ends a batch other than a failing case. The results of what was
    measured until then are written all the same.
    """
    cases, path = definition.only(only), bench.archive.root
    common = {each.name: getattr(definition.settings, each.name) for each in dataclasses.fields(Settings)}
    request = CollectRequest(cases=cases, gpu=gpu, python=python, keep_going=True, **common)
    pack_request = PackRequest(definition.name, path / RESULTS, python, gpu, bench)
    if not measured(definition, path).keys() >= {case.id for case in cases} and executors.workers_of(on).here:
        collect.require_tools(request)
    path.mkdir(parents=True, exist_ok=True)
    with folder_lock(path):
        folder = open_folder(path, definition)
        folder.tidy()
        sessions = [*folder.manifest.sessions, Session(clock.now_text("seconds"))]
        folder.update(sessions=sessions, fiprof=fiprof.__version__)
        try:
            on_this_machine, whole = True, True
            if cases:
                own = (visible_gpu(gpu),) if on is None else ()
                with bench.holding(*own), executors.opened(on, bench) as workers:
                    on_this_machine = workers.here
                    whole = _Batches(definition, folder, request, workers, bench).measure()
            for name in definition.extras:
                if name in only or (on_this_machine and definition.settings.extras and not only):
                    began = time.monotonic()
                    try:
                        packs.merged("extras")[name](dataclasses.replace(pack_request, cases=definition.extras[name]))
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
        packs.parts("after_measuring", dataclasses.replace(pack_request, kernels=tuple(sorted(ran))))
    return info


class _Batches:
    """The batches of a session. This process measures them on one GPU, or workers do, each on a GPU of its own."""

    def __init__(
        self, definition: Definition, folder: StudyFolder, request: CollectRequest, workers: Workers, bench: Bench
    ) -> None:
        """request: for all cases of the session."""
        self.folder, self.workers, self.bench, alone = folder, workers, bench, workers.alone
        # What a worker's run names as its command.
        argv = ("fiprof", "study", definition.source, *(["--quick"] if definition.quick else []))
        self.request = request if alone else dataclasses.replace(request, argv=argv)
        self.most = definition.settings.batch_cases
        self.groups = batches.groups(definition.cases, self.most if alone else 0)
        self.anchors = () if alone else batches.anchors(self.groups)
        self.filling = () if alone else batches.fillers(self.groups)
        self.without = tuple(sorted(folder.runs().keys() - folder.pooled().keys()))
        self.waiting: deque[Job] = deque()
        self.running: dict[Any, Job] = {}
        self.tries: dict[str, int] = {}
        """Key of a batch -> how often it failed; in one process "" -> how many batches failed in a row."""
        self.problem: FiprofError | None = None
        # Cases to measure, and how many of these are measured or left out by now.
        self.total = self.ended = 0
        self.begin = clock.monotonic()

    def _plan(self) -> None:
        """Put the cases that are not done into batches; a batch that a cluster still has stays as it is."""
        done, submitted = self.folder.done(), self.folder.manifest.submitted
        to_measure = [case for case in self.request.cases if not done or case.id not in done]
        self.total = len(to_measure)
        if submitted:
            by_id = {case.id: case for case in to_measure}
            for number, ids in submitted.items():
                if by_id.keys() >= set(ids):
                    job = self._job(tuple(map(by_id.pop, ids)))
                    if self.workers.attach:
                        self.running[self.workers.attach(number)] = job
                    else:
                        self.waiting.append(job)
            to_measure = list(by_id.values())
        boards = self.workers.boards or max(-(-len(to_measure) // self.most), 1)
        self.waiting.extend(map(self._job, batches.deal(to_measure, self.groups, boards, self.most)))
        total, handed, waiting = (len(each) for each in (self.request.cases, self.running, self.waiting))
        new = f"to measure, in {count(waiting, 'batch', 'batches')} for {count(boards, 'GPU')}"
        parts = [f"{len(to_measure):,} of {count(total, 'case')} {new}"] if to_measure else []
        parts += [f"{count(handed, 'batch', 'batches')} handed out before"] if handed else []
        self.bench.progress.say(", ".join(parts) or f"{count(total, 'case')}, all of them done")

    def _job(self, cases: tuple[Case, ...]) -> Job:
        """A batch of these cases, with the anchors behind them."""
        unmeasurable = {**self.folder.manifest.failed, **self.folder.manifest.skipped}
        anchors = [case for case in self.anchors if case not in cases and case.id not in unmeasurable]
        ids = frozenset(case.id for case in anchors)
        request = dataclasses.replace(self.request, cases=(*cases, *anchors), anchors=ids)
        return Job(str(self.folder.path.resolve()), request, self.filling, self.without)

    def measure(self) -> bool:
        """Measure all batches, or hand them to a cluster. Returns whether all are done.

        Raises Interrupted, or the problem of a batch that failed too often, once the batches under way are measured.
        """
        self._plan()
        workers, stopping = self.workers, self.bench.executor.stopping
        try:
            while self.waiting or self.running:
                if stopping.is_set():
                    self.problem = Interrupted()
                    if not workers.here:
                        raise self.problem
                    self.waiting.clear()
                while self.waiting and workers.room(len(self.running)):
                    job = self.waiting.popleft()
                    self.running[workers.submit(job)] = job
                self._note_submitted()
                if workers.attach and not self.bench.wait and not self.waiting:
                    self.bench.progress.say(f"{len(self.running)} batches are left to the cluster")
                    return False
                for pending in [each for each in self.running if each.done()]:
                    self._take(pending, self.running.pop(pending))
                self.bench.progress.detail("study", self._so_far)
                if self.running:
                    time.sleep(POLL_S)
        finally:
            self._note_submitted()
            self.folder.note(duration_s=self._seconds)
            for pending in self.running if not workers.attach else ():
                pending.cancel()
        self.folder.tidy()
        if self.problem:
            raise self.problem
        return True

    def _note_submitted(self) -> None:
        """Note which batches a cluster has."""
        running = self.running if self.workers.attach else {}
        submitted = {pending.job_id: [case.id for case in job.own] for pending, job in running.items()}
        if submitted != self.folder.manifest.submitted:
            self.folder.update(submitted=submitted)

    def _take(self, pending: Any, job: Job) -> None:
        """Note the outcome of a batch; its cases that are to be measured again become a new one."""
        try:
            outcome = pending.result()
        except (Interrupted, KeyboardInterrupt):
            if not self.workers.here:
                raise Interrupted from None
            return
        except Exception as error:
            if self.workers.alone:
                raise
            # Executors differ in the exception for a worker that is gone.
            outcome = BatchOutcome(
                message=f"its worker is gone: {str(error).partition(chr(10))[0] or type(error).__name__}"
            )
        say, manifest, left_out = self.bench.progress.say, self.folder.manifest, {**outcome.failed, **outcome.skipped}
        own, name = job.own, label(job.own)
        cases = tuple(case for case in own if case.id not in left_out) if outcome.message else ()
        self.ended += len(own) - len(cases)
        if left_out:
            failed, skipped = {**manifest.failed, **outcome.failed}, {**manifest.skipped, **outcome.skipped}
            self.folder.update(failed=failed, skipped=skipped)
        for case, why in left_out.items():
            say(f"left out: {case}: {why}")
        if outcome.run:
            times = {"measuring_s": outcome.measuring_s, "tables_s": outcome.tables_s}
            self.folder.note({"run": outcome.run, "cases": len(own), **times}, duration_s=self._seconds)
            seconds = f"{outcome.measuring_s:.1f} s, tables {outcome.tables_s:.1f} s"
            where = f" on GPU {outcome.gpu}: {seconds}" if outcome.gpu else ", measured before"
            say(f"{name}{where}; {self._so_far}; {outcome.run}")
        for warning in outcome.warnings:
            say(f"  {warning}")
        key = "" if self.workers.alone else job.key
        tries = self.tries.pop(key, 0) + 1
        if not outcome.message:
            return
        if self.workers.alone and (tries > MOST_FAILURES or not outcome.failed):
            self.problem = FiprofError(outcome.message, outcome.remedy)
            self.waiting.clear()
            return
        if cases and tries > MOST_FAILURES:
            problem = f"{name} failed {tries} times, the last time so: {outcome.message}"
            self.problem, cases = FiprofError(problem, outcome.remedy or "the same command tries it again"), ()
        say(f"{name} is measured again: {outcome.message}" if cases else f"left out: {name}")
        retry = self._job(cases)
        self.tries[key and retry.key] = tries
        if cases:
            self.waiting.append(retry)

    @property
    def _so_far(self) -> str:
        """How many cases are done, and the time that the rest takes at that rate."""
        left = self.total - self.ended
        seconds = self._seconds / self.ended * left if self.ended else 0.0
        when = f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"
        return f"{self.ended} of {self.total} cases{f', about {when} left' if seconds else ''}"

    @property
    def _seconds(self) -> float:
        return round(clock.monotonic() - self.begin, 1)
