"""Columns, declared once for terminal, JSON, CSV, Markdown and HTML; and what is found about a run's launches."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fiprof.model.selection import by_key

if TYPE_CHECKING:
    from fiprof.model.finding import Finding
    from fiprof.model.run import Launch
    from fiprof.model.selection import Alike, Weights

L = TypeVar("L")
C = TypeVar("C")
Row = dict[str, Any]  # a row of a table: its columns' keys, and what goes with them


class Narrow(Enum):
    """What becomes of a column where a table is wider than the terminal."""

    WRAP = auto()  # its text wraps within the column; numbers keep their width
    ABOVE = auto()  # names stand on a line above the row, those of all such columns together
    BELOW = auto()  # it stands on a line below the row, after its heading
    DROP = auto()  # it is left out, the last such column first
    KEEP = auto()  # it keeps its width


@dataclass(frozen=True)
class Column:
    """One column: its key for programs, its heading for people."""

    key: str  # name in JSON and CSV, with the unit, e.g. ``duration_us``; without one the column is in tables only
    title: str = ""  # heading in tables; without one the column is in JSON and CSV only
    unit: str = ""  # below the heading
    spec: str = ""  # format of its numbers in tables, e.g. ``.2f``; JSON and CSV have full precision
    meaning: str = ""  # one sentence
    bar: bool = False  # draw the value, 0 to 1, as a bar; only where bars are wanted
    least: int = 0
    """Cells that it takes in a table at least, so that tables below each other line up; of a bar those of the whole."""
    wrap: bool = False  # prose: HTML shows it whole, where it shortens a name
    narrow: Narrow = Narrow.WRAP


OWN = Path(__file__).with_name("columns.csv")


@functools.cache
def _columns(path: Path) -> dict[str, list[Column]]:
    """Table -> its columns."""
    with path.open(encoding="utf-8", newline="") as file:
        rows: list[Row] = list(csv.DictReader(file))
    for row in rows:
        row |= {"narrow": Narrow[row["narrow"].upper() or "WRAP"], "wrap": bool(row["wrap"])}
    return by_key((row.pop("table"), Column(**row)) for row in rows)


def columns(table: str, path: Path = OWN) -> tuple[Column, ...]:
    """The columns of a table of ``columns.csv``, or of a pack's file of that kind, in its order."""
    return tuple(_columns(path)[table])


@dataclass(frozen=True)
class OfLaunch:
    """What was found about a launch, with what tells which launch it is."""

    row: Launch
    launch = property(attrgetter("row.launch"))
    case = property(attrgetter("row.case"))
    label = property(attrgetter("row.label"))
    iteration = property(attrgetter("row.iteration"))
    kernel = property(attrgetter("row.kernel"))
    kernel_full = property(attrgetter("row.kernel_full"))
    grid = property(attrgetter("row.grid"))
    block = property(attrgetter("row.block"))
    repeated = property(attrgetter("row.repeated"))
    duration_us = property(attrgetter("row.duration_us"))
    nsys_duration_us = property(attrgetter("row.nsys_duration_us"))


@dataclass(frozen=True)
class OfRun(Generic[L, C]):
    """What was found about the launches of a run, and about their cases."""

    launches: tuple[L, ...]  # in the order of the run
    warnings: tuple[Finding, ...] = ()  # about the run
    weights: Weights = field(default_factory=dict)  # the time each launch stands for; empty where for itself
    cases: tuple[C, ...] = ()  # in the order of the run; empty where nothing is found about cases as a whole
    groups: tuple[Alike[L], ...] = ()  # like launches, with what was found about one; empty where each was looked at
