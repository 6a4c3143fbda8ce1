"""Durations, roofs, occupancy and caches of a run's kernels: how far the hardware is from its limits."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fiprof.errors import FiprofError
from fiprof.parsers import metrics
from fiprof.parsers.manifest import CaseEntry
from fiprof.parsers.run import Run
from fiprof.reports import checks, show_tables, source
from fiprof.reports.accesses import Accesses, GlobalAccess, SharedAccess, accesses, widths_by_launch
from fiprof.reports.check_rules import Check
from fiprof.reports.evidence import Evidence
from fiprof.reports.labels import NO_CASE, Labels, names_kernel_or_case, short_kernel
from fiprof.reports.occupancy import RESOURCES, SHARED, Occupancy, occupancy
from fiprof.reports.view import Column, Document, Value, View, shorten


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
    sm_pct: float | None = None
    """Busiest part of the multiprocessors' compute side, of its peak."""
    l1_pct: float | None = None
    """Busiest part of the L1 cache while it is active, of its peak."""
    l2_pct: float | None = None
    """Busiest part of the L2 cache, of its peak."""
    l2_gb_per_s: float | None = None
    """From L2 towards the multiprocessors."""
    l2_roof_gb_per_s: float | None = None
    """The most at the L2 clock measured during the launch."""
    sm_clock_ghz: float | None = None
    """Of the multiprocessors, as ncu's rooflines take it; its «SM Frequency» is measured in another replay."""
    achieved_occupancy_pct: float | None = None
    theoretical_occupancy_pct: float | None = None
    occupancy_limiters: tuple[str, ...] = ()
    """What allows the fewest blocks on a multiprocessor; several where they tie."""
    waves: float | None = None
    """Blocks over those that fit on the GPU at once."""
    threads_per_block: int | None = None
    registers_per_thread: int | None = None
    shared_kb_per_block: float | None = None
    """Static and dynamic shared memory, in 1,000 bytes."""
    l1_hit_pct: float | None = None
    l2_hit_pct: float | None = None
    occupancy: Occupancy = field(default=Occupancy())
    """Every limit, what the next one would give, waves and tail."""
    accesses: Accesses = field(default=Accesses())
    """Bank conflicts, sectors a request, local memory."""

    @property
    def busiest(self) -> str | None:
        """What is nearest to its peak: SM, L1, L2 or DRAM."""
        shares = {"SM": self.sm_pct, "L1": self.l1_pct, "L2": self.l2_pct, "DRAM": self.dram_pct}
        known = {name: share for name, share in shares.items() if share is not None}
        return max(known, key=known.__getitem__, default=None)

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


def show(run: Run, *, kernel: str = "", longest: int | None = None) -> Figures:
    """The figures of a run, as far as it has them.

    kernel: only launches with this in the kernel's name or in their case, and their cases; upper and lower case are
    the same. longest: only so many launches, those that took most time.
    Raises FiprofError where no launch has that name, or for a table that is there and cannot be read.
    """
    evidence, labels = Evidence(run), Labels(run.manifest.cases)
    widths = widths_by_launch(run)
    found = [
        *(_launch(row, labels, evidence, widths) for row in evidence.launches),
        *_only_traced(labels, evidence),
    ]
    kept = [item for item in found if names_kernel_or_case(vars(item), item.label, kernel)]
    if kernel and not kept:
        names = sorted({item.kernel for item in found})
        raise FiprofError(
            f"{run.manifest.name} has no launch with kernel {kernel!r}",
            f"it has the kernels {', '.join(map(short_kernel, names))}" if names else "it has none at all",
        )
    if longest is not None:
        slowest = sorted(kept, key=lambda item: -(item.ncu_us or item.nsys_us or 0.0))[:longest]
        chosen = set(map(id, slowest))
        kept = [item for item in kept if id(item) in chosen]
    whole = not kernel and longest is None
    ids = {item.case for item in kept}
    doubts = _doubts(run, labels, None if whole else kept)
    return Figures(
        run=run.manifest.name,
        cases=tuple(_case(case, labels, evidence) for case in run.manifest.cases if whole or case.id in ids),
        launches=tuple(kept),
        warnings=(*source.status_warning(run), *_missing(evidence), *doubts),
    )


LONGEST_CASE = 60
"""Cells of a case's label in a sentence."""


