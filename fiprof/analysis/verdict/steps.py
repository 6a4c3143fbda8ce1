"""What to do about what binds a launch: each step with its words, its bound and what that rests on.

A resource at r percent of its peak needs r percent of the time whatever is done about the others. So a step saves at
most what the busiest resource leaves whose work it does not make less; and never more than the floor of the case's
bytes and operations leaves. A stall's share bounds nothing: warps wait at the same time.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fiprof.analysis.alternatives import Alternative
from fiprof.analysis.instructions import Family, HotInstruction, Listing
from fiprof.analysis.occupancy import WARP_THREADS, occupancy
from fiprof.analysis.reasons import state
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
)  # fmt: skip
from fiprof.analysis.verdict.model import (
    Bottleneck,
    CaseBound,
    CaseVerdict,
    Cause,
    CauseId,
    Comparison,
    Kind,
    Part,
    Verdict,
)  # fmt: skip
from fiprof.analysis.verdict.ncu_rules import (
    BALANCE_RULES,
    CONFLICT_RULES,
    SECTOR_RULES,
    QuotedRule,
    by_warpgroups,
)  # fmt: skip
from fiprof.model import quantities
from fiprof.model.finding import Finding, finding, plain
from fiprof.model.floors import Floor
from fiprof.model.formula import Names, Row, number
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.quantities import Quantity, metric
from fiprof.model.wording import Phrase, Worded
from fiprof.model.work import counted_float_ops, dominant_tensor_kind, mostly_mma


class TimeOf(Worded):
    """Whose time a bound is of."""

    LAUNCH = "launch", "the launch"
    ITERATION = "iteration", "an iteration"


@dataclass(frozen=True)
class Step:
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
        known = [each for each in (self.bound_pct, self.estimate_pct) if each is not None]
        return min(known, default=None)

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        action = self.action.fields()
        return {
            "id": action.pop("id"), "bound_pct": self.bound_pct, "estimate_pct": self.estimate_pct,
            "measured_pct": self.measured_pct, "of": self.of.value, "cause": plain(self.cause), **action,
            "basis": self.basis.fields(), "rules": [rule.rule for rule in self.rules],
        }  # fmt: skip


COPIES = (Family.ASYNC_COPY, Family.TMA)
PASSES = (Part.L1_DATA, Part.SHARED_MEMORY, Part.SHARED_MEMORY_OR_L1)
"""The data stage that L1 and shared memory have in common."""
PIPES = (
    Part.ISSUE_SLOTS, Part.FMA_PIPE, Part.ALU_PIPE, Part.XU_PIPE, Part.FP64_PIPE, Part.LSU_PIPE, Part.ADU_PIPE,
    Part.CBU_PIPE, Part.TEX_PIPE, Part.UNIFORM_PIPE,
)  # fmt: skip
LOADS = (Part.LSU_PIPE, Part.ISSUE_SLOTS, *PASSES)
"""What fewer or wider loads and stores make less use of."""

_HIDDEN = {Part.OTHER_COMPUTE: {*PIPES, Part.TENSOR_CORES}, Part.OTHER_MEMORY: {*PASSES, Part.L2, Part.DRAM}}
"""A part without a column -> those beside it: whoever changes one of them may change it too."""


NOTHING_USED = finding("nothing_used", "nothing else is used")


@dataclass(frozen=True)
class Room:
    """The most that a step can save."""

    pct: float
    """Percent of the launch's time."""
    basis: Finding | None
    """What needs the rest of the time."""
    source: Provenance | None = None
    """Where pct comes from."""


@dataclass(frozen=True)
class Situation:
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

    def use(self, *parts: Part) -> float:
        """Use of the busiest of these parts, percent."""
        return max((found.value for part in parts if (found := self.verdict.resource(part))), default=0.0)

    def use_of(self, part: Part | None) -> dict[str, Any]:
        """The part, and its use where it was measured."""
        found = self.verdict.resource(part) if part else None
        return {"part": part, "use": found.comparison.number if found and found.comparison else None}

    def used(self, part: Part | None) -> Finding:
        """How much a resource is used, as a basis."""
        values = self.use_of(part)
        return NOTHING_USED if values["use"] is None else Finding("used", values, "use of {part} is {use}")

    def room(self, *less: Part, still: float = 0.0, other_work: bool = False, fewer_bytes: bool = False) -> Room:
        """The most that a step can save.

        less: resources that it makes less use of, the one that it is about first. still: percent of the time that this
        one needs afterwards, at the least. other_work, fewer_bytes: whether it changes what the operations and the
        bytes of the floor are.
        """
        beside = next(
            (
                found
                for found in self.verdict.resources
                if found.part not in less and not _HIDDEN.get(found.part or Part.DRAM, set()).intersection(less)
            ),
            None,
        )
        basis, source = NOTHING_USED, None
        needed = 0.0
        if beside is not None:
            needed, source = beside.value, _left(beside, 1.0)
            stays = Finding("stays", self.use_of(beside.part), "{part} would still need {use} of the time")
            basis = stays if less else self.used(beside.part)
        if still > needed:
            needed, basis = (
                still,
                Finding(
                    "still",
                    {"part": less[0], "still_pct": still},
                    "{part} would still need {still_pct:.1f}% of the time",
                ),
            )
            used = next(found for found in self.verdict.resources if found.part in less)
            source = _left(used, still / used.value)
        saving = self.floor.saving_pct(other_work=other_work) if self.floor and not fewer_bytes else None
        if saving is not None and 100 - saving.value > needed:
            needed, basis, source = (
                100 - saving.value,
                Finding("floor", {"most": saving}, "the least bytes and operations leave no more than {most}"),
                saving.source,
            )
        return Room(max(100 - needed, 0.0), basis, source)

    def estimated(self, *names: str) -> tuple[QuotedRule, ...]:
        """ncu's rules of these names that estimate something."""
        return tuple(rule for rule in self.rules if rule.rule in names and rule.speedup_pct is not None)

    def traced(self, quantity: Quantity) -> TracedNumber | None:
        return quantity.traced(self.row, self.names)

    # Its instructions

    @property
    def counted(self) -> bool:
        """Whether it is known how often each instruction is executed."""
        return self.code is not None and self.code.executed_share() is not None

    def executes(self, *families: Family, least: float = FREQUENT.share) -> bool:
        """Whether these families are known to be so much of what is executed, 0 to 1."""
        share = self.code.executed_share(*families) if self.code else None
        return share is not None and share >= least

    def has(self, *families: Family) -> bool:
        """Whether the code is known to have instructions of these families."""
        return self.code is not None and self.code.count(*families) > 0

    def narrow(self, *families: Family) -> bool:
        """Whether the widest access of these families is known to be below 16 bytes a thread; True where the code is
        not known."""
        if self.code is None:
            return True
        widest = self.code.widest_bytes(*families)
        return widest is not None and widest < 16

    def in_code(self, *families: Family) -> Finding | None:
        """How many instructions of these families the code has, as a basis; None where it is not known or has none."""
        opcodes = self.code.opcodes(*families) if self.code else {}
        named = tuple(f"{count} {opcode}" for opcode, count in opcodes.items())
        return Finding("code", {"instructions": named}, "the code has {instructions}") if named else None


