"""Every launch of a run with what was found about it: its place on the roofs, its occupancy, its accesses.

Its other numbers are quantities of the launch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fiprof.analysis import checks
from fiprof.analysis.frames import OfLaunch, OfRun
from fiprof.analysis.instructions import ACCESSES, IdealSectors, by_launch
from fiprof.analysis.occupancy import Occupancy, occupancy
from fiprof.analysis.roofline import LaunchRoofline, place
from fiprof.analysis.trace import weights
from fiprof.model.case_quantities import DRAM_FLOOR, dram_use
from fiprof.model.finding import Finding, finding
from fiprof.model.manifest import CaseEntry
from fiprof.model.quantities import L2_USE, QUANTITIES, number
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Launch, Run
from fiprof.model.selection import EVERYTHING, Selection
from fiprof.model.times import Times, TraceTimes
from fiprof.text import csv_rows


class NotCounted(dict[str, Any]):
    """A kernel that only nsys saw, or a case of which nothing is known, in place of a launch."""

    launch = iteration = kernel_full = grid = block = duration_us = None

    def __init__(self, case: str | None, label: str, kernel: str = "", nsys: Times | None = None) -> None:
        super().__init__()
        self.case, self.label, self.kernel, self.nsys = case, label, kernel, nsys
        self.nsys_duration_us = nsys.median_us if nsys else None


@dataclass(frozen=True)
class LaunchFigures(OfLaunch):
    """A kernel launch under ncu; or a kernel that only nsys saw."""

    row: Launch | NotCounted  # type: ignore[assignment]  # which quantities evaluate on
    rank: int | None = None  # whose times under nsys these are; None in a run of one rank
    run: Run | None = None  # where the launch is of

    @cached_property
    def roofline(self) -> LaunchRoofline | None:
        """None for a kernel that only nsys saw."""
        return place(self.row, self.run) if self.run is not None and isinstance(self.row, Launch) else None

    @property
    def case_dram_floor_pct(self) -> float | None:
        """Use of DRAM in a loop, percent, where that is more than ncu's: the verdict takes the larger."""
        use = dram_use(self.run, self.row) if self.run is not None and isinstance(self.row, Launch) else None
        return use.number.value if use is not None and use.quantity is DRAM_FLOOR else None

    @cached_property
    def occupancy(self) -> Occupancy:
        return occupancy(self.row) if self.row else Occupancy()

    @cached_property
    def ideal_sectors(self) -> dict[str, IdealSectors | None]:
        """loads, stores: the sectors a request that the widths of these accesses need."""
        listing = by_launch(self.run).get(self.launch) if self.run is not None and self.launch is not None else None
        return {kind: listing.ideal_sectors(*of) for kind, of in ACCESSES.items()} if listing else {}

    def __getitem__(self, key: str) -> Any:
        """A figure by its key: of FIGURES, None where something on its way is; else a quantity of the launch."""
        if key not in FIGURES:
            return QUANTITIES[key].of(self.row)
        value: Any = self
        for name in FIGURES[key]:
            value = value.get(name) if isinstance(value, dict) else None if value is None else getattr(value, name)
        return value

    @property
    def nsys_spread(self) -> float | None:
        """(p90 - p10) / median under nsys."""
        return self.row.nsys.spread if self.row.nsys else None

    @property
    def busiest(self) -> str | None:
        """What is nearest to its peak: SM, L1, L2 or DRAM."""
        shares = {name: number(self.row, f"{name.lower()}_throughput_pct") for name in ("SM", "L1", "DRAM")}
        shares["L2"] = L2_USE.of(self.row)
        measured = {name: share for name, share in shares.items() if share is not None}
        return max(measured, key=measured.__getitem__, default=None)


FIGURES = {key: row["path"].split(".") for key, row in csv_rows(Path(__file__).with_name("figures.csv")).items()}
"""Key of the JSON output -> where what a launch has beside its quantities lies, in attributes."""


def time_us(item: LaunchFigures) -> float | None:
    """By ncu, else the median under nsys."""
    return item.duration_us or item.nsys_duration_us  # type: ignore[no-any-return]


def show(run: Run, *, wanted: Selection = EVERYTHING) -> OfRun[LaunchFigures, CaseEntry]:
    """The figures of a run, as far as it has them; warnings: its status, what it lacks, and the checks that failed.
    wanted: only these launches, and their cases. Raises FiprofError where there is none of these."""
    chosen = wanted.of(list(_figures(run, wanted)), run.manifest.name, time_us, weights(run))
    ids, numbers = {item.case for item in chosen}, {item.launch for item in chosen}
    failed = [
        check
        for check in checks.failed(run)
        if not wanted or (check.launch in {None, *numbers} and check.case in {None, *ids})
    ]
    cases = tuple(case for case in run.manifest.cases if not wanted or case.id in ids)
    warnings = (*run.status_warning(), *missing(run), *checks.summarized(failed, run))
    return OfRun(tuple(chosen), warnings, weights(run), cases)


def missing(run: Run) -> Iterator[Finding]:
    """What a run has nothing of, and why."""
    yield from run.uncollected("SpeedOfLight", "Occupancy", "WarpStateStats")
    if not run.launches:
        yield finding("no_counters", "no counters, occupancy and roofs: {why}", why=run.missing("ncu"))
    if not run.trace.cases and (run.cases or run.imported or not run.has("kernels")):
        yield finding("no_trace", "no times by nsys: {why}", why=run.missing("nsys"))
    if not run.plain and run.cases and not run.imported and not run.of_program:
        yield finding("no_plain_times", "no times without a profiler: the plain run left none")


def _figures(run: Run, wanted: Selection) -> Iterator[LaunchFigures]:
    """The launches under ncu, then the kernels that only nsys saw."""
    profiled = {(launch.case, launch.kernel) for launch in run.launches}
    for row in run.launches:
        if not wanted.launches or row.launch in wanted.launches:
            yield LaunchFigures(row, ranks_of(run).on(row.get("device")), run)
    traces: dict[int | None, TraceTimes] = dict(run.trace.ranks.items()) or {None: run.trace}
    for rank, traced in traces.items():
        for (case, kernel), nsys in traced.kernels.items():
            if (case, kernel) not in profiled:
                yield LaunchFigures(NotCounted(case, run.labels(case), kernel, nsys), rank)
