"""The nsys parser: against plain SQLite, over other versions' exports, over damaged ones."""

import contextlib
import json
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fiprof.errors import FiprofError
from fiprof.model.spans import NOTHING
from fiprof.parsers import nsys, nsys_export
from fiprof.parsers.nsys import RangeRow, Scope, Scopes, nested
from fiprof.parsers.nsys_scrub import scrub
from tests import nsys_exports
from tests.nsys_exports import CUDA_GRAPHS, FIVE_KERNELS, KERNEL, RUNTIME, altered, changed, parsed, query, recorded

PYTHON_THREADS, TWO_RANKS = nsys_exports.PYTHON_THREADS, nsys_exports.TWO_RANKS


@pytest.mark.parametrize("export", [FIVE_KERNELS, CUDA_GRAPHS], ids=lambda path: path.stem)
def test_every_kernel_is_where_plain_sql_says(export: Path) -> None:
    ranges = """SELECT name.value FROM NVTX_EVENTS r JOIN StringIds name ON name.id = r.textId
                WHERE r.eventType = 59 AND r.domainId = 1 AND r.globalTid = call.globalTid
                AND r.start <= call.start AND r."end" > call.start ORDER BY r.start LIMIT 1 OFFSET"""
    expected = query(
        export,
        f"""SELECT k.start, k."end", k.deviceId, k.streamId, short.value, long.value, k.graphNodeId,
                   k.gridX || 'x' || k.gridY || 'x' || k.gridZ, k.blockX || 'x' || k.blockY || 'x' || k.blockZ,
                   k.registersPerThread, k.staticSharedMemory + k.dynamicSharedMemory,
                   CASE WHEN k.graphNodeId IS NULL OR row_number() OVER
                       (PARTITION BY k.correlationId, k.globalPid ORDER BY k.start) = 1 THEN call."end" - call.start END,
                   ({ranges} 0), ({ranges} 1), ({ranges} 2)
            FROM CUPTI_ACTIVITY_KIND_KERNEL k
            JOIN StringIds short ON short.id = k.shortName JOIN StringIds long ON long.id = k.demangledName
            LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME call
            ON call.correlationId = k.correlationId AND call.globalTid >> 24 = k.globalPid >> 24
            ORDER BY k.start""",
    )
    got = [
        (
            *(row[name] for name in ("start_ns", "end_ns", "device", "stream", "kernel", "kernel_full", "graph_node")),
            *(row[name] for name in ("grid", "block", "registers", "shared_bytes", "launch_call_ns", "phase", "case")),
            None if row["iteration"] is None else f"iter {row['iteration']}",
        )
        for row in recorded(export)[1]["kernels"]
    ]
    assert got == expected


@pytest.mark.parametrize(
    ("statements", "source", "alone"),
    [
        (("INSERT INTO ProcessStreams SELECT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1",), FIVE_KERNELS, True),
        (("INSERT INTO ProcessStreams SELECT globalPid - (1 << 24) FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1",), FIVE_KERNELS, False),
        ((), FIVE_KERNELS, False),
        (("DROP TABLE FIPROF_PROCESSES", "INSERT INTO ProcessStreams SELECT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1"), TWO_RANKS, False),
    ],
    ids=["the program", "a child", "unknown", "two ranks"],
)  # fmt: skip
def test_whether_a_program_launches_alone(statements: Sequence[str], source: Path, alone: bool, tmp_path: Path) -> None:
    """nsys keeps the output of the process that it started; which that is outlives the scrubbing of that output."""
    sqlite = altered(tmp_path, "CREATE TABLE ProcessStreams (globalPid INTEGER)", *statements, source=source)
    assert nsys.started_alone(sqlite) == alone
    for _ in range(2):
        scrub(sqlite)
        assert nsys.started_alone(sqlite) == alone


