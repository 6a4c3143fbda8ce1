"""Two traces of a program compared: where the GPUs' time went, by kernel, range, rank and idle cause.

Captures seldom hold the same work: one of ten seconds of a server holds as many requests as came. So changes are at
equal work: of the kernels that both have the executions are counted, and each side's times are taken to the geometric
mean of the two, side A's times the root of the ratio, side B's divided by it.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fiprof.analysis.comm import comm
from fiprof.analysis.comparison import kernels
from fiprof.analysis.comparison.kernels import Change, KernelChange, Match
from fiprof.analysis.top import Spent, Top, top
from fiprof.model.finding import Worded, say
from fiprof.model.ranks import COLLECTIVE, ranks_of
from fiprof.model.run import Run
from fiprof.model.selection import sums_by_key
from fiprof.text import short_kernel

MOST_EXPLAINED = 5  # kernels whose counters are compared: those that account for most of the change
SAME_WORK = 1.005  # ratio of the executions up to which two traces hold the same work
ALIKE = 1.05  # ratio to the typical one up to which a kernel's executions changed as those of the others
MOSTLY = 0.5  # share of the time of the kernels of both sides whose executions have to have changed alike
LITTLE_IN_COMMON = 0.5  # share of the kernels' time in kernels of both sides, below which the programs are others
LEADS = 0.1  # share of a change, from which a part of it is worth a word


class PartKind(Worded):
    """What GPUs do from their first work to their last."""

    KERNELS = "kernels"  # kernels that do not communicate; concurrent ones are counted once
    COLLECTIVES = "collectives"  # kernels that communicate with other GPUs, and no other
    COPIES = "copies", "only copies"  # copies and memory sets alone
    IDLE = "idle"


WAITING = "waiting"  # item of the time in which a rank waits for others, inside its collectives


@dataclass(frozen=True)
class ProgramComparison:
    """What changed of a program's trace. Changes of no device are of all ranks together."""

    work: float
    """Executions on side B over those on side A, of kernels that both have; 1 where these did not change alike."""
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
    def share(self) -> float:
        """Change of the window at equal work, of side A's."""
        return self.window.us / (self.window.a * math.sqrt(self.work)) if self.window.a else 0.0

    def changes(self) -> Iterator[Change]:
        yield Change("work", "executions_ratio", 1.0, self.work)
        yield from self.time
        for kernel in self.kernels:
            yield from kernel.changes()
            row = partial(Change, "kernel", kernel=kernel.shown.kernel, match=kernel.match)
            yield row("executions", *kernel.both(lambda side: side.count))
            yield row("mean_us", *kernel.both(lambda side: side.mean_us), unit="µs")
        yield from self.idle
        yield from self.ranges


