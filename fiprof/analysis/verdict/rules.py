"""What limits a launch, and why: the resources it uses, how evenly its multiprocessors work, what the GPU waits for.

Everything is on one scale, percent of time: a resource used to r percent of its peak needs at least r percent of the
launch's time. In this order the first that holds is the verdict:

1. launch-bound: the GPU waits for at least ``WAITING`` of an iteration's time, so no faster kernel helps;
2. a resource at ``SATURATED`` or more limits;
3. concurrent: the kernel runs beside others for at least ``BESIDE`` of its time, and ncu measured it alone;
4. imbalanced: the multiprocessors are idle, on average, for ``IDLE`` of the time of the one that works longest, and
   warps do not wait for each other for longer than that;
5. a resource at ``BUSY`` or more limits; where warps spend ``MOSTLY`` of their time in one stall reason, only a
   resource for which waiting shows as that stall;
6. latency-bound: none of these.

The runner-up is the verdict that the smallest change of one number would give; its margin is that change, in points.
Within ``NOISE`` both are named, as a pair, so that a small change of a number never replaces the whole verdict. Pairs
are also: a tail, and DRAM or L2 where it is saturated before the tail; and a memory that is not saturated, and latency,
where warps mostly wait for loads that are not known to queue, or in a stall that waiting for that memory does not show
as.

A cause is a pattern that the use of the hardware alone does not show. Each has a kernel that is made to have it
(tests/trouble_kernels.py), recorded on a GPU. A cause has to bear on the limit: local memory is not a cause where the
tensor cores are saturated.
"""

import bisect
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fiprof.analysis import thresholds
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.thresholds import BUSY, CLOSE, ELSEWHERE, MOSTLY, SATURATED, Threshold, ThresholdOrigin
from fiprof.analysis.verdict.model import Bottleneck, Cause, CauseId, Comparison, Kind, Part, Verdict
from fiprof.model import quantities
from fiprof.model.case_quantities import DRAM_FLOOR, DramUse
from fiprof.model.finding import Finding, finding
from fiprof.model.quantities import METRICS, Formula, Names, Quantity, Row, number, quantity
from fiprof.text import csv_rows

_USED = (Kind.COMPUTE, Kind.MEMORY)
_FIRST_NAMES = {metric.name: metric.ncu[0] for metric in METRICS}


class LaunchResource(NamedTuple):
    """A resource that may limit a launch, a row of ``resources.csv``."""

    kind: Kind
    columns: tuple[str, ...]  # columns of ``launches`` in percent of its peak over the elapsed time; the largest counts
    fed_by: tuple[Part, ...]  # resources that are busy only because this one's work needs them
    further: bool  # whether it is named only if busier, by ``ELSEWHERE``, than all rows before it of its kind
    stalls: frozenset[str]  # stall reasons that waiting for it shows as


_LOADS_NS = Formula(
    "multiprocessors * max_warps_per_sm * achieved_occupancy_pct / 100 * global_loads_sectors_per_request * 32"
    " / dram_peak * 1e9"
)
"""Time that DRAM needs at its peak rate for one load of every resident warp, ns."""
PASSES = (Part.L1_DATA, Part.SHARED_MEMORY, Part.SHARED_MEMORY_OR_L1)
"""Names of the data stage that L1 and shared memory share, by what mostly passes through it."""
_OF_ALL = (Part.DRAM, Part.L2, Part.L2_ATOMICS)  # what all multiprocessors share

RESOURCES = {
    Part(part): LaunchResource(
        Kind(row["kind"]),
        tuple(row["columns"].split()),
        tuple(map(Part, row["fed_by"].split())),
        bool(row["further"]),
        frozenset(row["stalls"].split()),
    )
    for part, row in csv_rows(Path(__file__).with_name("resources.csv")).items()
}
"""The resources whose maximum ncu's compute and memory throughputs are; without ``l2_throughput_pct``, which is of a
part of L2 that ncu's report does not show (see ``hidden_l2_part``)."""


