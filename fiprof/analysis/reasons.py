"""The states of a warp, as ncu tells them apart: what each means, and what usually makes it less."""

from __future__ import annotations

import csv
from enum import StrEnum
from pathlib import Path
from typing import Self


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

    def __new__(cls, name: str, kind: ReasonKind, short: str, meaning: str, helps: str) -> Self:
        state = super().__new__(cls, name)
        state.kind, state.short, state.meaning, state.helps = kind, short, meaning, helps
        return state


def _read() -> dict[str, WarpState]:
    text = Path(__file__).with_name("warp_states.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {
        row["state"]: WarpState(row["state"], ReasonKind(row["kind"]), row["short"], row["meaning"], row["helps"])
        for row in rows
    }


REASONS = _read()
"""ncu's warp states under our names."""


def state(name: str) -> WarpState:
    """What is known of a state; one that only a later ncu has is a stall."""
    unknown = "are in a state that this fiprof does not know"
    return REASONS.get(name) or WarpState(name, ReasonKind.STALL, "unknown", unknown, "unknown")


def kind_of(name: str) -> ReasonKind:
    """The kind of a state."""
    return state(name).kind
