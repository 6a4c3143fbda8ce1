"""The operations of a launch by their kind, and the most of them that the GPU can do in a second.

Amounts are operations, a multiply-add being two; peaks are operations a second at the clock measured during the launch.
"""

from __future__ import annotations

from fiprof.model.expressions import Chosen, Expression, First, Metric, Row, Total, number
from fiprof.model.metrics import FLOAT_INSTS, OPS_PER_INST, PACKED_INSTS, TENSOR_KINDS
from fiprof.model.quantity import Quantity
from fiprof.model.rates import SM_CYCLES, SM_HZ, per_second


def tensor_ops(kind: str) -> Expression:
    """Tensor operations on operands of a kind (of TENSOR_KINDS), a multiply-add being two."""
    return Metric(f"tensor_ops_{kind}")


TENSOR_OPS = Total(tuple(map(tensor_ops, TENSOR_KINDS)))
"""Of all kinds: the sum of ncu's parent counters ``sm__ops_path_tensor_src_*``. The counters by instruction,
``sm__ops_path_tensor_op_*``, are parts of them and stay out."""


def _thread_insts(inst: str) -> Expression:
    rate = Metric(f"{inst}_thread_insts_per_cycle") * SM_CYCLES
    return First((Metric(f"{inst}_thread_insts"), rate))


def _ops_of_inst(inst: str) -> Expression:
    return OPS_PER_INST[inst] * _thread_insts(inst) if OPS_PER_INST[inst] > 1 else _thread_insts(inst)


def float_ops(precision: str, *, conversions: bool = True) -> Expression:
    """Operations outside the tensor cores of a precision (a key of FLOAT_INSTS).

    fp32 = FADD + FMUL + 2 FFMA (+ 2 FADD2 + 2 FMUL2 + 4 FFMA2 where they were counted), fp16 = 2 HADD + 2 HMUL +
    4 HFMA (packed pairs), fp64 = DADD + DMUL + 2 DFMA, each a thread's predicated-on instructions: the sums of Nsight
    Compute's roofline sections. Where ncu gives only the rate
    (``--set full`` does), count = rate x ``sm_cycles``, as exact as the rate's two decimals. Conversions between half
    and single precision execute as HADD and count as such; without ``conversions`` half additions stay out.
    """
    first, *rest = [_ops_of_inst(inst) for inst in FLOAT_INSTS[precision] if conversions or inst != "hadd"]
    for term in rest:
        first = first + term
    packed = Total(tuple(map(_ops_of_inst, PACKED_INSTS.get(precision, ()))))
    return Chosen(lambda row: first + packed if packed.value(row) is not None else first)


FLOAT_OPS = {precision: float_ops(precision) for precision in FLOAT_INSTS}
FLOAT_OPS_WITHOUT_CONVERSIONS = Total(tuple(float_ops(precision, conversions=False) for precision in FLOAT_INSTS))


IDLE_PIPE_PCT = 2.0
"""Activity of a pipe, percent of the time, up to which a kernel need not use it: the tensor cores read up to 1.3 for
kernels without a tensor operation on an H200."""

TENSOR_ACTIVE = First((Metric("tensor_active_pct"), Metric("tensor_busy_pct")))
PIPES = {"tensor_active_pct": (TENSOR_ACTIVE, TENSOR_OPS), "fp64_pct": (Metric("fp64_pct"), FLOAT_OPS["fp64"])}
"""Pipes that do one kind of work alone: column -> their activity, and the operations that they do."""


def uncounted_pipe(row: Row) -> str | None:
    """The column of PIPES of a pipe that worked while none of its operations were counted: the report lacks the
    counters, or has none for these operands. What the main work is cannot be told then. None where there is none."""
    for column, (active, ops) in PIPES.items():
        if (active.value(row) or 0.0) > IDLE_PIPE_PCT and not ops.value(row):
            return column
    return None


def dominant_tensor_kind(row: Row) -> str | None:
    """The operand type with most tensor operations; None without any."""
    counts = {kind: number(row, f"tensor_ops_{kind}") or 0.0 for kind in TENSOR_KINDS}
    kind = max(counts, key=counts.__getitem__)
    return kind if counts[kind] > 0 else None


def mostly_mma(row: Row, kind: str) -> bool:
    """Whether instructions of a warp (mma) did most of the tensor operations of a kind, not those of a warpgroup."""
    ops = number(row, f"tensor_ops_{kind}")
    # On 9.0 the fp16 counter has both accumulators.
    by_warp = [number(row, f"mma_ops_{kind}{accumulator}") or 0.0 for accumulator in ("", "_acc16")]
    return ops is not None and sum(by_warp) > ops / 2


