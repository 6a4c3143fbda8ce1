"""What to do about what binds a launch: each step with its words, its bound and what that rests on.

A resource at r percent of its peak needs r percent of the time whatever is done about the others. So a step saves at
most what the busiest resource leaves whose work it does not make less; and never more than the floor of the case's
bytes and operations leaves. A stall's share bounds nothing: warps wait at the same time.
"""

from __future__ import annotations

import csv
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fiprof.analysis.alternatives import Alternative
from fiprof.analysis.instructions import Family, HotInstruction, Listing
from fiprof.analysis.occupancy import WARP_THREADS, occupancy
from fiprof.analysis.stalls import state
from fiprof.analysis.thresholds import (
    CONFLICTS,
    DOMINANT_STALL,
    EMPTY,
    EXCESS,
    FMA_OF_ISSUE,
    FREQUENT,
    FUSED,
    KEPT,
    LEAST_GAIN,
    OPERANDS,
    OVERHEAD,
    SATURATED,
    SOME_WAITING,
    UNUSED,
)
from fiprof.analysis.verdict.model import Bottleneck, CaseBound, CaseVerdict, CauseId, Comparison, Kind, Part, Verdict
from fiprof.analysis.verdict.ncu_rules import BALANCE_RULES, CONFLICT_RULES, SECTOR_RULES, QuotedRule, by_warpgroups
from fiprof.analysis.verdict.rules import PASSES
from fiprof.model import quantities
from fiprof.model.case_quantities import Floor
from fiprof.model.finding import Finding, Phrase, Provenance, TracedNumber, Worded, finding, plain
from fiprof.model.quantities import Names, Quantity, Row, metric, number
from fiprof.model.work import counted_float_ops, dominant_tensor_kind, mostly_mma

MOST_STEPS = 3
MOST_REGISTERS = 255
"""Of a thread."""
INSTRUCTION_BYTES = 16
"""Of SASS, from compute capability 7.0 on."""
FEW_BLOCKS, FEW_WARPS = 2, 4
"""Blocks on a multiprocessor of which one at a barrier leaves half of it idle; warps of a block that is small."""
HOPPER = "9"
"""Major compute capability that has wgmma."""

COPIES = (Family.ASYNC_COPY, Family.TMA)
SHARED = (Family.SHARED_LOAD, Family.SHARED_STORE)
PIPES = (
    Part.ISSUE_SLOTS, Part.FMA_PIPE, Part.ALU_PIPE, Part.XU_PIPE, Part.FP64_PIPE, Part.LSU_PIPE, Part.ADU_PIPE,
    Part.CBU_PIPE, Part.TEX_PIPE, Part.UNIFORM_PIPE,
)  # fmt: skip
LOADS = (Part.LSU_PIPE, Part.ISSUE_SLOTS, *PASSES)
"""What fewer or wider loads and stores make less use of."""
MEMORY = (*LOADS, Part.L2, Part.DRAM)
"""What fewer accesses make less use of."""
_HIDDEN = {Part.OTHER_COMPUTE: {*PIPES, Part.TENSOR_CORES}, Part.OTHER_MEMORY: {*PASSES, Part.L2, Part.DRAM}}
"""A part without a column -> those beside it: whoever changes one of them may change it too."""

NOTHING_USED = finding("nothing_used", "nothing else is used")


class TimeOf(Worded):
    """Whose time a bound is of."""

    LAUNCH = "launch", "the launch"
    ITERATION = "iteration", "an iteration"


class Step(NamedTuple):
    """Something to do next."""

    action: Finding
    """What to do, with the numbers that its wording needs."""
    short: str
    """The same as a template for a table's cell."""
    bound_pct: float | None
    """The most that it saves, percent of the time of ``of``: nothing that it leaves as it is could be faster. None
    where nothing bounds it but the work itself."""
    basis: Finding
    """What the step and its bound rest on."""
    of: TimeOf = TimeOf.LAUNCH
    measured_pct: float | None = None
    """What it saved where it was measured, percent of the time of ``of``; None for a step that is only bounded."""
    estimate_pct: float | None = None
    """What it saves where everything else keeps its time, likewise; an estimate, that of ncu's rule or of the work that
    would be left. None where there is none."""
    cause: CauseId | None = None
    """The cause that it is for; None for one that is for what binds."""
    rules: tuple[QuotedRule, ...] = ()
    """ncu's rules that the step restates; of ncu_rule and fuse_multiply_add the one whose estimate it is."""
    bound_source: Provenance | None = None
    """Where the bound comes from; None without one, and where nothing that the step leaves as it is was used."""

    @property
    def id(self) -> str:
        """Its id in JSON, e.g. ``use_wgmma``."""
        return self.action.kind

    @property
    def bound(self) -> TracedNumber | None:
        """The bound with its provenance; None where it has none."""
        if self.bound_pct is None or self.bound_source is None:
            return None
        return TracedNumber(self.bound_pct, self.bound_source, ".0f", "%")

    @property
    def size_pct(self) -> float | None:
        """What it is ranked by: the smaller of bound and estimate; None without either."""
        return min((each for each in (self.bound_pct, self.estimate_pct) if each is not None), default=None)

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        action = self.action.fields()
        return {
            "id": action.pop("id"), "bound_pct": self.bound_pct, "estimate_pct": self.estimate_pct,
            "measured_pct": self.measured_pct, "of": self.of.value, "cause": plain(self.cause), **action,
            "basis": self.basis.fields(), "rules": [rule.rule for rule in self.rules],
        }  # fmt: skip


