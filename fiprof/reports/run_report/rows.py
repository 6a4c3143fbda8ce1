"""What takes a run's time, a row each: kernels, and of a program also why its GPU was idle, copies and collectives."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fiprof.analysis import checks
from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.program import GUESS, TWICE, Waste
from fiprof.analysis.top import Spent, Top, top
from fiprof.analysis.trace import standing
from fiprof.analysis.verdict.model import CaseBound, Kind, Part, TimeOf
from fiprof.analysis.verdict.steps import STEPS, Step
from fiprof.analysis.verdict.verdict import LaunchVerdict
from fiprof.model.case_quantities import DRAM_FLOOR, kernel_times, timed
from fiprof.model.finding import Provenance, TracedNumber, TracedText, say, words_of
from fiprof.model.quantities import DURATION
from fiprof.model.ranks import COLLECTIVE
from fiprof.model.selection import NO_CASE, by_key, sums_by_key
from fiprof.reports import colours
from fiprof.reports import verdict_words as words
from fiprof.text import detailed_kernel, kernel_detail, kernel_identity, short_kernel, shorten

TOGETHER = TWICE | {Waste.LAYOUTS, Waste.SMALL_KERNELS}  # time of several kernels, which have rows of their own
MOST_ROWS = 300  # of a run: those with most time
LONGEST_LABEL = 48  # cells of what tells two names apart
MOST_SHAPES = 12  # of a program's kernel, that are told one by one
BY_DESIGN = {"flops", "dram_reads", "dram_writes"}
"""Checks of a cost model: padded tiles count more operations, and what stays in L2 counts fewer bytes."""
TIMED = {"nsys_vs_plain", "spread", "ncu_vs_nsys", "sm_clock", "profiled"}
"""Checks of a time; others are about what limits the launch."""
USES = {"compute": Kind.COMPUTE, "DRAM": Part.DRAM, "L2": Part.L2, "issue": Part.ISSUE_SLOTS}  # bars of a row's pane
IDLE_GREYS = ("#8b939c", "#a3aab2", "#777f88", "#b4bac1", "#6a727b", "#959da5", "#838b94", "#9aa2aa")
LIMIT_COLOURS = {
    Kind.COMPUTE: "#5d3dff", Kind.MEMORY: "#2a6f63", Kind.LATENCY: "#a54a1d", Spent.NOT_PROFILED: colours.DARK_GREY,
    Spent.COLLECTIVES: colours.COMMUNICATION, Spent.COPIES: "#0099cc",
}  # fmt: skip
"""In the bar of the wall time; what is in none of these, and a second limit of a kind, takes another colour."""


@dataclass
class Row:
    measured: Analyses
    kind: str  # kernel, collective, or of a program idle, copies, startup or kernels together
    name: str
    total_us: float  # in an iteration of its case; of a program in all
    label: str = ""  # tells it from others of its name; empty where it need not
    share: float = 0.0  # of the time of all rows of the run, or of a program's wall time, 0 to 1
    count: float = 0  # executions in an iteration; of a program in all
    time: TracedNumber | float | None = None  # of one execution, µs: the median under nsys, else of ncu's launches
    case: str = ""  # case id; empty outside the cases
    kernel: str = ""
    group: Group | None = None  # its launches under ncu; None where ncu profiled none
    others: tuple[Group, ...] = ()  # launches of other shapes that are in this row
    spread: TracedNumber | None = None
    about: tuple[str, ...] = ()  # sentences about it, where no launch has a verdict
    full: str = ""
    advice: Step | None = None  # of a program: what to do about it, with what that saves of the program
    item: tuple[Waste, str | None] | None = None  # of a program: cause and name in its ranking

    @property
    def title(self) -> str:
        """Its name with what tells it from others."""
        return f"{self.name} ({self.label})" if self.label else self.name

    @property
    def verdict(self) -> LaunchVerdict | None:
        """Of the launch that stands for it."""
        return self.measured.judged.get(self.group.shown.launch) if self.group else None

    @property
    def step(self) -> Step | None:
        """The first thing to do about it."""
        return self.advice or (next(iter(self.verdict.steps), None) if self.verdict else None)

    @property
    def family(self) -> tuple[str, str]:
        """Kind of kernel, or of other time, and its colour."""
        if self.kind == "kernel":
            family, colour = colours.kernel(self.kernel)
            return ("other kernels", "#4455dd") if family == self.kernel else (family, colour)
        return self.kind, colours.COMMUNICATION if self.kind == "collective" else colours.GREY

    @property
    def saving(self) -> float:
        """The most that its first step saves, as a share of the run's time; a guess where little is known."""
        step = self.step
        if step is None or step.id == "ncu_rule":
            return 0.0
        if step.little_known or (self.advice and step.size_pct is None):
            return GUESS * self.share
        pct = (step.size_pct if step.measured_pct is None else step.measured_pct) or 0.0
        if step.of_kernels and step.bound_pct:
            pct *= 100 / step.bound_pct
        return pct / 100 * (1.0 if step.of is TimeOf.PROGRAM else self.share)

    def limit(self) -> tuple[str, TracedText]:
        """What limits it, and how far it is from that."""
        if self.verdict is not None:
            return words.short_title(self.verdict), words.distance(self.verdict)
        case = next((case for case in self.measured.verdicts.cases if case.case == self.case), None)
        for bound, doing in ((CaseBound.HOST, "waiting"), (CaseBound.COPIES, "copying")):
            if case is not None and case.bound is bound:
                number = getattr(case, doing)
                return words.case_kind(case), say("{number} " + doing, number=number.number) if number else say("")
        unknown = self.kind == "kernel" and self.measured.run.launches
        return ("not profiled" if unknown else ""), say("")

    def data(self, place: int, prefix: str) -> dict[str, Any]:
        """What the page has of it. place: among the run's rows; prefix: of the run's launches in the address."""
        (family, colour), (limit, distance) = self.family, self.limit()
        # "47% (tensor cores at 53%)" after "latency-bound" reads as 47% latency-bound.
        far = TracedText(distance.replace(" (", " left (", 1))
        far.facts = distance.facts
        verdict, step, launch = self.verdict, self.step, self.group.shown.launch if self.group else None
        roof = None if launch is None else self.measured.rooflines.get(launch)
        uses = []
        for name, what in USES.items():
            found = [each for each in verdict.resources if what in (each.part, each.kind)] if verdict else []
            if use := next((each.comparison for each in found if each.comparison), None):
                where = f"{name} in a loop" if use.quantity is DRAM_FLOOR else name
                uses.append((where, use.number.as_(".0f", "%")))
        failed = [
            check
            for check in checks.failed(self.measured.run)
            if (check.launch == launch if check.launch is not None else bool(self.case) and check.case == self.case)
        ]
        return {
            "id": f"row={prefix}{place}" if launch is None else f"launch={prefix}{launch}",
            **{key: getattr(self, key) for key in ("kind", "name", "label", "full")},
            "family": family,
            "colour": colour,
            "share": float(self.share),
            "count": float(self.count),
            "time": f"{self.time:,.1f} µs (nsys)" if isinstance(self.time, float) else self.time,
            "spread": self.spread and self.spread.as_(".1%"),
            "limit": limit,
            "distance": far,
            "uses": uses,
            "roof": None if roof is None or roof.share is None else (roof.share, roof.roof),
            "step": short(step) if step else "",
            "gain": gain(step, short=True) if step else "",
            "saving": self.saving,
            "confidence": verdict.confidence if verdict else "",
            "marks": [
                (check.finding, check.check in BY_DESIGN, "time" if check.check in TIMED else "limit")
                for check in failed
            ],
            "about": self.about,
            "others": [(f"launch={prefix}{each.shown.launch}", _shape(each)) for each in self.others],
            "launch": launch,
        }


