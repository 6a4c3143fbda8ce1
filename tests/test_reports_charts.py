"""Charts over a size and of the recorded H200 run, and their colours."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from tests.recorded_runs import parsed

pytest.importorskip("vl_convert")

from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.reports import colours
from fiprof.reports.notebook import VEGALITE, OpenedRun
from tests.reports_fixture import make_run


@pytest.fixture(scope="module")
def run() -> Run:
    """The recorded run with all its samples."""
    return parsed("all")


def test_colours_are_seen_on_both_papers_and_the_first_eight_told_apart_by_everybody() -> None:
    every = {*colours.COLOURS, *colours.STALLS.values(), *(each[2] for each in colours.FAMILIES)}
    for colour in every | {colours.GREY}:
        light, dark = (_contrast(colour, paper) for paper in ("#ffffff", "#14181e"))
        assert min(light, dark) >= 3.0, colour
        assert _contrast(colour, colours.ink(colour)) >= 4.5, colour
    for matrix in _SIGHTS:
        labs = [_lab(_seen(matrix, _linear(colour))) for colour in colours.COLOURS[:8]]
        assert min(math.dist(*pair) for pair in itertools.combinations(labs, 2)) > 22


def test_an_opened_run_shows_the_same_charts_and_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    opened = OpenedRun(run.path)
    shown, metadata = opened.roofline("prefill")._repr_mimebundle_()
    assert shown.keys() == {VEGALITE, "image/svg+xml", "text/plain"} and metadata
    assert len(str(shown[VEGALITE])) < len(str(opened.roofline()))
    for chart in (opened.stalls(), opened.occupancy(), opened.timeline(), opened.memory()):
        assert chart._repr_mimebundle_()[0]["image/svg+xml"].startswith("<svg")
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
