"""The metrics: our column in ``launches``, ncu's name, unit and meaning; ``quantities.py`` computes from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One float64 column of ``launches``."""

    name: str
    """The column."""
    ncu: tuple[str, ...]
    """ncu's names for it, the preferred one first; compute capabilities and versions spell some differently."""
    unit: str
    """Base unit of the values; ``1`` for counts and ratios."""
    meaning: str
    """One sentence."""
    expected: bool = True
    """False where a report does well without it: another column says the same, or few GPUs have it."""


_TENSOR_KINDS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    # Kind, its operations; the same without sparsity, whose peak is the dense one: by the fastest instruction, and by
    # that of a warp (mma) where a warpgroup has a faster one (wgmma).
    (
        "fp16",
        ("src_fp16", "src_fp16_dst_fp32"),
        "op_hgmma_src_fp16_sparsity_off",
        "op_hmma_src_fp16_dst_fp32_sparsity_off",
    ),
    ("fp16_acc16", ("src_fp16_dst_fp16",), "", "op_hmma_src_fp16_dst_fp16_sparsity_off"),
    (
        "bf16",
        ("src_bf16_dst_fp32",),
        "op_hgmma_src_bf16_dst_fp32_sparsity_off",
        "op_hmma_src_bf16_dst_fp32_sparsity_off",
    ),
    (
        "tf32",
        ("src_tf32_dst_fp32",),
        "op_hgmma_src_tf32_dst_fp32_sparsity_off",
        "op_hmma_src_tf32_dst_fp32_sparsity_off",
    ),
    ("fp64", ("src_fp64",), "src_fp64", ""),
    ("fp8", ("src_fp8_sparsity_off", "src_fp8", "src_fp8_dst_fp32"), "src_fp8_sparsity_off", ""),
    ("fp8_acc16", ("src_fp8_dst_fp16",), "", ""),
    ("fp8_sparse", ("src_fp8_sparsity_on",), "src_fp8_sparsity_on", ""),
    ("int8", ("src_int8",), "op_igmma_src_int8_sparsity_off", "op_imma_src_int8_sparsity_off"),
    ("int1", ("src_int1",), "op_bgmma_src_int1", "op_bmma_src_int1"),
)

TENSOR_KINDS: tuple[str, ...] = tuple(kind for kind, *_ in _TENSOR_KINDS)
"""Operand types of tensor operations; ``_acc16`` accumulates in fp16 where ncu counts that apart (not on 9.0)."""

FLOAT_INSTS = {
    "fp32": ("fadd", "fmul", "ffma"),
    "fp16": ("hadd", "hmul", "hfma"),
    "fp64": ("dadd", "dmul", "dfma"),
}
"""Instructions outside the tensor cores that do floating-point operations, by precision; fp16 counts bf16 too."""
OPS_PER_INST = {
    "fadd": 1, "fmul": 1, "ffma": 2,
    "hadd": 2, "hmul": 2, "hfma": 4,
    "dadd": 1, "dmul": 1, "dfma": 2,
}  # fmt: skip
"""Operations of one such instruction of a thread; those on half precision work on pairs."""


def _tensor_metrics() -> tuple[Metric, ...]:
    path = "sm__ops_path_tensor_"
    counts = tuple(
        Metric(
            f"tensor_ops_{kind}",
            tuple(f"{path}{name}.sum" for name in parents),
            "ops",
            f"Tensor operations on {kind} operands, a multiply-add being two.",
            expected=not kind.endswith("acc16"),
        )
        for kind, parents, *_ in _TENSOR_KINDS
    )
    by_warp = tuple(
        Metric(
            f"mma_ops_{kind}",
            (f"{path}{mma}.sum",),
            "ops",
            f"Those of the {kind} tensor operations that dense instructions of a warp did (mma, not wgmma).",
            expected=False,
        )
        for kind, _, _, mma in _TENSOR_KINDS
        if mma
    )
    peaks = tuple(
        Metric(
            name,
            (f"{path}{child}.sum.peak_sustained",),
            "ops/cycle",
            f"Most {kind} tensor operations that all multiprocessors can do in a cycle"
            + (" with sparse operands" if kind.endswith("sparse") else " with dense operands")
            + (" by instructions of a warp (mma)." if name.startswith("mma") else "."),
            expected=not mma,
        )
        for kind, _, fastest, mma in _TENSOR_KINDS
        for name, child in (
            (f"tensor_peak_{kind}_ops_per_cycle", fastest),
            (f"mma_peak_{kind}_ops_per_cycle", mma),
        )
        if child
    )
    return counts + by_warp + peaks