class Bound(NamedTuple):
    """The most that a step can save."""

    pct: float
    """Percent of the time."""
    basis: Finding | None = None
    """What needs the rest of the time."""
    source: Provenance | None = None
    """Where pct comes from."""


class LaunchContext(NamedTuple):
    """What is known of a launch when its steps are made."""

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
    floor: Floor | None = None
    """The least time of its case; None where it is not the case's main kernel, or nothing is known."""
    code: Listing | None = None
    """Its instructions; None where they were not collected."""

    def traced(self, quantity: Quantity) -> TracedNumber | None:
        return quantity.traced(self.row, self.names)

    def number(self, column: str) -> float | None:
        return number(self.row, column)

    def estimated(self, *names: str) -> tuple[QuotedRule, ...]:
        """ncu's rules of these names that estimate something."""
        return tuple(rule for rule in self.rules if rule.rule in names and rule.speedup_pct is not None)

    # What it uses

    def use(self, *parts: Part) -> float:
        """Use of the busiest of these parts, percent."""
        return max((found.value for part in parts if (found := self.verdict.resource(part))), default=0.0)

    def use_of(self, part: Part | None) -> dict[str, Any]:
        """The part, and its use where it was measured."""
        found = self.verdict.resource(part) if part else None
        return {"part": part, "use": found.comparison.number if found and found.comparison else None}

    def bound(self, *less: Part, still: float = 0.0, other_work: bool = False, fewer_bytes: bool = False) -> Bound:
        """The most that a step can save.

        less: resources that it makes less use of, the one that it is about first. still: percent of the time that this
        one needs afterwards, at the least. other_work, fewer_bytes: whether it changes what the operations and the
        bytes of the floor are.
        """

        def left(of: Bottleneck, factor: float = 1.0) -> Provenance | None:
            """Where the time comes from that a resource leaves which is needed for this part of its use."""
            if of.comparison is None:
                return None
            used = "a" if factor == 1 else f"{factor!r} * a"
            return Provenance("facts", f"max(100 - {used}, 0)", parts=(of.comparison.number.source,))

        needed, basis, source = 0.0, NOTHING_USED, None
        for found in self.verdict.resources:
            if found.part not in less and not _HIDDEN.get(found.part or Part.DRAM, set()).intersection(less):
                needed, source, used = found.value, left(found), self.use_of(found.part)
                if less:
                    basis = finding("stays", "{part} would still need {use} of the time", **used)
                elif used["use"] is not None:
                    basis = finding("used", "use of {part} is {use}", **used)
                break
        if still > needed:
            own = next(found for found in self.verdict.resources if found.part in less)
            words = "{part} would still need {still_pct:.1f}% of the time"
            needed, source = still, left(own, still / own.value)
            basis = finding("still", words, part=less[0], still_pct=still)
        saving = self.floor.saving_pct(other_work=other_work) if self.floor and not fewer_bytes else None
        if saving is not None and 100 - saving.value > needed:
            words = "the least bytes and operations leave no more than {most}"
            needed, source, basis = 100 - saving.value, saving.source, finding("floor", words, most=saving)
        return Bound(max(100 - needed, 0.0), basis, source)

    # Its instructions

    @property
    def counted(self) -> bool:
        """Whether it is known how often each instruction is executed."""
        return self.code is not None and self.code.executed_share() is not None

    def executes(self, *those: str, least: float = FREQUENT / 100) -> bool:
        """Whether these families or opcodes are known to be so much of what is executed, 0 to 1."""
        share = self.code.executed_share(*those) if self.code else None
        return share is not None and share >= least

    def has(self, *families: Family) -> bool:
        """Whether the code is known to have instructions of these families."""
        return self.code is not None and self.code.count(*families) > 0

    def narrow(self, *families: Family) -> bool:
        """Whether the widest access of these families is known to be below 16 bytes a thread; True where the code is
        not known."""
        if self.code is None:
            return True
        return max(self.code.widths(*families), default=16) < 16

    def hottest(self, reason: str | None = None) -> HotInstruction | None:
        """Where warps stall most, of those that stall for a reason; None where that is not known."""
        return self.code.hottest(reason) if self.code else None

    def in_code(self, *families: Family) -> Finding | None:
        """How many instructions of these families the code has, as a basis; None where it is not known or has none."""
        opcodes = self.code.opcodes(*families) if self.code else {}
        named = tuple(f"{count} {opcode}" for opcode, count in opcodes.items())
        return finding("code", "the code has {instructions}", instructions=named) if named else None

    def executed(self) -> Finding | None:
        """The families of instructions that are executed most, as a basis."""
        families = [each for each in Family if each is not Family.OTHER and self.executes(each)]
        shares = {each: self.code.executed_share(each) or 0.0 for each in families} if self.code else {}
        words = "{executed_share:.0%} are {family}"
        named = tuple(
            finding("family", words, family=each, executed_share=shares[each])
            for each in sorted(shares, key=shares.__getitem__, reverse=True)[:3]
        )
        return finding("executed", "of the executed instructions {families}", families=named) if named else None


