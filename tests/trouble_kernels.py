"""Kernels with one trouble each, to hold ``fiprof verdict`` against on a real GPU; collected as those of
``tests/single_purpose.py``, by ``tests/collect_single_purpose.sh``. How each is launched stands in
``tests/kernels/exams.csv``, with limit, cause and first step.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from fiprof.workloads.base import Cost, Random, Workload, param
from tests.single_purpose import KERNELS, compile_kernel, multiprocessors, parameters

if TYPE_CHECKING:
    from torch import Tensor

LONG_CODE = " ".join(f"x{i % 4} = x{i % 4} * {1 + (i % 97) / 128}f + x{(i + 1) % 4};" for i in range(16384))


class Trouble(Workload[Any]):
    """The kernel of kernels/troubles.cu that has the workload's name."""

    Params = parameters(repeats=param(0, "times that a thread does its work; 0: this kernel's own choice", low=0))
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


class Question(NamedTuple):
    """A row of kernels/exams.csv: a CUDA kernel, launched as the attributes of its workload say, or another one.

    limits, first_steps: words of which any is right; a kind alone takes any part, and of a pair either may be meant. cause:
    that has to be named, of a trouble alone.
    """

    exam: str
    kernel: str
    launch: str
    limits: str
    cause: str
    first_steps: str
    built_in: str


def questions(name: str) -> dict[str, Question]:
    """Kernel -> its row, of an exam or of the troubles."""
    with (KERNELS / "exams.csv").open(encoding="utf-8", newline="") as table:
        return {row["kernel"]: Question(**row) for row in csv.DictReader(table) if row["exam"] == name}


def workload(module: dict[str, Any], row: Question, base: type, **attributes: object) -> None:
    """Add a row's workload to a module."""
    for key, text in (word.split("=") for word in row.launch.split()):
        digits, _, shift = text.partition("<<")
        attributes[key] = float(digits) if "." in digits else int(digits) << int(shift or 0)
    attributes |= {"__module__": module["__name__"], "name": row.kernel, "summary": row.built_in}
    module[row.kernel] = type(row.kernel, (base,), attributes)


for question in questions("trouble").values():
    if question.launch:
        workload(globals(), question, Trouble)