def _left(of: Bottleneck, factor: float) -> Provenance | None:
    """Where the time comes from that a resource leaves which is needed for this part of its use."""
    if of.comparison is None:
        return None
    less = "a" if factor == 1 else f"{factor!r} * a"
    return Provenance("facts", f"max(100 - {less}, 0)", parts=(of.comparison.number.source,))


@functools.cache
def _table(name: str) -> dict[str, dict[str, str]]:
    """``steps.csv``: a step's words for a table's cell and for a sentence; ``ways.csv``: how to do one."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return {row["id"]: row for row in csv.DictReader(text.splitlines())}


def step(
    kind: str,
    room: Room | None,
    because: Finding | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    of: TimeOf = TimeOf.LAUNCH,
    estimate: TracedNumber | float | None = None,
    measured_pct: float | None = None,
    rules: tuple[QuotedRule, ...] = (),
) -> Step:
    """A step of ``steps.csv``, with the most that it saves.

    room: None where nothing bounds it. because: what it rests on, beside what needs the rest of the time. values: what
    its words name. measured_pct: what it saved where it was measured.
    """
    bound = None if room is None else min(room.pct, 100.0)
    saved = estimate.value if isinstance(estimate, TracedNumber) else estimate
    words = _table("steps.csv")[kind]
    return Step(
        action=Finding(kind, values or {}, words["words"]),
        short=words["short"],
        bound_pct=bound,
        basis=both(because, room.basis if room else None) or NOTHING_USED,
        of=of,
        measured_pct=measured_pct,
        estimate_pct=saved if saved is None or bound is None else min(saved, bound),
        rules=rules,
        bound_source=room.source if room else None,
    )


def both(*parts: Finding | None) -> Finding | None:
    """Several bases as one; those that are None are left out."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0] if known else None
    return Finding("both", {"first": known[0], "then": both(*known[1:])}, "{first}; {then}")


def hot(found: HotInstruction | None) -> Finding | None:
    """An instruction at which warps stall, as a basis."""
    if found is None:
        return None
    values = {"sass": found.sass, "sample_share": found.share, "waits_for": found.waits_for}
    words = "the hottest instruction is {sass}, {sample_share:.0%} of the samples"
    if found.waits_for is None:
        return Finding("hot", values, words)
    return Finding("hot_waits", values, words + "; it waits for {waits_for}")


def ways(*those: tuple[str, bool]) -> dict[str, Any]:
    """The ways of ``ways.csv`` that the kernel does not go already, as a step's values."""
    words = _table("ways.csv")
    return {"ways": tuple(Phrase(way, words[way]["words"]) for way, open_ in those if open_)}


def executed(s: Situation) -> Finding | None:
    """The families of instructions that are executed most, as a basis."""
    families = [each for each in Family if each is not Family.OTHER and s.executes(each)]
    shares = {each: s.code.executed_share(each) or 0.0 for each in families} if s.code else {}
    named = tuple(
        Finding("family", {"family": each, "executed_share": shares[each]}, "{executed_share:.0%} are {family}")
        for each in sorted(shares, key=shares.__getitem__, reverse=True)[:3]
    )
    return Finding("executed", {"families": named}, "of the executed instructions {families}") if named else None


# Which steps follow

MOST_STEPS = 3


def steps(situation: Situation) -> tuple[Step, ...]:
    """The two or three steps that follow: those for what causes it first, then the others that are bounded, the largest
    first, then those that are not."""
    verdict, case = situation.verdict, situation.case
    by_part = _BY_PART.get(verdict.part) if verdict.part else None
    make = by_part or _BY_KIND.get(verdict.kind)
    if make is None:
        # What the instructions show holds whichever limit it is.
        return tuple(wgmma(situation)) if verdict.kind is Kind.NO_SINGLE_LIMIT else ()
    found: list[Step] = [*_copies(situation)]
    if verdict.kind is not Kind.LAUNCH:
        found += [each for cause in verdict.causes for each in steps_of(situation, cause)]
    explained = {reason for cause in verdict.causes for reason in EXPLAINS.get(cause.id, ())}
    if verdict.causes:
        # A cause says more than the search for the unit that it keeps busy.
        explained |= {"find_unit", "find_memory_part"}
    found += [each for each in make(situation) if explained.isdisjoint((each.action.values.get("reason"), each.id))]
    if verdict.kind is not Kind.LAUNCH:
        found += [*wgmma(situation)]
        found += [*_by_rules(situation, {rule.rule for each in found for rule in each.rules})]
        if case and case.waiting and case.waiting.value >= SOME_WAITING.value:
            found += [*_launch(situation)][:1]
    worth = [each for each in _once(found) if each.size_pct is None or each.size_pct >= LEAST_GAIN.value]
    return tuple(sorted(worth, key=_rank)[:MOST_STEPS])


