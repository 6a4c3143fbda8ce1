"""An nsys SQLite export -> the tables kernels, ranges, api, copies, memory, gpu_metrics, host_samples, processes and
diagnostics; and the tables of several traces -> those of one run.
"""

import contextlib
import functools
import html
import itertools
import json
import operator
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fiprof.errors import FiprofError
from fiprof.files import scratch
from fiprof.model import tables
from fiprof.model.spans import NOTHING, by_thread, within
from fiprof.parsers.names import FIPROF_DOMAIN, case_of, printable, short_name
from fiprof.parsers.nsys_export import Export, Field, column, read_again
from fiprof.parsers.sqlite_pages import Ints

NEWEST_SCHEMA = (3, 25)  # major and minor version; from 3.0 (nsys 2022.4) to this one (2025.5) the parser is tested
RUNTIME, GPU_METRICS, NVTX = "CUPTI_ACTIVITY_KIND_RUNTIME", "GPU_METRICS", "NVTX_EVENTS"
KERNEL, GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GRAPH_NODES = "CUDA_GRAPH_NODE_EVENTS"
MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
CONTEXTS, STREAMS = "TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_STREAM"
WITHOUT_RANGES = "kernels have no phase, case or iteration"
CONSEQUENCES = {
    KERNEL: "the trace holds no kernels",
    RUNTIME: "kernels have no launch call, phase, case or iteration",
    NVTX: f"the trace holds no ranges, {WITHOUT_RANGES}",
    MEMORY: "the trace holds no allocations (nsys --cuda-memory-usage=true)",
    GPU_METRICS: "the trace holds no samples of GPU metrics (nsys --gpu-metrics-devices=all)",
    "DIAGNOSTIC_EVENT": "what nsys had to say is unknown",
}
"""What follows from the absence of each table that a good trace has."""


@dataclass(frozen=True)
class NsysSummary:
    """What :func:`parse` found."""

    schema_version: str  # of the export, e.g. 3.20.3; empty where it does not say
    rows: dict[str, int]  # rows of each table that was written
    missing: tuple[str, ...]  # tables and columns that matter and that the export does not have, a sentence each
    warnings: tuple[str, ...]  # what makes the tables doubtful or short, a sentence each
    session_start_ns: int | None  # when the session began, UTC since 1970; None where the export does not say
    nvtx_incompatible: bool
    """nsys said that it cannot read this program's NVTX ranges (nsys up to 2024.2 with nvtx 0.2.13 or later)."""


def parse(sqlite: Path, out: Path, *, declared: Sequence[str] = ()) -> NsysSummary:
    """Write the tables into the folder ``out``, all of them or none; empty where the export has nothing.

    declared: NVTX ranges that are cases.
    """
    with Export(sqlite) as export:
        out.mkdir(parents=True, exist_ok=True)
        with scratch(out) as folder:
            try:
                summary = _write_tables(export, folder, declared)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:  # numbers that no trace has
                raise export.damaged(error) from error
            for name in summary.rows:
                os.replace(tables.table_path(folder, name), tables.table_path(out, name))
    return summary


