"""Charts of launches: each in characters and as a plotly figure that is made when shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fiprof.analysis import roofline
from fiprof.model.quantities import SHARED_MEMORY, metric
from fiprof.reports.pages import plot
from fiprof.reports.pages.figures import (
    GREY,
    bar,
    bars,
    colours,
    escaped,
    figure,
    hover,
    keys_of,
    label,
    log_axis,
    scatter,
)
from fiprof.reports.pages.page import Chart
from fiprof.reports.roofline_chart import chart as chart_in_characters
from fiprof.reports.words import entry, phrase, worded

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from fiprof.analysis.roofline import LaunchRoofline, Rooflines
    from fiprof.analysis.show import Figures, LaunchFigures
    from fiprof.analysis.stalls import LaunchStalls, StallReport

    _Placed = tuple[LaunchRoofline, roofline.MemoryRoof, tuple[float, float]]

T = TypeVar("T", "LaunchStalls", "LaunchFigures")

MOST_BARS = 40
"""Launches that a chart of bars shows: those that took most time."""
MOST_NUMBERED = 40
"""Points with their launch's number beside them; more are named under the mouse alone."""
SMALLEST_REASON = 0.01
"""A stall reason that has less in every launch is drawn with the others."""


# The roofline


def roofline_chart(rooflines: Rooflines) -> Chart:
    """Launches under the roofs of the GPU, both axes logarithmic."""
    placed = [item for item in rooflines.launches if item.roof is not None]
    without, moving = len(rooflines.launches) - len(placed), sum(item.work is None for item in placed)
    return Chart(
        anchor="chart-roofline",
        title="Roofline",
        text=chart_in_characters(rooflines, width=plot.WIDTH),
        figure=lambda: _roofline(placed),
        caption=phrase(
            "chart.roofline",
            bytes=phrase("chart.roofline_bytes", count=moving) if moving else "",
            without=phrase("chart.roofline_without", count=without) if without else "",
        ),
        hint=phrase("chart.roofline_hint"),
    )


def _roofline(placed: Sequence[LaunchRoofline]) -> Figure:
    memories = {level: high for level, (_, high) in roofline.memory_roofs(placed).items()}
    works = {kind: high for kind, (_, high) in roofline.compute_roofs(placed).items()}
    x = [memory.flop_per_byte for item in placed for memory in item.memories if memory.flop_per_byte]
    x += [roof / bandwidth for roof in works.values() for bandwidth in memories.values()]
    left, right = (min(x, default=0.1) / 3, max(x, default=10.0) * 4)
    edge = left * 1.1
    points = [(item, memory, at) for item in placed for memory in item.memories if (at := item.point(memory, edge))]
    y = [ops / 1e12 for _, _, (_, ops) in points] + [roof / 1e12 for roof in works.values()]
    top = max(y, default=1.0) * 2
    bottom = min(y, default=0.1) / 3
    traces: list[Any] = []
    for level, bandwidth in memories.items():
        # To the ridge with the highest compute roof; without one to the right end.
        end = min(right, max(works.values()) / bandwidth) if works else right
        traces.append(_roof(level, f"{bandwidth / 1e12:.2f} TB/s", [left, end], [bandwidth * left, bandwidth * end]))
    for kind, roof in works.items():
        start = roof / max(memories.values()) if memories else left
        traces.append(_roof(kind, f"{roof / 1e12:.1f} TFLOP/s", [max(left, start), right], [roof, roof]))
    kernels = colours([item.kernel for item in placed])
    for name, (colour, _) in kernels.items():
        mine = [point for point in points if point[0].kernel == name and _first(*point[:2])]
        traces.append(_points(mine, label(name), [colour] * len(mine), "circle", numbered=len(placed) <= MOST_NUMBERED))
    for other, symbol in ((roofline.Level.L2, "square-open"), (roofline.Level.L1, "diamond-open")):
        mine = [point for point in points if point[1].level == other and not _first(*point[:2])]
        traces.append(_points(mine, f"over {other}'s bytes", [kernels[item.kernel][0] for item, _, _ in mine], symbol))
    return figure(
        traces,
        height=560,
        xaxis=log_axis("arithmetic intensity, FLOP/byte", left, right),
        yaxis=log_axis("achieved, TFLOP/s", bottom, top),
    )


