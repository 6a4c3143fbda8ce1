"""Times of launches without a profiler, by CUDA events."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

# The SM clock of the fastest parts, to turn seconds into the cycles that torch.cuda._sleep takes.
SLEEP_CLOCK_HZ = 2e9
LONGEST_SLEEP_S = 0.2

SHORT_US = 30.0
"""Kernels below it are timed in groups: two CUDA events alone take 2.3 µs on an H100 and an H200."""
GROUP_US = 200.0
"""GPU time of such a group, so that the events are 1% of it."""


def measure(launch: Callable[[], object], iterations: int, host_s: float) -> dict[str, Any]:
    """Times without a profiler, L2 as the previous iteration left it.

    gpu_us: each iteration between two CUDA events, launches queued ahead so that the GPU never waits for the host. Of
    kernels below SHORT_US each is the mean of ``launches_per_time`` launches between two events.
    wall_us: host time an iteration, back to back, as a loop without CUDA graphs sees it.
    host_s: seconds that one launch takes on the host, to know how long to hold the queue.
    """
    import torch

    record: dict[str, Any] = {"iterations": iterations, "gpu_us": gpu_times(launch, iterations, host_s)}
    if (group := group_of(statistics.median(record["gpu_us"]))) > 1:
        record |= {"launches_per_time": group, "gpu_us": gpu_times(launch, iterations, host_s, group)}

    begin = time.perf_counter()
    for _ in range(iterations):
        launch()
    torch.cuda.synchronize()
    record["wall_us"] = (time.perf_counter() - begin) / iterations * 1e6
    return record


def group_of(typical_us: float) -> int:
    """Launches of a kernel that are timed together, by the time of one."""
    return math.ceil(GROUP_US / max(typical_us, 1.0)) if typical_us < SHORT_US else 1


def gpu_times(launch: Callable[[], object], iterations: int, host_s: float, group: int = 1) -> list[float]:
    """GPU time of a launch, µs, ``iterations`` times; each the mean of ``group`` launches. Arguments as above."""
    if group == 1:
        return _single_times(launch, iterations, host_s)
    return [_group_time(launch, group, host_s) for _ in range(iterations)]


def host_seconds(launch: Callable[[], object], warmup: int) -> float:
    """Host seconds of the last of ``warmup`` launches (the first ones load modules); 0 without any."""
    seconds = 0.0
    for _ in range(warmup):
        begin = time.perf_counter()
        launch()
        seconds = time.perf_counter() - begin
    return seconds


def _single_times(launch: Callable[[], object], iterations: int, host_s: float) -> list[float]:
    """GPU time of each launch, µs."""
    import torch

    events = [torch.cuda.Event(enable_timing=True) for _ in range(iterations + 1)]
    _hold(host_s * iterations + 0.7e-3)
    events[0].record()
    for event in events[1:]:
        launch()
        event.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e3 for begin, end in itertools.pairwise(events)]


def _group_time(launch: Callable[[], object], group: int, host_s: float) -> float:
    """Mean GPU time of a launch, µs. One group is queued at a time: a queue of all would be longer than CUDA's."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    _hold(host_s * group + 0.1e-3)
    begin.record()
    for _ in range(group):
        launch()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / group


def _hold(host_s: float) -> None:
    """Keep the GPU busy for longer than the host is going to queue launches."""
    import torch

    torch.cuda._sleep(int(min(1.5 * host_s, LONGEST_SLEEP_S) * SLEEP_CLOCK_HZ))
