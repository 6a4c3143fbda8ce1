"""The runs recorded in artifacts/, copied and with ncu's tables made."""

from __future__ import annotations

import shutil
from pathlib import Path

from fiprof.model.run import Run
from fiprof.orchestrator.parse import parse_ncu
from tests.conftest import REPOSITORY


def recorded_names() -> list[str]:
    """What the runs are called after their date: ``all``, ``decode``, …"""
    return [path.name.split("-", 2)[2] for path in sorted(REPOSITORY.glob("artifacts/recorded/2*"))]


def counted_run(name: str, into: Path) -> Run:
    """A recorded run in the folder ``into``, with the tables that come from ncu."""
    original = next(REPOSITORY.glob(f"artifacts/recorded/2*-{name}"))
    folder = into / original.name
    shutil.copytree(original, folder, ignore=shutil.ignore_patterns("tables", "*.ncu-rep.xz", "nsys"))
    parse_ncu(folder)
    return Run(folder)
