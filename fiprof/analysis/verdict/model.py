"""A verdict as data: what was measured, what it was compared with, what may limit and what does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fiprof.analysis.thresholds import CLOSE, Threshold
from fiprof.model.finding import Finding, TracedNumber, Wording, finding, plain
from fiprof.model.quantities import Key


class Kind(Wording):
    """What limits a launch, by kind."""

    COMPUTE = "compute", "compute-bound ({part})"
    MEMORY = "memory", "memory-bound ({part})"
    LATENCY = "latency", "latency-bound"
    LAUNCH = "launch", "launch-bound"
    CONCURRENT = "concurrent", "beside other kernels"  # it runs beside other kernels, and ncu measured it alone
    IMBALANCE = "imbalance", "imbalanced ({part})"
    UNKNOWN = "unknown", "not enough evidence"

    @classmethod
    def _missing_(cls, _: object) -> Kind:
        """Of results that were written when there were other kinds."""
        return cls.UNKNOWN


class Part(Wording):
    """The limiting resource, or imbalance."""

    TENSOR_CORES = "tensor_cores", "tensor cores"
    FMA_PIPE = "fma_pipe", "FMA pipe"
    FMA_HEAVY = "fma_heavy_pipe", "FMA heavy pipe"  # half of it; integer multiplication and dot products go there alone
    ALU_PIPE = "alu_pipe", "ALU pipe"
    XU_PIPE = "xu_pipe", "XU pipe"
    FP64_PIPE = "fp64_pipe", "FP64 pipe"
    LSU_PIPE = "lsu_pipe", "LSU pipe"
    ADU_PIPE = "adu_pipe", "ADU pipe"
    CBU_PIPE = "cbu_pipe", "CBU pipe"
    TEX_PIPE = "tex_pipe", "TEX pipe"
    UNIFORM_PIPE = "uniform_pipe", "uniform pipe"
    FP64_OR_TENSOR = "fp64_or_tensor", "port of the FP64 pipe and tensor cores"
    TMA = "tma", "TMA unit"
    MIO = "mio", "MIO queue"  # for memory, shuffles and special functions
    ISSUE_SLOTS = "issue_slots", "issue slots"
    OTHER_COMPUTE = "other_compute", "another part of the multiprocessors"
    """A part of the multiprocessors that ncu counts and nobody has seen."""
    DRAM = "dram", "DRAM"
    L2 = "l2", "L2"
    L2_ATOMICS = "l2_atomics", "atomic units of L2"
    L1_TO_L2 = "l1_to_l2", "link between L1 and L2"
    L1_TAGS = "l1_tags", "L1 tag stage"
    L1_DATA = "l1_data", "L1 data stage"
    TEXTURE = "texture", "texture stage"
    CLUSTER_MEMORY = "cluster_memory", "shared memory of other blocks"
    SHARED_MEMORY = "shared_memory", "shared memory"
    SHARED_MEMORY_OR_L1 = "shared_memory_or_l1", "shared memory or L1"
    """Where it was not collected which of the two passes the data stage."""
    CONSTANT_CACHE = "constant_cache", "constant cache"
    OTHER_MEMORY = "other_memory", "another part of the memory system"  # a part of the memory system likewise
    TOO_FEW_BLOCKS = "too_few_blocks", "too few blocks"
    TAIL = "tail"
    UNEVEN_WORK = "uneven_work", "uneven work"


class Confidence(Wording):
    """high: nothing speaks against it; medium: something does, or is missing; low: it might be the runner-up."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Comparison(NamedTuple):
    """A measured number, and what it was compared with."""

    quantity: Key
    number: TracedNumber
    threshold: Threshold | None = None  # in the number's unit; None where it was compared with nothing
    of: Part | str | None = None  # the resource whose use it is, or the stall reason whose share it is

    @property
    def value(self) -> float:
        return self.number.value

    @property
    def reached(self) -> bool:
        """Whether it reaches its threshold."""
        return self.threshold is not None and self.value >= self.threshold

    def fields(self) -> dict[str, Any]:
        test = threshold = origin = None
        if self.threshold is not None:
            test = "at_least" if self.reached else "below"
            threshold, origin = float(self.threshold), str(self.threshold.origin)
        return {
            "quantity": self.quantity.key, "of": plain(self.of), "value": self.value, "unit": self.number.unit.strip(),
            "test": test, "threshold": threshold, "origin": origin, "provenance": str(self.number.source),
        }  # fmt: skip


