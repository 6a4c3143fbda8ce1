"""Charts of where a run's time went: the GPU's time by kernel, and device memory over time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.model.run import Run
from fiprof.model.schemas import own_pid
from fiprof.reports import timeline_text
from fiprof.reports.pages import colours, plot, vega
from fiprof.reports.pages.charts import MOST_BARS
from fiprof.reports.pages.page import Chart
from fiprof.reports.timeline_text import time_words
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase
from fiprof.reports.writers import render

if TYPE_CHECKING:
    import pandas as pd
    from altair import LayerChart

MEMORY_POINTS = 600


# The GPU's time by kernel


@dataclass(frozen=True)
class KernelTime:
    """All executions of a kernel."""

    kernel: str
    count: int
    total_us: float
    share: float
    """Of the time of all kernels, 0 to 1."""


@dataclass(frozen=True)
class GpuTime:
    """Where the GPU's time went."""

    kernels: tuple[KernelTime, ...]
    """The longest first."""
    by: str
    """nsys or ncu."""
    measured: bool
    """Whether these are the kernels of the phase measure alone; else those of the whole trace."""


def gpu_time(run: Run) -> GpuTime:
    """The kernels by their total time: those of the phase measure under nsys, every one where there are no phases, and
    ncu's launches where nsys saw none.

    Raises FiprofError for a table that cannot be read.
    """
    import pyarrow.compute as pc

    by, measured = "nsys", False
    table = run.table("kernels").select(["phase", "kernel", "duration_ns"]) if run.has("kernels") else None
    if table is not None and table.num_rows:
        inside = table.filter(pc.equal(table["phase"], "measure"))
        if inside.num_rows:
            table, measured = inside, True
    elif run.has("launches"):
        by, table = "ncu", run.table("launches").select(["kernel", "duration_ns"])
    if table is None or not table.num_rows:
        return GpuTime((), by, measured)
    grouped = table.unify_dictionaries().group_by("kernel", use_threads=False)
    rows = grouped.aggregate([("duration_ns", "sum"), ("duration_ns", "count")]).to_pylist()
    whole = sum(row["duration_ns_sum"] or 0 for row in rows)
    kernels = [
        KernelTime(
            row["kernel"] or "",
            row["duration_ns_count"],
            (row["duration_ns_sum"] or 0) / 1e3,
            (row["duration_ns_sum"] or 0) / whole if whole else 0.0,
        )
        for row in rows
    ]
    return GpuTime(tuple(sorted(kernels, key=lambda item: (-item.total_us, item.kernel))), by, measured)


def gpu_time_chart(what: GpuTime) -> Chart:
    """Each kernel's share of the GPU's time."""
    kernels = what.kernels[:MOST_BARS]
    lines = [
        plot.Bar(item.kernel, item.share, f"{item.share:6.1%}  {time_words(item.total_us)} in {item.count:,}")
        for item in kernels
    ]
    rest = len(what.kernels) - len(kernels)
    return Chart(
        anchor="chart-gpu-time",
        title="GPU time by kernel",
        text=plot.bars(lines),
        figure=lambda: _gpu_time(kernels),
        caption=phrase(
            f"chart.gpu_time{'_measured' * what.measured}",
            by=what.by,
            rest=phrase("chart.gpu_time_rest", count=rest) if rest else "",
        ),
    )


def _gpu_time(kernels: Sequence[KernelTime]) -> LayerChart:
    made, palette = [], {}
    for item in kernels:
        family, palette[family] = colours.kernel(item.kernel)
        told = [
            ("share of the kernels' time", f"{item.share:.2%}"),
            ("time", time_words(item.total_us)),
            ("executions", f"{item.count:,}"),
            ("mean", time_words(item.total_us / item.count) if item.count else ""),
        ]
        bar = vega.Bar(family, 0, 100 * item.share, vega.tip(item.kernel, told))
        made.append(vega.Row(item.kernel, (bar,), f"{item.share:.1%}  {time_words(item.total_us)}"))
    most = 100 * max((item.share for item in kernels), default=1.0)
    return vega.rows(made, palette, title="share of the kernels' time", most=most)


