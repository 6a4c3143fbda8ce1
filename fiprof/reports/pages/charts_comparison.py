"""Charts of a comparison: what accounts for a change, intervals of changes, and the stall mixes of both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.reports.pages import colours, plot, vega
from fiprof.reports.pages.page import Chart

if TYPE_CHECKING:
    from altair import LayerChart

CHANGES = {"longer": "#ff5500", "shorter": "#2994ff"}
SIDES = {"A": "#999900", "B": "#9841aa"}
"""Of colours.COLOURS, told apart with any colour blindness."""
DOT_PX = 26
"""Area of a process's dot."""
SMALLEST_REASON = 0.01
"""A stall reason that has less on both sides is drawn with the others."""
OTHER = "other"


@dataclass(frozen=True)
class Contribution:
    """A part of a change."""

    name: str
    change: float
    """In the chart's unit; longer is positive."""
    sides: tuple[tuple[str, str], ...] = ()
    """What stands beside the mouse."""


def contributions_chart(
    anchor: str, title: str, items: Sequence[Contribution], *, unit: str, caption: str = ""
) -> Chart:
    """Bars to the right for what makes side B longer, to the left for what makes it shorter."""
    words = [f"{each.change:+,.2f} {unit}" for each in items]

    def figure() -> LayerChart:
        rows = []
        for each, text in zip(items, words, strict=True):
            key = "longer" if each.change > 0 else "shorter"
            tip = vega.tip(each.name, [("accounts for", text), *each.sides])
            rows.append({"a": min(each.change, 0.0), "b": max(each.change, 0.0), "key": key, "tip": tip})
        fill = vega.keyed("Fill", CHANGES, vega.legend(list(CHANGES)))
        domain = min(0.0, *(each.change for each in items)), max(0.0, *(each.change for each in items)) or 1.0

        def layers(bars: Any, x: Any, y: Any) -> list[Any]:
            return [bars.mark_rect(tooltip=vega.TIP).encode(x, y, fill, x2="b", y2="d")]

        return _rows([each.name for each in items], words, rows, domain, unit, layers)

    largest = max((abs(each.change) for each in items), default=1.0) or 1.0
    lines = [plot.Bar(each.name, abs(each.change) / largest, text) for each, text in zip(items, words, strict=True)]
    caption = caption or "How much longer side B takes for each part."
    return Chart(anchor, title, plot.bars(lines), figure, caption)


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

    def figure() -> LayerChart:
        rows, dots = [], []
        for index, each in enumerate(items):
            tip = vega.tip(each.name, [("change", each.words)])
            rows.append({"a": each.low, "b": each.high, "v": each.value, "tip": tip})
            for side, change in each.processes:
                place = _top(index) + vega.BAR_PX * (0.25 if side == "A" else 0.75)
                dots.append({"a": change, "c": place, "key": side, "tip": vega.tip(side, [("", f"{change:+.2f}%")])})
        ends = [value for each in items for value in (each.low, each.high, *(change for _, change in each.processes))]
        band = vega.marks([{"a": -same, "b": same, "c": 0, "d": _top(len(items)) - vega.NAME_PX}])
        fill = vega.keyed("Fill", SIDES, vega.legend(list(SIDES)))

        def layers(bars: Any, x: Any, y: Any) -> list[Any]:
            import altair as alt

            return [
                band.mark_rect(color=vega.INK, opacity=0.07).encode(x, y, x2="b", y2="d"),
                bars.mark_rect(color=vega.INK, opacity=0.28, tooltip=vega.TIP).encode(x, y, x2="b", y2="d"),
                bars.mark_rule(strokeWidth=2, color=vega.INK).encode(alt.X("v:Q"), y, y2="d"),
                vega.marks(dots).mark_circle(size=DOT_PX, opacity=0.9, tooltip=vega.TIP).encode(x, y, fill),
            ]

        names, words = [each.name for each in items], [each.words for each in items]
        return _rows(names, words, rows, (min(-same, *ends), max(same, *ends)), "%", layers)

    largest = max((abs(each.value) for each in items), default=0) or 1.0
    lines = [plot.Bar(each.name, abs(each.value) / largest, each.words) for each in items]
    return Chart(anchor, title, plot.bars(lines), figure, caption)


