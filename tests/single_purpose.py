"""Kernels built to be one thing only, to hold ``fiprof verdict`` against on a real GPU.

Each is a workload of ``fiprof collect --workload tests/single_purpose.py:NAME``; ``tests/collect_single_purpose.sh``
collects them all. Nothing but torch is needed: tests/kernels/*.cu are compiled by NVRTC, which torch ships.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fiprof.workloads.base import Cost, Random, Workload, param

if TYPE_CHECKING:
    from torch import Tensor

KERNELS = Path(__file__).parent / "kernels"
FLOAT_BYTES = 4
VECTOR_BYTES = 16
"""A uint4, the widest load."""
MULTIPROCESSORS = 132
"""Those of an H200, for costs: a cost is said without a GPU."""


def compile_kernel(source: str, name: str) -> Callable[..., None]:
    """The CUDA kernel of a source, compiled for the current device: called with grid=, block=, args=."""
    import torch

    kernel: Callable[..., None] = torch.cuda._compile_kernel(source, name)
    return kernel


def multiprocessors(device: str) -> int:
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def parameters(**declared: Any) -> type:
    """A workload's Params: name -> :func:`param`, all integers."""
    return make_dataclass("Params", [(name, int, each) for name, each in declared.items()], frozen=True)


class CudaWorkload(Workload[Any]):
    """A kernel of kernels/single_purpose.cu that has the workload's name."""

    threads: ClassVar[int] = 256
    blocks_per_sm: ClassVar[int] = 1

    def blocks(self, sms: int) -> int:
        """Blocks on a GPU of so many multiprocessors."""
        return self.blocks_per_sm * sms

    @property
    def blocks_here(self) -> int:
        return self.blocks(multiprocessors(self.device))

    def arguments(self) -> "list[Any]":
        """The kernel's; the second is its output."""
        raise NotImplementedError

    def random(self, *shape: int) -> "Tensor":
        """float32 [shape]."""
        return Random(self.device, self.seed).normal(shape, "fp16").float()

    def zeros(self, count: int, dtype: str = "float32") -> "Tensor":
        import torch

        return torch.zeros(count, dtype=getattr(torch, dtype), device=self.device)

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        arguments, blocks = self.arguments(), self.blocks_here
        kernel = compile_kernel((KERNELS / "single_purpose.cu").read_text(), self.name)

        def launch() -> "Sequence[Tensor]":
            kernel(grid=(blocks, 1, 1), block=(self.threads, 1, 1), args=arguments)
            return (arguments[1],)

        return launch


class Matmul(Workload[Any]):
    name, summary = "matmul", "a large fp16 matrix product"
    Params = parameters(size=param(8192, "rows and columns of the square matrices", low=16))

    @functools.cached_property
    def inputs(self) -> "tuple[Tensor, Tensor]":
        """Two matrices [size, size]."""
        random, shape = Random(self.device, self.seed), (self.params.size, self.params.size)
        return random.normal(shape, "fp16"), random.normal(shape, "fp16")

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        import torch

        left, right = self.inputs
        out = torch.empty_like(left)
        return lambda: (torch.mm(left, right, out=out),)

    def cost(self) -> Cost:
        size = self.params.size
        return Cost(flops=2 * size**3, bytes_read=2 * size * size * 2, bytes_written=size * size * 2)

    def reference(self) -> "Sequence[Tensor]":
        left, right = self.inputs
        return (left.float() @ right.float(),)


