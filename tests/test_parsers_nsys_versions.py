"""The nsys parser over what other versions write: recorded exports with tables and columns renamed, dropped, refilled."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fiprof.model import tables
from fiprof.parsers import nsys, nsys_export
from tests.nsys_exports import CUDA_GRAPHS, FIVE_KERNELS, KERNEL, RUNTIME, altered, changed, parsed, recorded


def rebuilt(table: str, columns: str = "*", order: str = "rowid") -> tuple[str, ...]:
    """Statements that make a table anew, with its rows in another order or other columns."""
    return (
        f"CREATE TABLE anew AS SELECT {columns} FROM {table} ORDER BY {order}",
        f"DROP TABLE {table}",
        f"ALTER TABLE anew RENAME TO {table}",
    )


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(
            (f"ALTER TABLE {KERNEL} DROP COLUMN greenContextId", f"ALTER TABLE {KERNEL} DROP COLUMN sharedMemoryLimitConfig"),
            id="later columns absent",
        ),
        pytest.param(
            (f"ALTER TABLE {KERNEL} RENAME TO {KERNEL}_V3", f"ALTER TABLE {RUNTIME} RENAME TO {RUNTIME}_V2",
             "ALTER TABLE NVTX_EVENTS RENAME TO NVTX_EVENTS_V2", "ALTER TABLE StringIds RENAME TO StringIds_V2"),
            id="tables with a version",
        ),
        pytest.param(
            ("UPDATE NVTX_EVENTS SET text = (SELECT value FROM StringIds WHERE id = textId) WHERE textId IS NOT NULL",
             "ALTER TABLE NVTX_EVENTS DROP COLUMN textId"),
            id="range texts in place",
        ),
        pytest.param(
            ("INSERT INTO StringIds VALUES (1000000, 'fiprof')",
             "UPDATE NVTX_EVENTS SET text = NULL, textId = 1000000 WHERE eventType = 75 AND text = 'fiprof'"),
            id="domain name by id",
        ),
        pytest.param(
            (*rebuilt(KERNEL, order="start DESC"), *rebuilt(RUNTIME, order="start % 7, start"),
             *rebuilt("NVTX_EVENTS", order='"end" DESC'), *rebuilt("GPU_METRICS", order="metricId, timestamp DESC")),
            id="kernels, calls, ranges and samples in no order",
        ),
        pytest.param(
            (*rebuilt("CUDA_GPU_MEMORY_USAGE_EVENTS", order="bytes, start"), *rebuilt("DIAGNOSTIC_EVENT", order="text")),
            id="memory and diagnostics in no order",
        ),
        pytest.param(
            (f"UPDATE {KERNEL} SET rowid = rowid * 1000000007", f"UPDATE {RUNTIME} SET rowid = rowid - 300"),
            id="row ids with gaps",
        ),
        pytest.param(
            ("DROP TABLE ENUM_DIAGNOSTIC_SEVERITY_LEVEL", "UPDATE DIAGNOSTIC_EVENT SET severity = 1 WHERE severity = 2"),
            id="no severities",
        ),
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
    assert lying == original
    assert in_order["kernels"] == original["kernels"]


def test_rows_out_of_order_between_pieces_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_export, "PIECE_BYTES", 1)
    of_a_page = 53
    _, found = changed(tmp_path, *rebuilt(KERNEL, order=f"rowid > {184 - of_a_page} DESC, rowid"))
    assert found["kernels"] == recorded(FIVE_KERNELS)[1]["kernels"]


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


NEEDED = {KERNEL: ("start", "end"), RUNTIME: ("start", "end", "globalTid")}


@pytest.mark.fault("any column of nsys's export renamed, `end` too", "named; every other table is read")
@pytest.mark.parametrize("table", [KERNEL, RUNTIME, "GPU_METRICS", "NVTX_EVENTS", "DIAGNOSTIC_EVENT"])
def test_any_column_may_be_absent(table: str, tmp_path: Path) -> None:
    columns = [row[1] for row in sqlite3.connect(FIVE_KERNELS).execute(f"PRAGMA table_info({table})")]
    for column in columns:
        kept = ", ".join(f'"{name}"' for name in columns if name != column)
        summary, _ = changed(tmp_path, *rebuilt(table, kept))
        left_out = f"{table} has no {column}: its rows are left out" in summary.missing
        assert left_out == (column in NEEDED.get(table, ()))
        assert summary.rows["kernels"] == (0 if left_out and table == KERNEL else 184)
        assert summary.rows["api"] == (0 if left_out and table == RUNTIME else 443)


NO_RANGES = "no NVTX_EVENTS: the trace holds no ranges, kernels have no phase, case or iteration"
NO_DOMAIN = "no NVTX domain fiprof: kernels have no phase, case or iteration"
NO_CALLS = f"no {RUNTIME}: kernels have no launch call, phase, case or iteration"
THE_FIRST_MEASURED = 614


@pytest.mark.parametrize(
    ("statement", "without_call", "without_phase", "missing"),
    [
        (f"DROP TABLE {RUNTIME}", 184, 184, (NO_CALLS,)),
        (f"DELETE FROM {RUNTIME} WHERE correlationId = {THE_FIRST_MEASURED}", 1, 1, ()),
        ("DROP TABLE NVTX_EVENTS", 0, 184, (NO_RANGES,)),
        ("UPDATE NVTX_EVENTS SET text = 'other' WHERE text = 'fiprof'", 0, 184, (NO_DOMAIN,)),
        (f"UPDATE {RUNTIME} SET globalTid = globalTid + 1", 0, 184, ()),
    ],
    ids=["no calls", "one untraced call", "no ranges", "other ranges", "calls on another thread"],
)
def test_kernels_without_a_call_or_a_range_have_no_phase(
    statement: str, without_call: int, without_phase: int, missing: tuple[str, ...], tmp_path: Path
) -> None:
    summary, found = changed(tmp_path, statement)
    untraced = [row["correlation"] for row in found["kernels"] if row["launch_call_ns"] is None]
    nowhere = [row for row in found["kernels"] if row["phase"] is None]
    assert (len(untraced), len(nowhere), summary.missing) == (without_call, without_phase, missing)
    assert without_call != 1 or untraced == [THE_FIRST_MEASURED]
    assert {(row["case"], row["iteration"]) for row in nowhere} == {(None, None)}


def test_of_several_calls_with_one_correlation_id_the_first_counts_and_zero_is_none(tmp_path: Path) -> None:
    _, found = changed(
        tmp_path,
        f"CREATE TABLE again AS SELECT * FROM {RUNTIME}",
        'UPDATE again SET start = start + 1, "end" = "end" + 1000',
        f"INSERT INTO {RUNTIME} SELECT * FROM again",
    )
    assert found["kernels"] == recorded(FIVE_KERNELS)[1]["kernels"]
    (tmp_path / "zero").mkdir()
    zero = f"SET correlationId = 0 WHERE correlationId = {THE_FIRST_MEASURED}"
    _, found = changed(tmp_path / "zero", f"UPDATE {KERNEL} {zero}", f"UPDATE {RUNTIME} {zero}")
    assert [row["launch_call_ns"] for row in found["kernels"] if row["correlation"] == 0] == [None]


def test_another_process_with_the_same_correlation_ids_and_domain_number(tmp_path: Path) -> None:
    """The second rank of a run: same ids, later by 1 s, its domain 1 is not fiprof's, its device 0 is the second GPU."""
    process = 281474976710656 + (9999 << 24)
    thread = process + 9999
    _, found = changed(
        tmp_path,
        *(
            statement
            for table, owner in ((KERNEL, f"globalPid = {process}"), (RUNTIME, f"globalTid = {thread}"))
            for statement in (
                f"CREATE TABLE twin AS SELECT * FROM {table}",
                f'UPDATE twin SET start = start + 1000000000, "end" = "end" + 1000000007, {owner}',
                f"INSERT INTO {table} SELECT * FROM twin",
                "DROP TABLE twin",
            )
        ),
        "CREATE TABLE twin AS SELECT * FROM NVTX_EVENTS",
        f'UPDATE twin SET start = start + 1000000000, "end" = "end" + 1000000000, globalTid = {thread}',
        "UPDATE twin SET text = 'other' WHERE text = 'fiprof'",
        "INSERT INTO NVTX_EVENTS SELECT * FROM twin",
        "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (1, 0, 9999)",
    )
    _, original = recorded(FIVE_KERNELS)
    first = [row for row in found["kernels"] if row["pid"] == 2063]
    second = [row for row in found["kernels"] if row["pid"] == 9999]
    assert first == original["kernels"]
    assert [row["launch_call_ns"] for row in second] == [row["launch_call_ns"] + 7 for row in original["kernels"]]
    assert {(row["phase"], row["device"]) for row in second} == {(None, 1)}
    assert {row["domain"] for row in found["ranges"] if row["pid"] == 9999} == {"other", "CCCL"}


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
    assert summary.schema_version == version
    assert summary.warnings == ((warning,) if warning else ())
    assert summary.rows["kernels"] == 184


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


