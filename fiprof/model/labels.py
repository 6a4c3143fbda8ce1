"""How reports call things: short names of cases, headings of launches; and how a user's words pick some of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from fiprof.model.manifest import CaseEntry
from fiprof.reports.view import shorten, visible
from fiprof.reports.words import listed

NO_CASE = "–"
"""A launch outside the cases' ranges."""

WIDEST_LABEL = 32
"""Cells of a case in a table before its middle is left out."""

MOST_NUMBERS = 8
"""Launches that a sentence names before it counts the rest."""

LONGEST_KERNEL = 60
"""Cells of a kernel's name in running text."""


class Labels:
    """The labels of a run's cases; a case that the manifest does not know keeps its id."""

    def __init__(self, cases: Sequence[CaseEntry]) -> None:
        workloads: dict[str, list[CaseEntry]] = defaultdict(list)
        for case in cases:
            workloads[_name(case)].append(case)
        self._labels = {
            case.id: " ".join([name, *filter(None, (_word(key, _value(case.id, key)) for key in _differing(group)))])
            for name, group in workloads.items()
            for case in group
        }

    def __call__(self, case_id: str | None) -> str:
        """E.g. ``decode batch=32 tensor_cores``, or ``rmsnorm`` where there is only one."""
        return NO_CASE if case_id is None else self._labels.get(case_id, case_id)


class Launch(Protocol):
    """What a heading says of a launch."""

    @property
    def launch(self) -> int: ...
    @property
    def label(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def iteration(self) -> int | None: ...
    @property
    def repeated(self) -> bool:
        """Whether its case launched this kernel in several iterations."""

    @property
    def duration_us(self) -> float | None: ...


def heading(item: Launch) -> str:
    """``launch 3 · prefill · PrefillWithKVCacheKernel · 307.87 µs``."""
    parts = [f"launch {item.launch}", item.label, short_kernel(item.kernel)]
    if item.repeated and item.iteration is not None:
        parts.append(f"iteration {item.iteration}")
    if item.duration_us is not None:
        parts.append(f"{item.duration_us:.2f} µs")
    return " · ".join(parts)


def short_kernel(name: str) -> str:
    """A kernel's name as text, short enough for a sentence."""
    return shorten(visible(name), LONGEST_KERNEL)


def label_cells(labels: Iterable[str]) -> int:
    """Cells that a table keeps for the cases' labels, so that kernels' names are shortened before them."""
    return min(max(map(len, labels), default=0), WIDEST_LABEL)


def numbered(numbers: Sequence[int]) -> str:
    """``launch 3``, ``launches 0, 4 and 8``; of many the first, and how many more there are."""
    if len(numbers) == 1:
        return f"launch {numbers[0]}"
    if len(numbers) > MOST_NUMBERS:
        return f"launches {first_numbers(numbers)}"
    return f"launches {listed([str(number) for number in numbers])}"


def first_numbers(numbers: Sequence[int]) -> str:
    """``0, 4, 8``; of many the first, and how many more there are."""
    shown = ", ".join(map(str, numbers[:MOST_NUMBERS]))
    return f"{shown} and {len(numbers) - MOST_NUMBERS} more" if len(numbers) > MOST_NUMBERS else shown


def names_kernel_or_case(row: Mapping[str, Any], label: str, words: str) -> bool:
    """Whether a launch's kernel or case has the words in its name, in any case of letters.

    row: with kernel, kernel_full and case; label: the case's.
    """
    return words.lower() in f"{row['kernel']}\n{row['kernel_full']}\n{row['case'] or ''}\n{label}".lower()


def names_case(row: Mapping[str, Any], label: str, words: str) -> bool:
    """The same for its case alone."""
    return words.lower() in f"{row['case'] or ''}\n{label}".lower()


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
    items = case_id.partition("[")[2].removesuffix("]").split(",")
    return next((value for name, _, value in (item.partition("=") for item in items) if name == key), "")
