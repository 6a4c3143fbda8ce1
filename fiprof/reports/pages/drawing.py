"""A drawing in characters as SVG: lines from box-drawing characters, shades as areas, everything else as text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from xml.sax.saxutils import escape

CELL, LINE = 8.4, 18.0
"""Width and height of a character, px."""
FONT = 14
LEAST_PX = 340
"""Of a drawing on a narrow screen: about what a phone has, so that none of it is out of sight."""
SHADES = {"░": 0.14, "▒": 0.34, "▓": 0.6}
"""Character -> opacity."""
ENDS = {
    "─": "lr", "│": "ud", "┌": "rd", "┐": "ld", "└": "ru", "┘": "lu", "├": "rud", "┤": "lud", "┬": "lrd", "┴": "lru",
    "┼": "lrud", "►": "l", "◄": "r", "▼": "u", "▲": "d",
}  # fmt: skip
"""Character -> the sides of its cell that its lines reach: left, right, up, down."""
HEADS = {"►": (1, 0), "◄": (-1, 0), "▼": (0, 1), "▲": (0, -1)}


def svg(text: str) -> str:
    """The drawing in the colour of the text around it, at most as wide as its longest line."""
    lines = text.rstrip("\n").split("\n")
    width, height = max(map(len, lines)) * CELL, len(lines) * LINE
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" aria-hidden="true" style="font:{FONT}px ui-monospace,monospace;'
        f'fill:currentColor;width:100%;max-width:{width:.0f}px;min-width:{min(width, LEAST_PX):.0f}px">'
        f"{''.join(_shades(lines))}"
        f'<path d="{"".join(_strokes(lines))}" style="fill:none;stroke:currentColor;stroke-opacity:.75"/>'
        f"{''.join(_heads(lines))}{''.join(_texts(lines))}</svg>"
    )


def _cells(lines: list[str], wanted: dict[str, str] | dict[str, tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
    for row, line in enumerate(lines):
        for column, char in enumerate(line):
            if char in wanted:
                yield column, row, char


def _strokes(lines: list[str]) -> Iterator[str]:
    """Horizontal and vertical lines, each as long as it goes on."""
    halves: dict[tuple[str, int], set[int]] = defaultdict(set)  # of a cell: 2 * index is its first half
    for column, row, char in _cells(lines, ENDS):
        for end in ENDS[char]:
            along, across = (column, ("h", row)) if end in "lr" else (row, ("v", column))
            halves[across].add(2 * along + (end in "rd"))
    for (kind, at), found in halves.items():
        for first in sorted(half for half in found if half - 1 not in found):
            last = next(half for half in range(first, max(found) + 2) if half not in found)
            if kind == "h":
                yield f"M{first * CELL / 2:.1f} {(at + 0.5) * LINE:.1f}H{last * CELL / 2:.1f}"
            else:
                yield f"M{(at + 0.5) * CELL:.1f} {first * LINE / 2:.1f}V{last * LINE / 2:.1f}"


def _heads(lines: list[str]) -> Iterator[str]:
    for column, row, char in _cells(lines, HEADS):
        (dx, dy), x, y = HEADS[char], (column + 0.5) * CELL, (row + 0.5) * LINE
        tip = (x + 5 * dx, y + 5 * dy)
        corners = [(x - 4 * dx + 4 * side * dy, y - 4 * dy + 4 * side * dx) for side in (1, -1)]
        yield f'<path d="M{tip[0]:.1f} {tip[1]:.1f}' + "".join(f"L{a:.1f} {b:.1f}" for a, b in corners) + 'Z"/>'


def _shades(lines: list[str]) -> Iterator[str]:
    for row, line in enumerate(lines):
        for run in re.finditer("|".join(f"{shade}+" for shade in SHADES), line):
            x, y, width = run.start() * CELL, row * LINE, len(run[0]) * CELL
            size = f'width="{width:.1f}" height="{LINE}" opacity="{SHADES[run[0][0]]}"'
            yield f'<rect x="{x:.1f}" y="{y:.1f}" {size}/>'


def _texts(lines: list[str]) -> Iterator[str]:
    drawn = re.escape("".join((*ENDS, *SHADES)))
    for row, line in enumerate(lines):
        for run in re.finditer(rf"[^\s{drawn}](?:[^{drawn}]*?(?=\s{{2}}|\s*$|\s*[{drawn}]))", line):
            x, y, length = run.start() * CELL, row * LINE + 13, len(run[0]) * CELL
            yield f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}">{escape(run[0])}</text>'
