"""An nsys SQLite export, open for reading: small questions through SQLAlchemy, millions of rows through ADBC.

Somebody else wrote the file. Tables and columns may be absent, named with a version, or damaged; whatever goes wrong
in here is a FiprofError that says how to make the file again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from fiprof.errors import FiprofError
from fiprof.parsers.names import printable

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa

Result = TypeVar("Result")

MAGIC = b"SQLite format 3\0"
TEXTS = frozenset({"jsonText", "label", "metricName", "name", "text", "uuid", "value"})
"""Columns that hold text, in every table that is asked for them."""

PIECE_ROWS = 1 << 18
# A file may claim any row ids: more pieces than this are never made of them.
MOST_PIECES = 1 << 12
READERS = 2


@dataclass(frozen=True)
class Field:
    """A column to read in bulk: integers, or null where the export lacks what they are made of."""

    name: str
    """Its name in the result."""
    sql: str
    """An SQL expression over the source columns."""
    needs: tuple[str, ...]
    """The source columns."""
    real: bool = False
    """Whether it holds real numbers instead."""
    required: bool = False
    """Whether a row without it says nothing."""
    otherwise: str = ""
    """In place of it where the export lacks a source column; empty for null."""


def column(name: str, source: str | None = None, *, required: bool = False, otherwise: str = "") -> Field:
    """A source column as it is."""
    source = source or name
    return Field(name, f'"{source}"', (source,), required=required, otherwise=otherwise)


class OutOfOrderError(Exception):
    """Rows were not in ascending order."""


def in_order(read: Callable[[bool], Result]) -> Result:
    """``read(False)``, which takes rows as they lie; ``read(True)``, which sorts them, if they were not in order.

    nsys promises no order but keeps one, and to have SQLite sort millions of rows doubles the time.
    """
    try:
        return read(False)
    except OutOfOrderError:
        return read(True)


class Export:
    """The tables of one file. Use as a context manager; every method raises FiprofError for a damaged file."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises FiprofError where it is missing, empty, cut short, or no nsys export."""
        self.path = path
        self._absent_columns: dict[str, None] = {}
        self._left_out: dict[str, int] = {}
        with self._readable():
            self._check_file()
            self._connection = self._connect()
            self._tables = self._find_tables()
        if "StringIds" not in self._tables:
            self.close()
            raise FiprofError(f"{path} is not an nsys export: it has no table StringIds", self._remedy)

    def __enter__(self) -> Export:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        self._connection.engine.dispose()

    @functools.cached_property
    def schema_version(self) -> str:
        """The version of the export's schema, e.g. 3.20.3; empty where the file does not say."""
        return self._about.get("EXPORT_SCHEMA_VERSION", "")

    @property
    def product_version(self) -> str:
        """The version of the nsys that exported it, e.g. 2025.3.2.0; empty where the file does not say."""
        return self._about.get("EXPORT_PRODUCT_VERSION", "")

    @functools.cached_property
    def _about(self) -> dict[str, str]:
        rows = (row for table in ("EXPORT_META_DATA", "META_DATA_EXPORT") for row in self.rows(table, "name", "value"))
        return {name: str(value) for name, value in rows}

    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns; none where the table is absent."""
        import sqlalchemy as sa

        if table not in self._tables:
            return frozenset()
        with self._readable():
            found = sa.inspect(self._connection).get_columns(self._tables[table])
        return frozenset(str(column["name"]) for column in found)

    def has(self, table: str) -> bool:
        """Whether the table is there, under any version of its name."""
        return table in self._tables

    @property
    def absent_columns(self) -> tuple[str, ...]:
        """A sentence for each column that was asked for in vain so far, and for each table with rows left out."""
        rows = (
            f"{table}: {rows:,} rows without a time or a process are left out" for table, rows in self._left_out.items()
        )
        return (*self._absent_columns, *rows)

    def require(self, table: str, *columns: str) -> bool:
        """Whether a table has these columns; the first that it lacks is noted among the absent ones."""
        absent = next((column for column in columns if column not in self.columns(table)), None)
        if absent is not None and self.has(table):
            self._absent_columns[f"{table} has no {absent}: its rows are left out"] = None
        return absent is None

    def rows(self, table: str, *columns: str, where: dict[str, Sequence[int]] | None = None) -> list[tuple[Any, ...]]:
        """These columns of every row; null for a column that is absent, no rows where the table is.

        The columns of TEXTS are printable text, all others integers. where: columns, each with its allowed values; no
        rows where one of these is absent.
        """
        import sqlalchemy as sa

        there = self.columns(table)
        if not there or not there.issuperset(where or {}):
            return []
        source = sa.table(self._tables[table], *(sa.column(name) for name in there))
        query = sa.select(
            *(
                sa.cast(source.c[name] if name in there else sa.null(), sa.Text if name in TEXTS else sa.Integer)
                for name in columns
            )
        )
        for name, values in (where or {}).items():
            query = query.where(source.c[name].in_(values))
        with self._readable():
            return [tuple(row) for row in self._connection.execute(query)]

    def strings(self, ids: Sequence[int]) -> list[str | None]:
        """The texts of StringIds; None for an id that is not in it."""
        found: dict[int, str] = {}
        for begin in range(0, len(ids), 500):
            found.update(dict(self.rows("StringIds", "id", "value", where={"id": ids[begin : begin + 500]})))
        return [found.get(number) for number in ids]

    def strings_with(self, part: str) -> list[str]:
        """The texts of StringIds that contain another."""
        import sqlalchemy as sa

        value = sa.column("value", sa.Text)
        query = sa.select(value).select_from(sa.table(self._tables["StringIds"])).where(sa.func.instr(value, part))
        with self._readable():
            return [str(text) for (text,) in self._connection.execute(query)]

    def distinct(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The values that some columns have together; none where the table or one of them is absent."""
        import sqlalchemy as sa

        if not self.columns(table).issuperset(columns):
            return []
        source = sa.table(self._tables[table], *map(sa.column, columns))
        query = sa.select(*source.c).distinct()
        with self._readable():
            return [tuple(row) for row in self._connection.execute(query)]

    def occurs(self, table: str, **values: int) -> bool:
        """Whether a row has these values."""
        import sqlalchemy as sa

        if not self.columns(table).issuperset(values):
            return False
        query = sa.select(sa.literal(1)).select_from(sa.table(self._tables[table])).limit(1)
        with self._readable():
            wanted = (sa.column(name) == value for name, value in values.items())
            return self._connection.execute(query.where(*wanted)).first() is not None

    def labels(self, enum: str) -> dict[int, str]:
        """The labels of one of the ENUM tables by id; empty where it is absent."""
        return dict(self.rows(enum, "id", "label"))

    def scan(self, table: str, fields: Sequence[Field], *, order: str, sort: bool = False) -> Iterator[pa.RecordBatch]:
        """A table's rows in pieces of some hundred thousand, in ascending order of one field.

        Rows that lack a required field are left out; all of them where the table has no such column.
        sort: have SQLite sort. Without it rows are taken as they lie, and OutOfOrderError says that they lie otherwise.
        """
        name = self._tables.get(table)
        if name is None:
            return
        required = [field for field in fields if field.required]
        if not self.require(table, *(source for field in required if not field.otherwise for source in field.needs)):
            return
        select = ", ".join(f"{self._expression(table, field)} AS {field.name}" for field in fields)
        statement = f'SELECT {select} FROM "{name}"'
        real = frozenset(field.name for field in fields if field.real)
        if sort:
            pieces = self._fetch(f"{statement} ORDER BY {order}, rowid", real)
        else:
            pieces = self._fetch_in_stretches(statement, name, real)
        last, left_out = None, 0
        for piece in pieces:
            kept = _sound(piece, [field.name for field in required])
            left_out += piece.num_rows - kept.num_rows
            last = last if sort else _last_in_order(kept[order], last)
            yield kept
        if left_out:
            self._left_out[table] = left_out

    def _expression(self, table: str, field: Field) -> str:
        absent = [name for name in field.needs if name not in self.columns(table)]
        if not absent:
            return field.sql
        self._absent_columns[f"{table} has no {' and no '.join(absent)}: {field.name} is unknown"] = None
        return field.otherwise or "NULL"

    def _fetch_in_stretches(self, statement: str, name: str, real: frozenset[str]) -> Iterator[pa.RecordBatch]:
        """The rows in the order of their ids, one stretch of ids a piece, read by threads some stretches ahead."""
        import sqlalchemy as sa

        with self._readable():
            first, last = self._connection.execute(sa.text(f'SELECT min(rowid), max(rowid) FROM "{name}"')).one()
        if first is None:
            return
        step = max(PIECE_ROWS, (last - first) // MOST_PIECES + 1)
        with ThreadPoolExecutor(READERS) as readers:
            ahead: deque[Future[list[pa.RecordBatch]]] = deque()
            for begin in range(first, last + 1, step):
                stretch = f"{statement} WHERE rowid BETWEEN {begin} AND {begin + step - 1}"
                ahead.append(readers.submit(lambda query: list(self._fetch(query, real)), stretch))
                if len(ahead) > READERS:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()

    def _fetch(self, statement: str, real: frozenset[str]) -> Iterator[pa.RecordBatch]:
        """The result of a statement, PIECE_ROWS rows at a time. real: the columns that are not integers."""
        import adbc_driver_manager as adbc
        import adbc_driver_sqlite
        import pyarrow as pa

        with (
            self._readable(),
            adbc_driver_sqlite.connect(self._uri) as database,
            adbc.AdbcConnection(database) as connection,
            adbc.AdbcStatement(connection) as query,
        ):
            query.set_options(**{adbc_driver_sqlite.StatementOptions.BATCH_ROWS.value: str(PIECE_ROWS)})
            query.set_sql_query(statement)
            stream, _ = query.execute_query()
            with pa.RecordBatchReader._import_from_c(stream.address) as reader:
                names = reader.schema.names
                types = [pa.float64() if name in real else pa.int64() for name in names]
                for batch in reader:
                    columns = [values.cast(kind) for values, kind in zip(batch.columns, types, strict=True)]
                    yield pa.RecordBatch.from_arrays(columns, names=names)

    @functools.cached_property
    def _uri(self) -> str:
        return f"file:{quote(os.fsencode(self.path.absolute()))}?mode=ro"

    def _connect(self) -> sa.Connection:
        import sqlalchemy as sa

        def open_read_only() -> sqlite3.Connection:
            connection = sqlite3.connect(self._uri, uri=True, timeout=1)
            connection.text_factory = lambda raw: printable(raw.decode(errors="replace"))
            return connection

        return sa.create_engine("sqlite://", creator=open_read_only, poolclass=sa.NullPool).connect()

    def _find_tables(self) -> dict[str, str]:
        """Name without its version -> name in the file, of the highest version there is (``…_V2``)."""
        import sqlalchemy as sa

        found: dict[str, tuple[int, str]] = {}
        for name in sa.inspect(self._connection).get_table_names():
            plain, version = re.fullmatch(r"(.+?)(?:_V(\d+))?", name, re.DOTALL).groups("1")  # type: ignore[union-attr]
            found[plain] = max(found.get(plain, (0, "")), (int(version), name))
        return {plain: name for plain, (_, name) in found.items()}

    def _check_file(self) -> None:
        """Raise FiprofError for what SQLite would not notice, or not say clearly."""
        if self.path.is_dir():
            raise FiprofError(f"{self.path} is a folder, not an nsys export")
        with open(self.path, "rb") as file:
            header = file.read(100)
        size = self.path.stat().st_size
        if not header:
            raise FiprofError(f"{self.path} is empty", self._remedy)
        if not header.startswith(MAGIC):
            raise FiprofError(f"{self.path} is not an SQLite file", self._remedy)
        expected = _expected_bytes(header)
        if size < expected:
            raise FiprofError(f"{self.path} is cut short: {size:,} of {expected:,} bytes", self._remedy)

    def damaged(self, error: Exception) -> FiprofError:
        """The error to raise for what a library said about the file."""
        reason = str(getattr(error, "orig", None) or error)
        if isinstance(error, UnicodeDecodeError):  # from SQLite's own message, which cites the file
            reason = error.object.decode(errors="replace")
        line = reason.partition("\n")[0]
        return FiprofError(f"{self.path} is damaged: {printable(line)}", self._remedy)

    @property
    def _remedy(self) -> str:
        report = self.path.with_suffix(".nsys-rep").name
        return f"export it again: nsys export --type sqlite --force-overwrite true --output {self.path.name} {report}"

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Whatever the libraries raise for a file that cannot be read, as a FiprofError."""
        import adbc_driver_manager as adbc
        import pyarrow as pa
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except FileNotFoundError:
            raise FiprofError(
                f"{self.path} does not exist", "nsys export --type sqlite makes it from a report"
            ) from None
        except PermissionError as error:
            raise FiprofError(f"{self.path} cannot be read: {error.strerror}") from error
        except (sqlite3.Error, SQLAlchemyError, adbc.Error, pa.ArrowException, OSError, UnicodeError) as error:
            if "database is locked" in str(error):
                raise FiprofError(
                    f"{self.path} is locked: another program is writing it", "wait until nsys has finished exporting"
                ) from error
            raise self.damaged(error) from error


def _expected_bytes(header: bytes) -> int:
    """The file's size by its SQLite header; the header's own where that does not say."""
    if len(header) < 100:
        return 100
    page_bytes, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    counted = header[24:28] == header[92:96]
    return pages * (65536 if page_bytes == 1 else page_bytes) if counted else 100


def _sound(piece: pa.RecordBatch, required: Sequence[str]) -> pa.RecordBatch:
    """The rows that have a value in each of these columns and end no sooner than they begin."""
    import pyarrow.compute as pc

    for name in required:
        if piece[name].null_count:
            piece = piece.filter(piece[name].is_valid())
    if {"start_ns", "end_ns"} <= set(required):
        whole = pc.less_equal(piece["start_ns"], piece["end_ns"])
        return piece if pc.all(whole).as_py() is not False else piece.filter(whole)
    return piece


def _last_in_order(values: pa.Array, last: int | None) -> int | None:
    """The last of the values. Raises OutOfOrderError where they do not ascend from ``last``, or one is null."""
    import numpy as np

    if not len(values):
        return last
    numbers = values.to_numpy(zero_copy_only=False)
    if values.null_count or (last is not None and numbers[0] < last) or not np.all(numbers[:-1] <= numbers[1:]):
        raise OutOfOrderError
    return int(numbers[-1])
