"""What others say of kernels, each as a test on a study's cases; a pack brings the claims, the engine is here.

A claim declares its source, its cases, its test and the limits. What becomes of it is a function of the recorded
numbers alone. The intervals of all pairs of one claim hold at once (:func:`fiprof.analysis.ratio.by_rounds`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import median

from fiprof.analysis.case_names import Params, Value, axis_name, is_number, value_word
from fiprof.analysis.ratio import Ratio, by_rounds
from fiprof.analysis.study import (
    Pair,
    Side,
    Study,
    absence,
    absent_pair,
    bound,
    dram_bytes,
    least_bytes,
    main_kernel,
    matches,
    pairs,
)
from fiprof.analysis.verdict.model import Kind
from fiprof.model import packs
from fiprof.model.finding import Finding, finding
from fiprof.model.results import CaseResult, Kernel
from fiprof.model.wording import worded
from fiprof.text import number

TOLERANCE = 0.10
"""How far from a claimed number, in proportion, a measured one may be and still confirm it. fiprof's own choice."""

SAVING_TOLERANCE = 0.05
"""The same for a claimed saving, as a part of the whole: 40% is confirmed from 35 to 45%."""

MOST = 0.80
"""Part of the deciding cases beyond a claim on one side, from which it is wrong on that side and does not depend.
fiprof's own choice."""

LEAST_DECIDED = 0.50
"""Part of the cases that have to decide before anything is said of a claim. fiprof's own choice."""

NEAR_ONE = 0.1
"""Ratios so close to 1 are written with three decimals: the side of it matters."""

MOST_ROWS = 6
"""Groups of cases that the parameters tell apart, at most."""


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
        """What a number somewhere in this interval says."""
        if self.low <= low and high <= self.high:
            return Outcome.HOLDS
        return Outcome.BELOW if high < self.low else Outcome.ABOVE if low > self.high else Outcome.UNCLEAR

    def words(self, show: Callable[[float], str] = lambda value: f"{value:.2f}x") -> str:
        """``1.35x to 1.65x confirms (the number ± 10% of it)``."""
        found = f"{show(self.low)} to {show(self.high)}" if self.high != float("inf") else f"above {show(self.low)}"
        return f"{found} confirms" + (f" (the number ± {self.tolerance:.0%} of it)" if self.tolerance else "")


def around(value: float) -> Limits:
    """A claimed number ± TOLERANCE of it."""
    return Limits(value * (1 - TOLERANCE), value * (1 + TOLERANCE), TOLERANCE)


@dataclass(frozen=True)
class Tested:
    """One case, or one pair of cases, that a claim was tested on, with what was found of it."""

    cases: tuple[CaseResult, ...]
    outcome: Outcome
    ratio: Ratio | None = None
    """Of a pair: its plain times, first case over second."""
    saving: float | None = None
    """Of a pair: its counted DRAM bytes, 1 - first case over second."""
    kernel: Kernel | None = None
    """Of a single case: its main kernel, which has a verdict."""

    __test__ = False

    @property
    def params(self) -> Params:
        """Parameters of the second case, e.g. of the shorter one."""
        return self.cases[-1].params

    @property
    def measured(self) -> str:
        """What was found, in words."""
        if self.ratio is not None:
            return ratio_words(self.ratio)
        if self.saving is not None:
            return f"{self.saving:.1%}"
        assert self.kernel is not None
        share, roof = self.kernel.roof_share, self.kernel.roof
        return worded(bound(self.kernel)) + (f", {share:.0%} of {roof}" if roof and share is not None else "")


def ratio_words(found: Ratio) -> str:
    """``1.42x (1.40 to 1.44)``."""
    if not found.sure:
        return f"{found.value:.3g}x (too few rounds for an interval)"
    word = (lambda value: f"{value:.3f}") if abs(found.value - 1) < NEAR_ONE else number
    return f"{word(found.value)}x ({word(found.low)} to {word(found.high)})"


