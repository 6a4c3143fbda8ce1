"""How many blocks of a launch fit on a multiprocessor, what limits them, and how the grid fills the GPU in waves.

The limits are ncu's (``launch__occupancy_limit_*``); what would change them follows NVIDIA's occupancy calculator
(``cuda_occupancy.h`` of the CUDA toolkit), which reproduces ncu's limits on every recorded launch.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fiprof.model.finding import Finding, Wording, finding
from fiprof.model.quantities import Formula, Row, number

WARP_THREADS = 32
REGISTER_STEP = 8  # registers a thread: a warp gets them in steps of 256, and has 32 threads (cuda_occupancy.h)
PARTITIONS = 4  # of a multiprocessor, each with a quarter of its registers; from compute capability 5.0 on, but 6.0
SHARED_STEP_BYTES, OLD_SHARED_STEP_BYTES = 128, 256
"""Steps in which a block gets shared memory: from compute capability 8.0 on, and on 7.0 and 7.5."""


class Resource(Wording):
    """A resource of a multiprocessor that limits its blocks."""

    REGISTERS = "registers"
    SHARED_MEMORY = "shared memory"
    WARPS = "warps"
    BLOCKS = "blocks"  # the hardware's own limit
    BARRIERS = "barriers"
    CLUSTERS = "clusters"


class Limit(NamedTuple):
    """The limit of one resource by itself."""

    resource: Resource
    blocks: float  # blocks on a multiprocessor, by ncu; of clusters the average over the GPU, which need not be whole
    most_blocks: float  # the same with the most shared memory that can be set up; otherwise equal to blocks
    occupancy_pct: float | None  # the occupancy of so many blocks, at most 100; None where the block's size is unknown
    binds: bool  # whether it is the smallest limit, alone or in a tie


class Lift(NamedTuple):
    """The occupancy without the limits that are reached."""

    resources: tuple[Resource, ...]  # whose limits are lifted: all that have to be for one more block
    blocks: float  # blocks on a multiprocessor then
    occupancy_pct: float  # the theoretical occupancy then
    then: tuple[Resource, ...]  # what limits then; empty where the multiprocessor is full of warps


class Waves(NamedTuple):
    """How the grid fills the GPU: a wave is as many blocks as fit at once."""

    waves: float  # blocks of the grid over those of a wave; ncu's figure, unrounded
    wave_blocks: int  # blocks of a full wave: blocks on a multiprocessor x multiprocessors
    full: int  # full waves
    last_blocks: int  # blocks of the partial wave after them; 0 where there is none
    idle_share: float  # empty places for blocks in that partial wave, of all, 0 to 1; 0 where there is none
    last_wave_share: float | None
    """The largest share of the run time in the partial wave, 1 / ceil(waves), if all blocks take the same time: the
    figure of ncu's rule LaunchConfiguration. None below one wave, where there is no tail."""
    loss_share: float | None
    """The most of the run time that the tail costs: its share x what is idle in it, 1 - waves / ceil(waves). A block
    alone on a multiprocessor runs faster, and blocks do not start in step: it is a bound. None below one wave."""
    idle_multiprocessors: int  # multiprocessors without a block, where the grid has fewer blocks than multiprocessors


class Occupancy(NamedTuple):
    """A launch's occupancy; None or empty for what was not collected."""

    warps_per_block: int | None = None
    blocks: float | None = None  # blocks that fit on a multiprocessor: the smallest limit
    theoretical_pct: float | None = None
    limits: Mapping[Resource, Limit] = {}  # as far as they were collected; clusters only where the launch has some
    waves: Waves | None = None
    lift: Lift | None = None  # None where no further warp fits anyway, or something was not collected
    steps: tuple[Finding, ...] = ()
    """How to fit one more block, for each limiting resource; all are needed. Values: the resource, the blocks on a
    multiprocessor that it allows then, how much of it is needed, how much there is, and the unit of both."""

    @property
    def limiters(self) -> tuple[Resource, ...]:
        return tuple(limit.resource for limit in self.limits.values() if limit.binds)

    @property
    def steps_blocks(self) -> float | None:
        """Blocks on a multiprocessor after all steps; None where one of the resources has none."""
        complete = self.steps and self.lift is not None and len(self.steps) == len(self.lift.resources)
        return min(step.values["blocks"] for step in self.steps) if complete else None


