"""The same problem solved in another way: which of the cases measured beside each other is the fastest.

A parameter either defines the problem (sizes, heads, element types, the mask) or is an option of solving it (tensor
cores, a backend, the page size). Packs declare which, once: ``options`` and ``problem`` of a workload's
:class:`~fiprof.model.packs.KernelInfo`. A parameter that is not declared defines the problem.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fiprof.analysis.ratio import Direction, Ratio, interval, ratio, times
from fiprof.analysis.thresholds import SINGLE_ROUND, WAITING, WORTH_CHANGING
from fiprof.model import case_quantities, packs
from fiprof.model.finding import Finding, Provenance, TracedNumber, Wording, finding
from fiprof.model.manifest import CaseEntry
from fiprof.model.packs import Value
from fiprof.model.results import CaseResult, CaseTimes
from fiprof.model.run import Run, once
from fiprof.model.selection import by_key

WORKLOAD = "workload"  # name of a change of the workload itself


class Measure(Wording):
    """Whose time was compared."""

    GPU = "gpu", ""  # an iteration on the GPU, without a profiler
    LOOP = "loop", " of a loop on the host"
    """An iteration as a loop on the host sees it, where the GPU waits for the host for most of it."""


class ParameterChange(NamedTuple):
    """A parameter whose value another case changes; or the workload itself, by the name WORKLOAD."""

    name: str
    value: Value  # in the case
    instead: Value  # in the other

    @property
    def finding(self) -> Finding:
        """For sentences and JSON."""
        about = packs.of_parameter(self.name)
        kind, words = "parameter", "{instead_name} instead of {value_name}"
        if self.name == WORKLOAD:
            kind, words = "workload", "the workload {instead} instead of {value}"
        names = {f"{which}_name": about.named(self.name, getattr(self, which)) for which in ("instead", "value")}
        return finding(kind, words, **self._asdict(), **names)


class Alternative(NamedTuple):
    """The fastest case of the same process that solves a case's problem."""

    instead: str  # id of the faster case
    changes: tuple[ParameterChange, ...]  # what differs between the two
    measure: Measure
    factor: Ratio  # time of the slower case over that of the faster one; with its interval
    observed: Finding  # what it was compared with, as :func:`difference` says
    time: TracedNumber  # of an iteration without a profiler, µs
    instead_time: TracedNumber


def problem(workload: str, params: Mapping[str, Value]) -> tuple[str, frozenset[tuple[str, str, Value]]]:
    """What a case solves: equal for two cases that differ in options of solving alone."""
    about = packs.of_workload(workload)
    options = about.options if about else {}
    defining = frozenset(
        (name, type(value).__name__, value)
        for name, value in params.items()
        if name not in options or value not in (options[name] or [value])
    )
    return (about.problem if about else "") or workload, defining


def by_problem(cases: Iterable[CaseResult]) -> list[tuple[CaseResult, ...]]:
    """The cases with a plain time that solve the same problem in the same process, the fastest first."""
    timed = ((case.plain.median_us, case) for case in cases if case.plain is not None)
    found = by_key(((case.run, problem(case.workload, case.params)), (us, case)) for us, case in timed)
    return [tuple(case for _, case in sorted(members, key=lambda item: item[0])) for members in found.values()]


def alternative(case: CaseResult, others: Sequence[CaseResult]) -> Alternative | None:
    """The fastest of the other cases of the same problem and process; None where none is certain to be faster.

    On the GPU, save where the GPU waits for the host for most of an iteration (WAITING): then in a loop. It must not be
    slower in a loop in either case: a kernel launched from a CUDA graph is not. Of cases that are as fast as each other
    (within WORTH_CHANGING) it is the one that changes least.
    """
    measure = Measure.LOOP if (case.waiting_pct or 0) >= WAITING else Measure.GPU
    own, worth = _times(case, measure), 1 + WORTH_CHANGING / 100
    timed = []
    for other in others:
        slower = case.wall_us and other.wall_us and case.wall_us < other.wall_us * worth
        if (times := _times(other, measure)) is not None and not (slower and measure is Measure.GPU):
            timed.append((times, other, _changes(case, other)))
    if not timed or own is None:
        return None
    most_us = min(times.median_us for times, *_ in timed) * worth
    fastest = [each for each in timed if each[0].median_us <= most_us]
    times, instead, changes = min(fastest, key=lambda each: (len(each[2]), each[0].median_us))
    certain = difference(case, instead, measure)
    if certain is None:
        return None
    time, instead_time = _traced(case.id, measure, own), _traced(instead.id, measure, times)
    return Alternative(instead.id, changes, measure, *certain, time, instead_time)


