"""``fiprof expected`` as tables: one a case for people, with the deviations below it; one flat table for programs."""

from __future__ import annotations

import dataclasses

from fiprof.analysis.expectations import Expectation, ExpectationSource
from fiprof.analysis.expected import (
    TOLERANCE_POINTS,
    CaseExpected,
    Expected,
    ExpectedOutcome,
    ExpectedValue,
    Faster,
    NotCompared,
)
from fiprof.model.provenance import TracedText
from fiprof.reports import verdict_words
from fiprof.reports.headings import heading
from fiprof.reports.view import Column, Document, Value, View
from fiprof.reports.words import phrase

SHOWN = (
    Column("quantity", "what", least=26),
    Column("unit", "in"),
    Column("expected", "expected", least=8),
    Column("measured", "measured", spec=".2f"),
    Column("outcome", "outcome"),
)
"""Of :func:`cells`."""

_DATA = tuple(
    Column(key)
    for key in (
        "case", "label", "family", "launch", "kernel", "quantity", "work", "unit", "expected_low", "expected_high",
        "expected_stated", "measured", "outcome", "deviation", "remarks", "source", "source_gpu", "steps",
    )
)  # fmt: skip

NOT_COMPARED = (
    Column("family", "family"),
    Column("quantity", "what"),
    Column("figure", "said", least=37),
    Column("params", "for"),
    Column("why", "not compared"),
)
"""Of :func:`unlike_cells`."""


def cells(item: ExpectedValue) -> tuple[Value, ...]:
    """An expectation in words, as SHOWN."""
    kind, numbers = item.kind.name.lower(), item.finding.values
    off = ""
    if item.deviation is not None:
        size = abs(item.deviation)
        off = f"{size:.2f} TB/s" if item.kind == Expectation.BANDWIDTH else f"{size:.1f} points"
    outcome = phrase(f"expected_outcome.{item.outcome.name.lower()}", off=off)
    what, limits = (phrase(f"expectation.{kind}.{part}", **numbers) for part in ("what", "range"))
    return what, item.unit, limits, item.measured, outcome


def unlike_cells(item: NotCompared) -> tuple[Value, ...]:
    """A figure of another GPU, shape or size, as NOT_COMPARED."""
    what = phrase(f"expectation.{item.kind.name.lower()}.what", quantity=item.quantity, work="tensor")
    return item.family, what, item.figure, item.params, item.why


MOST_CASES = 8
"""Cases that people are shown."""


def document(report: Expected, *, most: int | None = None) -> Document:
    """What the run solved faster, a table a case, the deviations in words below it, and what is not compared; for
    programs a row a comparison, a faster case and a figure that is not compared.

    most: cases that people are shown; None for all.
    """
    rest = [len(found[most:]) if most is not None else 0 for found in (report.cases, report.faster)]
    left_out = phrase("show.more_cases", count=max(rest)) if any(rest) else None
    faster = tuple(map(faster_words, report.faster[:most]))
    head = View((), (), title=phrase("expected.title"), summary=(*faster, *report.summary))
    rows = [_row(case, item) for case in report.cases for item in case.values]
    aside = View(NOT_COMPARED, tuple(map(unlike_cells, report.not_compared)), title=phrase("expected.not_compared"))
    return Document(
        programs=View(_DATA, (*map(_faster_row, report.faster), *rows, *map(_unlike_row, report.not_compared))),
        shown=(head, *map(_of_case, report.cases[:most]), *([aside] if aside.rows else [])),
        warnings=report.warnings,
        notes=(
            *([left_out] if left_out else []),
            *([phrase("expected.how_to_read", tolerance=TOLERANCE_POINTS)] if report.cases else []),
            *map(cited, report.sources),
        ),
    )


def faster_words(item: Faster) -> TracedText:
    """The step that a measured alternative is."""
    return phrase("expected.faster", label=item.label, step=verdict_words.step(item.step))


def _row(case: CaseExpected, item: ExpectedValue) -> tuple[Value, ...]:
    at = case.at
    return (
        at.case, at.label, case.family, at.launch, at.kernel, item.quantity, item.work or None, item.unit, item.low,
        item.high, item.stated, item.measured, item.outcome, item.deviation, item.remarks, case.source.title,
        case.source.gpu, (),
    )  # fmt: skip


def _faster_row(item: Faster) -> tuple[Value, ...]:
    return (item.case, item.label, *[None] * 15, (item.step.fields(),))


def _unlike_row(item: NotCompared) -> tuple[Value, ...]:
    outcome = ExpectedOutcome.NOT_COMPARED
    remarks = (item.figure, *item.params, *item.why)
    return (
        None, None, item.family, None, None, item.quantity, None, item.unit, None, None, None, None, outcome, None,
        remarks, item.source.title, item.source.gpu, (),
    )  # fmt: skip


def cited(origin: ExpectationSource) -> str:
    """Where figures come from, and whose GPU they are of."""
    key = "source" if origin.reference else "source_alone"
    return phrase(f"expected.{key}", **dataclasses.asdict(origin))


def _of_case(case: CaseExpected) -> View:
    return View(
        SHOWN,
        tuple(map(cells, case.values)),
        title=heading(case.at),
        warnings=case.warnings,
        notes=case.deviations,
    )
