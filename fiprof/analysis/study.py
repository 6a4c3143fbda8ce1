"""A study's results: its cases, what varies among them, pairs, the fastest ways; and all of it as one frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fiprof import confined
from fiprof.analysis import alternatives
from fiprof.analysis.alternatives import Alternative
from fiprof.analysis.case_names import Params, Value, is_number, parameter_words, same, short
from fiprof.analysis.frames import Column, Frame
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.analysis.verdict.model import Kind, Part, named
from fiprof.errors import FiprofError
from fiprof.model import kernel_info
from fiprof.model.finding import Finding, finding
from fiprof.model.results import ENVIRONMENT, RESULTS, CaseResult, EnvironmentInfo, Kernel, KernelResults, read

FEWEST_ON_AXIS = 3
"""A number with so many values in a workload is an axis that its times are fitted along; with fewer, an option."""

Pair = tuple[CaseResult, CaseResult]


@dataclass(frozen=True)
class Study:
    """What a study folder holds."""

    folder: Path
    info: EnvironmentInfo
    results: tuple[KernelResults, ...]

    @cached_property
    def by_workload(self) -> dict[str, tuple[CaseResult, ...]]:
        """Workload -> its cases, those skipped too, in the study's order."""
        found: dict[str, list[CaseResult]] = {}
        for results in self.results:
            for case in results.cases:
                found.setdefault(case.workload, []).append(case)
        return {name: tuple(cases) for name, cases in found.items()}

    @cached_property
    def measured(self) -> tuple[CaseResult, ...]:
        """Every case with a plain time."""
        return tuple(case for cases in self.by_workload.values() for case in cases if case.plain is not None)

    def of(self, workload: str) -> tuple[CaseResult, ...]:
        """A workload's measured cases."""
        return tuple(case for case in self.by_workload.get(workload, ()) if case.plain is not None)

    def varied(self, workload: str) -> dict[str, tuple[Value, ...]]:
        """Parameter -> its values among all cases of a workload, numbers sorted; only those that vary."""
        return self._varied.get(workload, {})

    @cached_property
    def _varied(self) -> dict[str, dict[str, tuple[Value, ...]]]:
        found: dict[str, dict[str, dict[Value, None]]] = {}
        for workload, cases in self.by_workload.items():
            for case in cases:
                for name, value in case.params.items():
                    found.setdefault(workload, {}).setdefault(name, {})[value] = None
        return {
            workload: {
                name: tuple(sorted(values, key=float)) if all(map(is_number, values)) else tuple(values)
                for name, values in params.items()
                if len(values) > 1
            }
            for workload, params in found.items()
        }

    def axes(self, workload: str) -> tuple[str, ...]:
        """The parameters that sizes vary along: numbers with FEWEST_ON_AXIS values or more."""
        varied = self.varied(workload).items()
        return tuple(name for name, values in varied if len(values) >= FEWEST_ON_AXIS and all(map(is_number, values)))

    def options(self, workload: str) -> tuple[str, ...]:
        """The other parameters that vary."""
        axes = self.axes(workload)
        return tuple(name for name in self.varied(workload) if name not in axes)

    @property
    def l2_bytes(self) -> int | None:
        """Size of the GPU's L2 cache; None where the environment does not tell."""
        found = (self.info.environment.get("gpu") or {}).get("l2_bytes")
        return found if isinstance(found, int) else None

    @cached_property
    def alternatives(self) -> Mapping[str, Alternative]:
        """Case id -> its fastest alternative in the study; only cases that have one."""
        return alternatives.of_cases(self.measured)

    @cached_property
    def unbeaten(self) -> tuple[CaseResult, ...]:
        """The measured cases whose problem nothing else is certain to solve faster."""
        return tuple(case for case in self.measured if case.id not in self.alternatives)

    @cached_property
    def fastest(self) -> tuple[CaseResult, ...]:
        """The fastest way to solve each problem of the study, in its order."""
        return self._in_order(self._fastest_of(solving) for solving in alternatives.by_problem(self.measured))

    @cached_property
    def largest(self) -> tuple[CaseResult, ...]:
        """Each model shape (what is neither a size nor an option of solving) at its largest size, solved the fastest
        way, in the study's order."""
        found: dict[object, tuple[CaseResult, ...]] = {}
        for solving in alternatives.by_problem(self.measured):
            workload, defining = alternatives.problem(solving[0].workload, solving[0].params)
            axes = self.axes(solving[0].workload)
            key = workload, frozenset((name, value) for name, _, value in defining if name not in axes)
            if key not in found or size(solving[0]) > size(found[key][0]):
                found[key] = solving
        return self._in_order(map(self._fastest_of, found.values()))

    def _fastest_of(self, solving: tuple[CaseResult, ...]) -> CaseResult:
        """Of the cases that nothing is certain to beat, and that are as fast as each other, the study's first."""
        kept = [case for case in solving if case.id not in self.alternatives] or list(solving[:1])
        most_us = _us(kept[0]) * (1 + WORTH_CHANGING.share)
        return self._in_order(case for case in kept if _us(case) <= most_us)[0]

    def _in_order(self, cases: Iterable[CaseResult]) -> tuple[CaseResult, ...]:
        return tuple(sorted(cases, key=lambda case: self._places[case.id]))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {case.id: index for index, case in enumerate(self.measured)}


