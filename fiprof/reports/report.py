"""The report of one run or of several: one page that one works in, and the same in short as Markdown."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from fiprof.analysis import checks
from fiprof.analysis import show as figures
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.comm import comm
from fiprof.analysis.planning import plans
from fiprof.analysis.story import story
from fiprof.analysis.thresholds import SOME_WAITING
from fiprof.model import packs
from fiprof.model.finding import TracedNumber, words_of
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.reports import comm as comm_report
from fiprof.reports import show, top, verdict_tables
from fiprof.reports import story as story_report
from fiprof.reports.markdown_html import templates
from fiprof.reports.run_report import panes, sections
from fiprof.reports.run_report.ink import Ink, Section
from fiprof.reports.run_report.pictures import pictures
from fiprof.reports.run_report.rows import Rows, headline, rows_of
from fiprof.reports.run_report.timeline_bins import timeline
from fiprof.reports.view import View
from fiprof.text import escape_control, join_words, short_kernel, shorten

MOST_NAMED = 3  # workloads or kernels that a title names
MOST_DETAILS = 120  # launches of a run that have panes: those with most time
MOST_ROWS = 40  # of a table in Markdown
LONGEST_TITLE = 90  # cells of a program's command in the title


@dataclass(frozen=True)
class Report:
    """A report, made: ``html`` and ``markdown`` write it."""

    title: str
    subtitle: str
    headline: str
    warnings: tuple[str, ...]  # what makes the whole doubtful
    data: dict[str, Any]  # all that the page shows, as JSON
    parts: tuple[Section, ...]  # what happened in a program, and what is below
    found: tuple[tuple[Analyses, Rows], ...]  # what takes the time of each run, for Markdown
    numbers: tuple[tuple[str, str, TracedNumber], ...]
    """Every number whose source is known: its section, how it is written there, and itself."""

    @property
    def has_story(self) -> bool:
        """Whether it begins with a program's story."""
        return any(part.anchor == "story" for part in self.parts)

    @property
    def sections(self) -> tuple[Section, ...]:
        """The parts with the answer among them."""
        answer = Section("answer", "What takes the time", tuple(view for of in self.found for view in _answer(*of)))
        return (*self.parts[: self.has_story], answer, *self.parts[self.has_story :])

    def html(self, links: Sequence[tuple[str, str]] = ()) -> str:
        """One file that needs no network. links: texts and addresses of sibling pages."""
        import msgspec

        packed = base64.b64encode(gzip.compress(msgspec.json.encode(self.data, enc_hook=str), 4, mtime=0)).decode()
        return templates().get_template("run.html.j2").render(report=self, data=packed, links=links)

    def markdown(self, whole: str = "") -> str:
        """The same as text. whole: the page that has all of it, where there is one."""
        return templates().get_template("report.md.j2").render(report=self, whole=whole) + "\n"


def report(runs: Sequence[Run]) -> Report:
    """The report of the runs. runs: at least one, with their tables made."""
    measured, ink = [run.once(Analyses) for run in runs], Ink()
    tables = [rows_of(each) for each in measured]
    pairs = tuple(zip(measured, tables, strict=True))
    several = len(runs) > 1
    longest = max(range(len(tables)), key=lambda number: tables[number].window_us or 1.0)
    head, place = headline(tables[longest])
    gpus = [escape_control(str(gpu)) for gpu in dict.fromkeys(run.environment("gpu", "name") for run in runs) if gpu]
    what = _workloads(runs) or _named(list(dict.fromkeys(filter(None, map(_program, runs)))))
    what = what or _named(list(dict.fromkeys(row.name for rows in tables for row in rows.rows if row.kernel)))
    what = what or ", ".join(escape_control(run.manifest.name) for run in runs)
    what_and_gpus = f"{what} on {' and '.join(gpus)}" if gpus else what
    title = f"{len(runs)} runs of {what_and_gpus}" if several else what_and_gpus
    data: dict[str, Any] = {"title": title, "headline": ink.json(head), "start": [longest, place]}
    data["runs"] = [
        _run_data(each, rows, ink, f"{number}." if several else "") for number, (each, rows) in enumerate(pairs, 1)
    ]
    story_views = () if several else _story(measured[0], tables[0], data)
    planned = () if several or story_views else plans(runs[0])
    details = top.document(tables[0].top, most=20).shown if tables[0].top and not several else ()
    every = (
        Section("story", "What happened", story_views),
        sections.compared(measured, tables) if several else sections.parameters(measured[0]),
        sections.times(runs),
        Section("planned", "Planning", (show.planning(planned),) if planned else ()),
        Section("ranges", "Copies and ranges", tuple(view for view in details if view.title in top.DETAILS)),
        sections.ranks(runs),
        sections.confidence(runs),
        sections.asked(runs),
        sections.environment(runs),
        sections.actions(runs),
        sections.reproduction(runs),
    )
    parts = tuple(section for section in every if section.blocks)
    data["sections"] = ink.json(parts)
    data["sources"] = ink.sources
    names = [escape_control(run.manifest.name) for run in runs]
    days = dict.fromkeys(run.manifest.started[:10] for run in runs)
    subtitle = " · ".join(", ".join(each) for each in (names, gpus, days) if each)
    warnings = tuple(text for each in measured for text in _caveats(each.run, bool(story_views)))
    return Report(title, subtitle, head, warnings, data, parts, pairs, tuple(ink.numbers))