def _shape(group: Group) -> str:
    return f"{group.shown.grid} x {group.shown.block}"


def short(step: Step) -> TracedText:
    return say(step.short, **step.action.values)


def gain(step: Step, *, short: bool = False) -> TracedText:
    """``1.33x faster, measured``; ``saves at most 33%``; short: ``≤ 33%``."""
    factor = step.basis.values.get("factor")
    if step.measured_pct is not None and isinstance(factor, TracedNumber):
        return say("{factor}x measured" if short else "{factor}x faster, measured", factor=factor)
    if step.of is TimeOf.PROGRAM and step.size_pct is not None:
        sign = "~" if step.estimated else "≤"
        return say("{sign} {pct:.1f}%" if step.size_pct < 10 else "{sign} {pct:.0f}%", sign=sign, pct=step.size_pct)
    if step.id == "ncu_rule":
        return say("ncu estimates a gain")
    if step.saving is None:
        unknown = "not known" if step.of is TimeOf.PROGRAM else "no bound"
        known = "estimated" if step.estimated else "bounded"
        return say(unknown if step.size_pct is None else known)
    words = "≤ {saving}" if short else "saves at most {saving}"
    if step.estimated:
        words = "~{saving}" if short else "saves some {saving}"
    return say("little known: " + words if step.little_known else words, saving=step.saving)


