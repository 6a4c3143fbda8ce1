"""Every launch on the roofs of the GPU at the clocks measured during it: DRAM, L2 and L1, tensor cores and FP units.

The formulas are those of Nsight Compute's roofline sections (SpeedOfLight_RooflineChart and the hierarchical ones for
double, single, half and tensor operations): work and traffic a second, and peaks a cycle times the measured clock.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from fiprof.analysis import checks
from fiprof.analysis.frames import OfLaunch, OfRun, columns
from fiprof.analysis.trace import weights
from fiprof.analysis.verdict.model import Part
from fiprof.model.case_quantities import MODEL_INTENSITY, NCU, NSYS, iterations, kernels
from fiprof.model.finding import Finding, Wording, finding
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import Formula, ratio
from fiprof.model.run import Launch, Run
from fiprof.model.selection import EVERYTHING, Selection, by_key
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
"""FLOP a byte of the busiest traffic, below which a launch only moves memory and has no point. Adding two vectors of
float32 has 0.08, RMSNorm in fp16 some 2; index arithmetic is not floating-point work."""
MODEL = "model"  # the kind of work whose operations are the cost model's
UNCOUNTED_PARTS = {"tensor_active_pct": Part.TENSOR_CORES, "fp64_pct": Part.FP64_PIPE}  # column of PIPES -> its part


class Level(Wording):
    """A memory with a roof."""

    DRAM = "DRAM"
    L2 = "L2"
    L1 = "L1"


TRAFFIC: dict[Level, tuple[Formula, Formula]] = {
    Level.DRAM: (Formula("dram_rate"), Formula("dram_peak")),
    Level.L2: (Formula("l2_bytes_per_second"), Formula("l2_peak")),
    Level.L1: (Formula("l1_bytes_per_second"), Formula("l1_peak")),
}
"""Memory -> its bytes a second, and their peak."""


class Basis(StrEnum):
    """Where a launch's operations come from."""

    COUNTED = "counted"  # ncu's counters
    MODEL = "model"  # the workload's cost model
    TRAFFIC = "traffic"  # hardly any operations: its place is by its bytes
    NONE = "none"


class Work(NamedTuple):
    """A launch's operations of one kind, and the roof for that kind."""

    kind: str
    """``tensor fp16``, ``tensor fp16 mma``, ``fp32``, ``fp16``, ``fp64``; ``model`` where the cost model gives it."""
    ops: float  # operations, a multiply-add being two; of ``tensor int8`` and ``tensor int1`` not floating-point
    ops_per_second: float
    peak_ops_per_second: float | None  # at the clock measured during the launch; None where it was not collected

    @property
    def share(self) -> float | None:
        return ratio(self.ops_per_second, self.peak_ops_per_second)

    @property
    def tflops(self) -> float:
        return self.ops_per_second / 1e12

    @property
    def peak_tflops(self) -> float | None:
        return ratio(self.peak_ops_per_second, 1e12)


class MemoryRoof(NamedTuple):
    """A memory's traffic during a launch, and its roof."""

    level: Level
    bytes_per_second: float
    """DRAM: read and written. L2: sent towards the multiprocessors. L1: written back to registers; TMA bypasses it."""
    peak_bytes_per_second: float  # at the memory's clock measured during the launch
    flop_per_byte: float | None  # arithmetic intensity: the launch's main work over this traffic; None without either
    ridge_flop_per_byte: float | None  # the intensity where this roof meets that of the main work

    @property
    def share(self) -> float:
        return self.bytes_per_second / self.peak_bytes_per_second


