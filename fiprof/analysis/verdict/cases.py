"""What the iterations of a case wait for: their kernels and copies, or the host that launches them."""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.analysis.thresholds import MOSTLY, WAITING
from fiprof.analysis.verdict.model import CaseVerdict, compare
from fiprof.model import case_quantities
from fiprof.model.run import Run


@dataclass(frozen=True)
class CaseLaunches:
    """The launch calls of a case in the phase ``measure``."""

    graph: bool
    """Whether most of its kernels are nodes of CUDA graphs: one call launches many of them."""
    call_us: float | None
    """Time of the launch calls in an iteration, on average; None where the calls were not traced."""


def cases(run: Run) -> list[CaseVerdict]:
    """Every case of the run that was measured. Raises FiprofError for a table that cannot be read."""
    traced = launches_of(run)
    found = []
    for case in run.cases:
        busy_time = case_quantities.BUSY.traced(run, case.id)
        if busy_time is None and case.id not in run.baseline:
            continue
        calls, executions = traced.get(case.id), run.trace.cases.get(case.id)
        waiting = case_quantities.WAITING.traced(run, case.id)
        copying = case_quantities.COPYING.traced(run, case.id)
        found.append(
            CaseVerdict(
                case=case.id,
                label=run.labels(case.id),
                kernels=executions.executions if executions else None,
                busy_time=busy_time,
                wall_time=case_quantities.WALL.traced(run, case.id),
                launch_us=calls.call_us if calls else None,
                graph=calls.graph if calls else False,
                waiting=compare(case_quantities.WAITING, waiting, WAITING) if waiting else None,
                copying=compare(case_quantities.COPYING, copying, MOSTLY) if copying else None,
            )
        )
    return found


def launches_of(run: Run) -> dict[str, CaseLaunches]:
    """Case id -> its launches; empty without nsys.

    A call that launched several kernels counts once. Raises FiprofError for a table that cannot be read.
    """
    import pyarrow.compute as pc

    if not run.has("kernels"):
        return {}
    kernels = run.table("kernels", ["phase", "case", "iteration", "graph_node", "launch_call_ns", "pid", "correlation"])
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
        case, iterations = row["case"], row["iteration_count_distinct"]
        total = times.get(case) if iterations else None
        found[case] = CaseLaunches(
            graph=row["graph_node_count"] * 2 > row["pid_count"],
            call_us=None if total is None else total / iterations / 1e3,
        )
    return found
