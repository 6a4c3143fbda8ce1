"""Every threshold that something is held against, once: its value, its unit, and who chose it.

What is said of a threshold (``ncu's rule SOLBottleneck``) is the wording of its origin.
"""

from typing import Self

from fiprof.text import Worded


class ThresholdOrigin(Worded):
    NCU_SOL_BOTTLENECK = "ncu_sol_bottleneck", "ncu's rule SOLBottleneck"
    NCU_CPI_STALL = "ncu_cpi_stall", "ncu's rule CPIStall"
    NCU_SHARED_MEMORY_CONFLICTS = "ncu_shared_memory_conflicts", "ncu's rule SharedMemoryConflicts"
    AFTER_LAUNCH_CONFIGURATION = "after_launch_configuration", "fiprof, after ncu's rule LaunchConfiguration"
    WAITS_LONGER_THAN_IT_WORKS = "waits_longer_than_it_works", "fiprof: it waits longer than it works"
    MULTIPROCESSORS = "multiprocessors", "the multiprocessors of this GPU"
    FIPROF = "fiprof"
    """For the reason that the threshold's docstring gives."""


class Threshold(float):
    """A limit that a number is held against, in a unit."""

    unit: str
    origin: ThresholdOrigin

    def __new__(cls, value: float, unit: str = "", origin: ThresholdOrigin = ThresholdOrigin.FIPROF) -> Self:
        threshold = super().__new__(cls, value)
        threshold.unit, threshold.origin = unit, origin
        return threshold


# What binds a launch

BUSY = Threshold(60.0, "%", ThresholdOrigin.NCU_SOL_BOTTLENECK)
"""Use of a resource: below it in compute and memory alike the rule speaks of latency."""
SATURATED = Threshold(80.0, "%", ThresholdOrigin.NCU_SOL_BOTTLENECK)
"""Use of a resource: from it on the rule speaks of a unit used to its limit."""
CLOSE = Threshold(10.0, "points", ThresholdOrigin.NCU_SOL_BOTTLENECK)
"""A smaller margin is borderline: so far apart are compute and memory that the rule does not call balanced."""
NOISE = Threshold(3.0, "points")
"""A smaller margin decides nothing: replays of one kernel differ by as much."""
ELSEWHERE = Threshold(1.05, "")
"""Use of a further part over the busiest of the main ones on its side, from which it is named. The port that FP64 and
tensor cores share reads 1.03 times the FP64 pipe's use, by FP64 alone."""
IDLE = Threshold(20.0, "%", ThresholdOrigin.AFTER_LAUNCH_CONFIGURATION)
"""Idle time of the average multiprocessor; that rule speaks of a tail from a fifth of the time on."""
WAITING = Threshold(50.0, "%", ThresholdOrigin.WAITS_LONGER_THAN_IT_WORKS)
"""Time of an iteration in which the GPU waits, from which no faster kernel helps."""
DOMINANT_STALL = Threshold(30.0, "%", ThresholdOrigin.NCU_CPI_STALL)
"""A stall reason's share of the warps' time. The rule speaks at 30.5% and is silent at 29.4%."""
NEGLIGIBLE_STALL = Threshold(5.0, "%")
"""A largest stall below it is not worth a change."""
BUSY_ISSUE = Threshold(75.0, "%")
"""Schedulers that issue in more of their cycles have little to gain from shorter waits."""
SHORT = Threshold(10.0, "µs")
"""A shorter launch: its start and end, some 2 µs on an H200, weigh in every counter."""

# Why it is slow

CONFLICTED = Threshold(25.0, "%")
"""Passes through shared memory that are bank conflicts, from which they are what makes it busy."""
CONTENDED = Threshold(8.0, "")
"""Atomics in the busiest slice of L2 over the mean: an H200 has 96 slices, and atomics on one address read 96."""
CONTENDED_UNIT = Threshold(5.0, "%")
"""Cycles of that slice, below which there are too few atomics to matter."""
MOSTLY = Threshold(50.0, "%")
"""A kind of access that makes so much of the traffic is what the traffic is about."""
SHARED_ATOMICS = Threshold(40.0, "%")
"""Likewise of shared memory's atomics: loops of compare-and-swap have a load for each, half of the whole."""
LOCAL_TRAFFIC = Threshold(25.0, "%")
"""Local memory's part of the sectors, from which it is named: a kernel without spills or indexed arrays has none."""
HOST_TRAFFIC = Threshold(10.0, "%")
"""The host's part of the sectors, from which it is named: PCIe brings a fiftieth of what DRAM does, or less."""
SCATTERED = Threshold(2.0, "")
"""Sectors touched for each one needed: twice the least, and more is lost than any other access pattern costs."""
QUEUED = Threshold(25.0, "%")
"""Use of the busiest memory, below which warps wait for its latency and not for the sectors before theirs: chains of
dependent loads from anywhere read 2 to 16%, gathers and scatters 30 to 90%."""
QUEUED_LOADS = Threshold(700.0, "ns")
"""What DRAM takes at its peak rate for the loads that are on their way, from which more of them only wait longer: twice
the latency of a load alone, 346 ns on an H200 and 353 on an H100 in a chain of them."""
FILLS = Threshold(90.0, "%")
"""Written bytes in DRAM's traffic, above which a kernel fills memory: a copy has 50%, and no warp waits for a store."""
FULL_REQUEST = Threshold(16.0, "sectors")
"""Sectors of a warp's widest access, 32 lanes of 16 bytes: a request that touches more is scattered."""
FEW_LANES = Threshold(24.0, "threads")
"""Active threads of a warp's instruction, below which a quarter of its work is lost at least."""
WARP = Threshold(32.0, "threads")
"""Threads of a warp."""
BESIDE = Threshold(50.0, "%")
"""A kernel's time beside another one, from which counters that ncu took of it alone say little."""