def compare_programs(a: Run, b: Run, *, counters: bool) -> ProgramComparison:
    """counters: whether ncu's numbers can be compared. Raises FiprofError where a side has no kernels under nsys."""
    tops = top(a), top(b)
    both = kernels.kernel_changes(kernels.kernels_of_program(a), kernels.kernels_of_program(b))
    shares = []
    for name in ("a", "b"):
        times = [(side.total_us, bool(each.a and each.b)) for each in both if (side := getattr(each, name))]
        total = sum(us for us, _ in times)
        shares.append(sum(us for us, shared in times if shared) / total if total else 1.0)
    common = float(min(shares))
    work = 1.0 if common < LITTLE_IN_COMMON else _work(both)
    scale = math.sqrt(work)

    def change(about: str, a_us: float, b_us: float, **cells: Any) -> Change:
        return Change(about, a=a_us, b=b_us, accounts_us=b_us / scale - a_us * scale, unit="µs", by="nsys", **cells)

    def together(times: Iterable[Change], about: str, **cells: Any) -> Change:
        found = list(times)
        return change(about, sum(each.a for each in found), sum(each.b for each in found), **cells)

    def largest(changes: Iterable[Change]) -> tuple[Change, ...]:
        return tuple(sorted(changes, key=lambda each: -abs(each.us)))

    changes = []
    for each in both:
        a_us, b_us = each.both(lambda side: side.total_us)
        changes.append(replace(each, us=change("kernel", a_us or 0.0, b_us or 0.0).us))
    changes.sort(key=lambda each: (-abs(each.us), each.shown.kernel_full))

    # The window of each rank's GPU, its parts, and how long it waited for others. The same rank and GPU of both sides
    # are a pair; where they are as many, and others, in their order.
    of_a, of_b = map(_spent, tops)
    places: Iterable[tuple[Place, Place]] = ((each, each) for each in dict.fromkeys((*of_a, *of_b)))
    if len(of_a) == len(of_b):
        places = zip(sorted(of_a, key=str), sorted(of_b, key=str), strict=True)
    # Rank -> how long it waited for others inside its collectives, µs.
    waits: list[dict[int | None, float]] = [
        {row["rank"]: row["wait_us"] for row in comm(run).ranks} if ranks_of(run).several else {} for run in (a, b)
    ]
    ranks: list[Change] = []
    for one, other in places:
        x, y = of_a.get(one, {}), of_b.get(other, {})
        rank, device = other if y else one
        place = {"rank": rank, "device": device}
        parts = [change("part", x.get(kind, 0.0), y.get(kind, 0.0), item=kind, **place) for kind in PartKind]
        ranks += [together(parts, "window", **place), *parts]
        x_us, y_us = waits[0].get(one[0]) if x else None, waits[1].get(other[0]) if y else None
        if x_us is not None and y_us is not None:
            ranks.append(change("part", x_us, y_us, item=WAITING, **place))
    of_kinds = [together((each for each in ranks if each.item == kind), "part", item=kind) for kind in PartKind]
    waiting = [each for each in ranks if each.item == WAITING]

    idle = _totals(*([(row["range"], (row["cause"], row["call"]), row["total_ns"], 0) for row in x.idle] for x in tops))
    ranges = _totals(*([(row["range"], (), row["total_ns"], row["count"]) for row in of.ranges] for of in tops))
    return ProgramComparison(
        work=work,
        common=common,
        time=(together((each for each in ranks if each.about == "window"), "window"), *of_kinds, *ranks),
        waits=together(waiting, "part", item=WAITING) if waiting else None,
        kernels=tuple(kernels.explained(changes, a, b, MOST_EXPLAINED) if counters else changes),
        idle=largest(change("idle", *us, item=cause, call=call, range=name) for (name, cause, call), us, _ in idle),
        ranges=largest(change("range", *us, range=name, detail=counts) for (name,), us, counts in ranges),
    )


def _work(kernels: Sequence[KernelChange]) -> float:
    """The typical ratio of the executions of kernels on both sides: their median, weighted by time."""
    found = sorted(
        (each.b.count / each.a.count, math.sqrt(each.a.total_us * each.b.total_us))
        for each in kernels
        if each.a and each.b and min(each.a.count, each.b.count, each.a.total_us, each.b.total_us) > 0
    )
    total, below = sum(weight for _, weight in found), 0.0
    for ratio, weight in found:
        below += weight
        if below >= total / 2:
            alike = sum(other for each, other in found if abs(math.log(each / ratio)) <= math.log(ALIKE))
            return ratio if abs(math.log(ratio)) > math.log(SAME_WORK) and alike >= MOSTLY * total else 1.0
    return 1.0


Place = tuple[int | None, int]  # rank and GPU


def _spent(found: Top) -> Mapping[Place, Mapping[PartKind, float]]:
    """Rank and GPU -> what its time went into, µs."""
    kinds = {Spent.COLLECTIVES: PartKind.COLLECTIVES, Spent.COPIES: PartKind.COPIES, Spent.IDLE: PartKind.IDLE}
    spent: dict[Place, dict[PartKind, float]] = defaultdict(lambda: defaultdict(float))
    for part in found.parts:
        kind = kinds.get(part["what"], PartKind.KERNELS) if isinstance(part["what"], Spent) else PartKind.KERNELS
        spent[part["rank"], part["device"]][kind] += part["total_ns"] / 1e3
    return spent


