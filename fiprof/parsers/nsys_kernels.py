"""What ran on the GPU and the CUDA calls that launched it: the tables ``api``, ``kernels`` and ``copies``."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiprof.model import schemas, tables
from fiprof.parsers.names import short_name
from fiprof.parsers.nsys_columns import (
    ID_BITS,
    ID_MASK,
    PROCESS,
    Devices,
    Labels,
    dimensions,
    int32,
    numbers,
    pack_dimensions,
    process_ids,
)
from fiprof.parsers.nsys_export import Export, Field, column, read_again
from fiprof.parsers.nsys_ranges import NOWHERE, Scopes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from fiprof.parsers.sqlite_pages import Ints

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
CALL_FIELDS = (
    column("start_ns", "start", required=True),
    column("end_ns", "end", required=True),
    column("thread", "globalTid", required=True),
    column("correlation", "correlationId"),
    column("name", "nameId"),
    column("status", "returnValue"),
)
WORK_FIELDS = (
    column("start_ns", "start", required=True),
    column("end_ns", "end", required=True),
    column("device", "deviceId"),
    column("stream", "streamId"),
    PROCESS,
    column("correlation", "correlationId"),
)
KERNEL_FIELDS = (
    *WORK_FIELDS,
    column("name", "demangledName"),
    column("mangled", "mangledName"),
    Field("grid", ("gridX", "gridY", "gridZ"), pack_dimensions),
    Field("block", ("blockX", "blockY", "blockZ"), pack_dimensions),
    column("registers", "registersPerThread"),
    Field("shared_bytes", ("staticSharedMemory", "dynamicSharedMemory"), operator.add),
    column("graph_node", "graphNodeId"),
)
COPIES = {MEMCPY: (column("kind", "copyKind"),), MEMSET: ()}
UNKNOWN = -1
"""A duration that is not known."""
A_MEMSET = -1
"""The kind of copy that a memset is."""
WHOLE_GRAPH = 0
"""The number of the node that stands for a graph traced whole."""
LARGEST_KEY = (1 << 63) - 1


class Calls:
    """The calls of a trace, to be found by process and correlation id."""

    def __init__(self, scopes: Scopes, keys: Ints, durations_ns: Ints, positions: npt.NDArray[np.int32]) -> None:
        """Of each call its key, duration (or UNKNOWN) and position in ``scopes``; the last one is of LARGEST_KEY."""
        import numpy as np
        import pyarrow as pa

        self._keys, self._durations_ns, self._positions = keys, durations_ns, positions
        if (self._keys[1:] < self._keys[:-1]).any():
            order = np.argsort(self._keys, kind="stable")
            self._keys = self._keys[order]
            self._durations_ns = self._durations_ns[order]
            self._positions = self._positions[order]
        self._phases = Labels(lambda positions: [scopes.all[position].phase for position in positions])
        self._cases = Labels(lambda positions: [scopes.all[position].case for position in positions])
        self._iterations = pa.array([scope.iteration for scope in scopes.all], pa.int32())

    def attribute(self, owners: pa.Array, correlations: pa.Array) -> dict[str, pa.Array]:
        """Columns launch_call_ns, phase, case and iteration of what calls started; null where no call was traced.

        owners: globalPid. correlations: of the calls; CUPTI gives 0 to what has none.
        """
        import numpy as np
        import pyarrow as pa

        keys = call_keys(owners, correlations)
        at = np.searchsorted(self._keys, keys)
        untraced = (self._keys[at] != keys) | (numbers(correlations) == 0)
        durations_ns, positions = self._durations_ns[at], self._positions[at]
        scopes = pa.array(positions, pa.int32(), mask=untraced | (positions == NOWHERE))
        encoded = scopes.dictionary_encode()
        return {
            "launch_call_ns": pa.array(durations_ns, mask=untraced | (durations_ns == UNKNOWN)),
            "phase": self._phases.encode(encoded),
            "case": self._cases.encode(encoded),
            "iteration": self._iterations.take(scopes),
        }


class _Growing:
    """Numbers that come in pieces, in one array that grows where it lies: to join pieces takes twice the memory."""

    def __init__(self, kind: str) -> None:
        import numpy as np

        self._room = np.empty(0, kind)
        self.count = 0

    def add(self, piece: npt.ArrayLike) -> None:
        import numpy as np

        end = self.count + np.size(piece)
        if end > len(self._room):
            self._room.resize(end + end // 8, refcheck=False)
        self._room[self.count : end] = piece
        self.count = end

    def ended(self, last: int) -> npt.NDArray[Any]:
        """All of them, and another one."""
        self.add(last)
        return self._room[: self.count]


def call_keys(owners: pa.Array, correlations: pa.Array) -> Ints:
    """Process (of a globalPid or globalTid) and correlation id in one integer."""
    return ((numbers(owners) >> ID_BITS & ID_MASK) << 32) | (numbers(correlations) & 0xFFFFFFFF)


@read_again
def write_api(export: Export, folder: Path, scopes: Scopes) -> tuple[int, Calls]:
    """Write the table ``api``. Returns its rows and the calls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # cudaLaunchKernel for cudaLaunchKernel_v7000
    names = Labels(lambda ids: [text and re.sub(r"_v\d+$", "", text) for text in export.strings(ids)])
    keys, durations_ns, positions = _Growing("int64"), _Growing("int64"), _Growing("int32")
    with tables.writer(folder, "api") as write:
        for piece in export.scan(RUNTIME, CALL_FIELDS, order="start_ns"):
            threads = piece["thread"]
            columns = {
                "name": names.encode(piece["name"]),
                "start_ns": piece["start_ns"],
                "end_ns": piece["end_ns"],
                "pid": process_ids(threads),
                "tid": pc.bit_wise_and(threads, ID_MASK).cast("int32"),
                "correlation": piece["correlation"],
                "status": int32(piece["status"]),
            }
            write(pa.table(columns))
            keys.add(call_keys(threads, piece["correlation"]))
            durations_ns.add(numbers(pc.subtract(piece["end_ns"], piece["start_ns"]), UNKNOWN))
            positions.add(scopes.at(numbers(threads), numbers(piece["start_ns"])))
    rows = keys.count
    return rows, Calls(scopes, keys.ended(LARGEST_KEY), durations_ns.ended(UNKNOWN), positions.ended(NOWHERE))


