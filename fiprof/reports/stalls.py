"""``fiprof stalls`` as tables: one a launch for people, one flat for programs."""

from fiprof.analysis.frames import OfRun
from fiprof.analysis.stalls import LaunchStalls, disagreements, findings
from fiprof.model.finding import say, words_of
from fiprof.model.run import StallReason
from fiprof.model.selection import Alike, alike, longest_first
from fiprof.reports.columns import bounded, heading
from fiprof.reports.view import Column, Document, Sayable, View

MOST_LAUNCHES = 5  # groups of like launches that people are shown
FOLDED_SHARE = 0.01  # reasons below it in both measures are shown as one

HOW_TO_READ = (
    "share: of all warps' time, by ncu's counters. warps/issue: warps in that state per issued instruction. "
    "sampled: share of ncu's warp samples. selected (issuing) and not_selected (ready) are no stalls."
)
COLUMNS = (
    Column("launch", meaning="ncu's ID of the launch."),
    Column("case", meaning="Case id."),
    Column("iteration", meaning="Iteration of the case, from 0."),
    Column("kernel", meaning="Function name without namespaces, parameters and template arguments."),
    Column("reason", "reason", least=len("math_pipe_throttle"), meaning="Why warps did not issue: long_scoreboard, …"),
    Column("stall_share", "share", spec=".1%", least=6, meaning="Share of the warps' time by counters, 0 to 1."),
    Column("warps_per_issue", "warps/issue", spec=".2f", meaning="Warps in this state per issued instruction."),
    Column("samples", meaning="Warp samples in this state."),
    Column("samples_not_issued", meaning="Samples in cycles in which the scheduler issued nothing."),
    Column("sample_share", "sampled", spec=".1%", meaning="Share of all warp samples of the launch, 0 to 1."),
)
SHOWN = (COLUMNS[4], Column("weight", "bar", bar=True), COLUMNS[5], COLUMNS[6], COLUMNS[9])


def document(report: OfRun[LaunchStalls, None], *, reasons: int | None = None, most: int | None = None) -> Document:
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
    shown = tuple(_of_launch(group, reasons) for group in kept)
    return Document(View(COLUMNS, rows), shown, warnings=report.warnings, notes=(*left_out, HOW_TO_READ))


def _of_launch(group: Alike[LaunchStalls], reasons: int | None) -> View:
    item = group.shown
    shown: list[StallReason] = []
    folded: list[StallReason] = []
    for place, stall in enumerate(item.stalls):
        large = max(stall.weight, stall.sampled_share or 0.0) >= FOLDED_SHARE
        (shown if large and (reasons is None or place < reasons) else folded).append(stall)
    rows = [(each.reason, each.weight, each.share, each.warps_per_issue, each.sampled_share) for each in shown]
    if folded:

        def total(name: str) -> float | None:
            values = [value for each in folded if (value := getattr(each, name)) is not None]
            return sum(values) if values else None

        share, sampled = total("share"), total("sampled_share")
        weight = (sampled or 0.0) if share is None else share
        rows.append((say("other ({count})", count=len(folded)), weight, share, total("warps_per_issue"), sampled))
    findings_of = findings(item)
    helps = findings_of[-1:] if findings_of[-1].kind == "helps" else ()
    summary: tuple[Sayable, ...] = (" ".join(map(words_of, findings_of[: len(findings_of) - len(helps)])), *helps)
    return View(SHOWN, tuple(rows), heading(item, group), item.warnings, summary, disagreements(item))
