"""The report of one run or of several: one page that one works in, and the same in short as Markdown."""

from __future__ import annotations

import base64
import functools
import gzip
import importlib.resources
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from fiprof.analysis import checks
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.comm.comm import comm
from fiprof.analysis.thresholds import SOME_WAITING, WAITING
from fiprof.model import packs
from fiprof.model.provenance import TracedNumber
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.wording import worded
from fiprof.reports import comm as comm_report
from fiprof.reports import verdict_words as words
from fiprof.reports.pages.page import Section
from fiprof.reports.run_report import appendix, panes, parameters, reproduce
from fiprof.reports.run_report.ink import Ink, LocatedNumber, significant
from fiprof.reports.run_report.rows import Row, Rows, failed_of_run, gain, headline, rows_of, short, titled
from fiprof.reports.run_report.timeline_bins import timeline
from fiprof.reports.view import Column, View
from fiprof.text import escape_control, join_words, short_kernel, shorten

if TYPE_CHECKING:
    import jinja2

MOST_NAMED = 3
"""Workloads or kernels that a title names."""
MOST_DETAILS = 120
"""Launches of a run that have panes: those with most time."""
MOST_ROWS = 40
"""Of the table in Markdown, a run."""
MOST_STEPS = 6
"""Rows whose reason and steps are in Markdown."""
LONGEST_TITLE = 90
"""Cells of a program's command in the title."""
TEMPLATES = importlib.resources.files("fiprof.reports").joinpath("templates")


@dataclass(frozen=True)
class Report:
    """A report, made: ``html`` and ``markdown`` write it."""

    title: str
    subtitle: str
    headline: str
    warnings: tuple[str, ...]
    """What makes the whole doubtful."""
    data: dict[str, Any]
    """All that the page shows, as JSON."""
    table: View
    """What takes the time."""
    steps: tuple[Row, ...]
    sections: tuple[Section, ...]
    numbers: tuple[LocatedNumber, ...]
    """Every number whose source is known."""

    def html(self, links: Sequence[tuple[str, str]] = ()) -> str:
        """One file that needs no network. links: texts and addresses of sibling pages."""
        import msgspec

        packed = base64.b64encode(gzip.compress(msgspec.json.encode(self.data, enc_hook=str), 6, mtime=0)).decode()
        return environment().get_template("run.html.j2").render(report=self, data=packed, links=links)

    def markdown(self, whole: str = "") -> str:
        """The same as text. whole: the page that has all of it, where there is one."""
        return environment().get_template("report.md.j2").render(report=self, whole=whole) + "\n"


def report(runs: Sequence[Run]) -> Report:
    """The report of the runs.

    runs: at least one, with their tables made.
    Raises FiprofError for a table that is there and cannot be read.
    """
    measured, ink = [run.once(Analyses) for run in runs], Ink()
    found = [rows_of(each) for each in measured]
    several = len(runs) > 1
    title = _title(runs, found)
    warnings = [text for each, rows in zip(measured, found, strict=True) for text in _doubts(each.run, rows)]
    first = max(found, key=lambda rows: rows.window_us or 1.0)
    head = headline(first)
    known: dict[str, Any] = {"title": title, "headline": ink.text(head), "runs": []}
    for number, (each, rows) in enumerate(zip(measured, found, strict=True), 1):
        known["runs"].append(_run_data(each, rows, ink, f"{number}." if several else ""))
    sections = [
        *([appendix.runs_compared(measured, found)] if several else [parameters.section(measured[0])]),
        appendix.times(measured),
        *([] if several else [appendix.ranges(found[0])]),
        appendix.ranks(measured),
        appendix.sure(measured),
        appendix.asked(measured),
        appendix.environment(measured),
        appendix.actions(runs),
        reproduce.section(runs),
    ]
    kept = tuple(section for section in sections if section.blocks)
    ink.section = "answer"
    known["sections"] = ink.sections(kept)
    known["sources"] = ink.sources
    gpus = dict.fromkeys(str(gpu) for run in runs if (gpu := run.environment("gpu", "name")))
    days = dict.fromkeys(run.manifest.started[:10] for run in runs)
    subtitle = " · ".join(
        escape_control(", ".join(each)) for each in ([r.manifest.name for r in runs], gpus, days) if each
    )
    steps = tuple(row for row in (row for rows in found for row in rows.rows) if row.verdict)[:MOST_STEPS]
    return Report(title, subtitle, head, tuple(warnings), known, _table(found), steps, kept, tuple(ink.numbers))


