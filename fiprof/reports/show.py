"""Durations, roofs, occupancy and caches of a run's kernels: how far the hardware is from its limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fiprof.parsers import metrics
from fiprof.parsers.manifest import CaseEntry
from fiprof.parsers.run import Run
from fiprof.reports import checks, source
from fiprof.reports.evidence import Evidence
from fiprof.reports.labels import Labels
from fiprof.reports.view import Column, Document, View, view_of


@dataclass(frozen=True)
class CaseFigures:
    """An iteration of a case, all its kernels together."""

    case: str
    label: str
    """The case in short."""
    kernels: int | None
    """Kernels that ncu saw in an iteration; under nsys where ncu saw none."""
    plain_us: float | None
    """Median without a profiler, between CUDA events."""
    plain_spread: float | None
    """(p90 - p10) / median of it."""
    nsys_us: float | None
    """Median of the kernels' time under nsys, without the gaps between them."""
    nsys_spread: float | None
    """(p90 - p10) / median of it."""
    ncu_us: float | None
    """Kernel time under ncu."""
    model_flops: int
    """Least operations, by the workload's cost model."""
    model_bytes: int
    """Least bytes moved, likewise."""
    model_tflops: float | None
    """Least operations over the kernel time: ncu's, else nsys's."""
    model_tflops_roof_share: float | None
    """Of the roof of the kernel that took most time; with ncu only."""
    model_gb_per_s: float | None
    """Least bytes over the kernel time: ncu's, else nsys's."""
    model_gb_per_s_roof_share: float | None
    """Of DRAM's roof; with ncu only."""


@dataclass(frozen=True)
class LaunchFigures:
    """A kernel launch under ncu; or a kernel that only nsys saw, without a launch number."""

    launch: int | None = None
    case: str | None = None
    label: str = ""
    """The case in short."""
    iteration: int | None = None
    kernel: str = ""
    kernel_full: str | None = None
    grid: str | None = None
    block: str | None = None
    ncu_us: float | None = None
    """Duration under ncu."""
    nsys_us: float | None = None
    """Median duration of this kernel in this case under nsys."""
    nsys_spread: float | None = None
    """(p90 - p10) / median of it."""
    roof: str | None = None
    """What the work is held against: ``tensor fp16`` or ``fp32``."""
    tflops: float | None = None
    """Operations of the roof's kind that ncu counted, over its duration."""
    roof_tflops: float | None = None
    """The most at the clock measured during the launch."""
    roof_share: float | None = None
    tensor_ops: float | None = None
    """Tensor operations that ncu counted, a multiply-add being two."""
    fp32_ops: float | None = None
    """Single-precision operations outside the tensor cores, likewise."""
    tensor_active_pct: float | None = None
    """Cycles in which the tensor cores worked, of all elapsed ones."""
    dram_gb_per_s: float | None = None
    dram_roof_gb_per_s: float | None = None
    """The most at the DRAM clock measured during the launch."""
    dram_pct: float | None = None
    """Busiest part of the DRAM interface, of its peak."""
    sm_clock_ghz: float | None = None
    """Of the multiprocessors, as ncu's rooflines take it; its «SM Frequency» is measured in another replay."""
    achieved_occupancy_pct: float | None = None
    theoretical_occupancy_pct: float | None = None
    occupancy_limiters: tuple[str, ...] = ()
    """What allows the fewest blocks on a multiprocessor; several where they tie."""
    waves: float | None = None
    """Blocks over those that fit on the GPU at once."""
    registers_per_thread: int | None = None
    shared_kb_per_block: float | None = None
    """Static and dynamic shared memory, in 1,000 bytes."""
    l1_hit_pct: float | None = None
    l2_hit_pct: float | None = None

    @property
    def limited_by(self) -> str:
        """The limiters as one short cell."""
        return ", ".join(limiter.split()[0] for limiter in self.occupancy_limiters)


