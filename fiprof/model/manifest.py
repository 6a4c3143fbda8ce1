"""``run.json``: what a run is, how it came about and how it ended."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fiprof import confined
from fiprof.errors import FiprofError
from fiprof.model import json_file
from fiprof.model.environment import Environment
from fiprof.model.json_file import SCHEMA
from fiprof.model.settings import CollectSettings

SCHEMA_VERSION = 1
FILE_NAME = "run.json"

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""An environment variable's name."""

Status = Literal["complete", "failed", "interrupted"]
Outcome = Literal["ok", "failed", "timeout", "interrupted", "skipped"]
RunKind = Literal["run", "comparison"]
FileKind = Literal["nsys-rep", "nsys-sqlite", "ncu-rep", "ncu-raw", "ncu-details", "ncu-source"]


@dataclass(frozen=True)
class FileEntry:
    """A file that an action made."""

    path: str
    """Relative to the run folder, and inside it."""
    bytes: int
    sha256: str
    private: bool = False
    """Whether a tool's own file holds an environment: it is left out of bundles."""

    def __post_init__(self) -> None:
        confined.parts(self.path)


@dataclass(frozen=True)
class Action:
    """A command that the run started."""

    step: str
    """plain, nsys, nsys-export, ncu, ncu-raw, ncu-details, ncu-source or import; with ``-1``, … for further files."""
    argv: list[str]
    env: dict[str, str]
    """Environment variables that were set or changed for it."""
    started: str
    """ISO 8601 with offset."""
    duration_s: float
    exit_status: int | None
    """None where it was never started; negative for a signal."""
    outcome: Outcome
    log: str | None
    """Relative to the run folder, and inside it."""
    message: str = ""
    """Why the outcome is not ok; a warning otherwise."""
    remedy: str = ""
    files: list[FileEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        if wrong := [name for name in self.env if not VARIABLE.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is no name of an environment variable")
        if self.log is not None:
            confined.parts(self.log)


@dataclass(frozen=True)
class CaseEntry:
    """A case that the run asked for, with its cost model: the least that its algorithm needs; 0 where not known."""

    id: str
    workload: str
    params: dict[str, bool | int | float | str]
    flops: int
    bytes_read: int
    bytes_written: int
    tokens: int | None = None
    """That an iteration processes; None where the workload knows no tokens."""


@dataclass(frozen=True)
class ImportedFile:
    """A file of nsys or ncu that the run was made of."""

    path: str
    """Where it lies, or would lie, in the run folder: one name a kind, ``-1``, ``-2``, … for further ones."""
    kind: FileKind
    source: str
    """Absolute path that it was imported from."""
    bytes: int
    """Of the file as it was given, as its checksum: the copy of an SQLite is cleared of environments."""
    sha256: str
    linked: bool = False
    """Whether it is read at its source, and no copy was made."""
    tool: str | None = None
    """Version of the tool that wrote it; None where the file does not say."""

    @property
    def tool_name(self) -> str:
        """nsys or ncu."""
        return self.kind.partition("-")[0]

    def __post_init__(self) -> None:
        confined.parts(self.path)


@dataclass(frozen=True)
class PrunedFile:
    """A raw file that ``fiprof prune`` removed, or is about to."""

    path: str
    """As in the action that made it."""
    bytes: int
    """That it took on disk, packed or not."""
    when: str
    """ISO 8601 with offset."""

    def __post_init__(self) -> None:
        confined.parts(self.path)


@dataclass(frozen=True)
class Manifest:
    """The whole of ``run.json``."""

    name: str
    status: Status
    started: str
    """ISO 8601 with offset."""
    duration_s: float
    cases: list[CaseEntry]
    settings: dict[str, Any] = field(metadata={SCHEMA: CollectSettings})
    """The collect request, as given."""
    environment: dict[str, Any] = field(metadata={SCHEMA: Environment})
    """packages, gpu (as torch sees it), driver, tools, host, git, clocks: whatever could be found out."""
    actions: list[Action]
    reason: str = ""
    """Why the status is not complete."""
    warnings: list[str] = field(default_factory=list)
    replayed_from: str | None = None
    """The run whose raw files were read instead of starting the tools."""
    missing: list[str] = field(default_factory=list)
    """Tables and columns that the tools' output did not have."""
    imported: list[ImportedFile] = field(default_factory=list)
    """What the run was made of, where fiprof did not measure it; settings and cases are unknown then."""
    ranges: list[str] = field(default_factory=list)
    """NVTX ranges, ``NAME`` or ``DOMAIN@NAME`` (``*`` for any text), declared as cases: each time is an iteration."""
    pruned: list[PrunedFile] = field(default_factory=list)
    """Raw files that are gone; the tables made of them stay, and cannot be made again."""
    fiprof: str = ""
    """Version of fiprof that wrote the manifest."""
    argv: list[str] = field(default_factory=list)
    """fiprof's own command line, without secrets; empty in runs of before it was recorded."""
    kind: RunKind = "run"
    """comparison: two sides were measured beside each other, see ``result.json``; there are no tables."""
    schema_version: int = SCHEMA_VERSION

    @property
    def files(self) -> dict[str, FileEntry]:
        """Path -> the file as the last action that made it left it."""
        return {entry.path: entry for action in self.actions for entry in action.files}

    def to_json(self) -> bytes:
        return json_file.encode(self)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder.

    Raises FiprofError where there is none, or it is cut short, of a later schema, or not fiprof's.
    """
    path = folder / FILE_NAME
    if not path.exists():
        raise FiprofError(
            f"{folder} is not a run folder: it has no {FILE_NAME}", "fiprof runs lists the runs there are"
        )
    return json_file.read(
        path,
        Manifest,
        newest=SCHEMA_VERSION,
        makes="",
        damaged="is damaged or not fiprof's",
        remedy="restore it from a copy; the raw files are untouched, and fiprof parse makes their tables without it",
    )
