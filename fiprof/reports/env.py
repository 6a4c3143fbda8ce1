"""What ``fiprof env`` shows."""

from __future__ import annotations

from collections.abc import Sequence

from fiprof.model.requirement import Requirement
from fiprof.reports.view import Column, View, view_of

COLUMNS = (Column("what", "what"), Column("state", "state"), Column("found", "found"), Column("remedy"))


def env(found: Sequence[Requirement]) -> View:
    """What a collect needs as a table, the remedies below it."""
    return view_of(COLUMNS, found, notes=tuple(f"{each.what}: {each.remedy}" for each in found if each.remedy))
