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
    streams = 1  # tensors of rows that are read, and written

    @functools.cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """Rows, and a residual where there is one, [rows, hidden]; weight [hidden]."""
        p, random = self.params, Random(self.device, self.seed)
        shapes = [*[(p.rows, p.hidden)] * self.streams, (p.hidden,)]
        return tuple(random.normal(shape, p.dtype) for shape in shapes)

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
        """4 FLOPs an element: square, add, times 1/rms, times weight; 5 with the add of a residual."""
        p = self.params
        row_bytes, rows = p.hidden * BYTES_PER_ELEMENT[p.dtype], self.streams * p.rows
        flops = (3 + self.streams) * p.rows * p.hidden
        return Cost(flops, bytes_read=(rows + 1) * row_bytes, bytes_written=rows * row_bytes, tokens=p.rows)

    def reference(self) -> Sequence[Tensor]:
        rows, weight = self.inputs
        return (rmsnorm_float32(rows.float(), weight),)


class FusedAddRMSNorm(RMSNorm):
    name = "fused_add_rmsnorm"
    summary = "residual add, then RMS normalization, in place (fused_add_rmsnorm)"
    streams = 2

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import flashinfer

        rows, residual, weight = self.inputs

        def launch() -> Sequence[Tensor]:
            flashinfer.fused_add_rmsnorm(rows, residual, weight, EPSILON)
            return rows, residual

        return launch

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