@pytest.mark.parametrize("export", [FIVE_KERNELS, CUDA_GRAPHS, TWO_RANKS], ids=lambda path: path.stem)
def test_every_range_lies_in_those_that_plain_sql_says(export: Path) -> None:
    expected = query(
        export,
        """SELECT r.start, count(around.start), max(around.start) FROM NVTX_EVENTS r LEFT JOIN NVTX_EVENTS around
           ON around.eventType = 59 AND around.globalTid = r.globalTid AND around.domainId = r.domainId
           AND around.start < r.start AND around."end" > r.start WHERE r.eventType = 59 GROUP BY r.rowid""",
    )
    ranges = recorded(export)[1]["ranges"]
    start_of = dict(enumerate(row["start_ns"] for row in ranges))
    nested = [row for row in ranges if row["kind"] == "push_pop"]
    found = [(row["start_ns"], row["depth"], start_of.get(row["parent"])) for row in nested]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_device_memory_adds_up_and_pinned_host_memory_is_left_out() -> None:
    memory = recorded(FIVE_KERNELS)[1]["memory"]
    on_device = query(
        FIVE_KERNELS,
        """SELECT start, bytes, sum(CASE memoryOperationType WHEN 0 THEN bytes ELSE -bytes END)
           OVER (ORDER BY start, rowid) FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE memKind != 1 ORDER BY start, rowid""",
    )
    assert [(row["time_ns"], row["bytes"], row["total_bytes"]) for row in memory] == on_device
    assert memory[-1] == {
        "time_ns": 3857645227, "kind": "Deallocation", "bytes": 134217728, "device": 0, "pid": 2063,
        "total_bytes": 3192213, "address": 139952828448768,
    }  # fmt: skip


def test_an_export_of_schema_3_0_with_ranges_only() -> None:
    summary, found = recorded(nsys_exports.SCHEMA_3_0)
    assert summary.schema_version == "3.0.0" and summary.warnings == ()
    assert {name: count for name, count in summary.rows.items() if count} == {"ranges": 22}
    assert [text.split(":")[0] for text in summary.missing] == [
        "no CUPTI_ACTIVITY_KIND_KERNEL", "no CUPTI_ACTIVITY_KIND_RUNTIME", "no CUDA_GPU_MEMORY_USAGE_EVENTS",
        "no GPU_METRICS", "no DIAGNOSTIC_EVENT",
    ]  # fmt: skip
    shown = [(row["domain"], row["name"], row["depth"], row["parent"], row["kind"]) for row in found["ranges"]]
    assert shown[8:10] == [("fiprof", "iter 2", 2, 5, "push_pop"), ("fiprof", "setup", 0, None, "push_pop")]
    assert shown[-4:] == [
        ("", "default-domain range", 0, None, "push_pop"), ("", "start/end range", 0, None, "start_end"),
        ("", "never ended", 0, None, "start_end"), ("fiprof", "never popped", 0, None, "push_pop"),
    ]  # fmt: skip


MAIN, BURNING = 5789, 5823
"""The threads of the recorded Python: one launches steps, the other keeps the interpreter's lock."""


def test_samples_and_waits_are_those_of_the_export() -> None:
    """Against plain SQL; nsys's own thread, which takes the lock to look, has no part in it."""
    summary, found = recorded(PYTHON_THREADS)
    rows = found["host_samples"]
    assert not [sentence for sentence in summary.missing if "left out" in sentence]
    samples = [row for row in rows if row["end_ns"] is None]
    (raw,) = query(PYTHON_THREADS, "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 34 AND jsonText IS NOT NULL")[0]
    assert len(samples) == raw
    assert {row["tid"] for row in rows} == {MAIN, BURNING}
    assert {row["function"] for row in samples if row["tid"] == BURNING} == {"burn"}
    waits = [row for row in rows if row["tid"] == MAIN and row["end_ns"] is not None]
    name = "(SELECT id FROM StringIds WHERE value = 'Waiting for GIL')"
    of_main = f'SELECT sum("end" - start) FROM NVTX_EVENTS WHERE textId = {name} AND globalTid & 0xFFFFFF = {MAIN}'
    (all_ns,) = query(PYTHON_THREADS, of_main)[0]
    assert 0.98 * all_ns < sum(row["end_ns"] - row["start_ns"] for row in waits if row["holder"] == BURNING) <= all_ns
    # None of it is a phase of the program.
    assert {(row["domain"], row["name"]) for row in found["ranges"]} == {("", "step"), ("", "prepare")}


