"""The commands that make a run again."""

from __future__ import annotations

import shlex

from fiprof.model.run import Run
from fiprof.model.settings import ProfileSettings, option_words
from fiprof.text import escape_control

CAPTURED = "nsys-start"
"""The step of a run that ``fiprof capture`` made of a session."""


def reproduce(run: Run) -> list[str]:
    """The commands to type, in order: fiprof's own command line, as ``run.json`` has it.

    Runs of before it was recorded: of a program the command line that its settings make, of a collect the plain
    workload's; of an import the files; none where nothing was started. Control characters stand as their escapes.
    """
    manifest = run.manifest
    program = [str(word) for word in run.environment("program", "command") or ("COMMAND",)]
    if any(action.step == CAPTURED for action in manifest.actions):
        begin = ["fiprof", "profile", "--session", "NAME", "--", *program]
        return [_quoted(begin), f"fiprof capture NAME --duration {manifest.settings.get('duration_s')}"]
    if manifest.argv:
        return [_quoted(manifest.argv)]
    if manifest.imported:
        ranges = [word for name in manifest.ranges for word in ("--range", name)]
        return [_quoted(["fiprof", "import", *ranges, *(file.source for file in manifest.imported)])]
    if run.of_program:
        options = option_words(manifest.settings, ProfileSettings)
        return [_quoted(["fiprof", "profile", *options, "--", *program])]
    if program[:2] == ["fiprof", "collect"]:
        return [_quoted(program)]
    plain = next((action.argv for action in manifest.actions if action.step == "plain"), None)
    return [_quoted(plain)] if plain else []


def _quoted(words: list[str]) -> str:
    return shlex.join(map(escape_control, words))
