"""Every launch on the roofs of the GPU at the clocks measured during it: DRAM, L2 and L1, tensor cores and FP units.

The formulas are those of Nsight Compute's roofline sections (SpeedOfLight_RooflineChart and the hierarchical ones for
double, single, half and tensor operations): work and traffic a second, and peaks a cycle times the measured clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fiprof.errors import FiprofError
from fiprof.parsers import metrics
from fiprof.parsers.manifest import CaseEntry
from fiprof.parsers.run import Run
from fiprof.reports import checks, source
from fiprof.reports.evidence import Evidence
from fiprof.reports.labels import Labels, names_kernel_or_case
from fiprof.reports.view import Column, Document, View, shorten, view_of, visible

LEAST_INTENSITY = 0.01
"""FLOP a byte of the busiest traffic below which a launch moves memory and computes nothing worth a point. Adding two
vectors of float32 has 0.08, RMSNorm in fp16 some 2; index arithmetic is no floating-point work at all."""

NOT_ENOUGH = "not enough evidence"

MOST_REMARKS = 8
"""About launches, that people are shown."""

WIDEST_LABEL = 32
WIDEST_KERNEL = 40
"""Cells."""

Basis = Literal["counted", "model", "none"]
"""Where a launch's operations come from: ncu's counters, the workload's cost model, or nowhere."""


@dataclass(frozen=True)
class Work:
    """A launch's operations of one kind, and the roof for that kind."""

    kind: str
    """``tensor fp16``, ``tensor fp16 mma``, ``fp32``, ``fp16``, ``fp64``; ``model`` where the cost model gives it."""
    ops: float
    """Operations, a multiply-add being two. Those of ``tensor int8`` and ``tensor int1`` are no floating-point ones."""
    ops_per_second: float
    peak_ops_per_second: float | None
    """At the clock measured during the launch; None where it was not collected."""

    @property
    def share(self) -> float | None:
        """Of the peak."""
        return _ratio(self.ops_per_second, self.peak_ops_per_second)


@dataclass(frozen=True)
class MemoryRoof:
    """A memory's traffic during a launch, and its roof."""

    level: str
    """DRAM, L2 or L1."""
    bytes_per_second: float
    """DRAM: read and written. L2: sent towards the multiprocessors. L1: written back to registers; TMA bypasses it."""
    peak_bytes_per_second: float
    """At the memory's clock measured during the launch."""
    flop_per_byte: float | None = None
    """Arithmetic intensity: the launch's main work over this traffic; None without either."""
    ridge_flop_per_byte: float | None = None
    """The intensity where this roof meets that of the main work."""

    @property
    def share(self) -> float:
        """Of the peak."""
        return self.bytes_per_second / self.peak_bytes_per_second

    @property
    def roof_ops_per_second(self) -> float | None:
        """What this memory allows at that intensity."""
        return None if self.flop_per_byte is None else self.peak_bytes_per_second * self.flop_per_byte


@dataclass(frozen=True)
class LaunchRoofline:
    """A kernel launch on the roofs."""

    launch: int
    case: str | None
    """Case id; None outside the cases' ranges."""
    label: str
    """The case in short."""
    iteration: int | None
    kernel: str
    duration_us: float | None
    """By ncu."""
    basis: Basis
    work: Work | None
    """The work whose roof is used most: the launch's main work, which the intensities are of."""
    works: tuple[Work, ...]
    """Every kind that ncu counted, as far as it is not zero."""
    memories: tuple[MemoryRoof, ...]
    """DRAM, L2, L1, as far as they were collected."""
    model_flop_per_byte: float | None
    """Of the launch's case as a whole, all its kernels together, by the workload's cost model."""
    floats_counted: bool
    """Whether operations outside the tensor cores were counted; if not, only roofs of the tensor cores are known."""
    remark: str = ""
    """Why there is no point, or what is particular about it."""

    @property
    def roofs(self) -> dict[str, float]:
        """Name -> the operations a second that it allows at this launch's intensities."""
        found = {}
        if self.work is not None and self.work.peak_ops_per_second is not None:
            found[self.work.kind] = self.work.peak_ops_per_second
        if self.work is not None:
            for memory in self.memories:
                if memory.roof_ops_per_second is not None:
                    found[memory.level] = memory.roof_ops_per_second
        return found

    @property
    def roof(self) -> str | None:
        """The roof that binds: the lowest."""
        return min(self.roofs, key=self.roofs.__getitem__, default=None)

    @property
    def attainable_ops_per_second(self) -> float | None:
        """What the roof that binds allows."""
        return min(self.roofs.values(), default=None)

    @property
    def share(self) -> float | None:
        """Achieved over attainable."""
        return None if self.work is None else _ratio(self.work.ops_per_second, self.attainable_ops_per_second)

    def memory(self, level: str) -> MemoryRoof | None:
        return next((memory for memory in self.memories if memory.level == level), None)


