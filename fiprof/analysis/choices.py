"""Two ways to do the same: which one a study's times speak for, and at which sizes."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from fiprof.analysis.case_names import pair_label, parameter_words
from fiprof.analysis.ratio import Direction, Ratio, of_cases
from fiprof.analysis.study import Pair, Side, Study, absent_pair, bound, fastest_pairs, main_kernel, pairs
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.model import packs
from fiprof.model.finding import Finding
from fiprof.model.wording import worded

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
        """What limits the old way -> the gains there, most pairs first; empty where that is alike or unknown."""
        found: dict[str, list[float]] = {}
        for (old, _), ratio in self.group:
            kernel = main_kernel(old)
            limit = bound(kernel) if kernel else None
            found.setdefault(worded(limit) if limit else "", []).append(ratio.value)
        return sorted(found.items(), key=lambda item: -len(item[1])) if len(found) > 1 and "" not in found else []

    @property
    def turns(self) -> bool:
        """Whether some pairs gain and others lose, and what limits the old way tells something."""
        return bool(self.counted(Direction.MORE) and self.counted(Direction.LESS) and self.by_bound)

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
    """The answers to every pack's choices whose workloads the study has, and those without a pair with the reason."""
    found: list[Chosen] = []
    absent: list[tuple[Choice, Finding]] = []
    for choice in packs.joined("choices"):
        if {choice.old.workload, choice.new.workload} <= study.by_workload.keys():
            made = _chosen(study, choice)
            found += made
            absent += [] if made else [(choice, absent_pair(study, choice.old, choice.new))]
    return found, absent


def _chosen(study: Study, choice: Choice) -> list[Chosen]:
    """An answer for each value of ``by``; none without a pair.

    Of two models each size is solved the fastest way: nobody who chooses one takes what this study advises against.
    """
    groups: dict[str, list[tuple[Pair, Ratio]]] = {}
    for pair in fastest_pairs(study, choice.old, choice.new) or pairs(study, choice.old, choice.new):
        if (ratio := of_cases(*pair)) is not None:
            params = pair[0].params
            tells_apart = choice.by and choice.by in study.varied(pair[0].workload)
            where = parameter_words({choice.by: params[choice.by]}, params) if tells_apart else ""
            groups.setdefault(where, []).append((pair, ratio))
    return [
        Chosen(choice, where, tuple(sorted(group, key=lambda item: -item[1].value))) for where, group in groups.items()
    ]