def _write_tables(export: Export, folder: Path, declared: Sequence[str]) -> NsysSummary:
    ranges = read_ranges(export)
    named = [{**each._asdict(), "pid": process_id(each.thread), "tid": each.thread & ID_MASK} for each in ranges]
    tables.write(folder, "ranges", pa.Table.from_pylist(named, tables.schema("ranges")))

    session_start_ns = next((start for (start,) in export.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")), None)
    labels = dict(export.rows("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", "id", "label")) | {1: "Information"}
    messages = export.rows("DIAGNOSTIC_EVENT", "timestamp", "severity", "text")
    diagnostics = [
        {"time_ns": time_ns, "severity": labels.get(severity, f"severity {severity}"), "text": text or ""}
        for time_ns, severity, text in sorted(messages, key=lambda event: event[0] or 0)
    ]
    calls = _write_api(export, folder, Scopes(ranges, declared))
    _write_kernels(export, folder, calls)
    _write_copies(export, folder, calls)
    _write_memory(export, folder)
    _write_gpu_metrics(export, folder)
    _write_host_samples(export, folder)
    _write_processes(export, folder, session_start_ns)
    diagnostics += [{"severity": tables.LEFT_OUT, "text": text} for text in export.left_out]
    tables.write(folder, "diagnostics", pa.Table.from_pylist(diagnostics, tables.schema("diagnostics")))

    missing = [f"no {table}: {consequence}" for table, consequence in CONSEQUENCES.items() if not export.has(table)]
    if ranges and not declared and not any(range_.domain == FIPROF_DOMAIN for range_ in ranges):
        missing.append(f"no NVTX domain {FIPROF_DOMAIN}: {WITHOUT_RANGES}")
    for name in declared:
        kinds = {range_.kind for range_ in ranges if case_of(range_.domain, range_.name, [name])}
        if kinds and "push_pop" not in kinds:
            of_no_thread = "it belongs to no thread and is no case"
            missing.append(f"the range {name} is of start and end, not of push and pop: {of_no_thread}")

    incompatible = any(tables.NVTX_INCOMPATIBLE in event["text"] for event in diagnostics)
    schema, warnings = export.about.get("EXPORT_SCHEMA_VERSION", ""), []
    version, newest = re.match(r"(\d{1,9})\.(\d{1,9})", schema), ".".join(map(str, NEWEST_SCHEMA))
    if not version:
        warnings.append("the export does not say which schema it has: columns may mean something else")
    elif int(version[1]) != NEWEST_SCHEMA[0]:
        warnings.append(f"schema {schema} is not of the kind that this fiprof was tested with (3.0 to {newest})")
    elif (int(version[1]), int(version[2])) > NEWEST_SCHEMA:
        warnings.append(f"schema {schema} is newer than any this fiprof was tested with ({newest})")
    if incompatible:
        remedy = "use nsys 2024.4 or later, or pip install nvtx==0.2.11"
        warnings.append(f"nsys could not read the program's NVTX ranges: {remedy}")
    if export.has(GRAPH_TRACE):
        remedy = "use nsys --cuda-graph-trace=node"
        warnings.append(f"CUDA graphs were traced whole ({GRAPH_TRACE}), without their kernels: {remedy}")
    warnings += export.left_out
    return NsysSummary(
        schema_version=schema,
        rows={path.stem: tables.Reader(folder, path.stem).rows for path in folder.glob("*.parquet")},
        missing=(*missing, *export.absent_columns, *export.left_out),
        warnings=tuple(warnings),
        session_start_ns=session_start_ns,
        nvtx_incompatible=incompatible,
    )


# Columns of nsys as columns of ours

ID_BITS = 24
ID_MASK = (1 << ID_BITS) - 1


def process_id(serialized: int) -> int:
    """The process id in a globalPid or globalTid."""
    return serialized >> ID_BITS & ID_MASK


def _process_ids(serialized: pa.Array) -> pa.Array:
    return pc.bit_wise_and(pc.shift_right(serialized, ID_BITS), ID_MASK).cast("int32")


def _int32(values: pa.Array) -> pa.Array:
    """Integers that ought to fit; the low 32 bits of those that do not."""
    return pc.cast(values, "int32", safe=False)


def _numbers(values: pa.Array, missing: int = 0) -> Ints:
    """Integers as a NumPy array, ``missing`` in place of null."""
    filled = values.fill_null(missing) if values.null_count else values
    integers: Ints = filled.to_numpy(zero_copy_only=False)
    return integers


class Texts:
    """Makes text columns of columns of integers: Arrow dictionaries, which grow from piece to piece of a table."""

    def __init__(self, texts: Callable[[Sequence[int]], Sequence[str | None]]) -> None:
        """texts: gives the text of each integer in a list, None for an integer without one."""
        self._texts = texts
        self._codes: dict[int, int | None] = {}
        self._by_text: dict[str, int] = {}

    def encode(self, values: pa.Array) -> pa.DictionaryArray:
        """The texts of integers, dictionary-encoded or not; null for a null and for an integer without a text."""
        encoded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        new = [value for value in distinct if value not in self._codes]
        for value, text in zip(new, self._texts(new), strict=True):
            self._codes[value] = None if text is None else self._by_text.setdefault(text, len(self._by_text))
        codes = pa.array([self._codes[value] for value in distinct], pa.int32())
        return pa.DictionaryArray.from_arrays(codes.take(encoded.indices), pa.array(list(self._by_text), pa.string()))


class Devices:
    """Which GPU of the trace a CUDA device ordinal means: each process counts its ordinals for itself."""

    def __init__(self, export: Export) -> None:
        rows = export.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
        self.gpu_of = {(pid, ordinal): gpu for pid, ordinal, gpu in rows if None not in (pid, ordinal, gpu)}
        """Process id and ordinal -> GPU. A GPU that the trace does not list here has the ordinal's number."""

    def gpus(self, processes: pa.Array, ordinals: pa.Array) -> pa.Array:
        """The GPU (int32) of each process id and ordinal."""
        pids, ordinal_of = _numbers(processes), _numbers(ordinals)
        gpus = ordinal_of.copy()
        for (pid, ordinal), gpu in self.gpu_of.items():
            if gpu != ordinal:
                gpus[(pids == pid) & (ordinal_of == ordinal)] = gpu
        return _int32(pa.array(gpus, mask=ordinals.is_null().to_numpy(zero_copy_only=False)))


# NVTX ranges, how they nest, and what those of the domain ``fiprof`` and declared ones say about a moment

MEASURE = "measure"
PHASES = ("setup", "warmup", MEASURE)
MARK, PUSH_POP, START_END, DOMAIN = 34, 59, 60, 75  # values of NVTX_EVENTS.eventType
FOREVER = (1 << 63) - 1


class RangeRow(NamedTuple):
    domain: str
    name: str
    start_ns: int
    end_ns: int | None  # None where it never ended
    thread: int  # globalTid: process and thread
    kind: str  # push_pop, start_end, or mark: a moment
    payload: str | None = None  # JSON of the values that the program gave with it, where the export has them
    parent: int | None = None
    """Position, among all ranges by start, of the innermost push/pop range around it (same thread, same domain)."""
    depth: int = 0  # how many such ranges are around it

    @property
    def last_ns(self) -> int:
        return FOREVER if self.end_ns is None else self.end_ns


def read_ranges(export: Export) -> list[RangeRow]:
    """Every NVTX range and mark of the program, by start, nested; without those of nsys itself (HOST_DOMAINS)."""
    domains = read_domains(export)
    where: dict[str, Sequence[int]] = {"eventType": (PUSH_POP, START_END, MARK)}
    if host := {domain for (_, domain), name in domains.items() if name in HOST_DOMAINS}:
        program = {domain for (_, domain), name in domains.items() if name not in HOST_DOMAINS}
        # Of nsys's own there are millions: they are not read at all.
        where["domainId"] = tuple(program | {domain for (domain,) in export.distinct(NVTX, "domainId")} - host)
    kinds = {PUSH_POP: "push_pop", START_END: "start_end", MARK: "mark"}
    ranges = []
    for kind, start_ns, end_ns, thread, domain, name, payload in _events(export, where):
        domain_name = domains.get((process_id(thread), domain), "")
        if domain_name not in HOST_DOMAINS:
            end_ns = start_ns if kind == MARK else end_ns
            ranges.append(RangeRow(domain_name, name, start_ns, end_ns, thread, kinds[kind], payload))
    return nested(ranges)


def read_domains(export: Export) -> dict[tuple[int, int], str]:
    """Process and number of each NVTX domain -> its name."""
    rows = _events(export, {"eventType": (DOMAIN,)})
    return {(process_id(thread), number): name for _, _, _, thread, number, name, _ in rows if number is not None}


def _events(export: Export, where: dict[str, Sequence[int]]) -> Iterator[tuple[Any, ...]]:
    """Type, start, end, globalTid, domain's number, text and payload of some rows of NVTX."""
    columns = ("eventType", "start", "end", "globalTid", "domainId", "text", "textId", "jsonText")
    events = export.rows(NVTX, *columns, where=where)
    ids = sorted({event[6] for event in events if event[5] is None and event[6] is not None})
    registered = dict(zip(ids, export.strings(ids), strict=True))
    for *event, text, text_id, payload in events:
        if event[1] is not None and event[3] is not None:
            yield (*event, (registered.get(text_id) if text is None else text) or "", payload)


def nested(ranges: list[RangeRow]) -> list[RangeRow]:
    """The ranges by start, outer before inner, each with its depth and parent."""
    ranges.sort(key=lambda range_: (range_.start_ns, -range_.last_ns, range_.kind))
    open_ranges: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)  # thread, domain -> end and position
    with_parents = []
    for index, range_ in enumerate(ranges):
        stack = open_ranges[range_.thread, range_.domain]
        while stack and stack[-1][0] <= range_.start_ns and stack[-1][0] < range_.last_ns:
            stack.pop()
        enclosing = [position for last_ns, position in stack if last_ns >= range_.last_ns]
        with_parents.append(range_._replace(parent=enclosing[-1] if enclosing else None, depth=len(enclosing)))
        if range_.kind == "push_pop":
            stack.append((range_.last_ns, index))
    return with_parents


class Scope(NamedTuple):
    """The phase, case and iteration that a moment on a thread belongs to."""

    phase: str  # setup, warmup or measure
    case: str | None = None
    iteration: int | None = None


class Scopes:
    """The scopes of a trace, and which one each moment on a thread is in."""

    def __init__(self, ranges: Sequence[RangeRow], declared: Sequence[str] = ()) -> None:
        """ranges: all of the trace, nested and in order, as :func:`read_ranges` gives them.

        declared: names of further ranges that are cases; each such range is an iteration, counted in its process.
        """
        positions: dict[Scope, int] = {}
        of_range: dict[int | None, Scope | None] = {}
        next_iteration: dict[tuple[int, str], int] = defaultdict(int)  # process and declared range
        stretches: list[tuple[int, int, int, int]] = []  # thread, start, end and position of the scope
        for index, range_ in enumerate(ranges):
            case = case_of(range_.domain, range_.name, declared)
            if range_.kind != "push_pop" or not (case or range_.domain == FIPROF_DOMAIN):
                continue
            scope, iteration = of_range.get(range_.parent), re.fullmatch(r"iter (\d{1,9})", range_.name)
            if case:
                key = process_id(range_.thread), case
                scope = Scope(MEASURE, case, next_iteration[key])
                next_iteration[key] += 1
            elif range_.parent is None:
                scope = Scope(range_.name) if range_.name in PHASES else None
            elif scope and scope.case is None:
                scope = Scope(scope.phase, range_.name)
            elif scope and scope.phase == MEASURE and scope.iteration is None and iteration:
                scope = scope._replace(iteration=int(iteration[1]))
            of_range[index] = scope
            position = NOTHING if scope is None else positions.setdefault(scope, len(positions))
            stretches.append((range_.thread, range_.start_ns, range_.last_ns, position))
        self._threads = by_thread(*np.array(stretches, np.int64).reshape(-1, 4).T)
        self.all = list(positions)  # every scope once; calls refer to it by its position here

    def at(self, threads: Ints, times_ns: Ints) -> npt.NDArray[np.int32]:
        """The position in ``all`` of the scope of each moment on a thread (globalTid), NOTHING outside all of them."""
        scopes = np.full(len(times_ns), NOTHING, np.int32)
        for thread, stretches in self._threads.items():
            here = threads == thread
            scopes[here] = stretches.at(times_ns[here])
        return scopes


# CUDA calls, and what they launched

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
    column("process", "globalPid", required=True, otherwise=0),
    column("correlation", "correlationId"),
)