@dataclass(frozen=True)
class CaseRoofline:
    """An iteration of a case, all its kernels together, by the workload's cost model: the least work and bytes."""

    case: str
    label: str
    kernels: int
    """Kernels that ncu saw in an iteration."""
    duration_us: float
    """Their time under ncu."""
    flops: int
    """Operations that the algorithm needs."""
    moved_bytes: int
    """Bytes that it has to read and write."""
    flop_per_byte: float
    ops_per_second: float
    roof: str | None
    """The roof that binds: DRAM, or that of the main work of the kernel that took most time."""
    attainable_ops_per_second: float | None

    @property
    def share(self) -> float | None:
        """Achieved over attainable: above 1 where L2 kept what the model takes from DRAM."""
        return _ratio(self.ops_per_second, self.attainable_ops_per_second)


@dataclass(frozen=True)
class Rooflines:
    """A run on the roofs."""

    run: str
    launches: tuple[LaunchRoofline, ...]
    cases: tuple[CaseRoofline, ...]
    """Those of the launches whose cost model has operations and bytes."""
    warnings: tuple[str, ...] = ()
    """About the run."""


def roofline(run: Run, *, kernel: str = "") -> Rooflines:
    """Every launch of a run on the roofs, in the order of the launches.

    kernel: only launches with this in the kernel's name or in their case; upper and lower case are the same.
    Raises FiprofError where the run has no launches under ncu, or no launch is left, or a table cannot be read.
    """
    evidence, labels = Evidence(run), Labels(run.manifest.cases)
    if not evidence.launches:
        raise FiprofError(
            f"{run.manifest.name} has no counters for a roofline: {source.why_missing(run, 'ncu')}",
            "fiprof collect --tool nsys,ncu collects them; fiprof show shows what this run has",
        )
    kept = [row for row in evidence.launches if names_kernel_or_case(row, labels(row["case"]), kernel)]
    if not kept:
        names = sorted({row["kernel"] or "" for row in evidence.launches})
        raise FiprofError(
            f"{run.manifest.name} has no launch with kernel {kernel!r}",
            f"it has the kernels {', '.join(shorten(visible(name), WIDEST_KERNEL) for name in names)}",
        )
    launches = tuple(_launch(row, labels, evidence) for row in kept)
    ids = {item.case for item in launches}
    cases = tuple(_case(case, labels, evidence) for case in run.manifest.cases if case.id in ids)
    return Rooflines(
        run=run.manifest.name,
        launches=launches,
        cases=tuple(case for case in cases if case is not None),
        warnings=(*source.status_warning(run), *checks.of_run(checks.failed(run))),
    )


def _launch(row: source.Row, labels: Labels, evidence: Evidence) -> LaunchRoofline:
    case = evidence.run.case(row["case"]) if row["case"] else None
    works = _works(row)
    main = _main(row, works)
    memories = _memories(row)
    basis: Basis = "none" if main is None else "counted"
    remark = ""
    if main is None:
        main, remark = _by_model(row, case, evidence)
        basis = "none" if main is None else "model"
    traffic = max((memory.bytes_per_second for memory in memories), default=0.0)
    if main is not None and main.ops_per_second < LEAST_INTENSITY * traffic:
        remark, main, basis = _moves_memory(memories, main.ops_per_second / traffic), None, "none"
    elif main is None and not remark:
        remark = _moves_memory(memories, 0.0)
    elif main is not None and not memories and main.peak_ops_per_second is None:
        remark, main, basis = "no roof was collected", None, "none"
    placed = LaunchRoofline(
        launch=row["launch"],
        case=row["case"],
        label=labels(row["case"]),
        iteration=row["iteration"],
        kernel=row["kernel"] or "",
        duration_us=None if row["duration_ns"] is None else row["duration_ns"] / 1e3,
        basis=basis,
        work=main,
        works=works,
        memories=tuple(_under(memory, main) for memory in memories),
        model_flop_per_byte=_ratio(case.flops, case.bytes_read + case.bytes_written) if case and case.flops else None,
        floats_counted="fp32" in metrics.float_ops(row),
        remark=remark,
    )
    if main is not None and placed.roof == main.kind and main.kind.endswith(" mma"):
        return dataclasses.replace(placed, remark=_mma_remark(row, main))
    return placed