class Copy(CudaWorkload):
    """A buffer copied to another."""

    @property
    def size_bytes(self) -> int:
        return int(self.params.mebibytes) << 20

    @functools.cached_property
    def source(self) -> "Tensor":
        return Random(self.device, self.seed).normal((self.size_bytes // 2,), "fp16")

    def arguments(self) -> "list[Any]":
        return [self.source, self.source.new_empty(self.source.shape), self.size_bytes // VECTOR_BYTES]

    def cost(self) -> Cost:
        return Cost(flops=0, bytes_read=self.size_bytes, bytes_written=self.size_bytes)

    def reference(self) -> "Sequence[Tensor] | None":
        return (self.source.float(),)


class DeviceCopy(Copy):
    name, summary = "device_copy", "one buffer copied to another by a kernel"
    Params = parameters(mebibytes=param(1024, "size of each buffer", low=1, high=16384))

    def blocks(self, sms: int) -> int:  # noqa: ARG002
        return -(-self.size_bytes // VECTOR_BYTES // 1024)


class L2Copy(Copy):
    name, summary = "l2_copy", "8 MiB copied over and over in one kernel, in L2 after the first time"
    Params = parameters(repeats=param(200, "times that the buffer is copied in one launch", low=1))
    threads, blocks_per_sm = 1024, 2
    size_bytes = 8 << 20

    def arguments(self) -> "list[Any]":
        return [*super().arguments(), self.params.repeats]


class L2Read(L2Copy):
    name, summary = "l2_read", "16 MiB read over and over in one kernel, from L2 after the first time"
    size_bytes = 16 << 20

    def arguments(self) -> "list[Any]":
        sums = self.zeros(self.blocks_here * self.threads, "int32")
        return [self.source, sums, self.size_bytes // VECTOR_BYTES, self.params.repeats]

    def cost(self) -> Cost:
        return Cost(flops=0, bytes_read=self.size_bytes, bytes_written=0)

    def reference(self) -> None:
        """The sums are of no use to anybody."""


class PointerChase(CudaWorkload):
    name, summary = "pointer_chase", "chains of dependent loads, a few on every multiprocessor"
    Params = parameters(
        steps=param(1024, "loads of a chain, each waiting for the one before", low=1),
        warps_per_sm=param(4, "chains on each multiprocessor", low=1, high=32),
    )
    threads = 32
    count = 1 << 26
    """Links of the cycle: 256 MiB, four times the L2 of an H200."""

    def blocks(self, sms: int) -> int:
        return int(self.params.warps_per_sm) * sms

    @functools.cached_property
    def order(self) -> "Tensor":
        """int64 [count]: the places in the order in which the cycle visits them."""
        return Random(self.device, self.seed).permutation(self.count).long()

    def arguments(self) -> "list[Any]":
        following = self.zeros(self.count, "int32")
        following[self.order] = self.order.roll(-1).int()
        return [following, self.zeros(self.blocks_here, "int32"), self.count, self.params.steps]

    def cost(self) -> Cost:
        """One 4-byte link a step."""
        chains = self.blocks(MULTIPROCESSORS)
        return Cost(flops=0, bytes_read=FLOAT_BYTES * self.params.steps * chains, bytes_written=FLOAT_BYTES * chains)

    def reference(self) -> "Sequence[Tensor]":
        import torch

        chains = self.blocks_here
        starts = torch.arange(chains, device=self.device) * self.count // chains
        position = torch.empty_like(self.order)
        position[self.order] = torch.arange(self.count, device=self.device)
        return (self.order[(position[starts] + self.params.steps) % self.count].float(),)


class FmaChain(CudaWorkload):
    """x -> x * scale + shift ends at shift / (1 - scale), whatever x was."""

    name, summary = "fma_chain", "FP32 fused multiply-adds, eight independent ones a thread"
    Params = parameters(rounds=param(32768, "times that a thread does its eight multiply-adds", low=64))
    blocks_per_sm = 8
    scale, shift = 0.5, 0.75

    def rounds(self) -> tuple[int, int]:
        """Of the first block, and of each of the others."""
        return self.params.rounds, self.params.rounds

    def arguments(self) -> "list[Any]":
        out = self.zeros(self.blocks_here * self.threads)
        return [out.new_tensor([self.scale, self.shift]), out, *self.rounds()]

    def cost(self) -> Cost:
        """Two FLOPs a fused multiply-add."""
        blocks, (first, rest) = self.blocks(MULTIPROCESSORS), self.rounds()
        flops = 2 * 8 * self.threads * (first + rest * (blocks - 1))
        return Cost(flops, bytes_read=2 * FLOAT_BYTES, bytes_written=FLOAT_BYTES * self.threads * blocks)

    def reference(self) -> "Sequence[Tensor]":
        return (self.zeros(self.threads * self.blocks_here) + 8 * self.shift / (1 - self.scale),)


class OneBlock(FmaChain):
    name, summary = "one_block", "one block that computes for long"
    threads = 1024

    def blocks(self, sms: int) -> int:
        return min(sms, 1)


class UnevenBlocks(FmaChain):
    name, summary = "uneven_blocks", "blocks for every multiprocessor, the first with 64 times the work"

    def rounds(self) -> tuple[int, int]:
        return self.params.rounds, max(self.params.rounds // 64, 64)


class TinyLaunches(CudaWorkload):
    name, summary = "tiny_launches", "many kernels of about a microsecond each"
    Params = parameters(count=param(100, "kernels an iteration", low=2))
    elements = 1024

    @functools.cached_property
    def values(self) -> "Tensor":
        return self.random(self.elements)

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        values = self.values

        def launch() -> "Sequence[Tensor]":
            for _ in range(self.params.count):
                values.neg_()
            return (values,)

        return launch

    def cost(self) -> Cost:
        size = self.elements * FLOAT_BYTES
        return Cost(flops=self.params.count * self.elements, bytes_read=size, bytes_written=size)

    def reference(self) -> "Sequence[Tensor]":
        return (self.values.clone() if self.params.count % 2 == 0 else -self.values,)


class BankConflicts(CudaWorkload):
    name, summary = "bank_conflicts", "shared-memory loads with 32-way bank conflicts"
    Params = parameters(repeats=param(64, "times that a thread reads its 32 words", low=1))
    blocks_per_sm = 4

    @functools.cached_property
    def values(self) -> "Tensor":
        """float32 [threads, 32]: the words that each thread reads."""
        return self.random(self.threads, 32)

    def arguments(self) -> "list[Any]":
        return [self.values, self.zeros(self.blocks_here * self.threads), self.params.repeats]

    def cost(self) -> Cost:
        """One addition a word."""
        threads = self.threads * self.blocks(MULTIPROCESSORS)
        words = self.threads * 32
        return Cost(threads * 32 * self.params.repeats, words * FLOAT_BYTES, threads * FLOAT_BYTES)

    def reference(self) -> "Sequence[Tensor]":
        return ((self.values.sum(1) * self.params.repeats).repeat(self.blocks_here),)
