"""``fiprof show``: an overview and sections by name for people, one flat table for programs.

A column without a title is for programs alone, one without a key for people. A new metric is a line of
``model/quantities.csv``, and one here where people are to see it.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from fiprof.analysis.occupancy import Resource, findings
from fiprof.analysis.show import Figures, LaunchFigures
from fiprof.analysis.trace import weights
from fiprof.model import case_quantities
from fiprof.model.case_quantities import CaseQuantity
from fiprof.model.finding import say, worded
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import LOCAL_REQUESTS, QUANTITIES
from fiprof.model.run import Run
from fiprof.model.selection import Alike, alike, longest_first
from fiprof.reports.columns import (
    HOW_TIMED,
    NAMES,
    TIMES,
    Cell,
    Cells,
    attribute,
    bounded,
    filled,
    for_programs,
    grouped,
    measured,
    tera,
)
from fiprof.reports.view import Column, Document, Narrow, Value, View

MOST_ROWS = 20
"""Groups of like launches, and cases, that people are shown."""


# The columns of launches

WHO: Cells = tuple(map(attribute, ("launch", "case", "label", "iteration", "kernel", "kernel_full", "grid", "block")))
RANK: Cells = (attribute("rank", "rank"),)
TIMED: Cells = (
    *TIMES,
    attribute("nsys_spread", "spread", spec=".1%"),
    attribute("grid", "grid"),
    attribute("block", "block"),
)
IN_LOOP = attribute("case_dram_floor_pct", "in loop", "DRAM %", ".0f")
"""Beside ncu's cold launch, which leaves a part of what it writes in L2."""
OVERVIEW: Cells = (
    *TIMES,
    measured("sm_throughput_pct", "SM", spec=".0f"),
    measured("l1_throughput_pct", "L1", spec=".0f"),
    measured("l2_use_pct", "L2", spec=".0f"),
    measured("dram_throughput_pct", "DRAM", spec=".0f"),
    IN_LOOP,
    measured("tensor_active_pct", "tensor", spec=".0f"),
    measured("achieved_occupancy_pct", "occup.", spec=".0f"),
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
    measured("tensor_active_pct", "tensor", "% active"),
    measured("threads_per_instruction", "threads", "per inst"),
    *map(measured, ("tensor_ops", "fp32_ops", "sm_clock_ghz")),
)
MEMORY: Cells = (
    measured("sm_throughput_pct", "SM"),
    measured("l1_throughput_pct", "L1"),
    measured("l2_use_pct", "L2"),
    measured("l2_throughput_pct"),
    measured("dram_throughput_pct", "DRAM"),
    IN_LOOP,
    attribute("", "busiest", of="busiest"),
    measured("dram_gb_per_s", "DRAM"),
    *map(measured, ("dram_roof_gb_per_s", "dram_share", "l2_gb_per_s", "l2_roof_gb_per_s")),
    measured("l1_hit_pct", "L1", "hit %"),
    measured("l2_hit_pct", "L2", "hit %"),
)
OCCUPANCY: Cells = (
    measured("achieved_occupancy_pct", "achieved", spec=".2f"),
    measured("theoretical_occupancy_pct", "theoret.", spec=".2f"),
    attribute("occupancy_limiters", of="occupancy.limiters"),
    (
        Column("", "limited by", least=len("registers, shared")),
        lambda item: ", ".join(limiter.split()[0] for limiter in item.occupancy.limiters),
    ),
    measured("threads_per_block"),
    measured("registers_per_thread", "regs"),
    measured("shared_kb_per_block", "shared", spec=".2f"),
)


def _limit(resource: Resource, title: str) -> Cells:
    key = f"limit_{resource.replace(' ', '_')}"
    columns = (
        Column(f"{key}_blocks", title, spec=".3g"),
        Column(f"{key}_most_blocks", "max" if resource is Resource.SHARED_MEMORY else "", spec=".3g"),
        Column(f"{key}_occupancy_pct"),
    )

    def cell(column: Column) -> Cell:
        name = column.key.removeprefix(f"{key}_")
        return column, lambda item: getattr(item.occupancy.limit(resource), name, None)

    return tuple(cell(column) for column in columns if column.title or not column.spec)


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
    attribute("occupancy_steps", of="occupancy.steps"),
)
WAVES: Cells = (
    attribute("wave_blocks", "a wave", "blocks", ",d", of="occupancy.waves.wave_blocks"),
    measured("waves_per_sm", "waves"),
    attribute("full_waves", "full", "", "d", of="occupancy.waves.full"),
    attribute("last_wave_blocks", "last", "blocks", ",d", of="occupancy.waves.last_blocks"),
    attribute("last_wave_idle_share", "idle in it", "", ".1%", of="occupancy.waves.idle_share"),
    attribute("tail_loss_share", "costs ≤", "", ".1%", of="occupancy.waves.loss_share"),
    attribute("last_wave_share", of="occupancy.waves.last_wave_share"),
    attribute("idle_multiprocessors", of="occupancy.waves.idle_multiprocessors"),
)


