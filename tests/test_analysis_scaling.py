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


def only(points: list[tuple[int, float]]) -> scaling.Fit:
    (item,) = scaling.fits(made(points), "decode")
    return item


@given(st.floats(0.01, 2), st.floats(1, 50))
def test_a_straight_line_is_found(slope: float, intercept: float) -> None:
    line = only([(n, intercept + slope * n) for n in (512, 1024, 2048, 8192)]).line
    assert line is not None and line.holds
    assert line.slope_us.value == pytest.approx(slope, rel=1e-6)
    assert line.intercept_us.value == pytest.approx(intercept, rel=1e-3)


@given(st.floats(0.3, 2.5))
def test_a_power_law_is_found(exponent: float) -> None:
    law = only([(n, 3 * (n / 512) ** exponent) for n in (512, 1024, 2048, 8192)]).law
    assert law is not None and law.holds
    assert law.exponent.value == pytest.approx(exponent, rel=1e-6)


@pytest.mark.parametrize(
    ("times_us", "intercept"),
    [
        ([10.0, 40.0, 100.0, 500.0], 0.0),  # -21 µs without bounds, -26 µs without weights
        ([10.0, 40.0, 60.0, 80.0], 6.33),  # 26.9 µs without weights, where the smallest time is 10
        ([10.0, 9.5, 9.0, 6.0], 6.0),  # 10.1 µs without bounds
    ],
)
def test_what_does_not_grow_is_possible(times_us: list[float], intercept: float) -> None:
    line = only(list(zip((512, 1024, 2048, 8192), times_us, strict=True))).line
    assert line is not None and not line.holds
    found = line.intercept_us
    assert found.value == pytest.approx(intercept, abs=0.01)
    assert found.low >= 0 and found.high <= min(times_us)


def test_the_case_farthest_from_the_line_is_named_and_the_line_does_not_hold() -> None:
    item = only([(512, 40.0), (1024, 12.0), (2048, 20.0), (8192, 60.0)])
    assert item.line is not None and item.law is not None
    assert item.line.worst.at == 512 and item.line.worst.part == pytest.approx(0.71, abs=0.01)
    assert not item.line.holds and not item.law.holds
