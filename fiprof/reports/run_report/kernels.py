"""The hardware analysis of a run's kernels: time, occupancy, compute, memory and stalls, each with what it means."""

from __future__ import annotations

from collections.abc import Iterator

from fiprof.analysis import checks, hotspots
from fiprof.analysis.accesses import GlobalWidths, widths_by_launch
from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.occupancy import findings as occupancy_findings
from fiprof.analysis.occupancy import grid_finding, occupancy
from fiprof.analysis.roofline import UNCOUNTED_PARTS, Basis, Level
from fiprof.analysis.stalls import StallFinding
from fiprof.analysis.stalls import findings as stall_findings
from fiprof.analysis.thresholds import APART, BUSY, BUSY_ISSUE, SATURATED
from fiprof.analysis.verdict.verdict import Verdicts
from fiprof.errors import FiprofError
from fiprof.model.case_quantities import kernel_median, kernel_spread
from fiprof.model.expressions import number
from fiprof.model.provenance import TracedNumber, TracedText, join
from fiprof.model.quantities import (
    DRAM_GB_PER_S,
    DRAM_READ,
    DRAM_SHARE,
    DURATION,
    GLOBAL_LOADS_SECTORS,
    GLOBAL_STORES_SECTORS,
    L1_SHARE,
    L2_SHARE,
    SHARED_LOADS_PASSES,
    SHARED_STORES_PASSES,
    SM_CLOCK,
    metric,
)
from fiprof.model.work import uncounted_pipe, work_rate, work_share
from fiprof.reports.columns import attribute, widened
from fiprof.reports.pages.page import Block, Bullets, Caution, Link, Quoted, Section, Table, Text
from fiprof.reports.pages.traced import TracedColumns, listed
from fiprof.reports.run_report import verdicts as report_verdicts
from fiprof.reports.view import Column
from fiprof.reports.words import known, phrase, worded
from fiprof.text import escape_control, short_kernel, shorten

MOST_KERNELS = 16
"""That get a part of their own: those with most time of an iteration."""
MOST_ROWS = 60
CONFLICT_WAYS = 1.1
"""Passes for each one needed, from which bank conflicts are named."""
SCATTERED = 1.05
"""Sectors a request over the ideal, from which accesses are named."""
BUSY_SHARED_PCT = 10.0
"""Of the shared memory's data stage: below it, bank conflicts are not worth a word."""
LEAST_MEMORY_PCT = 1.0
"""Of the roofs of DRAM and L2: below it a kernel moves next to nothing, and its hit rates say nothing."""
LEAST_READ_MB = 1.0
"""Read from DRAM: below it constants, instructions and the like weigh, and the algorithm's part cannot be told."""
LEAST_SAMPLES = 20
"""Of a launch: of fewer, no share of an instruction is said."""
LONGEST_SASS = 60
"""Cells."""
ALL_THAT_FITS = 0.95
"""Of the theoretical occupancy: from it on the achieved one is called all that fits."""

ACHIEVED, THEORETICAL = metric("achieved_occupancy_pct"), metric("theoretical_occupancy_pct")
OF_ROOF = {Level.DRAM: DRAM_SHARE, Level.L2: L2_SHARE, Level.L1: L1_SHARE}
ISSUE, L2_BUSY = metric("issue_active_pct"), metric("l2_throughput_pct")
PIPES = {
    name: metric(f"{key}_pct")
    for name, key in (("tensor", "tensor_active"), ("FMA", "fma"), ("ALU", "alu"), ("XU", "xu"), ("LSU", "lsu"))
}


