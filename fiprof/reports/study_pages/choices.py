"""Two ways to do the same: which one a study's times speak for, and at which sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis.ratio import Direction, Ratio, of_cases
from fiprof.analysis.shapes import fastest_pairs
from fiprof.analysis.study import Pair, Side, Study, absent_pair, kernel_shares, main_kernel, pairs
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.model import packs
from fiprof.model.results import CaseResult
from fiprof.reports.study_pages.found import Audience, StudyFinding, found, not_measured, slug
from fiprof.reports.study_pages.names import absence_words, confidence, pair_label, parameter_words, verdict_title
from fiprof.reports.study_pages.numbers import faster_slower, plain_time, ratio_words, spread
from fiprof.reports.words import phrase

MOST_EXCEPTIONS = 4
"""Cases that a recommendation excepts by name; more are counted."""

ASIDE_MENTIONED = 0.25
"""Part of a case's kernel time from which :attr:`Choice.aside` is named beside a ratio. fiprof's own choice."""

WORTH = 1 + WORTH_CHANGING.share
"""A ratio below it is no reason to choose, however sure it is."""


@dataclass(frozen=True)
class Choice:
    """Two ways to do the same, or two models, and how a recommendation for one of them is said."""

    anchor: str
    what: str
    """The question, e.g. «Tensor cores for decode»."""
    old: Side
    new: Side
    old_name: str
    new_name: str
    take_new: str
    """What to do where new is faster, e.g. ``use_tensor_cores=True``."""
    keep_old: str
    by: str = ""
    """An option to tell apart, e.g. kv_heads; empty for none."""
    headline: bool = False
    aside: tuple[str, str] = ("", "")
    """A kernel that only some cases need: a part of its name, and what it is, e.g. the merge of a split."""


_Compared = tuple[Pair, Ratio]


def choose(study: Study, choice: Choice) -> list[StudyFinding]:
    """What the pairs of cases that differ in a choice alone say about it; one finding for each value of ``by``.

    Of two models each size is solved the fastest way: nobody who chooses one takes what this study advises against.
    """
    models = fastest_pairs(study, choice.old, choice.new)
    both = models or pairs(study, choice.old, choice.new)
    ratios = [(pair, ratio) for pair in both if (ratio := of_cases(*pair)) is not None]
    if not ratios:
        why = absence_words(absent_pair(study, choice.old, choice.new))
        return [not_measured(choice.anchor, choice.what, why, Audience.SERVING)]
    groups: dict[str, list[_Compared]] = {}
    for pair, ratio in ratios:
        word = ""
        if choice.by and choice.by in study.varied(pair[0].workload):
            word = parameter_words({choice.by: pair[0].params[choice.by]}, pair[0].params)
        groups.setdefault(word, []).append((pair, ratio))
    return [
        _chosen(study, choice, word, group, phrase("choice.models") if models else "") for word, group in groups.items()
    ]


def _chosen(study: Study, choice: Choice, word: str, group: Sequence[_Compared], models: str) -> StudyFinding:
    """ratios are old over new: above 1, the new one is faster. models: how the sides of two models were solved."""
    without = (choice.by,) if word else ()
    extremes = {id(item): item for item in (max(group, key=_value), min(group, key=_value))}.values()
    return found(
        "choice",
        f"{choice.anchor}{'-' + slug(word) if word else ''}",
        Audience.SERVING,
        evidence=(*(_pair_words(study, choice, *item, without) for item in extremes), *_by_bound(choice, group)),
        cases=[case for pair, _ in extremes for case in pair],
        advice=_advice(study, choice, group, without),
        headline=choice.headline,
        what=f"{choice.what}{f' ({word})' if word else ''}",
        seen=faster_slower((ratio for _, ratio in group), Direction.MORE),
        models=models,
        pairs=len(group),
        old=choice.old_name,
        new=choice.new_name,
        spread=spread([ratio.value for _, ratio in group]),
        confidence=confidence(study),
        chance=sum(1 - (ratio.confidence or 0) for _, ratio in group),
    )


def _by_bound(choice: Choice, group: Sequence[_Compared]) -> list[str]:
    """The ratios apart, by what bounds the old way; nothing where all are bound alike, or it is not known."""
    apart: dict[str, list[float]] = {}
    for (old, _), ratio in group:
        kernel = main_kernel(old)
        if kernel is None or kernel.verdict is None:
            return []
        apart.setdefault(verdict_title(kernel.verdict), []).append(ratio.value)
    if len(apart) < 2:
        return []
    ordered = sorted(apart.items(), key=lambda item: -len(item[1]))
    words = [
        phrase("choice.bound", verdict=verdict, spread=spread(values), pairs=len(values)) for verdict, values in ordered
    ]
    return [phrase("choice.by_bound", old=choice.old_name, bounds="; ".join(words))]


def _value(item: _Compared) -> float:
    return item[1].value


def _pair_words(study: Study, choice: Choice, pair: Pair, ratio: Ratio, without: Sequence[str]) -> str:
    old, new = pair
    where = pair_label(study, old, new, without=without)
    words = f"{where}: {choice.old_name} {plain_time(old)}, {choice.new_name} {plain_time(new)}: {ratio_words(ratio)}"
    asides = [
        phrase("choice.aside_share", share=share, name=name)
        for case, name in ((old, choice.old_name), (new, choice.new_name))
        if (share := aside_share(case, choice.aside[0])) >= ASIDE_MENTIONED
    ]
    return words + (phrase("choice.aside", what=choice.aside[1], shares=asides) if asides else "")


def aside_share(case: CaseResult, part: str) -> float:
    """Part of an iteration's kernel time in kernels with this in their name; 0 where none ran or has no time."""
    shares = kernel_shares(case) or []
    return sum(share for kernel, share in zip(case.kernels, shares, strict=False) if part and part in kernel.kernel)


def _advice(study: Study, choice: Choice, group: Sequence[_Compared], without: Sequence[str]) -> str:
    faster = [item for item in group if item[1].direction is Direction.MORE]
    slower = [item for item in group if item[1].direction is Direction.LESS]
    if not faster and not slower:
        return phrase("choice.same")
    most = max(ratio.factor for _, ratio in (*faster, *slower))
    if most < WORTH:
        return phrase("choice.negligible", gain=most - 1)
    if not slower:
        rest = len(group) - len(faster)
        return (
            _sentence(phrase("choice.all", take=choice.take_new, count=rest, total=len(group)))
            if rest
            else (_sentence(f"{choice.take_new}."))
        )
    if not faster:
        return _sentence(phrase("choice.none", keep=choice.keep_old, new=choice.new_name))
    many, other, few = (
        (choice.take_new, choice.keep_old, slower)
        if len(faster) >= len(slower)
        else (choice.keep_old, choice.take_new, faster)
    )
    worth = [item for item in few if item[1].factor >= WORTH]
    named = [pair_label(study, *pair, without=without) for pair, _ in (worth or few)[:MOST_EXCEPTIONS]]
    where = "; ".join(named)
    if not worth:
        loss = max(ratio.factor for _, ratio in few) - 1
        return _sentence(phrase("choice.loss", take=many, where=where, loss=loss))
    more = f" and {len(worth) - len(named)} more" if len(worth) > len(named) else ""
    return _sentence(phrase("choice.but", take=many, other=other, where=f"{where}{more}"))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def choices(study: Study) -> list[StudyFinding]:
    """The findings of every pack's choices whose workloads the study has."""
    return [
        made
        for choice in packs.joined("choices")
        if {choice.old.workload, choice.new.workload} <= study.by_workload.keys()
        for made in choose(study, choice)
    ]
