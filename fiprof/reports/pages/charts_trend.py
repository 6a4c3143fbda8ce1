"""The chart of a trend: a point a run over time, the level it is at, and a line where that changed."""

from __future__ import annotations

import itertools
from statistics import median
from typing import TYPE_CHECKING

from fiprof.analysis.trend import Line
from fiprof.reports.pages import colours, vega
from fiprof.reports.pages.page import Chart
from fiprof.reports.view import Column
from fiprof.reports.words import phrase

if TYPE_CHECKING:
    from altair import LayerChart

HEIGHT = 220
POINT, LEVEL = "#2994ff", "#ff5500"
"""Of colours.COLOURS, told apart with any colour blindness."""
ROOM = 0.02
"""Of the value, above and below what is drawn."""


def trend_chart(anchor: str, title: str, line: Line, value: Column, text: str) -> Chart:
    """The runs of a line over time. value: the quantity's column. text: the same in characters."""
    return Chart(anchor, title, text, lambda: _trend(line, value), phrase("trend.caption"))


def _trend(line: Line, value: Column) -> LayerChart:
    import altair as alt

    values = [point.value for point in line.points]
    edges = [0, *(change.place for change in line.changes), len(values)]
    points = [
        {
            "x": _time(point.row.started),
            "y": point.value,
            "tip": vega.tip(
                point.row.name,
                [
                    (value.title, vega.number(point.value, value.spec, value.unit)),
                    ("commit", point.row.git or ""),
                    ("tags", ", ".join(point.row.tags)),
                ],
            ),
        }
        for point in line.points
    ]
    levels = [
        {"a": points[first]["x"], "b": points[last - 1]["x"], "y": median(values[first:last])}
        for first, last in itertools.pairwise(edges)
    ]
    changes = [
        {
            "x": points[change.place]["x"],
            "words": f"{change.ratio:+.1%}",
            "tip": vega.tip(phrase("trend.change"), [("", f"{change.ratio:+.1%}"), ("p", f"{change.p_value:.3f}")]),
        }
        for change in line.changes
    ]
    low, high = min(values) * (1 - ROOM), max(values) * (1 + 2 * ROOM)
    ruler = alt.Axis(title=None, labelAngle=0, tickCount={"expr": "max(2, width / 110)"}, labelOverlap=True)
    x = alt.X("x:T", axis=ruler)
    unit = f"{value.title}{f' ({value.unit})' if value.unit else ''}"
    y = alt.Y("y:Q", axis=vega.axis(unit, tickCount=5), scale=alt.Scale(domain=[low, high], nice=False, zero=False))
    layers = [
        vega.marks(levels)
        .mark_rule(strokeWidth=3, color=LEVEL, opacity=0.8)
        .encode(alt.X("a:T", axis=ruler), y, x2="b"),
        vega.marks(points).mark_point(size=45, filled=True, color=POINT, opacity=0.9, tooltip=vega.TIP).encode(x, y),
    ]
    if changes:
        drawn, top = vega.marks(changes), alt.value(0)
        layers += [
            drawn.mark_rule(strokeDash=[4, 3], color=colours.GREY, tooltip=vega.TIP).encode(x),
            drawn.mark_text(align="left", baseline="top", dx=4, color=vega.INK).encode(x, y=top, text="words:N"),
        ]
    return vega.figure(layers, height=HEIGHT)


def _time(started: str | None) -> str | None:
    """To the second, in UTC, as Vega reads it."""
    from datetime import UTC, datetime

    try:
        return datetime.fromisoformat(started or "").astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return None
