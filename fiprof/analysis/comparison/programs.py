"""Two traces of a program compared: where the GPUs' time went, by kernel, range, rank and idle cause.

Start-up differs from process to process by more than most changes, so the steady parts are compared where both traces
have one, and the mean step of each where their steps are the same. Of several GPUs all times are the mean. Traces
without the same steps seldom hold the same work: ten seconds of a server hold as many requests as came. So their
changes are at equal work: the ratio of the work is that of the executions of the kernels that both have, and both
sides' times are scaled to the geometric mean of the two, A's times the root of the ratio, B's divided by it.
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
SAME_WORK = 1.005  # largest ratio of the executions at which two traces hold the same work
ALIKE = 1.05  # largest ratio to the typical change at which a kernel's executions changed as those of the others
MOSTLY = 0.5  # smallest share of the common kernels' time whose executions changed alike
LITTLE_IN_COMMON = 0.5  # share of the kernels' time in kernels of both sides, below which the programs are different
LEADS = 0.1  # smallest share of a change that a part of it has to be named
AS_MUCH = 1.2  # largest ratio of the shares of the kernels' time in two steady parts that are the same part
MOST_REASONS = 4  # that are named for and against a change
FEW_STEPS = 0.25  # change of the median step over that of the mean step, below which only few steps changed

PARTS = (Spent.KERNELS, Spent.COLLECTIVES, Spent.COPIES, Spent.IDLE)
"""What a GPU's time consists of: concurrent kernels count once, copies only where no kernel runs."""
WAITING = "waiting"  # item of the time in which a rank waits for others, inside its collectives


@dataclass(frozen=True)
class ProgramComparison:
    """What changed between two traces. Changes without a device are of all ranks together."""

    work: float
    """Executions of common kernels, B's over A's; 1 where these did not change alike, and for times of a step."""
    whole_because: str  # why the whole traces are compared and not their steady parts; empty where the user chose
    gpus: tuple[int, int]  # of each side; all times are the mean of its GPUs
    steps: tuple[int, int] | None  # of each side, on all GPUs; all times are the mean step. None for times of a window
    median_us: tuple[float, float] | None  # the median step of each side
    outside: Change | None  # time of the GPUs outside the steady parts; None for the whole traces
    common: float  # share of the kernels' time in kernels that both sides have, 0 to 1; the smaller one of the sides
    time: tuple[Change, ...]
    """The window (from first work to last) of all ranks and of each rank, each with the parts that sum to it."""
    waits: Change | None  # time in which ranks wait for others inside collectives; None where that is not known
    kernels: tuple[KernelChange, ...]  # the largest change first; the first ones with explanations
    idle: tuple[Change, ...]  # time without work by cause, call and range
    ranges: tuple[Change, ...]  # time of the kernels launched in each NVTX range; the detail is their number per side

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
        """Kind (one of PARTS, and WAITING where that is known) -> part of a window."""
        place = window.rank, window.device
        parts = (each for each in self.time if each.about == "part" and (each.rank, each.device) == place)
        return {each.item: each for each in parts if each.item}

    @property
    def steady(self) -> bool:
        """Whether the steady parts are compared."""
        return self.outside is not None

    @property
    def held_up(self) -> bool:
        """Whether the GPUs wait for the host: then processes of the same code differ by more."""
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
    """What changed from trace A to trace B. Raises FiprofError where a side has no kernels under nsys.

    counters: whether ncu's numbers can be compared. entire: why the whole traces are compared, empty where the user
    chose that; None for the steady parts, where these can be compared.
    """
    runs = a, b
    entire = _why_entire(runs) if entire is None else entire
    within = entire is None
    tops = [top(run, within_steady=within) for run in runs]
    gpus = len(tops[0].activities), len(tops[1].activities)
    sides = [
        [each.divided(count) for each in kernels.kernels_of_program(run, of_side.kernels)]
        for run, of_side, count in zip(runs, tops, gpus, strict=True)
    ]
    both = kernels.kernel_changes(*sides)
    common, work = _common_work(both)
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

    def mean_of_gpus(times: Iterable[Change], about: str, **cells: Any) -> Change:
        of_gpus = list(times)
        a_us, b_us = (
            sum(getattr(each, side) for each in of_gpus) / count for side, count in zip("ab", gpus, strict=True)
        )
        return change(about, a_us, b_us, **cells)

    def largest(changes: Iterable[Change]) -> tuple[Change, ...]:
        return tuple(sorted(changes, key=lambda each: -abs(each.us)))

    changes = []
    for each in both:
        a_us, b_us = each.both(lambda side: side.total_us)
        changes.append(replace(each, us=change("kernel", a_us or 0.0, b_us or 0.0).us))
    changes.sort(key=lambda each: (-abs(each.us), each.shown.kernel_full))

    # The window of each rank's GPU, its parts, and how long it waited for others. Where both sides have as many GPUs
    # they are pairs in their order, else those of the same rank and number.
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
    of_kinds = [mean_of_gpus((each for each in ranks if each.item == kind), "part", item=kind) for kind in PARTS]
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
        time=(mean_of_gpus((each for each in ranks if each.about == "window"), "window"), *of_kinds, *ranks),
        waits=mean_of_gpus(waiting, "part", item=WAITING) if waiting else None,
        kernels=tuple(kernels.explained(changes, a, b, MOST_EXPLAINED) if counters else changes),
        idle=largest(change("idle", *us, item=cause, call=call, range=name) for (name, cause, call), us, _ in idle),
        ranges=largest(change("range", *us, range=name, detail=counts) for (name,), us, counts in ranges),
    )