def test_without_processes_kernels_stay_and_belong_to_none(tmp_path: Path) -> None:
    summary, found = changed(tmp_path, f"ALTER TABLE {KERNEL} DROP COLUMN globalPid")
    assert f"{KERNEL} has no globalPid: process is unknown" in summary.missing
    assert {(row["pid"], row["launch_call_ns"]) for row in found["kernels"]} == {(0, None)}
    assert summary.rows["kernels"] == 184


def test_graphs_traced_whole_are_rows_among_the_kernels(tmp_path: Path) -> None:
    """Two executions of graph 7 by one call each, as nsys 2025.5 exports them: before and after a kernel."""
    _, recorded = changed(tmp_path)
    first = recorded["kernels"][0]
    process = 2063 << 24
    columns = "start, end, deviceId, streamId, correlationId, globalPid, graphId"
    table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    values = [
        (first["start_ns"] + shift, first["start_ns"] + shift + 1500, 0, 13, 614, process, 7) for shift in (-9, 9)
    ]
    summary, found = changed(
        tmp_path,
        f"CREATE TABLE {table} ({columns.replace(',', ' INTEGER,')} INTEGER)",
        *(f"INSERT INTO {table} ({columns}) VALUES {row}" for row in values),
    )
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


def test_hostile_names_come_out_printable(tmp_path: Path) -> None:
    _, found = changed(
        tmp_path,
        "UPDATE StringIds SET value = CAST(x'766f6964206e733a3a6bff1b5b33316d3c696e743e28696e7429' AS TEXT)"
        f" WHERE id = (SELECT demangledName FROM {KERNEL} WHERE correlationId = 614)",
        f"UPDATE StringIds SET value = '<script>' || replace(hex(zeroblob(5000)), '0', 'x')"
        f" WHERE id = (SELECT demangledName FROM {KERNEL} WHERE correlationId = 163)",
    )
    by_correlation = {row["correlation"]: row for row in found["kernels"]}
    assert by_correlation[614]["kernel_full"] == "void ns::k\ufffd [31m<int>(int)"
    assert by_correlation[163]["kernel"] == "x" * 10_000


def test_a_kernel_without_a_name_and_a_stream_of_32_bits(tmp_path: Path) -> None:
    _, found = changed(
        tmp_path,
        f"UPDATE {KERNEL} SET demangledName = 123456789 WHERE correlationId = {THE_FIRST_MEASURED}",
        f"UPDATE {KERNEL} SET streamId = 4294967295",
    )
    assert [row["correlation"] for row in found["kernels"] if row["kernel"] is None] == [THE_FIRST_MEASURED]
    assert {row["stream"] for row in found["kernels"]} == {-1}


def test_parsing_again_replaces_all_tables(tmp_path: Path) -> None:
    nsys.parse(CUDA_GRAPHS, tmp_path / "tables")
    parsed(FIVE_KERNELS, tmp_path / "tables")
    assert tables.read(tmp_path / "tables", "kernels").num_rows == 184
    assert not [path for path in (tmp_path / "tables").iterdir() if path.suffix != ".parquet"]
