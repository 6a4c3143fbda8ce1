"""``fiprof compare`` for people: the answer in sentences, what changed, where, and what explains it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fiprof.analysis.comparison import programs
from fiprof.analysis.comparison.kernels import COLUMNS, Change, FactorKind, KernelChange
from fiprof.analysis.comparison.measured_result import MeasuredComparison
from fiprof.analysis.comparison.programs import LEADS, ProgramComparison
from fiprof.analysis.comparison.runs import TIMED_BY, CaseChange, RunComparison, different, reasons, summary
from fiprof.analysis.comparison.statistics import Outcome
from fiprof.analysis.stalls import state
from fiprof.analysis.thresholds import PROCESSES_DRIFT
from fiprof.analysis.top import Spent
from fiprof.model.case_quantities import NCU, NSYS
from fiprof.model.finding import Finding, finding, say, words_of
from fiprof.model.quantities import QUANTITIES
from fiprof.reports import charts, verdict_words
from fiprof.reports.columns import change_words
from fiprof.reports.top import LAUNCHING
from fiprof.reports.view import Chart, Column, Document, Narrow, Value, View, left_out, view_of

MOST_CASES, MOST_KERNELS, MOST_ROWS = 12, 5, 8
"""Rows that people are shown: cases, kernels of a case, and of a program's tables."""
MOST_DETAILED, MOST_DETAILED_ON_PAGE = 2, 20  # cases that are shown in detail, where not all are asked for
MOST_FACTORS, MOST_MOVED = 6, 4
LEAST_SHARE = 0.02  # share of a launch's time that a place in the code accounts for to be worth a row
MOST_BARS = 8
COUNTERS = (
    "duration_us", "dram_gb_per_s", "dram_share", "dram_read_mb", "l2_gb_per_s", "l2_hit_pct", "l1_hit_pct",
    "million_instructions", "tensor_active_pct", "issue_active_pct", "achieved_occupancy_pct",
    "theoretical_occupancy_pct", "registers_per_thread", "shared_kb_per_block", "blocks", "threads_per_block",
    "waves_per_sm", "spill_requests", "global_sectors_per_request", "shared_conflict_share", "idle_pct", "sm_clock_ghz",
)  # fmt: skip
"""Those that are compared, in the order of the table."""
ACCOUNTS = Column("", "accounts for", "µs", "+,.2f")
SIDES_US = (Column("", "A", "µs", ",.2f"), Column("", "B", "µs", ",.2f"), Column("", "change", "µs", "+,.2f"))
EXPLAINS = "What accounts for it"
TITLE = "What changed from A to B"
MIXES = (
    "Share of all warps' time by reason, percent, by ncu's counters (by its samples where it has no counters). "
    "selected is issuing and not_selected is ready: no stalls."
)
Contribution = tuple[str, float, Mapping[str, str]]
"""Name of a part of a change, how much longer side B takes for it, and what else stands beside the mouse."""


def document(comparison: RunComparison, *, every: bool = False, most: int = MOST_DETAILED) -> Document:
    """Tables and charts for people; for programs all numbers. every: all of it. most: cases shown in detail."""
    shown = (View(summary=(*summary(comparison), *_about(comparison))), *_views(comparison, every=every, most=most))
    return Document(
        programs=lambda: view_of(COLUMNS, comparison.changes()), shown=shown, warnings=_cautions(comparison)
    )


