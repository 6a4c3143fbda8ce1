"""The multiprocessors' clock, as a kernel sees it."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque


class SmClock:
    """The multiprocessors' clock, read by loops of known length.

    Power lowers it: after a heavy kernel it needs up to a tenth of a second to come back (H100). The usual clock is
    that of the idle GPU at the start; or, on a GPU that has become slower for good, the highest of the last turns.
    """

    CYCLES = 400_000
    """Of a loop: 0.2 ms. What a reading counts too, 3 µs from loop to loop, makes it 1.5% low, always."""
    LOOPS = 3
    """Queued together; a reading is their median."""
    AHEAD_CYCLES = 200_000
    """Of a loop before them, so that all are queued when the first begins."""
    FIRST_READINGS = 31
    """Their median is the idle clock; as many before them wake the GPU up."""
    REMEMBERED = 16
    """Turns."""
    TOLERANCE = 0.01
    """A clock so much below the usual one has not come back. Readings of an idle H100 differ by 0.1%."""
    LONGEST_S = 0.1
    PAUSE_S = 0.002
    """Between two readings while the clock is waited for."""

    def __init__(self) -> None:
        for _ in range(self.FIRST_READINGS):
            self.read()
        self.idle_mhz = statistics.median(self.read() for _ in range(self.FIRST_READINGS))
        self.readings = deque([self.idle_mhz], maxlen=self.REMEMBERED)

    def read(self) -> float:
        """The clock now, MHz."""
        import torch

        events = [torch.cuda.Event(enable_timing=True) for _ in range(self.LOOPS + 1)]
        torch.cuda._sleep(self.AHEAD_CYCLES)
        events[0].record()
        for event in events[1:]:
            torch.cuda._sleep(self.CYCLES)
            event.record()
        torch.cuda.synchronize()
        times_ms = [begin.elapsed_time(end) for begin, end in itertools.pairwise(events)]
        return float(self.CYCLES / max(statistics.median(times_ms), 1e-6) / 1e3)

    def recover(self) -> tuple[float, bool]:
        """Wait for the clock. Returns what it is, MHz, and whether it came back in time."""
        least = (1 - self.TOLERANCE) * min(self.idle_mhz, max(self.readings))
        deadline = time.monotonic() + self.LONGEST_S
        while (mhz := self.read()) < least and time.monotonic() < deadline:
            time.sleep(self.PAUSE_S)
        self.readings.append(mhz)
        return mhz, mhz >= least
