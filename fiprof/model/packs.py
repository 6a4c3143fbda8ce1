"""Packs: what somebody knows of a family of kernels, found by entry point and never imported by name.

A pack is a module, registered under the entry-point group ``fiprof.packs``::

    [project.entry-points."fiprof.packs"]
    mine = "my_package.fiprof_pack"

It has any of the functions that docs/packs.md lists, e.g. ``studies()``, ``kernels()`` or ``claims()``; each is called
when it is wanted and only then.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from fiprof.errors import FiprofError

GROUP = "fiprof.packs"


@functools.cache
def packs() -> dict[str, ModuleType]:
    """Name -> module of every pack that is installed, in the order of their names."""
    # Commands that need no pack do not pay for looking through what is installed.
    from importlib.metadata import entry_points

    by_name = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            by_name[point.name] = point.load()
        except Exception as error:
            what = f"the pack {point.name} ({point.value}) cannot be imported: {error}"
            raise FiprofError(what, "fix or uninstall the package that brings it") from error
    return by_name


def parts(kind: str, *arguments: Any) -> dict[str, Any]:
    """Pack -> what its function of this name returns, of the packs that have one."""
    return {name: getattr(pack, kind)(*arguments) for name, pack in packs().items() if hasattr(pack, kind)}


def merged(kind: str) -> dict[str, Any]:
    """The same as one mapping, of functions that return one each."""
    return {name: item for of_pack in parts(kind).values() for name, item in of_pack.items()}


def joined(kind: str, *arguments: Any) -> list[Any]:
    """The same as one list, of functions that return several of something."""
    return [item for of_pack in parts(kind, *arguments).values() for item in of_pack]


Value = bool | int | float | str  # value of a parameter


@dataclass(frozen=True)
class KernelInfo:
    """What is known of a workload's kernels."""

    title: str  # e.g. ``RMS normalization``
    algorithm: tuple[str, ...] = ()  # how it works: a sentence or two each, in the order in which it happens
    parameters: Mapping[str, str] = field(default_factory=dict)  # parameter -> what it decides in the kernel
    options: Mapping[str, tuple[bool | int | float | str, ...]] = field(default_factory=dict)
    """Parameter that is a way to solve the problem and no part of it -> the values to choose among; empty for any."""
    problem: str = ""  # the workload that solves the same problem, with parameters of the same names; empty for itself
    variant: tuple[str, ...] = ()  # how to add one: steps
    growth: Mapping[str, int] = field(default_factory=dict)
    """Parameter -> the power of it that the least work grows with, where that is not 1."""
    before_profiling: tuple[str, ...] = ()  # lines of a shell that make a profile tell more
    family: str = ""  # what a title calls it together with its like, e.g. ``norms``


@dataclass(frozen=True)
class ParameterName:
    """How a parameter and its values are called."""

    axis: str = ""  # the parameter as the axis of a chart, e.g. ``KV length``
    unit: str = ""  # what its values count, e.g. ``tokens``
    value: str = ""  # a value in words, e.g. ``batch {}``; ``{}`` where the value says all
    on: str = ""  # a switch that is on, e.g. ``tensor cores``; ``short_on`` for narrow columns
    off: str = ""  # the same where it is off; empty to say nothing
    short_on: str = ""
    short_off: str = ""
    of: str = ""  # another parameter: a value is named by its ratio to that one's
    ratios: tuple[str, str, str] = ("", "", "")
    """Names of a value that equals the other parameter's, of the value 1, and of those between."""

    def of_value(self, value: Value) -> str:
        """A value in words; empty where its name is not known."""
        if isinstance(value, bool):
            return self.on if value else self.off or (self.on and f"no {self.on}")
        return self.value.format(f"{value:,}" if isinstance(value, int) else value)

    def named(self, name: str, value: Value) -> str:
        """A value in words, with the parameter's own name where no pack names it."""
        return self.of_value(value) or f"{name} {str(value).lower() if isinstance(value, bool) else value}"

    def ratio(self, value: Value, everything: Mapping[str, Value]) -> str:
        """The name of a value's ratio to the other parameter's, of all parameters; empty where it has none."""
        whole = everything.get(self.of)
        if not self.of or not isinstance(whole, int | float) or isinstance(whole, bool):
            return ""
        return self.ratios[0 if whole == value else 1 if value == 1 else 2]


_merged = functools.cache(merged)


def of_workload(workload: str) -> KernelInfo | None:
    """None for a workload that no pack knows, e.g. one of the user's own."""
    return _merged("kernels").get(workload)


def title(workload: str) -> str:
    """A workload's name in words."""
    about = of_workload(workload)
    return about.title if about else f"Workload {workload}"


def of_parameter(name: str) -> ParameterName:
    """An empty one for a parameter that no pack knows."""
    about: ParameterName = _merged("parameters").get(name, ParameterName())
    return about