def _pack_dimensions(x: Ints, y: Ints, z: Ints) -> Ints:
    """The dimensions of a grid or block in one integer: CUDA allows 2^31 - 1, 2^16 - 1 and 2^16 - 1."""
    return x | y << 31 | z << 47


def _dimensions(packed: Sequence[int]) -> list[str]:
    return [f"{value & 0x7FFFFFFF}x{value >> 31 & 0xFFFF}x{value >> 47 & 0xFFFF}" for value in packed]


KERNEL_FIELDS = (
    *WORK_FIELDS,
    column("name", "demangledName"),
    column("mangled", "mangledName"),
    Field("grid", ("gridX", "gridY", "gridZ"), _pack_dimensions),
    Field("block", ("blockX", "blockY", "blockZ"), _pack_dimensions),
    column("registers", "registersPerThread"),
    Field("shared_bytes", ("staticSharedMemory", "dynamicSharedMemory"), operator.add),
    column("graph_node", "graphNodeId"),
)
UNKNOWN = -1  # a duration that is not known
LARGEST_KEY = (1 << 63) - 1
GROWTH = 1 << 20  # rows by which arrays of calls grow


def _call_keys(owners: pa.Array, correlations: pa.Array) -> Ints:
    """Process (of a globalPid or globalTid) and correlation id in one integer."""
    return ((_numbers(owners) >> ID_BITS & ID_MASK) << 32) | (_numbers(correlations) & 0xFFFFFFFF)


