"""What others say of kernels, each as a test on a study's cases; a pack brings the claims, the engine is here.

A claim declares its cases, its test and the limits. What becomes of it is a function of the recorded numbers alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fiprof.analysis.ratio import Direction, Ratio, of_cases
from fiprof.analysis.study import (
    Absence,
    Absent,
    Pair,
    Params,
    Side,
    Study,
    absence,
    absent_pair,
    dram_bytes,
    is_number,
    least_bytes,
    main_kernel,
    pairs,
    size,
)
from fiprof.analysis.verdict.model import Kind
from fiprof.model import packs
from fiprof.model.results import CaseResult, Kernel, KernelVerdict

TOLERANCE = 0.10
"""How far from a claimed number, in proportion, a measured one may be and still confirm it. fiprof's own choice."""

SAVING_TOLERANCE = 0.05
"""The same for a claimed saving, as a part of the whole: 40% is confirmed from 35 to 45%."""

FEW = 0.10
"""A claim that holds in no more than this part of the deciding cases is refuted, not true in part. fiprof's choice."""


class Outcome(StrEnum):
    """What a case, or a pair of cases, says of a claim."""

    HOLDS = "holds"
    PARTLY = "partly"
    FAILS = "fails"
    UNCLEAR = "unclear"
    """The interval crosses a limit or says nothing, or there was not enough evidence for a verdict."""


class ClaimVerdict(StrEnum):
    """What became of a claim."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    PARTLY = "partly"
    UNDECIDED = "undecided"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True)
class Limits:
    """Where a number has to lie."""

    low: float
    high: float = float("inf")
    tolerance: float | None = None
    """The part of a claimed number by which the limits are apart from it; None where they are claimed themselves."""

    def outcome(self, found: Ratio) -> Outcome:
        if not found.sure:
            return Outcome.UNCLEAR
        if self.low <= found.low and found.high <= self.high:
            return Outcome.HOLDS
        return Outcome.FAILS if found.high < self.low or found.low > self.high else Outcome.UNCLEAR


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
    verdict: KernelVerdict | None = None
    """Of a case's main kernel."""
    kernel: Kernel | None = None
    """That kernel."""


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
    ratios = [(pair, of_cases(*pair)) for pair in found]
    return tuple(Tested(pair, limits.outcome(ratio), ratio=ratio) for pair, ratio in ratios if ratio is not None)


@dataclass(frozen=True)
class Saving:
    """1 - (counted DRAM bytes of one side / of the other). Counted once a case: there is no interval.

    Pairs whose least bytes fit in L2 are left out: what stays there is traffic that DRAM does not see.
    """

    one: Side
    other: Side
    low: float
    high: float

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
                outcome = Outcome.HOLDS if self.low <= saving <= self.high else Outcome.FAILS
                tested.append(Tested(pair, outcome, saving=saving))
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
            Tested((case,), self._outcome(kernel, kernel.verdict), verdict=kernel.verdict, kernel=kernel)
            for case in cases
            if (kernel := main_kernel(case)) is not None and kernel.verdict is not None
        )
        if tested:
            return tested
        return Absence(Absent.VERDICT, self.workload) if cases else absence(study, self.workload)

    def _asked(self, params: Params) -> bool:
        return all(is_number(params.get(name)) and float(params[name]) >= value for name, value in self.at_least)

    def _outcome(self, kernel: Kernel, verdict: KernelVerdict) -> Outcome:
        """Partly where the roof is of that kind and the kernel does not come near it: something else holds it back."""
        if verdict.kind == Kind.UNKNOWN:
            return Outcome.UNCLEAR
        if verdict.kind == self.kind:
            return Outcome.HOLDS
        return Outcome.PARTLY if kernel.roof_kind == self.kind else Outcome.FAILS


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
    always: bool = False
    """Whether the sentence says so of every case: then one that fails refutes it."""

    def result(self, study: Study) -> Result:
        found = self.test.run(study)
        if isinstance(found, Absence):
            return Result(self, ClaimVerdict.NOT_MEASURED, (), found)
        return Result(self, _verdict(found, always=self.always), found)


@dataclass(frozen=True)
class Result:
    """What became of a claim."""

    claim: Claim
    verdict: ClaimVerdict
    tested: tuple[Tested, ...]
    """In the order of the study."""
    absence: Absence | None = None
    """Why it was not measured."""

    def counted(self, outcome: Outcome) -> int:
        return sum(item.outcome is outcome for item in self.tested)

    @property
    def ratios(self) -> list[Ratio]:
        """Of the pairs' plain times."""
        return [item.ratio for item in self.tested if item.ratio is not None]

    @property
    def directions(self) -> Counter[Direction]:
        """How many of the ratios' intervals lie above 1, below it, or hold it."""
        return Counter(ratio.direction for ratio in self.ratios)

    @property
    def savings(self) -> list[float]:
        """Of the pairs' counted DRAM bytes."""
        return [item.saving for item in self.tested if item.saving is not None]

    @property
    def largest(self) -> Tested:
        """The largest pair."""
        return max(self.tested, key=lambda item: size(item.cases[1]))

    @property
    def kernels(self) -> list[Kernel]:
        """Main kernels that have a verdict."""
        return [item.kernel for item in self.tested if item.kernel is not None]


def _verdict(tested: Sequence[Tested], *, always: bool) -> ClaimVerdict:
    """Confirmed where it holds in every case that decides, refuted where in none or FEW, else partly."""
    decided = [item.outcome for item in tested if item.outcome is not Outcome.UNCLEAR]
    if not decided:
        return ClaimVerdict.UNDECIDED
    if set(decided) == {Outcome.HOLDS}:
        return ClaimVerdict.CONFIRMED
    refuted = always or decided.count(Outcome.FAILS) >= (1 - FEW) * len(decided)
    return ClaimVerdict.REFUTED if refuted else ClaimVerdict.PARTLY


def claims(study: Study) -> tuple[Claim, ...]:
    """The claims of the installed packs whose workloads the study has."""
    return tuple(claim for claim in packs.joined("claims") if claim.test.workloads <= study.by_workload.keys())


def results(study: Study) -> tuple[Result, ...]:
    """What became of each of them."""
    return tuple(claim.result(study) for claim in claims(study))
