"""The catalogue: its tables, the rows that a run folder becomes, and the database that holds them.

Everything in it is derived from run folders and can be made again from those. A run's rows are written in one
transaction. Writers take turns, by SQLite's own lock or by an advisory lock of PostgreSQL, and decide within their turn
what is new: several processes that index the same runs at once write each run once.

``measured`` has a column for each quantity of ``summary.py``. Columns that a catalogue lacks are added when it is
opened, so a new quantity needs no migration. (Rows of key and value were measured: with 20 of them per kernel a rebuild
falls below 420 runs a second at 12,000 runs and keeps falling.) Any other change needs a new HEAD.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import re
import shlex
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

from fiprof.errors import FiprofError
from fiprof.files import Unwritable, walk
from fiprof.model import layout
from fiprof.model.catalogue import summary
from fiprof.model.catalogue.summary import VALUES, SummaryResult
from fiprof.model.finding import Finding, finding
from fiprof.model.json_file import decode
from fiprof.model.keeping import Annotations, read_annotations
from fiprof.model.manifest import Manifest, fact, read_manifest
from fiprof.model.selection import Labels
from fiprof.text import escape_control

HEAD = "0005"  # version of these tables
REMADE = ("0001", "0002", "0003", "0004")
"""Versions whose tables are dropped and made again; with any other version they are somebody else's."""
MANY = 1000  # new runs after which PostgreSQL looks at its tables anew: it plans by what it saw last
LONGEST_NAME = 200  # characters of a name that is indexed: PostgreSQL's B-trees take 2.7 kB
ADVISORY_LOCK = 0x66_6970_726F66  # PostgreSQL's lock of whoever writes: a number that no other program takes
BUSY_S = 60  # longest wait for another writer of an SQLite file
TELL_S = 0.5  # wait after which the user is told
UNWRITABLE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")
MOST_IDS = 5000  # numbers in a statement
BATCH = 1000  # runs that are written at once: a killed ``fiprof index`` reads at most so many again
LONGEST_TEXT = 4000  # characters of a command or a reason
OWN = "fiprof index --rebuild makes an archive's own again"
ANOTHER = "--catalog or FIPROF_CATALOG names another"
EPOCH = datetime.fromtimestamp(0, UTC)

Row = dict[str, Any]
Rows = dict[tuple[str, ...], dict[Any, tuple[Any, ...]]]  # table and some of its columns -> key -> values of these

TABLES = {
    # An archive; a database of a team may hold several.
    "archives": "id BIGINT NOT NULL PRIMARY KEY, path TEXT NOT NULL",
    # A GPU with its driver and the packages (a JSON object: name -> version), each combination once: hundreds of rows.
    "environments": """id BIGINT NOT NULL PRIMARY KEY, gpu TEXT, uuid TEXT, driver TEXT, cuda TEXT,
        packages TEXT NOT NULL""",
    # What runs are searched by: short rows, of which many are read. stamp: of the folder and its manifest when they
    # were read: with another one the run is read again. tags: a JSON list.
    "runs": """id BIGINT NOT NULL PRIMARY KEY, archive BIGINT NOT NULL, name VARCHAR(255) NOT NULL,
        stamp VARCHAR(80) NOT NULL, status VARCHAR(20) NOT NULL, started_us BIGINT NOT NULL, started TEXT,
        duration_s FLOAT, environment BIGINT NOT NULL, fiprof TEXT, git TEXT, "user" TEXT, host TEXT, conditions TEXT,
        bytes BIGINT NOT NULL, tags TEXT NOT NULL""",
    # What is only shown of a run.
    "descriptions": "run BIGINT NOT NULL PRIMARY KEY, shown JSON NOT NULL",
    "tags": f"tag VARCHAR({LONGEST_NAME}) NOT NULL, run BIGINT NOT NULL, PRIMARY KEY (tag, run)",
    # What numbers are of: a case as a whole (without a kernel), a kernel of a case, a kernel outside of cases. whole:
    # the subject of the case as a whole; its own id for such a subject, null outside of cases.
    "subjects": 'id BIGINT NOT NULL PRIMARY KEY, "case" TEXT, kernel TEXT, whole BIGINT',
    # Parameters of cases, by the subject of the case as a whole.
    "parameters": f"""subject BIGINT NOT NULL, name VARCHAR({LONGEST_NAME}) NOT NULL,
        text VARCHAR({LONGEST_NAME}) NOT NULL, number FLOAT, PRIMARY KEY (subject, name)""",
    # The key quantities; null where they were not collected. started_us: of the run, so that one index decides. place:
    # its number among the run's results.
    "measured": f"""subject BIGINT NOT NULL, started_us BIGINT NOT NULL, run BIGINT NOT NULL, archive BIGINT NOT NULL,
        environment BIGINT NOT NULL, place INTEGER NOT NULL, {" FLOAT, ".join(VALUES)} FLOAT,
        PRIMARY KEY (subject, started_us, run)""",
    # HEAD when the tables were made. Its name is that of before.
    "alembic_version": "version_num VARCHAR(32) NOT NULL PRIMARY KEY",
}
MEASURED = ("measured", "subject", "started_us", "run", "archive", "environment", "place")
"""The table ``measured`` and its columns but for the quantities."""
INDEXES = {
    "run_started": "runs (archive, started_us, name)",
    "run_user": 'runs (archive, "user")',
    "run_git": "runs (archive, git)",
    "ix_tags_run": "tags (run)",
    "parameter_number": "parameters (name, number, subject)",
    "parameter_text": "parameters (name, text, subject)",
    "ix_measured_run": "measured (run)",
}


