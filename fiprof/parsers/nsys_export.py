"""An nsys SQLite export, open for reading: small questions through sqlite3, millions of rows from the file's pages.

Somebody else wrote the file. Tables and columns may be absent, named with a version, or damaged; whatever goes wrong
in here is a FiprofError that says how to make the file again.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiprof.errors import FiprofError
from fiprof.model.redaction import masking
from fiprof.parsers.names import printable
from fiprof.parsers.recognize import connect, database_bytes, unwritten
from fiprof.parsers.sqlite_pages import Ints, NotPlainError, Pages, Values

Given = ParamSpec("Given")
Result = TypeVar("Result")
TEXTS = frozenset({"jsonText", "label", "metricName", "name", "text", "uuid", "value"})
"""Columns that hold text, in every table that is asked for them."""
PIECE_BYTES = 8 << 20  # bytes of a table's pages that are read at once
FETCHED_ROWS = 1 << 16
SORTED_ROWS = 1 << 20  # rows sorted at once, about: what memory they take does not grow with the table
SAMPLED = 64
"""A table is divided by one of so many of its times; so many of its pages show, as a rule, whether it is in order."""
READERS = 2  # threads that decode pages ahead
EARLIEST = int(np.iinfo(np.int64).min)
SECOND = 10**9  # events lie at most so many ns outside their session; recorded ones do by 0.04 s
LONGEST_NS = 30 * 86_400 * SECOND  # of a session that does not say how long it was
INCOMPLETE, IMPOSSIBLE = "without a time or a process", "whose times are not of the session"

Reading: TypeAlias = Callable[[Sequence[Ints], Mapping[str, bool]], Iterator[dict[str, Values]]]


@dataclass(frozen=True)
class Field:
    """A column to read in bulk: integers, null where the export lacks a source column."""

    name: str  # its name in the result
    needs: tuple[str, ...]  # the source columns
    combine: Callable[..., Any] | None = None
    """Makes the column of the arrays of several source columns; it is null where one of them is."""
    real: bool = False  # whether it holds real numbers instead
    required: bool = False  # whether a row without it is left out
    otherwise: int | None = None  # the value where the export lacks a source column


def column(name: str, source: str | None = None, *, required: bool = False, otherwise: int | None = None) -> Field:
    return Field(name, (source or name,), required=required, otherwise=otherwise)


class ReadAgainError(Exception):
    """A scan has to begin anew, in another way, though some rows were given already."""


def read_again(make: Callable[Given, Result]) -> Callable[Given, Result]:
    """Call a function that scans tables again whenever the rows of one turn out to be unordered or undecodable."""

    @functools.wraps(make)
    def made(*args: Given.args, **options: Given.kwargs) -> Result:
        while True:
            with contextlib.suppress(ReadAgainError):
                return make(*args, **options)

    return made


class Export:
    """The tables of one file. Use as a context manager; every method raises FiprofError for a damaged file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.absent_columns: dict[str, None] = {}  # a sentence for each column that was asked for in vain so far
        self._left_out: dict[tuple[str, str, object], int] = {}
        self._columns: dict[str, dict[str, bool]] = {}
        self._reading: dict[str, int] = {}  # table -> which way of _in_order reads it
        with self._readable():
            # SQLite would not notice a file that is cut short.
            size, expected = path.stat().st_size, database_bytes(path) or 0
            if size < expected and not unwritten(path):
                raise FiprofError(f"{path} is cut short: {size:,} of {expected:,} bytes", self._remedy)
            self._connection = connect(path)
            masked = masking()
            self._connection.text_factory = lambda raw: masked(printable(raw.decode(errors="replace")))
        versions: dict[str, tuple[int, str]] = {}
        self._named: dict[str, str] = {}  # table or view, without version and in lower case -> its kind and name
        try:
            for name, kind in self._query("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"):
                plain, version = re.fullmatch(r"(.+?)(?:_V(\d{1,9}))?", name, re.DOTALL).groups("1")  # type: ignore[union-attr]
                self._named[plain.casefold()] = f"the {kind} {name}"
                if kind == "table":
                    versions[plain] = max(versions.get(plain, (0, "")), (int(version), name))
            # Name without its version -> name in the file, of the highest version there is (``…_V2``).
            self._tables = {plain: name for plain, (_, name) in versions.items()}
            if not self.has("StringIds"):
                raise FiprofError(f"{path} is not an nsys export: it has no table StringIds", self._remedy)
        except FiprofError:
            self._connection.close()
            raise

    def __enter__(self) -> Export:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @functools.cached_property
    def about(self) -> dict[str, str]:
        """What the export says of itself, e.g. EXPORT_SCHEMA_VERSION -> 3.20.3."""
        rows = (row for table in ("EXPORT_META_DATA", "META_DATA_EXPORT") for row in self.rows(table, "name", "value"))
        return {name: str(value) for name, value in rows}

    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns; none where the table is absent."""
        return frozenset(self._described(self._tables[table])) if self.has(table) else frozenset()

    def _described(self, table: str) -> dict[str, bool]:
        """Column of a table -> whether only SQLite can read it. table: its name in the file."""
        if table not in self._columns:
            infos = self._query(f"PRAGMA main.table_xinfo({quoted(table)})")
            self._columns[table] = {info[1]: bool(info[5]) or any(each[6] for each in infos) for info in infos}
        return self._columns[table]

    def has(self, table: str) -> bool:
        """Whether the table is there, under any version of its name. Raises FiprofError for a view, or other case."""
        if table not in self._tables and (other := self._named.get(table.casefold())):
            raise FiprofError(f"{self.path} has {other} in place of nsys's table {table}", self._remedy)
        return table in self._tables

    @functools.cached_property
    def span(self) -> tuple[int, int]:
        """The first and last time (ns) of a possible event: by the session's length, else by nsys's last message."""
        details = self.rows("ANALYSIS_DETAILS", "startTime", "duration", "stopTime")
        spans = [(begin, length) for begin, length, end in details if length and end and end - length == begin]
        messages = [(time + 60 * SECOND,) * 2 for (time,) in self.rows("DIAGNOSTIC_EVENT", "timestamp") if time]
        before, after = (max(each) + SECOND for each in zip(*(spans or messages or [(LONGEST_NS,) * 2]), strict=True))
        # A span that most of the first kernels lie outside of is of something else.
        table = self._tables.get("CUPTI_ACTIVITY_KIND_KERNEL")
        some = self._query(f'SELECT "start" FROM {quoted(table)} LIMIT 99') if table else []
        inside = sum(isinstance(time, int) and -before <= time <= after for (time,) in some)
        return (-before, after) if 2 * inside >= len(some) else (-LONGEST_NS, LONGEST_NS)

    @property
    def left_out(self) -> tuple[str, ...]:
        """A sentence for each table with rows that were left out so far, and why."""
        counts: Counter[tuple[str, str]] = Counter()
        for (table, why, _), rows in self._left_out.items():
            counts[table, why] += rows
        return tuple(f"{table}: {rows:,} rows {why} are left out" for (table, why), rows in counts.items() if rows)

    def require(self, table: str, *columns: str) -> bool:
        """Whether a table has these columns; the first that it lacks is noted among the absent ones."""
        absent = next((column for column in columns if column not in self.columns(table)), None)
        if absent is not None and self.has(table):
            self.absent_columns[f"{table} has no {absent}: its rows are left out"] = None
        return absent is None

    def rows(self, table: str, *columns: str, where: dict[str, Sequence[int]] | None = None) -> list[tuple[Any, ...]]:
        """These columns of every row; null for a column that is absent, no rows where the table is.

        The columns of TEXTS are printable text, all others integers. where: columns, each with its allowed values; no
        rows where one of these is absent.
        """
        present, where = self.columns(table), where or {}
        if not present or not present.issuperset(where):
            return []
        kinds = {name: "TEXT" if name in TEXTS else "INTEGER" for name in columns}
        cells = (f"CAST({quoted(name) if name in present else 'NULL'} AS {kind})" for name, kind in kinds.items())
        query = f"SELECT {', '.join(cells)} FROM {quoted(self._tables[table])}"
        if where:
            allowed = (f"{quoted(name)} IN ({', '.join('?' * len(values))})" for name, values in where.items())
            query += f" WHERE {' AND '.join(allowed)}"
        all_rows = self._query(query, *itertools.chain(*where.values()))
        if not (places := [place for place, name in enumerate(columns) if name in ("start", "end")]):
            return all_rows
        low, high = self.span
        possible = [row for row in all_rows if all(row[place] is None or low <= row[place] <= high for place in places)]
        self._left_out[table, IMPOSSIBLE, query] = len(all_rows) - len(possible)
        return possible

    def strings(self, ids: Sequence[int]) -> list[str | None]:
        """The texts of StringIds; None for an id that is not in it."""
        texts: dict[int, str] = {}
        for begin in range(0, len(ids), 500):
            texts.update(dict(self.rows("StringIds", "id", "value", where={"id": ids[begin : begin + 500]})))
        return [texts.get(number) for number in ids]

    def strings_with(self, part: str) -> list[str]:
        query = f"SELECT value FROM {quoted(self._tables['StringIds'])} WHERE instr(value, ?)"
        return [str(text) for (text,) in self._query(query, part)]

    def distinct(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The integers that some columns have together; none where the table or one of them is absent."""
        if not self.columns(table).issuperset(columns):
            return []
        cells = ", ".join(f"CAST({quoted(name)} AS INTEGER)" for name in columns)
        return self._query(f"SELECT DISTINCT {cells} FROM {quoted(self._tables[table])}")

    def occurs(self, table: str, **values: int) -> bool:
        if not self.columns(table).issuperset(values):
            return False
        where = " AND ".join(f"{quoted(name)} = ?" for name in values)
        return bool(self._query(f"SELECT 1 FROM {quoted(self._tables[table])} WHERE {where} LIMIT 1", *values.values()))

    def scan(self, table: str, fields: Sequence[Field], *, order: str) -> Iterator[pa.RecordBatch]:
        """A table's rows in pieces of some hundred thousand, in ascending order of one field.

        Rows that lack a required field are left out; all of them where the table has no such column. To be called
        by a function under ``read_again``.
        """
        required = [field for field in fields if field.required]
        needed = (source for field in required if field.otherwise is None for source in field.needs)
        if not self.has(table) or not self.require(table, *needed):
            return
        present = self.columns(table)
        reals: dict[str, bool] = {}
        for field in fields:
            if absent := [name for name in field.needs if name not in present]:
                self.absent_columns[f"{table} has no {' and no '.join(absent)}: {field.name} is unknown"] = None
            reals.update((name, field.real) for name in field.needs if name in present)
        if not reals:
            return
        key = next((name for field in fields if field.name == order for name in field.needs if name in present), None)
        incomplete, impossible = 0, 0
        for values in self._in_order(self._tables[table], reals, key):
            whole = _batch(fields, values)
            possible = _possible(whole, self.span)
            incomplete += len(next(iter(values.values())).numbers) - whole.num_rows
            impossible += whole.num_rows - possible.num_rows
            if possible.num_rows:
                yield possible
        self._left_out[table, INCOMPLETE, tuple(fields)] = incomplete
        self._left_out[table, IMPOSSIBLE, tuple(fields)] = impossible

    def _in_order(self, table: str, reals: Mapping[str, bool], key: str | None) -> Iterator[dict[str, Values]]:
        """Columns of a table in the order of one of them, the key. Tables that lie in that order are read as they lie,
        others are sorted here; those whose pages cannot be decoded SQLite sorts, which takes many times as long.

        reals: column -> whether it is of real numbers. key: None where the table lacks it.
        """
        ways = (self._as_they_lie, self._sorted, self._by_sqlite)
        try:
            yield from ways[self._reading.setdefault(table, 0)](table, reals, key)
        except (_OutOfOrderError, NotPlainError) as error:
            self._reading[table] = 1 if isinstance(error, _OutOfOrderError) else 2
            raise ReadAgainError from error

    def _as_they_lie(self, table: str, reals: Mapping[str, bool], key: str | None) -> Iterator[dict[str, Values]]:
        """Rows in the order of their ids. Raises _OutOfOrderError, for most tables before any row is given."""
        last = EARLIEST
        with self._plain(table, reals) as (groups, read):
            if key is not None:
                leaves = np.concatenate(groups)
                (some,) = read([leaves[:: max(1, len(leaves) // SAMPLED)]], {key: False})
                _ascending(some[key], EARLIEST)
            for values in read(groups, reals):
                last = _ascending(values[key], last) if key is not None else last
                yield values

    def _sorted(self, table: str, reals: Mapping[str, bool], key: str | None) -> Iterator[dict[str, Values]]:
        """Rows by the key, then by id: one stretch of keys after the other is read from its pages and sorted."""
        assert key is not None
        with self._plain(table, reals) as (groups, read):
            spans, sample = [], []
            for values in read(groups, {key: False}):
                times = _times(values[key])
                spans.append((times.min(initial=np.iinfo(np.int64).max), times.max(initial=EARLIEST)))
                sample.append(times[::SAMPLED])
            # Stretches of about SORTED_ROWS: the edges between them are times that rows have.
            edges = np.unique(np.sort(np.concatenate(sample))[SORTED_ROWS // SAMPLED :: SORTED_ROWS // SAMPLED])
            stretches = np.searchsorted(edges, np.array(spans), side="right").tolist()
            for number in range(len(edges) + 1):
                spanned = zip(groups, stretches, strict=True)
                overlapping = [group for group, (first, last) in spanned if first <= number <= last]
                if not overlapping:
                    # The first edge is the earliest time of all: nothing lies before it.
                    continue
                parts = []
                for values in read(overlapping, reals):
                    which = np.flatnonzero(np.searchsorted(edges, _times(values[key]), side="right") == number)
                    parts.append({name: each.take(which) for name, each in values.items()})
                stretch = {name: Values.join([each[name] for each in parts]) for name in reals}
                del parts
                order = np.argsort(_times(stretch[key]), kind="stable")
                for begin in range(0, len(order), FETCHED_ROWS):
                    yield {name: each.take(order[begin : begin + FETCHED_ROWS]) for name, each in stretch.items()}

    def _by_sqlite(self, table: str, reals: Mapping[str, bool], key: str | None) -> Iterator[dict[str, Values]]:
        """Rows by the key, whatever they hold."""
        select = ", ".join(f"CAST({quoted(name)} AS REAL)" if real else quoted(name) for name, real in reals.items())
        query = f"SELECT {select} FROM {quoted(table)}" + (f" ORDER BY {quoted(key)}" if key else "")
        with self._readable():
            cursor = self._connection.execute(query)
            while rows := cursor.fetchmany(FETCHED_ROWS):
                columns = {}
                for (name, real), cells in zip(reals.items(), zip(*rows, strict=True), strict=True):
                    array = pa.array(cells, pa.float64() if real else pa.int64())
                    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
                    columns[name] = Values(array.fill_null(0).to_numpy(zero_copy_only=False), nulls)
                yield columns

    def integers(self, table: str, columns: Sequence[str]) -> set[int]:
        """The distinct integers in some columns of a table. table: its name in the file."""
        numbers: set[int] = set()
        try:
            with self._plain(table, columns) as (groups, read):
                for piece in read(groups, dict.fromkeys(columns, False)):
                    for each in piece.values():
                        given = each.numbers if each.nulls is None else each.numbers[~each.nulls]
                        few = len(given) and given.min() >= 0 and given.max() < len(given)
                        numbers.update((np.flatnonzero(np.bincount(given)) if few else np.unique(given)).tolist())
        except NotPlainError:
            for row in self._query(f"SELECT DISTINCT {', '.join(map(quoted, columns))} FROM {quoted(table)}"):
                numbers.update(cell for cell in row if isinstance(cell, int))
        return numbers

    @contextlib.contextmanager
    def _plain(self, table: str, columns: Collection[str]) -> Iterator[tuple[list[Ints], Reading]]:
        """A table's pages in groups of PIECE_BYTES, by the rows' ids; and a function that reads some of these groups.

        The function takes column -> whether it is of real numbers, and gives these columns of each group's rows,
        decoded READERS groups ahead. Raises NotPlainError where only SQLite can read a column.
        """
        roots = self._query("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", table)
        described = self._described(table)
        # A column that is the row's id is not stored in the row; a log beside the file may hold changes.
        if not roots or not roots[0][0] or any(map(described.get, columns)) or unwritten(self.path):
            raise NotPlainError
        names, ((count,),) = list(described), self._query("PRAGMA page_count")
        pages = Pages(self.path, count)
        with self._readable(), contextlib.closing(pages), ThreadPoolExecutor(READERS) as readers:

            def read(groups: Sequence[Ints], reals: Mapping[str, bool]) -> Iterator[dict[str, Values]]:
                places = {names.index(name): real for name, real in reals.items()}
                ahead: deque[Future[dict[int, Values]]] = deque()
                for group in (*groups, *([None] * READERS)):
                    if group is not None:
                        ahead.append(readers.submit(pages.read, group, len(names), places))
                    if ahead and (group is None or len(ahead) > READERS):
                        yield {names[place]: values for place, values in ahead.popleft().result().items()}

            leaves, step = pages.leaves(roots[0][0]), max(1, PIECE_BYTES // pages.page_bytes)
            yield [leaves[begin : begin + step] for begin in range(0, len(leaves), step)], read

    def _query(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._readable():
            return self._connection.execute(query, values).fetchall()

    def damaged(self, error: Exception) -> FiprofError:
        reason = str(error)
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
        """Turn whatever the libraries raise for a file that cannot be read into a FiprofError."""
        try:
            yield
        except FileNotFoundError:
            what = f"{self.path} does not exist"
            raise FiprofError(what, "nsys export --type sqlite makes it from a report") from None
        except PermissionError as error:
            raise FiprofError(f"{self.path} cannot be read: {error.strerror}") from error
        except (sqlite3.Error, pa.ArrowInvalid, pa.ArrowTypeError, OSError, UnicodeError, OverflowError) as error:
            if "database is locked" in str(error):
                what = f"{self.path} is locked: another program is writing it"
                raise FiprofError(what, "wait until nsys has finished exporting") from error
            raise self.damaged(error) from error


class _OutOfOrderError(Exception):
    """Rows do not lie in ascending order of the key."""


def _times(values: Values) -> Ints:
    """The values of a key, EARLIEST for null: SQLite sorts null before all others."""
    return values.numbers if values.nulls is None else np.where(values.nulls, EARLIEST, values.numbers)


def _ascending(values: Values, last: int) -> int:
    """The last of a key's values. Raises _OutOfOrderError where they do not ascend from ``last``."""
    numbers = _times(values)
    if not len(numbers):
        return last
    if numbers[0] < last or (numbers[:-1] > numbers[1:]).any():
        raise _OutOfOrderError
    return int(numbers[-1])


def _batch(fields: Sequence[Field], values: Mapping[str, Values]) -> pa.RecordBatch:
    """The fields, made of their source columns; without the rows that lack a required one."""
    columns, rows = [], len(next(iter(values.values())).numbers)
    for field in fields:
        sources = [values[name] for name in field.needs if name in values]
        if len(sources) < len(field.needs):
            kind = pa.float64() if field.real else pa.int64()
            columns.append(pa.repeat(pa.scalar(field.otherwise, kind), rows))
            continue
        numbers = [source.numbers for source in sources]
        nulls = [source.nulls for source in sources if source.nulls is not None]
        mask = np.logical_or.reduce(nulls) if nulls else None
        columns.append(pa.array(field.combine(*numbers) if field.combine else numbers[0], mask=mask))
    piece = pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])
    for field in fields:
        if field.required and piece[field.name].null_count:
            piece = piece.filter(piece[field.name].is_valid())
    return piece


def _possible(piece: pa.RecordBatch, span: tuple[int, int]) -> pa.RecordBatch:
    """The rows whose known times lie in a span (ns), the end not before the start."""
    times = [piece[name] for name in ("start_ns", "end_ns", "time_ns") if name in piece.schema.names]
    bounds = (pa.scalar(span[0]), *times, pa.scalar(span[1]))
    wrong = [pc.greater(earlier, later) for earlier, later in itertools.pairwise(bounds)]
    if not any(pc.any(each).as_py() for each in wrong):
        return piece
    return piece.filter(pc.invert(functools.reduce(pc.or_kleene, wrong)).fill_null(True))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
