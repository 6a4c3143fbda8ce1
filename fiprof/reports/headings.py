"""Headings of launches, and how sentences number them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from fiprof.text import join_words, short_kernel

WIDEST_LABEL = 32
"""Cells of a case in a table before its middle is left out."""

MOST_NUMBERS = 8
"""Launches that a sentence names before it counts the rest."""


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


def heading(item: HasHeading) -> str:
    """``launch 3 · prefill · PrefillWithKVCacheKernel · 307.87 µs``."""
    parts = [f"launch {item.launch}", item.label, short_kernel(item.kernel)]
    if item.repeated and item.iteration is not None:
        parts.append(f"iteration {item.iteration}")
    if item.duration_us is not None:
        parts.append(f"{item.duration_us:.2f} µs")
    return " · ".join(parts)


def label_cells(labels: Iterable[str]) -> int:
    """Cells that a table keeps for the cases' labels, so that kernels' names are shortened before them."""
    return min(max(map(len, labels), default=0), WIDEST_LABEL)


def numbered(numbers: Sequence[int]) -> str:
    """``launch 3``, ``launches 0, 4 and 8``; of many the first, and how many more there are."""
    if len(numbers) == 1:
        return f"launch {numbers[0]}"
    if len(numbers) > MOST_NUMBERS:
        return f"launches {first_numbers(numbers)}"
    return f"launches {join_words([str(number) for number in numbers])}"


def first_numbers(numbers: Sequence[int]) -> str:
    """``0, 4, 8``; of many the first, and how many more there are."""
    shown = ", ".join(map(str, numbers[:MOST_NUMBERS]))
    return f"{shown} and {len(numbers) - MOST_NUMBERS} more" if len(numbers) > MOST_NUMBERS else shown
