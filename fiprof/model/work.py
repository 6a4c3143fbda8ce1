"""The operations of a launch by their kind, and the most of them that the GPU can do in a second.

Amounts are operations, a multiply-add being two; peaks are operations a second at the clock measured during the launch.
Kinds of work are ``tensor fp16``, ``tensor fp16 mma`` (by a warp's instructions), ``fp32``, ``fp16`` and ``fp64``.
"""

from fiprof.model.quantities import TENSOR_KINDS, Formula, Quantity, Row, number

TENSOR_OPS = Formula("tensor_ops")
"""Of all kinds: the sum of ncu's parent counters ``sm__ops_path_tensor_src_*``. The counters by instruction,
``sm__ops_path_tensor_op_*``, are parts of them and stay out."""
FLOAT_OPS = {precision: Formula(f"{precision}_ops") for precision in ("fp32", "fp16", "fp64")}
"""Operations outside the tensor cores by precision: the sums of Nsight Compute's roofline sections."""
FLOAT_OPS_WITHOUT_CONVERSIONS = Formula("float_ops")

IDLE_PIPE_PCT = 2.0
"""Activity of a pipe, percent of the time, up to which a kernel need not use it: the tensor cores read up to 1.3 for
kernels without a tensor operation on an H200."""
PIPES = {
    "tensor_active_pct": (Formula("tensor_use_pct"), TENSOR_OPS),
    "fp64_pct": (Formula("fp64_pct"), FLOAT_OPS["fp64"]),
}
"""Pipes that do one kind of work alone: column -> their activity, and the operations that they do."""


def per_second(amount: Formula) -> Formula:
    return Formula(f"({amount}) / duration_ns * 1e9")


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


def wgmma_peak(kind: str) -> Formula:
    """Most tensor operations of a kind in a second by the GPU's fastest dense instruction."""
    return Formula(f"tensor_peak_{kind}_ops_per_cycle * sm_hz")


def ops_of(work: str) -> Formula:
    """Operations of a kind of work that ncu counts; nothing for the cost model's."""
    return Formula(f"tensor_ops_{work.split()[1]}" if work.startswith("tensor ") else FLOAT_OPS.get(work, "total()"))


def peak_of(work: str, *, fastest: bool = False) -> Formula:
    """Most of them in a second: of tensor operations by the instructions which did most of them, as in ncu's roofline,
    by a warp's where the kind ends in ``mma``, or by the GPU's fastest.

    Dense operands: ncu's parent counters of fp16, bf16, tf32 and int8 carry the sparse peak, twice as high. On compute
    capability 9.0 instructions of a warp (mma) reach two thirds of those of a warpgroup (wgmma).
    """
    if not work.startswith("tensor "):
        return Formula(f"{work}_peak_ops_per_cycle * sm_hz")
    kind = work.split()[1]
    fast, slow = wgmma_peak(kind), f"mma_peak_{kind}_ops_per_cycle * sm_hz"
    if fastest:
        return Formula(f"first({fast}, {slow})")
    if work.endswith(" mma"):
        return Formula(slow)
    by_warp = f"total(mma_ops_{kind}, mma_ops_{kind}_acc16)"
    return Formula(f"first({slow}, {fast}) if {by_warp} > tensor_ops_{kind} / 2 else first({fast}, {slow})")


def counted_works(row: Row) -> tuple[str, ...]:
    """The kinds of work that ncu counted in a launch, as far as they are not zero."""

    def slower(kind: str) -> bool:
        """Whether a warp's instructions did the work where those of a warpgroup are faster."""
        slow, fast = (number(row, f"{by}_peak_{kind}_ops_per_cycle") for by in ("mma", "tensor"))
        return slow is not None and fast is not None and slow < fast and mostly_mma(row, kind)

    kinds = [kind for kind in TENSOR_KINDS if number(row, f"tensor_ops_{kind}")]
    tensor = [f"tensor {kind} mma" if slower(kind) else f"tensor {kind}" for kind in kinds]
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
        ops = Formula("fp16_ops_without_conversions") if work == "fp16" else ops_of(work)
        return Formula(f"({per_second(ops)}) / ({peak_of(work)})").value(row) or 0.0, ops.value(row) or 0.0

    return max(works, key=use, default=None) if number(row, "duration_ns") else None


def work_rate(work: str) -> Quantity:
    rate = Formula(f"({per_second(ops_of(work))}) / 1e12")
    return Quantity("tflops", "TFLOP/s", "Operations of the main kind a second.", rate, ",.2f")


def work_share(work: str) -> Quantity:
    """The same over its roof."""
    share = Formula(f"({per_second(ops_of(work))}) / ({peak_of(work)})")
    return Quantity("compute_roof_share", "", "Operations a second over the roof for their kind, 0 to 1.", share, ".1%")
