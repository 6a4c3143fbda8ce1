"""Charts of a page as Vega-Lite specifications: what accounts for a change, intervals, stall mixes, lines over sizes.

Text and lines take the colour of the page's text (``currentColor``), so that a chart follows the colour scheme. A row's
``tip`` stands beside the mouse, its ``title`` as the heading.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fiprof.analysis.comparison.measured_result import ComparedCase
from fiprof.model.selection import by_key
from fiprof.reports import colours
from fiprof.text import escape_control, shorten

Spec = dict[str, Any]
Rows = list[dict[str, Any]]
Layer = tuple[str, Rows, Spec]
"""Marks of some rows, which have a name: those of one name are in the page once."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
INK = "currentColor"
FONT_PX = 12
CHAR_PX = 6.6  # mean width of a character at FONT_PX; labels are measured by it
NAME_PX, BAR_PX, GAP_PX = 18, 16, 12  # heights of a row's name, of its bar, and of the space below
LONGEST_NAME = 80
LEGEND_PX = 155  # width of a legend's column
TIP = {"tooltip": {"expr": "datum.tip"}}
_CONFIG = {
    "font": "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif",
    "aria": False,
    "background": "#ffffff00",
    "padding": {"left": 2, "right": 10, "top": 6, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "titleFontWeight": "normal",
        "gridOpacity": 0.25,
        "labelOverlap": True,
        "labelSeparation": 8,
        **dict.fromkeys(("domainColor", "tickColor", "gridColor"), colours.GREY),
        **dict.fromkeys(("labelColor", "titleColor"), INK),
        **dict.fromkeys(("labelFontSize", "titleFontSize"), FONT_PX),
    },
    "legend": {
        "orient": "bottom",
        "direction": "horizontal",
        "symbolOpacity": 1,
        "columnPadding": 14,
        **dict.fromkeys(("labelColor", "titleColor"), INK),
        **dict.fromkeys(("labelFontSize", "titleFontSize"), FONT_PX),
    },
    "text": {"color": INK, "fontSize": FONT_PX},
}


def tip(title: str, rows: Sequence[tuple[str, str]]) -> dict[str, str]:
    """A heading, and the names and values that have one."""
    return {"title": text(title), **{name: escape_control(value) for name, value in rows if value}}


def text(name: str) -> str:
    return shorten(escape_control(name), LONGEST_NAME)


def quantity(field: str, **more: Any) -> Spec:
    """A channel over numbers."""
    return {"field": field, "type": "quantitative", **more}


def axis(title: str | None, **more: Any) -> Spec:
    """An axis with plain numbers, as many as there is room for."""
    return {"title": title, "format": ",.10~g", **more}


def layer(name: str, rows: Rows, mark: Spec, encoding: Spec, **more: Any) -> Layer:
    """Marks of rows, which ``figure`` puts down under their name."""
    return name, rows, {"data": {"name": name}, "mark": mark, "encoding": encoding, **more}


def figure(layers: Sequence[Layer], height: float) -> Spec:
    """The layers that have rows over each other, as wide as their place. height: px of the plot."""
    return {
        "$schema": SCHEMA,
        "config": _CONFIG,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "datasets": {name: rows for name, rows, _ in layers},
        "layer": [spec for _, rows, spec in layers if rows],
    }


def keyed(palette: Mapping[str, str], legend: Spec | None) -> Spec:
    """The fill or colour of marks whose ``key`` has a colour of the palette."""
    scale = {"domain": list(palette), "range": list(palette.values())}
    return {"field": "key", "type": "nominal", "scale": scale, "legend": legend}


def _legend(names: Sequence[str], symbol: str = "square", column_px: int = LEGEND_PX) -> Spec:
    columns = {"expr": f"max(1, floor(width / {column_px}))"}
    look = {"symbolType": symbol, "labelLimit": column_px - 20, "columns": columns}
    return {"title": None, "values": list(names), **look}


# Rows of bars: a name and words above, marks below


def _top(index: int) -> int:
    """Where the bar of a row begins, px from the top."""
    return index * (NAME_PX + BAR_PX + GAP_PX) + NAME_PX


def _down(field: str, height: float) -> Spec:
    """The channel y of a mark whose place is in pixels from the top."""
    return quantity(field, axis=None, scale={"domain": [0, height], "range": [0, height], "nice": False})


