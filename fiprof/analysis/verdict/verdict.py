"""What binds each launch and each case of a run, with the evidence, how sure it is, and what to do next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fiprof.analysis import alternatives, checks
from fiprof.analysis.of_launch import OfLaunch
from fiprof.analysis.reasons import ReasonKind, kind_of
from fiprof.analysis.thresholds import BARELY, BUSY, CLOSE, DOMINANT_STALL, SATURATED, SHORT
from fiprof.analysis.verdict import measured, quoted_rules
from fiprof.analysis.verdict import steps as advice
from fiprof.analysis.verdict.cases import cases
from fiprof.analysis.verdict.model import CaseVerdict, Comparison, Confidence, Doubt, Kind, Verdict, compare
from fiprof.analysis.verdict.quoted_rules import QuotedRule
from fiprof.analysis.verdict.rules import judge
from fiprof.analysis.verdict.step import Step
from fiprof.analysis.verdict.steps import Situation
from fiprof.model.case_quantities import excess_bytes, excess_ops
from fiprof.model.finding import Finding
from fiprof.model.quantities import DURATION, STALL_SHARE, stall_share
from fiprof.model.run import Launch, Run


class VerdictWarning(StrEnum):
    """What limits the verdicts of a run."""

    NO_LAUNCHES = "no_launches"


@dataclass(frozen=True, kw_only=True)
class LaunchVerdict(OfLaunch, Verdict):
    """What binds a launch, how sure that is, and what to do about it."""

    iteration_share: float | None
    """Of the time of its iteration's kernels under ncu, 0 to 1; None without a case."""
    confidence: Confidence
    doubts: tuple[Finding, ...]
    """Why it is not surer."""
    steps: tuple[Step, ...]
    """What to do next: a measured alternative of its case, if there is one and it is the main kernel; then at most
    three whose gain is bounded, the largest first."""
    rules: tuple[QuotedRule, ...]
    """ncu's own rules with an estimate, the largest first, each with why it is no step."""


@dataclass(frozen=True)
class Verdicts:
    """A run's verdicts."""

    run: str
    launches: tuple[LaunchVerdict, ...]
    """In the order of the launches; empty without ncu."""
    cases: tuple[CaseVerdict, ...]
    warnings: tuple[Finding, ...] = ()
    """About the run."""

    def of(self, launch: int) -> LaunchVerdict | None:
        """The verdict of a launch by ncu's ID."""
        return next((item for item in self.launches if item.launch == launch), None)


def verdicts(run: Run, *, kernel: str = "") -> Verdicts:
    """What binds each launch of a run, in the order of the launches, and each case.

    kernel: only launches with this in the kernel's name or in their case; upper and lower case are the same.
    Raises FiprofError where the run has neither launches under ncu nor kernels under nsys, or no launch is left, or a
    table cannot be read.
    """
    launches = run.launches
    run.require_launches("counters or trace to judge", there=bool(launches or run.trace.cases))
    kept = run.launches_named(kernel) if launches else []
    of_cases = {case.case: case for case in cases(run)}
    failed = checks.failed(run)
    judges = _Judge(run, of_cases, checks.by_launch(failed))
    ids = {launch.case for launch in kept}
    warnings: list[Finding] = [*run.status_warning(), *checks.of_run(failed)]
    if not launches:
        warnings.append(Finding(VerdictWarning.NO_LAUNCHES, {"why": run.missing("ncu")}))
    return Verdicts(
        run=run.manifest.name,
        launches=tuple(judges.launch(launch) for launch in kept),
        cases=tuple(case for case in of_cases.values() if not kept or case.case in ids),
        warnings=tuple(warnings),
    )


