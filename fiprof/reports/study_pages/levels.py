"""Cells whose rounds took one of two times and none between: what is seen, where, and what is not known of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fiprof.model.results import Cell, Times
from fiprof.reports.pages.page import Observation
from fiprof.reports.study_pages.data import Study, main_kernel, parameter_words
from fiprof.reports.study_pages.found import StudyFinding
from fiprof.reports.study_pages.ratio import number, spread
from fiprof.text import count, join_words

STEP = 0.05
"""The least gap between two rounds, as a part of the lower, that makes levels of what lies on its sides. fiprof's own
choice."""

INSIDE = 1 / 3
"""The most, as a part of that gap, that the rounds of one level may differ. fiprof's own choice."""

FEWEST_ROUNDS = 4

APART = 0.01
"""How far from both levels a median has to lie to be between them. fiprof's own choice."""

DRAM_BUSY_PCT = 85.0
"""Use of DRAM from which a cell is counted as at its limit here. fiprof's own choice."""


@dataclass(frozen=True)
class Levels:
    """Two levels of a cell's rounds."""

    upper: tuple[bool, ...]
    """For each round, in the order of time, whether it lies on the upper one."""
    low_us: float
    """Mean of the rounds of the lower one."""
    high_us: float

    @property
    def step(self) -> float:
        """Upper over lower."""
        return self.high_us / self.low_us


def levels(times: Times | None) -> Levels | None:
    """The two levels of some rounds; None where they are not so, or too few."""
    rounds = times.round_medians_us if times else []
    if len(rounds) < FEWEST_ROUNDS or min(rounds) <= 0:
        return None
    ordered = sorted(rounds)
    gap, at = max((ordered[i] / ordered[i - 1] - 1, i) for i in range(1, len(ordered)))
    low, high = ordered[:at], ordered[at:]
    if gap < STEP or max(low[-1] / low[0], high[-1] / high[0]) - 1 > INSIDE * gap:
        return None
    return Levels(tuple(us >= high[0] for us in rounds), fmean(low), fmean(high))


def between(cell: Cell) -> bool:
    """Whether the median of a cell with two levels lies on neither."""
    found = levels(cell.plain)
    if found is None or cell.plain is None:
        return False
    return all(abs(cell.plain.median_us / us - 1) > APART for us in (found.low_us, found.high_us))


def split(study: Study) -> list[tuple[Cell, Levels]]:
    """The measured cells with two levels."""
    return [(cell, found) for cell in study.measured if (found := levels(cell.plain)) is not None]


def sentence(study: Study) -> str:
    """How many there are, and what that does to their medians; empty where there are none."""
    found = split(study)
    if not found:
        return ""
    middle = sum(between(cell) for cell, _ in found)
    return (
        f"The rounds of {len(found)} of {count(len(study.measured), 'cell')} lie on two levels with nothing between "
        f"({_by_workload(study, [cell for cell, _ in found])}): their medians may be of either level"
        + (f", and {middle} lie between the two" if middle else "")
        + ". Their intervals hold what was seen."
    )


def finding(study: Study) -> list[StudyFinding]:
    """Two levels, of the workload that has most of such cells; nothing where there are none."""
    everything = split(study)
    if not everything:
        return []
    names = [cell.workload for cell, _ in everything]
    workload = max(dict.fromkeys(names), key=names.count)
    found = [item for item in everything if item[0].workload == workload]
    steps = [item.step for _, item in found]
    shown = max(found, key=lambda item: (min(sum(item[1].upper), sum(not up for up in item[1].upper)), item[1].step))
    others = [cell for cell, _ in everything if cell.workload != workload]
    middle = [cell for cell, _ in found if between(cell)]
    evidence = [
        _rounds_words(study, shown[0]),
        *_agreement([cell for cell, _ in found]),
        *_where(study, workload, found),
        *([f"elsewhere: {_by_workload(study, others)}"] if others else []),
        *(
            [f"the median lies between the levels, where no round was, in {len(middle)} of {len(found)}"]
            if middle
            else []
        ),
    ]
    made = Observation(
        "two-levels",
        f"In {len(found)} of {count(len(study.of(workload)), f'{workload} cell')} the rounds lie on two levels, the "
        f"upper {spread(steps)} times the lower, and nothing between.",
        tuple(evidence),
        f"Compare such cells by their intervals, or measure both sides in many rounds: a change of up to "
        f"{max(steps) - 1:.0%} between two measurements can be one of level. What makes the levels was not measured. "
        "Every round makes its buffers anew, so where in memory they come to lie is a suspect, and not proven.",
        f"Two levels: a gap of at least {STEP:.0%} between two neighbouring rounds, and on each side of it at most a "
        "third of that; with six rounds a single slow one looks the same.",
    )
    figure = f"the upper {spread(steps)} times the lower, in {count(len(found), f'{workload} cell')}"
    short = "compare such cells by their intervals, or over many rounds."
    cells = (shown[0], *(cell for cell, _ in found if cell is not shown[0]))[:3]
    return [StudyFinding("Two levels", made, cells, "kernels", figure=figure, short=short)]


