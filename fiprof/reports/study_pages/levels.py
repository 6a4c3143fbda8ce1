"""What a study says of cases whose rounds took one of two times and none between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from fiprof.analysis.levels import STEP, Levels, between, levels, split
from fiprof.analysis.study import Study, main_kernel
from fiprof.model.results import CaseResult
from fiprof.reports.study_pages.found import Audience, StudyFinding, found
from fiprof.reports.study_pages.names import label, parameter_words
from fiprof.reports.study_pages.numbers import number, spread
from fiprof.reports.words import phrase
from fiprof.text import join_words

DRAM_BUSY_PCT = 85.0
"""Use of DRAM from which a case is counted as at its limit here. fiprof's own choice."""


def sentence(study: Study) -> str:
    """How many there are, and what that does to their medians; empty where there are none."""
    items = split(study)
    if not items:
        return ""
    middle = sum(between(case) for case, _ in items)
    return phrase(
        "two_levels.sentence",
        levels=len(items),
        cases=len(study.measured),
        workloads=_by_workload(study, [case for case, _ in items]),
        middle=phrase("two_levels.middle", count=middle) if middle else "",
    )


def finding(study: Study) -> list[StudyFinding]:
    """Two levels, of the workload that has most of such cases; nothing where there are none."""
    everything = split(study)
    if not everything:
        return []
    names = [case.workload for case, _ in everything]
    workload = max(dict.fromkeys(names), key=names.count)
    items = [item for item in everything if item[0].workload == workload]
    steps = [item.step for _, item in items]
    shown = max(items, key=lambda item: (min(sum(item[1].upper), sum(not up for up in item[1].upper)), item[1].step))
    others = [case for case, _ in everything if case.workload != workload]
    middle = [case for case, _ in items if between(case)]
    evidence = [
        _rounds_words(study, shown[0]),
        *_agreement([case for case, _ in items]),
        *_where(study, workload, items),
        *([phrase("two_levels.elsewhere", workloads=_by_workload(study, others))] if others else []),
        *([phrase("two_levels.between", count=len(middle), cases=len(items))] if middle else []),
    ]
    return [
        found(
            "two_levels",
            "two-levels",
            Audience.KERNELS,
            evidence=evidence,
            cases=(shown[0], *(case for case, _ in items if case is not shown[0]))[:3],
            levels=len(items),
            workload=workload,
            cases_=len(study.of(workload)),
            spread=spread(steps),
            most=max(steps) - 1,
            step=STEP,
        )
    ]


def _by_workload(study: Study, cases: Sequence[CaseResult]) -> str:
    names = [case.workload for case in cases]
    return join_words([f"{name} {names.count(name)} of {len(study.of(name))}" for name in dict.fromkeys(names)])


def _rounds_words(study: Study, case: CaseResult) -> str:
    assert case.plain is not None
    words = f"{label(study, case)}: {', '.join(map(number, case.plain.round_medians_us))} µs, round by round"
    return words + (f"; nsys {', '.join(map(number, case.nsys.round_medians_us))} µs" if case.nsys else "")


def _agreement(cases: Sequence[CaseResult]) -> list[str]:
    """Whether the plain process and nsys's, with the same order of turns, see the same rounds on the upper level."""
    both = [(one, other) for case in cases if (one := levels(case.plain)) and (other := levels(case.nsys))]
    both = [(one, other) for one, other in both if len(one.upper) == len(other.upper)]
    if not both:
        return []
    rounds = sum(len(one.upper) for one, _ in both)
    same = sum(a == b for one, other in both for a, b in zip(one.upper, other.upper, strict=True))
    chance = sum(len(one.upper) * _alike(fmean(one.upper), fmean(other.upper)) for one, other in both)
    return [phrase("two_levels.agreement", same=same, rounds=rounds, cases=len(both), chance=chance)]


def _alike(one: float, other: float) -> float:
    """The probability that two independent rounds are on the same level. one, other: parts on the upper."""
    return one * other + (1 - one) * (1 - other)


def _where(study: Study, workload: str, found: Sequence[tuple[CaseResult, Levels]]) -> list[str]:
    """Which cases have levels: by option, by use of DRAM, by size."""
    mine = {case.id for case, _ in found}

    def part(cases: Sequence[CaseResult]) -> str:
        return f"{sum(case.id in mine for case in cases)} of {len(cases)}"

    lines = []
    groups = study.groups(workload)
    if len(groups) > 1:
        words = [
            f"{parameter_words(dict(key), cases[0].params)} {part(cases)}"
            for key, cases in sorted(groups.items(), key=lambda item: -sum(case.id in mine for case in item[1]))
        ]
        lines.append(f"by option: {'; '.join(words)}")
    known = [
        (case, kernel.dram_pct)
        for case in study.of(workload)
        if (kernel := main_kernel(case)) is not None and kernel.dram_pct is not None
    ]
    busy = [case for case, dram in known if dram >= DRAM_BUSY_PCT]
    if known and busy and len(busy) < len(known):
        rest = [case for case, dram in known if dram < DRAM_BUSY_PCT]
        lines.append(f"by ncu's use of DRAM: {part(busy)} from {DRAM_BUSY_PCT:.0f}% on, {part(rest)} below")
    ordered = sorted(found, key=lambda item: item[0].bytes_read + item[0].bytes_written)
    half = math.ceil(len(ordered) / 2)
    if half < len(ordered):
        small, large = (spread([item.step for _, item in part_]) for part_ in (ordered[:half], ordered[half:]))
        lines.append(f"the step by size: {small} in the half of them that reads less, {large} in the other")
    return lines
