"""The command that tells noise from change where one process a side cannot."""

from __future__ import annotations

import shlex

from fiprof.analysis.comparison.pairing import CasePair, written
from fiprof.analysis.comparison.runs import RunComparison
from fiprof.model.run import Run
from fiprof.text import escape_control

UNKNOWN = ("A", "B")
"""Sides in place of those that the runs do not tell."""


def measure_command(found: RunComparison) -> str:
    """``fiprof compare --measure …`` of the case that changed most, or of the program."""
    runs = found.a.run, found.b.run
    if found.cases:
        pair = found.cases[0].pair
        sides = _sides(runs, pair)
        # Of an import the cases are ranges that nobody can measure by their names.
        rest = [] if any(run.imported for run in runs) else _options(pair)
    else:
        commands = [run.environment("program", "command") for run in runs]
        sides = [f"program:{shlex.join(map(escape_control, command))}" for command in commands if command]
        rest = []
    known = len(sides) == len(UNKNOWN) and len({*sides}) > 1
    return shlex.join(["fiprof", "compare", "--measure", *(sides if known else UNKNOWN), *rest])


def _sides(runs: tuple[Run, Run], pair: CasePair) -> list[str]:
    """What differs between the sides, as ``--measure`` takes it; nothing where the runs do not tell."""
    items: list[list[str]] = [[], []]
    commits, pythons = ([run.environment("git") for run in runs], [run.manifest.settings.get("python") for run in runs])
    for kind, values in (("git", commits), ("python", pythons)):
        if values[0] != values[1] and all(isinstance(each, str) and not each.endswith("-dirty") for each in values):
            for side, value in zip(items, values, strict=True):
                side.append(f"{kind}:{escape_control(value)}")
    given = written(pair.a), written(pair.b)
    if pair.different:
        for side, params in zip(items, given, strict=True):
            side.append("params:" + ",".join(f"{each.name}={params[each.name]}" for each in pair.different))
    return [",".join(side) for side in items]


def _options(pair: CasePair) -> list[str]:
    """The workload, and the parameters that both sides have."""
    name = pair.b.workload
    words = ["--workload" if ".py:" in name else "--kernel", escape_control(name)]
    different = {each.name for each in pair.different}
    for key, value in written(pair.b).items():
        if key not in different:
            words += [f"--{key.replace('_', '-')}", escape_control(value)]
    return words
