"""What explains a kernel: what the time of the launch that stands for it is made of, its counters, its hot code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fiprof.analysis.comparison.factors import Factor, FactorKind
from fiprof.analysis.comparison.kernels import Delta, KernelChange
from fiprof.analysis.comparison.pairing import Match
from fiprof.model.provenance import sentence
from fiprof.reports import verdict_words
from fiprof.reports.run_report.sides import change
from fiprof.reports.view import Column, Sayable, Value, View
from fiprof.reports.words import phrase, templates_of, worded
from fiprof.text import short_kernel

MOST_FACTORS, MOST_MOVED = 6, 4
LEAST_SHARE = 0.02
"""Of a launch's time, that a place in the code accounts for to be worth a row."""


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
    order = list(templates_of("compared"))
    told = [each for each in of.deltas if f"compared.{each.quantity.key}" in order]
    told.sort(key=lambda each: order.index(f"compared.{each.quantity.key}"))
    counters = [row for each in told if (row := counter_row(each))]
    heads = tuple(Column("", phrase(f"comparison.{key}")) for key in ("counter", "a", "b", "change"))
    if counters:
        yield View(heads, tuple(counters))
    hot = [
        each for each in of.moved[:MOST_MOVED] if abs(each.us) >= LEAST_SHARE * max(filter(None, times), default=0.0)
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
    """A counter that differs, with how much; None for one that does not."""
    if of.a is None or of.b is None or not (told := change(of.b, of.a)):
        return None
    return phrase(f"compared.{of.quantity.key}"), sentence("{}", of.a), sentence("{}", of.b), told
