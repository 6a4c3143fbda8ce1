"""A run's trace as trace-event JSON, compressed: ui.perfetto.dev and chrome://tracing open it.

The format is Google's: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import dataclasses
import gzip
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fiprof.analysis import samples
from fiprof.errors import FiprofError
from fiprof.files import atomic_write, file_errors
from fiprof.model.finding import say
from fiprof.model.run import Run
from fiprof.model.tables import own_pid

Row = dict[str, Any]
_DETAILS = {
    "kernels": (
        "kernel_full", "grid", "block", "registers", "shared_bytes", "graph_node", "phase", "case", "iteration",
        "correlation",
    ),
    "copies": ("bytes", "phase", "case", "iteration", "correlation"),
    "api": ("correlation", "status"),
}  # fmt: skip
MARK = b"export of fiprof: "  # in the header, as the file's name, so that an export replaces no other's file
LEVEL = 5  # of the compression: a third of the time of the highest, and a tenth larger


def write(run: Run, path: Path) -> str:
    """Write the trace of a run: all phases, whole or not at all. A file that is there is replaced. Returns what was
    written, in words.

    Times are those of the tables, moved so that the earliest is 0.
    Raises FiprofError where the run has no trace.
    """
    run = dataclasses.replace(run, leaving=True)
    if not run.has("kernels"):
        raise FiprofError(f"{run.manifest.name} has no trace", run.remedy("--tool nsys,ncu"), why=run.missing("nsys"))
    counts: Counter[str] = Counter()
    with (
        file_errors(path, "name another file with --perfetto"),
        atomic_write(path) as partial,
        partial.open("wb") as file,
        gzip.GzipFile(MARK.decode(), "wb", LEVEL, file, mtime=0) as packed,
    ):
        packed.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        for number, event in enumerate(_events(run, counts)):
            packed.write((",\n" if number else "").encode() + json.dumps(event, separators=(",", ":")).encode())
        packed.write(b"\n]}\n")
    words = "{path}: {kernels:,d} kernels, {copies:,d} copies, {api:,d} CUDA calls, {ranges:,d} NVTX ranges, "
    words += "{arrows:,d} arrows, {values:,d} counter values; open it at ui.perfetto.dev"
    kinds = ("kernels", "copies", "api", "ranges", "arrows", "values")
    return say(words, path=str(path), **{name: counts[name] for name in kinds})


def _events(run: Run, counts: Counter[str]) -> Iterator[Row]:
    """Every event; ``counts`` gets how many there are of a kind."""

    def lasting(table: str, *columns: str) -> list[Row]:
        found = run.rows(table, ("start_ns", "end_ns", "pid", *columns, *_DETAILS[table]))
        return [row for row in found if row["start_ns"] <= row["end_ns"]]

    kernels, copies = lasting("kernels", "device", "stream", "kernel"), lasting("copies", "device", "stream", "kind")
    calls = lasting("api", "tid", "name")
    ranges = run.rows("ranges", ("domain", "name", "start_ns", "end_ns", "pid", "tid"))
    memory = run.rows("memory", ("time_ns", "device", "pid", "total_bytes"))
    sampled = samples.read(run)
    starts = [row["start_ns"] for rows in (kernels, copies, calls, ranges) for row in rows]
    starts += [row["time_ns"] for row in memory] + [int(item.times[0]) for item in sampled.values()]
    origin_ns = min(starts, default=0)
    ends = (row["end_ns"] or row["start_ns"] for rows in (kernels, copies, calls, ranges) for row in rows)
    last_ns = max(ends, default=0)
    processes: dict[str, int] = {}  # GPUs with their streams, and the program's processes with their threads -> number
    threads = itertools.count(1)

    def item(row: Row, category: str, name: str | None, details: Row) -> Row:
        end_ns = max(row["start_ns"], last_ns if row["end_ns"] is None else row["end_ns"])
        args = {key: _text(value) for key, value in details.items() if value is not None}
        times = {"ts": row["start_ns"] - origin_ns, "dur": end_ns - row["start_ns"]}
        return {"name": _text(name or ""), "cat": category, **times, "args": args}

    def track(process: str, name: str, slices: list[Row], *, nested: bool) -> Iterator[Row]:
        """Slices on threads of one name: as many as it takes that none overlap. nested: but in one that holds them."""
        pid, lanes = processes.setdefault(process, len(processes) + 1), list[tuple[Row, list[int]]]()
        for each in sorted(slices, key=lambda each: (each["ts"], -each["dur"])):
            end = each["ts"] + each["dur"]
            for where, ends in lanes:  # noqa: B007 - what was found stays
                while ends and ends[-1] <= each["ts"]:
                    ends.pop()
                if not ends or (nested and end <= ends[-1]):
                    break
            else:
                where, ends = {"pid": pid, "tid": next(threads)}, []
                lanes.append((where, ends))
                yield {"ph": "M", "name": "thread_name", **where, "args": {"name": name}}
                yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": where["tid"]}}
            ends.append(end)
            flows = [({"ph": "s"}, each.pop("starts", ())), ({"ph": "f", "bp": "e"}, each.pop("ends", ()))]
            at = {**where, "ts": each["ts"] / 1e3}
            yield {**each, "ph": "X", **at, "dur": each["dur"] / 1e3}
            for phase, numbers in flows:
                yield from ({**phase, "id": number, "name": "launch", "cat": "launch", **at} for number in numbers)

    callers = {(row["pid"], row["correlation"]) for row in calls if row["correlation"] is not None}
    arrows: dict[Any, list[int]] = defaultdict(list)
    streams: dict[tuple[int, Any, Any], list[Row]] = defaultdict(list)
    for table, category, name, rows in (("kernels", "kernel", "kernel", kernels), ("copies", "copy", "kind", copies)):
        for row in rows:
            event = item(row, category, row[name], {key: row[key] for key in _DETAILS[table]})
            if (row["pid"], row["correlation"]) in callers:
                counts["arrows"] += 1
                arrows[row["pid"], row["correlation"]].append(counts["arrows"])
                event["ends"] = [counts["arrows"]]
            streams[row["device"] or 0, row["stream"], row["pid"]].append(event)
    of_threads: dict[tuple[int, int], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in ranges:
        note = "never ended" if row["end_ns"] is None else None
        event = item(row, "nvtx", row["name"], {"domain": row["domain"] or None, "note": note})
        of_threads[row["pid"] or 0, row["tid"] or 0][f"NVTX {row['domain'] or ''}".strip()].append(event)
    for row in calls:
        event = item(row, "cuda", row["name"], {"correlation": row["correlation"], "status": row["status"] or None})
        # A runtime call and the driver call inside it can share their id: one arrow, from the first.
        event["starts"] = arrows.pop((row["pid"], row["correlation"]), [])
        of_threads[row["pid"] or 0, row["tid"] or 0]["CUDA calls"].append(event)
    for (pid, tid), by_name in sorted(of_threads.items()):
        for name, slices in sorted(by_name.items(), reverse=True):
            yield from track(f"process {own_pid(pid)}", f"thread {tid} {_text(name)}", slices, nested=True)
    pids = {row["pid"] for row in (*kernels, *copies)}
    for (device, stream, pid), slices in sorted(streams.items(), key=lambda each: tuple(n or 0 for n in each[0])):
        name = f"stream {stream}" + (f" of process {own_pid(pid)}" if len(pids) > 1 else "")
        # A kernel inside another one's time is not part of it.
        yield from track(f"GPU {device}", name, slices, nested=False)
    for device, name, time_ns, value in _counters(sampled, memory):
        counts["values"] += 1
        pid, ts = processes.setdefault(f"GPU {device}", len(processes) + 1), (time_ns - origin_ns) / 1e3
        yield {"ph": "C", "name": name, "pid": pid, "ts": ts, "args": {"value": value}}
    for name, pid in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    counts.update(kernels=len(kernels), copies=len(copies), api=len(calls), ranges=len(ranges))


def _counters(
    sampled: dict[int, samples.Samples], memory: Sequence[Row]
) -> Iterator[tuple[int, str, int, float | int]]:
    """GPU, name, time and value from then on; a value that is the one before is left out."""
    for device, metrics in sorted(sampled.items()):
        for key, (name, _) in samples.METRICS.items():
            if key in metrics.series:
                times, values = metrics.series[key]
                changed = np.flatnonzero(np.diff(values, prepend=np.nan))
                for time_ns, value in zip(times[changed].tolist(), values[changed].tolist(), strict=True):
                    yield device, f"{name} (%)", int(time_ns), value
    several = len({row["pid"] for row in memory}) > 1
    held: dict[tuple[int, Any], int] = {}
    for row in sorted(memory, key=lambda row: row["time_ns"]):
        device, pid = owner = row["device"] or 0, row["pid"]
        if held.get(owner) != row["total_bytes"]:
            held[owner] = row["total_bytes"]
            name = "device memory" + (f" of process {own_pid(pid)}" if several else "")
            yield device, f"{name} (bytes)", row["time_ns"], row["total_bytes"]


def _text(value: Any) -> Any:
    """A text as UTF-8 can hold it; numbers as they are."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
