"""The records of the runner, one JSON object a line: what it timed of each case, or why a case failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fiprof import confined
from fiprof.errors import FiprofError
from fiprof.model.json_file import MisfitError, convert
from fiprof.model.manifest import Gpu

T = TypeVar("T")


@dataclass(frozen=True)
class Reference:
    """How near a case came to its float32 reference."""

    relative_error: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class Baseline:
    """A case as the runner timed it, without a profiler; kind ``case``."""

    case: str
    gpu_us: tuple[float, ...] = ()
    """Each iteration, between CUDA events."""
    wall_us: float = float("nan")
    """Host time an iteration, back to back."""
    reference: Reference = Reference()
    """Empty where there is none or it was not checked."""
    rounds: int = 1
    """Turns that ``gpu_us`` is of, in their order, each with as many iterations."""
    wall_rounds_us: tuple[float, ...] = ()
    """``wall_us`` of each round; empty for a single one."""
    clock_recovered: tuple[bool, ...] = ()
    """Of each round, whether the SM clock was what it was at the start when it began; empty where it was not read."""
    plan: dict[str, bool | int | float | str] = field(default_factory=dict)
    """What the library planned, as far as it tells."""


@dataclass(frozen=True)
class CaseError:
    """Why a case failed by itself; kind ``error``."""

    case: str
    error: str


@dataclass(frozen=True)
class WorkloadEnvironment:
    """What the workload's process saw; kind ``environment``."""

    packages: dict[str, str | None] = field(default_factory=dict)
    gpu: Gpu | None = None


KINDS: Mapping[str, type] = {"case": Baseline, "error": CaseError, "environment": WorkloadEnvironment}
"""The key ``kind`` of a record -> its schema; records of other kinds are not looked at."""


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; none where there is no file. A last line cut short is left out.

    Raises FiprofError for a line that is no JSON object elsewhere in the file, or does not fit its kind.
    """
    return [record for record, _ in _read(path)]


def records(path: Path, kind: type[T]) -> list[T]:
    """The records of one kind of KINDS. Raises as :func:`read_jsonl`."""
    return [typed for _, typed in _read(path) if isinstance(typed, kind)]


def case_errors(path: Path) -> dict[str, str]:
    """Case id -> the error that one of the runner's files of results has for it."""
    return {record.case: record.error for record in records(path, CaseError)}


def _read(path: Path) -> list[tuple[dict[str, Any], object]]:
    """Each object of a file, and what it is by its kind; None where the kind is not known.

    NaN and infinities are read, which Python's writer of the records has.
    """
    import json

    if not path.exists():
        return []
    found: list[tuple[dict[str, Any], object]] = []
    number = 0
    try:
        lines = confined.read_bytes(path.parent, path.name).split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError) as error:
                if number == len(lines):
                    break
                raise MisfitError("no JSON object") from error
            if isinstance(record, dict):
                schema = KINDS.get(str(record.get("kind")))
                found.append((record, convert(record, schema) if schema else None))
            elif record is not None:
                raise MisfitError("no JSON object")
    except OSError as error:
        raise FiprofError(f"{path} cannot be read: {error.strerror}") from error
    except MisfitError as error:
        remedy = "it was changed by hand or damaged: restore it from a copy"
        raise FiprofError(f"{path}: line {number}: {error}", remedy) from error
    return found
