"""A fourth exam for ``fiprof verdict``: 32 kernels of serving, training and HPC as working engineers write them, with the
limits and first steps that are right of them (``ANSWERS``). Both were written before any of them ran and without the
verdict's rules at hand. Collected by ``tests/collect_single_purpose.sh``.
"""

from __future__ import annotations

from functools import partial

from tests.exam_kernels import BYTES, IN_FLIGHT, exams

ANSWERS: dict[str, tuple[str, str, str]] = {}
"""Workload -> the limits and the first steps of which any is right, as in tests/test_exam.py, and what was built in."""

exam, torch_exam, triton = exams(globals(), "fresh", ANSWERS)

exam("rope_table", "memory/dram", f"{BYTES} at_roof",
     "streams 512 MiB in place, 16 bytes a lane; the table of 2 MiB stays in L2", elements=1 << 26, grid=1 << 16)  # fmt: skip
exam("dgamma_columns", "imbalance/too_few_blocks", "more_blocks fill_wave",
     "a thread a column: 16 blocks for 64 MiB; wanted: a split of the rows", elements=1 << 24, grid=16)  # fmt: skip
exam("quantize_fp8_rows", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT} fewer_barriers",
     "320 MiB in one pass, a barrier between", elements=1 << 26, grid=1 << 14)  # fmt: skip
exam("topk_bitonic", "memory/shared_memory memory/l1_data compute/lsu_pipe latency",
     "no_bank_conflicts fewer_shared_passes fewer_accesses fewer_barriers",
     "borderline: 55 steps of two loads, two stores and a barrier; below a stride of 32 lanes meet in pairs",
     elements=1 << 23, threads=512, grid=1 << 13)  # fmt: skip
exam("moe_hot_expert", "imbalance", "even_work", "four of 1056 blocks, all there at once, have 32 times the work",
     elements=1 << 24, grid=1056)  # fmt: skip
exam("conv7_shared", "memory/shared_memory memory/l1_data compute/lsu_pipe", "fewer_shared_passes fewer_accesses",
     "49 shared loads for 49 multiply-adds; wanted: several outputs a thread from registers",
     elements=1 << 24, grid=1 << 14)  # fmt: skip
exam("bfs_thread_a_vertex", "latency memory", "neighbouring_access same_path more_loads",
     "a quarter of the lanes at work, 32 sectors a load, each behind another; wanted: a warp a vertex",
     elements=1 << 24, grid=1 << 10)  # fmt: skip
exam("ray_spheres_tail", "imbalance/tail", "fuller_last_wave", "264 blocks at once, then 19",
     threads=1024, blocks_per_sm=2.15, repeats=3)  # fmt: skip
exam("queens_subtrees", "compute latency", "same_path less_wasted_work whole_warps",
     "eleven of twelve lanes leave at once, the others search trees of different sizes", grid=1451)  # fmt: skip
exam("lennard_jones_double", "compute", "single_precision less_of_pipe less_fma fewer_instructions",
     "20 double-precision instructions of 37", blocks_per_sm=4, repeats=4)  # fmt: skip
exam("mma_one_stage", "latency", f"{IN_FLIGHT} overlap_mma copy_by_tma fewer_barriers",
     "loads, a barrier, 32 mma a warp, a barrier: in turn, 16 warps a multiprocessor", elements=1 << 23, grid=256)  # fmt: skip
exam("beam_heap", "memory latency compute/lsu_pipe", "constant_indices same_path",
     "a heap in local memory, indices known at run time alone, lanes on different levels",
     blocks_per_sm=4, repeats=128)  # fmt: skip
exam("embedding_backward_padding", "latency memory/l2 memory/l2_atomics", "aggregate_atomics spread_atomics",
     "three quarters of 8 million atomics on 128 words", elements=1 << 23, grid=1 << 13)  # fmt: skip
exam("column_norms_warp", "memory latency", "neighbouring_access", "32 sectors a load, 16 KB between lanes",
     elements=1 << 25, grid=512)  # fmt: skip
exam("scan_blelloch", "memory/shared_memory memory/l1_data compute/lsu_pipe latency", "no_bank_conflicts fewer_barriers",
     "2- to 32-way conflicts, 21 barriers, ever fewer threads", elements=1 << 24, threads=512, grid=1 << 14)  # fmt: skip
exam("box_muller_xorwow", "compute/issue_slots compute/xu_pipe compute/alu_pipe",
     "less_xu less_alu fewer_instructions",
     "borderline: four special functions and 16 integer instructions of 36", repeats=384)  # fmt: skip
