"""The GPU metrics that nsys sampled, joined with the times of kernels.

A sample's time is the beginning of the time that it averages over, until the next sample. That is not documented; the
recorded runs show it: where a kernel begins or ends inside that window, «SMs Active» is the share of the window in
which a kernel ran, and it is not that of the window before (``tests/test_analysis_timeline.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.model.run import Run

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Interval = tuple[int, int]
"""Start and end, ns since the trace began."""

METRICS = {
    "sms_active": ("sms active",),
    "sm_issue": ("sm issue",),
    "tensor_active": ("tensor active",),
    "dram_read": ("dram read",),
    "dram_write": ("dram write",),
    "warps": ("compute warps in flight",),
}
"""Our key -> how nsys's names of it begin; «Tensor Active / FP16 Active» on an A100."""
PERCENT = "[throughput %]"
SMALLEST = 1.0
"""nsys gives whole percents and rounds up: where ncu counts 0.02 % tensor activity, each sample says 1."""
OWN_SHARE = 0.8
"""Of a sample's window: less than that, and the sample tells as much about what ran beside the kernel."""


@dataclass(frozen=True)
class Levels:
    """What the hardware did while a kernel ran: means of the samples that are its own, percent as nsys gives it."""

    samples: int = 0
    """Samples of whose window the kernel took OWN_SHARE or more."""
    sms_active: float | None = None
    sm_issue: float | None = None
    tensor_active: float | None = None
    dram_read: float | None = None
    dram_write: float | None = None
    warps: float | None = None
    """Compute warps in flight, of what fits."""


class Samples:
    """The samples of one GPU."""

    def __init__(self, series: dict[str, tuple[Floats, Floats]]) -> None:
        """series: our key -> times in ns, in order, and values. Not empty, and no times are.

        The attribute ``series`` has reads and writes together too, as ``dram``.
        """
        import numpy as np

        self.series = dict(series)
        self.times = next(iter(series.values()))[0]
        if "dram_read" in series and "dram_write" in series:
            (times, read), (others, written) = series["dram_read"], series["dram_write"]
            if np.array_equal(times, others):
                self.series["dram"] = times, read + written
        self.period_ns = float(np.median(np.diff(self.times))) if len(self.times) > 1 else 0.0

    def levels(self, executions: Sequence[Interval]) -> Levels:
        """The levels during a kernel's executions."""
        import numpy as np

        busy = Busy(executions)
        first, last = np.searchsorted(self.times, [busy.start - self.period_ns, busy.end])
        starts = self.times[first:last]
        own = starts[busy.share(starts, starts + self.period_ns) >= OWN_SHARE] if self.period_ns else starts[:0]
        if not len(own):
            return Levels()
        means = {}
        for key in METRICS.keys() & self.series.keys():
            times, values = self.series[key]
            found = values[np.isin(times, own)]
            means[key] = float(found.mean()) if len(found) else None
        return Levels(len(own), **means)

    def means(self, key: str, edges: Floats) -> Floats:
        """A metric's mean between neighbouring edges; NaN where fewer than half of the time was sampled."""
        import numpy as np

        length = np.diff(edges)
        if key not in self.series or not self.period_ns:
            return np.full(len(length), np.nan)
        times, values = self.series[key]
        windows = np.minimum(np.append(np.diff(times), self.period_ns), self.period_ns)
        ends = times + windows
        corners = np.column_stack([times, ends]).ravel()
        sampled = np.repeat(np.cumsum(windows), 2)
        sampled[::2] -= windows
        total = np.repeat(np.cumsum(windows * values), 2)
        total[::2] -= windows * values
        time = np.diff(np.interp(edges, corners, sampled))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(time >= length / 2, np.diff(np.interp(edges, corners, total)) / time, np.nan)

    @functools.cached_property
    def largest(self) -> dict[str, float]:
        """Our key -> its largest sample."""
        return {key: float(values.max()) for key, (_, values) in self.series.items()}


class Busy:
    """The time in which at least one of some executions ran."""

    def __init__(self, executions: Sequence[Interval]) -> None:
        """executions: at least one."""
        import numpy as np

        merged: list[list[int]] = []
        for start, end in sorted(executions):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        array = np.asarray(merged, dtype=np.float64)
        self.start, self.end = float(array[0, 0]), float(array[-1, 1])
        self._corners = array.ravel()
        self._total = np.repeat(np.cumsum(array[:, 1] - array[:, 0]), 2)
        self._total[::2] -= array[:, 1] - array[:, 0]

    def share(self, starts: Floats, ends: Floats) -> Floats:
        """Of each time from start to end, which are not the same, 0 to 1."""
        import numpy as np

        busy = np.interp(ends, self._corners, self._total) - np.interp(starts, self._corners, self._total)
        shares: Floats = busy / (ends - starts)
        return shares


def key_of(metric: str) -> str | None:
    """Our key of nsys's metric; None for one that is not shown."""
    name = metric.lower()
    if not name.endswith(PERCENT):
        return None
    return next((key for key, starts in METRICS.items() if name.startswith(starts)), None)


def read(run: Run) -> dict[int, Samples]:
    """GPU -> its samples; empty where the run has none.

    Raises FiprofError for a table that cannot be read.
    """
    return run.once(_read)


def _read(run: Run) -> dict[int, Samples]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not run.has("gpu_metrics"):
        return {}
    table = run.table("gpu_metrics", ["time_ns", "device", "metric", "value"]).unify_dictionaries()
    found: dict[int, dict[str, tuple[Floats, Floats]]] = {}
    for name in pc.unique(table["metric"]).to_pylist():
        if name is None or (key := key_of(name)) is None:
            continue
        rows = table.filter(pc.equal(table["metric"], pa.scalar(name)))
        rows = rows.filter(pc.and_(pc.is_finite(rows["value"]), pc.is_valid(rows["time_ns"])))
        devices = rows["device"].fill_null(0).to_numpy()
        for device in np.unique(devices):
            mine = devices == device
            times = rows["time_ns"].to_numpy()[mine].astype(np.float64)
            times, first = np.unique(times, return_index=True)
            found.setdefault(int(device), {}).setdefault(key, (times, rows["value"].to_numpy()[mine][first]))
    return {device: Samples(series) for device, series in found.items()}
