"""What binds a launch: the resources it uses, how evenly its multiprocessors work, and what the GPU waits for.

Everything is on one scale, percent of time. A resource used to r percent of its peak needs r percent of the launch's
time at the least, whatever else is done about it. In this order the first that holds is the verdict:

1. launch-bound: the GPU waits for at least ``WAITING_PCT`` of an iteration's time, so no faster kernel helps;
2. a resource at ``SATURATED_PCT`` or more binds;
3. imbalanced: the multiprocessors are idle, on average, for ``IDLE_PCT`` of the time of the one that works longest;
4. a resource at ``BUSY_PCT`` or more binds;
5. latency-bound: none of these.

The runner-up is what the verdict would be if that one were not there; its margin says how many points are between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.verdict.model import CLOSE_POINTS, IDLE, Bottleneck, Comparison, Judgement, Kind, Test
from fiprof.model import metrics
from fiprof.model.expressions import Row, number
from fiprof.model.provenance import Provenance, TracedNumber

BUSY_PCT = 60.0
SATURATED_PCT = 80.0
SOL_RULE = "ncu's rule SOLBottleneck"
"""Its thresholds: below 60% in compute and memory it speaks of latency, from 80% on of a unit used to its limit."""

IDLE_PCT = 20.0
IDLE_SOURCE = "fiprof, after ncu's rule LaunchConfiguration"
"""That rule speaks of a tail from a fifth of the time on."""

WAITING_PCT = 50.0
WAITING_SOURCE = "fiprof: it waits longer than it works"

STALL_SHARE_PCT = 30.0
STALL_SOURCE = "ncu's rule CPIStall"

ELSEWHERE_POINTS = 2.0
"""By which ncu's throughput of a side exceeds all its parts that have a column before a part without one is named.
Replays of one kernel differ by less."""

L1_DATA = "L1 data stage"
SHARED = "shared memory"
SHARED_OR_L1 = "shared memory or L1"
"""Where it was not collected which of the two passes the data stage."""
ISSUE = "issue slots"
TENSOR = "tensor cores"
DRAM = "DRAM"
L2 = "L2"
OTHER_COMPUTE = "another part of the multiprocessors"
OTHER_MEMORY = "another part of the memory system"


@dataclass(frozen=True)
class Resource:
    """Something that a launch can use up."""

    name: str
    kind: Kind
    columns: tuple[str, ...]
    """Of ``launches``, in percent of its peak over the elapsed time; the largest counts."""
    fed_by: tuple[str, ...] = ()
    """Resources whose use is what this one's work needs: they are at their limit because this one is."""


RESOURCES: tuple[Resource, ...] = (
    Resource(TENSOR, "compute", ("tensor_active_pct",), fed_by=(ISSUE, SHARED, L1_DATA)),
    Resource("FMA pipe", "compute", ("fma_pct",), fed_by=(ISSUE,)),
    Resource("ALU pipe", "compute", ("alu_pct",), fed_by=(ISSUE,)),
    Resource("XU pipe", "compute", ("xu_pct",), fed_by=(ISSUE,)),
    Resource("FP64 pipe", "compute", ("fp64_pct",), fed_by=(ISSUE,)),
    Resource("LSU pipe", "compute", ("lsu_pct",), fed_by=(ISSUE,)),
    Resource(ISSUE, "compute", ("issue_slot_busy_pct",)),
    Resource(DRAM, "memory", ("dram_throughput_pct",)),
    # Not l2_throughput_pct: see other_l2_part.
    Resource(L2, "memory", ("l2_to_sm_pct", "sm_to_l2_pct", "l2_sectors_pct", "l2_tags_pct")),
    Resource(L1_DATA, "memory", ("l1_data_pct",)),
)

_SIDES: tuple[tuple[str, Kind, str], ...] = (
    (OTHER_COMPUTE, "compute", "sm_throughput_pct"),
    (OTHER_MEMORY, "memory", "memory_throughput_pct"),
)
"""ncu's maximum over all parts of a side, to find a part that has no column."""

Names = Callable[[str], str]
"""Our column -> ncu's name."""

_FIRST_NAMES = {metric.name: metric.ncu[0] for metric in metrics.METRICS}


def judge(
    row: Row,
    *,
    launch: int | None = None,
    stall: Comparison | None = None,
    waiting: Comparison | None = None,
    names: Names = _FIRST_NAMES.__getitem__,
) -> Judgement:
    """What binds a launch. Never fails for numbers; what was not collected is named in ``missing``.

    row: of ``launches``. launch: its ID, for the sources of the readings. stall: the largest reason in percent of the
    warps' time. waiting: percent of an iteration in which the GPU waits, of the launch's case. names: ncu's names.
    """
    facts = _Facts(row, launch, names)
    resources = _resources(facts)
    idle = facts.idle()
    pool = _Pool(resources, idle, _imbalance(row), waiting, _known(row))
    verdict = pool.first()
    runner_up = pool.without(verdict).first() if verdict else None
    # Without latency there is nothing below but the busiest resource.
    if verdict and verdict.kind == "latency" and resources:
        runner_up = resources[0]
    busiest = resources[0] if resources else None
    return Judgement(
        kind=verdict.kind if verdict else "unknown",
        part=verdict.part if verdict else "",
        readings=_readings(verdict, runner_up, busiest, facts, idle, stall, waiting),
        runner_up=runner_up,
        margin=_margin(verdict, runner_up) if verdict and runner_up else None,
        resources=resources,
        idle_pct=None if idle is None else idle.value,
        missing=_missing(row, verdict),
        notes=other_l2_part(row, resources),
    )


