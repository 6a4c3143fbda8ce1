"""What to do about what binds a launch: steps that follow from its evidence, each with the most it can save.

An estimate is a bound, not a promise. A resource at r percent needs r percent of the time whatever is done about the
others, so a step that touches all but that one saves at most 100 - r percent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.thresholds import (
    CONFLICTS,
    DOMINANT_STALL,
    EMPTY,
    EXCESS,
    FMA_OF_ISSUE,
    KEPT,
    LEAST_GAIN,
    OVERHEAD,
    SATURATED,
    SOME_WAITING,
    UNUSED,
)
from fiprof.analysis.verdict.model import CaseVerdict, Comparison, Kind, Part, Verdict
from fiprof.analysis.verdict.quoted_rules import BALANCE_RULES, CONFLICT_RULES, QuotedRule, Rejected, by_warpgroups
from fiprof.analysis.verdict.step import Basis, Step, StepId, TimeOf
from fiprof.model import quantities
from fiprof.model.expressions import Names, Row, number
from fiprof.model.finding import Finding, Value
from fiprof.model.provenance import TracedNumber
from fiprof.model.quantities import metric
from fiprof.model.quantity import Quantity
from fiprof.model.work import counted_float_ops, dominant_tensor_kind, mostly_mma

MOST_STEPS = 3


def _step(
    kind: StepId, bound: TracedNumber | float | None, basis: Finding, values: Mapping[str, Value] | None = None
) -> Step:
    return Step(Finding(kind, values or {}), bound.value if isinstance(bound, TracedNumber) else bound, basis)


@dataclass(frozen=True)
class Situation:
    """What steps are made from."""

    row: Row
    names: Names
    """ncu's names of the columns."""
    verdict: Verdict
    stalls: tuple[Comparison, ...] = ()
    """Percent of the warps' time in each stall reason, the largest first."""
    rules: tuple[QuotedRule, ...] = ()
    """Weighed: with why they are no step."""
    excess_ops: float | None = None
    """Operations that ncu counted over those that the case needs; None where that is not known."""
    excess_bytes: float | None = None
    """DRAM bytes likewise."""
    case: CaseVerdict | None = None

    def use(self, part: Part) -> float:
        found = self.verdict.resource(part)
        return found.value if found else 0.0

    def use_of(self, part: Part | None) -> dict[str, Value]:
        """The part, and its use where it was measured."""
        found = self.verdict.resource(part) if part else None
        return {"part": part, "use": found.comparison.number if found and found.comparison else None}

    def next_after(self, *parts: Part) -> tuple[float, Finding]:
        """The busiest resource but these: percent of the time that it would still need, and that as a basis."""
        rest = next((item for item in self.verdict.resources if item.part not in parts), None)
        return (rest.value, self.stays(rest.part)) if rest else (0.0, Finding(Basis.NOTHING_USED))

    def stays(self, part: Part | None) -> Finding:
        """What a resource would still need, as a basis."""
        used = self.use_of(part)
        return Finding(Basis.NOTHING_USED) if used["use"] is None else Finding(Basis.STAYS, used)

    def distance(self, kind: StepId, part: Part, of: Basis = Basis.DISTANCE, **values: Value) -> Step:
        """A step that may at most bring a resource to its roof."""
        return _step(kind, 100 - self.use(part), Finding(of, {**self.use_of(part), **values}))

    def estimated(self, *names: str) -> tuple[QuotedRule, ...]:
        """ncu's rules of these names that estimate something."""
        return tuple(rule for rule in self.rules if rule.rule in names and rule.speedup_pct is not None)

    def traced(self, quantity: Quantity) -> TracedNumber | None:
        return quantity.traced(self.row, self.names)


def steps(situation: Situation) -> tuple[Step, ...]:
    """The two or three steps that follow, the largest gain first; those without an estimate come last."""
    verdict, case = situation.verdict, situation.case
    if verdict.kind in (Kind.UNKNOWN, Kind.CONCURRENT, Kind.NO_SINGLE_LIMIT):
        return ()
    by_part = _BY_PART.get(verdict.part) if verdict.part else None
    found = [*(by_part or _BY_KIND[verdict.kind])(situation)]
    if verdict.kind is not Kind.LAUNCH:
        found += [*_by_rules(situation)]
        if case and case.waiting and case.waiting.value >= SOME_WAITING.value:
            found += [*_launch(situation)][:1]
    # Counters of different replays may read a little more than all of the time.
    bounded = [
        step if step.bound_pct is None else dataclasses.replace(step, bound_pct=min(step.bound_pct, 100.0))
        for step in found
    ]
    worth = [step for step in bounded if step.bound_pct is None or step.bound_pct >= LEAST_GAIN.value]
    return tuple(sorted(worth, key=lambda step: 1.0 if step.bound_pct is None else -step.bound_pct)[:MOST_STEPS])


