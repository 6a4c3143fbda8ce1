"""fiprof/analysis/alternatives.py: the same problem solved faster, in recorded runs and in made-up ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from fiprof.analysis import alternatives, ratio
from fiprof.analysis.alternatives import Value
from fiprof.model.results import CaseResult

# Made-up cases

PARAMS: dict[str, Value] = {
    "batch": 32, "kv_heads": 8, "page_size": 16, "tensor_cores": False, "cuda_graph": False, "dtype": "fp16"
}  # fmt: skip


def made(
    rounds_us: Sequence[float],
    workload: str = "decode",
    *,
    nsys_us: float | None = None,
    wall_us: float | None = None,
    run: str = "a",
    **params: Value,
) -> CaseResult:
    """A case of two iterations in each round."""
    values = [us for us in rounds_us for _ in range(2)]
    return CaseResult(
        id=f"{workload} {params} {rounds_us}",
        workload=workload,
        params={**PARAMS, **params},
        run=run,
        plain=ratio.times(values, len(rounds_us)),
        wall=ratio.times([wall_us] * 6, 6) if wall_us and len(rounds_us) > 1 else None,
        wall_us=wall_us,
        waiting_pct=100 * max(0.0, 1 - rounds_us[0] / wall_us) if wall_us else None,
        nsys=ratio.times([nsys_us]) if nsys_us else None,
        ncu_us=None,
    )


SLOW, FAST = (100, 101, 99, 100, 102, 100), (80, 81, 79, 80, 82, 80)


@pytest.mark.parametrize(
    ("one", "other", "factor"),
    [
        pytest.param(made(SLOW), made(FAST, tensor_cores=True), 1.25, id="an option"),
        pytest.param(made(SLOW), made(FAST, page_size=64), 1.25, id="page size"),
        pytest.param(made(SLOW), made(FAST, dtype="bf16"), None, id="another type"),
        pytest.param(made(SLOW), made(FAST, kv_heads=4), None, id="another model"),
        pytest.param(made(SLOW), made(FAST, tensor_cores=True, run="b"), None, id="another process"),
        pytest.param(
            made(SLOW, "rope", variant="inplace"), made(FAST, "rope", variant="cos_sin_cache"), 1.25, id="angles"
        ),
        pytest.param(
            made(SLOW, "rope", variant="inplace"), made(FAST, "rope", variant="llama31"), None, id="other angles"
        ),
        pytest.param(made(SLOW, "add_then_rmsnorm"), made(FAST, "fused_add_rmsnorm"), 1.25, id="fused"),
        pytest.param(made(SLOW, "rmsnorm"), made(FAST, "fused_add_rmsnorm"), None, id="another sum"),
        pytest.param(made(SLOW, "mine"), made(FAST, "mine", tensor_cores=True), None, id="nobody declared it"),
        # Rounds from 90 to 110 hold a difference of 5 %.
        pytest.param(
            made((90, 100, 110, 95, 105, 100)), made((85, 95, 106, 90, 100, 95), page_size=64), None, id="rounds"
        ),
        pytest.param(made(SLOW), made([us * 0.985 for us in SLOW], page_size=64), None, id="not worth it"),
        # A single round: nothing but another process can confirm it.
        pytest.param(made([100]), made([80], page_size=64), None, id="one round"),
        pytest.param(made([100], nsys_us=100), made([80], page_size=64, nsys_us=79), 1.25, id="confirmed"),
        pytest.param(made([100], nsys_us=100), made([80], page_size=64, nsys_us=97), None, id="not confirmed"),
        # In a loop the host's launches count.
        pytest.param(made(SLOW, wall_us=100, cuda_graph=True), made(FAST, wall_us=120), None, id="slower in a loop"),
        pytest.param(made(SLOW, wall_us=240), made(SLOW, wall_us=120, cuda_graph=True), 2.0, id="host"),
    ],
)
def test_what_counts_as_an_alternative(one: CaseResult, other: CaseResult, factor: float | None) -> None:
    found = alternatives.of_cases([one, other])
    assert other.id not in found
    assert (round(found[one.id].factor.value, 3) if found else None) == factor


def test_of_cases_that_are_as_fast_it_is_the_one_that_changes_least() -> None:
    slow, fast = made(SLOW), made(FAST, tensor_cores=True)
    both = made([us * 0.99 for us in FAST], tensor_cores=True, page_size=64)
    found = alternatives.of_cases([slow, fast, both])
    assert {case: item.instead for case, item in found.items()} == {slow.id: fast.id}
    faster = dataclasses.replace(both, plain=made([us * 0.9 for us in FAST]).plain)
    assert alternatives.of_cases([slow, fast, faster])[slow.id].instead == faster.id
