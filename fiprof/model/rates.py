"""Amounts over the time of a launch, in base units a second."""

from __future__ import annotations

from fiprof.model.expressions import Expression, Metric

SECONDS = Metric("duration_ns") / 1e9


def per_second(amount: Expression) -> Expression:
    """An amount over the launch's duration."""
    return amount / Metric("duration_ns") * 1e9
