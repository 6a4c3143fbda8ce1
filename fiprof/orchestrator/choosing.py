"""What ncu is to profile of a program: few launches that stand for most of the GPU's time."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fiprof.analysis.trace import SEPARATOR, CaseShape, Shape, kernel_phases, phases, stand_ins, sums
from fiprof.model.arrays import Kinds, numbers
from fiprof.model.ranks import COLLECTIVE
from fiprof.model.run import Run
from fiprof.model.settings import ProfileSettings
from fiprof.model.spans import NOTHING
from fiprof.text import kernel_identity

KEYS = ["kernel_mangled", "kernel", "kernel_full", "grid", "block"]
CLOSE = 1.25
"""Times as long, or as short, as a chosen grid another may take to need none of its own."""

MOST_NUMBERS = 200
"""Launches to choose from along grids that change."""


@dataclass(frozen=True)
class Group:
    """The launches of one kernel with one grid and block, as a trace has them. name: mangled."""

    name: str
    kernel: str
    kernel_full: str
    grid: str
    block: str
    count: int
    total_ns: int

    @property
    def mean_ns(self) -> float:
        """Time of a launch."""
        return self.total_ns / self.count

    @property
    def shape(self) -> Shape:
        """What makes a launch one of the group's: ``kernel_identity``, grid and block."""
        return kernel_identity(self.kernel, self.kernel_full), self.grid, self.block


@dataclass(frozen=True)
class Filter:
    """Which launches ncu is to take: of kernels of these mangled names some by their number, or else of each grid and
    block the first ones after ``skip``. invocations: as ncu counts the launches of a name."""

    names: tuple[str, ...]
    skip: int
    invocations: tuple[int, ...] = ()


@dataclass(frozen=True)
class Choice:
    """What ncu is to profile, and what is known of it beforehand.

    groups: of which a launch is profiled, those with most time first; grids: how many groups they stand for; cover: the
    share of the time of all kernels that these have. launches: that ncu will profile; foretold_s: seconds that they
    take under ncu, beyond the program's own; all_s: those that all launches would take.
    collectives: kernels left out, for under kernel replay, which runs one at a time again and again, they hang;
    collectives_share: of the kernels' time. too_long: the limits ended it before the wanted share was reached.
    """

    groups: tuple[Group, ...]
    grids: int
    filter: Filter
    launches: int
    cover: float
    foretold_s: float
    all_s: float
    collectives: tuple[str, ...]
    collectives_share: float
    too_long: bool


Orders = Mapping[str, Sequence[Group]]
"""Mangled name -> the group of each of its launches, in their order."""


Cost = Callable[[Group], float]
"""Seconds that a launch of a group takes under ncu."""


class Limits(NamedTuple):
    """How much a plan may take."""

    launches: int | None
    seconds: float
    cost: Cost

    def hold(self, launches: int, seconds: float) -> bool:
        return launches <= (self.launches or launches) and seconds <= self.seconds


@dataclass(frozen=True)
class Plan:
    """A way to choose."""

    groups: Sequence[Group]
    grids: int
    launches: int
    seconds: float
    stands_for_ns: int
    invocations: tuple[int, ...] = ()