def test_what_a_function_was_seen_in_is_where_half_of_its_looks_went(tmp_path: Path) -> None:
    """Not what passes it on: all of a model's work is in a decorator. Python's own library under a package is its."""
    files = ["/x/two.py", "/x/site-packages/p/q.py", "/usr/lib/python3.12/a.py"]
    names = ["loop", "wrapper", "attend", "project", "wait", *files]
    loop, wrapper, attend, project, wait, own, package, library = range(900_001, 900_009)
    inner = [[(wait, library), (attend, package)]] * 6 + [[(project, package)]] * 4
    rows = [row for (row,) in query(PYTHON_THREADS, "SELECT rowid FROM NVTX_EVENTS WHERE eventType = 34")]
    frames = [
        [{"Function": name, "File": file, "Line": 7} for name, file in [*each, (wrapper, package), (loop, own)]]
        for each in inner
    ]
    _, found = changed(
        tmp_path,
        *(f"INSERT INTO StringIds VALUES ({number}, '{name}')" for number, name in enumerate(names, loop)),
        *(f"UPDATE NVTX_EVENTS SET jsonText = '{json.dumps({'Python Periodic Sampling': {'Frames': stack}})}' WHERE rowid = {row}"
          for row, stack in zip(rows, frames, strict=False)),
        source=PYTHON_THREADS,
    )  # fmt: skip
    seen = Counter((row["source"], row["called"]) for row in found["host_samples"] if row["function"] == "loop")
    assert seen == {("/x/two.py", "attend (p/q.py)"): 6, ("/x/two.py", "wrapper (p/q.py)"): 4}


def rebuilt(table: str, columns: str = "*", order: str = "rowid") -> tuple[str, ...]:
    """Statements that make a table anew, with its rows in another order or other columns."""
    made = f"CREATE TABLE anew AS SELECT {columns} FROM {table} ORDER BY {order}"
    return made, f"DROP TABLE {table}", f"ALTER TABLE anew RENAME TO {table}"


@pytest.mark.parametrize(
    "statements",
    [
        (f"ALTER TABLE {KERNEL} DROP COLUMN greenContextId", f"ALTER TABLE {KERNEL} DROP COLUMN sharedMemoryLimitConfig"),
        (f"ALTER TABLE {KERNEL} RENAME TO {KERNEL}_V3", f"ALTER TABLE {RUNTIME} RENAME TO {RUNTIME}_V2",
         "ALTER TABLE NVTX_EVENTS RENAME TO NVTX_EVENTS_V2", "ALTER TABLE StringIds RENAME TO StringIds_V2"),
        ("UPDATE NVTX_EVENTS SET text = (SELECT value FROM StringIds WHERE id = textId) WHERE textId IS NOT NULL",
         "ALTER TABLE NVTX_EVENTS DROP COLUMN textId"),
        ("INSERT INTO StringIds VALUES (1000000, 'fiprof')",
         "UPDATE NVTX_EVENTS SET text = NULL, textId = 1000000 WHERE eventType = 75 AND text = 'fiprof'"),
        (*rebuilt(KERNEL, order="start DESC"), *rebuilt(RUNTIME, order="start % 7, start"),
         *rebuilt("NVTX_EVENTS", order='"end" DESC'), *rebuilt("GPU_METRICS", order="metricId, timestamp DESC")),
        (*rebuilt("CUDA_GPU_MEMORY_USAGE_EVENTS", order="bytes, start"), *rebuilt("DIAGNOSTIC_EVENT", order="text")),
        (f"UPDATE {KERNEL} SET rowid = rowid * 1000000007", f"UPDATE {RUNTIME} SET rowid = rowid - 300"),
        ("DROP TABLE ENUM_DIAGNOSTIC_SEVERITY_LEVEL", "UPDATE DIAGNOSTIC_EVENT SET severity = 1 WHERE severity = 2"),
    ],
)  # fmt: skip
def test_another_way_of_writing_the_same(statements: tuple[str, ...], tmp_path: Path) -> None:
    summary, found = changed(tmp_path, *statements)
    original_summary, original = recorded(FIVE_KERNELS)
    assert summary == original_summary
    for name in ("kernels", "ranges", "api", "copies"):
        assert found[name] == original[name], name
    for name in ("memory", "gpu_metrics"):
        assert sorted(map(repr, found[name])) == sorted(map(repr, original[name])), name
    assert [row["time_ns"] for row in found["gpu_metrics"]] == [row["time_ns"] for row in original["gpu_metrics"]]
    assert {row["text"] for row in found["diagnostics"]} == {row["text"] for row in original["diagnostics"]}


