"""The execution story as an icicle: NVTX ranges, CUDA calls and kernels over time, the hardware's levels below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.analysis import samples, timeline
from fiprof.analysis.analyses import Analyses
from fiprof.model.labels import Labels
from fiprof.model.run import Run
from fiprof.reports import timeline_text
from fiprof.reports.pages import colours, plot, vega
from fiprof.reports.pages.page import Chart
from fiprof.reports.words import phrase
from fiprof.reports.writers import render
from fiprof.text import short_kernel

if TYPE_CHECKING:
    import pandas as pd
    from altair import LayerChart

MOST_WINDOWS = 24
"""Cases in a phase that have a window: the longest ones."""
MOST_PIECES = 6000
"""Marks of the whole chart, about: it decides into how many pieces of time each line of each window is divided."""
MOST_BINS, LEAST_BINS = 400, 60
"""Pieces of a line in a window: what begins in the same piece and has the same name is drawn as one."""
MOST_NAMED = 12
"""Colours in the legend: those with most time."""
MOST_DEPTH, MOST_STREAMS = 5, 12
"""Levels of NVTX ranges, and streams: those with most time."""
LINE_PX, HEAD_PX, TRACK_PX = 20, 16, 34
"""Heights of a line of bars, of a heading, and of a level's track."""
RANGES, CALLS = "NVTX range", "CUDA call"
OTHER_COLOURS = {RANGES: colours.DARK_GREY, CALLS: colours.LIGHT_GREY}
WHOLE = "the whole trace"
TRACKS = (
    ("SMs active", "sms_active", "compute"),
    ("issue slots used", "sm_issue", "issue slots"),
    ("tensor cores active", "tensor_active", "tensor"),
    ("DRAM read and written", "dram", "DRAM"),
)
"""What nsys samples: its name here, our key, the unit of the GPU that has its colour."""


def timeline_chart(measured: Analyses) -> Chart | None:
    """NVTX ranges, calls, kernels by stream and what nsys sampled of the hardware on one axis; None without kernels.

    Each measured case has a window of its own, with the time from 0. Raises FiprofError for a table that cannot be
    read.
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
        hint=phrase("chart.timeline_hint", streams=MOST_STREAMS),
    )


@dataclass(frozen=True)
class _Lane:
    """A line of bars."""

    name: str
    """Over it; empty where it belongs to the one above."""
    key: str
    """RANGES or CALLS; empty for kernels, which have their families' colours."""
    rows: pd.DataFrame
    """With start_ns, end_ns and name."""


@dataclass(frozen=True)
class _Window:
    """A piece of time that is shown by itself, with its time from 0."""

    name: str
    start_ns: float
    end_ns: float

    def place(self, start_ns: float, end_ns: float) -> dict[str, Any]:
        """Of a mark: the window, and from where to where in ms."""
        start, end = max(start_ns, self.start_ns), min(end_ns, self.end_ns)
        return {
            "w": self.name,
            "a": round((start - self.start_ns) / 1e6, 6),
            "b": round((end - self.start_ns) / 1e6, 6),
        }


