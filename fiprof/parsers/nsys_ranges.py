"""NVTX ranges, how they nest, and what those of the domain ``fiprof`` and declared ones say about a moment."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fiprof.parsers.names import FIPROF_DOMAIN, case_of
from fiprof.parsers.nsys_columns import ID_MASK, process_id

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from fiprof.parsers.nsys_export import Export

MEASURE = "measure"
PHASES = ("setup", "warmup", MEASURE)

PUSH_POP, START_END, DOMAIN = 59, 60, 75
"""Values of NVTX_EVENTS.eventType."""
FOREVER = 1 << 63


@dataclass(frozen=True)
class Range:
    """An NVTX range."""

    domain: str
    name: str
    start_ns: int
    end_ns: int | None
    """None where it never ended."""
    thread: int
    """globalTid: process and thread."""
    kind: str
    """push_pop or start_end."""
    payload: str | None = None
    """JSON of the values that the program gave with it, where the export has them."""
    parent: int | None = None
    """Position, among all ranges by start, of the innermost push/pop range around it (same thread, same domain)."""
    depth: int = 0
    """How many such ranges are around it."""

    @property
    def last_ns(self) -> int:
        return FOREVER if self.end_ns is None else self.end_ns


@dataclass(frozen=True)
class Scope:
    """Where the runner was."""

    phase: str
    """setup, warmup or measure."""
    case: str | None = None
    iteration: int | None = None

    def inside(self, name: str) -> Scope:
        """The scope of a range of this name, one level further in."""
        if self.case is None:
            return Scope(self.phase, name)
        number = re.fullmatch(r"iter (\d{1,9})", name)
        if self.phase == MEASURE and self.iteration is None and number:
            return Scope(self.phase, self.case, int(number[1]))
        return self


NOWHERE = -1
"""The position of no scope."""


@dataclass
class _Timeline:
    """From each moment on (ns, ascending), the position of the scope that holds."""

    moments: list[int] = field(default_factory=list)
    scopes: list[int] = field(default_factory=list)

    def add(self, moment: int, scope: int) -> None:
        self.moments.append(max(moment, self.moments[-1]) if self.moments else moment)
        self.scopes.append(scope)


class Scopes:
    """The scopes of a trace, and which one holds when."""

    def __init__(self, ranges: Sequence[Range], declared: Sequence[str] = ()) -> None:
        """ranges: all of the trace, nested and in order, as :func:`read_ranges` gives them.

        declared: those that are cases besides the runner's; each time, counted in its process, is an iteration.
        """
        self.all: list[Scope] = []
        """Every scope once; other tables refer to them by position."""
        self._timelines: dict[int, _Timeline] = defaultdict(_Timeline)
        positions: dict[Scope, int] = {}
        of_range: dict[int, Scope | None] = {}
        open_ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
        times: dict[tuple[int, str], int] = defaultdict(int)
        for index, found in enumerate(ranges):
            case = case_of(found.domain, found.name, declared)
            if found.kind != "push_pop" or not (case or found.domain == FIPROF_DOMAIN):
                continue
            if case:
                again = process_id(found.thread), case
                scope: Scope | None = Scope(MEASURE, case, times[again])
                times[again] += 1
            elif found.parent is None:
                scope = Scope(found.name) if found.name in PHASES else None
            else:
                around = of_range.get(found.parent)
                scope = around.inside(found.name) if around else None
            of_range[index] = scope
            position = NOWHERE if scope is None else positions.setdefault(scope, len(positions))
            timeline, stack = self._timelines[found.thread], open_ranges[found.thread]
            _close(stack, timeline, found.start_ns)
            timeline.add(found.start_ns, position)
            stack.append((found.last_ns, position))
        for thread, stack in open_ranges.items():
            _close(stack, self._timelines[thread], FOREVER - 1)
        self.all = list(positions)

    def at(self, threads: npt.NDArray[np.int64], times_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """The position in ``all`` of the scope of each moment on a thread (globalTid), NOWHERE outside all of them."""
        import numpy as np

        found = np.full(len(times_ns), NOWHERE, np.int32)
        for thread, timeline in self._timelines.items():
            here = threads == thread
            step = np.searchsorted(np.array(timeline.moments, np.int64), times_ns[here], side="right")
            found[here] = np.array([NOWHERE, *timeline.scopes], np.int32)[step]
        return found


def _close(stack: list[tuple[int, int]], timeline: _Timeline, now_ns: int) -> None:
    """Take the ranges that have ended off the stack; from the end of each, the scope of the one around it holds."""
    while stack and stack[-1][0] <= now_ns:
        end_ns, _ = stack.pop()
        timeline.add(end_ns, stack[-1][1] if stack else NOWHERE)


def read_ranges(export: Export) -> list[Range]:
    """Every push/pop and start/end range of the trace by start, nested."""
    events = export.rows(
        "NVTX_EVENTS",
        *("eventType", "start", "end", "globalTid", "domainId", "text", "textId", "jsonText"),
        where={"eventType": (PUSH_POP, START_END, DOMAIN)},
    )
    ids = sorted({event[6] for event in events if event[5] is None and event[6] is not None})
    registered = dict(zip(ids, export.strings(ids), strict=True))
    named = [
        (kind, start_ns, end_ns, thread, domain, (registered.get(text_id) if text is None else text) or "", payload)
        for kind, start_ns, end_ns, thread, domain, text, text_id, payload in events
        if start_ns is not None and thread is not None
    ]
    domains = {(process_id(thread), domain): name for kind, _, _, thread, domain, name, _ in named if kind == DOMAIN}
    return nested(
        [
            Range(
                domain=domains.get((process_id(thread), domain), ""),
                name=name,
                start_ns=start_ns,
                end_ns=end_ns,
                thread=thread,
                kind="push_pop" if kind == PUSH_POP else "start_end",
                payload=payload,
            )
            for kind, start_ns, end_ns, thread, domain, name, payload in named
            if kind != DOMAIN
        ]
    )


def nested(ranges: list[Range]) -> list[Range]:
    """The ranges by start, outer before inner, each with its depth and parent."""
    ranges.sort(key=lambda found: (found.start_ns, -found.last_ns, found.kind))
    around: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    nested = []
    for index, found in enumerate(ranges):
        stack = around[found.thread, found.domain]
        while stack and stack[-1][0] <= found.start_ns and stack[-1][0] < found.last_ns:
            stack.pop()
        enclosing = [position for last_ns, position in stack if last_ns >= found.last_ns]
        nested.append(replace(found, parent=enclosing[-1] if enclosing else None, depth=len(enclosing)))
        if found.kind == "push_pop":
            stack.append((found.last_ns, index))
    return nested


def as_table(ranges: Sequence[Range]) -> pa.Table:
    """The table ``ranges``."""
    import pyarrow as pa

    from fiprof.model import schemas

    columns = {
        "domain": [found.domain for found in ranges],
        "name": [found.name for found in ranges],
        "start_ns": [found.start_ns for found in ranges],
        "end_ns": [found.end_ns for found in ranges],
        "depth": [found.depth for found in ranges],
        "parent": [found.parent for found in ranges],
        "kind": [found.kind for found in ranges],
        "pid": [process_id(found.thread) for found in ranges],
        "tid": [found.thread & ID_MASK for found in ranges],
        "payload": [found.payload for found in ranges],
    }
    types = schemas.schema("ranges")
    return pa.table({name: pa.array(cells, types.field(name).type) for name, cells in columns.items()})
