"""``fiprof compare`` for people: the answer in sentences, what changed, where, and what explains it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fiprof.analysis.comparison.answer import (
    LEADS,
    TIMED_BY,
    program_summary,
    program_warnings,
    reasons,
    summary,
)
from fiprof.analysis.comparison.changes import COLUMNS, Change
from fiprof.analysis.comparison.factors import FactorKind
from fiprof.analysis.comparison.kernels import KernelChange
from fiprof.analysis.comparison.measured_result import MeasuredComparison
from fiprof.analysis.comparison.programs import WAITING, PartKind, ProgramComparison
from fiprof.analysis.comparison.runs import ArchivedSide, CaseChange, RunComparison
from fiprof.analysis.comparison.statistics import Outcome
from fiprof.analysis.reasons import state
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.model.case_quantities import NCU, NSYS
from fiprof.model.finding import Finding
from fiprof.model.provenance import TracedNumber, sentence
from fiprof.model.wording import say, worded
from fiprof.reports import verdict_words
from fiprof.reports.pages.charts_comparison import Contribution, contributions_chart, mixes_chart
from fiprof.reports.pages.page import Block, Caution, Chart, Page, Section, Table, Text
from fiprof.reports.view import Column, Document, Narrow, Value, View

MOST_CASES, MOST_KERNELS, MOST_ROWS = 12, 5, 8
"""Rows that people are shown: cases, kernels of a case, and of a program's tables."""
MOST_DETAILED, MOST_DETAILED_ON_PAGE = 2, 20
"""Cases that are shown in detail, where not all are asked for."""
MOST_FACTORS, MOST_MOVED = 6, 4
LEAST_SHARE = 0.02
"""Share of a launch's time that a place in the code accounts for to be worth a row."""
MOST_BARS = 8

COUNTERS = {
    "duration_us": "duration",
    "dram_gb_per_s": "DRAM rate",
    "dram_share": "DRAM, of its peak",
    "dram_read_mb": "read from DRAM",
    "l2_gb_per_s": "L2 rate",
    "l2_hit_pct": "L2 hits",
    "l1_hit_pct": "L1 hits",
    "million_instructions": "warp instructions, millions",
    "tensor_active_pct": "tensor cores active",
    "issue_active_pct": "cycles with an issue",
    "achieved_occupancy_pct": "achieved occupancy",
    "theoretical_occupancy_pct": "theoretical occupancy",
    "registers_per_thread": "registers a thread",
    "shared_kb_per_block": "shared memory a block",
    "blocks": "blocks",
    "threads_per_block": "threads a block",
    "waves_per_sm": "waves",
    "spill_requests": "requests of spilled registers",
    "global_sectors_per_request": "sectors a global request",
    "shared_conflict_share": "bank conflicts, of passes",
    "idle_pct": "idle multiprocessors",
    "sm_clock_ghz": "SM clock",
}
"""What a counter is called where two sides are compared, in the order of the table."""

ACCOUNTS = Column("", "accounts for", "µs", "+,.2f")
SIDES_US = (Column("", "A", "µs", ",.2f"), Column("", "B", "µs", ",.2f"), Column("", "change", "µs", "+,.2f"))
EXPLAINS = "What accounts for it"


@dataclass(frozen=True)
class Part:
    """Tables under one heading, that of the first."""

    anchor: str
    views: tuple[View, ...]
    detail: bool = True
    """For looking into: folded where a page can fold."""
    kernel: KernelChange | None = None
    """What it explains."""


# The whole


def document(found: RunComparison, *, every: bool = False) -> Document:
    """Tables for people; for programs every number in rows of one form. every: leave out nothing."""
    shown = [View((), (), summary=(*summary(found), *_about(found)))]
    shown += [replace(view, folded=part.detail) for part in _parts(found, every=every) for view in part.views]
    return Document(programs=lambda: rows(found), shown=tuple(shown), warnings=_cautions(found))


def rows(found: RunComparison) -> View:
    """The one table, for programs."""
    cells = ([getattr(each, column.key) for column in COLUMNS] for each in found.changes())
    return View(
        COLUMNS, tuple(tuple(each.value if isinstance(each, TracedNumber) else each for each in row) for row in cells)
    )