def _once(found: Iterable[Step]) -> Iterator[Step]:
    """Each step once, the first of it; ncu's rules are all different."""
    seen = set[str]()
    for each in found:
        if each.id == "ncu_rule" or each.id not in seen:
            yield each
        seen.add(each.id)


def _rank(each: Step) -> tuple[bool, bool, float]:
    """Steps for a cause keep their order: the most specific cause is first."""
    return (
        each.cause is None and each.id != "less_copying",
        each.bound_pct is None,
        0.0 if each.cause else -(each.size_pct or 0.0),
    )


def _copies(s: Situation) -> Iterator[Step]:
    """Where an iteration mostly copies, no change of a kernel matters as much."""
    if s.case is not None and s.case.bound is CaseBound.COPIES and s.case.copying is not None:
        copying = s.case.copying.number
        words = "only copies run in {copying} of the GPU's busy time"
        because = Finding("copying", {"copying": copying}, words)
        yield step("less_copying", Room(copying.value, None, copying.source), because, of=TimeOf.ITERATION)


def _launch(s: Situation) -> Iterator[Step]:
    if s.case is None or s.case.waiting is None:
        return
    waiting = s.case.waiting.number
    values, words = {"waiting": waiting, "host": s.case.host}, "the GPU waits for {waiting} of it; {host}"
    graph = "larger_graph" if s.case.graph else "use_graph"
    room = Room(waiting.value, None, waiting.source)
    yield step(graph, room, Finding("waits", values, words), of=TimeOf.ITERATION)
    # Fused kernels move fewer bytes too.
    first = Finding("waits_first", values, words + "; a faster kernel saves nothing until then")
    yield step("larger_launches", None, first, of=TimeOf.ITERATION)


def _imbalance(s: Situation) -> Iterator[Step]:
    kinds = {Part.TOO_FEW_BLOCKS: "more_blocks", Part.TAIL: "fuller_last_wave"}
    kind = kinds.get(s.verdict.part, "even_work") if s.verdict.part else "even_work"
    values: dict[str, Any] = {}
    if kind == "more_blocks":
        values = {"blocks": number(s.row, "blocks") or 0.0, "multiprocessors": number(s.row, "multiprocessors") or 0.0}
    # Not the idle time: a block alone on a multiprocessor does not use it either.
    idle = Finding(
        "idle", {"idle": s.verdict.idle}, "the multiprocessors were idle for {idle} of the time of the longest"
    )
    yield step(kind, s.room(), idle, values, estimate=s.verdict.idle, rules=s.estimated(*BALANCE_RULES))


def _latency(s: Situation) -> Iterator[Step]:
    busiest = s.verdict.busiest
    overhead = s.traced(quantities.OVERHEAD)
    too_short = overhead is not None and overhead.value >= OVERHEAD.value
    if too_short:
        because = Finding("overhead", {"overhead": overhead}, "no warp was resident in {overhead} of the cycles")
        yield step("longer_launch", s.room(), because, estimate=overhead)
    if busiest is not None and busiest.part is Part.TENSOR_CORES:
        yield step("overlap_wgmma" if by_warpgroups(s.row) else "overlap_mma", s.room())
        yield from less_work(s)
        yield from copies(s)
    if s.stalls and s.stalls[0].value >= DOMINANT_STALL.value:
        yield from _less_stall(s)
    elif s.stalls:
        waits = tuple(
            Finding("wait", {"reason": each.of, "share": each.number}, "{reason} {share}") for each in s.stalls[:3]
        )
        where = hot(s.code.hottest()) if s.code else None
        yield step(
            "read_hotspots",
            None,
            both(
                Finding("longest_waits", {"waits": waits}, "the largest stalls are {waits} of the warps' time"), where
            ),
        )
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

NOTHING_HELPS = ("misc",)
"""Stall reasons that say nothing of what to do."""


def _less_stall(s: Situation) -> Iterator[Step]:
    top = s.stalls[0]
    reason = str(top.of)
    if reason in NOTHING_HELPS:
        return
    room = s.room(*_LESS_OF.get(reason, ()))
    where = hot(s.code.hottest(reason)) if s.code else None
    values: dict[str, Any] = {"reason": reason, "share": top.number, **_ways_out(s, reason)}
    yield step("less_stall", room, where, values, rules=s.estimated("CPIStall"))


def _ways_out(s: Situation, reason: str) -> Mapping[str, Any]:
    """What makes a stall less: by what the hottest instruction in it waits for, where that is known."""
    found = s.code.hottest(reason) if s.code else None
    cause = found.cause if found else None
    if reason == "long_scoreboard":
        if cause in (Family.MBARRIER, Family.COPY_WAIT):
            return ways(("more_stages", True), ("earlier_copies", True))
        if cause is Family.LOCAL:
            return ways(("no_local", True))
        if cause is Family.ATOMIC:
            return ways(("no_result", True))
        if cause is Family.GLOBAL_LOAD:
            return load_ways(s, found)
    if reason in ("short_scoreboard", "mio_throttle"):
        of_shared = cause in (Family.SHARED_LOAD, Family.SHARED_STORE)
        if cause is Family.SPECIAL:
            return ways(("polynomials", True), ("kept", True))
        if cause is Family.CONVERSION:
            return ways(("fewer_conversions", True))
        if of_shared:
            conflicts = quantities.BANK_CONFLICTS.of(s.row) or 0.0
            return ways(
                ("no_conflicts", conflicts >= CONFLICTS.share),
                ("wider_shared", s.narrow(Family.SHARED_LOAD)),
                ("loaded_earlier", True),
            )
    return {"ways": (Finding("stall_helps", {"reason": state(reason)}, "{reason.helps}"),)}


_RESTATED = ("CPIStall", "AchievedOccupancy", "TheoreticalOccupancy", *BALANCE_RULES, *CONFLICT_RULES)
"""Rules whose step is among fiprof's own, with their estimate beside it."""