exam("producers_two_stages", "latency", f"{IN_FLIGHT} copy_by_tma",
     "four warps have 4 KB in flight a block, 8 KB a multiprocessor", elements=1 << 26, blocks_per_sm=2)  # fmt: skip
exam("one_warp_blocks", "latency", IN_FLIGHT,
     "32 blocks of a warp: half of the places, 128 bytes in flight each; wanted: larger blocks, more a lane",
     elements=1 << 24, threads=32, grid=1 << 19)  # fmt: skip
exam("chacha_blocks", "compute/alu_pipe compute/issue_slots", "less_alu less_of_pipe fewer_instructions",
     "xor and rotate: 64 of 99 instructions on the ALU at half rate", blocks_per_sm=4, repeats=32)  # fmt: skip
exam("hamming_codes", "compute/xu_pipe", "less_xu less_of_pipe use_tensor_cores",
     "eight population counts a code at an eighth of the rate of others", blocks_per_sm=4, repeats=2)  # fmt: skip
exam("recurrent_step_l2", "memory/l2", "less_l2 need_fewer_bytes",
     "each block reads 4 MiB a step, from another row on; wanted: several sequences a block",
     threads=1024, blocks_per_sm=1, repeats=2)  # fmt: skip
exam("splitk_in_turn", "latency", "less_stall share_awaited_work fewer_fences fewer_barriers",
     "31 of 32 blocks of a tile wait for their turn; wanted: partial results and one sum", elements=1 << 24, grid=640)  # fmt: skip

# fmt: off
torch_exam("cross_entropy_rows", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT} fewer_barriers",
    "Triton: 128 MiB of logits read once, two reductions of a row",
    lambda torch, normal: partial(
        triton("cross_entropy", 2048), normal(2048, 32768), (normal(2048).abs() * 1000).long(),
        torch.empty_like(normal(2048).float()), length=32768, num_warps=16))
torch_exam("dropout_philox", "compute", "less_of_pipe less_fma less_alu fewer_instructions",
    "Triton: forty 32-bit multiplications for each element of 2 bytes",
    lambda torch, normal: partial(
        triton("dropout", 1 << 16), x := normal(1 << 26), torch.empty_like(x), 1234, 0.1, block=1024))
torch_exam("layer_norm_backward", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT} fewer_barriers",
    "Triton: borderline: 192 MiB, four reductions of a row one after the other",
    lambda torch, normal: partial(
        triton("layer_norm_backward", 8192), x := normal(8192, 4096), normal(8192, 4096), normal(4096),
        torch.empty_like(x), length=4096, num_warps=8))
torch_exam("experts_product", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT} copy_by_tma",
    "Triton: 256 MiB of 64 experts' weights for 16 tokens each, three stages",
    lambda torch, normal: partial(
        triton("experts_product", 16, 64), normal(64, 16, 1024), normal(64, 1024, 2048),
        torch.empty_like(normal(64, 16, 2048)), inner=1024, columns=2048, tile=128, num_stages=3))
torch_exam("sampling_softmax_tiny", "launch latency imbalance", "fuse_or_batch larger_launches use_graph",
    "a softmax of 64 rows of 1024: 2 to 3 µs",
    lambda torch, normal: partial(torch.softmax, normal(64, 1024), 1))
torch_exam("decode_bmm", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT}",
    "256 products of a vector and 128 x 4096: 256 MiB read once",
    lambda torch, normal: partial(torch.bmm, normal(256, 1, 128), normal(256, 128, 4096)))
torch_exam("histc_ten_bins", "memory/shared_memory memory/l1_data compute/lsu_pipe latency",
    "aggregate_atomics spread_atomics",
    "32 million values in ten bins of shared memory, most in four",
    lambda torch, normal: partial(torch.histc, normal(1 << 25).float(), 10, -4, 4))
torch_exam("lora_up_rank16", "memory/dram memory/l2 latency", f"{BYTES} at_roof {IN_FLIGHT} less_l2",
    "an inner size of 16: 128 MiB written, half a MiB read",
    lambda torch, normal: partial(torch.mm, normal(8192, 16), normal(16, 8192)))
torch_exam("dgemm_cublas", "compute",
    "single_precision smaller_operands at_roof less_of_pipe close_tensor_gaps fuller_last_wave overlap_mma",
    "2048 x 2048 x 2048 in double precision",
    lambda torch, normal: partial(torch.mm, normal(2048, 2048).double(), normal(2048, 2048).double()))
torch_exam("cat_residuals", "memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT}",
    "two tensors of 64 MiB copied into one",
    lambda torch, normal: partial(torch.cat, [normal(1 << 25), normal(1 << 25)]))
