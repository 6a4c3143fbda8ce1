"""What ncu is to profile of a program: few launches that stand for most of the GPU's time."""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fiprof.analysis.trace import SEPARATOR, CaseShape, calls, phases, stand_ins, sums
from fiprof.model.arrays import Kinds, numbers
from fiprof.model.ranks import COLLECTIVE
from fiprof.model.run import Run, Shape
from fiprof.model.selection import by_key
from fiprof.model.settings import ProfileSettings
from fiprof.model.spans import NOTHING
from fiprof.text import kernel_identity

KEYS = ["kernel_mangled", "kernel", "kernel_full", "grid", "block"]
CLOSE = 1.25  # times as long, or as short, as a chosen grid another may take to need none of its own
MOST_NUMBERS = 200  # launches to choose from along grids that change


@dataclass(frozen=True)
class Group:
    """The launches of one kernel with one grid and block, as a trace has them."""

    name: str  # mangled
    kernel: str
    kernel_full: str
    grid: str
    block: str
    count: int
    total_ns: int

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count

    @property
    def shape(self) -> Shape:
        """What makes a launch one of the group's: ``kernel_identity``, grid and block."""
        return kernel_identity(self.kernel, self.kernel_full), self.grid, self.block


class Filter(NamedTuple):
    """Which launches ncu is to take: of some kernels those with given numbers, or else of each grid and block the first
    ones after ``skip``."""

    names: tuple[str, ...]  # mangled
    skip: int
    invocations: tuple[int, ...] = ()  # as ncu counts the launches of a name
    alone: bool = False  # whether only the program's first process launches any


@dataclass(frozen=True)
class LaunchChoice:
    """What ncu is to profile, and what is known of it beforehand."""

    groups: tuple[Group, ...]  # of which a launch is profiled, those with most time first
    grids: int  # how many groups these stand for
    filter: Filter
    launches: int  # that ncu will profile
    cover: float  # share of the time of all kernels that these groups have
    estimated_s: float  # that the launches take under ncu, beyond the program's own time
    all_s: float  # that all launches of the program would take
    collectives: tuple[str, ...]
    """Kernels left out: under kernel replay, which runs one at a time again and again, they hang."""
    collectives_share: float  # of the kernels' time
    too_long: bool  # whether the limits ended it before the wanted share was reached


Names = Mapping[str, Sequence[Group]]  # mangled name -> groups, or the group of each of its launches in their order
Cost = Callable[[Group], float]  # what a launch of a group takes under ncu: seconds, or its part of what all may take


def choose(
    groups: Sequence[Group],
    wanted: ProfileSettings,
    total_ns: int,
    *,
    budget_s: float,
    cost_s: Cost,
    orders: Callable[[], Names | None] = lambda: None,
) -> LaunchChoice:
    """The kernels whose launches stand for the wanted share of the GPU's time at the least cost.

    groups: that may be chosen from. total_ns: of all kernels of the trace. budget_s: seconds that their launches may
    take. orders: the group of each launch; gives None where launches cannot be told by their number.
    """
    collectives = [group for group in groups if COLLECTIVE.search(group.name)]
    fitting = [group for group in groups if group not in collectives]
    if (pattern := wanted.kernel) is not None:
        fitting = [each for each in fitting if re.search(pattern, each.kernel) or re.search(pattern, each.name)]
    goal_ns = wanted.cover_pct / 100 * _time(fitting)
    once_ns = _time(group for group in fitting if group.count == 1)
    skip = wanted.skip if wanted.skip is not None else int(once_ns <= _time(fitting) - goal_ns)
    by_name = by_key((group.name, group) for group in fitting if group.count > skip)
    times: dict[CaseShape, tuple[int, int]]
    times = {(None, each.shape): (each.count, each.total_ns) for of in by_name.values() for each in of}

    def spends(group: Group) -> float:
        return max(cost_s(group) / budget_s, 1 / (wanted.launches or math.inf))

    def stood_for(selected: Sequence[Group]) -> list[int]:
        """ns of each group that these stand for."""
        return [times[each][1] for each in stand_ins(times, {(None, group.shape) for group in selected})]

    selected, numbers = _every_grid(by_name, goal_ns, spends, wanted.count, skip), list[int]()
    # One launch a name is the least: more of them where grids change.
    more = len(selected) > len({group.name for group in selected}) or _time(selected) < goal_ns
    if wanted.count == 1 and more and (order := orders()):
        along, picked = _along(by_name, goal_ns, spends, skip, order)
        # A grid tells more of itself than another near it: what is told by others has to be more, or at half the cost.
        covered_ns, covered_along_ns = (min(sum(stood_for(each)), goal_ns) for each in (selected, along))
        half = covered_along_ns == covered_ns and 2 * sum(map(spends, along)) < sum(map(spends, selected))
        if covered_along_ns > 1.1 * covered_ns or half:
            selected, numbers = along, picked
    chosen = sorted(set(selected), key=lambda group: (-group.total_ns, group.name, group.grid))
    stood = stood_for(chosen)
    return LaunchChoice(
        groups=tuple(chosen),
        grids=len(stood),
        filter=Filter(tuple(dict.fromkeys(group.name for group in chosen)), skip, tuple(numbers)),
        launches=len(selected),
        cover=sum(stood) / max(total_ns, 1),
        estimated_s=sum(map(cost_s, selected)),
        all_s=sum(group.count * cost_s(group) for group in groups),
        collectives=tuple(dict.fromkeys(group.kernel for group in collectives)),
        collectives_share=_time(collectives) / max(total_ns, 1),
        too_long=sum(stood) < min(goal_ns, sum(map(_time, by_name.values()))),
    )


