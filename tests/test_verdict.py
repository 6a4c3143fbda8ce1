"""Verdicts, causes and steps: of recorded launches, of made-up ones, of any."""

import csv
import functools
import itertools
import lzma
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis.instructions import Listing, listings
from fiprof.analysis.thresholds import BESIDE, BUSY, CLOSE, DOMINANT_STALL, IDLE, NOISE, SATURATED, SHORT, WAITING
from fiprof.analysis.verdict import steps as steps_module
from fiprof.analysis.verdict.model import (
    Bottleneck,
    CaseBound,
    CaseVerdict,
    CauseId,
    Comparison,
    Confidence,
    Kind,
    Verdict,
)
from fiprof.analysis.verdict.rules import RESOURCES, judge
from fiprof.analysis.verdict.steps import LaunchContext, Step, steps, steps_for
from fiprof.analysis.verdict.verdict import LaunchVerdict, Verdicts, verdicts
from fiprof.model import case_quantities
from fiprof.model.finding import Provenance, TracedNumber, plain
from fiprof.model.quantities import BESIDE as BESIDE_SHARE
from fiprof.model.quantities import METRICS, STALL_SHARE, Row, number
from fiprof.reports import verdict_words
from tests.conftest import REPOSITORY
from tests.recorded_runs import ON_H100, RUNS, on_h100, parsed, study_runs

# fiprof/analysis/verdict: verdicts of recorded launches, of made-up ones, of any.


# The recorded runs


MODELS = ("H200", "H100")


@functools.cache
def judged(name: str, model: str = "H200") -> Verdicts:
    """The verdicts of a recorded run."""
    return verdicts(parsed(name) if model == "H200" else on_h100(name))


def by_label(name: str, model: str) -> dict[str, LaunchVerdict]:
    """Its launches by the case, without decode's merge kernels."""
    return {item.label: item for item in judged(name, model).launches if "Merge" not in item.kernel}


def name_of(found: Verdict | Bottleneck | None) -> str | None:
    """``memory dram``."""
    return None if found is None else f"{found.kind} {found.part or ''}".strip()


def deciding(item: LaunchVerdict) -> tuple[str | None, str, float]:
    """The verdict, the quantity that decided it, and its value."""
    first = item.evidence[0]
    return name_of(item), first.quantity.key, round(first.value, 1)


@pytest.mark.parametrize("model", MODELS)
def test_kernels_built_to_be_one_thing_only_are_called_that(model: str) -> None:
    found = by_label("single-purpose", model)
    expected: dict[str, tuple[str, str, float, float]] = {  # limit, quantity, its value on the H200 and the H100
        "matmul": ("compute tensor_cores", "tensor_active_pct", 93.4, 93.5),
        "device_copy": ("memory dram", "case_dram_floor_pct", 85.0, 89.3),
        "l2_copy": ("memory l2", "sm_to_l2_pct", 89.9, 81.9),
        "l2_read": ("memory l2", "l2_to_sm_pct" if model == "H200" else "l2_sm_sectors_pct", 87.8, 88.5),
        "pointer_chase": ("latency", "dram_throughput_pct", 2.1, 2.9),
        "one_block": ("imbalance too_few_blocks", "idle_pct", 99.2, 99.2),
        "uneven_blocks": ("imbalance uneven_work", "idle_pct", 87.7, 87.8),
        "tiny_launches": ("launch", "case_waiting_pct", 81.9, math.nan),
        "bank_conflicts": ("memory shared_memory", "l1_data_pct", 99.7, 99.7),
        "fma_chain": ("compute fma_pipe", "fma_pct", 97.5, 97.5),
    }
    if model == "H100":
        # Fifty tiny launches take minutes under ncu.
        del expected["tiny_launches"]
    values = MODELS.index(model) + 2
    assert {label: deciding(item) for label, item in found.items()} == {
        label: (*row[:2], row[values]) for label, row in expected.items()
    }
    launches = judged("single-purpose").launches
    assert {item.kind for item in launches if item.label == "tiny_launches"} == {Kind.LAUNCH}
    assert {item.confidence for item in found.values()} == {"high"}
    assert all(len(item.limits) == 1 for item in found.values())
    # What feeds a unit at its limit is the runner-up, and ahead of it.
    fed = {label: (name_of(item.runner_up), round(item.margin_points or 0, 1)) for label, item in found.items()}
    assert fed["matmul"] == ("memory shared_memory", -1.2)
    assert fed["fma_chain"] == ("compute issue_slots", -2.3)


