"""What to do about what binds a launch: steps that follow from its evidence, each with the most it can save.

An estimate is a bound, not a promise. A resource at r percent needs r percent of the time whatever is done about the
others, so a step that touches all but that one saves at most 100 - r percent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from fiprof.parsers import metrics
from fiprof.parsers.metrics import Row, number
from fiprof.reports.facts import Said, say
from fiprof.reports.occupancy import occupancy
from fiprof.reports.quoted_rules import LEAST_GAIN_PCT, QuotedRule
from fiprof.reports.reasons import reason_of
from fiprof.reports.verdict_rules import (
    BUSY_PCT,
    DRAM,
    ISSUE,
    L1_DATA,
    L2,
    OTHER_COMPUTE,
    OTHER_MEMORY,
    SATURATED_PCT,
    SHARED,
    STALL_SHARE_PCT,
    TENSOR,
    Judgement,
    Reading,
)

MOST_STEPS = 3
EXCESS = 1.1
"""Counted over needed work or bytes from which less of it is a step."""
CONFLICT_SHARE = 0.1
"""Of the passes of shared memory, from which bank conflicts are a step: that of ncu's rule SharedMemoryConflicts."""
OVERHEAD_PCT = 20.0
"""Of a launch's cycles without a warp on any multiprocessor, from which it is called too short: fiprof's choice."""
SOME_FMA_PCT = 10.0
"""Use of the FMA pipe from which arithmetic is worth moving to the tensor cores: fiprof's choice."""
UNUSED_PCT = 1.0
"""Use of the tensor cores below which a kernel does not use them: RMSNorm, which has no matrices, reads 0.7 %."""


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

    def said(self) -> Said:
        """The whole, e.g. ``… (saves at most 12 % of the launch: …)``."""
        gain = "no estimate" if self.gain_pct is None else f"saves at most {self.gain_pct:.3g} % of {self.of}"
        return say("{} ({}: {})", self.action, gain, self.basis)


@dataclass(frozen=True)
class Reason:
    """A state of a launch's warps."""

    name: str
    share_pct: float
    """Of the warps' time."""
    reading: Reading


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
    kind, part = situation.judgement.kind, situation.judgement.part
    if kind == "unknown":
        return ()
    if kind == "launch":
        found = [*_launch(situation)]
    elif kind == "imbalance":
        found = [*_imbalance(situation)]
    elif kind == "latency":
        found = [*_latency(situation)]
    elif part == DRAM:
        found = [*_dram(situation)]
    elif part == L2:
        found = [*_l2(situation)]
    elif kind == "memory":
        found = [*_l1(situation)]
    elif part == TENSOR:
        found = [*_tensor(situation)]
    else:
        found = [*_instructions(situation)]
    if kind != "launch":
        found += _by_rules(situation)
    worth = [step for step in found if step.gain_pct is None or step.gain_pct >= LEAST_GAIN_PCT]
    return tuple(sorted(worth, key=lambda step: -1.0 if step.gain_pct is None else -step.gain_pct, reverse=False))[
        :MOST_STEPS
    ]


# What each verdict suggests


def _launch(s: Situation) -> Iterator[Step]:
    waiting = s.judgement.readings[0].value
    basis = f"the GPU waits for {waiting:.1f} % of it"
    if s.graph:
        yield Step(
            "Put more of the iteration into the CUDA graph, or more iterations into one; the host's work between "
            "replays is what the GPU waits for",
            waiting, basis, "an iteration",
        )  # fmt: skip
    else:
        yield Step("Launch the iteration from a CUDA graph: one call instead of one a kernel", waiting, basis,
                   "an iteration")  # fmt: skip
    yield Step(
        "Do more in a launch: fuse the kernels, or make the batch larger",
        waiting,
        f"{basis}; a faster kernel saves nothing until then",
        "an iteration",
    )


def _imbalance(s: Situation) -> Iterator[Step]:
    idle = s.judgement.idle_pct or 0.0
    basis = f"the multiprocessors were idle for {idle:.1f} % of the time of the longest"
    blocks, multiprocessors = number(s.row, "blocks") or 0.0, number(s.row, "multiprocessors") or 0.0
    if s.judgement.part == "too few blocks":
        action = (
            f"Split the work into more blocks: {blocks:.0f} of {multiprocessors:.0f} multiprocessors have one "
            "(smaller tiles, or a split of the long dimension with a merge after it)"
        )
        rule = next((r for r in s.rules if r.rule == "LaunchConfiguration" and r.speedup_pct is not None), None)
        if rule is not None:
            basis += f"; ncu's rule LaunchConfiguration says {rule.estimate}"
        yield Step(action, idle, basis)
        return
    if s.judgement.part == "tail":
        yield Step(
            "Make the last wave fuller: another number of blocks, or as many as fit at once, each taking the next "
            "piece of work until none is left",
            idle,
            basis,
        )
        return
    yield Step(
        "Share the work out evenly: split long pieces, start the longest first, or let blocks take the next piece "
        "when they are done with one",
        idle,
        basis,
    )


