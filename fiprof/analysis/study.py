"""A study's results: names of its cases, pairs of cases, the fastest solutions, fits; and all cases as one table."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fiprof import files
from fiprof.analysis import alternatives
from fiprof.analysis.alternatives import Alternative, timed, unmeasured
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.frames import columns
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.ratio import CONFIDENCE, Ratio, ratio
from fiprof.analysis.roofline import LaunchRoofline, Level
from fiprof.analysis.thresholds import FIT_POINTS, OFF_FIT, WORTH_CHANGING
from fiprof.analysis.verdict.model import Kind, Part, titled
from fiprof.analysis.verdict.verdict import LaunchVerdict, verdicts
from fiprof.errors import FiprofError
from fiprof.model import packs, results
from fiprof.model.case_quantities import dram_use
from fiprof.model.finding import Finding, finding
from fiprof.model.manifest import fact
from fiprof.model.packs import Value
from fiprof.model.quantities import Formula
from fiprof.model.results import ENVIRONMENT, RESULTS, CaseResult, EnvironmentInfo, Kernel, KernelResults, KernelVerdict
from fiprof.model.run import Launch, Run
from fiprof.model.selection import by_key
from fiprof.text import csv_rows, number

FEWEST_ON_AXIS = 3
"""A number with so many values in a workload is an axis, along which times are fitted; with fewer it is an option."""

Params = Mapping[str, Value]
Pair = tuple[CaseResult, CaseResult]


# Names


def is_number(value: Value | None) -> bool:
    """Whether a value is a number; a switch (bool) is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(one: Value, other: Value) -> bool:
    """Whether two values of a parameter are the same; true and 1 are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def axis_name(name: str) -> str:
    """A parameter's name as an axis, e.g. ``KV length``; of a switch, what it switches on."""
    about = packs.of_parameter(name)
    return about.axis or about.on or name


def parameter_words(params: Params, everything: Params) -> str:
    """Parameters in words, e.g. ``batch 32, KV 2,048, GQA 32/8``; without switches that are off, but for those with a
    word for it. everything: all parameters of the case, for those that are named as a ratio."""
    words = []
    for name, value in params.items():
        about = packs.of_parameter(name)
        if kind := about.ratio(value, everything):
            words.append(f"{kind} {everything[about.of]}/{value}")
        elif value is False:
            words.append(about.off)
        else:
            words.append(about.of_value(value) or (name if value is True else f"{name}={value}"))
    return ", ".join(filter(None, words))


def value_word(name: str, value: Value, params: Params) -> str:
    """A parameter's value in words, also of a switch that is off."""
    return parameter_words({name: value}, params) or f"no {parameter_words({name: True}, params)}"


# One side of a comparison


class CaseSide(NamedTuple):
    """One side of a comparison: a workload with some parameters."""

    workload: str
    params: Params = MappingProxyType({})


def side(workload: str, **params: Value) -> CaseSide:
    """A side by keywords, e.g. ``side("decode", cuda_graph=True)``."""
    return CaseSide(workload, params)


def parse_side(text: str) -> CaseSide:
    """A side as text: ``decode kv_heads=8 backend="fa3"``, values as JSON."""
    workload, *params = text.split()
    return CaseSide(workload, {name: json.loads(value) for name, _, value in (each.partition("=") for each in params)})


def matches(case: CaseResult, params: Params) -> bool:
    """Whether a case has these parameters' values."""
    return all(name in case.params and same(case.params[name], value) for name, value in params.items())


# Figures of a case


def size(case: CaseResult) -> tuple[int, int]:
    """Key to sort cases by size: the bytes that they need, then operations."""
    return (least_bytes(case), case.flops)


def least_bytes(case: CaseResult) -> int:
    """Bytes that the algorithm needs to read and write."""
    return case.bytes_read + case.bytes_written


def main_kernel(case: CaseResult) -> Kernel | None:
    """The kernel that took most of the iteration's time under ncu; None where ncu did not see the case."""
    return max(case.kernels, key=lambda kernel: kernel.duration_us or 0.0, default=None)