class _Facts:
    """A launch's numbers as facts."""

    def __init__(self, row: Row, launch: int | None, names: Names) -> None:
        self.row, self.launch, self.names = row, launch, names

    def column(self, column: str, unit: str = "%", spec: str = ".1f") -> TracedNumber | None:
        value = number(self.row, column)
        return None if value is None else TracedNumber(value, self.source(self.names(column)), spec, unit)

    def source(self, formula: str) -> Provenance:
        return Provenance("ncu", formula, launch=self.launch)

    def idle(self) -> TracedNumber | None:
        """Percent of the longest-working multiprocessor's time in which the average one had no warp."""
        average, most = number(self.row, "sm_active_cycles"), number(self.row, "sm_active_cycles_max")
        if average is None or not most or most < 0:
            return None
        formula = f"100 * (1 - {self.names('sm_active_cycles')} / {self.names('sm_active_cycles_max')})"
        return TracedNumber(min(max(100 * (1 - average / most), 0.0), 100.0), self.source(formula), ".1f", "%")


def _resources(facts: _Facts) -> tuple[Bottleneck, ...]:
    """Every resource that was measured, the busiest first."""
    found = []
    for resource in RESOURCES:
        read = [(fact.value, column, fact) for column in resource.columns if (fact := facts.column(column))]
        if read:
            value, column, fact = max(read, key=lambda item: item[0])
            part = _l1_part(facts.row) if resource.name == L1_DATA else resource.name
            found.append(Bottleneck(resource.kind, part, value, Comparison(f"use of {part}", column, fact)))
    for part, kind, column in _SIDES:
        fact = facts.column(column)
        known = max((item.value for item in found if item.kind == kind), default=0.0)
        if fact and fact.value > known + ELSEWHERE_POINTS:
            found.append(Bottleneck(kind, part, fact.value, Comparison(f"use of {part}", column, fact)))
    return tuple(sorted(found, key=lambda item: -item.value))


def _l1_part(row: Row) -> str:
    """What mostly passes the data stage that L1 and shared memory have in common."""
    shared, everything = number(row, "shared_data_pct"), number(row, "l1_data_pct")
    if shared is None or everything is None:
        return SHARED_OR_L1
    return SHARED if shared >= everything / 2 else L1_DATA


def _imbalance(row: Row) -> str:
    """Why multiprocessors may be idle while another works."""
    waves = occupancy(row).waves
    if waves is not None and waves.idle_multiprocessors:
        return "too few blocks"
    blocks, multiprocessors = number(row, "blocks"), number(row, "multiprocessors")
    if blocks is not None and multiprocessors is not None and blocks < multiprocessors:
        return "too few blocks"
    if waves is not None and waves.loss_share is not None and 100 * waves.loss_share >= IDLE_PCT:
        return "tail"
    return "uneven work"


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
    imbalance: str
    waiting: Comparison | None
    known: bool
    latency: bool = True

    def first(self) -> Bottleneck | None:
        """The first that holds in the module's order; None where there is not enough to tell."""
        if self.waiting is not None and self.waiting.value >= WAITING_PCT:
            return Bottleneck("launch", "", self.waiting.value, self.waiting)
        busiest = _what_is_fed(self.resources)
        if busiest is not None and busiest.value >= SATURATED_PCT:
            return busiest
        if self.idle is not None and self.idle.value >= IDLE_PCT:
            return Bottleneck("imbalance", self.imbalance, self.idle.value, _idle_reading(self.idle, "at least"))
        if not self.known:
            return None
        if busiest is not None and busiest.value >= BUSY_PCT:
            return busiest
        if self.idle is None or not self.latency:
            return None
        return Bottleneck("latency", "", 100 - (busiest.value if busiest else 0.0))

    def without(self, found: Bottleneck) -> _Pool:
        kept = tuple(item for item in self.resources if item.part != found.part)
        return _Pool(
            resources=kept if found.kind in ("compute", "memory") else self.resources,
            idle=TracedNumber(0.0, self.idle.source) if found.kind == "imbalance" and self.idle else self.idle,
            imbalance=self.imbalance,
            waiting=None if found.kind == "launch" else self.waiting,
            known=self.known,
            latency=found.kind != "latency",
        )


def _what_is_fed(resources: Sequence[Bottleneck]) -> Bottleneck | None:
    """The busiest resource; but where it feeds another one that is at its limit too and close, that one."""
    if not resources:
        return None
    top = resources[0]
    for item in resources[1:]:
        feeders = next((resource.fed_by for resource in RESOURCES if resource.name == item.part), ())
        part = L1_DATA if top.part == SHARED_OR_L1 else top.part
        if part in feeders and item.value >= max(SATURATED_PCT, top.value - CLOSE_POINTS):
            return item
    return top


