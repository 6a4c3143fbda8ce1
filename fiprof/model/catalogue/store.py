"""The catalogue: its tables, what is read of a run folder into them, and the database that holds them.

Everything in it is derived from run folders and can be made again from those. A run's rows are written in one
transaction. Writers take turns, by SQLite's own lock or by an advisory lock of PostgreSQL, and decide within their turn
what is new: several who index the same runs at once write each of them once.

``measured`` has a column for each quantity of ``summary.py``. Columns that a catalogue lacks are added when it is
opened, so a new quantity needs no migration. (Rows of key and value were measured: with 20 of them per kernel a rebuild
falls below 420 runs a second at 12,000 runs and keeps falling.) Any other change needs a new HEAD.
"""

import contextlib
import functools
import hashlib
import importlib
import json
import math
import operator
import os
import shlex
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from fiprof.errors import FiprofError
from fiprof.files import Unwritable
from fiprof.model.catalogue import summary
from fiprof.model.catalogue.summary import VALUES, Result
from fiprof.model.json_file import decode
from fiprof.model.keeping import Annotations, read_annotations
from fiprof.model.manifest import FILE_NAME, Manifest, read_manifest
from fiprof.model.selection import Labels
from fiprof.text import escape_control

HEAD = "0005"  # version of these tables
REMADE = ("0001", "0002", "0003", "0004")
"""Versions whose tables are thrown away and made again; another's in a table of that name are somebody else's."""
LONGEST_NAME = 200  # characters of a name that is indexed: PostgreSQL's B-trees take 2.7 kB
ADVISORY_LOCK = 0x66_6970_726F66  # PostgreSQL's lock of whoever writes: a number that no other program takes
BUSY_S = 60  # longest wait for another writer of an SQLite file
TELL_S = 0.5  # after which it is said
UNWRITABLE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")
MOST_IDS = 500  # values in one condition
LONGEST_TEXT = 4000  # characters of a command or a reason
OWN = "fiprof index --rebuild makes an archive's own again"
ANOTHER = "--catalog or FIPROF_CATALOG names another"
EPOCH = datetime.fromtimestamp(0, UTC)

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], dict[Any, tuple[Any, ...]]]  # a table and the columns that are given -> key -> row
METADATA = sa.MetaData()


def _id(name: str = "id") -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, primary_key=True, autoincrement=False)


archives = sa.Table("archives", METADATA, _id(), sa.Column("path", sa.Text, nullable=False))
"""An archive; a database of a team may hold several."""

environments = sa.Table(
    "environments",
    METADATA,
    _id(),
    *(sa.Column(name, sa.Text) for name in ("gpu", "uuid", "driver", "cuda")),
    # A JSON object: name -> version.
    sa.Column("packages", sa.Text, nullable=False),
)
"""A GPU with its driver and the packages, each combination once: hundreds of rows."""

