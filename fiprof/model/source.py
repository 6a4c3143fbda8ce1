"""What the reports read from a run: rows of its tables, and why some are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiprof.model.run import Run

Row = dict[str, Any]


def rows(run: Run, table: str, columns: Sequence[str]) -> list[Row]:
    """A table's rows, every column present; none where the run has no such table.

    None stands for a column that the table lacks, a null and a NaN.

    Raises FiprofError for a table that cannot be read.
    """
    if not run.has(table):
        return []
    arrow = run.table(table)
    there = [column for column in columns if column in arrow.column_names]
    absent = dict.fromkeys(column for column in columns if column not in there)
    return [
        {**absent, **{name: None if value != value else value for name, value in row.items()}}
        for row in arrow.select(there).to_pylist()
    ]


def status_warning(run: Run) -> tuple[str, ...]:
    """The sentence to put above everything when the run did not complete."""
    manifest = run.manifest
    if manifest.status == "complete":
        return ()
    ended = {"failed": "failed", "interrupted": "was interrupted"}[manifest.status]
    return (f"the run {manifest.name} {ended}: {manifest.reason or 'it does not say why'}",)


def why_missing(run: Run, tool: str) -> str:
    """Why a run has nothing of nsys or ncu, as the end of a sentence."""
    manifest = run.manifest
    if tool not in manifest.settings.get("tools", (tool,)):
        return f"{tool} was not asked for"
    for action in manifest.actions:
        if action.step.startswith(tool) and action.outcome != "ok":
            return f"{action.step} {action.outcome}" + (f": {action.message}" if action.message else "")
    if not any(action.step.startswith(tool) for action in manifest.actions):
        return f"{tool} was not started" + (f": {manifest.reason}" if manifest.reason else "")
    return f"{tool} ran, but its tables are not there; fiprof parse {run.path} makes them, or says why it cannot"
