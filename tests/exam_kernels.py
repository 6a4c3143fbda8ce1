"""An exam for ``fiprof verdict``: kernels as GPU programmers write them, whose limit and first step are known.

Written by somebody who had not read the verdict's rules; collected as those of ``tests/single_purpose.py``, by
``tests/collect_single_purpose.sh``. How each is launched, and what is right of it, stands in ``tests/kernels/exams.csv``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from fiprof.workloads.base import Random
from tests.single_purpose import KERNELS
from tests.trouble_kernels import Trouble, questions, workload

if TYPE_CHECKING:
    from torch import Tensor


class CudaExam(Trouble):
    """The kernel of a file of tests/kernels that has the workload's name."""

    file: ClassVar[str] = "exam.cu"
    grid: ClassVar[int] = 0
    """Blocks; 0: blocks_per_sm on each multiprocessor."""

    def source(self, name: str) -> str:
        text = (KERNELS / "common.cu").read_text() + (KERNELS / self.file).read_text()
        head, *parts = re.split(r"(?m)^//# ", text)
        return f"{head}{next(part.partition(chr(10))[2] for part in parts if part.startswith(f'{name}:'))}"

    def blocks(self) -> int:
        return self.grid or super().blocks()


class TextureBlur(CudaExam):
    """By CuPy: torch makes no textures."""

    name, summary = "texture_blur", "25 bilinear texture fetches a pixel"
    width = 4096

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import cupy
        import cupy.cuda.texture
        import numpy as np
        import torch

        pixels = Random(self.device, self.seed).normal((self.width, self.width), "fp16").float().cpu().numpy()
        texture = cupy.cuda.texture
        image = texture.CUDAarray(texture.ChannelFormatDescriptor(32, 0, 0, 0, 2), self.width, self.width)
        image.copy_from(pixels)
        looked_up = texture.TextureObject(
            texture.ResourceDescriptor(0, cuArr=image), texture.TextureDescriptor((1, 1), 1, 0)
        )
        kernel = cupy.RawKernel(self.source(self.name), self.name)
        out = torch.zeros(self.width * self.width, device=self.device)
        arguments = (looked_up, np.uintp(out.data_ptr()), np.int32(self.width))

        def launch() -> Sequence[Tensor]:
            kernel((self.width * self.width // self.threads,), (self.threads,), arguments)
            return (out,)

        return launch


class TorchExam(Trouble):
    """What torch or Triton launches: ``make`` takes torch and what gives half-precision random numbers of a shape."""

    make: ClassVar[Callable[[Any, Callable[..., Any]], Callable[[], object]]]

    def setup(self) -> Callable[[], Sequence[Tensor]]:
        import torch

        random = Random(self.device, self.seed)
        launch = type(self).make(torch, lambda *shape: random.normal(shape, "fp16"))

        def launch_one() -> Sequence[Tensor]:
            launch()
            return ()

        return launch_one


def triton(name: str, *grid: int) -> Callable[..., object]:
    """What launches a Triton kernel."""
    launch: Callable[..., object] = getattr(import_module("tests.kernels.triton_kernels"), name)[grid]
    return launch


Make = Callable[[Any, Callable[..., Any]], object]


def exams(module: dict[str, Any], name: str) -> Callable[[str, Make], None]:
    """Add an exam's CUDA kernels to a module. Returns what adds a workload of what a function makes of torch and
    half-precision random numbers of a shape."""
    known = questions(name)
    for row in known.values():
        if row.launch:
            workload(module, row, CudaExam, file=f"{name}.cu")

    def torch_exam(kernel: str, make: Make) -> None:
        workload(module, known[kernel], TorchExam, make=staticmethod(make))

    return torch_exam


torch_exam = exams(globals(), "exam")


class ScaledSumMore(CudaExam):
    name, summary = "scaled_sum_more", "scaled_sum with fourteen warps"
    elements, threads, blocks_per_sm = 1 << 25, 448, 1

    def launch(self, name: str) -> Callable[..., Tensor]:  # noqa: ARG002
        return super().launch("scaled_sum")


# fmt: off
torch_exam("gelu_tiny", lambda torch, normal: partial(torch.nn.functional.gelu, normal(16, 4096)))
torch_exam("residual_add",
    lambda torch, normal: partial(torch.add, normal(1 << 26), x := normal(1 << 26), out=torch.empty_like(x)))
torch_exam("layer_norm",
    lambda torch, normal: partial(torch.nn.functional.layer_norm, normal(8192, 4096).bfloat16(), (4096,),
                                  weight := normal(4096).bfloat16(), weight))
torch_exam("gemm_bf16",
    lambda torch, normal: partial(torch.mm, normal(4096, 4096).bfloat16(), normal(4096, 4096).bfloat16()))
torch_exam("skinny_linear",
    lambda torch, normal: partial(torch.mm, normal(8, 8192).bfloat16(), normal(16384, 8192).bfloat16().T))
torch_exam("cumsum_rows", lambda torch, normal: partial(torch.cumsum, normal(16, 1 << 17).float(), 1))
torch_exam("softmax_three_passes",
    lambda torch, normal: partial(triton("softmax_three_passes", 2048), x := normal(2048, 16384).float(),
                                  torch.empty_like(x), 16384, block=1024, num_warps=4))
torch_exam("histogram_global",
    lambda torch, normal: partial(triton("count_bins", 1 << 12), x := (normal(1 << 22) * 16).int() & 63,
                                  torch.zeros_like(x[:64]), block=1024))
torch_exam("matmul_unpipelined",
    lambda torch, normal: partial(triton("matmul_unpipelined", 32, 32), x := normal(2048, 2048), normal(2048, 2048),
                                  torch.empty_like(x), size=2048, tile=64, step=32, num_stages=1))
