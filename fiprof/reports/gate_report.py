"""``fiprof gate``: each case against what is allowed, the answer in a sentence, JUnit XML and annotations of GitHub."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fiprof.analysis.comparison.measured_result import DOUBTS, HERE, Decision, Gate, GatedCase
from fiprof.analysis.thresholds import FALSE_ALARMS
from fiprof.model.baselines import SHORT_COMMIT, NamedBaseline
from fiprof.model.finding import Finding, finding
from fiprof.model.labels import Labels
from fiprof.model.manifest import CaseEntry
from fiprof.model.wording import say, worded
from fiprof.reports.measured_table import DECIDED_BY, document_of, measured_cells, slow_clocks
from fiprof.reports.timeline_text import time_words
from fiprof.reports.view import Column, Document, Narrow, View
from fiprof.text import escape_control

if TYPE_CHECKING:
    from junitparser import TestSuite

MOST_GRAVE, MOST_OTHERS = 100, 20
"""Rows that people are shown: of what is slower or cannot be told, and of the rest. A comment on GitHub holds 65,536
characters."""
MOST_ANNOTATIONS = 10
"""Annotations of one level that GitHub shows of a step; its documentation of workflow commands."""

Label = Callable[[str], str]
"""A case's id in short."""


def document(found: Gate, *, every: bool = False) -> Document:
    """The answer, and a row a case. every: leave out nothing."""
    label = Labels(found.run.cases)
    columns = (
        Column("result", "result", narrow=Narrow.KEEP),
        Column("decision", meaning="failed, slower, gone, cannot_tell, new, within (the limit), faster or passed."),
        Column("case", meaning="Case id in this tree; in the baseline's where it is gone."),
        Column("label", "case", narrow=Narrow.ABOVE),
        Column("a_us", found.against, "µs", ",.2f", "Geometric mean of the processes of side A."),
        Column("b_us", "now", "µs", ",.2f", "The same of side B."),
        Column("difference_pct", "change", "%", "+z.1f", "Side B against side A."),
        Column("interval", "interval", "%"),
        *DECIDED_BY,
        Column("reason", meaning="Why it was not measured, in one line."),
        Column("max_slowdown_pct", "", "%", "", "The gate's limit."),
        Column("against", meaning="The baseline's name, or the side in its place."),
    )

    def row(case: GatedCase) -> dict[str, Any]:
        return {
            **dict.fromkeys(each.key for each in columns),
            **(measured_cells(case.compared, 1) if case.compared else {}),
            "result": case.decision.words,
            "decision": case.decision,
            "case": case.case,
            "label": label(case.case),
            "processes_needed": case.processes_needed,
            "reason": case.reason,
            "max_slowdown_pct": found.max_slowdown_pct,
            "against": found.against,
        }

    grave = found.of(Decision.FAILED, Decision.SLOWER, *DOUBTS)
    others = [case for case in found.cases if case not in grave]
    shown = [*found.cases] if every else [*grave[:MOST_GRAVE], *others[:MOST_OTHERS]]
    left = len(found.cases) - len(shown)
    notes = [say("{count:other case|other cases}: --all shows them.", count=left)] if left else []
    note = (
        "slower: beyond the noise, and by {limit:g}% or more. cannot tell: the noise leaves room for {limit:g}%. Of "
        "gates on unchanged code, at most {alarms:g} in 100 fail."
    )
    return document_of(
        columns,
        [row(case) for case in found.cases],
        [row(case) for case in shown],
        ("result", "interval"),
        title=answer(found),
        warnings=tuple(_warnings(found, label)),
        summary=(_sides(found),),
        notes=(*notes, say(note, limit=found.max_slowdown_pct, alarms=FALSE_ALARMS.value)),
    )


def answer(found: Gate) -> str:
    """``1 of 8 cases slower than main by 3% or more``."""
    against, limit = found.against, f"{found.max_slowdown_pct:g}%"
    slower, failed, unknown = (len(found.of(each)) for each in (Decision.SLOWER, Decision.FAILED, Decision.CANNOT_TELL))
    total = failed + len(found.comparison.cases)
    cases = f"{total} case{'' if total == 1 else 's'}"
    if slower:
        return f"{slower} of {cases} slower than {against} by {limit} or more"
    if failed:
        return f"{failed} of {cases} cannot run in this tree"
    if unknown:
        return f"No case is found slower than {against} by {limit} or more; {unknown} of {total} cannot be told"
    return f"No case is slower than {against} by {limit} or more"


