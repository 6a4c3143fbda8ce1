"""``INDEX``: what the study found, in tables, and where everything lies."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.analysis.claims import Result
from fiprof.analysis.study import Study
from fiprof.model import packs
from fiprof.model.results import ENVIRONMENT, CaseResult
from fiprof.reports.pages.page import Block, Bullets, Caution, Code, Link, Page, PageLink, Section, Table, Text
from fiprof.reports.study_pages import choices, claims
from fiprof.reports.study_pages.choices import Chosen
from fiprof.reports.study_pages.environment import facts, status, warnings
from fiprof.reports.study_pages.names import run_link, title
from fiprof.reports.study_pages.tables import key_findings
from fiprof.reports.view import Column, View
from fiprof.reports.words import entry, phrase

MOST_WARNINGS = 3
"""Warnings that are shown here; more are counted."""


def page(study: Study, chosen: Sequence[Chosen], results: Sequence[Result]) -> Page:
    """What to read first."""
    names = ("final-report", "analysis", "kernel-dev-guide", "environment")
    about = [Text((PageLink(name, name), f": {entry('study_document', name)}.")) for name in names]
    key = Text((phrase("study.key", cases=len(study.measured)), PageLink("The report", "final-report"), "."))
    sections = [Section("findings", "Key findings", (*_doubts(study), Table(key_findings(study), "key"), key))]
    if chosen:
        table = Table(choices.view(study, chosen, whole=False), "choices")
        sections.append(Section("choose", "What to choose", (table,)))
    if results:
        link = Text((PageLink("Sources, tests and ranges", "final-report#claims"), "."))
        sections.append(
            Section("claims", phrase("claim.heading"), (Table(claims.table(results), "claims-table"), link))
        )
    sections += [
        Section("documents", "Documents", (Bullets(tuple(about)),)),
        Section("results", "Results", (Table(_files(study)), Text((phrase("study.fields"),)))),
        Section("runs", "Runs", (Table(_runs(study)),)),
        Section("again", "Again", (Code(command(study)), Text((phrase("study.again"),)))),
    ]
    return Page(study.info.title or study.info.study, tuple(sections), facts=facts(study))


def _doubts(study: Study) -> list[Block]:
    doubts = warnings(study)
    cautions: list[Block] = [Caution(text) for text in doubts[:MOST_WARNINGS]]
    if (more := len(doubts) - MOST_WARNINGS) > 0:
        cautions.append(Caution(phrase("study.more_warnings", count=more, file=ENVIRONMENT)))
    if study.info.status != "complete":
        cautions.insert(0, Caution(phrase("study.not_complete", status=status(study))))
    return cautions


def command(study: Study) -> str:
    """What makes the study again."""
    return f"fiprof study {study.info.study}" + (" --quick" if study.info.settings.get("quick") else "")


def _files(study: Study) -> View:
    rows: list[tuple[str | int | None, ...]] = []
    for results in study.results:
        name, measured = f"{results.workload}.json", sum(case.plain is not None for case in results.cases)
        rows.append((Link(name, f"../results/{name}"), title(results.workload), len(results.cases), measured))
    for name, what, measured in packs.joined("files", study):
        rows.append((Link(name, f"../results/{name}"), what, measured, measured))
    rows.append((Link(ENVIRONMENT, f"../results/{ENVIRONMENT}"), "where and how it was measured", None, None))
    return View(tuple(Column(name, name) for name in ("file", "what", "cases", "measured")), tuple(rows))


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
    there = all((study.folder / name / "run.json").is_file() for name in by_run)
    columns = (Column("run", "run"), Column("cases", "cases"), Column("workloads", "workloads"))
    return View(columns, rows, notes=() if there else (phrase("study.no_runs"),))
