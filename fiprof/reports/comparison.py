"""``fiprof compare`` as tables: what changed in each case, where the change is, and what explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fiprof.analysis.comparison.answer import LEADS, change_of, reasons, sure
from fiprof.analysis.comparison.factors import Factor, FactorKind
from fiprof.analysis.comparison.kernels import Delta, KernelChange
from fiprof.analysis.comparison.pairing import Match
from fiprof.analysis.comparison.runs import CaseChange, RunComparison, Side, Time
from fiprof.analysis.thresholds import WORTH_CHANGING
from fiprof.model.case_quantities import NCU, NSYS
from fiprof.reports import verdict_words
from fiprof.reports.comparison_rows import rows
from fiprof.reports.run_report.sides import change
from fiprof.reports.view import Column, Document, Narrow, Sayable, Value, View
from fiprof.reports.words import phrase, templates_of, worded
from fiprof.text import short_kernel

MOST_CASES, MOST_DETAILED, MOST_KERNELS, MOST_FACTORS, MOST_MOVED = 12, 2, 5, 6, 4
LEAST_POINTS = 2.0
"""Points of a stall's share, and percent of a launch's time, from which a row is worth its place."""


def document(found: RunComparison, *, every: bool = False) -> Document:
    """Tables for people; for programs every number in rows of one form. every: leave out nothing."""
    return Document(
        programs=lambda: rows(found),
        shown=tuple(_shown(found, every)),
        warnings=tuple(each.finding for each in found.conditions),
    )


def side(of: Side) -> str:
    """``NAME, backend=fa2``."""
    params = ", ".join(f"{name}={value}" for name, value in of.params.items())
    name = of.run.manifest.name
    return phrase("comparison.side_params", run=name, params=params) if params else phrase("comparison.side", run=name)


# For people


def _shown(found: RunComparison, every: bool) -> Iterator[View]:
    yield View((), (), summary=tuple(summary(found)))
    if len(found.cases) > 1:
        yield cases_table(found, None if every else MOST_CASES)
    notable = [case for case in found.cases if every or case.notable]
    for case in notable if every else notable[:MOST_DETAILED]:
        yield kernels_table(case)
        for kernel in case.kernels:
            if kernel.factors and (every or _leads(kernel, case)):
                yield from launch_tables(kernel)


def summary(found: RunComparison) -> Iterator[Sayable]:
    """The answer in sentences: what changed, why, how sure."""
    first = found.cases[0]
    yield worded(change_of(first))
    if first.notable and (why := tuple(reasons(first))):
        yield phrase("comparison.most", reasons="; ".join(map(worded, why)))
    if len(found.cases) > 1:
        signs = [(case.time.change or 0.0) if case.time and case.notable else 0.0 for case in found.cases]
        counts = {"longer": sum(sign > 0 for sign in signs), "shorter": sum(sign < 0 for sign in signs)}
        within = len(signs) - sum(counts.values())
        yield phrase("comparison.several", count=len(signs), within=within, marked=WORTH_CHANGING.value, **counts)
    yield worded(sure(found))
    yield phrase("comparison.sides", a=side(found.a), b=side(found.b))
    for each in dict.fromkeys(each for case in found.cases for each in case.pair.different):
        yield phrase("comparison.different", name=each.name, a=each.a, b=each.b)
    for name, run, left in (("A", found.a.run, found.only_a), ("B", found.b.run, found.only_b)):
        if left:
            yield phrase("comparison.only", side=name, cases=tuple(run.labels(case.id) for case in left))


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


def _leads(kernel: KernelChange, case: CaseChange) -> bool:
    """Whether a kernel accounts for enough of its case's change to be explained."""
    total = case.time.change if case.time else None
    return bool(total) and abs(kernel.us) >= LEADS * abs(total or 0.0)


def kernels_table(case: CaseChange) -> View:
    """Where a case's change is: a row a kernel, and the time outside of them."""
    time = case.time
    total = time.change if time else None
    columns = (
        Column("", phrase("comparison.kernel"), wrap=True, narrow=Narrow.ABOVE),
        Column("", phrase("comparison.a"), "µs", ",.2f"),
        Column("", phrase("comparison.b"), "µs", ",.2f"),
        Column("", phrase("comparison.change"), "µs", "+,.2f"),
        Column("", phrase("comparison.share"), "", ".0%"),
    )
    rows: list[tuple[Value, ...]] = []
    for each in case.kernels[:MOST_KERNELS]:
        us = [None if which is None else which.total_us for which in (each.a, each.b)]
        rows.append((kernel_name(each), *us, each.us, total and each.us / total))
    if rest := case.kernels[MOST_KERNELS:]:
        us = [
            sum(which.total_us for which in sides if which)
            for sides in zip(*((each.a, each.b) for each in rest), strict=True)
        ]
        change_us = sum(each.us for each in rest)
        rows.append((phrase("comparison.other_kernels", count=len(rest)), *us, change_us, total and change_us / total))
    if case.outside_us is not None:
        rows.append((phrase("comparison.outside"), None, None, case.outside_us, total and case.outside_us / total))
    return View(
        columns,
        tuple(rows),
        title=phrase("comparison.kernels", case=case.label),
        notes=(phrase("comparison.kernels_note", by=time.quantity.key, kernels_by=kernels_by(case)),) if time else (),
    )


