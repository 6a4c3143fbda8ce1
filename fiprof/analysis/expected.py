"""What is expected of each kernel family beside what was measured, each deviation in words."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Literal

from fiprof.analysis import checks
from fiprof.analysis.expectations import ExpectationSource, Family, Roof, combined
from fiprof.errors import FiprofError
from fiprof.model.expressions import Row, number
from fiprof.model.finding import Finding
from fiprof.model.labels import names_kernel_or_case
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import DRAM_PEAK, TENSOR_OPS, TENSOR_PEAK, dominant_tensor_kind, tensor_peak, wgmma_peak
from fiprof.model.run import Run
from fiprof.reports.headings import heading
from fiprof.reports.view import Column, Document, View, view_of
from fiprof.text import join_words

TOLERANCE_POINTS = 5.0
"""About a share that is expected as one number; the published ranges are as wide, 10 points."""

STALL_MARGIN_POINTS = 1.0
"""About a range of stall shares: recorded runs of the same kernel differ by as much."""

FAR_SIZE = 4.0
"""Ratio of the work to that of the nearest figure from where on the two say little about each other."""

MODEL_DIFFERS = 0.10
"""Between the bytes that DRAM moved and those that the algorithm needs, from where on it is said."""

Outcome = Literal["as expected", "below", "above", "not measured"]


@dataclass(frozen=True)
class ExpectedValue:
    """One expectation beside what was measured."""

    quantity: str
    """A stall reason, ``share of the tensor roof``, ``share of the DRAM roof`` or ``DRAM bandwidth``."""
    unit: Literal["%", "TB/s"]
    """Of the numbers here; stalls are shares of the warps' time."""
    low: float
    """The least that is expected; of a bandwidth on this GPU: the same share of its roof."""
    high: float | None
    """The most; None where more is only better."""
    measured: float | None
    """None where it was not collected."""
    stated: float | None = None
    """The number in the file, where low and high are made from it."""
    remark: str = ""
    """What one must know to compare the two."""

    @property
    def is_stall(self) -> bool:
        return self.unit == "%" and self.stated is None

    @property
    def outcome(self) -> Outcome:
        if self.measured is None:
            return "not measured"
        margin = STALL_MARGIN_POINTS if self.is_stall else 0.0
        if self.measured < self.low - margin:
            return "below"
        return "above" if self.high is not None and self.measured > self.high + margin else "as expected"

    @property
    def deviation(self) -> float | None:
        """Measured minus the nearest end of what is expected, in the unit; 0 where it is as expected."""
        if self.measured is None:
            return None
        if self.outcome == "below":
            return self.measured - self.low
        return self.measured - self.high if self.outcome == "above" and self.high is not None else 0.0

    @property
    def expected(self) -> str:
        """As people read it, without the unit."""
        spec = ".2f" if self.unit == "TB/s" else ".3g"
        if self.high is None:
            return f"≥ {self.low:{spec}}"
        if self.stated is not None:
            return f"{self.stated:{spec}} ± {TOLERANCE_POINTS:g}"
        return f"{self.low:{spec}}–{self.high:{spec}}"

    @property
    def words(self) -> str:
        """The outcome with its size: ``29.3 points below``."""
        if self.deviation is None or self.outcome in ("as expected", "not measured"):
            return self.outcome
        size = f"{abs(self.deviation):.2f} TB/s" if self.unit == "TB/s" else f"{abs(self.deviation):.1f} points"
        return f"{size} {self.outcome}"


@dataclass(frozen=True)
class CaseComparison:
    """What is expected of a case, beside the launch that stands for it: of its longest kernel, the median one."""

    case: str
    label: str
    """The case in short."""
    family: str
    source: ExpectationSource
    launch: int
    kernel: str
    iteration: int | None
    repeated: bool
    """Whether its case launched this kernel in several iterations."""
    duration_us: float | None
    comparisons: tuple[ExpectedValue, ...]
    differs: tuple[str, ...]
    """Parameters for which the figures are not."""
    instead: tuple[tuple[str, float], ...]
    """The largest stall reasons of which nothing is expected, with their % of the warps' time."""
    warnings: tuple[Finding | str, ...] = ()
    """Checks that failed on this launch."""


