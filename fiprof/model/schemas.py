"""The tables of a run: what a row of each is, and their columns."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

NVTX_INCOMPATIBLE = "NVTX payload extension is incompatible"
"""In the table ``diagnostics``: nsys up to 2024.2 sees no range of the Python package nvtx from 0.2.13 on."""

Kind = str
"""int64, int32, float64, string, bool, or category (a string stored once)."""


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    doc: str
    """What it holds, with its unit unless the name says so."""
    required: bool = False
    """Whether every row has it."""


@dataclass(frozen=True)
class Table:
    name: str
    row: str
    """What one row is."""
    columns: tuple[Column, ...]
    open_ended: bool = False
    """Whether further columns may follow (one a metric of ``metrics.py``, float64)."""


def _table(name: str, row: str, *columns: tuple[str, Kind, str], open_ended: bool = False) -> Table:
    """columns: name, kind and doc of each; a kind ends with ``!`` where every row has a value."""
    declared = (Column(name, kind.removesuffix("!"), doc, kind.endswith("!")) for name, kind, doc in columns)
    return Table(name, row, tuple(declared), open_ended)


_CASE = ("case", "category", "case id; null outside the fiprof ranges")
_ITERATION = ("iteration", "int32", "iteration inside measure; null elsewhere")
PID_BITS = 24
"""Of a process's number in nsys. Those of several traces that have the same one differ in the bits above."""
FILE = "file"
_PROCESS = "process; of several files that have one number for different processes, with other bits above its 24"
_GPU = "GPU; of several files, numbered on where they have one number for different GPUs"
_FILE = (FILE, "int32", "number of its file in a run that was imported from several, from 0; null in others")

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        _table(
            "launches",
            "a kernel launch under ncu",
            ("launch", "int32!", "ncu's launch ID, unique in the run"),
            _CASE,
            _ITERATION,
            ("kernel", "category", "function name without namespaces, parameters and template arguments"),
            ("kernel_full", "category", "demangled name as ncu prints it"),
            ("grid", "category", "blocks, e.g. 132x1x1"),
            ("block", "category", "threads of a block, e.g. 384x1x1"),
            ("device", "int32", "CUDA device ordinal in the profiled process"),
            ("cc", "category", "compute capability, e.g. 9.0"),
            ("pid", "int32", "profiled process"),
            ("context", "int32", "CUDA context"),
            ("stream", "int32", "CUDA stream"),
            _FILE,
            ("duration_ns", "float64", "gpu__time_duration.sum"),
            open_ended=True,
        ),
        _table(
            "metrics",
            "a launch x a metric of ncu",
            ("launch", "int32!", "ncu's launch ID"),
            ("metric", "category!", "ncu's name"),
            ("value", "float64", "number in the base unit; null for text and for what was not collected"),
            ("unit", "category", "base unit as ncu names it; empty for counts"),
            ("text", "category", "the cell where it is no number"),
        ),
        _table(
            "stalls",
            "a launch x a reason why its warps did not issue",
            ("launch", "int32!", "ncu's launch ID"),
            ("reason", "category!", "e.g. long_scoreboard; one spelling for both measures"),
            ("warps_per_issue", "float64", "warps in this state per issued instruction"),
            ("share", "float64", "of the sum over reasons, 0 to 1"),
            ("samples", "int64", "warp samples in this state; null where not sampled"),
            ("samples_not_issued", "int64", "those in cycles in which the scheduler issued nothing"),
        ),
        _table(
            "rules",
            "a finding of ncu's own rules",
            ("launch", "int32!", "ncu's launch ID"),
            ("section", "category", "ncu's section"),
            ("rule", "category", "ncu's rule"),
            ("kind", "category", "OPT, INF or WRN"),
            ("message", "string", "what the rule says"),
            ("speedup_kind", "category", "global (of the kernel) or local (of the section's share); null if none"),
            ("speedup_pct", "float64", "the rule's estimate"),
        ),
        _table(
            "hotspots",
            "a SASS instruction of a launch",
            ("launch", "int32!", "ncu's launch ID"),
            ("address", "int64!", "bytes from the kernel's first instruction"),
            ("sass", "string", "the instruction"),
            ("source_file", "category", "null where the build has no line information"),
            ("source_line", "int32", "null likewise"),
            ("samples", "int64", "warp samples at this instruction"),
            ("samples_not_issued", "int64", "those in cycles in which the scheduler issued nothing"),
            ("top_reason", "category", "the reason with most samples; null without samples"),
            ("executed", "int64", "times that a warp executed it"),
            ("sectors", "int64", "sectors of 32 bytes of global memory that it touched"),
            ("ideal_sectors", "int64", "those that it would touch if the threads of a warp accessed neighbours"),
        ),
        _table(
            "kernels",
            "a kernel execution under nsys",
            ("start_ns", "int64!", "since the trace began"),
            ("end_ns", "int64!", "since the trace began"),
            ("duration_ns", "int64!", "end - start"),
            ("device", "int32", _GPU),
            ("stream", "int32", "CUDA stream"),
            ("pid", "int32!", _PROCESS),
            ("kernel", "category", "function name without namespaces, parameters and template arguments"),
            ("kernel_full", "category", "demangled name"),
            ("kernel_mangled", "category", "name as the compiler made it, which ncu's filters take"),
            ("grid", "category", "blocks, e.g. 132x1x1"),
            ("block", "category", "threads of a block, e.g. 384x1x1"),
            ("registers", "int32", "registers of a thread"),
            ("shared_bytes", "int64", "static and dynamic shared memory of a block"),
            ("graph_node", "int64", "CUDA graph node; 0 for a graph that was traced whole; null outside graphs"),
            ("phase", "category", "setup, warmup or measure; null outside the fiprof ranges"),
            _CASE,
            _ITERATION,
            (
                "launch_call_ns",
                "int64",
                "duration of the CUDA call that launched it; null where not traced, and for further nodes of a graph",
            ),
            ("correlation", "int64", "of the launch call, unique with pid"),
            _FILE,
        ),
        _table(
            "ranges",
            "an NVTX range",
            ("domain", "category", "NVTX domain; empty for the default one"),
            ("name", "category!", "text of the range"),
            ("start_ns", "int64!", "since the trace began"),
            ("end_ns", "int64", "null where it never ended"),
            ("depth", "int32!", "enclosing push/pop ranges of the same thread and domain"),
            ("parent", "int64", "row number in this table of the innermost enclosing one; null at the top"),
            ("kind", "category", "push_pop or start_end"),
            ("pid", "int32!", _PROCESS),
            ("tid", "int32!", "thread"),
            ("payload", "category", "JSON of what the program gave with it; null where it was not exported"),
            _FILE,
        ),
        _table(
            "api",
            "a CUDA call",
            ("name", "category", "e.g. cudaLaunchKernel, without its version suffix"),
            ("start_ns", "int64!", "since the trace began"),
            ("end_ns", "int64!", "since the trace began"),
            ("pid", "int32!", _PROCESS),
            ("tid", "int32!", "thread"),
            ("correlation", "int64", "unique with pid"),
            ("status", "int32", "the call's return value, 0 is success"),
            _FILE,
        ),
        _table(
            "copies",
            "a memory copy or memory set",
            ("start_ns", "int64!", "since the trace began"),
            ("end_ns", "int64!", "since the trace began"),
            ("bytes", "int64", "bytes moved or set"),
            ("kind", "category", "e.g. Host-to-Device, or Memset"),
            ("device", "int32", _GPU),
            ("stream", "int32", "CUDA stream"),
            ("pid", "int32!", _PROCESS),
            ("phase", "category", "as in kernels"),
            _CASE,
            _ITERATION,
            ("correlation", "int64", "of the call, unique with pid"),
            _FILE,
        ),
        _table(
            "memory",
            "an allocation or release of device memory",
            ("time_ns", "int64!", "since the trace began"),
            ("kind", "category", "Allocation or Deallocation"),
            ("bytes", "int64!", "size of the block"),
            ("device", "int32", _GPU),
            ("pid", "int32!", _PROCESS),
            ("total_bytes", "int64!", "this process's device memory on this GPU after the event"),
            ("address", "int64", "device address"),
            _FILE,
        ),
        _table(
            "gpu_metrics",
            "a sample of a GPU metric",
            ("time_ns", "int64", "since the trace began"),
            ("device", "int32", _GPU),
            ("metric", "category", "nsys's name, e.g. Tensor Active / FP16 Active [Throughput %]"),
            ("value", "float64", "percent, or the unit that the name gives"),
            _FILE,
        ),
        _table(
            "processes",
            "a process on a GPU that it ran kernels on",
            ("pid", "int32!", _PROCESS),
            ("process", "category", "name of its program, without folders"),
            ("host", "category", "name of the machine"),
            ("device", "int32", _GPU),
            ("gpu", "category", "name of the GPU"),
            ("uuid", "category", "of the GPU"),
            ("rank", "int32", "of the process in its job, by its environment; null where that does not say"),
            ("session_start_ns", "int64", "when its trace began, UTC since 1970; null where the trace does not say"),
            _FILE,
        ),
        _table(
            "diagnostics",
            "something that nsys said",
            ("time_ns", "int64", "since the trace began"),
            ("severity", "category", "Information, Warning or Error"),
            ("text", "string", "its words"),
            _FILE,
        ),
        _table(
            "checks",
            "one of the run's checks on its own numbers",
            ("check", "category!", "short name"),
            ("case", "category", "case id; null where it is about the whole run"),
            ("launch", "int32", "ncu's launch ID; null where it is about more"),
            ("value", "float64", "what was found"),
            ("low", "float64", "smallest value that passes; null for none"),
            ("high", "float64", "largest value that passes; null for none"),
            ("unit", "category", "of value, low and high"),
            ("passed", "bool", "null where there was not enough to tell"),
            ("values", "string", "JSON: what else was found, and why there was not enough to tell"),
        ),
    )
}


def own_pid(pid: int) -> int:
    """A process's number as its machine counts it, of that in a table: see PID_BITS."""
    return pid & (1 << PID_BITS) - 1


@functools.cache
def schema(name: str) -> pa.Schema:
    """The Arrow schema of a table's declared columns."""
    import pyarrow as pa

    kinds = {
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "string": pa.string(),
        "bool": pa.bool_(),
        "category": pa.dictionary(pa.int32(), pa.string()),
    }
    return pa.schema([pa.field(column.name, kinds[column.kind]) for column in TABLES[name].columns])