@functools.cache
def _table(name: str) -> dict[str, dict[str, str]]:
    """``steps.csv``: a step's words for a table's cell and for a sentence; ``ways.csv``: how to do one."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return {row["id"]: row for row in csv.DictReader(text.splitlines())}


def step(
    kind: str,
    bound: Bound | None,
    because: Finding | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    of: TimeOf = TimeOf.LAUNCH,
    estimate: TracedNumber | float | None = None,
    rules: tuple[QuotedRule, ...] = (),
) -> Step:
    """A step of ``steps.csv``, with the most that it saves.

    bound: None where nothing bounds it. because: what it rests on, beside what needs the rest of the time. values: what
    its words name.
    """
    words, most = _table("steps.csv")[kind], None if bound is None else min(bound.pct, 100.0)
    saved = estimate.value if isinstance(estimate, TracedNumber) else estimate
    return Step(
        action=Finding(kind, values or {}, words["words"]),
        short=words["short"],
        bound_pct=most,
        basis=both(because, bound.basis if bound else None) or NOTHING_USED,
        of=of,
        estimate_pct=saved if saved is None or most is None else min(saved, most),
        rules=rules,
        bound_source=bound.source if bound else None,
    )


def both(*parts: Finding | None) -> Finding | None:
    """Several bases as one; those that are None are left out."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0] if known else None
    return finding("both", "{first}; {then}", first=known[0], then=both(*known[1:]))


def hot(found: HotInstruction | None) -> Finding | None:
    """An instruction at which warps stall, as a basis."""
    if found is None:
        return None
    kind, words = "hot", "the hottest instruction is {sass}, {sample_share:.0%} of the samples"
    if found.waits_for is not None:
        kind, words = "hot_waits", words + "; it waits for {waits_for}"
    return finding(kind, words, sass=found.sass, sample_share=found.share, waits_for=found.waits_for)


def ways(*those: tuple[str, bool]) -> dict[str, Any]:
    """The ways of ``ways.csv`` that the kernel does not go already, as a step's values."""
    words = _table("ways.csv")
    return {"ways": tuple(Phrase(way, words[way]["words"]) for way, open_ in those if open_)}


def peaks(ratio: float) -> Finding:
    """How much faster other instructions are, as a basis."""
    return finding("peaks", "their peak is {ratio:.3g} times as high", ratio=ratio)


def measured(found: Alternative) -> Step:
    """What to change, and what it saved of an iteration without a profiler."""
    words = "{instead_time} instead of {time}{measure}, {factor} times as fast ({low:.2f} to {high:.2f} {observed})"
    basis = finding(
        "measured", words, time=found.time, instead_time=found.instead_time, factor=found.time / found.instead_time,
        low=found.factor.low, high=found.factor.high, measure=found.measure, observed=found.difference.observed,
    )  # fmt: skip
    values = {"changes": tuple(change.finding for change in found.changes), "case": found.instead}
    made = step("use_alternative", None, basis, values, of=TimeOf.ITERATION)
    return made._replace(measured_pct=100 * (1 - 1 / found.factor.value))


# Which steps follow


def steps(s: LaunchContext) -> tuple[Step, ...]:
    """The two or three steps that follow: those for what causes it first, then the others that are bounded, the largest
    first, then those that are not; of a pair of limits first those that follow from both."""
    if s.verdict.pair:
        of_each = [steps(s._replace(verdict=replace(s.verdict, limits=(each,)))) for each in s.verdict.limits]
        ids = [{each.id for each in those} for those in of_each]
        shared = [each for each in of_each[0] if each.id in ids[1]]
        either = [
            each for pair in itertools.zip_longest(*of_each) for each in pair if each and each.id not in ids[0] & ids[1]
        ]
        return (*shared, *either)[:MOST_STEPS]
    verdict, case = s.verdict, s.case
    make = _FOR_PART.get(verdict.part) if verdict.part else None
    make = make or _FOR_KIND.get(verdict.kind)
    if make is None:
        return ()
    found: list[Step] = []
    if case is not None and case.bound is CaseBound.COPIES and case.copying is not None:
        # Where an iteration mostly copies, no change of a kernel matters as much.
        copying = case.copying.number
        because = finding("copying", "only copies run in {copying} of the GPU's busy time", copying=copying)
        bound = Bound(copying.value, source=copying.source)
        found.append(step("less_copying", bound, because, of=TimeOf.ITERATION))
    if verdict.kind is Kind.LAUNCH:
        found += make(s)
    else:
        for cause in verdict.causes:
            found += [each._replace(cause=cause.id) for each in steps_for(s, cause.id)]
        # A cause says more than the stall that it shows as, and than the search for the unit that it keeps busy.
        explained = {"find_unit", "find_memory_part"} if verdict.causes else set()
        explained |= {reason for cause in verdict.causes for reason in cause.id.stalls}
        found += [each for each in make(s) if explained.isdisjoint((each.action.values.get("reason"), each.id))]
        found += wgmma(s)
        found += _by_rules(s, {rule.rule for each in found for rule in each.rules})
        if case and case.waiting and case.waiting.value >= SOME_WAITING:
            found += [*_launch(s)][:1]
    once: dict[str | int, Step] = {}
    for each in found:
        # ncu's rules are all different.
        once.setdefault(len(once) if each.id == "ncu_rule" else each.id, each)
    worth = [each for each in once.values() if each.size_pct is None or each.size_pct >= LEAST_GAIN]

    def rank(each: Step) -> tuple[bool, bool, float]:
        """Steps for a cause keep their order: the most specific cause is first."""
        size = 0.0 if each.cause else -(each.size_pct or 0.0)
        return each.cause is None and each.id != "less_copying", each.bound_pct is None, size

    return tuple(sorted(worth, key=rank)[:MOST_STEPS])


