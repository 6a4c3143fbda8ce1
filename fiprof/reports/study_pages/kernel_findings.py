"""What a study found for those who write kernels."""

from __future__ import annotations

import math
from statistics import median

from fiprof.analysis.reasons import reason_of
from fiprof.model.results import Cell, Kernel, Times
from fiprof.reports.pages.page import Observation
from fiprof.reports.study_pages import levels
from fiprof.reports.study_pages.data import Study, dram_bytes, kernel_shares, main_kernel, parameter_words
from fiprof.reports.study_pages.found import StudyFinding, not_measured, slug
from fiprof.reports.study_pages.ratio import duration, number, times
from fiprof.text import count, join_words

NEAR_ROOF = 0.85
"""Part of its roof from which a kernel has little left to gain there. fiprof's own choice."""

MERGE = "MergeStates"
"""In the names of FlashInfer's kernels that merge the parts of a split KV."""

MERGE_WORTH = 0.10
"""Part of an iteration from which the merge is said to be worth a change. fiprof's own choice."""

TAIL_EFFICIENCY = 0.80
"""Waves over waves rounded up: below it, the last wave leaves a good part of the GPU idle. fiprof's own choice."""

MOST_TAILS = 3


def kernels(study: Study) -> list[StudyFinding]:
    """Every workload's distance from its roof, the cost of merging, and tails."""
    return [*_distance(study), *_merge(study), *_tails(study), *levels.finding(study)]


def _distance(study: Study) -> list[StudyFinding]:
    """For each workload, the option whose largest cell is farthest from its roof, and what its warps wait for."""
    found = []
    for workload in study.by_workload:
        largest = [
            (cell, kernel)
            for group in study.groups(workload).values()
            for cell in group[-1:]
            if (kernel := main_kernel(cell)) is not None
        ]
        known = [(cell, kernel, kernel.roof_share) for cell, kernel in largest if kernel.roof_share is not None]
        anchor, what = f"roof-{slug(workload)}", f"Distance of {workload} from its roof"
        if not known:
            why = study.why_absent(workload) if not study.of(workload) else "ncu gave no roof of its largest cells"
            found.append(not_measured(anchor, what, why, "kernels"))
            continue
        cell, kernel, share = min(known, key=lambda item: item[2])
        best, best_kernel, best_share = max(known, key=lambda item: item[2])
        top = top_stalls(kernel)
        other = (
            f"; the best of {len(known)} options, {_option(study, best)}, {best_share:.0%} of the {best_kernel.roof} "
            "roof"
            if best is not cell
            else ""
        )
        evidence = [f"{study.label(cell)}: {_time(cell)}; {kernel.kernel}"]
        evidence += kernel.verdict_evidence[:2]
        evidence += _bytes(cell)
        evidence += [f"warps: {join_words([f'{name} {part:.0%}' for name, part in top])}"] if top else []
        evidence += [occupancy(kernel)] if occupancy(kernel) else []
        finding = Observation(
            anchor,
            f"At its largest size {workload} reaches {share:.0%} of the {kernel.roof} roof with {_option(study, cell)}"
            f"{f', {kernel.verdict}' if kernel.verdict else ''}{other}.",
            tuple(evidence),
            _stall_advice(kernel),
            "Counted by ncu in one launch. The roof is the lowest at the kernel's intensity; the verdict also weighs "
            "what no roof shows: issue slots, idle multiprocessors, the host.",
        )
        cells = (cell,) if best is cell else (cell, best)
        found.append(
            StudyFinding(
                f"{workload} and its roof",
                finding,
                cells,
                "kernels",
                headline=workload in ("prefill", "decode"),
                short=_short(kernel),
                figure=f"{share:.0%} of the {kernel.roof} roof"
                + (f", best {best_share:.0%}" if best is not cell else ""),
            )
        )
    return found