def _by_workload(study: Study, cells: Sequence[Cell]) -> str:
    names = [cell.workload for cell in cells]
    return join_words([f"{name} {names.count(name)} of {len(study.of(name))}" for name in dict.fromkeys(names)])


def _rounds_words(study: Study, cell: Cell) -> str:
    assert cell.plain is not None
    words = f"{study.label(cell)}: {', '.join(map(number, cell.plain.round_medians_us))} µs, round by round"
    return words + (f"; nsys {', '.join(map(number, cell.nsys.round_medians_us))} µs" if cell.nsys else "")


def _agreement(cells: Sequence[Cell]) -> list[str]:
    """Whether the plain process and nsys's, with the same order of turns, see the same rounds on the upper level."""
    both = [(one, other) for cell in cells if (one := levels(cell.plain)) and (other := levels(cell.nsys))]
    both = [(one, other) for one, other in both if len(one.upper) == len(other.upper)]
    if not both:
        return []
    rounds = sum(len(one.upper) for one, _ in both)
    same = sum(a == b for one, other in both for a, b in zip(one.upper, other.upper, strict=True))
    chance = sum(len(one.upper) * _alike(fmean(one.upper), fmean(other.upper)) for one, other in both)
    return [
        f"without a profiler and under nsys, two processes with the same order of turns, {same} of {rounds} rounds are "
        f"on the same level ({count(len(both), 'cell')} with levels in both; {chance:.0f} would be by chance)"
    ]


def _alike(one: float, other: float) -> float:
    """The probability that two independent rounds are on the same level. one, other: parts on the upper."""
    return one * other + (1 - one) * (1 - other)


def _where(study: Study, workload: str, found: Sequence[tuple[Cell, Levels]]) -> list[str]:
    """Which cells have levels: by option, by use of DRAM, by size."""
    mine = {cell.case for cell, _ in found}

    def part(cells: Sequence[Cell]) -> str:
        return f"{sum(cell.case in mine for cell in cells)} of {len(cells)}"

    lines = []
    groups = study.groups(workload)
    if len(groups) > 1:
        words = [
            f"{parameter_words(dict(key), cells[0].params)} {part(cells)}"
            for key, cells in sorted(groups.items(), key=lambda item: -sum(cell.case in mine for cell in item[1]))
        ]
        lines.append(f"by option: {'; '.join(words)}")
    known = [
        (cell, kernel.dram_pct)
        for cell in study.of(workload)
        if (kernel := main_kernel(cell)) is not None and kernel.dram_pct is not None
    ]
    busy = [cell for cell, dram in known if dram >= DRAM_BUSY_PCT]
    if known and busy and len(busy) < len(known):
        rest = [cell for cell, dram in known if dram < DRAM_BUSY_PCT]
        lines.append(f"by ncu's use of DRAM: {part(busy)} from {DRAM_BUSY_PCT:.0f}% on, {part(rest)} below")
    ordered = sorted(found, key=lambda item: item[0].bytes_read + item[0].bytes_written)
    half = math.ceil(len(ordered) / 2)
    if half < len(ordered):
        small, large = (spread([item.step for _, item in part_]) for part_ in (ordered[:half], ordered[half:]))
        lines.append(f"the step by size: {small} in the half of them that reads less, {large} in the other")
    return lines