def page(found: RunComparison) -> Page:
    """The answer, charts of what accounts for it, then every table."""
    drawn = tuple(_charts(found))
    return Page(
        "What changed from A to B",
        (
            Section("answer", "The answer", (*_texts(summary(found)), *_doubts(_cautions(found)))),
            *([Section("charts", EXPLAINS, drawn)] if drawn else []),
            *_nested(_parts(found, most=MOST_DETAILED_ON_PAGE)),
            Section("sides", "What was compared", _texts(_about(found))),
        ),
    )


@dataclass(frozen=True)
class Explained:
    """A measured comparison with what explains it: its verdicts, then the kernels of each decided case."""

    measured: MeasuredComparison
    table: Document
    """What ``reports.measured_table`` shows of it."""
    drawn: Chart
    """The same as a chart."""
    by: RunComparison | None
    """Of the runs that profiled each side; None without them."""

    @property
    def _decided(self) -> list[CaseChange]:
        """The cases that are slower or faster, the most first."""
        found = {
            (case.a, case.b): abs(case.difference.difference_pct)
            for case in self.measured.cases
            if case.difference.outcome in (Outcome.SLOWER, Outcome.FASTER)
        }
        cases = [(found.get((case.pair.a.id, case.pair.b.id)), case) for case in (self.by.cases if self.by else ())]
        return [case for pct, case in sorted(cases, key=lambda each: -(each[0] or 0.0)) if pct is not None]

    @property
    def _parts(self) -> list[Part]:
        """What explains it: of cases those that are slower or faster, of a program its traces, whatever was decided."""
        if self.by is None:
            return []
        return list(_parts(self.by)) if self.by.program else list(_case_parts(self._decided))

    def _why(self) -> Iterator[str]:
        if self.by and self.by.program:
            yield from program_summary(self.by.program)
        for case in self._decided:
            if why := "; ".join(reasons(case)):
                yield say("{case}: {reasons}.", case=case.label, reasons=why)
        yield "By one process a side under the profilers, after the measuring: their times are not what decided."

    def document(self) -> Document:
        """For the terminal, Markdown and programs."""
        if not self._parts or self.by is None:
            return self.table
        views = [View((), (), title=EXPLAINS, summary=tuple(self._why()))]
        views += [replace(view, folded=True) for part in self._parts for view in part.views]
        return replace(
            self.table, shown=(*self.table.shown, *views), warnings=(*self.table.warnings, *_cautions(self.by))
        )

    def page(self) -> Page:
        """For a browser."""
        tables = [Table(view, anchor=f"measured-{number}") for number, view in enumerate(self.table.shown)]
        sections = [Section("answer", "The answer", (*_doubts(self.table.warnings), *tables, self.drawn))]
        if self._parts and self.by:
            drawn = _charts(replace(self.by, cases=tuple(self._decided)))
            blocks = (*_texts(self._why()), *_doubts(_cautions(self.by)), *drawn)
            sections += [Section("charts", EXPLAINS, blocks), *_nested(self._parts)]
        return Page("What changed from A to B", tuple(sections))


def _texts(sentences: Iterable[Any]) -> tuple[Block, ...]:
    return tuple(Text((worded(each),)) for each in sentences)


def _doubts(warnings: Iterable[Any]) -> tuple[Block, ...]:
    return tuple(Caution(worded(each)) for each in warnings)


def _cautions(found: RunComparison) -> tuple[Finding, ...]:
    """What the sides were measured under, where that differs, and what else is doubtful."""
    return (*found.conditions, *(program_warnings(found.program) if found.program else ()))


def _about(found: RunComparison) -> Iterator[str]:
    """What was compared, and what was not."""
    yield say("A: {a} · B: {b}", a=_side(found.a), b=_side(found.b))
    differing = (item for case in found.cases for item in case.pair.different.items())
    for name, (a, b) in dict.fromkeys(differing):
        yield say("{name}: {a} on side A, {b} on side B", name=name, a=a, b=b)
    for name, run, left in (("A", found.a.run, found.only_a), ("B", found.b.run, found.only_b)):
        if left:
            yield say("only on side {side}: {cases}", side=name, cases=tuple(run.labels(case.id) for case in left))


