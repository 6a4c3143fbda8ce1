"""How the host launches the kernels of a case, by nsys."""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.model import tables
from fiprof.model.run import Run


@dataclass(frozen=True)
class CaseLaunches:
    """The launch calls of a case in the phase ``measure``."""

    graph: bool
    """Whether most of its kernels are nodes of CUDA graphs: one call launches many of them."""
    call_us: float | None
    """Time of the launch calls in an iteration, on average; None where the calls were not traced."""


def launches_of(run: Run) -> dict[str, CaseLaunches]:
    """Case id -> its launches; empty without nsys.

    A call that launched several kernels counts once. Raises FiprofError for a table that cannot be read.
    """
    import pyarrow.compute as pc

    if not run.has("kernels"):
        return {}
    columns = ["phase", "case", "iteration", "graph_node", "launch_call_ns", "pid", "correlation"]
    kernels = tables.read(run.tables_path, "kernels", columns)
    inside = pc.and_(pc.equal(kernels["phase"], "measure"), pc.is_valid(kernels["case"]))
    kernels = kernels.filter(inside).unify_dictionaries()
    if not kernels.num_rows:
        return {}
    counts = kernels.group_by("case", use_threads=False).aggregate(
        [("graph_node", "count"), ("pid", "count"), ("iteration", "count_distinct")]
    )
    calls = (
        kernels.group_by(["case", "pid", "correlation"], use_threads=False)
        .aggregate([("launch_call_ns", "max")])
        .group_by("case", use_threads=False)
        .aggregate([("launch_call_ns_max", "sum")])
    )
    times = dict(zip(calls["case"].to_pylist(), calls["launch_call_ns_max_sum"].to_pylist(), strict=True))
    found = {}
    for row in counts.to_pylist():
        case, iterations = row["case"], max(row["iteration_count_distinct"], 1)
        total = times.get(case)
        found[case] = CaseLaunches(
            graph=row["graph_node_count"] * 2 > row["pid_count"],
            call_us=None if total is None else total / iterations / 1e3,
        )
    return found