def kernel_share(case: CaseResult, part: str) -> float:
    """Share of an iteration's kernel time, 0 to 1, in kernels named like ``part``; 0 where a time is missing."""
    times = [(kernel.kernel, kernel.duration_us) for kernel in case.kernels]
    total = sum(us or 0.0 for _, us in times)
    if not part or not total or any(us is None for _, us in times):
        return 0.0
    return sum(us or 0.0 for name, us in times if part in name) / total


def dram_bytes(case: CaseResult) -> float | None:
    """Counted DRAM bytes of an iteration; None where a kernel's were not counted."""
    counted = [kernel.dram_bytes for kernel in case.kernels if kernel.dram_bytes is not None]
    return sum(counted) if case.kernels and len(counted) == len(case.kernels) else None


def top_stalls(kernel: Kernel, most: int = 2) -> list[tuple[str, float]]:
    """The largest stalls with their shares, 0 to 1."""
    return sorted(kernel.stalls.items(), key=lambda item: -item[1])[:most]


def half_width(case: CaseResult) -> float:
    """Half of the interval of the plain median, as a share of it; 0 where it has no time."""
    plain = case.plain
    return (plain.high_us - plain.low_us) / 2 / plain.median_us if plain and plain.median_us else 0.0


# A study

COLUMNS = columns("study")


