"""Kernels that ran side by side."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis.concurrency import overlap_shares
from fiprof.model.unions import union_by
from tests.reports_fixture import execution, make_run


def test_kernels_side_by_side(tmp_path: Path) -> None:
    rows = [
        execution(0, 100, "A"),
        execution(50, 90, "B", stream=8),
        execution(60, 80, "C", stream=9),
        execution(200, 300, "A"),
        # A programmatic dependent launch: the same stream.
        execution(290, 400, "D"),
        # Another process, another GPU, and what is not measured, which yet stands beside D.
        execution(200, 300, "E", stream=8, pid=2),
        execution(200, 300, "F", stream=8, device=1),
        execution(380, 500, "G", stream=8, phase="warmup"),
        execution(600, 700, "H", phase=None, case=None),
        execution(650, 700, "I", phase=None, case=None, stream=8),
    ]
    measured = "mine[rows=8]"
    assert overlap_shares(make_run(tmp_path / "run", kernels=rows)) == {
        (measured, "A"): 0.2, (measured, "B"): 1.0, (measured, "C"): 1.0, (measured, "D"): 20 / 110,
        (measured, "E"): 0.0, (measured, "F"): 0.0, (None, "H"): 0.5, (None, "I"): 1.0,
    }  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 9)), max_size=20))
def test_unions_are_those_of_each_moment(intervals: list[tuple[int, int, int]]) -> None:
    keys, starts, lengths = np.array(intervals, np.int64).reshape(-1, 3).T
    found = list(zip(*(each.tolist() for each in union_by(keys, starts, starts + lengths)), strict=True))
    moments = {(key, at) for key, start, length in intervals for at in range(start, start + length)}
    assert {(key, at) for key, start, end in found for at in range(start, end)} == moments
    assert found == sorted(found)
    assert all(a[0] != b[0] or a[2] < b[1] for a, b in itertools.pairwise(found))