def occupancy(row: Row) -> Occupancy:
    """The occupancy of a launch. row: a row of ``launches``."""
    threads, most_warps = number(row, "threads_per_block"), number(row, "max_warps_per_sm")
    warps = math.ceil(threads / WARP_THREADS) if threads else None
    limits = _limits(row, warps, most_warps)
    blocks = min((limit.blocks for limit in limits.values()), default=None)
    result = Occupancy(warps, blocks, number(row, "theoretical_occupancy_pct"), limits, _waves(row, blocks))
    if blocks is None or not warps or not most_warps or (blocks + 1) * warps > most_warps:
        return result
    # The binding resources lifted together. Shared memory that is limited by its configuration alone is not among them:
    # the driver configures more of it where more blocks would fit.
    binding = [limit for limit in limits.values() if limit.binds and limit.most_blocks < blocks + 1]
    dependent = {Resource.CLUSTERS}
    if any(limit.resource == Resource.BLOCKS for limit in binding):
        # Beyond the hardware's limit of blocks, limits that are capped by it are not known.
        dependent |= {Resource.SHARED_MEMORY, Resource.BARRIERS}
    rest = [limit for limit in limits.values() if limit not in binding and limit.resource not in dependent]
    then = min((limit.most_blocks for limit in rest), default=blocks)
    lift = Lift(
        resources=tuple(limit.resource for limit in binding) or (Resource.SHARED_MEMORY,),
        blocks=then,
        occupancy_pct=min(100.0, 100 * then * warps / most_warps),
        then=tuple(limit.resource for limit in rest if limit.most_blocks == then) if then * warps < most_warps else (),
    )
    steps = tuple(step for name in lift.resources if (step := _step(row, name, int(blocks) + 1, warps)))
    return result._replace(lift=lift, steps=steps)


