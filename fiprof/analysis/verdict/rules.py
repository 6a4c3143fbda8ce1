"""What binds a launch: the resources it uses, how evenly its multiprocessors work, and what the GPU waits for.

Everything is on one scale, percent of time. A resource used to r percent of its peak needs r percent of the launch's
time at the least, whatever else is done about it. In this order the first that holds is the verdict:

1. launch-bound: the GPU waits for at least ``WAITING`` of an iteration's time, so no faster kernel helps;
2. a resource at ``SATURATED`` or more binds;
3. concurrent: the kernel runs beside others for at least ``BESIDE`` of its time, and ncu measured it alone;
4. imbalanced: the multiprocessors are idle, on average, for ``IDLE`` of the time of the one that works longest;
5. a resource at ``BUSY`` or more binds;
6. latency-bound: none of these.

The runner-up is the verdict that the smallest change of one number would give; its margin is that change, in points.
Where it is another resource, or whether any is busy at all, and within ``NOISE``, there is no single limit, unless the
counters show a cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.thresholds import BESIDE, BUSY, CLOSE, ELSEWHERE, IDLE, NOISE, SATURATED, WAITING, ThresholdOrigin
from fiprof.analysis.verdict.causes import causes
from fiprof.analysis.verdict.model import MOST_USES, Bottleneck, Cause, Comparison, Kind, Part, Test, Verdict, compare
from fiprof.model import quantities
from fiprof.model.finding import Finding
from fiprof.model.floors import DramBasis, DramUse
from fiprof.model.formula import Names, Row, number
from fiprof.model.metrics import METRICS
from fiprof.model.quantities import L2_PARTS, Quantity, metric


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
    return (
        Finding(
            "hidden_l2_part",
            {"l2": whole, "shown": shown},
            words="ncu's L2 figure ({l2}) is of a part that its report does not show; lookups and "
            "transfers use L2 to {shown}, so it is not used here.",
        ),
    )


_USED = (Kind.COMPUTE, Kind.MEMORY)
_FIRST_NAMES = {metric.name: metric.ncu[0] for metric in METRICS}


def judge(
    row: Row,
    *,
    stalls: Sequence[Comparison] = (),
    waiting: Comparison | None = None,
    copying: Comparison | None = None,
    beside: Comparison | None = None,
    dram: DramUse | None = None,
    names: Names = _FIRST_NAMES.__getitem__,
) -> Verdict:
    """What binds a launch. Never fails for numbers; what was not collected is named in ``missing``.

    row: of ``launches``. stalls: each reason in percent of the warps' time, the largest first. waiting: percent of an
    iteration in which the GPU waits, of the launch's case. copying: percent of the GPU's busy time in which only copies
    ran, likewise. beside: percent of the kernel's time in which another ran.
    dram: DRAM's use, where more is known of it than in the row. names: ncu's names.
    """
    resources = measured(row, names, dram)
    idle = quantities.IDLE.traced(row, names)
    pool = _Pool(
        resources,
        None if idle is None else compare(quantities.IDLE, idle, IDLE),
        _imbalance(row, idle.value if idle else 0.0),
        waiting,
        beside,
        both_sides(row),
    )
    found = pool.first()
    why = causes(row, found, stalls, names)
    runner_up, margin = pool.runner_up(found, lambda other: not why or causes(row, other, stalls, names)[:1] != why[:1])
    if found is not None and not why and pool.undecided(found):
        found, runner_up, margin = Bottleneck(Kind.NO_SINGLE_LIMIT, None, resources[0].value), None, None
    return Verdict(
        kind=found.kind if found else Kind.UNKNOWN,
        part=found.part if found else None,
        evidence=(
            *_deciding(found, runner_up, resources, row, names),
            *_by_ncu(dram, found),
            *(stalls[:1] if found and found.kind is Kind.LATENCY and not _shown(why, stalls) else ()),
            *([pool.idle] if pool.idle and not pool.idle.reached else []),
            *([waiting] if waiting and not waiting.reached else []),
            *([copying] if copying and copying.reached else []),
        ),
        runner_up=runner_up,
        margin_points=margin,
        resources=resources,
        idle=idle,
        causes=why,
        missing=_missing(row, found),
        notes=hidden_l2_part(row, resources, names),
    )


def _imbalance(row: Row, idle: float) -> Part:
    """Why multiprocessors may be idle, for so many percent of the time, while another works: the tail where the part of
    the last wave that stays empty explains it."""
    waves = occupancy(row).waves
    blocks, multiprocessors = number(row, "blocks"), number(row, "multiprocessors")
    fewer = blocks is not None and multiprocessors is not None and blocks < multiprocessors
    if fewer or (waves is not None and waves.idle_multiprocessors):
        return Part.TOO_FEW_BLOCKS
    tail = 100 * (waves.loss_share or 0.0) if waves is not None else 0.0
    if tail >= max(IDLE.value, idle - CLOSE.value):
        return Part.TAIL
    return Part.UNEVEN_WORK


def _by(kind: Kind, number: Comparison, part: Part | None = None) -> Bottleneck:
    """What a number that is no resource's use shows to bind."""
    return Bottleneck(kind, part, number.value, number)


