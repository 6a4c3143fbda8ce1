"""fiprof/analysis/verdict: verdicts of recorded launches, of made-up ones, of any."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis.thresholds import BUSY, IDLE, NOISE, SATURATED, WAITING
from fiprof.analysis.verdict.model import Bottleneck, CaseBound, CaseVerdict, Comparison, Kind, Verdict
from fiprof.analysis.verdict.rules import RESOURCES, judge
from fiprof.analysis.verdict.steps import LaunchContext, steps
from fiprof.analysis.verdict.verdict import LaunchVerdict, Verdicts, verdicts
from fiprof.model import case_quantities
from fiprof.model.formula import number
from fiprof.model.metrics import METRICS
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.reports import verdict_words
from tests.recorded_runs import RUNS, parsed

# The recorded runs


@functools.cache
def judged(name: str) -> Verdicts:
    """The verdicts of a recorded run."""
    return verdicts(parsed(name))


def by_label(name: str) -> dict[str, LaunchVerdict]:
    """Its launches by the case, without decode's merge kernels."""
    return {item.label: item for item in judged(name).launches if "Merge" not in item.kernel}


def name_of(found: Verdict | Bottleneck | None) -> str | None:
    """``memory dram``."""
    return None if found is None else f"{found.kind} {found.part or ''}".strip()


def deciding(item: LaunchVerdict) -> tuple[str | None, str, float]:
    """The verdict, the quantity that decided it, and its value."""
    first = item.evidence[0]
    return name_of(item), first.quantity.key, round(first.value, 1)


def test_kernels_built_to_be_one_thing_only_are_called_that() -> None:
    found = by_label("single-purpose")
    assert {label: deciding(item) for label, item in found.items()} == {
        "matmul": ("compute tensor_cores", "tensor_active_pct", 93.4),
        "device_copy": ("memory dram", "case_dram_floor_pct", 85.0),
        "l2_copy": ("memory l2", "sm_to_l2_pct", 89.9),
        "l2_read": ("memory l2", "l2_to_sm_pct", 87.8),
        "pointer_chase": ("latency", "dram_throughput_pct", 2.1),
        "one_block": ("imbalance too_few_blocks", "idle_pct", 99.2),
        "uneven_blocks": ("imbalance uneven_work", "idle_pct", 87.7),
        "tiny_launches": ("launch", "case_waiting_pct", 81.9),
        "bank_conflicts": ("memory shared_memory", "l1_data_pct", 99.7),
        "fma_chain": ("compute fma_pipe", "fma_pct", 97.5),
    }
    launches = judged("single-purpose").launches
    assert {item.kind for item in launches if item.label == "tiny_launches"} == {Kind.LAUNCH}
    assert {item.confidence for item in found.values()} == {"high"}
    # What feeds a unit at its limit is the runner-up, and ahead of it.
    fed = {label: (name_of(item.runner_up), round(item.margin_points or 0, 1)) for label, item in found.items()}
    assert fed["matmul"] == ("memory shared_memory", -1.2)
    assert fed["fma_chain"] == ("compute issue_slots", -2.3)


