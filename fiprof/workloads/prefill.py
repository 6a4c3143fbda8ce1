"""Batch prefill attention over a paged KV cache: FlashInfer's BatchPrefillWithPagedKVCacheWrapper."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.workloads.attention import (
    WORKSPACE_BYTES,
    AttentionWorkload,
    PagedKV,
    attention_float32,
    attention_inputs,
)
from fiprof.workloads.base import BYTES_PER_ELEMENT, Cost, dtype_param, param
from fiprof.workloads.tensors import Random

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PrefillParams:
    batch: int = param(4, "requests", low=1)
    seq_len: int = param(2048, "prompt tokens of each request", low=1)
    q_heads: int = param(32, "query heads", low=1)
    kv_heads: int = param(8, "key/value heads (fewer than query heads: GQA)", low=1)
    head_dim: int = param(128, "elements of a head", low=1)
    page_size: int = param(16, "tokens in a page of the KV cache", low=1)
    causal: bool = param(True, "mask the future")
    backend: str = param("auto", "FlashInfer's implementation", choices=("auto", "fa2", "fa3"))
    dtype: str = dtype_param()


class Prefill(AttentionWorkload[PrefillParams]):
    name = "prefill"
    summary = "batch prefill attention, paged KV cache (BatchPrefillWithPagedKVCacheWrapper)"
    Params = PrefillParams

    @functools.cached_property
    def inputs(self) -> tuple[Tensor, PagedKV]:
        """Queries [batch * seq_len, q_heads, head_dim] and the KV cache."""
        p = self.params
        return attention_inputs(p, Random(self.device, self.seed), tokens=p.seq_len, kv_len=p.seq_len)

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import torch
        from flashinfer import BatchPrefillWithPagedKVCacheWrapper

        p = self.params
        query, kv = self.inputs
        workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=self.device)
        wrapper = BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend=p.backend)
        starts = torch.arange(p.batch + 1, dtype=torch.int32, device=self.device) * p.seq_len
        self.planned(wrapper, kv, starts, causal=p.causal)
        out = torch.empty_like(query)

        def launch() -> Sequence[Tensor]:
            wrapper.run(query, kv.cache, out=out)
            return (out,)

        return launch

    def cost(self) -> Cost:
        """4 x head_dim FLOPs a (query, key) pair that the mask leaves: Q K^T and P V; softmax not counted."""
        p = self.params
        pairs = p.seq_len * (p.seq_len + 1) // 2 if p.causal else p.seq_len**2
        element = BYTES_PER_ELEMENT[p.dtype]
        query = p.batch * p.seq_len * p.q_heads * p.head_dim * element
        keys_values = 2 * p.batch * p.seq_len * p.kv_heads * p.head_dim * element
        return Cost(
            flops=4 * p.batch * p.q_heads * p.head_dim * pairs,
            bytes_read=query + keys_values,
            bytes_written=query,
            tokens=p.batch * p.seq_len,
        )

    def reference(self) -> Sequence[Tensor]:
        import torch

        p = self.params
        query, kv = self.inputs
        requests = query.view(p.batch, p.seq_len, p.q_heads, p.head_dim)
        results = [attention_float32(q, *kv.dense(i), causal=p.causal) for i, q in enumerate(requests)]
        return (torch.cat(results),)