# A run folder as rows of these tables
#
# A run may be a stranger's: names are escaped and cut, numbers finite, and nothing outside the folder is opened.


class Entry(NamedTuple):
    """A run as rows of the catalogue's tables; of a damaged run what is wrong with it."""

    run: Row  # columns of ``runs`` that the folder decides
    description: Row  # what is only shown: reason, replayed_from, command, cases, case_labels, tools and notes
    environment: Row  # columns of ``environments``
    parameters: Mapping[str, Row]  # case id -> its parameters as the manifest has them
    results: tuple[SummaryResult, ...]


def stamp(folder: Path | str) -> str | None:
    """A text that changes whenever a run folder does; None where the folder is not a run.

    Everything that fiprof changes in a run is renamed into its folder, which changes the folder's time; the manifest's
    own time and size change when somebody edits it in place.
    """
    try:
        inside = os.stat(f"{folder}/{layout.FILE_NAME}", follow_symlinks=False)
        around = os.stat(folder, follow_symlinks=True)
    except OSError:
        return None
    if os.path.exists(f"{folder}/{layout.EXPORTED}"):
        return None
    return f"{around.st_mtime_ns:x}-{inside.st_mtime_ns:x}-{inside.st_size:x}"


def read_entry(folder: Path, stamped: str) -> Entry:
    """The entry of a run folder. stamped: its stamp, taken before."""
    name, hide, problem = escape_control(folder.name), escape_control, ""
    try:
        manifest = read_manifest(folder)
        if manifest.masked is None:  # an older fiprof's, which masked no secrets
            from fiprof.model.redaction import masking

            manifest, mask = decode(manifest.to_json(), Manifest), masking()
            hide = lambda text: escape_control(mask(text))  # noqa: E731
    except FiprofError as error:
        manifest, problem = Manifest(name, "failed", "", math.nan, [], {}, {}, []), error.message
    status = "damaged" if problem else manifest.status
    env, settings = functools.partial(fact, manifest.environment), manifest.settings
    uuid = _text(env("gpu", "uuid") or env("gpu_state", "before", "uuid"))
    packages = {_text(key): _text(value) for key, value in (env("packages") or {}).items()}
    git = env("program", "git") or env("git")
    if isinstance(git, dict):
        git = f"{git['commit']}-dirty" if git.get("commit") and git.get("dirty") else git.get("commit")
    # Before the folder's size is taken: this may write a summary into it.
    results = () if problem else tuple(_results(folder, manifest, hide))
    entries, annotations = walk(folder), Annotations()
    if layout.ANNOTATIONS in entries:
        with contextlib.suppress(FiprofError):
            annotations = read_annotations(folder)

    # When it began: by the manifest, else by the folder's name, else 1970.
    started, began = _text(manifest.started), EPOCH
    try:
        started_at = datetime.fromisoformat(started or "")
        began = started_at if started_at.tzinfo else started_at.replace(tzinfo=UTC)
    except ValueError:
        with contextlib.suppress(ValueError, OverflowError):
            began = datetime.strptime(name[:15], "%Y%m%d-%H%M%S").astimezone()

    labels = Labels(case.id for case in manifest.cases)
    words = env("program", "command") or next((action.argv for action in manifest.actions), ())
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
            "user": _text(env("host", "user")),
            "host": _text(env("host", "name")),
            "conditions": _text(", ".join(conditions)),
            "bytes": sum([status.st_size for status in entries.values()]),
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
            "gpu": _text(env("gpu", "name")),
            "uuid": uuid and f"GPU-{uuid.removeprefix('GPU-')}",
            "driver": _text(env("gpu_state", "before", "driver")),
            "cuda": _text(env("gpu", "cuda")),
            "packages": json.dumps({key: packages[key] for key in sorted(filter(None, packages)) if packages[key]}),
        },
        parameters={escape_control(case.id): case.params for case in manifest.cases},
        results=results,
    )


