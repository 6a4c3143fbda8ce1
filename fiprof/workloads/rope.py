"""Rotary position embedding of queries and keys, in place: flashinfer.apply_rope_inplace and its variants."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.workloads.base import BYTES_PER_ELEMENT, Cost, Random, Workload, dtype_param, param

if TYPE_CHECKING:
    from torch import Tensor

FLOAT_BYTES = 4
INDEX_BYTES = 4

# Llama 3.1's published scaling: factor, theta, low and high frequency factors, trained context (tokens).
LLAMA31_SCALE = 8.0
LLAMA31_THETA = 5e5
LLAMA31_LOW = 1.0
LLAMA31_HIGH = 4.0
LLAMA31_CONTEXT = 8192
THETA = 1e4


@dataclass(frozen=True)
class RopeParams:
    tokens: int = param(16384, "tokens in all", low=1)
    seq_len: int = param(512, "tokens of a request: positions run from 0 below it", low=1)
    q_heads: int = param(32, "query heads", low=1)
    kv_heads: int = param(8, "key heads", low=1)
    head_dim: int = param(128, "elements of a head, all rotated", low=2)
    variant: str = param(
        "inplace",
        "angles computed in the kernel, read from a cos/sin cache, or with Llama 3.1's scaling",
        choices=("inplace", "cos_sin_cache", "llama31"),
    )
    dtype: str = dtype_param()


class Rope(Workload[RopeParams]):
    name = "rope"
    summary = "rotary position embedding of queries and keys, in place (apply_rope_inplace, …)"
    Params = RopeParams
    imports = ("torch", "flashinfer")

    @functools.cached_property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [tokens, q_heads, head_dim], keys [tokens, kv_heads, head_dim], positions int32 [tokens]."""
        import torch

        p, random = self.params, Random(self.device, self.seed)
        positions = torch.arange(p.tokens, device=self.device, dtype=torch.int32) % p.seq_len
        query, key = (random.normal((p.tokens, heads, p.head_dim), p.dtype) for heads in (p.q_heads, p.kv_heads))
        return query, key, positions

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import flashinfer
        import torch

        p = self.params
        query, key, positions = self.inputs
        # Request boundaries; the last request may be shorter.
        starts = torch.arange(0, p.tokens + p.seq_len, p.seq_len, device=self.device, dtype=torch.int32)
        indptr = starts.clamp(max=p.tokens)
        offsets = torch.zeros(len(indptr) - 1, device=self.device, dtype=torch.int32)
        flat_query, flat_key = query.view(p.tokens, -1), key.view(p.tokens, -1)
        cos_sin = self.cos_sin() if p.variant == "cos_sin_cache" else None

        def launch() -> Sequence[Tensor]:
            if p.variant == "cos_sin_cache":
                flashinfer.apply_rope_with_cos_sin_cache_inplace(positions, flat_query, flat_key, p.head_dim, cos_sin)
            elif p.variant == "llama31":
                flashinfer.apply_llama31_rope_inplace(
                    query,
                    key,
                    indptr,
                    offsets,
                    rope_scale=LLAMA31_SCALE,
                    rope_theta=LLAMA31_THETA,
                    low_freq_factor=LLAMA31_LOW,
                    high_freq_factor=LLAMA31_HIGH,
                    old_context_len=LLAMA31_CONTEXT,
                )
            else:
                flashinfer.apply_rope_inplace(query, key, indptr, offsets, rope_theta=THETA)
            return query, key

        return launch

    def cost(self) -> Cost:
        """6 FLOPs a rotated pair (4 multiplies, 2 adds); computing the angles is not counted."""
        p = self.params
        elements = p.tokens * (p.q_heads + p.kv_heads) * p.head_dim
        moved, angles = elements * BYTES_PER_ELEMENT[p.dtype], 0
        if p.variant == "cos_sin_cache":
            angles = p.tokens * INDEX_BYTES + min(p.seq_len, p.tokens) * p.head_dim * FLOAT_BYTES
        return Cost(flops=3 * elements, bytes_read=moved + angles, bytes_written=moved, tokens=p.tokens)

    def frequencies(self) -> Tensor:
        """Radians a token of each rotated pair, float32 [head_dim / 2].

        theta^(-2i/head_dim); Llama 3.1 divides those slower than its trained context by the factor and blends
        between (Llama 3.1's published ``apply_scaling``).
        """
        import torch

        p = self.params
        theta = LLAMA31_THETA if p.variant == "llama31" else THETA
        steps = torch.arange(0, p.head_dim, 2, device=self.device, dtype=torch.float64)
        plain = theta ** (-steps / p.head_dim)
        if p.variant != "llama31":
            return plain.float()
        turns = LLAMA31_CONTEXT * plain / (2 * math.pi)
        keep = ((turns - LLAMA31_LOW) / (LLAMA31_HIGH - LLAMA31_LOW)).clamp(0, 1)
        return ((1 - keep) * plain / LLAMA31_SCALE + keep * plain).float()

    def cos_sin(self) -> Tensor:
        """The cache that serving engines keep: float32 [seq_len, head_dim], cosines then sines."""
        import torch

        positions = torch.arange(self.params.seq_len, device=self.device, dtype=torch.float32)
        angles = positions[:, None] * self.frequencies()
        return torch.cat([angles.cos(), angles.sin()], dim=-1)

    def reference(self) -> Sequence[Tensor]:
        import torch

        query, key, positions = self.inputs
        angles = (positions.double()[:, None] * self.frequencies().double()).float()[:, None]
        cos, sin = angles.cos(), angles.sin()
        # The first half of each head against the second.
        halves = (heads.float().chunk(2, dim=-1) for heads in (query, key))
        return tuple(torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1) for one, two in halves)