@dataclass(frozen=True)
class Figures:
    """What ``fiprof show`` shows of a run."""

    run: str
    cases: tuple[CaseFigures, ...]
    launches: tuple[LaunchFigures, ...]
    warnings: tuple[str, ...]
    """About the run: its status, what it lacks, and the checks that failed."""


def show(run: Run) -> Figures:
    """The figures of a run, as far as it has them.

    Raises FiprofError for a table that is there and cannot be read.
    """
    evidence, labels = Evidence(run), Labels(run.manifest.cases)
    launches = (
        *(_launch(row, labels, evidence) for row in evidence.launches),
        *_only_traced(labels, evidence),
    )
    return Figures(
        run=run.manifest.name,
        cases=tuple(_case(case, labels, evidence) for case in run.manifest.cases),
        launches=launches,
        warnings=(*source.status_warning(run), *_missing(evidence), *checks.notes(run)),
    )


def _missing(evidence: Evidence) -> Iterable[str]:
    """What the run lacks and why."""
    run = evidence.run
    if not evidence.launches:
        yield f"no counters, occupancy and roofs: {source.why_missing(run, 'ncu')}"
    if not evidence.trace.cases:
        yield f"no times by nsys: {source.why_missing(run, 'nsys')}"
    if not evidence.plain:
        yield "no times without a profiler: the plain run left none"


def _case(case: CaseEntry, labels: Labels, evidence: Evidence) -> CaseFigures:
    plain, traced = evidence.plain.get(case.id), evidence.trace.cases.get(case.id)
    ncu_ns = evidence.per_iteration(case.id, lambda row: metrics.number(row, "duration_ns"))
    ncu_us = None if ncu_ns is None else ncu_ns / 1e3
    nsys_us = traced.iteration.median_us if traced else None
    time_us = ncu_us or nsys_us
    tflops = case.flops / time_us / 1e6 if time_us and case.flops else None
    least = case.bytes_read + case.bytes_written
    gb_per_s = least / time_us / 1e3 if time_us and least else None
    executions = evidence.per_iteration(case.id, lambda _: 1.0) or (traced.executions if traced else None)
    longest = max(evidence.of(case.id), key=lambda row: row["duration_ns"] or 0.0, default={})
    return CaseFigures(
        case=case.id,
        label=labels(case.id),
        kernels=None if executions is None else round(executions),
        plain_us=plain.median_us if plain else None,
        plain_spread=plain.spread if plain else None,
        nsys_us=nsys_us,
        nsys_spread=traced.iteration.spread if traced else None,
        ncu_us=ncu_us,
        model_flops=case.flops,
        model_bytes=least,
        model_tflops=tflops,
        model_tflops_roof_share=_ratio(tflops, _tera(_roof(longest)[2])),
        model_gb_per_s=gb_per_s,
        model_gb_per_s_roof_share=_ratio(gb_per_s, _giga(metrics.dram_peak_bytes_per_second(longest))),
    )


