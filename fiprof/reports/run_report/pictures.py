"""The pictures of a program's story: how long each step took, how that grows with the KV cache, and device memory."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from fiprof.analysis import samples
from fiprof.analysis.frames import Row
from fiprof.analysis.requests import StepKind
from fiprof.analysis.story import SAYS, SHOWN, Story
from fiprof.analysis.trace import folded
from fiprof.model.finding import Finding, say, words_of
from fiprof.model.run import Run
from fiprof.model.selection import by_key
from fiprof.reports import colours
from fiprof.text import byte_words, escape_control, shorten

MOST_POINTS = 600  # of a picture; of more steps the longest of every few are drawn
TOO_LONG = 4.0  # times the usual step of the phase with most steps, from which one is drawn at the upper edge
LONGEST_NAME = 90  # cells of a step's name
Picture = dict[str, Any]
"""``title``, what ``x`` and ``y`` are; ``groups`` with name, colour, flat ``xy`` and a word of each point (a line
without); ``lines`` and ``marks`` with what they say; ``top`` of y; ``note``."""


def pictures(what: Story, run: Run) -> list[Picture]:
    return [*_steps(what), *_kv_law(what), *_memory(what, run)]


def _steps(what: Story) -> Iterator[Picture]:
    """Step time over the steps in order of time, coloured by phase and what they are for, with how they grow."""
    names = {row["what"] for row in what.rows("happened")}
    placed = enumerate(sorted(what.rows("steps"), key=lambda row: row["at_ms"]))
    phases = by_key((row["what"] if row["what"] in names else folded(row["what"]), (at, row)) for at, row in placed)
    took = {name: sum(row["length_ms"] for _, row in rows) for name, rows in phases.items()}
    phases = {name: rows for name, rows in phases.items() if took[name] >= SHOWN * sum(took.values())}
    if not phases:
        return
    usual = float(np.median([row["length_ms"] for _, row in max(phases.values(), key=len)]))
    top = min(TOO_LONG * usual, max(row["length_ms"] for row in what.rows("steps")))
    every = max(-(-len(what.rows("steps")) // MOST_POINTS), 1)
    parts: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    for name, rows in phases.items():
        several = len({row["kind"] for _, row in rows}) > 1
        for place, row in rows:
            parts[f"{name} ({words_of(row['kind'])})" if several else name].append((place, row))
    palette = colours.series(sorted(parts, key=lambda name: -len(parts[name])))
    found = (*what.found["surprises"], *what.found["first_steps"])
    causes = {each.values["at_ms"]: each for each in found if {"at_ms", "cause"} <= each.values.keys()}
    groups = []
    for name, rows in parts.items():
        longest = [
            max(rows[at : at + every], key=lambda each: each[1]["length_ms"]) for at in range(0, len(rows), every)
        ]
        groups.append({
            "name": escape_control(name),
            "colour": palette[name],
            "xy": [value for place, row in longest for value in (place, round(row["length_ms"], 4))],
            "words": [_tip(row, causes.get(row["at_ms"])) for _, row in longest],
        })  # fmt: skip
    lines = [_line(law, [at for at, _ in phases[name]]) for law in what.found["laws"] if (name := law.values["what"])]
    note = "A dot a step, in order of time." if every == 1 else f"A dot the longest of {every} steps of a phase."
    if any(row["length_ms"] > top for row in what.rows("steps")):
        note += say(" Longer than {top:,.3g} ms: at the upper edge.", top=top)
    titles = {"title": "How long each step took", "x": "steps", "y": "ms"}
    yield {**titles, "top": top, "groups": groups, "lines": lines, "marks": [], "note": note}


def _tip(row: Row, slow: Finding | None) -> str:
    """slow: why it took longer than usual."""
    name = shorten(escape_control(row["what"]), LONGEST_NAME)
    cause = say("; {cause}", cause=words_of(slow.values["cause"])) if slow else ""
    return say("{what}: {ms:,.3f} ms{cause}", what=name, ms=row["length_ms"], cause=escape_control(cause))


def _line(law: Finding, places: list[int]) -> list[float]:
    first, slope = law.values["first_ms"], law.values["slope_us"] / 1e3
    return [places[0], first, places[-1], first + slope * (len(places) - 1)]


def _kv_law(what: Story) -> Iterator[Picture]:
    """The GPU's time of the steps that only decode over the KV cache, where it follows a law."""
    law = next((each.values for each in what.found["served"] if each.kind == "kv_law"), None)
    rows = [row for row in what.rows("steps") if row["kind"] is StepKind.DECODE and row["kv_tokens"] and row["busy_ms"]]
    if law is None:
        return
    rows = rows[:: max(-(-len(rows) // MOST_POINTS), 1)]
    batch = float(np.median([row.get(f"{SAYS}decode") or 1 for row in rows]))
    ends = (law["from_kv"], law["to_kv"])
    base = law["base_us"] + law.get("batch_us", 0.0) * batch
    line = [value for kv in ends for value in (kv, (base + law["kv_ns"] * kv / 1e3) / 1e3)]
    steps = {
        "name": "steps that only decode",
        "colour": colours.COLOURS[0],
        "xy": [value for row in rows for value in (row["kv_tokens"], round(row["busy_ms"], 4))],
        "words": [_tip(row, None) for row in rows],
    }
    titles = {"title": "GPU time of a decode step", "x": "tokens in the KV cache", "y": "ms"}
    words = "Line: {ns:,.1f} ns a token" + (", for {batch:.0f} requests." if "batch_us" in law else ".")
    note = say(words, ns=law["kv_ns"], batch=batch)
    yield {**titles, "top": None, "groups": [steps], "lines": [line], "marks": [], "note": note}


def _memory(what: Story, run: Run) -> Iterator[Picture]:
    """Device memory that CUDA gave, with its peak, and its largest allocations by range."""
    held_by = [held for (device, _), held in samples.device_memory(run).items() if device == what.device]
    if sum(len(times) for times, _ in held_by) < 2:
        return
    # What all processes hold together.
    times = np.concatenate([times for times, _ in held_by])
    order = np.argsort(times, kind="stable")
    times, totals = times[order], np.cumsum(np.concatenate([np.diff(each, prepend=0) for _, each in held_by])[order])
    peak = int(np.argmax(totals))
    # Of the events of a bin the last, and of all the largest.
    bins = ((times - times[0]) * MOST_POINTS // max(int(times[-1] - times[0]), 1)).astype(np.int64)
    kept = np.union1d(np.flatnonzero(np.append(np.diff(bins) > 0, True)), [peak])
    xy = [value for at in kept.tolist() for value in (round(int(times[at]) / 1e6, 3), round(int(totals[at]) / 1e9, 4))]
    peak_text = say("peak {gb:,.3f} GB", gb=int(totals[peak]) / 1e9)
    titles = {"title": "Device memory", "x": "ms since the trace began", "y": "GB"}
    held = {"name": "as CUDA gave it", "colour": colours.COLOURS[0], "xy": xy}
    rows, words = what.rows("memory"), []
    for row in rows:
        where = shorten(escape_control(row["range"] or "no range"), LONGEST_NAME)
        where += f", {row['call']}" if row["call"] else ""
        words.append(say("{size} in {where}", size=byte_words(row["bytes"]), where=where))
    xy = [value for row in rows for value in (row["at_ms"], row["total_bytes"] / 1e9)]
    given = {"name": "the largest allocations", "colour": colours.COLOURS[1], "xy": xy, "words": words}
    marks = [[int(times[peak]) / 1e6, int(totals[peak]) / 1e9, peak_text]]
    yield {**titles, "top": None, "groups": [held, given], "lines": [], "marks": marks, "note": ""}
