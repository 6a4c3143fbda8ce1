"""What others say about FlashInfer's kernels, each with its source; each is tested as it is said."""

from __future__ import annotations

from fiprof.analysis.claims import SAVING_TOLERANCE, Bound, Claim, Growth, Limits, Saving, TimeRatio, around
from fiprof.analysis.study import side
from fiprof.analysis.verdict.model import Kind

NOTES = "public notes on FlashInfer 0.5.3, A100 (9 January 2026)"
"""Three documents of one public repository, whose name is not known here."""
BLOG = "FlashInfer's blog, «Accelerating Self-Attentions for LLM Serving with FlashInfer» (2 February 2024)"

CLAIMS = (
    Claim(
        "prefill-compute-bound",
        "prefill is compute-bound from 1,024 tokens",
        "prefill cases with a sequence of 1,024 or more",
        Bound("prefill", Kind.COMPUTE, (("seq_len", 1024),)),
        f"{NOTES}, «FlashInfer Kernel Development Guide»; {BLOG} says so of long queries, without a number",
        "the roofline of an A100, FA2: intensity against the ridge point, not what its kernels reach",
    ),
    Claim(
        "decode-memory-bound",
        "decode is always memory-bound",
        "every decode case",
        Bound("decode", Kind.MEMORY),
        f"{NOTES}, «FlashInfer Kernel Development Guide»; {BLOG}, which excepts GQA on CUDA cores",
        "the roofline of an A100: 1 to 4 FLOP/byte against a ridge point of 153",
    ),
    Claim(
        "gqa-faster",
        "GQA decodes 1.5x faster",
        "pairs of decode cases with 32 and with 8 KV heads of 32 query heads",
        TimeRatio(
            side("decode", kv_heads=32, q_heads=32),
            side("decode", kv_heads=8, q_heads=32),
            around(1.5),
            "the time of MHA over that of GQA",
        ),
        f"{NOTES}, «FlashInfer Hands-On Learning: Final Report»",
        "tokens/s of GQA 32/8 at batch 32, KV 4,096 over those of MHA at batch 128, KV 2,048: two cases that differ in "
        "batch and KV length too",
    ),
    Claim(
        "fusing-saves-traffic",
        "fusing saves 40% of the traffic",
        "pairs of fused_add_rmsnorm and add_then_rmsnorm cases of one size whose data does not fit in the L2 cache",
        Saving(
            side("fused_add_rmsnorm"),
            side("add_then_rmsnorm"),
            Limits(0.40 - SAVING_TOLERANCE, 0.40 + SAVING_TOLERANCE),
        ),
        f"{NOTES}, «FlashInfer Kernel Development Guide»",
        "bytes counted by hand, 3 passes over the data for 4, which would be 25%",
    ),
    Claim(
        "cos-sin-cache-faster",
        "the cos/sin cache is 5–10% faster",
        "pairs of rope cases with angles computed and with angles from the cache",
        TimeRatio(
            side("rope", variant="inplace"),
            side("rope", variant="cos_sin_cache"),
            Limits(1.05, 1.10),
            "the time without the cache over that with it",
        ),
        f"{NOTES}, «FlashInfer Kernel Analysis Report»",
        "no size; its own times are 21% apart at 512 tokens and 2% at 16,384",
    ),
    Claim(
        "fa3-beats-fa2",
        "FA3 beats FA2",
        "pairs of prefill cases with the backends fa2 and fa3",
        TimeRatio(
            side("prefill", backend="fa2"),
            side("prefill", backend="fa3"),
            Limits(1.0),
            "the time of FA2 over that of FA3",
        ),
        "FlashInfer's blog, «FlashInfer 0.2» (16 December 2024)",
        "prefill on an H100 SXM5, head dimension 128, causal, paged with page size 1 and ragged",
    ),
    Claim(
        "tensor-cores-for-gqa",
        "tensor cores decode faster with GQA",
        "pairs of decode cases with 8 of 32 KV heads, on CUDA cores and on tensor cores",
        TimeRatio(
            side("decode", kv_heads=8, tensor_cores=False),
            side("decode", kv_heads=8, tensor_cores=True),
            Limits(1.0),
            "the time on CUDA cores over that on tensor cores",
        ),
        f"FlashInfer's documentation of BatchDecodeWithPagedKVCacheWrapper, use_tensor_cores; {BLOG}",
        "large groups of query heads, without a number or a size; a group is 4 here",
    ),
    Claim(
        "four-times-the-kv",
        "4x the sequence, 3.8x the time",
        "pairs of decode cases whose KV lengths are 4x apart",
        Growth("decode", "kv_len", 4, around(3.8)),
        "an example in a public template for «Hands-On Learning» reports; no measurement behind it was found",
        "decode, a sequence of 512 to one of 2,048; the batch is not said",
        (("kv_len", 512),),
    ),
)


def claims() -> tuple[Claim, ...]:
    """What others say of the kernels."""
    return CLAIMS


def claim_notes() -> tuple[str]:
    """What to know of the claims' rules; said below them."""
    return (
        "Made after the first data from a GPU had been seen, and not before: that the claim of saved traffic leaves "
        "out what fits in L2, and the rules by which outcomes become a verdict. The limits of the numbers, such as "
        "±10%, are older than the data.",
    )
