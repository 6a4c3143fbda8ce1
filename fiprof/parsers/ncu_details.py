"""ncu's details page as CSV: a row a metric, and a row a finding of its rules.

Beside a raw page its rules alone are read. By itself it is a poorer profile, and ncu's default: metrics as sections
show them, under their labels and rounded, or under their own names where ``--metrics`` asked for them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fiprof.model import schemas
from fiprof.model.metrics import METRICS
from fiprof.parsers.ncu_csv import NO_VALUE, Page, number, read_page
from fiprof.parsers.ncu_profile import Profile, to_base
from fiprof.parsers.ncu_raw import launches

_IDENTITY = ("ID", "Kernel Name")
_METRIC = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
_RULE = ("Section Name", "Rule Name", "Rule Type", "Rule Description")
_NUMBERS = frozenset(name for metric in METRICS for name in metric.ncu)
_LABELS = {
    "GPU Speed Of Light Throughput": {
        "DRAM Frequency": "dram__cycles_elapsed.avg.per_second",
        "SM Frequency": "gpc__cycles_elapsed.avg.per_second",
        "Memory Throughput": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "Duration": "gpu__time_duration.sum",
        "L1/TEX Cache Throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "L2 Cache Throughput": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
        "SM Active Cycles": "sm__cycles_active.avg",
        "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    },
    "Compute Workload Analysis": {
        "Executed Ipc Active": "sm__inst_executed.avg.per_cycle_active",
        "Issue Slots Busy": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    },
    "Memory Workload Analysis": {
        "Local Memory Spilling Requests": "derived__local_spilling_requests",
        "Memory Throughput": "dram__bytes.sum.per_second",
        "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
        "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
    },
    "Scheduler Statistics": {
        "One or More Eligible": "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "Active Warps Per Scheduler": "smsp__warps_active.avg.per_cycle_active",
        "Eligible Warps Per Scheduler": "smsp__warps_eligible.avg.per_cycle_active",
    },
    "Warp State Statistics": {
        "Warp Cycles Per Issued Instruction": "smsp__average_warp_latency_per_inst_issued.ratio",
        "Avg. Active Threads Per Warp": "smsp__thread_inst_executed_per_inst_executed.ratio",
    },
    "Instruction Statistics": {"Executed Instructions": "smsp__inst_executed.sum"},
    "Launch Statistics": {
        "Block Size": "launch__block_size",
        "Cluster Size": "launch__cluster_size",
        "Grid Size": "launch__grid_size",
        "Registers Per Thread": "launch__registers_per_thread",
        "Shared Memory Configuration Size": "launch__shared_mem_config_size",
        "Driver Shared Memory Per Block": "launch__shared_mem_per_block_driver",
        "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
        "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
        "# SMs": "launch__sm_count",
        "Waves Per SM": "launch__waves_per_multiprocessor",
    },
    "Occupancy": {
        "Max Active Clusters": "launch__cluster_max_active",
        "Cluster Occupancy": "launch__occupancy_cluster_pct",
        "Block Limit Barriers": "launch__occupancy_limit_barriers",
        "Block Limit SM": "launch__occupancy_limit_blocks",
        "Block Limit Registers": "launch__occupancy_limit_registers",
        "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
        "Block Limit Warps": "launch__occupancy_limit_warps",
        "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
        "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    },
    "Source Counters": {"Branch Efficiency": "smsp__sass_average_branch_targets_threads_uniform.pct"},
}
"""Section -> label -> ncu's metric, for those of ``metrics.csv``: found by comparing the two pages of 385 launches
(ncu 2025.3 and 2025.4; compute capabilities 9.0 and 10.0)."""
ROUNDED = "metrics are those of a details page: rounded, and only what its sections show"


def read_rules(path: Path, profile: Profile) -> pa.Table:
    """The table ``rules`` from a details page.

    Raises FiprofError where the file is missing, empty, cut short, no details page, or of another report.
    """
    page = read_page(path, "details")
    known = {str(launch): launch for launch in profile.launches["launch"]}
    return rules_table(_rules(page, list(_rows(page, (*_IDENTITY, *_RULE))), known))


def read_details(path: Path) -> tuple[Profile, pa.Table]:
    """The launches with the metrics that a details page has, and the table ``rules``.

    A metric whose label is not known is called by section and label, as the page has them.
    Raises FiprofError where the file is missing, empty, cut short, no details page, holds no launches or no metrics, or
    contradicts itself.
    """
    page = read_page(path, "details")
    rows = list(_rows(page, (*_IDENTITY, *_METRIC)))
    first: dict[str, dict[str, str]] = {}
    for row in rows:
        first.setdefault(row["ID"], row)
    if not first:
        raise page.error("has a header and no launches")
    columns = {name: [row.get(name) or None for row in first.values()] for name in rows[0]}
    found = launches(page, columns, len(first))
    known = dict(zip(first, found["launch"], strict=True))
    return _profile(page, rows, found), rules_table(_rules(page, rows, known))


def _rows(page: Page, needed: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows by column; those of metrics may end before the columns of rules.

    Raises FiprofError where the page is cut short or lacks a column.
    """
    # The row of a metric ends with an empty cell.
    page.check_end(closing=b'\n",')
    header: list[str] = []
    closest: list[str] = []
    row: list[str] = []
    for row in page.records():
        if not header:
            # Before the header there can be lines of ncu and of the program.
            header = row if set(needed) <= set(row) else []
            closest = max(closest, row, key=lambda cells: len(set(needed).intersection(cells)))
        elif row == header:
            raise page.several()
        elif len(row) > header.index("Section Name"):
            yield dict(zip(header, row, strict=False))
    if not header:
        absent = next(name for name in (*needed[3:], *needed) if name not in closest)
        raise page.error(f"is not a details page of ncu: it has no column {absent}")
    whole = (len(header), header.index("Metric Value") + 2 if "Metric Value" in header else len(header))
    if not page.data.endswith(b"\n") and len(row) not in whole:
        raise page.cut_short()