def _works(row: source.Row) -> tuple[Work, ...]:
    """Every kind of operations that was counted and is not zero."""
    seconds = _seconds(row)
    if not seconds:
        return ()
    found = []
    for kind in metrics.TENSOR_KINDS:
        if ops := metrics.number(row, f"tensor_ops_{kind}"):
            name = f"tensor {kind} mma" if _slower_mma(row, kind) else f"tensor {kind}"
            found.append(Work(name, ops, ops / seconds, metrics.tensor_peak_ops_per_second(row, kind)))
    for precision, ops in metrics.float_ops(row).items():
        if ops:
            found.append(Work(precision, ops, ops / seconds, metrics.float_peak_ops_per_second(row, precision)))
    return tuple(found)


def _main(row: source.Row, works: Sequence[Work]) -> Work | None:
    """The work that uses the largest share of its roof; None where the launch's operations are not all known.

    Half additions do not count for it: conversions between half and single precision execute as HADD.
    """
    tensor = [work for work in works if work.kind.startswith("tensor")]
    if "fp32" not in metrics.float_ops(row) and not tensor:
        return None
    without_conversions = metrics.float_ops({**row, "hadd_thread_insts": 0.0})

    def use(work: Work) -> tuple[float, float]:
        ops = without_conversions.get(work.kind, work.ops)
        return (work.share or 0.0) * ops / work.ops, ops

    return max(works, key=use, default=None)


def _slower_mma(row: source.Row, kind: str) -> bool:
    """Whether the launch used the tensor cores by instructions of a warp where those of a warpgroup are faster."""
    slow = metrics.number(row, f"mma_peak_{kind}_ops_per_cycle")
    fast = metrics.number(row, f"tensor_peak_{kind}_ops_per_cycle")
    return slow is not None and fast is not None and slow < fast and metrics.mostly_mma(row, kind)


def _mma_remark(row: source.Row, work: Work) -> str:
    kind = work.kind.split()[1]
    fast = metrics.product(row, f"tensor_peak_{kind}_ops_per_cycle", "sm_clock_hz")
    if not fast or not work.peak_ops_per_second:
        return ""
    return (
        f"its tensor operations are instructions of a warp (mma), whose roof is {work.peak_ops_per_second / 1e12:.1f} "
        f"TFLOP/s; those of a warpgroup (wgmma) reach {fast / 1e12:.1f}, of which it has "
        f"{work.ops_per_second / fast:.1%}"
    )


def _by_model(row: source.Row, case: CaseEntry | None, evidence: Evidence) -> tuple[Work | None, str]:
    """The cost model's operations for a launch without counted ones, and a remark; nothing where all were counted."""
    if "fp32" in metrics.float_ops(row):
        return None, ""
    missing = "no operations were counted"
    if case is None or not case.flops:
        return None, f"{missing}, and no cost model tells them"
    if evidence.per_iteration(case.id, lambda _: 1.0) != 1.0:
        return None, f"{missing}, and the cost model tells those of all kernels of the case together"
    seconds = _seconds(row)
    if not seconds:
        return None, "its duration was not collected"
    return (
        Work("model", case.flops, case.flops / seconds, None),
        f"{missing}: they are those of the cost model, held against the memory roofs alone",
    )


def _moves_memory(memories: Sequence[MemoryRoof], flop_per_byte: float) -> str:
    """Why a launch without work has no point, and what it does instead."""
    if not memories:
        return "neither floating-point work nor traffic was collected"
    busiest = max(memories, key=lambda memory: memory.share)
    return (
        f"hardly any floating-point work ({flop_per_byte:.4f} FLOP/byte), so no point on the roofline; "
        f"it moves data at {busiest.share:.1%} of the {busiest.level} roof"
    )