def test_reading_in_many_pieces_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, original = recorded(CUDA_GRAPHS)
    monkeypatch.setattr(nsys_export, "PIECE_BYTES", 1)
    monkeypatch.setattr(nsys_export, "FETCHED_ROWS", 10)
    _, lying = parsed(CUDA_GRAPHS, tmp_path / "lying")
    _, in_order = changed(tmp_path, *rebuilt(KERNEL, order="start DESC"), source=CUDA_GRAPHS)
    assert (lying, in_order["kernels"]) == (original, original["kernels"])


@pytest.mark.fault("columns added to nsys's tables later, a log of SQLite beside the export", "the same tables")
def test_what_only_sqlite_can_read_is_read_by_sqlite(tmp_path: Path) -> None:
    _, original = recorded(FIVE_KERNELS)
    later = f"ALTER TABLE {KERNEL} ADD COLUMN more DEFAULT 7"
    moved = f"UPDATE {KERNEL} SET more = printf('%2000d', 1) WHERE rowid > 150"
    assert changed(tmp_path, later, moved)[1]["kernels"] == original["kernels"]
    (tmp_path / "logged").mkdir()
    sqlite = altered(tmp_path / "logged")
    writer = sqlite3.connect(sqlite)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute(f"UPDATE {KERNEL} SET registersPerThread = 77")
    writer.commit()
    assert {row["registers"] for row in parsed(sqlite, tmp_path / "logged/tables")[1]["kernels"]} == {77}
    writer.close()


@pytest.mark.parametrize(
    ("column", "ours"), [("graphNodeId", "graph_node"), ("registersPerThread", "registers"), ("gridY", "grid")]
)
def test_a_column_that_is_absent_is_null_and_named(column: str, ours: str, tmp_path: Path) -> None:
    summary, found = changed(tmp_path, f"ALTER TABLE {KERNEL} DROP COLUMN {column}", source=CUDA_GRAPHS)
    assert f"{KERNEL} has no {column}: {ours} is unknown" in summary.missing
    assert {row[ours] for row in found["kernels"]} == {None}
    assert summary.rows["kernels"] == 579


@pytest.mark.fault("any columns of nsys's export renamed, `end` too", "named; every other table is read")
@pytest.mark.parametrize("table", [KERNEL, RUNTIME, "GPU_METRICS", "NVTX_EVENTS", "DIAGNOSTIC_EVENT"])
def test_any_columns_may_be_absent(table: str, tmp_path: Path) -> None:
    columns = [row[1] for row in query(FIVE_KERNELS, f"PRAGMA table_info({table})")]
    needed = {KERNEL: {"start", "end"}, RUNTIME: {"start", "end", "globalTid"}}.get(table, set())
    for first in range(0, len(columns), 3):
        absent = columns[first : first + 3]
        kept = ", ".join(f'"{name}"' for name in columns if name not in absent)
        summary = nsys.parse(altered(tmp_path, *rebuilt(table, kept)), tmp_path / "tables")
        left_out = any(f"{table} has no {column}: its rows are left out" in summary.missing for column in absent)
        assert left_out == bool({*absent} & needed)
        assert summary.rows["kernels"] == (0 if left_out and table == KERNEL else 184)
        assert summary.rows["api"] == (0 if left_out and table == RUNTIME else 443)


