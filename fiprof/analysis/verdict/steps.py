"""What to do about what limits a launch: each step with its words, its bound and what that rests on.

A resource at r percent of its peak needs r percent of the time whatever is done about the others. So a step saves at
most the time that is left by the busiest resource whose work it does not reduce; and, where the work stays the same,
the time that is left by the least bytes and operations of the case. A stall's share is no bound: warps wait at once.

Each step declares what it relieves. First come the steps that relieve the limit for most of the time: every limit of
the launch, or, of a tail behind a saturated resource, the longer part. Among these, first come those whose saving was
estimated from counters, then those with an informative bound, then the rest, each by size. A step that relieves no
limit is never first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fiprof.analysis import thresholds
from fiprof.analysis.alternatives import Alternative
from fiprof.analysis.instructions import ACCESS_BYTES, NO_LISTING, Family, HotInstruction, Listing, access_bytes
from fiprof.analysis.occupancy import WARP_THREADS, Resource, occupancy
from fiprof.analysis.stalls import state
from fiprof.analysis.verdict.model import Bottleneck, CaseVerdict, CauseId, Comparison, Kind, Part, TimeOf, Verdict
from fiprof.analysis.verdict.ncu_rules import BALANCE_RULES, CONFLICT_RULES, SECTOR_RULES, QuotedRule, by_warpgroups
from fiprof.analysis.verdict.rules import PASSES, RESOURCES, queued
from fiprof.model import quantities
from fiprof.model.case_quantities import Floor
from fiprof.model.finding import Finding, Label, Provenance, TracedNumber, finding, plain
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import Formula, Names, Quantity, Row, calculated, number, quantity
from fiprof.model.work import counted_float_ops, dominant_tensor_kind, mostly_mma
from fiprof.text import csv_rows

STEPS, WAYS = (csv_rows(Path(__file__).with_name(name)) for name in ("steps.csv", "ways.csv"))
"""Step -> its words for a sentence and for a table's cell, what it relieves and changes, and the resource that is busy
as in the kernel's best case afterwards; way to do a step -> its words."""
MOST_STEPS = 3
INSTRUCTION_BYTES = 16  # of SASS, from compute capability 7.0 on
SECTOR_BYTES, MOST_WARPS = 32, 32  # bytes of a sector, warps of a block at the most
DIVISION, MANY_DIVIDED = 20, 0.4
"""Fewest instructions of an integer division with its remainder (32 bits, nvcc 13 for sm_90; of 64 bits some 70 more),
and the share of executed instructions from which on divisions are named."""
_LOADED_BYTES = Formula("global_load_sectors * 32")
TWO_WORDS, PASSES_AGAIN = 8, 2  # bytes; loaded over needed bytes, from which on the input is read more than once
WHOLE_TILES = 2
"""Counted over needed operations, from which on whole tiles are computed in vain: without such tiles, a row of a causal
mask has half a tile too many."""
HOPPER = "9"  # major compute capability that has wgmma
COPIES = (Family.ASYNC_COPY, Family.TMA)
SHARED = (Family.SHARED_LOAD, Family.SHARED_STORE)
PIPES = tuple(part for part, of in RESOURCES.items() if of.kind is Kind.COMPUTE and part is not Part.TENSOR_CORES)
LOADS = (Part.LSU_PIPE, Part.ISSUE_SLOTS, Part.MIO, *PASSES, Part.L1_TAGS)
"""Resources that fewer or wider loads and stores use less."""
Relief = Part | Kind  # what a step relieves: a resource; the waiting, the idle multiprocessors or the host by its kind
_GROUPS: Mapping[str, tuple[Relief, ...]] = {
    "pipes": PIPES, "passes": PASSES, "loads": LOADS,
    "accesses": (*LOADS, Part.L2, Part.L2_ATOMICS, Part.L1_TO_L2, Part.DRAM, Part.CLUSTER_MEMORY),
    **{each.value: (each,) for kind in (Part, Kind) for each in kind},
}  # fmt: skip
"""Names of groups in steps.csv; ``accesses`` are the resources that fewer accesses to memory use less."""
_HIDDEN = {Part.OTHER_COMPUTE: {*PIPES, Part.TENSOR_CORES}, Part.OTHER_MEMORY: {*PASSES, Part.L2, Part.DRAM}}
"""A part without a column of its own -> the parts that it may be: a step that changes one of these may change it."""
L2_COLUMNS, LINE = RESOURCES[Part.L2].columns, 4  # sectors of a line, which one lookup finds
_LINE_SECTORS = Formula("(global_load_sectors + global_store_sectors) / (global_load_requests + global_store_requests)")
"""Sectors that a warp's request touches: LINE where its lanes have 4 bytes each, side by side."""
_FUSED = Formula("first(ffma / (ffma + fadd + fmul), 1)")
"""Multiply-adds of the fp32 instructions, 0 to 1; 1 where that is not known."""
LIBRARIES = (
    ("cuDNN", re.compile(r"^cudnn_|cudnn\)?$|^(bn|dgrad|wgrad)\w*_engine")),
    ("cuBLAS", re.compile(r"^nvjet_|cublas\)?$|^cublas|^gemv|^splitKreduce")),
    ("CUTLASS as cuBLAS and cuDNN have it", re.compile(r"^sm\d+_xmma_|^Kernel2 \(cutlass_")),
)
"""Libraries in binary form, and their kernels: only what they are asked for can be changed."""
OF_CALLERS = frozenset(
    (
        "use_alternative", "use_graph", "larger_graph", "less_copying", "larger_launches", "fuse_or_batch", "even_work",
        "smaller_operands", "single_precision", "use_tensor_cores", "need_fewer_bytes", "at_roof", "copy_to_device",
        "less_wasted_work",
    )
)  # fmt: skip
"""Steps that who calls a kernel can take."""
USED = (Kind.COMPUTE, Kind.MEMORY)
NOTHING_USED = finding("nothing_used", "nothing else is used")


