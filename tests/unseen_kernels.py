"""A third exam for ``fiprof verdict``: 32 kernels as working engineers write them, with the limits and first steps that are
right of them (``ANSWERS``). Both were written before any of them ran and without the verdict's rules at hand, by somebody
who knew the names of the steps and the two exams before it. Collected by ``tests/collect_single_purpose.sh``.
"""

from __future__ import annotations

from functools import partial

from tests.exam_kernels import BYTES, IN_FLIGHT, exams

ANSWERS: dict[str, tuple[str, str, str]] = {}
"""Workload -> the limits and the first steps of which any is right, as in tests/test_exam.py, and what was built in."""

exam, torch_exam, _ = exams(globals(), "unseen", ANSWERS)

exam("swiglu_gate", "memory/dram", f"{BYTES} at_roof",
     "streams 384 MiB, 16 bytes a lane", elements=1 << 26, grid=1 << 15)  # fmt: skip
exam("decode_few_splits", "imbalance/too_few_blocks", "more_blocks",
     "one token's attention: 64 blocks, each 2048 keys", elements=1 << 25, grid=64)  # fmt: skip
exam("bias_gradient_atomics", "latency memory/l2 memory/l2_atomics", "aggregate_atomics spread_atomics",
     "33 million atomics on 1024 words", elements=1 << 25, grid=1 << 17)  # fmt: skip
exam("dequantize_bytes", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT} fewer_accesses",
     "a byte read and 4 written a thread; 320 MiB", elements=1 << 26, grid=1 << 18)  # fmt: skip
exam("topk_thread_a_row", "memory latency", "neighbouring_access",
     "2 KB between the lanes of a warp", elements=1 << 24, grid=128)  # fmt: skip
exam("sample_one_thread", "latency imbalance", "same_path less_stall fewer_barriers more_loads",
     "one thread walks half a row, 255 wait at a barrier", elements=1 << 23, grid=256)  # fmt: skip
exam("jacobi_3d", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT}",
     "a stencil of seven points over 512 MiB; neighbours from L1 and L2", elements=1 << 26, grid=1 << 18)  # fmt: skip
exam("mma_from_global", "latency memory/l1_data memory/l2",
     "neighbouring_access more_loads overlap_mma copy_by_tma fewer_l1_passes less_l2",
     "fragments of 16 bytes a row, loaded and used in turn", elements=1 << 22, grid=1 << 10)  # fmt: skip
exam("sum_one_load", "latency", IN_FLIGHT, "8 KB in flight a multiprocessor", elements=1 << 26)
exam("histogram_bytes", "memory/shared_memory memory/l1_data compute/lsu_pipe latency",
     "no_bank_conflicts aggregate_atomics spread_atomics fewer_shared_passes",
     "random bins: three or four lanes in a bank", elements=1 << 24)  # fmt: skip
exam("hash_insert", "latency memory/dram memory/l2 memory/l2_atomics", f"neighbouring_access {IN_FLIGHT} {BYTES}",
     "random words of 64 MiB by compare-and-swap: no two alike, nothing to add up", elements=1 << 24, grid=1 << 15)  # fmt: skip
exam("binary_search", "latency memory/l2 memory/l1_data", f"neighbouring_access less_l2 {IN_FLIGHT}",
     "22 levels, each load waits for the one before; the lanes part", elements=1 << 22, repeats=16)  # fmt: skip
exam("csr_warp_short_rows", "latency compute memory/dram memory/l1_data",
     "same_path whole_warps less_wasted_work fewer_instructions fewer_shuffles more_loads",
     "24 of 32 lanes have nothing to do; wanted: 8 lanes a row", elements=1 << 24, grid=1 << 17)  # fmt: skip
exam("compact_warp_ticket", "latency memory/l2 memory/l2_atomics", "aggregate_atomics spread_atomics",
     "a million tickets from one counter; wanted: one a block", elements=1 << 25, grid=1 << 17)  # fmt: skip
exam("monte_carlo_philox", "compute", "less_of_pipe less_fma less_alu fewer_instructions",
     "forty 32-bit multiplications for four numbers", repeats=256)  # fmt: skip
