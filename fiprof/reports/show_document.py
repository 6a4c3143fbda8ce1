"""``fiprof show`` as a document: an overview, sections by name, and one flat table for programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from fiprof.analysis.occupancy import findings
from fiprof.analysis.program import weights
from fiprof.analysis.show import Figures, LaunchFigures
from fiprof.model.quantities import LOCAL_REQUESTS
from fiprof.model.selection import Alike, alike, longest_first
from fiprof.reports import show_columns
from fiprof.reports.columns import NAMES, Cell, Cells, attribute, filled, for_programs, grouped
from fiprof.reports.headings import bounded
from fiprof.reports.view import Column, Document, View
from fiprof.reports.words import phrase, worded

MOST_ROWS = 20
"""Groups of like launches, and cases, that people are shown."""


class Section(StrEnum):
    """What ``fiprof show`` shows below its overview."""

    TIMES = "times"
    COMPUTE = "compute"
    MEMORY = "memory"
    OCCUPANCY = "occupancy"
    WAVES = "waves"


Group = Alike[LaunchFigures]
RANK: Cells = (attribute("rank", "rank"),)


def document(
    figures: Figures,
    *,
    limits: Callable[[tuple[int, ...]], Mapping[int, str]] | None = None,
    overview: bool = True,
    sections: Collection[Section] = tuple(Section),
    most: int | None = None,
) -> Document:
    """The figures as tables: for people overview and sections; for programs a row a launch, its case beside it.

    limits: what limits some launches, for the overview. most: rows that people are shown; None for all.
    """
    found = longest_first(alike(figures.launches, _time, lambda item: item.rank, weights(figures.run)))
    kept, left_out = bounded(found, most)
    profiled = [group for group in kept if group.shown.launch is not None]
    shown = [*_overview(figures, kept, limits, most)] if overview else []
    for section in Section:
        if section in sections:
            shown += _SECTIONS[section](figures, profiled, most)
    more = [f"--{section}" for section in Section if section not in sections]
    notes = [*left_out, *([phrase("show.more", options=tuple(more))] if more and profiled and overview else [])]
    return Document(lambda: _data(figures), tuple(shown), warnings=figures.warnings, notes=tuple(notes))


def _data(figures: Figures) -> View:
    """A row a launch, its case's figures under ``case_…``; a case without launches has a row of its own."""
    launched = {item.case for item in figures.launches}
    bare = [
        LaunchFigures(case=case.id, label=figures.run.labels(case.id))
        for case in figures.cases
        if case.id not in launched
    ]
    of_case = show_columns.of_cases((*show_columns.CASE_TIMES, *show_columns.CASE_LEAST), figures.run, "case")
    cells = for_programs(*show_columns.LAUNCH, *(RANK if _by_rank(figures) else ()), *of_case)
    return filled(cells, (*figures.launches, *bare))


def _time(item: LaunchFigures) -> float | None:
    return item.duration_us or item.nsys_duration_us


def _by_rank(figures: Figures) -> bool:
    return any(item.rank is not None for item in figures.launches)


# The overview


def _overview(
    figures: Figures,
    groups: Sequence[Group],
    limits: Callable[[tuple[int, ...]], Mapping[int, str]] | None,
    most: int | None,
) -> Iterable[View]:
    if figures.cases:
        yield _of_cases(figures, show_columns.CASE_TIMES, "show.cases", most, phrase("show.cases_note"))
    if not groups:
        return
    cells: list[Cell] = [*show_columns.OVERVIEW]
    if any(group.shown.launch is None for group in groups):
        cells.insert(1, show_columns.NSYS)
    if _by_rank(figures):
        cells = [*RANK, *cells]
    launches = tuple(group.shown.launch for group in groups if group.shown.launch is not None)
    if limits and launches:
        found = limits(launches)
        cells.append((Column("", "limit"), lambda item: found.get(item.launch)))
    yield _table(groups, cells, "launches")


def _of_cases(
    figures: Figures, cells: tuple[show_columns.CaseCell, ...], title: str, most: int | None, note: str
) -> View:
    name: Cell = (Column("label", "case"), lambda case: figures.run.labels(case.id))
    rest = len(figures.cases[most:]) if most is not None else 0
    notes = [note, *([phrase("show.more_cases", count=rest)] if rest else [])]
    columns = (name, *show_columns.of_cases(cells, figures.run))
    return filled(columns, figures.cases[:most], title=phrase(title), notes=tuple(notes))


