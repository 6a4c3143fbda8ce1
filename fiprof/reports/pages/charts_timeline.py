"""The timeline of a run as a chart: kernels, calls, phases and the hardware's levels on one axis, a window a case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.analysis import beside, samples, timeline
from fiprof.analysis.analyses import Analyses
from fiprof.model.labels import Labels
from fiprof.model.run import Run
from fiprof.reports import timeline_text
from fiprof.reports.pages import plot
from fiprof.reports.pages.figures import COLOURS, GREY, axis, category_axis, escaped, figure, label, scatter
from fiprof.reports.pages.page import Chart
from fiprof.reports.words import phrase
from fiprof.reports.writers import render
from fiprof.text import short_kernel

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

MOST_WINDOWS = 24
"""Cases in a phase that have a window: the longest ones."""
WINDOW_BINS = 400
"""Pieces of a window: executions of a kernel that begin in the same piece are drawn as one."""
RANGE_COLOUR = "#5f6873"
"""Of phases and cases, whose names stand in them in white."""
MOST_NAMED = 5
"""Kernels with a colour of their own: those that took most time in the windows."""


def timeline_chart(measured: Analyses) -> Chart | None:
    """Kernels by stream, calls, phases and what nsys sampled of the hardware, on one time axis; None without kernels.

    A menu leads to the window of each measured case. Raises FiprofError for a table that cannot be read.
    """
    run, found = measured.run, measured.timeline.measured
    if not found.phases:
        return None
    longest = sorted(found.phases, key=lambda part: -part.length_us)[:MOST_WINDOWS]
    phases = [part for part in found.phases if part in longest]
    rest = len(found.phases) - len(phases)
    windows = {"shown": len(phases), "all": len(found.phases)}
    strips = [render(timeline_text.strips(part), "table", width=plot.WIDTH) for part in phases]
    return Chart(
        anchor="chart-timeline",
        title="Timeline",
        text="\n\n".join(strips),
        figure=lambda: _timeline(run, phases),
        caption=phrase("chart.timeline", rest=phrase("chart.timeline_rest", **windows) if rest else ""),
        hint=phrase("chart.timeline_hint"),
    )


@dataclass(frozen=True)
class _Lane:
    """A line of bars."""

    name: str
    table: str
    rows: pd.DataFrame
    """With start_ns, end_ns and name."""


def _timeline(run: Run, phases: Sequence[timeline.CasePhase]) -> Figure:

    lanes = [*_marked(run), *_calls(run), *_streams(run)]
    windows = [(part.start_us / 1e3, part.end_us / 1e3) for part in phases]
    windows = [(start - 0.03 * (end - start), end + 0.03 * (end - start)) for start, end in windows]
    times = [(float(lane.rows["start_ns"].min()), float(lane.rows["end_ns"].max())) for lane in lanes]
    whole = min(start for start, _ in times) / 1e6, max(end for _, end in times) / 1e6
    shown = [*windows, whole] if len(phases) > 1 or windows[0] != whole else [whole]
    palette = _palette(lanes, windows)
    traces = [trace for lane in lanes for trace in _bars(lane, _drawn(lane.rows, shown), palette)]
    levels = list(_levels(run, shown))
    names = [lane.name for lane in lanes]
    split = 1 - 0.45 * bool(levels)
    made = figure(
        [*traces, *levels],
        height=190 + 30 * len(names) + 170 * bool(levels),
        barmode="overlay",
        uniformtext={"minsize": 10, "mode": "hide"},
        xaxis=axis(
            "time since the trace began, ms", range=list(shown[0]), separatethousands=True,
            anchor="y2" if levels else "y", exponentformat="none",
        ),
        yaxis=category_axis(names, [escaped(name) for name in names], domain=[1 - split + 0.04 * bool(levels), 1]),
        margin={"l": 8, "r": 16, "t": 56, "b": 8},
    )  # fmt: skip
    if levels:
        made.update_layout(yaxis2=axis("level, %", domain=[0, 1 - split], range=[0, 104], fixedrange=True))
    made.update_layout(yaxis={"fixedrange": True}, updatemenus=[_menu(phases, shown)])
    return made


def _bars(lane: _Lane, drawn: pd.DataFrame, palette: Mapping[str, str]) -> Iterable[Any]:
    """A lane's bars: an object for each kernel that has a colour, and one for all the others."""
    import plotly.graph_objects as go

    of_kernels, of_ranges = lane.table == "kernels", lane.table == "ranges"
    known = drawn["name"].where(drawn["name"].isin(list(palette)) & of_kernels, "")
    for name, group in drawn.groupby(known, sort=False):
        names = [str(each) for each in group["name"]]
        coloured = {} if not name else {"name": label(str(name)), "legendgroup": escaped(str(name))}
        yield go.Bar(
            orientation="h",
            y=[lane.name] * len(group),
            base=(group["start_ns"] / 1e6).round(6).tolist(),
            x=((group["end_ns"] - group["start_ns"]) / 1e6).round(6).tolist(),
            width=0.72,
            showlegend=bool(name),
            marker={"color": RANGE_COLOUR if of_ranges else palette.get(str(name), GREY), "line": {"width": 0}},
            text=[label(each) for each in names] if of_ranges else None,
            textposition="inside",
            insidetextanchor="middle",
            hovertext=[escaped(short_kernel(each)) for each in names],
            customdata=_durations(group),
            hovertemplate="<b>%{hovertext}</b><br>%{customdata}<br>start: %{base:,.4f} ms<br>"
            f"on: {escaped(lane.name)}<extra></extra>",
            **coloured,
        )


