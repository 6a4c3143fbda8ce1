"""What ``fiprof prune`` removed, or would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fiprof.model.pruned import Pruned
from fiprof.reports.columns import Cells, attribute, filled, for_programs
from fiprof.reports.view import Column, Document, Narrow
from fiprof.reports.words import phrase

CELLS: Cells = (
    attribute("name", "run", narrow=Narrow.KEEP),
    (Column("", "started", narrow=Narrow.DROP), lambda run: run.started and run.started[:10]),
    (Column("", "frees", "MB", ",.1f"), lambda run: run.freed_bytes / 1e6),
    attribute("raw_files", "raw files", narrow=Narrow.BELOW),
)
PROGRAMS = for_programs(
    *map(attribute, ("name", "path", "started", "kept", "raw_files", "freed_bytes")),
)


def pruned(runs: Sequence[Pruned], *, dry_run: bool) -> Document:
    """The runs whose raw files go, and how many keep theirs, by why."""
    going = [run for run in runs if run.kept is None]
    freed = sum(run.freed_bytes for run in going)
    notes = [
        phrase("prune.kept", count=count, why=why)
        for why, count in Counter(run.kept for run in runs).items()
        if why is not None
    ]
    key = "prune.would" if dry_run else "prune.done"
    summary = phrase(key, count=len(going), mb=freed / 1e6) if going else phrase("prune.nothing")
    return Document(filled(PROGRAMS, runs), (filled(CELLS, going, notes=(*notes, summary)),))
