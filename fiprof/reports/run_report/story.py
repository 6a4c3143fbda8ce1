"""The story of a run in order of time: each phase, kernel and call, and what the hardware did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fiprof.analysis import samples
from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.thresholds import SOME_WAITING
from fiprof.analysis.timeline import CasePhase, KernelSpan
from fiprof.model.finding import Finding
from fiprof.model.provenance import Provenance, TracedNumber, TracedText, join
from fiprof.model.quantities import SM_ACTIVE, metric
from fiprof.reports.columns import attribute, widened
from fiprof.reports.pages.page import Block, Bullets, Caution, Link, Section, Table, Text
from fiprof.reports.pages.traced import Cell, TracedColumns, listed
from fiprof.reports.timeline_text import time_words, totals
from fiprof.reports.view import Column
from fiprof.reports.words import known, phrase, worded
from fiprof.text import short_kernel

LEAST_SAMPLES = 3
"""Of its own that a kernel needs for nsys's levels to stand for it; below that ncu's counters do."""
MOST_EVENTS = 40
"""Rows of the table of kernels: those that take most time, in order of time."""
MOST_PHASES = 60
MOST_PARAGRAPHS = 24
"""Cases that get a paragraph: those that took longest."""
MOST_TOLD = 3
"""Kernels of a case, and calls, that a sentence names."""
NSYS: Literal["nsys"] = "nsys"
NCU: Literal["ncu"] = "ncu"
TENSOR, DRAM = metric("tensor_active_pct"), metric("dram_throughput_pct")
_LENGTH = "(max(end_ns) - min(start_ns))"


@dataclass(frozen=True)
class Event:
    """A kernel of a case in a phase, all its executions folded, and the state of the hardware meanwhile."""

    span: KernelSpan
    group: Group | None
    """The same kernel under ncu."""
    sms: TracedNumber | None
    """Multiprocessors with a warp, percent."""
    tensor: TracedNumber | str | None
    """Tensor cores working, percent; ``≤1`` where nsys's smallest level was sampled."""
    dram: TracedNumber | None
    """DRAM reads and writes, percent of its peak."""
    by: Literal["nsys", "ncu"] | None
    """Whose figures these are: nsys's samples or ncu's counters."""

    @property
    def total_us(self) -> float:
        """All executions together."""
        return self.span.median_us * self.span.count

    @property
    def median(self) -> TracedNumber:
        """Duration of an execution."""
        return _of(self.span, self.span.median_us, "median(duration_ns) / 1000", ",.2f", " µs")


@dataclass(frozen=True)
class PhaseEvents:
    """A phase of a case on a GPU."""

    at: CasePhase
    events: tuple[Event, ...]
    """In order of time."""

    @property
    def place(self) -> str:
        """The case, with the GPU where there are several."""
        at = self.at
        return phrase("story.place", label=at.label, device=at.device) if at.several_devices else at.label


@dataclass(frozen=True)
class Story:
    """A run in order of time; without phases where nsys saw nothing, and the warnings say why."""

    phases: tuple[PhaseEvents, ...]
    warnings: tuple[Finding, ...]
    period_us: float | None
    """Between two samples of nsys."""

    @property
    def measured(self) -> tuple[PhaseEvents, ...]:
        """The phases of the phase measure; all of them where the trace has no phases."""
        return tuple(phase for phase in self.phases if phase.at.phase == "measure") or (
            self.phases if not any(phase.at.phase for phase in self.phases) else ()
        )


def story(measured: Analyses) -> Story:
    """The story of a run, as far as it was traced.

    Raises FiprofError for a table that cannot be read.
    """
    told = measured.timeline
    doubted = not told.levels_are_shares
    groups = {(group.case, group.kernel): group for group in reversed(measured.groups)}
    phases = tuple(
        PhaseEvents(
            part,
            tuple(
                _event(span, groups.get((span.case, span.kernel)) if span.phase == "measure" else None, doubted)
                for span in sorted(part.spans, key=lambda span: span.start_us)
            ),
        )
        for part in sorted(told.phases, key=lambda part: part.start_us)
    )
    # What became of the run is said at its head.
    known = measured.run.status_warning()
    return Story(phases, tuple(each for each in told.warnings if each not in known), told.period_us)


