"""An nsys SQLite export -> the tables kernels, ranges, api, copies, memory, gpu_metrics, processes and diagnostics."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiprof.files import scratch
from fiprof.model import schemas, tables
from fiprof.parsers.names import FIPROF_DOMAIN, case_of
from fiprof.parsers.nsys_columns import Devices, Labels, int32, process_id
from fiprof.parsers.nsys_export import Export, Field, column, read_again
from fiprof.parsers.nsys_kernels import GRAPH_TRACE, KERNEL, RUNTIME, write_api, write_copies, write_kernels
from fiprof.parsers.nsys_processes import write_processes
from fiprof.parsers.nsys_ranges import Range, Scopes, as_table, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

NEWEST_SCHEMA = (3, 25)
"""Major and minor version; from 3.0 (nsys 2022.4) to this one (2025.5) the parser is tested."""
WITHOUT_RANGES = "kernels have no phase, case or iteration"
GPU_METRICS = "GPU_METRICS"
MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
SESSION_START = "TARGET_INFO_SESSION_START_TIME"
CONSEQUENCES = {
    KERNEL: "the trace holds no kernels",
    RUNTIME: "kernels have no launch call, phase, case or iteration",
    "NVTX_EVENTS": f"the trace holds no ranges, {WITHOUT_RANGES}",
    MEMORY: "the trace holds no allocations (nsys --cuda-memory-usage=true)",
    GPU_METRICS: "the trace holds no samples of GPU metrics (nsys --gpu-metrics-devices=all)",
    "DIAGNOSTIC_EVENT": "what nsys had to say is unknown",
}
"""What follows from the absence of each table that a good trace has."""
HOST_MEMORY = (0, 1)
"""The values of memKind for pageable and for pinned memory."""
OPERATIONS = {0: "Allocation", 1: "Deallocation"}
"""The values of memoryOperationType."""
SIGNS = {0: 1, 1: -1}

# GPU_METRICS.typeId ends in the GPU's number; with the metric's id it makes an integer that names a metric of a GPU.
GPU_MASK = 0xFF
TYPE_MASK = 0xFFFFFFFF
METRIC_BITS = 31
METRIC_MASK = (1 << METRIC_BITS) - 1
HIGHEST_CLOCK_MHZ = 1e5


def _metric_key(kind: Any, metric: Any) -> Any:
    """A metric of a GPU, which typeId and metricId name, in one integer; or many in an array."""
    return (kind & TYPE_MASK) << METRIC_BITS | metric & METRIC_MASK


METRIC_FIELDS = (
    column("time_ns", "timestamp"),
    Field("metric", ("typeId", "metricId"), _metric_key),
    Field("value", ("value",), real=True),
)


@dataclass(frozen=True)
class NsysSummary:
    """What :func:`parse` found."""

    schema_version: str
    """Of the export, e.g. 3.20.3; empty where it does not say."""
    rows: dict[str, int]
    """Rows of each table that was written."""
    missing: tuple[str, ...]
    """Tables and columns that matter and that the export does not have, a sentence each."""
    warnings: tuple[str, ...]
    """What makes the tables doubtful or short, a sentence each."""
    session_start_ns: int | None
    """When the session began, UTC since 1970; None where the export does not say."""
    nvtx_incompatible: bool
    """nsys said that it cannot read this program's NVTX ranges (nsys up to 2024.2 with nvtx 0.2.13 or later)."""


def parse(sqlite: Path, out: Path, *, declared: Sequence[str] = ()) -> NsysSummary:
    """Write the tables into the folder ``out``, all of them or none; empty where the export has nothing.

    declared: NVTX ranges that are cases.
    Raises FiprofError where the file is missing, locked, damaged, cut short or no nsys export.
    """
    import pyarrow as pa

    with Export(sqlite) as export:
        out.mkdir(parents=True, exist_ok=True)
        with scratch(out) as folder:
            try:
                summary = _write_tables(export, folder, declared)
            except (pa.ArrowException, OverflowError) as error:  # numbers that no trace has
                raise export.damaged(error) from error
            for name in summary.rows:
                os.replace(tables.table_path(folder, name), tables.table_path(out, name))
    return summary


def _write_tables(export: Export, folder: Path, declared: Sequence[str]) -> NsysSummary:
    ranges = read_ranges(export)
    session_start_ns = next((start for (start,) in export.rows(SESSION_START, "utcEpochNs")), None)
    diagnostics = _read_diagnostics(export)
    tables.write(folder, "ranges", as_table(ranges))
    tables.write(folder, "diagnostics", diagnostics)
    api_rows, calls = write_api(export, folder, Scopes(ranges, declared))
    rows = {
        "kernels": write_kernels(export, folder, calls),
        "ranges": len(ranges),
        "api": api_rows,
        "copies": write_copies(export, folder, calls),
        "memory": _write_memory(export, folder),
        "gpu_metrics": _write_gpu_metrics(export, folder),
        "processes": write_processes(export, folder, session_start_ns),
        "diagnostics": diagnostics.num_rows,
    }
    incompatible = any(schemas.NVTX_INCOMPATIBLE in text for text in diagnostics["text"].to_pylist())
    return NsysSummary(
        schema_version=export.schema_version,
        rows=rows,
        missing=(*_absent_tables(export, ranges, declared), *export.absent_columns),
        warnings=tuple(_warnings(export, incompatible)),
        session_start_ns=session_start_ns,
        nvtx_incompatible=incompatible,
    )


