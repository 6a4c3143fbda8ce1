"""Run folders for the tests of the reports: the recorded H200 run, and small made-up ones.

``python -m tests.reports_fixture`` writes the snapshots in tests/data/reports anew; read the difference before you
commit it.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from fiprof.analysis import checks
from fiprof.analysis.show import show
from fiprof.analysis.stalls import stalls
from fiprof.model import metrics, tables
from fiprof.model.manifest import CaseEntry, Manifest
from fiprof.model.run import Run
from fiprof.parsers import ncu, nsys
from fiprof.reports import show_document
from fiprof.reports import stalls as stalls_report
from fiprof.reports.view import render

DATA = Path(__file__).parent / "data"
SNAPSHOTS = DATA / "reports"
RAW = DATA / "ncu/full.raw.csv"
SQLITE = DATA / "nsys/h200-five-kernels.sqlite"
BASELINE = SNAPSHOTS / "baseline.jsonl"

GPU_STATE = {"sm_clock_mhz": 1980, "max_sm_clock_mhz": 1980, "other_processes": []}

Rows = Iterable[Mapping[str, Any]]


def write_manifest(folder: Path, **changes: Any) -> None:
    manifest = Manifest(
        **{
            "name": folder.name,
            "status": "complete",
            "started": "2026-11-21T10:45:00+01:00",
            "duration_s": 31.2,
            "cases": [],
            "settings": {"tools": ["nsys", "ncu"], "clock_control": "none", "cache_control": "all"},
            "environment": {
                "gpu": {"name": "NVIDIA H200", "l2_bytes": 62914560},
                "gpu_state": {"before": GPU_STATE, "after": GPU_STATE},
            },
            "actions": [],
            "fiprof": "0.1.0",
            **changes,
        }
    )
    (folder / "run.json").write_bytes(manifest.to_json())


def recorded_cases() -> list[CaseEntry]:
    records = [json.loads(line) for line in BASELINE.read_text().splitlines()]
    return [CaseEntry(r["case"], r["workload"], r["params"], **r["cost"]) for r in records if r["kind"] == "case"]


def record_run(folder: Path, *, ncu_raw: Path | None = RAW, trace: bool = True, plain: bool = True) -> Run:
    """The run of all five kernels as an H200 gave it, or a part of it, with its checks."""
    (folder / "tables").mkdir(parents=True)
    write_manifest(folder, cases=recorded_cases())
    if plain:
        shutil.copy(BASELINE, folder / "baseline.jsonl")
    if ncu_raw:
        ncu.parse(ncu_raw, folder / "tables")
    if trace:
        nsys.parse(SQLITE, folder / "tables")
    tables.write(folder / "tables", "checks", checks.compute(Run(folder)))
    return Run(folder)


def case(
    case_id: str = "mine[rows=8]", *, flops: int = 1000, bytes_read: int = 1000, bytes_written: int = 0
) -> CaseEntry:
    name, _, items = case_id.partition("[")
    params = [item.partition("=") for item in items.removesuffix("]").split(",")]
    return CaseEntry(case_id, name, {key: value for key, _, value in params}, flops, bytes_read, bytes_written)


def make_run(
    folder: Path,
    *,
    launches: Rows | None = None,
    reasons: Rows | None = None,
    kernels: Rows | None = None,
    gpu_us: Mapping[str, list[float]] | None = None,
    **manifest: Any,
) -> Run:
    """A run with these rows; columns that a row does not name are null. A table that is not given is not there."""
    (folder / "tables").mkdir(parents=True)
    write_manifest(folder, **{"cases": [case()], **manifest})
    for name, rows in (("launches", launches), ("stalls", reasons), ("kernels", kernels)):
        if rows is not None:
            tables.write(folder / "tables", name, _table(name, rows))
    if gpu_us is not None:
        lines = [json.dumps({"kind": "case", "case": case_id, "gpu_us": times}) for case_id, times in gpu_us.items()]
        (folder / "baseline.jsonl").write_text("\n".join(lines) + "\n")
    return Run(folder)


def _table(name: str, rows: Rows) -> pa.Table:
    schema = tables.schema(name)
    if name == "launches":
        for column in metrics.COLUMNS:
            if column not in schema.names:
                schema = schema.append(pa.field(column, pa.float64()))
    return pa.Table.from_pylist([{column: row.get(column) for column in schema.names} for row in rows], schema=schema)


def snapshots(run: Run) -> dict[str, str]:
    """File name -> what the reports print for the recorded run."""
    stalled = stalls_report.document(stalls(run))
    figures = show_document.document(show(run))
    return {
        "stalls.txt": render(stalled, "table", width=120),
        "stalls-terminal.txt": render(stalled, "table", width=100, colour=True, bars=True),
        "stalls.md": render(stalls_report.document(stalls(run, kernel="merge")), "md"),
        "stalls.csv": render(stalls_report.document(stalls(run, kernel="merge"), top=3), "csv"),
        "show.txt": render(figures, "table", width=120),
        "show-80.txt": render(show_document.document(show(run), width=80), "table", width=80),
        "show.md": render(figures, "md"),
        "show.json": render(show_document.document(show(run)), "json"),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = record_run(Path(folder) / "recorded")
        for name, text in snapshots(run).items():
            (SNAPSHOTS / name).write_text(text + "\n", encoding="utf-8")
            sys.stdout.write(f"{SNAPSHOTS / name}\n")


if __name__ == "__main__":
    main()
