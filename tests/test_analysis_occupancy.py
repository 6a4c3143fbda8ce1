"""fiprof/analysis/occupancy.py: limits, what the next one would give, waves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis.occupancy import Lift, Occupancy, Resource, findings, occupancy, register_limit
from fiprof.model.run import Launch
from tests.recorded_runs import RUNS, parsed

Launches = dict[tuple[str, int], Launch]


def steps_of(found: Occupancy) -> list[tuple[Any, ...]]:
    """Each step's id and values."""
    return [(step.kind, *step.values.values()) for step in found.steps]


@pytest.fixture(scope="module")
def launches() -> Launches:
    """Every launch of every recorded run, by the run's words and ncu's number."""
    found = {}
    for name in RUNS:
        run = parsed(name)
        for row in run.launches:
            found[name, row["launch"]] = row
    return found


# Made up

ROW: dict[str, Any] = {
    "threads_per_block": 256.0, "blocks": 100.0, "multiprocessors": 132.0, "max_warps_per_sm": 64.0,
    "limit_registers_blocks": 8.0, "limit_shared_memory_blocks": 2.0, "limit_warps_blocks": 8.0,
    "limit_blocks_blocks": 32.0, "limit_barriers_blocks": 32.0, "theoretical_occupancy_pct": 25.0,
    "shared_static_bytes": 0.0, "shared_dynamic_bytes": 15360.0, "shared_driver_bytes": 1024.0,
    "shared_allocated_bytes": 16384.0, "shared_configured_bytes": 32768.0, "max_shared_bytes_per_sm": 233472.0,
}  # fmt: skip


def test_a_small_configuration_of_shared_memory_is_raised_not_saved() -> None:
    found = occupancy(ROW)
    assert found.lift == Lift((Resource.SHARED_MEMORY,), 8, 100.0, ())
    assert steps_of(found) == [("more_shared_set_up", "shared memory", 3, 49152, 32768, "bytes/multiprocessor")]
    assert [said.kind for said in findings(found)] == ["limited", "set_up_larger", "for_blocks"]
    assert found.waves is not None and found.waves.idle_multiprocessors == 32


@pytest.mark.parametrize(("cc_major", "needed"), [(7.0, 10752.0), (8.0, 10880.0), (None, 10880.0)])
def test_shared_memory_is_given_in_the_steps_of_the_gpu(cc_major: float | None, needed: float) -> None:
    """Six blocks of 64 KiB: steps of 256 bytes before 8.0, of 128 from then on."""
    shared = {
        "limit_shared_memory_blocks": 5.0, "max_shared_bytes_per_sm": 65536.0, "shared_configured_bytes": 65536.0,
        "shared_dynamic_bytes": 12800.0, "shared_allocated_bytes": 12800.0, "shared_driver_bytes": 0.0,
    }  # fmt: skip
    (step,) = steps_of(occupancy({**ROW, **shared, "cc_major": cc_major}))
    assert step[:4] == ("less_shared_memory", "shared memory", 6, needed)


def test_clusters_that_fit_less_often_than_blocks_bind() -> None:
    found = occupancy({**ROW, "limit_shared_memory_blocks": 8.0, "cluster_size": 16.0, "clusters_max_active": 8.0})
    assert found.blocks == pytest.approx(128 / 132)
    assert found.limiters == ("clusters",)
    assert steps_of(found) == [("smaller_clusters", "clusters", 1, 15, 16, "blocks/cluster")]


def test_what_was_not_collected_stays_unknown() -> None:
    assert occupancy({}) == Occupancy()
    assert findings(occupancy({})) == ()
    bare = occupancy({"limit_registers_blocks": 3.0})
    assert (bare.blocks, bare.limits[0].occupancy_pct, bare.lift, bare.waves) == (3.0, None, None, None)


@given(registers=st.integers(1, 255), threads=st.integers(1, 1024), blocks=st.integers(1, 100_000))
def test_a_step_by_registers_makes_room(registers: int, threads: int, blocks: int) -> None:
    warps = -(-threads // 32)
    limit = register_limit(registers, warps, 65536)
    row = {
        "registers_per_thread": float(registers), "registers_allocated_per_thread": float(-(-registers // 8) * 8),
        "max_registers_per_sm": 65536.0, "threads_per_block": float(threads), "max_warps_per_sm": 64.0,
        "limit_registers_blocks": float(limit), "blocks": float(blocks), "multiprocessors": 132.0,
    }  # fmt: skip
    found = occupancy(row)
    for _, _, fit, needed, _, _ in steps_of(found):
        assert needed < registers
        assert register_limit(needed, warps, 65536) == fit > limit
        assert register_limit(needed + 8, warps, 65536) <= limit
    if limit:
        assert found.waves is not None
        assert found.waves.full * found.waves.wave_blocks + found.waves.last_blocks == blocks
        assert 0 <= found.waves.idle_share < 1
