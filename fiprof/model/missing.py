"""What a run lacks: why, and how to come by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fiprof.model.finding import Finding, finding

if TYPE_CHECKING:
    from fiprof.model.run import Run

RUN_WARNINGS = {
    "failed": "the run {run} failed: {reason}",
    "interrupted": "the run {run} was interrupted: {reason}",
    "damaged": "the run {run} cannot be read: {reason}",
}
"""Status -> what makes a whole run doubtful."""
EXPORTS = {"nsys": "nsys-export", "ncu": "ncu-raw"}
"""Tool -> the step that tables need."""
FIRST_TABLES = {"nsys": "kernels", "ncu": "launches"}
"""Tool -> its table that is empty where it saw no kernel."""


def run_warning(status: str, run: str, reason: str) -> Finding:
    """That a run is not complete. run: its name. reason: the manifest's."""
    return finding(status, RUN_WARNINGS[status], run=run, reason=reason)


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
        return finding("not_imported", "no file of {tool} was imported", tool=tool)
    if tool not in manifest.settings.get("tools", (tool,)):
        return finding("not_asked", "{tool} was not asked for", tool=tool)
    steps = [action for action in manifest.actions if action.step.startswith(tool)]
    for action in steps:
        if action.outcome != "ok":
            kind, words = "step_ended", "{step} {outcome}"
            if action.message:
                kind, words = "step_said", "{step} {outcome}: {message}"
            return finding(kind, words, step=action.step, outcome=action.outcome, message=action.message)
    if manifest.status == "interrupted" and not any(action.step == EXPORTS.get(tool) for action in manifest.actions):
        return finding("not_ended", "{tool} did not come to its end: {reason}", tool=tool, reason=manifest.reason)
    if not run.imported and not steps:
        kind, words = "not_started", "{tool} was not started"
        if manifest.reason:
            kind, words = "not_started_because", "{tool} was not started: {reason}"
        return finding(kind, words, tool=tool, reason=manifest.reason)
    if run.has(FIRST_TABLES.get(tool, "")):
        if run.imported and run.table(FIRST_TABLES[tool], ["device"]).num_rows:
            words = "{tool}'s kernels belong to no case; fiprof import --range NAME makes cases of NVTX ranges"
            return finding("no_cases", words, tool=tool)
        return finding("no_kernels", "{tool} saw no kernel", tool=tool)
    words = "{tool} ran, but its tables are not there; fiprof parse {run} makes them, or says why it cannot"
    return finding("no_tables", words, tool=tool, run=str(run.path))
