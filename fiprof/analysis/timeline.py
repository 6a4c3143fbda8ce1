"""Kernels and what the hardware did while they ran, in order of time."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING, Any

from fiprof.analysis import samples
from fiprof.analysis.beside import FIPROF_DOMAIN, Beside, DeviceMemory, Totals
from fiprof.analysis.samples import Levels
from fiprof.analysis.trace_checks import trace_doubts
from fiprof.model import schemas
from fiprof.model.finding import Finding
from fiprof.model.formula import Row
from fiprof.model.labels import Labels
from fiprof.model.quantities import metric
from fiprof.model.ranks import rows_by_rank
from fiprof.model.run import Run
from fiprof.model.selection import EVERYTHING, Selection
from fiprof.model.times import summarize

if TYPE_CHECKING:
    from fiprof.analysis.samples import Floats, Samples

MEASURE = "measure"
PHASES = (MEASURE, "setup", "warmup", "all")
PIECES = 79
"""Of a track, where none are asked for."""
TENSOR_ACTIVE = metric("tensor_active_pct")
KNOWN_PCT = 5.0
"""Tensor activity below this is too little to compare ncu's with nsys's."""
AGREEMENT = (0.75, 1.33)
"""nsys's tensor level over ncu's: their windows and clocks differ, but not by more."""
FULL_PCT = 75.0
"""SMs Active of at least this is expected where a kernel with a block for each of them fills whole samples."""


class TimelineWarning(StrEnum):
    """What is missing of a timeline, and what is doubtful."""

    NO_TRACE = "no_trace"
    NO_KERNELS = "no_kernels"
    NO_RANGES = "no_ranges"
    OTHER_RANGES = "other_ranges"
    UNMARKED = "unmarked"
    RANGES_UNREADABLE = "ranges_unreadable"
    NO_CASES = "no_cases"
    NOTHING_IN_PHASE = "nothing_in_phase"
    NO_LEVELS = "no_levels"
    TENSOR_DIFFERS = "tensor_differs"
    SMS_DIFFER = "sms_differ"


class NoLevels(StrEnum):
    """Why nsys sampled nothing."""

    NOT_ASKED = "not_asked"
    WARNED = "warned"
    NO_SAMPLES = "no_samples"


class TrackName(StrEnum):
    """What a track shows."""

    KERNELS = "kernels"
    SMS = "sms_active"
    TENSOR = "tensor_active"
    DRAM = "dram"


@dataclass(frozen=True)
class KernelSpan:
    """A kernel of a case, all its executions folded: those with the same grid and block."""

    phase: str | None
    case: str | None
    label: str
    """The case in short."""
    rank: int | None
    """None in a run of one."""
    device: int | None
    kernel: str
    kernel_full: str | None
    grid: str | None
    block: str | None
    count: int
    """Executions."""
    start_us: float
    """The first one's start, since the trace began."""
    end_us: float
    """The last one's end, since the trace began."""
    median_us: float
    spread: float
    """(p90 - p10) / median."""
    gap_us: float | None
    """Median time to the start of the GPU's next kernel of the case; negative where that starts before this ends."""
    launch_us: float | None
    """Median duration of the CUDA call that launched it."""
    memory_bytes: int | None
    """Device memory of its process when the first one started."""
    levels: Levels
    """What the hardware did meanwhile."""


@dataclass(frozen=True)
class Track:
    """One line of a chart."""

    name: TrackName
    cells: tuple[float | None, ...]
    """0 to 1, from the left; None where nothing was sampled."""
    largest: float | None
    """What 1 stands for, percent as nsys gives it; None for the kernels' share of the time."""


@dataclass(frozen=True)
class CasePhase:
    """A case in a phase on a GPU."""

    phase: str | None
    label: str
    device: int | None
    several_devices: bool
    rank: int | None
    """None in a run of one."""
    start_us: float
    end_us: float
    """Since the trace began; of a case that came several times, of its longest turn."""
    busy: float
    """Share of ``length_us`` in which a kernel, a copy or a memory set ran."""
    spans: tuple[KernelSpan, ...]
    tracks: tuple[Track, ...]
    """Kernels, then what was sampled, from ``start_us`` to ``end_us``."""
    copies: tuple[Totals, ...] = ()
    calls: tuple[Totals, ...] = ()
    """The longest first."""
    turns: int = 1
    """How often the case came, between others."""
    length_us: float = 0.0
    """From the first kernel's start to the last one's end, of all turns together."""


