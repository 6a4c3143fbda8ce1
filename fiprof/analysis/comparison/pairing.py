"""Which case, and which kernel, of one side is which of the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fiprof.errors import FiprofError
from fiprof.model.manifest import CaseEntry
from fiprof.model.run import Launch
from fiprof.model.wording import Worded
from fiprof.text import functor, join_words, kernel_identity

# Cases


@dataclass(frozen=True)
class CasePair:
    """A case of either side with the same parameters, but for those that make the sides."""

    a: CaseEntry
    b: CaseEntry

    @property
    def different(self) -> dict[str, tuple[object, object]]:
        """The parameters that both have, with other values, and these."""
        names = dict.fromkeys((*self.a.params, *self.b.params))
        values = {name: (self.a.params.get(name), self.b.params.get(name)) for name in names}
        return {name: (x, y) for name, (x, y) in values.items() if x is not None and y is not None and x != y}


def written(case: CaseEntry) -> dict[str, str]:
    """Its parameters as the id writes them."""
    items = case.id.partition("[")[2].removesuffix("]").split(",")
    return {name: value for name, _, value in (item.partition("=") for item in items) if name}


def selected(cases: Sequence[CaseEntry], wanted: Mapping[str, str], run: str) -> list[CaseEntry]:
    """The cases with these parameters, as their ids write them.

    run: its name, for the error where there is none. Raises FiprofError (exit status 2).
    """
    params = {case.id: written(case) for case in cases}
    found = [case for case in cases if wanted.items() <= params[case.id].items()]
    if wanted and not found:
        there = {name: sorted({each[name] for each in params.values() if name in each}) for name in wanted}
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
    paired = {case.id: same[case.id] for case in a if case.id in same}
    left: list[dict[str, list[CaseEntry]]] = [defaultdict(list), defaultdict(list)]
    for by_workload, side in zip(left, (a, b), strict=True):
        for case in side:
            if case.id not in paired:
                by_workload[case.id.partition("[")[0]].append(case)
    for workload in left[0].keys() & left[1].keys():
        makes = _makes_the_sides(*([written(case) for case in side[workload]] for side in left))
        keyed = [_unique(side[workload], makes) for side in left]
        paired |= {case.id: keyed[1][key] for key, case in keyed[0].items() if key in keyed[1]}
    pairs = [CasePair(case, paired[case.id]) for case in a if case.id in paired]
    done = {pair.b.id for pair in pairs}
    return pairs, [case for case in a if case.id not in paired], [case for case in b if case.id not in done]


def _makes_the_sides(a: Sequence[Mapping[str, str]], b: Sequence[Mapping[str, str]]) -> set[str]:
    values = [{name: {each.get(name) for each in side} for each in side for name in each} for side in (a, b)]
    names = {name for each in values for name in each}
    sides = {name: [each.get(name) for each in values] for name in names}
    return {name for name, (x, y) in sides.items() if not x or not y or (len(x) == len(y) == 1 and x != y)}


def _unique(cases: Sequence[CaseEntry], without: set[str]) -> dict[object, CaseEntry]:
    """The cases that alone have their parameters, by these; ``without`` some of them."""
    keys = [frozenset(each for each in written(case).items() if each[0] not in without) for case in cases]
    count = Counter(keys)
    return {key: case for key, case in zip(keys, cases, strict=True) if count[key] == 1}


# Kernels


@dataclass(frozen=True)
class SideKernel:
    """A kernel of one side: of a case an iteration's executions, of a program all of the trace."""

    kernel: str
    kernel_full: str
    count: float
    """Executions; of a case the mean of an iteration's."""
    nsys_us: float | None = None
    """All executions together under nsys; of a case the mean of an iteration's."""
    ncu_us: float | None = None
    """The launches together that ncu profiled; of a case the mean of an iteration's."""
    launch: Launch | None = None
    """Of the launches under ncu the one of median time, of the shape that takes most of it."""

    @property
    def total_us(self) -> float:
        """By nsys, else by ncu."""
        return self.ncu_us or 0.0 if self.nsys_us is None else self.nsys_us

    @property
    def mean_us(self) -> float | None:
        """Mean time of an execution under nsys."""
        return None if self.nsys_us is None or not self.count else self.nsys_us / self.count


class Match(Worded):
    """How a kernel of one side was found on the other."""

    SAME = "same"
    """By its name, the functor and the numbers among its template arguments."""
    RENAMED = "renamed", "other template arguments"
    """By its name and functor."""
    REPLACED = "replaced"
    """By its part: each takes most of what has no counterpart, and at least half of its side's time."""
    NEW = "new"
    """Only side B has it."""
    GONE = "gone"
    """Only side A has it."""


_KEYS: tuple[tuple[Match, Callable[[SideKernel], str]], ...] = (
    (Match.SAME, lambda each: each.kernel_full),
    # The same in nsys's and in ncu's name, and in another build's.
    (Match.SAME, lambda each: kernel_identity(each.kernel, each.kernel_full)),
    (Match.RENAMED, lambda each: f"{each.kernel} {functor(each.kernel_full)}"),
)


def pair_kernels(
    a: Sequence[SideKernel], b: Sequence[SideKernel]
) -> list[tuple[SideKernel | None, SideKernel | None, Match]]:
    """Each kernel of A with that of B, then those that have none.

    Where several would do (a template of which both sides run three instances), those with most time are a pair.
    """
    left_a, left_b = (sorted(side, key=lambda each: (-each.total_us, each.kernel_full)) for side in (a, b))
    found: list[tuple[SideKernel | None, SideKernel | None, Match]] = []
    for match, key in _KEYS:
        rest_b: dict[str, list[SideKernel]] = defaultdict(list)
        for each in left_b:
            rest_b[key(each)].append(each)
        still_a = []
        for each in left_a:
            if others := rest_b[key(each)]:
                found.append((each, others.pop(0), match))
            else:
                still_a.append(each)
        left_a, left_b = still_a, [each for each in left_b if any(each is other for other in rest_b[key(each)])]
    leads = [
        bool(left) and left[0].total_us >= sum(each.total_us for each in side) / 2
        for left, side in ((left_a, a), (left_b, b))
    ]
    if all(leads):
        found.append((left_a.pop(0), left_b.pop(0), Match.REPLACED))
    found += [(each, None, Match.GONE) for each in left_a]
    return found + [(None, each, Match.NEW) for each in left_b]
