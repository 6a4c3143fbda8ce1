"""What others say of kernels, each as a test on a study's cases; a pack brings the claims, the engine is here.

A claim declares its source, its cases, its test and the limits. What becomes of it is a function of the recorded
numbers alone. The intervals of all pairs of one claim hold at once (:func:`fiprof.analysis.ratio.by_rounds`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from fiprof.analysis.ratio import Ratio, by_rounds
from fiprof.analysis.splits import LEAST_BYTES, Split, split
from fiprof.analysis.study import (
    Absence,
    Absent,
    Pair,
    Params,
    Side,
    Study,
    Value,
    absence,
    absent_pair,
    dram_bytes,
    is_number,
    least_bytes,
    main_kernel,
    matches,
    pairs,
)
from fiprof.analysis.verdict.model import Kind
from fiprof.model import packs
from fiprof.model.results import CaseResult, Kernel, KernelVerdict

TOLERANCE = 0.10
"""How far from a claimed number, in proportion, a measured one may be and still confirm it. fiprof's own choice."""

SAVING_TOLERANCE = 0.05
"""The same for a claimed saving, as a part of the whole: 40% is confirmed from 35 to 45%."""

MOST = 0.80
"""Part of the deciding cases beyond a claim on one side, from which it is wrong on that side and does not depend.
fiprof's own choice."""

LEAST_DECIDED = 0.50
"""Part of the cases that have to decide before anything is said of a claim. fiprof's own choice."""


class Outcome(StrEnum):
    """What a case, or a pair of cases, says of a claim."""

    HOLDS = "holds"
    ABOVE = "above"
    """More than is claimed."""
    BELOW = "below"
    """Less than is claimed, or another bound."""
    UNCLEAR = "unclear"
    """The interval crosses a limit or says nothing, or no single resource is known to bind."""


class ClaimVerdict(StrEnum):
    """What became of a claim."""

    CONFIRMED = "confirmed"
    """It holds in every case that decides."""
    UNDERSTATED = "understated"
    """MOST of the deciding cases show more than is claimed."""
    OVERSTATED = "overstated"
    """MOST of them show less."""
    DEPENDS = "depends"
    """It holds in some cases and not in others, or is too little for some and too much for others."""
    NOT_TESTABLE = "not_testable"
    """There are no such cases, or too few of them decide."""


@dataclass(frozen=True)
class Limits:
    """Where a number has to lie."""

    low: float
    high: float = float("inf")
    tolerance: float | None = None
    """The part of a claimed number by which the limits are apart from it; None where they are claimed themselves."""

    def outcome(self, low: float, high: float) -> Outcome:
        """Of a number somewhere in this interval."""
        if self.low <= low and high <= self.high:
            return Outcome.HOLDS
        return Outcome.BELOW if high < self.low else Outcome.ABOVE if low > self.high else Outcome.UNCLEAR


def around(value: float) -> Limits:
    """A claimed number ± TOLERANCE of it."""
    return Limits(value * (1 - TOLERANCE), value * (1 + TOLERANCE), TOLERANCE)


@dataclass(frozen=True)
class Tested:
    """One case, or one pair of cases, that a claim was tested on, with what was found of it."""

    cases: tuple[CaseResult, ...]
    outcome: Outcome
    ratio: Ratio | None = None
    """Of a pair's plain times, first case over second."""
    saving: float | None = None
    """Of a pair's counted DRAM bytes: 1 - first case over second."""
    kernel: Kernel | None = None
    """Of a single case: its main kernel, which has a verdict."""

    @property
    def params(self) -> Params:
        """Of the second case, e.g. of the shorter one."""
        return self.cases[-1].params

    @property
    def features(self) -> Params:
        """The same with that case's least bytes."""
        return {**self.params, LEAST_BYTES: least_bytes(self.cases[-1])}


@dataclass(frozen=True)
class TimeRatio:
    """The plain time of one side over that of the other, pair by pair."""

    one: Side
    other: Side
    limits: Limits
    what: str
    """How that ratio is called."""

    @property
    def workloads(self) -> frozenset[str]:
        return frozenset((self.one.workload, self.other.workload))

    def run(self, study: Study) -> tuple[Tested, ...] | Absence:
        found = _ratios(pairs(study, self.one, self.other), self.limits)
        return found or absent_pair(study, self.one, self.other)


