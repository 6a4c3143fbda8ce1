"""The instructions of each launch that hold most warp samples, what is around them, and what they wait for."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fiprof.analysis import checks
from fiprof.analysis.frames import OfLaunch, OfRun
from fiprof.analysis.instructions import Listing, listings
from fiprof.analysis.sass import parse
from fiprof.analysis.stalls import ReasonKind, state
from fiprof.analysis.trace import weights
from fiprof.errors import FiprofError
from fiprof.model.finding import Finding, finding
from fiprof.model.run import Run
from fiprof.model.selection import EVERYTHING, Selection

TOP = 5  # hotspots of a launch
CONTEXT = 2  # instructions shown before and after each
FEW_SAMPLES = 200  # with fewer, two standard errors of a share reach 7 points
LONGEST_SASS = 1000  # characters of an instruction that are shown or written at most
Line = dict[str, Any]
"""A SASS instruction: rank (1 for the launch's hottest; None for one that is only around a hotspot), offset (bytes from
the kernel's first instruction), sass as ncu prints it, shown with the target of a branch as an offset, samples,
sample_share (of the launch, 0 to 1), the columns of the table, waits_for_offset and waits_for_sass (what it probably
waits for; None where the instructions do not say)."""
_OF_TABLE = ("samples_not_issued", "top_reason", "source_file", "source_line")


@dataclass(frozen=True)
class LaunchHotspots(OfLaunch):
    instructions: int  # of the kernel
    samples: int  # of the launch, over all instructions
    blocks: tuple[tuple[Line, ...], ...]  # hotspots and what is around them, by address; each instruction once
    warnings: tuple[Finding, ...] = ()

    @property
    def hotspots(self) -> list[Line]:
        """The hottest first."""
        hot = (line for block in self.blocks for line in block if line["rank"] is not None)
        return sorted(hot, key=lambda line: int(line["rank"]))

    @property
    def summary(self) -> tuple[Finding, ...]:
        """How much of the launch the hotspots hold, and whether the samples are few."""
        hot = self.hotspots
        if not hot:
            words = "None of its {instructions:,} instructions has a sample: the kernel is too short to be sampled."
            return (finding("no_samples", words, instructions=self.instructions),)
        words = "The hottest {count:instruction|instructions} of {instructions:,}: {sample_share:.0%} of {samples:,} "
        words += "samples."
        share = sum(line["sample_share"] for line in hot)
        own = {"count": len(hot), "instructions": self.instructions, "samples": self.samples, "sample_share": share}
        sentences = [finding("hottest", words, **own)]
        if self.samples < FEW_SAMPLES:
            words = "Only {samples:,} samples: shares are uncertain by up to {points:.0f} points."
            points = 100 * 2 * math.sqrt(0.25 / self.samples)
            sentences.append(finding("few_samples", words, samples=self.samples, points=points))
        return tuple(sentences)

    @property
    def meanings(self) -> tuple[Finding, ...]:
        """The hotspots' stalls, most samples first; and long_scoreboard waits at what loads nothing itself."""
        stalls: Counter[str] = Counter()
        for line in self.hotspots:
            if line["top_reason"] and state(line["top_reason"]).kind == ReasonKind.STALL:
                stalls[line["top_reason"]] += line["samples"]
        ordered = sorted(stalls, key=lambda name: (-stalls[name], name))
        sentences = [finding("stall", "{reason}: warps {reason.meaning}.", reason=state(name)) for name in ordered]
        causes = {parse(line["waits_for_sass"]).opcode for line in self.hotspots if line["waits_for_sass"]}
        if "SYNCS" in causes:
            words = "{opcode} tests an mbarrier: warps wait for what completes it, e.g. an asynchronous copy (TMA) or "
            sentences.append(finding("mbarrier", words + "other warps.", opcode="SYNCS"))
        if "DEPBAR" in causes:
            words = "{opcode}: warps wait for asynchronous copies (LDGSTS) that were started before."
            sentences.append(finding("async_copies", words, opcode="DEPBAR"))
        return tuple(sentences)


def hotspots(
    run: Run, *, wanted: Selection = EVERYTHING, top: int = TOP, context: int = CONTEXT
) -> OfRun[LaunchHotspots, None]:
    """The hotspots of each launch, in the order of the launches.

    top: hotspots of a launch at most; an instruction without samples is none.
    context: instructions before and after each.
    Raises FiprofError where the run has no samples by instruction, or no launch is left.
    """
    table = _table(run)
    listed = set(table["launch"].unique().to_pylist())
    rows = {each.launch: each for each in run.selected(wanted, weights(run), among=listed)}
    caveats = checks.by_launch(check for check in checks.failed(run) if check.check in checks.SAMPLING)
    by_launch = {
        launch: LaunchHotspots(
            rows[launch],
            len(listing.code.lines),
            listing.total,
            _blocks(listing, top, context),
            caveats.get(launch, ()),
        )
        for launch, listing in listings(table, rows)
    }
    ordered = tuple(by_launch[launch] for launch in rows if launch in by_launch)
    return OfRun(ordered, run.status_warning(), weights(run))


def _table(run: Run) -> pa.Table:
    """The table ``hotspots``, with at least one row."""
    columns = ("launch", "address", "sass", "samples", *_OF_TABLE)
    table = run.table("hotspots", columns) if run.has("hotspots") else None
    if table is not None and table.num_rows:
        return table
    chosen = run.manifest.settings.get("ncu_set")
    of_ncu = [action for action in run.manifest.actions if action.step.startswith("ncu")]
    if of_ncu and all(action.outcome == "ok" for action in of_ncu) and chosen not in (None, "full"):
        words = "it was collected with --set {ncu_set}, which leaves out ncu's source page"
        why = finding("not_in_set", words, ncu_set=chosen)
    elif run.imported and run.launches:
        words = "no source page and no report with one was imported (ncu --import REPORT --csv --page source)"
        why = next(iter(run.uncollected("SourceCounters")), finding("not_in_file", words))
    else:
        why = run.missing("ncu")
    raise FiprofError(f"{run.manifest.name} has no samples by instruction", run.remedy("--set full"), why=why)


def _blocks(listing: Listing, top: int, context: int) -> tuple[tuple[Line, ...], ...]:
    samples, code = listing.samples, listing.code
    count = len(samples)
    hot = sorted((i for i in range(count) if samples[i]), key=lambda i: (-samples[i], i))[:top]
    ranks = {place: rank for rank, place in enumerate(hot, 1)}
    shown = sorted({i for place in hot for i in range(max(place - context, 0), min(place + context + 1, count))})
    blocks: list[list[Line]] = []
    for i, place in enumerate(shown):
        if not i or shown[i - 1] != place - 1:
            blocks.append([])
        values = {name: listing.rows[name][place].as_py() for name in _OF_TABLE}
        cause = code.waits_for(place, values["top_reason"]) if place in ranks else None
        blocks[-1].append({
            "rank": ranks.get(place), "offset": code.offsets[place], "sass": code.lines[place][:LONGEST_SASS],
            "shown": code.shown(place)[:LONGEST_SASS], "samples": samples[place],
            "sample_share": samples[place] / listing.total if listing.total else 0.0, **values,
            "waits_for_offset": None if cause is None else code.offsets[cause],
            "waits_for_sass": None if cause is None else code.lines[cause][:LONGEST_SASS],
        })  # fmt: skip
    return tuple(map(tuple, blocks))