def section(measured: Analyses, found: Verdicts) -> Section:
    """The section, with a part for each kernel that matters.

    found: the run's verdicts, which stand at the head of each part.
    Raises FiprofError for a table that cannot be read.
    """
    groups = measured.groups
    title = "Kernel hardware analysis"
    if not groups:
        return Section("kernels", title, (Caution(phrase("kernels.none", why=measured.run.missing("ncu"))),))
    launches = sum(len(group.launches) for group in groups)
    parts = measured.longest[:MOST_KERNELS]
    head = phrase(f"kernels.head{'_alike' * (launches > len(groups))}", launches=launches, kernels=len(groups))
    blocks: list[Block] = [Text((head,)), _overview(measured)]
    verdicts = report_verdicts.overview(found, measured.longest[:MOST_ROWS])
    if verdicts is not None:
        blocks.append(verdicts)
    if len(parts) < len(groups):
        blocks.append(Text((phrase("kernels.parts", count=len(parts)),)))
    writer = _Writer(measured)
    inner = []
    for group in parts:
        verdict = found.of(group.launch)
        top = report_verdicts.head(verdict) if verdict is not None else []
        part = (*top, *writer.part(group, judged=verdict is not None))
        inner.append(Section(group.anchor, f"{short_kernel(group.kernel)} · {group.label}", part))
    return Section("kernels", title, tuple(blocks), tuple(inner))


def _overview(measured: Analyses) -> Table:
    def work(group: Group) -> TracedNumber | None:
        item = measured.rooflines[group.launch]
        return group.median.traced(work_share(item.work.kind)) if item.work and item.basis == "counted" else None

    columns: TracedColumns = (
        attribute("launch", "#"),
        attribute("case", "case", of="label"),
        (Column("kernel", "kernel"), lambda group: Link(short_kernel(group.kernel), f"#{group.anchor}")),
        (Column("count", "x", spec="d"), lambda group: len(group.launches)),
        (Column("ncu_us", "ncu", "µs", ",.2f"), lambda group: group.median.traced(DURATION)),
        (
            Column("nsys_us", "nsys", "µs", ",.2f"),
            lambda group: kernel_median(measured.run, group.case, group.kernel),
        ),
        (Column("work", "work", spec=".1%"), work),
        (Column("dram", "DRAM", spec=".1%"), lambda group: group.median.traced(DRAM_SHARE)),
        (Column("occupancy", "warps", "%", ".1f"), lambda group: group.median.traced(ACHIEVED)),
        (Column("issue", "issue", "%", ".1f"), lambda group: group.median.traced(ISSUE)),
    )
    if len(measured.groups) == len(measured.run.launches):
        columns = [each for each in columns if each[0].key != "count"]
    longest = set(map(id, measured.longest[:MOST_ROWS]))
    kept = [group for group in measured.groups if id(group) in longest]
    notes = [phrase("kernels.note")]
    if len(kept) < len(measured.groups):
        notes.append(phrase("kernels.most", shown=len(kept), all=len(measured.groups)))
    columns = widened(columns, (group.label for group in measured.groups))
    return listed(columns, kept, anchor="kernels-overview", title=phrase("kernels.overview"), notes=tuple(notes))