def _side(of: ArchivedSide) -> str:
    """``NAME, backend=fa2``."""
    return ", ".join([of.run.manifest.name, *(f"{name}={value}" for name, value in of.params.items())])


def _parts(found: RunComparison, *, every: bool = False, most: int = MOST_DETAILED) -> Iterator[Part]:
    """The tables, the most telling first. every: leave out nothing. most: cases that are shown in detail."""
    several = len(found.cases) > 1
    if several:
        yield Part("cases", (_cases(found, None if every else MOST_CASES),), detail=False)
    notable = [case for case in found.cases if every or case.notable]
    yield from _case_parts(notable if every else notable[:most], every=every, detail=several)
    if found.program:
        tables = _program_tables(found.program, None if every else MOST_ROWS)
        yield from (Part(name, (view,), detail=name not in ("time", "kernels")) for name, view in tables)
        yield from _launches(
            "kernels", [each for each in found.program.kernels if every or _leads(each, found.program)]
        )
    if found.launches:
        total = sum(each.us for each in found.launches)
        view = View(
            _KERNELS, tuple(_kernels(found.launches, total)), title="Launches under ncu, the largest change first"
        )
        yield Part("launches", (view,), detail=False)
    yield from _launches("launches", found.launches)


def _case_parts(chosen: Sequence[CaseChange], *, every: bool = False, detail: bool = True) -> Iterator[Part]:
    """Where the change of each case is, and what explains it."""
    for number, case in enumerate(chosen):
        yield Part(f"case-{number}", (_case(case),), detail=detail)
        yield from _launches(f"case-{number}", [each for each in case.kernels if every or _leads(each, case)])


def _leads(kernel: KernelChange, of: CaseChange | ProgramComparison) -> bool:
    """Whether a kernel accounts for enough of the change to be explained."""
    total = of.us if isinstance(of, CaseChange) else of.window.us
    return abs(kernel.us) >= LEADS * abs(total) > 0


def _launches(anchor: str, kernels: Sequence[KernelChange]) -> Iterator[Part]:
    for number, each in enumerate(kernels):
        if each.because("factor"):
            yield Part(f"{anchor}-{number}-explained", tuple(_launch(each)), kernel=each)


def _nested(parts: Iterable[Part]) -> list[Section]:
    """The parts as sections: what explains a kernel in that of its case. The first of those is open."""
    found: list[Section] = []
    opened = False
    for part in parts:
        if part.kernel and found and part.anchor.startswith(found[-1].anchor):
            outer = found[-1]
            inner = (*outer.sections, _section(part, folded=opened))
            found[-1], opened = replace(outer, sections=inner, folded=outer.folded and opened), True
        else:
            found.append(_section(part, folded=part.detail))
    return found


def _section(part: Part, *, folded: bool) -> Section:
    blocks: list[Block] = []
    for number, view in enumerate(part.views):
        if view.rows:
            blocks.append(Table(view if number else replace(view, title=""), anchor=f"{part.anchor}-{number}"))
        else:
            blocks += _texts(view.summary)
    if part.kernel and (mixes := _mixes(part.kernel)):
        blocks.append(mixes_chart(f"{part.anchor}-mix", "Warp stalls of both sides", mixes))
    return Section(part.anchor, part.views[0].title, tuple(blocks), folded=folded)


# Tables


def _cases(found: RunComparison, most: int | None) -> View:
    columns = (
        Column("", "case", narrow=Narrow.ABOVE),
        *SIDES_US,
        Column("", "%", "", "+.1f"),
        Column("", "why", wrap=True, narrow=Narrow.BELOW),
    )
    rows: list[tuple[Value, ...]] = []
    for case in found.cases:
        times: tuple[Value, ...] = (None, None, None, None)
        if case.time:
            share = None if case.share is None else 100 * case.share
            times = case.time.a.value, case.time.b.value, case.us, share
        rows.append((case.label, *times, "; ".join(reasons(case)) if case.notable else ""))
    return _first(
        columns, rows, most, "Cases, the largest change first", "{count:other case|other cases}: --all shows them"
    )