def _event(span: KernelSpan, group: Group | None, doubted: bool) -> Event:
    levels = span.levels
    if levels.samples >= LEAST_SAMPLES and not doubted:
        dram = None
        if levels.dram_read is not None and levels.dram_write is not None:
            dram = _of(span, levels.dram_read + levels.dram_write, "mean(dram_read) + mean(dram_write)")
        tensor: TracedNumber | str | None = None
        if levels.tensor_active is not None:
            small = 0 < levels.tensor_active <= samples.SMALLEST
            tensor = "≤1" if small else _of(span, levels.tensor_active, "mean(tensor_active)")
        sms = None if levels.sms_active is None else _of(span, levels.sms_active, "mean(sms_active)")
        return Event(span, group, sms, tensor, dram, NSYS)
    if group is None or span.phase != "measure":
        return Event(span, None, None, None, None, None)
    active, tensor, dram = (group.median.traced(each, spec=".1f", unit="") for each in (SM_ACTIVE, TENSOR, DRAM))
    if active is not None:
        source = active.source.of(f"{active.source.formula} * 100")
        active = TracedNumber(active.value * 100, source, ".1f")
    return Event(span, group, active, tensor, dram, NCU)


def _of(span: KernelSpan, value: float, formula: str, spec: str = ".1f", unit: str = "") -> TracedNumber:
    """A number about the executions of a kernel."""
    source = Provenance("nsys", formula, case=span.case, kernel=span.kernel, grid=span.grid, phase=span.phase or "")
    return TracedNumber(value, source, spec, unit)


def _of_phase(part: CasePhase, value: float, formula: str, spec: str = ".2f", unit: str = "") -> TracedNumber | str:
    """A number about a phase; of a case that came in turns it is of all of them, which no formula says."""
    case = part.spans[0].case if part.spans else None
    number = TracedNumber(value, Provenance("nsys", formula, case=case, phase=part.phase or ""), spec, unit)
    return str(number) if part.turns > 1 else number


def _cell(part: CasePhase, value: float, formula: str) -> Cell:
    return value if part.turns > 1 else _of_phase(part, value, formula)


def share_idle(part: CasePhase) -> TracedNumber | str:
    """Of a phase's length, the share without a kernel, e.g. ``18%``."""
    return _of_phase(part, 1 - part.busy, f"1 - busy_ns / {_LENGTH}", ".0%")


# As a section


def section(told: Story) -> Section:
    """The story as sentences and tables."""
    blocks: list[Block] = [Caution(worded(each)) for each in told.warnings]
    phases = told.measured
    if told.phases:
        blocks += [Text((_opening(told),)), _phases(told.phases)]
    if phases:
        blocks.append(_kernels(phases))
        told_of = sorted(phases, key=lambda phase: -phase.at.length_us)[:MOST_PARAGRAPHS]
        blocks.append(Bullets(tuple(Text(_paragraph(phase)) for phase in phases if phase in told_of)))
        if len(phases) > len(told_of):
            blocks.append(Text((phrase("story.longest", shown=len(told_of), all=len(phases)),)))
        if any(phase.at.busy >= 1 - SOME_WAITING.share for phase in phases):
            blocks.append(Text((phrase("story.busy"),)))
    return Section("story", "Execution story", tuple(blocks))


def _opening(told: Story) -> TracedText:
    everything = Provenance("nsys", "count(duration_ns)", phase="all")
    spans = [span for phase in told.phases for span in phase.at.spans]
    length = sum(phase.at.length_us for phase in told.measured if phase.at.phase)
    within = (max(span.end_us for span in spans) - min(span.start_us for span in spans)) / 1e3
    return phrase(
        "story.opening",
        kernels=TracedNumber(sum(span.count for span in spans), everything, ",.0f"),
        within=TracedNumber(within, everything.of("(max(end_ns) - min(start_ns)) / 1000000"), ",.1f"),
        measured=phrase("story.measured", length=length / 1e3) if length else "",
        sampled=known("story.sampled", period=told.period_us) or "",
    )


_PHASES: TracedColumns = (
    (
        Column("start_ms", "start", "ms", ",.2f"),
        lambda phase: _cell(phase.at, phase.at.start_us / 1e3, "min(start_ns) / 1000000"),
    ),
    (
        Column("length_ms", "length", "ms", ",.3f"),
        lambda phase: _cell(phase.at, phase.at.length_us / 1e3, f"{_LENGTH} / 1000000"),
    ),
    (Column("phase", "phase"), lambda phase: phase.at.phase or "outside"),
    attribute("case", "case", of="place"),
    (Column("kernels", "kernels", spec=",d"), lambda phase: sum(span.count for span in phase.at.spans)),
    (Column("busy", "GPU busy", spec=".0%"), lambda phase: _cell(phase.at, phase.at.busy, f"busy_ns / {_LENGTH}")),
    (
        Column("longest", "mostly"),
        lambda phase: short_kernel(max(phase.events, key=lambda event: event.total_us).span.kernel),
    ),
)


