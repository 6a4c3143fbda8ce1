"""Two ways to do the same: which one a study's times speak for, and at which sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis.ratio import Direction, Ratio, of_cases
from fiprof.analysis.study import Pair, Side, Study, absent_pair, kernel_shares, main_kernel, pairs
from fiprof.model import packs
from fiprof.model.results import CaseResult
from fiprof.reports.pages.page import Observation
from fiprof.reports.study_pages.found import Audience, StudyFinding, not_measured, slug
from fiprof.reports.study_pages.names import absence_words, confidence, pair_label, parameter_words, verdict_title
from fiprof.reports.study_pages.numbers import plain_time, ratio_words, spread
from fiprof.text import count, join_words

MOST_EXCEPTIONS = 4
"""Cases that a recommendation excepts by name; more are counted."""

ASIDE_MENTIONED = 0.25
"""Part of a case's kernel time from which :attr:`Choice.aside` is named beside a ratio. fiprof's own choice."""

WORTH = 1.02
"""A ratio below it is no reason to choose, however sure it is. fiprof's own choice."""


@dataclass(frozen=True)
class Choice:
    """Two ways to do the same, and how a recommendation for one of them is said."""

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
    """What the pairs of cases that differ in a choice alone say about it; one finding for each value of ``by``."""
    found = pairs(study, choice.old, choice.new)
    ratios = [(pair, ratio) for pair in found if (ratio := of_cases(*pair)) is not None]
    if not ratios:
        why = absence_words(absent_pair(study, choice.old, choice.new))
        return [not_measured(choice.anchor, choice.what, why, Audience.SERVING)]
    groups: dict[str, list[_Compared]] = {}
    for pair, ratio in ratios:
        word = ""
        if choice.by and choice.by in study.varied(pair[0].workload):
            word = parameter_words({choice.by: pair[0].params[choice.by]}, pair[0].params)
        groups.setdefault(word, []).append((pair, ratio))
    return [_chosen(study, choice, word, group) for word, group in groups.items()]


def _chosen(study: Study, choice: Choice, word: str, group: Sequence[_Compared]) -> StudyFinding:
    """ratios are old over new: above 1, the new one is faster."""
    faster = [item for item in group if item[1].direction is Direction.MORE]
    slower = [item for item in group if item[1].direction is Direction.LESS]
    alike = len(group) - len(faster) - len(slower)
    kinds = ((len(faster), "faster"), (len(slower), "slower"), (alike, "with no difference seen"))
    counted = join_words([f"{words} in {n}" for n, words in kinds if n])
    without = (choice.by,) if word else ()
    where = f" ({word})" if word else ""
    values = [ratio.value for _, ratio in group]
    observation = (
        f"{choice.what}{where}: {counted} of {count(len(group), 'pair')} of cases. Time with {choice.old_name} over "
        f"time with {choice.new_name}: {spread(values)}."
    )
    extremes = {id(item): item for item in (max(group, key=_value), min(group, key=_value))}
    evidence = (
        *(_pair_words(study, choice, *item, without) for item in extremes.values()),
        *_by_bound(choice, group),
    )
    finding = Observation(
        f"{choice.anchor}{'-' + slug(word) if word else ''}",
        observation,
        evidence,
        _advice(study, choice, faster, slower, len(group), without),
        f"Plain times; each pair's interval has {confidence(study)}, so that about "
        f"{sum(1 - (ratio.confidence or 0) for _, ratio in group):.1f} of {count(len(group), 'pair')} would seem to "
        "differ by chance.",
    )
    cases = tuple(case for item in extremes.values() for case in item[0])
    figure = f"{spread(values)} times as fast as {choice.old_name}"
    return StudyFinding(f"{choice.what}{where}", finding, cases, Audience.SERVING, choice.headline, figure=figure)


def _by_bound(choice: Choice, group: Sequence[_Compared]) -> list[str]:
    """The ratios apart, by what bounds the old way; nothing where all are bound alike, or it is not known."""
    found: dict[str, list[float]] = {}
    for (old, _), ratio in group:
        kernel = main_kernel(old)
        if kernel is None or kernel.verdict is None:
            return []
        found.setdefault(verdict_title(kernel.verdict), []).append(ratio.value)
    if len(found) < 2:
        return []
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    words = [f"{verdict} {spread(values)} ({count(len(values), 'pair')})" for verdict, values in ordered]
    return [f"by what bounds {choice.old_name}: {'; '.join(words)}"]


def _value(item: _Compared) -> float:
    return item[1].value


def _pair_words(study: Study, choice: Choice, pair: Pair, ratio: Ratio, without: Sequence[str]) -> str:
    old, new = pair
    where = pair_label(study, old, new, without=without)
    words = f"{where}: {choice.old_name} {plain_time(old)}, {choice.new_name} {plain_time(new)}: {ratio_words(ratio)}"
    asides = [
        f"{share:.0%} of the kernel time of {name}"
        for case, name in ((old, choice.old_name), (new, choice.new_name))
        if (share := aside_share(case, choice.aside[0])) >= ASIDE_MENTIONED
    ]
    return words + (f"; {choice.aside[1]} is {join_words(asides)}" if asides else "")


def aside_share(case: CaseResult, part: str) -> float:
    """Part of an iteration's kernel time in kernels with this in their name; 0 where none ran or has no time."""
    shares = kernel_shares(case) or []
    return sum(share for kernel, share in zip(case.kernels, shares, strict=False) if part and part in kernel.kernel)


def _advice(
    study: Study,
    choice: Choice,
    faster: Sequence[_Compared],
    slower: Sequence[_Compared],
    total: int,
    without: Sequence[str],
) -> str:
    if not faster and not slower:
        return "No difference was seen: choose by something else."
    most = max(ratio.factor for _, ratio in (*faster, *slower))
    if most < WORTH:
        return f"Differences were seen, and the largest is {most - 1:.1%}: choose by something else."
    if not slower:
        rest = "" if len(faster) == total else f"; in {total - len(faster)} of {total} no difference was seen"
        return f"{_sentence(choice.take_new)}{rest}."
    if not faster:
        return f"{_sentence(choice.keep_old)}: nothing was faster with {choice.new_name}."
    many, few = (choice.take_new, slower) if len(faster) >= len(slower) else (choice.keep_old, faster)
    other = choice.keep_old if few is slower else choice.take_new
    worth = [item for item in few if item[1].factor >= WORTH]
    if not worth:
        loss = max(ratio.factor for _, ratio in few) - 1
        where = "; ".join(pair_label(study, *pair, without=without) for pair, _ in few[:MOST_EXCEPTIONS])
        return f"{_sentence(many)}; what that loses at {where} is at most {loss:.1%}."
    few = worth
    names = [pair_label(study, *pair, without=without) for pair, _ in few[:MOST_EXCEPTIONS]]
    more = f" and {len(few) - len(names)} more" if len(few) > len(names) else ""
    return f"{_sentence(many)}; but {other} at {'; '.join(names)}{more}."


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def choices(study: Study) -> list[StudyFinding]:
    """The findings of every pack's choices whose workloads the study has."""
    return [
        found
        for choice in packs.joined("choices")
        if {choice.old.workload, choice.new.workload} <= study.by_workload.keys()
        for found in choose(study, choice)
    ]
