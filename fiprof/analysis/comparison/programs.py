"""Two traces of a program compared: where the GPUs' time went, by kernel, range, rank and idle cause.

Captures seldom hold the same work: one of ten seconds of a server holds as many requests as came. So changes are at
equal work: of the kernels that both have the executions are counted, and each side's times are taken to the geometric
mean of the two, side A's times the root of the ratio, side B's divided by it.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fiprof.analysis.comm.comm import comm
from fiprof.analysis.comparison.changes import Change
from fiprof.analysis.comparison.kernels import KernelChange, explained, kernel_changes, kernels_of_program
from fiprof.analysis.top import Spent, Top, top
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.wording import Worded

MOST_EXPLAINED = 5
"""Kernels whose counters are compared: those that account for most of the change."""
SAME_WORK = 1.02
"""Ratio of the executions up to which two traces hold the same work."""
ALIKE = 1.05
"""Ratio to the typical one up to which a kernel's executions changed as those of the others."""
MOSTLY = 0.5
"""Share of the time of the kernels of both sides whose executions have to have changed alike."""

LITTLE_IN_COMMON = 0.5
"""Share of the kernels' time in kernels of both sides, below which the programs are others."""

_NUMBER = re.compile(r"(?<!\w)\d+(?!\w)")


class PartKind(Worded):
    """What GPUs do from their first work to their last."""

    KERNELS = "kernels"
    """Kernels that do not communicate; concurrent ones are counted once."""
    COLLECTIVES = "collectives"
    """Kernels that communicate with other GPUs, and no other."""
    COPIES = "copies", "only copies"
    """Copies and memory sets alone."""
    IDLE = "idle"


WAITING = "waiting"
"""Item of the time in which a rank waits for others, inside its collectives."""


@dataclass(frozen=True)
class ProgramComparison:
    """What changed of a program's trace. Changes of no device are of all ranks together."""

    work: float
    """Executions on side B over those on side A, of kernels that both have; 1 where they hardly differ, or did not
    change alike."""
    common: float
    """Share of the kernels' time that is in kernels of both sides, on the side where that is less, 0 to 1."""
    time: tuple[Change, ...]
    """The GPUs' time from their first work to their last: a window, of all and of each rank, and the parts of each,
    which sum to it."""
    waits: Change | None
    """Waiting for other ranks inside the collectives; None where that cannot be told."""
    kernels: tuple[KernelChange, ...]
    """Those that account for most of the change first; the first ones with what explains them."""
    idle: tuple[Change, ...]
    """Time without work by cause, call and range."""
    ranges: tuple[Change, ...]
    """The kernels launched in each NVTX range; the detail is how many on either side."""

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
        """Its rows."""
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
    """counters: whether ncu's numbers can be compared. Raises FiprofError where a side has no kernels under nsys, or a
    table cannot be read."""
    tops = top(a), top(b)
    kernels = kernel_changes(kernels_of_program(a), kernels_of_program(b))
    common = _common(kernels)
    work = 1.0 if common < LITTLE_IN_COMMON else _work(kernels)
    change = partial(_at_equal_work, math.sqrt(work))
    changes = []
    for each in kernels:
        a_us, b_us = each.both(lambda side: side.total_us)
        changes.append(replace(each, us=change("kernel", a_us or 0.0, b_us or 0.0).us))
    changes.sort(key=lambda each: (-abs(each.us), each.shown.kernel_full))
    ranks = list(_ranks((a, b), tops, change))
    windows = [each for each in ranks if each.about == "window"]
    parts = [_sum((each for each in ranks if each.item == kind), change, "part", item=kind) for kind in PartKind]
    waits = [each for each in ranks if each.item == WAITING]
    return ProgramComparison(
        work=work,
        common=common,
        time=(_sum(windows, change, "window"), *parts, *ranks),
        waits=_sum(waits, change, "part", item=WAITING) if waits else None,
        kernels=tuple(explained(changes, a, b, MOST_EXPLAINED) if counters else changes),
        idle=tuple(sorted(_idle(tops, change), key=_largest)),
        ranges=tuple(sorted(_ranges(tops, change), key=_largest)),
    )


MakeChange = Callable[..., Change]


def _at_equal_work(scale: float, about: str, a_us: float, b_us: float, **cells: Any) -> Change:
    return Change(about, a=a_us, b=b_us, accounts_us=b_us / scale - a_us * scale, unit="µs", by="nsys", **cells)


def _largest(change: Change) -> float:
    return -abs(change.us)


def _sum(times: Iterable[Change], change: MakeChange, about: str, **cells: Any) -> Change:
    found = list(times)
    return change(about, sum(each.a for each in found), sum(each.b for each in found), **cells)


