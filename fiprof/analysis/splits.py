"""What tells cases of different outcomes apart: the parameter, or two of them, that a division of cases follows.

It describes the cases at hand. Nothing is inferred of others: they were chosen, not drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

from fiprof.analysis.study import FEWEST_ON_AXIS, Params, Value, is_number, same

LEAST_BYTES = "least_bytes"
"""What a caller calls the least bytes of a case, if it adds them to the parameters."""

RIGHT = 0.85
"""Least part of the cases that a split has to put on the right side. fiprof's own choice."""

LEAST_SIDE = 2
"""Fewest cases of a side: a single one is an exception, no rule."""

GAIN = 0.5
"""Part of the errors made by calling every case what most are, of which fewer have to remain. fiprof's own choice."""


class Comparison(StrEnum):
    """How a case's value compares with that of a condition."""

    AT_LEAST = "at_least"
    AT_MOST = "at_most"
    IS = "is"


@dataclass(frozen=True)
class Condition:
    """What cases on one side have in common."""

    names: tuple[str, ...]
    """A parameter, or two whose product counts."""
    comparison: Comparison
    value: Value

    def holds(self, params: Params) -> bool:
        found = _value(params, self.names)
        if self.comparison is Comparison.IS:
            return same(found, self.value)
        return found >= self.value if self.comparison is Comparison.AT_LEAST else found <= self.value  # type: ignore[operator]


@dataclass(frozen=True)
class Split:
    """Where one outcome is found, and where it is not."""

    conditions: tuple[Condition, ...]
    """All of them hold inside; one or two."""
    outcome: StrEnum
    """What most cases inside have, and most outside have not."""
    inside: Mapping[StrEnum, int]
    """Outcome -> its cases inside, the most frequent first."""
    outside: Mapping[StrEnum, int]
    rest: Split | None = None
    """What divides those outside, where they differ among themselves."""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it follows, each once."""
        mine = [name for condition in self.conditions for name in condition.names]
        return tuple(dict.fromkeys((*mine, *(self.rest.names if self.rest else ()))))

    @property
    def cost(self) -> int:
        """How many parameters one has to know; bytes are made of several."""
        return sum(1 + (name == LEAST_BYTES) for condition in self.conditions for name in condition.names)

    @property
    def errors(self) -> int:
        """Cases on the wrong side."""
        return sum(self.inside.values()) - self.inside.get(self.outcome, 0) + self.outside.get(self.outcome, 0)


def split(cases: Sequence[tuple[Params, StrEnum]]) -> Split | None:
    """The simplest of the splits that put most cases on the right side; None where none does so for RIGHT of them.

    Tried are conditions on one parameter, on the product of two axes, on the least bytes, and on two at once. The cases
    outside are split once more, by the same rule.
    """
    found = _best(cases)
    if found is None:
        return None
    outside = [case for case in cases if not _inside(case[0], found.conditions)]
    return replace(found, rest=_best(outside))


def _best(cases: Sequence[tuple[Params, StrEnum]]) -> Split | None:
    counts = Counter(outcome for _, outcome in cases)
    if len(counts) < 2:
        return None
    found = [made for each in _candidates([params for params, _ in cases]) for made in _made(cases, each)]
    best = min(found, key=lambda item: (item.errors, item.cost), default=None)
    if best is None or best.errors > (1 - RIGHT) * len(cases):
        return None
    return best if best.errors < GAIN * (len(cases) - max(counts.values())) else None


def _made(cases: Sequence[tuple[Params, StrEnum]], conditions: tuple[Condition, ...]) -> list[Split]:
    """The split of these conditions, by what most inside have; none where a side is too small."""
    sides: tuple[list[StrEnum], list[StrEnum]] = ([], [])
    for params, outcome in cases:
        sides[not _inside(params, conditions)].append(outcome)
    if min(map(len, sides)) < LEAST_SIDE:
        return []
    inside, outside = (dict(Counter(side).most_common()) for side in sides)
    return [Split(conditions, next(iter(inside)), inside, outside)]


def _inside(params: Params, conditions: Sequence[Condition]) -> bool:
    return all(condition.holds(params) for condition in conditions)


def _candidates(params: Sequence[Params]) -> Iterator[tuple[Condition, ...]]:
    """The plainest first."""
    shared = [name for name in params[0] if all(name in each for each in params)]
    names = [name for name in shared if name != LEAST_BYTES]
    singles = [condition for name in names for condition in _conditions(params, (name,))]
    axes = [name for name in names if _on_axis([each[name] for each in params])]
    products = [condition for pair in combinations(axes, 2) for condition in _conditions(params, pair)]
    moved = _conditions(params, (LEAST_BYTES,)) if LEAST_BYTES in shared else []
    yield from ((condition,) for condition in (*singles, *products, *moved))
    yield from (pair for pair in combinations((*singles, *moved), 2) if pair[0].names != pair[1].names)


def _conditions(params: Sequence[Params], names: tuple[str, ...]) -> list[Condition]:
    """Those that some cases meet and others do not."""
    values = list(dict.fromkeys(_value(each, names) for each in params))
    if len(values) < 2:
        return []
    if not _on_axis(values):
        return [Condition(names, Comparison.IS, value) for value in values]
    ordered = sorted(values, key=float)
    return [
        *(Condition(names, Comparison.AT_LEAST, value) for value in ordered[1:]),
        *(Condition(names, Comparison.AT_MOST, value) for value in ordered[:-1]),
    ]


def _on_axis(values: Sequence[Value]) -> bool:
    return len(set(values)) >= FEWEST_ON_AXIS and all(map(is_number, values))


def _value(params: Params, names: tuple[str, ...]) -> Value:
    return params[names[0]] if len(names) == 1 else math.prod(float(params[name]) for name in names)
