"""The short answer of a comparison: what accounts for most of a change, and how sure it is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum

from fiprof.analysis.comparison.conditions import Of
from fiprof.analysis.comparison.factors import Factor, FactorKind
from fiprof.analysis.comparison.kernels import KernelChange
from fiprof.analysis.comparison.pairing import Match
from fiprof.analysis.comparison.programs import LITTLE_IN_COMMON, PartKind, ProgramComparison
from fiprof.analysis.comparison.runs import CaseChange, RunComparison
from fiprof.analysis.comparison.statistics import Outcome
from fiprof.analysis.idle import Cause
from fiprof.analysis.thresholds import BOARDS_DIFFER, PROCESSES_DRIFT
from fiprof.analysis.verdict.model import named
from fiprof.model.collectives import COLLECTIVE
from fiprof.model.finding import Finding, Value
from fiprof.text import short_kernel

LEADS = 0.1
"""Share of a change, from which a part of it is worth a word."""


class Change(StrEnum):
    """How the time of a case changed."""

    SAME_NUMBERS = "same_numbers"
    LONGER = "longer"
    SHORTER = "shorter"
    UNKNOWN = "unknown"
    """No tool timed it on both sides."""


class Why(StrEnum):
    """What accounts for most of a change."""

    SAME = "same"
    """The same kernel, for the reason in ``factor``, where one is known."""
    RENAMED = "renamed"
    REPLACED = "replaced"
    NEW = "new"
    GONE = "gone"
    OUTSIDE = "outside"
    """The time between the kernels, before and after."""
    VERDICT = "verdict"
    """What binds it, where that changed."""


class FactorChange(StrEnum):
    """A factor that accounts for most of what a launch changed by."""

    MORE_INSTRUCTIONS = "more_instructions"
    FEWER_INSTRUCTIONS = "fewer_instructions"
    STALL = "stall"
    WARPS = "warps"
    ACTIVE = "active"
    CLOCK = "clock"


class ProgramChange(StrEnum):
    """How the time of a traced program changed."""

    SAME_NUMBERS = "same_numbers"
    WINDOW = "window"
    """Both traces hold the same work."""
    MORE_WORK = "more_work"
    """Side B's trace holds more of it: the change is at equal work."""
    LESS_WORK = "less_work"


class ProgramWhy(StrEnum):
    """What accounts for most of a program's change."""

    KERNEL = "kernel"
    NEW_KERNEL = "new_kernel"
    GONE_KERNEL = "gone_kernel"
    WAITING = "waiting"
    """Ranks wait for each other."""
    COPIES = "copies"
    IDLE = "idle"


class ComparisonWarning(StrEnum):
    """What makes a comparison doubtful."""

    OTHER_PROGRAM = "other_program"
    """Most kernels of one side are not on the other."""


class Sure(StrEnum):
    """How sure a comparison is."""

    SAME_RUN = "same_run"
    ONE_PROCESS = "one_process"
    """One process a side: noise and change cannot be told apart."""
    ONE_PROCESS_TWO_BOARDS = "one_process_two_boards"


def change_of(case: CaseChange) -> Finding:
    """How its time changed, with the times."""
    time = case.time
    if time is None or time.a is None or time.b is None or time.change is None:
        return Finding(Change.UNKNOWN, {"case": case.label})
    kind = Change.LONGER if time.change > 0 else Change.SHORTER if time.change < 0 else Change.SAME_NUMBERS
    pct = math.nan if time.share is None else 100 * time.share
    by = time.quantity.key
    return Finding(kind, {"case": case.label, "a": time.a, "b": time.b, "change_us": time.change, "pct": pct, "by": by})


def reasons(case: CaseChange) -> Iterator[Finding]:
    """What accounts for most of the change: a kernel, with why its launch differs, or the time outside the kernels."""
    time = case.time
    if time is None or not time.change:
        return
    outside = case.outside_us or 0.0
    kernel = next((each for each in case.kernels if each.us * time.change > 0), None)
    if kernel and abs(kernel.us) >= max(outside * math.copysign(1.0, time.change), LEADS * abs(time.change)):
        values: dict[str, Value] = {"kernel": short_kernel(kernel.shown.kernel), "us": kernel.us}
        if kernel.match is Match.REPLACED and kernel.a:
            values["before"] = short_kernel(kernel.a.kernel)
        yield Finding(Why(kernel.match), values)
        yield from launch_reasons(kernel)
    elif outside * time.change > 0 and abs(outside) >= LEADS * abs(time.change):
        yield Finding(Why.OUTSIDE, {"us": outside})


