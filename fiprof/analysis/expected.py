"""What is expected of each kernel family beside what was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median_low

from fiprof.analysis import alternatives, checks
from fiprof.analysis.expectations import (
    Expectation,
    ExpectationSource,
    Family,
    Figure,
    Figured,
    RoofKind,
    Unlike,
    combined,
    figures,
    unit_of,
    unlike,
)
from fiprof.analysis.roofline import mma_remark
from fiprof.analysis.verdict.measured import step
from fiprof.analysis.verdict.step import Step
from fiprof.errors import FiprofError
from fiprof.model.finding import Finding, Value
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import DRAM_GB_PER_S, DRAM_ROOF, DRAM_SHARE
from fiprof.model.run import Launch, Run
from fiprof.model.selection import EVERYTHING, Selection
from fiprof.model.work import TENSOR_OPS, TENSOR_PEAK, counted_works, dominant_tensor_kind, work_share

TOLERANCE_POINTS = 5.0
"""About a share that is expected as one number; the published ranges are as wide, 10 points."""

STALL_MARGIN_POINTS = 1.0
"""About a range of stall shares: recorded runs of the same kernel differ by as much."""

MODEL_DIFFERS = 0.10
"""Between the bytes that DRAM moved and those that the algorithm needs, from where on it is said."""


class ExpectedOutcome(StrEnum):
    """How the measured compares."""

    AS_EXPECTED = "as expected"
    BELOW = "below"
    ABOVE = "above"
    NOT_MEASURED = "not measured"
    NOT_COMPARED = "not compared"


class ExpectedRemark(StrEnum):
    """What one must know to compare the two."""

    NO_TENSOR_OPERATIONS = "no_tensor_operations"
    SAME_SHARE = "same_share"
    STATED_IS_REACHED = "stated_is_reached"
    EXCLUDES_ROOF = "excludes_roof"
    L2_HELD = "l2_held"


class ExpectedNote(StrEnum):
    """What there is to say of a run beside what was expected of it."""

    HELD = "held"
    NOTHING_ALIKE = "nothing_alike"
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
        return unit_of(self.kind)

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
class NotCompared:
    """A figure said of another GPU, shape or size than some cases have; each figure once."""

    family: str
    source: ExpectationSource
    params: tuple[Finding, ...]
    """What it is for."""
    kind: Expectation
    quantity: str
    figure: Finding
    """A range, or a number by size."""
    why: tuple[Finding, ...]
    """Each an Unlike, with the labels of the cases."""

    @property
    def unit(self) -> str:
        return unit_of(self.kind)


@dataclass(frozen=True)
class Faster:
    """A case whose problem the run solved faster, and the step that follows."""

    case: str
    """Case id."""
    label: str
    step: Step


@dataclass(frozen=True)
class Expected:
    """A run beside what was expected of it."""

    gpu: str
    """Empty where it is not known."""
    compute_capability: str
    cases: tuple[CaseExpected, ...]
    """Those of which figures of this compute capability and shape are known."""
    not_compared: tuple[NotCompared, ...]
    without: tuple[str, ...]
    """Labels of the cases of which nothing is expected."""
    faster: tuple[Faster, ...] = ()
    warnings: tuple[Finding, ...] = ()
    """About the run."""

    @property
    def sources(self) -> tuple[ExpectationSource, ...]:
        """Where the figures come from, each once."""
        of_cases, of_others = (case.source for case in self.cases), (item.source for item in self.not_compared)
        return tuple(dict.fromkeys((*of_cases, *of_others)))

    @property
    def summary(self) -> tuple[Finding, ...]:
        """How much of what was expected holds."""
        found: list[Finding] = []
        measured = [item for case in self.cases for item in case.values if item.measured is not None]
        held = sum(item.outcome == ExpectedOutcome.AS_EXPECTED for item in measured)
        if self.cases:
            found.append(Finding(ExpectedNote.HELD, {"held": held, "measured": len(measured)}))
        else:
            gpu: Mapping[str, Value] = {"gpu": self.gpu or "?", "compute_capability": self.compute_capability or "?"}
            found.append(Finding(ExpectedNote.NOTHING_ALIKE, gpu))
        if self.without:
            found.append(Finding(ExpectedNote.WITHOUT, {"cases": self.without}))
        return tuple(found)


def expected(run: Run, *, families: Sequence[Family] | None = None, wanted: Selection = EVERYTHING) -> Expected:
    """The run's cases beside the expectations of their families, like with like: figures of the run's compute
    capability, for the case's parameters and size.

    families: by default those that the packs bring along. wanted: only cases of these launches.
    Raises FiprofError where the run has no launches under ncu, or nothing is expected of any case that is left.
    """
    known = combined() if families is None else tuple(families)
    run.require_launches("counters to hold against")
    by_workload = {workload: family for family in known for workload in family.workloads}
    failed = checks.failed(run)
    doubts = checks.by_launch(failed)
    capability = str(run.environment("gpu", "compute_capability") or "")
    cases = {each.case for each in run.selected(wanted)}
    kept = [case for case in run.cases if case.id in cases]
    found: list[CaseExpected] = []
    others: dict[tuple[str, Figure], dict[Unlike, list[str]]] = defaultdict(lambda: defaultdict(list))
    stated = {family.name: tuple(figures(family)) for family in known}
    for case in kept:
        family = by_workload.get(case.workload)
        if family is None:
            continue
        at = _standing(run.launches_of(case.id))
        mix = {each.reason: 100 * each.share for each in run.stall_reasons.get(at.launch, ()) if each.share is not None}
        values = []
        for figure in stated[family.name]:
            why = unlike(family, figure, case.params, capability)
            if why is None:
                values.append(_compared(family, figure, case, at, mix))
            else:
                others[family.name, figure][why].append(run.labels(case.id))
        if values:
            warned = doubts.get(at.launch, ())
            found.append(CaseExpected(at, family.name, family.source, tuple(values), _instead(family, mix), warned))
    without = tuple(run.labels(case.id) for case in kept if case.workload not in by_workload)
    if not found and not others:
        raise FiprofError(
            f"nothing is expected of {', '.join(without) or 'launches that belong to no case'}",
            f"expectations are there for the workloads {', '.join(by_workload)}; --expectations FILE brings others",
        )
    measured = alternatives.of_run(run)
    return Expected(
        gpu=str(run.environment("gpu", "name") or ""),
        compute_capability=capability,
        cases=tuple(found),
        not_compared=tuple(
            _not_compared(next(family for family in known if family.name == name), figure, why)
            for (name, figure), why in others.items()
        ),
        without=without,
        faster=tuple(
            Faster(case.id, run.labels(case.id), step(measured[case.id])) for case in kept if case.id in measured
        ),
        warnings=(*run.status_warning(), *checks.of_run(failed)),
    )


def _not_compared(family: Family, figure: Figure, why: Mapping[Unlike, Sequence[str]]) -> NotCompared:
    if figure.by_size:
        values: Mapping[str, Value] = {
            "shares": tuple(figure.by_size.values()),
            "sizes": tuple(figure.by_size),
            "name": family.size,
            "unit": unit_of(figure.kind),
        }
        told = Finding(Figured.BY_SIZE if family.size else Figured.NUMBER, values)
    else:
        kind = Figured.AT_LEAST if figure.high is None else Figured.RANGE
        told = Finding(kind, {"low": figure.low, "high": figure.high, "unit": unit_of(figure.kind)})
    params = tuple(Finding(Figured.PARAMETER, {"name": name, "value": value}) for name, value in family.params.items())
    reasons = tuple(Finding(each, {"cases": tuple(labels)}) for each, labels in why.items())
    return NotCompared(family.name, family.source, params, figure.kind, figure.quantity, told, reasons)


def _compared(family: Family, figure: Figure, case: CaseEntry, at: Launch, mix: Mapping[str, float]) -> ExpectedValue:
    if figure.kind is Expectation.STALL:
        # A mix that was collected has every reason; one that this GPU does not know did not occur.
        share = mix.get(figure.quantity, 0.0) if mix else None
        return ExpectedValue(figure.kind, figure.quantity, figure.low, figure.high, share)
    if figure.kind is Expectation.BANDWIDTH:
        return _of_bandwidth(family, figure.low, case, at)
    size = case.params.get(family.size)
    return _of_roof(
        figure, next(of for at_size, of in figure.by_size.items() if not family.size or at_size == size), at
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


def _of_roof(figure: Figure, stated: float, at: Launch) -> ExpectedValue:
    quantity, work = DRAM_SHARE, ""
    remarks: tuple[Finding, ...] = ()
    share = quantity.of(at)
    if figure.kind is Expectation.TENSOR_ROOF:
        tensor = dominant_tensor_kind(at)
        work = next((each for each in counted_works(at) if tensor and each.split()[1:2] == [tensor]), "tensor")
        quantity = work_share(work)
        if tensor is not None:
            share = quantity.of(at)
            if work.endswith(" mma") and (slower := mma_remark(at, work)):
                remarks += (slower,)
        elif TENSOR_OPS.value(at) == 0:
            share, remarks = 0.0, (Finding(ExpectedRemark.NO_TENSOR_OPERATIONS),)
        else:
            share = None
    return ExpectedValue(
        figure.kind,
        quantity.key,
        max(0.0, stated - TOLERANCE_POINTS),
        min(100.0, stated + TOLERANCE_POINTS),
        None if share is None else 100 * share,
        stated,
        work,
        remarks,
    )


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


def _instead(family: Family, mix: dict[str, float]) -> tuple[Finding, ...]:
    others = sorted(((share, reason) for reason, share in mix.items() if reason not in family.stalls_pct), reverse=True)
    return tuple(
        Finding(ExpectedNote.STALL_SHARE, {"reason": reason, "share_pct": share}) for share, reason in others[:3]
    )