def _latency(s: Situation) -> Iterator[Step]:
    busiest = s.judgement.busiest
    used = busiest.value if busiest else 0.0
    room = f"{busiest.part} is used to {used:.1f} %" if busiest else "nothing else is used"
    active, cycles = number(s.row, "sm_active_cycles_max"), number(s.row, "sm_cycles")
    if active is not None and cycles and (overhead := 100 * (1 - active / cycles)) >= OVERHEAD_PCT:
        yield Step(
            "Do more in a launch, or fuse it with its neighbour: it is too short for its start and end",
            overhead,
            f"no multiprocessor had a warp in {overhead:.0f} % of its cycles",
        )
    if s.reasons:
        top = s.reasons[0]
        reason = reason_of(top.name)
        yield Step(
            f"Against {top.name}, {top.share_pct:.0f} % of the warps' time: {reason.helps}",
            min(top.share_pct, 100 - used),
            f"its share of the warps' time, and {room}",
        )
    yield from _more_warps(s, 100 - used, room)
    if busiest is not None and busiest.part == TENSOR:
        yield from _less_work(s)


def _more_warps(s: Situation, most: float, room: str) -> Iterator[Step]:
    """More warps to wait at the same time, where the grid has them and something holds them down."""
    found = occupancy(s.row)
    blocks, multiprocessors = number(s.row, "blocks"), number(s.row, "multiprocessors")
    if found.waves is not None and not found.waves.full:
        yield Step(
            f"Split the work into more blocks: the grid has {found.waves.last_blocks:,} of the "
            f"{found.waves.wave_blocks:,} that fit at once",
            min(most, 100 * found.waves.idle_share),
            f"{found.waves.idle_share:.0%} of the places for blocks are empty, and {room}",
        )
    elif found.lift is not None and found.theoretical_pct and found.lift.occupancy_pct > found.theoretical_pct:
        change = "; ".join(step.change for step in found.steps)
        yield Step(
            f"Make room for more warps: {found.theoretical_pct:.4g} % of them fit now, {found.lift.occupancy_pct:.4g} % "
            f"without the limit of {' and '.join(found.lift.resources)}" + (f" ({change})" if change else ""),
            min(most, 100 * (1 - found.theoretical_pct / found.lift.occupancy_pct)),
            f"so many more warps wait at the same time, and {room}",
        )
    elif blocks is not None and multiprocessors is not None and found.waves is None and blocks < 2 * multiprocessors:
        yield Step("Split the work into more blocks", most, room)


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
    kind = metrics.dominant_tensor_kind(s.row)
    if kind is not None and metrics.mostly_mma(s.row, kind):
        slow = metrics.number(s.row, f"mma_peak_{kind}_ops_per_cycle")
        fast = metrics.number(s.row, f"tensor_peak_{kind}_ops_per_cycle")
        if slow is not None and fast is not None and fast > slow > 0:
            yield Step(
                "Use the instructions of a warpgroup (wgmma) instead of those of a warp (mma)",
                use * (1 - slow / fast),
                f"their peak is {fast / slow:.2f} times as high",
            )
    smaller = metrics.number(s.row, "tensor_peak_fp8_ops_per_cycle")
    peak = metrics.number(s.row, f"tensor_peak_{kind}_ops_per_cycle") if kind in ("fp16", "bf16") else None
    if smaller is not None and peak is not None and smaller > peak > 0:
        yield Step(
            f"Use fp8 operands instead of {kind}, where the accuracy allows it",
            use * (1 - peak / smaller),
            f"their peak is {smaller / peak:.3g} times as high, at {use:.1f} % use",
        )
    yield _closer(s, TENSOR, use, "Keep the tensor cores fed without a gap: deeper pipelines, copies further ahead")


def _instructions(s: Situation) -> Iterator[Step]:
    """A pipe, or the schedulers' issue slots."""
    part = s.judgement.part
    use = s.use(part)
    feeders = (part, ISSUE)
    following, rest = s.next_after(*feeders)
    what = {
        ISSUE: "Issue fewer instructions for the same work: wider loads, packed arithmetic (two halves at once), "
        "addresses computed once, unrolled loops",
        "FMA pipe": "Do fewer multiplications and additions: packed halves (two at once), fused ones, common factors",
        "ALU pipe": "Do less integer and logic work: addresses computed once, fewer conversions and comparisons",
        "XU pipe": "Use fewer special functions and conversions: exp2 instead of exp, polynomials on the FMA pipe, "
        "results kept instead of computed again",
        "FP64 pipe": "Compute in single precision where the accuracy allows it",
        "LSU pipe": "Use fewer and wider loads and stores: 16 bytes a thread",
        OTHER_COMPUTE: "Find out which unit it is: Compute Workload Analysis in ncu's report lists them all",
    }[part]
    yield Step(what, 100 - rest, f"{following} stays, with {rest:.1f} % of the time")
    tensor = number(s.row, "tensor_active_pct")
    fma = number(s.row, "fma_pct")
    if part in (ISSUE, "FMA pipe") and tensor is not None and tensor < UNUSED_PCT and (fma or 0.0) >= SOME_FMA_PCT:
        dram = s.use(DRAM)
        yield Step(
            "Move products of matrices, if these are some, to the tensor cores, which the kernel does not use: one "
            "instruction does the work of many, and fewer passes through shared memory feed it",
            100 - dram,
            f"DRAM stays, with {dram:.1f} % of the time; the FMA pipe is used to {fma:.1f} %",
        )


