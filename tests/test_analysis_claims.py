"""fiprof/analysis/claims.py with FlashInfer's claims: each verdict is a test on the recorded numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis.claims import Limits, Outcome, Result, claims
from fiprof.analysis.ratio import Ratio, ratio
from fiprof.analysis.study import Absent, Study, load
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
    return dataclasses.replace(case, plain=fixture.times(us, relative=relative))


def decode(kv_heads: int = 8, kv_len: int = 2048, batch: int = 32) -> CaseResult:
    return fixture.decode(batch, kv_len, kv_heads, tensor_cores=False, cuda_graph=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return load(fixture.write_study(tmp_path_factory.mktemp("study") / "study"))


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


def test_a_single_measurement_never_shows_a_difference() -> None:
    found = ratio(Times(200, 200, 200, 0.0, 1, 1, [200.0]), Times(100, 100, 100, 0.0, 1, 1, [100.0]))
    assert found is not None
    assert found.direction == "same"
    assert Limits(1.5).outcome(found) == "unclear"


@given(st.floats(0.2, 8), st.floats(0, 0.3))
def test_a_pair_holds_fails_or_is_unclear_by_its_interval(value: float, width: float) -> None:
    found = Ratio(value, value * (1 - width), value * (1 + width), 0.95)
    expected = (
        "holds"
        if found.low >= 1.35 and found.high <= 1.65
        else "fails"
        if found.high < 1.35 or found.low > 1.65
        else "unclear"
    )
    assert Limits(1.35, 1.65).outcome(found) == expected


# Claims about times

PAIRS: dict[str, tuple[Callable[[], CaseResult], Callable[[], CaseResult], float]] = {
    "gqa-faster": (lambda: decode(32), lambda: decode(8), 1.5),
    "cos-sin-cache-faster": (lambda: fixture.rope(4096, "inplace"), lambda: fixture.rope(4096, "cos_sin_cache"), 1.075),
    "fa3-beats-fa2": (lambda: fixture.prefill(4, 2048, 8, "fa2"), lambda: fixture.prefill(4, 2048, 8, "fa3"), 1.4),
    "four-times-the-kv": (lambda: decode(kv_len=2048), lambda: decode(kv_len=512), 3.8),
    "four-times-the-sequence": (
        lambda: fixture.prefill(4, 2048, 8, "fa3"),
        lambda: fixture.prefill(4, 512, 8, "fa3"),
        3.8,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_claimed_ratio_is_confirmed_by_that_ratio_and_refuted_by_none(name: str) -> None:
    one, other, claimed = PAIRS[name]
    assert result(name, timed(one(), 100 * claimed), timed(other(), 100)).verdict == "confirmed"
    assert result(name, timed(one(), 90), timed(other(), 100)).verdict == "refuted"
    assert result(name, timed(one(), 100 * claimed, 0.6), timed(other(), 100, 0.6)).verdict == "undecided"
    assert result(name, one()).verdict == "not_measured"


def test_a_claim_that_holds_for_some_sizes_is_true_in_part_and_for_few_is_refuted() -> None:
    sizes = (1, 8, 32, 64, 128, 256)

    def with_holding(n: int) -> Result:
        cases = []
        for i, batch in enumerate(sizes):
            cases += [timed(decode(32, batch=batch), 150 if i < n else 390), timed(decode(8, batch=batch), 100)]
        return result("gqa-faster", *cases)

    assert [with_holding(n).verdict for n in (0, 1, 5, 6)] == ["refuted", "partly", "partly", "confirmed"]
    assert [with_holding(n).counted(Outcome.HOLDS) for n in (0, 1, 5, 6)] == [0, 1, 5, 6]
    assert with_holding(1).directions == {"more": 6}


def test_cases_that_differ_in_more_than_the_claim_are_no_pair() -> None:
    assert result("gqa-faster", decode(32, kv_len=512), decode(8, kv_len=2048)).verdict == "not_measured"


def test_no_difference_is_seen_where_the_intervals_overlap() -> None:
    cases = {
        (batch, backend): timed(fixture.prefill(batch, 2048, 8, backend), us)
        for batch, us in ((4, 100.2), (8, 150))
        for backend, us in (("fa2", us), ("fa3", 100))
    }
    assert result("fa3-beats-fa2", cases[4, "fa2"], cases[4, "fa3"]).verdict == "undecided"
    assert result("fa3-beats-fa2", *cases.values()).directions == {"more": 1, "same": 1}


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
        assert found.verdict == ("confirmed" if 0.35 <= saving <= 0.45 else "refuted")
    assert found.savings == [pytest.approx(saving)]


def test_traffic_that_was_not_counted_is_not_measured() -> None:
    found = result("fusing-saves-traffic", counted("fused_add_rmsnorm", None), counted("add_then_rmsnorm", 1e8))
    assert found.absence is not None and (found.absence.why, found.absence.count) == (Absent.DRAM_BYTES, 1)


def test_traffic_of_data_that_fits_in_l2_decides_nothing() -> None:
    pair = fixture.norm("fused_add_rmsnorm", 512, 4096), fixture.norm("add_then_rmsnorm", 512, 4096)
    found = result("fusing-saves-traffic", *pair)
    assert found.absence is not None and (found.absence.why, found.absence.count) == (Absent.IN_L2, 1)


def judged(case: CaseResult, kind: str) -> CaseResult:
    verdict = fixture.verdict(kind) if kind else None
    return dataclasses.replace(case, kernels=[dataclasses.replace(k, verdict=verdict) for k in case.kernels])


def test_one_case_refutes_always_but_not_from() -> None:
    memory, latency = judged(decode(batch=64), "memory"), judged(decode(batch=1), "latency")
    assert result("decode-memory-bound", memory).verdict == "confirmed"
    assert result("decode-memory-bound", memory, latency).verdict == "refuted"
    sizes = [judged(fixture.prefill(4, n, 8, "fa3"), v) for n, v in ((1024, "latency"), (2048, "compute"))]
    assert result("prefill-compute-bound", *sizes).verdict == "partly"
    assert result("prefill-compute-bound", sizes[0]).verdict == "partly"
    under_dram = [dataclasses.replace(kernel, roof="DRAM", roof_kind="memory") for kernel in sizes[0].kernels]
    assert result("prefill-compute-bound", dataclasses.replace(sizes[0], kernels=under_dram)).verdict == "refuted"
    assert result("prefill-compute-bound", sizes[1]).verdict == "confirmed"


def test_cases_below_the_claimed_size_are_not_asked() -> None:
    small = judged(fixture.prefill(4, 512, 8, "fa3"), "latency")
    large = judged(fixture.prefill(4, 1024, 8, "fa3"), "compute")
    assert result("prefill-compute-bound", small, large).verdict == "confirmed"


def test_not_enough_evidence_decides_nothing() -> None:
    assert result("decode-memory-bound", judged(decode(), "unknown")).verdict == "undecided"
    assert result("decode-memory-bound", judged(decode(), "")).verdict == "not_measured"


# The whole


def test_a_claim_needs_its_workloads(whole: Study) -> None:
    def names(*left_out: str) -> set[str]:
        results = tuple(item for item in whole.results if item.workload not in left_out)
        return {claim.name for claim in claims(dataclasses.replace(whole, results=results))}

    assert names() - names("rope") == {"cos-sin-cache-faster"}
    assert names() - names("add_then_rmsnorm") == {"fusing-saves-traffic"}
    assert names("prefill", "decode", "rope", "add_then_rmsnorm") == set()


def test_a_skipped_side_says_why() -> None:
    found = result("gqa-faster", decode(8), fixture.skipped(decode(32), "needs 34 GB, 30 GB were free")).absence
    assert found is not None
    assert (found.why, found.count, found.reasons) == (Absent.SKIPPED, 1, ("needs 34 GB, 30 GB were free",))
