"""A run's trace in Perfetto's format: ui.perfetto.dev opens it.

Written with Google's own package ``perfetto``, packet by packet: https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fiprof.analysis import samples
from fiprof.errors import FiprofError
from fiprof.files import atomic_write, file_errors
from fiprof.model.formula import Row
from fiprof.model.run import Run
from fiprof.model.schemas import own_pid
from fiprof.reports.words import phrase

EXTRA = "pip install 'fiprof[perfetto]'"
COUNTERS = {
    "sms_active": "SMs Active",
    "sm_issue": "SM Issue",
    "tensor_active": "Tensor Active",
    "dram_read": "DRAM Read",
    "dram_write": "DRAM Write",
    "warps": "Compute Warps in Flight",
}
"""Key of a sampled metric -> the name of its track."""
SEQUENCE = 1
"""All packets are of one writer."""


@dataclass(frozen=True)
class Written:
    """What a trace holds."""

    path: Path
    bytes: int
    kernels: int
    copies: int
    calls: int
    ranges: int
    arrows: int
    """From a CUDA call to the kernel or copy that it launched."""
    counter_values: int
    """A value that is the one before is left out."""


def sentence(written: Written) -> str:
    """What was written, for the user."""
    return phrase("perfetto.written", **vars(written))


def write(run: Run, path: Path) -> Written:
    """Write the trace of a run: all phases, whole or not at all. A file that is there is replaced.

    Times are those of the tables, moved so that the earliest is 0: the format has none before.

    Raises FiprofError where the run has no trace, the package is missing, or the file cannot be written.
    """
    if not run.has("kernels"):
        raise FiprofError(
            f"{run.manifest.name} has no trace",
            run.remedy("--tool nsys,ncu"),
            why=run.missing("nsys"),
        )
    builder, messages = _package()
    elsewhere = "name another file with --perfetto"
    with file_errors(path, elsewhere), atomic_write(path) as partial, partial.open("wb") as file:
        trace = _Trace(builder(file), messages)
        counts = _fill(trace, run)
    return Written(path, path.stat().st_size, **counts)


def _package() -> tuple[Any, Any]:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
    except Exception as error:  # an old protobuf raises its own kinds
        missing = isinstance(error, ModuleNotFoundError)
        what = "the package perfetto is not installed" if missing else f"the package perfetto cannot be used: {error}"
        raise FiprofError(f"no trace for Perfetto: {what}", EXTRA) from error
    return StreamingTraceProtoBuilder, perfetto_trace_pb2


@dataclass
class _Slice:
    """Something with a start and an end."""

    start_ns: int
    end_ns: int
    name: str
    category: str
    details: dict[str, str | int | None]
    starts: Sequence[int] = ()
    """Flows that begin here."""
    ends: Sequence[int] = ()
    """Flows that end here."""


class _Trace:
    """Packets of one sequence; every text is written once and then named by its number."""

    def __init__(self, builder: Any, messages: Any) -> None:
        self._builder = builder
        self._event = messages.TrackEvent
        self._cleared = messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._needed = messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        self._bytes = messages.CounterDescriptor.UNIT_SIZE_BYTES
        self._by_name = messages.TrackDescriptor.LEXICOGRAPHIC
        self._numbers: dict[str, dict[str, int]] = defaultdict(dict)
        self._tracks = 0
        self._packets = 0
        self.origin_ns = 0

    # Tracks

    def track(self, name: str, parent: int | None = None) -> int:
        """A track under another one; its number."""
        with self._new_track(parent) as descriptor:
            descriptor.name = _text(name)
            descriptor.child_ordering = self._by_name
        return self._tracks

    def process(self, pid: int) -> int:
        with self._new_track() as descriptor:
            descriptor.process.pid = pid
            descriptor.process.process_name = f"process {own_pid(pid)}"
        return self._tracks

    def thread(self, pid: int, tid: int, process: int) -> int:
        with self._new_track(process) as descriptor:
            descriptor.thread.pid = pid
            descriptor.thread.tid = tid
            descriptor.thread.thread_name = f"thread {tid}"
        return self._tracks

    def counter(self, name: str, parent: int, *, percent: bool) -> int:
        """Of percent, or of bytes."""
        with self._new_track(parent) as descriptor:
            descriptor.name = _text(name)
            if percent:
                descriptor.counter.unit_name = "%"
            else:
                descriptor.counter.unit = self._bytes
        return self._tracks

    @contextlib.contextmanager
    def _new_track(self, parent: int | None = None) -> Iterator[Any]:
        """The descriptor of a track, to be filled in the block; its number is that of the tracks then."""
        self._tracks += 1
        packet = self._packet()
        packet.track_descriptor.uuid = self._tracks
        if parent is not None:
            packet.track_descriptor.parent_uuid = parent
        yield packet.track_descriptor
        self._builder.write_packet(packet)

    # Events

    def slices(self, name: str, parent: int, slices: Iterable[_Slice], *, nested: bool) -> int:
        """Slices under a track of this name. Returns how many.

        Those that overlap go to further tracks of the same name, which the viewer shows as one. nested: a slice
        inside another is on the same track.
        """
        count = 0
        lanes: list[tuple[int, list[_Slice]]] = []
        for item in sorted(slices, key=lambda item: (item.start_ns, -item.end_ns)):
            count += 1
            for track, open_ in lanes:
                while open_ and open_[-1].end_ns <= item.start_ns:
                    self._end(track, open_.pop())
                if not open_ or (nested and item.end_ns <= open_[-1].end_ns):
                    break
            else:
                track, open_ = self.track(name, parent), []
                lanes.append((track, open_))
            self._begin(track, item)
            open_.append(item)
        for track, open_ in lanes:
            while open_:
                self._end(track, open_.pop())
        return count

    def value(self, track: int, time_ns: int, value: float | int) -> None:
        """A counter's value from this time on."""
        packet = self._at(track, time_ns, self._event.TYPE_COUNTER)
        if isinstance(value, int):
            packet.track_event.counter_value = value
        else:
            packet.track_event.double_counter_value = value
        self._builder.write_packet(packet)

    def _begin(self, track: int, item: _Slice) -> None:
        packet = self._at(track, item.start_ns, self._event.TYPE_SLICE_BEGIN)
        event = packet.track_event
        event.name_iid = self._number(packet, "event_names", item.name)
        event.category_iids.append(self._number(packet, "event_categories", item.category))
        event.flow_ids.extend(item.starts)
        event.terminating_flow_ids.extend(item.ends)
        for key, value in item.details.items():
            if value is None:
                continue
            note = event.debug_annotations.add()
            note.name_iid = self._number(packet, "debug_annotation_names", key)
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value_iid = self._number(packet, "debug_annotation_string_values", value)
        self._builder.write_packet(packet)

    def _end(self, track: int, item: _Slice) -> None:
        self._builder.write_packet(self._at(track, item.end_ns, self._event.TYPE_SLICE_END))

    def _at(self, track: int, time_ns: int, kind: int) -> Any:
        packet = self._packet()
        packet.timestamp = time_ns - self.origin_ns
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.sequence_flags = self._needed if self._packets else self._cleared
        self._packets += 1
        return packet

    def _number(self, packet: Any, field: str, text: str) -> int:
        """The number of a text; the packet brings the text along the first time."""
        numbers = self._numbers[field]
        if text not in numbers:
            numbers[text] = len(numbers) + 1
            entry = getattr(packet.interned_data, field).add()
            entry.iid = numbers[text]
            if field == "debug_annotation_string_values":
                entry.str = _text(text).encode()
            else:
                entry.name = _text(text)
        return numbers[text]


