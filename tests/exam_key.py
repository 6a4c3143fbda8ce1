"""The exam: kernels as GPU programmers write them (exam_kernels.py), with the limit and the first steps that are right."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """What a good performance engineer would accept of a kernel.

    limits: kinds, or kind/part; a kind alone takes any part. first_steps: in words. why: one line.
    """

    limits: tuple[str, ...]
    first_steps: tuple[str, ...]
    why: str


POSITION = ("access neighbouring words from neighbouring threads",)
COMPUTE_LESS = ("fewer instructions", "less work in the busiest unit")
MORE_WARPS = ("more independent instructions or loads in flight", "more warps", "less of the main stall")
IN_FLIGHT = ("more bytes in flight", *MORE_WARPS)

QUESTIONS = {
    "texture_blur": Question(
        ("compute/tex_pipe", "memory/texture", "memory/l1_data", "memory/l1_tags"),
        ("fewer fetches: share them in registers or shared memory", "fewer L1 passes"),
        "25 filtered fetches a pixel, all hits: the texture unit's rate",
    ),
    "aos_update": Question(
        ("memory/dram",),
        ("structure of arrays", *POSITION, "fewer bytes"),
        "moves whole sectors for 8 of 64 bytes; DRAM is as busy as it gets",
    ),
    "transpose_naive": Question(
        ("memory/l2", "memory/l1_data", "memory/l1_tags", "memory/dram", "latency"),
        (*POSITION, "transpose through shared memory"),
        "each store of a warp touches 32 sectors",
    ),
    "transpose_conflicts": Question(
        ("memory/shared_memory", "memory/l1_data"),
        ("pad or swizzle the tile: no bank conflicts",),
        "the column of an unpadded tile lies in one bank: 32 passes a load",
    ),
    "histogram_hot_bin": Question(
        ("memory/shared_memory", "memory/l1_data", "compute/lsu_pipe", "latency"),
        ("several copies of the bins", "add up in the warp or thread first"),
        "lanes queue for one word of shared memory",
    ),
    "tree_reduction": Question(
        ("compute/issue_slots", "compute/alu_pipe", "compute/adu_pipe", "latency"),
        ("fewer barriers: shuffles", "whole warps: no divergence", "more elements a thread", "fewer instructions"),
        "borderline: eight steps with a barrier, ever fewer working threads, and a modulo",
    ),
    "spmv_rows": Question(
        ("latency", "memory/l2", "memory/l1_data", "memory/l1_tags", "memory/dram"),
        (*POSITION, "a warp a row"),
        "values at a stride of 64 bytes, and random gathers from 64 MiB",
    ),
    "sgemm_tile": Question(
        ("memory/shared_memory", "memory/l1_data", "compute/lsu_pipe"),
        ("several results a thread: fewer shared loads a multiply-add", "tensor cores"),
        "one or two shared loads for each multiply-add",
    ),
    "mma_conflicts": Question(
        ("memory/shared_memory", "memory/l1_data"),
        ("pad or swizzle: no bank conflicts", "ldmatrix"),
        "rows of 128 bytes: 8-way conflicts starve the tensor cores",
    ),
    "polynomial_hash": Question(
        ("compute/fma_heavy_pipe", "compute/fma_pipe", "compute/imad"),
        COMPUTE_LESS,
        "32-bit multiply-adds run at half rate in the heavy half of the FMA pipe",
    ),
    "black_scholes": Question(
        ("compute/xu_pipe", "compute/issue_slots", "compute/fma_pipe", "compute/alu_pipe"),
        COMPUTE_LESS,
        "borderline: logarithm, exponentials, root, divisions against some 60 multiply-adds",
    ),
    "half2_poly": Question(
        ("compute/issue_slots", "compute/fma_pipe", "compute/fp16_pipe"),
        (*COMPUTE_LESS, "tensor cores"),
        "a packed multiply-add each cycle: pipe and issue slots fill together",
    ),
    "dp4a_rows": Question(
        ("compute/fma_heavy_pipe", "compute/fma_pipe", "compute/imad", "compute/alu_pipe"),
        (*COMPUTE_LESS, "tensor cores"),
        "dp4a at its rate, in whichever pipe it runs; int8 tensor cores do 16 times as much",
    ),
    "mandelbrot": Question(
        ("compute/issue_slots", "compute/fma_pipe", "compute/alu_pipe", "latency", "imbalance"),
        ("lanes of a warp with like work: less divergence",),
        "few lanes of a warp are still in the loop",
    ),
    "invert_matrices": Question(
        ("memory/l1_data", "memory/l2", "memory/dram", "latency"),
        ("registers or shared memory instead of local: constant indices", "fewer spills"),
        "a matrix of 576 bytes a thread with a pivot found at run time is local memory",
    ),
    "nbody_tail": Question(
        ("imbalance/tail",),
        ("fill the last wave: smaller blocks, another grid",),
        "264 equal blocks run together, the other 26 after them",
    ),
    "uneven_rows": Question(
        ("imbalance",),
        ("even work: split the long rows",),
        "the first block has a seventh of all the work",
    ),
    "uber_kernel": Question(
        ("latency",),
        ("smaller code", "warps of a multiprocessor in the same code"),
        "16 pieces of 16 KB, each warp in another: instruction cache misses",
    ),
    "warp_sums": Question(
        ("compute/lsu_pipe", "memory/shared_memory", "memory/l1_data"),
        ("fewer shuffles: add up in the lane first", "fewer LSU instructions"),
        "five shuffles a value, one a cycle and multiprocessor",
    ),
    "block_scan": Question(
        ("latency", "compute/adu_pipe", "compute/issue_slots", "memory/shared_memory", "compute/lsu_pipe"),
        ("fewer barriers: shuffles in the warp, one barrier for the block",),
        "borderline: twenty barriers of 1024 threads",
    ),
    "voxel_lookup": Question(
        ("memory/l2", "memory/l1_data", "memory/l1_tags", "latency"),
        (*POSITION, "better locality"),
        "32 sectors of 4 used bytes a load, from L2",
    ),
    "conv_l1": Question(
        ("memory/l1_data", "compute/lsu_pipe", "compute/issue_slots"),
        ("fewer L1 passes: keep the line in registers or shared memory", "wider loads"),
        "two L1 loads for each multiply-add",
    ),
    "scaled_sum": Question(
        ("latency", "memory/dram"),
        IN_FLIGHT,
        "borderline: ten kB in flight a multiprocessor are about 60 % of an H100's DRAM",
    ),
    "scaled_sum_more": Question(
        ("latency", "memory/dram"),
        IN_FLIGHT,
        "borderline: 14 kB in flight a multiprocessor are about 60 % of an H200's DRAM",
    ),
    "horner_few_warps": Question(
        ("latency", "compute/fma_pipe", "compute/issue_slots"),
        MORE_WARPS,
        "borderline: two or three warps a scheduler, one instruction in four cycles each: 62 % of the issue slots",
    ),
    "gelu_big": Question(
        ("memory/dram", "compute/issue_slots", "compute/alu_pipe", "compute/fma_pipe", "latency"),
        ("fewer instructions", "fewer bytes", *IN_FLIGHT),
        "borderline: DRAM and issue slots are busy alike",
    ),
    "gelu_tiny": Question(
        ("launch", "latency", "imbalance"),
        ("fuse with the neighbours", "batch: more work a launch"),
        "128 KB: two microseconds of launch and ramp",
    ),
    "residual_add": Question(
        ("memory/dram",),
        ("fuse with the neighbours: fewer bytes", "fewer bytes", "nothing: at the roof"),
        "streams 384 MiB",
    ),
    "layer_norm": Question(
        ("memory/dram", "latency", "compute/issue_slots"),
        (*IN_FLIGHT, "fewer bytes: fuse"),
        "borderline: one read and one write of 64 MiB, with a reduction between",
    ),
    "gemm_bf16": Question(
        ("compute/tensor_cores",),
        ("a smaller number format: fp8", "less work", "nothing: near the roof", "fuller last wave"),
        "cuBLAS's wgmma, 137 GFLOP",
    ),
    "skinny_linear": Question(
        ("memory/dram",),
        ("fewer bytes: smaller weights", "more tokens a pass", "more bytes in flight"),
        "268 MB of weights for eight tokens",
    ),
    "cumsum_rows": Question(
        ("imbalance/too_few_blocks",),
        ("more blocks: split the rows",),
        "16 rows are a few blocks",
    ),
    "softmax_three_passes": Question(
        ("memory/dram", "memory/l2", "latency"),
        ("fewer passes: keep the row on the chip", "fewer bytes", *IN_FLIGHT),
        "borderline: reads each row three times, twice from L2 or DRAM",
    ),
    "histogram_global": Question(
        ("latency", "memory/l2"),
        ("bins in shared memory or registers first: aggregate the atomics",),
        "four million atomics on 64 words",
    ),
    "matmul_unpipelined": Question(
        ("latency",),
        ("loads ahead of the product: pipelining, asynchronous copies", "larger tiles", *MORE_WARPS),
        "loads and tensor cores take turns",
    ),
}