def _launch(s: Situation) -> Iterator[Step]:
    if s.case is None or s.case.waiting is None:
        return
    values: dict[str, Value] = {"waiting": s.case.waiting.number, "host": s.case.host}
    graph = StepId.LARGER_GRAPH if s.case.graph else StepId.USE_GRAPH
    for kind, basis in ((graph, Basis.WAITS), (StepId.LARGER_LAUNCHES, Basis.WAITS_FIRST)):
        step = _step(kind, s.case.waiting.number, Finding(basis, values))
        yield dataclasses.replace(step, of=TimeOf.ITERATION)


def _imbalance(s: Situation) -> Iterator[Step]:
    kinds = {Part.TOO_FEW_BLOCKS: StepId.MORE_BLOCKS, Part.TAIL: StepId.FULLER_LAST_WAVE}
    kind = kinds.get(s.verdict.part, StepId.EVEN_WORK) if s.verdict.part else StepId.EVEN_WORK
    values: dict[str, Value] = {}
    if kind is StepId.MORE_BLOCKS:
        values = {"blocks": number(s.row, "blocks") or 0.0, "multiprocessors": number(s.row, "multiprocessors") or 0.0}
    step = _step(kind, s.verdict.idle, Finding(Basis.IDLE, {"idle": s.verdict.idle}), values)
    yield dataclasses.replace(step, rules=s.estimated(*BALANCE_RULES))


def _latency(s: Situation) -> Iterator[Step]:
    busiest = s.verdict.busiest
    part, used = (busiest.part, busiest.value) if busiest else (None, 0.0)
    room = Finding(Basis.USED, s.use_of(part)) if busiest else Finding(Basis.NOTHING_USED)
    overhead = s.traced(quantities.OVERHEAD)
    if overhead is not None and overhead.value >= OVERHEAD.value:
        yield _step(StepId.LONGER_LAUNCH, overhead, Finding(Basis.OVERHEAD, {"overhead": overhead}))
    if s.stalls and s.stalls[0].value >= DOMINANT_STALL.value:
        top = s.stalls[0]
        basis = Finding(Basis.STALL_SHARE, {"room": room})
        step = _step(StepId.LESS_STALL, min(top.value, 100 - used), basis, {"reason": top.of, "share": top.number})
        yield dataclasses.replace(step, rules=s.estimated("CPIStall"))
    elif s.stalls:
        waits = tuple(Finding(Basis.WAIT, {"reason": each.of, "share": each.number}) for each in s.stalls[:3])
        yield _step(StepId.READ_HOTSPOTS, None, Finding(Basis.LONGEST_WAITS, {"waits": waits}))
    if part is Part.TENSOR_CORES:
        yield s.distance(StepId.OVERLAP_WGMMA if by_warpgroups(s.row) else StepId.OVERLAP_MMA, part)
        yield from _less_work(s)
    if not by_warpgroups(s.row):
        yield from _more_warps(s, 100 - used, room)


def _more_warps(s: Situation, most: float, room: Finding) -> Iterator[Step]:
    """More warps to wait at the same time, where the grid has them and something holds them down."""
    found = occupancy(s.row)
    if found.waves is not None and not found.waves.full:
        if found.waves.idle_share >= EMPTY.share:
            with_warps = 100 - (quantities.OVERHEAD.of(s.row) or 0.0)
            yield _step(
                StepId.FILL_WAVE,
                min(most, found.waves.idle_share * with_warps),
                Finding(Basis.EMPTY_PLACES, {"empty": found.waves.idle_share, "room": room}),
                {"blocks": found.waves.last_blocks, "wave_blocks": found.waves.wave_blocks},
            )
        return
    lifted = found.lift is not None and len(found.steps) == len(found.lift.resources)
    if found.steps and found.theoretical_pct and found.blocks and lifted:
        then = min(100.0, found.theoretical_pct * min(step.blocks for step in found.steps) / found.blocks)
        if then > found.theoretical_pct:
            changes = tuple(step.finding for step in found.steps)
            step = _step(
                StepId.MORE_WARPS,
                min(most, 100 * (1 - found.theoretical_pct / then)),
                Finding(Basis.MORE_WAIT, {"room": room}),
                {"changes": changes, "occupancy_pct": found.theoretical_pct, "then_pct": then},
            )
            yield dataclasses.replace(step, rules=s.estimated("TheoreticalOccupancy"))


