"""What time it is, asked in one place, so that tests and reproducible builds hand in a clock of their own."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta

VARIABLE = "FIPROF_CLOCK"
"""``DATE@BASE``: the clock showed the ISO time DATE when this machine's monotonic clock showed BASE seconds."""


def now() -> datetime:
    """The time with the local time zone."""
    date, _, base = os.environ.get(VARIABLE, "").partition("@")
    if not date:
        return datetime.now().astimezone()
    return (datetime.fromisoformat(date) + timedelta(seconds=time.monotonic() - float(base or 0))).astimezone()


def now_text(timespec: str = "milliseconds") -> str:
    """The same in ISO form, as manifests have it."""
    return now().isoformat(timespec=timespec)
