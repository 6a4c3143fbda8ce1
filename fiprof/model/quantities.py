"""Every quantity of a launch, once: its key, unit, arithmetic over ncu's metrics, and what it means.

Terminal, JSON, reports, studies and the page of keys (docs/keys.md) take a quantity from here; none is computed
anywhere else. Operations and their peaks are in ``work.py``, bytes and theirs in ``traffic.py``. A new metric is a line
of ``metrics.csv`` (ncu's name) and, where it is to be shown, one here.
"""

from __future__ import annotations

from fiprof.model.expressions import Bounded, First, Largest, Metric, Row
from fiprof.model.metrics import METRICS
from fiprof.model.provenance import Provenance, TracedNumber
from fiprof.model.quantity import Key, Quantity
from fiprof.model.rates import SM_CYCLES, SM_HZ
from fiprof.model.traffic import DRAM_BYTES_PER_S, DRAM_PEAK, L1_BYTES_PER_S, L1_PEAK, L2_BYTES_PER_S, L2_PEAK
from fiprof.model.work import FLOAT_OPS, TENSOR_OPS

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
L2_PARTS = ("l2_to_sm_pct", "sm_to_l2_pct", "l2_sectors_pct", "l2_tags_pct")
"""Not ``l2_throughput_pct``: ncu's figure for the whole of L2 is of a part that its report does not show (see
``hidden_l2_part``)."""
L2_USE = Quantity(
    "l2_use_pct", "%", "Use of L2's busiest part that the report shows.", Largest(tuple(map(Metric, L2_PARTS))), ".1f"
)
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
    "Clock of the multiprocessors, as ncu's rooflines take it, at most the GPU's highest; its «SM Frequency» is "
    "measured in another replay.",
    SM_HZ / 1e9,
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
    Metric("sm_active_cycles") / SM_CYCLES,
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
    Bounded(100 * (1 - Metric("sm_active_cycles_max") / SM_CYCLES), 0, 100),
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

# What shows why a launch is slow, beside how much of the hardware it uses

_LOCAL = Metric("local_load_sectors") + Metric("local_store_sectors")
_GLOBAL = Metric("global_load_sectors") + Metric("global_store_sectors")
LOCAL_SHARE = Quantity(
    "local_pct",
    "%",
    "Local memory's part of the sectors that loads and stores of local and global memory touch.",
    100 * (_LOCAL / (_LOCAL + _GLOBAL)),
    ".0f",
)
LOCAL_BYTES = Quantity(
    "local_mb", "MB", "Bytes of local memory that loads and stores touch.", _LOCAL * 32 / 1e6, ",.0f"
)
SECTORS_PER_NEEDED = Quantity(
    "global_sectors_per_needed",
    "",
    "Sectors that global memory instructions touch for each that they would touch if their bytes lay side by side.",
    Metric("global_sectors") / Metric("global_sectors_needed"),
    ".1f",
)
SECTORS_PER_REQUEST = Quantity(
    "global_sectors_per_request",
    "",
    "Sectors of 32 bytes that a warp's load or store of global memory touches.",
    _GLOBAL / (Metric("global_load_requests") + Metric("global_store_requests")),
    ".1f",
)
ATOMIC_SHARE = Quantity(
    "l2_atomic_pct",
    "%",
    "Atomics' part of the sectors that the multiprocessors ask L2 for.",
    100 * ((Metric("l2_atom_sectors") + Metric("l2_red_sectors")) / Metric("l2_sm_sectors")),
    ".0f",
)
ATOMIC_CONTENTION = Quantity(
    "l2_atomic_max_over_mean",
    "",
    "Atomics in the L2 slice that takes in most, over the mean slice: 1 where they are spread evenly.",
    Metric("l2_atomic_unit_max_pct") / Metric("l2_atomic_unit_pct"),
    ".0f",
)
_SHARED_INSTS = Metric("shared_load_insts") + Metric("shared_store_insts") + Metric("shared_atomic_insts")
SHARED_ATOMIC_SHARE = Quantity(
    "shared_atomic_pct",
    "%",
    "Atomics' part of the instructions on shared memory.",
    100 * (Metric("shared_atomic_insts") / _SHARED_INSTS),
    ".0f",
)
HOST_SHARE = Quantity(
    "host_memory_pct",
    "%",
    "Part of the sectors that the multiprocessors ask L2 for which come from the host's memory.",
    100 * (Metric("l2_host_sectors") / Metric("l2_sm_sectors")),
    ".0f",
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


BESIDE = Key("beside_pct", "%", "Part of a kernel's time under nsys in which a kernel of another stream ran beside it.")


QUANTITIES: dict[str, Quantity] = {
    **METRIC_QUANTITIES,
    **{found.key: found for found in list(globals().values()) if isinstance(found, Quantity)},
}
"""Every quantity of a launch by its key."""
