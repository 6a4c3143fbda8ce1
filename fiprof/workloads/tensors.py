"""Seeded random tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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