class CallIndex:
    """The calls of a trace, to be found by process and correlation id."""

    def __init__(self, scopes: Scopes, keys: Ints, durations_ns: Ints, positions: npt.NDArray[np.int32]) -> None:
        """Of each call its key, duration (or UNKNOWN) and position in ``scopes``; the last one is of LARGEST_KEY."""
        self._keys, self._durations_ns, self._positions = keys, durations_ns, positions
        if (self._keys[1:] < self._keys[:-1]).any():
            order = np.argsort(self._keys, kind="stable")
            self._keys = self._keys[order]
            self._durations_ns = self._durations_ns[order]
            self._positions = self._positions[order]
        self._phases = Texts(lambda positions: [scopes.all[position].phase for position in positions])
        self._cases = Texts(lambda positions: [scopes.all[position].case for position in positions])
        self._iterations = pa.array([scope.iteration for scope in scopes.all], pa.int32())

    def columns(self, piece: pa.RecordBatch, devices: Devices) -> dict[str, pa.Array]:
        """The columns that all work of a GPU has; those of its call are null where that was not traced."""
        pids, keys = _process_ids(piece["process"]), _call_keys(piece["process"], piece["correlation"])
        at = np.searchsorted(self._keys, keys)
        # CUPTI gives the correlation 0 to what no call started.
        untraced = (self._keys[at] != keys) | (_numbers(piece["correlation"]) == 0)
        durations_ns, positions = self._durations_ns[at], self._positions[at]
        scopes = pa.array(positions, pa.int32(), mask=untraced | (positions == NOTHING))
        encoded = scopes.dictionary_encode()
        return {
            "start_ns": piece["start_ns"],
            "end_ns": piece["end_ns"],
            "duration_ns": pc.subtract(piece["end_ns"], piece["start_ns"]),
            "device": devices.gpus(pids, piece["device"]),
            "stream": _int32(piece["stream"]),
            "pid": pids,
            "correlation": piece["correlation"],
            "launch_call_ns": pa.array(durations_ns, mask=untraced | (durations_ns == UNKNOWN)),
            "phase": self._phases.encode(encoded),
            "case": self._cases.encode(encoded),
            "iteration": self._iterations.take(scopes),
        }


@read_again
def _write_api(export: Export, folder: Path, scopes: Scopes) -> CallIndex:
    # cudaLaunchKernel for cudaLaunchKernel_v7000
    names = Texts(lambda ids: [text and re.sub(r"_v\d+$", "", text) for text in export.strings(ids)])
    keys, durations_ns = np.empty(GROWTH, np.int64), np.empty(GROWTH, np.int64)
    positions = np.empty(GROWTH, np.int32)
    rows = 0
    with tables.writer(folder, "api") as write:
        for piece in export.scan(RUNTIME, CALL_FIELDS, order="start_ns"):
            threads = piece["thread"]
            columns = {
                "name": names.encode(piece["name"]),
                "start_ns": piece["start_ns"],
                "end_ns": piece["end_ns"],
                "pid": _process_ids(threads),
                "tid": pc.bit_wise_and(threads, ID_MASK).cast("int32"),
                "correlation": piece["correlation"],
                "status": _int32(piece["status"]),
            }
            write(pa.table(columns))
            of_piece = slice(rows, rows := rows + piece.num_rows)
            if rows >= len(keys):
                # For 50 million calls these take 1 GB; joining pieces at the end would take twice that.
                for each in (keys, durations_ns, positions):
                    each.resize(rows + GROWTH, refcheck=False)
            keys[of_piece] = _call_keys(threads, piece["correlation"])
            durations_ns[of_piece] = _numbers(pc.subtract(piece["end_ns"], piece["start_ns"]), UNKNOWN)
            positions[of_piece] = scopes.at(_numbers(threads), _numbers(piece["start_ns"]))
    keys[rows], durations_ns[rows], positions[rows] = LARGEST_KEY, UNKNOWN, NOTHING
    return CallIndex(scopes, keys[: rows + 1], durations_ns[: rows + 1], positions[: rows + 1])


@read_again
def _write_kernels(export: Export, folder: Path, calls: CallIndex) -> None:
    """Write the table ``kernels``: kernels, those of graphs too, and graphs traced whole."""
    # The graphs that were traced whole, by start. Their node is 0.
    graph_names, devices = Texts(lambda ids: [f"CUDA graph {number}" for number in ids]), Devices(export)
    graph_fields, schema = (*WORK_FIELDS, column("graph", "graphId")), tables.schema("kernels")
    pieces = [schema.empty_table()]
    for piece in export.scan(GRAPH_TRACE, graph_fields, order="start_ns"):
        named = graph_names.encode(piece["graph"])
        graph_columns = {
            **{field.name: pa.nulls(piece.num_rows, field.type) for field in schema},
            **calls.columns(piece, devices),
            "kernel": named,
            "kernel_full": named,
            "graph_node": pa.repeat(0, piece.num_rows),
        }
        pieces.append(pa.table(graph_columns).cast(schema))
    graphs = pa.concat_tables(pieces).unify_dictionaries()

    full_names, mangled = Texts(export.strings), Texts(export.strings)
    names = Texts(lambda ids: [short_name(text or "") for text in export.strings(ids)])
    grids, blocks, before = Texts(_dimensions), Texts(_dimensions), np.empty(0, np.int64)
    captures = _captures(export)
    with tables.writer(folder, "kernels") as write:
        for piece in export.scan(KERNEL, KERNEL_FIELDS, order="start_ns"):
            work, named = calls.columns(piece, devices), piece["name"].fill_null(UNKNOWN).dictionary_encode()
            if piece["graph_node"].null_count < piece.num_rows:
                # Only the first node of a graph has the call that launched it, also where others are in the next piece.
                nodes = np.flatnonzero(piece["graph_node"].is_valid().to_numpy(zero_copy_only=False))
                call_keys = _call_keys(piece["process"], piece["correlation"])[nodes]
                launching, first = np.unique(call_keys, return_index=True)
                further = np.ones(len(nodes), bool)
                further[first] = np.isin(launching, before)
                mask, before = np.zeros(piece.num_rows, bool), launching
                mask[nodes[further]] = True
                work["launch_call_ns"] = pc.if_else(pa.array(mask), pa.scalar(None, pa.int64()), work["launch_call_ns"])
            columns = {
                **work,
                "kernel": names.encode(named),
                "kernel_full": full_names.encode(named),
                "kernel_mangled": mangled.encode(piece["mangled"]),
                "grid": grids.encode(piece["grid"]),
                "block": blocks.encode(piece["block"]),
                "registers": _int32(piece["registers"]),
                "shared_bytes": piece["shared_bytes"],
                "graph_node": piece["graph_node"],
                "captured_ns": pa.nulls(piece.num_rows, pa.int64()),
                "captured_tid": pa.nulls(piece.num_rows, pa.int32()),
            }
            if captures and piece["graph_node"].null_count < piece.num_rows:
                keys = zip(map(process_id, piece["process"].to_pylist()), piece["graph_node"].to_pylist(), strict=True)
                captured = [captures.get(key, (None, None)) for key in keys]
                columns["captured_ns"] = pa.array([at for at, _ in captured], pa.int64())
                columns["captured_tid"] = pa.array([tid for _, tid in captured], pa.int32())
            rows = pa.table(columns)
            # The graphs that started by the end of this piece go among its kernels.
            if graphs.num_rows:
                due = int(pc.sum(pc.less_equal(graphs["start_ns"], rows["start_ns"][-1])).as_py())
                both = [rows, graphs.slice(0, due).select(rows.column_names)]
                rows, graphs = pa.concat_tables(both).unify_dictionaries().sort_by("start_ns"), graphs.slice(due)
            write(rows)
        write(graphs)


