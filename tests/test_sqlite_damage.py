"""Damaged SQLite exports: each is read as sqlite3 reads it, or refused in one line.

Here for a sample of seeds, in one process; ``FIPROF_SOAK_SQLITE=2000`` takes as many. FIPROF_SOAK_SEED is the first.
"""

import contextlib
import itertools
import os
import random
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fiprof.cli.main import cli
from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.parsers import nsys
from fiprof.parsers.names import printable
from fiprof.parsers.nsys_export import Export
from tests.nsys_exports import CUDA_GRAPHS, FIVE_KERNELS, KERNEL, RUNTIME, altered

SEEDS = int(os.environ.get("FIPROF_SOAK_SQLITE", "60"))
FIRST = int(os.environ.get("FIPROF_SOAK_SEED") or 21)
PAGE_BYTES = (4096, 512, 65536)
WORK = {"start": "start_ns", "end": "end_ns", "globalPid": "pid", "streamId": "stream", "correlationId": "correlation"}
READ: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "kernels": ((KERNEL,), {**WORK, "registersPerThread": "registers", "demangledName": "kernel_full"}, "globalPid"),
    "api": ((RUNTIME,), {"start": "start_ns", "end": "end_ns", "globalTid": "pid", "correlationId": "correlation"}, "globalTid"),
    "copies": (("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"), {**WORK, "bytes": "bytes"}, "globalPid"),
    "gpu_metrics": (("GPU_METRICS",), {"timestamp": "time_ns", "value": "value"}, ""),
}  # fmt: skip
"""Table -> those of nsys that it is made of, their columns and ours, and which must have a value beside start and end."""


def bases(folder: Path) -> list[Path]:
    """Whole exports with pages of several sizes, and with as many more levels."""
    found = []
    for page_bytes, source in itertools.product(PAGE_BYTES, (FIVE_KERNELS, CUDA_GRAPHS)):
        (inside := folder / f"{page_bytes}-{source.stem}").mkdir()
        found.append(altered(inside, f"PRAGMA page_size = {page_bytes}", "VACUUM", source=source))
    return found


def with_log(path: Path, seed: random.Random) -> Path:
    """A copy of an export with changes in a log that its program left: of those to come (WAL), or to be undone."""
    mode = seed.choice(("wal", "delete"))
    left = path.with_name(f"left-{mode}.sqlite")
    suffix = "-wal" if mode == "wal" else "-journal"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode = {mode}")
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN")
        writer.execute(f"DELETE FROM {KERNEL} WHERE rowid > 100")
        writer.execute(f"UPDATE {RUNTIME} SET returnValue = 7, correlationId = correlationId + 1")
        if mode == "wal":
            writer.execute("COMMIT")
        shutil.copy(path, left)
        shutil.copy(f"{path}{suffix}", f"{left}{suffix}")
    return left


WAYS = ("byte", "bytes", "file's header", "page's header", "pointers", "records")
"""What of a file gets other bytes."""


