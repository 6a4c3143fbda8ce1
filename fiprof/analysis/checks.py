"""How sure the numbers of a run are: its checks on itself, and the sentences about those that failed."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fiprof.analysis.check_rules import CASE_CHECKS, LAUNCH_CHECKS, RUN_CHECKS, Check
from fiprof.model import tables
from fiprof.model.run import Run

if TYPE_CHECKING:
    import pyarrow as pa


def compute(run: Run) -> pa.Table:
    """Every check of a run, as the table ``checks``.

    What it compares: the run's tables, baseline and manifest as they are now; what is missing makes a check null.
    Raises FiprofError for a table of the run that is there and cannot be read.
    """
    import pyarrow as pa

    rows = [dataclasses.asdict(check) for check in evaluate(run)]
    return pa.Table.from_pylist(rows, schema=tables.schema("checks"))


def evaluate(run: Run) -> list[Check]:
    """Every check: those about the run, then about each case, then about each launch."""
    return [
        *(check(run) for check in RUN_CHECKS),
        *(dataclasses.replace(check(run, case), case=case.id) for case in run.manifest.cases for check in CASE_CHECKS),
        *(
            dataclasses.replace(check(run, launch), case=launch["case"], launch=launch["launch"])
            for launch in run.launches
            for check in LAUNCH_CHECKS
        ),
    ]


def failed(run: Run) -> list[Check]:
    """The checks that failed: from the table ``checks`` where the run has one, else made now.

    Raises FiprofError for a table that cannot be read.
    """
    if run.has("checks"):
        fields = [field.name for field in dataclasses.fields(Check)]
        checks = [Check(**row) for row in run.rows("checks", fields)]
    else:
        checks = evaluate(run)
    return [check for check in checks if check.passed is False]


def of_run(checks: Sequence[Check]) -> tuple[str, ...]:
    """The sentences about the whole run."""
    return tuple(check.message for check in checks if check.case is None and check.launch is None)


def by_launch(checks: Sequence[Check]) -> dict[int, tuple[str, ...]]:
    """Launch -> the sentences about it."""
    found: dict[int, list[str]] = defaultdict(list)
    for check in checks:
        if check.launch is not None:
            found[check.launch].append(check.message)
    return {launch: tuple(texts) for launch, texts in found.items()}
