"""What a study found for those who write kernels: distances from the roof, ways to avoid, tails."""

from __future__ import annotations

import math

from fiprof.analysis.alternatives import WORKLOAD, Alternative
from fiprof.analysis.reasons import ReasonKind, kind_of
from fiprof.analysis.shapes import of_study, shapes, worth_a_look
from fiprof.analysis.study import Study, dram_bytes, least_bytes, main_kernel, top_stalls
from fiprof.analysis.verdict.model import Kind, Part
from fiprof.model.results import CaseResult, Kernel
from fiprof.reports.columns import Cell, filled
from fiprof.reports.study_pages.names import cite, short, value_word
from fiprof.reports.study_pages.numbers import spread
from fiprof.reports.study_pages.tables import BOUND, ROOF, SHARE, STALLS, of_kernel
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase
from fiprof.text import join_words, short_kernel

NEAR_ROOF = 0.85
"""Part of its roof from which a kernel has little left to gain there. fiprof's own choice."""

TAIL_EFFICIENCY = 0.80
"""Waves over waves rounded up: below it, the last wave leaves a good part of the GPU idle. fiprof's own choice."""

MOST_TAILS = 8


def distances(study: Study) -> View:
    """Every model shape at its largest size, solved the fastest way: how far it is from its roof."""
    columns: list[Cell] = [
        (Column("kernel", "kernel"), lambda case: case.workload),
        (Column("case", "case"), lambda case: cite(study, case, short(study, case))),
        SHARE,
        ROOF,
        BOUND,
        (Column("over", "DRAM/least", "", ".2f"), _over),
        of_kernel("occupancy", "occupancy", "%", "", occupancy),
        STALLS,
    ]
    return filled(columns, [shape.fastest for shape in shapes(study)])


def next_steps(study: Study) -> list[str]:
    """What to do about them, those with the same advice together."""
    alike: dict[tuple[str, str], list[tuple[CaseResult, float]]] = {}
    for shape in shapes(study):
        key, reason, share = next_step(shape.fastest)
        alike.setdefault((key, reason), []).append((shape.fastest, share))
    return [
        phrase(
            f"study_advice.{key}",
            cases=list(dict.fromkeys(case.workload for case, _ in found)),
            reason=reason,
            share=spread([share for _, share in found], ".0%"),
        )
        for (key, reason), found in alike.items()
    ]


def _over(case: CaseResult) -> float | None:
    counted, least = dram_bytes(case), least_bytes(case)
    return counted / least if counted and least else None


def occupancy(kernel: Kernel) -> str:
    """``37 of 56, registers``: achieved, possible, and what limits it; a dash where it was not collected."""
    if kernel.achieved_occupancy_pct is None or kernel.theoretical_occupancy_pct is None:
        return "–"
    held = f"{kernel.achieved_occupancy_pct:.0f} of {kernel.theoretical_occupancy_pct:.0f}"
    return ", ".join([held, *kernel.occupancy_limiters])


def next_step(case: CaseResult) -> tuple[str, str, float]:
    """What follows from the verdict, the roof and the warps' states of a case's main kernel, in this order.

    A key of ``study_advice``, the roof or the stall reason, and its share.
    """
    kernel = main_kernel(case)
    if kernel is None:
        return "no_kernel", "", 0.0
    if kernel.verdict is not None and kernel.verdict.kind in (Kind.LAUNCH, Kind.IMBALANCE):
        return kernel.verdict.kind, "", 0.0
    if kernel.verdict is not None and kernel.verdict.part == Part.ISSUE_SLOTS:
        return "issue_slots", "", 0.0
    if kernel.roof_share is not None and kernel.roof_share >= NEAR_ROOF:
        return "near_roof", kernel.roof or "", kernel.roof_share
    waiting = [item for item in top_stalls(kernel, len(kernel.stalls)) if kind_of(item[0]) == ReasonKind.STALL]
    return ("stall", *waiting[0]) if waiting else ("no_stalls", "", 0.0)


# Ways to avoid


def avoid(study: Study) -> View:
    """Every case that another option solves faster, the largest factor first."""
    found = of_study(study)
    slower = sorted(
        ((case, found[case.id]) for case in study.measured if case.id in found), key=lambda i: -i[1].factor.value
    )
    columns: list[Cell] = [
        (Column("kernel", "kernel"), lambda item: item[0].workload),
        (Column("case", "avoid"), lambda item: cite(study, item[0], short(study, item[0]))),
        (Column("instead", "take"), lambda item: taken(*item)),
        (Column("factor", "times as long", "", ".2f"), lambda item: item[1].factor.value),
        (Column("low", "from", "", ".2f"), lambda item: item[1].factor.low),
        (Column("high", "to", "", ".2f"), lambda item: item[1].factor.high),
        (Column("measure", "by time"), lambda item: phrase(f"avoid.{item[1].measure}")),
    ]
    return filled(columns, slower, title=phrase("avoid.title"))


def taken(case: CaseResult, found: Alternative) -> str:
    """What to take instead, in words: ``tensor cores, no CUDA graph``."""
    instead = {each.name: each.instead for each in found.changes}
    workload = str(instead.pop(WORKLOAD, ""))
    words = [workload, *(value_word(name, value, {**case.params, **instead}) for name, value in instead.items())]
    return ", ".join(filter(None, words))


# Tails


def tails(study: Study) -> View:
    """Grids whose last wave is nearly empty, of cases that nothing solves faster: the slowest of each launch."""
    seen = [(case, kernel) for case in worth_a_look(study) if (kernel := main_kernel(case)) and kernel.waves]
    late = [(case, kernel) for case, kernel in seen if wave_efficiency(kernel.waves) < TAIL_EFFICIENCY]
    distinct = {(kernel.kernel, kernel.grid, kernel.block): (case, kernel) for case, kernel in reversed(late)}
    shown = sorted(distinct.values(), key=lambda item: -(item[0].plain.median_us if item[0].plain else 0.0))
    columns: list[Cell] = [
        (Column("kernel", "kernel"), lambda item: short_kernel(item[1].kernel)),
        (Column("case", "case"), lambda item: cite(study, item[0], short(study, item[0]))),
        (Column("waves", "waves", "", ".2f"), lambda item: item[1].waves),
        (Column("used", "slots used", "%", ".0f"), lambda item: 100 * wave_efficiency(item[1].waves)),
        (Column("roof", "of roof", "%", ".0f"), lambda item: SHARE[1](item[0])),
    ]
    under = sum((kernel.waves or 0) < 1 for _, kernel in seen)
    values = {"cases": len(seen), "under": under, "tails": len(late), "empty": 1 - TAIL_EFFICIENCY}
    names = join_words(list(dict.fromkeys(case.workload for case, _ in late))) or "–"
    summary = (phrase("tail.summary", **values, names=names),) if seen else (phrase("tail.absent"),)
    return filled(columns, shown[:MOST_TAILS], summary=summary)


def wave_efficiency(waves: float | None) -> float:
    """Waves over waves rounded up; 1 where they are not known or there is less than one."""
    return waves / math.ceil(waves) if waves is not None and waves > 1 else 1.0
