"""What is expected of each kernel family (a TOML file, see docs/packs.md), compared with what was measured."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from statistics import median_low
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from fiprof.analysis import alternatives, checks
from fiprof.analysis.frames import Row, columns
from fiprof.analysis.roofline import mma_remark
from fiprof.analysis.stalls import REASONS
from fiprof.analysis.verdict.steps import Step, measured
from fiprof.errors import FiprofError
from fiprof.model import packs
from fiprof.model.finding import Finding, finding
from fiprof.model.json_file import in_words
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import DRAM_GB_PER_S, DRAM_ROOF, DRAM_SHARE
from fiprof.model.run import Launch, Run
from fiprof.model.selection import EVERYTHING, Selection, sums_by_key
from fiprof.model.work import TENSOR_OPS, counted_works, dominant_tensor_kind, peak_of, work_share

TOLERANCE_POINTS = 5.0  # of a share that is expected as one number; the published ranges are as wide, 10 points
STALL_MARGIN_POINTS = 1.0  # tolerance of a range of stall shares: recorded runs of the same kernel differ by as much
MODEL_DIFFERS = 0.10
"""Relative difference between the bytes that are needed and those that DRAM moved, from which on a remark says so."""
EXAMPLE = "docs/packs.md describes such files"
Percent = Annotated[float, Meta(ge=0, le=100)]
Positive = Annotated[float, Meta(gt=0, le=1e15)]
Name = Annotated[str, Meta(min_length=1)]


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Where figures come from."""

    title: Name
    gpu: Name  # on which they were measured
    compute_capability: Name  # of that GPU, e.g. ``8.0``
    reference: str = ""
    dram_tb_per_s: Positive | None = None  # DRAM's roof on that GPU in TB/s


