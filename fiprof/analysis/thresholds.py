"""Every threshold that something is compared with, once: a row of ``thresholds.csv``, with value and unit, who chose
it and why. What is said of a threshold (``ncu's rule SOLBottleneck``) is the wording of its origin.
"""

from pathlib import Path
from typing import Self

from fiprof.text import Wording, csv_rows


class ThresholdOrigin(Wording):
    NCU_SOL_BOTTLENECK = "ncu_sol_bottleneck", "ncu's rule SOLBottleneck"
    NCU_CPI_STALL = "ncu_cpi_stall", "ncu's rule CPIStall"
    NCU_SHARED_MEMORY_CONFLICTS = "ncu_shared_memory_conflicts", "ncu's rule SharedMemoryConflicts"
    AFTER_LAUNCH_CONFIGURATION = "after_launch_configuration", "fiprof, after ncu's rule LaunchConfiguration"
    WAITS_LONGER_THAN_IT_WORKS = "waits_longer_than_it_works", "fiprof: it waits longer than it works"
    MULTIPROCESSORS = "multiprocessors", "the multiprocessors of this GPU"
    FIPROF = "fiprof"  # for the reason that its row gives


class Threshold(float):
    """A limit that a number is compared with, in a unit."""

    unit: str
    origin: ThresholdOrigin

    def __new__(cls, value: float, unit: str = "", origin: ThresholdOrigin = ThresholdOrigin.FIPROF) -> Self:
        threshold = super().__new__(cls, value)
        threshold.unit, threshold.origin = unit, origin
        return threshold


for _name, _row in csv_rows(Path(__file__).with_name("thresholds.csv")).items():
    globals()[_name] = Threshold(float(_row["value"]), _row["unit"], ThresholdOrigin(_row["origin"] or "fiprof"))


def __getattr__(name: str) -> Threshold:
    """What a type checker sees of the rows. Raises AttributeError for a name that has none."""
    raise AttributeError(f"thresholds.csv has no {name}")
