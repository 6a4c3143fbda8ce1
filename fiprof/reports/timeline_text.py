"""``fiprof timeline`` as text: strips of characters, and what ran in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fiprof.analysis import samples
from fiprof.analysis.samples import Levels
from fiprof.analysis.timeline import CasePhase, KernelSpan, Timeline, Totals, Track
from fiprof.reports.view import Column, Document, Value, View
from fiprof.reports.words import phrase, worded
from fiprof.text import short_kernel

_EIGHTHS = "▁▂▃▄▅▆▇█"
_NOTHING, _IDLE = "?", "·"

CHART_CELLS = (20, 80)
"""Least and most of a strip."""
PLAIN_WIDTH = 100
"""Columns where the output is no terminal."""
LONGEST_CALLS = 3

_KEYS = {
    "phase": "phase",
    "case": "case",
    "label": "label",
    "device": "device",
    "kernel": "kernel",
    "kernel_full": "kernel_full",
    "grid": "grid",
    "block": "block",
    "executions": "count",
    "start_us": "start_us",
    "end_us": "end_us",
    "nsys_duration_us": "median_us",
    "nsys_spread": "spread",
    "gap_us": "gap_us",
    "launch_call_us": "launch_us",
    "memory_bytes": "memory_bytes",
}
"""Key for programs -> attribute of a KernelSpan."""
_LEVELS = {
    "metric_samples": "samples",
    "sms_active_pct": "sms_active",
    "sm_issue_pct": "sm_issue",
    "sampled_tensor_active_pct": "tensor_active",
    "dram_read_pct": "dram_read",
    "dram_write_pct": "dram_write",
    "compute_warps_pct": "warps",
}
"""Likewise, of its levels."""


def chart_cells(width: int) -> int:
    """Cells for a chart's line on a terminal of this width."""
    return min(max(width - len("kernels") - len("full block") - 4, CHART_CELLS[0]), CHART_CELLS[1])


def document(what: Timeline) -> Document:
    """The timeline as text and charts for people; for programs, a row a kernel of a case."""
    rows = tuple(
        (
            *(getattr(span, name) for name in _KEYS.values()),
            *(getattr(span.levels, name) for name in _LEVELS.values()),
        )
        for part in what.phases
        for span in part.spans
    )
    data = View(tuple(map(Column, (*_KEYS, *_LEVELS))), rows)
    shown = tuple(_view(part, what.period_us) for part in what.phases)
    notes = tuple(phrase(f"timeline.{key}") for key in ("times", "levels")[: 1 + (what.period_us is not None)])
    return Document(data=data, shown=shown, warnings=what.warnings, notes=notes if shown else ())


def _view(part: CasePhase, period_us: float | None) -> View:
    place = f" · GPU {part.device}" if part.several_devices else ""
    length_us = part.end_us - part.start_us
    title = (
        f"{part.label} · {part.phase or 'outside the phases'}{place} · {time_words(length_us)} from "
        f"{part.start_us / 1e3:,.3f} ms · GPU busy {part.busy:.1%}"
        + (f" · the longest of {part.turns} turns" if part.turns > 1 else "")
    )
    header, ticks = axis(length_us, len(part.tracks[0].cells))
    columns = (Column("track", "time"), Column("chart", header), Column("full", "full block"))
    rows = (("", ticks, ""), *map(_track, part.tracks))
    sentences = [_sentence(span, period_us) for span in part.spans]
    sentences += [
        f"{title}: {totals(items)}." for title, items in (("copies", part.copies), ("calls", part.calls)) if items
    ]
    return View(columns, rows, title=title, summary=tuple(sentences))


def _track(track: Track) -> tuple[Value, ...]:
    full = "busy" if track.largest is None else f"{track.largest:.0f}"
    return worded(track.name), strip(track.cells), full


def totals(items: Sequence[Totals]) -> str:
    """Copies or calls, the longest by name."""
    words = [
        f"{short_kernel(item.name)} x {item.count}"
        + ("" if item.bytes is None else f", {bytes_words(item.bytes)}")
        + f", {time_words(item.total_us)} in all"
        for item in items[:LONGEST_CALLS]
    ]
    rest = items[LONGEST_CALLS:]
    if rest:
        words.append(f"{sum(item.count for item in rest)} others, {time_words(sum(item.total_us for item in rest))}")
    return "; ".join(words)


def _sentence(span: KernelSpan, period_us: float | None) -> str:
    """What ran, and then what the hardware did."""
    if span.count > 1:
        words = [
            f"{short_kernel(span.kernel)} x {span.count}, median {span.median_us:.2f} µs, spread {span.spread:.1%}"
        ]
    else:
        words = [f"{short_kernel(span.kernel)}, {span.median_us:.2f} µs"]
    words.append(f"grid {span.grid or '–'}")
    if span.gap_us is not None:
        if span.gap_us < 0:
            words.append(
                f"the next starts {time_words(-span.gap_us)} before its end" + (" (median)" if span.count > 1 else "")
            )
        else:
            words.append(f"gap to the next {time_words(span.gap_us)}" + (" median" if span.count > 1 else ""))
    parts = [", ".join(words)]
    if span.launch_us is not None:
        parts.append(f"launch call {time_words(span.launch_us)}")
    if period_us is not None:
        parts.append(_levels(span.levels, period_us))
    if span.memory_bytes is not None:
        parts.append(f"device memory {bytes_words(span.memory_bytes)}")
    return "; ".join(parts) + "."


def _levels(levels: Levels, period_us: float) -> str:
    if not levels.samples:
        return f"no sample of its own ({time_words(period_us)} each)"
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
    return f"{', '.join(words)} ({levels.samples} {'sample' if levels.samples == 1 else 'samples'})"


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