runs = sa.Table(
    "runs",
    METADATA,
    _id(),
    sa.Column("archive", sa.BigInteger, nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    # Of the folder and its manifest when they were read: with another one the run is read again.
    sa.Column("stamp", sa.String(80), nullable=False),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("started_us", sa.BigInteger, nullable=False),
    sa.Column("started", sa.Text),
    sa.Column("duration_s", sa.Float),
    sa.Column("environment", sa.BigInteger, nullable=False),
    *(sa.Column(name, sa.Text) for name in ("fiprof", "git", "user", "host", "conditions")),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    # A JSON list.
    sa.Column("tags", sa.Text, nullable=False),
    sa.Index("run_started", "archive", "started_us", "name"),
    sa.Index("run_user", "archive", "user"),
    sa.Index("run_git", "archive", "git"),
)
"""What runs are searched by: short rows, of which many are read."""

descriptions = sa.Table("descriptions", METADATA, _id("run"), sa.Column("shown", sa.JSON, nullable=False))
"""What is only shown of a run."""

tags = sa.Table(
    "tags",
    METADATA,
    sa.Column("tag", sa.String(LONGEST_NAME), primary_key=True),
    sa.Column("run", sa.BigInteger, primary_key=True, index=True),
)

subjects = sa.Table(
    "subjects",
    METADATA,
    _id(),
    sa.Column("case", sa.Text),
    sa.Column("kernel", sa.Text),
    # The subject of the case as a whole; its own id for such a subject, null outside of cases.
    sa.Column("whole", sa.BigInteger),
)
"""What numbers are of: a case as a whole (without a kernel), a kernel of a case, a kernel outside of cases."""

parameters = sa.Table(
    "parameters",
    METADATA,
    _id("subject"),
    sa.Column("name", sa.String(LONGEST_NAME), primary_key=True),
    sa.Column("text", sa.String(LONGEST_NAME), nullable=False),
    sa.Column("number", sa.Float),
    sa.Index("parameter_number", "name", "number", "subject"),
    sa.Index("parameter_text", "name", "text", "subject"),
)
"""Parameters of cases, by the subject of the case as a whole."""

measured = sa.Table(
    "measured",
    METADATA,
    _id("subject"),
    # Of the run, so that one index decides.
    sa.Column("started_us", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("run", sa.BigInteger, primary_key=True, autoincrement=False, index=True),
    sa.Column("archive", sa.BigInteger, nullable=False),
    sa.Column("environment", sa.BigInteger, nullable=False),
    # Its number among the run's results.
    sa.Column("place", sa.Integer, nullable=False),
    *(sa.Column(key, sa.Float) for key in VALUES),
    # What is asked for together lies together.
    sqlite_with_rowid=False,
)
"""The key quantities; null where they were not collected."""

version = sa.Table("alembic_version", METADATA, sa.Column("version_num", sa.String(32), primary_key=True))
"""Of the tables: HEAD when they were made. Its name is that of before."""


# A run folder as rows of these tables
#
# A run may be a stranger's: names are escaped and cut, numbers finite, and nothing outside the folder is opened.


class Entry(NamedTuple):
    """A run as rows of the catalogue's tables, or what is wrong with it."""

    run: Row  # columns of ``runs`` that the folder decides
    description: Row  # what is only shown: reason, replayed_from, command, cases, case_labels, tools and notes
    environment: Row  # columns of ``environments``
    parameters: Mapping[str, Row]  # case id -> its parameters
    results: tuple[Result, ...]


def stamp(folder: Path | str) -> str | None:
    """What changes when a run folder does; None where it is not one.

    Everything that fiprof changes in a run is renamed into its folder, which moves the folder's time; the manifest's
    own time and size change when somebody edits it in place.
    """
    try:
        inside = os.stat(f"{folder}/{FILE_NAME}", follow_symlinks=False)
        around = os.stat(folder, follow_symlinks=True)
    except OSError:
        return None
    return f"{around.st_mtime_ns:x}-{inside.st_mtime_ns:x}-{inside.st_size:x}"


def read_entry(folder: Path, stamped: str) -> Entry:
    """The entry of a run folder. stamped: its stamp, taken before."""
    from fiprof.model.redaction import masking

    name = escape_control(folder.name)
    try:
        found, problem = read_manifest(folder), ""
        before = found.masked is None
        manifest = decode(found.to_json(), Manifest) if before else found
    except FiprofError as error:
        manifest, problem, before = Manifest(name, "failed", "", math.nan, [], {}, {}, []), error.message, False
    status = "damaged" if problem else manifest.status
    known, settings = manifest.environment, manifest.settings
    program, host, gpu = (_dict(known.get(key)) for key in ("program", "host", "gpu"))
    state = _dict(_dict(known.get("gpu_state")).get("before"))
    uuid = _text(gpu.get("uuid") or state.get("uuid"))
    packages = {_text(key): _text(value) for key, value in _dict(known.get("packages")).items()}
    git = program.get("git") or known.get("git")
    if isinstance(git, dict):
        git = f"{git['commit']}-dirty" if git.get("commit") and git.get("dirty") else git.get("commit")
    # Before the folder is measured: it may leave a summary there.
    results = () if problem else tuple(_results(folder, manifest, masking() if before else str))
    annotations = Annotations()
    with contextlib.suppress(FiprofError):
        annotations = read_annotations(folder)

    # Microseconds since 1970, UTC; by the folder's name where the manifest does not say, 0 where that has no time.
    started, began = _text(manifest.started), EPOCH
    try:
        said = datetime.fromisoformat(started or "")
        began = said if said.tzinfo else said.replace(tzinfo=UTC)
    except ValueError:
        with contextlib.suppress(ValueError, OverflowError):
            began = datetime.strptime(name[:15], "%Y%m%d-%H%M%S").astimezone()

    labels = Labels(case.id for case in manifest.cases)
    words = program.get("command") or next((action.argv for action in manifest.actions), ())
    reason = _text(problem or manifest.reason) or "it does not say why"
    # Without these, ncu's figures of two runs cannot be compared.
    conditions = [f"{key}={settings[key]}" for key in ("clock_control", "cache_control") if key in settings]
    tools = settings.get("tools", dict.fromkeys(file.tool_name for file in manifest.imported))
    return Entry(
        run={
            "name": name,
            "stamp": stamped,
            "status": status,
            "started": started,
            "started_us": (began - EPOCH) // timedelta(microseconds=1),
            "duration_s": manifest.duration_s if math.isfinite(manifest.duration_s) else None,
            "fiprof": _text(manifest.fiprof),
            "git": _text(git),
            "user": _text(host.get("user")),
            "host": _text(host.get("name")),
            "conditions": _text(", ".join(conditions)),
            "bytes": folder_bytes(folder),
            "tags": json.dumps(sorted(set(map(escape_control, annotations.tags)))),
        },
        description={
            "reason": "" if status == "complete" else reason,
            "replayed_from": _text(manifest.replayed_from),
            "command": _text(shlex.join(words)),
            "cases": [escape_control(case.id) for case in manifest.cases],
            "case_labels": [escape_control(labels(case.id)) for case in manifest.cases],
            "tools": list(map(escape_control, tools)),
            "notes": [{key: escape_control(text) for key, text in vars(note).items()} for note in annotations.notes],
        },
        environment={
            "gpu": _text(gpu.get("name") or state.get("name")),
            "uuid": uuid and f"GPU-{uuid.removeprefix('GPU-')}",
            "driver": _text(state.get("driver") or known.get("driver")),
            "cuda": _text(gpu.get("cuda")),
            "packages": json.dumps({key: packages[key] for key in sorted(filter(None, packages)) if packages[key]}),
        },
        parameters={
            escape_control(case.id): {
                escape_control(key): escape_control(value) if isinstance(value, str) else value
                for key, value in case.params.items()
            }
            for case in manifest.cases
        },
        results=results,
    )


def _results(folder: Path, manifest: Manifest, hide: Callable[[str], str]) -> Iterator[Result]:
    """The results of the run's summary, made from its tables where it has none, and every case that was asked for."""
    cases = dict.fromkeys(escape_control(case.id) for case in manifest.cases)
    with contextlib.suppress(FiprofError):
        found = summary.read(folder)
        if found is None:
            from fiprof.model.run import Run

            run = Run(folder)
            found = summary.summarize(run)
            if run.tables_path.is_dir():
                with contextlib.suppress(FiprofError):
                    summary.write(run, found)
        for each in found.results:
            case, kernel = (text and escape_control(hide(text)) for text in (each.case, each.kernel))
            cases.pop(case or "", None)
            yield Result(case, kernel, each.values)
    for case in cases:
        yield Result(case, None, {})


def _dict(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _text(found: object) -> str | None:
    return escape_control(found)[:LONGEST_TEXT] or None if isinstance(found, str) else None


def folder_bytes(folder: Path | str) -> int:
    """Bytes of the files in a folder; no link is followed."""
    total, folders = 0, [folder]
    for each in folders:
        with contextlib.suppress(OSError), os.scandir(each) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


# The database


class Damaged(FiprofError):
    """A file that is not a database, or no longer."""


class Catalogue:
    """A database of runs. Every method raises FiprofError where the database refuses."""

    def __init__(self, url: str, tell: Callable[[str], None] = lambda _: None) -> None:
        """url: as SQLAlchemy takes it, e.g. ``sqlite:///FILE`` or ``postgresql+psycopg://HOST/NAME``.

        tell: is told what has to be waited for.
        """
        self.tell = tell
        try:
            self.url = sa.make_url(url)
            self.is_sqlite = self.url.get_backend_name() == "sqlite"
            if self.url.get_backend_name() not in ("sqlite", "postgresql"):
                raise ArgumentError("it is neither SQLite nor PostgreSQL")
            self.engine = sa.create_engine(self.url, connect_args={"timeout": BUSY_S} if self.is_sqlite else {})
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            why = next(iter(str(error).splitlines()), "")
            remedy = (
                "a catalogue is sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME (pip install 'psycopg[binary]')"
            )
            raise FiprofError(f"the catalogue {url} cannot be opened: {why}", remedy, exit_code=2) from error
        sa.event.listen(self.engine, "connect", _prepare_sqlite if self.is_sqlite else _prepare_postgresql)
        if self.is_sqlite:
            sa.event.listen(self.engine, "begin", _begin_sqlite)

    @property
    def name(self) -> str:
        """What people know it by: its file, or its URL without the password."""
        return self.url.database or "" if self.is_sqlite else self.url.render_as_string()

    def reading(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """A transaction that only reads."""
        return self._transaction(writes=False)

    def writing(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """A transaction of the only writer."""
        return self._transaction(writes=True)

    @contextlib.contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[sa.Connection]:
        try:
            telling = threading.Timer(TELL_S, self._tell)
            telling.daemon = True
            with contextlib.ExitStack() as held:
                held.callback(telling.cancel)
                telling.start()
                connection = held.enter_context(self.engine.connect().execution_options(writes=writes))
                held.enter_context(connection.begin())
                if writes and not self.is_sqlite:
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
                telling.cancel()
                yield connection
        except (SQLAlchemyError, sqlite3.Error) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            reason = str(cause)
            if getattr(cause, "sqlite_errorname", "").startswith(UNWRITABLE):
                raise Unwritable(f"the catalogue {self.name}: {reason}", f"free some space; {ANOTHER}") from error
            # SQLite's own words for a file that it cannot read; what it merely cannot do is an OperationalError.
            kind = Damaged if type(error) is DatabaseError else FiprofError
            raise kind(
                f"the catalogue {self.name}: {next(iter(reason.splitlines()), 'it failed')}",
                f"{OWN}; {ANOTHER}" if self.is_sqlite else ANOTHER,
            ) from error

    def _tell(self) -> None:
        """Say what is waited for, and whom /proc/locks names: opening the file would let go of this process's locks."""
        holders, limit = set(), f"up to {BUSY_S} s " if self.is_sqlite else ""
        with contextlib.suppress(OSError):
            inodes = {str(os.stat(f"{self.name}{suffix}").st_ino) for suffix in ("", "-shm")} if self.is_sqlite else ()
            for line in Path("/proc/locks").read_text().splitlines():
                words = line.split()
                if "WRITE" in words and words[5].rpartition(":")[2] in inodes:
                    holders.add(f"process {words[4]}")
        who = ", ".join(sorted(holders - {f"process {os.getpid()}"}))
        self.tell(f"note: waiting {limit}for the catalogue {self.name}{who and f', which {who} has locked'}")

    def migrate(self) -> None:
        """Make the tables, or bring an older fiprof's to this one's."""
        with self.reading() as connection:
            if _version(connection) == HEAD and not _missing_columns(connection):
                return
        with self.writing() as connection:
            found = _version(connection)
            if found is None or found in REMADE:
                older = sa.MetaData()
                names = {*METADATA.tables, "cases", "packages"} if found else ()
                older.reflect(connection, only=lambda name, _: name in names)
                older.drop_all(connection)
                METADATA.create_all(connection, checkfirst=False)
                connection.execute(version.insert().values(version_num=HEAD))
            elif found != HEAD:
                raise FiprofError(
                    f"the catalogue {self.name} is of version {found}, which this fiprof does not know",
                    f"{OWN if self.is_sqlite else 'update fiprof, if a later one made it'}; {ANOTHER}",
                )
            missing = _missing_columns(connection)
            for key in missing:
                connection.exec_driver_sql(f'ALTER TABLE measured ADD COLUMN "{key}" FLOAT')
            if missing:
                connection.execute(runs.update().values(stamp=""))

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
            return dict(found.all())

    def remove(self, archive: int, names: Iterable[str] | None = None) -> None:
        """Remove runs of an archive; all of them without names."""
        every = sa.select(runs.c.id).where(runs.c.archive == archive)
        with self.writing() as connection:
            _delete(connection, every if names is None else [row_id(archive, name) for name in names])

    def add(self, archive: int, entries: Sequence[Entry]) -> int:
        """Write runs in place of those of the same names, except where they are there already. Returns how many."""
        with self.writing() as connection:
            by_id = {row_id(archive, entry.run["name"]): entry for entry in entries}
            for some in _pieces(list(by_id)):
                for row in connection.execute(sa.select(runs.c.id, runs.c.stamp).where(runs.c.id.in_(some))):
                    if by_id[row.id].run["stamp"] == row.stamp:
                        del by_id[row.id]
            _delete(connection, list(by_id))
            rows: Rows = defaultdict(dict)
            for run, entry in by_id.items():
                _add_rows(rows, archive, run, entry)
            # PostgreSQL's takes a tenth of the time of `fiprof runs` to import.
            dialect = importlib.import_module(f"sqlalchemy.dialects.{connection.dialect.name}")
            for (table, *names), found in filter(operator.itemgetter(1), rows.items()):
                # Through the driver itself, which halves the time for 40 columns; in order, as B-trees like it.
                insert = dialect.insert(table).on_conflict_do_nothing()
                statement = insert.compile(dialect=connection.dialect, column_keys=names)
                cells: Any = [found[key] for key in sorted(found)]
                if order := statement.positiontup:
                    cells = list(map(operator.itemgetter(*map(names.index, order)), cells))
                else:
                    cells = [dict(zip(names, row, strict=True)) for row in cells]
                connection.exec_driver_sql(str(statement), cells)
        return len(by_id)

    def analyze(self) -> None:
        """Have PostgreSQL look at the tables now, after many new runs: it plans by what it saw last."""
        if not self.is_sqlite:
            with self.writing() as connection:
                connection.exec_driver_sql("ANALYZE")


@functools.lru_cache(10_000)
def row_id(*what: str | int | None) -> int:
    """The id of the row that stands for these words, the same in every catalogue."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest()) >> 1


def _add_rows(rows: Rows, archive: int, run: int, entry: Entry) -> None:
    """Add a run's rows, each once by its key."""

    def add(table: sa.Table, key: Any, **row: Any) -> None:
        rows[table, *row].setdefault(key, tuple(row.values()))

    environment, started_us = row_id(*entry.environment.values()), entry.run["started_us"]
    add(environments, environment, id=environment, **entry.environment)
    add(runs, run, id=run, archive=archive, environment=environment, **entry.run)
    add(descriptions, run, run=run, shown=json.dumps(entry.description))
    for tag in json.loads(entry.run["tags"]):
        add(tags, (tag[:LONGEST_NAME], run), tag=tag[:LONGEST_NAME], run=run)
    known = rows[subjects, "id", "case", "kernel", "whole"]
    for number, each in enumerate(entry.results):
        subject, whole = row_id(each.case, each.kernel), row_id(each.case, None) if each.case else None
        for key, kernel in {whole: None, subject: each.kernel}.items():
            if key is not None:
                known.setdefault(key, (key, each.case, kernel, whole))
        # Without nulls, each of which costs Python's driver for SQLite what ten numbers do.
        keys, place = _quantities(tuple(each.values)), (subject, started_us, run)
        names = (measured, "subject", "started_us", "run", "archive", "environment", "place", *keys)
        rows[names][place] = (*place, archive, environment, number, *map(each.values.get, keys))
    known = rows[parameters, "subject", "name", "text", "number"]
    for case, named in entry.parameters.items():
        whole = row_id(case, None)
        for name, value in named.items():
            if (parameter := (whole, name[:LONGEST_NAME])) in known:
                continue
            finite: float | None = None
            with contextlib.suppress(ValueError, OverflowError):
                finite = None if isinstance(value, bool) or not math.isfinite(float(value)) else float(value)
            text = json.dumps(value) if isinstance(value, bool) else str(value)
            known[parameter] = (*parameter, text[:LONGEST_NAME], finite)


@functools.lru_cache(1_000)
def _quantities(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The quantities among a summary's keys."""
    return tuple(key for key in VALUES if key in keys)


def _version(connection: sa.Connection) -> str | None:
    """HEAD of whoever made the tables; None where there are none."""
    there = sa.inspect(connection).has_table(version.name)
    return connection.scalar(sa.select(version.c.version_num)) if there else None


def _missing_columns(connection: sa.Connection) -> list[str]:
    """Quantities for which an older fiprof made no column."""
    there = connection.execute(sa.select(sa.text("*")).select_from(measured).limit(0)).keys()
    return [key for key in VALUES if key not in there]


def _delete(connection: sa.Connection, which: sa.Select[Any] | Sequence[int]) -> None:
    """Delete runs by their ids; the rows that runs share stay."""
    for some in [which] if isinstance(which, sa.Select) else _pieces(which):
        for table in (measured, tags, descriptions):
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
        except connection.OperationalError as error:
            if time.monotonic() > deadline or error.sqlite_errorname.startswith(UNWRITABLE):
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
