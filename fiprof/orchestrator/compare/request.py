"""What a comparison is asked to do, as one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fiprof.errors import FiprofError
from fiprof.model.settings import CompareSettings
from fiprof.orchestrator.compare.sides import SideSpec
from fiprof.orchestrator.program import program_name
from fiprof.workloads.case import Case, short_name


@dataclass(frozen=True)
class CompareRequest(CompareSettings):
    """Two sides, and how they are to be measured."""

    a: SideSpec = field(kw_only=True)
    b: SideSpec = field(kw_only=True)
    pairs: tuple[tuple[Case, Case], ...] = field(kw_only=True)
    """The cases of side A and side B; none of programs."""

    def side(self, letter: str) -> SideSpec:
        """letter: A or B."""
        return self.a if letter == "A" else self.b

    def cases(self, letter: str) -> tuple[Case, ...]:
        return tuple(pair[letter == "B"] for pair in self.pairs)

    @property
    def schedule(self) -> str:
        """``ABBAABBAAB`` for five a side: a drift over time falls on both alike, but for one place in five."""
        return ("ABBA" * self.processes)[: 2 * self.processes]

    @property
    def label(self) -> str:
        """What the run folder's name ends in."""
        names = list(dict.fromkeys(short_name(case.workload) for pair in self.pairs for case in pair))
        names = names or [program_name(self.a.program)]
        return f"compare-{'-'.join(names) if len(names) <= 3 else f'{names[0]}-and-{len(names) - 1}-more'}"


def pairs_of(a: SideSpec, b: SideSpec, common: Sequence[Case]) -> tuple[tuple[Case, Case], ...]:
    """The cases of both sides, each pair once; none of two programs.

    common: the cases that the sides change parameters of.
    Raises FiprofError (exit status 2) where there are none, or the sides do not go together.
    """
    if bool(a.program) != bool(b.program) or bool(a.case) != bool(b.case):
        what = "program" if a.program or b.program else "case"
        raise FiprofError(f"{what}: on one side only", f"{what}:… on both, or --kernel and params:", exit_code=2)
    if a.program:
        return ()
    found = tuple(dict.fromkeys(zip(a.cases(common), b.cases(common), strict=True)))
    if not found:
        raise FiprofError("which kernel?", "--kernel decode, or case:… on both sides", exit_code=2)
    return found
