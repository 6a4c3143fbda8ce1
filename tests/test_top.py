"""``fiprof top``: where the GPU's time goes, and why it is idle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fiprof.analysis.idle import Cause, activities, idle
from fiprof.analysis.top import Spent, top
from fiprof.errors import FiprofError
from fiprof.model import tables
from fiprof.model.run import Run
from fiprof.model.spans import NOTHING, innermost
from fiprof.reports.top import folded, together
from fiprof.text import functor, kernel_identity

Rows = list[dict[str, Any]]


def made_run(folder: Path, **made: Rows) -> Run:
    """A run whose trace has these rows; times in µs, calls on thread 1 of process 1."""
    (folder / "tables").mkdir()
    for name in ("kernels", "ranges", "api", "copies"):
        rows = []
        for number, row in enumerate(made.get(name, [])):
            start, end = row.pop("us")
            times = {"start_ns": start * 1000, "end_ns": end * 1000, "duration_ns": (end - start) * 1000}
            given = {"device": 0, "stream": 7, "pid": 1, "tid": 1, "kind": "push_pop", "depth": 0, "domain": "app"}
            rows.append({**given, "correlation": number, **times, **row})
        columns = tables.schema(name)
        known = [{field.name: row.get(field.name) for field in columns} for row in rows]
        tables.write(folder / "tables", name, pa.Table.from_pylist(known, columns))
    manifest = {"name": "made", "status": "complete", "started": "2026-11-22T10:00:00+00:00", "duration_s": 1.0}
    more = {"cases": [], "settings": {"tools": ["nsys"]}, "environment": {}, "actions": [], "schema_version": 1}
    (folder / "run.json").write_text(json.dumps({**manifest, **more}))
    return Run(folder)


def launch(at: int, correlation: int, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return {"us": (at, at + 2), "correlation": correlation, "name": name}


def kernel(start: int, end: int, correlation: int, **more: Any) -> dict[str, Any]:
    return {"us": (start, end), "correlation": correlation, "kernel": "k", "kernel_full": "k", **more}


def causes(run: Run) -> dict[tuple[Cause, str | None, str | None], float]:
    """In µs."""
    return {(row["cause"], row["call"], row["range"]): row["total_ns"] / 1000 for row in idle(run)}


def test_each_moment_without_work_has_a_cause(tmp_path: Path) -> None:
    run = made_run(
        tmp_path,
        kernels=[kernel(10, 20, 1), kernel(100, 110, 2), kernel(200, 210, 3), kernel(300, 310, 99)],
        api=[
            launch(0, 1),
            # Waits until 25, works in range b until 60, allocates for 30, launches: 92 + 2, on its way until 100.
            {"us": (5, 25), "correlation": 50, "name": "cudaDeviceSynchronize"},
            {"us": (60, 90), "correlation": 51, "name": "cudaMalloc"},
            launch(92, 2),
            # Outside all ranges until 150; within the launch, code is loaded for 30.
            {"us": (150, 190), "correlation": 3, "name": "cudaLaunchKernel"},
            {"us": (155, 185), "correlation": 52, "name": "cuLibraryLoadData"},
        ],
        ranges=[{"us": (0, 95), "name": "a"}, {"us": (26, 91), "name": "b", "depth": 1, "parent": 0}],
    )
    assert causes(run) == {
        (Cause.SYNCHRONIZATION, "cudaDeviceSynchronize", "a"): 5,
        (Cause.HOST_AFTER_WAIT, "cudaDeviceSynchronize", "a"): 2,
        (Cause.HOST_AFTER_WAIT, "cudaDeviceSynchronize", "a > b"): 35,
        (Cause.CALL, "cudaMalloc", "a > b"): 30,
        (Cause.LAUNCH, None, "a"): 8,
        (Cause.OUTSIDE_RANGES, None, None): 40,
        (Cause.LAUNCH, None, None): 20,
        (Cause.CALL, "cuLibraryLoadData", None): 30,
        (Cause.UNKNOWN, None, None): 90,
    }
    (activity,) = activities(run)
    assert (activity.window_ns, activity.kernels_ns, activity.idle_ns, activity.gaps) == (300_000, 40_000, 260_000, 3)


def test_copies_and_streams(tmp_path: Path) -> None:
    run = made_run(
        tmp_path,
        kernels=[kernel(0, 10, 1), kernel(5, 20, 2, stream=8), kernel(50, 60, 3)],
        copies=[{"us": (15, 40), "kind": "Host-to-Device"}],
    )
    (activity,) = activities(run)
    assert activity.side_by_side_ns == 5_000
    assert (activity.copies_ns, activity.only_copies_ns) == (25_000, 20_000)
    assert (activity.kernels_ns, activity.idle_ns) == (30_000, 10_000)
    parts = {row["what"]: row["total_ns"] for row in top(run).parts}
    assert parts == {Spent.NOT_PROFILED: 30_000, Spent.COPIES: 20_000, Spent.IDLE: 10_000}


def test_kernels_and_ranges_by_time(tmp_path: Path) -> None:
    rows = [kernel(100 * n, 100 * n + 10 * (n + 1), n, kernel="a", kernel_full="void a<int>()") for n in range(5)]
    rows += [kernel(1000, 1400, 9, kernel="ncclDevKernel_AllReduce", kernel_full="ncclDevKernel_AllReduce()")]
    run = made_run(
        tmp_path,
        kernels=rows,
        api=[launch(50 * n, n) for n in range(5)],
        ranges=[{"us": (0, 120), "name": "first"}, {"us": (150, 180), "name": "x", "domain": "NCCL"}],
    )
    found = top(run)
    assert [(row["kernel"], row["count"], row["total_ns"], round(row["share"], 3)) for row in found.kernels] == [
        ("ncclDevKernel_AllReduce", 1, 400_000, 0.727),
        ("a", 5, 150_000, 0.273),
    ]
    assert [found.kernels[1][key] for key in ("median_us", "p90_us", "spread")] == pytest.approx([30.0, 46.0, 32 / 30])
    assert [(row["range"], row["count"], row["total_ns"]) for row in found.ranges] == [
        (None, 3, 490_000),
        ("first", 3, 60_000),
    ]
    assert {row["what"] for row in found.parts} == {Spent.COLLECTIVES, Spent.NOT_PROFILED, Spent.IDLE}
    assert [row["count"] for row in top(run, range_="FIRST").kernels] == [3]
    split = [
        [row[key] for key in ("range", "count", "total_ns", "median_us", "p90_us")]
        for row in top(run, kernel="a<", by_range=True).kernels
    ]
    assert split == [[None, 2, 90_000, 45.0, 49.0], ["first", 3, 60_000, 20.0, 28.0]]
    with pytest.raises(FiprofError, match="made has no kernel gemm"):
        top(run, kernel="gemm")


def test_ranges_that_count_on_are_one_row() -> None:
    """Of one place, and numbers that count: parameters and sizes are told apart, and what takes most of the time."""
    paths = [f"step {step} > layer.{layer}" for step in range(3) for layer in range(4)]
    sizes = ["prefill 128", "prefill 256", "prefill 512", "gemm m=1", "gemm m=2", "gemm m=3", "other 7", None]
    found = folded([*paths, *sizes])
    assert {found[path] for path in paths} == {"step * > layer.*"}
    assert [found[path] for path in sizes] == sizes
    times = {"step 0": 60, "step 1": 20, "step 2": 10, "step 3": 10, None: 5}
    rows = [{"cause": Cause.HOST, "range": path, "total_ns": ns} for path, ns in times.items()]
    assert [(row["range"], row["total_ns"]) for row in together(rows, ["cause"])] == [
        ("step 0", 60),
        ("step *", 40),
        (None, 5),
    ]


def test_nested_intervals() -> None:
    starts, ends, labels = np.array([[0, 10, 20, 30, 60, 60], [100, 50, 30, 40, 90, 60], [0, 1, 2, 3, 4, 5]])
    found = innermost(starts, ends, labels)
    moments = np.array([0, 15, 25, 30, 45, 50, 75, 95, 100])
    assert found.at(moments).tolist() == [0, 1, 2, 3, 1, 0, 4, 0, NOTHING]


def test_what_tells_kernels_of_a_name_apart() -> None:
    full = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
    assert (
        functor(full + "BinaryFunctor<c10::BFloat16, float, at::native::binary_internal::MulFunctor<float>>>>(int)")
        == "Mul"
    )
    assert functor(full + "direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda()]>>(int)") == "direct_copy"
    assert functor(full + "CUDAFunctorOnSelf_add<c10::BFloat16>>>(int)") == "add"
    # As nsys and as ncu print it.
    kernel, before, after = "CatArrayBatchedCopy", "void at::native::<unnamed>::CatArrayBatchedCopy<", "(T1 *)"
    by_nsys = f"{before}at::native::<unnamed>::OpaqueType<(unsigned int)4>, unsigned int, (int)3, (int)64>{after}"
    by_ncu = f"{before}<unnamed>::OpaqueType<4>, unsigned int, 3, 64>{after}"
    assert kernel_identity(kernel, by_nsys) == kernel_identity(kernel, by_ncu) == "CatArrayBatchedCopy  4,3,64"
    assert functor("void gemm<float>(float *)") == functor("mean_kernel") == ""