@pytest.mark.parametrize("model", MODELS)
def test_kernels_with_one_trouble_each_are_called_by_it(model: str) -> None:
    """Verdict, cause, and what to do first."""
    found = by_label("troubles", model)
    expected = {
        "global_atomics": ("latency", "atomics", "aggregate_atomics"),
        "shared_atomics": ("memory shared_memory", "atomics", "spread_atomics"),
        "block_barrier": ("latency", "barrier", "fewer_barriers"),
        # What it spills fits L2 less well on an H100, which has 50 of 60 MB.
        "spilled_registers": (f"memory {'l2' if model == 'H200' else 'dram'}", "local_memory", "fewer_spills"),
        "indexed_array": ("latency", "local_memory", "constant_indices"),
        "scattered_stores": ("latency", "scattered_access", "neighbouring_access"),
        "random_gathers": ("latency", "scattered_access", "neighbouring_access"),
        "divergent_branches": ("compute issue_slots", "divergence", "same_path"),
        "wave_and_a_bit": ("imbalance tail", None, "fuller_last_wave"),
        "long_code": ("latency", "instruction_cache", "smaller_code"),
        "two_streams": ("concurrent", None, None),
        "device_memcpy": ("imbalance too_few_blocks", "too_little_work", "less_copying"),
        "partial_warps": ("compute issue_slots", "partial_warps", "whole_warps"),
        "fp64_chain": ("compute fp64_pipe", None, "single_precision"),
        "special_functions": ("compute xu_pipe", None, "less_xu"),
        "integer_logic": ("compute alu_pipe", None, "less_alu"),
        "constant_indices": ("memory constant_cache", None, "uniform_constants"),
        "memory_fences": ("latency", "memory_fence", "fewer_fences"),
        "sleeping": ("latency", "sleeping", "share_awaited_work"),
        "host_memory": ("latency", "host_memory", "copy_to_device"),
        "dependent_math": ("latency", None, "less_stall"),
        "few_warps": ("latency", None, "more_warps"),
        "l1_reads": ("memory l1_data", None, "fewer_l1_passes"),
    }
    assert {
        label: (name_of(item), item.causes[0].id if item.causes else None, item.steps[0].id if item.steps else None)
        for label, item in found.items()
    } == expected
    assert {item.confidence for item in found.values()} == {"high", "medium"}
    copying = next(case for case in judged("troubles", model).cases if case.label == "device_memcpy")
    assert (copying.bound, copying.copying and int(copying.copying.value)) == (CaseBound.COPIES, 98)


@pytest.mark.parametrize("name", [*RUNS, *(f"{name} on an H100" for name in ON_H100), "study"])
def test_what_docs_verdict_says_holds_for_every_recorded_launch(name: str) -> None:
    declared = {
        row["id"]: row["work"] for row in csv.DictReader(Path(steps_module.__file__).with_name("steps.csv").open())
    }
    checked = 0
    of_h100 = name.removesuffix(" on an H100")
    for run in study_runs() if name == "study" else [parsed(name) if name in RUNS else on_h100(of_h100)]:
        for item in verdicts(run).launches:
            assert (item.confidence is Confidence.LOW) == (item.kind is Kind.UNKNOWN)
            if item.confidence is Confidence.HIGH:
                # What feeds the limit is ahead of it, and no rival.
                assert not item.pair and not (item.close and (item.margin_points or 0.0) >= 0)
                assert item.kind not in (Kind.COMPUTE, Kind.MEMORY) or item.evidence[0].value >= SATURATED
                assert item.kind is Kind.LAUNCH or (item.row.duration_us or 0) >= SHORT
            first = next((step for step in item.steps if step.measured_pct is None), None)
            if first and first.id != "less_copying":
                waits = Bottleneck(Kind.LATENCY, None, 0.0) if item.limits[0].value < SATURATED else item.limits[0]
                assert any(first.relieving(limit) for limit in (*item.limits, waits))
            floor = case_quantities.floor(run, item.case or "") if case_quantities.is_main(run, item.row) else None
            for step in item.steps if floor else ():
                assert floor is not None
                work, saving = declared[step.id], floor.saving_pct(other_work=declared[step.id] == "operations")
                if work in ("", "operations") and saving is not None and step.bound_pct is not None:
                    checked += 1
                    assert step.bound_pct <= saving.value + 1e-9
    assert checked or of_h100 in ("single-purpose", "troubles", "llama")


