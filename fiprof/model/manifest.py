"""``run.json``, the manifest of a run: its cases, environment, actions and status; and the records of the runner."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

from fiprof import files
from fiprof.errors import FiprofError
from fiprof.model import json_file, layout
from fiprof.model.finding import Finding, finding
from fiprof.model.json_file import SCHEMA, MisfitError, convert
from fiprof.model.settings import CollectSettings, ProfileSettings

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # an environment variable's name

Status = Literal["complete", "failed", "interrupted"]
Outcome = Literal["ok", "failed", "timeout", "interrupted", "skipped"]
RunKind = Literal["run", "comparison"]
FileKind = Literal["nsys-rep", "nsys-sqlite", "ncu-rep", "ncu-raw", "ncu-details", "ncu-source"]


class Gpu(TypedDict, total=False):
    """The GPU as torch sees it. Sizes in bytes."""

    name: str | None
    compute_capability: str | None  # e.g. 9.0
    multiprocessors: int | None
    memory_bytes: int | None
    l2_bytes: int | None
    uuid: str | None
    cuda: str | None
    visible_devices: str | None


class GpuState(TypedDict, total=False):
    """The GPU as the driver sees it at one moment."""

    name: str | None
    uuid: str | None
    driver: str | None
    sm_clock_mhz: float | None
    max_sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_c: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    other_processes: tuple[str, ...] | None
    compute_capability: str | None
    power_limit_w: float | None
    mig: bool | None
    ecc: bool | None
    ecc_errors: int | None  # uncorrected, since the driver was loaded
    slowdowns: tuple[str, ...] | None  # why its clocks are lower than they would be; the power limit is none of these


class ProgramInfo(TypedDict, total=False):
    """What was run, as the user typed it."""

    command: tuple[str, ...] | None
    cwd: str | None
    program: ProgramInfo | None
    git: str | None  # commit of the checkout that the program lies in, with ``-dirty`` after changes
    files: dict[str, str] | None  # each file of the command line that could be read -> SHA-256
    exit_status: int | None  # of the traced program; negative for a signal
    seconds: float | None  # that the program took under nsys


class Environment(TypedDict, total=False):
    """What is known of the machine and the software of a run.

    The schema of a dict in ``run.json`` and ``environment_info.json``; other keys in these are ignored.
    """

    packages: dict[str, str | None] | None  # name -> version; None where it is not installed
    tools: dict[str, str | None] | None  # nsys and ncu -> version
    gpu: Gpu | None
    gpu_state: dict[str, GpuState | None] | None
    """Before and after the run; of a study's batch on several GPUs also ``during`` it."""
    host: dict[str, str | int | float | None] | None
    program: ProgramInfo | None
    git: str | dict[str, str | bool | None] | None  # commit of the folder that collect was started in


def fact(environment: dict[str, Any], *path: str) -> Any:
    """A value of an :class:`Environment` by its path of keys, None without it. A GPU's name may be the driver's."""
    value: Any = environment
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return fact(environment, "gpu_state", "before", "name") if value is None and path == ("gpu", "name") else value


@dataclass(frozen=True)
class FileEntry:
    path: str  # relative to the run folder, and inside it
    bytes: int
    sha256: str
    private: bool = False  # whether a tool's own file holds an environment: it is left out of bundles


