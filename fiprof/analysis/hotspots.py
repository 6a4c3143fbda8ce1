"""The instructions of each launch that hold most warp samples, what is around them, and what they wait for."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fiprof.analysis import checks
from fiprof.analysis.checks import SAMPLING
from fiprof.analysis.frames import OfLaunch
from fiprof.analysis.instructions import Listing, listings
from fiprof.analysis.program import weights
from fiprof.analysis.reasons import ReasonKind, kind_of, state
from fiprof.analysis.sass import parse
from fiprof.errors import FiprofError
from fiprof.model.finding import Finding, finding
from fiprof.model.run import Run
from fiprof.model.selection import EVERYTHING, Selection, Weights

if TYPE_CHECKING:
    import pyarrow as pa

TOP = 5
"""Hotspots of a launch."""
CONTEXT = 2
"""Instructions shown before and after each."""

FEW_SAMPLES = 200
"""With fewer, two standard errors of a share reach 7 points."""

LONGEST_SASS = 1000
"""Characters of an instruction that are shown or written at most."""


_WAITS = {
    "SYNCS": (
        "mbarrier",
        "{opcode} tests an mbarrier: warps wait for what completes it, e.g. an asynchronous copy (TMA) or other warps.",
    ),
    "DEPBAR": (
        "async_copies",
        "{opcode}: warps wait for asynchronous copies (LDGSTS) that were started before.",
    ),
}
"""Opcodes whose waits ncu counts as long_scoreboard, though the instruction loads nothing itself."""


@dataclass(frozen=True)
class Instruction:
    """A SASS instruction with its samples."""

    rank: int | None
    """1 for the launch's hottest; None for one that is only around a hotspot."""
    offset: int
    """Bytes from the kernel's first instruction."""
    sass: str
    """As ncu prints it."""
    shown: str
    """With the target of a branch as an offset, where that is known."""
    samples: int
    share: float
    """Of all samples of the launch, 0 to 1."""
    samples_not_issued: int | None
    """Those in cycles in which the scheduler issued nothing; None where the page does not say."""
    top_reason: str | None
    """The reason with most of the samples; None without samples, or where the page does not name it."""
    source_file: str | None
    """None where the build has no line information."""
    source_line: int | None
    waits_for: Instruction | None = None
    """What it probably waits for; None where the instructions do not say, and for those around a hotspot."""


@dataclass(frozen=True)
class LaunchHotspots(OfLaunch):
    """The hotspots of one kernel launch."""

    instructions: int
    """Of the kernel."""
    samples: int
    """Of the launch, over all instructions."""
    blocks: tuple[tuple[Instruction, ...], ...]
    """Hotspots and what is around them, in the order of the code; each instruction once."""
    warnings: tuple[Finding, ...] = ()

    @property
    def hotspots(self) -> tuple[Instruction, ...]:
        """The hottest first."""
        hot = (line for block in self.blocks for line in block if line.rank is not None)
        return tuple(sorted(hot, key=lambda line: line.rank or 0))

    @property
    def summary(self) -> tuple[Finding, ...]:
        """How much of the launch the hotspots hold, and whether the samples are few."""
        hot = self.hotspots
        if not hot:
            words = "None of its {instructions:,} instructions has a sample: the kernel is too short to be sampled."
            return (finding("no_samples", words, instructions=self.instructions),)
        words = "The hottest {count:instruction|instructions} of {instructions:,}: {sample_share:.0%} of {samples:,} "
        words += "samples."
        share = sum(line.share for line in hot)
        own = {"count": len(hot), "instructions": self.instructions, "samples": self.samples, "sample_share": share}
        found = [finding("hottest", words, **own)]
        if self.samples < FEW_SAMPLES:
            words = "Only {samples:,} samples: shares are uncertain by up to {points:.0f} points."
            points = 100 * 2 * math.sqrt(0.25 / self.samples)
            found.append(finding("few_samples", words, samples=self.samples, points=points))
        return tuple(found)

    @property
    def meanings(self) -> tuple[Finding, ...]:
        """The hotspots' stalls, the one with most samples first, and what some of the causes are."""
        stalls: Counter[str] = Counter()
        for line in self.hotspots:
            if line.top_reason and kind_of(line.top_reason) == ReasonKind.STALL:
                stalls[line.top_reason] += line.samples
        ordered = sorted(stalls, key=lambda name: (-stalls[name], name))
        said = [finding("stall", "{reason}: warps {reason.meaning}.", reason=state(name)) for name in ordered]
        causes = {parse(line.waits_for.sass).opcode for line in self.hotspots if line.waits_for}
        said += [finding(*words, opcode=opcode) for opcode, words in _WAITS.items() if opcode in causes]
        return tuple(said)