def _run_data(measured: Analyses, rows: Rows, ink: Ink, prefix: str) -> dict[str, Any]:
    run = measured.run
    ink.section = "answer"
    shown = ink.json([row.data(place, prefix) for place, row in enumerate(rows.rows)])
    groups = [group for row in rows.rows for group in (row.group,) if group]
    groups += [group for row in rows.rows for group in row.others]
    longest = list({group.shown.launch: group for group in groups}.values())[:MOST_DETAILS]
    name = escape_control(run.manifest.name)
    return {
        "name": name,
        "prefix": prefix,
        "checked": sections.checked(checks.every(run)),
        "rows": shown,
        "left_out": rows.left_out,
        "wall": ink.json(rows.wall),
        "window": rows.window and ink.json(rows.window),
        "details": panes.details(measured, longest, ink),
        "timeline": timeline(measured, rows.rows),
        "perfetto": f"fiprof export {run.folder} --to perfetto",
    }


def _story(measured: Analyses, rows: Rows, data: dict[str, Any]) -> tuple[View, ...]:
    """What ``fiprof story`` tells of a program but for what to change, which follows; its pictures go to the page."""
    if rows.top is None:
        return ()
    found = story(measured.run, rows.top.program, name=measured.run.folder)
    data["pictures"] = pictures(found, measured.run)
    first, *others = story_report.document(found, rows.top.program, planned=plans(measured.run)).shown[:-1]
    notes = (*first.notes, *(each for each in figures.missing(measured.run) if each.kind != "no_trace"))
    summary = tuple(each for each in first.summary if each is not rows.top.program.answer)
    return (replace(first, title="", summary=summary, notes=notes), *others)


def _answer(measured: Analyses, rows: Rows) -> Iterator[View]:
    """What ``fiprof top`` says of a program, ``fiprof verdict`` of launches, and ``fiprof show`` where ncu saw none."""
    if rows.top is not None:
        yield from (view for view in top.document(rows.top, most=MOST_ROWS).shown if view.title not in top.DETAILS)
    if measured.run.launches:
        yield from verdict_tables.document(measured.verdicts, most=MOST_ROWS).shown
    elif rows.top is None:
        found = figures.show(measured.run, wanted=measured.shown)
        yield from show.document(found, measured.run, sections=(), most=MOST_ROWS).shown[-1:]


def _program(run: Run) -> str:
    """The command in short, from the program's file on; of an imported run its first file."""
    command, files = (run.environment("program", each) or () for each in ("command", "files"))
    argv = [str(word) for word in command] or [file.source for file in run.manifest.imported[:1]]
    first = next((place for place, word in enumerate(argv) if word in files), 0)
    text = " ".join([PurePath(argv[first]).name, *argv[first + 1 :]]) if argv else ""
    return shorten(short_kernel(text), LONGEST_TITLE) if text else ""


def _workloads(runs: Sequence[Run]) -> str:
    """The families of the workloads; empty for no workload."""
    workloads = list(dict.fromkeys(case.workload for run in runs if not run.of_program for case in run.cases))
    for pack, kernels in packs.parts("kernels").items():
        families = dict.fromkeys(each.family for name, each in kernels.items() if name in workloads and each.family)
        if families and all(workload in kernels and kernels[workload].family for workload in workloads):
            libraries = list(packs.parts("packages").get(pack, {}).values())
            return f"{join_words(libraries)} {join_words(list(families))}".strip()
    return _named([escape_control(workload.rpartition(":")[2]) for workload in workloads])


def _named(names: Sequence[str]) -> str:
    """The first names and how many more there are."""
    if len(names) <= MOST_NAMED + 1:
        return join_words(names)
    return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"


def _caveats(run: Run, has_story: bool) -> Iterator[str]:
    """What makes a report doubtful as a whole: how its run ended, what it lacks. has_story: it says the latter."""
    yield from map(words_of, (*run.status_warning(), *checks.of_run(checks.failed(run))))
    together = run.once(comm) if run.has("kernels") and ranks_of(run).several else None
    if together and max((row["lost_share"] or 0.0 for row in together.ranks), default=0.0) >= SOME_WAITING / 100:
        yield f"{comm_report.summary(together)} fiprof comm {run.folder} has every collective"
    if not has_story:
        yield from map(words_of, figures.missing(run))