@dataclass(frozen=True)
class Growth:
    """The plain time at ``factor`` times an axis' value over that at the value itself."""

    workload: str
    axis: str
    factor: int
    limits: Limits

    @property
    def workloads(self) -> frozenset[str]:
        return frozenset((self.workload,))

    def run(self, study: Study) -> tuple[Tested, ...] | Absence:
        found: list[Pair] = []
        for value in study.varied(self.workload).get(self.axis, ()):
            if is_number(value):
                assert isinstance(value, int | float)
                longer = Side(self.workload, ((self.axis, value * self.factor),))
                found += pairs(study, longer, Side(self.workload, ((self.axis, value),)))
        if tested := _ratios(found, self.limits):
            return tested
        if study.of(self.workload):
            return Absence(Absent.GROWTH, self.workload, axis=self.axis, factor=self.factor)
        return absence(study, self.workload)


def _ratios(found: Sequence[Pair], limits: Limits) -> tuple[Tested, ...]:
    """Each pair by the interval that it has as one of so many."""
    tested = []
    for pair in found:
        one, other = pair
        ratio = by_rounds(one.plain, other.plain, len(found)) if one.plain and other.plain else None
        if ratio is not None:
            outcome = limits.outcome(ratio.low, ratio.high) if ratio.sure else Outcome.UNCLEAR
            tested.append(Tested(pair, outcome, ratio=ratio))
    return tuple(tested)


@dataclass(frozen=True)
class Saving:
    """1 - (counted DRAM bytes of one side / of the other). Counted once a case: there is no interval.

    Pairs whose least bytes fit in L2 are left out: what stays there is traffic that DRAM does not see.
    """

    one: Side
    other: Side
    limits: Limits

    @property
    def workloads(self) -> frozenset[str]:
        return frozenset((self.one.workload, self.other.workload))

    def run(self, study: Study) -> tuple[Tested, ...] | Absence:
        everything = pairs(study, self.one, self.other)
        found = [pair for pair in everything if min(map(least_bytes, pair)) > (study.l2_bytes or 0)]
        tested = []
        for pair in found:
            mine, theirs = map(dram_bytes, pair)
            if mine is not None and theirs:
                saving = 1 - mine / theirs
                tested.append(Tested(pair, self.limits.outcome(saving, saving), saving=saving))
        if tested:
            return tuple(tested)
        if not everything:
            return absent_pair(study, self.one, self.other)
        why = Absent.DRAM_BYTES if found else Absent.IN_L2
        return Absence(why, self.one.workload, count=len(found or everything))


@dataclass(frozen=True)
class Bound:
    """The verdict of the kernel that takes most of an iteration's time."""

    workload: str
    kind: Kind
    """COMPUTE or MEMORY."""
    at_least: tuple[tuple[str, float], ...] = ()
    """Parameter -> its least value in the cases that are asked."""

    @property
    def workloads(self) -> frozenset[str]:
        return frozenset((self.workload,))

    def run(self, study: Study) -> tuple[Tested, ...] | Absence:
        cases = [case for case in study.of(self.workload) if self._asked(case.params)]
        tested = tuple(
            Tested((case,), self._outcome(kernel.verdict), kernel=kernel)
            for case in cases
            if (kernel := main_kernel(case)) is not None and kernel.verdict is not None
        )
        if tested:
            return tested
        return Absence(Absent.VERDICT, self.workload) if cases else absence(study, self.workload)

    def _asked(self, params: Params) -> bool:
        return all(is_number(params.get(name)) and float(params[name]) >= value for name, value in self.at_least)

    def _outcome(self, verdict: KernelVerdict) -> Outcome:
        if verdict.kind in UNDECIDED_KINDS:
            return Outcome.UNCLEAR
        return Outcome.HOLDS if verdict.kind == self.kind else Outcome.BELOW


UNDECIDED_KINDS = (Kind.UNKNOWN, Kind.NO_SINGLE_LIMIT, Kind.CONCURRENT)
"""Kinds of a verdict that say nothing for or against a bound."""

Test = TimeRatio | Growth | Saving | Bound


