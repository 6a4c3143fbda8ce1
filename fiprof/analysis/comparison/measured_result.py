"""What ``fiprof compare --measure`` measured, ``result.json`` of its run folder, and what ``fiprof gate`` decides."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean, stdev
from typing import Any, Literal

from fiprof.analysis.comparison.statistics import LEAST_PROCESSES, Difference, Outcome, differences, processes_for
from fiprof.model import json_file, layout
from fiprof.model.finding import Wording
from fiprof.model.json_file import SCHEMA
from fiprof.model.manifest import Environment, Manifest

MORE_BYTES = 1_000_000  # of device memory, from which a case takes more: torch gives 512 at least
HERE = "here"  # the side with nothing changed, as it is typed


@dataclass(frozen=True)
class Side:
    """One side: what was asked for, and what its processes found."""

    spec: str  # as typed
    commit: str | None = None  # that its ``git:`` means
    environment: dict[str, Any] = field(default_factory=dict, metadata={SCHEMA: Environment})
    """Of its first process: packages, gpu."""


@dataclass(frozen=True)
class ComparedCase:
    a: str  # case id on side A, and likewise B; a range's name, or ``wall``, of a program
    b: str
    a_us: tuple[float, ...]
    """Median time of each process of A in the order of time: of its rounds, each the median of its launches."""
    b_us: tuple[float, ...]
    difference: Difference
    slow_clock_rounds: int = 0  # rounds of all processes that count though the clock was not back
    a_host_us: tuple[float, ...] = ()
    """What launching one iteration took the host in each process of A, likewise; empty of programs."""
    b_host_us: tuple[float, ...] = ()
    host: Difference | None = None  # of these
    a_peak_bytes: int | None = None  # most device memory that torch gives for it at a time; None of programs
    b_peak_bytes: int | None = None

    @property
    def launching_pct(self) -> float:
        """By how much longer side B takes by its launches alone, percent of side A's: these take the host longer, and
        longer than the GPU; 0 where they do not."""
        if self.host is None or self.host.outcome is not Outcome.SLOWER:
            return 0.0
        # Where launches fill CUDA's queue, the host waits for the GPU.
        is_slower = self.difference.outcome is Outcome.SLOWER
        return 0.0 if is_slower or self.host_mean_us("b") <= self.mean_us("b") else self.host.difference_pct

    @property
    def memory_pct(self) -> float:
        """By how much more device memory side B takes, percent of side A's; 0 for less than MORE_BYTES."""
        a, b = self.a_peak_bytes or 0, self.b_peak_bytes or 0
        return 100 * (b / a - 1) if a and b - a >= MORE_BYTES else 0.0

    def mean_us(self, side: str) -> float:
        """The geometric mean of the processes of side ``a`` or ``b``, which differences are of."""
        return geometric_mean(self.a_us if side == "a" else self.b_us)

    def host_mean_us(self, side: str) -> float:
        """The same of what launching takes the host."""
        return geometric_mean(self.a_host_us if side == "a" else self.b_host_us)

    def spread_pct(self, side: str) -> float:
        """The spread between them: the standard deviation of the times' logarithms."""
        return 100 * math.expm1(stdev(map(math.log, self.a_us if side == "a" else self.b_us)))


@dataclass(frozen=True)
class FailedCase:
    """A case that a side cannot run, or whose result is wrong there: it is measured on neither."""

    a: str
    b: str
    side: Literal["a", "b"]  # the first of the sides on which it failed
    reason: str  # one line


@dataclass(frozen=True)
class MeasuredComparison:
    """The whole of ``result.json``."""

    a: Side
    b: Side
    cases: tuple[ComparedCase, ...]
    schedule: str
    """The processes in the order in which they started; of those kept warm each round draws another by order_seed."""
    rounds: int  # of each process; one of a program, which is not kept warm
    repeated_rounds: int  # rounds measured again, each by all processes, because the clock was not back in one
    kept_warm: bool  # whether processes were set up before the first round, and waited in between
    failed: tuple[FailedCase, ...] = ()
    explained: tuple[str, str] | None = None
    """Names of the runs of side A and B, profiled afterwards; None where that was not asked for."""
    schema_version: int = 1

    @property
    def processes(self) -> int:
        """A side."""
        return len(self.schedule) // 2

    def cases_of(self, outcome: Outcome) -> tuple[ComparedCase, ...]:
        return tuple(case for case in self.cases if case.difference.outcome is outcome)


Times = Sequence[Sequence[float]]  # of each process the time of every case, µs


def compared(
    names: Iterable[tuple[str, str]], a: Times, b: Times, hosts: tuple[Times, Times] | None = None
) -> tuple[ComparedCase, ...]:
    """The cases with their differences. names: case ids of both sides. a, b: of LEAST_PROCESSES at least. hosts: what
    launching took the host, of A and B likewise; None where it was not measured."""
    if min(len(a), len(b)) < LEAST_PROCESSES:
        raise ValueError(f"{len(a)} and {len(b)} processes tell nothing apart")
    columns = zip(names, zip(*a, strict=True), zip(*b, strict=True), differences(a, b), strict=True)
    cases = tuple(ComparedCase(*pair, a_us, b_us, difference) for pair, a_us, b_us, difference in columns)
    if hosts is None:
        return cases
    of_hosts = zip(cases, *(zip(*each, strict=True) for each in hosts), differences(*hosts), strict=True)
    return tuple(replace(case, a_host_us=a_us, b_host_us=b_us, host=of) for case, a_us, b_us, of in of_hosts)


