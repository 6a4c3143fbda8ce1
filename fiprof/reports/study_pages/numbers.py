"""How a study's numbers are written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from fiprof.analysis.ratio import Direction, Ratio
from fiprof.model.results import CaseResult, Times
from fiprof.text import join_words

METHOD = (
    "A ratio's interval combines those of the two medians on a logarithmic scale (Zou and Donner 2008): "
    "ln low = ln r - sqrt(ln(a / a_low)^2 + ln(b_high / b)^2), and likewise above. It takes the two as independent and "
    "covers what differs between rounds of one process on this board: no other board and no other day. A difference "
    "counts as seen where the interval excludes 1x."
)

NEAR_ONE = 0.1
"""Ratios so close to 1 are written with three decimals."""


def ratio_words(found: Ratio) -> str:
    """``1.42x (1.40 to 1.44)``."""
    # Near 1 the side of it matters: 1.003 is not 1.00.
    word = (lambda value: f"{value:.3f}") if abs(found.value - 1) < NEAR_ONE else number
    if found.confidence is None or not found.sure:
        return f"{word(found.value)}x" + ("" if found.sure else " (too few rounds for an interval)")
    return f"{word(found.value)}x ({word(found.low)} to {word(found.high)})"


def faster_slower(ratios: Iterable[Ratio], faster: Direction = Direction.LESS) -> str:
    """``faster in 3 and with no difference seen in 1``. faster: the direction of a ratio that says so."""
    counts = Counter(found.direction for found in ratios)
    slower = Direction.MORE if faster is Direction.LESS else Direction.LESS
    words = {faster: "faster", slower: "slower", Direction.SAME: "with no difference seen"}
    return join_words([f"{word} in {counts[direction]}" for direction, word in words.items() if counts[direction]])


def number(value: float) -> str:
    """Three figures, e.g. ``1.42``, ``14.2``, ``142``, ``1,420``."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    value = float(f"{value:.2e}")  # 0.9998 is 1.00
    decimals = min(max(2 - math.floor(math.log10(abs(value))), 0), 4)
    return f"{value:,.{decimals}f}"


def duration(us: float) -> str:
    """``12.3 µs``, ``1.23 ms``, ``12.3 s``."""
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if us >= scale:
            return f"{number(us / scale)} {unit}"
    return f"{number(us)} µs"


def times(measured: Times) -> str:
    """``92.1 µs (91.8 to 92.6)``."""
    scale, unit = (1e6, "s") if measured.median_us >= 1e6 else (1e3, "ms") if measured.median_us >= 1e3 else (1, "µs")
    values = [number(us / scale) for us in (measured.median_us, measured.low_us, measured.high_us)]
    return f"{values[0]} {unit} ({values[1]} to {values[2]})"


def plain_time(case: CaseResult) -> str:
    """The same of a case without a profiler."""
    return times(case.plain) if case.plain else "–"


def half_width(case: CaseResult) -> float:
    """Half of the interval of the plain median, as a part of it; 0 where it has no time."""
    plain = case.plain
    return (plain.high_us - plain.low_us) / 2 / plain.median_us if plain and plain.median_us else 0.0


def percent(share: float | None) -> float | None:
    """100 for 1."""
    return None if share is None else 100 * share


def bytes_(count: float) -> str:
    """``1.08 GB``, decimal units."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{number(count / scale)} {unit}"
    return f"{count:.0f} bytes"


def spread(values: Sequence[float], spec: str = "") -> str:
    """``1.02 to 3.91, median 3.4``; one value alone where there is one.

    spec: of format(); without one, three figures.
    """
    word = (lambda value: format(value, spec)) if spec else number
    low, high = word(min(values)), word(max(values))
    return low if low == high else f"{low} to {high}, median {word(median(values))}"
