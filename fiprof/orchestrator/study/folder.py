"""A study's folder: its runs, its results, which can be made again, and ``study.json``: how it came about."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fiprof
from fiprof import clock, confined, files
from fiprof.errors import FiprofError
from fiprof.files import file_errors, write_whole
from fiprof.model import json_file, packs, results
from fiprof.model.json_file import SCHEMA
from fiprof.model.layout import STUDY_FILE
from fiprof.model.manifest import FILE_NAME, CaseEntry, Manifest, read_manifest
from fiprof.model.results import ENVIRONMENT, RESULTS, EnvironmentInfo, KernelResults
from fiprof.model.run import Run
from fiprof.model.settings import StudySettings
from fiprof.orchestrator.recovery import recover
from fiprof.orchestrator.run_folder import Archive
from fiprof.orchestrator.study.definition import Definition
from fiprof.workloads.case import short_name

MANIFEST = STUDY_FILE
SET_ASIDE = "set-aside"


@dataclass(frozen=True)
class BatchTimes:
    """Where the time of a batch went, for people who wonder."""

    run: str
    cases: int
    measuring_s: float
    """From its start to the end of its part on the GPU."""
    tables_s: float
    """Exports and tables, while the next batch had the GPU."""
    steps_s: dict[str, float]
    """Seconds of each command: plain, nsys, ncu, the exports. ncu's process waits for nsys's end first."""


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
    batches: list[BatchTimes] = field(default_factory=list)


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
        self.manifest = manifest
        self._lock = threading.RLock()

    @property
    def archive(self) -> Archive:
        """Its run folders lie beside ``results``."""
        return Archive(self.path)

    @property
    def session(self) -> Session:
        """The one that is under way."""
        return self.manifest.sessions[-1]

    def update(self, **changes: Any) -> None:
        """Change fields of the manifest, on disk too."""
        with self._lock:
            self.manifest = dataclasses.replace(self.manifest, **changes)
            _write(self.path, self.manifest)

    def begin(self) -> None:
        """A new session; its status says interrupted until it ends."""
        now = clock.now_text("seconds")
        self.update(sessions=[*self.manifest.sessions, Session(now)], fiprof=fiprof.__version__)

    def note(self, **changes: Any) -> None:
        """Change fields of this session."""
        with self._lock:
            *earlier, current = self.manifest.sessions
            self.update(sessions=[*earlier, dataclasses.replace(current, **changes)])

    def note_batch(self, times: BatchTimes) -> None:
        with self._lock:
            self.note(batches=[*self.session.batches, times])

    def note_failed(self, cases: Mapping[str, str]) -> None:
        self.update(failed={**self.manifest.failed, **cases})

    def runs(self) -> dict[str, Manifest]:
        """Name -> manifest of the complete runs, oldest first."""
        # A link to a folder elsewhere is no run of the study.
        there = [name for name in self.archive.names() if confined.exists(self.path, f"{name}/{FILE_NAME}")]
        found = {name: read_manifest(self.path / name) for name in there}
        return {name: manifest for name, manifest in found.items() if manifest.status == "complete"}

    def done(self) -> dict[str, str]:
        """Case id -> the run that holds it, or why it failed."""
        found = dict(self.manifest.failed)
        for name, manifest in self.runs().items():
            found |= {case.id: name for case in manifest.cases}
        return found

    def tidy(self) -> None:
        """End what a killed session left, and set aside the runs that did not complete."""
        recover(self.archive)
        files.clear(self.path)
        complete = self.runs()
        for name in self.archive.names():
            if name not in complete:
                self.set_aside(name)

    def set_aside(self, name: str) -> None:
        """Move a run folder out of the study; it is kept to be looked at."""
        aside = self.path / SET_ASIDE
        with file_errors(aside):
            confined.make_folder(self.path, SET_ASIDE)
            os.rename(self.path / name, _free(aside / name))


def open_folder(path: Path, definition: Definition) -> StudyFolder:
    """The study's folder, made where there is none.

    Raises FiprofError (exit status 2) for a folder that holds another study, or one measured with other settings.
    """
    settings = definition.settings.measuring()
    if not (path / MANIFEST).exists():
        if path.is_dir() and any(entry.name[0] != "." for entry in path.iterdir()):
            raise FiprofError(
                f"{path} holds something else: it has no {MANIFEST}", "name another folder with --out", exit_code=2
            )
        manifest = StudyManifest(definition.name, definition.title, definition.source, definition.quick, settings)
        _write(path, manifest)
        return StudyFolder(path, manifest)
    manifest = read_study(path)
    if manifest.name != definition.name:
        raise FiprofError(f"{path} holds the study {manifest.name}", "name another folder with --out", exit_code=2)
    # What an older fiprof had no setting for was at its default.
    before = {**StudySettings().measuring(), **manifest.settings}
    changed = [key for key in settings if before[key] != settings[key]]
    if changed:
        raise FiprofError(
            f"{path} was measured with another {', '.join(changed)}: "
            + ", ".join(f"{key} {before[key]}, now {settings[key]}" for key in changed),
            "cases of one study are measured alike: name another folder with --out, or remove this one",
            exit_code=2,
        )
    return StudyFolder(path, manifest)


def read_study(path: Path) -> StudyManifest:
    """``study.json`` of a folder. Raises FiprofError where it is missing, damaged or of a later schema."""
    remedy = "restore it from a copy, or start anew with another --out"
    return json_file.read(path / MANIFEST, StudyManifest, remedy, makes="fiprof study NAME makes one")


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


def _write(path: Path, manifest: StudyManifest) -> None:
    with file_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    write_whole(path / MANIFEST, json_file.encode(manifest))


def _free(path: Path) -> Path:
    """The path, or with a number where it is taken."""
    number = 1
    while path.exists():
        number += 1
        path = path.with_name(f"{path.name.partition('~')[0]}~{number}")
    return path


# Results


def write_results(definition: Definition, folder: StudyFolder, entries: Mapping[str, CaseEntry]) -> EnvironmentInfo:
    """Write ``<workload>.json`` of each workload with a case that was measured, skipped or failed, and
    ``environment_info.json``, which is returned.

    entries: case id -> the case with its cost, of the whole matrix.
    Raises FiprofError for a run whose tables cannot be read, or files that cannot be written.
    """
    from fiprof.analysis.case_results import case_results, unmeasured
    from fiprof.orchestrator.parse import parse_all, whole

    manifest, runs = folder.manifest, folder.runs()
    why = {**manifest.skipped, **{case: f"failed: {text}" for case, text in manifest.failed.items()}}
    cases = {case: unmeasured(entries[case], text) for case, text in why.items() if case in entries}
    for name in runs:
        if not whole(folder.path / name):
            parse_all(folder.path / name)
        cases |= {case.id: case for case in case_results(Run(folder.path / name)) if case.id in entries}
    missing = Counter(short_name(case.workload) for case in definition.cases if case.id not in cases)
    skipped = sum(bool(case.skipped) for case in cases.values())
    info = EnvironmentInfo(
        study=definition.name,
        title=definition.title,
        started=manifest.sessions[0].started if manifest.sessions else "",
        duration_s=round(sum(session.duration_s - session.extras_s for session in manifest.sessions), 1),
        status="incomplete" if missing else "complete",
        missing=dict(missing),
        cases=len(cases) - skipped,
        skipped=skipped,
        workloads=list(dict.fromkeys(short_name(case.workload) for case in definition.cases if case.id in cases)),
        runs=list(runs),
        settings={"quick": manifest.quick, **manifest.settings},
        environment=next((run.environment for run in runs.values()), {}),
        mixed=mixed(run.environment for run in runs.values()),
        run_warnings={name: list(run.warnings) for name, run in runs.items() if run.warnings},
        fiprof=fiprof.__version__,
    )
    with file_errors(folder.path):
        confined.make_folder(folder.path, RESULTS)
        for workload in definition.workloads:
            found = [cases[case.id] for case in definition.cases if case.workload == workload and case.id in cases]
            if found:
                content = KernelResults(short_name(workload), definition.name, found, fiprof.__version__)
                results.write(folder.path / RESULTS / f"{content.workload}.json", content)
        results.write(folder.path / RESULTS / ENVIRONMENT, info)
    return info


def profiled_kernels(definition: Definition, folder: StudyFolder) -> list[str]:
    """Full names of the kernels in the results."""
    files = [folder.path / RESULTS / f"{short_name(workload)}.json" for workload in definition.workloads]
    found = [results.read(file, KernelResults) for file in files if file.exists()]
    return sorted({kernel.kernel_full for each in found for case in each.cases for kernel in case.kernels})
