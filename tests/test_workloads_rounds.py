"""The turns of the runner's cases, what FlashInfer planned, and the two operations that a fused kernel replaces."""

from __future__ import annotations

import dataclasses
import struct
from types import SimpleNamespace

import pytest

from fiprof.workloads.attention import plan_facts
from fiprof.workloads.case import make_cases, parse_case
from fiprof.workloads.runner import RunnerRequest, turn_order

CASES = tuple(make_cases("rope", {"tokens": [str(n) for n in range(1, 31)]}))
REQUEST = RunnerRequest(CASES, iterations=2, warmup=0, seed=3, check=False, timing=True, rounds=6)


def test_every_round_has_every_case_in_an_order_of_its_own() -> None:
    orders = [turn_order(REQUEST, turn) for turn in range(6)]
    assert turn_order(dataclasses.replace(REQUEST, rounds=1), 0) == CASES
    assert all(set(order) == set(CASES) for order in orders)
    assert len(set(orders)) == 6
    assert orders == [turn_order(REQUEST, turn) for turn in range(6)]
    assert turn_order(dataclasses.replace(REQUEST, seed=4), 1) != orders[1]


class Buffer(bytes):
    """FlashInfer's integer workspace as far as it is read."""

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        return SimpleNamespace(tolist=lambda: list(bytes(self)[key]))


def wrapper(info: object, *numbers: int) -> SimpleNamespace:
    return SimpleNamespace(
        _plan_info=info, _pin_memory_int_workspace_buffer=Buffer(struct.pack(f"<{len(numbers)}i", *numbers))
    )


def test_a_plan_of_decode() -> None:
    """DecodePlanInfo: padded_batch_size, v, s, request, kv_tile, o_indptr, mask, kv_chunk_size_ptr, graph, split_kv."""
    planned = wrapper([33, 0, 0, 0, 0, 0, 0, 4, 0, 1], 0, 256)
    assert plan_facts(planned, multiprocessors=132) == {
        "planner": "decode", "work_items": 33, "split_kv": True, "kv_chunk_tokens": 256,
    }  # fmt: skip
    planned._plan_info[9] = 0
    assert plan_facts(planned, multiprocessors=132) == {"planner": "decode", "work_items": 33, "split_kv": False}


def test_a_plan_of_prefill() -> None:
    """PrefillPlanInfo: padded_batch_size, rows, rows_offset, cta_tile_q, …, [9] kv_chunk_size_ptr, …, [14] split_kv."""
    info = [512, 8192, 0, 128, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1]
    assert plan_facts(wrapper(info, 0, 0, 2048), multiprocessors=132) == {
        "planner": "prefill", "work_items": 512, "cta_tile_q": 128, "split_kv": True, "kv_chunk_tokens": 2048,
    }  # fmt: skip


def test_a_plan_of_fa3() -> None:
    """PrefillPlanSM90Info: [6] work_indptr, [8] same_schedule_for_all_heads; three blocks with 5, 4 and 4 parts."""
    assert plan_facts(wrapper([0, 0, 0, 0, 0, 0, 4, 0, 0], 99, 0, 5, 9, 13), multiprocessors=3) == {
        "planner": "prefill sm90",
        "split_kv": False,
        "work_items": 13,
        "blocks": 3,
        "most_work_items_of_a_block": 5,
        "same_schedule_for_all_heads": False,
    }


@pytest.mark.parametrize("info", [None, [], [1, 2, 3], "plan", [1] * 9])
def test_a_version_that_plans_otherwise_tells_nothing(info: object) -> None:
    assert plan_facts(wrapper(info, 1), multiprocessors=132) == {}
    assert plan_facts(SimpleNamespace(), multiprocessors=132) == {}


def test_the_two_operations_read_the_sum_once_more() -> None:
    fused = parse_case("fused_add_rmsnorm[rows=512,hidden=4096]").build().cost()
    apart = parse_case("add_then_rmsnorm[rows=512,hidden=4096]").build().cost()
    row_bytes = 512 * 4096 * 2
    assert apart.bytes_read - fused.bytes_read == row_bytes
    assert (apart.bytes_written, apart.flops, apart.tokens) == (fused.bytes_written, fused.flops, 512)
    assert fused.bytes_read + fused.bytes_written == 4 * row_bytes + 4096 * 2


def test_the_two_operations_have_the_fused_kernels_reference() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: references are not checked")
    workloads = [
        parse_case(f"{name}[rows=3,hidden=64]").build(device="cpu")
        for name in ("fused_add_rmsnorm", "add_then_rmsnorm")
    ]
    fused, apart = (list(workload.reference() or []) for workload in workloads)
    assert len(fused) == 2
    assert all(torch.equal(one, other) for one, other in zip(fused, apart, strict=True))
