"""Headings of launches, and what is said of those that are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from fiprof.model.labels import NO_CASE
from fiprof.model.provenance import TracedText
from fiprof.model.selection import Alike
from fiprof.model.wording import say
from fiprof.text import escape_control

T = TypeVar("T")


class HasHeading(Protocol):
    """What a heading says of a launch."""

    @property
    def launch(self) -> int: ...
    @property
    def label(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def iteration(self) -> int | None: ...
    @property
    def repeated(self) -> bool:
        """Whether its case launched this kernel in several iterations."""

    @property
    def duration_us(self) -> float | None: ...


H = TypeVar("H", bound=HasHeading)


def heading(item: HasHeading, like: Alike[H] | None = None) -> str:
    """``launch 3 · prefill · PrefillWithKVCacheKernel · 307.87 µs``. like: the launches that it stands for."""
    of_case = [] if item.label == NO_CASE else [escape_control(item.label)]
    parts = [f"launch {item.launch}", *of_case, escape_control(item.kernel)]
    alone = like is None or like.count == 1
    if alone and item.repeated and item.iteration is not None:
        parts.append(f"iteration {item.iteration}")
    if item.duration_us is not None:
        parts.append(f"{item.duration_us:,.2f} µs")
    if like is not None and not alone:
        parts.append(say("median of {count} alike, {range}", count=like.count, range=time_range(like)))
    return " · ".join(parts)


def time_range(of: Alike[T]) -> str | None:
    """``85.10–92.30 µs``; None of a single launch."""
    if of.range_us is None:
        return None
    return "–".join(f"{us:,.2f}" for us in of.range_us) + " µs"


def bounded(groups: Sequence[Alike[T]], most: int | None) -> tuple[Sequence[Alike[T]], tuple[TracedText, ...]]:
    """At most so many groups of launches, and the sentence about the rest; all of them where most is None."""
    rest = groups[most:] if most is not None else ()
    if not rest:
        return groups, ()
    share = sum(each.total_us for each in rest) / (sum(each.total_us for each in groups) or 1.0)
    said = say(
        "{count:launch|launches} left out, {share:.1%} of the time: --top N, --launch, --kernel or --all shows them.",
        count=sum(each.count for each in rest),
        share=share,
    )
    return groups[:most], (said,)