def test_docs_verdict_names_every_cause() -> None:
    page = " ".join((REPOSITORY / "docs/verdict.md").read_text(encoding="utf-8").split())
    assert all(cause.words in page for cause in CauseId)


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


METRIC_OF = {metric.name: metric.ncu[0] for metric in METRICS}
NAMES = METRIC_OF.__getitem__
PCT = ".pct_of_peak_sustained_elapsed"
COUNTED_AGAIN = {
    "dram__cycles_active", "fbpa__dram_sectors", "sm__inst_executed", "sm__issue_active", "sm__inst_executed_pipe_alu",
    "sm__inst_executed_pipe_fma", "sm__inst_executed_pipe_fp64", "sm__inst_executed_pipe_cbu_pred_on_any",
    *(f"sm__inst_executed_pipe_tensor_op_{op}" for op in ("dmma", "gmma", "hmma", "imma")),
    "sm__pipe_tensor_op_hmma_cycles_active",
    "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active",
    "sm__inst_executed_pipe_ipa",
}  # fmt: skip
"""What another constituent holds, as instructions where that one has cycles; the last one is graphics'."""


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
        ({"fma_pct": 85, "issue_slot_busy_pct": 88}, "compute fma_pipe"),
        ({"fma_pct": 62, "issue_slot_busy_pct": 88}, "compute issue_slots"),
        ({"alu_pct": 90}, "compute alu_pipe"),
        ({"xu_pct": 75}, "compute xu_pipe"),
        ({"lsu_pct": 75}, "compute lsu_pipe"),
        ({"fp64_pct": 95, "sm_throughput_pct": 95}, "compute fp64_pipe"),
        ({"fma_pct": 96, "issue_slot_busy_pct": 96}, "compute fma_pipe"),
        ({"fma_pct": 96, "alu_pct": 95, "issue_slot_busy_pct": 97}, "compute fma_pipe + compute alu_pipe"),
        ({"sm_throughput_pct": 95}, "compute other_compute"),
        # Integer multiply-adds keep half of the FMA pipe busy, all other arithmetic both halves alike.
        ({"fma_heavy_pct": 99, "fma_pct": 50, "issue_slot_busy_pct": 54, "sm_throughput_pct": 99}, "compute fma_heavy_pipe"),
        ({"fma_heavy_pct": 96, "fma_pct": 96, "issue_slot_busy_pct": 54, "sm_throughput_pct": 96}, "compute fma_pipe"),
        ({"fp64_or_tensor_pct": 97, "fp64_pct": 94, "sm_throughput_pct": 97}, "compute fp64_pipe"),
        ({"dram_throughput_pct": 63}, "memory dram"),
        ({"dram_throughput_pct": 57}, "latency"),
        # Within the noise around what is called busy, and between two that are.
        ({"dram_throughput_pct": 60.5}, "memory dram + latency"),
        ({"dram_throughput_pct": 59.3}, "latency + memory dram"),
        ({"dram_throughput_pct": 70, "issue_slot_busy_pct": 68}, "memory dram + compute issue_slots"),
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
        ({"sm_active_cycles": 8001}, "latency + imbalance uneven_work"),
        ({"blocks": 100, "sm_active_cycles": 7500}, "imbalance too_few_blocks"),
        ({"blocks": 128, "sm_active_cycles": 9700}, "latency"),
        ({"sm_active_cycles": 7000, "dram_throughput_pct": 70}, "imbalance uneven_work"),
        ({"sm_active_cycles": 7000, "dram_throughput_pct": 80}, "memory dram + imbalance uneven_work"),
        # 8 blocks fit, 1056 are a wave, and a few more make a second one.
        ({"blocks": 1100, "limit_warps_blocks": 8, "sm_active_cycles": 6000}, "imbalance tail"),
        # More is idle than that would explain.
        ({"blocks": 1100, "limit_warps_blocks": 8, "sm_active_cycles": 2000}, "imbalance uneven_work"),
    ],
)  # fmt: skip
def test_what_binds(columns: dict[str, float | None], expected: str) -> None:
    assert " + ".join(str(name_of(each)) for each in bound(columns).limits) == expected


