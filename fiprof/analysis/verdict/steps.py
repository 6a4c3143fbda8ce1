"""What to do about what binds a launch: steps that follow from its evidence, each with the most it can save.

An estimate is a bound, not a promise. A resource at r percent needs r percent of the time whatever is done about the
others, so a step that touches all but that one saves at most 100 - r percent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.reasons import reason_of
from fiprof.analysis.verdict.model import Comparison, Judgement
from fiprof.analysis.verdict.quoted_rules import (
    CONFLICT_SHARE,
    EXCESS,
    LEAST_GAIN_PCT,
    UNUSED_PCT,
    QuotedRule,
    by_warpgroups,
    conflict_share,
)
from fiprof.analysis.verdict.rules import (
    DRAM,
    ISSUE,
    L1_DATA,
    L2,
    OTHER_COMPUTE,
    SATURATED_PCT,
    SHARED,
    SHARED_OR_L1,
    STALL_SHARE_PCT,
    TENSOR,
)
from fiprof.model.expressions import Row, number
from fiprof.model.provenance import TracedText, sentence
from fiprof.model.quantities import counted_float_ops, dominant_tensor_kind, mostly_mma

MOST_STEPS = 3
OVERHEAD_PCT = 20.0
"""Of a launch's cycles without a warp on any multiprocessor, from which it is called too short: fiprof's choice."""
FMA_OF_ISSUE = 0.5
"""Of the issue slots used, the part that goes to the FMA pipe, from which a kernel is mostly arithmetic and worth a
look for products of matrices: fiprof's choice."""
EMPTY_SHARE = 0.2
"""Of the places for blocks, from which a grid is called small: fiprof's choice."""
SOME_WAITING_PCT = 10.0
"""Of an iteration in which the GPU waits, from which it is a step beside the kernel's own: fiprof's choice."""


@dataclass(frozen=True)
class Step:
    """Something to do next."""

    action: str
    """What, as a sentence."""
    gain_pct: float | None
    """The most that it saves, percent of the time of ``of``; None where nothing bounds it but the work itself."""
    basis: str
    """Where the estimate comes from."""
    of: str = "the launch"
    """Whose time: the launch's or an iteration's."""
    rule: str = ""
    """ncu's rule whose estimate it is; empty where it is fiprof's."""

    def said(self) -> TracedText:
        """The whole, e.g. ``… (saves at most 12% of the launch: …)``."""
        gain = "no estimate" if self.gain_pct is None else f"saves at most {self.gain_pct:.3g}% of {self.of}"
        return sentence("{} ({}: {})", self.action, gain, self.basis)


@dataclass(frozen=True)
class Reason:
    """A state of a launch's warps."""

    name: str
    share_pct: float
    """Of the warps' time."""
    reading: Comparison


@dataclass(frozen=True)
class Situation:
    """What steps are made from."""

    row: Row
    judgement: Judgement
    reasons: tuple[Reason, ...] = ()
    """Those that are stalls, the largest first."""
    rules: tuple[QuotedRule, ...] = ()
    """Weighed: with why they are no step."""
    excess_ops: float | None = None
    """Operations that ncu counted over those that the case needs; None where that is not known."""
    excess_bytes: float | None = None
    """DRAM bytes likewise."""
    waiting_pct: float | None = None
    """Of an iteration of its case, the time in which the GPU waits; None where that is not known."""
    host: str = ""
    """How the host launches an iteration, in words: what the launch calls and the kernels take."""
    graph: bool = False
    """Whether the case's kernels come from a CUDA graph."""

    def use(self, part: str) -> float:
        found = self.judgement.resource(part)
        return found.value if found else 0.0

    def next_after(self, *parts: str) -> tuple[str, float]:
        """The busiest resource but these."""
        rest = [item for item in self.judgement.resources if item.part not in parts]
        return (rest[0].part, rest[0].value) if rest else ("nothing else", 0.0)


