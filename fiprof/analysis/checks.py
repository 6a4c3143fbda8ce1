"""How sure the numbers of a run are: its checks on itself."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fiprof.analysis.check_rules import (
    CASE_CHECKS,
    LAUNCH_CHECKS,
    RUN_CHECKS,
    Caches,
    Check,
    CheckName,
    NotChecked,
    Operations,
    Timed,
)
from fiprof.errors import FiprofError
from fiprof.model import schemas
from fiprof.model.finding import Finding, Value, plain
from fiprof.model.labels import title
from fiprof.model.lazy import finite_rows
from fiprof.model.run import Run
from fiprof.model.wording import Worded

if TYPE_CHECKING:
    import pyarrow as pa

_ENUMS: dict[str, type[StrEnum]] = {
    "why": NotChecked,
    "operations": Operations,
    "timed": Timed,
    "caches": Caches,
}
"""Which of a check's values are members of which enum."""


class FailedCheck(Worded):
    """What a failed check is about; with check, its finding, and others, what it failed for besides.

    others: launches' IDs, or the number of further cases.
    """

    RUN = "run", "{check}"
    CASE = "case", "{label}: {check}"
    CASES = "cases", "{label}: {check}; likewise {others:more case|more cases}"
    LAUNCH = "launch", "launch {launch} ({label}): {check}"
    LAUNCHES = "launches", "launch {launch} ({label}): {check}; likewise {others:launch|launches}"


def compute(run: Run) -> pa.Table:
    """Every check of a run, as the table ``checks``.

    What it compares: the run's tables, baseline and manifest as they are now; what is missing makes a check null.
    Raises FiprofError for a table of the run that is there and cannot be read.
    """
    import pyarrow as pa

    rows = [
        {**vars(check), "values": json.dumps({name: plain(value) for name, value in check.values.items()})}
        for check in evaluate(run)
    ]
    return pa.Table.from_pylist(rows, schema=schemas.schema("checks"))


def evaluate(run: Run) -> list[Check]:
    """Every check: those about the run, then about each case, then about each launch."""
    from fiprof.analysis.trace_checks import TRACE_CHECKS, traces

    return [
        *(check(run) for check in (*RUN_CHECKS, *(TRACE_CHECKS if traces(run) else ()))),
        *(dataclasses.replace(check(run, case), case=case.id) for case in run.manifest.cases for check in CASE_CHECKS),
        *(
            dataclasses.replace(check(run, launch), case=launch.case, launch=launch.launch)
            for launch in run.launches
            for check in LAUNCH_CHECKS
        ),
    ]


def every(run: Run) -> tuple[Check, ...]:
    """Every check: from the table ``checks`` where the run has one that is whole and of this version, else made now.

    Raises FiprofError for another table that cannot be read.
    """
    return run.once(_every)


def _every(run: Run) -> tuple[Check, ...]:
    found = _recorded(run)
    return tuple(evaluate(run)) if found is None else found


def _recorded(run: Run, *, failed: bool = False) -> tuple[Check, ...] | None:
    """What the table has, or of it what failed; None where it is missing, damaged or of another version."""
    if run.has("checks"):
        with contextlib.suppress(FiprofError, ValueError, TypeError, AttributeError):
            table = run.table("checks", [field.name for field in dataclasses.fields(Check)])
            if not failed:
                return tuple(map(_check, finite_rows(table)))
            passed = table["passed"].to_pylist()
            # One that could not be made tells the version too.
            untold = passed.index(None) if None in passed else None
            wanted = [outcome is False or place == untold for place, outcome in enumerate(passed)]
            return tuple(check for row in finite_rows(table, wanted) if (check := _check(row)).passed is False)
    return None


def _check(row: dict[str, Any]) -> Check:
    """Raises ValueError, TypeError or AttributeError for a row that is none of this version."""
    values = _values(json.loads(row["values"]))
    if (row["passed"] is None) != ("why" in values):
        raise ValueError
    return Check(**{**row, "check": CheckName(row["check"]), "values": values})


def _values(found: dict[str, Any]) -> Mapping[str, Value]:
    return {
        name: _ENUMS[name](value) if name in _ENUMS else tuple(value) if isinstance(value, list) else value
        for name, value in found.items()
    }


def failed(run: Run) -> list[Check]:
    """The checks that failed. Raises FiprofError for a table that cannot be read."""
    return list(run.once(_failed))


def _failed(run: Run) -> tuple[Check, ...]:
    found = _recorded(run, failed=True)
    return tuple(check for check in every(run) if check.passed is False) if found is None else found


def of_run(checks: Iterable[Check]) -> tuple[Finding, ...]:
    """What there is to say about the whole run."""
    return tuple(check.finding for check in checks if check.case is None and check.launch is None)


def by_launch(checks: Iterable[Check]) -> dict[int, tuple[Finding, ...]]:
    """Launch -> what there is to say about it."""
    found: dict[int, tuple[Finding, ...]] = defaultdict(tuple)
    for check in checks:
        if check.launch is not None:
            found[check.launch] += (check.finding,)
    return dict(found)


def summarized(checks: Sequence[Check], run: Run) -> tuple[Finding, ...]:
    """A FailedCheck for each kind of check: what it found first, and what else it found it for."""
    alike: dict[CheckName, list[Check]] = defaultdict(list)
    for check in checks:
        alike[check.check].append(check)
    return tuple(_summary(first, rest, run) for first, *rest in alike.values())


def subject(run: Run, check: Check) -> str:
    """What a check of a case or a launch is about, in short."""
    launch = next((each for each in run.launches if each.launch == check.launch), None)
    return title(launch.label, launch.kernel) if launch else run.labels(check.case)


def _summary(first: Check, rest: Sequence[Check], run: Run) -> Finding:
    values: dict[str, Value] = {"check": first.finding}
    if first.case is None and first.launch is None:
        return Finding("run", values, words="{check}")
    values["label"] = subject(run, first)
    if first.launch is None:
        more = {"others": len(rest)} if rest else {}
        return Finding(FailedCheck.CASES if rest else FailedCheck.CASE, {**values, **more})
    values["launch"] = first.launch
    launches = {"others": tuple(check.launch for check in rest)} if rest else {}
    return Finding(FailedCheck.LAUNCHES if rest else FailedCheck.LAUNCH, {**values, **launches})
