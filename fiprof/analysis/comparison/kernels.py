"""What changed of a kernel, and what of its counters explains it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fiprof.analysis.comparison.factors import Factor, factors
from fiprof.analysis.comparison.hot_code import Moved, moved
from fiprof.analysis.comparison.pairing import Match, pair_kernels
from fiprof.analysis.comparison.sides import SideKernel
from fiprof.analysis.instructions import Listing, listings
from fiprof.analysis.occupancy import Resource, occupancy
from fiprof.analysis.verdict.verdict import LaunchVerdict, verdicts
from fiprof.model.provenance import TracedNumber
from fiprof.model.quantities import QUANTITIES, STALL_SHARE, Key, stall_share
from fiprof.model.run import Launch, Run
from fiprof.model.selection import Selection


@dataclass(frozen=True)
class Delta:
    """A quantity of both sides."""

    quantity: Key
    a: TracedNumber | None
    """None where it was not collected."""
    b: TracedNumber | None
    reason: str | None = None
    """The stall reason whose share it is."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a launch."""

    launch: Launch
    verdict: LaunchVerdict
    limiters: tuple[Resource, ...]
    """Of its occupancy."""
    listing: Listing | None = field(repr=False)
    """None without samples by instruction."""


@dataclass(frozen=True)
class KernelChange:
    """A kernel on either side."""

    match: Match
    a: SideKernel | None
    b: SideKernel | None
    us: float
    """How much longer its executions take; by nsys where both sides have it, else by ncu."""
    evidence: tuple[Evidence | None, Evidence | None] = (None, None)
    """Of the launches that stand for it; None where ncu saw none, or its numbers cannot be compared."""
    factors: tuple[Factor, ...] = ()
    """Of the difference of these launches, the largest first; empty without counters of both."""
    deltas: tuple[Delta, ...] = ()
    """Every quantity that one of the launches has, and the stall mix."""
    moved: tuple[Moved, ...] = ()
    """The most time first; empty without samples by instruction of both."""

    @property
    def shown(self) -> SideKernel:
        """The side to name it by."""
        found = self.b or self.a
        assert found is not None
        return found

    @property
    def launch_us(self) -> float | None:
        """How much longer the launch that stands for it takes under ncu."""
        times = [each.launch.duration_us if each else None for each in self.evidence]
        return None if times[0] is None or times[1] is None else times[1] - times[0]


def kernel_changes(a: Sequence[SideKernel], b: Sequence[SideKernel]) -> list[KernelChange]:
    """Every kernel of two sides, those that account for most of the change first, unexplained."""
    traced = all(any(each.nsys_us is not None for each in side) for side in (a, b))

    def us(each: SideKernel | None) -> float:
        return 0.0 if each is None else (each.nsys_us if traced else each.ncu_us) or 0.0

    found = [KernelChange(match, x, y, us(y) - us(x)) for x, y, match in pair_kernels(a, b)]
    return sorted(found, key=lambda each: (-abs(each.us), -us(each.shown), each.shown.kernel_full))


def explained(changes: Iterable[KernelChange], a: Run, b: Run) -> list[KernelChange]:
    """The changes with what explains them, by ncu."""
    found = list(changes)
    known = [
        _evidence(run, [side.launch for side in sides if side and side.launch])
        for run, sides in ((a, [each.a for each in found]), (b, [each.b for each in found]))
    ]

    def of(side: SideKernel | None, place: int) -> Evidence | None:
        return known[place].get(side.launch.launch) if side and side.launch else None

    return [_explained(each, (of(each.a, 0), of(each.b, 1)), (a, b)) for each in found]


def _evidence(run: Run, launches: Sequence[Launch]) -> dict[int, Evidence]:
    if not launches:
        return {}
    wanted = tuple(launch.launch for launch in launches)
    judged = verdicts(run, wanted=Selection(launches=wanted))
    columns = ("launch", "address", "sass", "samples", "top_reason", "source_file", "source_line")
    sampled = dict(listings(run.table("hotspots", columns), wanted)) if run.has("hotspots") else {}
    return {
        each.launch: Evidence(each.row, each, occupancy(each.row).limiters, sampled.get(each.launch))
        for each in judged.launches
    }


def _explained(
    change: KernelChange, evidence: tuple[Evidence | None, Evidence | None], runs: tuple[Run, Run]
) -> KernelChange:
    a, b = evidence
    found = replace(change, evidence=evidence, deltas=tuple(_deltas(evidence, runs)))
    if a is None or b is None:
        return found
    there = a.listing, b.listing
    times = a.launch.duration_us or 0.0, b.launch.duration_us or 0.0
    return replace(
        found,
        factors=factors((runs[0], a.launch), (runs[1], b.launch)),
        moved=moved(there[0], there[1], *times) if there[0] and there[1] else (),
    )


def _deltas(evidence: tuple[Evidence | None, Evidence | None], runs: tuple[Run, Run]) -> Iterator[Delta]:
    for quantity in QUANTITIES.values():
        a, b = (each.launch.traced(quantity) if each else None for each in evidence)
        if a is not None or b is not None:
            yield Delta(quantity, a, b)
    mixes = [_mix(run, each) for run, each in zip(runs, evidence, strict=True)]
    for reason in {**mixes[0], **mixes[1]}:
        yield Delta(STALL_SHARE, mixes[0].get(reason), mixes[1].get(reason), reason)


def _mix(run: Run, evidence: Evidence | None) -> dict[str, TracedNumber]:
    """Stall reason -> its share."""
    if evidence is None:
        return {}
    reasons = run.stall_reasons.get(evidence.launch.launch, ())
    return {each.reason: stall_share(evidence.launch, each.reason, each.share) for each in reasons if each.share}
