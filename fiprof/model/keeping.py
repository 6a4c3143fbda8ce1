"""What ``fiprof verify`` and ``fiprof prune`` find out about the runs of an archive."""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.model.finding import Finding
from fiprof.model.wording import Worded


class FileState(Worded):
    """What is to be said of a file of a run that is not as it was made."""

    MISSING = "missing", "{run}: {file} is missing"
    CHANGED = "changed", "{run}: {file} is not the file that its run made: its checksum in run.json differs"
    DAMAGED = "damaged", "{run}: {file} cannot be read: {reason}"
    PLANTED = "planted", "{run}: {file} was not made by the run, and would be read as if it were"
    """A link or device, or a raw file that no action made and that would be parsed."""
    EXTRA = "extra", "{run}: {file} is no file of fiprof's"
    WITHHELD = "withheld", "{run}: {file} is private and was left out of what was handed on"
    PRUNED = "pruned", "{run}: {file} was pruned on {when:.10}"
    LEFTOVER = "leftover", "{run}: {file} is left of a prune that was interrupted; fiprof prune removes it"


HARMLESS = frozenset({FileState.EXTRA, FileState.WITHHELD, FileState.PRUNED, FileState.LEFTOVER})


class TablesState(Worded):
    """What there is of a run's tables."""

    WHOLE = "whole"
    REBUILDABLE = "rebuildable", "to be made: fiprof parse"
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


class Kept(Worded):
    """Why a run keeps its raw files."""

    YOUNG = "young", "younger"
    BASELINE = "baseline", "of a baseline"
    TAGGED = "tagged", "with a tag that keeps it"
    RECORDED = "recorded", "recorded for a repository"
    """artifacts/recorded."""
    NO_TABLES = "no_tables", "without all of its tables (fiprof parse makes them)"
    NOTHING = "nothing", "without raw files"
    DAMAGED = "damaged", "that cannot be read (fiprof verify says why)"


@dataclass(frozen=True)
class Pruned:
    """A run that ``fiprof prune`` looked at."""

    name: str
    path: str
    started: str | None
    """ISO 8601 with offset; None where the manifest cannot be read."""
    kept: Kept | None
    """None where its raw files go."""
    raw_files: tuple[str, ...] = ()
    """That go, by their names in the run folder."""
    freed_bytes: int = 0