def _phases(phases: Sequence[PhaseEvents]) -> Table:
    kept = sorted(phases, key=lambda phase: -phase.at.length_us)[:MOST_PHASES]
    notes = [phrase("story_phases.note")]
    if any(phase.at.turns > 1 for phase in phases):
        notes.append(phrase("story_phases.turns"))
    if len(phases) > MOST_PHASES:
        notes.append(phrase("story_phases.most", shown=MOST_PHASES, all=len(phases)))
    in_order = sorted(kept, key=lambda phase: phase.at.start_us)
    title = phrase("story_phases.title")
    return listed(_PHASES, in_order, anchor="story-phases", title=title, notes=tuple(notes))


def _name(event: Event) -> str:
    name = short_kernel(event.span.kernel)
    return Link(name, f"#{event.group.anchor}") if event.group else name


_KERNELS: TracedColumns = (
    (
        Column("start_ms", "start", "ms", ",.1f"),
        lambda pair: _of(pair[1].span, pair[1].span.start_us / 1e3, "min(start_ns) / 1000000"),
    ),
    (Column("case", "case"), lambda pair: pair[0].place),
    (Column("kernel", "kernel"), lambda pair: _name(pair[1])),
    (Column("count", "x", spec=",d"), lambda pair: _of(pair[1].span, pair[1].span.count, "count(duration_ns)")),
    (Column("median_us", "median", "µs", ",.2f"), lambda pair: pair[1].median),
    (Column("sms", "SMs", "%", ".1f"), lambda pair: pair[1].sms),
    (Column("tensor", "tensor", "%", ".1f"), lambda pair: pair[1].tensor),
    (Column("dram", "DRAM", "%", ".1f"), lambda pair: pair[1].dram),
    (Column("samples", "n", spec="d"), lambda pair: pair[1].span.levels.samples if pair[1].by == NSYS else None),
)
"""Of a phase and an event of it."""


def _kernels(phases: Sequence[PhaseEvents]) -> Table:
    events = [(phase, event) for phase in phases for event in phase.events]
    kept = sorted(events, key=lambda pair: -pair[1].total_us)[:MOST_EVENTS]
    notes = [phrase("story_kernels.note")]
    if len(events) > len(kept):
        notes.append(phrase("story_kernels.most", shown=len(kept), all=len(events)))
    columns = widened(_KERNELS, (phase.place for phase, _ in kept))
    in_order = sorted(kept, key=lambda pair: pair[1].span.start_us)
    title = phrase("story_kernels.title")
    return listed(columns, in_order, anchor="story-kernels", title=title, notes=tuple(notes))


def _paragraph(phase: PhaseEvents) -> tuple[str, ...]:
    """What ran, what the hardware did meanwhile, and who waited for whom."""
    part = phase.at
    events = sorted(phase.events, key=lambda event: -event.total_us)
    told = [_event_words(event) for event in events[:MOST_TOLD]]
    if len(events) > MOST_TOLD:
        told.append(phrase("story.others", count=len(events) - MOST_TOLD))
    head = phrase(
        "story.phase",
        place=phase.place,
        length=_of_phase(part, part.length_us / 1e3, f"{_LENGTH} / 1000000", ",.2f", " ms"),
        turns=phrase("story.turns", turns=part.turns) if part.turns > 1 else "",
        busy=_of_phase(part, part.busy, f"busy_ns / {_LENGTH}", ".0%"),
        events=join("; ", told),
    )
    beside = (("copies", part.copies), ("calls", part.calls))
    return (head, _waits(part), *(phrase(f"story.{key}", totals=totals(items)) for key, items in beside if items))


def _event_words(event: Event) -> TracedText:
    span, tensor = event.span, event.tensor
    said = phrase(
        "story.loop" if span.count > 1 else "story.once",
        kernel=short_kernel(span.kernel),
        count=span.count,
        median=event.median,
        spread=_of(span, span.spread, "spread(duration_ns)", ".1%"),
        grid=span.grid or "–",
    )
    idle = tensor is not None and not (isinstance(tensor, TracedNumber) and tensor.value > samples.SMALLEST)
    levels = [
        known("story.sms", level=event.sms),
        phrase("story.tensor_idle") if idle else known("story.tensor", level=tensor),
        known("story.dram", level=event.dram),
    ]
    if not any(levels):
        return said
    return phrase(f"story.{event.by}", event=said, levels=join(", ", levels), samples=span.levels.samples)


def _waits(part: CasePhase) -> str:
    """What the GPU waited for; nothing where it was busy."""
    if part.busy >= 1 - SOME_WAITING.share:
        return ""
    launches = sum(call.count for call in part.calls if "Launch" in call.name)
    every = time_words(part.length_us / launches) if launches else ""
    return phrase(f"story.{'launches' if launches else 'idle'}", idle=share_idle(part), every=every)
