"""Every launch on the roofs of the GPU at the clocks measured during it: DRAM, L2 and L1, tensor cores and FP units.

The formulas are those of Nsight Compute's roofline sections (SpeedOfLight_RooflineChart and the hierarchical ones for
double, single, half and tensor operations): work and traffic a second, and peaks a cycle times the measured clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fiprof.analysis import checks
from fiprof.errors import FiprofError
from fiprof.model import metrics
from fiprof.model.expressions import Row, number, ratio
from fiprof.model.finding import Finding
from fiprof.model.labels import names_kernel_or_case
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import (
    DRAM_BYTES,
    DRAM_PEAK,
    L1_PEAK,
    L2_PEAK,
    counted_float_ops,
    float_peak,
    mostly_mma,
    tensor_peak,
    wgmma_peak,
)
from fiprof.model.run import Run
from fiprof.text import escape_control, shorten

LEAST_INTENSITY = 0.01
"""FLOP a byte of the busiest traffic below which a launch moves memory and computes nothing worth a point. Adding two
vectors of float32 has 0.08, RMSNorm in fp16 some 2; index arithmetic is no floating-point work at all."""

LEVELS = ("DRAM", "L2", "L1")

NOT_ENOUGH = "not enough evidence"

MOST_REMARKS = 8
"""About launches, that people are shown."""

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
        return ratio(self.ops_per_second, self.peak_ops_per_second)


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
        return None if self.work is None else ratio(self.work.ops_per_second, self.attainable_ops_per_second)

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
        return ratio(self.ops_per_second, self.attainable_ops_per_second)


@dataclass(frozen=True)
class Rooflines:
    """A run on the roofs."""

    run: str
    launches: tuple[LaunchRoofline, ...]
    cases: tuple[CaseRoofline, ...]
    """Those of the launches whose cost model has operations and bytes."""
    warnings: tuple[Finding | str, ...] = ()
    """About the run."""


def roofline(run: Run, *, kernel: str = "") -> Rooflines:
    """Every launch of a run on the roofs, in the order of the launches.

    kernel: only launches with this in the kernel's name or in their case; upper and lower case are the same.
    Raises FiprofError where the run has no launches under ncu, or no launch is left, or a table cannot be read.
    """
    if not run.launches:
        raise FiprofError(
            f"{run.manifest.name} has no counters for a roofline: {run.why_missing('ncu')}",
            "fiprof collect --tool nsys,ncu collects them; fiprof show shows what this run has",
        )
    kept = [row for row in run.launches if names_kernel_or_case(row, run.labels(row["case"]), kernel)]
    if not kept:
        names = sorted({row["kernel"] or "" for row in run.launches})
        raise FiprofError(
            f"{run.manifest.name} has no launch with kernel {kernel!r}",
            f"it has the kernels {', '.join(shorten(escape_control(name), WIDEST_KERNEL) for name in names)}",
        )
    launches = tuple(_launch(row, run) for row in kept)
    ids = {item.case for item in launches}
    cases = tuple(_case(case, run) for case in run.manifest.cases if case.id in ids)
    return Rooflines(
        run=run.manifest.name,
        launches=launches,
        cases=tuple(case for case in cases if case is not None),
        warnings=(*run.status_warning(), *checks.of_run(checks.failed(run))),
    )


def _launch(row: Row, run: Run) -> LaunchRoofline:
    case = run.case(row["case"]) if row["case"] else None
    works = _works(row)
    main = _main(row, works)
    memories = _memories(row)
    basis: Basis = "none" if main is None else "counted"
    remark = ""
    if main is None:
        main, remark = _by_model(row, case, run)
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
        label=run.labels(row["case"]),
        iteration=row["iteration"],
        kernel=row["kernel"] or "",
        duration_us=None if row["duration_ns"] is None else row["duration_ns"] / 1e3,
        basis=basis,
        work=main,
        works=works,
        memories=tuple(_under(memory, main) for memory in memories),
        model_flop_per_byte=ratio(case.flops, case.bytes_read + case.bytes_written) if case and case.flops else None,
        floats_counted="fp32" in counted_float_ops(row),
        remark=remark,
    )
    if main is not None and placed.roof == main.kind and main.kind.endswith(" mma"):
        return dataclasses.replace(placed, remark=_mma_remark(row, main))
    return placed


def _works(row: Row) -> tuple[Work, ...]:
    """Every kind of operations that was counted and is not zero."""
    seconds = _seconds(row)
    if not seconds:
        return ()
    found = []
    for kind in metrics.TENSOR_KINDS:
        if ops := number(row, f"tensor_ops_{kind}"):
            name = f"tensor {kind} mma" if _slower_mma(row, kind) else f"tensor {kind}"
            found.append(Work(name, ops, ops / seconds, tensor_peak(kind).value(row)))
    for precision, ops in counted_float_ops(row).items():
        if ops:
            found.append(Work(precision, ops, ops / seconds, float_peak(precision).value(row)))
    return tuple(found)


def _main(row: Row, works: Sequence[Work]) -> Work | None:
    """The work that uses the largest share of its roof; None where the launch's operations are not all known.

    Half additions do not count for it: conversions between half and single precision execute as HADD.
    """
    tensor = [work for work in works if work.kind.startswith("tensor")]
    if "fp32" not in counted_float_ops(row) and not tensor:
        return None
    without_conversions = counted_float_ops({**row, "hadd_thread_insts": 0.0})

    def use(work: Work) -> tuple[float, float]:
        ops = without_conversions.get(work.kind, work.ops)
        return (work.share or 0.0) * ops / work.ops, ops

    return max(works, key=use, default=None)


def _slower_mma(row: Row, kind: str) -> bool:
    """Whether the launch used the tensor cores by instructions of a warp where those of a warpgroup are faster."""
    slow = number(row, f"mma_peak_{kind}_ops_per_cycle")
    fast = number(row, f"tensor_peak_{kind}_ops_per_cycle")
    return slow is not None and fast is not None and slow < fast and mostly_mma(row, kind)


def _mma_remark(row: Row, work: Work) -> str:
    kind = work.kind.split()[1]
    fast = wgmma_peak(kind).value(row)
    if not fast or not work.peak_ops_per_second:
        return ""
    return (
        f"its tensor operations are instructions of a warp (mma), whose roof is {work.peak_ops_per_second / 1e12:.1f} "
        f"TFLOP/s; those of a warpgroup (wgmma) reach {fast / 1e12:.1f}, of which it has "
        f"{work.ops_per_second / fast:.1%}"
    )


def _by_model(row: Row, case: CaseEntry | None, run: Run) -> tuple[Work | None, str]:
    """The cost model's operations for a launch without counted ones, and a remark; nothing where all were counted."""
    if "fp32" in counted_float_ops(row):
        return None, ""
    missing = "no operations were counted"
    if case is None or not case.flops:
        return None, f"{missing}, and no cost model tells them"
    if run.per_iteration(case.id, lambda _: 1.0) != 1.0:
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


