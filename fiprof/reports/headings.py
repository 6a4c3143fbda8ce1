"""Headings of launches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fiprof.text import short_kernel

WIDEST_LABEL = 32
"""Cells of a case in a table before its middle is left out."""


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