def _by_rules(s: Situation, taken: Collection[str]) -> Iterator[Step]:
    """ncu's rules that are about what binds, but those that a step restates already."""
    for rule in s.rules:
        if rule.rejected is not None or rule.speedup_pct is None or rule.rule in (*_RESTATED, *taken):
            continue
        message = rule.message.rstrip(".")
        if rule.rule == "FPInstructions":
            basis = Finding(
                "ncu_estimate_of",
                {"estimate": rule.speedup_kind, "message": message},
                "ncu's estimate ({estimate}): {message}",
            )
            room = s.room(Part.FMA_PIPE, Part.FP64_PIPE, Part.ISSUE_SLOTS)
            yield step("fuse_multiply_add", room, basis, estimate=rule.speedup_pct, rules=(rule,))
        else:
            basis = Finding("ncu_estimate", {"estimate": rule.speedup_kind}, "ncu's estimate ({estimate})")
            yield step("ncu_rule", None, basis, {"message": message}, estimate=rule.speedup_pct, rules=(rule,))


def with_steps(rules: tuple[QuotedRule, ...], found: tuple[Step, ...]) -> tuple[QuotedRule, ...]:
    """The rules, with a reason for those that are about what binds and yet no step rests on."""
    taken = {rule.rule for each in found for rule in each.rules}
    return tuple(
        rule
        if rule.rejected or rule.rule in taken
        else dataclasses.replace(rule, rejected=finding("better_steps", "the steps above save more"))
        for rule in rules
    )


# A measured alternative


def measured(found: Alternative) -> Step:
    """What to change, and what it saved of an iteration without a profiler."""
    basis = Finding(
        "measured",
        {
            "time": found.time, "instead_time": found.instead_time, "factor": found.traced_factor,
            "low": found.factor.low, "high": found.factor.high, "measure": found.measure,
            "observed": Finding(
                str(found.difference.observed), {"count": found.difference.count}, found.difference.observed.words
            ),
        },
        "{instead_time} instead of {time}{measure}, {factor} times as fast ({low:.2f} to {high:.2f} {observed})",
    )  # fmt: skip
    values = {"changes": tuple(change.finding for change in found.changes), "case": found.instead}
    saved = found.saving_pct
    return step("use_alternative", None, basis, values, of=TimeOf.ITERATION, measured_pct=saved)


# Tensor cores, pipes, issue slots

HOPPER = "9"
"""Major compute capability that has wgmma."""
MATRIX_UNITS = (Family.WGMMA, Family.MMA)
ARITHMETIC = (Family.FLOAT, Family.CONVERSION)


_SMALLER = {"tf32": "bf16", "fp16": "fp8", "bf16": "fp8"}
"""Kind of the tensor cores' operands -> the one of half its size."""


# Tensor cores


def tensor(s: Situation) -> Iterator[Step]:
    yield from less_work(s)
    kind = dominant_tensor_kind(s.row)
    peak = number(s.row, f"tensor_peak_{kind}_ops_per_cycle")
    smaller = _SMALLER.get(kind or "")
    faster = number(s.row, f"tensor_peak_{smaller}_ops_per_cycle")
    if faster is not None and peak is not None and faster > peak > 0:
        room = s.room(
            Part.TENSOR_CORES, Part.DRAM, Part.L2, *LOADS,
            still=s.use(Part.TENSOR_CORES) * peak / faster, other_work=True, fewer_bytes=True,
        )  # fmt: skip
        peaks = Finding("peaks", {"ratio": faster / peak}, "their peak is {ratio:.3g} times as high")
        yield step("smaller_operands", room, peaks, {"operands": kind, "smaller": smaller})
    yield step("close_tensor_gaps", s.room())
    yield from copies(s)


def less_work(s: Situation) -> Iterator[Step]:
    """Operations that the algorithm does not need."""
    if s.excess_ops is not None and s.excess_ops >= EXCESS.value:
        wasted = 100 * (1 - 1 / s.excess_ops)
        still = s.use(Part.TENSOR_CORES, *PIPES) / s.excess_ops
        room = s.room(Part.TENSOR_CORES, *PIPES, *PASSES, Part.L2, still=still)
        basis = Finding(
            "excess_ops",
            {"factor": s.excess_ops},
            "ncu counted {factor:.2f} times the operations that the algorithm needs",
        )
        yield step("less_wasted_work", room, basis, estimate=wasted)


def wgmma(s: Situation) -> Iterator[Step]:
    """Instructions of a warpgroup for those of a warp, where the GPU has faster ones.

    Such a rewrite changes the copies, the loads from shared memory and the overlap too: what stays is the products at
    the higher peak, DRAM and the special functions. Not where DRAM is used more than the tensor cores are: there the
    operands' bytes come first.
    """
    kind, use = dominant_tensor_kind(s.row), s.use(Part.TENSOR_CORES)
    if str(s.row.get("cc") or HOPPER).partition(".")[0] != HOPPER:
        return
    if kind is None or use <= max(UNUSED.value, s.use(Part.DRAM)):
        return
    slow, fast = (number(s.row, f"{which}_peak_{kind}_ops_per_cycle") for which in ("mma", "tensor"))
    if slow is None or fast is None or not fast > slow > 0 or not mostly_mma(s.row, kind) or s.has(Family.WGMMA):
        return
    changed = (Part.TENSOR_CORES, Part.L2, *LOADS, Part.ALU_PIPE, Part.FMA_PIPE)
    peaks = both(
        s.in_code(Family.MMA), Finding("peaks", {"ratio": fast / slow}, "their peak is {ratio:.3g} times as high")
    )
    yield step("use_wgmma", s.room(*changed, still=use * slow / fast), peaks)


def copies(s: Situation) -> Iterator[Step]:
    """Copies by TMA for those by cp.async, where products of a warpgroup wait for them."""
    if s.code is None or not s.has(Family.WGMMA) or s.code.count(Family.ASYNC_COPY) <= s.code.count(Family.TMA):
        return
    yield step("copy_by_tma", s.room(*LOADS, Part.ALU_PIPE), s.in_code(*COPIES))


