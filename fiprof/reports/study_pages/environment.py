"""``environment``: the machine, the versions, how it was measured, and what that means for the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from fiprof.model.results import Cell
from fiprof.reports.pages.page import Bullets, Caution, Page, Section, Table, Text
from fiprof.reports.study_pages import levels
from fiprof.reports.study_pages.data import Study
from fiprof.reports.study_pages.ratio import METHOD, bytes_, duration, number, spread
from fiprof.reports.study_pages.tables import half_width
from fiprof.reports.view import Column, View
from fiprof.text import count

DRIFT = 0.02
"""Spread of a cell's rounds, as a part of its time, from which it is named. fiprof's own choice."""

CLOCK_APART = 0.02
"""Difference of the clock before and after, as a part, that gets a caution. fiprof's own choice."""


def value(study: Study, *path: str) -> Any:
    """A value of the environment by its path of keys; None where it is not there."""
    found: Any = study.info.environment
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def facts(study: Study) -> tuple[tuple[str, str], ...]:
    """What stands below the title of every document."""
    info = study.info
    state = value(study, "gpu_state", "before") or {}
    driver = state.get("driver") or value(study, "driver")
    wanted = (
        ("GPU", value(study, "gpu", "name")),
        ("FlashInfer", value(study, "packages", "flashinfer-python")),
        ("CUDA, driver", " · ".join(str(word) for word in (value(study, "gpu", "cuda"), driver) if word)),
        ("Measured", f"{info.started.replace('T', ' ')}, {duration(info.duration_s * 1e6)} of measuring"),
        ("Cells", f"{info.cells:,} measured, {info.skipped:,} skipped; {info.status}"),
    )
    return tuple((name, str(word)) for name, word in wanted if word)


def page(study: Study) -> Page:
    """Where and how the study was made."""
    return Page(
        f"{study.info.title or study.info.study}: environment",
        (
            Section("machine", "Machine and versions", (Table(_versions(study)),)),
            Section("method", "How it was measured", (Bullets(tuple(Text((text,)) for text in _method(study))),)),
            Section("clocks", "Clocks", _clocks(study)),
            Section("sure", "How sure the times are", _sure(study)),
            Section("means", "What that means for the reader", (Bullets(tuple(Text((t,)) for t in _means(study))),)),
        ),
        facts=facts(study),
    )


def _versions(study: Study) -> View:
    rows: list[tuple[str, str]] = []
    for group, name in (("gpu", "GPU"), ("packages", "package"), ("tools", "tool"), ("host", "host")):
        found = value(study, group)
        if isinstance(found, dict):
            rows += [
                (f"{name}: {_named(key)}", _shown(key, item))
                for key, item in found.items()
                if _worth_showing(key, item)
            ]
    rows.append(("fiprof", study.info.fiprof or "–"))
    return View((Column("what", "what"), Column("value", "value")), tuple(rows))


def _named(key: str) -> str:
    """A fact's name in words; a package's as it is."""
    return key.removesuffix("_bytes").replace("_", " ")


def _worth_showing(key: str, item: object) -> bool:
    """Neither what is unknown nor the interpreter's path."""
    return item is not None and not key.endswith("executable") and not (key == "python" and "/" in str(item))


def _shown(key: str, item: object) -> str:
    if key.endswith("_bytes") and isinstance(item, int | float):
        return bytes_(item)
    return f"{item:,}" if isinstance(item, int) and not isinstance(item, bool) else str(item)


def _method(study: Study) -> list[str]:
    settings = study.info.settings
    counted = [cell.plain for cell in study.measured if cell.plain is not None]
    found = []
    if counted:
        rounds = sorted({times.rounds for times in counted})
        each = sorted({times.count for times in counted})
        turns = (
            f"{_range(rounds)} rounds; between two rounds of a cell every other cell had its turn, so that a drift of "
            "the clocks does not look like a trend"
            if rounds[-1] > 1
            else "one round, so that a drift of the clocks between cells would look like a difference"
        )
        found.append(
            f"plain: each cell between CUDA events without a profiler, {_range(each)} measurements in {turns}. The "
            f"interval of the median has a confidence of {study.confidence}."
        )
    under = [
        ("nsys", sum(cell.nsys is not None for cell in study.measured), "kernel times of the same iterations, traced"),
        ("ncu", sum(bool(cell.kernels) for cell in study.measured), "counters of one launch of each kernel, replayed"),
    ]
    found += [f"{tool}: {what}; {n} of {count(len(study.measured), 'cell')}." for tool, n, what in under]
    checked = [cell.relative_error for cell in study.measured if cell.relative_error is not None]
    if checked:
        found.append(
            f"Results: {count(len(checked), 'cell')} compared with a float32 reference, the largest relative error "
            f"{max(checked):.1e}."
        )
    if settings:
        found.append(
            "Settings: "
            + ", ".join(f"{name} {_setting(item)}" for name, item in settings.items() if _worth_showing(name, item))
            + "."
        )
    return found


def _setting(item: object) -> str:
    if isinstance(item, list | tuple):
        return " and ".join(map(str, item))
    return ("yes" if item else "no") if isinstance(item, bool) else str(item)


