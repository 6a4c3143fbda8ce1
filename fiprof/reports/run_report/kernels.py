"""The hardware analysis of a run's kernels: time, occupancy, compute, memory and stalls, each with what it means."""

from __future__ import annotations

import dataclasses

from fiprof.analysis import checks, hotspots
from fiprof.analysis.accesses import GlobalWidths, IdealSectors, widths_by_launch
from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.occupancy import findings as occupancy_findings
from fiprof.analysis.occupancy import grid_finding, occupancy
from fiprof.analysis.stalls import StallFinding
from fiprof.analysis.stalls import findings as stall_findings
from fiprof.analysis.thresholds import APART, BUSY, BUSY_ISSUE, SATURATED
from fiprof.analysis.verdict.verdict import Verdicts
from fiprof.errors import FiprofError
from fiprof.model.case_quantities import kernel_median, kernel_spread
from fiprof.model.expressions import number
from fiprof.model.provenance import TracedNumber, TracedText, join, sentence
from fiprof.model.quantities import (
    DRAM_GB_PER_S,
    DRAM_READ,
    DRAM_SHARE,
    DURATION,
    GLOBAL_LOADS_SECTORS,
    GLOBAL_STORES_SECTORS,
    SHARED_LOADS_PASSES,
    SHARED_STORES_PASSES,
    SM_CLOCK,
    metric,
    work_rate,
    work_share,
)
from fiprof.reports.pages.page import Block, Bullets, Caution, Link, Quoted, Section, Table, Text
from fiprof.reports.pages.traced import Cell, table
from fiprof.reports.run_report import verdicts as report_verdicts
from fiprof.reports.view import Column
from fiprof.reports.words import phrase, worded
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
WIDEST_LABEL = 29
LONGEST_SASS = 60
"""Cells."""


def section(measured: Analyses, found: Verdicts) -> Section:
    """The section, with a part for each kernel that matters.

    found: the run's verdicts, which stand at the head of each part.
    Raises FiprofError for a table that cannot be read.
    """
    groups = measured.groups
    if not groups:
        why = worded(measured.run.missing("ncu"))
        return Section("kernels", "Kernel hardware analysis", (Caution(f"no counters of any kernel: {why}"),))
    launches = sum(len(group.launches) for group in groups)
    head = f"{launches:,} launches under ncu, of {len(groups)} kernels in their cases"
    head += "; alike ones are one row, whose figures are those of the launch with the median time" * (
        launches > len(groups)
    )
    parts = measured.longest[:MOST_KERNELS]
    blocks: list[Block] = [Text((head + ".",)), _overview(measured)]
    widest = min(max(len(group.label) for group in groups), WIDEST_LABEL)
    verdicts = report_verdicts.overview(found, measured.longest[:MOST_ROWS], widest)
    if verdicts is not None:
        blocks.append(verdicts)
    if len(parts) < len(groups):
        blocks.append(Text((f"The {len(parts)} with most time of an iteration have a part of their own below.",)))
    writer = _Writer(measured)
    inner = []
    for group in parts:
        verdict = found.of(group.launch)
        top = report_verdicts.head(verdict) if verdict is not None else []
        inner.append(Section(group.anchor, _title(group), (*top, *writer.part(group, judged=verdict is not None))))
    return Section("kernels", "Kernel hardware analysis", tuple(blocks), tuple(inner))


def _title(group: Group) -> str:
    return f"{short_kernel(group.kernel)} · {group.label}"


_OVERVIEW = (
    Column("launch", "#"),
    Column("case", "case"),
    Column("kernel", "kernel"),
    Column("count", "x", spec="d"),
    Column("ncu_us", "ncu", "µs", ",.2f"),
    Column("nsys_us", "nsys", "µs", ",.2f"),
    Column("work", "work", spec=".1%"),
    Column("dram", "DRAM", spec=".1%"),
    Column("occupancy", "warps", "%", ".1f"),
    Column("issue", "issue", "%", ".1f"),
)


