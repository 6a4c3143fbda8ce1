"""What the warps of each launch wait for."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis import checks
from fiprof.analysis.reasons import reason_of
from fiprof.analysis.thresholds import DOMINANT_STALL
from fiprof.errors import FiprofError
from fiprof.model.expressions import Row
from fiprof.model.finding import Finding
from fiprof.model.labels import Labels, names_case, names_kernel_or_case
from fiprof.model.run import Run
from fiprof.reports.headings import heading
from fiprof.reports.view import Column, Document, View, view_of
from fiprof.text import short_kernel

BUSY_ISSUE_PCT = 75.0
"""Schedulers that issue in more of their cycles have little to gain from shorter waits."""

FOLDED_SHARE = 0.01
"""Reasons below it in both measures are shown as one."""

DISAGREEMENT = 0.05
"""Difference of the two measures' shares that gets a note, where it is more than the samples' own error."""


@dataclass(frozen=True)
class Stall:
    """A reason's part in a launch."""

    reason: str
    share: float | None
    """Of the warps' time by ncu's counters, 0 to 1; None where they were not collected."""
    warps_per_issue: float | None
    """Warps in this state per issued instruction: also the cycles of it in a warp's latency."""
    samples: int | None
    """Warp samples in this state; None where warps were not sampled."""
    samples_not_issued: int | None
    """Those in cycles in which the scheduler issued nothing."""
    sampled_share: float | None
    """Of all warp samples of the launch, 0 to 1."""

    @property
    def weight(self) -> float:
        """The share to sort by."""
        return (self.sampled_share or 0.0) if self.share is None else self.share


@dataclass(frozen=True)
class LaunchStalls:
    """The stall mix of one kernel launch."""

    launch: int
    case: str | None
    """Case id; None outside the cases' ranges."""
    label: str
    """The case in short."""
    iteration: int | None
    kernel: str
    duration_us: float | None
    """By ncu."""
    stalls: tuple[Stall, ...]
    """Every reason, the largest share first."""
    warp_latency_cycles: float | None
    """Cycles between two instructions of a warp, measured on its own."""
    issue_active_pct: float | None
    """Active cycles in which a scheduler issued."""
    repeated: bool
    """Whether the run has this kernel of this case more than once."""
    warnings: tuple[Finding | str, ...] = ()

    @property
    def samples(self) -> int:
        return sum(stall.samples or 0 for stall in self.stalls)


@dataclass(frozen=True)
class StallReport:
    """The stall mixes of a run."""

    run: str
    launches: tuple[LaunchStalls, ...]
    warnings: tuple[Finding | str, ...] = ()
    """About the run."""


def stalls(run: Run, *, kernel: str = "", case: str = "", longest: int | None = None) -> StallReport:
    """The stall mix of each launch, in the order of the launches.

    kernel: only launches with this in the kernel's name or in their case; case: in their case (id or label). Upper
    and lower case are the same.
    longest: only so many launches, those that took most time.
    Raises FiprofError where the run has no stall reasons, or no launch is left.
    """
    reasons = _reasons(run)
    launches = run.rows("launches", _LAUNCH_COLUMNS)
    labels = Labels(run.manifest.cases)
    times = Counter((row["case"], row["kernel"]) for row in launches)
    failed = checks.failed(run)
    doubts = checks.by_launch(failed)
    found = [
        LaunchStalls(
            launch=row["launch"],
            case=row["case"],
            label=labels(row["case"]),
            iteration=row["iteration"],
            kernel=row["kernel"] or "",
            duration_us=None if row["duration_ns"] is None else row["duration_ns"] / 1e3,
            stalls=reasons[row["launch"]],
            warp_latency_cycles=row["warp_latency_cycles"],
            issue_active_pct=row["issue_active_pct"],
            repeated=times[row["case"], row["kernel"]] > 1,
            warnings=doubts.get(row["launch"], ()),
        )
        for row in launches
        if row["launch"] in reasons and _wanted(row, labels(row["case"]), kernel, case)
    ]
    if not found:
        names = sorted({row["kernel"] or "" for row in launches})
        raise FiprofError(
            f"{run.manifest.name} has no launch with {_criteria(kernel, case)}",
            f"it has the kernels {', '.join(short_kernel(name) for name in names)}",
        )
    if longest is not None:
        kept = {item.launch for item in sorted(found, key=lambda item: -(item.duration_us or 0.0))[:longest]}
        found = [item for item in found if item.launch in kept]
    return StallReport(run.manifest.name, tuple(found), (*run.status_warning(), *checks.of_run(failed)))


