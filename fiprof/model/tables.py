"""The tables of a run, as Parquet files. ``tables.csv`` says what a row of each is and what its columns hold.

They are read as Arrow tables, as DataFrames only on request: importing pandas takes half a second.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fiprof import files
from fiprof.errors import FiprofError

if TYPE_CHECKING:
    import pyarrow as pa

NVTX_INCOMPATIBLE = "NVTX payload extension is incompatible"
"""In the table ``diagnostics``: nsys up to 2024.2 sees no range of the Python package nvtx from 0.2.13 on."""
LEFT_OUT = "Left out"  # severity of rows of ``diagnostics`` about what fiprof left out of a trace
PID_BITS = 24  # of a process id in nsys; processes of several traces with the same id differ in the bits above
FILE = "file"  # column with the number of a row's trace, in a run that was imported from several
THREADED_ROWS = 1 << 17  # rows from which on columns are read by threads
OPEN_ENDED = "launches"  # the table with further columns: one a metric of ``metrics.csv``, float64
FEW_ROWS = 16  # up to which compression makes columns no smaller, and reading takes half the time without
CHECKED_ROWS = 1 << 20  # rows whose texts are searched for secrets at once
PIECE_ROWS = 1 << 18  # rows that are read at once of a table that may be larger than memory


class TableColumn(NamedTuple):
    """A column of a table, a row of ``tables.csv``."""

    name: str
    kind: str  # int64, int32, float64, string, bool, or category (a string stored once)
    doc: str  # what it holds, with its unit unless the name says so
    required: bool  # whether every row has a value; ``!`` behind the type in the file


class Table(NamedTuple):
    row: str  # what one row is
    columns: tuple[TableColumn, ...]


TABLES: dict[str, Table] = {}
with (Path(__file__).parent / "tables.csv").open(encoding="utf-8", newline="") as _file:
    for _name, _rows in groupby(list(csv.reader(_file))[1:], key=lambda row: row[0]):
        (_, _, _, _meaning), *_rest = _rows
        _columns = (TableColumn(each, kind.rstrip("!"), doc, kind.endswith("!")) for _, each, kind, doc in _rest)
        TABLES[_name] = Table(_meaning, tuple(_columns))


def own_pid(pid: int) -> int:
    """The process id on its machine, of one in a table: see PID_BITS."""
    return pid & (1 << PID_BITS) - 1


@functools.cache
def schema(name: str) -> pa.Schema:
    """The Arrow schema of a table's declared columns."""
    import pyarrow as pa

    category = pa.dictionary(pa.int32(), pa.string())
    kinds = {each.name: category if each.kind == "category" else each.kind for each in TABLES[name].columns}
    return pa.schema(list(kinds.items()))


def table_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.parquet"


def write(folder: Path, name: str, table: pa.Table) -> None:
    """Write a table, whole or not at all. Raises ValueError for undeclared columns, KeyError for missing ones."""
    declared = frozenset(schema(name).names)
    extra = [field for field in table.schema if field.name not in declared]
    if extra and name != OPEN_ENDED:
        raise ValueError(f"table {name}: undeclared columns {extra}")
    with writer(folder, name, extra, "zstd" if table.num_rows > FEW_ROWS else "none") as write_piece:
        write_piece(table)


