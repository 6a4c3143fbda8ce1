"""The catalogue's database: opened, brought to this fiprof's tables, and written.

A run's rows are written in one transaction. Writers take turns, by SQLite's own lock or by an advisory lock of
PostgreSQL, and decide within their turn what is new: several who index the same runs at once write each of them once.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from fiprof.errors import FiprofError
from fiprof.model.catalogue import schema
from fiprof.model.catalogue.entry import Entry, Row
from fiprof.model.catalogue.schema import LONGEST_NAME, archives, row_id, runs

ADVISORY_LOCK = 0x66_6970_726F66
"""PostgreSQL's lock of whoever writes: a number that no other program takes."""
BUSY_S = 60
"""Longest wait for another writer of an SQLite file."""
MOST_IDS = 500
"""Values in one condition."""
MIGRATIONS = Path(__file__).parent / "migrations"
INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Damaged(FiprofError):
    """A file that is not a database, or no longer."""


class Catalogue:
    """A database of runs. Every method raises FiprofError where the database refuses."""

    def __init__(self, url: str) -> None:
        """url: as SQLAlchemy takes it, e.g. ``sqlite:///FILE`` or ``postgresql+psycopg://HOST/NAME``."""
        try:
            self.url = sa.make_url(url)
            self.is_sqlite = self.url.get_backend_name() == "sqlite"
            if self.url.get_backend_name() not in INSERT:
                raise ArgumentError("it is neither SQLite nor PostgreSQL")
            self.engine = sa.create_engine(self.url, connect_args={"timeout": BUSY_S} if self.is_sqlite else {})
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise FiprofError(
                f"the catalogue {url} cannot be opened: {next(iter(str(error).splitlines()), '')}",
                "a catalogue is sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME (pip install 'fiprof[postgres]')",
                exit_code=2,
            ) from error
        sa.event.listen(self.engine, "connect", _prepare_sqlite if self.is_sqlite else _prepare_postgresql)
        if self.is_sqlite:
            sa.event.listen(self.engine, "begin", _begin_sqlite)

    @property
    def name(self) -> str:
        """What people know it by: its file, or its URL without the password."""
        return self.url.database or "" if self.is_sqlite else self.url.render_as_string()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that only reads."""
        with self._errors(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction of the only writer."""
        with self._errors(), self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            if not self.is_sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
            yield connection

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            reason = str(error.orig if isinstance(error, DBAPIError) else error)
            # SQLite's own words for a file that it cannot read; what it merely cannot do is an OperationalError.
            kind = Damaged if type(error) is DatabaseError else FiprofError
            raise kind(
                f"the catalogue {self.name}: {next(iter(reason.splitlines()), 'it failed')}",
                "fiprof index makes it again from the run folders; --catalog or FIPROF_CATALOG names another",
            ) from error

    # Tables

    def migrate(self) -> None:
        """Make the tables, or bring an older fiprof's to this one's."""
        with self.reading() as connection:
            if _version(connection) == schema.HEAD and not _missing_columns(connection):
                return
        with self.writing() as connection:
            found = _version(connection)
            if found is None or found in schema.REMADE or (self.is_sqlite and found < schema.HEAD):
                older = sa.MetaData()
                names = {*schema.METADATA.tables, "cases", "packages"} if found else ()
                older.reflect(connection, only=lambda name, _: name in names)
                older.drop_all(connection)
                schema.METADATA.create_all(connection, checkfirst=False)
                connection.execute(schema.version.insert().values(version_num=schema.HEAD))
            elif found != schema.HEAD:
                self._upgrade(connection, found)
            missing = _missing_columns(connection)
            for key in missing:
                connection.exec_driver_sql(f'ALTER TABLE measured ADD COLUMN "{key}" FLOAT')
            if missing:
                connection.execute(runs.update().values(stamp=""))

    def _upgrade(self, connection: sa.Connection, found: str) -> None:
        from alembic import command
        from alembic.config import Config
        from alembic.util.exc import CommandError

        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise FiprofError(
                f"the catalogue {self.name} is of version {found}, which this fiprof does not know",
                "read it with a later fiprof, or name another with --catalog",
            ) from error

    # Runs

    def archive(self, key: str, path: str, *, alone: bool) -> int:
        """The id of an archive. alone: the only one; what the catalogue has of others is no longer true.

        key: what tells it from other archives. path: where it lies.
        """
        number = row_id(key)
        with self.reading() as connection:
            there = {row.id: row.path for row in connection.execute(sa.select(archives))}
        if there.get(number) != path or (alone and len(there) > 1):
            with self.writing() as connection:
                if alone:
                    _delete(connection, sa.select(runs.c.id).where(runs.c.archive != number))
                connection.execute(archives.delete().where(sa.true() if alone else archives.c.id == number))
                connection.execute(archives.insert().values(id=number, path=path))
        return number

    def stamps(self, archive: int) -> dict[str, str]:
        """Name -> stamp of an archive's runs."""
        with self.reading() as connection:
            found = connection.execute(sa.select(runs.c.name, runs.c.stamp).where(runs.c.archive == archive))
            return {row.name: row.stamp for row in found}

    def remove(self, archive: int, names: Iterable[str] | None = None) -> None:
        """Remove runs of an archive; all of them without names."""
        with self.writing() as connection:
            if names is None:
                _delete(connection, sa.select(runs.c.id).where(runs.c.archive == archive))
            else:
                _delete(connection, [row_id(archive, name) for name in names])

    def add(self, archive: int, entries: Sequence[Entry]) -> int:
        """Write runs in place of those of the same names, except where they are there already. Returns how many."""
        with self.writing() as connection:
            by_id = {row_id(archive, entry.run["name"]): entry for entry in entries}
            for some in _pieces(list(by_id)):
                for row in connection.execute(sa.select(runs.c.id, runs.c.stamp).where(runs.c.id.in_(some))):
                    if by_id[row.id].run["stamp"] == row.stamp:
                        del by_id[row.id]
            _delete(connection, list(by_id))
            rows: dict[sa.Table, dict[Any, Row]] = {table: {} for table in schema.METADATA.sorted_tables}
            for run, entry in by_id.items():
                _add_rows(rows, archive, run, entry)
            for table, found in rows.items():
                if found:
                    _insert(connection, table, list(found.values()))
        return len(by_id)

    def analyze(self) -> None:
        """Have PostgreSQL look at the tables now, after many new runs: it plans by what it saw last."""
        if not self.is_sqlite:
            with self.writing() as connection:
                connection.exec_driver_sql("ANALYZE")