def _ideal(kind: str) -> Cells:
    """Sectors a request that would be ideal, of the narrowest and the widest access; for people as one cell."""

    def of(item: LaunchFigures, place: int) -> Value:
        found = item.ideal_sectors(kind)
        return found[place] if found else None

    def shown(item: LaunchFigures) -> Value:
        return "–".join(f"{sectors:g}" for sectors in dict.fromkeys(item.ideal_sectors(kind) or ())) or None

    return (
        (Column("", "ideal", least=5), shown),
        (Column(f"global_{kind}_ideal_low"), lambda item: of(item, 0)),
        (Column(f"global_{kind}_ideal_high"), lambda item: of(item, 1)),
    )


GLOBAL: Cells = (
    measured("global_loads_sectors_per_request", "loads", "sect/req", ".2f"),
    *_ideal("loads"),
    measured("global_stores_sectors_per_request", "stores", "sect/req", ".2f"),
    *_ideal("stores"),
)
SHARED: Cells = (
    measured("shared_loads_conflict_share", "sh. loads", "conflicts"),
    measured("shared_loads_passes_per_needed", "n-way"),
    measured("shared_stores_conflict_share", "sh. stores", "conflicts"),
    measured("shared_stores_passes_per_needed", "n-way"),
)
LOCAL: Cells = (
    measured("local_requests", "local", "requests"),
    measured("spill_requests", "spilled", "requests"),
)
_CHOSEN: Cells = (
    *WHO, *TIMED, *WORK, *MEMORY, *OCCUPANCY, *LIMITS, *WAVES, *GLOBAL, *SHARED, *LOCAL,
)  # fmt: skip
_KEYS = {column.key for column, _ in _CHOSEN}
LAUNCH: Cells = (*_CHOSEN, *(measured(key) for key in QUANTITIES if key not in _KEYS))
"""All that is known of a launch: programs get the quantities without a column of their own too."""

# Cases

CASE_TIMES = (
    (case_quantities.PLAIN, "plain", ",.2f", Narrow.WRAP),
    (case_quantities.PLAIN_SPREAD, "spread", ".1%", Narrow.WRAP),
    (case_quantities.NSYS, "nsys", ",.2f", Narrow.WRAP),
    (case_quantities.NSYS_SPREAD, "spread", ".1%", Narrow.WRAP),
    (case_quantities.NCU, "ncu", ",.2f", Narrow.WRAP),
    (case_quantities.WALL, "host loop", ",.2f", Narrow.DROP),
    (case_quantities.WAITING, "GPU waits", ".0f", Narrow.DROP),
)
"""Quantity of a case, its heading and format, and what becomes of it where the table is too wide."""
CASE_LEAST = (
    (case_quantities.MODEL_TFLOPS, "least work", ".2f", Narrow.WRAP),
    (case_quantities.MODEL_TFLOPS_SHARE, "of roof", ".1%", Narrow.WRAP),
    (case_quantities.MODEL_GB_PER_S, "least bytes", ",.0f", Narrow.WRAP),
    (case_quantities.MODEL_GB_PER_S_SHARE, "of DRAM", ".1%", Narrow.WRAP),
)
CASE_KEYS = (
    case_quantities.PLAIN, case_quantities.PLAIN_SPREAD, case_quantities.NSYS, case_quantities.NSYS_SPREAD,
    case_quantities.NCU, case_quantities.KERNEL_TIME, case_quantities.BUSY, case_quantities.WALL,
    case_quantities.MODEL_FLOPS, case_quantities.MODEL_BYTES, case_quantities.MODEL_TFLOPS,
    case_quantities.MODEL_TFLOPS_SHARE, case_quantities.MODEL_GB_PER_S, case_quantities.MODEL_GB_PER_S_SHARE,
    case_quantities.DRAM_FLOOR, case_quantities.LARGEST_SAVING,
)  # fmt: skip
"""What programs get of a launch's case."""


