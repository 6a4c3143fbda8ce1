"""The states of a warp and their kinds; what they mean and what helps stands with the words."""

from __future__ import annotations

from enum import StrEnum


class ReasonKind(StrEnum):
    """What a warp in a state does."""

    STALL = "stall"
    """It waits."""
    READY = "ready"
    """It waits for nothing but its turn."""
    ISSUE = "issue"


REASONS = {
    "barrier": ReasonKind.STALL,
    "branch_resolving": ReasonKind.STALL,
    "dispatch_stall": ReasonKind.STALL,
    "drain": ReasonKind.STALL,
    "gmma": ReasonKind.STALL,
    "imc_miss": ReasonKind.STALL,
    "lg_throttle": ReasonKind.STALL,
    "long_scoreboard": ReasonKind.STALL,
    "math_pipe_throttle": ReasonKind.STALL,
    "membar": ReasonKind.STALL,
    "mio_throttle": ReasonKind.STALL,
    "misc": ReasonKind.STALL,
    "no_instruction": ReasonKind.STALL,
    "not_selected": ReasonKind.READY,
    "selected": ReasonKind.ISSUE,
    "short_scoreboard": ReasonKind.STALL,
    "sleeping": ReasonKind.STALL,
    "tex_throttle": ReasonKind.STALL,
    "wait": ReasonKind.STALL,
}
"""ncu's warp states under our names."""


def kind_of(reason: str) -> ReasonKind:
    """The kind of a state; one that only a later ncu has is a stall."""
    return REASONS.get(reason, ReasonKind.STALL)