def _bars(named: Sequence[tuple[str, str]], x: Spec, layers: Sequence[tuple[str, Rows, Spec, Spec]]) -> Spec:
    """named: name and words of each row. layers: name, rows, mark and channels beside x and y, which goes from c to
    d."""
    height = _top(len(named)) - NAME_PX
    names: Rows = [
        {"name": text(name), "words": words, "y": _top(place) - 5, "room": len(words) * CHAR_PX + 8}
        for place, (name, words) in enumerate(named)
    ]
    above = _down("y", height)
    name_mark = {"type": "text", "align": "left", "baseline": "alphabetic"}
    name_mark["limit"] = {"expr": "max(40, width - datum.room)"}  # type: ignore[assignment]
    words_mark = {"type": "text", "align": "right", "baseline": "alphabetic"}
    marks = [layer(name, rows, mark, {"x": x, "y": _down("c", height), **more}) for name, rows, mark, more in layers]
    texts = [
        layer("names", names, name_mark, {"x": {"value": 0}, "y": above, "text": {"field": "name"}}),
        layer("names", names, words_mark, {"x": {"value": {"expr": "width"}}, "y": above, "text": {"field": "words"}}),
    ]
    return figure([*marks, *texts], height)


def _around_zero(unit: str, low: float, high: float) -> Spec:
    ruler = axis(unit, tickCount={"expr": "max(3, width / 90)"})
    return quantity("a", scale={"domain": [min(0.0, low), max(0.0, high)], "nice": True}, axis=ruler)


def _zero(rows: int) -> tuple[str, Rows, Spec, Spec]:
    """The line at 0 through so many rows."""
    line: Rows = [{"a": 0, "c": 0, "d": _top(rows) - NAME_PX}]
    return "zero", line, {"type": "rule", "strokeWidth": 1, "color": INK}, STROKE


AREA = {"x2": {"field": "b"}, "y2": {"field": "d"}}
STROKE = {"y2": {"field": "d"}}
LONGER, SHORTER = "#ff5500", "#2994ff"
SIDES = {"A": "#999900", "B": "#9841aa"}  # of colours.COLOURS, told apart with any colour blindness


def contributions(items: Sequence[tuple[str, float, Mapping[str, str]]], unit: str) -> Spec:
    """Bars to the right for what makes side B longer, to the left for what makes it shorter. items: name and change of
    each part, and what else stands beside the mouse."""
    rows, named = [], []
    for place, (name, change, sides) in enumerate(items):
        words = f"{change:+,.2f} {unit}"
        named.append((name, words))
        ends = {"a": min(change, 0.0), "b": max(change, 0.0), "c": _top(place), "d": _top(place) + BAR_PX}
        beside = tip(name, [("accounts for", words), *sides.items()])
        rows.append({**ends, "key": "longer" if change > 0 else "shorter", "tip": beside})
    palette = {"longer": LONGER, "shorter": SHORTER}
    changes = [change for _, change, _ in items]
    bars = ("bars", rows, {"type": "rect", **TIP}, {**AREA, "fill": keyed(palette, _legend(list(palette)))})
    return _bars(named, _around_zero(unit, min(changes), max(changes)), [bars, _zero(len(items))])


def intervals(cases: Sequence[tuple[str, ComparedCase]], same: float) -> Spec:
    """A bar from low to high a case, a stroke at the change, a dot a process, in percent of side A. cases: each with
    what it is called. same: percent within which B is the same, shaded."""
    rows: Rows = []
    strokes: Rows = []
    dots: Rows = []
    named = []
    for place, (name, case) in enumerate(cases):
        of, top, mean_a_us = case.difference, _top(place), case.mean_us("a")
        words = f"{of.difference_pct:+.2f}% {of.outcome.words}"
        named.append((name, words))
        lane = {"c": top, "d": top + BAR_PX}
        rows.append({"a": of.low_pct, "b": of.high_pct, **lane, "tip": tip(name, [("change", words)])})
        strokes.append({"a": of.difference_pct, **lane})
        for side, at, times in (("A", 0.25, case.a_us), ("B", 0.75, case.b_us)):
            for us in times:
                pct = 100 * (us / mean_a_us - 1)
                dots.append({"a": pct, "c": top + BAR_PX * at, "key": side, "tip": tip(side, [("", f"{pct:+.2f}%")])})
    ends = [-same, same, *(row[end] for row in rows for end in ("a", "b")), *(dot["a"] for dot in dots)]
    band: Rows = [{"a": -same, "b": same, "c": 0, "d": _top(len(cases)) - NAME_PX}]
    dot = {"type": "circle", "size": 26, "opacity": 0.9, **TIP}
    layers = [
        ("band", band, {"type": "rect", "color": INK, "opacity": 0.07}, AREA),
        ("bars", rows, {"type": "rect", "color": INK, "opacity": 0.28, **TIP}, AREA),
        ("strokes", strokes, {"type": "rule", "strokeWidth": 2, "color": INK}, STROKE),
        ("dots", dots, dot, {"fill": keyed(SIDES, _legend(list(SIDES)))}),
        _zero(len(cases)),
    ]
    return _bars(named, _around_zero("%", min(ends), max(ends)), layers)