@pytest.mark.parametrize(
    ("row", "stall", "expected", "cause"),
    [
        # Barriers are the ADU pipe's work, as are constants that are read by an index.
        ({"adu_pct": 95, "sm_throughput_pct": 95}, "barrier", "latency", CauseId.BARRIER),
        ({"adu_pct": 83, "constant_cache_pct": 83}, "short_scoreboard", "memory constant_cache", None),
        # The loads that warps wait for are not what keeps shared memory busy; at its limit it binds all the same.
        ({"l1_data_pct": 66, "shared_data_pct": 60}, "long_scoreboard", "latency + memory shared_memory", None),
        ({"l1_data_pct": 66, "shared_data_pct": 60}, "mio_throttle", "memory shared_memory", None),
        ({"l1_data_pct": 90, "shared_data_pct": 85}, "long_scoreboard", "memory shared_memory", None),
        ({"issue_slot_busy_pct": 69, "dram_throughput_pct": 64}, "long_scoreboard", "memory dram + latency", None),
        ({"l1_data_pct": 99, "shared_data_pct": 99, "shared_wavefronts": 8, "shared_bank_conflicts": 7}, "mio_throttle",
         "memory shared_memory", CauseId.BANK_CONFLICTS),
        ({"l1_data_pct": 93, "shared_data_pct": 77, "shared_wavefronts": 8, "shared_access_wavefronts": 0}, "mio_throttle",
         "memory shared_memory", CauseId.SHUFFLES),
        ({"sm_active_cycles": 300, "blocks": 4, "duration_ns": 4000}, "wait", "imbalance too_few_blocks",
         CauseId.TOO_LITTLE_WORK),
        ({"duration_ns": 4000}, "wait", "latency", CauseId.TOO_LITTLE_WORK),
        # Sectors that L1 has do not reach what is beyond it.
        ({"dram_throughput_pct": 90, "global_sectors": 8e6, "global_sectors_needed": 1e6, "dram_read_bytes": 256e6,
          "dram_write_bytes": 0}, "long_scoreboard", "memory dram", CauseId.SCATTERED_ACCESS),
        ({"dram_throughput_pct": 90, "global_sectors": 8e6, "global_sectors_needed": 1e6, "dram_read_bytes": 32e6,
          "dram_write_bytes": 0}, "long_scoreboard", "memory dram", None),
    ],
)  # fmt: skip
def test_what_a_unit_is_busy_with(row: dict[str, float], stall: str, expected: str, cause: CauseId | None) -> None:
    found = judge({**BASE, **row}, stalls=(stalled(stall, 60.0),))
    assert " + ".join(str(name_of(each)) for each in found.limits) == expected
    assert [each.id for each in found.causes] == ([cause] if cause else [])


@pytest.mark.parametrize("model", MODELS)
def test_every_constituent_of_ncus_throughput_has_a_part(model: str) -> None:
    """ncu counts them alone in all of average, largest, smallest and sum."""
    with lzma.open((RUNS if model == "H200" else ON_H100)["troubles"] / "ncu/raw.csv.xz", "rt") as page:
        every = set(next(csv.reader(page)))
    of_largest = {name.removesuffix(f".max{PCT}") for name in every if name.endswith(f".max{PCT}")}
    counted = {name for name in of_largest if {f"{name}.{which}{PCT}" for which in ("avg", "min", "sum")} <= every}
    known = {METRIC_OF[column].rsplit(".", 2)[0] for part in RESOURCES.values() for column in part.columns}
    further = counted - known - COUNTED_AGAIN
    # Maxima over these, and the roofline's operations.
    assert {name for name in further if "throughput" not in name and "_ops_path_" not in name} == set()
    assert len(counted) > 50
    for part, resource in RESOURCES.items():
        for column in resource.columns:
            found = bound(
                {column: 99.0, "shared_data_pct": 0, "sm_throughput_pct": 20 if column != "sm_throughput_pct" else 99}
            )
            assert [each.part for each in found.limits] == [part]


