"""What limits each launch and each case of a run, with the evidence, how sure it is, and what to do next."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fiprof.analysis import checks
from fiprof.analysis.checks import Check
from fiprof.analysis.frames import OfLaunch, OfRun
from fiprof.analysis.stalls import ReasonKind, state
from fiprof.analysis.thresholds import (
    BESIDE,
    BUSY,
    DOMINANT_STALL,
    MOSTLY,
    NOISE,
    SATURATED,
    SHORT,
    UNTYPICAL,
    UNUSED,
    WAITING,
)
from fiprof.analysis.trace import StandsFor, standing, weights
from fiprof.analysis.verdict.model import CaseVerdict, Comparison, Confidence, Kind, Part, TimeOf, Verdict
from fiprof.analysis.verdict.ncu_rules import QuotedRule
from fiprof.analysis.verdict.rules import RESOURCES, judge, loads_behind_barriers
from fiprof.analysis.verdict.steps import Step
from fiprof.model import case_quantities, packs
from fiprof.model.arrays import MISSING, coded, numbers
from fiprof.model.case_quantities import dram_use, excess_bytes, excess_ops, floor, is_main, iterations
from fiprof.model.finding import Finding, finding
from fiprof.model.quantities import BESIDE as BESIDE_SHARE
from fiprof.model.quantities import DURATION, STALL_SHARE, number, stall_share
from fiprof.model.run import Launch, Run, once
from fiprof.model.selection import EVERYTHING, Alike, Selection, alike, by_key, sums_by_key
from fiprof.text import detailed_kernel


@dataclass(frozen=True, kw_only=True)
class LaunchVerdict(OfLaunch, Verdict):
    """What limits a launch, how sure that is, and what to do about it."""

    iteration_share: float | None  # of the time of its iteration's kernels under ncu, 0 to 1; None without a case
    stands_for: StandsFor | None  # of a program's trace; None for a run with cases, or without a trace
    confidence: Confidence
    caveats: tuple[Finding, ...]  # why it is not surer
    steps: tuple[Step, ...]
    """What to do next: a measured alternative of its case, if there is one and it is the main kernel; then at most
    three whose gain is bounded, the largest first."""
    rules: tuple[QuotedRule, ...]  # ncu's own rules with an estimate, the largest first, each with why it is no step


Verdicts = OfRun[LaunchVerdict, CaseVerdict]  # a run's verdicts; those of launches are empty without ncu


def limits(run: Run, launches: Sequence[Launch]) -> list[Verdict]:
    """What limits each of these launches, without what follows from it."""
    return [_judged(run, launch, cases(run).get(launch.case or ""))[0] for launch in launches]


def _judged(run: Run, launch: Launch, case: CaseVerdict | None) -> tuple[Verdict, tuple[Comparison, ...]]:
    """What limits a launch, and its warps' stalls (not ready, not issuing) as ``loads_behind_barriers`` has them."""
    shares = [
        Comparison(STALL_SHARE, stall_share(launch, item.reason, item.share), DOMINANT_STALL, item.reason)
        for item in run.stall_reasons.get(launch.launch, ())
        if item.share is not None and state(item.reason).kind == ReasonKind.STALL
    ]
    longest = sorted(shares, key=lambda each: (-each.value, str(each.of)))
    stalls = loads_behind_barriers(launch, longest)
    overlap = case_quantities.overlap_share(run, launch.case, launch.kernel)
    judged = judge(
        launch,
        stalls=stalls,
        waiting=case.waiting if case else None,
        copying=case.copying if case else None,
        beside=Comparison(BESIDE_SHARE, overlap, BESIDE) if overlap else None,
        dram=dram_use(run, launch),
        names=run.metric_name,
    )
    if stalls[:1] != tuple(longest[:1]):
        words = "Warps wait most at barriers ({share} of their time), for others of their block that wait for loads."
        note = finding("behind_barriers", words, share=longest[0].number)
        judged = dataclasses.replace(judged, notes=(*judged.notes, note))
    return judged, stalls


