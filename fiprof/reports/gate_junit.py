"""A gate as JUnit XML."""

from __future__ import annotations

import io

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from fiprof.analysis.comparison.gate import DOUBTS, Decision, Gate
from fiprof.model.labels import Labels
from fiprof.reports.gate import sentence, sides, suite_name
from fiprof.text import escape_control


def junit(found: Gate) -> bytes:
    """A suite with a test a case: what fails the gate is a failure, what cannot be told is skipped."""
    label = Labels(found.run.cases)
    suite = TestSuite(suite_name(found.against))
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
    suite = TestSuite(suite_name(against))
    test = TestCase("fiprof gate", "fiprof")
    test.result = Error(escape_control(message), "error")
    suite.add_testcase(test)
    return _xml(suite, 0.0)


def _xml(suite: TestSuite, seconds: float) -> bytes:
    whole = JUnitXml()
    whole.add_testsuite(suite)
    whole.update_statistics()  # type: ignore[no-untyped-call]
    suite.time = whole.time = seconds
    out = io.BytesIO()
    whole.write(out, pretty=True)
    return out.getvalue()
