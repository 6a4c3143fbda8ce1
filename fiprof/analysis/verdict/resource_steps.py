"""Steps for a resource that binds, by the resource."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from fiprof.analysis.instructions import Family, HotInstruction
from fiprof.analysis.occupancy import occupancy
from fiprof.analysis.thresholds import (
    CONFLICTS,
    DOMINANT_STALL,
    EMPTY,
    EXCESS,
    FMA_OF_ISSUE,
    FREQUENT,
    KEPT,
    OPERANDS,
    SATURATED,
    UNUSED,
)
from fiprof.analysis.verdict.model import CauseId, Part
from fiprof.analysis.verdict.quoted_rules import CONFLICT_RULES
from fiprof.analysis.verdict.situation import LOADS, PASSES, PIPES, Room, Situation, both, hot, step
from fiprof.analysis.verdict.step import Basis, Step, StepId, Way
from fiprof.model import quantities
from fiprof.model.expressions import number
from fiprof.model.finding import Finding, Value
from fiprof.model.quantities import metric
from fiprof.model.work import counted_float_ops, dominant_tensor_kind, mostly_mma

MATRIX_UNITS = (Family.WGMMA, Family.MMA)
COPIES = (Family.ASYNC_COPY, Family.TMA)
ARITHMETIC = (Family.FLOAT, Family.CONVERSION)


def ways(*those: tuple[Way, bool]) -> dict[str, Value]:
    """The ways that the kernel does not go already, as a step's values."""
    return {"ways": tuple(way for way, open_ in those if open_)}


# Tensor cores


def tensor(s: Situation) -> Iterator[Step]:
    yield from less_work(s)
    kind = dominant_tensor_kind(s.row)
    peak = number(s.row, f"tensor_peak_{kind}_ops_per_cycle")
    smaller = number(s.row, "tensor_peak_fp8_ops_per_cycle")
    if smaller is not None and peak is not None and kind in ("fp16", "bf16") and smaller > peak > 0:
        room = s.room(
            Part.TENSOR_CORES, Part.DRAM, Part.L2, *LOADS,
            still=s.use(Part.TENSOR_CORES) * peak / smaller, other_work=True, fewer_bytes=True,
        )  # fmt: skip
        peaks = Finding(Basis.PEAKS, {"ratio": smaller / peak})
        yield step(StepId.USE_FP8, room, peaks, {"operands": kind})
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
    return step(StepId.FEWER_INSTRUCTIONS, s.room(*PIPES), _executed(s), how)


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
    return step(StepId.LESS_ALU, s.room(Part.ALU_PIPE, Part.ISSUE_SLOTS), _executed(s), how)


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
    return step(StepId.FEWER_ACCESSES, s.room(*LOADS), _executed(s), how)


def _find_unit(s: Situation) -> Step:
    return step(StepId.FIND_UNIT, s.room(Part.OTHER_COMPUTE, *PIPES))


_FEWER: Mapping[Part, Callable[[Situation], Step]] = {
    Part.ISSUE_SLOTS: _fewer_instructions,
    Part.FMA_PIPE: _less_fma,
    Part.ALU_PIPE: _less_alu,
    Part.XU_PIPE: _less_xu,
    Part.FP64_PIPE: _single_precision,
    Part.LSU_PIPE: _fewer_accesses,
}


def _executed(s: Situation) -> Finding | None:
    """The families of instructions that are executed most, as a basis."""
    families = [each for each in Family if each is not Family.OTHER and s.executes(each)]
    shares = {each: s.code.executed_share(each) or 0.0 for each in families} if s.code else {}
    named = tuple(
        Finding(Basis.FAMILY, {"family": each, "executed_share": shares[each]})
        for each in sorted(shares, key=shares.__getitem__, reverse=True)[:3]
    )
    return Finding(Basis.EXECUTED, {"families": named}) if named else None


