"""Every threshold that something is held against, once: a row of ``thresholds.csv``, with its value and unit, who chose
it and why. What is said of a threshold (``ncu's rule SOLBottleneck``) is the wording of its origin.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from fiprof.text import Worded, csv_rows


class ThresholdOrigin(Worded):
    NCU_SOL_BOTTLENECK = "ncu_sol_bottleneck", "ncu's rule SOLBottleneck"
    NCU_CPI_STALL = "ncu_cpi_stall", "ncu's rule CPIStall"
    NCU_SHARED_MEMORY_CONFLICTS = "ncu_shared_memory_conflicts", "ncu's rule SharedMemoryConflicts"
    AFTER_LAUNCH_CONFIGURATION = "after_launch_configuration", "fiprof, after ncu's rule LaunchConfiguration"
    WAITS_LONGER_THAN_IT_WORKS = "waits_longer_than_it_works", "fiprof: it waits longer than it works"
    MULTIPROCESSORS = "multiprocessors", "the multiprocessors of this GPU"
    FIPROF = "fiprof"  # for the reason that its row gives


class Threshold(float):
    """A limit that a number is held against, in a unit."""

    unit: str
    origin: ThresholdOrigin

    def __new__(cls, value: float, unit: str = "", origin: ThresholdOrigin = ThresholdOrigin.FIPROF) -> Self:
        threshold = super().__new__(cls, value)
        threshold.unit, threshold.origin = unit, origin
        return threshold


_ROWS = csv_rows(Path(__file__).with_name("thresholds.csv"))


def _of(names: str) -> Iterator[Threshold]:
    for row in map(_ROWS.__getitem__, names.split()):
        yield Threshold(float(row["value"]), row["unit"], ThresholdOrigin(row["origin"] or "fiprof"))


# What binds a launch

BUSY, SATURATED, CLOSE, NOISE, ELSEWHERE, IDLE, WAITING = _of("BUSY SATURATED CLOSE NOISE ELSEWHERE IDLE WAITING")
DOMINANT_STALL, NEGLIGIBLE_STALL, BUSY_ISSUE, SHORT = _of("DOMINANT_STALL NEGLIGIBLE_STALL BUSY_ISSUE SHORT")

# Why it is slow

CONFLICTED, CONTENDED, CONTENDED_UNIT, MOSTLY = _of("CONFLICTED CONTENDED CONTENDED_UNIT MOSTLY")
SHARED_ATOMICS, LOCAL_TRAFFIC, HOST_TRAFFIC, SCATTERED = _of("SHARED_ATOMICS LOCAL_TRAFFIC HOST_TRAFFIC SCATTERED")
QUEUED, QUEUED_LOADS, FILLS, FULL_REQUEST, FEW_LANES = _of("QUEUED QUEUED_LOADS FILLS FULL_REQUEST FEW_LANES")
WARP, BESIDE = _of("WARP BESIDE")

# What is worth a step

SOME_WAITING, OVERHEAD, LEAST_GAIN, UNINFORMATIVE = _of("SOME_WAITING OVERHEAD LEAST_GAIN UNINFORMATIVE")
PROCESSES_DIFFER, BOARDS_DIFFER, PROCESSES_DRIFT = _of("PROCESSES_DIFFER BOARDS_DIFFER PROCESSES_DRIFT")
WORTH_CHANGING, SINGLE_ROUND, CONFLICTS, UNUSED, EXCESS = _of("WORTH_CHANGING SINGLE_ROUND CONFLICTS UNUSED EXCESS")
KEPT, FMA_OF_ISSUE, FREQUENT, OPERANDS, FUSED, EMPTY = _of("KEPT FMA_OF_ISSUE FREQUENT OPERANDS FUSED EMPTY")

# Fits

FIT_POINTS, OFF_FIT = _of("FIT_POINTS OFF_FIT")

# Comparisons of two sides

FALSE_ALARMS, LEAST_CHANGE, SAME_WITHIN, PROCESS_SPREAD = _of("FALSE_ALARMS LEAST_CHANGE SAME_WITHIN PROCESS_SPREAD")