def test_kernels_with_one_trouble_each_are_called_by_it() -> None:
    """Verdict, cause, and what to do first."""
    found = by_label("troubles")
    assert {
        label: (name_of(item), item.causes[0].id if item.causes else None, item.steps[0].id if item.steps else None)
        for label, item in found.items()
    } == {
        "global_atomics": ("latency", "atomics", "aggregate_atomics"),
        "shared_atomics": ("memory shared_memory", "atomics", "spread_atomics"),
        "block_barrier": ("compute adu_pipe", "barrier", "fewer_barriers"),
        "spilled_registers": ("memory l2", "local_memory", "fewer_spills"),
        "indexed_array": ("latency", "local_memory", "constant_indices"),
        "scattered_stores": ("latency", "scattered_access", "neighbouring_access"),
        "random_gathers": ("latency", "scattered_access", "neighbouring_access"),
        "divergent_branches": ("compute issue_slots", "divergence", "same_path"),
        "wave_and_a_bit": ("imbalance tail", None, "fuller_last_wave"),
        "long_code": ("latency", "instruction_cache", "smaller_code"),
        "two_streams": ("concurrent", None, None),
        "device_memcpy": ("imbalance too_few_blocks", None, "less_copying"),
        "partial_warps": ("compute issue_slots", "partial_warps", "whole_warps"),
        "fp64_chain": ("compute fp64_pipe", None, "single_precision"),
        "special_functions": ("compute xu_pipe", None, "less_xu"),
        "integer_logic": ("compute alu_pipe", None, "less_alu"),
        "constant_indices": ("memory constant_cache", None, "uniform_constants"),
        "memory_fences": ("latency", "memory_fence", "fewer_fences"),
        "sleeping": ("latency", "sleeping", "share_awaited_work"),
        "host_memory": ("latency", "host_memory", "copy_to_device"),
        "dependent_math": ("latency", None, "less_stall"),
        "few_warps": ("latency", None, "less_stall"),
        "l1_reads": ("memory l1_data", None, "fewer_l1_passes"),
    }
    assert {item.confidence for item in found.values()} == {"high", "medium"}
    copying = next(case for case in judged("troubles").cases if case.label == "device_memcpy")
    assert (copying.bound, copying.copying and round(copying.copying.value)) == (CaseBound.COPIES, 98)


# Made-up launches


BASE: dict[str, float] = {
    # Nothing is busy, every multiprocessor works as long as the others, several waves.
    "blocks": 1320, "multiprocessors": 132, "threads_per_block": 256, "waves_per_sm": 2.0, "sm_active_cycles": 9900,
    "sm_active_cycles_max": 10000, "sm_active_cycles_min": 9800, "sm_cycles": 10500, "duration_ns": 50_000,
    "sm_throughput_pct": 20, "memory_throughput_pct": 25, "dram_throughput_pct": 20, "l1_data_pct": 25,
    "shared_data_pct": 2, "l2_sectors_pct": 10, "l2_to_sm_pct": 12, "sm_to_l2_pct": 8, "l2_tags_pct": 9,
    "issue_slot_busy_pct": 20, "issue_active_pct": 22, "fma_pct": 5, "alu_pct": 5, "xu_pct": 1, "lsu_pct": 4,
    "fp64_pct": 0, "tensor_active_pct": 0.1,
}  # fmt: skip


NAMES = {metric.name: metric.ncu[0] for metric in METRICS}.__getitem__


def bound(columns: Mapping[str, float | None], waiting: Comparison | None = None) -> Verdict:
    return judge({**BASE, **columns}, waiting=waiting)


def waits(percent: float) -> Comparison:
    number = TracedNumber(percent, Provenance("facts", "max(100 * (1 - a / b), 0)"), ".1f", "%")
    return Comparison(case_quantities.WAITING, number, WAITING)