def case_times(run: Run, cases: Sequence[CaseEntry], title: str = "", *notes: str) -> View:
    """How long an iteration of each case takes, by each tool."""
    note = (
        "plain: between CUDA events, without a profiler, gaps included; nsys, ncu: kernels alone; host loop: launched "
        "back to back, in which the GPU waits; medians. spread: (p90 - p10) / median."
    )
    kernels: Cell = (Column("case_kernels", "kernels"), lambda case: case_quantities.kernels(run, case.id))
    return _of_cases(run, cases, [kernels], CASE_TIMES, title, note, *notes)


def _of_cases(
    run: Run,
    cases: Sequence[CaseEntry],
    first: Cells,
    quantities: Sequence[tuple[CaseQuantity, str, str, Narrow]],
    title: str,
    *notes: str,
) -> View:
    """A row a case, numbers with their sources; quantities that no case has are left out."""

    def cell(quantity: CaseQuantity, heading: str, spec: str, narrow: Narrow) -> Cell:
        column = Column(quantity.key, heading, quantity.unit, spec, quantity.meaning, narrow=narrow)
        return column, lambda case: quantity.traced(run, case.id)

    name: Cell = (Column("label", "case"), lambda case: run.labels(case.id))
    return filled((name, *first, *(cell(*each) for each in quantities)), cases, title=title, notes=notes)


# The document

Group = Alike[LaunchFigures]


def document(
    figures: Figures,
    *,
    limits: Callable[[tuple[int, ...]], Mapping[int, str]] | None = None,
    overview: bool = True,
    sections: Collection[str] | None = None,
    most: int | None = None,
) -> Document:
    """The figures as tables: for people overview and sections; for programs a row a launch, its case beside it.

    limits: what limits some launches, for the overview. sections: of SECTIONS, None for all. most: rows that people are
    shown; None for all.
    """
    wanted = SECTIONS if sections is None else sections
    run, by_rank = figures.run, any(item.rank is not None for item in figures.launches)

    @functools.cache
    def of_case(case: str | None) -> Mapping[str, Value]:
        kernels = None if case is None else case_quantities.kernels(run, case)
        return {"case_kernels": kernels, **{quantity.key: quantity.of(run, case) for quantity in CASE_KEYS}}

    def data() -> View:
        """A row a launch, its case's figures under ``case_…``; a case without launches has a row of its own."""
        launched = {item.case for item in figures.launches}
        bare = [LaunchFigures(case=case.id, label=run.labels(case.id)) for case in figures.cases]
        cases = [(Column(key), lambda item, key=key: of_case(item.case)[key]) for key in of_case(None)]
        rows = (*figures.launches, *(item for item in bare if item.case not in launched))
        return filled(for_programs(*LAUNCH, *(RANK if by_rank else ()), *cases), rows)

    groups = longest_first(
        alike(
            figures.launches,
            lambda item: item.duration_us or item.nsys_duration_us,
            lambda item: item.rank,
            weights(run),
        )
    )
    kept, left_out = bounded(groups, most)
    profiled = [group for group in kept if group.shown.launch is not None]
    cases, more = figures.cases[:most], figures.cases[len(figures.cases[:most]) :]
    rest = (say("{count:case|cases} left out: --all shows them.", count=len(more)),) if more else ()
    shown = []
    if overview and figures.cases:
        shown.append(case_times(run, cases, "Cases: time of an iteration", *rest))
    if overview and kept:
        cells: list[Cell] = [*(RANK if by_rank else ()), *OVERVIEW]
        if limits and (launches := tuple(group.shown.launch for group in profiled if group.shown.launch is not None)):
            found = limits(launches)
            cells.append((Column("", "limit"), lambda item: found.get(item.launch)))
        shown.append(_table(kept, cells, "Kernels: time, use in % of peak, achieved occupancy", HOW_TIMED))
    if "times" in wanted and figures.cases:
        title = "Cases: the least work and bytes that the algorithm needs, over the time"
        note = (
            "The time is ncu's, or nsys's without it. A roof is the peak at the measured clock. "
            "L2 may keep what was written, so DRAM may move less."
        )
        shown.append(_of_cases(run, cases, (), CASE_LEAST, title, note, *rest))
    for section, tables in SECTIONS.items():
        shown += tables(profiled) if section in wanted and profiled else ()
    options = tuple(f"--{section}" for section in SECTIONS if section not in wanted)
    hint = [say("More: {options}, or --all.", options=options)] if options and profiled and overview else []
    return Document(data, tuple(shown), warnings=figures.warnings, notes=(*left_out, *hint))