def explained(table: Document, measured: MeasuredComparison, by: RunComparison | None) -> Document:
    """A measured comparison's table with what explains it: of cases those that are slower or faster, the most first, of
    a program its traces, whatever was decided. by: of the runs that profiled each side; None without them."""
    if by is None:
        return table
    pct = {
        (case.a, case.b): abs(case.difference.difference_pct)
        for case in measured.cases
        if case.difference.outcome in (Outcome.SLOWER, Outcome.FASTER)
    }
    decided = [case for case in by.cases if (case.pair[0].id, case.pair[1].id) in pct]
    decided.sort(key=lambda case: -pct[case.pair[0].id, case.pair[1].id])
    views = list(_views(by) if by.program else _case_views(decided))
    if not views:
        return table
    why = [*programs.program_summary(by.program)] if by.program else []
    why += [
        say("{case}: {reasons}.", case=case.label, reasons="; ".join(each))
        for case in decided
        if (each := [*reasons(case)])
    ]
    why.append("By one process a side under the profilers, after the measuring: their times are not what decided.")
    answer, folded = View(title=EXPLAINS, summary=tuple(why)), [replace(each, folded=True) for each in views]
    return replace(table, shown=(*table.shown, answer, *folded), warnings=(*table.warnings, *_cautions(by)))


def _cautions(comparison: RunComparison) -> tuple[Finding, ...]:
    """What the sides were measured under, where that differs, and what else is doubtful."""
    if comparison.program is None or comparison.program.common >= programs.LITTLE_IN_COMMON:
        return comparison.conditions
    words = "only {share:.0%} of the kernels' time is in kernels that both sides have: these are different programs"
    return (*comparison.conditions, finding("other_program", words, share=comparison.program.common))


def _about(comparison: RunComparison) -> Iterator[str]:
    sides = (comparison.a, comparison.b)
    a, b = (", ".join([x.run.manifest.name, *(f"{name}={value}" for name, value in x.params.items())]) for x in sides)
    yield say("A: {a} · B: {b}", a=a, b=b)
    differing = (item for case in comparison.cases for item in different(case.pair).items())
    for name, (x, y) in dict.fromkeys(differing):
        yield say("{name}: {a} on side A, {b} on side B", name=name, a=x, b=y)
    for name, run, left in (("A", comparison.a.run, comparison.only_a), ("B", comparison.b.run, comparison.only_b)):
        if left:
            yield say("only on side {side}: {cases}", side=name, cases=tuple(run.labels(case.id) for case in left))


def _views(comparison: RunComparison, *, every: bool = False, most: int = MOST_DETAILED) -> Iterator[View]:
    """The tables, the most telling first. every: leave out nothing. most: cases that are shown in detail."""
    several = len(comparison.cases) > 1
    if several:
        yield _cases(comparison, None if every else MOST_CASES)
    notable = [case for case in comparison.cases if every or case.notable]
    yield from _case_views(notable if every else notable[:most], every=every, detail=several)
    if comparison.program:
        yield from _program_views(comparison.program, None if every else MOST_ROWS)
        yield from _launches(comparison.program.kernels, comparison.program.window.us, every=every)
    if comparison.launches:
        total = sum(each.us for each in comparison.launches)
        title = "Launches under ncu, the largest change first"
        yield View(_KERNELS, tuple(_kernels(comparison.launches, total)), title=title)
        yield from _launches(comparison.launches, total, every=True)


def _case_views(cases: Sequence[CaseChange], *, every: bool = False, detail: bool = True) -> Iterator[View]:
    """Where the change of each case is, and what explains it; charts of the first."""
    for place, case in enumerate(cases):
        yield replace(_case(case, chart=not place), folded=detail)
        yield from _launches(case.kernels, case.us, every=every, chart=not place)


def _launches(kernels: Sequence[KernelChange], total_us: float, *, every: bool, chart: bool = True) -> Iterator[View]:
    """What explains the kernels that account for enough of a change; every: for any of it. chart: of the first."""
    for place, each in enumerate(kernels):
        if each.because("factor") and (every or abs(each.us) >= LEADS * abs(total_us) > 0):
            yield from (replace(view, folded=True) for view in _launch(each, chart=chart and not place))


def _contributions(title: str, items: Sequence[Contribution], unit: str, caption: str = "") -> Chart:
    drawn = sorted(items, key=lambda item: -abs(item[1]))
    caption = caption or "How much longer side B takes for each part."
    return Chart(title, lambda: charts.contributions(drawn, unit), caption)