# Pipes and issue slots


def instructions(s: Situation) -> Iterator[Step]:
    part = s.verdict.part
    assert part is not None
    packed = [*_packed_halves(s)]
    yield from _tensor_cores(s)
    yield from packed
    if not packed:
        yield _FEWER.get(part, _find_unit)(s)


def _fewer_instructions(s: Situation) -> Step:
    open_ = not s.counted
    how = ways(
        ("fewer_conversions", s.executes(Family.CONVERSION)),
        ("wider_loads", s.narrow(Family.GLOBAL_LOAD, Family.ASYNC_COPY)),
        ("packed", open_ or (s.executes(*ARITHMETIC) and not s.executes(Family.PACKED, least=UNUSED.share))),
        ("addresses_once", open_ or s.executes(Family.INTEGER)),
        ("unrolled", open_ or s.executes(Family.BRANCH)),
        ("kept", not open_),
    )
    return step("fewer_instructions", s.room(*PIPES), executed(s), how)


def _less_fma(s: Situation) -> Step:
    return step("less_fma", s.room(Part.FMA_PIPE, Part.ISSUE_SLOTS))


def _less_alu(s: Situation) -> Step:
    def often(opcodes: str) -> bool:
        return s.code is None or not s.counted or s.code.executed_opcodes(opcodes.split()) >= FREQUENT.share

    how = ways(
        ("addresses_once", often("IADD3 IADD LEA VIADD")),
        ("fewer_comparisons", often("ISETP FSETP SEL FSEL FMNMX VIMNMX IMNMX PLOP3")),
        ("merged_logic", often("LOP3 SHF PRMT")),
        ("kept", s.counted),
    )
    return step("less_alu", s.room(Part.ALU_PIPE, Part.ISSUE_SLOTS), executed(s), how)


def _less_xu(s: Situation) -> Step:
    of_code = s.code is not None
    how = ways(
        ("polynomials", not of_code or s.has(Family.SPECIAL)),
        ("fewer_conversions", not of_code or s.has(Family.CONVERSION)),
        ("kept", True),
    )
    return step("less_xu", s.room(Part.XU_PIPE, Part.ISSUE_SLOTS), s.in_code(Family.SPECIAL), how)


def _single_precision(s: Situation) -> Step:
    slow, fast = (number(s.row, f"{precision}_peak_ops_per_cycle") for precision in ("fp64", "fp32"))
    still = s.use(Part.FP64_PIPE) * slow / fast if slow and fast else 0.0
    room = s.room(Part.FP64_PIPE, Part.ISSUE_SLOTS, still=still, other_work=True)
    return step("single_precision", room)


def _fewer_accesses(s: Situation) -> Step:
    shared = (Family.SHARED_LOAD, Family.SHARED_STORE)
    how = ways(
        ("wider_loads", s.narrow(Family.GLOBAL_LOAD, Family.GLOBAL_STORE, Family.ASYNC_COPY)),
        ("wider_shared", s.code is None or (s.has(*shared) and s.narrow(*shared))),
        ("in_registers", True),
    )
    return step("fewer_accesses", s.room(*LOADS), executed(s), how)


_PIPE_WAYS: Mapping[Part, tuple[str, ...]] = {
    Part.ADU_PIPE: ("uniform_indices", "fewer_barriers"),
    Part.CBU_PIPE: ("fewer_branches",),
    Part.TEX_PIPE: ("fewer_fetches",),
    Part.UNIFORM_PIPE: ("less_uniform",),
}


def _less_of_pipe(s: Situation) -> Step:
    part = s.verdict.part
    assert part is not None
    room = s.room(part, Part.ISSUE_SLOTS, Part.CONSTANT_CACHE)
    return step("less_of_pipe", room, executed(s), {"part": part, "ways": _PIPE_WAYS[part]})


def _find_unit(s: Situation) -> Step:
    return step("find_unit", s.room(Part.OTHER_COMPUTE, *PIPES))


_FEWER: Mapping[Part, Callable[[Situation], Step]] = {
    Part.ISSUE_SLOTS: _fewer_instructions,
    Part.FMA_PIPE: _less_fma,
    Part.ALU_PIPE: _less_alu,
    Part.XU_PIPE: _less_xu,
    Part.FP64_PIPE: _single_precision,
    Part.LSU_PIPE: _fewer_accesses,
    **dict.fromkeys(_PIPE_WAYS, _less_of_pipe),
}


def _packed_halves(s: Situation) -> Iterator[Step]:
    """Two multiply-adds in one instruction, where the GPU does more of them so."""
    ops = counted_float_ops(s.row)
    if s.verdict.part is not Part.FMA_PIPE or not ops or max(ops, key=ops.__getitem__) != "fp32":
        return
    if not _in_floats(s):
        return
    slow, fast = (number(s.row, f"{precision}_peak_ops_per_cycle") for precision in ("fp32", "fp16"))
    if slow is None or fast is None or not fast > slow > 0 or s.executes(Family.PACKED, least=UNUSED.share):
        return
    still = s.use(Part.FMA_PIPE) * slow / fast
    room = s.room(Part.FMA_PIPE, Part.ISSUE_SLOTS, still=still, other_work=True)
    yield step(
        "packed_halves", room, Finding("peaks", {"ratio": fast / slow}, "their peak is {ratio:.3g} times as high")
    )


def _in_floats(s: Situation) -> bool:
    """Whether floating-point operations, not integer multiplications, make up the FMA pipe's use; True where that is
    not known. An addition is half a multiply-add."""
    ops, cycles, peak = (
        counted_float_ops(s.row).get("fp32"), number(s.row, "sm_cycles"), number(s.row, "fp32_peak_ops_per_cycle"),
    )  # fmt: skip
    use = number(s.row, "fma_pct")
    if ops is None or not cycles or not peak or use is None:
        return True
    return 100 * ops / cycles / peak >= use / 4