@dataclass(frozen=True)
class _Pool:
    """What there is to choose from."""

    resources: tuple[Bottleneck, ...]
    idle: Comparison | None
    imbalance: Part
    waiting: Comparison | None
    beside: Comparison | None
    known: bool
    """Whether both sides of the multiprocessors were measured."""

    def first(self, without: Kind | None = None) -> Bottleneck | None:
        """The first that holds in the module's order; None where there is not enough to tell.

        without: of LAUNCH, CONCURRENT and IMBALANCE the one that is left out.
        """
        if without is not Kind.LAUNCH and self.waiting and self.waiting.reached:
            return _by(Kind.LAUNCH, self.waiting)
        busiest = what_is_fed(self.resources)
        if busiest is not None and busiest.value >= SATURATED.value:
            return busiest
        if without is not Kind.CONCURRENT and self.beside and self.beside.reached:
            return _by(Kind.CONCURRENT, self.beside)
        if without is not Kind.IMBALANCE and self.idle and self.idle.reached:
            return self._imbalanced()
        if not self.known:
            return None
        if busiest is not None and busiest.value >= BUSY.value:
            return busiest
        return None if self.idle is None else self._latency()

    def _latency(self) -> Bottleneck:
        return Bottleneck(Kind.LATENCY, None, 100 - (self.resources[0].value if self.resources else 0.0))

    def _imbalanced(self) -> Bottleneck:
        assert self.idle is not None
        return _by(Kind.IMBALANCE, self.idle, self.imbalance)

    def runner_up(
        self, found: Bottleneck | None, differs: Callable[[Bottleneck], bool]
    ) -> tuple[Bottleneck | None, float | None]:
        """What the smallest change of one number would make of it, and that change in points.

        Negative where the runner-up is ahead and feeds what binds. differs: whether a verdict says something else: one
        with the same cause does not.
        """
        if found is None:
            return None, None
        top = self.resources[0] if self.resources else None
        if top is not None and found.kind in _USED and top.part != found.part:
            return top, found.value - top.value
        changes = [(other, margin) for other, margin in self._changes(found) if other and differs(other)]
        return min(changes, key=lambda change: change[1], default=(None, None))

    def _changes(self, found: Bottleneck) -> Iterator[tuple[Bottleneck | None, float]]:
        """Every verdict that one number may change this one into, with the change in points."""
        if found.kind is Kind.LAUNCH:
            yield self.first(without=Kind.LAUNCH), found.value - WAITING.value
            return
        if self.waiting:
            yield _by(Kind.LAUNCH, self.waiting), WAITING.value - self.waiting.value
        yield from self._by_use(found)
        if found.kind in _USED and found.value >= SATURATED.value:
            return
        if found.kind is Kind.CONCURRENT:
            yield self.first(without=Kind.CONCURRENT), found.value - BESIDE.value
            return
        if self.beside:
            yield _by(Kind.CONCURRENT, self.beside), BESIDE.value - self.beside.value
        if found.kind is Kind.IMBALANCE:
            yield self.first(without=Kind.IMBALANCE), found.value - IDLE.value
        elif self.idle:
            yield self._imbalanced(), IDLE.value - self.idle.value

    def _by_use(self, found: Bottleneck) -> Iterator[tuple[Bottleneck | None, float]]:
        """Those that the use of a resource would make."""
        busiest = what_is_fed(self.resources)
        if found.kind in (Kind.IMBALANCE, Kind.CONCURRENT):
            if busiest:
                yield busiest, SATURATED.value - busiest.value
            return
        if found.kind is Kind.LATENCY:
            if busiest:
                yield busiest, BUSY.value - busiest.value
            return
        second = self._second(found)
        if second is not None and second.value >= BUSY.value - NOISE.value:
            yield second, found.value - second.value
        below = self.beside if self.beside and self.beside.reached else self.idle
        if found.value >= SATURATED.value and below and below.reached:
            lower = _by(Kind.CONCURRENT, below) if below is self.beside else self._imbalanced()
            yield lower, found.value - SATURATED.value
        elif self.idle is not None:
            yield self._latency(), found.value - BUSY.value

    def _second(self, found: Bottleneck) -> Bottleneck | None:
        """The busiest resource that neither feeds the one found nor is fed by it."""
        rest = (item for item in self.resources if item.part != found.part)
        return next((item for item in rest if not feeds(item, found) and not feeds(found, item)), None)

    def undecided(self, found: Bottleneck) -> bool:
        """Whether the noise of the measurement decides between resources, or whether one is busy at all."""
        if found.kind not in (*_USED, Kind.LATENCY):
            return False
        among = (*_USED, Kind.LATENCY)
        return any(
            other is not None and other.kind in among and 0 <= margin < NOISE.value
            for other, margin in self._by_use(found)
        )


