"""What is known of each kernel without measuring: its algorithm, its parameters, and where a variant would go.

Read in FlashInfer's sources; no number that a measurement could change stands here. Where the code lies in the
installed version, and what it did on this GPU, the study's results say.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A workload's kernels, in words."""

    title: str
    algorithm: tuple[str, ...]
    """A sentence or two each, in the order in which it happens."""
    parameters: tuple[tuple[str, str], ...]
    """Parameter and what it decides in the kernel."""
    variant: tuple[str, ...]
    """How to add one: steps."""


_ATTENTION_VARIANT = (
    "Subclass the variant struct (LogitsTransform, LogitsMask, and what each thread keeps) and pass its source to the "
    "wrapper as jit_args, which compiles a module of its own under the name that you give; nothing in the library "
    "changes.",
    "Where tiles or pipeline change, edit the kernel's header and its dispatch in a checkout (pip install -e): ninja "
    "compiles on the next call what depends on an edited header. A precompiled flashinfer-jit-cache is taken before "
    "that, so it has to be uninstalled.",
    "Add the parameter to the workload (fiprof/workloads), so that reference, cost and study follow; then compare.",
)

_POINTWISE_VARIANT = (
    "Write the kernel beside the one that it resembles, with its host launcher, and bind it where that one is bound.",
    "In a checkout (pip install -e), the next call compiles what the edit touched; a precompiled flashinfer-jit-cache "
    "is taken before that, so it has to be uninstalled.",
    "Add a workload of one file in fiprof/workloads (setup, cost, reference), or a choice to an existing one.",
)

KNOWN: dict[str, Known] = {
    "prefill": Known(
        "Prefill attention, paged KV cache",
        (
            "plan() runs on the host: it cuts every request's queries (times the query heads that share a KV head, "
            "packed) into tiles, decides whether the KV range is split so that the grid fills the GPU, and writes the "
            "work items for the kernel.",
            "FA2: a block takes one work item and one KV head, keeps its query tile, and walks over KV tiles that "
            "cp.async brings into shared memory; per tile: scores by mma, causal mask on the diagonal tiles only, "
            "online softmax (running maximum and sum, rescaled output), and the product with V by mma.",
            "FA3 (compute capability 9.0): the grid is about as large as the GPU and fetches work items in turn; in a "
            "block one warpgroup loads keys and values while the others compute by wgmma, so that loads, softmax and "
            "matrix products overlap.",
            "Where KV was split, partial results with their log-sum-exp go to the workspace, and a second kernel "
            "merges them.",
        ),
        (
            ("batch", "requests, each with its own tiles: more work items, the same tile"),
            ("seq_len", "queries and keys of a request: causal work grows with its square"),
            ("kv_heads", "how many query heads share keys and values, and so are packed in a query tile"),
            ("backend", "fa2: mma and cp.async; fa3: wgmma, warp-specialised; auto: the library's choice"),
            ("causal", "whether tiles above the diagonal are skipped"),
            ("page_size", "how many tokens are contiguous: what a gathered load can fetch at once"),
            ("head_dim", "the tile's depth: registers and shared memory, and with them occupancy"),
        ),
        _ATTENTION_VARIANT,
    ),
    "decode": Known(
        "Decode attention, paged KV cache",
        (
            "plan() runs on the host: with few requests it splits each KV range into chunks (the smallest that still "
            "fill the GPU, found by binary search), so that a request becomes several work items.",
            "CUDA cores: a block takes one work item and one KV head; threads along head_dim hold the query heads of "
            "the group, keys and values come in by cp.async through a few stages of shared memory, scores are reduced "
            "by shuffles, and the partial softmax states of the block's layers are merged at its end.",
            "Tensor cores: the prefill kernel with the smallest query tile: the group's query heads fill its rows "
            "(padded), so that one load of keys and values serves all of them by mma.",
            "Where KV was split, PersistentVariableLengthMergeStatesKernel merges the chunks' outputs by their "
            "log-sum-exp: a second, short launch in every iteration.",
            "A CUDA graph fixes grid and buffers at capture: the plan pads the work items to the largest grid.",
        ),
        (
            ("batch", "requests: below what fills the GPU, KV is split instead"),
            ("kv_len", "bytes to read: keys and values of each request, once"),
            ("kv_heads", "bytes a token in the cache, and how many query heads share each byte"),
            ("tensor_cores", "which kernel runs: its loads, its occupancy, its arithmetic"),
            ("cuda_graph", "who launches: the host call by call, or the GPU from a recorded graph"),
            ("page_size", "how many tokens are contiguous in the cache"),
        ),
        _ATTENTION_VARIANT,
    ),
    "rmsnorm": Known(
        "RMS normalization",
        (
            "A block takes a row. Threads load vectors of it and sum the squares; warps reduce by shuffles, then the "
            "first warp reduces the warps' sums through shared memory, between two barriers.",
            "A second pass loads the row again (from L1 or L2 by then), multiplies by 1/rms and the weight, and "
            "stores.",
        ),
        (
            ("rows", "blocks: too few of them leave multiprocessors idle"),
            ("hidden", "bytes of a row, and so threads and rounds of a block"),
        ),
        _POINTWISE_VARIANT,
    ),
    "fused_add_rmsnorm": Known(
        "Residual add and RMS normalization, fused",
        (
            "A block takes a row. It loads input and residual, stores their sum as the new residual, keeps it in "
            "shared memory in float32, and reduces the squares as rmsnorm does.",
            "The second pass reads the sum from shared memory, not from global, and stores the normalized row over the "
            "input.",
        ),
        (
            ("rows", "blocks, one a row"),
            (
                "hidden",
                "4 bytes of shared memory an element on top: at large sizes that limits blocks a multiprocessor",
            ),
        ),
        _POINTWISE_VARIANT,
    ),
    "add_then_rmsnorm": Known(
        "Residual add, then RMS normalization: the two operations that fusing replaces",
        (
            "torch adds the input to the residual in one elementwise kernel; FlashInfer's rmsnorm reads the sum again "
            "in a second one.",
        ),
        (("rows", "as for rmsnorm"), ("hidden", "as for rmsnorm")),
        _POINTWISE_VARIANT,
    ),
    "rope": Known(
        "Rotary position embedding",
        (
            "A thread holds a few elements of a head and rotates them against its other half. Queries and keys are "
            "read and written once, in place.",
            "inplace and llama31 compute the angle's sine and cosine in the kernel; cos_sin_cache loads them in "
            "float32 from a table by position.",
            "With many tokens a thread loops over all heads of its token and so uses an angle many times; with few, "
            "the grid is spread over the heads too.",
        ),
        (
            ("tokens", "bytes to move"),
            ("variant", "where the angles come from: special functions, or a table"),
        ),
        _POINTWISE_VARIANT,
    ),
}


def known(workload: str) -> Known | None:
    """None for a workload that this fiprof does not know, e.g. one of the user's own."""
    return KNOWN.get(workload)


def title(workload: str) -> str:
    found = KNOWN.get(workload)
    return found.title if found else f"Workload {workload}"