def steps(situation: Situation) -> tuple[Step, ...]:
    """The two or three steps that follow, the largest gain first; those without an estimate come last."""
    kind = situation.judgement.kind
    if kind == "unknown":
        return ()
    found = [*_STEPS.get(situation.judgement.part, _STEPS[kind])(situation)]
    if kind != "launch":
        found += [*_by_rules(situation)]
        if (situation.waiting_pct or 0.0) >= SOME_WAITING_PCT:
            found += [*_launch(situation)][:1]
    # Counters of different replays may read a little more than all of the time.
    bounded = [
        step if step.gain_pct is None else dataclasses.replace(step, gain_pct=min(step.gain_pct, 100.0))
        for step in found
    ]
    worth = [step for step in bounded if step.gain_pct is None or step.gain_pct >= LEAST_GAIN_PCT]
    return tuple(sorted(worth, key=lambda step: 1.0 if step.gain_pct is None else -step.gain_pct)[:MOST_STEPS])


def _launch(s: Situation) -> Iterator[Step]:
    waiting = s.waiting_pct or 0.0
    basis = f"the GPU waits for {waiting:.1f}% of it" + (f"; {s.host}" if s.host else "")
    if s.graph:
        action = (
            "Put more of the iteration, or several iterations, into one CUDA graph: the GPU waits for the host between "
            "its replays"
        )
    else:
        action = "Launch the iteration from a CUDA graph: one call, without the program's own work around each kernel"
    yield Step(action, waiting, basis, "an iteration")
    yield Step(
        "Do more in a launch: fuse the kernels, or make the batch larger",
        waiting,
        f"{basis}; a faster kernel saves nothing until then",
        "an iteration",
    )


def _imbalance(s: Situation) -> Iterator[Step]:
    idle = s.judgement.idle_pct or 0.0
    basis = f"the multiprocessors were idle for {idle:.1f}% of the time of the longest{_also(s, *_BALANCE_RULES)}"
    blocks, multiprocessors = number(s.row, "blocks") or 0.0, number(s.row, "multiprocessors") or 0.0
    if s.judgement.part == "too few blocks":
        action = (
            f"Split the work into more blocks, for {blocks:.0f} of {multiprocessors:.0f} multiprocessors have one: "
            "smaller tiles, or a split of the long dimension with a merge after it"
        )
    elif s.judgement.part == "tail":
        action = (
            "Make the last wave fuller: another number of blocks, or as many as fit at once, each taking the next "
            "piece of work until none is left"
        )
    else:
        action = (
            "Share the work out evenly: split long pieces, start the longest first, or let blocks take the next piece "
            "when they are done with one"
        )
    yield Step(action, idle, basis)


_BALANCE_RULES = ("LaunchConfiguration", "WorkloadImbalance")


def _latency(s: Situation) -> Iterator[Step]:
    busiest = s.judgement.busiest
    used = busiest.value if busiest else 0.0
    room = f"use of {busiest.part} is {used:.1f}%" if busiest else "nothing else is used"
    overhead = _overhead(s.row)
    if overhead >= OVERHEAD_PCT:
        yield Step(
            "Do more in the launch, or fuse it with its neighbour: it is too short for its start and end",
            overhead,
            f"no multiprocessor had a warp in {overhead:.0f}% of its cycles",
        )
    if s.reasons and s.reasons[0].share_pct >= STALL_SHARE_PCT:
        top = s.reasons[0]
        yield Step(
            f"Spend less time in {top.name}, {top.share_pct:.0f}% of the warps' time: {reason_of(top.name).helps}",
            min(top.share_pct, 100 - used),
            f"its share of the warps' time, and {room}{_also(s, 'CPIStall')}",
        )
    elif s.reasons:
        named = ", ".join(f"{reason.name} {reason.share_pct:.0f}%" for reason in s.reasons[:3])
        yield Step(
            "Look where the samples are (fiprof hotspots): no wait dominates, so it is the chain of instructions",
            None,
            f"the longest waits are {named} of the warps' time",
        )
    if busiest is not None and busiest.part == TENSOR:
        yield Step(
            "Overlap the products with everything else: deeper pipelines with more tiles in flight, or "
            + (
                "ping-pong warpgroups, one's other arithmetic (softmax, conversions) during the other's wgmma"
                if by_warpgroups(s.row)
                else "the next tile's loads and mma between this tile's other arithmetic"
            ),
            100 - used,
            f"the distance of the tensor cores, used to {used:.1f}%, to their roof",
        )
        yield from _less_work(s)
    if not by_warpgroups(s.row):
        yield from _more_warps(s, 100 - used, room)


