"""The exam: held-out kernels as GPU programmers write them (exam_kernels.py), with the limits and first steps that a good
performance engineer would accept. They were written down before any was run by somebody who had not read the verdict's
rules; corrected since, by the counters alone: gelu_tiny's graph, layer_norm's instructions, half2_poly's reason."""

from collections.abc import Callable
from functools import partial

import pytest

from fiprof.model.run import Run
from tests.recorded_runs import EXAMS, exam, rows, serving
from tests.trouble_kernels import Question, questions

QUESTIONS, SERVING = questions("exam"), questions("serving")
"""Of serving_kernels.py the first two were known to be told otherwise. With the rules as found the limit was right for 18 of
20, the first step for 14; the rules were mended with it in hand. Corrected since, by the counters alone: matmul_naive's
limit (L2 at 90 %), runtime_indices' (issue slots at 34 %), splitk_reduce's host; nearest_code was made to saturate L2."""

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
"""Three exams of 32 kernels each, every one committed with its answers before it ran, by somebody who had not read the
rules. As the rules were found, limit and first step were right for 29 and 25 of unseen on the H100, 30 and 25 on the H200;
for 29 and 28 of fresh on the H100, 30 and 27 on the H200; for 31 and 32 of last on the H100, 31 and 31 on the H200. Each
exam's kernels that were told otherwise mended the rules before the next was run, and the rules of unseen were mended once
more before its recordings were opened: 29 and 28, 30 and 28.

The first step of those that are told another limit or first step than was written down. cluster_neighbours: the GPU
waits for 64 to 72 % of the time between its launches. queens_subtrees: multiprocessors idle for 39 % of the time, most of
it in the last of 1.4 waves. mma_one_stage: a fifth of its shared memory's passes are conflicts. sampling_softmax_tiny: 16
blocks, 4 µs, of which what any launch takes is 43 %. rsa_local: its local memory goes to L2. lbm_d2q9: on the H200 its
DRAM is busy, not saturated."""


@pytest.mark.parametrize(
    ("asked", "recorded"),
    [*((QUESTIONS, partial(exam, "exam", model)) for model in EXAMS["exam"]), (SERVING, serving)],
    ids=[*EXAMS["exam"], "serving"],
)
def test_exam_kernels_are_told_limit_and_first_step(asked: dict[str, Question], recorded: Callable[[], Run]) -> None:
    assert wrong(asked, recorded()) == {}


@pytest.mark.parametrize(("name", "model"), LEFT)
def test_held_out_kernels_are_told_what_was_written_before_they_ran_but_for_these(name: str, model: str) -> None:
    found = wrong(questions(name), exam(name, model))
    assert {kernel: step for kernel, (_, step) in found.items()} == LEFT[name, model]


def wrong(asked: dict[str, Question], run: Run) -> dict[str, tuple[list[str], str]]:
    """The limits and the first step of each kernel that is told another than those that are right."""
    answers = {row["label"]: row for row in sorted(rows("verdict", run.path), key=lambda row: row["duration_us"])}
    assert answers.keys() == asked.keys()
    found = {}
    for name, question in asked.items():
        row = answers[name]
        limits = [f"{limit['kind']}/{limit['part']}" for limit in row["limits"]]
        named = {*limits, *(limit["kind"] for limit in row["limits"])}
        step = row["steps"][0]["id"] if row["steps"] else "none"
        if not named & {*question.limits.split()} or step not in question.first_steps.split():
            found[name] = (limits, step)
    return found