def _less_work(s: Situation) -> Iterator[Step]:
    if s.excess_ops is not None and s.excess_ops >= EXCESS.value:
        basis = Finding(Basis.EXCESS_OPS, {"factor": s.excess_ops})
        yield _step(StepId.LESS_WASTED_WORK, 100 * (1 - 1 / s.excess_ops), basis)


def _tensor(s: Situation) -> Iterator[Step]:
    use = s.use(Part.TENSOR_CORES)
    yield from _less_work(s)
    kind = dominant_tensor_kind(s.row)
    peak = number(s.row, f"tensor_peak_{kind}_ops_per_cycle")
    if kind is not None and peak is not None and mostly_mma(s.row, kind):
        slow = number(s.row, f"mma_peak_{kind}_ops_per_cycle")
        if slow is not None and peak > slow > 0:
            yield _step(StepId.USE_WGMMA, use * (1 - slow / peak), Finding(Basis.PEAKS, {"ratio": peak / slow}))
    smaller = number(s.row, "tensor_peak_fp8_ops_per_cycle")
    if smaller is not None and peak is not None and kind in ("fp16", "bf16") and smaller > peak > 0:
        basis = Finding(Basis.PEAKS_AND_USE, {"ratio": smaller / peak, **s.use_of(Part.TENSOR_CORES)})
        yield _step(StepId.USE_FP8, use * (1 - peak / smaller), basis, {"operands": kind})
    yield s.distance(StepId.CLOSE_TENSOR_GAPS, Part.TENSOR_CORES)


_FEWER: Mapping[Part, StepId] = {
    Part.ISSUE_SLOTS: StepId.FEWER_INSTRUCTIONS,
    Part.FMA_PIPE: StepId.LESS_FMA,
    Part.ALU_PIPE: StepId.LESS_ALU,
    Part.XU_PIPE: StepId.LESS_XU,
    Part.FP64_PIPE: StepId.SINGLE_PRECISION,
    Part.LSU_PIPE: StepId.WIDER_ACCESSES,
    Part.ADU_PIPE: StepId.FIND_UNIT,
    Part.CBU_PIPE: StepId.FIND_UNIT,
    Part.TEX_PIPE: StepId.FIND_UNIT,
    Part.UNIFORM_PIPE: StepId.FIND_UNIT,
    Part.OTHER_COMPUTE: StepId.FIND_UNIT,
}


def _instructions(s: Situation) -> Iterator[Step]:
    """A pipe, or the schedulers' issue slots."""
    part = s.verdict.part
    assert part is not None
    rest, stays = s.next_after(part, Part.ISSUE_SLOTS)
    ops = counted_float_ops(s.row)
    if part is Part.FMA_PIPE and ops and max(ops, key=ops.__getitem__) == "fp32":
        bound = min(s.use(part) / 2, 100 - rest)
        yield _step(StepId.PACKED_HALVES, bound, Finding(Basis.HALF, s.use_of(part)))
    else:
        yield _step(_FEWER[part], 100 - rest, stays)
    tensor, fma = number(s.row, "tensor_active_pct"), s.traced(metric("fma_pct"))
    unused = tensor is not None and tensor < UNUSED.value
    arithmetic = fma is not None and fma.value >= FMA_OF_ISSUE.share * s.use(Part.ISSUE_SLOTS)
    if part in (Part.ISSUE_SLOTS, Part.FMA_PIPE) and unused and arithmetic and fma is not None:
        slow, fast = number(s.row, "fp32_peak_ops_per_cycle"), number(s.row, "tensor_peak_tf32_ops_per_cycle")
        there = fma.value * slow / fast if slow and fast and fast > slow > 0 else 0.0
        dram = s.use(Part.DRAM)
        basis = s.stays(Part.DRAM)
        if there:
            kind = Basis.TENSOR_CORES_WOULD if there > dram else Basis.STAYS_BESIDE_TENSOR_CORES
            basis = Finding(kind, {**s.use_of(Part.DRAM), "tensor_pct": there, "fma": fma})
        yield _step(StepId.USE_TENSOR_CORES, 100 - max(dram, there), basis)


