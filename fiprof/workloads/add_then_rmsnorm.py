"""Residual add and RMS normalization as two operations: what flashinfer.fused_add_rmsnorm replaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fiprof.workloads.base import Cost
from fiprof.workloads.fused_add_rmsnorm import FusedAddRMSNorm
from fiprof.workloads.rmsnorm import EPSILON

if TYPE_CHECKING:
    from torch import Tensor


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
