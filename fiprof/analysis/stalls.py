"""What the warps of each launch wait for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fiprof.analysis import checks
from fiprof.analysis.of_launch import OfLaunch
from fiprof.analysis.program import weights
from fiprof.analysis.reasons import ReasonKind, kind_of
from fiprof.analysis.thresholds import BUSY_ISSUE, DOMINANT_STALL, NEGLIGIBLE_STALL
from fiprof.model.finding import Finding
from fiprof.model.provenance import TracedNumber
from fiprof.model.quantities import metric, stall_provenance
from fiprof.model.run import Run, StallReason
from fiprof.model.selection import EVERYTHING, Selection, Weights

DISAGREEMENT = 0.05
"""Difference of the two measures' shares that gets a note, where it is more than the samples' own error."""

FEW_SAMPLES_ERROR = 0.03
"""Uncertainty of sampled shares from which it gets a note."""


class StallFinding(StrEnum):
    """What a stall mix says."""

    ISSUED = "issued"
    BUSY = "busy"
    READY = "ready"
    NO_STALL = "no_stall"
    NEGLIGIBLE = "negligible"
    DOMINATES = "dominates"
    LARGEST = "largest"
    THEN = "then"
    SHARE = "share"
    HELPS = "helps"
    MEASURES_DIFFER = "measures_differ"
    DIFFERENCE = "difference"
    FEW_SAMPLES = "few_samples"


@dataclass(frozen=True)
class Stall(StallReason):
    """A reason's part in a launch; its share is None where the counters were not collected."""

    sampled_share: float | None
    """Of all warp samples of the launch, 0 to 1."""

    @property
    def weight(self) -> float:
        """The share to sort by."""
        return (self.sampled_share or 0.0) if self.share is None else self.share

    @property
    def kind(self) -> ReasonKind:
        return kind_of(self.reason)


@dataclass(frozen=True)
class LaunchStalls(OfLaunch):
    """The stall mix of one kernel launch."""

    stalls: tuple[Stall, ...]
    """Every reason, the largest share first."""
    warnings: tuple[Finding, ...] = ()

    @property
    def samples(self) -> int:
        return sum(stall.samples or 0 for stall in self.stalls)

    @property
    def waiting(self) -> tuple[Stall, ...]:
        """The reasons that are stalls and not zero, the largest share first."""
        return tuple(stall for stall in self.stalls if stall.kind == ReasonKind.STALL and stall.weight > 0)

    def traced(self, stall: Stall) -> TracedNumber | None:
        """Its share by the counters, with provenance."""
        if stall.share is None:
            return None
        return TracedNumber(stall.share, stall_provenance(self.row, stall.reason), ".0%")

    @property
    def dominant(self) -> Stall | None:
        """The stall that dominates."""
        return next((stall for stall in self.waiting[:1] if stall.weight >= DOMINANT_STALL.share), None)

    @property
    def ready(self) -> Stall | None:
        """Warps that were ready while another one was taken, where that is as much as a dominant stall."""
        found = [
            stall for stall in self.stalls if stall.kind == ReasonKind.READY and stall.weight >= DOMINANT_STALL.share
        ]
        return found[0] if found else None

    @property
    def issue_active_pct(self) -> float | None:
        """Active cycles in which a scheduler issued."""
        return metric("issue_active_pct").of(self.row)

    @property
    def busy(self) -> bool:
        """Whether the schedulers issue so often that shorter waits would gain little."""
        return (self.issue_active_pct or 0.0) >= BUSY_ISSUE.value


@dataclass(frozen=True)
class StallReport:
    """The stall mixes of a run."""

    run: str
    launches: tuple[LaunchStalls, ...]
    warnings: tuple[Finding, ...] = ()
    """About the run."""
    weights: Weights = field(default_factory=dict)
    """The time that each launch stands for; empty where each stands for itself."""


def stalls(run: Run, *, wanted: Selection = EVERYTHING) -> StallReport:
    """The stall mix of each launch, in the order of the launches.

    Raises FiprofError where the run has no stall reasons, or no launch is left.
    """
    run.require_launches("warp stalls", there=bool(run.stall_reasons))
    failed = checks.failed(run)
    doubts = checks.by_launch(failed)
    found = [
        LaunchStalls(launch, _mix(run.stall_reasons[launch.launch]), doubts.get(launch.launch, ()))
        for launch in run.selected(wanted, weights(run), among=run.stall_reasons)
    ]
    return StallReport(run.manifest.name, tuple(found), (*run.status_warning(), *checks.of_run(failed)), weights(run))


def _mix(reasons: Sequence[StallReason]) -> tuple[Stall, ...]:
    sampled = sum(reason.samples or 0 for reason in reasons)
    found = [
        Stall(**vars(each), sampled_share=each.samples / sampled if sampled and each.samples is not None else None)
        for each in reasons
    ]
    return tuple(sorted(found, key=lambda stall: (-stall.weight, stall.reason)))


def findings(launch: LaunchStalls) -> tuple[Finding, ...]:
    """What the mix says: how busy the schedulers are, what the warps wait for, and what usually helps."""
    found = []
    if launch.issue_active_pct is not None:
        kind = StallFinding.BUSY if launch.busy else StallFinding.ISSUED
        found.append(Finding(kind, {"issue_active_pct": launch.issue_active_pct}))
    if launch.ready is not None:
        found.append(_share(StallFinding.READY, launch, launch.ready))
    if not launch.waiting:
        return (*found, Finding(StallFinding.NO_STALL))
    top, *rest = launch.waiting
    if top.weight < NEGLIGIBLE_STALL.share:
        return (*found, _share(StallFinding.NEGLIGIBLE, launch, top))
    found.append(_share(StallFinding.DOMINATES if launch.dominant else StallFinding.LARGEST, launch, top))
    if rest and not launch.dominant:
        others = tuple(_share(StallFinding.SHARE, launch, stall) for stall in rest[:2])
        found.append(Finding(StallFinding.THEN, {"reasons": others}))
    return (*found, Finding(StallFinding.HELPS, {"reason": top.reason}))


def _share(kind: StallFinding, launch: LaunchStalls, stall: Stall) -> Finding:
    return Finding(kind, {"reason": stall.reason, "share": launch.traced(stall) or stall.weight})


def disagreements(launch: LaunchStalls) -> tuple[Finding, ...]:
    """Whether counters and samples differ by more than chance, and whether the samples are few."""
    total = launch.samples
    if not total:
        return ()
    apart = tuple(
        Finding(
            StallFinding.DIFFERENCE,
            {"reason": stall.reason, "stall_share": stall.share, "sample_share": stall.sampled_share},
        )
        for stall in launch.stalls
        if stall.share is not None
        and stall.sampled_share is not None
        and abs(stall.share - stall.sampled_share) > max(DISAGREEMENT, 3 * _standard_error(stall.share, total))
    )
    found = [Finding(StallFinding.MEASURES_DIFFER, {"reasons": apart})] if apart else []
    if (error := 2 * _standard_error(0.5, total)) >= FEW_SAMPLES_ERROR:
        found.append(Finding(StallFinding.FEW_SAMPLES, {"samples": total, "error_points": 100 * error}))
    return tuple(found)


def _standard_error(share: float, samples: int) -> float:
    """Of a share among independent samples."""
    return math.sqrt(share * (1 - share) / samples)