def traced_numbers(run: Run) -> dict[str, float]:
    """Where each number of a run's report comes from, in words -> its value."""
    return {str(each.fact.source): each.fact.value for each in report([run]).numbers}


# A run's data


def _run_data(measured: Analyses, rows: Rows, ink: Ink, prefix: str) -> dict[str, Any]:
    ink.section = "answer"
    shown = [_row_data(row, place, ink, prefix) for place, row in enumerate(rows.rows)]
    groups = [row.group for row in rows.rows if row.group]
    groups += [group for row in rows.rows for group in row.others]
    return {
        "name": escape_control(measured.run.manifest.name),
        "prefix": prefix,
        "checked": appendix.checked(checks.every(measured.run)),
        "rows": shown,
        "left_out": rows.left_out,
        "program": rows.top is not None,
        "wall": [[name, significant(share), colour] for name, share, colour in rows.wall],
        "window_us": rows.window_us,
        "details": panes.details(
            measured, list({group.launch: group for group in groups}.values())[:MOST_DETAILS], ink
        ),
        "timeline": timeline(measured, rows.rows),
        "perfetto": f"fiprof export {shlex.quote(escape_control(measured.run.manifest.name))} --to perfetto",
    }


def _row_data(row: Row, place: int, ink: Ink, prefix: str) -> dict[str, Any]:
    family, colour = row.family
    limit, distance = row.limit()
    roof = row.measured.rooflines.get(row.group.launch) if row.group else None
    time = ink.cell(row.time if isinstance(row.time, TracedNumber) else row.time and f"{row.time:,.1f} µs", Column(""))
    verdict, step = row.verdict, row.step
    return {
        "id": f"launch={prefix}{row.group.launch}" if row.group else f"row={prefix}{place}",
        "kind": row.kind,
        "name": escape_control(row.name),
        "label": escape_control(row.label),
        "full": escape_control(row.full),
        "family": family,
        "colour": colour,
        "share": significant(row.share),
        "count": significant(row.count),
        "time": time,
        "spread": ink.cell(row.spread, Column("", spec=".1%")) if row.spread else None,
        "limit": escape_control(limit),
        "distance": ink.text(distance),
        "uses": [[name, ink.text(number.as_(".0f", "%")), significant(number.value)] for name, number in _uses(row)],
        "roof": None if roof is None or roof.share is None else [significant(roof.share), roof.roof],
        "step": ink.text(short(step)) if step else "",
        "gain": ink.text(gain(step)) if step else "",
        "saving": significant(row.saving),
        "confidence": worded(verdict.confidence) if verdict else "",
        "marks": [[escape_control(each.text), each.by_design, each.about] for each in row.marks],
        "about": list(map(ink.text, row.about)),
        "others": [[f"launch={prefix}{group.launch}", f"{group.grid} x {group.block}"] for group in row.others],
        "launch": row.group.launch if row.group else None,
    }


def _uses(row: Row) -> Iterator[tuple[str, TracedNumber]]:
    """How much of compute, DRAM, L2 and the issue slots a kernel uses: numbers that its verdict is made from."""
    from fiprof.analysis.verdict.model import Kind, Part

    if row.verdict is None:
        return
    for name, what in (("compute", Kind.COMPUTE), ("DRAM", Part.DRAM), ("L2", Part.L2), ("issue", Part.ISSUE_SLOTS)):
        for item in row.verdict.resources:
            if what in (item.part, item.kind) and item.comparison:
                yield name, item.comparison.number
                break


def _table(found: Sequence[Rows]) -> View:
    """What takes the time, as Markdown shows it."""
    time = Column("time", "time", "µs", ",.1f")
    named = ("limit", "limited by"), ("distance", "how far"), ("step", "next step"), ("gain", "gain")
    columns = [
        Column("run", "run"),
        Column("name", "what"),
        Column("share", "share", spec=".1%"),
        Column("count", "runs", spec=",.3g"),
        time,
        *(Column(key, title) for key, title in (*named, ("confidence", "confidence"))),
    ]
    rows = []
    for number, of_run in enumerate(found, 1):
        for row in of_run.rows[:MOST_ROWS]:
            step, sure = row.step, worded(row.verdict.confidence) if row.verdict else None
            todo = (short(step), gain(step)) if step else (None, None)
            rows.append((number, titled(row), row.share, row.count or None, row.time, *row.limit(), *todo, sure))
    start = int(len(found) == 1)
    return View(tuple(columns[start:]), tuple(row[start:] for row in rows))


# What the run is, and what makes it doubtful


