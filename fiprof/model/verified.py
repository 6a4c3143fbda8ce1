"""What ``fiprof verify`` finds out about a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fiprof.model.finding import Finding


class FileState(StrEnum):
    """What is to be said of a file of a run that is not as it was made; with run, file and reason."""

    MISSING = "missing"
    CHANGED = "changed"
    """Its checksum is not the manifest's."""
    DAMAGED = "damaged"
    """It cannot be read."""
    PLANTED = "planted"
    """A link or device, or a raw file that no action made and that would be parsed."""
    EXTRA = "extra"
    """No file of fiprof's; it does no harm."""
    WITHHELD = "withheld"
    """A private file, left out of what was handed on."""
    PRUNED = "pruned"
    """``fiprof prune`` removed it; with when."""
    LEFTOVER = "leftover"
    """``fiprof prune`` was ended before it removed it."""


HARMLESS = frozenset({FileState.EXTRA, FileState.WITHHELD, FileState.PRUNED, FileState.LEFTOVER})


class CatalogueState(StrEnum):
    """How the catalogue differs from the run folders after it was brought up to date; with run."""

    UNLISTED = "unlisted"
    GONE = "gone"
    """It lists a run that is not there."""
    STALE = "stale"
    """It says something else of a run's state or size."""


class TablesState(StrEnum):
    """What there is of a run's tables."""

    WHOLE = "whole"
    REBUILDABLE = "rebuildable"
    """Missing or damaged, and their raw files are intact."""
    LOST = "lost"
    """Missing or damaged, and so are their raw files."""
    NONE = "none"
    """The run came to no raw files."""


@dataclass(frozen=True)
class Verified:
    """What became of a run since it was made."""

    name: str
    path: str
    status: str
    """complete, failed, interrupted, or damaged where its manifest cannot be read."""
    files: int
    """That the manifest names."""
    bytes: int
    """Of the whole folder on disk."""
    tables: TablesState
    found: tuple[Finding, ...]
    """Of kind FileState: what is not as it was made."""

    @property
    def intact(self) -> bool:
        """Whether it is as it was made, or as fiprof itself changed it since."""
        return self.tables != TablesState.LOST and all(each.kind in HARMLESS for each in self.found)
