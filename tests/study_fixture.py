"""Made-up results of a whole study, by a simple performance model, in the schema of fiprof/model/results.py.

Not measurements: the times are least work over a part of a roof, plus a fixed cost, plus a little seeded noise. Kernel
names, grids and stall mixes are those of the recorded H200 runs.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fiprof.flashinfer.results import JitCall, JitModule, JitPhase, JitResults
from fiprof.model.results import (
    CaseResult,
    EnvironmentInfo,
    Evidence,
    Kernel,
    KernelResults,
    KernelVerdict,
    RunnerUp,
    Times,
    write,
)

DRAM = 4.8e12
TENSOR = 933e12
MMA = 641e12
L2_BYTES = 60e6
OVERHEAD_US = 2.2

PREFILL_STALLS = {"wait": 0.23, "selected": 0.17, "long_scoreboard": 0.15, "not_selected": 0.13, "gmma": 0.32}
FA2_STALLS = {"wait": 0.37, "selected": 0.20, "math_pipe_throttle": 0.12, "short_scoreboard": 0.31}
DECODE_STALLS = {"not_selected": 0.30, "barrier": 0.16, "selected": 0.13, "short_scoreboard": 0.41}
TENSOR_DECODE_STALLS = {"long_scoreboard": 0.59, "selected": 0.11, "wait": 0.10, "barrier": 0.20}
NORM_STALLS = {"long_scoreboard": 0.44, "barrier": 0.22, "selected": 0.34}
ROPE_STALLS = {"long_scoreboard": 0.78, "wait": 0.08, "selected": 0.14}
MERGE_STALLS = {"barrier": 0.18, "imc_miss": 0.46, "selected": 0.36}

Change = Callable[[CaseResult], CaseResult]


def times(median_us: float, *, relative: float = 0.005, rounds: int = 6, seed: str = "") -> Times:
    """Times around a median, with an interval of ± relative."""
    noise = random.Random(seed)
    each = [median_us * (1 + relative * (noise.random() - 0.5)) for _ in range(rounds)]
    return Times(median_us, median_us * (1 - relative), median_us * (1 + relative), 0.97, 10 * rounds, rounds, each)


PARTS = {"memory": "dram", "compute": "tensor_cores", "imbalance": "uneven_work"}


def verdict(kind: str, runner_up: str = "latency") -> KernelVerdict:
    evidence = Evidence("use_pct", "dram", 87.0, "%", "at_least", 60.0, "ncu_sol_bottleneck")
    return KernelVerdict(kind, PARTS.get(kind), "high", [evidence], RunnerUp(runner_up, PARTS.get(runner_up)), 27.0)


def kernel(name: str, us: float, **changes: Any) -> Kernel:
    return Kernel(
        **{
            "kernel": name,
            "kernel_full": f"void flashinfer::{name}<…>(…)",
            "launch": 0,
            "grid": "132x1x1",
            "block": "384x1x1",
            "duration_us": us,
            "stalls": {},
            "achieved_occupancy_pct": 18.7,
            "theoretical_occupancy_pct": 18.75,
            "occupancy_limiters": ["registers"],
            "waves": 1.0,
            "registers_per_thread": 168,
            "shared_bytes_per_block": 131072,
            "tensor_active_pct": 0.0,
            "dram_pct": 50.0,
            "l2_pct": 30.0,
            "sm_pct": 40.0,
            "dram_bytes": 1e6,
            "l2_hit_pct": 50.0,
            "roof": "DRAM",
            "roof_kind": "memory",
            "roof_share": 0.5,
            "verdict": verdict("memory"),
            **changes,
        }
    )


def make_case(
    workload: str, params: dict[str, Any], us: float, *, work: tuple[int, int, int], run: str, **changes: Any
) -> CaseResult:
    """A measured case. work: FLOPs, bytes read, bytes written."""
    flops, read, written = work
    case = f"{workload}[{','.join(f'{k}={str(v).lower() if isinstance(v, bool) else v}' for k, v in params.items())}]"
    tokens = changes.get("tokens")
    noise = 1 + 0.004 * (random.Random(case).random() - 0.5)
    us *= noise
    return CaseResult(
        **{
            "id": case,
            "workload": workload,
            "params": params,
            "run": run,
            "relative_error": 3e-4,
            "flops": flops,
            "bytes_read": read,
            "bytes_written": written,
            "plain": times(us, seed=case),
            "nsys": times(max(us - OVERHEAD_US, 0.6 * us), seed=case + "nsys"),
            "wall_us": max(us, 21.0),
            "waiting_pct": 100 * max(1 - (us - OVERHEAD_US) / max(us, 21.0), 0.0),
            "ncu_us": us * 1.04,
            "tokens_per_second": tokens / us * 1e6 if tokens else None,
            "tflops": flops / us / 1e6,
            "gb_per_s": (read + written) / us / 1e3,
            "tflops_roof_share": flops / us / 1e6 / (TENSOR / 1e12),
            "gb_per_s_roof_share": (read + written) / us / 1e3 / (DRAM / 1e9),
            **changes,
        }
    )


def heads(kv_heads: int) -> dict[str, int]:
    return {"q_heads": 32, "kv_heads": kv_heads, "head_dim": 128, "page_size": 16}


def prefill(batch: int, seq_len: int, kv_heads: int, backend: str) -> CaseResult:
    params = {
        "batch": batch,
        "seq_len": seq_len,
        **heads(kv_heads),
        "causal": True,
        "backend": backend,
        "dtype": "fp16",
    }
    flops = 4 * batch * 32 * 128 * seq_len * (seq_len + 1) // 2
    read = 2 * batch * seq_len * 128 * (32 + 2 * kv_heads)
    written = 2 * batch * seq_len * 128 * 32
    roof, best = (TENSOR, 0.68) if backend == "fa3" else (MMA, 0.62)
    share = best * flops / (flops + 1.5e10)
    us = OVERHEAD_US + flops / (share * roof) * 1e6
    bound = share > 0.45
    only = kernel(
        "PrefillWithKVCacheKernel" if backend == "fa3" else "BatchPrefillWithPagedKVCacheKernel",
        us,
        grid="132x1x1" if backend == "fa3" else f"{-(-batch * seq_len * 4 // 128)}x1x8",
        stalls=PREFILL_STALLS if backend == "fa3" else FA2_STALLS,
        waves=1.0 if backend == "fa3" else round(batch * seq_len * 4 / 128 * kv_heads / 264, 2),
        tensor_active_pct=100 * share,
        dram_pct=9.0,
        dram_bytes=float(read + written),
        roof="tensor fp16" if backend == "fa3" else "tensor fp16 mma",
        roof_share=share,
        roof_kind="compute",
        verdict=verdict("compute") if bound else verdict("latency", runner_up="compute"),
    )
    return make_case(
        "prefill", params, us, work=(flops, read, written), run="20261201-100000-prefill", kernels=[only],
        tokens=batch * seq_len, plan=prefill_plan(batch, seq_len, kv_heads, backend),
    )  # fmt: skip


def prefill_plan(batch: int, seq_len: int, kv_heads: int, backend: str) -> dict[str, Any]:
    """Keys as fiprof/workloads/attention.py gives them."""
    tiles = batch * -(-seq_len * 32 // kv_heads // 128)
    if backend == "fa2":
        return {"planner": "prefill", "work_items": tiles, "cta_tile_q": 128, "split_kv": False}
    items = batch * -(-seq_len // 128) * 32
    return {
        "planner": "prefill sm90", "split_kv": False, "work_items": items, "blocks": 132,
        "most_work_items_of_a_block": -(-items // 132) + 1, "same_schedule_for_all_heads": False,
    }  # fmt: skip


def decode(batch: int, kv_len: int, kv_heads: int, *, tensor_cores: bool, cuda_graph: bool) -> CaseResult:
    params = {
        "batch": batch, "kv_len": kv_len, **heads(kv_heads),
        "tensor_cores": tensor_cores, "cuda_graph": cuda_graph, "dtype": "fp16",
    }  # fmt: skip
    flops = 4 * batch * 32 * 128 * kv_len
    read = 2 * batch * 128 * (32 + 2 * kv_len * kv_heads)
    written = 2 * batch * 32 * 128
    share = (0.88 if tensor_cores else 0.68) if kv_heads == 8 else (0.90 if tensor_cores else 0.86)
    fast = 1.2 if read < L2_BYTES else 1.0
    main_us = 7.0 + read / (share * fast * DRAM) * 1e6
    split = batch * kv_heads < 512
    merge_us = 3.5 if split else 0.0
    achieved = read / DRAM * 1e6 / (main_us + 1)
    bound = achieved > 0.4
    chunks = max(1, 1024 // (batch * kv_heads)) if split else 1
    kernels = [
        kernel(
            "BatchPrefillWithPagedKVCacheKernel" if tensor_cores else "BatchDecodeWithPagedKVCacheKernel",
            main_us + 1,
            grid=f"{batch * chunks}x1x{kv_heads}" if tensor_cores else f"{batch * chunks}x{kv_heads}x1",
            block="32x1x4" if tensor_cores else "16x4x2",
            stalls=TENSOR_DECODE_STALLS if tensor_cores else DECODE_STALLS,
            achieved_occupancy_pct=12.1 if tensor_cores else 36.9,
            theoretical_occupancy_pct=12.5 if tensor_cores else 56.25,
            waves=round(batch * chunks * kv_heads / 1188, 2),
            registers_per_thread=56,
            shared_bytes_per_block=9216,
            tensor_active_pct=11.0 if tensor_cores else 0.0,
            dram_pct=100 * achieved,
            dram_bytes=float(read),
            l2_hit_pct=1.2,
            roof_share=achieved,
            verdict=verdict("memory") if bound else verdict("latency", runner_up="memory"),
        )
    ]
    if split:
        kernels.append(
            kernel(
                "PersistentVariableLengthMergeStatesKernel", merge_us + 1, grid=f"{132 * 4}x1x1", block="16x8x1",
                stalls=MERGE_STALLS, waves=0.67, dram_bytes=1e6, roof_share=0.05, verdict=verdict("latency"),
                launch=1, registers_per_thread=40, shared_bytes_per_block=8704,
            )
        )  # fmt: skip
    us = main_us + merge_us
    return make_case(
        "decode", params, us, work=(flops, read, written), run="20261201-100200-decode", kernels=kernels, tokens=batch,
        wall_us=us + 1 if cuda_graph else max(us, 21.0), waiting_pct=100 * (1 - us / (us + 1 if cuda_graph else max(us, 21.0))),
        plan={
            "planner": "prefill" if tensor_cores else "decode", "work_items": batch * chunks, "split_kv": split,
            **({"kv_chunk_tokens": -(-kv_len // chunks)} if split else {}),
        },
    )  # fmt: skip


def norm(workload: str, rows: int, hidden: int) -> CaseResult:
    params = {"rows": rows, "hidden": hidden, "dtype": "fp16"}
    unit = 2 * rows * hidden
    reads, writes = {"rmsnorm": (1, 1), "fused_add_rmsnorm": (2, 2), "add_then_rmsnorm": (3, 2)}[workload]
    us = OVERHEAD_US + 1.5 + (reads + writes) * unit / (0.66 * DRAM) * 1e6
    parts = [("RMSNormKernel", reads, writes)] if workload == "rmsnorm" else [("FusedAddRMSNormKernel", reads, writes)]
    if workload == "add_then_rmsnorm":
        parts = [("vectorized_elementwise_kernel", 2, 1), ("RMSNormKernel", 1, 1)]
    kernels = [
        kernel(
            name, us * (r + w) / (reads + writes), launch=i, grid=f"{rows}x1x1", block="32x16x1", stalls=NORM_STALLS,
            achieved_occupancy_pct=89.0, theoretical_occupancy_pct=100.0, waves=round(rows / 528, 2),
            registers_per_thread=32, shared_bytes_per_block=64, dram_bytes=float(r * unit + max(w * unit - 20e6, 0)),
            roof_share=0.66, verdict=verdict("memory") if rows > 512 else verdict("launch"),
        )
        for i, (name, r, w) in enumerate(parts)
    ]  # fmt: skip
    work = (4 * rows * hidden, reads * unit, writes * unit)
    return make_case(workload, params, us, work=work, run="20261201-100400-norms", kernels=kernels, tokens=rows)


def rope(tokens: int, variant: str) -> CaseResult:
    params = {
        "tokens": tokens,
        "seq_len": 512,
        "q_heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "variant": variant,
        "dtype": "fp16",
    }
    elements = tokens * 40 * 128
    us = OVERHEAD_US + 2.0 + 4 * elements / (0.76 * DRAM) * 1e6 * (1.015 if variant == "cos_sin_cache" else 1.0)
    only = kernel(
        "BatchQKApplyRotaryPosIdsCosSinCacheKernel" if variant == "cos_sin_cache" else "BatchQKApplyRotaryKernel", us,
        grid=f"{tokens // 8}x1x1", block="16x8x1", stalls=ROPE_STALLS, achieved_occupancy_pct=57.0,
        theoretical_occupancy_pct=62.5, waves=round(tokens / 8 / 1320, 2), dram_bytes=4.0 * elements, roof_share=0.69,
    )  # fmt: skip
    work = (3 * elements, 2 * elements, 2 * elements)
    return make_case("rope", params, us, work=work, run="20261201-100500-rope", kernels=[only], tokens=tokens)


def whole_matrix() -> dict[str, list[CaseResult]]:
    """Every case of the packaged study, one of them skipped."""
    variants = [(False, False), (True, False), (False, True)]
    decodes = [
        decode(batch, kv_len, kv_heads, tensor_cores=tensor, cuda_graph=graph)
        for batch in (1, 8, 32, 64, 128, 256)
        for kv_len in (512, 2048, 8192)
        for kv_heads in (8, 32)
        for tensor, graph in variants
    ]
    decodes = [
        skipped(case, "needs 34.4 GB, and 30.1 GB of the GPU's memory were free") if case.bytes_read > 34e9 else case
        for case in decodes
    ]
    sizes = [(rows, hidden) for rows in (1, 32, 128, 512, 4096) for hidden in (4096, 8192)]
    return {
        "prefill": [
            prefill(batch, seq_len, kv_heads, backend)
            for batch in (1, 4, 8, 32)
            for seq_len in (512, 1024, 2048, 4096)
            for kv_heads in (8, 32)
            for backend in ("fa2", "fa3")
        ],
        "decode": decodes,
        **{
            name: [norm(name, *size) for size in sizes] for name in ("rmsnorm", "fused_add_rmsnorm", "add_then_rmsnorm")
        },
        "rope": [
            rope(tokens, variant)
            for tokens in (512, 4096, 16384, 65536)
            for variant in ("inplace", "cos_sin_cache", "llama31")
        ],
    }


def skipped(case: CaseResult, why: str) -> CaseResult:
    return CaseResult(case.id, case.workload, case.params, run="", skipped=why)


JIT_RESULTS = JitResults(
    study="flashinfer",
    calls=[
        JitCall(
            "decode", 41.2, 1.31, 0.00004, ["batch_decode_with_kv_cache_dtype_q_f16"],
            [JitPhase("generate", 0.4), JitPhase("compile", 38.9, "batch_decode.cu"), JitPhase("link", 1.2), JitPhase("load", 0.05)],
        ),
        JitCall("rmsnorm", 28.4, 1.12, 0.00002, ["norm"], [JitPhase("compile", 26.0), JitPhase("link", 1.0)]),
    ],
    modules=[
        JitModule("batch_decode_with_kv_cache_dtype_q_f16", 3_410_000, ["batch_decode.cu"], ["-O3"], 39.8, []),
        JitModule("norm", 1_220_000, ["csrc/norm.cu"], ["-O3"], 26.9, []),
    ],
    cache_layout=["0.6.13/", "0.6.13/90a/"],
    cache_bytes=4_630_000,
    warm_up=["fiprof jit --warm-up --kernel decode,rmsnorm"],
    environment={"compiler": "nvcc 13.0", "cores": 16},
)  # fmt: skip

INFO = EnvironmentInfo(
    study="flashinfer",
    title="FlashInfer's kernels",
    started="2026-12-01T10:00:00+00:00",
    duration_s=402.0,
    status="complete",
    cases=211,
    skipped=3,
    missing={},
    workloads=["prefill", "decode", "rmsnorm", "fused_add_rmsnorm", "add_then_rmsnorm", "rope"],
    runs=["20261201-100000-prefill", "20261201-100200-decode", "20261201-100400-norms", "20261201-100500-rope"],
    settings={"quick": True, "rounds": 6, "iterations": 10, "ncu_set": "quick", "clock_control": "none", "cache_control": "all"},
    environment={
        "gpu": {"name": "NVIDIA H200", "compute_capability": "9.0", "multiprocessors": 132, "memory_bytes": 150109880320, "l2_bytes": 62914560, "cuda": "13.0"},
        "gpu_state": {
            "before": {"driver": "580.159.04", "sm_clock_mhz": 1980, "max_sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "temperature_c": 32, "other_processes": []},
            "after": {"sm_clock_mhz": 1965, "max_sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "temperature_c": 44, "other_processes": []},
        },
        "packages": {"python": "3.12.3", "torch": "2.11.0", "flashinfer-python": "0.6.13", "flashinfer-cubin": None, "nvtx": "0.2.17"},
        "tools": {"nsys": "2025.3.1", "ncu": "2025.3.1"},
        "host": {"system": "Linux", "machine": "x86_64", "cpus": 16},
    },
    mixed={},
    run_warnings={},
    fiprof="0.1.0",
)  # fmt: skip


def write_study(
    folder: Path,
    cases: dict[str, list[CaseResult]] | None = None,
    *,
    change: Change | None = None,
    only: Iterable[str] | None = None,
    jit: JitResults | None = JIT_RESULTS,
    **info: Any,
) -> Path:
    """A study folder with results and no runs.

    change: applied to every case. only: these workloads. info: fields of environment_info.json that differ.
    """
    results = folder / "results"
    results.mkdir(parents=True)
    everything = whole_matrix() if cases is None else cases
    chosen = {name: found for name, found in everything.items() if only is None or name in set(only)}
    for workload, found in chosen.items():
        changed = [change(case) if change else case for case in found]
        write(results / f"{workload}.json", KernelResults(workload, "flashinfer", changed, fiprof="0.1.0"))
    if jit is not None:
        write(results / "jit_analysis.json", jit)
    write(results / "environment_info.json", dataclasses.replace(INFO, workloads=list(chosen), **info))
    return folder


def scaled(case: CaseResult, factor: float) -> CaseResult:
    """The case with its plain time multiplied."""
    assert case.plain is not None
    plain = case.plain
    return dataclasses.replace(
        case,
        plain=dataclasses.replace(
            plain,
            median_us=plain.median_us * factor,
            low_us=plain.low_us * factor,
            high_us=plain.high_us * factor,
            round_medians_us=[us * factor for us in plain.round_medians_us],
        ),
    )


def prefill_twin(case: CaseResult) -> CaseResult:
    """The case with the time of its size alone, whatever the backend."""
    size = int(case.params["batch"]) * int(case.params["seq_len"])
    return dataclasses.replace(case, plain=times(20.0 + size / 100))