def kernels_by(case: CaseChange) -> str:
    """The quantity of a case that its kernels' times are of."""
    sides = [which for each in case.kernels for which in (each.a, each.b) if which]
    return NSYS.key if all(which.nsys_us is not None for which in sides) else NCU.key


def kernel_name(of: KernelChange) -> str:
    """``Kernel``, ``Old → New``, ``Kernel (new)``."""
    detail = f" ({of.shown.detail})" if of.shown.detail else ""
    name = short_kernel(of.shown.kernel) + detail
    if of.match is Match.REPLACED and of.a:
        return phrase("comparison.replaced", before=short_kernel(of.a.kernel), kernel=name)
    word = worded(of.match)
    return f"{name} ({word})" if word else name


def launch_tables(of: KernelChange) -> Iterator[View]:
    """What explains a kernel: what its time is made of, its counters, its hot code."""
    a, b = of.evidence
    assert a and b
    times = [each.launch.duration_us for each in (a, b)]
    title = phrase("comparison.launch", kernel=kernel_name(of), a=f"{times[0]:,.2f}", b=f"{times[1]:,.2f} µs")
    yield View((), (), title=title, summary=tuple(_verdicts(of)))
    yield _factors(of.factors)
    counters = [row for each in of.deltas if (row := counter_row(each))]
    heads = [
        Column("", phrase(f"comparison.{key}"), spec=spec)
        for key, spec in (("counter", ""), ("a", ""), ("b", ""), ("change", ""))
    ]
    if counters:
        yield View(tuple(heads), tuple(counters))
    hot = [
        each
        for each in of.moved[:MOST_MOVED]
        if abs(each.us) >= LEAST_POINTS / 100 * max(filter(None, times), default=0.0)
    ]
    if hot:
        columns = (
            Column("", worded(hot[0].by)),
            Column("", phrase("comparison.samples_a"), spec=".1%"),
            Column("", phrase("comparison.samples_b"), spec=".1%"),
            Column("", phrase("comparison.accounts"), "µs", "+,.2f"),
            Column("", phrase("comparison.waits_for")),
        )
        yield View(columns, tuple((each.where, each.a_share, each.b_share, each.us, each.reason or "") for each in hot))


def _verdicts(of: KernelChange) -> Iterator[Sayable]:
    a, b = of.evidence
    assert a and b
    titles = [verdict_words.short_title(each.verdict) for each in (a, b)]
    key = "verdict_same" if titles[0] == titles[1] else "verdict"
    yield phrase(f"comparison.{key}", a=titles[0], b=titles[1])
    limiters = [tuple(map(worded, each.limiters)) for each in (a, b)]
    if all(limiters):
        key = "limiters_same" if limiters[0] == limiters[1] else "limiters"
        yield phrase(f"comparison.{key}", a=limiters[0], b=limiters[1])


def _factors(found: Sequence[Factor]) -> View:
    columns = (
        Column("", phrase("comparison.factors")),
        Column("", phrase("comparison.a"), spec=",.3g"),
        Column("", phrase("comparison.b"), spec=",.3g"),
        Column("", phrase("comparison.accounts"), "µs", "+,.2f"),
    )
    known = [each for each in found if each.kind is not FactorKind.REST]
    kept = known[:MOST_FACTORS]
    rows: list[tuple[Value, ...]] = [(factor_name(each), _count(each.a), _count(each.b), each.us) for each in kept]
    left = sum(each.us for each in found if each not in kept)
    rows.append((phrase("comparison.rest"), None, None, left))
    return View(columns, tuple(rows))


def factor_name(of: Factor) -> str:
    """What a part of a launch's time is called."""
    return phrase(f"factor_kind.{of.kind.name.lower()}", reason=of.reason)


def _count(value: float | None) -> float | str | None:
    return value if value is None or value < 1000 else f"{value:,.0f}"


def counter_row(of: Delta) -> tuple[Value, ...] | None:
    """A counter that differs, with how much; None for one that is not shown or does not."""
    if f"compared.{of.quantity.key}" not in templates_of("compared"):
        return None
    name = phrase(f"compared.{of.quantity.key}", of=of.reason)
    if of.a is None or of.b is None:
        return None
    if not (told := change(of.b, of.a)):
        return None
    return name, str(of.a), str(of.b), told
