"""Why a launch is slow, as far as its counters show it: the patterns that a use of hardware alone does not name.

Each was made into a kernel (tests/trouble_kernels.py) and recorded on a GPU. A cause has to bear on what binds: local
memory is none of a kernel whose tensor cores are saturated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fiprof.analysis.thresholds import (
    CONTENDED,
    CONTENDED_UNIT,
    DOMINANT_STALL,
    EXCESS,
    FEW_LANES,
    FULL_REQUEST,
    HOST_TRAFFIC,
    LOCAL_TRAFFIC,
    MOSTLY,
    QUEUED,
    SCATTERED,
    SHORT,
    WARP,
    Threshold,
)
from fiprof.analysis.verdict.model import Bottleneck, Cause, CauseId, Comparison, Kind, Part, compare
from fiprof.model import quantities
from fiprof.model.formula import Names, Row
from fiprof.model.quantities import Quantity, metric

_TRAFFIC = (Part.LSU_PIPE, Part.DRAM, Part.L2, Part.L1_DATA, Part.SHARED_MEMORY_OR_L1, Part.OTHER_MEMORY)
_TRAFFIC_STALLS = ("long_scoreboard", "lg_throttle", "drain", "mio_throttle")
_SHARED = (Part.SHARED_MEMORY, Part.SHARED_MEMORY_OR_L1, Part.LSU_PIPE)
_SHARED_STALLS = ("short_scoreboard", "mio_throttle")
_WAITING_UNITS = (Part.ADU_PIPE, Part.OTHER_COMPUTE)
"""Units that do little but make warps wait for each other."""


@dataclass(frozen=True)
class Scene:
    """A launch whose cause is looked for."""

    row: Row
    names: Names
    found: Bottleneck
    stalls: tuple[Comparison, ...]
    """Percent of the warps' time in each stall reason, the largest first."""

    def held(self, quantity: Quantity, threshold: Threshold) -> Comparison | None:
        """A number against a threshold; None where it was not collected."""
        value = quantity.traced(self.row, self.names)
        return None if value is None else compare(quantity, value, threshold)

    def at_least(self, quantity: Quantity, threshold: Threshold) -> Comparison | None:
        """The same where it reaches the threshold."""
        found = self.held(quantity, threshold)
        return found if found is not None and found.value >= threshold.value else None

    def beside(self, *wanted: Quantity) -> tuple[Comparison, ...]:
        """Numbers that are held against nothing, as far as they were collected."""
        traced = [(each, each.traced(self.row, self.names)) for each in wanted]
        return tuple(Comparison(each, value) for each, value in traced if value is not None)

    def main_stall(self, *reasons: str) -> Comparison | None:
        """The largest stall where it is one of these and dominates."""
        top = self.stalls[0] if self.stalls else None
        return top if top is not None and top.of in reasons and top.value >= DOMINANT_STALL.value else None

    @property
    def queued(self) -> bool:
        """Whether sectors queue somewhere: a resource binds, or one is used enough for that."""
        return self.found.kind is not Kind.LATENCY or 100 - self.found.value >= QUEUED.value

    def bound_by(self, parts: tuple[Part, ...], stalls: tuple[str, ...]) -> bool:
        """Whether one of the parts binds, or nothing does and the warps mostly wait for one of these reasons."""
        if self.found.kind is Kind.LATENCY:
            return bool(self.stalls) and self.stalls[0].of in stalls
        return self.found.part in parts


def causes(row: Row, found: Bottleneck | None, stalls: Sequence[Comparison], names: Names) -> tuple[Cause, ...]:
    """What makes a launch slow, the most specific first; empty where nothing that is known does.

    found: what binds it. stalls: percent of the warps' time in each stall reason, the largest first.
    """
    if found is None or found.kind not in (Kind.COMPUTE, Kind.MEMORY, Kind.LATENCY):
        return ()
    scene = Scene(row, names, found, tuple(stalls))
    return tuple(cause for look in _LOOKS if (cause := look(scene)) is not None)


def _host_memory(s: Scene) -> Cause | None:
    share = s.at_least(quantities.HOST_SHARE, HOST_TRAFFIC)
    if share is None or not s.bound_by(_TRAFFIC, _TRAFFIC_STALLS):
        return None
    return Cause(CauseId.HOST_MEMORY, (share,), share.value)


