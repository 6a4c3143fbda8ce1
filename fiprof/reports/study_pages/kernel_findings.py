"""What a study found for those who write kernels."""

from __future__ import annotations

import math

from fiprof.analysis.reasons import ReasonKind, kind_of
from fiprof.analysis.study import Study, absence, dram_bytes, least_bytes, main_kernel, top_stalls
from fiprof.analysis.verdict.model import Kind, Part
from fiprof.model import knowledge
from fiprof.model.results import CaseResult, Kernel, Times
from fiprof.reports.pages.page import Observation
from fiprof.reports.study_pages import levels
from fiprof.reports.study_pages.found import Audience, StudyFinding, not_measured, slug
from fiprof.reports.study_pages.names import absence_words, evidence_words, label, parameter_words, verdict_title
from fiprof.reports.study_pages.numbers import number, plain_time
from fiprof.reports.words import phrase
from fiprof.text import count, join_words

NEAR_ROOF = 0.85
"""Part of its roof from which a kernel has little left to gain there. fiprof's own choice."""

TAIL_EFFICIENCY = 0.80
"""Waves over waves rounded up: below it, the last wave leaves a good part of the GPU idle. fiprof's own choice."""

MOST_TAILS = 3


def kernels(study: Study) -> list[StudyFinding]:
    """Every workload's distance from its roof, the cost of merging, and tails."""
    return [*_distance(study), *_tails(study), *levels.finding(study)]


def _distance(study: Study) -> list[StudyFinding]:
    """For each workload, the option whose largest case is farthest from its roof, and what its warps wait for."""
    found = []
    for workload in study.by_workload:
        largest = [
            (case, kernel)
            for group in study.groups(workload).values()
            for case in group[-1:]
            if (kernel := main_kernel(case)) is not None
        ]
        known = [(case, kernel, kernel.roof_share) for case, kernel in largest if kernel.roof_share is not None]
        anchor, what = f"roof-{slug(workload)}", f"Distance of {workload} from its roof"
        if not known:
            why = (
                absence_words(absence(study, workload))
                if not study.of(workload)
                else "ncu gave no roof of its largest cases"
            )
            found.append(not_measured(anchor, what, why, Audience.KERNELS))
            continue
        case, kernel, share = min(known, key=lambda item: item[2])
        best, best_kernel, best_share = max(known, key=lambda item: item[2])
        top = top_stalls(kernel)
        other = (
            f"; the best of {len(known)} options, {_option(study, best)}, {best_share:.0%} of the {best_kernel.roof} "
            "roof"
            if best is not case
            else ""
        )
        evidence = [f"{label(study, case)}: {plain_time(case)}; {kernel.kernel}"]
        evidence += [evidence_words(item) for item in kernel.verdict.evidence[:2]] if kernel.verdict else []
        evidence += _bytes(case)
        evidence += [f"warps: {join_words([f'{name} {part:.0%}' for name, part in top])}"] if top else []
        evidence += [occupancy(kernel)] if occupancy(kernel) else []
        finding = Observation(
            anchor,
            f"At its largest size {workload} reaches {share:.0%} of the {kernel.roof} roof with {_option(study, case)}"
            f"{f', {verdict_title(kernel.verdict)}' if kernel.verdict else ''}{other}.",
            tuple(evidence),
            _stall_advice(kernel),
            "Counted by ncu in one launch. The roof is the lowest at the kernel's intensity; the verdict also weighs "
            "what no roof shows: issue slots, idle multiprocessors, the host.",
        )
        cases = (case,) if best is case else (case, best)
        about = knowledge.of_workload(workload)
        found.append(
            StudyFinding(
                f"{workload} and its roof",
                finding,
                cases,
                Audience.KERNELS,
                headline=about is not None and about.headline,
                short=_short(kernel),
                figure=f"{share:.0%} of the {kernel.roof} roof"
                + (f", best {best_share:.0%}" if best is not case else ""),
            )
        )
    return found


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
    """Grids whose last wave is nearly empty."""
    seen = [(case, kernel) for case in study.measured for kernel in [main_kernel(case)] if kernel and kernel.waves]
    if not seen:
        return [not_measured("tail", "Waves of the grids", "ncu gave no waves of any case", Audience.KERNELS)]
    tails = [(case, kernel, tail) for case, kernel in seen if (tail := wave_efficiency(kernel.waves)) < TAIL_EFFICIENCY]
    under = [(case, kernel) for case, kernel in seen if kernel.waves is not None and kernel.waves < 1]
    distinct = {
        (kernel.kernel, kernel.grid, kernel.block): (case, kernel, tail) for case, kernel, tail in reversed(tails)
    }
    shown = sorted(distinct.values(), key=lambda item: -(item[0].plain or _NEVER).median_us)
    evidence = [
        f"{label(study, case)}: {kernel.waves:.2f} waves of {kernel.kernel}, {tail:.0%} of the block slots of those "
        f"waves used{_at_roof(kernel)}"
        for case, kernel, tail in shown[:MOST_TAILS]
    ]
    far = [item for item in tails if (item[1].roof_share or 0) < NEAR_ROOF]
    finding = Observation(
        "tail",
        f"Of {count(len(seen), 'case')} the main kernel of {len(under)} has less than a wave, and of {len(tails)} more "
        f"than one with a last wave that leaves over {1 - TAIL_EFFICIENCY:.0%} of all block slots empty.",
        tuple(evidence),
        "Tails are no problem at these sizes."
        if not tails
        else f"All of them reach {NEAR_ROOF:.0%} of their roof all the same: the tail costs little there."
        if not far
        else f"{len(far)} of the {len(tails)} are not known to reach {NEAR_ROOF:.0%} of their roof: there, smaller "
        "tiles or a persistent grid fill the last wave.",
        "Waves count block slots, not work: with unequal blocks (a causal mask) the tail can be shorter or longer.",
    )
    figure = f"{len(under)} under a wave, {len(tails)} with an empty tail"
    return [
        StudyFinding(
            "Waves and tails", finding, tuple(item[0] for item in shown[:MOST_TAILS]), Audience.KERNELS, figure=figure
        )
    ]


def _at_roof(kernel: Kernel) -> str:
    return f"; at {kernel.roof_share:.0%} of the {kernel.roof} roof" if kernel.roof_share is not None else ""


_NEVER = Times(0.0, 0.0, 0.0, 0.0, 0, 0, [])


def wave_efficiency(waves: float | None) -> float:
    """Waves over waves rounded up; 1 where they are not known or there is less than one."""
    return waves / math.ceil(waves) if waves is not None and waves > 1 else 1.0
