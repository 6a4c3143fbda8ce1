"""Which launches of a traced program ncu is to profile, so that few stand for most of the GPU's time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fiprof.analysis.program import Shape, shape
from fiprof.model import tables
from fiprof.model.layout import TABLES
from fiprof.model.ranks import COLLECTIVE
from fiprof.model.run import Run
from fiprof.model.settings import ProfileSettings
from fiprof.text import kernel_identity

LAUNCH_S = {"quick": 0.8, "full": 1.8}
"""Seconds that ncu takes for a launch, by its set: a Llama of 4 layers in bf16 on an H100."""
KEYS = ["kernel_mangled", "kernel", "kernel_full", "grid", "block"]


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
    def shape(self) -> Shape:
        """What makes a launch one of the group's: ``kernel_identity``, grid and block."""
        return kernel_identity(self.kernel, self.kernel_full), self.grid, self.block


@dataclass(frozen=True)
class Choice:
    """What ncu is to profile, and what is known of it beforehand.

    groups: those of the names chosen: ncu takes each grid and block of a name. launches: that ncu will profile; cover:
    the share of the time of all kernels that they stand for; foretold_s: seconds that they take under ncu, beyond the
    program's own; all_s: those that all launches would take.
    collectives: kernels left out, for under kernel replay, which runs one at a time again and again, they hang;
    collectives_share: of the kernels' time. too_long: the limits ended it before the wanted share was reached.
    """

    groups: tuple[Group, ...]
    skip: int
    launches: int
    cover: float
    foretold_s: float
    all_s: float
    collectives: tuple[str, ...]
    collectives_share: float
    too_long: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Mangled, those with most time first."""
        return tuple(dict.fromkeys(group.name for group in self.groups))


def choose(groups: Sequence[Group], wanted: ProfileSettings, total_ns: int) -> Choice:
    """The kernels whose launches stand for the wanted share of the GPU's time at the least cost.

    ncu's filter takes a kernel's name, and then a launch of each of its grids and blocks: so names are chosen, those
    with most time a launch first, and afterwards those dropped that the share does not need.
    groups: that may be chosen from. total_ns: of all kernels of the trace.
    """
    collectives = [group for group in groups if COLLECTIVE.search(group.name)]
    fitting = [group for group in groups if group not in collectives]
    if (pattern := wanted.kernel) is not None:
        fitting = [each for each in fitting if re.search(pattern, each.kernel) or re.search(pattern, each.name)]
    goal_ns = wanted.cover_pct / 100 * _time(fitting)
    once_ns = _time(group for group in fitting if group.count == 1)
    skip = wanted.skip if wanted.skip is not None else int(once_ns <= _time(fitting) - goal_ns)
    launch_s = LAUNCH_S[wanted.ncu_set]
    by_name: dict[str, list[Group]] = {}
    for group in fitting:
        if group.count > skip:
            by_name.setdefault(group.name, []).append(group)
    cost = {name: sum(min(wanted.count, group.count - skip) for group in members) for name, members in by_name.items()}
    time_ns = {name: _time(members) for name, members in by_name.items()}
    chosen: list[str] = []
    too_long = False
    for name in sorted(by_name, key=lambda name: -time_ns[name] / cost[name]):
        if sum(map(time_ns.__getitem__, chosen)) >= goal_ns:
            break
        launches = sum(map(cost.__getitem__, (*chosen, name)))
        if launches > (wanted.launches or launches) or launches * launch_s > wanted.ncu_budget_s:
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
        foretold_s=launches * launch_s,
        all_s=sum(group.count for group in groups) * launch_s,
        collectives=tuple(dict.fromkeys(group.kernel for group in collectives)),
        collectives_share=_time(collectives) / max(total_ns, 1),
        too_long=too_long and _time(taken) < goal_ns,
    )


def _time(groups: Iterable[Group]) -> int:
    return sum(group.total_ns for group in groups)


def traced_groups(folder: Path, ranges: Sequence[str]) -> tuple[list[Group], int]:
    """The groups of a run's trace, and the time of all its kernels in ns.

    ranges: only kernels launched in one of these NVTX ranges, NAME or DOMAIN@NAME; all of them without.
    """
    import numpy as np
    import pyarrow.compute as pc

    from fiprof.analysis.trace import SEPARATOR, kernel_phases, phases, sums

    run = Run(folder)
    kernels = run.table("kernels", [*KEYS, "duration_ns"])
    total_ns = pc.sum(kernels["duration_ns"]).as_py() or 0
    if ranges:
        names = {name.rpartition("@")[2] for name in ranges}
        inside = [bool(names.intersection(path.split(SEPARATOR))) for path in phases(run).paths]
        kernels = kernels.filter(np.append(inside, False)[kernel_phases(run)])
    found = sums(kernels.unify_dictionaries(), KEYS).to_pylist()
    return [Group(*row.values()) for row in found if row["kernel_mangled"]], total_ns


def profiled(folder: Path, report: int) -> list[Shape]:
    """What each launch of one of ncu's reports is: ``kernel_identity``, grid and block."""
    found = tables.read(folder / TABLES, "launches", ["kernel", "kernel_full", "grid", "block", "file"])
    return [shape(row) for row in found.to_pylist() if (row["file"] or 0) == report]
