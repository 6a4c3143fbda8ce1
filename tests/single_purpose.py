"""Kernels built to be one thing only, to hold ``fiprof verdict`` against on a real GPU.

Each is a workload of ``fiprof collect --workload tests/single_purpose.py:NAME``; ``tests/collect_single_purpose.sh``
collects them all. Nothing but torch is needed: tests/kernels/*.cu are compiled by NVRTC, which torch ships.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


class CudaWorkload(Workload[Any]):
    """A kernel of kernels/single_purpose.cu that has the workload's name."""

    threads: ClassVar[int] = 256

    def blocks(self, sms: int) -> int:
        """Blocks on a GPU of so many multiprocessors."""
        raise NotImplementedError

    def arguments(self) -> "list[Any]":
        """The kernel's; the second is its output."""
        raise NotImplementedError

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        arguments, blocks = self.arguments(), self.blocks(multiprocessors(self.device))
        kernel = compile_kernel((KERNELS / "single_purpose.cu").read_text(), self.name)

        def launch() -> "Sequence[Tensor]":
            kernel(grid=(blocks, 1, 1), block=(self.threads, 1, 1), args=arguments)
            return (arguments[1],)

        return launch


@dataclass(frozen=True)
class MatmulParams:
    size: int = param(8192, "rows and columns of the square matrices", low=16)