def _fused(s: Situation) -> float:
    """Multiply-adds of the fp32 instructions, 0 to 1; 1 where that is not known."""
    for counted in ("thread_insts", "thread_insts_per_cycle"):
        kinds = [number(s.row, f"{inst}_{counted}") for inst in ("ffma", "fadd", "fmul")]
        known = [each for each in kinds if each is not None]
        if len(known) == len(kinds) and any(known):
            return known[0] / math.fsum(known)
    return 1.0


_MATRIX_KINDS = {"fp32": "fp16", "fp16": "fp16", "fp64": "fp64"}
"""Precision outside the tensor cores -> their fastest kind that stands for it: halves are often computed in fp32."""


def _tensor_cores(s: Situation) -> Iterator[Step]:
    """Tensor cores for arithmetic that may be a product of matrices: it reads operands while it multiplies."""
    used, fma = number(s.row, "tensor_active_pct"), s.traced(metric("fma_pct"))
    if s.verdict.part not in (Part.ISSUE_SLOTS, Part.FMA_PIPE) or used is None or fma is None or used >= UNUSED.value:
        return
    arithmetic = fma.value >= FMA_OF_ISSUE.share * s.use(Part.ISSUE_SLOTS) and _in_floats(s)
    if not arithmetic or s.use(*PASSES) < OPERANDS.value or s.has(*MATRIX_UNITS) or _fused(s) < FUSED.share:
        return
    ops = {precision: count for precision, count in counted_float_ops(s.row).items() if count}
    precision = max(ops, key=ops.__getitem__, default="fp32")
    slow = number(s.row, f"{precision}_peak_ops_per_cycle")
    fast = number(s.row, f"tensor_peak_{_MATRIX_KINDS[precision]}_ops_per_cycle")
    if not fast or (slow is not None and slow >= fast):
        return
    there = fma.value * slow / fast if slow else 0.0
    changed = (Part.TENSOR_CORES, Part.FMA_PIPE, Part.ALU_PIPE, *LOADS)
    values: dict[str, Any] = {"tensor_pct": there, "fma": fma, "kind": _MATRIX_KINDS[precision]}
    basis = (
        Finding(
            "tensor_cores_would",
            values,
            "in {kind} the tensor cores need {tensor_pct:.1f}% of the time for what keeps the FMA pipe busy for {fma}",
        )
        if there
        else None
    )
    yield step("use_tensor_cores", s.room(*changed, still=there, other_work=True), basis)


# DRAM, the caches, shared memory; more bytes and warps on their way


def dram(s: Situation) -> Iterator[Step]:
    use, excess = s.use(Part.DRAM), s.excess_bytes
    if excess is not None and excess >= EXCESS.value:
        basis = Finding(
            "excess_bytes",
            {"factor": excess, **s.use_of(Part.DRAM)},
            "ncu counted {factor:.2f} times the DRAM bytes that the algorithm needs, at {use} use",
        )
        room = s.room(Part.DRAM, Part.L2, still=use / excess)
        yield step("move_fewer_bytes", room, basis, estimate=use * (1 - 1 / excess))
    elif excess is not None:
        words = "DRAM moved {factor:.2f} times the least bytes"
        moved = finding("bytes_moved", words, factor=excess)
        kept = finding("bytes_kept", words + " (L2 kept some)", factor=excess)
        yield step("need_fewer_bytes", None, kept if excess < KEPT.value else moved)
    else:
        yield step("need_fewer_bytes", None, finding("bytes_bind", "DRAM binds: fewer bytes take less time"))
    yield from _ramp(s, Part.DRAM)
    if use < SATURATED.value:
        yield _more_loads(s)
        yield from more_warps(s)


def _ramp(s: Situation, part: Part) -> Iterator[Step]:
    """Its start and end, where they are most of what is left to the roof."""
    overhead, idle = quantities.OVERHEAD.of(s.row) or 0.0, quantities.IDLE.of(s.row) or 0.0
    idle_pct = overhead + idle * (100 - overhead) / 100
    if idle_pct >= (100 - s.use(part)) / 2:
        yield step(
            "shorter_ramp",
            s.room(),
            Finding("ramp", {"idle_pct": idle_pct}, "the multiprocessors have no warp for {idle_pct:.1f}% of the time"),
            estimate=idle_pct,
        )


def _more_loads(s: Situation) -> Step:
    top = s.stalls[0] if s.stalls else None
    waits = top is not None and top.of == "long_scoreboard" and top.value >= DOMINANT_STALL.value
    wait = Finding("wait", {"reason": top.of, "share": top.number}, "{reason} {share}") if waits and top else None
    where = s.code.hottest("long_scoreboard") if s.code and waits else None
    rules = s.estimated("CPIStall") if waits else ()
    return step("more_loads", s.room(), both(wait, hot(where)), load_ways(s, where), rules=rules)


def load_ways(s: Situation, waiting: HotInstruction | None) -> dict[str, Any]:
    """How to keep more bytes on their way. waiting: the instruction at which most warps wait for them."""
    loads = (Family.GLOBAL_LOAD, Family.ASYNC_COPY)
    if waiting is not None and waiting.chain:
        return ways(("several_chains", True))
    if s.has(*COPIES):
        return ways(("more_stages", True))
    return ways(
        ("loads_in_flight", True),
        ("wider_loads", s.narrow(*loads)),
        ("async_copies", s.code is not None and s.has(Family.SHARED_STORE)),
    )