def why(found: Gate) -> str:
    """Why a gate fails."""
    return answer(found) if found.slower else worded(next(_warnings(found, Labels(found.run.cases))))


def _sides(found: Gate) -> str:
    """What was measured, and how."""
    a, b = found.comparison.a, found.comparison.b
    short = a.commit[:SHORT_COMMIT] if a.commit else ""
    before = a.spec.replace(a.commit, short) if a.commit else a.spec
    if a.commit and a.commit not in a.spec:
        before += f" ({short})"
    now, commit = ("This tree", found.run.environment.get("git")) if b.spec == HERE else (b.spec, None)
    if isinstance(commit, str):
        now += f" ({commit})"
    gpu = (b.environment.get("gpu") or {}).get("name") or "GPU"
    return f"{now} against {before}: {found.comparison.processes} processes a side, in turns, on one {gpu}."


_SLOWER = "{pct:.1f}% slower than {against} ({low:+z.1f} to {high:+z.1f}%): {a} → {b}. The limit is {limit:g}%."
_SENTENCES = {
    Decision.FAILED: "This tree cannot run it: {reason}",
    Decision.SLOWER: _SLOWER,
    Decision.WITHIN: _SLOWER,
    Decision.CANNOT_TELL: "Cannot tell it from {against} ({low:+z.1f} to {high:+z.1f}%): the noise leaves room for "
    "more than the limit of {limit:g}%. {needed} processes a side would tell.",
    Decision.FASTER: "{pct:.1f}% faster than {against} ({low:+z.1f} to {high:+z.1f}%): {a} → {b}.",
    Decision.PASSED: "Not slower than {against} by {limit:g}% ({low:+z.1f} to {high:+z.1f}%): {a} → {b}.",
    Decision.GONE: "{against} has it, this tree does not: {reason}",
    Decision.NEW: "Not in {against}, so there is nothing to compare it with. {reason}",
}


def _sentence(found: Gate, case: GatedCase) -> str:
    """What is said of a case where there is no table."""
    values: dict[str, Any] = {"against": found.against, "limit": found.max_slowdown_pct, "reason": case.reason}
    if case.compared:
        of = case.compared.difference
        values |= {
            "pct": abs(of.difference_pct),
            "low": of.low_pct,
            "high": of.high_pct,
            "needed": case.processes_needed,
        }
        values |= {side: time_words(case.compared.mean_us(side)) for side in ("a", "b")}
    return say(_SENTENCES[case.decision], **values)


def _warnings(found: Gate, label: Label) -> Iterator[Finding]:
    if unknown := found.of(Decision.CANNOT_TELL):
        yield finding(
            "cannot_tell",
            "{count:case|cases} cannot be told: the noise leaves room for more than {limit:g}%. --processes {needed} "
            "would tell, or a GPU that nobody else uses.",
            count=len(unknown),
            limit=found.max_slowdown_pct,
            needed=max(case.processes_needed or 0 for case in unknown),
        )
    for decision, words in (
        (Decision.FAILED, "this tree cannot run {cases}: {reason}"),
        (Decision.GONE, "{against} has {cases}, this tree does not: {reason}"),
    ):
        cases: dict[str, list[str]] = {}
        for case in found.of(decision):
            cases.setdefault(case.reason, []).append(label(case.case))
        for reason, labels in cases.items():
            yield finding(decision.value, words, cases=tuple(labels), against=found.against, reason=reason)
    yield from slow_clocks(found.comparison.cases, lambda case: label(case.b))


def _suite_name(against: str) -> str:
    """What a CI system calls the gate."""
    return escape_control(f"fiprof gate against {against}")


# Baselines

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


