"""The instructions of each launch that hold most warp samples, what is around them, and what they wait for."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from fiprof.analysis import checks
from fiprof.analysis.check_rules import SAMPLING
from fiprof.analysis.reasons import reason_of
from fiprof.analysis.sass import Code, brief, parse
from fiprof.errors import FiprofError
from fiprof.model.finding import Finding
from fiprof.model.labels import Labels, names_kernel_or_case
from fiprof.model.run import Run
from fiprof.reports.headings import heading
from fiprof.reports.view import Column, Document, Value, View, view_of
from fiprof.text import short_kernel

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
class LaunchHotspots:
    """The hotspots of one kernel launch."""

    launch: int
    """ncu's launch ID."""
    case: str | None
    """Case id; None outside the cases' ranges."""
    label: str
    """The case in short."""
    iteration: int | None
    kernel: str
    duration_us: float | None
    """By ncu."""
    repeated: bool
    """Whether the run has this kernel of this case more than once."""
    instructions: int
    """Of the kernel."""
    samples: int
    """Of the launch, over all instructions."""
    blocks: tuple[tuple[Instruction, ...], ...]
    """Hotspots and what is around them, in the order of the code; each instruction once."""
    warnings: tuple[Finding | str, ...] = ()

    @property
    def hotspots(self) -> tuple[Instruction, ...]:
        """The hottest first."""
        hot = (line for block in self.blocks for line in block if line.rank is not None)
        return tuple(sorted(hot, key=lambda line: line.rank or 0))


@dataclass(frozen=True)
class HotspotReport:
    """The hotspots of a run."""

    run: str
    launches: tuple[LaunchHotspots, ...]
    warnings: tuple[Finding | str, ...] = ()
    """About the run."""


def hotspots(run: Run, *, kernel: str = "", top: int = TOP, context: int = CONTEXT) -> HotspotReport:
    """The hotspots of each launch, in the order of the launches.

    kernel: only launches with this in the kernel's name or in their case; upper and lower case are the same.
    top: hotspots of a launch at most; an instruction without samples is none.
    context: instructions before and after each.
    Raises FiprofError where the run has no samples by instruction, or no launch is left.
    """
    table = _table(run)
    launches = run.rows("launches", _LAUNCH_COLUMNS)
    labels = Labels(run.manifest.cases)
    wanted = {row["launch"]: row for row in launches if names_kernel_or_case(row, labels(row["case"]), kernel)}
    times = Counter((row["case"], row["kernel"]) for row in launches)
    doubts = checks.by_launch(check for check in checks.failed(run) if check.check in SAMPLING)
    found = [
        LaunchHotspots(
            launch=launch,
            case=row["case"],
            label=labels(row["case"]),
            iteration=row["iteration"],
            kernel=row["kernel"] or "",
            duration_us=None if row["duration_ns"] is None else row["duration_ns"] / 1e3,
            repeated=times[row["case"], row["kernel"]] > 1,
            instructions=len(listing.code.lines),
            samples=sum(listing.samples),
            blocks=listing.blocks(top, context),
            warnings=doubts.get(launch, ()),
        )
        for launch, listing in _listings(table, wanted)
        if (row := wanted[launch])
    ]
    if not found:
        names = sorted({row["kernel"] or "" for row in launches})
        raise FiprofError(
            f"{run.manifest.name} has no launch with kernel {kernel!r} on its source page",
            f"it has the kernels {', '.join(short_kernel(name) for name in names)}",
        )
    order = {launch: place for place, launch in enumerate(wanted)}
    found.sort(key=lambda item: order[item.launch])
    return HotspotReport(run.manifest.name, tuple(found), run.status_warning())


_LAUNCH_COLUMNS = ("launch", "case", "iteration", "kernel", "kernel_full", "duration_ns")
_COLUMNS = (
    "launch", "address", "sass", "samples", "samples_not_issued", "top_reason", "source_file", "source_line",
)  # fmt: skip


def _table(run: Run) -> pa.Table:
    """The table ``hotspots``, with at least one row."""
    table = run.table("hotspots") if run.has("hotspots") else None
    if table is None or not table.num_rows:
        raise FiprofError(
            f"{run.manifest.name} has no samples by instruction: {_why_missing(run)}",
            "fiprof collect … --set full collects them; fiprof stalls shows what each launch waits for as a whole",
        )
    missing = [column for column in _COLUMNS if column not in table.column_names]
    if missing:
        raise FiprofError(
            f"the table hotspots of {run.manifest.name} lacks {', '.join(missing)}",
            f"fiprof parse {run.manifest.name} makes it again from the raw files",
        )
    return table


