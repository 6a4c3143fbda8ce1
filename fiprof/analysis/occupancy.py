"""How many blocks of a launch fit on a multiprocessor, what limits them, and how the grid fills the GPU in waves.

The limits are ncu's (``launch__occupancy_limit_*``); what would change them follows NVIDIA's occupancy calculator
(``cuda_occupancy.h`` of the CUDA toolkit), which reproduces ncu's limits on every recorded launch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fiprof.model.finding import Finding, finding
from fiprof.model.formula import Formula, Row, number
from fiprof.model.wording import Worded

WARP_THREADS = 32

REGISTER_STEP = 8
"""Registers a thread: a warp is given registers in steps of 256, and has 32 threads (cuda_occupancy.h)."""

PARTITIONS = 4
"""Of a multiprocessor, each with a quarter of its registers; compute capability 5.0 and later, 6.0 excepted."""

SHARED_STEP_BYTES = 128
"""A block is given shared memory in such steps from compute capability 8.0 on."""

OLD_SHARED_STEP_BYTES = 256
"""The same on 7.0 and 7.5."""


class Resource(Worded):
    """What a multiprocessor has to hold blocks."""

    REGISTERS = "registers"
    SHARED_MEMORY = "shared memory"
    WARPS = "warps"
    BLOCKS = "blocks"
    """That the hardware holds at all."""
    BARRIERS = "barriers"
    CLUSTERS = "clusters"


_LIMIT_COLUMNS = {each: f"limit_{each.replace(' ', '_')}_blocks" for each in Resource if each != Resource.CLUSTERS}


@dataclass(frozen=True)
class Limit:
    """What one resource allows by itself."""

    resource: Resource
    blocks: float
    """Blocks on a multiprocessor, by ncu; of clusters the average over the GPU, which need not be whole."""
    most_blocks: float
    """The same with as much shared memory as a multiprocessor can be set up with; otherwise equal to blocks."""
    occupancy_pct: float | None
    """The occupancy of so many blocks, at most 100; None where the block's size is unknown."""
    binds: bool
    """Whether it is the smallest limit, alone or in a tie."""


@dataclass(frozen=True)
class Lift:
    """What would be if the resources that hold the occupancy down did not."""

    resources: tuple[Resource, ...]
    """Those lifted: every one without which no further block fits."""
    blocks: float
    """Blocks on a multiprocessor then."""
    occupancy_pct: float
    """The theoretical occupancy then."""
    then: tuple[Resource, ...]
    """What limits then; empty where the multiprocessor is full of warps."""


@dataclass(frozen=True)
class Waves:
    """How the grid fills the GPU: a wave is as many blocks as fit at once."""

    waves: float
    """Blocks of the grid over those of a wave; ncu's figure, unrounded."""
    wave_blocks: int
    """Blocks of a full wave: blocks on a multiprocessor x multiprocessors."""
    full: int
    """Full waves."""
    last_blocks: int
    """Blocks of the partial wave after them; 0 where there is none."""
    idle_share: float
    """Of the places for blocks in that partial wave, those that stay empty; 0 where there is none."""
    last_wave_share: float | None
    """The most that the partial wave takes of the run time, 1 / ceil(waves), all blocks taking the same time: the
    figure of ncu's rule LaunchConfiguration. None below one wave, where there is no tail."""
    loss_share: float | None
    """The most of the run time that the tail costs: its share x what is idle in it, 1 - waves / ceil(waves). A block
    alone on a multiprocessor runs faster, and blocks do not start in step, so it is a bound. None below one wave."""
    idle_multiprocessors: int
    """Without any block, where the grid has fewer blocks than there are multiprocessors."""