def _table(groups: Sequence[Group], cells: Cells, title: str, **texts: Any) -> View:
    repeated = [attribute("iteration", "iter")] if len({group.shown.iteration for group in groups}) > 1 else []
    alone = all(group.count == 1 for group in groups)
    columns = (*NAMES, *(repeated if alone else ()), *cells)
    return filled(grouped(columns, groups), groups, title=phrase(f"show.{title}"), **texts)


# The sections


def _times(figures: Figures, groups: Sequence[Group], most: int | None) -> Iterable[View]:
    if figures.cases:
        yield _of_cases(figures, show_columns.CASE_LEAST, "show.least", most, phrase("show.least_note"))
    if groups:
        yield _table(groups, show_columns.TIMES, "times", notes=(phrase("show.times_note"),))


def _compute(_: Figures, groups: Sequence[Group], __: int | None) -> Iterable[View]:
    if groups:
        yield _table(groups, show_columns.WORK, "compute", notes=(phrase("show.compute_note"),))


def _memory(_: Figures, groups: Sequence[Group], __: int | None) -> Iterable[View]:
    if not groups:
        return
    yield _table(groups, show_columns.MEMORY, "memory", notes=(phrase("show.memory_note"),))
    notes = []
    tables = ((show_columns.GLOBAL, "global"), (show_columns.SHARED, "shared"))
    accessed = [(cells, title) for cells, title in tables if _has_any(groups, cells)]
    for cells, title in accessed:
        yield _table(groups, cells, title, notes=(phrase(f"show.{title}_note"),))
    if any(value(group.shown) for group in groups for _, value in show_columns.LOCAL):
        yield _table(groups, show_columns.LOCAL, "local")
    if not accessed:
        notes.append(phrase("show.no_accesses"))
    if all(LOCAL_REQUESTS.of(group.shown.row) == 0 for group in groups):
        notes.append(phrase("show.no_local"))
    if notes:
        yield View((), (), summary=tuple(notes))


def _occupancy(_: Figures, groups: Sequence[Group], __: int | None) -> Iterable[View]:
    if not groups:
        return
    yield _table(groups, show_columns.OCCUPANCY, "occupancy")
    if any(group.shown.occupancy.limits for group in groups):
        empty = {column.key for column, _ in show_columns.CLUSTERS} - {
            column.key for column, value in show_columns.CLUSTERS if any(value(group.shown) for group in groups)
        }
        cells = [cell for cell in show_columns.LIMITS if cell[0].key not in empty]
        yield _table(groups, cells, "limits", notes=(phrase("show.limits_note"), *_held(groups)))


def _waves(_: Figures, groups: Sequence[Group], __: int | None) -> Iterable[View]:
    small = [group.shown.launch for group in groups if (waves := group.shown.occupancy.waves) and not waves.full]
    if any(group.shown.occupancy.waves for group in groups):
        notes = [phrase("show.waves_note"), *([phrase("show.small_grids", launches=small)] if small else [])]
        yield _table(groups, show_columns.WAVES, "waves", notes=tuple(notes))


_SECTIONS: Mapping[Section, Callable[[Figures, Sequence[Group], int | None], Iterable[View]]] = {
    Section.TIMES: _times,
    Section.COMPUTE: _compute,
    Section.MEMORY: _memory,
    Section.OCCUPANCY: _occupancy,
    Section.WAVES: _waves,
}


def _has_any(groups: Sequence[Group], cells: Cells) -> bool:
    """Whether a launch has something in one of the columns with a key."""
    return any(value(group.shown) is not None for group in groups for column, value in cells if column.key)


def _held(groups: Sequence[Group]) -> tuple[str, ...]:
    """What holds the occupancies, each once with the launches that it is about."""
    about: dict[str, list[int | None]] = defaultdict(list)
    for group in groups:
        if said := " ".join(map(worded, findings(group.shown.occupancy))):
            about[said].append(group.shown.launch)
    return tuple(phrase("show.about", launches=launches, text=text) for text, launches in about.items())
