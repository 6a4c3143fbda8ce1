"""``fiprof timeline`` as text: strips of characters, and a table of what ran."""

import math
from collections.abc import Sequence
from typing import Any

from fiprof.analysis import samples
from fiprof.analysis.copies import COPIES
from fiprof.analysis.frames import Row
from fiprof.analysis.idle import DEVICE, RANK
from fiprof.analysis.timeline import SPANS, CasePhase, Timeline
from fiprof.model.finding import say
from fiprof.model.selection import NO_CASE
from fiprof.reports.view import Column, Document, View, view_of
from fiprof.text import byte_words, detailed_kernel, short_kernel

_EIGHTHS = "▁▂▃▄▅▆▇█"
CHART_CELLS = (20, 80)  # least and most of a strip
PLAIN_WIDTH = 100  # columns where the output is no terminal
LONGEST_CALLS = 3
COPIES_ALONE = " (copies without a kernel {share:.1%})"
LEAST_COPYING = 0.001  # share of the time that is told
COPYING = (
    "time: one after the other; alone: while no kernel ran. peak: of the link to the host, or of DRAM, which a copy in "
    "it reads and writes; small copies are far from it."
)
KERNELS = ("kernel", "executions", "nsys_duration_us", "nsys_spread", "grid")
CALLED = ("gap_us", "launch_call_us")
SAMPLED = (
    "sms_active_pct", "sampled_tensor_active_pct", "dram_read_pct", "dram_write_pct", "compute_warps_pct",
    "metric_samples",
)  # fmt: skip
"""Columns of SPANS that people see."""
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


def chart_cells(width: int) -> int:
    """Cells for a chart's line on a terminal of this width."""
    return min(max(width - len("kernels") - len("full block") - 4, CHART_CELLS[0]), CHART_CELLS[1])


MOST_PHASES, MOST_KERNELS = 8, 12  # cases, and kernels of each, that people are shown: what takes most time


def document(what: Timeline, *, most: bool = False) -> Document:
    """Charts and tables for people; for programs, a row a kernel of a case. most: only what takes most time."""
    spans = [span for part in what.phases for span in part.spans]
    rank = [Column("rank")] if any(span["rank"] is not None for span in spans) else []
    longest = sorted(what.phases, key=lambda part: -part.length_us)[: MOST_PHASES if most else None]
    shown_phases = [part for part in what.phases if part in longest]
    shown = []
    for part in shown_phases:
        shown += [strips(part), _kernels(part, MOST_KERNELS if most else None)]
        shown += [copied(part.copies)] if part.copies else []
    notes = [TIMES, LEVELS][: 1 + (what.period_us is not None)]
    if rest := len(what.phases) - len(shown_phases):
        notes.insert(0, say("{count:case|cases} left out: --kernel, --top N or --all shows them.", count=rest))
    notes = notes if shown else []
    return Document(view_of([*rank, *SPANS], spans), tuple(shown), warnings=what.warnings, notes=tuple(notes))


def strips(part: CasePhase) -> View:
    """When a case's kernels ran, and what the hardware did meanwhile, as characters."""
    length_us, place = part.end_us - part.start_us, ""
    what: str = "kernels of the program"
    if part.phase is not None or part.label != NO_CASE:
        what = say("{label} · {phase}", label=part.label, phase=part.phase or "outside the phases")
    if part.rank is not None:
        place = say(" · rank {rank}, GPU {device}", rank=part.rank, device=part.device)
    elif part.several_devices:
        place = say(" · GPU {device}", device=part.device)
    title = say(
        "{what}{place} · {length} from {start_ms:,.3f} ms · GPU busy {busy:.1%}{copying}{turns}",
        what=what, place=place, length=time_words(length_us), start_ms=part.start_us / 1e3, busy=part.busy,
        copying=say(COPIES_ALONE, share=part.copying) if part.copying >= LEAST_COPYING else "",
        turns=say(" · the longest of {turns} turns", turns=part.turns) if part.turns > 1 else "",
    )  # fmt: skip
    rows = [(name, strip(cells), "busy" if most is None else f"{most:.0f}") for name, cells, most in part.tracks]
    header, ticks = axis(length_us, len(part.tracks[0][1]))
    columns = (Column("track", "time"), Column("chart", header), Column("full", "full block"))
    return View(columns, (("", ticks, ""), *rows), title=title)