Row = tuple[str | None, tuple[str | None, ...], int, int]  # range, what else tells it from others, ns and count


def _totals(
    a: Sequence[Row], b: Sequence[Row]
) -> Iterator[tuple[tuple[Any, ...], tuple[float, float], tuple[int, int]]]:
    """Range and the rest, µs and count of either side; without numbers in the name of a range that a side lacks."""
    both = {row[0] for row in a} & {row[0] for row in b}
    totals: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for side, rows in enumerate((a, b)):
        for name, more, total_ns, count in rows:
            known = name if name is None or name in both else re.sub(r"(?<!\w)\d+(?!\w)", "#", name)
            totals[known, *more][side] += total_ns
            totals[known, *more][2 + side] += count
    for key, (a_ns, b_ns, a_count, b_count) in totals.items():
        yield key, (a_ns / 1e3, b_ns / 1e3), (a_count, b_count)


def program_summary(of: ProgramComparison) -> Iterator[str]:
    """How the time of the GPUs changed, and what accounts for it."""
    a_ms, b_ms, ms = (value / 1e3 for value in (of.window.a, of.window.b, of.window.us))
    values = {"a_ms": a_ms, "b_ms": b_ms, "ms": ms, "pct": 100 * of.share, "gpus": len(of.ranks)}
    if of.work != 1.0:
        words = "B's trace holds {work_pct:.0f}% {more} work in {b_ms:,.1f} ms than A's in {a_ms:,.1f} ms; at equal "
        words += "work B takes {less_ms:,.1f} ms {longer} ({pct:+.1f}%)."
        more, longer = ("more" if each else "less" for each in (of.work > 1, ms > 0))
        yield say(words, work_pct=100 * abs(of.work - 1), more=more, less_ms=abs(ms), longer=longer, **values)
    elif not ms and not any(each.us for each in of.kernels):
        yield say("The same numbers: {a_ms:,.1f} ms on {gpus:GPU|GPUs}.", **values)
    else:
        times = "{a_ms:,.1f} → {b_ms:,.1f} ms ({ms:+,.1f} ms, {pct:+.1f}%)."
        yield say("From the first work to the last on {gpus:GPU|GPUs}: " + times, **values)

    # What accounts for most of the change, the most first: parts in its direction that are at least LEADS of it.
    matched = {Match.NEW: "{kernel} is new, {ms:+,.1f} ms", Match.GONE: "{kernel} is gone, {ms:+,.1f} ms"}
    parts: list[tuple[float, str, dict[str, Any]]] = [
        (each.us, matched.get(each.match, "{kernel} {ms:+,.1f} ms"), {"kernel": short_kernel(each.shown.kernel)})
        for each in of.kernels
        # Waiting for other ranks is no kernel's own.
        if not (of.waits and COLLECTIVE.search(each.shown.kernel))
    ]
    parts.append((of.parts[PartKind.COPIES].us, "copies alone {ms:+,.1f} ms", {}))
    if of.waits:
        parts.append((of.waits.us, "ranks wait for each other {ms:+,.1f} ms", {}))
    idle_us = of.parts[PartKind.IDLE].us
    if causes := sums_by_key((each.item, each.us) for each in of.idle):
        cause = max(causes, key=lambda each: causes[each] * math.copysign(1.0, idle_us))
        words = "idle GPUs {ms:+,.1f} ms, of it {cause} {cause_ms:+,.1f} ms"
        parts.append((idle_us, words, {"cause": cause, "cause_ms": causes[cause] / 1e3}))
    leading = [part for part in parts if part[0] * of.window.us > 0 and abs(part[0]) >= LEADS * abs(of.window.us)]
    leading.sort(key=lambda part: -abs(part[0]))
    if leading:
        why = [say(words, ms=us / 1e3, **values) for us, words, values in leading]
        yield say("Most of it: {reasons}.", reasons="; ".join(why))