def _captures(export: Export) -> dict[tuple[int, int | None], tuple[int, int]]:
    """(Process, number of a node of a CUDA graph) -> when and on which thread it was captured.

    A captured node has a row without an original; each of its instances has one that names it as the original.
    """
    rows = export.rows(GRAPH_NODES, "start", "globalTid", "graphNodeId", "originalGraphNodeId")
    captured = {
        (process_id(thread), node): (start, thread & ID_MASK)
        for start, thread, node, original in rows
        if not original and None not in (start, thread)
    }
    instances = {
        (process_id(thread), node): (process_id(thread), original)
        for _, thread, node, original in rows
        if original and thread is not None
    }
    return captured | {node: captured[original] for node, original in instances.items() if original in captured}


@read_again
def _write_copies(export: Export, folder: Path, calls: CallIndex) -> None:
    a_memset = -1
    labels = dict(export.rows("ENUM_CUDA_MEMCPY_OPER", "id", "label")) | {a_memset: "Memset"}
    kinds = Texts(lambda numbers: [labels.get(number, f"copyKind {number}") for number in numbers])
    memories = Texts(lambda numbers: [HOST_MEMORY.get(number) for number in numbers])
    devices, pieces = Devices(export), []
    kinds_of = (column("kind", "copyKind"), Field("memory", ("srcKind", "dstKind"), np.minimum))
    for source, kind in ((MEMCPY, kinds_of), (MEMSET, ())):
        for piece in export.scan(source, (*WORK_FIELDS, column("bytes"), *kind), order="start_ns"):
            copied = kinds.encode(piece["kind"] if kind else pa.repeat(a_memset, piece.num_rows))
            memory = memories.encode(piece["memory"] if kind else pa.nulls(piece.num_rows, pa.int64()))
            columns = {**calls.columns(piece, devices), "bytes": piece["bytes"], "kind": copied, "memory": memory}
            pieces.append(pa.table(columns).drop_columns(["duration_ns", "launch_call_ns"]))
    pieces = pieces or [tables.schema("copies").empty_table()]
    tables.write(folder, "copies", pa.concat_tables(pieces).unify_dictionaries().sort_by("start_ns"))


# Memory and samples of GPU metrics

HOST_MEMORY = {0: "pageable", 1: "pinned"}
"""The values of memKind (and of srcKind and dstKind) for the host's memory; the device's are higher."""
OPERATIONS = {0: ("Allocation", 1), 1: ("Deallocation", -1)}
"""memoryOperationType -> its name, and the sign of its bytes."""
METRIC_BITS = 31  # of a metric's id, in the key that _metric_key makes
METRIC_MASK = (1 << METRIC_BITS) - 1
HIGHEST_CLOCK_MHZ = 1e5  # a clock above it is in Hz


def _write_memory(export: Export, folder: Path) -> None:
    """Write the table ``memory``: allocations of device memory, without those of the host's."""
    devices, events = Devices(export), []
    totals: dict[tuple[int, int | None], int] = defaultdict(int)
    export.require(MEMORY, "start", "bytes", "globalPid")
    columns = ("start", "memoryOperationType", "memKind", "bytes", "deviceId", "globalPid", "address")
    for row in sorted(export.rows(MEMORY, *columns), key=lambda row: row[0] or 0):
        time_ns, operation, kind, size, ordinal, process, address = row
        if kind in HOST_MEMORY or None in (time_ns, size, process):
            continue
        pid = process_id(process)
        device = devices.gpu_of.get((pid, ordinal), ordinal)
        name, sign = OPERATIONS.get(operation, (f"memoryOperationType {operation}", 0))
        totals[pid, device] += sign * size
        event = {"time_ns": time_ns, "kind": name, "bytes": size, "device": device, "pid": pid, "address": address}
        events.append({**event, "total_bytes": totals[pid, device]})
    tables.write(folder, "memory", pa.Table.from_pylist(events, tables.schema("memory")))


def _metric_key(kind: Any, metric: Any) -> Any:
    """A metric of a GPU, which typeId (its last byte is the GPU) and metricId name, in one integer; or an array."""
    return (kind & 0xFFFFFFFF) << METRIC_BITS | metric & METRIC_MASK


@read_again
def _write_gpu_metrics(export: Export, folder: Path) -> None:
    fields = (
        column("time_ns", "timestamp"),
        Field("metric", ("typeId", "metricId"), _metric_key),
        Field("value", ("value",), real=True),
    )
    rows = export.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
    names = {_metric_key(kind or 0, metric or 0): name for kind, metric, name in rows}
    metrics = Texts(lambda keys: [names.get(key, f"metric {key & METRIC_MASK}") for key in keys])
    clocks = pa.array([key for key, name in names.items() if (name or "").endswith("[MHz]")], pa.int64())
    with tables.writer(folder, "gpu_metrics") as write:
        for piece in export.scan(GPU_METRICS, fields, order="time_ns"):
            # nsys 2025.3 writes Hz under ``[MHz]``.
            values = piece["value"]
            hertz = pc.and_(pc.is_in(piece["metric"], clocks), pc.greater(values, HIGHEST_CLOCK_MHZ))
            columns = {
                "time_ns": piece["time_ns"],
                "device": _int32(pc.bit_wise_and(pc.shift_right(piece["metric"], METRIC_BITS), 0xFF)),
                "metric": metrics.encode(piece["metric"]),
                "value": pc.if_else(hertz, pc.divide(values, 1e6), values),
            }
            write(pa.table(columns))


