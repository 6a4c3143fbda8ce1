"""fiprof/analysis/scaling.py: the fits, computed again here with NumPy from the JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis import scaling
from fiprof.analysis.study import Study, load
from fiprof.model.results import CaseResult, KernelResults
from fiprof.reports.study_pages.scaling import view
from fiprof.reports.view import render
from tests import study_fixture as fixture

AXES = {
    "prefill": ("batch", "seq_len"),
    "decode": ("batch", "kv_len"),
    "rmsnorm": ("rows",),
    "fused_add_rmsnorm": ("rows",),
    "add_then_rmsnorm": ("rows",),
    "rope": ("tokens",),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture.write_study(tmp_path_factory.mktemp("study") / "study")


@pytest.fixture(scope="module")
def whole(folder: Path) -> Study:
    return load(folder)


def lines(folder: Path, workload: str, axis: str) -> dict[str, list[tuple[float, float]]]:
    """All other parameters -> (axis, plain median), read from the JSON alone; at least three points."""
    found: dict[str, list[tuple[float, float]]] = {}
    for case in json.loads((folder / f"results/{workload}.json").read_text())["cases"]:
        if case["plain"] is not None:
            key = json.dumps({name: value for name, value in case["params"].items() if name != axis})
            found.setdefault(key, []).append((case["params"][axis], case["plain"]["median_us"]))
    return {key: sorted(points) for key, points in found.items() if len(points) >= 3}


def key_of(case: CaseResult, axis: str) -> str:
    return json.dumps({name: value for name, value in case.params.items() if name != axis})


@pytest.mark.parametrize(("workload", "axis"), [(name, axis) for name, axes in AXES.items() for axis in axes])
def test_every_fit_is_that_of_numpy(folder: Path, whole: Study, workload: str, axis: str) -> None:
    expected = lines(folder, workload, axis)
    found = {key_of(item.cases[0], axis): item for item in scaling.fits(whole, workload, axis)}
    assert found.keys() == expected.keys() and found
    for key, points in expected.items():
        x, y = np.array(points).T
        power = 2 if (workload, axis) == ("prefill", "seq_len") else 1
        slope, intercept = np.polyfit(x**power, y, 1)
        line = intercept + slope * x**power
        exponent = np.polyfit(np.log(x), np.log(y), 1)[0]
        item = found[key]
        assert item.slope_us == pytest.approx(slope, rel=1e-6)
        assert item.intercept_us == pytest.approx(intercept, rel=1e-6, abs=1e-6 * y.max())
        assert item.r_squared == pytest.approx(1 - ((y - line) ** 2).sum() / ((y - y.mean()) ** 2).sum(), rel=1e-6)
        assert item.exponent == pytest.approx(exponent, rel=1e-6)
        residuals = (y - line) / y
        assert item.largest_residual == pytest.approx(residuals[np.abs(residuals).argmax()], rel=1e-4, abs=1e-9)


def test_the_interval_of_the_slope_is_that_of_students_t(folder: Path, whole: Study) -> None:
    item = scaling.fits(whole, "rope", "tokens")[0]
    x, y = np.array(lines(folder, "rope", "tokens")[key_of(item.cases[0], "tokens")]).T
    slope, intercept = np.polyfit(x, y, 1)
    variance = ((y - intercept - slope * x) ** 2).sum() / (len(x) - 2)
    error = np.sqrt(variance / ((x - x.mean()) ** 2).sum())
    # Two degrees of freedom: the 97.5th percentile of t is 4.303.
    assert item.slope_error_us == pytest.approx(4.3027 * error, rel=1e-4)


def made(points: list[tuple[int, float]]) -> Study:
    cases: list[CaseResult] = []
    for kv_len, us in points:
        case = fixture.decode(8, kv_len, 8, tensor_cores=False, cuda_graph=False)
        cases.append(fixture.scaled(case, us / (case.plain.median_us if case.plain else 1)))
    return Study(Path("nowhere"), fixture.INFO, (KernelResults("decode", "mine", cases),))


@given(st.floats(0.01, 2), st.floats(1, 50))
def test_a_straight_line_is_found(slope: float, intercept: float) -> None:
    (item,) = scaling.fits(made([(n, intercept + slope * n) for n in (512, 1024, 2048, 8192)]), "decode")
    assert item.slope_us == pytest.approx(slope, rel=1e-6)
    assert item.intercept_us == pytest.approx(intercept, rel=1e-4)
    assert item.r_squared == pytest.approx(1)


@given(st.floats(0.3, 2.5))
def test_a_power_law_is_found(exponent: float) -> None:
    (item,) = scaling.fits(made([(n, 3 * (n / 512) ** exponent) for n in (512, 1024, 2048, 8192)]), "decode")
    assert item.exponent == pytest.approx(exponent, rel=1e-6)


def test_two_points_are_no_fit() -> None:
    assert scaling.fits(made([(512, 10.0), (2048, 20.0)]), "decode") == []


def test_the_case_farthest_from_the_line_is_named() -> None:
    (item,) = scaling.fits(made([(512, 40.0), (1024, 12.0), (2048, 20.0), (8192, 60.0)]), "decode")
    assert item.largest_residual_at == 1024
    assert item.largest_residual < -scaling.FAR_OFF


def test_the_table(whole: Study) -> None:
    found = scaling.fits(whole, "rope", "tokens")
    table: list[dict[str, Any]] = json.loads(render(view(whole, found), "json"))["rows"]
    assert [row["where"] for row in table] == ["inplace", "cos_sin_cache", "llama31"]
    assert table[0]["slope"] == "5.613 ± 0.002"