def _first(item: LaunchRoofline, memory: roofline.MemoryRoof) -> bool:
    """Whether it is the point that is shown at first: over DRAM, or over the busiest memory without work."""
    return item.work is None or memory.level == roofline.Level.DRAM


def _points(points: Sequence[_Placed], name: str, colour: Sequence[str], symbol: str, *, numbered: bool = False) -> Any:
    """Launches over the bytes of a memory; those of L2 and L1 when the legend asks for them."""
    return scatter(
        [intensity for _, _, (intensity, _) in points],
        [ops / 1e12 for _, _, (_, ops) in points],
        mode="markers+text" if numbered else "markers",
        text=[str(item.launch) for item, _, _ in points],
        textposition="bottom right",
        marker={"symbol": symbol, "size": 11, "color": list(colour), "line": {"width": 1.5, "color": list(colour)}},
        name=name,
        visible=True if symbol == "circle" else "legendonly",
        hovertext=[_point(item, memory) for item, memory, _ in points],
    )


def _roof(name: str, value: str, x: list[float], ops: list[float]) -> Any:
    """A line with its name at the end, and points along it for the mouse."""
    steps = 24
    xs = [x[0] * (x[1] / x[0]) ** (i / steps) for i in range(steps + 1)]
    ys = [ops[0] * (ops[1] / ops[0]) ** (i / steps) / 1e12 for i in range(steps + 1)]
    sloped = ops[0] != ops[1]
    at = steps // 3 if sloped else steps - 1
    return scatter(
        xs,
        ys,
        mode="lines+text",
        text=[f"{escaped(name)} {value}" if i == at else "" for i in range(steps + 1)],
        textposition="bottom right" if sloped else "top left",
        line={"color": GREY, "width": 1.5, "dash": "solid" if sloped else "dash"},
        showlegend=False,
        hovertext=hover(f"{name} roof", [("peak at the measured clock", value)]),
    )


def _point(item: LaunchRoofline, memory: roofline.MemoryRoof) -> str:
    traffic = f"{memory.bytes_per_second / 1e9:,.1f} GB/s, {memory.share:.1%} of its peak"
    rows = [
        ("case", item.label),
        ("duration (ncu)", _number(item.duration_us, ",.2f", "µs")),
        (f"{memory.level} traffic", traffic),
    ]
    if item.work is not None:
        roof = f"{item.roof}: {(item.attainable_ops_per_second or 0) / 1e12:,.2f} TFLOP/s"
        rows[2:2] = [
            ("achieved", f"{item.work.ops_per_second / 1e12:,.2f} TFLOP/s of {item.work.kind}"),
            ("intensity", f"{memory.flop_per_byte:,.3g} FLOP/byte of {memory.level}"),
        ]
        rows += [("lowest roof", roof), ("share of it", _number(item.share, ".1%"))]
    return hover(f"launch {item.launch} · {item.kernel}", rows)


def _number(value: float | None, spec: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{spec}} {unit}".rstrip()


# Stalls


def stalls_chart(report: StallReport) -> Chart:
    """What the warps of each launch waited for: one bar of all their time a launch."""
    launches = _representatives(report.launches, lambda item: item.duration_us)
    reasons = _shown_reasons(launches)
    stacks = [plot.Stack(f"{item.launch} {item.label}", tuple(_weights(item, reasons).items())) for item in launches]
    return Chart(
        anchor="chart-stalls",
        title="Warp stalls of each launch",
        text=plot.stacks(stacks),
        figure=lambda: _stalls(launches, reasons),
        caption=phrase("chart.stalls", only=_only(len(launches), len(report.launches))),
    )


