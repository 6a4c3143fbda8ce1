"""The tables of a run: their columns, and how they are written and read (Parquet).

Arrow in between, pandas where somebody wants a DataFrame: importing pandas costs half a second.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof import confined
from fiprof.errors import FiprofError
from fiprof.files import atomic_write

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Bytes. Past its limit Parquet writes every row's text in full, and kernel names are long.
LARGEST_DICTIONARY = 64 << 20

NVTX_INCOMPATIBLE = "NVTX payload extension is incompatible"
"""In the table ``diagnostics``: nsys up to 2024.2 sees no range of the Python package nvtx from 0.2.13 on."""

Kind = str
"""int64, int32, float64, string, bool, or category (a string stored once)."""


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    doc: str
    """What it holds, with its unit unless the name says so."""
    required: bool = False
    """Whether every row has it."""


@dataclass(frozen=True)
class Table:
    name: str
    row: str
    """What one row is."""
    columns: tuple[Column, ...]
    open_ended: bool = False
    """Whether further columns may follow (one a metric of ``metrics.py``, float64)."""


def _table(name: str, row: str, *columns: tuple[str, Kind, str], open_ended: bool = False) -> Table:
    """columns: name, kind and doc of each; a kind ends with ``!`` where every row has a value."""
    declared = (Column(name, kind.removesuffix("!"), doc, kind.endswith("!")) for name, kind, doc in columns)
    return Table(name, row, tuple(declared), open_ended)


_CASE = ("case", "category", "case id; null outside the fiprof ranges")
_ITERATION = ("iteration", "int32", "iteration inside measure; null elsewhere")
FILE = "file"
_FILE = (FILE, "int32", "number of its file in a run that was imported from several, from 0; null in others")

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        _table(
            "launches",
            "a kernel launch under ncu",
            ("launch", "int32!", "ncu's launch ID, unique in the run"),
            _CASE,
            _ITERATION,
            ("kernel", "category", "function name without namespaces, parameters and template arguments"),
            ("kernel_full", "category", "demangled name as ncu prints it"),
            ("grid", "category", "blocks, e.g. 132x1x1"),
            ("block", "category", "threads of a block, e.g. 384x1x1"),
            ("device", "int32", "CUDA device ordinal in the profiled process"),
            ("cc", "category", "compute capability, e.g. 9.0"),
            ("pid", "int32", "profiled process"),
            ("context", "int32", "CUDA context"),
            ("stream", "int32", "CUDA stream"),
            _FILE,
            ("duration_ns", "float64", "gpu__time_duration.sum"),
            open_ended=True,
        ),
        _table(
            "metrics",
            "a launch x a metric of ncu",
            ("launch", "int32!", "ncu's launch ID"),
            ("metric", "category!", "ncu's name"),
            ("value", "float64", "number in the base unit; null for text and for what was not collected"),
            ("unit", "category", "base unit as ncu names it; empty for counts"),
            ("text", "category", "the cell where it is no number"),
        ),
        _table(
            "stalls",
            "a launch x a reason why its warps did not issue",
            ("launch", "int32!", "ncu's launch ID"),
            ("reason", "category!", "e.g. long_scoreboard; one spelling for both measures"),
            ("warps_per_issue", "float64", "warps in this state per issued instruction"),
            ("share", "float64", "of the sum over reasons, 0 to 1"),
            ("samples", "int64", "warp samples in this state; null where not sampled"),
            ("samples_not_issued", "int64", "those in cycles in which the scheduler issued nothing"),
        ),
        _table(
            "rules",
            "a finding of ncu's own rules",
            ("launch", "int32!", "ncu's launch ID"),
            ("section", "category", "ncu's section"),
            ("rule", "category", "ncu's rule"),
            ("kind", "category", "OPT, INF or WRN"),
            ("message", "string", "what the rule says"),
            ("speedup_kind", "category", "global (of the kernel) or local (of the section's share); null if none"),
            ("speedup_pct", "float64", "the rule's estimate"),
        ),
        _table(
            "hotspots",
            "a SASS instruction of a launch",
            ("launch", "int32!", "ncu's launch ID"),
            ("address", "int64!", "bytes from the kernel's first instruction"),
            ("sass", "string", "the instruction"),
            ("source_file", "category", "null where the build has no line information"),
            ("source_line", "int32", "null likewise"),
            ("samples", "int64", "warp samples at this instruction"),
            ("samples_not_issued", "int64", "those in cycles in which the scheduler issued nothing"),
            ("top_reason", "category", "the reason with most samples; null without samples"),
            ("executed", "int64", "times that a warp executed it"),
            ("sectors", "int64", "sectors of 32 bytes of global memory that it touched"),
            ("ideal_sectors", "int64", "those that it would touch if the threads of a warp accessed neighbours"),
        ),
        _table(
            "kernels",
            "a kernel execution under nsys",
            ("start_ns", "int64!", "since the trace began"),
            ("end_ns", "int64!", "since the trace began"),
            ("duration_ns", "int64!", "end - start"),
            ("device", "int32", "GPU"),
            ("stream", "int32", "CUDA stream"),
            ("pid", "int32!", "process"),
            ("kernel", "category", "function name without namespaces, parameters and template arguments"),
            ("kernel_full", "category", "demangled name"),
            ("kernel_mangled", "category", "name as the compiler made it, which ncu's filters take"),
            ("grid", "category", "blocks, e.g. 132x1x1"),
            ("block", "category", "threads of a block, e.g. 384x1x1"),
            ("registers", "int32", "registers of a thread"),
            ("shared_bytes", "int64", "static and dynamic shared memory of a block"),
            ("graph_node", "int64", "CUDA graph node; 0 for a graph that was traced whole; null outside graphs"),
            ("phase", "category", "setup, warmup or measure; null outside the fiprof ranges"),
            _CASE,
            _ITERATION,
            (
                "launch_call_ns",
                "int64",
                "duration of the CUDA call that launched it; null where not traced, and for further nodes of a graph",
            ),
            ("correlation", "int64", "of the launch call, unique with pid"),
            _FILE,
        ),
        _table(
            "ranges",
            "an NVTX range",
            ("domain", "category", "NVTX domain; empty for the default one"),
            ("name", "category!", "text of the range"),
            ("start_ns", "int64!", "since the trace began"),
            ("end_ns", "int64", "null where it never ended"),
            ("depth", "int32!", "enclosing push/pop ranges of the same thread and domain"),
            ("parent", "int64", "row number in this table of the innermost enclosing one; null at the top"),
            ("kind", "category", "push_pop or start_end"),
            ("pid", "int32!", "process"),
            ("tid", "int32!", "thread"),
            ("payload", "category", "JSON of what the program gave with it; null where it was not exported"),
            _FILE,
        ),
        _table(
            "api",
            "a CUDA call",
            ("name", "category", "e.g. cudaLaunchKernel, without its version suffix"),
            ("start_ns", "int64!", "since the trace began"),
            ("end_ns", "int64!", "since the trace began"),
            ("pid", "int32!", "process"),
            ("tid", "int32!", "thread"),
            ("correlation", "int64", "unique with pid"),
            ("status", "int32", "the call's return value, 0 is success"),
            _FILE,
        ),
        _table(
            "copies",
            "a memory copy or memory set",
            ("start_ns", "int64!", "since the trace began"),
            ("end_ns", "int64!", "since the trace began"),
            ("bytes", "int64", "bytes moved or set"),
            ("kind", "category", "e.g. Host-to-Device, or Memset"),
            ("device", "int32", "GPU"),
            ("stream", "int32", "CUDA stream"),
            ("pid", "int32!", "process"),
            ("phase", "category", "as in kernels"),
            _CASE,
            _ITERATION,
            ("correlation", "int64", "of the call, unique with pid"),
            _FILE,
        ),
        _table(
            "memory",
            "an allocation or release of device memory",
            ("time_ns", "int64!", "since the trace began"),
            ("kind", "category", "Allocation or Deallocation"),
            ("bytes", "int64!", "size of the block"),
            ("device", "int32", "GPU"),
            ("pid", "int32!", "process"),
            ("total_bytes", "int64!", "this process's device memory on this GPU after the event"),
            ("address", "int64", "device address"),
            _FILE,
        ),
        _table(
            "gpu_metrics",
            "a sample of a GPU metric",
            ("time_ns", "int64", "since the trace began"),
            ("device", "int32", "GPU"),
            ("metric", "category", "nsys's name, e.g. Tensor Active / FP16 Active [Throughput %]"),
            ("value", "float64", "percent, or the unit that the name gives"),
            _FILE,
        ),
        _table(
            "processes",
            "a process on a GPU that it ran kernels on",
            ("pid", "int32!", "process"),
            ("process", "category", "name of its program, without folders"),
            ("host", "category", "name of the machine"),
            ("device", "int32", "GPU"),
            ("gpu", "category", "name of the GPU"),
            ("uuid", "category", "of the GPU"),
            ("rank", "int32", "of the process in its job, by its environment; null where that does not say"),
            _FILE,
        ),
        _table(
            "diagnostics",
            "something that nsys said",
            ("time_ns", "int64", "since the trace began"),
            ("severity", "category", "Information, Warning or Error"),
            ("text", "string", "its words"),
            _FILE,
        ),
        _table(
            "checks",
            "one of the run's checks on its own numbers",
            ("check", "category!", "short name"),
            ("case", "category", "case id; null where it is about the whole run"),
            ("launch", "int32", "ncu's launch ID; null where it is about more"),
            ("value", "float64", "what was found"),
            ("low", "float64", "smallest value that passes; null for none"),
            ("high", "float64", "largest value that passes; null for none"),
            ("unit", "category", "of value, low and high"),
            ("passed", "bool", "null where there was not enough to tell"),
            ("values", "string", "JSON: what else was found, and why there was not enough to tell"),
        ),
    )
}


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


def empty(name: str) -> pa.Table:
    """The table with no rows."""
    return schema(name).empty_table()


def table_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.parquet"


def write(folder: Path, name: str, table: pa.Table) -> None:
    """Write a table whole or not at all. Raises ValueError for columns that are not declared."""
    declared, table = schema(name), _with_file(name, table)
    missing = [column for column in declared.names if column not in table.column_names]
    extra = [column for column in table.column_names if column not in declared.names]
    if missing or (extra and not TABLES[name].open_ended):
        raise ValueError(f"table {name}: missing columns {missing}, undeclared columns {extra}")
    ordered = table.select([*declared.names, *extra])
    typed = declared
    for column in extra:
        typed = typed.append(ordered.schema.field(column))
    with _parquet(folder, name, typed) as file:
        file.write_table(ordered.cast(typed))


@contextlib.contextmanager
def writer(folder: Path, name: str) -> Iterator[Callable[[pa.Table], None]]:
    """Write a table piece by piece: a function that takes the next rows, with exactly the declared columns.

    The file appears when the block ends, whole; after an exception in the block there is none.
    The function raises ValueError or pyarrow.ArrowInvalid for columns that do not fit.
    """
    declared = schema(name)
    with _parquet(folder, name, declared) as file:
        yield lambda piece: file.write_table(_with_file(name, piece).select(declared.names).cast(declared))


def _with_file(name: str, table: pa.Table) -> pa.Table:
    """The table with the column FILE where its kind has one."""
    import pyarrow as pa

    if FILE not in schema(name).names or FILE in table.column_names:
        return table
    return table.append_column(FILE, pa.nulls(table.num_rows, pa.int32()))


@contextlib.contextmanager
def _parquet(folder: Path, name: str, typed: pa.Schema) -> Iterator[pq.ParquetWriter]:
    import pyarrow.parquet as pq

    def of_kind(kind: Kind) -> list[str]:
        return [column.name for column in TABLES[name].columns if column.kind == kind]

    with (
        atomic_write(table_path(folder, name)) as partial,
        pq.ParquetWriter(
            # A relative path with a colon would be a URI.
            partial.absolute(),
            typed,
            compression="zstd",
            # Numbers gain nothing from a dictionary: without, the table of metrics is smaller and written faster.
            use_dictionary=of_kind("category"),
            # Times and ids mostly rise by little.
            column_encoding=dict.fromkeys(of_kind("int64"), "DELTA_BINARY_PACKED"),
            dictionary_pagesize_limit=LARGEST_DICTIONARY,
            write_statistics=False,  # a third of the time, and no reader here skips rows by them
            write_page_checksum=True,
        ) as file,
    ):
        yield file


class Reader:
    """A table's file, opened once; each column is read when it is first asked for.

    Raises FiprofError when the table is not there, cannot be read, or has other columns than declared.
    """

    def __init__(self, folder: Path, name: str) -> None:
        import pyarrow.parquet as pq

        self.folder = folder
        self.path = table_path(folder, name)
        if not confined.exists(folder.parent, f"{folder.name}/{self.path.name}"):
            raise FiprofError(
                f"{folder.parent} has no table {name}",
                f"fiprof parse {folder.parent} makes the tables from the raw files, where the run has them",
            )
        with self._errors():
            # Not read_table: that imports pyarrow.dataset, and with it pandas.
            self._file = pq.ParquetFile(self.path.absolute(), page_checksum_verification=True)
            found = self._file.schema_arrow
        if problem := _misfit(name, found):
            raise self._damaged(problem)
        self._names: list[str] = found.names
        self.columns = frozenset(self._names)
        self._read: dict[str, pa.ChunkedArray] = {}

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Some columns, or all; categories as dictionaries.

        A declared column that the file lacks, as one of an older fiprof may, is null. Raises FiprofError.
        """
        import pyarrow as pa

        wanted = list(columns) if columns is not None else self._names
        with self._errors():
            if new := [name for name in wanted if name not in self._read]:
                there = self._file.read(columns=[name for name in new if name in self.columns])
                found = self._with_absent(there, new, self.rows)
                self._read.update(zip(found.column_names, found.columns, strict=True))
            return pa.table({name: self._read[name] for name in wanted})

    @property
    def rows(self) -> int:
        return int(self._file.metadata.num_rows)

    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
        """The same in pieces of so many rows at most, of which none is kept: for tables that are larger than memory."""
        import pyarrow as pa

        with self._errors():
            for piece in self._file.iter_batches(rows, columns=[name for name in columns if name in self.columns]):
                found = self._with_absent(pa.Table.from_batches([piece]), columns, piece.num_rows)
                yield found.select(list(columns))

    def _with_absent(self, found: pa.Table, wanted: Sequence[str], rows: int) -> pa.Table:
        """With nulls for columns that the file lacks. Raises ValueError for one that may have none and has some."""
        import pyarrow as pa

        for column in TABLES[self.path.stem].columns:
            if column.name in wanted and column.name not in self.columns:
                kind = schema(self.path.stem).field(column.name).type
                found = found.append_column(column.name, pa.nulls(rows, kind))
            if column.name in wanted and column.required and (nulls := found[column.name].null_count):
                raise ValueError(f"its column {column.name} has no value in {nulls:,} rows")
        return found

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise self._damaged(next(iter(str(error).splitlines()), "it is damaged")) from error

    def _damaged(self, problem: str) -> FiprofError:
        return FiprofError(
            f"{self.path} cannot be read: {problem}",
            f"fiprof parse {self.folder.parent} makes it again from the raw files",
        )


def _misfit(name: str, found: pa.Schema) -> str:
    """A required column that a file lacks, or one of another type than the table declares; empty for none."""
    import pyarrow.types as pt

    fits: dict[Kind, Callable[[pa.DataType], bool]] = {
        "int32": pt.is_integer,
        "int64": pt.is_integer,
        "float64": pt.is_floating,
        "bool": pt.is_boolean,
        "string": pt.is_string,
        "category": lambda kind: pt.is_dictionary(kind) and pt.is_string(kind.value_type),
    }
    kinds = {column.name: column.kind for column in TABLES[name].columns}
    for column in TABLES[name].columns:
        if column.required and column.name not in found.names:
            return f"it has no column {column.name}"
    for field in found:
        kind = kinds.get(field.name, "float64" if TABLES[name].open_ended else "")
        if kind and not fits[kind](field.type):
            return f"its column {field.name} is {field.type}, not {kind}"
    return ""


def read(folder: Path, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A table as Arrow, categories as dictionaries.

    Raises FiprofError when it is not there or cannot be read.
    """
    return Reader(folder, name).read(columns)
