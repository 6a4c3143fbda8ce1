"""What ``fiprof compare --measure`` measured: ``result.json`` of its run folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Literal

from fiprof.analysis.comparison.statistics import LEAST_PROCESSES, Difference, Outcome, differences
from fiprof.model import json_file
from fiprof.model.json_file import SCHEMA
from fiprof.model.layout import COMPARISON
from fiprof.model.manifest import Environment

SCHEMA_VERSION = 1

HERE = "here"
"""The side with nothing changed, as it is typed."""


@dataclass(frozen=True)
class Side:
    """One side: what was asked for, and what its processes found."""

    spec: str
    """As typed."""
    commit: str | None = None
    """That its ``git:`` means."""
    environment: dict[str, Any] = field(default_factory=dict, metadata={SCHEMA: Environment})
    """Of its first process: packages, gpu."""


@dataclass(frozen=True)
class ComparedCase:
    """One case of both sides."""

    a: str
    """Case id on side A, and likewise B; a range's name, or ``wall``, of a program."""
    b: str
    a_us: tuple[float, ...]
    """Median time of each process of A in the order of time: of its rounds, each of which is the median of its
    launches."""
    b_us: tuple[float, ...]
    difference: Difference
    slow_clock_rounds: int = 0
    """Rounds of all processes that count although the clock was not back: repeating did not help."""

    def mean_us(self, side: str) -> float:
        """The geometric mean of the processes of side ``a`` or ``b``, which differences are of."""
        return geometric_mean(self.a_us if side == "a" else self.b_us)


@dataclass(frozen=True)
class FailedCase:
    """A case that a side cannot run, or whose result is wrong there: it is measured on neither."""

    a: str
    b: str
    side: Literal["a", "b"]
    """The first of the sides on which it failed."""
    reason: str
    """One line."""


@dataclass(frozen=True)
class MeasuredComparison:
    """The whole of ``result.json``."""

    a: Side
    b: Side
    cases: tuple[ComparedCase, ...]
    schedule: str
    """The processes in the order of time, ``ABBAABBAAB``; of processes that were kept warm, in the first round. Each
    further round turns it round."""
    rounds: int
    """Of each process; one of a program, which is not kept warm."""
    repeated_rounds: int
    """Rounds that were measured again, each by all processes, because the clock was not back in one."""
    kept_warm: bool
    """Whether processes were set up before the first round, and waited in between."""
    failed: tuple[FailedCase, ...] = ()
    explained: tuple[str, str] | None = None
    """Names of the runs of side A and B, profiled afterwards; None where that was not asked for."""
    schema_version: int = SCHEMA_VERSION

    @property
    def processes(self) -> int:
        """A side."""
        return len(self.schedule) // 2

    def cases_of(self, outcome: Outcome) -> tuple[ComparedCase, ...]:
        return tuple(case for case in self.cases if case.difference.outcome is outcome)


def compared(
    names: Iterable[tuple[str, str]], a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]
) -> tuple[ComparedCase, ...]:
    """The cases with their differences.

    names: case ids of both sides. a, b: of each process the time of every case, µs; LEAST_PROCESSES at least.
    """
    if min(len(a), len(b)) < LEAST_PROCESSES:
        raise ValueError(f"{len(a)} and {len(b)} processes tell nothing apart")
    columns = zip(names, zip(*a, strict=True), zip(*b, strict=True), differences(a, b), strict=True)
    return tuple(ComparedCase(*pair, a_us, b_us, difference) for pair, a_us, b_us, difference in columns)


def read_comparison(folder: Path) -> MeasuredComparison:
    """The result of a comparison's run folder. Raises FiprofError where there is none."""
    return json_file.read(
        folder / COMPARISON,
        MeasuredComparison,
        newest=SCHEMA_VERSION,
        makes="fiprof compare --measure A B makes one",
        damaged="is damaged or not fiprof's",
        remedy="restore it from a copy",
    )
