"""What binds each launch and each case of a run, with the evidence, how sure it is, and what to do next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fiprof.analysis import alternatives, checks, concurrency, instructions
from fiprof.analysis.check_rules import Check
from fiprof.analysis.of_launch import OfLaunch
from fiprof.analysis.program import StandIns, StandsFor, weights
from fiprof.analysis.reasons import ReasonKind, kind_of
from fiprof.analysis.thresholds import BESIDE, DOMINANT_STALL
from fiprof.analysis.verdict import measured, quoted_rules
from fiprof.analysis.verdict import steps as advice
from fiprof.analysis.verdict.cases import cases
from fiprof.analysis.verdict.doubts import confidence, doubts
from fiprof.analysis.verdict.model import CaseVerdict, Comparison, Confidence, Verdict, compare
from fiprof.analysis.verdict.quoted_rules import QuotedRule
from fiprof.analysis.verdict.rules import judge
from fiprof.analysis.verdict.situation import Situation
from fiprof.analysis.verdict.step import Step
from fiprof.model.case_quantities import excess_bytes, excess_ops
from fiprof.model.finding import Finding
from fiprof.model.floors import dram_use, floor, is_main, iterations
from fiprof.model.quantities import BESIDE as BESIDE_SHARE
from fiprof.model.quantities import STALL_SHARE, stall_share
from fiprof.model.run import Launch, Run
from fiprof.model.selection import EVERYTHING, Alike, Selection, alike


class VerdictWarning(StrEnum):
    """What limits the verdicts of a run."""

    NO_LAUNCHES = "no_launches"


@dataclass(frozen=True, kw_only=True)
class LaunchVerdict(OfLaunch, Verdict):
    """What binds a launch, how sure that is, and what to do about it."""

    iteration_share: float | None
    """Of the time of its iteration's kernels under ncu, 0 to 1; None without a case."""
    stands_for: StandsFor | None
    """Of a program's trace; None for a run with cases, or without a trace."""
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
    groups: tuple[Alike[LaunchVerdict], ...] = ()
    """Like launches, each group with the verdict of one; empty where every launch was judged."""

    def of(self, launch: int) -> LaunchVerdict | None:
        """The verdict of a launch by ncu's ID."""
        return next((item for item in self.launches if item.launch == launch), None)


def verdicts(run: Run, *, wanted: Selection = EVERYTHING, medians: bool = False) -> Verdicts:
    """What binds each launch of a run, in the order of the launches, and each case.

    medians: of like launches only that of median duration is judged, for all of them.
    Raises FiprofError where the run has neither launches under ncu nor kernels under nsys, or no launch is left, or a
    table cannot be read.
    """
    launches = run.launches
    run.require_launches("counters to judge", there=bool(launches or run.trace.cases))
    kept = run.selected(wanted, weights(run)) if launches else []
    of_cases = {case.case: case for case in cases(run)}
    failed = checks.failed(run)
    judges = _Judge(run, of_cases, failed)
    ids = {launch.case for launch in kept}
    warnings: list[Finding] = [*run.status_warning(), *checks.of_run(failed)]
    if not launches:
        warnings.append(Finding(VerdictWarning.NO_LAUNCHES, {"why": run.missing("ncu")}))
    groups = alike(kept, weights=weights(run)) if medians else []
    judged = tuple(judges.launch(each) for each in ([group.shown for group in groups] if medians else kept))
    return Verdicts(
        run=run.manifest.name,
        launches=judged,
        groups=tuple(group.for_all(each) for group, each in zip(groups, judged, strict=False)),
        cases=tuple(case for case in of_cases.values() if not kept or case.case in ids),
        warnings=tuple(warnings),
    )


class _Judge:
    """Judges the launches of a run."""

    def __init__(self, run: Run, of_cases: Mapping[str, CaseVerdict], failed: Sequence[Check]) -> None:
        self.run = run
        self.cases = of_cases
        self.failed: dict[str | int | None, list[Check]] = defaultdict(list)
        """Case, or launch -> the checks about it that failed."""
        for check in failed:
            self.failed[check.case if check.launch is None else check.launch].append(check)
        self.stand_ins = run.once(StandIns)
        self.rules = quoted_rules.by_launch(run)
        self.code = instructions.by_launch(run)
        self.floors = {case.id: floor(run, case.id) for case in run.cases}
        self.longest: dict[str | None, float] = defaultdict(float)
        """Case -> its longest launch, µs."""
        kernels: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for launch in run.launches:
            duration = launch.duration_us or 0.0
            self.longest[launch.case] = max(self.longest[launch.case], duration)
            kernels[launch.case or ""][launch.kernel] += duration
        self.main = {case: max(times, key=times.__getitem__) for case, times in kernels.items()}
        """Case -> the kernel that takes most of its time."""
        self.excess = {case.id: (excess_ops(run, case), excess_bytes(run, case)) for case in run.cases}

    def launch(self, launch: Launch) -> LaunchVerdict:
        case = self.cases.get(launch.case or "")
        stalls = self._stalls(launch)
        beside = concurrency.beside(self.run, launch.case, launch.kernel)
        found = judge(
            launch,
            stalls=stalls,
            waiting=case.waiting if case else None,
            copying=case.copying if case else None,
            beside=compare(BESIDE_SHARE, beside, BESIDE) if beside else None,
            dram=dram_use(self.run, launch),
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
            floor=self.floors.get(launch.case or "") if is_main(self.run, launch) else None,
            code=self.code.get(launch.launch),
        )
        steps = (*self._measured(launch), *advice.steps(situation))
        why = doubts(found, launch, [*self.failed[launch.launch], *(self.failed[launch.case] if launch.case else [])])
        return LaunchVerdict(
            **vars(found),
            row=launch,
            iteration_share=self._share(launch),
            stands_for=self.stand_ins.get(launch.launch),
            confidence=confidence(found, why),
            doubts=why,
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
        _, together = self.run.once(iterations)[launch.case, launch.iteration]
        return launch.duration_us / together if together else None

    def _excess(self, launch: Launch) -> tuple[float | None, float | None]:
        """The excess of its case, where it is the kernel that takes most of its time: the cost model is about that."""
        duration = launch.duration_us
        if not duration or duration < self.longest[launch.case] / 2:
            return None, None
        return self.excess.get(launch.case or "", (None, None))