def more_warps(s: Situation) -> Iterator[Step]:
    """More warps to wait at the same time, where the grid has them and something holds them down."""
    found, room = occupancy(s.row), s.room()
    if found.waves is not None and not found.waves.full:
        if found.waves.idle_share >= EMPTY.share:
            most = found.waves.idle_share * (100 - (quantities.OVERHEAD.of(s.row) or 0.0))
            yield step(
                "fill_wave",
                Room(min(room.pct, most), room.basis),
                Finding("empty_places", {"empty": found.waves.idle_share}, "{empty:.0%} of the block slots are empty"),
                {"blocks": found.waves.last_blocks, "wave_blocks": found.waves.wave_blocks},
            )
        return
    lifted = found.lift is not None and len(found.steps) == len(found.lift.resources)
    if found.steps and found.theoretical_pct and found.blocks and lifted:
        more = min(each.values["blocks"] for each in found.steps) / found.blocks
        then = min(100.0, found.theoretical_pct * more)
        if then > found.theoretical_pct:
            # At best a block takes as long as before: time goes down with the warps, and with whole waves.
            waves = found.waves.waves if found.waves else 1.0
            left = min(found.theoretical_pct / then, math.ceil(waves / more) / math.ceil(waves))
            yield step(
                "more_warps",
                Room(min(room.pct, 100 * (1 - left)), room.basis),
                finding("more_wait", "so many more warps wait at the same time"),
                {"changes": found.steps, "occupancy_pct": found.theoretical_pct, "then_pct": then},
                rules=s.estimated("TheoreticalOccupancy"),
            )


def l2(s: Situation) -> Iterator[Step]:
    yield step("less_l2", s.room(Part.L2, *LOADS))
    yield from _ramp(s, Part.L2)


def passes(s: Situation) -> Iterator[Step]:
    """The data stage of L1 and shared memory."""
    part = s.verdict.part
    assert part is not None
    conflicts = s.traced(quantities.BANK_CONFLICTS)
    # Atomics on one word are passes one after another too.
    atomics = any(cause.id is CauseId.ATOMICS for cause in s.verdict.causes)
    if conflicts is not None and conflicts.value >= CONFLICTS.share and not atomics:
        room = s.room(*PASSES, still=s.use(part) * (1 - conflicts.value))
        basis = Finding("conflicts", {"share": conflicts}, "{share} of the passes through shared memory are conflicts")
        yield step("no_bank_conflicts", room, basis, rules=s.estimated(*CONFLICT_RULES))
        return
    shared = (Family.SHARED_LOAD, Family.SHARED_STORE)
    if part is Part.L1_DATA:
        how = ways(
            ("coalesced", s.code is None or s.code.most_scattered() is not None),
            ("wider_loads", s.narrow(Family.GLOBAL_LOAD, Family.GLOBAL_STORE)),
            ("in_registers", True),
        )
        yield step("fewer_l1_passes", s.room(*LOADS), executed(s), how)
        return
    how = ways(
        ("wider_shared", s.narrow(*shared)),
        ("in_registers", True),
        ("shuffles", s.code is not None and not s.has(Family.SHUFFLE, Family.WGMMA, Family.MMA)),
    )
    yield step("fewer_shared_passes", s.room(*LOADS), executed(s), how)


def constants(s: Situation) -> Iterator[Step]:
    """The cache of constants that are read by an index."""
    less = (Part.CONSTANT_CACHE, Part.ADU_PIPE, Part.ISSUE_SLOTS)
    yield step("uniform_constants", s.room(*less), s.in_code(Family.CONSTANT))


def other_memory(s: Situation) -> Iterator[Step]:
    """A part of the memory system that has no column."""
    yield step("find_memory_part", s.room(Part.OTHER_MEMORY, *PASSES, Part.L2))


# By cause

INSTRUCTION_BYTES = 16
"""Of SASS, from compute capability 7.0 on."""

MOST_REGISTERS = 255
"""Of a thread."""

FEW_BLOCKS, FEW_WARPS = 2, 4
"""Blocks on a multiprocessor of which one at a barrier leaves half of it idle; warps of a block that is small."""

_MEMORY = (*LOADS, Part.L2, Part.DRAM)
"""What fewer accesses make less use of."""


def steps_of(s: Situation, cause: Cause) -> Iterator[Step]:
    """What to do about a cause; nothing for one that no change of the kernel removes."""
    make = _BY_CAUSE.get(cause.id)
    for each in make(s) if make else ():
        yield dataclasses.replace(each, cause=cause.id)


EXPLAINS: Mapping[CauseId, tuple[str, ...]] = {
    CauseId.ATOMICS: ("long_scoreboard", "lg_throttle", "mio_throttle", "short_scoreboard", "membar", "drain"),
    CauseId.BARRIER: ("barrier",),
    CauseId.LOCAL_MEMORY: ("long_scoreboard", "lg_throttle"),
    CauseId.SCATTERED_ACCESS: ("long_scoreboard", "lg_throttle", "drain"),
    CauseId.INSTRUCTION_CACHE: ("no_instruction",),
    CauseId.CONSTANT_CACHE: ("imc_miss", "short_scoreboard"),
    CauseId.MEMORY_FENCE: ("membar",),
    CauseId.SLEEPING: ("sleeping",),
    CauseId.HOST_MEMORY: ("long_scoreboard", "lg_throttle", "drain"),
    CauseId.DIVERGENCE: ("branch_resolving",),
}
"""Cause -> the stall reasons that it shows as: a step against the stall itself says less."""


def _for_atomics(s: Situation) -> Iterator[Step]:
    code = s.in_code(Family.ATOMIC, Family.SHARED_ATOMIC)
    room = s.room(*LOADS, Part.L2)
    if not (s.has(Family.SHUFFLE) and s.has(Family.SHARED_ATOMIC)):
        yield step("aggregate_atomics", room, code)
    yield step("spread_atomics", room, code)


def _for_barrier(s: Situation) -> Iterator[Step]:
    how = ways(("warp_sync", True), ("named_barriers", True), ("double_buffer", s.has(Family.SHARED_STORE)))
    where = hot(s.code.hottest("barrier")) if s.code else None
    # What goes by shuffles within a warp passes no shared memory either.
    exchanged = LOADS if s.verdict.part in LOADS else ()
    room = s.room(Part.ISSUE_SLOTS, Part.ADU_PIPE, Part.OTHER_COMPUTE, *exchanged)
    yield step("fewer_barriers", room, both(s.in_code(Family.BARRIER), where), how)
    found = occupancy(s.row)
    if found.warps_per_block and found.blocks and found.warps_per_block > FEW_WARPS and found.blocks <= FEW_BLOCKS:
        values = {"blocks": found.blocks, "warps_per_block": found.warps_per_block}
        yield step("smaller_blocks", s.room(), None, values)


