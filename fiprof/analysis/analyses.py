"""The analyses of a run, each made once; and its launches, alike ones folded."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from fiprof.analysis.frames import OfRun
from fiprof.analysis.roofline import LaunchRoofline, Rooflines, roofline
from fiprof.analysis.show import Figures, show
from fiprof.analysis.stalls import LaunchStalls, stalls
from fiprof.analysis.timeline import Timeline, timeline
from fiprof.analysis.verdict.verdict import Verdicts, verdicts
from fiprof.model.run import Launch, Run
from fiprof.model.selection import EVERYTHING, Selection
from fiprof.model.times import Times, summarize

MOST_SHOWN = 200
"""Launches that a page analyses one by one."""


@dataclass(frozen=True)
class Group:
    """Launches of the same kernel in the same case with the same grid and block, under ncu."""

    case: str | None
    """Case id; None outside the cases' ranges."""
    label: str
    """The case in short."""
    kernel: str
    kernel_full: str
    grid: str
    block: str
    launches: tuple[Launch, ...]
    """In the order of the run."""

    @cached_property
    def median(self) -> Launch:
        """The launch whose duration is the median (of two the shorter): its figures stand for the group's."""
        ordered = sorted(self.launches, key=lambda launch: launch.duration_us or 0.0)
        return ordered[(len(ordered) - 1) // 2]

    @property
    def launch(self) -> int:
        """ncu's ID of that launch."""
        return self.median.launch

    @cached_property
    def times(self) -> Times | None:
        """Of all its launches, by ncu."""
        return summarize([us for launch in self.launches if (us := launch.duration_us) is not None])

    @property
    def total_us(self) -> float:
        """All its launches together, by ncu; 0 where no duration was collected."""
        return sum(launch.duration_us or 0.0 for launch in self.launches)

    @property
    def anchor(self) -> str:
        """Of its part of the report."""
        return f"launch-{self.launch}"


class Analyses:
    """What is known of a run. Raises FiprofError for a table that is there and cannot be read."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The launches under ncu, alike ones folded, in the order of their first launch."""
        found: dict[tuple[str | None, str, str, str, str], list[Launch]] = defaultdict(list)
        for each in self.run.launches:
            found[each.case, each.kernel, each.kernel_full, each.grid, each.block].append(each)
        return tuple(
            Group(key[0], self.run.labels(key[0]), *key[1:], tuple(launches)) for key, launches in found.items()
        )

    @cached_property
    def longest(self) -> tuple[Group, ...]:
        """The same, the one first that takes most time of an iteration."""
        return tuple(sorted(self.groups, key=lambda group: -(group.total_us / max(self.iterations(group), 1))))

    def iterations(self, group: Group) -> int:
        """Iterations of its case that ncu saw."""
        return len({each.iteration for each in self.run.launches_of(group.case)}) if group.case else 1

    @cached_property
    def shown(self) -> Selection:
        """The launches that a page has room for: all of them, or of many those that stand for the longest groups."""
        if len(self.run.launches) <= MOST_SHOWN:
            return EVERYTHING
        return Selection(launches=tuple(group.launch for group in self.longest[:MOST_SHOWN]))

    @cached_property
    def verdicts(self) -> Verdicts:
        """Of the launches shown, and of every case; none where the run has nothing to judge. Raises FiprofError for a
        table that cannot be read."""
        if self.run.launches or self.run.trace.cases:
            return verdicts(self.run, wanted=self.shown)
        return Verdicts(self.run.manifest.name, (), ())

    @cached_property
    def roofs(self) -> Rooflines:
        """The launches shown on the roofs. Raises FiprofError without ncu."""
        return roofline(self.run, wanted=self.shown)

    @cached_property
    def rooflines(self) -> dict[int, LaunchRoofline]:
        """Launch -> its place on the roofs; empty without ncu."""
        return {item.launch: item for item in self.roofs.launches} if self.run.launches else {}

    @cached_property
    def stalls(self) -> OfRun[LaunchStalls]:
        """What ``fiprof stalls`` shows of the launches shown. Raises FiprofError without any."""
        return stalls(self.run, wanted=self.shown)

    @cached_property
    def timeline(self) -> Timeline:
        """What nsys saw, every phase. Raises FiprofError for a table that cannot be read."""
        return timeline(self.run, phase="all")

    @cached_property
    def stall_mixes(self) -> dict[int, LaunchStalls]:
        """Launch -> its stall mix; empty without any."""
        return {item.launch: item for item in self.stalls.launches} if self.run.stall_reasons else {}

    @cached_property
    def figures(self) -> Figures:
        """What ``fiprof show`` shows of the launches shown."""
        return show(self.run, wanted=self.shown)