def stall_mixes(mixes: Mapping[str, Mapping[str, float]]) -> Spec:
    """A bar of all the warps' time a side. mixes: side -> stall reason -> its share, 0 to 1. A reason that has less
    than 1% on every side is drawn with the others."""
    weights = {reason: max(mix.get(reason, 0.0) for mix in mixes.values()) for mix in mixes.values() for reason in mix}
    reasons = sorted((each for each in weights if weights[each] >= 0.01), key=lambda each: -weights[each])
    shown = {side: {each: mix.get(each, 0.0) for each in reasons} for side, mix in mixes.items()}
    for side, mix in mixes.items():
        shown[side]["other"] = max(sum(mix.values()) - sum(shown[side].values()), 0.0)
    rows: Rows = []
    for place, mix in enumerate(shown.values()):
        start, top = 0.0, _top(place)
        for reason, share in mix.items():
            if share:
                beside = tip(reason, [(name, f"{other.get(reason, 0.0):.1%}") for name, other in shown.items()])
                ends = {"a": start, "b": start + 100 * share, "c": top, "d": top + BAR_PX}
                rows.append({**ends, "key": reason, "colour": colours.STALLS.get(reason, colours.GREY), "tip": beside})
            start += 100 * share
    palette = {row["key"]: row["colour"] for row in rows}
    ruler = axis("share of the warps' time", labelExpr="datum.label + '%'", tickCount={"expr": "max(3, width / 90)"})
    x = quantity("a", scale={"domain": [0, 100], "nice": False}, axis=ruler)
    inside: Spec = {
        "type": "text",
        "align": "left",
        "baseline": "middle",
        "dx": 4,
        "dy": BAR_PX / 2,
        "text": {"expr": f"(datum.b - datum.a) / 100 * width > {CHAR_PX} * length(datum.key) + 6 ? datum.key : ''"},
        # Whichever can be read: one of them has a contrast of 4.5 to any colour.
        "color": {"expr": "luminance(datum.colour) > 0.179 ? '#000000' : '#ffffff'"},
    }
    fill = keyed(palette, _legend(list(palette)) if len(palette) > 1 else None)
    layers = [
        ("bars", rows, {"type": "rect", "x2Offset": -1, **TIP}, {**AREA, "fill": fill}),
        ("bars", rows, inside, {}),
    ]
    return _bars([(side, "") for side in shown], x, layers)


# Lines over a size, both axes logarithmic

HEIGHT = 400
LABEL_PX = 14  # between the middles of two lines' names
MOST_TICKS = 12  # sizes that have a tick each; more have those of the logarithm
NAMES_PX, KEY_PX = 290, 300
"""Most of the width that the lines' names have at the right, and, where it is narrow, in a key below."""
NARROW = "width < 500"  # the plot of a phone
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]
Names = tuple[str, str]  # name and unit of an axis; a count has no unit