def _overhead(row: Row) -> float:
    """Percent of the launch's cycles in which no multiprocessor had a warp; 0 where it cannot be told."""
    active, cycles = number(row, "sm_active_cycles_max"), number(row, "sm_cycles")
    return 0.0 if active is None or not cycles or cycles < 0 else min(max(100 * (1 - active / cycles), 0.0), 100.0)


def _more_warps(s: Situation, most: float, room: str) -> Iterator[Step]:
    """More warps to wait at the same time, where the grid has them and something holds them down."""
    found = occupancy(s.row)
    also = _also(s, "TheoreticalOccupancy")
    if found.waves is not None and not found.waves.full:
        if found.waves.idle_share >= EMPTY_SHARE:
            yield Step(
                f"Split the work into more blocks: the grid has {found.waves.last_blocks:,} of the "
                f"{found.waves.wave_blocks:,} that fit at once",
                min(most, found.waves.idle_share * (100 - _overhead(s.row))),
                f"{found.waves.idle_share:.0%} of the places for blocks are empty, and {room}",
            )
    elif (
        found.steps
        and found.theoretical_pct
        and found.blocks
        and found.lift
        and len(found.steps) == len(found.lift.resources)
    ):
        blocks = min(step.blocks for step in found.steps)
        then = min(100.0, found.theoretical_pct * blocks / found.blocks)
        if then > found.theoretical_pct:
            yield Step(
                f"Make room for more warps: {' and '.join(step.change for step in found.steps)} lets {then:.4g}% of "
                f"them fit instead of {found.theoretical_pct:.4g}%",
                min(most, 100 * (1 - found.theoretical_pct / then)),
                f"so many more warps wait at the same time, and {room}{also}",
            )


def _less_work(s: Situation) -> Iterator[Step]:
    if s.excess_ops is not None and s.excess_ops >= EXCESS:
        yield Step(
            "Do less work that is thrown away: skip tiles that are masked out, or use smaller tiles at the diagonal "
            "and the edges",
            100 * (1 - 1 / s.excess_ops),
            f"ncu counted {s.excess_ops:.2f} times the operations that the algorithm needs",
        )


def _tensor(s: Situation) -> Iterator[Step]:
    use = s.use(TENSOR)
    yield from _less_work(s)
    kind = dominant_tensor_kind(s.row)
    peak = number(s.row, f"tensor_peak_{kind}_ops_per_cycle")
    if kind is not None and peak is not None and mostly_mma(s.row, kind):
        slow = number(s.row, f"mma_peak_{kind}_ops_per_cycle")
        if slow is not None and peak > slow > 0:
            yield Step(
                "Use the instructions of a warpgroup (wgmma) instead of those of a warp (mma)",
                use * (1 - slow / peak),
                f"their peak is {peak / slow:.2f} times as high",
            )
    smaller = number(s.row, "tensor_peak_fp8_ops_per_cycle")
    if smaller is not None and peak is not None and kind in ("fp16", "bf16") and smaller > peak > 0:
        yield Step(
            f"Use fp8 operands instead of {kind}, where the accuracy allows it",
            use * (1 - peak / smaller),
            f"their peak is {smaller / peak:.3g} times as high, and use of the tensor cores {use:.1f}%",
        )
    yield _closer(TENSOR, use, "Close the gaps between the tensor cores' work: deeper pipelines, copies further ahead")


