"""``tables/summary.json``: the key quantities of a run, a row a kernel of a case, in a file that is read in no time.

It is made with the tables and like them from the raw files; the catalogue takes a run's numbers from it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fiprof import files
from fiprof.model import json_file, layout
from fiprof.model.json_file import MisfitError, decode

if TYPE_CHECKING:
    from fiprof.model.run import Run
from fiprof.model.selection import by_key

OF_CASES = (
    "case_plain_us", "case_plain_spread", "case_wall_us", "case_nsys_us", "case_nsys_spread", "case_ncu_us",
    "case_model_tflops", "case_model_gb_per_s",
)  # fmt: skip
"""Keys of quantities that a case has as a whole; the others are of a kernel."""
OF_LAUNCHES = (
    "duration_us", "dram_share", "dram_gb_per_s", "dram_read_mb", "l2_share", "l2_hit_pct", "l1_share",
    "l1_hit_pct", "tensor_active_pct", "tensor_ops", "fp32_ops", "sm_throughput_pct", "issue_active_pct",
    "achieved_occupancy_pct", "theoretical_occupancy_pct", "registers_per_thread", "shared_kb_per_block",
    "waves_per_sm", "sm_active_share", "idle_pct", "warp_latency_cycles", "instructions", "spill_requests",
    "shared_conflict_share", "global_sectors_per_request", "sm_clock_ghz",
)  # fmt: skip
TRACED = ("nsys_duration_us", "nsys_spread", "program_us", "program_count")
"""Keys of a kernel under nsys: the first two in a case, the others of a program without cases."""
VALUES = (*OF_CASES, *OF_LAUNCHES, *TRACED)  # keys of all, by which the catalogue names its columns
MOST_KERNELS = 50  # of a program, those that took most time


@dataclass(frozen=True)
class SummaryResult:
    """What was measured of a case, or of one of its kernels."""

    case: str | None  # case id; None for a kernel outside the cases
    kernel: str | None  # without namespaces, parameters and template arguments; None for the case as a whole
    values: dict[str, float]
    """Key of a quantity -> its value; of several launches of the kernel those of the one of median time."""


@dataclass(frozen=True)
class Summary:
    """The whole file."""

    results: list[SummaryResult] = field(default_factory=list)
    schema_version: int = 1


def summarize(run: Run) -> Summary:
    """The key quantities of a run, of what it has. Raises FiprofError where a table cannot be read."""
    # Only here: NumPy and Arrow take longer to import than a catalogue to be asked.
    from fiprof.model.case_quantities import KEYS, CaseQuantity, kernel_times
    from fiprof.model.quantities import QUANTITIES

    def result(case: str | None, kernel: str | None, values: Iterable[tuple[str, float | None]]) -> SummaryResult:
        finite = {key: float(value) for key, value in values if value is not None and math.isfinite(value)}
        return SummaryResult(case, kernel, finite)

    cases = dict.fromkeys(case.id for case in run.cases)
    quantities = [each for key in OF_CASES if isinstance(each := KEYS[key], CaseQuantity)]
    results = [result(case, None, ((each.key, each.of(run, case)) for each in quantities)) for case in cases]
    # Kernels under ncu, each as its launch of median time, and those under nsys.
    launches = by_key(((launch.case, launch.kernel), launch) for launch in run.launches)
    # Kernel of a traced program without cases -> its time in all, µs, and its executions.
    program: dict[str, tuple[float, int]] = {}
    if not run.trace.kernels:
        totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for piece in run.pieces("kernels", ["kernel", "duration_ns"]):
            wanted = [("duration_ns", "sum"), ("duration_ns", "count")]
            grouped = piece.group_by("kernel", use_threads=False).aggregate(wanted)
            columns = (grouped[name].to_pylist() for name in ("kernel", "duration_ns_sum", "duration_ns_count"))
            for kernel, total_ns, count in zip(*columns, strict=True):
                totals[kernel][0] += total_ns
                totals[kernel][1] += count
        longest = sorted(totals.items(), key=lambda item: -item[1][0])[:MOST_KERNELS]
        program = {kernel: (total_ns / 1e3, count) for kernel, (total_ns, count) in longest}
    for case, kernel in dict.fromkeys([*launches, *run.trace.kernels, *((None, kernel) for kernel in program)]):
        alike = sorted(launches.get((case, kernel), ()), key=lambda launch: launch.duration_us or 0.0)
        shown = alike[(len(alike) - 1) // 2] if alike else None
        counted = ((key, QUANTITIES[key].of(shown) if shown else None) for key in OF_LAUNCHES)
        traced = kernel_times(run, case, kernel)
        values = (*(number and number.value for number in traced), *program.get(kernel, ()))
        results.append(result(case, kernel, [*counted, *zip(TRACED, values, strict=False)]))
    return Summary(results)


def write(run: Run, content: Summary) -> None:
    """Write the summary beside the tables. Raises FiprofError where that cannot be done."""
    files.write_whole(run.tables_path / Path(layout.SUMMARY).name, json_file.encode(content))


def read(folder: Path) -> Summary | None:
    """The summary of a run folder; None where it has none that this fiprof reads. Raises FiprofError for a link."""
    try:
        content = decode(files.read_bytes(folder, layout.SUMMARY), Summary)
    except (OSError, MisfitError):
        return None
    return content if content.schema_version == Summary.schema_version else None
