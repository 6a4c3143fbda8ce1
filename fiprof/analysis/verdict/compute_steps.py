"""Steps for the compute side: tensor cores, pipes, issue slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from fiprof.analysis.instructions import Family
from fiprof.analysis.thresholds import EXCESS, FMA_OF_ISSUE, FREQUENT, FUSED, OPERANDS, UNUSED
from fiprof.analysis.verdict.model import Part
from fiprof.analysis.verdict.situation import COPIES, LOADS, PASSES, PIPES, Situation, both, executed, step, ways
from fiprof.analysis.verdict.step import Basis, Step, StepId, Way
from fiprof.model.finding import Finding, Value
from fiprof.model.formula import number
from fiprof.model.quantities import metric
from fiprof.model.work import counted_float_ops, dominant_tensor_kind, mostly_mma

HOPPER = "9"
"""Major compute capability that has wgmma."""
MATRIX_UNITS = (Family.WGMMA, Family.MMA)
ARITHMETIC = (Family.FLOAT, Family.CONVERSION)


_SMALLER = {"tf32": "bf16", "fp16": "fp8", "bf16": "fp8"}
"""Kind of the tensor cores' operands -> the one of half its size."""


# Tensor cores


def tensor(s: Situation) -> Iterator[Step]:
    yield from less_work(s)
    kind = dominant_tensor_kind(s.row)
    peak = number(s.row, f"tensor_peak_{kind}_ops_per_cycle")
    smaller = _SMALLER.get(kind or "")
    faster = number(s.row, f"tensor_peak_{smaller}_ops_per_cycle")
    if faster is not None and peak is not None and faster > peak > 0:
        room = s.room(
            Part.TENSOR_CORES, Part.DRAM, Part.L2, *LOADS,
            still=s.use(Part.TENSOR_CORES) * peak / faster, other_work=True, fewer_bytes=True,
        )  # fmt: skip
        peaks = Finding(Basis.PEAKS, {"ratio": faster / peak})
        yield step(StepId.SMALLER_OPERANDS, room, peaks, {"operands": kind, "smaller": smaller})
    yield step(StepId.CLOSE_TENSOR_GAPS, s.room())
    yield from copies(s)


def less_work(s: Situation) -> Iterator[Step]:
    """Operations that the algorithm does not need."""
    if s.excess_ops is not None and s.excess_ops >= EXCESS.value:
        wasted = 100 * (1 - 1 / s.excess_ops)
        still = s.use(Part.TENSOR_CORES, *PIPES) / s.excess_ops
        room = s.room(Part.TENSOR_CORES, *PIPES, *PASSES, Part.L2, still=still)
        basis = Finding(Basis.EXCESS_OPS, {"factor": s.excess_ops})
        yield step(StepId.LESS_WASTED_WORK, room, basis, estimate=wasted)


def wgmma(s: Situation) -> Iterator[Step]:
    """Instructions of a warpgroup for those of a warp, where the GPU has faster ones.

    Such a rewrite changes the copies, the loads from shared memory and the overlap too: what stays is the products at
    the higher peak, DRAM and the special functions. Not where DRAM is used more than the tensor cores are: there the
    operands' bytes come first.
    """
    kind, use = dominant_tensor_kind(s.row), s.use(Part.TENSOR_CORES)
    if str(s.row.get("cc") or HOPPER).partition(".")[0] != HOPPER:
        return
    if kind is None or use <= max(UNUSED.value, s.use(Part.DRAM)):
        return
    slow, fast = (number(s.row, f"{which}_peak_{kind}_ops_per_cycle") for which in ("mma", "tensor"))
    if slow is None or fast is None or not fast > slow > 0 or not mostly_mma(s.row, kind) or s.has(Family.WGMMA):
        return
    changed = (Part.TENSOR_CORES, Part.L2, *LOADS, Part.ALU_PIPE, Part.FMA_PIPE)
    peaks = both(s.in_code(Family.MMA), Finding(Basis.PEAKS, {"ratio": fast / slow}))
    yield step(StepId.USE_WGMMA, s.room(*changed, still=use * slow / fast), peaks)


def copies(s: Situation) -> Iterator[Step]:
    """Copies by TMA for those by cp.async, where products of a warpgroup wait for them."""
    if s.code is None or not s.has(Family.WGMMA) or s.code.count(Family.ASYNC_COPY) <= s.code.count(Family.TMA):
        return
    yield step(StepId.COPY_BY_TMA, s.room(*LOADS, Part.ALU_PIPE), s.in_code(*COPIES))