def read_comparison(folder: Path) -> MeasuredComparison:
    """The result of a comparison's run folder. Raises FiprofError where there is none."""
    makes = "fiprof compare --measure A B makes one"
    return json_file.read(folder / layout.COMPARISON, MeasuredComparison, "restore it from a copy", makes=makes)


class Decision(Wording):
    """What is said of a case, the gravest first."""

    FAILED = "failed"  # the present tree has it and cannot run it, or its result is wrong
    SLOWER = "slower"  # by the limit or more, and by more than the noise
    GONE = "gone"  # the present tree does not have it
    LAUNCHING = "launching", "launching grew"  # the GPU's time did not, but launching takes so much longer
    MEMORY = "memory", "memory grew"  # likewise its device memory
    CANNOT_TELL = "cannot_tell", "cannot tell"  # the noise leaves room for more than the limit
    NEW = "new"  # the baseline does not have it, or cannot run it
    WITHIN = "within", "within limit"  # slower by more than the noise and less than the limit
    FASTER = "faster"
    PASSED = "passed"  # no difference was found, and the limit lies outside its interval


DOUBTS = (Decision.GONE, Decision.LAUNCHING, Decision.MEMORY, Decision.CANNOT_TELL)
"""What passes with a warning, and fails a strict gate."""


@dataclass(frozen=True)
class GatedCase:
    """One case of either side."""

    case: str  # its id in the present tree; in the baseline's where it is gone
    decision: Decision
    compared: ComparedCase | None = None  # None where a side does not have it
    processes_needed: int | None = None
    """Processes a side that decide a case that CANNOT_TELL, if difference and spread stay what they are."""
    reason: str = ""  # why it was not measured, in one line

    @property
    def difference_pct(self) -> float:
        """Percent of the baseline's time; 0 where a side does not have it."""
        return self.compared.difference.difference_pct if self.compared else 0.0


@dataclass(frozen=True)
class Gate:
    """What a gate measured and decided."""

    against: str  # name of the baseline, or the side that was named in its place
    max_slowdown_pct: float
    strict: bool
    run: Manifest  # of the run in which it was measured
    comparison: MeasuredComparison
    cases: tuple[GatedCase, ...]  # the gravest first, of one decision the slowest first

    def of(self, *decisions: Decision) -> tuple[GatedCase, ...]:
        return tuple(case for case in self.cases if case.decision in decisions)

    @property
    def slower(self) -> bool:
        return bool(self.of(Decision.SLOWER))

    @property
    def failed(self) -> bool:
        return bool(self.of(*self.failing))

    @property
    def failing(self) -> tuple[Decision, ...]:
        return (Decision.FAILED, Decision.SLOWER, *(DOUBTS if self.strict else ()))


def decide(difference: Difference, max_slowdown_pct: float) -> Decision:
    """What a case's difference means against a limit, in percent of the baseline's time.

    SLOWER takes both: the test finds a difference (of comparisons without any, at most FALSE_ALARMS in a hundred), and
    the estimate reaches the limit. The lower end of the interval may lie below the limit: were it asked to lie above,
    a case that is slower by 5% would pass a limit of 3% wherever the noise is 2%.
    """
    if difference.outcome is Outcome.SLOWER:
        return Decision.SLOWER if difference.difference_pct >= max_slowdown_pct else Decision.WITHIN
    if difference.outcome is Outcome.FASTER:
        return Decision.FASTER
    return Decision.PASSED if difference.high_pct < max_slowdown_pct else Decision.CANNOT_TELL


def gate(
    against: str,
    run: Manifest,
    comparison: MeasuredComparison,
    *,
    max_slowdown_pct: float,
    strict: bool,
    others: Iterable[GatedCase] = (),
) -> Gate:
    """The decisions on a comparison of another tree (A) with the present one (B). others: cases that one side lacks."""
    cases = []
    for compared in comparison.cases:
        of, needed = compared.difference, None
        decision = decide(of, max_slowdown_pct)
        if decision is not Decision.SLOWER and compared.launching_pct >= max_slowdown_pct:
            decision = Decision.LAUNCHING
        elif decision is not Decision.SLOWER and compared.memory_pct >= max_slowdown_pct:
            decision = Decision.MEMORY
        if decision is Decision.CANNOT_TELL:
            # Half of the interval has to become smaller than the difference, or than its distance to the limit.
            wanted_pct = max(of.difference_pct, max_slowdown_pct - of.difference_pct)
            needed = max(comparison.processes + 1, processes_for(wanted_pct, of.tells_pct, comparison.processes))
        cases.append(GatedCase(compared.b, decision, compared, needed))
    for failed in comparison.failed:
        decision = Decision.FAILED if failed.side == "b" else Decision.NEW
        cases.append(GatedCase(failed.b, decision, reason=failed.reason))
    cases += others
    order = list(Decision)
    cases.sort(key=lambda case: (order.index(case.decision), -case.difference_pct))
    return Gate(against, max_slowdown_pct, strict, run, comparison, tuple(cases))
