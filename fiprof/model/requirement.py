"""What a collect needs of a machine, and whether it is there: a row of ``fiprof env``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Whether it will do."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True)
class Requirement:
    """Something that a collect needs."""

    what: str
    state: State
    found: str
    """What is there, with its version."""
    remedy: str = ""
    """What to do about it; empty for ok."""
