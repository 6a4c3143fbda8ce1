"""What takes a run's time, a row each: kernels, and of a program also why its GPU was idle, copies and collectives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fiprof.analysis import checks
from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.checks import Check, CheckName
from fiprof.analysis.idle import Cause
from fiprof.analysis.program import StandIns
from fiprof.analysis.top import Spent, Top, top
from fiprof.analysis.verdict.model import CaseBound, Kind
from fiprof.analysis.verdict.steps import Step
from fiprof.analysis.verdict.verdict import LaunchVerdict
from fiprof.model.case_quantities import kernel_median, kernel_spread
from fiprof.model.labels import NO_CASE
from fiprof.model.provenance import Provenance, TracedNumber, TracedText, sentence
from fiprof.model.quantities import DURATION
from fiprof.model.ranks import COLLECTIVE
from fiprof.model.wording import say, worded
from fiprof.reports import verdict_words as words
from fiprof.reports.pages import colours
from fiprof.reports.top import together
from fiprof.text import kernel_identity, short_kernel, shorten

MOST_ROWS = 300
"""Of a run: those with most time."""
LONGEST_LABEL = 48
"""Cells of what tells two names apart."""
MOST_SHAPES = 12
"""Of a program's kernel, that are told one by one."""
BY_DESIGN = {CheckName.FLOPS, CheckName.DRAM_READS, CheckName.DRAM_WRITES}
"""Checks of a cost model: padded tiles count more operations, and what stays in L2 counts fewer bytes."""
TIMED = {CheckName.NSYS_VS_PLAIN, CheckName.SPREAD, CheckName.NCU_VS_NSYS, CheckName.SM_CLOCK, CheckName.PROFILED}
"""Checks of a time; others are about what limits the launch."""
WHY_IDLE: dict[Cause, tuple[str, str]] = {
    Cause.LAUNCH: ("launching", "launch fewer and larger kernels, or replay a CUDA graph"),
    Cause.SYNCHRONIZATION: ("waiting in {call}", "synchronize less often, so that work is queued before it is needed"),
    Cause.COPY_CALL: ("in {call}", "copy asynchronously from pinned memory, or keep the data on the GPU"),
    Cause.CALL: ("in {call}", "allocate, load code and create streams once, before the loop"),
    Cause.HOST: ("host work", "move host work off the launching thread, or replay a CUDA graph"),
    Cause.HOST_AFTER_WAIT: (
        "host work after {call}",
        "do not wait before the next launches, or work on another thread",
    ),
    Cause.OUTSIDE_RANGES: ("outside ranges", "mark it with NVTX to know, or leave it out of the window"),
    Cause.UNKNOWN: ("cause not traced", "trace CUDA calls, as fiprof profile does by default"),
}
"""Why a GPU was idle, with the call, and what usually helps."""


@dataclass(frozen=True)
class Mark:
    """A doubt about a number of a row."""

    text: str
    by_design: bool
    about: str
    """The column: ``time`` or ``limit``."""