def _by_rules(s: LaunchContext, taken: set[str]) -> Iterator[Step]:
    """ncu's rules that are about what binds, but those whose step is among fiprof's own, with their estimate beside
    it."""
    taken |= {"CPIStall", "AchievedOccupancy", "TheoreticalOccupancy", *BALANCE_RULES, *CONFLICT_RULES}
    for rule in s.rules:
        if rule.rejected is not None or rule.speedup_pct is None or rule.rule in taken:
            continue
        message, words = rule.message.rstrip("."), "ncu's estimate ({estimate})"
        if rule.rule == "FPInstructions":
            basis = finding("ncu_estimate_of", words + ": {message}", estimate=rule.speedup_kind, message=message)
            bound = s.bound(Part.FMA_PIPE, Part.FP64_PIPE, Part.ISSUE_SLOTS)
            yield step("fuse_multiply_add", bound, basis, estimate=rule.speedup_pct, rules=(rule,))
        else:
            basis = finding("ncu_estimate", words, estimate=rule.speedup_kind)
            yield step("ncu_rule", None, basis, {"message": message}, estimate=rule.speedup_pct, rules=(rule,))


def with_steps(rules: tuple[QuotedRule, ...], found: tuple[Step, ...]) -> tuple[QuotedRule, ...]:
    """The rules, with a reason for those that are about what binds and yet no step rests on."""
    taken = {rule.rule for each in found for rule in each.rules}
    better = finding("better_steps", "the steps above save more")
    return tuple(rule if rule.rejected or rule.rule in taken else rule._replace(rejected=better) for rule in rules)


# The host, the multiprocessors, latency


def _launch(s: LaunchContext) -> Iterator[Step]:
    if s.case is None or s.case.waiting is None:
        return
    waiting, words = s.case.waiting.number, "the GPU waits for {waiting} of it; {host}"
    values = {"waiting": waiting, "host": s.case.host}
    bound = Bound(waiting.value, source=waiting.source)
    graph = "larger_graph" if s.case.graph else "use_graph"
    yield step(graph, bound, finding("waits", words, **values), of=TimeOf.ITERATION)
    # Fused kernels move fewer bytes too.
    first = finding("waits_first", words + "; a faster kernel saves nothing until then", **values)
    yield step("larger_launches", None, first, of=TimeOf.ITERATION)


def _imbalance(s: LaunchContext) -> Iterator[Step]:
    kind, values = "even_work", {}
    if s.verdict.part is Part.TAIL:
        kind = "fuller_last_wave"
    elif s.verdict.part is Part.TOO_FEW_BLOCKS:
        kind = "more_blocks"
        values = {name: s.number(name) or 0.0 for name in ("blocks", "multiprocessors")}
    # Not the idle time: a block alone on a multiprocessor does not use it either.
    words = "the multiprocessors were idle for {idle} of the time of the longest"
    because, rules = finding("idle", words, idle=s.verdict.idle), s.estimated(*BALANCE_RULES)
    yield step(kind, s.bound(), because, values, estimate=s.verdict.idle, rules=rules)


def _latency(s: LaunchContext) -> Iterator[Step]:
    busiest, overhead = s.verdict.busiest, s.traced(quantities.OVERHEAD)
    too_short = overhead is not None and overhead.value >= OVERHEAD
    if too_short:
        because = finding("overhead", "no warp was resident in {overhead} of the cycles", overhead=overhead)
        yield step("longer_launch", s.bound(), because, estimate=overhead)
    if busiest is not None and busiest.part is Part.TENSOR_CORES:
        yield step("overlap_wgmma" if by_warpgroups(s.row) else "overlap_mma", s.bound())
        yield from less_work(s)
        yield from copy_by_tma(s)
    if s.stalls and s.stalls[0].value >= DOMINANT_STALL:
        reason, share = str(s.stalls[0].of), s.stalls[0].number
        if reason != "misc":  # it says nothing of what to do
            bound, where = s.bound(*_LESS_OF.get(reason, ())), hot(s.hottest(reason))
            values = {"reason": reason, "share": share, **_ways_out(s, reason)}
            yield step("less_stall", bound, where, values, rules=s.estimated("CPIStall"))
    elif s.stalls:
        waits = tuple(finding("wait", "{reason} {share}", reason=each.of, share=each.number) for each in s.stalls[:3])
        longest = finding("longest_waits", "the largest stalls are {waits} of the warps' time", waits=waits)
        yield step("read_hotspots", None, both(longest, hot(s.hottest())))
    if not by_warpgroups(s.row) and not too_short:
        yield from more_warps(s)


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


def _ways_out(s: LaunchContext, reason: str) -> Mapping[str, Any]:
    """What makes a stall less: by what the hottest instruction in it waits for, where that is known."""
    found = s.hottest(reason)
    match reason, found.cause if found else None:
        case "long_scoreboard", Family.MBARRIER | Family.COPY_WAIT:
            return ways(("more_stages", True), ("earlier_copies", True))
        case "long_scoreboard", Family.LOCAL:
            return ways(("no_local", True))
        case "long_scoreboard", Family.ATOMIC:
            return ways(("no_result", True))
        case "long_scoreboard", Family.GLOBAL_LOAD:
            return load_ways(s, found)
        case "short_scoreboard" | "mio_throttle", Family.SPECIAL:
            return ways(("polynomials", True), ("kept", True))
        case "short_scoreboard" | "mio_throttle", Family.CONVERSION:
            return ways(("fewer_conversions", True))
        case "short_scoreboard" | "mio_throttle", Family.SHARED_LOAD | Family.SHARED_STORE:
            conflicts = quantities.BANK_CONFLICTS.of(s.row) or 0.0
            return ways(
                ("no_conflicts", conflicts >= CONFLICTS / 100),
                ("wider_shared", s.narrow(Family.SHARED_LOAD)),
                ("loaded_earlier", True),
            )
    return {"ways": (finding("stall_helps", "{reason.helps}", reason=state(reason)),)}