def _packed_halves(s: Situation) -> Iterator[Step]:
    """Two multiply-adds in one instruction, where the GPU does more of them so."""
    ops = counted_float_ops(s.row)
    if s.verdict.part is not Part.FMA_PIPE or not ops or max(ops, key=ops.__getitem__) != "fp32":
        return
    slow, fast = (number(s.row, f"{precision}_peak_ops_per_cycle") for precision in ("fp32", "fp16"))
    if slow is None or fast is None or not fast > slow > 0 or s.executes(Family.PACKED, least=UNUSED.share):
        return
    still = s.use(Part.FMA_PIPE) * slow / fast
    room = s.room(Part.FMA_PIPE, Part.ISSUE_SLOTS, still=still, other_work=True)
    yield step(StepId.PACKED_HALVES, room, Finding(Basis.PEAKS, {"ratio": fast / slow}))


_MATRIX_KINDS = {"fp32": "fp16", "fp16": "fp16", "fp64": "fp64"}
"""Precision outside the tensor cores -> their fastest kind that stands for it: halves are often computed in fp32."""


def _tensor_cores(s: Situation) -> Iterator[Step]:
    """Tensor cores for arithmetic that may be a product of matrices: it reads operands while it multiplies."""
    used, fma = number(s.row, "tensor_active_pct"), s.traced(metric("fma_pct"))
    if s.verdict.part not in (Part.ISSUE_SLOTS, Part.FMA_PIPE) or used is None or fma is None or used >= UNUSED.value:
        return
    arithmetic = fma.value >= FMA_OF_ISSUE.share * s.use(Part.ISSUE_SLOTS)
    if not arithmetic or s.use(*PASSES) < OPERANDS.value or s.has(*MATRIX_UNITS):
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


# Memory


def dram(s: Situation) -> Iterator[Step]:
    use, excess = s.use(Part.DRAM), s.excess_bytes
    if excess is not None and excess >= EXCESS.value:
        basis = Finding(Basis.EXCESS_BYTES, {"factor": excess, **s.use_of(Part.DRAM)})
        room = s.room(Part.DRAM, Part.L2, still=use / excess)
        yield step(StepId.MOVE_FEWER_BYTES, room, basis, estimate=use * (1 - 1 / excess))
    elif excess is not None:
        kind = Basis.BYTES_KEPT if excess < KEPT.value else Basis.BYTES_MOVED
        yield step(StepId.NEED_FEWER_BYTES, None, Finding(kind, {"factor": excess}))
    else:
        yield step(StepId.NEED_FEWER_BYTES, None, Finding(Basis.BYTES_BIND))
    yield from _ramp(s, Part.DRAM)
    if use < SATURATED.value:
        yield _more_loads(s)
        yield from more_warps(s)


def _ramp(s: Situation, part: Part) -> Iterator[Step]:
    """Its start and end, where they are most of what is left to the roof."""
    overhead, idle = quantities.OVERHEAD.of(s.row) or 0.0, quantities.IDLE.of(s.row) or 0.0
    idle_pct = overhead + idle * (100 - overhead) / 100
    if idle_pct >= (100 - s.use(part)) / 2:
        yield step(StepId.SHORTER_RAMP, s.room(), Finding(Basis.RAMP, {"idle_pct": idle_pct}), estimate=idle_pct)


def _more_loads(s: Situation) -> Step:
    top = s.stalls[0] if s.stalls else None
    waits = top is not None and top.of == "long_scoreboard" and top.value >= DOMINANT_STALL.value
    wait = Finding(Basis.WAIT, {"reason": top.of, "share": top.number}) if waits and top else None
    where = s.code.hottest("long_scoreboard") if s.code and waits else None
    rules = s.estimated("CPIStall") if waits else ()
    return step(StepId.MORE_LOADS, s.room(), both(wait, hot(where)), load_ways(s, where), rules=rules)


def load_ways(s: Situation, waiting: HotInstruction | None) -> dict[str, Value]:
    """How to keep more bytes on their way. waiting: the instruction at which most warps wait for them."""
    loads = (Family.GLOBAL_LOAD, Family.ASYNC_COPY)
    if waiting is not None and waiting.chain:
        return ways((Way.SEVERAL_CHAINS, True))
    if s.has(*COPIES):
        return ways((Way.MORE_STAGES, True))
    return ways(
        (Way.LOADS_IN_FLIGHT, True),
        (Way.WIDER_LOADS, s.narrow(*loads)),
        (Way.ASYNC_COPIES, s.code is not None and s.has(Family.SHARED_STORE)),
    )


