"""Ways to do the same in FlashInfer, between which a study's times can choose."""

from __future__ import annotations

from fiprof.analysis.study import side
from fiprof.flashinfer.merge import MERGE
from fiprof.reports.study_pages.choices import Choice

ASIDE = (MERGE, "the merge of the split KV")

CHOICES = (
    Choice(
        "decode-tensor-cores",
        "Decode on tensor cores",
        side("decode", tensor_cores=False, cuda_graph=False),
        side("decode", tensor_cores=True, cuda_graph=False),
        "CUDA cores",
        "tensor cores",
        "pass use_tensor_cores=True",
        "leave use_tensor_cores=False",
        by="kv_heads",
        headline=True,
        aside=ASIDE,
    ),
    Choice(
        "prefill-backend",
        "Prefill by FA3",
        side("prefill", backend="fa2"),
        side("prefill", backend="fa3"),
        "FA2",
        "FA3",
        'pass backend="fa3"',
        'pass backend="fa2"',
        by="kv_heads",
        headline=True,
        aside=ASIDE,
    ),
    Choice(
        "decode-heads",
        "GQA for decode",
        side("decode", kv_heads=32, q_heads=32),
        side("decode", kv_heads=8, q_heads=32),
        "MHA 32/32",
        "GQA 32/8",
        "count on it when you choose a model or size a fleet (the head count is the model's: no switch of a server)",
        "expect it the other way round",
        headline=True,
        aside=ASIDE,
    ),
    Choice(
        "norm-fusing",
        "Fusing residual add and RMSNorm",
        side("add_then_rmsnorm"),
        side("fused_add_rmsnorm"),
        "the two operations",
        "the fused kernel",
        "call fused_add_rmsnorm",
        "keep the two operations",
    ),
    Choice(
        "rope-cache",
        "A cos/sin cache for RoPE",
        side("rope", variant="inplace"),
        side("rope", variant="cos_sin_cache"),
        "computed angles",
        "the cache",
        "pass a cos/sin cache",
        "let the kernel compute the angles",
    ),
    Choice(
        "rope-llama31",
        "Llama 3.1's frequency scaling for RoPE",
        side("rope", variant="inplace"),
        side("rope", variant="llama31"),
        "plain RoPE",
        "Llama 3.1's",
        "its time is no reason against it",
        "it costs what the numbers above say",
    ),
)