def _dram(s: Situation) -> Iterator[Step]:
    use = s.use(DRAM)
    if s.excess_bytes is not None and s.excess_bytes >= EXCESS:
        yield Step(
            "Move fewer bytes: keep in registers, shared memory or L2 what is read more than once",
            use * (1 - 1 / s.excess_bytes),
            f"ncu counted {s.excess_bytes:.2f} times the DRAM bytes that the algorithm needs, at {use:.1f} % use",
        )
    else:
        least = "" if s.excess_bytes is None else f"ncu counted {s.excess_bytes:.2f} times the least: "
        yield Step(
            "Need fewer bytes: smaller element types, or fusion with the kernel before or after it",
            None,
            f"{least}each byte less is time less, as far as DRAM binds",
        )
    top = s.reasons[0] if s.reasons else None
    if use >= SATURATED_PCT:
        yield _closer(s, DRAM, use, "What is left to the roof is little: steady streams, no idle start and end")
        return
    wait = (
        f" ({top.share_pct:.0f} % of the warps' time is {top.name})"
        if top is not None and top.name == "long_scoreboard" and top.share_pct >= STALL_SHARE_PCT
        else ""
    )
    yield _closer(s, DRAM, use, f"Keep more loads in flight: several independent ones a thread, wider ones{wait}")
    yield from _more_warps(s, 100 - use, f"DRAM is used to {use:.1f} %")


def _l2(s: Situation) -> Iterator[Step]:
    following, rest = s.next_after(L2)
    yield Step(
        "Ask L2 for less: larger tiles in shared memory or registers, loads that L1 may keep, clusters that share "
        "what they load",
        100 - rest,
        f"{following} stays, with {rest:.1f} % of the time",
    )
    yield _closer(s, L2, s.use(L2), "What is left to the roof is little: keep it busy from start to end")


def _l1(s: Situation) -> Iterator[Step]:
    part = s.judgement.part
    use = s.use(part)
    following, rest = s.next_after(part)
    if part == OTHER_MEMORY:
        yield Step("Find out which part it is: Memory Workload Analysis in ncu's report lists them all", None,
                   "it has no column of its own")  # fmt: skip
        return
    passes, conflicts = number(s.row, "shared_wavefronts"), number(s.row, "shared_bank_conflicts")
    if passes and conflicts is not None and conflicts >= CONFLICT_SHARE * passes:
        share = min(conflicts / passes, 1.0)
        yield Step(
            "Remove the bank conflicts: pad or swizzle the rows, so that the lanes of a warp hit different banks",
            min(use * share, max(use - rest, 0.0)),
            f"{share:.0%} of the passes through shared memory are conflicts; {following} stays, with {rest:.1f} %",
        )
    yield Step(
        "Make fewer passes through shared memory and L1: 16 bytes a thread, values kept in registers, shuffles"
        if part != L1_DATA
        else "Make fewer passes through L1: coalesced and wider loads, values kept in registers",
        100 - rest,
        f"{following} stays, with {rest:.1f} % of the time",
    )


def _closer(s: Situation, part: str, use: float, action: str) -> Step:  # noqa: ARG001
    return Step(action, 100 - use, f"the distance of {part} to its roof")


def _by_rules(s: Situation) -> Iterator[Step]:
    """ncu's rules that are about what binds."""
    seen = set()
    for rule in s.rules:
        restated = rule.rule in ("LaunchConfiguration", "AchievedOccupancy", "TheoreticalOccupancy", "CPIStall")
        if rule.why_not or rule.speedup_pct is None or restated or rule.rule in seen:
            continue
        seen.add(rule.rule)
        yield Step(f"ncu: {rule.message}", rule.speedup_pct, f"ncu's estimate, {rule.speedup_kind}", rule=rule.rule)


def with_rules(found: tuple[Step, ...], rules: tuple[QuotedRule, ...]) -> tuple[QuotedRule, ...]:
    """The rules, those that are about what binds and yet not among the steps with the reason for it."""
    used = {step.rule for step in found}
    return tuple(
        rule
        if rule.why_not or rule.rule in used
        else dataclasses.replace(rule, why_not="the steps above say the same or save more")
        for rule in rules
    )


__all__ = ["BUSY_PCT", "SHARED", "Reason", "Situation", "Step", "steps", "with_rules"]
