"""A fifth exam for ``fiprof verdict``: 32 kernels of serving, training, HPC, graphics, cryptography and databases, with the
limits and first steps that are right of them (``ANSWERS``). Both were written before any of them ran and without the
verdict's rules at hand. Collected by ``tests/collect_single_purpose.sh``.
"""

from __future__ import annotations

from functools import partial

from tests.exam_kernels import BYTES, IN_FLIGHT, exams

ANSWERS: dict[str, tuple[str, str, str]] = {}
"""Workload -> the limits and the first steps of which any is right, as in tests/test_exam.py, and what was built in."""

exam, torch_exam, triton = exams(globals(), "last", ANSWERS)

exam("rgba_to_luma", "memory/dram", f"{BYTES} at_roof",
     "streams 320 MiB, two loads of 16 bytes a lane", elements=1 << 26, grid=1 << 15)  # fmt: skip
exam("merge_path_global", "memory latency", "neighbouring_access",
     "64 bytes between lanes, loads and stores alike; wanted: the runs of a block through shared memory",
     elements=1 << 24, grid=1 << 12)  # fmt: skip
exam("radix_scatter", "memory latency", "neighbouring_access",
     "some 30 sectors a store of 128 bytes; wanted: a block's keys sorted in shared memory first",
     elements=1 << 24, grid=1 << 16)  # fmt: skip
exam("aes_ttables", "memory/shared_memory memory/l1_data compute/lsu_pipe", "no_bank_conflicts fewer_shared_passes",
     "16 random look-ups of a word a round, three or four lanes in a bank; wanted: a copy of the table a bank",
     blocks_per_sm=4, repeats=10)  # fmt: skip
exam("montgomery_multiply", "compute", "less_fma less_alu less_of_pipe fewer_instructions",
     "136 products of 32 bits with 64-bit sums", blocks_per_sm=4, repeats=40)  # fmt: skip
exam("warp_bitonic", "compute memory/shared_memory memory/l1_data memory/mio",
     "fewer_shuffles less_alu fewer_instructions less_of_pipe",
     "borderline: fifteen shuffles and thirty minima and maxima a key", repeats=128)  # fmt: skip
exam("vocab_argmax_rows", "imbalance/too_few_blocks", "more_blocks fill_wave",
     "64 blocks; wanted: several blocks a row", elements=1 << 24, grid=64)  # fmt: skip
exam("hdr_brackets", "compute", "fewer_instructions less_fma less_xu less_alu less_of_pipe",
     "nine accurate powers and three divisions an exposure; wanted: fast ones, or a table",
     elements=1 << 22, grid=1 << 12, repeats=4)  # fmt: skip
exam("sdf_march", "compute latency", "same_path", "a warp waits for the longest of 32 rays", repeats=4)
exam("lbm_d2q9", "memory/dram", f"{BYTES} at_roof", "288 MiB in 18 streams, nine loads a thread",
     elements=1 << 26, grid=1 << 14)  # fmt: skip
exam("thomas_tridiagonal", "latency", f"{IN_FLIGHT} fill_wave more_blocks",
     "eight warps a multiprocessor, two loads in flight each, a row behind another", elements=1 << 24, grid=128)  # fmt: skip
exam("selective_scan", "compute/xu_pipe compute/issue_slots", "less_xu less_of_pipe fewer_instructions",
     "an exponential a state: 16 of 109 instructions at an eighth of the rate; wanted: one decay for all states",
     elements=1 << 22, blocks_per_sm=3, repeats=4)  # fmt: skip
exam("fused_mlp_warp", "memory/shared_memory memory/l1_data compute/lsu_pipe compute/tensor_cores",
     "fewer_shared_passes fewer_accesses use_wgmma",
     "two shared loads an mma; wanted: more rows a warp for the same weights", elements=1 << 22, blocks_per_sm=3,
     repeats=24)  # fmt: skip
exam("adamw_fused", "memory/dram", f"{BYTES} at_roof", "448 MiB, four loads of 16 bytes a lane",
     elements=1 << 26, grid=1 << 14)  # fmt: skip
exam("chained_scan", "latency", "less_stall share_awaited_work fewer_barriers",
     "528 blocks, all there at once, wait in a chain, a trip to L2 each; wanted: look back over many",
     elements=1 << 22, blocks_per_sm=4)  # fmt: skip
exam("kmeans_assign", "compute/fma_pipe compute/issue_slots",
     "less_fma use_tensor_cores packed_halves fewer_instructions less_of_pipe",
     "64 additions and multiply-adds of 77 instructions; wanted: a matrix product", blocks_per_sm=3, repeats=2)  # fmt: skip
