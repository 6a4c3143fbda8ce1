"""``fiprof top`` as tables: where the GPU's time went, why it was idle, kernels and ranges by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from fiprof.analysis.idle import Activity, Idle
from fiprof.analysis.top import KernelTime, RangeTime, Spent, TimePart, Top
from fiprof.analysis.verdict.model import Part
from fiprof.model.finding import Finding
from fiprof.reports.columns import Cell, Cells, attribute, filled, for_programs
from fiprof.reports.counted import together
from fiprof.reports.timeline_text import time_words
from fiprof.reports.view import Column, Document, Narrow, View
from fiprof.reports.words import phrase

T = TypeVar("T", Idle, RangeTime, KernelTime)


class Table(StrEnum):
    """What programs are given, a row each."""

    KERNELS = "kernels"
    RANGES = "ranges"
    IDLE = "idle"
    TIME = "time"


def _ms(key: str, title: str) -> Cell:
    return Column(key, title, "ms", ",.3f"), lambda item: item.total_ns / 1e6


def _kernel(item: KernelTime) -> str:
    return f"{item.kernel}{f' ({item.detail})' if item.detail else ''}"


def _part(verdict: object) -> str | None:
    """The resource that binds, for programs."""
    part = verdict.values.get("part") if isinstance(verdict, Finding) else None
    return part.value if isinstance(part, Part) else None


_RANK, _DEVICE = attribute("rank", "rank"), attribute("device", "GPU")
_BY_RANGE = attribute("range", "range", narrow=Narrow.BELOW)
_TIME: Cells = (
    _RANK,
    _DEVICE,
    (Column("what", "what"), lambda item: item.what),
    (Column("part"), lambda item: _part(item.what)),
    (Column("total_ms", "time", "ms", ",.3f"), lambda item: item.ns / 1e6),
    (Column("", "share", bar=True), lambda item: item.share),
    attribute("share", "share", spec=".1%"),
)
_IDLE: Cells = (
    _RANK,
    _DEVICE,
    attribute("cause", "cause"),
    attribute("call", "call"),
    attribute("range", "range", narrow=Narrow.BELOW),
    _ms("total_ms", "time"),
    attribute("share", "share", spec=".1%"),
)
_KERNELS: Cells = (
    _RANK,
    _DEVICE,
    (Column("", "kernel", narrow=Narrow.ABOVE), _kernel),
    attribute("kernel"),
    attribute("kernel_full"),
    _BY_RANGE,
    attribute("count", "x", spec=",d"),
    _ms("total_ms", "time"),
    attribute("share", "share", spec=".1%"),
    attribute("median_us", "median", "µs", ",.2f"),
    attribute("p90_us", "p90", "µs", ",.2f"),
    attribute("spread", "spread", spec=".0%"),
    attribute("shapes"),
    attribute("verdict", "verdict"),
    (Column("part"), lambda item: _part(item.verdict)),
    attribute("profiled", "profiled", spec=".0%"),
)
_RANGES: Cells = (
    _RANK,
    _DEVICE,
    (Column("range", "range", narrow=Narrow.ABOVE), lambda item: item.range),
    attribute("count", "kernels", spec=",d"),
    _ms("total_ms", "time"),
    attribute("share", "share", spec=".1%"),
    (Column("longest", "longest kernel", narrow=Narrow.BELOW), lambda item: item.longest),
)


def document(what: Top, *, table: Table = Table.KERNELS, most: int | None = None) -> Document:
    """Four tables for people; for programs all rows of one of them.

    most: rows of a table that people are shown; None for all.
    """
    cells, items = _tables(what)[table]
    return Document(
        programs=filled(for_programs(*cells), items),
        shown=tuple(_shown(what, most)),
        warnings=what.warnings,
    )


def _tables(what: Top) -> dict[Table, tuple[Cells, Sequence[object]]]:
    return {
        Table.KERNELS: (_KERNELS, what.kernels),
        Table.RANGES: (_RANGES, what.ranges),
        Table.IDLE: (_IDLE, what.idle),
        Table.TIME: (_TIME, what.parts),
    }


def _shown(what: Top, most: int | None) -> list[View]:
    """The tables for people, with the columns that tell ranks, GPUs and ranges apart where there are several."""
    unneeded = [
        *([] if any(each.rank is not None for each in what.kernels) else [_RANK]),
        *([] if len(what.activities) > 1 else [_DEVICE]),
        *([] if any(each.range is not None for each in what.kernels) else [_BY_RANGE]),
    ]

    def columns(cells: Cells) -> Cells:
        return [cell for cell in cells if cell not in unneeded]

    times = filled(
        columns(_TIME),
        what.parts,
        title=phrase("top.time"),
        summary=tuple(map(_activity, what.activities)),
        notes=(_profiled(what.parts),) if any(isinstance(part.what, Finding) for part in what.parts) else (),
    )
    every = (
        what.idle if most is None else together(what.idle, lambda each: (each.rank, each.device, each.cause, each.call))
    )
    kept, rest = _first(every, most, lambda each: each.share)
    left_out, rest = len(every) - len(kept), rest / len(what.activities)
    notes = (phrase("top.more_causes", count=left_out, share=rest),) if left_out else ()
    idle = filled(columns(_IDLE), kept, title=phrase("top.idle"), notes=(*notes, phrase("top.idle_note")))
    kernels, rest = _first(what.kernels, most, lambda each: each.share)
    left_out, rest = len(what.kernels) - len(kernels), rest / _places(what.kernels)
    notes = (phrase("top.more", count=left_out, share=rest, all=len(what.kernels)),) if left_out else ()
    by_kernel = filled(
        columns(_KERNELS), kernels, title=phrase("top.kernels"), notes=(*notes, phrase("top.spread_note"))
    )
    views = [times, *([idle] if what.idle else []), by_kernel]
    if any(each.range is not None for each in what.ranges):
        of_ranges = what.ranges if most is None else together(what.ranges, lambda each: (each.rank, each.device))
        ranges, rest = _first(of_ranges, most, lambda each: each.share)
        left_out = len(of_ranges) - len(ranges)
        notes = (phrase("top.more_ranges", count=left_out, share=rest / _places(what.ranges)),) if left_out else ()
        if len(of_ranges) < len(what.ranges):
            notes = (*notes, phrase("top.counted"))
        views.append(filled(columns(_RANGES), ranges, title=phrase("top.ranges"), notes=notes))
    return views


def _places(items: Sequence[KernelTime] | Sequence[RangeTime]) -> int:
    """Ranks or GPUs, each with shares of its own."""
    return max(len({(each.rank, each.device) for each in items}), 1)


def _first(items: Sequence[T], most: int | None, share: Callable[[T], float]) -> tuple[Sequence[T], float]:
    """The first ones, and the share of the others."""
    return items[:most], sum(map(share, items[most:]))


def _activity(each: Activity) -> str:
    hidden = 1 - each.only_copies_ns / each.copies_ns if each.copies_ns else 0.0
    copies = phrase("top.copies", copies=time_words(each.copies_ns / 1e3), hidden=hidden) if each.copies_ns else ""
    together = each.side_by_side_ns / max(each.kernels_ns, 1)
    return phrase(
        "top.time_summary",
        rank="" if each.rank is None else phrase("top.rank", rank=each.rank),
        device=each.device,
        busy=1 - each.idle_ns / each.window_ns,
        window=time_words(each.window_ns / 1e3),
        copies=copies,
        together=phrase("top.together", together=together) if together else "",
    )


def _profiled(parts: Sequence[TimePart]) -> str:
    """How much of the kernels' time the verdicts are about."""
    left, waiting = (
        sum(part.ns for part in parts if part.what is what) for what in (Spent.NOT_PROFILED, Spent.COLLECTIVES)
    )
    found = sum(part.ns for part in parts if isinstance(part.what, Finding))
    total = found + left + waiting
    collectives = phrase("top.of_collectives", share=waiting / total) if waiting else ""
    return phrase("top.unprofiled", profiled=found / total, left=left / total, collectives=collectives)
