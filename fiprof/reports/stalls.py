"""``fiprof stalls`` as tables: one a launch for people, one flat for programs."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.stalls import LaunchStalls, Stall, StallFinding, StallReport, disagreements, findings
from fiprof.model.selection import Alike, alike, longest_first
from fiprof.reports.headings import bounded, heading
from fiprof.reports.view import Column, Document, View
from fiprof.reports.words import phrase, worded

MOST_LAUNCHES = 5
"""Groups of like launches that people are shown."""
FOLDED_SHARE = 0.01
"""Reasons below it in both measures are shown as one."""

_DATA = (
    "launch", "case", "iteration", "kernel", "reason", "stall_share", "warps_per_issue", "samples",
    "samples_not_issued", "sample_share",
)  # fmt: skip

_SHOWN = (
    Column("reason", "reason", least=len("math_pipe_throttle")),
    Column("weight", "bar", bar=True),
    Column("stall_share", "share", spec=".1%", least=6),
    Column("warps_per_issue", "warps/issue", spec=".2f"),
    Column("sample_share", "sampled", spec=".1%"),
)


def document(report: StallReport, *, reasons: int | None = None, most: int | None = None) -> Document:
    """A table for each group of like launches, what takes most time first; for programs a row a launch and reason.

    reasons: only so many of each launch; people see the rest as one. most: groups that people are shown; None for all.
    """
    rows = tuple(
        (
            item.launch, item.case, item.iteration, item.kernel, stall.reason, stall.share, stall.warps_per_issue,
            stall.samples, stall.samples_not_issued, stall.sampled_share,
        )
        for item in report.launches
        for stall in item.stalls[:reasons]
    )  # fmt: skip
    kept, left_out = bounded(longest_first(alike(report.launches, weights=report.weights)), most)
    return Document(
        programs=View(tuple(map(Column, _DATA)), rows),
        shown=tuple(_of_launch(group, reasons) for group in kept),
        warnings=report.warnings,
        notes=(*left_out, phrase("stalls.how_to_read")),
    )


def _of_launch(group: Alike[LaunchStalls], reasons: int | None) -> View:
    item = group.shown
    kept = [
        stall
        for stall in item.stalls[:reasons]
        if stall.weight >= FOLDED_SHARE or (stall.sampled_share or 0.0) >= FOLDED_SHARE
    ]
    folded = [stall for stall in item.stalls if stall not in kept]
    rows = kept + ([_folded(folded)] if folded else [])
    says = findings(item)
    helps = says[-1:] if says[-1].kind == StallFinding.HELPS else ()
    return View(
        _SHOWN,
        tuple((s.reason, s.weight, s.share, s.warps_per_issue, s.sampled_share) for s in rows),
        title=heading(item, group),
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
