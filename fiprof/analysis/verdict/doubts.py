"""How sure a verdict is: what speaks against it, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fiprof.analysis.check_rules import Check, CheckName
from fiprof.analysis.thresholds import BUSY, CLOSE, NOISE, SATURATED, SHORT
from fiprof.analysis.verdict.model import Confidence, Doubt, Kind, Part, Verdict
from fiprof.model.finding import Finding
from fiprof.model.quantities import DURATION, STALL_SHARE
from fiprof.model.run import Launch

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
        why.append(Finding(Doubt.UNKNOWN))
    margin = found.margin_points
    if margin is not None and 0 <= margin < CLOSE.value and found.runner_up is not None:
        close = Doubt.NOISE if margin < NOISE.value else Doubt.CLOSE
        why.append(Finding(close, {"margin_points": margin, "runner_up": found.runner_up.finding}))
    decided = found.evidence[0] if found.evidence else None
    if found.kind in (Kind.COMPUTE, Kind.MEMORY) and decided and BUSY.value <= decided.value < SATURATED.value:
        why.append(Finding(Doubt.NOT_SATURATED, {"part": found.part, "use": decided.number}))
    duration = launch.traced(DURATION)
    if duration is not None and duration.value < SHORT.value and not of_host:
        why.append(Finding(Doubt.SHORT, {"duration": duration}))
    if found.missing and not of_host:
        why.append(Finding(Doubt.MISSING, {"columns": found.missing}))
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
