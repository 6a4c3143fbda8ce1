"""``fiprof compare`` for programs: every number in rows of one form, the causes after what they explain."""

from __future__ import annotations

from collections.abc import Iterator

from fiprof.analysis.comparison.answer import outcome, sure
from fiprof.analysis.comparison.kernels import Evidence, KernelChange
from fiprof.analysis.comparison.programs import ProgramComparison, TimeChange
from fiprof.analysis.comparison.runs import CaseChange, RunComparison
from fiprof.model.provenance import TracedNumber
from fiprof.reports.view import Column, Value, View

KEYS = (
    "about", "case", "rank", "device", "range", "call", "kernel", "match", "item", "unit", "a", "b", "change",
    "accounts_us", "by",
)  # fmt: skip
COLUMNS = tuple(map(Column, KEYS))


def rows(found: RunComparison) -> View:
    """The rows, case by case, the largest change first."""
    made = [
        _row("side", item="run", a=found.a.run.manifest.name, b=found.b.run.manifest.name),
        _row("outcome", item=outcome(found).value, by=str(sure(found).kind)),
    ]
    made += [row for case in found.cases for row in _case(case)]
    if found.program:
        made += _program(found.program)
    made += [row for kernel in found.launches for row in _kernel(None, kernel)]
    return View(COLUMNS, tuple(made))


def _row(
    about: str, case: CaseChange | None = None, kernel: KernelChange | None = None, **cells: Value
) -> tuple[Value, ...]:
    a, b = cells.get("a"), cells.get("b")
    known: dict[str, Value] = {"about": about, "case": case.pair.b.id if case else None, **cells}
    if isinstance(a, float) and isinstance(b, float):
        known["change"] = b - a
    if kernel is not None:
        known |= {"kernel": kernel.shown.kernel, "match": kernel.match.value}
    return tuple(map(known.get, KEYS))


def _value(of: TracedNumber | None) -> float | None:
    return None if of is None else of.value


def _case(case: CaseChange) -> Iterator[tuple[Value, ...]]:
    for time in case.times:
        if time.a or time.b:
            key = time.quantity
            yield _row("case", case, item=key.key, unit=key.unit, a=_value(time.a), b=_value(time.b))
    if case.outside_us is not None:
        yield _row("outside_kernels", case, accounts_us=case.outside_us, by="plain")
    for kernel in case.kernels:
        yield from _kernel(case, kernel)


def _kernel(case: CaseChange | None, kernel: KernelChange) -> Iterator[tuple[Value, ...]]:
    sides = kernel.a, kernel.b
    by = "nsys" if all(each is None or each.nsys_us is not None for each in sides) else "ncu"
    a, b = (None if each is None else each.total_us for each in sides)
    yield _row(
        "kernel",
        case,
        kernel,
        item="iteration_us" if case else "total_us",
        unit="µs",
        a=a,
        b=b,
        accounts_us=kernel.us,
        by=by,
    )
    if any(kernel.evidence):
        of_sides = [_verdict(each) for each in kernel.evidence]
        for item in ("kind", "part", "confidence", "occupancy_limiters"):
            yield _row("verdict", case, kernel, item=item, a=of_sides[0].get(item), b=of_sides[1].get(item))
    for factor in kernel.factors:
        item = factor.reason or factor.kind
        yield _row("factor", case, kernel, item=item, a=factor.a, b=factor.b, accounts_us=factor.us, by="ncu")
    for delta in kernel.deltas:
        about, item = ("stall", delta.reason) if delta.reason else ("counter", delta.quantity.key)
        yield _row(about, case, kernel, item=item, unit=delta.quantity.unit, a=_value(delta.a), b=_value(delta.b))
    for place in kernel.moved:
        shares = {"a": place.a_share, "b": place.b_share}
        yield _row("hot_code", case, kernel, item=place.where, **shares, accounts_us=place.us, by="ncu")


def _program(found: ProgramComparison) -> Iterator[tuple[Value, ...]]:
    yield _row("work", item="executions_ratio", b=found.work, a=1.0)
    yield _time("window", found.window)
    for kind, time in found.parts.items():
        yield _time("part", time, item=kind.value)
    for each in found.ranks:
        who: dict[str, Value] = {"rank": each.rank, "device": each.device}
        yield _time("window", each.window, **who)
        for kind, time in each.parts.items():
            yield _time("part", time, item=kind.value, **who)
        if each.waits:
            yield _time("part", each.waits, item="waiting", **who)
    for kernel in found.kernels:
        yield from _kernel(None, kernel)
        yield _row("kernel", None, kernel, item="executions", **_both(kernel, "count"))
        yield _row("kernel", None, kernel, item="mean_us", unit="µs", **_both(kernel, "mean_us"))
    for cause in found.idle:
        yield _time("idle", cause.time, item=cause.cause.value, call=cause.call, range=cause.range)
    for named in found.ranges:
        yield _time("range", named.time, range=named.range)


def _both(kernel: KernelChange, name: str) -> dict[str, Value]:
    return {key: getattr(side, name) if side else None for key, side in (("a", kernel.a), ("b", kernel.b))}


def _time(about: str, of: TimeChange, **cells: Value) -> tuple[Value, ...]:
    return _row(about, None, None, unit="µs", a=of.a_us, b=of.b_us, accounts_us=of.us, by="nsys", **cells)


def _verdict(of: Evidence | None) -> dict[str, Value]:
    if of is None:
        return {}
    found = of.verdict
    limiters = tuple(each.value for each in of.limiters)
    return {
        "kind": str(found.kind),
        "part": found.part.value if found.part else None,
        "confidence": found.confidence.value,
        "occupancy_limiters": limiters,
    }
