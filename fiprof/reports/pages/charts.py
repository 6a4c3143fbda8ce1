"""Charts of launches: each in characters and as an Altair chart that is made when shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from fiprof.model.quantities import SHARED_MEMORY, metric
from fiprof.reports.pages import colours, plot, vega
from fiprof.reports.pages.page import Chart
from fiprof.reports.pages.vega import Bar, Row, number
from fiprof.reports.roofline_chart import chart as chart_in_characters
from fiprof.reports.words import entry, phrase, worded

if TYPE_CHECKING:
    from altair import LayerChart

    from fiprof.analysis.roofline import Rooflines
    from fiprof.analysis.show import Figures, LaunchFigures
    from fiprof.analysis.stalls import LaunchStalls, StallReport

T = TypeVar("T", "LaunchStalls", "LaunchFigures")

MOST_BARS = 40
"""Launches that a chart of bars shows: those that took most time."""
SMALLEST_REASON = 0.01
"""A stall reason that has less in every launch is drawn with the others."""


def roofline_chart(rooflines: Rooflines) -> Chart:
    """Launches under the roofs of the GPU, both axes logarithmic."""
    from fiprof.reports.pages import charts_roofline

    placed = [item for item in rooflines.launches if item.roof is not None]
    without, moving = len(rooflines.launches) - len(placed), sum(item.work is None for item in placed)
    return Chart(
        anchor="chart-roofline",
        title="Roofline",
        text=chart_in_characters(rooflines, width=plot.WIDTH),
        figure=lambda: charts_roofline.figure(placed),
        caption=phrase(
            "chart.roofline",
            bytes=phrase("chart.roofline_bytes", count=moving) if moving else "",
            without=phrase("chart.roofline_without", count=without) if without else "",
        ),
        hint=phrase("chart.roofline_hint") if len(placed) <= charts_roofline.MOST_NUMBERED else "",
    )


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


def _name(item: LaunchStalls | LaunchFigures) -> str:
    """What stands over a launch's bars."""
    return f"{item.launch} · {item.label}"


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


def _stalls(launches: Sequence[LaunchStalls], reasons: Sequence[str]) -> LayerChart:
    palette = {reason: colours.stall(reason) for reason in (*reasons, _OTHER)}
    made = []
    for item in launches:
        bars, start = [], 0.0
        for reason, share in _weights(item, reasons).items():
            if share:
                bars.append(Bar(reason, start, start + 100 * share, _stall(item, reason, share), reason))
            start += 100 * share
        made.append(Row(_name(item), tuple(bars)))
    shown = {bar.key for row in made for bar in row.bars}
    palette = {reason: colour for reason, colour in palette.items() if reason in shown}
    return vega.rows(made, palette, title="share of the warps' time", most=100)


def _stall(item: LaunchStalls, reason: str, share: float) -> vega.Tip:
    stall = next((stall for stall in item.stalls if stall.reason == reason), None)
    rows = [("share of the warps' time", f"{share:.1%}")]
    if stall is not None:
        rows += [
            ("warps per issue", number(stall.warps_per_issue, ".2f")),
            ("share of the samples", number(stall.sampled_share and 100 * stall.sampled_share, ".1f", "%")),
            ("meaning", f"warps {entry('stall_meaning', reason)}"),
        ]
    return vega.tip(f"{reason} · launch {item.launch} · {item.kernel}", [*rows, ("case", item.label)])


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
            f"{ACHIEVED.of(item.row):.1f} of {number(THEORETICAL.of(item.row), '.1f', '%') or '–'}",
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


def _occupancy(launches: Sequence[LaunchFigures]) -> LayerChart:
    made, palette = [], {}
    for item in launches:
        achieved, theoretical = ACHIEVED.of(item.row) or 0.0, THEORETICAL.of(item.row)
        told = [
            ("case", item.label),
            ("achieved", number(achieved, ".2f", "%")),
            ("theoretical", number(theoretical, ".2f", "%")),
            ("limited by", ", ".join(map(worded, item.occupancy.limiters))),
            ("waves", number(metric("waves_per_sm").of(item.row), ".2f")),
            ("registers a thread", number(metric("registers_per_thread").of(item.row), ".0f")),
            ("shared memory a block", number(SHARED_MEMORY.of(item.row), ".2f", "kB")),
        ]
        family, palette[family] = colours.kernel(item.kernel)
        bar = Bar(family, 0, achieved, vega.tip(f"launch {item.launch} · {item.kernel}", told))
        words = f"{achieved:.1f} of {number(theoretical, '.1f') or '–'}%"
        made.append(Row(_name(item), (bar,), words, tick=theoretical))
    return vega.rows(made, palette, title="achieved occupancy; the line is the theoretical one", most=100)
