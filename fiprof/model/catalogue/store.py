"""The catalogue's database: opened, brought to this fiprof's tables, and written.

A run's rows are written in one transaction. Writers take turns, by SQLite's own lock or by an advisory lock of
PostgreSQL, and decide within their turn what is new: several who index the same runs at once write each of them once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from fiprof.errors import FiprofError
from fiprof.model.catalogue import schema
from fiprof.model.catalogue.entry import Entry, Environment

ADVISORY_LOCK = 0x66_6970_726F66
"""PostgreSQL's lock of whoever writes: a number that no other program takes."""
BUSY_S = 60
"""Longest wait for another writer of an SQLite file."""
SOME = 500
"""Values in one condition."""
MIGRATIONS = Path(__file__).parent / "migrations"

Rows = list[dict[str, Any]]


class Damaged(FiprofError):
    """A file that is no database, or no longer."""


class Catalogue:
    """A database of runs. Every method raises FiprofError where the database refuses."""

    def __init__(self, url: str) -> None:
        """url: as SQLAlchemy takes it, e.g. ``sqlite:///FILE`` or ``postgresql+psycopg://HOST/NAME``."""
        try:
            self.url = sa.make_url(url)
            options = {"timeout": BUSY_S} if self.url.get_backend_name() == "sqlite" else {}
            self.engine = sa.create_engine(self.url, connect_args=options)
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise FiprofError(
                f"the catalogue {url} cannot be opened: {next(iter(str(error).splitlines()), '')}",
                "a catalogue is sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME (pip install 'fiprof[postgres]')",
                exit_code=2,
            ) from error
        if self.engine.dialect.name == "sqlite":
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        elif self.engine.dialect.name == "postgresql":
            sa.event.listen(self.engine, "connect", _prepare_postgresql)
        self._known: dict[str, dict[str, int]] = {}
        """Table -> digest -> id, of rows that stay once they are there."""

    @property
    def name(self) -> str:
        """What people know it by: its file, or its URL without the password."""
        return self.url.database or "" if self.url.get_backend_name() == "sqlite" else self.url.render_as_string()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that only reads."""
        with self._errors(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction of the only writer."""
        with self._errors(), self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
            yield connection

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            said = str(error.orig if isinstance(error, DBAPIError) else error)
            # SQLite's own words for a file that it cannot read; what it merely cannot do is an OperationalError.
            kind = Damaged if type(error) is DatabaseError else FiprofError
            raise kind(
                f"the catalogue {self.name}: {next(iter(said.splitlines()), 'it failed')}",
                "fiprof index makes it again from the run folders; --catalog or FIPROF_CATALOG names another",
            ) from error

    # Tables

    def migrate(self) -> None:
        """Make the tables, or bring an older fiprof's to this one's."""
        with self.reading() as connection:
            if _version(connection) == schema.HEAD:
                return
        with self.writing() as connection:
            found = _version(connection)
            if found is None:
                schema.METADATA.create_all(connection, checkfirst=False)
                connection.execute(schema.version.insert().values(version_num=schema.HEAD))
            elif found != schema.HEAD:
                self._upgrade(connection, found)

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
        table = schema.archives
        with self.reading() as connection:
            found = connection.execute(sa.select(table.c.id, table.c.path).where(table.c.key == key)).one_or_none()
            others = alone and connection.execute(sa.select(table.c.id).where(table.c.key != key)).first()
        if found and found.path == path and not others:
            return int(found.id)
        with self.writing() as connection:
            if others:
                _delete(connection, schema.runs.c.archive.in_(sa.select(table.c.id).where(table.c.key != key)))
                connection.execute(table.delete().where(table.c.key != key))
            there = connection.scalar(sa.select(table.c.id).where(table.c.key == key))
            if there is None:
                there = _next_id(connection, table)
                connection.execute(table.insert().values(id=there, key=key, path=path))
            else:
                connection.execute(table.update().where(table.c.id == there).values(path=path))
        return int(there)

    def stamps(self, archive: int) -> dict[str, str]:
        """Name -> stamp of an archive's runs."""
        runs = schema.runs.c
        with self.reading() as connection:
            found = connection.execute(sa.select(runs.name, runs.stamp).where(runs.archive == archive))
            return {row[0]: row[1] for row in found}

    def remove(self, archive: int, names: Iterable[str] | None = None) -> None:
        """Remove runs of an archive; all of them without names."""
        runs = schema.runs.c
        with self.writing() as connection:
            if names is None:
                _delete(connection, runs.archive == archive)
            for some in _some(list(names or ())):
                _delete(connection, sa.and_(runs.archive == archive, runs.name.in_(some)))

    def add(self, archive: int, entries: Sequence[Entry]) -> int:
        """Write runs in place of those of the same names, except where they are there already. Returns how many."""
        runs = schema.runs.c
        with self.writing() as connection:
            there: dict[str, str] = {}
            for some in _some([entry.name for entry in entries]):
                named = sa.and_(runs.archive == archive, runs.name.in_(some))
                found = connection.execute(sa.select(runs.name, runs.stamp).where(named))
                there |= {row.name: row.stamp for row in found}
            new = [entry for entry in entries if there.get(entry.name) != entry.stamp]
            for some in _some([entry.name for entry in new if entry.name in there]):
                _delete(connection, sa.and_(runs.archive == archive, runs.name.in_(some)))
            if new:
                self._insert(connection, archive, new)
        return len(new)

    def analyze(self) -> None:
        """Have PostgreSQL look at the tables now, after many new runs: it plans by what it saw last."""
        if self.engine.dialect.name == "postgresql":
            with self.writing() as connection:
                connection.exec_driver_sql("ANALYZE")

    def _insert(self, connection: sa.Connection, archive: int, entries: Sequence[Entry]) -> None:
        environment = self._environments(connection, entries)
        case = self._cases(connection, entries)
        subject = self._subjects(connection, entries, case)
        first = _next_id(connection, schema.runs)
        rows: dict[str, Rows] = {"runs": [], "descriptions": [], "tags": [], "measured": []}
        for run, entry in enumerate(entries, first):
            place = {"archive": archive, "started_us": entry.started_us, "environment": environment[entry.environment]}
            rows["runs"].append({"id": run, **place, **{name: getattr(entry, name) for name in OF_RUN}})
            rows["descriptions"].append({"run": run, **_description(entry)})
            rows["tags"] += [
                {"tag": tag, "run": run}
                for tag in dict.fromkeys(tag[: schema.LONGEST_NAME] for tag in entry.annotations.tags)
            ]
            measured = {subject[each.case, each.kernel]: each.values for each in entry.results}
            rows["measured"] += [
                {"run": run, "subject": number, **place, **{key: values.get(key) for key in schema.VALUES}}
                for number, values in measured.items()
            ]
        for name, found in rows.items():
            _insert_rows(connection, schema.METADATA.tables[name], found)

    # What many runs share: each once

    def _environments(self, connection: sa.Connection, entries: Sequence[Entry]) -> dict[Environment, int]:
        digests = {each: _digest(*astuple(each)) for each in {entry.environment for entry in entries}}
        rows = {
            digest: {"gpu": each.gpu, "uuid": each.uuid, "driver": each.driver, "cuda": each.cuda}
            for each, digest in digests.items()
        }
        ids, new = self._ids(connection, schema.environments, rows)
        packages = [
            {"environment": ids[digest], "name": name, "version": version}
            for each, digest in digests.items()
            if digest in new
            for name, version in {name[: schema.LONGEST_NAME]: version for name, version in each.packages}.items()
        ]
        _insert_rows(connection, schema.packages, packages)
        return {each: ids[digest] for each, digest in digests.items()}

    def _cases(self, connection: sa.Connection, entries: Sequence[Entry]) -> dict[str, int]:
        named = {case.id: case for entry in entries for case in entry.cases}
        # What the tables say of cases that the manifest does not know.
        others = {each.case for entry in entries for each in entry.results if each.case} - {*named}
        workloads = {**{case.id: case.workload for case in named.values()}, **dict.fromkeys(others, "")}
        digests = {case: _digest(case) for case in workloads}
        rows = {digests[case]: {"case": case, "workload": workload} for case, workload in workloads.items()}
        ids, new = self._ids(connection, schema.cases, rows)
        parameters = [
            {"case": ids[digests[case.id]], "name": name, **value}
            for case in named.values()
            if digests[case.id] in new
            for name, value in {k[: schema.LONGEST_NAME]: _parameter(v) for k, v in case.params.items()}.items()
        ]
        _insert_rows(connection, schema.parameters, parameters)
        return {case: ids[digest] for case, digest in digests.items()}

    def _subjects(
        self, connection: sa.Connection, entries: Sequence[Entry], case: Mapping[str, int]
    ) -> dict[tuple[str | None, str | None], int]:
        pairs = {(each.case, each.kernel): _digest(each.case, each.kernel) for e in entries for each in e.results}
        wholes = {_digest(name, None): {"case": case[name], "kernel": None, "whole": None} for name, _ in pairs if name}
        ids, _ = self._ids(connection, schema.subjects, wholes)
        rows = {
            digest: {
                "case": case[name] if name else None,
                "kernel": kernel,
                "whole": ids[_digest(name, None)] if name else None,
            }
            for (name, kernel), digest in pairs.items()
            if kernel is not None
        }
        more, _ = self._ids(connection, schema.subjects, rows)
        ids |= more
        return {pair: ids[digest] for pair, digest in pairs.items()}

    def _ids(
        self, connection: sa.Connection, table: sa.Table, rows: Mapping[str, dict[str, Any]]
    ) -> tuple[dict[str, int], set[str]]:
        """The ids of rows by their digests, and which of them are new; those are inserted."""
        known = self._known.setdefault(table.name, {})
        for some in _some([digest for digest in rows if digest not in known]):
            found = connection.execute(sa.select(table.c.digest, table.c.id).where(table.c.digest.in_(some)))
            known.update((row.digest, row.id) for row in found)
        new = [digest for digest in rows if digest not in known]
        numbers = dict(zip(new, range(first := _next_id(connection, table), first + len(new)), strict=True))
        _insert_rows(
            connection, table, [{"id": number, "digest": digest, **rows[digest]} for digest, number in numbers.items()]
        )
        # Not into known: the transaction may still fail.
        return {digest: known.get(digest) or numbers[digest] for digest in rows}, {*new}


