"""What the two sides of a comparison were measured under, where that differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fiprof.model.finding import Finding
from fiprof.model.run import Run
from fiprof.model.settings import CollectSettings, ProfileSettings, settings_of


class Weight(StrEnum):
    """What a difference does to a comparison."""

    REFUSED = "refused"
    """The numbers say nothing about each other."""
    COUNTERS = "counters"
    """ncu's say nothing about each other, and are not compared."""
    DOUBTFUL = "doubtful"
    """Some of the difference in time may come from it."""
    CHANGED = "changed"
    """It may be what is compared: said."""


class Of(StrEnum):
    """What a condition is of, where it is no setting and no package."""

    GPU = "gpu"
    BOARD = "board"
    """The GPU's UUID."""
    DRIVER = "driver"
    CLOCK = "clock"
    """The highest of the multiprocessors, MHz."""
    NSYS = "nsys"
    NCU = "ncu"
    COMMAND = "command"
    """Of a program."""
    FILES = "files"
    """Of the command, with their checksums."""
    GIT = "git"
    """Commit."""


class Absent(StrEnum):
    """In place of a version."""

    NOT_INSTALLED = "not_installed"


@dataclass(frozen=True)
class Condition:
    """Something that differs between the sides."""

    of: Of | str
    """Or a setting's name, or a package's."""
    a: Any
    b: Any
    """None where a package is not installed."""
    weight: Weight
    title: str = ""
    """Of a setting."""

    @property
    def finding(self) -> Finding:
        """For sentences and JSON."""
        a, b = map(_told, (self.a, self.b))
        return Finding(self.weight, {"of": self.of, "what": self.title or self.of, "a": a, "b": b})


def _told(value: Any) -> str | StrEnum:
    if isinstance(value, dict):
        return ", ".join(f"{name} {str(each)[:12]}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return Absent.NOT_INSTALLED if value is None else str(value)


COUNTERS = ("clock_control", "cache_control", "replay_mode")
"""Settings without which ncu measures another thing."""
PACKAGES = ("torch", "flashinfer-python", "triton")
"""Whose versions are said."""

_ENVIRONMENT: tuple[tuple[Of, tuple[str, ...], Weight], ...] = (
    (Of.GPU, ("gpu", "name"), Weight.REFUSED),
    (Of.BOARD, ("gpu", "uuid"), Weight.DOUBTFUL),
    (Of.DRIVER, ("driver",), Weight.DOUBTFUL),
    (Of.CLOCK, ("gpu_state", "before", "max_sm_clock_mhz"), Weight.DOUBTFUL),
    (Of.NSYS, ("tools", "nsys"), Weight.DOUBTFUL),
    (Of.NCU, ("tools", "ncu"), Weight.DOUBTFUL),
    (Of.COMMAND, ("program", "command"), Weight.CHANGED),
    (Of.FILES, ("program", "files"), Weight.CHANGED),
    (Of.GIT, ("git",), Weight.CHANGED),
)


def conditions(a: Run, b: Run) -> tuple[Condition, ...]:
    """What differs between two runs, the gravest first. What one of them does not tell is no difference."""
    order = list(Weight)
    found = (*_environment(a, b), *_packages(a, b), *_settings(a, b))
    return tuple(sorted(found, key=lambda each: order.index(each.weight)))


def _environment(a: Run, b: Run) -> Iterator[Condition]:
    for of, path, weight in _ENVIRONMENT:
        x, y = (run.environment(*path) for run in (a, b))
        if x != y and None not in (x, y):
            yield Condition(of, x, y, weight)


def _packages(a: Run, b: Run) -> Iterator[Condition]:
    known = [run.environment("packages") for run in (a, b)]
    for name in PACKAGES if all(known) else ():
        x, y = (packages.get(name) for packages in known)
        if x != y:
            yield Condition(name, x, y, Weight.CHANGED)


def _settings(a: Run, b: Run) -> Iterator[Condition]:
    both_ncu = bool(a.launches and b.launches)
    declared = {each.name: each for kind in (CollectSettings, ProfileSettings) for each in settings_of(kind)}
    for name, about in declared.items():
        x, y = (run.manifest.settings.get(name) for run in (a, b))
        if x != y and None not in (x, y) and about.measuring and (both_ncu or about.tool != "ncu"):
            weight = Weight.COUNTERS if name in COUNTERS else Weight.DOUBTFUL
            yield Condition(name, x, y, weight, about.title)
