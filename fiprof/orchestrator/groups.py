"""The launches of a trace by kernel, grid and block, and those that ncu met again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fiprof.analysis.program import Shape, shape
from fiprof.model import tables
from fiprof.model.layout import TABLES
from fiprof.model.run import Run
from fiprof.orchestrator.choosing import Group
from fiprof.text import kernel_identity

KEYS = ["kernel_mangled", "kernel", "kernel_full", "grid", "block"]


def traced_groups(folder: Path, ranges: Sequence[str]) -> tuple[list[Group], int]:
    """The groups of a run's trace, and the time of all its kernels in ns.

    ranges: only kernels launched in one of these NVTX ranges, NAME or DOMAIN@NAME; all of them without.
    """
    import numpy as np
    import pyarrow.compute as pc

    from fiprof.analysis.trace import SEPARATOR, kernel_phases, phases, sums

    run = Run(folder)
    kernels = run.table("kernels", [*KEYS, "duration_ns"])
    total_ns = pc.sum(kernels["duration_ns"]).as_py() or 0
    if ranges:
        names = {name.rpartition("@")[2] for name in ranges}
        inside = [bool(names.intersection(path.split(SEPARATOR))) for path in phases(run).paths]
        kernels = kernels.filter(np.append(inside, False)[kernel_phases(run)])
    found = sums(kernels.unify_dictionaries(), KEYS).to_pylist()
    return [Group(*row.values()) for row in found if row["kernel_mangled"]], total_ns


def profiled(folder: Path, report: int) -> list[Shape]:
    """What each launch of one of ncu's reports is: ``kernel_identity``, grid and block."""
    found = tables.read(folder / TABLES, "launches", ["kernel", "kernel_full", "grid", "block", "file"])
    return [shape(row) for row in found.to_pylist() if (row["file"] or 0) == report]


def identity(group: Group) -> Shape:
    """The same of a group."""
    return kernel_identity(group.kernel, group.kernel_full), group.grid, group.block