def _timeline(run: Run, phases: Sequence[timeline.CasePhase]) -> LayerChart:
    import altair as alt

    lanes = [*_ranges(run, phases), *_calls(run), *_streams(run)]
    sampled = samples.read(run)
    tracks = [
        (name if len(sampled) == 1 else f"{name}, GPU {device}", found, key, unit)
        for device, found in sampled.items()
        for name, key, unit in TRACKS
        if key in found.series
    ]
    windows = _windows(phases, lanes)
    bins = min(MOST_BINS, max(LEAST_BINS, MOST_PIECES // (len(windows) * (len(lanes) + len(tracks)))))
    heads, bars, levels, palette, y = [], [], [], {}, 0.0
    for lane in lanes:
        if lane.name:
            heads.append({"name": lane.name, "y": y + HEAD_PX - 4})
            y += HEAD_PX
        for window in windows:
            for bar, colour in _bars(lane, window, bins):
                palette[bar["key"]] = colour
                bars.append({**bar, "y": y})
        y += LINE_PX
    for name, found, key, unit in tracks:
        heads.append({"name": f"{name}, 0 to 100%", "y": y + HEAD_PX - 4})
        y += HEAD_PX + TRACK_PX
        palette[unit] = colours.UNITS[unit]
        levels += [{**piece, "key": unit, "y": y} for window in windows for piece in _pieces(found, key, window, bins)]
        y += 4
    spent: Counter[str] = Counter()
    for bar in bars:
        spent[bar["key"]] += bar["b"] - bar["a"]
    fill = vega.keyed("Fill", palette, vega.legend([key for key, _ in spent.most_common(MOST_NAMED)]))
    choice = alt.binding_select(options=[window.name for window in windows], name="Window ")
    case = alt.param(name="shown", value=windows[0].name, bind=choice)
    zoom = alt.selection_interval(name="zoom", encodings=["x"], bind="scales", zoom="wheel![event.ctrlKey]")
    drawn, sampled_ = (vega.marks(rows).transform_filter("datum.w == shown") for rows in (bars, levels))
    axis = vega.axis("time from the start of the window, ms")
    x = alt.X("a:Q", scale=alt.Scale(nice=False, zero=False), axis=axis)
    left = "max(scale('x', datum.a), 0)"
    room = f"(min(scale('x', datum.b), width) - {left} - 6)"
    fits = f"{vega.CHAR_PX} * length(datum.{{}}) < {room}"
    name = f"{fits.format('name')} ? datum.name : {fits.format('short')} ? datum.short : {room} > 60 ? datum.name : ''"
    start = "'start, ms': format(datum.a, ',.4f')"
    layers = [
        drawn.transform_calculate(bottom=f"datum.y + {LINE_PX - 2}")
        .mark_rect(clip=True, tooltip={"expr": f"{{title: datum.name, duration: datum.time, {start}}}"})
        .encode(x, vega.pixels("y", y), fill, x2="b", y2="bottom")
        .add_params(zoom),
        drawn.mark_text(
            align="left", baseline="middle", clip=True, dx=3, dy=LINE_PX / 2 - 1, fontSize=11, text={"expr": name},
            limit={"expr": f"max({room}, 1)"}, color=vega.inked(palette),
        ).encode(vega.pixels("y", y), x=alt.value(alt.expr(left))),
        vega.marks(heads).mark_text(align="left", baseline="alphabetic", fontSize=11).encode(
            vega.pixels("y", y), x=alt.value(0), text="name:N"),
    ]  # fmt: skip
    if levels:
        tip = {"expr": f"{{title: datum.key, 'mean of the samples, %': datum.level, {start}}}"}
        layers.append(
            sampled_.transform_calculate(top=f"datum.y - {TRACK_PX} * min(datum.level, 100) / 100")
            .mark_rect(clip=True, tooltip=tip)
            .encode(x, vega.pixels("y", y), fill, x2="b", y2="top")
        )
    return vega.figure(layers, height=y, params=[case])


def _windows(phases: Sequence[timeline.CasePhase], lanes: Sequence[_Lane]) -> list[_Window]:
    """Each case from the beginning of its NVTX range, if it has one, to its last kernel's end; the whole trace."""
    cases = lanes[1].rows if len(lanes) > 1 and lanes[1].key == RANGES else None
    made = []
    for part in phases:
        start, end = part.start_us * 1e3, part.end_us * 1e3
        if cases is not None:
            around = cases[(cases["start_ns"] <= start) & (cases["end_ns"] >= start)]
            start = min([start, *around["start_ns"].astype(float)])
        name = part.label if part.phase == timeline.MEASURE else timeline_text.what(part)
        made.append(_Window(vega.text(name + timeline_text.place(part)), start, end))
    first = min(float(lane.rows["start_ns"].min()) for lane in lanes)
    whole = _Window(WHOLE, first, max(float(lane.rows["end_ns"].max()) for lane in lanes))
    return [*made, whole]


def _ranges(run: Run, phases: Sequence[timeline.CasePhase]) -> Iterable[_Lane]:
    """fiprof's ranges, then the program's as far as they are in a window: a line a level."""
    if not run.has("ranges"):
        return
    labels = Labels(run.manifest.cases)
    frame = run.frame("ranges").dropna(subset=["start_ns", "end_ns"])
    frame = frame[frame["depth"] < MOST_DEPTH]
    ours = frame["domain"] == timeline.FIPROF_DOMAIN
    spans = [(part.start_us * 1e3, part.end_us * 1e3) for part in phases]
    seen = sum(((frame["start_ns"] <= end) & (frame["end_ns"] >= start)).astype(int) for start, end in spans) > 0
    for title, kept in (("NVTX ranges", ours), ("NVTX ranges of the program", ~ours & seen)):
        for number, (_, rows) in enumerate(frame[kept].groupby("depth")):
            names = [labels(str(text)) for text in rows["name"]]
            yield _Lane("" if number else title, RANGES, rows[["start_ns", "end_ns"]].assign(name=names))


def _calls(run: Run) -> Iterable[_Lane]:
    if run.has("api"):
        rows = run.frame("api")[["start_ns", "end_ns", "name"]].dropna(subset=["start_ns", "end_ns"])
        if len(rows):
            yield _Lane("CUDA calls", CALLS, rows)


def _streams(run: Run) -> Iterable[_Lane]:
    frame = run.frame("kernels")[["start_ns", "end_ns", "device", "stream", "kernel"]]
    frame = frame.rename(columns={"kernel": "name"}).dropna(subset=["start_ns", "end_ns"])
    streams = [*frame.groupby(["device", "stream"], dropna=False)]
    spent = {key: float((rows["end_ns"] - rows["start_ns"]).sum()) for key, rows in streams}
    longest = sorted(spent, key=lambda key: -spent[key])[:MOST_STREAMS]
    for (device, stream), rows in streams:
        if (device, stream) in longest:
            yield _Lane(f"Kernels on GPU {device}, stream {stream}", "", rows)


def _bars(lane: _Lane, window: _Window, bins: int) -> Iterable[tuple[dict[str, Any], str]]:
    """A lane's bars in a window with their colours, in ms from its start; what overlaps its ends is cut."""
    rows = lane.rows[(lane.rows["end_ns"] >= window.start_ns) & (lane.rows["start_ns"] <= window.end_ns)]
    for row in _folded(rows, window, bins).itertuples(index=False):
        name, (start, end, busy, count) = str(row[0]), map(float, row[1:])
        key, colour = (lane.key, OTHER_COLOURS[lane.key]) if lane.key else colours.kernel(name)
        spent = timeline_text.time_words(busy / 1e3)
        if count > 1:
            spent = f"{spent} within {timeline_text.time_words((end - start) / 1e3)}, {count:,.0f} together"
        shown = vega.text(short_kernel(name))
        bar = {"key": key, "name": shown, "short": shown if lane.key else vega.text(key), "time": spent}
        yield {**bar, **window.place(start, end)}, colour


def _folded(rows: pd.DataFrame, window: _Window, bins: int) -> pd.DataFrame:
    """Rows of a name that begin in the same piece of a window as one: name, start_ns, end_ns, busy_ns, count."""
    import numpy as np

    piece_ns = max(window.end_ns - window.start_ns, 1.0) / bins
    busy = rows["end_ns"] - rows["start_ns"]
    piece = np.floor((rows["start_ns"].to_numpy() - window.start_ns) / piece_ns)
    # A row that is long enough to be seen stays on its own.
    alone = np.where(busy.to_numpy() > piece_ns, np.arange(1, len(rows) + 1), 0)
    grouped = rows.assign(busy_ns=busy).groupby([rows["name"].astype(str), piece, alone], sort=False)
    found: pd.DataFrame = grouped.agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), busy_ns=("busy_ns", "sum"), count=("busy_ns", "size")
    )
    return found.reset_index(level=0, names="name").reset_index(drop=True)


def _pieces(found: samples.Samples, key: str, window: _Window, bins: int) -> Iterable[dict[str, Any]]:
    """A track's pieces in a window: the samples where they are few, else means of as many as there are pieces."""
    import numpy as np

    times = found.series[key][0]
    inside = times[(times >= window.start_ns) & (times <= window.end_ns)]
    if 1 < len(inside) <= bins:
        edges: samples.Floats = np.append(inside, min(inside[-1] + found.period_ns, window.end_ns))
    else:
        edges = np.linspace(window.start_ns, window.end_ns, bins + 1)
    for start, end, level in zip(edges, edges[1:], found.means(key, edges), strict=False):
        if float(level) > 0:  # NaN without a sample
            yield {"level": round(float(level), 1), **window.place(float(start), float(end))}
