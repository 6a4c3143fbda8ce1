"""A page a kernel, its cases and runs side by side: launch, occupancy, compute, memory, stalls, hot instructions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from fiprof.analysis import checks
from fiprof.analysis.accesses import GlobalWidths, widths_by_launch
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.occupancy import Occupancy, Resource, occupancy
from fiprof.analysis.roofline import Basis
from fiprof.analysis.stalls import LaunchStalls
from fiprof.analysis.thresholds import BUSY, LEAST_GAIN, SATURATED
from fiprof.analysis.verdict.model import Part
from fiprof.analysis.verdict.ncu_rules import QuotedRule
from fiprof.analysis.verdict.steps import Step
from fiprof.analysis.verdict.verdict import LaunchVerdict
from fiprof.model.case_quantities import work_factor
from fiprof.model.floors import DRAM_FLOOR
from fiprof.model.formula import Row as LaunchRow
from fiprof.model.formula import number
from fiprof.model.provenance import TracedNumber, TracedText, join
from fiprof.model.quantities import (
    DRAM_GB_PER_S,
    DURATION,
    GLOBAL_LOADS_SECTORS,
    GLOBAL_STORES_SECTORS,
    L2_GB_PER_S,
    L2_USE,
    OVERHEAD,
    SHARED_LOADS_PASSES,
    SHARED_MEMORY,
    SHARED_STORES_PASSES,
    Quantity,
    metric,
)
from fiprof.model.work import work_rate, work_share
from fiprof.reports import verdict_words as words
from fiprof.reports.pages.page import Block, Section, Table, Text
from fiprof.reports.pages.traced import TracedColumns, listed
from fiprof.reports.run_report import hot, sides
from fiprof.reports.run_report.answer import gain, short, time_of
from fiprof.reports.run_report.entries import Entry, KernelEntries, rounded
from fiprof.reports.run_report.sides import Cell, Row
from fiprof.reports.view import Column
from fiprof.reports.words import known, phrase, worded

MOST_KERNELS = 24
"""That have a page: those with most time of an iteration."""
MOST_COLUMNS = 6
"""Cases of a kernel beside each other: those with most time."""
MOST_STALLS = 4
"""Reasons of a kernel."""
LEAST_STALL = 0.02
"""Share of the warps' time from which a reason is a row."""
LEAST_PIPE_PCT = 5.0
"""Use of a pipe from which it is a row."""
CONFLICT_WAYS = 1.1
"""Passes for each one needed, from which bank conflicts are a row."""
DOUBTS = ("unknown", "noise", "close", "not_saturated", "short", "missing")
SCATTERED = 1.05
"""Sectors a request over the ideal, likewise."""
TAIL_LOSS = 0.05
"""Of the run time that a partial last wave may cost, likewise."""
BUSY_SHARED_PCT = 10.0
"""Of the shared memory's data stage: below it, bank conflicts are not worth a row."""

PIPES: dict[str, Quantity] = {
    name: metric(column)
    for name, column in (
        ("tensor cores", "tensor_active_pct"), ("FMA", "fma_pct"), ("ALU", "alu_pct"), ("XU", "xu_pct"),
        ("FP64", "fp64_pct"), ("LSU", "lsu_pct"), ("ADU", "adu_pct"), ("uniform", "uniform_pct"),
    )
}  # fmt: skip
ISSUE = metric("issue_slot_busy_pct")
MEMORIES: dict[str, tuple[Quantity, Quantity | None, Quantity | None]] = {
    "DRAM": (metric("dram_throughput_pct"), DRAM_GB_PER_S, None),
    "L2": (L2_USE, L2_GB_PER_S, metric("l2_hit_pct")),
    "L1 and shared": (metric("l1_data_pct"), None, metric("l1_hit_pct")),
}
"""Memory -> its use, its rate, its hit rate."""


