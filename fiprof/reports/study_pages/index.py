"""``INDEX``: what the study is, what it found in short, and where everything lies."""

from __future__ import annotations

from fiprof.analysis.claims import Result
from fiprof.analysis.study import Study
from fiprof.model import packs
from fiprof.model.results import ENVIRONMENT, CaseResult
from fiprof.reports.pages.page import Bullets, Caution, Code, Link, Page, PageLink, Section, Table, Text
from fiprof.reports.study_pages import claims
from fiprof.reports.study_pages.environment import facts, status, warnings
from fiprof.reports.study_pages.found import StudyFinding
from fiprof.reports.study_pages.names import run_link, title
from fiprof.reports.view import Column, View
from fiprof.reports.words import entry, phrase

MOST_WARNINGS = 3
"""Warnings that are shown here; more are counted."""


def page(study: Study, findings: list[StudyFinding], results: tuple[Result, ...]) -> Page:
    """What to read first."""
    doubts = warnings(study)
    cautions = tuple(Caution(text) for text in doubts[:MOST_WARNINGS])
    if (more := len(doubts) - MOST_WARNINGS) > 0:
        cautions += (Caution(phrase("study.more_warnings", count=more, file=ENVIRONMENT)),)
    if study.info.status != "complete":
        cautions = (Caution(phrase("study.not_complete", status=status(study))), *cautions)
    why = [
        Text((found.finding.observation, " ", PageLink("why", f"final-report#{found.finding.anchor}")))
        for found in findings
        if found.headline
    ]
    in_short = (*cautions, Text((_what(study),)), Bullets(tuple(why)), *(_claims(results) if results else ()))
    names = ("final-report", "analysis", "kernel-dev-guide", "environment")
    about = [Text((PageLink(name, name), f": {entry('study_document', name)}.")) for name in names]
    sections = (
        Section("in-short", "In short", in_short),
        Section("documents", "Documents", (Bullets(tuple(about)),)),
        Section("results", "Results", (Table(_files(study)), Text((phrase("study.fields"),)))),
        Section("runs", "Runs", (Table(_runs(study)),)),
        Section("again", "Again", (Code(command(study)), Text((phrase("study.again"),)))),
    )
    return Page(study.info.title or study.info.study, sections, facts=facts(study))


def _claims(results: tuple[Result, ...]) -> tuple[Table, Text]:
    link = PageLink("claims", "final-report#claims")
    return Table(claims.table(results), "claims"), Text(
        ("Each with its source, its numbers and what it depends on: ", link, ".")
    )


def _what(study: Study) -> str:
    parts = [
        f"{name} {len(study.of(name))}" + (f" of {len(cases)}" if len(study.of(name)) < len(cases) else "")
        for name, cases in study.by_workload.items()
    ]
    return phrase("study.what", cases=len(study.measured), kernels=len(study.by_workload), parts=", ".join(parts))


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
    columns = tuple(Column(name, name) for name in ("run", "cases", "workloads"))
    return View(columns, rows, notes=() if there else (phrase("study.no_runs"),))