def _local_memory(s: Situation) -> Iterator[Step]:
    """Spilled registers, arrays that a thread indexes by what the compiler does not know, or both."""
    requests, spilled = s.traced(quantities.LOCAL_REQUESTS), s.traced(quantities.metric("spill_requests"))
    code = s.in_code(Family.LOCAL)
    room = s.room(*_MEMORY)
    total = requests.value if requests else 0.0
    of_spills = spilled.value if spilled else None
    if of_spills is None or of_spills > 0:
        registers = number(s.row, "registers_per_thread") or 0.0
        kind = (
            Finding("spills", {"spilled": spilled}, "{spilled} requests to local memory are spills")
            if of_spills
            else None
        )
        values = {"registers": registers, "most": registers >= MOST_REGISTERS}
        yield step("fewer_spills", room, both(kind, code), values)
    if of_spills is None or of_spills < total / 2:
        counted = (
            Finding("local_requests", {"requests": requests}, "{requests} requests to local memory")
            if requests
            else None
        )
        yield step("constant_indices", room, both(counted, code))


def _scattered(s: Situation) -> Iterator[Step]:
    room = s.room(*_MEMORY)
    yield step("neighbouring_access", room, _sectors(s), rules=s.estimated(*SECTOR_RULES))
    if not s.has(*COPIES):
        yield step("stage_in_shared", room)


def _sectors(s: Situation) -> Finding | None:
    """How scattered its accesses to global memory are, as a basis: the worst instruction, where that is known."""
    if s.code and (found := s.code.most_scattered()):
        where, factor = found
        return Finding(
            "sectors_at",
            {"sass": where.sass, "factor": factor},
            "{sass} touches {factor:.3g} times the sectors that neighbouring threads would",
        )
    kinds = (quantities.GLOBAL_LOADS_SECTORS, quantities.GLOBAL_STORES_SECTORS)
    counted = [each for kind in kinds if (each := s.traced(kind))]
    worst = max(counted, key=lambda each: each.value, default=None)
    return (
        None
        if worst is None
        else Finding("sectors", {"sectors": worst}, "a request of a warp touches {sectors} sectors")
    )


def _divergence(s: Situation) -> Iterator[Step]:
    threads = s.traced(quantities.metric("threads_per_instruction"))
    still = s.use(*PIPES) * threads.value / WARP_THREADS if threads else 0.0
    basis = (
        Finding("threads", {"threads": threads}, "{threads} of 32 threads take part in an instruction")
        if threads
        else None
    )
    because, rules = both(basis, s.in_code(Family.BRANCH)), s.estimated("ThreadDivergence")
    yield step("same_path", s.room(*PIPES, still=still), because, rules=rules)


def _instruction_cache(s: Situation) -> Iterator[Step]:
    size = len(s.code.code.lines) * INSTRUCTION_BYTES / 1000 if s.code else None
    basis = Finding("code_size", {"kilobytes": size}, "the code has {kilobytes:.0f} kB") if size else None
    yield step("smaller_code", s.room(), basis)


def _constant_cache(s: Situation) -> Iterator[Step]:
    where = hot(s.code.hottest("imc_miss")) if s.code else None
    yield step("fewer_constants", s.room(Part.ISSUE_SLOTS), where)


def _memory_fence(s: Situation) -> Iterator[Step]:
    yield step("fewer_fences", s.room(Part.L2), s.in_code(Family.FENCE))


def _sleeping(s: Situation) -> Iterator[Step]:
    yield step("share_awaited_work", s.room(), s.in_code(Family.SLEEP))


def _host_memory(s: Situation) -> Iterator[Step]:
    yield step("copy_to_device", s.room())


def _partial_warps(s: Situation) -> Iterator[Step]:
    threads = s.traced(quantities.metric("threads_per_block"))
    room = s.room(*PIPES, still=s.use(*PIPES) * threads.value / WARP_THREADS if threads else 0.0)
    yield step(
        "whole_warps",
        room,
        Finding("threads_of_block", {"threads": threads}, "a block has {threads} threads, a warp 32")
        if threads
        else None,
    )


_BY_CAUSE: Mapping[CauseId, Callable[[Situation], Iterator[Step]]] = {
    CauseId.ATOMICS: _for_atomics,
    CauseId.BARRIER: _for_barrier,
    CauseId.LOCAL_MEMORY: _local_memory,
    CauseId.SCATTERED_ACCESS: _scattered,
    CauseId.DIVERGENCE: _divergence,
    CauseId.INSTRUCTION_CACHE: _instruction_cache,
    CauseId.PARTIAL_WARPS: _partial_warps,
    CauseId.CONSTANT_CACHE: _constant_cache,
    CauseId.MEMORY_FENCE: _memory_fence,
    CauseId.SLEEPING: _sleeping,
    CauseId.HOST_MEMORY: _host_memory,
}


# Which step follows from what

_BY_KIND: Mapping[Kind, Callable[[Situation], Iterator[Step]]] = {
    Kind.LAUNCH: _launch,
    Kind.IMBALANCE: _imbalance,
    Kind.LATENCY: _latency,
    Kind.COMPUTE: instructions,
    Kind.MEMORY: other_memory,
}
"""No step follows from the other kinds."""
_BY_PART: Mapping[Part, Callable[[Situation], Iterator[Step]]] = {
    Part.TENSOR_CORES: tensor,
    Part.DRAM: dram,
    Part.L2: l2,
    Part.CONSTANT_CACHE: constants,
    **dict.fromkeys(PASSES, passes),
}
"""Before those by kind."""
