"""The roofline of launches as an Altair chart: points with numbers, their key below, roofs named along their lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fiprof.analysis import roofline
from fiprof.reports.pages import colours, vega
from fiprof.reports.pages.vega import number

if TYPE_CHECKING:
    from altair import LayerChart

    from fiprof.analysis.roofline import LaunchRoofline

    _Placed = tuple[LaunchRoofline, roofline.MemoryRoof, tuple[float, float]]

Pair = tuple[float, float]

HEIGHT = 460
WIDTHS = {"wide": 800, "narrow": 270}
"""Pixels of a plot for which names look for room: on a desk, on a phone."""
ASIDE_PX, ABOVE_PX, POINT_PX = 10, 26, 9
"""From a line to the middle of its name; from the highest roof to the top; how much worse than on a line a name lies on
a point."""
KEY_PX = 250
"""Width of a column of the key."""
MOST_NUMBERED = 40
"""Points with their launch's number beside them; more are named under the mouse alone."""
ALL_BYTES = "DRAM, L2 and L1"
SYMBOLS = {"DRAM": "circle", "L2": "square", "L1": "diamond"}


def figure(placed: Sequence[LaunchRoofline]) -> LayerChart:
    """Both axes logarithmic; the points over L2's and L1's bytes are shown when asked for."""
    import altair as alt

    memories = {level: high for level, (_, high) in roofline.memory_roofs(placed).items()}
    works = {kind: high for kind, (_, high) in roofline.compute_roofs(placed).items()}
    x = [memory.flop_per_byte for item in placed for memory in item.memories if memory.flop_per_byte]
    x += [roof / bandwidth for roof in works.values() for bandwidth in memories.values()]
    left, right = min(x, default=0.1) / 3, max(x, default=10.0) * 4
    points = [(i, m, at) for i in placed for m in i.memories if (at := i.point(m, left * 1.15))]
    y = [ops / 1e12 for _, _, (_, ops) in points] + [roof / 1e12 for roof in works.values()]
    bottom, top = min(y, default=0.1) / 3, max(y, default=1.0)
    top *= (top / bottom) ** (ABOVE_PX / (HEIGHT - ABOVE_PX))
    numbered = len(placed) <= MOST_NUMBERED
    names = _names(placed, numbered)
    drawn = [_point(*point, names) for point in points if numbered or _first(*point[:2])]
    shown = [(point["x"], point["y"]) for point in drawn if point["first"]]
    planes = {name: _Plane(left, right, bottom, top, width, shown) for name, width in WIDTHS.items()}
    teras = [{str(name): peak / 1e12 for name, peak in peaks.items()} for peaks in (memories, works)]
    roofs = {name: plane.roofs(*teras) for name, plane in planes.items()}
    palette = {names[item.launch]: colours.kernel(item.kernel)[1] for item in placed}
    across = alt.X("x:Q", **vega.log_axis("arithmetic intensity, FLOP/byte", left, right))
    up = alt.Y("y:Q", **vega.log_axis("achieved, TFLOP/s", bottom, top))
    color = vega.keyed("Color", palette, vega.legend(list(palette), symbol="circle", column_px=KEY_PX))
    first = vega.marks([point for point in drawn if point["first"]])
    layers = [
        vega.marks(roofs["wide"])
        .mark_rule(color=colours.GREY, strokeWidth=1.5, tooltip=vega.TIP)
        .encode(across, up, x2="x2", y2="y2", strokeDash=alt.StrokeDash("dash:N", scale=None))
        .properties(name="roofs"),
        *(_roof_names(name, roofs[name], planes[name].angle) for name in WIDTHS),
        first.mark_point(size=110, filled=True, opacity=1, tooltip=vega.TIP)
        .encode(across, up, color)
        .properties(name="points"),
    ]
    if not numbered or len(memories) < 2:
        return vega.figure(layers, height=HEIGHT)
    show = alt.binding_radio(options=["DRAM", ALL_BYTES], name="Over the bytes of ")
    shape = alt.Shape("level:N", scale=alt.Scale(domain=list(SYMBOLS), range=list(SYMBOLS.values())), legend=None)
    others = vega.marks([point for point in drawn if not point["first"]]).transform_filter("bytes != 'DRAM'")
    layers += [
        others.mark_point(size=70, strokeWidth=1.8, tooltip=vega.TIP).encode(across, up, color, shape),
        first.mark_text(align="left", baseline="middle", dx=8, fontWeight="bold")
        .encode(across, up, text="number:N")
        .properties(name="numbers"),
    ]
    return vega.figure(layers, height=HEIGHT, params=[alt.param(name="bytes", value="DRAM", bind=show)])


def _roof_names(name: str, roofs: Sequence[dict[str, Any]], angle: str) -> Any:
    """The names of the roofs for one of WIDTHS; there are none where the plot has the other."""
    import altair as alt

    shown = {"expr": f"({vega.NARROW}) == {json.dumps(name == 'narrow')} ? datum.name : ''"}
    aside = {"expr": f"-{ASIDE_PX} * datum.side"}
    text = vega.marks(roofs).mark_text(align="center", baseline="middle", dy=aside, angle={"expr": angle}, text=shown)
    return text.encode(alt.X("at:Q"), alt.Y("high:Q")).properties(name=f"roof_names_{name}")


def _names(placed: Sequence[LaunchRoofline], numbered: bool) -> dict[int | None, str]:
    """Launch -> its name in the key; of many launches their kernel's."""
    if not numbered:
        return {item.launch: vega.text(colours.kernel(item.kernel)[0]) for item in placed}
    labels = [item.label for item in placed]
    several = {label for label in labels if labels.count(label) > 1}
    return {
        item.launch: vega.text(f"{item.launch} {item.label}{f' · {item.kernel}' * (item.label in several)}")
        for item in placed
    }