def _representatives(launches: Sequence[T], time_us: Callable[[T], float | None]) -> list[T]:
    """Of each kernel of a case the launch of median duration; of those the longest, in the order of the launches."""
    groups: dict[tuple[str | None, str], list[T]] = {}
    for item in launches:
        groups.setdefault((item.case, item.kernel), []).append(item)
    middle = [sorted(group, key=lambda item: time_us(item) or 0.0)[(len(group) - 1) // 2] for group in groups.values()]
    longest = sorted(middle, key=lambda item: -(time_us(item) or 0.0))[:MOST_BARS]
    return sorted(longest, key=lambda item: item.launch or 0)


def _names(launches: Sequence[LaunchStalls] | Sequence[LaunchFigures]) -> list[str]:
    """What stands beside the launches' bars."""
    return [f"{item.launch} · {item.label}" for item in launches]


def _only(shown: int, all_: int) -> str:
    return "" if shown == all_ else phrase("chart.only", shown=shown, all=all_)


_OTHER = "other"


def _shown_reasons(launches: Sequence[LaunchStalls]) -> list[str]:
    """Reasons by their weight in all launches, the largest first."""
    totals: dict[str, float] = {}
    for item in launches:
        for stall in item.stalls:
            if stall.weight >= SMALLEST_REASON:
                totals[stall.reason] = totals.get(stall.reason, 0.0) + stall.weight
    return sorted(totals, key=lambda reason: (-totals[reason], reason))


def _weights(item: LaunchStalls, reasons: Sequence[str]) -> dict[str, float]:
    weights = {stall.reason: stall.weight for stall in item.stalls}
    found = {reason: weights.pop(reason, 0.0) for reason in reasons}
    return {**found, _OTHER: sum(weights.values())}


def _stalls(launches: Sequence[LaunchStalls], reasons: Sequence[str]) -> Figure:
    palette = colours(reasons)
    weights = [_weights(item, reasons) for item in launches]
    traces = []
    for reason in (*reasons, _OTHER):
        colour, pattern = palette.get(reason, (GREY, ""))
        shares = [found[reason] for found in weights]
        if any(shares):
            texts = [_stall(item, reason, share) for item, share in zip(launches, shares, strict=True)]
            drawn = {"shape": pattern, "fillmode": "overlay", "fgcolor": "#ffffff", "size": 6}
            marker = {"color": colour, "pattern": drawn}
            values = [100 * share for share in shares]
            traces.append(bar(keys_of(launches), values, texts, name=escaped(reason), marker=marker))
    layout = {"barmode": "stack", "bargap": 0.25, "legend": {"traceorder": "normal"}}
    return bars(traces, _names(launches), "share of the warps' time, %", most=100, around=190, **layout)


def _stall(item: LaunchStalls, reason: str, share: float) -> str:
    stall = next((stall for stall in item.stalls if stall.reason == reason), None)
    rows = [("share of the warps' time", f"{share:.1%}")]
    if stall is not None:
        rows += [
            ("warps per issue", _number(stall.warps_per_issue, ".2f")),
            ("share of the samples", _number(stall.sampled_share, ".1%")),
            ("meaning", f"warps {entry('stall_meaning', reason)}"),
        ]
    return hover(f"{reason} · launch {item.launch} · {item.kernel}", [*rows, ("case", item.label)])


# Occupancy

ACHIEVED, THEORETICAL = metric("achieved_occupancy_pct"), metric("theoretical_occupancy_pct")


def occupancy_chart(figures: Figures) -> Chart:
    """Achieved occupancy of each launch beside the theoretical one."""
    known = [item for item in figures.launches if ACHIEVED.of(item.row) is not None]
    launches = _representatives(known, lambda item: item.duration_us)
    lines = [
        plot.Bar(
            f"{item.launch} {item.label}",
            (ACHIEVED.of(item.row) or 0.0) / 100,
            f"{ACHIEVED.of(item.row):.1f} of {_number(THEORETICAL.of(item.row), '.1f', '%') or '–'}",
        )
        for item in launches
    ]
    return Chart(
        anchor="chart-occupancy",
        title="Occupancy of each launch",
        text=plot.bars(lines, whole=1.0),
        figure=lambda: _occupancy(launches),
        caption=phrase("chart.occupancy", only=_only(len(launches), len(known))),
    )


def _occupancy(launches: Sequence[LaunchFigures]) -> Figure:
    texts = [
        hover(
            f"launch {item.launch} · {item.kernel}",
            [
                ("case", item.label),
                ("achieved", _number(ACHIEVED.of(item.row), ".2f", "%")),
                ("theoretical", _number(THEORETICAL.of(item.row), ".2f", "%")),
                ("limited by", ", ".join(map(worded, item.occupancy.limiters))),
                ("waves", _number(metric("waves_per_sm").of(item.row), ".2f")),
                ("registers a thread", _number(metric("registers_per_thread").of(item.row), ".0f")),
                ("shared memory a block", _number(SHARED_MEMORY.of(item.row), ".2f", "kB")),
            ],
        )
        for item in launches
    ]
    keys = keys_of(launches)
    achieved, theoretical = colours(["achieved", "theoretical"]).values()
    line = {"symbol": "line-ns", "size": 18, "line": {"width": 3, "color": theoretical[0]}}
    traces = [
        bar(keys, [ACHIEVED.of(item.row) for item in launches], texts, name="achieved", marker={"color": achieved[0]}),
        scatter(
            [THEORETICAL.of(item.row) for item in launches],
            keys,
            mode="markers",
            name="theoretical",
            marker=line,
            hovertext=texts,
        ),
    ]
    return bars(traces, _names(launches), "occupancy, %", most=104, around=150, bargap=0.35)


# Use of the hardware

USES = {
    "compute": metric("sm_throughput_pct"),
    "issue slots": metric("issue_slot_busy_pct"),
    "L2": metric("l2_to_sm_pct"),
    "DRAM": metric("dram_throughput_pct"),
}
"""What is drawn -> its use in percent of its peak. Of L2 the way to the multiprocessors: ncu's figure for the whole of
it is of a part that its report does not show."""


def use_chart(figures: Figures) -> Chart:
    """How far each launch uses compute, issue slots, L2 and DRAM."""
    known = [item for item in figures.launches if any(use.of(item.row) is not None for use in USES.values())]
    launches = _representatives(known, lambda item: item.duration_us)
    lines = [
        plot.Bar(f"{item.launch} {item.label} {name}", value / 100, f"{value:.1f}%")
        for item in launches
        for name, use in USES.items()
        if (value := use.of(item.row)) is not None
    ]
    return Chart(
        anchor="chart-use",
        title="Use of the hardware by each launch",
        text=plot.bars(lines, whole=1.0),
        figure=lambda: _use(launches),
        caption=phrase("chart.use", only=_only(len(launches), len(known))),
    )


def _use(launches: Sequence[LaunchFigures]) -> Figure:
    traces = []
    for (name, use), (colour, _) in zip(USES.items(), colours(list(USES)).values(), strict=True):
        texts = [
            hover(
                f"launch {item.launch} · {item.kernel}",
                [("case", item.label), (name, _number(use.of(item.row), ".1f", "% of its peak"))],
            )
            for item in launches
        ]
        values = [use.of(item.row) for item in launches]
        traces.append(bar(keys_of(launches), values, texts, name=name, marker={"color": colour}))
    layout = {"barmode": "group", "bargap": 0.25}
    return bars(traces, _names(launches), "use, % of its peak", most=104, around=150 + 26 * len(launches), **layout)
