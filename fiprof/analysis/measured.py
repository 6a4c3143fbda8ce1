"""What was measured of a run's kernels, as facts: launches under ncu, alike ones folded; executions under nsys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fiprof.analysis.roofline import LaunchRoofline, Rooflines, Work, roofline
from fiprof.analysis.show import Figures, show
from fiprof.analysis.stalls import StallReport, stalls
from fiprof.analysis.times import Times, summarize
from fiprof.model import derived, metrics, source
from fiprof.model.evidence import Evidence, float_ops
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.model.provenance import RATIO, SUM, Fact, Source
from fiprof.model.run import Run

_METRICS = {metric.name: metric for metric in metrics.METRICS}
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
"""ncu's metric of a stall reason, in warps an issued instruction."""


@dataclass(frozen=True)
class Group:
    """Launches of the same kernel in the same case with the same grid and block, under ncu."""

    case: str | None
    """Case id; None outside the cases' ranges."""
    label: str
    """The case in short."""
    kernel: str
    kernel_full: str
    grid: str
    block: str
    rows: tuple[source.Row, ...]
    """Of the table ``launches``, in its order."""

    @cached_property
    def row(self) -> source.Row:
        """The launch whose duration is the median (of two the shorter): its figures stand for the group's."""
        ordered = sorted(self.rows, key=lambda row: row["duration_ns"] or 0.0)
        return ordered[(len(ordered) - 1) // 2]

    @property
    def launch(self) -> int:
        """ncu's ID of that launch."""
        return int(self.row["launch"])

    @cached_property
    def times(self) -> Times | None:
        """Of all its launches, by ncu."""
        return summarize([row["duration_ns"] / 1e3 for row in self.rows if row["duration_ns"] is not None])

    @property
    def total_us(self) -> float:
        """All its launches together, by ncu; 0 where no duration was collected."""
        return sum(row["duration_ns"] or 0.0 for row in self.rows) / 1e3

    @property
    def anchor(self) -> str:
        """Of its part of the report."""
        return f"launch-{self.launch}"


class Measured:
    """A run's facts.

    Raises FiprofError for a table that is there and cannot be read.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.evidence = Evidence(run)
        self.labels = Labels(run.manifest.cases)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The launches under ncu, alike ones folded, in the order of their first launch."""
        found: dict[tuple[str | None, ...], list[source.Row]] = defaultdict(list)
        for row in self.evidence.launches:
            found[row["case"], row["kernel"], row["kernel_full"], row["grid"], row["block"]].append(row)
        return tuple(
            Group(case, self.labels(case), kernel or "", full or kernel or "", grid or "", block or "", tuple(rows))
            for (case, kernel, full, grid, block), rows in found.items()
        )

    @cached_property
    def longest(self) -> tuple[Group, ...]:
        """The same, the one first that takes most time of an iteration."""
        return tuple(sorted(self.groups, key=lambda group: -(group.total_us / max(self.iterations(group), 1))))

    def iterations(self, group: Group) -> int:
        """Iterations of its case that ncu saw."""
        return len({row["iteration"] for row in self.evidence.of(group.case)}) if group.case else 1

    @cached_property
    def roofs(self) -> Rooflines:
        """The launches on the roofs. Raises FiprofError without ncu."""
        return roofline(self.run)

    @cached_property
    def rooflines(self) -> dict[int, LaunchRoofline]:
        """Launch -> its place on the roofs; empty without ncu."""
        return {item.launch: item for item in self.roofs.launches} if self.evidence.launches else {}

    @cached_property
    def stalls(self) -> StallReport:
        """What ``fiprof stalls`` shows. Raises FiprofError without any."""
        return stalls(self.run)

    @cached_property
    def figures(self) -> Figures:
        """What ``fiprof show`` shows of every launch."""
        return show(self.run)

    # ncu

    @cached_property
    def _collected(self) -> frozenset[str]:
        """ncu's names that the run has, where a metric has several."""
        import pyarrow.compute as pc

        if not self.run.has("metrics"):
            return frozenset()
        return frozenset(filter(None, pc.unique(self.run.table("metrics")["metric"].combine_chunks()).to_pylist()))

    def name(self, column: str) -> str:
        """ncu's name of a column of ``launches`` in this run."""
        names = _METRICS[column].ncu
        return next((name for name in names if len(names) > 1 and name in self._collected), names[0])

    def ncu(self, row: source.Row, column: str, spec: str = ".2f", unit: str = "", divide: float = 1) -> Fact | None:
        """A launch's column, divided; None where it was not collected."""
        value = row.get(column)
        if value is None:
            return None
        formula = self.name(column) + (f" / {divide:g}" if divide != 1 else "")
        return Fact(value / divide, Source("ncu", formula, launch=row["launch"]), spec, unit)

    def duration(self, row: source.Row) -> Fact | None:
        """A launch's duration by ncu, in µs."""
        return self.ncu(row, "duration_ns", ",.2f", " µs", 1000)

    def stall(self, row: source.Row, reason: str, value: float) -> Fact:
        """A reason's share of the warps' time, by the counters. value: the share, 0 to 1."""
        formula = f"{STALL.format(reason)} / sum({STALL.format('*')})"
        return Fact(value, Source("ncu", formula, launch=row["launch"]), ".0%")

    def work(self, row: source.Row, work: Work) -> Fact:
        """Operations a second of a launch, in TFLOP/s."""
        formula = f"{self._ops(row, work)} / {self.name('duration_ns')} / 1000"
        return Fact(work.ops_per_second / 1e12, Source("ncu", formula, launch=row["launch"]), ",.2f", " TFLOP/s")

    def work_share(self, row: source.Row, work: Work) -> Fact | None:
        """The same over its roof; None where that was not collected."""
        if work.share is None:
            return None
        ops, clock = self._ops(row, work), self.name("sm_clock_hz")
        formula = f"{ops} / {self.name('duration_ns')} * 1e9 / ({self.name(_peak(work))} * {clock})"
        return Fact(work.share, Source("ncu", formula, launch=row["launch"]), ".1%")

    def dram_share(self, row: source.Row) -> Fact | None:
        """DRAM's bytes a second over the peak at the measured clock."""
        moved, peak = derived.number(row, "dram_bytes_per_second"), derived.dram_peak_bytes_per_second(row)
        if moved is None or not peak:
            return None
        names = [self.name(each) for each in ("dram_bytes_per_second", "dram_peak_bytes_per_cycle", "dram_clock_hz")]
        formula = f"{names[0]} / ({names[1]} * {names[2]})"
        return Fact(moved / peak, Source("ncu", formula, launch=row["launch"]), ".1%")

    def ratio(self, row: source.Row, above: str, below: str, spec: str = ".2f", unit: str = "") -> Fact | None:
        """One column over another; None where one was not collected or the second is zero."""
        part, whole = derived.number(row, above), derived.number(row, below)
        if part is None or not whole:
            return None
        formula = f"{self.name(above)} / {self.name(below)}"
        return Fact(part / whole, Source("ncu", formula, launch=row["launch"]), spec, unit)

    def work_factor(self, case: CaseEntry) -> Fact | None:
        """Operations that ncu counted in an iteration over those of the cost model, as the check ``flops`` takes them:
        tensor operations where there are any, else those outside the tensor cores without half additions.

        None without a cost model, and where ncu saw several iterations or did not count.
        """
        rows = self.evidence.of(case.id)
        if not rows or not case.flops or len({row["iteration"] for row in rows}) > 1:
            return None
        tensor = [derived.tensor_ops(row) for row in rows]
        counted = tensor if any(tensor) else [float_ops(row) for row in rows]
        known = [value for value in counted if value is not None]
        if len(known) < len(rows):
            return None
        formulas = [self._tensor_sum(row) if any(tensor) else self._float_sum(row) for row in rows]
        parts = [
            *(Source("ncu", formula, launch=row["launch"]) for formula, row in zip(formulas, rows, strict=True)),
            Source("run.json", "flops", case=case.id),
        ]
        return Fact(sum(known) / case.flops, Source("facts", RATIO, parts=tuple(parts)))

    def _tensor_sum(self, row: source.Row) -> str:
        names = (f"tensor_ops_{kind}" for kind in metrics.TENSOR_KINDS)
        return " + ".join(self.name(name) for name in names if row.get(name) is not None)

    def _float_sum(self, row: source.Row) -> str:
        counted = derived.float_ops(row)
        terms = [
            self._instructions(row, inst, factor)
            for precision, insts in _OPS.items()
            if precision in counted
            for inst, factor in insts.items()
            if inst != "hadd"
        ]
        return " + ".join(terms)

    def _ops(self, row: source.Row, work: Work) -> str:
        if work.kind.startswith("tensor"):
            return self.name(f"tensor_ops_{work.kind.split()[1]}")
        return f"({' + '.join(self._instructions(row, *item) for item in _OPS[work.kind].items())})"

    def _instructions(self, row: source.Row, inst: str, factor: int) -> str:
        """Operations of an instruction: its count, or its rate x the cycles where ncu gives only that."""
        count = f"{inst}_thread_insts"
        if row.get(count) is not None:
            name = self.name(count)
        else:
            name = f"{self.name(f'{count}_per_cycle')} * {self.name('sm_cycles')}"
        return f"{factor} * {name}" if factor != 1 else name

    # nsys and the plain run

    def nsys_kernel(self, case: str | None, kernel: str, what: str = "median") -> Fact | None:
        """Median (µs) or spread of a kernel's executions in a case; None where nsys did not see it."""
        times = self.evidence.trace.kernels.get((case or "", kernel))
        return None if times is None else _time(times, what, Source("nsys", "duration_ns", case=case, kernel=kernel))

    def nsys_iteration(self, case: str, what: str = "median") -> Fact | None:
        """Median (µs) or spread of the kernel time of an iteration."""
        times = self.evidence.trace.cases.get(case)
        return None if times is None else _time(times.iteration, what, Source("nsys", "iteration_ns", case=case))

    def plain_iteration(self, case: str, what: str = "median") -> Fact | None:
        """Median (µs) or spread of an iteration without a profiler."""
        times = self.evidence.plain.get(case)
        return None if times is None else _time(times, what, Source("plain", "gpu_us", case=case))

    def ncu_iteration(self, case: str) -> Fact | None:
        """Kernel time of an iteration under ncu, µs; None where ncu saw several iterations or none."""
        rows = self.evidence.of(case)
        if not rows or len({row["iteration"] for row in rows}) > 1:
            return None
        facts = [self.duration(row) for row in rows]
        return total([fact for fact in facts if fact is not None]) if None not in facts else None

    def kernel_time(self, case: str) -> Fact | None:
        """Kernel time of an iteration in µs: nsys's, else ncu's."""
        return self.nsys_iteration(case) or self.ncu_iteration(case)


def total(facts: Sequence[Fact]) -> Fact | None:
    """The sum, written as the first; None for none."""
    if len(facts) < 2:
        return facts[0] if facts else None
    source = Source("facts", SUM, parts=tuple(fact.source for fact in facts))
    return Fact(sum(fact.value for fact in facts), source, facts[0].spec, facts[0].unit)


_OPS = {
    "fp32": {"fadd": 1, "fmul": 1, "ffma": 2},
    "fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
    "fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
}


def _peak(work: Work) -> str:
    """The column with the most operations of its kind in a cycle."""
    if not work.kind.startswith("tensor"):
        return f"{work.kind}_peak_ops_per_cycle"
    kind = work.kind.split()[1]
    return f"{'mma' if work.kind.endswith(' mma') else 'tensor'}_peak_{kind}_ops_per_cycle"


def _time(times: Times, what: str, of: Source) -> Fact:
    quantity = of.formula
    if what == "spread":
        return Fact(times.spread, _with(of, f"spread({quantity})"), ".1%")
    if what == "count":
        return Fact(times.count, _with(of, f"count({quantity})"), ".0f")
    per_us = "" if of.origin == "plain" else " / 1000"
    return Fact(times.median_us, _with(of, f"median({quantity}){per_us}"), ",.2f", " µs")


def _with(of: Source, formula: str) -> Source:
    return Source(of.origin, formula, case=of.case, kernel=of.kernel, grid=of.grid, phase=of.phase)
