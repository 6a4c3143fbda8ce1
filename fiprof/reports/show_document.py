"""``fiprof show`` as a document: its tables for people, one flat table for programs."""

from __future__ import annotations

from fiprof.analysis.show import Figures, LaunchFigures
from fiprof.model.quantities import LOCAL_REQUESTS
from fiprof.reports import show_columns, show_tables
from fiprof.reports.columns import filled, for_programs
from fiprof.reports.view import Document, View
from fiprof.reports.words import phrase


def document(figures: Figures, *, width: int = 120) -> Document:
    """The figures as tables: several for people; one for programs, a row a launch with its case's figures beside it.

    width: columns that a table may take; where names and figures do not fit, names are left out.
    """
    shown = tuple(show_tables.shown(figures, width))
    profiled = [item for item in figures.launches if item.launch is not None]
    notes = ["show.times", "show.rates"]
    if profiled:
        accessed = show_tables.has_any(profiled, (*show_columns.GLOBAL, *show_columns.SHARED))
        notes += ["show.hardware", "show.room", "show.accesses" if accessed else "show.no_accesses"]
        if all(LOCAL_REQUESTS.of(item.row) == 0 for item in profiled):
            notes.append("show.no_local")
    if show_tables.without_alike(figures.launches)[1]:
        notes.append("show.alike")
    return Document(_data(figures), shown, warnings=figures.warnings, notes=tuple(map(phrase, notes)))


def _data(figures: Figures) -> View:
    """A row a launch, its case's figures under ``case_…``; a case without launches has a row of its own."""
    launched = {item.case for item in figures.launches}
    bare = [
        LaunchFigures(case=case.id, label=figures.run.labels(case.id))
        for case in figures.cases
        if case.id not in launched
    ]
    of_case = show_columns.of_cases((*show_columns.CASE_TIMES, *show_columns.CASE_LEAST), figures.run, "case")
    return filled(for_programs(*show_columns.LAUNCH, *of_case), (*figures.launches, *bare))
