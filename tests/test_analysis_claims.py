"""fiprof/analysis/claims.py with FlashInfer's claims: each verdict is a test on the recorded numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fiprof.analysis.claims import Limits, Result
from fiprof.analysis.ratio import by_rounds, ratio
from fiprof.analysis.study import Study
from fiprof.flashinfer.claims import CLAIMS
from fiprof.model.results import CaseResult, KernelResults, Times
from tests import study_fixture as fixture

BY_NAME = {claim.name: claim for claim in CLAIMS}


def study_of(*cases: CaseResult) -> Study:
    """A study of these cases, without a folder."""
    return Study(Path("nowhere"), fixture.INFO, (KernelResults("any", "mine", list(cases)),))


def result(name: str, *cases: CaseResult) -> Result:
    return BY_NAME[name].result(study_of(*cases))


def timed(case: CaseResult, us: float, relative: float = 0.005) -> CaseResult:
    return dataclasses.replace(case, plain=fixture.times(us, relative=relative, seed=case.id))


def decode(kv_heads: int = 8, kv_len: int = 2048, batch: int = 32) -> CaseResult:
    return fixture.decode(batch, kv_len, kv_heads, tensor_cores=False, cuda_graph=False)


# Ratios


def test_the_interval_of_a_ratio_combines_both_sides_on_a_logarithmic_scale() -> None:
    found = ratio(Times(110, 108, 113, 0.97, 60, 6, []), Times(100, 99, 102, 0.95, 60, 6, []))
    assert found is not None
    assert found.value == pytest.approx(1.1)
    assert math.log(found.value / found.low) == pytest.approx(math.hypot(math.log(110 / 108), math.log(102 / 100)))
    assert math.log(found.high / found.value) == pytest.approx(math.hypot(math.log(113 / 110), math.log(100 / 99)))
    assert found.confidence == 0.95


@given(st.floats(1, 1e5), st.floats(1, 1e5), st.floats(0, 0.2), st.floats(0, 0.2))
def test_a_ratio_and_its_inverse_say_the_same(one_us: float, other_us: float, one: float, other: float) -> None:
    times = fixture.times(one_us, relative=one), fixture.times(other_us, relative=other)
    there, back = ratio(*times), ratio(*times[::-1])
    assert there is not None and back is not None
    assert there.low * back.high == pytest.approx(1)
    if 1 not in (there.low, there.high):
        assert {there.direction, back.direction} in ({"more", "less"}, {"same"})


@pytest.mark.parametrize("comparisons", [1, 54])
def test_the_interval_of_rounds_is_that_of_a_t_test_at_bonferronis_level(comparisons: int) -> None:
    one, other = [103.0, 101.0, 104.0, 102.0, 105.0, 103.5], [51.0, 50.0, 51.5, 50.5, 50.2, 51.1]
    found = by_rounds(Times(103, 101, 105, 0.97, 60, 6, one), Times(51, 50, 52, 0.97, 60, 6, other), comparisons)
    theirs = stats.ttest_rel(np.log(one), np.log(other)).confidence_interval(1 - 0.05 / comparisons)
    assert found is not None and found.confidence == pytest.approx({1: 0.95, 54: 0.99907}[comparisons], abs=1e-5)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((theirs.low, theirs.high))
    assert found.value == pytest.approx(stats.gmean(np.array(one) / np.array(other)))


def test_all_intervals_of_a_claim_hold_at_once_as_often_as_they_say() -> None:
    """54 pairs of equal cases, six rounds each with 2% of noise: with 95% single intervals, 94% of studies see some
    difference; with Bonferroni's, at most 5%."""
    noise = np.random.default_rng(1)

    def wrong(comparisons: int) -> float:
        studies = 0
        for _ in range(200):
            rounds = np.exp(noise.normal(0, 0.02, (54, 2, 6))).tolist()
            times = [[Times(1, 1, 1, 0.97, 60, 6, each) for each in pair] for pair in rounds]
            found = [by_rounds(one, other, comparisons) for one, other in times]
            studies += any(ratio is not None and ratio.direction != "same" for ratio in found)
        return studies / 200

    assert wrong(1) == pytest.approx(0.94, abs=0.04)
    assert wrong(54) == pytest.approx(0.05, abs=0.04)


@given(st.floats(0.2, 8), st.floats(0, 0.3))
def test_a_pair_holds_or_lies_wholly_beyond_or_is_unclear(value: float, width: float) -> None:
    low, high = value * (1 - width), value * (1 + width)
    expected = (
        "holds" if low >= 1.35 and high <= 1.65 else "below" if high < 1.35 else "above" if low > 1.65 else "unclear"
    )
    assert Limits(1.35, 1.65).outcome(low, high) == expected