def _margin(verdict: Bottleneck, runner_up: Bottleneck) -> float:
    """Points until the runner-up would be the verdict."""
    resources = ("compute", "memory")
    if verdict.kind == "launch":
        return verdict.value - WAITING_PCT
    if verdict.kind == "imbalance":
        until_not = verdict.value - IDLE_PCT
        return min(until_not, SATURATED_PCT - runner_up.value) if runner_up.kind in resources else until_not
    if verdict.kind == "latency":
        return BUSY_PCT - runner_up.value
    if runner_up.kind in resources:
        return verdict.value - runner_up.value
    if runner_up.kind == "imbalance":
        return max(verdict.value - SATURATED_PCT, 0.0)
    return verdict.value - BUSY_PCT


# The evidence


def _idle_reading(fact: TracedNumber, test: Test) -> Comparison:
    return Comparison(IDLE, "", fact, test, IDLE_PCT, IDLE_SOURCE)


def _against(candidate: Bottleneck) -> Comparison:
    """A resource's use against the threshold that it has reached, or not."""
    assert candidate.reading is not None
    reached = next((limit for limit in (SATURATED_PCT, BUSY_PCT) if candidate.value >= limit), None)
    test: Test = "below" if reached is None else "at least"
    reading = candidate.reading
    return Comparison(reading.what, reading.column, reading.fact, test, reached or BUSY_PCT, SOL_RULE)


def _readings(
    verdict: Bottleneck | None,
    runner_up: Bottleneck | None,
    busiest: Bottleneck | None,
    facts: _Facts,
    idle: TracedNumber | None,
    stall: Comparison | None,
    waiting: Comparison | None,
) -> tuple[Comparison, ...]:
    found: list[Comparison] = []
    if verdict is not None and verdict.kind == "launch" and waiting is not None:
        found.append(waiting)
    if verdict is not None and verdict.kind == "imbalance" and idle is not None:
        found += [_idle_reading(idle, "at least"), *_blocks(facts)]
    if verdict is not None and verdict.kind in ("compute", "memory"):
        found.append(_against(verdict))
        if runner_up is not None and runner_up.kind in ("compute", "memory"):
            found.append(_against(runner_up))
    elif busiest is not None:
        found.append(_against(busiest))
    if verdict is not None and verdict.kind == "latency":
        issue = facts.column("issue_active_pct")
        found += [Comparison("cycles in which a scheduler issued", "issue_active_pct", issue)] if issue else []
        found += [stall] if stall is not None else []
    if idle is not None and idle.value < IDLE_PCT:
        found.append(_idle_reading(idle, "below"))
    if waiting is not None and waiting.value < WAITING_PCT:
        found.append(waiting)
    return tuple(found)


def _blocks(facts: _Facts) -> list[Comparison]:
    """The blocks against the multiprocessors, where they are fewer."""
    blocks, multiprocessors = facts.column("blocks", "", ",.0f"), number(facts.row, "multiprocessors")
    if blocks is None or multiprocessors is None or blocks.value >= multiprocessors:
        return []
    return [Comparison("blocks", "blocks", blocks, "below", multiprocessors, "the multiprocessors of this GPU")]


_WANTED = ("dram_throughput_pct", "l1_data_pct", "l2_to_sm_pct", "issue_slot_busy_pct", "tensor_active_pct", "fma_pct")


def _missing(row: Row, verdict: Bottleneck | None) -> tuple[str, ...]:
    """Columns without which the verdict is less sure, or there is none."""
    wanted = [*_WANTED, "sm_active_cycles", "sm_active_cycles_max"]
    if verdict is not None and verdict.part == SHARED_OR_L1:
        wanted.append("shared_data_pct")
    return tuple(column for column in wanted if number(row, column) is None)


def other_l2_part(row: Row, resources: Sequence[Bottleneck]) -> tuple[str, ...]:
    """A sentence where ncu's figure for L2 is of a part that its report does not show.

    ``lts__throughput`` is a maximum over parts. On an H200 a kernel that streams from DRAM reads 70 to 90% there while
    lookups, tags and both directions to the multiprocessors stay below 50%, and ncu's own memory throughput leaves
    that part out: what it is cannot be told from the report, so it is no evidence. It is there whenever much crosses
    from one half of L2 to the other (``lts__t_sectors_srcunit_ltcfabric``), which DRAM traffic does by itself.
    """
    whole = number(row, "l2_throughput_pct")
    shown = next((item.value for item in resources if item.part == L2), None)
    memory = number(row, "memory_throughput_pct")
    if whole is None or shown is None or whole < BUSY_PCT or whole <= max(shown, memory or 0.0) + ELSEWHERE_POINTS:
        return ()
    return (
        f"ncu's figure for L2, {whole:.1f}%, is of a part that its report does not show and that its own memory "
        f"throughput leaves out; lookups and transfers use L2 to {shown:.1f}%, so it is no evidence here",
    )
