"""What prefill and decode share: a paged KV cache as a serving engine lays one out, and the float32 reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fiprof.errors import FiprofError
from fiprof.workloads.tensors import Random

if TYPE_CHECKING:
    from torch import Tensor

# FlashInfer's own recommendation for the split-K workspace.
WORKSPACE_BYTES = 128 * 2**20


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


class AttentionParams(Protocol):
    """What the parameters of an attention workload have in common."""

    @property
    def batch(self) -> int: ...
    @property
    def q_heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def page_size(self) -> int: ...
    @property
    def dtype(self) -> str: ...


def attention_inputs(params: AttentionParams, random: Random, *, tokens: int, kv_len: int) -> tuple[Tensor, PagedKV]:
    """Random queries [batch * tokens, q_heads, head_dim], and a KV cache of kv_len tokens a request.

    Its pages are shuffled over the pool, as after hours of serving.
    """
    import torch

    p = params
    query = random.normal((p.batch * tokens, p.q_heads, p.head_dim), p.dtype)
    pages_each = -(-kv_len // p.page_size)
    steps = torch.arange(p.batch + 1, device=random.device, dtype=torch.int32)
    return query, PagedKV(
        cache=random.normal((p.batch * pages_each, 2, p.page_size, p.kv_heads, p.head_dim), p.dtype),
        indptr=steps * pages_each,
        indices=random.permutation(p.batch * pages_each),
        last_page_len=torch.full_like(steps[: p.batch], kv_len - (pages_each - 1) * p.page_size),
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


def check_heads(workload: str, q_heads: int, kv_heads: int) -> None:
    """Raise FiprofError (exit status 2) unless the query heads divide evenly over the KV heads."""
    if q_heads % kv_heads:
        raise FiprofError(
            f"{workload}: {q_heads} query heads do not divide over {kv_heads} KV heads",
            f"--kv-heads takes a divisor of --q-heads, for example {q_heads}",
            exit_code=2,
        )
