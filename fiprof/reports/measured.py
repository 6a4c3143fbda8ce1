"""``fiprof compare --measure``: a row a case, how sure it is, and what would tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial

from fiprof.analysis.comparison.measured import ComparedCase, MeasuredComparison
from fiprof.analysis.comparison.statistics import Outcome
from fiprof.analysis.thresholds import FALSE_ALARMS, LEAST_CHANGE, SAME_WITHIN
from fiprof.model.finding import Finding
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.reports.columns import Cells, attribute, filled, for_programs
from fiprof.reports.pages.charts_measured import Interval, intervals_chart
from fiprof.reports.pages.page import Chart
from fiprof.reports.view import Column, Document, Narrow
from fiprof.reports.words import phrase, worded


class MeasuredWarning(StrEnum):
    """What a reader has to know of a comparison's cases."""

    FAILED = "failed"
    """With case, side and reason."""
    SLOW_CLOCK = "slow_clock"
    """With case and count."""


def document(found: MeasuredComparison, cases: Sequence[CaseEntry]) -> Document:
    """A row a case. cases: those of the run's manifest."""
    label = _labels(found, cases)
    columns: Cells = (
        (Column("", phrase("measured.case"), narrow=Narrow.ABOVE), lambda case: label(case.a, case.b)),
        (Column("a_case"), lambda case: case.a),
        (Column("b_case"), lambda case: case.b),
        *(
            (Column(f"{side}_us", phrase(f"measured.{side}"), "µs", ",.2f"), partial(mean_us, side=side))
            for side in ("a", "b")
        ),
        attribute("difference_pct", phrase("measured.difference"), "%", "+z.2f", of="difference.difference_pct"),
        (
            Column("", phrase("measured.interval_title"), "%"),
            lambda case: phrase("measured.interval", low=case.difference.low_pct, high=case.difference.high_pct),
        ),
        attribute("outcome", phrase("measured.result"), of="difference.outcome", narrow=Narrow.KEEP),
        *(attribute(key, of=f"difference.{key}") for key in ("low_pct", "high_pct", "p", "tells_pct")),
        attribute("processes_needed", of="difference.processes_needed"),
        attribute("slow_clock_rounds"),
    )
    counts = ((outcome, len(found.cases_of(outcome))) for outcome in Outcome)
    shown = filled(
        columns,
        found.cases,
        title=phrase(
            "measured.title",
            counts=", ".join(phrase("measured.count", outcome=worded(each), count=n) for each, n in counts if n),
        ),
        summary=(_sides(found), *_needed(found, label)),
        warnings=tuple(_warnings(found, label)),
        notes=(_how(found), _alarms()),
    )
    return Document(filled(for_programs(*columns), found.cases), (shown,))


def chart(found: MeasuredComparison, cases: Sequence[CaseEntry]) -> Chart:
    """The intervals, and every process."""
    label = _labels(found, cases)
    return intervals_chart(
        "intervals",
        phrase("measured.chart"),
        [_interval(case, label) for case in found.cases],
        same=SAME_WITHIN.value,
        caption=phrase("measured.chart_note", same=SAME_WITHIN.value),
    )


def _interval(case: ComparedCase, label: Callable[[str, str], str]) -> Interval:
    of, mean_a_us = case.difference, mean_us(case, "a")
    sides = {"A": case.a_us, "B": case.b_us}
    return Interval(
        label(case.a, case.b),
        of.low_pct,
        of.difference_pct,
        of.high_pct,
        phrase("measured.words", pct=of.difference_pct, outcome=worded(of.outcome)),
        tuple((side, 100 * (us / mean_a_us - 1)) for side, times in sides.items() for us in times),
    )


def _labels(found: MeasuredComparison, cases: Sequence[CaseEntry]) -> Callable[[str, str], str]:
    """A pair of case ids in short: side A's, and side B's where it is another."""
    sides = [
        Labels([case for case in cases if case.id in ids])
        for ids in ({each.a for each in found.cases}, {each.b for each in found.cases})
    ]

    def label(a: str, b: str) -> str:
        names = sides[0](a), sides[1](b)
        return names[0] if names[0] == names[1] else phrase("measured.pair", a=names[0], b=names[1])

    return label


def _sides(found: MeasuredComparison) -> str:
    commits = {
        f"{name}_commit": phrase("measured.commit", commit=side.commit[:12]) if side.commit else ""
        for name, side in (("a", found.a), ("b", found.b))
    }
    return phrase("measured.sides", a=found.a.spec, b=found.b.spec, **commits)


def _needed(found: MeasuredComparison, label: Callable[[str, str], str]) -> Iterator[str]:
    """How many processes would decide what cannot be told."""
    if unknown := found.cases_of(Outcome.CANNOT_TELL):
        yield phrase(
            "measured.needed",
            cases=[label(case.a, case.b) for case in unknown],
            pct=max(case.difference.tells_pct for case in unknown),
            processes=max(case.difference.processes_needed or 0 for case in unknown),
        )


def _how(found: MeasuredComparison) -> str:
    if not found.kept_warm:
        return phrase("measured.programs", processes=found.processes, schedule=found.schedule)
    repeated = phrase("measured.repeated", count=found.repeated_rounds) if found.repeated_rounds else ""
    return phrase(
        "measured.warm",
        processes=found.processes,
        schedule=found.schedule,
        rounds=found.rounds,
        repeated=repeated,
    )


def _alarms() -> str:
    limits = {"least": LEAST_CHANGE.value, "same": SAME_WITHIN.value}
    return phrase("measured.alarms", sure=100 - FALSE_ALARMS.value, **limits)


def _warnings(found: MeasuredComparison, label: Callable[[str, str], str]) -> Iterator[Finding]:
    for failed in found.failed:
        case = failed.b if failed.side == "b" else failed.a
        yield Finding(MeasuredWarning.FAILED, {"case": case, "side": failed.side.upper(), "reason": failed.reason})
    yield from slow_clocks(found.cases, lambda case: label(case.a, case.b))


def slow_clocks(cases: Iterable[ComparedCase], label: Callable[[ComparedCase], str]) -> Iterator[Finding]:
    """Of which cases rounds count although the clock was not back."""
    for case in cases:
        if case.slow_clock_rounds:
            yield Finding(MeasuredWarning.SLOW_CLOCK, {"case": label(case), "count": case.slow_clock_rounds})


def mean_us(case: ComparedCase, side: str) -> float:
    """Of a side's processes the geometric mean, which differences are of."""
    times: Sequence[float] = getattr(case, f"{side}_us")
    return math.exp(math.fsum(map(math.log, times)) / len(times))