def measured(row: Row, names: Names, dram: DramUse | None = None) -> tuple[Bottleneck, ...]:
    """Every resource that was measured, the busiest first. dram: DRAM's use, where more than ncu's counter is known."""
    bottlenecks: list[Bottleneck] = []
    for part, resource in RESOURCES.items():
        if part is Part.L1_DATA:
            shared, everything = number(row, "shared_data_pct"), number(row, "l1_data_pct")
            if shared is None or everything is None:
                part = Part.SHARED_MEMORY_OR_L1
            elif shared >= everything / 2:
                part = Part.SHARED_MEMORY
        uses = {value: quantity(each) for each in resource.columns[::-1] if (value := number(row, each)) is not None}
        use = None
        if part is Part.DRAM and dram is not None:
            use = Comparison(dram.quantity, dram.number, of=part)
        elif uses and (traced := (most := uses[max(uses)]).traced(row, names, spec=".1f")):
            use = Comparison(most, traced, of=part)
        if use:
            busiest_before = max((item.value for item in bottlenecks if item.kind is resource.kind), default=0.0)
            if not resource.further or use.value > busiest_before * ELSEWHERE:
                bottlenecks.append(Bottleneck(resource.kind, part, use.value, use))
    return tuple(sorted(bottlenecks, key=lambda item: -item.value))


def feeds(item: Bottleneck, other: Bottleneck) -> bool:
    """Whether ``item`` is busy only because the work of ``other`` needs it."""
    part = Part.L1_DATA if other.part in PASSES else other.part
    return part is not None and part in RESOURCES and item.part in RESOURCES[part].fed_by


class _Limits(NamedTuple):
    """What may limit a launch, and in which order."""

    resources: tuple[Bottleneck, ...]
    waiting: Bottleneck | None
    beside: Bottleneck | None
    imbalance: Bottleneck | None
    elsewhere: Bottleneck | None
    """The stall in which warps spend most time, where waiting for the busiest resource does not show as that stall."""
    both_sides: bool  # whether compute and memory were measured well enough to say that nothing else is busier

    @property
    def busiest(self) -> Bottleneck | None:
        """The busiest resource; or the one that it feeds, if that is as busy, or saturated too and close."""
        if not self.resources:
            return None
        top = self.resources[0]
        least = min(max(SATURATED, top.value - CLOSE), top.value / ELSEWHERE)
        return next((item for item in self.resources[1:] if item.value >= least and feeds(top, item)), top)

    @property
    def waits_longer_than_it_idles(self) -> bool:
        """Whether warps wait for each other for more of the launch's time than multiprocessors are idle."""
        idle, stall = self.imbalance, self.elsewhere
        if idle is None or stall is None or stall.comparison is None or stall.comparison.of not in _EACH_OTHER:
            return False
        return stall.value >= MOSTLY and stall.value * (100 - idle.value) > 100 * idle.value

    @property
    def latency(self) -> Bottleneck | None:
        """Latency as the limit; None where it is not known how evenly the multiprocessors work."""
        left = 100 - (self.resources[0].value if self.resources else 0.0)
        return Bottleneck(Kind.LATENCY, None, left) if self.imbalance else None

    @property
    def first(self) -> Bottleneck | None:
        """The first limit that holds in the module's order; None where too little was measured to say."""
        if self.waiting and self.waiting.value >= thresholds.WAITING:
            return self.waiting
        if (busiest := self.busiest) and busiest.value >= SATURATED:
            return busiest
        if self.beside and self.beside.value >= thresholds.BESIDE:
            return self.beside
        if self.imbalance and self.imbalance.value >= thresholds.IDLE and not self.waits_longer_than_it_idles:
            return self.imbalance
        if not self.both_sides:
            return None
        busy = [each for each in (busiest, *self.resources) if each and each.value >= BUSY]
        if self.elsewhere and self.elsewhere.comparison and self.elsewhere.value >= MOSTLY:
            busy = [each for each in busy if self.elsewhere.comparison.of in _shows_as(each)]
        return busy[0] if busy else self.latency

    def others(self) -> list[tuple[Bottleneck, float]]:
        """Every other verdict that a change of one number would give, with the least such change (points), by that."""
        all_limits = (*self.resources, self.waiting, self.beside, self.imbalance, self.latency)
        limits = {each[:2]: each for each in all_limits if each}
        least_changes: dict[tuple[Kind, Part | None], float] = {}
        if (now := self.first) is None:
            return []

        def try_change(to: _Limits, points: float) -> None:
            if (first := to.first) and first[:2] != now[:2]:
                least_changes[first[:2]] = min(points, least_changes.get(first[:2], points))

        least = {"waiting": thresholds.WAITING, "beside": thresholds.BESIDE}
        least |= {"imbalance": thresholds.IDLE, "elsewhere": MOSTLY}
        for field, threshold in least.items():
            if limit := getattr(self, field):
                for value in (threshold - _LITTLE, threshold):
                    try_change(self._replace(**{field: limit._replace(value=value)}), abs(limit.value - threshold))
        uses = self.resources[:_MOST_CHANGED]
        for item in uses:
            rest = tuple(each for each in self.resources if each is not item)
            ranks = [-each.value for each in rest]
            values = (each.value for each in uses if each is not item)
            near = ((value, value - CLOSE, value + CLOSE, value / ELSEWHERE, value * ELSEWHERE) for value in values)
            for at in {BUSY, SATURATED, *itertools.chain.from_iterable(near)}:
                for value in (at - _LITTLE, at + _LITTLE):
                    # Only values at or beyond the threshold, seen from the measured one.
                    if 0 <= value <= 100 and abs(value - item.value) >= abs(at - item.value):
                        place, moved = bisect.bisect(ranks, -value), Bottleneck(*item[:2], value, item.comparison)
                        try_change(_Limits((*rest[:place], moved, *rest[place:]), *self[1:]), abs(item.value - at))
        return sorted(((limits[key], points) for key, points in least_changes.items()), key=lambda each: each[1])


