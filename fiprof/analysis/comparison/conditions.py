"""What the two sides of a comparison were measured under, where that differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fiprof.model.finding import Finding, finding
from fiprof.model.run import Run
from fiprof.model.settings import CollectSettings, ProfileSettings, settings_of
from fiprof.model.wording import Worded


class Weight(Worded):
    """What a difference does to a comparison, the gravest first; it is the id of the finding, and words it."""

    REFUSED = "refused", "{what} differs ({a} · {b}): the numbers say nothing about each other"
    COUNTERS = "counters", "{what} differs ({a} · {b}): what ncu measured is not compared; --anyway compares it"
    DOUBTFUL = "doubtful", "{what} differs: {a} · {b}"
    """Some of the difference in time may come from it."""
    CHANGED = "changed", "changed: {what} {a} → {b}"
    """It may be what is compared."""


class Absent(Worded):
    """In place of a version of a package."""

    NOT_INSTALLED = "not_installed", "not installed"


BOARD = "board"
COUNTERS = ("clock_control", "cache_control", "replay_mode")
"""Settings without which ncu measures another thing."""
PACKAGES = ("torch", "flashinfer-python", "triton")
"""Packages whose versions are said."""

_ENVIRONMENT: tuple[tuple[str, str, tuple[str, ...], Weight], ...] = (
    ("gpu", "GPU", ("gpu", "name"), Weight.REFUSED),
    (BOARD, "board", ("gpu", "uuid"), Weight.DOUBTFUL),
    ("driver", "driver", ("driver",), Weight.DOUBTFUL),
    ("clock", "highest SM clock in MHz", ("gpu_state", "before", "max_sm_clock_mhz"), Weight.DOUBTFUL),
    ("nsys", "nsys", ("tools", "nsys"), Weight.DOUBTFUL),
    ("ncu", "ncu", ("tools", "ncu"), Weight.DOUBTFUL),
    ("command", "command", ("program", "command"), Weight.CHANGED),
    ("files", "files of the command", ("program", "files"), Weight.CHANGED),
    ("git", "git commit", ("git",), Weight.CHANGED),
)
"""Id, words, where a run has it, and what a difference does."""


def conditions(a: Run, b: Run) -> tuple[Finding, ...]:
    """What differs between two runs, the gravest first. What one of them does not tell is no difference."""
    return tuple(sorted(_conditions(a, b), key=lambda each: list(Weight).index(Weight(each.kind))))


def _conditions(a: Run, b: Run) -> Iterator[Finding]:
    for of, words, path, weight in _ENVIRONMENT:
        x, y = (run.environment(*path) for run in (a, b))
        if x != y and None not in (x, y):
            yield _condition(weight, of, x, y, words=words)
    packages = [run.environment("packages") for run in (a, b)]
    for name in PACKAGES if all(packages) else ():
        x, y = (each.get(name) for each in packages)
        if x != y:
            yield _condition(Weight.CHANGED, name, x, y)
    both_ncu = bool(a.launches and b.launches)
    declared = {each.name: each for kind in (CollectSettings, ProfileSettings) for each in settings_of(kind)}
    for name, about in declared.items():
        x, y = (run.manifest.settings.get(name) for run in (a, b))
        if x != y and None not in (x, y) and about.measuring and (both_ncu or about.tool != "ncu"):
            yield _condition(Weight.COUNTERS if name in COUNTERS else Weight.DOUBTFUL, name, x, y, about.title)


def _condition(weight: Weight, of: str, a: Any, b: Any, title: str = "", words: str = "") -> Finding:
    """of: an id of _ENVIRONMENT, or the name of a setting, with its title, or of a package."""
    template = weight.words.replace("{what}", words or "{what}")
    return finding(weight, template, of=of, what=title or of, a=_value(a), b=_value(b))


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {str(each)[:12]}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return Absent.NOT_INSTALLED if value is None else str(value)
