"""``annotations.json``: tags and notes that people give a run afterwards; its manifest stays as it was."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.files import write_whole
from fiprof.model import json_file
from fiprof.model.layout import ANNOTATIONS

LONGEST_TAG = 100
"""Characters."""


@dataclass(frozen=True)
class Note:
    """A sentence about a run."""

    when: str
    """ISO 8601 with offset."""
    who: str
    """Name of the user."""
    text: str


@dataclass(frozen=True)
class Annotations:
    """The whole file."""

    tags: list[str] = field(default_factory=list)
    """Sorted, each once."""
    notes: list[Note] = field(default_factory=list)
    """The oldest first."""
    schema_version: int = 1


def read_annotations(folder: Path) -> Annotations:
    """A run folder's annotations; none where it has no such file. Raises FiprofError where it is damaged or a link."""
    path = folder / ANNOTATIONS
    if not os.path.lexists(path):
        return Annotations()
    remedy = "restore it from a copy, or remove it: the run itself is untouched"
    return json_file.read(path, Annotations, remedy, makes="fiprof tag and fiprof note write it")


def change(
    folder: Path, *, add: Collection[str] = (), remove: Collection[str] = (), note: Note | None = None
) -> Annotations:
    """Add tags or a note to a run folder's annotations, or remove tags; two who do it at once wait for each other.

    Raises FiprofError for a tag that the run does not have, and where they cannot be read or written.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # A file system without locks on folders: the later of two at the same moment wins.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        found = read_annotations(folder)
        if absent := [name for name in remove if name not in found.tags]:
            there = ", ".join(found.tags) or "none"
            raise FiprofError(f"the run has no tag {absent[0]}", f"its tags: {there}", exit_code=2)
        tags, notes = sorted({*found.tags, *add} - {*remove}), [*found.notes, *([note] if note else [])]
        found = dataclasses.replace(found, tags=tags, notes=notes)
        remedy = "ask who owns the run, or copy it into an archive of your own"
        write_whole(folder / ANNOTATIONS, json_file.encode(found), remedy)
    finally:
        os.close(descriptor)
    return found