# Device memory


def memory_chart(run: Run) -> Chart | None:
    """Device memory over time, a line a process and GPU; None where nsys saw no allocation.

    Raises FiprofError for a table that cannot be read.
    """
    if not run.has("memory"):
        return None
    frame = run.frame("memory").dropna(subset=["time_ns", "total_bytes"]).sort_values("time_ns", kind="stable")
    if frame.empty:
        return None
    lines = {
        f"GPU {device}, process {own_pid(group['pid'].iloc[0])}": group
        for (device, _), group in frame.groupby(["device", "pid"], dropna=False)
    }
    start, end = float(frame["time_ns"].min()), float(frame["time_ns"].max())
    return Chart(
        anchor="chart-memory",
        title="Device memory over time",
        text=_memory_text(lines, start, end),
        figure=lambda: _memory(lines),
        caption=phrase("chart.memory"),
    )


def _memory_text(lines: dict[str, pd.DataFrame], start: float, end: float) -> str:
    import numpy as np

    cells = plot.WIDTH - max(map(len, lines)) - len("999.9 GB") - 4
    edges = np.linspace(start, max(end, start + 1.0), cells + 1)
    largest = max(float(group["total_bytes"].max()) for group in lines.values()) or 1.0
    header, ticks = timeline_text.axis((end - start) / 1e3, cells)
    rows = [("", ticks, "")]
    for name, group in lines.items():
        times, totals = group["time_ns"].to_numpy(dtype=float), group["total_bytes"].to_numpy(dtype=float)
        held = []
        for first, last in itertools.pairwise(edges):
            low, high = np.searchsorted(times, [first, last], side="right")
            inside = totals[max(low - 1, 0) : max(high, 1)]
            held.append(float(inside.max()) / largest if len(inside) and last >= times[0] else 0.0)
        rows.append((name, timeline_text.strip(held), timeline_text.bytes_words(int(group["total_bytes"].max()))))
    columns = (Column("name", "time"), Column("chart", header), Column("most", "most"))
    return render(View(columns, tuple(rows)), "table", width=plot.WIDTH)


def _memory(lines: dict[str, pd.DataFrame]) -> LayerChart:
    import altair as alt

    palette = colours.series(list(lines))
    points = [
        {"t": time_ns / 1e6, "y": round(held / 1e6, 3), "key": name}
        for name, group in lines.items()
        for time_ns, held in _thinned(group)[["time_ns", "total_bytes"]].itertuples(index=False)
    ]
    tip = {
        "expr": "{title: datum.key, 'time, ms': format(datum.t, ',.3f'), 'device memory, MB': format(datum.y, ',.2f')}"
    }
    drawn = vega.marks(points)
    x = alt.X("t:Q", scale=alt.Scale(nice=False, zero=False), axis=vega.axis("time since the trace began, ms"))
    y = alt.Y("y:Q", scale=alt.Scale(zero=True), axis=vega.axis("device memory, MB"))
    color = vega.keyed("Color", palette, vega.legend(list(palette)) if len(lines) > 1 else None)
    area = drawn.mark_area(interpolate="step-after", fillOpacity=0.35 if len(lines) == 1 else 0, line=True)
    layers = [area.encode(x, y, color), drawn.mark_point(size=90, opacity=0, tooltip=tip).encode(x, y)]
    return vega.figure(layers, height=260)


def _thinned(group: pd.DataFrame) -> pd.DataFrame:
    """Of many events the last, the smallest and the largest of each piece of time."""
    import numpy as np

    if len(group) <= MEMORY_POINTS:
        return group
    pieces = np.linspace(0, MEMORY_POINTS // 3, len(group), endpoint=False).astype(int)
    by = group.reset_index(drop=True).groupby(pieces)["total_bytes"]
    last = group.reset_index(drop=True).groupby(pieces).tail(1).index
    return group.iloc[np.unique([*by.idxmin(), *by.idxmax(), *last])]
