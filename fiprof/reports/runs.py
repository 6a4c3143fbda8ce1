"""The runs of an archive, and what was measured in them, as the catalogue answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from fiprof.model.catalogue.queries import Answer, ResultRow, RunRow
from fiprof.model.finding import Finding
from fiprof.model.keys import KEYS
from fiprof.model.labels import Labels
from fiprof.model.lacking import RunWarning
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import Quantity
from fiprof.reports.columns import Cell, Cells, attribute, filled
from fiprof.reports.view import Column, Document, Narrow, View
from fiprof.reports.words import phrase

MOST_ROWS = 50
"""Rows that people are shown: the newest, or the first in the order that was asked for."""
MOST_WORKLOADS = 4
"""Of a run, that are named."""

RUN_KEYS = (
    "name", "status", "path", "reason", "started", "duration_s", "cases", "case_labels", "gpu", "uuid", "driver",
    "tools", "fiprof", "replayed_from", "command", "git", "user", "host", "bytes", "tags",
)  # fmt: skip
RESULT_KEYS = ("name", "path", "started", "gpu", "uuid", "driver", "git", "tags", "case", "kernel")


Baselines = Mapping[str, tuple[str, ...]]
"""A run folder's path -> the baselines that it is."""


def document(answer: Answer, metrics: Sequence[str] = (), baselines: Baselines = MappingProxyType({})) -> Document:
    """An answer of the catalogue. metrics: keys of the quantities that it was asked for."""
    shown = _results(answer.results, metrics) if metrics else _runs(answer, baselines)
    programs = _programs(answer, metrics, baselines)
    notes = [phrase("runs.more", count=len(programs.rows))] if answer.more else []
    return Document(programs, (shown,), notes=tuple(notes))


def _programs(answer: Answer, metrics: Sequence[str], baselines: Baselines) -> View:
    if not metrics:
        notes = (Column("notes"), lambda row: tuple(map(asdict, row.notes)))
        named = (Column("baselines"), lambda row: baselines.get(row.path, ()))
        return filled((*map(attribute, RUN_KEYS), named, notes), answer.runs)
    return filled((*map(attribute, RESULT_KEYS), *map(_metric, metrics)), answer.results)


# Runs


def _runs(answer: Answer, baselines: Baselines) -> View:
    rows = answer.runs
    columns: list[Cell] = [
        attribute("name", "run", narrow=Narrow.KEEP),
        (Column("status", "status"), _status),
        (Column("when", "started", narrow=Narrow.KEEP), when),
        attribute("duration_s", "took", "s", ".1f"),
        (Column("megabytes", "size", "MB", ".1f", narrow=Narrow.DROP), lambda row: row.bytes / 1e6),
        attribute("gpu", "GPU", narrow=Narrow.DROP),
        attribute("fiprof", "fiprof", narrow=Narrow.DROP),
    ]
    if any(row.path in baselines for row in rows):
        columns.append((Column("", "baseline"), lambda row: baselines.get(row.path, "")))
    if any(row.tags for row in rows):
        columns.append(attribute("tags", "tags"))
    columns.append((Column("what", "cases", narrow=Narrow.BELOW), _what))
    if any(row.notes for row in rows):
        columns.append((Column("said", "notes", narrow=Narrow.BELOW), lambda row: "; ".join(n.text for n in row.notes)))
    warnings = tuple(
        Finding(RunWarning(row.status), {"run": row.name, "reason": row.reason})
        for row in rows
        if row.status != "complete"
    )
    return filled(
        columns,
        rows,
        warnings=warnings,
        notes=() if rows else (phrase("runs.nothing" if answer.filtered else "runs.none"),),
    )


def _status(row: RunRow) -> str:
    return f"{row.status}, replay" if row.replayed_from else row.status


def when(row: RunRow | ResultRow) -> str | None:
    """The start to the minute, in its own time zone."""
    return row.started and row.started[:16].replace("T", " ")


def _what(row: RunRow) -> str:
    """The workloads, each with its number of cases where it has several."""
    counts = Counter(case.partition("[")[0] for case in row.cases)
    words = [f"{count} × {name}" if count > 1 else name for name, count in counts.items()]
    more = [f"{len(words) - MOST_WORKLOADS} more"] if len(words) > MOST_WORKLOADS + 1 else []
    return ", ".join(words[:MOST_WORKLOADS] + (more or words[MOST_WORKLOADS:]))


# What was measured in them


def _results(rows: Sequence[ResultRow], metrics: Sequence[str]) -> View:
    label = labels(filter(None, {row.case: None for row in rows}))
    columns: Cells = (
        attribute("name", "run", narrow=Narrow.KEEP),
        (Column("when", "started", narrow=Narrow.DROP), when),
        attribute("gpu", "GPU", narrow=Narrow.DROP),
        attribute("git", "commit", narrow=Narrow.DROP),
        (Column("label", "case", narrow=Narrow.ABOVE), lambda row: label(row.case)),
        *([attribute("kernel", "kernel", narrow=Narrow.ABOVE)] if any(row.kernel for row in rows) else []),
        *map(_metric, metrics),
    )
    return filled(columns, rows, notes=() if rows else (phrase("runs.nothing"),))


def metric_column(key: str) -> Column:
    """A column of a quantity of the catalogue."""
    known = KEYS[key]
    spec = known.spec if isinstance(known, Quantity) else ".1%" if key.endswith(("_share", "_spread")) else ",.2f"
    return Column(key, key, known.unit, spec, known.meaning)


def _metric(key: str) -> Cell:
    return metric_column(key), lambda row: row.values[key]


def labels(cases: Iterable[str]) -> Labels:
    """Short names of cases of several runs: by the parameters that tell these apart."""
    entries = []
    for case in cases:
        workload, _, words = case.partition("[")
        names = [word.partition("=")[0] for word in words.removesuffix("]").split(",") if "=" in word]
        entries.append(CaseEntry(case, workload, dict.fromkeys(names, ""), 0, 0, 0))
    return Labels(entries)