def more_warps(s: LaunchContext) -> Iterator[Step]:
    """More warps to wait at the same time, where the grid has them and something holds them down."""
    found, bound = occupancy(s.row), s.bound()
    if found.waves is not None and not found.waves.full:
        empty = found.waves.idle_share
        if empty >= EMPTY / 100:
            most = empty * (100 - (quantities.OVERHEAD.of(s.row) or 0.0))
            because = finding("empty_places", "{empty:.0%} of the block slots are empty", empty=empty)
            places = {"blocks": found.waves.last_blocks, "wave_blocks": found.waves.wave_blocks}
            yield step("fill_wave", Bound(min(bound.pct, most), bound.basis), because, places)
        return
    now = found.theoretical_pct
    if found.steps_blocks and now and found.blocks:
        more = found.steps_blocks / found.blocks
        then = min(100.0, now * more)
        if then > now:
            # At best a block takes as long as before: time goes down with the warps, and with whole waves.
            waves = found.waves.waves if found.waves else 1.0
            left = min(now / then, math.ceil(waves / more) / math.ceil(waves))
            because = finding("more_wait", "so many more warps wait at the same time")
            values = {"changes": found.steps, "occupancy_pct": now, "then_pct": then}
            bound = Bound(min(bound.pct, 100 * (1 - left)), bound.basis)
            yield step("more_warps", bound, because, values, rules=s.estimated("TheoreticalOccupancy"))


# Tensor cores, pipes, issue slots


def _tensor(s: LaunchContext) -> Iterator[Step]:
    yield from less_work(s)
    # Kind of the operands -> the one of half its size.
    kind = dominant_tensor_kind(s.row)
    smaller = {"tf32": "bf16", "fp16": "fp8", "bf16": "fp8"}.get(kind or "")
    peak, faster = (s.number(f"tensor_peak_{each}_ops_per_cycle") for each in (kind, smaller))
    if faster is not None and peak is not None and faster > peak > 0:
        bound = s.bound(
            Part.TENSOR_CORES, Part.DRAM, Part.L2, *LOADS,
            still=s.use(Part.TENSOR_CORES) * peak / faster, other_work=True, fewer_bytes=True,
        )  # fmt: skip
        yield step("smaller_operands", bound, peaks(faster / peak), {"operands": kind, "smaller": smaller})
    yield step("close_tensor_gaps", s.bound())
    yield from copy_by_tma(s)


def less_work(s: LaunchContext) -> Iterator[Step]:
    """Operations that the algorithm does not need."""
    if s.excess_ops is not None and s.excess_ops >= EXCESS:
        still = s.use(Part.TENSOR_CORES, *PIPES) / s.excess_ops
        bound = s.bound(Part.TENSOR_CORES, *PIPES, *PASSES, Part.L2, still=still)
        words = "ncu counted {factor:.2f} times the operations that the algorithm needs"
        because = finding("excess_ops", words, factor=s.excess_ops)
        yield step("less_wasted_work", bound, because, estimate=100 * (1 - 1 / s.excess_ops))


def wgmma(s: LaunchContext) -> Iterator[Step]:
    """Instructions of a warpgroup for those of a warp, where the GPU has faster ones.

    Such a rewrite changes the copies, the loads from shared memory and the overlap too: what stays is the products at
    the higher peak, DRAM and the special functions. Not where DRAM is used more than the tensor cores are: there the
    operands' bytes come first.
    """
    kind, use = dominant_tensor_kind(s.row), s.use(Part.TENSOR_CORES)
    hopper = str(s.row.get("cc") or HOPPER).partition(".")[0] == HOPPER
    slow, fast = (s.number(f"{which}_peak_{kind}_ops_per_cycle") for which in ("mma", "tensor"))
    if kind is None or slow is None or fast is None or not hopper or use <= max(UNUSED, s.use(Part.DRAM)):
        return
    if fast > slow > 0 and mostly_mma(s.row, kind) and not s.has(Family.WGMMA):
        changed = (Part.TENSOR_CORES, Part.L2, *LOADS, Part.ALU_PIPE, Part.FMA_PIPE)
        because = both(s.in_code(Family.MMA), peaks(fast / slow))
        yield step("use_wgmma", s.bound(*changed, still=use * slow / fast), because)


def copy_by_tma(s: LaunchContext) -> Iterator[Step]:
    """Copies by TMA for those by cp.async, where products of a warpgroup wait for them."""
    if s.code and s.has(Family.WGMMA) and s.code.count(Family.ASYNC_COPY) > s.code.count(Family.TMA):
        yield step("copy_by_tma", s.bound(*LOADS, Part.ALU_PIPE), s.in_code(*COPIES))