# What Python threads did: nsys's samples of them, and their waits for the interpreter's lock

GIL, SAMPLING = "GIL Trace", "Python Periodic Sampling"
HOST_DOMAINS = frozenset({GIL, SAMPLING})  # NVTX domains of nsys's own (``--trace=python-gil``, ``--python-sampling``)
WAITING = "Waiting for GIL"
PACKAGE = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")
NOT_OWN = re.compile(PACKAGE.pattern + r"|.*[/\\]lib(?:64)?[/\\]python3[.\d]*[/\\]|.*[/\\](?=torchinductor_)|(?=<)|$")
"""How paths begin that are not the program's own: of packages, the standard library, what torch compiled, no file."""
CHECKPOINTS = re.compile(r".*\btorch[/\\]utils[/\\]checkpoint\.py$")
REPEATS = frozenset(("recompute_fn", "unpack_hook", "backward"))
"""Functions of torch's checkpoint.py that run a forward pass again: without and with reentrant autograd."""
Frames = tuple[tuple[int, int, int], ...]
"""A thread's stack, the innermost frame first: function and file as ids in StringIds, and line."""


def read_samples(export: Export, domains: Mapping[tuple[int, int], str]) -> list[tuple[int, int, Frames]]:
    """Time (ns), globalTid and stack of each sample of a Python thread. domains: as read_domains gives them."""
    sampling = tuple({number for (_, number), name in domains.items() if name == SAMPLING})
    frames_of = functools.lru_cache(1 << 13)(_frames)  # a loop is seen in the same places again and again
    rows = export.rows(NVTX, "start", "globalTid", "domainId", "jsonText", where={"domainId": sampling})
    return [
        (time_ns, thread, frames)
        for time_ns, thread, domain, text in rows
        if None not in (time_ns, thread) and domains.get((process_id(thread), domain)) == SAMPLING
        if (frames := frames_of(text))
    ]


@read_again
def _write_host_samples(export: Export, folder: Path) -> None:
    domains = read_domains(export)
    samples = read_samples(export, domains)
    ids = sorted({number for *_, frames in samples for frame in frames for number in frame[:2]})
    strings = zip(ids, export.strings(ids), strict=True)
    texts = {number: printable(html.unescape(text or "")) for number, text in strings}
    stacks = {
        frames: [(texts[function], texts[file], line) for function, file, line in frames]
        for frames in {frames for *_, frames in samples}
    }
    functions = _functions(stacks, Counter(frames for *_, frames in samples))
    looks = [
        {"start_ns": time_ns, "pid": process_id(thread), "tid": thread & ID_MASK, **functions[frames]}
        for time_ns, thread, frames in samples
    ]
    waits = _gil_waits(export, domains, list({thread for _, thread, _ in samples}))
    parts = [pa.Table.from_pylist(looks, tables.schema("host_samples")), waits]
    rows = pa.concat_tables(parts).unify_dictionaries().sort_by("start_ns")
    tables.write(folder, "host_samples", rows)


def _frames(text: str | None) -> Frames:
    """The stack in a sample's payload; empty where the text is no such payload."""
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError, OverflowError):
        frames = json.loads(text or "")[SAMPLING]["Frames"]
        return tuple((int(frame["Function"]), int(frame["File"]), int(frame["Line"])) for frame in frames)
    return ()


def _functions(
    stacks: Mapping[Frames, Sequence[tuple[str, str, int]]], seen: Mapping[Frames, int]
) -> dict[Frames, dict[str, Any]]:
    """Columns of ``host_samples`` for each stack. seen: how many samples have it.

    function, source, line: the innermost frame in a file of the program's own, else of all. called: the function below
    it, as deep as half of the line's samples agree. recomputes: whether the stack repeats a forward pass.
    """
    by_frames: dict[Frames, dict[str, Any]] = {}
    sources = {source for stack in stacks.values() for _, source, _ in stack}
    shown = {source: NOT_OWN.sub("", source) for source in sources}
    others, packaged, checkpoints = (
        {each for each in sources if pattern.match(each)} for pattern in (NOT_OWN, PACKAGE, CHECKPOINTS)
    )
    within: dict[tuple[str, str, int], dict[Frames, list[str]]] = defaultdict(dict)
    for frames, stack in stacks.items():
        own = next((place for place, (_, file, _) in enumerate(stack) if file not in others), 0)
        name, file, line = stack[own]
        inner = [f"{below} ({shown[source]})" for below, source, _ in reversed(stack[:own])]
        # What a package calls in Python's own library is the package's work: it ends there.
        packages = [source in packaged for _, source, _ in reversed(stack[:own])]
        inner = inner[: next((n for n in range(1, own) if packages[n - 1] and not packages[n]), own)]
        within[stack[own]][frames] = inner
        by_frames[frames] = {"function": name, "source": file, "line": line, "called": inner[0] if inner else None}
        by_frames[frames]["recomputes"] = any(name in REPEATS and file in checkpoints for name, file, _ in stack)
    for looks in within.values():
        half, depth = sum(map(seen.__getitem__, looks)) / 2, 0
        while True:
            below: Counter[str] = Counter()
            for frames, inner in looks.items():
                below.update(dict.fromkeys(inner[depth : depth + 1], seen[frames]))
            most, count = below.most_common(1)[0] if below else ("", 0)
            if count < half or not count:
                break
            looks = {frames: inner for frames, inner in looks.items() if inner[depth : depth + 1] == [most]}
            for frames in looks:
                by_frames[frames]["called"] = most
            depth += 1
    for frames, stack in stacks.items():
        if any(name == "format_stack" and file.endswith("traceback.py") for name, file, _ in stack):
            by_frames[frames]["called"] = "format_stack (traceback.py)"  # whatever called it
    return by_frames


