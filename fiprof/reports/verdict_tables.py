"""The verdicts of a run as tables."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from fiprof.analysis.verdict.model import CaseBound, CaseVerdict, Comparison, Kind, Part
from fiprof.analysis.verdict.verdict import LaunchVerdict, Verdicts
from fiprof.model.finding import Finding
from fiprof.reports import verdict_words as words
from fiprof.reports.headings import heading, label_cells
from fiprof.reports.view import Column, Document, Value, View
from fiprof.reports.words import phrase
from fiprof.text import short_kernel

_DATA = tuple(
    Column(key)
    for key in (
        "launch", "case", "label", "iteration", "kernel", "grid", "duration_us", "iteration_share", "kind", "part",
        "causes", "evidence", "runner_up", "margin_points", "confidence", "doubts", "steps", "rules", "notes",
    )
)  # fmt: skip

_SUMMARY = (
    Column("launch", "#"),
    Column("count", "x", spec=",d"),
    Column("label", "case"),
    Column("kernel", "kernel"),
    Column("duration_us", "duration", "µs", spec=",.2f"),
    Column("iteration_share", "of iter.", spec=".0%"),
    Column("verdict", "verdict", least=len("compute-bound (issue slots)")),
    Column("why", "why", least=len("local memory")),
    Column("confidence", "confidence"),
)

_EVIDENCE = (
    Column("what", "evidence", least=len("cycles in which a scheduler issued")),
    Column("value", "value", spec=",.1f"),
    Column("unit", "unit"),
    Column("test", "held against"),
    Column("origin", "threshold of"),
    Column("provenance", "measured as"),
)

_CASES = (
    Column("label", "case"),
    Column("case_kernels", "kernels", spec=".3g"),
    Column("case_busy_us", "GPU busy", "µs", spec=",.2f"),
    Column("case_wall_us", "iteration", "µs", spec=",.2f"),
    Column("case_waiting_pct", "GPU waits", "%", spec=".1f"),
    Column("case_copying_pct", "only copies", "%", spec=".0f"),
    Column("verdict", "verdict"),
)

MOST_RULES = 4
"""Of a launch, that people are shown."""


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
        notes = tuple(words.case(case) for case in found.cases if case.bound is not CaseBound.KERNELS)
        shown.append(View(_CASES, rows, title="Cases", notes=notes))
    return Document(
        data=View(_DATA, tuple(_data_row(item) for item in found.launches)),
        shown=tuple(shown),
        warnings=found.warnings,
        notes=(phrase("verdict_table.note"),) if groups else (),
    )


def _groups(launches: Sequence[LaunchVerdict]) -> list[list[LaunchVerdict]]:
    found: dict[tuple[str | None, str, str, Kind, Part | None], list[LaunchVerdict]] = defaultdict(list)
    for item in launches:
        found[item.case, item.kernel, item.row.grid, item.kind, item.part].append(item)
    return list(found.values())


def _median(members: Sequence[LaunchVerdict]) -> LaunchVerdict:
    return sorted(members, key=lambda item: item.duration_us or 0.0)[(len(members) - 1) // 2]


def _summary_row(members: Sequence[LaunchVerdict]) -> tuple[Value, ...]:
    item = _median(members)
    return (
        item.launch, len(members), item.label, short_kernel(item.kernel), item.duration_us,
        item.iteration_share, words.bare_title(item), words.why(item), item.confidence.value,
    )  # fmt: skip


def _case_row(case: CaseVerdict) -> tuple[Value, ...]:
    numbers = (case.busy_time, case.wall_time, case.waiting, case.copying)
    times = [None if each is None else each.value for each in numbers]
    return (case.label, case.kernels, *times, words.case_kind(case))


def _launch_view(item: LaunchVerdict) -> View:
    summary = [phrase("verdict_table.reason", reason=words.reason(item))]
    if item.runner_up:
        summary.append(phrase("verdict_table.runner_up", runner_up=words.runner_up(item)))
    summary.append(phrase("verdict_table.confidence", confidence=words.confidence(item)))
    notes: list[Finding | str] = [f"{number}. {words.step(step)}" for number, step in enumerate(item.steps, 1)]
    notes += [words.rule(rule) for rule in item.rules[:MOST_RULES]]
    return View(
        _EVIDENCE,
        tuple(
            _evidence_row(each)
            for each in (*item.evidence, *(shown for cause in item.causes for shown in cause.evidence))
        ),
        title=heading(item),
        summary=tuple(summary),
        notes=(*notes, *item.notes),
    )


def _evidence_row(of: Comparison) -> tuple[Value, ...]:
    source = of.number.source
    measured_as = str(source) if source.origin == "facts" else source.formula
    return (
        words.what(of.quantity.key, of.of),
        of.value,
        of.number.unit.strip(),
        words.limit(of),
        words.origin(of),
        measured_as,
    )


def _data_row(item: LaunchVerdict) -> tuple[Value, ...]:
    of = item.row
    return (
        of.launch, of.case, of.label, of.iteration, of.kernel, of.grid, of.duration_us, item.iteration_share,
        item.kind.value, item.part.value if item.part else None,
        tuple(each.fields() for each in item.causes),
        tuple(each.fields() for each in item.evidence),
        item.runner_up.fields() if item.runner_up else None,
        item.margin_points, item.confidence.value, item.doubts,
        tuple(each.fields() for each in item.steps),
        tuple(each.fields() for each in item.rules),
        item.notes,
    )  # fmt: skip