class Step(NamedTuple):
    """Something to do next."""

    action: Finding  # what to do, with the numbers that its wording needs
    short: str  # the same as a template for a table's cell
    bound_pct: float | None
    """The most that it saves, percent of the time of ``of``, by what it leaves as it is. None without such a bound."""
    basis: Finding  # what the step and its bound rest on
    of: TimeOf = TimeOf.LAUNCH
    measured_pct: float | None = None
    """What it saved where it was measured, percent of the time of ``of``; None for a step that is only bounded."""
    estimate_pct: float | None = None
    """What it saves if all else stays the same, likewise: by counters, the best case or ncu's rule. None without."""
    relieves: tuple[Relief, ...] = ()  # the limits that it reduces
    cause: CauseId | None = None  # the cause that it removes; None for a step against the limit
    rules: tuple[QuotedRule, ...] = ()  # ncu's rules that the step restates; of ncu_rule the one with its estimate
    bound_source: Provenance | None = None
    """Where the bound comes from; None without one, and where nothing that the step leaves as it is was used."""
    estimate_source: Provenance | None = None  # where the estimate comes from; None without one, and for ncu's

    @property
    def id(self) -> str:
        """Its id in JSON, e.g. ``use_wgmma``."""
        return self.action.kind

    @property
    def saving(self) -> TracedNumber | None:
        """The estimate, else the bound, with its provenance; None where it has none."""
        source = self.bound_source if self.estimate_pct is None else self.estimate_source
        return None if self.size_pct is None or source is None else TracedNumber(self.size_pct, source, ".0f", "%")

    @property
    def size_pct(self) -> float | None:
        """The size by which steps are ranked: the estimate, else the bound; None without either."""
        return self.bound_pct if self.estimate_pct is None else self.estimate_pct

    @property
    def little_known(self) -> bool:
        """Whether nothing was estimated, and the bound is so high that it says next to nothing."""
        known = self.estimate_pct is not None or self.of is not TimeOf.LAUNCH
        return not known and self.bound_pct is not None and self.bound_pct >= thresholds.UNINFORMATIVE

    @property
    def estimated(self) -> bool:
        """Whether it has an estimate that the bound does not cut off: that would say no more than the bound."""
        return self.estimate_pct is not None and (self.bound_pct is None or self.estimate_pct < self.bound_pct)

    @property
    def of_kernels(self) -> bool:
        """Whether its bound is of the time of several kernels, of which the launch's is a part."""
        return self.of in (TimeOf.KERNELS, TimeOf.ITERATION_KERNELS)

    def part_of(self, whole: TimeOf, share: float) -> Step:
        """The step with its savings of the time of a whole. share: the launch's part of that, 0 to 1."""
        most, saved = (each and each * share for each in (self.bound_pct, self.estimate_pct))
        step = self._replace(bound_source=None, estimate_source=None, measured_pct=None)
        return step._replace(bound_pct=most, estimate_pct=saved, of=whole)

    def relieving(self, limit: Bottleneck) -> bool:
        """Whether it relieves a limit."""
        return not {limit.kind, limit.part, *_HIDDEN.get(limit.part or Part.DRAM, ())}.isdisjoint(self.relieves)

    def fields(self) -> dict[str, Any]:
        action = self.action.fields()
        return {
            "id": action.pop("id"), "bound_pct": self.bound_pct, "estimate_pct": self.estimate_pct,
            "measured_pct": self.measured_pct, "of": self.of.value, "little_known": self.little_known,
            "relieves": plain(self.relieves), "cause": plain(self.cause), **action,
            "estimate_provenance": str(self.estimate_source) if self.estimate_source else None,
            "basis": self.basis.fields(), "rules": [rule.rule for rule in self.rules],
        }  # fmt: skip


class LaunchContext(NamedTuple):
    """What the steps of a launch are made of."""

    row: Row
    names: Names  # ncu's names of the columns
    verdict: Verdict
    stalls: tuple[Comparison, ...] = ()  # percent of the warps' time in each stall reason, the largest first
    rules: tuple[QuotedRule, ...] = ()  # ncu's, with why they are no step
    excess_ops: float | None = None  # counted operations over those that the case needs; None where not known
    excess_bytes: float | None = None  # counted DRAM bytes over those that the case needs, likewise
    case: CaseVerdict | None = None
    least: CaseEntry | None = None  # its case, with the bytes that it needs; None where these are not known
    floor: Floor | None = None  # the least time of its case; None where not known, and for other than the main kernel
    code: Listing = NO_LISTING  # its instructions
    share: float | None = None  # its part of the kernel time of ``whole``, 0 to 1; None where not known
    whole: TimeOf = TimeOf.KERNELS
    best: Mapping[Part, tuple[float, str]] = {}  # the most that its kernel uses a resource, percent; in which case

    def traced(self, quantity: Quantity) -> TracedNumber | None:
        return quantity.traced(self.row, self.names)

    def number(self, column: str) -> float | None:
        return number(self.row, column)

    def estimated(self, *names: str) -> tuple[QuotedRule, ...]:
        """Those of ncu's rules with these names that have an estimate."""
        return tuple(rule for rule in self.rules if rule.rule in names and rule.speedup_pct is not None)

    def use(self, *parts: Part) -> float:
        """Use of the busiest of these parts, percent."""
        return max((found.value for part in parts if (found := self.verdict.resource(part))), default=0.0)

    def use_of(self, part: Part | None) -> dict[str, Any]:
        """Values of a finding: ``part``, and its ``use`` where that was measured."""
        resource = self.verdict.resource(part) if part else None
        return {"part": part, "use": resource.comparison.number if resource and resource.comparison else None}

    def cost(self, cause: CauseId, part: float | None = 1.0) -> TracedNumber | None:
        """Percent of the time that a cause costs: a part of the limit's use, else of the warps' time in the stalls that
        the cause shows as. part: 0 to 1; None where it is not known."""
        binds = [use] if (use := self.use_of(self.verdict.part)["use"]) else []
        spent = binds or [each.number for each in self.stalls if each.of in cause.stalls]
        source = Provenance("facts", f"{part!r} * sum(parts)", parts=tuple(each.source for each in spent))
        value = (part or 0.0) * math.fsum(each.value for each in spent)
        return TracedNumber(value, source, ".0f", "%") if value else None

    def step(
        self, kind: str, because: Finding | None = None, values: Mapping[str, Any] | None = None, *,
        relieves: tuple[Relief, ...] = (), still: float | None = None, most: TracedNumber | float | None = None,
        estimate: TracedNumber | float | None = None, rules: tuple[QuotedRule, ...] = (),
    ) -> Step:  # fmt: skip
        """A step of ``steps.csv``, with the most that it saves.

        because: what it rests on, besides what needs the rest of the time. values: of its words. relieves: besides what
        the table says. still: percent of the time that the busiest resource that it relieves still needs, at least;
        None where not known. most: the most that it saves by itself. estimate: what it saves, where that is not the
        time that the resource no longer needs.
        """
        row = STEPS[kind]
        less, work = (*relieves, *_parts(row["relieves"])), row["work"]
        most_pct, source = (most.value, most.source) if isinstance(most, TracedNumber) else (most, None)
        basis = None
        if work not in ("unbounded", "iteration"):
            left, basis, left_source, freed = self._left(less, {*less, *_parts(row["changes"])}, still, work)
            if estimate is None and freed is None and row["nears"]:
                estimate, best_case = self._as_in_best_case(Part(row["nears"]))
                because = both(best_case, because)
            estimate = freed if estimate is None else estimate
            if most_pct is None or left < most_pct:
                most_pct, source = left, left_source
        by, saved = (estimate.source, estimate.value) if isinstance(estimate, TracedNumber) else (None, estimate)
        if saved is not None and most_pct is not None and saved > most_pct:
            by, saved = source, most_pct
        return Step(
            action=Finding(kind, values or {}, row["words"]),
            short=row["short"],
            bound_pct=most_pct,
            basis=both(because, basis) or NOTHING_USED,
            of=TimeOf.ITERATION if work == "iteration" else TimeOf.LAUNCH,
            estimate_pct=saved,
            relieves=less,
            rules=rules,
            bound_source=source,
            estimate_source=by,
        )

    def _left(
        self, less: tuple[Relief, ...], changed: set[Relief], still: float | None, work: str
    ) -> tuple[float, Finding, Provenance | None, TracedNumber | None]:
        """The most that a step saves, percent, by what it leaves; a finding that says what that is; where it comes
        from; and the time in which the relieved resource is no longer busy. changed: resources whose use it may change.
        work: which of the case's least bytes and operations it changes."""

        def left(of: Bottleneck, formula: str) -> Provenance | None:
            return of.comparison and Provenance("facts", formula, parts=(of.comparison.number.source,))

        needed, basis, source, freed = 0.0, NOTHING_USED, None, None
        for resource in self.verdict.resources:
            if resource.part not in changed and _HIDDEN.get(resource.part or Part.DRAM, set()).isdisjoint(changed):
                needed, source, used = resource.value, left(resource, "max(100 - a, 0)"), self.use_of(resource.part)
                if any(isinstance(each, Part) for each in changed):
                    basis = finding("stays", "{part} would still need {use} of the time", **used)
                elif used["use"] is not None:
                    basis = finding("used", "use of {part} is {use}", **used)
                break
        own = next((resource for resource in self.verdict.resources if resource.part in less), None)
        if own is not None and own.value and still is not None:
            factor = still / own.value
            if factor < 1 and (freed_by := left(own, f"{1 - factor!r} * a")):
                freed = TracedNumber(own.value - still, freed_by, ".0f", "%")
            if still > needed:
                words = "{part} would still need {still_pct:.1f}% of the time"
                needed, source = still, left(own, f"max(100 - {factor!r} * a, 0)")
                basis = finding("still", words, part=own.part, still_pct=still)
        saving = self.floor.saving_pct(other_work=bool(work)) if self.floor and "bytes" not in work else None
        if saving is not None and 100 - saving.value > needed:
            words = "the least bytes and operations leave no more than {most}"
            needed, source, basis = 100 - saving.value, saving.source, finding("floor", words, most=saving)
        return min(max(100 - needed, 0.0), 100.0), basis, source, freed

    def _as_in_best_case(self, part: Part) -> tuple[TracedNumber | None, Finding | None]:
        """What is saved where the launch uses a resource as much as the best case of its kernel does, and that case."""
        use, (best_pct, case) = self.use_of(part)["use"], self.best.get(part, (0.0, ""))
        saved = calculated(f"100 * (1 - a / {best_pct!r})", use, spec=".0f", unit="%") if best_pct else None
        if saved is None or saved.value < thresholds.LEAST_GAIN:
            return None, None
        words = "the best measured case of this kernel reaches {best_pct:.0f}% ({case})"
        return saved, finding("best_case", words, best_pct=best_pct, case=case)

    @property
    def too_small(self) -> bool:
        """Whether most of the time is what any launch takes: the work is too small for the GPU."""
        return (quantities.FIXED.of(self.row) or 0.0) >= thresholds.MOSTLY

    def in_code(self, *families: Family) -> Finding | None:
        """A basis: how many instructions of these families the code has; None where it has none or is not known."""
        named = tuple(f"{count} {opcode}" for opcode, count in self.code.opcodes(*families).items())
        return finding("code", "the code has {instructions}", instructions=named) if named else None

    def executed(self) -> Finding | None:
        """A basis: the families of instructions that are executed most."""
        families = (each for each in Family if each is not Family.OTHER and self.code.executes(each))
        shares = {each: self.code.executed_share(each) or 0.0 for each in families}
        most = sorted(shares, key=shares.__getitem__, reverse=True)[:3]
        words = "{executed_share:.0%} are {family}"
        named = tuple(finding("family", words, family=each, executed_share=shares[each]) for each in most)
        return finding("executed", "of the executed instructions {families}", families=named) if named else None


