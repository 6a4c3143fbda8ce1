"""``fiprof show``: an overview and sections by name for people, one flat table for programs.

A new metric is a line of ``model/quantities.csv``, which programs get, and one here where people are to see it.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from fiprof.analysis.frames import OfRun
from fiprof.analysis.occupancy import findings
from fiprof.analysis.planning import PLANS, SMALL, plans
from fiprof.analysis.show import FIGURES, LaunchFigures, NotCounted, time_us
from fiprof.analysis.verdict.verdict import limits
from fiprof.model import case_quantities
from fiprof.model.case_quantities import CaseQuantity
from fiprof.model.finding import say, words_of
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import LOCAL_REQUESTS, QUANTITIES
from fiprof.model.run import Launch, Run
from fiprof.model.selection import Alike, alike, by_key, longest_first
from fiprof.reports.columns import HOW_TIMED, NAMES, TIMES, bounded, grouped, measured
from fiprof.reports.verdict_words import short_title
from fiprof.reports.view import Column, Document, Narrow, Value, View, left_out, view_of

MOST_ROWS = 20  # groups of like launches, and cases, that people are shown
RANK = (Column("rank", "rank"),)
TIMED = (*TIMES, Column("nsys_spread", "spread", spec=".1%"), Column("grid", "grid"), Column("block", "block"))
IN_LOOP = Column("case_dram_floor_pct", "in loop", "DRAM %", ".0f")
IN_LOOP_NOTE = (
    "in loop: the least bytes over the time of an iteration in a loop, of DRAM's peak, where that is more than ncu's: "
    "what ncu's single launch writes may stay in L2."
)
OVERVIEW = (
    *TIMES,
    measured("sm_throughput_pct", "SM", spec=".0f"),
    measured("l1_throughput_pct", "L1", spec=".0f"),
    measured("l2_use_pct", "L2", spec=".0f"),
    measured("dram_throughput_pct", "DRAM", spec=".0f"),
    IN_LOOP,
    measured("tensor_active_pct", "tensor", spec=".0f"),
    measured("achieved_occupancy_pct", "occup.", spec=".0f"),
)
WORK = (
    Column("tflops", "achieved", "TFLOP/s", ".2f"),
    Column("of_roof", "of roof", spec=".1%"),
    Column("roof", "roof", least=len("tensor fp16")),
    measured("tensor_active_pct", "tensor", "% active"),
    measured("threads_per_instruction", "threads", "per inst"),
)
MEMORY = (
    measured("sm_throughput_pct", "SM"),
    measured("l1_throughput_pct", "L1"),
    measured("l2_use_pct", "L2"),
    measured("dram_throughput_pct", "DRAM"),
    IN_LOOP,
    Column("busiest", "busiest"),
    measured("dram_gb_per_s", "DRAM"),
    measured("l1_hit_pct", "L1", "hit %"),
    measured("l2_hit_pct", "L2", "hit %"),
)
OCCUPANCY = (
    measured("achieved_occupancy_pct", "achieved", spec=".2f"),
    measured("theoretical_occupancy_pct", "theoret.", spec=".2f"),
    Column("limited_by", "limited by", least=len("registers, shared")),
    measured("registers_per_thread", "regs"),
    measured("shared_kb_per_block", "shared", spec=".2f"),
)
CLUSTERS = Column("limit_clusters_blocks", "clusters", spec=".3g")
LIMITS = (
    Column("limit_registers_blocks", "regs", spec=".3g"),
    Column("limit_shared_memory_blocks", "shared", spec=".3g"),
    Column("limit_shared_memory_most_blocks", "max", spec=".3g"),
    Column("limit_warps_blocks", "warps", spec=".3g"),
    Column("limit_blocks_blocks", "blocks", spec=".3g"),
    Column("limit_barriers_blocks", "barriers", spec=".3g"),
    CLUSTERS,
    Column("lifted_occupancy_pct", "lifted", "%", ".4g"),
)
WAVES = (
    Column("wave_blocks", "a wave", "blocks", ",d"),
    measured("waves_per_sm", "waves"),
    Column("full_waves", "full", "", "d"),
    Column("last_wave_blocks", "last", "blocks", ",d"),
    Column("last_wave_idle_share", "idle in it", "", ".1%"),
    Column("tail_loss_share", "costs ≤", "", ".1%"),
)
GLOBAL = (
    measured("global_loads_sectors_per_request", "loads", "sect/req", ".2f"),
    Column("ideal_loads", "ideal", least=5),
    measured("global_stores_sectors_per_request", "stores", "sect/req", ".2f"),
    Column("ideal_stores", "ideal", least=5),
)
SHARED = (
    measured("shared_loads_conflict_share", "sh. loads", "conflicts"),
    measured("shared_loads_passes_per_needed", "n-way"),
    measured("shared_stores_conflict_share", "sh. stores", "conflicts"),
    measured("shared_stores_passes_per_needed", "n-way"),
)
LOCAL = (measured("local_requests", "local", "requests"), measured("spill_requests", "spilled", "requests"))


def _figure(item: LaunchFigures, key: str) -> Value:
    """What stands in a column; of those that programs do not get, in words for people."""
    match key:
        case "of_roof" | "roof":
            # The share of the roof for its work, and that roof; without work those of its busiest memory.
            placed = item.roofline
            if placed is None:
                return None
            if placed.work is None:
                return placed.share if key == "of_roof" else placed.roof
            return placed.work.share if key == "of_roof" else placed.work.kind
        case "busiest":
            return item.busiest
        case "limited_by":
            return ", ".join(limiter.split()[0] for limiter in item.occupancy.limiters)
        case "ideal_loads" | "ideal_stores":
            ideal = item.ideal_sectors.get(key.removeprefix("ideal_")) or ()
            return "–".join(f"{sectors:g}" for sectors in dict.fromkeys(ideal)) or None
    found: Value = item[key]
    return found


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
    case_quantities.DRAM_FLOOR, case_quantities.LARGEST_SAVING, case_quantities.PEAK_MEMORY,
)  # fmt: skip
"""What programs get of a launch's case."""


