"""The nsys parser over files that are no whole nsys exports: a clean parse or one FiprofError, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiprof.errors import FiprofError
from fiprof.parsers import nsys
from fiprof.parsers.nsys_scrub import scrub
from tests.nsys_exports import FIVE_KERNELS, KERNEL, SCHEMA_3_0, altered, parsed

AGAIN = "export it again: nsys export --type sqlite --force-overwrite true --output trace.sqlite trace.nsys-rep"
EXPORTS = {path.stem: path.read_bytes() for path in (FIVE_KERNELS, SCHEMA_3_0)}


def failure(sqlite: Path) -> FiprofError:
    """The error of a parse, which must leave nothing in its folder."""
    out = sqlite.parent / "tables"
    with pytest.raises(FiprofError) as caught:
        nsys.parse(sqlite, out)
    assert not out.exists() or not list(out.iterdir())
    return caught.value


def clean_or_refused(data: bytes) -> str:
    """Parse these bytes as a file; the error's message, or nothing after a clean parse."""
    with tempfile.TemporaryDirectory() as folder:
        sqlite = Path(folder) / "trace.sqlite"
        sqlite.write_bytes(data)
        out = Path(folder) / "tables"
        message = ""
        try:
            parsed(sqlite, out)
        except FiprofError as error:
            message = error.message
        if message:
            assert not out.exists() or not list(out.iterdir())
            assert "\n" not in message
        return message


def in_its_place(path: Path, name: str) -> None:
    """Something that is no whole export of nsys."""
    if name == "folder":
        path.mkdir()
    elif name == "other":
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE cookies (id INTEGER PRIMARY KEY, value TEXT)")
    elif name == "overwritten":
        query = f"SELECT rootpage FROM sqlite_master WHERE name = '{KERNEL}'"
        ((root,),) = sqlite3.connect(FIVE_KERNELS).execute(query)
        damaged = bytearray(EXPORTS[FIVE_KERNELS.stem])
        damaged[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
        path.write_bytes(damaged)


@pytest.mark.fault("a folder stands where nsys's SQLite export should be", "one line names it")
@pytest.mark.fault("another program's SQLite file in place of nsys's", "one line names the table that it lacks")
@pytest.mark.fault("a page of the export is overwritten with 0xff", "one line: damaged; no table is left behind")
@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("none", "does not exist", "nsys export --type sqlite makes it from a report"),
        ("folder", "is a folder, not an nsys export", ""),
        ("other", "is not an nsys export: it has no table StringIds", AGAIN),
        ("overwritten", "is damaged: database disk image is malformed", AGAIN),
    ],
)
def test_what_is_no_export(name: str, problem: str, remedy: str, tmp_path: Path) -> None:
    in_its_place(tmp_path / "trace.sqlite", name)
    error = failure(tmp_path / "trace.sqlite")
    assert error.message == f"{tmp_path}/trace.sqlite {problem}"
    assert not remedy or error.remedy == remedy


@pytest.mark.fault(
    "nsys's SQLite export is empty, of another format or cut short",
    "one line tells how many bytes of how many; the command that exports it again",
)
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"NVIDIA Nsight Systems report", "is not an SQLite file"),
        (b"SQLite format 3", "is not an SQLite file"),
        (b"SQLite format 3\0", "is cut short: 16 of 100 bytes"),
        (EXPORTS[FIVE_KERNELS.stem][:-1], "is cut short: 323,583 of 323,584 bytes"),
        (EXPORTS[FIVE_KERNELS.stem][:4096], "is cut short: 4,096 of 323,584 bytes"),
    ],
)
def test_a_file_that_is_not_whole(content: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "trace.sqlite").write_bytes(content)
    error = failure(tmp_path / "trace.sqlite")
    assert error.message == f"{tmp_path}/trace.sqlite {complaint}"
    assert error.remedy == AGAIN


