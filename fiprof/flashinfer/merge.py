"""What the kernel that merges the parts of a split KV costs."""

from __future__ import annotations

from statistics import median

from fiprof.analysis.study import Study
from fiprof.model.results import Kernel
from fiprof.reports.pages.page import Observation
from fiprof.reports.study_pages.choices import aside_share
from fiprof.reports.study_pages.found import Audience, StudyFinding, not_measured
from fiprof.reports.study_pages.names import label
from fiprof.reports.study_pages.numbers import duration
from fiprof.text import count, join_words

MERGE = "MergeStates"
"""In the names of FlashInfer's kernels that merge the parts of a split KV."""

MERGE_WORTH = 0.10
"""Part of an iteration from which the merge is said to be worth a change. fiprof's own choice."""


def merge(study: Study) -> list[StudyFinding]:
    """What the kernel that merges the parts of a split KV costs."""
    attention = [name for name in ("decode", "prefill") if name in study.by_workload]
    seen = [case for name in attention for case in study.of(name) if case.kernels]
    if not attention:
        return []
    if not seen:
        why = f"ncu saw no case of {join_words(attention)}"
        return [not_measured("decode-merge", "Cost of split-K's merge", why, Audience.KERNELS)]
    rest = [(case, share) for case in seen if (share := aside_share(case, MERGE)) > 0]
    of = f"{count(len(seen), 'case')} of {join_words(attention)}"
    if not rest:
        words = f"None of {of} ran a merge kernel: KV was split nowhere."
        return [
            StudyFinding(
                "Split-K's merge", Observation("decode-merge", words, (), "Nothing to gain."), (), Audience.KERNELS
            )
        ]
    worst, least = max(rest, key=lambda item: item[1]), min(rest, key=lambda item: item[1])
    evidence = tuple(
        f"{label(study, case)}: {share:.0%} of the kernel time, {join_words(list(map(_kernel_time, case.kernels)))}"
        for case, share in ({id(worst): worst, id(least): least}).values()
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
    return [StudyFinding("Split-K's merge", finding, shown, Audience.KERNELS, figure=figure)]


def _kernel_time(kernel: Kernel) -> str:
    return f"{kernel.kernel} {'–' if kernel.duration_us is None else duration(kernel.duration_us)}"
