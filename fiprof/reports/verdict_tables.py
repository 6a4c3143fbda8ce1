"""The verdicts of a run as tables."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from fiprof.analysis.verdict.model import Comparison, title
from fiprof.analysis.verdict.quoted_rules import QuotedRule
from fiprof.analysis.verdict.verdict import CaseVerdict, LaunchVerdict, Verdicts
from fiprof.reports.headings import heading, label_cells
from fiprof.reports.view import Column, Document, Value, View
from fiprof.reports.words import worded
from fiprof.text import short_kernel

_DATA = tuple(
    Column(key)
    for key in (
        "launch", "case", "iteration", "kernel", "grid", "duration_us", "share", "verdict", "kind", "part", "value",
        "unit", "test", "threshold", "metric", "runner_up", "margin_points", "sure", "doubts", "evidence", "steps",
        "rules", "notes",
    )
)  # fmt: skip

_SUMMARY = (
    Column("launch", "#"),
    Column("count", "x", spec=",d"),
    Column("label", "case"),
    Column("kernel", "kernel"),
    Column("duration_us", "duration", "µs", spec=",.2f"),
    Column("share", "of iter.", spec=".0%"),
    Column("verdict", "verdict", least=len("compute-bound (issue slots)")),
    Column("sure", "sure"),
)

_EVIDENCE = (
    Column("what", "evidence", least=len("cycles in which a scheduler issued")),
    Column("value", "value", spec=",.1f"),
    Column("unit", "unit"),
    Column("test", "held against"),
    Column("origin", "threshold of"),
    Column("metric", "measured as"),
)

_CASES = (
    Column("label", "case"),
    Column("kernels", "kernels", spec=".3g"),
    Column("kernel_us", "kernel time", "µs", spec=",.2f"),
    Column("wall_us", "iteration", "µs", spec=",.2f"),
    Column("waiting", "GPU waits", "%", spec=".1f"),
    Column("verdict", "verdict"),
)

MOST_RULES = 4
"""Of a launch, that people are shown."""

_NOTE = (
    "x: launches alike, of which the one of median time is shown; of iter.: of the kernels' time in an iteration. "
    "Percentages are of time: a resource used to half of its peak needs half of the launch's time at the least. Steps "
    "say the most that they can save. sure: high where nothing speaks against the verdict, fair where something does "
    "or is missing, low where it might as well be the runner-up."
)


def document(found: Verdicts) -> Document:
    """The verdicts as tables: a summary, the evidence of each launch and the cases for people, one flat for programs.

    Launches of one kernel in one case with the same verdict are one for people: the one with the median time.
    """
    groups = _groups(found.launches)
    cells = label_cells(item.label for item in found.launches)
    columns = tuple(dataclasses.replace(each, least=cells) if each.key == "label" else each for each in _SUMMARY)
    shown = [View(columns, tuple(_summary_row(members) for members in groups), title="Verdicts")] if groups else []
    shown += [_launch_view(_median(members)) for members in groups]
    if found.cases:
        rows = tuple(_case_row(case) for case in found.cases)
        notes = tuple(f"{case.label}: {case.sentence}" for case in found.cases if case.launch_bound is not False)
        shown.append(View(_CASES, rows, title="Cases", notes=notes))
    return Document(
        data=View(_DATA, tuple(_data_row(item) for item in found.launches)),
        shown=tuple(shown),
        warnings=found.warnings,
        notes=(_NOTE,) if groups else (),
    )


def _groups(launches: Sequence[LaunchVerdict]) -> list[list[LaunchVerdict]]:
    found: dict[tuple[str | None, str, str, str], list[LaunchVerdict]] = defaultdict(list)
    for item in launches:
        found[item.case, item.kernel, item.grid, item.title].append(item)
    return list(found.values())


def _median(members: Sequence[LaunchVerdict]) -> LaunchVerdict:
    return sorted(members, key=lambda item: item.duration_us or 0.0)[(len(members) - 1) // 2]


def _summary_row(members: Sequence[LaunchVerdict]) -> tuple[Value, ...]:
    item = _median(members)
    return (
        item.launch, len(members), item.label, short_kernel(item.kernel), item.duration_us, item.share, item.title,
        item.sure,
    )  # fmt: skip


def _case_row(case: CaseVerdict) -> tuple[Value, ...]:
    waiting = case.waiting.value if case.waiting else None
    words = {True: title("launch"), False: "bound by its kernels", None: title("unknown")}[case.launch_bound]
    return (case.label, case.kernels, case.kernel_us, case.wall_us, waiting, words)


def _launch_view(item: LaunchVerdict) -> View:
    summary = [f"{item.reason}."]
    if item.runner_up:
        summary.append(f"Runner-up: {item.runner_up}.")
    summary.append(f"How sure: {item.sure}{', because ' + '; '.join(map(worded, item.doubts)) if item.doubts else ''}.")
    notes = [f"{number}. {step.said()}" for number, step in enumerate(item.steps, 1)]
    notes += [_rule_words(rule) for rule in item.rules[:MOST_RULES]]
    notes += [f"{note}." for note in item.judgement.notes]
    return View(
        _EVIDENCE,
        tuple(_reading_row(reading) for reading in item.judgement.readings),
        title=heading(item),
        summary=tuple(summary),
        notes=tuple(notes),
    )


def _rule_words(rule: QuotedRule) -> str:
    estimate = f", {rule.estimate}" if rule.estimate else ""
    return f"ncu's rule {rule.rule}{estimate}: " + (f"no step, {rule.why_not}" if rule.why_not else rule.message)


def _reading_row(reading: Comparison) -> tuple[Value, ...]:
    limit = "" if reading.threshold is None else f"{reading.test} {reading.threshold:g}{reading.fact.unit}"
    unit = reading.fact.unit.strip()
    return (reading.what, reading.value, unit, limit, reading.origin, _measured_as(reading))


def _measured_as(reading: Comparison) -> str:
    """ncu's name or the formula; of what was computed from several tools, with their names."""
    of = reading.fact.source
    return str(of) if of.origin == "facts" else of.formula


def _data_row(item: LaunchVerdict) -> tuple[Value, ...]:
    found = item.judgement
    first = found.readings[0] if found.readings else None
    return (
        item.launch, item.case, item.iteration, item.kernel, item.grid, item.duration_us, item.share, item.title,
        found.kind, found.part or None,
        first.value if first else None,
        first.fact.unit.strip() if first else None,
        (first.test or None) if first else None,
        first.threshold if first else None,
        _measured_as(first) if first else None,
        found.runner_up.title if found.runner_up else None,
        found.margin, item.sure, item.doubts,
        tuple(str(reading.said()) for reading in found.readings),
        tuple(str(step.said()) for step in item.steps),
        tuple(_rule_words(rule) for rule in item.rules),
        found.notes,
    )  # fmt: skip