def baselines(
    found: Sequence[tuple[NamedBaseline, Sequence[CaseEntry] | None]], *, with_cases: bool = False
) -> Document:
    """A row a baseline; its cases are None where its run is not in the archive. with_cases: a second table for people,
    a row a case."""
    rows = [
        {
            **vars(of),
            "baseline": of.name,
            "short_commit": of.commit and of.commit[:SHORT_COMMIT],
            "count": None if cases is None else len(cases),
            "cases": None if cases is None else tuple(case.id for case in cases),
            "set": of.set_at[:16].replace("T", " "),
        }
        for of, cases in found
    ]
    gone = "{name} names the run {run}, which is not in this archive: fiprof gate cannot use it"
    warnings = tuple(say(gone, name=of.name, run=of.run) for of, cases in found if cases is None)
    notes = () if found else ("no baselines yet: fiprof baseline set NAME RUN makes one",)
    made = document_of(BASELINES, rows, rows, ("short_commit", "count", "set"), warnings=warnings, notes=notes)
    if with_cases:
        cases = [case for _, each in found for case in each or ()]
        label = Labels(cases)
        table = View((Column("", "case"),), tuple((label(case.id),) for case in cases))
        made = replace(made, shown=(*made.shown, table))
    return made


# JUnit XML


def junit(found: Gate) -> bytes:
    """A suite with a test a case: what fails the gate is a failure, what cannot be told is skipped."""
    from junitparser import Error, Failure, Skipped, TestCase, TestSuite

    label = Labels(found.run.cases)
    suite = TestSuite(_suite_name(found.against))
    for name, value in (("run", found.run.name), ("sides", _sides(found)), ("limit", f"{found.max_slowdown_pct:g}%")):
        suite.add_property(name, escape_control(value))
    for case in found.cases:
        test = TestCase(escape_control(label(case.case)), escape_control(case.case.partition("[")[0]))
        text = escape_control(_sentence(found, case))
        if case.decision is Decision.FAILED:
            test.result = Error(text, case.decision.value)
        elif case.decision in found.failing:
            test.result = Failure(text, case.decision.value)
        elif case.decision in (*DOUBTS, Decision.NEW):
            test.result = Skipped(text, case.decision.value)
        else:
            test.system_out = text
        suite.add_testcase(test)
    return _xml(suite, found.run.duration_s)


def junit_error(against: str, message: str) -> bytes:
    """A suite that says why nothing was decided."""
    from junitparser import Error, TestCase, TestSuite

    suite = TestSuite(_suite_name(against))
    test = TestCase("fiprof gate", "fiprof")
    test.result = Error(escape_control(message), "error")
    suite.add_testcase(test)
    return _xml(suite, 0.0)


def _xml(suite: TestSuite, seconds: float) -> bytes:
    from junitparser import JUnitXml

    whole = JUnitXml()
    whole.add_testsuite(suite)
    whole.update_statistics()  # type: ignore[no-untyped-call]
    suite.time = whole.time = seconds
    out = io.BytesIO()
    whole.write(out, pretty=True)
    return out.getvalue()


# GitHub


def github_lines(found: Gate) -> list[str]:
    """Workflow commands: what is to be seen without opening a log; of many of one level the gravest, and how many more
    there are."""
    label = Labels(found.run.cases)
    levels = {
        **dict.fromkeys((Decision.NEW, Decision.FASTER), "notice"),
        **dict.fromkeys(DOUBTS, "warning"),
        **dict.fromkeys(found.failing, "error"),
    }
    lines = []
    for level in ("error", "warning", "notice"):
        cases = [case for case in found.cases if levels.get(case.decision) == level]
        shown: Sequence[GatedCase] = cases if len(cases) <= MOST_ANNOTATIONS else cases[: MOST_ANNOTATIONS - 1]
        lines += [_annotation(level, f"fiprof gate: {label(case.case)}", _sentence(found, case)) for case in shown]
        if rest := len(cases) - len(shown):
            more = say("{count:more case|more cases}: the summary of the step lists them.", count=rest)
            lines.append(_annotation(level, answer(found), more))
    return lines


def github_error(against: str, message: str) -> str:
    """That nothing was decided."""
    return _annotation("error", _suite_name(against), message)


def _annotation(level: str, title: str, text: str) -> str:
    """What GitHub shows on the page of a workflow's run, escaped as actions/toolkit does it."""
    title, text = (escape_control(each).replace("%", "%25") for each in (title, text))
    return f"::{level} title={title.replace(':', '%3A').replace(',', '%2C')}::{text}"