@pytest.mark.fault("nsys is still writing the export", "one line says so")
def test_a_file_that_is_being_written(tmp_path: Path) -> None:
    sqlite = altered(tmp_path)
    writer = sqlite3.connect(sqlite, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    error = failure(sqlite)
    writer.close()
    assert error.message == f"{sqlite} is locked: another program is writing it"
    assert error.remedy == "wait until nsys has finished exporting"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    sqlite = altered(tmp_path)
    sqlite.chmod(0)
    assert failure(sqlite).message == f"{sqlite} cannot be read: Permission denied"


@pytest.mark.fault("text, a fraction or bytes in nsys's columns of integers", "read, or one line")
@pytest.mark.parametrize("value", ["'text'", "1.5", "x'00ff'"])
@pytest.mark.parametrize("column", ["start", "demangledName", "gridX", "correlationId", "globalPid"])
def test_something_else_in_a_column_of_integers(column: str, value: str, tmp_path: Path) -> None:
    sqlite = altered(
        tmp_path,
        f"ALTER TABLE {KERNEL} DROP COLUMN {column}",
        f"ALTER TABLE {KERNEL} ADD COLUMN {column}",
        f"UPDATE {KERNEL} SET {column} = {value} WHERE rowid = 100",
    )
    message = clean_or_refused(sqlite.read_bytes())
    assert not message or "trace.sqlite is damaged: " in message


@pytest.mark.fault("allocations of 2^62 bytes in nsys's export", "one line: damaged")
def test_sizes_that_no_memory_has(tmp_path: Path) -> None:
    sqlite = altered(tmp_path, f"UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET bytes = {2**62}, memoryOperationType = 0")
    error = failure(sqlite)
    assert error.message.startswith(f"{sqlite} is damaged: ")
    assert error.remedy == AGAIN


@pytest.mark.fault("a later parse of nsys's export fails", "the tables of the earlier one stay as they were")
def test_tables_of_an_earlier_parse_survive_a_failure(tmp_path: Path) -> None:
    nsys.parse(FIVE_KERNELS, tmp_path / "tables")
    before = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    (tmp_path / "trace.sqlite").write_bytes(EXPORTS[FIVE_KERNELS.stem][:200_000])
    with pytest.raises(FiprofError):
        nsys.parse(tmp_path / "trace.sqlite", tmp_path / "tables")
    assert {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()} == before


@pytest.mark.fault("nsys's export cut off at any byte", "one line")
@settings(deadline=None)
@given(st.data())
def test_cut_off_anywhere(data: st.DataObject) -> None:
    whole = EXPORTS[data.draw(st.sampled_from(sorted(EXPORTS)))]
    assert clean_or_refused(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.fault("the export copied while nsys wrote it", "read, or one line: damaged")
@settings(deadline=None)
@given(st.data())
def test_cut_off_anywhere_with_a_header_that_says_so(data: st.DataObject) -> None:
    """As if the file had been copied while nsys wrote it: only SQLite can notice, where it meets a missing page."""
    whole = EXPORTS[data.draw(st.sampled_from(sorted(EXPORTS)))]
    pages = data.draw(st.integers(1, len(whole) // 4096 - 1))
    cut = bytearray(whole[: pages * 4096])
    cut[28:32] = pages.to_bytes(4)
    message = clean_or_refused(bytes(cut))
    assert not message or "is damaged: " in message


@pytest.mark.fault("up to 20 random bytes of nsys's export changed", "read, or one line")
@settings(deadline=None)
@given(st.data())
def test_bytes_changed_anywhere(data: st.DataObject) -> None:
    changed = bytearray(EXPORTS[data.draw(st.sampled_from(sorted(EXPORTS)))])
    for _ in range(data.draw(st.integers(1, 20))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    clean_or_refused(bytes(changed))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trace.sqlite").write_bytes(changed)
        message = ""
        try:
            scrub(Path(folder) / "trace.sqlite", ["secret"])
        except FiprofError as error:
            message = error.message
        assert "\n" not in message