def _atomics(s: Scene) -> Cause | None:
    """Atomics on one address, which one slice of L2 takes in; many of them; or many in shared memory."""
    if s.bound_by(_SHARED, _SHARED_STALLS) and (shared := s.at_least(quantities.SHARED_ATOMIC_SHARE, MOSTLY)):
        return Cause(CauseId.ATOMICS, (shared,))
    if not s.bound_by(_TRAFFIC, _TRAFFIC_STALLS):
        return None
    share = s.held(quantities.ATOMIC_SHARE, MOSTLY)
    contended = s.at_least(quantities.ATOMIC_CONTENTION, CONTENDED)
    if contended and s.at_least(metric("l2_atomic_unit_max_pct"), CONTENDED_UNIT):
        return Cause(CauseId.ATOMICS, (contended, *([share] if share else [])))
    return Cause(CauseId.ATOMICS, (share,)) if share is not None and share.reached else None


def _local_memory(s: Scene) -> Cause | None:
    share = s.at_least(quantities.LOCAL_SHARE, LOCAL_TRAFFIC)
    if share is None or not s.bound_by(_TRAFFIC, _TRAFFIC_STALLS):
        return None
    beside = s.beside(quantities.LOCAL_BYTES, metric("spill_requests"))
    return Cause(CauseId.LOCAL_MEMORY, (share, *beside), share.value)


def _scattered(s: Scene) -> Cause | None:
    """More sectors than the bytes need; where only requests were counted, more than the widest request has."""
    found = s.held(quantities.SECTORS_PER_NEEDED, SCATTERED)
    if found is None:
        found = s.held(quantities.SECTORS_PER_REQUEST, FULL_REQUEST)
        if found is None or found.value < EXCESS.value * FULL_REQUEST.value:
            return None
    if not found.reached or not s.bound_by(_TRAFFIC, _TRAFFIC_STALLS) or not s.queued:
        return None
    beside = s.beside(quantities.GLOBAL_LOADS_SECTORS, quantities.GLOBAL_STORES_SECTORS)
    return Cause(CauseId.SCATTERED_ACCESS, (found, *beside))


def _few_lanes(s: Scene) -> Cause | None:
    """Instructions that few threads of a warp take part in."""
    lanes = s.held(metric("threads_per_instruction"), FEW_LANES)
    if lanes is None or lanes.reached or s.found.kind is Kind.MEMORY:
        return None
    if s.found.kind is Kind.LATENCY and s.bound_by((), _TRAFFIC_STALLS):
        return None
    block = s.held(metric("threads_per_block"), WARP)
    if block is not None and not block.reached:
        return Cause(CauseId.PARTIAL_WARPS, (block, lanes))
    return Cause(CauseId.DIVERGENCE, (lanes, *s.beside(metric("uniform_branches_pct"))))


def _barrier(s: Scene) -> Cause | None:
    stall = s.main_stall("barrier")
    if stall is None or not (s.found.kind is Kind.LATENCY or s.found.part in (*_WAITING_UNITS, *_SHARED)):
        return None
    return Cause(CauseId.BARRIER, (stall,), stall.value)


def _constant_cache(s: Scene) -> Cause | None:
    """Constants by immediate address; indexed ones have a cache of their own among the resources."""
    stall = s.main_stall("imc_miss")
    return Cause(CauseId.CONSTANT_CACHE, (stall,), stall.value) if stall and s.found.kind is Kind.LATENCY else None


def _instruction_cache(s: Scene) -> Cause | None:
    """A launch of a few µs fetches its code for the first time: that is no loop too long for the cache."""
    stall, time = s.main_stall("no_instruction"), s.held(quantities.DURATION, SHORT)
    if stall is None or s.found.kind is not Kind.LATENCY or time is None or not time.reached:
        return None
    return Cause(CauseId.INSTRUCTION_CACHE, (stall,), stall.value)


def _waits(reason: str, id: CauseId) -> Callable[[Scene], Cause | None]:
    def look(s: Scene) -> Cause | None:
        stall = s.main_stall(reason)
        return Cause(id, (stall,), stall.value) if stall and s.found.kind is Kind.LATENCY else None

    return look


_LOOKS: tuple[Callable[[Scene], Cause | None], ...] = (
    _host_memory,
    _atomics,
    _barrier,
    _waits("membar", CauseId.MEMORY_FENCE),
    _waits("sleeping", CauseId.SLEEPING),
    _instruction_cache,
    _constant_cache,
    _local_memory,
    _scattered,
    _few_lanes,
)