def _table(groups: Sequence[Group], cells: Cells, title: str, *notes: str) -> View:
    several = len({group.shown.iteration for group in groups}) > 1 and all(group.count == 1 for group in groups)
    columns = (*NAMES, *((attribute("iteration", "iter"),) if several else ()), *cells)
    return filled(grouped(columns, groups), groups, title=title, notes=notes)


def _times(groups: Sequence[Group]) -> Iterator[View]:
    yield _table(groups, TIMED, "Times", HOW_TIMED, "spread: (p90 - p10) / median under nsys.")


def _compute(groups: Sequence[Group]) -> Iterator[View]:
    note = (
        "achieved: operations of the kind that uses most of its roof, as ncu counted them (of the cost model where it "
        "did not); roof: that kind. threads: active threads an instruction, of 32."
    )
    yield _table(groups, WORK, "Compute", note)


def _memory(groups: Sequence[Group]) -> Iterator[View]:
    title = "Memory: use in % of peak, and caches"
    yield _table(groups, MEMORY, title, "SM, L1, L2, DRAM: the busiest part of each (L1 while it is active).")

    def collected(cells: Cells) -> bool:
        return any(value(group.shown) is not None for group in groups for column, value in cells if column.key)

    if collected(GLOBAL):
        note = (
            "A sector has 32 bytes. ideal: 4 where each thread of a warp loads 4 bytes, 16 where it loads 16. "
            "More: scattered; fewer: threads share them."
        )
        yield _table(groups, GLOBAL, "Global memory: sectors a request", note)
    if collected(SHARED):
        note = "conflicts: passes that bank conflicts added, of all; n-way: passes for each one needed, 1 is ideal."
        yield _table(groups, SHARED, "Shared memory: bank conflicts", note)
    if any(value(group.shown) for group in groups for _, value in LOCAL):
        yield _table(groups, LOCAL, "Local memory: spilled registers and arrays of a thread")
    notes = []
    if not collected(GLOBAL) and not collected(SHARED):
        notes.append(
            "Sectors a request, bank conflicts and local memory were not collected: --section "
            "MemoryWorkloadAnalysis_Tables has them, or --set full."
        )
    if all(LOCAL_REQUESTS.of(group.shown.row) == 0 for group in groups):
        notes.append("No launch uses local memory: no register was spilled.")
    if notes:
        yield View((), (), summary=tuple(notes))


def _occupancy(groups: Sequence[Group]) -> Iterator[View]:
    yield _table(groups, OCCUPANCY, "Occupancy")
    if not any(group.shown.occupancy.limits for group in groups):
        return
    empty = {column.key for column, value in CLUSTERS if not any(value(group.shown) for group in groups)}
    about: dict[str, list[int | None]] = defaultdict(list)
    for group in groups:
        if text := " ".join(map(worded, findings(group.shown.occupancy))):
            about[text].append(group.shown.launch)
    note = (
        "shared: with the shared memory as set up; max: with all there is. lifted: occupancy without the limit that "
        "binds."
    )
    held = [say("{launches:launch|launches}: {text}", launches=found, text=text) for text, found in about.items()]
    title = "Limits of occupancy: blocks on a multiprocessor that each resource allows"
    yield _table(groups, [cell for cell in LIMITS if cell[0].key not in empty], title, note, *held)


def _waves(groups: Sequence[Group]) -> Iterator[View]:
    if not any(group.shown.occupancy.waves for group in groups):
        return
    notes = [
        "a wave: blocks that fit at once. costs: time that the partial last wave wastes if all blocks take the same, "
        "1 - waves / ceil(waves)."
    ]
    if small := [each.shown.launch for each in groups if (waves := each.shown.occupancy.waves) and not waves.full]:
        words = (
            "{launches:launch|launches}: the grid has fewer blocks than fit at once; more room on a multiprocessor "
            "does not help."
        )
        notes.append(say(words, launches=small))
    yield _table(groups, WAVES, "Waves", *notes)


SECTIONS: Mapping[str, Callable[[Sequence[Group]], Iterator[View]]] = {
    "times": _times,
    "compute": _compute,
    "memory": _memory,
    "occupancy": _occupancy,
    "waves": _waves,
}
"""What ``fiprof show`` shows below its overview, each by an option of its name."""
