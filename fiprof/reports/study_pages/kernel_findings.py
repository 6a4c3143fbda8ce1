"""What a study found for those who write kernels."""

from __future__ import annotations

import math

from fiprof.analysis.alternatives import WORKLOAD, Alternative
from fiprof.analysis.reasons import ReasonKind, kind_of
from fiprof.analysis.shapes import shapes, worth_a_look
from fiprof.analysis.study import Params, Study, Value, absence, dram_bytes, least_bytes, main_kernel, top_stalls
from fiprof.analysis.verdict.model import Kind, Part
from fiprof.model import knowledge
from fiprof.model.results import CaseResult, Kernel, Times
from fiprof.reports.study_pages.found import Audience, StudyFinding, found, not_measured, slug
from fiprof.reports.study_pages.names import (
    absence_words,
    evidence_words,
    label,
    parameter_word,
    parameter_words,
    verdict_title,
)
from fiprof.reports.study_pages.numbers import number, plain_time, ratio_words
from fiprof.reports.words import phrase
from fiprof.text import join_words

NEAR_ROOF = 0.85
"""Part of its roof from which a kernel has little left to gain there. fiprof's own choice."""

TAIL_EFFICIENCY = 0.80
"""Waves over waves rounded up: below it, the last wave leaves a good part of the GPU idle. fiprof's own choice."""

MOST_TAILS = 3


def kernels(study: Study) -> list[StudyFinding]:
    """Every workload's distance from its roof, the cost of merging, and tails."""
    return [*_distance(study), *_tails(study)]


def _distance(study: Study) -> list[StudyFinding]:
    """For each workload, of the fastest options of its model shapes the one farthest from its roof, what its warps wait
    for, and the options to avoid."""
    made = []
    found_shapes = shapes(study)
    for workload in study.by_workload:
        own = [shape for shape in found_shapes if shape.fastest.workload == workload]
        if study.of(workload) and not own:
            continue  # Another workload solves the same faster, and names this one.
        largest = [(shape.fastest, main_kernel(shape.fastest)) for shape in own]
        known = [
            (case, kernel, kernel.roof_share) for case, kernel in largest if kernel and kernel.roof_share is not None
        ]
        anchor, what = f"roof-{slug(workload)}", f"Distance of {workload} from its roof"
        if not known:
            why = (
                absence_words(absence(study, workload))
                if not study.of(workload)
                else "ncu gave no roof of its largest cases"
            )
            made.append(not_measured(anchor, what, why, Audience.KERNELS))
            continue
        case, kernel, share = min(known, key=lambda item: item[2])
        best, best_kernel, best_share = max(known, key=lambda item: item[2])
        top = top_stalls(kernel)
        other = best_kernel is not kernel
        evidence = [f"{label(study, case)}: {plain_time(case)}; {kernel.kernel}"]
        evidence += [evidence_words(item) for item in kernel.verdict.evidence[:2]] if kernel.verdict else []
        evidence += _bytes(case)
        evidence += [f"warps: {join_words([f'{name} {part:.0%}' for name, part in top])}"] if top else []
        evidence += [occupancy(kernel)] if occupancy(kernel) else []
        evidence += [avoid_words(study, each, found) for shape in own for each, found in shape.avoid]
        about = knowledge.of_workload(workload)
        values = {"shapes": len(known), "option": _option(study, best), "share": best_share, "roof": best_kernel.roof}
        made.append(
            found(
                "roof_distance",
                anchor,
                Audience.KERNELS,
                evidence=evidence,
                cases=(case, best) if other else (case,),
                advice=_stall_advice(kernel),
                headline=about is not None and about.headline,
                workload=workload,
                share=share,
                roof=kernel.roof,
                option=_option(study, case),
                verdict=f", {verdict_title(kernel.verdict)}" if kernel.verdict else "",
                other=phrase("roof_distance.best", **values) if other else "",
                other_share=f", best {best_share:.0%}" if other else "",
                short=_short(kernel),
            )
        )
    return made


def avoid_words(study: Study, case: CaseResult, found: Alternative) -> str:
    """An option to avoid, and how much longer it takes than what to take instead."""
    ratio = ratio_words(found.factor)
    return phrase(f"avoid.{found.measure}", case=label(study, case), ratio=ratio, instead=taken(case, found))


def taken(case: CaseResult, found: Alternative) -> str:
    """What to take instead, in words: ``tensor cores, no CUDA graph``."""
    instead = {each.name: each.instead for each in found.changes}
    workload = str(instead.pop(WORKLOAD, ""))
    words = [workload, *(value_word(name, value, {**case.params, **instead}) for name, value in instead.items())]
    return ", ".join(filter(None, words))


def value_word(name: str, value: Value, params: Params) -> str:
    """A parameter's value in words, a switch that is off too."""
    return parameter_word(name, value, params) or f"no {parameter_word(name, True, params)}"