def choose(
    groups: Sequence[Group],
    wanted: ProfileSettings,
    total_ns: int,
    *,
    budget_s: float,
    cost: Cost,
    orders: Callable[[], Orders | None] = lambda: None,
) -> Choice:
    """The kernels whose launches stand for the wanted share of the GPU's time at the least cost.

    groups: that may be chosen from. total_ns: of all kernels of the trace. budget_s: seconds that their launches may
    take. orders: gives None where launches cannot be told by their number.
    """
    collectives = [group for group in groups if COLLECTIVE.search(group.name)]
    fitting = [group for group in groups if group not in collectives]
    if (pattern := wanted.kernel) is not None:
        fitting = [each for each in fitting if re.search(pattern, each.kernel) or re.search(pattern, each.name)]
    goal_ns = wanted.cover_pct / 100 * _time(fitting)
    once_ns = _time(group for group in fitting if group.count == 1)
    skip = wanted.skip if wanted.skip is not None else int(once_ns <= _time(fitting) - goal_ns)
    by_name: dict[str, list[Group]] = defaultdict(list)
    for group in fitting:
        if group.count > skip:
            by_name[group.name].append(group)
    limits = Limits(wanted.launches, budget_s, cost)
    plan = _every_grid(by_name, goal_ns, limits, wanted.count, skip)
    # One launch a name is the least: more of them where grids change.
    least = len({group.name for group in plan.groups})
    if wanted.count == 1 and (plan.launches > least or plan.stands_for_ns < goal_ns) and (order := orders()):
        along = _along(by_name, goal_ns, limits, skip, order)
        plan = max(plan, along, key=lambda each: (min(each.stands_for_ns, goal_ns), -each.seconds))
    taken = tuple(sorted(plan.groups, key=lambda group: -group.total_ns))
    return Choice(
        groups=taken,
        grids=plan.grids,
        filter=Filter(tuple(dict.fromkeys(group.name for group in taken)), skip, plan.invocations),
        launches=plan.launches,
        cover=plan.stands_for_ns / max(total_ns, 1),
        foretold_s=plan.seconds,
        all_s=sum(group.count * cost(group) for group in groups),
        collectives=tuple(dict.fromkeys(group.kernel for group in collectives)),
        collectives_share=_time(collectives) / max(total_ns, 1),
        too_long=plan.stands_for_ns < min(goal_ns, sum(map(_time, by_name.values()))),
    )


def _every_grid(by_name: Mapping[str, Sequence[Group]], goal_ns: float, limits: Limits, count: int, skip: int) -> Plan:
    """A launch of each grid and block of the names that tell most a second, less what the goal does not need."""
    launches = {name: sum(min(count, group.count - skip) for group in of) for name, of in by_name.items()}
    seconds = {
        name: sum(min(count, group.count - skip) * limits.cost(group) for group in of) for name, of in by_name.items()
    }
    time_ns = {name: _time(members) for name, members in by_name.items()}
    chosen: list[str] = []
    for name in sorted(by_name, key=lambda name: -time_ns[name] / seconds[name]):
        if sum(map(time_ns.__getitem__, chosen)) >= goal_ns:
            break
        both = (*chosen, name)
        if limits.hold(sum(map(launches.__getitem__, both)), sum(map(seconds.__getitem__, both))):
            chosen.append(name)
    for name in sorted(chosen, key=time_ns.__getitem__):
        if sum(time_ns[other] for other in chosen if other != name) >= goal_ns:
            chosen.remove(name)
    taken = [group for name in chosen for group in by_name[name]]
    count, spent_s = sum(map(launches.__getitem__, chosen)), sum(map(seconds.__getitem__, chosen))
    return Plan(taken, len(taken), count, spent_s, _time(taken))


