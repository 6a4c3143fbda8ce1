"""What to do about what binds a launch: steps that follow from its evidence, each with the most it can save."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from fiprof.analysis.instructions import Family
from fiprof.analysis.thresholds import CONFLICTS, DOMINANT_STALL, LEAST_GAIN, OVERHEAD, SOME_WAITING
from fiprof.analysis.verdict import compute_steps, memory_steps
from fiprof.analysis.verdict.cause_steps import EXPLAINS, steps_of
from fiprof.analysis.verdict.model import CaseBound, Kind, Part
from fiprof.analysis.verdict.quoted_rules import BALANCE_RULES, CONFLICT_RULES, QuotedRule, Rejected, by_warpgroups
from fiprof.analysis.verdict.situation import LOADS, PASSES, PIPES, Situation, both, hot, step, ways
from fiprof.analysis.verdict.step import Basis, Step, StepId, TimeOf, Way
from fiprof.model import quantities
from fiprof.model.finding import Finding, Value
from fiprof.model.formula import number
from fiprof.model.provenance import TracedNumber

MOST_STEPS = 3


def steps(situation: Situation) -> tuple[Step, ...]:
    """The two or three steps that follow: those for what causes it first, then the others that are bounded, the largest
    first, then those that are not."""
    verdict, case = situation.verdict, situation.case
    by_part = _BY_PART.get(verdict.part) if verdict.part else None
    make = by_part or _BY_KIND.get(verdict.kind)
    if make is None:
        # What the instructions show holds whichever limit it is.
        return tuple(compute_steps.wgmma(situation)) if verdict.kind is Kind.NO_SINGLE_LIMIT else ()
    found: list[Step] = [*_copies(situation)]
    if verdict.kind is not Kind.LAUNCH:
        found += [each for cause in verdict.causes for each in steps_of(situation, cause)]
    explained = {reason for cause in verdict.causes for reason in EXPLAINS.get(cause.id, ())}
    if verdict.causes:
        # A cause says more than the search for the unit that it keeps busy.
        explained |= {StepId.FIND_UNIT.value, StepId.FIND_MEMORY_PART.value}
    found += [
        each for each in make(situation) if explained.isdisjoint((each.action.values.get("reason"), each.id.value))
    ]
    if verdict.kind is not Kind.LAUNCH:
        found += [*compute_steps.wgmma(situation)]
        found += [*_by_rules(situation, {rule.rule for each in found for rule in each.rules})]
        if case and case.waiting and case.waiting.value >= SOME_WAITING.value:
            found += [*_launch(situation)][:1]
    worth = [each for each in _once(found) if each.size_pct is None or each.size_pct >= LEAST_GAIN.value]
    return tuple(sorted(worth, key=_rank)[:MOST_STEPS])


def _once(found: Iterable[Step]) -> Iterator[Step]:
    """Each step once, the first of it; ncu's rules are all different."""
    seen = set[StepId]()
    for each in found:
        if each.id is StepId.NCU_RULE or each.id not in seen:
            yield each
        seen.add(each.id)


def _rank(each: Step) -> tuple[bool, bool, float]:
    """Steps for a cause keep their order: the most specific cause is first."""
    return (
        each.cause is None and each.id is not StepId.LESS_COPYING,
        each.bound_pct is None,
        0.0 if each.cause else -(each.size_pct or 0.0),
    )


def _copies(s: Situation) -> Iterator[Step]:
    """Where an iteration mostly copies, no change of a kernel matters as much."""
    if s.case is not None and s.case.bound is CaseBound.COPIES and s.case.copying is not None:
        values: dict[str, Value] = {"copying": s.case.copying.number}
        yield _of_iteration(StepId.LESS_COPYING, s.case.copying.number, Finding(Basis.COPYING, values))


def _of_iteration(kind: StepId, share: TracedNumber, basis: Finding) -> Step:
    """A step that saves at most this share of an iteration, percent."""
    return Step(Finding(kind), min(share.value, 100.0), basis, TimeOf.ITERATION, bound_source=share.source)


