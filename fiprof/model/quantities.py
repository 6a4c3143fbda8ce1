"""Every quantity of a launch, once: its key, unit, arithmetic over ncu's metrics, and what it means.

Terminal, JSON, reports, studies and the page of keys (docs/keys.md) take a quantity from here; none is computed
anywhere else. A new metric is a line of ``metrics.csv`` (ncu's name) and, where it is to be shown, one here.
"""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.model.expressions import Bounded, Chosen, Expression, First, Metric, Names, Row, Total, number
from fiprof.model.metrics import FLOAT_INSTS, METRICS, OPS_PER_INST, TENSOR_KINDS
from fiprof.model.provenance import Provenance, TracedNumber


@dataclass(frozen=True)
class Key:
    """A key of the JSON output."""

    key: str
    """With the unit in it where it has one, e.g. ``duration_us``."""
    unit: str
    """E.g. ``µs``, ``GB/s``, ``%``; empty for counts, shares (0 to 1) and what is no number."""
    meaning: str
    """One phrase."""


@dataclass(frozen=True)
class Quantity(Key):
    """A number of a launch."""

    expression: Expression
    spec: str = ".2f"
    """How people read it."""

    def of(self, row: Row) -> float | None:
        """The number in its unit; None where something that it needs was not collected."""
        return self.expression.value(row)

    def provenance(self, row: Row, names: Names) -> Provenance:
        """Where the number comes from: ncu's metrics of this launch."""
        return Provenance("ncu", self.expression.formula(row, names), launch=row.get("launch"))

    def traced(self, row: Row, names: Names, *, spec: str = "", unit: str | None = None) -> TracedNumber | None:
        """The number with its provenance. spec, unit: how to write it, where not as usual."""
        value = self.of(row)
        if value is None:
            return None
        shown = self.unit if unit is None else unit
        after = shown if shown in ("", "%") else f" {shown}"
        return TracedNumber(value, self.provenance(row, names), spec or self.spec, after)


# Operations


def tensor_ops(kind: str) -> Expression:
    """Tensor operations on operands of a kind (of TENSOR_KINDS), a multiply-add being two."""
    return Metric(f"tensor_ops_{kind}")


TENSOR_OPS = Total(tuple(map(tensor_ops, TENSOR_KINDS)))
"""Of all kinds: the sum of ncu's parent counters ``sm__ops_path_tensor_src_*``. The counters by instruction,
``sm__ops_path_tensor_op_*``, are parts of them and stay out."""


def _thread_insts(inst: str) -> Expression:
    rate = Metric(f"{inst}_thread_insts_per_cycle") * Metric("sm_cycles")
    return First((Metric(f"{inst}_thread_insts"), rate))


def float_ops(precision: str, *, conversions: bool = True) -> Expression:
    """Operations outside the tensor cores of a precision (a key of FLOAT_INSTS).

    fp32 = FADD + FMUL + 2 FFMA, fp16 = 2 HADD + 2 HMUL + 4 HFMA (packed pairs), fp64 = DADD + DMUL + 2 DFMA, each a
    thread's predicated-on instructions: the sums of Nsight Compute's roofline sections. Where ncu gives only the rate
    (``--set full`` does), count = rate x ``sm_cycles``, as exact as the rate's two decimals. Conversions between half
    and single precision execute as HADD and count as such; without ``conversions`` half additions stay out.
    """
    terms = [
        OPS_PER_INST[inst] * _thread_insts(inst) if OPS_PER_INST[inst] > 1 else _thread_insts(inst)
        for inst in FLOAT_INSTS[precision]
        if conversions or inst != "hadd"
    ]
    first, *rest = terms
    for term in rest:
        first = first + term
    return first


FLOAT_OPS = {precision: float_ops(precision) for precision in FLOAT_INSTS}
FLOAT_OPS_WITHOUT_CONVERSIONS = Total(tuple(float_ops(precision, conversions=False) for precision in FLOAT_INSTS))


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


# Rates and peaks, in base units (operations or bytes a second) at the clocks measured during the launch

SECONDS = Metric("duration_ns") / 1e9


def per_second(amount: Expression) -> Expression:
    """An amount over the launch's duration."""
    return amount / Metric("duration_ns") * 1e9


def wgmma_peak(kind: str) -> Expression:
    """Most tensor operations of a kind in a second by the GPU's fastest dense instruction."""
    return Metric(f"tensor_peak_{kind}_ops_per_cycle") * Metric("sm_clock_hz")


def mma_peak(kind: str) -> Expression:
    """The same by instructions of a warp (mma), where those of a warpgroup are faster."""
    return Metric(f"mma_peak_{kind}_ops_per_cycle") * Metric("sm_clock_hz")


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
    return Metric(f"{precision}_peak_ops_per_cycle") * Metric("sm_clock_hz")


