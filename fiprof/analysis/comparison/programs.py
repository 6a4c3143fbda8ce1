"""Two traces of a program compared: where the GPUs' time went, by kernel, range, rank and idle cause.

Start-up differs from process to process by more than most changes, so the steady parts are compared where both traces
have one, and a step of theirs where their steps are the same. Of several GPUs all times are the mean. Others seldom
hold the same work: a capture of ten seconds of a server holds as many requests as came. So their changes are at equal
work: of the kernels that both have the executions are counted, and each side's times are taken to the geometric mean of
the two, side A's times the root of the ratio, side B's divided by it.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fiprof.analysis.comm import delays
from fiprof.analysis.comparison import kernels
from fiprof.analysis.comparison.kernels import Change, KernelChange, Match
from fiprof.analysis.idle import IdleCause, outside, parts
from fiprof.analysis.program import LEAST_OUTSIDE_NS
from fiprof.analysis.steady import WHOLE, By, steady
from fiprof.analysis.thresholds import PROCESSES_DRIFT, PROGRAMS_DRIFT
from fiprof.analysis.top import Spent, Top, top
from fiprof.model.finding import say
from fiprof.model.ranks import COLLECTIVE, ranks_of
from fiprof.model.run import Run
from fiprof.model.selection import sums_by_key
from fiprof.model.spans import NOTHING

MOST_EXPLAINED = 5  # kernels whose counters are compared: those that account for most of the change
SAME_WORK = 1.005  # ratio of the executions up to which two traces hold the same work
ALIKE = 1.05  # ratio to the typical one up to which a kernel's executions changed as those of the others
MOSTLY = 0.5  # share of the time of the kernels of both sides whose executions have to have changed alike
LITTLE_IN_COMMON = 0.5  # share of the kernels' time in kernels of both sides, below which the programs are others
LEADS = 0.1  # share of a change, from which a part of it is worth a word
AS_MUCH = 1.2  # ratio of the shares of the kernels' time in two steady parts, up to which these are the same
MOST_REASONS = 4
FEW_STEPS = 0.25  # part of the change of the mean step, below which half of the steps did not change


PARTS = (Spent.KERNELS, Spent.COLLECTIVES, Spent.COPIES, Spent.IDLE)
"""What GPUs do from first work to last: concurrent kernels are counted once, copies where they are alone."""
WAITING = "waiting"  # item of the time in which a rank waits for others, inside its collectives


@dataclass(frozen=True)
class ProgramComparison:
    """What changed of a program's trace. Changes of no device are of all ranks together."""

    work: float
    """Executions on side B over those on side A, of kernels that both have; 1 where these did not change alike, and
    for times of a step."""
    whole_because: str  # why it is not about the steady parts, where that was not asked for; else empty
    gpus: tuple[int, int]  # of each side, of which all times are the mean
    steps: tuple[int, int] | None  # of each side, all GPUs together, of which all times are the mean; None for sums
    median_us: tuple[float, float] | None  # the median step of each side
    outside: Change | None  # time of the GPUs outside the steady parts; None for the whole traces
    common: float  # share of the kernels' time that is in kernels of both sides, on the side where that is less, 0 to 1
    time: tuple[Change, ...]
    """The GPUs' time from first work to last: a window of all and of each rank, and each one's parts, its sum."""
    waits: Change | None  # waiting for other ranks inside the collectives; None where that cannot be told
    kernels: tuple[KernelChange, ...]  # the largest change first; the first ones with what explains them
    idle: tuple[Change, ...]  # time without work by cause, call and range
    ranges: tuple[Change, ...]  # the kernels launched in each NVTX range; the detail is how many on either side

    @property
    def window(self) -> Change:
        return self.time[0]

    @property
    def parts(self) -> dict[str, Change]:
        """Kind -> the part of all ranks together."""
        return self.parts_of(self.window)

    @property
    def ranks(self) -> list[Change]:
        """The window of each rank's GPU; of a run of one, of each GPU."""
        return [each for each in self.time if each.about == "window" and each.device is not None]

    def parts_of(self, window: Change) -> dict[str, Change]:
        """Kind -> part of a window, and where it is known WAITING."""
        place = window.rank, window.device
        found = (each for each in self.time if each.about == "part" and (each.rank, each.device) == place)
        return {each.item: each for each in found if each.item}

    @property
    def steady(self) -> bool:
        """Whether it is about the steady parts."""
        return self.outside is not None

    @property
    def held_up(self) -> bool:
        """Whether the GPUs wait for the host, so that other processes of the same code differ by more."""
        idle = self.parts[Spent.IDLE]
        return bool(max(idle.a, idle.b) > LEADS * max(self.window.a, self.window.b))

    @property
    def share(self) -> float:
        """Change of the window at equal work, of side A's."""
        return self.window.us / (self.window.a * math.sqrt(self.work)) if self.window.a else 0.0

    def changes(self) -> Iterator[Change]:
        yield Change("work", "executions_ratio", 1.0, self.work)
        if self.steps:
            yield Change("work", "steps", float(self.steps[0]), float(self.steps[1]))
        yield from filter(None, [self.outside])
        yield from self.time
        for kernel in self.kernels:
            yield from kernel.changes()
            row = partial(Change, "kernel", kernel=kernel.shown.kernel, match=kernel.match)
            yield row("executions", *kernel.both(lambda side: side.count))
            yield row("mean_us", *kernel.both(lambda side: side.mean_us), unit="µs")
        yield from self.idle
        yield from self.ranges