def _description(entry: Entry) -> dict[str, Any]:
    return {
        **{name: getattr(entry, name) for name in ("reason", "replayed_from", "command")},
        "cases": json.dumps([case.id for case in entry.cases]),
        "case_labels": json.dumps(entry.case_labels),
        "tools": json.dumps(entry.tools),
        "tags": json.dumps(entry.annotations.tags),
        "notes": json.dumps([vars(note) for note in entry.annotations.notes]),
    }


OF_RUN = (
    "name", "stamp", "status", "started", "duration_s", "fiprof", "git", "user", "host", "bytes", "conditions",
)  # fmt: skip
"""Columns of ``runs`` that are an entry's attributes."""


def _parameter(value: bool | float | str) -> dict[str, Any]:
    """As text, and as a number where it is one."""
    number: float | None = None
    if not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    finite = number is not None and math.isfinite(number)
    return {"text": text[: schema.LONGEST_NAME], "number": number if finite else None}


def _digest(*of: object) -> str:
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:32]


def _version(connection: sa.Connection) -> str | None:
    """The migration that made the tables; None where there are none."""
    if not sa.inspect(connection).has_table(schema.version.name):
        return None
    return connection.scalar(sa.select(schema.version.c.version_num))


def _next_id(connection: sa.Connection, table: sa.Table) -> int:
    """Only the writer may ask."""
    return int(connection.scalar(sa.select(sa.func.coalesce(sa.func.max(table.c.id), 0))) or 0) + 1


def _delete(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    runs = sa.select(schema.runs.c.id).where(which)
    for table in (schema.measured, schema.tags, schema.descriptions):
        connection.execute(table.delete().where(table.c.run.in_(runs)))
    connection.execute(schema.runs.delete().where(which))


def _insert_rows(connection: sa.Connection, table: sa.Table, rows: Rows) -> None:
    if not rows:
        return
    names = ", ".join(f'"{name}"' for name in rows[0])
    into = f'"{table.name}" ({names})'
    values = [tuple(row.values()) for row in rows]
    # Each many times as quick as what any database takes.
    match connection.dialect.name:
        case "sqlite":
            places = ", ".join("?" * len(rows[0]))
            connection.exec_driver_sql(f"INSERT INTO {into} VALUES ({places})", values)
        case "postgresql":
            cursor: Any = connection.connection.cursor()
            with cursor, cursor.copy(f"COPY {into} FROM STDIN") as copy:
                for each in values:
                    copy.write_row(each)
        case _:
            connection.execute(table.insert(), rows)


def _some(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[start : start + SOME] for start in range(0, len(values), SOME))


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