@contextlib.contextmanager
def writer(
    folder: Path, name: str, extra: Sequence[pa.Field] = (), compression: str = "zstd"
) -> Iterator[Callable[[pa.Table], None]]:
    """Write a table piece by piece: gives a function that writes the next rows, with the declared columns and those of
    ``extra``. FILE may be absent, and is null then.

    The file appears when the block ends, whole; after an exception in the block there is none.
    The function raises ValueError or pyarrow.ArrowInvalid for columns that do not fit.
    """
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, typed = TABLES[name].columns, pa.schema([*schema(name), *extra])
    with (
        files.atomic_write(table_path(folder, name)) as partial,
        # Given a path, Parquet takes one with a colon for a URI, and refuses what is not UTF-8.
        pa.OSFile(os.fsencode(partial), "wb") as sink,
        pq.ParquetWriter(
            sink,
            typed,
            compression=compression,
            # Without dictionaries for numbers, the table of metrics is smaller and written faster.
            use_dictionary=[column.name for column in columns if column.kind == "category"],
            # Times and ids mostly rise by little.
            column_encoding={column.name: "DELTA_BINARY_PACKED" for column in columns if column.kind == "int64"},
            # Past this limit Parquet writes every row's text in full, and kernel names are long.
            dictionary_pagesize_limit=64 << 20,
            write_statistics=False,  # a third of the time, and no reader here skips rows by them
            write_page_checksum=True,
        ) as file,
        ThreadPoolExecutor(1) as writing,
    ):
        written = writing.submit(lambda: None)

        def write_piece(piece: pa.Table) -> None:
            nonlocal written
            if FILE in typed.names and FILE not in piece.column_names:
                piece = piece.append_column(FILE, pa.nulls(piece.num_rows, pa.int32()))
            fitting = piece.select(typed.names).cast(typed)
            # A piece is encoded while the caller makes the next one; at most one waits.
            written.result()
            written = writing.submit(file.write_table, fitting)

        yield write_piece
        written.result()


class Reader:
    """A table's file, opened once; each column is read when it is first asked for."""

    def __init__(self, folder: Path, name: str, *, hide: Callable[[str], str] | None = None) -> None:
        """hide: masks secrets, which tables of an older fiprof may hold."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.folder = folder
        self._hide, self._hid = hide, False
        self.path = table_path(folder, name)
        if not files.exists(folder.parent, f"{folder.name}/{self.path.name}"):
            remedy = f"fiprof parse {folder.parent} makes the tables from the raw files, where the run has them"
            remedy = remedy if name in TABLES else f"there are {', '.join(TABLES)}"
            raise FiprofError(f"{folder.parent} has no table {name}", remedy)
        with self._errors():
            # Not read_table: that imports pyarrow.dataset, and with it pandas.
            self._file = pq.ParquetFile(pa.OSFile(os.fsencode(self.path)), page_checksum_verification=True)
            self.schema = self._file.schema_arrow
            _check(name, self.schema)
        self.names: list[str] = self.schema.names
        """Names of the columns, in order."""
        self.columns = frozenset(self.names)
        self._read: dict[str, pa.ChunkedArray] = {}

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Some columns, or all; categories as dictionaries.

        A declared column that the file lacks (an older fiprof may have written it) is null.
        """
        import pyarrow as pa

        names = list(columns) if columns is not None else self.names
        with self._errors():
            if new := [name for name in names if name not in self._read]:
                present = [name for name in new if name in self.columns]
                read_table = self._file.read(present, use_threads=self.rows >= THREADED_ROWS)
                # Each group of rows in the file has its own dictionary, and Arrow can only group by one.
                table = self._with_absent(self._masked(read_table).unify_dictionaries(), new, self.rows)
                _require_possible(table)
                self._read.update(zip(table.column_names, table.columns, strict=True))
            return pa.table({name: self._read[name] for name in names})

    @property
    def rows(self) -> int:
        return int(self._file.metadata.num_rows)

    def pieces(self, columns: Sequence[str], rows: int = PIECE_ROWS) -> Iterator[pa.Table]:
        """Some columns in pieces of at most ``rows`` rows, which are not cached: for tables larger than memory.

        The next piece is read while the caller works on one. A table of one piece is read and cached as a whole.
        """
        if self.rows <= rows:
            if self.rows:
                yield self.read(columns)
            return
        from concurrent.futures import ThreadPoolExecutor

        import pyarrow as pa

        def read() -> Iterator[pa.Table]:
            with self._errors():
                for piece in self._file.iter_batches(rows, columns=[name for name in columns if name in self.columns]):
                    masked = self._masked(pa.Table.from_batches([piece]))
                    table = self._with_absent(masked, columns, piece.num_rows)
                    yield table.select(list(columns))

        reading = read()
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(next, reading, None)
            while (piece := coming.result()) is not None:
                coming = reader.submit(next, reading, None)
                yield piece

    def holds_secrets(self) -> bool:
        """Whether ``hide`` changes a text of the table."""
        texts = [column.name for column in TABLES[self.path.stem].columns if column.kind in ("category", "string")]
        return any(self._hid for _ in self.pieces(texts, CHECKED_ROWS))

    def _masked(self, table: pa.Table) -> pa.Table:
        """Rows of the file, with ``hide`` applied to their texts."""
        import pyarrow as pa
        import pyarrow.types as pt

        if (hide := self._hide) is None:
            return table

        def masked(chunk: pa.Array) -> pa.Array:
            of_dictionary = isinstance(chunk, pa.DictionaryArray)
            texts = (chunk.dictionary if of_dictionary else chunk).to_pylist()
            hidden = [text and hide(text) for text in texts]
            if hidden == texts:
                return chunk
            self._hid = True
            new = pa.array(hidden, pa.string())
            return new.take(chunk.indices).dictionary_encode() if of_dictionary else new

        for place, field in enumerate(table.schema):
            kind = field.type.value_type if pt.is_dictionary(field.type) else field.type
            if pt.is_string(kind):
                chunks = [masked(chunk) for chunk in table.column(place).chunks]
                if self._hid:
                    table = table.set_column(place, field.name, pa.chunked_array(chunks, field.type))
        return table

    def _with_absent(self, table: pa.Table, names: Sequence[str], rows: int) -> pa.Table:
        """A table with nulls for columns that the file lacks. Raises ValueError for nulls in a required column."""
        import pyarrow as pa

        name_set = frozenset(names)
        for column in TABLES[self.path.stem].columns:
            if column.name in name_set and column.name not in self.columns:
                kind = schema(self.path.stem).field(column.name).type
                table = table.append_column(column.name, pa.nulls(rows, kind))
            if column.required and column.name in name_set and (nulls := table[column.name].null_count):
                raise ValueError(f"its column {column.name} has no value in {nulls:,} rows")
        return table

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            what = f"{self.path} cannot be read: {next(iter(str(error).splitlines()), 'it is damaged')}"
            raise FiprofError(what, f"fiprof parse {self.folder.parent} makes it again from the raw files") from error


