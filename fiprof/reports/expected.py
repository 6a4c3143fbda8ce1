"""``fiprof expected`` as tables: one a case for people, with the deviations below it; one flat table for programs."""

from __future__ import annotations

from fiprof.analysis.expectations import ExpectationSource
from fiprof.analysis.expected import (
    TOLERANCE_POINTS,
    CaseExpected,
    Expectation,
    Expected,
    ExpectedValue,
)
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
        "expected_stated", "measured", "outcome", "deviation", "remarks", "differs", "source", "source_gpu",
    )
)  # fmt: skip


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


def document(report: Expected) -> Document:
    """A table a case, the deviations in words below it; for programs a row a comparison."""
    head = View((), (), title=phrase("expected.title"), summary=report.summary)
    return Document(
        data=View(_DATA, tuple(_row(case, item) for case in report.cases for item in case.values)),
        shown=(head, *map(_of_case, report.cases)),
        warnings=report.warnings,
        notes=(
            phrase("expected.how_to_read", tolerance=TOLERANCE_POINTS),
            *dict.fromkeys(_cited(case.source) for case in report.cases),
        ),
    )


def _row(case: CaseExpected, item: ExpectedValue) -> tuple[Value, ...]:
    at = case.at
    return (
        at.case, at.label, case.family, at.launch, at.kernel, item.quantity, item.work or None, item.unit, item.low,
        item.high, item.stated, item.measured, item.outcome, item.deviation, item.remarks, case.differs,
        case.source.title, case.source.gpu,
    )  # fmt: skip


def _cited(origin: ExpectationSource) -> str:
    if not origin.reference:
        return phrase("expected.source_alone", title=origin.title)
    return phrase("expected.source", title=origin.title, reference=origin.reference)


def _of_case(case: CaseExpected) -> View:
    return View(
        SHOWN,
        tuple(map(cells, case.values)),
        title=heading(case.at),
        warnings=(*case.warnings, *case.differs),
        notes=case.deviations,
    )