def _launch(row: source.Row, labels: Labels, evidence: Evidence) -> LaunchFigures:
    traced = evidence.trace.kernels.get((row["case"], row["kernel"]))
    roof, ops, peak = _roof(row)
    duration_s = None if row["duration_ns"] is None else row["duration_ns"] / 1e9
    tflops = _tera(_ratio(ops, duration_s))
    registers = row["registers_per_thread"]
    shared = [row["shared_static_bytes"], row["shared_dynamic_bytes"]]
    return LaunchFigures(
        launch=row["launch"],
        case=row["case"],
        label=labels(row["case"]),
        iteration=row["iteration"],
        kernel=row["kernel"] or "",
        kernel_full=row["kernel_full"],
        grid=row["grid"],
        block=row["block"],
        ncu_us=None if duration_s is None else duration_s * 1e6,
        nsys_us=traced.median_us if traced else None,
        nsys_spread=traced.spread if traced else None,
        roof=roof,
        tflops=tflops,
        roof_tflops=_tera(peak),
        roof_share=_ratio(tflops, _tera(peak)),
        tensor_ops=metrics.tensor_ops(row),
        fp32_ops=metrics.float_ops(row).get("fp32"),
        tensor_active_pct=row["tensor_active_pct"],
        dram_gb_per_s=_giga(row["dram_bytes_per_second"]),
        dram_roof_gb_per_s=_giga(metrics.dram_peak_bytes_per_second(row)),
        dram_pct=row["dram_throughput_pct"],
        sm_clock_ghz=_giga(row["sm_clock_hz"]),
        achieved_occupancy_pct=row["achieved_occupancy_pct"],
        theoretical_occupancy_pct=row["theoretical_occupancy_pct"],
        occupancy_limiters=metrics.occupancy_limiters(row),
        waves=row["waves_per_sm"],
        registers_per_thread=None if registers is None else round(registers),
        shared_kb_per_block=None if None in shared else sum(shared) / 1e3,
        l1_hit_pct=row["l1_hit_pct"],
        l2_hit_pct=row["l2_hit_pct"],
    )


def _roof(row: source.Row) -> tuple[str | None, float | None, float | None]:
    """What limits a launch's work: the roof's name, the operations of its kind, and the most of them in a second.

    The tensor cores' roof where the launch did tensor operations, else that of single precision outside them: what
    ncu's roofline charts draw.
    """
    kind = metrics.dominant_tensor_kind(row)
    if kind is not None:
        return f"tensor {kind}", metrics.tensor_ops(row), metrics.tensor_peak_ops_per_second(row, kind)
    ops = metrics.float_ops(row).get("fp32")
    return (None, None, None) if ops is None else ("fp32", ops, metrics.float_peak_ops_per_second(row, "fp32"))


def _only_traced(labels: Labels, evidence: Evidence) -> Iterable[LaunchFigures]:
    """The kernels that ncu did not see."""
    profiled = {(row["case"], row["kernel"]) for row in evidence.launches}
    for (case, kernel), times in evidence.trace.kernels.items():
        if (case, kernel) not in profiled:
            yield LaunchFigures(
                case=case, label=labels(case), kernel=kernel, nsys_us=times.median_us, nsys_spread=times.spread
            )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _giga(value: float | None) -> float | None:
    return None if value is None else value / 1e9


def _tera(value: float | None) -> float | None:
    return None if value is None else value / 1e12


# As tables

_CASES = (
    Column("label", "case"),
    Column("kernels", "kernels"),
    Column("plain_us", "plain", "µs", ".2f"),
    Column("plain_spread", "spread", "", ".1%"),
    Column("nsys_us", "nsys", "µs", ".2f"),
    Column("nsys_spread", "spread", "", ".1%"),
    Column("ncu_us", "ncu", "µs", ".2f"),
    Column("model_tflops", "least work", "TFLOP/s", ".2f"),
    Column("model_tflops_roof_share", "of roof", "", ".1%"),
    Column("model_gb_per_s", "least bytes", "GB/s", ",.0f"),
    Column("model_gb_per_s_roof_share", "of DRAM", "", ".1%"),
)

_TIME_AND_ROOFS = (
    Column("launch", "#"),
    Column("label", "case"),
    Column("kernel", "kernel"),
    Column("ncu_us", "ncu", "µs", ".2f"),
    Column("nsys_us", "nsys", "µs", ".2f"),
    Column("tflops", "counted", "TFLOP/s", ".2f"),
    Column("roof_share", "of roof", "", ".1%"),
    Column("roof", "roof"),
    Column("tensor_active_pct", "tensor", "% active", ".2f"),
    Column("dram_gb_per_s", "DRAM", "GB/s", ",.2f"),
    Column("dram_pct", "DRAM", "%", ".2f"),
)