def rounded(time: TracedNumber | None) -> TracedNumber | None:
    """A time in µs by its tool, with three or four digits: executions differ by more."""
    if time is None:
        return None
    spec = ",.2f" if time.value < 10 else ",.1f" if time.value < 1000 else ",.0f"
    return time.as_(spec, f" µs ({time.source.origin})")


@dataclass(frozen=True)
class Rows:
    """All rows of a run, the one with most time first; of a program the one that saves most."""

    rows: tuple[Row, ...]
    left_out: int = 0
    top: Top | None = None  # of a program
    wall: tuple[tuple[str, float, str], ...] = ()  # of a program: where its GPUs' time went: words, share, colour
    window: TracedText | None = None  # of a program: the part that this is about, and what came before
    window_us: float = 0.0


def rows_of(measured: Analyses) -> Rows:
    run = measured.run
    if run.has("kernels") and (run.of_program or not run.cases or run.imported) and run.row_count("kernels"):
        return _of_program(measured, top(run, within_steady=True))
    case_rows = sorted(_of_cases(measured), key=lambda row: -row.total_us)
    whole = sum(row.total_us for row in case_rows) or 1.0
    for row in case_rows:
        row.share = row.total_us / whole
    return Rows(_labelled(case_rows[:MOST_ROWS]), len(case_rows[MOST_ROWS:]))


