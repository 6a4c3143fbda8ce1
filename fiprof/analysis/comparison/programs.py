"""Two traces of a program held against each other: where the GPUs' time went, by kernel, range, rank and idle cause.

Captures seldom hold the same work: one of ten seconds of a server holds as many requests as came. So changes are at
equal work: of the kernels that both have the executions are counted, and each side's times are taken to the geometric
mean of the two, side A's times the root of the ratio, side B's divided by it.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from fiprof.analysis.comm.comm import comm
from fiprof.analysis.comparison.kernels import KernelChange, explained, kernel_changes
from fiprof.analysis.comparison.sides import kernels_of_program
from fiprof.analysis.idle import Cause
from fiprof.analysis.top import Spent, Top, top
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run

MOST_EXPLAINED = 5
"""Kernels whose counters are held against each other: those that account for most of the change."""
SAME_WORK = 1.02
"""Ratio of the executions up to which two traces hold the same work."""
ALIKE = 1.05
"""Ratio to the typical one up to which a kernel's executions changed as those of the others."""
MOSTLY = 0.5
"""Share of the time of the kernels of both sides whose executions have to have changed alike."""

LITTLE_IN_COMMON = 0.5
"""Share of the kernels' time in kernels of both sides, below which the programs are others."""

K = TypeVar("K", bound=Hashable)


_NUMBER = re.compile(r"(?<!\w)\d+(?!\w)")


class PartKind(StrEnum):
    """What GPUs do from their first work to their last."""

    KERNELS = "kernels"
    """Kernels that do not communicate; side by side counted once."""
    COLLECTIVES = "collectives"
    """Kernels that communicate with other GPUs, and no other."""
    COPIES = "copies"
    """Copies and memory sets alone."""
    IDLE = "idle"


@dataclass(frozen=True)
class TimeChange:
    """A time of both sides."""

    a_us: float
    b_us: float
    us: float
    """How much longer side B takes, at equal work."""


@dataclass(frozen=True)
class RankChange:
    """A rank's GPU; of a run of one, each GPU."""

    rank: int | None
    device: int
    window: TimeChange
    """From its first work to its last."""
    parts: Mapping[PartKind, TimeChange]
    """They sum to the window."""
    waits: TimeChange | None
    """For other ranks, inside its collectives; None where that cannot be told."""


@dataclass(frozen=True)
class RangeChange:
    """The kernels launched in an NVTX range."""

    range: str | None
    """None outside all. Where a name is on one side only, its numbers are ``#``."""
    a_count: int
    """Kernels."""
    b_count: int
    time: TimeChange


@dataclass(frozen=True)
class IdleChange:
    """Time without work on a GPU, of one cause."""

    cause: Cause
    call: str | None
    range: str | None
    """As of RangeChange."""
    time: TimeChange


@dataclass(frozen=True)
class ProgramComparison:
    """What changed of a program's trace; all ranks together where not told otherwise."""

    work: float
    """Executions on side B over those on side A, of kernels that both have; 1 where they hardly differ, or did not
    change alike."""
    window: TimeChange
    """Of the GPUs from their first work to their last, summed."""
    parts: Mapping[PartKind, TimeChange]
    waits: TimeChange | None
    """For other ranks, inside the collectives."""
    ranks: tuple[RankChange, ...]
    kernels: tuple[KernelChange, ...]
    """Those that account for most of the change first; the first ones with what explains them."""
    ranges: tuple[RangeChange, ...]
    idle: tuple[IdleChange, ...]

    @property
    def share(self) -> float:
        """Change of the window at equal work, of side A's."""
        return self.window.us / (self.window.a_us * math.sqrt(self.work)) if self.window.a_us else 0.0

    @property
    def common(self) -> float:
        """Share of the kernels' time that is in kernels of both sides, on the side where that is less, 0 to 1."""
        return _common(self.kernels)


def compare_programs(a: Run, b: Run, *, counters: bool) -> ProgramComparison:
    """counters: whether ncu's numbers can be compared. Raises FiprofError where a side has no kernels under nsys, or a
    table cannot be read."""
    tops = top(a), top(b)
    kernels = kernel_changes(kernels_of_program(a), kernels_of_program(b))
    work = _work(kernels)
    scale = math.sqrt(work)

    def at_equal_work(a_us: float, b_us: float) -> TimeChange:
        return TimeChange(a_us, b_us, b_us / scale - a_us * scale)

    changes = [
        replace(each, us=at_equal_work(*(side.total_us if side else 0.0 for side in (each.a, each.b))).us)
        for each in kernels
    ]
    changes.sort(key=lambda each: (-abs(each.us), each.shown.kernel_full))
    if counters:
        changes[:MOST_EXPLAINED] = explained(changes[:MOST_EXPLAINED], a, b)
    ranks = tuple(_ranks((a, b), tops, at_equal_work))
    waits = [each.waits for each in ranks if each.waits]
    return ProgramComparison(
        work=work,
        window=_sum((each.window for each in ranks), at_equal_work),
        parts={kind: _sum((each.parts[kind] for each in ranks), at_equal_work) for kind in PartKind},
        waits=_sum(waits, at_equal_work) if waits else None,
        ranks=ranks,
        kernels=tuple(changes),
        ranges=tuple(_ranges(tops, at_equal_work)),
        idle=tuple(_idle(tops, at_equal_work)),
    )


