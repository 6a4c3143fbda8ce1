"""Two traces of a program as tables: where the GPUs' time went, by kernel, range, rank and idle cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from fiprof.analysis.comparison.answer import LEADS, program_change, program_reasons
from fiprof.analysis.comparison.kernels import KernelChange
from fiprof.analysis.comparison.programs import IdleChange, PartKind, ProgramComparison, RangeChange, TimeChange
from fiprof.reports.comparison.launch import kernel_name
from fiprof.reports.view import Column, Narrow, Sayable, Value, View
from fiprof.reports.words import phrase, worded

T = TypeVar("T")


def summary(found: ProgramComparison) -> Iterator[Sayable]:
    """What changed, and why."""
    yield program_change(found)
    if why := program_reasons(found):
        yield phrase("comparison.most", reasons="; ".join(map(worded, why)))


def leads(kernel: KernelChange, found: ProgramComparison) -> bool:
    """Whether a kernel accounts for enough of the change to be explained."""
    return abs(kernel.us) >= LEADS * abs(found.window.us) > 0


def tables(found: ProgramComparison, most: int | None) -> Iterator[tuple[str, View]]:
    """Name and table. most: rows of each; None for all."""
    yield "time", _parts(found)
    if len(found.ranks) > 1:
        yield "ranks", _ranks(found)
    kernels = _kernels(found, most)
    if kernels.rows:
        yield "kernels", kernels
    idle = [each for each in found.idle if each.time.us or most is None]
    if idle:
        yield "idle", _idle(found, idle, most)
    ranges = [each for each in found.ranges if each.time.us or most is None]
    if ranges and any(each.range for each in ranges):
        yield "ranges", _ranges(found, ranges, most)


def _ms(key: str, spec: str = ",.3f") -> Column:
    return Column("", phrase(f"comparison.{key}"), "ms", spec)


def _change(found: ProgramComparison) -> Column:
    return _ms("change" if found.work == 1.0 else "change_equal", "+,.3f")


def _times(of: TimeChange) -> tuple[Value, ...]:
    return of.a_us / 1e3, of.b_us / 1e3, of.us / 1e3


def _share(of: TimeChange, found: ProgramComparison) -> float | None:
    return of.us / found.window.us if found.window.us else None


def _parts(found: ProgramComparison) -> View:
    columns = (
        Column("", phrase("comparison.what")),
        _ms("a"),
        _ms("b"),
        _change(found),
        Column("", phrase("comparison.share"), spec=".0%"),
    )
    rows: list[tuple[Value, ...]] = []
    for kind, time in sorted(found.parts.items(), key=lambda item: -abs(item[1].us)):
        rows.append((worded(kind), *_times(time), _share(time, found)))
        if kind is PartKind.COLLECTIVES and found.waits:
            rows.append((phrase("comparison.of_it_waits"), *_times(found.waits), _share(found.waits, found)))
    rows.append((phrase("comparison.together"), *_times(found.window), None))
    kept = [row for row in rows if row[1] or row[2]]
    notes = () if found.work == 1.0 else (phrase("comparison.equal_work", work=found.work),)
    return View(columns, tuple(kept), title=phrase("comparison.time"), notes=notes)


def _ranks(found: ProgramComparison) -> View:
    kinds = [kind for kind, time in found.parts.items() if time.a_us or time.b_us]
    waiting = any(each.waits for each in found.ranks)
    columns = (
        Column("", phrase("comparison.rank")),
        _ms("a"),
        _ms("b"),
        _change(found),
        *(Column("", worded(kind), "ms", "+,.3f", narrow=Narrow.BELOW) for kind in kinds),
        *([Column("", phrase("comparison.waits"), "ms", "+,.3f", narrow=Narrow.BELOW)] if waiting else []),
    )
    rows = tuple(
        (
            phrase("comparison.gpu", device=each.device)
            if each.rank is None
            else phrase("comparison.rank_gpu", rank=each.rank, device=each.device),
            *_times(each.window),
            *(each.parts[kind].us / 1e3 for kind in kinds),
            *([each.waits.us / 1e3 if each.waits else None] if waiting else []),
        )
        for each in found.ranks
    )
    return View(columns, rows, title=phrase("comparison.ranks"), notes=(phrase("comparison.ranks_note"),))


def _first(items: Sequence[T], most: int | None) -> tuple[Sequence[T], int]:
    return items[:most], len(items) - len(items[:most])


def _kernels(found: ProgramComparison, most: int | None) -> View:
    columns = (
        Column("", phrase("comparison.kernel"), narrow=Narrow.ABOVE),
        Column("", phrase("comparison.count_a"), spec=",.0f"),
        Column("", phrase("comparison.count_b"), spec=",.0f"),
        Column("", phrase("comparison.mean_a"), "µs", ",.2f"),
        Column("", phrase("comparison.mean_b"), "µs", ",.2f"),
        _ms("a"),
        _ms("b"),
        _change(found),
    )
    kept, left = _first([each for each in found.kernels if each.us or most is None], most)
    rows = tuple(
        (
            kernel_name(each),
            *(side and side.count for side in (each.a, each.b)),
            *(side and side.mean_us for side in (each.a, each.b)),
            *(side and side.total_us / 1e3 for side in (each.a, each.b)),
            each.us / 1e3,
        )
        for each in kept
    )
    notes = (phrase("comparison.more_kernels", count=left),) if left else ()
    return View(columns, rows, title=phrase("comparison.program_kernels"), notes=notes)  # type: ignore[arg-type]


def _idle(found: ProgramComparison, items: Sequence[IdleChange], most: int | None) -> View:
    columns = (
        Column("", phrase("comparison.cause")),
        Column("", phrase("comparison.call")),
        _ms("a"),
        _ms("b"),
        _change(found),
        Column("", phrase("comparison.range"), narrow=Narrow.BELOW),
    )
    kept, left = _first(items, most)
    rows = tuple((worded(each.cause), each.call or "", *_times(each.time), each.range or "") for each in kept)
    notes = (phrase("comparison.more_causes", count=left),) if left else ()
    return View(columns, rows, title=phrase("comparison.idle"), notes=notes)


def _ranges(found: ProgramComparison, items: Sequence[RangeChange], most: int | None) -> View:
    columns = (
        Column("", phrase("comparison.range"), narrow=Narrow.ABOVE),
        Column("", phrase("comparison.count_a"), spec=",d"),
        Column("", phrase("comparison.count_b"), spec=",d"),
        _ms("a"),
        _ms("b"),
        _change(found),
    )
    kept, left = _first(items, most)
    rows = tuple(
        (each.range or phrase("comparison.outside_ranges"), each.a_count, each.b_count, *_times(each.time))
        for each in kept
    )
    notes = (phrase("comparison.more_ranges", count=left),) if left else ()
    return View(columns, rows, title=phrase("comparison.ranges"), notes=notes)