@dataclass(frozen=True)
class HotspotReport:
    """The hotspots of a run."""

    run: str
    launches: tuple[LaunchHotspots, ...]
    warnings: tuple[Finding, ...] = ()
    """About the run."""
    weights: Weights = field(default_factory=dict)
    """The time that each launch stands for; empty where each stands for itself."""


def hotspots(run: Run, *, wanted: Selection = EVERYTHING, top: int = TOP, context: int = CONTEXT) -> HotspotReport:
    """The hotspots of each launch, in the order of the launches.

    top: hotspots of a launch at most; an instruction without samples is none.
    context: instructions before and after each.
    Raises FiprofError where the run has no samples by instruction, or no launch is left.
    """
    table = _table(run)
    there = set(table["launch"].unique().to_pylist())
    rows = {each.launch: each for each in run.selected(wanted, weights(run), among=there)}
    doubts = checks.by_launch(check for check in checks.failed(run) if check.check in SAMPLING)
    found = [
        LaunchHotspots(
            row=rows[launch],
            instructions=len(listing.code.lines),
            samples=listing.total,
            blocks=_blocks(listing, top, context),
            warnings=doubts.get(launch, ()),
        )
        for launch, listing in listings(table, rows)
    ]
    order = {launch: place for place, launch in enumerate(rows)}
    found.sort(key=lambda item: order[item.launch])
    return HotspotReport(run.manifest.name, tuple(found), run.status_warning(), weights(run))


_COLUMNS = (
    "launch", "address", "sass", "samples", "samples_not_issued", "top_reason", "source_file", "source_line",
)  # fmt: skip


def _table(run: Run) -> pa.Table:
    """The table ``hotspots``, with at least one row."""
    table = run.table("hotspots", _COLUMNS) if run.has("hotspots") else None
    if table is None or not table.num_rows:
        raise FiprofError(
            f"{run.manifest.name} has no samples by instruction",
            run.remedy("--set full"),
            why=_why_missing(run),
        )
    return table


def _why_missing(run: Run) -> Finding:
    chosen = run.manifest.settings.get("ncu_set")
    of_ncu = [action for action in run.manifest.actions if action.step.startswith("ncu")]
    if of_ncu and all(action.outcome == "ok" for action in of_ncu) and chosen not in (None, "full"):
        words = "it was collected with --set {ncu_set}, which leaves out ncu's source page"
        return finding("not_in_set", words, ncu_set=chosen)
    if run.imported and run.launches:
        return finding("not_in_file", "no source page and no report with one was imported")
    return run.missing("ncu")


# Blocks


def _blocks(listing: Listing, top: int, context: int) -> tuple[tuple[Instruction, ...], ...]:
    samples = listing.samples
    count = len(samples)
    hot = sorted((i for i in range(count) if samples[i]), key=lambda i: (-samples[i], i))[:top]
    ranks = {place: rank for rank, place in enumerate(hot, 1)}
    shown = sorted({i for place in hot for i in range(max(place - context, 0), min(place + context + 1, count))})
    blocks: list[list[Instruction]] = []
    for i, place in enumerate(shown):
        if not i or shown[i - 1] != place - 1:
            blocks.append([])
        blocks[-1].append(_instruction(listing, place, ranks.get(place)))
    return tuple(map(tuple, blocks))


def _instruction(listing: Listing, place: int, rank: int | None, *, follow: bool = True) -> Instruction:
    not_issued, reason, file, line = (listing.rows[column][place].as_py() for column in _COLUMNS[4:])
    code, samples = listing.code, listing.samples[place]
    cause = code.waits_for(place, reason) if follow and rank is not None else None
    return Instruction(
        rank=rank,
        offset=code.offsets[place],
        sass=code.lines[place][:LONGEST_SASS],
        shown=code.shown(place)[:LONGEST_SASS],
        samples=samples,
        share=samples / listing.total if listing.total else 0.0,
        samples_not_issued=not_issued,
        top_reason=reason,
        source_file=file,
        source_line=line,
        waits_for=None if cause is None else _instruction(listing, cause, None, follow=False),
    )
