"""``results/*.json`` of a study: what was measured of each cell, with units in the names; and reading it again.

One file a kernel (``prefill.json``, …), ``jit_analysis.json`` and ``environment_info.json``. A cell is a case of the
study's matrix. docs/results.md describes the files for other programs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fiprof.errors import FiprofError
from fiprof.files import atomic_write
from fiprof.model.versioned import decode, encode

SCHEMA_VERSION = 1

T = TypeVar("T")


@dataclass(frozen=True)
class Times:
    """A duration, measured several times in several rounds."""

    median_us: float
    low_us: float
    """Lower end of the confidence interval of the median."""
    high_us: float
    """Upper end."""
    confidence: float
    """Of the interval, e.g. 0.95."""
    count: int
    """Measurements."""
    rounds: int
    """Rounds that they were spread over; between two rounds of a cell every other cell had its turn."""
    round_medians_us: list[float]
    """Each round's median, in the order of time: a drift shows here."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a cell as ncu saw it; None where it was not collected."""

    kernel: str
    kernel_full: str
    launch: int
    """ncu's launch ID in the run."""
    grid: str
    block: str
    duration_us: float | None
    stalls: dict[str, float]
    """Reason -> share of the warp latency; they sum to 1. Empty where ncu did not collect them."""
    achieved_occupancy_pct: float | None
    theoretical_occupancy_pct: float | None
    occupancy_limiters: list[str]
    waves: float | None
    registers_per_thread: int | None
    shared_bytes_per_block: int | None
    tensor_active_pct: float | None
    dram_pct: float | None
    l2_pct: float | None
    sm_pct: float | None
    dram_bytes: float | None
    """Read and written."""
    l2_hit_pct: float | None
    roof: str | None
    """The roof that binds, e.g. DRAM or ``tensor fp16``."""
    roof_share: float | None
    """Achieved over what that roof allows, 0 to 1."""
    verdict: str
    """As ``fiprof verdict`` says it."""
    verdict_evidence: list[str]
    runner_up: str


@dataclass(frozen=True)
class Cell:
    """A case of the study's matrix."""

    case: str
    """Case id."""
    workload: str
    params: dict[str, bool | int | float | str]
    run: str
    """Name of the run folder that holds it; empty for a skipped cell."""
    skipped: str = ""
    """Why it was not measured; empty where it was."""
    relative_error: float | None = None
    """Against the float32 reference; None where it was not checked."""
    flops: int = 0
    """The least that the algorithm needs."""
    bytes_read: int = 0
    bytes_written: int = 0
    tokens: int | None = None
    """Tokens that an iteration processes: new ones for decode, rows for the norms."""
    plain: Times | None = None
    """An iteration between CUDA events, without a profiler."""
    nsys: Times | None = None
    """Kernel time of an iteration under nsys."""
    wall_us: float | None = None
    """Host time an iteration, back to back."""
    ncu_us: float | None = None
    """Kernel time of an iteration under ncu, caches flushed."""
    waiting_pct: float | None = None
    """Of ``wall_us``, in which the GPU waits for the host's next launch; None where it cannot be told."""
    tokens_per_second: float | None = None
    """By the plain time."""
    tflops: float | None = None
    """Least operations over the plain time."""
    gb_per_s: float | None = None
    """Least bytes over the plain time."""
    tflops_roof_share: float | None = None
    """Of the roof of the kernel that took most time, at its measured clock."""
    gb_per_s_roof_share: float | None = None
    """Of DRAM's roof."""
    kernels: list[Kernel] = field(default_factory=list)
    """In the order of an iteration."""
    plan: dict[str, bool | int | float | str] = field(default_factory=dict)
    """What the library planned: e.g. split_kv, tiles, work items; empty where it does not tell."""


@dataclass(frozen=True)
class KernelResults:
    """``<workload>.json``: every cell of a workload, those skipped too."""

    workload: str
    study: str
    cells: list[Cell]
    fiprof: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class JitPhase:
    """A part of building or loading a module."""

    name: str
    """generate, compile, link, load, launch or other."""
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
    """Of the shared library."""
    sources: list[str]
    """Relative to the library's or the cache's own folder."""
    flags: list[str]
    """Of the compiler, paths of the machine left out."""
    compile_s: float | None
    """From the first compiler's start to the linker's end; None where the log does not tell."""
    phases: list[JitPhase]
    """Each command of the build: one a source, and the linker."""
    generator: str = ""
    """Python that makes its specification, e.g. ``flashinfer.jit.norm.gen_norm_module()``; empty where not known."""
    compiled_ahead: bool = False
    """An installed package brought it ready made: nothing was compiled."""


