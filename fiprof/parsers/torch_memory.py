"""The history of torch's caching allocator, as ``workloads/torch_memory`` writes it, -> the table torch_memory."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.parsers.names import printable

ACTIONS = ("allocate", "free", "reserve", "release", "graph_pools")
COLUMNS = ("time_us", "action", "bytes", "address", "stack")


def parse(history: Path, out: Path, *, session_start_ns: int | None) -> None:
    """Write the table into the folder ``out``. Raises FiprofError for a file that is no such history."""
    schema = tables.schema("torch_memory")
    pieces = [schema.empty_table()]
    try:
        with open(history, "rb") as lines:
            pieces += [pa.table(_columns(json.loads(line), session_start_ns), schema) for line in lines]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, pa.ArrowException) as error:
        raise FiprofError(f"{history} is damaged, or no history of torch's allocator: {error!r}") from error
    tables.write(out, "torch_memory", pa.concat_tables(pieces, promote_options="none").unify_dictionaries())


def _columns(line: dict[str, Any], session_start_ns: int | None) -> dict[str, Any]:
    """The columns of a process's GPU: what was there before, what was done, and what is there at the end."""
    times, actions, sizes, addresses, stacks = (line[column] for column in COLUMNS)
    if not all(isinstance(size, int) and 0 <= size < 1 << 62 for size in sizes):
        raise ValueError("impossible sizes")
    net = [0, 0]
    for action, size in zip(actions, sizes, strict=True):
        net[action // 2] += size if action % 2 == 0 else -size
    before = (max(line["allocated_bytes"] - net[0], 0), max(line["reserved_bytes"] - net[1], 0))
    texts = [" < ".join(map(printable, frames)) or None for frames in line["stacks"]]
    times = [times[0], times[0], *times, times[-1]]
    return {
        "time_ns": [None if session_start_ns is None else 1000 * time - session_start_ns for time in times],
        "pid": [line["pid"]] * len(times),
        "device": [line["device"]] * len(times),
        "action": [ACTIONS[number] for number in (0, 2, *actions, 4)],
        "bytes": [*before, *sizes, line["graph_pool_bytes"]],
        "address": [None, None, *addresses, None],
        "stack": [None, None, *(texts[number] for number in stacks), None],
    }
