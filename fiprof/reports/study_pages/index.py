"""``INDEX``: what the study is, what it found in short, and where everything lies."""

from __future__ import annotations

from fiprof.analysis.claims import Result
from fiprof.analysis.study import Study
from fiprof.model import packs
from fiprof.model.results import ENVIRONMENT, CaseResult
from fiprof.reports.pages.page import Bullets, Caution, Code, Link, Page, PageLink, Section, Table, Text
from fiprof.reports.study_pages.environment import facts, status, warnings
from fiprof.reports.study_pages.found import StudyFinding
from fiprof.reports.study_pages.names import run_link, title
from fiprof.reports.study_pages.tables import claims
from fiprof.reports.view import Column, View
from fiprof.reports.words import phrase
from fiprof.text import count

ABOUT = {
    "final-report": "what was found, what follows for serving and for kernel developers, each with its cases",
    "analysis": "each kernel: how it ran, what the hardware did, how its time grows, every case",
    "kernel-dev-guide": "each kernel: algorithm, where its code lies, what each parameter did, how to change it",
    "environment": "the machine, the versions, how it was measured, and what that means for the numbers",
}


MOST_WARNINGS = 3
"""Warnings that are shown here; more are counted."""


def page(study: Study, findings: list[StudyFinding], results: tuple[Result, ...]) -> Page:
    """What to read first."""
    headlines = [found for found in findings if found.headline]
    doubts = warnings(study)
    cautions = tuple(Caution(text) for text in doubts[:MOST_WARNINGS])
    if (more := len(doubts) - MOST_WARNINGS) > 0:
        cautions += (Caution(f"{more} more warnings are in results/{ENVIRONMENT}."),)
    if study.info.status != "complete":
        cautions = (Caution(phrase("study.not_complete", status=status(study))), *cautions)
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
                    *(_claims(results) if results else ()),
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
                    Text(("Measures what is missing and writes these documents anew; cases that are done stay done.",)),
                ),
            ),
        ),
        facts=facts(study),
    )


def _claims(results: tuple[Result, ...]) -> tuple[Table, Text]:
    link = PageLink("claims", "final-report#claims")
    return Table(claims(results), "claims"), Text(("Each with its numbers and their spread: ", link, "."))


def _what(study: Study) -> str:
    parts = [
        f"{name} {len(study.of(name))}" + (f" of {len(cases)}" if len(study.of(name)) < len(cases) else "")
        for name, cases in study.by_workload.items()
    ]
    return (
        f"{count(len(study.measured), 'measured case')} of {count(len(study.by_workload), 'kernel')}: "
        f"{', '.join(parts)}. A case is one workload with one set of parameters. Every figure in these documents, and "
        "every sentence that a figure could change, is computed from the results below; how the algorithms work was "
        "read in their sources."
    )


def command(study: Study) -> str:
    """What makes the study again."""
    return f"fiprof study {study.info.study}" + (" --quick" if study.info.settings.get("quick") else "")


def _files(study: Study) -> View:
    rows: list[tuple[str | int, ...]] = []
    for results in study.results:
        cases: list[CaseResult] = results.cases
        measured = sum(case.plain is not None for case in cases)
        name = f"{results.workload}.json"
        rows.append((Link(name, f"../results/{name}"), title(results.workload), len(cases), measured))
    for name, what, measured in packs.joined("files", study):
        rows.append((Link(name, f"../results/{name}"), what, measured, measured))
    rows.append((Link(ENVIRONMENT, f"../results/{ENVIRONMENT}"), "where and how it was measured", 0, 0))
    columns = (Column("file", "file"), Column("what", "what"), Column("cases", "cases"), Column("measured", "measured"))
    return View(columns, tuple((*row[:2], row[2] or None, row[3] if row[2] else None) for row in rows))


def _runs(study: Study) -> View:
    by_run: dict[str, list[CaseResult]] = {name: [] for name in study.info.runs}
    for cases in study.by_workload.values():
        for case in cases:
            if case.run:
                by_run.setdefault(case.run, []).append(case)
    rows = tuple(
        (run_link(study, name), len(cases), ", ".join(dict.fromkeys(case.workload for case in cases)) or "–")
        for name, cases in by_run.items()
    )
    notes = (
        ()
        if all((study.folder / name / "run.json").is_file() for name in by_run)
        else ("Runs without a link are not beside the results: the study was copied without them.",)
    )
    return View((Column("run", "run"), Column("cases", "cases"), Column("workloads", "workloads")), rows, notes=notes)
