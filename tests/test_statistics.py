"""Intervals, ratios, tests of two sides, fits, claims and alternatives."""

import dataclasses
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fiprof.analysis import alternatives
from fiprof.analysis.claims import Claim, ClaimResult
from fiprof.analysis.comparison import statistics
from fiprof.analysis.comparison.statistics import Outcome, differences, relabellings
from fiprof.analysis.ratio import by_rounds, interval, ratio, times
from fiprof.analysis.study import Study
from fiprof.analysis.thresholds import Threshold
from fiprof.flashinfer.study import claims
from fiprof.model.packs import Value
from fiprof.model.results import CaseResult, CaseTimes, KernelResults
from tests.test_study import RECORDED, times_around


@pytest.mark.parametrize("count", [6, 7, 20, 61, 5000])
def test_the_interval_is_that_of_scipys_quantile_test(count: int) -> None:
    values = random.Random(count).sample(range(10_000), count)
    low, high, confidence = interval([float(value) for value in values])
    theirs = stats.quantile_test(values, p=0.5).confidence_interval(confidence_level=0.95)
    assert confidence >= 0.95
    assert (low, high) == (theirs.low, theirs.high)


def test_too_few_observations_say_how_sure_their_range_is() -> None:
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0, 0.75)
    assert interval([7.0]) == (7.0, 7.0, 0.0)
    assert interval([1, 2, 3, 4, 5, 6]) == (1, 6, 0.96875)


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
    assert found is not None and (found.rounds, found.median_us) == (1, 3.0)
    assert times([], rounds=3) is None


def gqa_faster(*cases: CaseResult) -> ClaimResult:
    """Of the claim "1.5x faster" about a study of these cases."""
    (claim,) = (each for each in claims() if each.name == "gqa-faster")
    return claim.result(Study(Path("nowhere"), RECORDED.info, (KernelResults("any", "mine", list(cases)),)))


def decode(kv_heads: int, us: float, *, batch: int = 32, relative: float = 0.005) -> CaseResult:
    """A recorded case of decode that takes another time."""
    params = {"batch": batch, "kv_len": 2048, "kv_heads": kv_heads, "tensor_cores": False, "cuda_graph": False}
    found = next(case for case in RECORDED.by_workload["decode"] if params.items() <= case.params.items())
    return dataclasses.replace(found, plain=times_around(us, relative=relative, seed=found.id))


def test_the_interval_of_a_ratio_combines_both_sides_on_a_logarithmic_scale() -> None:
    found = ratio(CaseTimes(110, 108, 113, 0.97, 60, 6, []), CaseTimes(100, 99, 102, 0.95, 60, 6, []))
    assert found is not None
    assert found.value == pytest.approx(1.1)
    assert math.log(found.value / found.low) == pytest.approx(math.hypot(math.log(110 / 108), math.log(102 / 100)))
    assert math.log(found.high / found.value) == pytest.approx(math.hypot(math.log(113 / 110), math.log(100 / 99)))
    assert found.confidence == 0.95


@given(st.floats(1, 1e5), st.floats(1, 1e5), st.floats(0, 0.2), st.floats(0, 0.2))
def test_a_ratio_and_its_inverse_say_the_same(one_us: float, other_us: float, one: float, other: float) -> None:
    times = times_around(one_us, relative=one), times_around(other_us, relative=other)
    there, back = ratio(*times), ratio(*times[::-1])
    assert there is not None and back is not None
    assert there.low * back.high == pytest.approx(1)
    if 1 not in (there.low, there.high):
        assert {there.direction, back.direction} in ({"more", "less"}, {"same"})


def test_all_intervals_of_a_claim_hold_at_once_as_often_as_they_say() -> None:
    """54 pairs of equal cases, six rounds each with 2% of noise: with 95% single intervals, 94% of studies see some
    difference; with Bonferroni's, at most 5%."""
    noise = np.random.default_rng(1)

    def wrong(comparisons: int) -> float:
        studies = 0
        for _ in range(100):
            rounds = np.exp(noise.normal(0, 0.02, (54, 2, 6))).tolist()
            times = [[CaseTimes(1, 1, 1, 0.97, 60, 6, each) for each in pair] for pair in rounds]
            found = [by_rounds(one, other, comparisons) for one, other in times]
            studies += any(ratio is not None and ratio.direction != "same" for ratio in found)
        return studies / 100

    assert wrong(1) == pytest.approx(0.94, abs=0.04)
    assert wrong(54) == pytest.approx(0.05, abs=0.04)