THE_FIRST_MEASURED = 614


@pytest.mark.parametrize(
    ("statement", "counts", "missing"),
    [
        (f"DROP TABLE {RUNTIME}", (184, 184), f"no {RUNTIME}: kernels have no launch call, phase, case or iteration"),
        (f"DELETE FROM {RUNTIME} WHERE correlationId = {THE_FIRST_MEASURED}", (1, 1), ""),
        ("DROP TABLE NVTX_EVENTS", (0, 184),
         "no NVTX_EVENTS: the trace holds no ranges, kernels have no phase, case or iteration"),
        ("UPDATE NVTX_EVENTS SET text = 'other' WHERE text = 'fiprof'", (0, 184),
         "no NVTX domain fiprof: kernels have no phase, case or iteration"),
        (f"UPDATE {RUNTIME} SET globalTid = globalTid + 1", (0, 184), ""),
    ],
    ids=["no calls", "one untraced call", "no ranges", "other ranges", "calls on another thread"],
)  # fmt: skip
def test_kernels_without_a_call_or_range(statement: str, counts: tuple[int, int], missing: str, tmp_path: Path) -> None:
    summary, found = changed(tmp_path, statement)
    untraced = [row["correlation"] for row in found["kernels"] if row["launch_call_ns"] is None]
    nowhere = [row for row in found["kernels"] if row["phase"] is None]
    assert (len(untraced), len(nowhere), "".join(summary.missing)) == (*counts, missing)
    assert len(untraced) != 1 or untraced == [THE_FIRST_MEASURED]
    assert {(row["case"], row["iteration"]) for row in nowhere} == {(None, None)}


def test_of_several_calls_with_one_correlation_id_the_first_counts_and_zero_is_none(tmp_path: Path) -> None:
    later = 'UPDATE again SET start = start + 1, "end" = "end" + 1000'
    copied = f"CREATE TABLE again AS SELECT * FROM {RUNTIME}", later, f"INSERT INTO {RUNTIME} SELECT * FROM again"
    _, found = changed(tmp_path, *copied)
    assert found["kernels"] == recorded(FIVE_KERNELS)[1]["kernels"]
    (tmp_path / "zero").mkdir()
    zero = f"SET correlationId = 0 WHERE correlationId = {THE_FIRST_MEASURED}"
    _, found = changed(tmp_path / "zero", f"UPDATE {KERNEL} {zero}", f"UPDATE {RUNTIME} {zero}")
    assert [row["launch_call_ns"] for row in found["kernels"] if row["correlation"] == 0] == [None]


@pytest.mark.parametrize(
    ("version", "warning"),
    [
        ("3.25.9", None),
        ("3.40.1", "schema 3.40.1 is newer than any this fiprof was tested with (3.25)"),
        ("4.0.0", "schema 4.0.0 is not of the kind that this fiprof was tested with (3.0 to 3.25)"),
        ("2.9", "schema 2.9 is not of the kind that this fiprof was tested with (3.0 to 3.25)"),
        ("", "the export does not say which schema it has: columns may mean something else"),
    ],
)
def test_an_untested_schema_is_read_with_a_warning(version: str, warning: str | None, tmp_path: Path) -> None:
    statement = f"UPDATE META_DATA_EXPORT SET value = '{version}' WHERE name = 'EXPORT_SCHEMA_VERSION'"
    summary, _ = changed(tmp_path, statement)
    expected = version, (warning,) if warning else (), 184
    assert (summary.schema_version, summary.warnings, summary.rows["kernels"]) == expected


