"""What is kept beside a run, and what ``fiprof verify`` and ``fiprof prune`` find out about the runs of an archive.

``annotations.json``: tags and notes that people give a run afterwards; its manifest stays as it was.
"""

import dataclasses
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.files import locked, write_whole
from fiprof.model import json_file, layout
from fiprof.model.finding import Finding, Wording

LONGEST_TAG = 100
LONGEST_NOTE = 4000  # characters


@dataclass(frozen=True)
class Note:
    """A sentence about a run."""

    when: str  # ISO 8601 with offset
    who: str  # name of the user
    text: str


@dataclass(frozen=True)
class Annotations:
    """The whole file."""

    tags: list[str] = field(default_factory=list)  # sorted, each once
    notes: list[Note] = field(default_factory=list)  # the oldest first
    schema_version: int = 1


def read_annotations(folder: Path) -> Annotations:
    """A run folder's annotations without secrets; none where it has no such file."""
    path = folder / layout.ANNOTATIONS
    if not os.path.lexists(path):
        return Annotations()
    remedy = "restore it from a copy, or remove it: the run itself is untouched"
    annotations = json_file.read(path, Annotations, remedy, makes="fiprof tag and fiprof note write it")
    return json_file.decode(json_file.encode(annotations), Annotations)


def change(
    folder: Path, *, add: Collection[str] = (), remove: Collection[str] = (), note: Note | None = None
) -> Annotations:
    """Add tags or a note to a run folder's annotations, or remove tags; two who do it at once wait for each other.

    Raises FiprofError for a tag that the run does not have.
    """
    with locked(folder):
        annotations = read_annotations(folder)
        if absent := [name for name in remove if name not in annotations.tags]:
            tag_list = ", ".join(annotations.tags) or "none"
            raise FiprofError(f"the run has no tag {absent[0]}", f"its tags: {tag_list}", exit_code=2)
        tags, notes = sorted({*annotations.tags, *add} - {*remove}), [*annotations.notes, *([note] if note else [])]
        written = json_file.encode(dataclasses.replace(annotations, tags=tags, notes=notes))
        remedy = "ask who owns the run, or copy it into an archive of your own"
        write_whole(folder / layout.ANNOTATIONS, written, remedy)
    return json_file.decode(written, Annotations)


class FileState(Wording):
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


class TablesState(Wording):
    """What there is of a run's tables."""

    WHOLE = "whole"
    REBUILDABLE = "rebuildable", "to be made: fiprof parse"  # missing or damaged, and their raw files are intact
    LOST = "lost"  # missing or damaged, and so are their raw files
    NONE = "none"  # the run came to no raw files


@dataclass(frozen=True)
class Verified:
    """What became of a run since it was made."""

    name: str
    path: str
    status: str  # complete, failed, interrupted, or damaged where its manifest cannot be read
    files: int  # that the manifest names
    bytes: int  # of the whole folder on disk
    tables: TablesState
    found: tuple[Finding, ...]  # of kind FileState: what is not as it was made

    @property
    def intact(self) -> bool:
        """Whether it is as it was made, or as fiprof itself changed it since."""
        return self.tables != TablesState.LOST and all(each.kind in HARMLESS for each in self.found)


class Kept(Wording):
    """Why a run keeps its raw files."""

    YOUNG = "young", "younger"
    BASELINE = "baseline", "of a baseline"
    TAGGED = "tagged", "with a tag that keeps it"
    RECORDED = "recorded", "recorded for a repository"  # artifacts/recorded
    NO_TABLES = "no_tables", "whose tables are not all as they were made (fiprof parse makes them)"
    NOTHING = "nothing", "without raw files"
    DAMAGED = "damaged", "that are not as made (fiprof verify says what is wrong)"
