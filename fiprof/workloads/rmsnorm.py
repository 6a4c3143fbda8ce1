"""Root-mean-square normalization: flashinfer.rmsnorm; with a residual add as one kernel and as two."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fiprof.workloads.base import BYTES_PER_ELEMENT, Cost, Random, Workload, dtype_param, param

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-6


@dataclass(frozen=True)
class RMSNormParams:
    rows: int = param(4096, "tokens", low=1)
    hidden: int = param(4096, "elements of a row", low=1)
    dtype: str = dtype_param()


class RMSNorm(Workload[RMSNormParams]):
    name = "rmsnorm"
    summary = "root-mean-square normalization of rows (rmsnorm)"
    Params = RMSNormParams
    imports = ("torch", "flashinfer")

    @functools.cached_property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """Rows [rows, hidden] and weight [hidden]."""
        p, random = self.params, Random(self.device, self.seed)
        return random.normal((p.rows, p.hidden), p.dtype), random.normal((p.hidden,), p.dtype)

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import flashinfer
        import torch

        rows, weight = self.inputs
        out = torch.empty_like(rows)

        def launch() -> Sequence[Tensor]:
            flashinfer.rmsnorm(rows, weight, EPSILON, out=out)
            return (out,)

        return launch

    def cost(self) -> Cost:
        """4 FLOPs an element: square, add, times 1/rms, times weight."""
        p = self.params
        row_bytes = p.hidden * BYTES_PER_ELEMENT[p.dtype]
        read, written = (p.rows + 1) * row_bytes, p.rows * row_bytes
        return Cost(flops=4 * p.rows * p.hidden, bytes_read=read, bytes_written=written, tokens=p.rows)

    def reference(self) -> Sequence[Tensor]:
        rows, weight = self.inputs
        return (rmsnorm_float32(rows.float(), weight),)


class FusedAddRMSNorm(Workload[RMSNormParams]):
    name = "fused_add_rmsnorm"
    summary = "residual add, then RMS normalization, in place (fused_add_rmsnorm)"
    Params = RMSNormParams
    imports = ("torch", "flashinfer")

    @functools.cached_property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows and residual [rows, hidden], weight [hidden]."""
        p, random = self.params, Random(self.device, self.seed)
        shape = (p.rows, p.hidden)
        return random.normal(shape, p.dtype), random.normal(shape, p.dtype), random.normal(shape[1:], p.dtype)

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import flashinfer

        rows, residual, weight = self.inputs

        def launch() -> Sequence[Tensor]:
            flashinfer.fused_add_rmsnorm(rows, residual, weight, EPSILON)
            return rows, residual

        return launch

    def cost(self) -> Cost:
        """5 FLOPs an element: the add, then square, add, times 1/rms, times weight."""
        p = self.params
        row_bytes = p.hidden * BYTES_PER_ELEMENT[p.dtype]
        read, written = (2 * p.rows + 1) * row_bytes, 2 * p.rows * row_bytes
        return Cost(flops=5 * p.rows * p.hidden, bytes_read=read, bytes_written=written, tokens=p.rows)

    def reference(self) -> Sequence[Tensor]:
        rows, residual, weight = self.inputs
        total = rows.float() + residual.float()
        return rmsnorm_float32(total, weight), total


class AddThenRMSNorm(FusedAddRMSNorm):
    """Inputs, results and reference of the fused kernel; the sum goes through memory between the two."""

    name = "add_then_rmsnorm"
    summary = "residual add, then RMS normalization, as two kernels (torch's add_, then rmsnorm)"

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import flashinfer

        rows, residual, weight = self.inputs

        def launch() -> Sequence[Tensor]:
            residual.add_(rows)
            flashinfer.rmsnorm(residual, weight, EPSILON, out=rows)
            return rows, residual

        return launch

    def cost(self) -> Cost:
        """The fused kernel's operations; the least bytes of each of the two, so the sum is read once more."""
        fused = super().cost()
        return replace(fused, bytes_read=fused.bytes_read + fused.bytes_written // 2)


def rmsnorm_float32(rows: Tensor, weight: Tensor) -> Tensor:
    """rows / sqrt(mean(rows^2) + epsilon) * weight, in float32. rows: float32 [rows, hidden]."""
    import torch

    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + EPSILON) * weight.float()
