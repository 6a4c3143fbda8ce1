"""How sure a report's numbers are: the checks that failed, and those that were not possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fiprof.analysis import checks
from fiprof.analysis.analyses import Analyses
from fiprof.analysis.check_rules import Check, CheckName, words
from fiprof.model.run import Run
from fiprof.reports.columns import attribute
from fiprof.reports.pages.page import Block, Caution, Section, Text
from fiprof.reports.pages.traced import TracedColumns, listed
from fiprof.reports.run_report.answer import checked
from fiprof.reports.view import Column
from fiprof.reports.words import phrase, worded

MOST_NAMED = 4
"""Launches or cases that a row names."""


@dataclass(frozen=True)
class _Alike:
    """Checks of a kind with the same outcome."""

    run: str
    what: str
    outcome: str
    about: str
    finding: str
    """Of the first."""


def section(runs: Sequence[Analyses]) -> Section:
    """What failed, and what could not be told. Raises FiprofError for a table that cannot be read."""
    blocks: list[Block] = []
    rows: list[_Alike] = []
    for number, measured in enumerate(runs, 1):
        found = checks.every(measured.run)
        blocks.append(Text((checked(found),)) if found else Caution(phrase("answer.no_checks")))
        rows += [row for outcome in (False, None) for row in _alike(number, measured.run, found, outcome)]
    columns: TracedColumns = (
        attribute("run", phrase("sure.run")),
        attribute("outcome", phrase("sure.outcome")),
        (Column("what", phrase("sure.what"), wrap=True), lambda row: row.what),
        (Column("about", phrase("sure.about"), wrap=True), lambda row: row.about),
        (Column("finding", phrase("sure.finding"), wrap=True), lambda row: row.finding),
    )
    if rows:
        blocks.append(listed(columns[len(runs) == 1 :], rows, anchor="sure-checks"))
    return Section("sure", phrase("sure.title"), tuple(blocks), folded=True)


def _alike(number: int, run: Run, found: Sequence[Check], outcome: bool | None) -> list[_Alike]:
    alike: dict[tuple[CheckName, object], list[Check]] = defaultdict(list)
    for check in found:
        if check.passed is outcome:
            alike[check.check, check.values.get("why")].append(check)
    key = "failed" if outcome is False else "unknown"
    return [
        _Alike(
            str(number), words()[name]["holds"], phrase(f"sure.{key}"), _about(run, of_kind),
            worded(of_kind[0].finding),
        )
        for (name, _), of_kind in alike.items()
    ]  # fmt: skip


def _about(run: Run, found: Sequence[Check]) -> str:
    """The launches or cases that the checks are about: the first ones, and how many more."""
    about = list(dict.fromkeys(_subject(run, check) for check in found))
    rest = len(about) - MOST_NAMED
    return ", ".join(about[:MOST_NAMED]) + (phrase("sure.more", count=rest) if rest > 0 else "")


def _subject(run: Run, check: Check) -> str:
    if check.launch is not None:
        return phrase("sure.launch", launch=check.launch, label=checks.subject(run, check))
    return phrase("sure.whole") if check.case is None else run.labels(check.case)
