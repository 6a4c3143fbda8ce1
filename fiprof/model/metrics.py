"""The metrics: our column in ``launches``, ncu's name, unit and meaning; ``quantities.py`` computes from them.

Each is a line of ``metrics.csv``. The peaks of tensor operations are the dense ones: ``tensor_peak_*`` by the fastest
instruction, ``mma_peak_*`` by that of a warp (mma) where a warpgroup has a faster one (wgmma).
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple


class Metric(NamedTuple):
    """One float64 column of ``launches``."""

    name: str
    """The column."""
    ncu: tuple[str, ...]
    """ncu's names for it, the preferred one first; compute capabilities and versions spell some differently."""
    unit: str
    """Base unit of the values; ``1`` for counts and ratios."""
    label: str
    """Section and label of the preferred name on ncu's details page, found by comparing the two pages of 385 launches
    (ncu 2025.3 and 2025.4; compute capabilities 9.0 and 10.0); empty where that does not show it."""
    expected: bool
    """False where a report does well without it: another column says the same, or few GPUs have it."""
    shown: str
    """How people read it, a format such as ``.1f``, where it is a quantity by itself."""
    meaning: str
    """One sentence."""


with (Path(__file__).parent / "metrics.csv").open(encoding="utf-8", newline="") as _file:
    METRICS = tuple(
        Metric(name, tuple(ncu.split()), unit, label, expected == "yes", shown, meaning)
        for name, unit, ncu, label, expected, shown, meaning in list(csv.reader(_file))[1:]
    )

COLUMNS: tuple[str, ...] = tuple(metric.name for metric in METRICS)
"""Every metric's column, ``duration_ns`` first."""

TENSOR_KINDS = tuple(name.removeprefix("tensor_ops_") for name in COLUMNS if name.startswith("tensor_ops_"))
"""Operand types of tensor operations; ``_acc16`` accumulates in fp16 where ncu counts that apart (not on 9.0).

Those with fp4 and fp6 are of compute capability 10.0 on, where one counter may hold several types. Their names and
those of the peaks (``utchmma``, ``utcqmma``, ``utcomma``, ``utcimma``: tcgen05.mma) were read in public lists of
``ncu --query-metrics --chips gb100`` and of its roofline sections; no recorded run has them.
"""