def _first(
    columns: Sequence[Column], rows: Sequence[tuple[Value, ...]], most: int | None, title: str, rest: str
) -> View:
    """A table's first rows, and how many more there are."""
    left = len(rows) - len(rows[:most])
    notes = (say(rest, count=left),) if left else ()
    return View(tuple(columns), tuple(rows[:most]), title=title, notes=notes)


_KERNELS = (
    Column("", "kernel", wrap=True, narrow=Narrow.ABOVE),
    *SIDES_US,
    Column("", "of the change", "", ".0%"),
)


def _case(case: CaseChange) -> View:
    """Where a case's change is: a row a kernel, and the time outside of them."""
    total = case.us if case.time else None
    rows = _kernels(case.kernels, total)
    if case.outside_us is not None:
        rows.append(("outside the kernels", None, None, case.outside_us, total and case.outside_us / total))
    sides = [side for each in case.kernels for side in (each.a, each.b) if side]
    by = TIMED_BY[NSYS.key if all(side.nsys_us is not None for side in sides) else NCU.key]
    notes = (f"Time of an iteration {TIMED_BY[str(case.time.item)]}, kernels {by}.",) if case.time else ()
    return View(_KERNELS, tuple(rows), title=say("{case}: where the change is", case=case.label), notes=notes)


def _kernels(kernels: Sequence[KernelChange], total: float | None) -> list[tuple[Value, ...]]:
    def row(name: str, of: Sequence[KernelChange]) -> tuple[Value, ...]:
        times = ([side.total_us for side in sides if side] for sides in ([x.a for x in of], [x.b for x in of]))
        us = sum(each.us for each in of)
        return name, *(sum(each) if each or len(of) > 1 else None for each in times), us, total and us / total

    rows = [row(each.name, [each]) for each in kernels[:MOST_KERNELS]]
    if rest := kernels[MOST_KERNELS:]:
        rows.append(row(say("{count:other kernel|other kernels}", count=len(rest)), rest))
    return rows


def _launch(of: KernelChange) -> Iterator[View]:
    """What explains a kernel: what its time is made of, its counters, its hot code."""
    a, b = of.verdicts
    assert a and b
    times = [each.row.duration_us or 0.0 for each in (a, b)]
    sentences = [_both("Both sides: {a}.", "{a} → {b}", *(verdict_words.short_title(each) for each in (a, b)))]
    limiters = next(([each.a, each.b] for each in of.because("verdict") if each.item == "occupancy_limiters"), [])
    if all(limiters):
        sentences.append(_both("Occupancy is limited by {a}.", "Occupancy is limited by {a} → {b}.", *limiters))
    title = say("{kernel}: {a:,.2f} → {b:,.2f} µs under ncu", kernel=of.name, a=times[0], b=times[1])
    yield View((), (), title=title, summary=tuple(sentences))
    yield _factors(of.because("factor"))
    names = list(COUNTERS)
    told = [each for each in of.because("counter") if each.item in COUNTERS and each.a and each.b]
    told.sort(key=lambda each: names.index(each.item or ""))
    differing = [(each, words) for each in told if (words := _difference(each.a, each.b))]
    if differing:
        heads = tuple(Column("", name) for name in ("counter", "A", "B", "change"))
        yield View(
            heads,
            tuple((COUNTERS[c.item or ""], sentence("{}", c.a), sentence("{}", c.b), words) for c, words in differing),
        )
    hot = [each for each in of.because("hot_code")[:MOST_MOVED] if abs(each.us) >= LEAST_SHARE * max(times)]
    if hot:
        shares = (Column("", "A", spec=".1%"), Column("", "B", spec=".1%"))
        columns = (Column("", hot[0].detail[0].words), *shares, ACCOUNTS, Column("", "waits for"))
        yield View(columns, tuple((each.item, each.a, each.b, each.us, each.detail[1] or "") for each in hot))