def test_an_nsys_that_cannot_read_the_ranges_of_this_nvtx_is_named(tmp_path: Path) -> None:
    said = "NVTX payload extension is incompatible with this tool"
    columns = "timestamp, timestampType, source, severity, text, globalPid"
    statement = f"INSERT INTO DIAGNOSTIC_EVENT ({columns}) VALUES (5, 1, 1, 3, '{said}', 0)"
    summary, found = changed(tmp_path, statement)
    assert summary.nvtx_incompatible
    assert summary.warnings == (
        "nsys could not read the program's NVTX ranges: use nsys 2024.4 or later, or pip install nvtx==0.2.11",
    )
    assert {"time_ns": 5, "severity": "Error", "text": said} in found["diagnostics"]


def test_graphs_traced_whole_are_rows_among_the_kernels(tmp_path: Path) -> None:
    """Two executions of graph 7 by one call each, as nsys 2025.5 exports them: before and after a kernel."""
    _, recorded = changed(tmp_path)
    first = recorded["kernels"][0]
    process = 2063 << 24
    columns = "start, end, deviceId, streamId, correlationId, globalPid, graphId"
    table, start = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", first["start_ns"]
    values = [(start + shift, start + shift + 1500, 0, 13, 614, process, 7) for shift in (-9, 9)]
    made = f"CREATE TABLE {table} ({columns.replace(',', ' INTEGER,')} INTEGER)"
    summary, found = changed(tmp_path, made, *(f"INSERT INTO {table} ({columns}) VALUES {row}" for row in values))
    assert summary.rows["kernels"] == 186
    assert [(row["kernel"], row["start_ns"] - first["start_ns"]) for row in found["kernels"][:3]] == [
        ("CUDA graph 7", -9), (first["kernel"], 0), ("CUDA graph 7", 9)
    ]  # fmt: skip
    graph = found["kernels"][0]
    assert (graph["duration_ns"], graph["stream"], graph["graph_node"], graph["grid"]) == (1500, 13, 0, None)
    assert (graph["launch_call_ns"], graph["phase"], graph["iteration"]) == (7027, "measure", 0)
    assert summary.warnings == (
        "CUDA graphs were traced whole (CUPTI_ACTIVITY_KIND_GRAPH_TRACE), without their kernels:"
        " use nsys --cuda-graph-trace=node",
    )


def test_odd_names_and_a_stream_of_32_bits(tmp_path: Path) -> None:
    of = f"(SELECT demangledName FROM {KERNEL} WHERE correlationId ="
    _, found = changed(
        tmp_path,
        f"UPDATE StringIds SET value = CAST(x'766f6964206e733a3a6bff1b5b33316d3c696e743e' AS TEXT) WHERE id = {of} 614)",
        f"UPDATE StringIds SET value = '<script>' || replace(hex(zeroblob(5000)), '0', 'x') WHERE id = {of} 163)",
        f"UPDATE {KERNEL} SET streamId = 4294967295, demangledName = iif(correlationId = 187, 123456789, demangledName)",
    )
    names = {row["correlation"]: (row["kernel"], row["kernel_full"]) for row in found["kernels"]}
    assert (names[614][1], names[163][0], names[187][0]) == ("void ns::k\ufffd [31m<int>", "x" * 10_000, "(no name)")
    assert {row["stream"] for row in found["kernels"]} == {-1}


AGAIN = "export it again: nsys export --type sqlite --force-overwrite true --output trace.sqlite trace.nsys-rep"
NO_EXPORT = "nsys export --type sqlite makes it from a report"
WHOLE = FIVE_KERNELS.read_bytes()


def failure(sqlite: Path) -> FiprofError:
    """The error of a parse, which must leave nothing in its folder."""
    out = sqlite.parent / "tables"
    with pytest.raises(FiprofError) as caught:
        nsys.parse(sqlite, out)
    assert not out.exists() or not list(out.iterdir())
    return caught.value