# Tests


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

    @property
    def words(self) -> str:
        return f"{self.what}, plain; {self.limits.words()}"

    def run(self, study: Study) -> tuple[Tested, ...] | Finding:
        """Each pair with its outcome, or why there is none."""
        return _ratios(pairs(study, self.one, self.other), self.limits) or absent_pair(study, self.one, self.other)


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

    @property
    def words(self) -> str:
        return f"the time at {self.factor}x the {axis_name(self.axis)} over that before, plain; {self.limits.words()}"

    def run(self, study: Study) -> tuple[Tested, ...] | Finding:
        """Each pair with its outcome, or why there is none."""
        found: list[Pair] = []
        for value in study.varied(self.workload).get(self.axis, ()):
            if isinstance(value, int | float) and is_number(value):
                longer = Side(self.workload, ((self.axis, value * self.factor),))
                found += pairs(study, longer, Side(self.workload, ((self.axis, value),)))
        if not found and study.of(self.workload):
            words = "no two measured {workload} cases have {axis} {factor}x apart and all else the same"
            return finding("growth", words, workload=self.workload, axis=self.axis, factor=self.factor)
        return _ratios(found, self.limits) or absence(study, self.workload)


def _ratios(found: Sequence[Pair], limits: Limits) -> tuple[Tested, ...]:
    """Each pair by the interval that it has as one of so many."""
    tested = []
    for one, other in found:
        ratio = by_rounds(one.plain, other.plain, len(found)) if one.plain and other.plain else None
        if ratio is not None:
            outcome = limits.outcome(ratio.low, ratio.high) if ratio.sure else Outcome.UNCLEAR
            tested.append(Tested((one, other), outcome, ratio=ratio))
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

    @property
    def words(self) -> str:
        limits = self.limits.words(lambda value: f"{value:.0%}")
        what = "one less the ratio of the DRAM bytes that ncu counted, caches flushed before each kernel"
        return f"{what}; {limits}; counted once, so no interval"

    def run(self, study: Study) -> tuple[Tested, ...] | Finding:
        """Each pair with its outcome, or why there is none."""
        everything = pairs(study, self.one, self.other)
        found = [pair for pair in everything if min(map(least_bytes, pair)) > (study.l2_bytes or 0)]
        tested = []
        for pair in found:
            mine, theirs = map(dram_bytes, pair)
            if mine is not None and theirs:
                saving = 1 - mine / theirs
                tested.append(Tested(pair, self.limits.outcome(saving, saving), saving=saving))
        if tested or not everything:
            return tuple(tested) or absent_pair(study, self.one, self.other)
        if found:
            return finding("dram_bytes", "ncu counted no DRAM bytes of {count:pair|pairs}", count=len(found))
        words = "in {count:pair|pairs} of cases all data fits in L2, and DRAM sees little of it"
        return finding("in_l2", words, count=len(everything))


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

    @property
    def words(self) -> str:
        return f"the verdict of the longest kernel is {self.kind}-bound; one without a single limit decides nothing"

    def run(self, study: Study) -> tuple[Tested, ...] | Finding:
        """Each case with its outcome, or why there is none."""
        cases = [
            case
            for case in study.of(self.workload)
            if all(
                is_number(case.params.get(name)) and float(case.params[name]) >= least for name, least in self.at_least
            )
        ]
        tested = []
        for case in cases:
            kernel = main_kernel(case)
            if kernel is not None and kernel.verdict is not None:
                kind = kernel.verdict.kind
                outcome = Outcome.HOLDS if kind == self.kind else Outcome.BELOW
                tested.append(Tested((case,), Outcome.UNCLEAR if kind in UNDECIDED_KINDS else outcome, kernel=kernel))
        if cases and not tested:
            return finding("verdict", "ncu gave no verdict of any of these cases")
        return tuple(tested) or absence(study, self.workload)


UNDECIDED_KINDS = (Kind.UNKNOWN, Kind.NO_SINGLE_LIMIT, Kind.CONCURRENT)
"""Kinds of a verdict that say nothing for or against a bound."""

Test = TimeRatio | Growth | Saving | Bound


@dataclass(frozen=True)
class Claim:
    """A sentence that others say, and how to test it."""

    name: str
    """Its name to cite it by, e.g. ``gqa-faster``."""
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
        """What becomes of it in a study."""
        tested = self.test.run(study)
        if isinstance(tested, Finding):
            return Result(self, ClaimVerdict.NOT_TESTABLE, (), tested)
        decided = [item.outcome for item in tested if item.outcome is not Outcome.UNCLEAR]
        if len(decided) < LEAST_DECIDED * len(tested):
            values = {"count": len(tested) - len(decided), "of": len(tested)}
            return Result(
                self,
                ClaimVerdict.NOT_TESTABLE,
                tested,
                finding("too_wide", "{count} of {of} decide nothing", **values),
            )
        return Result(self, _verdict(decided), tested)


