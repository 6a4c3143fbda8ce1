"""Steps for the memory side: DRAM, the caches, shared memory; and how to keep more bytes and warps on their way."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fiprof.analysis.instructions import Family, HotInstruction
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.thresholds import CONFLICTS, DOMINANT_STALL, EMPTY, EXCESS, KEPT, SATURATED
from fiprof.analysis.verdict.model import CauseId, Part
from fiprof.analysis.verdict.quoted_rules import CONFLICT_RULES
from fiprof.analysis.verdict.situation import COPIES, LOADS, PASSES, Room, Situation, both, executed, hot, step, ways
from fiprof.analysis.verdict.step import Basis, Step, StepId, Way
from fiprof.model import quantities
from fiprof.model.finding import Finding, Value


def dram(s: Situation) -> Iterator[Step]:
    use, excess = s.use(Part.DRAM), s.excess_bytes
    if excess is not None and excess >= EXCESS.value:
        basis = Finding(Basis.EXCESS_BYTES, {"factor": excess, **s.use_of(Part.DRAM)})
        room = s.room(Part.DRAM, Part.L2, still=use / excess)
        yield step(StepId.MOVE_FEWER_BYTES, room, basis, estimate=use * (1 - 1 / excess))
    elif excess is not None:
        kind = Basis.BYTES_KEPT if excess < KEPT.value else Basis.BYTES_MOVED
        yield step(StepId.NEED_FEWER_BYTES, None, Finding(kind, {"factor": excess}))
    else:
        yield step(StepId.NEED_FEWER_BYTES, None, Finding(Basis.BYTES_BIND))
    yield from _ramp(s, Part.DRAM)
    if use < SATURATED.value:
        yield _more_loads(s)
        yield from more_warps(s)


def _ramp(s: Situation, part: Part) -> Iterator[Step]:
    """Its start and end, where they are most of what is left to the roof."""
    overhead, idle = quantities.OVERHEAD.of(s.row) or 0.0, quantities.IDLE.of(s.row) or 0.0
    idle_pct = overhead + idle * (100 - overhead) / 100
    if idle_pct >= (100 - s.use(part)) / 2:
        yield step(StepId.SHORTER_RAMP, s.room(), Finding(Basis.RAMP, {"idle_pct": idle_pct}), estimate=idle_pct)


def _more_loads(s: Situation) -> Step:
    top = s.stalls[0] if s.stalls else None
    waits = top is not None and top.of == "long_scoreboard" and top.value >= DOMINANT_STALL.value
    wait = Finding(Basis.WAIT, {"reason": top.of, "share": top.number}) if waits and top else None
    where = s.code.hottest("long_scoreboard") if s.code and waits else None
    rules = s.estimated("CPIStall") if waits else ()
    return step(StepId.MORE_LOADS, s.room(), both(wait, hot(where)), load_ways(s, where), rules=rules)


def load_ways(s: Situation, waiting: HotInstruction | None) -> dict[str, Value]:
    """How to keep more bytes on their way. waiting: the instruction at which most warps wait for them."""
    loads = (Family.GLOBAL_LOAD, Family.ASYNC_COPY)
    if waiting is not None and waiting.chain:
        return ways((Way.SEVERAL_CHAINS, True))
    if s.has(*COPIES):
        return ways((Way.MORE_STAGES, True))
    return ways(
        (Way.LOADS_IN_FLIGHT, True),
        (Way.WIDER_LOADS, s.narrow(*loads)),
        (Way.ASYNC_COPIES, s.code is not None and s.has(Family.SHARED_STORE)),
    )


def more_warps(s: Situation) -> Iterator[Step]:
    """More warps to wait at the same time, where the grid has them and something holds them down."""
    found, room = occupancy(s.row), s.room()
    if found.waves is not None and not found.waves.full:
        if found.waves.idle_share >= EMPTY.share:
            most = found.waves.idle_share * (100 - (quantities.OVERHEAD.of(s.row) or 0.0))
            yield step(
                StepId.FILL_WAVE,
                Room(min(room.pct, most), room.basis),
                Finding(Basis.EMPTY_PLACES, {"empty": found.waves.idle_share}),
                {"blocks": found.waves.last_blocks, "wave_blocks": found.waves.wave_blocks},
            )
        return
    lifted = found.lift is not None and len(found.steps) == len(found.lift.resources)
    if found.steps and found.theoretical_pct and found.blocks and lifted:
        more = min(each.values["blocks"] for each in found.steps) / found.blocks
        then = min(100.0, found.theoretical_pct * more)
        if then > found.theoretical_pct:
            # At best a block takes as long as before: time goes down with the warps, and with whole waves.
            waves = found.waves.waves if found.waves else 1.0
            left = min(found.theoretical_pct / then, math.ceil(waves / more) / math.ceil(waves))
            yield step(
                StepId.MORE_WARPS,
                Room(min(room.pct, 100 * (1 - left)), room.basis),
                Finding(Basis.MORE_WAIT),
                {
                    "changes": found.steps,
                    "occupancy_pct": found.theoretical_pct,
                    "then_pct": then,
                },
                rules=s.estimated("TheoreticalOccupancy"),
            )


def l2(s: Situation) -> Iterator[Step]:
    yield step(StepId.LESS_L2, s.room(Part.L2, *LOADS))
    yield from _ramp(s, Part.L2)


def passes(s: Situation) -> Iterator[Step]:
    """The data stage of L1 and shared memory."""
    part = s.verdict.part
    assert part is not None
    conflicts = s.traced(quantities.BANK_CONFLICTS)
    # Atomics on one word are passes one after another too.
    atomics = any(cause.id is CauseId.ATOMICS for cause in s.verdict.causes)
    if conflicts is not None and conflicts.value >= CONFLICTS.share and not atomics:
        room = s.room(*PASSES, still=s.use(part) * (1 - conflicts.value))
        basis = Finding(Basis.CONFLICTS, {"share": conflicts})
        yield step(StepId.NO_BANK_CONFLICTS, room, basis, rules=s.estimated(*CONFLICT_RULES))
        return
    shared = (Family.SHARED_LOAD, Family.SHARED_STORE)
    if part is Part.L1_DATA:
        how = ways(
            (Way.COALESCED, s.code is None or s.code.most_scattered() is not None),
            (Way.WIDER_LOADS, s.narrow(Family.GLOBAL_LOAD, Family.GLOBAL_STORE)),
            (Way.IN_REGISTERS, True),
        )
        yield step(StepId.FEWER_L1_PASSES, s.room(*LOADS), executed(s), how)
        return
    how = ways(
        (Way.WIDER_SHARED, s.narrow(*shared)),
        (Way.IN_REGISTERS, True),
        (Way.SHUFFLES, s.code is not None and not s.has(Family.SHUFFLE, Family.WGMMA, Family.MMA)),
    )
    yield step(StepId.FEWER_SHARED_PASSES, s.room(*LOADS), executed(s), how)


def constants(s: Situation) -> Iterator[Step]:
    """The cache of constants that are read by an index."""
    less = (Part.CONSTANT_CACHE, Part.ADU_PIPE, Part.ISSUE_SLOTS)
    yield step(StepId.UNIFORM_CONSTANTS, s.room(*less), s.in_code(Family.CONSTANT))


def other_memory(s: Situation) -> Iterator[Step]:
    """A part of the memory system that has no column."""
    yield step(StepId.FIND_MEMORY_PART, s.room(Part.OTHER_MEMORY, *PASSES, Part.L2))
