"""The least that an iteration of a case takes on its GPU, and how much of DRAM's peak its kernel uses.

ncu counts one launch with cold caches, and what a launch writes may still lie in L2 when it ends: an RMSNorm of
33.6 MB wrote 13.5 of them to DRAM. In a loop all of it crosses. So DRAM's use is the larger of two: what ncu counted,
and the bytes that the workload has to move over the time that its loop takes.

The second holds only where these bytes have to cross DRAM in each iteration: not where all of them fit into L2, where
a loop finds them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fiprof.model.case_quantities import (
    MODEL_BYTES,
    MODEL_FLOPS,
    NSYS,
    PLAIN,
    calculated,
    case_quantity,
    longest_launch,
    peak,
)
from fiprof.model.formula import Formula, number
from fiprof.model.provenance import TracedNumber
from fiprof.model.quantities import Key, metric
from fiprof.model.run import Launch, Run
from fiprof.model.work import fastest_peak, main_work

MAIN_SHARE = 0.9
"""Of its iteration's kernel time under ncu, from which a kernel is the case's main one: the least bytes of the case are
then taken for its own, over the time of the whole iteration."""


class DramBasis(StrEnum):
    """What a DRAM use was made from."""

    NCU = "ncu"
    """Bytes counted in one launch with cold caches."""
    FLOOR = "floor"
    """Least bytes over the time of an iteration in a loop."""


@dataclass(frozen=True)
class DramUse:
    """How much of DRAM's peak a launch uses, percent: two lower bounds, of which the larger counts."""

    by_ncu: TracedNumber | None
    by_floor: TracedNumber | None
    """None where the bytes may stay in L2, and for a kernel that is not the case's main one."""

    @property
    def basis(self) -> DramBasis:
        """Which of the two is larger."""
        if self.by_floor is None or (self.by_ncu is not None and self.by_ncu.value >= self.by_floor.value):
            return DramBasis.NCU
        return DramBasis.FLOOR

    @property
    def number(self) -> TracedNumber:
        """The larger. Raises AssertionError without either, which :func:`dram_use` never gives."""
        found = self.by_ncu if self.basis is DramBasis.NCU else self.by_floor
        assert found is not None
        return found

    @property
    def value(self) -> float:
        """Percent of the peak."""
        return self.number.value

    @property
    def quantity(self) -> Key:
        """What the larger number is."""
        return metric("dram_throughput_pct") if self.basis is DramBasis.NCU else DRAM_FLOOR


@dataclass(frozen=True)
class Floor:
    """The least time of an iteration of a case, µs, by its cost model and the peaks of the launch that takes most of
    it, at the clocks measured during that."""

    warm: TracedNumber
    """What it takes in a loop: the kernels' time under nsys, else the plain one."""
    of_bytes: TracedNumber | None
    """Least bytes over DRAM's peak; None where they may stay in L2, or something is not known."""
    of_work: TracedNumber | None
    """Least operations over the peak of the kind of work that the case's longest kernel does; None likewise."""
    work: str | None
    """That kind: ``tensor fp16``, ``fp32``, …; of tensor kinds the fastest dense instruction's peak is meant."""

    def saving_pct(self, *, other_work: bool = False) -> TracedNumber | None:
        """The most that anything can save of the warm time, percent.

        other_work: for steps that move the operations to another kind (tensor cores, a smaller type): the floor of the
        operations does not hold for them. None without a floor.
        """
        floors = [each for each in (self.of_bytes, None if other_work else self.of_work) if each is not None]
        least = max(floors, key=lambda each: each.value, default=None)
        return calculated("100 * (1 - a / b)", least, self.warm, spec=".0f", unit="%")


def dram_use(run: Run, launch: Launch) -> DramUse | None:
    """How much of DRAM's peak a launch uses; None where neither way tells."""
    by_ncu = launch.traced(metric("dram_throughput_pct"))
    by_floor = DRAM_FLOOR.traced(run, launch.case) if is_main(run, launch) else None
    return None if by_ncu is None and by_floor is None else DramUse(by_ncu, by_floor)


def floor(run: Run, case: str) -> Floor | None:
    """The least time of an iteration of a case; None where no loop was timed or nothing of it is known."""
    longest = longest_launch(run, case)
    # Kernels shorter than 30 µs are timed by nsys to 0.1 µs, where two CUDA events by themselves are some 2 µs.
    warm = NSYS.traced(run, case) or PLAIN.traced(run, case)
    if warm is None or warm.value <= 0 or longest is None:
        return None

    def least_time(amount: TracedNumber | None, most: Formula) -> TracedNumber | None:
        """An amount at a peak, µs; None where the case was faster, for then it needed less."""
        time = calculated("1e6 * a / b", amount, peak(longest, most), spec=",.2f", unit=" µs")
        return time if time is not None and 0 < time.value <= warm.value else None

    work, moved, cache = main_work(longest), MODEL_BYTES.traced(run, case), number(longest, "l2_bytes")
    crosses = moved is not None and cache is not None and moved.value > cache
    of_bytes = least_time(moved, Formula("dram_peak")) if crosses else None
    of_work = None if work is None else least_time(MODEL_FLOPS.traced(run, case), fastest_peak(work))
    return None if of_bytes is None and of_work is None else Floor(warm, of_bytes, of_work, work)


DRAM_FLOOR = case_quantity(
    "case_dram_floor_pct",
    lambda run, case: calculated("100 * a / b", found.of_bytes, found.warm) if (found := floor(run, case)) else None,
)
LARGEST_SAVING = case_quantity(
    "case_largest_saving_pct", lambda run, case: found.saving_pct() if (found := floor(run, case)) else None
)


def is_main(run: Run, launch: Launch) -> bool:
    """Whether the launch takes MAIN_SHARE of its iteration's time under ncu or more."""
    count, together_us = run.once(iterations)[launch.case, launch.iteration]
    traced = run.trace.cases.get(launch.case or "")
    if launch.duration_us is None or (traced is not None and traced.executions > count):
        return False  # ncu was asked for some of the kernels only
    return launch.duration_us >= MAIN_SHARE * together_us


def iterations(run: Run) -> dict[tuple[str | None, int | None], tuple[int, float]]:
    """Case and iteration -> how many launches ncu has of it, and their time, µs."""
    found: dict[tuple[str | None, int | None], tuple[int, float]] = {}
    for launch in run.launches:
        count, together_us = found.get((launch.case, launch.iteration), (0, 0.0))
        found[launch.case, launch.iteration] = (count + 1, together_us + (launch.duration_us or 0.0))
    return found
