"""Columns decoded from SQLite's pages, against what SQLite itself reads."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fiprof.parsers import nsys_export
from fiprof.parsers.sqlite_pages import NotPlainError, Pages

INTEGERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200), st.sampled_from([0, 1]))
REALS = st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-(2**50), 2**50))
ROW = st.tuples(INTEGERS, st.text("xyzé", max_size=20), REALS, INTEGERS)
IDS = st.integers(-(2**63), 2**63 - 1)


@contextlib.contextmanager
def table(rows: list[tuple[Any, ...]], page_bytes: int = 512) -> Any:
    """The pages of a file with a table of these rows (a, text, b, c), their leaves, and SQLite's connection."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.sqlite"
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA page_size = {page_bytes}")
        connection.execute("CREATE TABLE t (a INTEGER, text TEXT, b REAL, c)")
        connection.executemany("INSERT INTO t (rowid, a, text, b, c) VALUES (?, ?, ?, ?, ?)", rows)
        connection.commit()
        pages = Pages(path)
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master").fetchone()
        yield pages, pages.leaves(root), connection
        pages.close()
        connection.close()


def column(values: Any) -> list[Any]:
    nulls = values.nulls if values.nulls is not None else [False] * len(values.numbers)
    return [None if null else number for number, null in zip(values.numbers.tolist(), nulls, strict=True)]


@settings(deadline=None)
@given(st.dictionaries(IDS, ROW, max_size=120), st.sampled_from([512, 4096, 65536]))
@example({number: (number % 3, "", 0.5, number << 20) for number in range(3000)}, 512)
def test_as_sqlite_reads_it(rows: dict[int, tuple[Any, ...]], page_bytes: int) -> None:
    with table([(key, *row) for key, row in rows.items()], page_bytes) as (pages, leaves, connection):
        found = pages.read(leaves, 4, {0: False, 2: True, 3: False})
        expected = connection.execute("SELECT a, b, c FROM t ORDER BY rowid").fetchall()
    assert list(zip(*(column(found[place]) for place in (0, 2, 3)), strict=True)) == expected


@pytest.mark.parametrize("row", [("text", "", 1, 1), (1, "", 1, 1.5), (1, "x" * 600, 1, 1), (1, "x" * 90, 1, 1)])
def test_what_is_not_plain_is_left_to_sqlite(row: tuple[Any, ...]) -> None:
    with table([(1, 1, "", 1, 1), (2, *row)]) as (pages, leaves, _), pytest.raises(NotPlainError):
        pages.read(leaves, 4, {0: False, 2: True, 3: False})


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_page_is_never_more_than_not_plain(changes: list[tuple[int, int]]) -> None:
    rows = [(number, number % 3, "", 0.5, number << 20) for number in range(40)]
    with table(rows) as (pages, leaves, connection), contextlib.suppress(NotPlainError):
        path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
        data = bytearray(path.read_bytes())
        for place, byte in changes:
            data[len(data) - 1024 + place] = byte
        path.write_bytes(data)
        pages.read(leaves, 4, {0: False, 2: True, 3: False})


TIMES = st.one_of(st.none(), st.integers(-(2**62), 2**62), st.integers(0, 9))


@settings(deadline=None)
@given(st.lists(st.tuples(TIMES, st.one_of(st.none(), st.integers(0, 300))), max_size=300))
@example([*[(None, None)] * 17, (0, None), (None, None)])
def test_rows_in_any_order_come_in_the_order_of_sqlite(rows: list[tuple[int | None, int | None]]) -> None:
    fields = (nsys_export.column("time", "start"), nsys_export.column("other"))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as changed:
        for name, value in (("PIECE_BYTES", 1), ("SORTED_ROWS", 16), ("SAMPLED", 4), ("FETCHED_ROWS", 10)):
            changed.setattr(nsys_export, name, value)
        path = Path(folder) / "any.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(
                "PRAGMA page_size = 512; CREATE TABLE StringIds (id, value); CREATE TABLE t (start, other)"
            )
            connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
            connection.commit()
            expected = connection.execute("SELECT start, other FROM t ORDER BY start, rowid").fetchall()
        with nsys_export.Export(path) as export:

            @nsys_export.read_again
            def found() -> list[tuple[Any, ...]]:
                pieces = export.scan("t", fields, order="time")
                return [tuple(row.values()) for piece in pieces for row in piece.to_pylist()]

            assert found() == expected
