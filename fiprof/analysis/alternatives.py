"""The same problem solved in another way: which of the cases measured beside each other is the fastest.

A parameter either defines the problem (sizes, heads, element types, the mask) or is an option of solving it (tensor
cores, a backend, the page size). Packs declare which, once: ``options`` and ``problem`` of a workload's
:class:`~fiprof.model.kernel_info.KernelInfo`. A parameter that nobody declares defines the problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fiprof.analysis import intervals
from fiprof.analysis.ratio import Direction, Ratio, ratio
from fiprof.analysis.thresholds import SINGLE_ROUND, WAITING, WORTH_CHANGING
from fiprof.model import case_quantities, kernel_info
from fiprof.model.finding import Finding
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.records import Baseline
from fiprof.model.results import Times
from fiprof.model.run import Run
from fiprof.model.wording import Worded

Value = bool | int | float | str


WORKLOAD = "workload"
"""Name of a change of the workload itself."""


class Changed(Worded):
    """What another case changes."""

    PARAMETER = "parameter", "{instead_name} instead of {value_name}"
    WORKLOAD = "workload", "the workload {instead} instead of {value}"


class Observed(Worded):
    """What a difference was held against."""

    ROUNDS = "rounds", "over {count:round|rounds}"
    """The spread between the rounds of both cases, without a profiler."""
    PROCESSES = "processes", "in {count:process|processes} of a single round"
    """Of a single round: the same factor under the other tools, which repeat the cases in processes of their own."""


class Measure(Worded):
    """Whose time was compared."""

    GPU = "gpu", ""
    """Of an iteration on the GPU, without a profiler."""
    LOOP = "loop", " of a loop on the host"
    """Of an iteration as a loop on the host sees it, where the GPU waits for the host for most of it."""


class Timed(Protocol):
    """A case with its times: a :class:`~fiprof.model.results.CaseResult`, or a :class:`TimedCase` of a run."""

    @property
    def id(self) -> str: ...
    @property
    def workload(self) -> str: ...
    @property
    def params(self) -> Mapping[str, Value]: ...
    @property
    def run(self) -> str:
        """Name of the run; its cases were measured in one process a tool."""

    @property
    def plain(self) -> Times | None:
        """On the GPU, without a profiler."""

    @property
    def wall(self) -> Times | None:
        """In a loop on the host; None for a single round."""

    @property
    def wall_us(self) -> float | None: ...
    @property
    def waiting_pct(self) -> float | None:
        """Of ``wall_us``, in which the GPU waits for the host."""

    @property
    def nsys(self) -> Times | None: ...
    @property
    def ncu_us(self) -> float | None: ...


@dataclass(frozen=True)
class TimedCase:
    """A case of a run with its times."""

    id: str
    workload: str
    params: Mapping[str, Value]
    run: str
    plain: Times | None
    wall: Times | None
    wall_us: float | None
    waiting_pct: float | None
    nsys: Times | None
    ncu_us: float | None


@dataclass(frozen=True)
class Change:
    """A parameter whose value another case changes; or the workload itself, by the name WORKLOAD."""

    name: str
    value: Value
    """In the case."""
    instead: Value
    """In the other."""

    @property
    def finding(self) -> Finding:
        """For sentences and JSON."""
        kind = Changed.WORKLOAD if self.name == WORKLOAD else Changed.PARAMETER
        known = kernel_info.of_parameter(self.name)
        names = {
            "instead_name": known.named(self.name, self.instead),
            "value_name": known.named(self.name, self.value),
        }
        return Finding(kind, {"name": self.name, "value": self.value, "instead": self.instead, **names})


@dataclass(frozen=True)
class Difference:
    """How much faster one case is than another, where that is certain."""

    factor: Ratio
    """Time of the slower case over that of the faster one; with its interval."""
    observed: Observed
    count: int
    """Rounds, the fewer of the two cases; or processes."""


@dataclass(frozen=True)
class Alternative:
    """The fastest case of the same process that solves a case's problem."""

    case: str
    """Case id."""
    instead: str
    """Id of the faster case."""
    changes: tuple[Change, ...]
    """What differs between the two."""
    measure: Measure
    difference: Difference
    time: TracedNumber
    """Of an iteration without a profiler, µs."""
    instead_time: TracedNumber

    @property
    def factor(self) -> Ratio:
        return self.difference.factor

    @property
    def saving_pct(self) -> float:
        """Measured, percent of the case's time."""
        return 100 * (1 - 1 / self.factor.value)

    @property
    def traced_factor(self) -> TracedNumber:
        return self.time / self.instead_time


T = TypeVar("T", bound=Timed)


# Problems


def problem(workload: str, params: Mapping[str, Value]) -> tuple[str, frozenset[tuple[str, str, Value]]]:
    """What a case solves: equal for two cases that differ in options of solving alone."""
    known = kernel_info.of_workload(workload)
    options = known.options if known else {}
    defining = frozenset(
        (name, type(value).__name__, value)
        for name, value in params.items()
        if name not in options or value not in (options[name] or [value])
    )
    return (known.problem if known else "") or workload, defining


def by_problem(cases: Iterable[T]) -> list[tuple[T, ...]]:
    """The cases with a plain time that solve the same problem in the same process, the fastest first."""
    found: dict[object, list[tuple[float, T]]] = {}
    for case in cases:
        if case.plain is not None:
            found.setdefault((case.run, problem(case.workload, case.params)), []).append((case.plain.median_us, case))
    return [tuple(case for _, case in sorted(members, key=lambda item: item[0])) for members in found.values()]