@dataclass(frozen=True)
class Timeline:
    """What ``fiprof timeline`` shows of a run."""

    phases: tuple[CasePhase, ...]
    period_us: float | None
    """Between two samples; None without."""
    warnings: tuple[Finding, ...]

    @property
    def levels_are_shares(self) -> bool:
        """Whether nothing speaks against reading nsys's levels as shares of the whole GPU."""
        return not any(
            each.kind in (TimelineWarning.TENSOR_DIFFERS, TimelineWarning.SMS_DIFFER) for each in self.warnings
        )

    @property
    def measured(self) -> Timeline:
        """Of the phase measure alone; all of it where nothing was measured."""
        phases = tuple(part for part in self.phases if part.phase == MEASURE)
        return dataclasses.replace(self, phases=phases) if phases else self


_COLUMNS = (
    "start_ns", "end_ns", "device", "pid", "kernel", "kernel_full", "grid", "block", "phase", "case", "launch_call_ns"
)  # fmt: skip


def timeline(run: Run, *, wanted: Selection = EVERYTHING, phase: str = "measure", cells: int = PIECES) -> Timeline:
    """The timeline of a run, as far as it has one.

    wanted: only these kernels; a launch's number means its kernel. phase: one of PHASES. cells: pieces of a track.

    Raises FiprofError where nothing is left of kernels that are there, and for a table that cannot be read.
    """
    labels = Labels(run.manifest.cases)
    rows = [row for row in rows_by_rank(run, "kernels", _COLUMNS) if None not in (row["start_ns"], row["end_ns"])]
    if run.imported and not any(row["phase"] for row in rows):
        phase = "all"
    sampled = samples.read(run)
    found = [row for row in rows if phase in ("all", row["phase"])]
    grouped: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in sorted(found, key=lambda row: row["start_ns"]):
        grouped[row["phase"], row["case"], row["rank"], row["device"]].append(row)
    devices = len({row["device"] for row in rows}) > 1
    kept = {id(row) for kind in _selected(run, found, labels, wanted) for row in kind.rows}
    memory, beside = DeviceMemory(run), Beside(run)
    turns = _turns(rows, run.settings.rounds)
    phases = tuple(
        _case_phase(
            group, kept, labels, sampled.get(group[0]["device"] or 0), memory, beside, cells, turns, several=devices
        )
        for group in grouped.values()
        if any(id(row) in kept for row in group)
    )
    return Timeline(
        phases=phases,
        period_us=max((s.period_ns / 1e3 for s in sampled.values()), default=None),
        warnings=(
            *run.status_warning(),
            *trace_doubts(run),
            *_missing(run, rows, found, phase, sampled),
            *_doubts(run, phases, sampled),
        ),
    )


@dataclass(frozen=True)
class _Kind:
    """The executions of a kernel in a case with the same grid and block."""

    launch: int | None
    """A launch of it under ncu that was asked for."""
    case: str | None
    label: str
    kernel: str
    kernel_full: str | None
    grid: str | None
    block: str | None
    rows: tuple[Row, ...]

    @property
    def duration_us(self) -> float:
        """All together."""
        return float(sum(row["end_ns"] - row["start_ns"] for row in self.rows)) / 1e3


def _selected(run: Run, found: Sequence[Row], labels: Labels, wanted: Selection) -> Sequence[_Kind]:
    asked = {
        (each.case, each.kernel, each.grid): each.launch
        for each in (run.launches if wanted.launches else ())
        if each.launch in wanted.launches
    }
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in found:
        groups[tuple(row[name] for name in ("case", "kernel", "kernel_full", "grid", "block"))].append(row)
    kinds = [
        _Kind(asked.get((case, kernel, grid)), case, labels(case), kernel or "", full, grid, block, tuple(rows))
        for (case, kernel, full, grid, block), rows in groups.items()
    ]
    return wanted.of(kinds, run.manifest.name) if found else []