@dataclass(frozen=True)
class LaunchRoofline(OfLaunch):
    basis: Basis
    work: Work | None  # the launch's main work, whose roof is used most; intensities are of this work
    works: tuple[Work, ...]  # every kind that ncu counted, without those that are zero
    memories: tuple[MemoryRoof, ...]  # DRAM, L2, L1, as far as they were collected
    model_flop_per_byte: float | None  # of the launch's case, all kernels together, by the cost model
    floats_counted: bool
    """Whether operations outside the tensor cores were counted; if not, only roofs of the tensor cores are known."""
    remark: Finding | None = None  # why it has no point, or what is special about it

    @property
    def roofs(self) -> dict[str, float]:
        """Name of a roof -> the operations a second that it allows at this launch's intensities."""
        if self.work is None:
            return {}
        peak = self.work.peak_ops_per_second
        intensities = ((each, each.flop_per_byte) for each in self.memories if each.flop_per_byte is not None)
        memories = {str(each.level): each.peak_bytes_per_second * intensity for each, intensity in intensities}
        return ({} if peak is None else {self.work.kind: peak}) | memories

    @property
    def busiest(self) -> MemoryRoof | None:
        """The memory that is closest to its roof."""
        return max(self.memories, key=lambda memory: memory.share, default=None)

    @property
    def roof(self) -> str | None:
        """The roof that limits: the lowest; of a launch without work that of its busiest memory."""
        if self.basis is Basis.TRAFFIC and self.busiest is not None:
            return self.busiest.level
        return min(self.roofs, key=self.roofs.__getitem__, default=None)

    @property
    def attainable_ops_per_second(self) -> float | None:
        """The operations a second that the limiting roof allows."""
        return min(self.roofs.values(), default=None)

    @property
    def share(self) -> float | None:
        """Achieved over attainable operations a second; without work, the same of its busiest memory's bytes."""
        if self.basis is Basis.TRAFFIC and self.busiest is not None:
            return self.busiest.share
        return None if self.work is None else ratio(self.work.ops_per_second, self.attainable_ops_per_second)

    def memory(self, level: Level) -> MemoryRoof | None:
        return next((memory for memory in self.memories if memory.level == level), None)

    def point(self, memory: MemoryRoof, left: float) -> tuple[float, float] | None:
        """Its point in a chart: intensity of a memory, FLOP/byte, and operations a second; None without a point.

        left: the chart's lowest intensity, where a launch without work is shown, as far below the roof of its busiest
        memory as its bytes are.
        """
        if self.basis is Basis.TRAFFIC and memory == self.busiest:
            return left, left * memory.bytes_per_second
        if self.work is None or not memory.flop_per_byte:
            return None
        return memory.flop_per_byte, self.work.ops_per_second


CASES = columns("roofline_cases")
"""A row is an iteration of a case, all its kernels together, with the least work and bytes of its cost model. roof: the
lower of DRAM's and that of the longest kernel's main work. share is above 1 where L2 keeps bytes of the model."""


def roofline(run: Run, *, wanted: Selection = EVERYTHING) -> OfRun[LaunchRoofline, Mapping[str, Any]]:
    """Every launch of a run on the roofs, in the order of the launches; and rows of CASES, for the launches' cases with
    operations and bytes in their cost model.

    Raises FiprofError where the run has no launches under ncu, or no launch is left.
    """
    launches = tuple(place(launch, run) for launch in run.selected(wanted, weights(run)))
    ids = {item.case for item in launches}
    cases = (_case(case, run) for case in run.manifest.cases if case.id in ids)
    warnings = (
        *run.status_warning(),
        *run.uncollected("SpeedOfLight", "MemoryWorkloadAnalysis"),
        *checks.of_run(checks.failed(run)),
    )
    return OfRun(launches, warnings, weights(run), tuple(filter(None, cases)))


def place(row: Launch, run: Run) -> LaunchRoofline:
    """A launch on the roofs."""
    works = tuple(
        Work(kind, ops, rate, peak_of(kind).value(row))
        for kind in counted_works(row)
        if (ops := ops_of(kind).value(row)) and (rate := per_second(ops_of(kind)).value(row))
    )
    traffic = [
        (level, moved, most)
        for level, (rate, peak) in TRAFFIC.items()
        if (moved := rate.value(row)) is not None and (most := peak.value(row))
    ]
    most_moved = max((moved for _, moved, _ in traffic), default=0.0)
    work, remark = next((work for work in works if work.kind == main_work(row)), None), None
    basis = Basis.NONE if work is None else Basis.COUNTED
    if work is None:
        work, remark = _by_model(row, run)
        basis = Basis.NONE if work is None else Basis.MODEL
    little = work is not None and work.ops_per_second < LEAST_INTENSITY * most_moved
    if little or (work is None and remark is None and traffic):
        intensity = work.ops_per_second / most_moved if work is not None else 0.0
        level, moved, most = max(traffic, key=lambda each: each[1] / each[2])
        words = "hardly any floating-point work ({flop_per_byte:.4f} FLOP/byte): it stands by its bytes, {share:.1%} "
        words += "of the {level} roof"
        remark = finding("moves_memory", words, flop_per_byte=intensity, level=level, share=moved / most)
        work, basis = None, Basis.TRAFFIC
    elif work is None and remark is None:
        remark = finding("nothing_collected", "neither floating-point work nor traffic was collected")
    elif work is not None and not traffic and work.peak_ops_per_second is None:
        work, basis, remark = None, Basis.NONE, finding("no_roof", "no roof was collected")
    ops, peak = (work.ops_per_second, work.peak_ops_per_second) if work is not None else (None, None)
    memories = (MemoryRoof(level, moved, most, ratio(ops, moved), ratio(peak, most)) for level, moved, most in traffic)
    by_model, counted = MODEL_INTENSITY.of(run, row.case), FLOAT_OPS["fp32"].value(row) is not None
    placed = LaunchRoofline(row, basis, work, works, tuple(memories), by_model, counted, remark)
    if work is not None and placed.roof == work.kind and work.kind.endswith(" mma"):
        return dataclasses.replace(placed, remark=mma_remark(row, work.kind))
    return placed