@once
def cases(run: Run) -> dict[str, CaseVerdict]:
    """Case id -> its verdict, of those that were measured."""
    calls = launch_calls(run)
    verdicts_of = {}
    for case in run.cases:
        busy_time = case_quantities.BUSY.traced(run, case.id)
        if busy_time is None and case.id not in run.baseline:
            continue
        graph, call_us = calls.get(case.id, (False, None))
        executions = run.trace.cases.get(case.id)
        waiting, copying = (each.traced(run, case.id) for each in (case_quantities.WAITING, case_quantities.COPYING))
        verdicts_of[case.id] = CaseVerdict(
            case=case.id,
            label=run.labels(case.id),
            kernels=executions.executions if executions else None,
            busy_time=busy_time,
            wall_time=case_quantities.WALL.traced(run, case.id),
            launch_us=call_us,
            graph=graph,
            waiting=Comparison(case_quantities.WAITING, waiting, WAITING) if waiting else None,
            copying=Comparison(case_quantities.COPYING, copying, MOSTLY) if copying else None,
        )
    return verdicts_of


def launch_calls(run: Run) -> dict[str, tuple[bool, float | None]]:
    """Case id -> whether most of its kernels are nodes of CUDA graphs, and the time of the calls that launch an
    iteration's kernels, µs, on average; None where the calls were not traced.

    Of the phase ``measure``; the tables give a call that launched a graph to the first of its nodes alone. Empty
    without nsys.
    """
    if not run.has("kernels"):
        return {}
    kernels = run.table("kernels", ["phase", "case", "iteration", "graph_node", "launch_call_ns"])
    (phases, phase), (names, case) = coded(kernels["phase"]), coded(kernels["case"])
    iteration, node, call_ns = (numbers(kernels[name]) for name in ("iteration", "graph_node", "launch_call_ns"))
    measured = phase == (phases.index("measure") if "measure" in phases else MISSING)
    by_case = {}
    for place, name in enumerate(names[:-1]):
        if (rows := measured & (case == place)).any():
            iterations = len({*iteration[rows].tolist()} - {MISSING})
            calls_ns = [each for each in call_ns[rows].tolist() if each != MISSING]
            call_us = sum(calls_ns) / iterations / 1e3 if calls_ns and iterations else None
            by_case[name] = (bool((node[rows] != MISSING).mean() > 0.5), call_us)
    return by_case


def caveats(verdict: Verdict, launch: Launch, failed: Sequence[Check]) -> tuple[Finding, ...]:
    """Why a verdict is not surer. failed: the checks of its launch and of its case that failed."""
    by_stalls = any(cause.evidence[0].quantity is STALL_SHARE for cause in verdict.causes)
    why = [
        check.finding
        for check in failed
        if (check.check == "stall_sum" and by_stalls)
        or (
            not {*checks.CHECKS[check.check]["verdicts"].split()}.isdisjoint(each.kind for each in verdict.limits)
            and (check.check != "sm_clock" or _memory_would_bind(check, verdict))
        )
    ]
    if verdict.kind is Kind.UNKNOWN:
        why.append(finding("unknown", "what was collected does not tell the verdicts apart"))
    if verdict.pair and (verdict.margin_points or 0.0) < NOISE:
        words = "a pair: {margin_points:.1f} points apart, and replays differ by up to 3"
        why.append(finding("pair", words, margin_points=verdict.margin_points))
    elif verdict.pair and verdict.limits[1].part:
        words = "{part} is busy, yet the warps mostly wait for something else"
        why.append(finding("waits_elsewhere", words, part=verdict.limits[1].part))
    elif verdict.close and verdict.runner_up is not None and (margin := verdict.margin_points or 0.0) >= 0:
        words = "borderline: {margin_points:.0f} points from {runner_up}"
        why.append(finding("close", words, margin_points=margin, runner_up=verdict.runner_up.finding))
    decided = verdict.evidence[0] if verdict.evidence else None
    if verdict.kind in (Kind.COMPUTE, Kind.MEMORY) and decided and BUSY <= decided.value < SATURATED:
        words = "{part} at {use}: busy but not saturated; latency also matters"
        why.append(finding("not_saturated", words, part=verdict.part, use=decided.number))
    of_kernel, duration = verdict.kind is not Kind.LAUNCH, launch.traced(DURATION)
    if of_kernel and duration is not None and duration.value < SHORT:
        words = "short launch ({duration}): start and end weigh in every counter"
        why.append(finding("short", words, duration=duration))
    if of_kernel and verdict.missing:
        why.append(finding("missing", "not collected: {columns}", columns=verdict.missing))
    return tuple(why)