def waiting_case(percent: float, *, graph: bool = False) -> CaseVerdict:
    return CaseVerdict("mine[rows=8]", "mine", graph=graph, waiting=waits(percent))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, "latency"),
        ({"tensor_active_pct": 85}, "compute tensor_cores"),
        ({"tensor_active_pct": 85, "l1_data_pct": 92, "shared_data_pct": 91}, "compute tensor_cores"),
        ({"tensor_active_pct": 70, "l1_data_pct": 92, "shared_data_pct": 91}, "memory shared_memory"),
        ({"fma_pct": 82, "issue_slot_busy_pct": 88}, "compute fma_pipe"),
        ({"fma_pct": 62, "issue_slot_busy_pct": 88}, "compute issue_slots"),
        ({"alu_pct": 90}, "compute alu_pipe"),
        ({"xu_pct": 75}, "compute xu_pipe"),
        ({"lsu_pct": 75}, "compute lsu_pipe"),
        ({"fp64_pct": 95, "sm_throughput_pct": 95}, "compute fp64_pipe"),
        ({"sm_throughput_pct": 95}, "compute other_compute"),
        ({"dram_throughput_pct": 63}, "memory dram"),
        ({"dram_throughput_pct": 57}, "latency"),
        # Within the noise around what is called busy, and between two that are.
        ({"dram_throughput_pct": 60.5}, "no_single_limit"),
        ({"dram_throughput_pct": 59.3}, "no_single_limit"),
        ({"dram_throughput_pct": 70, "issue_slot_busy_pct": 68}, "no_single_limit"),
        ({"dram_throughput_pct": 70, "issue_slot_busy_pct": 66}, "memory dram"),
        ({"dram_throughput_pct": 88, "l2_throughput_pct": 93}, "memory dram"),
        ({"l2_throughput_pct": 93}, "latency"),
        ({"sm_to_l2_pct": 88}, "memory l2"),
        ({"l2_tags_pct": 88}, "memory l2"),
        ({"l1_data_pct": 80}, "memory l1_data"),
        ({"l1_data_pct": 80, "shared_data_pct": 70}, "memory shared_memory"),
        ({"l1_data_pct": 80, "shared_data_pct": None}, "memory shared_memory_or_l1"),
        ({"memory_throughput_pct": 90}, "memory other_memory"),
        ({"sm_active_cycles": 2000}, "imbalance uneven_work"),
        ({"sm_active_cycles": 8001}, "latency"),
        ({"blocks": 100, "sm_active_cycles": 7500}, "imbalance too_few_blocks"),
        ({"blocks": 128, "sm_active_cycles": 9700}, "latency"),
        ({"sm_active_cycles": 7000, "dram_throughput_pct": 70}, "imbalance uneven_work"),
        ({"sm_active_cycles": 7000, "dram_throughput_pct": 80}, "memory dram"),
        # 8 blocks fit, 1056 are a wave, and a few more make a second one.
        ({"blocks": 1100, "limit_warps_blocks": 8, "sm_active_cycles": 6000}, "imbalance tail"),
        # More is idle than that would explain.
        ({"blocks": 1100, "limit_warps_blocks": 8, "sm_active_cycles": 2000}, "imbalance uneven_work"),
    ],
)  # fmt: skip
def test_what_binds(columns: dict[str, float | None], expected: str) -> None:
    assert name_of(bound(columns)) == expected


def test_a_gpu_that_waits_for_the_host_is_launch_bound_whatever_the_kernel_does() -> None:
    busy = bound({"dram_throughput_pct": 90}, waits(70))
    assert (name_of(busy), name_of(busy.runner_up), busy.margin_points) == ("launch", "memory dram", 20)
    assert name_of(bound({"dram_throughput_pct": 90}, waits(49.9))) == "memory dram"


@pytest.mark.parametrize(
    "missing",
    [
        ("issue_slot_busy_pct", "sm_throughput_pct"),
        ("memory_throughput_pct", "dram_throughput_pct"),
        ("memory_throughput_pct", "l1_data_pct"),
        ("sm_active_cycles",),
        tuple(BASE),
    ],
)  # fmt: skip
def test_without_a_side_there_is_not_enough_evidence(missing: tuple[str, ...]) -> None:
    found = bound(dict.fromkeys(missing))
    assert (found.kind, found.part, found.runner_up) == (Kind.UNKNOWN, None, None)
    assert set(found.missing) & set(missing) or "sm_throughput_pct" in missing
    assert steps(LaunchContext({}, NAMES, found)) == ()


@pytest.mark.parametrize(
    ("columns", "runner_up", "margin"),
    [
        ({"dram_throughput_pct": 90, "l1_data_pct": 83}, "memory l1_data", 7),
        ({"dram_throughput_pct": 90}, "latency", 30),
        ({"dram_throughput_pct": 85, "sm_active_cycles": 7000}, "imbalance uneven_work", 5),
        ({"dram_throughput_pct": 50}, "memory dram", 10),
        ({"sm_active_cycles": 7900}, "latency", 1),
        ({"sm_active_cycles": 5000, "dram_throughput_pct": 78}, "memory dram", 2),
    ],
)  # fmt: skip
def test_the_runner_up_and_its_distance(columns: dict[str, float], runner_up: str, margin: float) -> None:
    found = bound(columns)
    assert name_of(found.runner_up) == runner_up
    assert found.margin_points == pytest.approx(margin)