def more_warps(s: Situation) -> Iterator[Step]:
    """More warps to wait at the same time, where the grid has them and something holds them down."""
    found, room = occupancy(s.row), s.room()
    if found.waves is not None and not found.waves.full:
        if found.waves.idle_share >= EMPTY.share:
            most = found.waves.idle_share * (100 - (quantities.OVERHEAD.of(s.row) or 0.0))
            yield step(
                StepId.FILL_WAVE,
                Room(min(room.pct, most), room.basis),
                Finding(Basis.EMPTY_PLACES, {"empty": found.waves.idle_share}),
                {"blocks": found.waves.last_blocks, "wave_blocks": found.waves.wave_blocks},
            )
        return
    lifted = found.lift is not None and len(found.steps) == len(found.lift.resources)
    if found.steps and found.theoretical_pct and found.blocks and lifted:
        more = min(each.blocks for each in found.steps) / found.blocks
        then = min(100.0, found.theoretical_pct * more)
        if then > found.theoretical_pct:
            # At best a block takes as long as before: time goes down with the warps, and with whole waves.
            waves = found.waves.waves if found.waves else 1.0
            left = min(found.theoretical_pct / then, math.ceil(waves / more) / math.ceil(waves))
            yield step(
                StepId.MORE_WARPS,
                Room(min(room.pct, 100 * (1 - left)), room.basis),
                Finding(Basis.MORE_WAIT),
                {
                    "changes": tuple(each.finding for each in found.steps),
                    "occupancy_pct": found.theoretical_pct,
                    "then_pct": then,
                },
                rules=s.estimated("TheoreticalOccupancy"),
            )


def l2(s: Situation) -> Iterator[Step]:
    yield step(StepId.LESS_L2, s.room(Part.L2, *LOADS))
    yield from _ramp(s, Part.L2)


def passes(s: Situation) -> Iterator[Step]:
    """The data stage of L1 and shared memory."""
    part = s.verdict.part
    assert part is not None
    conflicts = s.traced(quantities.BANK_CONFLICTS)
    # Atomics on one word are passes one after another too.
    atomics = any(cause.id is CauseId.ATOMICS for cause in s.verdict.causes)
    if conflicts is not None and conflicts.value >= CONFLICTS.share and not atomics:
        room = s.room(*PASSES, still=s.use(part) * (1 - conflicts.value))
        basis = Finding(Basis.CONFLICTS, {"share": conflicts})
        yield step(StepId.NO_BANK_CONFLICTS, room, basis, rules=s.estimated(*CONFLICT_RULES))
        return
    shared = (Family.SHARED_LOAD, Family.SHARED_STORE)
    if part is Part.L1_DATA:
        how = ways(
            (Way.COALESCED, s.code is None or s.code.most_scattered() is not None),
            (Way.WIDER_LOADS, s.narrow(Family.GLOBAL_LOAD, Family.GLOBAL_STORE)),
            (Way.IN_REGISTERS, True),
        )
        yield step(StepId.FEWER_L1_PASSES, s.room(*LOADS), _executed(s), how)
        return
    how = ways(
        (Way.WIDER_SHARED, s.narrow(*shared)),
        (Way.IN_REGISTERS, True),
        (Way.SHUFFLES, s.code is not None and not s.has(Family.SHUFFLE, *MATRIX_UNITS)),
    )
    yield step(StepId.FEWER_SHARED_PASSES, s.room(*LOADS), _executed(s), how)


def constants(s: Situation) -> Iterator[Step]:
    """The cache of constants that are read by an index."""
    less = (Part.CONSTANT_CACHE, Part.ADU_PIPE, Part.ISSUE_SLOTS)
    yield step(StepId.UNIFORM_CONSTANTS, s.room(*less), s.in_code(Family.CONSTANT))


def other_memory(s: Situation) -> Iterator[Step]:
    """A part of the memory system that has no column."""
    yield step(StepId.FIND_MEMORY_PART, s.room(Part.OTHER_MEMORY, *PASSES, Part.L2))