def _doubts(run: Run, labels: Labels, kept: Sequence[LaunchFigures] | None) -> Iterable[str]:
    """A sentence for each check that failed: what it found first, and where else. kept: only what is about these."""
    numbers = None if kept is None else {item.launch for item in kept}
    cases = None if kept is None else {item.case for item in kept}
    alike: dict[str, list[Check]] = defaultdict(list)
    for check in checks.failed(run):
        about_kept = numbers is None or cases is None or check.launch is None or check.launch in numbers
        if about_kept and (cases is None or check.case is None or check.case in cases):
            alike[check.check].append(check)
    for first, *rest in alike.values():
        case = "" if first.case is None else shorten(labels(first.case), LONGEST_CASE)
        about = case if first.launch is None else f"launch {first.launch} ({case or NO_CASE})"
        text = f"{about}: {first.message}" if about else first.message
        launches = [check.launch for check in rest if check.launch is not None]
        others = show_tables.launches(launches) if launches else f"{len(rest)} more case{'s' if len(rest) > 1 else ''}"
        yield f"{text}; likewise {others}" if rest else text


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


def _launch(
    row: source.Row, labels: Labels, evidence: Evidence, widths: dict[int, dict[str, tuple[int, ...]]]
) -> LaunchFigures:
    traced, found = evidence.trace.kernels.get((row["case"], row["kernel"])), occupancy(row)
    roof, ops, peak = _roof(row)
    duration_s = None if row["duration_ns"] is None else row["duration_ns"] / 1e9
    tflops = _tera(_ratio(ops, duration_s))
    registers, threads = row["registers_per_thread"], row["threads_per_block"]
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
        sm_pct=row["sm_throughput_pct"],
        l1_pct=row["l1_throughput_pct"],
        l2_pct=row["l2_throughput_pct"],
        l2_gb_per_s=_giga(row["l2_bytes_per_second"]),
        l2_roof_gb_per_s=_giga(metrics.l2_peak_bytes_per_second(row)),
        sm_clock_ghz=_giga(row["sm_clock_hz"]),
        achieved_occupancy_pct=row["achieved_occupancy_pct"],
        theoretical_occupancy_pct=row["theoretical_occupancy_pct"],
        occupancy_limiters=found.limiters,
        waves=row["waves_per_sm"],
        threads_per_block=None if threads is None else round(threads),
        registers_per_thread=None if registers is None else round(registers),
        shared_kb_per_block=None if None in shared else sum(shared) / 1e3,
        l1_hit_pct=row["l1_hit_pct"],
        l2_hit_pct=row["l2_hit_pct"],
        occupancy=found,
        accesses=accesses(row, widths.get(row["launch"])),
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

_NOTES = (
    "plain: an iteration between CUDA events, without a profiler, events and gaps included. nsys, ncu: kernels only; "
    "medians; spread is (p90 - p10) / median.",
    "least work, least bytes: what the algorithm needs, over ncu's time (nsys's where there is none); DRAM moves less "
    "where L2 keeps what was written. counted: the operations of the roof's kind that ncu counted, over its time. A "
    "roof is the peak at the clock that ncu measured.",
)

_NOTES_OF_COUNTERS = (
    "SM, L1, L2, DRAM: the busiest part of each, of its peak (L1 while it is active); busiest: what is nearest to its "
    "peak. regs: registers a thread; shared: static and dynamic shared memory a block.",
    "limits: shared: with the shared memory that the driver set up, max: with all that it can; lifted: the "
    "occupancy if what binds did not. A wave is as many blocks as fit at once; costs: what the last, partial one "
    "wastes of the time if all blocks take the same, 1 - waves / ceil(waves).",
)

_NOTE_OF_ACCESSES = (
    "sect/req: sectors of 32 bytes a request; ideal: for the widths of the kernel's instructions, 4 where each thread "
    "of a warp loads 4 bytes, 16 where it loads 16 (32 threads x width / 32 bytes): more is scattered, fewer is shared "
    "by threads. conflicts: of all passes through shared memory, those that bank conflicts added; n-way: passes for "
    "each one needed, 1 is ideal."
)

_NOTE_OF_ALIKE = (
    "alike: so many launches of the same kernel, grid and block in this case; shown is the one of median duration, and "
    "--format json has them all."
)
_NO_ACCESSES = (
    "Sectors a request, bank conflicts and local memory were not collected: fiprof collect --set full collects them."
)
_NO_LOCAL = "No launch uses local memory: no register was spilled."