def _launch(s: Situation) -> Iterator[Step]:
    if s.case is None or s.case.waiting is None:
        return
    values: dict[str, Value] = {"waiting": s.case.waiting.number, "host": s.case.host}
    graph = StepId.LARGER_GRAPH if s.case.graph else StepId.USE_GRAPH
    yield _of_iteration(graph, s.case.waiting.number, Finding(Basis.WAITS, values))
    # Fused kernels move fewer bytes too.
    yield Step(Finding(StepId.LARGER_LAUNCHES), None, Finding(Basis.WAITS_FIRST, values), TimeOf.ITERATION)


def _imbalance(s: Situation) -> Iterator[Step]:
    kinds = {Part.TOO_FEW_BLOCKS: StepId.MORE_BLOCKS, Part.TAIL: StepId.FULLER_LAST_WAVE}
    kind = kinds.get(s.verdict.part, StepId.EVEN_WORK) if s.verdict.part else StepId.EVEN_WORK
    values: dict[str, Value] = {}
    if kind is StepId.MORE_BLOCKS:
        values = {"blocks": number(s.row, "blocks") or 0.0, "multiprocessors": number(s.row, "multiprocessors") or 0.0}
    # Not the idle time: a block alone on a multiprocessor does not use it either.
    idle = Finding(Basis.IDLE, {"idle": s.verdict.idle})
    yield step(kind, s.room(), idle, values, estimate=s.verdict.idle, rules=s.estimated(*BALANCE_RULES))


def _latency(s: Situation) -> Iterator[Step]:
    busiest = s.verdict.busiest
    overhead = s.traced(quantities.OVERHEAD)
    too_short = overhead is not None and overhead.value >= OVERHEAD.value
    if too_short:
        because = Finding(Basis.OVERHEAD, {"overhead": overhead})
        yield step(StepId.LONGER_LAUNCH, s.room(), because, estimate=overhead)
    if busiest is not None and busiest.part is Part.TENSOR_CORES:
        yield step(StepId.OVERLAP_WGMMA if by_warpgroups(s.row) else StepId.OVERLAP_MMA, s.room())
        yield from compute_steps.less_work(s)
        yield from compute_steps.copies(s)
    if s.stalls and s.stalls[0].value >= DOMINANT_STALL.value:
        yield from _less_stall(s)
    elif s.stalls:
        waits = tuple(Finding(Basis.WAIT, {"reason": each.of, "share": each.number}) for each in s.stalls[:3])
        where = hot(s.code.hottest()) if s.code else None
        yield step(StepId.READ_HOTSPOTS, None, both(Finding(Basis.LONGEST_WAITS, {"waits": waits}), where))
    if not by_warpgroups(s.row) and not too_short:
        yield from memory_steps.more_warps(s)


_LESS_OF: Mapping[str, tuple[Part, ...]] = {
    "long_scoreboard": (*LOADS, Part.L2),
    "lg_throttle": (*LOADS, Part.L2),
    "drain": (*LOADS, Part.L2),
    "mio_throttle": (*LOADS, Part.XU_PIPE),
    "short_scoreboard": (*LOADS, Part.XU_PIPE),
    "tex_throttle": (*LOADS, Part.L2),
    "math_pipe_throttle": PIPES,
    "branch_resolving": (Part.ISSUE_SLOTS, Part.ALU_PIPE),
    "membar": (Part.L2,),
    "barrier": (Part.ISSUE_SLOTS,),
}
"""Stall reason -> what may be used less by what helps against it."""

NOTHING_HELPS = ("misc",)
"""Stall reasons that say nothing of what to do."""


def _less_stall(s: Situation) -> Iterator[Step]:
    top = s.stalls[0]
    reason = str(top.of)
    if reason in NOTHING_HELPS:
        return
    room = s.room(*_LESS_OF.get(reason, ()))
    where = hot(s.code.hottest(reason)) if s.code else None
    values: dict[str, Value] = {"reason": reason, "share": top.number, **_ways_out(s, reason)}
    yield step(StepId.LESS_STALL, room, where, values, rules=s.estimated("CPIStall"))


