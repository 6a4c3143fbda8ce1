"""The report of one run or of several: the sections of a page that can be handed over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from fiprof.analysis.analyses import Analyses
from fiprof.analysis.check_rules import Check
from fiprof.analysis.checks import every
from fiprof.analysis.verdict.model import Kind
from fiprof.analysis.verdict.verdict import Verdicts
from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.reports.pages.charts import occupancy_chart, roofline_chart, stalls_chart, use_chart
from fiprof.reports.pages.charts_time import gpu_time, gpu_time_chart, memory_chart
from fiprof.reports.pages.charts_timeline import timeline_chart
from fiprof.reports.pages.page import Block, Bullets, Caution, Chart, Link, Observation, Page, Section, Table, Text
from fiprof.reports.pages.traced import of_page
from fiprof.reports.run_report import checklist, guide, kernels, observations, settings, story, summary, verdicts
from fiprof.reports.run_report.checklist import Item
from fiprof.reports.run_report.compare import comparison
from fiprof.reports.run_report.settings import Defaults
from fiprof.reports.run_report.tables import appendix_tables
from fiprof.reports.words import phrase
from fiprof.text import escape_control

T = TypeVar("T")


def report(runs: Sequence[Run], *, defaults: Defaults | None = None) -> Page:
    """The report of the runs; of several with a comparison first.

    runs: at least one, with their tables made. defaults: of the workloads' parameters, as far as they are known.
    Raises FiprofError for a table that is there and cannot be read.
    """
    if len(runs) == 1:
        return Page(escape_control(runs[0].manifest.name), _sections(runs[0], defaults or {}), facts=_facts(runs[0]))
    parts = [
        Section("", f"Run {number}: {escape_control(run.manifest.name)}", (), _sections(run, defaults or {}))
        for number, run in enumerate(runs, 1)
    ]
    numbered = [
        _prefixed(dataclasses.replace(part, anchor="run"), f"run{number}-") for number, part in enumerate(parts, 1)
    ]
    title = f"{len(runs)} runs: {', '.join(escape_control(run.manifest.name) for run in runs)}"
    return Page(title, (comparison([run.once(Analyses) for run in runs]), *numbered))


def _facts(run: Run) -> tuple[tuple[str, str], ...]:
    manifest, tools = run.manifest, run.environment("tools")
    found = {
        "GPU": str(run.environment("gpu", "name") or ""),
        "Collected": f"{manifest.started[:19].replace('T', ' ')}, in {manifest.duration_s:.0f} s",
        "Tools": ", ".join(f"{name} {version}" for name, version in tools.items()) if isinstance(tools, dict) else "",
        "Status": ": ".join(filter(None, (manifest.status, manifest.reason))),
    }
    return tuple((name, escape_control(value)) for name, value in found.items() if value)


def _sections(run: Run, defaults: Defaults) -> tuple[Section, ...]:
    measured, checks = run.once(Analyses), every(run)
    told, judged = story.story(measured), verdicts.of_run(run)
    sections = [
        summary.section(measured, checks, judged),
        settings.environment_section(run),
        settings.asked_section(measured, defaults),
        story.section(told),
        _charts(measured),
        kernels.section(measured, judged),
        observations.section(measured, told, judged),
        checklist.section(run, checks),
        guide.actions_section(run.manifest),
        guide.guide_section(measured, defaults),
        _appendix(measured, told, checks),
    ]
    kept = tuple(section for section in sections if section.blocks or section.sections)
    return (*kept, checklist.checklist(_items(measured, kept, checks, judged)))


def _time_chart(measured: Analyses) -> Chart | None:
    """Each kernel's share of the time, where that is of one pipeline: a single case, or a program without cases."""
    time = gpu_time(measured.run) if len(measured.run.cases) < 2 else None
    return gpu_time_chart(time) if time and time.kernels else None


CHARTS: tuple[Callable[[Analyses], Chart | None], ...] = (
    timeline_chart,
    _time_chart,
    lambda measured: roofline_chart(measured.roofs),
    lambda measured: use_chart(measured.figures) if measured.run.launches else None,
    lambda measured: stalls_chart(measured.stalls),
    lambda measured: occupancy_chart(measured.figures) if measured.run.launches else None,
    lambda measured: memory_chart(measured.run),
)
"""The pictures of a run, in their order; each is None or raises FiprofError where the run lacks what it shows."""


