"""How long kernels and iterations took: medians and spreads over the iterations of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa

from fiprof.model.arrays import Floats, Ints, Kinds, Quantiles, coded, numbers
from fiprof.model.selection import by_key

K = TypeVar("K")
V = TypeVar("V")

COLUMNS = ("phase", "case", "iteration", "kernel", "duration_ns")
"""Of the table ``kernels``, that :func:`trace_times` needs."""


@dataclass(frozen=True)
class Times:
    """Durations of the same thing, measured several times."""

    count: int
    median_us: float
    p10_us: float
    p90_us: float

    @classmethod
    def of_ns(cls, count: int, p10_ns: float, median_ns: float, p90_ns: float) -> Self:
        return cls(count, median_ns / 1e3, p10_ns / 1e3, p90_ns / 1e3)

    @property
    def spread(self) -> float:
        """(p90 - p10) / median."""
        return (self.p90_us - self.p10_us) / self.median_us if self.median_us else 0.0


class CaseTimes(NamedTuple):
    """What nsys saw of a case in the phase ``measure``."""

    iteration: Times  # kernel time of an iteration: the sum over its kernels, without the gaps between them
    executions: float  # kernels that an iteration runs, on average
    iterations_us: tuple[float, ...]  # kernel time of each iteration, in their order


@dataclass(frozen=True)
class TraceTimes:
    """What nsys saw in the phase ``measure``; empty without nsys."""

    kernels: dict[tuple[str, str], Times]  # (case id, kernel) -> its executions
    cases: dict[str, CaseTimes]
    ranks: dict[int, TraceTimes] = field(default_factory=dict)
    """Rank -> its own, where there are several; the others are then those of the slowest rank, by its median: a median
    over ranks is a time that none of them took."""


def summarize(durations_us: Sequence[float] | Floats) -> Times | None:
    """None for no durations. Percentiles are interpolated between neighbours."""
    if not len(durations_us):
        return None
    rising = np.sort(durations_us)
    p10, median, p90 = np.interp(np.array((0.1, 0.5, 0.9)) * (len(rising) - 1), np.arange(len(rising)), rising).tolist()
    return Times(len(durations_us), median, p10, p90)


def measured(piece: pa.Table) -> Ints:
    """The rows of kernels or copies that belong to a case in the phase ``measure``."""
    (phases, phase), (cases, case) = coded(piece["phase"]), coded(piece["case"])
    in_phase = np.array([text == "measure" for text in phases])[phase]
    return np.flatnonzero(in_phase & np.array([text is not None for text in cases])[case])


def trace_times(pieces: Iterable[pa.Table], rows: int, ranks: Callable[[pa.Table], Ints] | None = None) -> TraceTimes:
    """The kernels' times by kernel and by iteration.

    pieces: of the table ``kernels``, with COLUMNS and those that ``ranks`` needs. rows: of all pieces. ranks: the rank
    of each row of a piece, where there are several; one that is negative is of none.
    """
    kernels, iterations, durations_ns = Kinds(), Kinds(), Quantiles(rows)
    totals_ns: Floats = np.zeros(0)  # exact below 2^53 ns
    for piece in pieces:
        rank = np.zeros(piece.num_rows, np.int64) if ranks is None else ranks(piece)
        in_measure = measured(piece)
        in_measure = in_measure[rank[in_measure] >= 0]
        if not len(in_measure):
            continue
        rank, duration_ns = rank[in_measure], numbers(piece["duration_ns"])[in_measure]
        durations_ns.add(kernels.of(piece.select(["case", "kernel"]), in_measure, rank=rank), duration_ns)
        number = numbers(piece["iteration"])[in_measure]
        iteration = iterations.of(piece.select(["case"]), in_measure, rank=rank, iteration=number)
        added: Floats = np.bincount(iteration, duration_ns, len(iterations.numbers))  # type: ignore[assignment]
        added[: len(totals_ns)] += totals_ns
        totals_ns = added
    by_rank: dict[int, TraceTimes] = {}
    times = durations_ns.spreads()
    for (case_id, name, of_rank), each in kernels.numbers.items():
        by_rank.setdefault(of_rank, TraceTimes({}, {})).kernels[case_id, name] = Times.of_ns(*times[each])
    summed = zip(iterations.numbers, totals_ns.tolist(), strict=True)
    of_cases = by_key(((rank, case), (number, ns / 1e3)) for (case, rank, number), ns in summed if number >= 0)
    for (of_rank, case_id), totals in of_cases.items():
        totals_us = [total_us for _, total_us in sorted(totals)]
        if iteration_times := summarize(totals_us):
            of_kernels = by_rank[of_rank]
            executions = sum(each.count for (of_case, _), each in of_kernels.kernels.items() if of_case == case_id)
            of_kernels.cases[case_id] = CaseTimes(iteration_times, executions / len(totals), tuple(totals_us))
    if ranks is None:
        return by_rank.get(0, TraceTimes({}, {}))
    ordered = dict(sorted(by_rank.items()))
    return TraceTimes(
        slowest([each.kernels for each in ordered.values()], lambda times: times.median_us),
        slowest([each.cases for each in ordered.values()], lambda times: times.iteration.median_us),
        ordered,
    )


def slowest(of_ranks: Iterable[dict[K, V]], median_us: Callable[[V], float]) -> dict[K, V]:
    """Of each key the value of the rank that is slowest."""
    slowest_of: dict[K, V] = {}
    for times in of_ranks:
        for key, value in times.items():
            if key not in slowest_of or median_us(value) > median_us(slowest_of[key]):
                slowest_of[key] = value
    return slowest_of
