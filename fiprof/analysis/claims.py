"""Claims: what others say of kernels, tested on a study's cases; and choices: which of two ways to do the same is
faster.

Packs bring the claims and choices. The result of a claim follows from the recorded numbers alone. The intervals of all
pairs of one claim hold at once (:func:`fiprof.analysis.ratio.by_rounds`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import combinations
from statistics import median
from typing import Literal, NamedTuple

from fiprof.analysis import study as studies
from fiprof.analysis.ratio import Direction, Ratio, by_rounds
from fiprof.analysis.study import CaseSide, Pair, Study, is_number, parse_side
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.analysis.verdict.model import Kind
from fiprof.model import packs
from fiprof.model.finding import Finding, finding
from fiprof.model.packs import Value
from fiprof.model.results import CaseResult
from fiprof.text import number

TOLERANCE = 0.10
"""Relative difference from a claimed number up to which a measured one confirms it. fiprof's own choice."""
SAVING_TOLERANCE = 0.05  # the same for a claimed saving, as a part of the whole: 40% is confirmed from 35 to 45%
MOST = 0.80
"""Share of the deciding cases with more (or less) than is claimed, from which the claim under- (or over-) states."""
LEAST_DECIDED = 0.50  # share of the cases that have to decide for a claim to be tested. Both are fiprof's own choice.
NEAR_ONE = 0.1  # ratios so close to 1 are written with three decimals: on which side they are matters
MOST_GROUPS = 6  # groups of cases with one outcome that are listed, at most
UNDECIDED_KINDS = (Kind.UNKNOWN, Kind.CONCURRENT)  # verdicts that decide nothing about a bound


class ClaimOutcome(StrEnum):
    """The outcome of a claim in a case or a pair of cases; BELOW is less than is claimed, or another bound."""

    HOLDS = "holds"
    ABOVE = "above"
    BELOW = "below"
    UNCLEAR = "unclear"  # the interval crosses a limit, or no single resource is known to be the limit


class ClaimVerdict(StrEnum):
    CONFIRMED = "confirmed"  # it holds in every case that decides
    UNDERSTATED = "understated"  # MOST of the deciding cases show more than is claimed
    OVERSTATED = "overstated"  # MOST of them show less
    DEPENDS = "depends"  # it holds in some cases and not in others, or is too little for some and too much for others
    NOT_TESTABLE = "not_testable"  # no cases, or too few that decide


class Tested(NamedTuple):
    """A case, or a pair of cases, on which a claim was tested, with the outcome."""

    cases: tuple[CaseResult, ...]
    outcome: ClaimOutcome
    ratio: Ratio | None = None  # of a pair: its plain times, first case over second
    saving: float | None = None  # of a pair: its counted DRAM bytes, 1 - first case over second

    @property
    def measured(self) -> str:
        """The ratio or saving of a pair, in words."""
        return ratio_words(self.ratio) if self.ratio is not None else f"{self.saving or 0.0:.1%}"


def ratio_words(ratio: Ratio) -> str:
    """``1.42x (1.40 to 1.44)``."""
    if not ratio.certain:
        return f"{ratio.value:.3g}x (too few rounds for an interval)"
    word = (lambda value: f"{value:.3f}") if abs(ratio.value - 1) < NEAR_ONE else number
    return f"{word(ratio.value)}x ({word(ratio.low)} to {word(ratio.high)})"


