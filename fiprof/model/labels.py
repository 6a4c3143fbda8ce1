"""The short names of a run's cases."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence

from fiprof.model.manifest import CaseEntry
from fiprof.text import short_kernel

MOST_CASES = 1024
"""Whose ids are kept in parts."""
NO_CASE = "–"
"""A launch outside the cases' ranges."""


def title(label: str, kernel: str) -> str:
    """A launch in short: its case, or where it has none its kernel."""
    return short_kernel(kernel) if label == NO_CASE else label


class Labels:
    """The labels of a run's cases; a case that the manifest does not know keeps its id."""

    def __init__(self, cases: Sequence[CaseEntry]) -> None:
        workloads: dict[str, list[CaseEntry]] = defaultdict(list)
        for case in cases:
            workloads[_name(case)].append(case)
        self._labels = {}
        for name, group in workloads.items():
            keys = _differing(group)
            for case in group:
                words = (_word(key, _value(case.id, key)) for key in keys)
                self._labels[case.id] = " ".join([name, *filter(None, words)])

    def __call__(self, case_id: str | None) -> str:
        """E.g. ``decode batch=32 tensor_cores``, or ``rmsnorm`` where there is only one."""
        return NO_CASE if case_id is None else self._labels.get(case_id, case_id)


def _name(case: CaseEntry) -> str:
    return case.id.partition("[")[0]


def _differing(cases: Sequence[CaseEntry]) -> list[str]:
    """The parameters that tell the cases apart, in the workload's order."""
    keys = dict.fromkeys(key for case in cases for key in case.params)
    return [key for key in keys if len({_value(case.id, key) for case in cases}) > 1]


def _word(key: str, value: str) -> str:
    """``batch=32``; a switch says its name when it is on and nothing when it is off."""
    return {"true": key, "false": ""}.get(value, f"{key}={value}")


def _value(case_id: str, key: str) -> str:
    """A parameter's value as the id writes it."""
    return _values(case_id).get(key, "")


@functools.lru_cache(MOST_CASES)
def _values(case_id: str) -> dict[str, str]:
    items = (item.partition("=") for item in case_id.partition("[")[2].removesuffix("]").split(","))
    # Of a name that stands twice the first.
    return {name: value for name, _, value in reversed(list(items))}