# Claims about times

PAIRS: dict[str, tuple[Callable[[], CaseResult], Callable[[], CaseResult], float]] = {
    "gqa-faster": (lambda: decode(32), lambda: decode(8), 1.5),
    "cos-sin-cache-faster": (lambda: fixture.rope(4096, "inplace"), lambda: fixture.rope(4096, "cos_sin_cache"), 1.075),
    "fa3-beats-fa2": (lambda: fixture.prefill(4, 2048, 8, "fa2"), lambda: fixture.prefill(4, 2048, 8, "fa3"), 1.4),
    "four-times-the-kv": (lambda: decode(kv_len=2048), lambda: decode(kv_len=512), 3.8),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_claimed_ratio_is_confirmed_by_that_ratio_and_overstated_by_none(name: str) -> None:
    one, other, claimed = PAIRS[name]
    assert result(name, timed(one(), 100 * claimed), timed(other(), 100)).verdict == "confirmed"
    assert result(name, timed(one(), 90), timed(other(), 100)).verdict == "overstated"
    wide = result(name, timed(one(), 100 * claimed, 0.6), timed(other(), 100, 0.6))
    assert wide.verdict == "not_testable"
    assert wide.absence is not None and (wide.absence.kind, wide.absence.values["count"]) == ("too_wide", 1)
    assert result(name, one()).verdict == "not_testable"


SIZES = (1, 8, 32, 64, 128, 256)


@pytest.mark.parametrize(
    ("times_us", "verdict"),
    [
        ((150, 150, 150, 150, 150, 150), "confirmed"),
        ((283, 283, 283, 283, 283, 283), "understated"),
        ((283, 283, 283, 283, 283, 90), "understated"),  # five of six lie wholly above
        ((110, 110, 110, 110, 110, 150), "overstated"),
        ((150, 150, 150, 150, 150, 110), "depends"),
        ((90, 90, 90, 283, 283, 283), "depends"),
    ],
)
def test_a_number_is_wrong_on_the_side_where_most_pairs_lie(times_us: tuple[float, ...], verdict: str) -> None:
    """GQA against «1.5x faster», at six batches."""
    cases = []
    for us, batch in zip(times_us, SIZES, strict=True):
        cases += [timed(decode(32, batch=batch), us), timed(decode(8, batch=batch), 100)]
    found = result("gqa-faster", *cases)
    assert found.verdict == verdict
    assert found.effect is not None and found.effect.interval is not None
    low, high = found.effect.interval
    assert low < np.median(times_us) / 100 < high
    assert found.effect.count == 6


# Claims about traffic and bounds


def counted(workload: str, bytes_: float | None) -> CaseResult:
    case = fixture.norm(workload, 4096, 8192)
    first, *rest = case.kernels
    others = (dataclasses.replace(kernel, dram_bytes=0.0) for kernel in rest)
    return dataclasses.replace(case, kernels=[dataclasses.replace(first, dram_bytes=bytes_), *others])


@given(st.floats(0.0, 0.9))
def test_saved_traffic_is_counted_bytes_against_counted_bytes(saving: float) -> None:
    found = result(
        "fusing-saves-traffic", counted("fused_add_rmsnorm", 1e8 * (1 - saving)), counted("add_then_rmsnorm", 1e8)
    )
    if not 0.349 < saving < 0.351 and not 0.449 < saving < 0.451:
        assert found.verdict == ("overstated" if saving < 0.35 else "understated" if saving > 0.45 else "confirmed")
    assert [item.saving for item in found.tested] == [pytest.approx(saving)]


def judged(case: CaseResult, kind: str) -> CaseResult:
    verdict = fixture.verdict(kind) if kind else None
    return dataclasses.replace(case, kernels=[dataclasses.replace(k, verdict=verdict) for k in case.kernels])


def test_a_bound_is_confirmed_by_all_cases_and_depends_where_some_have_another() -> None:
    memory = [judged(decode(batch=batch), "memory") for batch in (32, 64, 128, 256)]
    latency = [judged(decode(batch=batch), "latency") for batch in (1, 8)]
    assert result("decode-memory-bound", *memory).verdict == "confirmed"
    found = result("decode-memory-bound", *latency, *memory)
    assert found.verdict == "depends"
    assert found.where.startswith("batch 1: 1 below; batch 8: 1 below; batch 32: 1 hold")
    assert result("decode-memory-bound", *latency).verdict == "overstated"