def _menu(phases: Sequence[timeline.CasePhase], windows: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Leads to the windows."""
    names = [
        part.label
        + (f" · {part.phase}" if part.phase not in (None, "measure") else "")
        + (f" · GPU {part.device}" if part.several_devices else "")
        for part in phases
    ]
    names = [*names, "the whole trace"][: len(windows)] if len(windows) > len(phases) else ["the whole trace"]
    buttons = [
        {"label": label(name), "method": "relayout", "args": [{"xaxis.range": list(window)}]}
        for name, window in zip(names, windows, strict=True)
    ]
    return {
        "type": "dropdown",
        "x": 0,
        "xanchor": "left",
        "y": 1,
        "yanchor": "bottom",
        "pad": {"b": 8},
        "buttons": buttons,
    }


def _palette(lanes: Sequence[_Lane], windows: Sequence[tuple[float, float]]) -> dict[str, str]:
    """Name -> colour, of the kernels that took most time in the windows."""
    totals: dict[str, float] = defaultdict(float)
    for lane in lanes:
        if lane.table == "kernels":
            starts, ends = lane.rows["start_ns"], lane.rows["end_ns"]
            inside = sum(((starts >= start * 1e6) & (ends <= end * 1e6)) for start, end in windows) > 0
            spent = (ends - starts)[inside].groupby(lane.rows["name"][inside], observed=True).sum()
            for name, total in spent.items():
                totals[str(name)] += float(total)
    longest = sorted(totals, key=lambda name: -totals[name])[:MOST_NAMED]
    return dict(zip(longest, _BARS, strict=False))


def _marked(run: Run) -> Iterable[_Lane]:
    """fiprof's phases and cases; without them the outermost ranges of other domains."""
    if not run.has("ranges"):
        return
    labels = Labels(run.manifest.cases)
    frame = run.frame("ranges").dropna(subset=["start_ns", "end_ns"])
    ours = frame[frame["domain"] == beside.FIPROF_DOMAIN]
    lanes = [("phase", ours[ours["depth"] == 0]), ("case", ours[ours["depth"] == 1])]
    if ours.empty:
        lanes = [("NVTX ranges", frame[frame["depth"] == 0])]
    for name, rows in lanes:
        if len(rows):
            kept = rows[["start_ns", "end_ns"]].copy()
            kept["name"] = [labels(str(text)) for text in rows["name"]]
            yield _Lane(name, "ranges", kept)


def _calls(run: Run) -> Iterable[_Lane]:
    if run.has("api"):
        rows = run.frame("api")[["start_ns", "end_ns", "name"]].dropna(subset=["start_ns", "end_ns"])
        if len(rows):
            yield _Lane("CUDA calls", "api", rows)


def _streams(run: Run) -> Iterable[_Lane]:
    frame = run.frame("kernels")[["start_ns", "end_ns", "device", "stream", "kernel"]]
    frame = frame.rename(columns={"kernel": "name"}).dropna(subset=["start_ns", "end_ns"])
    for (device, stream), rows in frame.groupby(["device", "stream"], dropna=False):
        yield _Lane(f"GPU {device}, stream {stream}", "kernels", rows)


def _drawn(rows: pd.DataFrame, windows: Sequence[tuple[float, float]]) -> pd.DataFrame:
    """The bars of a lane: those of each window, and in coarser pieces what the last window, the whole trace, has beside
    the others. A window's rows are those that overlap it."""
    import numpy as np
    import pandas as pd

    starts, ends = (rows[name].to_numpy(dtype=float) / 1e6 for name in ("start_ns", "end_ns"))
    outside = np.ones(len(rows), dtype=bool)
    pieces = []
    for start, end in sorted(windows[:-1]):
        inside = (ends >= start) & (starts <= end)
        outside &= ~inside
        pieces.append(_folded(rows[inside], start, end))
    # What stands before a window is never drawn as one with what stands behind it.
    epoch = np.searchsorted([start for start, _ in sorted(windows[:-1])], starts[outside])
    pieces.append(_folded(rows[outside], *windows[-1], epoch=epoch))
    return pd.concat(pieces, ignore_index=True).drop_duplicates(["name", "start_ns", "end_ns"])


def _folded(rows: pd.DataFrame, start_ms: float, end_ms: float, *, epoch: Any = 0) -> pd.DataFrame:
    """The rows of a window; those of a name that begin in the same piece of it are one, with their count.

    epoch: a number a row; those of different ones are not drawn together.
    """
    import numpy as np

    start, piece_ns = start_ms * 1e6, max((end_ms - start_ms) * 1e6, 1.0) / WINDOW_BINS
    busy = rows["end_ns"] - rows["start_ns"]
    piece = np.floor((rows["start_ns"].to_numpy() - start) / piece_ns)
    # A row that is long enough to be seen stays on its own.
    alone = np.where(busy.to_numpy() > piece_ns, np.arange(1, len(rows) + 1), 0)
    keys = [rows["name"].astype(str), piece, alone, np.broadcast_to(epoch, len(rows))]
    grouped = rows.assign(busy_ns=busy).groupby(keys, sort=False)
    found: pd.DataFrame = grouped.agg(
        start_ns=("start_ns", "min"),
        end_ns=("end_ns", "max"),
        busy_ns=("busy_ns", "sum"),
        count=("busy_ns", "size"),
    )
    return found.reset_index(level=0, names="name").reset_index(drop=True)


def _durations(group: pd.DataFrame) -> list[str]:
    """What the mouse says of each bar's time."""
    texts = []
    for start, end, busy, count in group[["start_ns", "end_ns", "busy_ns", "count"]].itertuples(index=False):
        if count == 1:
            texts.append(f"duration: {timeline_text.time_words(busy / 1e3)}")
        else:
            span = timeline_text.time_words((end - start) / 1e3)
            texts.append(f"{count:,} together: {timeline_text.time_words(busy / 1e3)} within {span}")
    return texts


_LINES = ("#ff3d9e", "#999900", "#2994ff")
"""Colours of the levels: those that are light enough for thin lines on dark paper. The bars have the others."""
_BARS = tuple(colour for colour in COLOURS if colour not in _LINES)
_LEVELS = (("SMs Active", "sms_active"), ("Tensor Active", "tensor_active"), ("DRAM", "dram"))


def _levels(run: Run, windows: Sequence[tuple[float, float]]) -> Iterable[Any]:
    """Lines of what nsys sampled, each window in as many pieces, a gap between windows."""
    import numpy as np

    sampled = samples.read(run)
    for device, found in sampled.items():
        for (name, key), colour in zip(_LEVELS, _LINES, strict=True):
            if key not in found.series:
                continue
            spans = sorted(windows[:-1]) or list(windows)
            edges = [_level_edges(found, key, *span) for span in spans]
            if len(windows) > 1:
                edges = [*_between(spans, windows[-1]), *edges]
            parts = sorted(edges, key=lambda part: part[0])
            x = np.concatenate([part[:-1] for part in parts]) / 1e6
            y = np.concatenate([found.means(key, part) for part in parts])
            full = name if len(sampled) == 1 else f"{name}, GPU {device}"
            yield scatter(
                np.round(x, 5).tolist(),
                [None if value != value else round(float(value), 2) for value in y],
                mode="lines",
                line={"shape": "hv", "width": 1.5, "color": colour},
                name=escaped(full),
                yaxis="y2",
                hovertemplate=f"<b>{escaped(full)}</b><br>mean of the samples: %{{y:.1f}}%<br>time: %{{x:,.3f}} ms"
                "<extra></extra>",
            )


def _level_edges(found: samples.Samples, key: str, start_ms: float, end_ms: float) -> samples.Floats:
    """Edges of a window's pieces: the samples' own where they are few."""
    import numpy as np

    times = found.series[key][0]
    inside: samples.Floats = times[(times >= start_ms * 1e6) & (times <= end_ms * 1e6)]
    if 1 < len(inside) <= WINDOW_BINS:
        return np.append(inside, inside[-1] + found.period_ns)
    edges: samples.Floats = np.linspace(start_ms * 1e6, end_ms * 1e6, WINDOW_BINS + 1)
    return edges


def _between(spans: Sequence[tuple[float, float]], whole: tuple[float, float]) -> Iterable[samples.Floats]:
    """Edges of coarse pieces of the time that no window has."""
    import numpy as np

    starts, ends = [whole[0], *(end for _, end in spans)], [*(start for start, _ in spans), whole[1]]
    for start, end in zip(starts, ends, strict=True):
        pieces = int(WINDOW_BINS * (end - start) / max(whole[1] - whole[0], 1e-9))
        if end > start and pieces:
            yield np.linspace(start * 1e6, end * 1e6, pieces + 1)
