"""The tables of several files of one kind as one: traces on one axis of time, reports with launches of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.errors import FiprofError
from fiprof.model import schemas, tables

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

    Rows are in the order of their times. Launches of further files are numbered on, ranges find their parents, and of
    traces no two have a process or a GPU of one number, but those of a GPU that is the same.
    Raises FiprofError for more processes of one number than can be told apart.
    """
    import pyarrow as pa

    first_launches, next_launch = [], 0
    for part in parts:
        first_launches.append(next_launch)
        if "launches" in names:
            ids = tables.read(part.folder, "launches", ["launch"])["launch"]
            next_launch += (pa.compute.max(ids).as_py() or 0) + 1
    traces = "processes" in names
    moved = {"pid": _processes(parts, names), "device": _gpus(parts, names)} if traces else {}
    for name in names:
        rows, found = 0, []
        for number, (part, first_launch) in enumerate(zip(parts, first_launches, strict=True)):
            added = {**dict.fromkeys(TIMES, part.shift_ns), "launch": first_launch, "parent": rows}
            instead = {column: of_parts[number] for column, of_parts in moved.items()}
            found.append(_renumbered(tables.read(part.folder, name), number, added, instead))
            rows += found[-1].num_rows
        tables.write(out, name, _in_order(pa.concat_tables(found, promote_options="default").unify_dictionaries()))


Numbers = dict[int, int]
"""What takes the place of which number."""


def _renumbered(table: pa.Table, file: int, added: Mapping[str, int], instead: Mapping[str, Numbers]) -> pa.Table:
    """A part's table as rows of the run's. added, instead: by column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, column in enumerate(table.schema):
        values = table[column.name]
        if added.get(column.name):
            values = pc.add(values, pa.scalar(added[column.name], column.type))
        elif column.name == schemas.FILE:
            values = pa.repeat(pa.scalar(file, pa.int32()), table.num_rows)
        for old, new in instead.get(column.name, {}).items():
            values = pc.if_else(pc.equal(table[column.name], old), pa.scalar(new, column.type), values)
        table = table.set_column(place, column.name, values)
    return table


def _used(part: Part, names: Sequence[str], column: str) -> list[int]:
    """The values that a column has in a part's tables."""
    there = [name for name in names if column in schemas.schema(name).names]
    found = {value for name in there for value in tables.read(part.folder, name, [column])[column].unique().to_pylist()}
    return sorted(found - {None})


def _processes(parts: Sequence[Part], names: Sequence[str]) -> list[Numbers]:
    """Of each part the processes that another one before has a process of the same number as: containers do."""
    taken: set[int] = set()
    moved = []
    for part in parts:
        used = _used(part, names, "pid")
        free = {pid: next(new for new in _numbers(pid, part) if new not in taken) for pid in used}
        taken.update(free.values())
        moved.append({pid: new for pid, new in free.items() if new != pid})
    return moved


def _numbers(pid: int, part: Part) -> Iterator[int]:
    yield from range(pid, 1 << 31, 1 << schemas.PID_BITS)
    raise FiprofError(f"{part.folder.name}: too many traces have a process {pid}", "import fewer at once")


@dataclass
class _Gpu:
    """A GPU of a run as far as its traces tell which it is."""

    trace_number: int
    """In the trace that it was first seen in."""
    host: str | None
    uuid: str | None

    def is_also(self, other: _Gpu) -> bool:
        if self.uuid and other.uuid:
            return self.uuid == other.uuid
        return self.host is not None and (self.host, self.trace_number) == (other.host, other.trace_number)


def _gpus(parts: Sequence[Part], names: Sequence[str]) -> list[Numbers]:
    """Of each part the GPUs that have another number in the run than in their trace: another one before has it."""
    known: dict[int, _Gpu] = {}
    moved = []
    for part in parts:
        rows = tables.read(part.folder, "processes", ["device", "host", "uuid"]).to_pylist()
        uuids, host = {row["device"]: row["uuid"] for row in rows}, next((row["host"] for row in rows), None)
        numbers = {}
        for device in _used(part, names, "device"):
            gpu = _Gpu(device, host, uuids.get(device))
            free = (number for number in itertools.chain([device], itertools.count()) if number not in known)
            number = next((number for number, other in known.items() if gpu.is_also(other)), None)
            number = next(free) if number is None else number
            known.setdefault(number, gpu).uuid = gpu.uuid or known[number].uuid
            numbers[device] = number
        moved.append({device: number for device, number in numbers.items() if device != number})
    return moved


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