def _dominant_peak(row: Row) -> Expression | None:
    kind = dominant_tensor_kind(row)
    return None if kind is None else tensor_peak(kind)


TENSOR_PEAK = Chosen(_dominant_peak)
"""Of the kind with most operations."""

_READ_AND_WRITTEN = Metric("dram_read_bytes") + Metric("dram_write_bytes")
DRAM_BYTES = First((_READ_AND_WRITTEN, Metric("dram_bytes_per_second") * Metric("duration_ns") / 1e9))
DRAM_BYTES_PER_S = First((Metric("dram_bytes_per_second"), per_second(_READ_AND_WRITTEN)))
DRAM_PEAK = Metric("dram_peak_bytes_per_cycle") * Metric("dram_clock_hz")
L2_BYTES_PER_S = Metric("l2_bytes_per_second")
L2_PEAK = Metric("l2_peak_bytes_per_cycle") * Metric("l2_clock_hz")
L1_BYTES_PER_S = Metric("l1_bytes_per_second")
L1_PEAK = Metric("l1_peak_bytes_per_cycle") * Metric("sm_clock_hz")

# What is shown

DURATION = Quantity("duration_us", "µs", "Duration of the launch under ncu.", Metric("duration_ns") / 1000, ",.2f")

DRAM_GB_PER_S = Quantity(
    "dram_gb_per_s", "GB/s", "Bytes read and written in DRAM a second.", DRAM_BYTES_PER_S / 1e9, ",.0f"
)
DRAM_ROOF = Quantity(
    "dram_roof_gb_per_s",
    "GB/s",
    "Most that DRAM can move, at the clock measured during the launch.",
    DRAM_PEAK / 1e9,
    ",.0f",
)
DRAM_SHARE = Quantity(
    "dram_share", "", "DRAM's bytes a second over its peak, 0 to 1.", DRAM_BYTES_PER_S / DRAM_PEAK, ".1%"
)
L2_GB_PER_S = Quantity(
    "l2_gb_per_s", "GB/s", "Bytes from L2 towards the multiprocessors a second.", L2_BYTES_PER_S / 1e9, ",.0f"
)
L2_ROOF = Quantity(
    "l2_roof_gb_per_s", "GB/s", "Most that L2 can send, at the clock measured during the launch.", L2_PEAK / 1e9, ",.0f"
)
L2_SHARE = Quantity("l2_share", "", "L2's bytes a second over its peak, 0 to 1.", L2_BYTES_PER_S / L2_PEAK, ".1%")
L1_GB_PER_S = Quantity(
    "l1_gb_per_s",
    "GB/s",
    "Bytes written back from L1 to registers a second; TMA bypasses it.",
    L1_BYTES_PER_S / 1e9,
    ",.0f",
)
L1_ROOF = Quantity(
    "l1_roof_gb_per_s", "GB/s", "Most that L1 can write back, at the measured clock.", L1_PEAK / 1e9, ",.0f"
)
L1_SHARE = Quantity("l1_share", "", "L1's bytes a second over its peak, 0 to 1.", L1_BYTES_PER_S / L1_PEAK, ".1%")

TENSOR_OPERATIONS = Quantity(
    "tensor_ops", "", "Tensor operations that ncu counted, a multiply-add being two.", TENSOR_OPS, ",.4g"
)
FP32_OPERATIONS = Quantity(
    "fp32_ops", "", "Single-precision operations outside the tensor cores, likewise.", FLOAT_OPS["fp32"], ",.4g"
)

SM_CLOCK = Quantity(
    "sm_clock_ghz",
    "GHz",
    "Clock of the multiprocessors, as ncu's rooflines take it; its «SM Frequency» is measured in another replay.",
    Metric("sm_clock_hz") / 1e9,
    ".3f",
)
SHARED_MEMORY = Quantity(
    "shared_kb_per_block",
    "kB",
    "Static and dynamic shared memory of a block, in 1,000 bytes.",
    (Metric("shared_static_bytes") + Metric("shared_dynamic_bytes")) / 1000,
    ".1f",
)
DRAM_READ = Quantity("dram_read_mb", "MB", "Bytes read from DRAM.", Metric("dram_read_bytes") / 1e6, ",.1f")
MILLION_INSTRUCTIONS = Quantity(
    "million_instructions", "", "Instructions of warps, in millions.", Metric("instructions") / 1e6, ",.2f"
)
SM_ACTIVE = Quantity(
    "sm_active_share",
    "",
    "Cycles in which the average multiprocessor had a warp, 0 to 1.",
    Metric("sm_active_cycles") / Metric("sm_cycles"),
)
IDLE = Quantity(
    "idle_pct",
    "%",
    "Time of the multiprocessor that works longest in which the average one has no warp.",
    Bounded(100 * (1 - Metric("sm_active_cycles") / Metric("sm_active_cycles_max")), 0, 100),
    ".1f",
)
OVERHEAD = Quantity(
    "overhead_pct",
    "%",
    "Cycles of the launch in which no multiprocessor has a warp: its start and end.",
    Bounded(100 * (1 - Metric("sm_active_cycles_max") / Metric("sm_cycles")), 0, 100),
    ".1f",
)


