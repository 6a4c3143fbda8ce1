"""The kernels of both sides: what each took by either tool, what changed, and what of its counters explains it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from fiprof.analysis.comparison.changes import Change
from fiprof.analysis.comparison.factors import factors
from fiprof.analysis.comparison.hot_code import moved
from fiprof.analysis.comparison.pairing import Match, SideKernel, pair_kernels
from fiprof.analysis.instructions import Listing, listings
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.trace import sums
from fiprof.analysis.verdict.verdict import LaunchVerdict, verdicts
from fiprof.model.provenance import TracedNumber
from fiprof.model.quantities import QUANTITIES, STALL_SHARE, stall_share
from fiprof.model.run import Launch, Run
from fiprof.model.selection import Selection
from fiprof.text import functor, kernel_identity, short_kernel

if TYPE_CHECKING:
    import pyarrow as pa

# Of one side

Traced = dict[tuple[str, str], tuple[float, float]]
"""Kernel and full name -> executions and µs under nsys."""


def kernels_of_case(run: Run, case: str) -> list[SideKernel]:
    """The kernels of an iteration: medians over the iterations."""
    launches = run.launches_of(case)
    profiled = len({launch.iteration for launch in launches}) or 1
    return _joined(run.once(_of_iterations).get(case, {}), launches, profiled)


def kernels_of_program(run: Run) -> list[SideKernel]:
    """The kernels of the whole trace, all GPUs together, and those that ncu profiled."""
    return _joined(run.once(_of_trace), run.launches, 1)


def _of_trace(run: Run) -> Traced:
    names = ("kernel", "kernel_full")
    rows = _summed([sums(piece, names) for piece in run.pieces("kernels", (*names, "duration_ns"))], names)
    return {_names(row): (row["count"], row["ns"] / 1e3) for row in rows}


def _of_iterations(run: Run) -> dict[str, Traced]:
    """Case -> its kernels in an iteration of the phase ``measure``: mean executions, median time."""
    import pyarrow.compute as pc

    keys = ("case", "pid", "iteration", "kernel", "kernel_full")
    parts = []
    for piece in run.pieces("kernels", (*keys, "phase", "duration_ns")):
        inside = pc.and_(pc.equal(piece["phase"], "measure"), pc.is_valid(piece["iteration"]))
        parts.append(sums(piece.filter(inside), keys))
    iterations: dict[str, set[tuple[int, int]]] = defaultdict(set)
    by_kernel: dict[str, dict[tuple[str, str], list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in _summed(parts, keys):
        iterations[row["case"]].add((row["pid"], row["iteration"]))
        by_kernel[row["case"]][_names(row)].append((row["count"], row["ns"]))
    found: dict[str, Traced] = defaultdict(dict)
    for case, kernels in by_kernel.items():
        total = len(iterations[case])
        for names, rows in kernels.items():
            # In an iteration without the kernel it takes nothing.
            times_us = [ns / 1e3 for _, ns in rows] + [0.0] * (total - len(rows))
            found[case][names] = sum(count for count, _ in rows) / total, median(times_us)
    return found


def _summed(parts: Sequence[pa.Table], keys: Sequence[str]) -> list[dict[str, Any]]:
    import pyarrow as pa

    return sums(pa.concat_tables(parts).unify_dictionaries(), keys).to_pylist() if parts else []


def _names(row: dict[str, Any]) -> tuple[str, str]:
    return row["kernel"] or "", row["kernel_full"] or row["kernel"] or ""


def _joined(traced: Traced, launches: Sequence[Launch], profiled: int) -> list[SideKernel]:
    """What nsys and ncu saw of each kernel, by what is the same in their names. profiled: iterations under ncu."""
    found: dict[str, SideKernel] = {}
    for (kernel, full), (count, us) in traced.items():
        key = kernel_identity(kernel, full)
        known = found.get(key, SideKernel(kernel, full, 0.0, 0.0))
        found[key] = replace(known, count=known.count + count, nsys_us=(known.nsys_us or 0.0) + us)
    by_name: dict[str, list[Launch]] = defaultdict(list)
    for launch in launches:
        by_name[kernel_identity(launch.kernel, launch.kernel_full)].append(launch)
    for key, group in by_name.items():
        known = found.get(key, SideKernel(group[0].kernel, group[0].kernel_full, len(group) / profiled))
        shapes: dict[tuple[str, str], list[Launch]] = defaultdict(list)
        for launch in group:
            shapes[launch.grid, launch.block].append(launch)
        ordered = sorted(max(shapes.values(), key=_total_us), key=lambda launch: launch.duration_us or 0.0)
        found[key] = replace(known, ncu_us=_total_us(group) / profiled, launch=ordered[(len(ordered) - 1) // 2])
    return list(found.values())


def _total_us(launches: Iterable[Launch]) -> float:
    return sum(launch.duration_us or 0.0 for launch in launches)


# Of both


@dataclass(frozen=True)
class KernelChange:
    """A kernel on either side."""

    match: Match
    a: SideKernel | None
    b: SideKernel | None
    us: float
    """How much longer its executions take; by nsys where both sides have it, else by ncu."""
    verdicts: tuple[LaunchVerdict | None, LaunchVerdict | None] = (None, None)
    """Verdicts of the launches that stand for it; None where ncu saw none, or its numbers cannot be compared."""
    explained: tuple[Change, ...] = ()
    """What explains it: verdicts, the factors of these launches' times, counters, stall mix, hot code; of each the most
    time first."""

    @property
    def shown(self) -> SideKernel:
        """The side to name it by."""
        found = self.b or self.a
        assert found is not None
        return found

    @property
    def name(self) -> str:
        """``Kernel``, ``Kernel (Mul)``, ``Old → New``, ``Kernel (new)``."""
        applies = functor(self.shown.kernel_full)
        name = short_kernel(self.shown.kernel) + (f" ({applies})" if applies else "")
        if self.match is Match.REPLACED and self.a:
            return f"{short_kernel(self.a.kernel)} → {name}"
        return name if self.match is Match.SAME else f"{name} ({self.match.words})"

    @property
    def launch_us(self) -> float:
        """How much longer the launch that stands for it takes under ncu; 0 where one side has none."""
        a, b = (each.row.duration_us if each else None for each in self.verdicts)
        return 0.0 if a is None or b is None else b - a

    def because(self, about: str) -> list[Change]:
        """What explains it, of one form: factor, counter, stall, hot_code."""
        return [each for each in self.explained if each.about == about]

    def both(self, of: Callable[[SideKernel], float | None]) -> tuple[float | None, float | None]:
        """A number of both sides; None of one that does not have the kernel."""
        return of(self.a) if self.a else None, of(self.b) if self.b else None

    def changes(self, case: str | None = None) -> Iterator[Change]:
        """Its rows."""
        by = "nsys" if all(each is None or each.nsys_us is not None for each in (self.a, self.b)) else "ncu"
        a, b = self.both(lambda side: side.total_us)
        item = "iteration_us" if case else "total_us"
        time = Change("kernel", item, a, b, self.us, unit="µs", by=by)
        for each in (time, *self.explained):
            yield replace(each, case=case, kernel=self.shown.kernel, match=self.match)


def kernel_changes(a: Sequence[SideKernel], b: Sequence[SideKernel]) -> list[KernelChange]:
    """Every kernel of two sides, those that account for most of the change first, unexplained."""
    traced = all(any(each.nsys_us is not None for each in side) for side in (a, b))

    def us(each: SideKernel | None) -> float:
        return 0.0 if each is None else (each.nsys_us if traced else each.ncu_us) or 0.0

    found = [KernelChange(match, x, y, us(y) - us(x)) for x, y, match in pair_kernels(a, b)]
    return sorted(found, key=lambda each: (-abs(each.us), -us(each.shown), each.shown.kernel_full))


Evidence = tuple[LaunchVerdict, Listing | None]
"""A launch with its verdict, and its instructions where they were sampled."""


def explained(changes: Sequence[KernelChange], a: Run, b: Run, most: int) -> list[KernelChange]:
    """The changes, the first ``most`` with what explains them, by ncu."""
    head = changes[:most]
    of_a, of_b = _evidence(a, [each.a for each in head]), _evidence(b, [each.b for each in head])
    found = [
        _explained(change, (_of(change.a, of_a), _of(change.b, of_b)), (a, b)) for change in head
    ]  # fmt: skip
    return [*found, *changes[most:]]


def _of(side: SideKernel | None, evidence: dict[int, Evidence]) -> Evidence | None:
    return evidence.get(side.launch.launch) if side and side.launch else None


def _evidence(run: Run, sides: Sequence[SideKernel | None]) -> dict[int, Evidence]:
    wanted = tuple(side.launch.launch for side in sides if side and side.launch)
    if not wanted:
        return {}
    columns = ("launch", "address", "sass", "samples", "top_reason", "source_file", "source_line")
    sampled = dict(listings(run.table("hotspots", columns), wanted)) if run.has("hotspots") else {}
    judged = verdicts(run, wanted=Selection(launches=wanted)).launches
    return {each.launch: (each, sampled.get(each.launch)) for each in judged}


def _explained(
    change: KernelChange, sides: tuple[Evidence | None, Evidence | None], runs: tuple[Run, Run]
) -> KernelChange:
    a, b = (each and each[0] for each in sides)
    rows = []
    if a or b:
        of_sides = [_verdict(each) if each else {} for each in (a, b)]
        items = ("kind", "part", "confidence", "occupancy_limiters")
        rows = [Change("verdict", item, of_sides[0].get(item), of_sides[1].get(item)) for item in items]
    if a and b:
        rows += factors((runs[0], a.row), (runs[1], b.row))
    for quantity in QUANTITIES.values():
        x, y = (each.row.traced(quantity) if each else None for each in (a, b))
        if x is not None or y is not None:
            rows.append(Change("counter", quantity.key, x, y, unit=quantity.unit))
    mixes = [_mix(run, each) if each else {} for run, each in zip(runs, (a, b), strict=True)]
    for reason in {**mixes[0], **mixes[1]}:
        rows.append(Change("stall", reason, mixes[0].get(reason), mixes[1].get(reason), unit=STALL_SHARE.unit))
    if sides[0] and sides[1] and sides[0][1] and sides[1][1]:
        times = (each[0].row.duration_us or 0.0 for each in sides if each)
        rows += moved(sides[0][1], sides[1][1], *times)
    return replace(change, verdicts=(a, b), explained=tuple(rows))


def _verdict(of: LaunchVerdict) -> dict[str, Any]:
    limiters = occupancy(of.row).limiters
    return {"kind": of.kind, "part": of.part, "confidence": of.confidence, "occupancy_limiters": limiters}


def _mix(run: Run, of: LaunchVerdict) -> dict[str, TracedNumber]:
    """Stall reason -> its share."""
    reasons = run.stall_reasons.get(of.launch, ())
    return {each.reason: stall_share(of.row, each.reason, each.share) for each in reasons if each.share}
