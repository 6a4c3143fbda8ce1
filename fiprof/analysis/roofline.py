"""Every launch on the roofs of the GPU at the clocks measured during it: DRAM, L2 and L1, tensor cores and FP units.

The formulas are those of Nsight Compute's roofline sections (SpeedOfLight_RooflineChart and the hierarchical ones for
double, single, half and tensor operations): work and traffic a second, and peaks a cycle times the measured clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fiprof.analysis import checks
from fiprof.analysis.frames import OfLaunch
from fiprof.analysis.program import weights
from fiprof.analysis.verdict.model import Part
from fiprof.model.case_quantities import MODEL_INTENSITY, NCU, kernels
from fiprof.model.finding import Finding, finding
from fiprof.model.floors import iterations
from fiprof.model.formula import Formula, ratio
from fiprof.model.manifest import CaseEntry
from fiprof.model.run import Launch, Run
from fiprof.model.selection import EVERYTHING, Selection, Weights
from fiprof.model.wording import Worded
from fiprof.model.work import (
    FLOAT_OPS,
    PIPES,
    counted_works,
    main_work,
    ops_of,
    peak_of,
    per_second,
    uncounted_pipe,
    wgmma_peak,
)

LEAST_INTENSITY = 0.01
"""FLOP a byte of the busiest traffic below which a launch moves memory and computes nothing worth a point. Adding two
vectors of float32 has 0.08, RMSNorm in fp16 some 2; index arithmetic is no floating-point work at all."""

MODEL = "model"
"""The kind of work whose operations the cost model tells."""


UNCOUNTED_PARTS = {"tensor_active_pct": Part.TENSOR_CORES, "fp64_pct": Part.FP64_PIPE}
"""Column of PIPES -> what it is."""


class Level(Worded):
    """A memory with a roof."""

    DRAM = "DRAM"
    L2 = "L2"
    L1 = "L1"


TRAFFIC: dict[Level, tuple[Formula, Formula]] = {
    Level.DRAM: (Formula("dram_rate"), Formula("dram_peak")),
    Level.L2: (Formula("l2_bytes_per_second"), Formula("l2_peak")),
    Level.L1: (Formula("l1_bytes_per_second"), Formula("l1_peak")),
}
"""Memory -> its bytes a second, and the most of them."""


class Basis(StrEnum):
    """Where a launch's operations come from."""

    COUNTED = "counted"
    """ncu's counters."""
    MODEL = "model"
    """The workload's cost model."""
    TRAFFIC = "traffic"
    """None to speak of: its bytes tell its place."""
    NONE = "none"


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
    def tensor(self) -> bool:
        """Whether the tensor cores did it."""
        return self.kind.startswith("tensor")

    @property
    def share(self) -> float | None:
        """Of the peak."""
        return ratio(self.ops_per_second, self.peak_ops_per_second)


@dataclass(frozen=True)
class MemoryRoof:
    """A memory's traffic during a launch, and its roof."""

    level: Level
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
class LaunchRoofline(OfLaunch):
    """A kernel launch on the roofs."""

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
    remark: Finding | None = None
    """Why it has no point, or what is particular about it."""

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
    def busiest(self) -> MemoryRoof | None:
        """The memory that is nearest to its roof."""
        return max(self.memories, key=lambda memory: memory.share, default=None)

    @property
    def roof(self) -> str | None:
        """The roof that binds: the lowest; of a launch without work that of its busiest memory."""
        if self.basis is Basis.TRAFFIC and self.busiest is not None:
            return self.busiest.level
        return min(self.roofs, key=self.roofs.__getitem__, default=None)

    @property
    def attainable_ops_per_second(self) -> float | None:
        """What the roof that binds allows."""
        return min(self.roofs.values(), default=None)

    @property
    def share(self) -> float | None:
        """Achieved over attainable; without work, of the bytes a second of its busiest memory."""
        if self.basis is Basis.TRAFFIC and self.busiest is not None:
            return self.busiest.share
        return None if self.work is None else ratio(self.work.ops_per_second, self.attainable_ops_per_second)

    def memory(self, level: Level) -> MemoryRoof | None:
        return next((memory for memory in self.memories if memory.level == level), None)

    def point(self, memory: MemoryRoof, left: float) -> tuple[float, float] | None:
        """Its intensity at a memory, FLOP/byte, and its operations a second, for a chart; None where it has no place.

        left: the chart's lowest intensity. There stands a launch without work, as far below the roof of its busiest
        memory as its bytes are.
        """
        if self.basis is Basis.TRAFFIC and memory == self.busiest:
            return left, left * memory.bytes_per_second
        if self.work is None or not memory.flop_per_byte:
            return None
        return memory.flop_per_byte, self.work.ops_per_second


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
    warnings: tuple[Finding, ...] = ()
    """About the run."""
    weights: Weights = field(default_factory=dict)
    """The time that each launch stands for; empty where each stands for itself."""


