"""How long kernels and iterations took: medians and spreads over the iterations of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from fiprof.model.arrays import coded, numbers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from fiprof.model.unions import Ints

    Floats = npt.NDArray[np.float64]

K = TypeVar("K")
V = TypeVar("V")

COLUMNS = ("phase", "case", "iteration", "kernel", "duration_ns")
"""Of the table ``kernels``, that :func:`trace_times` needs."""
DURATION_BITS, ITERATION_BITS = 42, 32
"""Of a kernel's duration in ns, 73 minutes, and of an iteration, beside what they are of in one integer."""


@dataclass(frozen=True)
class Times:
    """Durations of the same thing, measured several times."""

    count: int
    median_us: float
    p10_us: float
    p90_us: float

    @property
    def spread(self) -> float:
        """(p90 - p10) / median."""
        return (self.p90_us - self.p10_us) / self.median_us if self.median_us else 0.0


@dataclass(frozen=True)
class CaseTimes:
    """What nsys saw of a case in the phase ``measure``."""

    iteration: Times
    """Kernel time of an iteration: the sum over its kernels, without the gaps between them."""
    executions: float
    """Kernels that an iteration runs, on average."""
    iterations_us: tuple[float, ...]
    """Kernel time of each iteration, in their order."""


@dataclass(frozen=True)
class TraceTimes:
    """What nsys saw in the phase ``measure``; empty without nsys."""

    kernels: dict[tuple[str, str], Times]
    """(Case id, kernel) -> its executions."""
    cases: dict[str, CaseTimes]
    ranks: dict[int, TraceTimes] = field(default_factory=dict)
    """Rank -> its own, where there are several; the others are then those of the slowest rank, by its median: a median
    over ranks is a time that none of them took."""


def summarize(durations_us: Sequence[float] | Floats) -> Times | None:
    """None for no durations. Percentiles are interpolated between neighbours."""
    if not len(durations_us):
        return None
    import numpy as np

    p10, median, p90 = np.percentile(durations_us, (10, 50, 90)).tolist()
    return Times(len(durations_us), median, p10, p90)


def trace_times(pieces: Iterable[pa.Table], rows: int, ranks: Callable[[pa.Table], Ints] | None = None) -> TraceTimes:
    """The kernels' times by kernel and by iteration.

    pieces: of the table ``kernels``, with COLUMNS and those that ``ranks`` needs. rows: of all pieces. ranks: the rank
    of each row of a piece, where there are several; one that is negative is of none.
    """
    found = _Measured(rows)
    for piece in pieces:
        found.add(piece, ranks(piece) if ranks else None)
    by_rank = found.times()
    if ranks is None:
        return by_rank.get(0, TraceTimes({}, {}))
    return TraceTimes(
        _slowest([each.kernels for each in by_rank.values()], lambda times: times.median_us),
        _slowest([each.cases for each in by_rank.values()], lambda times: times.iteration.median_us),
        by_rank,
    )


class _Measured:
    """The kernels of the phase ``measure`` as they come: tens of millions, in 8 bytes each."""

    def __init__(self, rows: int) -> None:
        import numpy as np

        self._keys = np.empty(rows, np.int64)
        """Of each its group, and its duration in ns in the low bits."""
        self._count = 0
        self._groups: dict[tuple[int, str, str], int] = {}
        """(Rank, case, kernel), numbered as they are first met."""
        self._totals: dict[tuple[int, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        """(Rank, case) -> iteration -> ns."""

    def add(self, piece: pa.Table, ranks: Ints | None) -> None:
        import numpy as np
        import pyarrow as pa

        (phases, phase), (cases, case), (kernels, kernel) = (coded(piece[name]) for name in ("phase", "case", "kernel"))
        measured = np.array([text == "measure" for text in phases])[phase]
        measured &= np.array([text is not None for text in cases])[case]
        if ranks is not None:
            measured &= ranks >= 0
        rows = np.flatnonzero(measured)
        owners = case[rows].astype(np.int64) + (0 if ranks is None else ranks[rows] * len(cases))
        durations, iterations = numbers(piece["duration_ns"])[rows], numbers(piece["iteration"])[rows]

        met = pa.array(owners * len(kernels) + kernel[rows]).dictionary_encode()
        groups = []
        for each in met.dictionary.to_pylist():
            owner, of_kernel = divmod(each, len(kernels))
            rank, of_case = divmod(owner, len(cases))
            groups.append(self._groups.setdefault((rank, cases[of_case], kernels[of_kernel]), len(self._groups)))
        keys = np.array(groups, np.int64)[met.indices.to_numpy()] << DURATION_BITS | durations
        self._keys[self._count : self._count + len(keys)] = keys
        self._count += len(keys)

        inside = iterations >= 0
        met = pa.array(owners[inside] << ITERATION_BITS | iterations[inside]).dictionary_encode()
        totals = np.bincount(met.indices.to_numpy(), durations[inside])  # exact below 2^53 ns
        for each, total_ns in zip(met.dictionary.to_pylist(), totals.tolist(), strict=True):
            rank, of_case = divmod(each >> ITERATION_BITS, len(cases))
            self._totals[rank, cases[of_case]][each & (1 << ITERATION_BITS) - 1] += int(total_ns)

    def times(self) -> dict[int, TraceTimes]:
        """Of each rank."""
        import numpy as np

        keys = self._keys[: self._count]
        keys.sort()
        bounds = np.searchsorted(keys, np.arange(len(self._groups) + 1) << DURATION_BITS)
        found: dict[int, TraceTimes] = defaultdict(lambda: TraceTimes({}, {}))
        for (rank, case, kernel), group in self._groups.items():
            durations_ns = keys[bounds[group] : bounds[group + 1]] & (1 << DURATION_BITS) - 1
            if times := summarize(durations_ns / 1e3):
                found[rank].kernels[case, kernel] = times
        for (rank, case), totals in self._totals.items():
            totals_us = [total_ns / 1e3 for _, total_ns in sorted(totals.items())]
            if times := summarize(totals_us):
                count = sum(each.count for (of_case, _), each in found[rank].kernels.items() if of_case == case)
                found[rank].cases[case] = CaseTimes(times, count / times.count, tuple(totals_us))
        return dict(sorted(found.items()))


def _slowest(of_ranks: Iterable[dict[K, V]], median_us: Callable[[V], float]) -> dict[K, V]:
    """Of each key the value of the rank that is slowest."""
    found: dict[K, V] = {}
    for times in of_ranks:
        for key, value in times.items():
            if key not in found or median_us(value) > median_us(found[key]):
                found[key] = value
    return found
