"""The analyses of a run, each made once; and its launches, alike ones folded."""

import math
from functools import cached_property

from fiprof.analysis.roofline import LaunchRoofline, roofline
from fiprof.analysis.stalls import LaunchStalls, stalls
from fiprof.analysis.timeline import Timeline, timeline
from fiprof.analysis.verdict.verdict import LaunchVerdict, Verdicts, verdicts
from fiprof.model.run import Launch, Run
from fiprof.model.selection import EVERYTHING, Alike, Selection, alike

MOST_SHOWN = 200  # launches that a page analyses one by one
Group = Alike[Launch]
"""Launches of the same kernel in the same case with the same grid and block, however long each takes."""


class Analyses:
    """What is known of a run and of its launches shown."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The launches under ncu, alike ones folded, in the order of their first launch."""
        return tuple(alike(self.run.launches, wide=math.inf))

    @cached_property
    def longest(self) -> tuple[Group, ...]:
        """The same, the one first that takes most time of an iteration."""
        return tuple(sorted(self.groups, key=lambda group: -group.total_us / max(self.iterations(group), 1)))

    def iterations(self, group: Group) -> int:
        """Iterations of its case that ncu saw."""
        case = group.shown.case
        return len({each.iteration for each in self.run.launches_of[case]}) if case else 1

    @cached_property
    def shown(self) -> Selection:
        """The launches that a page has room for: all of them, or of many those that stand for the longest groups."""
        if len(self.run.launches) <= MOST_SHOWN:
            return EVERYTHING
        return Selection(launches=tuple(group.shown.launch for group in self.longest[:MOST_SHOWN]))

    @cached_property
    def verdicts(self) -> Verdicts:
        """Verdicts of launches, and of every case; none where the run has nothing to judge."""
        judged = self.run.launches or self.run.trace.cases
        return verdicts(self.run, wanted=self.shown) if judged else Verdicts(())

    @cached_property
    def judged(self) -> dict[int, LaunchVerdict]:
        """Launch -> its verdict; empty without ncu."""
        return {item.launch: item for item in self.verdicts.launches}

    @cached_property
    def rooflines(self) -> dict[int, LaunchRoofline]:
        """Launch -> its place on the roofs; empty without ncu."""
        if not self.run.launches:
            return {}
        return {item.launch: item for item in roofline(self.run, wanted=self.shown).launches}

    @cached_property
    def stall_mixes(self) -> dict[int, LaunchStalls]:
        """Launch -> its stall mix; empty without any."""
        if not self.run.stall_reasons:
            return {}
        return {item.launch: item for item in stalls(self.run, wanted=self.shown).launches}

    @cached_property
    def timeline(self) -> Timeline:
        """Kernels that nsys saw, every phase."""
        return timeline(self.run, phase="all", cells=0)