@read_again
def write_kernels(export: Export, folder: Path, calls: Calls) -> int:
    """Write the table ``kernels``: kernels, those of graphs too, and graphs traced whole. Returns its rows."""
    import pyarrow as pa

    rows, graphs = 0, _graphs(export, calls)
    with tables.writer(folder, "kernels") as write:
        for piece in _kernels(export, calls):
            if graphs.num_rows:
                due = int(pa.compute.sum(pa.compute.less_equal(graphs["start_ns"], piece["start_ns"][-1])).as_py())
                both = [piece, graphs.slice(0, due).select(piece.column_names)]
                piece, graphs = pa.concat_tables(both).unify_dictionaries().sort_by("start_ns"), graphs.slice(due)
            write(piece)
            rows += piece.num_rows
        write(graphs)
    return rows + int(graphs.num_rows)


def _work(piece: pa.RecordBatch, devices: Devices, calls: Calls) -> dict[str, pa.Array]:
    """The columns that all work of a GPU has."""
    import pyarrow.compute as pc

    pids = process_ids(piece["process"])
    return {
        "start_ns": piece["start_ns"],
        "end_ns": piece["end_ns"],
        "duration_ns": pc.subtract(piece["end_ns"], piece["start_ns"]),
        "device": devices.gpus(pids, piece["device"]),
        "stream": int32(piece["stream"]),
        "pid": pids,
        "correlation": piece["correlation"],
        **calls.attribute(piece["process"], piece["correlation"]),
    }


def _graphs(export: Export, calls: Calls) -> pa.Table:
    """Executions of CUDA graphs that were traced whole, in the order of their start."""
    import pyarrow as pa

    names, devices = Labels(lambda ids: [f"CUDA graph {number}" for number in ids]), Devices(export)
    pieces = [tables.empty("kernels")]
    for piece in export.scan(GRAPH_TRACE, (*WORK_FIELDS, column("graph", "graphId")), order="start_ns"):
        named = names.encode(piece["graph"])
        found = {
            **{field.name: pa.nulls(piece.num_rows, field.type) for field in schemas.schema("kernels")},
            **_work(piece, devices, calls),
            "kernel": named,
            "kernel_full": named,
            "graph_node": pa.repeat(WHOLE_GRAPH, piece.num_rows),
        }
        pieces.append(pa.table(found).cast(schemas.schema("kernels")))
    return pa.concat_tables(pieces).unify_dictionaries()


def _kernels(export: Export, calls: Calls) -> Iterator[pa.Table]:
    """Kernels, nodes of graphs too, in pieces."""
    import pyarrow as pa

    full_names, mangled = Labels(export.strings), Labels(export.strings)
    names = Labels(lambda ids: [text and short_name(text) for text in export.strings(ids)])
    grids, blocks, devices, graph_calls = Labels(dimensions), Labels(dimensions), Devices(export), GraphCalls()
    for piece in export.scan(KERNEL, KERNEL_FIELDS, order="start_ns"):
        work, named = _work(piece, devices, calls), piece["name"].dictionary_encode()
        columns = {
            **work,
            "kernel": names.encode(named),
            "kernel_full": full_names.encode(named),
            "kernel_mangled": mangled.encode(piece["mangled"]),
            "grid": grids.encode(piece["grid"]),
            "block": blocks.encode(piece["block"]),
            "registers": int32(piece["registers"]),
            "shared_bytes": piece["shared_bytes"],
            "graph_node": piece["graph_node"],
            "launch_call_ns": graph_calls.once(piece, work["launch_call_ns"]),
        }
        yield pa.table(columns)


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


@read_again
def write_copies(export: Export, folder: Path, calls: Calls) -> int:
    """Write the table ``copies``. Returns its rows."""
    import pyarrow as pa

    labels = export.labels("ENUM_CUDA_MEMCPY_OPER") | {A_MEMSET: "Memset"}
    kinds = Labels(lambda numbers: [labels.get(number, f"copyKind {number}") for number in numbers])
    devices, pieces = Devices(export), []
    for source, kind in COPIES.items():
        for piece in export.scan(source, (*WORK_FIELDS, column("bytes"), *kind), order="start_ns"):
            copied = kinds.encode(piece["kind"] if kind else pa.repeat(A_MEMSET, piece.num_rows))
            found = pa.table({**_work(piece, devices, calls), "bytes": piece["bytes"], "kind": copied})
            pieces.append(found.drop_columns(["duration_ns", "launch_call_ns"]))
    copies = pa.concat_tables(pieces).unify_dictionaries().sort_by("start_ns") if pieces else tables.empty("copies")
    tables.write(folder, "copies", copies)
    return int(copies.num_rows)