# Pipes and issue slots


def instructions(s: Situation) -> Iterator[Step]:
    part = s.verdict.part
    assert part is not None
    packed = [*_packed_halves(s)]
    yield from _tensor_cores(s)
    yield from packed
    if not packed:
        yield _FEWER.get(part, _find_unit)(s)


def _fewer_instructions(s: Situation) -> Step:
    open_ = not s.counted
    how = ways(
        (Way.FEWER_CONVERSIONS, s.executes(Family.CONVERSION)),
        (Way.WIDER_LOADS, s.narrow(Family.GLOBAL_LOAD, Family.ASYNC_COPY)),
        (Way.PACKED, open_ or (s.executes(*ARITHMETIC) and not s.executes(Family.PACKED, least=UNUSED.share))),
        (Way.ADDRESSES_ONCE, open_ or s.executes(Family.INTEGER)),
        (Way.UNROLLED, open_ or s.executes(Family.BRANCH)),
        (Way.KEPT, not open_),
    )
    return step(StepId.FEWER_INSTRUCTIONS, s.room(*PIPES), executed(s), how)


def _less_fma(s: Situation) -> Step:
    return step(StepId.LESS_FMA, s.room(Part.FMA_PIPE, Part.ISSUE_SLOTS))


def _less_alu(s: Situation) -> Step:
    def often(opcodes: str) -> bool:
        return s.code is None or not s.counted or s.code.executed_opcodes(opcodes.split()) >= FREQUENT.share

    how = ways(
        (Way.ADDRESSES_ONCE, often("IADD3 IADD LEA VIADD")),
        (Way.FEWER_COMPARISONS, often("ISETP FSETP SEL FSEL FMNMX VIMNMX IMNMX PLOP3")),
        (Way.MERGED_LOGIC, often("LOP3 SHF PRMT")),
        (Way.KEPT, s.counted),
    )
    return step(StepId.LESS_ALU, s.room(Part.ALU_PIPE, Part.ISSUE_SLOTS), executed(s), how)


def _less_xu(s: Situation) -> Step:
    of_code = s.code is not None
    how = ways(
        (Way.POLYNOMIALS, not of_code or s.has(Family.SPECIAL)),
        (Way.FEWER_CONVERSIONS, not of_code or s.has(Family.CONVERSION)),
        (Way.KEPT, True),
    )
    return step(StepId.LESS_XU, s.room(Part.XU_PIPE, Part.ISSUE_SLOTS), s.in_code(Family.SPECIAL), how)


def _single_precision(s: Situation) -> Step:
    slow, fast = (number(s.row, f"{precision}_peak_ops_per_cycle") for precision in ("fp64", "fp32"))
    still = s.use(Part.FP64_PIPE) * slow / fast if slow and fast else 0.0
    room = s.room(Part.FP64_PIPE, Part.ISSUE_SLOTS, still=still, other_work=True)
    return step(StepId.SINGLE_PRECISION, room)


def _fewer_accesses(s: Situation) -> Step:
    shared = (Family.SHARED_LOAD, Family.SHARED_STORE)
    how = ways(
        (Way.WIDER_LOADS, s.narrow(Family.GLOBAL_LOAD, Family.GLOBAL_STORE, Family.ASYNC_COPY)),
        (Way.WIDER_SHARED, s.code is None or (s.has(*shared) and s.narrow(*shared))),
        (Way.IN_REGISTERS, True),
    )
    return step(StepId.FEWER_ACCESSES, s.room(*LOADS), executed(s), how)


_LESS_OF: Mapping[Part, tuple[Way, ...]] = {
    Part.ADU_PIPE: (Way.UNIFORM_INDICES, Way.FEWER_BARRIERS),
    Part.CBU_PIPE: (Way.FEWER_BRANCHES,),
    Part.TEX_PIPE: (Way.FEWER_FETCHES,),
    Part.UNIFORM_PIPE: (Way.LESS_UNIFORM,),
}


def _less_of_pipe(s: Situation) -> Step:
    part = s.verdict.part
    assert part is not None
    room = s.room(part, Part.ISSUE_SLOTS, Part.CONSTANT_CACHE)
    return step(StepId.LESS_OF_PIPE, room, executed(s), {"part": part, "ways": _LESS_OF[part]})


