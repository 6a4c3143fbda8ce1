"""Kernels built to be one thing only, to hold ``fiprof verdict`` against on a real GPU.

Each is a workload of ``fiprof collect --workload tests/single_purpose.py:NAME``; ``tests/collect_single_purpose.sh``
collects them all. Nothing but torch is needed: the CUDA kernels are compiled by NVRTC, which torch ships.

matmul          fp16 8192 x 8192 x 8192 by cuBLAS: bound by the tensor cores
device_copy     1 GiB from one buffer to another by a kernel: bound by DRAM
l2_copy         8 MiB to another 8 MiB, over and over in one kernel, past L1: bound by L2
l2_read         16 MiB read over and over in one kernel, past L1: bound by L2
pointer_chase   four warps an SM, each on its own chain of dependent loads through 256 MiB: bound by latency
one_block       one block that computes for long: 131 of 132 SMs have nothing to do, imbalanced
uneven_blocks   every SM has the same number of blocks, one block has 64 times the work: imbalanced
tiny_launches   a hundred kernels of about a microsecond an iteration: bound by the launches
bank_conflicts  shared-memory loads whose 32 lanes hit one bank: bound by shared memory
fma_chain       FP32 fused multiply-adds, eight independent ones a thread: bound by the FMA pipe
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fiprof.workloads.base import Cost, Random, Workload, param

if TYPE_CHECKING:
    from torch import Tensor

WARP = 32
FLOAT_BYTES = 4
VECTOR_BYTES = 16
"""Of a uint4, the widest load."""

DEVICE_COPY = r"""
extern "C" __global__ void __launch_bounds__(256) device_copy(const uint4* source, uint4* target, int count)
{
    const int first = blockIdx.x * 1024 + threadIdx.x;
    uint4 held[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + 256 * i < count) held[i] = source[first + 256 * i];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + 256 * i < count) target[first + 256 * i] = held[i];
}
"""

# count is a power of two. Every repeat shifts a thread to other addresses, and .cg loads are kept in L2 only.
L2_COPY = r"""
extern "C" __global__ void __launch_bounds__(1024) l2_copy(const uint4* source, uint4* target, int count, int repeats)
{
    const int threads = gridDim.x * blockDim.x;
    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        #pragma unroll 4
        for (int i = first; i < count; i += threads) {
            const int at = (i + repeat * threads) & (count - 1);
            uint4 value;
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(source + at));
            target[at] = value;
        }
    }
}
"""

L2_READ = r"""
extern "C" __global__ void __launch_bounds__(1024) l2_read(const uint4* source, unsigned* sums, int count, int repeats)
{
    const int threads = gridDim.x * blockDim.x;
    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = 0;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        #pragma unroll 4
        for (int i = first; i < count; i += threads) {
            uint4 value;
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                         : "l"(source + ((i + repeat * threads) & (count - 1))));
            sum += value.x ^ value.y ^ value.z ^ value.w;
        }
    }
    sums[first] = sum;
}
"""

# All lanes of a warp follow one chain, so that a step is one sector.
POINTER_CHASE = r"""
extern "C" __global__ void pointer_chase(const int* next, int* ends, int count, int steps)
{
    int at = (int)((long long)blockIdx.x * count / gridDim.x);
    for (int step = 0; step < steps; ++step) at = next[at];
    if (threadIdx.x == 0) ends[blockIdx.x] = at;
}
"""

# x = x * scale + shift, eight independent chains a thread. Block 0 does `rounds` of them, the others `rounds_of_rest`.
FMA = r"""
extern "C" __global__ void NAME(const float* coefficients, float* out, int rounds, int rounds_of_rest)
{
    const float scale = coefficients[0], shift = coefficients[1];
    const int mine = blockIdx.x == 0 ? rounds : rounds_of_rest;
    float x[8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = (float)(threadIdx.x + i);
    #pragma unroll 16
    for (int round = 0; round < mine; ++round) {
        #pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = fmaf(x[i], scale, shift);
    }
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 8; ++i) sum += x[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""

# A warp's tile is 32 rows of 32 words; lane l reads row l, so all lanes are in the bank of the column.
BANK_CONFLICTS = r"""
extern "C" __global__ void __launch_bounds__(256) bank_conflicts(const float* values, float* out, int repeats)
{
    __shared__ float tiles[8 * 1024];
    for (int i = threadIdx.x; i < 8 * 1024; i += 256) tiles[i] = values[i];
    __syncthreads();
    const volatile float* row = tiles + threadIdx.x * 32;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int repeat = 0; repeat < repeats; ++repeat) {
        #pragma unroll
        for (int column = 0; column < 32; ++column) sum[column & 3] += row[column];
    }
    out[blockIdx.x * 256 + threadIdx.x] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
"""


def compile_kernel(source: str, name: str) -> Callable[..., None]:
    """The CUDA kernel of a source, compiled for the current device: called with grid=, block=, args=."""
    import torch

    kernel: Callable[..., None] = torch.cuda._compile_kernel(source, name)
    return kernel


def multiprocessors(device: str) -> int:
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)


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


@dataclass(frozen=True)
class DeviceCopyParams:
    mebibytes: int = param(1024, "size of each buffer", low=1, high=16384)


class DeviceCopy(Workload[DeviceCopyParams]):
    name = "device_copy"
    summary = "one buffer copied to another by a kernel"
    Params = DeviceCopyParams

    @property
    def size_bytes(self) -> int:
        return self.params.mebibytes << 20

    @functools.cached_property
    def source(self) -> "Tensor":
        return Random(self.device, self.seed).normal((self.size_bytes // 2,), "fp16")

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        import torch

        source = self.source
        target = torch.empty_like(source)
        kernel = compile_kernel(DEVICE_COPY, "device_copy")
        vectors = self.size_bytes // VECTOR_BYTES

        def launch() -> "Sequence[Tensor]":
            kernel(grid=(-(-vectors // 1024), 1, 1), block=(256, 1, 1), args=[source, target, vectors])
            return (target,)

        return launch

    def cost(self) -> Cost:
        return Cost(flops=0, bytes_read=self.size_bytes, bytes_written=self.size_bytes)

    def reference(self) -> "Sequence[Tensor]":
        return (self.source.float(),)


@dataclass(frozen=True)
class L2CopyParams:
    repeats: int = param(200, "times that the buffer is copied in one launch", low=1)


class L2Copy(Workload[L2CopyParams]):
    name = "l2_copy"
    summary = "8 MiB copied over and over in one kernel, in L2 after the first time"
    Params = L2CopyParams
    size_bytes = 8 << 20

    @functools.cached_property
    def source(self) -> "Tensor":
        return Random(self.device, self.seed).normal((self.size_bytes // 2,), "fp16")

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        import torch

        source = self.source
        target = torch.empty_like(source)
        kernel = compile_kernel(L2_COPY, "l2_copy")
        blocks = 2 * multiprocessors(self.device)
        arguments = [source, target, self.size_bytes // VECTOR_BYTES, self.params.repeats]

        def launch() -> "Sequence[Tensor]":
            kernel(grid=(blocks, 1, 1), block=(1024, 1, 1), args=arguments)
            return (target,)

        return launch

    def cost(self) -> Cost:
        return Cost(flops=0, bytes_read=self.size_bytes, bytes_written=self.size_bytes)

    def reference(self) -> "Sequence[Tensor]":
        return (self.source.float(),)


class L2Read(Workload[L2CopyParams]):
    name = "l2_read"
    summary = "16 MiB read over and over in one kernel, from L2 after the first time"
    Params = L2CopyParams
    size_bytes = 16 << 20

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        import torch

        source = Random(self.device, self.seed).normal((self.size_bytes // 2,), "fp16")
        blocks = 2 * multiprocessors(self.device)
        sums = torch.zeros(blocks * 1024, dtype=torch.int32, device=self.device)
        kernel = compile_kernel(L2_READ, "l2_read")
        arguments = [source, sums, self.size_bytes // VECTOR_BYTES, self.params.repeats]

        def launch() -> "Sequence[Tensor]":
            kernel(grid=(blocks, 1, 1), block=(1024, 1, 1), args=arguments)
            return (sums,)

        return launch

    def cost(self) -> Cost:
        return Cost(flops=0, bytes_read=self.size_bytes, bytes_written=0)


@dataclass(frozen=True)
class PointerChaseParams:
    steps: int = param(1024, "loads of a chain, each waiting for the one before", low=1)
    warps_per_sm: int = param(4, "chains on each multiprocessor", low=1, high=32)


class PointerChase(Workload[PointerChaseParams]):
    name = "pointer_chase"
    summary = "chains of dependent loads, a few on every multiprocessor"
    Params = PointerChaseParams
    count = 1 << 26
    """Links of the cycle: 256 MiB, four times the L2 of an H200."""

    @functools.cached_property
    def order(self) -> "Tensor":
        """int64 [count]: the places in the order in which the cycle visits them."""
        return Random(self.device, self.seed).permutation(self.count).long()

    @property
    def chains(self) -> int:
        return self.params.warps_per_sm * multiprocessors(self.device)

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        import torch

        order, chains = self.order, self.chains
        following = torch.empty(self.count, dtype=torch.int32, device=self.device)
        following[order] = order.roll(-1).int()
        ends = torch.zeros(chains, dtype=torch.int32, device=self.device)
        kernel = compile_kernel(POINTER_CHASE, "pointer_chase")
        arguments = [following, ends, self.count, self.params.steps]

        def launch() -> "Sequence[Tensor]":
            kernel(grid=(chains, 1, 1), block=(WARP, 1, 1), args=arguments)
            return (ends,)

        return launch

    def cost(self) -> Cost:
        """One 4-byte link a step; the number of chains is the GPU's, 132 SMs here."""
        chains = self.params.warps_per_sm * 132
        return Cost(flops=0, bytes_read=FLOAT_BYTES * self.params.steps * chains, bytes_written=FLOAT_BYTES * chains)

    def reference(self) -> "Sequence[Tensor]":
        import torch

        chains = self.chains
        starts = torch.arange(chains, device=self.device) * self.count // chains
        position = torch.empty_like(self.order)
        position[self.order] = torch.arange(self.count, device=self.device)
        return (self.order[(position[starts] + self.params.steps) % self.count].float(),)


class FmaWorkload(Workload[Any]):
    """Blocks of fused multiply-adds; x -> x * scale + shift ends at shift / (1 - scale), whatever x was."""

    threads = 256
    scale, shift = 0.5, 0.75

    def rounds(self) -> tuple[int, int]:
        """Of the first block, and of each of the others."""
        raise NotImplementedError

    def blocks(self, sms: int) -> int:
        raise NotImplementedError

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        import torch

        blocks = self.blocks(multiprocessors(self.device))
        coefficients = torch.tensor([self.scale, self.shift], device=self.device)
        out = torch.zeros(blocks * self.threads, device=self.device)
        kernel = compile_kernel(FMA.replace("NAME", self.name), self.name)
        arguments = [coefficients, out, *self.rounds()]

        def launch() -> "Sequence[Tensor]":
            kernel(grid=(blocks, 1, 1), block=(self.threads, 1, 1), args=arguments)
            return (out,)

        return launch

    def cost(self) -> Cost:
        """Two FLOPs a fused multiply-add; the number of blocks is the GPU's, 132 SMs here."""
        blocks = self.blocks(132)
        first, rest = self.rounds()
        return Cost(
            flops=2 * 8 * self.threads * (first + rest * (blocks - 1)),
            bytes_read=2 * FLOAT_BYTES,
            bytes_written=FLOAT_BYTES * self.threads * blocks,
        )

    def reference(self) -> "Sequence[Tensor]":
        import torch

        count = self.threads * self.blocks(multiprocessors(self.device))
        return (torch.full((count,), 8 * self.shift / (1 - self.scale), device=self.device),)


@dataclass(frozen=True)
class RoundsParams:
    rounds: int = param(32768, "times that a thread does its eight multiply-adds", low=64)


class FmaChain(FmaWorkload):
    name = "fma_chain"
    summary = "FP32 fused multiply-adds, eight independent ones a thread"
    Params = RoundsParams

    def rounds(self) -> tuple[int, int]:
        return self.params.rounds, self.params.rounds

    def blocks(self, sms: int) -> int:
        return 8 * sms


class OneBlock(FmaWorkload):
    name = "one_block"
    summary = "one block that computes for long"
    Params = RoundsParams
    threads = 1024

    def rounds(self) -> tuple[int, int]:
        return self.params.rounds, 0

    def blocks(self, sms: int) -> int:
        return min(sms, 1)


class UnevenBlocks(FmaWorkload):
    name = "uneven_blocks"
    summary = "blocks for every multiprocessor, the first with 64 times the work"
    Params = RoundsParams

    def rounds(self) -> tuple[int, int]:
        return self.params.rounds, max(self.params.rounds // 64, 64)

    def blocks(self, sms: int) -> int:
        return 8 * sms


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


class BankConflicts(Workload[BankConflictsParams]):
    name = "bank_conflicts"
    summary = "shared-memory loads with 32-way bank conflicts"
    Params = BankConflictsParams
    threads = 256

    @functools.cached_property
    def values(self) -> "Tensor":
        """float32 [threads, 32]: the words that each thread reads."""
        return Random(self.device, self.seed).normal((self.threads, WARP), "fp16").float()

    def blocks(self, sms: int) -> int:
        return 4 * sms

    def setup(self) -> Callable[[], "Sequence[Tensor]"]:
        import torch

        values, blocks = self.values, self.blocks(multiprocessors(self.device))
        out = torch.zeros(blocks * self.threads, device=self.device)
        kernel = compile_kernel(BANK_CONFLICTS, "bank_conflicts")
        arguments = [values, out, self.params.repeats]

        def launch() -> "Sequence[Tensor]":
            kernel(grid=(blocks, 1, 1), block=(self.threads, 1, 1), args=arguments)
            return (out,)

        return launch

    def cost(self) -> Cost:
        """One addition a word; the number of blocks is the GPU's, 132 SMs here."""
        threads = self.threads * self.blocks(132)
        return Cost(
            flops=threads * WARP * self.params.repeats,
            bytes_read=self.threads * WARP * FLOAT_BYTES,
            bytes_written=threads * FLOAT_BYTES,
        )

    def reference(self) -> "Sequence[Tensor]":
        sums = self.values.sum(1) * self.params.repeats
        return (sums.repeat(self.blocks(multiprocessors(self.device))),)
