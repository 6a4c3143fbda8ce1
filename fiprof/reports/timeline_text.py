"""``fiprof timeline`` as text: strips of characters, and a table of what ran."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fiprof.analysis import samples
from fiprof.analysis.timeline import CasePhase, Timeline, Totals, Track
from fiprof.model.labels import NO_CASE
from fiprof.model.wording import say, say_known, worded
from fiprof.reports.columns import Cell, Cells, attribute, filled
from fiprof.reports.view import Column, Document, Narrow, Value, View
from fiprof.text import short_kernel

_EIGHTHS = "▁▂▃▄▅▆▇█"
_NOTHING, _IDLE = "?", "·"

CHART_CELLS = (20, 80)
"""Least and most of a strip."""
PLAIN_WIDTH = 100
"""Columns where the output is no terminal."""
LONGEST_CALLS = 3

TIMES = (
    "time: median. spread: (p90 - p10) / median. gap: from a kernel's end to the start of the GPU's next one, "
    "median; negative where they overlap. call: the CUDA call that launched it. calls: by the threads that marked "
    "the phase."
)
LEVELS = (
    "Levels are nsys's samples, % as it gives them; for a kernel's own figures see fiprof show. A full block is "
    "the run's largest sample, named on the right; DRAM: read and write together; · nothing, ? not sampled. A "
    "sample counts for a kernel that took 80% of its time."
)

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


MOST_PHASES, MOST_KERNELS = 8, 12
"""Cases, and kernels of each, that people are shown: what takes most time."""


def document(what: Timeline, *, most: bool = False) -> Document:
    """The timeline as charts and tables for people; for programs, a row a kernel of a case.

    most: only so much as people read, what takes most time.
    """
    spans = [span for part in what.phases for span in part.spans]
    cells = (attribute("rank"), *_SPANS) if any(span.rank is not None for span in spans) else _SPANS
    data = filled(cells, spans)
    longest = sorted(what.phases, key=lambda part: -part.length_us)[: MOST_PHASES if most else None]
    kept = [part for part in what.phases if part in longest]
    shown = [view for part in kept for view in (strips(part), _kernels(part, MOST_KERNELS if most else None))]
    notes = [TIMES, LEVELS][: 1 + (what.period_us is not None)]
    if rest := len(what.phases) - len(kept):
        notes.insert(0, say("{count:case|cases} left out: --kernel, --top N or --all shows them.", count=rest))
    return Document(programs=data, shown=tuple(shown), warnings=what.warnings, notes=tuple(notes) if shown else ())


def strips(part: CasePhase) -> View:
    """When a case's kernels ran, and what the hardware did meanwhile, as characters."""
    length_us = part.end_us - part.start_us
    title = say(
        "{what}{place} · {length} from {start_ms:,.3f} ms · GPU busy {busy:.1%}{turns}",
        what=what(part),
        place=place(part),
        length=time_words(length_us),
        start_ms=part.start_us / 1e3,
        busy=part.busy,
        turns=say(" · the longest of {turns} turns", turns=part.turns) if part.turns > 1 else "",
    )
    header, ticks = axis(length_us, len(part.tracks[0].cells))
    columns = (Column("track", "time"), Column("chart", header), Column("full", "full block"))
    return View(columns, (("", ticks, ""), *map(_track, part.tracks)), title=title)


def what(part: CasePhase) -> str:
    """The case and its phase; of kernels that belong to none, that they are of the program."""
    if part.phase is None and part.label == NO_CASE:
        return "kernels of the program"
    return say("{label} · {phase}", label=part.label, phase=part.phase or "outside the phases")


def place(part: CasePhase) -> str:
    """Which of several ranks, or of several GPUs, it ran on; empty where there is one."""
    if part.rank is not None:
        return say(" · rank {rank}, GPU {device}", rank=part.rank, device=part.device)
    return say(" · GPU {device}", device=part.device) if part.several_devices else ""


def _level(key: str, title: str) -> Cell:
    column, value = attribute(key, title, "%", ".0f", of=f"levels.{key}")
    return column, lambda span: "≤1" if 0 < (value(span) or 0) <= samples.SMALLEST else value(span)  # type: ignore[operator]


_KERNELS: Cells = (
    attribute("kernel", "kernel", narrow=Narrow.ABOVE),
    attribute("count", "x", spec=",d"),
    attribute("median_us", "time", "µs", ",.2f"),
    attribute("spread", "spread", spec=".1%"),
    attribute("grid", "grid", narrow=Narrow.DROP),
    attribute("gap_us", "gap", "µs", ",.1f"),
    attribute("launch_us", "call", "µs", ",.1f"),
)
_LEVELS: Cells = (
    _level("sms_active", "SMs"),
    _level("tensor_active", "tensor"),
    _level("dram_read", "read"),
    _level("dram_write", "write"),
    _level("warps", "warps"),
    attribute("samples", "samples", of="levels.samples", narrow=Narrow.DROP),
)


def _kernels(part: CasePhase, most: int | None) -> View:
    longest = sorted(part.spans, key=lambda span: -span.median_us * span.count)
    kept = [span for span in part.spans if span in longest[:most]]
    sampled = any(span.levels.samples for span in kept)
    notes: list[str] = []
    if rest := longest[len(kept) :]:
        notes.append(say("{count:kernel|kernels} left out: --kernel, --top N or --all shows them.", count=len(rest)))
    beside = {"copies": part.copies, "calls": part.calls}
    notes += [f"{key}: {totals(items)}." for key, items in beside.items() if items]
    memory = [span.memory_bytes for span in part.spans if span.memory_bytes is not None]
    if memory:
        notes.append(say("device memory: {bytes}.", bytes=bytes_words(max(memory))))
    return filled([*_KERNELS, *(_LEVELS if sampled else ())], kept, notes=tuple(notes))


def _track(track: Track) -> tuple[Value, ...]:
    full = "busy" if track.largest is None else f"{track.largest:.0f}"
    return worded(track.name), strip(track.cells), full


def totals(items: Sequence[Totals]) -> str:
    """Copies or calls, the longest by name."""
    words = []
    for item in items[:LONGEST_CALLS]:
        values = {"name": short_kernel(item.name), "count": item.count, "time": time_words(item.total_us)}
        moved = None if item.bytes is None else bytes_words(item.bytes)
        words.append(
            say_known("{name} x {count}, {bytes}, {time} in all", bytes=moved, **values)
            or say("{name} x {count}, {time} in all", **values)
        )
    if rest := items[LONGEST_CALLS:]:
        count, total_us = sum(item.count for item in rest), sum(item.total_us for item in rest)
        words.append(say("{count} others, {time}", count=count, time=time_words(total_us)))
    return "; ".join(words)


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
