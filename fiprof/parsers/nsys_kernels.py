"""The table ``kernels``."""

from __future__ import annotations

from pathlib import Path

from fiprof.model import tables
from fiprof.parsers.names import short_name
from fiprof.parsers.nsys_calls import Calls
from fiprof.parsers.nsys_columns import Devices, Labels, dimensions, int32, packed_dimensions, process_ids
from fiprof.parsers.nsys_export import Export, Field, column, in_order

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
FIELDS = (
    column("start_ns", "start", required=True),
    column("end_ns", "end", required=True),
    column("device", "deviceId"),
    column("stream", "streamId"),
    column("process", "globalPid", required=True),
    column("name", "demangledName"),
    column("mangled", "mangledName"),
    Field("grid", packed_dimensions("grid"), ("gridX", "gridY", "gridZ")),
    Field("block", packed_dimensions("block"), ("blockX", "blockY", "blockZ")),
    column("registers", "registersPerThread"),
    Field(
        "shared_bytes", '"staticSharedMemory" + "dynamicSharedMemory"', ("staticSharedMemory", "dynamicSharedMemory")
    ),
    column("graph_node", "graphNodeId"),
    column("correlation", "correlationId"),
)


def write_kernels(export: Export, folder: Path, calls: Calls) -> int:
    """Write the table ``kernels``. Returns its rows."""
    return in_order(lambda sort: _write_kernels(export, folder, calls, sort))


def _write_kernels(export: Export, folder: Path, calls: Calls, sort: bool) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    full_names, mangled = Labels(export.strings), Labels(export.strings)
    names = Labels(lambda ids: [text and short_name(text) for text in export.strings(ids)])
    grids, blocks = Labels(dimensions), Labels(dimensions)
    devices = Devices(export)
    rows = 0
    with tables.writer(folder, "kernels") as write:
        for piece in export.scan(KERNEL, FIELDS, order="start_ns", sort=sort):
            pids = process_ids(piece["process"])
            columns = {
                "start_ns": piece["start_ns"],
                "end_ns": piece["end_ns"],
                "duration_ns": pc.subtract(piece["end_ns"], piece["start_ns"]),
                "device": devices.gpus(pids, piece["device"]),
                "stream": int32(piece["stream"]),
                "pid": pids,
                "kernel": names.encode(piece["name"]),
                "kernel_full": full_names.encode(piece["name"]),
                "kernel_mangled": mangled.encode(piece["mangled"]),
                "grid": grids.encode(piece["grid"]),
                "block": blocks.encode(piece["block"]),
                "registers": int32(piece["registers"]),
                "shared_bytes": piece["shared_bytes"],
                "graph_node": piece["graph_node"],
                "correlation": piece["correlation"],
            }
            write(pa.table(columns | calls.attribute(piece["process"], piece["correlation"])))
            rows += piece.num_rows
    return rows