def _dram(s: Situation) -> Iterator[Step]:
    use, excess = s.use(Part.DRAM), s.excess_bytes
    if excess is not None and excess >= EXCESS.value:
        basis = Finding(Basis.EXCESS_BYTES, {"factor": excess, **s.use_of(Part.DRAM)})
        yield _step(StepId.MOVE_FEWER_BYTES, use * (1 - 1 / excess), basis)
    elif excess is not None:
        kind = Basis.BYTES_KEPT if excess < KEPT.value else Basis.BYTES_MOVED
        yield _step(StepId.NEED_FEWER_BYTES, None, Finding(kind, {"factor": excess}))
    else:
        yield _step(StepId.NEED_FEWER_BYTES, None, Finding(Basis.BYTES_BIND))
    if use >= SATURATED.value:
        yield s.distance(StepId.SHORTER_RAMP, Part.DRAM)
        return
    top = s.stalls[0] if s.stalls else None
    if top is not None and top.of == "long_scoreboard" and top.value >= DOMINANT_STALL.value:
        step = s.distance(StepId.MORE_LOADS, Part.DRAM, Basis.DISTANCE_AND_WAIT, reason=top.of, share=top.number)
        yield dataclasses.replace(step, rules=s.estimated("CPIStall"))
    else:
        yield s.distance(StepId.MORE_LOADS, Part.DRAM)
    yield from _more_warps(s, 100 - use, Finding(Basis.USED, s.use_of(Part.DRAM)))


def _l2(s: Situation) -> Iterator[Step]:
    rest, stays = s.next_after(Part.L2)
    yield _step(StepId.LESS_L2, 100 - rest, stays)
    yield s.distance(StepId.SHORTER_RAMP, Part.L2)


def _l1(s: Situation) -> Iterator[Step]:
    """The data stage of L1 and shared memory."""
    part = s.verdict.part
    assert part is not None
    use, (rest, stays) = s.use(part), s.next_after(part)
    conflicts = s.traced(quantities.BANK_CONFLICTS)
    if conflicts is not None and conflicts.value >= CONFLICTS.share:
        basis = Finding(Basis.CONFLICTS, {"share": conflicts, "rest": stays})
        step = _step(StepId.NO_BANK_CONFLICTS, min(use * conflicts.value, max(use - rest, 0.0)), basis)
        yield dataclasses.replace(step, rules=s.estimated(*CONFLICT_RULES))
        return
    kind = StepId.FEWER_L1_PASSES if part is Part.L1_DATA else StepId.FEWER_SHARED_PASSES
    yield _step(kind, 100 - rest, stays)


def _memory(s: Situation) -> Iterator[Step]:
    """A part of the memory system that has no column."""
    rest, stays = s.next_after(*([s.verdict.part] if s.verdict.part else []))
    yield _step(StepId.FIND_MEMORY_PART, 100 - rest, stays)


Steps = Callable[[Situation], Iterator[Step]]
_BY_KIND: Mapping[Kind, Steps] = {
    Kind.LAUNCH: _launch,
    Kind.IMBALANCE: _imbalance,
    Kind.LATENCY: _latency,
    Kind.COMPUTE: _instructions,
    Kind.MEMORY: _memory,
}
_BY_PART: Mapping[Part, Steps] = {
    Part.TENSOR_CORES: _tensor,
    Part.DRAM: _dram,
    Part.L2: _l2,
    Part.L1_DATA: _l1,
    Part.SHARED_MEMORY: _l1,
    Part.SHARED_MEMORY_OR_L1: _l1,
}
"""Before those by kind."""

_RESTATED = ("CPIStall", "AchievedOccupancy", "TheoreticalOccupancy", *BALANCE_RULES, *CONFLICT_RULES)
"""Rules whose step is among fiprof's own, with their estimate beside it."""


def _by_rules(s: Situation) -> Iterator[Step]:
    """ncu's rules that are about what binds."""
    for rule in s.rules:
        if rule.rejected is not None or rule.speedup_pct is None or rule.rule in _RESTATED:
            continue
        message = rule.message.rstrip(".")
        if rule.rule == "FPInstructions":
            basis = Finding(Basis.NCU_ESTIMATE_OF, {"estimate": rule.speedup_kind, "message": message})
            step = _step(StepId.FUSE_MULTIPLY_ADD, rule.speedup_pct, basis)
        else:
            basis = Finding(Basis.NCU_ESTIMATE, {"estimate": rule.speedup_kind})
            step = _step(StepId.NCU_RULE, rule.speedup_pct, basis, {"message": message})
        yield dataclasses.replace(step, rules=(rule,))


def with_steps(rules: tuple[QuotedRule, ...], found: tuple[Step, ...]) -> tuple[QuotedRule, ...]:
    """The rules, with a reason for those that are about what binds and yet no step rests on."""
    taken = {rule.rule for step in found for rule in step.rules}
    return tuple(
        rule
        if rule.rejected or rule.rule in taken
        else dataclasses.replace(rule, rejected=Finding(Rejected.BETTER_STEPS))
        for rule in rules
    )