def _cases(comparison: RunComparison, most: int | None) -> View:
    columns = (
        Column("", "case", narrow=Narrow.ABOVE),
        *SIDES_US,
        Column("", "%", "", "+.1f"),
        Column("", "why", wrap=True, narrow=Narrow.BELOW),
    )
    rows: list[tuple[Value, ...]] = []
    for case in comparison.cases:
        times: tuple[Value, ...] = (None, None, None, None)
        if case.time:
            share = None if case.share is None else 100 * case.share
            times = case.time.a.value, case.time.b.value, case.us, share
        rows.append((case.label, *times, "; ".join(reasons(case)) if case.notable else ""))
    rest = "{count:other case|other cases}: --all shows them"
    return _first(columns, rows, most, "Cases, the largest change first", rest)


def _first(
    columns: Sequence[Column], rows: Sequence[tuple[Value, ...]], most: int | None, title: str, rest: str
) -> View:
    """A table's first rows, and how many more there are."""
    notes = left_out(rest, len(rows) - len(rows[:most]))
    return View(tuple(columns), tuple(rows[:most]), title=title, notes=notes)


_KERNELS = (
    Column("", "kernel", wrap=True, narrow=Narrow.ABOVE),
    *SIDES_US,
    Column("", "of the change", "", ".0%"),
)


def _case(case: CaseChange, *, chart: bool) -> View:
    """Where a case's change is: a row a kernel, and the time outside of them."""
    total = case.us if case.time else None
    rows = _kernels(case.kernels, total)
    parts: list[Contribution] = [(each.name, each.us, {}) for each in case.kernels[:MOST_BARS]]
    if case.outside_us is not None:
        rows.append(("outside the kernels", None, None, case.outside_us, total and case.outside_us / total))
        parts.append(("outside the kernels", case.outside_us, {}))
    sides = [side for each in case.kernels for side in (each.a, each.b) if side]
    by = TIMED_BY[NSYS.key if all(side.nsys_us is not None for side in sides) else NCU.key]
    notes = (f"Time of an iteration {TIMED_BY[str(case.time.item)]}, kernels {by}.",) if case.time else ()
    title = say("{case}: where the change is", case=case.label)
    drawn = (_contributions(title, parts, "µs"),) if chart and case.notable and parts else ()
    return View(_KERNELS, tuple(rows), title=title, notes=notes, charts=drawn)


def _kernels(kernels: Sequence[KernelChange], total: float | None) -> list[tuple[Value, ...]]:
    def row(name: str, of: Sequence[KernelChange]) -> tuple[Value, ...]:
        times = ([side.total_us for side in sides if side] for sides in ([x.a for x in of], [x.b for x in of]))
        us = sum(each.us for each in of)
        return name, *(sum(each) if each or len(of) > 1 else None for each in times), us, total and us / total

    rows = [row(each.name, [each]) for each in kernels[:MOST_KERNELS]]
    if rest := kernels[MOST_KERNELS:]:
        rows.append(row(say("{count:other kernel|other kernels}", count=len(rest)), rest))
    return rows