@dataclass(frozen=True)
class Effect:
    """What was found over pairs or cases of a claim: a ratio, or a part of one."""

    count: int
    """How many pairs or cases."""
    median: float
    """Median over the pairs. Of a bound: the part of the cases in which it holds."""
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
    absence: Finding | None = None
    """Why it is not testable."""

    def counted(self, outcome: Outcome) -> int:
        """Tests with this outcome."""
        return sum(item.outcome is outcome for item in self.tested)

    @property
    def effect(self) -> Effect | None:
        """Over all that was tested; None where nothing was."""
        return effect(self.tested)

    @property
    def at_source(self) -> Effect | None:
        """The same of the case that the claim was said of; None where it is not among them."""
        at = dict(self.claim.at)
        return effect([item for item in self.tested if at and matches(item.cases[-1], at)])

    @property
    def measured(self) -> str:
        """``2.88x (2.47 to 3.10)``, ``16.0%`` or ``10% to 25%``; a dash where nothing was tested."""
        found = self.effect
        if found is None:
            return "–"
        if self.tested[0].ratio is not None:
            low, high = found.interval or (found.median, found.median)
            return ratio_words(Ratio(found.median, low, high, 0.95 if found.interval else 0.0))
        if found.interval is None:
            return f"{found.median:.1%}"
        least, most = (f"{part:.0%}" for part in found.interval)
        return least if least == most else f"{least} to {most}"

    @property
    def how(self) -> str:
        """The cases, the test, its limits, and the level of its intervals."""
        ratios = [item.ratio for item in self.tested if item.ratio is not None]
        level = f"; {len(ratios)} intervals of {ratios[0].confidence:.2%}" if ratios and ratios[0].confidence else ""
        return f"{self.claim.about}: {self.claim.test.words}{level}"

    @property
    def where(self) -> str:
        """Which cases have which outcomes, by the one or two parameters that tell them apart best; empty where none do.

        ``GQA 32/8, CUDA cores: 36 below; MHA 32/32: 50 hold``: it describes these cases and infers nothing of others.
        """
        decided = [item for item in self.tested if item.outcome is not Outcome.UNCLEAR]
        usual = Counter(item.outcome for item in decided).most_common(1)
        if len({item.outcome for item in decided}) < 2:
            return ""
        names = [name for name in decided[0].params if len({item.params.get(name) for item in decided}) > 1]
        best: dict[tuple[Value, ...], Counter[Outcome]] = {}
        fewest = (len(decided) - usual[0][1]) / 2
        for chosen in (*((name,) for name in names), *combinations(names, 2)):
            groups: dict[tuple[Value, ...], Counter[Outcome]] = {}
            for item in decided:
                groups.setdefault(tuple(item.params[name] for name in chosen), Counter())[item.outcome] += 1
            wrong = sum(group.total() - max(group.values()) for group in groups.values())
            if wrong < fewest and len(groups) <= MOST_ROWS:
                fewest, best, by = wrong, groups, chosen
        params, parts = decided[0].params, []
        for key, group in best.items():
            words = (value_word(name, value, {**params, name: value}) for name, value in zip(by, key, strict=True))
            outcomes = ", ".join(f"{count} {outcome}" for outcome, count in group.most_common()).replace(
                "holds", "hold"
            )
            parts.append(f"{', '.join(words)}: {outcomes}")
        return "; ".join(parts)


def effect(tested: Sequence[Tested]) -> Effect | None:
    """Over some pairs or cases of one claim; None of none."""
    if not tested:
        return None
    if ratios := [item.ratio for item in tested if item.ratio is not None]:
        interval = median(ratio.low for ratio in ratios), median(ratio.high for ratio in ratios)
        value = median(ratio.value for ratio in ratios)
        return Effect(len(tested), value, interval if all(ratio.sure for ratio in ratios) else None)
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


def results(study: Study) -> tuple[Result, ...]:
    """What became of the claims of the installed packs whose workloads the study has."""
    return tuple(
        each.result(study) for each in packs.joined("claims") if each.test.workloads <= study.by_workload.keys()
    )