def _why_missing(run: Run) -> str:
    why = run.why_missing("ncu")
    chosen = run.manifest.settings.get("ncu_set")
    if why.startswith("ncu ran") and chosen not in (None, "full"):
        return f"it was collected with --set {chosen}, which leaves out ncu's source page"
    return why


# Listings


@dataclass(frozen=True)
class _Listing:
    """A launch's instructions as columns; texts are read when they are asked for."""

    code: Code
    samples: list[int]
    rest: pa.Table
    """samples_not_issued, top_reason, source_file, source_line."""

    def blocks(self, top: int, context: int) -> tuple[tuple[Instruction, ...], ...]:
        total, count = sum(self.samples), len(self.samples)
        hot = sorted((i for i in range(count) if self.samples[i]), key=lambda i: (-self.samples[i], i))[:top]
        ranks = {place: rank for rank, place in enumerate(hot, 1)}
        shown = sorted({i for place in hot for i in range(max(place - context, 0), min(place + context + 1, count))})
        blocks: list[list[Instruction]] = []
        for i, place in enumerate(shown):
            if not i or shown[i - 1] != place - 1:
                blocks.append([])
            blocks[-1].append(self._instruction(place, total, ranks.get(place)))
        return tuple(map(tuple, blocks))

    def _instruction(self, place: int, total: int, rank: int | None, *, follow: bool = True) -> Instruction:
        not_issued, reason, file, line = (column[place].as_py() for column in self.rest.columns)
        cause = self.code.waits_for(place, reason) if follow and rank is not None else None
        return Instruction(
            rank=rank,
            offset=self.code.offsets[place],
            sass=self.code.lines[place][:LONGEST_SASS],
            shown=self.code.shown(place)[:LONGEST_SASS],
            samples=self.samples[place],
            share=self.samples[place] / total if total else 0.0,
            samples_not_issued=not_issued,
            top_reason=reason,
            source_file=file,
            source_line=line,
            waits_for=None if cause is None else self._instruction(cause, total, None, follow=False),
        )


def _listings(table: pa.Table, wanted: Collection[int]) -> Iterator[tuple[int, _Listing]]:
    """Each launch that is wanted and there, with its instructions in the order of their addresses."""
    # No pa.array and no to_numpy: they import pandas.
    import pyarrow.compute as pc

    kept = table.select(_COLUMNS).filter(pc.is_valid(table["address"]))
    kept = kept.take(pc.sort_indices(kept, [("launch", "ascending"), ("address", "ascending")])).combine_chunks()
    end = 0
    for counted in pc.value_counts(kept["launch"]).to_pylist():
        launch, start = counted["values"], end
        end = start + counted["counts"]
        if launch in wanted:
            part = kept.slice(start, end - start)
            code = Code(part["address"].to_pylist(), [line or "" for line in part["sass"].to_pylist()])
            samples = [count or 0 for count in part["samples"].to_pylist()]
            yield launch, _Listing(code, samples, part.select(_COLUMNS[4:]))


# In words


def summary(launch: LaunchHotspots) -> str:
    """How much of the launch the hotspots hold."""
    hot = launch.hotspots
    if not hot:
        return f"None of its {launch.instructions:,} instructions has a sample: the kernel is too short to be sampled."
    share = sum(line.share for line in hot)
    which = f"{len(hot)} hottest of {launch.instructions:,} instructions hold"
    if len(hot) == 1:
        which = f"hottest of {launch.instructions:,} instructions holds"
    return f"The {which} {share:.0%} of {launch.samples:,} samples."


def doubt(launch: LaunchHotspots) -> tuple[str, ...]:
    """A sentence where the samples are few."""
    if not 0 < launch.samples < FEW_SAMPLES:
        return ()
    points = 100 * 2 * math.sqrt(0.25 / launch.samples)
    return (f"Only {launch.samples:,} samples: shares are uncertain by up to {points:.0f} points.",)


def meanings(launch: LaunchHotspots) -> tuple[str, ...]:
    """What the hotspots' stalls mean, the one with most samples first, and what two of the causes are."""
    weights: dict[str, int] = defaultdict(int)
    for line in launch.hotspots:
        if line.top_reason and reason_of(line.top_reason).kind == "stall":
            weights[line.top_reason] += line.samples
    causes = {parse(line.waits_for.sass).opcode for line in launch.hotspots if line.waits_for}
    return (
        *(f"{name}: warps {reason_of(name).meaning}." for name in sorted(weights, key=lambda r: (-weights[r], r))),
        *(f"{opcode}: {meaning}." for opcode, meaning in _CAUSES.items() if opcode in causes),
    )