def _absent_tables(export: Export, ranges: list[Range], declared: Sequence[str]) -> Iterator[str]:
    for table, consequence in CONSEQUENCES.items():
        if not export.has(table):
            yield f"no {table}: {consequence}"
    if ranges and not declared and not any(found.domain == FIPROF_DOMAIN for found in ranges):
        yield f"no NVTX domain {FIPROF_DOMAIN}: {WITHOUT_RANGES}"
    for name in declared:
        kinds = {found.kind for found in ranges if case_of(found.domain, found.name, [name])}
        if kinds and "push_pop" not in kinds:
            yield f"the range {name} is of start and end, not of push and pop: it belongs to no thread and is no case"


def _warnings(export: Export, nvtx_incompatible: bool) -> Iterator[str]:
    version = re.match(r"(\d+)\.(\d+)", export.schema_version)
    newest = ".".join(map(str, NEWEST_SCHEMA))
    if not version:
        yield "the export does not say which schema it has: columns may mean something else"
    elif int(version[1]) != NEWEST_SCHEMA[0]:
        yield f"schema {export.schema_version} is not of the kind that this fiprof was tested with (3.0 to {newest})"
    elif (int(version[1]), int(version[2])) > NEWEST_SCHEMA:
        yield f"schema {export.schema_version} is newer than any this fiprof was tested with ({newest})"
    if nvtx_incompatible:
        yield "nsys could not read the program's NVTX ranges: use nsys 2024.4 or later, or pip install nvtx==0.2.11"
    if export.has(GRAPH_TRACE):
        yield f"CUDA graphs were traced whole ({GRAPH_TRACE}), without their kernels: use nsys --cuda-graph-trace=node"


def _read_diagnostics(export: Export) -> pa.Table:
    """The table ``diagnostics``."""
    import pyarrow as pa

    labels = export.labels("ENUM_DIAGNOSTIC_SEVERITY_LEVEL") | {1: "Information"}
    events = export.rows("DIAGNOSTIC_EVENT", "timestamp", "severity", "text")
    rows = [
        {"time_ns": time_ns, "severity": labels.get(severity, f"severity {severity}"), "text": text or ""}
        for time_ns, severity, text in sorted(events, key=lambda event: event[0] or 0)
    ]
    return pa.Table.from_pylist(rows, schemas.schema("diagnostics"))


def _write_memory(export: Export, folder: Path) -> int:
    """Write the table ``memory``: device memory only, host memory is left out. Returns its rows."""
    import pyarrow as pa

    devices, events = Devices(export), []
    totals: dict[tuple[int, int | None], int] = defaultdict(int)
    export.require(MEMORY, "start", "bytes", "globalPid")
    columns = ("start", "memoryOperationType", "memKind", "bytes", "deviceId", "globalPid", "address")
    for row in sorted(export.rows(MEMORY, *columns), key=lambda row: row[0] or 0):
        time_ns, operation, kind, size, ordinal, process, address = row
        if kind in HOST_MEMORY or None in (time_ns, size, process):
            continue
        pid = process_id(process)
        device = devices.gpu(pid, ordinal)
        totals[pid, device] += SIGNS.get(operation, 0) * size
        events.append(
            {
                "time_ns": time_ns,
                "kind": OPERATIONS.get(operation, f"memoryOperationType {operation}"),
                "bytes": size,
                "device": device,
                "pid": pid,
                "total_bytes": totals[pid, device],
                "address": address,
            }
        )
    tables.write(folder, "memory", pa.Table.from_pylist(events, schemas.schema("memory")))
    return len(events)


@read_again
def _write_gpu_metrics(export: Export, folder: Path) -> int:
    """Write the table ``gpu_metrics``. Returns its rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = export.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
    names = {_metric_key(kind or 0, metric or 0): name for kind, metric, name in known}
    metrics = Labels(lambda keys: [names.get(key, f"metric {key & METRIC_MASK}") for key in keys])
    clocks = pa.array([key for key, name in names.items() if (name or "").endswith("[MHz]")], pa.int64())
    rows = 0
    with tables.writer(folder, "gpu_metrics") as write:
        for piece in export.scan(GPU_METRICS, METRIC_FIELDS, order="time_ns"):
            columns = {
                "time_ns": piece["time_ns"],
                "device": int32(pc.bit_wise_and(pc.shift_right(piece["metric"], METRIC_BITS), GPU_MASK)),
                "metric": metrics.encode(piece["metric"]),
                "value": _in_megahertz(piece["value"], pc.is_in(piece["metric"], clocks)),
            }
            write(pa.table(columns))
            rows += piece.num_rows
    return rows


def _in_megahertz(values: pa.Array, clocks: pa.Array) -> pa.Array:
    """The values with those of clocks in the unit that their names give: nsys 2025.3 writes Hz under ``[MHz]``."""
    import pyarrow.compute as pc

    hertz = pc.and_(clocks, pc.greater(values, HIGHEST_CLOCK_MHZ))
    return pc.if_else(hertz, pc.divide(values, 1e6), values)
