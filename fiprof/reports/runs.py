"""The runs of an archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fiprof.model.finding import Finding
from fiprof.model.labels import Labels
from fiprof.model.manifest import Manifest
from fiprof.model.run import RunWarning
from fiprof.reports.columns import Cells, attribute, filled
from fiprof.reports.view import Column, Document, Narrow, view_of
from fiprof.reports.words import phrase


@dataclass(frozen=True)
class RunRow:
    """A run, or what is wrong with it."""

    name: str
    status: str
    """complete, failed, interrupted, or damaged where its manifest cannot be read."""
    path: str
    reason: str
    """Why it is not complete; empty otherwise."""
    started: str | None = None
    """ISO 8601 with offset."""
    duration_s: float | None = None
    cases: tuple[str, ...] = ()
    """Case ids."""
    case_labels: tuple[str, ...] = ()
    """The same in short."""
    gpu: str | None = None
    tools: tuple[str, ...] = ()
    """The profilers that were asked for."""
    fiprof: str | None = None
    """The version that wrote it."""
    replayed_from: str | None = None
    """The run whose raw files it reads."""


MOST_ROWS = 50
"""Runs that people are shown, the newest."""
MOST_WORKLOADS = 4
"""Of a run, that are named."""

COLUMNS = tuple(map(Column, RunRow.__dataclass_fields__))


def runs(found: Sequence[tuple[Path, Manifest | str]], *, most: int | None = None) -> Document:
    """The runs as a table, in the order given, the newest last.

    found: each run's folder with its manifest, or with what is wrong with that. most: runs that people are shown, the
    newest; None for all.
    """
    rows = [_row(path, manifest) for path, manifest in found]
    columns: Cells = (
        attribute("name", "run", narrow=Narrow.KEEP),
        (Column("status", "status"), _status),
        (Column("when", "started", narrow=Narrow.KEEP), _when),
        attribute("duration_s", "took", "s", ".1f"),
        attribute("gpu", "GPU", narrow=Narrow.DROP),
        attribute("fiprof", "fiprof", narrow=Narrow.DROP),
        (Column("what", "cases", narrow=Narrow.BELOW), _what),
    )
    warnings = tuple(
        Finding(RunWarning(row.status), {"run": row.name, "reason": row.reason})
        for row in (rows if most is None else rows[-most:])
        if row.status != "complete"
    )
    kept = rows if most is None else rows[-most:]
    notes = [] if rows else [phrase("runs.none")]
    if rest := len(rows) - len(kept):
        notes.append(phrase("runs.left_out", count=rest))
    shown = filled(columns, kept, warnings=warnings, notes=tuple(notes))
    return Document(view_of(COLUMNS, rows), (shown,))


def _status(row: RunRow) -> str:
    return f"{row.status}, replay" if row.replayed_from else row.status


def _when(row: RunRow) -> str | None:
    """The start to the minute, in its own time zone."""
    return row.started and row.started[:16].replace("T", " ")


def _what(row: RunRow) -> str:
    """The workloads, each with its number of cases where it has several."""
    counts = Counter(case.partition("[")[0] for case in row.cases)
    words = [f"{count} × {name}" if count > 1 else name for name, count in counts.items()]
    more = [f"{len(words) - MOST_WORKLOADS} more"] if len(words) > MOST_WORKLOADS + 1 else []
    return ", ".join(words[:MOST_WORKLOADS] + (more or words[MOST_WORKLOADS:]))


def _row(path: Path, manifest: Manifest | str) -> RunRow:
    if isinstance(manifest, str):
        return RunRow(path.name, "damaged", str(path), manifest)
    labels = Labels(manifest.cases)
    return RunRow(
        name=path.name,
        status=manifest.status,
        path=str(path),
        reason="" if manifest.status == "complete" else manifest.reason or "it does not say why",
        started=manifest.started,
        duration_s=manifest.duration_s,
        cases=tuple(case.id for case in manifest.cases),
        case_labels=tuple(labels(case.id) for case in manifest.cases),
        gpu=_gpu(manifest),
        tools=tuple(manifest.settings.get("tools", dict.fromkeys(file.tool_name for file in manifest.imported))),
        fiprof=manifest.fiprof or None,
        replayed_from=manifest.replayed_from,
    )


def _gpu(manifest: Manifest) -> str | None:
    """The GPU's name, from the workload's process or from the driver."""
    state = manifest.environment.get("gpu_state") or {}
    for facts in (manifest.environment.get("gpu"), state.get("before")):
        if isinstance(facts, dict) and facts.get("name"):
            return str(facts["name"])
    return None