def compare_programs(a: Run, b: Run, *, counters: bool, entire: str | None = None) -> ProgramComparison:
    """counters: whether ncu's numbers can be compared. entire: why the whole traces are compared, empty where somebody
    asked for that; None for the steady parts, where that can be. Raises FiprofError where a side has no kernels under
    nsys."""
    runs = a, b
    entire = _unlike_parts(runs) if entire is None else entire
    within = entire is None
    tops = [top(run, within_steady=within) for run in runs]
    gpus = len(tops[0].activities), len(tops[1].activities)
    sides = [
        [each.divided(count) for each in kernels.kernels_of_program(run, of_side.kernels)]
        for run, of_side, count in zip(runs, tops, gpus, strict=True)
    ]
    both = kernels.kernel_changes(*sides)
    shares = []
    for name in ("a", "b"):
        # What stands in another's place may be anything.
        times = [
            (side.total_us, bool(each.a and each.b) and each.match is not Match.REPLACED)
            for each in both
            if (side := getattr(each, name))
        ]
        total = sum(us for us, _ in times)
        shares.append(sum(us for us, shared in times if shared) / total if total else 1.0)
    common = float(min(shares))
    work = None if common < LITTLE_IN_COMMON else _work(both)
    steps = _steps(runs, gpus, work) if within else None
    if within and not steps and work is None:
        return compare_programs(a, b, counters=counters, entire="their steady parts have no step in common")
    own = [count / of for count, of in zip(steps, gpus, strict=True)] if steps else [1.0, 1.0]
    if steps:
        sides = [[each.divided(count) for each in side] for side, count in zip(sides, own, strict=True)]
        both, work = kernels.kernel_changes(*sides), 1.0
    work = work if work and abs(math.log(work)) > math.log(SAME_WORK) else 1.0
    scale = math.sqrt(work)

    def change(about: str, a_us: float, b_us: float, **cells: Any) -> Change:
        return Change(about, a=a_us, b=b_us, accounts_us=b_us / scale - a_us * scale, unit="µs", by="nsys", **cells)

    def together(times: Iterable[Change], about: str, **cells: Any) -> Change:
        found = list(times)
        a_us, b_us = (
            sum(getattr(each, side) for each in found) / count for side, count in zip("ab", gpus, strict=True)
        )
        return change(about, a_us, b_us, **cells)

    def largest(changes: Iterable[Change]) -> tuple[Change, ...]:
        return tuple(sorted(changes, key=lambda each: -abs(each.us)))

    changes = []
    for each in both:
        a_us, b_us = each.both(lambda side: side.total_us)
        changes.append(replace(each, us=change("kernel", a_us or 0.0, b_us or 0.0).us))
    changes.sort(key=lambda each: (-abs(each.us), each.shown.kernel_full))

    # The window of each rank's GPU, its parts, and how long it waited for others. The same rank and GPU of both sides
    # are a pair; where they are as many, and others, in their order.
    of_a, of_b = map(_spent, tops, own)
    places: Iterable[tuple[Place, Place]] = ((each, each) for each in dict.fromkeys((*of_a, *of_b)))
    if len(of_a) == len(of_b):
        places = zip(sorted(of_a, key=str), sorted(of_b, key=str), strict=True)
    waits = [_waits(run, within, count) for run, count in zip(runs, own, strict=True)]
    ranks: list[Change] = []
    for one, other in places:
        x, y = of_a.get(one, {}), of_b.get(other, {})
        rank, device = other if y else one
        place = {"rank": rank, "device": device}
        of = [change("part", x.get(kind, 0.0), y.get(kind, 0.0), item=kind, **place) for kind in PARTS]
        ranks += [change("window", sum(each.a for each in of), sum(each.b for each in of), **place), *of]
        x_us, y_us = waits[0].get(one[0]) if x else None, waits[1].get(other[0]) if y else None
        if x_us is not None and y_us is not None:
            ranks.append(change("part", x_us, y_us, item=WAITING, **place))
    of_kinds = [together((each for each in ranks if each.item == kind), "part", item=kind) for kind in PARTS]
    waiting = [each for each in ranks if each.item == WAITING]

    divisors = [count * of for count, of in zip(own, gpus, strict=True)]
    idle = _totals([[*_idle(run, within)] for run in runs], divisors, folded=bool(steps))
    of_ranges = [[(row["range"], (), row["total_ns"], row["count"]) for row in of.ranges] for of in tops]
    ranges = _totals(of_ranges, divisors, folded=bool(steps))
    beyond = [
        sum(each.window_ns for each in outside(run).values()) / 1e3 / count
        for run, count in zip(runs, gpus, strict=True)
    ]
    median_us = [float(np.median([each.step_ns or 0.0 for each in steady(run).values()])) / 1e3 for run in runs]
    return ProgramComparison(
        work=work,
        whole_because=entire or "",
        gpus=gpus,
        steps=steps,
        median_us=(median_us[0], median_us[1]) if steps else None,
        outside=Change("outside", a=beyond[0], b=beyond[1], unit="µs", by="nsys") if within else None,
        common=common,
        time=(together((each for each in ranks if each.about == "window"), "window"), *of_kinds, *ranks),
        waits=together(waiting, "part", item=WAITING) if waiting else None,
        kernels=tuple(kernels.explained(changes, a, b, MOST_EXPLAINED) if counters else changes),
        idle=largest(change("idle", *us, item=cause, call=call, range=name) for (name, cause, call), us, _ in idle),
        ranges=largest(change("range", *us, range=name, detail=counts) for (name,), us, counts in ranges),
    )