_FEWER = {
    ISSUE: "Issue fewer instructions for the same work: wider loads, packed arithmetic (two halves at once), addresses "
    "computed once, unrolled loops",
    "FMA pipe": "Do fewer multiplications and additions: fused ones, common factors, packed halves",
    "ALU pipe": "Do less integer and logic work: addresses computed once, fewer conversions and comparisons",
    "XU pipe": "Use fewer special functions and conversions: exp2 instead of exp, polynomials on the FMA pipe, results "
    "kept instead of computed again",
    "FP64 pipe": "Compute in single precision where the accuracy allows it",
    "LSU pipe": "Use fewer and wider loads and stores: 16 bytes a thread",
    OTHER_COMPUTE: "Find out which unit it is: Compute Workload Analysis in ncu's report lists them all",
}


def _instructions(s: Situation) -> Iterator[Step]:
    """A pipe, or the schedulers' issue slots."""
    part = s.judgement.part
    following, rest = s.next_after(part, ISSUE)
    ops = counted_float_ops(s.row)
    if part == "FMA pipe" and ops and max(ops, key=ops.__getitem__) == "fp32":
        yield Step(
            "Do two multiply-adds in one instruction, with packed halves (HFMA2), where the accuracy allows it",
            min(s.use(part) / 2, 100 - rest),
            f"half the instructions, of a pipe used to {s.use(part):.1f}%",
        )
    else:
        yield Step(_FEWER[part], 100 - rest, _stays(following, rest))
    tensor, fma = number(s.row, "tensor_active_pct"), number(s.row, "fma_pct")
    unused = tensor is not None and tensor < UNUSED_PCT
    if part in (ISSUE, "FMA pipe") and unused and fma is not None and fma >= FMA_OF_ISSUE * s.use(ISSUE):
        slow, fast = number(s.row, "fp32_peak_ops_per_cycle"), number(s.row, "tensor_peak_tf32_ops_per_cycle")
        there = fma * slow / fast if slow and fast and fast > slow > 0 else 0.0
        dram = s.use(DRAM)
        yield Step(
            "If this arithmetic is a product of matrices, move it to the tensor cores, which the kernel does not use: "
            "one instruction does the work of many",
            100 - max(dram, there),
            f"the tensor cores would do in {there:.1f}%, in tf32, what uses the FMA pipe to {fma:.1f}%"
            if there > dram
            else f"{_stays(DRAM, dram)}"
            + (f"; the tensor cores {there:.1f}%, in tf32, for what uses the FMA pipe to {fma:.1f}%" if there else ""),
        )


_NEAR = "Shorten its ramp-up and its tail, which are most of what is left between it and the roof"


def _dram(s: Situation) -> Iterator[Step]:
    use = s.use(DRAM)
    if s.excess_bytes is not None and s.excess_bytes >= EXCESS:
        yield Step(
            "Move fewer bytes: keep in registers, shared memory or L2 what is read more than once",
            use * (1 - 1 / s.excess_bytes),
            f"ncu counted {s.excess_bytes:.2f} times the DRAM bytes that the algorithm needs, at {use:.1f}% use",
        )
    else:
        kept = " (L2 kept some)" if s.excess_bytes is not None and s.excess_bytes < 0.95 else ""
        least = "" if s.excess_bytes is None else f"DRAM moved {s.excess_bytes:.2f} times the least{kept}; "
        yield Step(
            "Need fewer bytes: smaller element types, or fusion with the kernel before or after it",
            None,
            f"{least}as far as DRAM binds, each byte less is time less",
        )
    if use >= SATURATED_PCT:
        yield _closer(DRAM, use, _NEAR)
        return
    top = s.reasons[0] if s.reasons else None
    wait = (
        f": {top.share_pct:.0f}% of the warps' time is {top.name}"
        if top is not None and top.name == "long_scoreboard" and top.share_pct >= STALL_SHARE_PCT
        else ""
    )
    closer = _closer(DRAM, use, f"Keep more loads in flight, several independent and wide ones a thread{wait}")
    yield dataclasses.replace(closer, basis=closer.basis + (_also(s, "CPIStall") if wait else ""))
    yield from _more_warps(s, 100 - use, f"use of DRAM is {use:.1f}%")