def _both(same: str, different: str, a: object, b: object) -> str:
    return say(same if a == b else different, a=a, b=b)


def _factors(factors: Sequence[Change]) -> View:
    columns = (
        Column("", "what its time is made of"),
        Column("", "A", spec=",.3g"),
        Column("", "B", spec=",.3g"),
        ACCOUNTS,
    )
    kept = [each for each in factors if each.detail is not FactorKind.REST][:MOST_FACTORS]
    rows: list[tuple[Value, ...]] = [(_factor(each), _count(each.a), _count(each.b), each.us) for each in kept]
    rows.append(("everything else", None, None, sum(each.us for each in factors if each not in kept)))
    return View(columns, tuple(rows))


def _factor(of: Change) -> str:
    return say(of.detail.words, reason=state(of.item or ""))


def _count(value: float) -> float | str:
    return value if value < 1000 else f"{value:,.0f}"


def _difference(a: TracedNumber, b: TracedNumber) -> str:
    """In points of a percentage, in percent of others; empty where that is negligible."""
    share = a.spec.endswith("%")
    if share or a.unit == "%":
        points = (b.value - a.value) * (100 if share else 1)
        return f"{points:+.0f} points" if abs(points) >= WORTH_CHANGING.value else ""
    change = 100 * (b.value / a.value - 1) if a.value else 0.0
    return f"{change:+.1f}%" if abs(change) >= WORTH_CHANGING.value else ""


# Tables of a program


def _program_tables(found: ProgramComparison, most: int | None) -> Iterator[tuple[str, View]]:
    """Name and table. most: rows of each; None for all."""
    change = "change" if found.work == 1.0 else "at equal work"
    times = (Column("", "A", "ms", ",.3f"), Column("", "B", "ms", ",.3f"), Column("", change, "ms", "+,.3f"))
    range_ = Column("", "range", narrow=Narrow.ABOVE)
    counts = (Column("", "x A", spec=",.0f"), Column("", "x B", spec=",.0f"))
    yield "time", _time(found, times)
    if len(found.ranks) > 1:
        yield "ranks", _ranks(found, times)
    kernels = [
        (
            each.name,
            *each.both(lambda side: side.count),
            *each.both(lambda side: side.mean_us),
            *each.both(lambda side: side.total_us / 1e3),
            each.us / 1e3,
        )
        for each in found.kernels
        if each.us or most is None
    ]
    if kernels:
        means_us = (Column("", "each A", "µs", ",.2f"), Column("", "each B", "µs", ",.2f"))
        columns: tuple[Column, ...] = (Column("", "kernel", narrow=Narrow.ABOVE), *counts, *means_us, *times)
        rest = "{count:other kernel|other kernels}: --all shows them"
        yield "kernels", _first(columns, kernels, most, "Kernels, the largest change first", rest)
    idle = [
        (worded(each.item or ""), each.call or "", *_ms(each), each.range or "")
        for each in found.idle
        if each.us or most is None
    ]
    if idle:
        columns = (Column("", "cause"), Column("", "call"), *times, replace(range_, narrow=Narrow.BELOW))
        title = "Why the GPUs were idle, the largest change first"
        yield "idle", _first(columns, idle, most, title, "{count:other cause|other causes}")
    ranges = [
        (each.range or "outside every range", *each.detail, *_ms(each))
        for each in found.ranges
        if each.us or most is None
    ]
    if any(each.range for each in found.ranges if each.us or most is None):
        title = "Kernels by the NVTX range they were launched in, the largest change first"
        yield "ranges", _first((range_, *counts, *times), ranges, most, title, "{count:other range|other ranges}")


def _ms(of: Change) -> tuple[float, float, float]:
    return of.a / 1e3, of.b / 1e3, of.us / 1e3