def _changes(case: CaseResult, instead: CaseResult) -> tuple[ParameterChange, ...]:
    """In what two cases of a problem differ."""
    values = {WORKLOAD: (case.workload, instead.workload)} | {
        name: (value, instead.params[name]) for name, value in case.params.items() if name in instead.params
    }
    return tuple(ParameterChange(name, value, other) for name, (value, other) in values.items() if value != other)


def _times(case: CaseResult, measure: Measure) -> CaseTimes | None:
    return case.plain if measure is Measure.GPU else case.wall


def difference(slow: CaseResult, fast: CaseResult, measure: Measure = Measure.GPU) -> tuple[Ratio, Finding] | None:
    """How much faster one case is than another, and what that was compared with: the spread between so many rounds of
    both cases, without a profiler; or, of a single round, the same factor in other processes of the run. None where it
    is not, or that is not certain.

    It is where the interval of the factor lies above 1 (:func:`fiprof.analysis.ratio.ratio`, from the medians of the
    rounds) and the factor is worth a change (WORTH_CHANGING). A single round cannot tell how rounds differ: then the
    factor has to stand in the other processes of the run too (nsys's, ncu's), and to exceed SINGLE_ROUND in each.
    """
    own, other = _times(slow, measure), _times(fast, measure)
    if own is None or other is None:
        return None
    count, factor = min(own.rounds, other.rounds), ratio(own, other)
    observed, least = finding("rounds", "over {count:round|rounds}", count=count), 0.0
    if count < 2:
        pairs = [
            (one and one.median_us, two and two.median_us)
            for one, two in ((slow.plain, fast.plain), (slow.nsys, fast.nsys))
        ]
        factors = [one / two for one, two in (*pairs, (slow.ncu_us, fast.ncu_us)) if one and two]
        if len(factors) < 2:
            return None
        factor = Ratio(factors[0], min(factors), max(factors), interval(factors)[2])
        words = "in {count:process|processes} of a single round"
        observed, least = finding("processes", words, count=len(factors)), 1 + SINGLE_ROUND / 100
    if factor is None or factor.direction is not Direction.MORE or factor.low < least:
        return None
    return (factor, observed) if factor.value >= 1 + WORTH_CHANGING / 100 else None


def plain_time(case: CaseResult) -> TracedNumber | None:
    """Median of an iteration without a profiler, µs."""
    return _traced(case.id, Measure.GPU, case.plain) if case.plain else None


def _traced(case: str, measure: Measure, times: CaseTimes) -> TracedNumber:
    formula = "median(round_us)" if measure is Measure.GPU else "wall_us"
    return TracedNumber(times.median_us, Provenance("plain", formula, case=case), ",.2f", " µs")


def of_cases(cases: Iterable[CaseResult]) -> dict[str, Alternative]:
    """Case id -> its fastest alternative; only cases that have one."""
    return {
        case.id: found
        for solving in by_problem(cases)
        for case in solving
        if (found := alternative(case, [other for other in solving if other is not case])) is not None
    }


@once
def of_run(run: Run) -> Mapping[str, Alternative]:
    """Case id -> its fastest alternative in the run; only cases that have one."""
    return of_cases(timed(run))


@once
def same_problem(run: Run) -> Mapping[str, frozenset[str]]:
    """Case id -> all measured cases of the run that solve its problem."""
    solving = [frozenset(case.id for case in cases) for cases in by_problem(timed(run))]
    return {case: cases for cases in solving for case in cases}


def unmeasured(case: CaseEntry, *, run: str = "", skipped: str = "") -> CaseResult:
    """A case without measurements; its workload without the file that it may come from. skipped: why it has none."""
    known = {name: value for name, value in vars(case).items() if name != "anchor"}
    return CaseResult(**{**known, "workload": case.id.partition("[")[0]}, run=run, skipped=skipped)


@once
def timed(run: Run) -> list[CaseResult]:
    """The cases of a run with their times."""
    cases = []
    for case in run.cases:
        baseline, traced = run.baseline.get(case.id), run.trace.cases.get(case.id)
        rounds = baseline.wall_rounds_us if baseline else ()
        cases.append(
            replace(
                unmeasured(case, run=run.manifest.name),
                workload=case.workload,
                plain=times(baseline.gpu_us, baseline.rounds) if baseline else None,
                wall=times(rounds, len(rounds)) if len(rounds) > 1 else None,
                wall_us=case_quantities.WALL.of(run, case.id),
                waiting_pct=case_quantities.WAITING.of(run, case.id),
                nsys=times(traced.iterations_us if traced else (), run.settings.rounds),
                ncu_us=case_quantities.NCU.of(run, case.id),
            )
        )
    return cases
