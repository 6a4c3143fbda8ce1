"""A roofline in characters, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fiprof.analysis.roofline import LEAST_INTENSITY, LaunchRoofline, Level, Rooflines, compute_roofs, memory_roofs
from fiprof.model.wording import say
from fiprof.text import wrap

CHART_COLUMNS = 100
CHART_ROWS = 22
_AXIS = 8
"""Cells left of the plot."""
_MOST_DECADES = 8
_MARGIN = 0.2
"""Of a decade, around what is drawn."""
_SLOPE = ".-'"
"""A rising line inside one row: low, middle, high."""


def chart(rooflines: Rooflines, *, width: int = CHART_COLUMNS) -> str:
    """The roofline in both logarithms as characters, each launch as its number at its DRAM intensity.

    Launches without work stand at the left, by their bytes. Roofs are the highest of the launches. Empty where no
    launch has a point. width: columns, at most 100 are used.
    """
    plotted = [item for item in rooflines.launches if item.roof is not None and item.memories]
    if not plotted:
        return ""

    def point(item: LaunchRoofline, left: float) -> tuple[float, float] | None:
        """Over DRAM; over the busiest memory without work."""
        memory = item.busiest if item.work is None else item.memory(Level.DRAM)
        return None if memory is None else item.point(memory, left)

    memories = {level: high for level, (_, high) in memory_roofs(plotted).items()}
    works = {kind: high for kind, (_, high) in compute_roofs(plotted).items()}
    intensities = [at[0] for item in plotted if (at := point(item, 0.0)) and at[0]] or [LEAST_INTENSITY]
    above = [*works.values()] or [bandwidth * max(intensities) for bandwidth in memories.values()]
    intensities += [roof / bandwidth for roof in works.values() for bandwidth in memories.values()]
    x = _bounds(intensities, below=0.5)
    points = [(item, *at) for item in plotted if (at := point(item, 10 ** x[0]))]
    y = _bounds([*(ops for _, _, ops in points), *above], below=1.0)
    plot, top = _Plot(x, y, min(width, CHART_COLUMNS) - _AXIS), max(works.values(), default=math.inf)
    for bandwidth in memories.values():
        plot.line(lambda x, bandwidth=bandwidth: bandwidth * x, until=top)  # type: ignore[misc]
    for roof in works.values():
        plot.line(lambda _, roof=roof: roof, since=roof / max(memories.values()))  # type: ignore[misc]
    together = plot.points([(str(item.launch), x, y) for item, x, y in points])
    for level, bandwidth in memories.items():
        plot.label_slope(level, bandwidth, until=top)
    for kind, roof in works.items():
        plot.label_level(f" {kind} {roof / 1e12:.1f} ", roof)
    notes = []
    if any(item.work is None for item in plotted):
        notes.append(
            "At the left edge stand launches without floating-point work, as far below a memory's roof as their bytes "
            "are."
        )
    if together:
        shared = [say("{first} also {others}", first=one, others=rest) for one, rest in together.items()]
        notes.append(f"one cell: {', '.join(shared)}")
    title = "Roofline: achieved work over its intensity at DRAM, both logarithmic; each launch is its number"
    said = [line for note in notes for line in wrap(note, width)]
    return "\n".join([*wrap(title, width), *plot.text(), *said])


def _bounds(values: Sequence[float], *, below: float) -> tuple[float, float]:
    """Exponents of ten a little beyond the values: two decades at least, the highest ones where there are too many.

    below: how much of what lacks to two decades is added at the lower end.
    """
    low, high = math.log10(min(values)) - _MARGIN, math.log10(max(values)) + _MARGIN
    lacks = max(0.0, 2 - (high - low))
    low, high = low - lacks * below, high + lacks * (1 - below)
    return max(low, high - _MOST_DECADES), high


class _Plot:
    """A plane of characters with logarithmic axes. x, y: exponents of ten at their ends."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], columns: int) -> None:
        self._x, self._y, self._columns = x, y, columns
        self._cells = [[" "] * columns for _ in range(CHART_ROWS)]
        self._fixed: set[tuple[int, int]] = set()

    def _column(self, x: float) -> int:
        return int((math.log10(x) - self._x[0]) / (self._x[1] - self._x[0]) * self._columns + 1e-9)

    def _height(self, y: float) -> float:
        """Rows above the x axis."""
        return (math.log10(y) - self._y[0]) / (self._y[1] - self._y[0]) * CHART_ROWS + 1e-9

    def line(self, value: Callable[[float], float], *, since: float = 0.0, until: float = math.inf) -> None:
        """A roof: operations a second for an intensity."""
        for column in range(self._columns):
            x = 10 ** (self._x[0] + (column + 0.5) / self._columns * (self._x[1] - self._x[0]))
            y = value(x)
            if x >= since and y <= until and 0 <= (row := int(height := self._height(y))) < CHART_ROWS:
                slope = value(x * 2) > y
                self._cells[row][column] = _SLOPE[min(int((height - row) * 3), 2)] if slope else "─"

    def points(self, named: Sequence[tuple[str, float, float]]) -> dict[str, list[int]]:
        """Launches as their numbers; the number that is drawn -> those that lie under it."""
        drawn: dict[tuple[int, int], str] = {}
        together: dict[str, list[int]] = {}
        for name, x, y in named:
            row = min(max(int(self._height(y)), 0), CHART_ROWS - 1)
            column = min(max(self._column(x), 0), self._columns - len(name))
            under = next((drawn[row, c] for c in range(column - 1, column + len(name) + 1) if (row, c) in drawn), None)
            if under is not None:
                together.setdefault(under, []).append(int(name))
                continue
            for offset, char in enumerate(name):
                drawn[row, column + offset] = name
                self._cells[row][column + offset] = char
        self._fixed |= set(drawn)
        return together

    def label_slope(self, text: str, bandwidth: float, *, until: float) -> None:
        """The name of a memory's roof right below its line, at the lowest place that is free."""
        decades = (self._y[1] - self._y[0]) / (self._x[1] - self._x[0])
        gap = int(self._columns / CHART_ROWS * decades / 2) + 2
        for row in range(CHART_ROWS):
            y = 10 ** (self._y[0] + (row + 0.5) / CHART_ROWS * (self._y[1] - self._y[0]))
            column = self._column(y / bandwidth) + gap
            if y <= until and column >= gap and self._write(text, row, column, over=" "):
                return

    def label_level(self, text: str, roof: float) -> None:
        """The name of a compute roof in its line, at the right end."""
        row = int(self._height(roof))
        for column in range(self._columns - len(text), self._columns // 2, -1):
            if self._write(text, row, column, over=" ─"):
                return

    def _write(self, text: str, row: int, column: int, *, over: str) -> bool:
        """Whether the text found its place, among characters that it may cover."""
        cells = [(row, column + offset) for offset in range(len(text))]
        if column < 0 or column + len(text) > self._columns or not 0 <= row < CHART_ROWS:
            return False
        if any(cell in self._fixed or self._cells[row][cell[1]] not in over for cell in cells):
            return False
        self._cells[row][column : column + len(text)] = text
        self._fixed |= set(cells)
        return True

    def text(self) -> list[str]:
        """The plane with its axes, the highest row first."""

        def whole(bounds: tuple[float, float]) -> range:
            return range(math.ceil(bounds[0]), math.ceil(bounds[1]))

        def power(exponent: int) -> str:
            return f"{10.0**exponent:,.{max(-exponent, 0)}f}"

        ticks = {int(self._height(10.0**exponent)): power(exponent - 12) for exponent in whole(self._y)}
        lines = [f"{ticks.get(row, ''):>{_AXIS - 2}} {'┤' if row in ticks else '│'}" for row in range(CHART_ROWS)]
        rows = [line + "".join(cells).rstrip() for line, cells in zip(lines, self._cells, strict=True)]
        axis, below = ["─"] * self._columns, [" "] * self._columns
        for exponent in whole(self._x):
            column, word = self._column(10.0**exponent), power(exponent)
            axis[column] = "┬"
            if column + len(word) <= self._columns:
                below[column : column + len(word)] = word
        return [
            f"{'TFLOP/s':>{_AXIS - 1}}",
            *(row.rstrip() for row in reversed(rows)),
            " " * (_AXIS - 1) + "└" + "".join(axis),
            (" " * _AXIS + "".join(below)).rstrip(),
            f"{'FLOP/byte of DRAM':>{_AXIS + self._columns}}",
        ]
