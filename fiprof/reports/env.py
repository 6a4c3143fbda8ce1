"""What ``fiprof env`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fiprof.reports.view import Column, View, view_of


class Finding(Protocol):
    """One thing that a collect needs."""

    @property
    def what(self) -> str: ...
    @property
    def state(self) -> str:
        """ok, warning or missing."""

    @property
    def found(self) -> str: ...
    @property
    def remedy(self) -> str: ...


COLUMNS = (
    Column("what", "what", meaning="what a collect needs"),
    Column("state", "state", meaning="ok, warning or missing"),
    Column("found", "found", meaning="what is there"),
    Column("remedy", meaning="what to do about it"),
)


def env(findings: Sequence[Finding]) -> View:
    """The findings as a table, the remedies below it."""
    remedies = tuple(f"{finding.what}: {finding.remedy}" for finding in findings if finding.remedy)
    return view_of(COLUMNS, findings, notes=remedies)
