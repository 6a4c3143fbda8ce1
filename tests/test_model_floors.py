"""DRAM's use by two measurements, and the least time of a case."""

from __future__ import annotations

from pathlib import Path

import pytest

from fiprof.model.floors import LARGEST_SAVING, dram_use, floor
from fiprof.model.provenance import TracedNumber
from fiprof.model.run import Run
from tests.raw_figures import RawRun
from tests.recorded_runs import RUNS, parsed
from tests.reports_fixture import case, execution, make_run


def of(number: TracedNumber | None) -> float | None:
    return None if number is None else round(number.value, 1)


@pytest.mark.parametrize(
    ("name", "label", "by_ncu", "by_floor"),
    [
        # Under ncu a part of what they write stays in L2: RMSNorm wrote 13.5 of 33.6 MB to DRAM.
        ("all", "rmsnorm", 43.9, 58.8),
        ("all", "fused_add_rmsnorm", 66.5, 78.5),
        ("all", "rope", 69.5, 73.7),
        ("all", "decode", 62.7, 62.3),
        ("decode", "decode batch=128 tensor_cores", 88.6, 89.0),
        # Its second kernel takes more than a tenth of the iteration.
        ("decode", "decode batch=8", 54.1, None),
        # 8.4 and 16.8 MB stay in an L2 of 62.9 MB.
        ("decode", "decode batch=1", 15.8, None),
        ("single-purpose", "l2_copy", 0.5, None),
        ("single-purpose", "device_copy", 84.6, 85.0),
    ],
)
def test_the_use_of_dram_is_the_larger_of_two(name: str, label: str, by_ncu: float, by_floor: float | None) -> None:
    run = parsed(name)
    use = dram_use(run, next(each for each in run.launches if each.label == label))
    assert use is not None
    assert (of(use.by_ncu), of(use.by_floor), of(use.number)) == (by_ncu, by_floor, max(by_ncu, by_floor or 0.0))
    of_floor = by_floor is not None and by_floor > by_ncu
    assert use.quantity.key == ("case_dram_floor_pct" if of_floor else "dram_throughput_pct")
    assert use.basis == ("floor" if of_floor else "ncu")
    assert RawRun(RUNS[name]).value(use.number.source) == pytest.approx(use.value, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "label", "saving", "with_other_work"),
    [
        ("all", "rmsnorm", 41.2, 41.2),
        ("all", "fused_add_rmsnorm", 21.5, 21.5),
        ("all", "rope", 26.3, 26.3),
        ("all", "prefill", 50.6, 88.4),
        # Measured: its FA3 alternative saves 36 %.
        ("prefill-decode-rope", "prefill backend=fa2", 69.3, 92.5),
        # Measured: its alternative on tensor cores saves 25 and 23 %.
        ("decode", "decode batch=32", 37.7, 37.7),
        ("decode", "decode batch=128", 31.6, 31.6),
        ("single-purpose", "fma_chain", 2.4, None),
        ("single-purpose", "l2_copy", None, None),
    ],
)
def test_the_most_that_can_be_saved(name: str, label: str, saving: float | None, with_other_work: float | None) -> None:
    run = parsed(name)
    found = floor(run, next(each.id for each in run.cases if run.labels(each.id) == label))
    saved = None if found is None else found.saving_pct()
    assert (of(saved), of(found.saving_pct(other_work=True) if found else None)) == (saving, with_other_work)
    if saved is not None:
        assert RawRun(RUNS[name]).value(saved.source) == pytest.approx(saved.value, rel=1e-6)


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
