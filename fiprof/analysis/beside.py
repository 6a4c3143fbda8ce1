"""What happens beside the kernels of a case: copies, CUDA calls, and allocations of device memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fiprof.analysis.samples import Interval
from fiprof.model.formula import Row
from fiprof.model.ranks import rows_by_rank
from fiprof.model.run import Run

FIPROF_DOMAIN = "fiprof"


@dataclass(frozen=True)
class Totals:
    """Copies of a kind, or CUDA calls of a name, all together."""

    name: str
    count: int
    total_us: float
    bytes: int | None = None
    """Of copies."""


class DeviceMemory:
    """Device memory over time."""

    def __init__(self, run: Run) -> None:
        self._totals: dict[tuple[Any, Any], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        events = run.rows("memory", ("time_ns", "device", "pid", "total_bytes"))
        for event in sorted(events, key=lambda event: event["time_ns"] or 0):
            if event["time_ns"] is not None and event["total_bytes"] is not None:
                times, totals = self._totals[event["pid"], event["device"]]
                times.append(event["time_ns"])
                totals.append(event["total_bytes"])

    def at(self, pid: int | None, device: int | None, time_ns: int) -> int | None:
        """Bytes; None where no allocation had been seen."""
        import bisect

        times, totals = self._totals.get((pid, device), ([], []))
        index = bisect.bisect_right(times, time_ns)
        return totals[index - 1] if index else None


class Beside:
    """Copies and CUDA calls of a case in a phase."""

    def __init__(self, run: Run) -> None:
        self._copies: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in rows_by_rank(run, "copies", ("start_ns", "end_ns", "bytes", "kind", "device", "phase", "case")):
            self._copies[row["phase"], row["case"], row["rank"], row["device"]].append(row)
        self._calls: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in sorted(
            (
                row
                for row in run.rows("api", ("name", "start_ns", "end_ns", "pid", "tid"))
                if row["start_ns"] is not None
            ),
            key=lambda row: row["start_ns"],
        ):
            self._calls[row["pid"], row["tid"]].append(row)
        ranges = rows_by_rank(run, "ranges", ("domain", "name", "start_ns", "end_ns", "parent", "pid", "tid"))
        self._ranges: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in ranges:
            parent = row["parent"]
            if row["domain"] == FIPROF_DOMAIN and parent is not None and row["end_ns"] is not None:
                self._ranges[ranges[int(parent)]["name"], row["name"], row["rank"]].append(row)

    def copied(self, *of: str | int | None) -> list[Interval]:
        """When copies and memory sets ran. of: phase, case, rank (None where there is one) and GPU."""
        rows = self._copies.get(of, ())
        return [(row["start_ns"], row["end_ns"]) for row in rows if None not in (row["start_ns"], row["end_ns"])]

    def copies(self, *of: str | int | None) -> tuple[Totals, ...]:
        """Of the same."""
        return _together(self._copies.get(of, ()), "kind")

    def calls(self, *of: str | int | None) -> tuple[Totals, ...]:
        """None outside the fiprof ranges. of: phase, case and rank."""
        import bisect

        inside: list[Row] = []
        for row in self._ranges.get(of, ()):
            calls = self._calls.get((row["pid"], row["tid"]), [])
            first = bisect.bisect_left(calls, row["start_ns"], key=lambda call: call["start_ns"])
            last = bisect.bisect_right(calls, row["end_ns"], key=lambda call: call["start_ns"])
            inside += calls[first:last]
        return _together(inside, "name")


def _together(rows: Iterable[Row], key: str) -> tuple[Totals, ...]:
    """The rows by a column, the longest time first."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if None not in (row["start_ns"], row["end_ns"]):
            groups[row[key] or "?"].append(row)
    found = (
        Totals(
            name,
            len(group),
            sum(row["end_ns"] - row["start_ns"] for row in group) / 1e3,
            sum(row["bytes"] or 0 for row in group) if "bytes" in group[0] else None,
        )
        for name, group in groups.items()
    )
    return tuple(sorted(found, key=lambda item: -item.total_us))
