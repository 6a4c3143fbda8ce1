"""fiprof/reports/perfetto.py: the trace, read back with the package's own messages."""

from __future__ import annotations

import builtins
import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fiprof.errors import FiprofError
from fiprof.model.run import Run
from fiprof.reports import perfetto
from tests.reports_fixture import add, execution, make_run

pytest.importorskip("perfetto", reason="pip install 'fiprof[perfetto]'")


@dataclass
class Slice:
    track: int
    name: str
    category: str
    start_ns: int
    depth: int
    inside: str | None
    """The name of the slice around it."""
    notes: dict[str, Any]
    starts: list[int]
    ends: list[int]
    end_ns: int = -1


@dataclass
class Read:
    """A trace as the viewer reads it."""

    tracks: dict[int, Any] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    counters: dict[int, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def path(self, track: int) -> str:
        descriptor = self.tracks[track]
        name = descriptor.name or descriptor.thread.thread_name or descriptor.process.process_name
        return f"{self.path(descriptor.parent_uuid)} > {name}" if descriptor.parent_uuid else str(name)

    def of(self, category: str) -> list[Slice]:
        return [item for item in self.slices if item.category == category]


def read_trace(path: Path) -> Read:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    assert trace.packet[0].sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    texts: dict[tuple[str, int], str] = {}
    found = Read()
    events = []
    for packet in trace.packet:
        for kind, entries in packet.interned_data.ListFields():
            for entry in entries:
                texts[kind.name, entry.iid] = entry.str.decode() if hasattr(entry, "str") else entry.name
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in found.tracks
            found.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            # A text comes before it is used, also after the viewer has sorted by time: it reads them in order.
            events.append((packet.timestamp, packet.track_event, dict(_notes(packet.track_event, texts)), dict(texts)))
    open_: dict[int, list[Slice]] = defaultdict(list)
    for time_ns, event, notes, known in sorted(events, key=lambda item: item[0]):
        stack = open_[event.track_uuid]
        assert event.track_uuid in found.tracks
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            name, category = known["event_names", event.name_iid], known["event_categories", event.category_iids[0]]
            item = Slice(
                event.track_uuid, name, category, time_ns, len(stack), stack[-1].name if stack else None, notes,
                list(event.flow_ids), list(event.terminating_flow_ids),
            )  # fmt: skip
            stack.append(item)
            found.slices.append(item)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            stack.pop().end_ns = time_ns
        else:
            value = event.counter_value if event.HasField("counter_value") else event.double_counter_value
            found.counters[event.track_uuid].append((time_ns, value))
    assert not any(open_.values())
    return found


def _notes(event: Any, texts: Mapping[tuple[str, int], str]) -> Any:
    for note in event.debug_annotations:
        text = texts.get(("debug_annotation_string_values", note.string_value_iid))
        yield texts["debug_annotation_names", note.name_iid], note.int_value if note.HasField("int_value") else text


@pytest.fixture(scope="module")
def written(five_kernels: Run, tmp_path_factory: pytest.TempPathFactory) -> perfetto.Written:
    return perfetto.write(five_kernels, tmp_path_factory.mktemp("written") / "trace.pftrace")


@pytest.fixture(scope="module")
def trace(written: perfetto.Written) -> Read:
    return read_trace(written.path)


def spans(run: Run, table: str, name: str) -> Counter[tuple[str, int, int]]:
    """The rows of a table as the trace should have them."""
    rows = run.table(table).to_pylist()
    return Counter((row[name], row["start_ns"], row["end_ns"]) for row in rows)


def traced(trace: Read, category: str, origin_ns: int) -> Counter[tuple[str, int, int]]:
    return Counter((item.name, item.start_ns + origin_ns, item.end_ns + origin_ns) for item in trace.of(category))


ORIGIN_NS = 2440108540
"""The first CUDA call."""


@pytest.mark.parametrize(
    ("table", "name", "category", "count"),
    [
        ("kernels", "kernel", "kernel", 184),
        ("copies", "kind", "copy", 15),
        ("api", "name", "cuda", 443),
        ("ranges", "name", "nvtx", 132),
    ],
)
def test_every_row_is_a_slice(five_kernels: Run, trace: Read, table: str, name: str, category: str, count: int) -> None:
    assert len(trace.of(category)) == count
    assert traced(trace, category, ORIGIN_NS) == spans(five_kernels, table, name)


def test_where_the_slices_are(trace: Read) -> None:
    assert Counter(trace.path(item.track) for item in trace.slices) == {
        "process 2063 > thread 2063 > CUDA calls": 443,
        "process 2063 > thread 2063 > NVTX fiprof": 130,
        "process 2063 > thread 2063 > NVTX CCCL": 2,
        "GPU 0 > stream 7": 199,
    }


def test_ranges_are_nested_as_nvtx_nests_them(five_kernels: Run, trace: Read) -> None:
    rows = five_kernels.table("ranges").to_pylist()
    expected = Counter(
        (row["name"], row["depth"], None if row["parent"] is None else rows[row["parent"]]["name"]) for row in rows
    )
    assert Counter((item.name, item.depth, item.inside) for item in trace.of("nvtx")) == expected
    assert expected["iter 19", 2, "rmsnorm[rows=4096,hidden=4096,dtype=fp16]"] == 1


def test_an_arrow_from_the_call_to_each_kernel(written: perfetto.Written, trace: Read) -> None:
    calls = {flow: item for item in trace.of("cuda") for flow in item.starts}
    launched = [item for item in trace.slices if item.ends]
    assert len(launched) == len(calls) == written.arrows == 199
    assert sum(len(item.starts) for item in trace.of("cuda")) == len(calls)
    for item in launched:
        [flow] = item.ends
        assert calls[flow].notes["correlation"] == item.notes["correlation"]
        assert calls[flow].start_ns <= item.start_ns
    decode = [item for item in launched if item.name == "BatchDecodeWithPagedKVCacheKernel"]
    assert {calls[item.ends[0]].name for item in decode} == {"cudaLaunchKernelExC"}


def test_a_kernel_tells_what_it_is(trace: Read) -> None:
    prefill = [item for item in trace.of("kernel") if item.name == "PrefillWithKVCacheKernel"]
    notes = next(item.notes for item in prefill if item.notes.get("iteration") == 7)
    assert notes["kernel_full"].startswith("void flashinfer::PrefillWithKVCacheKernel<")
    assert {key: notes[key] for key in ("grid", "block", "registers", "phase")} == {
        "grid": "132x1x1",
        "block": "384x1x1",
        "registers": 168,
        "phase": "measure",
    }


def test_counters_hold_every_sample(five_kernels: Run, trace: Read) -> None:
    by_name = {trace.path(track): values for track, values in trace.counters.items()}
    assert set(by_name) == {
        *(f"GPU 0 > {name}" for name in perfetto.COUNTERS.values()),
        "GPU 0 > device memory",
    }
    tensor = by_name["GPU 0 > Tensor Active"]
    rows = [
        (row["time_ns"] - ORIGIN_NS, row["value"])
        for row in five_kernels.table("gpu_metrics").to_pylist()
        if row["metric"] == "Tensor Active [Throughput %]"
    ]
    assert len(rows) == 50
    # What each time shows is the last value at or before it: every sample, though repeated ones are left out.
    shown = [[value for at, value in tensor if at <= time_ns][-1] for time_ns, _ in rows]
    assert shown == [value for _, value in rows]
    assert all(before[1] != after[1] for before, after in itertools.pairwise(tensor))
    assert len(tensor) < len(rows)
    assert max(value for _, value in tensor) == 29.0
    assert max(value for _, value in by_name["GPU 0 > device memory"]) == max(
        row["total_bytes"] for row in five_kernels.table("memory").to_pylist()
    )


def test_kernels_that_overlap_are_beside_each_other(tmp_path: Path) -> None:
    run = make_run(
        tmp_path / "run",
        kernels=[execution(0, 100), execution(90, 200, "L"), execution(20, 30, "M"), execution(200, 210)],
    )
    perfetto.write(run, tmp_path / "t.pftrace")
    trace = read_trace(tmp_path / "t.pftrace")
    assert [(item.name, item.start_ns, item.end_ns, item.depth) for item in trace.slices] == [
        ("K", 0, 100, 0),
        ("M", 20, 30, 0),
        ("L", 90, 200, 0),
        ("K", 200, 210, 0),
    ]
    assert {trace.path(item.track) for item in trace.slices} == {"GPU 0 > stream 7"}
    assert len({item.track for item in trace.slices}) == 2


def test_a_graph_launch_has_an_arrow_to_each_of_its_kernels(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", kernels=[execution(10 * n, 10 * n + 5, correlation=3) for n in range(1, 4)])
    call = {"name": "cudaGraphLaunch", "start_ns": 0, "end_ns": 8, "pid": 1, "tid": 1, "correlation": 3}
    # The driver's call inside it has the same id; another process's has nothing to do with it.
    add(run, "api", [call, {**call, "name": "cuGraphLaunch", "start_ns": 1, "end_ns": 7}, {**call, "pid": 2}])
    written = perfetto.write(run, tmp_path / "t.pftrace")
    trace = read_trace(tmp_path / "t.pftrace")
    assert written.arrows == 3
    assert [(item.name, item.depth, item.starts) for item in trace.of("cuda") if item.starts] == [
        ("cudaGraphLaunch", 0, [1, 2, 3])
    ]
    assert sorted(item.ends for item in trace.of("kernel")) == [[1], [2], [3]]


def test_names_are_data_and_times_before_the_trace_are_kept(tmp_path: Path) -> None:
    name = "<script>\x1b[31m\ud800 k"
    run = make_run(tmp_path / "run", kernels=[execution(-50, 10, "K"), execution(20, 30, "<script>\x1b[31mλ")])
    add(run, "ranges", [{"domain": "", "name": "open", "start_ns": 5, "kind": "push_pop", "pid": 1, "tid": 1}])
    perfetto.write(run, tmp_path / "t.pftrace")
    trace = read_trace(tmp_path / "t.pftrace")
    assert [(item.name, item.start_ns, item.end_ns) for item in trace.slices] == [
        ("K", 0, 60),
        ("open", 55, 80),
        ("<script>\x1b[31mλ", 70, 80),
    ]
    assert trace.of("nvtx")[0].notes["note"] == "never ended"
    assert perfetto._text(name) == "<script>\x1b[31m\\ud800 k"


def test_a_file_that_cannot_be_written_leaves_nothing(
    five_kernels: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FiprofError, match="cannot be written: No such file") as caught:
        perfetto.write(five_kernels, tmp_path / "none" / "t.pftrace")
    assert "--perfetto" in caught.value.remedy
    (tmp_path / "t.pftrace").write_text("before")
    monkeypatch.setattr(perfetto, "_write_counters", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        perfetto.write(five_kernels, tmp_path / "t.pftrace")
    assert [path.name for path in tmp_path.iterdir()] == ["t.pftrace"]
    assert (tmp_path / "t.pftrace").read_text() == "before"


def test_without_the_package(five_kernels: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("perfetto"):
            raise ModuleNotFoundError("No module named 'perfetto'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FiprofError, match="the package perfetto is not installed") as caught:
        perfetto.write(five_kernels, tmp_path / "t.pftrace")
    assert caught.value.remedy == "pip install 'fiprof[perfetto]'"
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_trace(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", settings={"tools": ["ncu"]})
    with pytest.raises(FiprofError, match="has no trace"):
        perfetto.write(run, tmp_path / "t.pftrace")