def roofline(run: Run, *, wanted: Selection = EVERYTHING) -> Rooflines:
    """Every launch of a run on the roofs, in the order of the launches.

    Raises FiprofError where the run has no launches under ncu, or no launch is left, or a table cannot be read.
    """
    launches = tuple(place(launch, run) for launch in run.selected(wanted, weights(run)))
    ids = {item.case for item in launches}
    cases = tuple(_case(case, run) for case in run.manifest.cases if case.id in ids)
    return Rooflines(
        run=run.manifest.name,
        launches=launches,
        cases=tuple(case for case in cases if case is not None),
        warnings=(*run.status_warning(), *checks.of_run(checks.failed(run))),
        weights=weights(run),
    )


def place(row: Launch, run: Run) -> LaunchRoofline:
    """A launch on the roofs."""
    works = tuple(
        Work(kind, ops, rate, peak_of(kind).value(row))
        for kind in counted_works(row)
        if (ops := ops_of(kind).value(row)) and (rate := per_second(ops_of(kind)).value(row))
    )
    main = next((work for work in works if work.kind == main_work(row)), None)
    memories = tuple(
        MemoryRoof(level, moved, most)
        for level, (traffic, peak) in TRAFFIC.items()
        if (moved := traffic.value(row)) is not None and (most := peak.value(row))
    )
    basis, remark = Basis.NONE if main is None else Basis.COUNTED, None
    if main is None:
        main, remark = _by_model(row, run)
        basis = Basis.NONE if main is None else Basis.MODEL
    traffic = max((memory.bytes_per_second for memory in memories), default=0.0)
    if main is not None and main.ops_per_second < LEAST_INTENSITY * traffic:
        remark, main, basis = _moves_memory(memories, main.ops_per_second / traffic), None, Basis.TRAFFIC
    elif main is None and remark is None:
        remark, basis = _moves_memory(memories, 0.0), Basis.TRAFFIC if memories else Basis.NONE
    elif main is not None and not memories and main.peak_ops_per_second is None:
        remark, main, basis = finding("no_roof", "no roof was collected"), None, Basis.NONE
    placed = LaunchRoofline(
        row,
        basis=basis,
        work=main,
        works=works,
        memories=tuple(_under(memory, main) for memory in memories),
        model_flop_per_byte=MODEL_INTENSITY.of(run, row.case),
        floats_counted=FLOAT_OPS["fp32"].value(row) is not None,
        remark=remark,
    )
    if main is not None and placed.roof == main.kind and main.kind.endswith(" mma"):
        return dataclasses.replace(placed, remark=mma_remark(row, main.kind))
    return placed


def mma_remark(row: Launch, kind: str) -> Finding | None:
    """That a launch's tensor work was done by a warp's instructions; None where peaks or times are not known."""
    peak, fast = peak_of(kind).value(row), wgmma_peak(kind.split()[1]).value(row)
    rate = per_second(ops_of(kind)).value(row)
    if not peak or not fast or rate is None:
        return None
    return finding(
        "mma",
        "its tensor operations are instructions of a warp (mma), whose roof is {roof_tflops:.1f} TFLOP/s; those of a "
        "warpgroup (wgmma) reach {wgmma_tflops:.1f}, of which it has {wgmma_share:.1%}",
        roof_tflops=peak / 1e12,
        wgmma_tflops=fast / 1e12,
        wgmma_share=rate / fast,
    )