@dataclass(frozen=True)
class Claim:
    """A claim of others, and how to test it. docs/packs.md describes the fields."""

    name: str  # its name to cite it by, e.g. ``gqa-faster``
    words: str  # the sentence
    about: str  # the cases, in words
    test: Literal["ratio", "growth", "saving", "bound"]
    """ratio: the plain time of one side over that of the other, pair by pair. growth: the plain time at so many times
    the value of a parameter over that at the value. saving: 1 - (counted DRAM bytes of one side / of the other), of
    pairs whose least bytes do not fit in L2: what stays there is traffic that DRAM does not see. bound: the verdict of
    the kernel that takes most of an iteration's time."""
    sides: str
    """``decode kv_heads=32 | decode kv_heads=8``, values as JSON. Of a growth the parameter and the factor, of a bound
    the least values of parameters in the cases that count."""
    limits: str  # the claimed number, its range (``1.05..1.1``), or the claimed limit: compute or memory
    source: str  # who claims it and where, in words; or that no source was found
    said_of: str  # the case for which it was claimed, in words
    what: str = ""  # name of the ratio

    @cached_property
    def both(self) -> tuple[CaseSide, CaseSide]:
        """Its sides; of a growth or a bound the same one twice."""
        one, _, other = self.sides.partition(" | ")
        return parse_side(one), parse_side(other or one)

    @property
    def range(self) -> tuple[float, float]:
        """The numbers that confirm the claim."""
        low, ends, high = self.limits.partition("..")
        if ends:
            return float(low), float(high)
        if self.test == "saving":
            return float(low) - SAVING_TOLERANCE, float(low) + SAVING_TOLERANCE
        return float(low) * (1 - TOLERANCE), float(low) * (1 + TOLERANCE)

    @property
    def how(self) -> str:
        """The test and its limits, in words."""
        one, _ = self.both
        if self.test == "bound":
            return f"the verdict of the longest kernel is {self.limits}-bound; a pair of which one is decides nothing"
        show: Callable[[float], str] = (lambda x: f"{x:.0%}") if self.test == "saving" else (lambda x: f"{x:.2f}x")
        low, high = self.range
        confirms = f"above {show(low)} confirms" if math.isinf(high) else f"{show(low)} to {show(high)} confirms"
        if self.test == "saving":
            what = "one less the ratio of the DRAM bytes that ncu counted, caches flushed before each kernel"
            return f"{what}; {confirms}; counted once, so no interval"
        what = self.what
        if self.test == "growth":
            ((axis, factor),) = one.params.items()
            what = f"the time at {factor}x the {studies.axis_name(axis)} over that before"
        tolerance = "" if ".." in self.limits else f" (the number ± {TOLERANCE:.0%} of it)"
        return f"{what}, plain; {confirms}{tolerance}"

    def outcome(self, low: float, high: float) -> ClaimOutcome:
        """The outcome for a number that lies somewhere in this interval."""
        least, most = self.range
        if least <= low and high <= most:
            return ClaimOutcome.HOLDS
        return ClaimOutcome.BELOW if high < least else ClaimOutcome.ABOVE if low > most else ClaimOutcome.UNCLEAR

    def tested(self, study: Study) -> list[Tested] | Finding:
        """Every pair or case with its outcome, or why there is none."""
        if self.test == "bound":
            return self._bounds(study)
        one, other = self.both
        if self.test == "growth":
            ((axis, factor),) = one.params.items()
            pairs: list[Pair] = []
            for value in study.varied[one.workload].get(axis, ()):
                if is_number(value):
                    longer = CaseSide(one.workload, {axis: value * factor})  # type: ignore[operator]
                    pairs += study.pairs(longer, CaseSide(one.workload, {axis: value}))
            if not pairs and study.of(one.workload):
                words = "no two measured {workload} cases have {axis} {factor}x apart and all else the same"
                return finding("growth", words, workload=one.workload, axis=axis, factor=factor)
            absent = study.absence(one.workload)
        else:
            pairs, absent = study.pairs(one, other), study.absent_pair(one, other)
        if self.test == "saving":
            return self._savings(study, pairs) or absent
        tested = []
        for pair in pairs:
            times = [case.plain for case in pair]
            # With the interval for one of so many ratios.
            ratio = by_rounds(times[0], times[1], len(pairs)) if times[0] and times[1] else None
            if ratio is not None:
                ratio = ratio.widened(study.apart(*pair))
                outcome = self.outcome(ratio.low, ratio.high) if ratio.certain else ClaimOutcome.UNCLEAR
                tested.append(Tested(pair, outcome, ratio=ratio))
        return tested or absent

    def _savings(self, study: Study, everything: Sequence[Pair]) -> list[Tested] | Finding:
        """The outcomes of counted DRAM bytes; counted once a case, so without intervals."""
        large_pairs = [pair for pair in everything if min(map(studies.least_bytes, pair)) > (study.l2_bytes or 0)]
        moved = [(pair, studies.dram_bytes(pair[0]), studies.dram_bytes(pair[1])) for pair in large_pairs]
        savings = [(pair, 1 - one / other) for pair, one, other in moved if one is not None and other]
        if large_pairs and not savings:
            return finding("dram_bytes", "ncu counted no DRAM bytes of {count:pair|pairs}", count=len(large_pairs))
        if everything and not large_pairs:
            words = "in {count:pair|pairs} of cases all data fits in L2, and DRAM sees little of it"
            return finding("in_l2", words, count=len(everything))
        return [Tested(pair, self.outcome(saving, saving), saving=saving) for pair, saving in savings]

    def _bounds(self, study: Study) -> list[Tested] | Finding:
        """The outcomes of the main kernels' verdicts."""
        side, _ = self.both
        any_bound, tested = False, []
        for case in study.of(side.workload):
            sizes = [(case.params.get(name), least) for name, least in side.params.items()]
            if not all(is_number(value) and value >= least for value, least in sizes):  # type: ignore[operator]
                continue
            any_bound, kernel = True, studies.main_kernel(case)
            if kernel is not None and kernel.verdict is not None:
                kinds = {kind for kind, _ in studies.limits(kernel.verdict)}
                outcome = ClaimOutcome.HOLDS if kinds == {self.limits} else ClaimOutcome.BELOW
                undecided = not kinds.isdisjoint(UNDECIDED_KINDS) or {self.limits} < kinds
                tested.append(Tested((case,), ClaimOutcome.UNCLEAR if undecided else outcome))
        if any_bound and not tested:
            return finding("verdict", "ncu gave no verdict of any of these cases")
        return tested or study.absence(side.workload)

    def result(self, study: Study) -> ClaimResult:
        tested = self.tested(study)
        if isinstance(tested, Finding):
            return ClaimResult(self, ClaimVerdict.NOT_TESTABLE, (), tested)
        decided = [item.outcome for item in tested if item.outcome is not ClaimOutcome.UNCLEAR]
        if len(decided) < LEAST_DECIDED * len(tested):
            values = {"count": len(tested) - len(decided), "of": len(tested)}
            why = finding("too_wide", "{count} of {of} decide nothing", **values)
            return ClaimResult(self, ClaimVerdict.NOT_TESTABLE, tuple(tested), why)
        verdict, beyond = ClaimVerdict.DEPENDS, MOST * len(decided)
        if decided.count(ClaimOutcome.HOLDS) == len(decided):
            verdict = ClaimVerdict.CONFIRMED
        elif decided.count(ClaimOutcome.ABOVE) >= beyond:
            verdict = ClaimVerdict.UNDERSTATED
        elif decided.count(ClaimOutcome.BELOW) >= beyond:
            verdict = ClaimVerdict.OVERSTATED
        return ClaimResult(self, verdict, tuple(tested))


