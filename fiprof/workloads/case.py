"""A case: a workload with one set of parameters, written ``prefill[batch=4,seq_len=2048,…]``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fiprof.errors import FiprofError
from fiprof.workloads.base import Value, Workload, format_value, parameters
from fiprof.workloads.registry import canonical, find


@dataclass(frozen=True)
class Case:
    """One workload with one set of parameters."""

    workload: str  # registered name, or ``path/to/file.py:name``
    params: tuple[tuple[str, Value], ...]  # every parameter with its value, in the workload's order

    @property
    def id(self) -> str:
        """The name that the NVTX ranges, tables and manifests carry: every parameter, so that it stays
        unambiguous when a default changes."""
        values = ",".join(f"{name}={format_value(value)}" for name, value in self.params)
        return f"{short_name(self.workload)}[{values}]"

    @property
    def argument(self) -> str:
        """The case as the runner's ``--case`` takes it (a workload from a file keeps its path)."""
        return self.workload + self.id[self.id.index("[") :]

    def build(self, *, device: str = "cuda", seed: int = 0) -> Workload[Any]:
        workload = find(self.workload)
        return workload(workload.Params(**dict(self.params)), device=device, seed=seed)


def short_name(workload: str) -> str:
    """``rope`` of ``path/to/file.py:rope``."""
    return workload.rpartition(":")[2]


def parse_case(text: str) -> Case:
    """The case that ``name`` or ``name[key=value,…]`` means; what is not named keeps its default.

    Raises FiprofError (exit status 2) for an unknown workload, parameter or value.
    """
    name, bracket, rest = text.partition("[")
    if bracket and not rest.endswith("]"):
        raise FiprofError(f"case {text!r}: no closing ]", "write it as prefill[batch=4,seq_len=2048]", exit_code=2)
    values: dict[str, list[str]] = {}
    for item in filter(None, rest.removesuffix("]").split(",")):
        key, equals, value = item.partition("=")
        if not equals or key in values:
            what = f"case {text!r}: {item!r} is not one key=value"
            raise FiprofError(what, "write it as prefill[batch=4,seq_len=2048]", exit_code=2)
        values[key] = [value]
    return make_cases(canonical(name), values)[0]


def make_cases(workload: str, given: Mapping[str, Sequence[str]]) -> list[Case]:
    """Every combination of the words given for each parameter, in the workload's order of parameters.

    given: parameter name -> the words of its comma list; a parameter not named keeps its default.
    Raises FiprofError (exit status 2) for an unknown parameter, a bad value, or values that do not go together.
    """
    declared = parameters(find(workload))
    unknown = set(given) - {p.name for p in declared}
    if unknown:
        what = f"{workload} has no parameter {', '.join(sorted(unknown))}"
        raise FiprofError(what, f"it has {', '.join(p.name for p in declared)}; see fiprof kernels", exit_code=2)
    axes = [
        dict.fromkeys((p.name, p.parse(word)) for word in given[p.name]) if p.name in given else [(p.name, p.default)]
        for p in declared
    ]
    kind = find(workload)
    cases = [Case(workload, combination) for combination in itertools.product(*axes)]
    for case in cases:
        kind.check_params(kind.Params(**dict(case.params)))
    return cases
