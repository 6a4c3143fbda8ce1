"""What a collect or a profile is asked to do, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fiprof.model.settings import CollectSettings, ProfileSettings
from fiprof.workloads.case import Case


@dataclass(frozen=True)
class CollectRequest(CollectSettings):
    """One run: the cases, the tools and how they are to measure."""

    cases: tuple[Case, ...] = field(kw_only=True)

    @property
    def label(self) -> str:
        """What the run folder's name ends in: the workloads, or ``all``."""
        from fiprof.workloads.case import short_name
        from fiprof.workloads.registry import builtin

        names = list(dict.fromkeys(short_name(case.workload) for case in self.cases))
        if set(names) == set(builtin()):
            return "all"
        return "-".join(names) if len(names) <= 3 else f"{names[0]}-and-{len(names) - 1}-more"


@dataclass(frozen=True)
class ProfileRequest(ProfileSettings):
    """A program of the user's."""

    program: tuple[str, ...] = field(kw_only=True)
    """Its command line, as typed."""

    @property
    def label(self) -> str:
        """What the run folder's name ends in."""
        from fiprof.orchestrator.environment import program_name

        return program_name(self.program)

    @property
    def parts(self) -> tuple[ProfileRequest, ...]:
        """What ncu is run for: once, or for each range with its part of the limits."""
        if not self.by_range:
            return (self,)
        budget_s = self.ncu_budget_s / len(self.ranges)
        launches = self.launches and max(self.launches // len(self.ranges), 1)
        return tuple(replace(self, ranges=(name,), ncu_budget_s=budget_s, launches=launches) for name in self.ranges)
