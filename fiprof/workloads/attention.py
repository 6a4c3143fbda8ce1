"""What prefill and decode share: a paged KV cache as a serving engine lays one out, and the float32 reference."""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fiprof.errors import FiprofError
from fiprof.workloads.base import BYTES_PER_ELEMENT, Cost, Random, Value, Workload, torch_dtype
from fiprof.workloads.nvtx import ranges

if TYPE_CHECKING:
    from torch import Tensor

# FlashInfer's own recommendation for the split-K workspace.
WORKSPACE_BYTES = 128 * 2**20

PLANS = 9  # how often planning is timed
LARGEST_SCORES = 2**24
"""Of the float32 reference, so that they need 64 MB; fewer and larger launches save most of its time."""


class PagedKV(NamedTuple):
    """Keys and values of ``batch`` requests of ``kv_len`` tokens, in shuffled pages (layout NHD)."""

    cache: Tensor  # [pages, 2, page_size, kv_heads, head_dim]: keys, then values
    indptr: Tensor  # int32 [batch + 1]: request i owns indices[indptr[i]:indptr[i + 1]]
    indices: Tensor  # int32 [pages]: page numbers in the order of the tokens
    last_page_len: Tensor  # int32 [batch]: tokens in each request's last page
    kv_len: int

    def dense(self, request: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one request in float32, each [kv_len, kv_heads, head_dim]."""
        first, last = int(self.indptr[request]), int(self.indptr[request + 1])
        pages = self.cache[self.indices[first:last].long()]
        keys = pages[:, 0].flatten(0, 1)[: self.kv_len]
        values = pages[:, 1].flatten(0, 1)[: self.kv_len]
        return keys.float(), values.float()


P = TypeVar("P")


def attention_float32(query: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
    """Grouped-query attention of one request in float32.

    query: [tokens, q_heads, head_dim]; keys, values: float32 [kv_len, kv_heads, head_dim].
    Causal aligns the last query with the last key. Returns float32 [tokens, q_heads, head_dim].
    So many KV heads at a time that their scores stay below LARGEST_SCORES, but at least one.
    """
    import torch

    tokens, q_heads, head_dim = query.shape
    kv_len, kv_heads, _ = keys.shape
    group = q_heads // kv_heads
    grouped = query.unflatten(1, (kv_heads, group))
    out = torch.empty(grouped.shape, device=query.device, dtype=torch.float32)
    hidden = torch.ones((tokens, kv_len), device=query.device, dtype=torch.bool).triu(kv_len - tokens + 1)
    step = max(1, LARGEST_SCORES // (tokens * kv_len * group))
    for first in range(0, kv_heads, step):
        heads = slice(first, first + step)
        scores = torch.einsum("qhgd,khd->hgqk", grouped[:, heads].float(), keys[:, heads]) * head_dim**-0.5
        if causal:
            scores.masked_fill_(hidden, float("-inf"))
        out[:, heads] = torch.einsum("hgqk,khd->qhgd", scores.softmax(-1), values[:, heads])
    return out.flatten(1, 2)


def plan_facts(wrapper: Any, *, multiprocessors: int) -> dict[str, bool | int | float | str]:
    """What FlashInfer's wrapper planned, as far as its version tells; empty where it does not.

    Reads ``_plan_info``, whose length says which planner made it: DecodePlanInfo, PrefillPlanInfo and
    PrefillPlanSM90Info of include/flashinfer/attention/scheduler.cuh (seen in 0.6.13).
    Gives: planner; split_kv, whether a request's KV is split over blocks and merged afterwards; kv_chunk_tokens, into
    parts of how many tokens; work_items, parts of the work a KV head, with those that pad a CUDA graph (fa3: of all
    query heads, or of each with same_schedule_for_all_heads); cta_tile_q, query rows of a block's tile, those of the
    query heads that share a KV head together; blocks and most_work_items_of_a_block, of a persistent kernel (fa3).
    """
    try:
        info = [int(value) for value in wrapper._plan_info]
        buffer = wrapper._pin_memory_int_workspace_buffer

        def split(into_parts: int, offset: int) -> dict[str, bool | int | float | str]:
            return {"split_kv": True, "kv_chunk_tokens": _int32(buffer, offset)} if into_parts else {"split_kv": False}

        if len(info) == 10:
            return {"planner": "decode", "work_items": info[0], **split(info[9], info[7])}
        if len(info) == 15:
            return {"planner": "prefill", "work_items": info[0], "cta_tile_q": info[3], **split(info[14], info[9])}
        if len(info) == 9:
            ends = [_int32(buffer, info[6] + 4 * block) for block in range(multiprocessors + 1)]
            return {
                "planner": "prefill sm90",
                "split_kv": False,
                "work_items": ends[-1],
                "blocks": multiprocessors,
                "most_work_items_of_a_block": max(after - before for before, after in itertools.pairwise(ends)),
                "same_schedule_for_all_heads": bool(info[8]),
            }
    except (AttributeError, TypeError, ValueError, IndexError):
        pass
    return {}


def _int32(buffer: Tensor, offset: int) -> int:
    """The number at a byte offset of the planner's buffer on the host. Raises IndexError beyond its end."""
    content = bytes(buffer[offset : offset + 4].tolist())
    if len(content) < 4:
        raise IndexError(offset)
    return int.from_bytes(content, "little")


class AttentionWorkload(Workload[P]):
    """What prefill and decode have in common. Their ``setup`` keeps the wrapper that planned."""

    imports = ("torch", "flashinfer")
    params: Any
    wrapper: Any = None  # FlashInfer's, once set up
    replan: Callable[[], object]  # plans for the same pages again

    @property
    @abstractmethod
    def request(self) -> tuple[int, int, bool]:
        """Query tokens and KV tokens of a request, and whether the future is masked."""

    @functools.cached_property
    def inputs(self) -> tuple[Tensor, PagedKV]:
        """Random queries [batch * tokens, q_heads, head_dim], and a KV cache of kv_len tokens a request.

        Its pages are shuffled over the pool, as after hours of serving.
        """
        import torch

        p, random = self.params, Random(self.device, self.seed)
        tokens, kv_len, _ = self.request
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

    def cost(self) -> Cost:
        """4 x head_dim FLOPs a (query, key) pair that is not masked: Q K^T and P V; softmax not counted."""
        p = self.params
        tokens, kv_len, causal = self.request
        pairs = tokens * (tokens + 1) // 2 if causal else tokens * kv_len
        element = BYTES_PER_ELEMENT[p.dtype]
        query = p.batch * tokens * p.q_heads * p.head_dim * element
        keys_values = 2 * p.batch * kv_len * p.kv_heads * p.head_dim * element
        flops = 4 * p.batch * p.q_heads * p.head_dim * pairs
        return Cost(flops, bytes_read=query + keys_values, bytes_written=query, tokens=p.batch * tokens)

    def reference(self) -> Sequence[Tensor]:
        import torch

        tokens, _, causal = self.request
        query, kv = self.inputs
        requests = query.unflatten(0, (self.params.batch, tokens))
        return (torch.cat([attention_float32(q, *kv.dense(i), causal=causal) for i, q in enumerate(requests)]),)

    @classmethod
    def check_params(cls, params: Any) -> None:
        q_heads, kv_heads = params.q_heads, params.kv_heads
        if q_heads % kv_heads:
            what = f"{cls.name}: {q_heads} query heads do not divide over {kv_heads} KV heads"
            raise FiprofError(what, f"--kv-heads takes a divisor of --q-heads, for example {q_heads}", exit_code=2)

    def facts(self) -> Mapping[str, Value]:
        """FlashInfer's plan, see :func:`plan_facts`; and what planning costs once its code is loaded, the median of
        PLANS: ``host_us`` until it returns, ``ready_us`` until what it copies is on the GPU too. Each is a range
        ``plan``."""
        import torch

        device = torch.cuda.get_device_properties(self.device)
        facts = plan_facts(self.wrapper, multiprocessors=device.multi_processor_count)
        host_us, ready_us = [], []
        for _ in range(PLANS):
            torch.cuda.synchronize()
            with ranges("plan"):
                begin = time.perf_counter()
                self.replan()
                host_us.append((time.perf_counter() - begin) * 1e6)
            torch.cuda.synchronize()
            ready_us.append((time.perf_counter() - begin) * 1e6)
        return facts | {"host_us": statistics.median(host_us), "ready_us": statistics.median(ready_us)}

    def planned(self, wrapper: Any, kv: PagedKV, *before: Tensor, **options: Any) -> None:
        """Plan for these pages. before: what the wrapper's ``plan`` takes before them; options: after the types."""
        p, dtype = self.params, torch_dtype(self.params.dtype)
        pages = (kv.indptr, kv.indices, kv.last_page_len)
        heads = (p.q_heads, p.kv_heads, p.head_dim, p.page_size)
        self.wrapper = wrapper
        options |= {"q_data_type": dtype, "kv_data_type": dtype}
        self.replan = functools.partial(wrapper.plan, *before, *pages, *heads, **options)
        self.replan()