@dataclass(frozen=True)
class Action:
    """A command that the run started."""

    step: str
    """plain, nsys, nsys-export, ncu, ncu-raw, ncu-details, ncu-source or import; with ``-1``, … for further files."""
    argv: list[str]
    env: dict[str, str]  # environment variables that were set or changed for it
    started: str  # ISO 8601 with offset
    duration_s: float
    exit_status: int | None  # None where it was never started; negative for a signal
    outcome: Outcome
    log: str | None  # relative to the run folder, and inside it
    message: str = ""  # why the outcome is not ok; a warning otherwise
    remedy: str = ""
    files: list[FileEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        if wrong := [name for name in self.env if not VARIABLE.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is no name of an environment variable")
        for each in self.files:
            files.parts(each.path)
        if self.log is not None:
            files.parts(self.log)


@dataclass(frozen=True)
class CaseEntry:
    """A case that the run asked for, with its cost model: the least that its algorithm needs; 0 where not known."""

    id: str
    workload: str
    params: dict[str, bool | int | float | str]
    flops: int
    bytes_read: int
    bytes_written: int
    tokens: int | None = None  # that an iteration processes; None where the workload knows no tokens
    anchor: bool = False  # measured beside the run's own cases, as in every batch of its study, to tell boards apart


@dataclass(frozen=True)
class ImportedFile:
    """A file of nsys or ncu that the run was made of."""

    path: str  # where it lies in the run folder, or would lie
    kind: FileKind
    source: str  # absolute path that it was imported from
    bytes: int  # of the file as it was given, as its checksum: the copy of an SQLite is cleared of environments
    sha256: str
    linked: bool = False  # whether it is read at its source, and no copy was made
    tool: str | None = None  # version of the tool that wrote it; None where the file does not say

    @property
    def tool_name(self) -> str:
        return self.kind.partition("-")[0]


@dataclass(frozen=True)
class PrunedFile:
    """A raw file that ``fiprof prune`` removed, or is about to."""

    path: str  # relative to the run folder, and inside it
    bytes: int  # that it took on disk, packed or not
    when: str  # ISO 8601 with offset


@dataclass(frozen=True)
class Manifest:
    """The whole of ``run.json``."""

    name: str
    status: Status
    started: str  # ISO 8601 with offset
    duration_s: float
    cases: list[CaseEntry]
    settings: dict[str, Any] = field(metadata={SCHEMA: CollectSettings})  # the collect request, as given
    environment: dict[str, Any] = field(metadata={SCHEMA: Environment})
    """packages, gpu (as torch sees it), driver, tools, host, git, clocks: whatever could be found out."""
    actions: list[Action]
    reason: str = ""  # why the status is not complete
    warnings: list[str] = field(default_factory=list)
    replayed_from: str | None = None  # the run whose raw files were read instead of starting the tools
    missing: list[str] = field(default_factory=list)  # tables and columns that the tools' output did not have
    imported: list[ImportedFile] = field(default_factory=list)
    """What the run was made of, where fiprof did not measure it; settings and cases are unknown then."""
    ranges: list[str] = field(default_factory=list)
    """NVTX ranges, ``NAME`` or ``DOMAIN@NAME`` (``*`` for any text), declared as cases: each time is an iteration."""
    pruned: list[PrunedFile] = field(default_factory=list)
    """Raw files that are gone; the tables made of them stay, and cannot be made again."""
    tables: list[FileEntry] = field(default_factory=list)
    """The run's tables as they were made; empty in runs of before that was recorded."""
    fiprof: str = ""  # version of fiprof that wrote the manifest
    argv: list[str] = field(default_factory=list)
    """fiprof's own command line, without secrets; empty in runs of before it was recorded."""
    masked: list[str] | None = None
    """What stands as ``***`` for a secret: where, and its name, e.g. ``argv: HF_TOKEN``; None in runs of before."""
    kind: RunKind = "run"
    """comparison: two sides were measured beside each other, see ``result.json``; there are no tables."""
    schema_version: int = 1

    def __post_init__(self) -> None:
        for path in (each.path for entries in (self.imported, self.pruned, self.tables) for each in entries):
            files.parts(path)

    @property
    def files(self) -> dict[str, FileEntry]:
        """Path -> the file as the last action that made it left it."""
        return {entry.path: entry for action in self.actions for entry in action.files}

    def to_json(self) -> bytes:
        return json_file.encode(self)


def is_run(folder: Path | str) -> bool:
    """Whether a folder has a manifest, and not as an export; or may not be entered, which reading one says."""
    if os.path.exists(f"{folder}/{layout.FILE_NAME}"):
        return not os.path.exists(f"{folder}/{layout.EXPORTED}")
    return os.path.isdir(folder) and not os.access(folder, os.X_OK)


def read_manifest(folder: Path) -> Manifest:
    path = folder / layout.FILE_NAME
    if not is_run(folder):
        why = f"it has no {layout.FILE_NAME}" if not os.path.exists(path) else "it is an export of one"
        raise FiprofError(f"{folder} is not a run folder: {why}", "fiprof runs lists the runs there are", exit_code=2)
    remedy = "restore it from a copy; the raw files are untouched, and fiprof parse makes their tables without it"
    manifest = json_file.read(path, Manifest, remedy)
    if "cover_pct" in manifest.settings:
        try:
            convert(manifest.settings, ProfileSettings, "settings")
        except MisfitError as error:
            raise FiprofError(f"{path} is damaged or not fiprof's: {error}", remedy) from error
    return manifest


RUN_WARNINGS = {
    "failed": "the run {run} failed: {reason}",
    "interrupted": "the run {run} was interrupted: {reason}",
    "damaged": "the run {run} cannot be read: {reason}",
}
"""Status -> what makes a whole run doubtful."""


def run_warning(status: str, run: str, reason: str) -> Finding:
    """That a run is not complete. run: its name. reason: the manifest's."""
    words = RUN_WARNINGS[status].removesuffix(": {reason}" if reason in ("", status) else "")
    return finding(status, words, run=run, reason=reason)


class Reference(TypedDict, total=False):
    """How near a case came to its float32 reference."""

    relative_error: float | None
    tolerance: float | None


@dataclass(frozen=True)
class Baseline:
    """A case as the runner timed it, without a profiler; kind ``case``."""

    case: str
    gpu_us: tuple[float, ...] = ()  # each iteration, between CUDA events
    wall_us: float = float("nan")  # host time an iteration, back to back
    reference: Reference = field(default_factory=Reference)  # empty where there is none or it was not checked
    rounds: int = 1  # turns that ``gpu_us`` is of, in their order, each with as many iterations
    wall_rounds_us: tuple[float, ...] = ()  # ``wall_us`` of each round; empty for a single one
    clock_recovered: tuple[bool, ...] = ()
    """Of each round, whether the SM clock was what it was at the start when it began; empty where it was not read."""
    peak_memory_bytes: int | None = None  # of device memory that torch gave, while it was measured
    plan: dict[str, bool | int | float | str] = field(default_factory=dict)
    """What the library planned, as far as it tells."""


class CaseError(TypedDict):
    """Why a case failed by itself; kind ``error``."""

    case: str
    error: str


KINDS: Mapping[str, type] = {"case": Baseline, "error": CaseError, "environment": Environment}
"""The key ``kind`` of a record -> its schema; records of other kinds are not looked at."""


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; none where there is no file. A last line cut short is left out."""
    return [record for record, _ in _read(path)]


def baselines(path: Path) -> dict[str, Baseline]:
    """Case id -> how the runner timed it."""
    return {baseline.case: baseline for _, baseline in _read(path) if isinstance(baseline, Baseline)}


def case_errors(path: Path) -> dict[str, str]:
    """Case id -> the error that one of the runner's files of results has for it."""
    return {record["case"]: record["error"] for record in read_jsonl(path) if record.get("kind") == "error"}


def _read(path: Path) -> list[tuple[dict[str, Any], object]]:
    """Each object of a file, and what it is by its kind; None where the kind is not known.

    NaN and infinities are read, which Python's writer of the records has.
    """
    import json

    if not path.exists():
        return []
    records: list[tuple[dict[str, Any], object]] = []
    number = 0
    try:
        lines = files.read_bytes(path.parent, path.name).split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError) as error:
                if number == len(lines):
                    break
                raise MisfitError("no JSON object") from error
            if isinstance(record, dict):
                schema = KINDS.get(str(record.get("kind")))
                records.append((record, convert(record, schema) if schema else None))
            elif record is not None:
                raise MisfitError("no JSON object")
    except OSError as error:
        raise FiprofError(f"{path} cannot be read: {error.strerror}") from error
    except MisfitError as error:
        remedy = "it was changed by hand or damaged: restore it from a copy"
        raise FiprofError(f"{path}: line {number}: {error}", remedy) from error
    return records