_CAUSES = {
    "SYNCS": "an mbarrier is tested: the wait is for what completes it, e.g. an asynchronous copy (TMA) or other warps",
    "DEPBAR": "the wait is for asynchronous copies (LDGSTS) that were started before",
}
"""Opcodes whose waits ncu counts as long_scoreboard, though the instruction loads nothing itself."""


# As tables


@dataclass(frozen=True)
class HotspotRow:
    """A hotspot of a launch, as JSON and CSV have it."""

    launch: int
    case: str | None
    kernel: str
    offset: str
    """Hexadecimal, as in the listing."""
    sass: str
    samples: int
    share: float
    samples_not_issued: int | None
    top_reason: str | None
    source_file: str | None
    source_line: int | None
    waits_for_offset: str | None
    waits_for_sass: str | None
    """The instruction that it probably waits for."""


_DATA = tuple(Column(field.name) for field in fields(HotspotRow))

_NOTE = (
    "#: rank by samples; lines without are around. share: of the launch's warp samples, those that issued too. not "
    "issued: samples in cycles in which the scheduler issued nothing. Offsets, of branch targets too, are bytes from "
    "the kernel's first instruction. A stall stands at the instruction that could not issue; what it probably waits "
    "for is read from the straight-line code before it, and left open where that does not say."
)


def document(report: HotspotReport) -> Document:
    """The report as tables: a listing a launch for people, one flat table of hotspots for programs."""
    flat = [_row(item, line) for item in report.launches for line in item.hotspots]
    return Document(
        data=view_of(_DATA, flat),
        shown=tuple(_launch_view(item) for item in report.launches),
        warnings=report.warnings,
        notes=(_NOTE,),
    )


def _row(item: LaunchHotspots, line: Instruction) -> HotspotRow:
    cause = line.waits_for
    return HotspotRow(
        launch=item.launch,
        case=item.case,
        kernel=item.kernel,
        offset=hex(line.offset),
        sass=line.sass,
        samples=line.samples,
        share=line.share,
        samples_not_issued=line.samples_not_issued,
        top_reason=line.top_reason,
        source_file=line.source_file,
        source_line=line.source_line,
        waits_for_offset=None if cause is None else hex(cause.offset),
        waits_for_sass=None if cause is None else cause.sass,
    )


def _launch_view(item: LaunchHotspots) -> View:
    lines = [line for block in item.blocks for line in block]
    columns = [
        Column("rank", "#", spec="d"),
        Column("offset", "offset", spec="x"),
        Column("sass", "instruction"),
        Column("samples", "samples", spec=",d"),
        Column("share", "share", spec=".1%"),
        Column("samples_not_issued", "not issued", spec=",d"),
        Column("top_reason", "top reason", least=len("short_scoreboard")),
    ]
    if any(line.waits_for for line in lines):
        columns.append(Column("waits_for", "probably waits for"))
    if any(line.source_file for line in lines):
        columns.append(Column("source", "source"))
    rows: list[tuple[Value, ...]] = []
    for block in item.blocks:
        if rows:
            rows.append(tuple("…" if column.key == "sass" else "" for column in columns))
        rows += [tuple(_cells(line)[column.key] for column in columns) for line in block]
    return View(
        tuple(columns),
        tuple(rows),
        title=heading(item),
        warnings=item.warnings,
        summary=(summary(item), *doubt(item)),
        notes=meanings(item),
    )


def _cells(line: Instruction) -> dict[str, Value]:
    cause = line.waits_for
    return {
        "rank": "" if line.rank is None else line.rank,
        "offset": hex(line.offset),
        "sass": line.shown,
        "samples": line.samples,
        "share": line.share,
        "samples_not_issued": line.samples_not_issued,
        "top_reason": line.top_reason or "",
        "waits_for": "" if cause is None else f"{hex(cause.offset)} {brief(cause.sass)}",
        "source": "" if line.source_file is None else _place(line.source_file, line.source_line),
    }


def _place(file: str, line: int | None) -> str:
    name = file.replace("\\", "/").rpartition("/")[2]
    return name if line is None else f"{name}:{line}"
