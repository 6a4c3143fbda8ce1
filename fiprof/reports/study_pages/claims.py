"""What others say of the kernels, each sentence with its test and what became of it: a chapter of the final report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from fiprof.analysis.claims import Bound, Claim, ClaimVerdict, Effect, Growth, Limits, Outcome, Result, Saving, Tested
from fiprof.analysis.intervals import CONFIDENCE
from fiprof.analysis.ratio import Ratio
from fiprof.analysis.splits import LEAST_BYTES, Condition, Split
from fiprof.analysis.study import Study, least_bytes
from fiprof.model import knowledge, packs
from fiprof.reports.columns import Cell, filled
from fiprof.reports.pages.page import Block, Bullets, Section, Table, Text
from fiprof.reports.study_pages.names import (
    absence_words,
    axis_name,
    label,
    pair_label,
    parameter_word,
    run_link,
    short,
    short_pair,
    verdict_title,
)
from fiprof.reports.study_pages.numbers import bytes_, number, ratio_words, spread
from fiprof.reports.study_pages.tables import key
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase, worded

FEW_EXCEPTIONS = 4
"""Cases that differ from most are named where no parameter tells them apart, if they are no more."""


def sections(study: Study, results: Sequence[Result]) -> tuple[Section, ...]:
    """Nothing where no pack claims anything of the study's workloads."""
    if not results:
        return ()
    notes = tuple(Text((text,)) for text in (_method(), *packs.joined("claim_notes")))
    blocks: tuple[Block, ...] = (Text((phrase("claim.lead"),)), Table(table(results), "claims-table"), *notes)
    return (Section("claims", phrase("claim.heading"), blocks, tuple(_section(study, item) for item in results)),)


def table(results: Sequence[Result]) -> View:
    """The claims and what became of them."""
    columns: list[Cell] = [
        (Column("claim", "claim"), lambda item: item.claim.words),
        (Column("verdict", "verdict"), lambda item: worded(item.verdict)),
        (Column("effect", "effect"), lambda item: _short(item) if item.tested else "–"),
        (Column("tests", "tests"), lambda item: len(item.tested)),
        (Column("holds", "hold"), lambda item: item.counted(Outcome.HOLDS)),
        (Column("above", "above"), lambda item: item.counted(Outcome.ABOVE)),
        (Column("below", "below"), lambda item: item.counted(Outcome.BELOW)),
        (Column("unclear", "unclear"), lambda item: item.counted(Outcome.UNCLEAR)),
    ]
    return filled(columns, results, notes=(phrase("claim.columns"),))


def counts(results: Sequence[Result]) -> str:
    """``1 confirmed, 2 overstated``."""
    found = Counter(result.verdict for result in results)
    return ", ".join(f"{found[verdict]} {worded(verdict)}" for verdict in ClaimVerdict if found[verdict])


def sentence(study: Study, result: Result) -> str:
    """``«GQA decodes 1.5x faster»: understated; …``"""
    return phrase("claim.sentence", title=title(result), summary=summary(study, result))


def title(result: Result) -> str:
    """``«GQA decodes 1.5x faster»: understated``; what it depends on, where that is known."""
    on = [_parameter(name) for name in result.split.names] if result.split else []
    depends = result.verdict is ClaimVerdict.DEPENDS and on
    return phrase(
        "claim.title",
        words=result.claim.words,
        verdict=result.verdict,
        on=phrase("claim.on", names=on) if depends else "",
    )


def summary(study: Study, result: Result) -> str:
    """What was found in all, with its range and interval; why there is nothing where it is not testable."""
    if not result.tested:
        return absence_words(result.absence) if result.absence else ""
    test = result.claim.test
    if isinstance(test, Bound):
        words = _bounds(result, test)
    elif isinstance(test, Saving):
        words = _numbers(study, result, "claim.savings", test.limits, modelled=_modelled(result))
    else:
        words = _numbers(study, result, "claim.ratios", test.limits, what=_what(result.claim))
    return words if result.absence is None else f"{absence_words(result.absence)}; {words}"


def _section(study: Study, result: Result) -> Section:
    claim = result.claim
    lines = [
        *_where(study, result),
        *_at_source(result),
        phrase("claim.source", source=claim.source),
        phrase("claim.said_of", said_of=claim.said_of),
        phrase("claim.cases", about=claim.about),
        phrase("claim.test", how=how(claim)) + _level(result),
    ]
    blocks: list[Block] = [
        Text((_sentence(summary(study, result)),)),
        Bullets(tuple(Text((line,)) for line in lines)),
    ]
    if result.tested:
        blocks.append(Table(_tested(study, result), f"tested-{claim.name}", appendix=True))
    return Section(f"claim-{claim.name}", title(result), tuple(blocks))


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


# What was found


def _numbers(study: Study, result: Result, template: str, limits: Limits, **values: str) -> str:
    """Of ratios or savings."""
    found = result.effect
    assert found is not None
    ordered = sorted(result.tested, key=_size)
    return phrase(
        template,
        effect=_effect(result, found),
        count=len(result.tested),
        least=measured(ordered[0]),
        least_where=where(study, ordered[0]),
        most=measured(ordered[-1]),
        most_where=where(study, ordered[-1]),
        limits=_limits(limits, percent=template == "claim.savings"),
        outcomes=_outcomes(result),
        **values,
    )


def _size(item: Tested) -> float:
    return item.ratio.value if item.ratio is not None else item.saving or 0.0