def _gil_waits(export: Export, domains: Mapping[tuple[int, int], str], sampled: Sequence[int]) -> pa.Table:
    """Each wait for Python's interpreter lock, with the thread that held the lock longest meanwhile.

    sampled: threads (globalTid) with samples. Other threads of their process are nsys's own, which take the lock to
    sample: their waits, and the waits for them, are left out.
    """
    gil = [pid << 32 | number for (pid, number), name in domains.items() if name == GIL]
    pieces = [np.empty((4, 0), np.int64)]
    sources = {"start_ns": "start", "end_ns": "end", "thread": "globalTid", "domain": "domainId", "name": "textId"}
    fields = [column(name, source) for name, source in sources.items()]
    for piece in export.scan(NVTX, fields, order="start_ns") if gil else ():
        start, end, thread, domain, name = (_numbers(each, NOTHING) for each in piece.columns)
        here = np.isin((thread >> ID_BITS & ID_MASK) << 32 | domain, gil) & (end > start)
        pieces.append(np.stack([start, end, thread, name])[:, here])
    start, end, thread, name = np.concatenate(pieces, axis=1)
    ids = np.unique(name).tolist()
    waits = np.isin(name, [number for number, text in zip(ids, export.strings(ids), strict=True) if text == WAITING])
    holder, longest = np.full(len(start), NOTHING), np.zeros(len(start))
    for other in np.unique(thread).tolist():
        holds = np.flatnonzero(~waits & (thread == other))
        waited = np.flatnonzero(waits & (thread != other) & (thread >> ID_BITS == other >> ID_BITS))
        ns = within((start[holds], end[holds]), start[waited], end[waited])
        more = ns > longest[waited]
        holder[waited[more]], longest[waited[more]] = other, ns[more]
    in_sampled = np.isin(thread >> ID_BITS, [each >> ID_BITS for each in sampled])
    reported = waits & ~(in_sampled & (~np.isin(thread, sampled) | ((holder != NOTHING) & ~np.isin(holder, sampled))))
    columns = {"start_ns": start, "end_ns": end, "pid": thread >> ID_BITS & ID_MASK, "tid": thread & ID_MASK}
    waits_table = {key: pa.array(values[reported]) for key, values in columns.items()}
    waits_table["holder"] = pa.array(holder[reported] & ID_MASK, mask=holder[reported] == NOTHING)
    nothing = {field.name: pa.nulls(int(reported.sum()), field.type) for field in tables.schema("host_samples")}
    return pa.table({**nothing, **waits_table}).cast(tables.schema("host_samples"))


# Which process ran kernels on which GPU, and which rank of a job it is by its environment

NOTED = "FIPROF_PROCESSES"  # table of a scrubbed export with the processes, whose own tables were removed
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
"""The rank as torchrun, Open MPI, PMIx and MPICH give it to a process."""
VM_BITS, HARDWARE_BITS = 48, 56  # where vmId and hwId begin in a globalPid


class Process(NamedTuple):
    """A process that used CUDA, a row of the table NOTED; None for what the trace does not say."""

    pid: int
    name: str | None = None
    host: str | None = None
    rank: int | None = None  # by its environment
    started: int | None = None  # 1 where nsys itself started it


def read_processes(export: Export) -> list[Process]:
    """The processes that used CUDA, by their ids."""
    if export.has(NOTED):
        rows = export.rows(NOTED, "pid", "name", "value", "rank", "started")
        return [Process(*row) for row in rows if row[0] is not None]
    names = {process_id(each or 0): name for each, name in export.rows("PROCESSES", "globalPid", "name")}
    host = dict(export.rows("TARGET_INFO_SYSTEM_ENV", "name", "value")).get("Hostname")
    used = {pid for table in (CONTEXTS, STREAMS) for (pid,) in export.rows(table, "processId") if pid}
    ranks = _ranks(export)
    # nsys records the output of the processes that it starts, and of no other.
    started = {process_id(each) for (each,) in export.rows("ProcessStreams", "globalPid") if each}
    return [
        Process(pid, Path(names.get(pid) or "").name or None, host, ranks.get(pid), 1 if pid in started else None)
        for pid in sorted(used)
    ]


def started_alone(sqlite: Path) -> bool:
    """Whether the process that nsys started, and no other, launched kernels, as far as an export says."""
    with Export(sqlite) as export:
        started = {process.pid for process in read_processes(export) if process.started}
        return {pid for pid, _ in _workers(export)} == started


def _ranks(export: Export) -> dict[int, int]:
    """Process id -> rank, by the environments that nsys recorded; empty where they do not say.

    For the program that nsys started the export says which environment is its. For child processes it does not: the
    local ranks are given to the processes in the order of their GPUs, as launchers assign them.
    """

    def variable(environment: str, *names: str) -> int | None:
        """The first of these variables that an environment has."""
        matches = (re.search(rf'(?:^|\s){name}="?(\d{{1,6}})(?:"|\s|$)', environment) for name in names)
        return next((int(match[1]) for match in matches if match), None)

    pids = [pid for _, pid in sorted((ordinal or 0, pid) for pid, ordinal in _workers(export))]
    captured = export.rows("META_DATA_CAPTURE", "name", "value")
    started = " ".join(value or "" for name, value in captured if "ENV" in name)
    if len(pids) == 1 and (rank := variable(started, *RANKS)) is not None:
        return {pids[0]: rank}
    jobs = [(variable(text, "LOCAL_RANK"), variable(text, *RANKS)) for text in export.strings_with("LOCAL_RANK=")]
    ranks = sorted({(local, rank) for local, rank in jobs if local is not None and rank is not None})
    if len(ranks) != len(pids) or len(set(pids)) != len(pids):
        return {}
    return {pid: rank for pid, (_, rank) in zip(pids, ranks, strict=True)}


def _workers(export: Export) -> Iterator[tuple[int, int]]:
    """Process id and CUDA device ordinal of each process that ran kernels."""
    # Contexts are few: of each, one kernel is looked for, where to read the millions of kernels would take long.
    contexts = set(export.rows(CONTEXTS, "hwId", "vmId", "processId", "deviceId"))
    if not contexts:
        pairs = {row for table in (KERNEL, GRAPH_TRACE) for row in export.distinct(table, "globalPid", "deviceId")}
        yield from ((process_id(process), ordinal) for process, ordinal in pairs if None not in (process, ordinal))
    for hardware, machine, pid, ordinal in sorted(each for each in contexts if None not in each):
        process = hardware << HARDWARE_BITS | machine << VM_BITS | (pid & ID_MASK) << ID_BITS
        if any(export.occurs(table, globalPid=process, deviceId=ordinal) for table in (KERNEL, GRAPH_TRACE)):
            yield pid, ordinal


