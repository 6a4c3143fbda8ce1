"""``fiprof stalls`` as tables: one a launch for people, one flat for programs."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.stalls import LaunchStalls, Stall, StallFinding, StallReport, disagreements, findings
from fiprof.reports.headings import heading
from fiprof.reports.view import Column, Document, View
from fiprof.reports.words import phrase, worded

FOLDED_SHARE = 0.01
"""Reasons below it in both measures are shown as one."""

_DATA = (
    "launch", "case", "iteration", "kernel", "reason", "stall_share", "warps_per_issue", "samples",
    "samples_not_issued", "sample_share",
)  # fmt: skip

_SHOWN = (
    Column("reason", "reason", least=len("math_pipe_throttle")),
    Column("weight", "bar", bar=True, least=40),
    Column("stall_share", "share", spec=".1%", least=6),
    Column("warps_per_issue", "warps/issue", spec=".2f"),
    Column("sample_share", "sampled", spec=".1%"),
)


def document(report: StallReport, *, top: int | None = None) -> Document:
    """top: only so many reasons of each launch; people see the rest as one."""
    rows = tuple(
        (
            item.launch, item.case, item.iteration, item.kernel, stall.reason, stall.share, stall.warps_per_issue,
            stall.samples, stall.samples_not_issued, stall.sampled_share,
        )
        for item in report.launches
        for stall in item.stalls[:top]
    )  # fmt: skip
    return Document(
        data=View(tuple(map(Column, _DATA)), rows),
        shown=tuple(_of_launch(item, top) for item in report.launches),
        warnings=report.warnings,
        notes=(phrase("stalls.how_to_read"),),
    )


def _of_launch(item: LaunchStalls, top: int | None) -> View:
    kept = [
        stall
        for stall in item.stalls[:top]
        if stall.weight >= FOLDED_SHARE or (stall.sampled_share or 0.0) >= FOLDED_SHARE
    ]
    folded = [stall for stall in item.stalls if stall not in kept]
    rows = kept + ([_folded(folded)] if folded else [])
    says = findings(item)
    helps = says[-1:] if says[-1].kind == StallFinding.HELPS else ()
    return View(
        _SHOWN,
        tuple((s.reason, s.weight, s.share, s.warps_per_issue, s.sampled_share) for s in rows),
        title=heading(item),
        warnings=item.warnings,
        summary=(" ".join(map(worded, says[: len(says) - len(helps)])), *helps),
        notes=disagreements(item),
    )


def _folded(folded: Sequence[Stall]) -> Stall:
    return Stall(
        reason=phrase("stalls.folded", count=len(folded)),
        share=_sum([stall.share for stall in folded]),
        warps_per_issue=_sum([stall.warps_per_issue for stall in folded]),
        samples=None,
        samples_not_issued=None,
        sampled_share=_sum([stall.sampled_share for stall in folded]),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