def _results(folder: Path, manifest: Manifest, hide: Callable[[str], str]) -> Iterator[SummaryResult]:
    """The results of the run's summary (made from its tables where it has none), then each case without a result."""
    cases = dict.fromkeys(escape_control(case.id) for case in manifest.cases)
    with contextlib.suppress(FiprofError):
        results = summary.read(folder)
        if results is None:
            from fiprof.model.run import Run

            run = Run(folder)
            results = summary.summarize(run)
            if run.tables_path.is_dir():
                with contextlib.suppress(FiprofError):
                    summary.write(run, results)
        for each in results.results:
            case, kernel = each.case and hide(each.case), each.kernel and hide(each.kernel)
            cases.pop(case or "", None)
            yield SummaryResult(case, kernel, each.values)
    for case in cases:
        yield SummaryResult(case, None, {})


def _text(value: object) -> str | None:
    return escape_control(value)[:LONGEST_TEXT] or None if isinstance(value, str) else None


# The database


class Damaged(FiprofError):
    """A file that is not a database, or no longer."""


class Catalogue:
    """A database of runs, those of one archive after :meth:`of`. Every method raises FiprofError where it refuses."""

    root: Path  # the archive's
    archive: int  # its id here

    def __init__(self, url: str, tell: Callable[[str], None] = lambda _: None) -> None:
        """url: ``sqlite:///FILE``, ``sqlite://`` (in memory) or ``postgresql+psycopg://USER@HOST/NAME``.

        tell: called with a line for the user while another process is waited for.
        """
        self.tell = tell
        kind, _, self._where = url.partition("://")
        self.is_sqlite, supported = kind == "sqlite", kind.partition("+")[0] in ("sqlite", "postgresql")
        self._errors: tuple[type[Exception], ...] = (sqlite3.Error,)
        try:
            if not supported or (self.is_sqlite and self._where[:1] not in "/"):
                raise ValueError("it is neither SQLite nor PostgreSQL")
            if not self.is_sqlite:
                import psycopg

                self._errors = (psycopg.Error,)
        except (ValueError, ImportError) as error:
            remedy = "name sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME (pip install 'psycopg[binary]')"
            raise FiprofError(f"the catalogue {url} cannot be opened: {error}", remedy, exit_code=2) from error
        # Its name in messages: its file, or its URL without the password.
        self.name = self._where[1:] or ":memory:" if self.is_sqlite else re.sub("(//[^:@/]*):.*@", r"\1:***@", url)

    @functools.cached_property
    def _connection(self) -> Any:
        """The driver's connection. Transactions begin and end by statements of :meth:`transaction` alone."""
        if self.is_sqlite:
            database = sqlite3.connect(self.name, timeout=BUSY_S, isolation_level=None)
            # A stranger may have made the file: no function in its schema is run.
            for setting in ("trusted_schema = OFF", "synchronous = NORMAL", "cache_size = -65536"):
                database.execute(f"PRAGMA {setting}")
            deadline = time.monotonic() + BUSY_S
            # Changing the mode does not wait for others, as everything else does.
            while database.execute("PRAGMA journal_mode").fetchone()[0] == "delete":
                try:
                    database.execute("PRAGMA journal_mode = WAL")
                    break
                except sqlite3.OperationalError as error:
                    if time.monotonic() > deadline or error.sqlite_errorname.startswith(UNWRITABLE):
                        raise
                    time.sleep(0.01)
            return database
        import psycopg

        connection = psycopg.connect(f"postgresql://{self._where}", autocommit=True)
        # Tables fit into memory: random reads cost as much as sequential ones, compiling a query more than running it.
        for setting in ("random_page_cost = 1.1", "effective_cache_size = '16GB'", "jit = off"):
            connection.execute(f"SET {setting}")
        return connection

    def execute(self, statement: str, values: Mapping[str, Any] | None = None) -> Any:
        """A cursor over a statement's rows. values: of its parameters, each ``:NAME``."""
        if not self.is_sqlite:
            statement = re.sub(r":(\w+)", r"%(\1)s", statement.replace("%", "%%"))
        return self._connection.execute(statement, values or {})

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        """A statement's rows, each as a dictionary by column."""
        cursor = self.execute(statement, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    @contextlib.contextmanager
    def transaction(self, *, writes: bool = False) -> Iterator[None]:
        """A transaction around a block, undone where the block fails. writes: as the only writer."""
        try:
            telling = threading.Timer(TELL_S, self._tell)
            telling.daemon = True
            telling.start()
            try:
                self.execute("BEGIN IMMEDIATE" if writes and self.is_sqlite else "BEGIN")
                if writes and not self.is_sqlite:
                    self.execute(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
                telling.cancel()
                yield
                self.execute("COMMIT")
            except BaseException:
                telling.cancel()
                with contextlib.suppress(*self._errors):
                    self.execute("ROLLBACK")
                raise
        except self._errors as error:
            reason = str(error)
            if getattr(error, "sqlite_errorname", "").startswith(UNWRITABLE):
                raise Unwritable(f"the catalogue {self.name}: {reason}", f"free some space; {ANOTHER}") from error
            # SQLite's own words for a file that it cannot read; what it merely cannot do is an OperationalError.
            kind = Damaged if type(error) is sqlite3.DatabaseError else FiprofError
            what = f"the catalogue {self.name}: {next(iter(reason.splitlines()), 'it failed')}"
            raise kind(what, f"{OWN}; {ANOTHER}" if self.is_sqlite else ANOTHER) from error

    def _tell(self) -> None:
        """Tell the user which process has the lock, by /proc/locks: opening the file would release this process's."""
        holders, limit = set(), f"up to {BUSY_S} s " if self.is_sqlite else ""
        with contextlib.suppress(OSError):
            inodes = {str(os.stat(f"{self.name}{suffix}").st_ino) for suffix in ("", "-shm")} if self.is_sqlite else ()
            for line in Path("/proc/locks").read_text().splitlines():
                words = line.split()
                if "WRITE" in words and words[5].rpartition(":")[2] in inodes:
                    holders.add(f"process {words[4]}")
        who = ", ".join(sorted(holders - {f"process {os.getpid()}"}))
        self.tell(f"note: waiting {limit}for the catalogue {self.name}{who and f', which {who} has locked'}")

    def migrate(self) -> Self:
        """Make the tables, or bring an older fiprof's to this one's."""
        with self.transaction():
            if self._version() == HEAD and not self._missing_columns():
                return self
        with self.transaction(writes=True):
            version = self._version()
            if version is None or version in REMADE:
                for name in (*TABLES, "cases", "packages") if version else ():
                    self.execute(f"DROP TABLE IF EXISTS {name}{'' if self.is_sqlite else ' CASCADE'}")
                for name, columns in TABLES.items():
                    # Rows that are read together lie together.
                    clustered = " WITHOUT ROWID" if self.is_sqlite and name == "measured" else ""
                    self.execute(f"CREATE TABLE {name} ({columns}){clustered}")
                for name, of in INDEXES.items():
                    self.execute(f"CREATE INDEX {name} ON {of}")
                self.execute(f"INSERT INTO alembic_version VALUES ('{HEAD}')")
            elif version != HEAD:
                what = f"the catalogue {self.name} is of version {version}, which this fiprof does not know"
                remedy = f"{OWN if self.is_sqlite else 'update fiprof, if a later one made it'}; {ANOTHER}"
                raise FiprofError(what, remedy)
            if missing := self._missing_columns():
                for key in missing:
                    self.execute(f"ALTER TABLE measured ADD COLUMN {key} FLOAT")
                self.execute("UPDATE runs SET stamp = ''")
        return self

    def _version(self) -> str | None:
        """HEAD of the fiprof that made the tables; None where there are none."""
        tables = "sqlite_master WHERE name" if self.is_sqlite else "pg_class WHERE pg_table_is_visible(oid) AND relname"
        if not self.execute(f"SELECT 1 FROM {tables} = 'alembic_version'").fetchone():
            return None
        return next((str(row[0]) for row in self.execute("SELECT version_num FROM alembic_version")), None)

    def _missing_columns(self) -> list[str]:
        """Quantities for which an older fiprof made no column."""
        present = {column[0] for column in self.execute("SELECT * FROM measured LIMIT 0").description}
        return [key for key in VALUES if key not in present]

    def of(self, root: Path, key: str, *, alone: bool) -> Self:
        """Make an archive the one that the other methods and queries are about, and note its path.

        root: its folder. key: its identity. alone: whether the catalogue may hold no other; others are removed then.
        """
        self.root, self.archive, path = root, row_id(key), escape_control(str(root.resolve()))
        with self.transaction():
            paths = dict(self.execute("SELECT id, path FROM archives").fetchall())
        if paths.get(self.archive) != path or (alone and len(paths) > 1):
            with self.transaction(writes=True):
                if alone:
                    self._delete([f"SELECT id FROM runs WHERE archive != {self.archive}"])
                self.execute("DELETE FROM archives" + ("" if alone else f" WHERE id = {self.archive}"))
                self.execute("INSERT INTO archives VALUES (:id, :path)", {"id": self.archive, "path": path})
        return self

    def refresh(self, *, rebuild: bool = False) -> Finding:
        """Read runs that are new or changed, remove those that are gone. Returns how many of each, and of all runs.

        rebuild: read everything.
        """
        if rebuild:
            self.remove()
        present: dict[str, tuple[str, str]] = {}  # name of each run in the catalogue -> its folder's name and stamp
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for each in entries:
                if each.name[0] != "." and (stamped := stamp(each.path)):
                    present[escape_control(each.name)] = (each.name, stamped)
        with self.transaction():
            catalogued = dict(self.execute(f"SELECT name, stamp FROM runs WHERE archive = {self.archive}").fetchall())
        if gone := [name for name in catalogued if name not in present]:
            self.remove(gone)
        new = [each for name, each in present.items() if catalogued.get(name) != each[1]]
        for start in range(0, len(new), BATCH):
            self.add([read_entry(self.root / name, stamped) for name, stamped in new[start : start + BATCH]])
        words = "{read} read, {removed} removed, {runs} runs in all"
        return finding("refreshed", words, read=len(new), removed=len(gone), runs=len(present))

    def remove(self, names: Iterable[str] | None = None) -> None:
        """Remove runs; all of them without names."""
        every = [f"SELECT id FROM runs WHERE archive = {self.archive}"]
        with self.transaction(writes=True):
            self._delete(every if names is None else id_lists([row_id(self.archive, name) for name in names]))

    def add(self, entries: Sequence[Entry]) -> None:
        """Write runs, replacing those of the same names; those with an unchanged stamp stay."""
        with self.transaction(writes=True):
            by_id = {row_id(self.archive, entry.run["name"]): entry for entry in entries}
            for some in id_lists([*by_id]):
                for run, stamped in self.execute(f"SELECT id, stamp FROM runs WHERE id IN ({some})").fetchall():
                    if by_id[run].run["stamp"] == stamped:
                        del by_id[run]
            self._delete(id_lists([*by_id]))
            rows: Rows = defaultdict(dict)
            for run, entry in by_id.items():
                _add_rows(rows, self.archive, run, entry)
            for (table, *names), of_table in rows.items():
                cells = ", ".join(["?" if self.is_sqlite else "%s"] * len(names))
                columns = ", ".join(f'"{name}"' for name in names)
                statement = f"INSERT INTO {table} ({columns}) VALUES ({cells}) ON CONFLICT DO NOTHING"
                # By key: B-trees take sorted rows faster.
                self._connection.cursor().executemany(statement, [of_table[key] for key in sorted(of_table)])
            if len(by_id) >= MANY and not self.is_sqlite:
                self.execute("ANALYZE")

    def _delete(self, which: Iterable[str]) -> None:
        """Delete runs; the rows that runs share stay. which: lists of ids, or selects of them."""
        for some in which:
            for table in ("measured", "tags", "descriptions"):
                self.execute(f"DELETE FROM {table} WHERE run IN ({some})")
            self.execute(f"DELETE FROM runs WHERE id IN ({some})")


@functools.lru_cache(10_000)
def row_id(*what: str | int | None) -> int:
    """The id of the row that stands for these words, the same in every catalogue."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest()) >> 1


def _add_rows(rows: Rows, archive: int, run: int, entry: Entry) -> None:
    """Add a run's rows, each once by its key."""
    import msgspec

    def add(table: str, key: Any, **row: Any) -> None:
        rows[table, *row].setdefault(key, tuple(row.values()))

    environment, started_us = row_id(*entry.environment.values()), entry.run["started_us"]
    add("environments", environment, id=environment, **entry.environment)
    add("runs", run, id=run, archive=archive, environment=environment, **entry.run)
    add("descriptions", run, run=run, shown=msgspec.json.encode(entry.description).decode())
    for tag in json.loads(entry.run["tags"]):
        add("tags", (tag[:LONGEST_NAME], run), tag=tag[:LONGEST_NAME], run=run)
    subjects = rows["subjects", "id", "case", "kernel", "whole"]
    for number, each in enumerate(entry.results):
        if (subject := row_id(each.case, each.kernel)) not in subjects:
            whole = row_id(each.case, None) if each.case else None
            subjects[subject] = subject, each.case, each.kernel, whole
            if whole:
                subjects[whole] = whole, each.case, None, whole
        # Without nulls, each of which costs Python's driver for SQLite what ten numbers do.
        names, key = _measured(tuple(each.values)), (subject, started_us, run)
        rows[names][key] = (*key, archive, environment, number, *map(each.values.get, names[len(MEASURED) :]))
    parameters = rows["parameters", "subject", "name", "text", "number"]
    for case, named in entry.parameters.items():
        whole = row_id(case, None)
        for name, value in named.items():
            if (parameter := (whole, escape_control(name)[:LONGEST_NAME])) in parameters:
                continue
            finite: float | None = None
            with contextlib.suppress(ValueError, OverflowError):
                finite = None if isinstance(value, bool) or not math.isfinite(float(value)) else float(value)
            text = json.dumps(value) if isinstance(value, bool) else escape_control(str(value))
            parameters[parameter] = (*parameter, text[:LONGEST_NAME], finite)


@functools.lru_cache(1_000)
def _measured(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The table ``measured`` and its columns for a row, with the quantities among a summary's keys."""
    return (*MEASURED, *(key for key in VALUES if key in keys))


def id_lists(numbers: Sequence[int]) -> Iterator[str]:
    """Numbers with commas between them, MOST_IDS in each text: databases limit the length of a statement."""
    for start in range(0, len(numbers), MOST_IDS):
        yield ", ".join(map(str, numbers[start : start + MOST_IDS]))
