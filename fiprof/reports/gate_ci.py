"""What a CI system shows of a gate: JUnit XML, and annotations of GitHub."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from fiprof.analysis.comparison.gate import DOUBTS, Decision, Gate, GatedCase
from fiprof.model.labels import Labels
from fiprof.reports.gate import answer, sentence, sides
from fiprof.reports.words import phrase
from fiprof.text import escape_control

MOST_ANNOTATIONS = 10
"""Of one level that GitHub shows of a step; its documentation of workflow commands."""


def junit(found: Gate) -> bytes:
    """A suite with a test a case: what fails the gate is a failure, what cannot be told is skipped."""
    label = Labels(found.run.cases)
    suite = TestSuite(_suite_name(found.against))
    for name, value in (("run", found.run.name), ("sides", sides(found)), ("limit", f"{found.max_slowdown_pct:g}%")):
        suite.add_property(name, escape_control(value))
    for case in found.cases:
        test = TestCase(escape_control(label(case.case)), escape_control(case.case.partition("[")[0]))
        text = escape_control(sentence(found, case))
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
    suite = TestSuite(_suite_name(against))
    test = TestCase("fiprof gate", "fiprof")
    test.result = Error(escape_control(message), "error")
    suite.add_testcase(test)
    return _xml(suite, 0.0)


def _suite_name(against: str) -> str:
    return escape_control(phrase("gate.suite", against=against))


def _xml(suite: TestSuite, seconds: float) -> bytes:
    whole = JUnitXml()
    whole.add_testsuite(suite)
    whole.update_statistics()  # type: ignore[no-untyped-call]
    suite.time = whole.time = seconds
    out = io.BytesIO()
    whole.write(out, pretty=True)
    return out.getvalue()


class Level(StrEnum):
    """Of an annotation, the gravest first."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True)
class Annotation:
    """What GitHub shows on the page of a workflow's run."""

    level: Level
    title: str
    text: str

    def __str__(self) -> str:
        """The workflow command, escaped as actions/toolkit does it."""
        title = _escaped(self.title).replace(":", "%3A").replace(",", "%2C")
        return f"::{self.level} title={title}::{_escaped(self.text)}"


def annotated(found: Gate) -> list[Annotation]:
    """What is to be seen without opening a log; of many of one level the gravest, and how many more there are."""
    levels = {
        **dict.fromkeys((Decision.NEW, Decision.FASTER), Level.NOTICE),
        **dict.fromkeys(DOUBTS, Level.WARNING),
        **dict.fromkeys(found.failing, Level.ERROR),
    }
    return [
        annotation
        for level in Level
        for annotation in _of_level(found, level, [case for case in found.cases if levels.get(case.decision) is level])
    ]


def error_annotated(against: str, message: str) -> Annotation:
    """That nothing was decided."""
    return Annotation(Level.ERROR, _suite_name(against), message)


def _of_level(found: Gate, level: Level, cases: Sequence[GatedCase]) -> Iterator[Annotation]:
    label = Labels(found.run.cases)
    kept = cases if len(cases) <= MOST_ANNOTATIONS else cases[: MOST_ANNOTATIONS - 1]
    for case in kept:
        yield Annotation(level, phrase("gate.annotation", case=label(case.case)), sentence(found, case))
    if rest := len(cases) - len(kept):
        yield Annotation(level, answer(found), phrase("gate.more", count=rest))


def _escaped(text: str) -> str:
    """In one line."""
    return escape_control(text).replace("%", "%25")