def mma_remark(row: Launch, kind: str) -> Finding | None:
    """A remark that a launch's tensor work was done by mma, not wgmma; None where peaks or times are not known."""
    peak, fast = peak_of(kind).value(row), wgmma_peak(kind.split()[1]).value(row)
    rate = per_second(ops_of(kind)).value(row)
    if not peak or not fast or rate is None:
        return None
    words = "its tensor operations are instructions of a warp (mma), whose roof is {roof_tflops:.1f} TFLOP/s; those "
    words += "of a warpgroup (wgmma) reach {wgmma_tflops:.1f}, of which it has {wgmma_share:.1%}"
    return finding("mma", words, roof_tflops=peak / 1e12, wgmma_tflops=fast / 1e12, wgmma_share=rate / fast)


def _by_model(row: Launch, run: Run) -> tuple[Work | None, Finding | None]:
    """The cost model's work for a launch without counted operations, and a remark; None where all were counted."""
    pipe = uncounted_pipe(row)
    if FLOAT_OPS["fp32"].value(row) is not None and pipe is None:
        return None, None
    case, seconds = run.case(row.case) if row.case else None, Formula("seconds").value(row)
    alone = case is not None and iterations(run)[row.case, row.iteration][0] == 1
    if pipe is None and case is not None and not case.flops and case.bytes_read + case.bytes_written:
        return None, None
    work = Work(MODEL, case.flops, case.flops / seconds, None) if case and case.flops and alone and seconds else None
    if pipe is not None:
        words = "{part} {use_pct:.1f}% active and their operations not counted: no roof for them; the cost model's "
        words += "operations, where there are some, are compared with the memory roofs alone"
        use = PIPES[pipe][0].value(row)
        return work, finding("uncounted", words, part=UNCOUNTED_PARTS[pipe], use_pct=use)
    kind, words = "model_of_several", ", and the cost model gives those of all kernels of the case together"
    if work is not None:
        kind, words = "by_model", ": they are those of the cost model, compared with the memory roofs alone"
    elif case is None or not case.flops:
        kind, words = "no_model", ", and no cost model gives them"
    elif alone:
        return work, finding("no_duration", "its duration was not collected")
    return work, finding(kind, "no operations were counted" + words)


def _case(case: CaseEntry, run: Run) -> Mapping[str, Any]:
    """The row of CASES of a case; empty without a cost model or a time."""
    intensity, duration_us = MODEL_INTENSITY.of(run, case.id), NCU.of(run, case.id)
    if not intensity or not duration_us:
        return {}
    longest = max(run.launches_of[case.id], key=lambda launch: launch.duration_us or 0.0)
    kind, bandwidth = main_work(longest), Formula("dram_peak").value(longest)
    roofs: dict[str, float] = {}
    if kind is not None and (peak := peak_of(kind).value(longest)) is not None:
        roofs[kind] = peak
    if bandwidth is not None:
        roofs[Level.DRAM] = bandwidth * intensity
    ops_per_second, attainable = case.flops / duration_us * 1e6, min(roofs.values(), default=None)
    return {
        "case": case.id, "label": run.labels(case.id), "kernels": kernels(run, case.id) or 0,
        "nsys_us": NSYS.of(run, case.id), "duration_us": duration_us, "gflop": case.flops / 1e9,
        "moved_mb": (case.bytes_read + case.bytes_written) / 1e6, "flop_per_byte": intensity,
        "tflops": ops_per_second / 1e12, "attainable_tflops": ratio(attainable, 1e12),
        "share": ratio(ops_per_second, attainable), "roof": min(roofs, key=roofs.__getitem__, default=None),
    }  # fmt: skip


def compute_roofs(launches: Iterable[LaunchRoofline]) -> dict[str, tuple[float, float]]:
    """Kind of work -> the lowest and highest roof of the launches, in operations a second, the highest roof first.
    Those of tensor kinds and FP64 only where they are the main work of a launch."""
    works = ((work, item.work) for item in launches for work in item.works)
    shown = (work for work, main in works if work.kind in ("fp32", "fp16") or work == main)
    roofs = by_key((work.kind, peak) for work in shown if (peak := work.peak_ops_per_second) is not None)
    return {kind: (min(roofs[kind]), max(roofs[kind])) for kind in sorted(roofs, key=lambda kind: -max(roofs[kind]))}


def memory_roofs(launches: Iterable[LaunchRoofline]) -> dict[Level, tuple[float, float]]:
    """Memory -> the lowest and highest roof of the launches, in bytes a second."""
    roofs = by_key((memory.level, memory.peak_bytes_per_second) for item in launches for memory in item.memories)
    return {level: (min(roofs[level]), max(roofs[level])) for level in Level if level in roofs}
