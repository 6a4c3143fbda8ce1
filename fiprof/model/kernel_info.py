"""What packs know of workloads, their kernels and their parameters without measuring; looked up by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from fiprof.model import packs

Value = bool | int | float | str
"""Value of a parameter."""


@dataclass(frozen=True)
class KernelInfo:
    """What is known of a workload's kernels."""

    title: str
    """E.g. ``RMS normalization``."""
    algorithm: tuple[str, ...] = ()
    """How it works: a sentence or two each, in the order in which it happens."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameter -> what it decides in the kernel."""
    options: Mapping[str, tuple[bool | int | float | str, ...]] = field(default_factory=dict)
    """Parameter that is a way to solve the problem and no part of it -> the values to choose among; empty for any."""
    problem: str = ""
    """The workload that solves the same problem, with parameters of the same names; empty for itself."""
    variant: tuple[str, ...] = ()
    """How to add one: steps."""
    growth: Mapping[str, int] = field(default_factory=dict)
    """Parameter -> the power of it that the least work grows with, where that is not 1."""
    before_profiling: tuple[str, ...] = ()
    """Lines of a shell that make a profile tell more."""
    family: str = ""
    """What a title calls it together with its like, e.g. ``norms``."""
    traffic: str = ""
    """The formula of the bytes that it moves beside those of the workloads that solve the same problem."""


@dataclass(frozen=True)
class ParameterName:
    """How a parameter and its values are called."""

    axis: str = ""
    """The parameter as the axis of a chart, e.g. ``KV length``."""
    unit: str = ""
    """What its values count, e.g. ``tokens``."""
    value: str = ""
    """A value in words, e.g. ``batch {}``; ``{}`` where the value says all."""
    on: str = ""
    """A switch that is on, e.g. ``tensor cores``; ``short_on`` for narrow columns."""
    off: str = ""
    """The same where it is off; empty to say nothing."""
    short_on: str = ""
    short_off: str = ""
    of: str = ""
    """Another parameter: a value is named by its ratio to that one's."""
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


_merged = functools.cache(packs.merged)


def of_workload(workload: str) -> KernelInfo | None:
    """None for a workload that no pack knows, e.g. one of the user's own."""
    return _merged("kernels").get(workload)


def title(workload: str) -> str:
    """A workload's name in words."""
    known = of_workload(workload)
    return known.title if known else f"Workload {workload}"


def of_parameter(name: str) -> ParameterName:
    """An empty one for a parameter that no pack knows."""
    found: ParameterName = _merged("parameters").get(name, ParameterName())
    return found
