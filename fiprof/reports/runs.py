"""The runs of an archive."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fiprof.model.labels import Labels
from fiprof.model.manifest import Manifest
from fiprof.reports.view import Column, View, view_of


@dataclass(frozen=True)
class RunRow:
    """A run, or what is wrong with it."""

    name: str
    status: str
    """complete, failed, interrupted, or damaged where its manifest cannot be read."""
    started: str | None
    """ISO 8601 with offset."""
    duration_s: float | None
    cases: tuple[str, ...]
    """Case ids."""
    case_labels: tuple[str, ...]
    """The same in short."""
    gpu: str | None
    tools: tuple[str, ...]
    """The profilers that were asked for."""
    fiprof: str | None
    """The version that wrote it."""
    replayed_from: str | None
    """The run whose raw files it reads."""
    reason: str
    """Why it is not complete; empty otherwise."""
    path: str

    @property
    def when(self) -> str | None:
        """The start to the minute, in its own time zone."""
        return self.started and self.started[:16].replace("T", " ")

    @property
    def what(self) -> str:
        """The workloads, each with its number of cases where it has several."""
        counts = Counter(case.partition("[")[0] for case in self.cases)
        return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items())


LONGEST_NAME = 48
"""Cells that a run's name has before it is shortened: it is there to be copied."""

_SHOWN = (
    Column("name", "run"),
    Column("status", "status", least=len("complete")),
    Column("when", "started", least=len("2026-11-21 10:15")),
    Column("duration_s", "took", "s", ".1f"),
    Column("what", "cases"),
    Column("gpu", "GPU"),
    Column("fiprof", "fiprof"),
)
_DATA = ("started", "cases", "case_labels", "tools", "replayed_from", "reason", "path")

COLUMNS = (*_SHOWN, *map(Column, _DATA))


def runs(found: Sequence[tuple[Path, Manifest | str]]) -> View:
    """The runs as a table, in the order given.

    found: each run's folder with its manifest, or with what is wrong with that.
    """
    rows = [_row(path, manifest) for path, manifest in found]
    longest = min(max((len(row.name) for row in rows), default=0), LONGEST_NAME)
    columns = (dataclasses.replace(COLUMNS[0], least=longest), *COLUMNS[1:])
    return view_of(
        columns,
        rows,
        notes=() if rows else ("no runs yet: fiprof collect makes one",),
        warnings=tuple(f"{row.name}: {row.reason}" for row in rows if row.reason),
    )


def _row(path: Path, manifest: Manifest | str) -> RunRow:
    if isinstance(manifest, str):
        return RunRow(path.name, "damaged", None, None, (), (), None, (), None, None, manifest, str(path))
    labels = Labels(manifest.cases)
    return RunRow(
        name=path.name,
        status=f"{manifest.status}, replay" if manifest.replayed_from else manifest.status,
        started=manifest.started,
        duration_s=manifest.duration_s,
        cases=tuple(case.id for case in manifest.cases),
        case_labels=tuple(labels(case.id) for case in manifest.cases),
        gpu=_gpu(manifest.environment),
        tools=tuple(manifest.settings.get("tools", ())),
        fiprof=manifest.fiprof or None,
        replayed_from=manifest.replayed_from,
        reason="" if manifest.status == "complete" else manifest.reason or "it does not say why",
        path=str(path),
    )


def _gpu(environment: dict[str, Any]) -> str | None:
    """The GPU's name, from the workload's process or from the driver."""
    state = environment.get("gpu_state") or {}
    for facts in (environment.get("gpu"), state.get("before")):
        if isinstance(facts, dict) and facts.get("name"):
            return str(facts["name"])
    return None