@pytest.mark.parametrize(
    ("column", "row", "least", "most"),
    [
        ("dram_throughput_pct", {}, 40, 100),
        ("dram_throughput_pct", {"issue_slot_busy_pct": 70}, 40, 100),
        ("dram_throughput_pct", {"issue_slot_busy_pct": 70, "l2_tags_pct": 69}, 40, 100),
        ("dram_throughput_pct", {"sm_active_cycles": 7000}, 40, 100),
        ("issue_slot_busy_pct", {}, 40, 100),
        ("issue_slot_busy_pct", {"fma_pct": 70}, 40, 100),
        ("fma_pct", {"issue_slot_busy_pct": 90}, 40, 100),
        ("l1_data_pct", {"tensor_active_pct": 85}, 40, 100),
        ("idle_pct", {}, 0, 60),
        ("idle_pct", {"dram_throughput_pct": 70}, 0, 60),
        ("waiting", {"dram_throughput_pct": 90}, 30, 70),
        ("beside", {"dram_throughput_pct": 70}, 30, 70),
        ("stall", {"l1_data_pct": 70, "shared_data_pct": 70}, 30, 70),
    ],
)  # fmt: skip
def test_a_limit_gives_way_to_another_by_way_of_the_pair(
    column: str, row: dict[str, float], least: int, most: int
) -> None:
    before: Verdict | None = None
    most_saved = 0.0
    for quarter in range(4 * least, 4 * most + 1):
        value = quarter / 4
        moved = {"sm_active_cycles": 100 * (100 - value)} if column == "idle_pct" else {column: value}
        launch, stalls = {**BASE, **row, **moved}, (stalled("long_scoreboard", value if column == "stall" else 45.0),)
        of = waits(value if column == "waiting" else 40.0)
        beside = Comparison(BESIDE_SHARE, of.number, BESIDE) if column == "beside" else None
        found = judge(launch, stalls=stalls, waiting=of if column == "waiting" else None, beside=beside)
        case = waiting_case(value) if column == "waiting" else None
        advice = steps(LaunchContext(launch, NAMES, found, stalls, case=case))
        assert advice or found.kind is Kind.CONCURRENT
        bounds = [step.bound_pct for step in advice if step.bound_pct is not None]
        # What a step may save moves with the number; another limit's steps may add what they leave of it.
        assert not (bounds and most_saved) or abs(max(bounds) - most_saved) < CLOSE
        most_saved = max(bounds, default=0.0)
        waiting = found.pair and Kind.LATENCY in {each.kind for each in found.limits}
        assert not found.pair or waiting or (found.margin_points or 0.0) < NOISE
        if before is not None and before.names != found.names:
            assert before.pair or found.pair
            assert {*before.names} & {*found.names}
        before = found


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
    for run in study_runs()[:1]:
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
                    assert {name_of(each) for each in before.limits} >= {name_of(before), name_of(after)}
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
        assert waiting is not None and waiting >= WAITING
    elif found.kind in (Kind.COMPUTE, Kind.MEMORY):
        assert first and first.value >= BUSY and first.reached
    elif found.kind is Kind.IMBALANCE:
        assert first and first.value >= IDLE
    elif found.kind is Kind.LATENCY:
        assert all(item.value < BUSY for item in found.resources)
    if found.kind is not Kind.LAUNCH and found.busiest and found.busiest.value >= SATURATED:
        assert found.kind in (Kind.COMPUTE, Kind.MEMORY)
    assert found.runner_up is None or name_of(found.runner_up) != name_of(found)
    of = None if waiting is None else waiting_case(waiting)
    advice = steps(LaunchContext(row, NAMES, found, excess_ops=excess, excess_bytes=excess, case=of))
    for step in advice:
        assert step.bound_pct is None or 0 < step.bound_pct <= 100
        assert verdict_words.step(step)
    if found.kind in (Kind.COMPUTE, Kind.MEMORY):
        waits_too = Bottleneck(Kind.LATENCY, None, 0.0) if found.limits[0].value < SATURATED else found.limits[0]
        assert advice and any(advice[0].relieving(limit) for limit in (*found.limits, waits_too))


# fiprof/analysis/verdict/*steps.py: what is advised, the most that it saves, and what the instructions rule out.


# Made-up launches


def listing(*lines: str, reason: str = "long_scoreboard", hot: int = -1, executed: int = 1) -> Listing:
    """Instructions of which one holds most samples."""
    samples = [1] * len(lines)
    samples[hot] = 100
    columns = {
        "launch": [0] * len(lines), "address": [16 * i for i in range(len(lines))], "sass": list(lines),
        "samples": samples, "samples_not_issued": samples, "top_reason": [reason] * len(lines),
        "executed": [executed] * len(lines), "sectors": [0] * len(lines), "ideal_sectors": [0] * len(lines),
    }  # fmt: skip
    ((_, found),) = listings(pa.table(columns))
    return found


