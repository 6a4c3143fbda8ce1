"""``fiprof roofline`` as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fiprof.analysis.roofline import (
    Basis,
    CaseRoofline,
    LaunchRoofline,
    Level,
    Rooflines,
    Work,
    compute_roofs,
    memory_roofs,
)
from fiprof.model.formula import ratio
from fiprof.model.selection import alike, longest_first
from fiprof.model.wording import say, worded
from fiprof.reports.columns import NAMES, Cell, Cells, attribute, filled, for_programs, grouped, measured, tera
from fiprof.reports.headings import bounded
from fiprof.reports.view import Column, Document, Narrow, Value

NOT_ENOUGH = "not enough evidence"
HOW_TO_READ = (
    "DRAM, L2: operations of the launch's main work (that which uses most of its roof) over the bytes that the memory "
    "moved, as ncu counted both (L1: --format json); model: by the workload's cost model, for its case as a whole. "
    "roof: the lowest of the compute roof and of bandwidth x intensity of DRAM, L2 and L1; at roof: what it allows; "
    "share: achieved of that. Loads by TMA bypass what L1 counts."
)
MOST_REMARKS = 8
"""About launches, that people are shown."""


def _memory(level: Level, title: str = "") -> Cells:
    def of(name: str) -> Callable[[LaunchRoofline], Value]:
        return lambda item: getattr(item.memory(level), name, None)

    key = level.lower()
    narrow = Narrow.WRAP if level is Level.DRAM else Narrow.DROP
    return (
        (Column(f"{key}_flop_per_byte", title, "FLOP/B", ".4g", narrow=narrow), of("flop_per_byte")),
        (Column(f"{key}_ridge_flop_per_byte"), of("ridge_flop_per_byte")),
    )


def _works(name: str, find: Callable[[LaunchRoofline], Work | None]) -> Cells:
    def tera_of(attribute: str) -> Callable[[LaunchRoofline], Value]:
        return lambda item: ratio(getattr(find(item), attribute, None), 1e12)

    rate, roof = tera_of("ops_per_second"), tera_of("peak_ops_per_second")
    return (Column(f"{name}_tflops"), rate), (Column(f"{name}_roof_tflops"), roof)


def _tensor(item: LaunchRoofline) -> Work | None:
    """The tensor kind with most operations."""
    return max((work for work in item.works if work.tensor), key=lambda work: work.ops, default=None)


def _of_kind(kind: str) -> Callable[[LaunchRoofline], Work | None]:
    return lambda item: next((work for work in item.works if work.kind == kind), None)


def _shown_roof(item: LaunchRoofline) -> str:
    if item.roof is None:
        return NOT_ENOUGH
    return f"{item.roof} (model)" if item.basis == Basis.MODEL else item.roof


_L1 = _memory(Level.L1, "L1")
_INTENSITY: Cells = (*_memory(Level.DRAM, "DRAM"), *_memory(Level.L2, "L2"))
_PLACE: Cells = (
    attribute("model_flop_per_byte", "model", "FLOP/B", ".4g", narrow=Narrow.DROP),
    tera("tflops", "work.ops_per_second", "achieved"),
    tera("attainable_tflops", "attainable_ops_per_second", "at roof"),
    attribute("roof_share", "share", "", ".1%", of="share"),
)
MAIN_WORK: Cells = (
    attribute("basis"),
    attribute("work", of="work.kind"),
    attribute("ops", of="work.ops"),
    tera("compute_roof_tflops", "work.peak_ops_per_second"),
    attribute("compute_roof_share", of="work.share"),
)
_HIDDEN: Cells = (
    attribute("case"),
    attribute("iteration"),
    measured("duration_us"),
    *MAIN_WORK,
    attribute("roof"),
    attribute("remark"),
    *_L1,
    *(measured(f"{level}_{key}") for level in ("dram", "l2", "l1") for key in ("gb_per_s", "roof_gb_per_s")),
    measured("dram_share"),
    *_works("tensor", _tensor),
    *(cell for kind in ("fp32", "fp16", "fp64") for cell in _works(kind, _of_kind(kind))),
)

_CASES: Cells = (
    attribute("label", "case"),
    attribute("kernels", "kernels", narrow=Narrow.DROP),
    attribute("duration_us", "time", "µs", ",.2f"),
    (Column("gflop", "work", "GFLOP", ",.2f"), lambda case: case.flops / 1e9),
    (Column("moved_mb", "bytes", "MB", ",.1f"), lambda case: case.moved_bytes / 1e6),
    attribute("flop_per_byte", "model", "FLOP/B", ".4g", narrow=Narrow.DROP),
    tera("tflops", "ops_per_second", "achieved"),
    tera("attainable_tflops", "attainable_ops_per_second", "at roof"),
    attribute("share", "share", "", ".1%"),
    (Column("roof", "roof"), lambda case: case.roof or NOT_ENOUGH),
)


MOST_ROWS = 20
"""Groups of like launches, and cases, that people are shown."""


def document(rooflines: Rooflines, *, most: int | None = None) -> Document:
    """The roofs in words, a table of the launches, and one of the cases by their cost model; one row a launch for
    programs.

    most: rows that people are shown; None for all.
    """
    launches = rooflines.launches
    kept, left_out = bounded(longest_first(alike(launches, weights=rooflines.weights)), most)
    shown = [
        filled(
            grouped(_columns([group.shown for group in kept]), kept),
            kept,
            title="Launches on the roofline, as counted",
            notes=(*left_out, *_roof_sentences(rooflines), *_remarks(launches)),
        )
    ]
    if rooflines.cases:
        rest = len(rooflines.cases[most:]) if most is not None else 0
        notes = (say("{count:case|cases} left out: --all shows them.", count=rest),) if rest else ()
        shown.append(
            filled(
                _CASES,
                rooflines.cases[:most],
                title="An iteration of each case by its cost model: the least work and bytes, over DRAM",
                notes=notes,
            )
        )
    columns = for_programs(*NAMES, *_HIDDEN, *_INTENSITY, *_PLACE, *_of_case(rooflines.cases))
    return Document(
        lambda: filled(columns, launches),
        tuple(shown),
        warnings=rooflines.warnings,
        notes=(HOW_TO_READ,),
    )


def _of_case(cases: Sequence[CaseRoofline]) -> Cells:
    by_id = {case.case: case for case in cases}

    def cell(key: str, value: Cell) -> Cell:
        return Column(key), lambda item: value[1](by_id.get(item.case or ""))

    return (
        cell("case_kernels", attribute("kernels")),
        cell("case_model_tflops", tera("", "ops_per_second")),
        cell("case_model_attainable_tflops", tera("", "attainable_ops_per_second")),
        cell("case_model_roof_share", attribute("share")),
        cell("case_model_roof", attribute("roof")),
    )


def _columns(launches: Sequence[LaunchRoofline]) -> Cells:
    """What people see: the intensity at L1 only where L1 binds, the iteration only where there are several."""
    return (
        *NAMES,
        measured("duration_us", "time", spec=",.2f"),
        *_INTENSITY,
        *(_L1 if any(item.roof == Level.L1 for item in launches) else ()),
        *_PLACE,
        (Column("roof", "roof"), _shown_roof),
    )


def _remarks(launches: Sequence[LaunchRoofline]) -> tuple[str, ...]:
    """Each remark once, with the launches that it is about; of many the first."""
    about: dict[str, list[int]] = {}
    for item in launches:
        if item.remark is not None:
            about.setdefault(worded(item.remark), []).append(item.launch)
    notes: list[str] = [
        say("{launches:launch|launches}: {remark}", launches=numbers, remark=remark)
        for remark, numbers in about.items()
    ]
    if len(notes) > MOST_REMARKS:
        notes[MOST_REMARKS:] = [f"{len(notes) - MOST_REMARKS} more remarks: --format json has them"]
    return tuple(notes)


def _roof_sentences(rooflines: Rooflines) -> tuple[str, ...]:
    """The roofs at the measured clocks, and their ridge points."""
    memories, works = memory_roofs(rooflines.launches), compute_roofs(rooflines.launches)
    parts = [f"{level} {_span(span, '.2f')} TB/s" for level, span in memories.items()]
    parts += [f"{kind} {_span(span, '.1f')} TFLOP/s" for kind, span in works.items()]
    sentences = [f"Roofs at the clocks measured: {', '.join(parts)}."] if parts else []
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


def _ridges(launches: Iterable[LaunchRoofline], kind: str, level: Level) -> Iterable[float]:
    for item in launches:
        memory, work = item.memory(level), _of_kind(kind)(item)
        if memory and work and work.peak_ops_per_second:
            yield work.peak_ops_per_second / memory.peak_bytes_per_second


def _span(span: tuple[float, float], spec: str, unit: float = 1e12) -> str:
    low, high = (format(value / unit, spec) for value in span)
    return low if low == high else f"{low} to {high}"