class TimeOf(Wording):
    """Whose time a bound is of."""

    LAUNCH = "launch", "the launch"
    ITERATION = "iteration", "an iteration"
    ITERATION_KERNELS = "iteration_kernels", "the iteration's kernel time"
    KERNELS = "kernels", "all kernel time"  # of the program
    PROGRAM = "program", "the time"  # of the program's steady part


class Bottleneck(NamedTuple):
    """Something that may limit a launch."""

    kind: Kind
    part: Part | None  # None where the kind says all
    value: float  # percent of time. Of latency: what the busiest resource leaves.
    comparison: Comparison | None = None  # the number itself; None for latency, which is the absence of the others

    @property
    def finding(self) -> Finding:
        return named(self.kind, self.part)

    def fields(self) -> dict[str, Any]:
        return {"kind": self.kind.value, "part": plain(self.part), "value": self.value}


def named(kind: Kind, part: Part | None) -> Finding:
    """A kind with its part, as sentences name it."""
    return Finding(str(kind), {} if part is None else {"part": part}, kind.words)


def titled(limits: Sequence[tuple[Kind, Part | None]], cause: CauseId | None = None) -> Finding:
    """One limit or a pair, with what causes it: ``memory-bound (DRAM and L2): scattered access``."""
    title = named(*limits[0]) if limits else named(Kind.UNKNOWN, None)
    if len(limits) > 1:
        (kind, part), (other, other_part) = limits
        title = finding("pair", "{first} and {second}", first=title, second=named(other, other_part))
        if kind is other:
            title = Finding(str(kind), {"part": (part, other_part)}, kind.words)
    return title if cause is None else finding("caused", "{verdict}: {cause}", verdict=title, cause=cause)


class CauseId(Wording):
    """What makes a launch slow, beside or below the resource that limits it; with the stall reasons that it shows as: a
    step against the stall itself says less."""

    @property
    def stalls(self) -> list[str]:
        return self.also

    BANK_CONFLICTS = "bank_conflicts", "bank conflicts", "short_scoreboard mio_throttle"
    SHUFFLES = "shuffles", "shuffles", "short_scoreboard mio_throttle"
    ATOMICS = "atomics", "atomics", "long_scoreboard lg_throttle mio_throttle short_scoreboard membar drain"
    BARRIER = "barrier", "block-wide barriers", "barrier"
    LOCAL_MEMORY = "local_memory", "local memory", "long_scoreboard lg_throttle"
    SCATTERED_ACCESS = "scattered_access", "scattered access", "long_scoreboard lg_throttle drain"
    DIVERGENCE = "divergence", "divergent branches", "branch_resolving"
    INSTRUCTION_CACHE = "instruction_cache", "instruction cache misses", "no_instruction"
    PARTIAL_WARPS = "partial_warps", "partly filled warps"  # blocks of fewer threads than a warp has
    BLOCK_STARTS = "block_starts", "blocks that end as fast as they start"
    CONSTANT_CACHE = "constant_cache", "constant cache misses", "imc_miss short_scoreboard"
    MEMORY_FENCE = "memory_fence", "memory fences", "membar"
    SLEEPING = "sleeping", "sleeping warps", "sleeping"
    TOO_LITTLE_WORK = "too_little_work", "too little work"  # the launch is mostly what any launch takes
    HOST_MEMORY = "host_memory", "host memory", "long_scoreboard lg_throttle drain"