def _turns(rows: Sequence[Row], rounds: int) -> dict[int, int]:
    """id of a row -> in which turn of its phase and case it ran: a turn ends where another one's kernel begins.

    Only where the run measured its cases in rounds; empty otherwise.
    """
    if rounds < 2:
        return {}
    found: dict[int, int] = {}
    last: dict[Any, Any] = {}
    counts: dict[Any, int] = defaultdict(int)
    for row in sorted(rows, key=lambda row: row["start_ns"]):
        place = row["rank"], row["device"]
        key = row["phase"], row["case"], place
        if last.get(place) != key:
            last[place] = key
            counts[key] += 1
        found[id(row)] = counts[key]
    return found


def _case_phase(
    rows: Sequence[Row],
    wanted: Collection[int],
    labels: Labels,
    sampled: Samples | None,
    memory: DeviceMemory,
    beside: Beside,
    cells: int,
    turns: Mapping[int, int],
    *,
    several: bool,
) -> CasePhase:
    import numpy as np

    first = rows[0]
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    gaps: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        if id(row) not in wanted:
            continue
        key = row["kernel_full"] or row["kernel"], row["grid"], row["block"]
        groups[key].append(row)
        if following is not None:
            gaps[key].append((following["start_ns"] - row["end_ns"]) / 1e3)
    by_turn: dict[int, list[samples.Interval]] = defaultdict(list)
    for row in rows:
        by_turn[turns.get(id(row), 1)].append((row["start_ns"], row["end_ns"]))
    ran = [samples.Busy(executions) for executions in by_turn.values()]
    lengths = [max(turn.end - turn.start, 1.0) for turn in ran]
    whole = sum(lengths)
    copied = beside.copied(first["phase"], first["case"], first["rank"], first["device"])
    work = samples.Busy([*(each for turn in by_turn.values() for each in turn), *copied])
    worked = sum(
        length * float(work.share(np.array([turn.start]), np.array([turn.start + length]))[0])
        for turn, length in zip(ran, lengths, strict=True)
    )
    length = max(lengths)
    busy = ran[lengths.index(length)]
    edges = np.linspace(busy.start, busy.start + length, cells + 1)
    return CasePhase(
        phase=first["phase"],
        label=labels(first["case"]),
        rank=first["rank"],
        device=first["device"],
        several_devices=several,
        start_us=busy.start / 1e3,
        end_us=busy.end / 1e3,
        busy=worked / whole,
        spans=tuple(_span(group, gaps[key], labels, sampled, memory) for key, group in groups.items()),
        tracks=tuple(_tracks(busy, edges, sampled)),
        copies=beside.copies(first["phase"], first["case"], first["rank"], first["device"]),
        calls=beside.calls(first["phase"], first["case"], first["rank"]),
        turns=len(ran),
        length_us=whole / 1e3,
    )


def _span(
    rows: Sequence[Row], gaps: Sequence[float], labels: Labels, sampled: Samples | None, memory: DeviceMemory
) -> KernelSpan:
    first = rows[0]
    times = summarize([(row["end_ns"] - row["start_ns"]) / 1e3 for row in rows])
    assert times is not None
    calls = [row["launch_call_ns"] / 1e3 for row in rows if row["launch_call_ns"] is not None]
    return KernelSpan(
        **{name: first[name] for name in ("phase", "case", "rank", "device", "kernel_full", "grid", "block")},
        label=labels(first["case"]),
        kernel=first["kernel"] or "",
        count=len(rows),
        start_us=first["start_ns"] / 1e3,
        end_us=max(row["end_ns"] for row in rows) / 1e3,
        median_us=times.median_us,
        spread=times.spread,
        gap_us=median(gaps) if gaps else None,
        launch_us=median(calls) if calls else None,
        memory_bytes=memory.at(first["pid"], first["device"], first["start_ns"]),
        levels=sampled.levels([(row["start_ns"], row["end_ns"]) for row in rows]) if sampled else Levels(),
    )


