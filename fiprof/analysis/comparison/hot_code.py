"""Where in the code the warps of two launches were sampled, and what moved."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import PurePath

from fiprof.analysis.comparison.changes import Change
from fiprof.analysis.instructions import Listing
from fiprof.analysis.sass import parse
from fiprof.model.wording import Worded

LEAST_SHARE = 0.01
"""Share of a launch's time that a place has to gain or lose."""


class Place(Worded):
    """What the samples of both sides are added up by."""

    LINE = "line", "source line"
    OFFSET = "offset", "instruction"
    """In the same code."""
    OPCODE = "opcode"
    """Where the code differs and has no lines."""


def moved(a: Listing, b: Listing, a_us: float, b_us: float) -> list[Change]:
    """The places in the code (``file.cuh:123``, ``+0x120 LDG.E.128``, an opcode) that gained or lost samples, the most
    time first: each side's share of the launch's samples, and how much longer launch b is there.

    a_us, b_us: durations of the launches. The detail of each is its Place, and what most of the samples of the side
    with more of them wait for; None where the page does not name it.
    """
    if not a.total or not b.total:
        return []
    by, key = _places(a, b)
    (shares_a, reasons_a), (shares_b, reasons_b) = _sampled(a, key), _sampled(b, key)
    found = []
    for where in {**shares_a, **shares_b}:
        x, y = shares_a.get(where, 0.0), shares_b.get(where, 0.0)
        us = y * b_us - x * a_us
        if abs(us) >= LEAST_SHARE * max(a_us, b_us):
            reason = (reasons_b if us >= 0 else reasons_a).get(where)
            found.append(Change("hot_code", where, x, y, us, by="ncu", detail=(by, reason)))
    return sorted(found, key=lambda each: (-abs(each.us), each.item))


Key = Callable[[Listing], Sequence[str | None]]
"""The place of each instruction; None for one of no place."""


def _places(a: Listing, b: Listing) -> tuple[Place, Key]:
    if all(any(_lines(each)) for each in (a, b)):
        return Place.LINE, _lines
    if a.code.lines == b.code.lines:
        return Place.OFFSET, _offsets
    return Place.OPCODE, _opcodes


def _lines(of: Listing) -> list[str | None]:
    if not {"source_file", "source_line"} <= set(of.rows.column_names):
        return []
    files, lines = (of.rows[name].to_pylist() for name in ("source_file", "source_line"))
    return [f"{PurePath(file).name}:{line}" if file and line else None for file, line in zip(files, lines, strict=True)]


def _offsets(of: Listing) -> list[str | None]:
    return [f"+{offset:#x} {opcode}" for offset, opcode in zip(of.code.offsets, _opcodes(of), strict=True)]


def _opcodes(of: Listing) -> list[str | None]:
    return [".".join((found.opcode, *found.modifiers)) for found in map(parse, of.code.lines)]


def _sampled(of: Listing, key: Key) -> tuple[dict[str, float], dict[str, str]]:
    """Place -> share of the samples, and what most of them wait for."""
    counts: Counter[str] = Counter()
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    named = of.rows["top_reason"].to_pylist() if "top_reason" in of.rows.column_names else [None] * len(of.samples)
    for where, samples, reason in zip(key(of), of.samples, named, strict=True):
        if where is not None and samples:
            counts[where] += samples
            if reason:
                reasons[where][reason] += samples
    shares = {where: count / of.total for where, count in counts.items()}
    return shares, {where: found.most_common(1)[0][0] for where, found in reasons.items()}