@dataclass(frozen=True)
class Occupancy:
    """A launch's occupancy; what was not collected is None or empty."""

    warps_per_block: int | None = None
    blocks: float | None = None
    """Blocks that fit on a multiprocessor: the smallest limit."""
    theoretical_pct: float | None = None
    limits: tuple[Limit, ...] = ()
    """As far as they were collected; clusters only where the launch has some."""
    lift: Lift | None = None
    """None where no further warp fits anyway, or something was not collected."""
    steps: tuple[Finding, ...] = ()
    """How to get one block more past each resource that holds it, all of them needed: the resource, the blocks on a
    multiprocessor that it would allow then, how much of it there has to be, how much there is, and the unit of both."""
    waves: Waves | None = None

    @property
    def limiters(self) -> tuple[Resource, ...]:
        """The resources that bind."""
        return tuple(limit.resource for limit in self.limits if limit.binds)

    def limit(self, resource: Resource) -> Limit | None:
        return next((limit for limit in self.limits if limit.resource == resource), None)


def occupancy(row: Row) -> Occupancy:
    """The occupancy of a launch. row: a row of ``launches``, with the columns of ``metrics.py``."""
    threads = number(row, "threads_per_block")
    warps = math.ceil(threads / WARP_THREADS) if threads else None
    limits = _limits(row, warps)
    blocks = min((limit.blocks for limit in limits), default=None)
    found = Occupancy(
        warps_per_block=warps,
        blocks=blocks,
        theoretical_pct=number(row, "theoretical_occupancy_pct"),
        limits=limits,
        waves=_waves(row, blocks),
    )
    most_warps = number(row, "max_warps_per_sm")
    if blocks is None or not warps or not most_warps or (blocks + 1) * warps > most_warps:
        return found
    lift = _lift(limits, blocks, warps, most_warps)
    steps = tuple(step for name in lift.resources if (step := _step(row, name, int(blocks) + 1, warps)))
    return Occupancy(**{**vars(found), "lift": lift, "steps": steps})