def _require_possible(table: pa.Table) -> None:
    """Raise ValueError where a parent is not a row before, a share is not from 0 to 1, or samples are below 0."""
    from fiprof.model.arrays import floats, numbers

    largest: dict[str, Any] = {"parent": range(-1, table.num_rows - 1), "share": 1 + 1e-9, "samples": 1 << 62}
    names = frozenset(table.column_names)
    for name, most in largest.items():
        if name in names:
            whole = name != "share"
            values = (numbers if whole else floats)(table[name])
            if rows := int(((values < 0) | (values > most)).sum()) - table[name].null_count * whole:
                raise ValueError(f"its column {name} has impossible values in {rows:,} rows")


_GOOD: dict[str, pa.Schema] = {}
"""Table -> the schema of the last file that was right: most files have the same."""


def _check(name: str, schema_read: pa.Schema) -> None:
    """Raise ValueError where a file lacks a required column, or one is of another type than the table declares."""
    import pyarrow.types as pt

    if name in _GOOD and schema_read.equals(_GOOD[name]):
        return
    fits: dict[str, Callable[[pa.DataType], bool]] = {
        **dict.fromkeys(("int32", "int64"), pt.is_integer), "float64": pt.is_floating, "bool": pt.is_boolean,
        "string": pt.is_string, "category": lambda kind: pt.is_dictionary(kind) and pt.is_string(kind.value_type),
    }  # fmt: skip
    kinds = {column.name: column.kind for column in TABLES[name].columns}
    for column in TABLES[name].columns:
        if column.required and column.name not in schema_read.names:
            raise ValueError(f"it has no column {column.name}")
    for field in schema_read:
        kind = kinds.get(field.name, "float64" if name == OPEN_ENDED else "")
        if kind and not fits[kind](field.type):
            raise ValueError(f"its column {field.name} is {field.type}, not {kind}")
    _GOOD[name] = schema_read


def read(folder: Path, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A table as Arrow, categories as dictionaries."""
    return Reader(folder, name).read(columns)
