"""What binds a launch: the resources it uses, how evenly its multiprocessors work, and what the GPU waits for.

Everything is on one scale, percent of time. A resource used to r percent of its peak needs r percent of the launch's
time at the least, whatever else is done about it. In this order the first that holds is the verdict:

1. launch-bound: the GPU waits for at least ``WAITING`` of an iteration's time, so no faster kernel helps;
2. a resource at ``SATURATED`` or more binds;
3. imbalanced: the multiprocessors are idle, on average, for ``IDLE`` of the time of the one that works longest;
4. a resource at ``BUSY`` or more binds;
5. latency-bound: none of these.

The runner-up is what the verdict would be if that one were not there; its margin says how many points are between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.thresholds import BUSY, CLOSE, ELSEWHERE, IDLE, SATURATED, WAITING, ThresholdOrigin
from fiprof.analysis.verdict.model import Bottleneck, Comparison, Kind, Note, Part, Test, Verdict, compare
from fiprof.model import quantities
from fiprof.model.expressions import Names, Row, number
from fiprof.model.finding import Finding
from fiprof.model.metrics import METRICS
from fiprof.model.provenance import TracedNumber
from fiprof.model.quantities import metric
from fiprof.model.quantity import Quantity


@dataclass(frozen=True)
class Resource:
    """Something that a launch can use up."""

    part: Part
    kind: Kind
    columns: tuple[str, ...]
    """Of ``launches``, in percent of its peak over the elapsed time; the largest counts."""
    fed_by: tuple[Part, ...] = ()
    """Resources whose use is what this one's work needs: they are at their limit because this one is."""


_ISSUED = (Part.ISSUE_SLOTS,)

RESOURCES: tuple[Resource, ...] = (
    Resource(Part.TENSOR_CORES, Kind.COMPUTE, ("tensor_active_pct",), (*_ISSUED, Part.SHARED_MEMORY, Part.L1_DATA)),
    Resource(Part.FMA_PIPE, Kind.COMPUTE, ("fma_pct",), _ISSUED),
    Resource(Part.ALU_PIPE, Kind.COMPUTE, ("alu_pct",), _ISSUED),
    Resource(Part.XU_PIPE, Kind.COMPUTE, ("xu_pct",), _ISSUED),
    Resource(Part.FP64_PIPE, Kind.COMPUTE, ("fp64_pct",), _ISSUED),
    Resource(Part.LSU_PIPE, Kind.COMPUTE, ("lsu_pct",), _ISSUED),
    Resource(Part.ISSUE_SLOTS, Kind.COMPUTE, ("issue_slot_busy_pct",)),
    Resource(Part.DRAM, Kind.MEMORY, ("dram_throughput_pct",)),
    # Not l2_throughput_pct: see hidden_l2_part.
    Resource(Part.L2, Kind.MEMORY, ("l2_to_sm_pct", "sm_to_l2_pct", "l2_sectors_pct", "l2_tags_pct")),
    Resource(Part.L1_DATA, Kind.MEMORY, ("l1_data_pct",)),
)

_SIDES: tuple[tuple[Part, Kind, str], ...] = (
    (Part.OTHER_COMPUTE, Kind.COMPUTE, "sm_throughput_pct"),
    (Part.OTHER_MEMORY, Kind.MEMORY, "memory_throughput_pct"),
)
"""ncu's maximum over all parts of a side, to find a part that has no column."""

_USED = (Kind.COMPUTE, Kind.MEMORY)
_FIRST_NAMES = {metric.name: metric.ncu[0] for metric in METRICS}


def judge(
    row: Row,
    *,
    stall: Comparison | None = None,
    waiting: Comparison | None = None,
    names: Names = _FIRST_NAMES.__getitem__,
) -> Verdict:
    """What binds a launch. Never fails for numbers; what was not collected is named in ``missing``.

    row: of ``launches``. stall: the largest reason in percent of the warps' time. waiting: percent of an iteration in
    which the GPU waits, of the launch's case. names: ncu's names.
    """
    resources = _resources(row, names)
    idle = quantities.IDLE.traced(row, names)
    pool = _Pool(resources, idle, _imbalance(row), waiting, _known(row))
    found = pool.first()
    runner_up = pool.without(found).first() if found else None
    busiest = resources[0] if resources else None
    # Without latency there is nothing below but the busiest resource.
    if found and found.kind is Kind.LATENCY and resources:
        runner_up = busiest
    return Verdict(
        kind=found.kind if found else Kind.UNKNOWN,
        part=found.part if found else None,
        evidence=(
            *_deciding(found, runner_up, busiest, row, names),
            *([stall] if stall and found and found.kind is Kind.LATENCY else []),
            *([compare(quantities.IDLE, idle, IDLE)] if idle and idle.value < IDLE.value else []),
            *([waiting] if waiting and waiting.value < WAITING.value else []),
        ),
        runner_up=runner_up,
        margin_points=_margin(found, runner_up) if found and runner_up else None,
        resources=resources,
        idle=idle,
        missing=_missing(row, found),
        notes=hidden_l2_part(row, resources, names),
    )


