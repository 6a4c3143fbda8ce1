"""What ``fiprof verify`` found."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.model.finding import Finding
from fiprof.model.verified import HARMLESS, Verified
from fiprof.reports.columns import Cells, attribute, filled, for_programs
from fiprof.reports.view import Column, Document, Narrow
from fiprof.reports.words import phrase

CELLS: Cells = (
    attribute("name", "run", narrow=Narrow.KEEP),
    (Column("", "size", "MB", ",.1f"), lambda run: run.bytes / 1e6),
    attribute("files", "files", spec=",d"),
    attribute("tables", "tables"),
    (Column("", "wrong", spec=",d"), lambda run: sum(each.kind not in HARMLESS for each in run.found)),
)
PROGRAMS = for_programs(
    attribute("name"),
    attribute("path"),
    attribute("intact"),
    attribute("files"),
    attribute("bytes"),
    attribute("tables"),
    attribute("files_found", of="found"),
)


def verified(runs: Sequence[Verified], catalogue: Sequence[Finding] = ()) -> Document:
    """A run with all that was found; of several those that are not intact, and how many there are.

    catalogue: what does not agree in it.
    """
    found = [each for run in runs for each in run.found]
    harmless = [each for each in found if each.kind in HARMLESS]
    wrong = [run for run in runs if not run.intact]
    notes = harmless if len(runs) == 1 else [phrase("verify.harmless", count=len(harmless))] if harmless else []
    summary = phrase("verify.wrong" if wrong else "verify.ok", count=len(runs), wrong=len(wrong))
    warnings = (*(each for each in found if each.kind not in HARMLESS), *catalogue)
    shown = filled(CELLS, runs if len(runs) == 1 else wrong, warnings=warnings, notes=(*notes, summary))
    return Document(filled(PROGRAMS, runs), (shown,))
