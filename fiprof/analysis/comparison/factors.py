"""Why a launch takes another time than its counterpart: an exact split of the difference into what its time is made of.

A launch's time is a product: instructions of a scheduler, times cycles between two of them, over the share of the
launch in which multiprocessors work, over the clock. The cycles between two instructions are the cycles that a warp
takes for one, a sum over stall reasons, over the warps of a scheduler. The difference of two products is split by the
logarithmic mean (LMDI-I; Ang, Energy Policy 33, 2005): the parts sum to the difference, whatever its size, and those of
B against A are those of A against B with the other sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fiprof.analysis.comparison.changes import Change
from fiprof.model.formula import Formula, number
from fiprof.model.quantities import DURATION
from fiprof.model.run import Launch, Run, StallReason
from fiprof.model.wording import Worded

SCHEDULERS = 4
"""Schedulers of a multiprocessor, since compute capability 7.0."""


class FactorKind(Worded):
    """What a launch's time is made of."""

    INSTRUCTIONS = "instructions", "instructions a scheduler"
    """More of them take more time."""
    STALL = "stall", "cycles an instruction: {reason} ({reason.short})"
    """Cycles that a warp spends in a stall reason for each instruction."""
    WARPS = "warps", "warps in flight a scheduler"
    """Warps that a scheduler has while it has any: the more, the more of their cycles overlap."""
    ACTIVE = "active", "share with a warp on the SM"
    """Share of the launch, 0 to 1, in which the average multiprocessor has a warp."""
    CLOCK = "clock", "SM clock, GHz"
    REST = "rest", "counters do not add up"
    """What the counters, each of another replay, do not add up to."""


_ISSUED = Formula("issue_active_pct / 100 * sm_active_cycles")
_INSTRUCTIONS = Formula(f"instructions / multiprocessors / {SCHEDULERS}")
_GHZ = Formula("cycles / duration_ns")


@dataclass(frozen=True)
class _Parts:
    """A launch's time as a product; cycles, warps and instructions are a scheduler's."""

    us: float
    instructions: float
    cycles: Mapping[str, float]
    """Stall reason -> cycles of a warp for each instruction."""
    warps: float
    active: float
    ghz: float

    @property
    def latency(self) -> float:
        return sum(self.cycles.values())

    @property
    def log_rest(self) -> float:
        """Logarithm of the time over the product."""
        return math.log(self.us * 1e3 * self.ghz * self.active * self.warps / self.instructions / self.latency)


def _parts(launch: Launch, reasons: Sequence[StallReason]) -> _Parts | None:
    """None where a counter that it needs was not collected, or a launch had no work."""
    us, ghz, instructions = DURATION.of(launch), _GHZ.value(launch), _INSTRUCTIONS.value(launch)
    active = Formula("sm_active_cycles / cycles").value(launch)
    warps = number(launch, "active_warps_per_scheduler")
    cycles = {each.reason: each.warps_per_issue for each in reasons if each.warps_per_issue}
    # Without the count: those that were issued, which replays of an instruction may make a few more.
    instructions = instructions or _ISSUED.value(launch)
    numbers = [each for each in (us, instructions, warps, active, ghz, *cycles.values()) if each is not None]
    if len(numbers) < 5 + max(len(cycles), 1) or not all(0 < each < math.inf for each in numbers):
        return None
    assert us and instructions and warps and active and ghz
    return _Parts(us, instructions, cycles, warps, active, ghz)


def factors(a: tuple[Run, Launch], b: tuple[Run, Launch]) -> list[Change]:
    """What makes launch b take another time than launch a, the most of it first; empty without the counters.

    The parts sum to the difference of their durations. Each is of a stall reason, or of the factor that is its detail.
    """
    before, after = (_parts(launch, run.stall_reasons.get(launch.launch, ())) for run, launch in (a, b))
    if before is None or after is None:
        return []
    time = log_mean(before.us, after.us)
    per_cycle = time / log_mean(before.latency, after.latency)

    def part(kind: FactorKind, x: float, y: float, *, divides: bool = True) -> Change:
        return Change("factor", kind, x, y, time * math.log(x / y if divides else y / x), by="ncu", detail=kind)

    rest_us = time * (after.log_rest - before.log_rest)
    found = [
        part(FactorKind.INSTRUCTIONS, before.instructions, after.instructions, divides=False),
        part(FactorKind.WARPS, before.warps, after.warps),
        part(FactorKind.ACTIVE, before.active, after.active),
        part(FactorKind.CLOCK, before.ghz, after.ghz),
        Change("factor", FactorKind.REST, accounts_us=rest_us, by="ncu", detail=FactorKind.REST),
    ]
    for reason in {**before.cycles, **after.cycles}:
        x, y = before.cycles.get(reason, 0.0), after.cycles.get(reason, 0.0)
        found.append(Change("factor", reason, x, y, per_cycle * (y - x), by="ncu", detail=FactorKind.STALL))
    return sorted(found, key=lambda each: (-abs(each.us), each.detail, each.item))


def log_mean(x: float, y: float) -> float:
    """The logarithmic mean of two positive numbers: (x - y) / ln(x / y), and x where they are equal."""
    # Near 1 the quotient loses its digits; there the arithmetic mean is as good (its error is of second order).
    return (x + y) / 2 if abs(x - y) <= 1e-6 * x else (x - y) / math.log(x / y)
