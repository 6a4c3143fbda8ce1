"""The cases of a comparison as tables: all of them, and of one where its change is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fiprof.analysis.comparison.answer import LEADS, change_of, reasons
from fiprof.analysis.comparison.kernels import KernelChange
from fiprof.analysis.comparison.runs import CaseChange, RunComparison, Time
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.model.case_quantities import NCU, NSYS
from fiprof.reports.comparison.launch import kernel_name
from fiprof.reports.view import Column, Narrow, Sayable, Value, View
from fiprof.reports.words import phrase, worded

MOST_CASES, MOST_KERNELS = 12, 5


def summary(found: RunComparison) -> Iterator[Sayable]:
    """What changed, and why."""
    first = found.cases[0]
    yield change_of(first)
    if first.notable and (why := tuple(reasons(first))):
        yield phrase("comparison.most", reasons="; ".join(map(worded, why)))
    if len(found.cases) > 1:
        signs = [(case.time.change or 0.0) if case.time and case.notable else 0.0 for case in found.cases]
        counts = {"longer": sum(sign > 0 for sign in signs), "shorter": sum(sign < 0 for sign in signs)}
        within = len(signs) - sum(counts.values())
        yield phrase("comparison.several", count=len(signs), within=within, marked=WORTH_CHANGING.value, **counts)


def cases_table(found: RunComparison, most: int | None) -> View:
    """A row a case."""
    columns = (
        Column("", phrase("comparison.case"), narrow=Narrow.ABOVE),
        Column("", phrase("comparison.a"), "µs", ",.2f"),
        Column("", phrase("comparison.b"), "µs", ",.2f"),
        Column("", phrase("comparison.change"), "µs", "+,.2f"),
        Column("", phrase("comparison.change_pct"), "", "+.1f"),
        Column("", phrase("comparison.most_of_it"), wrap=True, narrow=Narrow.BELOW),
    )
    rows = tuple(
        (
            case.label,
            *_times(case.time),
            "; ".join(map(worded, reasons(case))) if case.notable else "",
        )
        for case in found.cases[:most]
    )
    left = len(found.cases) - len(rows)
    notes = (phrase("comparison.more_cases", count=left),) if left else ()
    return View(columns, rows, title=phrase("comparison.cases"), notes=notes)


def _times(time: Time | None) -> tuple[Value, ...]:
    if time is None or time.a is None or time.b is None:
        return None, None, None, None
    return time.a.value, time.b.value, time.change, None if time.share is None else 100 * time.share


def leads(kernel: KernelChange, case: CaseChange) -> bool:
    """Whether a kernel accounts for enough of its case's change to be explained."""
    total = case.time.change if case.time else None
    return bool(total) and abs(kernel.us) >= LEADS * abs(total or 0.0)


def kernels_table(case: CaseChange) -> View:
    """Where a case's change is: a row a kernel, and the time outside of them."""
    time = case.time
    total = time.change if time else None
    rows = _kernel_rows(case.kernels, total)
    if case.outside_us is not None:
        rows.append((phrase("comparison.outside"), None, None, case.outside_us, total and case.outside_us / total))
    notes = (phrase("comparison.kernels_note", by=time.quantity.key, kernels_by=kernels_by(case)),) if time else ()
    return View(_columns(), tuple(rows), title=phrase("comparison.kernels", case=case.label), notes=notes)


def launches_table(kernels: Sequence[KernelChange]) -> View:
    """The same of profiles without cases: what was profiled of each kernel."""
    total = sum(each.us for each in kernels)
    return View(_columns(), tuple(_kernel_rows(kernels, total)), title=phrase("comparison.launches"))


def _columns() -> tuple[Column, ...]:
    return (
        Column("", phrase("comparison.kernel"), wrap=True, narrow=Narrow.ABOVE),
        Column("", phrase("comparison.a"), "µs", ",.2f"),
        Column("", phrase("comparison.b"), "µs", ",.2f"),
        Column("", phrase("comparison.change"), "µs", "+,.2f"),
        Column("", phrase("comparison.share"), "", ".0%"),
    )


def _kernel_rows(kernels: Sequence[KernelChange], total: float | None) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for each in kernels[:MOST_KERNELS]:
        us = [None if which is None else which.total_us for which in (each.a, each.b)]
        rows.append((kernel_name(each), *us, each.us, total and each.us / total))
    if rest := kernels[MOST_KERNELS:]:
        sums = [sum(which.total_us for each in rest if (which := getattr(each, side))) for side in ("a", "b")]
        change_us = sum(each.us for each in rest)
        rows.append(
            (phrase("comparison.other_kernels", count=len(rest)), *sums, change_us, total and change_us / total)
        )
    return rows


def kernels_by(case: CaseChange) -> str:
    """The quantity of a case that its kernels' times are of."""
    sides = [which for each in case.kernels for which in (each.a, each.b) if which]
    return NSYS.key if all(which.nsys_us is not None for which in sides) else NCU.key
