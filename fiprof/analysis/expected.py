"""What is expected of each kernel family beside what was measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median_low

from fiprof.analysis import checks
from fiprof.analysis.expectations import ExpectationSource, Family, Roof, RoofKind, combined
from fiprof.analysis.roofline import mma_remark
from fiprof.errors import FiprofError
from fiprof.model.finding import Finding, Value
from fiprof.model.labels import names_kernel_or_case
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import DRAM_GB_PER_S, DRAM_ROOF, DRAM_SHARE
from fiprof.model.run import Launch, Run
from fiprof.model.work import TENSOR_OPS, TENSOR_PEAK, counted_works, dominant_tensor_kind, work_share

TOLERANCE_POINTS = 5.0
"""About a share that is expected as one number; the published ranges are as wide, 10 points."""

STALL_MARGIN_POINTS = 1.0
"""About a range of stall shares: recorded runs of the same kernel differ by as much."""

FAR_SIZE = 4.0
"""Ratio of the work to that of the nearest figure from where on the two say little about each other."""

MODEL_DIFFERS = 0.10
"""Between the bytes that DRAM moved and those that the algorithm needs, from where on it is said."""


class Expectation(StrEnum):
    """What is expected."""

    STALL = "stall"
    """A stall reason's share of the warps' time."""
    TENSOR_ROOF = "tensor_roof"
    DRAM_ROOF = "dram_roof"
    """A share of these roofs."""
    BANDWIDTH = "bandwidth"
    """Of DRAM, at least."""


class ExpectedOutcome(StrEnum):
    """How the measured compares."""

    AS_EXPECTED = "as expected"
    BELOW = "below"
    ABOVE = "above"
    NOT_MEASURED = "not measured"


class ExpectedRemark(StrEnum):
    """What one must know to compare the two."""

    NO_SIZE = "no_size"
    OTHER_SIZE = "other_size"
    FAR_SIZE = "far_size"
    NO_TENSOR_OPERATIONS = "no_tensor_operations"
    SAME_SHARE = "same_share"
    STATED_IS_REACHED = "stated_is_reached"
    EXCLUDES_ROOF = "excludes_roof"
    L2_HELD = "l2_held"
    DIFFERS = "differs"


class ExpectedNote(StrEnum):
    """What there is to say of a run beside what was expected of it."""

    HELD = "held"
    OTHER_GPU = "other_gpu"
    OTHER_GPU_AS_IT_IS = "other_gpu_as_it_is"
    WITHOUT = "without"
    OTHER_STALLS = "other_stalls"
    STALL_SHARE = "stall_share"


@dataclass(frozen=True)
class ExpectedValue:
    """One expectation beside what was measured."""

    kind: Expectation
    quantity: str
    """A stall reason, or the key of a quantity."""
    low: float
    """The least that is expected; of a bandwidth on this GPU: the same share of its roof."""
    high: float | None
    """The most; None where more is only better."""
    measured: float | None
    """None where it was not collected."""
    stated: float | None = None
    """The number in the file, where low and high are made from it."""
    work: str = ""
    """Whose roof it is, e.g. ``tensor fp16``."""
    remarks: tuple[Finding, ...] = ()

    @property
    def unit(self) -> str:
        """Of the numbers here; stalls are shares of the warps' time."""
        return "TB/s" if self.kind == Expectation.BANDWIDTH else "%"

    @property
    def outcome(self) -> ExpectedOutcome:
        if self.measured is None:
            return ExpectedOutcome.NOT_MEASURED
        margin = STALL_MARGIN_POINTS if self.kind == Expectation.STALL else 0.0
        if self.measured < self.low - margin:
            return ExpectedOutcome.BELOW
        above = self.high is not None and self.measured > self.high + margin
        return ExpectedOutcome.ABOVE if above else ExpectedOutcome.AS_EXPECTED

    @property
    def deviation(self) -> float | None:
        """Measured minus the nearest end of what is expected, in the unit; 0 where it is as expected."""
        if self.measured is None:
            return None
        if self.outcome == ExpectedOutcome.BELOW:
            return self.measured - self.low
        return self.measured - self.high if self.outcome == ExpectedOutcome.ABOVE and self.high is not None else 0.0

    @property
    def finding(self) -> Finding:
        """The outcome with its numbers."""
        return Finding(
            self.kind,
            {
                "outcome": self.outcome,
                "quantity": self.quantity,
                "work": self.work,
                "low": self.low,
                "high": self.high,
                "value": self.measured,
                "stated": self.stated,
                "tolerance": TOLERANCE_POINTS,
                "off": None if self.deviation is None else abs(self.deviation),
            },
        )


