"""A study's model shapes: at the largest size of each, the fastest way to solve it, and those to avoid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fiprof.analysis import alternatives
from fiprof.analysis.alternatives import Alternative
from fiprof.analysis.study import Pair, Side, Study, matches, size
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.model.results import CaseResult


@dataclass(frozen=True)
class Shape:
    """What a model fixes, e.g. decode with 8 KV heads, at its largest size."""

    fastest: CaseResult
    """No other option is certain to be faster; of those that are as fast, the study's first."""
    avoid: tuple[tuple[CaseResult, Alternative], ...]
    """Options for which a faster one is certain, the slowest first, each with its alternative."""


def shapes(study: Study) -> list[Shape]:
    """Every model shape of the study, in its order: parameters that are neither sizes nor options of solving."""
    faster = of_study(study)
    largest: dict[object, tuple[CaseResult, ...]] = {}
    for solving in alternatives.by_problem(study.measured):
        key = _model(study, solving[0])
        if key not in largest or size(solving[0]) > size(largest[key][0]):
            largest[key] = solving
    found = []
    for solving in largest.values():
        avoid = tuple((case, faster[case.id]) for case in reversed(solving) if case.id in faster)
        found.append(Shape(_fastest(study, solving, faster), avoid))
    order = _order(study)
    return sorted(found, key=lambda shape: order[shape.fastest.id])


def fastest_pairs(study: Study, one: Side, other: Side) -> list[Pair]:
    """The fastest cases of the problems of two sides, paired where nothing else differs: what a model's choice does.

    None where a side names an option of solving: :func:`fiprof.analysis.study.pairs` has those that differ in it.
    """
    named = {name for side in (one, other) for name, _ in side.params}
    faster = of_study(study)
    sides: tuple[dict[object, CaseResult], dict[object, CaseResult]] = ({}, {})
    for solving in alternatives.by_problem(study.measured):
        _, defining = alternatives.problem(solving[0].workload, solving[0].params)
        if not named <= {name for name, _, _ in defining}:
            continue
        rest = frozenset(item for item in defining if item[0] not in named)
        for found, side in zip(sides, (one, other), strict=True):
            if solving[0].workload == side.workload and matches(solving[0], dict(side.params)):
                found[rest] = _fastest(study, solving, faster)
    return [(case, sides[1][rest]) for rest, case in sides[0].items() if rest in sides[1]]


def _fastest(study: Study, solving: tuple[CaseResult, ...], faster: Mapping[str, Alternative]) -> CaseResult:
    """Of the cases that nothing is certain to beat, and that are as fast as each other, the study's first."""
    kept = [case for case in solving if case.id not in faster] or list(solving[:1])
    most_us = _us(kept[0]) * (1 + WORTH_CHANGING.share)
    order = _order(study)
    return min((case for case in kept if _us(case) <= most_us), key=lambda case: order[case.id])


def _order(study: Study) -> dict[str, int]:
    return {case.id: index for index, case in enumerate(study.measured)}


def fastest_cases(study: Study) -> tuple[CaseResult, ...]:
    """The fastest way to solve each problem of the study, in its order."""
    faster, order = of_study(study), _order(study)
    found = [_fastest(study, solving, faster) for solving in alternatives.by_problem(study.measured)]
    return tuple(sorted(found, key=lambda case: order[case.id]))


def of_study(study: Study) -> dict[str, Alternative]:
    """Case id -> its fastest alternative in the study; only cases that have one."""
    return alternatives.of_cases(study.measured)


def worth_a_look(study: Study) -> tuple[CaseResult, ...]:
    """The measured cases whose problem nothing else is certain to solve faster."""
    faster = of_study(study)
    return tuple(case for case in study.measured if case.id not in faster)


def _model(study: Study, case: CaseResult) -> tuple[str, frozenset[tuple[str, object]]]:
    """The problem without its sizes."""
    workload, defining = alternatives.problem(case.workload, case.params)
    axes = study.axes(case.workload)
    return workload, frozenset((name, value) for name, _, value in defining if name not in axes)


def _us(case: CaseResult) -> float:
    return case.plain.median_us if case.plain else 0.0
