"""fiprof/analysis/alternatives.py: the same problem solved faster, in recorded runs and in made-up ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from fiprof.analysis import alternatives, intervals
from fiprof.analysis.alternatives import Measure, Observed, TimedCase, Value
from fiprof.analysis.case_names import label
from fiprof.analysis.study import fastest_pairs, load, side
from fiprof.analysis.verdict.verdict import verdicts
from fiprof.model.run import Run
from fiprof.model.selection import Selection
from tests.recorded_runs import STUDY, parsed, study_runs


def found_in(run: Run) -> dict[str, tuple[str, float, str]]:
    """Label -> the alternative's label, the factor, and the changes."""
    return {
        run.labels(case): (
            run.labels(found.instead),
            round(found.factor.value, 2),
            ", ".join(f"{each.name} {each.value} -> {each.instead}" for each in found.changes),
        )
        for case, found in alternatives.of_run(run).items()
    }


def test_what_recorded_runs_solved_faster() -> None:
    assert found_in(parsed("decode")) == {
        "decode batch=32": ("decode batch=32 tensor_cores", 1.32, "tensor_cores False -> True"),
        "decode batch=128": ("decode batch=128 tensor_cores", 1.32, "tensor_cores False -> True"),
    }
    # RoPE with Llama 3.1's scaling is another problem, and the cache makes no difference here.
    assert found_in(parsed("prefill-decode-rope")) == {
        "prefill backend=fa2": ("prefill backend=fa3", 1.53, "backend fa2 -> fa3")
    }
    assert not found_in(parsed("all")) and not found_in(parsed("single-purpose"))


def test_a_single_round_is_held_against_the_processes_of_the_run() -> None:
    run = parsed("decode")
    found = next(item for item in alternatives.of_run(run).values() if "batch=128" in item.case)
    assert (found.difference.observed, found.difference.count, found.measure) == (Observed.PROCESSES, 3, Measure.GPU)
    assert (round(found.factor.low, 3), round(found.factor.high, 3)) == (1.303, 1.329)
    assert found.saving_pct == pytest.approx(24.0, abs=0.1)
    assert found.traced_factor.value == found.factor.value


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
) -> TimedCase:
    """A case of two iterations in each round."""
    values = [us for us in rounds_us for _ in range(2)]
    return TimedCase(
        id=f"{workload} {params} {rounds_us}",
        workload=workload,
        params={**PARAMS, **params},
        run=run,
        plain=intervals.times(values, len(rounds_us)),
        wall=intervals.times([wall_us] * 6, 6) if wall_us and len(rounds_us) > 1 else None,
        wall_us=wall_us,
        waiting_pct=100 * max(0.0, 1 - rounds_us[0] / wall_us) if wall_us else None,
        nsys=intervals.times([nsys_us]) if nsys_us else None,
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
def test_what_counts_as_an_alternative(one: TimedCase, other: TimedCase, factor: float | None) -> None:
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


# Verdicts


def test_a_measurement_stands_before_every_bound() -> None:
    (item,) = verdicts(parsed("prefill-decode-rope"), wanted=Selection("backend=fa2")).launches
    fields: list[dict[str, Any]] = [step.fields() for step in item.steps]
    assert (fields[0]["id"], fields[0]["bound_pct"], fields[0]["of"]) == ("use_alternative", None, "iteration")
    assert fields[0]["measured_pct"] == pytest.approx(34.7, abs=0.1)
    names = {"instead_name": "fa3", "value_name": "fa2"}
    assert fields[0]["changes"] == [{"id": "parameter", "name": "backend", "value": "fa2", "instead": "fa3", **names}]
    assert all(each["measured_pct"] is None for each in fields[1:])
    # The merge of decode's split KV is no main kernel.
    launches = verdicts(parsed("decode"), wanted=Selection("batch=32")).launches
    measured = {each.kernel for each in launches if each.steps and each.steps[0].measured_pct is not None}
    assert measured == {"BatchDecodeWithPagedKVCacheKernel"}


BOUND_OF = {
    ("tensor_cores", True): "use_tensor_cores",
    ("backend", "fa3"): "use_wgmma",
    ("cuda_graph", True): "use_graph",
}
"""A change of a parameter -> the step that names it."""


def test_no_measured_saving_is_above_the_bound_of_the_step_that_names_it() -> None:
    compared = 0
    for run in (parsed("decode"), parsed("prefill-decode-rope"), *study_runs()):
        measured = alternatives.of_run(run)
        for item in verdicts(run).launches:
            found = measured.get(item.case or "")
            named = {BOUND_OF.get((each.name, each.instead)) for each in found.changes} if found else set()
            for step in item.steps:
                if found and step.id in named and step.bound_pct is not None:
                    assert found.saving_pct <= step.bound_pct, (item.label, step.id)
                    compared += 1
    assert compared >= 60


# Studies


def test_the_fastest_option_of_each_model_shape_is_diagnosed_and_the_others_are_avoided() -> None:
    study = load(STUDY)
    problems = {case.id: solving for solving in alternatives.by_problem(study.measured) for case in solving}
    found = []
    for best in study.largest:
        others = [case for case in reversed(problems[best.id]) if case.id in study.alternatives]
        factors = {
            label(study, case, workload=case.workload != best.workload): round(
                study.alternatives[case.id].factor.value, 2
            )
            for case in others
        }
        found.append((label(study, best), factors))
    prefill, decode = "batch 32, sequence 4,096", "batch 256, KV 8,192"
    assert found == [
        (f"prefill {prefill}, GQA 32/8, fa3", {f"{prefill}, GQA 32/8, fa2": 1.48}),
        (f"prefill {prefill}, MHA 32/32, fa3", {f"{prefill}, MHA 32/32, fa2": 1.53}),
        (
            f"decode {decode}, GQA 32/8, tensor cores",
            {f"{decode}, GQA 32/8, CUDA cores, CUDA graph": 1.28, f"{decode}, GQA 32/8, CUDA cores": 1.28},
        ),
        (f"decode {decode}, MHA 32/32, CUDA cores", {}),
        ("rmsnorm rows 4,096, hidden 4,096", {}),
        ("rmsnorm rows 4,096, hidden 8,192", {}),
        ("fused_add_rmsnorm rows 4,096, hidden 4,096", {"add_then_rmsnorm rows 4,096, hidden 4,096": 1.33}),
        ("fused_add_rmsnorm rows 4,096, hidden 8,192", {"add_then_rmsnorm rows 4,096, hidden 8,192": 1.39}),
        ("rope tokens 65,536, cos_sin_cache", {}),
        ("rope tokens 65,536, llama31", {}),
    ]
    # Models are compared as one would run them: 18 sizes of decode, none in a way that another one beats.
    models = fastest_pairs(study, side("decode", kv_heads=32), side("decode", kv_heads=8))
    assert len(models) == 18 and not {case.id for pair in models for case in pair} & study.alternatives.keys()
    assert not fastest_pairs(study, side("prefill", backend="fa2"), side("prefill", backend="fa3"))
    assert len(study.fastest) == 96 and not {case.id for case in study.fastest} & study.alternatives.keys()