_OCCUPANCY_AND_CACHES = (
    Column("launch", "#"),
    Column("label", "case"),
    Column("kernel", "kernel"),
    Column("achieved_occupancy_pct", "achieved", "%", ".2f"),
    Column("theoretical_occupancy_pct", "theoret.", "%", ".2f"),
    Column("limited_by", "limited by", least=len("registers, shared")),
    Column("waves", "waves", "", ".2f"),
    Column("registers_per_thread", "regs", "", "d"),
    Column("shared_kb_per_block", "shared", "kB/block", ".2f"),
    Column("l1_hit_pct", "L1 hit", "%", ".2f"),
    Column("l2_hit_pct", "L2 hit", "%", ".2f"),
)

WIDEST_LABEL = 32
"""Cells."""

_NOTES = (
    "limited by: what holds the theoretical occupancy; below one wave the grid is too small to reach it.",
    "plain: an iteration between CUDA events, without a profiler, events and gaps included. nsys, ncu: kernels only; "
    "medians; spread is (p90 - p10) / median.",
    "least work, least bytes: what the algorithm needs, over ncu's time (nsys's where there is none); DRAM moves less "
    "where L2 keeps what was written. counted: the operations of the roof's kind that ncu counted, over its time. A "
    "roof is the peak at the clock that ncu measured.",
)


def document(figures: Figures) -> Document:
    """The figures as tables: three for people; one for programs, a row a launch with its case's figures beside it."""
    profiled = [item for item in figures.launches if item.launch is not None]
    shown = []
    if figures.cases:
        columns = _with_whole_labels(_CASES, figures)
        shown.append(view_of(columns, figures.cases, title="An iteration of each case"))
    if figures.launches:
        columns = _with_whole_labels(_with_iteration(_TIME_AND_ROOFS, figures.launches), figures)
        shown.append(view_of(columns, figures.launches, title="Time and roofs of each launch"))
    if profiled:
        columns = _with_whole_labels(_with_iteration(_OCCUPANCY_AND_CACHES, profiled), figures)
        shown.append(view_of(columns, profiled, title="Occupancy and caches of each launch"))
    return Document(data=_data(figures), shown=tuple(shown), warnings=figures.warnings, notes=_NOTES)


def _with_whole_labels(columns: Sequence[Column], figures: Figures) -> tuple[Column, ...]:
    """The columns, the labels of cases as wide as they are: kernels' names are shortened before them."""
    labels = [case.label for case in figures.cases] + [launch.label for launch in figures.launches]
    widest = max(map(len, labels), default=0)
    return tuple(
        dataclasses.replace(column, least=min(widest, WIDEST_LABEL)) if column.key == "label" else column
        for column in columns
    )


def _with_iteration(columns: Sequence[Column], launches: Sequence[LaunchFigures]) -> tuple[Column, ...]:
    """The columns, with the iteration where a kernel of a case was launched in several."""
    if len({item.iteration for item in launches}) <= 1:
        return tuple(columns)
    return (*columns[:3], Column("iteration", "iter"), *columns[3:])


def _data(figures: Figures) -> View:
    """A row a launch, its case's figures under ``case_…``; a case without launches has a row of its own."""
    of_launch = [field.name for field in dataclasses.fields(LaunchFigures)]
    of_case = [field.name for field in dataclasses.fields(CaseFigures) if field.name not in ("case", "label")]
    cases = {case.case: case for case in figures.cases}
    bare = [
        LaunchFigures(case=case.case, label=case.label)
        for case in figures.cases
        if case.case not in {item.case for item in figures.launches}
    ]
    rows = tuple(
        (
            *(getattr(item, name) for name in of_launch),
            *(getattr(cases.get(item.case or ""), name, None) for name in of_case),
        )
        for item in (*figures.launches, *bare)
    )
    return View(tuple(map(Column, [*of_launch, *(f"case_{name}" for name in of_case)])), rows)
