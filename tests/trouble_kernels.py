"""Kernels with one trouble each, to hold ``fiprof verdict`` against on a real GPU; collected as those of
``tests/single_purpose.py``, by ``tests/collect_single_purpose.sh``.

global_atomics     every thread adds to one address
shared_atomics     every thread of a block adds to one word of shared memory
block_barrier      a block-wide barrier after every few additions
spilled_registers  more live values than registers: spills to local memory
indexed_array      a thread's array indexed by data: local memory
scattered_stores   neighbouring threads store far apart
random_gathers     4-byte loads from anywhere in 1 GiB
divergent_branches 32 ways through a loop, one for each lane
wave_and_a_bit     one wave of equal blocks and eight blocks more
long_code          a loop body larger than every instruction cache
two_streams        two kernels side by side, each with blocks for half of the multiprocessors
device_memcpy      a copy of 134 MB by the copy engine or the driver's kernel, and a tiny kernel
partial_warps      blocks of eight threads
fp64_chain         double-precision multiply-adds
special_functions  sines by the XU pipe
integer_logic      shifts and exclusive-ors: the ALU pipe
constant_indices   lanes that read different words of constant memory
memory_fences      a fence after every store
sleeping           blocks that poll a flag between naps while one block works
host_memory        loads from pinned memory of the host
dependent_math     one chain of dependent multiply-adds in four warps a multiprocessor
few_warps          loads with two warps a multiprocessor, because of their shared memory
l1_reads           a few kB read over and over from L1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fiprof.workloads.base import Cost, Random, Workload, param
from tests.single_purpose import compile_kernel, multiprocessors

if TYPE_CHECKING:
    from torch import Tensor

SIGNATURE = 'extern "C" __global__ void {bounds} {name}(const float* in, float* out, int count, int repeats)'


@dataclass(frozen=True)
class RepeatsParams:
    repeats: int = param(0, "times that a thread does its work; 0: this kernel's own choice", low=0)


class Trouble(Workload[RepeatsParams]):
    """A CUDA kernel of (float* in, float* out, int count, int repeats)."""

    Params = RepeatsParams
    body: ClassVar[str]
    bounds: ClassVar[str] = ""
    before: ClassVar[str] = ""
    """Source before the kernel."""
    threads: ClassVar[int] = 256
    blocks_per_sm: ClassVar[float] = 8
    repeats: ClassVar[int] = 256
    elements: ClassVar[int] = 1 << 20
    """Floats of the input and of the output; a power of two."""
    shared_bytes: ClassVar[int] = 0
    """Dynamic shared memory of a block."""

    @property
    def source(self) -> str:
        """The kernel's CUDA source."""
        return f"{self.before}\n{SIGNATURE.format(bounds=self.bounds, name=self.name)}\n{{{self.body}}}\n"

    def inputs(self) -> Tensor:
        """float32 [elements]."""
        return Random(self.device, self.seed).normal((self.elements,), "fp16").float()

    def blocks(self) -> int:
        return max(int(self.blocks_per_sm * multiprocessors(self.device)), 1)

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import torch

        values = self.inputs()
        out = torch.zeros(self.elements, device=self.device)
        kernel = compile_kernel(self.source, self.name)
        if self.shared_bytes > 48 << 10:
            kernel.set_shared_memory_config(self.shared_bytes)  # type: ignore[attr-defined]
        grid, repeats = (self.blocks(), 1, 1), self.params.repeats or self.repeats
        arguments = [values, out, self.elements, repeats]

        def launch() -> Sequence[Tensor]:
            kernel(grid=grid, block=(self.threads, 1, 1), args=arguments, shared_mem=self.shared_bytes)
            return (out,)

        return launch

    def cost(self) -> Cost:
        """Not known: what these kernels do is of no use to anybody."""
        return Cost(flops=0, bytes_read=0, bytes_written=0)


class GlobalAtomics(Trouble):
    name, summary = "global_atomics", "every thread adds to one address"
    repeats = 16
    # A value that differs by lane keeps the compiler from adding up a warp's.
    body = """
    for (int i = 0; i < repeats; ++i) atomicAdd(out, (float)(threadIdx.x + i));
    """


class SharedAtomics(Trouble):
    name, summary = "shared_atomics", "every thread of a block adds to one word of shared memory"
    body = """
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    int mine = 0;
    for (int i = 0; i < repeats; ++i) mine += atomicAdd(&sum, (int)threadIdx.x + i);
    out[blockIdx.x * blockDim.x + threadIdx.x] = (float)mine;
    """


class BlockBarrier(Trouble):
    name, summary = "block_barrier", "a block-wide barrier after every few additions"
    threads, blocks_per_sm, repeats = 1024, 2, 4096
    body = """
    float x = in[threadIdx.x];
    for (int i = 0; i < repeats; ++i) { x = x * 0.5f + 0.25f; __syncthreads(); }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
    """