def _short(kernel: Kernel) -> str:
    """Verdict and largest stall, for the summary; what follows from the verdict where it says more than that."""
    verdict = verdict_title(kernel.verdict)
    if advice := _verdict_advice(kernel):
        return f"{verdict}; {advice[:1].lower()}{advice[1:]}"
    waiting = _waiting(kernel)
    words = [verdict, *([f"its warps wait most on {waiting[0][0]} ({waiting[0][1]:.0%})"] if waiting else [])]
    return f"{'; '.join(filter(None, words)) or 'what holds it back was not collected'}."


def _waiting(kernel: Kernel) -> list[tuple[str, float]]:
    """The reasons of its stalls, the largest share first."""
    return [item for item in top_stalls(kernel, len(kernel.stalls)) if kind_of(item[0]) == ReasonKind.STALL]


def _bytes(case: CaseResult) -> list[str]:
    """Counted DRAM bytes over the least: what could be saved at all."""
    counted, least = dram_bytes(case), least_bytes(case)
    if not counted or not least:
        return []
    left = " (below 1: what L2 still holds at the end is not counted)" if counted < 0.99 * least else ""
    return [f"DRAM bytes counted: {number(counted / least)} times the least that the algorithm needs{left}"]


def _option(study: Study, case: CaseResult) -> str:
    """The case's options in words; its whole name where the workload has none."""
    options = study.options(case.workload)
    words = parameter_words({name: case.params[name] for name in options if name in case.params}, case.params)
    return words or label(study, case, workload=False)


def occupancy(kernel: Kernel) -> str:
    """``occupancy 37% of 56%, limited by registers``; empty where it was not collected."""
    if kernel.achieved_occupancy_pct is None or kernel.theoretical_occupancy_pct is None:
        return ""
    by = join_words(kernel.occupancy_limiters)
    return (
        f"occupancy {kernel.achieved_occupancy_pct:.0f}% of {kernel.theoretical_occupancy_pct:.0f}%"
        f"{f', limited by {by}' if by else ''}"
    )


def _verdict_advice(kernel: Kernel) -> str:
    """What follows from a verdict that says more than the stalls; empty for others."""
    if kernel.verdict is None:
        return ""
    if kernel.verdict.kind in (Kind.LAUNCH, Kind.IMBALANCE):
        return phrase(f"study_advice.{kernel.verdict.kind}")
    return phrase("study_advice.issue_slots") if kernel.verdict.part == Part.ISSUE_SLOTS else ""


def _stall_advice(kernel: Kernel) -> str:
    """What follows from the verdict, the roof and the warps' states, in this order."""
    if advice := _verdict_advice(kernel):
        return advice
    if kernel.roof_share is not None and kernel.roof_share >= NEAR_ROOF:
        return phrase("study_advice.near_roof", share=kernel.roof_share, roof=kernel.roof)
    waiting = _waiting(kernel)
    if not waiting:
        return phrase("study_advice.no_stalls")
    name, share = waiting[0]
    return phrase("study_advice.stall", reason=name, share=share)


def _tails(study: Study) -> list[StudyFinding]:
    """Grids whose last wave is nearly empty, of cases that nothing solves faster."""
    seen = [(case, kernel) for case in worth_a_look(study) for kernel in [main_kernel(case)] if kernel and kernel.waves]
    if not seen:
        return [not_measured("tail", "Waves of the grids", "ncu gave no waves of any case", Audience.KERNELS)]
    tails = [(case, kernel, tail) for case, kernel in seen if (tail := wave_efficiency(kernel.waves)) < TAIL_EFFICIENCY]
    under = [(case, kernel) for case, kernel in seen if kernel.waves is not None and kernel.waves < 1]
    distinct = {
        (kernel.kernel, kernel.grid, kernel.block): (case, kernel, tail) for case, kernel, tail in reversed(tails)
    }
    shown = sorted(distinct.values(), key=lambda item: -(item[0].plain or _NEVER).median_us)
    evidence = [
        phrase(
            "tail.case",
            case=label(study, case),
            waves=kernel.waves,
            kernel=kernel.kernel,
            used=tail,
            roof=_at_roof(kernel),
        )
        for case, kernel, tail in shown[:MOST_TAILS]
    ]
    far = [item for item in tails if (item[1].roof_share or 0) < NEAR_ROOF]
    advice = "none" if not tails else "near" if not far else "far"
    return [
        found(
            "tail",
            "tail",
            Audience.KERNELS,
            evidence=evidence,
            cases=[case for case, _, _ in shown[:MOST_TAILS]],
            advice=phrase(f"tail.{advice}", far=len(far), tails=len(tails), near=NEAR_ROOF),
            cases_=len(seen),
            under=len(under),
            tails=len(tails),
            empty=1 - TAIL_EFFICIENCY,
        )
    ]


def _at_roof(kernel: Kernel) -> str:
    return f"; at {kernel.roof_share:.0%} of the {kernel.roof} roof" if kernel.roof_share is not None else ""


_NEVER = Times(0.0, 0.0, 0.0, 0.0, 0, 0, [])


def wave_efficiency(waves: float | None) -> float:
    """Waves over waves rounded up; 1 where they are not known or there is less than one."""
    return waves / math.ceil(waves) if waves is not None and waves > 1 else 1.0