def library_of(kernel: str) -> str | None:
    """The library in binary form that a kernel is of, by its name with what tells it from others; None for others."""
    return next((library for library, names in LIBRARIES if names.search(kernel)), None)


def of_program(kind: str, bound_pct: float | None, because: Finding, values: Mapping[str, Any]) -> Step:
    """A step of ``steps.csv`` for a program. bound_pct: the most that it saves of its time; None for unknown."""
    row = STEPS[kind]
    action = Finding(kind, values, row["words"])
    return Step(action, row["short"], None if bound_pct is None else min(bound_pct, 100.0), because, TimeOf.PROGRAM)


def _parts(names: str) -> tuple[Relief, ...]:
    return tuple(part for name in names.split() for part in _GROUPS[name])


def both(*parts: Finding | None) -> Finding | None:
    """Several bases as one; those that are None are left out."""
    given = [part for part in parts if part is not None]
    if len(given) < 2:
        return given[0] if given else None
    return finding("both", "{first}; {then}", first=given[0], then=both(*given[1:]))


def hot_instruction(hottest: HotInstruction | None) -> Finding | None:
    """A basis: the instruction at which warps stall."""
    if hottest is None:
        return None
    kind, words = "hot", "the hottest instruction is {sass}, {sample_share:.0%} of the samples"
    if hottest.waits_for is not None:
        kind, words = "hot_waits", words + "; it waits for {waits_for}"
    return finding(kind, words, sass=hottest.sass, sample_share=hottest.share, waits_for=hottest.waits_for)


def ways(*those: str | tuple[str, bool]) -> dict[str, Any]:
    """Values of a step: the ways of ``ways.csv`` to do it. Of a pair only where the second is true."""
    words, open_ = WAYS, (each for each in those if isinstance(each, str) or each[1])
    names = (each if isinstance(each, str) else each[0] for each in open_)
    return {"ways": tuple(Label(way, words[way]["words"]) for way in names)}


def peaks(ratio: float) -> Finding:
    """A basis: how much faster other instructions are."""
    return finding("peaks", "their peak is {ratio:.3g} times as high", ratio=ratio)


def measured(faster: Alternative) -> Step:
    """The step to a measured alternative: what to change, and what it saved of an iteration without a profiler."""
    words = "{instead_time} instead of {time}{measure}, {factor} times as fast ({low:.2f} to {high:.2f} {observed})"
    basis = finding(
        "measured", words, time=faster.time, instead_time=faster.instead_time, factor=faster.time / faster.instead_time,
        low=faster.factor.low, high=faster.factor.high, measure=faster.measure, observed=faster.observed,
    )  # fmt: skip
    values = {"changes": tuple(change.finding for change in faster.changes), "case": faster.instead}
    row, saved_pct = STEPS["use_alternative"], 100 * (1 - 1 / faster.factor.value)
    action = Finding("use_alternative", values, row["words"])
    return Step(action, row["short"], None, basis, TimeOf.ITERATION, saved_pct)