# The evidence


def _against(found: Bottleneck) -> Comparison:
    """A resource's use against the threshold that it has reached, or not."""
    use = found.comparison
    assert use is not None
    return compare(use.quantity, use.number, SATURATED if use.value >= SATURATED.value else BUSY, use.of)


def _deciding(
    found: Bottleneck | None, runner_up: Bottleneck | None, resources: Sequence[Bottleneck], row: Row, names: Names
) -> list[Comparison]:
    """What decides, and what would decide for the runner-up."""
    kind, busiest = found.kind if found else None, resources[0] if resources else None
    if kind in _USED:
        return [_against(item) for item in (found, runner_up) if item is not None and item.kind in _USED]
    if kind is Kind.NO_SINGLE_LIMIT:
        return [_against(item) for item in resources[:MOST_USES]]
    issuing = metric("issue_active_pct")
    issued = issuing.traced(row, names) if kind is Kind.LATENCY else None
    return [
        *([found.comparison] if found and found.comparison else []),
        *(_blocks(row, names) if kind is Kind.IMBALANCE else []),
        *([_against(busiest)] if busiest else []),
        *([Comparison(issuing, issued)] if issued else []),
    ]


def _by_ncu(dram: DramUse | None, found: Bottleneck | None) -> list[Comparison]:
    """ncu's figure for DRAM too, where another was taken for it."""
    if (
        dram is None
        or dram.by_ncu is None
        or dram.basis is DramBasis.NCU
        or found is None
        or found.part is not Part.DRAM
    ):
        return []
    return [Comparison(metric("dram_throughput_pct"), dram.by_ncu, of=Part.DRAM)]


def _shown(why: Sequence[Cause], stalls: Sequence[Comparison]) -> bool:
    """Whether the largest stall is the evidence of a cause already."""
    return any(stalls[0] in cause.evidence for cause in why) if stalls else False


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