def _title(runs: Sequence[Run], found: Sequence[Rows]) -> str:
    """``FlashInfer prefill, decode and RoPE on NVIDIA H200``; of a program its command, of files the first."""
    programs = list(dict.fromkeys(filter(None, map(_program, runs))))
    what = _workloads(runs) or _named(programs)
    what = what or _named(list(dict.fromkeys(row.name for rows in found for row in rows.rows if row.kernel)))
    what = what or ", ".join(escape_control(run.manifest.name) for run in runs)
    gpus = dict.fromkeys(str(gpu) for run in runs if (gpu := run.environment("gpu", "name")))
    said = f"{what} on {escape_control(' and '.join(gpus))}" if gpus else what
    return f"{len(runs)} runs of {said}" if len(runs) > 1 else said


def _program(run: Run) -> str:
    """The command in short, from the program's file on; of an imported run its first file."""
    command, files = (run.environment("program", each) or () for each in ("command", "files"))
    said = [str(word) for word in command] or [file.source for file in run.manifest.imported[:1]]
    first = next((place for place, word in enumerate(said) if word in files), 0)
    text = " ".join([PurePath(said[first]).name, *said[first + 1 :]]) if said else ""
    return shorten(short_kernel(text), LONGEST_TITLE) if text else ""


def _workloads(runs: Sequence[Run]) -> str:
    """The families of the workloads; empty for no workload."""
    workloads = list(dict.fromkeys(case.workload for run in runs if not run.of_program for case in run.cases))
    for pack, known in packs.parts("kernels").items():
        families = dict.fromkeys(each.family for name, each in known.items() if name in workloads and each.family)
        if families and all(workload in known and known[workload].family for workload in workloads):
            libraries = list(packs.parts("packages").get(pack, {}).values())
            return f"{join_words(libraries)} {join_words(list(families))}".strip()
    return _named([escape_control(workload.rpartition(":")[2]) for workload in workloads])


def _named(names: Sequence[str]) -> str:
    """The first names and how many more there are."""
    if len(names) <= MOST_NAMED + 1:
        return join_words(names)
    return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"


def _doubts(run: Run, rows: Rows) -> Iterator[str]:
    """What makes a report doubtful as a whole: how its run ended, and what it has nothing of."""
    yield from map(worded, run.status_warning())
    yield from failed_of_run(checks.failed(run))
    if rows.top is not None and rows.idle >= WAITING.share and rows.rows[0].kind != "idle":
        yield f"GPU idle {rows.idle:.0%} of the time: fiprof top {run.manifest.name} says why"
    together = comm(run) if run.has("kernels") and ranks_of(run).several else None
    if together and max((each.lost_share or 0.0 for each in together.ranks), default=0.0) >= SOME_WAITING.share:
        yield f"{comm_report.summary(together)} fiprof comm {run.manifest.name} has every collective"
    yield from (f"no {what}: {why}" for what, why in _missing(run))


def _missing(run: Run) -> Iterator[tuple[str, str]]:
    """What the run has nothing of, and why."""
    if not run.launches:
        yield "counters, occupancy, stalls and roofs", worded(run.missing("ncu"))
    if not run.has("kernels"):
        yield "trace and times by nsys", worded(run.missing("nsys"))
    elif (run.cases or run.imported) and not run.trace.cases:
        has = "no NVTX ranges of fiprof" if run.has("ranges") else "no NVTX ranges at all"
        why = f"the trace has {has}, so that no kernel can be told to belong to a case"
        yield "times of cases by nsys", worded(run.missing("nsys")) if run.imported else why
    if run.cases and not run.plain and not run.imported and not run.of_program:
        yield "times without a profiler", "the plain run left none"


# Templates


@functools.cache
def environment() -> jinja2.Environment:
    """The templates of the reports."""
    import jinja2
    from markupsafe import Markup

    from fiprof.reports.writers import markdown

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("fiprof.reports"), trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, autoescape=lambda name: bool(name and ".html" in name),
    )  # fmt: skip
    made.filters.update(
        md=lambda text: markdown.markdown_text(str(text)),
        table=lambda view: "\n\n".join(markdown.view_blocks(replace(view, title=""))),
        kind=lambda block: type(block).__name__.lower(),
        reason=lambda row: words.reason(row.verdict),
        titled=titled,
        step=lambda each: words.step(each),
    )
    made.globals.update(
        css=lambda: Markup("".join(TEMPLATES.joinpath(name).read_text("utf-8") for name in ("base.css", "run.css"))),
        js=lambda: Markup(TEMPLATES.joinpath("run.js").read_text("utf-8")),
        escape_control=escape_control,
    )
    return made