def _first(item: LaunchRoofline, memory: roofline.MemoryRoof) -> bool:
    """Whether it is the point that is shown at first: over DRAM, or over the busiest memory without work."""
    return item.work is None or memory.level == roofline.Level.DRAM


def _point(
    item: LaunchRoofline, memory: roofline.MemoryRoof, at: tuple[float, float], names: dict[int | None, str]
) -> dict[str, Any]:
    traffic = f"{memory.bytes_per_second / 1e9:,.1f} GB/s, {memory.share:.1%} of its peak"
    rows = [
        ("case", item.label),
        ("duration (ncu)", number(item.duration_us, ",.2f", "µs")),
        (f"{memory.level} traffic", traffic),
    ]
    if item.work is not None:
        roof = f"{item.roof}: {(item.attainable_ops_per_second or 0) / 1e12:,.2f} TFLOP/s"
        rows[2:2] = [
            ("achieved", f"{item.work.ops_per_second / 1e12:,.2f} TFLOP/s of {item.work.kind}"),
            ("intensity", f"{memory.flop_per_byte:,.3g} FLOP/byte of {memory.level}"),
        ]
        rows += [("lowest roof", roof), ("share of it", "" if item.share is None else f"{item.share:.1%}")]
    return {
        "x": at[0],
        "y": at[1] / 1e12,
        "key": names[item.launch],
        "number": str(item.launch),
        "level": str(memory.level),
        "first": _first(item, memory),
        "tip": vega.tip(f"launch {item.launch} · {item.kernel}", rows),
    }


class _Plane:
    """Where lines and their names are, on both logarithms."""

    def __init__(
        self, left: float, right: float, bottom: float, top: float, width: float, points: Iterable[Pair]
    ) -> None:
        self.left, self.right, self.bottom, self.top, self.width = left, right, bottom, top, width
        self.taken = [self._pixel(*point) for point in points]
        across, up = math.log10(right / left), math.log10(top / bottom)
        self.angle = f"-atan2({HEIGHT / up}, width / {across}) * 180 / PI * datum.sloped"

    def _pixel(self, x: float, y: float) -> Pair:
        across = math.log10(x / self.left) / math.log10(self.right / self.left)
        return across * self.width, math.log10(y / self.bottom) / math.log10(self.top / self.bottom) * HEIGHT

    def roofs(self, memories: Mapping[str, float], works: Mapping[str, float]) -> list[dict[str, Any]]:
        """Memories' roofs in TB/s from the left to the ridge with the highest compute roof; those in TFLOP/s from the
        ridge with the fastest memory to the right. Each is named where there is most room along it."""
        lines: list[tuple[str, Pair, Pair]] = []
        for name, peak in memories.items():
            first = max(self.left, self.bottom / peak)
            last = min(self.right, (max(works.values()) if works else self.top) / peak)
            lines.append((f"{name} {peak:.2f} TB/s", (first, first * peak), (last, last * peak)))
        for name, peak in works.items():
            first = max(self.left, peak / max(memories.values())) if memories else self.left
            told = f"{peak:,.1f} TFLOP/s" if self.width > WIDTHS["narrow"] else f"{peak:,.0f}"
            lines.append((f"{name} {told}", (first, peak), (self.right, peak)))
        made = []
        for name, start, end in lines:
            others = [(self._pixel(*a), self._pixel(*b)) for other, a, b in lines if other != name]
            share, side = self._place(name, self._pixel(*start), self._pixel(*end), others)
            at, high = (a * (b / a) ** share for a, b in zip(start, end, strict=True))
            sloped = start[1] != end[1]
            made.append(
                {
                    "x": start[0],
                    "y": start[1],
                    "x2": end[0],
                    "y2": end[1],
                    "name": name,
                    "at": at,
                    "high": high,
                    "side": side,
                    "sloped": int(sloped),
                    "dash": [1, 0] if sloped else [5, 4],
                    "tip": vega.tip(f"{name}: the peak at the measured clock", ()),
                }
            )
        return made

    def _place(self, name: str, start: Pair, end: Pair, others: Sequence[tuple[Pair, Pair]]) -> tuple[float, int]:
        """The share of a line at which its name has most room, and whether above (1) or below it (-1); from then on the
        name takes that place."""
        length = math.dist(start, end) or 1.0
        half = (len(name) * vega.CHAR_PX / 2 + 4) / length
        up = (start[1] - end[1]) / length * ASIDE_PX, (end[0] - start[0]) / length * ASIDE_PX
        steps = [half * i / 8 for i in range(-8, 9)]

        def spots(share: float, side: int) -> list[Pair]:
            return [
                tuple(a + (b - a) * (share + step) + side * u for a, b, u in zip(start, end, up, strict=True))  # type: ignore[misc]
                for step in steps
            ]

        def room(place: tuple[float, int]) -> float:
            found = [
                distance
                for spot in spots(*place)
                for distance in (
                    *(math.dist(spot, taken) - POINT_PX for taken in self.taken),
                    *(_distance(spot, *line) for line in others),
                    HEIGHT - spot[1],
                    spot[0],
                    self.width - spot[0],
                )
            ]
            return min(found)

        places = [(i / 40, side) for side in (1, -1) for i in range(41)]
        best = max(places, key=lambda place: min(room(place), 24.0))
        self.taken += spots(*best)
        return best


def _distance(point: Pair, start: Pair, end: Pair) -> float:
    """From a point to a line between two others."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    along = ((point[0] - start[0]) * dx + (point[1] - start[1]) * dy) / (dx * dx + dy * dy or 1.0)
    share = min(max(along, 0.0), 1.0)
    return math.dist(point, (start[0] + share * dx, start[1] + share * dy))
