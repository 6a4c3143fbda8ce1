"""What others say about FlashInfer's kernels, heard in their documents; each is tested as it is said."""

from __future__ import annotations

from fiprof.analysis.claims import SAVING_TOLERANCE, Bound, Claim, Growth, Limits, Saving, TimeRatio, around
from fiprof.analysis.study import side
from fiprof.analysis.verdict.model import Kind

CLAIMS = (
    Claim(
        "prefill-compute-bound",
        "prefill is compute-bound from 1,024 tokens",
        "prefill cases with a sequence of 1,024 or more",
        Bound("prefill", Kind.COMPUTE, (("seq_len", 1024),)),
    ),
    Claim(
        "decode-memory-bound",
        "decode is always memory-bound",
        "every decode case",
        Bound("decode", Kind.MEMORY),
        always=True,
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
    ),
    Claim(
        "fusing-saves-traffic",
        "fusing saves 40% of the traffic",
        "pairs of fused_add_rmsnorm and add_then_rmsnorm cases of one size whose data does not fit in the L2 cache",
        Saving(side("fused_add_rmsnorm"), side("add_then_rmsnorm"), 0.40 - SAVING_TOLERANCE, 0.40 + SAVING_TOLERANCE),
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
    ),
    Claim(
        "four-times-the-kv",
        "4x the sequence, 3.8x the time (decode)",
        "pairs of decode cases whose KV lengths are 4x apart",
        Growth("decode", "kv_len", 4, around(3.8)),
    ),
    Claim(
        "four-times-the-sequence",
        "4x the sequence, 3.8x the time (prefill)",
        "pairs of prefill cases whose sequences are 4x apart",
        Growth("prefill", "seq_len", 4, around(3.8)),
    ),
)

NOTE = (
    "Two of the rules were made after the first data from a GPU had been seen, and not before: that a claim of a bound "
    "holds in part where a roof of that kind is the lowest and the verdict is another, and that the claim of saved "
    "traffic leaves out what fits in L2. The limits of the numbers, such as ±10%, are older than the data."
)
"""Said below the claims."""
