"""What Python threads did: samples and waits for the interpreter's lock, from nsys's export to the name of host work."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fiprof.analysis.host import HostTimes, host_times
from fiprof.model import tables
from fiprof.model.run import Run
from tests.nsys_exports import PYTHON_THREADS, changed, query, recorded
from tests.reports_fixture import write_manifest

MAIN, BURNING = 5789, 5823
"""The threads of the recorded program: one launches steps, the other keeps the interpreter's lock."""


def run_of(folder: Path, rows: list[dict[str, Any]]) -> Run:
    """A run with these host samples alone."""
    (folder / "tables").mkdir()
    schema = tables.schema("host_samples")
    found = [{field.name: row.get(field.name) for field in schema} for row in rows]
    tables.write(folder / "tables", "host_samples", pa.Table.from_pylist(found, schema))
    write_manifest(folder)
    return Run(folder)


def told(times: HostTimes, tid: int, begins: list[int], ends: list[int], pid: int = 1) -> dict[str, int]:
    found = Counter[str]()
    for work, ns in times.during(pid << 32 | tid, np.array(begins), np.array(ends)).items():
        found[work.label] += ns
    return found


def test_samples_and_waits_are_those_of_the_export() -> None:
    """Against plain SQL; nsys's own thread, which takes the lock to look, has no part in it."""
    summary, found = recorded(PYTHON_THREADS)
    rows = found["host_samples"]
    assert not [sentence for sentence in summary.missing if "left out" in sentence]
    samples = [row for row in rows if row["end_ns"] is None]
    (raw,) = query(PYTHON_THREADS, "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 34 AND jsonText IS NOT NULL")[0]
    assert len(samples) == raw
    assert {row["tid"] for row in rows} == {MAIN, BURNING}
    assert {row["function"] for row in samples if row["tid"] == BURNING} == {"burn"}
    waits = [row for row in rows if row["tid"] == MAIN and row["end_ns"] is not None]
    name = "(SELECT id FROM StringIds WHERE value = 'Waiting for GIL')"
    of_main = f'SELECT sum("end" - start) FROM NVTX_EVENTS WHERE textId = {name} AND globalTid & 0xFFFFFF = {MAIN}'
    (all_ns,) = query(PYTHON_THREADS, of_main)[0]
    assert 0.98 * all_ns < sum(row["end_ns"] - row["start_ns"] for row in waits if row["holder"] == BURNING) <= all_ns
    # None of it is a phase of the program.
    assert {(row["domain"], row["name"]) for row in found["ranges"]} == {("", "step"), ("", "prepare")}


@pytest.mark.fault("payloads of samples that are none, or of files with control characters", "the others are read")
def test_payloads_that_are_none(tmp_path: Path) -> None:
    """Domains without a number too."""
    bad = ["", "{", "[]", "[" * 100_000, '{"Python Periodic Sampling": {"Frames": [{"Function": "x"}]}}']
    samples = query(PYTHON_THREADS, "SELECT rowid FROM NVTX_EVENTS WHERE eventType = 34")
    spoilt = zip(samples, bad, strict=False)
    summary, found = changed(
        tmp_path,
        *(f"UPDATE NVTX_EVENTS SET jsonText = '{text}' WHERE rowid = {row}" for (row,), text in spoilt),
        "UPDATE StringIds SET value = 'burn&#27;[31m' WHERE value = 'burn'",
        "INSERT INTO NVTX_EVENTS (eventType, start, globalTid, text) VALUES (75, 1, 1, 'GIL Trace')",
        source=PYTHON_THREADS,
    )
    assert summary.rows["host_samples"] == recorded(PYTHON_THREADS)[0].rows["host_samples"] - len(bad)
    functions = {row["function"] for row in found["host_samples"]} - {None}
    assert "forward" in functions and not any("\x1b" in each for each in functions)


def test_what_a_thread_did_in_a_stretch(tmp_path: Path) -> None:
    """A sample tells of the time since the one before; a wait is what it is; the line and the call seen most."""
    main = {"pid": 1, "tid": 1, "source": "/app/train.py"}
    rows: list[dict[str, Any]] = [
        *({**main, "start_ns": at, "function": "prepare", "line": 3 + (at > 30)} for at in range(10, 60, 10)),
        *({**main, "start_ns": at, "function": "<module>", "line": 9, "called": "__next__ (torch/x.py)"} for at in (60, 70)),
        *({**main, "start_ns": at, "function": "<module>", "line": 12} for at in (80, 90)),
        *({"pid": 1, "tid": 2, "start_ns": at, "function": "burn", "source": "b.py"} for at in range(5, 100, 10)),
        {"pid": 1, "tid": 1, "start_ns": 22, "end_ns": 38, "holder": 2},
        {"pid": 1, "tid": 1, "start_ns": 82, "end_ns": 84},
    ]  # fmt: skip
    times = host_times(run_of(tmp_path, sorted(rows, key=lambda row: row["start_ns"])))
    assert told(times, 1, [0], [200]) == {
        "prepare (train.py:3)": 34, "waiting for the GIL, held by burn (b.py)": 16,
        "<module> (train.py:9), in __next__ (torch/x.py)": 20, "<module> (train.py:12)": 18, "waiting for the GIL": 2,
    }  # fmt: skip
    assert told(times, 1, [15, 55], [24, 65]) == {
        "prepare (train.py:3)": 7, "waiting for the GIL, held by burn (b.py)": 2,
        "<module> (train.py:9), in __next__ (torch/x.py)": 10,
    }  # fmt: skip
    assert told(times, 3, [0], [200]) == {}
