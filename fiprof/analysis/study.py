"""A study's results as its analyses read them: cases by workload, what varies among them, pairs and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from fiprof import confined
from fiprof.errors import FiprofError
from fiprof.model.results import ENVIRONMENT, RESULTS, CaseResult, EnvironmentInfo, Kernel, KernelResults, read

Value = bool | int | float | str
Params = Mapping[str, Value]

FEWEST_ON_AXIS = 3
"""A number with so many values in a workload is an axis that its times are fitted along; with fewer, an option."""


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
            workload: {name: _ordered(values) for name, values in params.items() if len(values) > 1}
            for workload, params in found.items()
        }

    def axes(self, workload: str) -> tuple[str, ...]:
        """The parameters that sizes vary along: numbers with FEWEST_ON_AXIS values or more."""
        return tuple(
            name
            for name, values in self.varied(workload).items()
            if len(values) >= FEWEST_ON_AXIS and all(is_number(value) for value in values)
        )

    def options(self, workload: str) -> tuple[str, ...]:
        """The other parameters that vary."""
        axes = self.axes(workload)
        return tuple(name for name in self.varied(workload) if name not in axes)

    def groups(self, workload: str) -> dict[tuple[tuple[str, Value], ...], tuple[CaseResult, ...]]:
        """Options' values -> the measured cases that share them, the smallest first (by least bytes and work)."""
        options = self.options(workload)
        found: dict[tuple[tuple[str, Value], ...], list[CaseResult]] = {}
        for case in self.of(workload):
            key = tuple((name, case.params[name]) for name in options if name in case.params)
            found.setdefault(key, []).append(case)
        return {key: tuple(sorted(cases, key=size)) for key, cases in found.items()}

    @property
    def l2_bytes(self) -> int | None:
        """Of the GPU; None where the environment does not tell."""
        found = (self.info.environment.get("gpu") or {}).get("l2_bytes")
        return found if isinstance(found, int) else None


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


# Why there is nothing


class Absent(StrEnum):
    """Why there is no measured case of some kind."""

    WORKLOAD = "workload"
    PARAMETERS = "parameters"
    SKIPPED = "skipped"
    TIME = "time"
    RECORD = "record"
    PAIR = "pair"
    GROWTH = "growth"
    IN_L2 = "in_l2"
    DRAM_BYTES = "dram_bytes"
    VERDICT = "verdict"
    TOO_WIDE = "too_wide"


@dataclass(frozen=True)
class Absence:
    """Why nothing can be said, with what it is about."""

    why: Absent
    workload: str
    params: tuple[tuple[str, Value], ...] = ()
    count: int = 0
    """Cases, or pairs of them."""
    reasons: tuple[str, ...] = ()
    """The cases' own, each once."""
    axis: str = ""
    factor: int = 1
    of: int = 0
    """How many there are in all, where only some are counted."""


def absence(study: Study, workload: str, params: Params | None = None) -> Absence:
    """Why there is no measured case of a workload with these parameters."""
    wanted = params or {}
    cases = study.by_workload.get(workload)
    if not cases:
        return Absence(Absent.WORKLOAD, workload)
    named = tuple(wanted.items())
    matching = [case for case in cases if matches(case, wanted)]
    if not matching:
        return Absence(Absent.PARAMETERS, workload, named)
    reasons = tuple(dict.fromkeys(case.skipped for case in matching if case.skipped))
    why = Absent.SKIPPED if reasons else Absent.RECORD if any(case.plain for case in matching) else Absent.TIME
    return Absence(why, workload, named, len(matching), reasons)


# Cases and pairs


def matches(case: CaseResult, params: Params) -> bool:
    """Whether a case has these parameters' values."""
    return all(name in case.params and same(case.params[name], value) for name, value in params.items())


def same(one: Value, other: Value) -> bool:
    """Whether two values of a parameter are the same; true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a workload with some parameters."""

    workload: str
    params: tuple[tuple[str, Value], ...] = ()


def side(workload: str, **params: Value) -> Side:
    """E.g. ``side("decode", cuda_graph=True)``."""
    return Side(workload, tuple(params.items()))


Pair = tuple[CaseResult, CaseResult]


def pairs(study: Study, one: Side, other: Side) -> list[Pair]:
    """Measured cases of the two sides that agree in every parameter that neither side names.

    In the order of the study.
    """
    named = {name for name, _ in (*one.params, *other.params)}
    others = {_rest(case, named): case for case in study.of(other.workload) if matches(case, dict(other.params))}
    return [
        (case, others[_rest(case, named)])
        for case in study.of(one.workload)
        if matches(case, dict(one.params)) and _rest(case, named) in others
    ]


def pairs_of(study: Study, workload: str, name: str, one: Value, other: Value) -> list[Pair]:
    """Measured cases of a workload that differ in one parameter alone."""
    return pairs(study, Side(workload, ((name, one),)), Side(workload, ((name, other),)))


def absent_pair(study: Study, *sides: Side) -> Absence:
    """Why no two measured cases of the sides are a pair."""
    for each in sides:
        if not any(matches(case, dict(each.params)) for case in study.of(each.workload)):
            return absence(study, each.workload, dict(each.params))
    return Absence(Absent.PAIR, sides[0].workload)


def _rest(case: CaseResult, named: set[str]) -> frozenset[tuple[str, Value, bool]]:
    return frozenset((k, v, isinstance(v, bool)) for k, v in case.params.items() if k not in named)


def size(case: CaseResult) -> tuple[int, int]:
    """To sort cases by."""
    return (least_bytes(case), case.flops)


def least_bytes(case: CaseResult) -> int:
    """That the algorithm needs to read and write."""
    return case.bytes_read + case.bytes_written


def main_kernel(case: CaseResult) -> Kernel | None:
    """The kernel that took most of the iteration's time under ncu; None where ncu did not see the case."""
    return max(case.kernels, key=lambda kernel: kernel.duration_us or 0.0, default=None)


def kernel_shares(case: CaseResult) -> list[float] | None:
    """Each kernel's part of the iteration's time under ncu; None where one has no time."""
    durations = [kernel.duration_us for kernel in case.kernels]
    known = [duration for duration in durations if duration is not None]
    total = sum(known)
    return [duration / total for duration in known] if total and len(known) == len(durations) else None


def dram_bytes(case: CaseResult) -> float | None:
    """Counted DRAM bytes of an iteration; None where a kernel's were not counted."""
    counted = [kernel.dram_bytes for kernel in case.kernels]
    known = [value for value in counted if value is not None]
    return sum(known) if counted and len(known) == len(counted) else None


def top_stalls(kernel: Kernel, most: int = 3) -> list[tuple[str, float]]:
    """The largest warp states with their shares."""
    return sorted(kernel.stalls.items(), key=lambda item: -item[1])[:most]


def is_number(value: Value | None) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ordered(values: Mapping[Value, None]) -> tuple[Value, ...]:
    if all(is_number(value) for value in values):
        return tuple(sorted(values, key=float))
    return tuple(values)