def _resources(row: Row, names: Names) -> tuple[Bottleneck, ...]:
    """Every resource that was measured, the busiest first."""
    found = []
    for resource in RESOURCES:
        part = _l1_part(row) if resource.part is Part.L1_DATA else resource.part
        uses = [use for column in resource.columns if (use := _use(row, names, column, part))]
        if uses:
            most = max(uses, key=lambda use: use.value)
            found.append(Bottleneck(resource.kind, part, most.value, most))
    for part, kind, column in _SIDES:
        side = _use(row, names, column, part)
        known = max((item.value for item in found if item.kind is kind), default=0.0)
        if side and side.value > known + ELSEWHERE.value:
            found.append(Bottleneck(kind, part, side.value, side))
    return tuple(sorted(found, key=lambda item: -item.value))


def _use(row: Row, names: Names, column: str, part: Part) -> Comparison | None:
    """The use of a resource, held against nothing yet."""
    quantity = metric(column)
    use = quantity.traced(row, names, spec=".1f")
    return None if use is None else Comparison(quantity, use, of=part)


def _l1_part(row: Row) -> Part:
    """What mostly passes the data stage that L1 and shared memory have in common."""
    shared, everything = number(row, "shared_data_pct"), number(row, "l1_data_pct")
    if shared is None or everything is None:
        return Part.SHARED_MEMORY_OR_L1
    return Part.SHARED_MEMORY if shared >= everything / 2 else Part.L1_DATA


def _imbalance(row: Row) -> Part:
    """Why multiprocessors may be idle while another works."""
    waves = occupancy(row).waves
    blocks, multiprocessors = number(row, "blocks"), number(row, "multiprocessors")
    fewer = blocks is not None and multiprocessors is not None and blocks < multiprocessors
    if fewer or (waves is not None and waves.idle_multiprocessors):
        return Part.TOO_FEW_BLOCKS
    if waves is not None and waves.loss_share is not None and 100 * waves.loss_share >= IDLE.value:
        return Part.TAIL
    return Part.UNEVEN_WORK


def _known(row: Row) -> bool:
    """Whether both sides were measured well enough to say that nothing else is busier."""
    compute = any(number(row, column) is not None for column in ("sm_throughput_pct", "issue_slot_busy_pct"))
    parts = [number(row, column) for column in ("dram_throughput_pct", "l1_data_pct")]
    return compute and (number(row, "memory_throughput_pct") is not None or None not in parts)


@dataclass(frozen=True)
class _Pool:
    """What is left to choose from."""

    resources: tuple[Bottleneck, ...]
    idle: TracedNumber | None
    imbalance: Part
    waiting: Comparison | None
    known: bool
    latency: bool = True

    def first(self) -> Bottleneck | None:
        """The first that holds in the module's order; None where there is not enough to tell."""
        if self.waiting is not None and self.waiting.value >= WAITING.value:
            return Bottleneck(Kind.LAUNCH, None, self.waiting.value, self.waiting)
        busiest = _what_is_fed(self.resources)
        if busiest is not None and busiest.value >= SATURATED.value:
            return busiest
        if self.idle is not None and self.idle.value >= IDLE.value:
            idle = compare(quantities.IDLE, self.idle, IDLE)
            return Bottleneck(Kind.IMBALANCE, self.imbalance, idle.value, idle)
        if not self.known:
            return None
        if busiest is not None and busiest.value >= BUSY.value:
            return busiest
        if self.idle is None or not self.latency:
            return None
        return Bottleneck(Kind.LATENCY, None, 100 - (busiest.value if busiest else 0.0))

    def without(self, found: Bottleneck) -> _Pool:
        if found.kind in _USED:
            return replace(self, resources=tuple(item for item in self.resources if item.part != found.part))
        if found.kind is Kind.IMBALANCE and self.idle:
            return replace(self, idle=replace(self.idle, value=0.0))
        if found.kind is Kind.LAUNCH:
            return replace(self, waiting=None)
        return replace(self, latency=False)


