"""``fiprof compare --measure``: a row a case, how sure it is, and how many processes would decide it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fiprof.analysis.comparison.measured_result import ComparedCase, MeasuredComparison
from fiprof.analysis.comparison.statistics import Outcome
from fiprof.analysis.thresholds import FALSE_ALARMS, LEAST_CHANGE, SAME_WITHIN
from fiprof.model.finding import Finding, finding
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.model.wording import say
from fiprof.reports import charts
from fiprof.reports.view import Chart, Column, Document, Narrow, view_of

FOR_PEOPLE = ("pair", "interval")
DECIDED_BY = (
    Column(
        "low_pct", "", "%", "", "Lower end of its interval; those of all cases hold at once in 98 of 100 comparisons."
    ),
    Column("high_pct", "", "%", "", "Upper end."),
    Column("p", meaning="Share of the processes' relabellings in which some case differs as much."),
    Column("tells_pct", "", "%", "", "Least difference that so many processes and this noise tell from none."),
    Column("processes_needed", meaning="Processes a side that decide what cannot be told; null elsewhere."),
    Column("slow_clock_rounds", meaning="Rounds of its processes that count although the SM clock was not back."),
)
COLUMNS = (
    Column("pair", "case", narrow=Narrow.ABOVE),
    Column("a_case", meaning="Case id on side A; a range's name, or wall, of a program."),
    Column("b_case", meaning="The same on side B."),
    Column(
        "a_us", "A", "µs", ",.2f", "Geometric mean of the processes of A: of each the median of its rounds' medians."
    ),
    Column("b_us", "B", "µs", ",.2f", "The same of side B."),
    Column("difference_pct", "change", "%", "+z.2f", "Side B against side A."),
    Column("interval", "interval", "%"),
    Column(
        "outcome", "B is", meaning="Side B against side A: slower, faster, same or cannot_tell.", narrow=Narrow.KEEP
    ),
    *DECIDED_BY,
)

Label = Callable[[ComparedCase], str]


def measured_cells(case: ComparedCase, digits: int) -> dict[str, Any]:
    """Key -> what is measured of a case. digits: of the interval."""
    of = case.difference
    return {
        "a_us": case.mean_us("a"),
        "b_us": case.mean_us("b"),
        "difference_pct": of.difference_pct,
        "interval": f"{of.low_pct:+z.{digits}f} to {of.high_pct:+z.{digits}f}",
        "outcome": of.outcome,
        "low_pct": of.low_pct,
        "high_pct": of.high_pct,
        "p": of.p,
        "tells_pct": of.tells_pct,
        "processes_needed": of.processes_needed,
        "slow_clock_rounds": case.slow_clock_rounds,
    }


def document_of(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    shown: Sequence[Mapping[str, Any]],
    people: Sequence[str],
    **texts: Any,
) -> Document:
    """The rows for programs, and those that people are shown. people: keys of the columns that are for them alone."""
    return Document(
        view_of([each for each in columns if each.key not in people], rows), (view_of(columns, shown, **texts),)
    )


def document(found: MeasuredComparison, cases: Sequence[CaseEntry]) -> Document:
    """A row a case. cases: those of the run's manifest."""
    label = _labels(found, cases)
    rows = [
        {"pair": label(case), "a_case": case.a, "b_case": case.b, **measured_cells(case, 2)} for case in found.cases
    ]
    drawn = Chart(
        "B against A, with intervals",
        lambda: charts.intervals([(label(case), case) for case in found.cases], SAME_WITHIN.value),
        "A bar is the interval of the change, the stroke in it the change; a dot is a process against the mean of A. "
        f"Shaded: ±{SAME_WITHIN.value:g}%.",
    )
    counts = ((outcome, len(found.cases_of(outcome))) for outcome in Outcome)
    commits = {side: f" ({of.commit[:12]})" if of.commit else "" for side, of in (("a", found.a), ("b", found.b))}
    return document_of(
        COLUMNS,
        rows,
        rows,
        FOR_PEOPLE,
        title=f"B against A: {', '.join(f'{count} {outcome.words}' for outcome, count in counts if count)}",
        summary=(f"A: {found.a.spec}{commits['a']} · B: {found.b.spec}{commits['b']}", *_needed(found, label)),
        warnings=tuple(_warnings(found, label)),
        notes=(
            _how(found),
            "The intervals of all cases hold at once, and no case that is unchanged comes out slower or faster, in "
            f"{100 - FALSE_ALARMS.value:g} of 100 comparisons. Slower and faster are {LEAST_CHANGE.value:g}% at least; "
            f"same is within {SAME_WITHIN.value:g}%.",
        ),
        charts=(drawn,),
    )


def _labels(found: MeasuredComparison, cases: Sequence[CaseEntry]) -> Label:
    """A pair of cases in short: side A's, and side B's where it is another."""
    a, b = (
        Labels([case for case in cases if case.id in ids])
        for ids in ({each.a for each in found.cases}, {each.b for each in found.cases})
    )
    return lambda case: " → ".join(dict.fromkeys((a(case.a), b(case.b))))


def _needed(found: MeasuredComparison, label: Label) -> Iterator[str]:
    """How many processes would decide what cannot be told."""
    if unknown := found.cases_of(Outcome.CANNOT_TELL):
        yield say(
            "Cannot tell {cases}: the noise is ±{pct:.1f}%. --processes {processes} would tell, if difference and "
            "noise stay what they are.",
            cases=[label(case) for case in unknown],
            pct=max(case.difference.tells_pct for case in unknown),
            processes=max(case.difference.processes_needed or 0 for case in unknown),
        )


def _how(found: MeasuredComparison) -> str:
    if not found.kept_warm:
        return (
            f"{found.processes} processes a side, one after the other ({found.schedule}), after one of either that "
            "does not count."
        )
    repeated = "; {count:round|rounds} measured again because the clock was not back" if found.repeated_rounds else ""
    return say(
        "{processes} processes a side, kept warm, in turns ({schedule}), {rounds:round|rounds} each" + repeated + ".",
        processes=found.processes,
        schedule=found.schedule,
        rounds=found.rounds,
        count=found.repeated_rounds,
    )


def _warnings(found: MeasuredComparison, label: Label) -> Iterator[Finding]:
    for failed in found.failed:
        case = failed.b if failed.side == "b" else failed.a
        words = "{case} failed on side {side}: {reason}"
        yield finding("failed", words, case=case, side=failed.side.upper(), reason=failed.reason)
    yield from slow_clocks(found.cases, label)


def slow_clocks(cases: Iterable[ComparedCase], label: Label) -> Iterator[Finding]:
    """The cases of which rounds count although the clock was not back."""
    words = "{case}: the clock was not back in {count:round|rounds} of its processes, and repeating them did not help"
    for case in cases:
        if case.slow_clock_rounds:
            yield finding("slow_clock", words, case=label(case), count=case.slow_clock_rounds)
