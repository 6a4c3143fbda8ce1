"""The kernels of both sides: which of B is which of A, their times by either tool, and which counters explain a change.

Everything that is compared is a :class:`Change`; together they are the one table of a comparison.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from statistics import median
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from fiprof.analysis.frames import Row, columns
from fiprof.analysis.instructions import Listing, listings
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.sass import parse
from fiprof.analysis.trace import sums
from fiprof.analysis.verdict.verdict import LaunchVerdict, verdicts
from fiprof.model.arrays import finite
from fiprof.model.finding import Wording, plain
from fiprof.model.quantities import DURATION, QUANTITIES, STALL_SHARE, Formula, stall_share
from fiprof.model.ranks import COLLECTIVE
from fiprof.model.run import Launch, Run
from fiprof.model.selection import Selection, by_key
from fiprof.text import functor, kernel_detail, kernel_identity, short_kernel

COLUMNS = columns("compare")


@dataclass(frozen=True)
class Change:
    """A value of either side, and how much longer side B takes because of it: a row of COLUMNS."""

    about: str
    item: str | None = None
    a: Any = None  # a number, a traced one, or an enum
    b: Any = None
    accounts_us: float | None = None
    unit: str | None = None
    by: str | None = None
    case: str | None = None
    rank: int | None = None
    device: int | None = None
    range: str | None = None
    call: str | None = None
    kernel: str | None = None
    match: str | None = None
    detail: Any = None
    """Not in JSON: the kind of a factor, the executions in a range, the place and stall of hot code."""

    @property
    def change(self) -> float | None:
        """B - A, in the row's unit; None where one of them is not a number."""
        a, b = plain(self.a), plain(self.b)
        return b - a if isinstance(a, float) and isinstance(b, float) else None

    @property
    def us(self) -> float:
        """How much longer side B takes because of it; 0 where that is not known."""
        return self.accounts_us or 0.0


@dataclass(frozen=True)
class SideKernel:
    """A kernel of one side, of an iteration of a case, or of a program's compared part or step."""

    kernel: str
    kernel_full: str
    count: float  # executions, on average
    nsys_us: float | None = None  # time of all executions under nsys
    ncu_us: float | None = None  # time of all launches that ncu profiled
    launch: Launch | None = None  # under ncu, the launch of median time among those of the shape that takes most time

    @property
    def total_us(self) -> float:
        """Time of all executions by nsys, else by ncu."""
        return self.ncu_us or 0.0 if self.nsys_us is None else self.nsys_us

    def divided(self, steps: float) -> Self:
        """The kernel in one of so many steps (or GPUs), by nsys."""
        us = None if self.nsys_us is None else self.nsys_us / steps
        return replace(self, count=self.count / steps, nsys_us=us)

    @property
    def mean_us(self) -> float | None:
        """Mean time of an execution under nsys."""
        return None if self.nsys_us is None or not self.count else self.nsys_us / self.count


Traced = list[tuple[tuple[str, str], float, float]]  # kernel and full name, executions and µs under nsys


def kernels_of_case(run: Run, case: str) -> list[SideKernel]:
    """The kernels of an iteration of a case, the median over the iterations."""
    launches = run.launches_of[case]
    profiled = len({launch.iteration for launch in launches}) or 1
    return _joined(run.once(_of_iterations).get(case, []), launches, profiled)


def kernels_of_program(run: Run, traced: Sequence[Row] = ()) -> list[SideKernel]:
    """The kernels of a program, all GPUs together, with launches under ncu. traced: rows of ``top.KERNELS``."""
    return _joined([(_names(row), row["count"], row["total_ns"] / 1e3) for row in traced], run.launches, 1)