def _untypical(launch: Launch, stands: StandsFor | None) -> Finding | None:
    """That a launch under ncu took much longer than the executions of a program that it stands for."""
    duration = launch.traced(DURATION)
    if stands is None or duration is None:
        return None
    mean_us = stands.total_us / stands.count
    if not mean_us or duration.value < UNTYPICAL * (mean_us + checks.NCU_ALLOWANCE_US):
        return None
    words = "ncu took a long one ({duration}): the {count:,.0f} that it stands for take {mean_us:,.2f} µs on average"
    return finding("untypical", words, duration=duration, count=stands.count, mean_us=mean_us)


def _memory_would_bind(check: Check, verdict: Verdict) -> bool:
    """Whether a memory with a clock of its own would be the busiest resource at the highest clock of the
    multiprocessors: while they are slowed down it looks idle."""
    highest = check.values.get("highest_mhz")
    if not isinstance(highest, int | float) or not check.value:
        return True
    memory = max((item.value for item in verdict.resources if item.part in (Part.DRAM, Part.L2)), default=0.0)
    needed = verdict.evidence[0].value if verdict.kind is Kind.COMPUTE and verdict.evidence else BUSY
    return memory * highest / check.value >= needed


def verdicts(run: Run, *, wanted: Selection = EVERYTHING, medians: bool = False, program: bool = False) -> Verdicts:
    """What limits each launch of a run, in the order of the launches, and each case.

    medians: of like launches only that of median duration is judged, for all of them. program: whether the program has
    a verdict of its own, so that there need be no launches.
    Raises FiprofError where the run has neither launches under ncu nor kernels under nsys, or no launch is left.
    """
    launches = run.launches
    run.require_launches("counters to judge", there=bool(launches or run.trace.cases or program))
    chosen = run.selected(wanted, weights(run)) if launches else []
    failed = checks.failed(run)
    uncollected = run.uncollected("SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats")
    warnings: list[Finding] = [*run.status_warning(), *uncollected, *checks.of_run(failed)]
    if not launches:
        warnings.append(finding("no_launches", "no launch can be judged: {why}", why=run.missing("ncu")))
    groups = alike(chosen, weights=weights(run)) if medians else []
    shown, before = [group.shown for group in groups] if medians else chosen, _judged_before(run)
    if new := [launch for launch in shown if launch.launch not in before]:
        before |= {each.launch: each for each in _advised(run, new, failed)}
    judged = tuple(before[launch.launch] for launch in shown)
    ids, pairs = {launch.case for launch in chosen}, zip(groups, judged, strict=False)
    like = tuple(Alike((each,) * group.count, group.times_us, group.weights_us) for group, each in pairs)
    of_cases = tuple(case for case in cases(run).values() if not chosen or case.case in ids)
    return OfRun(judged, tuple(warnings), weights(run), of_cases, like)


@once
def _judged_before(_: Run) -> dict[int, LaunchVerdict]:
    """Launch -> its verdict, of those that were asked for: a program's are, and then the page's."""
    return {}


@once
def best_cases(run: Run) -> dict[str, dict[Part, tuple[float, str]]]:
    """Full name of a kernel -> resource -> the most that a launch of it uses that, percent, and the launch's case.

    The launches are the run's, and those that a pack knows on this GPU.
    """
    packed, gpu = packs.merged("best_cases"), run.environment("gpu", "name")
    best: dict[str, dict[Part, tuple[float, str]]] = {}
    for launch in run.launches:
        case = run.labels(launch.case) if launch.case else f"launch {launch.launch}"
        of_packs = packed.get(launch.kernel, {}).get(gpu, {})
        of_kernel = best.setdefault(launch.kernel_full, {Part(part): (pct, of) for part, (pct, of) in of_packs.items()})
        for part in (Part.TENSOR_CORES, Part.DRAM):
            use_pct = max(number(launch, column) or 0.0 for column in RESOURCES[part].columns)
            of_kernel[part] = max(of_kernel.get(part, (0.0, "")), (use_pct, case))
    return best