@dataclass(frozen=True)
class Study:
    """What a study folder holds."""

    folder: Path
    info: EnvironmentInfo
    results: tuple[KernelResults, ...]

    @cached_property
    def by_workload(self) -> dict[str, tuple[CaseResult, ...]]:
        """Workload -> its cases, also those that were skipped, in the study's order."""
        cases = [case for results in self.results for case in results.cases]
        names = dict.fromkeys(case.workload for case in cases)
        return {name: tuple(case for case in cases if case.workload == name) for name in names}

    @cached_property
    def measured(self) -> tuple[CaseResult, ...]:
        """Every case with a plain time."""
        return tuple(case for cases in self.by_workload.values() for case in cases if case.plain is not None)

    def of(self, workload: str) -> tuple[CaseResult, ...]:
        """A workload's measured cases."""
        return tuple(case for case in self.by_workload.get(workload, ()) if case.plain is not None)

    @cached_property
    def varied(self) -> Mapping[str, dict[str, tuple[Value, ...]]]:
        """Workload -> parameter that varies -> its values among all cases, numbers sorted."""
        varied: dict[str, dict[str, tuple[Value, ...]]] = defaultdict(dict)
        for workload, cases in self.by_workload.items():
            for name in dict.fromkeys(name for case in cases for name in case.params):
                values = tuple(dict.fromkeys(case.params[name] for case in cases if name in case.params))
                if len(values) > 1:
                    numbers = all(map(is_number, values))
                    varied[workload][name] = tuple(sorted(values, key=float)) if numbers else values
        return varied

    def axes(self, workload: str) -> tuple[str, ...]:
        """The numeric parameters of a workload with FEWEST_ON_AXIS values or more."""
        varied = self.varied[workload].items()
        return tuple(name for name, values in varied if len(values) >= FEWEST_ON_AXIS and all(map(is_number, values)))

    def options(self, workload: str) -> tuple[str, ...]:
        """The other parameters that vary."""
        axes = self.axes(workload)
        return tuple(name for name in self.varied[workload] if name not in axes)

    @property
    def l2_bytes(self) -> int | None:
        """Size of the GPU's L2 cache; None where the environment does not say it."""
        size = fact(self.info.environment, "gpu", "l2_bytes")
        return size if isinstance(size, int) else None

    @cached_property
    def alternatives(self) -> Mapping[str, Alternative]:
        """Case id -> its fastest alternative in the study; only cases that have a faster one."""
        return alternatives.of_cases(self.measured)

    @cached_property
    def unbeaten(self) -> tuple[CaseResult, ...]:
        """The measured cases without a faster alternative."""
        return tuple(case for case in self.measured if case.id not in self.alternatives)

    @cached_property
    def fastest(self) -> tuple[CaseResult, ...]:
        """The case that solves each problem of the study fastest, in the study's order."""
        return self._fastest_of(alternatives.by_problem(self.measured))

    @cached_property
    def largest(self) -> tuple[CaseResult, ...]:
        """The fastest case of the largest size of each model shape (all parameters but sizes and options)."""
        largest: dict[object, tuple[CaseResult, ...]] = {}
        for solving in alternatives.by_problem(self.measured):
            workload, defining = alternatives.problem(solving[0].workload, solving[0].params)
            axes = self.axes(solving[0].workload)
            key = workload, frozenset((name, value) for name, _, value in defining if name not in axes)
            if key not in largest or size(solving[0]) > size(largest[key][0]):
                largest[key] = solving
        return self._fastest_of(largest.values())

    def apart(self, one: CaseResult, other: CaseResult) -> float:
        """The relative difference that two cases' times may have because of their boards; 0 on one board."""
        here, there = (self.info.boards.get(case.run, "") for case in (one, other))
        return self.boards_apart if here != there else 0.0

    @cached_property
    def boards_apart(self) -> float:
        """The largest relative difference of an anchor's times between boards; 0 with one board."""
        anchors = self.info.anchors.values()
        return max((max(times.values()) / min(times.values()) - 1 for times in anchors), default=0.0)

    def _fastest_of(self, problems: Iterable[tuple[CaseResult, ...]]) -> tuple[CaseResult, ...]:
        """The fastest case of each problem; of several that are within WORTH_CHANGING percent, the study's first."""
        places = {case.id: index for index, case in enumerate(self.measured)}
        fastest = []
        for solving in problems:
            unbeaten = [case for case in solving if case.id not in self.alternatives] or list(solving[:1])
            most_us = _us(unbeaten[0]) * (1 + WORTH_CHANGING / 100)
            fastest.append(min((case for case in unbeaten if _us(case) <= most_us), key=lambda case: places[case.id]))
        return tuple(sorted(fastest, key=lambda case: places[case.id]))

    def ratio(self, one: CaseResult, other: CaseResult) -> Ratio | None:
        """Ratio of two cases' plain times, the interval widened where they ran on two boards; None without a time."""
        of_times = ratio(one.plain, other.plain) if one.plain and other.plain else None
        return of_times and of_times.widened(self.apart(one, other))

    def label(self, case: CaseResult, *, workload: bool = True, without: Sequence[str] = ()) -> str:
        """A case by the parameters that vary, e.g. ``decode batch 32, KV 2,048, GQA 32/8, tensor cores``."""
        varied = self.varied[case.workload]
        words = parameter_words({k: v for k, v in case.params.items() if k in varied and k not in without}, case.params)
        return " ".join(filter(None, [case.workload, words])) if workload else words or case.workload

    def short(self, case: CaseResult, *, without: Sequence[str] = ()) -> str:
        """The label for a narrow column: the axes' values, then the options, e.g. ``256x8k GQA TC graph``."""

        def number(value: Value) -> str:
            """A number in short: ``8k`` for 8,192."""
            return f"{value // 1024}k" if isinstance(value, int) and value >= 1024 and value % 1024 == 0 else str(value)

        def option(name: str, value: Value) -> str:
            about = packs.of_parameter(name)
            if isinstance(value, bool):
                return (about.short_on or name) if value else about.short_off
            return about.ratio(value, case.params) or (str(value) if about.value == "{}" else f"{name}={number(value)}")

        params = {name: value for name, value in case.params.items() if name not in without}
        axes = "x".join(number(params[name]) for name in self.axes(case.workload) if name in params)
        options = (option(name, params[name]) for name in self.options(case.workload) if name in params)
        return " ".join(filter(None, [axes, *options])) or case.workload

    def pair_label(self, one: CaseResult, other: CaseResult, *, without: Sequence[str] = ()) -> str:
        """What two cases have in common, and the axis along which they differ: ``batch 1, KV 512 to 2,048``. Options
        that differ are left out (the caller names them), and the parameters in ``without``."""
        differ = _different(one, other)
        axes = [name for name in differ if name in self.axes(one.workload)]
        common = self.label(one, workload=False, without=(*differ, *without))
        moves = [f"{parameter_words({at: other.params[at]}, other.params)} to {one.params[at]:,}" for at in axes]
        return ", ".join(filter(None, ["" if common == one.workload else common, *moves])) or one.workload

    def short_pair(self, one: CaseResult, other: CaseResult) -> str:
        """:meth:`pair_label` for a narrow column: ``1x512 graph``, or along an axis ``1x512 GQA to 1x2k GQA``."""
        differ = _different(one, other)
        if any(name in self.axes(one.workload) for name in differ):
            return f"{self.short(other)} to {self.short(one)}"
        return self.short(one, without=differ)

    def pairs(self, one: CaseSide, other: CaseSide) -> list[Pair]:
        """Measured cases of two sides that agree in all parameters that neither side names, in the study's order."""

        def rest(case: CaseResult) -> frozenset[tuple[str, Value, bool]]:
            named_ = one.params.keys() | other.params.keys()
            return frozenset((k, v, isinstance(v, bool)) for k, v in case.params.items() if k not in named_)

        others = {rest(case): case for case in self.of(other.workload) if matches(case, other.params)}
        ones = (case for case in self.of(one.workload) if matches(case, one.params))
        return [(case, others[rest(case)]) for case in ones if rest(case) in others]

    def fastest_pairs(self, one: CaseSide, other: CaseSide) -> list[Pair]:
        """The fastest cases of the problems of two sides, paired where nothing else differs: what another model costs.
        Empty where a side names an option of solving, for which there is :meth:`pairs`."""
        named_ = one.params.keys() | other.params.keys()
        sides: tuple[dict[object, CaseResult], dict[object, CaseResult]] = ({}, {})
        for case in self.fastest:
            _, defining = alternatives.problem(case.workload, case.params)
            if named_ <= {name for name, _, _ in defining}:
                rest = frozenset(item for item in defining if item[0] not in named_)
                for cases, each in zip(sides, (one, other), strict=True):
                    if case.workload == each.workload and matches(case, each.params):
                        cases[rest] = case
        return [(case, sides[1][rest]) for rest, case in sides[0].items() if rest in sides[1]]

    def absence(self, workload: str, params: Params | None = None) -> Finding:
        """Why there is no measured case of a workload with these parameters."""
        named = params or {}
        cases = self.by_workload.get(workload, ())
        matching = [case for case in cases if matches(case, named)]
        if not matching:
            others = {packs.of_parameter(name).of for name in named}
            words = parameter_words({name: value for name, value in named.items() if name not in others}, named)
            what = f"{workload} case with {words}" if cases and words else f"{workload} cases"
            return finding("no_case", "the study has no {what}", what=what)
        if reasons := tuple(dict.fromkeys(case.skipped for case in matching if case.skipped)):
            more = f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else ""
            why = "skipped", "{count:{workload} case has|{workload} cases have} no time: {reason}"
            return finding(*why, workload=workload, count=len(matching), reason=reasons[0] + more)
        why = "time", "{count:{workload} case has|{workload} cases have} no plain time"
        if any(case.plain for case in matching):
            why = "record", "what it needs of {count:{workload} case|{workload} cases} was not recorded"
        return finding(*why, workload=workload, count=len(matching))

    def absent_pair(self, *sides: CaseSide) -> Finding:
        """Why no two measured cases of the sides are a pair."""
        for each in sides:
            if not any(matches(case, each.params) for case in self.of(each.workload)):
                return self.absence(each.workload, each.params)
        return finding("pair", "no two measured cases differ in this alone")

    def fits(self, workload: str, axis: str) -> list[Fit]:
        """Fits of time along an axis, for each combination of other parameters with FEWEST_ON_AXIS measured cases."""
        others = [name for name in self.varied[workload] if name != axis]
        sized = [case for case in self.of(workload) if is_number(x := case.params.get(axis)) and float(x or 0) > 0]
        fits = []
        for cases in by_key((tuple(case.params.get(name, "") for name in others), case) for case in sized).values():
            if axis in self.axes(workload) and len(cases) >= FEWEST_ON_AXIS:
                apart = max(self.apart(cases[0], case) for case in cases)
                fits.append(fit(workload, axis, sorted(cases, key=lambda case: float(case.params[axis])), apart))
        return fits

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """Case id -> its row: its parameters, and COLUMNS (times, rates and figures of its main kernel)."""
        return {case.id: self._row(case) for cases in self.by_workload.values() for case in cases}

    def _row(self, case: CaseResult) -> dict[str, Any]:
        def percent(share: float | None) -> float | None:
            return None if share is None else 100 * share

        kernel, moved, least = main_kernel(case), dram_bytes(case), least_bytes(case)
        figures: dict[str, Any] = {
            **vars(case),
            "case": self.short(case),
            "plain_us": case.plain.median_us if case.plain else None,
            "half_pct": percent(half_width(case)) if case.plain else None,
            "nsys_us": case.nsys.median_us if case.nsys else None,
            "intensity": case.flops / moved if moved and case.flops else None,
            "least_mb": least / 1e6,
            "dram_mb": None if moved is None else moved / 1e6,
            "traffic": moved / least if moved is not None and least else None,
            "dram_roof_pct": percent(case.gb_per_s_roof_share),
        }
        if kernel is not None:
            achieved, most = kernel.achieved_occupancy_pct, kernel.theoretical_occupancy_pct
            occupancy_text = f"{achieved:.0f} of {most:.0f}" if achieved is not None and most is not None else None
            shared = kernel.shared_bytes_per_block
            figures |= {
                **vars(kernel),
                "bound": bound(kernel),
                "roof_pct": percent(kernel.roof_share),
                "tensor_pct": kernel.tensor_active_pct,
                "occupancy": occupancy_text and ", ".join([occupancy_text, *kernel.occupancy_limiters]),
                "stalls": ", ".join(f"{name} {share:.0%}" for name, share in top_stalls(kernel)) or None,
                "shared_kb": None if shared is None else shared / 1e3,
                "registers": kernel.registers_per_thread,
            }
        return {**case.params, **{column.key: figures.get(column.key) for column in COLUMNS}}


