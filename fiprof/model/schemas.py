"""The tables of a run: ``tables.csv`` says what a row of each is, and what its columns hold."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

NVTX_INCOMPATIBLE = "NVTX payload extension is incompatible"
"""In the table ``diagnostics``: nsys up to 2024.2 sees no range of the Python package nvtx from 0.2.13 on."""
PID_BITS = 24
"""Of a process's number in nsys. Those of several traces that have the same one differ in the bits above."""
FILE = "file"
"""Column of a row's trace, in a run that was imported from several."""

Kind = str
"""int64, int32, float64, string, bool, or category (a string stored once)."""


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    doc: str
    """What it holds, with its unit unless the name says so."""
    required: bool
    """Whether every row has a value; ``!`` behind the type in the file."""


@dataclass(frozen=True)
class Table:
    name: str
    row: str
    """What one row is."""
    columns: tuple[Column, ...]

    @property
    def open_ended(self) -> bool:
        """Whether further columns may follow: one a metric of ``metrics.csv``, float64."""
        return self.name == "launches"


def _read() -> dict[str, Table]:
    with (Path(__file__).parent / "tables.csv").open(encoding="utf-8", newline="") as file:
        found = {}
        for name, rows in groupby(csv.reader(file), key=lambda row: row[0]):
            (_, _, _, meaning), *columns = rows
            declared = (Column(each, kind.rstrip("!"), doc, kind.endswith("!")) for _, each, kind, doc in columns)
            found[name] = Table(name, meaning, tuple(declared))
        del found["table"]
        return found


TABLES = _read()


def own_pid(pid: int) -> int:
    """A process's number as its machine counts it, of that in a table: see PID_BITS."""
    return pid & (1 << PID_BITS) - 1


@functools.cache
def schema(name: str) -> pa.Schema:
    """The Arrow schema of a table's declared columns."""
    import pyarrow as pa

    kinds = {
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "string": pa.string(),
        "bool": pa.bool_(),
        "category": pa.dictionary(pa.int32(), pa.string()),
    }
    return pa.schema([pa.field(column.name, kinds[column.kind]) for column in TABLES[name].columns])