def stalled(reason: str, percent: float) -> Comparison:
    number = TracedNumber(percent, Provenance("ncu", reason), ".0f", "%")
    return Comparison(STALL_SHARE, number, DOMINANT_STALL, reason)


def advice_for(row: Row, *lines: str, **situation: Any) -> list[Step]:
    full = {**BASE, **row}
    reason = situation.pop("reason", "long_scoreboard")
    code = listing(*lines, reason=reason) if lines else None
    return list(steps(LaunchContext(full, NAMES, judge(full), code=code, **situation)))


MMA = {
    "tensor_active_pct": 45, "tensor_ops_fp16": 1e12, "mma_ops_fp16": 1e12, "tensor_peak_fp16_ops_per_cycle": 1e6,
    "mma_peak_fp16_ops_per_cycle": 0.625e6,
}  # fmt: skip
FMA = {
    "fma_pct": 90, "issue_slot_busy_pct": 70, "ffma_thread_insts": 1e9, "fadd_thread_insts": 0, "fmul_thread_insts": 0,
    "fp32_peak_ops_per_cycle": 1000, "fp16_peak_ops_per_cycle": 2000, "tensor_peak_fp16_ops_per_cycle": 16000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "situation", "first", "most", "estimate"),
    [
        ({"dram_throughput_pct": 90}, {"excess_bytes": 2.0}, "move_fewer_bytes", 55, 45),
        # A kernel at DRAM's roof: neither an idle GPU nor more loads relieve it.
        ({"dram_throughput_pct": 90}, {"case": waiting_case(30)}, "need_fewer_bytes", None, None),
        ({"dram_throughput_pct": 70}, {"case": waiting_case(30)}, "more_loads", 30, None),
        # A launch of which half is start and end; not the idle time, but what is left of it beside those.
        ({"sm_cycles": 20_000}, {}, "fuse_or_batch", 100, 52),
        ({"sm_active_cycles": 7000}, {}, "even_work", 75, 30 * (1 - 0.06762)),
        # Few blocks: of a long launch more of them, of a short one more work, at most its share of all kernels.
        ({"blocks": 8, "sm_active_cycles": 500, "duration_ns": 100_000}, {}, "more_blocks", 75, 75),
        ({"blocks": 8, "sm_active_cycles": 500, "duration_ns": 4_000}, {}, "fuse_or_batch", 100, 75),
        ({"blocks": 8, "sm_active_cycles": 500, "duration_ns": 4_000}, {"share": 0.02}, "fuse_or_batch", 2, 1.5),
        # Not the stall's share, whatever it is: warps wait at the same time.
        ({}, {"stalls": (stalled("wait", 40.0),)}, "less_stall", 75, None),
        ({}, {"stalls": (stalled("wait", 90.0),)}, "less_stall", 75, None),
        # What helps against it makes less use of the data stage: what is left is DRAM and the issue slots at 20 %.
        ({}, {"stalls": (stalled("short_scoreboard", 50.0),)}, "less_stall", 80, None),
        # Whether latency binds or the tensor cores themselves.
        (MMA, {}, "use_wgmma", 100 - 45 * 0.625, 37.5),
        ({**MMA, "tensor_active_pct": 90}, {}, "use_wgmma", 100 - 90 * 0.625, 37.5),
        # Tensor cores that wait for shared memory: the conflicts first.
        ({**MMA, "tensor_active_pct": 6, "l1_data_pct": 100, "shared_data_pct": 100, "shared_wavefronts": 8,
          "shared_bank_conflicts": 7}, {}, "no_bank_conflicts", 80, 80),
        ({**FMA, "l1_data_pct": 1}, {}, "packed_halves", 55, 45),
        ({**FMA, "fp16_peak_ops_per_cycle": 1000, "l1_data_pct": 1}, {}, "less_fma", 75, None),
        # What else is in use would still need its time: DRAM 40 %, the ALU 50 %.
        ({**FMA, "dram_throughput_pct": 40}, {}, "use_tensor_cores", 60, 60),
        ({**FMA, "tensor_peak_fp16_ops_per_cycle": None, "alu_pct": 50}, {}, "packed_halves", 50, 45),
        # Few of the additions and multiplications are fused, as those of a product are; or most are of integers.
        ({**FMA, "fadd_thread_insts": 2e9}, {}, "packed_halves", 55, 45),
        ({**FMA, "ffma_thread_insts": 1e3}, {}, "less_fma", 75, None),
        ({"adu_pct": 90}, {}, "less_of_pipe", 75, None),
        ({"l1_data_pct": 90, "shared_data_pct": 90, "shared_wavefronts": 10, "shared_bank_conflicts": 5}, {},
         "no_bank_conflicts", 55, 45),
    ],
)  # fmt: skip
def test_the_first_step_and_the_most_it_saves(
    row: dict[str, float], situation: dict[str, Any], first: str, most: float | None, estimate: float | None
) -> None:
    found = advice_for(row, **situation)[0]
    assert found.id is first
    assert found.bound_pct == (None if most is None else pytest.approx(most))
    assert found.estimate_pct == (None if estimate is None else pytest.approx(estimate, rel=1e-3))