def steps(s: LaunchContext) -> tuple[Step, ...]:
    """The steps for a launch, at most MOST_STEPS, in the module's order."""
    verdict, case, limits = s.verdict, s.case, s.verdict.limits
    makers = [
        (make, limit.part)
        for limit in limits
        if (make := (_FOR_PART.get(limit.part) if limit.part else None) or _FOR_KIND.get(limit.kind))
    ]
    if not makers:
        return ()
    advised: list[Step] = []
    if case and case.copying and case.copying.reached and verdict.kind is not Kind.LAUNCH:
        # Where an iteration mostly copies, changes of kernels matter less.
        copying = case.copying.number
        because = finding("copying", "only copies run in {copying} of the GPU's busy time", copying=copying)
        advised.append(s.step("less_copying", because, most=copying))
    for cause in verdict.causes:
        advised += [each._replace(cause=cause.id) for each in steps_for(s, cause.id)]
    # A cause says more than the stall that it shows as, or than a search for the busy unit.
    explained = {"find_unit"} if verdict.causes else set()
    explained |= {reason for cause in verdict.causes for reason in cause.id.stalls}
    for make, part in makers:
        advised += [each for each in make(s, part) if explained.isdisjoint((each.action.values.get("reason"), each.id))]
        explained |= {"long_scoreboard"} if part is Part.DRAM else set()
    if verdict.kind is not Kind.LAUNCH:
        advised += (each for each in (*less_work(s), *read_once(s)) if any(map(each.relieving, limits)))
        advised += wgmma(s)
        advised += _by_rules(s, {rule.rule for each in advised for rule in each.rules})
        if case and case.waiting and case.waiting.value >= thresholds.SOME_WAITING:
            advised += [*_launch(s, None)][:1]
    once: dict[str | int, Step] = {}
    for each in advised:
        # ncu's rules are all different.
        once.setdefault(len(once) if each.id == "ncu_rule" else each.id, each)
    worth = [each for each in once.values() if each.size_pct is None or each.size_pct >= thresholds.LEAST_GAIN]
    if limits[0].kind in USED and limits[0].value < thresholds.SATURATED:
        # Busy and not saturated: latency matters beside it.
        limits = (*limits, Bottleneck(Kind.LATENCY, None, 100 - limits[0].value))
    elif limits[0].part and not any(each.relieving(limit) for each in worth for limit in limits):
        worth.append(s.step("at_roof", values=s.use_of(limits[0].part), relieves=(limits[0].part,)))

    # Of a tail and a resource, the resource limits while the multiprocessors work, the imbalance while they are idle.
    idle = limits[0].value if verdict.pair and limits[0].kind is Kind.IMBALANCE and limits[1].kind in USED else 50.0

    def rank(each: Step) -> tuple[bool, float, int, float]:
        binds = (idle if limit.kind is Kind.IMBALANCE else 100 - idle for limit in limits if each.relieving(limit))
        # What another case of the kernel reaches says less than the counters of this one.
        counted = each.estimate_pct is not None and not STEPS[each.id]["nears"]
        known = 0 if counted else 1 + (each.bound_pct is None or each.little_known)
        return each.id != "less_copying", -sum(binds), known, -((each.size_pct if counted else each.bound_pct) or 0.0)

    first = sorted(worth, key=rank)[:MOST_STEPS]
    return tuple(each.part_of(s.whole, s.share) if each.id == "fuse_or_batch" and s.share else each for each in first)


def _by_rules(s: LaunchContext, taken: set[str]) -> Iterator[Step]:
    """ncu's rules about the limit, with their estimates, but for those that fiprof has a step of its own for."""
    taken |= {"CPIStall", "AchievedOccupancy", "TheoreticalOccupancy", *BALANCE_RULES, *CONFLICT_RULES}
    for rule in s.rules:
        if rule.rejected is not None or rule.speedup_pct is None or rule.rule in taken:
            continue
        basis = finding("ncu_estimate", "ncu's estimate ({estimate})", estimate=rule.speedup_kind)
        message = {"message": rule.message.rstrip(".")}
        yield s.step("ncu_rule", basis, message, estimate=rule.speedup_pct, rules=(rule,))


def with_steps(rules: tuple[QuotedRule, ...], advised: tuple[Step, ...]) -> tuple[QuotedRule, ...]:
    """The rules, with a reason for those that no step rests on."""
    taken = {rule.rule for each in advised for rule in each.rules}
    better = finding("better_steps", "the steps above come first")
    return tuple(rule._replace(rejected=None if rule.rule in taken else rule.rejected or better) for rule in rules)


def _launch(s: LaunchContext, _: Part | None) -> Iterator[Step]:
    if s.case is None or s.case.waiting is None:
        return
    waiting, words = s.case.waiting.number, "the GPU waits for {waiting} of it; {host}"
    values = {"waiting": waiting, "host": s.case.host}
    graph = "larger_graph" if s.case.graph else "use_graph"
    yield s.step(graph, finding("waits", words, **values), most=waiting)
    # Fused kernels move fewer bytes too.
    first = finding("waits_first", words + "; a faster kernel saves nothing until then", **values)
    yield s.step("larger_launches", first)


def _imbalance(s: LaunchContext, part: Part | None) -> Iterator[Step]:
    kind, values = "even_work", {}
    if part is Part.TAIL:
        kind = "fuller_last_wave"
    elif part is Part.TOO_FEW_BLOCKS:
        kind, values = "more_blocks", {name: s.number(name) for name in ("blocks", "multiprocessors")}
    # Not the idle time: a block alone on a multiprocessor does not use it either.
    idle, fixed = s.verdict.idle, s.traced(quantities.FIXED)
    because = finding("idle", "the multiprocessors were idle for {idle} of the time of the longest", idle=idle)
    # What a launch takes in any case is not shared out.
    estimate = calculated("a * (1 - b / 100)", idle, fixed, spec=".0f", unit="%") or idle
    yield s.step(kind, because, values, estimate=estimate, rules=s.estimated(*BALANCE_RULES))
    yield from _too_small(s)


def _too_small(s: LaunchContext) -> Iterator[Step]:
    """More work for each launch, where what any launch takes is a notable part of its time."""
    fixed, words = s.traced(quantities.FIXED), "a launch that does next to nothing takes {fixed} of its time"
    if fixed is not None and fixed.value >= thresholds.OVERHEAD:
        less = (Kind.LATENCY, Kind.IMBALANCE) if s.too_small else ()
        yield s.step("fuse_or_batch", finding("fixed", words, fixed=fixed), relieves=less, most=100.0, estimate=fixed)


def _latency(s: LaunchContext, _: Part | None) -> Iterator[Step]:
    busiest = s.verdict.busiest
    yield from _too_small(s)
    if busiest is not None and busiest.part is Part.TENSOR_CORES:
        yield s.step("overlap_wgmma" if by_warpgroups(s.row) else "overlap_mma")
        yield from copy_by_tma(s)
    if s.stalls and s.stalls[0].of in ("short_scoreboard", "mio_throttle"):
        yield from _conflicts(s)
    if s.stalls and s.stalls[0].value >= thresholds.DOMINANT_STALL:
        reason, share = str(s.stalls[0].of), s.stalls[0].number
        if reason != "misc":  # it says nothing of what to do
            values, less = {"reason": reason, "share": share, **_ways_out(s, reason)}, _parts(state(reason).relieves)
            where = s.code.hottest(reason)
            kind = "more_loads" if reason == "long_scoreboard" and _below_word(where) else "less_stall"
            yield s.step(kind, hot_instruction(where), values, relieves=less, rules=s.estimated("CPIStall"))
    elif s.stalls:
        waits = tuple(finding("wait", "{reason} {share}", reason=each.of, share=each.number) for each in s.stalls[:3])
        longest = finding("longest_waits", "the largest stalls are {waits} of the warps' time", waits=waits)
        yield s.step("read_hotspots", both(longest, hot_instruction(s.code.hottest())))
    if not by_warpgroups(s.row) and not s.too_small:
        yield from more_warps(s)


