"""What the kernel that merges the parts of a split KV costs."""

from __future__ import annotations

from statistics import median

from fiprof.analysis.shapes import worth_a_look
from fiprof.analysis.study import Study
from fiprof.flashinfer.data import data
from fiprof.model.results import Kernel
from fiprof.reports.study_pages.choices import aside_share
from fiprof.reports.study_pages.found import Audience, StudyFinding, found, not_measured
from fiprof.reports.study_pages.names import label
from fiprof.reports.study_pages.numbers import duration
from fiprof.reports.words import phrase

MERGE: str = data()["merge"]["kernel"]
"""In the names of FlashInfer's kernels that merge the parts of a split KV."""

MERGE_WORTH = 0.10
"""Part of an iteration from which the merge is said to be worth a change. fiprof's own choice."""


def merge(study: Study) -> list[StudyFinding]:
    """What the kernel that merges the parts of a split KV costs, in cases that nothing solves faster."""
    attention = [name for name in ("decode", "prefill") if name in study.by_workload]
    seen = [case for case in worth_a_look(study) if case.workload in attention and case.kernels]
    if not attention:
        return []
    if not seen:
        why = phrase("merge.unseen", workloads=attention)
        return [not_measured("decode-merge", "Cost of split-K's merge", why, Audience.KERNELS)]
    cases = phrase("merge.cases", count=len(seen), workloads=attention)
    merged = sorted(
        ((case, share) for case in seen if (share := aside_share(case, MERGE)) > 0), key=lambda item: -item[1]
    )
    if not merged:
        return [found("no_merge", "decode-merge", Audience.KERNELS, cases_words=cases)]
    ends = [merged[0], merged[-1]] if len(merged) > 1 else merged
    most, least = merged[0][1], merged[-1][1]
    return [
        found(
            "merge",
            "decode-merge",
            Audience.KERNELS,
            evidence=[
                phrase("merge.case", case=label(study, case), share=share, times=list(map(_kernel_time, case.kernels)))
                for case, share in ends
            ],
            cases=[case for case, _ in ends],
            advice=phrase(f"merge.{'large' if most >= MERGE_WORTH else 'small'}"),
            merged=len(merged),
            cases_words=cases,
            least=least,
            most=most,
            median=median(share for _, share in merged),
        )
    ]


def _kernel_time(kernel: Kernel) -> str:
    return f"{kernel.kernel} {'–' if kernel.duration_us is None else duration(kernel.duration_us)}"