def document(figures: Figures, *, width: int = 120) -> Document:
    """The figures as tables: several for people; one for programs, a row a launch with its case's figures beside it.

    width: columns that a table may take; where names and figures do not fit, names are left out.
    """
    shown = tuple(show_tables.shown(figures, width))
    counted = any(item.launch is not None for item in figures.launches)
    accessed = any(item.accesses.global_loads or item.accesses.shared_loads for item in figures.launches)
    local = [item.accesses.local_requests for item in figures.launches if item.launch is not None]
    notes = [*_NOTES, *(_NOTES_OF_COUNTERS if counted else ())]
    if counted:
        notes.append(_NOTE_OF_ACCESSES if accessed else _NO_ACCESSES)
    if local and all(requests == 0 for requests in local):
        notes.append(_NO_LOCAL)
    if any(column.key == "alike" for view in shown for column in view.columns):
        notes.append(_NOTE_OF_ALIKE)
    return Document(data=_data(figures), shown=shown, warnings=figures.warnings, notes=tuple(notes))


def _data(figures: Figures) -> View:
    """A row a launch, its case's figures under ``case_…``; a case without launches has a row of its own."""
    nested = ("occupancy", "accesses")
    of_launch = [item.name for item in dataclasses.fields(LaunchFigures) if item.name not in nested]
    of_case = [item.name for item in dataclasses.fields(CaseFigures) if item.name not in ("case", "label")]
    cases = {case.case: case for case in figures.cases}
    bare = [
        LaunchFigures(case=case.case, label=case.label)
        for case in figures.cases
        if case.case not in {item.case for item in figures.launches}
    ]
    rows = [
        {
            **{name: getattr(item, name) for name in of_launch},
            **_flat_occupancy(item.occupancy),
            **_flat_accesses(item.accesses),
            **{f"case_{name}": getattr(cases.get(item.case or ""), name, None) for name in of_case},
        }
        for item in (*figures.launches, *bare)
    ]
    columns = tuple(map(Column, rows[0] if rows else of_launch))
    return View(columns, tuple(tuple(row.values()) for row in rows))


def _flat_occupancy(found: Occupancy) -> dict[str, Value]:
    """Blocks on a multiprocessor by each resource; what the next limit would give; waves."""
    cells: dict[str, Value] = {}
    for resource in RESOURCES:
        limit = found.limit(resource)
        name = resource.replace(" ", "_")
        cells[f"limit_{name}_blocks"] = limit.blocks if limit else None
        cells[f"limit_{name}_occupancy_pct"] = limit.occupancy_pct if limit else None
    shared, lift, waves = found.limit(SHARED), found.lift, found.waves
    return {
        **cells,
        "limit_shared_memory_most_blocks": shared.most_blocks if shared else None,
        "lifted_resources": lift.resources if lift else None,
        "lifted_blocks": lift.blocks if lift else None,
        "lifted_occupancy_pct": lift.occupancy_pct if lift else None,
        "lifted_then": lift.then if lift else None,
        "steps": tuple(step.change for step in found.steps),
        "wave_blocks": waves.wave_blocks if waves else None,
        "full_waves": waves.full if waves else None,
        "last_wave_blocks": waves.last_blocks if waves else None,
        "last_wave_idle_share": waves.idle_share if waves else None,
        "last_wave_share": waves.last_wave_share if waves else None,
        "tail_loss_share": waves.loss_share if waves else None,
        "idle_multiprocessors": waves.idle_multiprocessors if waves else None,
    }


def _flat_accesses(found: Accesses) -> dict[str, Value]:
    cells: dict[str, Value] = {}
    for name in ("global_loads", "global_stores"):
        moved: GlobalAccess | None = getattr(found, name)
        ideal = moved.ideal if moved else None
        cells[f"{name}_sectors_per_request"] = moved.sectors_per_request if moved else None
        cells[f"{name}_ideal_low"], cells[f"{name}_ideal_high"] = ideal or (None, None)
    for name in ("shared_loads", "shared_stores"):
        access: SharedAccess | None = getattr(found, name)
        cells[f"{name}_conflict_share"] = access.conflict_share if access else None
        cells[f"{name}_passes_per_needed"] = access.ways if access else None
    return {**cells, "local_requests": found.local_requests, "spill_requests": found.spill_requests}