def _ways_out(s: Situation, reason: str) -> Mapping[str, Value]:
    """What makes a stall less: by what the hottest instruction in it waits for, where that is known."""
    found = s.code.hottest(reason) if s.code else None
    cause = found.cause if found else None
    if reason == "long_scoreboard":
        if cause in (Family.MBARRIER, Family.COPY_WAIT):
            return ways((Way.MORE_STAGES, True), (Way.EARLIER_COPIES, True))
        if cause is Family.LOCAL:
            return ways((Way.NO_LOCAL, True))
        if cause is Family.ATOMIC:
            return ways((Way.NO_RESULT, True))
        if cause is Family.GLOBAL_LOAD:
            return memory_steps.load_ways(s, found)
    if reason in ("short_scoreboard", "mio_throttle"):
        of_shared = cause in (Family.SHARED_LOAD, Family.SHARED_STORE)
        if cause is Family.SPECIAL:
            return ways((Way.POLYNOMIALS, True), (Way.KEPT, True))
        if cause is Family.CONVERSION:
            return ways((Way.FEWER_CONVERSIONS, True))
        if of_shared:
            conflicts = quantities.BANK_CONFLICTS.of(s.row) or 0.0
            return ways(
                (Way.NO_CONFLICTS, conflicts >= CONFLICTS.share),
                (Way.WIDER_SHARED, s.narrow(Family.SHARED_LOAD)),
                (Way.LOADED_EARLIER, True),
            )
    return {"ways": (Finding(Way.STALL_HELPS, {"reason": reason}),)}


_BY_KIND: Mapping[Kind, Callable[[Situation], Iterator[Step]]] = {
    Kind.LAUNCH: _launch,
    Kind.IMBALANCE: _imbalance,
    Kind.LATENCY: _latency,
    Kind.COMPUTE: compute_steps.instructions,
    Kind.MEMORY: memory_steps.other_memory,
}
"""No step follows from the other kinds."""
_BY_PART: Mapping[Part, Callable[[Situation], Iterator[Step]]] = {
    Part.TENSOR_CORES: compute_steps.tensor,
    Part.DRAM: memory_steps.dram,
    Part.L2: memory_steps.l2,
    Part.CONSTANT_CACHE: memory_steps.constants,
    **dict.fromkeys(PASSES, memory_steps.passes),
}
"""Before those by kind."""

_RESTATED = ("CPIStall", "AchievedOccupancy", "TheoreticalOccupancy", *BALANCE_RULES, *CONFLICT_RULES)
"""Rules whose step is among fiprof's own, with their estimate beside it."""


def _by_rules(s: Situation, taken: Collection[str]) -> Iterator[Step]:
    """ncu's rules that are about what binds, but those that a step restates already."""
    for rule in s.rules:
        if rule.rejected is not None or rule.speedup_pct is None or rule.rule in (*_RESTATED, *taken):
            continue
        message = rule.message.rstrip(".")
        if rule.rule == "FPInstructions":
            basis = Finding(Basis.NCU_ESTIMATE_OF, {"estimate": rule.speedup_kind, "message": message})
            room = s.room(Part.FMA_PIPE, Part.FP64_PIPE, Part.ISSUE_SLOTS)
            yield step(StepId.FUSE_MULTIPLY_ADD, room, basis, estimate=rule.speedup_pct, rules=(rule,))
        else:
            basis = Finding(Basis.NCU_ESTIMATE, {"estimate": rule.speedup_kind})
            yield step(StepId.NCU_RULE, None, basis, {"message": message}, estimate=rule.speedup_pct, rules=(rule,))


def with_steps(rules: tuple[QuotedRule, ...], found: tuple[Step, ...]) -> tuple[QuotedRule, ...]:
    """The rules, with a reason for those that are about what binds and yet no step rests on."""
    taken = {rule.rule for each in found for rule in each.rules}
    return tuple(
        rule
        if rule.rejected or rule.rule in taken
        else dataclasses.replace(rule, rejected=Finding(Rejected.BETTER_STEPS))
        for rule in rules
    )