def _modelled(result: Result) -> str:
    return spread([1 - least_bytes(one) / least_bytes(other) for one, other in (i.cases for i in result.tested)], ".1%")


def _bounds(result: Result, test: Bound) -> str:
    kernels = result.kernels
    found = Counter(verdict_title(kernel.verdict) for kernel in kernels)
    below = [kernel for kernel in kernels if kernel.roof_kind == test.kind]
    shares = [kernel.roof_share for kernel in below if kernel.roof_share is not None]
    known = sum(kernel.roof_kind is not None for kernel in kernels)
    roofs = phrase("claim.roofs", kind=test.kind.value, below=len(below), count=known) if known else ""
    return phrase(
        "claim.bounds",
        kind=test.kind.value,
        holds=result.counted(Outcome.HOLDS),
        count=len(kernels),
        effect=_effect(result, result.effect) if result.effect else "",
        verdicts=[f"{name} {n}" for name, n in found.most_common()],
        roofs=roofs + (phrase("claim.reached", spread=spread(shares, ".0%")) if shares else ""),
    )


def _effect(result: Result, found: Effect) -> str:
    """``2.88x (2.47 to 3.10)``, ``16.0%`` or ``10% to 25%``."""
    if result.ratios:
        low, high = found.interval or (found.median, found.median)
        return ratio_words(Ratio(found.median, low, high, CONFIDENCE if found.interval else 0.0))
    if result.savings or found.interval is None:
        return f"{found.median:.1%}"
    least, most = (f"{part:.0%}" for part in found.interval)
    return least if least == most else f"{least} to {most}"


def _short(result: Result) -> str:
    """The same without its interval."""
    found = result.effect
    if found is None:
        return "–"
    return f"{number(found.median)}x" if result.ratios else f"{found.median:.0%}"


def _outcomes(result: Result) -> str:
    """``1 holds, 46 above, 5 below, 2 unclear``."""
    return _counted(result, {outcome: n for outcome in Outcome if (n := result.counted(outcome))})


def _counted(result: Result, counts_: Mapping[StrEnum, int]) -> str:
    other = isinstance(result.claim.test, Bound)
    return ", ".join(
        phrase(f"claim.counted.{'other_bound' if other and outcome is Outcome.BELOW else outcome}", count=n)
        for outcome, n in counts_.items()
    )


def _where(study: Study, result: Result) -> list[str]:
    """What tells the outcomes apart; where nothing does, the few cases that differ from most."""
    if result.split is not None:
        return [_split(result, result.split)]
    decided = Counter(item.outcome for item in result.tested if item.outcome is not Outcome.UNCLEAR)
    if len(decided) < 2:
        return []
    usual = decided.most_common(1)[0][0]
    others = [item for item in result.tested if item.outcome not in (usual, Outcome.UNCLEAR)]
    if len(others) > FEW_EXCEPTIONS:
        return [phrase("claim.no_split")]
    named = [f"{where(study, item)}: {measured(item)}" for item in others]
    return [phrase("claim.exceptions", cases="; ".join(named))]


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


def _at_source(result: Result) -> list[str]:
    found = result.at_source
    return [phrase("claim.at_source", effect=_effect(result, found), count=found.count)] if found else []


# The test


def how(claim: Claim) -> str:
    """The test and its limits."""
    test = claim.test
    if isinstance(test, Bound):
        return phrase("claim.bound", kind=test.kind.value)
    if isinstance(test, Saving):
        return phrase("claim.saving", limits=_confirming(test.limits, percent=True))
    if isinstance(test, Growth):
        return phrase("claim.growth", limits=_confirming(test.limits))
    return phrase("claim.time_ratio", what=test.what, limits=_confirming(test.limits))


def _level(result: Result) -> str:
    """How many intervals there are, and at what level each is so that all hold at once."""
    ratios = result.ratios
    if not ratios or ratios[0].confidence is None:
        return ""
    return phrase("claim.level", count=len(ratios), each=ratios[0].confidence, confidence=CONFIDENCE)


def _method() -> str:
    return phrase("claim.method", confidence=CONFIDENCE, doubt=1 - CONFIDENCE)


def _what(claim: Claim) -> str:
    """How the ratio is called."""
    test = claim.test
    if isinstance(test, Growth):
        return phrase("claim.time_at", factor=test.factor, axis=axis_name(test.axis))
    return "" if isinstance(test, Bound | Saving) else test.what


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


def _tested(study: Study, result: Result) -> View:
    """Every case or pair, those that contradict first, with the runs that hold them."""
    tested, bound = result.tested, isinstance(result.claim.test, Bound)
    runs = max(len({case.run for case in item.cases}) for item in tested)
    rows = []
    for item in sorted(tested, key=lambda item: _ORDER.index(item.outcome)):
        names = list(dict.fromkeys(case.run for case in item.cases))
        links = [run_link(study, name) for name in names] + [""] * (runs - len(names))
        name = short_pair(study, *item.cases) if len(item.cases) == 2 else short(study, item.cases[0])
        other = bound and item.outcome is Outcome.BELOW
        rows.append((name, measured(item), phrase("claim.other") if other else worded(item.outcome), *links))
    columns = [Column("cases", "cases"), Column("measured", "measured"), Column("outcome", "claim")]
    columns += [Column(f"run_{i}", "run" if not i else "other run") for i in range(runs)]
    return View(tuple(columns), tuple(rows), notes=tuple(filter(None, [key(study, tested[0].cases)])))


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