class _Judge:
    """Judges the launches of a run."""

    def __init__(self, run: Run, of_cases: Mapping[str, CaseVerdict], failed: Mapping[int, Sequence[Finding]]) -> None:
        self.run = run
        self.cases = of_cases
        self.failed = failed
        self.rules = quoted_rules.by_launch(run)
        self.together: dict[tuple[str | None, int | None], float] = defaultdict(float)
        """Case and iteration -> the time of all its launches, µs."""
        self.longest: dict[str | None, float] = defaultdict(float)
        """Case -> its longest launch, µs."""
        kernels: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for launch in run.launches:
            duration = launch.duration_us or 0.0
            self.together[launch.case, launch.iteration] += duration
            self.longest[launch.case] = max(self.longest[launch.case], duration)
            kernels[launch.case or ""][launch.kernel] += duration
        self.main = {case: max(times, key=times.__getitem__) for case, times in kernels.items()}
        """Case -> the kernel that takes most of its time."""
        self.excess = {case.id: (excess_ops(run, case), excess_bytes(run, case)) for case in run.cases}

    def launch(self, launch: Launch) -> LaunchVerdict:
        case = self.cases.get(launch.case or "")
        stalls = self._stalls(launch)
        found = judge(
            launch,
            stall=stalls[0] if stalls else None,
            waiting=case.waiting if case else None,
            names=self.run.metric_name,
        )
        ops, moved = self._excess(launch)
        rules = quoted_rules.weighed(self.rules.get(launch.launch, ()), found, launch, moved)
        situation = Situation(
            row=launch,
            names=self.run.metric_name,
            verdict=found,
            stalls=stalls,
            rules=rules,
            excess_ops=ops,
            excess_bytes=moved,
            case=case,
        )
        steps = (*self._measured(launch), *advice.steps(situation))
        doubts = tuple(_doubts(found, launch, self.failed.get(launch.launch, ())))
        return LaunchVerdict(
            **vars(found),
            row=launch,
            iteration_share=self._share(launch),
            confidence=_confidence(found, doubts),
            doubts=doubts,
            steps=steps,
            rules=advice.with_steps(rules, steps),
        )

    def _measured(self, launch: Launch) -> tuple[Step, ...]:
        found = alternatives.of_run(self.run).get(launch.case or "")
        return (measured.step(found),) if found and launch.kernel == self.main[launch.case or ""] else ()

    def _stalls(self, launch: Launch) -> tuple[Comparison, ...]:
        """The shares of the warps' stalls, the largest first; ready and issuing warps are none."""
        shares = [
            compare(STALL_SHARE, stall_share(launch, item.reason, item.share), DOMINANT_STALL, item.reason)
            for item in self.run.stall_reasons.get(launch.launch, ())
            if item.share is not None and kind_of(item.reason) == ReasonKind.STALL
        ]
        return tuple(sorted(shares, key=lambda each: (-each.value, str(each.of))))

    def _share(self, launch: Launch) -> float | None:
        if launch.case is None or launch.duration_us is None:
            return None
        together = self.together[launch.case, launch.iteration]
        return launch.duration_us / together if together else None

    def _excess(self, launch: Launch) -> tuple[float | None, float | None]:
        """The excess of its case, where it is the kernel that takes most of its time: the cost model is about that."""
        duration = launch.duration_us
        if not duration or duration < self.longest[launch.case] / 2:
            return None, None
        return self.excess.get(launch.case or "", (None, None))


def _doubts(found: Verdict, launch: Launch, failed: Sequence[Finding]) -> list[Finding]:
    """Why a verdict is not surer."""
    of_host = found.kind is Kind.LAUNCH
    # Counters are no evidence of what happens between kernels.
    doubts: list[Finding] = [] if of_host else list(failed)
    if found.kind is Kind.UNKNOWN:
        doubts.append(Finding(Doubt.UNKNOWN))
    margin = found.margin_points
    if margin is not None and 0 <= margin < CLOSE.value and found.runner_up is not None:
        close = Doubt.BARELY if margin < BARELY.value else Doubt.CLOSE
        doubts.append(Finding(close, {"margin_points": margin, "runner_up": found.runner_up.finding}))
    decided = found.evidence[0] if found.evidence else None
    if found.kind in (Kind.COMPUTE, Kind.MEMORY) and decided and BUSY.value <= decided.value < SATURATED.value:
        doubts.append(Finding(Doubt.NOT_SATURATED, {"part": found.part, "use": decided.number}))
    duration = launch.traced(DURATION)
    if duration is not None and duration.value < SHORT.value and not of_host:
        doubts.append(Finding(Doubt.SHORT, {"duration": duration}))
    if found.missing and not of_host:
        doubts.append(Finding(Doubt.MISSING, {"columns": found.missing}))
    return doubts


def _confidence(found: Verdict, doubts: Sequence[Finding]) -> Confidence:
    margin = found.margin_points
    if found.kind is Kind.UNKNOWN or (margin is not None and 0 <= margin < BARELY.value):
        return Confidence.LOW
    return Confidence.MEDIUM if doubts else Confidence.HIGH
