"""fiprof/reports/pages/charts*.py, colours.py, plot.py: charts over the recorded H200 run, and in characters."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from tests.recorded_runs import parsed

pytest.importorskip("altair")

from fiprof.analysis import roofline, show, stalls
from fiprof.analysis.analyses import Analyses
from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.reports.notebook import VEGALITE, OpenedRun
from fiprof.reports.pages import charts, charts_ranks, charts_scaling, charts_time, charts_timeline, colours, plot
from fiprof.reports.pages.page import Chart
from fiprof.text import cell_width
from tests import pages
from tests.pages import drawn
from tests.reports_fixture import make_run

PREFILL = "PrefillWithKVCacheKernel"


@pytest.fixture(scope="module")
def run() -> Run:
    """The recorded run with all its samples."""
    return parsed("all")


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
    chart = charts.roofline_chart(roofline.roofline(run))
    roofs = {row["name"]: row for row in drawn(chart, "sloped")}
    assert roofs["tensor fp16 927.2 TFLOP/s"]["y2"] == pytest.approx(927.25, abs=0.01)
    assert roofs["DRAM 4.81 TB/s"]["x2"] == pytest.approx(192.71, abs=0.01)
    assert roofs["DRAM 4.81 TB/s"]["y2"] == pytest.approx(927.25, abs=0.01)
    (point,) = [row for row in drawn(chart, "number") if row["first"] and row["key"] == "3 prefill"]
    assert (point["x"], point["y"]) == (pytest.approx(976.41, abs=0.01), pytest.approx(489.14, abs=0.01))
    assert point["tip"]["achieved"] == "489.14 TFLOP/s of tensor fp16"
    assert point["tip"]["duration (ncu)"] == "307.87 µs"


def test_stalls_of_a_launch_fill_its_bar(run: Run) -> None:
    bars = drawn(charts.stalls_chart(stalls.stalls(run)), "key")
    ends = [bar["b"] for bar in bars if bar["c"] == bars[-1]["c"]]
    assert ends == sorted(ends) and ends[-1] == pytest.approx(100.0, abs=0.01)
    longest = max(bars, key=lambda bar: float(bar["b"] - bar["a"]))
    assert (longest["key"], longest["a"], longest["b"]) == ("long_scoreboard", 0.0, pytest.approx(77.74, abs=0.01))
    assert longest["tip"]["share of the warps' time"] == "77.7%"


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
    assert max(row["y"] for row in drawn(chart, "t")) == pytest.approx(426.379161, abs=1e-3)
    assert "426.4 MB" in chart.text


def test_the_timeline_has_every_measured_execution_in_its_cases_window(run: Run) -> None:
    chart = charts_timeline.timeline_chart(Analyses(run))
    assert chart
    bars = drawn(chart, "time")
    windows = ["decode", "fused_add_rmsnorm", "prefill", "rmsnorm", "rope", "the whole trace"]
    assert list(dict.fromkeys(bar["w"] for bar in bars)) == windows
    assert {bar["w"]: bar["a"] for bar in reversed(bars) if bar["name"] == "measure"} == dict.fromkeys(windows[:-1], 0.0) | {
        "the whole trace": pytest.approx(479.513, abs=0.01)
    }  # fmt: skip
    inside = [bar["b"] - bar["a"] for bar in bars if bar["w"] == "prefill" and bar["name"] == PREFILL]
    assert len(inside) == 20
    assert sum(inside) == pytest.approx(6.010251, abs=1e-4)
    tensor = [row["level"] for row in drawn(chart, "level") if (row["w"], row["key"]) == ("prefill", "tensor")]
    assert sum(tensor[1:-1]) / len(tensor[1:-1]) == pytest.approx(52.3, abs=1.0)


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
    bars = [bar for bar in drawn(chart, "time") if bar["w"] != charts_timeline.WHOLE]
    assert len(bars) < 1000
    assert len(chart.figure().to_json(validate=False)) < 400_000
    assert sum(int(bar["time"].split(", ")[1].split(" together")[0]) for bar in bars) == 20_000


def test_of_many_launches_each_kernel_of_a_case_has_one_bar() -> None:
    chart = charts.stalls_chart(pages.stalls(1000))
    assert len({bar["c"] for bar in drawn(chart, "key")}) == 40
    assert "40 of 1,000 launches" in chart.caption


def test_scaling_leaves_out_what_a_logarithm_cannot_show() -> None:
    series = [
        charts_scaling.Series(
            "one",
            (charts_scaling.Point(0, 1.0), charts_scaling.Point(10, 2.0, 1.5, 3.0), charts_scaling.Point(100, 20.0)),
        )
    ]
    chart = Chart("a", "T", "", lambda: charts_scaling.scaling_chart(series, x=("rows", ""), y=("time", "µs")))
    points = drawn(chart, "drawn")
    assert [(row["x"], row["y"], row["low"], row["high"]) for row in points] == [
        (10, 2.0, 1.5, 3.0),
        (100, 20.0, 20.0, 20.0),
    ]
    assert points[0]["tip"] == {"title": "one", "rows": "10", "time": "2 µs", "confidence interval": "1.5 to 3 µs"}


def test_a_heat_map_has_a_cell_for_each_pair_and_says_what_was_not_measured() -> None:
    cells = [
        charts_scaling.Cell("512", "1", 0.31, "fa2"),
        charts_scaling.Cell("2048", "1", 0.74, "fa3"),
        charts_scaling.Cell("512", "8", None),
    ]
    chart = charts_scaling.heat_map("T", cells, x="KV length", y="batch", anchor="a")
    assert chart.text.splitlines() == [
        "batch \\ KV length  512      2048",
        "1                  fa2 31%  fa3 74%",
        "8                  –        –",
    ]
    assert [(row["x"], row["y"], row["words"], row["share"]) for row in drawn(chart, "fill")] == [
        ("512", "1", "fa2", "31%"), ("2048", "1", "fa3", "74%"), ("512", "8", "", "–"),
    ]  # fmt: skip


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


def test_colours_are_seen_on_both_papers_and_the_first_eight_told_apart_by_everybody() -> None:
    every = {
        *colours.COLOURS,
        *colours.STALLS.values(),
        *colours.UNITS.values(),
        *(each[2] for each in colours.FAMILIES),
    }
    for colour in every | {colours.GREY}:
        light, dark = (_contrast(colour, paper) for paper in ("#ffffff", "#14181e"))
        assert min(light, dark) >= 3.0, colour
        assert _contrast(colour, colours.ink(colour)) >= 4.5, colour
    for matrix in _SIGHTS:
        labs = [_lab(_seen(matrix, _linear(colour))) for colour in colours.COLOURS[:8]]
        assert min(math.dist(*pair) for pair in itertools.combinations(labs, 2)) > 22


def test_a_stall_reason_and_a_kernel_family_have_colours_of_their_own() -> None:
    assert len(set(colours.STALLS.values())) == len(colours.STALLS)
    families = [colour for _, _, colour in colours.FAMILIES]
    assert len({*families, *colours.UNITS.values()}) == len(families) + len(colours.UNITS)
    assert colours.kernel("BatchPrefillWithPagedKVCacheKernel")[0] == "prefill"
    assert colours.kernel("FusedAddRMSNormKernel") == colours.kernel("RMSNormKernel")
    nccl = colours.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    assert nccl == ("communication", charts_ranks.PALETTE["communicates"])
    assert colours.kernel("my_kernel") == ("my_kernel", colours.kernel("my_kernel")[1])


def test_an_opened_run_shows_the_same_charts_and_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    opened = OpenedRun(run.path)
    shown, metadata = opened.roofline("prefill")._repr_mimebundle_()
    assert shown.keys() == {VEGALITE, "image/svg+xml", "text/plain"} and metadata
    assert len(str(shown[VEGALITE])) < len(opened.roofline().to_json())
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


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_times(_XYZ, _linear(colour))[1] for colour in (one, other)), reverse=True)
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