@dataclass(frozen=True)
class ClaimResult:
    """The result of a claim; ``absence`` says why it is not testable."""

    claim: Claim
    verdict: ClaimVerdict
    tested: tuple[Tested, ...]
    absence: Finding | None = None

    def counted(self, outcome: ClaimOutcome) -> int:
        return sum(item.outcome is outcome for item in self.tested)

    @property
    def effect(self) -> tuple[float, tuple[float, float] | None] | None:
        """The median over the pairs, with an interval that holds whenever those of all pairs do. Of a bound the share
        of the cases in which it holds, and that with none or all of the unclear ones. Savings, counted once, have no
        interval. None where nothing was tested."""
        if not self.tested:
            return None
        if ratios := [item.ratio for item in self.tested if item.ratio is not None]:
            interval = median(ratio.low for ratio in ratios), median(ratio.high for ratio in ratios)
            certain = all(ratio.certain for ratio in ratios)
            return median(ratio.value for ratio in ratios), interval if certain else None
        if savings := [item.saving for item in self.tested if item.saving is not None]:
            return median(savings), None
        holds, unclear = (self.counted(each) / len(self.tested) for each in (ClaimOutcome.HOLDS, ClaimOutcome.UNCLEAR))
        return holds, (holds, holds + unclear)

    @property
    def measured(self) -> str:
        """``2.88x (2.47 to 3.10)``, ``16.0%`` or ``10% to 25%``; a dash where nothing was tested."""
        if self.effect is None:
            return "–"
        middle, interval = self.effect
        if self.tested[0].ratio is not None:
            low, high = interval or (middle, middle)
            return ratio_words(Ratio(middle, low, high, 0.95 if interval else 0.0))
        if interval is None:
            return f"{middle:.1%}"
        least, most = (f"{part:.0%}" for part in interval)
        return least if least == most else f"{least} to {most}"

    @property
    def how(self) -> str:
        """The cases, the test, its limits, and the level of its intervals."""
        ratios = [item.ratio for item in self.tested if item.ratio is not None]
        level = f"; {len(ratios)} intervals of {ratios[0].confidence:.2%}" if ratios and ratios[0].confidence else ""
        return f"{self.claim.about}: {self.claim.how}{level}"

    @property
    def where(self) -> str:
        """The outcomes by the one or two parameters that separate them best; empty where none does.

        ``GQA 32/8, CUDA cores: 36 below; MHA 32/32: 50 hold``: it describes these cases and infers nothing of others.
        """
        decided = [item for item in self.tested if item.outcome is not ClaimOutcome.UNCLEAR]
        usual = Counter(item.outcome for item in decided).most_common(1)
        if len({item.outcome for item in decided}) < 2:
            return ""
        # The second case's, which of a growth is the smaller one.
        params = decided[0].cases[-1].params
        names = [name for name in params if len({item.cases[-1].params.get(name) for item in decided}) > 1]
        best: dict[tuple[Value, ...], Counter[ClaimOutcome]] = {}
        fewest = (len(decided) - usual[0][1]) / 2
        for chosen in (*((name,) for name in names), *combinations(names, 2)):
            groups: dict[tuple[Value, ...], Counter[ClaimOutcome]] = {}
            for item in decided:
                groups.setdefault(tuple(item.cases[-1].params[name] for name in chosen), Counter())[item.outcome] += 1
            wrong = sum(group.total() - max(group.values()) for group in groups.values())
            if wrong < fewest and len(groups) <= MOST_GROUPS:
                fewest, best, by = wrong, groups, chosen
        parts = []
        for key, group in best.items():
            words = (studies.value_word(of, value, {**params, of: value}) for of, value in zip(by, key, strict=True))
            outcomes = ", ".join(f"{count} {outcome}" for outcome, count in group.most_common())
            parts.append(f"{', '.join(words)}: {outcomes.replace('holds', 'hold')}")
        return "; ".join(parts)