def _memories(row: Row) -> tuple[MemoryRoof, ...]:
    dram = number(row, "dram_bytes_per_second")
    seconds = _seconds(row)
    if dram is None and seconds:
        dram = ratio(DRAM_BYTES.value(row), seconds)
    levels: tuple[tuple[str, float | None, float | None], ...] = (
        ("DRAM", dram, DRAM_PEAK.value(row)),
        ("L2", number(row, "l2_bytes_per_second"), L2_PEAK.value(row)),
        ("L1", number(row, "l1_bytes_per_second"), L1_PEAK.value(row)),
    )
    return tuple(MemoryRoof(level, moved, peak) for level, moved, peak in levels if moved is not None and peak)


def _under(memory: MemoryRoof, work: Work | None) -> MemoryRoof:
    """The memory with the intensity and the ridge point of this work."""
    if work is None:
        return memory
    return dataclasses.replace(
        memory,
        flop_per_byte=ratio(work.ops_per_second, memory.bytes_per_second),
        ridge_flop_per_byte=ratio(work.peak_ops_per_second, memory.peak_bytes_per_second),
    )


def _case(case: CaseEntry, run: Run) -> CaseRoofline | None:
    moved = case.bytes_read + case.bytes_written
    duration_ns = run.per_iteration(case.id, lambda row: number(row, "duration_ns"))
    if not case.flops or not moved or not duration_ns:
        return None
    longest = max(run.launches_of(case.id), key=lambda row: row["duration_ns"] or 0.0)
    intensity = case.flops / moved
    roofs = {}
    main = _main(longest, _works(longest))
    if main is not None and main.peak_ops_per_second is not None:
        roofs[main.kind] = main.peak_ops_per_second
    bandwidth = DRAM_PEAK.value(longest)
    if bandwidth is not None:
        roofs["DRAM"] = bandwidth * intensity
    return CaseRoofline(
        case=case.id,
        label=run.labels(case.id),
        kernels=round(run.per_iteration(case.id, lambda _: 1.0) or 0),
        duration_us=duration_ns / 1e3,
        flops=case.flops,
        moved_bytes=moved,
        flop_per_byte=intensity,
        ops_per_second=case.flops / duration_ns * 1e9,
        roof=min(roofs, key=roofs.__getitem__, default=None),
        attainable_ops_per_second=min(roofs.values(), default=None),
    )


def _seconds(row: Row) -> float | None:
    duration_ns = number(row, "duration_ns")
    return None if duration_ns is None else duration_ns / 1e9


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