Change = Callable[[float, float], TimeChange]


def _common(kernels: Sequence[KernelChange]) -> float:
    both = [each for each in kernels if each.a and each.b]
    shares = []
    for which in ("a", "b"):
        total, shared = (sum(side.total_us for each in of if (side := getattr(each, which))) for of in (kernels, both))
        shares.append(shared / total if total else 1.0)
    return float(min(shares))


def _work(kernels: Sequence[KernelChange]) -> float:
    """The typical ratio of the executions of kernels on both sides: their median, weighted by time."""
    if _common(kernels) < LITTLE_IN_COMMON:
        return 1.0
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


def _sum(times: Iterable[TimeChange], change: Change) -> TimeChange:
    found = list(times)
    return change(sum(each.a_us for each in found), sum(each.b_us for each in found))


def _ranks(runs: tuple[Run, Run], tops: tuple[Top, Top], change: Change) -> Iterator[RankChange]:
    spent = [_spent(each) for each in tops]
    waits = [_waits(run) for run in runs]
    for of_a, of_b in _paired(*(list(each) for each in spent)):
        a, b = (of.get(place, {}) if place else {} for of, place in zip(spent, (of_a, of_b), strict=True))
        parts = {kind: change(a.get(kind, 0.0), b.get(kind, 0.0)) for kind in PartKind}
        rank, device = of_b or of_a or (None, 0)
        known = [of.get(place[0]) if place else None for of, place in zip(waits, (of_a, of_b), strict=True)]
        waiting = None if known[0] is None or known[1] is None else change(known[0], known[1])
        yield RankChange(rank, device, _sum(parts.values(), change), parts, waiting)


def _waits(run: Run) -> dict[int | None, float]:
    """Rank -> how long it waited for others inside its collectives, µs."""
    return {each.rank.rank: each.wait_us for each in comm(run).ranks} if ranks_of(run).several else {}


Place = tuple[int | None, int]
"""Rank and GPU."""


def _paired(a: list[Place], b: list[Place]) -> Iterator[tuple[Place | None, Place | None]]:
    """The same rank and GPU of both sides; where they are as many, and others, in their order."""
    if len(a) == len(b):
        yield from zip(sorted(a, key=str), sorted(b, key=str), strict=True)
    else:
        yield from ((each if each in a else None, each if each in b else None) for each in dict.fromkeys((*a, *b)))


def _spent(found: Top) -> dict[Place, dict[PartKind, float]]:
    """Rank and GPU -> what its time went into, µs."""
    kinds = {Spent.COLLECTIVES: PartKind.COLLECTIVES, Spent.COPIES: PartKind.COPIES, Spent.IDLE: PartKind.IDLE}
    spent: dict[Place, dict[PartKind, float]] = defaultdict(lambda: defaultdict(float))
    for part in found.parts:
        kind = kinds.get(part.what, PartKind.KERNELS) if isinstance(part.what, Spent) else PartKind.KERNELS
        spent[part.rank, part.device][kind] += part.ns / 1e3
    return spent


def _ranges(tops: tuple[Top, Top], change: Change) -> Iterator[RangeChange]:
    fold = _folded(*({each.range for each in found.ranges} for found in tops))
    sides = [_totals((fold(each.range), each.total_ns) for each in found.ranges) for found in tops]
    counts = [_totals((fold(each.range), each.count) for each in found.ranges) for found in tops]
    found = [
        RangeChange(
            name,
            int(counts[0].get(name, 0)),
            int(counts[1].get(name, 0)),
            change(sides[0].get(name, 0.0) / 1e3, sides[1].get(name, 0.0) / 1e3),
        )
        for name in {**sides[0], **sides[1]}
    ]
    yield from sorted(found, key=lambda each: -abs(each.time.us))


def _idle(tops: tuple[Top, Top], change: Change) -> Iterator[IdleChange]:
    fold = _folded(*({each.range for each in found.idle} for found in tops))
    sides = [
        _totals(((each.cause, each.call, fold(each.range)), each.total_ns) for each in found.idle) for found in tops
    ]
    found = [
        IdleChange(*key, change(sides[0].get(key, 0.0) / 1e3, sides[1].get(key, 0.0) / 1e3))
        for key in {**sides[0], **sides[1]}
    ]
    yield from sorted(found, key=lambda each: -abs(each.time.us))


def _totals(items: Iterable[tuple[K, float]]) -> dict[K, float]:
    found: dict[K, float] = defaultdict(float)
    for key, value in items:
        found[key] += value
    return dict(found)


def _folded(a: set[str | None], b: set[str | None]) -> Callable[[str | None], str | None]:
    """Names of ranges as they are matched: of one that a side lacks the numbers are left out, for they count calls."""
    both = a & b
    names = {name: name if name is None or name in both else _NUMBER.sub("#", name) for name in a | b}
    return names.__getitem__