@dataclass(frozen=True)
class Expected:
    """A run beside what was expected of it."""

    run: str
    gpu: str
    compute_capability: str
    cases: tuple[CaseComparison, ...]
    without: tuple[str, ...]
    """Labels of the cases of which nothing is expected."""
    warnings: tuple[Finding | str, ...] = ()
    """About the run."""

    @property
    def comparisons(self) -> tuple[ExpectedValue, ...]:
        return tuple(item for case in self.cases for item in case.comparisons)


def expected(run: Run, *, families: Sequence[Family] | None = None, kernel: str = "") -> Expected:
    """The run's cases beside the expectations of their families.

    families: by default those that fiprof brings along. kernel: only cases with this in their name or in that of a
    kernel of theirs; upper and lower case are the same.
    Raises FiprofError where the run has no launches under ncu, or nothing is expected of any case that is left.
    """
    labels = run.labels
    known = combined() if families is None else tuple(families)
    if not run.launches:
        raise FiprofError(
            f"{run.manifest.name} has no counters to hold against: {run.why_missing('ncu')}",
            "fiprof collect --tool nsys,ncu collects them; fiprof show shows what this run has",
        )
    by_workload = {workload: family for family in known for workload in family.workloads}
    mixes = _mixes(run)
    failed = checks.failed(run)
    doubts = checks.by_launch(failed)
    found: list[CaseComparison] = []
    without: list[str] = []
    for case in run.manifest.cases:
        rows = run.launches_of(case.id)
        if not rows or not any(names_kernel_or_case(row, labels(case.id), kernel) for row in rows):
            continue
        family = by_workload.get(case.workload)
        if family is None:
            without.append(labels(case.id))
            continue
        row, repeated = _standing(rows)
        mix = mixes.get(row["launch"], {})
        found.append(
            CaseComparison(
                case=case.id,
                label=labels(case.id),
                family=family.name,
                source=family.source,
                launch=row["launch"],
                kernel=row["kernel"] or "",
                iteration=row["iteration"],
                repeated=repeated,
                duration_us=None if row["duration_ns"] is None else row["duration_ns"] / 1e3,
                comparisons=tuple(_comparisons(family, case, row, mix)),
                differs=tuple(_differs(family, case)),
                instead=_instead(family, mix),
                warnings=doubts.get(row["launch"], ()),
            )
        )
    if not found:
        outside = "launches that belong to no case"
        raise FiprofError(
            f"nothing is expected of {', '.join(without) or (f'a case with {kernel!r}' if kernel else outside)}",
            f"expectations are there for the workloads {', '.join(by_workload)}; --expectations FILE brings others",
        )
    return Expected(
        run=run.manifest.name,
        gpu=str(run.environment("gpu", "name") or "an unknown GPU"),
        compute_capability=str(run.environment("gpu", "compute_capability") or ""),
        cases=tuple(found),
        without=tuple(without),
        warnings=(*run.status_warning(), *checks.of_run(failed)),
    )


def _standing(rows: Sequence[Row]) -> tuple[Row, bool]:
    """The launch that stands for a case: of the kernel that took most time in all, that of median duration."""
    total: dict[str, float] = defaultdict(float)
    for row in rows:
        total[row["kernel"]] += row["duration_ns"] or 0.0
    longest = max(total, key=total.__getitem__)
    same = [row for row in rows if row["kernel"] == longest]
    middle = median_low([row["duration_ns"] or 0.0 for row in same])
    return next(row for row in same if (row["duration_ns"] or 0.0) == middle), len(same) > 1


