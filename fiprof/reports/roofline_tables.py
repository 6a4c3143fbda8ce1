"""``fiprof roofline`` as tables, with what they say in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fiprof.analysis.roofline import (
    LEVELS,
    MOST_REMARKS,
    NOT_ENOUGH,
    Basis,
    CaseRoofline,
    LaunchRoofline,
    MemoryRoof,
    Rooflines,
    Work,
    compute_roofs,
    memory_roofs,
)
from fiprof.model.expressions import ratio
from fiprof.reports.headings import label_cells, numbered
from fiprof.reports.view import Column, Document, View, view_of


@dataclass(frozen=True)
class LaunchRow:
    """A launch as JSON and CSV have it, flat; people see some of it."""

    launch: int
    case: str | None
    label: str
    iteration: int | None
    kernel: str
    duration_us: float | None
    basis: Basis
    work: str | None
    """Kind of the main work; it and the next eight: see :class:`LaunchRoofline`."""
    ops: float | None
    tflops: float | None
    compute_roof_tflops: float | None
    attainable_tflops: float | None
    share: float | None
    roof: str | None
    model_flop_per_byte: float | None
    remark: str
    dram_flop_per_byte: float | None
    """Of the main work; it and the next three for each memory: see :class:`MemoryRoof`."""
    dram_ridge_flop_per_byte: float | None
    dram_gb_per_s: float | None
    dram_roof_gb_per_s: float | None
    l2_flop_per_byte: float | None
    l2_ridge_flop_per_byte: float | None
    l2_gb_per_s: float | None
    l2_roof_gb_per_s: float | None
    l1_flop_per_byte: float | None
    l1_ridge_flop_per_byte: float | None
    l1_gb_per_s: float | None
    l1_roof_gb_per_s: float | None
    tensor_tflops: float | None
    """Of the tensor kind with most operations; it and the rest: each kind of work and its roof."""
    tensor_roof_tflops: float | None
    fp32_tflops: float | None
    fp32_roof_tflops: float | None
    fp16_tflops: float | None
    fp16_roof_tflops: float | None
    fp64_tflops: float | None
    fp64_roof_tflops: float | None
    case_kernels: int | None
    """Kernels of an iteration of its case; it and the rest: see :class:`CaseRoofline`."""
    case_model_tflops: float | None
    case_model_attainable_tflops: float | None
    case_model_share: float | None
    case_model_roof: str | None

    @property
    def shown_roof(self) -> str:
        """The roof as people read it."""
        if self.roof is None:
            return NOT_ENOUGH
        return f"{self.roof} (model)" if self.basis == "model" else self.roof


_SHOWN = (
    Column("launch", "#"),
    Column("label", "case"),
    Column("kernel", "kernel"),
    Column("dram_flop_per_byte", "DRAM", "FLOP/B", ",.2f"),
    Column("l2_flop_per_byte", "L2", "FLOP/B", ",.2f"),
    Column("model_flop_per_byte", "model", "FLOP/B", ",.2f"),
    Column("tflops", "achieved", "TFLOP/s", ".2f"),
    Column("attainable_tflops", "at roof", "TFLOP/s", ".2f"),
    Column("share", "share", "", ".1%"),
    Column("shown_roof", "roof"),
)

_MODEL = (
    Column("label", "case"),
    Column("kernels", "kernels"),
    Column("duration_us", "time", "µs", ".2f"),
    Column("gflop", "work", "GFLOP", ",.2f"),
    Column("moved_mb", "bytes", "MB", ",.1f"),
    Column("flop_per_byte", "model", "FLOP/B", ",.2f"),
    Column("tflops", "achieved", "TFLOP/s", ".2f"),
    Column("attainable_tflops", "at roof", "TFLOP/s", ".2f"),
    Column("share", "share", "", ".1%"),
    Column("roof", "roof"),
)

_NOTES = (
    "DRAM, L2: operations of the launch's main work (that which uses most of its roof) over the bytes that the memory "
    "moved, as ncu counted both (L1: --format json); model: by the workload's cost model, for its case as a whole. "
    "roof: the lowest of the compute roof and of bandwidth x intensity of DRAM, L2 and L1; at roof: what it allows; "
    "share: achieved of that. Loads by TMA bypass what L1 counts.",
)


def document(rooflines: Rooflines) -> Document:
    """The roofs in words, a table of the launches, and one of the cases by their cost model; one row a launch for
    programs."""
    rows = [_row(item, rooflines.cases) for item in rooflines.launches]
    shown = [
        view_of(
            _columns(rows),
            rows,
            title="Launches on the roofline, as counted",
            summary=_roof_sentences(rooflines),
            notes=_remarks(rooflines.launches),
        )
    ]
    if rooflines.cases:
        shown.append(
            View(
                _fitted(_MODEL, rows),
                tuple(_model_cells(case) for case in rooflines.cases),
                title="An iteration of each case by its cost model: the least work and bytes, over DRAM",
            )
        )
    columns = tuple(Column(field.name) for field in dataclasses.fields(LaunchRow))
    return Document(data=view_of(columns, rows), shown=tuple(shown), warnings=rooflines.warnings, notes=_NOTES)


def _row(item: LaunchRoofline, cases: Sequence[CaseRoofline]) -> LaunchRow:
    case = next((case for case in cases if case.case == item.case), None)
    dram, l2, l1 = (_memory_cells(item.memory(level)) for level in LEVELS)
    tensor = max((w for w in item.works if w.kind.startswith("tensor")), key=lambda w: w.ops, default=None)
    fp32, fp16, fp64 = (next((w for w in item.works if w.kind == kind), None) for kind in ("fp32", "fp16", "fp64"))
    return LaunchRow(
        item.launch, item.case, item.label, item.iteration, item.kernel, item.duration_us,
        item.basis,
        item.work.kind if item.work else None,
        item.work.ops if item.work else None,
        *_work_cells(item.work),
        _tera(item.attainable_ops_per_second), item.share, item.roof,
        item.model_flop_per_byte, item.remark,
        *dram, *l2, *l1,
        *_work_cells(tensor), *_work_cells(fp32), *_work_cells(fp16), *_work_cells(fp64),
        case.kernels if case else None,
        _tera(case.ops_per_second) if case else None,
        _tera(case.attainable_ops_per_second) if case else None,
        case.share if case else None,
        case.roof if case else None,
    )  # fmt: skip


def _work_cells(work: Work | None) -> tuple[float | None, float | None]:
    """TFLOP/s and their roof."""
    return (None, None) if work is None else (_tera(work.ops_per_second), _tera(work.peak_ops_per_second))


def _memory_cells(memory: MemoryRoof | None) -> tuple[float | None, float | None, float | None, float | None]:
    """Intensity, ridge point, GB/s and their roof."""
    if memory is None:
        return None, None, None, None
    return (
        memory.flop_per_byte,
        memory.ridge_flop_per_byte,
        memory.bytes_per_second / 1e9,
        memory.peak_bytes_per_second / 1e9,
    )


def _model_cells(case: CaseRoofline) -> tuple[str | int | float | None, ...]:
    return (
        case.label, case.kernels, case.duration_us, case.flops / 1e9, case.moved_bytes / 1e6, case.flop_per_byte,
        _tera(case.ops_per_second), _tera(case.attainable_ops_per_second), case.share,
        case.roof or NOT_ENOUGH,
    )  # fmt: skip


def _fitted(columns: Sequence[Column], rows: Sequence[LaunchRow]) -> tuple[Column, ...]:
    """The columns, the cases' labels and the roofs as wide as they are: kernels' names are shortened before them."""
    least = {
        "label": label_cells(row.label for row in rows),
        "shown_roof": max((len(row.shown_roof) for row in rows), default=0),
    }
    return tuple(dataclasses.replace(column, least=least.get(column.key, column.least)) for column in columns)


def _columns(rows: Sequence[LaunchRow]) -> tuple[Column, ...]:
    """What people see: the intensity at L1 only where L1 binds, the iteration only where there are several."""
    columns = list(_SHOWN)
    if any(row.roof == "L1" for row in rows):
        columns.insert(5, Column("l1_flop_per_byte", "L1", "FLOP/B", ",.2f"))
    if len({row.iteration for row in rows}) > 1:
        columns.insert(3, Column("iteration", "iter"))
    return _fitted(columns, rows)


def _remarks(launches: Sequence[LaunchRoofline]) -> tuple[str, ...]:
    """Each remark once, with the launches that it is about; of many the first."""
    about: dict[str, list[int]] = {}
    for item in launches:
        if item.remark:
            about.setdefault(item.remark, []).append(item.launch)
    sentences = [f"{numbered(numbers)}: {remark}" for remark, numbers in about.items()]
    if len(sentences) > MOST_REMARKS:
        sentences[MOST_REMARKS:] = [f"{len(sentences) - MOST_REMARKS} more remarks: --format json has them"]
    return tuple(sentences)


def _roof_sentences(rooflines: Rooflines) -> tuple[str, ...]:
    """The roofs at the measured clocks, and their ridge points."""
    memories, works = memory_roofs(rooflines.launches), compute_roofs(rooflines.launches)
    sentences = []
    parts = [f"{level} {_span(span, '.2f')} TB/s" for level, span in memories.items()]
    parts += [f"{kind} {_span(span, '.1f')} TFLOP/s" for kind, span in works.items()]
    if parts:
        sentences.append(f"Roofs at the clocks measured: {', '.join(parts)}.")
    points = []
    for kind in works:
        ridges = [
            f"{level} {_span((min(found), max(found)), '.1f', 1.0)}"
            for level in memories
            if (found := [*_ridges(rooflines.launches, kind, level)])
        ]
        points.append(f"{kind} at {', '.join(ridges)}")
    if points and memories:
        sentences.append(f"Ridge points, FLOP/byte: {'; '.join(points)}.")
    if not all(item.floats_counted for item in rooflines.launches):
        sentences.append(
            "FP32, FP16 and FP64 operations and their roofs were not collected for every launch (--set full has them): "
            "there, the compute roofs are those of the tensor cores alone."
        )
    return tuple(sentences)


def _ridges(launches: Iterable[LaunchRoofline], kind: str, level: str) -> Iterable[float]:
    for item in launches:
        memory, work = item.memory(level), next((work for work in item.works if work.kind == kind), None)
        if memory and work and work.peak_ops_per_second:
            yield work.peak_ops_per_second / memory.peak_bytes_per_second


def _span(span: tuple[float, float], spec: str, unit: float = 1e12) -> str:
    low, high = (format(value / unit, spec) for value in span)
    return low if low == high else f"{low} to {high}"


def _tera(value: float | None) -> float | None:
    """In units of 10^12."""
    return ratio(value, 1e12)
