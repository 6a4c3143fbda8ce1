"""The nsys parser over recorded exports of an H200, held to what plain SQLite says about them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fiprof.parsers import nsys
from tests.nsys_exports import CUDA_GRAPHS, FIVE_KERNELS, NAMES, SCHEMA_3_0, Row, parsed, query, recorded

PREFILL = (
    "prefill[batch=4,seq_len=2048,q_heads=32,kv_heads=8,head_dim=128,page_size=16,causal=true,backend=auto,dtype=fp16]"
)
GRAPHS_CASE = (
    "decode[batch=32,kv_len=2048,q_heads=32,kv_heads=8,head_dim=128,page_size=16,tensor_cores=false,cuda_graph=true,"
    "dtype=fp16]"
)


@pytest.fixture
def five() -> dict[str, list[Row]]:
    return recorded(FIVE_KERNELS)[1]


@pytest.fixture
def graphs() -> dict[str, list[Row]]:
    return recorded(CUDA_GRAPHS)[1]


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


def test_nodes_of_a_cuda_graph_are_launched_by_its_launch_call(graphs: dict[str, list[Row]]) -> None:
    nodes = [row for row in graphs["kernels"] if row["graph_node"] is not None]
    measured = [row for row in nodes if row["case"] == GRAPHS_CASE and row["phase"] == "measure"]
    assert len(nodes) == 92
    assert [(row["kernel"], row["graph_node"], row["iteration"]) for row in measured] == [
        (kernel, node, iteration)
        for iteration in range(20)
        for kernel, node in (
            ("BatchDecodeWithPagedKVCacheKernel", 8589934592),
            ("PersistentVariableLengthMergeStatesKernel", 8589934593),
        )
    ]
    launches = {row["correlation"]: row for row in graphs["api"] if row["name"] == "cudaGraphLaunch"}
    assert len(launches) == 46
    # Each call once, with the first of the two nodes that it launched.
    timed = [row for row in nodes if row["launch_call_ns"] is not None]
    assert {row["correlation"]: row["launch_call_ns"] for row in timed} == {
        correlation: call["end_ns"] - call["start_ns"] for correlation, call in launches.items()
    }
    assert len(timed) == 46


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


def test_gpu_metrics_have_names_and_clocks_are_in_megahertz(five: dict[str, list[Row]]) -> None:
    found: dict[str, list[float]] = {}
    for row in five["gpu_metrics"]:
        assert row["device"] == 0
        found.setdefault(row["metric"], []).append(row["value"])
    assert len(found) == 22
    assert {len(values) for values in found.values()} == {50}
    assert sum(found["Tensor Active [Throughput %]"]) == 1283
    assert sum(found["DRAM Read Bandwidth [Throughput %]"]) == 339
    assert max(found["Compute Warps in Flight [Avg]"]) == 4207657
    assert min(found["GPC Clock Frequency [MHz]"]) == 1666.46625
    assert max(found["SYS Clock Frequency [MHz]"]) == 1665.472951


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


def test_importing_the_parser_imports_no_heavy_library() -> None:
    heavy = "{'pandas', 'pyarrow', 'sqlalchemy', 'numpy'}"
    code = f"import sys, fiprof.parsers.nsys; print(sorted({heavy} & set(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"


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
