"""What time it is, asked in one place, so that tests and reproducible builds hand in a clock of their own."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime, timedelta

VARIABLE = "FIPROF_CLOCK"
"""``DATE@BASE``: the clock showed the ISO time DATE when this machine's monotonic clock showed BASE seconds. ``DATE``
alone: the clock stands."""


def now() -> datetime:
    """The time with the local time zone."""
    date, moves, base = os.environ.get(VARIABLE, "").partition("@")
    if not date:
        return datetime.now().astimezone()
    passed = timedelta(seconds=time.monotonic() - float(base or 0) if moves else 0)
    return (datetime.fromisoformat(date) + passed).astimezone()


def age(text: str) -> timedelta | None:
    """``90d``, ``12h`` or ``8w``; None for another text."""
    match = re.fullmatch(r"(\d{1,5}(?:\.\d+)?)\s*([hdw])", text.strip())
    return timedelta(hours=float(match[1]) * {"h": 1, "d": 24, "w": 168}[match[2]]) if match else None


def monotonic() -> float:
    """Seconds for durations; a clock that stands takes none."""
    date, moves, _ = os.environ.get(VARIABLE, "").partition("@")
    return 0.0 if date and not moves else time.monotonic()


def now_text(timespec: str = "milliseconds") -> str:
    """The same in ISO form, as manifests have it."""
    return now().isoformat(timespec=timespec)
