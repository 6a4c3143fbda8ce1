"""What others say of the kernels, each sentence with its test and what became of it: a chapter of the final report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from fiprof.analysis.claims import Bound, ClaimVerdict, Growth, Limits, Outcome, Result, Saving, Tested
from fiprof.analysis.intervals import CONFIDENCE
from fiprof.analysis.ratio import Ratio
from fiprof.analysis.splits import LEAST_BYTES, Condition, Split
from fiprof.analysis.study import Study, least_bytes
from fiprof.model import knowledge, packs
from fiprof.reports.columns import Cell, filled
from fiprof.reports.pages.page import Section, Table, Text, bullets
from fiprof.reports.study_pages.names import (
    absence_words,
    axis_name,
    cite,
    label,
    pair_label,
    parameter_word,
    short,
    short_pair,
    verdict_title,
)
from fiprof.reports.study_pages.numbers import bytes_, number, ratio_words, spread
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase, worded

FEW_EXCEPTIONS = 4
"""Cases that differ from most are named where no parameter tells them apart, if they are no more."""


def sections(study: Study, results: Sequence[Result]) -> tuple[Section, ...]:
    """Nothing where no pack claims anything of the study's workloads."""
    if not results:
        return ()
    notes = (phrase("claim.columns"), phrase("claim.method", confidence=CONFIDENCE, doubt=1 - CONFIDENCE))
    blocks = (
        Text((phrase("claim.lead"),)),
        Table(table(results), "claims-table"),
        Table(_ranges(study, results), "claims-ranges"),
        Table(_sources(results), "claims-sources"),
        bullets([*notes, *packs.joined("claim_notes")]),
        Table(_tested(study, results), "claims-tested", appendix=True),
    )
    return (Section("claims", phrase("claim.heading"), blocks),)


def table(results: Sequence[Result]) -> View:
    """The claims and what became of them."""
    columns: list[Cell] = [
        (Column("claim", "claim"), lambda item: item.claim.words),
        (Column("verdict", "verdict"), verdict),
        (Column("effect", "measured"), lambda item: _short(item) if item.tested else "–"),
        (Column("tests", "tests"), lambda item: len(item.tested)),
        (Column("holds", "hold"), lambda item: item.counted(Outcome.HOLDS)),
        (Column("above", "above"), lambda item: item.counted(Outcome.ABOVE)),
        (Column("below", "below"), lambda item: item.counted(Outcome.BELOW)),
        (Column("unclear", "unclear"), lambda item: item.counted(Outcome.UNCLEAR)),
    ]
    return filled(columns, results)


def verdict(result: Result) -> str:
    """``depends on tokens``; what it depends on, where that is known."""
    on = [_parameter(name) for name in result.split.names] if result.split else []
    depends = result.verdict is ClaimVerdict.DEPENDS and on
    return worded(result.verdict) + (phrase("claim.on", names=on) if depends else "")


def _ranges(study: Study, results: Sequence[Result]) -> View:
    """How far the measured lie apart, and what tells the outcomes apart."""
    columns: list[Cell] = [
        (Column("claim", "claim"), lambda item: item.claim.words),
        (Column("effect", "median, interval"), lambda item: _effect(item) if item.effect else "–"),
        (Column("least", "least, at"), lambda item: _end(study, item, 0)),
        (Column("most", "most, at"), lambda item: _end(study, item, -1)),
        (Column("where", "where it holds", wrap=True), lambda item: _where(study, item) + _at_source(item)),
    ]
    return filled(columns, results, title="Ranges, and what they depend on")


def _end(study: Study, result: Result, index: int) -> str:
    if isinstance(result.claim.test, Bound) or not result.tested:
        return "–"
    found = sorted(result.tested, key=lambda item: item.ratio.value if item.ratio else item.saving or 0.0)[index]
    return f"{measured(found)}, {where(study, found)}"


def _sources(results: Sequence[Result]) -> View:
    columns: list[Cell] = [
        (Column("claim", "claim"), lambda item: item.claim.words),
        (Column("source", "source", wrap=True), lambda item: item.claim.source),
        (Column("said_of", "said of", wrap=True), lambda item: item.claim.said_of),
        (Column("test", "test", wrap=True), how),
    ]
    return filled(columns, results, title="Sources and tests")


# What was found


def _effect(result: Result) -> str:
    """``2.88x (2.47 to 3.10)``, ``16.0%`` or ``10% to 25%``."""
    found = result.effect
    if found is None:
        return "–"
    if result.ratios:
        low, high = found.interval or (found.median, found.median)
        return ratio_words(Ratio(found.median, low, high, CONFIDENCE if found.interval else 0.0))
    if result.savings or found.interval is None:
        modelled = _modelled(result) if result.savings else ""
        return f"{found.median:.1%}" + (phrase("claim.modelled", modelled=modelled) if modelled else "")
    least, most = (f"{part:.0%}" for part in found.interval)
    return least if least == most else f"{least} to {most}"


def _modelled(result: Result) -> str:
    return spread([1 - least_bytes(one) / least_bytes(other) for one, other in (i.cases for i in result.tested)], ".1%")


def _short(result: Result) -> str:
    """The same without its interval."""
    found = result.effect
    if found is None:
        return "–"
    return f"{number(found.median)}x" if result.ratios else f"{found.median:.0%}"


def _counted(result: Result, counts_: Mapping[StrEnum, int]) -> str:
    other = isinstance(result.claim.test, Bound)
    return ", ".join(
        phrase(f"claim.counted.{'other_bound' if other and outcome is Outcome.BELOW else outcome}", count=n)
        for outcome, n in counts_.items()
    )


