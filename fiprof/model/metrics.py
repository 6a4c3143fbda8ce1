"""The metrics: our column in ``launches``, ncu's name, unit and meaning; ``quantities.py`` computes from them.

Those of tensor and floating-point instructions come from the kinds declared here, all others from ``metrics.csv``.
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


_TENSOR_KINDS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    # Kind, its operations; the same without sparsity, whose peak is the dense one: by the fastest instruction, and by
    # that of a warp (mma) where a warpgroup has a faster one (wgmma).
    (
        "fp16",
        ("src_fp16", "src_fp16_dst_fp32"),
        "op_hgmma_src_fp16_sparsity_off",
        "op_hmma_src_fp16_dst_fp32_sparsity_off",
    ),
    ("fp16_acc16", ("src_fp16_dst_fp16",), "", "op_hmma_src_fp16_dst_fp16_sparsity_off"),
    (
        "bf16",
        ("src_bf16_dst_fp32",),
        "op_hgmma_src_bf16_dst_fp32_sparsity_off",
        "op_hmma_src_bf16_dst_fp32_sparsity_off",
    ),
    (
        "tf32",
        ("src_tf32_dst_fp32",),
        "op_hgmma_src_tf32_dst_fp32_sparsity_off",
        "op_hmma_src_tf32_dst_fp32_sparsity_off",
    ),
    ("fp64", ("src_fp64",), "src_fp64", ""),
    ("fp8", ("src_fp8_sparsity_off", "src_fp8", "src_fp8_dst_fp32"), "src_fp8_sparsity_off", ""),
    ("fp8_acc16", ("src_fp8_dst_fp16",), "", ""),
    ("fp8_sparse", ("src_fp8_sparsity_on",), "src_fp8_sparsity_on", ""),
    ("int8", ("src_int8",), "op_igmma_src_int8_sparsity_off", "op_imma_src_int8_sparsity_off"),
    ("int1", ("src_int1",), "op_bgmma_src_int1", "op_bmma_src_int1"),
)

TENSOR_KINDS: tuple[str, ...] = tuple(kind for kind, *_ in _TENSOR_KINDS)
"""Operand types of tensor operations; ``_acc16`` accumulates in fp16 where ncu counts that apart (not on 9.0)."""

FLOAT_INSTS = {
    "fp32": ("fadd", "fmul", "ffma"),
    "fp16": ("hadd", "hmul", "hfma"),
    "fp64": ("dadd", "dmul", "dfma"),
}
"""Instructions outside the tensor cores that do floating-point operations, by precision; fp16 counts bf16 too."""
OPS_PER_INST = {
    "fadd": 1, "fmul": 1, "ffma": 2,
    "hadd": 2, "hmul": 2, "hfma": 4,
    "dadd": 1, "dmul": 1, "dfma": 2,
}  # fmt: skip
"""Operations of one such instruction of a thread; those on half precision work on pairs."""


def _tensor_metrics() -> tuple[Metric, ...]:
    path = "sm__ops_path_tensor_"
    counts = tuple(
        Metric(
            f"tensor_ops_{kind}",
            tuple(f"{path}{name}.sum" for name in parents),
            "ops",
            f"Tensor operations on {kind} operands, a multiply-add being two.",
            expected=not kind.endswith("acc16"),
        )
        for kind, parents, *_ in _TENSOR_KINDS
    )
    by_warp = tuple(
        Metric(
            f"mma_ops_{kind}",
            (f"{path}{mma}.sum",),
            "ops",
            f"Those of the {kind} tensor operations that dense instructions of a warp did (mma, not wgmma).",
            expected=False,
        )
        for kind, _, _, mma in _TENSOR_KINDS
        if mma
    )
    peaks = tuple(
        Metric(
            name,
            (f"{path}{child}.sum.peak_sustained",),
            "ops/cycle",
            f"Most {kind} tensor operations that all multiprocessors can do in a cycle"
            + (" with sparse operands" if kind.endswith("sparse") else " with dense operands")
            + (" by instructions of a warp (mma)." if name.startswith("mma") else "."),
            expected=not mma,
        )
        for kind, _, fastest, mma in _TENSOR_KINDS
        for name, child in (
            (f"tensor_peak_{kind}_ops_per_cycle", fastest),
            (f"mma_peak_{kind}_ops_per_cycle", mma),
        )
        if child
    )
    return counts + by_warp + peaks


def _float_metrics() -> tuple[Metric, ...]:
    counter = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    insts = [inst for group in FLOAT_INSTS.values() for inst in group]
    counts = tuple(
        Metric(
            f"{inst}_thread_insts",
            (counter.format(inst),),
            "1",
            f"Executed {inst.upper()}, counted a thread.",
            expected=False,
        )
        for inst in insts
    )
    rates = tuple(
        Metric(
            f"{inst}_thread_insts_per_cycle",
            (counter.format(inst) + ".per_cycle_elapsed",),
            "1/cycle",
            f"Executed {inst.upper()}, counted a thread, on all multiprocessors in a cycle.",
        )
        for inst in insts
    )
    peaks = tuple(
        Metric(
            f"{precision}_peak_ops_per_cycle",
            (f"derived__sm__sass_thread_inst_executed_op_{group[2]}_pred_on_x{OPS_PER_INST[group[2]]}",),
            "ops/cycle",
            f"Most {precision} operations that all multiprocessors can do in a cycle outside the tensor cores.",
        )
        for precision, group in FLOAT_INSTS.items()
    )
    return counts + rates + peaks


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


METRICS: tuple[Metric, ...] = (*_listed(), *_tensor_metrics(), *_float_metrics())

COLUMNS: tuple[str, ...] = tuple(metric.name for metric in METRICS)
"""Every metric's column, ``duration_ns`` first."""
