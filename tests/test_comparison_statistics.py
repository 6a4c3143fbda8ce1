"""The test of two sides: exact, the interval agrees with it, and it says what it does not know."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis.comparison import statistics
from fiprof.analysis.comparison.statistics import Outcome, differences, processes_for, relabellings
from fiprof.analysis.thresholds import Threshold

SIDES = st.integers(1, 3).flatmap(
    lambda cases: st.lists(
        st.lists(st.floats(90, 110), min_size=cases, max_size=cases), min_size=10, max_size=12
    ).filter(lambda rows: len(rows) % 2 == 0)
)


def halves(rows: list[list[float]]) -> tuple[list[list[float]], list[list[float]]]:
    return rows[: len(rows) // 2], rows[len(rows) // 2 :]


def test_p_is_scipys_of_one_case_without_a_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = pytest.importorskip("scipy.stats")
    monkeypatch.setattr(statistics, "PROCESS_SPREAD", Threshold(0.0, "%"))
    rng = np.random.default_rng(1)
    for shift in (0, 0.01, 0.02, 0.05):
        logs = rng.normal(0, 0.01, (10, 1))
        logs[5:] += shift
        (found,) = differences(np.exp(logs[:5]).tolist(), np.exp(logs[5:]).tolist())
        expected = stats.permutation_test(
            (logs[:5, 0], logs[5:, 0]), lambda x, y: abs(stats.ttest_ind(x, y).statistic), alternative="greater"
        )
        assert found.p == pytest.approx(expected.pvalue)


@given(SIDES)
def test_the_interval_is_the_shifts_that_are_not_rejected(rows: list[list[float]]) -> None:
    a, b = halves(rows)
    for found in differences(a, b):
        assert found.low_pct <= found.difference_pct <= found.high_pct
        assert (found.low_pct <= 0 <= found.high_pct) == (found.p > 0.02)
        # Of the equations that ends are solved from, a shift far below the spread decides nothing.
        if len(rows[0]) == 1 and found.tells_pct > 1e-6:
            for outwards, rejected in ((1.001, True), (0.999, False)):
                shift = 1 + (found.difference_pct + outwards * (found.high_pct - found.difference_pct)) / 100
                (again,) = differences(a, [[row[0] / shift] for row in b])
                assert (again.p <= 0.02) == rejected


@given(SIDES)
def test_sides_exchanged_turn_the_difference_round(rows: list[list[float]]) -> None:
    a, b = halves(rows)
    for one, other in zip(differences(a, b), differences(b, a), strict=True):
        assert one.p == other.p
        assert math.log1p(one.difference_pct / 100) == pytest.approx(-math.log1p(other.difference_pct / 100), abs=1e-9)
        assert math.log1p(one.low_pct / 100) == pytest.approx(-math.log1p(other.high_pct / 100), abs=1e-9)


@pytest.mark.parametrize(
    ("b_us", "expected", "needed"),
    [
        pytest.param((102.0, 102.1, 102.2, 101.9, 102.0), Outcome.SLOWER, None, id="2 % slower"),
        pytest.param((98.0, 98.1, 97.9, 98.0, 98.1), Outcome.FASTER, None, id="2 % faster"),
        pytest.param((100.5, 100.4, 100.6, 100.5, 100.5), Outcome.SAME, None, id="certain, but below 1 %"),
        pytest.param((100.0, 100.0, 100.0, 100.0, 100.0), Outcome.SAME, None, id="equal to the last bit"),
        pytest.param((100.0, 104.0, 97.0, 101.0, 103.0), Outcome.CANNOT_TELL, 59, id="noisy"),
        pytest.param((103.0, 103.1, 103.2, 103.0, 99.9), Outcome.CANNOT_TELL, 6, id="one process like the others"),
    ],
)
def test_outcomes(b_us: tuple[float, ...], expected: Outcome, needed: int | None) -> None:
    (found,) = differences([[100.0]] * 3 + [[100.1], [99.9]], [[time] for time in b_us])
    assert (found.outcome, found.processes_needed) == (expected, needed)


def test_one_case_that_differs_neither_hides_nor_makes_another() -> None:
    rng = np.random.default_rng(3)
    a, b = np.exp(rng.normal(0, 0.001, (2, 5, 40)))
    b[:, 7] *= 1.05
    found = differences(a.tolist(), b.tolist())
    assert [index for index, each in enumerate(found) if each.outcome is not Outcome.SAME] == [7]


def test_relabellings_are_all_or_drawn() -> None:
    assert len({tuple(row) for row in relabellings(5).tolist()}) == 252
    drawn = relabellings(9)
    assert len(drawn) == statistics.MOST_ENUMERATED
    assert not drawn.sum(axis=1).any()
    assert (drawn[0] > 0).tolist() == [False] * 9 + [True] * 9
    assert (drawn == relabellings(9)).all()


def test_processes_that_a_smaller_difference_needs() -> None:
    assert processes_for(1.0, 1.0, 5) == 5
    assert processes_for(0.5, 1.0, 5) == 20


@pytest.mark.parametrize("slower", [0, 5, 10])
def test_alarms_and_intervals_are_as_often_wrong_as_they_say(slower: int) -> None:
    """Ten cases whose processes have something in common, of which so many are 3% slower on side B. 16 of 800 are 2%; 24
    allow for chance."""
    rng = np.random.default_rng(5)
    effects = np.repeat([0.03, 0.0], [slower, 10 - slower])
    alarms = wrong = 0
    for _ in range(800):
        spread = rng.uniform(0.001, 0.006, 10)
        logs = (rng.normal(0, 1, (10, 10)) + rng.normal(0, 0.5, (10, 1))) * spread
        logs[5:] += effects
        found = list(zip(differences(np.exp(logs[:5]).tolist(), np.exp(logs[5:]).tolist()), effects, strict=True))
        alarms += any(each.p <= 0.02 for each, effect in found if not effect)
        wrong += any(not each.low_pct <= 100 * math.expm1(effect) <= each.high_pct for each, effect in found)
    assert alarms <= 24
    assert wrong <= 24
