"""What binds each launch and each case of a run, with the evidence, how sure it is, and what to do next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fiprof.analysis import alternatives, checks, concurrency, instructions
from fiprof.analysis.check_rules import Check, CheckName
from fiprof.analysis.of_launch import OfLaunch
from fiprof.analysis.program import StandIns, StandsFor, weights
from fiprof.analysis.reasons import ReasonKind, kind_of
from fiprof.analysis.thresholds import BESIDE, BUSY, CLOSE, DOMINANT_STALL, MOSTLY, NOISE, SATURATED, SHORT, WAITING
from fiprof.analysis.verdict import ncu_rules
from fiprof.analysis.verdict import steps as advice
from fiprof.analysis.verdict.model import CaseVerdict, Comparison, Confidence, Kind, Part, Verdict, compare
from fiprof.analysis.verdict.ncu_rules import QuotedRule
from fiprof.analysis.verdict.rules import judge
from fiprof.analysis.verdict.steps import Situation, Step
from fiprof.model import case_quantities
from fiprof.model.case_quantities import excess_bytes, excess_ops
from fiprof.model.finding import Finding
from fiprof.model.floors import dram_use, floor, is_main, iterations
from fiprof.model.quantities import BESIDE as BESIDE_SHARE
from fiprof.model.quantities import DURATION, STALL_SHARE, stall_share
from fiprof.model.run import Launch, Run
from fiprof.model.selection import EVERYTHING, Alike, Selection, alike
from fiprof.model.wording import Worded

_COUNTED = frozenset(Kind) - {Kind.LAUNCH, Kind.UNKNOWN}
"""Kinds that rest on ncu's counters; those are no evidence of what happens between kernels."""

RESTS_ON: Mapping[CheckName, frozenset[Kind]] = {
    CheckName.REFERENCE: frozenset(Kind),
    CheckName.NSYS_VS_PLAIN: frozenset({Kind.LAUNCH}),
    CheckName.SPREAD: frozenset({Kind.LAUNCH}),
    CheckName.NCU_VS_NSYS: _COUNTED,
    CheckName.STALL_SUM: frozenset({Kind.LATENCY}),
    CheckName.SM_CLOCK: frozenset({Kind.COMPUTE, Kind.LATENCY, Kind.NO_SINGLE_LIMIT}),
}
"""Check -> the kinds of verdict that rest on it; one that failed says nothing about the others.

Counted work and bytes bear on steps and samples on hot spots, and neither on what binds.
"""


def doubts(found: Verdict, launch: Launch, failed: Sequence[Check]) -> tuple[Finding, ...]:
    """Why a verdict is not surer. failed: the checks of its launch and of its case that failed."""
    of_host = found.kind is Kind.LAUNCH
    why = [check.finding for check in failed if _bears_on(check, found)]
    if found.kind is Kind.UNKNOWN:
        why.append(Finding("unknown", words="what was collected does not tell the verdicts apart"))
    margin = found.margin_points
    if margin is not None and 0 <= margin < CLOSE.value and found.runner_up is not None:
        values = {"margin_points": margin, "runner_up": found.runner_up.finding}
        undecided = "undecided: {margin_points:.1f} points from {runner_up}, and replays differ by up to 3"
        noise = Finding("noise", values, undecided)
        close = Finding("close", values, "borderline: {margin_points:.0f} points from {runner_up}")
        why.append(noise if margin < NOISE.value else close)
    decided = found.evidence[0] if found.evidence else None
    if found.kind in (Kind.COMPUTE, Kind.MEMORY) and decided and BUSY.value <= decided.value < SATURATED.value:
        why.append(
            Finding(
                "not_saturated",
                {"part": found.part, "use": decided.number},
                words="{part} at {use}: busy but not saturated; latency also matters",
            )
        )
    duration = launch.traced(DURATION)
    if duration is not None and duration.value < SHORT.value and not of_host:
        why.append(
            Finding(
                "short", {"duration": duration}, words="short launch ({duration}): start and end weigh in every counter"
            )
        )
    if found.missing and not of_host:
        why.append(Finding("missing", {"columns": found.missing}, words="not collected: {columns}"))
    return tuple(why)


def confidence(found: Verdict, why: Sequence[Finding]) -> Confidence:
    """How sure a verdict is, with its doubts."""
    margin = found.margin_points
    if found.kind is Kind.UNKNOWN or (margin is not None and 0 <= margin < NOISE.value):
        return Confidence.LOW
    return Confidence.MEDIUM if why else Confidence.HIGH