@dataclass(frozen=True)
class CaseExpected:
    """What is expected of a case, beside the launch that stands for it: of its longest kernel, the median one."""

    at: Launch
    family: str
    source: ExpectationSource
    values: tuple[ExpectedValue, ...]
    differs: tuple[Finding, ...]
    """Parameters for which the figures are not."""
    instead: tuple[Finding, ...]
    """The largest stall reasons of which nothing is expected."""
    warnings: tuple[Finding, ...] = ()
    """Checks that failed on this launch."""

    @property
    def deviations(self) -> tuple[Finding, ...]:
        """Each value that is not as expected, with its remarks."""
        off = [item for item in self.values if item.outcome != ExpectedOutcome.AS_EXPECTED]
        found = [each for item in off for each in (item.finding, *(item.remarks if item.measured is not None else ()))]
        if self.instead and any(item.kind == Expectation.STALL for item in off):
            found.append(Finding(ExpectedNote.OTHER_STALLS, {"stalls": self.instead}))
        return tuple(found)


@dataclass(frozen=True)
class Expected:
    """A run beside what was expected of it."""

    gpu: str
    """Empty where it is not known."""
    compute_capability: str
    cases: tuple[CaseExpected, ...]
    without: tuple[str, ...]
    """Labels of the cases of which nothing is expected."""
    warnings: tuple[Finding, ...] = ()
    """About the run."""

    @property
    def summary(self) -> tuple[Finding, ...]:
        """How much of what was expected holds, and whether the expectations are of this GPU."""
        measured = [item for case in self.cases for item in case.values if item.measured is not None]
        held = sum(item.outcome == ExpectedOutcome.AS_EXPECTED for item in measured)
        found = [Finding(ExpectedNote.HELD, {"held": held, "measured": len(measured)})]
        for origin in dict.fromkeys(case.source for case in self.cases):
            if origin.compute_capability != self.compute_capability:
                kind = ExpectedNote.OTHER_GPU if origin.dram_tb_per_s else ExpectedNote.OTHER_GPU_AS_IT_IS
                values: Mapping[str, Value] = {
                    "source_gpu": origin.gpu,
                    "source_compute_capability": origin.compute_capability,
                    "gpu": self.gpu or "?",
                    "compute_capability": self.compute_capability or "?",
                }
                found.append(Finding(kind, values))
        if self.without:
            found.append(Finding(ExpectedNote.WITHOUT, {"cases": self.without}))
        return tuple(found)


def expected(run: Run, *, families: Sequence[Family] | None = None, kernel: str = "") -> Expected:
    """The run's cases beside the expectations of their families.

    families: by default those that the packs bring along. kernel: only cases with this in their name or in that of a
    kernel of theirs; upper and lower case are the same.
    Raises FiprofError where the run has no launches under ncu, or nothing is expected of any case that is left.
    """
    known = combined() if families is None else tuple(families)
    run.require_launches("counters to hold against")
    by_workload = {workload: family for family in known for workload in family.workloads}
    failed = checks.failed(run)
    doubts = checks.by_launch(failed)
    found: list[CaseExpected] = []
    without: list[str] = []
    for case in run.cases:
        launches = run.launches_of(case.id)
        if not any(names_kernel_or_case(each, each.label, kernel) for each in launches):
            continue
        family = by_workload.get(case.workload)
        if family is None:
            without.append(run.labels(case.id))
            continue
        at = _standing(launches)
        mix = {each.reason: 100 * each.share for each in run.stall_reasons.get(at.launch, ()) if each.share is not None}
        found.append(
            CaseExpected(
                at=at,
                family=family.name,
                source=family.source,
                values=tuple(_values(family, case, at, mix)),
                differs=tuple(_differs(family, case)),
                instead=_instead(family, mix),
                warnings=doubts.get(at.launch, ()),
            )
        )
    if not found:
        outside = "launches that belong to no case"
        raise FiprofError(
            f"nothing is expected of {', '.join(without) or (f'a case with {kernel!r}' if kernel else outside)}",
            f"expectations are there for the workloads {', '.join(by_workload)}; --expectations FILE brings others",
        )
    return Expected(
        gpu=str(run.environment("gpu", "name") or ""),
        compute_capability=str(run.environment("gpu", "compute_capability") or ""),
        cases=tuple(found),
        without=tuple(without),
        warnings=(*run.status_warning(), *checks.of_run(failed)),
    )


def _standing(launches: Sequence[Launch]) -> Launch:
    """The launch that stands for a case: of the kernel that took most time in all, that of median duration."""
    total: dict[str, float] = defaultdict(float)
    for each in launches:
        total[each.kernel] += each.duration_us or 0.0
    longest = max(total, key=total.__getitem__)
    same = [each for each in launches if each.kernel == longest]
    middle = median_low([each.duration_us or 0.0 for each in same])
    return next(each for each in same if (each.duration_us or 0.0) == middle)