def _short(kernel: Kernel) -> str:
    """Verdict and largest stall, for the summary; what follows from the verdict where it says more than that."""
    for verdict, advice in _BY_VERDICT:
        if kernel.verdict.startswith(verdict):
            return f"{kernel.verdict}; {advice[:1].lower()}{advice[1:]}"
    waiting = [item for item in top_stalls(kernel, len(kernel.stalls)) if reason_of(item[0]).kind == "stall"]
    words = [kernel.verdict, *([f"its warps wait most on {waiting[0][0]} ({waiting[0][1]:.0%})"] if waiting else [])]
    return f"{'; '.join(filter(None, words)) or 'what holds it back was not collected'}."


def _bytes(cell: Cell) -> list[str]:
    """Counted DRAM bytes over the least: what could be saved at all."""
    counted, least = dram_bytes(cell), cell.bytes_read + cell.bytes_written
    if not counted or not least:
        return []
    left = " (below 1: what L2 still holds at the end is not counted)" if counted < 0.99 * least else ""
    return [f"DRAM bytes counted: {number(counted / least)} times the least that the algorithm needs{left}"]


def _option(study: Study, cell: Cell) -> str:
    """The cell's options in words; its whole name where the workload has none."""
    options = study.options(cell.workload)
    words = parameter_words({name: cell.params[name] for name in options if name in cell.params}, cell.params)
    return words or study.label(cell, workload=False)


def top_stalls(kernel: Kernel, most: int = 3) -> list[tuple[str, float]]:
    """The largest warp states with their shares."""
    return sorted(kernel.stalls.items(), key=lambda item: -item[1])[:most]


def occupancy(kernel: Kernel) -> str:
    """``occupancy 37% of 56%, limited by registers``; empty where it was not collected."""
    if kernel.achieved_occupancy_pct is None or kernel.theoretical_occupancy_pct is None:
        return ""
    by = join_words(kernel.occupancy_limiters)
    return (
        f"occupancy {kernel.achieved_occupancy_pct:.0f}% of {kernel.theoretical_occupancy_pct:.0f}%"
        f"{f', limited by {by}' if by else ''}"
    )


_BY_VERDICT = (
    (
        "launch-bound",
        "The GPU waits for the host there: fewer launches or a CUDA graph help, a faster kernel does not.",
    ),
    (
        "imbalanced",
        "Multiprocessors idle while others work: more and smaller work items, or a schedule that evens them out.",
    ),
    (
        "compute-bound (issue slots)",
        "Its schedulers issue in most cycles: fewer instructions for the same work (wider loads, less index "
        "arithmetic, tensor cores for what they can do).",
    ),
)
"""Where a verdict's first words say more than the stalls."""


def _stall_advice(kernel: Kernel) -> str:
    """What follows from the verdict, the roof and the warps' states, in this order."""
    for verdict, advice in _BY_VERDICT:
        if kernel.verdict.startswith(verdict):
            return advice
    if kernel.roof_share is not None and kernel.roof_share >= NEAR_ROOF:
        return f"At {kernel.roof_share:.0%} of the {kernel.roof} roof there is little left but to need less of it."
    waiting = [
        (name, share) for name, share in top_stalls(kernel, len(kernel.stalls)) if reason_of(name).kind == "stall"
    ]
    if not waiting:
        return "Its stalls were not collected: fiprof collect --set full, then fiprof stalls, says what to change."
    name, share = waiting[0]
    return (
        f"What its warps wait for most is {name} ({share:.0%}). What usually makes that less: {reason_of(name).helps}."
    )