def case_times(run: Run, cases: Sequence[CaseEntry], title: str = "", *notes: str) -> View:
    """How long an iteration of each case takes, by each tool."""
    note = "plain: between CUDA events, without a profiler, gaps included; nsys, ncu: kernels alone; host loop: "
    note += "launched back to back, in which the GPU waits; medians. spread: (p90 - p10) / median."
    return _of_cases(run, cases, CASE_TIMES, title, note, *notes)


def _of_cases(
    run: Run,
    cases: Sequence[CaseEntry],
    shown: Sequence[tuple[CaseQuantity, str, str, Narrow]],
    title: str,
    *notes: str,
) -> View:
    """A row a case, numbers with their sources. shown: quantities as CASE_TIMES has them."""
    of_quantities = [Column(of.key, head, of.unit, spec, of.meaning, narrow=narrow) for of, head, spec, narrow in shown]
    names = (Column("label", "case"), *((Column("case_kernels", "kernels"),) if shown is CASE_TIMES else ()))
    rows = [
        {"label": run.labels(case.id), "case_kernels": case_quantities.kernels(run, case.id)}
        | {each.key: each.traced(run, case.id) for each, *_ in shown}
        for case in cases
    ]
    return view_of((*names, *of_quantities), rows, title=title, notes=notes)


def planning(rows: Sequence[Mapping[str, Value]]) -> View:
    """plan() apart from run(). rows: of PLANS."""
    note = (
        "host: until plan() returns; copies: to the GPU, of one plan. a layer: a run() of the case, or the range that "
        f"repeats beside plan(); small from: with so many layers plan() is {SMALL:.0%} of the time."
    )
    kept = [column for column in PLANS if any(row[column.key] is not None for row in rows)]
    return view_of(kept, rows, title="plan() and run()", notes=(note,))