class Matmul(Workload[MatmulParams]):
    name = "matmul"
    summary = "a large fp16 matrix product"
    Params = MatmulParams

    @functools.cached_property
    def inputs(self) -> "tuple[Tensor, Tensor]":
        """Two matrices [size, size]."""
        random, shape = Random(self.device, self.seed), (self.params.size, self.params.size)
        return random.normal(shape, "fp16"), random.normal(shape, "fp16")

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        import torch

        left, right = self.inputs
        out = torch.empty_like(left)

        def launch() -> "Sequence[Tensor]":
            torch.mm(left, right, out=out)
            return (out,)

        return launch

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
        raise NotImplementedError

    @functools.cached_property
    def source(self) -> "Tensor":
        return Random(self.device, self.seed).normal((self.size_bytes // 2,), "fp16")

    def arguments(self) -> "list[Any]":
        import torch

        return [self.source, torch.empty_like(self.source), self.size_bytes // VECTOR_BYTES]

    def cost(self) -> Cost:
        return Cost(flops=0, bytes_read=self.size_bytes, bytes_written=self.size_bytes)

    def reference(self) -> "Sequence[Tensor] | None":
        return (self.source.float(),)


@dataclass(frozen=True)
class DeviceCopyParams:
    mebibytes: int = param(1024, "size of each buffer", low=1, high=16384)


class DeviceCopy(Copy):
    name = "device_copy"
    summary = "one buffer copied to another by a kernel"
    Params = DeviceCopyParams

    @property
    def size_bytes(self) -> int:
        return int(self.params.mebibytes) << 20

    def blocks(self, sms: int) -> int:  # noqa: ARG002
        return -(-self.size_bytes // VECTOR_BYTES // 1024)


@dataclass(frozen=True)
class L2Params:
    repeats: int = param(200, "times that the buffer is copied in one launch", low=1)


class L2Copy(Copy):
    name = "l2_copy"
    summary = "8 MiB copied over and over in one kernel, in L2 after the first time"
    Params = L2Params
    threads = 1024
    size_bytes = 8 << 20

    def blocks(self, sms: int) -> int:
        return 2 * sms

    def arguments(self) -> "list[Any]":
        return [*super().arguments(), self.params.repeats]


class L2Read(L2Copy):
    name = "l2_read"
    summary = "16 MiB read over and over in one kernel, from L2 after the first time"
    size_bytes = 16 << 20

    def arguments(self) -> "list[Any]":
        import torch

        count = self.blocks(multiprocessors(self.device)) * self.threads
        sums = torch.zeros(count, dtype=torch.int32, device=self.device)
        return [self.source, sums, self.size_bytes // VECTOR_BYTES, self.params.repeats]

    def cost(self) -> Cost:
        return Cost(flops=0, bytes_read=self.size_bytes, bytes_written=0)

    def reference(self) -> None:
        """The sums are of no use to anybody."""


@dataclass(frozen=True)
class PointerChaseParams:
    steps: int = param(1024, "loads of a chain, each waiting for the one before", low=1)
    warps_per_sm: int = param(4, "chains on each multiprocessor", low=1, high=32)


class PointerChase(CudaWorkload):
    name = "pointer_chase"
    summary = "chains of dependent loads, a few on every multiprocessor"
    Params = PointerChaseParams
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
        import torch

        following = torch.empty(self.count, dtype=torch.int32, device=self.device)
        following[self.order] = self.order.roll(-1).int()
        ends = torch.zeros(self.blocks(multiprocessors(self.device)), dtype=torch.int32, device=self.device)
        return [following, ends, self.count, self.params.steps]

    def cost(self) -> Cost:
        """One 4-byte link a step."""
        chains = self.blocks(MULTIPROCESSORS)
        return Cost(flops=0, bytes_read=FLOAT_BYTES * self.params.steps * chains, bytes_written=FLOAT_BYTES * chains)

    def reference(self) -> "Sequence[Tensor]":
        import torch

        chains = self.blocks(multiprocessors(self.device))
        starts = torch.arange(chains, device=self.device) * self.count // chains
        position = torch.empty_like(self.order)
        position[self.order] = torch.arange(self.count, device=self.device)
        return (self.order[(position[starts] + self.params.steps) % self.count].float(),)


@dataclass(frozen=True)
class RoundsParams:
    rounds: int = param(32768, "times that a thread does its eight multiply-adds", low=64)


class FmaChain(CudaWorkload):
    """x -> x * scale + shift ends at shift / (1 - scale), whatever x was."""

    name = "fma_chain"
    summary = "FP32 fused multiply-adds, eight independent ones a thread"
    Params = RoundsParams
    scale, shift = 0.5, 0.75

    def blocks(self, sms: int) -> int:
        return 8 * sms

    def rounds(self) -> tuple[int, int]:
        """Of the first block, and of each of the others."""
        return self.params.rounds, self.params.rounds

    def arguments(self) -> "list[Any]":
        import torch

        out = torch.zeros(self.blocks(multiprocessors(self.device)) * self.threads, device=self.device)
        return [torch.tensor([self.scale, self.shift], device=self.device), out, *self.rounds()]

    def cost(self) -> Cost:
        """Two FLOPs a fused multiply-add."""
        blocks, (first, rest) = self.blocks(MULTIPROCESSORS), self.rounds()
        return Cost(
            flops=2 * 8 * self.threads * (first + rest * (blocks - 1)),
            bytes_read=2 * FLOAT_BYTES,
            bytes_written=FLOAT_BYTES * self.threads * blocks,
        )

    def reference(self) -> "Sequence[Tensor]":
        import torch

        count = self.threads * self.blocks(multiprocessors(self.device))
        return (torch.full((count,), 8 * self.shift / (1 - self.scale), device=self.device),)


class OneBlock(FmaChain):
    name = "one_block"
    summary = "one block that computes for long"
    threads = 1024

    def blocks(self, sms: int) -> int:
        return min(sms, 1)


class UnevenBlocks(FmaChain):
    name = "uneven_blocks"
    summary = "blocks for every multiprocessor, the first with 64 times the work"

    def rounds(self) -> tuple[int, int]:
        return self.params.rounds, max(self.params.rounds // 64, 64)


@dataclass(frozen=True)
class TinyLaunchesParams:
    count: int = param(100, "kernels an iteration", low=2)


class TinyLaunches(Workload[TinyLaunchesParams]):
    name = "tiny_launches"
    summary = "many kernels of about a microsecond each"
    Params = TinyLaunchesParams
    elements = 1024

    @functools.cached_property
    def values(self) -> "Tensor":
        """float32 [elements]."""
        return Random(self.device, self.seed).normal((self.elements,), "fp16").float()

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


@dataclass(frozen=True)
class BankConflictsParams:
    repeats: int = param(64, "times that a thread reads its 32 words", low=1)


class BankConflicts(CudaWorkload):
    name = "bank_conflicts"
    summary = "shared-memory loads with 32-way bank conflicts"
    Params = BankConflictsParams

    def blocks(self, sms: int) -> int:
        return 4 * sms

    @functools.cached_property
    def values(self) -> "Tensor":
        """float32 [threads, 32]: the words that each thread reads."""
        return Random(self.device, self.seed).normal((self.threads, 32), "fp16").float()

    def arguments(self) -> "list[Any]":
        import torch

        out = torch.zeros(self.blocks(multiprocessors(self.device)) * self.threads, device=self.device)
        return [self.values, out, self.params.repeats]

    def cost(self) -> Cost:
        """One addition a word."""
        threads = self.threads * self.blocks(MULTIPROCESSORS)
        words = self.threads * 32
        return Cost(threads * 32 * self.params.repeats, words * FLOAT_BYTES, threads * FLOAT_BYTES)

    def reference(self) -> "Sequence[Tensor]":
        sums = self.values.sum(1) * self.params.repeats
        return (sums.repeat(self.blocks(multiprocessors(self.device))),)
