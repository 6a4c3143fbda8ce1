"""fiprof/reports/occupancy.py: limits, what the next one would give, waves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis.occupancy import (
    REGISTERS,
    SHARED,
    Lift,
    Occupancy,
    occupancy,
    register_limit,
    sentences,
    shared_limit,
)
from fiprof.model.run import Launch
from tests.recorded_runs import RUNS, parsed

Launches = dict[tuple[str, int], Launch]


@pytest.fixture(scope="module")
def launches() -> Launches:
    """Every launch of every recorded run, by the run's words and ncu's number."""
    found = {}
    for name in RUNS:
        run = parsed(name)
        for row in run.launches:
            found[name, row["launch"]] = row
    return found


# Against ncu


def test_the_limits_of_every_recorded_launch_are_ncu_s(launches: Launches) -> None:
    assert len(launches) >= 26
    for name, row in launches.items():
        warps = -(-round(row["threads_per_block"]) // 32)
        by_registers = register_limit(row["registers_per_thread"], warps, row["max_registers_per_sm"])
        assert by_registers == row["limit_registers_blocks"], name
        by_shared = shared_limit(row["shared_allocated_bytes"], row["shared_configured_bytes"])
        assert min(by_shared, row["limit_blocks_blocks"]) == row["limit_shared_memory_blocks"], name


def test_occupancy_and_waves_of_every_recorded_launch_are_ncu_s(launches: Launches) -> None:
    for name, row in launches.items():
        found = occupancy(row)
        assert found.blocks is not None and found.warps_per_block is not None and found.waves is not None
        assert 100 * found.blocks * found.warps_per_block / 64 == pytest.approx(row["theoretical_occupancy_pct"]), name
        assert found.waves.waves == pytest.approx(row["waves_per_sm"], abs=0.00501), name


def test_the_tail_is_that_of_ncu_s_rule(launches: Launches) -> None:
    # «1 full waves and a partial wave of 728 thread blocks … may account for up to 50.0% of the total runtime»
    waves = occupancy(launches["prefill-decode-rope", 5]).waves
    assert waves is not None
    assert (waves.full, waves.last_blocks, waves.wave_blocks, waves.last_wave_share) == (1, 728, 1320, 0.5)
    assert waves.idle_share == pytest.approx(592 / 1320)
    assert waves.loss_share == pytest.approx(1 - (2048 / 1320) / 2)


# The recorded launches in literal numbers


def test_decode_is_held_by_its_registers(launches: Launches) -> None:
    found = occupancy(launches["all", 0])
    assert [(limit.resource, limit.blocks) for limit in found.limits] == [
        ("registers", 9), ("shared memory", 13), ("warps", 16), ("blocks", 32), ("barriers", 32),
    ]  # fmt: skip
    assert [limit.occupancy_pct for limit in found.limits] == [56.25, 81.25, 100, 100, 100]
    assert found.limiters == (REGISTERS,)
    assert found.lift == Lift((REGISTERS,), 16, 100.0, ())
    (step,) = found.steps
    assert (step.needed, step.blocks) == (48, 10)
    assert sentences(found) == (
        "9 blocks on a multiprocessor, 56.25%, limited by registers. Without the limit of registers 16 blocks would "
        "fit, 100%. For 10 blocks: at most 48 registers a thread instead of 56",
        "its grid has 1,024 of the 1,188 blocks that fit at once: more room on a multiprocessor does nothing for this "
        "grid",
    )


def test_prefill_fa3_is_held_by_registers_and_shared_memory_alike(launches: Launches) -> None:
    found = occupancy(launches["all", 3])
    assert found.limiters == (REGISTERS, SHARED)
    assert found.lift == Lift((REGISTERS, SHARED), 4, 75.0, ("barriers",))
    assert [(step.resource, step.needed) for step in found.steps] == [(REGISTERS, 80), (SHARED, 115712)]
    waves = found.waves
    assert waves is not None and (waves.full, waves.last_blocks, waves.loss_share) == (1, 0, 0.0)


def test_shared_memory_that_only_its_configuration_limits_is_not_to_be_saved(launches: Launches) -> None:
    row = launches["prefill-decode-rope", 0]
    assert (row["limit_registers_blocks"], row["limit_shared_memory_blocks"]) == (2, 2)
    found = occupancy(row)
    shared = found.limit(SHARED)
    assert shared is not None and (shared.blocks, shared.most_blocks, shared.binds) == (2, 3, True)
    assert found.lift == Lift((REGISTERS,), 3, 18.75, (SHARED,))
    assert [step.change for step in found.steps] == ["at most 168 registers a thread instead of 255"]
    assert "registers and shared memory as it was set up" in sentences(found)[0]


def test_a_full_multiprocessor_has_nothing_to_lift(launches: Launches) -> None:
    found = occupancy(launches["all", 4])
    assert (found.limiters, found.lift, found.steps) == (("registers", "warps"), None, ())
    assert sentences(found) == (
        "4 blocks on a multiprocessor, 100%: no further block of 16 warps has room among the warps",
        "7 full waves, then 400 blocks where 528 fit: 24% of this last wave is idle, and the tail costs at most 3.0% "
        "of the time",
    )


def test_clusters_that_follow_the_blocks_do_not_bind(launches: Launches) -> None:
    found = occupancy(launches["single-purpose", 0])
    clusters = found.limit("clusters")
    assert clusters is not None and (clusters.blocks, clusters.binds) == (1.0, False)
    assert found.limiters == (REGISTERS, SHARED)
    assert found.lift is not None and (found.lift.blocks, found.lift.then) == (5, ("warps",))


def test_what_ncu_caps_at_the_hardware_s_blocks_does_not_bind(launches: Launches) -> None:
    found = occupancy(launches["single-purpose", 4])
    assert [limit.resource for limit in found.limits if limit.blocks == 32] == ["shared memory", "blocks", "barriers"]
    assert found.limiters == ("blocks",)
    assert [step.change for step in found.steps] == ["blocks of more than 1 warp"]
    waves = found.waves
    assert waves is not None and (waves.full, waves.last_wave_share, waves.loss_share) == (0, None, None)


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
    assert found.lift == Lift((SHARED,), 8, 100.0, ())
    assert [step.change for step in found.steps] == [
        "a multiprocessor set up with 49,152 bytes of shared memory or more instead of 32,768"
    ]
    assert "With more of L1 set up as shared memory 8 blocks would fit" in sentences(found)[0]
    assert found.waves is not None and found.waves.idle_multiprocessors == 32


def test_clusters_that_fit_less_often_than_blocks_bind() -> None:
    found = occupancy({**ROW, "limit_shared_memory_blocks": 8.0, "cluster_size": 16.0, "clusters_max_active": 8.0})
    assert found.blocks == pytest.approx(128 / 132)
    assert found.limiters == ("clusters",)
    assert [step.change for step in found.steps] == ["clusters of fewer than 16 blocks"]


def test_what_was_not_collected_stays_unknown() -> None:
    assert occupancy({}) == Occupancy()
    assert sentences(occupancy({})) == ()
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
    for step in found.steps:
        assert step.needed is not None and step.needed < registers
        assert register_limit(step.needed, warps, 65536) == step.blocks > limit
        assert register_limit(step.needed + 8, warps, 65536) <= limit
    if limit:
        assert found.waves is not None
        assert found.waves.full * found.waves.wave_blocks + found.waves.last_blocks == blocks
        assert 0 <= found.waves.idle_share < 1