def _float_metrics() -> tuple[Metric, ...]:
    counter = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    insts = [inst for group in FLOAT_INSTS.values() for inst in group]
    counts = tuple(
        Metric(
            f"{inst}_thread_insts",
            (counter.format(inst),),
            "1",
            f"Executed {inst.upper()}, counted a thread.",
            expected=False,
        )
        for inst in insts
    )
    rates = tuple(
        Metric(
            f"{inst}_thread_insts_per_cycle",
            (counter.format(inst) + ".per_cycle_elapsed",),
            "1/cycle",
            f"Executed {inst.upper()}, counted a thread, on all multiprocessors in a cycle.",
        )
        for inst in insts
    )
    peaks = tuple(
        Metric(
            f"{precision}_peak_ops_per_cycle",
            (f"derived__sm__sass_thread_inst_executed_op_{group[2]}_pred_on_x{OPS_PER_INST[group[2]]}",),
            "ops/cycle",
            f"Most {precision} operations that all multiprocessors can do in a cycle outside the tensor cores.",
        )
        for precision, group in FLOAT_INSTS.items()
    )
    return counts + rates + peaks


METRICS: tuple[Metric, ...] = (
    Metric("duration_ns", ("gpu__time_duration.sum",), "ns", "Time that the kernel took, from its start to its end."),
    # Launch and occupancy
    Metric("registers_per_thread", ("launch__registers_per_thread",), "1", "Registers that a thread uses."),
    Metric(
        "registers_allocated_per_thread",
        ("launch__registers_per_thread_allocated",),
        "1",
        "Registers that a thread is given, in the hardware's steps.",
    ),
    Metric("shared_static_bytes", ("launch__shared_mem_per_block_static",), "bytes", "Static shared memory a block."),
    Metric(
        "shared_dynamic_bytes", ("launch__shared_mem_per_block_dynamic",), "bytes", "Dynamic shared memory a block."
    ),
    Metric(
        "shared_driver_bytes",
        ("launch__shared_mem_per_block_driver",),
        "bytes",
        "Shared memory that the driver takes a block.",
    ),
    Metric(
        "shared_allocated_bytes",
        ("launch__shared_mem_per_block_allocated",),
        "bytes",
        "Shared memory that a block is given, in the hardware's steps, the driver's included.",
    ),
    Metric(
        "shared_configured_bytes",
        ("launch__shared_mem_config_size",),
        "bytes",
        "Shared memory that a multiprocessor was set up with for this launch.",
    ),
    Metric("threads_per_block", ("launch__block_size",), "1", "Threads of a block."),
    Metric("blocks", ("launch__grid_size",), "1", "Blocks of the grid."),
    Metric("multiprocessors", ("launch__sm_count", "device__attribute_multiprocessor_count"), "1", "Multiprocessors."),
    Metric(
        "waves_per_sm",
        ("launch__waves_per_multiprocessor",),
        "1",
        "Blocks over those that fit on the GPU at once, each multiprocessor full.",
    ),
    Metric("cluster_size", ("launch__cluster_size",), "1", "Blocks of a cluster; 0 without clusters."),
    Metric("clusters_max_active", ("launch__cluster_max_active",), "1", "Clusters that fit on the GPU at once."),
    Metric(
        "limit_registers_blocks",
        ("launch__occupancy_limit_registers",),
        "blocks",
        "Blocks that fit on a multiprocessor by registers.",
    ),
    Metric(
        "limit_shared_memory_blocks",
        ("launch__occupancy_limit_shared_mem",),
        "blocks",
        "Blocks that fit on a multiprocessor by shared memory.",
    ),
    Metric(
        "limit_warps_blocks",
        ("launch__occupancy_limit_warps",),
        "blocks",
        "Blocks that fit on a multiprocessor by warps.",
    ),
    Metric(
        "limit_blocks_blocks",
        ("launch__occupancy_limit_blocks",),
        "blocks",
        "Blocks that a multiprocessor can hold at all.",
    ),
    Metric(
        "limit_barriers_blocks",
        ("launch__occupancy_limit_barriers",),
        "blocks",
        "Blocks that fit on a multiprocessor by barriers.",
    ),
    Metric("barriers", ("launch__barrier_count",), "1", "Barriers that a block uses."),
    Metric(
        "cluster_occupancy_pct",
        ("launch__occupancy_cluster_pct",),
        "%",
        "Occupancy that clusters allow; 0 without clusters.",
        expected=False,
    ),
    Metric(
        "max_registers_per_sm",
        ("device__attribute_max_registers_per_multiprocessor",),
        "1",
        "Registers of a multiprocessor.",
    ),
    Metric(
        "max_shared_bytes_per_sm",
        ("device__attribute_max_shared_memory_per_multiprocessor",),
        "bytes",
        "Most shared memory that a multiprocessor can be set up with.",
    ),
    Metric(
        "max_warps_per_sm",
        ("device__attribute_max_warps_per_multiprocessor",),
        "1",
        "Most warps on a multiprocessor.",
    ),
    Metric("l2_bytes", ("device__attribute_l2_cache_size",), "bytes", "Size of the L2 cache."),
    Metric(
        "theoretical_occupancy_pct",
        ("sm__maximum_warps_per_active_cycle_pct",),
        "%",
        "Warps that fit on a multiprocessor, of the most it can hold.",
    ),
    Metric(
        "achieved_occupancy_pct",
        ("sm__warps_active.avg.pct_of_peak_sustained_active",),
        "%",
        "Warps that were active in an active cycle, of the most a multiprocessor can hold.",
    ),
    # Clocks
    Metric(
        "sm_cycles",
        ("sm__cycles_elapsed.avg", "smsp__cycles_elapsed.avg"),
        "cycles",
        "Cycles of a multiprocessor during the kernel.",
    ),
    Metric("sm_active_cycles", ("sm__cycles_active.avg",), "cycles", "Cycles with a warp on the multiprocessor."),
    Metric(
        "sm_active_cycles_max",
        ("sm__cycles_active.max",),
        "cycles",
        "The same of the multiprocessor that was active longest.",
    ),
    Metric(
        "sm_active_cycles_min",
        ("sm__cycles_active.min",),
        "cycles",
        "The same of the multiprocessor that was active shortest.",
    ),
    Metric("sm_clock_hz", ("sm__cycles_elapsed.avg.per_second",), "Hz", "Clock of the multiprocessors."),
    Metric("l2_clock_hz", ("lts__cycles_elapsed.avg.per_second",), "Hz", "Clock of the L2 cache."),
    Metric("dram_clock_hz", ("dram__cycles_elapsed.avg.per_second",), "Hz", "Clock of the DRAM."),
    # Speed of light
    Metric(
        "sm_throughput_pct",
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Busiest part of the multiprocessors' compute side, of its peak.",
    ),
    Metric(
        "memory_throughput_pct",
        ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Busiest part of the memory system, of its peak.",
    ),
    Metric(
        "l1_throughput_pct",
        ("l1tex__throughput.avg.pct_of_peak_sustained_active",),
        "%",
        "Busiest part of the L1 cache while it is active, of its peak.",
    ),
    Metric(
        "l2_throughput_pct",
        ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Busiest part of the L2 cache, of its peak.",
    ),
    Metric(
        "dram_throughput_pct",
        (
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        ),
        "%",
        "Busiest part of the DRAM interface, of its peak.",
    ),
    Metric(
        "l1_data_pct",
        ("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Passes through the data stage of L1 and shared memory, of the most it can make.",
    ),
    Metric(
        "shared_data_pct",
        ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",),
        "%",
        "Those of them that shared memory made.",
        expected=False,
    ),
    Metric(
        "l2_sectors_pct",
        ("lts__t_sectors.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Sectors that L2 looked up, of the most it can.",
    ),
    Metric(
        "l2_to_sm_pct",
        ("lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Cycles in which L2 sent data towards the multiprocessors.",
    ),
    Metric(
        "sm_to_l2_pct",
        ("lts__xbar2lts_cycles_active.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Cycles in which L2 received data or requests from the multiprocessors.",
        expected=False,
    ),
    Metric(
        "l2_tags_pct",
        ("lts__t_tag_requests.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Requests that L2 looked up, of the most it can.",
        expected=False,
    ),
    # DRAM and caches
    Metric("dram_bytes_per_second", ("dram__bytes.sum.per_second",), "bytes/s", "Bytes read and written in DRAM."),
    Metric("dram_read_bytes", ("dram__bytes_read.sum",), "bytes", "Bytes read from DRAM."),
    Metric("dram_write_bytes", ("dram__bytes_write.sum",), "bytes", "Bytes written to DRAM."),
    Metric(
        "dram_peak_bytes_per_cycle",
        ("dram__bytes.sum.peak_sustained",),
        "bytes/cycle",
        "Most bytes that DRAM can move in a DRAM cycle.",
    ),
    Metric("l1_hit_pct", ("l1tex__t_sector_hit_rate.pct",), "%", "Sectors found in L1."),
    Metric("l2_hit_pct", ("lts__t_sector_hit_rate.pct",), "%", "Sectors found in L2."),
    Metric(
        "l1_bytes_per_second",
        ("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.per_second",),
        "bytes/s",
        "Bytes from L1 and shared memory to registers; TMA loads bypass it.",
    ),
    Metric(
        "l1_peak_bytes_per_cycle",
        ("derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.peak_sustained",),
        "bytes/cycle",
        "The most of them that all multiprocessors can move in a cycle of theirs.",
    ),
    Metric(
        "l2_bytes_per_second",
        ("derived__lts__lts2xbar_bytes.sum.per_second",),
        "bytes/s",
        "Bytes from L2 towards the multiprocessors.",
    ),
    Metric(
        "l2_peak_bytes_per_cycle",
        ("derived__lts__lts2xbar_bytes.sum.peak_sustained",),
        "bytes/cycle",
        "The most of them that L2 can move in a cycle of its own.",
    ),
    Metric(
        "global_load_requests",
        ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",),
        "1",
        "Requests of loads from global memory to L1.",
    ),
    Metric(
        "global_load_sectors",
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
        "1",
        "Sectors of 32 bytes that these loads touched.",
    ),
    Metric(
        "global_store_requests",
        ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",),
        "1",
        "Requests of stores to global memory to L1.",
    ),
    Metric(
        "global_store_sectors",
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
        "1",
        "Sectors of 32 bytes that these stores touched.",
    ),
    Metric(
        "local_load_requests",
        ("l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",),
        "1",
        "Requests of loads from local memory.",
    ),
    Metric(
        "local_store_requests",
        ("l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",),
        "1",
        "Requests of stores to local memory.",
    ),
    Metric(
        "spill_requests",
        ("derived__local_spilling_requests",),
        "1",
        "Local memory requests because registers were spilled.",
    ),
    Metric(
        "shared_load_wavefronts",
        ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",),
        "1",
        "Passes through the data stage of shared memory loads.",
    ),
    Metric(
        "shared_load_bank_conflicts",
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",),
        "1",
        "Those of them that bank conflicts added.",
    ),
    Metric(
        "shared_store_wavefronts",
        ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",),
        "1",
        "Passes through the data stage of shared memory stores.",
    ),
    Metric(
        "shared_store_bank_conflicts",
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",),
        "1",
        "Those of them that bank conflicts added.",
    ),
    Metric(
        "shared_wavefronts",
        ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
        "1",
        "Passes of all shared memory instructions: loads, stores, atomics and copies from global memory.",
        expected=False,
    ),
    Metric(
        "shared_bank_conflicts",
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
        "1",
        "Those of them that bank conflicts added.",
        expected=False,
    ),
    # Schedulers and warps
    Metric(
        "warp_latency_cycles",
        ("smsp__average_warp_latency_per_inst_issued.ratio",),
        "cycles",
        "Cycles of all warps of a scheduler between two issued instructions; the stalls add up to it.",
    ),
    Metric("ipc_active", ("sm__inst_executed.avg.per_cycle_active",), "1/cycle", "Instructions in an active cycle."),
    Metric(
        "eligible_warps_per_scheduler",
        ("smsp__warps_eligible.avg.per_cycle_active",),
        "1",
        "Warps that could have issued in an active cycle.",
    ),
    Metric(
        "active_warps_per_scheduler",
        ("smsp__warps_active.avg.per_cycle_active",),
        "1",
        "Warps on a scheduler in an active cycle.",
    ),
    Metric(
        "issue_active_pct",
        ("smsp__issue_active.avg.pct_of_peak_sustained_active",),
        "%",
        "Active cycles of a scheduler in which it issued.",
    ),
    Metric(
        "issue_slot_busy_pct",
        ("sm__inst_issued.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Issue slots used, of those in all elapsed cycles.",
    ),
    Metric("instructions", ("smsp__inst_executed.sum",), "1", "Executed warp instructions."),
    Metric(
        "threads_per_instruction",
        ("smsp__thread_inst_executed_per_inst_executed.ratio",),
        "1",
        "Active threads of an executed warp instruction, of 32.",
    ),
    # Pipelines
    Metric(
        "fma_pct",
        ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Cycles in which the FMA pipe worked: FP32 arithmetic and integer multiplication.",
    ),
    Metric(
        "alu_pct",
        ("sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Cycles in which the ALU pipe worked: integer, logic and comparison.",
    ),
    Metric(
        "xu_pct",
        ("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Instructions of the XU pipe, of the most it can execute: exp, sine, reciprocal, conversions.",
    ),
    Metric(
        "lsu_pct",
        ("sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Instructions of the LSU pipe, of the most it can execute: loads and stores.",
    ),
    Metric(
        "fp64_pct",
        ("sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Cycles in which the FP64 pipe worked.",
        expected=False,
    ),
    # Tensor cores
    Metric(
        "tensor_active_pct",
        ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",),
        "%",
        "Cycles in which the tensor cores worked, of all elapsed ones.",
    ),
    Metric(
        "tensor_busy_pct",
        ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",),
        "%",
        "Cycles in which the tensor cores worked, of those with a warp on the multiprocessor.",
    ),
    *_tensor_metrics(),
    *_float_metrics(),
    # How the numbers came about
    Metric("replay_passes", ("profiler__replayer_passes",), "1", "Times that ncu ran the kernel."),
    Metric(
        "replay_saved_bytes",
        ("profiler__replayer_bytes_mem_backed_up.sum", "profiler__replayer_bytes_mem_backed_up"),
        "bytes",
        "Memory that ncu saved for the replays, all passes together.",
    ),
    Metric("stall_samples", ("smsp__pcsamp_sample_count",), "1", "Warp samples that were taken."),
    Metric(
        "stall_dropped_bytes",
        ("smsp__pcsamp_dropped_bytes",),
        "bytes",
        "Samples that were lost because the buffer was full.",
    ),
    Metric(
        "stall_interval_cycles",
        ("smsp__pcsamp_interval_cycles",),
        "cycles",
        "Cycles between two samples of a scheduler.",
    ),
)

COLUMNS: tuple[str, ...] = tuple(metric.name for metric in METRICS)
"""Every metric's column, ``duration_ns`` first."""