def section(kernels: Sequence[KernelEntries]) -> Section:
    """The kernels that ncu saw, a folded part each. Raises FiprofError for a table that cannot be read."""
    counted = [each for each in kernels if any(entry.group for entry in each.entries)]
    parts = tuple(_page(each) for each in counted[:MOST_KERNELS])
    blocks: list[Block] = []
    if len(parts) < len(counted):
        blocks.append(Text((phrase("kernels.most", shown=len(parts), all=len(counted)),)))
    return Section("kernels", phrase("kernels.title"), tuple(blocks), parts)


def _page(kernel: KernelEntries) -> Section:
    counted = [entry for entry in kernel.entries if entry.group]
    ran = Counter(entry.case for entry in counted)
    cases = sorted(ran, key=lambda case: -ran[case])
    fit = max(MOST_COLUMNS // len({entry.run for entry in counted}), 1)
    kept = sorted((e for e in counted if e.case in cases[:fit]), key=lambda e: (cases.index(e.case), e.run))
    blocks: list[Block | None] = [
        Text((phrase("kernels.cases", shown=fit, all=len(cases)),)) if len(cases) > fit else None,
        _table(kept, "glance", _glance(kept)),
        _steps(kept),
        _table(kept, "launch", _launch(kept)),
        _table(kept, "occupancy", _occupancy(kept)),
        _table(kept, "compute", _compute(kept)),
        _table(kept, "memory", _memory(kept)),
        _table(kept, "stalls", _stalls(kept)),
        *hot.blocks(kept[0]),
        _rules(kept[0]),
    ]
    return Section(kernel.anchor, kept[0].name, tuple(filter(None, blocks)), folded=True)


def _table(entries: Sequence[Entry], name: str, rows: Iterable[Row]) -> Table | None:
    """A small table; None where nothing of it was collected."""
    title = phrase(f"kernel.{name}")
    made = sides.of_entries(entries, rows, title=title)
    return made if made.view.rows else None


def _row_of(entry: Entry) -> LaunchRow:
    return entry.group.median if entry.group else {}


def _quantity(name: str, entries: Sequence[Entry], quantity: Quantity, spec: str = "", *, of_peak: bool = False) -> Row:
    """A quantity of ncu. of_peak: whether it is a percentage of the most that there can be."""

    def value(entry: Entry) -> TracedNumber | None:
        return entry.group.median.traced(quantity, spec=spec) if entry.group else None

    def share(entry: Entry) -> float | None:
        return (quantity.of(_row_of(entry)) or 0.0) / 100

    return sides.row(name, entries, value, share if of_peak else None)


def _worded(name: str, entries: Sequence[Entry], value: sides.Value) -> Row:
    """A row of words: what a part of the page comes to."""
    return sides.row(phrase(f"kernel_row.{name}"), entries, value)


# Its verdict


def _glance(entries: Sequence[Entry]) -> Iterator[Row]:
    told: dict[str, Callable[[LaunchVerdict], str]] = {
        "limit": words.short_title,
        "how_far": words.distance,
        "runner_up": words.runner_up,
    }
    for name, say in told.items():
        yield _worded(name, entries, lambda e, say=say: say(e.verdict) or None if e.verdict else None)  # type: ignore[misc]
    yield _worded("confidence", entries, _sure)


def _sure(entry: Entry) -> str | None:
    """Its confidence, and what makes it less sure in a few words."""
    verdict = entry.verdict
    if verdict is None:
        return None
    doubts = [phrase(f"doubt_short.{each.kind!s}") for each in verdict.doubts if each.kind in DOUBTS]
    failed = sum(check.launch == verdict.launch for check in checks.failed(entry.measured.run))
    doubts += [phrase("kernel_row.failed", checks=failed)] if failed else []
    return ": ".join(filter(None, (worded(verdict.confidence), "; ".join(doubts))))


def _where(entry: Entry, entries: Sequence[Entry]) -> str:
    several = len({each.run for each in entries}) > 1
    return phrase("sides.run_case", number=entry.run + 1, label=entry.label) if several else entry.label


def _steps(entries: Sequence[Entry]) -> Table | None:
    """What to do, the same step of several cases once: each case's first step in full, the others in a few words."""
    found: dict[str, tuple[Step, list[str], bool]] = {}
    for entry in entries:
        for place, step in enumerate(entry.verdict.steps if entry.verdict else ()):
            found.setdefault(step.id, (step, [], not place))[1].append(_where(entry, entries))
    columns: TracedColumns = (
        (
            Column("step", phrase("kernel.steps"), wrap=True),
            lambda item: worded(item[0].action) if item[2] else short(item[0]),
        ),
        (Column("gain", phrase("kernel_row.gain")), lambda item: gain(item[0])),
        (Column("basis", phrase("kernel_row.basis"), wrap=True), lambda item: words.basis(item[0]) if item[2] else ""),
        (Column("case", phrase("kernel_row.case")), lambda item: _some(item[1])),
    )
    return listed(columns[: 3 + (len(entries) > 1)], found.values()) if found else None


def _some(names: Sequence[str]) -> str:
    """The first of several names, and how many more there are."""
    return names[0] if len(names) == 1 else phrase("kernel_row.and_more", first=names[0], count=len(names) - 1)


# Its launch and occupancy


def _launch(entries: Sequence[Entry]) -> Iterator[Row]:
    yield _worded("time", entries, lambda entry: time_of(entry) if entry.count > 1 else entry.time)
    yield _worded("spread", entries, attrgetter("spread"))
    yield _worded("ncu", entries, lambda entry: rounded(entry.group.median.traced(DURATION)) if entry.group else None)
    yield _worded("grid", entries, lambda entry: entry.group.grid if entry.group else None)
    yield _worded("block", entries, lambda entry: entry.group.block if entry.group else None)
    yield _quantity(phrase("kernel_row.registers"), entries, metric("registers_per_thread"), ".0f")
    yield _quantity(phrase("kernel_row.shared"), entries, SHARED_MEMORY)
    yield _quantity(phrase("kernel_row.overhead"), entries, OVERHEAD, ".0f")


def _occupancy(entries: Sequence[Entry]) -> Iterator[Row]:
    found = {id(entry): occupancy(_row_of(entry)) for entry in entries}
    achieved, possible = metric("achieved_occupancy_pct"), metric("theoretical_occupancy_pct")
    yield _quantity(phrase("kernel_row.achieved"), entries, achieved, ".0f", of_peak=True)
    yield _quantity(phrase("kernel_row.possible"), entries, possible, ".0f", of_peak=True)
    for resource in Resource:
        yield sides.row(
            worded(resource), entries,
            lambda entry, resource=resource: _limit(found[id(entry)], resource),  # type: ignore[misc]
            lambda entry, resource=resource: _limit_share(found[id(entry)], resource),  # type: ignore[misc]
        )  # fmt: skip
    yield _worded("waves", entries, lambda entry: _waves(found[id(entry)]))
    yield _worded("means", entries, lambda entry: _occupancy_means(found[id(entry)]))


def _limit_share(found: Occupancy, resource: Resource) -> float | None:
    """The blocks that fit, of those that the resource alone allows."""
    limit = found.limit(resource)
    return found.blocks / limit.blocks if limit and limit.blocks and found.blocks else None


def _limit(found: Occupancy, resource: Resource) -> TracedText | None:
    limit = found.limit(resource)
    return None if limit is None else known("kernel_row.fits", blocks=found.blocks, most=limit.blocks)


def _waves(found: Occupancy) -> TracedText | None:
    waves = found.waves
    return None if waves is None else phrase("kernel_row.waves_of", waves=waves.waves, wave=waves.wave_blocks)


def _occupancy_means(found: Occupancy) -> TracedText | None:
    if found.waves is not None and not found.waves.full:
        return phrase("kernel_means.small_grid", share=found.waves.waves)
    if found.waves is not None and (found.waves.loss_share or 0.0) >= TAIL_LOSS:
        return phrase("kernel_means.tail", loss=found.waves.loss_share)
    if found.lift is None:
        return phrase("kernel_means.full") if found.blocks else None
    return phrase("kernel_means.limited", resources=found.lift.resources)


# Its units


def _compute(entries: Sequence[Entry]) -> Iterator[Row]:
    def work(entry: Entry, of_roof: bool) -> TracedNumber | None:
        item = entry.group and entry.measured.rooflines.get(entry.group.launch)
        if not entry.group or not item or item.work is None or item.basis != Basis.COUNTED:
            return None
        return entry.group.median.traced((work_share if of_roof else work_rate)(item.work.kind))

    def factor(entry: Entry) -> TracedNumber | None:
        case = entry.measured.run.case(entry.case)
        return work_factor(entry.measured.run, case) if case else None

    def rate(entry: Entry) -> Cell:
        done, of_roof = work(entry, of_roof=False), work(entry, of_roof=True)
        return known("kernel_row.rate_of_roof", rate=done, of_roof=of_roof) or done

    yield _worded("rate", entries, rate)
    for name, pipe in PIPES.items():
        if any((pipe.of(_row_of(entry)) or 0.0) >= LEAST_PIPE_PCT for entry in entries):
            yield _quantity(name, entries, pipe, ".0f", of_peak=True)
    yield _quantity(phrase("kernel_row.issue"), entries, ISSUE, ".0f", of_peak=True)
    yield _quantity(phrase("kernel_row.ready"), entries, metric("eligible_warps_per_scheduler"), ".2f")
    yield _worded("work_factor", entries, factor)
    yield _worded("means", entries, lambda entry: _busiest(entry, {**PIPES, "issue slots": ISSUE}))


def _busiest(entry: Entry, units: dict[str, Quantity]) -> TracedText | None:
    """Which of the units is nearest to its limit, and whether that is near."""
    uses = {name: use for name, unit in units.items() if (use := unit.of(_row_of(entry))) is not None}
    if not uses:
        return None
    name = max(uses, key=uses.__getitem__)
    level = "saturated" if uses[name] >= SATURATED.value else "busy" if uses[name] >= BUSY.value else "free"
    return phrase(f"kernel_means.{level}", name=name)


def _memory(entries: Sequence[Entry]) -> Iterator[Row]:
    for name, (use, rate, hits) in MEMORIES.items():
        yield sides.row(
            name, entries,
            lambda entry, use=use, rate=rate: _moved(entry, use, rate),  # type: ignore[misc]
            lambda entry, use=use: (use.of(_row_of(entry)) or 0.0) / 100,  # type: ignore[misc]
        )  # fmt: skip
        if name == "DRAM":
            yield sides.row(phrase("kernel_row.dram_loop"), entries, _dram_in_loop, _dram_in_loop_share)
        if hits is not None:
            yield _quantity(phrase("kernel_row.hits", name=name.split()[0]), entries, hits, ".0f", of_peak=True)
    yield from _accesses(entries)
    means = {name: use for name, (use, *_) in MEMORIES.items()}
    yield _worded("means", entries, lambda entry: _busiest(entry, means))


def _dram_in_loop(entry: Entry) -> TracedNumber | None:
    """DRAM's use by the least bytes over the time in a loop, where that is more than ncu's one cold launch shows."""
    found = entry.verdict.resource(Part.DRAM) if entry.verdict else None
    use = found.comparison if found else None
    return use.number.as_(".0f", "%") if use and use.quantity is DRAM_FLOOR else None


def _dram_in_loop_share(entry: Entry) -> float | None:
    use = _dram_in_loop(entry)
    return None if use is None else use.value / 100


def _moved(entry: Entry, use: Quantity, rate: Quantity | None) -> Cell:
    """``10%, 501 GB/s``."""
    of_peak = entry.group.median.traced(use, spec=".0f") if entry.group else None
    moved = entry.group.median.traced(rate) if entry.group and rate else None
    return known("kernel_row.moved", use=of_peak, rate=moved) or of_peak


def _accesses(entries: Sequence[Entry]) -> Iterator[Row]:
    """What is particular about the accesses: conflicts, scattered sectors, spills."""

    def conflicts(entry: Entry, passes: Quantity) -> TracedNumber | None:
        found = entry.group.median.traced(passes) if entry.group else None
        busy = (number(_row_of(entry), "shared_data_pct") or 0.0) >= BUSY_SHARED_PCT
        return found if found and busy and found.value >= CONFLICT_WAYS else None

    def sectors(entry: Entry, quantity: Quantity, kind: str) -> TracedText | None:
        widths = _widths(entry.measured).get(entry.group.launch, GlobalWidths()) if entry.group else GlobalWidths()
        ideal, found = getattr(widths, f"ideal_{kind}"), entry.group.median.traced(quantity) if entry.group else None
        if ideal is None or found is None or found.value <= ideal[1] * SCATTERED:
            return None
        return phrase("kernel_row.ideal", sectors=found, ideal=ideal[1])

    def spilled(entry: Entry) -> TracedNumber | None:
        found = entry.group.median.traced(metric("spill_requests")) if entry.group else None
        return found if found and found.value else None

    yield _worded("load_passes", entries, lambda entry: conflicts(entry, SHARED_LOADS_PASSES))
    yield _worded("store_passes", entries, lambda entry: conflicts(entry, SHARED_STORES_PASSES))
    yield _worded("load_sectors", entries, lambda entry: sectors(entry, GLOBAL_LOADS_SECTORS, "loads"))
    yield _worded("store_sectors", entries, lambda entry: sectors(entry, GLOBAL_STORES_SECTORS, "stores"))
    yield _worded("spilled", entries, spilled)


def _widths(measured: Analyses) -> dict[int, GlobalWidths]:
    return measured.run.once(widths_by_launch)


# Its stalls, and what ncu says


def _stalls(entries: Sequence[Entry]) -> Iterator[Row]:
    mixes = {id(e): e.measured.stall_mixes.get(e.group.launch) if e.group else None for e in entries}
    weights: dict[str, float] = {}
    for mix in filter(None, mixes.values()):
        for stall in mix.waiting:
            weights[stall.reason] = max(weights.get(stall.reason, 0.0), stall.weight)
    shown = [reason for reason, weight in weights.items() if weight >= LEAST_STALL]
    for reason in sorted(shown, key=lambda reason: -weights[reason])[:MOST_STALLS]:
        yield sides.row(
            phrase("kernel_row.stall", reason=reason), entries,
            lambda entry, reason=reason: _share(mixes[id(entry)], reason),  # type: ignore[misc]
            lambda entry, reason=reason: _weight(mixes[id(entry)], reason),  # type: ignore[misc]
        )  # fmt: skip
    yield _quantity(phrase("kernel_row.latency"), entries, metric("warp_latency_cycles"))
    yield _worded("means", entries, lambda entry: _stalls_mean(mixes[id(entry)]))


def _share(mix: LaunchStalls | None, reason: str) -> Cell:
    stall = next((stall for stall in mix.stalls if stall.reason == reason), None) if mix else None
    return None if mix is None or stall is None else mix.traced(stall) or sides.number(stall.weight, ".0%")


def _weight(mix: LaunchStalls | None, reason: str) -> float | None:
    return next((stall.weight for stall in mix.stalls if stall.reason == reason), None) if mix else None


def _stalls_mean(mix: LaunchStalls | None) -> TracedText | None:
    if mix is None:
        return None
    if mix.busy:
        return phrase("kernel_means.issuing")
    return known("kernel_means.dominates", reason=mix.dominant and mix.dominant.reason) or phrase("kernel_means.mixed")


def _rules(entry: Entry) -> Table | None:
    """ncu's rules that lead to no step, those with the same reason together."""
    found: dict[str, list[QuotedRule]] = defaultdict(list)
    for rule in entry.verdict.rules if entry.verdict else ():
        if rule.rejected is not None and (rule.speedup_pct or 0.0) >= LEAST_GAIN.value:
            found[phrase(f"rejected_short.{rule.rejected.kind!s}")].append(rule)
    if not found:
        return None
    said = join("; ", [
        phrase("kernel_row.rejected", rules=tuple(phrase("kernel_row.rule", **vars(rule)) for rule in rules), why=why)
        for why, rules in found.items()
    ])  # fmt: skip
    columns: TracedColumns = ((Column("rules", phrase("kernel.rules"), wrap=True), lambda text: text),)
    return listed(columns, [said])
