"""A run folder, opened for reading."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.model.manifest import CaseEntry, Manifest, read_manifest

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True)
class Baseline:
    """A case as the runner timed it, without a profiler."""

    case: str
    gpu_us: tuple[float, ...]
    """Each iteration, between CUDA events."""
    wall_us: float
    """Host time an iteration, back to back."""
    relative_error: float | None
    """Against the float32 reference; None where there is none or it was not checked."""
    tolerance: float | None
    rounds: int = 1
    """Turns that ``gpu_us`` is of, in their order, each with as many iterations."""
    plan: dict[str, bool | int | float | str] = field(default_factory=dict)
    """What the library planned, as far as it tells."""


@dataclass(frozen=True)
class Run:
    """A run folder. Nothing is read before it is asked for."""

    path: Path

    @functools.cached_property
    def manifest(self) -> Manifest:
        return read_manifest(self.path)

    @property
    def tables_path(self) -> Path:
        return self.path / "tables"

    @property
    def parsed(self) -> bool:
        """Whether the run has any table yet."""
        return any(self.tables_path.glob("*.parquet"))

    def has(self, table: str) -> bool:
        return tables.table_path(self.tables_path, table).exists()

    def table(self, name: str) -> pa.Table:
        """A table as Arrow. Raises FiprofError where it is missing or damaged."""
        return tables.read(self.tables_path, name)

    def frame(self, name: str) -> pd.DataFrame:
        """A table as a DataFrame. Raises FiprofError where it is missing or damaged."""
        return tables.read_frame(self.tables_path, name)

    def case(self, case_id: str) -> CaseEntry | None:
        return next((case for case in self.manifest.cases if case.id == case_id), None)

    @functools.cached_property
    def baseline(self) -> dict[str, Baseline]:
        """Case id -> the runner's timings; empty where the run has none."""
        return {
            record["case"]: Baseline(
                case=record["case"],
                gpu_us=tuple(record.get("gpu_us", ())),
                wall_us=record.get("wall_us", float("nan")),
                relative_error=record.get("reference", {}).get("relative_error"),
                tolerance=record.get("reference", {}).get("tolerance"),
                rounds=record.get("rounds", 1),
                plan=record.get("plan", {}),
            )
            for record in read_jsonl(self.path / "baseline.jsonl")
            if record.get("kind") == "case"
        }

    @functools.cached_property
    def case_errors(self) -> dict[str, str]:
        """Case id -> why it failed, of those that failed by themselves in the plain run."""
        return case_errors(self.path / "baseline.jsonl")


def case_errors(path: Path) -> dict[str, str]:
    """Case id -> the error that one of the runner's files of results has for it."""
    return {record["case"]: record["error"] for record in read_jsonl(path) if record.get("kind") == "error"}


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; none where there is no file. A last line cut short is left out.

    Raises FiprofError for a line that is no JSON object elsewhere in the file.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif line.strip() and number < len(lines):
            raise FiprofError(f"{path}: line {number} is not a JSON object", "the file was changed by hand or damaged")
    return records