def _by_model(row: Launch, run: Run) -> tuple[Work | None, Finding | None]:
    """The cost model's operations for a launch without counted ones, and a remark; nothing where all were counted, or
    where there are none to count."""
    pipe = uncounted_pipe(row)
    if FLOAT_OPS["fp32"].value(row) is not None and pipe is None:
        return None, None
    case, seconds = run.case(row.case) if row.case else None, Formula("seconds").value(row)
    alone = case is not None and run.once(iterations)[row.case, row.iteration][0] == 1
    if pipe is None and case is not None and not case.flops and case.bytes_read + case.bytes_written:
        return None, None
    work = Work(MODEL, case.flops, case.flops / seconds, None) if case and case.flops and alone and seconds else None
    if pipe is not None:
        words = (
            "{part} {use_pct:.1f}% active and their operations not counted: no roof for them; the cost model's "
            "operations, where there are some, are compared with the memory roofs alone"
        )
        use = PIPES[pipe][0].value(row)
        return work, finding("uncounted", words, part=UNCOUNTED_PARTS[pipe], use_pct=use)
    uncounted = "no operations were counted"
    if work is not None:
        by_model = f"{uncounted}: they are those of the cost model, compared with the memory roofs alone"
        return work, finding("by_model", by_model)
    if case is None or not case.flops:
        return None, finding("no_model", f"{uncounted}, and no cost model gives them")
    if alone:
        return None, finding("no_duration", "its duration was not collected")
    several = f"{uncounted}, and the cost model gives those of all kernels of the case together"
    return None, finding("model_of_several", several)


def _moves_memory(memories: Sequence[MemoryRoof], flop_per_byte: float) -> Finding:
    """Why a launch without work has no point, and what it does instead."""
    if not memories:
        return finding("nothing_collected", "neither floating-point work nor traffic was collected")
    busiest = max(memories, key=lambda memory: memory.share)
    words = (
        "hardly any floating-point work ({flop_per_byte:.4f} FLOP/byte): it stands by its bytes, {share:.1%} of the "
        "{level} roof"
    )
    return finding("moves_memory", words, flop_per_byte=flop_per_byte, level=busiest.level, share=busiest.share)


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
    intensity, duration_us = MODEL_INTENSITY.of(run, case.id), NCU.of(run, case.id)
    if not intensity or not duration_us:
        return None
    longest = max(run.launches_of(case.id), key=lambda launch: launch.duration_us or 0.0)
    kind, bandwidth = main_work(longest), Formula("dram_peak").value(longest)
    roofs: dict[str, float] = {}
    if kind is not None and (peak := peak_of(kind).value(longest)) is not None:
        roofs[kind] = peak
    if bandwidth is not None:
        roofs[Level.DRAM] = bandwidth * intensity
    return CaseRoofline(
        case=case.id,
        label=run.labels(case.id),
        kernels=kernels(run, case.id) or 0,
        duration_us=duration_us,
        flops=case.flops,
        moved_bytes=case.bytes_read + case.bytes_written,
        flop_per_byte=intensity,
        ops_per_second=case.flops / duration_us * 1e6,
        roof=min(roofs, key=roofs.__getitem__, default=None),
        attainable_ops_per_second=min(roofs.values(), default=None),
    )


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


def memory_roofs(launches: Iterable[LaunchRoofline]) -> dict[Level, tuple[float, float]]:
    """Memory -> the lowest and highest roof of the launches, in bytes a second."""
    roofs: dict[Level, list[float]] = {}
    for item in launches:
        for memory in item.memories:
            roofs.setdefault(memory.level, []).append(memory.peak_bytes_per_second)
    return {level: (min(roofs[level]), max(roofs[level])) for level in Level if level in roofs}