@pytest.mark.parametrize(
    "row",
    [
        {**MMA, "mma_peak_fp16_ops_per_cycle": 1e6},
        {**MMA, "cc": "10.0"},
        {**MMA, "mma_ops_fp16": 0.1e12},
        # There the operands' bytes come first.
        {**MMA, "dram_throughput_pct": 70},
    ],
)
def test_wgmma_is_not_offered(row: dict[str, Any]) -> None:
    assert "use_wgmma" not in {step.id for step in advice_for(row)}


def test_a_launch_bound_graph_is_not_told_to_use_a_graph() -> None:
    found = steps(LaunchContext(BASE, NAMES, judge(BASE, waiting=waits(60)), case=waiting_case(60, graph=True)))
    # Kernels that are fused save more than the waiting.
    assert [(step.id, step.bound_pct) for step in found] == [("larger_graph", 60), ("larger_launches", None)]


# Look before advising


LOAD, LOAD16, USE = "LDG.E R4, desc[UR4][R2.64]", "LDG.E.128 R4, desc[UR4][R2.64]", "FADD R8, R4, R9"


@pytest.mark.parametrize(
    ("lines", "reason", "ways"),
    [
        ((), "long_scoreboard", ({"id": "stall_helps", "reason": "long_scoreboard"},)),
        ((LOAD, USE), "long_scoreboard", ("loads_in_flight", "wider_loads")),
        ((LOAD16, USE), "long_scoreboard", ("loads_in_flight",)),
        ((LOAD16, "STS [R0], R9", USE), "long_scoreboard", ("loads_in_flight", "async_copies")),
        # Each load takes its address from the one before.
        (("LDG.E R2, desc[UR4][R2.64]", "IMAD.WIDE R2, R2, 0x4, R6"), "long_scoreboard", ("loads_in_flight", "wider_loads")),
        (("LDGSTS.E.128 [R1], desc[UR4][R2.64]", "LDGDEPBAR", "DEPBAR.LE SB0, 0x1", "LDS R4, [R1]"), "long_scoreboard",
         ("more_stages", "earlier_copies")),
        (("UTMALDG.2D [UR8], [UR4]", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2], R3", "SEL R4, R5, R6, P0"), "long_scoreboard",
         ("more_stages", "earlier_copies")),
        (("LDL R4, [R1]", USE), "long_scoreboard", ("no_local",)),
        (("ATOMG.E.ADD R4, desc[UR4][R2.64], R3", USE), "long_scoreboard", ("no_result",)),
        (("LDS R4, [R2]", USE), "short_scoreboard", ("wider_shared", "loaded_earlier")),
        (("LDS.128 R4, [R2]", USE), "short_scoreboard", ("loaded_earlier",)),
        (("MUFU.EX2 R4, R2", USE), "short_scoreboard", ("polynomials", "kept")),
    ],
)  # fmt: skip
def test_a_wait_is_answered_by_what_is_waited_for(lines: Sequence[str], reason: str, ways: Sequence[Any]) -> None:
    (step, *_) = advice_for({}, *lines, reason=reason, stalls=(stalled(reason, 60.0),))
    assert step.id == "less_stall"
    assert tuple(plain(step.action.values["ways"])) == tuple(ways)


def test_a_chain_of_loads_is_not_told_to_load_more_at_once() -> None:
    chain = ("LDG.E R2, desc[UR4][R4.64]", "IMAD.WIDE R4, R2, 0x4, R6", "LDG.E R2, desc[UR4][R4.64]")
    full = {**BASE}
    code = listing(*chain, hot=1)
    (step, *_) = steps(LaunchContext(full, NAMES, judge(full), stalls=(stalled("long_scoreboard", 60.0),), code=code))
    assert step.action.values["ways"] == ("several_chains",)


