"""A kernel that is slowed by a known part: multiply-adds of each of a million numbers, ``slow_pct`` more when slowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiprof.workloads.base import Cost, Workload, param

if TYPE_CHECKING:
    from torch import Tensor

NUMBERS = 1 << 20
CODE = """
template <typename T> T known(T x, int turns) {
    for (int turn = 0; turn < turns; turn++) x = x * T(0.999) + T(0.001);
    return x;
}
"""


@dataclass(frozen=True)
class Params:
    turns: int = param(1000, "multiply-adds of each number", low=1)
    slow_pct: int = param(5, "percent more of them when slowed", low=0)
    slowed: bool = param(False, "with them")


class Known(Workload[Params]):
    """The multiply-adds make the time: 47 µs a thousand on an H200. The compiler does them in groups of a power of two: a
    few more than a multiple of it take longer than their part."""

    name = "known"
    summary = "multiply-adds, slowed by a known part"
    Params = Params

    @property
    def turns(self) -> int:
        return round(self.params.turns * (1 + self.params.slowed * self.params.slow_pct / 100))

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import torch

        kernel = torch.cuda.jiterator._create_jit_fn(CODE, turns=0)
        numbers = torch.rand(NUMBERS, device=self.device, generator=torch.Generator(self.device).manual_seed(self.seed))
        return lambda: (kernel(numbers, turns=self.turns),)

    def cost(self) -> Cost:
        return Cost(2 * self.turns * NUMBERS, 4 * NUMBERS, 4 * NUMBERS)
