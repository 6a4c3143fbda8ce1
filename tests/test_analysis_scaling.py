"""fiprof/analysis/scaling.py: fits of made-up lines; those of the recorded study: test_reports_study_recorded.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis import scaling
from fiprof.analysis.study import Study
from fiprof.model.results import CaseResult, KernelResults
from tests import study_fixture as fixture


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