def results(study: Study) -> tuple[ClaimResult, ...]:
    """The results of the installed packs' claims about workloads of the study."""
    return tuple(
        each.result(study)
        for each in packs.joined("claims")
        if {side.workload for side in each.both} <= study.by_workload.keys()
    )


MOST_EXCEPTIONS = 4  # cases that a recommendation excepts by name; more are counted
WORTH = 1 + WORTH_CHANGING / 100  # a ratio below it is no reason to choose, however sure it is


@dataclass(frozen=True)
class Choice:
    """Two ways to do the same, or two models, and the words that recommend either."""

    what: str  # the question, e.g. "Tensor cores for decode"
    old: CaseSide
    new: CaseSide
    take_new: str  # what to do where new is faster, e.g. ``pass use_tensor_cores=True``
    keep_old: str
    by: str = ""  # a parameter by whose values the answers are separate, e.g. kv_heads; empty for none


@dataclass(frozen=True)
class Chosen:
    """The answer to a choice, by the pairs of cases that differ in it alone."""

    choice: Choice
    where: str  # the value of ``by`` in words
    group: tuple[tuple[Pair, Ratio], ...]  # each pair with the old way's time over the new way's, the largest first

    @property
    def question(self) -> str:
        return f"{self.choice.what}{f' ({self.where})' if self.where else ''}"

    @property
    def median(self) -> float:
        return median(ratio.value for _, ratio in self.group)

    def counted(self, direction: Direction) -> int:
        """Pairs in which the new way is faster (MORE), slower (LESS), or no difference is seen."""
        return sum(ratio.direction is direction for _, ratio in self.group)

    def advice(self, study: Study) -> str:
        """What to do, with the cases in which the other way is faster."""
        choice = self.choice
        faster, slower = ([of for of in self.group if of[1].direction is to] for to in (Direction.MORE, Direction.LESS))
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
        where = "; ".join(study.pair_label(*pair, without=without) for pair in worth[:MOST_EXCEPTIONS])
        more = f" and {len(worth) - MOST_EXCEPTIONS} more" if len(worth) > MOST_EXCEPTIONS else ""
        return f"{many}; but {other} at {where}{more}"


def choices(study: Study) -> tuple[list[Chosen], list[tuple[Choice, Finding]]]:
    """The answers to the packs' choices between workloads of the study, one for each value of ``by``; and the choices
    without a pair, with the reason. Of two models, each is taken at its fastest for every size."""
    chosen: list[Chosen] = []
    absent: list[tuple[Choice, Finding]] = []
    for choice in packs.joined("choices"):
        if not {choice.old.workload, choice.new.workload} <= study.by_workload.keys():
            continue
        groups: dict[str, list[tuple[Pair, Ratio]]] = {}
        for pair in study.fastest_pairs(choice.old, choice.new) or study.pairs(choice.old, choice.new):
            if (ratio := study.ratio(*pair)) is not None:
                params = pair[0].params
                tells_apart = choice.by and choice.by in study.varied[pair[0].workload]
                where = studies.parameter_words({choice.by: params[choice.by]}, params) if tells_apart else ""
                groups.setdefault(where, []).append((pair, ratio))
        for where, group in groups.items():
            chosen.append(Chosen(choice, where, tuple(sorted(group, key=lambda item: -item[1].value))))
        if not groups:
            absent.append((choice, study.absent_pair(choice.old, choice.new)))
    return chosen, absent