def _range(values: Sequence[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


def _clocks(study: Study) -> tuple[Text | Table | Caution, ...]:
    states = {when: value(study, "gpu_state", when) for when in ("before", "after")}
    rows = tuple(
        (name.replace("_", " "), *(_state(states[when], name) for when in states))
        for name in ("sm_clock_mhz", "max_sm_clock_mhz", "memory_clock_mhz", "temperature_c")
        if any(_state(state, name) is not None for state in states.values())
    )
    if not rows:
        return (Text(("The driver's clocks were not recorded.",)),)
    blocks: list[Text | Table | Caution] = [
        Table(View((Column("what", "what"), Column("before", "before"), Column("after", "after")), rows))
    ]
    control = study.info.settings.get("clock_control")
    if control is not None:
        blocks.append(Text((f"ncu's clock control: {control}; the plain times ran at whatever the GPU chose.",)))
    others = [state.get("other_processes") for state in states.values() if isinstance(state, dict)]
    if any(others):
        blocks.append(Caution("Something else was on the GPU before or after: times may have been disturbed."))
    return tuple(blocks)


def _state(state: object, name: str) -> float | int | None:
    found = state.get(name) if isinstance(state, dict) else None
    return found if isinstance(found, int | float) else None


def _sure(study: Study) -> tuple[Bullets, ...]:
    return (Bullets(tuple(Text((line,)) for line in steadiness(study))),)


def steadiness(study: Study) -> list[str]:
    """How wide the intervals are, and how far a cell's rounds lie apart."""
    widths = [half_width(cell) for cell in study.measured]
    if not widths:
        return ["No cell has a time."]
    widest = max(study.measured, key=half_width)
    drifts = [(cell, drift(cell)) for cell in study.measured if cell.plain and len(cell.plain.round_medians_us) > 1]
    lines = [
        f"Half of the interval of a cell's median is {spread(widths, '.1%')} of it; the widest is at "
        f"{study.label(widest)}."
    ]
    if drifts:
        moved = [item for item in drifts if item[1] >= DRIFT]
        worst = max(drifts, key=lambda item: item[1])
        lines.append(
            f"The slowest and the fastest round of a cell are {spread([part for _, part in drifts], '.1%')} of its "
            f"time apart; {DRIFT:.0%} or more in {len(moved)} of {len(drifts)} cells, most at {study.label(worst[0])} "
            f"({worst[1]:.1%})."
        )
        lines += [words for words in [levels.sentence(study)] if words]
        lines.append(_trend(drifts))
    return lines


def drift(cell: Cell) -> float:
    """How far a cell's rounds are apart, as a part of its time."""
    assert cell.plain is not None
    return (max(cell.plain.round_medians_us) - min(cell.plain.round_medians_us)) / cell.plain.median_us


def _trend(drifts: Sequence[tuple[Cell, float]]) -> str:
    """Whether the last round was slower or faster than the first in most cells."""
    moves = [
        cell.plain.round_medians_us[-1] / cell.plain.round_medians_us[0] - 1
        for cell, _ in drifts
        if cell.plain is not None and cell.plain.round_medians_us[0] > 0
    ]
    if not moves:
        return "Whether the GPU drifted cannot be told."
    slower = sum(move > 0 for move in moves)
    return (
        f"From the first round to the last the median cell moved by {median(moves):+.2%}; {slower} of {len(moves)} "
        "became slower (half of them would by chance)."
    )


def _means(study: Study) -> list[str]:
    found = [METHOD]
    pairs = [(cell, cell.plain, cell.nsys) for cell in study.measured if cell.nsys]
    gaps = [(plain.median_us - nsys.median_us, cell) for cell, plain, nsys in pairs if plain and nsys]
    parts = [1 - nsys.median_us / plain.median_us for _, plain, nsys in pairs if plain and nsys]
    if gaps:
        (least, short), (most, long) = (choose(gaps, key=lambda item: item[0]) for choose in (min, max))
        found.append(
            f"Plain time less kernel time under nsys is in the median {number(median([us for us, _ in gaps]))} µs, "
            f"{median(parts):.1%} of the plain time: events and the gaps between kernels are in the plain time, which "
            f"matters for cells of a few microseconds. It is {number(least)} µs at {study.label(short)} and "
            f"{number(most)} µs at {study.label(long)}: the two are different measurements, and differ as rounds do."
        )
    ratios = [cell.ncu_us / cell.nsys.median_us for cell in study.measured if cell.nsys and cell.ncu_us]
    if ratios:
        found.append(
            f"ncu's time is {spread(ratios)} times nsys's: it flushes the caches (cache control "
            f"{study.info.settings.get('cache_control', 'not recorded')}) and replays. No sentence here compares ncu's "
            "time with a plain one; shares of a roof and stalls are ncu's, speed-ups are plain."
        )
    if l2 := study.l2_bytes:
        warm = [cell for cell in study.measured if 0 < cell.bytes_read + cell.bytes_written <= l2]
        above = [cell for cell in study.measured if (cell.gb_per_s_roof_share or 0) > 1]
        found.append(
            f"Iterations follow each other on the same data: in {count(len(warm), 'cell')} all of it fits in the L2 "
            f"cache of {bytes_(l2)}, so their plain times can be those of a warm cache; {count(len(above), 'cell')} "
            f"{'moves its' if len(above) == 1 else 'move their'} least bytes faster than DRAM's peak. A server that "
            "does other work in between sees colder caches."
        )
    return found
