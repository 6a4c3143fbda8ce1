"""Two ways to do the same: which one a study's times speak for, and at which sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fiprof.analysis.ratio import Direction, Ratio, of_cases
from fiprof.analysis.shapes import fastest_pairs
from fiprof.analysis.study import Absence, Pair, Side, Study, absent_pair, kernel_shares, main_kernel, pairs
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.model import packs
from fiprof.model.results import CaseResult
from fiprof.reports.columns import Cell, filled
from fiprof.reports.study_pages.names import cite, pair_label, parameter_words, short_pair, slug, verdict_title
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase

MOST_EXCEPTIONS = 4
"""Cases that a recommendation excepts by name; more are counted."""

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


@dataclass(frozen=True)
class Chosen:
    """What the pairs of cases that differ in a choice alone say about it."""

    choice: Choice
    where: str
    """The value of ``by`` in words."""
    group: tuple[tuple[Pair, Ratio], ...]
    """Each pair with the old one's time over the new one's; the largest ratio first."""

    @property
    def anchor(self) -> str:
        return f"{self.choice.anchor}{'-' + slug(self.where) if self.where else ''}"

    @property
    def question(self) -> str:
        return f"{self.choice.what}{f' ({self.where})' if self.where else ''}"

    def counted(self, direction: Direction) -> int:
        """Pairs in which the new way is faster (MORE), slower (LESS), or no difference is seen."""
        return sum(ratio.direction is direction for _, ratio in self.group)

    @property
    def without(self) -> tuple[str, ...]:
        """What names of pairs leave out."""
        return (self.choice.by,) if self.where else ()


def choices(study: Study) -> tuple[list[Chosen], list[tuple[Choice, Absence]]]:
    """The answers to every pack's choices whose workloads the study has, and those without a pair."""
    found: list[Chosen] = []
    absent: list[tuple[Choice, Absence]] = []
    for choice in packs.joined("choices"):
        if {choice.old.workload, choice.new.workload} <= study.by_workload.keys():
            made = choose(study, choice)
            found += made
            absent += [] if made else [(choice, absent_pair(study, choice.old, choice.new))]
    return found, absent


def choose(study: Study, choice: Choice) -> list[Chosen]:
    """An answer for each value of ``by``; none without a pair.

    Of two models each size is solved the fastest way: nobody who chooses one takes what this study advises against.
    """
    both = fastest_pairs(study, choice.old, choice.new) or pairs(study, choice.old, choice.new)
    groups: dict[str, list[tuple[Pair, Ratio]]] = {}
    for pair in both:
        if (ratio := of_cases(*pair)) is None:
            continue
        word = ""
        if choice.by and choice.by in study.varied(pair[0].workload):
            word = parameter_words({choice.by: pair[0].params[choice.by]}, pair[0].params)
        groups.setdefault(word, []).append((pair, ratio))
    return [
        Chosen(choice, word, tuple(sorted(group, key=lambda item: -item[1].value))) for word, group in groups.items()
    ]


# Tables


def view(study: Study, found: Sequence[Chosen], *, whole: bool = True) -> View:
    """An answer a row. whole: with where the difference is largest and smallest."""
    ends: list[Cell] = [
        (Column("most", "most", wrap=True), lambda item: _pair(study, item, 0)),
        (Column("least", "least", wrap=True), lambda item: _pair(study, item, -1)),
    ]
    columns: list[Cell] = [
        (Column("choice", "choice"), lambda item: item.question),
        (Column("do", "what to do", wrap=True), lambda item: advice(study, item)),
        (Column("median", "gain", "median x", ".2f"), lambda item: median(ratio.value for _, ratio in item.group)),
        (Column("faster", "faster", "pairs"), lambda item: item.counted(Direction.MORE)),
        (Column("slower", "slower", "pairs"), lambda item: item.counted(Direction.LESS)),
        (Column("same", "same", "pairs"), lambda item: item.counted(Direction.SAME)),
        *(ends if whole else []),
    ]
    return filled(columns, found)


def _pair(study: Study, item: Chosen, index: int) -> str:
    (old, new), ratio = item.group[index]
    return cite(study, new, f"{ratio.value:.2f}x at {short_pair(study, old, new)}")


def by_bound(found: Sequence[Chosen]) -> View:
    """The ratios apart, by what bounds the old way; only of choices where that is known of all and differs."""
    rows: list[tuple[str, str, int, float, float]] = []
    for item in found:
        apart: dict[str, list[float]] = {}
        for (old, _), ratio in item.group:
            kernel = main_kernel(old)
            apart.setdefault(verdict_title(kernel.verdict) if kernel else "", []).append(ratio.value)
        if len(apart) > 1 and "" not in apart:
            ordered = sorted(apart.items(), key=lambda each: -len(each[1]))
            rows += [(item.question, bound, len(values), min(values), max(values)) for bound, values in ordered]
    columns = (
        Column("choice", "choice"),
        Column("bound", "what bounds the old way"),
        Column("pairs", "pairs"),
        Column("least", "gain from", "x", ".2f"),
        Column("most", "to", "x", ".2f"),
    )
    return View(columns, tuple(rows))


def aside_share(case: CaseResult, part: str) -> float:
    """Part of an iteration's kernel time in kernels with this in their name; 0 where none ran or has no time."""
    shares = kernel_shares(case) or []
    return sum(share for kernel, share in zip(case.kernels, shares, strict=False) if part and part in kernel.kernel)


# Advice


def advice(study: Study, found: Chosen) -> str:
    """What to do, with the cases that are excepted."""
    choice, group = found.choice, found.group
    faster = [item for item in group if item[1].direction is Direction.MORE]
    slower = [item for item in group if item[1].direction is Direction.LESS]
    most = max((ratio.factor for _, ratio in (*faster, *slower)), default=1.0)
    if not faster and not slower:
        return phrase("choice.same")
    if most < WORTH:
        return phrase("choice.negligible", gain=most - 1)
    if not slower:
        return phrase(f"choice.{'all' if len(faster) == len(group) else 'most'}", take=choice.take_new)
    if not faster:
        return phrase("choice.none", keep=choice.keep_old)
    many, other, few = (
        (choice.take_new, choice.keep_old, slower)
        if len(faster) >= len(slower)
        else (choice.keep_old, choice.take_new, faster)
    )
    worth = [item for item in few if item[1].factor >= WORTH]
    if not worth:
        return phrase("choice.all", take=many)
    named = [pair_label(study, *pair, without=found.without) for pair, _ in worth[:MOST_EXCEPTIONS]]
    more = phrase("choice.more", count=len(worth) - len(named)) if len(worth) > len(named) else ""
    return phrase("choice.but", take=many, other=other, where=f"{'; '.join(named)}{more}")