def _of_cases(measured: Analyses) -> Iterator[Row]:
    """The kernels of each case: launches of a shape under ncu, and what only nsys saw."""
    run = measured.run
    groups = by_key(((group.shown.case or "", group.shown.kernel), group) for group in measured.groups)

    def row(case: str, kernel: str, total_us: float, count: float, time: TracedNumber | None, **more: Any) -> Row:
        label = run.labels(case or None)
        label = "" if label in (NO_CASE, kernel) else label
        return Row(measured, "kernel", short_kernel(kernel), total_us, label, 0.0, count, time, case, kernel, **more)

    for (case, kernel), of_kernel in groups.items():
        for group in of_kernel:
            time, spread = group.shown.traced(DURATION), None
            if in_loop := group.shown.nsys:
                source = Provenance("nsys", "duration_ns", case=case, kernel=kernel, grid=group.shown.grid)
                time, spread = timed(in_loop, source)
            time = rounded(time)
            count = group.count / max(measured.iterations(group), 1)
            total_us = time.value * count if time else 0.0
            if stands := [found for each in group.items if (found := standing(run).get(each.launch))]:
                count, total_us = sum(each.count for each in stands), sum(each.total_us for each in stands)
            yield row(case, kernel, total_us, count, time, group=group, spread=spread, full=group.shown.kernel_full)
    for (case, kernel), times in run.trace.kernels.items():
        if (case, kernel) not in groups:
            whole = run.trace.cases.get(case)
            count = max(times.count // whole.iteration.count, 1) if whole else times.count
            median, spread = kernel_times(run, case, kernel)
            time = rounded(median)
            yield row(case, kernel, time.value * count if time else 0.0, count, time, spread=spread, full=kernel)
    if not groups and not run.trace.kernels:
        for span, time, spread in _spans(measured):
            case, kernel, count = span["case"] or "", span["kernel"], span["executions"]
            yield row(case, kernel, span["nsys_duration_us"] * count, count, time, spread=spread, full=kernel)


def _spans(measured: Analyses) -> Iterator[tuple[dict[str, Any], TracedNumber, TracedNumber]]:
    """Executions of a kernel with a grid, outside the cases too: with the median time in µs and the spread."""
    spans = [span for phase in measured.timeline.phases for span in phase.spans]
    for span in sorted(spans, key=lambda each: -each["nsys_duration_us"] * each["executions"]):
        source = Provenance(
            "nsys", "median(duration_ns) / 1000", case=span["case"], kernel=span["kernel"], grid=span["grid"],
            phase=span["phase"] or "",
        )  # fmt: skip
        time = TracedNumber(span["nsys_duration_us"], source, ",.2f", " µs")
        yield span, time, TracedNumber(span["nsys_spread"], source._replace(formula="spread(duration_ns)"), ".1%")


def _labelled(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rows of one name told apart: by case, else by grid and block, else by the full name, else counted."""
    tells: tuple[Callable[[Row], str], ...] = (
        lambda row: _shape(row.group) if row.group else "",
        lambda row: shorten((row.full.partition(f"{row.kernel}<")[2] or row.full).partition(">(")[0], LONGEST_LABEL),
        lambda row: f"launch {row.group.shown.launch}" if row.group else "",
    )
    for tell in tells:
        names = Counter(row.title for row in rows)
        for row in [row for row in rows if names[row.title] > 1]:
            row.label = f"{row.label} {tell(row)}".strip()
    seen: Counter[str] = Counter()
    for row, title in [(row, row.title) for row in rows]:
        seen[title] += 1
        if seen[title] > 1:
            row.label = f"{row.label} #{seen[title]}".strip()
    return tuple(rows)


def _of_program(measured: Analyses, ranking: Top) -> Rows:
    """Kernels, idle time, copies and collectives, each as a share of the wall time of all GPUs."""
    window_ns = sum(each.window_ns for each in ranking.activities) or 1
    rows, places = list(_kernels(measured, ranking, window_ns)), dict[tuple[Waste, str | None] | None, int]()
    for item in ranking.program.rows:
        places[place := (item["cause"], item["name"])] = len(places)
        if not (kind := _kind(item)):
            continue
        ns, step = _of_all(ranking, item, window_ns)
        name = ("idle: " if kind == "idle" else "") + words_of(item["cause"])
        name += f" ({item['name']})" if item["name"] else ""
        about = (words_of(words.step(step)),) if step else ()
        label = item["range"] if item["range"] and item["range"] != item["name"] else ""
        rows.append(Row(measured, kind, name, ns / 1e3, label, ns / window_ns, about=about, advice=step, item=place))
    rows.sort(key=lambda row: (places.get(row.item, len(places)), -row.share))
    wall = tuple(_wall(ranking, window_ns))
    verdict = ranking.program
    parts = "{idle_in} {launched_in} {steady} {startup}"
    parts += " Below: shares of all GPUs' time." if len(ranking.activities) > 1 else ""
    said = {name: getattr(verdict, name) or "" for name in ("idle_in", "launched_in", "steady", "startup")}
    window = say(parts, **said)
    return Rows(_labelled(rows[:MOST_ROWS]), len(rows[MOST_ROWS:]), ranking, wall, window, window_ns / 1e3)


def _of_all(ranking: Top, item: dict[str, Any], window_ns: float) -> tuple[float, Step | None]:
    """An item's ns on all GPUs together, and its step with what that saves of their time."""
    windows_ns = {(each.rank, each.device): each.window_ns for each in ranking.activities}
    ns, saved = 0.0, defaultdict[str, float](float)
    for each in ranking.program.every:
        if (each["cause"], each["name"]) == (item["cause"], item["name"]):
            ns += each["total_ns"]
            for kind in ("bound_pct", "estimate_pct"):
                saved[kind] += (each[kind] or 0.0) * windows_ns[each["rank"], each["device"]] / window_ns
    step: Step | None = item["step"]
    bound, estimate = (None if item[kind] is None else saved[kind] for kind in ("bound_pct", "estimate_pct"))
    return ns, step and step._replace(bound_pct=bound, estimate_pct=estimate)


def _kernels(measured: Analyses, ranking: Top, window_ns: float) -> Iterator[Row]:
    """A program's kernels: all executions of one name in one row."""
    busy_ns = {each.device: each.kernels_ns for each in ranking.activities}
    kernel_ns = sums_by_key((kernel["device"], kernel["total_ns"]) for kernel in ranking.kernels)
    alike = by_key(((kernel["kernel"], kernel["kernel_full"]), kernel) for kernel in ranking.kernels)
    launched = ((group.shown.kernel, group.shown.kernel_full, group) for group in measured.longest)
    groups = by_key((kernel_identity(kernel, full), group) for kernel, full, group in launched)
    named, executions = Counter(name for name, _ in alike), _executions(measured)
    advice = {
        row["name"]: _of_all(ranking, row, window_ns) for row in ranking.program.rows if row["cause"] is Waste.KERNEL
    }
    for (name, full), items in alike.items():
        # Kernels that run beside each other share the time in which any of them ran.
        shares = [busy_ns.get(each["device"], 0) / (kernel_ns[each["device"]] or 1) for each in items]
        wall_ns = sum(each["total_ns"] * share for each, share in zip(items, shares, strict=True))
        total_ns, count = sum(each["total_ns"] for each in items), sum(each["count"] for each in items)
        of_kernel = groups.pop(kernel_identity(name, full), [])
        longest = max(items, key=lambda each: float(each["total_ns"]))
        time = rounded(kernel_times(measured.run, "", name)[0]) if named[name] == 1 and len(items) == 1 else None
        about = (
            f"{count:,} runs, {total_ns / 1e6:,.3f} ms together; median {longest['median_us']:,.2f} µs, "
            f"p90 {longest['p90_us']:,.2f} µs, {longest['shapes']} launch shape{'s' * (longest['shapes'] > 1)}.",
            *(
                f"rank {each['rank']}: {each['total_ns'] / 1e6:,.3f} ms in {each['count']:,} runs"
                for each in items
                if each["rank"] is not None
            ),
            *executions[name][:MOST_SHAPES],
        )
        # Kernels of one name and detail have a step together, of which this one has its part.
        ns, step = advice.get(detailed_kernel(name, full or ""), (wall_ns, None))
        if step:
            bound, estimate, part = step.bound_pct, step.estimate_pct, min(wall_ns / (ns or 1), 1.0)
            step = step._replace(bound_pct=bound and bound * part, estimate_pct=estimate and estimate * part)
            of_launch = STEPS[step.id]["relieves"] or STEPS[step.id]["work"]
            about += () if of_launch else (words_of(words.step(step)),)
        verdict = measured.judged.get(of_kernel[0].shown.launch) if of_kernel else None
        if not step and verdict and verdict.steps:  # of a kernel that is among the small ones of the ranking
            step = verdict.steps[0].part_of(TimeOf.PROGRAM, wall_ns / window_ns)
        yield Row(
            measured, "collective" if COLLECTIVE.search(name) else "kernel", short_kernel(name), total_ns / 1e3,
            short_kernel(longest["detail"]), wall_ns / window_ns, count, time or longest["median_us"], kernel=name,
            group=of_kernel[0] if of_kernel else None, others=tuple(of_kernel[1:]), full=full, about=about, advice=step,
            item=(Waste.KERNEL, detailed_kernel(name, full or "")),
        )  # fmt: skip
    # What ran outside the steady part was profiled all the same.
    for first, *others in groups.values():
        launch = first.shown
        label, time = short_kernel(kernel_detail(launch.kernel_full)), rounded(launch.traced(DURATION))
        yield Row(
            measured, "kernel", short_kernel(launch.kernel), 0.0, label, time=time, kernel=launch.kernel, group=first,
            others=tuple(others), full=launch.kernel_full, about=("Outside the steady part.",),
        )  # fmt: skip


def _executions(measured: Analyses) -> dict[str, list[TracedText]]:
    """Kernel -> what an execution takes: in each case; without cases of each grid."""
    times_of: dict[str, list[TracedText]] = defaultdict(list)
    run = measured.run
    for case, kernel in run.trace.kernels:
        median, spread = kernel_times(run, case, kernel)
        time = rounded(median)
        if time is not None and spread is not None:
            time_text = say("{case}: {time}, spread {spread}", case=run.labels(case), time=time, spread=spread)
            times_of[kernel].append(time_text)
    template = "{place}{count:run|runs} with grid {grid} in the whole trace: {time}, spread {spread}"
    spans = [] if run.cases else list(_spans(measured))
    several = len({span["device"] for span, *_ in spans}) > 1
    for span, time, spread in spans:
        place = f"GPU {span['device']}: " if several else ""
        time_text = say(
            template, place=place, count=span["executions"], grid=span["grid"] or "–", time=time, spread=spread
        )
        times_of[span["kernel"]].append(time_text)
    return times_of


def _kind(item: dict[str, Any]) -> str:
    """Of a program's row: idle, copies, startup or kernels together; empty for what rows of kernels have."""
    if item["cause"] in (Waste.KERNEL, Waste.RANKS):
        return ""
    if item["cause"] in TOGETHER:
        return "kernels together"
    if item["cause"] is Waste.LOADING and item["name"] is not None:
        return "startup"
    return "copies" if item["cause"] in (Waste.COPIES, Waste.PAGEABLE_COPIES) else "idle"


def _wall(ranking: Top, window_ns: float) -> Iterator[tuple[str, float, str]]:
    """The wall time of all GPUs: idle by cause, then kernels by what limits them, collectives and copies."""
    idle = ((f"idle: {words_of(each['cause'])}", each) for each in ranking.program.every if _kind(each) == "idle")
    causes = Counter(sums_by_key((cause, each["total_ns"]) for cause, each in idle))
    for (cause, ns), grey in zip(causes.most_common(), itertools.cycle(IDLE_GREYS)):
        yield cause, ns / window_ns, grey
    parts: Counter[tuple[str, Any]] = Counter()
    for part in ranking.parts:
        if (what := part["what"]) is not Spent.IDLE:
            parts[words_of(what), what if isinstance(what, Spent) else Kind(what.kind)] += part["total_ns"]
    unused_colours = dict(LIMIT_COLOURS)
    others = itertools.cycle([colour for colour in colours.COLOURS if colour not in unused_colours.values()])
    for (name, kind), ns in parts.most_common():
        yield name, ns / window_ns, unused_colours.pop(kind, "") or next(others)


def headline(table: Rows) -> tuple[TracedText, int]:
    """The biggest loss in one sentence, and the place of its row."""
    rows = table.rows
    if not rows:
        return say("There are no kernels in this run."), 0
    if table.top is not None:
        return say("{answer}", answer=table.top.program.answer), 0
    steps = [(place, row, row.step) for place, row in enumerate(rows) if row.step and row.step.id != "ncu_rule"]
    if not steps:
        return say("{}", f"{rows[0].title} takes {rows[0].share:.0%} of the time."), 0
    place, row, step = max(steps, key=lambda item: (item[2].measured_pct is not None, item[1].saving))
    return say("Start with {name}: {step} ({gain}).", name=row.title, step=step.action, gain=gain(step)), place