def test_a_verdict_that_one_percent_of_one_counter_turns_is_not_sure() -> None:
    turned = 0
    for run in map(parsed, RUNS):
        waits_of = {case.case: case.waiting for case in verdicts(run).cases}
        for row in run.launches:
            waiting = waits_of.get(row.case or "")
            before = judge(row, waiting=waiting)
            busiest = [item.comparison.quantity.key for item in before.resources[:4] if item.comparison]
            for column, factor in itertools.product([*busiest, "sm_active_cycles"], (0.99, 1.01)):
                value = number(row, column)
                after = judge({**row, column: factor * value}, waiting=waiting) if value else before
                if name_of(after) != name_of(before) and (not before.causes or after.causes[:1] != before.causes[:1]):
                    turned += 1
                    noise = Kind.NO_SINGLE_LIMIT in (after.kind, before.kind)
                    assert noise or (before.margin_points is not None and before.margin_points < NOISE.value)
    assert turned


# Any launch


COLUMNS = sorted({column for resource in RESOURCES.values() for column in resource.columns} | set(BASE))
VALUES = st.one_of(st.none(), st.just(math.nan), st.floats(0, 120), st.floats(0, 1e12), st.just(0.0))
OTHERS = (
    "shared_wavefronts", "shared_bank_conflicts", "fp32_peak_ops_per_cycle", "tensor_peak_tf32_ops_per_cycle",
    "tensor_ops_fp16", "mma_ops_fp16", "tensor_peak_fp16_ops_per_cycle", "mma_peak_fp16_ops_per_cycle",
    "tensor_peak_fp8_ops_per_cycle", "limit_warps_blocks", "limit_registers_blocks", "max_warps_per_sm",
    "registers_per_thread", "registers_allocated_per_thread", "max_registers_per_sm", "theoretical_occupancy_pct",
)  # fmt: skip
ROWS = st.fixed_dictionaries({}, optional=dict.fromkeys([*COLUMNS, *OTHERS], VALUES))
PERCENTS = st.fixed_dictionaries(
    dict.fromkeys([column for column in COLUMNS if column.endswith("_pct")], st.floats(0, 100)),
    optional=dict.fromkeys(("sm_active_cycles", "sm_active_cycles_max", "sm_cycles"), st.floats(0, 1e6)),
)


@given(row=st.one_of(ROWS, PERCENTS), waiting=st.one_of(st.none(), st.floats(0, 100)), excess=st.floats(0.5, 3))
def test_any_launch_has_a_verdict_whose_evidence_holds(
    row: dict[str, float | None], waiting: float | None, excess: float
) -> None:
    found = judge(row, waiting=None if waiting is None else waits(waiting))
    values = {column: number(row, column) for column in COLUMNS}
    assert all(item.value == values.get(item.quantity.key, item.value) for item in found.evidence)
    first = found.evidence[0] if found.evidence else None
    if found.kind is Kind.LAUNCH:
        assert waiting is not None and waiting >= WAITING.value
    elif found.kind in (Kind.COMPUTE, Kind.MEMORY):
        assert first and first.value >= BUSY.value and first.reached
    elif found.kind is Kind.IMBALANCE:
        assert first and first.value >= IDLE.value
    elif found.kind is Kind.LATENCY:
        assert all(item.value < BUSY.value for item in found.resources)
    if found.kind is not Kind.LAUNCH and found.busiest and found.busiest.value >= SATURATED.value:
        assert found.kind in (Kind.COMPUTE, Kind.MEMORY, Kind.NO_SINGLE_LIMIT)
    assert found.runner_up is None or name_of(found.runner_up) != name_of(found)
    of = None if waiting is None else waiting_case(waiting)
    for step in steps(LaunchContext(row, NAMES, found, excess_ops=excess, excess_bytes=excess, case=of)):
        assert step.bound_pct is None or 0 < step.bound_pct <= 100
        assert verdict_words.step(step)
