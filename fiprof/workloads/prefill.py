"""Batch prefill attention over a paged KV cache: FlashInfer's BatchPrefillWithPagedKVCacheWrapper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.workloads.attention import WORKSPACE_BYTES, AttentionWorkload
from fiprof.workloads.base import dtype_param, param

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

    @property
    def request(self) -> tuple[int, int, bool]:
        return self.params.seq_len, self.params.seq_len, self.params.causal

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