exam("viterbi_trellis", "latency", "fewer_barriers more_warps fill_wave less_stall",
     "eight warps a multiprocessor, a barrier after twenty instructions; wanted: a warp a message, or more messages",
     elements=1 << 22, blocks_per_sm=1, repeats=1024)  # fmt: skip
exam("log_lines_bytes", "memory latency", "neighbouring_access fewer_accesses fewer_l1_passes",
     "128 bytes between lanes, a byte a load", elements=1 << 23, grid=1 << 10)  # fmt: skip
exam("rsa_local", "memory/l1_data compute/lsu_pipe compute/issue_slots latency", "constant_indices",
     "arrays in local memory, for their loops are not unrolled", threads=128, blocks_per_sm=6, repeats=10)  # fmt: skip
exam("mesh_cells_refined", "imbalance", "even_work", "one of 16 parts has 16 times the work; 528 blocks at once",
     elements=1 << 22, grid=528)  # fmt: skip
exam("ntt_shared_tail", "imbalance/tail", "fuller_last_wave", "132 blocks at once, then 26",
     threads=1024, shared_bytes=128 << 10, blocks_per_sm=1.2, elements=1 << 23)  # fmt: skip
exam("pic_deposit", "memory latency", "neighbouring_access aggregate_atomics",
     "eight atomics a particle, each lane's in another sector; wanted: particles sorted by cell",
     elements=1 << 21, grid=1 << 12)  # fmt: skip
exam("lut3d_trilinear", "memory/l2 memory/l1_data latency", "neighbouring_access less_l2",
     "eight random reads of 16 bytes a pixel from 4 MiB", elements=1 << 24, grid=1 << 14)  # fmt: skip
exam("group_by_shared", "latency", IN_FLIGHT,
     "two loads of 4 bytes a thread in 8 warps a multiprocessor", elements=1 << 24, blocks_per_sm=1,
     shared_bytes=128 << 10)  # fmt: skip

# fmt: off
torch_exam("rms_norm_residual", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT} fewer_barriers",
    "Triton: 256 MiB in one pass, a reduction of a row between",
    lambda torch, normal: partial(
        triton("rms_norm_residual", 8192), x := normal(8192, 4096), normal(8192, 4096), normal(4096),
        torch.empty_like(x), length=4096, num_warps=8))
torch_exam("product_ieee", "compute/fma_pipe compute/issue_slots memory/shared_memory memory/l1_data",
    "use_tensor_cores less_fma fewer_shared_passes",
    "Triton: 1408 x 1536 x 1536 in single precision, 1024 of 1174 instructions multiply-adds; wanted: TF32",
    lambda torch, normal: partial(
        triton("product_ieee", 22, 24), a := normal(1408, 1536).float(), normal(1536, 1536).float(),
        torch.empty_like(a), size=1536, tile=64))
torch_exam("ema_lerp", "memory/dram", f"{BYTES} at_roof",
    "384 MiB, a multiply-add each",
    lambda torch, normal: partial(torch.lerp, x := normal(1 << 26), normal(1 << 26), 0.01, out=torch.empty_like(x)))
torch_exam("fft_rows", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT} fewer_barriers",
    "cuFFT: 4096 transforms of 4096: 256 MiB in one pass",
    lambda torch, normal: partial(
        torch.fft.fft, torch.complex(normal(4096, 4096).float(), normal(4096, 4096).float())))
torch_exam("scatter_add_counts", "latency memory/l2 memory/l2_atomics", "aggregate_atomics spread_atomics",
    "8 million atomics on 256 words",
    lambda torch, normal: partial(
        torch.Tensor.scatter_add_, normal(256).float(), 0, (normal(1 << 23).float() * 1e4).long() % 256, normal(1 << 23).float()))
torch_exam("add_transposed", "memory latency", "neighbouring_access",
    "one of two operands transposed: 2 bytes of each sector",
    lambda torch, normal: partial(torch.add, normal(8192, 8192).t(), normal(8192, 8192)))
torch_exam("int8_product", "compute/tensor_cores latency",
    "fuller_last_wave at_roof close_tensor_gaps use_wgmma overlap_mma overlap_wgmma copy_by_tma smaller_operands",
    "4096 x 4096 x 8192 bytes by cuBLAS",
    lambda torch, normal: partial(
        torch._int_mm, normal(4096, 8192).to(torch.int8), normal(4096, 8192).to(torch.int8).t()))
torch_exam("clamp_tiny", "launch latency imbalance", "fuse_or_batch larger_launches use_graph",
    "4096 values: 2 µs",
    lambda torch, normal: partial(torch.clamp, normal(4096), -1.0, 1.0))