exam("big_tiles_tail", "imbalance/tail", "fuller_last_wave",
     "a block of 1024 threads a multiprocessor, a wave and a quarter", threads=1024, shared_bytes=128 << 10,
     blocks_per_sm=1.25, repeats=2048)  # fmt: skip
exam("causal_rows", "imbalance", "even_work", "the last of 264 blocks does 264 times the first's work", grid=264)
exam("jacobian_spills", "memory latency compute/lsu_pipe", "fewer_spills", "144 values in 64 registers",
     threads=512, blocks_per_sm=2, repeats=16)  # fmt: skip
exam("collatz_lengths", "compute latency", "same_path", "lanes that leave a loop at different times",
     grid=1 << 12, repeats=8)  # fmt: skip
exam("smith_waterman", "latency compute", "fewer_barriers", "a barrier after some thirty instructions")
exam("fft_pass", "memory/shared_memory memory/l1_data compute/lsu_pipe", "no_bank_conflicts",
     "lanes 128 bytes apart in shared memory", blocks_per_sm=6, repeats=32)  # fmt: skip
exam("embedding_bag", "memory/l2", "less_l2 need_fewer_bytes", "1 GiB of reads from a table of 16 MiB, 16 bytes a lane",
     elements=1 << 22, grid=1 << 12)  # fmt: skip
exam("gamma_lut", "compute latency memory/constant_cache", "uniform_constants",
     "32 lanes read different constants", elements=1 << 24, grid=1 << 16)  # fmt: skip
exam("cluster_neighbours", "latency memory/cluster_memory memory/shared_memory memory/l1_data compute/lsu_pipe",
     "less_stall more_loads fewer_accesses less_of_pipe fewer_shared_passes more_warps",
     "another block's shared memory, 4 bytes a lane, over and over", blocks_per_sm=4, repeats=64)  # fmt: skip
exam("argmax_short_rows", "compute latency memory/shared_memory memory/l1_data", "fewer_shuffles fewer_instructions less_alu",
     "ten shuffles for 128 bytes", elements=1 << 26, grid=1 << 18)  # fmt: skip

# fmt: off
torch_exam("bias_add_small", "launch latency imbalance", "fuse_or_batch larger_launches use_graph",
    "a bias added to 512 KB: 2 µs",
    lambda torch, normal: partial(torch.add, x := normal(64, 4096), normal(4096), out=torch.empty_like(x)))
torch_exam("prefix_sum_long", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT}",
    "one prefix sum of 256 MiB by cub, a pass",
    lambda torch, normal: partial(torch.cumsum, x := normal(1 << 26).float(), 0, out=torch.empty_like(x)))
torch_exam("permute_nhwc", "memory latency", "neighbouring_access",
    "channels moved last: 32 sectors a load or a store",
    lambda torch, normal: partial(normal(64, 256, 56, 56).contiguous, memory_format=torch.channels_last))
torch_exam("conv_channels_last", "compute/tensor_cores latency",
    "smaller_operands fuller_last_wave at_roof close_tensor_gaps use_wgmma overlap_mma overlap_wgmma copy_by_tma",
    "a 3 x 3 convolution of 128 channels by cuDNN",
    lambda torch, normal: partial(
        torch.nn.functional.conv2d, normal(32, 128, 56, 56).to(memory_format=torch.channels_last),
        normal(128, 128, 3, 3).to(memory_format=torch.channels_last), padding=1))
torch_exam("sgemm_cublas", "compute/fma_pipe compute/issue_slots",
    "use_tensor_cores less_fma packed_halves at_roof fewer_instructions",
    "4096 x 4096 x 4096 in single precision",
    lambda torch, normal: partial(torch.mm, normal(4096, 4096).float(), normal(4096, 4096).float()))
torch_exam("fill_buffer", "memory/dram memory/l2 latency", f"{BYTES} at_roof",
    "writes 256 MiB, reads nothing",
    lambda torch, normal: partial(torch.fill_, normal(1 << 27), 1.5))
torch_exam("sdpa_prefill", "compute/tensor_cores latency",
    "use_wgmma overlap_mma overlap_wgmma smaller_operands close_tensor_gaps copy_by_tma",
    "attention of 4096 tokens, 16 heads, batch 4",
    lambda torch, normal: partial(
        torch.nn.functional.scaled_dot_product_attention, *(normal(4, 16, 4096, 128) for _ in range(3))))