((ROOT,),) = query(FIVE_KERNELS, f"SELECT rootpage FROM sqlite_master WHERE name = '{KERNEL}'")
OVERWRITTEN = WHOLE[: (ROOT - 1) * 4096] + b"\xff" * 4096 + WHOLE[ROOT * 4096 :]


@pytest.mark.fault("payloads of samples that are none, or of files with control characters", "the others are read")
def test_payloads_that_are_none(tmp_path: Path) -> None:
    """Domains without a number too."""
    bad = ["", "{", "[]", "[" * 100_000, '{"Python Periodic Sampling": {"Frames": [{"Function": "x"}]}}']
    samples = query(PYTHON_THREADS, "SELECT rowid FROM NVTX_EVENTS WHERE eventType = 34")
    spoilt = zip(samples, bad, strict=False)
    summary, found = changed(
        tmp_path,
        *(f"UPDATE NVTX_EVENTS SET jsonText = '{text}' WHERE rowid = {row}" for (row,), text in spoilt),
        "UPDATE StringIds SET value = 'burn&#27;[31m' WHERE value = 'burn'",
        "INSERT INTO NVTX_EVENTS (eventType, start, globalTid, text) VALUES (75, 1, 1, 'GIL Trace')",
        source=PYTHON_THREADS,
    )
    assert summary.rows["host_samples"] == recorded(PYTHON_THREADS)[0].rows["host_samples"] - len(bad)
    functions = {row["function"] for row in found["host_samples"]} - {None}
    assert "forward" in functions and not any("\x1b" in each for each in functions)


