"""fiprof/analysis/occupancy.py: limits, what the next one would give, waves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiprof.analysis.occupancy import (
    Lift,
    Occupancy,
    Resource,
    findings,
    occupancy,
    register_limit,
    shared_limit,
)
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
        assert 100 * found.blocks * found.warps_per_block / 64 == pytest.approx(
            row["theoretical_occupancy_pct"], abs=0.006
        ), name
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
    assert found.limiters == (Resource.REGISTERS,)
    assert found.lift == Lift((Resource.REGISTERS,), 16, 100.0, ())
    (step,) = found.steps
    assert (step.values["needed"], step.values["blocks"]) == (48, 10)
    assert step.fields() == {
        "id": "fewer_registers", "resource": "registers", "blocks": 10, "needed": 48, "now": 56,
        "unit": "registers/thread",
    }  # fmt: skip
    assert [said.kind for said in findings(found)] == ["limited", "lifted", "for_blocks"]
    assert found.waves is not None
    assert (found.waves.full, found.waves.last_blocks, found.waves.wave_blocks) == (0, 1024, 1188)


def test_prefill_fa3_is_held_by_registers_and_shared_memory_alike(launches: Launches) -> None:
    found = occupancy(launches["all", 3])
    assert found.limiters == (Resource.REGISTERS, Resource.SHARED_MEMORY)
    assert found.lift == Lift((Resource.REGISTERS, Resource.SHARED_MEMORY), 4, 75.0, (Resource.BARRIERS,))
    assert [(each[1], each[3]) for each in steps_of(found)] == [
        (Resource.REGISTERS, 80),
        (Resource.SHARED_MEMORY, 115712),
    ]
    waves = found.waves
    assert waves is not None and (waves.full, waves.last_blocks, waves.loss_share) == (1, 0, 0.0)


def test_shared_memory_that_only_its_configuration_limits_is_not_to_be_saved(launches: Launches) -> None:
    row = launches["prefill-decode-rope", 0]
    assert (row["limit_registers_blocks"], row["limit_shared_memory_blocks"]) == (2, 2)
    found = occupancy(row)
    shared = found.limit(Resource.SHARED_MEMORY)
    assert shared is not None and (shared.blocks, shared.most_blocks, shared.binds) == (2, 3, True)
    assert found.lift == Lift((Resource.REGISTERS,), 3, 18.75, (Resource.SHARED_MEMORY,))
    assert [(each[0], *each[3:5]) for each in steps_of(found)] == [("fewer_registers", 168, 255)]
    limited = findings(found)[0].fields()
    assert limited["resources"] == ["registers", {"id": "as_set_up", "resource": "shared memory"}]


def test_a_full_multiprocessor_has_nothing_to_lift(launches: Launches) -> None:
    found = occupancy(launches["all", 4])
    assert (found.limiters, found.lift, found.steps) == (("registers", "warps"), None, ())
    assert [said.fields() for said in findings(found)] == [
        {"id": "full", "blocks": 4, "occupancy_pct": 100, "warps_per_block": 16}
    ]
    assert found.waves is not None
    assert (found.waves.full, found.waves.last_blocks) == (7, 400)


def test_clusters_that_follow_the_blocks_do_not_bind(launches: Launches) -> None:
    found = occupancy(launches["single-purpose", 0])
    clusters = found.limit(Resource.CLUSTERS)
    assert clusters is not None and (clusters.blocks, clusters.binds) == (1.0, False)
    assert found.limiters == (Resource.REGISTERS, Resource.SHARED_MEMORY)
    assert found.lift is not None and (found.lift.blocks, found.lift.then) == (5, ("warps",))


def test_what_ncu_caps_at_the_hardware_s_blocks_does_not_bind(launches: Launches) -> None:
    found = occupancy(launches["single-purpose", 4])
    assert [limit.resource for limit in found.limits if limit.blocks == 32] == ["shared memory", "blocks", "barriers"]
    assert found.limiters == ("blocks",)
    assert steps_of(found) == [("larger_blocks", "blocks", 33, 2, 1, "warps/block")]
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