def _common(kernels: Sequence[KernelChange]) -> float:
    shares = []
    for side in ("a", "b"):
        both = [(getattr(each, side).total_us, bool(each.a and each.b)) for each in kernels if getattr(each, side)]
        total = sum(us for us, _ in both)
        shares.append(sum(us for us, shared in both if shared) / total if total else 1.0)
    return float(min(shares))


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
            alike = sum(other for each, other in found if _near(each, ratio, ALIKE))
            return ratio if not _near(ratio, 1.0, SAME_WORK) and alike >= MOSTLY * total else 1.0
    return 1.0


def _near(x: float, y: float, ratio: float) -> bool:
    return abs(math.log(x / y)) <= math.log(ratio)


Place = tuple[int | None, int]
"""Rank and GPU."""


def _ranks(runs: tuple[Run, Run], tops: tuple[Top, Top], change: MakeChange) -> Iterator[Change]:
    """The window of each rank's GPU, its parts, and how long it waited for others.

    The same rank and GPU of both sides are a pair; where they are as many, and others, in their order.
    """
    of_a, of_b = map(_spent, tops)
    pairs: Iterable[tuple[Place, Place]] = ((each, each) for each in dict.fromkeys((*of_a, *of_b)))
    if len(of_a) == len(of_b):
        pairs = zip(sorted(of_a, key=str), sorted(of_b, key=str), strict=True)
    waits = [_waits(run) for run in runs]
    for one, other in pairs:
        a, b = of_a.get(one, {}), of_b.get(other, {})
        rank, device = other if b else one
        place = {"rank": rank, "device": device}
        parts = [change("part", a.get(kind, 0.0), b.get(kind, 0.0), item=kind, **place) for kind in PartKind]
        yield _sum(parts, change, "window", **place)
        yield from parts
        waiting = waits[0].get(one[0]) if a else None, waits[1].get(other[0]) if b else None
        if None not in waiting:
            yield change("part", *waiting, item=WAITING, **place)


def _waits(run: Run) -> dict[int | None, float]:
    """Rank -> how long it waited for others inside its collectives, µs."""
    return {each.rank.rank: each.wait_us for each in comm(run).ranks} if ranks_of(run).several else {}


def _spent(found: Top) -> Mapping[Place, Mapping[PartKind, float]]:
    """Rank and GPU -> what its time went into, µs."""
    kinds = {Spent.COLLECTIVES: PartKind.COLLECTIVES, Spent.COPIES: PartKind.COPIES, Spent.IDLE: PartKind.IDLE}
    spent: dict[Place, dict[PartKind, float]] = defaultdict(lambda: defaultdict(float))
    for part in found.parts:
        kind = kinds.get(part["what"], PartKind.KERNELS) if isinstance(part["what"], Spent) else PartKind.KERNELS
        spent[part["rank"], part["device"]][kind] += part["total_ns"] / 1e3
    return spent


def _ranges(tops: tuple[Top, Top], change: MakeChange) -> list[Change]:
    fold = _folded(*({row["range"] for row in found.ranges} for found in tops))
    rows = [[((fold(row["range"]),), row["total_ns"], row["count"]) for row in found.ranges] for found in tops]
    return [change("range", *us, range=name, detail=counts) for (name,), us, counts in _totals(rows)]


def _idle(tops: tuple[Top, Top], change: MakeChange) -> list[Change]:
    fold = _folded(*({row["range"] for row in found.idle} for found in tops))
    rows = [
        [((row["cause"], row["call"], fold(row["range"])), row["total_ns"], 0) for row in found.idle] for found in tops
    ]
    return [change("idle", *us, item=cause, call=call, range=name) for (cause, call, name), us, _ in _totals(rows)]


def _totals(
    sides: Sequence[Sequence[tuple[tuple[Any, ...], int, int]]],
) -> list[tuple[tuple[Any, ...], tuple[float, float], tuple[int, int]]]:
    """Key, µs and count of either side. sides: keys with ns and count; a key may stand there several times."""
    ns: dict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
    counts: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for side, items in enumerate(sides):
        for key, total_ns, count in items:
            ns[key][side] += total_ns
            counts[key][side] += count
    return [(key, (a / 1e3, b / 1e3), (counts[key][0], counts[key][1])) for key, (a, b) in ns.items()]


def _folded(a: set[str | None], b: set[str | None]) -> Callable[[str | None], str | None]:
    """Names of ranges as they are matched: of one that a side lacks the numbers are left out, for they count calls."""
    both = a & b
    names = {name: name if name is None or name in both else _NUMBER.sub("#", name) for name in a | b}
    return names.__getitem__
