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
from tests.single_purpose import KERNELS, compile_kernel, multiprocessors

if TYPE_CHECKING:
    from torch import Tensor

LONG_CODE = " ".join(f"x{i % 4} = x{i % 4} * {1 + (i % 97) / 128}f + x{(i + 1) % 4};" for i in range(16384))


@dataclass(frozen=True)
class RepeatsParams:
    repeats: int = param(0, "times that a thread does its work; 0: this kernel's own choice", low=0)


class Trouble(Workload[RepeatsParams]):
    """The kernel of kernels/troubles.cu that has the workload's name."""

    Params = RepeatsParams
    threads: ClassVar[int] = 256
    blocks_per_sm: ClassVar[float] = 8
    repeats: ClassVar[int] = 256
    elements: ClassVar[int] = 1 << 20
    """Floats of the input and of the output; a power of two."""
    shared_bytes: ClassVar[int] = 0
    """Dynamic shared memory of a block."""

    def inputs(self) -> Tensor:
        """float32 [elements]."""
        return Random(self.device, self.seed).normal((self.elements,), "fp16").float()

    def blocks(self) -> int:
        return max(int(self.blocks_per_sm * multiprocessors(self.device)), 1)

    def launch(self, name: str) -> Callable[..., Tensor]:
        """Launch a kernel, on the current or another stream; its output."""
        import torch

        values, out = self.inputs(), torch.zeros(self.elements, device=self.device)
        long_code = LONG_CODE if name == "long_code" else ""
        kernel = compile_kernel(f"#define LONG_CODE {long_code}\n{(KERNELS / 'troubles.cu').read_text()}", name)
        if self.shared_bytes > 48 << 10:
            kernel.set_shared_memory_config(self.shared_bytes)  # type: ignore[attr-defined]
        grid, repeats = (self.blocks(), 1, 1), self.params.repeats or self.repeats
        arguments = [values, out, self.elements, repeats]

        def launch(**stream: Any) -> Tensor:
            kernel(grid=grid, block=(self.threads, 1, 1), args=arguments, shared_mem=self.shared_bytes, **stream)
            return out

        return launch

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        launch = self.launch(self.name)
        return lambda: (launch(),)

    def cost(self) -> Cost:
        """Not known: what these kernels do is of no use to anybody."""
        return Cost(flops=0, bytes_read=0, bytes_written=0)


class GlobalAtomics(Trouble):
    name, summary = "global_atomics", "every thread adds to one address"
    repeats = 16


class SharedAtomics(Trouble):
    name, summary = "shared_atomics", "every thread of a block adds to one word of shared memory"


class BlockBarrier(Trouble):
    name, summary = "block_barrier", "a block-wide barrier after every few additions"
    threads, blocks_per_sm, repeats = 1024, 2, 4096


class SpilledRegisters(Trouble):
    name, summary = "spilled_registers", "more live values than registers"
    threads, blocks_per_sm, repeats = 1024, 2, 64


class IndexedArray(Trouble):
    name, summary = "indexed_array", "a thread's array indexed by data"
    repeats = 512


class ScatteredStores(Trouble):
    name, summary = "scattered_stores", "neighbouring threads store far apart"
    elements, repeats, blocks_per_sm = 1 << 28, 64, 16


class RandomGathers(Trouble):
    name, summary = "random_gathers", "4-byte loads from anywhere in 1 GiB"
    elements, repeats, blocks_per_sm = 1 << 28, 64, 16


class DivergentBranches(Trouble):
    name, summary = "divergent_branches", "32 ways through a loop, one for each lane"
    repeats = 64


class WaveAndABit(Trouble):
    name, summary = "wave_and_a_bit", "one wave of equal blocks and eight blocks more"
    threads, repeats = 1024, 16384

    def blocks(self) -> int:
        return 2 * multiprocessors(self.device) + 8


class LongCode(Trouble):
    name, summary = "long_code", "a loop body larger than every instruction cache"
    threads, blocks_per_sm, repeats = 128, 1, 32


class TwoStreams(Trouble):
    name, summary = "two_streams", "two kernels side by side, each with blocks for half of the multiprocessors"
    threads, blocks_per_sm, repeats = 1024, 0.5, 32768

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import torch

        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        launches = [self.launch(f"two_streams_{side}") for side in ("left", "right")]

        def launch() -> Sequence[Tensor]:
            main = torch.cuda.current_stream()
            outs = []
            for of_side, stream in zip(launches, streams, strict=True):
                stream.wait_stream(main)
                outs.append(of_side(stream=stream))
            for stream in streams:
                main.wait_stream(stream)
            return outs

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


class Fp64Chain(Trouble):
    name, summary = "fp64_chain", "double-precision multiply-adds"
    repeats = 8192


class SpecialFunctions(Trouble):
    name, summary = "special_functions", "sines by the XU pipe"
    repeats = 2048


class IntegerLogic(Trouble):
    name, summary = "integer_logic", "shifts and exclusive-ors: the ALU pipe"
    repeats = 4096


class ConstantIndices(Trouble):
    name, summary = "constant_indices", "lanes that read different words of constant memory"


class MemoryFences(Trouble):
    name, summary = "memory_fences", "a fence after every store"
    elements, repeats = 1 << 24, 64


class Sleeping(Trouble):
    name, summary = "sleeping", "blocks that poll a flag between naps while one block works"
    blocks_per_sm, repeats = 1, 65536


class HostMemory(Trouble):
    name, summary = "host_memory", "loads from pinned memory of the host"
    elements, repeats, blocks_per_sm = 1 << 22, 1, 8

    def inputs(self) -> Tensor:
        return super().inputs().cpu().pin_memory()


class DependentMath(Trouble):
    name, summary = "dependent_math", "one chain of dependent multiply-adds in four warps a multiprocessor"
    threads, blocks_per_sm, repeats = 128, 1, 65536


class FewWarps(Trouble):
    name, summary = "few_warps", "loads with two warps a multiprocessor, because of their shared memory"
    elements, threads, blocks_per_sm, repeats = 1 << 28, 64, 32, 1024
    shared_bytes = 160 << 10


class L1Reads(Trouble):
    name, summary = "l1_reads", "a few kB read over and over from L1"
    repeats = 1024