@given(st.floats(0.2, 8), st.floats(0, 0.3))
def test_a_pair_holds_or_lies_wholly_beyond_or_is_unclear(value: float, width: float) -> None:
    low, high = value * (1 - width), value * (1 + width)
    beyond = "below" if high < 1.35 else "above" if low > 1.65 else "unclear"
    expected = "holds" if low >= 1.35 and high <= 1.65 else beyond
    claim = Claim("", "", "", "ratio", "decode | decode", "1.35..1.65", "", "")
    assert claim.outcome(low, high) == expected


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
    cases = []
    for us, batch in zip(times_us, (1, 8, 32, 64, 128, 256), strict=True):
        cases += [decode(32, us, batch=batch), decode(8, 100, batch=batch)]
    found = gqa_faster(*cases)
    assert found.verdict == verdict
    assert found.effect is not None and found.effect[1] is not None
    low, high = found.effect[1]
    assert low < np.median(times_us) / 100 < high
    assert len(found.tested) == 6


def test_intervals_that_are_too_wide_test_nothing() -> None:
    wide = gqa_faster(decode(32, 150, relative=0.6), decode(8, 100, relative=0.6))
    assert wide.absence is not None and (wide.verdict, wide.absence.kind) == ("not_testable", "too_wide")


Side = list[list[float]]


def times_of(processes: int, cases: int) -> st.SearchStrategy[Side]:
    one = st.lists(st.floats(90, 110), min_size=cases, max_size=cases)
    return st.lists(one, min_size=processes, max_size=processes)


SIDES = st.tuples(st.integers(5, 6), st.integers(1, 3)).flatmap(
    lambda sizes: st.tuples(times_of(*sizes), times_of(*sizes))
)


@pytest.mark.parametrize("spread", [0.01, 0.0002])
def test_p_is_the_larger_of_scipys_two_without_a_floor(monkeypatch: pytest.MonkeyPatch, spread: float) -> None:
    monkeypatch.setattr(statistics, "PROCESS_SPREAD", Threshold(0.0, "%"))
    rng = np.random.default_rng(1)
    for shift in (0, 0.01, 0.02, 0.05):
        a, b = rng.normal(0, spread, 5), rng.normal(shift, 0.01, 5)
        (found,) = differences(np.exp(a)[:, None].tolist(), np.exp(b)[:, None].tolist())
        permuted = stats.permutation_test(
            (a, b), lambda x, y, axis: abs(stats.ttest_ind(x, y, axis=axis)[0]), vectorized=True, alternative="greater"
        )
        welch = stats.ttest_ind(a, b, equal_var=False)
        own = 2 * stats.t.sf(abs(welch.statistic), max(4, welch.df - 2))
        assert found.p == pytest.approx(max(permuted.pvalue, own), rel=1e-4)
        assert found.spread_ratio == pytest.approx(b.std() / a.std())
        tails = (tail(found.spread_ratio**2, 4, 4) for tail in (stats.f.sf, stats.f.cdf))
        assert found.spread_p >= 0.999 * 2 * min(tails)


@given(SIDES)
def test_the_interval_is_the_shifts_that_are_not_rejected(sides: tuple[Side, Side]) -> None:
    a, b = sides
    for found in differences(a, b):
        assert found.low_pct <= found.difference_pct <= found.high_pct
        assert (found.low_pct <= 0 <= found.high_pct) == (found.p > 0.02)
        # Of the equations that ends are solved from, a shift far below the spread decides nothing.
        if len(a[0]) == 1 and found.tells_pct > 1e-6:
            for outwards, rejected in ((1.001, True), (0.999, False)):
                shift = 1 + (found.difference_pct + outwards * (found.high_pct - found.difference_pct)) / 100
                (again,) = differences(a, [[row[0] / shift] for row in b])
                assert (again.p <= 0.02) == rejected


@given(SIDES)
def test_sides_exchanged_turn_the_difference_round(sides: tuple[Side, Side]) -> None:
    a, b = sides
    for one, other in zip(differences(a, b), differences(b, a), strict=True):
        assert (one.p, one.spread_p) == pytest.approx((other.p, other.spread_p))
        assert math.log1p(one.difference_pct / 100) == pytest.approx(-math.log1p(other.difference_pct / 100), abs=1e-9)
        assert math.log1p(one.low_pct / 100) == pytest.approx(-math.log1p(other.high_pct / 100), abs=1e-9)


