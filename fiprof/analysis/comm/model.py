"""What was found about the communication of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fiprof.analysis.comm.kernels import Op
from fiprof.model.finding import Finding
from fiprof.model.ranks import Rank


class Doing(StrEnum):
    """What keeps a rank, what comes first here where several do."""

    KERNEL = "kernel"
    """Its GPU runs a kernel of its own."""
    COMMUNICATION = "communication"
    """Its GPU is in another collective."""
    COPY = "copy"
    CALL = "call"
    """Its thread is in a CUDA call, and the GPU has nothing to do."""
    HOST = "host"
    """Its thread is in no CUDA call, and the GPU has nothing to do."""


@dataclass(frozen=True)
class Spell:
    """A part of a stretch."""

    doing: Doing
    name: str
    """Of the kernel or call; empty for others."""
    range: str
    """NVTX range that the thread was in, the innermost; empty for none."""
    us: float


class CommWarning(StrEnum):
    """What is missing or doubtful."""

    NO_TRACE = "no_trace"
    ONE_RANK = "one_rank"
    NO_COMMUNICATION = "no_communication"
    NO_PAYLOAD = "no_payload"
    ALONE = "alone"
    INCOMPLETE = "incomplete"
    CLOCK = "clock"
    CLOCK_OFF = "clock_off"


@dataclass(frozen=True)
class Arrival:
    """A rank in a collective."""

    rank: int
    start_us: float
    """Of its kernel, since the trace began."""
    wait_us: float
    """Until the last rank began; for the whole of its kernel where that ended sooner."""
    duration_us: float
    """Of its kernel, waiting included."""


@dataclass(frozen=True)
class Collective:
    """A collective of several ranks."""

    op: Op
    kernel: str
    communicator: int | None
    """NCCL's number, modulo 2^62; None where NCCL did not tell."""
    number: int
    """Which one of its communicator, from 0; of kernels of its name and stream where that is not known."""
    arrivals: tuple[Arrival, ...]
    missing: tuple[int, ...]
    """Ranks of the communicator without a kernel of it in the trace."""
    bytes: int | None
    """Of a rank's message as NCCL gives it; None where it did not tell."""
    channels: int
    """Blocks of the kernel."""
    start_us: float
    """Of the first rank's kernel, since the trace began."""
    skew_us: float
    """From the first rank's start to the last one's."""
    transfer_us: float
    """From the last rank's start to the last one's end."""
    late_rank: int
    """The rank that started last."""
    range: str
    """NVTX range that the late rank's thread launched it in, the outermost; empty for none."""
    step_us: float | None
    """Length of the step that it is in, on the rank that waited longest: of its outermost range that repeats; without
    one, since the end of the rank's collective before. None for the first of those."""
    overlap: float
    """Share of the ranks' kernel time in which the GPU ran another kernel too, 0 to 1."""
    meanwhile: tuple[Spell, ...]
    """What the late rank did while the first one waited, the longest first."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(arrival.rank for arrival in self.arrivals)

    @property
    def wait_us(self) -> float:
        """Of the rank that waited longest."""
        return max(arrival.wait_us for arrival in self.arrivals)

    @property
    def waiting_rank(self) -> int:
        return max(self.arrivals, key=lambda arrival: arrival.wait_us).rank

    @property
    def waiting_us(self) -> float:
        """Of all ranks together."""
        return sum(arrival.wait_us for arrival in self.arrivals)

    @property
    def lost_share(self) -> float | None:
        """Of the step, 0 to 1."""
        return min(self.wait_us / self.step_us, 1.0) if self.step_us else None

    @property
    def algorithm_gbps(self) -> float | None:
        """GB/s: S / t, S being the size as nccl-tests counts it (its doc/PERFORMANCE.md): for an all-gather, a
        reduce-scatter and an all-to-all what all ranks have together."""
        if self.bytes is None or not self.transfer_us:
            return None
        together = self.op in (Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL)
        return self.bytes * (len(self.arrivals) if together else 1) / self.transfer_us / 1e3

    @property
    def bus_gbps(self) -> float | None:
        """GB/s over the links, to hold against their peak: x 2 (n - 1) / n for an all-reduce of n ranks, (n - 1) / n
        for an all-gather, a reduce-scatter and an all-to-all (nccl-tests, doc/PERFORMANCE.md)."""
        ranks = len(self.arrivals)
        share = (ranks - 1) / ranks
        factors = {Op.ALL_REDUCE: 2 * share, Op.ALL_GATHER: share, Op.REDUCE_SCATTER: share, Op.ALL_TO_ALL: share}
        return None if self.algorithm_gbps is None else self.algorithm_gbps * factors.get(self.op, 1.0)


@dataclass(frozen=True)
class RankTotals:
    """A rank in all collectives."""

    rank: Rank
    collectives: int
    late: int
    """Of how many it was the last to start."""
    delay_us: float
    """How long the first ones waited for it in these, summed."""
    wait_us: float
    """That it waited itself."""
    communication_us: float
    """In which a communication kernel ran, waiting included."""
    overlap: float
    """Share of that in which another kernel ran too, 0 to 1."""
    compute_us: float
    """In which another kernel ran."""
    lost_share: float | None
    """wait_us over the steps with collectives; without repeating ranges over the time from the first collective to the
    last."""


@dataclass(frozen=True)
class Cause:
    """What a late rank did while others waited, in all collectives."""

    rank: int
    doing: Doing
    name: str
    range: str
    us: float
    collectives: int
    share: float
    """Of the delays that its rank caused, 0 to 1."""


@dataclass(frozen=True)
class RankTrack:
    """A rank's time in pieces of equal length: the share of each, 0 to 1."""

    rank: int
    compute: tuple[float, ...]
    """Another kernel ran; communication beside it is hidden."""
    transfer: tuple[float, ...]
    """Only communication kernels ran, all ranks being there."""
    wait: tuple[float, ...]
    """Only communication kernels ran, and a rank had not begun."""


@dataclass(frozen=True)
class RankChart:
    """The ranks on one axis of time."""

    start_us: float
    end_us: float
    tracks: tuple[RankTrack, ...]
    number: int | None = None
    """Position of the collective that it shows; None for all."""


@dataclass(frozen=True)
class Comm:
    """What ``fiprof comm`` shows of a run."""

    ranks: tuple[RankTotals, ...]
    causes: tuple[Cause, ...]
    """The longest first."""
    collectives: tuple[Collective, ...]
    """By the last rank's start."""
    charts: tuple[RankChart, ...]
    """From the first collective to the last, then the step with the longest wait."""
    warnings: tuple[Finding, ...]

    @property
    def worst(self) -> list[Collective]:
        """By how long a rank waited."""
        return sorted(self.collectives, key=lambda each: -each.wait_us)
