"""Intervals of medians, against scipy's and against their own promise."""

from __future__ import annotations

import random
from statistics import median

import pytest

from fiprof.analysis.ratio import interval, times


@pytest.mark.parametrize("count", [6, 7, 9, 12, 20, 61, 1026, 5000])
def test_the_interval_is_that_of_scipys_quantile_test(count: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    values = random.Random(count).sample(range(10_000), count)
    low, high, confidence = interval([float(value) for value in values])
    theirs = stats.quantile_test(values, p=0.5).confidence_interval(confidence_level=0.95)
    assert confidence >= 0.95
    assert (low, high) == (theirs.low, theirs.high)


def test_too_few_observations_say_how_sure_their_range_is() -> None:
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0, 0.75)
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0])[2] == 0.9375
    assert interval([7.0]) == (7.0, 7.0, 0.0)
    assert interval([1, 2, 3, 4, 5, 6]) == (1, 6, 0.96875)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    """Of a skewed distribution, whose median is log 2."""
    chance = random.Random(1)
    draws = [interval([chance.expovariate(1.0) for _ in range(6)]) for _ in range(4000)]
    inside = sum(low <= 0.6931 <= high for low, high, _ in draws) / len(draws)
    assert inside == pytest.approx(0.96875, abs=0.01)


def test_rounds_are_the_observations() -> None:
    """Six rounds of four iterations each, drifting: the iterations of a round are no independent observations."""
    values = [100.0 + turn + 0.1 * i for turn in range(6) for i in range(4)]
    found = times(values, rounds=6)
    assert found is not None
    assert found.round_medians_us == pytest.approx([100.15, 101.15, 102.15, 103.15, 104.15, 105.15])
    assert [found.low_us, found.median_us, found.high_us] == pytest.approx([100.15, 102.65, 105.15])
    assert (found.confidence, found.count, found.rounds) == (0.96875, 24, 6)
    alone = times(values)
    assert alone is not None and alone.high_us - alone.low_us < found.high_us - found.low_us


def test_a_round_that_was_cut_short_makes_one_round_of_all() -> None:
    found = times([1.0, 2.0, 3.0, 4.0, 5.0], rounds=2)
    assert found is not None
    assert (found.rounds, found.median_us) == (1, median([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert times([], rounds=3) is None
