"""The metrics: our column in ``launches``, ncu's name, unit and meaning; ``quantities.py`` computes from them.

Each is a line of ``metrics.csv``. The peaks of tensor operations are the dense ones: ``tensor_peak_*`` by the fastest
instruction, ``mma_peak_*`` by that of a warp (mma) where a warpgroup has a faster one (wgmma).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Metric:
    """One float64 column of ``launches``."""

    name: str
    """The column."""
    ncu: tuple[str, ...]
    """ncu's names for it, the preferred one first; compute capabilities and versions spell some differently."""
    unit: str
    """Base unit of the values; ``1`` for counts and ratios."""
    meaning: str
    """One sentence."""
    expected: bool = True
    """False where a report does well without it: another column says the same, or few GPUs have it."""
    shown: str = ""
    """How people read it, a format such as ``.1f``, where it is a quantity by itself."""


def _listed() -> tuple[Metric, ...]:
    """The metrics of ``metrics.csv``; several names of ncu's are apart by a space."""
    with (Path(__file__).parent / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Metric(
                row["name"],
                tuple(row["ncu"].split()),
                row["unit"],
                row["meaning"],
                row["expected"] == "yes",
                row["shown"],
            )
            for row in csv.DictReader(file)
        )


METRICS = _listed()

COLUMNS: tuple[str, ...] = tuple(metric.name for metric in METRICS)
"""Every metric's column, ``duration_ns`` first."""

TENSOR_KINDS = tuple(name.removeprefix("tensor_ops_") for name in COLUMNS if name.startswith("tensor_ops_"))
"""Operand types of tensor operations; ``_acc16`` accumulates in fp16 where ncu counts that apart (not on 9.0).

Those with fp4 and fp6 are of compute capability 10.0 on, where one counter may hold several types. Their names and
those of the peaks (``utchmma``, ``utcqmma``, ``utcomma``, ``utcimma``: tcgen05.mma) were read in public lists of
``ncu --query-metrics --chips gb100`` and of its roofline sections; no recorded run has them.
"""