def _launch(of: KernelChange, *, chart: bool) -> Iterator[View]:
    """What explains a kernel: what its time is made of, its counters, its hot code."""
    a, b = of.verdicts
    assert a and b
    times = [each.row.duration_us or 0.0 for each in (a, b)]
    one, other = (verdict_words.short_title(each) for each in (a, b))
    sentences = [say("Both sides: {a}." if one == other else "{a} → {b}", a=one, b=other)]
    limiters = next(([each.a, each.b] for each in of.because("verdict") if each.item == "occupancy_limiters"), [])
    if all(limiters):
        words = "Occupancy is limited by {a}" + (" → {b}." if limiters[0] != limiters[1] else ".")
        sentences.append(say(words, a=limiters[0], b=limiters[1]))
    title = say("{kernel}: {a:,.2f} → {b:,.2f} µs under ncu", kernel=of.name, a=times[0], b=times[1])
    yield View(title=title, summary=tuple(sentences))
    yield _factors(of, chart=chart)
    told = {each.item: each for each in of.because("counter") if each.a and each.b}
    counters = [(QUANTITIES[key].title, told[key]) for key in COUNTERS if key in told]
    differing = [(name, each, words) for name, each in counters if (words := change_words(each.a, each.b))]
    if differing:
        heads = tuple(Column("", name) for name in ("counter", "A", "B", "change"))
        rows = ((name, say("{}", each.a), say("{}", each.b), words) for name, each, words in differing)
        yield View(heads, tuple(rows))
    hot = [each for each in of.because("hot_code")[:MOST_MOVED] if abs(each.us) >= LEAST_SHARE * max(times)]
    if hot:
        shares = (Column("", "A", spec=".1%"), Column("", "B", spec=".1%"))
        columns = (Column("", hot[0].detail[0]), *shares, ACCOUNTS, Column("", "waits for"))
        yield View(columns, tuple((each.item, each.a, each.b, each.us, each.detail[1] or "") for each in hot))
    mixes: dict[str, dict[str, float]] = {"A": {}, "B": {}}
    for each in of.because("stall"):
        for side, share in (("A", each.a), ("B", each.b)):
            if share:
                mixes[side][each.item or ""] = share.value / 100
    if all(mixes.values()):
        chart_title = f"{of.name}: warp stalls of both sides"
        yield View(charts=(Chart(chart_title, lambda: charts.stall_mixes(mixes), MIXES),))


def _factors(of: KernelChange, *, chart: bool) -> View:
    factors = of.because("factor")
    terms = [
        (say(each.detail.words, reason=state(each.item or "")), each)
        for each in factors
        if each.detail is not FactorKind.REST
    ]
    shown = terms[:MOST_FACTORS]
    rest = [each for each in factors if all(each is not other for _, other in shown)]
    rows: list[tuple[Value, ...]] = [(name, _count(each.a), _count(each.b), each.us) for name, each in shown]
    rows.append(("everything else", None, None, sum(each.us for each in rest)))
    drawn: tuple[Chart, ...] = ()
    if chart and of.launch_us:
        large = [(name, each) for name, each in terms if abs(each.us) >= LEADS * abs(of.launch_us)][:MOST_BARS]
        parts: list[Contribution] = [(name, of.us, {"A": f"{of.a:,.4g}", "B": f"{of.b:,.4g}"}) for name, of in large]
        parts.append(("everything else", of.launch_us - sum(each.us for _, each in large), {}))
        title = say("{kernel}: what its time is made of", kernel=of.name)
        drawn = (_contributions(title, parts, "µs", "The parts sum to the difference of the two launches."),)
    titles = (("what its time is made of", ""), ("A", ",.4g"), ("B", ",.4g"))
    columns = (*(Column("", title, spec=spec) for title, spec in titles), ACCOUNTS)
    return View(columns, tuple(rows), charts=drawn)


def _count(value: float) -> float | str:
    return value if value < 1000 else f"{value:,.0f}"