def _advised(run: Run, launches: Sequence[Launch], failed: Sequence[Check]) -> Iterator[LaunchVerdict]:
    """The verdicts of launches, with caveats and steps. failed: the run's checks that did."""
    from fiprof.analysis import alternatives, instructions
    from fiprof.analysis.verdict import ncu_rules, steps

    failed_of = by_key((check.case if check.launch is None else check.launch, check) for check in failed)
    of_case = by_key((launch.case, (launch.kernel, launch.duration_us or 0.0)) for launch in run.launches)
    longest_us = {case: max(us for _, us in timed) for case, timed in of_case.items()}
    times_us = {case: sums_by_key(timed) for case, timed in of_case.items()}
    rules, code = ncu_rules.by_launch(run), instructions.by_launch(run)
    entries = {case.id: case for case in run.cases}
    excess = {case.id: (excess_ops(run, case), excess_bytes(run, case)) for case in run.cases}
    floors = {case.id: run.once(floor, case.id) for case in run.cases}
    on_tensor_cores = {each.case for each in run.launches if (number(each, "tensor_active_pct") or 0.0) >= UNUSED}
    for launch in launches:
        case_id = launch.case or ""
        case = cases(run).get(case_id)
        verdict, stalls = _judged(run, launch, case)
        # The cost model is about the kernel that takes most of the case's time.
        costly = launch.duration_us and launch.duration_us >= longest_us[launch.case] / 2
        ops, moved = excess.get(case_id, (None, None)) if costly else (None, None)
        quoted = ncu_rules.weighed(rules.get(launch.launch, ()), verdict, launch, moved)
        share, stands = None, standing(run).get(launch.launch)
        if launch.case is not None and launch.duration_us is not None:
            _, together_us = iterations(run)[launch.case, launch.iteration]
            share = launch.duration_us / together_us if together_us else None
        context = steps.LaunchContext(
            row=launch,
            names=run.metric_name,
            verdict=verdict,
            stalls=stalls,
            rules=quoted,
            excess_ops=ops,
            excess_bytes=moved,
            case=case,
            least=entries.get(case_id) if moved else None,
            floor=floors.get(case_id) if is_main(run, launch) else None,
            code=code.get(launch.launch, instructions.NO_LISTING),
            share=share if stands is None else stands.share,
            whole=TimeOf.ITERATION_KERNELS if stands is None else TimeOf.KERNELS,
            best=best_cases(run).get(launch.kernel_full, {}) if (launch.duration_us or 0.0) >= SHORT else {},
        )
        advice = steps.steps(context)
        if library := steps.library_of(detailed_kernel(launch.kernel, launch.kernel_full)):
            advice = tuple(step for step in advice if step.id in steps.OF_CALLERS)
            if not any(step.relieving(limit) for step in advice[:1] for limit in verdict.limits):
                limited = tuple(limit.part or limit.kind for limit in verdict.limits)
                advice = (context.step("ask_for_another", values={"library": library}, relieves=limited), *advice)
        # What tensor cores gain was measured.
        if not on_tensor_cores.isdisjoint(alternatives.same_problem(run).get(case_id, ())):
            advice = tuple(step for step in advice if step.id != "use_tensor_cores")
        of_kernels = times_us[launch.case]
        faster = alternatives.of_run(run).get(case_id)
        if faster and launch.kernel == max(of_kernels, key=of_kernels.__getitem__):
            advice = (steps.measured(faster), *advice)
        why = caveats(verdict, launch, [*failed_of.get(launch.launch, ()), *failed_of.get(launch.case or "", ())])
        confidence = Confidence.MEDIUM if why else Confidence.HIGH
        if untypical := _untypical(launch, stands):
            why, confidence = (untypical, *why), Confidence.LOW
        yield LaunchVerdict(
            **vars(verdict),
            row=launch,
            iteration_share=share,
            stands_for=stands,
            confidence=Confidence.LOW if verdict.kind is Kind.UNKNOWN else confidence,
            caveats=why,
            steps=advice,
            rules=steps.with_steps(quoted, advice),
        )
