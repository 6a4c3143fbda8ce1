"""A model of Llama-3.1-8B's shape with random weights over a paged KV cache: FlashInfer's kernels, torch's products.

request.py and batching.py run it, tensor_parallel.py a rank's share of it. Its ranges: ``plan`` (what the host prepares
for a step) and ``layer N``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flashinfer
import torch
from torch import Tensor
from torch.cuda import nvtx

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCABULARY = 4096, 32, 8, 128, 14336, 128256
PAGE = 16
"""Tokens in a page of the KV cache."""
WORKSPACE_BYTES = 128 << 20
KIND: dict[str, Any] = {"dtype": torch.bfloat16, "device": "cuda"}
INDEX: dict[str, Any] = {"dtype": torch.int32, "device": "cuda"}


@dataclass(frozen=True)
class Part:
    """What one request has in a step: its new tokens, its length with them, the pages that hold it."""

    tokens: list[int]
    length: int
    pages: list[int]


def weights(*shape: int) -> Tensor:
    return torch.empty(*shape, **KIND).normal_(0, 0.02)


class Layer:
    """The weights of a layer, or of one rank's heads and part of the MLP."""

    def __init__(self, ranks: int) -> None:
        self.qkv = weights(HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM // ranks)
        self.output = weights(HEADS * HEAD_DIM // ranks, HIDDEN)
        self.gate_up = weights(HIDDEN, 2 * INTERMEDIATE // ranks)
        self.down = weights(INTERMEDIATE // ranks, HIDDEN)
        self.before_attention, self.before_mlp = torch.ones(2, HIDDEN, **KIND)


class Model:
    """Weights, the KV cache of a number of pages, and the buffers of a step, which stay where they are. Each of several
    ranks has its heads and its part of the MLP; reduce gets what these add to the hidden state, and gives the sum."""

    def __init__(
        self,
        layers: int,
        pages: int,
        most_tokens: int,
        most_requests: int,
        *,
        page: int = PAGE,
        ranks: int = 1,
        reduce: Callable[[Tensor], Tensor] = lambda part: part,
    ) -> None:
        torch.manual_seed(0)
        self.page, self.reduce = page, reduce
        self.heads, self.kv_heads = HEADS // ranks, KV_HEADS // ranks
        self.layers = [Layer(ranks) for _ in range(layers)]
        self.embedding, self.head = weights(VOCABULARY, HIDDEN), weights(HIDDEN, VOCABULARY)
        self.norm = torch.ones(HIDDEN, **KIND)
        self.cache = torch.zeros(layers, pages, 2, page, self.kv_heads, HEAD_DIM, **KIND)
        self.kv_bytes_per_token = self.cache.nbytes // (pages * page)
        nvtx.mark(f"KV cache: kv_bytes_per_token {self.kv_bytes_per_token}")
        self.tokens, self.positions, self.owners = torch.zeros(3, most_tokens, **INDEX)
        self.starts, self.page_starts = torch.zeros(2, most_requests + 1, **INDEX)
        self.page_numbers = torch.zeros(pages, **INDEX)
        self.last_page = torch.zeros(most_requests, **INDEX)
        self.prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(self.workspace())
        self.decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(self.workspace())
        self.graph: torch.cuda.CUDAGraph | None = None
        self.copied_bytes = 0
        """Bytes of the step's tables that this program has sent to the GPU; plan() sends its own besides."""

    @staticmethod
    def workspace() -> Tensor:
        return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    def send(self, buffer: Tensor, values: Sequence[int]) -> Tensor:
        """Copies numbers to the beginning of a buffer on the GPU; gives them as they are on the host."""
        host = torch.tensor(values, dtype=torch.int32)
        buffer[: len(values)].copy_(host.pin_memory(), non_blocking=True)
        self.copied_bytes += host.nbytes
        return host

    def plan(self, parts: Sequence[Part], decoding: bool) -> None:
        """Sends the tables of a step and lets FlashInfer plan its attention."""
        self.send(self.tokens, [token for part in parts for token in part.tokens])
        self.send(self.positions, [at for part in parts for at in range(part.length - len(part.tokens), part.length)])
        self.send(self.owners, [owner for owner, part in enumerate(parts) for _ in part.tokens])
        starts = self.send(self.starts, list(itertools.accumulate((len(part.tokens) for part in parts), initial=0)))
        pages = self.send(self.page_starts, list(itertools.accumulate((len(p.pages) for p in parts), initial=0)))
        numbers = self.send(self.page_numbers, [page for part in parts for page in part.pages])
        last = self.send(self.last_page, [(part.length - 1) % self.page + 1 for part in parts])
        heads = (self.heads, self.kv_heads, HEAD_DIM, self.page)
        kinds = {"q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}
        if decoding:
            self.decode.plan(pages, numbers, last, *heads, **kinds)
        else:
            self.prefill.plan(starts, pages, numbers, last, *heads, causal=True, **kinds)

    def forward(self, tokens: int, requests: int, decoding: bool) -> Tensor:
        """The next token of each request."""
        attention = self.decode if decoding else self.prefill
        positions, owners = self.positions[:tokens], self.owners[:tokens]
        table = (self.page_numbers, self.page_starts[: requests + 1], self.last_page[:requests])
        residual = self.embedding[self.tokens[:tokens]]
        x = torch.zeros_like(residual)
        for number, layer in enumerate(self.layers):
            with nvtx.range(f"layer {number}"):
                flashinfer.fused_add_rmsnorm(x, residual, layer.before_attention)
                heads = (x @ layer.qkv).view(tokens, -1, HEAD_DIM)
                q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
                flashinfer.apply_llama31_rope_pos_ids_inplace(q, k, positions)
                flashinfer.append_paged_kv_cache(k, v, owners, positions, self.cache[number], *table)
                x = self.reduce(attention.run(q, self.cache[number]).view(tokens, -1) @ layer.output)
                flashinfer.fused_add_rmsnorm(x, residual, layer.before_mlp)
                x = self.reduce(flashinfer.silu_and_mul(x @ layer.gate_up) @ layer.down)
        last = self.starts[1 : requests + 1] - 1
        flashinfer.fused_add_rmsnorm(x, residual, self.norm)
        return (x[last] @ self.head).argmax(-1)

    def capture(self, part: Part) -> None:
        """From now on a decode step of one request is the replay of a CUDA graph; this part says what it is captured
        with."""
        buffers = (self.page_starts[:2].clone(), self.page_numbers.clone(), self.last_page[:1].clone())
        names = ("paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer")
        self.decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            self.workspace(), use_cuda_graph=True, **dict(zip(names, buffers, strict=True))
        )
        self.step([part], decoding=True)
        self.plan([part], decoding=True)
        graph = torch.cuda.CUDAGraph()
        with nvtx.range("capture"), torch.cuda.graph(graph):
            self.next_token = self.forward(1, 1, decoding=True)
        self.graph = graph

    def step(self, parts: Sequence[Part], decoding: bool) -> list[int]:
        """One step to its end: plan, forward or replay, and the tokens back on the host."""
        with nvtx.range("plan"):
            self.plan(parts, decoding)
        if decoding and self.graph is not None:
            self.graph.replay()
            found = self.next_token
        else:
            found = self.forward(sum(len(part.tokens) for part in parts), len(parts), decoding)
        return [int(token) for token in found.tolist()]
