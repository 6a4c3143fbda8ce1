"""How long an iteration of each case takes, by each tool, and how long the GPU waits; of several runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fiprof.analysis.analyses import Analyses
from fiprof.analysis.thresholds import BOARDS_DIFFER, PROCESSES_DIFFER, PROCESSES_DRIFT, WORTH_CHANGING
from fiprof.analysis.timeline import TimelineWarning
from fiprof.model import case_quantities
from fiprof.model.case_quantities import KERNEL_TIME, NSYS, NSYS_SPREAD, PLAIN, WAITING, WALL, CaseQuantity
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.model.missing import RUN_WARNINGS
from fiprof.model.run import Run
from fiprof.reports.pages.page import Block, Caution, Section, Table, Text
from fiprof.reports.pages.traced import Cell, TracedColumns, listed
from fiprof.reports.run_report import sides
from fiprof.reports.run_report.sides import Row
from fiprof.reports.view import Column
from fiprof.reports.words import phrase, worded

MOST_CASES = 60
"""Rows of a table: the cases with most kernel time."""
SAID = (*RUN_WARNINGS, TimelineWarning.NO_TRACE, TimelineWarning.NO_RANGES, TimelineWarning.OTHER_RANGES)
"""What a report says at its beginning."""


def section(runs: Sequence[Analyses]) -> Section:
    """The cases' times. Raises FiprofError for a table that cannot be read."""
    blocks: list[Block] = []
    for measured in runs:
        blocks += [Caution(worded(each)) for each in measured.timeline.warnings if each.kind not in SAID]
    cases = _cases(runs)
    if all(measured.run.of_program and not measured.run.cases for measured in runs):
        return Section("times", phrase("times.title"), ())
    if cases:
        kept = sorted(cases, key=lambda case: -max(_time(measured.run, case) for measured in runs))[:MOST_CASES]
        shown = [case for case in cases if case in kept]
        blocks.append(_alone(runs[0].run, shown) if len(runs) == 1 else _beside(runs, shown))
        if len(shown) < len(cases):
            blocks.append(Text((phrase("times.most", shown=len(shown), all=len(cases)),)))
    elif len(runs) > 1:
        blocks.append(Caution(phrase("times.nothing_shared")))
    return Section("times", phrase("times.title"), tuple(blocks))


def _cases(runs: Sequence[Analyses]) -> list[CaseEntry]:
    """The cases that were timed; of several runs those in more than one."""
    cases = {case.id: case for measured in runs for case in measured.run.cases}
    least = min(len(runs), 2)
    return [case for case in cases.values() if sum(_time(each.run, case) > 0 for each in runs) >= least]


def _time(run: Run, case: CaseEntry) -> float:
    return KERNEL_TIME.of(run, case.id) or PLAIN.of(run, case.id) or 0.0


def _alone(run: Run, cases: Sequence[CaseEntry]) -> Table:
    def of(quantity: CaseQuantity, spec: str, unit: str = "") -> tuple[Column, Callable[[CaseEntry], Cell]]:
        column = Column(quantity.key, phrase(f"times.{quantity.key}"), unit, spec, quantity.meaning)
        return column, lambda case: quantity.traced(run, case.id)

    columns: TracedColumns = (
        (Column("case", phrase("times.case")), lambda case: run.labels(case.id)),
        (Column("kernels", phrase("times.kernels"), spec=",d"), lambda case: case_quantities.kernels(run, case.id)),
        of(PLAIN, ",.1f", "µs"),
        of(NSYS, ",.1f", "µs"),
        of(NSYS_SPREAD, ".1%"),
        of(case_quantities.NCU, ",.1f", "µs"),
        of(WALL, ",.1f", "µs"),
        of(WAITING, ".0f", "%"),
    )
    notes = (phrase("times.note"),)
    return listed(columns, cases, anchor="times-cases", notes=notes, appendix=len(cases) > MOST_CASES // 2)


def _beside(runs: Sequence[Analyses], cases: Sequence[CaseEntry]) -> Table:
    """A row a case and quantity, a column a run."""
    labels = Labels(list({case.id: case for measured in runs for case in measured.run.cases}.values()))
    rows = [
        Row(
            phrase("times.row", label=labels(case.id), what=phrase(f"times.{quantity.key}")),
            tuple(quantity.traced(measured.run, case.id) for measured in runs),
        )
        for case in cases
        for quantity in (KERNEL_TIME, PLAIN)
    ]
    heads = [(phrase("sides.run", number=number), "") for number in range(1, len(runs) + 1)]
    noise = {"processes": PROCESSES_DIFFER, "boards": BOARDS_DIFFER, "drift": PROCESSES_DRIFT, "marked": WORTH_CHANGING}
    notes = (phrase("times.beside_note", **{name: threshold.value for name, threshold in noise.items()}),)
    return sides.table(heads, rows, [0] * len(runs), anchor="times-runs", notes=notes)