Group = Alike[LaunchFigures]
Cell = Callable[[LaunchFigures, str], Value]  # what stands in a column, by its key


def document(
    figures: OfRun[LaunchFigures, CaseEntry],
    run: Run,
    *,
    limited: bool = False,
    overview: bool = True,
    sections: Collection[str] | None = None,
    most: int | None = None,
) -> Document:
    """The figures as tables: for people overview and sections; for programs a row a launch, its case beside it.

    limited: the overview says what limits each kernel. sections: of SECTIONS, None for all. most: rows that people are
    shown; None for all.
    """
    shown_sections = SECTIONS if sections is None else sections
    by_rank = any(item.rank is not None for item in figures.launches)

    @functools.cache
    def of_case(case: str | None) -> Mapping[str, Value]:
        kernels = None if case is None else case_quantities.kernels(run, case)
        return {"case_kernels": kernels, **{quantity.key: quantity.of(run, case) for quantity in CASE_KEYS}}

    def data() -> View:
        """A row a launch, its case's figures under ``case_…``; a case without launches has a row of its own."""
        launched = {item.case for item in figures.launches}
        bare = [LaunchFigures(NotCounted(case.id, run.labels(case.id))) for case in figures.cases]
        others = {"rank": by_rank, **dict.fromkeys(of_case(None), False)}
        own = [key for key in dict.fromkeys([*FIGURES, *QUANTITIES]) if others.get(key, True)]
        rows = [
            {**{key: item[key] for key in own}, **of_case(item.case)}
            for item in (*figures.launches, *(each for each in bare if each.case not in launched))
        ]
        return view_of([Column(key) for key in (*own, *of_case(None))], rows)

    groups = alike(figures.launches, time_us, lambda item: item.rank, figures.weights)
    shown_groups, more = bounded(longest_first(groups), most)
    profiled = [group for group in shown_groups if group.shown.launch is not None]
    cases = figures.cases[:most]
    rest = left_out("{count:case|cases} left out: --all shows them.", len(figures.cases) - len(cases))
    shown = []
    if overview and figures.cases:
        shown.append(case_times(run, cases, "Cases: time of an iteration", *rest))
    if overview and (planned := plans(run)):
        shown.append(planning(planned))
    if overview and shown_groups:
        columns: list[Column] = [*(RANK if by_rank else ()), *OVERVIEW]
        judged = [group.shown.row for group in shown_groups if limited and isinstance(group.shown.row, Launch)]
        titles = {row.launch: short_title(of) for row, of in zip(judged, limits(run, judged), strict=True)}
        columns += [Column("limit", "limit")] if judged else []
        title = "Kernels: time, use in % of peak, achieved occupancy"

        def cell(item: LaunchFigures, key: str) -> Value:
            return titles.get(item.launch) if key == "limit" else _figure(item, key)

        shown.append(_table(shown_groups, columns, title, HOW_TIMED, *_in_loop(shown_groups), cell=cell))
    if "times" in shown_sections and figures.cases:
        title = "Cases: the least work and bytes that the algorithm needs, over the time"
        note = "The time is ncu's, or nsys's without it. A roof is the peak at the measured clock. "
        note += "L2 may keep what was written, so DRAM may move less."
        shown.append(_of_cases(run, cases, CASE_LEAST, title, note, *rest))
    for section, tables in SECTIONS.items():
        shown += tables(profiled) if section in shown_sections and profiled else ()
    options = tuple(f"--{section}" for section in SECTIONS if section not in shown_sections)
    hint = [say("More: {options}, or --all.", options=options)] if options and profiled and overview else []
    return Document(data, tuple(shown), warnings=figures.warnings, notes=(*more, *hint))


