"""What the warps of each launch wait for."""

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fiprof.analysis import checks
from fiprof.analysis.frames import OfLaunch, OfRun
from fiprof.analysis.thresholds import BUSY_ISSUE, DOMINANT_STALL, NEGLIGIBLE_STALL
from fiprof.analysis.trace import weights
from fiprof.model.finding import Finding, TracedNumber, finding
from fiprof.model.quantities import quantity, stall_provenance
from fiprof.model.run import Run, StallReason
from fiprof.model.selection import EVERYTHING, Selection
from fiprof.text import csv_rows

DISAGREEMENT = 0.05  # difference of counted and sampled shares that gets a note, if it exceeds the samples' error
FEW_SAMPLES_ERROR = 0.03  # uncertainty of sampled shares, from which on it gets a note


class ReasonKind(StrEnum):
    """What a warp in a state does."""

    STALL = "stall"  # it waits
    READY = "ready"  # it could issue, and another warp does
    ISSUE = "issue"


class WarpState(str):
    """A state's name, e.g. ``long_scoreboard``, with what is known of it."""

    kind: ReasonKind
    short: str  # what warps in it wait for, in two or three words
    meaning: str  # what the warps do, to follow "warps"
    helps: str  # what usually reduces it
    relieves: str  # the resources that this may use less, as in ``verdict/steps.csv``


def state(name: str) -> WarpState:
    """A warp state by its name; one that only a later ncu has counts as a stall."""
    unknown = ("stall", "unknown", "are in a state that this fiprof does not know", "unknown", "")
    return REASONS.get(name) or _state(name, *unknown)


def _state(name: str, kind: str, *words: str) -> WarpState:
    state = WarpState(name)
    state.kind, (state.short, state.meaning, state.helps, state.relieves) = ReasonKind(kind), words
    return state


REASONS = {name: _state(*row.values()) for name, row in csv_rows(Path(__file__).with_name("warp_states.csv")).items()}
"""ncu's warp states under our names."""


@dataclass(frozen=True)
class LaunchStalls(OfLaunch):
    stalls: tuple[StallReason, ...]  # every reason, the largest share first
    warnings: tuple[Finding, ...] = ()

    def traced(self, stall: StallReason) -> TracedNumber | None:
        """The share of a stall by the counters, with provenance; None without counters."""
        if stall.share is None:
            return None
        return TracedNumber(stall.share, stall_provenance(self.row, stall.reason), ".0%")


def stalls(run: Run, *, wanted: Selection = EVERYTHING) -> OfRun[LaunchStalls, None]:
    """The stall mix of each launch, in the order of the launches. Raises FiprofError where the run has no stall
    reasons, or no launch is left."""
    run.require_launches("warp stalls", there=bool(run.stall_reasons), section="WarpStateStats")
    failed = checks.failed(run)
    caveats, mixes = checks.by_launch(failed), []
    for launch in run.selected(wanted, weights(run), among=run.stall_reasons):
        mix = sorted(run.stall_reasons[launch.launch], key=lambda stall: (-stall.weight, stall.reason))
        mixes.append(LaunchStalls(launch, tuple(mix), caveats.get(launch.launch, ())))
    return OfRun(tuple(mixes), (*run.status_warning(), *checks.of_run(failed)), weights(run))


def findings(launch: LaunchStalls) -> tuple[Finding, ...]:
    """What the mix says: how busy the schedulers are, what the warps wait for, and what usually helps."""

    def share(kind: str, words: str, stall: StallReason) -> Finding:
        return finding(kind, words, reason=state(stall.reason), share=launch.traced(stall) or stall.weight)

    sentences, dominant = [], DOMINANT_STALL / 100
    issued = quantity("issue_active_pct").of(launch.row)
    if issued is not None:
        kind, words = "issued", "The schedulers issue in {issue_active_pct:.0f}% of their active cycles"
        ending = "."
        if issued >= BUSY_ISSUE:
            kind, ending = "busy", ": fewer stalls would gain little."
        sentences.append(finding(kind, words + ending, issue_active_pct=issued))
    ready = next((each for each in launch.stalls if state(each.reason).kind == ReasonKind.READY), None)
    if ready and ready.weight >= dominant:
        sentences.append(share("ready", "{reason} is {share:.0%}: the warps are ready and another one issues.", ready))
    waiting = [each for each in launch.stalls if state(each.reason).kind == ReasonKind.STALL and each.weight > 0]
    if not waiting:
        return (*sentences, finding("no_stall", "The warps did not stall."))
    top, *rest = waiting
    if top.weight < NEGLIGIBLE_STALL / 100:
        return (*sentences, share("negligible", "Stalls are negligible: the largest is {reason}, {share:.0%}.", top))
    if top.weight >= dominant:
        sentences.append(share("dominates", "Main stall: {reason} ({share:.0%}): warps {reason.meaning}.", top))
    else:
        words = "No stall dominates. The largest is {reason} ({share:.0%}): warps {reason.meaning}."
        sentences.append(share("largest", words, top))
        if rest:
            others = tuple(share("share", "{reason} {share:.0%}", stall) for stall in rest[:2])
            sentences.append(finding("then", "Then {reasons}.", reasons=others))
    return (*sentences, finding("helps", "Helps against {reason}: {reason.helps}.", reason=state(top.reason)))


def disagreements(launch: LaunchStalls) -> tuple[Finding, ...]:
    """Whether counters and samples differ by more than chance, and whether the samples are few."""
    total = sum(stall.samples or 0 for stall in launch.stalls)
    if not total:
        return ()
    apart = []
    for stall in launch.stalls:
        share, sampled = stall.share, stall.sampled_share
        # Three standard errors of a share among independent samples.
        if share is None or sampled is None:
            continue
        if abs(share - sampled) > max(DISAGREEMENT, 3 * math.sqrt(share * max(1 - share, 0) / total)):
            words = "{reason} {stall_share:.1%} against {sample_share:.1%} sampled"
            apart.append(finding("difference", words, reason=stall.reason, stall_share=share, sample_share=sampled))
    sentences = []
    if apart:
        words = "Counters and samples differ: {reasons}. ncu takes them in different replays."
        sentences.append(finding("measures_differ", words, reasons=tuple(apart)))
    if (error := 2 * math.sqrt(0.5 * (1 - 0.5) / total)) >= FEW_SAMPLES_ERROR:
        words = "Only {samples:,} samples: sampled shares are uncertain by up to {error_points:.0f} points."
        sentences.append(finding("few_samples", words, samples=total, error_points=100 * error))
    return tuple(sentences)