def _us(case: CaseResult) -> float:
    return case.plain.median_us if case.plain else 0.0


def _different(one: CaseResult, other: CaseResult) -> list[str]:
    return [name for name, value in one.params.items() if not same(value, other.params.get(name, value))]


def load(folder: Path) -> Study:
    """A study's results. Raises FiprofError where there is none at all."""

    def inside(name: str) -> Path:
        """The path of a results file. Raises FiprofError where something else, as a link, has its name."""
        files.exists(folder, f"{RESULTS}/{name}")
        return folder / RESULTS / name

    info = results.read(inside(ENVIRONMENT), EnvironmentInfo)
    if not info.workloads and len(list((folder / RESULTS).glob("*.json"))) < 2:
        raise FiprofError(f"{folder / RESULTS} has no results of any kernel", "fiprof study NAME measures them")
    return Study(folder, info, tuple(results.read(inside(f"{name}.json"), KernelResults) for name in info.workloads))


def bound(kernel: Kernel) -> Finding | None:
    """The kernel's verdict, e.g. memory-bound (DRAM); None without one."""
    return titled(limits(kernel.verdict)) if kernel.verdict else None


def limits(verdict: KernelVerdict) -> list[tuple[Kind, Part | None]]:
    """What limits a kernel; both of a pair."""
    pairs = [(verdict.kind, verdict.part)]
    if verdict.pair and verdict.runner_up:
        pairs.append((str(verdict.runner_up["kind"]), verdict.runner_up["part"]))
    return [(Kind(kind), Part(part) if part else None) for kind, part in pairs]


