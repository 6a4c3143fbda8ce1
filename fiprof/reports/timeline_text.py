"""``fiprof timeline`` as text: strips of characters, and what ran in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fiprof.analysis import samples
from fiprof.analysis.beside import Totals
from fiprof.analysis.samples import Levels
from fiprof.analysis.timeline import CasePhase, KernelSpan, Timeline, Track
from fiprof.model.provenance import join
from fiprof.reports.columns import Cells, attribute, filled
from fiprof.reports.view import Column, Document, Value, View
from fiprof.reports.words import known, phrase, worded
from fiprof.text import short_kernel

_EIGHTHS = "▁▂▃▄▅▆▇█"
_NOTHING, _IDLE = "?", "·"

CHART_CELLS = (20, 80)
"""Least and most of a strip."""
PLAIN_WIDTH = 100
"""Columns where the output is no terminal."""
LONGEST_CALLS = 3

_SPANS: Cells = (
    *map(attribute, ("phase", "case", "label", "device", "kernel", "kernel_full", "grid", "block")),
    attribute("executions", of="count"),
    attribute("start_us"),
    attribute("end_us"),
    attribute("nsys_duration_us", of="median_us"),
    attribute("nsys_spread", of="spread"),
    attribute("gap_us"),
    attribute("launch_call_us", of="launch_us"),
    attribute("memory_bytes"),
    attribute("metric_samples", of="levels.samples"),
    attribute("sms_active_pct", of="levels.sms_active"),
    attribute("sm_issue_pct", of="levels.sm_issue"),
    attribute("sampled_tensor_active_pct", of="levels.tensor_active"),
    attribute("dram_read_pct", of="levels.dram_read"),
    attribute("dram_write_pct", of="levels.dram_write"),
    attribute("compute_warps_pct", of="levels.warps"),
)


def chart_cells(width: int) -> int:
    """Cells for a chart's line on a terminal of this width."""
    return min(max(width - len("kernels") - len("full block") - 4, CHART_CELLS[0]), CHART_CELLS[1])


def document(what: Timeline) -> Document:
    """The timeline as text and charts for people; for programs, a row a kernel of a case."""
    data = filled(_SPANS, (span for part in what.phases for span in part.spans))
    shown = tuple(_view(part, what.period_us) for part in what.phases)
    notes = tuple(phrase(f"timeline.{key}") for key in ("times", "levels")[: 1 + (what.period_us is not None)])
    return Document(data=data, shown=shown, warnings=what.warnings, notes=notes if shown else ())


def _view(part: CasePhase, period_us: float | None) -> View:
    length_us = part.end_us - part.start_us
    title = phrase(
        "timeline.title",
        label=part.label,
        phase=part.phase or "outside the phases",
        place=phrase("timeline.place", device=part.device) if part.several_devices else "",
        length=time_words(length_us),
        start_ms=part.start_us / 1e3,
        busy=part.busy,
        turns=phrase("timeline.turns", turns=part.turns) if part.turns > 1 else "",
    )
    header, ticks = axis(length_us, len(part.tracks[0].cells))
    columns = (Column("track", "time"), Column("chart", header), Column("full", "full block"))
    rows = (("", ticks, ""), *map(_track, part.tracks))
    sentences = [_sentence(span, period_us) for span in part.spans]
    beside = {"copies": part.copies, "calls": part.calls}
    sentences += [phrase(f"timeline.{key}", totals=totals(items)) for key, items in beside.items() if items]
    return View(columns, rows, title=title, summary=tuple(sentences))


def _track(track: Track) -> tuple[Value, ...]:
    full = "busy" if track.largest is None else f"{track.largest:.0f}"
    return worded(track.name), strip(track.cells), full


def totals(items: Sequence[Totals]) -> str:
    """Copies or calls, the longest by name."""
    words = []
    for item in items[:LONGEST_CALLS]:
        values = {"name": short_kernel(item.name), "count": item.count, "time": time_words(item.total_us)}
        moved = None if item.bytes is None else bytes_words(item.bytes)
        words.append(known("timeline.total_bytes", bytes=moved, **values) or phrase("timeline.total", **values))
    if rest := items[LONGEST_CALLS:]:
        count, total_us = sum(item.count for item in rest), sum(item.total_us for item in rest)
        words.append(phrase("timeline.others", count=count, time=time_words(total_us)))
    return "; ".join(words)


def _sentence(span: KernelSpan, period_us: float | None) -> str:
    """What ran, and then what the hardware did."""
    loop, gap = span.count > 1, ""
    if span.gap_us is not None:
        key = f"{'overlap' if span.gap_us < 0 else 'gap'}{'_loop' * loop}"
        gap = phrase(f"timeline.{key}", time=time_words(abs(span.gap_us)))
    ran = phrase(
        f"timeline.{'loop' if loop else 'once'}",
        kernel=short_kernel(span.kernel),
        count=span.count,
        median_us=span.median_us,
        spread=span.spread,
        grid=span.grid or "–",
        gap=gap,
    )
    call = None if span.launch_us is None else time_words(span.launch_us)
    memory = None if span.memory_bytes is None else bytes_words(span.memory_bytes)
    levels = None if period_us is None else _levels(span.levels, period_us)
    return join("; ", [ran, known("timeline.launch", time=call), levels, known("timeline.memory", bytes=memory)]) + "."


def _levels(levels: Levels, period_us: float) -> str:
    if not levels.samples:
        return phrase("timeline.no_sample", time=time_words(period_us))
    named = (
        ("SMs Active", levels.sms_active),
        ("Tensor Active", levels.tensor_active),
        ("DRAM Read", levels.dram_read),
        ("DRAM Write", levels.dram_write),
        ("compute warps", levels.warps),
    )
    words = [
        f"{name} {level:.1f}" if level > samples.SMALLEST or not level else f"{name} ≤1"
        for name, level in named
        if level is not None
    ]
    return phrase("timeline.samples", levels=", ".join(words), count=levels.samples)


def strip(cells: Sequence[float | None]) -> str:
    """Levels, 0 to 1, as blocks."""
    return "".join(_cell(cell) for cell in cells)


def _cell(level: float | None) -> str:
    if level is None:
        return _NOTHING
    eighths = min(round(level * 8), 8)
    # What is there at all shows.
    return _EIGHTHS[max(eighths, 1) - 1] if level else _IDLE


def axis(length_us: float, cells: int) -> tuple[str, str]:
    """The axis's labels, and the ticks below them, as long as the chart."""
    unit, per_us = ("ms", 1e-3) if length_us >= 1000 else ("µs", 1.0)
    length = max(length_us * per_us, 1e-9)
    span = _round_span(length / max(cells // 12, 1))
    labels, ticks = [" "] * cells, ["╌"] * cells
    free = 0
    for index in range(int(length / span) + 1):
        at = int(index * span / length * cells)
        word = f"{index * span:.10g}" + (f" {unit}" if not index else "")
        if at < cells:
            ticks[at] = "┬"
        if free <= at and at + len(word) <= cells:
            labels[at : at + len(word)] = word
            free = at + len(word) + 1
    return "".join(labels).rstrip(), "".join(ticks)


def _round_span(least: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def time_words(us: float) -> str:
    """A time in the unit that fits."""
    if us >= 1e6:
        return f"{us / 1e6:.3f} s"
    return f"{us / 1e3:.3f} ms" if us >= 1e3 else f"{us:.1f} µs" if us < 99.95 else f"{us:.0f} µs"


def bytes_words(count: int) -> str:
    """Bytes in the unit that fits."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"
