"""The story of a run in order of time: each phase, kernel and call, and what the hardware did meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fiprof.analysis import samples
from fiprof.analysis.analyses import Analyses, Group
from fiprof.analysis.thresholds import SOME_WAITING
from fiprof.analysis.timeline import CasePhase, KernelSpan
from fiprof.model.finding import Finding
from fiprof.model.provenance import Provenance, TracedNumber, TracedText, join, sentence
from fiprof.model.quantities import SM_ACTIVE, metric
from fiprof.reports.headings import label_cells
from fiprof.reports.pages.page import Block, Bullets, Caution, Link, Section, Table, Text
from fiprof.reports.pages.traced import Cell, table
from fiprof.reports.timeline_text import time_words, totals
from fiprof.reports.view import Column
from fiprof.reports.words import worded
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


@dataclass(frozen=True)
class PhaseEvents:
    """A phase of a case on a GPU."""

    at: CasePhase
    events: tuple[Event, ...]
    """In order of time."""


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
            dram = _level(span, "mean(dram_read) + mean(dram_write)", levels.dram_read + levels.dram_write)
        tensor: TracedNumber | str | None = None
        if levels.tensor_active is not None:
            small = 0 < levels.tensor_active <= samples.SMALLEST
            tensor = "≤1" if small else _level(span, "mean(tensor_active)", levels.tensor_active)
        sms = None if levels.sms_active is None else _level(span, "mean(sms_active)", levels.sms_active)
        return Event(span, group, sms, tensor, dram, NSYS)
    if group is not None and span.phase == "measure":
        row = group.median
        active = row.traced(SM_ACTIVE)
        return Event(
            span,
            group,
            _percent(active),
            row.traced(metric("tensor_active_pct"), spec=".1f", unit=""),
            row.traced(metric("dram_throughput_pct"), spec=".1f", unit=""),
            NCU,
        )
    return Event(span, None, None, None, None, None)


def _percent(share: TracedNumber | None) -> TracedNumber | None:
    if share is None:
        return None
    of = share.source
    return TracedNumber(share.value * 100, Provenance(of.origin, f"{of.formula} * 100", launch=of.launch), ".1f")


def _level(span: KernelSpan, formula: str, value: float) -> TracedNumber:
    return TracedNumber(value, _of(span, formula), ".1f")


def _of(span: KernelSpan, formula: str) -> Provenance:
    return Provenance("nsys", formula, case=span.case, kernel=span.kernel, grid=span.grid, phase=span.phase or "")


def _of_phase(part: CasePhase, value: float, formula: str, spec: str = ".2f", unit: str = "") -> TracedText:
    """A number about a phase; of a case that came in turns it is of all of them, which no formula says."""
    case = part.spans[0].case if part.spans else None
    if part.turns > 1:
        return sentence("{}", f"{value:{spec}}{unit}")
    return sentence(
        "{}", TracedNumber(value, Provenance("nsys", formula, case=case, phase=part.phase or ""), spec, unit)
    )


def _cell(part: CasePhase, value: float, formula: str) -> Cell:
    return next(iter(_of_phase(part, value, formula).facts), value)


def share_idle(part: CasePhase) -> TracedText:
    """Of a phase's length, the share without a kernel, e.g. ``18%``."""
    return _of_phase(part, 1 - part.busy, f"1 - busy_ns / {_LENGTH}", ".0%")


# As a section


def section(told: Story) -> Section:
    """The story as sentences and tables."""
    blocks: list[Block] = [Caution(worded(each)) for each in told.warnings]
    phases = told.measured
    if told.phases:
        blocks.append(Text((_opening(told),)))
        blocks.append(_phases(told.phases))
    if phases:
        blocks.append(_kernels(phases))
        told_of = sorted(phases, key=lambda phase: -phase.at.length_us)[:MOST_PARAGRAPHS]
        blocks.append(Bullets(tuple(Text(_paragraph(phase)) for phase in phases if phase in told_of)))
        if len(phases) > len(told_of):
            blocks.append(Text((f"These are the {len(told_of)} longest of {len(phases)}.",)))
        if any(phase.at.busy >= 1 - SOME_WAITING.share for phase in phases):
            blocks.append(
                Text(("Where the GPU was busy throughout, the host launched ahead of it: the kernels set the pace.",))
            )
    return Section("story", "Execution story", tuple(blocks))