def _what_is_fed(resources: Sequence[Bottleneck]) -> Bottleneck | None:
    """The busiest resource; but where it feeds another one that is at its limit too and close, that one."""
    if not resources:
        return None
    top = resources[0]
    for item in resources[1:]:
        feeders = next((resource.fed_by for resource in RESOURCES if resource.part == item.part), ())
        part = Part.L1_DATA if top.part is Part.SHARED_MEMORY_OR_L1 else top.part
        if part in feeders and item.value >= max(SATURATED.value, top.value - CLOSE.value):
            return item
    return top


def _margin(found: Bottleneck, runner_up: Bottleneck) -> float:
    """Points until the runner-up would be the verdict."""
    if found.kind is Kind.LAUNCH:
        return found.value - WAITING.value
    if found.kind is Kind.IMBALANCE:
        until_not = found.value - IDLE.value
        return min(until_not, SATURATED.value - runner_up.value) if runner_up.kind in _USED else until_not
    if found.kind is Kind.LATENCY:
        return BUSY.value - runner_up.value
    if runner_up.kind in _USED:
        return found.value - runner_up.value
    if runner_up.kind is Kind.IMBALANCE:
        return max(found.value - SATURATED.value, 0.0)
    return found.value - BUSY.value


# The evidence


def _against(found: Bottleneck) -> Comparison:
    """A resource's use against the threshold that it has reached, or not."""
    use = found.comparison
    assert use is not None
    return compare(use.quantity, use.number, SATURATED if use.value >= SATURATED.value else BUSY, use.of)


def _deciding(
    found: Bottleneck | None, runner_up: Bottleneck | None, busiest: Bottleneck | None, row: Row, names: Names
) -> list[Comparison]:
    """What decides, and what would decide for the runner-up."""
    kind = found.kind if found else None
    if kind in _USED:
        return [_against(item) for item in (found, runner_up) if item is not None and item.kind in _USED]
    issuing = metric("issue_active_pct")
    issued = issuing.traced(row, names) if kind is Kind.LATENCY else None
    return [
        *([found.comparison] if found and found.comparison else []),
        *(_blocks(row, names) if kind is Kind.IMBALANCE else []),
        *([_against(busiest)] if busiest else []),
        *([Comparison(issuing, issued)] if issued else []),
    ]


def _blocks(row: Row, names: Names) -> list[Comparison]:
    """The blocks against the multiprocessors, where they are fewer."""
    quantity: Quantity = metric("blocks")
    blocks, multiprocessors = quantity.traced(row, names), number(row, "multiprocessors")
    if blocks is None or multiprocessors is None or blocks.value >= multiprocessors:
        return []
    return [Comparison(quantity, blocks, Test.BELOW, multiprocessors, ThresholdOrigin.MULTIPROCESSORS)]


_WANTED = ("dram_throughput_pct", "l1_data_pct", "l2_to_sm_pct", "issue_slot_busy_pct", "tensor_active_pct", "fma_pct")


def _missing(row: Row, found: Bottleneck | None) -> tuple[str, ...]:
    """Columns without which the verdict is less sure, or there is none."""
    wanted = [*_WANTED, "sm_active_cycles", "sm_active_cycles_max"]
    if found is not None and found.part is Part.SHARED_MEMORY_OR_L1:
        wanted.append("shared_data_pct")
    return tuple(column for column in wanted if number(row, column) is None)


def hidden_l2_part(row: Row, resources: Sequence[Bottleneck], names: Names) -> tuple[Finding, ...]:
    """A note where ncu's figure for L2 is of a part that its report does not show.

    ``lts__throughput`` is a maximum over parts. On an H200 a kernel that streams from DRAM reads 70 to 90% there while
    lookups, tags and both directions to the multiprocessors stay below 50%, and ncu's own memory throughput leaves
    that part out: what it is cannot be told from the report, so it is no evidence. It is there whenever much crosses
    from one half of L2 to the other (``lts__t_sectors_srcunit_ltcfabric``), which DRAM traffic does by itself.
    """
    whole = metric("l2_throughput_pct").traced(row, names)
    shown = next((item.comparison.number for item in resources if item.part is Part.L2 and item.comparison), None)
    memory = number(row, "memory_throughput_pct") or 0.0
    if whole is None or shown is None or whole.value < BUSY.value:
        return ()
    if whole.value <= max(shown.value, memory) + ELSEWHERE.value:
        return ()
    return (Finding(Note.HIDDEN_L2_PART, {"l2": whole, "shown": shown}),)
