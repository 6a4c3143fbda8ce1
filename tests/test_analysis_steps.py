"""fiprof/analysis/verdict/*steps.py: what is advised, the most that it saves, and what the instructions rule out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from fiprof.analysis.instructions import Listing, listings
from fiprof.analysis.thresholds import DOMINANT_STALL
from fiprof.analysis.verdict.model import CauseId, Comparison
from fiprof.analysis.verdict.rules import judge
from fiprof.analysis.verdict.steps import LaunchContext, Step, steps, steps_for
from fiprof.model.finding import plain
from fiprof.model.formula import Row
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.quantities import STALL_SHARE
from fiprof.reports import verdict_words
from tests.test_analysis_verdict import BASE, NAMES, waiting_case, waits

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
        ({"sm_cycles": 20_000}, {}, "longer_launch", 75, 50),
        # An idle GPU is a step beside the kernel's own.
        ({"dram_throughput_pct": 90}, {"case": waiting_case(30)}, "use_graph", 30, None),
        # Not the idle time: work that is shared out uses a multiprocessor better too.
        ({"sm_active_cycles": 7000}, {}, "even_work", 75, 30),
        # Not the stall's share, whatever it is: warps wait at the same time.
        ({}, {"stalls": (stalled("wait", 40.0),)}, "less_stall", 75, None),
        ({}, {"stalls": (stalled("wait", 90.0),)}, "less_stall", 75, None),
        # What helps against it makes less use of the data stage: what is left is DRAM and the issue slots at 20 %.
        ({}, {"stalls": (stalled("short_scoreboard", 50.0),)}, "less_stall", 80, None),
        # Whatever binds: latency, a tail, the tensor cores themselves.
        (MMA, {}, "use_wgmma", 100 - 45 * 0.625, None),
        ({**MMA, "sm_active_cycles": 6000}, {}, "use_wgmma", 100 - 45 * 0.625, None),
        ({**MMA, "tensor_active_pct": 90}, {}, "use_wgmma", 100 - 90 * 0.625, None),
        ({**FMA, "l1_data_pct": 1}, {}, "packed_halves", 55, None),
        ({**FMA, "fp16_peak_ops_per_cycle": 1000, "l1_data_pct": 1}, {}, "less_fma", 75, None),
        # What else is in use would still need its time: DRAM 40 %, the ALU 50 %.
        ({**FMA, "dram_throughput_pct": 40}, {}, "use_tensor_cores", 60, None),
        ({**FMA, "tensor_peak_fp16_ops_per_cycle": None, "alu_pct": 50}, {}, "packed_halves", 50, None),
        # Few of the additions and multiplications are fused, as those of a product are; or most are of integers.
        ({**FMA, "fadd_thread_insts": 2e9}, {}, "packed_halves", 55, None),
        ({**FMA, "ffma_thread_insts": 1e3}, {}, "less_fma", 75, None),
        ({"adu_pct": 90}, {}, "less_of_pipe", 75, None),
        ({"l1_data_pct": 90, "shared_data_pct": 90, "shared_wavefronts": 10, "shared_bank_conflicts": 5}, {},
         "no_bank_conflicts", 55, None),
    ],
)  # fmt: skip
def test_the_first_step_and_the_most_it_saves(
    row: dict[str, float], situation: dict[str, Any], first: str, most: float, estimate: float | None
) -> None:
    found = advice_for(row, **situation)[0]
    assert found.id is first
    assert found.bound_pct == pytest.approx(most)
    assert found.estimate_pct == (None if estimate is None else pytest.approx(estimate))


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
         [("aggregate_atomics", 80, "the code has 1 RED"), ("spread_atomics", 80, "1 RED")]),
        (CauseId.ATOMICS, {}, ("ATOMS.ADD RZ, [R2], R3", "SHFL.BFLY PT, R4, R4, 0x1, 0x1f", "RED.E.ADD [R2], R3"),
         [("spread_atomics", 80, "1 ATOMS and 1 RED")]),
        (CauseId.BARRIER, {}, ("BAR.SYNC 0x0", "STS [R2], R3"), [("fewer_barriers", 75, "1 BAR")]),
        (CauseId.LOCAL_MEMORY, LOCAL_ROW, ("LDL R4, [R1]", "STL [R1], R4"),
         [("fewer_spills", 95, "1,000,000 requests to local memory are spills; the code has 1 LDL and 1 STL")]),
        (CauseId.LOCAL_MEMORY, {**LOCAL_ROW, "spill_requests": 0}, ("LDL R4, [R1]",),
         [("constant_indices", 95, "1,000,000 requests to local memory")]),
        (CauseId.SCATTERED_ACCESS, {"global_load_sectors": 32e6, "global_load_requests": 1e6}, (),
         [("neighbouring_access", 95, "touches 32.0 sectors"), ("stage_in_shared", 95, "")]),
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
