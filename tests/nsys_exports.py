"""Recorded nsys exports, and copies of them with something changed."""

import contextlib
import functools
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from fiprof.model import tables
from fiprof.parsers import nsys

DATA = Path(__file__).parent / "data/nsys"
FIVE_KERNELS = DATA / "h200-five-kernels.sqlite"
CUDA_GRAPHS = DATA / "h200-cuda-graphs.sqlite"
TWO_RANKS = DATA / "h200-two-ranks.sqlite"
PYTHON_THREADS = DATA / "h100-python-threads.sqlite"
SCHEMA_3_0 = DATA / "schema-3.0.0-nvtx.sqlite"

NAMES = ("kernels", "ranges", "api", "copies", "memory", "gpu_metrics", "host_samples", "processes", "diagnostics")
with contextlib.closing(sqlite3.connect(":memory:")) as other:
    other.execute("CREATE TABLE stage_costs (a INTEGER)")
    OTHER_PROGRAM = other.serialize()
KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"

Row = dict[str, Any]


def altered(folder: Path, *statements: str, source: Path = FIVE_KERNELS) -> Path:
    """A copy of a recorded export after some SQL."""
    return executed(Path(shutil.copy(source, folder / "trace.sqlite")), *statements)


def executed(database: Path, *statements: str) -> Path:
    """An SQLite database after some SQL."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return database


def parsed(sqlite: Path, out: Path) -> tuple[nsys.NsysSummary, dict[str, list[Row]]]:
    """The summary, and the rows of every table by name."""
    summary = nsys.parse(sqlite, out)
    found = {name: tables.read(out, name) for name in NAMES}
    for name, table in found.items():
        table.validate(full=True)
        assert table.schema.names == tables.schema(name).names
        assert table.num_rows == summary.rows[name]
    # What a run of several files alone has.
    return summary, {name: table.drop_columns([tables.FILE]).to_pylist() for name, table in found.items()}


@functools.cache
def recorded(export: Path) -> tuple[nsys.NsysSummary, dict[str, list[Row]]]:
    """:func:`parsed` of an export as it was recorded, done once."""
    with tempfile.TemporaryDirectory() as folder:
        return parsed(export, Path(folder))


def changed(folder: Path, *sql: str, source: Path = FIVE_KERNELS) -> tuple[nsys.NsysSummary, dict[str, list[Row]]]:
    """:func:`parsed` of an export after some SQL."""
    return parsed(altered(folder, *sql, source=source), folder / "tables")


def query(sqlite: Path, sql: str) -> list[tuple[Any, ...]]:
    """What plain SQLite says, to hold the parser against."""
    with contextlib.closing(sqlite3.connect(f"file:{sqlite}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()
