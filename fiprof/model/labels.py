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
            workloads[case.id.partition("[")[0]].append(case)
        self._labels = {}
        for name, group in workloads.items():
            names = dict.fromkeys(key for case in group for key in case.params)
            differing = [key for key in names if len({_values(case.id).get(key, "") for case in group}) > 1]
            for case in group:
                values = ((key, _values(case.id).get(key, "")) for key in differing)
                # A switch says its name when it is on and nothing when it is off.
                words = ({"true": key, "false": ""}.get(value, f"{key}={value}") for key, value in values)
                self._labels[case.id] = " ".join([name, *filter(None, words)])

    def __call__(self, case_id: str | None) -> str:
        """E.g. ``decode batch=32 tensor_cores``, or ``rmsnorm`` where there is only one."""
        return NO_CASE if case_id is None else self._labels.get(case_id, case_id)


@functools.lru_cache(MOST_CASES)
def _values(case_id: str) -> dict[str, str]:
    """Parameter -> its value as the id writes it; of a name that stands twice the first."""
    items = (item.partition("=") for item in case_id.partition("[")[2].removesuffix("]").split(","))
    return {name: value for name, _, value in reversed(list(items))}