def _memories(row: source.Row) -> tuple[MemoryRoof, ...]:
    dram = metrics.number(row, "dram_bytes_per_second")
    seconds = _seconds(row)
    if dram is None and seconds:
        dram = _ratio(metrics.dram_bytes(row), seconds)
    levels: tuple[tuple[str, float | None, float | None], ...] = (
        ("DRAM", dram, metrics.dram_peak_bytes_per_second(row)),
        ("L2", metrics.number(row, "l2_bytes_per_second"), metrics.l2_peak_bytes_per_second(row)),
        ("L1", metrics.number(row, "l1_bytes_per_second"), metrics.l1_peak_bytes_per_second(row)),
    )
    return tuple(MemoryRoof(level, moved, peak) for level, moved, peak in levels if moved is not None and peak)


def _under(memory: MemoryRoof, work: Work | None) -> MemoryRoof:
    """The memory with the intensity and the ridge point of this work."""
    if work is None:
        return memory
    return dataclasses.replace(
        memory,
        flop_per_byte=_ratio(work.ops_per_second, memory.bytes_per_second),
        ridge_flop_per_byte=_ratio(work.peak_ops_per_second, memory.peak_bytes_per_second),
    )


def _case(case: CaseEntry, labels: Labels, evidence: Evidence) -> CaseRoofline | None:
    moved = case.bytes_read + case.bytes_written
    duration_ns = evidence.per_iteration(case.id, lambda row: metrics.number(row, "duration_ns"))
    if not case.flops or not moved or not duration_ns:
        return None
    longest = max(evidence.of(case.id), key=lambda row: row["duration_ns"] or 0.0)
    intensity = case.flops / moved
    roofs = {}
    main = _main(longest, _works(longest))
    if main is not None and main.peak_ops_per_second is not None:
        roofs[main.kind] = main.peak_ops_per_second
    bandwidth = metrics.dram_peak_bytes_per_second(longest)
    if bandwidth is not None:
        roofs["DRAM"] = bandwidth * intensity
    return CaseRoofline(
        case=case.id,
        label=labels(case.id),
        kernels=round(evidence.per_iteration(case.id, lambda _: 1.0) or 0),
        duration_us=duration_ns / 1e3,
        flops=case.flops,
        moved_bytes=moved,
        flop_per_byte=intensity,
        ops_per_second=case.flops / duration_ns * 1e9,
        roof=min(roofs, key=roofs.__getitem__, default=None),
        attainable_ops_per_second=min(roofs.values(), default=None),
    )


def _seconds(row: source.Row) -> float | None:
    duration_ns = metrics.number(row, "duration_ns")
    return None if duration_ns is None else duration_ns / 1e9


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _tera(value: float | None) -> float | None:
    return None if value is None else value / 1e12


# As tables

LEVELS = ("DRAM", "L2", "L1")


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
        _tera(case.ops_per_second), _tera(case.attainable_ops_per_second), case.share, case.roof or NOT_ENOUGH,
    )  # fmt: skip


