"""Comparisons measured on an H200, decided anew: how often they are wrong, and what they find. docs/compare.md has these."""

from __future__ import annotations

import json
from collections import defaultdict
from statistics import geometric_mean
from typing import Any

import pytest

from fiprof.analysis.comparison.measured_result import ComparedCase, compared
from fiprof.analysis.comparison.statistics import Outcome
from tests.recorded_runs import RECORDED

SLOWER, FASTER, SAME = Outcome.SLOWER, Outcome.FASTER, Outcome.SAME


@pytest.fixture(scope="module")
def comparisons() -> dict[str, list[tuple[ComparedCase, ...]]]:
    """self, slow or the variant's name -> the comparisons of that."""
    found = defaultdict(list)
    for line in (RECORDED / "comparisons/h200.jsonl").read_text().splitlines():
        record: dict[str, Any] = json.loads(line)
        names = [(case["a"], case["b"]) for case in record["cases"]]
        times = [zip(*(case[side] for case in record["cases"]), strict=True) for side in ("a_us", "b_us")]
        name = record["comparison"].split()[0]
        found[name if name in ("self", "slow") else record["comparison"]].append(compared(names, *map(list, times)))
    return found


def test_the_same_thing_twice_is_never_called_different(comparisons: dict[str, list[tuple[ComparedCase, ...]]]) -> None:
    alarms = [any(case.difference.outcome is not SAME for case in each) for each in comparisons["self"]]
    assert (len(alarms), sum(alarms)) == (30, 0)


def test_a_kernel_that_is_slowed_by_a_known_part_is_found(
    comparisons: dict[str, list[tuple[ComparedCase, ...]]],
) -> None:
    """By the kernel's time in µs and the part in percent, which is the mean of all its comparisons."""
    found: dict[str, list[ComparedCase]] = defaultdict(list)
    for each in comparisons["slow"]:
        for case in each:
            found[case.b].append(case)
    rates = {}
    for cases in found.values():
        a_us, b_us = (geometric_mean(us for case in cases for us in getattr(case, f"{side}_us")) for side in "ab")
        slower = sum(case.difference.outcome is SLOWER for case in cases)
        rates[round(a_us), round(100 * (b_us / a_us - 1), 1)] = (slower, len(cases))
    assert rates == {
        # The loop's remainder: more than the 1, 2, 5 and 20 % that were meant.
        (9, 2.9): (5, 5),
        (9, 5.3): (5, 5),
        (9, 8.8): (5, 5),
        (9, 12.0): (5, 5),
        (43, 1.0): (2, 10),
        (43, 1.8): (10, 10),
        (43, 4.5): (10, 10),
        (43, 17.6): (10, 10),
        (174, 1.0): (9, 10),
        (174, 2.0): (10, 10),
        (174, 4.9): (10, 10),
        (174, 19.5): (10, 10),
        (850, 1.0): (10, 10),
        (850, 2.1): (10, 10),
        (850, 5.0): (10, 10),
        (850, 19.9): (10, 10),
    }


def test_variants(comparisons: dict[str, list[tuple[ComparedCase, ...]]]) -> None:
    found = {
        name: [(case.difference.outcome, round(case.difference.difference_pct, 1)) for case in each[0]]
        for name, each in comparisons.items()
        if name not in ("self", "slow")
    }
    assert found == {
        "decode cores": [(FASTER, -4.0), (FASTER, -23.3), (FASTER, -22.4)],
        "prefill fa2 fa3": [(FASTER, -17.5), (FASTER, -33.6)],
        "page size": [(SLOWER, 1.4), (SAME, 0.1), (SLOWER, 2.5), (SAME, 0.5)],
        "page size again": [(SLOWER, 1.6), (SAME, 0.5), (SLOWER, 2.0), (SAME, 0.5)],
        "commits": [(SLOWER, 11.0), (SLOWER, 13.1), (SLOWER, 14.9)],
        "a commit and its tree": [(SAME, 0.1)],
        "programs": [(FASTER, -37.1)],
    }
