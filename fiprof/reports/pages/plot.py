"""Charts in characters, at most WIDTH columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.reports.view import Column, View
from fiprof.reports.writers.terminal import table_lines
from fiprof.text import cell_width, escape_control, shorten

WIDTH = 100
NAME_CELLS = 30
STACK_CELLS = 60
ROWS = 18
_AXIS_CELLS = 9
_MARKS = "ox+*#@%&=sdvABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Bar:
    """A bar and its value in words."""

    name: str
    value: float
    words: str


@dataclass(frozen=True)
class Stack:
    """A bar of parts."""

    name: str
    parts: tuple[tuple[str, float], ...]
    """Name and share of 1."""


def bars(items: Sequence[Bar], *, whole: float | None = None) -> str:
    """A line a bar: name, value, blocks. whole: the value of a full bar; the largest one without it."""
    full = whole or max((item.value for item in items), default=0.0) or 1.0
    columns = (Column("name", "name"), Column("words", "value"), Column("bar", "bar", bar=True))
    rows = tuple((shorten(escape_control(item.name), NAME_CELLS + 8), item.words, item.value / full) for item in items)
    tables = table_lines(View(columns, rows), width=WIDTH)
    return "\n".join(line.rstrip() for line in (tables[0][1:] if tables and rows else ()))


def stacks(items: Sequence[Stack]) -> str:
    """A line a bar, each part as its own letter, and what the letters mean."""
    if not items:
        return ""
    letters = _letters([name for item in items for name, _ in item.parts])
    names = [shorten(escape_control(item.name), NAME_CELLS) for item in items]
    widest = max(map(cell_width, names))
    lines = []
    for name, item in zip(names, items, strict=True):
        cells, total = "", 0.0
        for part, share in item.parts:
            total += share
            cells += letters[part] * (round(min(total, 1.0) * STACK_CELLS) - len(cells))
        lines.append(f"{name}{' ' * (widest - cell_width(name))}  {cells}".rstrip())
    used = [name for name in letters if any(part == name and share for item in items for part, share in item.parts)]
    return "\n".join([*lines, "", *_flowed([f"{letters[name]} {name}" for name in used])])


def _letters(names: Sequence[str]) -> dict[str, str]:
    """Name -> a letter of its own, one of its own letters where that is free."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        free = [char for char in f"{name.replace('_', '')}{name.upper()}{_MARKS}" if char not in found.values()]
        found[name] = next((char for char in free if char.isprintable() and cell_width(char) == 1), "?")
    return found


def _flowed(words: Sequence[str]) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) + 3 > WIDTH:
            lines.append("")
        lines[-1] += f"{'   ' if lines[-1] else ''}{word}"
    return lines


def scatter(series: Sequence[tuple[str, Sequence[tuple[float, float]]]], *, x: str, y: str) -> str:
    """Points over both logarithms, each series with a mark of its own; empty without a point above 0.

    x, y: what stands at the axes.
    """
    points = [(px, py) for _, found in series for px, py in found if px > 0 and py > 0]
    if not points:
        return ""
    columns = WIDTH - _AXIS_CELLS
    (left, right), (bottom, top) = (_bounds([point[i] for point in points]) for i in (0, 1))
    cells = [[" "] * columns for _ in range(ROWS)]
    for mark, (_, found) in zip(_marks(len(series)), series, strict=True):
        for px, py in found:
            if px > 0 and py > 0:
                column = round((math.log10(px) - left) / (right - left) * (columns - 1))
                row = round((math.log10(py) - bottom) / (top - bottom) * (ROWS - 1))
                taken = cells[row][column]
                cells[row][column] = mark if taken in (" ", mark) else "▪"
    labels = {ROWS - 1: _tick(10**top), 0: _tick(10**bottom), (ROWS - 1) // 2: _tick(10 ** ((top + bottom) / 2))}
    lines = [
        f"{labels.get(row, ''):>{_AXIS_CELLS - 2}} {'┤' if row in labels else '│'}{''.join(cells[row])}".rstrip()
        for row in reversed(range(ROWS))
    ]
    ends = _tick(10**left), _tick(10**right)
    below = f"{ends[0]}{ends[1]:>{columns - len(ends[0])}}"
    legend = _flowed(
        [
            f"{mark} {shorten(escape_control(name), NAME_CELLS)}"
            for mark, (name, _) in zip(_marks(len(series)), series, strict=True)
        ]
    )
    shared = ["▪ several"] if any("▪" in row for row in cells) else []
    return "\n".join(
        [
            f"{escape_control(y)} over {escape_control(x)}, both logarithmic",
            *lines,
            f"{' ' * (_AXIS_CELLS - 1)}└{'─' * columns}"[:WIDTH],
            f"{' ' * _AXIS_CELLS}{below}",
            *legend,
            *shared,
        ]
    )


def _marks(count: int) -> str:
    return (_MARKS * (count // len(_MARKS) + 1))[:count]


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """Exponents of ten around the values."""
    low, high = math.log10(min(values)), math.log10(max(values))
    return (low, high) if high - low > 1e-9 else (low - 0.5, high + 0.5)


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
