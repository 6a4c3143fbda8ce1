"""Charts of any measurements: lines over a size, both axes logarithmic, and a heat map of two parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fiprof.reports.pages import colours, plot, vega
from fiprof.reports.pages.page import Chart
from fiprof.reports.view import Column, Value, View
from fiprof.reports.writers.terminal import table_lines

if TYPE_CHECKING:
    from altair import LayerChart

HEIGHT = 400
LABEL_PX = 14
"""Between the middles of two lines' names."""
MOST_TICKS = 12
"""Sizes that have a tick each; more have those of the logarithm."""
NAMES_PX, KEY_PX = 290, 300
"""Most of the width that the lines' names have at the right, and, where it is narrow, in a key below."""
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]
CELL_PX = 44
"""Height of a cell of a heat map."""
LOW, HIGH = "#dbe9f6", "#08519c"
"""Colours of a heat map's shares 0 and 1."""
Names = tuple[str, str]
"""Name and unit of an axis; a count has no unit."""


@dataclass(frozen=True)
class Point:
    """A measurement of a series."""

    x: float
    y: float
    low: float | None = None
    """Lower end of its confidence interval, in the unit of y."""
    high: float | None = None
    name: str = ""
    """E.g. the case."""
    details: tuple[tuple[str, str], ...] = ()
    """Names and values with units, for the mouse."""


class Drawn(StrEnum):
    """How a series is drawn."""

    BOTH = "both"
    POINTS = "points"
    LINE = "line"


@dataclass(frozen=True)
class Series:
    """Measurements that belong together."""

    name: str
    points: tuple[Point, ...]
    """In the order of x."""
    colour: str = ""
    """One of ``colours``; by its place among the series without."""
    drawn: Drawn = Drawn.BOTH


def scaling_chart(
    series: Sequence[Series], *, x: Names, y: Names, roofs: Sequence[tuple[str, float]] = ()
) -> LayerChart:
    """Lines or points over both logarithms; what is not above 0 is left out.

    roofs: names and values in the unit of y, drawn across. Raises ImportError without altair.
    """
    import altair as alt

    series = [replace(item, points=tuple(each for each in item.points if each.x > 0 and each.y > 0)) for item in series]
    series = [item for item in series if item.points]
    each = [point for item in series for point in item.points]
    xs = [point.x for point in each] or [1.0]
    across = [(name, value) for name, value in roofs if value > 0]
    ys = [end for point in each for end in (point.y, point.low, point.high) if end and end > 0]
    ys = [*ys, *(value for _, value in across)] or [1.0]
    left, right, bottom, top = min(xs) / 1.15, max(xs) * 1.15, min(ys) / 1.4, max(ys) * 1.4
    order = colours.series([item.name for item in series])
    palette = {vega.text(item.name): item.colour or order[item.name] for item in series}
    points = [
        {
            "x": point.x, "y": point.y, "low": point.low or point.y, "high": point.high or point.y,
            "key": vega.text(item.name),
            "drawn": str(item.drawn), "shape": SHAPES[number % len(SHAPES)], "tip": _scaled(item, point, x, y),
        }
        for number, item in enumerate(series) for point in item.points
    ]  # fmt: skip
    ends = [(item.name, item.points[-1].x, item.points[-1].y) for item in series]
    ends += [(f"{name} {value:,.4g} {y[1]}", right, value) for name, value in across]
    labels = _spread(ends, bottom, top)
    keys = {label["name"]: f"{number} {label['name']}" for number, label in enumerate(labels, 1)}
    longest = max((len(label["name"]) for label in labels), default=0) * vega.CHAR_PX + 20
    names_px = f"({vega.NARROW} ? 24 : min({longest:.0f}, {NAMES_PX}, width * 0.4))"
    ticks = sorted(set(xs)) if len(set(xs)) <= MOST_TICKS and all(map(float.is_integer, map(float, xs))) else []
    room = [0, {"expr": f"width - {names_px}"}]
    right_of = alt.X("x:Q", **vega.log_axis(_named(x), left, right, ticks, range=room))
    above = alt.Y("y:Q", **vega.log_axis(_named(y), bottom, top))
    inks = {keys[label["name"]]: palette.get(label["name"], colours.GREY) for label in labels}
    key = vega.legend(list(inks), symbol="stroke", column_px=KEY_PX, only=vega.NARROW)
    key.symbolStrokeWidth = {"expr": f"{vega.NARROW} ? 2 : 0"}
    color = vega.keyed("Color", inks, key)
    drawn = vega.marks([{**point, "key": keys[point["key"]]} for point in points])
    named = vega.marks(labels)
    column, height = alt.value(alt.expr(f"width - {names_px} + 8")), alt.value(alt.expr("datum.at"))
    lines = drawn.transform_filter("datum.drawn != 'points'").mark_line(strokeWidth=2)
    # Hollow marks of different shapes: where points coincide, each can be seen.
    shape = alt.Shape("shape:N", scale=None)
    dots = drawn.transform_filter("datum.drawn != 'line'").mark_point(
        size=90, filled=False, strokeWidth=2, tooltip=vega.TIP
    )
    dashes = vega.marks([{"x": left, "x2": right, "y": value} for _, value in across])
    shown = {"expr": f"{vega.NARROW} ? datum.number : datum.name"}
    words = named.mark_text(align="left", baseline="middle", dx=4, limit={"expr": f"{names_px} - 8"}, text=shown)
    layers = [
        dashes.mark_rule(color=colours.GREY, strokeWidth=1.5, strokeDash=[5, 4]).encode(right_of, above, x2="x2"),
        lines.encode(right_of, above, color),
        drawn.mark_rule(strokeWidth=1).encode(right_of, alt.Y("low:Q"), color, y2="high"),
        dots.encode(right_of, above, color, shape),
        named.mark_rule(strokeWidth=0.8, color=colours.GREY).encode(right_of, above, x2=column, y2=height),
        words.encode(x=column, y=height),
    ]
    return vega.figure(layers, height=HEIGHT)


