"""Whether the present tree is slower than a baseline by more than what is allowed, case by case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fiprof.analysis.comparison.measured_result import ComparedCase, MeasuredComparison
from fiprof.analysis.comparison.statistics import Difference, Outcome, processes_for
from fiprof.model.manifest import Manifest
from fiprof.model.wording import Worded


class Decision(Worded):
    """What is said of a case, the gravest first."""

    FAILED = "failed"
    """The present tree has it and cannot run it, or its result is wrong."""
    SLOWER = "slower"
    """By the limit or more, and by more than the noise."""
    GONE = "gone"
    """The present tree does not have it."""
    CANNOT_TELL = "cannot_tell", "cannot tell"
    """The noise leaves room for more than the limit."""
    NEW = "new"
    """The baseline does not have it, or cannot run it."""
    WITHIN = "within", "within limit"
    """Slower by more than the noise and less than the limit."""
    FASTER = "faster"
    PASSED = "passed"
    """No difference was found, and the limit lies outside its interval."""


DOUBTS = (Decision.GONE, Decision.CANNOT_TELL)
"""What passes with a warning, and fails a strict gate."""


@dataclass(frozen=True)
class GatedCase:
    """One case of either side."""

    case: str
    """Its id in the present tree; in the baseline's where it is gone."""
    decision: Decision
    compared: ComparedCase | None = None
    """None where a side does not have it."""
    processes_needed: int | None = None
    """Processes a side that decide a case that CANNOT_TELL, if difference and spread stay what they are."""
    reason: str = ""
    """Why it was not measured, in one line."""

    @property
    def difference_pct(self) -> float:
        """Percent of the baseline's time; 0 where a side does not have it."""
        return self.compared.difference.difference_pct if self.compared else 0.0


@dataclass(frozen=True)
class Gate:
    """What a gate measured and decided."""

    against: str
    """Name of the baseline, or the side that was named in its place."""
    max_slowdown_pct: float
    strict: bool
    run: Manifest
    """Of the run in which it was measured."""
    comparison: MeasuredComparison
    cases: tuple[GatedCase, ...]
    """The gravest first, of one decision the slowest first."""

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
        """The decisions that fail it."""
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
