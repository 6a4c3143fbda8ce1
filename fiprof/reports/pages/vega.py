"""What the charts of a page share, in Altair: one plot as wide as its place, marks at heights in pixels.

Text and lines take the colour of the page's text (``currentColor``), so that a chart follows the colour scheme.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.reports.pages import colours
from fiprof.text import escape_control, shorten

if TYPE_CHECKING:
    from altair import Chart, LayerChart

INK = "currentColor"
FONT_PX = 12
CHAR_PX = 6.6
"""Mean width of a character at FONT_PX; labels are measured by it."""
NAME_PX, BAR_PX, GAP_PX = 18, 16, 12
"""Heights of a row's name, of its bars, and of the space below."""
LONGEST_NAME = 80
NARROW = "width < 500"
"""The plot of a phone."""
LEGEND_PX = 155
"""Width of a legend's column."""

Tip = dict[str, str]
"""What stands beside the mouse: names and values with units; ``title`` is the heading."""


def tip(title: str, rows: Sequence[tuple[str, str]]) -> Tip:
    """A heading, and the rows that have a value."""
    return {"title": text(title), **{name: escape_control(value) for name, value in rows if value}}


def text(name: str) -> str:
    """A name as a chart shows it."""
    return shorten(escape_control(name), LONGEST_NAME)