def _unlike_parts(runs: Sequence[Run]) -> str | None:
    """Why their steady parts cannot be compared; None where they can: each GPU has one, and these have steps of one
    name, or about the same share of the kernels' time."""
    whole_of = zip("AB", (any(at.by is By.WHOLE for at in steady(run).values()) for run in runs), strict=True)
    if lacking := [side for side, is_whole in whole_of if is_whole]:
        return f"nothing repeats in {' and '.join(lacking)}"
    if _marked(runs):
        return None
    inside, all_ns = (
        [sum(each.kernels_ns for each in parts(run, within_steady=within).values()) for run in runs]
        for within in (True, False)
    )
    a, b = (max(part, 1) / max(of, 1) for part, of in zip(inside, all_ns, strict=True))
    return None if max(a / b, b / a) <= AS_MUCH else "their steady parts hold other shares of their kernels"


def _marked(runs: Sequence[Run]) -> bool:
    """Whether the steps of both are ranges of the same name."""
    names = [{(each.by, each.name) for each in steady(run).values()} for run in runs]
    return names[0] == names[1] and all(by is By.RANGES for by, _ in names[0])


def _steps(runs: Sequence[Run], gpus: tuple[int, int], work: float | None) -> tuple[int, int] | None:
    """The steps of both steady parts, of all GPUs; None where there are none, or they are not the same on both sides:
    by their ranges' name, or by as many executions of the kernels that both have. work: the ratio of these, a GPU."""
    a, b = (sum(len(each.steps) for each in steady(run).values()) for run in runs)
    if not a or not b:
        return None
    if work is None:
        alike = len({(each.by, each.name) for run in runs for each in steady(run).values()}) == 1
    else:
        alike = abs(math.log(b / a * gpus[0] / gpus[1] / work)) <= math.log(ALIKE)
    return (a, b) if alike or _marked(runs) else None


def _waits(run: Run, within: bool, steps: float) -> dict[int | None, float]:
    """Rank -> how long it waited for others inside its collectives, µs, over a number of steps; empty of one rank."""
    by_rank: dict[int | None, float] = {}
    for rank in ranks_of(run).all if ranks_of(run).several else ():
        at = steady(run)[NOTHING if rank.device is None else rank.device] if within else WHOLE
        late = delays(run, rank.rank, at.begins, at.ends, np.zeros(len(at.begins), np.int64)).get(0, [])
        by_rank[rank.rank] = sum(each.waited_ns for each in late) / 1e3 / steps
    return by_rank