def _opening(told: Story) -> TracedText:
    everything = Provenance("nsys", "count(duration_ns)", phase="all")
    spans = [span for phase in told.phases for span in phase.at.spans]
    phases = [phase.at for phase in told.measured if phase.at.phase]
    length = sum(part.length_us for part in phases)
    sampled = "" if told.period_us is None else f" nsys sampled the hardware every {told.period_us:.0f} µs."
    count = sum(span.count for span in spans)
    measured = f" {length / 1e3:,.2f} ms of them are the measured phases." if length else ""
    first, last = min(span.start_us for span in spans), max(span.end_us for span in spans)
    return sentence(
        "Under nsys, {} kernels ran within {} ms.{}{} Times are nsys's own, without any replay.",
        TracedNumber(count, everything, ",.0f"),
        TracedNumber(
            (last - first) / 1e3, Provenance("nsys", "(max(end_ns) - min(start_ns)) / 1000000", phase="all"), ",.1f"
        ),
        measured,
        sampled,
    )


_PHASES = (
    Column("start_ms", "start", "ms", ",.2f"),
    Column("length_ms", "length", "ms", ",.3f"),
    Column("phase", "phase"),
    Column("case", "case"),
    Column("kernels", "kernels", spec=",d"),
    Column("busy", "GPU busy", spec=".0%"),
    Column("longest", "mostly"),
)


def _phases(phases: Sequence[PhaseEvents]) -> Table:
    rows: list[list[Cell]] = []
    kept = sorted(phases, key=lambda phase: -phase.at.length_us)[:MOST_PHASES]
    for phase in sorted(kept, key=lambda phase: phase.at.start_us):
        part = phase.at
        longest = max(part.spans, key=lambda span: span.median_us * span.count)
        rows.append(
            [
                _cell(part, part.start_us / 1e3, "min(start_ns) / 1000000"),
                _cell(part, part.length_us / 1e3, f"{_LENGTH} / 1000000"),
                part.phase or "outside",
                _place(part),
                sum(span.count for span in part.spans),
                _cell(part, part.busy, f"busy_ns / {_LENGTH}"),
                short_kernel(longest.kernel),
            ]
        )
    notes = ["start: since the trace began. length: from the first kernel's start to the last one's end."]
    if any(phase.at.turns > 1 for phase in phases):
        notes.append("Cases took turns: length, kernels and busy are of all of a case's turns, start is the longest's.")
    if len(phases) > MOST_PHASES:
        notes.append(f"The {MOST_PHASES} longest of {len(phases)}.")
    return table(_PHASES, rows, anchor="story-phases", title="The phases, in order of time", notes=tuple(notes))


def _place(part: CasePhase) -> str:
    return f"{part.label} (GPU {part.device})" if part.several_devices else part.label


_KERNELS = (
    Column("start_ms", "start", "ms", ",.1f"),
    Column("case", "case"),
    Column("kernel", "kernel"),
    Column("count", "x", spec=",d"),
    Column("median_us", "median", "µs", ",.2f"),
    Column("sms", "SMs", "%", ".1f"),
    Column("tensor", "tensor", "%", ".1f"),
    Column("dram", "DRAM", "%", ".1f"),
    Column("samples", "n", spec="d"),
)


