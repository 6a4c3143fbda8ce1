"""Sides measured in turns: ``fiprof compare --measure`` a row a case, ``fiprof gate`` against what is allowed, with
JUnit XML and annotations of GitHub; and the baselines that gates compare with."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fiprof.analysis.comparison import measured_result
from fiprof.analysis.comparison.measured_result import ComparedCase, Decision, Gate, GatedCase
from fiprof.analysis.comparison.statistics import Outcome
from fiprof.analysis.thresholds import FALSE_ALARMS, LEAST_CHANGE, SAME_WITHIN
from fiprof.model.baselines import SHORT_COMMIT, NamedBaseline
from fiprof.model.finding import Finding, finding, say, words_of
from fiprof.model.manifest import CaseEntry, fact
from fiprof.model.selection import Labels, by_key
from fiprof.reports import charts
from fiprof.reports.timeline_text import time_words
from fiprof.reports.view import Chart, Column, Document, Narrow, View, left_out, view_of
from fiprof.text import escape_control

MOST_GRAVE, MOST_OTHERS = 100, 20
"""Rows for people: slower or cannot be told, and the rest. A comment on GitHub holds 65,536 characters."""
MOST_ANNOTATIONS = 10  # annotations of one level that GitHub shows of a step; its documentation of workflow commands

DECIDED_BY = (
    Column("low_pct", "", "%", "", "Lower end of its interval; all cases' hold at once in 98 of 100 comparisons."),
    Column("high_pct", "", "%", "", "Upper end."),
    Column(
        "p",
        meaning="The larger of two: share of the processes' relabellings in which some case differs as much, and "
        "Welch's p times the number of cases.",
    ),
    Column("tells_pct", "", "%", "", "Least difference that so many processes and this noise tell from none."),
    Column("processes_needed", meaning="Processes a side that decide what cannot be told; null elsewhere."),
    Column("spread_ratio", meaning="Spread between the processes of side B over that of A, 0.1% added to both."),
    Column("spread_p", meaning="The same as p, of the spreads."),
    Column("slow_clock_rounds", meaning="Rounds of its processes that count although the SM clock was not back."),
    Column("a_host_us", "", "µs", "", "What launching an iteration takes the host on side A; null of programs."),
    Column("b_host_us", "", "µs", "", "The same of side B."),
    Column("host_difference_pct", "", "%", "", "Side B against side A, of these."),
    Column("host_p", meaning="The same as p, of these."),
    Column("a_peak_bytes", "", "bytes", "", "Most device memory of side A at a time, by torch; null of programs."),
    Column("b_peak_bytes", "", "bytes", "", "The same of side B."),
)
COLUMNS = (
    Column("pair", "case", narrow=Narrow.ABOVE),
    Column("a_case", meaning="Case id on side A; a range's name, or wall, of a program."),
    Column("b_case", meaning="The same on side B."),
    Column("a_us", "A", "µs", ",.2f", "Geometric mean of A's processes: of each the median of its rounds' medians."),
    Column("b_us", "B", "µs", ",.2f", "The same of side B."),
    Column("difference_pct", "change", "%", "+z.2f", "Side B against side A."),
    Column("interval", "interval", "%"),
    Column("outcome", "B is", meaning="Against side A: slower, faster, same or cannot_tell.", narrow=Narrow.KEEP),
    *DECIDED_BY,
)
BASELINES = (
    Column("baseline", "baseline", meaning="Its name.", narrow=Narrow.KEEP),
    Column("run", "run", meaning="The run that it names.", narrow=Narrow.KEEP),
    Column("commit", meaning="Commit that is measured; null where the run's tree is in no commit."),
    Column("short_commit", "commit"),
    Column("count", "cases", spec=",d"),
    Column("cases", meaning="Ids of its cases; null where its run is not in the archive."),
    Column("set", "set", narrow=Narrow.BELOW),
    Column("set_at", meaning="When, ISO 8601 with offset."),
    Column("set_by", "by", meaning="user@host.", narrow=Narrow.BELOW),
)
FOR_PEOPLE = ("pair", "result", "interval", "short_commit", "count", "set")  # keys of columns that programs do not get


def _document(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], shown: Sequence[Mapping[str, Any]], **texts: Any
) -> Document:
    """rows: all of them, for programs; shown: those that people are shown."""
    programs = view_of([each for each in columns if each.key not in FOR_PEOPLE], rows)
    return Document(programs, (view_of(columns, shown, **texts),))


def _cells(case: ComparedCase, digits: int) -> dict[str, Any]:
    """Key -> what is measured of a case. digits: of the interval."""
    of = case.difference
    times = {"a_us": case.mean_us("a"), "b_us": case.mean_us("b"), "slow_clock_rounds": case.slow_clock_rounds}
    times |= {name: getattr(case, name) for name in ("a_peak_bytes", "b_peak_bytes")}
    hosts = dict.fromkeys(("a_host_us", "b_host_us", "host_difference_pct", "host_p"))
    if case.host is not None:
        measured = case.host_mean_us("a"), case.host_mean_us("b"), case.host.difference_pct, case.host.p
        hosts |= zip(hosts, measured, strict=True)
    return {**vars(of), **times, **hosts, "interval": f"{of.low_pct:+z.{digits}f} to {of.high_pct:+z.{digits}f}"}


def _of_processes(cases: Iterable[ComparedCase], label: Callable[[ComparedCase], str]) -> Iterator[Finding]:
    """The cases that launching makes slower on side B, that take more memory there, whose processes differ more there,
    and those with rounds that count at a lower clock."""
    launching = "{case}: launching takes longer. The host takes {b} for an iteration of B and {a} of A ({low:+.0f} to "
    launching += "{high:+.0f}%), the GPU {gpu}: without a CUDA graph it waits for the host"
    memory = "{case}: its device memory grew. It takes {b:,.1f} MB on B and {a:,.1f} on A ({pct:+.1f}%)"
    grew = "{case}: its spread grew. Processes of B vary by {b:.2g}%, of A by {a:.2g}% (standard deviation; p {p:.2g})"
    words = "{case}: the clock was not back in {count:round|rounds} of its processes, and repeating them did not help"
    for case in cases:
        if case.host and case.launching_pct:
            values = {side: time_words(case.host_mean_us(side)) for side in ("a", "b")}
            values["gpu"], low, high = time_words(case.mean_us("b")), case.host.low_pct, case.host.high_pct
            yield finding("launching_grew", launching, case=label(case), low=low, high=high, p=case.host.p, **values)
        if case.a_peak_bytes and case.b_peak_bytes and case.memory_pct >= LEAST_CHANGE:
            a, b = case.a_peak_bytes / 1e6, case.b_peak_bytes / 1e6
            yield finding("memory_grew", memory, case=label(case), a=a, b=b, pct=case.memory_pct)
        if (of := case.difference).spread_grew:
            a, b = case.spread_pct("a"), case.spread_pct("b")
            yield finding("spread_grew", grew, case=label(case), a=a, b=b, ratio=of.spread_ratio, p=of.spread_p)
        if case.slow_clock_rounds:
            yield finding("slow_clock", words, case=label(case), count=case.slow_clock_rounds)


def document(comparison: measured_result.MeasuredComparison) -> Document:
    """A row a case, how sure it is, and how many processes would decide it."""
    of_a, of_b = Labels(each.a for each in comparison.cases), Labels(each.b for each in comparison.cases)

    def label(case: ComparedCase) -> str:
        """In short: side A's, and side B's where it is another."""
        return " → ".join(dict.fromkeys((of_a(case.a), of_b(case.b))))

    rows = [{"pair": label(case), "a_case": case.a, "b_case": case.b, **_cells(case, 2)} for case in comparison.cases]
    counts = ((outcome, len(comparison.cases_of(outcome))) for outcome in Outcome)
    commits = {
        side: f" ({of.commit[:12]})" if of.commit else "" for side, of in (("a", comparison.a), ("b", comparison.b))
    }
    summary = [f"A: {comparison.a.spec}{commits['a']} · B: {comparison.b.spec}{commits['b']}"]
    if unknown := comparison.cases_of(Outcome.CANNOT_TELL):
        words = "Cannot tell {cases}: the noise is ±{pct:.1f}%. --processes {processes} would tell, if difference and "
        words += "noise stay what they are."
        pct = max(case.difference.tells_pct for case in unknown)
        processes = max(case.difference.processes_needed or 0 for case in unknown)
        summary.append(say(words, cases=[label(case) for case in unknown], pct=pct, processes=processes))
    words = "{case} failed on side {side}: {reason}"
    warnings = [
        finding("failed", words, case=getattr(each, each.side), side=each.side.upper(), reason=each.reason)
        for each in comparison.failed
    ]
    how = "{processes} processes a side, kept warm, in turns, {rounds:round|rounds} each in an order drawn anew"
    if comparison.repeated_rounds:
        how += "; {count:round|rounds} measured again because the clock was not back"
    if not comparison.kept_warm:
        how = "{processes} processes a side, one after the other ({schedule}), after one of either that does not count"
    values = {"processes": comparison.processes, "schedule": comparison.schedule, "rounds": comparison.rounds}
    drawn = Chart(
        "B against A, with intervals",
        lambda: charts.intervals([(label(case), case) for case in comparison.cases], SAME_WITHIN),
        "A bar is the interval of the change, the stroke in it the change; a dot is a process against the mean of A. "
        f"Shaded: ±{SAME_WITHIN:g}%.",
    )
    return _document(
        COLUMNS,
        rows,
        rows,
        title=f"B against A: {', '.join(f'{count} {outcome.words}' for outcome, count in counts if count)}",
        summary=tuple(summary),
        warnings=(*warnings, *_of_processes(comparison.cases, label)),
        notes=(
            say(f"{how}.", count=comparison.repeated_rounds, **values),
            "The intervals of all cases hold at once, and no case that is unchanged comes out slower or faster, in "
            f"{100 - FALSE_ALARMS:g} of 100 comparisons. Slower and faster are {LEAST_CHANGE:g}% at least; "
            f"same is within {SAME_WITHIN:g}%.",
        ),
        charts=(drawn,),
    )


def gate_document(gate: Gate, *, every: bool = False) -> Document:
    """The answer, and a row a case. every: leave out nothing."""
    label = Labels(case.id for case in gate.run.cases)
    columns = (
        Column("result", "result", narrow=Narrow.KEEP),
        Column("decision", meaning=f"{', '.join(Decision)}; within: the limit."),
        Column("case", meaning="Case id in this tree; in the baseline's where it is gone."),
        Column("label", "case", narrow=Narrow.ABOVE),
        Column("a_us", gate.against, "µs", ",.2f", "Geometric mean of the processes of side A."),
        Column("b_us", "now", "µs", ",.2f", "The same of side B."),
        Column("difference_pct", "change", "%", "+z.1f", "Side B against side A."),
        Column("interval", "interval", "%"),
        *DECIDED_BY,
        Column("reason", meaning="Why it was not measured, in one line."),
        Column("max_slowdown_pct", "", "%", "", "The gate's limit."),
        Column("against", meaning="The baseline's name, or the side in its place."),
    )

    def row(case: GatedCase) -> dict[str, Any]:
        cells = dict.fromkeys(each.key for each in columns) | (_cells(case.compared, 1) if case.compared else {})
        of_gate = {"max_slowdown_pct": gate.max_slowdown_pct, "against": gate.against}
        return cells | vars(case) | of_gate | {"result": case.decision.words, "label": label(case.case)}

    grave = gate.of(Decision.FAILED, Decision.SLOWER, *measured_result.DOUBTS)
    others = [case for case in gate.cases if case not in grave]
    shown = [*gate.cases] if every else [*grave[:MOST_GRAVE], *others[:MOST_OTHERS]]
    notes = left_out("{count:other case|other cases}: --all shows them.", len(gate.cases) - len(shown))
    note = "slower: beyond the noise, and by {limit:g}% or more. cannot tell: the noise leaves room for {limit:g}%. Of "
    note += "gates on unchanged code, at most {alarms:g} in 100 fail."
    return _document(
        columns,
        [row(case) for case in gate.cases],
        [row(case) for case in shown],
        title=answer(gate),
        warnings=tuple(_warnings(gate)),
        summary=(_sides(gate),),
        notes=(*notes, say(note, limit=gate.max_slowdown_pct, alarms=FALSE_ALARMS)),
    )


def answer(gate: Gate) -> str:
    """``1 of 8 cases slower than main by 3% or more``."""
    against, limit = gate.against, f"{gate.max_slowdown_pct:g}%"
    slower, failed, unknown = (len(gate.of(each)) for each in (Decision.SLOWER, Decision.FAILED, Decision.CANNOT_TELL))
    total = failed + len(gate.comparison.cases)
    cases = f"{total} case{'' if total == 1 else 's'}"
    if slower:
        return f"{slower} of {cases} slower than {against} by {limit} or more"
    if failed:
        return f"{failed} of {cases} fail in this tree"
    if unknown:
        return f"No case is found slower than {against} by {limit} or more; {unknown} of {total} cannot be told"
    return f"No case is slower than {against} by {limit} or more"


def why(gate: Gate) -> str:
    return answer(gate) if gate.slower else words_of(next(_warnings(gate)))


def _sides(gate: Gate) -> str:
    a, b = gate.comparison.a, gate.comparison.b
    short = a.commit[:SHORT_COMMIT] if a.commit else ""
    before = a.spec.replace(a.commit, short) if a.commit else a.spec
    if a.commit and a.commit not in a.spec:
        before += f" ({short})"
    now, commit = ("This tree", gate.run.environment.get("git")) if b.spec == measured_result.HERE else (b.spec, None)
    if isinstance(commit, str):
        now += f" ({commit})"
    gpu = fact(b.environment, "gpu", "name") or "GPU"
    return f"{now} against {before}: {gate.comparison.processes} processes a side, in turns, on one {gpu}."


def _warnings(gate: Gate) -> Iterator[Finding]:
    label = Labels(case.id for case in gate.run.cases)
    if unknown := gate.of(Decision.CANNOT_TELL):
        words = "{count:case|cases} cannot be told: the noise leaves room for more than {limit:g}%. --processes "
        words += "{needed} would tell, or a GPU without other users."
        needed = max(case.processes_needed or 0 for case in unknown)
        yield finding("cannot_tell", words, count=len(unknown), limit=gate.max_slowdown_pct, needed=needed)
    for decision, words in (
        (Decision.FAILED, "in this tree {cases} fail: {reason}"),
        (Decision.GONE, "{against} has {cases}, this tree does not: {reason}"),
    ):
        for reason, labels in by_key((case.reason, label(case.case)) for case in gate.of(decision)).items():
            yield finding(decision.value, words, cases=tuple(labels), against=gate.against, reason=reason)
    yield from _of_processes(gate.comparison.cases, lambda case: label(case.b))


_SLOWER = "{pct:.1f}% slower than {against} ({low:+z.1f} to {high:+z.1f}%): {a} → {b}. The limit is {limit:g}%."
_SENTENCES = {
    Decision.FAILED: "It fails in this tree: {reason}",
    Decision.SLOWER: _SLOWER,
    Decision.WITHIN: _SLOWER,
    Decision.LAUNCHING: "Launching takes the host {host:.1f}% longer, and longer than the GPU works: a loop without a "
    "CUDA graph takes so long. The limit is {limit:g}%.",
    Decision.MEMORY: "It takes {memory:.1f}% more device memory than {against}. The limit is {limit:g}%.",
    Decision.CANNOT_TELL: "Cannot tell it from {against} ({low:+z.1f} to {high:+z.1f}%): the noise leaves room for "
    "more than the limit of {limit:g}%. {needed} processes a side would tell.",
    Decision.FASTER: "{pct:.1f}% faster than {against} ({low:+z.1f} to {high:+z.1f}%): {a} → {b}.",
    Decision.PASSED: "Not slower than {against} by {limit:g}% ({low:+z.1f} to {high:+z.1f}%): {a} → {b}.",
    Decision.GONE: "{against} has it, this tree does not: {reason}",
    Decision.NEW: "Not in {against}, so there is nothing to compare it with. {reason}",
}


def _sentence(gate: Gate, case: GatedCase) -> str:
    """What is said of a case where there is no table."""
    values: dict[str, Any] = {"against": gate.against, "limit": gate.max_slowdown_pct, "reason": case.reason}
    if case.compared:
        of = case.compared.difference
        values |= {"pct": abs(of.difference_pct), "low": of.low_pct, "high": of.high_pct}
        values |= {"host": case.compared.launching_pct, "memory": case.compared.memory_pct}
        values |= {"needed": case.processes_needed}
        values |= {side: time_words(case.compared.mean_us(side)) for side in ("a", "b")}
    return say(_SENTENCES[case.decision], **values)


def suite_name(against: str) -> str:
    """What a CI system calls the gate."""
    return escape_control(f"fiprof gate against {against}")


def junit(gate: Gate) -> bytes:
    """A suite with a test a case: what fails the gate is a failure, what cannot be told is skipped."""
    from junitparser import Error, Failure, Skipped, TestCase

    label = Labels(case.id for case in gate.run.cases)
    tests = []
    for case in gate.cases:
        test = TestCase(escape_control(label(case.case)), escape_control(case.case.partition("[")[0]))
        text = escape_control(_sentence(gate, case))
        if case.decision is Decision.FAILED:
            test.result = Error(text, case.decision.value)
        elif case.decision in gate.failing:
            test.result = Failure(text, case.decision.value)
        elif case.decision in (*measured_result.DOUBTS, Decision.NEW):
            test.result = Skipped(text, case.decision.value)
        else:
            test.system_out = text
        tests.append(test)
    properties = {"run": gate.run.name, "sides": _sides(gate), "limit": f"{gate.max_slowdown_pct:g}%"}
    return _xml(gate.against, tests, gate.run.duration_s, properties)


def comment_error(against: str, message: str) -> str:
    """The Markdown that says why nothing was decided."""
    return f"### {suite_name(against)}\n\n{escape_control(message)}\n"


def junit_error(against: str, message: str) -> bytes:
    """A suite that says why nothing was decided."""
    from junitparser import Error, TestCase

    test = TestCase("fiprof gate", "fiprof")
    test.result = Error(escape_control(message), "error")
    return _xml(against, [test], 0.0, {})


def _xml(against: str, tests: Iterable[Any], seconds: float, properties: Mapping[str, str]) -> bytes:
    from junitparser import JUnitXml, TestSuite

    suite, whole, out = TestSuite(suite_name(against)), JUnitXml(), io.BytesIO()
    for name, value in properties.items():
        suite.add_property(name, escape_control(value))
    for test in tests:
        suite.add_testcase(test)
    whole.add_testsuite(suite)
    whole.update_statistics()  # type: ignore[no-untyped-call]
    suite.time = whole.time = seconds
    whole.write(out, pretty=True)
    return out.getvalue()


def github_lines(gate: Gate) -> list[str]:
    """Workflow commands: what is to be seen without a log; of many of one level the gravest, and how many more."""
    label = Labels(case.id for case in gate.run.cases)
    levels = {
        **dict.fromkeys((Decision.NEW, Decision.FASTER), "notice"),
        **dict.fromkeys(measured_result.DOUBTS, "warning"),
        **dict.fromkeys(gate.failing, "error"),
    }
    lines = []
    for level in ("error", "warning", "notice"):
        cases = [case for case in gate.cases if levels.get(case.decision) == level]
        shown: Sequence[GatedCase] = cases if len(cases) <= MOST_ANNOTATIONS else cases[: MOST_ANNOTATIONS - 1]
        lines += [annotation(level, f"fiprof gate: {label(case.case)}", _sentence(gate, case)) for case in shown]
        if rest := len(cases) - len(shown):
            more = say("{count:more case|more cases}: the summary of the step lists them.", count=rest)
            lines.append(annotation(level, answer(gate), more))
    return lines


def annotation(level: str, title: str, text: str) -> str:
    """What GitHub shows on the page of a workflow's run, escaped as actions/toolkit does it."""
    title, text = (escape_control(each).replace("%", "%25") for each in (title, text))
    return f"::{level} title={title.replace(':', '%3A').replace(',', '%2C')}::{text}"


def baselines(
    named: Sequence[tuple[NamedBaseline, Sequence[CaseEntry] | None]], *, with_cases: bool = False
) -> Document:
    """A row a baseline; its cases are None where its run is gone. with_cases: people also get a row a case."""
    rows = [
        {
            **vars(of),
            "baseline": of.name,
            "short_commit": of.commit and of.commit[:SHORT_COMMIT],
            "count": None if cases is None else len(cases),
            "cases": None if cases is None else tuple(case.id for case in cases),
            "set": of.set_at[:16].replace("T", " "),
        }
        for of, cases in named
    ]
    gone = "{name} names the run {run}, which is not in this archive: fiprof gate cannot use it"
    warnings = tuple(say(gone, name=of.name, run=of.run) for of, cases in named if cases is None)
    notes = () if named else ("no baselines yet: fiprof baseline set NAME RUN makes one",)
    shown = _document(BASELINES, rows, rows, warnings=warnings, notes=notes)
    if with_cases:
        cases = [case for _, each in named for case in each or ()]
        label = Labels(case.id for case in cases)
        table = View((Column("", "case"),), tuple((label(case.id),) for case in cases))
        shown = replace(shown, shown=(*shown.shown, table))
    return shown
