"""The tables of several files of one kind as one: traces on one axis of time, reports with launches of their own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiprof.errors import FiprofError
from fiprof.model import tables

TIMES = ("start_ns", "end_ns", "time_ns")
Numbers = dict[int, int]
"""Number in a trace -> number in the run, where they differ."""


def merge(parts: Mapping[Path, int], names: Sequence[str], out: Path) -> None:
    """Write each of some tables, made of those in the parts; the column ``file`` tells which part a row is of.

    Rows are in the order of their times. Launches of further files are numbered on, ranges find their parents, and of
    traces no two have a process or a GPU of one number, but those of a GPU that is the same.
    parts: the folder of each file's tables -> what is added to its times, ns.
    Raises FiprofError for more processes of one number than can be told apart.
    """
    first_launches, next_launch = [], 0
    for folder in parts:
        first_launches.append(next_launch)
        if "launches" in names:
            ids = tables.read(folder, "launches", ["launch"])["launch"]
            next_launch += (pa.compute.max(ids).as_py() or 0) + 1
    moved = {"pid": _processes(parts, names), "device": _gpus(parts, names)} if "processes" in names else {}
    for name in names:
        rows, found = 0, []
        for file, (folder, shift_ns) in enumerate(parts.items()):
            table = tables.read(folder, name)
            added = {**dict.fromkeys(TIMES, shift_ns), "launch": first_launches[file], "parent": rows}
            for place, column in enumerate(table.schema):
                values = table[column.name]
                if added.get(column.name):
                    values = pa.compute.add(values, pa.scalar(added[column.name], column.type))
                elif column.name == tables.FILE:
                    values = pa.repeat(pa.scalar(file, pa.int32()), table.num_rows)
                for old, new in (moved[column.name][file] if column.name in moved else {}).items():
                    here = pa.compute.equal(table[column.name], old)
                    values = pa.compute.if_else(here, pa.scalar(new, column.type), values)
                table = table.set_column(place, column.name, values)
            found.append(table)
            rows += table.num_rows
        tables.write(out, name, _in_order(pa.concat_tables(found, promote_options="default").unify_dictionaries()))


def _used(folder: Path, names: Sequence[str], column: str) -> list[int]:
    """The values that a column has in a part's tables."""
    there = [name for name in names if column in tables.schema(name).names]
    found = {value for name in there for value in tables.read(folder, name, [column])[column].unique().to_pylist()}
    return sorted(found - {None})


def _processes(parts: Mapping[Path, int], names: Sequence[str]) -> list[Numbers]:
    """Of each part the processes that another one before has a process of the same number as: containers do."""
    taken: set[int] = set()
    moved = []
    for folder in parts:
        free: Numbers = {}
        for pid in _used(folder, names, "pid"):
            new = next((new for new in range(pid, 1 << 31, 1 << tables.PID_BITS) if new not in taken), None)
            if new is None:
                raise FiprofError(f"{folder.name}: too many traces have a process {pid}", "import fewer at once")
            free[pid] = new
        taken.update(free.values())
        moved.append({pid: new for pid, new in free.items() if new != pid})
    return moved


def _gpus(parts: Mapping[Path, int], names: Sequence[str]) -> list[Numbers]:
    """Of each part the GPUs that have another number in the run than in their trace: another one before has it.

    GPUs are the same that have the same UUID; where a trace does not say it, the same number on the same host.
    """
    known: dict[int, tuple[str | None, tuple[str, int] | None]] = {}
    moved = []
    for folder in parts:
        rows = tables.read(folder, "processes", ["device", "host", "uuid"]).to_pylist()
        uuids, host = {row["device"]: row["uuid"] for row in rows}, next((row["host"] for row in rows), None)
        numbers = {}
        for device in _used(folder, names, "device"):
            uuid, place = uuids.get(device), None if host is None else (host, device)
            same = (
                number
                for number, (other, there) in known.items()
                if (uuid == other if uuid and other else place is not None and place == there)
            )
            free = (number for number in itertools.chain([device], itertools.count()) if number not in known)
            number = next(itertools.chain(same, free))
            before, first = known.get(number, (None, place))
            known[number] = uuid or before, first
            numbers[device] = number
        moved.append({device: number for device, number in numbers.items() if device != number})
    return moved


def _in_order(table: pa.Table) -> pa.Table:
    key = next((name for name in TIMES if name in table.column_names), None)
    if key is None:
        return table
    order = pc.sort_indices(table, [(key, "ascending")])
    table = table.take(order)
    if "parent" in table.column_names:
        places = np.empty(len(order), np.int64)
        places[order.to_numpy()] = np.arange(len(order))
        moved = pa.array(places).take(table["parent"].combine_chunks())
        table = table.set_column(table.column_names.index("parent"), "parent", moved)
    return table