def _work(kernels: Sequence[KernelChange]) -> float | None:
    """The typical ratio of the executions of kernels on both sides: their median, weighted by time; None where they did
    not change alike."""
    ratios = sorted(
        (each.b.count / each.a.count, math.sqrt(each.a.total_us * each.b.total_us))
        for each in kernels
        if each.match is not Match.REPLACED
        if each.a and each.b and min(each.a.count, each.b.count, each.a.total_us, each.b.total_us) > 0
    )
    total, below = sum(weight for _, weight in ratios), 0.0
    for ratio, weight in ratios:
        below += weight
        if below >= total / 2:
            alike = sum(other for each, other in ratios if abs(math.log(each / ratio)) <= math.log(ALIKE))
            return ratio if alike >= MOSTLY * total else None
    return None


Place = tuple[int | None, int]  # rank and GPU
Row = tuple[str | None, tuple[str | None, ...], int, int]  # range, what else tells it from others, ns and count


def _spent(ranking: Top, steps: float) -> Mapping[Place, Mapping[Spent, float]]:
    """Rank and GPU -> what its time went into, µs, of so many steps."""
    spent: dict[Place, dict[Spent, float]] = defaultdict(lambda: defaultdict(float))
    for part in ranking.parts:
        kind = part["what"] if part["what"] in PARTS else Spent.KERNELS
        spent[part["rank"], part["device"]][kind] += part["total_ns"] / 1e3 / steps
    return spent


def _idle(run: Run, within: bool) -> Iterator[Row]:
    """Time without work by range, cause and call; the host's own short work before a launch is launching, as ``top``
    has it."""
    for part in parts(run, within_steady=within).values():
        for why, ns in part.causes.items():
            short = why.cause is IdleCause.HOST and not why.long
            yield why.range, (IdleCause.LAUNCH if short else why.cause, why.call), ns, 0


def _totals(
    sides: Sequence[Sequence[Row]], divisors: Sequence[float], *, folded: bool
) -> Iterator[tuple[tuple[Any, ...], tuple[float, float], tuple[float, float]]]:
    """Range and the rest, µs and count of either side, of so many steps and GPUs; without numbers in the name of a
    range that a side lacks. folded: in all names."""
    names = [{row[0] for row in side} for side in sides]
    both = set() if folded else names[0] & names[1]
    totals: dict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for side, (rows, divisor) in enumerate(zip(sides, divisors, strict=True)):
        for name, more, total_ns, count in rows:
            known = name if name is None or name in both else re.sub(r"(?<!\w)\d+(?!\w)", "#", name)
            totals[known, *more][side] += total_ns / divisor
            totals[known, *more][2 + side] += count / divisor
    for key, (a_ns, b_ns, a_count, b_count) in totals.items():
        yield key, (a_ns / 1e3, b_ns / 1e3), (a_count, b_count)


def program_summary(of: ProgramComparison) -> Iterator[str]:
    """How the time of the GPUs changed, and what accounts for it."""
    yield _change(of)
    with_it, against = _reasons(of)
    if with_it:
        words = "Most of it: {reasons}" + ("; against it: {against}." if against else ".")
        yield say(words, reasons="; ".join(with_it), against="; ".join(against))
    if of.outside and max(of.outside.a, of.outside.b) * 1e3 >= LEAST_OUTSIDE_NS:
        yield say("Outside the steady part: {a:,.1f} → {b:,.1f} ms.", a=of.outside.a / 1e3, b=of.outside.b / 1e3)


