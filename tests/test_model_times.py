"""fiprof/model/times.py: medians and spreads."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.model.times import summarize


@given(st.lists(st.floats(0.001, 1e9), min_size=1))
def test_percentiles_are_in_order(durations_us: list[float]) -> None:
    times = summarize(durations_us)
    assert times is not None
    assert times.count == len(durations_us)
    assert times.median_us == pytest.approx(statistics.median(durations_us))
    assert min(durations_us) <= times.p10_us <= times.p90_us <= max(durations_us)
    assert times.spread >= 0
