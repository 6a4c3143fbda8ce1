"""What a run lacks: why, and how to come by it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from fiprof.model.finding import Finding

if TYPE_CHECKING:
    from fiprof.model.run import Run


class Missing(StrEnum):
    """Why a run has nothing of a tool."""

    NOT_ASKED = "not_asked"
    NOT_IMPORTED = "not_imported"
    STEP_ENDED = "step_ended"
    STEP_SAID = "step_said"
    NOT_ENDED = "not_ended"
    NOT_STARTED = "not_started"
    NOT_STARTED_BECAUSE = "not_started_because"
    NO_TABLES = "no_tables"
    NO_KERNELS = "no_kernels"
    NO_CASES = "no_cases"
    """There are kernels, and nobody said which belong to which case."""


class RunWarning(StrEnum):
    """What makes a whole run doubtful; with run, the run's name, and reason, the manifest's."""

    FAILED = "failed"
    INTERRUPTED = "interrupted"
    DAMAGED = "damaged"


EXPORTS = {"nsys": "nsys-export", "ncu": "ncu-raw"}
"""Tool -> the step that tables need."""

FIRST_TABLES = {"nsys": "kernels", "ncu": "launches"}
"""Tool -> its table that is empty where it saw no kernel."""


def remedy(run: Run, options: str) -> str:
    """How to come by what the run lacks, and what it has. options: by which fiprof measures that."""
    if run.imported:
        again = "import a report of ncu of the same program beside this file: ncu --set full -o REPORT COMMAND"
        if not run.has("kernels"):
            again = "import a report of nsys of the same program beside this file: nsys profile -o REPORT COMMAND"
    else:
        command = "fiprof profile {} -- COMMAND" if run.of_program else "fiprof collect {}"
        again = f"{command.format(options)} collects that"
    traced = run.has("kernels") and not run.launches
    return f"{again}; fiprof {'top' if traced else 'show'} shows what this run has"


def missing(run: Run, tool: str) -> Finding:
    """Why the run has nothing of nsys or ncu."""
    manifest = run.manifest
    if run.imported and tool not in {file.tool_name for file in manifest.imported}:
        return Finding(Missing.NOT_IMPORTED, {"tool": tool})
    if tool not in manifest.settings.get("tools", (tool,)):
        return Finding(Missing.NOT_ASKED, {"tool": tool})
    for action in manifest.actions:
        if action.step.startswith(tool) and action.outcome != "ok":
            ended = {"step": action.step, "outcome": action.outcome, "message": action.message}
            return Finding(Missing.STEP_SAID if action.message else Missing.STEP_ENDED, ended)
    if manifest.status == "interrupted" and not any(action.step == EXPORTS.get(tool) for action in manifest.actions):
        return Finding(Missing.NOT_ENDED, {"tool": tool, "reason": manifest.reason})
    if not run.imported and not any(action.step.startswith(tool) for action in manifest.actions):
        kind = Missing.NOT_STARTED_BECAUSE if manifest.reason else Missing.NOT_STARTED
        return Finding(kind, {"tool": tool, "reason": manifest.reason})
    if run.has(FIRST_TABLES.get(tool, "")):
        there = run.imported and run.table(FIRST_TABLES[tool], ["device"]).num_rows
        return Finding(Missing.NO_CASES if there else Missing.NO_KERNELS, {"tool": tool})
    return Finding(Missing.NO_TABLES, {"tool": tool, "run": str(run.path)})
