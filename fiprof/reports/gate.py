"""``fiprof gate`` as a table: each case against what is allowed, and the answer in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import Any

from fiprof.analysis.comparison.gate import DOUBTS, Decision, Gate, GatedCase
from fiprof.analysis.comparison.measured import HERE
from fiprof.analysis.thresholds import FALSE_ALARMS
from fiprof.model.baselines import SHORT_COMMIT
from fiprof.model.finding import Finding
from fiprof.model.labels import Labels
from fiprof.reports.columns import Cells, attribute, filled, for_programs
from fiprof.reports.measured import mean_us, slow_clocks
from fiprof.reports.timeline_text import time_words
from fiprof.reports.view import Column, Document, Narrow
from fiprof.reports.words import phrase, worded
from fiprof.text import escape_control

MOST_GRAVE, MOST_OTHERS = 100, 20
"""Rows that people are shown: of what is slower or cannot be told, and of the rest. A comment on GitHub holds 65,536
characters."""

Label = Callable[[str], str]
"""A case's id in short."""


class GateWarning(StrEnum):
    """What was not decided."""

    FAILED = "failed"
    """With cases and reason."""
    CANNOT_TELL = "cannot_tell"
    """With count, limit (percent) and needed (processes a side for all of them)."""
    GONE = "gone"
    """With cases, against and reason."""


def document(found: Gate, *, every: bool = False) -> Document:
    """The answer, and a row a case. every: leave out nothing."""
    label = Labels(found.run.cases)
    columns = _columns(found, label)
    grave = found.of(Decision.FAILED, Decision.SLOWER, *DOUBTS)
    others = [case for case in found.cases if case not in grave]
    kept = [*found.cases] if every else [*grave[:MOST_GRAVE], *others[:MOST_OTHERS]]
    notes = [phrase("gate.left_out", count=left)] if (left := len(found.cases) - len(kept)) else []
    notes.append(phrase("gate.note", limit=found.max_slowdown_pct, alarms=FALSE_ALARMS.value))
    shown = filled(
        columns,
        kept,
        title=answer(found),
        warnings=tuple(_warnings(found, label)),
        summary=(sides(found),),
        notes=tuple(notes),
    )
    return Document(filled(for_programs(*columns), found.cases), (shown,))


def answer(found: Gate) -> str:
    """``1 of 8 cases slower than main by 3% or more``."""
    values = {
        decision.value: len(found.of(decision)) for decision in (Decision.SLOWER, Decision.FAILED, Decision.CANNOT_TELL)
    }
    key = next((key for key, count in values.items() if count), "passed")
    judged = len(found.of(Decision.FAILED)) + len(found.comparison.cases)
    return phrase(f"gate.{key}", against=found.against, limit=found.max_slowdown_pct, all=judged, **values)


def suite_name(against: str) -> str:
    """What a CI system calls the gate."""
    return escape_control(phrase("gate.suite", against=against))


def why(found: Gate) -> str:
    """Why a gate fails."""
    return answer(found) if found.slower else worded(next(_warnings(found, Labels(found.run.cases))))


def sides(found: Gate) -> str:
    """What was measured, and how."""
    a, b = found.comparison.a, found.comparison.b
    gpu = b.environment.get("gpu") or {}
    return phrase(
        "gate.sides",
        a=a.spec.replace(a.commit, a.commit[:SHORT_COMMIT]) if a.commit else a.spec,
        a_commit=_commit(a.commit[:SHORT_COMMIT] if a.commit and a.commit not in a.spec else None),
        b=phrase("gate.here") if b.spec == HERE else b.spec,
        b_commit=_commit(found.run.environment.get("git") if b.spec == HERE else None),
        processes=found.comparison.processes,
        gpu=gpu.get("name") or phrase("gate.some_gpu"),
    )


def _commit(commit: object) -> str:
    return phrase("gate.commit", commit=commit) if isinstance(commit, str) else ""


def sentence(found: Gate, case: GatedCase) -> str:
    """What is said of a case where there is no table."""
    values: dict[str, Any] = {"against": found.against, "limit": found.max_slowdown_pct, "reason": case.reason}
    if case.compared:
        difference = case.compared.difference
        values |= {
            "pct": abs(difference.difference_pct),
            "low": difference.low_pct,
            "high": difference.high_pct,
            "a": time_words(mean_us(case.compared, "a")),
            "b": time_words(mean_us(case.compared, "b")),
            "needed": case.processes_needed,
        }
    return phrase(f"gate_case.{case.decision.name.lower()}", **values)


def _warnings(found: Gate, label: Label) -> Iterator[Finding]:
    if unknown := found.of(Decision.CANNOT_TELL):
        needed = max(case.processes_needed or 0 for case in unknown)
        yield Finding(
            GateWarning.CANNOT_TELL, {"count": len(unknown), "limit": found.max_slowdown_pct, "needed": needed}
        )
    for kind, decision in ((GateWarning.FAILED, Decision.FAILED), (GateWarning.GONE, Decision.GONE)):
        cases: dict[str, list[str]] = {}
        for case in found.of(decision):
            cases.setdefault(case.reason, []).append(label(case.case))
        for reason, labels in cases.items():
            yield Finding(kind, {"cases": tuple(labels), "against": found.against, "reason": reason})
    yield from slow_clocks(found.comparison.cases, lambda case: label(case.b))


def _columns(found: Gate, label: Label) -> Cells:
    def interval(case: GatedCase) -> str | None:
        if case.compared is None:
            return None
        difference = case.compared.difference
        return phrase("gate.interval", low=difference.low_pct, high=difference.high_pct)

    return (
        (Column("", phrase("gate.result"), narrow=Narrow.KEEP), lambda case: worded(case.decision)),
        attribute("decision"),
        attribute("case"),
        (Column("label", phrase("gate.case"), narrow=Narrow.ABOVE), lambda case: label(case.case)),
        *(
            (Column(f"{side}_us", title, "µs", ",.2f"), partial(_mean_us, side=side))
            for side, title in (("a", found.against), ("b", phrase("gate.now")))
        ),
        attribute("difference_pct", phrase("gate.difference"), "%", "+z.1f", of="compared.difference.difference_pct"),
        (Column("", phrase("gate.interval_title"), "%"), interval),
        *(attribute(key, of=f"compared.difference.{key}") for key in ("low_pct", "high_pct", "p", "tells_pct")),
        attribute("slow_clock_rounds", of="compared.slow_clock_rounds"),
        attribute("processes_needed"),
        attribute("reason"),
        (Column("max_slowdown_pct"), lambda _: found.max_slowdown_pct),
        (Column("against"), lambda _: found.against),
    )


def _mean_us(case: GatedCase, side: str) -> float | None:
    return None if case.compared is None else mean_us(case.compared, side)
