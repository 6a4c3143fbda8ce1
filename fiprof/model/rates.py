"""Clocks, and amounts over the time of a launch, in base units a second.

ncu takes a clock as cycles over duration, each of another replay: for launches of a few µs that was up to 2.18 GHz on
an H200, whose multiprocessors run at 1.98 GHz at most. So clocks are held to the highest that the GPU states. It states
none for L2.
"""

from __future__ import annotations

from fiprof.model.expressions import AtMost, Expression, First, Metric

SECONDS = Metric("duration_ns") / 1e9


def per_second(amount: Expression) -> Expression:
    """An amount over the launch's duration."""
    return amount / Metric("duration_ns") * 1e9


_MEASURED_SM_HZ = First((Metric("sm_clock_hz"), Metric("gpc_clock_hz")))
"""The multiprocessors run at the clock of their graphics processing cluster (GPC)."""

SM_HZ = AtMost(First((_MEASURED_SM_HZ, per_second(Metric("sm_cycles")))), Metric("max_sm_clock_khz") * 1000)
"""Clock of the multiprocessors during a launch."""
L2_HZ = Metric("l2_clock_hz")
DRAM_HZ = AtMost(Metric("dram_clock_hz"), Metric("max_dram_clock_khz") * 1000)

SM_CYCLES = First((Metric("sm_cycles"), _MEASURED_SM_HZ * Metric("duration_ns") / 1e9))
"""Cycles of a multiprocessor during a launch: what rates a cycle are of, so at the clock as it was measured."""
