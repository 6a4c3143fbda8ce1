"""How NVTX ranges nest and which scope holds when, against the definition spelled out."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fiprof.parsers.nsys import NOWHERE, Range, Scope, Scopes, nested

NAMES = ["setup", "warmup", "measure", "rmsnorm[rows=1]", "rope[a=2]", "iter 0", "iter 7", "iter x", "other"]

Tree = list["tuple[str, Tree]"]
trees: st.SearchStrategy[Tree] = st.recursive(
    st.just([]), lambda inner: st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=4), max_leaves=12
)


def lay_out(tree: Tree, thread: int, domain: str) -> list[Range]:
    """Ranges in the order of their ends, as a tool may write them, with a tick between any two events."""
    ranges: list[Range] = []
    clock = 0

    def visit(branch: Tree) -> None:
        nonlocal clock
        for name, inside in branch:
            clock += 1
            start_ns = clock
            visit(inside)
            clock += 1
            ranges.append(Range(domain, name, start_ns, clock, thread, "push_pop"))

    visit(tree)
    return ranges


def around(one: Range, ranges: list[Range]) -> list[Range]:
    """The ranges of the same thread and domain that enclose one, outermost first."""
    found = [
        other
        for other in ranges
        if (other.thread, other.domain) == (one.thread, one.domain)
        and other.start_ns < one.start_ns
        and other.last_ns > one.last_ns
    ]
    return sorted(found, key=lambda other: other.start_ns)


@given(
    st.lists(
        st.tuples(trees, st.integers(0, 2), st.sampled_from(["fiprof", "NCCL"])), max_size=4, unique_by=lambda t: t[1:]
    )
)
def test_depth_and_parent_are_the_ranges_around(forest: list[tuple[Tree, int, str]]) -> None:
    ranges = nested([found for tree, thread, domain in forest for found in lay_out(tree, thread, domain)])
    assert [found.start_ns for found in ranges] == sorted(found.start_ns for found in ranges)
    for found in ranges:
        enclosing = around(found, ranges)
        assert found.depth == len(enclosing)
        assert (None if found.parent is None else ranges[found.parent]) == (enclosing[-1] if enclosing else None)


def expected_scope(names: list[str]) -> Scope | None:
    """By the runner's rule: phase > case > iteration."""
    if not names or names[0] not in ("setup", "warmup", "measure"):
        return None
    phase, case = names[0], names[1] if len(names) > 1 else None
    numbers = [re.fullmatch(r"iter (\d+)", name) for name in names[2:]]
    iteration = next((int(number[1]) for number in numbers if number), None) if phase == "measure" else None
    return Scope(phase, case, iteration)


@given(trees, trees, st.booleans())
def test_the_scope_of_every_moment(tree: Tree, elsewhere: Tree, endless: bool) -> None:
    ranges = lay_out(tree, 5, "fiprof") + lay_out(elsewhere, 6, "fiprof") + lay_out(tree, 5, "other")
    if endless and tree:
        last = max((found for found in ranges if found.thread == 5), key=lambda found: found.last_ns)
        ranges = [
            Range(found.domain, found.name, found.start_ns, None if found == last else found.end_ns, 5, "push_pop")
            if found.thread == 5
            else found
            for found in ranges
        ]
    ranges = nested(ranges)
    scopes = Scopes(ranges)
    moments = np.arange(0, 40, dtype=np.int64)
    positions = scopes.at(np.full(len(moments), 5, np.int64), moments)
    for moment, position in zip(moments.tolist(), positions.tolist(), strict=True):
        names = [
            found.name
            for found in ranges
            if found.thread == 5 and found.domain == "fiprof" and found.start_ns <= moment < found.last_ns
        ]
        got = None if position == NOWHERE else scopes.all[position]
        assert got == expected_scope(names)


def test_start_end_ranges_have_a_parent_but_are_none() -> None:
    outer = Range("d", "outer", 0, 100, 1, "push_pop")
    started = Range("d", "started", 10, 90, 1, "start_end")
    inner = Range("d", "inner", 20, 30, 1, "push_pop")
    longer = Range("d", "longer", 40, 200, 1, "start_end")
    found = {one.name: (one.depth, one.parent) for one in nested([inner, longer, started, outer])}
    assert found == {"outer": (0, None), "started": (1, 0), "inner": (1, 0), "longer": (0, None)}


def test_ranges_that_share_a_tick() -> None:
    """A case that starts with its phase is inside it; a phase that starts where the one before ended is beside it."""
    setup = Range("fiprof", "setup", 0, 10, 1, "push_pop")
    warmup = Range("fiprof", "warmup", 10, 30, 1, "push_pop")
    case = Range("fiprof", "rope[a=1]", 10, 20, 1, "push_pop")
    ranges = nested([case, warmup, setup])
    assert [(found.name, found.depth, found.parent) for found in ranges] == [
        ("setup", 0, None),
        ("warmup", 0, None),
        ("rope[a=1]", 1, 1),
    ]
    scopes = Scopes(ranges)
    moments = np.array([9, 10, 19, 20, 29, 30], np.int64)
    positions = scopes.at(np.ones(6, np.int64), moments).tolist()
    assert [None if position == NOWHERE else scopes.all[position] for position in positions] == [
        Scope("setup"),
        Scope("warmup", "rope[a=1]"),
        Scope("warmup", "rope[a=1]"),
        Scope("warmup"),
        Scope("warmup"),
        None,
    ]
