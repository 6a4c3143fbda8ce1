"""What torch's caching allocator did, for ``fiprof profile --torch-memory``: Python imports this first, for its folder
is on PYTHONPATH then. When a process ends, each of its GPUs is a line of JSON in the file FIPROF_TORCH_MEMORY.

torch itself would pickle the history, and a pickle that somebody else made can run anything when it is read.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.machinery
import json
import os
import sys
from types import ModuleType
from typing import Any

MOST_EVENTS = 200_000
"""Allocations and releases of each GPU that are remembered, the last ones; a few KB each until they are written."""
MOST_FRAMES = 8  # of a stack, the innermost outside torch
ACTIONS = {
    "alloc": 0, "free_requested": 1, "segment_alloc": 2, "segment_map": 2, "segment_free": 3, "segment_unmap": 3,
}  # fmt: skip
"""torch's word -> the number of ours: allocate, free, reserve, release."""


def record() -> None:
    """From here on it is recorded: torch has just started CUDA in this process."""
    from multiprocessing import util

    import torch

    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=MOST_EVENTS)
    # Unlike atexit's, called in the processes that multiprocessing makes too.
    util.Finalize(None, write, exitpriority=0)


def write() -> None:
    """Writes the lines; says it where that fails, and lets the program end as it would."""
    try:
        import torch

        snapshot = torch.cuda.memory._snapshot()
        with open(os.environ["FIPROF_TORCH_MEMORY"], "a", encoding="utf-8") as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            for device, events in enumerate(snapshot["device_traces"]):
                if events:
                    segments = [each for each in snapshot["segments"] if each["device"] == device]
                    line = _columns(events, os.path.dirname(torch.__file__)) | _state(torch, device, segments)
                    out.write(json.dumps(line, separators=(",", ":")) + "\n")
    except Exception as error:  # whatever a torch of another version does
        sys.stderr.write(f"fiprof: no history of torch's allocator: {error!r}\n")


def _columns(events: list[dict[str, Any]], folder: str) -> dict[str, Any]:
    """The events in columns, each stack once: a list of frames, the innermost first. folder: torch's own."""
    stacks: dict[tuple[str, ...], int] = {}
    columns: dict[str, Any] = {"time_us": [], "action": [], "bytes": [], "address": [], "stack": [], "stacks": []}
    for event in (each for each in events if each["action"] in ACTIONS):
        frames = [each for each in event.get("frames", ()) if not each["filename"].startswith((folder, "<frozen"))]
        stack = tuple(
            f"{each['name']} ({os.path.basename(each['filename'])}:{each['line']})" for each in frames[:MOST_FRAMES]
        )
        row = (event["time_us"], ACTIONS[event["action"]], event["size"], event["addr"])
        for column, value in zip(columns, (*row, stacks.setdefault(stack, len(stacks)))):  # noqa: B905 - Python 3.9
            columns[column].append(value)
    return columns | {"stacks": list(stacks), "lost": len(events) >= MOST_EVENTS}


def _state(torch: ModuleType, device: int, segments: list[dict[str, Any]]) -> dict[str, Any]:
    """What is there at the end, which no loss of events changes; and torch's own peaks."""
    blocks = [block for each in segments for block in each["blocks"] if block["state"] == "active_allocated"]
    statistics = torch.cuda.memory_stats(device)
    return {
        "pid": os.getpid(),
        "device": device,
        "allocated_bytes": sum(block.get("requested_size", block["size"]) for block in blocks),
        "reserved_bytes": sum(each["total_size"] for each in segments),
        "graph_pool_bytes": sum(each["total_size"] for each in segments if any(each.get("segment_pool_id", ()))),
        "torch": {name: statistics.get(f"{name}_bytes.all.peak", 0) for name in ("allocated", "requested", "reserved")},
    }


class _Torch:
    """Waits for ``torch.cuda``: whoever imports it has the history recorded."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch.cuda":
            return None
        sys.meta_path.remove(cls)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def and_record(module: ModuleType) -> None:
                execute(module)
                module._lazy_call(record)

            spec.loader.exec_module = and_record  # type: ignore[method-assign]
        return spec


if "FIPROF_TORCH_MEMORY" in os.environ:
    # In place of a sitecustomize that would be imported otherwise.
    sys.path[:] = [each for each in sys.path if each != os.path.dirname(__file__)]
    own = sys.modules.pop(__name__)
    with contextlib.suppress(ImportError):
        importlib.import_module(__name__)
    sys.modules.setdefault(__name__, own)
    sys.meta_path.insert(0, _Torch)