_WAYS_OUT: Mapping[tuple[str, Family], str] = {
    ("long_scoreboard", Family.MBARRIER): "more_stages earlier_copies",
    ("long_scoreboard", Family.COPY_WAIT): "more_stages earlier_copies",
    ("long_scoreboard", Family.LOCAL): "no_local",
    ("long_scoreboard", Family.ATOMIC): "no_result",
    ("short_scoreboard", Family.SPECIAL): "polynomials kept",
    ("short_scoreboard", Family.CONVERSION): "fewer_conversions",
}
"""Stall reason and what is waited for -> the ways that make it less."""


def _ways_out(s: LaunchContext, reason: str) -> Mapping[str, Any]:
    """Values of a step against a stall: what helps, by what the hottest instruction waits for where that is known."""
    hottest, reason = s.code.hottest(reason), "short_scoreboard" if reason == "mio_throttle" else reason
    cause = hottest.cause if hottest else None
    if cause is not None and (reason, cause) in _WAYS_OUT:
        return ways(*_WAYS_OUT[reason, cause].split())
    if (reason, cause) == ("long_scoreboard", Family.GLOBAL_LOAD):
        return load_ways(s, hottest)
    if reason == "short_scoreboard" and cause in SHARED:
        return ways(("wider_shared", s.code.narrow(Family.SHARED_LOAD)), "loaded_earlier")
    return {"ways": (finding("stall_helps", "{reason.helps}", reason=state(reason)),)}


def more_warps(s: LaunchContext) -> Iterator[Step]:
    """More warps that wait at the same time, where the grid has them and something limits their number."""
    if any(cause.id is CauseId.BLOCK_STARTS for cause in s.verdict.causes):
        return
    limited = occupancy(s.row)
    if limited.waves is not None and not limited.waves.full:
        empty = limited.waves.idle_share
        if empty >= thresholds.EMPTY / 100:
            most = empty * (100 - (quantities.OVERHEAD.of(s.row) or 0.0))
            because = finding("empty_places", "{empty:.0%} of the block slots are empty", empty=empty)
            places = {"blocks": limited.waves.last_blocks, "wave_blocks": limited.waves.wave_blocks}
            yield s.step("fill_wave", because, places, most=most)
        return
    now = limited.theoretical_pct
    if limited.steps_blocks and now and limited.blocks:
        more = limited.steps_blocks / limited.blocks
        then = min(100.0, now * more)
        if then > now:
            # At best a block takes as long as before: time goes down with the warps, and with whole waves.
            waves = limited.waves.waves if limited.waves else 1.0
            time_left = min(now / then, math.ceil(waves / more) / math.ceil(waves))
            because = finding("more_wait", "so many more warps wait at the same time")
            values = {"changes": limited.steps, "occupancy_pct": now, "then_pct": then, "or_larger": ""}
            warps = limited.warps_per_block or MOST_WARPS
            if limited.limiters == (Resource.SHARED_MEMORY,) and 2 * warps <= MOST_WARPS:
                words = "; larger blocks than of {warps:warp|warps}, which share that memory, may save more"
                values["or_larger"] = finding("larger_blocks", words, warps=warps)
            more, rules = 100 * (1 - time_left), s.estimated("TheoreticalOccupancy")
            yield s.step("more_warps", because, values, most=more, rules=rules)


# Tensor cores, pipes, issue slots


def _tensor(s: LaunchContext, _: Part | None) -> Iterator[Step]:
    # Kind of the operands -> the one of half its size.
    kind = dominant_tensor_kind(s.row)
    smaller = {"tf32": "bf16", "fp16": "fp8", "bf16": "fp8"}.get(kind or "")
    peak, faster = (s.number(f"tensor_peak_{each}_ops_per_cycle") for each in (kind, smaller))
    if faster is not None and peak is not None and faster > peak > 0:
        still, values = s.use(Part.TENSOR_CORES) * peak / faster, {"operands": kind, "smaller": smaller}
        yield s.step("smaller_operands", peaks(faster / peak), values, still=still)
    yield s.step("close_tensor_gaps")
    yield from copy_by_tma(s)


def less_work(s: LaunchContext) -> Iterator[Step]:
    """Without matrix products that the algorithm does not need, and what is computed of them, as the softmax of masked
    tiles. Not where DRAM or L2 is the busiest, or warps wait for loads: there the operands' bytes come first. Not for
    other operations, which are counted by instructions: an exponential takes several."""
    busiest, excess, top = s.verdict.busiest, s.excess_ops, s.stalls[0] if s.stalls else None
    for_loads = top is not None and top.of == "long_scoreboard" and top.value >= thresholds.DOMINANT_STALL
    if not dominant_tensor_kind(s.row) or busiest is None or busiest.part in (Part.DRAM, Part.L2) or for_loads:
        return
    if excess is not None and excess >= thresholds.EXCESS:
        still, words = s.use(Part.TENSOR_CORES, *PIPES) / excess, "ncu counted {factor:.2f} times the operations that "
        because = finding("excess_ops", words + "the algorithm needs", factor=excess)
        # Blocks that skip them are no longer as uneven.
        less = (Kind.IMBALANCE,) if excess >= WHOLE_TILES else ()
        estimate = 100 * (1 - 1 / excess)
        yield s.step("less_wasted_work", because, relieves=less, still=still, estimate=estimate)


def read_once(s: LaunchContext) -> Iterator[Step]:
    """Without repeated passes over the input: an operation needs two words at most."""
    loaded, least = _LOADED_BYTES.value(s.row), s.least
    if not loaded or least is None or not least.bytes_read or not least.flops or dominant_tensor_kind(s.row):
        return
    if loaded >= PASSES_AGAIN * max(least.bytes_read, TWO_WORDS * least.flops):
        words = "its threads load {factor:.3g} times the bytes that the algorithm reads"
        yield s.step("read_once", finding("loaded_again", words, factor=loaded / least.bytes_read))


def wgmma(s: LaunchContext) -> Iterator[Step]:
    """wgmma in place of mma, where the GPU has it.

    Such a rewrite also changes the copies, the loads from shared memory and the overlap; the products (at the higher
    peak), DRAM and the special functions stay. Not where DRAM is used more than the tensor cores: there the operands'
    bytes come first. The estimate is for tensor cores as busy as before.
    """
    kind, use = dominant_tensor_kind(s.row), s.use(Part.TENSOR_CORES)
    hopper = str(s.row.get("cc") or HOPPER).partition(".")[0] == HOPPER
    slow, fast = (s.number(f"{which}_peak_{kind}_ops_per_cycle") for which in ("mma", "tensor"))
    if kind is None or slow is None or fast is None or not hopper or use <= max(thresholds.UNUSED, s.use(Part.DRAM)):
        return
    if fast > slow > 0 and mostly_mma(s.row, kind) and not s.code.has(Family.WGMMA):
        because, as_busy = both(s.in_code(Family.MMA), peaks(fast / slow)), 100 * (1 - slow / fast)
        yield s.step("use_wgmma", because, still=use * slow / fast, estimate=as_busy)


