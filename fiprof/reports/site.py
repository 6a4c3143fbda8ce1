"""An archive as a static site: an index of its runs, each one's report, and the charts' library once for all of them.

It is read from a disk as from a server. ``site.json`` says what was published of each run, and in which state it was.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from fiprof import files
from fiprof.analysis.comparison.measured_result import read_comparison
from fiprof.analysis.trend import TrendLine
from fiprof.errors import FiprofError
from fiprof.model import json_file
from fiprof.model.baselines import SHORT_COMMIT
from fiprof.model.finding import say
from fiprof.model.keeping import read_annotations
from fiprof.model.run import Run
from fiprof.reports import measured_table, trend
from fiprof.reports.markdown_html import SUFFIX, Markdown, escape_markdown, link, report_html, vega_js
from fiprof.reports.report import report
from fiprof.reports.view import Column, Document, View
from fiprof.text import escape_control

FILE_NAME = "site.json"
INDEX = "index"
REPORTS = "runs"
LIBRARY = "vega.js"
TRENDS = {"trend-cases": "case_plain_us", "trend-kernels": "nsys_duration_us"}
"""Page -> the quantity that it follows over the runs."""
ELSEWHERE = "publish into another folder"


@dataclass(frozen=True)
class Published:
    """A run whose report is in the site."""

    name: str
    state: str  # of the run folder when the report was made: it changes when a file of the run does
    title: str  # of its report
    status: str
    duration_s: float
    gpu: str | None
    commit: str | None

    def __post_init__(self) -> None:
        if len(files.parts(self.name)) > 1:
            raise ValueError(f"{self.name!r} is no name of a run")


@dataclass(frozen=True)
class Site:
    """The whole of ``site.json``."""

    runs: list[Published] = field(default_factory=list)
    schema_version: int = 1


def begin(folder: Path) -> dict[str, Published]:
    """Run -> what a site has of it; an empty site is made where there is none yet. Raises FiprofError for a folder with
    other things in it, and where ``site.json`` cannot be read or written."""
    for each in (folder, folder / REPORTS):
        files.clear(each)
    if not (folder / FILE_NAME).exists():
        with files.file_errors(folder, ELSEWHERE):
            if folder.exists() and os.listdir(folder):
                raise FiprofError(f"{folder} is no site of fiprof's, and not empty", ELSEWHERE, exit_code=2)
        _write(folder, FILE_NAME, json_file.encode(Site()).decode())
        return {}
    remedy = "remove the folder and publish it anew"
    read = json_file.read(folder / FILE_NAME, Site, remedy, makes="fiprof publish makes it")
    return {each.name: each for each in read.runs}


def write(folder: Path, run: Run, state: str) -> Published:
    """Write a run's report as a page into a site. Raises FiprofError where its name is no file's."""
    run = replace(run, leaving=True)
    name, manifest = run.path.name, run.manifest
    if manifest.kind == "comparison":
        a, b = (escape_control(str(manifest.settings.get(side))) for side in "ab")
        title, found = f"{a} against {b}", measured_table.document(read_comparison(run.path))
        lead = (link("All runs", f"../{INDEX}{SUFFIX}"), escape_markdown(manifest.name))
        text = report_html(found, title, lead=lead, library=f"../{LIBRARY}")
    else:
        made = report([run])
        title, text = str(made.title), made.html([("All runs", f"../{INDEX}{SUFFIX}")])
    _write(folder, f"{REPORTS}/{name}{SUFFIX}", text)
    gpu, commit = run.environment("gpu", "name"), run.environment("program", "git") or run.environment("git")
    known = [each if isinstance(each, str) else None for each in (gpu, commit)]
    return Published(name, state, title, manifest.status, manifest.duration_s, *known)


def write_trend(folder: Path, name: str, trends: Sequence[TrendLine]) -> None:
    """Write a page of TRENDS; remove it where there is no line."""
    if trends:
        lead, command = (link("All runs", f"{INDEX}{SUFFIX}"),), f"fiprof trend --metric {TRENDS[name]}"
        _write(folder, f"{name}{SUFFIX}", trend.page(trends, TRENDS[name], command, lead=lead, library=LIBRARY))
    else:
        _remove(folder, name)


def finish(folder: Path, archive: Path, runs: Sequence[Published], before: Mapping[str, Published]) -> Path:
    """Write what holds the pages together, and remove reports of runs that are gone. Returns the index's path. archive:
    has the runs' tags. runs: in the order of the index. before: what the site had."""
    for name in before.keys() - {run.name for run in runs}:
        _remove(folder, f"{REPORTS}/{name}")
    with contextlib.suppress(ImportError):
        _write(folder, LIBRARY, vega_js())
    _write(folder, f"{INDEX}{SUFFIX}", _index(folder, archive, runs))
    _write(folder, FILE_NAME, json_file.encode(Site(list(runs))).decode())
    return folder / f"{INDEX}{SUFFIX}"


def _index(folder: Path, archive: Path, runs: Sequence[Published]) -> str:
    names = ("run", "what", "GPU", "commit", "tags", "status")
    columns = (*(Column("", name) for name in names), Column("", "took", "s", ",.1f"))
    rows = []
    for run in runs:
        tags: tuple[str, ...] = ()
        with contextlib.suppress(FiprofError):
            tags = tuple(read_annotations(archive / run.name).tags)
        name, commit = link(run.name, f"{REPORTS}/{quote(run.name)}{SUFFIX}"), run.commit and run.commit[:SHORT_COMMIT]
        rows.append((name, run.title, run.gpu, commit, tags, run.status, run.duration_s))
    note = "Search ( / ) leaves the runs that have every word; a click on a heading sorts."
    view = View(columns, tuple(rows), title="Runs", notes=(note,))
    there = [name for name in TRENDS if (folder / f"{name}{SUFFIX}").exists()]
    links = Markdown(" · ".join(link(f"Trends of {name.removeprefix('trend-')}", f"{name}{SUFFIX}") for name in there))
    title = say("{count:profiled run|profiled runs}", count=len(runs))
    return report_html(Document(view, (view,)), title, lead=(links,))


def _remove(folder: Path, page: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        files.remove(folder, f"{page}{SUFFIX}")


def _write(folder: Path, name: str, text: str) -> None:
    with files.file_errors(folder / name, ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
        with files.replacing(folder, name) as out:
            out.write(text.encode())