def _tracks(busy: samples.Busy, edges: Floats, sampled: Samples | None) -> Iterable[Track]:
    yield Track(TrackName.KERNELS, tuple(map(float, busy.share(edges[:-1], edges[1:]))), None)
    for name in (TrackName.SMS, TrackName.TENSOR, TrackName.DRAM):
        if sampled is not None and (largest := sampled.largest.get(name)):
            levels = [
                level if math.isnan(level) or level > samples.SMALLEST else 0.0 for level in sampled.means(name, edges)
            ]
            cells = tuple(None if math.isnan(level) else float(level) / largest for level in levels)
            if any(cell is not None for cell in cells):
                yield Track(name, cells, largest)


# What is missing, and what is doubtful


def _missing(
    run: Run, rows: Sequence[Row], found: Sequence[Row], phase: str, sampled: dict[int, Samples]
) -> Iterable[Finding]:
    if not run.has("kernels"):
        yield Finding(TimelineWarning.NO_TRACE, {"why": run.missing("nsys")})
        return
    if not rows:
        yield Finding(TimelineWarning.NO_KERNELS)
        return
    # A program of the user's has no cases, and needs no ranges for them.
    if (run.cases or run.imported) and not any(row["phase"] for row in rows):
        yield Finding(_why_no_phases(run), {"domain": FIPROF_DOMAIN})
    if not found:
        yield Finding(TimelineWarning.NOTHING_IN_PHASE, {"phase": phase})
    if not sampled:
        yield Finding(TimelineWarning.NO_LEVELS, {"why": _why_not_sampled(run)})


def _why_no_phases(run: Run) -> TimelineWarning:
    if run.rows("ranges", ("domain",)):
        return TimelineWarning.NO_CASES if run.imported else TimelineWarning.OTHER_RANGES
    if any(schemas.NVTX_INCOMPATIBLE in (row["text"] or "") for row in run.rows("diagnostics", ("text",))):
        return TimelineWarning.RANGES_UNREADABLE
    return TimelineWarning.UNMARKED if run.imported else TimelineWarning.NO_RANGES


def _why_not_sampled(run: Run) -> Finding:
    if run.settings.gpu_metrics_hz == 0:
        return Finding(NoLevels.NOT_ASKED)
    if run.manifest.warnings and not run.imported:
        return Finding(NoLevels.WARNED, {"warnings": tuple(run.manifest.warnings)})
    if not run.has("gpu_metrics"):
        return run.missing("nsys")
    return Finding(NoLevels.NO_SAMPLES)


def _doubts(run: Run, phases: Sequence[CasePhase], sampled: dict[int, Samples]) -> Iterable[Finding]:
    """Whether the levels can be read as shares of the whole GPU."""
    spans = [span for part in phases for span in part.spans if span.levels.samples]
    counted: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    for launch in run.launches:
        if (active := TENSOR_ACTIVE.of(launch) or 0.0) >= KNOWN_PCT:
            counted[launch.case, launch.kernel].append(active)
    for span in spans:
        there, level = counted.get((span.case, span.kernel)), span.levels.tensor_active
        if there and level is not None and not AGREEMENT[0] <= level / median(there) <= AGREEMENT[1]:
            yield Finding(
                TimelineWarning.TENSOR_DIFFERS,
                {"kernel": span.kernel, "sampled_tensor_active_pct": level, "tensor_active_pct": median(there)},
            )
            return
    multiprocessors = run.environment("gpu", "multiprocessors")
    for span in spans:
        blocks = math.prod(int(n) for n in (span.grid or "0").split("x") if n.isdigit())
        largest = sampled[span.device or 0].largest.get("sms_active", 100.0)
        full = multiprocessors and blocks >= multiprocessors
        if full and span.levels.sms_active is not None and largest < FULL_PCT:
            yield Finding(
                TimelineWarning.SMS_DIFFER,
                {
                    "kernel": span.kernel,
                    "blocks": blocks,
                    "multiprocessors": multiprocessors,
                    "largest_sms_active_pct": largest,
                },
            )
            return