_LAUNCH_COLUMNS = (
    "launch", "case", "iteration", "kernel", "kernel_full", "duration_ns", "warp_latency_cycles", "issue_active_pct",
)  # fmt: skip


def _reasons(run: Run) -> dict[int, tuple[Stall, ...]]:
    """Launch -> its reasons, the largest share first."""
    columns = ("launch", "reason", "warps_per_issue", "share", "samples", "samples_not_issued")
    by_launch: dict[int, list[Row]] = defaultdict(list)
    for row in run.rows("stalls", columns):
        by_launch[row["launch"]].append(row)
    if not by_launch:
        raise FiprofError(
            f"{run.manifest.name} has no warp stalls: {run.why_missing('ncu')}",
            "fiprof collect --tool nsys,ncu collects them; fiprof show shows what this run has",
        )
    return {launch: _launch_reasons(rows) for launch, rows in by_launch.items()}


def _launch_reasons(rows: Sequence[Row]) -> tuple[Stall, ...]:
    sampled = sum(row["samples"] or 0 for row in rows)
    found = [
        Stall(
            reason=row["reason"],
            share=row["share"],
            warps_per_issue=row["warps_per_issue"],
            samples=row["samples"],
            samples_not_issued=row["samples_not_issued"],
            sampled_share=row["samples"] / sampled if sampled and row["samples"] is not None else None,
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda stall: (-stall.weight, stall.reason)))


def _wanted(row: Row, label: str, kernel: str, case: str) -> bool:
    return names_kernel_or_case(row, label, kernel) and names_case(row, label, case)


def _criteria(kernel: str, case: str) -> str:
    words = [f"{what} {value!r}" for what, value in (("kernel", kernel), ("case", case)) if value]
    return " and ".join(words) or "stall reasons"


# In words


def verdict(launch: LaunchStalls) -> tuple[str, ...]:
    """What the mix says: how busy the schedulers are, what the warps wait for, and what usually helps."""
    waiting = [stall for stall in launch.stalls if reason_of(stall.reason).kind == "stall" and stall.weight > 0]
    sentences = []
    if launch.issue_active_pct is not None:
        busy = launch.issue_active_pct >= BUSY_ISSUE_PCT
        sentences.append(
            f"The schedulers issued in {launch.issue_active_pct:.0f}% of their active cycles"
            + (": shorter waits would gain little." if busy else ".")
        )
    ready = sum(stall.weight for stall in launch.stalls if reason_of(stall.reason).kind == "ready")
    if ready >= DOMINANT_STALL.share:
        sentences.append(f"{ready:.0%} of the warps' time they were ready, and another one was taken (not_selected).")
    if not waiting:
        return (" ".join([*sentences, "The warps did not stall."]),)
    top, reason = waiting[0], reason_of(waiting[0].reason)
    if top.weight >= DOMINANT_STALL.share:
        sentences.append(f"{top.reason} dominates with {top.weight:.0%}: warps {reason.meaning}.")
    else:
        rest = ", ".join(f"{stall.reason} {stall.weight:.0%}" for stall in waiting[1:3])
        sentences.append(
            f"No stall dominates. The largest is {top.reason}, {top.weight:.0%}: warps {reason.meaning}."
            + (f" Then {rest}." if rest else "")
        )
    return (" ".join(sentences), f"What usually helps against {top.reason}: {reason.helps}.")