def _along(by_name: Mapping[str, Sequence[Group]], goal_ns: float, limits: Limits, skip: int, orders: Orders) -> Plan:
    """Launches of some names by their number: a few along grids that grow, those that most time is close to first.

    A number picks a launch of every name, for ncu takes one list of numbers.
    """
    names: list[str] = []
    for name in sorted(by_name, key=lambda name: -_time(by_name[name])):
        if _time(group for each in names for group in by_name[each]) >= goal_ns:
            break
        if limits.hold(len(names) + 1, sum(limits.cost(by_name[each][0]) for each in (*names, name))):
            names.append(name)
    near: dict[Group, list[Group]] = {}
    for name in names:
        by_time = sorted(by_name[name], key=lambda group: group.mean_ns)
        means = [group.mean_ns for group in by_time]
        for group in by_time:
            first, last = bisect_left(means, group.mean_ns / CLOSE), bisect_right(means, group.mean_ns * CLOSE)
            near[group] = by_time[first:last]
    # Of each grid the launch in the middle.
    numbered = sorted({each[len(each) // 2] for name in names for each in _places(orders[name]).values()})
    meets = {
        number: [orders[name][number] for name in names if number < len(orders[name])]
        for number in numbered[:: 1 + len(numbered) // MOST_NUMBERS]
        if number >= skip
    }
    seconds = {number: sum(map(limits.cost, met)) for number, met in meets.items()}
    left, picked, launches, spent_s = {group: group.total_ns for group in near}, list[int](), 0, 0.0
    enough = sum(left.values()) - goal_ns
    while sum(left.values()) > enough:
        gain = {group: sum(left[other] for other in near[group]) for group in near}
        worth = {
            number: sum(gain.get(group, 0) for group in met) / seconds[number]
            for number, met in meets.items()
            if limits.hold(launches + len(met), spent_s + seconds[number])
        }
        best = max(worth, key=worth.__getitem__, default=NOTHING)
        if not worth.get(best):
            break
        picked.append(best)
        launches, spent_s = launches + len(meets[best]), spent_s + seconds[best]
        left.update((other, 0) for group in meets[best] for other in near.get(group, ()))
    met = dict.fromkeys(group for number in picked for group in meets[number] if group in near)
    times: dict[CaseShape, tuple[int, int]] = {(None, each.shape): (each.count, each.total_ns) for each in near}
    stood = stand_ins(times, {(None, group.shape) for group in met})
    stands_for_ns = sum(times[each][1] for each in stood)
    return Plan(tuple(met), len(stood), launches, spent_s, stands_for_ns, tuple(sorted(each + 1 for each in picked)))


def _places(order: Sequence[Group]) -> dict[Group, list[int]]:
    """At which places of an order each group stands."""
    found = defaultdict[Group, list[int]](list)
    for place, group in enumerate(order):
        found[group].append(place)
    return found


def _time(groups: Iterable[Group]) -> int:
    return sum(group.total_ns for group in groups)


def traced_groups(run: Run, ranges: Sequence[str]) -> tuple[list[Group], int]:
    """The groups of a run's trace, and the time of all its kernels in ns.

    ranges: only kernels launched in one of these NVTX ranges, NAME or DOMAIN@NAME; all of them without.
    """
    import numpy as np
    import pyarrow.compute as pc

    kernels = run.table("kernels", [*KEYS, "duration_ns"])
    total_ns = pc.sum(kernels["duration_ns"]).as_py() or 0
    if ranges:
        names = {name.rpartition("@")[2] for name in ranges}
        inside = [bool(names.intersection(path.split(SEPARATOR))) for path in phases(run).paths]
        kernels = kernels.filter(np.append(inside, False)[kernel_phases(run)])
    found = sums(kernels.unify_dictionaries(), KEYS).to_pylist()
    return [Group(*row.values()) for row in found if row["kernel_mangled"]], total_ns


def launch_orders(run: Run, groups: Sequence[Group]) -> Orders | None:
    """The groups of each name's launches, in their order; None where several processes launch, each by itself."""
    import numpy as np

    of = {tuple(getattr(group, key) for key in ("name", *KEYS[1:])): group for group in groups}
    kernels = run.table("kernels", [*KEYS, "pid", "correlation", "start_ns"])
    pids, correlations, starts = (numbers(kernels[name]) for name in ("pid", "correlation", "start_ns"))
    if len(np.unique(pids)) != 1:
        return None
    kinds = Kinds()
    kind = kinds.of(kernels.select(KEYS).unify_dictionaries())
    by_kind = [of.get(key) for key in kinds.numbers]
    found = defaultdict[str, list[Group]](list)
    for number in kind[np.lexsort((starts, correlations))].tolist():
        if (group := by_kind[number]) is not None:
            found[group.name].append(group)
    return found