class SpilledRegisters(Trouble):
    name, summary = "spilled_registers", "more live values than registers"
    threads, blocks_per_sm, repeats = 1024, 2, 64
    bounds = "__launch_bounds__(1024, 2)"
    body = """
    float x[72];
    #pragma unroll
    for (int i = 0; i < 72; ++i) x[i] = in[(threadIdx.x + 1024 * i) & (count - 1)];
    for (int r = 0; r < repeats; ++r) {
        #pragma unroll
        for (int i = 0; i < 72; ++i) x[i] = x[i] * x[(i + 29) % 72] + x[(i + 47) % 72];
    }
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 72; ++i) sum += x[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    """


class IndexedArray(Trouble):
    name, summary = "indexed_array", "a thread's array indexed by data"
    repeats = 512
    body = """
    float x[256];
    for (int i = 0; i < 256; ++i) x[i] = in[(threadIdx.x + i) & (count - 1)];
    unsigned at = threadIdx.x + blockIdx.x;
    float sum = 0.0f;
    for (int r = 0; r < repeats; ++r) {
        at = (at * 1664525u + 1013904223u);
        x[(at >> 8) & 255] += sum;
        sum += x[(at >> 20) & 255];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    """


class ScatteredStores(Trouble):
    name, summary = "scattered_stores", "neighbouring threads store far apart"
    elements, repeats, blocks_per_sm = 1 << 28, 64, 16
    body = """
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < repeats; ++i)
        out[(unsigned)((thread + i * gridDim.x * blockDim.x) * 40503u * 64u) & (unsigned)(count - 1)] = (float)i;
    """


class RandomGathers(Trouble):
    name, summary = "random_gathers", "4-byte loads from anywhere in 1 GiB"
    elements, repeats, blocks_per_sm = 1 << 28, 64, 16
    body = """
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    #pragma unroll 8
    for (int i = 0; i < repeats; ++i)
        sum += in[((unsigned)(thread + i * 7919) * 2654435761u) >> 4 & (unsigned)(count - 1)];
    out[thread] = sum;
    """


class DivergentBranches(Trouble):
    name, summary = "divergent_branches", "32 ways through a loop, one for each lane"
    repeats = 64

    @property
    def body(self) -> str:  # type: ignore[override]
        ways = "\n".join(
            f"case {way}: for (int k = 0; k < 32; ++k) x = x * {1 + way / 64}f + {way}.5f; break;" for way in range(32)
        )
        return f"""
    float x = in[threadIdx.x];
    for (int i = 0; i < repeats; ++i) switch ((threadIdx.x + i) & 31) {{ {ways} }}
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
    """


class WaveAndABit(Trouble):
    name, summary = "wave_and_a_bit", "one wave of equal blocks and eight blocks more"
    threads, repeats = 1024, 16384
    body = """
    float x = in[threadIdx.x], y = x + 1.0f;
    for (int i = 0; i < repeats; ++i) { x = x * 0.5f + 0.25f; y = y * 0.5f + 0.75f; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x + y;
    """

    def blocks(self) -> int:
        return 2 * multiprocessors(self.device) + 8


class LongCode(Trouble):
    name, summary = "long_code", "a loop body larger than every instruction cache"
    threads, blocks_per_sm, repeats = 128, 1, 32

    @property
    def body(self) -> str:  # type: ignore[override]
        lines = "\n".join(f"x{i % 4} = x{i % 4} * {1 + (i % 97) / 128}f + x{(i + 1) % 4};" for i in range(16384))
        return f"""
    float x0 = in[threadIdx.x], x1 = in[threadIdx.x + 1], x2 = x0 + 2, x3 = x1 + 3;
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r) {{ {lines} }}
    out[blockIdx.x * blockDim.x + threadIdx.x] = x0 + x1 + x2 + x3;
    """


FMA_BODY = """
    float x[8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = in[threadIdx.x + i];
    for (int r = 0; r < repeats; ++r) {
        #pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = x[i] * 0.5f + 0.25f;
    }
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 8; ++i) sum += x[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    """


class TwoStreams(Trouble):
    name, summary = "two_streams", "two kernels side by side, each with blocks for half of the multiprocessors"
    threads, blocks_per_sm, repeats = 1024, 0.5, 32768
    body = FMA_BODY

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import torch

        values, count = self.inputs(), self.elements
        outs = [torch.zeros(count, device=self.device) for _ in range(2)]
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        kernels = [
            compile_kernel(self.source.replace(self.name, f"{self.name}_{side}"), f"{self.name}_{side}")
            for side in ("left", "right")
        ]
        grid, repeats = (self.blocks(), 1, 1), self.params.repeats or self.repeats

        def launch() -> Sequence[Tensor]:
            main = torch.cuda.current_stream()
            for kernel, stream, out in zip(kernels, streams, outs, strict=True):
                stream.wait_stream(main)
                kernel(grid=grid, block=(self.threads, 1, 1), args=[values, out, count, repeats], stream=stream)
            for stream in streams:
                main.wait_stream(stream)
            return tuple(outs)

        return launch