class Cause(NamedTuple):
    """A cause, with what shows it."""

    id: CauseId
    evidence: tuple[Comparison, ...]  # the number that shows it best first
    share_pct: float | None = None
    """Percent of the launch's time (or of the binding resource's use) that it accounts for, where that is known."""

    def fields(self) -> dict[str, Any]:
        evidence = [each.fields() for each in self.evidence]
        return {"id": self.id.value, "share_pct": self.share_pct, "evidence": evidence}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What limits a launch, and why."""

    limits: tuple[Bottleneck, ...] = ()
    """What limits; a pair where the second comes first after a change within ``NOISE``. Empty where not known."""
    evidence: tuple[Comparison, ...] = ()  # the deciding one first
    runner_up: Bottleneck | None = None  # what the verdict would be otherwise; of a pair the second
    margin_points: float | None = None
    """Points of a percent by which one number would have to change for the runner-up, of all rules that would come
    first then; negative where it is ahead and only feeds the limit."""
    resources: tuple[Bottleneck, ...] = ()  # every resource that was measured, the busiest first
    idle: TracedNumber | None = None
    """Percent of the time of the multiprocessor that worked longest in which the average one was idle."""
    causes: tuple[Cause, ...] = ()
    """Why, the most specific first; empty where the counters show none of the causes that are known."""
    missing: tuple[str, ...] = ()  # columns that would have told more
    notes: tuple[Finding, ...] = ()

    @property
    def kind(self) -> Kind:
        return self.limits[0].kind if self.limits else Kind.UNKNOWN

    @property
    def part(self) -> Part | None:
        """None where the kind says all."""
        return self.limits[0].part if self.limits else None

    @property
    def names(self) -> tuple[tuple[Kind, Part | None], ...]:
        """The limits without their numbers."""
        return tuple((each.kind, each.part) for each in self.limits)

    @property
    def pair(self) -> bool:
        """Whether two limits cannot be told apart."""
        return len(self.limits) > 1

    @property
    def finding(self) -> Finding:
        return titled(self.names, self.causes[0].id if self.causes else None)

    @property
    def close(self) -> bool:
        """Whether it might as well be the runner-up."""
        return self.margin_points is not None and self.margin_points < CLOSE

    @property
    def busiest(self) -> Bottleneck | None:
        return self.resources[0] if self.resources else None

    def resource(self, part: Part | None) -> Bottleneck | None:
        return next((resource for resource in self.resources if resource.part == part), None)


class CaseBound(Wording):
    """What an iteration of a case waits for."""

    HOST = "host", "launch-bound: the GPU waits for {waiting} of an iteration; {host}"
    COPIES = "copies", "bound by its copies: {copying} of the GPU's busy time"
    KERNELS = "kernels", "bound by its kernels: the GPU waits for {waiting} of an iteration"
    NO_KERNEL_TIME = "no_kernel_time", "not enough evidence: there are no kernel times"
    NO_PLAIN_TIME = "no_plain_time", "not enough evidence: there is no time of an iteration without a profiler"


class CaseVerdict(NamedTuple):
    """What an iteration of a case waits for: its kernels, or the host that launches them."""

    case: str  # case id
    label: str
    kernels: float | None = None  # kernels an iteration under nsys
    busy_time: TracedNumber | None = None
    """Time of an iteration in which kernels and copies ran under nsys, else its kernels under ncu, µs."""
    wall_time: TracedNumber | None = None  # time of an iteration as a loop sees it without a profiler, µs
    launch_us: float | None = None  # host time of the CUDA calls that launch an iteration's kernels, under nsys
    graph: bool = False  # whether its kernels were launched from a CUDA graph
    waiting: Comparison | None = None  # percent of an iteration in which the GPU waits; None where it cannot be told
    copying: Comparison | None = None
    """Percent of the GPU's busy time in which no kernel ran, only copies and memory sets; None without nsys."""

    @property
    def bound(self) -> CaseBound:
        if self.busy_time is None:
            return CaseBound.NO_KERNEL_TIME
        if self.waiting is None:
            return CaseBound.NO_PLAIN_TIME
        if self.waiting.reached:
            return CaseBound.HOST
        return CaseBound.COPIES if self.copying and self.copying.reached else CaseBound.KERNELS

    @property
    def finding(self) -> Finding:
        copying = self.copying.number if self.copying else None
        values = {"waiting": self.waiting.number, "host": self.host, "copying": copying} if self.waiting else {}
        return Finding(str(self.bound), values, self.bound.words)

    @property
    def host(self) -> Finding:
        """How the host launches an iteration, with its time, that of its kernels and of its launch calls."""
        kind, words = "kernels", "of {wall} it is busy for {busy}"
        if self.graph:
            kind, words = "graph", words + ", with the nodes of a CUDA graph"
        if self.launch_us is not None:
            kind, words = f"{kind}_traced", words + ", and the launch calls take {calls_us:.1f} µs under nsys"
        wall, busy = (time and time.as_(".1f", " µs") for time in (self.wall_time, self.busy_time))
        return finding(kind, words, wall=wall, busy=busy, calls_us=self.launch_us)
