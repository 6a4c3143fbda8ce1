"""fiprof/model/times.py: medians and spreads."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.model.times import Times, summarize
from tests.reports_fixture import make_run


def rounded(times: Times | None) -> Times:
    assert times is not None
    return Times(times.count, *(round(value, 6) for value in (times.median_us, times.p10_us, times.p90_us)))


@given(st.lists(st.floats(0.001, 1e9), min_size=1))
def test_percentiles_are_in_order(durations_us: list[float]) -> None:
    times = summarize(durations_us)
    assert times is not None
    assert times.count == len(durations_us)
    assert times.median_us == pytest.approx(statistics.median(durations_us))
    assert min(durations_us) <= times.p10_us <= times.p90_us <= max(durations_us)
    assert times.spread >= 0


def test_trace_times_by_kernel_and_by_iteration(tmp_path: Path) -> None:
    rows = [
        {"phase": phase, "case": case_id, "iteration": iteration, "kernel": kernel, "duration_ns": ns}
        for phase, case_id, iteration, kernel, ns in (
            ("measure", "a", 0, "K", 1000),
            ("measure", "a", 0, "K", 3000),
            ("measure", "a", 0, "L", 500),
            ("measure", "a", 1, "K", 2000),
            ("measure", "a", 1, "K", 2000),
            ("measure", "a", 1, "L", 700),
            ("measure", "b", 0, "K", 9000),
            ("warmup", "a", None, "K", 77000),
            (None, None, None, "elementwise", 88000),
        )
    ]
    trace = make_run(tmp_path / "run", kernels=rows).trace
    assert {key: (times.count, times.median_us) for key, times in trace.kernels.items()} == {
        ("a", "K"): (4, 2.0),
        ("a", "L"): (2, 0.6),
        ("b", "K"): (1, 9.0),
    }
    assert trace.cases["a"].executions == 3.0
    assert rounded(trace.cases["a"].iteration) == Times(2, 4.6, 4.52, 4.68)
    assert trace.cases["b"].iteration.median_us == 9.0
