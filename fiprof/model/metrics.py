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


TENSOR_KINDS: tuple[str, ...] = (
    "fp16", "fp16_acc16", "bf16", "tf32", "fp64", "fp8", "fp8_acc16", "fp8_sparse", "int8", "int4", "int1",
    "fp4", "fp4_fp6", "fp4_fp6_acc16", "fp4_fp6_fp8", "fp4_fp6_fp8_acc16",
)  # fmt: skip
"""Operand types of tensor operations; ``_acc16`` accumulates in fp16 where ncu counts that apart (not on 9.0).

Those with fp4 and fp6 are of compute capability 10.0 on, where one counter may hold several types. Their names and
those of the peaks (``utchmma``, ``utcqmma``, ``utcomma``, ``utcimma``: tcgen05.mma) were read in public lists of
``ncu --query-metrics --chips gb100`` and of its roofline sections; no recorded run has them.
"""

FLOAT_INSTS = {
    "fp32": ("fadd", "fmul", "ffma"),
    "fp16": ("hadd", "hmul", "hfma"),
    "fp64": ("dadd", "dmul", "dfma"),
}
"""Instructions outside the tensor cores that do floating-point operations, by precision; fp16 counts bf16 too."""
PACKED_INSTS = {"fp32": ("fadd2", "fmul2", "ffma2")}
"""Those on pairs that only GPUs from compute capability 10.0 on have; ncu's roofline section counts them beside the
others, with the factors of OPS_PER_INST."""
OPS_PER_INST = {
    "fadd": 1, "fmul": 1, "ffma": 2,
    "fadd2": 2, "fmul2": 2, "ffma2": 4,
    "hadd": 2, "hmul": 2, "hfma": 4,
    "dadd": 1, "dmul": 1, "dfma": 2,
}  # fmt: skip
"""Operations of one such instruction of a thread; those on half precision and FADD2, FMUL2 and FFMA2 work on pairs."""


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
