"""Charts of any measurements: lines over a size, both axes logarithmic, and a heat map of two parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.reports.pages import plot
from fiprof.reports.pages.figures import (
    GREY,
    category_axis,
    colours,
    escaped,
    figure,
    hover,
    label,
    log_axis,
    scatter,
)
from fiprof.reports.pages.page import Chart
from fiprof.reports.view import Column, Value, View
from fiprof.reports.writers.terminal import table_lines

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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


@dataclass(frozen=True)
class Series:
    """Measurements that belong together."""

    name: str
    points: tuple[Point, ...]
    """In the order of x."""
    dots: bool = False
    """Points alone, no line between them."""


def scaling_chart(
    title: str,
    series: Sequence[Series],
    *,
    x: tuple[str, str],
    y: tuple[str, str],
    anchor: str,
    caption: str = "",
    roofs: Sequence[tuple[str, float]] = (),
) -> Chart:
    """Curves over both logarithms; points that are not above 0 are left out.

    x, y: name and unit of the axes (unit empty for a count). roofs: names and values in the unit of y, drawn across.
    """
    kept = [
        Series(item.name, tuple(point for point in item.points if point.x > 0 and point.y > 0), item.dots)
        for item in series
    ]
    kept = [item for item in kept if item.points]
    names = [", ".join(filter(None, words)) for words in (x, y)]
    text = plot.scatter(
        [(item.name, [(point.x, point.y) for point in item.points]) for item in kept], x=names[0], y=names[1]
    )
    return Chart(anchor, title, text, lambda: _scaling(kept, names, x, y, roofs), caption)


def _scaling(
    series: Sequence[Series],
    names: Sequence[str],
    x: tuple[str, str],
    y: tuple[str, str],
    roofs: Sequence[tuple[str, float]],
) -> Figure:
    xs = [point.x for item in series for point in item.points] or [1.0]
    ys = [point.y for item in series for point in item.points] or [1.0]
    ys += [value for _, value in roofs if value > 0]
    palette = colours([item.name for item in series])
    traces: list[Any] = []
    for number, item in enumerate(series):
        colour, pattern = palette[item.name]
        ends = [(point.y if e is None else e for e in (point.low, point.high)) for point in item.points]
        lows, highs = zip(*ends, strict=True)
        ys_of = [point.y for point in item.points]
        traces.append(
            scatter(
                [point.x for point in item.points],
                ys_of,
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [high - y for high, y in zip(highs, ys_of, strict=True)],
                    "arrayminus": [y - low for low, y in zip(lows, ys_of, strict=True)],
                    "color": colour,
                    "thickness": 1,
                },
                mode="markers" if item.dots else "lines+markers",
                name=label(item.name),
                line={"color": colour, "width": 2, "dash": "dot" if pattern else "solid"},
                marker={"size": 8, "symbol": ("circle", "square", "diamond", "cross", "triangle-up")[number % 5]},
                hovertext=[_scaled(item, point, x, y) for point in item.points],
            )
        )
    left, right = min(xs) / 1.3, max(xs) * 1.3
    for name, value in roofs:
        traces.append(
            scatter(
                [left, right], [value, value], mode="lines+text", text=["", escaped(f"{name} {value:,.4g} {y[1]}")],
                textposition="bottom left", line={"color": GREY, "width": 1.5, "dash": "dash"}, showlegend=False,
                hoverinfo="skip",
            )
        )  # fmt: skip
    ticks = sorted(set(xs))
    return figure(
        traces,
        height=470,
        xaxis=log_axis(names[0], left, right)
        | (
            {"tickmode": "array", "tickvals": ticks, "ticktext": [f"{t:,.10g}" for t in ticks]}
            if len(ticks) <= 12
            else {}
        ),
        yaxis=log_axis(names[1], min(ys) / 1.6, max(ys) * 1.6),
    )


def _scaled(item: Series, point: Point, x: tuple[str, str], y: tuple[str, str]) -> str:
    rows = [(x[0], f"{point.x:,.10g} {x[1]}".rstrip()), (y[0], f"{point.y:,.5g} {y[1]}".rstrip())]
    if point.low is not None and point.high is not None and math.isfinite(point.low + point.high):
        rows.append(("confidence interval", f"{point.low:,.5g} to {point.high:,.5g} {y[1]}".rstrip()))
    return hover(point.name or item.name, [*rows, *point.details])


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

    x, y: the parameters' names. In a cell stand its words and its share in percent.
    """
    across, up = (list(dict.fromkeys(getattr(cell, axis) for cell in cells)) for axis in ("x", "y"))
    told = {(cell.x, cell.y): " ".join(filter(None, (cell.words, _percent(cell)))) for cell in cells}
    columns = (Column("y", f"{y} \\ {x}"), *(Column(f"x{i}", name) for i, name in enumerate(across)))
    lines: tuple[tuple[Value, ...], ...] = tuple((row, *(told.get((name, row), "–") for name in across)) for row in up)
    tables = table_lines(View(columns, lines), width=plot.WIDTH) if cells else []
    text = "\n\n".join("\n".join(line.rstrip() for line in table) for table in tables)
    return Chart(anchor, title, text, lambda: _heat_map(cells, across, up, (x, y)), caption)


def _percent(cell: Cell) -> str:
    return "" if cell.share is None else f"{cell.share:.0%}"


def _heat_map(cells: Sequence[Cell], across: Sequence[str], up: Sequence[str], names: tuple[str, str]) -> Figure:
    import plotly.graph_objects as go

    found = {(cell.x, cell.y): cell for cell in cells}
    rows = [[found.get((name, row)) for name in across] for row in up]
    trace = go.Heatmap(
        x=list(across), y=list(up), z=[[cell.share if cell else None for cell in row] for row in rows],
        text=[[escaped(f"{cell.words} {_percent(cell)}".strip()) if cell else "" for cell in row] for row in rows],
        texttemplate="%{text}", hoverinfo="text", zmin=0, zmax=1, colorscale="Blues", showscale=False, xgap=2, ygap=2,
    )  # fmt: skip
    upwards = category_axis(list(up), list(up), title={"text": escaped(names[1])})
    return figure([trace], height=100 + 34 * len(up), xaxis={"type": "category", "title": names[0]}, yaxis=upwards)
