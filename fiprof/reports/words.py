"""Counts and lists as sentences have them."""

from __future__ import annotations

from collections.abc import Sequence


def count(n: int, one: str, many: str = "") -> str:
    """``1 cell``, ``2 cells``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