@dataclass(frozen=True)
class Row:
    """What takes time."""

    measured: Analyses
    kind: str
    """kernel, idle, copies or collective."""
    name: str
    label: str
    """Tells it from others of its name; empty where it need not."""
    total_us: float
    """In an iteration of its case; of a program in all."""
    share: float
    """Of the time of all rows of the run, or of a program's wall time, 0 to 1."""
    count: float
    time: TracedNumber | float | None
    """Of one execution, µs: the median under nsys, else of ncu's launches."""
    case: str = ""
    """Case id; empty outside the cases."""
    kernel: str = ""
    group: Group | None = None
    """Its launches under ncu; None where ncu profiled none."""
    others: tuple[Group, ...] = ()
    """Launches of other shapes that are in this row."""
    spread: TracedNumber | None = None
    about: tuple[str, ...] = ()
    """Sentences about it, where no launch has a verdict."""
    full: str = ""

    @property
    def verdict(self) -> LaunchVerdict | None:
        """Of the launch that stands for it."""
        return self.measured.verdicts.of(self.group.launch) if self.group else None

    @property
    def family(self) -> tuple[str, str]:
        """Kind of kernel, or of other time, and its colour."""
        if self.kind == "kernel":
            family, colour = colours.kernel(self.kernel)
            return ("other kernels", "#4455dd") if family == self.kernel else (family, colour)
        return self.kind, colours.COMMUNICATION if self.kind == "collective" else colours.GREY

    @property
    def step(self) -> Step | None:
        return next(iter(self.verdict.steps), None) if self.verdict else None

    @property
    def saving(self) -> float:
        """The most that its first step saves, as a share of the run's time; of idle time all of it."""
        if self.kind == "idle":
            return self.share
        step = self.step
        return 0.0 if step is None or step.id == "ncu_rule" else self.share * _step_pct(step) / 100

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The checks of its launch and its case that failed."""
        launch = self.group.launch if self.group else None
        return tuple(
            Mark(worded(check.finding), check.check in BY_DESIGN, "time" if check.check in TIMED else "limit")
            for check in checks.failed(self.measured.run)
            if (check.launch == launch if check.launch is not None else bool(self.case) and check.case == self.case)
        )

    def limit(self) -> tuple[str, TracedText | str]:
        """What limits it, and how far it is from that."""
        verdict = self.verdict
        if verdict is not None:
            return words.short_title(verdict), words.distance(verdict)
        of_case = next((case for case in self.measured.verdicts.cases if case.case == self.case), None)
        if of_case is not None and of_case.bound in (CaseBound.HOST, CaseBound.COPIES):
            number = of_case.waiting if of_case.bound is CaseBound.HOST else of_case.copying
            doing = "waiting" if of_case.bound is CaseBound.HOST else "copying"
            return words.case_kind(of_case), say(
                "{number} {doing}", number=number.number, doing=doing
            ) if number else ""
        return ("not profiled" if self.kind == "kernel" else ""), ""


def _step_pct(step: Step) -> float:
    return (step.measured_pct if step.measured_pct is not None else step.size_pct) or 0.0


def short(step: Step) -> TracedText:
    """The step in a few words."""
    return say(step.short, **step.action.values)


def gain(step: Step) -> TracedText:
    """``1.33x faster, measured``; ``saves at most 33%``."""
    factor = step.basis.values.get("factor")
    if step.measured_pct is not None and isinstance(factor, TracedNumber):
        return say("{factor}x faster, measured", factor=factor)
    if step.bound is not None:
        return say("saves at most {bound}", bound=step.bound)
    if step.bound_pct is not None:
        return sentence("bounded")
    return sentence("ncu estimates a gain" if step.estimate_pct is not None else "no bound")


def rounded(time: TracedNumber | None) -> TracedNumber | None:
    """A time in µs with three or four digits: executions differ by more."""
    if time is None:
        return None
    return time.as_(",.2f" if time.value < 10 else ",.1f" if time.value < 1000 else ",.0f", " µs")


# A run's rows


@dataclass(frozen=True)
class Rows:
    """All rows of a run, the one with most time first."""

    rows: tuple[Row, ...]
    left_out: int = 0
    top: Top | None = None
    """Of a program."""
    wall: tuple[tuple[str, float, str], ...] = ()
    """Of a program: what its GPUs' time went into, as words, share and colour."""
    window_us: float = 0.0
    idle: float = 0.0
    """Share of the wall time in which no GPU worked."""


def rows_of(measured: Analyses) -> Rows:
    """What takes a run's time. Raises FiprofError for a table that cannot be read."""
    run = measured.run
    if run.has("kernels") and (run.of_program or not run.cases or run.imported) and run.row_count("kernels"):
        return _of_program(measured, top(run))
    found = sorted(_of_cases(measured), key=lambda row: -row.total_us)
    whole = sum(row.total_us for row in found) or 1.0
    shared = [replace(row, share=row.total_us / whole) for row in found[:MOST_ROWS]]
    return Rows(_labelled(shared), len(found) - len(shared))


