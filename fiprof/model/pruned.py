"""What ``fiprof prune`` does with a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kept(StrEnum):
    """Why a run keeps its raw files."""

    YOUNG = "young"
    BASELINE = "baseline"
    TAGGED = "tagged"
    RECORDED = "recorded"
    """It belongs to a repository: artifacts/recorded."""
    NO_TABLES = "no_tables"
    """Its tables are not all made, and could not be made afterwards."""
    NOTHING = "nothing"
    """It has no raw files, or none are left."""
    DAMAGED = "damaged"
    """Its manifest cannot be read."""


@dataclass(frozen=True)
class Pruned:
    """A run that was looked at."""

    name: str
    path: str
    started: str | None
    """ISO 8601 with offset; None where the manifest cannot be read."""
    kept: Kept | None
    """None where its raw files go."""
    raw_files: tuple[str, ...] = ()
    """That go, by their names in the run folder."""
    freed_bytes: int = 0
