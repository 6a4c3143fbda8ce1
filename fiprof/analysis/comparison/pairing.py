"""Which case, and which kernel, of one side is which of the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from fiprof.errors import FiprofError
from fiprof.model.manifest import CaseEntry
from fiprof.text import functor, join_words, kernel_identity

Value = bool | int | float | str

K = TypeVar("K", bound="HasKernel")

# Cases


@dataclass(frozen=True)
class Different:
    """A parameter that is one value on side A and another on side B."""

    name: str
    a: Value
    b: Value


@dataclass(frozen=True)
class CasePair:
    """A case of either side with the same parameters, but for those that make the sides."""

    a: CaseEntry
    b: CaseEntry
    different: tuple[Different, ...] = ()


def selected(cases: Sequence[CaseEntry], wanted: Mapping[str, str], run: str) -> list[CaseEntry]:
    """The cases with these parameters, as their ids write them.

    run: its name, for the error where there is none. Raises FiprofError (exit status 2).
    """
    known = {case.id: written(case) for case in cases}
    found = [case for case in cases if wanted.items() <= known[case.id].items()]
    if wanted and not found:
        there = {name: sorted({each[name] for each in known.values() if name in each}) for name in wanted}
        values = [f"{name}={', '.join(each) or 'in no case'}" for name, each in there.items()]
        asked = ",".join(f"{name}={value}" for name, value in wanted.items())
        raise FiprofError(f"{run} has no case with {asked}", f"it has {join_words(values)}", exit_code=2)
    return found


def pair_cases(
    a: Sequence[CaseEntry], b: Sequence[CaseEntry]
) -> tuple[list[CasePair], list[CaseEntry], list[CaseEntry]]:
    """The pairs in the order of A, and what is on one side alone.

    First cases with the same parameters. Of what is left, a workload's parameters that are the same throughout each
    side and differ between them (the backend, of a run with FA2 and one with FA3) or that one side does not have (a
    newer option) are what makes the sides: cases that agree in all others are a pair, where they are the only ones.
    """
    same = {case.id: case for case in b}
    pairs = [CasePair(case, same[case.id]) for case in a if case.id in same]
    paired = {pair.a.id for pair in pairs}
    left_a, left_b = ([case for case in side if case.id not in paired] for side in (a, b))
    for workload in dict.fromkeys(map(_workload, left_a)):
        sides = [{case.id: written(case) for case in side if _workload(case) == workload} for side in (left_a, left_b)]
        if not sides[1]:
            continue
        makes = _makes_the_sides(*(list(side.values()) for side in sides))
        of_a, of_b = (_unique({id_: _without(given, makes) for id_, given in side.items()}) for side in sides)
        for key in of_a.keys() & of_b.keys():
            one = next(case for case in left_a if case.id == of_a[key])
            other = next(case for case in left_b if case.id == of_b[key])
            pairs.append(CasePair(one, other, different(one, other)))
    order = {case.id: place for place, case in enumerate(a)}
    pairs.sort(key=lambda pair: order[pair.a.id])
    done_a, done_b = {pair.a.id for pair in pairs}, {pair.b.id for pair in pairs}
    return pairs, [case for case in a if case.id not in done_a], [case for case in b if case.id not in done_b]


def _workload(case: CaseEntry) -> str:
    return case.id.partition("[")[0]


def written(case: CaseEntry) -> dict[str, str]:
    """Its parameters as the id writes them."""
    items = case.id.partition("[")[2].removesuffix("]").split(",")
    return {name: value for name, _, value in (item.partition("=") for item in items) if name}


def _makes_the_sides(a: Sequence[Mapping[str, str]], b: Sequence[Mapping[str, str]]) -> set[str]:
    values = [{name: {each.get(name) for each in side} for each in side for name in each} for side in (a, b)]
    return {
        name
        for name in {**values[0], **values[1]}
        if (x := values[0].get(name)) is None
        or (y := values[1].get(name)) is None
        or (len(x) == len(y) == 1 and x != y)
    }


def _without(given: Mapping[str, str], names: set[str]) -> Hashable:
    return frozenset((name, value) for name, value in given.items() if name not in names)


def _unique(keys: Mapping[str, Hashable]) -> dict[Hashable, str]:
    """Key -> the id that alone has it."""
    found: dict[Hashable, list[str]] = defaultdict(list)
    for id_, key in keys.items():
        found[key].append(id_)
    return {key: ids[0] for key, ids in found.items() if len(ids) == 1}


def different(a: CaseEntry, b: CaseEntry) -> tuple[Different, ...]:
    """The parameters that both have, with other values."""
    names = dict.fromkeys((*a.params, *b.params))
    pairs = ((name, a.params.get(name), b.params.get(name)) for name in names)
    return tuple(Different(name, x, y) for name, x, y in pairs if x is not None and y is not None and x != y)


# Kernels


class Match(StrEnum):
    """How a kernel of one side was found on the other."""

    SAME = "same"
    """By its name, the functor and the numbers among its template arguments."""
    RENAMED = "renamed"
    """By its name and functor: other template arguments."""
    REPLACED = "replaced"
    """By its part: each takes most of what has no counterpart, and at least half of its side's time."""
    NEW = "new"
    """Only side B has it."""
    GONE = "gone"
    """Only side A has it."""


class HasKernel(Protocol):
    """A kernel of one side."""

    @property
    def kernel(self) -> str: ...
    @property
    def kernel_full(self) -> str: ...
    @property
    def total_us(self) -> float:
        """All its executions together."""


def identity(kernel: HasKernel) -> str:
    """What is the same in nsys's and in ncu's name, and in another build's."""
    return kernel_identity(kernel.kernel, kernel.kernel_full)


def pair_kernels(a: Sequence[K], b: Sequence[K]) -> list[tuple[K | None, K | None, Match]]:
    """Each kernel of A with that of B, then those that have none.

    Where several would do (a template of which both sides run three instances), those with most time are a pair.
    """
    left_a, left_b = (sorted(side, key=lambda each: (-each.total_us, each.kernel_full)) for side in (a, b))
    found: list[tuple[K | None, K | None, Match]] = []
    keys: tuple[tuple[Match, Callable[[HasKernel], str]], ...] = (
        (Match.SAME, lambda each: each.kernel_full),
        (Match.SAME, identity),
        (Match.RENAMED, lambda each: f"{each.kernel} {functor(each.kernel_full)}"),
    )
    for match, key in keys:
        rest_b: dict[str, list[K]] = defaultdict(list)
        for each in left_b:
            rest_b[key(each)].append(each)
        still_a = []
        for each in left_a:
            if others := rest_b[key(each)]:
                found.append((each, others.pop(0), match))
            else:
                still_a.append(each)
        left_a, left_b = still_a, [each for each in left_b if any(each is other for other in rest_b[key(each)])]
    if left_a and left_b and _leads(left_a[0], a) and _leads(left_b[0], b):
        found.append((left_a.pop(0), left_b.pop(0), Match.REPLACED))
    found += [(each, None, Match.GONE) for each in left_a]
    return found + [(None, each, Match.NEW) for each in left_b]


def _leads(kernel: HasKernel, side: Iterable[HasKernel]) -> bool:
    return kernel.total_us >= sum(each.total_us for each in side) / 2