def _where(study: Study, result: Result) -> str:
    """What tells the outcomes apart; where nothing does, the few cases that differ from most; why there is nothing."""
    if not result.tested:
        return absence_words(result.absence) if result.absence else "–"
    if result.split is not None:
        return _split(result, result.split)
    decided = Counter(item.outcome for item in result.tested if item.outcome is not Outcome.UNCLEAR)
    if len(decided) < 2:
        return phrase("claim.everywhere")
    usual = decided.most_common(1)[0][0]
    others = [item for item in result.tested if item.outcome not in (usual, Outcome.UNCLEAR)]
    if len(others) > FEW_EXCEPTIONS:
        return phrase("claim.no_split")
    return phrase("claim.exceptions", cases="; ".join(f"{where(study, item)}: {measured(item)}" for item in others))


def _at_source(result: Result) -> str:
    """The effect at the case that the claim was said of."""
    found = result.at_source
    return phrase("claim.at_source", effect=f"{number(found.median)}x", count=found.count) if found else ""


def _split(result: Result, found: Split) -> str:
    """``Of those that decide: tokens from 16,384 on: 2 below; the others: 2 above.``"""
    everything = dict(result.tested[0].params)
    sides: list[str] = []
    last: Split | None = found
    while last is not None:
        conditions = [_condition(condition, everything) for condition in last.conditions]
        side = phrase("claim.side", conditions=conditions, outcomes=_counted(result, last.inside))
        sides.append(phrase("claim.next", side=side) if sides else side)
        found, last = last, last.rest
    sides.append(phrase("claim.others", outcomes=_counted(result, found.outside)))
    return phrase("claim.split", sides="; ".join(sides))


def _condition(found: Condition, everything: dict[str, bool | int | float | str]) -> str:
    """``batch x KV length from 4,096 on``, ``GQA 32/8``, ``without CUDA graph``."""
    names = " x ".join(_parameter(name) for name in found.names)
    if found.comparison != "is":
        value = bytes_(float(found.value)) if found.names == (LEAST_BYTES,) else f"{found.value:,.0f}"
        return phrase(f"claim.{found.comparison}", name=names, value=value)
    words = parameter_word(found.names[0], found.value, {**everything, found.names[0]: found.value})
    return words or phrase("claim.without", name=names)


def _parameter(name: str) -> str:
    known = knowledge.of_parameter(name)
    return phrase("claim.least_bytes") if name == LEAST_BYTES else known.axis or known.on or name


# The test


def how(result: Result) -> str:
    """The cases, the test, its limits, and the level of its intervals."""
    return phrase("claim.test", about=result.claim.about, test=_how(result))


def _how(result: Result) -> str:
    test = result.claim.test
    if isinstance(test, Bound):
        return phrase("claim.bound", kind=test.kind.value)
    if isinstance(test, Saving):
        return phrase("claim.saving", limits=_confirming(test.limits, percent=True))
    what = (
        phrase("claim.time_at", factor=test.factor, axis=axis_name(test.axis))
        if isinstance(test, Growth)
        else test.what
    )
    ratios = result.ratios
    level = (
        phrase("claim.level", count=len(ratios), each=ratios[0].confidence) if ratios and ratios[0].confidence else ""
    )
    return phrase("claim.time_ratio", what=what, limits=_confirming(test.limits)) + level


def _limits(limits: Limits, *, percent: bool = False) -> str:
    if percent:
        return phrase("limits.percent", low=limits.low, high=limits.high)
    if limits.high == float("inf"):
        return phrase("limits.above", low=number(limits.low))
    return phrase("limits.between", low=limits.low, high=limits.high)


def _confirming(limits: Limits, *, percent: bool = False) -> str:
    kind = "plain" if limits.tolerance is None else "tolerance"
    return phrase(f"limits.{kind}", limits=_limits(limits, percent=percent), tolerance=limits.tolerance)


# Case by case

_ORDER = (Outcome.BELOW, Outcome.ABOVE, Outcome.UNCLEAR, Outcome.HOLDS)


def _tested(study: Study, results: Sequence[Result]) -> View:
    """Every case or pair of every claim, those that contradict first."""
    rows = []
    for result in results:
        bound = isinstance(result.claim.test, Bound)
        for item in sorted(result.tested, key=lambda item: _ORDER.index(item.outcome)):
            name = short_pair(study, *item.cases) if len(item.cases) == 2 else short(study, item.cases[0])
            other = bound and item.outcome is Outcome.BELOW
            outcome = phrase("claim.other") if other else worded(item.outcome)
            rows.append((result.claim.words, cite(study, item.cases[0], name), measured(item), outcome))
    columns = [Column("claim", "claim"), Column("cases", "cases"), Column("measured", "measured")]
    return View((*columns, Column("outcome", "outcome")), tuple(rows), title="Every test")


def where(study: Study, tested: Tested) -> str:
    """What the cases have in common, and the one number that tells them apart: ``batch 1, KV 512 to 2,048``."""
    if len(tested.cases) == 2:
        return pair_label(study, *tested.cases)
    return label(study, tested.cases[0], workload=False)


def measured(tested: Tested) -> str:
    """What was found of a case or a pair."""
    if tested.ratio is not None:
        return ratio_words(tested.ratio)
    if tested.saving is not None:
        return phrase("claim.less", saving=tested.saving)
    kernel = tested.kernel
    known = kernel is not None and kernel.roof is not None and kernel.roof_share is not None
    roof = f", {kernel.roof_share:.0%} of {kernel.roof}" if known and kernel else ""
    return f"{verdict_title(kernel.verdict if kernel else None)}{roof}"