def disagreements(launch: LaunchStalls) -> tuple[str, ...]:
    """A note where counters and samples differ by more than chance, and one where the samples are few."""
    total = launch.samples
    if not total:
        return ()
    apart = [
        f"{stall.reason} {stall.share:.1%} against {stall.sampled_share:.1%} sampled"
        for stall in launch.stalls
        if stall.share is not None
        and stall.sampled_share is not None
        and abs(stall.share - stall.sampled_share) > max(DISAGREEMENT, 3 * _standard_error(stall.share, total))
    ]
    notes = []
    if apart:
        notes.append(f"The two measures differ: {', '.join(apart)}. ncu takes them in different replays of the kernel.")
    if (error := 2 * _standard_error(0.5, total)) >= 0.03:
        notes.append(f"Only {total:,} samples: sampled shares are uncertain by up to {100 * error:.0f} points.")
    return tuple(notes)


def _standard_error(share: float, samples: int) -> float:
    """Of a share among independent samples."""
    return math.sqrt(share * (1 - share) / samples)


# As tables


@dataclass(frozen=True)
class StallRow:
    """A reason of a launch, as JSON and CSV have it."""

    launch: int
    """ncu's launch ID."""
    case: str | None
    """Case id; None outside the cases' ranges."""
    iteration: int | None
    kernel: str
    reason: str
    share: float | None
    warps_per_issue: float | None
    samples: int | None
    samples_not_issued: int | None
    sampled_share: float | None
    """This and the four before: see :class:`Stall`."""


_DATA = tuple(Column(field.name) for field in dataclasses.fields(StallRow))

_SHOWN = (
    Column("reason", "reason", least=len("math_pipe_throttle")),
    Column("weight", "bar", bar=True, least=40),
    Column("share", "share", spec=".1%", least=6),
    Column("warps_per_issue", "warps/issue", spec=".2f"),
    Column("sampled_share", "sampled", spec=".1%"),
)

_NOTE = (
    "share: of all warps' time, by ncu's counters. warps/issue: warps in that state per issued instruction, which is "
    "also the cycles of it between two instructions of a warp. sampled: share of ncu's warp samples. "
    "selected (issuing) and not_selected (ready) are no stalls."
)


def document(report: StallReport, *, top: int | None = None) -> Document:
    """The report as tables: one a launch for people, one flat for programs.

    top: only so many reasons of each launch; people see the rest as one.
    """
    flat = [
        StallRow(
            item.launch, item.case, item.iteration, item.kernel,
            stall.reason, stall.share, stall.warps_per_issue,
            stall.samples, stall.samples_not_issued, stall.sampled_share,
        )
        for item in report.launches
        for stall in item.stalls[:top]
    ]  # fmt: skip
    return Document(
        data=view_of(_DATA, flat),
        shown=tuple(_launch_view(item, top) for item in report.launches),
        warnings=report.warnings,
        notes=(_NOTE,),
    )


def _launch_view(item: LaunchStalls, top: int | None) -> View:
    kept = [
        stall
        for stall in item.stalls[:top]
        if stall.weight >= FOLDED_SHARE or (stall.sampled_share or 0.0) >= FOLDED_SHARE
    ]
    folded = [stall for stall in item.stalls if stall not in kept]
    rows = kept + ([_together(folded)] if folded else [])
    return view_of(
        _SHOWN,
        rows,
        title=heading(item),
        warnings=item.warnings,
        summary=verdict(item),
        notes=disagreements(item),
    )


def _together(folded: Sequence[Stall]) -> Stall:
    return Stall(
        reason=f"other ({len(folded)})",
        share=_sum([stall.share for stall in folded]),
        warps_per_issue=_sum([stall.warps_per_issue for stall in folded]),
        samples=None,
        samples_not_issued=None,
        sampled_share=_sum([stall.sampled_share for stall in folded]),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
