"""NVTX ranges whose names count on (``step 0``, ``step 1``, …) as one row (``step *``), for people."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from fiprof.analysis.host import SEPARATOR
from fiprof.analysis.idle import Idle
from fiprof.analysis.top import RangeTime

T = TypeVar("T", Idle, RangeTime)
COUNTED = re.compile(r"(\D*[^\d=])(\d+)(\D*)")
"""A name with one number that is no parameter's: ``step 12``, ``layer.3``."""
FEWEST = 3
"""Names that differ in their number, from which on they are one row."""
MOST_SHARE = 0.5
"""Of the row's time: what has more stands by itself, as a first step often does."""
SUMMED = ("count", "total_ns", "share")


def folded(paths: Iterable[str | None]) -> dict[str | None, str | None]:
    """Paths of ranges -> as they are shown. Numbers that count are folded, sizes (128, 256, 512) are not."""
    names = {path: path.split(SEPARATOR) for path in paths if path is not None}
    heads: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
    for level in range(max(map(len, names.values()), default=0)):
        here = {path: each[level] for path, each in names.items() if level < len(each)}
        matches = {path: match for path, name in here.items() if (match := COUNTED.fullmatch(name))}
        numbers: dict[Hashable, set[int]] = defaultdict(set)
        for path, match in matches.items():
            numbers[heads[path], match[1], match[3]].add(int(match[2]))
        for path, match in matches.items():
            counts = numbers[heads[path], match[1], match[3]]
            if len(counts) >= FEWEST and max(counts) - min(counts) < 2 * len(counts):
                here[path] = f"{match[1]}*{match[3]}"
        heads = {path: (*head, here[path]) if path in here else head for path, head in heads.items()}
    return {None: None, **{path: SEPARATOR.join(head) for path, head in heads.items()}}


def together(items: Sequence[T], alike: Callable[[T], Hashable]) -> list[T]:
    """Items of ranges that count on as one, the longest first. alike: what must be the same besides."""
    shown = folded(item.range for item in items)
    groups: dict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        groups[alike(item), shown[item.range]].append(item)
    found = [each for group in groups.values() for each in _as_one(group, shown)]
    return sorted(found, key=lambda item: -item.total_ns)


def _as_one(group: Sequence[T], shown: dict[str | None, str | None]) -> Iterator[T]:
    group = sorted(group, key=lambda item: -item.total_ns)
    if len(group) > 1 and group[0].total_ns > MOST_SHARE * sum(item.total_ns for item in group):
        yield group[0]
        group = group[1:]
    sums = {name: sum(getattr(item, name) for item in group) for name in SUMMED if hasattr(group[0], name)}
    yield dataclasses.replace(group[0], range=shown[group[0].range] if len(group) > 1 else group[0].range, **sums)