def _us(case: CaseResult) -> float:
    return case.plain.median_us if case.plain else 0.0


def load(folder: Path) -> Study:
    """A study's results.

    Raises FiprofError where ``results/environment_info.json`` or a workload's file is missing, damaged or of another
    schema, or there is no result at all.
    """
    results = folder / RESULTS
    info = read(_inside(folder, ENVIRONMENT), EnvironmentInfo)
    if not info.workloads and len(list(results.glob("*.json"))) < 2:
        raise FiprofError(f"{results} has no results of any kernel", "fiprof study NAME measures them")
    return Study(folder, info, tuple(read(_inside(folder, f"{name}.json"), KernelResults) for name in info.workloads))


def _inside(folder: Path, name: str) -> Path:
    """The path of one of a study's results. Raises FiprofError where a link or a name leads out of its folder."""
    try:
        confined.exists(folder, f"{RESULTS}/{name}")
    except ValueError as error:
        raise FiprofError(f"{folder / RESULTS / ENVIRONMENT}: {error}", "its workloads are names of results") from error
    return folder / RESULTS / name


# Pairs


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a workload with some parameters."""

    workload: str
    params: tuple[tuple[str, Value], ...] = ()


def side(workload: str, **params: Value) -> Side:
    """E.g. ``side("decode", cuda_graph=True)``."""
    return Side(workload, tuple(params.items()))


def matches(case: CaseResult, params: Params) -> bool:
    """Whether a case has these parameters' values."""
    return all(name in case.params and same(case.params[name], value) for name, value in params.items())


def pairs(study: Study, one: Side, other: Side) -> list[Pair]:
    """Measured cases of the two sides that agree in every parameter that neither side names.

    In the order of the study.
    """
    named_ = {name for name, _ in (*one.params, *other.params)}

    def rest(case: CaseResult) -> frozenset[tuple[str, Value, bool]]:
        return frozenset((k, v, isinstance(v, bool)) for k, v in case.params.items() if k not in named_)

    others = {rest(case): case for case in study.of(other.workload) if matches(case, dict(other.params))}
    ones = (case for case in study.of(one.workload) if matches(case, dict(one.params)))
    return [(case, others[rest(case)]) for case in ones if rest(case) in others]


def fastest_pairs(study: Study, one: Side, other: Side) -> list[Pair]:
    """The fastest cases of the problems of two sides, paired where nothing else differs: what a model's choice does.

    None where a side names an option of solving: :func:`pairs` has those that differ in it.
    """
    named_ = {name for each in (one, other) for name, _ in each.params}
    sides: tuple[dict[object, CaseResult], dict[object, CaseResult]] = ({}, {})
    for case in study.fastest:
        _, defining = alternatives.problem(case.workload, case.params)
        if named_ <= {name for name, _, _ in defining}:
            rest = frozenset(item for item in defining if item[0] not in named_)
            for found, each in zip(sides, (one, other), strict=True):
                if case.workload == each.workload and matches(case, dict(each.params)):
                    found[rest] = case
    return [(case, sides[1][rest]) for rest, case in sides[0].items() if rest in sides[1]]


# Why there is nothing


