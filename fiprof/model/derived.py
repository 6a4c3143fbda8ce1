"""What follows from a launch's metrics: operations, bytes, and the peaks at the clocks measured during it.

The functions take one launch as a plain mapping from column to number (a row of ``launches`` as a dict); a column
that is absent, None or NaN was not collected, and a result that needs it is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fiprof.model.metrics import FLOAT_INSTS, OPS_PER_INST, TENSOR_KINDS

Row = Mapping[str, float | None]
"""Column of ``launches`` -> value, for one launch."""


def number(row: Row, column: str) -> float | None:
    """The value of a column; None where it is absent, None or NaN."""
    value = row.get(column)
    return None if value is None or math.isnan(value) else float(value)


def product(row: Row, *columns: str) -> float | None:
    """The columns' product; None where one was not collected."""
    values = [number(row, column) for column in columns]
    return None if None in values else math.prod(value for value in values if value is not None)


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole; None where one is not known or whole is 0."""
    return None if part is None or not whole else part / whole


def giga(value: float | None) -> float | None:
    """In units of 10^9."""
    return None if value is None else value / 1e9


def tera(value: float | None) -> float | None:
    """In units of 10^12."""
    return None if value is None else value / 1e12


def float_ops(row: Row) -> dict[str, float]:
    """Floating-point operations outside the tensor cores by precision; a precision that was not counted is left out.

    fp32 = FADD + FMUL + 2 FFMA, fp16 = 2 HADD + 2 HMUL + 4 HFMA (packed pairs), fp64 = DADD + DMUL + 2 DFMA, each a
    thread's predicated-on instructions: the sums of Nsight Compute's roofline sections. Where ncu gives only the rate
    (``--set full`` does), count = rate x ``sm_cycles``, as exact as the rate's two decimals. Conversions between half
    and single precision execute as HADD and count as such.
    """
    ops = {}
    for precision, insts in FLOAT_INSTS.items():
        counts = [_thread_insts(row, inst) for inst in insts]
        if None not in counts:
            ops[precision] = sum(
                OPS_PER_INST[inst] * count for inst, count in zip(insts, counts, strict=True) if count is not None
            )
    return ops


def _thread_insts(row: Row, inst: str) -> float | None:
    count = number(row, f"{inst}_thread_insts")
    return product(row, f"{inst}_thread_insts_per_cycle", "sm_cycles") if count is None else count


def tensor_ops(row: Row) -> float | None:
    """Tensor operations of all kinds, a multiply-add being two; None where ncu counted none of them.

    The sum of ncu's parent counters ``sm__ops_path_tensor_src_*``; the counters by instruction,
    ``sm__ops_path_tensor_op_*``, are parts of them and stay out.
    """
    counts = [count for kind in TENSOR_KINDS if (count := number(row, f"tensor_ops_{kind}")) is not None]
    return sum(counts) if counts else None


def dominant_tensor_kind(row: Row) -> str | None:
    """The operand type with most tensor operations; None without any."""
    counts = {kind: number(row, f"tensor_ops_{kind}") or 0.0 for kind in TENSOR_KINDS}
    kind = max(counts, key=counts.__getitem__)
    return kind if counts[kind] > 0 else None


def tensor_peak_ops_per_second(row: Row, kind: str | None = None) -> float | None:
    """Most tensor operations that the GPU can do in a second at the clock measured during the launch.

    Peak a cycle x ``sm_clock_hz``. kind: of TENSOR_KINDS; by default the dominant one. The peak is that of dense
    operands: ncu's parent counters of fp16, bf16, tf32 and int8 carry the sparse peak, twice as high. It is that of the
    instructions which did most of the operations, as in ncu's roofline: on compute capability 9.0 those of a warp (mma)
    reach two thirds of those of a warpgroup (wgmma).
    """
    kind = kind or dominant_tensor_kind(row)
    if kind is None:
        return None
    peak = product(row, f"tensor_peak_{kind}_ops_per_cycle", "sm_clock_hz")
    mma_peak = product(row, f"mma_peak_{kind}_ops_per_cycle", "sm_clock_hz")
    first, second = (mma_peak, peak) if mostly_mma(row, kind) else (peak, mma_peak)
    return second if first is None else first


def mostly_mma(row: Row, kind: str) -> bool:
    """Whether instructions of a warp (mma) did most of the tensor operations of a kind, not those of a warpgroup."""
    ops = number(row, f"tensor_ops_{kind}")
    # On 9.0 the fp16 counter has both accumulators.
    by_warp = [number(row, f"mma_ops_{kind}{accumulator}") or 0.0 for accumulator in ("", "_acc16")]
    return ops is not None and sum(by_warp) > ops / 2


def float_peak_ops_per_second(row: Row, precision: str = "fp32") -> float | None:
    """Most operations outside the tensor cores in a second: peak a cycle x ``sm_clock_hz``.

    precision: a key of FLOAT_INSTS.
    """
    return product(row, f"{precision}_peak_ops_per_cycle", "sm_clock_hz")


def dram_bytes(row: Row) -> float | None:
    """Bytes read and written in DRAM; where ncu gives only the rate, rate x duration."""
    read, written = number(row, "dram_read_bytes"), number(row, "dram_write_bytes")
    if read is not None and written is not None:
        return read + written
    moved = product(row, "dram_bytes_per_second", "duration_ns")
    return None if moved is None else moved / 1e9


def dram_peak_bytes_per_second(row: Row) -> float | None:
    """Most bytes that DRAM can move in a second: ``dram_peak_bytes_per_cycle`` x ``dram_clock_hz``."""
    return product(row, "dram_peak_bytes_per_cycle", "dram_clock_hz")


def l2_peak_bytes_per_second(row: Row) -> float | None:
    """Most bytes that L2 can send in a second: ``l2_peak_bytes_per_cycle`` x ``l2_clock_hz``."""
    return product(row, "l2_peak_bytes_per_cycle", "l2_clock_hz")


def l1_peak_bytes_per_second(row: Row) -> float | None:
    """Most bytes from L1 to registers in a second: ``l1_peak_bytes_per_cycle`` x ``sm_clock_hz``."""
    return product(row, "l1_peak_bytes_per_cycle", "sm_clock_hz")