class _Writer:
    """Writes the part of each kernel."""

    def __init__(self, measured: Analyses) -> None:
        self.measured = measured
        self._widths = widths_by_launch(measured.run)
        self._doubts = checks.by_launch(checks.failed(measured.run))
        self._hot = self._hottest()

    def _hottest(self) -> dict[int, hotspots.LaunchHotspots]:
        if not self.measured.run.has("hotspots"):
            return {}
        try:
            report = hotspots.hotspots(self.measured.run, top=1, context=0)
        except FiprofError:
            # The run has the table and no samples in it.
            return {}
        return {item.launch: item for item in report.launches}

    def part(self, group: Group, *, judged: bool) -> list[Block]:
        """judged: whether a verdict with its steps stands above it."""
        found = {
            "time": self._time(group),
            "occupancy": self._occupancy(group),
            "compute": join(" ", self._compute(group)),
            "memory": join(" ", self._memory(group)),
            "stalls": self._stall(group, helps=not judged),
        }
        items = [Text((phrase(f"kernel.{name}", text=text),)) for name, text in found.items() if text]
        if hot := self._hot_spot(group):
            items.append(Text((phrase("kernel.hot_spot"), *hot)))
        return [*(Caution(worded(doubt)) for doubt in self._doubts.get(group.launch, ())), Bullets(tuple(items))]

    def _time(self, group: Group) -> TracedText:
        run, times = self.measured.run, group.times
        ncu, nsys = group.median.traced(DURATION), kernel_median(run, group.case, group.kernel)
        where = phrase("kernel_time.where", launch=group.launch, grid=group.grid, block=group.block)
        if ncu is None:
            return phrase("kernel_time.unknown", where=where)
        told: list[str] = [phrase("kernel_time.ncu", ncu=ncu, where=where)]
        if times is not None and times.count > 1:
            told.append(phrase("kernel_time.launches", count=times.count, spread=times.spread))
        if nsys is None or not nsys.value:
            return join("", [*told, "."])
        spread = kernel_spread(run, group.case, group.kernel)
        told += [phrase("kernel_time.nsys", nsys=nsys, spread=spread or "–"), "."]
        if (ratio := ncu / nsys).value >= APART.value:
            why = "flushed" if run.settings.cache_control == "all" else "differs"
            told.append(phrase(f"kernel_time.{why}", ratio=ratio))
        return join("", told)

    def _occupancy(self, group: Group) -> TracedText:
        achieved, theoretical = group.median.traced(ACHIEVED), group.median.traced(THEORETICAL, spec=".4g")
        found = occupancy(group.median)
        told = [*occupancy_findings(found), *([grid_finding(found.waves)] if found.waves is not None else [])]
        share = achieved.value / theoretical.value if achieved and theoretical and theoretical.value else 0.0
        key = "achieved" if theoretical is None else "all" if share >= ALL_THAT_FITS else "part"
        values = {"achieved": achieved and achieved.as_(".1f", "%"), "theoretical": theoretical, "share": share}
        head = phrase(f"kernel_occupancy.{key}", **values) if achieved is not None else None
        return join(" ", [head, *map(worded, told)])

    def _compute(self, group: Group) -> Iterator[TracedText | None]:
        row, item = group.median, self.measured.rooflines[group.launch]
        if item.work is not None and item.basis == "counted":
            kind, clock = item.work.kind, row.traced(SM_CLOCK, spec=".2f") or "clock"
            rate, share = row.traced(work_rate(kind)), row.traced(work_share(kind))
            full = known("kernel_compute.of_roof", rate=rate, kind=kind, share=share, clock=clock)
            yield full or known("kernel_compute.rate", rate=rate, kind=kind)
        elif item.basis is Basis.TRAFFIC and item.busiest is not None:
            share = row.traced(OF_ROOF[item.busiest.level], spec=".1%")
            yield known("kernel_compute.traffic", share=share, level=item.busiest.level)
        elif (pipe := uncounted_pipe(row)) is not None:
            use = row.traced(metric(pipe), spec=".1f")
            yield known("kernel_compute.uncounted", use=use, part=UNCOUNTED_PARTS[pipe])
        uses = [(name, use) for name, each in PIPES.items() if (use := row.traced(each, spec=".1f")) is not None]
        if uses:
            (name, use), *others = sorted(uses, key=lambda pair: -pair[1].value)
            rest = join(", ", [phrase("kernel_compute.pipe", name=name, use=use) for name, use in others[:2]])
            yield phrase(f"kernel_compute.{_level(use.value)}", name=name, use=use, rest=rest)
        issue = row.traced(ISSUE, spec=".1f")
        if issue is not None:
            ready = known("kernel_compute.ready", warps=row.traced(metric("eligible_warps_per_scheduler"), spec=".2f"))
            # One is of the cycles in which a multiprocessor had a warp, the other of all.
            idle = (number(row, "issue_slot_busy_pct") or issue.value) < issue.value / 2
            key = "_idle" if idle else "_busy" if issue.value >= BUSY_ISSUE.value else ""
            yield phrase(f"kernel_compute.issue{key}", issue=issue, ready=ready or "")

    def _memory(self, group: Group) -> Iterator[TracedText | None]:
        row = group.median
        rate, share, l2_busy = row.traced(DRAM_GB_PER_S), row.traced(DRAM_SHARE), row.traced(L2_BUSY, spec=".1f")
        if share is not None and l2_busy is not None and max(100 * share.value, l2_busy.value) < LEAST_MEMORY_PCT:
            yield phrase("kernel_memory.negligible", dram=share, l2=l2_busy)
            yield from self._access_words(group)
            return
        if rate is not None and share is not None:
            yield phrase(f"kernel_memory.{_level(100 * share.value)}", rate=rate, share=share)
        yield self._needed(group)
        hits = join(
            ", ",
            [known(f"kernel_memory.{at}", pct=row.traced(metric(f"{at}_hit_pct"), spec=".1f")) for at in ("l1", "l2")],
        )
        if hits:
            yield phrase("kernel_memory.hits", hits=hits, busy=known("kernel_memory.l2_busy", pct=l2_busy) or "")
        yield from self._access_words(group)

    def _needed(self, group: Group) -> TracedText | None:
        """DRAM reads over the input, where the case's iteration is this one kernel."""
        case = self.measured.run.case(group.case) if group.case else None
        read = group.median.traced(DRAM_READ)
        if case is None or not case.bytes_read or read is None or read.value < LEAST_READ_MB:
            return None
        if len({row["kernel"] for row in self.measured.run.launches_of(case.id)}) > 1:
            return None
        return phrase("kernel_memory.needed", read=read, factor=read.value * 1e6 / case.bytes_read)

    def _stall(self, group: Group, *, helps: bool) -> TracedText | None:
        mix = self.measured.stall_mixes.get(group.launch)
        if mix is None or not any(stall.weight for stall in mix.stalls):
            return None
        without = {StallFinding.ISSUED, StallFinding.BUSY} | ({StallFinding.HELPS} if not helps else set())
        told = [worded(each) for each in stall_findings(mix) if each.kind not in without]
        latency = group.median.traced(metric("warp_latency_cycles"), spec=".1f")
        return join(" ", [known("stalls.latency", latency=latency), *told])

    def _access_words(self, group: Group) -> Iterator[TracedText | None]:
        """What is particular about a launch's accesses; nothing where they are as they should be."""
        row = group.median
        conflicts = [
            phrase(f"kernel_memory.{name}", passes=passes)
            for name, quantity in (("loads", SHARED_LOADS_PASSES), ("stores", SHARED_STORES_PASSES))
            if (passes := row.traced(quantity)) is not None and passes.value >= CONFLICT_WAYS
        ]
        if conflicts and (number(row, "shared_data_pct") or 0.0) >= BUSY_SHARED_PCT:
            yield phrase("kernel_memory.conflicts", passes=join(" and ", conflicts))
        widths = self._widths.get(group.launch, GlobalWidths())
        for name, quantity, ideal in (
            ("loads", GLOBAL_LOADS_SECTORS, widths.ideal_loads),
            ("stores", GLOBAL_STORES_SECTORS, widths.ideal_stores),
        ):
            sectors = row.traced(quantity)
            if sectors is not None and ideal is not None and sectors.value > ideal.high * SCATTERED:
                yield phrase("kernel_memory.scattered", name=name, sectors=sectors, ideal=ideal.high)
        spilled = row.traced(metric("spill_requests"))
        if spilled is not None and spilled.value:
            yield phrase("kernel_memory.spilled", requests=spilled)

    def _hot_spot(self, group: Group) -> tuple[str, ...]:
        item = self._hot.get(group.launch)
        if item is None:
            return ()
        if not item.hotspots:
            return (worded(item.summary[0]),)
        if item.samples < LEAST_SAMPLES:
            return (phrase("hot_spot.few", samples=item.samples),)
        line = item.hotspots[0]
        head = phrase("hot_spot.head", instructions=item.instructions, share=line.share, samples=item.samples)
        key = "reason" if line.top_reason else "at"
        parts = [head, _sass(line.shown), phrase(f"hot_spot.{key}", offset=line.offset, reason=line.top_reason)]
        if (waits_for := line.waits_for) is not None:
            at = phrase("hot_spot.at", offset=waits_for.offset)
            parts += [phrase("hot_spot.waits_for"), _sass(waits_for.shown), at]
        return (*parts, ".")


def _level(pct: float) -> str:
    """Which words a use has."""
    return "saturated" if pct >= SATURATED.value else "busy" if pct >= BUSY.value else "free"


def _sass(text: str) -> Quoted:
    return Quoted(shorten(escape_control(text), LONGEST_SASS))