def _overview(measured: Analyses) -> Table:
    rows: list[list[Cell]] = []
    kept = {id(group) for group in measured.longest[:MOST_ROWS]}
    for group in measured.groups:
        if id(group) not in kept:
            continue
        row, work = group.median, measured.rooflines[group.launch].work
        rows.append(
            [
                group.launch,
                group.label,
                Link(short_kernel(group.kernel), f"#{group.anchor}"),
                len(group.launches),
                row.traced(DURATION),
                kernel_median(measured.run, group.case, group.kernel),
                row.traced(work_share(work.kind))
                if work and measured.rooflines[group.launch].basis == "counted"
                else None,
                row.traced(DRAM_SHARE),
                row.traced(metric("achieved_occupancy_pct"), unit=""),
                row.traced(metric("issue_active_pct"), unit=""),
            ]
        )
    widest = min(max(len(group.label) for group in measured.groups), WIDEST_LABEL)
    shown = [
        dataclasses.replace(each, least=widest) if each.key == "case" else each
        for each in _OVERVIEW
        if each.key != "count" or len(measured.groups) < len(measured.run.launches)
    ]
    if len(shown) < len(_OVERVIEW):
        rows = [[*row[:3], *row[4:]] for row in rows]
    notes = [
        "#: ncu's launch. work: operations that ncu counted, of the roof of their kind; DRAM: bytes a second, of its "
        "roof; both at the clocks measured during the launch. warps: achieved occupancy. issue: cycles in which a "
        "scheduler issued."
    ]
    if len(kept) < len(measured.groups):
        notes.append(f"The {len(kept)} with most time, of {len(measured.groups)}; fiprof show has all.")
    return table(shown, rows, anchor="kernels-overview", title="Every kernel at a glance", notes=tuple(notes))


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
        return {item.at.launch: item for item in report.launches}

    def part(self, group: Group, *, judged: bool) -> list[Block]:
        """judged: whether a verdict with its steps stands above it."""
        found = (
            ("Time", self._time(group)),
            ("Occupancy", self._occupancy(group)),
            ("Compute", self._compute(group)),
            ("Memory", self._memory(group)),
            ("Stalls", self._stall(group, helps=not judged)),
        )
        items = [Text((sentence("{}: {}", name, text),)) for name, text in found if text]
        if hot := self._hot_spot(group):
            items.append(Text(("Hot spot: ", *hot)))
        return [*(Caution(worded(doubt)) for doubt in self._doubts.get(group.launch, ())), Bullets(tuple(items))]

    def _time(self, group: Group) -> TracedText:
        ncu, nsys = group.median.traced(DURATION), kernel_median(self.measured.run, group.case, group.kernel)
        where = f"launch {group.launch}, grid {group.grid}, block {group.block}"
        if ncu is None:
            return sentence("ncu collected no duration ({})", where)
        head = sentence("{} under ncu ({})", ncu, where)
        if group.times is not None and group.times.count > 1:
            head = sentence(
                "{}, median of {} launches that spread by {}", head, group.times.count, f"{group.times.spread:.1%}"
            )
        if nsys is None or not nsys.value:
            return sentence("{}.", head)
        spread = kernel_spread(self.measured.run, group.case, group.kernel)
        head = sentence("{}; {} under nsys, spread {}", head, nsys, spread or "–")
        ratio = ncu / nsys
        if ratio.value >= APART.value:
            cold = self.measured.run.settings.cache_control == "all"
            why = "its caches are flushed first" if cold else "clocks or replays differ"
            return sentence(
                "{}. ncu saw it {} times as long: {}, so its rates are lower than in the loop.", head, ratio, why
            )
        return sentence("{}.", head)

    def _occupancy(self, group: Group) -> TracedText | None:
        achieved = group.median.traced(metric("achieved_occupancy_pct"), spec=".1f")
        theoretical = group.median.traced(metric("theoretical_occupancy_pct"), spec=".4g")
        found = occupancy(group.median)
        told = [worded(each) for each in occupancy_findings(found)]
        told += [worded(grid_finding(found.waves))] if found.waves is not None else []
        if achieved is None:
            return join(" ", told) if told else None
        head = sentence("{} achieved", achieved)
        if theoretical is not None:
            share = achieved.value / theoretical.value if theoretical.value else 0.0
            reached = "all that fits" if share >= 0.95 else f"{share:.0%} of what fits"
            head = sentence("{} achieved of {} possible: {}", achieved, theoretical, reached)
        return join(" ", [sentence("{}.", head), *told])

    def _compute(self, group: Group) -> TracedText | None:
        row, measured = group.median, self.measured
        told = []
        work = measured.rooflines[group.launch].work
        if work is not None and measured.rooflines[group.launch].basis == "counted":
            rate = row.traced(work_rate(work.kind))
            share, clock = row.traced(work_share(work.kind)), row.traced(SM_CLOCK, spec=".2f")
            if rate and share:
                told.append(
                    sentence("{} of {}, {} of that roof at the measured {}.", rate, work.kind, share, clock or "clock")
                )
            elif rate:
                told.append(sentence("{} of {}.", rate, work.kind))
        pipes = {
            "tensor": row.traced(metric("tensor_active_pct"), spec=".1f"),
            "FMA": row.traced(metric("fma_pct"), spec=".1f"),
            "ALU": row.traced(metric("alu_pct"), spec=".1f"),
            "XU": row.traced(metric("xu_pct"), spec=".1f"),
            "LSU": row.traced(metric("lsu_pct"), spec=".1f"),
        }
        known = {name: fact for name, fact in pipes.items() if fact is not None}
        if known:
            ranked = sorted(known, key=lambda name: -known[name].value)
            top = known[ranked[0]]
            says = (
                "near its limit" if top.value >= SATURATED.value
                else "the one to relieve first" if top.value >= BUSY.value
                else "so that no pipe is near its limit"
            )  # fmt: skip
            rest = join(", ", [sentence("{} {}", name, known[name]) for name in ranked[1:3]])
            told.append(sentence("The busiest pipe is {} with {}, {} (then {}).", ranked[0], top, says, rest))
        issue = row.traced(metric("issue_active_pct"), spec=".1f")
        if issue is not None:
            eligible = row.traced(metric("eligible_warps_per_scheduler"), spec=".2f")
            ready = sentence(", with {} warps ready on average", eligible) if eligible else sentence("")
            # One is of the cycles in which a multiprocessor had a warp, the other of all.
            if (number(row, "issue_slot_busy_pct") or issue.value) < issue.value / 2:
                much = ", where their multiprocessor had work at all: the most had none"
            elif issue.value >= BUSY_ISSUE.value:
                much = ": issue slots are scarce, fewer instructions would help"
            else:
                much = ""
            told.append(sentence("The schedulers issued in {} of their cycles{}{}.", issue, ready, much))
        return join(" ", told) if told else None

    def _memory(self, group: Group) -> TracedText | None:
        row, told = group.median, []
        rate, share = row.traced(DRAM_GB_PER_S), row.traced(DRAM_SHARE)
        l2_busy = row.traced(metric("l2_throughput_pct"), spec=".1f")
        if share is not None and l2_busy is not None and max(100 * share.value, l2_busy.value) < LEAST_MEMORY_PCT:
            told.append(sentence("next to none: DRAM is at {} of its roof, L2 at {} of its peak.", share, l2_busy))
            return join(" ", [*told, *self._access_words(group)])
        if rate is not None and share is not None:
            if share.value * 100 >= SATURATED.value:
                means = "at its roof, where only fewer bytes help"
            elif share.value * 100 >= BUSY.value:
                means = "well used, and not yet at its roof"
            else:
                means = "not what limits it"
            told.append(sentence("DRAM moved {}, {} of its roof: {}.", rate, share, means))
        needed = self._needed(group)
        if needed is not None:
            told.append(needed)
        l1, l2 = row.traced(metric("l1_hit_pct"), spec=".1f"), row.traced(metric("l2_hit_pct"), spec=".1f")
        hits = [sentence("{} hits {}", name, fact) for name, fact in (("L1", l1), ("L2", l2)) if fact is not None]
        if hits:
            busy = sentence("; L2 is at {} of its peak", l2_busy) if l2_busy is not None else sentence("")
            told.append(sentence("{}{}.", join(", ", hits), busy))
        told += self._access_words(group)
        return join(" ", told) if told else None

    def _needed(self, group: Group) -> TracedText | None:
        """DRAM reads over the input, where the case's iteration is this one kernel."""
        case = self.measured.run.case(group.case) if group.case else None
        if (
            case is None
            or not case.bytes_read
            or len({row["kernel"] for row in self.measured.run.launches_of(case.id)}) > 1
        ):
            return None
        read = group.median.traced(DRAM_READ)
        if read is None:
            return None
        if read.value < LEAST_READ_MB:
            return None
        factor = read.value * 1e6 / case.bytes_read
        return sentence("It read {} from DRAM, {} times what the algorithm has to read.", read, f"{factor:.2f}")

    def _stall(self, group: Group, *, helps: bool) -> TracedText | None:
        mix = self.measured.stall_mixes.get(group.launch)
        if mix is None or not any(stall.weight for stall in mix.stalls):
            return None
        without = {StallFinding.ISSUED, StallFinding.BUSY} | ({StallFinding.HELPS} if not helps else set())
        told = [worded(each) for each in stall_findings(mix) if each.kind not in without]
        latency = group.median.traced(metric("warp_latency_cycles"), spec=".1f")
        return join(" ", [phrase("stalls.latency", latency=latency), *told] if latency else told)

    def _access_words(self, group: Group) -> list[TracedText]:
        """What is particular about a launch's accesses; nothing where they are as they should be."""
        told, row = [], group.median
        conflicts = [
            sentence("{} take {}", name, passes)
            for name, quantity in (("loads", SHARED_LOADS_PASSES), ("stores", SHARED_STORES_PASSES))
            if (passes := row.traced(quantity)) is not None and passes.value >= CONFLICT_WAYS
        ]
        if conflicts and (number(row, "shared_data_pct") or 0.0) >= BUSY_SHARED_PCT:
            text = join(" and ", conflicts)
            told.append(sentence("Bank conflicts: shared memory {} passes where one would do.", text))
        widths = self._widths.get(group.launch, GlobalWidths())
        for name, quantity, ideal in (
            ("loads", GLOBAL_LOADS_SECTORS, widths.ideal_loads),
            ("stores", GLOBAL_STORES_SECTORS, widths.ideal_stores),
        ):
            told += _sectors(name, row.traced(quantity), ideal)
        spilled = row.traced(metric("spill_requests"))
        if spilled is not None and spilled.value:
            told.append(sentence("Registers were spilled: {} requests to local memory for it.", spilled))
        return told

    def _hot_spot(self, group: Group) -> tuple[str, ...]:
        item = self._hot.get(group.launch)
        if item is None:
            return ()
        if not item.hotspots:
            return (worded(item.summary[0]),)
        if item.samples < LEAST_SAMPLES:
            return (f"too few samples to name one: {item.samples}.",)
        line = item.hotspots[0]
        text = f"the hottest of {item.instructions:,} instructions holds {line.share:.0%} of {item.samples:,} samples: "
        at = f" at {line.offset:#x}" + (f", {line.top_reason}" if line.top_reason else "")
        parts = [text, Quoted(shorten(escape_control(line.shown), LONGEST_SASS)), at]
        if line.waits_for is not None:
            waits_for = Quoted(shorten(escape_control(line.waits_for.shown), LONGEST_SASS))
            parts += [", which probably waits for ", waits_for, f" at {line.waits_for.offset:#x}"]
        return (*parts, ".")


def _sectors(name: str, sectors: TracedNumber | None, ideal: IdealSectors | None) -> list[TracedText]:
    if sectors is None or ideal is None or sectors.value <= ideal.high * SCATTERED:
        return []
    text = "Global {} touch {} sectors a request where {} would do: they are not coalesced."
    return [sentence(text, name, sectors, f"{ideal.high:.0f}")]