def _kernels(phases: Sequence[PhaseEvents]) -> Table:
    events = [(phase, event) for phase in phases for event in phase.events]
    kept = sorted(events, key=lambda pair: -pair[1].span.median_us * pair[1].span.count)[:MOST_EVENTS]
    rows: list[list[Cell]] = []
    for phase, event in sorted(kept, key=lambda pair: pair[1].span.start_us):
        span = event.span
        rows.append(
            [
                TracedNumber(span.start_us / 1e3, _of(span, "min(start_ns) / 1000000")),
                _place(phase.at),
                Link(short_kernel(span.kernel), f"#{event.group.anchor}") if event.group else short_kernel(span.kernel),
                TracedNumber(span.count, _of(span, "count(duration_ns)")),
                _median(span),
                event.sms,
                event.tensor,
                event.dram,
                span.levels.samples if event.by == NSYS else None,
            ]
        )
    notes = [
        "SMs: with a warp on them. tensor: tensor cores working. DRAM: reads and writes, of the peak. Means of nsys's "
        "samples that the kernel filled; where it filled too few, or they are doubtful, ncu's counters (n –), "
        "which see one execution with ncu's cache control."
    ]
    if len(events) > len(kept):
        notes.append(f"The {len(kept)} kernels that take most time, of {len(events)}.")
    widest = label_cells(str(row[1]) for row in rows)
    columns = [dataclasses.replace(each, least=widest) if each.key == "case" else each for each in _KERNELS]
    title = "The measured kernels, and the hardware meanwhile"
    return table(columns, rows, anchor="story-kernels", title=title, notes=tuple(notes))


def _median(span: KernelSpan) -> TracedNumber:
    return TracedNumber(span.median_us, _of(span, "median(duration_ns) / 1000"), ",.2f", " µs")


def _paragraph(phase: PhaseEvents) -> tuple[str, ...]:
    """What ran, what the hardware did meanwhile, and who waited for whom."""
    part = phase.at
    length = _of_phase(part, part.length_us / 1e3, f"{_LENGTH} / 1000000", ",.2f", " ms")
    busy = _of_phase(part, part.busy, f"busy_ns / {_LENGTH}", ".0%")
    turns = f" in {part.turns} turns" if part.turns > 1 else ""
    events = sorted(phase.events, key=lambda event: -event.span.median_us * event.span.count)
    told = [_event_words(event) for event in events[:MOST_TOLD]]
    if len(events) > MOST_TOLD:
        told.append(sentence("and {} other kernels", len(events) - MOST_TOLD))
    head = sentence("{}, {}{}, GPU busy {}: {}.", _place(part), length, turns, busy, join("; ", told))
    beside = (("Copies", part.copies), ("Host", part.calls))
    return (head, _waits(part), *(f" {name}: {totals(items)}." for name, items in beside if items))


def _event_words(event: Event) -> TracedText:
    span = event.span
    name, grid = short_kernel(span.kernel), span.grid or "–"
    if span.count > 1:
        spread = TracedNumber(span.spread, _of(span, "spread(duration_ns)"), ".1%")
        head = sentence("{} x {}, median {}, spread {}, grid {}", name, span.count, _median(span), spread, grid)
    else:
        head = sentence("{}, {}, grid {}", name, _median(span), grid)
    state = _state(event)
    return sentence("{}, {}", head, state) if state else head


def _state(event: Event) -> TracedText | None:
    """``with the SMs 94.7% active, … (17 samples)``."""
    words = []
    if event.sms is not None:
        words.append(sentence("the SMs {} active", event.sms.as_(".1f", "%")))
    if isinstance(event.tensor, TracedNumber) and event.tensor.value > samples.SMALLEST:
        words.append(sentence("the tensor cores {}", event.tensor.as_(".1f", "%")))
    elif event.tensor is not None:
        words.append(sentence("the tensor cores idle"))
    if event.dram is not None:
        words.append(sentence("DRAM at {} of its peak", event.dram.as_(".1f", "%")))
    if not words:
        return None
    return sentence(
        "with {} ({})", join(", ", words), "ncu" if event.by == NCU else f"{event.span.levels.samples} samples"
    )


def _waits(part: CasePhase) -> TracedText:
    """What the GPU waited for; nothing where it was busy."""
    if part.busy >= 1 - SOME_WAITING.share:
        return sentence("")
    idle = share_idle(part)
    launches = sum(call.count for call in part.calls if "Launch" in call.name)
    if not launches:
        return sentence(" For {} of the time no kernel ran.", idle)
    every = part.length_us / launches
    return sentence(
        " For {} of the time the GPU waited for the host, which made a launch call every {}.", idle, time_words(every)
    )