def absence(study: Study, workload: str, params: Params | None = None) -> Finding:
    """Why there is no measured case of a workload with these parameters."""
    wanted = params or {}
    cases = study.by_workload.get(workload)
    others = {kernel_info.of_parameter(name).of for name in wanted}
    words = parameter_words({name: value for name, value in wanted.items() if name not in others}, wanted)
    matching = [case for case in cases or () if matches(case, wanted)]
    if not matching:
        if not cases or not words:
            return finding("workload", "the study has no {workload} cases", workload=workload)
        template = "the study has no {workload} case with {params}"
        return finding("parameters", template, workload=workload, params=words)
    values = {"workload": workload, "count": len(matching)}
    if reasons := tuple(dict.fromkeys(case.skipped for case in matching if case.skipped)):
        more = f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else ""
        template = "{count:{workload} case has|{workload} cases have} no time: {reason}"
        return finding("skipped", template, **values, reason=reasons[0] + more)
    if any(case.plain for case in matching):
        template = "what it needs of {count:{workload} case|{workload} cases} was not recorded"
        return finding("record", template, **values)
    return finding("time", "{count:{workload} case has|{workload} cases have} no plain time", **values)


def absent_pair(study: Study, *sides: Side) -> Finding:
    """Why no two measured cases of the sides are a pair."""
    for each in sides:
        if not any(matches(case, dict(each.params)) for case in study.of(each.workload)):
            return absence(study, each.workload, dict(each.params))
    return finding("pair", "no two measured cases differ in this alone")


# Figures of a case


def size(case: CaseResult) -> tuple[int, int]:
    """To sort cases by: least bytes, then operations."""
    return (least_bytes(case), case.flops)


def least_bytes(case: CaseResult) -> int:
    """Bytes that the algorithm needs to read and write."""
    return case.bytes_read + case.bytes_written


def main_kernel(case: CaseResult) -> Kernel | None:
    """The kernel that took most of the iteration's time under ncu; None where ncu did not see the case."""
    return max(case.kernels, key=lambda kernel: kernel.duration_us or 0.0, default=None)


def kernel_share(case: CaseResult, part: str) -> float:
    """Part of an iteration's kernel time in kernels with this in their name; 0 where none ran or has no time."""
    durations = [(kernel.kernel, kernel.duration_us) for kernel in case.kernels]
    total = sum(duration or 0.0 for _, duration in durations)
    if not part or not total or any(duration is None for _, duration in durations):
        return 0.0
    return sum(duration or 0.0 for name, duration in durations if part in name) / total


def dram_bytes(case: CaseResult) -> float | None:
    """Counted DRAM bytes of an iteration; None where a kernel's were not counted."""
    counted = [kernel.dram_bytes for kernel in case.kernels]
    known = [value for value in counted if value is not None]
    return sum(known) if counted and len(known) == len(counted) else None


def top_stalls(kernel: Kernel, most: int = 2) -> list[tuple[str, float]]:
    """The largest warp states with their shares."""
    return sorted(kernel.stalls.items(), key=lambda item: -item[1])[:most]


def half_width(case: CaseResult) -> float:
    """Half of the interval of the plain median, as a part of it; 0 where it has no time."""
    plain = case.plain
    return (plain.high_us - plain.low_us) / 2 / plain.median_us if plain and plain.median_us else 0.0


# The frame

