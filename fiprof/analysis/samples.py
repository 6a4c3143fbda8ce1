"""The GPU metrics that nsys sampled, joined with the times of kernels.

A sample's time is the beginning of the time that it averages over, until the next sample. That is not documented; the
recorded runs show it: where a kernel begins or ends inside that window, "SMs Active" is the share of the window in
which a kernel ran, and it is not that of the window before.
"""

import functools

import numpy as np

from fiprof.model.arrays import MISSING, Floats, Ints, coded, floats, numbers
from fiprof.model.run import Run, once
from fiprof.model.spans import covered, split, union, within

METRICS = {
    "sms_active": ("SMs Active", "sms_active_pct"),
    "sm_issue": ("SM Issue", "sm_issue_pct"),
    "tensor_active": ("Tensor Active", "sampled_tensor_active_pct"),
    "dram_read": ("DRAM Read", "dram_read_pct"),
    "dram_write": ("DRAM Write", "dram_write_pct"),
    "warps": ("Compute Warps in Flight", "compute_warps_pct"),
}
"""Our key -> how nsys's names of it begin in some case of letters, "Tensor Active / FP16 Active" on an A100; and the
column of its mean while a kernel ran."""
PERCENT = "[throughput %]"
SMALLEST = 1.0  # nsys gives whole percents and rounds up: where ncu counts 0.02 % tensor activity, each sample says 1
OWN_SHARE = 0.8  # of a sample's window: less than that, and the sample tells as much about what ran beside the kernel


class Samples:
    def __init__(self, series: dict[str, tuple[Floats, Floats]]) -> None:
        """series: our key -> times in ns, in order, and values. Not empty, and no times are. The attribute ``series``
        has reads and writes together too, as ``dram``."""
        self.series = dict(series)
        self.times = next(iter(series.values()))[0]
        if "dram_read" in series and "dram_write" in series:
            (times, read), (others, written) = series["dram_read"], series["dram_write"]
            if np.array_equal(times, others):
                self.series["dram"] = times, read + written
        self.period_ns = float(np.median(np.diff(self.times))) if len(self.times) > 1 else 0.0

    def levels(self, starts: Ints, ends: Ints) -> dict[str, float | None]:
        """The levels during a kernel's executions, by start: ``metric_samples``, of whose window the kernel took
        OWN_SHARE or more, and the means of these, percent as nsys gives it, by column; empty for no samples."""
        starts, ends = union(starts, ends)
        first, last = np.searchsorted(self.times, [starts[0] - self.period_ns, ends[-1]]) if len(starts) else (0, 0)
        moments = self.times[first:last]
        busy = within((starts, ends), moments, moments + self.period_ns)
        own = moments[busy / self.period_ns >= OWN_SHARE] if self.period_ns else moments[:0]
        if not len(own):
            return {}
        means: dict[str, float | None] = {"metric_samples": len(own)}
        for key, (_, column) in METRICS.items():
            if key not in self.series:
                continue
            times, values = self.series[key]
            of_kernels = values[np.isin(times, own)]
            means[column] = float(of_kernels.mean()) if len(of_kernels) else None
        return means

    def means(self, key: str, edges: Floats) -> Floats:
        """A metric's mean between neighbouring edges; NaN where fewer than half of the time was sampled."""
        length = np.diff(edges)
        if key not in self.series or not self.period_ns:
            return np.full(len(length), np.nan)
        times, values = self.series[key]
        windows = np.minimum(np.append(np.diff(times), self.period_ns), self.period_ns)
        sampled, total = (np.diff(covered(times, times + windows, edges, each)) for each in (1, values))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(sampled >= length / 2, total / sampled, np.nan)

    @functools.cached_property
    def largest(self) -> dict[str, float]:
        """Our key -> its largest sample."""
        return {key: float(values.max()) for key, (_, values) in self.series.items()}


@once
def device_memory(run: Run) -> dict[tuple[int, int], tuple[Ints, Ints]]:
    """GPU and process -> times of its allocations, in order, and the bytes that it held from then on."""
    if not run.row_count("memory"):
        return {}
    table = run.table("memory", ("time_ns", "total_bytes", "device", "pid"))
    times, totals, devices, pids = map(numbers, table.columns)
    order = np.argsort(times, kind="stable")
    places, of = np.unique(np.stack([devices, pids])[:, order], axis=1, return_inverse=True)
    parts = ((number, order[rows]) for number, rows in split(of.ravel()))
    return {(*places[:, number].tolist(),): (times[rows], totals[rows]) for number, rows in parts}


@once
def read(run: Run) -> dict[int, Samples]:
    """GPU -> its samples; empty where the run has none."""
    if not run.has("gpu_metrics"):
        return {}
    table = run.table("gpu_metrics", ["time_ns", "device", "value", "metric"])
    times, devices, values = numbers(table["time_ns"]), numbers(table["device"]), floats(table["value"])
    texts, metric = coded(table["metric"])
    finite = np.flatnonzero(np.isfinite(values) & (times != MISSING))
    by_device: dict[int, dict[str, tuple[Floats, Floats]]] = {}
    for number, rows in split(metric[finite]):
        name = (texts[number] or "").lower()
        keys = [key for key, (begins, _) in METRICS.items() if name.startswith(begins.lower())]
        if not keys or not name.endswith(PERCENT):
            continue
        of_metric = finite[rows]
        for device, of_device in split(np.maximum(devices[of_metric], 0)):
            moments, first = np.unique(times[of_metric[of_device]].astype(np.float64), return_index=True)
            by_device.setdefault(device, {}).setdefault(keys[0], (moments, values[of_metric[of_device]][first]))
    return {device: Samples(series) for device, series in sorted(by_device.items())}
