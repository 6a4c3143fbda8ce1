"""The columns of ``fiprof show``, once: what its tables, its JSON and the report's tables have of a launch.

A column without a title is for programs alone, one without a key for people. A new metric is an entry here and in
``model/quantities.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fiprof.analysis.accesses import IdealSectors
from fiprof.analysis.occupancy import Resource
from fiprof.analysis.show import LaunchFigures
from fiprof.model import case_quantities, floors
from fiprof.model.case_quantities import CaseQuantity
from fiprof.model.quantities import (
    DRAM_GB_PER_S,
    DRAM_ROOF,
    DRAM_SHARE,
    DURATION,
    FP32_OPERATIONS,
    GLOBAL_LOADS_SECTORS,
    GLOBAL_STORES_SECTORS,
    L2_GB_PER_S,
    L2_ROOF,
    L2_USE,
    LOCAL_REQUESTS,
    QUANTITIES,
    SHARED_LOADS_CONFLICTS,
    SHARED_LOADS_PASSES,
    SHARED_MEMORY,
    SHARED_STORES_CONFLICTS,
    SHARED_STORES_PASSES,
    SM_CLOCK,
    TENSOR_OPERATIONS,
    metric,
)
from fiprof.model.run import Run
from fiprof.reports.columns import Cell, Cells, attribute, measured, tera
from fiprof.reports.view import Column, Value

# Launches

WHO: Cells = (
    attribute("launch"),
    attribute("case"),
    attribute("label"),
    attribute("iteration"),
    attribute("kernel"),
    attribute("kernel_full"),
    attribute("grid"),
    attribute("block"),
)
NSYS = attribute("nsys_duration_us", "nsys", "µs", ",.2f")
TIMES: Cells = (
    measured(DURATION, "time", spec=",.2f"),
    NSYS,
    attribute("nsys_spread", "spread", spec=".1%"),
    attribute("grid", "grid"),
    attribute("block", "block"),
)
OVERVIEW: Cells = (
    measured(DURATION, "time", spec=",.2f"),
    measured(metric("sm_throughput_pct"), "SM", spec=".0f"),
    measured(metric("l1_throughput_pct"), "L1", spec=".0f"),
    measured(L2_USE, "L2", spec=".0f"),
    measured(metric("dram_throughput_pct"), "DRAM", spec=".0f"),
    measured(metric("tensor_active_pct"), "tensor", spec=".0f"),
    measured(metric("achieved_occupancy_pct"), "occup.", spec=".0f"),
)


def _of_roof(item: LaunchFigures) -> tuple[float | None, str | None]:
    """The share of the roof for its work, and that roof; without work those of its busiest memory."""
    placed = item.roofline
    if placed is None or placed.work is None:
        return (None, None) if placed is None else (placed.share, placed.roof)
    return placed.work.share, placed.work.kind


WORK: Cells = (
    tera("tflops", "roofline.work.ops_per_second", "achieved"),
    (Column("", "of roof", spec=".1%"), lambda item: _of_roof(item)[0]),
    (Column("", "roof", least=len("tensor fp16")), lambda item: _of_roof(item)[1]),
    attribute("compute_roof_share", of="roofline.work.share"),
    attribute("work", of="roofline.work.kind"),
    tera("compute_roof_tflops", "roofline.work.peak_ops_per_second"),
    attribute("basis", of="roofline.basis"),
    measured(metric("tensor_active_pct"), "tensor", "% active"),
    measured(metric("threads_per_instruction"), "threads", "per inst"),
    measured(TENSOR_OPERATIONS),
    measured(FP32_OPERATIONS),
    measured(SM_CLOCK),
)
MEMORY: Cells = (
    measured(metric("sm_throughput_pct"), "SM"),
    measured(metric("l1_throughput_pct"), "L1"),
    measured(L2_USE, "L2"),
    measured(metric("l2_throughput_pct")),
    measured(metric("dram_throughput_pct"), "DRAM"),
    attribute("", "busiest", of="busiest"),
    measured(DRAM_GB_PER_S, "DRAM"),
    measured(DRAM_ROOF),
    measured(DRAM_SHARE),
    measured(L2_GB_PER_S),
    measured(L2_ROOF),
    measured(metric("l1_hit_pct"), "L1", "hit %"),
    measured(metric("l2_hit_pct"), "L2", "hit %"),
)


def _limited_by(item: LaunchFigures) -> Value:
    """The limiters as one short cell."""
    return ", ".join(limiter.split()[0] for limiter in item.occupancy.limiters)


OCCUPANCY: Cells = (
    measured(metric("achieved_occupancy_pct"), "achieved", spec=".2f"),
    measured(metric("theoretical_occupancy_pct"), "theoret.", spec=".2f"),
    attribute("occupancy_limiters", of="occupancy.limiters"),
    (Column("", "limited by", least=len("registers, shared")), _limited_by),
    measured(metric("threads_per_block")),
    measured(metric("registers_per_thread"), "regs"),
    measured(SHARED_MEMORY, "shared", spec=".2f"),
)


def _limit(resource: Resource, title: str) -> Cells:
    def of(name: str) -> Callable[[LaunchFigures], Value]:
        return lambda item: getattr(item.occupancy.limit(resource), name, None)

    key = f"limit_{resource.replace(' ', '_')}"
    blocks = (Column(f"{key}_blocks", title, spec=".3g"), of("blocks"))
    most = (Column(f"{key}_most_blocks", "max", spec=".3g"), of("most_blocks"))
    occupancy = (Column(f"{key}_occupancy_pct"), of("occupancy_pct"))
    return (blocks, most, occupancy) if resource == Resource.SHARED_MEMORY else (blocks, occupancy)


CLUSTERS = _limit(Resource.CLUSTERS, "clusters")
LIMITS: Cells = (
    *_limit(Resource.REGISTERS, "regs"),
    *_limit(Resource.SHARED_MEMORY, "shared"),
    *_limit(Resource.WARPS, "warps"),
    *_limit(Resource.BLOCKS, "blocks"),
    *_limit(Resource.BARRIERS, "barriers"),
    *CLUSTERS,
    attribute("lifted_occupancy_pct", "lifted", "%", ".4g", of="occupancy.lift.occupancy_pct"),
    attribute("lifted_resources", of="occupancy.lift.resources"),
    attribute("lifted_blocks", of="occupancy.lift.blocks"),
    attribute("lifted_then", of="occupancy.lift.then"),
    (Column("occupancy_steps"), lambda item: tuple(step.finding for step in item.occupancy.steps)),
)
WAVES: Cells = (
    attribute("wave_blocks", "a wave", "blocks", ",d", of="occupancy.waves.wave_blocks"),
    measured(metric("waves_per_sm"), "waves"),
    attribute("full_waves", "full", "", "d", of="occupancy.waves.full"),
    attribute("last_wave_blocks", "last", "blocks", ",d", of="occupancy.waves.last_blocks"),
    attribute("last_wave_idle_share", "idle in it", "", ".1%", of="occupancy.waves.idle_share"),
    attribute("tail_loss_share", "costs ≤", "", ".1%", of="occupancy.waves.loss_share"),
    attribute("last_wave_share", of="occupancy.waves.last_wave_share"),
    attribute("idle_multiprocessors", of="occupancy.waves.idle_multiprocessors"),
)


def _ideal(name: str) -> Cells:
    """Sectors a request that would be ideal; for people as one cell."""

    def shown(item: LaunchFigures) -> Value:
        found: IdealSectors | None = getattr(item.widths, f"ideal_{name}")
        if found is None:
            return None
        return f"{found.low:g}" if found.low == found.high else f"{found.low:g}–{found.high:g}"

    return (
        (Column("", "ideal", least=5), shown),
        attribute(f"global_{name}_ideal_low", of=f"widths.ideal_{name}.low"),
        attribute(f"global_{name}_ideal_high", of=f"widths.ideal_{name}.high"),
    )


GLOBAL: Cells = (
    measured(GLOBAL_LOADS_SECTORS, "loads", "sect/req", ".2f"),
    *_ideal("loads"),
    measured(GLOBAL_STORES_SECTORS, "stores", "sect/req", ".2f"),
    *_ideal("stores"),
)
SHARED: Cells = (
    measured(SHARED_LOADS_CONFLICTS, "sh. loads", "conflicts"),
    measured(SHARED_LOADS_PASSES, "n-way"),
    measured(SHARED_STORES_CONFLICTS, "sh. stores", "conflicts"),
    measured(SHARED_STORES_PASSES, "n-way"),
)
LOCAL: Cells = (
    measured(LOCAL_REQUESTS, "local", "requests"),
    measured(metric("spill_requests"), "spilled", "requests"),
)

_CHOSEN: Cells = (
    *WHO, *TIMES, *WORK, *MEMORY, *OCCUPANCY, *LIMITS, *WAVES, *GLOBAL, *SHARED, *LOCAL,
)  # fmt: skip
_KEYS = {column.key for column, _ in _CHOSEN}
LAUNCH: Cells = (*_CHOSEN, *(measured(quantity) for key, quantity in QUANTITIES.items() if key not in _KEYS))
"""All that is known of a launch: programs get the quantities without a column of their own too."""

# Cases

CaseCell = tuple[Column, Callable[[Run, str], Any]]


def _of_case(quantity: CaseQuantity, title: str = "", spec: str = "") -> CaseCell:
    column = Column(quantity.key, title, quantity.unit if title else "", spec, quantity.meaning)
    return column, quantity.of


CASE_TIMES: tuple[CaseCell, ...] = (
    (Column("case_kernels", "kernels"), case_quantities.kernels),
    _of_case(case_quantities.PLAIN, "plain", ",.2f"),
    _of_case(case_quantities.PLAIN_SPREAD, "spread", ".1%"),
    _of_case(case_quantities.NSYS, "nsys", ",.2f"),
    _of_case(case_quantities.NSYS_SPREAD, "spread", ".1%"),
    _of_case(case_quantities.NCU, "ncu", ",.2f"),
    _of_case(case_quantities.KERNEL_TIME),
    _of_case(case_quantities.BUSY),
    _of_case(case_quantities.WALL),
)
CASE_LEAST: tuple[CaseCell, ...] = (
    _of_case(case_quantities.MODEL_FLOPS),
    _of_case(case_quantities.MODEL_BYTES),
    _of_case(case_quantities.MODEL_TFLOPS, "least work", ".2f"),
    _of_case(case_quantities.MODEL_TFLOPS_SHARE, "of roof", ".1%"),
    _of_case(case_quantities.MODEL_GB_PER_S, "least bytes", ",.0f"),
    _of_case(case_quantities.MODEL_GB_PER_S_SHARE, "of DRAM", ".1%"),
    _of_case(floors.DRAM_FLOOR),
    _of_case(floors.LARGEST_SAVING),
)


def of_cases(cells: tuple[CaseCell, ...], run: Run, case: str = "id") -> Cells:
    """The columns for a run, whose items have their case's id in the attribute ``case``."""

    def bound(column: Column, value: Callable[[Run, str], Any]) -> Cell:
        once = functools.cache(functools.partial(value, run))
        return column, lambda item: None if getattr(item, case) is None else once(getattr(item, case))

    return [bound(*cell) for cell in cells]
