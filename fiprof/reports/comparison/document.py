"""``fiprof compare`` for people: the answer in sentences, then in parts what changed, where, and what explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fiprof.analysis.comparison.answer import program_warnings, sure
from fiprof.analysis.comparison.kernels import KernelChange
from fiprof.analysis.comparison.runs import ArchivedSide, CaseChange, RunComparison
from fiprof.model.finding import Finding
from fiprof.reports.comparison import cases, program
from fiprof.reports.comparison.launch import launch_tables
from fiprof.reports.comparison.rows import rows
from fiprof.reports.comparison.tells import measure_command
from fiprof.reports.view import Document, Sayable, View
from fiprof.reports.words import phrase

MOST_DETAILED = 2
"""Cases that are shown in detail, where not all are asked for."""
MOST_ROWS = 8
"""Of a program's tables likewise."""


@dataclass(frozen=True)
class Part:
    """Tables under one heading, that of the first."""

    anchor: str
    views: tuple[View, ...]
    detail: bool = True
    """For looking into: folded where a page can fold."""
    kernel: KernelChange | None = None
    """What it explains."""


def document(found: RunComparison, *, every: bool = False) -> Document:
    """Tables for people; for programs every number in rows of one form. every: leave out nothing. defaults: of the
    workloads' parameters."""
    shown = [View((), (), summary=(*summary(found), *about(found)))]
    shown += [replace(view, folded=part.detail) for part in parts(found, every=every) for view in part.views]
    return Document(programs=lambda: rows(found), shown=tuple(shown), warnings=conditions(found))


def conditions(found: RunComparison) -> tuple[Finding, ...]:
    """What the sides were measured under, where that differs, and what else is doubtful."""
    doubts = program_warnings(found.program) if found.program else ()
    return (*(each.finding for each in found.conditions), *doubts)


def summary(found: RunComparison) -> Iterator[Sayable]:
    """The answer: what changed, why, how sure that is, and what would tell."""
    if found.cases:
        yield from cases.summary(found)
    elif found.program:
        yield from program.summary(found.program)
    yield sure(found)
    if not found.same_run:
        yield phrase("comparison.tells", command=measure_command(found))


def about(found: RunComparison) -> Iterator[Sayable]:
    """What was compared, and what was not."""
    yield phrase("comparison.sides", a=side(found.a), b=side(found.b))
    for each in dict.fromkeys(each for case in found.cases for each in case.pair.different):
        yield phrase("comparison.different", name=each.name, a=each.a, b=each.b)
    for name, run, left in (("A", found.a.run, found.only_a), ("B", found.b.run, found.only_b)):
        if left:
            yield phrase("comparison.only", side=name, cases=tuple(run.labels(case.id) for case in left))


def side(of: ArchivedSide) -> str:
    """``NAME, backend=fa2``."""
    params = ", ".join(f"{name}={value}" for name, value in of.params.items())
    name = of.run.manifest.name
    return phrase("comparison.side_params", run=name, params=params) if params else name


def parts(found: RunComparison, *, every: bool = False, most: int = MOST_DETAILED) -> Iterator[Part]:
    """The tables, the most telling first. every: leave out nothing. most: cases that are shown in detail."""
    if len(found.cases) > 1:
        yield Part("cases", (cases.cases_table(found, None if every else cases.MOST_CASES),), detail=False)
    notable = [case for case in found.cases if every or case.notable]
    yield from case_parts(notable if every else notable[:most], every=every, detail=len(found.cases) > 1)
    if found.program:
        tables = program.tables(found.program, None if every else MOST_ROWS)
        yield from (Part(name, (view,), detail=name not in ("time", "kernels")) for name, view in tables)
        leading = [each for each in found.program.kernels if every or program.leads(each, found.program)]
        yield from _launches("kernels", leading)
    if found.launches:
        yield Part("launches", (cases.launches_table(found.launches),), detail=False)
    yield from _launches("launches", found.launches)


def case_parts(chosen: Sequence[CaseChange], *, every: bool = False, detail: bool = True) -> Iterator[Part]:
    """Where the change of each case is, and what explains it."""
    for number, case in enumerate(chosen):
        yield Part(f"case-{number}", (cases.kernels_table(case),), detail=detail)
        kernels = [each for each in case.kernels if every or cases.leads(each, case)]
        yield from _launches(f"case-{number}", kernels)


def _launches(anchor: str, kernels: Sequence[KernelChange]) -> Iterator[Part]:
    for number, each in enumerate(kernels):
        if each.factors:
            yield Part(f"{anchor}-{number}-explained", tuple(launch_tables(each)), kernel=each)