def _write_processes(export: Export, folder: Path, session_start_ns: int | None) -> None:
    by_pid = {process.pid: process for process in read_processes(export)}
    devices = Devices(export)
    gpus = {gpu: facts for gpu, *facts in export.rows("TARGET_INFO_GPU", "id", "name", "uuid", "memoryBandwidth")}
    rows = []
    for pid, ordinal in sorted(_workers(export)):
        device, process = devices.gpu_of.get((pid, ordinal), ordinal), by_pid.get(pid, Process(pid))
        gpu_facts = gpus.get(device, (None,) * 3)
        cells = (pid, process.name, process.host, device, *gpu_facts, process.rank, session_start_ns)
        columns = ("pid", "process", "host", "device", "gpu", "uuid", "dram_bytes_per_s", "rank", "session_start_ns")
        rows.append(dict(zip(columns, cells, strict=True)))
    tables.write(folder, "processes", pa.Table.from_pylist(rows, tables.schema("processes")))


TIMES = ("start_ns", "end_ns", "time_ns", "captured_ns")
Numbers = dict[int, int]  # number in a trace -> number in the run, where they differ


def merge(parts: Mapping[Path, int], names: Sequence[str], out: Path) -> None:
    """Join the tables of several files (traces or profiles) into those of one run, with ``file``, the file of each row.

    Rows are sorted by time. Launches are numbered through all files, and the parents of ranges point to rows of the
    joined table. Where two files use the same number for different processes or GPUs, the later file's is changed.
    parts: folder of each file's tables -> what is added to its times, ns. names: of the tables.
    Raises FiprofError where more files share a process id than can be renumbered.
    """
    first_launches, next_launch = [], 0
    for folder in parts:
        first_launches.append(next_launch)
        if "launches" in names:
            ids = tables.read(folder, "launches", ["launch"])["launch"]
            next_launch += (pa.compute.max(ids).as_py() or 0) + 1
    renumbered = {"pid": _processes(parts, names), "device": _gpus(parts, names)} if "processes" in names else {}
    for name in names:
        rows, of_files = 0, []
        for file, (folder, shift_ns) in enumerate(parts.items()):
            table = tables.read(folder, name)
            added = {**dict.fromkeys(TIMES, shift_ns), "launch": first_launches[file], "parent": rows}
            for place, field in enumerate(table.schema):
                values = table[field.name]
                if added.get(field.name):
                    values = pa.compute.add(values, pa.scalar(added[field.name], field.type))
                elif field.name == tables.FILE:
                    values = pa.repeat(pa.scalar(file, pa.int32()), table.num_rows)
                for old, new in (renumbered[field.name][file] if field.name in renumbered else {}).items():
                    here = pa.compute.equal(table[field.name], old)
                    values = pa.compute.if_else(here, pa.scalar(new, field.type), values)
                table = table.set_column(place, field.name, values)
            of_files.append(table)
            rows += table.num_rows
        merged = pa.concat_tables(of_files, promote_options="default").unify_dictionaries()
        if key := next((time for time in TIMES if time in merged.column_names), None):
            order = pc.sort_indices(merged, [(key, "ascending")])
            merged = merged.take(order)
            if "parent" in merged.column_names:
                places = np.empty(len(order), np.int64)
                places[order.to_numpy()] = np.arange(len(order))
                parents = pa.array(places).take(merged["parent"].combine_chunks())
                merged = merged.set_column(merged.column_names.index("parent"), "parent", parents)
        tables.write(out, name, merged)


def _used(folder: Path, names: Sequence[str], column: str) -> list[int]:
    """The distinct values of a column in all tables of a folder that have it."""
    having = [name for name in names if column in tables.schema(name).names]
    values = {value for name in having for value in tables.read(folder, name, [column])[column].unique().to_pylist()}
    return sorted(values - {None})


def _processes(parts: Mapping[Path, int], names: Sequence[str]) -> list[Numbers]:
    """For each part, its process ids that an earlier part uses too, as containers do -> free numbers for them."""
    pids: set[int] = set()
    renumbered = []
    for folder in parts:
        free: Numbers = {}
        for pid in _used(folder, names, "pid"):
            new = next((new for new in range(pid, 1 << 31, 1 << tables.PID_BITS) if new not in pids), None)
            if new is None:
                raise FiprofError(f"{folder.name}: too many traces have a process {pid}", "import fewer at once")
            free[pid] = new
        pids.update(free.values())
        renumbered.append({pid: new for pid, new in free.items() if new != pid})
    return renumbered


def _gpus(parts: Mapping[Path, int], names: Sequence[str]) -> list[Numbers]:
    """For each part, its GPU numbers that mean another GPU in an earlier part -> their numbers in the run.

    Two GPUs are the same where their UUIDs are; where a trace does not say its UUIDs, number and host.
    """
    identities: dict[int, tuple[str | None, tuple[str, int] | None]] = {}  # number in the run -> UUID, host and number
    renumbered = []
    for folder in parts:
        rows = tables.read(folder, "processes", ["device", "host", "uuid"]).to_pylist()
        uuids, host = {row["device"]: row["uuid"] for row in rows}, next((row["host"] for row in rows), None)
        numbers = {}
        for device in _used(folder, names, "device"):
            uuid, place = uuids.get(device), None if host is None else (host, device)
            same = (
                number
                for number, (other, other_place) in identities.items()
                if (uuid == other if uuid and other else place is not None and place == other_place)
            )
            free = (number for number in itertools.chain([device], itertools.count()) if number not in identities)
            number = next(itertools.chain(same, free))
            before, first = identities.get(number, (None, place))
            identities[number] = uuid or before, first
            numbers[device] = number
        renumbered.append({device: number for device, number in numbers.items() if device != number})
    return renumbered
