"""The nsys parser over recorded exports of an H200, held to what plain SQLite says about them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fiprof.parsers import nsys
from tests.nsys_exports import CUDA_GRAPHS, FIVE_KERNELS, NAMES, SCHEMA_3_0, Row, parsed, query, recorded


@pytest.fixture
def five() -> dict[str, list[Row]]:
    return recorded(FIVE_KERNELS)[1]


def test_the_summary_of_a_whole_export(tmp_path: Path) -> None:
    assert nsys.parse(FIVE_KERNELS, tmp_path / "new" / "tables") == nsys.NsysSummary(
        schema_version="3.20.3",
        rows=dict(zip(NAMES, (184, 132, 443, 15, 747, 1100, 1, 44), strict=True)),
        missing=(),
        warnings=(),
        session_start_ns=1795257931627977542,
        nvtx_incompatible=False,
    )
    assert {path.name for path in (tmp_path / "new" / "tables").iterdir()} == {f"{name}.parquet" for name in NAMES}


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


def test_device_memory_adds_up_and_pinned_host_memory_is_left_out(five: dict[str, list[Row]]) -> None:
    on_device = query(
        FIVE_KERNELS,
        """SELECT start, bytes, sum(CASE memoryOperationType WHEN 0 THEN bytes ELSE -bytes END)
           OVER (ORDER BY start, rowid) FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE memKind != 1 ORDER BY start, rowid""",
    )
    assert [(row["time_ns"], row["bytes"], row["total_bytes"]) for row in five["memory"]] == on_device
    assert max(row["total_bytes"] for row in five["memory"]) == 426597311
    assert five["memory"][-1] == {
        "time_ns": 3857645227, "kind": "Deallocation", "bytes": 134217728, "device": 0, "pid": 2063,
        "total_bytes": 3192213, "address": 139952828448768,
    }  # fmt: skip


def test_an_export_of_schema_3_0_with_ranges_only() -> None:
    summary, found = recorded(SCHEMA_3_0)
    assert summary.schema_version == "3.0.0"
    assert summary.rows | {"ranges": 22} == dict.fromkeys(summary.rows, 0) | {"ranges": 22}
    assert summary.missing == (
        "no CUPTI_ACTIVITY_KIND_KERNEL: the trace holds no kernels",
        "no CUPTI_ACTIVITY_KIND_RUNTIME: kernels have no launch call, phase, case or iteration",
        "no CUDA_GPU_MEMORY_USAGE_EVENTS: the trace holds no allocations (nsys --cuda-memory-usage=true)",
        "no GPU_METRICS: the trace holds no samples of GPU metrics (nsys --gpu-metrics-devices=all)",
        "no DIAGNOSTIC_EVENT: what nsys had to say is unknown",
    )
    assert summary.warnings == ()
    shown = [(row["domain"], row["name"], row["depth"], row["parent"], row["kind"]) for row in found["ranges"]]
    assert shown[6:10] == [
        ("fiprof", "iter 0", 2, 5, "push_pop"),
        ("fiprof", "iter 1", 2, 5, "push_pop"),
        ("fiprof", "iter 2", 2, 5, "push_pop"),
        ("fiprof", "setup", 0, None, "push_pop"),
    ]
    assert shown[-4:] == [
        ("", "default-domain range", 0, None, "push_pop"),
        ("", "start/end range", 0, None, "start_end"),
        ("", "never ended", 0, None, "start_end"),
        ("fiprof", "never popped", 0, None, "push_pop"),
    ]


@pytest.mark.nsys
def test_a_trace_by_the_real_nsys(nsys_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("nvtx")
    program = tmp_path / "program.py"
    program.write_text(
        "import nvtx\n"
        "for name in ('measure', 'case[a=1]', 'iter 0'): nvtx.push_range(name, domain='fiprof')\n"
        "for _ in range(3): nvtx.pop_range(domain='fiprof')\n"
    )
    report = tmp_path / "trace"
    trace = ("profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", "--output", report, sys.executable, program)
    export = ("export", "--type=sqlite", "--output", f"{report}.sqlite", f"{report}.nsys-rep")
    for command in (trace, export):
        subprocess.run([nsys_path, *command], check=True, capture_output=True, cwd=tmp_path, timeout=120)
    summary, found = parsed(report.with_suffix(".sqlite"), tmp_path / "tables")
    if summary.nvtx_incompatible:
        pytest.skip("this nsys cannot read the ranges of the installed nvtx")
    assert [(row["domain"], row["name"], row["depth"], row["parent"]) for row in found["ranges"]] == [
        ("fiprof", "measure", 0, None),
        ("fiprof", "case[a=1]", 1, 0),
        ("fiprof", "iter 0", 2, 1),
    ]
