"""Times of launches without a profiler, by CUDA events; and the multiprocessors' clock, as a kernel sees it."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

# The SM clock of the fastest parts, to turn seconds into the cycles that torch.cuda._sleep takes.
SLEEP_CLOCK_HZ = 2e9
LONGEST_SLEEP_S = 0.2

SHORT_US = 30.0  # kernels below it are timed in groups: two CUDA events alone take 2.3 µs on an H100 and an H200
LOOPS, LOOPS_S = 5, 0.05
"""Loops whose median is the host's time of an iteration; seconds after which none is begun. A single loop of 4 ms, in
which the host paused for 6 ms, called a decode launch-bound that DRAM limits (H100)."""
GROUP_US = 200.0  # GPU time of such a group, so that the events are 1% of it


def measure(launch: Callable[[], object], iterations: int, host_s: float) -> dict[str, Any]:
    """Times without a profiler, L2 as the previous iteration left it.

    gpu_us: each iteration between two CUDA events, launches queued ahead so that the GPU never waits for the host. Of
    kernels below SHORT_US each is the mean of ``launches_per_time`` launches between two events.
    wall_us: host time an iteration, back to back, as a loop without CUDA graphs sees it; the median of several loops
    where they are short.
    host_s: seconds that one launch takes on the host, to know how long to hold the queue.
    """
    import torch

    record: dict[str, Any] = {"iterations": iterations, "gpu_us": launch_times(launch, iterations, host_s)[0]}
    if (group := group_of(statistics.median(record["gpu_us"]))) > 1:
        record |= {"launches_per_time": group, "gpu_us": launch_times(launch, iterations, host_s, group)[0]}

    loops_s: list[float] = []
    while not loops_s or (len(loops_s) < LOOPS and sum(loops_s) < LOOPS_S):
        begin = time.perf_counter()
        for _ in range(iterations):
            launch()
        torch.cuda.synchronize()
        loops_s.append(time.perf_counter() - begin)
    record["wall_us"] = statistics.median(loops_s) / iterations * 1e6
    return record


def group_of(typical_us: float) -> int:
    """Launches of a kernel that are timed together, by the time of one."""
    return math.ceil(GROUP_US / max(typical_us, 1.0)) if typical_us < SHORT_US else 1


def launch_times(
    launch: Callable[[], object], iterations: int, host_s: float, group: int = 1
) -> tuple[list[float], float]:
    """GPU time of a launch, µs, ``iterations`` times, each the mean of ``group`` launches; and the host's time for one,
    µs, while the GPU is held. Arguments as above."""
    if group == 1:
        return _between_events(launch, iterations, 1, _cycles(host_s * iterations + 0.7e-3))
    # One group is queued at a time: a queue of all would be longer than CUDA's.
    ahead_cycles = _cycles(host_s * group + 0.1e-3)
    groups = [_between_events(launch, 1, group, ahead_cycles) for _ in range(iterations)]
    return [gpu_us for (gpu_us,), _ in groups], statistics.median(host_us for _, host_us in groups)


def _cycles(queueing_s: float) -> int:
    """More than the GPU runs through while the host queues its launches."""
    return int(min(1.5 * queueing_s, LONGEST_SLEEP_S) * SLEEP_CLOCK_HZ)


def _between_events(
    launch: Callable[[], object], times: int, group: int, ahead_cycles: int
) -> tuple[list[float], float]:
    """Mean GPU time of the launches of each group, µs; and the host's mean time for a launch of all.

    ahead_cycles: of a loop before them, so that all are queued when the first begins.
    """
    import torch

    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    torch.cuda._sleep(ahead_cycles)
    events[0].record()
    began = time.perf_counter()
    for event in events[1:]:
        for _ in range(group):
            launch()
        event.record()
    host_us = (time.perf_counter() - began) / (times * group) * 1e6
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e3 / group for begin, end in itertools.pairwise(events)], host_us


def host_seconds(launch: Callable[[], object], warmup: int) -> float:
    """Host seconds of the last of ``warmup`` launches (the first ones load modules); 0 without any."""
    seconds = 0.0
    for _ in range(warmup):
        begin = time.perf_counter()
        launch()
        seconds = time.perf_counter() - begin
    return seconds


class SmClock:
    """The multiprocessors' clock, read by loops of known length.

    Power lowers it: after a heavy kernel it needs up to a tenth of a second to come back (H100). The usual clock is
    that of the idle GPU at the start; or, on a GPU that has become slower for good, the highest of the last turns.
    """

    CYCLES = 400_000  # Of a loop: 0.2 ms. What a reading counts too, 3 µs from loop to loop, makes it 1.5% low, always.
    LOOPS = 3  # queued together; a reading is their median
    AHEAD_CYCLES = 200_000
    FIRST_READINGS = 31  # their median is the idle clock; as many before them wake the GPU up
    REMEMBERED = 16  # turns
    TOLERANCE = 0.01  # A clock so much below the usual one has not come back. Readings of an idle H100 differ by 0.1%.
    LONGEST_S = 0.1
    PAUSE_S = 0.002  # between two readings while the clock is waited for

    def __init__(self) -> None:
        for _ in range(self.FIRST_READINGS):
            self.read()
        self.idle_mhz = statistics.median(self.read() for _ in range(self.FIRST_READINGS))
        self.readings = deque([self.idle_mhz], maxlen=self.REMEMBERED)

    def read(self) -> float:
        """The clock now, MHz."""
        import torch

        times_us, _ = _between_events(lambda: torch.cuda._sleep(self.CYCLES), self.LOOPS, 1, self.AHEAD_CYCLES)
        return float(self.CYCLES / max(statistics.median(times_us), 1e-3))

    def recover(self) -> tuple[float, bool]:
        """Wait for the clock. Returns what it is, MHz, and whether it came back in time."""
        least = (1 - self.TOLERANCE) * min(self.idle_mhz, max(self.readings))
        deadline = time.monotonic() + self.LONGEST_S
        while (mhz := self.read()) < least and time.monotonic() < deadline:
            time.sleep(self.PAUSE_S)
        self.readings.append(mhz)
        return mhz, mhz >= least
