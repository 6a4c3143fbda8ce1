"""The tables ``copies`` and ``memory``."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from fiprof.model import schemas, tables
from fiprof.parsers.nsys_calls import Calls
from fiprof.parsers.nsys_columns import PROCESS, Devices, Labels, int32, process_id, process_ids
from fiprof.parsers.nsys_export import Export
from fiprof.parsers.nsys_fields import column

MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
SHARED_FIELDS = (
    column("start_ns", "start", required=True),
    column("end_ns", "end", required=True),
    column("bytes"),
    column("device", "deviceId"),
    column("stream", "streamId"),
    PROCESS,
    column("correlation", "correlationId"),
)
A_MEMSET = -1
"""In place of a kind of copy."""
KIND = column("kind", "copyKind")
HOST_MEMORY = (0, 1)
"""CUDA_GPU_MEMORY_USAGE_EVENTS.memKind of pageable and of pinned memory."""
OPERATIONS = {0: "Allocation", 1: "Deallocation"}
"""CUDA_GPU_MEMORY_USAGE_EVENTS.memoryOperationType."""
SIGNS = {0: 1, 1: -1}


def write_copies(export: Export, folder: Path, calls: Calls) -> int:
    """Write the table ``copies``. Returns its rows."""
    import pyarrow as pa

    names = export.labels("ENUM_CUDA_MEMCPY_OPER") | {A_MEMSET: "Memset"}
    kinds = Labels(lambda numbers: [names.get(number, f"copyKind {number}") for number in numbers])
    devices = Devices(export)
    pieces = []
    for source, kind in {MEMCPY: (KIND,), MEMSET: ()}.items():
        for piece in export.scan(source, (*SHARED_FIELDS, *kind), order="start_ns", sort=True):
            pids = process_ids(piece["process"])
            columns = {
                "start_ns": piece["start_ns"],
                "end_ns": piece["end_ns"],
                "bytes": piece["bytes"],
                "kind": kinds.encode(piece["kind"] if kind else pa.repeat(A_MEMSET, piece.num_rows)),
                "device": devices.gpus(pids, piece["device"]),
                "stream": int32(piece["stream"]),
                "pid": pids,
                "correlation": piece["correlation"],
            }
            attributed = calls.attribute(piece["process"], piece["correlation"])
            pieces.append(pa.table(columns | {name: attributed[name] for name in ("phase", "case", "iteration")}))
    copies = pa.concat_tables(pieces).unify_dictionaries().sort_by("start_ns") if pieces else tables.empty("copies")
    tables.write(folder, "copies", copies)
    return int(copies.num_rows)


def write_memory(export: Export, folder: Path) -> int:
    """Write the table ``memory``: device memory only, host memory is left out. Returns its rows."""
    import pyarrow as pa

    devices = Devices(export)
    totals: dict[tuple[int, int | None], int] = defaultdict(int)
    events = []
    export.require(MEMORY, "start", "bytes", "globalPid")
    for time_ns, operation, kind, size, ordinal, process, address in sorted(
        export.rows(MEMORY, "start", "memoryOperationType", "memKind", "bytes", "deviceId", "globalPid", "address"),
        key=lambda row: row[0] or 0,
    ):
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
