"""The documents of a study, from its results: written beside them as Markdown and as HTML."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fiprof import confined
from fiprof.analysis import claims
from fiprof.analysis.study import Study, load
from fiprof.files import write_whole
from fiprof.model import packs
from fiprof.reports.pages.page import Page, PageLink

DOCUMENTS = ("INDEX", "environment", "analysis", "kernel-dev-guide", "final-report")


def documents(folder: Path) -> list[Path]:
    """Write ``reports/`` of a study folder anew; the files written, Markdown and HTML of each document.

    Raises FiprofError where results are missing or damaged, or a library of ``fiprof[study]`` is missing.
    """
    from fiprof.reports.pages import html, markdown

    reports = folder / "reports"
    made = pages(load(folder))
    confined.make_folder(folder, reports.name)
    written = []
    for name, page in made.items():
        for suffix, text in ((".md", markdown.render(page, whole=f"{name}.html")), (".html", html.render(page))):
            path = reports / f"{name}{suffix}"
            write_whole(path, text.encode())
            written.append(path)
    return written


def pages(study: Study) -> dict[str, Page]:
    """Document -> its page, with links to the others."""
    from fiprof.reports.study_pages import analysis, choices, environment, final, guide, index

    results = claims.results(study)
    chosen, undecided = choices.choices(study)
    made = {
        "INDEX": index.page(study, chosen, results),
        "environment": environment.page(study),
        "analysis": analysis.page(study),
        "kernel-dev-guide": guide.page(study),
        "final-report": final.page(study, chosen, packs.joined("findings", study), results, undecided),
    }
    links = tuple(PageLink(name, name) for name in DOCUMENTS)
    return {
        name: dataclasses.replace(page, links=tuple(link for link in links if link.href != name))
        for name, page in made.items()
    }