def _merge(study: Study) -> list[StudyFinding]:
    """What the kernel that merges the parts of a split KV costs."""
    attention = [name for name in ("decode", "prefill") if name in study.by_workload]
    seen = [cell for name in attention for cell in study.of(name) if cell.kernels]
    if not seen:
        why = "ncu saw no cell of them" if any(map(study.of, attention)) else study.why_absent("decode")
        return [not_measured("decode-merge", "Cost of split-K's merge", why, "kernels")]
    rest = [(cell, share) for cell in seen if (share := merge_share(cell)) is not None]
    of = f"{count(len(seen), 'cell')} of {join_words(attention)}"
    if not rest:
        words = f"None of {of} ran a merge kernel: KV was split nowhere."
        return [
            StudyFinding("Split-K's merge", Observation("decode-merge", words, (), "Nothing to gain."), (), "kernels")
        ]
    worst, least = max(rest, key=lambda item: item[1]), min(rest, key=lambda item: item[1])
    evidence = tuple(
        f"{study.label(cell)}: {share:.0%} of the kernel time, {join_words(list(map(_kernel_time, cell.kernels)))}"
        for cell, share in ({id(worst): worst, id(least): least}).values()
    )
    half = median(share for _, share in rest)
    finding = Observation(
        "decode-merge",
        f"In {len(rest)} of {of} split-K adds a merge kernel, which takes {least[1]:.0%} to {worst[1]:.0%} of an "
        f"iteration's kernel time (median {half:.0%}).",
        evidence,
        "Where it is large, split less, merge inside the last block to finish (a counter in the workspace), or launch "
        "it programmatically early."
        if worst[1] >= MERGE_WORTH
        else "It is small everywhere: not the place to begin.",
        "ncu's times, which for kernels of a few microseconds are longer than those in a running stream.",
    )
    shown = (worst[0],) if worst is least else (worst[0], least[0])
    figure = f"up to {worst[1]:.0%} of an iteration's kernel time"
    return [StudyFinding("Split-K's merge", finding, shown, "kernels", figure=figure)]


def merge_share(cell: Cell) -> float | None:
    """Part of an iteration's kernel time in the kernel that merges split KV; None where none ran or has no time."""
    shares = kernel_shares(cell)
    found = [share for kernel, share in zip(cell.kernels, shares or [], strict=False) if MERGE in kernel.kernel]
    return sum(found) if found else None


def _kernel_time(kernel: Kernel) -> str:
    return f"{kernel.kernel} {'–' if kernel.duration_us is None else duration(kernel.duration_us)}"


def _tails(study: Study) -> list[StudyFinding]:
    """Grids whose last wave is nearly empty."""
    seen = [(cell, kernel) for cell in study.measured for kernel in [main_kernel(cell)] if kernel and kernel.waves]
    if not seen:
        return [not_measured("tail", "Waves of the grids", "ncu gave no waves of any cell", "kernels")]
    tails = [(cell, kernel, tail) for cell, kernel in seen if (tail := wave_efficiency(kernel.waves)) < TAIL_EFFICIENCY]
    under = [(cell, kernel) for cell, kernel in seen if kernel.waves is not None and kernel.waves < 1]
    distinct = {
        (kernel.kernel, kernel.grid, kernel.block): (cell, kernel, tail) for cell, kernel, tail in reversed(tails)
    }
    shown = sorted(distinct.values(), key=lambda item: -(item[0].plain or _NEVER).median_us)
    evidence = [
        f"{study.label(cell)}: {kernel.waves:.2f} waves of {kernel.kernel}, {tail:.0%} of the block slots of those "
        f"waves used{_at_roof(kernel)}"
        for cell, kernel, tail in shown[:MOST_TAILS]
    ]
    far = [item for item in tails if (item[1].roof_share or 0) < NEAR_ROOF]
    finding = Observation(
        "tail",
        f"Of {count(len(seen), 'cell')} the main kernel of {len(under)} has less than a wave, and of {len(tails)} more "
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
            "Waves and tails", finding, tuple(item[0] for item in shown[:MOST_TAILS]), "kernels", figure=figure
        )
    ]


def _at_roof(kernel: Kernel) -> str:
    return f"; at {kernel.roof_share:.0%} of the {kernel.roof} roof" if kernel.roof_share is not None else ""


_NEVER = Times(0.0, 0.0, 0.0, 0.0, 0, 0, [])


def wave_efficiency(waves: float | None) -> float:
    """Waves over waves rounded up; 1 where they are not known or there is less than one."""
    return waves / math.ceil(waves) if waves is not None and waves > 1 else 1.0


def _time(cell: Cell) -> str:
    return "–" if cell.plain is None else times(cell.plain)
