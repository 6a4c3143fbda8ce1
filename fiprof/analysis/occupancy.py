"""How many blocks of a launch fit on a multiprocessor, what limits them, and how the grid fills the GPU in waves.

The limits are ncu's (``launch__occupancy_limit_*``); what would change them follows NVIDIA's occupancy calculator
(``cuda_occupancy.h`` of the CUDA toolkit), which reproduces ncu's limits on every recorded launch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fiprof.model.expressions import Metric, Row, number
from fiprof.text import join_words

WARP_THREADS = 32

REGISTER_STEP = 8
"""Registers a thread: a warp is given registers in steps of 256, and has 32 threads (cuda_occupancy.h)."""

PARTITIONS = 4
"""Of a multiprocessor, each with a quarter of its registers; compute capability 5.0 and later, 6.0 excepted."""

SHARED_STEP_BYTES = 128
"""Shared memory is given in such steps from compute capability 8.0 on (256 before, but 5.x and 6.x)."""

REGISTERS, SHARED, WARPS, BLOCKS, BARRIERS, CLUSTERS = (
    "registers", "shared memory", "warps", "blocks", "barriers", "clusters",
)  # fmt: skip

RESOURCES = (REGISTERS, SHARED, WARPS, BLOCKS, BARRIERS, CLUSTERS)

_LIMIT_COLUMNS = {
    REGISTERS: "limit_registers_blocks",
    SHARED: "limit_shared_memory_blocks",
    WARPS: "limit_warps_blocks",
    BLOCKS: "limit_blocks_blocks",
    BARRIERS: "limit_barriers_blocks",
}


@dataclass(frozen=True)
class Limit:
    """What one resource allows by itself."""

    resource: str
    """registers, shared memory, warps, blocks (what the hardware holds at all), barriers or clusters."""
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

    resources: tuple[str, ...]
    """Those lifted: every one without which no further block fits."""
    blocks: float
    """Blocks on a multiprocessor then."""
    occupancy_pct: float
    """The theoretical occupancy then."""
    then: tuple[str, ...]
    """What limits then; empty where the multiprocessor is full of warps."""


@dataclass(frozen=True)
class OccupancyStep:
    """A change of one resource that makes room for more blocks, as far as that resource goes."""

    resource: str
    change: str
    """What to do, with the numbers."""
    blocks: int
    """Blocks on a multiprocessor that this resource would allow then."""
    needed: float | None = None
    """The most of it that a block (shared memory: bytes, without the driver's) or a thread (registers) may use then."""


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
    achieved_pct: float | None = None
    limits: tuple[Limit, ...] = ()
    """As far as they were collected; clusters only where the launch has some."""
    lift: Lift | None = None
    """None where no further warp fits anyway, or something was not collected."""
    steps: tuple[OccupancyStep, ...] = ()
    """How to get one block more past each resource that holds it; all of them are needed."""
    waves: Waves | None = None

    @property
    def limiters(self) -> tuple[str, ...]:
        """The resources that bind."""
        return tuple(limit.resource for limit in self.limits if limit.binds)

    def limit(self, resource: str) -> Limit | None:
        """A resource's limit by its name."""
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
        achieved_pct=number(row, "achieved_occupancy_pct"),
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
    """Blocks that fit on a multiprocessor by shared memory.

    allocated_bytes: of a block, the driver's part and the rounding included.
    """
    return int(multiprocessor_bytes // allocated_bytes)


def _limits(row: Row, warps: int | None) -> tuple[Limit, ...]:
    found = {name: limit for name, column in _LIMIT_COLUMNS.items() if (limit := number(row, column)) is not None}
    clusters = (Metric("clusters_max_active") * Metric("cluster_size")).value(row)
    multiprocessors = number(row, "multiprocessors")
    if clusters and multiprocessors:
        found[CLUSTERS] = clusters / multiprocessors
    most_warps, hardware = number(row, "max_warps_per_sm"), found.get(BLOCKS, math.inf)
    least = min((blocks for name, blocks in found.items() if name != CLUSTERS), default=math.inf)

    def binds(name: str, blocks: float) -> bool:
        # Clusters follow the blocks that fit: they limit only where fewer fit than of blocks without clusters. ncu
        # caps shared memory and barriers at the blocks that the hardware holds.
        if name == CLUSTERS:
            return blocks < least
        capped = name in (SHARED, BARRIERS) and blocks >= hardware
        return blocks == min(found.values()) and not capped

    return tuple(
        Limit(
            resource=name,
            blocks=blocks,
            most_blocks=_most_by_shared(row, blocks) if name == SHARED else blocks,
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
    hardware = number(row, _LIMIT_COLUMNS[BLOCKS]) or math.inf
    return max(blocks, min(shared_limit(allocated, most), hardware))


def _lift(limits: tuple[Limit, ...], blocks: float, warps: int, most_warps: float) -> Lift:
    """The binding resources lifted together. Shared memory that only its configuration holds down is not a resource
    to save: the driver sets up more of it where more blocks would fit."""
    held = tuple(limit for limit in limits if limit.binds and limit.most_blocks < blocks + 1)
    # Past the hardware's limit of blocks nothing is known of what is capped by it.
    dependent = {CLUSTERS, SHARED, BARRIERS} if any(limit.resource == BLOCKS for limit in held) else {CLUSTERS}
    rest = [limit for limit in limits if limit not in held and limit.resource not in dependent]
    then = min((limit.most_blocks for limit in rest), default=blocks)
    full = then * warps >= most_warps
    return Lift(
        resources=tuple(limit.resource for limit in held) or (SHARED,),
        blocks=then,
        occupancy_pct=min(100.0, 100 * then * warps / most_warps),
        then=() if full else tuple(limit.resource for limit in rest if limit.most_blocks == then),
    )


def _step(row: Row, resource: str, blocks: int, warps: int) -> OccupancyStep | None:
    """What lets so many blocks fit past one resource; None where that cannot be told or done."""
    if resource == REGISTERS:
        return _fewer_registers(row, blocks, warps)
    if resource == SHARED:
        return _less_shared(row, blocks)
    if resource == BLOCKS:
        return OccupancyStep(resource, f"blocks of more than {warps} warp{'s' if warps > 1 else ''}", blocks)
    if resource == BARRIERS:
        barriers = number(row, "barriers")
        return (
            None if barriers is None else OccupancyStep(resource, f"fewer than {barriers:.0f} barriers a block", blocks)
        )
    if resource == CLUSTERS:
        size = number(row, "cluster_size")
        return None if size is None else OccupancyStep(resource, f"clusters of fewer than {size:.0f} blocks", blocks)
    return None


def _fewer_registers(row: Row, blocks: int, warps: int) -> OccupancyStep | None:
    used, given = number(row, "registers_per_thread"), number(row, "registers_allocated_per_thread")
    total = number(row, "max_registers_per_sm")
    if used is None or given is None or total is None:
        return None
    for registers in range(int(given) - REGISTER_STEP, 0, -REGISTER_STEP):
        allowed = register_limit(registers, warps, total)
        if allowed >= blocks:
            change = f"at most {registers} registers a thread instead of {used:.0f}"
            return OccupancyStep(REGISTERS, change, allowed, float(registers))
    return None


def _less_shared(row: Row, blocks: int) -> OccupancyStep | None:
    most, allocated = number(row, "max_shared_bytes_per_sm"), number(row, "shared_allocated_bytes")
    own = [number(row, column) for column in ("shared_static_bytes", "shared_dynamic_bytes")]
    driver, configured = number(row, "shared_driver_bytes"), number(row, "shared_configured_bytes")
    if most is None or not allocated or driver is None or None in own:
        return None
    used = sum(value for value in own if value is not None)
    if shared_limit(allocated, most) >= blocks:
        now = "" if configured is None else f" instead of {configured:,.0f}"
        change = f"a multiprocessor set up with {blocks * allocated:,.0f} bytes of shared memory or more{now}"
        return OccupancyStep(SHARED, change, blocks, used)
    needed = most // blocks // SHARED_STEP_BYTES * SHARED_STEP_BYTES - driver
    if needed < 0:
        return None
    return OccupancyStep(
        SHARED,
        f"at most {needed:,.0f} bytes of shared memory a block instead of {used:,.0f}",
        shared_limit(needed + driver or 1.0, most),
        needed,
    )


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


# In words


def sentences(found: Occupancy) -> tuple[str, ...]:
    """What holds the occupancy, what would come next, and whether the grid is large enough for it to matter."""
    texts = []
    if found.blocks is not None and found.theoretical_pct is not None:
        texts.append(_held(found))
    if found.waves is not None:
        texts.append(_filled(found.waves))
    return tuple(texts)


def _held(found: Occupancy) -> str:
    head = f"{_blocks(found.blocks or 0)} on a multiprocessor, {_percent(found.theoretical_pct)}"
    lift = found.lift
    if lift is None:
        return f"{head}: no further block of {found.warps_per_block} warps has room among the warps"
    set_up = found.limit(SHARED)
    larger = set_up is not None and set_up.binds and set_up.most_blocks > set_up.blocks
    limiters = [f"{name} as it was set up" if larger and name == SHARED else name for name in found.limiters]
    if larger and lift.resources == (SHARED,):
        what = "With more of L1 set up as shared memory"
    else:
        what = f"Without the limit of {join_words(lift.resources)}"
    text = f"{head}, limited by {join_words(limiters)}. {what} {_blocks(lift.blocks)} would fit, "
    text += _percent(lift.occupancy_pct) + (f", then limited by {join_words(lift.then)}" if lift.then else "")
    if found.steps and len(found.steps) == len(lift.resources):
        fits = min(step.blocks for step in found.steps)
        what = "more warps" if BLOCKS in lift.resources else _blocks(fits)
        text += f". For {what}: {join_words([step.change for step in found.steps])}"
    return text


def _filled(waves: Waves) -> str:
    if not waves.full:
        idle = f"; {waves.idle_multiprocessors} multiprocessors have none" if waves.idle_multiprocessors else ""
        return (
            f"its grid has {waves.last_blocks:,} of the {waves.wave_blocks:,} blocks that fit at once{idle}: more room "
            "on a multiprocessor does nothing for this grid"
        )
    count = f"{waves.full} full wave{'s' if waves.full > 1 else ''}"
    if not waves.last_blocks:
        return f"{count} and no tail"
    return (
        f"{count}, then {waves.last_blocks:,} blocks where {waves.wave_blocks:,} fit: {waves.idle_share:.0%} of this "
        f"last wave is idle, and the tail costs at most {waves.loss_share or 0:.1%} of the time"
    )


def _blocks(count: float) -> str:
    return f"{count:.3g} block{'' if count == 1 else 's'}"


def _percent(value: float | None) -> str:
    return f"{value or 0:.4g}%"