def _of_cases(measured: Analyses) -> Iterator[Row]:
    """The kernels of each case: launches of a shape under ncu, and what only nsys saw."""
    run, groups = measured.run, defaultdict[tuple[str, str], list[Group]](list)
    for group in measured.groups:
        groups[group.case or "", group.kernel].append(group)
    for (case, kernel), of_kernel in groups.items():
        for group in of_kernel:
            alone = len(of_kernel) == 1
            time = rounded((kernel_median(run, case, kernel) if alone else None) or group.median.traced(DURATION))
            stands = run.once(StandIns).get(group.launch)
            count = len(group.launches) / max(measured.iterations(group), 1)
            total_us = time.value * count if time else 0.0
            if stands:
                all_of = [found for each in group.launches if (found := run.once(StandIns).get(each.launch))]
                count, total_us = sum(each.count for each in all_of), sum(each.total_us for each in all_of)
            spread = kernel_spread(run, case, kernel) if alone else None
            yield _row(measured, case, kernel, total_us, count, time, group=group, spread=spread)
    for (case, kernel), times in run.trace.kernels.items():
        if (case, kernel) not in groups:
            whole = run.trace.cases.get(case)
            count = max(times.count // whole.iteration.count, 1) if whole else times.count
            time = rounded(kernel_median(run, case, kernel))
            spread = kernel_spread(run, case, kernel)
            yield _row(measured, case, kernel, time.value * count if time else 0.0, count, time, spread=spread)
    if groups or run.trace.kernels:
        return
    for span, time, spread in _spans(measured):
        total_us = span["nsys_duration_us"] * span["executions"]
        yield _row(measured, span["case"] or "", span["kernel"], total_us, span["executions"], time, spread=spread)


def _spans(measured: Analyses) -> Iterator[tuple[dict[str, Any], TracedNumber, TracedNumber]]:
    """Executions of a kernel with a grid, outside the cases too: with the median time in µs and the spread."""
    spans = [span for phase in measured.timeline.phases for span in phase.spans]
    for span in sorted(spans, key=lambda each: -each["nsys_duration_us"] * each["executions"]):
        source = Provenance(
            "nsys", "median(duration_ns) / 1000", case=span["case"], kernel=span["kernel"], grid=span["grid"],
            phase=span["phase"] or "",
        )  # fmt: skip
        time = TracedNumber(span["nsys_duration_us"], source, ",.2f", " µs")
        yield span, time, TracedNumber(span["nsys_spread"], source.of("spread(duration_ns)"), ".1%")


def _row(
    measured: Analyses, case: str, kernel: str, total_us: float, count: float, time: TracedNumber | None, **more: Any
) -> Row:
    label = measured.run.labels(case or None)
    group: Group | None = more.get("group")
    return Row(
        measured, "kernel", short_kernel(kernel), "" if label in (NO_CASE, kernel) else label, total_us, 0.0, count,
        time, case, kernel, full=group.kernel_full if group else kernel, **more,
    )  # fmt: skip


def _labelled(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rows of one name told apart: by their case, else by grid and block, else by what the full name has, else
    counted."""
    found = list(rows)
    tells: tuple[Callable[[Row], str], ...] = (
        lambda row: f"{row.group.grid} x {row.group.block}" if row.group else "",
        lambda row: shorten(row.full.partition("<")[2].rpartition(">")[0], LONGEST_LABEL),
        lambda row: f"launch {row.group.launch}" if row.group else "",
    )
    for tell in tells:
        names = Counter((row.name, row.label) for row in found)
        found = [
            replace(row, label=" ".join(filter(None, (row.label, tell(row)))))
            if names[row.name, row.label] > 1
            else row
            for row in found
        ]
    seen: Counter[tuple[str, str]] = Counter()
    for place, row in enumerate(found):
        seen[row.name, row.label] += 1
        if (number := seen[row.name, row.label]) > 1:
            found[place] = replace(row, label=f"{row.label} #{number}".strip())
    return tuple(found)


# A program's


def _of_program(measured: Analyses, found: Top) -> Rows:
    """Kernels, idle time, copies and collectives, each as a share of the wall time of all GPUs."""
    window_ns = sum(each.window_ns for each in found.activities) or 1
    busy_ns: dict[int | None, float] = defaultdict(float)
    kernel_ns: dict[int | None, float] = defaultdict(float)
    for each in found.activities:
        busy_ns[each.rank if each.rank is not None else each.device] += each.kernels_ns
    for kernel in found.kernels:
        kernel_ns[_place(kernel)] += kernel["total_ns"]
    groups: dict[str, list[Group]] = defaultdict(list)
    for group in measured.longest:
        groups[kernel_identity(group.kernel, group.kernel_full)].append(group)
    alike: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for kernel in found.kernels:
        alike[kernel["kernel"], kernel["kernel_full"]].append(kernel)
    named = Counter(name for name, _ in alike)
    executions = _executions(measured)
    rows = []
    for (name, full), items in alike.items():
        # Kernels that run beside each other share the time in which any of them ran.
        wall_ns = sum(each["total_ns"] * busy_ns[_place(each)] / (kernel_ns[_place(each)] or 1) for each in items)
        total_ns, count = sum(each["total_ns"] for each in items), sum(each["count"] for each in items)
        of_kernel = groups.pop(kernel_identity(name, full), [])
        longest = max(items, key=lambda each: each["total_ns"])
        time = rounded(kernel_median(measured.run, "", name)) if named[name] == 1 and len(items) == 1 else None
        said = (
            f"{count:,} runs, {total_ns / 1e6:,.3f} ms together; median {longest['median_us']:,.2f} µs, "
            f"p90 {longest['p90_us']:,.2f} µs, {longest['shapes']} launch shapes.",
            *(
                f"rank {each['rank']}: {each['total_ns'] / 1e6:,.3f} ms in {each['count']:,} runs"
                for each in items
                if each["rank"] is not None
            ),
            *executions[name][:MOST_SHAPES],
        )
        kind, detail = "collective" if COLLECTIVE.search(name) else "kernel", short_kernel(longest["detail"])
        first, others = (of_kernel[0] if of_kernel else None), tuple(of_kernel[1:])
        rows.append(Row(
            measured, kind, short_kernel(name), detail, total_ns / 1e3, wall_ns / window_ns, count,
            time or longest["median_us"], kernel=name, group=first, others=others, full=full, about=said,
        ))  # fmt: skip
    of_causes: dict[Any, dict[str, Any]] = {}
    for part in found.idle:
        key = part["cause"], part["call"], part["range"]
        before = of_causes.get(key, {"total_ns": 0})
        of_causes[key] = part | {"total_ns": part["total_ns"] + before["total_ns"]}
    for idle in together(list(of_causes.values()), ("cause", "call")):
        what, remedy = WHY_IDLE[idle["cause"]]
        about = (
            f"The GPU had nothing to run for {idle['total_ns'] / 1e6:,.3f} ms here.",
            f"What usually helps: {remedy}.",
        )
        name, share = f"idle: {what.format(call=idle['call'])}", idle["total_ns"] / window_ns
        total_us = idle["total_ns"] / 1e3
        rows.append(Row(measured, "idle", name, idle["range"] or "", total_us, share, 0, None, about=about))
    copies_ns = sum(each.only_copies_ns for each in found.activities)
    if copies_ns:
        all_ms, alone_ms = sum(each.copies_ns for each in found.activities) / 1e6, copies_ns / 1e6
        told = f"Copies and memory sets ran for {all_ms:,.3f} ms, {alone_ms:,.3f} ms of it while no kernel ran."
        share = copies_ns / window_ns
        rows.append(Row(measured, "copies", "copies alone", "", copies_ns / 1e3, share, 0, None, about=(told,)))
    rows.sort(key=lambda row: -row.share)
    kept = rows[:MOST_ROWS]
    return Rows(
        _labelled(kept), len(rows) - len(kept), found, tuple(_wall(found)), window_ns / 1e3,
        sum(each.idle_ns for each in found.activities) / window_ns,
    )  # fmt: skip


def _executions(measured: Analyses) -> dict[str, list[TracedText]]:
    """Kernel -> what an execution takes: in each case; without cases of each grid."""
    found: dict[str, list[TracedText]] = defaultdict(list)
    run = measured.run
    for case, kernel in run.trace.kernels:
        time, spread = rounded(kernel_median(run, case, kernel)), kernel_spread(run, case, kernel)
        if time is not None and spread is not None:
            found[kernel].append(
                say("{case}: {time}, spread {spread}", case=run.labels(case), time=time, spread=spread)
            )
    for span, time, spread in _spans(measured) if not run.cases else ():
        found[span["kernel"]].append(
            say(
                "{count:run|runs} with grid {grid}: {time}, spread {spread}",
                count=span["executions"],
                grid=span["grid"] or "–",
                time=time,
                spread=spread,
            )
        )
    return found


def _place(item: dict[str, Any]) -> int | None:
    place: int | None = item["rank"] if item["rank"] is not None else item["device"]
    return place


LIMIT_COLOURS = {
    Kind.COMPUTE: "#5d3dff", Kind.MEMORY: "#2a6f63", Kind.LATENCY: "#a54a1d", Spent.NOT_PROFILED: colours.DARK_GREY,
    Spent.COLLECTIVES: colours.COMMUNICATION, Spent.COPIES: "#0099cc",
}  # fmt: skip


def _wall(found: Top) -> Iterator[tuple[str, float, str]]:
    """The wall time of all GPUs: idle by cause, then kernels by what limits them, collectives and copies."""
    window_ns = sum(each.window_ns for each in found.activities) or 1
    causes: dict[Cause, int] = defaultdict(int)
    for idle in found.idle:
        causes[idle["cause"]] += idle["total_ns"]
    greys = ("#8b939c", "#a3aab2", "#777f88", "#b4bac1", "#6a727b", "#959da5", "#838b94", "#9aa2aa")
    for place, (cause, ns) in enumerate(sorted(causes.items(), key=lambda item: -item[1])):
        yield f"idle: {cause.words}", ns / window_ns, greys[place]
    parts: dict[str, tuple[float, str]] = {}
    for part in found.parts:
        what = part["what"]
        if what is Spent.IDLE:
            continue
        name, kind = worded(what), what if isinstance(what, Spent) else what.kind
        colour = next((each for key, each in LIMIT_COLOURS.items() if key == kind), "#bb3355")
        parts[name] = (parts.get(name, (0.0, ""))[0] + part["total_ns"], colour)
    for name, (part_ns, colour) in sorted(parts.items(), key=lambda item: -item[1][0]):
        yield name, part_ns / window_ns, colour


# What is said first


def headline(found: Rows) -> TracedText:
    """The biggest loss in one sentence."""
    rows = found.rows
    if not rows:
        return sentence("There are no kernels in this run.")
    first = max(rows, key=lambda row: row.saving if row.kind != "copies" else 0.0)
    if found.top is not None and first.kind == "idle":
        where = f" in {first.label}" if first.label else ""
        what = first.name.removeprefix("idle: ")
        return sentence("{}", f"GPU idle {found.idle:.0%} of the time: {what}{where} {first.share:.0%}.")
    return _start_with(rows, found)


def _start_with(rows: Sequence[Row], found: Rows) -> TracedText:
    steps = [(row, row.step) for row in rows if row.step and row.step.id != "ncu_rule"]
    if not steps:
        row = rows[0]
        busy = f"GPU busy {1 - found.idle:.0%} of the time; " if found.top is not None else ""
        return sentence("{}", f"{busy}{titled(row)} takes {row.share:.0%} of it.")
    row, step = max(steps, key=lambda item: (item[1].measured_pct is not None, item[0].saving))
    assert step is not None
    return say("Start with {name}: {step} ({gain}).", name=titled(row), step=step.action, gain=gain(step))


def titled(row: Row) -> str:
    """Its name with what tells it from others."""
    return f"{row.name} ({row.label})" if row.label else row.name


def failed_of_run(found: Iterable[Check]) -> list[str]:
    """The failed checks about a whole run."""
    return [worded(check.finding) for check in found if check.launch is None and check.case is None]