def _fitted(columns: Sequence[Column], rows: Sequence[LaunchRow]) -> tuple[Column, ...]:
    """The columns, the cases' labels and the roofs as wide as they are: kernels' names are shortened before them."""
    least = {
        "label": min(max((len(row.label) for row in rows), default=0), WIDEST_LABEL),
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
    sentences = [
        f"launch{'es' if len(numbers) > 1 else ''} {_numbers(numbers)}: {remark}" for remark, numbers in about.items()
    ]
    if len(sentences) > MOST_REMARKS:
        sentences[MOST_REMARKS:] = [f"{len(sentences) - MOST_REMARKS} more remarks: --format json has them"]
    return tuple(sentences)


def _numbers(numbers: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return f"{shown} and {len(numbers) - most} more" if len(numbers) > most else shown


def compute_roofs(launches: Iterable[LaunchRoofline]) -> dict[str, tuple[float, float]]:
    """Kind of work -> the lowest and highest roof of the launches, in operations a second, the highest roof first.

    Those of tensor kinds and FP64 only where they are the main work of a launch.
    """
    roofs: dict[str, list[float]] = {}
    for item in launches:
        for work in item.works:
            if work.peak_ops_per_second is not None and (work.kind in ("fp32", "fp16") or work == item.work):
                roofs.setdefault(work.kind, []).append(work.peak_ops_per_second)
    return {kind: (min(roofs[kind]), max(roofs[kind])) for kind in sorted(roofs, key=lambda kind: -max(roofs[kind]))}


def memory_roofs(launches: Iterable[LaunchRoofline]) -> dict[str, tuple[float, float]]:
    """Memory -> the lowest and highest roof of the launches, in bytes a second."""
    roofs: dict[str, list[float]] = {}
    for item in launches:
        for memory in item.memories:
            roofs.setdefault(memory.level, []).append(memory.peak_bytes_per_second)
    return {level: (min(roofs[level]), max(roofs[level])) for level in LEVELS if level in roofs}


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


# As characters

CHART_COLUMNS = 100
CHART_ROWS = 22
_AXIS = 8
"""Cells left of the plot."""
_MOST_DECADES = 8
_MARGIN = 0.2
"""Of a decade, around what is drawn."""
_SLOPE = ".-'"
"""A rising line inside one row: low, middle, high."""


def chart(rooflines: Rooflines, *, width: int = CHART_COLUMNS) -> str:
    """The roofline in both logarithms as characters, each launch as its number at its DRAM intensity.

    Roofs are the highest of the launches. Empty where no launch has a point. width: columns, at most 100 are used.
    """
    points = [
        (item, memory.flop_per_byte, item.work.ops_per_second)
        for item in rooflines.launches
        if item.work and (memory := item.memory("DRAM")) and memory.flop_per_byte
    ]
    if not points:
        return ""
    plotted = [item for item, _, _ in points]
    memories = {level: high for level, (_, high) in memory_roofs(plotted).items()}
    works = {kind: high for kind, (_, high) in compute_roofs(plotted).items()}
    achieved = [ops for _, _, ops in points]
    intensities = [x for _, x, _ in points]
    top = max(works.values(), default=float("inf"))
    if works:
        above = list(works.values())
        intensities += [roof / bandwidth for roof in works.values() for bandwidth in memories.values()]
    else:
        above = [bandwidth * max(intensities) for bandwidth in memories.values()]
    plot = _Plot(
        x=_bounds(intensities, below=0.5),
        y=_bounds([*achieved, *above], below=1.0),
        columns=min(width, CHART_COLUMNS) - _AXIS,
    )
    for bandwidth in memories.values():
        plot.line(lambda x, bandwidth=bandwidth: bandwidth * x, until=top)  # type: ignore[misc]
    for roof in works.values():
        plot.line(lambda _, roof=roof: roof, since=roof / max(memories.values()))  # type: ignore[misc]
    together = plot.points([(str(item.launch), x, y) for item, x, y in points])
    for level, bandwidth in memories.items():
        plot.label_slope(level, bandwidth, until=top)
    for kind, roof in works.items():
        plot.label_level(f"{kind} {roof / 1e12:.1f}", roof)
    lines = [
        "Roofline: achieved work over its intensity at DRAM, both logarithmic; each launch is its number",
        *plot.text(),
    ]
    if together:
        lines.append("one cell: " + ", ".join(f"{first} also {_numbers(rest)}" for first, rest in together.items()))
    return "\n".join(lines)


def _bounds(values: Sequence[float], *, below: float) -> tuple[float, float]:
    """Exponents of ten a little beyond the values: two decades at least, the highest ones where there are too many.

    below: how much of what lacks to two decades is added at the lower end.
    """
    import math

    low, high = math.log10(min(values)) - _MARGIN, math.log10(max(values)) + _MARGIN
    lacking = max(0.0, 2 - (high - low))
    low, high = low - lacking * below, high + lacking * (1 - below)
    return max(low, high - _MOST_DECADES), high


class _Plot:
    """A plane of characters with logarithmic axes."""

    def __init__(self, *, x: tuple[float, float], y: tuple[float, float], columns: int) -> None:
        self._x, self._y, self._columns = x, y, columns
        self._cells = [[" "] * columns for _ in range(CHART_ROWS)]
        self._fixed: set[tuple[int, int]] = set()

    def line(self, value: Callable[[float], float], *, since: float = 0.0, until: float = float("inf")) -> None:
        """A roof: operations a second for an intensity."""
        for column in range(self._columns):
            x = self._value(column)
            y = value(x)
            if x < since or y > until:
                continue
            height = self._height(y)
            row = int(height)
            if 0 <= row < CHART_ROWS:
                slope = value(x * 2) > y
                char = _SLOPE[min(int((height - row) * 3), 2)] if slope else "─"
                self._cells[row][column] = char

    def points(self, named: Sequence[tuple[str, float, float]]) -> dict[str, list[int]]:
        """Launches as their numbers; the number that is drawn -> those that lie under it."""
        drawn: dict[tuple[int, int], str] = {}
        together: dict[str, list[int]] = {}
        for name, x, y in named:
            row = min(max(int(self._height(y)), 0), CHART_ROWS - 1)
            column = min(max(self._column(x), 0), self._columns - len(name))
            under = next((drawn[row, c] for c in range(column - 1, column + len(name) + 1) if (row, c) in drawn), None)
            if under is not None:
                together.setdefault(under, []).append(int(name))
                continue
            for offset, char in enumerate(name):
                drawn[row, column + offset] = name
                self._cells[row][column + offset] = char
        self._fixed |= set(drawn)
        return together

    def label_slope(self, text: str, bandwidth: float, *, until: float) -> None:
        """The name of a memory's roof right below its line, at the lowest place that is free."""
        decades = (self._y[1] - self._y[0]) / (self._x[1] - self._x[0])
        beside = int(self._columns / CHART_ROWS * decades / 2) + 2
        for row in range(CHART_ROWS):
            y = 10 ** self._exponent(row)
            column = self._column(y / bandwidth) + beside
            if y <= until and column >= beside and self._write(text, row, column, over=" "):
                return

    def label_level(self, text: str, roof: float) -> None:
        """The name of a compute roof in its line, at the right end."""
        row = int(self._height(roof))
        for column in range(self._columns - len(text) - 2, self._columns // 2, -1):
            if self._write(f" {text} ", row, column, over=" ─"):
                return

    def _write(self, text: str, row: int, column: int, *, over: str) -> bool:
        """Whether the text found its place, among characters that it may cover."""
        cells = [(row, column + offset) for offset in range(len(text))]
        if column < 0 or column + len(text) > self._columns or not 0 <= row < CHART_ROWS:
            return False
        if any(cell in self._fixed or self._cells[cell[0]][cell[1]] not in over for cell in cells):
            return False
        for (_, at), char in zip(cells, text, strict=True):
            self._cells[row][at] = char
        self._fixed |= set(cells)
        return True

    def text(self) -> list[str]:
        """The plane with its axes, the highest row first."""
        ticks = {int(self._height(10.0**e)): _power(e - 12) for e in _whole(self._y)}
        lines = [f"{ticks.get(row, ''):>{_AXIS - 2}} {'┤' if row in ticks else '│'}" for row in range(CHART_ROWS)]
        rows = [line + "".join(cells).rstrip() for line, cells in zip(lines, self._cells, strict=True)]
        axis, below = ["─"] * self._columns, [" "] * self._columns
        for exponent in _whole(self._x):
            column, word = self._column(10.0**exponent), _power(exponent)
            axis[column] = "┬"
            if column + len(word) <= self._columns:
                below[column : column + len(word)] = word
        return [
            f"{'TFLOP/s':>{_AXIS - 1}}",
            *(row.rstrip() for row in reversed(rows)),
            " " * (_AXIS - 1) + "└" + "".join(axis),
            (" " * _AXIS + "".join(below)).rstrip(),
            f"{'FLOP/byte of DRAM':>{_AXIS + self._columns}}",
        ]

    def _value(self, column: int) -> float:
        return 10 ** (self._x[0] + (column + 0.5) / self._columns * (self._x[1] - self._x[0]))

    def _column(self, x: float) -> int:
        import math

        return int((math.log10(x) - self._x[0]) / (self._x[1] - self._x[0]) * self._columns + 1e-9)

    def _height(self, y: float) -> float:
        """Rows above the x axis."""
        import math

        return (math.log10(y) - self._y[0]) / (self._y[1] - self._y[0]) * CHART_ROWS + 1e-9

    def _exponent(self, row: int) -> float:
        """The middle of a row."""
        return self._y[0] + (row + 0.5) / CHART_ROWS * (self._y[1] - self._y[0])


def _whole(bounds: tuple[float, float]) -> range:
    """The whole exponents within."""
    import math

    return range(math.ceil(bounds[0]), math.floor(bounds[1]) + 1)


def _power(exponent: int) -> str:
    """A power of ten as people read it."""
    return f"{10.0**exponent:,.{max(-exponent, 0)}f}"
