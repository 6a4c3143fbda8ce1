"""The chart of a measured comparison: of each case the change with its interval, and every process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.reports.pages import plot, vega
from fiprof.reports.pages.page import Chart
from fiprof.reports.words import phrase

if TYPE_CHECKING:
    from altair import LayerChart

SIDES = {"A": "#999900", "B": "#9841aa"}
"""Of colours.COLOURS."""
DOT_PX = 26
"""Area of a process's dot."""


@dataclass(frozen=True)
class Interval:
    """A case's change, in percent of side A."""

    name: str
    low: float
    value: float
    high: float
    words: str
    """At the right of the name."""
    processes: tuple[tuple[str, float], ...]
    """Side and change against the mean of A of each process."""


def intervals_chart(anchor: str, title: str, items: Sequence[Interval], *, same: float, caption: str) -> Chart:
    """A bar from low to high a case, a stroke at the change, a dot a process. same: percent within which B is the same,
    shaded."""
    largest = max((abs(each.value) for each in items), default=0) or 1.0
    lines = [plot.Bar(each.name, abs(each.value) / largest, each.words) for each in items]
    return Chart(anchor, title, plot.bars(lines), lambda: _intervals(items, same), caption)


def _intervals(items: Sequence[Interval], same: float) -> LayerChart:
    import altair as alt

    low = min(-same, *(value for each in items for value in (each.low, *(change for _, change in each.processes))))
    high = max(same, *(value for each in items for value in (each.high, *(change for _, change in each.processes))))
    bars, names, dots = [], [], []
    pitch = vega.NAME_PX + vega.BAR_PX + vega.GAP_PX
    for index, each in enumerate(items):
        top = index * pitch + vega.NAME_PX
        tip = vega.tip(each.name, [(phrase("measured.difference"), each.words)])
        bars.append({"a": each.low, "b": each.high, "v": each.value, "c": top, "d": top + vega.BAR_PX, "tip": tip})
        room = len(each.words) * vega.CHAR_PX + 8
        names.append({"name": vega.text(each.name), "words": each.words, "y": top - 5, "room": room})
        for side, change in each.processes:
            place = top + vega.BAR_PX * (0.25 if side == "A" else 0.75)
            dots.append({"a": change, "c": place, "key": side, "tip": vega.tip(side, [("", f"{change:+.2f}%")])})
    height = len(items) * pitch
    drawn, named, told = vega.marks(bars), vega.marks(names), vega.marks(dots)
    band = vega.marks([{"a": -same, "b": same, "c": 0, "d": height}])
    zero = vega.marks([{"a": 0, "c": 0, "d": height}])
    x = alt.X(
        "a:Q",
        scale=alt.Scale(domain=[low, high], nice=True),
        axis=vega.axis("%", tickCount={"expr": "max(3, width / 90)"}),
    )
    heading, y = {"y": vega.pixels("y", height)}, vega.pixels("c", height)
    fill = vega.keyed("Fill", SIDES, vega.legend(list(SIDES)))
    layers = [
        band.mark_rect(color=vega.INK, opacity=0.07).encode(x, y, x2="b", y2="d"),
        zero.mark_rule(strokeWidth=1, color=vega.INK).encode(alt.X("a:Q"), y, y2="d"),
        drawn.mark_rect(color=vega.INK, opacity=0.28, tooltip=vega.TIP).encode(x, y, x2="b", y2="d"),
        drawn.mark_rule(strokeWidth=2, color=vega.INK).encode(alt.X("v:Q"), y, y2="d"),
        told.mark_circle(size=DOT_PX, opacity=0.9, tooltip=vega.TIP).encode(x, y, fill),
        named.mark_text(align="left", baseline="alphabetic", limit={"expr": "max(40, width - datum.room)"}).encode(
            x=alt.value(0), text="name:N", **heading
        ),
        named.mark_text(align="right", baseline="alphabetic").encode(
            x=alt.value(alt.expr("width")), text="words:N", **heading
        ),
    ]
    return vega.figure(layers, height=height)