def _limits(row: Row, warps: int | None, most_warps: float | None) -> dict[Resource, Limit]:
    blocks_by: dict[Resource, float] = {}
    for each in Resource:
        limit = number(row, f"limit_{each.replace(' ', '_')}_blocks") if each != Resource.CLUSTERS else None
        if limit is not None:
            blocks_by[each] = limit
    clusters, multiprocessors = Formula("clusters_max_active * cluster_size").value(row), number(row, "multiprocessors")
    least, hardware = min(blocks_by.values(), default=math.inf), blocks_by.get(Resource.BLOCKS, math.inf)
    if clusters and multiprocessors:
        blocks_by[Resource.CLUSTERS] = clusters / multiprocessors
    allocated, most_bytes = number(row, "shared_allocated_bytes"), number(row, "max_shared_bytes_per_sm")
    limits = {}
    for name, blocks in blocks_by.items():
        # Clusters depend on the other limits: they are one only where fewer blocks fit than without clusters. ncu caps
        # the limits of shared memory and barriers at the hardware's limit of blocks.
        capped = name in (Resource.SHARED_MEMORY, Resource.BARRIERS) and blocks >= hardware
        binds = blocks < least if name == Resource.CLUSTERS else blocks == min(blocks_by.values()) and not capped
        most = blocks
        if name == Resource.SHARED_MEMORY and allocated and most_bytes:
            # ncu's limit is that of the size the driver chose; a larger one may be had. The hardware's own limit of
            # blocks stands beside it: no resource needs a larger figure.
            most = max(blocks, min(int(most_bytes // allocated), hardware or math.inf))
        occupancy_pct = min(100.0, 100 * blocks * warps / most_warps) if warps and most_warps else None
        limits[name] = Limit(name, blocks, most, occupancy_pct, binds)
    return limits


def _step(row: Row, resource: Resource, blocks: int, warps: int) -> Finding | None:
    """What lets so many blocks fit past one resource; None where that cannot be told or done."""

    def change(kind: str, words: str, unit: str, needed: float, now: float, fit: int = blocks) -> Finding:
        return finding(kind, words, resource=resource, blocks=fit, needed=needed, now=now, unit=unit)

    match resource:
        case Resource.BLOCKS:
            words = "blocks of more than {now:warp|warps}"
            return change("larger_blocks", words, "warps/block", warps + 1, warps)
        case Resource.BARRIERS if (barriers := number(row, "barriers")) is not None:
            words = "fewer than {now:barrier|barriers} a block"
            return change("fewer_barriers", words, "barriers/block", barriers - 1, barriers)
        case Resource.CLUSTERS if (size := number(row, "cluster_size")) is not None:
            words = "clusters of fewer than {now:block|blocks}"
            return change("smaller_clusters", words, "blocks/cluster", size - 1, size)
        case Resource.REGISTERS:
            used, granted = number(row, "registers_per_thread"), number(row, "registers_allocated_per_thread")
            total = number(row, "max_registers_per_sm")
            words = "at most {needed:.0f} registers a thread instead of {now:.0f}"
            if used is None or granted is None or total is None:
                return None
            step = REGISTER_STEP * WARP_THREADS
            for registers in range(int(granted) - REGISTER_STEP, 0, -REGISTER_STEP):
                # A warp's lie in one partition: each holds a whole number of warps.
                per_warp = math.ceil(registers * WARP_THREADS / step) * step
                allowed = int(total / PARTITIONS // per_warp) * PARTITIONS // warps
                if allowed >= blocks:
                    return change("fewer_registers", words, "registers/thread", float(registers), used, allowed)
        case Resource.SHARED_MEMORY:
            most, allocated = number(row, "max_shared_bytes_per_sm"), number(row, "shared_allocated_bytes")
            static, dynamic = number(row, "shared_static_bytes"), number(row, "shared_dynamic_bytes")
            driver, configured = number(row, "shared_driver_bytes"), number(row, "shared_configured_bytes")
            if most is None or not allocated or driver is None or static is None or dynamic is None:
                return None
            step = OLD_SHARED_STEP_BYTES if (number(row, "cc_major") or math.inf) < 8 else SHARED_STEP_BYTES
            needed = most // blocks // step * step - driver
            if most // allocated >= blocks:
                words = "a multiprocessor set up with {needed:,.0f} bytes of shared memory or more instead of "
                words, unit = words + "{now:,.0f}", "bytes/multiprocessor"
                if configured is not None:
                    return change("more_shared_set_up", words, unit, blocks * allocated, configured)
            elif needed >= 0:
                words = "at most {needed:,.0f} bytes of shared memory a block instead of {now:,.0f}"
                fit = int(most // (needed + driver or 1.0))
                return change("less_shared_memory", words, "bytes/block", needed, static + dynamic, fit)
    return None


def _waves(row: Row, blocks_per_sm: float | None) -> Waves | None:
    blocks, multiprocessors = number(row, "blocks"), number(row, "multiprocessors")
    if not blocks or not multiprocessors or not blocks_per_sm:
        return None
    size = max(1, int(multiprocessors * blocks_per_sm))
    waves, full, last = blocks / size, int(blocks // size), int(blocks % size)
    tail, idle = (1 / math.ceil(waves), 1 - last / size) if last else (0.0, 0.0)
    takes, costs = (tail, tail * idle) if full else (None, None)
    return Waves(waves, size, full, last, idle, takes, costs, max(0, int(multiprocessors - blocks)))


def findings(of_launch: Occupancy) -> tuple[Finding, ...]:
    """What holds the occupancy, and what would come next."""
    if of_launch.blocks is None or of_launch.theoretical_pct is None:
        return ()
    now = {"blocks": of_launch.blocks, "occupancy_pct": of_launch.theoretical_pct}
    lift, fit = of_launch.lift, "{blocks:block|blocks} on a multiprocessor, {occupancy_pct:.4g}%"
    if lift is None:
        return (finding("full", fit + ": its warps are full.", **now, warps_per_block=of_launch.warps_per_block),)
    shared = of_launch.limits.get(Resource.SHARED_MEMORY)
    larger = shared is not None and shared.binds and shared.most_blocks > shared.blocks
    limiters: Sequence[Finding | Resource] = [
        finding("as_set_up", "{resource} as set up", resource=each)
        if larger and each == Resource.SHARED_MEMORY
        else each
        for each in of_launch.limiters
    ]
    sentences = [finding("limited", fit + ", limited by {resources}.", **now, resources=tuple(limiters))]
    kind, words = "lifted", "Without the limit of {resources}"
    if larger and lift.resources == (Resource.SHARED_MEMORY,):
        kind, words = "set_up_larger", "With more of L1 set up as shared memory"
    words += " {blocks:block|blocks} would fit, {occupancy_pct:.4g}%."
    then = {"resources": lift.resources, "blocks": lift.blocks, "occupancy_pct": lift.occupancy_pct}
    sentences.append(finding(kind, words, **then))
    if lift.then:
        sentences.append(finding("then", "Then {resources} would limit.", resources=lift.then))
    if (blocks := of_launch.steps_blocks) is not None:
        kind, words = "for_blocks", "For {blocks:block|blocks}: {steps}."
        if Resource.BLOCKS in lift.resources:
            kind, words = "for_warps", "For more warps: {steps}."
        sentences.append(finding(kind, words, blocks=blocks, steps=of_launch.steps))
    return tuple(sentences)