_EACH_OTHER = ("barrier", "membar", "sleeping")  # stalls in which warps wait for other warps
_MOST_CHANGED = 4  # the busiest resources, whose use is changed to look for other verdicts
_LITTLE = 1e-9  # points: a value just above or below a threshold


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
    """What limits a launch. Missing numbers are no error: ``missing`` of the verdict names them.

    row: of ``launches``. stalls: each reason in percent of the warps' time, the largest first. waiting: percent of an
    iteration of the launch's case in which the GPU waits. copying: percent of the GPU's busy time in which only copies
    ran, likewise. beside: percent of the kernel's time in which another ran.
    dram: DRAM's use, where more is known of it than in the row. names: gives ncu's name of a column.
    """
    resources, idle = measured(row, names, dram), quantities.IDLE.traced(row, names)
    top = stalls[0] if stalls else None
    if top and top.of == "barrier":
        # Barriers are this pipe's work: it is busy because warps wait for each other.
        resources = tuple(each for each in resources if each.part is not Part.ADU_PIPE)
    imbalance = None if idle is None else Comparison(quantities.IDLE, idle, thresholds.IDLE)
    compute = any(number(row, column) is not None for column in ("sm_throughput_pct", "issue_slot_busy_pct"))
    memory = [number(row, column) for column in ("dram_throughput_pct", "l1_data_pct")]
    limits = _Limits(
        resources,
        Bottleneck(Kind.LAUNCH, None, waiting.value, waiting) if waiting else None,
        Bottleneck(Kind.CONCURRENT, None, beside.value, beside) if beside else None,
        Bottleneck(Kind.IMBALANCE, _imbalance(row, imbalance.value), imbalance.value, imbalance) if imbalance else None,
        None,
        compute and (number(row, "memory_throughput_pct") is not None or None not in memory),
    )
    busiest = limits.busiest
    if (
        top
        and busiest
        and limits.latency
        and top.of not in _shows_as(busiest)
        and (top.of in _EACH_OTHER or not causes(row, busiest, stalls, names))
    ):
        limits = limits._replace(elsewhere=Bottleneck(Kind.LATENCY, None, top.value, top))
    first, runner_up, margin, pair = limits.first, None, None, False
    why = causes(row, first, stalls, names)
    if first is not None:
        runner_up, margin, pair = _runner_up(limits, first, why, stalls, row, names)
    if pair:
        named = {cause.id for cause in why}
        why += tuple(cause for cause in causes(row, runner_up, stalls, names) if cause.id not in named)
    shown = any(top in cause.evidence for cause in why)
    by_ncu = dram.by_ncu if dram and dram.quantity is DRAM_FLOOR and first and first.part is Part.DRAM else None
    needed = (
        "dram_throughput_pct", "l1_data_pct", "l2_to_sm_pct", "issue_slot_busy_pct", "tensor_active_pct", "fma_pct",
        "sm_active_cycles", "sm_active_cycles_max",
        *(["shared_data_pct"] if first and first.part is Part.SHARED_MEMORY_OR_L1 else []),
    )  # fmt: skip
    return Verdict(
        limits=tuple(each for each in (first, runner_up if pair else None) if each),
        evidence=(
            *_deciding(first, runner_up, resources, row, names),
            *([Comparison(quantity("dram_throughput_pct"), by_ncu, of=Part.DRAM)] if by_ncu else []),
            *(stalls[:1] if first and first.kind is Kind.LATENCY and not shown else ()),
            *([imbalance] if imbalance and not imbalance.reached else []),
            *([waiting] if waiting and not waiting.reached else []),
            *([copying] if copying and copying.reached else []),
        ),
        runner_up=runner_up,
        margin_points=margin,
        resources=resources,
        idle=idle,
        causes=why,
        missing=tuple(column for column in needed if number(row, column) is None),
        notes=hidden_l2_part(row, resources, names),
    )


