"""Run folders for the tests of the reports: the recorded H200 run, and small made-up ones.

``python -m tests.reports_fixture`` writes the snapshots in tests/data/reports anew; read the difference before you
commit it.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fiprof.analysis import checks
from fiprof.model import quantities, tables
from fiprof.model.manifest import Action, CaseEntry, Manifest
from fiprof.model.run import Run
from fiprof.parsers import ncu, nsys
from fiprof.reports.report import report
from tests.recorded_runs import invoke, parsed, session_folder

DATA = Path(__file__).parent / "data"
SNAPSHOTS = DATA / "reports"
RAW = DATA / "ncu/full.raw.csv"
SQLITE = DATA / "nsys/h200-five-kernels.sqlite"
BASELINE = SNAPSHOTS / "baseline.jsonl"

GPU_STATE = {"sm_clock_mhz": 1980, "max_sm_clock_mhz": 1980, "other_processes": []}

Rows = Iterable[Mapping[str, Any]]


def write_manifest(folder: Path, **changes: Any) -> None:
    gpu_state = {"before": GPU_STATE, "after": GPU_STATE}
    known: dict[str, Any] = {
        "name": folder.name, "status": "complete", "started": "2026-11-21T10:45:00+01:00", "duration_s": 31.2, "cases": [],
        "settings": {"tools": ["nsys", "ncu"], "clock_control": "none", "cache_control": "all"}, "actions": [],
        "environment": {"gpu": {"name": "NVIDIA H200", "l2_bytes": 62914560}, "gpu_state": gpu_state}, "fiprof": "0.1.0",
    }  # fmt: skip
    (folder / "run.json").write_bytes(Manifest(**{**known, **changes}).to_json())


def recorded_cases() -> list[CaseEntry]:
    records = [json.loads(line) for line in BASELINE.read_text().splitlines()]
    return [CaseEntry(r["case"], r["workload"], r["params"], **r["cost"]) for r in records if r["kind"] == "case"]


def record_run(folder: Path, *, ncu_raw: Path | None = RAW, trace: bool = True) -> Run:
    """The run of all five kernels as an H200 gave it, or a part of it, with its checks."""
    (folder / "tables").mkdir(parents=True)
    write_manifest(folder, cases=recorded_cases())
    shutil.copy(BASELINE, folder / "baseline.jsonl")
    if ncu_raw:
        ncu.parse(ncu_raw, folder / "tables")
    if trace:
        nsys.parse(SQLITE, folder / "tables")
    tables.write(folder / "tables", "checks", checks.compute(Run(folder)))
    return Run(folder)


def case(text: str = "mine[rows=8]", *, flops: int = 1000, bytes_read: int = 1000, bytes_written: int = 0) -> CaseEntry:
    name, _, items = text.partition("[")
    params = [item.partition("=") for item in items.removesuffix("]").split(",")]
    return CaseEntry(text, name, {key: value for key, _, value in params}, flops, bytes_read, bytes_written)


def make_run(
    folder: Path,
    *,
    launches: Rows | None = None,
    reasons: Rows | None = None,
    kernels: Rows | None = None,
    gpu_us: Mapping[str, list[float]] | None = None,
    wall_us: float | None = None,
    **manifest: Any,
) -> Run:
    """A run with these rows; columns that a row does not name are null. A table that is not given is not there."""
    (folder / "tables").mkdir(parents=True)
    write_manifest(folder, **{"cases": [case()], **manifest})
    for name, rows in (("launches", launches), ("stalls", reasons), ("kernels", kernels)):
        if rows is not None:
            add(Run(folder), name, rows)
    if gpu_us is not None:
        both = {"kind": "case"} | ({"wall_us": wall_us} if wall_us else {})
        lines = [json.dumps(both | {"case": case_id, "gpu_us": times}) for case_id, times in gpu_us.items()]
        (folder / "baseline.jsonl").write_text("\n".join(lines) + "\n")
    return Run(folder)


def ended(step: str, argv: list[str] | None = None, **values: Any) -> Action:
    """A command of a run that ended well, unless the values say else."""
    known = {"env": {}, "started": "2026-11-21T10:45:00+01:00", "duration_s": 1.0, "exit_status": 0, "outcome": "ok"}
    return Action(step, argv or [step], **{**known, "log": f"logs/{step}.log", **values})


def execution(start_ns: int, end_ns: int, kernel: str = "K", **values: Any) -> dict[str, Any]:
    """A row of the table kernels: measured, in the case of :func:`case`."""
    return {
        "start_ns": start_ns, "end_ns": end_ns, "duration_ns": end_ns - start_ns, "device": 0, "stream": 7, "pid": 1,
        "kernel": kernel, "kernel_full": kernel, "grid": "8x1x1", "block": "32x1x1", "phase": "measure",
        "case": "mine[rows=8]", "iteration": 0, **values,
    }  # fmt: skip


def add(run: Run, name: str, rows: Rows) -> None:
    """A table of these rows for a run that lacks it. Columns that a row does not name are null, or 0 where a row of the
    table always has a number."""
    schema = tables.schema(name)
    zero = {each.name: 0 for each in tables.TABLES[name].columns if each.required and each.kind.startswith("int")}
    if name == "launches":
        for column in quantities.COLUMNS:
            if column not in schema.names:
                schema = schema.append(pa.field(column, pa.float64()))
    whole = [{**dict.fromkeys(schema.names), **zero, **row} for row in rows]
    tables.write(run.tables_path, name, pa.Table.from_pylist(whole, schema=schema))


PRINTED = {
    "verdict.txt": ("verdict",), "hotspots.txt": ("hotspots", "--top", "1"), "timeline.txt": ("timeline",),
    "stalls.txt": ("stalls",), "stalls.md": ("stalls", "--kernel", "merge", "--format", "md"),
    "stalls.csv": ("stalls", "--kernel", "merge", "--reasons", "3", "--format", "csv"), "roofline.txt": ("roofline",),
    "show.txt": ("show",),
}  # fmt: skip
"""File -> what is asked of the recorded run of all five kernels; programs' answers are golden (tests/golden.py)."""


def snapshots() -> dict[str, str]:
    """File name -> what a command prints, or the beginning of a report as Markdown."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        printed = {name: invoke(words[0], str(parsed("all").path), *words[1:])[1] for name, words in PRINTED.items()}
    for name in ("all", "decode", "single-purpose", "troubles"):
        lines = report([parsed(name)]).markdown().splitlines()[:60]  # its answer; the rest is what commands print
        printed[f"report-{name}.md"] = "\n".join(lines) + "\n"
    return printed


def main() -> None:
    os.environ.setdefault("FIPROF_TEST_SESSION", "snapshots")
    for name, text in snapshots().items():
        (SNAPSHOTS / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{SNAPSHOTS / name}\n")
    shutil.rmtree(session_folder(), ignore_errors=True)


if __name__ == "__main__":
    main()
