"""A run in other programs' formats: tables as files, a database or JSON, the trace for Perfetto, all of it as a zip.

An export appears whole or not at all. Tables are read and written in pieces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from fiprof import confined
from fiprof.errors import FiprofError
from fiprof.files import atomic_write, exchange, file_errors, scratch
from fiprof.model import tables
from fiprof.model.arrays import finite, finite_rows
from fiprof.model.manifest import FILE_NAME
from fiprof.model.run import Run
from fiprof.model.tables import TABLES
from fiprof.text import csv_cell

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_ROWS = 1 << 16
ELSEWHERE = "write it elsewhere with --out"
SCHEMA = "export/1"
"""Of the JSON."""


class Target(StrEnum):
    """A format, and how its file or folder ends by default."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    SQLITE = "sqlite"
    PERFETTO = "perfetto"
    ZIP = "zip"

    @property
    def suffix(self) -> str:
        return {Target.PARQUET: "-parquet", Target.CSV: "-csv", Target.PERFETTO: ".trace.json.gz"}.get(self, f".{self}")

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder with a file a table."""
        return self in (Target.PARQUET, Target.CSV)


@dataclass(frozen=True)
class Request:
    """What to export, and where to."""

    run: Run
    target: Target
    out: Path
    force: bool = False
    """Whether an earlier export is replaced."""
    with_private: bool = False
    """Whether a zip has the raw reports that hold an environment."""


def export(request: Request, tell: Callable[[str], None] = lambda _: None) -> Path:
    """Write an export. Returns its path. tell: told which table is being written.

    Raises FiprofError where the path is taken, cannot be written, or something of the run cannot be read.
    """
    run, out = request.run, request.out
    if os.path.lexists(out) and not request.force:
        raise FiprofError(f"{out} is there already", "--force replaces it; --out names another", exit_code=2)
    if request.target.is_folder:
        _folder(request, tell)
    elif request.target == Target.PERFETTO:
        from fiprof.reports import trace_json

        trace_json.write(run, out)
    elif request.target == Target.ZIP:
        from fiprof.reports.bundle import write_bundle
        from fiprof.reports.report import report

        write_bundle(report([run]), [run], out, ("md", "html"), with_private=request.with_private)
    else:
        write = _json if request.target == Target.JSON else _sqlite
        with file_errors(out, ELSEWHERE), atomic_write(out) as partial:
            write(run, partial, tell)
    return out


def _readers(run: Run, tell: Callable[[str], None]) -> Iterator[tuple[str, tables.Reader]]:
    """The run's tables, one after the other. Raises FiprofError where it has none, or one cannot be read."""
    names = [name for name in TABLES if run.has(name)]
    if not names:
        raise FiprofError(f"{run.manifest.name} has no tables", "fiprof parse makes them from the raw files")
    for name in names:
        tell(name)
        yield name, tables.Reader(run.tables_path, name)


def pieces(reader: tables.Reader) -> Iterator[pa.Table]:
    """A table in pieces that can be held, at least one; its columns in their order."""
    yield from reader.pieces(reader.names, PIECE_ROWS) if reader.rows else [reader.read()]


def _folder(request: Request, tell: Callable[[str], None]) -> None:
    """run.json and a file a table."""
    run, out, suffix = request.run, request.out, f".{request.target}"
    made_by_us = {FILE_NAME, *(f"{name}{suffix}" for name in TABLES)}
    if os.path.lexists(out) and (out.is_symlink() or not out.is_dir() or not {*os.listdir(out)} <= made_by_us):
        raise FiprofError(f"{out} is no earlier export of this format", "it is not replaced; --out names another")
    with file_errors(out, ELSEWHERE):
        out.parent.mkdir(parents=True, exist_ok=True)
        with scratch(out.parent) as held:
            new = held / "new"
            new.mkdir()
            for name, reader in _readers(run, tell):
                with (new / f"{name}{suffix}").open("wb") as file:
                    if request.target == Target.CSV:
                        write_csv(reader, file)
                    else:
                        _copy(reader.path.parent, reader.path.name, file)
            with (new / FILE_NAME).open("wb") as file:
                _copy(run.path, FILE_NAME, file)
            if out.exists():
                exchange(new, out)
            else:
                os.rename(new, out)


def _copy(folder: Path, name: str, target: BinaryIO) -> None:
    with confined.open_file(folder, name) as source:
        shutil.copyfileobj(source, target, 1 << 20)


def write_csv(reader: tables.Reader, out: IO[bytes]) -> None:
    """A table as CSV; texts are such that a spreadsheet shows them and computes nothing."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.types

    def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
        """CSV has no dictionaries."""
        if pa.types.is_dictionary(column.type):
            return pa.chunked_array(
                [texts(chunk.dictionary).take(chunk.indices) for chunk in column.chunks], pa.string()
            )
        return pa.chunked_array(map(texts, column.chunks), pa.string()) if pa.types.is_string(column.type) else column

    def texts(found: pa.Array) -> pa.Array:
        return pa.array([None if text is None else csv_cell(text) for text in found.to_pylist()], pa.string())

    writer = None
    for piece in pieces(reader):
        cells = pa.table({name: plain(piece[name]) for name in piece.column_names})
        writer = writer or pyarrow.csv.CSVWriter(out, cells.schema)
        writer.write_table(cells)
    assert writer is not None
    writer.close()


def _json(run: Run, path: Path, tell: Callable[[str], None]) -> None:
    """``{"schema", "run": the manifest, "tables": {name: [row, …]}}``; null for what is no number."""
    import msgspec

    with path.open("wb") as out:
        out.write(b'{"schema":%b,\n"run":%b,\n"tables":{' % tuple(map(msgspec.json.encode, (SCHEMA, run.manifest))))
        for number, (name, reader) in enumerate(_readers(run, tell)):
            out.write(b'%b\n"%b":[' % (b"," * bool(number), name.encode()))
            before = b""
            for piece in pieces(reader):
                if rows := finite_rows(piece):
                    out.write(before + msgspec.json.encode(rows)[1:-1])
                    before = b",\n"
            out.write(b"]")
        out.write(b"}}\n")


def _sqlite(run: Run, path: Path, tell: Callable[[str], None]) -> None:
    """A table each, and ``run`` with the manifest as JSON in its one row."""
    import sqlite3

    try:
        # In one transaction, which is the file's only one.
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE run (json TEXT)")
            database.execute("INSERT INTO run VALUES (?)", (run.manifest.to_json().decode(),))
            for name, reader in _readers(run, tell):
                columns = ", ".join(
                    f'"{column}" {_affinity(reader.schema.field(column).type)}' for column in reader.names
                )
                database.execute(f'CREATE TABLE "{name}" ({columns})')
                insert = f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(reader.names))})'
                for piece in pieces(reader):
                    database.executemany(insert, zip(*map(finite, piece.columns), strict=True))
    except sqlite3.Error as error:
        raise FiprofError(f"the database cannot be written: {error}", f"is the disk full? {ELSEWHERE}") from error


def _affinity(kind: pa.DataType) -> str:
    """What SQLite calls a column's type."""
    import pyarrow.types as pt

    if pt.is_floating(kind):
        return "REAL"
    return "INTEGER" if pt.is_integer(kind) or pt.is_boolean(kind) else "TEXT"