def _time(found: ProgramComparison, times: Sequence[Column]) -> View:
    def row(name: str, of: Change) -> tuple[Value, ...]:
        return name, *_ms(of), of.us / found.window.us if found.window.us else None

    rows: list[tuple[Value, ...]] = []
    for kind, time in sorted(found.parts.items(), key=lambda item: -abs(item[1].us)):
        rows.append(row(PartKind(kind).words, time))
        if kind == PartKind.COLLECTIVES and found.waits:
            rows.append(row("  waiting for other ranks", found.waits))
    rows.append(("together", *_ms(found.window), None))
    equal = (
        "at equal work: B executed the kernels that both have {work:.3f} times as often as A, so that A's times are "
        "taken to the root of that, and B's divided by it."
    )
    return View(
        (Column("", "what"), *times, Column("", "of the change", spec=".0%")),
        tuple(row for row in rows if row[1] or row[2]),
        title="Where the GPUs' time went",
        notes=() if found.work == 1.0 else (say(equal, work=found.work),),
    )


def _ranks(found: ProgramComparison, times: Sequence[Column]) -> View:
    kinds: dict[str, str] = {kind: PartKind(kind).words for kind, time in found.parts.items() if time.a or time.b}
    if found.waits:
        kinds[WAITING] = "waiting for other ranks"
    rows: list[tuple[Value, ...]] = []
    for each in found.ranks:
        parts = found.parts_of(each)
        name = f"GPU {each.device}" if each.rank is None else f"{each.rank}, GPU {each.device}"
        rows.append((name, *_ms(each), *(parts[kind].us / 1e3 if kind in parts else None for kind in kinds)))
    columns = (Column("", title, "ms", "+,.3f", narrow=Narrow.BELOW) for title in kinds.values())
    notes = ("Below each rank how much longer its parts take.",)
    return View((Column("", "rank"), *times, *columns), tuple(rows), title="By rank", notes=notes)


# Charts


def _charts(found: RunComparison) -> Iterator[Chart]:
    """What accounts for the change that matters most."""
    if found.program and found.program.window.us:
        items = [
            Contribution(PartKind(kind).words, time.us / 1e3) for kind, time in found.program.parts.items() if time.us
        ]
        items.sort(key=_size)
        yield contributions_chart("chart-program", "Where the GPUs' time changed", items, unit="ms")
    for case in [each for each in found.cases if each.notable][:1]:
        items = [Contribution(each.name, each.us) for each in case.kernels[:MOST_BARS]]
        if case.outside_us is not None:
            items.append(Contribution("outside the kernels", case.outside_us))
        items.sort(key=_size)
        title = say("{case}: where the change is", case=case.label)
        yield contributions_chart("chart-case", title, items, unit="µs")
    first = [each for each in found.cases if each.notable][:1]
    kernels = (
        first[0].kernels if first else () if found.cases else found.program.kernels if found.program else found.launches
    )
    for kernel in kernels[:1]:
        if (
            kernel.launch_us
            and kernel.because("factor")
            and (not found.program or found.cases or _leads(kernel, found.program))
        ):
            yield _factors_chart(kernel)


def _size(of: Contribution) -> float:
    return -abs(of.change)


def _factors_chart(kernel: KernelChange) -> Chart:
    least_us = LEADS * abs(kernel.launch_us)
    factors = [
        each for each in kernel.because("factor") if each.detail is not FactorKind.REST and abs(each.us) >= least_us
    ]
    items = [
        Contribution(_factor(each), each.us, (("A", f"{each.a:,.4g}"), ("B", f"{each.b:,.4g}")))
        for each in factors[:MOST_BARS]
    ]
    items.append(Contribution("everything else", kernel.launch_us - sum(each.us for each in factors[:MOST_BARS])))
    title = say("{kernel}: what its time is made of", kernel=kernel.name)
    caption = "The parts sum to the difference of the two launches."
    return contributions_chart("chart-factors", title, items, unit="µs", caption=caption)


def _mixes(of: KernelChange) -> dict[str, dict[str, float]]:
    """Side -> stall reason -> its share, 0 to 1; empty where a side has none."""
    stalls = of.because("stall")
    found = {
        side: {each.item or "": share.value / 100 for each in stalls if (share := getattr(each, side.lower()))}
        for side in ("A", "B")
    }
    return found if all(found.values()) else {}
