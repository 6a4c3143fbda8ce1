"""SwiGLU's activation: flashinfer.silu_and_mul."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.workloads.base import BYTES_PER_ELEMENT, Cost, Random, Workload, dtype_param, param

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SiluAndMulParams:
    rows: int = param(4096, "tokens", low=1)
    hidden: int = param(14336, "elements of an output row; the input's are twice as many", low=8)
    dtype: str = dtype_param()


class SiluAndMul(Workload[SiluAndMulParams]):
    name = "silu_and_mul"
    summary = "SiLU of one half of a row times the other (silu_and_mul)"
    Params = SiluAndMulParams
    imports = ("torch", "flashinfer")

    @functools.cached_property
    def input(self) -> Tensor:
        """Gate and value side by side: [rows, 2 * hidden]."""
        p = self.params
        return Random(self.device, self.seed).normal((p.rows, 2 * p.hidden), p.dtype)

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import flashinfer
        import torch

        p, rows = self.params, self.input
        out = torch.empty((p.rows, p.hidden), dtype=rows.dtype, device=rows.device)

        def launch() -> Sequence[Tensor]:
            flashinfer.silu_and_mul(rows, out=out)
            return (out,)

        return launch

    def cost(self) -> Cost:
        """5 FLOPs an output element: exponential, add, divide, times the gate, times the value."""
        p = self.params
        elements = p.rows * p.hidden
        written = elements * BYTES_PER_ELEMENT[p.dtype]
        return Cost(flops=5 * elements, bytes_read=2 * written, bytes_written=written, tokens=p.rows)

    def reference(self) -> Sequence[Tensor]:
        import torch

        gate, value = self.input.float().chunk(2, dim=-1)
        return (torch.nn.functional.silu(gate) * value,)
