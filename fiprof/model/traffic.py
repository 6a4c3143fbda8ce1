"""The bytes that a launch moves through DRAM, L2 and L1, and the most that each can move in a second.

Peaks are at the clock measured during the launch.
"""

from __future__ import annotations

from fiprof.model.expressions import First, Metric
from fiprof.model.rates import DRAM_HZ, L2_HZ, SM_HZ, per_second

_READ_AND_WRITTEN = Metric("dram_read_bytes") + Metric("dram_write_bytes")
DRAM_BYTES = First((_READ_AND_WRITTEN, Metric("dram_bytes_per_second") * Metric("duration_ns") / 1e9))
DRAM_BYTES_PER_S = First((Metric("dram_bytes_per_second"), per_second(_READ_AND_WRITTEN)))
DRAM_PEAK = Metric("dram_peak_bytes_per_cycle") * DRAM_HZ
L2_BYTES_PER_S = Metric("l2_bytes_per_second")
L2_PEAK = Metric("l2_peak_bytes_per_cycle") * L2_HZ
L1_BYTES_PER_S = Metric("l1_bytes_per_second")
L1_PEAK = Metric("l1_peak_bytes_per_cycle") * SM_HZ
