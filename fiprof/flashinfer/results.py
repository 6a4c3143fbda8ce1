"""The results files of FlashInfer's pack: what compiling costs, and where the kernels' code lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fiprof.model.environment import Gpu
from fiprof.model.json_file import SCHEMA

JIT = "jit_analysis.json"
SOURCES = "sources.json"
JIT_SCHEMA = 1
SOURCES_SCHEMA = 2


@dataclass(frozen=True)
class JitPhase:
    """A part of building or loading a module."""

    name: str
    """compile, link or other."""
    seconds: float
    detail: str = ""
    """E.g. the source that was compiled."""
    start_s: float | None = None
    """When it began, from the build's start; None for a sum of several."""


@dataclass(frozen=True)
class JitModule:
    """A just-in-time compiled module in the cache."""

    name: str
    bytes: int
    """Size of the shared library."""
    compile_s: float | None
    """From the first compiler's start to the linker's end; None where the log does not tell."""
    phases: list[JitPhase]
    """Each command of the build: one a source, and the linker."""


@dataclass(frozen=True)
class JitCall:
    """The first call of a case, in a process of its own."""

    case: str
    cold_s: float | None
    """With an empty cache."""
    disk_s: float | None
    """In a new process, with the cache on disk."""
    memory_s: float | None
    """Again in the same process."""
    modules: list[str]
    """Modules that the call made."""
    phases: list[JitPhase]
    """Where the cold call's time went; they sum to cold_s."""
    error: str = ""
    """Why it could not be measured."""

    def phase_s(self, name: str) -> float | None:
        """Seconds of a phase of the cold call; None where none were traced."""
        return sum(phase.seconds for phase in self.phases if phase.name == name) if self.phases else None


@dataclass(frozen=True)
class JitEnvironment:
    """What the times depend on; what else stands there is not looked at."""

    packages: dict[str, str | None] | None = None
    gpu: Gpu | None = None
    nvcc: str | None = None
    """Version of the CUDA compiler."""
    cores: int | None = None
    max_jobs: str | None = None
    """Value of MAX_JOBS."""


@dataclass(frozen=True)
class JitResults:
    """``jit_analysis.json``."""

    study: str
    calls: list[JitCall]
    modules: list[JitModule]
    cache_layout: list[str]
    """Relative paths of what lies in the cache, folders ending in /."""
    cache_bytes: int
    warm_up: list[str]
    """Commands that fill the cache before a server starts."""
    environment: dict[str, Any] = field(metadata={SCHEMA: JitEnvironment})
    warnings: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    """What FlashInfer's own log (flashinfer_jit.log) said during the cold calls."""
    fiprof: str = ""
    schema_version: int = JIT_SCHEMA


@dataclass(frozen=True)
class SourcePlace:
    """A definition in the installed library."""

    topic: str
    """What it belongs to, e.g. ``decode on CUDA cores``."""
    part: str
    """entry, plan, run, module, generator, binding, scheduler, dispatch, traits, kernel or device; choice: words
    that decide which kernel runs; step and variable: of building a module."""
    name: str
    """What is defined, or the words; its line has them in it."""
    path: str
    """Relative to the folder that the package was installed into, e.g. ``flashinfer/decode.py``."""
    line: int
    """From 1."""
    snippet: str
    """That line."""


@dataclass(frozen=True)
class SourceMissing:
    """What was looked for and is not there."""

    topic: str
    """That it belongs to; empty for a kernel that no topic has."""
    part: str
    """As of a place."""
    name: str


@dataclass(frozen=True)
class SourceResults:
    """``sources.json``, as ``fiprof/flashinfer/source_map.py`` prints it."""

    version: str
    """Of the package; empty where it has none."""
    places: list[SourcePlace]
    missing: list[SourceMissing]
    """What was looked for and is not there."""
    package: str = ""
    schema_version: int = SOURCES_SCHEMA