def _change(of: ProgramComparison) -> str:
    """The change in a sentence."""
    (a_gpus, b_gpus), ms = of.gpus, of.window.us / 1e3
    values: dict[str, Any] = {"a_ms": of.window.a / 1e3, "b_ms": of.window.b / 1e3, "ms": ms, "pct": 100 * of.share}
    values |= {"a_gpus": a_gpus, "b_gpus": b_gpus, "because": of.whole_because}
    on = " of each of {a_gpus} GPUs" if a_gpus > 1 else ""
    on = " of each of A's {a_gpus} and B's {b_gpus:GPU|GPUs}" if a_gpus != b_gpus else on
    why = " ({because})" if of.whole_because else ""
    if not ms and not any(each.us for each in of.kernels):
        return say("The same numbers: {a_ms:,.1f} ms" + (" a step" if of.steps else "") + on + ".", **values)
    of_idle = of.held_up and abs(of.parts[Spent.IDLE].us) >= MOSTLY * abs(of.window.us)
    of_kernels = abs(of.parts[Spent.KERNELS].us) > PROCESSES_DRIFT / 100 * of.window.a
    noise_pct = PROGRAMS_DRIFT if of_idle and not of_kernels else PROCESSES_DRIFT
    no_more = 100 * abs(of.share) <= noise_pct
    noise = ", no more than processes of the same code have differed by" if no_more else ""
    spec = ",.3f" if of.steps else ",.1f"
    change = f"{{a_ms:{spec}}} → {{b_ms:{spec}}} ms ({{ms:+{spec}}} ms, {{pct:+.1f}}%){noise}"
    if of.steps and of.median_us:
        a_median, b_median = (each / 1e3 for each in of.median_us)
        words = f"A step of the steady part{on}, on average: {change}; "
        words += "{a_steps:,.0f} and {b_steps:step|steps}."
        if not no_more and abs(b_median - a_median) < min(FEW_STEPS * abs(ms), LEADS * a_median):
            words += " The median step: {a_median:,.3f} → {b_median:,.3f} ms: few steps changed."
        values |= {"a_steps": of.steps[0] / a_gpus, "b_steps": of.steps[1] / b_gpus}
        return say(words, a_median=a_median, b_median=b_median, **values)
    if of.work != 1.0:
        words = f"B's {'steady part' if of.steady else 'trace'}{on}{why} holds {{work_pct:.0f}}% {{more}} work in "
        words += "{b_ms:,.1f} ms than A's in {a_ms:,.1f} ms; at equal work B takes {less_ms:,.1f} ms {longer} "
        more, longer = ("more" if each else "less" for each in (of.work > 1, ms > 0))
        values |= {"work_pct": 100 * abs(of.work - 1), "more": more, "less_ms": abs(ms), "longer": longer}
        return say(f"{words}({{pct:+.1f}}%){noise}.", **values)
    return say(f"{'The steady part' if of.steady else 'From the first work to the last'}{on}{why}: {change}.", **values)


def _reasons(of: ProgramComparison) -> tuple[Sequence[str], Sequence[str]]:
    """What accounts for most of the change, and what is against it, the most first: parts that are at least LEADS of
    it, and more than noise."""
    matched = {
        Match.NEW: "{kernel} is new, {ms:+,.3g} ms",
        Match.GONE: "{kernel} is gone, {ms:+,.3g} ms",
        Match.REPLACED: "{kernel} in place of {before} {ms:+,.3g} ms",
    }
    reasons: list[tuple[float, str, dict[str, Any]]] = []
    for each in of.kernels:
        # Waiting for other ranks is no kernel's own.
        if not (of.waits and COLLECTIVE.search(each.shown.kernel)):
            names = {"kernel": each.shown_name, "before": each.a.kernel if each.a else ""}
            reasons.append((each.us, matched.get(each.match, "{kernel} {ms:+,.3g} ms"), names))
    reasons.append((of.parts[Spent.COPIES].us, "copies alone {ms:+,.3g} ms", {}))
    if of.waits:
        reasons.append((of.waits.us, "ranks wait for each other {ms:+,.3g} ms", {}))
        beyond_us = of.parts[Spent.COLLECTIVES].us - of.waits.us
        reasons.append((beyond_us, "collectives beside that {ms:+,.3g} ms", {}))
    idle_us = of.parts[Spent.IDLE].us
    if causes := sums_by_key((each.item, each.us) for each in of.idle):
        cause = max(causes, key=lambda each: causes[each] * math.copysign(1.0, idle_us))
        words = "idle GPUs {ms:+,.3g} ms ({cause} {cause_ms:+,.3g} ms)"
        reasons.append((idle_us, words, {"cause": cause, "cause_ms": causes[cause] / 1e3}))
    least_us = max(LEADS * abs(of.window.us), PROCESSES_DRIFT / 100 * of.window.a)
    reasons = sorted((each for each in reasons if abs(each[0]) >= least_us), key=lambda each: -abs(each[0]))
    with_it, against = (
        [say(words, ms=us / 1e3, **values) for us, words, values in reasons if us * of.window.us * sign > 0]
        for sign in (1, -1)
    )
    return with_it[:MOST_REASONS], against[:MOST_REASONS]