def _mixes(run: Run) -> dict[int, dict[str, float]]:
    """Launch -> reason -> its % of the warps' time, by ncu's counters."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for row in run.rows("stalls", ("launch", "reason", "share")):
        if row["share"] is not None:
            found[row["launch"]][row["reason"]] = 100 * row["share"]
    return dict(found)


def _comparisons(family: Family, case: CaseEntry, row: Row, mix: dict[str, float]) -> Iterable[ExpectedValue]:
    for reason, (low, high) in family.stalls_pct.items():
        # A mix that was collected has every reason; one that this GPU does not know did not occur.
        yield ExpectedValue(reason, "%", low, high, mix.get(reason, 0.0) if mix else None)
    if family.roof is not None:
        yield _of_roof(family.roof, family.size, case, row)
    if family.least_tb_per_s is not None:
        yield _of_bandwidth(family, family.least_tb_per_s, case, row)


def _of_roof(roof: Roof, size: str, case: CaseEntry, row: Row) -> ExpectedValue:
    nearest, remark = _nearest(roof, size, case)
    stated = roof.shares_pct[nearest]
    if roof.kind == "tensor":
        name, measured, about = _tensor_share(row)
        remark = "; ".join(filter(None, (remark, about)))
    else:
        name, measured = "DRAM", _percent(row["dram_bytes_per_second"], DRAM_PEAK.value(row))
    return ExpectedValue(
        f"share of the {name} roof",
        "%",
        max(0.0, stated - TOLERANCE_POINTS),
        min(100.0, stated + TOLERANCE_POINTS),
        measured,
        stated,
        remark,
    )


def _nearest(roof: Roof, size: str, case: CaseEntry) -> tuple[float, str]:
    """The size in the file that is nearest by ratio, and a remark where it is another one."""
    value = case.params.get(size)
    sizes = list(roof.shares_pct)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return sizes[0], f"the case has no {size}: held against the figure for {sizes[0]:g}" if size else ""
    nearest = min(sizes, key=lambda each: abs(math.log(each / value)))
    ratio = max(nearest / value, value / nearest)
    far = f", {ratio:.0f} times away: they say little about each other" if ratio > FAR_SIZE else ""
    return nearest, "" if nearest == value else f"{size} is {value:g}, the nearest figure is for {nearest:g}{far}"


def _tensor_share(row: Row) -> tuple[str, float | None, str]:
    """The roof's name, its share in % and, where slower instructions were used than the GPU has, the share of those."""
    kind = dominant_tensor_kind(row)
    seconds = None if row["duration_ns"] is None else row["duration_ns"] / 1e9
    ops = TENSOR_OPS.value(row)
    if kind is None or ops is None or not seconds:
        return "tensor", 0.0 if ops == 0 else None, "it did no tensor operations" if ops == 0 else ""
    peak = tensor_peak(kind).value(row)
    fastest = wgmma_peak(kind).value(row)
    share = _percent(ops / seconds, peak)
    if peak and fastest and peak < 0.99 * fastest:
        return (
            f"tensor {kind} mma",
            share,
            f"the roof is that of its warp instructions (mma), {peak / 1e12:.0f} TFLOP/s; of the "
            f"{fastest / 1e12:.0f} of the GPU's fastest it has {_percent(ops / seconds, fastest):.1f}%",
        )
    return f"tensor {kind}", share, ""


def _of_bandwidth(family: Family, least: float, case: CaseEntry, row: Row) -> ExpectedValue:
    """A target in TB/s as the same share of this GPU's roof, where both roofs are known."""
    peak, moved = DRAM_PEAK.value(row), number(row, "dram_bytes_per_second")
    target, remarks, origin = least, [], family.source
    if peak and origin.dram_tb_per_s:
        target = least / origin.dram_tb_per_s * peak / 1e12
        remarks.append(
            f"{least:g} of the {origin.dram_tb_per_s:g} TB/s of {origin.gpu} are as much as {target:.2f} of this GPU's "
            f"{peak / 1e12:.2f}"
        )
        if moved is not None and least <= moved / 1e12 < target:
            remarks.append(f"the {least:g} themselves are reached")
    needed = case.bytes_read + case.bytes_written
    most = TENSOR_PEAK.value(row) if family.roof is not None and family.roof.kind == "tensor" else None
    if most and case.flops and (at_roof := needed / case.flops * most / 1e12) < target:
        remarks.append(
            f"the least bytes of this case are {at_roof:.2f} even at the tensor roof: the two expectations exclude "
            "each other"
        )
    if moved is not None and needed and row["duration_ns"]:
        by_model = needed / row["duration_ns"] * 1e9
        if by_model > moved * (1 + MODEL_DIFFERS):
            remarks.append(f"the bytes that the algorithm needs make {by_model / 1e12:.2f}, L2 held some of them")
    tera = None if moved is None else moved / 1e12
    return ExpectedValue("DRAM bandwidth", "TB/s", target, None, tera, least, "; ".join(remarks))


def _differs(family: Family, case: CaseEntry) -> Iterable[str]:
    for key, value in family.params.items():
        if key in case.params and case.params[key] != value:
            yield f"the figures are for {key}={value}, the case has {case.params[key]}"


def _instead(family: Family, mix: dict[str, float]) -> tuple[tuple[str, float], ...]:
    others = sorted(((share, reason) for reason, share in mix.items() if reason not in family.stalls_pct), reverse=True)
    return tuple((reason, share) for share, reason in others[:3])


