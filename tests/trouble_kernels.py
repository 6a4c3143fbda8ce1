"""Kernels with one trouble each, to hold ``fiprof verdict`` against on a real GPU; collected as those of
``tests/single_purpose.py``, by ``tests/collect_single_purpose.sh``.
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

    def source(self, name: str) -> str:
        """The source of a kernel."""
        long_code = LONG_CODE if name == "long_code" else ""
        return f"#define LONG_CODE {long_code}\n{(KERNELS / 'troubles.cu').read_text()}"

    def launch(self, name: str) -> Callable[..., Tensor]:
        """Launch a kernel, on the current or another stream; its output."""
        import torch

        values, out = self.inputs(), torch.zeros(self.elements, device=self.device)
        kernel = compile_kernel(self.source(name), name)
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


class WaveAndABit(Trouble):
    name, summary = "wave_and_a_bit", "one wave of equal blocks and eight blocks more"
    threads, repeats = 1024, 16384

    def blocks(self) -> int:
        return 2 * multiprocessors(self.device) + 8


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
    name, summary = "device_memcpy", "a copy of 134 MB by the copy engine or the driver's kernel, and a tiny kernel"
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


class HostMemory(Trouble):
    name, summary = "host_memory", "loads from pinned memory of the host"
    elements, repeats, blocks_per_sm = 1 << 22, 1, 8

    def inputs(self) -> Tensor:
        return super().inputs().cpu().pin_memory()


def trouble(name: str, summary: str, **launch: float) -> None:
    """A kernel of this name that is launched as the attributes say."""
    globals()[name] = type(name, (Trouble,), {"__module__": __name__, "name": name, "summary": summary, **launch})


trouble("global_atomics", "every thread adds to one address", repeats=16)
trouble("shared_atomics", "every thread of a block adds to one word of shared memory")
trouble("block_barrier", "a barrier after every few additions", threads=1024, blocks_per_sm=2, repeats=4096)
trouble("spilled_registers", "more live values than registers", threads=1024, blocks_per_sm=2, repeats=64)
trouble("indexed_array", "a thread's array indexed by data: local memory", repeats=512)
trouble("scattered_stores", "neighbouring threads store far apart", elements=1 << 28, repeats=64, blocks_per_sm=16)
trouble("random_gathers", "4-byte loads from anywhere in 1 GiB", elements=1 << 28, repeats=64, blocks_per_sm=16)
trouble("divergent_branches", "32 ways through a loop, one for each lane", repeats=64)
trouble("long_code", "a loop larger than every instruction cache", threads=128, blocks_per_sm=1, repeats=32)
trouble("partial_warps", "blocks of eight threads", threads=8, blocks_per_sm=64, repeats=8192)
trouble("fp64_chain", "double-precision multiply-adds", repeats=8192)
trouble("special_functions", "sines by the XU pipe", repeats=2048)
trouble("integer_logic", "shifts and exclusive-ors: the ALU pipe", repeats=4096)
trouble("constant_indices", "lanes that read different words of constant memory")
trouble("memory_fences", "a fence after every store", elements=1 << 24, repeats=64)
trouble("sleeping", "blocks that poll a flag between naps while one block works", blocks_per_sm=1, repeats=65536)
trouble("dependent_math", "one chain of multiply-adds in four warps an SM", threads=128, blocks_per_sm=1, repeats=65536)
trouble("few_warps", "loads with two warps an SM, because of their shared memory", elements=1 << 28, threads=64,
        blocks_per_sm=32, repeats=1024, shared_bytes=160 << 10)  # fmt: skip
trouble("l1_reads", "a few kB read over and over from L1", repeats=1024)
