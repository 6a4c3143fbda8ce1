"""The tables of ``fiprof show``: narrow ones below each other, so that 80 columns hold them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fiprof.analysis.occupancy import findings
from fiprof.analysis.show import Figures, LaunchFigures
from fiprof.model.manifest import CaseEntry
from fiprof.model.run import Run
from fiprof.reports import show_columns
from fiprof.reports.columns import Cell, Cells, attribute, filled
from fiprof.reports.headings import label_cells
from fiprof.reports.view import Column, View, word
from fiprof.reports.words import phrase, worded
from fiprof.reports.writers import render
from fiprof.text import cell_width

MOST_ALIKE = 8
"""Launches of the same kernel and size in a case that are all shown."""

_NARROW_LABEL = 22
"""Cells of a label that a table of 80 columns leaves for it."""

_LEAST_KERNEL = 24
"""Cells of a kernel's name that come before the block's size."""


def shown(figures: Figures, width: int) -> Iterable[View]:
    """The tables that the figures fill. width: columns that they may take, where names can be left out."""
    label = label_cells(
        [figures.run.labels(case.id) for case in figures.cases] + [item.label for item in figures.launches]
    )
    if figures.cases:
        yield from _of_cases(figures.run, figures.cases, label, width)
    yield from _of_launches(figures.launches, label, width)


# Cases


def _of_cases(run: Run, cases: Sequence[CaseEntry], label: int, width: int) -> Iterable[View]:
    """One table where it fits, else the times and the rates apart."""
    name: Cell = (Column("label", "case", least=label), lambda case: run.labels(case.id))
    times = show_columns.of_cases(show_columns.CASE_TIMES, run)
    least = show_columns.of_cases(show_columns.CASE_LEAST, run)
    whole = filled((name, *times, *least), cases, title=phrase("show.cases"))
    if _fits(whole, width):
        yield whole
    else:
        yield filled((name, *times), cases, title=phrase("show.cases"))
        yield filled((name, *least), cases, title=phrase("show.least"))


# Launches


def _of_launches(launched: Sequence[LaunchFigures], label: int, width: int) -> Iterable[View]:
    items, alike = without_alike(launched)
    profiled = [item for item in items if item.launch is not None]
    repeated = [attribute("iteration", "iter")] if len({item.iteration for item in profiled}) > 1 else []
    counted: list[Cell] = [(Column("alike", "alike"), lambda item: alike.get(item.launch))] if alike else []
    number, case, kernel = (
        attribute("launch", "#"),
        attribute("label", "case", least=label),
        attribute("kernel", "kernel"),
    )
    one_each = len({(item.kernel, item.case) for item in profiled}) == len({item.kernel for item in profiled})
    narrow = kernel if one_each else _short_case(profiled)

    def table(cells: Cells, title: str, **texts: Any) -> View:
        """Case and kernel where they fit, else what tells the launches apart; the first table names them all."""
        view = filled((number, case, kernel, *repeated, *cells), profiled, title=phrase(title))
        if not _fits(view, width):
            view = filled((number, narrow, *repeated, *cells), profiled, title=phrase(title))
        return dataclasses.replace(view, **texts)

    grid, block, time = show_columns.GRID, show_columns.BLOCK, show_columns.TIME
    if items:
        title = phrase("show.launches")
        long_kernel = attribute("kernel", "kernel", least=_LEAST_KERNEL)
        whole = filled((number, case, long_kernel, *repeated, *counted, grid, block, *time), items, title=title)
        if not (_fits(whole, width) and profiled):
            whole = filled((number, case, kernel, *repeated, *counted, grid, *time), items, title=title)
        yield whole
    if not profiled:
        return
    yield table(show_columns.WORK, "show.work")
    yield table(show_columns.MEMORY, "show.memory")
    yield table(show_columns.OCCUPANCY, "show.occupancy")
    if any(item.occupancy.limits for item in profiled):
        yield table(_without_empty(show_columns.LIMITS, profiled), "show.limits", notes=_held(profiled))
    if any(item.occupancy.waves for item in profiled):
        small = [item.launch or 0 for item in profiled if item.occupancy.waves and not item.occupancy.waves.full]
        notes = (phrase("show.small_grids", launches=small),) if small else ()
        yield table(show_columns.WAVES, "show.waves", notes=notes)
    yield from _of_accesses(profiled, table)


def without_alike(items: Sequence[LaunchFigures]) -> tuple[list[LaunchFigures], dict[int | None, int]]:
    """The launches, of many alike the one of median duration; and how many it stands for."""
    groups: dict[tuple[str | None, str, str | None, str | None], list[LaunchFigures]] = defaultdict(list)
    for item in items:
        groups[item.case, item.kernel, item.grid, item.block].append(item)
    kept: set[int] = set()
    counts: dict[int | None, int] = {}
    for group in groups.values():
        if len(group) <= MOST_ALIKE:
            kept |= set(map(id, group))
            continue
        middle = sorted(group, key=lambda item: item.duration_us or 0.0)[(len(group) - 1) // 2]
        kept.add(id(middle))
        counts[middle.launch] = len(group)
    return [item for item in items if id(item) in kept], counts


def has_any(items: Sequence[LaunchFigures], cells: Cells) -> bool:
    """Whether a launch has something in one of the columns with a key."""
    return any(value(item) is not None for item in items for column, value in cells if column.key)


def _of_accesses(profiled: Sequence[LaunchFigures], table: Callable[..., View]) -> Iterable[View]:
    if has_any(profiled, show_columns.GLOBAL):
        yield table(show_columns.GLOBAL, "show.global")
    if has_any(profiled, show_columns.SHARED):
        yield table(show_columns.SHARED, "show.shared")
    if any(value(item) for item in profiled for _, value in show_columns.LOCAL):
        yield table(show_columns.LOCAL, "show.local")


def _held(profiled: Sequence[LaunchFigures]) -> tuple[str, ...]:
    """What holds the occupancies, each once with the launches that it is about."""
    about: dict[str, list[int]] = defaultdict(list)
    for item in profiled:
        if said := " ".join(map(worded, findings(item.occupancy))):
            about[said].append(item.launch or 0)
    return tuple(phrase("show.about", launches=launches, text=text) for text, launches in about.items())


def _short_case(rows: Sequence[LaunchFigures]) -> Cell:
    """The label without the workload's name where it is the same for all."""
    parts = [item.label.partition(" ") for item in rows]
    cut = len({name for name, _, _ in parts}) == 1 and all(rest for _, _, rest in parts)

    def cell(item: LaunchFigures) -> str:
        return item.label.partition(" ")[2] if cut else item.label

    widest = max((len(cell(item)) for item in rows), default=0)
    return Column("label", "case", least=min(widest, _NARROW_LABEL)), cell


def _without_empty(cells: Cells, rows: Sequence[LaunchFigures]) -> Cells:
    """The limits, that of clusters only where a launch has some."""
    empty = {column.key for column, value in show_columns.CLUSTERS if all(value(row) is None for row in rows)}
    return [cell for cell in cells if cell[0].key not in empty]


def _fits(view: View, width: int) -> bool:
    """Whether the table, its names shortened as far as they may be, is no wider."""
    widest = tuple(
        max(view.rows, key=lambda row: cell_width(word(row[place], column.spec)), default=())
        for place, column in enumerate(view.columns)
        if column.title
    )
    lines = render(dataclasses.replace(view, title="", rows=tuple(filter(None, widest))), "table", width=width)
    return max(map(cell_width, lines.splitlines()), default=0) <= width
