"""The launches that a user selects, groups of like launches, and the short names of a run's cases."""

from __future__ import annotations

import contextlib
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from fiprof.errors import FiprofError
from fiprof.text import join_words, short_kernel

MOST_CASES = 1024  # whose ids are kept in parts
NO_CASE = "–"  # a launch outside the cases' ranges


def title(label: str, kernel: str) -> str:
    """A launch in short: its case, else its kernel."""
    return short_kernel(kernel) if label == NO_CASE else label


def by_key(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Key -> its values, in order."""
    groups: dict[K, list[T]] = defaultdict(list)
    for key, each in pairs:
        groups[key].append(each)
    return dict(groups)


def sums_by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, V]:
    """Key -> the sum of its values."""
    return {key: sum(each) for key, each in by_key(pairs).items()}


class Labels:
    """The labels of a run's cases; a case that the manifest does not know keeps its id."""

    def __init__(self, cases: Iterable[str]) -> None:
        self._labels = {}
        for name, group in by_key((case.partition("[")[0], case) for case in cases).items():
            names = dict.fromkeys(key for case in group for key in written(case))
            differing = [key for key in names if len({written(case).get(key, "") for case in group}) > 1]
            for case in group:
                values = ((key, written(case).get(key, "")) for key in differing)
                # A switch says its name when it is on and nothing when it is off.
                words = ({"true": key, "false": ""}.get(value, f"{key}={value}") for key, value in values)
                self._labels[case] = " ".join([name, *filter(None, words)])

    def __call__(self, case_id: str | None) -> str:
        """E.g. ``decode batch=32 tensor_cores``, or ``rmsnorm`` where there is only one."""
        return NO_CASE if case_id is None else self._labels.get(case_id, case_id)


@functools.lru_cache(MOST_CASES)
def written(case_id: str) -> dict[str, str]:
    """Parameter -> its value as the id writes it; the first one of a name that occurs twice."""
    words: dict[str, str] = {}
    for name, _, value in (item.partition("=") for item in case_id.partition("[")[2].removesuffix("]").split(",")):
        if name:
            words.setdefault(name, value)
    return words


WIDE = 1.25  # largest ratio of the durations of launches that are shown as one
MOST_NAMES = 8  # names of each kind that an error lists


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", int, float)
T = TypeVar("T")
N = TypeVar("N", bound=Any)  # has a launch's names, grid and block; a kernel under nsys has them too
Weights = Mapping[int, float]  # ncu's launch ID -> the time that it stands for, µs
Names = tuple[str, str, str, str]  # a launch's kernel, its full name, its case's id and label


# Alike


@dataclass(frozen=True)
class Alike(Generic[T]):
    """Launches of the same kernel in the same case with the same grid and block, of about the same duration."""

    items: tuple[T, ...]  # in the order of the run
    times_us: tuple[float, ...]  # duration of each; 0 where it was not collected
    weights_us: tuple[float, ...]
    """The time that each stands for: in a loop under nsys, in a program of all executions like it; or its own."""

    @cached_property
    def shown(self) -> T:
        """The representative: the one of median duration (of two the shorter)."""
        order = sorted(range(len(self.items)), key=self.times_us.__getitem__)
        return self.items[order[(len(order) - 1) // 2]]

    @property
    def count(self) -> int:
        return len(self.items)

    @property
    def total_us(self) -> float:
        """The time that all stand for together."""
        return sum(self.weights_us)

    @property
    def range_us(self) -> tuple[float, float] | None:
        """The shortest and the longest duration; None for a single launch."""
        return (min(self.times_us), max(self.times_us)) if self.count > 1 else None


def alike(
    items: Iterable[N],
    time: Callable[[N], float | None] = lambda item: item.duration_us,
    also: Callable[[N], Hashable] = lambda _: None,
    weights: Weights | None = None,
    wide: float = WIDE,
) -> list[Alike[N]]:
    """Groups of like launches, in the order of each one's first; their durations differ by a factor of ``wide`` at
    most.

    time: gives an item's duration, µs. also: gives what has to be the same too. weights: without, each is its own.
    """
    groups: dict[Hashable, list[tuple[N, float, float]]] = defaultdict(list)
    for item in items:
        key = item.case, item.kernel, item.kernel_full, item.grid, item.block, also(item)
        us = time(item) or 0.0
        groups[key].append((item, us, weights.get(item.launch, 0.0) if weights and item.launch is not None else us))
    parts: list[Alike[N]] = []
    for group in groups.values():
        part, low = 0, 0.0
        part_of: dict[float, int] = {}
        for us in sorted({us for _, us, _ in group}):
            if us > low * wide:
                part, low = part + 1, us
            part_of[us] = part
        split = by_key((part_of[each[1]], each) for each in group)
        parts += (Alike(*zip(*each, strict=True)) for each in split.values())
    return parts


def longest_first(groups: Iterable[Alike[T]]) -> list[Alike[T]]:
    """The groups by their total time, the longest first."""
    return sorted(groups, key=lambda each: -each.total_us)


# Selected

_PATTERN = re.compile(r"[\^$.*+?|()\\]")  # a character that makes a text a regular expression


@dataclass(frozen=True)
class Selection:
    """A selection of launches: by number, by kernel or case, and by time."""

    kernel: str = ""
    """A part of a kernel's or case's name, in any case of letters; a case's label or parameters (``decode[batch=1]``,
    ``batch=1``), which match as a whole; or else a regular expression."""
    launches: tuple[int, ...] = ()  # ncu's IDs; empty for all
    top: int | None = None  # only so many groups of like launches, those with most time

    def __bool__(self) -> bool:
        return bool(self.kernel or self.launches or self.top)

    def of(
        self,
        items: Sequence[N],
        run: str,
        time: Callable[[N], float | None] = lambda item: item.duration_us,
        weights: Weights | None = None,
    ) -> list[N]:
        """The selected items, in their order. run: the run's name, for errors.

        Raises FiprofError where there is none, with what could be selected.
        """
        named = [(item.kernel, item.kernel_full or "", item.case or "", item.label) for item in items]
        wanted = matching(self.kernel, named)
        chosen = [item for item, names in zip(items, named, strict=True) if names in wanted]
        if self.launches:
            chosen = [item for item in chosen if item.launch in self.launches]
        if not chosen and (items or self):
            words = [f"with number {', '.join(map(str, self.launches))}"] if self.launches else []
            words += [f"with kernel {self.kernel!r}"] if self.kernel else []
            wanted_words = " and ".join(words) or "with what this shows"
            numbers = [item.launch for item in items if item.launch is not None]
            available = [f"launches {min(numbers)} to {max(numbers)}"] if numbers else []
            kernels, cases = {short_kernel(item.kernel) for item in items}, {item.label for item in items if item.case}
            for kind, names in (("kernels", sorted(kernels)), ("cases", sorted(cases))):
                rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
                available += [f"the {kind} {', '.join(names[:MOST_NAMES])}{rest}"] if names else []
            remedy = f"it has {join_words(available) or 'none at all'}"
            raise FiprofError(f"{run} has no launch {wanted_words}", remedy, exit_code=2)
        if self.top is not None:
            most = longest_first(alike(chosen, time, weights=weights))[: self.top]
            chosen_ids = {id(item) for group in most for item in group.items}
            chosen = [item for item in chosen if id(item) in chosen_ids]
        return chosen


EVERYTHING = Selection()


def matching(words: str, available: Iterable[Names]) -> set[Names]:
    """The names that match words, by the first reading of ``Selection.kernel`` by which any do."""
    available, tokens = set(available), _tokens(words)
    if not words:
        return available
    # ``batch=1`` does not match ``batch=128``.
    whole = re.compile(rf"(?<![\w.]){re.escape(words)}(?![\w.])", re.IGNORECASE)
    readings: list[Callable[[Names], object]] = [lambda names: words.lower() in "\n".join(names).lower()]
    if "=" in words:
        readings = [
            lambda names: tokens in (_tokens(names[2]), _tokens(names[3])),
            lambda names: tokens <= {*_tokens(names[2]), *(each.removesuffix("=true") for each in _tokens(names[2]))},
            lambda names: whole.search("\n".join(names)),
        ]
    with contextlib.suppress(re.error):
        if _PATTERN.search(words):
            pattern = re.compile(words, re.IGNORECASE)
            readings.append(lambda names: any(map(pattern.search, names)))
    return next((matched for reading in readings if (matched := set(filter(reading, available)))), set())


def _tokens(text: str) -> set[str]:
    """``decode[batch=1,page_size=16]`` or ``decode batch=1`` as a name and parameters."""
    return set(filter(None, re.split(r"[\[\],\s]+", text.lower())))