@pytest.mark.parametrize(
    ("b_us", "expected", "needed"),
    [
        pytest.param((102.0, 102.1, 102.2, 101.9, 102.0), Outcome.SLOWER, None, id="2 % slower"),
        pytest.param((98.0, 98.1, 97.9, 98.0, 98.1), Outcome.FASTER, None, id="2 % faster"),
        pytest.param((100.5, 100.4, 100.6, 100.5, 100.5), Outcome.SAME, None, id="certain, but below 1 %"),
        pytest.param((100.0, 100.0, 100.0, 100.0, 100.0), Outcome.SAME, None, id="equal to the last bit"),
        pytest.param((100.0, 104.0, 97.0, 101.0, 103.0), Outcome.CANNOT_TELL, 102, id="noisy"),
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


@pytest.mark.parametrize(("slower", "wider"), [(0, 1), (5, 1), (0, 4)])
def test_alarms_and_intervals_are_as_often_wrong_as_they_say(slower: int, wider: int) -> None:
    """Ten cases whose processes have something in common, of which so many are 3% slower on side B, and whose spread is
    so many times as wide there: found as such, and no alarm. 8 of 400 are 2%; 14 allow for chance."""
    rng, count = np.random.default_rng(5), 5 if wider == 1 else 6
    effects = np.repeat([0.03, 0.0], [slower, 10 - slower])
    alarms = wrong = grew = 0
    for _ in range(400):
        spread = rng.uniform(0.001, 0.006, 10)
        logs = (rng.normal(0, 1, (2 * count, 10)) + rng.normal(0, 0.5, (2 * count, 1))) * spread
        logs[count:] = logs[count:] * wider + effects
        a, b = np.exp(logs).reshape(2, count, 10).tolist()
        found = list(zip(differences(a, b), effects, strict=True))
        alarms += any(each.p <= 0.02 for each, effect in found if not effect)
        wrong += any(not each.low_pct <= 100 * math.expm1(effect) <= each.high_pct for each, effect in found)
        grew += any(each.spread_grew for each, _ in found)
    assert max(alarms, wrong) <= 14
    assert grew <= 14 if wider == 1 else grew >= 60


def test_processes_in_another_state_are_no_spread_that_grew() -> None:
    """Three of seven processes of side B are in it, for one in six that there are by chance."""
    a, b = [[[100.0 + 0.01 * n + (2.0 if n >= first else 0.0)] for n in range(7)] for first in (7, 4)]
    assert differences(a, b)[0].spread_ratio > 9
    assert not differences(a, b)[0].spread_grew


def solved(rounds_us: Sequence[float], *, nsys_us: float | None = None, run: str = "a", **params: Value) -> CaseResult:
    """A case of decode of two iterations in each round."""
    plain = times([us for us in rounds_us for _ in range(2)], len(rounds_us))
    nsys = times([nsys_us]) if nsys_us else None
    whole = {"batch": 32, "kv_heads": 8, "page_size": 16, "tensor_cores": False, **params}
    return CaseResult(f"{params} {rounds_us}", "decode", whole, run=run, plain=plain, nsys=nsys, ncu_us=None)


SLOW, FAST = (100, 101, 99, 100, 102, 100), (80, 81, 79, 80, 82, 80)


@pytest.mark.parametrize(
    ("one", "other", "factor"),
    [
        pytest.param(solved(SLOW), solved(FAST, tensor_cores=True), 1.25, id="an option"),
        pytest.param(solved(SLOW), solved(FAST, tensor_cores=True, run="b"), None, id="another process"),
        # A single round: nothing but another process can confirm it.
        pytest.param(solved([100]), solved([80], page_size=64), None, id="one round"),
        pytest.param(solved([100], nsys_us=100), solved([80], page_size=64, nsys_us=97), None, id="not confirmed"),
    ],
)
def test_what_counts_as_an_alternative(one: CaseResult, other: CaseResult, factor: float | None) -> None:
    found = alternatives.of_cases([one, other])
    assert other.id not in found
    assert (round(found[one.id].factor.value, 3) if found else None) == factor
