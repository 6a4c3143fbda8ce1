"""Charts of a comparison: what accounts for a change, and the stall mixes of both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.reports.pages import colours, plot, vega
from fiprof.reports.pages.page import Chart
from fiprof.reports.words import phrase

if TYPE_CHECKING:
    from altair import LayerChart

LONGER, SHORTER = "#ff5500", "#2994ff"
"""Of colours.COLOURS, told apart with any colour blindness."""
SMALLEST_REASON = 0.01
"""A stall reason that has less on both sides is drawn with the others."""
OTHER = "other"


@dataclass(frozen=True)
class Contribution:
    """A part of a change."""

    name: str
    change: float
    """In the chart's unit; longer is positive."""
    told: tuple[tuple[str, str], ...] = ()
    """What stands beside the mouse."""


def contributions_chart(
    anchor: str, title: str, items: Sequence[Contribution], *, unit: str, caption: str = ""
) -> Chart:
    """Bars to the right for what makes side B longer, to the left for what makes it shorter."""
    largest = max((abs(each.change) for each in items), default=1.0)
    lines = [plot.Bar(each.name, abs(each.change) / largest, f"{each.change:+,.2f} {unit}") for each in items]
    return Chart(anchor, title, plot.bars(lines), lambda: _contributions(items, unit), caption)


def _contributions(items: Sequence[Contribution], unit: str) -> LayerChart:
    import altair as alt

    low = min(0.0, *(each.change for each in items))
    high = max(0.0, *(each.change for each in items))
    longer, shorter = str(phrase("comparison.longer")), str(phrase("comparison.shorter"))
    palette = {longer: LONGER, shorter: SHORTER}
    bars, names = [], []
    for index, each in enumerate(items):
        top = index * (vega.NAME_PX + vega.BAR_PX + vega.GAP_PX) + vega.NAME_PX
        words = f"{each.change:+,.2f} {unit}"
        tip = vega.tip(each.name, [(phrase("comparison.accounts"), words), *each.told])
        place = {"a": min(each.change, 0.0), "b": max(each.change, 0.0), "c": top, "d": top + vega.BAR_PX}
        bars.append({**place, "key": longer if each.change > 0 else shorter, "tip": tip})
        room = len(words) * vega.CHAR_PX + 8
        names.append({"name": vega.text(each.name), "words": words, "y": top - 5, "room": room})
    height = len(items) * (vega.NAME_PX + vega.BAR_PX + vega.GAP_PX)
    drawn, named, zero = vega.marks(bars), vega.marks(names), vega.marks([{"a": 0, "c": 0, "d": height}])
    ruler = vega.axis(unit, tickCount={"expr": "max(3, width / 90)"})
    x = alt.X("a:Q", scale=alt.Scale(domain=[low, high or 1.0], nice=True), axis=ruler)
    heading = {"y": vega.pixels("y", height)}
    fill = vega.keyed("Fill", palette, vega.legend(list(palette)))
    layers = [
        drawn.mark_rect(tooltip=vega.TIP).encode(x, vega.pixels("c", height), fill, x2="b", y2="d"),
        zero.mark_rule(strokeWidth=1, color=vega.INK).encode(alt.X("a:Q"), vega.pixels("c", height), y2="d"),
        named.mark_text(align="left", baseline="alphabetic", limit={"expr": "max(40, width - datum.room)"}).encode(
            x=alt.value(0), text="name:N", **heading
        ),
        named.mark_text(align="right", baseline="alphabetic").encode(
            x=alt.value(alt.expr("width")), text="words:N", **heading
        ),
    ]
    return vega.figure(layers, height=height)


def mixes_chart(anchor: str, title: str, mixes: Mapping[str, Mapping[str, float]], caption: str) -> Chart:
    """A bar of all the warps' time a side. mixes: side -> stall reason -> its share, 0 to 1."""
    weights = {reason: max(mix.get(reason, 0.0) for mix in mixes.values()) for mix in mixes.values() for reason in mix}
    reasons = sorted((each for each in weights if weights[each] >= SMALLEST_REASON), key=lambda each: -weights[each])
    shown = {side: {**{each: mix.get(each, 0.0) for each in reasons}} for side, mix in mixes.items()}
    for side, mix in mixes.items():
        shown[side][OTHER] = max(sum(mix.values()) - sum(shown[side].values()), 0.0)
    stacks = [plot.Stack(side, tuple(mix.items())) for side, mix in shown.items()]
    return Chart(anchor, title, plot.stacks(stacks), lambda: _mixes(shown), caption)


def _mixes(mixes: Mapping[str, Mapping[str, float]]) -> LayerChart:
    rows = []
    for side, mix in mixes.items():
        bars, start = [], 0.0
        for reason, share in mix.items():
            if share:
                others = [(name, f"{other.get(reason, 0.0):.1%}") for name, other in mixes.items()]
                tip = vega.tip(reason, others)
                bars.append(vega.Bar(reason, start, start + 100 * share, tip, reason))
            start += 100 * share
        rows.append(vega.Row(side, tuple(bars)))
    keys = dict.fromkeys(bar.key for row in rows for bar in row.bars)
    return vega.rows(rows, {key: colours.stall(key) for key in keys}, title=phrase("comparison.mix_axis"), most=100)
