"""Residual add and RMS normalization: flashinfer.fused_add_rmsnorm, and the two operations that it replaces."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fiprof.workloads.base import BYTES_PER_ELEMENT, Cost, Random, Workload
from fiprof.workloads.rmsnorm import EPSILON, RMSNormParams, rmsnorm_float32

if TYPE_CHECKING:
    from torch import Tensor


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
        element = BYTES_PER_ELEMENT[p.dtype]
        return Cost(
            flops=5 * p.rows * p.hidden,
            bytes_read=(2 * p.rows + 1) * p.hidden * element,
            bytes_written=2 * p.rows * p.hidden * element,
            tokens=p.rows,
        )

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
