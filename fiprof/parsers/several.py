"""The tables of several files of one kind as one: traces on one axis of time, reports with launches of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.model import tables

if TYPE_CHECKING:
    import pyarrow as pa

TIMES = ("start_ns", "end_ns", "time_ns")


@dataclass(frozen=True)
class Part:
    """The tables of one file."""

    folder: Path
    shift_ns: int = 0
    """Added to its times."""


def join(parts: Sequence[Part], names: Sequence[str], out: Path) -> None:
    """Write each of some tables, made of those in the parts; the column ``file`` tells which part a row is of.

    Rows are in the order of their times. Launches of further files are numbered on, ranges find their parents.
    """
    import pyarrow as pa

    first_launches, next_launch = [], 0
    for part in parts:
        first_launches.append(next_launch)
        if "launches" in names:
            ids = tables.read(part.folder, "launches", ["launch"])["launch"]
            next_launch += (pa.compute.max(ids).as_py() or 0) + 1
    for name in names:
        rows, found = 0, []
        for number, (part, first_launch) in enumerate(zip(parts, first_launches, strict=True)):
            table = _renumbered(tables.read(part.folder, name), number, part.shift_ns, first_launch, rows)
            found.append(table)
            rows += table.num_rows
        tables.write(out, name, _in_order(pa.concat_tables(found, promote_options="default").unify_dictionaries()))


def _renumbered(table: pa.Table, file: int, shift_ns: int, first_launch: int, rows_before: int) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    added = {**dict.fromkeys(TIMES, shift_ns), "launch": first_launch, "parent": rows_before}
    for place, column in enumerate(table.schema):
        if added.get(column.name):
            number = pa.scalar(added[column.name], column.type)
            table = table.set_column(place, column.name, pc.add(table[column.name], number))
        elif column.name == tables.FILE:
            table = table.set_column(place, column.name, pa.repeat(pa.scalar(file, pa.int32()), table.num_rows))
    return table


def _in_order(table: pa.Table) -> pa.Table:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    key = next((name for name in TIMES if name in table.column_names), None)
    if key is None:
        return table
    order = pc.sort_indices(table, [(key, "ascending")])
    table = table.take(order)
    if "parent" in table.column_names:
        places = np.empty(len(order), np.int64)
        places[order.to_numpy()] = np.arange(len(order))
        parents = table["parent"].combine_chunks()
        moved = pa.array(places).take(parents)
        table = table.set_column(table.column_names.index("parent"), "parent", moved)
    return table
