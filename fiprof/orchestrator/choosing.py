"""Which launches of a traced program ncu is to profile, so that few stand for most of the GPU's time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fiprof.model.collectives import COLLECTIVE

LAUNCH_S = {"quick": 0.8, "full": 1.8}
"""Seconds that ncu takes for a launch, by its set: a Llama of 4 layers in bf16 on an H100."""


@dataclass(frozen=True)
class Group:
    """The launches of one kernel with one grid and block, as a trace has them."""

    name: str
    """Mangled."""
    kernel: str
    """In short."""
    kernel_full: str
    grid: str
    block: str
    count: int
    total_ns: int


@dataclass(frozen=True)
class Wishes:
    """What the user asked for, see ``ProfileSettings``."""

    cover: float
    """0 to 1, of the time of the kernels that may be profiled."""
    launches: int | None
    budget_s: float
    launch_s: float
    """Seconds that a launch takes under ncu."""
    kernel: str | None
    """A regular expression."""
    skip: int | None
    count: int


@dataclass(frozen=True)
class Choice:
    """What ncu is to profile, and what is known of it beforehand."""

    groups: tuple[Group, ...]
    """With the names chosen: ncu takes each grid and block of a name."""
    skip: int
    launches: int
    """That ncu will profile."""
    cover: float
    """Share of the time of all kernels that they stand for."""
    foretold_s: float
    """Seconds that they take under ncu, beyond the program's own."""
    all_s: float
    """Seconds that all launches would take."""
    collectives: tuple[str, ...]
    """Kernels left out: under kernel replay, which runs one at a time again and again, they hang."""
    collectives_share: float
    """Of the kernels' time."""
    too_long: bool
    """Whether the limits ended it before ``cover`` was reached."""

    @property
    def names(self) -> tuple[str, ...]:
        """Mangled, those with most time first."""
        return tuple(dict.fromkeys(group.name for group in self.groups))


def choose(groups: Sequence[Group], wishes: Wishes, total_ns: int) -> Choice:
    """The kernels whose launches stand for the wished share of the GPU's time at the least cost.

    ncu's filter takes a kernel's name, and then a launch of each of its grids and blocks: so names are chosen, those
    with most time a launch first, and afterwards those dropped that the share does not need.
    groups: that may be chosen from. total_ns: of all kernels of the trace.
    """
    collectives = [group for group in groups if COLLECTIVE.search(group.name)]
    wanted = [group for group in groups if group not in collectives and _matches(wishes.kernel, group)]
    goal_ns = wishes.cover * _time(wanted)
    once_ns = _time(group for group in wanted if group.count == 1)
    skip = wishes.skip if wishes.skip is not None else int(once_ns <= _time(wanted) - goal_ns)
    by_name: dict[str, list[Group]] = {}
    for group in wanted:
        if group.count > skip:
            by_name.setdefault(group.name, []).append(group)
    cost = {name: sum(min(wishes.count, group.count - skip) for group in members) for name, members in by_name.items()}
    time_ns = {name: _time(members) for name, members in by_name.items()}
    chosen: list[str] = []
    too_long = False
    for name in sorted(by_name, key=lambda name: -time_ns[name] / cost[name]):
        if sum(map(time_ns.__getitem__, chosen)) >= goal_ns:
            break
        launches = sum(map(cost.__getitem__, (*chosen, name)))
        if launches > (wishes.launches or launches) or launches * wishes.launch_s > wishes.budget_s:
            too_long = True
        else:
            chosen.append(name)
    for name in sorted(chosen, key=time_ns.__getitem__):
        if sum(time_ns[other] for other in chosen if other != name) >= goal_ns:
            chosen.remove(name)
    taken = [group for name in chosen for group in by_name[name]]
    launches = sum(map(cost.__getitem__, chosen))
    return Choice(
        groups=tuple(sorted(taken, key=lambda group: -group.total_ns)),
        skip=skip,
        launches=launches,
        cover=_time(taken) / max(total_ns, 1),
        foretold_s=launches * wishes.launch_s,
        all_s=sum(group.count for group in groups) * wishes.launch_s,
        collectives=tuple(dict.fromkeys(group.kernel for group in collectives)),
        collectives_share=_time(collectives) / max(total_ns, 1),
        too_long=too_long and _time(taken) < goal_ns,
    )


def _time(groups: Iterable[Group]) -> int:
    return sum(group.total_ns for group in groups)


def _matches(pattern: str | None, group: Group) -> bool:
    return pattern is None or any(re.search(pattern, text) for text in (group.kernel, group.name))