def _add_rows(rows: dict[sa.Table, dict[Any, Row]], archive: int, run: int, entry: Entry) -> None:
    """Add a run's rows, each once by its key."""
    environment = row_id(*entry.environment.values())
    rows[schema.environments][environment] = {"id": environment, **entry.environment}
    place = {"archive": archive, "environment": environment}
    rows[runs][run] = {"id": run, **place, **entry.run}
    rows[schema.descriptions][run] = {"run": run, "shown": json.dumps(entry.description)}
    for tag in json.loads(entry.run["tags"]):
        rows[schema.tags][tag[:LONGEST_NAME], run] = {"tag": tag[:LONGEST_NAME], "run": run}
    place |= {"run": run, "started_us": entry.run["started_us"]}
    for number, each in enumerate(entry.results):
        subject, whole = row_id(each.case, each.kernel), row_id(each.case, None) if each.case else None
        for key, kernel in {whole: None, subject: each.kernel}.items():
            if key is not None:
                rows[schema.subjects][key] = {"id": key, "case": each.case, "kernel": kernel, "whole": whole}
        values = {key: each.values.get(key) for key in schema.VALUES}
        rows[schema.measured][subject, run] = {"subject": subject, "place": number, **place, **values}
    for case, parameters in entry.parameters.items():
        whole = row_id(case, None)
        for name, value in parameters.items():
            named = {"subject": whole, "name": name[:LONGEST_NAME]}
            rows[schema.parameters].setdefault((whole, name), {**named, **_parameter(value)})


def _insert(connection: sa.Connection, table: sa.Table, rows: list[Row]) -> None:
    """Insert rows, except those that are there; through the driver itself, which halves the time for 40 columns."""
    insert = INSERT[connection.dialect.name](table).on_conflict_do_nothing()
    statement = insert.compile(dialect=connection.dialect, column_keys=list(rows[0]))
    order = statement.positiontup
    values: Any = [tuple(map(row.__getitem__, order)) for row in rows] if order else rows
    connection.exec_driver_sql(str(statement), values)


def _parameter(value: bool | float | str) -> Row:
    """As text, and as a number where it is one."""
    number: float | None = None
    if not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    finite = number is not None and math.isfinite(number)
    return {"text": text[:LONGEST_NAME], "number": number if finite else None}


def _version(connection: sa.Connection) -> str | None:
    """The migration that made the tables; None where there are none."""
    if not sa.inspect(connection).has_table(schema.version.name):
        return None
    return connection.scalar(sa.select(schema.version.c.version_num))


def _missing_columns(connection: sa.Connection) -> list[str]:
    """Quantities for which an older fiprof made no column."""
    there = connection.execute(sa.select(sa.text("*")).select_from(schema.measured).limit(0)).keys()
    return [key for key in schema.VALUES if key not in there]


def _delete(connection: sa.Connection, which: sa.Select[Any] | Sequence[int]) -> None:
    """Delete runs by their ids; the rows that runs share stay."""
    for some in [which] if isinstance(which, sa.Select) else _pieces(which):
        for table in (schema.measured, schema.tags, schema.descriptions):
            connection.execute(table.delete().where(table.c.run.in_(some)))
        connection.execute(runs.delete().where(runs.c.id.in_(some)))


def _pieces(values: Sequence[int]) -> Iterator[Sequence[int]]:
    return (values[start : start + MOST_IDS] for start in range(0, len(values), MOST_IDS))


def _prepare_sqlite(connection: Any, _: object) -> None:
    """A file that a stranger may have made: its functions are not run. Transactions begin as :func:`_begin_sqlite`."""
    connection.isolation_level = None
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA cache_size = -65536")
    deadline = time.monotonic() + BUSY_S
    # Changing the mode does not wait for others, as everything else does.
    while connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except connection.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _prepare_postgresql(connection: Any, _: object) -> None:
    """Tables that fit into memory: random reads cost what sequential ones do, and compiling a query more than it."""
    connection.execute("SET random_page_cost = 1.1")
    connection.execute("SET effective_cache_size = '16GB'")
    connection.execute("SET jit = off")
    connection.commit()


def _begin_sqlite(connection: sa.Connection) -> None:
    immediate = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
