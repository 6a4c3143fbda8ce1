"""``results/*.json`` of a study: what was measured of each case, with units in the names; and reading it again.

One file a workload (``prefill.json``, …) and ``environment_info.json``; packs add files of their own. docs/results.md
says of each field what it is, and in which unit; None is what was not measured, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fiprof.model import json_file
from fiprof.model.json_file import SCHEMA
from fiprof.model.manifest import Environment
from fiprof.model.settings import StudySettings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA_VERSION = 2

RESULTS = "results"  # a study's folder of these files
ENVIRONMENT = "environment_info.json"

T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True)
class CaseTimes:
    """A duration, measured several times in several rounds: the median with its interval."""

    median_us: float
    low_us: float
    high_us: float
    confidence: float
    count: int
    rounds: int
    round_medians_us: list[float]


@dataclass(frozen=True)
class KernelVerdict:
    """What limits a kernel, as ``fiprof verdict`` finds it; its enums' values."""

    kind: str
    part: str | None
    confidence: str
    evidence: list[dict[str, Any]]
    runner_up: dict[str, str | None] | None
    margin_points: float | None
    pair: bool = False  # whether the runner-up is the second of a pair that binds


@dataclass(frozen=True)
class Kernel:
    """A kernel of a case as ncu saw it."""

    kernel: str
    kernel_full: str
    launch: int
    grid: str
    block: str
    duration_us: float | None
    stalls: dict[str, float]
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
    l2_hit_pct: float | None
    roof: str | None
    roof_kind: str | None
    roof_share: float | None
    verdict: KernelVerdict | None


@dataclass(frozen=True)
class CaseResult:
    """A case of the study's matrix."""

    id: str
    workload: str
    params: dict[str, bool | int | float | str]
    run: str
    skipped: str = ""
    relative_error: float | None = None
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    tokens: int | None = None
    plain: CaseTimes | None = None
    slow_clock_rounds: int | None = None
    nsys: CaseTimes | None = None
    wall: CaseTimes | None = None
    wall_us: float | None = None
    ncu_us: float | None = None
    waiting_pct: float | None = None
    tokens_per_second: float | None = None
    tflops: float | None = None
    gb_per_s: float | None = None
    tflops_roof_share: float | None = None
    gb_per_s_roof_share: float | None = None
    kernels: list[Kernel] = field(default_factory=list)
    plan: dict[str, bool | int | float | str] = field(default_factory=dict)


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
    duration_s: float
    status: str
    missing: dict[str, int]
    cases: int
    skipped: int
    workloads: list[str]
    runs: list[str]
    settings: dict[str, Any] = field(metadata={SCHEMA: StudySettings})
    environment: dict[str, Any] = field(metadata={SCHEMA: Environment})
    mixed: dict[str, list[str]]
    run_warnings: dict[str, list[str]]
    boards: dict[str, str] = field(default_factory=dict)
    anchors: dict[str, dict[str, float]] = field(default_factory=dict)
    fiprof: str = ""
    schema_version: int = SCHEMA_VERSION


def read(path: Path, kind: type[T]) -> T:
    """A results file as a dataclass with a ``schema_version``: KernelResults, EnvironmentInfo or a pack's."""
    remedy, makes = "fiprof study NAME --results-only writes it again from the runs", "fiprof study NAME makes results"
    return json_file.read(path, kind, remedy, makes=makes, damaged="is damaged or not a study's result")