def _sectors(kind: str) -> Quantity:
    return Quantity(
        f"global_{kind}s_sectors_per_request",
        "",
        f"Sectors of 32 bytes that a warp's {kind} of global memory touches.",
        Metric(f"global_{kind}_sectors") / Metric(f"global_{kind}_requests"),
        ".1f",
    )


def _conflicts(kind: str) -> Quantity:
    conflicts = Metric(f"shared_{kind}_bank_conflicts")
    return Quantity(
        f"shared_{kind}s_conflict_share",
        "",
        f"Passes of shared memory {kind}s that bank conflicts added, of all of them, 0 to 1.",
        First((conflicts / Metric(f"shared_{kind}_wavefronts"), conflicts)),
        ".1%",
    )


def _passes(kind: str) -> Quantity:
    """ncu's rule SharedMemoryConflicts divides by the requests instead, so that a 16-byte load, which needs four
    passes, is a 4-way conflict to it."""
    passes = Metric(f"shared_{kind}_wavefronts")
    return Quantity(
        f"shared_{kind}s_passes_per_needed",
        "",
        f"Passes of shared memory {kind}s for each one needed without bank conflicts: 1 is ideal.",
        passes / (passes - Metric(f"shared_{kind}_bank_conflicts")),
        ".2f",
    )


GLOBAL_LOADS_SECTORS, GLOBAL_STORES_SECTORS = _sectors("load"), _sectors("store")
SHARED_LOADS_CONFLICTS, SHARED_STORES_CONFLICTS = _conflicts("load"), _conflicts("store")
SHARED_LOADS_PASSES, SHARED_STORES_PASSES = _passes("load"), _passes("store")
BANK_CONFLICTS = Quantity(
    "shared_conflict_share",
    "",
    "Passes through shared memory that bank conflicts added, of all of them, 0 to 1.",
    Metric("shared_bank_conflicts") / Metric("shared_wavefronts"),
    ".1%",
)
LOCAL_REQUESTS = Quantity(
    "local_requests",
    "",
    "Loads and stores of local memory: a thread's arrays that are no registers, and spilled registers.",
    Metric("local_load_requests") + Metric("local_store_requests"),
    ",.0f",
)

_UNITS = {"%": "%", "cycles": "cycles", "bytes": "bytes"}
METRIC_QUANTITIES = {
    metric.name: Quantity(metric.name, _UNITS.get(metric.unit, ""), metric.meaning, Metric(metric.name), metric.shown)
    for metric in METRICS
    if metric.shown
}
"""Column of ``launches`` -> the quantity that is the metric itself."""


def metric(column: str) -> Quantity:
    """The quantity that is a metric itself. column: of METRIC_QUANTITIES."""
    return METRIC_QUANTITIES[column]


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
    """The kind of work that uses the largest share of its roof; None where the operations are not all known.

    Half additions do not count for it: conversions between half and single precision execute as HADD.
    """
    works = counted_works(row)
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


STALL_METRIC = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
"""ncu's metric of a stall reason, in warps an issued instruction."""


def stall_provenance(row: Row, reason: str, *, percent: bool = False) -> Provenance:
    """Where a reason's share of the warps' time comes from."""
    share = f"{STALL_METRIC.format(reason)} / sum({STALL_METRIC.format('*')})"
    return Provenance("ncu", f"100 * ({share})" if percent else share, launch=row.get("launch"))


STALL_SHARE = Key("stall_share_pct", "%", "Part of the warps' time in a stall reason, by ncu's counters.")


def stall_share(row: Row, reason: str, share: float) -> TracedNumber:
    """STALL_SHARE of a reason. share: of the table ``stalls``, 0 to 1."""
    return TracedNumber(100 * share, stall_provenance(row, reason, percent=True), ".0f", "%")


QUANTITIES: dict[str, Quantity] = {
    **METRIC_QUANTITIES,
    **{found.key: found for found in list(globals().values()) if isinstance(found, Quantity)},
}
"""Every quantity of a launch by its key."""
