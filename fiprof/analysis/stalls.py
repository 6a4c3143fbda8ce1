"""What the warps of each launch wait for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fiprof.analysis import checks
from fiprof.analysis.frames import OfLaunch
from fiprof.analysis.program import weights
from fiprof.analysis.reasons import ReasonKind, kind_of, state
from fiprof.analysis.thresholds import BUSY_ISSUE, DOMINANT_STALL, NEGLIGIBLE_STALL
from fiprof.model.finding import Finding, finding
from fiprof.model.provenance import TracedNumber
from fiprof.model.quantities import metric, stall_provenance
from fiprof.model.run import Run, StallReason
from fiprof.model.selection import EVERYTHING, Selection, Weights

DISAGREEMENT = 0.05
"""Difference of the two measures' shares that gets a note, where it is more than the samples' own error."""
FEW_SAMPLES_ERROR = 0.03
"""Uncertainty of sampled shares from which it gets a note."""


@dataclass(frozen=True)
class Stall(StallReason):
    """A reason's part in a launch; its share is None where the counters were not collected."""

    sampled_share: float | None
    """Share of all warp samples of the launch, 0 to 1."""

    @property
    def weight(self) -> float:
        """The share to sort by."""
        return (self.sampled_share or 0.0) if self.share is None else self.share


@dataclass(frozen=True)
class LaunchStalls(OfLaunch):
    """The stall mix of one kernel launch."""

    stalls: tuple[Stall, ...]
    """Every reason, the largest share first."""
    warnings: tuple[Finding, ...] = ()

    @property
    def samples(self) -> int:
        """Warp samples of the launch."""
        return sum(stall.samples or 0 for stall in self.stalls)

    @property
    def waiting(self) -> tuple[Stall, ...]:
        """The reasons that are stalls and not zero, the largest share first."""
        return tuple(each for each in self.stalls if kind_of(each.reason) == ReasonKind.STALL and each.weight > 0)

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
    def busy(self) -> bool:
        """Whether the schedulers issue so often that shorter waits would gain little."""
        return (metric("issue_active_pct").of(self.row) or 0.0) >= BUSY_ISSUE.value


@dataclass(frozen=True)
class StallReport:
    """The stall mixes of a run."""

    run: str
    launches: tuple[LaunchStalls, ...]
    warnings: tuple[Finding, ...] = ()
    """Doubts about the run."""
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

    def share(kind: str, words: str, stall: Stall) -> Finding:
        return finding(kind, words, reason=state(stall.reason), share=launch.traced(stall) or stall.weight)

    found = []
    issued = metric("issue_active_pct").of(launch.row)
    if issued is not None:
        words = "The schedulers issue in {issue_active_pct:.0f}% of their active cycles"
        ending = ": fewer stalls would gain little." if launch.busy else "."
        found.append(finding("busy" if launch.busy else "issued", words + ending, issue_active_pct=issued))
    ready = [each for each in launch.stalls if kind_of(each.reason) == ReasonKind.READY]
    if ready and ready[0].weight >= DOMINANT_STALL.share:
        found.append(share("ready", "{reason} is {share:.0%}: the warps are ready and another one issues.", ready[0]))
    if not launch.waiting:
        return (*found, finding("no_stall", "The warps did not stall."))
    top, *rest = launch.waiting
    if top.weight < NEGLIGIBLE_STALL.share:
        words = "Stalls are negligible: the largest is {reason}, {share:.0%}."
        return (*found, share("negligible", words, top))
    if launch.dominant:
        found.append(share("dominates", "Main stall: {reason} ({share:.0%}): warps {reason.meaning}.", top))
    else:
        words = "No stall dominates. The largest is {reason} ({share:.0%}): warps {reason.meaning}."
        found.append(share("largest", words, top))
    if rest and not launch.dominant:
        others = tuple(share("share", "{reason} {share:.0%}", stall) for stall in rest[:2])
        found.append(finding("then", "Then {reasons}.", reasons=others))
    return (*found, finding("helps", "Helps against {reason}: {reason.helps}.", reason=state(top.reason)))


def disagreements(launch: LaunchStalls) -> tuple[Finding, ...]:
    """Whether counters and samples differ by more than chance, and whether the samples are few."""
    total = launch.samples
    if not total:
        return ()

    def standard_error(share: float) -> float:
        """Of a share among independent samples."""
        return math.sqrt(share * (1 - share) / total)

    apart = tuple(
        finding(
            "difference",
            "{reason} {stall_share:.1%} against {sample_share:.1%} sampled",
            reason=stall.reason,
            stall_share=stall.share,
            sample_share=stall.sampled_share,
        )
        for stall in launch.stalls
        if stall.share is not None
        and stall.sampled_share is not None
        and abs(stall.share - stall.sampled_share) > max(DISAGREEMENT, 3 * standard_error(stall.share))
    )
    found = []
    if apart:
        words = "Counters and samples differ: {reasons}. ncu takes them in different replays."
        found.append(finding("measures_differ", words, reasons=apart))
    if (error := 2 * standard_error(0.5)) >= FEW_SAMPLES_ERROR:
        words = "Only {samples:,} samples: sampled shares are uncertain by up to {error_points:.0f} points."
        found.append(finding("few_samples", words, samples=total, error_points=100 * error))
    return tuple(found)
