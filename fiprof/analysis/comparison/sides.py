"""The kernels of one side: what each took by each tool, and the launch under ncu that stands for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from fiprof.analysis.launched import pieces, sums
from fiprof.model.run import Launch, Run
from fiprof.text import functor, kernel_identity

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SideKernel:
    """A kernel of one side: of a case an iteration's executions, of a program all of the trace."""

    kernel: str
    kernel_full: str
    count: float
    """Executions; of a case the mean of an iteration's."""
    nsys_us: float | None = None
    """All executions together under nsys; of a case the mean of an iteration's."""
    ncu_us: float | None = None
    """The launches together that ncu profiled; of a case the mean of an iteration's."""
    launch: Launch | None = None
    """Of the launches under ncu the one of median time, of the shape that takes most of it."""

    @property
    def detail(self) -> str:
        """What tells it from others of its name."""
        return functor(self.kernel_full)

    @property
    def total_us(self) -> float:
        """By nsys, else by ncu."""
        return self.ncu_us or 0.0 if self.nsys_us is None else self.nsys_us

    @property
    def mean_us(self) -> float | None:
        """Of one execution under nsys."""
        return None if self.nsys_us is None or not self.count else self.nsys_us / self.count


def kernels_of_case(run: Run, case: str | None) -> list[SideKernel]:
    """Of an iteration, medians over the iterations; of no case, the launches under ncu."""
    launches = run.launches_of(case)
    profiled = len({launch.iteration for launch in launches}) or 1
    return _joined(run.once(_traced).get(case, {}) if case else {}, launches, profiled)


def kernels_of_program(run: Run) -> list[SideKernel]:
    """Of the whole trace, all GPUs together."""
    return _joined(run.once(_whole), run.launches, 1)


Traced = dict[tuple[str, str], tuple[float, float]]
"""Kernel and full name -> executions and µs under nsys."""


def _whole(run: Run) -> Traced:
    names = ("kernel", "kernel_full")
    return {
        (row["kernel"] or "", row["kernel_full"] or row["kernel"] or ""): (row["count"], row["ns"] / 1e3)
        for row in _summed([sums(piece, names) for piece in pieces(run, "kernels", (*names, "duration_ns"))], names)
    }


def _traced(run: Run) -> dict[str, Traced]:
    """Case -> its kernels in an iteration of the phase ``measure``."""
    import pyarrow.compute as pc

    keys = ("case", "pid", "iteration", "kernel", "kernel_full")
    found = []
    for piece in pieces(run, "kernels", (*keys, "phase", "duration_ns")):
        inside = pc.and_(pc.equal(piece["phase"], "measure"), pc.is_valid(piece["iteration"]))
        found.append(sums(piece.filter(inside), keys))
    iterations: dict[str, set[tuple[int, int]]] = defaultdict(set)
    by_kernel: dict[str, dict[tuple[str, str], list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in _summed(found, keys):
        iterations[row["case"]].add((row["pid"], row["iteration"]))
        name = row["kernel"] or "", row["kernel_full"] or row["kernel"] or ""
        by_kernel[row["case"]][name].append((row["count"], row["ns"]))
    return {
        case: {
            name: (sum(count for count, _ in rows) / len(iterations[case]), _median_us(rows, len(iterations[case])))
            for name, rows in kernels.items()
        }
        for case, kernels in by_kernel.items()
    }


def _summed(parts: Sequence[pa.Table], keys: Sequence[str]) -> list[dict[str, Any]]:
    import pyarrow as pa

    return sums(pa.concat_tables(parts).unify_dictionaries(), keys).to_pylist() if parts else []


def _median_us(rows: Sequence[tuple[int, int]], iterations: int) -> float:
    """Of all iterations; 0 in those without the kernel."""
    return median([*(ns / 1e3 for _, ns in rows), *([0.0] * (iterations - len(rows)))])


def _joined(traced: Traced, launches: Sequence[Launch], profiled: int) -> list[SideKernel]:
    """What nsys and ncu saw of each kernel, by what is the same in their names. profiled: iterations under ncu."""
    found: dict[str, SideKernel] = {}
    for (kernel, full), (count, us) in traced.items():
        key = kernel_identity(kernel, full)
        known = found.get(key, SideKernel(kernel, full, 0.0, 0.0))
        found[key] = replace(known, count=known.count + count, nsys_us=(known.nsys_us or 0.0) + us)
    by_name: dict[str, list[Launch]] = defaultdict(list)
    for launch in launches:
        by_name[kernel_identity(launch.kernel, launch.kernel_full)].append(launch)
    for key, group in by_name.items():
        known = found.get(key, SideKernel(group[0].kernel, group[0].kernel_full, len(group) / profiled))
        us = sum(launch.duration_us or 0.0 for launch in group) / profiled
        found[key] = replace(known, ncu_us=us, launch=_representative(group))
    return list(found.values())


def _representative(group: Sequence[Launch]) -> Launch:
    shapes: dict[tuple[str, str], list[Launch]] = defaultdict(list)
    for launch in group:
        shapes[launch.grid, launch.block].append(launch)
    most = max(shapes.values(), key=lambda each: sum(launch.duration_us or 0.0 for launch in each))
    ordered = sorted(most, key=lambda launch: launch.duration_us or 0.0)
    return ordered[(len(ordered) - 1) // 2]
