"""The order in which the processes of two sides measure."""

from __future__ import annotations


def schedule(processes: int) -> str:
    """``ABBAABBAAB`` for five a side: a drift over time falls on both alike, but for one place in five."""
    return ("ABBA" * processes)[: 2 * processes]