def _pipes(s: LaunchContext) -> Iterator[Step]:
    """Less for the busiest pipe, or for the issue slots, by what the kernel executes most."""
    part, unknown = s.verdict.part, s.code is None
    yield from _tensor_cores(s)
    match part:
        case Part.ISSUE_SLOTS:
            open_, arithmetic = not s.counted, s.executes(Family.FLOAT, Family.CONVERSION)
            packed = s.executes(Family.PACKED, least=UNUSED / 100)
            how = ways(
                ("fewer_conversions", s.executes(Family.CONVERSION)),
                ("wider_loads", s.narrow(Family.GLOBAL_LOAD, Family.ASYNC_COPY)),
                ("packed", open_ or (arithmetic and not packed)),
                ("addresses_once", open_ or s.executes(Family.INTEGER)),
                ("unrolled", open_ or s.executes(Family.BRANCH)),
                ("kept", not open_),
            )
            yield step("fewer_instructions", s.bound(*PIPES), s.executed(), how)
        case Part.FMA_PIPE:
            # Two multiply-adds in one instruction, where the GPU does more of them so.
            ops = counted_float_ops(s.row)
            slow, fast = (s.number(f"{precision}_peak_ops_per_cycle") for precision in ("fp32", "fp16"))
            mostly_fp32 = bool(ops) and max(ops, key=ops.__getitem__) == "fp32" and _in_floats(s)
            packed = s.executes(Family.PACKED, least=UNUSED / 100)
            if mostly_fp32 and slow is not None and fast is not None and fast > slow > 0 and not packed:
                still = s.use(Part.FMA_PIPE) * slow / fast
                bound = s.bound(Part.FMA_PIPE, Part.ISSUE_SLOTS, still=still, other_work=True)
                yield step("packed_halves", bound, peaks(fast / slow))
            else:
                yield step("less_fma", s.bound(Part.FMA_PIPE, Part.ISSUE_SLOTS))
        case Part.ALU_PIPE:

            def often(opcodes: str) -> bool:
                return not s.counted or s.executes(*opcodes.split())

            how = ways(
                ("addresses_once", often("IADD3 IADD LEA VIADD")),
                ("fewer_comparisons", often("ISETP FSETP SEL FSEL FMNMX VIMNMX IMNMX PLOP3")),
                ("merged_logic", often("LOP3 SHF PRMT")),
                ("kept", s.counted),
            )
            yield step("less_alu", s.bound(Part.ALU_PIPE, Part.ISSUE_SLOTS), s.executed(), how)
        case Part.XU_PIPE:
            how = ways(
                ("polynomials", unknown or s.has(Family.SPECIAL)),
                ("fewer_conversions", unknown or s.has(Family.CONVERSION)),
                ("kept", True),
            )
            yield step("less_xu", s.bound(Part.XU_PIPE, Part.ISSUE_SLOTS), s.in_code(Family.SPECIAL), how)
        case Part.FP64_PIPE:
            slow, fast = (s.number(f"{precision}_peak_ops_per_cycle") for precision in ("fp64", "fp32"))
            still = s.use(Part.FP64_PIPE) * slow / fast if slow and fast else 0.0
            yield step("single_precision", s.bound(Part.FP64_PIPE, Part.ISSUE_SLOTS, still=still, other_work=True))
        case Part.LSU_PIPE:
            how = ways(
                ("wider_loads", s.narrow(Family.GLOBAL_LOAD, Family.GLOBAL_STORE, Family.ASYNC_COPY)),
                ("wider_shared", unknown or (s.has(*SHARED) and s.narrow(*SHARED))),
                ("in_registers", True),
            )
            yield step("fewer_accesses", s.bound(*LOADS), s.executed(), how)
        case Part.ADU_PIPE | Part.CBU_PIPE | Part.TEX_PIPE | Part.UNIFORM_PIPE:
            plain_ways = {
                Part.ADU_PIPE: ("uniform_indices", "fewer_barriers"),
                Part.CBU_PIPE: ("fewer_branches",),
                Part.TEX_PIPE: ("fewer_fetches",),
                Part.UNIFORM_PIPE: ("less_uniform",),
            }
            bound = s.bound(part, Part.ISSUE_SLOTS, Part.CONSTANT_CACHE)
            yield step("less_of_pipe", bound, s.executed(), {"part": part, "ways": plain_ways[part]})
        case _:
            yield step("find_unit", s.bound(Part.OTHER_COMPUTE, *PIPES))


def _in_floats(s: LaunchContext) -> bool:
    """Whether floating-point operations, not integer multiplications, make up the FMA pipe's use; True where that is
    not known. An addition is half a multiply-add."""
    ops, use = counted_float_ops(s.row).get("fp32"), s.number("fma_pct")
    cycles, peak = s.number("sm_cycles"), s.number("fp32_peak_ops_per_cycle")
    return ops is None or not cycles or not peak or use is None or 100 * ops / cycles / peak >= use / 4


def _fused(s: LaunchContext) -> float:
    """Multiply-adds of the fp32 instructions, 0 to 1; 1 where that is not known."""
    for counted in ("thread_insts", "thread_insts_per_cycle"):
        kinds = [s.number(f"{inst}_{counted}") for inst in ("ffma", "fadd", "fmul")]
        known = [each for each in kinds if each is not None]
        if len(known) == len(kinds) and any(known):
            return known[0] / math.fsum(known)
    return 1.0


def _tensor_cores(s: LaunchContext) -> Iterator[Step]:
    """Tensor cores for arithmetic that may be a product of matrices: it reads operands while it multiplies."""
    used, fma = s.number("tensor_active_pct"), s.traced(metric("fma_pct"))
    if s.verdict.part not in (Part.ISSUE_SLOTS, Part.FMA_PIPE) or used is None or fma is None or used >= UNUSED:
        return
    arithmetic = fma.value >= FMA_OF_ISSUE / 100 * s.use(Part.ISSUE_SLOTS) and _in_floats(s)
    if not arithmetic or s.use(*PASSES) < OPERANDS or s.has(Family.WGMMA, Family.MMA) or _fused(s) < FUSED / 100:
        return
    ops = {precision: count for precision, count in counted_float_ops(s.row).items() if count}
    precision = max(ops, key=ops.__getitem__, default="fp32")
    # Halves are often computed in fp32.
    kind = "fp64" if precision == "fp64" else "fp16"
    slow, fast = s.number(f"{precision}_peak_ops_per_cycle"), s.number(f"tensor_peak_{kind}_ops_per_cycle")
    if not fast or (slow is not None and slow >= fast):
        return
    there = fma.value * slow / fast if slow else 0.0
    words = "in {kind} the tensor cores need {tensor_pct:.1f}% of the time for what keeps the FMA pipe busy for {fma}"
    because = finding("tensor_cores_would", words, tensor_pct=there, fma=fma, kind=kind) if there else None
    changed = (Part.TENSOR_CORES, Part.FMA_PIPE, Part.ALU_PIPE, *LOADS)
    yield step("use_tensor_cores", s.bound(*changed, still=there, other_work=True), because)