def _kernels(part: CasePhase, most: int | None) -> View:
    longest = sorted(part.spans, key=lambda span: -span["nsys_duration_us"] * span["executions"])
    shown_spans = [span for span in part.spans if span in longest[:most]]
    alike = len({(span["kernel_full"], span["grid"]) for span in shown_spans}) < len(shown_spans)
    blocks = ("block",) if alike else ()
    sampled = SAMPLED if any(span["metric_samples"] for span in shown_spans) else ()
    shown = (*KERNELS, *blocks, *CALLED, *sampled)
    notes: list[str] = []
    if rest := longest[len(shown_spans) :]:
        notes.append(say("{count:kernel|kernels} left out: --kernel, --top N or --all shows them.", count=len(rest)))
    if part.calls:
        notes.append(f"calls: {totals(part.calls)}.")
    memory = [span["memory_bytes"] for span in part.spans if span["memory_bytes"] is not None]
    if memory:
        notes.append(say("device memory: {bytes}.", bytes=byte_words(max(memory))))
    # nsys rounds up: a sample of 1 % may be of nothing.
    small = {key for key in SAMPLED if key.endswith("_pct")}
    rows = [
        {key: "≤1" if key in small and 0 < (span[key] or 0) <= samples.SMALLEST else span[key] for key in shown}
        | {"kernel": detailed_kernel(span["kernel"], span["kernel_full"] or "")}
        for span in shown_spans
    ]
    return view_of([next(column for column in SPANS if column.key == key) for key in shown], rows, notes=tuple(notes))


def copied(rows: Sequence[Row], *, places: bool = False, **texts: Any) -> View:
    """Copies by kind. rows: of COPIES, or with some of its columns; places: whether of several GPUs."""
    shown = [row | {"bytes": byte_words(row["bytes"])} for row in rows]
    columns = [each for each in COPIES if places or each not in (RANK, DEVICE)]
    columns = [each for each in columns if any(row.get(each.key) is not None for row in shown)]
    return view_of(columns, shown, notes=(COPYING,), **texts)


def totals(items: Sequence[Row]) -> str:
    """Calls, the longest by name."""
    words = []
    for item in items[:LONGEST_CALLS]:
        values = {"name": short_kernel(item["name"]), "count": item["count"], "time": time_words(item["total_us"])}
        words.append(say("{name} x {count}, {time} in all", **values))
    if rest := items[LONGEST_CALLS:]:
        count, total_us = sum(item["count"] for item in rest), sum(item["total_us"] for item in rest)
        words.append(say("{count} others, {time}", count=count, time=time_words(total_us)))
    return "; ".join(words)


def strip(cells: Sequence[float | None]) -> str:
    """Levels, 0 to 1, as blocks; what is there at all shows."""
    return "".join(
        "?" if level is None else _EIGHTHS[max(min(round(level * 8), 8), 1) - 1] if level else "·" for level in cells
    )


def axis(length_us: float, cells: int) -> tuple[str, str]:
    """The axis's labels, and the ticks below them, as long as the chart."""
    unit, per_us = ("ms", 1e-3) if length_us >= 1000 else ("µs", 1.0)
    length = max(length_us * per_us, 1e-9)
    least = length / max(cells // 12, 1)
    power = 10.0 ** math.floor(math.log10(least))
    span = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
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


def time_words(us: float) -> str:
    """A time in the unit that fits."""
    if us >= 1e6:
        return f"{us / 1e6:.3f} s"
    return f"{us / 1e3:.3f} ms" if us >= 1e3 else f"{us:.1f} µs" if us < 99.95 else f"{us:.0f} µs"