def copy_by_tma(s: LaunchContext) -> Iterator[Step]:
    """Copies by TMA in place of cp.async, where wgmma waits for them."""
    if s.code.has(Family.WGMMA) and s.code.count(Family.ASYNC_COPY) > s.code.count(Family.TMA):
        yield s.step("copy_by_tma", s.in_code(*COPIES))


def _pipes(s: LaunchContext, part: Part | None) -> Iterator[Step]:
    """Less work for the busiest pipe, or for the issue slots, by what the kernel executes most."""
    unknown = not s.code
    yield from _tensor_cores(s, part)
    match part:
        case Part.ISSUE_SLOTS:
            open_, arithmetic = not s.code.counted, s.code.executes(Family.FLOAT, Family.CONVERSION)
            packed = s.code.executes(Family.PACKED, least=thresholds.UNUSED / 100)
            divided = _divided(s)
            still = s.use(Part.ISSUE_SLOTS) * (1 - divided) if divided else None
            how = ways(
                ("divisions", divided > 0),
                ("fewer_conversions", s.code.executes(Family.CONVERSION) and not divided),
                ("wider_loads", s.code.narrow(Family.GLOBAL_LOAD, Family.ASYNC_COPY)),
                ("packed", open_ or (arithmetic and not packed)),
                ("addresses_once", open_ or s.code.executes(Family.INTEGER)),
                ("unrolled", open_ or s.code.executes(Family.BRANCH)),
                ("kept", not open_),
            )
            # A warp waits for each of a division's instructions in turn.
            less = (Kind.LATENCY,) if divided else ()
            yield s.step("fewer_instructions", s.executed(), how, relieves=less, still=still)
        case Part.FMA_PIPE:
            # Two multiply-adds in one instruction, where the GPU does more of them so.
            ops = counted_float_ops(s.row)
            slow, fast = (s.number(f"{precision}_peak_ops_per_cycle") for precision in ("fp32", "fp16"))
            mostly_fp32 = bool(ops) and max(ops, key=ops.__getitem__) == "fp32" and _in_floats(s)
            packed = s.code.executes(Family.PACKED, least=thresholds.UNUSED / 100)
            if mostly_fp32 and slow is not None and fast is not None and fast > slow > 0 and not packed:
                yield s.step("packed_halves", peaks(fast / slow), still=s.use(Part.FMA_PIPE) * slow / fast)
            else:
                yield s.step("less_fma")
        case Part.ALU_PIPE:

            def often(opcodes: str) -> bool:
                return not s.code.counted or s.code.executes(*opcodes.split())

            how = ways(
                ("addresses_once", often("IADD3 IADD LEA VIADD")),
                ("fewer_comparisons", often("ISETP FSETP SEL FSEL FMNMX VIMNMX IMNMX PLOP3")),
                ("merged_logic", often("LOP3 SHF PRMT")),
                ("kept", s.code.counted),
            )
            yield s.step("less_alu", s.executed(), how)
        case Part.XU_PIPE:
            how = ways(
                ("polynomials", unknown or s.code.has(Family.SPECIAL)),
                ("fewer_conversions", unknown or s.code.has(Family.CONVERSION)),
                "kept",
            )
            yield s.step("less_xu", s.in_code(Family.SPECIAL), how)
        case Part.FP64_OR_TENSOR if s.use(Part.TENSOR_CORES) > s.use(Part.FP64_PIPE):
            yield from _tensor(s, part)
        case Part.FP64_PIPE | Part.FP64_OR_TENSOR:
            slow, fast = (s.number(f"{precision}_peak_ops_per_cycle") for precision in ("fp64", "fp32"))
            yield s.step("single_precision", still=s.use(Part.FP64_PIPE) * slow / fast if slow and fast else None)
        case Part.LSU_PIPE:
            how = ways(
                ("wider_loads", s.code.narrow(Family.GLOBAL_LOAD, Family.GLOBAL_STORE, Family.ASYNC_COPY)),
                ("wider_shared", unknown or (s.code.has(*SHARED) and s.code.narrow(*SHARED))),
                "in_registers",
            )
            yield s.step("fewer_accesses", s.executed(), how)
        case _:
            yield from _others(s, part)


def _divided(s: LaunchContext) -> float:
    """Part of what is executed that is divisions of integers, 0 to 1, as far as it is known: each converts to float,
    takes a reciprocal and converts back. 0 where they are few."""
    divided = DIVISION * min(s.code.executed_share(each) or 0.0 for each in ("I2F", "MUFU", "F2I"))
    return divided if divided >= MANY_DIVIDED and s.code.executes(Family.INTEGER, least=0.5) else 0.0


def _others(s: LaunchContext, part: Part | None) -> Iterator[Step]:
    """Less work for another part, by the ways that ways.csv has for it."""
    how = [way for way, row in WAYS.items() if part and part.value in row["parts"].split()]
    if how and part:
        less = (part, Part.FMA_PIPE) if part is Part.FMA_HEAVY else (part,)
        yield s.step("less_of_pipe", s.executed(), {"part": part, **ways(*how)}, relieves=less)
    else:
        yield s.step("find_unit")


def _in_floats(s: LaunchContext) -> bool:
    """Whether the FMA pipe's use is floating-point operations, not integer multiplications; True where not known. An
    addition counts as half a multiply-add."""
    ops, use = counted_float_ops(s.row).get("fp32"), s.number("fma_pct")
    cycles, peak = s.number("sm_cycles"), s.number("fp32_peak_ops_per_cycle")
    return ops is None or not cycles or not peak or use is None or 100 * ops / cycles / peak >= use / 4


def _tensor_cores(s: LaunchContext, part: Part | None) -> Iterator[Step]:
    """Tensor cores for arithmetic that may be a matrix product: multiply-adds that read operands meanwhile."""
    used, fma = s.number("tensor_active_pct"), s.traced(quantity("fma_pct"))
    if part not in (Part.ISSUE_SLOTS, Part.FMA_PIPE) or used is None or fma is None or used >= thresholds.UNUSED:
        return
    arithmetic = fma.value >= thresholds.FMA_OF_ISSUE / 100 * s.use(Part.ISSUE_SLOTS) and _in_floats(s)
    reads = s.use(*PASSES) >= thresholds.OPERANDS and (_FUSED.value(s.row) or 0.0) >= thresholds.FUSED / 100
    if not arithmetic or not reads or s.code.has(Family.WGMMA, Family.MMA):
        return
    ops = {precision: count for precision, count in counted_float_ops(s.row).items() if count}
    precision = max(ops, key=ops.__getitem__, default="fp32")
    # Halves are often computed in fp32.
    kind = "fp64" if precision == "fp64" else "fp16"
    slow, fast = s.number(f"{precision}_peak_ops_per_cycle"), s.number(f"tensor_peak_{kind}_ops_per_cycle")
    if not fast or (slow is not None and slow >= fast):
        return
    tensor_pct, because, freed = fma.value * slow / fast if slow else 0.0, None, None
    if tensor_pct:
        words = "in {kind} the tensor cores need {tensor_pct:.1f}% of the time "
        words += "for what keeps the FMA pipe busy for {fma}"
        because = finding("tensor_cores_would", words, tensor_pct=tensor_pct, fma=fma, kind=kind)
        # What the FMA pipe no longer does is issued no longer either.
        freed = calculated(f"{1 - tensor_pct / fma.value!r} * a", fma, spec=".0f", unit="%")
    yield s.step("use_tensor_cores", because, still=tensor_pct, estimate=freed)