def _runner_up(
    limits: _Limits, first: Bottleneck, why: tuple[Cause, ...], stalls: Sequence[Comparison], row: Row, names: Names
) -> tuple[Bottleneck | None, float | None, bool]:
    """The runner-up, its margin in points, and whether it is a pair with the first verdict. why: the first's causes."""
    others, busiest, top = limits.others(), limits.busiest, stalls[0] if stalls else None
    for_loads = bool(top and top.of == "long_scoreboard" and top.value >= MOSTLY and not queued(row, stalls))
    waits = for_loads or (limits.elsewhere is not None and limits.elsewhere.value >= thresholds.DOMINANT_STALL)
    # A second resource says more than that none is saturated.
    near = [each for each in others if each[1] < thresholds.NOISE]
    near.sort(key=lambda each: each[0].kind is Kind.LATENCY)
    if first.kind is Kind.LATENCY and busiest and busiest.value >= BUSY:
        # A resource is busy, and the warps wait for something else.
        near = [each for each in others if each[0][:2] == busiest[:2]]
    elif first.part is Part.TAIL and busiest and busiest.part in _OF_ALL:
        # DRAM or L2 is saturated before the tail, while all multiprocessors work.
        if 100 * busiest.value >= SATURATED * (100 - first.value):
            near = [each for each in others if each[0] is busiest]
    elif waits and limits.latency and first.kind is Kind.MEMORY and first.value < SATURATED and not why:
        near = [(limits.latency, first.value - BUSY)]
    if near:
        return (*near[0], True)
    if first.kind in _USED and (ahead := limits.resources[0]).part != first.part:
        # A busier resource, which feeds the limit.
        return ahead, first.value - ahead.value, False
    for other, points in others:
        # A resource that feeds the limit or that it feeds, or a verdict with the same cause, adds nothing.
        same = why and causes(row, other, stalls, names)[:1] == why[:1]
        if not same and not feeds(other, first) and not feeds(first, other):
            return other, points, False
    return None, None, False