class DeviceMemcpy(Trouble):
    name, summary = "device_memcpy", "a copy of 134 MB and a tiny kernel"
    elements = 1 << 25

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import torch

        values = self.inputs()
        out = torch.zeros_like(values)

        def launch() -> Sequence[Tensor]:
            out.copy_(values)
            out[:1024].neg_()
            return (out,)

        return launch

    def cost(self) -> Cost:
        return Cost(flops=0, bytes_read=4 * self.elements, bytes_written=4 * self.elements)


class PartialWarps(Trouble):
    name, summary = "partial_warps", "blocks of eight threads"
    threads, blocks_per_sm, repeats = 8, 64, 8192
    body = FMA_BODY


class Fp64Chain(Trouble):
    name, summary = "fp64_chain", "double-precision multiply-adds"
    repeats = 8192
    body = FMA_BODY.replace("float", "double").replace("0.5f", "0.5").replace("0.25f", "0.25")
    body = body.replace("] = sum", "] = (float)sum")


class SpecialFunctions(Trouble):
    name, summary = "special_functions", "sines by the XU pipe"
    repeats = 2048
    body = FMA_BODY.replace("x[i] * 0.5f + 0.25f", "__sinf(x[i])")


class IntegerLogic(Trouble):
    name, summary = "integer_logic", "shifts and exclusive-ors: the ALU pipe"
    repeats = 4096
    body = """
    unsigned x[8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = __float_as_uint(in[threadIdx.x + i]);
    for (int r = 0; r < repeats; ++r) {
        #pragma unroll
        for (int i = 0; i < 8; ++i) { x[i] ^= x[i] << 13; x[i] ^= x[i] >> 17; x[i] ^= x[i] << 5; }
    }
    unsigned sum = 0;
    #pragma unroll
    for (int i = 0; i < 8; ++i) sum ^= x[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = (float)sum;
    """


class ConstantIndices(Trouble):
    name, summary = "constant_indices", "lanes that read different words of constant memory"
    before = f"__constant__ float table[1024] = {{{', '.join(f'{i}.0f' for i in range(1, 1025))}}};"
    body = """
    float sum = 0.0f;
    unsigned at = threadIdx.x * 33;
    for (int i = 0; i < repeats; ++i) { sum += table[at & 1023]; at += 97; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    """


class MemoryFences(Trouble):
    name, summary = "memory_fences", "a fence after every store"
    elements, repeats = 1 << 24, 64
    body = """
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < repeats; ++i) {
        out[(thread + i * 4096) & (count - 1)] = (float)i;
        __threadfence();
    }
    """


class Sleeping(Trouble):
    name, summary = "sleeping", "blocks that poll a flag between naps while one block works"
    blocks_per_sm, repeats = 1, 65536
    body = """
    __shared__ volatile int done;
    if (threadIdx.x == 0) done = 0;
    __syncthreads();
    float x = in[threadIdx.x];
    if (threadIdx.x < 32) {
        for (int i = 0; i < repeats; ++i) x = x * 0.5f + 0.25f;
        if (threadIdx.x == 0) done = 1;
    } else
        while (!done) __nanosleep(2000);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
    """


class HostMemory(Trouble):
    name, summary = "host_memory", "loads from pinned memory of the host"
    elements, repeats, blocks_per_sm = 1 << 22, 1, 8
    body = """
    const int threads = gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) sum += in[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    """

    def inputs(self) -> Tensor:
        return super().inputs().cpu().pin_memory()


class DependentMath(Trouble):
    name, summary = "dependent_math", "one chain of dependent multiply-adds in four warps a multiprocessor"
    threads, blocks_per_sm, repeats = 128, 1, 65536
    body = """
    float x = in[threadIdx.x];
    for (int i = 0; i < repeats; ++i) x = x * 0.5f + 0.25f;
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
    """


class FewWarps(Trouble):
    name, summary = "few_warps", "loads with two warps a multiprocessor, because of their shared memory"
    elements, threads, blocks_per_sm, repeats = 1 << 28, 64, 32, 1024
    shared_bytes = 160 << 10
    body = """
    extern __shared__ float held[];
    const int threads = gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x, r = 0; r < repeats; ++r, i += threads)
        sum += in[i & (count - 1)];
    held[threadIdx.x] = sum;
    out[blockIdx.x * blockDim.x + threadIdx.x] = held[threadIdx.x];
    """


class L1Reads(Trouble):
    name, summary = "l1_reads", "a few kB read over and over from L1"
    repeats = 1024
    body = """
    const float4* rows = (const float4*)in;
    float sum = 0.0f;
    #pragma unroll 4
    for (int i = 0; i < repeats; ++i) {
        float4 x;
        asm volatile("ld.global.ca.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(rows + ((threadIdx.x + 32 * i) & 511)));
        sum += x.x + x.y + x.z + x.w;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    """


TROUBLES: tuple[type[Workload[Any]], ...] = tuple(
    found for found in list(globals().values()) if isinstance(found, type) and issubclass(found, Trouble)
)[1:]