def counted_float_ops(row: Row) -> dict[str, float]:
    """Precision -> operations outside the tensor cores; a precision that was not counted is left out."""
    return {name: ops for name, each in FLOAT_OPS.items() if (ops := each.value(row)) is not None}


def wgmma_peak(kind: str) -> Expression:
    """Most tensor operations of a kind in a second by the GPU's fastest dense instruction."""
    return Metric(f"tensor_peak_{kind}_ops_per_cycle") * SM_HZ


def mma_peak(kind: str) -> Expression:
    """The same by instructions of a warp (mma), where those of a warpgroup are faster."""
    return Metric(f"mma_peak_{kind}_ops_per_cycle") * SM_HZ


def tensor_peak(kind: str) -> Expression:
    """Most tensor operations of a kind in a second, by the instructions which did most of them, as in ncu's roofline.

    Dense operands: ncu's parent counters of fp16, bf16, tf32 and int8 carry the sparse peak, twice as high. On compute
    capability 9.0 instructions of a warp (mma) reach two thirds of those of a warpgroup (wgmma).
    """

    def choose(row: Row) -> Expression:
        ways = (wgmma_peak(kind), mma_peak(kind))
        return First(ways[::-1] if mostly_mma(row, kind) else ways)

    return Chosen(choose)


def float_peak(precision: str) -> Expression:
    """Most operations of a precision outside the tensor cores in a second."""
    return Metric(f"{precision}_peak_ops_per_cycle") * SM_HZ


def _dominant_peak(row: Row) -> Expression | None:
    kind = dominant_tensor_kind(row)
    return None if kind is None else tensor_peak(kind)


TENSOR_PEAK = Chosen(_dominant_peak)
"""Of the kind with most operations."""

# The work of a launch, by its kind: ``tensor fp16``, ``tensor fp16 mma``, ``fp32``, ``fp16``, ``fp64``


def _kind(work: str) -> str:
    return work.split()[1]


def ops_of(work: str) -> Expression:
    """Operations of a kind of work that ncu counts; nothing for the cost model's."""
    return tensor_ops(_kind(work)) if work.startswith("tensor ") else FLOAT_OPS.get(work, Total(()))


def peak_of(work: str) -> Expression:
    """Most of them in a second: the peak of a warp's instructions where the kind ends in ``mma``."""
    if not work.startswith("tensor "):
        return float_peak(work)
    return mma_peak(_kind(work)) if work.endswith(" mma") else tensor_peak(_kind(work))


def counted_works(row: Row) -> tuple[str, ...]:
    """The kinds of work that ncu counted in a launch, as far as they are not zero."""
    tensor = [
        f"tensor {kind} mma" if _slower_mma(row, kind) else f"tensor {kind}"
        for kind in TENSOR_KINDS
        if number(row, f"tensor_ops_{kind}")
    ]
    return (*tensor, *(precision for precision, ops in counted_float_ops(row).items() if ops))


def main_work(row: Row) -> str | None:
    """The kind of work that uses the largest share of its roof; None where the operations are not all known: those
    outside the tensor cores, or those of a pipe that worked.

    Half additions do not count for it: conversions between half and single precision execute as HADD.
    """
    works = counted_works(row)
    if uncounted_pipe(row) is not None:
        return None
    if FLOAT_OPS["fp32"].value(row) is None and not any(work.startswith("tensor ") for work in works):
        return None

    def use(work: str) -> tuple[float, float]:
        ops = float_ops(work, conversions=False) if work in FLOAT_OPS else ops_of(work)
        return (per_second(ops) / peak_of(work)).value(row) or 0.0, ops.value(row) or 0.0

    return max(works, key=use, default=None) if number(row, "duration_ns") else None


def _slower_mma(row: Row, kind: str) -> bool:
    """Whether the launch used the tensor cores by instructions of a warp where those of a warpgroup are faster."""
    slow = number(row, f"mma_peak_{kind}_ops_per_cycle")
    fast = number(row, f"tensor_peak_{kind}_ops_per_cycle")
    return slow is not None and fast is not None and slow < fast and mostly_mma(row, kind)


def work_rate(work: str) -> Quantity:
    """Operations of a kind a second."""
    return Quantity(
        "tflops", "TFLOP/s", "Operations of the main kind a second.", per_second(ops_of(work)) / 1e12, ",.2f"
    )


def work_share(work: str) -> Quantity:
    """The same over its roof."""
    share = per_second(ops_of(work)) / peak_of(work)
    return Quantity("compute_roof_share", "", "Operations a second over the roof for their kind, 0 to 1.", share, ".1%")