def loads_behind_barriers(row: Row, stalls: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """The stalls, the largest first, but with loads before a barrier where the other warps of the block, for which it
    waits, mostly wait for loads, and DRAM is at half of ``BUSY`` or more: then more bytes in flight shorten both."""
    if len(stalls) > 1 and [each.of for each in stalls[:2]] == ["barrier", "long_scoreboard"]:
        barrier, loads = stalls[:2]
        mostly = loads.value >= MOSTLY / 100 * (100 - barrier.value)
        if mostly and (number(row, "dram_throughput_pct") or 0) >= BUSY / 2:
            return loads, barrier, *stalls[2:]
    return tuple(stalls)


def queued(row: Row, stalls: Sequence[Comparison]) -> bool:
    """Whether loads queue: one load of each warp that waits for loads is QUEUED_LOADS or more of DRAM's time."""
    waiting = next((each.value for each in stalls if each.of == "long_scoreboard"), 0.0)
    return waiting / 100 * (_LOADS_NS.value(row) or 0.0) >= thresholds.QUEUED_LOADS


def _imbalance(row: Row, idle: float) -> Part:
    """Why multiprocessors are idle, for ``idle`` percent of the time, while another works: too few blocks, where the
    multiprocessors without a block cost more than uneven work of the others; the tail, where the empty part of the last
    wave explains it; else uneven work."""
    waves = occupancy(row).waves
    blocks, multiprocessors = number(row, "blocks"), number(row, "multiprocessors")
    if blocks and multiprocessors and blocks < multiprocessors:
        few = blocks / multiprocessors
        return Part.TOO_FEW_BLOCKS if few <= (1 - idle / 100) / few else Part.UNEVEN_WORK
    tail = 100 * (waves.loss_share or 0.0) if waves is not None else 0.0
    return Part.TAIL if tail >= max(thresholds.IDLE, idle - CLOSE) else Part.UNEVEN_WORK


def _deciding(
    first: Bottleneck | None, runner_up: Bottleneck | None, resources: Sequence[Bottleneck], row: Row, names: Names
) -> list[Comparison]:
    """The numbers that decide for the verdict and for the runner-up; a resource's use with the threshold it reaches."""

    def against(*those: Bottleneck | None) -> list[Comparison]:
        return [
            Comparison(use.quantity, use.number, SATURATED if use.value >= SATURATED else BUSY, use.of)
            for each in those
            if each is not None and (use := each.comparison)
        ]

    if first and first.kind in _USED:
        return against(first, runner_up if runner_up and runner_up.kind in _USED else None)
    shown = [first.comparison] if first and first.comparison else []
    blocks, multiprocessors = quantity("blocks").traced(row, names), number(row, "multiprocessors")
    if first and first.part is Part.TOO_FEW_BLOCKS and blocks and multiprocessors and blocks.value < multiprocessors:
        limit = Threshold(multiprocessors, "", ThresholdOrigin.MULTIPROCESSORS)
        shown.append(Comparison(quantity("blocks"), blocks, limit))
    shown += against(*resources[:1])
    issued = quantity("issue_active_pct").traced(row, names)
    if first and first.kind is Kind.LATENCY and issued:
        shown.append(Comparison(quantity("issue_active_pct"), issued))
    return shown


def hidden_l2_part(row: Row, resources: Sequence[Bottleneck], names: Names) -> tuple[Finding, ...]:
    """A note where ncu's figure for L2 is of a part that its report does not show.

    ``lts__throughput`` is a maximum over parts. For a kernel that streams from DRAM on an H200 it is 70 to 90% while
    lookups, tags and both directions to the multiprocessors stay below 50%, and ncu's own memory throughput leaves that
    part out. The report does not say which part it is, so it is no evidence. It is high whenever much crosses from one
    half of L2 to the other (``lts__t_sectors_srcunit_ltcfabric``), as DRAM traffic does.
    """
    whole = quantity("l2_throughput_pct").traced(row, names)
    shown = next((item.comparison.number for item in resources if item.part is Part.L2 and item.comparison), None)
    memory = number(row, "memory_throughput_pct") or 0.0
    if not whole or not shown or whole.value < BUSY or whole.value <= max(shown.value, memory) * ELSEWHERE:
        return ()
    words = "ncu's L2 figure ({l2}) is of a part that its report does not show; lookups and transfers use L2 to "
    words += "{shown}, so it is not used here."
    return (finding("hidden_l2_part", words, l2=whole, shown=shown),)


_IN_L1 = (Part.LSU_PIPE, Part.L1_DATA, Part.L1_TAGS, Part.SHARED_MEMORY_OR_L1)
_TRAFFIC = (*_IN_L1, Part.L1_TO_L2, Part.L2, Part.L2_ATOMICS, Part.DRAM, Part.OTHER_MEMORY)
_TRAFFIC_STALLS = ("long_scoreboard", "lg_throttle", "drain", "mio_throttle")
_SHARED = (Part.SHARED_MEMORY, Part.SHARED_MEMORY_OR_L1, Part.LSU_PIPE)
_SHARED_STALLS = ("short_scoreboard", "mio_throttle")


def _shows_as(of: Bottleneck) -> frozenset[str]:
    """The stall reasons that waiting for a resource shows as; for shared memory those of the LSU pipe."""
    return RESOURCES[Part.LSU_PIPE if of.part in _SHARED else of.part or Part.DRAM].stalls


def causes(row: Row, limit: Bottleneck | None, stalls: Sequence[Comparison], names: Names) -> tuple[Cause, ...]:
    """The known causes of a launch's limit, the most specific first. limit: what limits it. stalls: percent of the
    warps' time in each stall reason, the largest first."""
    if limit is None or limit.kind not in (*_USED, Kind.LATENCY, Kind.IMBALANCE):
        return ()
    latency, top = limit.kind is Kind.LATENCY, stalls[0] if stalls else None
    waits_for = str(top.of) if top else ""
    main = waits_for if top and top.value >= thresholds.DOMINANT_STALL else ""

    def compared(quantity: Quantity, threshold: Threshold | None = None) -> Comparison | None:
        """A number compared with a threshold; None where it was not collected."""
        value = quantity.traced(row, names)
        return None if value is None else Comparison(quantity, value, threshold)

    def reached(quantity: Quantity, threshold: Threshold) -> Comparison | None:
        """Likewise; None also where the threshold is not reached."""
        comparison = compared(quantity, threshold)
        return comparison if comparison and comparison.reached else None

    def comparisons(*wanted: Quantity) -> Iterator[Comparison]:
        return (comparison for each in wanted if (comparison := compared(each)))

    # Memory traffic, or shared memory, is the limit; or latency is, and the warps mostly wait for it.
    traffic = waits_for in _TRAFFIC_STALLS if latency else limit.part in _TRAFFIC
    shared = waits_for in _SHARED_STALLS if latency else limit.part in _SHARED
    may_queue = not latency or 100 - limit.value >= thresholds.QUEUED
    why: list[Cause] = []

    def because(id: CauseId, share: Comparison, *more: Comparison, of_time: bool = True) -> None:
        why.append(Cause(id, (share, *more), share.value if of_time else None))

    if traffic and (share := reached(quantities.HOST_SHARE, thresholds.HOST_TRAFFIC)):
        because(CauseId.HOST_MEMORY, share)

    slice_use = quantity("l2_atomic_unit_max_pct")
    full = reached(slice_use, thresholds.BUSY)
    # Atomics: many in shared memory; on one address, and so in one slice of L2; or many in global memory.
    if shared and (share := reached(quantities.SHARED_ATOMIC_SHARE, thresholds.SHARED_ATOMICS)):
        because(CauseId.ATOMICS, share, of_time=False)
    # A saturated slice holds up the whole queue of the load/store units, also special functions: any stall may be its.
    elif traffic or (latency and full):
        share, use = compared(quantities.ATOMIC_SHARE, MOSTLY), full or reached(slice_use, thresholds.CONTENDED_UNIT)
        contended = reached(quantities.ATOMIC_CONTENTION, thresholds.CONTENDED_BUSY if full else thresholds.CONTENDED)
        if contended and use:
            because(CauseId.ATOMICS, contended, use, *([share] if share else []), of_time=False)
        elif share and share.reached and not reached(quantities.SECTORS_PER_NEEDED, thresholds.SCATTERED):
            # Atomics that are spread over sectors have nothing to add up.
            because(CauseId.ATOMICS, share, of_time=False)

    if shared and not why and (share := reached(quantities.SHUFFLE_SHARE, MOSTLY)):
        because(CauseId.SHUFFLES, share, of_time=False)
    # Not where shared atomics are the cause: those on one word count as conflicts too.
    conflicts = compared(quantities.CONFLICT_SHARE, thresholds.CONFLICTED)
    if shared and may_queue and not why and conflicts and conflicts.reached:
        because(CauseId.BANK_CONFLICTS, conflicts, of_time=False)

    unsaturated = limit.kind in _USED and limit.value < SATURATED
    if top and main == "barrier" and (latency or unsaturated or limit.part in _SHARED):
        because(CauseId.BARRIER, top)
    if top and latency and main in ("membar", "sleeping"):
        because(CauseId.MEMORY_FENCE if main == "membar" else CauseId.SLEEPING, top)
    # Not in a launch of a few µs, which fetches its code for the first time.
    if top and latency and main == "no_instruction" and reached(quantities.DURATION, thresholds.SHORT):
        because(CauseId.INSTRUCTION_CACHE, top)
    achieved, theoretical = (number(row, f"{each}_occupancy_pct") for each in ("achieved", "theoretical"))
    starts = reached(quantity("blocks_per_cycle"), thresholds.BLOCKS_A_CYCLE)
    if latency and starts and achieved and theoretical and achieved < theoretical / 2:
        because(CauseId.BLOCK_STARTS, starts, *comparisons(quantity("achieved_occupancy_pct")), of_time=False)
    # Of constants with an immediate address; the cache of indexed ones is among the resources.
    if top and latency and main == "imc_miss":
        because(CauseId.CONSTANT_CACHE, top)

    if traffic and (share := reached(quantities.LOCAL_SHARE, thresholds.LOCAL_TRAFFIC)):
        because(CauseId.LOCAL_MEMORY, share, *comparisons(quantities.LOCAL_BYTES, quantity("spill_requests")))

    # More sectors than the bytes need; where only requests were counted, more than the widest request has. They have to
    # queue: a resource is the limit, or is used enough for that.
    touched = compared(quantities.SECTORS_PER_NEEDED, thresholds.SCATTERED)
    if touched is None:
        touched = reached(quantities.SECTORS_PER_REQUEST, thresholds.FULL_REQUEST)
        touched = touched if touched and touched.value >= thresholds.EXCESS * thresholds.FULL_REQUEST else None
    # Beyond L1 only what L1 lets through counts, and for DRAM what L2 does.
    per_needed = quantities.DRAM_PER_NEEDED if limit.part is Part.DRAM else quantities.L2_PER_NEEDED
    beyond = None if limit.part in _IN_L1 else compared(per_needed, thresholds.SCATTERED)
    if traffic and may_queue and touched and touched.reached and (beyond is None or beyond.reached):
        sectors = comparisons(quantities.GLOBAL_LOADS_SECTORS, quantities.GLOBAL_STORES_SECTORS)
        because(CauseId.SCATTERED_ACCESS, touched, *sectors, of_time=False)

    # Instructions in which few threads of a warp are active.
    lanes = compared(quantity("threads_per_instruction"), thresholds.FEW_LANES)
    block = compared(quantity("threads_per_block"), thresholds.WARP)
    if lanes and not lanes.reached and limit.kind is not Kind.MEMORY:
        if block and not block.reached:
            because(CauseId.PARTIAL_WARPS, block, lanes, of_time=False)
        else:
            because(CauseId.DIVERGENCE, lanes, *comparisons(quantity("uniform_branches_pct")), of_time=False)
    fixed = reached(quantities.FIXED, MOSTLY)
    if fixed and not why and limit.kind not in _USED:
        because(CauseId.TOO_LITTLE_WORK, fixed)
    return tuple(why)