def _charts(measured: Analyses) -> Section:
    """The pictures, as far as the run has what they show."""
    blocks: list[Block] = []
    for make in CHARTS:
        try:
            chart = make(measured)
        except FiprofError as error:
            blocks.append(Caution(error.message))
            continue
        if chart is not None:
            blocks.append(chart)
    return Section("charts", "Visualizations", tuple(dict.fromkeys(blocks)))


def _appendix(measured: Analyses, told: story.Story, checks: Sequence[Check]) -> Section:
    tables = [
        *appendix_tables(measured, told),
        checklist.checks_table(measured.run, checks),
        guide.files_table(measured.run.manifest),
    ]
    return Section("appendix", "Appendix", tuple(table for table in tables if table is not None))


SECTIONS = (
    "summary",
    "environment",
    "asked",
    "story",
    "charts",
    "kernels",
    "observations",
    "sure",
    "actions",
    "reproduce",
    "appendix",
)
"""Anchors of the sections that a whole report has, beside the checklist."""


def _items(measured: Analyses, sections: Sequence[Section], checks: Sequence[Check], judged: Verdicts) -> list[Item]:
    """What the report can ask of itself."""
    run, there = measured.run, {section.anchor for section in sections}
    missing = tuple(anchor for anchor in SECTIONS if anchor not in there)
    lacking = tuple(what for what, _ in summary.lacks(measured))
    actions, due = run.manifest.actions, len(run.launches)
    ended = sum(action.outcome == "ok" for action in actions)
    given = sum(verdict.kind is not Kind.UNKNOWN for verdict in judged.launches)
    numbers = len(of_page(Page("", tuple(sections))))

    def item(key: str, outcome: bool | None, why: str = "why", **values: object) -> Item:
        return Item(phrase(f"report_item.{key}"), outcome, phrase(f"report_item.{key}_{why}", **values))

    return [
        item("sections", not missing, "missing" if missing else "why", missing=missing, count=len(SECTIONS)),
        item("complete", run.manifest.status == "complete", status=run.manifest.reason or run.manifest.status),
        item("tools", not lacking, "missing" if lacking else "why", missing="; ".join(lacking)),
        item("commands", ended == len(actions) if actions else None, ended=ended, all=len(actions)),
        item("verdicts", given == due if due else None, "why" if due else "missing", given=given, due=due),
        *checklist.items_of_checks(checks),
        item("numbers", numbers > 0, numbers=numbers),
    ]


# Several runs in one page


def _prefixed(section: Section, prefix: str) -> Section:
    """The section with every anchor, and every link to one, prefixed."""

    def link(part: T) -> T:
        if isinstance(part, Link) and part.href.startswith("#"):
            return type(part)(str(part), f"#{prefix}{part.href[1:]}")
        return part

    def text(block: Text) -> Text:
        return Text(tuple(link(part) for part in block.parts))

    def block(item: Block) -> Block:
        if isinstance(item, Text):
            return text(item)
        if isinstance(item, Bullets):
            return Bullets(tuple(map(text, item.items)))
        if isinstance(item, Table):
            rows = tuple(tuple(link(cell) for cell in row) for row in item.view.rows)
            view = dataclasses.replace(item.view, rows=rows)
            return dataclasses.replace(item, view=view, anchor=item.anchor and prefix + item.anchor)
        if isinstance(item, Chart | Observation):
            return dataclasses.replace(item, anchor=prefix + item.anchor)
        return item

    return Section(
        prefix + section.anchor,
        section.title,
        tuple(map(block, section.blocks)),
        tuple(_prefixed(part, prefix) for part in section.sections),
    )


def warnings(page: Page | Section) -> Iterable[str]:
    """What makes the whole of a report doubtful: the cautions of its summaries and of its comparison."""
    for section in page.sections:
        if section.anchor.endswith(("summary", "comparison")):
            yield from (block.text for block in section.blocks if isinstance(block, Caution))
        if section.anchor.endswith("-run"):
            yield from warnings(section)