def _values(family: Family, case: CaseEntry, at: Launch, mix: dict[str, float]) -> Iterable[ExpectedValue]:
    for reason, (low, high) in family.stalls_pct.items():
        # A mix that was collected has every reason; one that this GPU does not know did not occur.
        yield ExpectedValue(Expectation.STALL, reason, low, high, mix.get(reason, 0.0) if mix else None)
    if family.roof is not None:
        yield _of_roof(family.roof, family.size, case, at)
    if family.least_tb_per_s is not None:
        yield _of_bandwidth(family, family.least_tb_per_s, case, at)


def _of_roof(roof: Roof, size: str, case: CaseEntry, at: Launch) -> ExpectedValue:
    nearest, remarks = _nearest(roof, size, case)
    stated = roof.shares_pct[nearest]
    kind, quantity, work = Expectation.DRAM_ROOF, DRAM_SHARE, ""
    share = quantity.of(at)
    if roof.kind == RoofKind.TENSOR:
        tensor = dominant_tensor_kind(at)
        work = next((each for each in counted_works(at) if tensor and each.split()[1:2] == [tensor]), "tensor")
        kind, quantity = Expectation.TENSOR_ROOF, work_share(work)
        if tensor is not None:
            share = quantity.of(at)
            if work.endswith(" mma") and (slower := mma_remark(at, work)):
                remarks += (slower,)
        elif TENSOR_OPS.value(at) == 0:
            share, remarks = 0.0, (*remarks, Finding(ExpectedRemark.NO_TENSOR_OPERATIONS))
        else:
            share = None
    return ExpectedValue(
        kind,
        quantity.key,
        max(0.0, stated - TOLERANCE_POINTS),
        min(100.0, stated + TOLERANCE_POINTS),
        None if share is None else 100 * share,
        stated,
        work,
        remarks,
    )


def _nearest(roof: Roof, size: str, case: CaseEntry) -> tuple[float, tuple[Finding, ...]]:
    """The size in the file that is nearest by ratio, and a remark where it is another one."""
    value = case.params.get(size)
    sizes = list(roof.shares_pct)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        none = Finding(ExpectedRemark.NO_SIZE, {"size": size, "nearest": sizes[0]})
        return sizes[0], (none,) if size else ()
    nearest = min(sizes, key=lambda each: abs(math.log(each / value)))
    if nearest == value:
        return nearest, ()
    ratio = max(nearest / value, value / nearest)
    kind = ExpectedRemark.FAR_SIZE if ratio > FAR_SIZE else ExpectedRemark.OTHER_SIZE
    return nearest, (Finding(kind, {"size": size, "value": value, "nearest": nearest, "ratio": ratio}),)


def _of_bandwidth(family: Family, least: float, case: CaseEntry, at: Launch) -> ExpectedValue:
    """A target in TB/s as the same share of this GPU's roof, where both roofs are known."""
    roof, moved, origin = DRAM_ROOF.of(at), DRAM_GB_PER_S.of(at), family.source
    tera = None if moved is None else moved / 1000
    target, remarks = least, []
    if roof and origin.dram_tb_per_s:
        target = least / origin.dram_tb_per_s * roof / 1000
        own: Mapping[str, Value] = {
            "stated_tb_per_s": least,
            "source_roof_tb_per_s": origin.dram_tb_per_s,
            "source_gpu": origin.gpu,
            "tb_per_s": target,
            "roof_tb_per_s": roof / 1000,
        }
        remarks.append(Finding(ExpectedRemark.SAME_SHARE, own))
        if tera is not None and least <= tera < target:
            remarks.append(Finding(ExpectedRemark.STATED_IS_REACHED, {"stated_tb_per_s": least}))
    needed = case.bytes_read + case.bytes_written
    most = TENSOR_PEAK.value(at) if family.roof is not None and family.roof.kind == RoofKind.TENSOR else None
    if most and case.flops and (at_roof := needed / case.flops * most / 1e12) < target:
        remarks.append(Finding(ExpectedRemark.EXCLUDES_ROOF, {"tb_per_s": at_roof}))
    if tera is not None and needed and at.duration_us:
        by_model = needed / at.duration_us / 1e6
        if by_model > tera * (1 + MODEL_DIFFERS):
            remarks.append(Finding(ExpectedRemark.L2_HELD, {"tb_per_s": by_model}))
    return ExpectedValue(Expectation.BANDWIDTH, DRAM_GB_PER_S.key, target, None, tera, least, remarks=tuple(remarks))


def _differs(family: Family, case: CaseEntry) -> Iterable[Finding]:
    for key, value in family.params.items():
        if key in case.params and case.params[key] != value:
            yield Finding(ExpectedRemark.DIFFERS, {"name": key, "expected": value, "value": case.params[key]})


def _instead(family: Family, mix: dict[str, float]) -> tuple[Finding, ...]:
    others = sorted(((share, reason) for reason, share in mix.items() if reason not in family.stalls_pct), reverse=True)
    return tuple(
        Finding(ExpectedNote.STALL_SHARE, {"reason": reason, "share_pct": share}) for share, reason in others[:3]
    )
