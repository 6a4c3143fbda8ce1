"""``results/*.json`` of a study: what was measured of each case, with units in the names; and reading it again.

One file a workload (``prefill.json``, …) and ``environment_info.json``; packs add files of their own. docs/results.md
describes the files for other programs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fiprof.files import atomic_write
from fiprof.model import json_file
from fiprof.model.json_file import SCHEMA
from fiprof.model.manifest import Environment
from fiprof.model.settings import StudySettings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA_VERSION = 2

RESULTS = "results"
"""A study's folder of these files."""
ENVIRONMENT = "environment_info.json"

T = TypeVar("T", bound="DataclassInstance")


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
    """Rounds that they were spread over; between two rounds of a case every other case had its turn."""
    round_medians_us: list[float]
    """Each round's median, in the order of time: a drift shows here."""


@dataclass(frozen=True)
class Evidence:
    """A quantity that decided a verdict, and the threshold that it was held against."""

    quantity: str
    """Its key, e.g. ``use_pct``."""
    of: str | None
    """The resource whose use it is, or the stall reason whose share it is."""
    value: float
    unit: str
    test: str | None
    """at_least or below; None where there is no threshold."""
    threshold: float | None
    """In the value's unit."""
    origin: str | None
    """Who chose the threshold."""


@dataclass(frozen=True)
class RunnerUp:
    """What a verdict would be otherwise."""

    kind: str
    part: str | None


@dataclass(frozen=True)
class KernelVerdict:
    """What binds a kernel, as ``fiprof verdict`` finds it; its enums' values."""

    kind: str
    """compute, memory, latency, launch, imbalance or unknown."""
    part: str | None
    """Which resource or imbalance, e.g. dram; None where the kind says all."""
    confidence: str
    """high, medium or low."""
    evidence: list[Evidence]
    """The deciding one first."""
    runner_up: RunnerUp | None
    margin_points: float | None
    """Points of a percent to the runner-up; negative where it is ahead and merely feeds what binds."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a case as ncu saw it; None where it was not collected."""

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
    roof_kind: str | None
    """compute or memory."""
    roof_share: float | None
    """Achieved over what that roof allows, 0 to 1; of DRAM's, least bytes over the loop's time where that is more."""
    verdict: KernelVerdict | None


@dataclass(frozen=True)
class CaseResult:
    """A case of the study's matrix."""

    id: str
    """Of the case: workload and every parameter."""
    workload: str
    params: dict[str, bool | int | float | str]
    run: str
    """Name of the run folder that holds it; empty for a skipped case."""
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
    slow_clock_rounds: int | None = None
    """Rounds of ``plain`` that began before the SM clock was back; None where it was not read."""
    nsys: Times | None = None
    """Kernel time of an iteration under nsys."""
    wall: Times | None = None
    """Host time of an iteration, back to back; None for a single round."""
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
    """``<workload>.json``: every case of a workload, those skipped too."""

    workload: str
    study: str
    cases: list[CaseResult]
    fiprof: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class EnvironmentInfo:
    """``environment_info.json``: where and how the study was made."""

    study: str
    title: str
    started: str
    """ISO 8601 with offset."""
    duration_s: float
    """Of the measuring, all sessions together."""
    status: str
    """complete or incomplete."""
    missing: dict[str, int]
    """Workload -> its cases that are not measured yet."""
    cases: int
    """That were measured."""
    skipped: int
    workloads: list[str]
    """Whose results lie beside this file, in the study's order: ``<workload>.json``."""
    runs: list[str]
    """Names of the run folders, beside ``results/``."""
    settings: dict[str, Any] = field(metadata={SCHEMA: StudySettings})
    """Of the study: quick, rounds, iterations, ncu's set, clock and cache control."""
    environment: dict[str, Any] = field(metadata={SCHEMA: Environment})
    """The environment of the first run's manifest."""
    mixed: dict[str, list[str]]
    """What the runs should have in common and have not -> its values, e.g. of the driver."""
    run_warnings: dict[str, list[str]]
    """Run -> what it warned of."""
    fiprof: str = ""
    schema_version: int = SCHEMA_VERSION


def write(path: Path, results: DataclassInstance) -> None:
    """Write a results file whole or not at all. Raises OSError."""
    with atomic_write(path) as partial:
        partial.write_bytes(json_file.encode(results))


def read(path: Path, kind: type[T]) -> T:
    """A results file as a dataclass with a ``schema_version``: KernelResults, EnvironmentInfo or a pack's.

    Raises FiprofError where it is missing, damaged or of another schema.
    """
    remedy, makes = "fiprof study NAME --results-only writes it again from the runs", "fiprof study NAME makes results"
    return json_file.read(path, kind, remedy, makes=makes, damaged="is damaged or no study's result")