# DRAM, the caches, shared memory


def _dram(s: LaunchContext) -> Iterator[Step]:
    use, excess = s.use(Part.DRAM), s.excess_bytes
    if excess is not None and excess >= EXCESS:
        words = "ncu counted {factor:.2f} times the DRAM bytes that the algorithm needs, at {use} use"
        because = finding("excess_bytes", words, factor=excess, **s.use_of(Part.DRAM))
        bound = s.bound(Part.DRAM, Part.L2, still=use / excess)
        yield step("move_fewer_bytes", bound, because, estimate=use * (1 - 1 / excess))
    elif excess is not None:
        kind, words = "bytes_moved", "DRAM moved {factor:.2f} times the least bytes"
        if excess < KEPT:
            kind, words = "bytes_kept", words + " (L2 kept some)"
        yield step("need_fewer_bytes", None, finding(kind, words, factor=excess))
    else:
        yield step("need_fewer_bytes", None, finding("bytes_bind", "DRAM binds: fewer bytes take less time"))
    yield from _ramp(s, Part.DRAM)
    if use < SATURATED:
        top = s.stalls[0] if s.stalls else None
        waits = top if top and top.of == "long_scoreboard" and top.value >= DOMINANT_STALL else None
        wait = finding("wait", "{reason} {share}", reason=waits.of, share=waits.number) if waits else None
        where, rules = (s.hottest("long_scoreboard"), s.estimated("CPIStall")) if waits else (None, ())
        yield step("more_loads", s.bound(), both(wait, hot(where)), load_ways(s, where), rules=rules)
        yield from more_warps(s)


def load_ways(s: LaunchContext, waiting: HotInstruction | None) -> dict[str, Any]:
    """How to keep more bytes on their way. waiting: the instruction at which most warps wait for them."""
    if waiting is not None and waiting.chain:
        return ways(("several_chains", True))
    if s.has(*COPIES):
        return ways(("more_stages", True))
    return ways(
        ("loads_in_flight", True),
        ("wider_loads", s.narrow(Family.GLOBAL_LOAD, Family.ASYNC_COPY)),
        ("async_copies", s.has(Family.SHARED_STORE)),
    )


def _ramp(s: LaunchContext, part: Part) -> Iterator[Step]:
    """Its start and end, where they are most of what is left to the roof."""
    overhead, idle = quantities.OVERHEAD.of(s.row) or 0.0, quantities.IDLE.of(s.row) or 0.0
    idle_pct = overhead + idle * (100 - overhead) / 100
    if idle_pct >= (100 - s.use(part)) / 2:
        words = "the multiprocessors have no warp for {idle_pct:.1f}% of the time"
        yield step("shorter_ramp", s.bound(), finding("ramp", words, idle_pct=idle_pct), estimate=idle_pct)


def _l2(s: LaunchContext) -> Iterator[Step]:
    yield step("less_l2", s.bound(Part.L2, *LOADS))
    yield from _ramp(s, Part.L2)


def _passes(s: LaunchContext) -> Iterator[Step]:
    """The data stage of L1 and shared memory."""
    part, conflicts = s.verdict.part, s.traced(quantities.BANK_CONFLICTS)
    assert part is not None
    # Atomics on one word are passes one after another too.
    atomics = any(cause.id is CauseId.ATOMICS for cause in s.verdict.causes)
    if conflicts is not None and conflicts.value >= CONFLICTS / 100 and not atomics:
        bound = s.bound(*PASSES, still=s.use(part) * (1 - conflicts.value))
        words = "{share} of the passes through shared memory are conflicts"
        because, rules = finding("conflicts", words, share=conflicts), s.estimated(*CONFLICT_RULES)
        yield step("no_bank_conflicts", bound, because, rules=rules)
    elif part is Part.L1_DATA:
        how = ways(
            ("coalesced", s.code is None or s.code.most_scattered() is not None),
            ("wider_loads", s.narrow(Family.GLOBAL_LOAD, Family.GLOBAL_STORE)),
            ("in_registers", True),
        )
        yield step("fewer_l1_passes", s.bound(*LOADS), s.executed(), how)
    else:
        how = ways(
            ("wider_shared", s.narrow(*SHARED)),
            ("in_registers", True),
            ("shuffles", s.code is not None and not s.has(Family.SHUFFLE, Family.WGMMA, Family.MMA)),
        )
        yield step("fewer_shared_passes", s.bound(*LOADS), s.executed(), how)


def _constants(s: LaunchContext) -> Iterator[Step]:
    """The cache of constants that are read by an index."""
    bound = s.bound(Part.CONSTANT_CACHE, Part.ADU_PIPE, Part.ISSUE_SLOTS)
    yield step("uniform_constants", bound, s.in_code(Family.CONSTANT))


def _other_memory(s: LaunchContext) -> Iterator[Step]:
    """A part of the memory system that has no column."""
    yield step("find_memory_part", s.bound(Part.OTHER_MEMORY, *PASSES, Part.L2))


