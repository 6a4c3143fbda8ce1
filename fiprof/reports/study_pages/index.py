"""``INDEX``: what the study is, what it found in short, and where everything lies."""

from __future__ import annotations

from fiprof.model.results import Cell
from fiprof.reports.pages.page import Bullets, Caution, Code, Link, Page, PageLink, Section, Table, Text
from fiprof.reports.study_pages.claims import Result
from fiprof.reports.study_pages.data import ENVIRONMENT, JIT, Study
from fiprof.reports.study_pages.environment import facts
from fiprof.reports.study_pages.found import StudyFinding
from fiprof.reports.study_pages.kernels import title
from fiprof.reports.study_pages.sources import SOURCES
from fiprof.reports.study_pages.tables import claims
from fiprof.reports.view import Column, View
from fiprof.text import count

ABOUT = {
    "final-report": "what was found, what follows for serving and for kernel developers, each with its cells",
    "analysis": "each kernel: how it ran, what the hardware did, how its time grows, every cell",
    "kernel-dev-guide": "each kernel: algorithm, where its code lies, what each parameter did, how to change it",
    "environment": "the machine, the versions, how it was measured, and what that means for the numbers",
}


MOST_WARNINGS = 3
"""Warnings that are shown here; more are counted."""


def page(study: Study, findings: list[StudyFinding], results: tuple[Result, ...]) -> Page:
    """What to read first."""
    headlines = [found for found in findings if found.headline]
    cautions = tuple(Caution(text) for text in study.info.warnings[:MOST_WARNINGS])
    if (more := len(study.info.warnings) - MOST_WARNINGS) > 0:
        cautions += (Caution(f"{more} more warnings are in results/{ENVIRONMENT}."),)
    if study.info.status != "complete":
        cautions = (Caution(f"The study is not complete: {study.info.status}."), *cautions)
    return Page(
        study.info.title or study.info.study,
        (
            Section(
                "in-short",
                "In short",
                (
                    *cautions,
                    Text((_what(study),)),
                    Bullets(
                        tuple(
                            Text(
                                (
                                    found.finding.observation,
                                    " ",
                                    PageLink("why", f"final-report#{found.finding.anchor}"),
                                )
                            )
                            for found in headlines
                        )
                    ),
                    Table(claims(results), "claims"),
                    Text(("Each with its numbers and their spread: ", PageLink("claims", "final-report#claims"), ".")),
                ),
            ),
            Section(
                "documents",
                "Documents",
                (Bullets(tuple(Text((PageLink(name, name), f": {about}.")) for name, about in ABOUT.items())),),
            ),
            Section(
                "results", "Results", (Table(_files(study)), Text(("Fields and units: docs/results.md of fiprof.",)))
            ),
            Section("runs", "Runs", (Table(_runs(study)),)),
            Section(
                "again",
                "Again",
                (
                    Code(command(study)),
                    Text(("Measures what is missing and writes these documents anew; cells that are done stay done.",)),
                ),
            ),
        ),
        facts=facts(study),
    )


def _what(study: Study) -> str:
    parts = [
        f"{name} {len(study.of(name))}" + (f" of {len(cells)}" if len(study.of(name)) < len(cells) else "")
        for name, cells in study.by_workload.items()
    ]
    return (
        f"{count(len(study.measured), 'measured cell')} of {count(len(study.by_workload), 'kernel')}: "
        f"{', '.join(parts)}. A cell is one kernel with one set of parameters. Every figure in these documents, and "
        "every sentence that a figure could change, is computed from the results below; how the algorithms work was "
        "read in the library's sources."
    )


def command(study: Study) -> str:
    """What makes the study again."""
    return f"fiprof study {study.info.study}" + (" --quick" if study.info.settings.get("quick") else "")


def _files(study: Study) -> View:
    rows: list[tuple[str | int, ...]] = []
    for results in study.results:
        cells: list[Cell] = results.cells
        measured = sum(cell.plain is not None for cell in cells)
        name = f"{results.workload}.json"
        rows.append((Link(name, f"../results/{name}"), title(results.workload), len(cells), measured))
    if study.jit is not None:
        what = f"compilation: {count(len(study.jit.calls), 'first call')}, {count(len(study.jit.modules), 'module')}"
        rows.append((Link(JIT, f"../results/{JIT}"), what, len(study.jit.calls), len(study.jit.calls)))
    if study.sources is not None:
        what = f"where the code lives in {study.sources.package} {study.sources.version}".strip()
        rows.append((Link(SOURCES, f"../results/{SOURCES}"), what, 0, 0))
    rows.append((Link(ENVIRONMENT, f"../results/{ENVIRONMENT}"), "where and how it was measured", 0, 0))
    columns = (Column("file", "file"), Column("what", "what"), Column("cells", "cells"), Column("measured", "measured"))
    return View(columns, tuple((*row[:2], row[2] or None, row[3] if row[2] else None) for row in rows))


def _runs(study: Study) -> View:
    by_run: dict[str, list[Cell]] = {name: [] for name in study.info.runs}
    for cells in study.by_workload.values():
        for cell in cells:
            if cell.run:
                by_run.setdefault(cell.run, []).append(cell)
    rows = tuple(
        (study.run_link(name), len(cells), ", ".join(dict.fromkeys(cell.workload for cell in cells)) or "–")
        for name, cells in by_run.items()
    )
    notes = (
        ()
        if all((study.folder / name / "run.json").is_file() for name in by_run)
        else ("Runs without a link are not beside the results: the study was copied without them.",)
    )
    return View((Column("run", "run"), Column("cells", "cells"), Column("kernels", "kernels")), rows, notes=notes)