def _of_iterations(run: Run) -> dict[str, Traced]:
    """Case -> its kernels in an iteration of the phase ``measure``: mean executions, median time."""
    keys = ("case", "pid", "iteration", "kernel", "kernel_full")
    parts = []
    for piece in run.pieces("kernels", (*keys, "phase", "duration_ns")):
        inside = pc.and_(pc.equal(piece["phase"], "measure"), pc.is_valid(piece["iteration"]))
        parts.append(sums(piece.filter(inside), keys))
    iterations: dict[str, set[tuple[int, int]]] = defaultdict(set)
    by_kernel: dict[str, dict[tuple[str, str], list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in sums(pa.concat_tables(parts).unify_dictionaries(), keys).to_pylist() if parts else ():
        iterations[row["case"]].add((row["pid"], row["iteration"]))
        by_kernel[row["case"]][_names(row)].append((row["count"], row["ns"]))
    of_case: dict[str, Traced] = defaultdict(list)
    for case, kernels in by_kernel.items():
        total = len(iterations[case])
        for names, rows in kernels.items():
            # In an iteration without the kernel its time is 0.
            times_us = [ns / 1e3 for _, ns in rows] + [0.0] * (total - len(rows))
            of_case[case].append((names, sum(count for count, _ in rows) / total, median(times_us)))
    return of_case


def _names(row: dict[str, Any]) -> tuple[str, str]:
    return row["kernel"] or "", row["kernel_full"] or row["kernel"] or ""


def _joined(traced: Traced, launches: Sequence[Launch], profiled: int) -> list[SideKernel]:
    """Kernels under nsys joined with launches under ncu, by :func:`kernel_identity`. profiled: iterations under ncu."""
    joined: dict[str, SideKernel] = {}
    for (kernel, full), count, us in traced:
        key = kernel_identity(kernel, full)
        so_far = joined.get(key, SideKernel(kernel, full, 0.0, 0.0))
        joined[key] = replace(so_far, count=so_far.count + count, nsys_us=(so_far.nsys_us or 0.0) + us)

    def total_us(group: Iterable[Launch]) -> float:
        return sum(launch.duration_us or 0.0 for launch in group)

    by_name = by_key((kernel_identity(launch.kernel, launch.kernel_full), launch) for launch in launches)
    for key, group in by_name.items():
        so_far = joined.get(key, SideKernel(group[0].kernel, group[0].kernel_full, len(group) / profiled))
        shapes = by_key(((launch.grid, launch.block), launch) for launch in group)
        ordered = sorted(max(shapes.values(), key=total_us), key=lambda launch: launch.duration_us or 0.0)
        joined[key] = replace(so_far, ncu_us=total_us(group) / profiled, launch=ordered[(len(ordered) - 1) // 2])
    return list(joined.values())


SAME_COUNT, AS_LONG, MAIN = 1e-3, 1.05, 0.75
"""Where a kernel replaces another: relative difference of their executions at most; ratio of their mean times at most,
to be preferred; and share of the time of all kernels with as many executions at least."""


class Match(Wording):
    """How a kernel of one side corresponds to one of the other."""

    SAME = "same"  # by its name, the functor and the numbers among its template arguments
    RENAMED = "renamed", "other template arguments"  # by its name and functor
    REPLACED = "replaced"
    """Neither has another counterpart; both have as many executions and most of the time of the kernels with so many,
    or each has at least half of its side's time."""
    NEW = "new"  # only side B has it
    GONE = "gone"  # only side A has it


_SAME_KERNEL: tuple[tuple[Match, Callable[[SideKernel], str]], ...] = (
    (Match.SAME, lambda each: each.kernel_full),
    # Names differ between nsys and ncu, and between builds.
    (Match.SAME, lambda each: kernel_identity(each.kernel, each.kernel_full)),
    (Match.RENAMED, lambda each: f"{each.kernel} {functor(each.kernel_full)}"),
)
"""How kernels match -> what is then the same in both names; tried in this order."""


def pair_kernels(
    a: Sequence[SideKernel], b: Sequence[SideKernel]
) -> list[tuple[SideKernel | None, SideKernel | None, Match]]:
    """Each kernel of A with its counterpart in B, then those without one. Where several match (both sides run three
    instances of a template), the longest of each side are a pair, then the second longest, and so on."""
    left_a, left_b = (sorted(side, key=lambda each: (-each.total_us, each.kernel_full)) for side in (a, b))
    pairs: list[tuple[SideKernel | None, SideKernel | None, Match]] = []

    def pair(one: SideKernel, other: SideKernel, match: Match) -> None:
        pairs.append((one, other, match))
        left_a.remove(one)
        left_b.remove(other)

    for match, key in _SAME_KERNEL:
        rest_b = by_key((key(each), each) for each in left_b)
        for each in tuple(left_a):
            if others := rest_b.get(key(each)):
                pair(each, others.pop(0), match)
    for at_most in (AS_LONG, math.inf):
        for each in tuple(left_a):
            rivals, others = ([of for of in side if _may_replace(each, of, at_most)] for side in (left_a, left_b))
            if others and each is _dominant(rivals) and (other := _dominant(others)):
                pair(each, other, Match.REPLACED)
    if left_a and left_b and _may_replace(left_a[0], left_b[0]):
        halves = [sum(each.total_us for each in side) / 2 for side in (a, b)]
        if left_a[0].total_us >= halves[0] and left_b[0].total_us >= halves[1]:
            pair(left_a[0], left_b[0], Match.REPLACED)
    return [*pairs, *((each, None, Match.GONE) for each in left_a), *((None, each, Match.NEW) for each in left_b)]


def _may_replace(a: SideKernel, b: SideKernel, at_most: float | None = None) -> bool:
    """Whether b may have replaced a: both communicate or neither does, and neither has over twice the executions.

    at_most: both have as many executions, and the ratio of their mean times is no larger than this.
    """
    if bool(COLLECTIVE.search(a.kernel)) != bool(COLLECTIVE.search(b.kernel)):
        return False
    if at_most is None:
        return max(a.count, b.count) <= 2 * min(a.count, b.count)
    times = a.mean_us or 0.0, b.mean_us or 0.0
    return math.isclose(a.count, b.count, rel_tol=SAME_COUNT) and 0 < max(times) <= at_most * min(times)


def _dominant(kernels: Sequence[SideKernel]) -> SideKernel | None:
    """The kernel with at least MAIN of their time; None where none has."""
    longest = max(kernels, key=lambda each: each.total_us)
    return longest if longest.total_us >= MAIN * sum(each.total_us for each in kernels) else None


@dataclass(frozen=True)
class KernelChange:
    """A kernel of both sides, or of one, and what explains its change."""

    match: Match
    a: SideKernel | None
    b: SideKernel | None
    us: float  # how much longer its executions take on side B; by nsys where both sides have it, else by ncu
    verdicts: tuple[LaunchVerdict | None, LaunchVerdict | None] = (None, None)
    """Verdicts of each side's representative launch; None where ncu saw none, or its numbers cannot be compared."""
    explained: tuple[Change, ...] = ()
    """Of these launches the verdicts, the factors of their times, counters, stalls and hot code; each kind by time."""

    @property
    def shown(self) -> SideKernel:
        """The kernel to name the pair by: side B's, else side A's."""
        kernel = self.b or self.a
        assert kernel is not None
        return kernel

    @property
    def shown_name(self) -> str:
        """``Kernel``, ``Kernel (Mul)``."""
        applies = kernel_detail(self.shown.kernel_full)
        return short_kernel(self.shown.kernel) + (f" ({applies})" if applies else "")

    @property
    def name(self) -> str:
        """``Kernel``, ``Kernel (Mul)``, ``Old → New``, ``Kernel (new)``."""
        name = self.shown_name
        if self.match is Match.REPLACED and self.a:
            return f"{short_kernel(self.a.kernel)} → {name}"
        return name if self.match is Match.SAME else f"{name} ({self.match.words})"

    @property
    def launch_us(self) -> float:
        """How much longer the representative launch takes under ncu; 0 where a side has none."""
        a, b = (each.row.duration_us if each else None for each in self.verdicts)
        return 0.0 if a is None or b is None else b - a

    def because(self, about: str) -> list[Change]:
        """The explanations of one kind: factor, counter, stall or hot_code."""
        return [each for each in self.explained if each.about == about]

    def both(self, of: Callable[[SideKernel], float | None]) -> tuple[float | None, float | None]:
        """A number of each side's kernel; None for a side without it."""
        return of(self.a) if self.a else None, of(self.b) if self.b else None

    def changes(self, case: str | None = None) -> Iterator[Change]:
        by = "nsys" if all(each is None or each.nsys_us is not None for each in (self.a, self.b)) else "ncu"
        a, b = self.both(lambda side: side.total_us)
        item = "iteration_us" if case else "total_us"
        time = Change("kernel", item, a, b, self.us, unit="µs", by=by)
        for each in (time, *self.explained):
            yield replace(each, case=case, kernel=self.shown.kernel, match=self.match)


def kernel_changes(a: Sequence[SideKernel], b: Sequence[SideKernel]) -> list[KernelChange]:
    """Every kernel of two sides, the largest change first, without explanations."""
    traced = all(any(each.nsys_us is not None for each in side) for side in (a, b))

    def us(each: SideKernel | None) -> float:
        return 0.0 if each is None else (each.nsys_us if traced else each.ncu_us) or 0.0

    changes = [KernelChange(match, x, y, us(y) - us(x)) for x, y, match in pair_kernels(a, b)]
    return sorted(changes, key=lambda each: (-abs(each.us), -us(each.shown), each.shown.kernel_full))


def explained(changes: Sequence[KernelChange], a: Run, b: Run, most: int) -> list[KernelChange]:
    """The changes, the first ``most`` of them with explanations by ncu."""
    columns = ("launch", "address", "sass", "samples", "top_reason", "source_file", "source_line")
    judged: list[dict[int, LaunchVerdict]] = []  # of each side, by launch
    sampled: list[dict[int, Listing]] = []  # likewise
    head = changes[:most]
    for run, sides in ((a, [each.a for each in head]), (b, [each.b for each in head])):
        profiled = tuple(side.launch.launch for side in sides if side and side.launch)
        of_side = verdicts(run, wanted=Selection(launches=profiled)).launches if profiled else ()
        judged.append({each.launch: each for each in of_side})
        has_code = profiled and run.has("hotspots")
        sampled.append(dict(listings(run.table("hotspots", columns), profiled)) if has_code else {})
    explained_changes = []
    for change in head:
        launches = [side.launch.launch if side and side.launch else -1 for side in (change.a, change.b)]
        x, y = (each.get(launch) for each, launch in zip(judged, launches, strict=True))
        rows = [*_compared(a, b, x, y)]
        codes = [each.get(launch) for each, launch in zip(sampled, launches, strict=True)]
        if x and y and codes[0] and codes[1]:
            rows += moved(codes[0], codes[1], x.row.duration_us or 0.0, y.row.duration_us or 0.0)
        explained_changes.append(replace(change, verdicts=(x, y), explained=tuple(rows)))
    return [*explained_changes, *changes[most:]]


def _compared(run_a: Run, run_b: Run, a: LaunchVerdict | None, b: LaunchVerdict | None) -> Iterator[Change]:
    """The changes of two launches' verdicts, factors, counters and stalls."""
    if a or b:
        for item in ("kind", "part", "confidence"):
            yield Change("verdict", item, getattr(a, item, None), getattr(b, item, None))
        limiters = [occupancy(each.row).limiters if each else None for each in (a, b)]
        yield Change("verdict", "occupancy_limiters", limiters[0], limiters[1])
    if a and b:
        yield from factors((run_a, a.row), (run_b, b.row))
    for quantity in QUANTITIES.values():
        x, y = (each.row.traced(quantity) if each else None for each in (a, b))
        if x is not None or y is not None:
            yield Change("counter", quantity.key, x, y, unit=quantity.unit)
    mixes = [
        {
            reason.reason: stall_share(each.row, reason.reason, reason.share)
            for reason in (run.stall_reasons.get(each.launch, ()) if each else ())
            if each and reason.share
        }
        for run, each in ((run_a, a), (run_b, b))
    ]
    for name in {**mixes[0], **mixes[1]}:
        yield Change("stall", name, mixes[0].get(name), mixes[1].get(name), unit=STALL_SHARE.unit)


class FactorKind(Wording):
    """What a launch's time is made of."""

    INSTRUCTIONS = "instructions", "instructions a scheduler"  # more of them take more time
    STALL = "stall", "cycles an instruction: {reason} ({reason.short})"
    """Cycles that a warp spends in a stall reason for each instruction."""
    WARPS = "warps", "warps in flight a scheduler"
    """Warps that a scheduler has while it has any: the more, the more of their cycles overlap."""
    ACTIVE = "active", "share with a warp on the SM"
    """Share of the launch, 0 to 1, in which the average multiprocessor has a warp."""
    CLOCK = "clock", "SM clock, GHz"
    REST = "rest", "counters do not add up"  # the part that no counter accounts for: each is of another replay


_PRODUCT = {
    # Of a scheduler: there are four a multiprocessor, since compute capability 7.0. Where instructions were not
    # counted, those issued: a few more, where one is issued again.
    FactorKind.INSTRUCTIONS: Formula(
        "first(instructions / multiprocessors / 4, issue_active_pct / 100 * sm_active_cycles)"
    ),
    FactorKind.WARPS: Formula("active_warps_per_scheduler"),
    FactorKind.ACTIVE: Formula("sm_active_cycles / cycles"),
    FactorKind.CLOCK: Formula("cycles / duration_ns"),
}
"""The factors of a launch's time besides the cycles an instruction."""


def factors(a: tuple[Run, Launch], b: tuple[Run, Launch]) -> list[Change]:
    """Why launch b takes another time than launch a, the largest part first; empty where a counter is missing, or a
    launch had no work. The detail of each part is its kind.

    A launch's time is a product: instructions of a scheduler, times cycles between two of them, over the share of the
    launch in which multiprocessors work, over the clock. The cycles between two instructions are the cycles that a warp
    takes for one, a sum over stall reasons, over the warps of a scheduler. The difference of two products is split by
    the logarithmic mean (LMDI-I; Ang, Energy Policy 33, 2005): the parts sum to the difference of the durations, and
    exchanging a and b changes their signs alone.
    """
    sides: list[tuple[float, dict[FactorKind, float], dict[str, float]]] = []
    for run, launch in (a, b):
        values = {kind: value for kind, of in _PRODUCT.items() if (value := of.value(launch)) is not None}
        reasons = run.stall_reasons.get(launch.launch, ())
        cycles = {each.reason: each.warps_per_issue for each in reasons if each.warps_per_issue}
        us = DURATION.of(launch)
        positive = all(0 < each < math.inf for each in (us or 0.0, *values.values(), *cycles.values()))
        if us is None or len(values) < len(_PRODUCT) or not cycles or not positive:
            return []
        sides.append((us, values, cycles))
    (a_us, a_parts, a_cycles), (b_us, b_parts, b_cycles) = sides
    a_latency, b_latency = sum(a_cycles.values()), sum(b_cycles.values())
    time = log_mean(a_us, b_us)
    per_cycle = time / log_mean(a_latency, b_latency)
    changes, rest = [], math.log(b_us / a_us) - math.log(b_latency / a_latency)
    for kind, x in a_parts.items():
        y = b_parts[kind]
        log = math.log(y / x) if kind is FactorKind.INSTRUCTIONS else math.log(x / y)
        rest -= log
        changes.append(Change("factor", kind, x, y, time * log, by="ncu", detail=kind))
    changes.append(Change("factor", FactorKind.REST, accounts_us=time * rest, by="ncu", detail=FactorKind.REST))
    for reason in {**a_cycles, **b_cycles}:
        x, y = a_cycles.get(reason, 0.0), b_cycles.get(reason, 0.0)
        changes.append(Change("factor", reason, x, y, per_cycle * (y - x), by="ncu", detail=FactorKind.STALL))
    return sorted(changes, key=lambda each: (-abs(each.us), each.detail, each.item))


def log_mean(x: float, y: float) -> float:
    """The logarithmic mean of two positive numbers: (x - y) / ln(x / y), and x where they are equal."""
    # Near 1 the quotient loses its digits; there the arithmetic mean is as good (its error is of second order).
    return (x + y) / 2 if abs(x - y) <= 1e-6 * x else (x - y) / math.log(x / y)


LEAST_MOVED = 0.01  # share of a launch's time that a place in the code gains or loses at least, to be a row


def moved(a: Listing, b: Listing, a_us: float, b_us: float) -> list[Change]:
    """The places in the code that gained or lost samples, the most time first: each side's share of the launch's
    samples, and how much longer launch b is there.

    Places are source lines (``file.cuh:123``) where both sides have them, instructions (``+0x120 LDG.E.128``) where
    both have the same code, else opcodes. a_us, b_us: durations of the launches. The detail of each is the kind of
    place in words, and the stall reason of most samples on the side with more of them; None where that is not known.
    """
    if not a.total or not b.total:
        return []
    by, places = "source line", [_lines(each) for each in (a, b)]
    if not all(any(each) for each in places):
        places = [[".".join((line.opcode, *line.modifiers)) for line in map(parse, each.code.lines)] for each in (a, b)]
        by = "opcode"
        if a.code.lines == b.code.lines:
            by = "instruction"
            offsets = (each.code.offsets for each in (a, b))
            places = [
                [f"+{at:#x} {name}" for at, name in zip(*each, strict=True)]
                for each in zip(offsets, places, strict=True)
            ]
    samples: list[dict[str, Counter[str | None]]] = []  # of each side: place -> stall reason -> samples
    for side, names in zip((a, b), places, strict=True):
        reasons = side.reasons if "top_reason" in side.rows.column_names else [None] * len(names)
        samples.append(defaultdict(Counter))
        for where, count, reason in zip(names, side.samples, reasons, strict=True):
            if where is not None and count:
                samples[-1][where][reason] += count
    changes = []
    for where in {**samples[0], **samples[1]}:
        x, y = (of[where].total() / side.total for side, of in zip((a, b), samples, strict=True))
        us = y * b_us - x * a_us
        if abs(us) >= LEAST_MOVED * max(a_us, b_us):
            waits = (reason for reason, _ in samples[us >= 0][where].most_common() if reason)
            changes.append(Change("hot_code", where, x, y, us, by="ncu", detail=(by, next(waits, None))))
    return sorted(changes, key=lambda each: (-abs(each.us), each.item))


def _lines(of: Listing) -> list[str | None]:
    """The source line of each instruction; empty where the page has none."""
    if not {"source_file", "source_line"} <= set(of.rows.column_names):
        return []
    files, lines = (finite(of.rows[name]) for name in ("source_file", "source_line"))
    return [f"{PurePath(file).name}:{line}" if file and line else None for file, line in zip(files, lines, strict=True)]