def _table(groups: Sequence[Group], columns: Sequence[Column], title: str, *notes: str, cell: Cell = _figure) -> View:
    several = len({group.shown.iteration for group in groups}) > 1 and all(group.count == 1 for group in groups)
    iteration = (Column("iteration", "iter"),) if several else ()
    return grouped((*NAMES, *iteration, *columns), groups, cell, title=title, notes=notes)


def _in_loop(groups: Sequence[Group]) -> tuple[str, ...]:
    """The note of IN_LOOP, where the column has a number."""
    return (IN_LOOP_NOTE,) if any(group.shown[IN_LOOP.key] is not None for group in groups) else ()


def _memory(groups: Sequence[Group]) -> Iterator[View]:
    title = "Memory: use in % of peak, and caches"
    yield _table(
        groups,
        MEMORY,
        title,
        "SM, L1, L2, DRAM: of each the part that is busiest, of those that ncu's report shows (L1 while it is active); "
        "ncu's own L2 throughput, l2_throughput_pct, may be of another part.",
        *_in_loop(groups),
    )

    def collected(columns: Sequence[Column]) -> bool:
        return any(_figure(group.shown, each.key) is not None for group in groups for each in columns)

    if collected(GLOBAL):
        note = "A sector has 32 bytes. ideal: 4 where each thread of a warp loads 4 bytes, 16 where it loads 16. "
        note += "More: scattered; fewer: threads share them."
        yield _table(groups, GLOBAL, "Global memory: sectors a request", note)
    if collected(SHARED):
        note = "conflicts: passes that bank conflicts added, of all; n-way: passes for each one needed, 1 is ideal."
        yield _table(groups, SHARED, "Shared memory: bank conflicts", note)
    if any(_figure(group.shown, each.key) for group in groups for each in LOCAL):
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
        yield View(summary=tuple(notes))


def _occupancy(groups: Sequence[Group]) -> Iterator[View]:
    yield _table(groups, OCCUPANCY, "Occupancy")
    if not any(group.shown.occupancy.limits for group in groups):
        return
    limits = LIMITS if any(group.shown[CLUSTERS.key] for group in groups) else [x for x in LIMITS if x is not CLUSTERS]
    texts = ((" ".join(map(words_of, findings(group.shown.occupancy))), group.shown.launch) for group in groups)
    about = by_key((text, launch) for text, launch in texts if text)
    note = "shared: with the shared memory as set up; max: with all there is. lifted: occupancy without the limit that "
    note += "binds."
    held = [say("{launches:launch|launches}: {text}", launches=found, text=text) for text, found in about.items()]
    title = "Limits of occupancy: blocks on a multiprocessor that each resource allows"
    yield _table(groups, limits, title, note, *held)


def _waves(groups: Sequence[Group]) -> Iterator[View]:
    if not any(group.shown.occupancy.waves for group in groups):
        return
    notes = [
        "a wave: blocks that fit at once. costs: time that the partial last wave wastes if all blocks take the same, "
        "1 - waves / ceil(waves)."
    ]
    if small := [each.shown.launch for each in groups if (waves := each.shown.occupancy.waves) and not waves.full]:
        words = "{launches:launch|launches}: the grid has fewer blocks than fit at once; more room on a multiprocessor "
        words += "does not help."
        notes.append(say(words, launches=small))
    yield _table(groups, WAVES, "Waves", *notes)


HOW_COMPUTED = (
    "achieved: operations of the kind that uses most of its roof, as ncu counted them (of the cost model where it did "
    "not); roof: that kind. threads: active threads an instruction, of 32."
)
SECTIONS: Mapping[str, Callable[[Sequence[Group]], Iterable[View]]] = {
    "times": lambda groups: [_table(groups, TIMED, "Times", HOW_TIMED, "spread: (p90 - p10) / median under nsys.")],
    "compute": lambda groups: [_table(groups, WORK, "Compute", HOW_COMPUTED)],
    "memory": _memory,
    "occupancy": _occupancy,
    "waves": _waves,
}
"""What ``fiprof show`` shows below its overview, each by an option of its name."""
