"""An nsys export without the environments, command lines and processes that nsys wrote down beside the trace.

nsys records the environment of the process that it starts and, as root, of all others, in tables of their own and
among the strings. The tables go; of the strings those stay that a table left refers to; in texts that stay secrets are
masked. Of the processes that used CUDA, name, host and rank stay (see ``nsys.py``). Seen with nsys 2022.4, 2024.2
and 2025.3.
"""

import contextlib
import re
import sqlite3
from pathlib import Path

from fiprof.errors import FiprofError
from fiprof.model.redaction import MASK, masking
from fiprof.parsers.nsys import NOTED, read_domains, read_processes, read_samples
from fiprof.parsers.nsys_export import Export, quoted

DROPPED = (
    "ANALYSIS_FILE", "META_DATA_CAPTURE", "PROCESSES", "ProcessStreams", "TARGET_INFO_SYSTEM_ENV", "ThreadNames",
)  # fmt: skip
"""Environments, command lines, processes and their output; no table of fiprof is made of them."""
EXPORTED_BY = ("META_DATA_EXPORT", "EXPORT_META_DATA")
PERSONAL_ROWS = ("%HOST%", "%USER%", "%PATH%")  # names of the rows in those that tell where the file was made
STRINGS = re.compile(r"StringIds(_V\d+)?")
REFERENCE = re.compile(r"(name|text|string|symbol|module)(s?id)?$", re.IGNORECASE)
"""Columns of integers that refer to a string."""
MESSAGES = "DIAGNOSTIC_EVENT"
ASSIGNMENT = re.compile(r"\b([A-Z][A-Z0-9_]{2,})=[^\s;\0]+")  # a variable with its value, in a message
SMALL = (MESSAGES, *EXPORTED_BY)  # written anew, as the strings are


def scrub(path: Path) -> None:
    """Take out of an export, in place, what does not belong to the trace, and mask secrets.

    What is deleted is overwritten in the file.
    """
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            _scrub(connection, path)
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        if not isinstance(error, sqlite3.OperationalError):  # those are of its use, the others of what is in it
            raise FiprofError(f"{path} is damaged: {reason}", "export it again, from the .nsys-rep") from error
        what = f"{path} cannot be cleared of the environment that nsys wrote into it: {reason}"
        raise FiprofError(what, "is the disk full? fiprof keeps no export that it has not looked through") from error


def _scrub(connection: sqlite3.Connection, path: Path) -> None:
    # Somebody else's file, if it comes from a replayed run: nothing in it is to act.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA cache_size = -65536")
    connection.execute("PRAGMA temp_store = MEMORY")
    stale = connection.execute("PRAGMA freelist_count").fetchone()[0]
    used: set[int] = set()
    with Export(path) as export:
        processes = read_processes(export)
        samples = read_samples(export, read_domains(export))
        used.update(number for *_, frames in samples for frame in frames for number in frame[:2])
        for table, columns in _tables(connection).items():
            referring = [name for name, kind in columns.items() if kind.upper() != "TEXT" and REFERENCE.search(name)]
            if referring and not STRINGS.fullmatch(table) and not _goes(table):
                used |= export.integers(table, referring)
    connection.execute("BEGIN EXCLUSIVE")
    acting = "SELECT type, name FROM main.sqlite_master WHERE type IN ('trigger', 'view')"
    for kind, name in connection.execute(acting).fetchall():
        connection.execute(f"DROP {kind} {quoted(name)}")
    for name in sorted(_tables(connection)):
        if _goes(name):
            connection.execute(f"DROP TABLE {quoted(name)}")
    connection.execute(f"DROP TABLE IF EXISTS {NOTED}")
    connection.execute(f"CREATE TABLE {NOTED} (pid INTEGER, name TEXT, value TEXT, rank INTEGER, started INTEGER)")
    connection.executemany(f"INSERT INTO {NOTED} VALUES (?, ?, ?, ?, ?)", processes)
    stale += _mask(connection)
    connection.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")
    connection.executemany("INSERT INTO used VALUES (?)", ((each,) for each in used))
    for table, columns in _tables(connection).items():
        if STRINGS.fullmatch(table):
            connection.execute(f"DELETE FROM main.{table} WHERE id NOT IN used")
        elif table not in SMALL:
            continue
        names = ", ".join(map(quoted, columns))
        # To new pages: those that nsys filled and split hold copies of rows in between the rows.
        statement = "SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name = ?"
        for (create,) in connection.execute(statement, (table,)).fetchall():
            connection.execute(f"CREATE TEMP TABLE kept AS SELECT {names} FROM main.{table}")
            connection.execute(f"DROP TABLE main.{table}")
            connection.execute(create)
            connection.execute(f"INSERT INTO main.{table} ({names}) SELECT * FROM kept")
            connection.execute("DROP TABLE temp.kept")
    connection.execute("COMMIT")
    if stale:
        # Pages that were free before, and those of a large table with a secret in it.
        connection.execute("VACUUM")


def _mask(connection: sqlite3.Connection) -> int:
    """Mask secrets in all texts. Returns how many of them stood in tables that are not written anew."""
    changed = 0
    connection.create_function("masked", 1, masking(), deterministic=True)
    for table, columns in _tables(connection).items():
        for column in (quoted(name) for name, kind in columns.items() if kind.upper() == "TEXT"):
            where = f"typeof({column}) = 'text' AND {column} != masked({column})"
            update = f"UPDATE {quoted(table)} SET {column} = masked({column}) WHERE {where}"
            updated = connection.execute(update).rowcount
            changed += updated if table not in SMALL and not STRINGS.fullmatch(table) else 0
        if table == MESSAGES and "text" in columns:
            connection.create_function("unassigned", 1, lambda text: ASSIGNMENT.sub(rf"\1={MASK}", text))
            connection.execute(f"UPDATE {MESSAGES} SET text = unassigned(text) WHERE instr(text, '=')")
        if table in EXPORTED_BY:
            personal = " OR ".join("name LIKE ?" for _ in PERSONAL_ROWS)
            connection.execute(f"UPDATE {quoted(table)} SET value = '' WHERE {personal}", PERSONAL_ROWS)
    return changed


def _goes(table: str) -> bool:
    return re.sub(r"_V\d+$", "", table) in DROPPED


def _tables(connection: sqlite3.Connection) -> dict[str, dict[str, str]]:
    names = [name for (name,) in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]
    return {
        name: {row[1]: row[2] for row in connection.execute(f"PRAGMA main.table_info({quoted(name)})")}
        for name in names
        if not name.startswith("sqlite_")
    }