def _why_entire(runs: Sequence[Run]) -> str | None:
    """Why the steady parts cannot be compared; None where they can: each GPU has one, and their steps have one name or
    hold about the same share of the kernels' time."""
    whole_of = zip("AB", (any(at.by is By.WHOLE for at in steady(run).values()) for run in runs), strict=True)
    if unsteady := [side for side, is_whole in whole_of if is_whole]:
        return f"nothing repeats in {' and '.join(unsteady)}"
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
    """The number of steps of each side, on all GPUs; None where a side has none, or its steps are not the other's, by
    their ranges' name or by their executions of common kernels. work: B's executions over A's, per GPU."""
    a, b = (sum(len(each.steps) for each in steady(run).values()) for run in runs)
    if not a or not b:
        return None
    if work is None:
        alike = len({(each.by, each.name) for run in runs for each in steady(run).values()}) == 1
    else:
        alike = abs(math.log(b / a * gpus[0] / gpus[1] / work)) <= math.log(ALIKE)
    return (a, b) if alike or _marked(runs) else None


def _waits(run: Run, within: bool, steps: float) -> dict[int | None, float]:
    """Rank -> how long it waited for others inside collectives, µs a step; empty for a run of one rank."""
    by_rank: dict[int | None, float] = {}
    for rank in ranks_of(run).all if ranks_of(run).several else ():
        at = steady(run)[NOTHING if rank.device is None else rank.device] if within else WHOLE
        late = delays(run, rank.rank, at.begins, at.ends, np.zeros(len(at.begins), np.int64)).get(0, [])
        by_rank[rank.rank] = sum(each.waited_ns for each in late) / 1e3 / steps
    return by_rank


def _common_work(kernels: Sequence[KernelChange]) -> tuple[float, float | None]:
    """The share of the kernels' time in kernels that both sides have, 0 to 1, on the side where it is smaller; and the
    typical ratio of their executions, B's over A's: the median, weighted by time. None for the ratio where that share
    is below LITTLE_IN_COMMON, or the executions did not change alike."""
    shares = []
    for name in ("a", "b"):
        times = [
            (side.total_us, bool(each.a and each.b) and each.match is not Match.REPLACED)
            for each in kernels
            if (side := getattr(each, name))
        ]
        total = sum(us for us, _ in times)
        shares.append(sum(us for us, shared in times if shared) / total if total else 1.0)
    common = float(min(shares))
    if common < LITTLE_IN_COMMON:
        return common, None
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
            return common, ratio if alike >= MOSTLY * total else None
    return common, None


Place = tuple[int | None, int]  # rank and GPU
Row = tuple[str | None, tuple[str | None, ...], int, int]  # range, the rest of its key, ns and count


def _spent(ranking: Top, steps: float) -> Mapping[Place, Mapping[Spent, float]]:
    """Rank and GPU -> its time by kind, µs a step."""
    spent: dict[Place, dict[Spent, float]] = defaultdict(lambda: defaultdict(float))
    for part in ranking.parts:
        kind = part["what"] if part["what"] in PARTS else Spent.KERNELS
        spent[part["rank"], part["device"]][kind] += part["total_ns"] / 1e3 / steps
    return spent


def _idle(run: Run, within: bool) -> Iterator[Row]:
    """Time without work by range, cause and call; the host's short work counts as launching, as in ``top``."""
    for part in parts(run, within_steady=within).values():
        for why, ns in part.causes.items():
            short = why.cause is IdleCause.HOST and not why.long
            yield why.range, (IdleCause.LAUNCH if short else why.cause, why.call), ns, 0


def _totals(
    sides: Sequence[Sequence[Row]], divisors: Sequence[float], *, folded: bool
) -> Iterator[tuple[tuple[Any, ...], tuple[float, float], tuple[float, float]]]:
    """Key (range and the rest), µs of either side and count of either side, each over the side's divisor (steps and
    GPUs). Numbers in a range's name become ``#`` where one side lacks the range. folded: in all names."""
    names = [{row[0] for row in side} for side in sides]
    both = set() if folded else names[0] & names[1]
    totals: dict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for side, (rows, divisor) in enumerate(zip(sides, divisors, strict=True)):
        for name, more, total_ns, count in rows:
            shared = name if name is None or name in both else re.sub(r"(?<!\w)\d+(?!\w)", "#", name)
            totals[shared, *more][side] += total_ns / divisor
            totals[shared, *more][2 + side] += count / divisor
    for key, (a_ns, b_ns, a_count, b_count) in totals.items():
        yield key, (a_ns / 1e3, b_ns / 1e3), (a_count, b_count)


def program_summary(of: ProgramComparison) -> Iterator[str]:
    """How the time of the GPUs changed, and what accounts for it, a sentence each."""
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
    """What accounts for most of the change, and what goes against it, the largest first: parts of at least LEADS of it
    that are larger than the noise."""
    matched = {
        Match.NEW: "{kernel} is new, {ms:+,.3g} ms",
        Match.GONE: "{kernel} is gone, {ms:+,.3g} ms",
        Match.REPLACED: "{kernel} in place of {before} {ms:+,.3g} ms",
    }
    reasons: list[tuple[float, str, dict[str, Any]]] = []
    for each in of.kernels:
        # The time of a collective is mostly waiting for other ranks, which stands by itself.
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