@dataclass(frozen=True)
class JitCall:
    """The first call of a case, in a process of its own."""

    case: str
    cold_s: float | None
    """With an empty cache: generate, compile, link, load, launch."""
    disk_s: float | None
    """In a new process, with the cache on disk."""
    memory_s: float | None
    """Again in the same process."""
    modules: list[str]
    """That the call made or loaded."""
    phases: list[JitPhase]
    """Where the cold call's time went; they sum to cold_s."""
    disk_phases: list[JitPhase] = field(default_factory=list)
    """The same of disk_s."""
    import_s: float | None = None
    """Importing torch and the library in the cold process; in none of the calls' times."""
    error: str = ""
    """Why it could not be measured."""


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
    environment: dict[str, Any]
    """packages, compiler, cores: what the times depend on."""
    warnings: list[str] = field(default_factory=list)
    warm_up_s: float | None = None
    """The commands of warm_up in an empty cache, the interpreter's start and imports too; None where not measured."""
    log: list[str] = field(default_factory=list)
    """What FlashInfer's own log (flashinfer_jit.log) said during the cold calls."""
    fiprof: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class SourcePlace:
    """A definition in the installed library."""

    topic: str
    """What it belongs to, e.g. ``decode on CUDA cores``."""
    part: str
    """entry, plan, run, module, generator, binding, scheduler, dispatch, traits, kernel, device or set."""
    name: str
    """What is defined; its line has the name in it."""
    path: str
    """Relative to the folder that the package was installed into, e.g. ``flashinfer/decode.py``."""
    line: int
    """From 1."""
    snippet: str
    """That line."""


@dataclass(frozen=True)
class SourceTunable:
    """A template parameter of a kernel, or of its traits."""

    kernel: str
    """Name as it was asked for: with the template arguments that were profiled, or short."""
    name: str
    kind: str
    """Its type, e.g. ``uint32_t``."""
    value: str | None
    """In that kernel; None where only the short name was given."""
    meaning: str
    """In fiprof's words; empty where its glossary does not have it."""
    source_says: str
    """What a comment above the definition says of it; empty where none does."""
    declared: SourcePlace
    set_at: SourcePlace | None
    """Where the host code chooses it; None where that was not found."""


@dataclass(frozen=True)
class SourceResults:
    """``sources.json``, as ``python -m fiprof.flashinfer.sources.find`` prints it."""

    version: str
    """Of the package; empty where it has none."""
    places: list[SourcePlace]
    tunables: list[SourceTunable]
    missing: list[str]
    """What was looked for and is not there."""
    package: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class EnvironmentInfo:
    """``environment_info.json``: where and how the study was made."""

    study: str
    title: str
    started: str
    """ISO 8601 with offset."""
    duration_s: float
    """Of the measuring, all sittings together."""
    status: str
    """complete, or what is missing."""
    cells: int
    skipped: int
    runs: list[str]
    """Names of the run folders, beside ``results/``."""
    settings: dict[str, Any]
    """Of the study: quick, rounds, iterations, ncu's set, clock and cache control."""
    environment: dict[str, Any]
    """The environment of the first run's manifest."""
    warnings: list[str]
    fiprof: str = ""
    schema_version: int = SCHEMA_VERSION


def write(path: Path, results: KernelResults | JitResults | SourceResults | EnvironmentInfo) -> None:
    """Write a results file whole or not at all. Raises OSError."""
    with atomic_write(path) as partial:
        partial.write_bytes(encode(results))


def read(path: Path, kind: type[T]) -> T:
    """A results file as KernelResults, JitResults, SourceResults or EnvironmentInfo.

    Raises FiprofError where it is missing, damaged or of a later schema.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FiprofError(
            f"{path} cannot be read: {error.strerror}", "fiprof study NAME makes a study's results"
        ) from error
    return decode(
        data,
        kind,
        newest=SCHEMA_VERSION,
        path=path,
        damaged="is damaged or no study's result",
        remedy="fiprof study NAME writes it again from the runs",
    )