def damage(path: Path, seed: random.Random) -> str:
    """Change some bytes of a file as it may happen. Returns how."""
    data = bytearray(path.read_bytes())
    page_bytes = int.from_bytes(data[16:18]) if data[:6] == b"SQLite" else 4096
    page_bytes = 65536 if page_bytes == 1 else max(page_bytes, 512)
    page = seed.randrange(max(1, len(data) // page_bytes)) * page_bytes
    other = seed.randrange(max(1, len(data) // page_bytes)) * page_bytes
    how = seed.choice((*WAYS, "zeroed", "another", "cut", "copied while it was written"))
    places = [
        (0, len(data), 1), (page, page_bytes, 20), (0, 100, 1), (page, 12, 1), (page + 8, 60, 3),
        (page + page_bytes // 2, page_bytes // 2, 3),
    ]  # fmt: skip
    if how in WAYS:
        begin, length, times = places[WAYS.index(how)]
        for _ in range(times):
            byte = seed.choice((0, 1, 13, 127, 128, 255, seed.randrange(256)))
            data[min(begin + seed.randrange(length), len(data) - 1)] = byte
    elif how == "cut":
        del data[seed.randrange(len(data)) :]
    elif how == "copied while it was written":
        # Only SQLite can notice, where it meets a missing page.
        del data[page + page_bytes :]
        data[28:32] = (page // page_bytes + 1).to_bytes(4)
    else:
        new = bytes(page_bytes) if how == "zeroed" else bytes(data[other : other + page_bytes])
        data[page : page + page_bytes] = new
    path.write_bytes(data)
    return how


def cell(name: str, value: Any) -> Any:
    """As a table of ours has a value of nsys's column."""
    if value is None:
        return None
    if name == "value":
        return value / 1e6 if value > 1e5 else value
    if name in ("streamId", "registersPerThread"):
        return (value + (1 << 31)) % (1 << 32) - (1 << 31)
    return value >> 24 & 0xFFFFFF if name.startswith("global") else value


def by_sqlite(path: Path, name: str, span: tuple[int, int]) -> Counter[Any]:
    """The rows of one of our tables as sqlite3 reads them. Raises sqlite3.Error."""
    sources, columns, owner = READ[name]
    found: Counter[Any] = Counter()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.text_factory = lambda raw: printable(raw.decode(errors="replace"))
        for source in sources:
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({source})")}
            if not there or not {"start", "end", "globalTid"} & {*columns} <= there:
                continue
            read = {each: f'CAST("{each}" AS REAL)' if each == "value" else f'"{each}"' for each in there}
            cells = ", ".join(read.get(each, "0" if each == "globalPid" else "NULL") for each in columns)
            for row in connection.execute(f"SELECT {cells} FROM {source}"):
                of = dict(zip(columns, row, strict=True))
                times = [of[each] for each in ("start", "end", "timestamp") if each in of]
                if (None in times and name != "gpu_metrics") or (owner and of[owner] is None):
                    continue
                if not all(time is None or span[0] <= time <= span[1] for time in times) or (
                    times[0] is not None and times[-1] < times[0]
                ):
                    continue
                if "demangledName" in of:
                    (of["demangledName"],) = connection.execute(
                        "SELECT (SELECT CAST(value AS TEXT) FROM StringIds WHERE id = ?)", (of["demangledName"],)
                    ).fetchone()
                found[tuple(cell(each, value) for each, value in of.items())] += 1
    return found


def read_by_fiprof(path: Path, folder: Path, command: bool) -> Path | str:
    """The folder of the tables, or the line of the refusal."""
    if not command:
        try:
            nsys.parse(path, folder / "tables")
        except FiprofError as error:
            return error.message
        return folder / "tables"
    result = CliRunner().invoke(cli, ("import", str(path), "--artifacts", str(folder / "archive"), "--quiet"))
    if result.exit_code == 0:
        (tables_folder,) = (folder / "archive").glob("2*/tables")
        return tables_folder
    assert isinstance(result.exception, FiprofError), result.exc_info
    return result.exception.message


@pytest.mark.fault("nsys's export cut off at any byte, or copied while nsys wrote it", "read, or one line: damaged")
@pytest.mark.fault("random bytes of nsys's export changed", "read, or one line")
@pytest.mark.fault(
    "2,000 damages of an SQLite: pages, headers, cells, records, its WAL and journal, cut, pages of another place",
    "read as sqlite3 reads it, or one line; `FIPROF_SOAK_SQLITE=2000` tries them all",
)
def test_damage_is_read_as_sqlite_reads_it_or_refused(tmp_path: Path) -> None:
    whole, outcomes = bases(tmp_path), Counter[str]()
    for number in range(FIRST, FIRST + SEEDS):
        seed = random.Random(number)
        (folder := tmp_path / str(number)).mkdir()
        path = Path(shutil.copy(seed.choice(whole), folder / "trace.sqlite"))
        logged = number % 5 == 0
        if logged:
            path = with_log(path, seed)
        files = [each for suffix in ("", "-wal", "-journal") if (each := path.with_name(path.name + suffix)).exists()]
        how = damage(files[-1] if seed.random() < 0.7 else path, seed)
        own = [Path(shutil.copy(each, folder / each.name.replace(path.name, "own.sqlite"))) for each in files]
        before = [each.read_bytes() for each in files]
        result = read_by_fiprof(path, folder, number % 10 < 2)
        assert [each.read_bytes() for each in files] == before
        if isinstance(result, str):
            assert "\n" not in result and str(folder) in result, (number, how, result)
            outcomes["refused"] += 1
        else:
            with Export(path) as export:
                span = export.span
            for name, (_, columns, _) in READ.items():
                read = tables.read(result, name, [*columns.values()]).to_pylist()
                found = Counter(
                    tuple(cell(ours, row[ours]) if ours == "value" else row[ours] for ours in columns.values())
                    for row in read
                )
                assert found == by_sqlite(own[0], name, span), (number, how, name)
            outcomes["read"] += 1
        shutil.rmtree(folder)
    print(dict(outcomes))
    assert outcomes["read"] > SEEDS / 5 and outcomes["refused"] > SEEDS / 10