def scaling_chart(points: Rows, *, x: Names, y: Names, roofs: Sequence[tuple[str, float]] = ()) -> Spec:
    """Lines or points over both logarithms; what is not above 0 is left out.

    points: rows with ``x`` and ``y``, and the ``series`` that they belong to, in the order of x; ``low`` and ``high``,
    the ends of its confidence interval in the unit of y; ``name`` and ``details``, names and values with units, for the
    mouse; a ``colour`` of ``colours``, by the place among the series without; and what is ``drawn``: both, points or
    line. roofs: names and values in the unit of y, drawn across.
    """
    series = by_key((point["series"], point) for point in points if point["x"] > 0 and point["y"] > 0)
    every = [point for of_series in series.values() for point in of_series]
    xs = [point["x"] for point in every] or [1.0]
    across = [(name, value) for name, value in roofs if value > 0]
    ys = [end for point in every for key in ("y", "low", "high") if (end := point.get(key)) and end > 0]
    ys = [*ys, *(value for _, value in across)] or [1.0]
    left, right, bottom, top = min(xs) / 1.15, max(xs) * 1.15, min(ys) / 1.4, max(ys) * 1.4

    # The names of lines stand at their ends, moved apart.
    order = colours.series(list(series))
    palette = {text(name): series_points[0].get("colour") or order[name] for name, series_points in series.items()}
    ends = [(name, series_points[-1]["x"], series_points[-1]["y"]) for name, series_points in series.items()]
    ends += [(f"{name} {value:,.4g} {y[1]}", right, value) for name, value in across]
    wanted_labels = sorted(
        (HEIGHT * (1 - math.log(py / bottom) / math.log(top / bottom)), name, px, py) for name, px, py in ends
    )
    labels: Rows = []
    for number, (at, name, px, py) in enumerate(wanted_labels, 1):
        at = max(at, labels[-1]["at"] + LABEL_PX) if labels else at
        labels.append({"name": text(name), "number": str(number), "x": px, "y": py, "at": at})
    lowest = HEIGHT - 4.0
    for label in reversed(labels):
        label["at"] = min(label["at"], lowest)
        lowest = label["at"] - LABEL_PX
    keys = {label["name"]: f"{label['number']} {label['name']}" for label in labels}

    drawn: Rows = []
    for number, (name, series_points) in enumerate(series.items()):
        for point in series_points:
            size, value, low, high = (point.get(key) for key in ("x", "y", "low", "high"))
            rows = [(x[0], f"{size:,.10g} {x[1]}".rstrip()), (y[0], f"{value:,.5g} {y[1]}".rstrip())]
            if low is not None and high is not None and math.isfinite(low + high):
                rows.append(("confidence interval", f"{low:,.5g} to {high:,.5g} {y[1]}".rstrip()))
            place = {"x": size, "y": value, "low": low or value, "high": high or value, "key": keys[text(name)]}
            look = {"drawn": point.get("drawn", "both"), "shape": SHAPES[number % len(SHAPES)]}
            tip_of = tip(point.get("name") or name, [*rows, *point.get("details", ())])
            drawn.append({**place, **look, "tip": tip_of})

    longest = max((len(label["name"]) for label in labels), default=0) * CHAR_PX + 20
    names_px = f"({NARROW} ? 24 : min({longest:.0f}, {NAMES_PX}, width * 0.4))"
    sizes = sorted(set(xs)) if len(set(xs)) <= MOST_TICKS and all(map(float.is_integer, map(float, xs))) else []
    room = [0, {"expr": f"width - {names_px}"}]
    right_of = quantity("x", **_logarithmic(", ".join(filter(None, x)), left, right, sizes, range=room))
    above = quantity("y", **_logarithmic(", ".join(filter(None, y)), bottom, top))
    inks = {keys[label["name"]]: palette.get(label["name"], colours.GREY) for label in labels}
    # Vega has no legend that is there at times: where the plot is wide its letters are too small to take a place.
    sized = {"labelFontSize": FONT_PX, "symbolSize": 100, "rowPadding": 2, "offset": 18}
    narrow = {name: {"expr": f"{NARROW} ? {size} : 0.01"} for name, size in sized.items()}
    narrow["symbolStrokeWidth"] = {"expr": f"{NARROW} ? 2 : 0"}
    ink = keyed(inks, {**_legend(list(inks), "stroke", KEY_PX), **narrow})
    column, height = {"value": {"expr": f"width - {names_px} + 8"}}, {"value": {"expr": "datum.at"}}
    line, rule = {"type": "line", "strokeWidth": 2}, {"type": "rule", "color": colours.GREY}
    # Hollow marks of different shapes: where points coincide, each can be seen.
    dot = {"type": "point", "size": 90, "filled": False, "strokeWidth": 2, **TIP}
    shape = {"field": "shape", "type": "nominal", "scale": None}
    words = {"limit": {"expr": f"{names_px} - 8"}, "text": {"expr": f"{NARROW} ? datum.number : datum.name"}}
    name_mark = {"type": "text", "align": "left", "baseline": "middle", "dx": 4, **words}
    place, place_ink = {"x": right_of, "y": above}, {"x": right_of, "y": above, "color": ink}
    spread = {**place_ink, "y": quantity("low"), "y2": {"field": "high"}}
    dashes: Rows = [{"x": left, "x2": right, "y": value} for _, value in across]
    layers = [
        layer("roofs", dashes, {**rule, "strokeWidth": 1.5, "strokeDash": [5, 4]}, {**place, "x2": {"field": "x2"}}),
        layer("points", drawn, line, place_ink, transform=[{"filter": "datum.drawn != 'points'"}]),
        layer("points", drawn, {"type": "rule", "strokeWidth": 1}, spread),
        layer("points", drawn, dot, {**place_ink, "shape": shape}, transform=[{"filter": "datum.drawn != 'line'"}]),
        layer("labels", labels, {**rule, "strokeWidth": 0.8}, {**place, "x2": column, "y2": height}),
        layer("labels", labels, name_mark, {"x": column, "y": height}),
    ]
    return figure(layers, HEIGHT)


def _logarithmic(title: str, low: float, high: float, values: Sequence[float] = (), **scale: Any) -> Spec:
    """Axis and scale of a logarithmic channel: ticks at the values, or at decades, and at 2 and 5 where few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if len(decades) > 4 else (1, 2, 5)
    ticks = [step * 10**decade for decade in decades for step in steps if low <= step * 10**decade <= high]
    return {
        "axis": axis(title, values=list(values) or ticks),
        "scale": {"type": "log", "domain": [low, high], "nice": False, **scale},
    }