# DRAM, the caches, shared memory


def _dram(s: LaunchContext, _: Part | None) -> Iterator[Step]:
    use, excess, used = s.use(Part.DRAM), s.excess_bytes, s.use_of(Part.DRAM)
    read, written = (s.number(f"dram_{way}_bytes") or 0.0 for way in ("read", "write"))
    fills = 100 * written > thresholds.FILLS * (read + written)
    # What is written once passes L2 once.
    less = (Part.L2,) if fills else ()
    if excess is not None and excess >= thresholds.EXCESS:
        words = "ncu counted {factor:.2f} times the DRAM bytes that the algorithm needs, at {use} use"
        least_read, least_written = (s.least.bytes_read, s.least.bytes_written) if s.least else (read, written)
        beyond, results = read + written - least_read - least_written, written - least_written
        kind = "fewer_intermediates" if results >= thresholds.MOSTLY / 100 * beyond > 0 else "move_fewer_bytes"
        yield s.step(kind, finding("excess_bytes", words, factor=excess, **used), still=use / excess)
    else:
        because = finding("bytes_bind", "DRAM is at {use}: fewer bytes take less time", **used)
        if excess is not None:
            kept, words = excess < thresholds.KEPT, "DRAM is at {use}, with {factor:.2f} times the least bytes"
            kind, words = ("bytes_kept", words + " (L2 kept some)") if kept else ("bytes_moved", words)
            because = finding(kind, words, factor=excess, **used)
        yield s.step("need_fewer_bytes", because, relieves=less)
    if use < thresholds.SATURATED and not fills and not queued(s.row, s.stalls):  # no warp waits for its stores
        top = s.stalls[0] if s.stalls else None
        waits = top if top and top.of == "long_scoreboard" and top.value >= thresholds.DOMINANT_STALL else None
        wait = finding("wait", "{reason} {share}", reason=waits.of, share=waits.number) if waits else None
        where, rules = (s.code.hottest("long_scoreboard"), s.estimated("CPIStall")) if waits else (None, ())
        yield s.step("more_loads", both(wait, hot_instruction(where)), load_ways(s, where), rules=rules)
        yield from more_warps(s)


def load_ways(s: LaunchContext, waiting: HotInstruction | None) -> dict[str, Any]:
    """Values of a step: ways to more bytes in flight. waiting: the instruction at which most warps wait for loads."""
    if waiting is not None and waiting.chain:
        return ways("several_chains")
    if s.code.has(*COPIES):
        return ways("more_stages")
    first = _below_word(waiting)
    sectors, threads = Formula("global_load_sectors + global_store_sectors"), Formula("blocks * threads_per_block")
    moved, by = sectors.value(s.row), threads.value(s.row)
    return ways(
        ("more_rows", first and bool(moved and by and SECTOR_BYTES * moved < 2 * ACCESS_BYTES * by)),
        ("wider_loads", first),
        "loads_in_flight",
        ("wider_loads", not first and s.code.narrow(Family.GLOBAL_LOAD, Family.ASYNC_COPY)),
        ("async_copies", s.code.has(Family.SHARED_STORE)),
    )


def _below_word(waiting: HotInstruction | None) -> bool:
    """Whether warps wait for a load of one or two bytes a thread, half of a word's sectors a request at most."""
    if waiting is None or waiting.waits_for is None or waiting.chain or waiting.cause is not Family.GLOBAL_LOAD:
        return False
    return access_bytes(waiting.waits_for) < ACCESS_BYTES


def _l2(s: LaunchContext, _: Part | None) -> Iterator[Step]:
    """Fewer lookups for the same sectors, where lookups are busy and requests use little of a line; else less of L2."""
    lookups, others = s.traced(quantity("l2_tags_pct")), [column for column in L2_COLUMNS if column != "l2_tags_pct"]
    sectors, rest = _LINE_SECTORS.value(s.row), max(s.number(column) or 0.0 for column in others)
    narrow = s.code.narrow(Family.GLOBAL_LOAD) or s.code.narrow(Family.GLOBAL_STORE)
    if lookups is not None and sectors is not None and lookups.value > rest and sectors < LINE and narrow:
        words = "a request of a warp touches {touched:.2g} of the {line} sectors that a lookup finds; the lookups keep "
        words += "L2 busy for {lookups}, its transfers for {rest_pct:.0f}%"
        because = finding("lookups", words, touched=sectors, line=LINE, lookups=lookups, rest_pct=rest)
        yield s.step("fewer_accesses", because, ways("wider_loads"), relieves=(Part.L2,), still=rest)
    yield s.step("less_l2")


def _passes(s: LaunchContext, part: Part | None) -> Iterator[Step]:
    """The data stage of L1 and shared memory."""
    # Atomics on one word are passes one after another too.
    if not any(cause.id is CauseId.ATOMICS for cause in s.verdict.causes):
        yield from _conflicts(s)
    if part is Part.L1_DATA:
        how = ways(
            ("coalesced", not s.code or s.code.most_scattered() is not None),
            ("wider_loads", s.code.narrow(Family.GLOBAL_LOAD, Family.GLOBAL_STORE)),
            "in_registers",
        )
        yield s.step("fewer_l1_passes", s.executed(), how)
    else:
        how = ways(
            ("wider_shared", s.code.narrow(*SHARED)),
            "in_registers",
            ("shuffles", bool(s.code) and not s.code.has(Family.SHUFFLE, Family.WGMMA, Family.MMA)),
        )
        yield s.step("fewer_shared_passes", s.executed(), how)


def _conflicts(s: LaunchContext) -> Iterator[Step]:
    """Without the passes through shared memory that bank conflicts add."""
    conflicts = s.traced(quantities.BANK_CONFLICTS)
    if conflicts is not None and conflicts.value >= thresholds.CONFLICTS / 100:
        because = finding("conflicts", "{share} of the passes through shared memory are conflicts", share=conflicts)
        still = s.use(*PASSES) * (1 - conflicts.value)
        yield s.step("no_bank_conflicts", because, still=still, rules=s.estimated(*CONFLICT_RULES))