def changes(case: Timed, instead: Timed) -> tuple[Change, ...]:
    """In what two cases of a problem differ."""
    workloads = [Change(WORKLOAD, case.workload, instead.workload)] if case.workload != instead.workload else []
    return (
        *workloads,
        *(
            Change(name, value, instead.params[name])
            for name, value in case.params.items()
            if name in instead.params and instead.params[name] != value
        ),
    )


def alternative(case: Timed, others: Sequence[Timed]) -> Alternative | None:
    """The fastest of the other cases of the same problem and process; None where none is certain to be faster.

    On the GPU, save where the GPU waits for the host for most of an iteration (WAITING): then in a loop. It must not be
    slower in a loop in either case: a kernel launched from a CUDA graph is not. Of cases that are as fast as each other
    (within WORTH_CHANGING) it is the one that changes least.
    """
    measure = Measure.LOOP if (case.waiting_pct or 0) >= WAITING.value else Measure.GPU
    timed = [(times, other) for other in others if (times := _times(other, measure)) is not None]
    if measure is Measure.GPU:
        timed = [(times, other) for times, other in timed if not _slower_in_a_loop(case, other)]
    if not timed or (own := _times(case, measure)) is None:
        return None
    most_us = min(times.median_us for times, _ in timed) * (1 + WORTH_CHANGING.share)
    fastest = [(times, other) for times, other in timed if times.median_us <= most_us]
    times, instead = min(fastest, key=lambda item: (len(changes(case, item[1])), item[0].median_us))
    certain = difference(case, instead, measure)
    if certain is None:
        return None
    time, instead_time = (_traced(each.id, measure, of) for each, of in ((case, own), (instead, times)))
    return Alternative(case.id, instead.id, changes(case, instead), measure, certain, time, instead_time)


def _times(case: Timed, measure: Measure) -> Times | None:
    return case.plain if measure is Measure.GPU else case.wall


def _slower_in_a_loop(case: Timed, other: Timed) -> bool:
    return bool(case.wall_us and other.wall_us and case.wall_us < other.wall_us * (1 + WORTH_CHANGING.share))


def difference(slow: Timed, fast: Timed, measure: Measure = Measure.GPU) -> Difference | None:
    """How much faster one case is than another; None where it is not, or that is not certain.

    It is where the interval of the factor lies above 1 (:func:`fiprof.analysis.ratio.ratio`, from the medians of the
    rounds) and the factor is worth a change (WORTH_CHANGING). A single round cannot tell how rounds differ: then the
    factor has to stand in the other processes of the run too (nsys's, ncu's), and to exceed SINGLE_ROUND in each.
    """
    own, other = _times(slow, measure), _times(fast, measure)
    if own is None or other is None:
        return None
    observed, count, factor = Observed.ROUNDS, min(own.rounds, other.rounds), ratio(own, other)
    if count < 2:
        observed, (factor, count) = Observed.PROCESSES, _in_processes(slow, fast)
    if factor is None or factor.direction is not Direction.MORE or factor.value < 1 + WORTH_CHANGING.share:
        return None
    if observed is Observed.PROCESSES and factor.low < 1 + SINGLE_ROUND.share:
        return None
    return Difference(factor, observed, count)


def _in_processes(case: Timed, instead: Timed) -> tuple[Ratio | None, int]:
    """The plain factor with the range of it over the run's processes, and how many they are."""
    pairs = [
        (each and each.median_us, other and other.median_us)
        for each, other in ((case.plain, instead.plain), (case.nsys, instead.nsys))
    ]
    factors = [one / other for one, other in (*pairs, (case.ncu_us, instead.ncu_us)) if one and other]
    if len(factors) < 2:
        return None, len(factors)
    return Ratio(factors[0], min(factors), max(factors), intervals.interval(factors)[2]), len(factors)


def plain_time(case: Timed) -> TracedNumber | None:
    """Median of an iteration without a profiler, µs."""
    return _traced(case.id, Measure.GPU, case.plain) if case.plain else None


def _traced(case: str, measure: Measure, times: Times) -> TracedNumber:
    formula = "median(round_us)" if measure is Measure.GPU else "wall_us"
    return TracedNumber(times.median_us, Provenance("plain", formula, case=case), ",.2f", " µs")


def of_cases(cases: Iterable[Timed]) -> dict[str, Alternative]:
    """Case id -> its fastest alternative; only cases that have one."""
    return {
        case.id: found
        for solving in by_problem(cases)
        for case in solving
        if (found := alternative(case, [other for other in solving if other is not case])) is not None
    }


# A run's


def of_run(run: Run) -> Mapping[str, Alternative]:
    """Case id -> its fastest alternative in the run; only cases that have one."""
    return run.once(_of_run)


def _of_run(run: Run) -> Mapping[str, Alternative]:
    return of_cases(run.once(timed))


def timed(run: Run) -> list[TimedCase]:
    """A run's cases with their times."""
    found = []
    for case in run.cases:
        baseline, traced = run.baseline.get(case.id), run.trace.cases.get(case.id)
        found.append(
            TimedCase(
                id=case.id,
                workload=case.workload,
                params=case.params,
                run=run.manifest.name,
                plain=intervals.times(baseline.gpu_us, baseline.rounds) if baseline else None,
                wall=wall_times(baseline),
                wall_us=case_quantities.WALL.of(run, case.id),
                waiting_pct=case_quantities.WAITING.of(run, case.id),
                nsys=intervals.times(traced.iterations_us if traced else (), run.settings.rounds),
                ncu_us=case_quantities.NCU.of(run, case.id),
            )
        )
    return found


def wall_times(baseline: Baseline | None) -> Times | None:
    """Host time of an iteration over the rounds; None for fewer than two."""
    rounds = baseline.wall_rounds_us if baseline else ()
    return intervals.times(rounds, len(rounds)) if len(rounds) > 1 else None