# What is worth a step

SOME_WAITING = Threshold(10.0, "%")
"""Time in which the GPU waits, from which it is worth a word or a step beside the kernel's own."""
OVERHEAD = Threshold(20.0, "%")
"""What any launch takes, of a launch's time, from which it is worth a step: such a launch is shorter than 15 µs."""
LEAST_GAIN = Threshold(1.0, "%")
"""What a step has to save at the least."""
UNINFORMATIVE = Threshold(75.0, "%")
"""A bound that leaves a quarter of the time or less: whether the step helps at all is then as open as how much."""
PROCESSES_DIFFER = Threshold(0.54, "%")
"""Most by which the time of one case differs between processes on one board (H100, H200): at 7 µs; 0.02 to 0.09% from
180 µs on."""
BOARDS_DIFFER = Threshold(1.0, "%")
"""The same between two boards of a kind, about."""
PROCESSES_DRIFT = Threshold(1.4, "%")
"""The same over ten processes in a row, at most."""
WORTH_CHANGING = Threshold(2.0, "%")
"""By which another way to solve a problem has to be faster: more than boards and processes differ by."""
SINGLE_ROUND = Threshold(5.1, "%")
"""The same where the cases were timed in a single round: rounds of decode on an H200 differed by as much while freed
memory was cleaned in the background."""
CONFLICTS = Threshold(10.0, "%", ThresholdOrigin.NCU_SHARED_MEMORY_CONFLICTS)
"""Passes through shared memory that are bank conflicts. The rule takes loads and stores each for itself, so that it
speaks of stores that are one pass in a hundred."""
UNUSED = Threshold(1.0, "%")
"""Use of the tensor cores below which a kernel does not use them: RMSNorm, which has no matrices, reads 0.7%."""
EXCESS = Threshold(1.1, "")
"""Counted over needed work or bytes."""
KEPT = Threshold(0.95, "")
"""Counted over needed bytes, below which L2 kept some."""
FMA_OF_ISSUE = Threshold(50.0, "%")
"""Issue slots in use that go to the FMA pipe, from which a kernel is mostly arithmetic and worth a look for products
of matrices."""
FREQUENT = Threshold(10.0, "%")
"""Executed instructions of one family, from which it is worth a change."""
OPERANDS = Threshold(5.0, "%")
"""Use of the data stage of L1 and shared memory below which arithmetic is no product of matrices: with tiles of 8 x 8
in registers, 64 multiply-adds of a thread read 16 numbers."""
FUSED = Threshold(50.0, "%")
"""Multiply-adds of a thread's fp32 instructions, below which they are no product of matrices: FlashInfer's decode
without tensor cores has 64%."""
EMPTY = Threshold(20.0, "%")
"""Empty places for blocks, from which a grid is called small."""

# Fits

FIT_POINTS = Threshold(4.0, "points")
"""Fewest sizes that a line or a power law is fitted through: three have one degree of freedom for two parameters, so
nothing could show that the times bend."""
OFF_FIT = Threshold(10.0, "%")
"""Largest distance of a measured time from the fit, of that time, up to which the fit describes the times. Rounds of
one case differ by less; what is farther off bends."""

# Comparisons of two sides

FALSE_ALARMS = Threshold(2.0, "%")
"""Comparisons of a thing with itself in which any case may come out as different: five processes a side have 252
relabellings, so no test of theirs is below 0.8%."""
LEAST_CHANGE = Threshold(1.0, "%")
"""A smaller difference is not called slower or faster: two boards of a kind differ by as much."""
SAME_WITHIN = Threshold(2.0, "%")
"""An interval of the difference that lies within it on either side is called the same."""
PROCESS_SPREAD = Threshold(0.1, "%")
"""Spread between processes that is added to the observed: a smaller one, seen in five processes, is luck."""