def _text(text: str) -> str:
    """As UTF-8 can hold it."""
    return text.encode("utf-8", "backslashreplace").decode()


# The run's tables

_KERNEL = (
    "start_ns", "end_ns", "device", "stream", "pid", "kernel", "kernel_full", "grid", "block", "registers",
    "shared_bytes", "graph_node", "phase", "case", "iteration", "correlation",
)  # fmt: skip
_COPY = ("start_ns", "end_ns", "bytes", "kind", "device", "stream", "pid", "phase", "case", "iteration", "correlation")
_KERNEL_DETAILS = (*_KERNEL[6:15], "correlation")
_COPY_DETAILS = ("bytes", "phase", "case", "iteration", "correlation")
_CALL = ("name", "start_ns", "end_ns", "pid", "tid", "correlation", "status")
_RANGE = ("domain", "name", "start_ns", "end_ns", "kind", "pid", "tid")
_MEMORY = ("time_ns", "device", "pid", "total_bytes")


def _fill(trace: _Trace, run: Run) -> dict[str, int]:
    """Write everything. Returns the counts of :class:`Written`."""
    kernels, copies, calls = _timed(run, "kernels", _KERNEL), _timed(run, "copies", _COPY), _timed(run, "api", _CALL)
    ranges = [row for row in run.rows("ranges", _RANGE) if row["start_ns"] is not None]
    memory = [row for row in run.rows("memory", _MEMORY) if None not in (row["time_ns"], row["total_bytes"])]
    sampled = samples.read(run)
    starts = [row["start_ns"] for rows in (kernels, copies, calls, ranges) for row in rows]
    starts += [row["time_ns"] for row in memory] + [int(item.times[0]) for item in sampled.values()]
    trace.origin_ns = min(starts, default=0)
    last_ns = max(
        (row["end_ns"] or row["start_ns"] for rows in (kernels, copies, calls, ranges) for row in rows), default=0
    )

    launched = [*kernels, *copies]
    callers = {(row["pid"], row["correlation"]) for row in calls if row["correlation"] is not None}
    arrows: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for number, row in enumerate(launched, 1):
        if (row["pid"], row["correlation"]) in callers:
            arrows[row["pid"], row["correlation"]].append(number)

    _write_threads(trace, calls, ranges, arrows, last_ns)
    gpus = functools.cache(lambda device: trace.track(f"GPU {device}"))
    streams: dict[tuple[int, Any, Any], list[_Slice]] = defaultdict(list)
    pids = {row["pid"] for row in launched}
    for number, row in enumerate(launched, 1):
        ends = [number] if (row["pid"], row["correlation"]) in callers else []
        what = ("kernel", "kernel", _KERNEL_DETAILS) if number <= len(kernels) else ("copy", "kind", _COPY_DETAILS)
        item = _launched(row, ends, *what)
        streams[row["device"] or 0, row["stream"], row["pid"]].append(item)
    for (device, stream, pid), slices in sorted(streams.items(), key=lambda item: tuple(n or 0 for n in item[0])):
        name = f"stream {stream}" + (f" of process {own_pid(pid)}" if len(pids) > 1 else "")
        # A kernel inside another one's time is not part of it.
        trace.slices(name, gpus(device), slices, nested=False)
    return {
        "kernels": len(kernels),
        "copies": len(copies),
        "calls": len(calls),
        "ranges": len(ranges),
        "arrows": sum(map(len, arrows.values())),
        "counter_values": _write_counters(trace, gpus, sampled, memory),
    }