@pytest.mark.fault("a folder stands where nsys's SQLite export should be", "one line names it")
@pytest.mark.fault("another program's SQLite file in place of nsys's", "one line names the table that it lacks")
@pytest.mark.fault("a page of the export is overwritten with 0xff", "one line: damaged; no table is left behind")
@pytest.mark.fault("nsys's SQLite is empty, of another format or cut short", "one line; the command that exports it")
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "does not exist"), ("folder", "is damaged: [Errno 21] Is a directory: '{}'"),
        (nsys_exports.OTHER_PROGRAM, "is not an nsys export: it has no table StringIds"),
        (OVERWRITTEN, "is damaged: database disk image is malformed"),
        (b"", "is not an nsys export: it has no table StringIds"),
        (b"NVIDIA Nsight Systems report", "is damaged: file is not a database"),
        (b"SQLite format 3\0", "is damaged: file is not a database"),
        (WHOLE[:-1], "is cut short: 323,583 of 323,584 bytes"),
        (WHOLE[:4096], "is cut short: 4,096 of 323,584 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_export(content: bytes | str | None, problem: str, tmp_path: Path) -> None:
    if isinstance(content, bytes):
        (tmp_path / "trace.sqlite").write_bytes(content)
    elif content:
        (tmp_path / "trace.sqlite").mkdir()
    error = failure(tmp_path / "trace.sqlite")
    assert error.message == f"{tmp_path}/trace.sqlite {problem.format(tmp_path / 'trace.sqlite')}"
    assert isinstance(content, str) or error.remedy == (AGAIN if content is not None else NO_EXPORT)


@pytest.mark.fault("nsys is still writing the export", "one line says so")
def test_a_file_that_is_being_written(tmp_path: Path) -> None:
    sqlite = altered(tmp_path)
    writer = sqlite3.connect(sqlite, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    error = failure(sqlite)
    writer.close()
    said = f"{sqlite} is locked: another program is writing it", "wait until nsys has finished exporting"
    assert (error.message, error.remedy) == said


@pytest.mark.fault("text, a fraction or bytes in nsys's columns of integers", "read, or one line")
@pytest.mark.parametrize("value", ["'text'", "1.5", "x'00ff'"])
@pytest.mark.parametrize("column", ["start", "demangledName", "gridX", "correlationId", "globalPid"])
def test_something_else_in_a_column_of_integers(column: str, value: str, tmp_path: Path) -> None:
    anew = (f"ALTER TABLE {KERNEL} {how} COLUMN {column}" for how in ("DROP", "ADD"))
    sqlite = altered(tmp_path, *anew, f"UPDATE {KERNEL} SET {column} = {value} WHERE rowid = 100")
    message = ""
    try:
        parsed(sqlite, tmp_path / "tables")
    except FiprofError as error:
        message = error.message
    assert not message or "trace.sqlite is damaged: " in message


@pytest.mark.fault("allocations of 2^62 bytes in nsys's export", "one line: damaged")
def test_sizes_that_no_memory_has(tmp_path: Path) -> None:
    sqlite = altered(tmp_path, f"UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET bytes = {2**62}, memoryOperationType = 0")
    error = failure(sqlite)
    assert (error.message.partition(": ")[0], error.remedy) == (f"{sqlite} is damaged", AGAIN)


@pytest.mark.fault("a later parse of nsys's export fails", "the tables of the earlier one stay as they were")
def test_tables_of_an_earlier_parse_survive_a_failure(tmp_path: Path) -> None:
    nsys.parse(FIVE_KERNELS, tmp_path / "tables")
    before = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    (tmp_path / "trace.sqlite").write_bytes(WHOLE[:200_000])
    with pytest.raises(FiprofError):
        nsys.parse(tmp_path / "trace.sqlite", tmp_path / "tables")
    assert {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()} == before


def test_ranges_that_share_a_tick() -> None:
    """A case that starts with its phase is inside it; a phase that starts where the one before ended is beside it."""
    setup = RangeRow("fiprof", "setup", 0, 10, 1, "push_pop")
    warmup = RangeRow("fiprof", "warmup", 10, 30, 1, "push_pop")
    case = RangeRow("fiprof", "rope[a=1]", 10, 20, 1, "push_pop")
    counted = RangeRow("fiprof", "iter 0", 12, 14, 1, "push_pop")  # only measured iterations have a number
    ranges = nested([counted, case, warmup, setup])
    assert [(found.name, found.depth, found.parent) for found in ranges] == [
        ("setup", 0, None), ("warmup", 0, None), ("rope[a=1]", 1, 1),
        ("iter 0", 2, 2),
    ]  # fmt: skip
    scopes = Scopes(ranges)
    positions = scopes.at(np.ones(7, np.int64), np.array([9, 10, 13, 19, 20, 29, 30], np.int64)).tolist()
    inside, after = Scope("warmup", "rope[a=1]"), Scope("warmup")
    found = [None if position == NOTHING else scopes.all[position] for position in positions]
    assert found == [Scope("setup"), inside, inside, inside, after, after, None]


TIMES = st.one_of(st.none(), st.integers(-(2**62), 2**62), st.integers(0, 9))


@settings(max_examples=30)
@given(st.lists(st.tuples(TIMES, st.one_of(st.none(), st.integers(0, 300))), max_size=300))
@example([*[(None, None)] * 17, (0, None), (None, None)])
def test_rows_in_any_order_come_in_the_order_of_sqlite(rows: list[tuple[int | None, int | None]]) -> None:
    fields = (nsys_export.column("time", "start"), nsys_export.column("other"))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as changed:
        for name, value in (("PIECE_BYTES", 1), ("SORTED_ROWS", 16), ("SAMPLED", 4), ("FETCHED_ROWS", 10)):
            changed.setattr(nsys_export, name, value)
        path = Path(folder) / "any.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA page_size = 512")
            connection.executescript("CREATE TABLE StringIds (id, value); CREATE TABLE t (start, other)")
            connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
            connection.commit()
            expected = connection.execute("SELECT start, other FROM t ORDER BY start, rowid").fetchall()
        with nsys_export.Export(path) as export:

            @nsys_export.read_again
            def found() -> list[tuple[Any, ...]]:
                pieces = export.scan("t", fields, order="time")
                return [tuple(row.values()) for piece in pieces for row in piece.to_pylist()]

            assert found() == expected