def marks(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """A layer's data, a row a mark; a row's ``tip`` stands beside the mouse."""
    import altair as alt

    return alt.Chart(alt.InlineData(values=list(rows)))


TIP = {"expr": "datum.tip"}


def number(value: float | None, spec: str, unit: str = "") -> str:
    """A number with its unit; empty for none."""
    return "" if value is None else f"{value:{spec}} {unit}".rstrip()


def figure(layers: Sequence[Any], *, height: float, params: Sequence[Any] = ()) -> LayerChart:
    """Layers over each other in this project's manner. height: px of the plot."""
    import altair as alt

    grey = dict.fromkeys(("domainColor", "tickColor", "gridColor"), colours.GREY)
    ink = dict.fromkeys(("labelColor", "titleColor"), INK)
    size = dict.fromkeys(("labelFontSize", "titleFontSize"), FONT_PX)
    return (
        alt.layer(*layers)
        .add_params(*params)
        .properties(width="container", height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
        .configure(
            font="system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif",
            aria=False,
            background="#ffffff00",
            padding={"left": 2, "right": 10, "top": 6, "bottom": 2},
        )
        .configure_view(stroke=None)
        .configure_axis(
            titleFontWeight="normal", gridOpacity=0.25, labelOverlap=True, labelSeparation=8, **ink, **grey, **size
        )
        .configure_legend(orient="bottom", direction="horizontal", symbolOpacity=1, columnPadding=14, **ink, **size)
        .configure_text(color=INK, fontSize=FONT_PX)
    )


def pixels(field: str, height: float) -> Any:
    """The channel y of a mark whose place is in pixels from the top."""
    import altair as alt

    return alt.Y(f"{field}:Q", axis=None, scale=alt.Scale(domain=[0, height], range=[0, height], nice=False))


def axis(title: str, **more: Any) -> Any:
    """An axis with plain numbers, as many as there is room for."""
    import altair as alt

    return alt.Axis(title=title, format=",.10~g", **more)


def log_axis(title: str, low: float, high: float, values: Sequence[float] = (), **scale: Any) -> dict[str, Any]:
    """Axis and scale of a logarithmic channel: ticks at the values, or at each decade, and at 2 and 5 where these are
    few. scale: more of the scale's."""
    import altair as alt

    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if len(decades) > 4 else (1, 2, 5)
    ticks = [step * 10**decade for decade in decades for step in steps if low <= step * 10**decade <= high]
    return {
        "axis": axis(title, values=list(values) or ticks),
        "scale": alt.Scale(type="log", domain=[low, high], nice=False, **scale),
    }


def keyed(channel: str, palette: Mapping[str, str], legend: Any = None) -> Any:
    """The channel Fill or Color of marks whose ``key`` has a colour of the palette."""
    import altair as alt

    scale = alt.Scale(domain=list(palette), range=list(palette.values()))
    return getattr(alt, channel)("key:N", scale=scale, legend=legend)


def legend(names: Sequence[str], *, symbol: str = "square", column_px: int = LEGEND_PX, only: str = "") -> Any:
    """A legend below, in as many columns as fit. only: where it is shown, as Vega says it."""
    import altair as alt

    columns = {"expr": f"max(1, floor(width / {column_px}))"}
    # Vega has no legend that is there at times: elsewhere its letters are too small to take a place.
    sizes = {"labelFontSize": FONT_PX, "symbolSize": 100, "rowPadding": 2, "offset": 18} if only else {}
    shown = {name: {"expr": f"{only} ? {size} : 0.01"} for name, size in sizes.items()}
    keys = {"title": None, "values": list(names), "symbolType": symbol, "labelLimit": column_px - 20}
    return alt.Legend(columns=columns, **keys, **shown)


def inked(palette: Mapping[str, str]) -> Any:
    """The colour of text on marks with a ``key`` of the palette."""
    white = [key for key, colour in palette.items() if colours.ink(colour) == "#ffffff"]
    return {"expr": f"indexof({json.dumps(white)}, datum.key) < 0 ? '#000000' : '#ffffff'"}


# Rows of bars


@dataclass(frozen=True)
class Bar:
    """A piece of a row, from start to end in the axis's unit."""

    key: str
    """In the legend."""
    start: float
    end: float
    tip: Tip
    words: str = ""
    """In the bar where there is room."""


@dataclass(frozen=True)
class Row:
    """A name, its value in words, and bars in one line under them."""

    name: str
    bars: tuple[Bar, ...]
    words: str = ""
    tick: float | None = None
    """A mark across the bars."""


def rows(items: Sequence[Row], palette: Mapping[str, str], *, title: str, most: float) -> LayerChart:
    """Rows from the top, with one axis from 0 to most percent. palette: of the bars' keys, in the legend's order."""
    import altair as alt

    names, bars, ticks = [], [], []
    for index, item in enumerate(items):
        top = index * (NAME_PX + BAR_PX + GAP_PX) + NAME_PX
        words_px = len(item.words) * CHAR_PX + 8
        names.append({"name": text(item.name), "words": item.words, "y": top - 5, "room": words_px})
        place = {"c": top, "d": top + BAR_PX, "m": top + BAR_PX / 2}
        for bar in item.bars:
            piece = {"a": bar.start, "b": bar.end, "key": bar.key, "words": bar.words, "tip": bar.tip}
            bars.append({**place, **piece})
        if item.tick is not None:
            ticks.append({"a": item.tick, "c": top - 3, "d": top + BAR_PX + 3, "tip": item.bars[0].tip})
    y = len(items) * (NAME_PX + BAR_PX + GAP_PX)
    drawn, named = marks(bars), marks(names)
    ruler = axis(title, labelExpr="datum.label + '%'", tickCount={"expr": "max(3, width / 90)"})
    x = alt.X("a:Q", scale=alt.Scale(domain=[0, most], nice=False), axis=ruler)
    heading = {"y": pixels("y", y)}
    room = {"expr": "max(40, width - datum.room)"}
    fill = keyed("Fill", palette, legend(list(palette)) if len(palette) > 1 else None)
    layers = [
        drawn.mark_rect(tooltip=TIP, x2Offset=-1).encode(x, pixels("c", y), fill, x2="b", y2="d"),
        named.mark_text(align="left", baseline="alphabetic", limit=room).encode(
            x=alt.value(0), text="name:N", **heading
        ),
        named.mark_text(align="right", baseline="alphabetic").encode(
            x=alt.value(alt.expr("width")), text="words:N", **heading
        ),
    ]
    fits = f"(datum.b - datum.a) / {most} * width > {CHAR_PX} * length(datum.words) + 6"
    inside = {"expr": f"{fits} ? datum.words : ''"}
    words = drawn.mark_text(align="left", baseline="middle", dx=4, text=inside, color=inked(palette))
    layers.append(words.encode(alt.X("a:Q"), pixels("m", y)))
    if ticks:
        across = marks(ticks).mark_rule(strokeWidth=2, color=INK, tooltip=TIP)
        layers.append(across.encode(alt.X("a:Q"), pixels("c", y), y2="d"))
    return figure(layers, height=y)
