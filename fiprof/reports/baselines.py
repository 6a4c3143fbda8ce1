"""``fiprof baseline``: the baselines of an archive, and one with its cases."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.model.baselines import NamedBaseline
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.reports.columns import Cells, filled, for_programs
from fiprof.reports.view import Column, Document, Narrow, View
from fiprof.reports.words import phrase

Found = tuple[NamedBaseline, Sequence[CaseEntry] | None]
"""A baseline and its cases; None where its run is not in the archive."""

_COLUMNS: Cells = (
    (Column("baseline", "baseline", narrow=Narrow.KEEP), lambda of: of[0].name),
    (Column("run", "run", narrow=Narrow.KEEP), lambda of: of[0].run),
    (Column("commit"), lambda of: of[0].commit),
    (Column("", "commit"), lambda of: of[0].short_commit),
    (Column("", "cases", spec=",d"), lambda of: None if of[1] is None else len(of[1])),
    (Column("cases"), lambda of: None if of[1] is None else tuple(case.id for case in of[1])),
    (Column("", "set", narrow=Narrow.BELOW), lambda of: of[0].set_at[:16].replace("T", " ")),
    (Column("set_at"), lambda of: of[0].set_at),
    (Column("set_by", "by", narrow=Narrow.BELOW), lambda of: of[0].set_by),
)


def document(found: Sequence[Found], *, with_cases: bool = False) -> Document:
    """A row a baseline. with_cases: a second table for people, a row a case."""
    gone = tuple(phrase("baseline.no_run", name=of.name, run=of.run) for of, cases in found if cases is None)
    notes = () if found else (phrase("baseline.none"),)
    views = [filled(_COLUMNS, found, warnings=gone, notes=notes)]
    if with_cases:
        cases = [case for _, each in found for case in each or ()]
        label = Labels(cases)
        columns = (Column("", phrase("baseline.case")),)
        views.append(View(columns, tuple((label(case.id),) for case in cases)))
    return Document(filled(for_programs(*_COLUMNS), found), tuple(views))