def _named(axis: Names) -> str:
    return ", ".join(filter(None, axis))


def _spread(ends: Sequence[tuple[str, float, float]], bottom: float, top: float) -> list[dict[str, Any]]:
    """Names of lines at their ends, moved apart: ``at`` is the height in pixels from the top."""
    wanted = sorted((HEIGHT * (1 - math.log(y / bottom) / math.log(top / bottom)), name, x, y) for name, x, y in ends)
    heights: list[float] = []
    for at, *_ in wanted:
        heights.append(max(at, heights[-1] + LABEL_PX) if heights else at)
    lowest = HEIGHT - 4.0
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], lowest)
        lowest = heights[i] - LABEL_PX
    placed = zip(wanted, heights, strict=True)
    return [
        {"name": vega.text(name), "number": str(number), "x": x, "y": y, "at": at}
        for number, ((_, name, x, y), at) in enumerate(placed, 1)
    ]


def _scaled(item: Series, point: Point, x: Names, y: Names) -> vega.Tip:
    rows = [(x[0], f"{point.x:,.10g} {x[1]}".rstrip()), (y[0], f"{point.y:,.5g} {y[1]}".rstrip())]
    if point.low is not None and point.high is not None and math.isfinite(point.low + point.high):
        rows.append(("confidence interval", f"{point.low:,.5g} to {point.high:,.5g} {y[1]}".rstrip()))
    return vega.tip(point.name or item.name, [*rows, *point.details])


@dataclass(frozen=True)
class Cell:
    """A cell of a heat map."""

    x: str
    y: str
    share: float | None
    """0 to 1, e.g. of the roof; its colour. None is not measured."""
    words: str = ""
    """In the cell, e.g. the best option."""
    details: tuple[tuple[str, str], ...] = ()
    """Names and values with units, for the mouse."""


def heat_map(title: str, cells: Sequence[Cell], *, x: str, y: str, anchor: str, caption: str = "") -> Chart:
    """Cells over two parameters, in the order in which their values come first.

    x, y: the parameters' names. In a cell stand its words and its share in percent; a square has the words' colour.
    """
    across, up = (list(dict.fromkeys(getattr(cell, axis) for cell in cells)) for axis in ("x", "y"))
    told = {(cell.x, cell.y): " ".join(filter(None, (cell.words, _percent(cell)))) for cell in cells}
    columns = (Column("y", f"{y} \\ {x}"), *(Column(f"x{i}", name) for i, name in enumerate(across)))
    lines: tuple[tuple[Value, ...], ...] = tuple(
        (row, *(told.get((name, row)) or "–" for name in across)) for row in up
    )
    tables = table_lines(View(columns, lines), width=plot.WIDTH) if cells else []
    text = "\n\n".join("\n".join(line.rstrip() for line in table) for table in tables)
    return Chart(anchor, title, text, lambda: _heat_map(cells, across, up, x, y), caption)


def _percent(cell: Cell) -> str:
    return "" if cell.share is None else f"{cell.share:.0%}"


def _heat_map(cells: Sequence[Cell], across: list[str], up: list[str], x: str, y: str) -> LayerChart:
    import altair as alt

    palette = dict(zip(dict.fromkeys(cell.words for cell in cells if cell.words), colours.OPTIONS, strict=False))
    drawn = []
    for cell in cells:
        colour = colours.GREY if cell.share is None else colours.between(LOW, HIGH, min(max(cell.share, 0.0), 1.0))
        rows = [("best", cell.words), ("share", _percent(cell)), *cell.details]
        drawn.append(
            {
                "x": vega.text(cell.x),
                "y": vega.text(cell.y),
                "fill": colour,
                "ink": colours.ink(colour),
                "key": cell.words,
                "words": cell.words,
                "share": _percent(cell) or "–",
                "tip": vega.tip(f"{x} {cell.x}, {y} {cell.y}", rows),
            }
        )
    scale = alt.Scale(paddingInner=0.03, paddingOuter=0)
    plain = {"domain": False, "ticks": False}
    left = alt.Y("y:N", sort=list(map(vega.text, up)), scale=scale, axis=alt.Axis(title=y, **plain))
    above = alt.Axis(title=x, orient="top", labelAngle=0, **plain)
    top = alt.X("x:N", sort=list(map(vega.text, across)), scale=scale, axis=above)
    base = vega.marks(drawn).encode(top, left)
    ink = alt.Color("ink:N", scale=None)
    width = f"width / {len(across)}"
    fits = f"{vega.CHAR_PX} * length(datum.words) + 30 < {width}"
    edge = {"expr": f"8 - {width} / 2"}
    option = vega.keyed("Fill", palette, vega.legend(list(palette), column_px=KEY_PX))
    layers = [
        base.mark_rect(tooltip=vega.TIP, fill={"expr": "datum.fill"}),
        base.mark_text(dy=-7, fontSize=11, text={"expr": f"{fits} ? datum.words : ''"}).encode(ink),
        base.mark_text(dy={"expr": f"{fits} ? 8 : 0"}, fontWeight="bold").encode(ink, text="share:N"),
    ]
    if palette:
        square = base.transform_filter("datum.words").mark_point(shape="square", size=70, opacity=1, xOffset=edge)
        layers.append(square.encode(option, stroke=alt.value("#ffffff")))
    return vega.figure(layers, height=CELL_PX * len(up))
