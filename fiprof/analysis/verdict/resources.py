"""What a launch can use up, and how much of each it uses: percent of time at the least, whatever else is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis.thresholds import BUSY, CLOSE, ELSEWHERE, SATURATED
from fiprof.analysis.verdict.model import Bottleneck, Comparison, Kind, Note, Part
from fiprof.model.finding import Finding
from fiprof.model.floors import DramUse
from fiprof.model.formula import Names, Row, number
from fiprof.model.quantities import L2_PARTS, metric


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
    Resource(Part.ADU_PIPE, Kind.COMPUTE, ("adu_pct",), _ISSUED),
    Resource(Part.CBU_PIPE, Kind.COMPUTE, ("cbu_pct",), _ISSUED),
    Resource(Part.TEX_PIPE, Kind.COMPUTE, ("tex_pct",), _ISSUED),
    Resource(Part.UNIFORM_PIPE, Kind.COMPUTE, ("uniform_pct",), _ISSUED),
    Resource(Part.ISSUE_SLOTS, Kind.COMPUTE, ("issue_slot_busy_pct",)),
    Resource(Part.DRAM, Kind.MEMORY, ("dram_throughput_pct",)),
    Resource(Part.L2, Kind.MEMORY, L2_PARTS),
    Resource(Part.L1_DATA, Kind.MEMORY, ("l1_data_pct",), (Part.LSU_PIPE,)),
    Resource(Part.CONSTANT_CACHE, Kind.MEMORY, ("constant_cache_pct",), (Part.ADU_PIPE,)),
)

_SIDES: tuple[tuple[Part, Kind, str], ...] = (
    (Part.OTHER_COMPUTE, Kind.COMPUTE, "sm_throughput_pct"),
    (Part.OTHER_MEMORY, Kind.MEMORY, "memory_throughput_pct"),
)
"""ncu's maximum over all parts of a side, to find a part that has no column."""


def measured(row: Row, names: Names, dram: DramUse | None = None) -> tuple[Bottleneck, ...]:
    """Every resource that was measured, the busiest first.

    dram: DRAM's use where more is known of it than ncu's one cold launch. Of a side on which a unit is saturated no
    other part is looked for: fp64_chain at 93.9% of the FP64 pipe reads 96.8% of a port that the pipe shares.
    """
    found = []
    for resource in RESOURCES:
        part = _l1_part(row) if resource.part is Part.L1_DATA else resource.part
        uses = [use for column in resource.columns if (use := _use(row, names, column, part))]
        if part is Part.DRAM and dram is not None:
            uses = [Comparison(dram.quantity, dram.number, of=part)]
        if uses:
            most = max(uses, key=lambda use: use.value)
            found.append(Bottleneck(resource.kind, part, most.value, most))
    for part, kind, column in _SIDES:
        side = _use(row, names, column, part)
        known = max((item.value for item in found if item.kind is kind), default=0.0)
        if side and known < SATURATED.value and side.value > known + ELSEWHERE.value:
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


def both_sides(row: Row) -> bool:
    """Whether both sides were measured well enough to say that nothing else is busier."""
    compute = any(number(row, column) is not None for column in ("sm_throughput_pct", "issue_slot_busy_pct"))
    parts = [number(row, column) for column in ("dram_throughput_pct", "l1_data_pct")]
    return compute and (number(row, "memory_throughput_pct") is not None or None not in parts)


def feeds(item: Bottleneck, other: Bottleneck) -> bool:
    """Whether a resource's use is what the work of the other one needs."""
    part = _stage(other.part)
    return _stage(item.part) in next((resource.fed_by for resource in RESOURCES if resource.part == part), ())


def _stage(part: Part | None) -> Part | None:
    """A part as RESOURCES names it."""
    return Part.L1_DATA if part in (Part.SHARED_MEMORY, Part.SHARED_MEMORY_OR_L1) else part


def what_is_fed(resources: Sequence[Bottleneck]) -> Bottleneck | None:
    """The busiest resource; but where it feeds another one that is at its limit too and close, that one."""
    if not resources:
        return None
    top = resources[0]
    for item in resources[1:]:
        if feeds(top, item) and item.value >= max(SATURATED.value, top.value - CLOSE.value):
            return item
    return top


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
