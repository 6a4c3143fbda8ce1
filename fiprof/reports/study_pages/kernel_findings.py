"""What a study found for those who write kernels."""

from __future__ import annotations

import math
from statistics import median

from fiprof.parsers.results import Cell, Kernel, Times
from fiprof.reports.pages.page import Finding
from fiprof.reports.reasons import reason_of
from fiprof.reports.study_pages.data import Study, kernel_shares, main_kernel, parameter_words
from fiprof.reports.study_pages.found import Found, not_measured, slug
from fiprof.reports.study_pages.ratio import count, duration, listed, times

NEAR_ROOF = 0.85
"""Part of its roof from which a kernel has little left to gain there. fiprof's own choice."""

MERGE = "MergeStates"
"""In the names of FlashInfer's kernels that merge the parts of a split KV."""

MERGE_WORTH = 0.10
"""Part of an iteration from which the merge is said to be worth a change. fiprof's own choice."""

TAIL_EFFICIENCY = 0.80
"""Waves over waves rounded up: below it, the last wave leaves a good part of the GPU idle. fiprof's own choice."""


def kernels(study: Study) -> list[Found]:
    """Every workload's distance from its roof, the cost of merging, and tails."""
    return [*_distance(study), *_merge(study), *_tails(study)]


def _distance(study: Study) -> list[Found]:
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
        evidence += [f"warps: {listed([f'{name} {part:.0%}' for name, part in top])}"] if top else []
        evidence += [occupancy(kernel)] if occupancy(kernel) else []
        finding = Finding(
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
            Found(f"{workload} and its roof", finding, cells, "kernels", headline=workload in ("prefill", "decode"))
        )
    return found


def _option(study: Study, cell: Cell) -> str:
    """The cell's options in words; its whole name where the workload has none."""
    options = study.options(cell.workload)
    words = parameter_words({name: cell.params[name] for name in options if name in cell.params}, cell.params)
    return words or study.label(cell, workload=False)


def top_stalls(kernel: Kernel, most: int = 3) -> list[tuple[str, float]]:
    """The largest warp states with their shares."""
    return sorted(kernel.stalls.items(), key=lambda item: -item[1])[:most]


def occupancy(kernel: Kernel) -> str:
    """``occupancy 37 % of 56 % that registers allow``; empty where it was not collected."""
    if kernel.achieved_occupancy_pct is None or kernel.theoretical_occupancy_pct is None:
        return ""
    by = listed(kernel.occupancy_limiters)
    return (
        f"occupancy {kernel.achieved_occupancy_pct:.0f} % of {kernel.theoretical_occupancy_pct:.0f} %"
        f"{f' that {by} allow' if by else ''}"
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


def _merge(study: Study) -> list[Found]:
    """What the kernel that merges the parts of a split KV costs."""
    attention = [name for name in ("decode", "prefill") if name in study.by_workload]
    seen = [cell for name in attention for cell in study.of(name) if cell.kernels]
    if not seen:
        why = "ncu saw no cell of them" if any(map(study.of, attention)) else study.why_absent("decode")
        return [not_measured("decode-merge", "Cost of split-K's merge", why, "kernels")]
    rest = [(cell, share) for cell in seen if (share := merge_share(cell)) is not None]
    of = f"{count(len(seen), 'cell')} of {listed(attention)}"
    if not rest:
        words = f"None of {of} ran a merge kernel: KV was split nowhere."
        return [Found("Split-K's merge", Finding("decode-merge", words, (), "Nothing to gain."), (), "kernels")]
    worst, least = max(rest, key=lambda item: item[1]), min(rest, key=lambda item: item[1])
    evidence = tuple(
        f"{study.label(cell)}: {share:.0%} of the kernel time, {listed(list(map(_kernel_time, cell.kernels)))}"
        for cell, share in ({id(worst): worst, id(least): least}).values()
    )
    half = median(share for _, share in rest)
    finding = Finding(
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
    return [Found("Split-K's merge", finding, (worst[0],) if worst is least else (worst[0], least[0]), "kernels")]


def merge_share(cell: Cell) -> float | None:
    """Part of an iteration's kernel time in the kernel that merges split KV; None where none ran or has no time."""
    shares = kernel_shares(cell)
    found = [share for kernel, share in zip(cell.kernels, shares or [], strict=False) if MERGE in kernel.kernel]
    return sum(found) if found else None


def _kernel_time(kernel: Kernel) -> str:
    return f"{kernel.kernel} {'–' if kernel.duration_us is None else duration(kernel.duration_us)}"


def _tails(study: Study) -> list[Found]:
    """Grids whose last wave is nearly empty."""
    seen = [(cell, kernel) for cell in study.measured for kernel in [main_kernel(cell)] if kernel and kernel.waves]
    if not seen:
        return [not_measured("tail", "Waves of the grids", "ncu gave no waves of any cell", "kernels")]
    tails = [(cell, kernel, tail) for cell, kernel in seen if (tail := wave_efficiency(kernel.waves)) < TAIL_EFFICIENCY]
    under = [(cell, kernel) for cell, kernel in seen if kernel.waves is not None and kernel.waves < 1]
    evidence = [
        f"{study.label(cell)}: {kernel.waves:.2f} waves of {kernel.kernel}: {tail:.0%} of the block slots of those "
        f"waves are used"
        for cell, kernel, tail in sorted(tails, key=lambda item: -(item[0].plain or _NEVER).median_us)[:3]
    ]
    finding = Finding(
        "tail",
        f"Of {count(len(seen), 'cell')} the main kernel of {len(under)} has less than a wave, and of {len(tails)} more "
        f"than one with a last wave that leaves over {1 - TAIL_EFFICIENCY:.0%} of all block slots empty.",
        tuple(evidence),
        "Sizes whose grids end just above a whole number of waves gain from smaller tiles or a persistent grid."
        if tails
        else "Tails are no problem at these sizes.",
        "Waves count block slots, not work: with unequal blocks (a causal mask) the tail can be shorter or longer.",
    )
    return [Found("Waves and tails", finding, tuple(item[0] for item in tails[:3]), "kernels")]


_NEVER = Times(0.0, 0.0, 0.0, 0.0, 0, 0, [])


def wave_efficiency(waves: float | None) -> float:
    """Waves over waves rounded up; 1 where they are not known or there is less than one."""
    return waves / math.ceil(waves) if waves is not None and waves > 1 else 1.0


def _time(cell: Cell) -> str:
    return "–" if cell.plain is None else times(cell.plain)
