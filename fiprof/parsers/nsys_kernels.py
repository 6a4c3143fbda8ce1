"""The table ``kernels``, and its summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fiprof.model import tables
from fiprof.parsers.names import short_name
from fiprof.parsers.nsys_calls import Calls
from fiprof.parsers.nsys_columns import Devices, Labels, dimensions, int32, packed_dimensions, process_ids
from fiprof.parsers.nsys_export import Export, Field, column, in_order

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
FIELDS = (
    column("start_ns", "start"),
    column("end_ns", "end"),
    column("device", "deviceId"),
    column("stream", "streamId"),
    column("process", "globalPid"),
    column("name", "demangledName"),
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

    full_names = Labels(export.strings)
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


def summarize_kernels(kernels: pa.Table) -> pa.Table:
    """A row for each kernel and case, by total time, longest first.

    kernels: the table ``kernels``, at least its columns case, kernel and duration_ns.
    Returns case, kernel, count, total_ns, median_ns (of two middle ones their mean), min_ns and max_ns. Kernels that
    never ended are left out.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    ended = kernels.select(["case", "kernel", "duration_ns"]).unify_dictionaries().combine_chunks()
    if ended["duration_ns"].null_count:
        ended = ended.filter(pc.is_valid(ended["duration_ns"]))
    cases, case_codes = _coded(ended["case"])
    names, name_codes = _coded(ended["kernel"])
    # No more bits than the groups need: NumPy sorts 16 by radix, ten times as fast as 64.
    groups = (case_codes * len(names) + name_codes).astype(np.min_scalar_type(len(cases) * len(names)))
    order = np.argsort(groups, kind="stable")
    groups = groups[order]
    begins = np.flatnonzero(np.diff(groups, prepend=groups[:1] + 1))
    durations_ns = np.split(ended["duration_ns"].to_numpy()[order], begins[1:])
    rows = []
    for group, of_group in zip(groups[begins].tolist(), durations_ns, strict=False):
        rows.append(
            {
                "case": cases[group // len(names)],
                "kernel": names[group % len(names)],
                "count": len(of_group),
                "total_ns": int(of_group.sum()),
                "median_ns": float(np.median(of_group)),
                "min_ns": int(of_group.min()),
                "max_ns": int(of_group.max()),
            }
        )
    kinds = {"case": "string", "kernel": "string", "median_ns": "float64"}
    columns = ("case", "kernel", "count", "total_ns", "median_ns", "min_ns", "max_ns")
    typed = pa.schema([(name, kinds.get(name, "int64")) for name in columns])
    return pa.Table.from_pylist(rows, typed).sort_by([("total_ns", "descending")])


def _coded(column: pa.ChunkedArray) -> tuple[list[str | None], npt.NDArray[np.int64]]:
    """The distinct values of a dictionary column, null last, and the position of each row's among them."""
    import pyarrow.compute as pc

    array = column.combine_chunks()
    values = array.dictionary.to_pylist()
    return [*values, None], pc.fill_null(array.indices, len(values)).cast("int64").to_numpy()
