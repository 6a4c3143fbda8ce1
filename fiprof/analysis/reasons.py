"""The states of a warp, as ncu tells them apart: what each means, and what usually makes it less."""

from __future__ import annotations

import csv
from enum import StrEnum
from pathlib import Path


class ReasonKind(StrEnum):
    """What a warp in a state does."""

    STALL = "stall"
    """It waits."""
    READY = "ready"
    """It waits for nothing but its turn."""
    ISSUE = "issue"


class WarpState(str):
    """A state's name, e.g. ``long_scoreboard``, with what is known of it."""

    kind: ReasonKind
    short: str
    """What they wait for, in two or three words."""
    meaning: str
    """What the warps do, after «warps»."""
    helps: str
    """What usually makes it less."""


def state(name: str) -> WarpState:
    """What is known of a state; one that only a later ncu has is a stall."""
    unknown = ("stall", "unknown", "are in a state that this fiprof does not know", "unknown")
    return REASONS.get(name) or _state(name, *unknown)


def _state(name: str, kind: str, short: str, meaning: str, helps: str) -> WarpState:
    state = WarpState(name)
    state.kind, state.short, state.meaning, state.helps = ReasonKind(kind), short, meaning, helps
    return state


with Path(__file__).with_name("warp_states.csv").open(encoding="utf-8", newline="") as _file:
    REASONS = {row[0]: _state(*row) for row in list(csv.reader(_file))[1:]}
"""ncu's warp states under our names."""