def _timed(run: Run, table: str, columns: Sequence[str]) -> list[Row]:
    """The rows that have a start and an end."""
    return [
        row
        for row in run.rows(table, columns)
        if row["start_ns"] is not None and row["end_ns"] is not None and row["start_ns"] <= row["end_ns"]
    ]


def _write_threads(
    trace: _Trace,
    calls: Sequence[Row],
    ranges: Sequence[Row],
    arrows: dict[tuple[Any, Any], list[int]],
    last_ns: int,
) -> None:
    by_thread: dict[tuple[int, int], dict[str, list[_Slice]]] = defaultdict(lambda: defaultdict(list))
    for row in ranges:
        open_ = row["end_ns"] is None
        details = {"domain": row["domain"] or None, "note": "never ended" if open_ else None}
        end_ns = max(row["start_ns"], last_ns if open_ else row["end_ns"])
        item = _Slice(row["start_ns"], end_ns, row["name"] or "", "nvtx", details)
        by_thread[row["pid"] or 0, row["tid"] or 0][f"NVTX {row['domain'] or ''}".strip()].append(item)
    left = dict(arrows)
    for row in calls:
        # A runtime call and the driver call inside it can share their id: one arrow, from the first.
        starts = left.pop((row["pid"], row["correlation"]), [])
        details = {"correlation": row["correlation"], "status": row["status"] or None}
        item = _Slice(row["start_ns"], row["end_ns"], row["name"] or "", "cuda", details, starts=starts)
        by_thread[row["pid"] or 0, row["tid"] or 0]["CUDA calls"].append(item)
    processes: dict[int, int] = {}
    for (pid, tid), tracks in sorted(by_thread.items()):
        if pid not in processes:
            processes[pid] = trace.process(pid)
        thread = trace.thread(pid, tid, processes[pid])
        for name, slices in sorted(tracks.items(), reverse=True):
            trace.slices(name, thread, slices, nested=True)


def _launched(row: Row, ends: Sequence[int], category: str, name: str, details: Sequence[str]) -> _Slice:
    """A kernel or a copy. name: the column of its name."""
    values = {key: _whole(row[key]) for key in details}
    return _Slice(row["start_ns"], row["end_ns"], row[name] or "", category, values, ends=ends)


def _whole(value: Any) -> str | int | None:
    return value if value is None or isinstance(value, str) else int(value)


def _write_counters(
    trace: _Trace, gpu: Callable[[int], int], sampled: dict[int, samples.Samples], memory: Sequence[Row]
) -> int:
    """Returns the values written. A sample's time is where it begins, so that each holds until the next.

    gpu: the track of a GPU.
    """
    import numpy as np

    count = 0
    for device, metrics in sorted(sampled.items()):
        for key, name in COUNTERS.items():
            if key not in metrics.series:
                continue
            times, values = metrics.series[key]
            changed = np.flatnonzero(np.diff(values, prepend=np.nan))
            track = trace.counter(name, gpu(device), percent=True)
            for time_ns, value in zip(times[changed].tolist(), values[changed].tolist(), strict=True):
                trace.value(track, int(time_ns), value)
            count += len(changed)
    several = len({row["pid"] for row in memory}) > 1
    held: dict[tuple[int, Any], tuple[int, int]] = {}
    for row in sorted(memory, key=lambda row: row["time_ns"]):
        device, pid = owner = row["device"] or 0, row["pid"]
        if owner not in held:
            name = "device memory" + (f" of process {own_pid(pid)}" if several else "")
            held[owner] = trace.counter(name, gpu(device), percent=False), -1
        track, last = held[owner]
        if last != row["total_bytes"]:
            held[owner] = track, row["total_bytes"]
            trace.value(track, row["time_ns"], row["total_bytes"])
            count += 1
    return count
