"""``fiprof timeline --perfetto``: the trace for ui.perfetto.dev, read back as a viewer reads it."""

import gzip
import itertools
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fiprof.cli.main import cli
from fiprof.model.run import Run
from tests.recorded_runs import refusal
from tests.reports_fixture import add, execution, make_run

Event = dict[str, Any]


class Trace:
    """The events of a trace; each slice has the ``path`` of its track and the slice ``inside`` which it is."""

    def __init__(self, run: Run, path: Path) -> None:
        done = CliRunner().invoke(cli, ["timeline", str(run.path), "--perfetto", str(path)])
        assert done.exit_code == 0
        self.words = done.stderr
        events: list[Event] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        named = [each for each in events if each["ph"] == "M"]
        names = {(each["name"], each["pid"], each.get("tid")): each["args"].get("name") for each in named}
        self.slices = [each for each in events if each["ph"] == "X"]
        self.flows = {phase: {each["id"]: each for each in events if each["ph"] == phase} for phase in "sf"}
        self.counters: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for each in events:
            if each["ph"] == "C":
                name = f"{names['process_name', each['pid'], None]} > {each['name']}"
                self.counters[name].append((each["ts"], each["args"]["value"]))
        open_: dict[int, list[Event]] = defaultdict(list)
        for each in self.slices:
            end, stack = round(each["ts"] + each["dur"], 3), open_[each["tid"]]
            while stack and round(stack[-1]["ts"] + stack[-1]["dur"], 3) <= each["ts"]:
                stack.pop()
            # In order, and wholly inside what is open on the same track.
            assert not stack or (stack[-1]["ts"] <= each["ts"] and end <= round(stack[-1]["ts"] + stack[-1]["dur"], 3))
            each["inside"], each["depth"] = (stack[-1]["name"] if stack else None), len(stack)
            process, thread = names["process_name", each["pid"], None], names["thread_name", each["pid"], each["tid"]]
            each["path"] = f"{process} > {thread}"
            stack.append(each)

    def of(self, category: str) -> list[Event]:
        return [each for each in self.slices if each["cat"] == category]


@pytest.fixture(scope="module")
def trace(five_kernels: Run, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return Trace(five_kernels, tmp_path_factory.mktemp("written") / "trace.json.gz")


ORIGIN_NS = 2440108540
"""The first CUDA call."""


def test_every_row_is_a_slice_and_ranges_are_nested_as_nvtx_nests_them(five_kernels: Run, trace: Trace) -> None:
    for table, name, category in (
        ("kernels", "kernel", "kernel"), ("copies", "kind", "copy"), ("api", "name", "cuda"), ("ranges", "name", "nvtx"),
    ):  # fmt: skip
        rows = five_kernels.table(table).to_pylist()
        found = [(each["name"], round(each["ts"] * 1e3), round(each["dur"] * 1e3)) for each in trace.of(category)]
        expected = [(row[name], row["start_ns"] - ORIGIN_NS, row["end_ns"] - row["start_ns"]) for row in rows]
        assert expected and Counter(found) == Counter(expected)
    nested = (
        (row["name"], row["depth"], None if row["parent"] is None else rows[row["parent"]]["name"]) for row in rows
    )
    assert Counter((each["name"], each["depth"], each["inside"]) for each in trace.of("nvtx")) == Counter(nested)


def test_an_arrow_from_the_call_to_each_kernel(trace: Trace) -> None:
    def at(category: tuple[str, ...]) -> dict[tuple[int, float], Event]:
        return {(each["tid"], each["ts"]): each for each in trace.slices if each["cat"] in category}

    calls, launched = at(("cuda",)), at(("kernel", "copy"))
    starts, ends = trace.flows["s"], trace.flows["f"]
    assert starts.keys() == ends.keys() == set(range(1, 200))
    for number, flow in ends.items():
        call = calls[starts[number]["tid"], starts[number]["ts"]]
        work = launched[flow["tid"], flow["ts"]]
        assert call["args"]["correlation"] == work["args"]["correlation"]
        assert call["ts"] <= work["ts"]


def test_counters_hold_every_sample(five_kernels: Run, trace: Trace) -> None:
    assert len(trace.counters) == 7
    assert "184 kernels, 15 copies, 443 CUDA calls, 132 NVTX ranges, 199 arrows" in trace.words
    tensor = trace.counters["GPU 0 > Tensor Active (%)"]
    samples = five_kernels.table("gpu_metrics").to_pylist()
    active = [row for row in samples if row["metric"] == "Tensor Active [Throughput %]"]
    rows = [((row["time_ns"] - ORIGIN_NS) / 1e3, row["value"]) for row in active]
    # What each time shows is the last value at or before it: every sample, though repeated ones are left out.
    assert [[value for at, value in tensor if at <= time][-1] for time, _ in rows] == [value for _, value in rows]
    assert all(before[1] != after[1] for before, after in itertools.pairwise(tensor))
    most = max(row["total_bytes"] for row in five_kernels.table("memory").to_pylist())
    assert max(value for _, value in trace.counters["GPU 0 > device memory (bytes)"]) == most


def test_kernels_that_overlap_are_beside_each_other(tmp_path: Path) -> None:
    rows = [execution(0, 100), execution(90, 200, "L"), execution(20, 30, "M"), execution(200, 210)]
    trace = Trace(make_run(tmp_path / "run", kernels=rows), tmp_path / "t.json.gz")
    assert sorted((each["ts"], each["name"], each["depth"]) for each in trace.slices) == [
        (0.0, "K", 0), (0.02, "M", 0), (0.09, "L", 0), (0.2, "K", 0),
    ]  # fmt: skip
    assert {each["path"] for each in trace.slices} == {"GPU 0 > stream 7"}
    assert len({each["tid"] for each in trace.slices}) == 2


def test_names_are_data_and_times_before_the_trace_are_kept(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", kernels=[execution(-50, 10, "K"), execution(20, 30, "<script>\x1b[31mλ")])
    add(run, "ranges", [{"domain": "", "name": "open", "start_ns": 5, "kind": "push_pop", "pid": 1, "tid": 1}])
    trace = Trace(run, tmp_path / "t.json.gz")
    found = {each["name"]: (each["ts"], each["dur"]) for each in trace.slices}
    assert found == {"K": (0.0, 0.06), "open": (0.055, 0.025), "<script>\x1b[31mλ": (0.07, 0.01)}
    assert trace.of("nvtx")[0]["args"]["note"] == "never ended"


def test_a_file_that_cannot_be_written(five_kernels: Run, tmp_path: Path) -> None:
    error = refusal("timeline", five_kernels.path, "--perfetto", tmp_path / "none/t.json.gz")
    assert "cannot be written: No such file" in error.message and "--perfetto" in error.remedy
    untraced = make_run(tmp_path / "run", settings={"tools": ["ncu"]})
    assert "has no trace" in refusal("timeline", untraced.path, "--perfetto", tmp_path / "t.json.gz").message
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
