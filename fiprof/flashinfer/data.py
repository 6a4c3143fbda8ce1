"""``kernels.toml``, ``guide.toml`` and ``guide.md``: what is known of FlashInfer's kernels; and the results files of
this pack: what compiling costs, and where the kernels' code lives.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fiprof.model.json_file import SCHEMA
from fiprof.model.manifest import Environment

JIT = "jit_analysis.json"
SOURCES = "sources.json"


@functools.cache
def data(name: str = "kernels") -> dict[str, Any]:
    """A file's tables; its head describes them."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def kernels() -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = data()["kernels"]
    return tables


@functools.cache
def guide_pages() -> dict[tuple[str, str], str]:
    """Workload and title -> Markdown, of ``guide.md``."""
    text = Path(__file__).with_name("guide.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## (\w+): (.+)$", text, flags=re.MULTILINE)
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {(workload, title): body.strip() for workload, title, body in triples}


# Results


@dataclass(frozen=True)
class JitPhase:
    """A command of a module's build, by ninja's log."""

    name: str  # compile or link
    seconds: float
    detail: str = ""  # the source that was compiled
    start_s: float | None = None  # from the build's start


@dataclass(frozen=True)
class JitModule:
    """A just-in-time compiled module in the cache."""

    name: str
    bytes: int  # of the shared library
    compile_s: float | None  # from the first compiler's start to the linker's end; None where no log tells
    phases: list[JitPhase]  # one a source, and the linker


@dataclass(frozen=True)
class JitCall:
    """The first call of a case, in a process of its own."""

    case: str
    cold_s: float | None  # with an empty cache
    disk_s: float | None  # in a new process, with the cache on disk
    memory_s: float | None  # again in the cold call's process
    modules: list[str]  # that the call made
    error: str = ""  # why it could not be measured


@dataclass(frozen=True)
class JitResults:
    study: str
    calls: list[JitCall]
    modules: list[JitModule]
    cache_layout: list[str]  # relative paths of what lies in the cache, folders ending in /
    cache_bytes: int
    warm_up: list[str]  # commands that fill the cache before a server starts
    environment: dict[str, Any] = field(metadata={SCHEMA: Environment})  # with nvcc, cores and max_jobs
    warnings: list[str] = field(default_factory=list)
    fiprof: str = ""
    schema_version: int = 1


@dataclass(frozen=True)
class SourcePlace:
    """A definition in the installed library; without a path it was looked for and is not there."""

    topic: str  # what it belongs to, e.g. "decode on CUDA cores"; empty for a kernel that no topic has
    part: str
    """entry, plan, run, module, generator, binding, scheduler, dispatch, traits, kernel or device; choice: words
    that decide which kernel runs; step and variable: of building a module."""
    name: str  # what is defined, or the words; its line has them in it
    path: str = ""  # in the folder that the package was installed into, e.g. flashinfer/decode.py
    line: int = 0  # from 1
    snippet: str = ""  # that line


@dataclass(frozen=True)
class SourceResults:
    """``sources.json``, as :func:`fiprof.flashinfer.source_map.find_sources` makes it."""

    version: str  # of the package; empty where it has none
    places: list[SourcePlace]
    missing: list[SourcePlace]
    package: str = ""
    schema_version: int = 2