def _profile(page: Page, rows: Sequence[dict[str, str]], found: Mapping[str, Sequence[Any]]) -> Profile:
    places = {launch: place for place, launch in enumerate(dict.fromkeys(row["ID"] for row in rows))}
    cells: dict[str, dict[int, tuple[str, str]]] = defaultdict(dict)
    for row in rows:
        section, label, unit, cell = (row.get(name, "") for name in _METRIC)
        if not label or row.get("Body Item Label"):
            continue
        metric = label if "__" in label else _LABELS.get(section, {}).get(label, f"{section}/{label}")
        if cells[metric].setdefault(places[row["ID"]], (unit, cell))[1] != cell and "__" in label:
            raise page.error(f"has {label} of launch {row['ID']} twice, with different values")
        if unit or metric in _NUMBERS:
            page.check_numbers([cell])
    if not cells:
        raise page.error("has launches and no metrics")
    count = len(found["launch"])
    values, units, unscaled = np.full((len(cells), count), np.nan), [], set()
    texts: dict[str, list[str | None]] = defaultdict(lambda: [None] * count)
    for place, (metric, of_launches) in enumerate(cells.items()):
        bases = {unit: to_base(unit) for unit, _ in of_launches.values()}
        known = {base[0] for base in bases.values() if base} if all(bases.values()) else set()
        units.append(known.pop() if len(known) == 1 else next(iter(bases)))
        if None in bases.values() or known:
            unscaled.add(metric)
        for launch, (unit, cell) in of_launches.items():
            base, value = bases[unit], number(cell)
            if cell.lower() in NO_VALUE:
                continue
            if value is None:
                texts[metric][launch] = cell
            else:
                values[place, launch] = value * (base[1] if base and metric not in unscaled else 1.0)
    return Profile.sound(
        launches=found,
        metrics=tuple(cells),
        units=tuple(units),
        values=values,
        texts=texts,
        unscaled=frozenset(unscaled),
    )


def _rules(page: Page, rows: Iterable[dict[str, str]], known: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Rows of the table ``rules``. known: ID as the page has it -> launch."""
    for row in rows:
        if row.get("Rule Name") and "Rule Description" in row:
            if row["ID"] not in known:
                raise page.error(f"is not of the same report: the raw page has no launch {row['ID']}")
            yield {
                "launch": known[row["ID"]],
                "section": row["Section Name"],
                "rule": row["Rule Name"],
                "kind": row["Rule Type"],
                "message": row["Rule Description"],
                "speedup_kind": row.get("Estimated Speedup Type") or None,
                "speedup_pct": _percent(row.get("Estimated Speedup", "")),
            }


def _percent(cell: str) -> float | None:
    try:
        percent = float(cell.replace(",", ""))
    except ValueError:
        return None
    return percent if math.isfinite(percent) else None


def rules_table(rules: Iterable[dict[str, Any]]) -> pa.Table:
    """The table ``rules``."""
    return pa.Table.from_pylist(list(rules), schemas.schema("rules"))