_FIGURES = csv_rows(Path(__file__).with_name("kernel_figures.csv"))
KERNEL_FIGURES = {name: Formula(row["formula"]) for name, row in _FIGURES.items()}
"""Field of a result's kernel -> formula over the columns of ``launches``."""


def case_results(run: Run) -> list[CaseResult]:
    """The results of a run's cases, in their order. A case that failed says why in ``skipped``."""
    roofs = Analyses(run).rooflines
    judged = verdicts(run).launches if run.launches or run.trace.cases else ()
    by_launch = {item.launch: item for item in judged}
    times = {case.id: case for case in timed(run)}
    cases = []
    for case in run.manifest.cases:
        if error := run.case_errors.get(case.id):
            cases.append(unmeasured(case, skipped=f"failed: {error}"))
            continue
        rows, baseline = run.launches_of[case.id], run.baseline.get(case.id)
        first = [row for row in rows if row["iteration"] == rows[0]["iteration"]]
        longest = max(first, key=lambda row: row["duration_ns"] or 0.0, default=None)
        roof = roofs.get(longest["launch"]) if longest else None
        # The peak of the longest kernel's main kind of operations, at its measured clock.
        peak_ops = roof.work.peak_ops_per_second if roof and roof.work else None
        peak_bytes = Formula("dram_peak").value(longest or {})
        plain = times[case.id].plain
        seconds = plain.median_us / 1e6 if plain else None
        moved = case.bytes_read + case.bytes_written
        tflops = case.flops / seconds / 1e12 if case.flops and seconds else None
        gb_per_s = moved / seconds / 1e9 if moved and seconds else None
        recovered = baseline.clock_recovered if baseline else ()
        cases.append(
            dataclasses.replace(
                times[case.id],
                workload=case.id.partition("[")[0],
                relative_error=baseline.reference.get("relative_error") if baseline else None,
                slow_clock_rounds=recovered.count(False) if recovered else None,
                tokens_per_second=case.tokens / seconds if case.tokens and seconds else None,
                tflops=tflops,
                gb_per_s=gb_per_s,
                tflops_roof_share=tflops * 1e12 / peak_ops if tflops is not None and peak_ops else None,
                gb_per_s_roof_share=gb_per_s * 1e9 / peak_bytes if gb_per_s is not None and peak_bytes else None,
                kernels=[_kernel(run, row, roofs.get(row.launch), by_launch.get(row.launch)) for row in first],
                plan=baseline.plan if baseline else {},
            )
        )
    return cases


