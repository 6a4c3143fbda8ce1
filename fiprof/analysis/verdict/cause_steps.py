"""Steps for a cause of a launch's time, by the cause."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from fiprof.analysis.instructions import Family
from fiprof.analysis.occupancy import WARP_THREADS, occupancy
from fiprof.analysis.verdict.model import Cause, CauseId, Part
from fiprof.analysis.verdict.quoted_rules import SECTOR_RULES
from fiprof.analysis.verdict.situation import COPIES, LOADS, PIPES, Situation, both, hot, step, ways
from fiprof.analysis.verdict.step import Basis, Step, StepId, Way
from fiprof.model import quantities
from fiprof.model.finding import Finding
from fiprof.model.formula import number

INSTRUCTION_BYTES = 16
"""Of SASS, from compute capability 7.0 on."""

MOST_REGISTERS = 255
"""Of a thread."""

FEW_BLOCKS, FEW_WARPS = 2, 4
"""Blocks on a multiprocessor of which one at a barrier leaves half of it idle; warps of a block that is small."""

MEMORY = (*LOADS, Part.L2, Part.DRAM)
"""What fewer accesses make less use of."""


def steps_of(s: Situation, cause: Cause) -> Iterator[Step]:
    """What to do about a cause; nothing for one that no change of the kernel removes."""
    make = _BY_CAUSE.get(cause.id)
    for each in make(s) if make else ():
        yield dataclasses.replace(each, cause=cause.id)


EXPLAINS: Mapping[CauseId, tuple[str, ...]] = {
    CauseId.ATOMICS: ("long_scoreboard", "lg_throttle", "mio_throttle", "short_scoreboard", "membar", "drain"),
    CauseId.BARRIER: ("barrier",),
    CauseId.LOCAL_MEMORY: ("long_scoreboard", "lg_throttle"),
    CauseId.SCATTERED_ACCESS: ("long_scoreboard", "lg_throttle", "drain"),
    CauseId.INSTRUCTION_CACHE: ("no_instruction",),
    CauseId.CONSTANT_CACHE: ("imc_miss", "short_scoreboard"),
    CauseId.MEMORY_FENCE: ("membar",),
    CauseId.SLEEPING: ("sleeping",),
    CauseId.HOST_MEMORY: ("long_scoreboard", "lg_throttle", "drain"),
    CauseId.DIVERGENCE: ("branch_resolving",),
}
"""Cause -> the stall reasons that it shows as: a step against the stall itself says less."""


def _atomics(s: Situation) -> Iterator[Step]:
    code = s.in_code(Family.ATOMIC, Family.SHARED_ATOMIC)
    room = s.room(*LOADS, Part.L2)
    if not (s.has(Family.SHUFFLE) and s.has(Family.SHARED_ATOMIC)):
        yield step(StepId.AGGREGATE_ATOMICS, room, code)
    yield step(StepId.SPREAD_ATOMICS, room, code)


def _barrier(s: Situation) -> Iterator[Step]:
    how = ways((Way.WARP_SYNC, True), (Way.NAMED_BARRIERS, True), (Way.DOUBLE_BUFFER, s.has(Family.SHARED_STORE)))
    where = hot(s.code.hottest("barrier")) if s.code else None
    # What goes by shuffles within a warp passes no shared memory either.
    exchanged = LOADS if s.verdict.part in LOADS else ()
    room = s.room(Part.ISSUE_SLOTS, Part.ADU_PIPE, Part.OTHER_COMPUTE, *exchanged)
    yield step(StepId.FEWER_BARRIERS, room, both(s.in_code(Family.BARRIER), where), how)
    found = occupancy(s.row)
    if found.warps_per_block and found.blocks and found.warps_per_block > FEW_WARPS and found.blocks <= FEW_BLOCKS:
        values = {"blocks": found.blocks, "warps_per_block": found.warps_per_block}
        yield step(StepId.SMALLER_BLOCKS, s.room(), None, values)


def _local_memory(s: Situation) -> Iterator[Step]:
    """Spilled registers, arrays that a thread indexes by what the compiler does not know, or both."""
    requests, spilled = s.traced(quantities.LOCAL_REQUESTS), s.traced(quantities.metric("spill_requests"))
    code = s.in_code(Family.LOCAL)
    room = s.room(*MEMORY)
    total = requests.value if requests else 0.0
    of_spills = spilled.value if spilled else None
    if of_spills is None or of_spills > 0:
        registers = number(s.row, "registers_per_thread") or 0.0
        kind = Finding(Basis.SPILLS, {"spilled": spilled}) if of_spills else None
        values = {"registers": registers, "most": registers >= MOST_REGISTERS}
        yield step(StepId.FEWER_SPILLS, room, both(kind, code), values)
    if of_spills is None or of_spills < total / 2:
        counted = Finding(Basis.LOCAL_REQUESTS, {"requests": requests}) if requests else None
        yield step(StepId.CONSTANT_INDICES, room, both(counted, code))


def _scattered(s: Situation) -> Iterator[Step]:
    room = s.room(*MEMORY)
    yield step(StepId.NEIGHBOURING_ACCESS, room, _sectors(s), rules=s.estimated(*SECTOR_RULES))
    if not s.has(*COPIES):
        yield step(StepId.STAGE_IN_SHARED, room)


def _sectors(s: Situation) -> Finding | None:
    """How scattered its accesses to global memory are, as a basis: the worst instruction, where that is known."""
    if s.code and (found := s.code.most_scattered()):
        where, factor = found
        return Finding(Basis.SECTORS_AT, {"sass": where.sass, "factor": factor})
    kinds = (quantities.GLOBAL_LOADS_SECTORS, quantities.GLOBAL_STORES_SECTORS)
    counted = [each for kind in kinds if (each := s.traced(kind))]
    worst = max(counted, key=lambda each: each.value, default=None)
    return None if worst is None else Finding(Basis.SECTORS, {"sectors": worst})


def _divergence(s: Situation) -> Iterator[Step]:
    threads = s.traced(quantities.metric("threads_per_instruction"))
    still = s.use(*PIPES) * threads.value / WARP_THREADS if threads else 0.0
    basis = Finding(Basis.THREADS, {"threads": threads}) if threads else None
    because, rules = both(basis, s.in_code(Family.BRANCH)), s.estimated("ThreadDivergence")
    yield step(StepId.SAME_PATH, s.room(*PIPES, still=still), because, rules=rules)


def _instruction_cache(s: Situation) -> Iterator[Step]:
    size = len(s.code.code.lines) * INSTRUCTION_BYTES / 1000 if s.code else None
    basis = Finding(Basis.CODE_SIZE, {"kilobytes": size}) if size else None
    yield step(StepId.SMALLER_CODE, s.room(), basis)


def _constant_cache(s: Situation) -> Iterator[Step]:
    where = hot(s.code.hottest("imc_miss")) if s.code else None
    yield step(StepId.FEWER_CONSTANTS, s.room(Part.ISSUE_SLOTS), where)


def _memory_fence(s: Situation) -> Iterator[Step]:
    yield step(StepId.FEWER_FENCES, s.room(Part.L2), s.in_code(Family.FENCE))


def _sleeping(s: Situation) -> Iterator[Step]:
    yield step(StepId.SHARE_AWAITED_WORK, s.room(), s.in_code(Family.SLEEP))


def _host_memory(s: Situation) -> Iterator[Step]:
    yield step(StepId.COPY_TO_DEVICE, s.room())


def _partial_warps(s: Situation) -> Iterator[Step]:
    threads = s.traced(quantities.metric("threads_per_block"))
    room = s.room(*PIPES, still=s.use(*PIPES) * threads.value / WARP_THREADS if threads else 0.0)
    yield step(StepId.WHOLE_WARPS, room, Finding(Basis.THREADS_OF_BLOCK, {"threads": threads}) if threads else None)


_BY_CAUSE: Mapping[CauseId, Callable[[Situation], Iterator[Step]]] = {
    CauseId.ATOMICS: _atomics,
    CauseId.BARRIER: _barrier,
    CauseId.LOCAL_MEMORY: _local_memory,
    CauseId.SCATTERED_ACCESS: _scattered,
    CauseId.DIVERGENCE: _divergence,
    CauseId.INSTRUCTION_CACHE: _instruction_cache,
    CauseId.PARTIAL_WARPS: _partial_warps,
    CauseId.CONSTANT_CACHE: _constant_cache,
    CauseId.MEMORY_FENCE: _memory_fence,
    CauseId.SLEEPING: _sleeping,
    CauseId.HOST_MEMORY: _host_memory,
}
