"""The table ``kernels``: kernels, those of graphs too, and graphs that were traced whole."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.model import schemas, tables
from fiprof.parsers.names import short_name
from fiprof.parsers.nsys_calls import Calls, call_keys
from fiprof.parsers.nsys_columns import PROCESS, Devices, Labels, dimensions, int32, pack_dimensions, process_ids
from fiprof.parsers.nsys_export import Export
from fiprof.parsers.nsys_fields import Field, column, in_order

if TYPE_CHECKING:
    import pyarrow as pa

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
WHEN_AND_WHERE = (
    column("start_ns", "start", required=True),
    column("end_ns", "end", required=True),
    column("device", "deviceId"),
    column("stream", "streamId"),
    PROCESS,
)
FIELDS = (
    *WHEN_AND_WHERE,
    column("name", "demangledName"),
    column("mangled", "mangledName"),
    Field("grid", ("gridX", "gridY", "gridZ"), pack_dimensions),
    Field("block", ("blockX", "blockY", "blockZ"), pack_dimensions),
    column("registers", "registersPerThread"),
    Field("shared_bytes", ("staticSharedMemory", "dynamicSharedMemory"), operator.add),
    column("graph_node", "graphNodeId"),
    column("correlation", "correlationId"),
)


GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GRAPH_FIELDS = (
    *WHEN_AND_WHERE,
    column("graph", "graphId"),
    column("correlation", "correlationId"),
)
WHOLE_GRAPH = 0
"""In place of a node's number."""


def write_kernels(export: Export, folder: Path, calls: Calls) -> int:
    """Write the table ``kernels``: with CUDA graphs that were traced whole. Returns its rows."""
    return in_order(lambda sort: _write_kernels(export, folder, calls, sort))


def _write_kernels(export: Export, folder: Path, calls: Calls, sort: bool) -> int:
    import pyarrow as pa

    rows, graphs = 0, _graphs(export, calls)
    with tables.writer(folder, "kernels") as write:
        for piece in _kernels(export, calls, sort):
            if graphs.num_rows:
                due = int(pa.compute.sum(pa.compute.less_equal(graphs["start_ns"], piece["start_ns"][-1])).as_py())
                both = [piece, graphs.slice(0, due).select(piece.column_names)]
                piece, graphs = pa.concat_tables(both).unify_dictionaries().sort_by("start_ns"), graphs.slice(due)
            write(piece)
            rows += piece.num_rows
        write(graphs)
    return rows + int(graphs.num_rows)


def _graphs(export: Export, calls: Calls) -> pa.Table:
    """Executions of CUDA graphs that were traced whole, in the order of their start."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = Labels(lambda ids: [f"CUDA graph {number}" for number in ids])
    devices = Devices(export)
    pieces = [tables.empty("kernels")]
    for piece in export.scan(GRAPH_TRACE, GRAPH_FIELDS, order="start_ns", sort=True):
        pids = process_ids(piece["process"])
        found = {
            "start_ns": piece["start_ns"],
            "end_ns": piece["end_ns"],
            "duration_ns": pc.subtract(piece["end_ns"], piece["start_ns"]),
            "device": devices.gpus(pids, piece["device"]),
            "stream": int32(piece["stream"]),
            "pid": pids,
            "kernel": names.encode(piece["graph"]),
            "kernel_full": names.encode(piece["graph"]),
            "graph_node": pa.array([WHOLE_GRAPH] * piece.num_rows, pa.int64()),
            "correlation": piece["correlation"],
            **calls.attribute(piece["process"], piece["correlation"]),
        }
        nothing = {field.name: pa.nulls(piece.num_rows, field.type) for field in schemas.schema("kernels")}
        pieces.append(pa.table(nothing | found).cast(schemas.schema("kernels")))
    return pa.concat_tables(pieces).unify_dictionaries()


def _kernels(export: Export, calls: Calls, sort: bool) -> Iterator[pa.Table]:
    """Kernels, nodes of graphs too, in pieces."""
    import pyarrow as pa
    import pyarrow.compute as pc

    full_names, mangled = Labels(export.strings), Labels(export.strings)
    names = Labels(lambda ids: [text and short_name(text) for text in export.strings(ids)])
    grids, blocks = Labels(dimensions), Labels(dimensions)
    devices = Devices(export)
    graph_calls = GraphCalls()
    for piece in export.scan(KERNEL, FIELDS, order="start_ns", sort=sort):
        pids = process_ids(piece["process"])
        attributed = calls.attribute(piece["process"], piece["correlation"])
        named = piece["name"].dictionary_encode()
        yield pa.table(
            {
                "start_ns": piece["start_ns"],
                "end_ns": piece["end_ns"],
                "duration_ns": pc.subtract(piece["end_ns"], piece["start_ns"]),
                "device": devices.gpus(pids, piece["device"]),
                "stream": int32(piece["stream"]),
                "pid": pids,
                "kernel": names.encode(named),
                "kernel_full": full_names.encode(named),
                "kernel_mangled": mangled.encode(piece["mangled"]),
                "grid": grids.encode(piece["grid"]),
                "block": blocks.encode(piece["block"]),
                "registers": int32(piece["registers"]),
                "shared_bytes": piece["shared_bytes"],
                "graph_node": piece["graph_node"],
                "correlation": piece["correlation"],
                **attributed,
                "launch_call_ns": graph_calls.once(piece, attributed["launch_call_ns"]),
            }
        )


class GraphCalls:
    """The calls that launched graphs: each counts for the first of its nodes alone."""

    def __init__(self) -> None:
        import numpy as np

        self._before = np.empty(0, np.int64)

    def once(self, piece: pa.RecordBatch, launch_call_ns: pa.Array) -> pa.Array:
        """The durations, null for the further nodes of a graph's execution. piece: follows on the one before."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if piece["graph_node"].null_count == piece.num_rows:
            return launch_call_ns
        nodes = np.flatnonzero(piece["graph_node"].is_valid().to_numpy(zero_copy_only=False))
        keys = call_keys(piece["process"], piece["correlation"])[nodes]
        calls, first = np.unique(keys, return_index=True)
        further = np.ones(len(nodes), bool)
        further[first] = np.isin(calls, self._before)
        self._before = calls
        mask = np.zeros(piece.num_rows, bool)
        mask[nodes[further]] = True
        return pc.if_else(pa.array(mask), pa.nulls(piece.num_rows, pa.int64()), launch_call_ns)
