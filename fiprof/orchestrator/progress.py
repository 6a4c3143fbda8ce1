"""What the orchestrator tells while it works; the command line shows it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Progress(Protocol):
    """Told what is going on; may be told from several threads at once."""

    def step(self, name: str, /) -> AbstractContextManager[None]:
        """A step for the length of a block; several may be under way at once."""

    def detail(self, name: str, text: str, /) -> None:
        """What the step is at just now."""

    def say(self, text: str, /) -> None:
        """A line that stays."""

    def without_lines(self) -> Progress:
        """The same, for work that says nothing to stay: whoever started it sums it up."""
