"""An nsys SQLite export, open for reading: small questions through SQLAlchemy, millions of rows from the file's pages.

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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fiprof.errors import FiprofError
from fiprof.parsers.names import printable
from fiprof.parsers.nsys_fields import Field, batch, last_in_order, sound
from fiprof.parsers.sqlite_pages import NotPlainError, Pages, Values

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa

MAGIC = b"SQLite format 3\0"
TEXTS = frozenset({"jsonText", "label", "metricName", "name", "text", "uuid", "value"})
"""Columns that hold text, in every table that is asked for them."""

PIECE_BYTES = 8 << 20
"""Of a table's pages that are read at once."""
FETCHED_ROWS = 1 << 16
READERS = 2


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
        required = [field for field in fields if field.required]
        needed = (source for field in required if field.otherwise is None for source in field.needs)
        if not self.has(table) or not self.require(table, *needed):
            return
        there = self.columns(table)
        reals: dict[str, bool] = {}
        for field in fields:
            if absent := [name for name in field.needs if name not in there]:
                self._absent_columns[f"{table} has no {' and no '.join(absent)}: {field.name} is unknown"] = None
            reals.update((name, field.real) for name in field.needs if name in there)
        last, left_out = None, 0
        by = ", ".join(_quoted(name) for field in fields if field.name == order for name in field.needs)
        name = self._tables[table]
        for found in self._fetch(name, reals, f"{by}, rowid") if sort else self._as_they_lie(name, reals):
            rows = len(next(iter(found.values())).numbers)
            kept = sound(batch(fields, found, rows), [field.name for field in required])
            left_out += rows - kept.num_rows
            last = last if sort else last_in_order(kept[order], last)
            yield kept
        if left_out:
            self._left_out[table] = left_out

    def integers(self, table: str, columns: Sequence[str]) -> set[int]:
        """The integers that stand in some columns of a table, of which the name as the file has it is given."""
        import numpy as np

        found: set[int] = set()
        try:
            for piece in self._decode(table, dict.fromkeys(columns, False)):
                for each in piece.values():
                    there = each.numbers if each.nulls is None else each.numbers[~each.nulls]
                    few = len(there) and there.min() >= 0 and there.max() < len(there)
                    found.update((np.flatnonzero(np.bincount(there)) if few else np.unique(there)).tolist())
        except NotPlainError:
            import sqlalchemy as sa

            query = f"SELECT DISTINCT {', '.join(map(_quoted, columns))} FROM {_quoted(table)}"
            with self._readable():
                for row in self._connection.execute(sa.text(query)):
                    found.update(cell for cell in row if isinstance(cell, int))
        return found

    def _as_they_lie(self, table: str, reals: Mapping[str, bool]) -> Iterator[dict[str, Values]]:
        """Columns in the order of the rows' ids, a piece at a time. reals: column -> whether it is of real numbers."""
        rows = 0
        try:
            for piece in self._decode(table, reals):
                yield piece
                rows += len(next(iter(piece.values())).numbers)
        except NotPlainError:
            yield from self._fetch(table, reals, "rowid", skip=rows)

    def _decode(self, table: str, reals: Mapping[str, bool]) -> Iterator[dict[str, Values]]:
        """The same from the file's pages, by threads some pieces ahead. Raises NotPlainError."""
        import sqlalchemy as sa

        with self._readable():
            found = sa.text("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = :name")
            root = self._connection.execute(found, {"name": table}).scalar()
            columns = self._connection.execute(sa.text(f"PRAGMA table_info({_quoted(table)})")).all()
            names = [column[1] for column in columns]
            # A column that is the row's id does not stand in the row; a log stands beside the file.
            if not root or any(column[5] and column[1] in reals for column in columns) or self._log_bytes():
                raise NotPlainError
            wanted = {names.index(source): real for source, real in reals.items()}
            with contextlib.closing(Pages(self.path)) as pages, ThreadPoolExecutor(READERS) as readers:
                leaves = pages.leaves(root)
                step = max(1, PIECE_BYTES // pages.page_bytes)
                ahead: deque[Future[dict[int, Values]]] = deque()
                for begin in range(0, len(leaves), step):
                    ahead.append(readers.submit(pages.read, leaves[begin : begin + step], len(names), wanted))
                    if len(ahead) > READERS:
                        yield {names[place]: values for place, values in ahead.popleft().result().items()}
                for each in ahead:
                    yield {names[place]: values for place, values in each.result().items()}

    def _fetch(
        self, table: str, reals: Mapping[str, bool], order: str, *, skip: int = 0
    ) -> Iterator[dict[str, Values]]:
        """The same by SQLite, in some order, without so many rows at the beginning."""
        import pyarrow as pa
        import sqlalchemy as sa

        select = ", ".join(f"CAST({_quoted(name)} AS REAL)" if real else _quoted(name) for name, real in reals.items())
        query = f"SELECT {select} FROM {_quoted(table)} ORDER BY {order} LIMIT -1 OFFSET {skip}"
        with self._readable():
            for rows in self._connection.execute(sa.text(query)).partitions(FETCHED_ROWS):
                found = {}
                for (name, real), cells in zip(reals.items(), zip(*rows, strict=True), strict=True):
                    array = pa.array(cells, pa.float64() if real else pa.int64())
                    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
                    found[name] = Values(array.fill_null(0).to_numpy(zero_copy_only=False), nulls)
                yield found

    def _log_bytes(self) -> int:
        """Of changes that SQLite has not written into the file."""
        log = self.path.with_name(self.path.name + "-wal")
        return log.stat().st_size if log.exists() else 0

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
        except (sqlite3.Error, SQLAlchemyError, pa.ArrowException, OSError, UnicodeError) as error:
            if "database is locked" in str(error):
                raise FiprofError(
                    f"{self.path} is locked: another program is writing it", "wait until nsys has finished exporting"
                ) from error
            raise self.damaged(error) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _expected_bytes(header: bytes) -> int:
    """The file's size by its SQLite header; the header's own where that does not say."""
    if len(header) < 100:
        return 100
    page_bytes, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    counted = header[24:28] == header[92:96]
    return pages * (65536 if page_bytes == 1 else page_bytes) if counted else 100
