"""What the charts of a page share: colours, axes, and names as text, because plotly obeys some HTML in names."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fiprof.text import escape_control, shorten

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLOURS = ("#2994ff", "#a54a1d", "#999900", "#9841aa", "#2a6f63", "#ff3d9e", "#c48464", "#5d3dff")
"""Each with a contrast of 3 and more to the paper of both schemes, and told apart with any colour blindness (CIE76
distance above 22 in the simulations of Machado et al. 2009): ``tests/test_reports_charts.py`` holds both."""
PATTERNS = ("", "/", ".", "x")
"""Where there are more things than colours."""
GREY = "#7f8790"
LONGEST_LABEL = 34
"""Characters of a name on an axis or in a legend."""
ROW_PX = 30
"""Height of a bar with its gap."""


def label(name: str) -> str:
    """A name as plotly shows it as it is, on an axis or in a legend."""
    return escaped(shorten(escape_control(name), LONGEST_LABEL))


def escaped(text: str) -> str:
    """Text that plotly shows as it is."""
    return html.escape(escape_control(text), quote=False)


def hover(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """What stands beside the mouse: a title, and names with their values and units."""
    lines = [
        f"<b>{escaped(shorten(escape_control(title), 80))}</b>",
        *(f"{escaped(n)}: {escaped(v)}" for n, v in rows if v),
    ]
    return "<br>".join(lines)


def colours(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Name -> its colour and pattern, in the order of the names; those beyond all pairs are grey."""
    distinct = list(dict.fromkeys(names))
    pairs = [(colour, pattern) for pattern in PATTERNS for colour in COLOURS]
    return {name: pairs[i] if i < len(pairs) else (GREY, "") for i, name in enumerate(distinct)}


def figure(traces: Sequence[Any], *, height: int, **layout: Any) -> Figure:
    """A figure in this project's manner: no background of its own, the legend below, colours for both schemes.

    height: px. layout: more of plotly's, which wins.
    """
    import plotly.graph_objects as go

    base: dict[str, Any] = {
        "height": height,
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif", "size": 12.5},
        "margin": {"l": 8, "r": 16, "t": 24, "b": 8},
        "colorway": list(COLOURS),
        "legend": {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "xanchor": "left", "x": 0},
        "hoverlabel": {"align": "left", "namelength": -1},
        "hovermode": "closest",
        "dragmode": "zoom",
        "modebar": {"remove": ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"], "bgcolor": "rgba(0,0,0,0)"},
    }
    made = go.Figure(list(traces))
    made.update_layout(base)
    made.update_layout(layout)
    return made


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with a title and a grid."""
    base = {
        "title": {"text": escaped(title), "standoff": 8},
        "automargin": True,
        "showgrid": True,
        "gridcolor": "rgba(128,136,146,0.35)",
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": "rgba(128,136,146,0.6)",
    }
    return {**base, **more}


def log_axis(title: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    """A logarithmic axis from low to high, in whole numbers where they are."""
    import math

    decades = math.log10(high / low)
    return axis(
        title,
        type="log",
        range=[math.log10(low), math.log10(high)],
        dtick=1 if decades > 2.5 else "D1" if decades < 1 else "D2",
        exponentformat="none",
        separatethousands=True,
        **more,
    )


def category_axis(keys: Sequence[str], labels: Sequence[str], **more: Any) -> dict[str, Any]:
    """An axis of names from the top: keys are told apart by plotly, labels are what is read."""
    base = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(keys),
        "tickmode": "array",
        "tickvals": list(keys),
        "ticktext": list(labels),
        "autorange": "reversed",
        "automargin": True,
        "showgrid": False,
        "zeroline": False,
    }
    return {**base, **more}


def bar(keys: Sequence[str], values: Sequence[float | None], texts: Sequence[str], **more: Any) -> Any:
    """Bars to the right. texts: what stands beside the mouse."""
    import plotly.graph_objects as go

    return go.Bar(orientation="h", y=list(keys), x=list(values), hovertext=list(texts), hoverinfo="text", **more)


def scatter(x: Iterable[Any], y: Iterable[Any], **more: Any) -> Any:
    """Lines or points. more: of plotly's; ``hovertext`` is what stands beside the mouse."""
    import plotly.graph_objects as go

    return go.Scatter(x=list(x), y=list(y), **({"hoverinfo": "text"} if "hovertext" in more else {}), **more)


def bars(traces: Sequence[Any], names: Sequence[str], title: str, *, most: float, around: int, **layout: Any) -> Figure:
    """A figure of bars below each other, percent of something, whose keys are 0, 1, ….

    most: the end of the axis. around: px beside the bars themselves.
    """
    return figure(
        traces,
        height=max(len(names), 2) * ROW_PX + around,
        xaxis=axis(title, range=[0, most], ticksuffix="%"),
        yaxis=category_axis(keys_of(names), [label(name) for name in names]),
        **layout,
    )


def keys_of(items: Sequence[object]) -> list[str]:
    """What tells bars apart, where their names need not differ."""
    return [str(index) for index in range(len(items))]