def register_limit(registers_per_thread: float, warps_per_block: int, registers_per_sm: float) -> int:
    """Blocks that fit on a multiprocessor by registers.

    A warp's registers lie in one partition, so each partition holds a whole number of warps.
    """
    step = REGISTER_STEP * WARP_THREADS
    per_warp = math.ceil(registers_per_thread * WARP_THREADS / step) * step
    warps = int(registers_per_sm / PARTITIONS // per_warp) * PARTITIONS
    return warps // warps_per_block


def shared_limit(allocated_bytes: float, multiprocessor_bytes: float) -> int:
    """The same by shared memory. allocated_bytes: of a block, the driver's part and the rounding included."""
    return int(multiprocessor_bytes // allocated_bytes)


def _limits(row: Row, warps: int | None) -> tuple[Limit, ...]:
    found: dict[Resource, float] = {
        name: limit for name, column in _LIMIT_COLUMNS.items() if (limit := number(row, column)) is not None
    }
    clusters = Formula("clusters_max_active * cluster_size").value(row)
    multiprocessors = number(row, "multiprocessors")
    if clusters and multiprocessors:
        found[Resource.CLUSTERS] = clusters / multiprocessors
    most_warps, hardware = number(row, "max_warps_per_sm"), found.get(Resource.BLOCKS, math.inf)
    least = min((blocks for name, blocks in found.items() if name != Resource.CLUSTERS), default=math.inf)

    def binds(name: Resource, blocks: float) -> bool:
        # Clusters follow the blocks that fit: they limit only where fewer fit than of blocks without clusters. ncu
        # caps shared memory and barriers at the blocks that the hardware holds.
        if name == Resource.CLUSTERS:
            return blocks < least
        capped = name in (Resource.SHARED_MEMORY, Resource.BARRIERS) and blocks >= hardware
        return blocks == min(found.values()) and not capped

    return tuple(
        Limit(
            resource=name,
            blocks=blocks,
            most_blocks=_most_by_shared(row, blocks) if name == Resource.SHARED_MEMORY else blocks,
            occupancy_pct=min(100.0, 100 * blocks * warps / most_warps) if warps and most_warps else None,
            binds=binds(name, blocks),
        )
        for name, blocks in found.items()
    )


def _most_by_shared(row: Row, blocks: float) -> float:
    """ncu's limit is that of the size the driver chose; a larger one may be had."""
    allocated, most = number(row, "shared_allocated_bytes"), number(row, "max_shared_bytes_per_sm")
    if not allocated or not most:
        return blocks
    # The hardware's own limit of blocks stands beside it: no resource needs a larger figure.
    hardware = number(row, _LIMIT_COLUMNS[Resource.BLOCKS]) or math.inf
    return max(blocks, min(shared_limit(allocated, most), hardware))


def _lift(limits: tuple[Limit, ...], blocks: float, warps: int, most_warps: float) -> Lift:
    """The binding resources lifted together. Shared memory that only its configuration holds down is not a resource
    to save: the driver sets up more of it where more blocks would fit."""
    held = tuple(limit for limit in limits if limit.binds and limit.most_blocks < blocks + 1)
    # Past the hardware's limit of blocks nothing is known of what is capped by it.
    dependent = (
        {Resource.CLUSTERS, Resource.SHARED_MEMORY, Resource.BARRIERS}
        if any(limit.resource == Resource.BLOCKS for limit in held)
        else {Resource.CLUSTERS}
    )
    rest = [limit for limit in limits if limit not in held and limit.resource not in dependent]
    then = min((limit.most_blocks for limit in rest), default=blocks)
    full = then * warps >= most_warps
    return Lift(
        resources=tuple(limit.resource for limit in held) or (Resource.SHARED_MEMORY,),
        blocks=then,
        occupancy_pct=min(100.0, 100 * then * warps / most_warps),
        then=() if full else tuple(limit.resource for limit in rest if limit.most_blocks == then),
    )


def _change(kind: str, words: str, resource: Resource, blocks: int, needed: float, now: float, unit: str) -> Finding:
    return finding(kind, words, resource=resource, blocks=blocks, needed=needed, now=now, unit=unit)


def _step(row: Row, resource: Resource, blocks: int, warps: int) -> Finding | None:
    """What lets so many blocks fit past one resource; None where that cannot be told or done."""
    if resource == Resource.REGISTERS:
        return _fewer_registers(row, blocks, warps)
    if resource == Resource.SHARED_MEMORY:
        return _less_shared(row, blocks)
    if resource == Resource.BLOCKS:
        words = "blocks of more than {now:warp|warps}"
        return _change("larger_blocks", words, resource, blocks, warps + 1, warps, "warps/block")
    if resource == Resource.BARRIERS and (barriers := number(row, "barriers")) is not None:
        words = "fewer than {now:barrier|barriers} a block"
        return _change("fewer_barriers", words, resource, blocks, barriers - 1, barriers, "barriers/block")
    if resource == Resource.CLUSTERS and (size := number(row, "cluster_size")) is not None:
        words = "clusters of fewer than {now:block|blocks}"
        return _change("smaller_clusters", words, resource, blocks, size - 1, size, "blocks/cluster")
    return None


def _fewer_registers(row: Row, blocks: int, warps: int) -> Finding | None:
    used, given = number(row, "registers_per_thread"), number(row, "registers_allocated_per_thread")
    total = number(row, "max_registers_per_sm")
    if used is None or given is None or total is None:
        return None
    words = "at most {needed:.0f} registers a thread instead of {now:.0f}"
    for registers in range(int(given) - REGISTER_STEP, 0, -REGISTER_STEP):
        allowed = register_limit(registers, warps, total)
        if allowed >= blocks:
            resource, unit = Resource.REGISTERS, "registers/thread"
            return _change("fewer_registers", words, resource, allowed, float(registers), used, unit)
    return None


def _less_shared(row: Row, blocks: int) -> Finding | None:
    most, allocated = number(row, "max_shared_bytes_per_sm"), number(row, "shared_allocated_bytes")
    static, dynamic = number(row, "shared_static_bytes"), number(row, "shared_dynamic_bytes")
    driver, configured = number(row, "shared_driver_bytes"), number(row, "shared_configured_bytes")
    if most is None or not allocated or driver is None or static is None or dynamic is None:
        return None
    resource = Resource.SHARED_MEMORY
    if shared_limit(allocated, most) >= blocks:
        if configured is None:
            return None
        words = "a multiprocessor set up with {needed:,.0f} bytes of shared memory or more instead of {now:,.0f}"
        unit = "bytes/multiprocessor"
        return _change("more_shared_set_up", words, resource, blocks, blocks * allocated, configured, unit)
    step = OLD_SHARED_STEP_BYTES if (number(row, "cc_major") or math.inf) < 8 else SHARED_STEP_BYTES
    needed = most // blocks // step * step - driver
    if needed < 0:
        return None
    fit = shared_limit(needed + driver or 1.0, most)
    words = "at most {needed:,.0f} bytes of shared memory a block instead of {now:,.0f}"
    return _change("less_shared_memory", words, resource, fit, needed, static + dynamic, "bytes/block")


def _waves(row: Row, blocks_per_sm: float | None) -> Waves | None:
    blocks, multiprocessors = number(row, "blocks"), number(row, "multiprocessors")
    if not blocks or not multiprocessors or not blocks_per_sm:
        return None
    size = max(1, int(multiprocessors * blocks_per_sm))
    waves, full, last = blocks / size, int(blocks // size), int(blocks % size)
    tail = 1 / math.ceil(waves) if last else 0.0
    idle = 1 - last / size if last else 0.0
    return Waves(
        waves=waves,
        wave_blocks=size,
        full=full,
        last_blocks=last,
        idle_share=idle,
        last_wave_share=tail if full else None,
        loss_share=tail * idle if full else None,
        idle_multiprocessors=max(0, int(multiprocessors - blocks)),
    )


def findings(found: Occupancy) -> tuple[Finding, ...]:
    """What holds the occupancy, and what would come next."""
    if found.blocks is None or found.theoretical_pct is None:
        return ()
    now = {"blocks": found.blocks, "occupancy_pct": found.theoretical_pct}
    lift, fit = found.lift, "{blocks:block|blocks} on a multiprocessor, {occupancy_pct:.4g}%"
    if lift is None:
        return (finding("full", fit + ": its warps are full.", **now, warps_per_block=found.warps_per_block),)
    shared = found.limit(Resource.SHARED_MEMORY)
    larger = shared is not None and shared.binds and shared.most_blocks > shared.blocks
    limiters = tuple(
        finding("as_set_up", "{resource} as set up", resource=each)
        if larger and each == Resource.SHARED_MEMORY
        else each
        for each in found.limiters
    )
    then = {"resources": lift.resources, "blocks": lift.blocks, "occupancy_pct": lift.occupancy_pct}
    would_fit = " {blocks:block|blocks} would fit, {occupancy_pct:.4g}%."
    said = [finding("limited", fit + ", limited by {resources}.", **now, resources=limiters)]
    if larger and lift.resources == (Resource.SHARED_MEMORY,):
        said.append(finding("set_up_larger", "With more of L1 set up as shared memory" + would_fit, **then))
    else:
        said.append(finding("lifted", "Without the limit of {resources}" + would_fit, **then))
    if lift.then:
        said.append(finding("then", "Then {resources} would limit.", resources=lift.then))
    if found.steps and len(found.steps) == len(lift.resources):
        values = {"blocks": min(step.values["blocks"] for step in found.steps), "steps": found.steps}
        if Resource.BLOCKS in lift.resources:
            said.append(finding("for_warps", "For more warps: {steps}.", **values))
        else:
            said.append(finding("for_blocks", "For {blocks:block|blocks}: {steps}.", **values))
    return tuple(said)