def _program_views(comparison: ProgramComparison, most: int | None) -> Iterator[View]:
    """most: rows of each table; None for all."""
    change, spec = "change" if comparison.work == 1.0 else "at equal work", ",.3g" if comparison.steps else ",.0f"
    times = (Column("", "A", "ms", ",.3f"), Column("", "B", "ms", ",.3f"), Column("", change, "ms", "+,.3f"))
    counts = (Column("", "x A", spec=spec), Column("", "x B", spec=spec))
    yield _time(comparison, times)
    if len(comparison.ranks) > 1:
        yield _ranks(comparison, times)
    kernels: list[tuple[Value, ...]] = []
    for each in comparison.kernels:
        if each.us or most is None:
            counts_ab, means_ab = each.both(lambda side: side.count), each.both(lambda side: side.mean_us)
            totals_ab = each.both(lambda side: side.total_us / 1e3)
            kernels.append((each.name, *counts_ab, *means_ab, *totals_ab, each.us / 1e3))
    if kernels:
        means_us = (Column("", "each A", "µs", ",.2f"), Column("", "each B", "µs", ",.2f"))
        columns: tuple[Column, ...] = (Column("", "kernel", narrow=Narrow.ABOVE), *counts, *means_us, *times)
        rest = "{count:other kernel|other kernels}: --all shows them"
        yield _first(columns, kernels, most, "Kernels, the largest change first", rest)
    idle: list[tuple[Value, ...]] = [
        (words_of(each.item or ""), each.call or "", *_ms(each), each.range or "")
        for each in comparison.idle
        if each.us or most is None
    ]
    if idle:
        columns = (Column("", "cause"), Column("", "call"), *times, Column("", "range", narrow=Narrow.BELOW))
        title = "Why the GPUs were idle, the largest change first"
        shown = _first(columns, idle, most, title, "{count:other cause|other causes}")
        yield replace(shown, folded=True, notes=(*shown.notes, LAUNCHING))
    ranges = [each for each in comparison.ranges if each.us or most is None]
    if any(each.range for each in ranges):
        columns = (Column("", "range", narrow=Narrow.ABOVE), *counts, *times)
        rows = [(each.range or "outside every range", *each.detail, *_ms(each)) for each in ranges]
        title = "Kernels by the NVTX range they were launched in, the largest change first"
        yield replace(_first(columns, rows, most, title, "{count:other range|other ranges}"), folded=True)


def _ms(of: Change) -> tuple[float, float, float]:
    return of.a / 1e3, of.b / 1e3, of.us / 1e3


def _time(comparison: ProgramComparison, times: Sequence[Column]) -> View:
    parts = sorted(comparison.parts.items(), key=lambda item: -abs(item[1].us))
    named: list[tuple[str, Change]] = []
    for kind, time in parts:
        named.append((Spent(kind).words, time))
        if kind == Spent.COLLECTIVES and comparison.waits:
            named.append(("  waiting for other ranks", comparison.waits))
    us = comparison.window.us
    told = us if abs(comparison.share) > PROCESSES_DRIFT / 100 else 0.0
    rows: list[tuple[Value, ...]] = [(name, *_ms(of), of.us / told if told else None) for name, of in named]
    several = ", mean of the GPUs" if max(comparison.gpus) > 1 else ""
    rows.append(("together", *_ms(comparison.window), None))
    equal = "at equal work: B executed the kernels that both have {work:.3f} times as often as A, so that A's times "
    equal += "are taken to the root of that, and B's divided by it."
    drawn: list[Contribution] = [(Spent(kind).words, time.us / 1e3, {}) for kind, time in parts if time.us]
    return View(
        (Column("", "what"), *times, Column("", "of the change", spec=".0%")),
        tuple(row for row in rows if row[1] or row[2]),
        title="Where the GPUs' time went" + (", a step" if comparison.steps else "") + several,
        notes=() if comparison.work == 1.0 else (say(equal, work=comparison.work),),
        charts=(_contributions("Where the GPUs' time changed", drawn, "ms"),) if us and drawn else (),
    )


def _ranks(comparison: ProgramComparison, times: Sequence[Column]) -> View:
    kinds: dict[str, str] = {kind: Spent(kind).words for kind, time in comparison.parts.items() if time.a or time.b}
    if comparison.waits:
        kinds[programs.WAITING] = "waiting for other ranks"
    rows: list[tuple[Value, ...]] = []
    for each in comparison.ranks:
        parts = comparison.parts_of(each)
        name = f"GPU {each.device}" if each.rank is None else f"{each.rank}, GPU {each.device}"
        rows.append((name, *_ms(each), *(parts[kind].us / 1e3 if kind in parts else None for kind in kinds)))
    columns = (Column("", title, "ms", "+,.3f", narrow=Narrow.BELOW) for title in kinds.values())
    notes = ("Below each rank how much longer its parts take.",)
    return View((Column("", "rank"), *times, *columns), tuple(rows), title="By rank", notes=notes, folded=True)
