"""What others say of kernels, each as a test on a study's cases; and ways to do the same, between which times choose.

A pack brings claims and choices, the engine is here. A claim declares its source, its cases, its test and the limits.
What becomes of it is a function of the recorded numbers alone. The intervals of all pairs of one claim hold at once
(:func:`fiprof.analysis.ratio.by_rounds`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import median

from fiprof.analysis.ratio import Direction, Ratio, by_rounds, of_cases
from fiprof.analysis.study import (
    Pair,
    Side,
    Study,
    Value,
    absence,
    absent_pair,
    axis_name,
    bound,
    dram_bytes,
    fastest_pairs,
    is_number,
    least_bytes,
    limits,
    main_kernel,
    matches,
    pair_label,
    pairs,
    parameter_words,
    value_word,
)
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.analysis.verdict.model import Kind
from fiprof.model import packs
from fiprof.model.finding import Finding, finding, worded
from fiprof.model.results import CaseResult
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
MOST_GROUPS = 6
"""Groups of cases that the parameters tell apart, at most."""
UNDECIDED_KINDS = (Kind.UNKNOWN, Kind.CONCURRENT)
"""Kinds of a verdict that say nothing for or against a bound."""


class Outcome(StrEnum):
    """What a case, or a pair of cases, says of a claim; BELOW is less than is claimed, or another bound."""

    HOLDS = "holds"
    ABOVE = "above"
    BELOW = "below"
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
    """Where a number has to lie. tolerance: the part of a claimed number by which the limits are apart from it."""

    low: float
    high: float = float("inf")
    tolerance: float | None = None

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

    __test__ = False

    @property
    def measured(self) -> str:
        """What was found of a pair, in words."""
        return ratio_words(self.ratio) if self.ratio is not None else f"{self.saving or 0.0:.1%}"


def ratio_words(found: Ratio) -> str:
    """``1.42x (1.40 to 1.44)``."""
    if not found.sure:
        return f"{found.value:.3g}x (too few rounds for an interval)"
    word = (lambda value: f"{value:.3f}") if abs(found.value - 1) < NEAR_ONE else number
    return f"{word(found.value)}x ({word(found.low)} to {word(found.high)})"


# Tests: each has its workloads, its words, and what it says of a study: every pair or case with its outcome, or why
# there is none.


@dataclass(frozen=True)
class TimeRatio:
    """The plain time of one side over that of the other, pair by pair; ``what`` is how that ratio is called."""

    one: Side
    other: Side
    limits: Limits
    what: str

    @property
    def workloads(self) -> frozenset[str]:
        return frozenset((self.one.workload, self.other.workload))

    @property
    def words(self) -> str:
        return f"{self.what}, plain; {self.limits.words()}"

    def run(self, study: Study) -> tuple[Tested, ...] | Finding:
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
        found: list[Pair] = []
        for value in study.varied(self.workload).get(self.axis, ()):
            if isinstance(value, int | float) and is_number(value):
                longer = Side(self.workload, {self.axis: value * self.factor})
                found += pairs(study, longer, Side(self.workload, {self.axis: value}))
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
    """The verdict of the kernel that takes most of an iteration's time: COMPUTE or MEMORY.

    at_least: parameter -> its least value in the cases that are asked.
    """

    workload: str
    kind: Kind
    at_least: tuple[tuple[str, float], ...] = ()

    @property
    def workloads(self) -> frozenset[str]:
        return frozenset((self.workload,))

    @property
    def words(self) -> str:
        return f"the verdict of the longest kernel is {self.kind}-bound; a pair of which one is decides nothing"

    def run(self, study: Study) -> tuple[Tested, ...] | Finding:
        asked, tested = False, []
        for case in study.of(self.workload):
            sizes = ((case.params.get(name), least) for name, least in self.at_least)
            if all(isinstance(value, int | float) and is_number(value) and value >= least for value, least in sizes):
                asked, kernel = True, main_kernel(case)
                if kernel is not None and kernel.verdict is not None:
                    kinds = {kind for kind, _ in limits(kernel.verdict)}
                    outcome = Outcome.HOLDS if kinds == {self.kind} else Outcome.BELOW
                    undecided = not kinds.isdisjoint(UNDECIDED_KINDS) or {self.kind} < kinds
                    tested.append(Tested((case,), Outcome.UNCLEAR if undecided else outcome))
        if asked and not tested:
            return finding("verdict", "ncu gave no verdict of any of these cases")
        return tuple(tested) or absence(study, self.workload)


# Claims


@dataclass(frozen=True)
class Claim:
    """A sentence that others say, and how to test it."""

    name: str
    """Its name to cite it by, e.g. ``gqa-faster``."""
    words: str
    """The sentence."""
    about: str
    """The cases, in words."""
    test: TimeRatio | Growth | Saving | Bound
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
            why = finding("too_wide", "{count} of {of} decide nothing", **values)
            return Result(self, ClaimVerdict.NOT_TESTABLE, tested, why)
        verdict, beyond = ClaimVerdict.DEPENDS, MOST * len(decided)
        if decided.count(Outcome.HOLDS) == len(decided):
            verdict = ClaimVerdict.CONFIRMED
        elif decided.count(Outcome.ABOVE) >= beyond:
            verdict = ClaimVerdict.UNDERSTATED
        elif decided.count(Outcome.BELOW) >= beyond:
            verdict = ClaimVerdict.OVERSTATED
        return Result(self, verdict, tested)


@dataclass(frozen=True)
class Effect:
    """What was found over so many pairs or cases of a claim.

    median: over the pairs; of a bound the part of the cases in which it holds. interval: where the median lies if every
    pair lies in its own interval: it holds with the confidence that all of those do. Of a bound: the part if it held in
    none or in all of the unclear cases. None of savings, counted once.
    """

    count: int
    median: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Result:
    """What became of a claim; with an absence where it is not testable."""

    claim: Claim
    verdict: ClaimVerdict
    tested: tuple[Tested, ...]
    absence: Finding | None = None

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
        # Of the second case, e.g. of the shorter one.
        params = decided[0].cases[-1].params
        names = [name for name in params if len({item.cases[-1].params.get(name) for item in decided}) > 1]
        best: dict[tuple[Value, ...], Counter[Outcome]] = {}
        fewest = (len(decided) - usual[0][1]) / 2
        for chosen in (*((name,) for name in names), *combinations(names, 2)):
            groups: dict[tuple[Value, ...], Counter[Outcome]] = {}
            for item in decided:
                groups.setdefault(tuple(item.cases[-1].params[name] for name in chosen), Counter())[item.outcome] += 1
            wrong = sum(group.total() - max(group.values()) for group in groups.values())
            if wrong < fewest and len(groups) <= MOST_GROUPS:
                fewest, best, by = wrong, groups, chosen
        parts = []
        for key, group in best.items():
            words = (value_word(name, value, {**params, name: value}) for name, value in zip(by, key, strict=True))
            outcomes = ", ".join(f"{count} {outcome}" for outcome, count in group.most_common())
            parts.append(f"{', '.join(words)}: {outcomes.replace('holds', 'hold')}")
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


def results(study: Study) -> tuple[Result, ...]:
    """What became of the claims of the installed packs whose workloads the study has."""
    return tuple(
        each.result(study) for each in packs.joined("claims") if each.test.workloads <= study.by_workload.keys()
    )


# Choices

MOST_EXCEPTIONS = 4
"""Cases that a recommendation excepts by name; more are counted."""
WORTH = 1 + WORTH_CHANGING / 100
"""A ratio below it is no reason to choose, however sure it is."""


@dataclass(frozen=True)
class Choice:
    """Two ways to do the same, or two models, and how a recommendation for one of them is said."""

    what: str
    """The question, e.g. «Tensor cores for decode»."""
    old: Side
    new: Side
    take_new: str
    """What to do where new is faster, e.g. ``pass use_tensor_cores=True``."""
    keep_old: str
    by: str = ""
    """An option to tell apart, e.g. kv_heads; empty for none."""


@dataclass(frozen=True)
class Chosen:
    """What the pairs of cases that differ in a choice alone say about it."""

    choice: Choice
    where: str
    """The value of ``by`` in words."""
    group: tuple[tuple[Pair, Ratio], ...]
    """Each pair with the old one's time over the new one's; the largest ratio first."""

    @property
    def question(self) -> str:
        return f"{self.choice.what}{f' ({self.where})' if self.where else ''}"

    @property
    def median(self) -> float:
        """Median gain over the pairs."""
        return median(ratio.value for _, ratio in self.group)

    def counted(self, direction: Direction) -> int:
        """Pairs in which the new way is faster (MORE), slower (LESS), or no difference is seen."""
        return sum(ratio.direction is direction for _, ratio in self.group)

    @property
    def by_bound(self) -> list[tuple[str, list[float]]]:
        """What limits the old way -> the gains there, most pairs first; empty where no pair gains or none loses, and
        where that is alike or unknown."""
        found: dict[str, list[float]] = {}
        for (old, _), ratio in self.group:
            kernel = main_kernel(old)
            limit = bound(kernel) if kernel else None
            found.setdefault(worded(limit) if limit else "", []).append(ratio.value)
        turns = self.counted(Direction.MORE) and self.counted(Direction.LESS) and len(found) > 1 and "" not in found
        return sorted(found.items(), key=lambda item: -len(item[1])) if turns else []

    def advice(self, study: Study) -> str:
        """What to do, with the cases that are excepted."""
        choice = self.choice
        faster, slower = (
            [item for item in self.group if item[1].direction is each] for each in (Direction.MORE, Direction.LESS)
        )
        most = max((ratio.factor for _, ratio in (*faster, *slower)), default=1.0)
        if not faster and not slower:
            return "no measurable difference"
        if most < WORTH:
            return f"no reason to choose: {most - 1:.1%} at most"
        if not slower:
            return choice.take_new + ("" if len(faster) == len(self.group) else "; some sizes show no difference")
        if not faster:
            return choice.keep_old
        new_way = len(faster) >= len(slower)
        many, other = (choice.take_new, choice.keep_old) if new_way else (choice.keep_old, choice.take_new)
        worth = [pair for pair, ratio in (slower if new_way else faster) if ratio.factor >= WORTH]
        if not worth:
            return many
        without = (choice.by,) if self.where else ()
        where = "; ".join(pair_label(study, *pair, without=without) for pair in worth[:MOST_EXCEPTIONS])
        more = f" and {len(worth) - MOST_EXCEPTIONS} more" if len(worth) > MOST_EXCEPTIONS else ""
        return f"{many}; but {other} at {where}{more}"


def choices(study: Study) -> tuple[list[Chosen], list[tuple[Choice, Finding]]]:
    """The answers to every pack's choices whose workloads the study has, one for each value of ``by``; and those
    without a pair with the reason.

    Of two models each size is solved the fastest way: nobody who chooses one takes what this study advises against.
    """
    found: list[Chosen] = []
    absent: list[tuple[Choice, Finding]] = []
    for choice in packs.joined("choices"):
        if not {choice.old.workload, choice.new.workload} <= study.by_workload.keys():
            continue
        groups: dict[str, list[tuple[Pair, Ratio]]] = {}
        for pair in fastest_pairs(study, choice.old, choice.new) or pairs(study, choice.old, choice.new):
            if (ratio := of_cases(*pair)) is not None:
                params = pair[0].params
                tells_apart = choice.by and choice.by in study.varied(pair[0].workload)
                where = parameter_words({choice.by: params[choice.by]}, params) if tells_apart else ""
                groups.setdefault(where, []).append((pair, ratio))
        for where, group in groups.items():
            found.append(Chosen(choice, where, tuple(sorted(group, key=lambda item: -item[1].value))))
        if not groups:
            absent.append((choice, absent_pair(study, choice.old, choice.new)))
    return found, absent