def _top(index: int) -> int:
    """Where the bar of a row begins, px from the top."""
    return index * (vega.NAME_PX + vega.BAR_PX + vega.GAP_PX) + vega.NAME_PX


def _rows(
    names: Sequence[str],
    words: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    domain: tuple[float, float],
    unit: str,
    layers: Any,
) -> LayerChart:
    """A row a bar: its name and words above, the bar around 0. layers: what is drawn of the bars, on these axes."""
    import altair as alt

    height = _top(len(rows)) - vega.NAME_PX
    bars = vega.marks([{**row, "c": _top(i), "d": _top(i) + vega.BAR_PX} for i, row in enumerate(rows)])
    named = vega.marks(
        [
            {"name": vega.text(name), "words": text, "y": _top(i) - 5, "room": len(text) * vega.CHAR_PX + 8}
            for i, (name, text) in enumerate(zip(names, words, strict=True))
        ]
    )
    zero = vega.marks([{"a": 0, "c": 0, "d": height}])
    ruler = vega.axis(unit, tickCount={"expr": "max(3, width / 90)"})
    x, y = alt.X("a:Q", scale=alt.Scale(domain=list(domain), nice=True), axis=ruler), vega.pixels("c", height)
    heading = {"y": vega.pixels("y", height)}
    room = {"expr": "max(40, width - datum.room)"}
    return vega.figure(
        [
            *layers(bars, x, y),
            zero.mark_rule(strokeWidth=1, color=vega.INK).encode(alt.X("a:Q"), y, y2="d"),
            named.mark_text(align="left", baseline="alphabetic", limit=room).encode(
                x=alt.value(0), text="name:N", **heading
            ),
            named.mark_text(align="right", baseline="alphabetic").encode(
                x=alt.value(alt.expr("width")), text="words:N", **heading
            ),
        ],
        height=height,
    )


def mixes_chart(anchor: str, title: str, mixes: Mapping[str, Mapping[str, float]]) -> Chart:
    """A bar of all the warps' time a side. mixes: side -> stall reason -> its share, 0 to 1."""
    weights = {reason: max(mix.get(reason, 0.0) for mix in mixes.values()) for mix in mixes.values() for reason in mix}
    reasons = sorted((each for each in weights if weights[each] >= SMALLEST_REASON), key=lambda each: -weights[each])
    shown = {side: {each: mix.get(each, 0.0) for each in reasons} for side, mix in mixes.items()}
    for side, mix in mixes.items():
        shown[side][OTHER] = max(sum(mix.values()) - sum(shown[side].values()), 0.0)

    def figure() -> LayerChart:
        rows = []
        for side, mix in shown.items():
            bars, start = [], 0.0
            for reason, share in mix.items():
                if share:
                    sides = [(name, f"{other.get(reason, 0.0):.1%}") for name, other in shown.items()]
                    bars.append(vega.Bar(reason, start, start + 100 * share, vega.tip(reason, sides), reason))
                start += 100 * share
            rows.append(vega.Row(side, tuple(bars)))
        palette = {bar.key: colours.stall(bar.key) for row in rows for bar in row.bars}
        return vega.rows(rows, palette, title="share of the warps' time", most=100)

    caption = (
        "Share of all warps' time by reason, percent, by ncu's counters (by its samples where it has no counters). "
        "selected is issuing and not_selected is ready: no stalls."
    )
    stacks = [plot.Stack(side, tuple(mix.items())) for side, mix in shown.items()]
    return Chart(anchor, title, plot.stacks(stacks), figure, caption)