def launch_reasons(kernel: KernelChange) -> Iterator[Finding]:
    """Why the launch that stands for a kernel takes longer or shorter: its largest factor in that direction, and what
    binds it where that changed."""
    launch_us = kernel.launch_us or 0.0
    # Of another sign than the kernel's change the counters explain something else.
    if launch_us * kernel.us > 0:
        found = next((each for each in kernel.factors if each.us * launch_us > 0), None)
        if found and found.kind is not FactorKind.REST:
            yield _factor(found)
    a, b = (each and named(each.verdict.kind, each.verdict.part) for each in kernel.evidence)
    if a and b and a != b:
        yield Finding(Why.VERDICT, {"a": a, "b": b})


def _factor(factor: Factor) -> Finding:
    assert factor.a is not None and factor.b is not None
    values: dict[str, Value] = {"a": factor.a, "b": factor.b, "us": factor.us}
    if factor.kind is FactorKind.INSTRUCTIONS:
        kind = FactorChange.MORE_INSTRUCTIONS if factor.us > 0 else FactorChange.FEWER_INSTRUCTIONS
        return Finding(kind, {**values, "pct": 100 * abs(factor.b / factor.a - 1)})
    return Finding(FactorChange(factor.kind), {**values, "reason": factor.reason})


def program_change(of: ProgramComparison) -> Finding:
    """How the time of the GPUs changed."""
    window = of.window
    values: dict[str, Value] = {
        "a_ms": window.a_us / 1e3, "b_ms": window.b_us / 1e3, "ms": window.us / 1e3, "pct": 100 * of.share,
        "gpus": len(of.ranks),
    }  # fmt: skip
    if of.work == 1.0:
        same = not window.us and not any(each.us for each in of.kernels)
        return Finding(ProgramChange.SAME_NUMBERS if same else ProgramChange.WINDOW, values)
    kind = ProgramChange.MORE_WORK if of.work > 1 else ProgramChange.LESS_WORK
    return Finding(kind, {**values, "work_pct": 100 * abs(of.work - 1)})


def program_warnings(of: ProgramComparison) -> Iterator[Finding]:
    """What makes it doubtful."""
    if of.common < LITTLE_IN_COMMON:
        yield Finding(ComparisonWarning.OTHER_PROGRAM, {"share": of.common})


def program_reasons(of: ProgramComparison) -> tuple[Finding, ...]:
    """What accounts for most of the change, the most first: parts in its direction that are at least LEADS of it."""
    found = [*_program_kernels(of), Finding(ProgramWhy.COPIES, {"ms": of.parts[PartKind.COPIES].us / 1e3})]
    if of.waits:
        found.append(Finding(ProgramWhy.WAITING, {"ms": of.waits.us / 1e3}))
    idle = of.parts[PartKind.IDLE].us
    causes: dict[Cause, float] = defaultdict(float)
    for each in of.idle:
        causes[each.cause] += each.time.us
    if causes:
        cause = max(causes, key=lambda each: causes[each] * math.copysign(1.0, idle))
        found.append(Finding(ProgramWhy.IDLE, {"ms": idle / 1e3, "cause": cause, "cause_ms": causes[cause] / 1e3}))
    total = of.window.us / 1e3
    leading = [each for each in found if (ms := _ms(each)) * total > 0 and abs(ms) >= LEADS * abs(total)]
    return tuple(sorted(leading, key=lambda each: -abs(_ms(each))))


def _ms(of: Finding) -> float:
    ms = of.values["ms"]
    assert isinstance(ms, float)
    return ms


def _program_kernels(of: ProgramComparison) -> Iterator[Finding]:
    kinds = {Match.NEW: ProgramWhy.NEW_KERNEL, Match.GONE: ProgramWhy.GONE_KERNEL}
    for each in of.kernels:
        # Waiting for other ranks is no kernel's own.
        if not (of.waits and COLLECTIVE.search(each.shown.kernel)):
            values: dict[str, Value] = {"kernel": short_kernel(each.shown.kernel), "ms": each.us / 1e3}
            yield Finding(kinds.get(each.match, ProgramWhy.KERNEL), values)


def outcome(found: RunComparison) -> Outcome:
    """What can be said of side B against side A."""
    return Outcome.SAME if found.same_run else Outcome.CANNOT_TELL


def sure(found: RunComparison) -> Finding:
    """How sure the differences are."""
    if found.same_run:
        return Finding(Sure.SAME_RUN)
    boards = any(each.of is Of.BOARD for each in found.conditions)
    kind = Sure.ONE_PROCESS_TWO_BOARDS if boards else Sure.ONE_PROCESS
    return Finding(kind, {"processes_pct": PROCESSES_DRIFT.value, "boards_pct": BOARDS_DIFFER.value})