COLUMNS = (
    Column("workload", "kernel", meaning="the workload"),
    Column(
        "case", "case", meaning="sizes first (1k = 1,024), then the options; TC: tensor cores, graph: from a CUDA graph"
    ),
    Column("plain_us", "time", "µs", ",.2f", "median of an iteration between CUDA events, without a profiler"),
    Column("half_pct", "±", "%", ".1f", "half of the interval of that median"),
    Column("nsys_us", "nsys", "µs", ",.2f", "kernel time of the same iterations under nsys"),
    Column("ncu_us", "ncu", "µs", ",.2f", "kernel time under ncu, caches flushed"),
    Column("wall_us", "host", "µs", ",.1f", "host time of the calls, back to back"),
    Column("tflops", "TFLOP/s", "", ",.1f", "least operations over the time"),
    Column("gb_per_s", "GB/s", "", ",.0f", "least bytes over the time: above DRAM's peak where data stays in L2"),
    Column("bound", "bound", meaning="verdict of the kernel that takes most of the time"),
    Column("roof_pct", "of roof", "%", ".0f", "achieved share of the lowest roof at that kernel's intensity"),
    Column("roof", "roof", meaning="which roof that is"),
    Column("intensity", "FLOP/byte", "", ",.1f", "least operations over the DRAM bytes that ncu counted"),
    Column("tensor_pct", "tensor", "%", ".0f", "use of the tensor cores, of their peak"),
    Column("dram_pct", "DRAM", "%", ".0f", "use of DRAM, of its peak"),
    Column("l2_pct", "L2", "%", ".0f", "use of the L2 cache, of its peak"),
    Column("l2_hit_pct", "L2 hits", "%", ".0f", "requests to L2 that it served"),
    Column("occupancy", "occupancy", "%", meaning="achieved of theoretical, and what limits it"),
    Column("waves", "waves", "", ".2f", "how many times the grid fills all block slots"),
    Column("stalls", "warps", meaning="largest states of the warps, of all their time"),
    Column("least_mb", "least", "MB", ",.2f", "bytes that the algorithm has to move"),
    Column("dram_mb", "moved", "MB", ",.2f", "DRAM bytes that ncu counted"),
    Column("traffic", "moved/least", "", ".2f", "the one over the other"),
    Column("dram_roof_pct", "least of DRAM", "%", ".0f", "least bytes over the time, of DRAM's peak"),
    Column("shared_kb", "shared", "kB/block", ".1f", "shared memory of a block"),
    Column("registers", "regs", "/thread", "d", "registers of a thread"),
    Column("grid", "grid", meaning="blocks"),
    Column("block", "block", meaning="threads of a block"),
    Column("kernel", "main kernel", meaning="the kernel that takes most of the time"),
    Column("run", "run", meaning="the run that holds the case"),
    Column("skipped", "not measured", meaning="why it has no time"),
)


def frame(study: Study) -> Frame:
    """Every case of a study, a row each: times, rates and the figures of its main kernel; its parameters too."""
    cases = [case for cases in study.by_workload.values() for case in cases]
    return Frame(COLUMNS, [{**case.params, **row(study, case)} for case in cases])


def row(study: Study, case: CaseResult) -> dict[str, Any]:
    """A case's row of that frame, without its parameters."""
    kernel, moved, least = main_kernel(case), dram_bytes(case), least_bytes(case)
    found = {
        "workload": case.workload,
        "case": short(study, case),
        "plain_us": case.plain.median_us if case.plain else None,
        "half_pct": 100 * half_width(case) if case.plain else None,
        "nsys_us": case.nsys.median_us if case.nsys else None,
        **{name: getattr(case, name) for name in ("ncu_us", "wall_us", "tflops", "gb_per_s", "run", "skipped")},
        "intensity": case.flops / moved if moved and case.flops else None,
        "least_mb": least / 1e6,
        "dram_mb": None if moved is None else moved / 1e6,
        "traffic": moved / least if moved is not None and least else None,
        "dram_roof_pct": _percent(case.gb_per_s_roof_share),
    }
    names = ("l2_pct", "l2_hit_pct", "dram_pct", "waves", "grid", "block", "kernel", "roof")
    of_kernel = {name: getattr(kernel, name) if kernel else None for name in names}
    if kernel is not None:
        achieved, most = kernel.achieved_occupancy_pct, kernel.theoretical_occupancy_pct
        held = f"{achieved:.0f} of {most:.0f}" if achieved is not None and most is not None else None
        shared = kernel.shared_bytes_per_block
        of_kernel |= {
            "bound": bound(kernel),
            "roof_pct": _percent(kernel.roof_share),
            "tensor_pct": kernel.tensor_active_pct,
            "occupancy": held and ", ".join([held, *kernel.occupancy_limiters]),
            "stalls": ", ".join(f"{name} {share:.0%}" for name, share in top_stalls(kernel)) or None,
            "shared_kb": None if shared is None else shared / 1e3,
            "registers": kernel.registers_per_thread,
        }
    return {**dict.fromkeys((column.key for column in COLUMNS), None), **found, **of_kernel}


def bound(kernel: Kernel) -> Any:
    """The kernel's verdict, e.g. memory-bound (DRAM); None without one."""
    verdict = kernel.verdict
    return named(Kind(verdict.kind), Part(verdict.part) if verdict.part else None) if verdict else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
