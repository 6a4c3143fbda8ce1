"""A measured alternative as a step: it stands before every step that is only bounded."""

from __future__ import annotations

from fiprof.analysis.alternatives import Alternative
from fiprof.analysis.verdict.step import Basis, Step, StepId, TimeOf
from fiprof.model.finding import Finding, Value


def step(found: Alternative) -> Step:
    """What to change, and what it saved of an iteration without a profiler."""
    basis: dict[str, Value] = {
        "time": found.time,
        "instead_time": found.instead_time,
        "factor": found.traced_factor,
        "low": found.factor.low,
        "high": found.factor.high,
        "measure": found.measure,
        "observed": Finding(found.difference.observed, {"count": found.difference.count}),
    }
    changes = tuple(change.finding for change in found.changes)
    return Step(
        Finding(StepId.USE_ALTERNATIVE, {"changes": changes, "case": found.instead}),
        bound_pct=None,
        basis=Finding(Basis.MEASURED, basis),
        of=TimeOf.ITERATION,
        measured_pct=found.saving_pct,
    )
