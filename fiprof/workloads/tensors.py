"""Seeded tensors and a paged KV cache, as a serving engine lays one out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# FlashInfer's own recommendation for the split-K workspace.
WORKSPACE_BYTES = 128 * 2**20


def torch_dtype(name: str) -> torch.dtype:
    """``fp16`` or ``bf16`` as torch calls it."""
    import torch

    return {"fp16": torch.float16, "bf16": torch.bfloat16}[name]


class Random:
    """Standard normal tensors from one seeded generator."""

    def __init__(self, device: str, seed: int) -> None:
        import torch

        self.device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def normal(self, shape: Sequence[int], dtype: str) -> Tensor:
        import torch

        return torch.randn(tuple(shape), generator=self._generator, device=self.device, dtype=torch_dtype(dtype))

    def permutation(self, count: int) -> Tensor:
        """int32, [count]."""
        import torch

        order = torch.randperm(count, generator=self._generator, device=self.device)
        return order.to(torch.int32)


@dataclass(frozen=True)
class PagedKV:
    """Keys and values of ``batch`` requests of ``kv_len`` tokens, in shuffled pages (layout NHD)."""

    cache: Tensor
    """[pages, 2, page_size, kv_heads, head_dim]: keys, then values."""
    indptr: Tensor
    """int32 [batch + 1]: request i owns indices[indptr[i]:indptr[i + 1]]."""
    indices: Tensor
    """int32 [pages]: page numbers in the order of the tokens."""
    last_page_len: Tensor
    """int32 [batch]: tokens in each request's last page."""
    kv_len: int

    def dense(self, request: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one request in float32, each [kv_len, kv_heads, head_dim]."""
        first, last = int(self.indptr[request]), int(self.indptr[request + 1])
        pages = self.cache[self.indices[first:last].long()]
        keys = pages[:, 0].flatten(0, 1)[: self.kv_len]
        values = pages[:, 1].flatten(0, 1)[: self.kv_len]
        return keys.float(), values.float()


def paged_kv(
    random: Random, *, batch: int, kv_len: int, page_size: int, kv_heads: int, head_dim: int, dtype: str
) -> PagedKV:
    """A random paged KV cache whose pages are shuffled over the pool, as after hours of serving."""
    import torch

    pages_each = -(-kv_len // page_size)
    steps = torch.arange(batch + 1, device=random.device, dtype=torch.int32)
    return PagedKV(
        cache=random.normal((batch * pages_each, 2, page_size, kv_heads, head_dim), dtype),
        indptr=steps * pages_each,
        indices=random.permutation(batch * pages_each),
        last_page_len=torch.full_like(steps[:batch], kv_len - (pages_each - 1) * page_size),
        kv_len=kv_len,
    )


def attention_float32(query: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
    """Grouped-query attention of one request in float32.

    query: [tokens, q_heads, head_dim]; keys, values: float32 [kv_len, kv_heads, head_dim].
    Causal aligns the last query with the last key. Returns float32 [tokens, q_heads, head_dim].
    One KV head at a time, so that memory stays at tokens x kv_len x group x 4 bytes.
    """
    import torch

    tokens, q_heads, head_dim = query.shape
    kv_len, kv_heads, _ = keys.shape
    group = q_heads // kv_heads
    out = torch.empty((tokens, q_heads, head_dim), device=query.device, dtype=torch.float32)
    hidden = torch.ones((tokens, kv_len), device=query.device, dtype=torch.bool).triu(kv_len - tokens + 1)
    for head in range(kv_heads):
        heads = slice(head * group, (head + 1) * group)
        scores = torch.einsum("qgd,kd->gqk", query[:, heads].float(), keys[:, head]) * head_dim**-0.5
        if causal:
            scores.masked_fill_(hidden, float("-inf"))
        out[:, heads] = torch.einsum("gqk,kd->qgd", scores.softmax(-1), values[:, head])
    return out
