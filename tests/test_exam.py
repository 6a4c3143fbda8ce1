"""The exam: held-out kernels as GPU programmers write them (exam_kernels.py), with the limits and first steps that a good
performance engineer would accept. They were written down before any was run by somebody who had not read the verdict's
rules; corrected since, by the counters alone: gelu_tiny's graph, layer_norm's instructions, half2_poly's reason."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest

from fiprof.model.run import Run
from tests import fresh_kernels, last_kernels, unseen_kernels
from tests.recorded_runs import EXAMS, exam, rows, serving


class Question(NamedTuple):
    """limits, first_steps: words of which any is right; a kind alone takes any part, and of a pair either may be
    meant. why: what was built in."""

    limits: str
    first_steps: str
    why: str


IN_FLIGHT = "more_loads more_warps less_stall fill_wave"
WORK_LESS = "fewer_instructions less_wasted_work"
BYTES = "need_fewer_bytes move_fewer_bytes"

QUESTIONS = {
    "texture_blur": Question("compute/tex_pipe memory/texture", "less_of_pipe",
        "25 filtered fetches a pixel, nearly all hits"),
    "aos_update": Question("memory/dram", f"neighbouring_access {BYTES}", "whole sectors move for 8 of 64 bytes"),
    "transpose_naive": Question("memory/l2 memory/l1_data memory/dram latency", "neighbouring_access", "32 sectors a store"),
    "transpose_conflicts": Question("memory/shared_memory memory/l1_data", "no_bank_conflicts",
        "a column of an unpadded tile lies in one bank"),
    "histogram_hot_bin": Question("memory/shared_memory memory/l1_data compute/lsu_pipe latency",
        "aggregate_atomics spread_atomics", "lanes queue for one word of shared memory"),
    "tree_reduction": Question("compute/issue_slots compute/alu_pipe compute/adu_pipe latency",
        f"fewer_barriers whole_warps same_path {WORK_LESS}", "eight steps with a barrier and ever fewer threads at work"),
    "spmv_rows": Question("latency memory/l2 memory/l1_data memory/dram", "neighbouring_access", "64 bytes between lanes, and gathers"),
    "sgemm_tile": Question("memory/shared_memory memory/l1_data compute/lsu_pipe",
        "fewer_shared_passes use_tensor_cores", "more than one shared load for each multiply-add"),
    "mma_conflicts": Question("memory/shared_memory memory/l1_data", "no_bank_conflicts",
        "8-way conflicts starve the tensor cores"),
    "polynomial_hash": Question("compute/fma_heavy_pipe compute/fma_pipe",
        f"less_fma less_of_pipe {WORK_LESS}", "integer multiply-adds: the FMA pipe's heavy half alone"),
    "black_scholes": Question("compute/xu_pipe compute/issue_slots compute/fma_pipe compute/alu_pipe",
        f"less_xu less_fma less_alu {WORK_LESS}", "borderline: logarithm, exponentials and 60 multiply-adds"),
    "half2_poly": Question("compute/issue_slots compute/fma_pipe compute/fma_heavy_pipe",
        f"less_fma less_of_pipe use_tensor_cores {WORK_LESS}", "packed multiply-adds, at half rate: issue slots at 54 %"),
    "dp4a_rows": Question("compute/fma_heavy_pipe compute/fma_pipe",
        f"less_fma less_of_pipe use_tensor_cores {WORK_LESS}", "dp4a runs in the FMA pipe's heavy half"),
    "mandelbrot": Question("compute/issue_slots compute/fma_pipe compute/alu_pipe latency", "same_path",
        "half of the lanes have left the loop"),
    "invert_matrices": Question("memory/l1_data memory/l2 memory/dram latency", "constant_indices fewer_spills",
        "a pivot's row known at run time alone: local memory"),
    "nbody_tail": Question("imbalance/tail", "fuller_last_wave", "264 blocks at once, then 26"),
    "uneven_rows": Question("imbalance", "even_work", "the first block has a seventh of the work"),
    "uber_kernel": Question("latency", "smaller_code", "warps in 16 pieces of 16 KB: instruction cache misses"),
    "warp_sums": Question("compute/lsu_pipe memory/shared_memory memory/l1_data compute/mio memory/mio", "fewer_shuffles less_of_pipe",
        "five shuffles a value, nothing in shared memory"),
    "block_scan": Question("latency compute/adu_pipe compute/issue_slots memory/shared_memory compute/lsu_pipe",
        "fewer_barriers", "borderline: twenty barriers of 1024 threads"),
    "voxel_lookup": Question("memory/l2 memory/l1_data latency", "neighbouring_access", "32 sectors a load, from L2"),
    "conv_l1": Question("memory/l1_data compute/lsu_pipe compute/issue_slots", "fewer_l1_passes",
        "two L1 loads for each multiply-add"),
    "scaled_sum": Question("latency memory/dram", IN_FLIGHT, "borderline: 10 kB in flight a multiprocessor"),
    "scaled_sum_more": Question("latency memory/dram", IN_FLIGHT, "borderline: 14 kB in flight a multiprocessor"),
    "horner_few_warps": Question("latency compute/fma_pipe compute/issue_slots", "less_stall more_warps fill_wave",
        "borderline: 2.5 warps a scheduler, each with an instruction in 4 cycles"),
    "gelu_big": Question("memory/dram compute/issue_slots compute/alu_pipe compute/fma_pipe latency",
        f"{BYTES} {IN_FLIGHT} {WORK_LESS}", "borderline: DRAM and issue slots are busy alike"),
    "gelu_tiny": Question("launch latency imbalance", "fuse_or_batch larger_launches use_graph", "128 KB: 2 to 3 µs"),
    "residual_add": Question("memory/dram", f"{BYTES} at_roof", "streams 384 MiB"),
    "layer_norm": Question("memory/dram latency compute/issue_slots", f"{BYTES} {IN_FLIGHT} {WORK_LESS}",
        "borderline: 128 MiB with a reduction between; issue slots as busy as DRAM"),
    "gemm_bf16": Question("compute/tensor_cores", "smaller_operands fuller_last_wave at_roof close_tensor_gaps",
        "cuBLAS's wgmma"),
    "skinny_linear": Question("memory/dram", f"{BYTES} more_loads at_roof", "268 MB of weights for eight tokens"),
    "cumsum_rows": Question("imbalance/too_few_blocks", "more_blocks", "16 rows, 16 blocks"),
    "softmax_three_passes": Question("memory/dram memory/l2 latency", f"{BYTES} {IN_FLIGHT}",
        "borderline: reads each row three times"),
    "histogram_global": Question("latency memory/l2", "aggregate_atomics spread_atomics", "4 million atomics, 64 words"),
    "matmul_unpipelined": Question("latency", f"overlap_wgmma overlap_mma copy_by_tma {IN_FLIGHT}",
        "loads and tensor cores take turns: 88 % of the stalls are for loads"),
}  # fmt: skip
"""Workload -> what is right of its longest launch."""


SERVING = {
    "int8_gemv_bytes": Question("latency memory/dram memory/l1_data compute", "more_loads fewer_accesses fewer_l1_passes",
        "a byte a lane: 32 useful bytes a request and a conversion each; wanted: wider loads"),
    "nearest_code": Question("memory/l2", "less_l2", "L2 while the SMs work; the last wave is a third full"),
    "rope_powers": Question("compute", f"less_xu less_fma less_alu less_of_pipe {WORK_LESS}",
        "a power, a sine and a cosine for 8 bytes"),
    "rmsnorm_few_rows": Question("launch latency imbalance", "fuse_or_batch more_blocks larger_launches use_graph",
        "8 blocks, a few microseconds"),
    "candidates": Question("latency memory/l2 memory/l2_atomics", "aggregate_atomics spread_atomics",
        "5 million atomics on two words"),
    "kv_append_strided": Question("memory latency", "neighbouring_access", "a sector for each 2 bytes written"),
    "paged_gather_halves": Question("latency memory/dram memory/l1_data compute", f"{IN_FLIGHT} fewer_accesses {WORK_LESS}",
        "borderline: 64 bytes a request behind another load; wanted: wider loads, more of them"),
    "embedding_gather": Question("memory/dram", f"{BYTES} at_roof", "16 KB rows, 16 bytes a lane"),
    "splitk_reduce": Question("memory/dram launch", f"{BYTES} at_roof use_graph",
        "16 independent streams a thread, 34 µs; recorded where the GPU waits for the host for 61 %"),
    "int4_gemv_alu": Question("compute", f"less_xu less_alu less_fma less_of_pipe packed_halves {WORK_LESS}",
        "eight shifts, masks, conversions and additions a word"),
    "softmax_rows": Question("memory/dram latency compute", f"{BYTES} at_roof {IN_FLIGHT} {WORK_LESS} fewer_barriers fewer_shuffles",
        "borderline: one pass over DRAM, two reductions"),
    "histogram_one_bank": Question("memory/shared_memory memory/l1_data compute/lsu_pipe latency", "no_bank_conflicts",
        "64 counters in one bank"),
    "transpose_padded": Question("memory/dram latency", f"{BYTES} at_roof {IN_FLIGHT}", "128 MiB, nothing left to mend"),
    "matmul_naive": Question("memory/l2", "less_l2 use_tensor_cores", "blocks beside each other share no columns in L1"),
    "tail_of_a_wave": Question("imbalance/tail", "fuller_last_wave", "264 blocks at once, then 13"),
    "grid_barriers": Question("latency memory/l2", "fewer_fences fewer_barriers less_stall share_awaited_work",
        "every step waits for every block; wanted: fewer steps with a barrier"),
    "spilled_tile": Question("memory latency compute/lsu_pipe", "fewer_spills", "96 live sums, 64 registers"),
    "divergent_formats": Question("compute latency", "same_path", "eight branches one after the other"),
    "runtime_indices": Question("latency", IN_FLIGHT, "one load of 4 bytes a thread, behind six divisions"),
    "residual_tiny": Question("launch latency imbalance", "fuse_or_batch larger_launches use_graph", "2 µs"),
}  # fmt: skip
"""serving_kernels.py likewise: written before any ran, the first two known to be told otherwise. With the rules as found
the limit was right for 18 of 20, the first step for 14; the rules were mended with it in hand. Corrected since, by the
counters alone: matmul_naive's limit (L2 at 90 %), runtime_indices' (issue slots at 34 %), splitk_reduce's host;
nearest_code was made to saturate L2."""


HELD_OUT = {"unseen": unseen_kernels.ANSWERS, "fresh": fresh_kernels.ANSWERS, "last": last_kernels.ANSWERS}
"""Three exams of 32 kernels each, every one committed with its answers before it ran, by somebody who had not read the
rules. As the rules were found, limit and first step were right for 29 and 25 of unseen on the H100, 30 and 25 on the H200;
for 29 and 28 of fresh on the H100, 30 and 27 on the H200; for 31 and 32 of last on the H100, 31 and 31 on the H200. Each
exam's kernels that were told otherwise mended the rules before the next was run, and the rules of unseen were mended once more before its
recordings were opened: 29 and 28, 30 and 28."""

LEFT = {
    ("unseen", "H100"): {"cluster_neighbours": "use_graph"},
    ("unseen", "H200"): {"cluster_neighbours": "use_graph"},
    ("fresh", "H100"): {"queens_subtrees": "fuller_last_wave", "mma_one_stage": "no_bank_conflicts"},
    ("fresh", "H200"): {
        "queens_subtrees": "fuller_last_wave",
        "mma_one_stage": "no_bank_conflicts",
        "sampling_softmax_tiny": "more_blocks",
    },
    ("last", "H100"): {"rsa_local": "constant_indices"},
    ("last", "H200"): {"rsa_local": "constant_indices", "lbm_d2q9": "more_loads"},
}
"""The first step of those that are told another limit or first step than was written down. cluster_neighbours: the GPU
waits for 64 to 72 % of the time between its launches. queens_subtrees: multiprocessors idle for 39 % of the time, most of
it in the last of 1.4 waves. mma_one_stage: a fifth of its shared memory's passes are conflicts. sampling_softmax_tiny: 16
blocks, 4 µs, of which what any launch takes is 43 %. rsa_local: its local memory goes to L2. lbm_d2q9: on the H200 its DRAM is busy, not
saturated."""


@pytest.mark.parametrize(
    ("questions", "recorded"),
    [*((QUESTIONS, partial(exam, "exam", model)) for model in EXAMS["exam"]), (SERVING, serving)],
    ids=[*EXAMS["exam"], "serving"],
)
def test_exam_kernels_are_told_their_limit_and_a_right_first_step(
    questions: dict[str, Question], recorded: Callable[[], Run]
) -> None:
    assert wrong(questions, recorded()) == {}


@pytest.mark.parametrize(("name", "model"), LEFT)
def test_held_out_kernels_are_told_what_was_written_before_they_ran_but_for_these(name: str, model: str) -> None:
    questions = {kernel: Question(*answer) for kernel, answer in HELD_OUT[name].items()}
    assert {kernel: step for kernel, (_, step) in wrong(questions, exam(name, model)).items()} == LEFT[name, model]


def wrong(questions: dict[str, Question], run: Run) -> dict[str, tuple[list[str], str]]:
    """The limits and the first step of each kernel that is told another than those that are right."""
    answers = {row["label"]: row for row in sorted(rows("verdict", run.path), key=lambda row: row["duration_us"])}
    assert answers.keys() == questions.keys()
    found = {}
    for name, question in questions.items():
        row = answers[name]
        limits = [f"{limit['kind']}/{limit['part']}" for limit in row["limits"]]
        named = {*limits, *(limit["kind"] for limit in row["limits"])}
        step = row["steps"][0]["id"] if row["steps"] else "none"
        if not named & {*question.limits.split()} or step not in question.first_steps.split():
            found[name] = (limits, step)
    return found
