"""fiprof/reports/charts*.py, figures.py and plot.py: figures over the recorded H200 run, and charts in characters."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.recorded_runs import parsed

pytest.importorskip("plotly")

from fiprof.analysis import roofline, show, stalls
from fiprof.analysis.analyses import Analyses
from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.reports.notebook import OpenedRun
from fiprof.reports.pages import charts, charts_scaling, charts_time, charts_timeline, figures, plot
from fiprof.text import cell_width
from tests import pages
from tests.reports_fixture import make_run

PREFILL = "PrefillWithKVCacheKernel"


@pytest.fixture(scope="module")
def run() -> Run:
    """The recorded run with all its samples."""
    return parsed("all")


def traces(figure: Any) -> dict[str, Any]:
    """Name -> trace, of those in the legend."""
    return {trace.name: trace for trace in figure.data if trace.name and trace.showlegend is not False}


def test_each_chart_in_characters_is_at_most_100_columns_wide(run: Run) -> None:
    made = [
        charts_timeline.timeline_chart(Analyses(run)),
        charts_time.memory_chart(run),
        charts_time.gpu_time_chart(charts_time.gpu_time(run)),
        charts.roofline_chart(roofline.roofline(run)),
        charts.stalls_chart(stalls.stalls(run)),
        charts.occupancy_chart(show.show(run)),
    ]
    for chart in made:
        assert chart and chart.text.count("\n") >= 2
        assert max(map(cell_width, chart.text.splitlines())) <= 100


def test_the_roofline_has_the_measured_roofs_up_to_their_ridge_and_the_launches(run: Run) -> None:
    figure = charts.roofline_chart(roofline.roofline(run)).figure()
    lines = {
        trace.hovertext.split("</b>")[0].removeprefix("<b>"): trace for trace in figure.data if "lines" in trace.mode
    }
    assert lines["tensor fp16 roof"].y[0] == pytest.approx(927.25, abs=0.01)
    assert lines["DRAM roof"].x[-1] == pytest.approx(192.71, abs=0.01)
    assert lines["DRAM roof"].y[-1] == pytest.approx(927.25, abs=0.01)
    point = traces(figure)[PREFILL]
    assert (point.x[0], point.y[0]) == (pytest.approx(976.41, abs=0.01), pytest.approx(489.14, abs=0.01))
    assert "achieved: 489.14 TFLOP/s of tensor fp16<br>intensity: 976 FLOP/byte of DRAM" in point.hovertext[0]
    assert "duration (ncu): 307.87 µs" in point.hovertext[0]
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_stalls_of_a_launch_are_stacked_to_the_whole(run: Run) -> None:
    figure = charts.stalls_chart(stalls.stalls(run)).figure()
    assert [sum(trace.x[i] for trace in figure.data) for i in range(6)] == [pytest.approx(100.0, abs=0.01)] * 6
    rope = list(figure.data[0].y).index("5")
    assert figure.data[0].name == "long_scoreboard"
    assert figure.data[0].x[rope] == pytest.approx(77.74, abs=0.01)
    assert "share of the warps' time: 77.7%" in figure.data[0].hovertext[rope]


def test_gpu_time_is_of_the_measured_kernels(run: Run) -> None:
    found = charts_time.gpu_time(run)
    first = found.kernels[0]
    assert (first.kernel, first.count) == (PREFILL, 20)
    assert first.total_us == pytest.approx(6010.251)
    assert first.share == pytest.approx(0.5514, abs=1e-4)
    assert sum(item.share for item in found.kernels) == pytest.approx(1.0)
    assert found.measured and found.by == "nsys"
    assert charts_time.gpu_time_chart(found).text.splitlines()[0].split()[:2] == [PREFILL, "55.1%"]


def test_gpu_time_without_a_trace_is_ncus(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", launches=[{"launch": i, "kernel": "k", "duration_ns": 1000.0} for i in range(3)])
    found = charts_time.gpu_time(run)
    assert (found.by, found.measured, found.kernels[0].count, found.kernels[0].total_us) == ("ncu", False, 3, 3.0)
    assert charts_time.gpu_time(make_run(tmp_path / "none")).kernels == ()


def test_memory_is_what_nsys_counted(run: Run) -> None:
    chart = charts_time.memory_chart(run)
    assert chart
    (line,) = chart.figure().data
    assert max(line.y) == pytest.approx(426.379161)
    assert "426.4 MB" in chart.text


def test_the_timeline_has_every_measured_execution_and_a_window_a_case(run: Run) -> None:
    chart = charts_timeline.timeline_chart(Analyses(run))
    assert chart
    figure = chart.figure()
    buttons = figure.layout.updatemenus[0].buttons
    assert [button.label for button in buttons] == [
        "decode", "fused_add_rmsnorm", "prefill", "rmsnorm", "rope", "the whole trace"
    ]  # fmt: skip
    start, end = buttons[2].args[0]["xaxis.range"]
    bars = traces(figure)[PREFILL]
    inside = [width for base, width in zip(bars.base, bars.x, strict=True) if base >= start and base + width <= end]
    assert len(inside) == 20
    assert sum(inside) == pytest.approx(6.010251, abs=1e-4)
    tensor = traces(figure)["Tensor Active"]
    level = [y for x, y in zip(tensor.x, tensor.y, strict=True) if start + 1 < x < end - 1 and y is not None]
    assert sum(level) / len(level) == pytest.approx(52.3, abs=1.0)


def test_the_timeline_of_very_many_executions_stays_small_and_loses_no_time(tmp_path: Path) -> None:
    kernels = [
        {
            "start_ns": 1000 * i, "end_ns": 1000 * i + 600, "duration_ns": 600, "device": 0, "stream": 7, "pid": 1,
            "kernel": f"k{i % 2}", "kernel_full": "k", "grid": "1x1x1", "block": "1x1x1", "phase": "measure",
            "case": "mine[rows=8]", "iteration": i,
        }
        for i in range(20_000)
    ]  # fmt: skip
    chart = charts_timeline.timeline_chart(Analyses(make_run(tmp_path / "run", kernels=kernels)))
    assert chart
    figure = chart.figure()
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert sum(len(bar.x) for bar in bars) < 2000
    assert len(figure.to_json()) < 300_000
    together = sum(int(words.split(" together")[0]) for bar in bars for words in bar.customdata)
    assert together == 20_000


def test_of_many_launches_each_kernel_of_a_case_has_one_bar() -> None:
    chart = charts.stalls_chart(pages.stalls(1000))
    assert len(chart.figure().data[0].y) == 40
    assert "40 of 1,000 launches" in chart.caption


def test_names_are_text_for_plotly_too() -> None:
    kernels = tuple(charts_time.KernelTime(name, 1, 1.0, 0.1) for name in pages.HOSTILE)
    figure = charts_time.gpu_time_chart(charts_time.GpuTime(kernels, "nsys", measured=True)).figure()
    shown = [
        *figure.layout.yaxis.ticktext,
        *(text.removeprefix("<b>").split("</b>")[0] for text in figure.data[0].hovertext),
    ]
    assert not [text for text in shown if "<" in text or "\x1b" in text or "\u202e" in text]
    assert figures.label("<b>x</b>") == "&lt;b&gt;x&lt;/b&gt;"


def test_scaling_leaves_out_what_a_logarithm_cannot_show() -> None:
    series = [
        charts_scaling.Series(
            "one",
            (charts_scaling.Point(0, 1.0), charts_scaling.Point(10, 2.0, 1.5, 3.0), charts_scaling.Point(100, 20.0)),
        )
    ]
    chart = charts_scaling.scaling_chart("T", series, x=("rows", ""), y=("time", "µs"), anchor="a")
    (line,) = chart.figure().data
    assert (list(line.x), list(line.y)) == ([10, 100], [2.0, 20.0])
    assert (line.error_y.arrayminus[0], line.error_y.array[0]) == (0.5, 1.0)
    assert "time: 2 µs<br>confidence interval: 1.5 to 3 µs" in line.hovertext[0]
    lines = chart.text.splitlines()
    assert lines[1].rstrip().endswith("o") and lines[1].startswith("     20 ┤")
    assert "time, µs over rows, both logarithmic" in lines[0]


@pytest.mark.parametrize("count", [0, 1, 60])
def test_charts_of_any_number_of_things(count: int) -> None:
    stacks = plot.stacks([plot.Stack(f"launch {i}", ((f"reason_{i}", 0.4), ("other", 0.6))) for i in range(count)])
    bars = plot.bars([plot.Bar("x" * 200, float(i), "1 µs") for i in range(count)])
    scatter = plot.scatter([(f"s{i}", [(i + 1.0, 5.0)]) for i in range(count)], x="x", y="y")
    for text in (stacks, bars, scatter):
        assert bool(text) == bool(count)
        assert all(cell_width(line) <= 100 for line in text.splitlines())


def test_a_stack_is_as_long_as_its_parts() -> None:
    line = plot.stacks([plot.Stack("k", (("wait", 0.5), ("barrier", 0.25), ("other", 0.25)))]).splitlines()[0]
    assert line == "k  " + "w" * 30 + "b" * 15 + "o" * 15


def test_colours_are_seen_on_both_papers_and_told_apart_by_everybody() -> None:
    light, dark = _linear("#ffffff"), _linear("#14181e")
    for colour in (*figures.COLOURS, figures.GREY):
        assert min(_contrast(_linear(colour), light), _contrast(_linear(colour), dark)) >= 3.0, colour
    for matrix in _SIGHTS:
        labs = [_lab(_seen(matrix, _linear(colour))) for colour in figures.COLOURS]
        assert (
            min(
                sum((a - b) ** 2 for a, b in zip(*pair, strict=True)) ** 0.5 for pair in itertools.combinations(labs, 2)
            )
            > 22
        )


def test_an_opened_run_shows_the_same_charts_and_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    opened = OpenedRun(run.path)
    assert len(opened.roofline("prefill").data) < len(opened.roofline().data)
    assert opened.show().set_index("launch").loc[3, "duration_us"] == pytest.approx(307.872)
    assert "NVIDIA H200" in opened._repr_html_()
    with pytest.raises(FiprofError, match="has 5 cases, no pipeline"):
        opened.gpu_time()
    with pytest.raises(FiprofError, match="has no timeline"):
        OpenedRun(make_run(tmp_path / "run").path).timeline()


def test_a_runs_name_is_text_in_a_notebook(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", name="<script>x</script>")
    assert "<script>" not in OpenedRun(run.path)._repr_html_()


# Luminance and contrast: WCAG 2. Colour blindness: Machado, Oliveira and Fernandes 2009, severity 1.

_SIGHTS = (
    ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
)
_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))

Triple = tuple[float, float, float]


def _linear(colour: str) -> Triple:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return red, green, blue


def _contrast(one: Triple, other: Triple) -> float:
    high, low = sorted((_times(_XYZ, colour)[1] for colour in (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _times(matrix: tuple[Triple, Triple, Triple], colour: Triple) -> Triple:
    first, second, third = (sum(a * b for a, b in zip(row, colour, strict=True)) for row in matrix)
    return first, second, third


def _seen(matrix: tuple[Triple, Triple, Triple], colour: Triple) -> Triple:
    red, green, blue = (min(max(value, 0.0), 1.0) for value in _times(matrix, colour))
    return red, green, blue


def _lab(colour: Triple) -> Triple:
    x, y, z = (value / white for value, white in zip(_times(_XYZ, colour), (0.9505, 1.0, 1.089), strict=True))
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)