def _kernel(run: Run, row: Launch, placed: LaunchRoofline | None, verdict: LaunchVerdict | None) -> Kernel:
    """The result of a launch. placed: where it is on the roofline."""
    figures: dict[str, Any] = {name: formula.value(row) for name, formula in KERNEL_FIGURES.items()}
    for name in ("registers_per_thread", "shared_bytes_per_block"):
        figures[name] = None if figures[name] is None else round(figures[name])
    stalls = {each.reason: each.share for each in run.stall_reasons.get(row.launch, ()) if each.share is not None}
    roof = roof_kind = share = judged = None
    if placed:
        roof, share = placed.roof, placed.share
        if roof is not None:
            roof_kind = "compute" if placed.work is not None and roof == placed.work.kind else "memory"
        # In a loop it may use more of DRAM than ncu, with cold caches, counts.
        if share is not None and roof == Level.DRAM and (use := dram_use(run, row)) is not None:
            share = max(share, use.number.value / 100)
    if verdict:
        other = verdict.runner_up
        judged = KernelVerdict(
            kind=verdict.kind,
            part=verdict.part,
            confidence=verdict.confidence,
            evidence=[{k: v for k, v in each.fields().items() if k != "provenance"} for each in verdict.evidence],
            runner_up={"kind": other.kind, "part": other.part} if other else None,
            margin_points=verdict.margin_points,
            pair=verdict.pair,
        )
    return Kernel(
        **{name: getattr(row, name) for name in ("kernel", "kernel_full", "launch", "grid", "block", "duration_us")},
        **figures,
        stalls=stalls,
        occupancy_limiters=list(occupancy(row).limiters),
        roof=roof,
        roof_kind=roof_kind,
        roof_share=share,
        verdict=judged,
    )


