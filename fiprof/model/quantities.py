"""Every quantity of a launch, once: its key, unit, formula over ncu's metrics, and what it means.

Each is a row of ``quantities.csv``; a metric of ``metrics.csv`` with a format is one by itself. Terminal, JSON,
reports, studies and the page of keys (docs/keys.md) take a quantity from here; none is computed anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.model import formula
from fiprof.model.finding import Provenance, TracedNumber
from fiprof.model.formula import Formula, Names, Row
from fiprof.model.metrics import METRICS


@dataclass(frozen=True)
class Key:
    """A key of the JSON output."""

    key: str
    """With the unit in it where it has one, e.g. ``duration_us``."""
    unit: str
    """E.g. ``µs``, ``GB/s``, ``%``; empty for counts, shares (0 to 1) and what is no number."""
    meaning: str
    """One phrase."""


def unit_text(unit: str) -> str:
    """What follows a number."""
    return unit if unit in ("", "%") else f" {unit}"


@dataclass(frozen=True)
class Quantity(Key):
    """A number of a launch."""

    formula: Formula
    spec: str = ".2f"
    """Format for people."""

    def of(self, row: Row) -> float | None:
        """The number in its unit; None where something that it needs was not collected."""
        return self.formula.value(row)

    def traced(self, row: Row, names: Names, *, spec: str = "", unit: str | None = None) -> TracedNumber | None:
        """The number with its provenance. spec, unit: how to write it, where not as usual."""
        value = self.of(row)
        if value is None:
            return None
        source = Provenance("ncu", self.formula.written(row, names), launch=row.get("launch"))
        return TracedNumber(value, source, spec or self.spec, unit_text(self.unit if unit is None else unit))


_METRIC_UNITS = ("%", "cycles", "bytes")

QUANTITIES: dict[str, Quantity] = {
    each.name: Quantity(
        each.name, each.unit if each.unit in _METRIC_UNITS else "", each.meaning, Formula(each.name), each.shown
    )
    for each in METRICS
    if each.shown
} | {
    key: Quantity(key, row["unit"], row["meaning"], Formula(row["formula"]), row["format"])
    for key, row in formula.table().items()
    if row["formula"] and row["format"]
}
"""Every quantity of a launch by its key."""


def quantity(key: str) -> Quantity:
    """The quantity with a key, e.g. ``dram_share``, or of a metric's column."""
    return QUANTITIES[key]


metric = quantity

DURATION = quantity("duration_us")
DRAM_GB_PER_S, DRAM_ROOF, DRAM_SHARE = map(quantity, ("dram_gb_per_s", "dram_roof_gb_per_s", "dram_share"))
L2_GB_PER_S, L2_USE = map(quantity, ("l2_gb_per_s", "l2_use_pct"))
SM_CLOCK, SHARED_MEMORY = map(quantity, ("sm_clock_ghz", "shared_kb_per_block"))
IDLE, OVERHEAD = map(quantity, ("idle_pct", "overhead_pct"))
GLOBAL_LOADS_SECTORS = quantity("global_loads_sectors_per_request")
GLOBAL_STORES_SECTORS = quantity("global_stores_sectors_per_request")
SHARED_LOADS_PASSES = quantity("shared_loads_passes_per_needed")
"""ncu's rule SharedMemoryConflicts divides by the requests instead, so that a 16-byte load, which needs four passes, is
a 4-way conflict to it."""
SHARED_STORES_PASSES = quantity("shared_stores_passes_per_needed")
BANK_CONFLICTS = quantity("shared_conflict_share")
LOCAL_REQUESTS, LOCAL_SHARE, LOCAL_BYTES = map(quantity, ("local_requests", "local_pct", "local_mb"))
SECTORS_PER_NEEDED = quantity("global_sectors_per_needed")
SECTORS_PER_REQUEST = quantity("global_sectors_per_request")
ATOMIC_SHARE, ATOMIC_CONTENTION = map(quantity, ("l2_atomic_pct", "l2_atomic_max_over_mean"))
SHARED_ATOMIC_SHARE, HOST_SHARE = map(quantity, ("shared_atomic_pct", "host_memory_pct"))

L2_PARTS = ("l2_to_sm_pct", "sm_to_l2_pct", "l2_sectors_pct", "l2_tags_pct")
"""The parts of L2 in ``l2_use_pct``. Not ``l2_throughput_pct``: ncu's figure for the whole of L2 is of a part that its
report does not show (see ``hidden_l2_part``)."""

STALL_METRIC = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
"""ncu's metric of a stall reason, in warps an issued instruction."""
STALL_SHARE = Key("stall_share_pct", "%", "Part of the warps' time in a stall reason, by ncu's counters.")
BESIDE = Key("beside_pct", "%", "Part of a kernel's time under nsys in which a kernel of another stream ran beside it.")


def stall_provenance(row: Row, reason: str, *, percent: bool = False) -> Provenance:
    """Where a reason's share of the warps' time comes from."""
    share = f"{STALL_METRIC.format(reason)} / sum({STALL_METRIC.format('*')})"
    return Provenance("ncu", f"100 * ({share})" if percent else share, launch=row.get("launch"))


def stall_share(row: Row, reason: str, share: float) -> TracedNumber:
    """STALL_SHARE of a reason. share: of the table ``stalls``, 0 to 1."""
    return TracedNumber(100 * share, stall_provenance(row, reason, percent=True), ".0f", "%")