@pytest.mark.parametrize(
    ("row", "lines", "never"),
    [
        (MMA, ("HGMMA.64x64x16.F32 R24, R4, gdesc[UR4], R24",), "use_wgmma"),
        (FMA, ("HMMA.16816.F32 R4, R8, R12, R4",), "use_tensor_cores"),
        (FMA, ("HFMA2 R4, R5, R6, R7",), "packed_halves"),
        # Copies by TMA there, or no wgmma to feed.
        (MMA, ("HGMMA.64x64x16.F32 R24, R4, gdesc[UR4], R24", "UTMALDG.2D [UR8], [UR4]"), "copy_by_tma"),
        (MMA, ("HMMA.16816.F32 R4, R8, R12, R4", "LDGSTS.E.128 [R1], desc[UR4][R2.64]"), "copy_by_tma"),
    ],
)
def test_nothing_is_advised_that_the_kernel_does(row: dict[str, float], lines: Sequence[str], never: str) -> None:
    assert never not in {step.id for step in advice_for(row, *lines)}


# Causes


LOCAL_ROW = {
    "local_load_requests": 6e5, "local_store_requests": 4e5, "spill_requests": 1e6, "registers_per_thread": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "row", "lines", "expected"),
    [
        (CauseId.ATOMICS, {}, ("RED.E.ADD [R2], R3",),
         [("aggregate_atomics", 95, "the code has 1 RED"), ("spread_atomics", 95, "1 RED")]),
        (CauseId.ATOMICS, {}, ("ATOMS.ADD RZ, [R2], R3", "SHFL.BFLY PT, R4, R4, 0x1, 0x1f", "RED.E.ADD [R2], R3"),
         [("spread_atomics", 95, "1 ATOMS and 1 RED")]),
        (CauseId.BARRIER, {}, ("BAR.SYNC 0x0", "STS [R2], R3"), [("fewer_barriers", 75, "1 BAR")]),
        (CauseId.LOCAL_MEMORY, LOCAL_ROW, ("LDL R4, [R1]", "STL [R1], R4"),
         [("fewer_spills", 95, "1,000,000 requests to local memory are spills; the code has 1 LDL and 1 STL")]),
        (CauseId.LOCAL_MEMORY, {**LOCAL_ROW, "spill_requests": 0}, ("LDL R4, [R1]",),
         [("constant_indices", 95, "1,000,000 requests to local memory")]),
        (CauseId.SCATTERED_ACCESS, {"global_load_sectors": 32e6, "global_load_requests": 1e6}, (),
         [("neighbouring_access", 95, "touches 32.0 sectors")]),
        (CauseId.DIVERGENCE, {"threads_per_instruction": 8, "issue_slot_busy_pct": 90}, (),
         [("same_path", 75, "8.0 of 32 threads")]),
        (CauseId.INSTRUCTION_CACHE, {}, (LOAD,) * 4000, [("smaller_code", 75, "64 kB")]),
        (CauseId.CONSTANT_CACHE, {}, ("ULDC UR4, c[0x0][0x210]",), [("fewer_constants", 75, "")]),
        (CauseId.MEMORY_FENCE, {}, ("MEMBAR.SC.GPU",), [("fewer_fences", 75, "1 MEMBAR")]),
        (CauseId.SLEEPING, {}, ("NANOSLEEP 0x40",), [("share_awaited_work", 75, "1 NANOSLEEP")]),
        (CauseId.HOST_MEMORY, {}, (), [("copy_to_device", 75, "")]),
        (CauseId.PARTIAL_WARPS, {"threads_per_block": 8, "issue_slot_busy_pct": 90}, (),
         [("whole_warps", 75, "a block has 8 threads")]),
    ],
)  # fmt: skip
def test_steps_for_a_cause(
    cause: CauseId, row: dict[str, float], lines: Sequence[str], expected: list[tuple[str, float, str]]
) -> None:
    full = {**BASE, **row}
    code = listing(*lines, reason="barrier") if lines else None
    found = [*steps_for(LaunchContext(full, NAMES, judge(full), code=code), cause)]
    assert [(step.id, round(step.bound_pct or 0.0, 6)) for step in found] == [each[:2] for each in expected]
    for step, (_, _, said) in zip(found, expected, strict=True):
        assert said in verdict_words.basis(step)