class Estimate(NamedTuple):
    """A fitted number with its interval; low above high means that no possible value fits."""

    value: float
    low: float
    high: float

    def words(self, scale: float = 1.0) -> str:
        """Number and interval, times ``scale``: ``2.58 (2.44 to 2.71)``; from 0.1 to 1 with two decimals."""
        two = 0.1 <= abs(self.value * scale) < 1
        value, low, high = (f"{each * scale:.2f}" if two else number(each * scale) for each in self)
        return f"{value} ({low} to {high})"


@dataclass(frozen=True)
class Line:
    """time = intercept + slope * axis ** power, in µs."""

    power: int
    slope_us: Estimate
    intercept_us: Estimate
    worst: float  # the largest deviation: measured less fitted time, as a share of the measured

    @property
    def holds(self) -> bool:
        """Whether the times follow the line: within OFF_FIT percent."""
        return abs(self.worst) <= OFF_FIT / 100 and self.intercept_us.low <= self.intercept_us.high


@dataclass(frozen=True)
class Fit:
    """Time along one axis, everything else the same."""

    workload: str
    axis: str  # parameter that varies
    cases: tuple[CaseResult, ...]  # by growing axis
    line: Line | None  # None of fewer than FIT_POINTS cases

    @property
    def unit(self) -> tuple[str, float]:
        """The unit of the slope in words, e.g. ``1,000 tokens``, and how many units of axis ** power that is."""
        amount = 1000.0 if self.xs[-1] >= 1000 else 1.0
        power = self.line.power if self.line else 1
        words = f"{amount:,.0f} {packs.of_parameter(self.axis).unit or self.axis}"
        return (words, amount) if power == 1 else (f"({words})^{power}", amount**power)

    @property
    def xs(self) -> list[float]:
        """The axis' values."""
        return [float(case.params[self.axis]) for case in self.cases]


def fit(workload: str, axis: str, cases: Sequence[CaseResult], apart: float = 0.0) -> Fit:
    """The line through the plain medians of cases along an axis, by relative errors. cases: by growing axis, each with
    a plain time above zero. apart: of their boards, :meth:`Study.apart`."""
    from scipy.optimize import lsq_linear
    from scipy.special import stdtrit

    if len(cases) < FIT_POINTS:
        return Fit(workload, axis, tuple(cases), None)
    about = packs.of_workload(workload)
    power = about.growth.get(axis, 1) if about else 1
    x = np.array([float(case.params[axis]) for case in cases])
    y = np.array([case.plain.median_us for case in cases if case.plain is not None])

    grown = x**power
    unit, highest = float(grown.max()), float(y.min())
    rows = np.column_stack([1 / y, grown / unit / y])
    bounds = ([0.0, 0.0], [highest, np.inf])
    intercept, rise = lsq_linear(rows, np.ones_like(y), bounds=bounds, method="bvls").x
    # Intervals are those of the least-squares solution without bounds.
    inverse = np.linalg.inv(rows.T @ rows)
    free = inverse @ rows.T @ np.ones_like(y)
    variance = float(((1 - rows @ free) ** 2).sum()) / (len(y) - 2)
    half = float(stdtrit(len(y) - 2, (1 + CONFIDENCE) / 2)) * np.sqrt(variance * np.diag(inverse))
    low, high = (free - half).tolist(), (free + half).tolist()
    residuals = (y - intercept - rise * grown / unit) / y
    line = Line(
        power,
        Estimate(float(rise) / unit, max(low[1], 0.0) / unit / (1 + apart), high[1] / unit * (1 + apart)),
        Estimate(float(intercept), max(low[0], 0.0) / (1 + apart), min(high[0] * (1 + apart), highest)),
        float(residuals[np.abs(residuals).argmax()]),
    )
    return Fit(workload, axis, tuple(cases), line)