def _percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole


# In words


def findings(case: CaseComparison) -> tuple[str, ...]:
    """Every deviation of a case as a sentence."""
    said = []
    for item in case.comparisons:
        unit = "% of the warps' time" if item.is_stall else "%" if item.unit == "%" else f" {item.unit}"
        if item.outcome == "not measured":
            said.append(f"{item.quantity} was not measured; {item.expected}{unit} is expected.")
        elif item.outcome != "as expected":
            number = f"{item.measured:.2f}" if item.unit == "TB/s" else f"{item.measured:.1f}"
            text = f"{item.quantity} is {number}{unit}, {item.words} what is expected ({item.expected})"
            said.append(f"{text}: {item.remark}." if item.remark else f"{text}.")
    if case.instead and any(item.is_stall and item.outcome != "as expected" for item in case.comparisons):
        shares = [f"{reason} {share:.1f}%" for reason, share in case.instead]
        said.append(f"What is not expected takes the warps' time too: {join_words(shares)}.")
    return tuple(said)


def summary(report: Expected) -> tuple[str, ...]:
    """How much of what was expected holds, and whether the expectations are of this GPU."""
    measured = [item for item in report.comparisons if item.measured is not None]
    held = [item for item in measured if item.outcome == "as expected"]
    texts = [f"{len(held)} of {len(measured)} expectations hold."]
    for origin in dict.fromkeys(case.source for case in report.cases):
        if origin.compute_capability == report.compute_capability:
            continue
        bandwidth = "is taken as the same share of the roof" if origin.dram_tb_per_s else "is taken as it is"
        texts.append(
            f"They are figures of {origin.gpu} (compute capability {origin.compute_capability}), and this run is of "
            f"{report.gpu} ({report.compute_capability or 'unknown'}). Shares of a roof compare as they are; a "
            f"bandwidth {bandwidth}; stall mixes belong to other instructions. A deviation says how this GPU and its "
            "kernels differ, not that a kernel is bad."
        )
    if report.without:
        texts.append(f"Nothing is expected of {join_words(report.without)}.")
    return tuple(texts)


# As tables


@dataclass(frozen=True)
class ExpectedRow:
    """A comparison as JSON and CSV have it."""

    case: str
    family: str
    launch: int
    kernel: str
    quantity: str
    unit: str
    expected_low: float
    expected_high: float | None
    stated: float | None
    measured: float | None
    outcome: str
    deviation: float | None
    """It and the eight before: see :class:`ExpectedValue`."""
    remark: str
    differs: tuple[str, ...]
    source: str
    source_gpu: str
    """Where the expectation comes from."""


_SHOWN = (
    Column("quantity", "what", least=26),
    Column("unit", "in"),
    Column("expected", "expected", least=8),
    Column("measured", "measured", spec=".2f"),
    Column("words", "outcome"),
)


def document(report: Expected) -> Document:
    """A table a case, the deviations in words below it; for programs a row a comparison."""
    rows = [
        ExpectedRow(
            case.case, case.family, case.launch, case.kernel,
            item.quantity, item.unit, item.low, item.high, item.stated, item.measured, item.outcome, item.deviation,
            item.remark, case.differs, case.source.title, case.source.gpu,
        )
        for case in report.cases
        for item in case.comparisons
    ]  # fmt: skip
    head = View((), (), title="Expected against measured", summary=summary(report))
    return Document(
        data=view_of(tuple(Column(field.name) for field in dataclasses.fields(ExpectedRow)), rows),
        shown=(head, *map(_case_view, report.cases)),
        warnings=report.warnings,
        notes=(
            "Stalls: % of the warps' time, by ncu's counters; a range holds within a point, a share expected as one "
            f"number within {TOLERANCE_POINTS:g}. Measured is the launch named above each table: of the case's longest "
            "kernel, the one of median duration.",
            *(f"Expectations: {origin}." for origin in dict.fromkeys(_cited(case.source) for case in report.cases)),
        ),
    )


def _cited(origin: ExpectationSource) -> str:
    return f"{origin.title}; {origin.reference}" if origin.reference else origin.title


def _case_view(case: CaseComparison) -> View:
    return view_of(
        _SHOWN,
        case.comparisons,
        title=heading(case),
        warnings=(*case.warnings, *case.differs),
        notes=findings(case),
    )
