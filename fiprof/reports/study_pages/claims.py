"""What became of the claims, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fiprof.analysis.claims import Bound, Claim, Growth, Limits, Outcome, Result, Saving, Tested, TimeRatio
from fiprof.analysis.ratio import Direction
from fiprof.analysis.study import Study, least_bytes
from fiprof.reports.study_pages.names import absence_words, axis_name, label, pair_label, verdict_title
from fiprof.reports.study_pages.numbers import number, ratio_words, spread
from fiprof.reports.words import phrase, worded


def sentence(study: Study, result: Result) -> str:
    """``«GQA decodes 1.5x faster»: refuted; …``"""
    summary_ = summary(study, result)
    return phrase("claim.sentence", words=result.claim.words, verdict=result.verdict, summary=summary_)


def how(claim: Claim) -> str:
    """The test and its limits."""
    test = claim.test
    if isinstance(test, TimeRatio):
        return phrase("claim.time_ratio", what=test.what, limits=_confirming(test.limits))
    if isinstance(test, Growth):
        return phrase("claim.growth", limits=_confirming(test.limits))
    if isinstance(test, Saving):
        return phrase("claim.saving", low=test.low, high=test.high)
    return phrase("claim.bound", kind=test.kind.value) + (phrase("claim.always") if claim.always else "")


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
    return f"{verdict_title(tested.verdict)}{roof}"


def summary(study: Study, result: Result) -> str:
    """What was found in all, with the spread; why there is nothing where it was not measured."""
    if result.absence is not None:
        return absence_words(result.absence)
    test = result.claim.test
    if isinstance(test, Bound):
        return _bounds(result, test)
    if isinstance(test, Saving):
        return _savings(study, result, test)
    if isinstance(test, Growth):
        return _ratios(
            study, result, test.limits, phrase("claim.time_at", factor=test.factor, axis=axis_name(test.axis))
        )
    return _ratios(study, result, test.limits, test.what)


def _ratios(study: Study, result: Result, limits: Limits, what: str) -> str:
    known = [(item, item.ratio) for item in result.tested if item.ratio is not None]
    if len(known) == 1:
        item, ratio = known[0]
        words, place = ratio_words(ratio), where(study, item)
        return phrase("claim.one_ratio", what=what, ratio=words, where=place, limits=_limits(limits))
    least, most = (choose(known, key=lambda pair: pair[1].value) for choose in (min, max))
    unclear = result.counted(Outcome.UNCLEAR)
    directions = (
        ("above_one", Direction.MORE),
        ("below_one", Direction.LESS),
        ("no_difference", Direction.SAME),
    )
    counts = result.directions
    return phrase(
        "claim.ratios",
        what=what,
        spread=spread([ratio.value for _, ratio in known]),
        count=len(known),
        holds=_holding(result),
        limits=_limits(limits),
        unclear=phrase("claim.unclear", count=unclear) if unclear else "",
        directions=[phrase(f"claim.{key}", count=counts[side]) for key, side in directions if counts[side]],
        least=ratio_words(least[1]),
        least_where=where(study, least[0]),
        most=ratio_words(most[1]),
        most_where=where(study, most[0]),
    )


def _savings(study: Study, result: Result, test: Saving) -> str:
    modelled = [1 - least_bytes(one) / least_bytes(other) for one, other in (item.cases for item in result.tested)]
    return phrase(
        "claim.savings",
        spread=spread(result.savings, ".1%"),
        count=len(result.tested),
        largest=f"{result.largest.saving or 0:.1%}",
        where=where(study, result.largest),
        holds=_holding(result),
        low=test.low,
        high=test.high,
        modelled=spread(modelled, ".1%"),
    )


def _bounds(result: Result, test: Bound) -> str:
    kernels = result.kernels
    verdicts = Counter(verdict_title(kernel.verdict) for kernel in kernels)
    words = phrase("claim.verdicts", count=len(kernels), verdicts=[f"{name} {n}" for name, n in verdicts.most_common()])
    known = [kernel for kernel in kernels if kernel.roof_kind is not None]
    below = [kernel for kernel in known if kernel.roof_kind == test.kind]
    if not known:
        return words + phrase("claim.no_roofs")
    shares = [kernel.roof_share for kernel in below if kernel.roof_share is not None]
    roofs = phrase("claim.roofs", kind=test.kind.value, below=len(below), count=len(known))
    return words + roofs + (phrase("claim.reached", spread=spread(shares, ".0%")) if shares else "")


def _holding(result: Result) -> str:
    n, total = result.counted(Outcome.HOLDS), len(result.tested)
    return phrase(f"claim.{'all_are' if n == total else 'some_are' if n else 'none_is'}", count=n, total=total)


def _limits(limits: Limits) -> str:
    if limits.high == float("inf"):
        return phrase("limits.above", low=number(limits.low))
    return phrase("limits.between", low=limits.low, high=limits.high)


def _confirming(limits: Limits) -> str:
    key = "plain" if limits.tolerance is None else "tolerance"
    return phrase(f"limits.{key}", limits=_limits(limits), tolerance=limits.tolerance)


def counts(results: Sequence[Result]) -> str:
    """``1 confirmed, 2 true in part``."""
    found = Counter(result.verdict for result in results)
    return ", ".join(f"{found[verdict]} {worded(verdict)}" for verdict in type(results[0].verdict) if found[verdict])