def _every_grid(by_name: Names, goal_ns: float, spends: Cost, count: int, skip: int) -> list[Group]:
    """Launches of each grid and block of the names that tell most for what they take, less what is not needed."""
    launches = {
        name: [each for each in of for _ in range(min(count, each.count - skip))] for name, of in by_name.items()
    }
    time_ns = {name: _time(of) for name, of in by_name.items()}
    spent = {name: sum(map(spends, of)) for name, of in launches.items()}
    chosen: list[str] = []
    for name in sorted(by_name, key=lambda name: -time_ns[name] / spent[name]):
        if sum(map(time_ns.__getitem__, chosen)) < goal_ns and sum(map(spent.__getitem__, (*chosen, name))) <= 1:
            chosen.append(name)
    for name in sorted(chosen, key=time_ns.__getitem__):
        if sum(time_ns[other] for other in chosen if other != name) >= goal_ns:
            chosen.remove(name)
    return [each for name in chosen for each in launches[name]]


def _along(by_name: Names, goal_ns: float, spends: Cost, skip: int, orders: Names) -> tuple[list[Group], list[int]]:
    """Launches of some names by their number: a few along grids that grow, those that most time is close to first.

    A number, from 1, picks a launch of every name, for ncu takes one list of numbers.
    """
    names: list[str] = []
    for name in sorted(by_name, key=lambda name: -_time(by_name[name])):
        fits = sum(spends(by_name[each][0]) for each in (*names, name)) <= 1
        if fits and _time(group for each in names for group in by_name[each]) < goal_ns:
            names.append(name)
    near: dict[Group, list[Group]] = {}
    places: dict[Group, list[int]] = {}  # of each group's launches among those of its name
    for name in names:
        by_time = sorted(by_name[name], key=lambda group: group.mean_ns)
        means = [group.mean_ns for group in by_time]
        for group in by_time:
            first, last = bisect_left(means, group.mean_ns / CLOSE), bisect_right(means, group.mean_ns * CLOSE)
            near[group] = by_time[first:last]
        places |= by_key((group, number) for number, group in enumerate(orders[name]))
    # Of each grid the launch in the middle.
    numbers = sorted({places[group][len(places[group]) // 2] for group in near})
    meets = {
        number + 1: [orders[name][number] for name in names if number < len(orders[name])]
        for number in numbers[:: 1 + len(numbers) // MOST_NUMBERS]
        if number >= skip
    }
    spent = {number: sum(map(spends, met)) for number, met in meets.items()}
    time_left, picked = {group: group.total_ns for group in near}, list[int]()
    enough = sum(time_left.values()) - goal_ns
    while sum(time_left.values()) > enough:
        gain = {group: sum(time_left[other] for other in near[group]) for group in near}
        worth = {
            number: sum(gain.get(group, 0) for group in met) / spent[number]
            for number, met in meets.items()
            if sum(map(spent.__getitem__, (*picked, number))) <= 1
        }
        best = max(worth, key=worth.__getitem__, default=NOTHING)
        if not worth.get(best):
            break
        picked.append(best)
        time_left.update((other, 0) for group in meets[best] for other in near.get(group, ()))
    return [group for number in picked for group in meets[number]], sorted(picked)


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
        inside = [bool(names.intersection(path.split(SEPARATOR))) for path in phases(run)]
        kernels = kernels.filter(np.append(inside, False)[calls(run).phases_of(calls(run).of("kernels"))])
    rows = sums(kernels, KEYS).to_pylist()
    return [Group(*row.values()) for row in rows if row["kernel_mangled"]], total_ns


def launch_orders(run: Run, groups: Sequence[Group]) -> Names | None:
    """The groups of each name's launches, in their order; None where several processes launch, or CUDA graphs."""
    import numpy as np

    of = {tuple(getattr(group, key) for key in ("name", *KEYS[1:])): group for group in groups}
    kernels = run.table("kernels", [*KEYS, "pid", "correlation", "start_ns", "graph_node"])
    pids, correlations, starts = (numbers(kernels[name]) for name in ("pid", "correlation", "start_ns"))
    if len(np.unique(pids)) != 1 or kernels["graph_node"].null_count < len(kernels):
        return None
    kinds = Kinds()
    kind = kinds.of(kernels.select(KEYS))
    by_kind = [of.get(key) for key in kinds.numbers]
    launched = (by_kind[number] for number in kind[np.lexsort((starts, correlations))].tolist())
    return by_key((group.name, group) for group in launched if group is not None)