Make = Callable[[LaunchContext, Part | None], Iterator[Step]]
_FOR_PART: Mapping[Part, Make] = {
    Part.TENSOR_CORES: _tensor,
    Part.DRAM: _dram,
    Part.L2: _l2,
    Part.CONSTANT_CACHE: lambda s, _: iter([s.step("uniform_constants", s.in_code(Family.CONSTANT))]),
    **dict.fromkeys(PASSES, _passes),
}
_FOR_KIND: Mapping[Kind, Make] = {
    Kind.LAUNCH: _launch,
    Kind.IMBALANCE: _imbalance,
    Kind.LATENCY: _latency,
    Kind.COMPUTE: _pipes,
    Kind.MEMORY: _others,
}
"""For parts that are not in _FOR_PART. No step follows from the other kinds."""


def steps_for(s: LaunchContext, cause: CauseId) -> Iterator[Step]:
    """The steps against a cause."""
    match cause:
        case CauseId.ATOMICS if s.code.modified("POPC", Family.SHARED_ATOMIC):
            # Those that only count are merged by the word: on Hopper 32 random ones of 64 words in a bank take 25.3
            # passes, as many as there are words among them.
            yield from _conflicts(s)
        case CauseId.ATOMICS:
            code = s.in_code(Family.ATOMIC, Family.SHARED_ATOMIC)
            shares = (quantities.ATOMIC_SHARE, quantities.SHARED_ATOMIC_SHARE)
            share = max(each.of(s.row) or 0.0 for each in shares) or number(s.row, "l2_atomic_unit_max_pct") or 0.0
            # Where one slice of L2 has most of them, the time that it takes longer than the average one.
            slice_use, uneven = (
                s.traced(quantity(each)) for each in ("l2_atomic_unit_max_pct", "l2_atomic_max_over_mean")
            )
            evened = calculated("a * (1 - 1 / b)", slice_use, uneven, spec=".0f", unit="%")
            contended = evened and uneven and uneven.value >= thresholds.CONTENDED
            saved = evened if contended else s.cost(cause, share / 100)
            if not (s.code.has(Family.SHUFFLE) and s.code.has(Family.SHARED_ATOMIC)):
                yield s.step("aggregate_atomics", code, estimate=saved)
            yield s.step("spread_atomics", code, estimate=saved)
        case CauseId.BARRIER:
            how = ways("warp_sync", "named_barriers", ("double_buffer", s.code.has(Family.SHARED_STORE)))
            because = both(s.in_code(Family.BARRIER), hot_instruction(s.code.hottest("barrier")))
            # What goes by shuffles within a warp passes no shared memory either.
            exchanged = LOADS if s.verdict.part in LOADS else ()
            yield s.step("fewer_barriers", because, how, relieves=exchanged, estimate=s.cost(cause))
        case CauseId.LOCAL_MEMORY:
            # Spilled registers, arrays that a thread indexes by what the compiler does not know, or both.
            requests, spilled = s.traced(quantities.LOCAL_REQUESTS), s.traced(quantity("spill_requests"))
            code, cost = s.in_code(Family.LOCAL), s.cost(cause, (quantities.LOCAL_SHARE.of(s.row) or 0.0) / 100)
            if spilled is None or spilled.value > 0:
                words = "{spilled} requests to local memory are spills"
                spills = finding("spills", words, spilled=spilled) if spilled else None
                values = {"registers": s.number("registers_per_thread") or 0.0}
                yield s.step("fewer_spills", both(spills, code), values, estimate=cost)
            if spilled is None or spilled.value < (requests.value if requests else 0.0) / 2:
                words = "{requests} requests to local memory"
                counted = finding("local_requests", words, requests=requests) if requests else None
                yield s.step("constant_indices", both(counted, code), estimate=cost)
        case CauseId.SCATTERED_ACCESS:
            factor, rules = quantities.SECTORS_PER_NEEDED.of(s.row), s.estimated(*SECTOR_RULES)
            cost = s.cost(cause, 1 - 1 / factor if factor and factor > 1 else None)
            yield s.step("neighbouring_access", _sectors(s), estimate=cost, rules=rules)
        case CauseId.DIVERGENCE | CauseId.PARTIAL_WARPS:
            threads, block = s.traced(quantity("threads_per_instruction")), s.traced(quantity("threads_per_block"))
            still = s.use(*PIPES) * threads.value / WARP_THREADS if threads else None
            if cause is CauseId.PARTIAL_WARPS:
                words = "a block has {threads} threads, a warp 32"
                because = finding("threads_of_block", words, threads=block) if block else None
                yield s.step("whole_warps", because, still=still)
            else:
                words = "{threads} of 32 threads take part in an instruction"
                counted = finding("threads", words, threads=threads) if threads else None
                because, rules = both(counted, s.in_code(Family.BRANCH)), s.estimated("ThreadDivergence")
                yield s.step("same_path", because, still=still, rules=rules)
        case CauseId.TOO_LITTLE_WORK:
            yield from _too_small(s)
        case CauseId.BANK_CONFLICTS:
            yield from _conflicts(s)
        case CauseId.SHUFFLES:
            share = (quantities.SHUFFLE_SHARE.of(s.row) or 0.0) / 100
            yield s.step("fewer_shuffles", s.executed(), estimate=s.cost(cause, share))
        case CauseId.INSTRUCTION_CACHE:
            size = len(s.code.code.lines) * INSTRUCTION_BYTES / 1000
            because = finding("code_size", "the code has {kilobytes:.0f} kB", kilobytes=size) if size else None
            yield s.step("smaller_code", because, estimate=s.cost(cause))
        case CauseId.BLOCK_STARTS:
            words = "{rate} blocks start a cycle; {achieved_pct:.0f}% of the warps that fit at once are there"
            rate = s.traced(quantity("blocks_per_cycle"))
            because = finding("block_starts", words, rate=rate, achieved_pct=s.number("achieved_occupancy_pct"))
            yield s.step("more_work_a_block", because)
        case CauseId.CONSTANT_CACHE:
            yield s.step("fewer_constants", hot_instruction(s.code.hottest("imc_miss")), estimate=s.cost(cause))
        case CauseId.MEMORY_FENCE:
            yield s.step("fewer_fences", s.in_code(Family.FENCE), estimate=s.cost(cause))
        case CauseId.SLEEPING:
            yield s.step("share_awaited_work", s.in_code(Family.SLEEP), estimate=s.cost(cause))
        case CauseId.HOST_MEMORY:
            yield s.step("copy_to_device", estimate=s.cost(cause, (quantities.HOST_SHARE.of(s.row) or 0.0) / 100))


def _sectors(s: LaunchContext) -> Finding | None:
    """A basis: how scattered the accesses to global memory are; of the worst instruction, where that is known."""
    if found := s.code.most_scattered():
        where, factor = found
        words = "{sass} touches {factor:.3g} times the sectors that neighbouring threads would"
        return finding("sectors_at", words, sass=where.sass, factor=factor)
    counted = map(s.traced, (quantities.GLOBAL_LOADS_SECTORS, quantities.GLOBAL_STORES_SECTORS))
    worst = max(filter(None, counted), key=lambda each: each.value, default=None)
    return finding("sectors", "a request of a warp touches {sectors} sectors", sectors=worst) if worst else None