@dataclass(frozen=True)
class Claim:
    """A sentence that others say, and how to test it."""

    name: str
    """To cite it by, e.g. ``gqa-faster``."""
    words: str
    """The sentence."""
    about: str
    """The cases, in words."""
    test: Test
    source: str
    """Who says so and where, in words; or that no source was found."""
    said_of: str
    """The case that it was said of, in words."""
    at: tuple[tuple[str, Value], ...] = ()
    """What that case is among those tested; of a growth, its smaller side. Empty where none of them is it."""

    def result(self, study: Study) -> Result:
        tested = self.test.run(study)
        if isinstance(tested, Absence):
            return Result(self, ClaimVerdict.NOT_TESTABLE, (), tested)
        decided = [(item.features, item.outcome) for item in tested if item.outcome is not Outcome.UNCLEAR]
        if len(decided) < LEAST_DECIDED * len(tested):
            why = Absence(Absent.TOO_WIDE, "", count=len(tested) - len(decided), of=len(tested))
            return Result(self, ClaimVerdict.NOT_TESTABLE, tested, why)
        return Result(self, _verdict([outcome for _, outcome in decided]), tested, split=split(decided))


@dataclass(frozen=True)
class Effect:
    """What was found over pairs or cases of a claim: a ratio, or a part of one."""

    count: int
    """Of them."""
    median: float
    """Over the pairs. Of a bound: the part of the cases in which it holds."""
    interval: tuple[float, float] | None
    """Where the median lies if every pair lies in its own interval: it holds with the confidence that all of those do.
    Of a bound: the part if it held in none or in all of the unclear cases. None of savings, counted once."""


@dataclass(frozen=True)
class Result:
    """What became of a claim."""

    claim: Claim
    verdict: ClaimVerdict
    tested: tuple[Tested, ...]
    """In the order of the study."""
    absence: Absence | None = None
    """Why it is not testable."""
    split: Split | None = None
    """What it depends on, as far as parameters tell the outcomes apart."""

    def counted(self, outcome: Outcome) -> int:
        return sum(item.outcome is outcome for item in self.tested)

    @property
    def ratios(self) -> list[Ratio]:
        """Of the pairs' plain times."""
        return [item.ratio for item in self.tested if item.ratio is not None]

    @property
    def savings(self) -> list[float]:
        """Of the pairs' counted DRAM bytes."""
        return [item.saving for item in self.tested if item.saving is not None]

    @property
    def kernels(self) -> list[Kernel]:
        """Main kernels that have a verdict."""
        return [item.kernel for item in self.tested if item.kernel is not None]

    @property
    def effect(self) -> Effect | None:
        """Over all that was tested; None where nothing was."""
        return effect(self.tested)

    @property
    def at_source(self) -> Effect | None:
        """The same of the case that the claim was said of; None where it is not among them."""
        at = dict(self.claim.at)
        return effect([item for item in self.tested if at and matches(item.cases[-1], at)])


def effect(tested: Sequence[Tested]) -> Effect | None:
    """Over some pairs or cases of one claim; None of none."""
    if not tested:
        return None
    if ratios := [item.ratio for item in tested if item.ratio is not None]:
        values = [ratio.value for ratio in ratios]
        interval = median(ratio.low for ratio in ratios), median(ratio.high for ratio in ratios)
        return Effect(len(tested), median(values), interval if all(ratio.sure for ratio in ratios) else None)
    if savings := [item.saving for item in tested if item.saving is not None]:
        return Effect(len(tested), median(savings), None)
    holds, unclear = (sum(item.outcome is each for item in tested) for each in (Outcome.HOLDS, Outcome.UNCLEAR))
    share = holds / len(tested)
    return Effect(len(tested), share, (share, (holds + unclear) / len(tested)))


def _verdict(decided: Sequence[Outcome]) -> ClaimVerdict:
    """Of the outcomes that decide."""
    counts = Counter(decided)
    if counts[Outcome.HOLDS] == len(decided):
        return ClaimVerdict.CONFIRMED
    for outcome, verdict in ((Outcome.ABOVE, ClaimVerdict.UNDERSTATED), (Outcome.BELOW, ClaimVerdict.OVERSTATED)):
        if counts[outcome] >= MOST * len(decided):
            return verdict
    return ClaimVerdict.DEPENDS


def claims(study: Study) -> tuple[Claim, ...]:
    """The claims of the installed packs whose workloads the study has."""
    return tuple(claim for claim in packs.joined("claims") if claim.test.workloads <= study.by_workload.keys())


def results(study: Study) -> tuple[Result, ...]:
    """What became of each of them."""
    return tuple(claim.result(study) for claim in claims(study))
