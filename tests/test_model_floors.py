"""DRAM's use by two measurements, and the least time of a case."""

from __future__ import annotations

from pathlib import Path

import pytest

from fiprof.model.case_quantities import LARGEST_SAVING, dram_use
from fiprof.model.provenance import TracedNumber
from fiprof.model.run import Run
from tests.reports_fixture import case, execution, make_run


def of(number: TracedNumber | None) -> float | None:
    return None if number is None else round(number.value, 1)


LAUNCH = {
    "launch": 0, "case": "mine[rows=8]", "iteration": 0, "kernel": "K", "duration_ns": 900.0, "l2_bytes": 500.0,
    "dram_peak_bytes_per_cycle": 1.0, "dram_clock_hz": 1e9, "dram_throughput_pct": 30.0,
}  # fmt: skip


def use_and_saving(run: Run) -> tuple[float | None, float | None]:
    use = dram_use(run, run.launches[0])
    return of(use.by_floor if use else None), of(LARGEST_SAVING.traced(run, "mine[rows=8]"))


@pytest.mark.parametrize(
    ("bytes_read", "l2_bytes", "kernels", "plain_us", "expected"),
    [
        (1000, 500.0, [execution(0, 1250)], [2.0], (80.0, 20.0)),
        # Without nsys: between CUDA events.
        (1000, 500.0, None, [2.0], (50.0, 50.0)),
        # All of it fits into L2, or it is not known whether it does.
        (1000, 1000.0, [execution(0, 1250)], [2.0], (None, None)),
        (1000, None, [execution(0, 1250)], [2.0], (None, None)),
        # Faster than DRAM can: the cost model says too much.
        (2000, 500.0, [execution(0, 1250)], [2.0], (None, None)),
        # ncu saw one of two kernels: the floor is the case's, not this launch's.
        (1000, 500.0, [execution(0, 1250), execution(1250, 2500, "L")], [2.0], (None, 60.0)),
        (1000, 500.0, None, None, (None, None)),
    ],
)
def test_where_bytes_need_not_cross(
    tmp_path: Path,
    bytes_read: int,
    l2_bytes: float | None,
    kernels: list[dict[str, object]] | None,
    plain_us: list[float] | None,
    expected: tuple[float | None, float | None],
) -> None:
    run = make_run(
        tmp_path / "run",
        cases=[case(bytes_read=bytes_read, flops=0)],
        launches=[{**LAUNCH, "l2_bytes": l2_bytes}],
        kernels=kernels,
        gpu_us={"mine[rows=8]": plain_us} if plain_us else {},
    )
    assert use_and_saving(run) == expected
