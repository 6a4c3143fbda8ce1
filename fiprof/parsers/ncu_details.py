"""ncu's details page as CSV: a row a metric, and a row a finding of its rules, which alone is read here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.model import tables
from fiprof.parsers.ncu_csv import read_page

if TYPE_CHECKING:
    import pyarrow as pa

    from fiprof.parsers.ncu_profile import Profile

_COLUMNS = ("ID", "Section Name", "Rule Name", "Rule Type", "Rule Description")
_SPEEDUP = ("Estimated Speedup Type", "Estimated Speedup")


@dataclass(frozen=True)
class Rule:
    """A finding: a row of the table ``rules``, whose columns are these."""

    launch: int
    """ncu's launch ID."""
    section: str
    """Identifier of ncu's section."""
    rule: str
    """Identifier of ncu's rule."""
    kind: str
    """OPT, INF, WRN or ERR."""
    message: str
    """What the rule says."""
    speedup_kind: str | None
    """global or local; None without an estimate."""
    speedup_pct: float | None
    """The rule's estimate; None without one."""


def read_rules(path: Path, profile: Profile) -> pa.Table:
    """The table ``rules`` from a details page.

    Raises FiprofError where the file is missing, empty, cut short, no details page, or of another report.
    """
    page = read_page(path, "details")
    page.check_end()
    launches = {str(launch.id): launch.id for launch in profile.launches}
    rules = []
    place: dict[str, int] = {}
    for row in page.records():
        if not place:
            # Before the header there can be lines of ncu and of the program.
            place = {name: i for i, name in enumerate(row)} if set(_COLUMNS) <= set(row) else {}
        # The rows of metrics end before these columns.
        elif len(row) > place["Rule Description"] and row[place["Rule Name"]]:
            launch, section, rule, kind, message = (row[place[name]] for name in _COLUMNS)
            speedup_kind, speedup = (row[place[name]] if name in place else "" for name in _SPEEDUP)
            if launch not in launches:
                raise page.error(f"is not of the same report: the raw page has no launch {launch}")
            rules.append(Rule(launches[launch], section, rule, kind, message, speedup_kind or None, _percent(speedup)))
    if not place:
        raise page.error("is not a details page of ncu: it has no column Rule Name")
    return rules_table(rules)


def _percent(cell: str) -> float | None:
    try:
        percent = float(cell.replace(",", ""))
    except ValueError:
        return None
    return percent if math.isfinite(percent) else None


def rules_table(rules: Sequence[Rule]) -> pa.Table:
    """The table ``rules``."""
    import pyarrow as pa

    if not rules:
        return tables.empty("rules")
    return pa.table({field.name: [getattr(rule, field.name) for rule in rules] for field in dataclasses.fields(Rule)})