def _l2(s: Situation) -> Iterator[Step]:
    yield Step(
        "Ask L2 for less: larger tiles in shared memory or registers, loads that L1 may keep, clusters that share "
        "what they load",
        100 - s.next_after(L2)[1],
        _stays(*s.next_after(L2)),
    )
    yield _closer(L2, s.use(L2), _NEAR)


def _l1(s: Situation) -> Iterator[Step]:
    """The data stage of L1 and shared memory."""
    part = s.judgement.part
    use, (following, rest) = s.use(part), s.next_after(part)
    conflicts = conflict_share(s.row)
    if conflicts is not None and conflicts >= CONFLICT_SHARE:
        yield Step(
            "Remove the bank conflicts: pad or swizzle the rows, so that the lanes of a warp hit different banks",
            min(use * conflicts, max(use - rest, 0.0)),
            f"{conflicts:.1%} of the passes through shared memory are conflicts; {_stays(following, rest)}"
            + _also(s, *_CONFLICT_RULES),
        )
        return
    yield Step(
        "Make fewer passes through L1: coalesced and wider loads, values kept in registers"
        if part == L1_DATA
        else "Make fewer passes through shared memory: 16 bytes a thread, values kept in registers, shuffles",
        100 - rest,
        _stays(following, rest),
    )


_CONFLICT_RULES = ("SharedMemoryConflicts", "UncoalescedSharedAccess")


def _memory(s: Situation) -> Iterator[Step]:
    """A part of the memory system that has no column."""
    following, rest = s.next_after(s.judgement.part)
    yield Step(
        "Find out which part it is: Memory Workload Analysis in ncu's report lists them all",
        100 - rest,
        _stays(following, rest),
    )


_STEPS: dict[str, Callable[[Situation], Iterator[Step]]] = {
    # By part, else by kind.
    "launch": _launch,
    "imbalance": _imbalance,
    "latency": _latency,
    "compute": _instructions,
    "memory": _memory,
    TENSOR: _tensor,
    DRAM: _dram,
    L2: _l2,
    L1_DATA: _l1,
    SHARED: _l1,
    SHARED_OR_L1: _l1,
}


def _stays(part: str, value: float) -> str:
    return f"{part} would still need {value:.1f}% of the time"


def _closer(part: str, use: float, action: str) -> Step:
    return Step(action, 100 - use, f"the distance of {part}, used to {use:.1f}%, to its roof")


def _also(s: Situation, *names: str) -> str:
    """What ncu's rules of these names estimate, to put behind fiprof's own estimate; empty where they say nothing."""
    found = [f"{rule.rule} {rule.estimate}" for rule in s.rules if rule.rule in names and rule.speedup_pct is not None]
    return f"; ncu's rule: {', '.join(found)}" if found else ""


_RESTATED = ("CPIStall", "AchievedOccupancy", "TheoreticalOccupancy", *_BALANCE_RULES)
"""Rules whose step is among fiprof's own, with their estimate beside it."""


_SAID = {"FPInstructions": "Fuse multiplications and additions into FMA instructions"}
"""Rules that describe what they see: what to do about it."""


def _by_rules(s: Situation) -> Iterator[Step]:
    """ncu's rules that are about what binds."""
    for rule in s.rules:
        if not rule.why_not and rule.speedup_pct is not None and rule.rule not in (*_RESTATED, *_CONFLICT_RULES):
            action, basis = f"ncu says: {rule.message}", f"ncu's estimate ({rule.speedup_kind})"
            if rule.rule in _SAID:
                action, basis = _SAID[rule.rule], f"{basis}; {rule.message.rstrip('.')}"
            yield Step(action, rule.speedup_pct, basis, rule=rule.rule)


def with_rules(found: tuple[Step, ...], rules: tuple[QuotedRule, ...]) -> tuple[QuotedRule, ...]:
    """The rules, with a reason for those that are about what binds and yet neither a step nor named beside one."""
    named = " ".join([step.rule for step in found] + [step.basis for step in found])
    return tuple(
        rule
        if rule.why_not or rule.rule in named
        else dataclasses.replace(rule, why_not="the steps save more, or do not rest on it")
        for rule in rules
    )