def _bears_on(check: Check, found: Verdict) -> bool:
    if check.check is CheckName.STALL_SUM and _shown_by_stalls(found):
        return True
    if found.kind not in RESTS_ON.get(check.check, frozenset()):
        return False
    return check.check is not CheckName.SM_CLOCK or _memory_would_bind(check, found)


def _shown_by_stalls(found: Verdict) -> bool:
    return any(cause.top.quantity is STALL_SHARE for cause in found.causes)


def _memory_would_bind(check: Check, found: Verdict) -> bool:
    """Whether a memory with a clock of its own would be the busiest resource at the highest clock of the
    multiprocessors: while they are slowed down it looks idle."""
    highest = check.values.get("highest_mhz")
    if not isinstance(highest, int | float) or not check.value:
        return True
    memory = max((item.value for item in found.resources if item.part in (Part.DRAM, Part.L2)), default=0.0)
    needed = found.evidence[0].value if found.kind is Kind.COMPUTE and found.evidence else BUSY.value
    return memory * highest / check.value >= needed


@dataclass(frozen=True)
class CaseLaunches:
    """The launch calls of a case in the phase ``measure``."""

    graph: bool
    """Whether most of its kernels are nodes of CUDA graphs: one call launches many of them."""
    call_us: float | None
    """Time of the launch calls in an iteration, on average; None where the calls were not traced."""


def cases(run: Run) -> list[CaseVerdict]:
    """Every case of the run that was measured. Raises FiprofError for a table that cannot be read."""
    traced = launches_of(run)
    found = []
    for case in run.cases:
        busy_time = case_quantities.BUSY.traced(run, case.id)
        if busy_time is None and case.id not in run.baseline:
            continue
        calls, executions = traced.get(case.id), run.trace.cases.get(case.id)
        waiting = case_quantities.WAITING.traced(run, case.id)
        copying = case_quantities.COPYING.traced(run, case.id)
        found.append(
            CaseVerdict(
                case=case.id,
                label=run.labels(case.id),
                kernels=executions.executions if executions else None,
                busy_time=busy_time,
                wall_time=case_quantities.WALL.traced(run, case.id),
                launch_us=calls.call_us if calls else None,
                graph=calls.graph if calls else False,
                waiting=compare(case_quantities.WAITING, waiting, WAITING) if waiting else None,
                copying=compare(case_quantities.COPYING, copying, MOSTLY) if copying else None,
            )
        )
    return found


def launches_of(run: Run) -> dict[str, CaseLaunches]:
    """Case id -> its launches; empty without nsys.

    A call that launched several kernels counts once. Raises FiprofError for a table that cannot be read.
    """
    import pyarrow.compute as pc

    if not run.has("kernels"):
        return {}
    kernels = run.table("kernels", ["phase", "case", "iteration", "graph_node", "launch_call_ns", "pid", "correlation"])
    inside = pc.and_(pc.equal(kernels["phase"], "measure"), pc.is_valid(kernels["case"]))
    kernels = kernels.filter(inside).unify_dictionaries()
    if not kernels.num_rows:
        return {}
    counts = kernels.group_by("case", use_threads=False).aggregate(
        [("graph_node", "count"), ("pid", "count"), ("iteration", "count_distinct")]
    )
    calls = (
        kernels.group_by(["case", "pid", "correlation"], use_threads=False)
        .aggregate([("launch_call_ns", "max")])
        .group_by("case", use_threads=False)
        .aggregate([("launch_call_ns_max", "sum")])
    )
    times = dict(zip(calls["case"].to_pylist(), calls["launch_call_ns_max_sum"].to_pylist(), strict=True))
    found = {}
    for row in counts.to_pylist():
        case, iterations = row["case"], row["iteration_count_distinct"]
        total = times.get(case) if iterations else None
        found[case] = CaseLaunches(
            graph=row["graph_node_count"] * 2 > row["pid_count"],
            call_us=None if total is None else total / iterations / 1e3,
        )
    return found


class VerdictWarning(Worded):
    """What limits the verdicts of a run."""

    NO_LAUNCHES = "no_launches", "no launch can be judged: {why}"


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
        warnings.append(Finding("no_launches", {"why": run.missing("ncu")}, words="no launch can be judged: {why}"))
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
        self.rules = ncu_rules.by_launch(run)
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
        rules = ncu_rules.weighed(self.rules.get(launch.launch, ()), found, launch, moved)
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
        return (advice.measured(found),) if found and launch.kernel == self.main[launch.case or ""] else ()

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