Make = Callable[[LaunchContext], Iterator[Step]]
_FOR_PART: Mapping[Part, Make] = {
    Part.TENSOR_CORES: _tensor,
    Part.DRAM: _dram,
    Part.L2: _l2,
    Part.CONSTANT_CACHE: _constants,
    **dict.fromkeys(PASSES, _passes),
}
_FOR_KIND: Mapping[Kind, Make] = {
    Kind.LAUNCH: _launch,
    Kind.IMBALANCE: _imbalance,
    Kind.LATENCY: _latency,
    Kind.COMPUTE: _pipes,
    Kind.MEMORY: _other_memory,
}
"""For parts that are not in _FOR_PART. No step follows from the other kinds."""


# By cause


def steps_for(s: LaunchContext, cause: CauseId) -> Iterator[Step]:
    """What to do about a cause."""
    match cause:
        case CauseId.ATOMICS:
            code, bound = s.in_code(Family.ATOMIC, Family.SHARED_ATOMIC), s.bound(*LOADS, Part.L2)
            if not (s.has(Family.SHUFFLE) and s.has(Family.SHARED_ATOMIC)):
                yield step("aggregate_atomics", bound, code)
            yield step("spread_atomics", bound, code)
        case CauseId.BARRIER:
            how = ways(("warp_sync", True), ("named_barriers", True), ("double_buffer", s.has(Family.SHARED_STORE)))
            # What goes by shuffles within a warp passes no shared memory either.
            exchanged = LOADS if s.verdict.part in LOADS else ()
            bound = s.bound(Part.ISSUE_SLOTS, Part.ADU_PIPE, Part.OTHER_COMPUTE, *exchanged)
            yield step("fewer_barriers", bound, both(s.in_code(Family.BARRIER), hot(s.hottest("barrier"))), how)
            warps, blocks = occupancy(s.row).warps_per_block, occupancy(s.row).blocks
            if warps and blocks and warps > FEW_WARPS and blocks <= FEW_BLOCKS:
                yield step("smaller_blocks", s.bound(), None, {"blocks": blocks, "warps_per_block": warps})
        case CauseId.LOCAL_MEMORY:
            yield from _local_memory(s)
        case CauseId.SCATTERED_ACCESS:
            yield step("neighbouring_access", s.bound(*MEMORY), _sectors(s), rules=s.estimated(*SECTOR_RULES))
            if not s.has(*COPIES):
                yield step("stage_in_shared", s.bound(*MEMORY))
        case CauseId.DIVERGENCE:
            threads, words = s.traced(metric("threads_per_instruction")), "{threads} of 32 threads take part in "
            words += "an instruction"
            because = finding("threads", words, threads=threads) if threads else None
            bound = s.bound(*PIPES, still=s.use(*PIPES) * threads.value / WARP_THREADS if threads else 0.0)
            rules = s.estimated("ThreadDivergence")
            yield step("same_path", bound, both(because, s.in_code(Family.BRANCH)), rules=rules)
        case CauseId.PARTIAL_WARPS:
            threads, words = s.traced(metric("threads_per_block")), "a block has {threads} threads, a warp 32"
            because = finding("threads_of_block", words, threads=threads) if threads else None
            bound = s.bound(*PIPES, still=s.use(*PIPES) * threads.value / WARP_THREADS if threads else 0.0)
            yield step("whole_warps", bound, because)
        case CauseId.INSTRUCTION_CACHE:
            size = len(s.code.code.lines) * INSTRUCTION_BYTES / 1000 if s.code else None
            because = finding("code_size", "the code has {kilobytes:.0f} kB", kilobytes=size) if size else None
            yield step("smaller_code", s.bound(), because)
        case CauseId.CONSTANT_CACHE:
            yield step("fewer_constants", s.bound(Part.ISSUE_SLOTS), hot(s.hottest("imc_miss")))
        case CauseId.MEMORY_FENCE:
            yield step("fewer_fences", s.bound(Part.L2), s.in_code(Family.FENCE))
        case CauseId.SLEEPING:
            yield step("share_awaited_work", s.bound(), s.in_code(Family.SLEEP))
        case CauseId.HOST_MEMORY:
            yield step("copy_to_device", s.bound())


def _local_memory(s: LaunchContext) -> Iterator[Step]:
    """Spilled registers, arrays that a thread indexes by what the compiler does not know, or both."""
    requests, spilled = s.traced(quantities.LOCAL_REQUESTS), s.traced(metric("spill_requests"))
    code, bound, of_spills = s.in_code(Family.LOCAL), s.bound(*MEMORY), spilled.value if spilled else None
    if of_spills is None or of_spills > 0:
        words = "{spilled} requests to local memory are spills"
        spills = finding("spills", words, spilled=spilled) if of_spills else None
        registers = s.number("registers_per_thread") or 0.0
        values = {"registers": registers, "most": registers >= MOST_REGISTERS}
        yield step("fewer_spills", bound, both(spills, code), values)
    if of_spills is None or of_spills < (requests.value if requests else 0.0) / 2:
        words = "{requests} requests to local memory"
        counted = finding("local_requests", words, requests=requests) if requests else None
        yield step("constant_indices", bound, both(counted, code))


def _sectors(s: LaunchContext) -> Finding | None:
    """How scattered its accesses to global memory are, as a basis: the worst instruction, where that is known."""
    if s.code and (found := s.code.most_scattered()):
        where, factor = found
        words = "{sass} touches {factor:.3g} times the sectors that neighbouring threads would"
        return finding("sectors_at", words, sass=where.sass, factor=factor)
    counted = map(s.traced, (quantities.GLOBAL_LOADS_SECTORS, quantities.GLOBAL_STORES_SECTORS))
    worst = max(filter(None, counted), key=lambda each: each.value, default=None)
    return finding("sectors", "a request of a warp touches {sectors} sectors", sectors=worst) if worst else None