class Roof(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of a roof (percent) that a good kernel reaches, by the size of the work."""

    kind: Literal["tensor", "dram"]
    shares: Annotated[dict[Positive, Percent], Meta(min_length=1)]


class Bandwidth(Struct, frozen=True, forbid_unknown_fields=True):
    """The DRAM bandwidth that a good kernel reaches on the source's GPU."""

    least_tb_per_s: Annotated[float, Meta(ge=0)]


class Figure(NamedTuple):
    """A number that is expected of a family."""

    kind: Literal["stall", "tensor", "dram", "bandwidth"]
    quantity: str  # a stall reason, or the key of a quantity
    what: str  # the quantity in words, with ``{work}`` for the kind of operations
    unit: str = "%"
    low: float = 0.0
    high: float | None = None


class KernelFamily(Struct, frozen=True, forbid_unknown_fields=True):
    """Kernels with the same expectations."""

    name: Name
    workloads: Annotated[tuple[str, ...], Meta(min_length=1)]
    params: dict[str, bool | int | float | str] = {}  # parameters that the figures are for
    size: str = ""  # the parameter that the roof's shares depend on; empty for none
    stalls: dict[str, tuple[Percent, Percent]] = {}  # reason -> lowest and highest share of the warps' time (percent)
    roof: Roof | None = None
    bandwidth: Bandwidth | None = None

    def __post_init__(self) -> None:
        for reason, (low, high) in self.stalls.items():
            if reason not in REASONS:
                raise ValueError(f"unknown stall reason {reason!r}; known are {', '.join(REASONS)}")
            if low > high:
                raise ValueError(f"stalls.{reason} = [{low:g}, {high:g}] begins above its end")
        if self.roof and len(self.roof.shares) > 1 and not self.size:
            raise ValueError('[family.roof] has several sizes: write size = "batch", say')

    def figures(self) -> Iterator[Figure]:
        """What the family states, each figure by itself."""
        for reason, (low, high) in self.stalls.items():
            yield Figure("stall", reason, reason, low=low, high=high)
        if self.roof is not None and self.roof.kind == "tensor":
            yield Figure("tensor", work_share("tensor").key, "share of the {work} roof")
        elif self.roof is not None:
            yield Figure("dram", DRAM_SHARE.key, "share of the DRAM roof")
        if self.bandwidth is not None:
            least = self.bandwidth.least_tb_per_s
            yield Figure("bandwidth", DRAM_GB_PER_S.key, "DRAM bandwidth", unit="TB/s", low=least)


class Expectations(Struct, frozen=True, forbid_unknown_fields=True):
    source: Source
    family: Annotated[tuple[KernelFamily, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        names = [name for family in self.family for name in family.workloads]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two families claim {', '.join(sorted(twice))}")


def read_expectations(path: Path) -> Expectations:
    """The expectations of a user's file. Raises FiprofError, naming the place in the file that is wrong."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Expectations, strict=False)
    except OSError as error:
        raise FiprofError(f"{path} cannot be read: {error.strerror}", "--expectations takes a TOML file") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise FiprofError(f"{path}: {in_words(str(error))}", EXAMPLE) from error


def combined(own: Expectations | None = None) -> Iterator[tuple[Source, KernelFamily]]:
    """A user's families, then those of packs for the other workloads. Raises FiprofError for a wrong pack."""
    names: set[str] = set()
    files = [own] if own else []
    for pack, data in packs.parts("expectations").items():
        try:
            files.append(msgspec.convert(data, Expectations, strict=False))
        except msgspec.ValidationError as error:
            raise FiprofError(f"the pack {pack}: {in_words(str(error))}", EXAMPLE) from error
    for each in files:
        for family in each.family:
            if left := tuple(name for name in family.workloads if name not in names):
                yield each.source, msgspec.structs.replace(family, workloads=left)
        names |= {name for family in each.family for name in family.workloads}


def check_workloads(expectations: Expectations, workloads: Collection[str]) -> None:
    """Raise FiprofError for a family of an unknown workload: a typing error would go unnoticed."""
    for family in expectations.family:
        for name in set(family.workloads) - {*workloads}:
            close = get_close_matches(name, workloads, 1)
            remedy = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(workloads))}"
            raise FiprofError(f"the family {family.name} is for the workload {name!r}, which is not known", remedy)


COLUMNS = columns("expected")
EMPTY: Mapping[str, Any] = {**{column.key: None for column in COLUMNS}, "steps": ()}
"""An empty row of COLUMNS; those of comparisons also have ``what``, ``kind`` and ``limits`` (what is expected)."""


class CaseExpected(NamedTuple):
    """A case compared with its expectations."""

    at: Launch  # that represents it: of its longest kernel, the launch of median duration
    rows: tuple[Row, ...]
    notes: tuple[Finding, ...]
    """Each value that is not as expected, its remarks, and the largest stalls of which nothing is expected."""
    warnings: tuple[Finding, ...]  # checks that failed on this launch


class Expected(NamedTuple):
    """A run compared with its expectations."""

    cases: tuple[CaseExpected, ...]  # those with figures for this compute capability and shape
    not_compared: tuple[Row, ...]
    """Figures for another GPU, shape or size, with ``what``, ``figure``, ``params`` and ``why``."""
    faster: Mapping[str, tuple[str, Step]]  # case id -> its label and the step, where the run has a faster alternative
    summary: tuple[Finding, ...]
    sources: tuple[Source, ...]
    warnings: tuple[Finding, ...]  # about the run

    @property
    def rows(self) -> list[Row]:
        """All as rows of COLUMNS: the faster alternatives, the comparisons, and the figures that are not compared."""
        faster = [
            {**EMPTY, "case": case, "label": label, "steps": (step.fields(),)}
            for case, (label, step) in self.faster.items()
        ]
        return [*faster, *(row for case in self.cases for row in case.rows), *self.not_compared]


def expected(
    run: Run, *, families: Iterable[tuple[Source, KernelFamily]] | None = None, wanted: Selection = EVERYTHING
) -> Expected:
    """The run's cases compared with the expectations of their families, as far as these are for the run's compute
    capability and the case's parameters and size.

    families: by default those of the installed packs. wanted: only cases of these launches.
    Raises FiprofError where the run has no launches under ncu, or no wanted case has expectations.
    """
    run.require_launches("counters to compare")
    by_workload = {name: each for each in (families or combined()) for name in each[1].workloads}
    failed = checks.failed(run)
    failed_by_launch = checks.by_launch(failed)
    gpu, capability = (str(run.environment("gpu", key) or "") for key in ("name", "compute_capability"))
    wanted_cases = {each.case for each in run.selected(wanted)}
    cases = [case for case in run.cases if case.id in wanted_cases]
    compared: list[CaseExpected] = []
    sources: dict[Source, None] = {}
    others: dict[tuple[str, str], tuple[Source, KernelFamily, Figure, dict[str, list[str]]]] = {}
    """Family and quantity -> a figure that was not compared: with its reasons, and for each the cases' labels."""
    for case in cases:
        if case.workload not in by_workload:
            continue
        source, family = by_workload[case.workload]
        at = _representative(run.launches_of[case.id])
        mix = {each.reason: 100 * each.share for each in run.stall_reasons.get(at.launch, ()) if each.share is not None}
        of = {"case": at.case, "label": at.label, "family": family.name, "launch": at.launch, "kernel": at.kernel}
        rows = []
        for figure in family.figures():
            if why := _why_not_compared(source, family, figure, case, capability):
                other = others.setdefault((family.name, figure.quantity), (source, family, figure, defaultdict(list)))
                other[3][why].append(run.labels(case.id))
                continue
            if figure.kind == "stall":
                # Where stalls were collected, a reason without a share (this GPU does not have it) did not occur.
                row = _row(figure, figure.low, figure.high, mix.get(figure.quantity, 0.0) if mix else None)
            elif figure.kind == "bandwidth":
                row = _bandwidth(source, family, figure, case, at)
            else:
                row = _roof_share(family, figure, case, at)
            rows.append({**row, **of, "source": source.title, "source_gpu": source.gpu})
        if rows:
            sources[source] = None
            notes = tuple(_notes(rows, family, mix))
            compared.append(CaseExpected(at, tuple(rows), notes, failed_by_launch.get(at.launch, ())))
    without = tuple(run.labels(case.id) for case in cases if case.workload not in by_workload)
    if not compared and not others:
        remedy = f"expectations are there for the workloads {', '.join(by_workload)}; --expectations FILE brings others"
        raise FiprofError(f"nothing is expected of {', '.join(without) or 'launches that belong to no case'}", remedy)
    if compared:
        outcomes = [row["outcome"] for each in compared for row in each.rows if row["measured"] is not None]
        words, as_expected = "{held} of {measured} expectations hold.", outcomes.count("as expected")
        summary = [finding("held", words, held=as_expected, measured=len(outcomes))]
    else:
        words = "Nothing can be compared: no expectation is of {gpu} (compute capability {compute_capability}) and of "
        words += "these shapes. Those below are of others."
        summary = [finding("nothing_alike", words, gpu=gpu or "?", compute_capability=capability or "?")]
    if without:
        summary.append(finding("without", "Nothing is expected of {cases}.", cases=without))
    faster = alternatives.of_run(run)
    return Expected(
        cases=tuple(compared),
        not_compared=tuple(_not_compared(*each) for each in others.values()),
        faster={case.id: (run.labels(case.id), measured(faster[case.id])) for case in cases if case.id in faster},
        summary=tuple(summary),
        sources=tuple({**sources, **{source: None for source, *_ in others.values()}}),
        warnings=(*run.status_warning(), *checks.of_run(failed)),
    )


def _why_not_compared(source: Source, family: KernelFamily, figure: Figure, case: CaseEntry, capability: str) -> str:
    """Why a figure is not compared with a case: gpu, shape or size differs; empty where it is compared."""
    if source.compute_capability != capability:
        return "gpu"
    if any(case.params.get(name, value) != value for name, value in family.params.items()):
        return "shape"
    sizes = family.roof.shares if family.roof and family.size and figure.kind in ("tensor", "dram") else None
    return "size" if sizes is not None and case.params.get(family.size) not in sizes else ""


def _not_compared(source: Source, family: KernelFamily, figure: Figure, why: Mapping[str, Sequence[str]]) -> Row:
    """The row of a figure that is not compared. why: what differs -> labels of the cases."""
    if family.roof and figure.kind in ("tensor", "dram"):
        shares = dict(sorted(family.roof.shares.items()))
        kind, at = ("by_size", " at {name} {sizes:g}") if family.size else ("number", "")
        sizes, of = tuple(shares), tuple(shares.values())
        stated = finding(kind, "{shares:.3g} {unit}" + at, shares=of, sizes=sizes, name=family.size, unit=figure.unit)
    else:
        kind, bound_words = ("at_least", "≥ {low:.3g} {unit}")
        if figure.high is not None:
            kind, bound_words = "range", "{low:.3g}–{high:.3g} {unit}"
        stated = finding(kind, bound_words, low=figure.low, high=figure.high, unit=figure.unit)
    params = tuple(finding("parameter", "{name} {value}", name=of, value=value) for of, value in family.params.items())
    words = {"gpu": "another GPU", "shape": "another shape than {cases}", "size": "other sizes than {cases}"}
    reasons = tuple(finding(each, words[each], cases=tuple(labels)) for each, labels in why.items())
    return {
        **EMPTY, "family": family.name, "quantity": figure.quantity, "unit": figure.unit, "outcome": "not compared",
        "remarks": (stated, *params, *reasons), "source": source.title, "source_gpu": source.gpu,
        "what": figure.what.format(work="tensor"), "figure": stated, "params": params, "why": reasons,
    }  # fmt: skip


def _row(
    figure: Figure,
    low: float,
    high: float | None,
    measured: float | None,
    *,
    stated: float | None = None,
    work: str = "",
    remarks: tuple[Finding, ...] = (),
) -> Row:
    """The row of a comparison. stated: the figure that the limits are around. work: kind of operations of a roof."""
    margin = STALL_MARGIN_POINTS if figure.kind == "stall" else 0.0
    limits = {"stall": "{low:.3g}–{high:.3g}", "bandwidth": "≥ {low:.2f}"}
    outcome, deviation = "as expected", None if measured is None else 0.0
    if measured is None:
        outcome = "not measured"
    elif measured < low - margin:
        outcome, deviation = "below", measured - low
    elif high is not None and measured > high + margin:
        outcome, deviation = "above", measured - high
    return {
        **EMPTY, "quantity": figure.quantity, "work": work or None, "unit": figure.unit, "expected_low": low,
        "expected_high": high, "expected_stated": stated, "measured": measured, "outcome": outcome,
        "deviation": deviation, "remarks": remarks, "what": figure.what.format(work=work), "kind": figure.kind,
        "limits": limits.get(figure.kind, "{stated:.3g} ± {tolerance:g}").format(
            low=low, high=high, stated=stated, tolerance=TOLERANCE_POINTS
        ),
    }  # fmt: skip


def deviation_text(row: Mapping[str, Any]) -> str:
    """``4.3 points below``; the outcome alone where there is no deviation."""
    if not row["deviation"]:
        return str(row["outcome"])
    size = f"{abs(row['deviation']):.2f} TB/s" if row["unit"] == "TB/s" else f"{abs(row['deviation']):.1f} points"
    return f"{size} {row['outcome']}"


def _notes(rows: Sequence[Row], family: KernelFamily, mix: Mapping[str, float]) -> Iterator[Finding]:
    """The notes of a case. mix: stall reason -> share of the warps' time, percent."""
    deviating = [row for row in rows if row["outcome"] != "as expected"]
    for row in deviating:
        unit = {"stall": "% of the warps' time", "bandwidth": " TB/s"}.get(row["kind"], "%")
        values = {"what": row["what"], "limits": row["limits"], "unit": unit}
        if row["measured"] is None:
            yield finding("not_measured", "{what} was not measured; {limits}{unit} is expected.", **values)
            continue
        number = f"{row['measured']:{'.2f' if row['unit'] == 'TB/s' else '.1f'}}"
        words = "{what} is {measured}{unit}, {off} what is expected ({limits})."
        yield finding(row["kind"], words, measured=number, off=deviation_text(row), **values)
        yield from row["remarks"]
    others = sorted(((share, reason) for reason, share in mix.items() if reason not in family.stalls), reverse=True)
    if others and any(row["kind"] == "stall" for row in deviating):
        stalls = tuple(f"{reason} {share:.1f}%" for share, reason in others[:3])
        yield finding("other_stalls", "Stalls of which nothing is expected: {stalls}.", stalls=stalls)


def _representative(launches: Sequence[Launch]) -> Launch:
    """The launch that represents a case: of the kernel with most time in total, the launch of median duration."""
    total = sums_by_key((each.kernel, each.duration_us or 0.0) for each in launches)
    longest = max(total, key=total.__getitem__)
    same = [each for each in launches if each.kernel == longest]
    middle = median_low([each.duration_us or 0.0 for each in same])
    return next(each for each in same if (each.duration_us or 0.0) == middle)


def _roof_share(family: KernelFamily, figure: Figure, case: CaseEntry, at: Launch) -> Row:
    """The row of a share of the tensor or DRAM roof."""
    assert family.roof is not None
    size = case.params.get(family.size)
    stated = next(share for at_size, share in sorted(family.roof.shares.items()) if not family.size or at_size == size)
    work, share = "", DRAM_SHARE.of(at)
    remarks: tuple[Finding, ...] = ()
    if figure.kind == "tensor":
        tensor = dominant_tensor_kind(at)
        work = next((each for each in counted_works(at) if tensor and each.split()[1:2] == [tensor]), "tensor")
        share = work_share(work).of(at) if tensor is not None else None
        if tensor is not None and work.endswith(" mma") and (slower := mma_remark(at, work)):
            remarks = (slower,)
        elif tensor is None and TENSOR_OPS.value(at) == 0:
            share, remarks = 0.0, (finding("no_tensor_operations", "It did no tensor operations."),)
    low, high = max(0.0, stated - TOLERANCE_POINTS), min(100.0, stated + TOLERANCE_POINTS)
    percent = None if share is None else 100 * share
    return _row(figure, low, high, percent, stated=stated, work=work, remarks=remarks)


def _bandwidth(source: Source, family: KernelFamily, figure: Figure, case: CaseEntry, at: Launch) -> Row:
    """The row of a bandwidth: as the same share of this GPU's DRAM roof, where both roofs are known."""
    least, roof, moved = figure.low, DRAM_ROOF.of(at), DRAM_GB_PER_S.of(at)
    measured = None if moved is None else moved / 1000
    target, remarks = least, []
    if roof and source.dram_tb_per_s:
        target = least / source.dram_tb_per_s * roof / 1000
        words = "{stated_tb_per_s:g} of the {source_roof_tb_per_s:g} TB/s of {source_gpu} is the same share as "
        words += "{tb_per_s:.2f} of this GPU's {roof_tb_per_s:.2f}."
        stated: Row = {"stated_tb_per_s": least, "source_roof_tb_per_s": source.dram_tb_per_s, "source_gpu": source.gpu}
        remarks.append(finding("same_share", words, **stated, tb_per_s=target, roof_tb_per_s=roof / 1000))
        if measured is not None and least <= measured < target:
            words = "The stated {stated_tb_per_s:g} TB/s is reached."
            remarks.append(finding("stated_is_reached", words, stated_tb_per_s=least))
    needed = case.bytes_read + case.bytes_written
    kind = dominant_tensor_kind(at) if family.roof is not None and family.roof.kind == "tensor" else None
    peak = peak_of(f"tensor {kind}").value(at) if kind else None
    if peak and case.flops and (at_roof := needed / case.flops * peak / 1e12) < target:
        words = "The least bytes of this case make {tb_per_s:.2f} TB/s even at the tensor roof: the two expectations "
        words += "exclude each other."
        remarks.append(finding("excludes_roof", words, tb_per_s=at_roof))
    by_model = needed / at.duration_us / 1e6 if needed and at.duration_us else 0.0
    if measured is not None and by_model > measured * (1 + MODEL_DIFFERS):
        words = "The bytes that the algorithm needs make {tb_per_s:.2f} TB/s: L2 held some of them."
        remarks.append(finding("l2_held", words, tb_per_s=by_model))
    return _row(figure, target, None, measured, stated=least, remarks=tuple(remarks))