def _find_unit(s: Situation) -> Step:
    return step(StepId.FIND_UNIT, s.room(Part.OTHER_COMPUTE, *PIPES))


_FEWER: Mapping[Part, Callable[[Situation], Step]] = {
    Part.ISSUE_SLOTS: _fewer_instructions,
    Part.FMA_PIPE: _less_fma,
    Part.ALU_PIPE: _less_alu,
    Part.XU_PIPE: _less_xu,
    Part.FP64_PIPE: _single_precision,
    Part.LSU_PIPE: _fewer_accesses,
    **dict.fromkeys(_LESS_OF, _less_of_pipe),
}


def _packed_halves(s: Situation) -> Iterator[Step]:
    """Two multiply-adds in one instruction, where the GPU does more of them so."""
    ops = counted_float_ops(s.row)
    if s.verdict.part is not Part.FMA_PIPE or not ops or max(ops, key=ops.__getitem__) != "fp32":
        return
    if not _in_floats(s):
        return
    slow, fast = (number(s.row, f"{precision}_peak_ops_per_cycle") for precision in ("fp32", "fp16"))
    if slow is None or fast is None or not fast > slow > 0 or s.executes(Family.PACKED, least=UNUSED.share):
        return
    still = s.use(Part.FMA_PIPE) * slow / fast
    room = s.room(Part.FMA_PIPE, Part.ISSUE_SLOTS, still=still, other_work=True)
    yield step(StepId.PACKED_HALVES, room, Finding(Basis.PEAKS, {"ratio": fast / slow}))


def _in_floats(s: Situation) -> bool:
    """Whether floating-point operations, not integer multiplications, make up the FMA pipe's use; True where that is
    not known. An addition is half a multiply-add."""
    ops, cycles, peak = (
        counted_float_ops(s.row).get("fp32"), number(s.row, "sm_cycles"), number(s.row, "fp32_peak_ops_per_cycle"),
    )  # fmt: skip
    use = number(s.row, "fma_pct")
    if ops is None or not cycles or not peak or use is None:
        return True
    return 100 * ops / cycles / peak >= use / 4


def _fused(s: Situation) -> float:
    """Multiply-adds of the fp32 instructions, 0 to 1; 1 where that is not known."""
    for counted in ("thread_insts", "thread_insts_per_cycle"):
        kinds = [number(s.row, f"{inst}_{counted}") for inst in ("ffma", "fadd", "fmul")]
        known = [each for each in kinds if each is not None]
        if len(known) == len(kinds) and any(known):
            return known[0] / math.fsum(known)
    return 1.0


_MATRIX_KINDS = {"fp32": "fp16", "fp16": "fp16", "fp64": "fp64"}
"""Precision outside the tensor cores -> their fastest kind that stands for it: halves are often computed in fp32."""


def _tensor_cores(s: Situation) -> Iterator[Step]:
    """Tensor cores for arithmetic that may be a product of matrices: it reads operands while it multiplies."""
    used, fma = number(s.row, "tensor_active_pct"), s.traced(metric("fma_pct"))
    if s.verdict.part not in (Part.ISSUE_SLOTS, Part.FMA_PIPE) or used is None or fma is None or used >= UNUSED.value:
        return
    arithmetic = fma.value >= FMA_OF_ISSUE.share * s.use(Part.ISSUE_SLOTS) and _in_floats(s)
    if not arithmetic or s.use(*PASSES) < OPERANDS.value or s.has(*MATRIX_UNITS) or _fused(s) < FUSED.share:
        return
    ops = {precision: count for precision, count in counted_float_ops(s.row).items() if count}
    precision = max(ops, key=ops.__getitem__, default="fp32")
    slow = number(s.row, f"{precision}_peak_ops_per_cycle")
    fast = number(s.row, f"tensor_peak_{_MATRIX_KINDS[precision]}_ops_per_cycle")
    if not fast or (slow is not None and slow >= fast):
        return
    there = fma.value * slow / fast if slow else 0.0
    changed = (Part.TENSOR_CORES, Part.FMA_PIPE, Part.ALU_PIPE, *LOADS)
    values: dict[str, Value] = {"tensor_pct": there, "fma": fma, "kind": _MATRIX_KINDS[precision]}
    basis = Finding(Basis.TENSOR_CORES_WOULD, values) if there else None
    yield step(StepId.USE_TENSOR_CORES, s.room(*changed, still=there, other_work=True), basis)
